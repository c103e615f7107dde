/* Loaded by name, unloaded with blocks live, loaded again; then threads end and a child is forked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

/* What a program without the header knows of the interface. */
typedef int (*malloc_function)(void **, size_t, int, void *);
typedef int (*free_function)(void *);
typedef const char *(*text_function)(void);

static void *load(void) {
    void *library = dlopen("libcuddy.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    return library;
}

static void *use(void *library) {
    malloc_function allocate = (malloc_function)dlsym(library, "cuddy_malloc");
    free_function release = (free_function)dlsym(library, "cuddy_free");
    text_function last_error = (text_function)dlsym(library, "cuddy_last_error");
    void *ptr = NULL, *kept = NULL;
    CHECK(allocate && release && last_error);
    CHECK(allocate(&ptr, 3000, 0, NULL) == 0);
    CHECK(release(ptr) == 0);
    CHECK(release(ptr) != 0);
    CHECK(last_error()[0] != 0);
    CHECK(allocate(&kept, 1000, 0, NULL) == 0);
    return kept;
}

static void *work(void *library) { return use(library); }

int main(void) {
    void *library = load(), *kept[2], *again;
    pthread_t thread;
    int status = 0;
    pid_t child;
    kept[0] = use(library);
    CHECK(!pthread_create(&thread, NULL, work, library));
    CHECK(!pthread_join(thread, &kept[1]));
    CHECK(dlclose(library) == 0);
    again = load();
    CHECK(((free_function)dlsym(again, "cuddy_free"))(kept[0]) == 0);
    CHECK(((free_function)dlsym(again, "cuddy_free"))(kept[1]) == 0);
    CHECK(!pthread_create(&thread, NULL, work, again));
    CHECK(dlclose(again) == 0);
    CHECK(!pthread_join(thread, NULL));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) exit(0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
