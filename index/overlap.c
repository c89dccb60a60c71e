/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look-up: one walk along the prompt's runs answers for all holders.  Holders that have had the
 * same answer so far share a row; each run splits a row by how far, in which tier and in what doubt
 * its holders have it, and those who do not have it to its end leave with what they have got.  Sets
 * are bits, so that a split is a few words a row and span.
 *
 * No lock: a run is found through the head tables, and what its word says is read once
 * (index/inside.h).  The epoch keeps what was found from being used for something else.
 */
#include "index/walk.h"

#include "base/mem.h"

int wp_overlap_init(struct wp_overlap *o, size_t holders)
{
    size_t words = holders ? (holders + 63) / 64 : 1, cap = words * 64 + 1;

    *o = (struct wp_overlap){.words = words, .cap = cap};
    o->row = wp_calloc(cap, sizeof *o->row);
    o->bits = wp_calloc((cap + WP_SCRATCH_SETS) * words, sizeof *o->bits);
    o->window = wp_calloc(words * 64, sizeof *o->window);
    o->spare = wp_calloc(cap, sizeof *o->spare);
    o->before = wp_calloc(cap, sizeof *o->before);
    if (o->row && o->bits && o->window && o->spare && o->before)
        return 0;
    wp_overlap_fini(o);
    return WP_ENOMEM;
}

void wp_overlap_fini(struct wp_overlap *o)
{
    wp_free(o->row);
    wp_free(o->bits);
    wp_free(o->window);
    wp_free(o->spare);
    wp_free(o->before);
    *o = (struct wp_overlap){0};
}

const struct wp_overlap_row *wp_overlap_of(const struct wp_overlap *o, uint32_t holder)
{
    if (holder >= o->words * 64)
        return NULL;
    for (size_t i = 0; i < o->n; i++)
        if (o->row[i].set[holder / 64] >> (holder % 64) & 1)
            return &o->row[i];
    return NULL;
}

static bool see(const struct wp_index *ix, const struct wp_run *run, struct wp_seen *s)
{
    uint64_t who = wp_word_get(&run->who), head, low, high;
    const wp_word *w;

    if (!who)
        return false;
    if (who & WP_WHO_SPAN) {
        *s =
            (struct wp_seen){.singles = 1, .upto = wp_span_hi(who), .simple = wp_span_lo(who) == 0};
        atomic_init(&s->own, who & ~WP_WHO_SPAN);
        s->single = &s->own;
        return !(who & WP_SPAN_WINDOW);
    }
    w = wp_slab_at(&ix->rosters[who >> 32 & 31], (uint32_t)who);
    head = wp_word_get(&w[0]);
    low = wp_word_get(&w[1]);
    high = wp_word_get(&w[2]);
    *s = (struct wp_seen){.singles = wp_roster_singles(head),
                          .sets = wp_roster_sets(head),
                          .words = wp_roster_words(head),
                          .single = w + WP_ROSTER_HEAD,
                          .simple = (head & WP_ROSTER_SIMPLE) != 0,
                          .upto = high  ? 128 - (unsigned)__builtin_clzll(high)
                                  : low ? 64 - (unsigned)__builtin_clzll(low)
                                        : 0};
    s->set = s->single + s->singles;
    return s->upto != 0;
}

/* Finding the runs. */

static uint64_t head_key(const struct wp_walk *w, size_t segment)
{
    const struct wp_keys *keys = &w->ix->keys;
    wp_u128 sum = wp_keys_add(keys, 0, 0, 0, w->local + segment * WP_SEGMENT, 1);

    return wp_keys_key(keys, w->base[segment % WP_AHEAD], sum, 1);
}

/* Knows the base of the segment, if all before it are whole. */
static void know(struct wp_walk *w, size_t segment)
{
    const struct wp_keys *keys = &w->ix->keys;

    while (w->known <= segment && w->known * WP_SEGMENT < w->n) {
        size_t s = w->known - 1;
        wp_u128 sum = wp_keys_add(keys, 0, 0, 0, w->local + s * WP_SEGMENT, WP_SEGMENT);

        w->base[w->known % WP_AHEAD] = wp_keys_key(keys, w->base[s % WP_AHEAD], sum, WP_SEGMENT);
        wp_heads_prefetch(&w->ix->heads[1], head_key(w, w->known));
        w->known++;
    }
}

/* The first runs of the segments up to that one are on their way from memory, if their heads have
 * come. */
static void call_for(struct wp_walk *w, size_t segment)
{
    for (; w->called <= segment && w->called < w->known; w->called++) {
        struct wp_probe p;
        uint32_t run;

        wp_probe_start(&p, &w->ix->heads[1], head_key(w, w->called));
        run = wp_probe_next(&p);
        if (run)
            __builtin_prefetch(wp_run_at(w->ix, run));
    }
}

static const struct wp_run *find(const struct wp_walk *w, const struct wp_heads *heads,
                                 uint64_t key)
{
    struct wp_probe p;
    uint32_t run;

    wp_probe_start(&p, heads, key);
    while ((run = wp_probe_next(&p)) != 0) {
        const struct wp_run *r = wp_run_at(w->ix, run);

        if (r->key == key)
            return r;
    }
    return NULL;
}

static const struct wp_run *next_run(struct wp_walk *w)
{
    const struct wp_keys *keys = &w->ix->keys;
    size_t segment = w->pos / WP_SEGMENT, off = w->pos % WP_SEGMENT;
    wp_u128 sum;

    know(w, segment);
    if (off == 0)
        return find(w, &w->ix->heads[segment != 0], head_key(w, segment));
    sum = wp_keys_add(keys, 0, 0, 0, w->local + segment * WP_SEGMENT, off + 1);
    return find(w, &w->ix->heads[1],
                wp_keys_key(keys, w->base[segment % WP_AHEAD], sum, (uint32_t)off + 1));
}

/* All of the run lies on the prompt: its key says so at once. */
static bool lies_whole(struct wp_walk *w, const struct wp_run *r, unsigned len)
{
    const struct wp_keys *keys = &w->ix->keys;
    size_t segment = w->pos / WP_SEGMENT;
    uint32_t upto = r->first + len;
    wp_u128 sum;

    if (w->pos + len > w->n)
        return false;
    if (upto == WP_SEGMENT && (segment + 1) * WP_SEGMENT < w->n) {
        know(w, segment + 1);
        return atomic_load_explicit(&((struct wp_run *)r)->end_key, memory_order_relaxed) ==
               w->base[(segment + 1) % WP_AHEAD];
    }
    sum = wp_keys_add(keys, 0, 0, 0, w->local + segment * WP_SEGMENT, upto);
    return atomic_load_explicit(&((struct wp_run *)r)->end_key, memory_order_relaxed) ==
           wp_keys_key(keys, w->base[segment % WP_AHEAD], sum, upto);
}

/* How many of the run's first blocks, of which somebody has `upto`, lie on the prompt. */
static unsigned match(struct wp_walk *w, const struct wp_run *r, unsigned upto)
{
    const uint64_t *local = w->local + w->pos;
    unsigned len = wp_run_len(r), most = w->n - w->pos < upto ? (unsigned)(w->n - w->pos) : upto,
             i = 1;

    if (len > WP_CHUNK && len <= most && lies_whole(w, r, len))
        i = len;
    for (unsigned c = i / WP_CHUNK; c * WP_CHUNK < most; c++) {
        const uint64_t *chunk = wp_run_chunk(w->ix, r, c);

        __builtin_prefetch(chunk);
        __builtin_prefetch(chunk + WP_CHUNK / 2);
    }
    for (; i < most && wp_run_local(w->ix, r, i) == local[i];)
        i++;
    return i;
}

static void walk(struct wp_walk *w, const struct wp_index *ix, const struct wp_census *c,
                 uint32_t space)
{
    const struct wp_run *r;
    struct wp_seen s;

    w->base[0] = c->root[space];
    w->known = w->called = 1;
    w->pos = 0;
    w->ix = ix;
    r = next_run(w);
    if (!r)
        return;
    __builtin_prefetch(r);
    wp_rows_init(w, ix, c, w->o);
    if (w->o->deep) /* while the run is on its way from memory; in vain, if its holders end in it */
        know(w, 2);
    while (r && see(ix, r, &s)) {
        unsigned m = match(w, r, s.upto);

        wp_rows_go(w, &s, m);
        w->pos += m;
        if (w->pos == w->n || !wp_rows_any_at(w->o, w->pos))
            break;
        if (w->pos % WP_SEGMENT == 0) {
            know(w, w->pos / WP_SEGMENT + WP_AHEAD - 2);
            call_for(w, w->pos / WP_SEGMENT + WP_AHEAD / 2);
        }
        r = next_run(w);
    }
    w->o->deep = w->pos > WP_SEGMENT;
    wp_rows_end(w);
}

size_t wp_index_overlap(const struct wp_index *ix, uint32_t space, const uint64_t local[], size_t n,
                        struct wp_overlap *o)
{
    struct wp_index *own =
        (struct wp_index *)ix; /* a reader writes to its slot of the epoch, and nothing else */
    struct wp_walk w;          /* walk() fills it */
    const struct wp_census *c;
    uint32_t slot;

    o->n = 0;
    if (!n || !o->cap)
        return 0;
    w.o = o;
    w.local = local;
    w.n = n;
    slot = wp_epoch_enter(&own->epoch);
    c = atomic_load_explicit(&own->census, memory_order_acquire);
    if (space < c->n_spaces)
        walk(&w, ix, c, space);
    wp_epoch_leave(&own->epoch, slot);
    return o->n ? o->row[0].blocks : 0;
}
