/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/blocks.h - what a simulated engine knows of each prefix block beside its name: its tokens,
 * its parent, its adapter and salt, and the hash under which it is announced.  The model
 * (sim/model.h) knows names only; this is kept beside it when KV events are on. A block lives while
 * somebody refers to it: each request whose chain it is in, each place that holds it, each change
 * that waits to be announced. Threads: one.
 */
#ifndef WP_SIM_BLOCKS_H
#define WP_SIM_BLOCKS_H

#include "base/map.h"
#include "base/str.h"

struct wp_blocks;

struct wp_block {
    uint64_t chain, parent, local; /* index/identity.h; parent: the chain before it, 0 when root */
    uint64_t hash, parent_hash;    /* as announced */
    const char *adapter; /* NULL: the base model.  The engine's, lives as long as it does */
    uint32_t adapter_id;
    bool root;
    char *salt; /* of a root only; NULL: none */
    uint32_t refs;
    uint32_t token[]; /* [block_size] */
};

struct wp_blocks {
    struct wp_map by_chain;
    uint32_t block_size;
    uint64_t secret; /* of the announced hashes: opaque to whoever does not know it */
};

/* The announced hash of a chain: eight bytes, no more than a name.  Two engines with one secret
 * agree. */
uint64_t wp_blocks_hash(uint64_t secret, uint64_t chain);

struct wp_block_facts { /* what all blocks of one prompt share */
    const char *adapter;
    uint32_t adapter_id;
    struct wp_str salt;
};

/*
 * The block of this chain, made when it is not there; one reference more.  parent: NULL for a root.
 * token[block_size] is copied.  NULL: out of memory.
 */
struct wp_block *wp_blocks_get(struct wp_blocks *all, uint64_t chain, const uint64_t *parent,
                               uint64_t local, const uint32_t token[],
                               const struct wp_block_facts *facts);
struct wp_block *wp_blocks_find(const struct wp_blocks *all,
                                uint64_t chain);                /* no reference; NULL: not there */
void wp_block_unref(struct wp_blocks *all, struct wp_block *b); /* NULL does nothing */
void wp_blocks_fini(struct wp_blocks *all);                     /* whoever still refers */

#endif
