/* An exception that leaves a callback ends the process: it never gets through Cuddy's frames. */
#include "check.h"

#include <stdexcept>

static void callback(const cuddy_event *, void *)
{
    throw std::runtime_error("out of a callback");
}

int main()
{
    cuddy_observer observer = 0;
    void *block = nullptr;
    OK(cuddy_observe(&observer, CUDDY_EVENT_GROWTH, callback, nullptr));
    try {
        cuddy_malloc(&block, MIB, DEVICE, STREAM);
    } catch (const std::exception &) {
        return 3;
    }
    return 4;
}
