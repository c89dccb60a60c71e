/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/epoch.h - when may memory that a reader could still be looking at be used again?
 * A reader enters, looks, and leaves; it never waits.  The writer takes a thing out of sight first and retires it then; it is given back once
 * every reader that was inside at that time has left.
 *     reader: slot = wp_epoch_enter(e); ... wp_epoch_leave(e, slot);
 *     writer: unlink; wp_epoch_retire(e, kind, ref); now and then wp_epoch_reclaim(e)
 * A reader that is pre-empted inside delays only the reuse of memory, never the writer.
 * Threads: enter and leave from any; the rest one at a time.  Cost: one locked instruction a look-up.
 * Source: epoch-based reclamation (Fraser, "Practical lock-freedom", 2004, 5.2.3).
 */
#ifndef WP_INDEX_EPOCH_H
#define WP_INDEX_EPOCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WP_EPOCH_READERS = 256 }; /* inside at once; one more spins until another leaves */

/* Gives one retired thing back: kind says what ref (a number or an address) is. */
typedef void wp_epoch_free_fn(void *ctx, uint32_t kind, uint64_t ref);

struct wp_epoch_slot {
    _Alignas(64) _Atomic uint64_t at; /* 0: nobody's */
};
struct wp_retired {
    uint64_t at, ref;
    uint32_t kind;
};
struct wp_epoch {
    struct wp_epoch_slot slot[WP_EPOCH_READERS];
    _Alignas(64) _Atomic uint64_t now; /* from 1 on */
    _Atomic uint32_t slots;            /* that were ever used */
    wp_epoch_free_fn *give;
    void *ctx;
    struct wp_retired *ring; /* oldest first */
    size_t head, n, cap;     /* cap is a power of two */
};

int wp_epoch_init(struct wp_epoch *e, wp_epoch_free_fn *give, void *ctx); /* Errors: WP_ENOMEM */
void wp_epoch_fini(struct wp_epoch *e); /* gives everything back: nobody is inside */

uint32_t wp_epoch_enter(struct wp_epoch *e);
static inline void wp_epoch_leave(struct wp_epoch *e, uint32_t slot)
{
    atomic_store_explicit(&e->slot[slot].at, 0, memory_order_release);
}

/* Never fails: without memory for the list it waits for the readers that are inside, and gives back at once. */
void wp_epoch_retire(struct wp_epoch *e, uint32_t kind, uint64_t ref);
void wp_epoch_reclaim(struct wp_epoch *e); /* what nobody can see any more; cost: O(readers), then O(1) a thing */
void wp_epoch_drain(struct wp_epoch *e);   /* all of it, waiting for readers */

#endif
