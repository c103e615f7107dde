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

// Work on a stream: bytes are filled.
template <class T> void fill(cuddy::buffer<T> &buffer, unsigned char value, cuddy::stream on) {
    fill(buffer.data(), value, buffer.size_bytes(), on.get());
}

#endif
