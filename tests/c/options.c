/* Options: run with a CUDDY_CONF that has good and bad entries; the program goes on. */
#include "check.h"

static void is(const char *key, const char *expected) {
    char value[64];
    size_t needed = 0;
    OK(cuddy_get_option(key, value, sizeof value, &needed));
    SAME(needed, strlen(value) + 1);
    if (strcmp(value, expected) != 0) fprintf(stderr, "%s is %s, not %s\n", key, value, expected);
    CHECK(strcmp(value, expected) == 0);
}

int main(void) {
    char list[8192];
    size_t needed = 0, limit = 0;
    void *ptr;

    /* From CUDDY_CONF=memory_limit:96MiB,cachng:off,segment_small:4MiB,streams:perhaps */
    is("memory_limit", "96MiB");
    is("segment_small", "4MiB");
    is("caching", "on");
    is("streams", "checked");
    OK(cuddy_set_option("segment_large", "40MiB"));
    is("segment_large", "40MiB");

    OK(cuddy_list_options(list, sizeof list, &needed));
    SAME(needed, strlen(list) + 1);
    CHECK(strstr(list, "memory_limit\t96MiB\tCUDDY_CONF\t") != NULL);
    CHECK(strstr(list, "segment_large\t40MiB\tprogram\t") != NULL);
    CHECK(strstr(list, "caching\ton\tdefault\ton or off\t") != NULL);

    FAILS(CUDDY_ERROR_INVALID_OPTION, cuddy_set_option("memory_limt", "1GiB"));
    SAYS("the nearest is memory_limit");
    FAILS(CUDDY_ERROR_INVALID_OPTION, cuddy_set_option("memory_limit", "lots"));
    SAYS("or none");
    FAILS(CUDDY_ERROR_INVALID_OPTION, cuddy_set_option("memory_limit", "\xff"));
    FAILS(CUDDY_ERROR_INVALID_OPTION, cuddy_get_option("", list, sizeof list, &needed));
    is("memory_limit", "96MiB");

    ptr = allocate(1, STREAM);
    OK(cuddy_memory_limit(DEVICE, &limit));
    SAME(limit, 96 * MIB);
    FAILS(CUDDY_ERROR_INVALID_OPTION, cuddy_set_option("caching", "off"));
    SAYS("cannot change");
    is("caching", "on");

    /* Limits change at any time, for devices in use too. */
    OK(cuddy_set_option("memory_limit", "128MiB"));
    OK(cuddy_memory_limit(DEVICE, &limit));
    SAME(limit, 128 * MIB);
    OK(cuddy_free(ptr));
    return 0;
}
