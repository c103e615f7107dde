/* Scopes, leaks, history and snapshots through cuddy.h: texts, buffers, misuse. */
#include "check.h"

static char text[1 << 16];

/* The whole text of a function of the last kind. */
#define TEXT(call) \
    do { \
        size_t needed = 0; \
        OK(call(NULL, (size_t)0, &needed)); \
        CHECK(needed > 2 && needed <= sizeof text); \
        OK(call(text, sizeof text, &needed)); \
        SAME(strlen(text) + 1, needed); \
    } while (0)

static cuddy_status leaks_of_step(char *buffer, size_t size, size_t *needed) {
    return cuddy_leaks("epoch/step", buffer, size, needed);
}

static cuddy_status all_leaks(char *buffer, size_t size, size_t *needed) {
    return cuddy_leaks("", buffer, size, needed);
}

/* A label from the beginning, in a program that watched nothing before. */
static void tagged(void) {
    cuddy_request request;
    void *weights, *nothing, *before = allocate(100, STREAM);
    memset(&request, 0, sizeof request);
    request.struct_size = sizeof request;
    request.bytes = 1000;
    request.stream = STREAM;
    request.tag = "weights";
    OK(cuddy_malloc_ex(&weights, &request));
    TEXT(all_leaks);
    CHECK(strstr(text, "\"requested\":1000,") && strstr(text, "\"label\":\"weights\""));
    CHECK(!strstr(text, "\"requested\":100,"));
    OK(cuddy_free(weights));
    request.tag = NULL;
    OK(cuddy_malloc_ex(&weights, &request));
    TEXT(all_leaks);
    CHECK(!strstr(text, "weights") && strstr(text, "\"requested\":1000,"));
    OK(cuddy_free(weights));
    OK(cuddy_free(before));
    request.tag = "\xff";
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&weights, &request));
    SAYS("tag");
    request.tag = "none";
    request.bytes = 0;
    OK(cuddy_malloc_ex(&nothing, &request));
    CHECK(!nothing);
    /* A caller of before the field: what lies behind its structure is not read. */
    request.struct_size = offsetof(cuddy_request, tag);
    request.bytes = 10;
    request.tag = "\xff";
    OK(cuddy_malloc_ex(&weights, &request));
    OK(cuddy_free(weights));
    OK(cuddy_empty_cache(CUDDY_ALL_DEVICES, NULL));
}

int main(void) {
    void *kept, *gone;
    size_t needed = 0;
    char small[8];

    TEXT(cuddy_scopes);
    TEXT(cuddy_snapshot); /* before anything was used */
    CHECK(strstr(text, "\"devices\":[]"));
    tagged();
    OK(cuddy_record_history(100));
    OK(cuddy_scope_begin("epoch"));
    OK(cuddy_scope_begin("step"));
    kept = allocate(1000, STREAM);
    gone = allocate(2000, STREAM);
    OK(cuddy_free(gone));
    OK(cuddy_annotate((char *)kept + 10, "a \"label\""));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_scope_end("epoch"));
    SAYS("step");
    OK(cuddy_scope_end("step"));
    OK(cuddy_scope_end(NULL));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_scope_end(NULL));

    TEXT(leaks_of_step);
    CHECK(strstr(text, "\"requested\":1000,") && strstr(text, "\"label\":\"a \\\"label\\\"\""));
    CHECK(!strstr(text, "\"requested\":2000,"));
    TEXT(cuddy_scopes);
    CHECK(strstr(text, "\"path\":\"epoch/step\",\"runs\":1,\"live_bytes\":1000,\"live_count\":1,"));
    TEXT(cuddy_snapshot);
    CHECK(strstr(text, "\"growth\"") && strstr(text, "\"alloc\"") && strstr(text, "\"free\""));

    /* A buffer that is too small is filled as far as it goes. */
    OK(cuddy_scopes(small, sizeof small, &needed));
    CHECK(strlen(small) == sizeof small - 1 && needed > sizeof small);

    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_scope_begin(NULL));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_scope_begin(""));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_scope_begin("a/b"));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_scope_begin("\xff"));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_leaks("nowhere", NULL, 0, &needed));
    SAYS("nowhere");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_leaks(NULL, NULL, 0, &needed));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_scopes(NULL, 1, &needed));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_snapshot(NULL, 1, &needed));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_record_history((size_t)1 << 40));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_annotate(&needed, "x"));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_annotate(kept, NULL));
    OK(cuddy_free(kept));
    FAILS(CUDDY_ERROR_DOUBLE_FREE, cuddy_annotate(kept, "x"));
    OK(cuddy_record_history(0));
    return 0;
}
