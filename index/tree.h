/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/tree.h - the index's inside: what index.c, apply.c, graft.c, overlap.c and verify.c share.
 *
 *     node   a block at its place: (node before it, local hash).  A space has a root node.
 *     loc    one holder at one node: the tiers it holds there.  A loc's parent node has a loc of
 * the same holder, even when that one holds nothing any more (a hole), so each holder has a tree of
 * its own within the tree. name   (holder, space, group, engine hash) -> loc, with the copies in
 * each tier.  A loc holds a tier while one of its names has a copy there.
 *
 *          root --- a --- b --- c             holders' locs:  a: w1 w2   b: w1 (hole)   c: w1
 *                    \--- d                                   d: w2
 *
 *     window name   what a group that restricts holds: it has copies, and no loc.  Those of a holder are a list, oldest first.
 *     awaited node   stands for an engine hash that nobody has placed: what hangs below floats, and
 * is one holder's only. It has the name that is awaited, without copies, and goes with the last
 * block below. guess          a tier that graft() concluded, in doubt until the engine confirms it: an engine that evicts
 * tails first still holds what is before a block that it holds.  It ends with a store of the block,
 * a removal by its name, or the last block that the holder has below. leaf           a loc without
 * locs below: the only ones that are evicted, oldest first.
 */
#ifndef WP_INDEX_TREE_H
#define WP_INDEX_TREE_H

#include "index/index.h"
#include "index/pool.h"

#include <pthread.h>

enum { WP_NODE_ROOT = 1, WP_NODE_AWAITED = 2, WP_NODE_FLOATS = 4 }; /* an awaited node floats too */
enum { WP_COPIES_MAX = UINT16_MAX };
enum { WP_GROUP_WINDOW = WP_GROUPS }; /* in a name's group: of a group that restricts */

struct wp_node {
    uint64_t local;
    uint32_t parent;     /* 0: a root or awaited */
    uint32_t child;      /* the first one */
    uint32_t next, prev; /* among its parent's children */
    uint32_t locs;
    uint32_t holders; /* that hold it now; not counted while it floats */
    uint16_t space, flags;
};

struct wp_loc {
    uint32_t node, holder;
    uint32_t next, prev; /* among its node's */
    uint32_t names;
    uint32_t older, younger; /* among its holder's leaves */
    uint32_t children;       /* locs of the same holder right below, and pins */
    uint32_t epoch;          /* sure means nothing unless it is the holder's */
    uint8_t held;            /* bit t: a name has a copy in tier t */
    uint8_t sure;  /* bit t: stored or confirmed since the holder was last doubted; none outside held and guess */
    uint8_t guess; /* tier + 1; only when held is 0 */
    uint8_t leaf : 2;  /* 0: in no list, 1: firm leaves, 2: floating ones */
    uint8_t vague : 1; /* never sure; ends with the last copy */
};

struct wp_name {
    uint64_t engine;
    uint32_t holder;
    uint32_t loc;  /* of a window name: the older one */
    uint32_t next; /* of the same loc; of a window name: the younger one */
    uint16_t group, space;
    uint16_t copies[WP_TIER_MAX];
};

struct wp_window {
    uint16_t group, main;
    uint32_t blocks;
    uint32_t stored; /* hashes; counted up to the trial's end */
    bool met;        /* a hash was the main group's */
};

struct wp_holder {
    bool live;
    enum wp_holder_kind kind;
    uint32_t node, next_rank; /* of a rank: its node's number, and the next rank of that node */
    uint32_t first_rank;      /* of a node */
    uint32_t epoch;
    uint32_t oldest[2], youngest[2]; /* leaves: firm, floating */
    uint64_t blocks, floating;       /* locs that hold something; those of them that float */
    uint64_t tier[WP_TIER_MAX];      /* firm ones */
    uint64_t sure;
    struct wp_window window[WP_WINDOWS_MAX];
    uint32_t windows;
    uint32_t oldest_window, youngest_window; /* window names */
    uint64_t windowed;                       /* how many there are */
};

struct wp_space {
    char *model, *domain;
    size_t model_n, domain_n;
    uint32_t block_size, root;
    enum wp_space_kind kind;
};

struct wp_index {
    pthread_rwlock_t lock;
    struct wp_index_conf conf;
    struct wp_budget budget;
    struct wp_pool nodes, locs, names;
    struct wp_table children; /* (node before, local hash) -> node */
    struct wp_table at;       /* (node, holder) -> loc */
    struct wp_table named;    /* (holder, space, group, engine hash) -> name */
    struct wp_table heads;    /* (holder, local hash) -> node right below an awaited one */
    struct wp_space *spaces;
    struct wp_holder *holders;
    uint32_t n_spaces, spaces_cap, n_holders, holders_cap;
    uint64_t blocks, locations, sure, floating, evicted;
};

static inline struct wp_node *wp_node_at(const struct wp_index *ix, uint32_t i)
{
    return wp_pool_at(&ix->nodes, i);
}
static inline struct wp_loc *wp_loc_at(const struct wp_index *ix, uint32_t i)
{
    return wp_pool_at(&ix->locs, i);
}
static inline struct wp_name *wp_name_at(const struct wp_index *ix, uint32_t i)
{
    return wp_pool_at(&ix->names, i);
}

/* The tiers that count, and those of them that are not in doubt. */
static inline uint8_t wp_loc_tiers(const struct wp_loc *l)
{
    return (uint8_t)(l->guess ? 1u << (l->guess - 1) : l->held);
}
static inline uint8_t wp_loc_sure(const struct wp_index *ix, const struct wp_loc *l)
{
    return (uint8_t)(l->epoch == ix->holders[l->holder].epoch ? l->sure : 0);
}

/* The leaf that goes first; what floats before the rest: it answers nobody yet. */
static inline uint32_t wp_holder_oldest(const struct wp_holder *h)
{
    return h->oldest[1] ? h->oldest[1] : h->oldest[0];
}

static inline bool wp_window_restricts(const struct wp_window *w)
{
    return w->met || w->stored < WP_WINDOW_TRIAL;
}

bool wp_name_idle(const struct wp_name *n); /* no copies */

/* Look-ups; 0: none. */
uint32_t wp_tree_child(const struct wp_index *ix, uint32_t node, uint64_t local);
uint32_t wp_tree_loc(const struct wp_index *ix, uint32_t node, uint32_t holder);
uint32_t wp_tree_name(const struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                      uint64_t engine);
uint32_t wp_tree_head_hash(const struct wp_index *ix, uint32_t holder, uint64_t local);
bool wp_tree_below(const struct wp_index *ix, uint32_t node,
                   uint32_t top); /* node is top or hangs below it */

/*
 * Makes sure that so many can be made; over the cap, evicts leaves of the holder that has the most.
 * False: refused. The makers below count on it and never fail.
 */
bool wp_tree_reserve(struct wp_index *ix, uint32_t nodes, uint32_t locs, uint32_t names);
uint32_t wp_tree_make_root(struct wp_index *ix, uint32_t space);
uint32_t wp_tree_make_awaited(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                              uint64_t engine);
uint32_t wp_tree_make_child(struct wp_index *ix, uint32_t node, uint64_t local, uint32_t holder);
uint32_t wp_tree_make_loc(struct wp_index *ix, uint32_t node,
                          uint32_t holder); /* its parent has one */
uint32_t wp_tree_make_name(struct wp_index *ix, uint32_t loc, uint32_t space, uint16_t group,
                           uint64_t engine);

/* A pinned loc is not evicted, and neither is what is before it.  loc 0 does nothing. */
void wp_tree_pin(struct wp_index *ix, uint32_t loc);
void wp_tree_unpin(struct wp_index *ix, uint32_t loc);

/* A copy more, of a block that is vague or not; false: 65,535 already. */
bool wp_tree_give(struct wp_index *ix, uint32_t name, uint8_t tier, bool vague);
void wp_tree_take(struct wp_index *ix, uint32_t name, uint8_t tier); /* a copy less; there is one */
void wp_tree_forget(struct wp_index *ix, uint32_t name);             /* with all its copies */
void wp_tree_bind(struct wp_index *ix, uint32_t name,
                  uint32_t loc); /* an idle name, to a new loc */
void wp_tree_guess(struct wp_index *ix, uint32_t loc,
                   uint8_t tier); /* unless something is held there */
void wp_tree_unguess(struct wp_index *ix, uint32_t loc);
bool wp_tree_disown(struct wp_index *ix, uint32_t loc); /* what is in doubt there goes; false: nothing was */
void wp_tree_settle(struct wp_index *ix,
                    uint32_t loc); /* what holds nothing and leads nowhere goes */
void wp_tree_evict(struct wp_index *ix, uint32_t leaf);
void wp_tree_clear(struct wp_index *ix, uint32_t holder);

/* Groups that restrict (index/window.c). */
struct wp_window *wp_window_of(struct wp_index *ix, uint32_t holder, uint16_t group); /* NULL: none */
void wp_window_store(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_window *w,
                     struct wp_kv_result *res);
void wp_window_remove(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res);
/* The main group may have stored the hash. */
void wp_window_meet(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t main,
                    uint64_t engine);
/* The restricting group has a copy of the block at the loc. */
bool wp_window_holds(const struct wp_index *ix, uint32_t loc, uint16_t group);
void wp_window_drop(struct wp_index *ix, uint32_t name);

/* All that hangs below the awaited node goes below `to`, where the holder has a loc; the awaited
 * node is gone. */
void wp_tree_hang(struct wp_index *ix, uint32_t awaited, uint32_t to, uint32_t holder);

/* What these are made of. */
void wp_tree_count(struct wp_index *ix, const struct wp_loc *l, int by);
void wp_tree_leaf(struct wp_index *ix,
                  uint32_t loc); /* puts it into or out of its list of leaves */
void wp_tree_touch(struct wp_index *ix, uint32_t loc); /* the youngest leaf, if it is one */
void wp_tree_unleaf(struct wp_index *ix, uint32_t loc);
void wp_tree_unlink_loc(struct wp_index *ix, uint32_t loc);
void wp_tree_link_loc(struct wp_index *ix, uint32_t loc, uint32_t node);
void wp_tree_unlink_node(struct wp_index *ix, uint32_t node, uint32_t holder);
void wp_tree_link_node(struct wp_index *ix, uint32_t node, uint32_t parent, uint32_t holder);
void wp_tree_unlist_name(struct wp_index *ix, uint32_t name); /* out of the table, and freed */
uint32_t wp_tree_list_name(struct wp_index *ix, const struct wp_name *like);
void wp_tree_drop_name(struct wp_index *ix, uint32_t name);
void wp_tree_drop_idle(struct wp_index *ix, uint32_t loc);

#endif
