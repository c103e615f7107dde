/* What is loaded in unusual ways. */
#define _GNU_SOURCE
#include <dlfcn.h>

/* Looked up by the plugin itself: with RTLD_DEEPBIND, by the loader's own dlsym. */
int plugin_alloc(unsigned long long *to, unsigned long bytes) {
    int (*alloc)(unsigned long long *, unsigned long) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    return alloc(to, bytes);
}

/* The next library's function of the same name, or 40. */
int answer(void) {
    int (*next)(void) = dlsym(RTLD_NEXT, "answer");
    return next ? next() + 1 : 40;
}

/* By version, which the driver's symbols do not have: null, or what the loader says. */
void *by_version(void *handle, const char *name, const char *version) {
    return dlvsym(handle, name, version);
}
