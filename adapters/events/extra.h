/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/extra.h - what names a stored block beside its token ids: adapter, cache salt, media items.
 * Two blocks of equal tokens are one only when all of this is equal too.  Whatever is not understood makes its block
 * *opaque*: it must match nothing, and neither may what hangs from it; it is never plain text.
 *
 *     struct wp_extra_names names;      /- of the event as a whole.  When neither items nor opaque,
 *     wp_extra_names(&e, &names);      /   its tokens and the seed of (lora, salt) are all there is.
 *     ...
 *     wp_extra_begin(&x, &e);              else block by block
 *     while (wp_extra_next(&x, &block))
 *         ...
 *
 * Forms: vLLM's extra_keys, a list or nil for each block, in it: the adapter's name; [identifier, offset] for each media item,
 * or the identifier alone (about 0.18); the cache salt, in the first block of a prompt only; bytes for prompt embeddings.  The typed
 * form that was proposed for it ({"type": "lora", "name"}, {"type": "cache_salt", "salt"}).  TensorRT-LLM's mm_keys, a list of
 * {"type": "mm_key", "hash", "start_offset"} for each block.
 * Nothing allocates.  Texts point into the payload.
 */
#ifndef WP_ADAPTERS_EVENTS_EXTRA_H
#define WP_ADAPTERS_EVENTS_EXTRA_H

#include "adapters/events/decode.h"

enum { WP_EXTRA_ITEMS = 16 }; /* of one block; with more it is opaque */

struct wp_extra_item {
    struct wp_str id;
    uint64_t hash;  /* XXH3-64 of id, seed 0: what a block's identity takes in for an item that is named by text */
    bool placed;    /* offset is known.  Without it the block may be doubtful at best */
    int64_t offset; /* vLLM: the item's first token from the block's first, negative when it began before.  TensorRT-LLM: start_offset */
};

struct wp_extra { /* of one block */
    bool opaque;
    struct wp_str lora, salt; /* as this block's keys tell them; absent when they do not */
    size_t n;
    struct wp_extra_item item[WP_EXTRA_ITEMS];
};

struct wp_extra_walk {
    const struct wp_event *e;
    size_t block;
    bool broken; /* not one entry for each block */
    struct wp_msgpack_in keys, mm;
};

/* e: a store, which must stay, with its payload, while the walk is in use.  Exactly e->n blocks come. */
void wp_extra_begin(struct wp_extra_walk *x, const struct wp_event *e);
bool wp_extra_next(struct wp_extra_walk *x, struct wp_extra *block);

struct wp_extra_names {
    struct wp_str lora; /* absent: the base model */
    bool numbered;      /* an adapter that is known by its number alone: matches nothing */
    /*
     * Absent: none is told.  vLLM tells it in the first block of a prompt and never again, so a store with a parent has
     * the salt that its parent had: the caller remembers.  (One bare text in such a block may be the identifier of an
     * item instead, from the releases about 0.18: it is taken for a salt, and so matches no plain prompt.)
     */
    struct wp_str salt;
    bool items;  /* some block has media items */
    bool opaque; /* some block is opaque, or the keys do not fit the blocks */
};
void wp_extra_names(const struct wp_event *e, struct wp_extra_names *names);

#endif
