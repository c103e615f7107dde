/* What a program does with memory, by scenario: what it sees must be what it sees without the
 * library, and the checker must find nothing. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ways.h"

static void *context;

static CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr at;
    CHECK(cuMemAlloc(&at, bytes));
    return at;
}

/* A block is written by one stream, freed at once, and its memory used by another. */
static void *rounds(void *words) {
    int many = *(int *)words;
    void *streams[3];
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 3; i++) CHECK(cuStreamCreate(&streams[i], 1));
    for (int i = 0; i < many; i++) {
        size_t bytes = (size_t)4096 << (i % 4);
        CUdeviceptr a = alloc(bytes), b, source = alloc(bytes);
        CHECK(cuMemsetD8Async(source, 3, bytes, streams[i % 3]));
        CHECK(cuMemsetD8Async(a, 1, bytes, streams[i % 3]));
        CHECK(cuMemcpyDtoDAsync(a, source, bytes, streams[i % 3]));
        CHECK(cuMemFree(source));
        CHECK(cuMemFree(a));
        b = alloc(bytes);
        CHECK(cuMemsetD8Async(b, 2, bytes, streams[(i + 1) % 3]));
        CHECK(cuMemFree(b));
        if (i % 50 == 49) CHECK(cuCtxSynchronize());
    }
    return NULL;
}

static void reuse(int threads) {
    pthread_t all[4];
    int many = 10000 / threads;
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, rounds, &many);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("rounds %d\n", many * threads);
}

struct other {
    int mode;
    void *stream;
};

/* Frees and takes memory that another thread's capture must not notice. */
static void *beside(void *unused) {
    CUdeviceptr a;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 20; i++) {
        CHECK(cuMemAlloc(&a, 65536));
        CHECK(cuMemFree(a));
    }
    return unused;
}

/* Memory for the other thread is there before the capture. */
static void capture(int mode) {
    void *stream, *graph = NULL;
    pthread_t other;
    CUdeviceptr kept = alloc(65536), spare[20];
    for (int i = 0; i < 20; i++) spare[i] = alloc(65536);
    for (int i = 0; i < 20; i++) CHECK(cuMemFree(spare[i]));
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamBeginCapture(stream, mode));
    CHECK(cuMemsetD8Async(kept, 1, 65536, stream));
    pthread_create(&other, NULL, beside, NULL);
    pthread_join(other, NULL);
    CHECK(cuStreamEndCapture(stream, &graph));
    REQUIRE(graph);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuCtxSynchronize());
    beside(NULL);
    CHECK(cuMemFree(kept));
    printf("captured in mode %d\n", mode);
}

/* In a thread that captures, a call that the cache cannot serve is the driver's to refuse. */
static void capture_miss(void) {
    void *stream, *graph = NULL;
    CUdeviceptr a;
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuStreamBeginCapture(stream, 0));
    printf("a miss in a capture: %d\n", cuMemAlloc(&a, 123456));
    printf("and its end: %d\n", cuStreamEndCapture(stream, &graph));
    CHECK(cuCtxSynchronize());
    a = alloc(123456);
    CHECK(cuMemFree(a));
}

/* What was exported is never handed out again: the other process may still have it. */
static void exported(void) {
    char handle[64];
    for (int i = 0; i < 50; i++) {
        CUdeviceptr a = alloc(1 << 20), b, now = 0;
        size_t bytes;
        CHECK(cuIpcGetMemHandle(handle, a + (i % 2)));
        CHECK(cuMemFree(a));
        printf("after a free: %d\n", cuMemGetAddressRange(&now, &bytes, a));
        b = alloc(1 << 20);
        CHECK(cuMemFree(b));
    }
}

static void set_attributes(void) {
    for (int i = 0; i < 20; i++) {
        int on = 1, is = 9;
        CUdeviceptr a = alloc(1 << 20);
        CHECK(cuPointerGetAttribute(&is, 6, a));
        REQUIRE(is == 0); /* not the last owner's */
        CHECK(cuPointerSetAttribute(&on, 6, a + 5));
        CHECK(cuPointerGetAttribute(&is, 6, a));
        printf("sync_memops %d\n", is);
        CHECK(cuMemFree(a));
    }
}

/* Memory that only the cache holds is there for a request of any kind and size. */
static void out_of_memory(void) {
    size_t free, total, now;
    CUdeviceptr all[16], one;
    unsigned long long handle;
    struct {
        int type, handle_types, kind, id;
        void *security;
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } properties = {1, 0, 1, 0, NULL, 0, 0, 0, {0}};
    CHECK(cuMemGetInfo(&free, &total));
    for (int i = 0; i < 16; i++) all[i] = alloc(total / 16);
    CHECK(cuMemGetInfo(&now, NULL));
    printf("full: %zu, one more: %d\n", now, cuMemAlloc(&one, 4 << 20));
    for (int i = 0; i < 16; i++) CHECK(cuMemFree(all[i]));
    CHECK(cuMemGetInfo(&now, NULL));
    REQUIRE(now == free);
    one = alloc(now);
    CHECK(cuMemFree(one));
    for (int i = 0; i < 16; i++) all[i] = alloc(total / 16);
    for (int i = 0; i < 16; i++) CHECK(cuMemFree(all[i]));
    CHECK(cuMemCreate(&handle, total, &properties, 0));
    CHECK(cuMemRelease(handle));
    for (int i = 0; i < 16; i++) all[i] = alloc(total / 16);
    for (int i = 0; i < 16; i++) CHECK(cuMemFree(all[i]));
    CHECK(cuMemAllocAsync(&one, total / 2, NULL));
    CHECK(cuMemFreeAsync(one, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemGetInfo(&now, NULL));
    REQUIRE(now == free);
    CHECK(cuMemGetInfo(NULL, NULL));
    CHECK(cuMemGetInfo(NULL, &now));
    REQUIRE(now == total);
    /* One that just fits, and would not if it were rounded up. */
    one = alloc(1 << 20);
    CUdeviceptr rest = alloc(total - (1 << 20));
    CHECK(cuMemFree(rest));
    CHECK(cuMemFree(one));
    puts("all of it, again and again");
}

static void attributes(void) {
    uint64_t seen[64];
    int known = 0;
    for (int i = 0; i < 60; i++) {
        size_t asked = (3 << 20) - 4096 * (i % 7), bytes = 0;
        CUdeviceptr a = alloc(asked), base;
        uint64_t size = 0, start = 0, id = 0;
        CHECK(cuMemGetAddressRange(&base, &bytes, a + asked - 1));
        REQUIRE(base == a && bytes == asked);
        CHECK(cuPointerGetAttribute(&size, 12, a + 1));
        CHECK(cuPointerGetAttribute(&start, 11, a + 1));
        CHECK(cuPointerGetAttribute(&id, 7, a));
        REQUIRE(size == asked && start == a && id);
        for (int j = 0; j < known; j++) REQUIRE(seen[j] != id); /* a buffer is never another */
        seen[known++] = id;
        int many[3] = {7, 12, 18};
        uint64_t same = 0, mapping = 0;
        void *to[3] = {&same, &size, &mapping};
        size = 0;
        CHECK(cuPointerGetAttributes(3, many, to, a));
        REQUIRE(same == id && size == asked && mapping == asked);
        int inside = cuPointerGetAttribute(&size, 12, a + asked - 1);
        int behind = cuPointerGetAttribute(&size, 12, a + asked);
        CHECK(cuMemFree(a));
        int after = cuPointerGetAttribute(&size, 12, a), again = cuMemFree(a), range = cuMemGetAddressRange(&base, &bytes, a);
        if (i < 3) printf("inside %d behind %d after %d again %d range %d\n", inside, behind, after, again, range);
    }
}

static void *without_a_context(void *kept) {
    CUdeviceptr a;
    printf("without a context: %d %d\n", cuMemFree(*(CUdeviceptr *)kept), cuMemAlloc(&a, 512));
    return NULL;
}

static void contexts(void) {
    void *mine, *now, *again;
    CUdeviceptr kept = alloc(1 << 20), a;
    for (int i = 0; i < 20; i++) {
        CHECK(cuCtxCreate(&mine, 0, 0));
        a = alloc(1 << 20);
        CHECK(cuMemsetD8(a, 1, 1 << 20));
        CHECK(cuMemFree(a));
        CUdeviceptr lost = alloc(2 << 20), other = alloc(1 << 20);
        CHECK(cuCtxSetCurrent(context));
        /* Freed from another context: the current one stays what it is. */
        CHECK(cuMemFree(other));
        CHECK(cuCtxGetCurrent(&now));
        REQUIRE(now == context);
        a = alloc(1 << 20);
        CHECK(cuMemsetD8(a, 2, 1 << 20));
        CHECK(cuMemFree(a));
        CHECK(cuCtxDestroy(mine));
        if (i == 0) printf("lost with its context: %d\n", cuMemFree(lost));
    }
    pthread_t other;
    pthread_create(&other, NULL, without_a_context, &kept);
    pthread_join(other, NULL);
    CHECK(cuMemFree(kept));
    /* Retained once more, it does not end. */
    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
    kept = alloc(7 << 20);
    CHECK(cuDevicePrimaryCtxRelease(0));
    CHECK(cuMemsetD8(kept, 1, 7 << 20));
    CHECK(cuMemFree(kept));
    a = alloc(7 << 20);
    CHECK(cuDevicePrimaryCtxReset(0));
    printf("after a reset: %d\n", cuMemFree(a));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    printf("and a new start: %d\n", cuMemFree(a));
    a = alloc(7 << 20);
    CHECK(cuMemsetD8(a, 1, 7 << 20));
    CHECK(cuMemFree(a));
    printf("used too much: %d\n", simcuda_used(0) > (8 << 20));
}

/* Memory of one device, used by another's work. */
static void peers(void) {
    void *there, *stream;
    CHECK(cuDevicePrimaryCtxRetain(&there, 1));
    CHECK(cuCtxSetCurrent(there));
    CHECK(cuCtxEnablePeerAccess(context, 0));
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 200; i++) {
        CUdeviceptr a = alloc(65536);
        CHECK(cuCtxSetCurrent(there));
        CHECK(cuMemsetD8Async(a, 1, 65536, stream));
        if (i % 20 == 19) CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(context));
        /* The driver's free waits for the owner's context; this program waits for the other. */
        CHECK(cuCtxSetCurrent(there));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuMemFree(a));
    }
    puts("peers");
}

/* The pool keeps what it has, and the program sees the threshold that it knows. */
static void pools(int theirs) {
    void *pool, *stream;
    uint64_t threshold = 99, want = 0; /* as it is, but said */
    CUdeviceptr a;
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuStreamCreate(&stream, 1));
    if (theirs) CHECK(cuMemPoolSetAttribute(pool, 4, &want));
    for (int i = 0; i < 20; i++) {
        CHECK(cuMemAllocAsync(&a, 8 << 20, stream));
        CHECK(cuMemFreeAsync(a, stream));
        CHECK(cuStreamSynchronize(stream));
    }
    int kept = simcuda_used(0) > 0;
    CHECK(cuMemPoolGetAttribute(pool, 4, &threshold));
    printf("threshold %llu\n", (unsigned long long)threshold);
    if (!theirs) {
        want = 5;
        CHECK(cuMemPoolSetAttribute(pool, 4, &want));
        CHECK(cuMemPoolGetAttribute(pool, 4, &threshold));
        printf("threshold %llu\n", (unsigned long long)threshold);
    }
    printf("kept %d\n", kept);
}

/* Memory that the library never gave out is the driver's, and so is what it says of it. */
static void foreign(void) {
    void *stream;
    CUdeviceptr a;
    uint64_t before = simcuda_used(0);
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuMemAllocAsync(&a, 4 << 20, stream));
    CHECK(cuStreamSynchronize(stream));
    printf("async memory: %d\n", cuMemFree(a));
    CHECK(cuMemAllocManaged(&a, 1 << 20, 1));
    printf("managed memory: %d\n", cuMemFree(a));
    CHECK(cuMemAlloc(&a, 8 << 20));
    printf("freed by a stream: %d", cuMemFreeAsync(a, stream));
    CHECK(cuStreamSynchronize(stream));
    printf(", again: %d, by cuMemFree: %d\n", cuMemFreeAsync(a, stream), cuMemFree(a));
    printf("garbage: %d %d\n", cuMemFree(0xdead000), cuMemFree(0xdeadbeefdeadbeefull));
    printf("null: %d\n", cuMemFree(0));
    CHECK(cuMemAlloc(&a, 8 << 20));
    printf("inside: %d\n", cuMemFree(a + 512));
    CHECK(cuMemFree(a));
    printf("twice: %d\n", cuMemFree(a));
    CHECK(cuMemAlloc(&a, 8 << 20)); /* maybe the same memory: free once more */
    CHECK(cuMemFree(a));
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    context = start(getenv("WAY") ? getenv("WAY") : "address2");
    if (!strcmp(what, "reuse")) reuse(1);
    if (!strcmp(what, "reuse-threads")) reuse(4);
    if (!strcmp(what, "capture")) capture(0), capture(1), capture(2);
    if (!strcmp(what, "capture-miss")) capture_miss();
    if (!strcmp(what, "exported")) exported();
    if (!strcmp(what, "set-attributes")) set_attributes();
    if (!strcmp(what, "out-of-memory")) out_of_memory();
    if (!strcmp(what, "attributes")) attributes();
    if (!strcmp(what, "contexts")) contexts();
    if (!strcmp(what, "peers")) peers();
    if (!strcmp(what, "pools")) pools(0);
    if (!strcmp(what, "pools-theirs")) pools(1);
    if (!strcmp(what, "foreign")) foreign();
    printf("findings %llu\n", (unsigned long long)simcuda_report_count());
    say_driver_calls();
    return 0;
}
