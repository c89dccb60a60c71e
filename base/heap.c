/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

/* Both are roots or NULL. */
static struct wp_heap_node *meld(const struct wp_heap *h, struct wp_heap_node *a,
                                 struct wp_heap_node *b)
{
    struct wp_heap_node *t;

    if (!a || !b)
        return a ? a : b;
    if (h->before(b, a)) {
        t = a;
        a = b;
        b = t;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child)
        a->child->prev = b;
    a->child = b;
    return a;
}

static struct wp_heap_node *cut_off(struct wp_heap_node *n)
{
    struct wp_heap_node *rest = n->next;

    n->next = n->prev = NULL;
    return rest;
}

/* Two passes: neighbours in pairs, then the pairs from the last to the first. */
static struct wp_heap_node *meld_all(const struct wp_heap *h, struct wp_heap_node *list)
{
    struct wp_heap_node *pairs = NULL, *all = NULL;

    while (list) {
        struct wp_heap_node *a = list, *b = cut_off(a), *pair;

        list = b ? cut_off(b) : NULL;
        pair = meld(h, a, b);
        pair->next = pairs; /* a root: it has no other */
        pairs = pair;
    }
    while (pairs) {
        struct wp_heap_node *pair = pairs;

        pairs = cut_off(pair);
        all = meld(h, all, pair);
    }
    return all;
}

void wp_heap_put(struct wp_heap *h, struct wp_heap_node *n)
{
    *n = (struct wp_heap_node){.in = true};
    h->first = meld(h, h->first, n);
}

void wp_heap_del(struct wp_heap *h, struct wp_heap_node *n)
{
    struct wp_heap_node *below;

    if (!n->in)
        return;
    if (n == h->first) {
        h->first = NULL;
    } else {
        if (n->prev->child == n)
            n->prev->child = n->next;
        else
            n->prev->next = n->next;
        if (n->next)
            n->next->prev = n->prev;
    }
    below = meld_all(h, n->child);
    h->first = meld(h, h->first, below);
    *n = (struct wp_heap_node){.in = false};
}
