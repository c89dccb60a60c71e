/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/index/engmap.h - the stand-ins' map of one worker: engine hash -> chain hash.  Linear probing; deletion
 * shifts back.
 */
#ifndef WP_TESTS_BENCH_INDEX_ENGMAP_H
#define WP_TESTS_BENCH_INDEX_ENGMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engmap {
    struct engmap_slot {
        uint64_t engine, chain; /* engine 0: empty */
    } *slot;
    size_t cap, n;
};

bool engmap_init(struct engmap *m, size_t expected);
void engmap_fini(struct engmap *m);
void engmap_put(struct engmap *m, uint64_t engine, uint64_t chain);
bool engmap_take(struct engmap *m, uint64_t engine, uint64_t *chain); /* out of the map */

__extension__ typedef unsigned __int128 engmap_wide;

/* A hash's place among n, without a division. */
static inline size_t engmap_spread(uint64_t hash, size_t n)
{
    return (size_t)(((engmap_wide)hash * n) >> 64);
}
static inline size_t engmap_home(const struct engmap *m, uint64_t engine)
{
    return engmap_spread(engine * 0x9E3779B97F4A7C15u, m->cap);
}
static inline void engmap_prefetch(const struct engmap *m, uint64_t engine)
{
    __builtin_prefetch(&m->slot[engmap_home(m, engine)]);
    __asm__ volatile("" : : : "memory"); /* gcc leaves out calls of what only prefetches */
}

#endif
