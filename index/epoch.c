/* SPDX-License-Identifier: Apache-2.0 */
#include "index/epoch.h"

#include "base/err.h"
#include "base/mem.h"

#include <sched.h>
#include <string.h>

enum { RING_MIN = 256 };

static bool grow(struct wp_epoch *e)
{
    size_t cap = e->cap ? e->cap * 2 : RING_MIN;
    struct wp_retired *wider = wp_malloc(cap * sizeof *wider);

    if (!wider)
        return false;
    for (size_t i = 0; i < e->n; i++)
        wider[i] = e->ring[(e->head + i) & (e->cap - 1)];
    wp_free(e->ring);
    e->ring = wider;
    e->cap = cap;
    e->head = 0;
    return true;
}

int wp_epoch_init(struct wp_epoch *e, wp_epoch_free_fn *give, void *ctx)
{
    memset(e, 0, sizeof *e);
    atomic_init(&e->now, 1);
    e->give = give;
    e->ctx = ctx;
    return grow(e) ? 0 : WP_ENOMEM;
}

/* Threads start looking for a slot at a number of their own, so that they seldom meet. */
static uint32_t first_slot(void)
{
    static _Atomic uint32_t threads;
    static _Thread_local uint32_t own;

    if (!own)
        own = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    return (own - 1) % WP_EPOCH_READERS;
}

uint32_t wp_epoch_enter(struct wp_epoch *e)
{
    for (uint32_t i = first_slot();; i = (i + 1) % WP_EPOCH_READERS) {
        uint64_t nobody = 0, now = atomic_load_explicit(&e->now, memory_order_acquire);
        uint32_t slots = atomic_load_explicit(&e->slots, memory_order_relaxed);

        while (slots <= i && !atomic_compare_exchange_weak(&e->slots, &slots, i + 1))
            ;
        if (atomic_compare_exchange_strong(&e->slot[i].at, &nobody, now)) {
            /* A writer that did not see us here has said the time before: what it unlinked is
             * unlinked for us. */
            (void)atomic_load(&e->now);
            return i;
        }
    }
}

/* The oldest time at which a reader that is still inside came. */
static uint64_t oldest(struct wp_epoch *e)
{
    uint64_t min = UINT64_MAX;
    uint32_t slots = atomic_load(&e->slots);

    for (uint32_t i = 0; i < slots; i++) {
        uint64_t at = atomic_load(&e->slot[i].at);

        if (at && at < min)
            min = at;
    }
    return min;
}

void wp_epoch_reclaim(struct wp_epoch *e)
{
    uint64_t min;

    if (!e->n)
        return;
    atomic_fetch_add(&e->now, 1);
    min = oldest(e);
    while (e->n && e->ring[e->head].at < min) {
        struct wp_retired it = e->ring[e->head];

        e->head = (e->head + 1) & (e->cap - 1);
        e->n--;
        e->give(e->ctx, it.kind, it.ref);
    }
}

static void wait_for_readers(struct wp_epoch *e)
{
    uint64_t now = atomic_fetch_add(&e->now, 1);

    while (oldest(e) <= now)
        sched_yield();
}

void wp_epoch_drain(struct wp_epoch *e)
{
    while (e->n) { /* again when a reader came meanwhile that had read the time long before */
        wait_for_readers(e);
        wp_epoch_reclaim(e);
    }
}

void wp_epoch_retire(struct wp_epoch *e, uint32_t kind, uint64_t ref)
{
    if (e->n == e->cap)
        wp_epoch_reclaim(e);
    if (e->n == e->cap && !grow(e)) {
        wait_for_readers(e);
        wp_epoch_reclaim(e);
        e->give(e->ctx, kind, ref);
        return;
    }
    e->ring[(e->head + e->n++) & (e->cap - 1)] = (struct wp_retired){
        .at = atomic_load_explicit(&e->now, memory_order_relaxed), .ref = ref, .kind = kind};
}

void wp_epoch_fini(struct wp_epoch *e)
{
    for (; e->n; e->n--, e->head = (e->head + 1) & (e->cap - 1))
        e->give(e->ctx, e->ring[e->head].kind, e->ring[e->head].ref);
    wp_free(e->ring);
    e->ring = NULL;
    e->cap = 0;
}
