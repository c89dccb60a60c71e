/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of the parts: the epoch, the head tables and the slabs, each by itself. */
#include "tests/model/model.h"

#include "base/mem.h"
#include "index/heads.h"
#include "index/slab.h"

/* The epoch: a cell names one of a few things, which is retired when the cell names the next. */

enum { THINGS = 4 };

struct cell {
    struct wp_epoch epoch;
    _Atomic uint32_t at;
    _Atomic uint32_t used[THINGS];
};

static void end_thing(void *ctx, uint32_t kind, uint64_t ref)
{
    struct cell *c = ctx;

    (void)kind;
    atomic_store(&c->used[ref], 0);
}

static void *cell_begin(void)
{
    struct cell *c = wp_calloc(1, sizeof *c);

    wp_epoch_init(&c->epoch, end_thing, c);
    wp_epoch_leave(&c->epoch, wp_epoch_enter(&c->epoch)); /* the thread has its first slot */
    c->used[0] = 1;
    return c;
}

static void cell_next(struct cell *c)
{
    uint32_t was = atomic_load(&c->at);

    atomic_store(&c->used[was + 1], 1);
    atomic_store(&c->at, was + 1);
    wp_epoch_retire(&c->epoch, 1, was);
}

static void cell_write_once(void *state)
{
    struct cell *c = state;

    cell_next(c);
    wp_epoch_reclaim(&c->epoch);
}

static void cell_write_twice(void *state)
{
    cell_write_once(state);
    cell_write_once(state);
}

static void cell_write_and_drain(void *state)
{
    struct cell *c = state;

    cell_next(c);
    cell_next(c);
    wp_epoch_drain(&c->epoch);
    WP_MODEL_WANT("after a drain all was given back",
                  !atomic_load(&c->used[0]) && !atomic_load(&c->used[1]));
}

/* The list of what is retired is full and there is no memory for a longer one. */
static void *cell_begin_full(void)
{
    struct cell *c = cell_begin();

    while (c->epoch.n < c->epoch.cap)
        wp_epoch_retire(&c->epoch, 1, THINGS - 1);
    return c;
}

static void cell_write_without_memory(void *state)
{
    struct cell *c = state;

    wp_mem_fail_after(0);
    cell_next(c);
    wp_mem_fail_after(-1);
    wp_epoch_reclaim(&c->epoch);
}

static void cell_read(void *state, unsigned reader)
{
    struct cell *c = state;
    uint32_t slot = wp_epoch_enter(&c->epoch), at = atomic_load(&c->at);

    (void)reader;
    WP_MODEL_WANT("what a reader found is in use", atomic_load(&c->used[at]));
    wp_epoch_leave(&c->epoch, slot);
}

static void cell_read_twice(void *state, unsigned reader)
{
    cell_read(state, reader);
    cell_read(state, reader);
}

/* The heads: STAYS is there all the time, GONE never, the others come and go.  All but the crowd
 * want the same word of a table. */

enum { STAYS = 1001, GOES, GONE_BEFORE, COMES, CROWD = 184 };

struct heads {
    struct wp_epoch epoch;
    struct wp_budget budget;
    struct wp_heads h;
    uint32_t next;     /* of the crowd */
    bool begun, ended; /* the removal of GOES */
};

static uint64_t key_of(uint32_t run) /* their tags differ in the upper bits */
{
    return (uint64_t)(run > 1000 ? (run - 1000) * 1024 + 7 : 16 + run) << 32;
}

static void memory_back(void *ctx, uint32_t kind, uint64_t ref)
{
    (void)ctx, (void)kind;
    wp_free((void *)(uintptr_t)ref);
}

static void heads_put(struct heads *s, uint32_t run)
{
    WP_MODEL_WANT("room for a head", wp_heads_reserve(&s->h, &s->budget, &s->epoch) == 0);
    wp_heads_put(&s->h, key_of(run), run, &s->budget, &s->epoch);
}

static bool heads_has(const struct heads *s, uint32_t run)
{
    struct wp_probe p;
    uint32_t it;

    wp_probe_start(&p, &s->h, key_of(run));
    while ((it = wp_probe_next(&p)) != 0)
        if (it == run)
            return true;
    return false;
}

static struct heads *heads_new(uint32_t crowd)
{
    struct heads *s = wp_calloc(1, sizeof *s);

    wp_epoch_init(&s->epoch, memory_back, s);
    wp_epoch_leave(&s->epoch, wp_epoch_enter(&s->epoch));
    heads_put(s, GOES);
    heads_put(s, GONE_BEFORE);
    heads_put(s, STAYS);
    while (s->next < crowd)
        heads_put(s, ++s->next);
    wp_heads_del(&s->h, key_of(GONE_BEFORE), GONE_BEFORE);
    return s;
}

static void *heads_begin(void)
{
    return heads_new(CROWD);
}

static void *heads_begin_moving(void)
{
    struct heads *s = heads_begin();

    while (!atomic_load(&s->h.older))
        heads_put(s, ++s->next);
    return s;
}

static void heads_take(struct heads *s)
{
    s->begun = true;
    wp_heads_del(&s->h, key_of(GOES), GOES);
    s->ended = true;
}

static void heads_write_near(void *state)
{
    struct heads *s = state;

    heads_take(s);
    heads_put(s, COMES);
    wp_heads_del(&s->h, key_of(COMES), COMES);
    heads_put(s, COMES);
}

/* Until a growth begins, if none is under way, and until it has ended. */
static void heads_write_through_growth(void *state)
{
    struct heads *s = state;

    while (!atomic_load(&s->h.older))
        heads_put(s, ++s->next);
    heads_put(s, COMES);
    heads_take(s);
    while (atomic_load(&s->h.older))
        heads_put(s, ++s->next);
    wp_epoch_reclaim(&s->epoch);
}

static void heads_write_two_growths(void *state)
{
    struct heads *s = state;

    heads_write_through_growth(s);
    while (!atomic_load(&s->h.older))
        heads_put(s, ++s->next);
    while (atomic_load(&s->h.older))
        heads_put(s, ++s->next);
    wp_epoch_reclaim(&s->epoch);
}

static void heads_read(void *state, unsigned reader)
{
    struct heads *s = state;
    uint32_t slot = wp_epoch_enter(&s->epoch);
    bool ended, has;

    (void)reader;
    WP_MODEL_WANT("a head that is there all the time is found", heads_has(s, STAYS));
    ended = s->ended;
    has = heads_has(s, GOES);
    WP_MODEL_WANT("a head deleted before the probe began is not found", !has || !ended);
    WP_MODEL_WANT("a head not deleted before the probe ended is found", has || s->begun);
    WP_MODEL_WANT("a head that is not there is not found", !heads_has(s, GONE_BEFORE));
    wp_epoch_leave(&s->epoch, slot);
}

static void heads_end(void *state)
{
    struct heads *s = state;

    WP_MODEL_WANT("STAYS and COMES are there", heads_has(s, STAYS) && heads_has(s, COMES));
    WP_MODEL_WANT("GOES is not", !heads_has(s, GOES));
    for (uint32_t run = 1; run <= s->next; run++)
        WP_MODEL_WANT("the crowd is there", heads_has(s, run));
}

/* The slab: a reader learns numbers by a store, while the list of chunks grows. */

struct pile {
    struct wp_epoch epoch;
    struct wp_budget budget;
    struct wp_slab slab;
    _Atomic uint32_t newest;
};

static void pile_add(struct pile *s)
{
    uint32_t i;

    WP_MODEL_WANT("room for an item", wp_slab_reserve(&s->slab, 1, &s->budget, &s->epoch) == 0);
    i = wp_slab_take(&s->slab);
    *(uint32_t *)wp_slab_at(&s->slab, i) = i;
    atomic_store_explicit(&s->newest, i, memory_order_release);
}

static void *pile_begin(void)
{
    struct pile *s = wp_calloc(1, sizeof *s);

    wp_epoch_init(&s->epoch, memory_back, s);
    wp_epoch_leave(&s->epoch, wp_epoch_enter(&s->epoch));
    wp_slab_init(&s->slab, 64, 0, 1000);
    do
        pile_add(s);
    while (s->slab.chunks < s->slab.room);
    return s;
}

static void pile_write(void *state)
{
    struct pile *s = state;

    for (int i = 0; i < 20; i++) /* 16, and 32 chunks */
        pile_add(s);
    wp_epoch_reclaim(&s->epoch);
}

static void pile_read(void *state, unsigned reader)
{
    struct pile *s = state;
    uint32_t slot = wp_epoch_enter(&s->epoch),
             i = atomic_load_explicit(&s->newest, memory_order_acquire);

    (void)reader;
    WP_MODEL_WANT("an item whose number was told is there, and filled",
                  *(uint32_t *)wp_slab_at(&s->slab, i) == i);
    WP_MODEL_WANT("so is the first one", *(uint32_t *)wp_slab_at(&s->slab, 1) == 1);
    wp_epoch_leave(&s->epoch, slot);
}

const struct wp_model wp_models_parts[] = {
    {"epoch: a thing replaced twice, a reader", 1, WP_MODEL_ALL, cell_begin, cell_write_twice,
     cell_read, NULL},
    {"epoch: a thing replaced, a reader that comes twice", 1, WP_MODEL_ALL, cell_begin,
     cell_write_once, cell_read_twice, NULL},
    {"epoch: a thing replaced, two readers", 2, 4, cell_begin, cell_write_once, cell_read, NULL},
    {"epoch: a thing replaced twice, two readers that come twice", 2, 3, cell_begin,
     cell_write_twice, cell_read_twice, NULL},
    {"epoch: drained", 2, 3, cell_begin, cell_write_and_drain, cell_read, NULL},
    {"epoch: full, and no memory", 2, 3, cell_begin_full, cell_write_without_memory, cell_read,
     NULL},
    {"heads: puts and deletes nearby", 1, WP_MODEL_ALL, heads_begin, heads_write_near, heads_read,
     heads_end},
    {"heads: growth from its beginning to its end", 1, 4, heads_begin, heads_write_through_growth,
     heads_read, heads_end},
    {"heads: the rest of a growth", 1, 4, heads_begin_moving, heads_write_through_growth,
     heads_read, heads_end},
    {"heads: two growths", 1, 3, heads_begin, heads_write_two_growths, heads_read, heads_end},
    {"heads: growth, two readers", 2, 2, heads_begin, heads_write_through_growth, heads_read,
     heads_end},
    {"slab: its list grows twice, a reader", 1, 4, pile_begin, pile_write, pile_read, NULL},
    {"slab: its list grows twice, two readers", 2, 2, pile_begin, pile_write, pile_read, NULL},
    {0},
};
