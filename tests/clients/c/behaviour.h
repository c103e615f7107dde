/* behaviour.h: a C client says what it did in lines that tests/clients/run reads; see
 * lib/behaviour.py. */
#ifndef BEHAVIOUR_H
#define BEHAVIOUR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int behaviours, broken, failures;
static char why[512];

/* Notes the first thing that is not as it should be in the behaviour at work. */
static inline void note(int line, const char *what, long long got) {
    if (!broken)
        snprintf(why, sizeof why, "line %d: %s (%lld)", line, what, got);
    broken = 1;
}

/* A call that must succeed; one that must give a code; something that must hold. */
#define OK(call) GIVES(call, 0)
#define GIVES(call, code)                                                                          \
    do {                                                                                           \
        long long gave = (long long)(call);                                                        \
        if (gave != (long long)(code))                                                             \
            note(__LINE__, #call, gave);                                                           \
    } while (0)
#define HOLDS(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            note(__LINE__, #what, 0);                                                              \
    } while (0)

/* Ends a behaviour: what was noted since the last one decides. */
static inline void behaved(const char *name) {
    behaviours++;
    if (broken)
        printf("failed %s -- %s\n", name, why);
    else
        printf("passed %s\n", name);
    failures += broken;
    broken = 0;
    fflush(stdout);
}

/* Ends the program. */
static inline int behaved_all(void) {
    printf("end %d\n", behaviours);
    return failures != 0;
}

#endif
