/* What programs of many threads at once share: chance, and the threads. */
#ifndef CROWD_H
#define CROWD_H

#include "check.h"
#include <pthread.h>

enum { THREADS = 4 };

/* A number below `below`; the same sequence for the same seed. */
static inline uint64_t draw(uint64_t *random, uint64_t below) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % below;
}

/* Mostly small, some of many pages. */
static inline size_t some_size(uint64_t *random) {
    switch (draw(random, 10)) {
    case 0: return MIB + draw(random, 8 * MIB);
    case 1: case 2: case 3: return 1 + draw(random, 300000);
    default: return 1 + draw(random, 4096);
    }
}

/* Runs `work(number)` on threads numbered from 0, all at once, until each has ended. */
static inline void in_a_crowd(void *(*work)(void *)) {
    pthread_t thread[THREADS];
    uintptr_t i;
    for (i = 0; i < THREADS; i++) CHECK(!pthread_create(&thread[i], NULL, work, (void *)i));
    for (i = 0; i < THREADS; i++) CHECK(!pthread_join(thread[i], NULL));
}

#endif
