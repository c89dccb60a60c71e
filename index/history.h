/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/history.h - what we sent where: stands in for KV events where there are none.
 * Per holder an LRU of the blocks of prompts that were routed to it, sized to its KV capacity (over all its tiers), never of
 * generated tokens.  A prompt is touched from its end to its start, so eviction takes tails first and never beheads a prefix.
 * In-flight entries (blocks of a dispatched request, before its first token) count at once, beside the LRU, and end when the caller says so.
 * Where groups of the holder restrict it (sliding windows), a prompt that was computed serves others at its ends alone: the last block
 * of it that any prompt can use, or, of one within the window, every block.  These are marked, and wp_history_last_end() finds them.
 * Keys are block hashes (chains); holders and spaces are kept apart.
 * Cost: 30 to 60 bytes a block; every call is O(n), overlap O(log n), and nothing allocates once a holder's tables have their size.
 * Threads: one at a time.
 */
#ifndef WP_INDEX_HISTORY_H
#define WP_INDEX_HISTORY_H

#include "base/err.h"
#include "base/str.h"

struct wp_history;

int wp_history_create(struct wp_history **out, uint64_t secret, struct wp_err *err);
void wp_history_destroy(struct wp_history *h);

/* Makes the holder known, or changes its capacity in blocks (shrinking evicts); 0 keeps nothing.  Errors: WP_ENOMEM. */
int wp_history_size(struct wp_history *h, uint32_t holder, uint32_t space, size_t blocks, struct wp_err *err);
void wp_history_forget(struct wp_history *h, uint32_t holder); /* LRU emptied in all spaces; in-flight entries stay until ended */

/* Numbers of blocks at which a prompt that was computed can be used by others; {0}: not marked. */
struct wp_history_ends {
    size_t first, last;
};
/* usable: blocks that the prompt itself could have used; window: blocks of the narrowest window of the holder, 0: none. */
struct wp_history_ends wp_history_ends(size_t usable, size_t window);

/* The prompt chain[n] is (or will be) in the holder's cache.  A holder that was not sized keeps nothing.
 * Errors: WP_ENOMEM (then less of it is remembered: a shorter prefix, never a tail alone). */
int wp_history_note(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n,
                    struct wp_history_ends ends);
/* The engine's own word: it held only `blocks` of chain[n]; what we believed beyond is dropped. */
void wp_history_contradict(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n, size_t blocks);

/* In flight: counted per block, so that two requests with one prefix end apart.  Ends by the same chain and ends; what was not begun is ignored.  Errors: WP_ENOMEM: nothing was added. */
int wp_history_begin(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n,
                     struct wp_history_ends ends);
void wp_history_end(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n,
                    struct wp_history_ends ends);

/*
 * The request is over, but its blocks count on until the holder's feed has passed its end: what the engine kept or dropped
 * of them is then in the index.  mark: where the feed must have come to, in a measure of the caller's that rises with the feed (a
 * batch's number, or when it arrived).  Instead of wp_history_end(); both are copied, chain[n] and local[n].  Errors: WP_ENOMEM: it ended at once.
 */
int wp_history_end_at(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], const uint64_t local[],
                      size_t n, struct wp_history_ends ends, uint64_t mark);
/* The feed has come to mark: what waits for that, or less, ends.  UINT64_MAX when there is no feed any more.  Returns how many requests ended. */
size_t wp_history_passed(struct wp_history *h, uint32_t holder, uint64_t mark);
/*
 * What waits and whose blocks the feed has told by now ends, whatever its mark: what becomes of them is the feed's to say from then on.
 * told() is asked of each request that waits, by the local hashes that wp_history_end_at() was given.  Returns how many ended.
 */
typedef bool (*wp_history_told_fn)(void *arg, uint32_t space, const uint64_t local[], size_t n, struct wp_history_ends ends);
size_t wp_history_told(struct wp_history *h, uint32_t holder, wp_history_told_fn told, void *arg);

/* Leading blocks of chain[n] that the holder's LRU has, and that LRU and in-flight entries have together (never less).  No allocation. */
size_t wp_history_overlap(const struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n,
                          size_t *with_in_flight);

/* Those that in-flight entries alone have.  No allocation. */
size_t wp_history_flight(const struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n);

/*
 * Of the first n blocks, which are there (in the LRU, or in flight): the most that end where a prompt ended, if that is more than `above`; else 0.
 * No allocation.  Cost: O(n - above).
 */
size_t wp_history_last_end(const struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n,
                           size_t above, bool in_flight);

size_t wp_history_blocks(const struct wp_history *h, uint32_t holder); /* in the LRU, all spaces */
size_t wp_history_in_flight(const struct wp_history *h);               /* blocks in flight, all holders: 0 at rest */

#endif
