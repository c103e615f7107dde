/* A random sequence of valid and invalid calls: a line for each, with its code and what it showed.
 *   calls SEED COUNT
 * What is drawn depends on nothing that the calls answer, but for which blocks there are. */
#include "ways.h"

static uint64_t state;

static uint64_t draw(uint64_t below) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

enum kind { PLAIN, PITCH, POOL, MANAGED };
struct block {
    CUdeviceptr at;
    size_t bytes;
    enum kind kind;
    int context;
};

#define MOST 48
static struct block live[MOST], gone[8];
static int lives, goes;
static void *contexts[3]; /* the primary one, and two that come and go */
static int current;       /* -1: none */
static void *streams[2], *pool;
enum { RELAXED = 3 };
static int capturing; /* 0, or 1 + mode */

/* Sizes that waste nothing when they are rounded as the cache rounds them, and a few that do. */
static size_t size(void) {
    static const size_t sizes[] = {1,       100,     512,     4096,    65536,   1000,
                                   5000,    1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20,
                                   32 << 20, 48 << 20};
    return sizes[draw(sizeof sizes / sizeof *sizes)];
}

/* A line begins with the kind of call, by which the test knows what may differ. */
static const char *say(const char *what, int code) {
    printf("%s%s%s %d\n", what, capturing ? " while capturing" : "", current < 0 ? " without context" : "", code);
    return what;
}

static void enter(CUdeviceptr at, size_t bytes, enum kind kind) {
    if (lives == MOST) abort();
    live[lives++] = (struct block){at, bytes, kind, current};
}

static struct block leave(int which) {
    struct block block = live[which];
    live[which] = live[--lives];
    gone[goes++ % 8] = block;
    return block;
}

/* Blocks that the driver has not given again since. */
static CUdeviceptr freed(void) {
    if (!goes) return 0x1000;
    CUdeviceptr at = gone[draw(goes < 8 ? goes : 8)].at;
    for (int i = 0; i < lives; i++)
        if (at >= live[i].at && at < live[i].at + live[i].bytes + (4 << 20)) return 0x1000;
    return at;
}

static struct block *some(void) {
    return lives ? &live[draw(lives)] : NULL;
}

/* An address of some kind, and what kind it is. */
static CUdeviceptr address(const char **what) {
    struct block *block = some();
    switch (draw(7)) {
    case 0: *what = "of nothing"; return 0x1000 + draw(1 << 20) * 512;
    case 1: *what = "null"; return 0;
    case 2: *what = "freed"; return freed();
    case 3: *what = "inside"; return block ? block->at + draw(block->bytes) : 0x1000;
    case 4: *what = "the last"; return block ? block->at + block->bytes - 1 : 0x1000;
    default: *what = "start"; return block ? block->at : 0x1000;
    }
}

static void forget_context(int which) {
    for (int i = lives - 1; i >= 0; i--)
        if (live[i].context == which) live[i] = live[--lives];
    goes = 0;
}

static void allocate(void) {
    CUdeviceptr at = 0;
    size_t bytes = size(), pitch = 0, height = 1 + draw(64);
    unsigned element = 4 << draw(3);
    /* A capture that forbids the call is spoilt by it; without a driver call it is not. That has a
     * test of its own. */
    if (lives == MOST - 1 || (capturing && capturing != RELAXED)) return;
    int code;
    switch (draw(16)) {
    case 0: say("alloc of nothing", cuMemAlloc(&at, 0)); return;
    case 1: say("alloc to null", cuMemAlloc(NULL, bytes)); return;
    case 2: say("alloc too large", cuMemAlloc(&at, (size_t)-1 - draw(4096))); return;
    case 3: say("alloc too large", cuMemAlloc(&at, (size_t)1 << (33 + draw(8)))); return;
    case 4: say("pitch of wrong element", cuMemAllocPitch(&at, &pitch, 100, height, 5)); return;
    case 5: say("pitch of nothing", cuMemAllocPitch(&at, &pitch, 0, height, element)); return;
    case 6: say("pitch to null", cuMemAllocPitch(&at, NULL, 100, height, element)); return;
    case 7:
    case 8: {
        size_t width = 100 * (1 + draw(5));
        code = cuMemAllocPitch(&at, &pitch, width, height, element);
        say("pitch", code);
        if (!code) printf("rows of %zu\n", pitch), enter(at, pitch * height, PITCH);
        return;
    }
    case 9:
        if (capturing) return;
        code = cuMemAllocManaged(&at, bytes % 65536 + 1, 1);
        say("managed", code);
        if (!code) enter(at, bytes % 65536 + 1, MANAGED);
        return;
    case 10:
        if (capturing || current) return;
        code = draw(2) ? cuMemAllocAsync(&at, bytes % 65536 + 1, streams[0])
                       : cuMemAllocFromPoolAsync(&at, bytes % 65536 + 1, pool, streams[0]);
        say("async", code);
        CHECK(cuCtxSynchronize()); /* its order is the program's affair */
        if (!code) enter(at, bytes % 65536 + 1, POOL);
        return;
    default:
        code = cuMemAlloc(&at, bytes);
        say("alloc", code);
        if (!code) enter(at, bytes, PLAIN);
    }
}

static void release(void) {
    struct block block;
    int which = lives ? (int)draw(lives) : -1, code;
    if (capturing && capturing != RELAXED) return;
    switch (draw(12)) {
    case 0: say("free of null", cuMemFree(0)); return;
    case 1: say("free of nothing", cuMemFree(0x1000 + draw(1 << 20) * 512)); return;
    case 2: say("free again", cuMemFree(freed())); return;
    case 3:
        if (which >= 0 && live[which].bytes > 1 && live[which].kind == PLAIN)
            say("free inside", cuMemFree(live[which].at + 1 + draw(live[which].bytes - 1)));
        return;
    case 4:
        if (which < 0 || capturing || current || live[which].kind == MANAGED || live[which].context) return;
        CHECK(cuCtxSynchronize());
        code = cuMemFreeAsync(live[which].at, streams[0]);
        say("async free", code);
        /* What the pool does not need it gives back when it is waited for, and not before. */
        CHECK(cuCtxSynchronize());
        if (!code) leave(which);
        return;
    case 5: say("async free again", capturing || current ? 0 : cuMemFreeAsync(freed(), streams[0])); return;
    default:
        if (which < 0) return;
        block = live[which];
        code = cuMemFree(block.at);
        if (block.kind == POOL && current >= 0 && !capturing) cuCtxSynchronize();
        say(block.kind == POOL ? "free of async" : block.kind == MANAGED ? "free of managed" : "free", code);
        if (!code) leave(which);
    }
}

static void ask(void) {
    const char *what;
    char line[64];
    CUdeviceptr at = address(&what), base = 0;
    size_t bytes = 0;
    int code;
    if (draw(2)) {
        int part = (int)draw(4);
        code = cuMemGetAddressRange(part & 1 ? NULL : &base, part & 2 ? NULL : &bytes, at);
        snprintf(line, sizeof line, "range %s", what);
        say(line, code);
        if (!code) printf("at %llu of %zu\n", base ? at - base : 0, bytes);
        return;
    }
    static const int attributes[] = {2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 18, 99};
    if (draw(3)) {
        int attribute = attributes[draw(sizeof attributes / sizeof *attributes)];
        uint64_t value[2] = {0, 0};
        /* Asking for the tokens of a peer marks the memory; the simulator has none to give. */
        code = cuPointerGetAttribute(value, attribute, at);
        snprintf(line, sizeof line, "attribute %d %s", attribute, what);
        say(line, code);
        if (!code && attribute != 4 && attribute != 7) {
            if (attribute == 11) value[0] = at - value[0];
            printf("is %llu\n", (unsigned long long)value[0]);
        }
    } else {
        uint64_t values[3] = {0, 0, 0};
        int many[3] = {11, 12, 2};
        void *to[3] = {&values[0], &values[1], &values[2]};
        code = cuPointerGetAttributes(draw(8) ? 3 : 0, many, to, at);
        snprintf(line, sizeof line, "attributes %s", what);
        say(line, code);
        if (!code)
            printf("are %llu %llu %llu\n", (unsigned long long)(values[0] ? at - values[0] : 0),
                   (unsigned long long)values[1], (unsigned long long)values[2]);
    }
}

static void info(void) {
    size_t free = 1, total = 0;
    int part = (int)draw(4);
    int code = cuMemGetInfo(part & 1 ? NULL : &free, part & 2 ? NULL : &total);
    say("info", code);
    if (!code) printf("total %zu, sensible %d\n", total, part || free <= total);
}

static void use(void) {
    struct block *block = some();
    if (!block || current < 0 || capturing || block->context != current || block->kind == POOL) return;
    say("fill", cuMemsetD8(block->at, 1, block->bytes));
}

static void taint(void) {
    const char *what;
    char line[64], handle[64];
    CUdeviceptr at = address(&what);
    int on = 1, code;
    /* Where memory was freed, a pool may lie now. */
    if (!strcmp(what, "freed")) return;
    switch (draw(3)) {
    case 0:
        code = cuPointerSetAttribute(&on, draw(4) ? 6 : 3, at);
        snprintf(line, sizeof line, "set attribute %s", what);
        break;
    case 1:
        code = cuIpcGetMemHandle(handle, at);
        snprintf(line, sizeof line, "export %s", what);
        break;
    default:
        code = cuMemGetHandleForAddressRange(handle, at, 4096, 1, 0);
        snprintf(line, sizeof line, "dma-buf %s", what);
    }
    say(line, code);
}

static void contexts_change(void) {
    int which = 1 + (int)draw(2), code;
    if (capturing) return;
    switch (draw(10)) {
    case 0:
    case 1:
        if (contexts[which]) return;
        code = cuCtxCreate(&contexts[which], 0, 0);
        say("context create", code);
        if (!code) current = which;
        return;
    case 2:
        if (!contexts[which]) return;
        /* One that is current is left first: a destroyed one stays current otherwise. */
        code = cuCtxSetCurrent(contexts[0]);
        current = 0;
        code = cuCtxDestroy(contexts[which]);
        say("context destroy", code);
        if (!code) forget_context(which), contexts[which] = NULL;
        return;
    case 3: say("context destroy null", cuCtxDestroy(NULL)); return;
    case 4:
        cuCtxSetCurrent(NULL);
        current = -1;
        return;
    case 5: say("peer of itself", cuCtxEnablePeerAccess(contexts[0], 0)); return;
    case 6: {
        void *again;
        say("retain", cuDevicePrimaryCtxRetain(&again, 0));
        say("release", cuDevicePrimaryCtxRelease(0));
        say("release of no device", cuDevicePrimaryCtxRelease(99));
        say("reset of no device", cuDevicePrimaryCtxReset(-1));
        return;
    }
    default:
        which = (int)draw(3);
        if (!contexts[which]) which = 0;
        say("context", cuCtxSetCurrent(contexts[which]));
        current = which;
    }
}

static void reset(void) {
    if (capturing || current) return;
    cuStreamDestroy(streams[0]), cuStreamDestroy(streams[1]);
    say("reset", draw(2) ? cuDevicePrimaryCtxReset(0) : cuDevicePrimaryCtxRelease(0));
    forget_context(0);
    say("use after a reset", cuMemFree(0x1000));
    CHECK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuStreamCreate(&streams[0], 1));
    CHECK(cuStreamCreate(&streams[1], 1));
}

static void capture(void) {
    void *graph = NULL;
    if (current) return;
    if (capturing) {
        int code = cuStreamEndCapture(streams[1], &graph);
        capturing = 0;
        say("capture end", code);
        if (graph) cuGraphDestroy(graph);
        return;
    }
    if (draw(4) == 0) {
        say("capture of nothing", cuStreamEndCapture(streams[1], &graph));
        say("capture wrong", cuStreamBeginCapture(streams[1], 77));
        say("capture default", cuStreamBeginCapture(NULL, 2));
        return;
    }
    int mode = (int)draw(3);
    int code = cuStreamBeginCapture(streams[1], mode);
    say("capture begin", code);
    if (!code) capturing = 1 + mode;
}

static void others(void) {
    unsigned long long handle;
    void *array;
    uint64_t threshold = 0;
    switch (draw(6)) {
    case 0: say("create wrong", cuMemCreate(&handle, 12345, NULL, 0)); return;
    case 1: say("array", cuArrayCreate(&array, NULL)); return;
    case 2:
        if (!current) say("threshold", cuMemPoolGetAttribute(pool, 4, &threshold)), printf("is %llu\n", (unsigned long long)threshold);
        return;
    case 3: say("threshold wrong", cuMemPoolSetAttribute(pool, 99, &threshold)); return;
    case 4: say("stream destroy null", cuStreamDestroy(NULL)); return;
    default:
        if (!capturing && current >= 0) say("synchronize", cuCtxSynchronize());
    }
}

int main(int count, char **words) {
    state = count > 1 ? strtoull(words[1], NULL, 10) : 1;
    long calls = count > 2 ? atol(words[2]) : 1000;
    CUdeviceptr early;
    find_functions("address2");
    say("alloc before init", cuMemAlloc(&early, 512));
    say("free before init", cuMemFree(512));
    contexts[0] = start("address2");
    CHECK(cuStreamCreate(&streams[0], 1));
    CHECK(cuStreamCreate(&streams[1], 1));
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (long i = 0; i < calls; i++) {
        /* Once in a while back to where most things happen. */
        if (draw(8) == 0 && current != 0 && !capturing) cuCtxSetCurrent(contexts[0]), current = 0;
        switch (draw(40)) {
        case 0: contexts_change(); break;
        case 1: capture(); break;
        case 2: taint(); break;
        case 3: others(); break;
        case 4:
            if (draw(50) == 0) reset();
            break;
        case 5:
        case 6: info(); break;
        case 7:
        case 8:
        case 9: use(); break;
        case 10:
        case 11:
        case 12:
        case 13:
        case 14:
        case 15: ask(); break;
        default:
            if (draw(100) < 48) allocate();
            else release();
        }
    }
    printf("findings %llu\n", (unsigned long long)simcuda_report_count());
    say_driver_calls();
    return 0;
}
