// Hash maps of C++ libraries behind four plain functions, for benchmarks/keyvalue_speed.py: one of them per shared object.
//
// g++ -O3 -march=native -std=c++17 -shared -fPIC -pthread -DPEER=1 -DKEY=uint32_t keyvalue_peers.cpp -o peer.so
// PEER: 1 std::unordered_map, 2 tsl::robin_map, 3 absl::flat_hash_map, 4 tbb::concurrent_unordered_map, 5 boost::unordered_map.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#if PEER == 1
#include <unordered_map>
using Map = std::unordered_map<KEY, uint32_t>;
#elif PEER == 2
#include <tsl/robin_map.h>
using Map = tsl::robin_map<KEY, uint32_t>;
#elif PEER == 3
#include <absl/container/flat_hash_map.h>
using Map = absl::flat_hash_map<KEY, uint32_t>;
#elif PEER == 4
#include <tbb/concurrent_unordered_map.h>
using Map = tbb::concurrent_unordered_map<KEY, uint32_t>;
#elif PEER == 5
#include <boost/unordered_map.hpp>
using Map = boost::unordered_map<KEY, uint32_t>;
#else
#error "PEER: expected 1 to 5"
#endif

namespace {

void insert(Map& map, const KEY* keys, const uint32_t* values, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) map.insert({keys[i], values[i]});
}

}  // namespace

extern "C" {

// A map of n keys; several threads only where the map allows it (PEER 4).
void* build(const KEY* keys, const uint32_t* values, std::size_t n, unsigned threads) {
    auto* map = new Map();
#if PEER == 4
    if (threads > 1) {
        std::vector<std::thread> pool;
        for (unsigned t = 0; t < threads; ++t)
            pool.emplace_back([=] { insert(*map, keys, values, n * t / threads, n * (t + 1) / threads); });
        for (auto& thread : pool) thread.join();
        return map;
    }
#else
    (void)threads;
    map->reserve(n);
#endif
    insert(*map, keys, values, 0, n);
    return map;
}

// Values (0 where absent) and whether each query was found; returns how many were.
std::size_t get_many(const void* opaque, const KEY* queries, std::size_t n, uint32_t* out, uint8_t* found) {
    const auto& map = *static_cast<const Map*>(opaque);
    std::size_t hits = 0;
    for (std::size_t i = 0; i < n; ++i) {
        auto at = map.find(queries[i]);
        bool here = at != map.end();
        out[i] = here ? at->second : 0;
        found[i] = here;
        hits += here;
    }
    return hits;
}

void destroy(void* opaque) { delete static_cast<Map*>(opaque); }
}
