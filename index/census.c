/* SPDX-License-Identifier: Apache-2.0 */
#include "index/inside.h"

#include "base/mem.h"

#include <string.h>

/* Sizes of the parts of one block of memory. */
struct sizes {
    size_t words, nodes, windows;
};

static struct sizes measure(const struct wp_index *ix)
{
    struct sizes s = {.words = (ix->n_holders + 63) / 64};

    s.words = s.words ? s.words : 1;
    for (uint32_t i = 0; i < ix->n_holders; i++) {
        const struct wp_holder *h = &ix->holders[i];

        s.nodes += h->live && h->first_rank != WP_NO_HOLDER;
        for (int k = 0; h->live && h->windows && k < WP_WINDOWS_MAX; k++)
            s.windows += wp_window_restricts(&h->window[k]);
    }
    return s;
}

static void put(uint64_t *set, uint32_t holder)
{
    set[holder / 64] |= 1ull << (holder % 64);
}

static void take_holder(const struct wp_index *ix, uint32_t holder, struct wp_census *c,
                        uint64_t *live, uint64_t *restricted, uint32_t *node, uint64_t *ranks, uint32_t *first,
                        struct wp_census_window *window)
{
    const struct wp_holder *h = &ix->holders[holder];

    if (!h->live)
        return;
    put(live, holder);
    if (h->first_rank != WP_NO_HOLDER) {
        for (uint32_t r = h->first_rank; r != WP_NO_HOLDER; r = ix->holders[r].next_rank)
            put(ranks + (size_t)c->n_nodes * c->words, r);
        node[c->n_nodes++] = holder;
    }
    first[holder] = c->n_windows;
    for (int k = 0; h->windows && k < WP_WINDOWS_MAX; k++)
        if (wp_window_restricts(&h->window[k])) {
            put(restricted, holder);
            window[c->n_windows++] = (struct wp_census_window){
                .holder = holder, .blocks = h->window[k].blocks, .number = (uint8_t)k};
        }
}

int wp_census_make(struct wp_index *ix)
{
    struct sizes s = measure(ix);
    size_t sets = 2 + s.nodes, n = ix->n_spaces;
    struct wp_census *old = atomic_load_explicit(&ix->census, memory_order_relaxed), *c;
    uint64_t *at;
    struct wp_census_window *window;
    uint32_t *node, *first;

    c = wp_calloc(1, sizeof *c + (n + sets * s.words) * sizeof *at +
                         (s.windows + 1) * sizeof *window +
                         (s.nodes + ix->n_holders) * sizeof *node);
    if (!c)
        return WP_ENOMEM;
    at = (uint64_t *)(c + 1);
    window = (struct wp_census_window *)(at + n + sets * s.words);
    node = (uint32_t *)(window + s.windows + 1);
    first = node + s.nodes;
    c->words = (uint32_t)s.words;
    c->n_spaces = ix->n_spaces;
    for (uint32_t i = 0; i < ix->n_spaces; i++)
        at[i] = ix->spaces[i].root;
    for (uint32_t i = 0; i < ix->n_holders; i++)
        take_holder(ix, i, c, at + n, at + n + s.words, node, at + n + 2 * s.words, first, window);
    window[c->n_windows].holder = WP_NO_HOLDER;
    c->root = at;
    c->live = at + n;
    c->restricted = at + n + s.words;
    c->ranks = at + n + 2 * s.words;
    c->node = node;
    c->window = window;
    c->first_window = first;
    ix->words = c->words;
    atomic_store_explicit(&ix->census, c, memory_order_release);
    if (old)
        wp_epoch_retire(&ix->epoch, WP_RETIRED_MEMORY, (uintptr_t)old);
    return 0;
}
