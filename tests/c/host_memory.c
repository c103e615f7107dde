/* Host memory runs out: the K-th allocation that libcuddy.so makes in a step fails, and all after it.
   Each call fails or succeeds as a whole, nothing aborts, and afterwards the same calls work.

   run as: host_memory STEP K; prints how many allocations the step made. K = 0: none fails. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <link.h>

#ifdef __cplusplus
#define EXTERN extern "C"
#else
#define EXTERN extern
#endif

/* The C library's own, under the names that it keeps for this. */
EXTERN void *__libc_malloc(size_t);
EXTERN void *__libc_calloc(size_t, size_t);
EXTERN void *__libc_realloc(void *, size_t);
EXTERN void *__libc_memalign(size_t, size_t);

static int counting, made, fail_from;
static uintptr_t library_start, library_end;

/* Where the library under test lies: the simulated driver's allocations are none of its business. */
static int find_library(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size;
    (void)unused;
    if (info->dlpi_name && strstr(info->dlpi_name, "libcuddy.so")) {
        int i;
        library_start = info->dlpi_addr;
        for (i = 0; i < info->dlpi_phnum; i++) {
            uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
            if (info->dlpi_phdr[i].p_type == PT_LOAD && end > library_end) library_end = end;
        }
    }
    return 0;
}

static int fails(void *caller) {
    if (!counting || (uintptr_t)caller < library_start || (uintptr_t)caller >= library_end) return 0;
    made++;
    if (fail_from && made >= fail_from) {
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

#define FAILS_HERE fails(__builtin_return_address(0))

/* These stand before the C library's: the library under test gets them too. */
EXTERN void *malloc(size_t bytes) { return FAILS_HERE ? NULL : __libc_malloc(bytes); }
EXTERN void *calloc(size_t count, size_t bytes) {
    return FAILS_HERE ? NULL : __libc_calloc(count, bytes);
}
EXTERN void *realloc(void *ptr, size_t bytes) { return FAILS_HERE ? NULL : __libc_realloc(ptr, bytes); }
EXTERN int posix_memalign(void **ptr, size_t alignment, size_t bytes) {
    if (FAILS_HERE) return ENOMEM;
    *ptr = __libc_memalign(alignment, bytes);
    return *ptr ? 0 : ENOMEM;
}
EXTERN void *aligned_alloc(size_t alignment, size_t bytes) {
    return FAILS_HERE ? NULL : __libc_memalign(alignment, bytes);
}

static void *block[600];

static int first_use(void) {
    if (block[0]) return CUDDY_OK;
    return cuddy_malloc(&block[0], 1000, DEVICE, STREAM);
}

static int many_blocks(void) {
    int i, status;
    for (i = 1; i < 600; i++) {
        if (block[i]) continue;
        status = cuddy_malloc(&block[i], (size_t)i * 600, DEVICE, STREAM);
        if (status != CUDDY_OK) return status;
    }
    return CUDDY_OK;
}

static int frees(void) {
    int i, status;
    for (i = 1; i < 600; i += 2) {
        status = cuddy_free(block[i]);
        if (status != CUDDY_OK) return status;
        block[i] = NULL;
    }
    return CUDDY_OK;
}

static int other_stream(void) {
    int status = CUDDY_OK;
    if (!block[1]) status = cuddy_malloc(&block[1], 70000, DEVICE, CUDDY_STREAM_PER_THREAD);
    if (status == CUDDY_OK) status = cuddy_record_stream(block[1], CUDDY_STREAM_LEGACY);
    if (status == CUDDY_OK) status = cuddy_free(block[1]);
    if (status == CUDDY_OK) block[1] = NULL;
    return status;
}

static int too_large(void) {
    void *ptr = NULL;
    int status = cuddy_malloc(&ptr, 511 * MIB, DEVICE, STREAM);
    return status == CUDDY_ERROR_OUT_OF_MEMORY ? CUDDY_OK : status;
}

static int misuse(void) {
    cuddy_request request;
    void *ptr = NULL;
    int status;
    memset(&request, 0, sizeof request);
    status = cuddy_malloc_ex(&ptr, &request);
    if (status != CUDDY_ERROR_INVALID_ARGUMENT) return status;
    status = cuddy_free(&ptr);
    if (status != CUDDY_ERROR_FOREIGN_POINTER) return status;
    status = cuddy_free((char *)block[0] + 512);
    if (status != CUDDY_ERROR_INTERIOR_POINTER) return status;
    status = cuddy_malloc(&ptr, 1, 77, STREAM);
    return status == CUDDY_ERROR_INVALID_DEVICE ? CUDDY_OK : status;
}

static int giving_back(void) { return cuddy_empty_cache(DEVICE, NULL); }

static int looks(void) {
    static char text[8192];
    cuddy_block info;
    int status = cuddy_memory_summary(DEVICE, text, sizeof text, NULL);
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    if (status == CUDDY_OK) status = cuddy_block_info((char *)block[0] + 1, &info);
    if (status == CUDDY_OK) status = cuddy_get_option("memory_limit", text, sizeof text, NULL);
    if (status == CUDDY_OK) status = cuddy_set_option("memory_limit", "600MiB");
    if (status == CUDDY_OK) status = cuddy_set_option("memory_limit", "none");
    if (status != CUDDY_OK) return status;
    status = cuddy_set_option("memory_limit", "lots");
    return status == CUDDY_ERROR_INVALID_OPTION ? CUDDY_OK : status;
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        int (*step)(void);
    } STEPS[] = {
        {"first_use", first_use}, {"many_blocks", many_blocks},   {"frees", frees},
        {"other_stream", other_stream}, {"too_large", too_large}, {"misuse", misuse},
        {"looks", looks},         {"giving_back", giving_back},
    };
    size_t i, steps = sizeof STEPS / sizeof *STEPS;
    int tried = 0, status;
    CHECK(count == 3);
    dl_iterate_phdr(find_library, NULL);
    CHECK(library_end > library_start);
    for (i = 0; i < steps; i++) {
        if (strcmp(arguments[1], STEPS[i].name) == 0) {
            tried = 1;
            fail_from = atoi(arguments[2]);
            counting = 1;
            status = STEPS[i].step();
            counting = 0;
            if (fail_from && made >= fail_from)
                CHECK(status == CUDDY_OK || status == CUDDY_ERROR_HOST_OUT_OF_MEMORY);
            else
                SAME(status, CUDDY_OK);
            printf("%d\n", made);
            if (status == CUDDY_OK) continue;
        }
        /* What failed works once there is memory again; the other steps come in between. */
        OK(STEPS[i].step());
    }
    CHECK(tried);
    for (i = 0; i < 600; i++) OK(cuddy_free(block[i]));
    SAME(stats_of(DEVICE).allocated, 0);
    SAME(stats_of(DEVICE).requested, 0);
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
