// What the C++ test programs share, over what the C ones have.
#ifndef CHECK_HPP
#define CHECK_HPP

#include "../c/check.h"

#include <cuddy.hpp>

// The call must throw just this, with a sentence that contains the words.
template <class Error, class Call> void throws(cuddy_status status, const char *words, Call call) {
    try {
        call();
    } catch (const Error &why) {
        SAME(why.status(), status);
        CHECK(strcmp(why.name(), cuddy_status_name(status)) == 0);
        if (!strstr(why.what(), words)) {
            fprintf(stderr, "it says: %s\n", why.what());
            check_failed(__FILE__, __LINE__, "it says the words");
        }
        return;
    }
    check_failed(__FILE__, __LINE__, "it throws");
}

// A stream of the driver's that does not wait for the legacy one. A context must be current.
inline cuddy_stream new_stream() {
    cuddy_stream made = nullptr;
    SAME(DRIVER(int, "cuStreamCreate", (cuddy_stream *, unsigned), (&made, 1)), 0);
    return made;
}

// Makes device 0's primary context current, as the runtime does at its first call.
inline void use_device() {
    void *context = nullptr;
    SAME(DRIVER(int, "cuInit", (unsigned), (0)), 0);
    SAME(DRIVER(int, "cuDevicePrimaryCtxRetain", (void **, int), (&context, DEVICE)), 0);
    SAME(DRIVER(int, "cuCtxSetCurrent", (void *), (context)), 0);
}

// Work on a stream: bytes are filled.
template <class T> void fill(cuddy::buffer<T> &buffer, unsigned char value, cuddy::stream on) {
    SAME(DRIVER(int, "cuMemsetD8Async", (uint64_t, unsigned char, size_t, cuddy_stream),
                ((uint64_t)buffer.data(), value, buffer.size_bytes(), on.get())),
         0);
}

#endif
