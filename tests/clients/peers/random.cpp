// A peer's random test: blocks of random sizes on several streams, each filled on its stream with a
// byte of its own, read back before it is freed, and never overlapping another.
#include "peers.hpp"

#include "../c/behaviour.h"

#include <map>
#include <random>
#include <vector>

namespace {

constexpr std::size_t MIB = 1 << 20;

struct Block {
    unsigned char *at;
    std::size_t bytes;
    cudaStream_t stream;
    unsigned char value;
};

// What is live must not overlap.
class Live {
  public:
    bool add(const Block &block) {
        auto next = at.lower_bound(block.at);
        if (next != at.end() && next->first < block.at + block.bytes) return false;
        if (next != at.begin() && std::prev(next)->second > block.at) return false;
        at[block.at] = block.at + block.bytes;
        return true;
    }
    void remove(const Block &block) { at.erase(block.at); }

  private:
    std::map<unsigned char *, unsigned char *> at;
};

bool is_whole(const Block &block, unsigned char *host) {
    // The ends and one byte within, by the block's own stream.
    const std::size_t places[] = {0, block.bytes / 2, block.bytes - 1};
    for (int i = 0; i < 3; i++) {
        host[i] = static_cast<unsigned char>(~block.value);
        OK(cudaMemcpyAsync(host + i, block.at + places[i], 1, cudaMemcpyDeviceToHost, block.stream));
    }
    OK(cudaStreamSynchronize(block.stream));
    return host[0] == block.value && host[1] == block.value && host[2] == block.value;
}

void run(Peer &peer, const std::vector<cudaStream_t> &streams, unsigned steps, unsigned seed) {
    std::mt19937_64 random(seed);
    std::vector<Block> blocks;
    Live live;
    unsigned char *host = nullptr;
    OK(cudaMallocHost(reinterpret_cast<void **>(&host), 16));
    auto give_back = [&](std::size_t which) {
        Block block = blocks[which];
        HOLDS(is_whole(block, host));
        live.remove(block);
        peer.free(block.at, block.bytes, block.stream);
        blocks[which] = blocks.back();
        blocks.pop_back();
    };
    for (unsigned step = 0; step < steps; step++) {
        if (blocks.size() > 24 || (!blocks.empty() && random() % 2)) {
            give_back(random() % blocks.size());
            continue;
        }
        const int bits = static_cast<int>(random() % 15);
        Block block{};
        block.bytes = 1 + random() % (std::size_t{256} << bits);
        block.stream = streams[random() % streams.size()];
        block.value = static_cast<unsigned char>(random());
        block.at = static_cast<unsigned char *>(peer.allocate(block.bytes, block.stream));
        HOLDS(block.at != nullptr);
        if (block.at == nullptr) break;
        HOLDS(live.add(block));
        OK(cudaMemsetAsync(block.at, block.value, block.bytes, block.stream));
        blocks.push_back(block);
    }
    while (!blocks.empty()) give_back(blocks.size() - 1);
    OK(cudaFreeHost(host));
}

} // namespace

int main() {
    std::vector<cudaStream_t> streams(4);
    for (auto &stream : streams) OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned seed = 1; seed <= 3; seed++) {
        Peer peer(512 * MIB, 2048 * MIB);
        run(peer, {streams[0]}, 1000, seed);
    }
    behaved("random blocks on one stream");
    for (unsigned seed = 1; seed <= 3; seed++) {
        Peer peer(512 * MIB, 2048 * MIB);
        run(peer, streams, 1000, seed);
    }
    behaved("random blocks on four streams");
    for (auto stream : streams) OK(cudaStreamDestroy(stream));
    behaved("streams go");
    return behaved_all();
}
