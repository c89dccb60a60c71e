/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/float.h - blocks whose place nobody knows: they hang, each holder's for itself, below an engine hash that was named as a
 * parent and never stored.
 *
 *     awaited node   stands for such a hash; it has the name that is awaited, without copies, and goes with the last block below.
 *     node           a block below it: one holder's only, with its local hash, its names and their copies.
 *     leaf           a node without nodes below, which holds something: these are evicted first, the oldest first.
 *
 * No reader looks here.  Everything is told in index/inside.h's words.
 */
#ifndef WP_INDEX_FLOAT_H
#define WP_INDEX_FLOAT_H

#include "index/index.h"
#include "index/pool.h"

struct wp_fnode {
    uint64_t local;
    uint32_t parent;     /* 0: awaited */
    uint32_t child, next, prev;
    uint32_t holder, names;
    uint32_t older, younger; /* among the holder's floating leaves */
    uint32_t epoch;          /* sure means nothing unless it is the holder's */
    uint32_t pins;
    uint16_t space;
    uint8_t held, sure;
    bool vague, leaf;
};

struct wp_fname {
    uint64_t engine;
    uint32_t node, next; /* of the same node */
    uint32_t holder;
    uint16_t group, space;
    uint16_t copies[WP_TIER_MAX];
};

struct wp_float_ages {
    uint32_t oldest, youngest;
};

struct wp_floats {
    struct wp_pool nodes, names;
    struct wp_table named; /* (holder, space, group, engine hash) -> name */
    struct wp_table below; /* (node before, local hash) -> node */
    struct wp_table heads; /* (holder, local hash) -> node right below an awaited one */
    uint64_t blocks;       /* that are held */
};

static inline struct wp_fnode *wp_fnode_at(const struct wp_floats *f, uint32_t i)
{
    return wp_pool_at(&f->nodes, i);
}
static inline struct wp_fname *wp_fname_at(const struct wp_floats *f, uint32_t i)
{
    return wp_pool_at(&f->names, i);
}

void wp_floats_init(struct wp_floats *f);
void wp_floats_fini(struct wp_floats *f, struct wp_budget *b);

uint32_t wp_float_name(const struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group, uint64_t engine);
uint32_t wp_float_child(const struct wp_index *ix, uint32_t node, uint64_t local);
uint32_t wp_float_head_hash(const struct wp_index *ix, uint32_t holder, uint64_t local);
bool wp_float_awaited(const struct wp_index *ix, uint32_t node);

/* Room for one node, two names.  Errors: WP_ETOOBIG, WP_ENOMEM. */
int wp_float_reserve(struct wp_index *ix);
bool wp_float_room(struct wp_index *ix, uint32_t holder); /* for one more block of the holder: the oldest leaf goes */
uint32_t wp_float_await(struct wp_index *ix, const struct wp_kv_event *ev, uint64_t engine); /* a new node that is awaited */
/* The node of the event's block i below node; 0: refused.  The caller has reserved, and holds node by a pin. */
uint32_t wp_float_store(struct wp_index *ix, const struct wp_kv_event *ev, uint32_t node, size_t i);
bool wp_float_give(struct wp_index *ix, uint32_t name, uint8_t tier, bool vague);
bool wp_float_take(struct wp_index *ix, uint32_t name, uint8_t tier); /* false: there was no copy */
void wp_float_forget(struct wp_index *ix, uint32_t name); /* with all its copies */
void wp_float_pin(struct wp_index *ix, uint32_t node);
void wp_float_unpin(struct wp_index *ix, uint32_t node);
void wp_float_evict(struct wp_index *ix, uint32_t leaf);
void wp_float_clear(struct wp_index *ix, uint32_t holder);
/* All that hangs below the awaited node goes below the place, where it is merged with what the holder has; the node is gone. */
void wp_float_land(struct wp_index *ix, uint32_t awaited, uint32_t place);

#endif
