/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/kvbatch.h - KV events in bulk, made before the clock runs: events that point into three long arrays.
 * Names are numbers mixed from (group of blocks, salt, place), so that any part of a workload can be made again.  A
 * block has a local hash, a chain hash (one for all workers) and an engine hash: the chain's, or the worker's own.
 * Threads: one at a time.
 */
#ifndef WP_TESTS_LIB_KVBATCH_H
#define WP_TESTS_LIB_KVBATCH_H

#include "index/index.h"

struct kv_item { /* read by tests/bench/peers too: keep the two alike */
    uint64_t parent, parent_chain;
    uint64_t at; /* of its first block in the arrays */
    uint32_t n, kind, worker, tier, group, has_parent;
};
struct kv_batch {
    struct kv_item *item;
    uint64_t *local, *engine, *chain;
    size_t n_items, cap_items, n, cap; /* n: blocks */
    bool opaque;                       /* engine hashes differ from worker to worker */
};

/* Memory is touched: what reads the process's size later sees no growth here.  Errors: WP_ENOMEM. */
int kv_batch_init(struct kv_batch *b, size_t items, size_t blocks, bool opaque);
void kv_batch_fini(struct kv_batch *b);
void kv_batch_reset(struct kv_batch *b);
/* A new event without blocks.  There must be room. */
struct kv_item *kv_batch_event(struct kv_batch *b, enum wp_kv_kind kind, uint32_t worker);
/* Block `place` of group `key` for the newest event. */
void kv_batch_block(struct kv_batch *b, uint64_t key, uint32_t place);
/* The newest event hangs from that block. */
void kv_batch_parent(struct kv_batch *b, uint64_t key, uint32_t place);
/* Cuts events into pieces of at most n blocks, in order.  There must be room for the events. */
void kv_batch_cut(struct kv_batch *b, uint32_t n);
/* After each event (of odd workers only, if so) the same once more, in another tier or group.  There must be room. */
void kv_batch_twin(struct kv_batch *b, uint32_t tier, uint32_t group, bool odd_only);
/* As the index wants it; worker is the holder, the space is to be set. */
struct wp_kv_event kv_batch_as_event(const struct kv_batch *b, const struct kv_item *it);

static inline uint64_t kv_mix(uint64_t x) /* splitmix64's finalizer */
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
static inline uint64_t kv_key(uint32_t salt, uint32_t id)
{
    return kv_mix((uint64_t)salt << 32 | id);
}
static inline uint64_t kv_local(uint64_t key, uint32_t place)
{
    return kv_mix(key + place);
}
static inline uint64_t kv_chain(uint64_t local) /* local hashes of a workload never repeat elsewhere */
{
    return kv_mix(local ^ 0x5851F42D4C957F2Du);
}
static inline uint64_t kv_engine(uint64_t chain, uint32_t worker, bool opaque)
{
    return opaque ? kv_mix(chain ^ ((uint64_t)worker + 1) << 40) : chain;
}

#endif
