/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The longest shared prefixes, for people.  Of each run the best end is a candidate; a list holds
 * more of them than are asked for, and one that a run below goes on with as many holders is taken
 * off.  Runs that one holder alone has, which are most, cost a look at their word.
 */
#include "index/identity.h"
#include "index/inside.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE = 65536 /* words looked at */, SPARE = 8 /* candidates for each that is wanted */ };

struct candidate {
    uint64_t weight, key;
    uint32_t run, holders;
    uint32_t parent; /* place; WP_NOWHERE: none */
    unsigned off;
};

struct wp_index_top {
    size_t want, cap, n;
    uint32_t next; /* run */
    struct candidate at[];
};

int wp_index_top_start(struct wp_index_top **out, size_t n)
{
    size_t want = n < WP_TOP_MAX ? n : WP_TOP_MAX;
    struct wp_index_top *t = wp_calloc(1, sizeof *t + (want + 1) * SPARE * sizeof t->at[0]);

    if (!t)
        return WP_ENOMEM;
    t->want = want;
    t->cap = (want + 1) * SPARE;
    t->next = 1;
    *out = t;
    return 0;
}

void wp_index_top_free(struct wp_index_top *t)
{
    wp_free(t);
}

static uint64_t word(const _Atomic uint64_t *w)
{
    return atomic_load_explicit((_Atomic uint64_t *)w, memory_order_relaxed);
}

/* A roster's words; 0: it is none. */
static const _Atomic uint64_t *roster_of(const struct wp_index *ix, const struct wp_run *r)
{
    uint64_t who = word(&r->who);

    return who & WP_WHO_ROSTER ? wp_slab_at(&ix->rosters[who >> 32 & 31], (uint32_t)who) : NULL;
}

static unsigned in_set(const _Atomic uint64_t *set, unsigned words)
{
    unsigned n = 0;

    for (unsigned i = 0; i < words; i++)
        n += (unsigned)__builtin_popcountll(word(&set[1 + i]));
    return n;
}

/* How many holders have each block of the run.  Returns the words that it looked at. */
static size_t count_holders(const _Atomic uint64_t *w, uint32_t held[WP_SEGMENT])
{
    unsigned singles = wp_roster_singles(word(w)), sets = wp_roster_sets(word(w)),
             words = wp_roster_words(word(w));
    uint32_t change[WP_SEGMENT + 1] = {0}, now = 0;

    for (unsigned i = 0; i < singles + sets; i++) {
        const _Atomic uint64_t *at =
            i < singles ? &w[WP_ROSTER_HEAD + i]
                        : &w[WP_ROSTER_HEAD + singles + (size_t)(i - singles) * (1 + words)];
        uint32_t n = i < singles ? 1 : in_set(at, words);
        uint64_t span = word(at);

        if (span & WP_SPAN_WINDOW)
            continue;
        change[wp_span_lo(span)] += n;
        change[wp_span_hi(span)] -= n; /* wraps */
    }
    for (unsigned i = 0; i < WP_SEGMENT; i++)
        held[i] = now += change[i];
    return singles + (size_t)sets * (1 + words);
}

static uint32_t depth(const struct wp_index *ix, uint32_t run, unsigned off)
{
    return wp_own_at(ix, run)->segment * WP_SEGMENT + wp_run_at(ix, run)->first + off + 1;
}

static void cut(struct wp_index_top *t, size_t i)
{
    t->at[i] = t->at[--t->n];
}

/* Is the first only the beginning of the second, with no more holders? */
static bool is_part(const struct candidate *a, const struct candidate *b)
{
    return b->parent != WP_NOWHERE && wp_place_run(b->parent) == a->run &&
           wp_place_off(b->parent) >= a->off && b->holders >= a->holders;
}

static void add(struct wp_index_top *t, const struct candidate *c)
{
    size_t least = 0;

    for (size_t i = 0; i < t->n; i++)
        if (is_part(c, &t->at[i]))
            return;
    for (size_t i = t->n; i-- > 0;)
        if (is_part(&t->at[i], c))
            cut(t, i);
    if (t->n < t->cap) {
        t->at[t->n++] = *c;
        return;
    }
    for (size_t i = 1; i < t->n; i++)
        if (t->at[i].weight < t->at[least].weight)
            least = i;
    if (t->at[least].weight < c->weight)
        t->at[least] = *c;
}

static size_t look_at(const struct wp_index *ix, struct wp_index_top *t, uint32_t run)
{
    const struct wp_run *r = wp_run_at(ix, run);
    const _Atomic uint64_t *w = r->gone ? NULL : roster_of(ix, r);
    struct candidate c = {.run = run, .parent = r->parent, .key = r->key};
    uint32_t held[WP_SEGMENT];
    size_t cost;

    if (!w)
        return 1;
    cost = count_holders(w, held);
    for (unsigned i = 0; i < WP_SEGMENT; i++) {
        uint64_t weight = (uint64_t)held[i] * depth(ix, run, i);

        if (held[i] < 2 || weight < c.weight)
            continue;
        c.weight = weight;
        c.off = i;
        c.holders = held[i];
    }
    if (c.weight)
        add(t, &c);
    return cost + WP_SEGMENT;
}

bool wp_index_top_step(const struct wp_index *ix, struct wp_index_top *t)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&ix->lock;
    bool last;

    pthread_mutex_lock(lock);
    for (size_t cost = 0; cost < SLICE && t->next < ix->runs.top; t->next++)
        cost += look_at(ix, t, t->next);
    last = t->next >= ix->runs.top;
    pthread_mutex_unlock(lock);
    return last;
}

static int heaviest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Its last block's hash, from the first block on. */
static uint64_t chain_of(const struct wp_index *ix, uint32_t place, uint32_t blocks)
{
    uint64_t *local = wp_malloc(blocks * sizeof *local), chain = 0;

    if (!local)
        return 0;
    for (uint32_t i = blocks; i-- > 0; place = wp_place_before(ix, place))
        local[i] = wp_run_local(ix, wp_run_at(ix, wp_place_run(place)), wp_place_off(place));
    chain = local[0];
    for (uint32_t i = 1; i < blocks; i++)
        chain = wp_hash_next(chain, local[i]);
    wp_free(local);
    return chain;
}

/* As it is now; false: it is no more. */
static bool describe(const struct wp_index *ix, const struct candidate *c,
                     struct wp_index_prefix *p)
{
    const struct wp_run *r = wp_run_at(ix, c->run);

    if (r->gone || r->key != c->key || c->off >= wp_run_len(r))
        return false;
    *p = (struct wp_index_prefix){.space = wp_own_at(ix, c->run)->space,
                                  .blocks = depth(ix, c->run, c->off)};
    for (uint32_t h = 0; h < ix->n_holders; h++) {
        if (!wp_part_look(ix, wp_place(c->run, c->off), h))
            continue;
        if (p->holders < WP_TOP_HOLDERS)
            p->holder[p->holders] = h;
        p->holders++;
    }
    if (p->holders)
        p->chain = chain_of(ix, wp_place(c->run, c->off), p->blocks);
    return p->holders != 0;
}

size_t wp_index_top_take(const struct wp_index *ix, struct wp_index_top *t,
                         struct wp_index_prefix out[])
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&ix->lock;
    size_t n = 0;

    qsort(t->at, t->n, sizeof t->at[0], heaviest_first);
    for (size_t i = 0; i < t->n && n < t->want; i++) {
        pthread_mutex_lock(lock);
        n += describe(ix, &t->at[i], &out[n]);
        pthread_mutex_unlock(lock);
    }
    t->n = 0;
    return n;
}
