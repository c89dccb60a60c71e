/* SPDX-License-Identifier: Apache-2.0 */
/* Where blocks are: runs, how they are found, how they grow, and when they go. */
#include "index/inside.h"

#include <string.h>

static struct wp_heads *heads_of(const struct wp_index *ix, uint32_t segment, unsigned first)
{
    return (struct wp_heads *)&ix->heads[segment || first];
}

static uint32_t find(const struct wp_index *ix, uint32_t segment, unsigned first, uint64_t key)
{
    struct wp_probe p;
    uint32_t run;

    wp_probe_start(&p, heads_of(ix, segment, first), key);
    while ((run = wp_probe_next(&p)) != 0 && wp_run_at(ix, run)->key != key)
        ;
    return run;
}

/* The sums of the segment's blocks before the run's block off, which is not its first one. */
static struct wp_sums sum_before(const struct wp_index *ix, uint32_t run, unsigned off)
{
    const struct wp_run *r = wp_run_at(ix, run);
    const struct wp_run_own *own = wp_own_at(ix, run);
    unsigned len = wp_run_len(r), n;
    struct wp_sums tail = {0};

    for (unsigned i = off; i < len; i += n) {
        n = WP_CHUNK - i % WP_CHUNK;
        n = n < len - i ? n : len - i;
        tail = wp_prefix_add(&ix->prefix, tail, r->first + i,
                             wp_run_chunk(ix, r, i / WP_CHUNK) + i % WP_CHUNK, n);
    }
    return (struct wp_sums){own->sum.a - tail.a, own->sum.b - tail.b};
}

/* What the first block of a run below a place would be called. */
struct spot {
    uint64_t base, key;
    struct wp_sums sum; /* with the block */
    uint32_t segment;
    unsigned first;
};

static void spot_below(const struct wp_index *ix, uint32_t space, uint32_t place, uint64_t local,
                       struct spot *s)
{
    uint32_t run = wp_place_run(place);
    unsigned off = wp_place_off(place) + 1;

    if (place == WP_NOWHERE) {
        *s = (struct spot){.base = ix->spaces[space].root};
    } else {
        const struct wp_run *r = wp_run_at(ix, run);
        const struct wp_run_own *own = wp_own_at(ix, run);
        struct wp_sums sum = off == wp_run_len(r) ? own->sum : sum_before(ix, run, off);

        *s = (struct spot){
            .base = own->base, .sum = sum, .segment = own->segment, .first = r->first + off};
        if (s->first == WP_SEGMENT)
            *s = (struct spot){.base = wp_prefix_key(&ix->prefix, own->base, sum, WP_SEGMENT),
                               .segment = own->segment + 1};
    }
    s->sum = wp_prefix_add(&ix->prefix, s->sum, s->first, &local, 1);
    s->key = wp_prefix_key(&ix->prefix, s->base, s->sum, s->first + 1);
}

/* The place's run goes on with the block, or could. */
static bool goes_on(const struct wp_index *ix, uint32_t place, uint64_t local, bool *could)
{
    const struct wp_run *r;
    unsigned off = wp_place_off(place) + 1, len;

    *could = false;
    if (place == WP_NOWHERE)
        return false;
    r = wp_run_at(ix, wp_place_run(place));
    len = wp_run_len(r);
    *could = off == len && r->first + off < WP_SEGMENT;
    return off < len && wp_run_local(ix, r, off) == local;
}

uint32_t wp_place_below(const struct wp_index *ix, uint32_t space, uint32_t place, uint64_t local)
{
    struct spot s;
    uint32_t run;
    bool could;

    if (goes_on(ix, place, local, &could))
        return place + 1;
    if (could) /* nothing hangs where the run itself may go on */
        return WP_NOWHERE;
    spot_below(ix, space, place, local, &s);
    run = find(ix, s.segment, s.first, s.key);
    return run ? wp_place(run, 0) : WP_NOWHERE;
}

void wp_place_prefetch(const struct wp_index *ix, uint32_t space, const uint64_t local[])
{
    struct spot s;

    if (!local || space >= ix->n_spaces)
        return;
    spot_below(ix, space, WP_NOWHERE, local[0], &s);
    wp_heads_prefetch(&ix->heads[0], s.key);
}

void wp_run_prefetch_links(const struct wp_index *ix, uint32_t run)
{
    const struct wp_run *r = wp_run_at(ix, run);
    const struct wp_run_own *own = wp_own_at(ix, run);

    wp_heads_prefetch(heads_of(ix, own->segment, r->first), r->key);
    if (own->prev)
        __builtin_prefetch(wp_own_at(ix, own->prev), 1);
    if (own->next)
        __builtin_prefetch(wp_own_at(ix, own->next), 1);
}

int wp_place_reserve(struct wp_index *ix)
{
    int rc = wp_slab_reserve(&ix->chunks, 1, &ix->budget, &ix->epoch);

    if (rc == 0)
        rc = wp_slab_reserve(&ix->runs, 1, &ix->budget, &ix->epoch);
    if (rc == 0)
        rc = wp_slab_reserve(&ix->owns, 1, &ix->budget, &ix->epoch);
    if (rc == 0)
        rc = wp_heads_reserve(&ix->heads[0], &ix->budget, &ix->epoch);
    return rc == 0 ? wp_heads_reserve(&ix->heads[1], &ix->budget, &ix->epoch) : rc;
}

static void write_local(struct wp_index *ix, struct wp_run *r, unsigned off, uint64_t local)
{
    if (off % WP_CHUNK == 0)
        atomic_store_explicit(&r->chunk[off / WP_CHUNK], wp_slab_take(&ix->chunks),
                              memory_order_relaxed);
    ((uint64_t *)wp_run_chunk(ix, r, off / WP_CHUNK))[off % WP_CHUNK] = local;
}

static void close_run(struct wp_index *ix, struct wp_run *r, const struct wp_run_own *own,
                      unsigned len)
{
    uint64_t key = wp_prefix_key(&ix->prefix, own->base, own->sum, r->first + len);

    atomic_store_explicit(&r->len, (uint8_t)len, memory_order_relaxed);
    atomic_store_explicit(&r->end_key, key, memory_order_relaxed);
}

static void append(struct wp_index *ix, uint32_t place, uint64_t local)
{
    struct wp_run *r = wp_run_at(ix, wp_place_run(place));
    struct wp_run_own *own = wp_own_at(ix, wp_place_run(place));
    unsigned off = wp_place_off(place) + 1;

    own->sum = wp_prefix_add(&ix->prefix, own->sum, r->first + off, &local, 1);
    write_local(ix, r, off, local);
    close_run(ix, r, own, off + 1);
}

unsigned wp_run_append(struct wp_index *ix, uint32_t run, const uint64_t local[], size_t n)
{
    struct wp_run *r = wp_run_at(ix, run);
    struct wp_run_own *own = wp_own_at(ix, run);
    unsigned len = wp_run_len(r), room = WP_SEGMENT - r->first - len, done = 0;

    room = n < room ? (unsigned)n : room;
    if (!room)
        return 0;
    if (wp_slab_reserve(&ix->chunks, room / WP_CHUNK + 1, &ix->budget, &ix->epoch) < 0)
        return 0;
    own->sum = wp_prefix_add(&ix->prefix, own->sum, r->first + len, local, room);
    while (done < room) {
        unsigned off = len + done, now = WP_CHUNK - off % WP_CHUNK;

        now = now < room - done ? now : room - done;
        if (off % WP_CHUNK == 0)
            atomic_store_explicit(&r->chunk[off / WP_CHUNK], wp_slab_take(&ix->chunks),
                                  memory_order_relaxed);
        memcpy((uint64_t *)wp_run_chunk(ix, r, off / WP_CHUNK) + off % WP_CHUNK, local + done,
               now * sizeof local[0]);
        done += now;
    }
    close_run(ix, r, own, len + room);
    return room;
}

static uint32_t *children_of(struct wp_index *ix, uint32_t space, uint32_t parent)
{
    return parent == WP_NOWHERE ? &ix->spaces[space].child
                                : &wp_own_at(ix, wp_place_run(parent))->child;
}

static uint32_t make_run(struct wp_index *ix, uint32_t space, uint32_t place, uint64_t local)
{
    uint32_t run = wp_slab_take(&ix->runs), *child;
    struct wp_run *r = wp_run_at(ix, run);
    struct wp_run_own *own;
    struct spot s;

    while (run >= ix->owns.top) /* they go in step */
        (void)wp_slab_take(&ix->owns);
    if (ix->runs.free)
        __builtin_prefetch(wp_own_at(ix, ix->runs.free), 1); /* the next one to be taken */
    own = wp_own_at(ix, run);
    spot_below(ix, space, place, local, &s);
    memset(r, 0, sizeof *r);
    *own = (struct wp_run_own){
        .sum = s.sum, .base = s.base, .segment = s.segment, .space = (uint16_t)space};
    r->key = s.key;
    r->parent = place;
    r->first = (uint8_t)s.first;
    write_local(ix, r, 0, local);
    close_run(ix, r, own, 1);
    child = children_of(ix, space, place);
    own->next = *child;
    if (*child)
        wp_own_at(ix, *child)->prev = run;
    *child = run;
    wp_heads_put(heads_of(ix, s.segment, s.first), s.key, run, &ix->budget, &ix->epoch);
    return run;
}

uint32_t wp_place_make(struct wp_index *ix, uint32_t space, uint32_t place, uint64_t local)
{
    bool could;

    goes_on(ix, place, local, &could);
    if (!could)
        return wp_place(make_run(ix, space, place, local), 0);
    append(ix, place, local);
    return place + 1;
}

static void unlink_run(struct wp_index *ix, uint32_t run)
{
    struct wp_run *r = wp_run_at(ix, run);
    struct wp_run_own *own = wp_own_at(ix, run);

    if (own->prev)
        wp_own_at(ix, own->prev)->next = own->next;
    else
        *children_of(ix, own->space, r->parent) = own->next;
    if (own->next)
        wp_own_at(ix, own->next)->prev = own->prev;
    wp_heads_del(heads_of(ix, own->segment, r->first), r->key, run);
    r->gone = 1;
    wp_epoch_retire(&ix->epoch, WP_RETIRED_RUN, run);
}

void wp_run_settle(struct wp_index *ix, uint32_t run)
{
    while (run) {
        const struct wp_run *r = wp_run_at(ix, run);
        uint64_t who = atomic_load_explicit(&((struct wp_run *)r)->who, memory_order_relaxed);
        uint32_t parent = r->parent;

        if (run == ix->pinned || wp_own_at(ix, run)->child || r->gone ||
            (who && wp_run_cover(ix, run)))
            return;
        if (who & WP_WHO_ROSTER) { /* nothing but what was emptied where it stood */
            atomic_store_explicit(&((struct wp_run *)r)->who, 0, memory_order_release);
            wp_epoch_retire(&ix->epoch, WP_RETIRED_ROSTER, who);
        }
        unlink_run(ix, run);
        run = parent == WP_NOWHERE ? 0 : wp_place_run(parent);
    }
}

void wp_run_pin(struct wp_index *ix, uint32_t run)
{
    uint32_t before = ix->pinned;

    if (run == before)
        return;
    ix->pinned = run;
    if (before)
        wp_run_settle(ix, before);
}

void wp_run_free(struct wp_index *ix, uint32_t run)
{
    struct wp_run *r = wp_run_at(ix, run);

    for (unsigned i = 0; i < wp_run_len(r); i += WP_CHUNK)
        wp_slab_give(&ix->chunks,
                     atomic_load_explicit(&r->chunk[i / WP_CHUNK], memory_order_relaxed));
    wp_slab_give(&ix->runs, run);
}
