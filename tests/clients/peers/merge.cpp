// Ordering that gets lost in a merge, as RMM's pool lost it (rapidsai/rmm #2489): the pool merges
// the free blocks of streams B and D into stream A's; A waits for both, uses a part of them, and
// what is left goes, as A's, to stream C, which waits for an event that A recorded before, or for
// none. C's fill is then not ordered after the work on B or D that used the same bytes.
#include "peers.hpp"

#include "../c/behaviour.h"

int main() {
    constexpr std::size_t MIB = 1 << 20;
    cudaStream_t a, b, c, d;
    for (auto stream : {&a, &b, &c, &d}) OK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    Peer pool(8 * MIB, 8 * MIB);
    void *p1 = pool.allocate(4 * MIB, b), *p2 = pool.allocate(4 * MIB, d);
    HOLDS(p1 && p2);
    OK(cudaMemsetAsync(p1, 0x11, 4 * MIB, b));
    OK(cudaMemsetAsync(p2, 0x22, 4 * MIB, d));
    pool.free(p1, 4 * MIB, b);
    pool.free(p2, 4 * MIB, d);
    behaved("two blocks of two streams are used and freed");
    void *x = pool.allocate(6 * MIB, a);
    HOLDS(x);
    behaved("a third stream gets a block that spans both");
    void *y = pool.allocate(2 * MIB, c);
    HOLDS(y);
    OK(cudaMemsetAsync(y, 0xcc, 2 * MIB, c));
    behaved("a fourth stream gets the rest and fills it");
    OK(cudaDeviceSynchronize());
    pool.free(x, 6 * MIB, a);
    pool.free(y, 2 * MIB, c);
    behaved("all is given back");
    return behaved_all();
}
