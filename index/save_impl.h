/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/save_impl.h - the words of the file, for save.c and load.c.  Every record is of whole 32-bit words.
 * Runs are named by the number that they had, and a place is run << 7 | offset, as in index/inside.h.
 */
#ifndef WP_INDEX_SAVE_IMPL_H
#define WP_INDEX_SAVE_IMPL_H

#include "index/inside.h"
#include "index/save.h"

enum { WP_SAVED_VERSION = 1 }; /* goes up with any change of what stands here, or of what a span's bits mean */
enum { WP_SAVED_INDEX = 1, WP_SAVED_SPACES, WP_SAVED_HOLDERS, WP_SAVED_RUNS, WP_SAVED_DETAILS, WP_SAVED_BOOKS };

struct wp_saved_index {
    uint32_t version, segment, tiers, windows;
    uint64_t secret;
    uint32_t clock, n_spaces, n_holders, runs_top; /* runs_top: above the number of every run */
};
struct wp_saved_space { /* then its texts */
    uint32_t block_size, kind, model_n, domain_n;
};
struct wp_saved_holder { /* of each number in use, in order; then its windows and its shelves */
    uint32_t number, kind, node, windows, shelves;
};
struct wp_saved_window {
    uint32_t number, group, main, blocks, stored, met;
};
struct wp_saved_shelf {
    uint32_t space, group;
    int32_t window;
    uint32_t n; /* entries, in the section of books */
};
struct wp_saved_run { /* parents first; then its local hashes, then spans with their holders.  The last: number 0 */
    uint32_t number, parent, space, len, stamp, spans;
};
struct wp_saved_detail { /* then its names.  The last: holder WP_NO_HOLDER */
    uint32_t holder, place, rest, rest_windows, names;
};
struct wp_saved_name {
    uint64_t engine;
    uint32_t book, windows;
    uint16_t copies[WP_TIER_MAX];
};
/*
 * Books: of each shelf, in the order of holders and shelves, its entries of a key (64 bits) and a value (32).  WP_NAMED | place: a name
 * of the detail there.  Of a window: WP_NAMED: its copies follow.
 */

#endif
