/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/heap.h - heaps whose nodes live in the items: nothing is allocated, any item may be taken
 * out. A pairing heap (Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap", Algorithmica 1,
 * 1986).  Cost: O(1) to put and to look, O(log n) on average over a sequence to take out.  A node
 * that is {0} is in no heap.  Equals come out in any order: an order that matters says so. Threads:
 * one at a time.
 */
#ifndef WP_BASE_HEAP_H
#define WP_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

struct wp_heap_node {
    struct wp_heap_node *child, *next, *prev; /* prev: of a first child its parent */
    bool in;
};
typedef bool (*wp_heap_before_fn)(const struct wp_heap_node *a, const struct wp_heap_node *b);
struct wp_heap {
    struct wp_heap_node *first; /* NULL: it is empty */
    wp_heap_before_fn before;
};

void wp_heap_put(struct wp_heap *h, struct wp_heap_node *n); /* n is in no heap */
void wp_heap_del(struct wp_heap *h,
                 struct wp_heap_node *n); /* n is in h, or in none: then nothing happens */

#endif
