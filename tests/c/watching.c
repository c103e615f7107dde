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

int main(void) {
    void *kept, *gone;
    size_t needed = 0;
    char small[8];

    TEXT(cuddy_scopes);
    TEXT(cuddy_snapshot); /* before anything was used */
    CHECK(strstr(text, "\"devices\":[]"));
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
