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

static struct wp_sums sums_of(const struct wp_walk *w, size_t segment, size_t n)
{
    return wp_prefix_add(&w->ix->prefix, (struct wp_sums){0}, 0, w->local + segment * WP_SEGMENT,
                         n);
}

/* The same, where the walk is: goes on from what was summed last. */
static struct wp_sums sums_upto(struct wp_walk *w, size_t segment, size_t n)
{
    size_t start = segment * WP_SEGMENT, to = start + n;

    if (w->summed <= start || w->summed > to) {
        w->sums = (struct wp_sums){0};
        w->summed = start;
    }
    w->sums = wp_prefix_add(&w->ix->prefix, w->sums, (uint32_t)(w->summed - start),
                            w->local + w->summed, to - w->summed);
    w->summed = to;
    return w->sums;
}

/* The key of what is before the segment is known now. */
static void set_base(struct wp_walk *w, size_t segment, uint64_t base)
{
    w->base[segment % WP_AHEAD] = base;
    w->head[segment % WP_AHEAD] = wp_prefix_key(&w->ix->prefix, base, sums_of(w, segment, 1), 1);
    w->known = segment + 1;
}

/* Knows the base of the segment, if all before it are whole. */
static void know(struct wp_walk *w, size_t segment)
{
    while (w->known <= segment && w->known * WP_SEGMENT < w->n) {
        size_t s = w->known - 1;

        set_base(w, w->known,
                 wp_prefix_key(&w->ix->prefix, w->base[s % WP_AHEAD], sums_of(w, s, WP_SEGMENT),
                               WP_SEGMENT));
        wp_heads_prefetch(&w->ix->heads[1], w->head[(s + 1) % WP_AHEAD]);
    }
}

/* What may be the first run of the segment is on its way from memory, if its head has come. */
static bool call_for(struct wp_walk *w, size_t segment)
{
    struct wp_probe p;
    uint32_t run;

    wp_probe_start(&p, &w->ix->heads[segment != 0], w->head[segment % WP_AHEAD]);
    run = w->run[segment % WP_AHEAD] = wp_probe_next(&p);
    if (run)
        __builtin_prefetch(wp_run_at(w->ix, run));
    w->called = segment + 1;
    return run != 0;
}

/* Those of the segments up to that one, from where the walk is. */
static void call_upto(struct wp_walk *w, size_t segment)
{
    if (w->called < w->pos / WP_SEGMENT)
        w->called = w->pos / WP_SEGMENT;
    while (w->called <= segment && w->called < w->known)
        call_for(w, w->called);
}

/* The segment's first run has come by now: so does what it leads to. */
static void look_into(const struct wp_walk *w, size_t segment)
{
    uint32_t run = segment < w->called ? w->run[segment % WP_AHEAD] : 0;
    uint64_t who = run ? wp_word_get(&wp_run_at(w->ix, run)->who) : 0;

    if (who & WP_WHO_ROSTER)
        __builtin_prefetch(wp_slab_at(&w->ix->rosters[who >> 32 & 31], (uint32_t)who));
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
    size_t segment = w->pos / WP_SEGMENT, off = w->pos % WP_SEGMENT;

    if (off == 0 && segment < w->called) {
        uint32_t run = w->run[segment % WP_AHEAD];

        if (run && wp_run_at(w->ix, run)->key == w->head[segment % WP_AHEAD])
            return wp_run_at(w->ix, run);
    }
    know(w, segment);
    if (off == 0)
        return find(w, &w->ix->heads[segment != 0], w->head[segment % WP_AHEAD]);
    return find(w, &w->ix->heads[1],
                wp_prefix_key(&w->ix->prefix, w->base[segment % WP_AHEAD],
                              sums_upto(w, segment, off + 1), (uint32_t)off + 1));
}

/* All of the run lies on the prompt: its key says so at once. */
static bool lies_whole(struct wp_walk *w, const struct wp_run *r, unsigned len)
{
    uint64_t key = atomic_load_explicit(&((struct wp_run *)r)->end_key, memory_order_relaxed);
    size_t segment = w->pos / WP_SEGMENT;
    uint32_t upto = r->first + len;

    if (w->pos + len > w->n)
        return false;
    if (upto == WP_SEGMENT && (segment + 1) * WP_SEGMENT < w->n) {
        know(w, segment + 1);
        return key == w->base[(segment + 1) % WP_AHEAD];
    }
    return key == wp_prefix_key(&w->ix->prefix, w->base[segment % WP_AHEAD],
                                sums_upto(w, segment, upto), upto);
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

/*
 * The first run, or NULL.  When the prompt before had more than one segment, this one is taken to
 * be of that kind: while the head of the first run comes from memory the keys of the next ones are
 * worked out, and then all their runs are called for at once.  In vain, if its holders end in the
 * first.
 */
static const struct wp_run *begin(struct wp_walk *w, uint64_t root)
{
    set_base(w, 0, root);
    w->called = 0;
    if (w->o->deep) {
        wp_heads_prefetch(&w->ix->heads[0], w->head[0]);
        know(w, WP_AHEAD / 2 - 1);
        if (!call_for(w, 0))
            return NULL;
        call_upto(w, WP_AHEAD / 2 - 1);
    }
    return next_run(w);
}

static void walk(struct wp_walk *w, const struct wp_index *ix, const struct wp_census *c,
                 uint32_t space)
{
    const struct wp_run *r;
    struct wp_seen s;

    w->pos = w->summed = 0;
    w->ix = ix;
    r = begin(w, c->root[space]);
    if (!r) {
        w->o->deep = false;
        return;
    }
    wp_rows_init(w, ix, c, w->o);
    while (r && see(ix, r, &s)) {
        unsigned m = match(w, r, s.upto);

        wp_rows_go(w, &s, m);
        w->pos += m;
        if (w->pos == w->n || !wp_rows_any_at(w->o, w->pos))
            break;
        if (w->pos % WP_SEGMENT == 0) {
            know(w, w->pos / WP_SEGMENT + WP_AHEAD - 2);
            call_upto(w, w->pos / WP_SEGMENT + WP_AHEAD / 2);
            look_into(w, w->pos / WP_SEGMENT + 1);
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
