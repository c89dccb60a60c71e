/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/kvbatch.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

static void *touched(size_t n, size_t size)
{
    void *p = wp_malloc(n * size);

    return p ? memset(p, 1, n * size) : NULL;
}

int kv_batch_init(struct kv_batch *b, size_t items, size_t blocks, bool opaque)
{
    *b = (struct kv_batch){.cap_items = items, .cap = blocks, .opaque = opaque};
    b->item = touched(items, sizeof *b->item);
    b->local = touched(blocks, sizeof *b->local);
    b->engine = touched(blocks, sizeof *b->engine);
    b->chain = touched(blocks, sizeof *b->chain);
    if (b->item && b->local && b->engine && b->chain)
        return 0;
    kv_batch_fini(b);
    return WP_ENOMEM;
}

void kv_batch_fini(struct kv_batch *b)
{
    wp_free(b->item);
    wp_free(b->local);
    wp_free(b->engine);
    wp_free(b->chain);
    *b = (struct kv_batch){0};
}

void kv_batch_reset(struct kv_batch *b)
{
    b->n_items = 0;
    b->n = 0;
}

struct kv_item *kv_batch_event(struct kv_batch *b, enum wp_kv_kind kind, uint32_t worker)
{
    struct kv_item *it = &b->item[b->n_items];

    assert(b->n_items < b->cap_items);
    *it = (struct kv_item){.kind = kind, .worker = worker, .at = b->n};
    b->n_items++;
    return it;
}

void kv_batch_block(struct kv_batch *b, uint64_t key, uint32_t place)
{
    struct kv_item *it = &b->item[b->n_items - 1];

    assert(b->n < b->cap);
    b->local[b->n] = kv_local(key, place);
    b->chain[b->n] = kv_chain(b->local[b->n]);
    b->engine[b->n] = kv_engine(b->chain[b->n], it->worker, b->opaque);
    b->n++;
    it->n++;
}

void kv_batch_parent(struct kv_batch *b, uint64_t key, uint32_t place)
{
    struct kv_item *it = &b->item[b->n_items - 1];

    it->has_parent = 1;
    it->parent_chain = kv_chain(kv_local(key, place));
    it->parent = kv_engine(it->parent_chain, it->worker, b->opaque);
}

void kv_batch_cut(struct kv_batch *b, uint32_t n)
{
    size_t pieces = 0, at;

    for (size_t i = 0; i < b->n_items; i++)
        pieces += b->item[i].n ? (b->item[i].n + n - 1) / n : 1;
    assert(pieces <= b->cap_items);
    at = pieces;
    for (size_t i = b->n_items;
         i-- > 0;) { /* from the back, each into the room behind those before it */
        const struct kv_item whole = b->item[i];
        size_t k = whole.n ? (whole.n + n - 1) / n : 1;

        at -= k;
        for (size_t p = 0; p < k; p++) {
            struct kv_item *it = &b->item[at + p];
            uint32_t from = (uint32_t)p * n;

            *it = whole;
            it->at = whole.at + from;
            it->n = whole.n - from < n ? whole.n - from : n;
            if (p == 0)
                continue;
            it->has_parent = 1;
            it->parent = b->engine[it->at - 1];
            it->parent_chain = b->chain[it->at - 1];
        }
    }
    b->n_items = pieces;
}

void kv_batch_twin(struct kv_batch *b, uint32_t tier, uint32_t group, bool odd_only)
{
    size_t twins = 0, at;

    for (size_t i = 0; i < b->n_items; i++)
        twins += !odd_only || b->item[i].worker % 2;
    assert(b->n_items + twins <= b->cap_items);
    at = b->n_items + twins;
    for (size_t i = b->n_items; i-- > 0;) {
        struct kv_item one = b->item[i];

        if (!odd_only || one.worker % 2) {
            b->item[--at] = one;
            b->item[at].tier = tier;
            b->item[at].group = group;
        }
        b->item[--at] = one;
    }
    b->n_items += twins;
}

struct wp_kv_event kv_batch_as_event(const struct kv_batch *b, const struct kv_item *it)
{
    return (struct wp_kv_event){.kind = (enum wp_kv_kind)it->kind,
                                .holder = it->worker,
                                .group = (uint16_t)it->group,
                                .main_group = it->group == 0,
                                .tier = (uint8_t)it->tier,
                                .has_parent = it->has_parent,
                                .parent = it->parent,
                                .n = it->n,
                                .engine = b->engine + it->at,
                                .local = b->local + it->at};
}
