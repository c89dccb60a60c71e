/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/extra.h - what names a stored block beside its token ids: adapter, cache salt,
 * media items.
 *
 * Two blocks of equal tokens are one only when all of this is equal too.  Whatever is not
 * understood makes its block *opaque*: it must match nothing, and neither may what hangs from it;
 * it is never plain text.
 *
 *     struct wp_extra_names names;
 *     struct wp_extra_walk x;
 *     struct wp_extra block;
 *
 *     wp_extra_names(&e, &names);
 *     if (!names.items && !names.opaque)
 *         ... the tokens and (lora, salt) are all there is: wp_hash_tokens() ...
 *     else
 *         for (wp_extra_begin(&x, &e); wp_extra_next(&x, &block);)
 *             ... wp_hash_block_items(), until one is opaque ...
 *
 * Forms that are read, each a list with an entry (a list, or nil) for each block:
 *
 *   vLLM's extra_keys: the adapter's name; [identifier, offset] for each media item, or about 0.18
 *   the identifier alone; the cache salt, in the first block of a prompt only; bytes, for prompt
 *   embeddings (opaque).  The typed keys that were proposed for it: {"type": "lora", "name"},
 *   {"type": "cache_salt", "salt"}.
 *
 *   TensorRT-LLM's mm_keys: {"type": "mm_key", "hash", "start_offset"}.
 *
 * Nothing allocates.  Texts point into the payload.
 */
#ifndef WP_ADAPTERS_EVENTS_EXTRA_H
#define WP_ADAPTERS_EVENTS_EXTRA_H

#include "adapters/events/decode.h"

enum { WP_EXTRA_ITEMS = 16 }; /* of one block; with more it is opaque */

struct wp_extra_item {
    struct wp_str id;
    uint64_t hash;  /* XXH3-64 of id, seed 0: as wp_hash_item() of index/identity.h */
    bool placed;    /* offset is known; without it the block may be doubtful at best */
    int64_t offset; /* vLLM: from the block's first token to the item's first one, may be negative.
                       TensorRT-LLM: start_offset as sent */
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
    bool broken; /* not one entry for each block: all are opaque */
    struct wp_msgpack_in keys, mm;
};

/* e: a store; it and its payload must stay while the walk is in use.  Exactly e->n blocks come. */
void wp_extra_begin(struct wp_extra_walk *x, const struct wp_event *e);
bool wp_extra_next(struct wp_extra_walk *x, struct wp_extra *block);

/*
 * Of the event as a whole.  vLLM tells a salt in the first block of a prompt and never again: a
 * store with a parent has the salt of that parent, which the caller remembers.  One bare text in
 * that first block may be the identifier of an item instead (about 0.18); taken for a salt, it
 * matches no plain prompt either.
 */
struct wp_extra_names {
    struct wp_str lora; /* absent: the base model */
    bool numbered;      /* an adapter known by its number alone: matches nothing */
    struct wp_str salt; /* absent: none is told */
    bool items;         /* some block has media items */
    bool opaque;        /* some block is opaque, or two tell different names */
};
void wp_extra_names(const struct wp_event *e, struct wp_extra_names *names);

#endif
