/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look-up: one walk down the tree answers for all holders.  Holders that have had the same
 * answer so far share a row; each block splits a row by the tier and the doubt in which its holders
 * have that block, and those who do not have it leave with what they have got.  Sets are bits, so a
 * split is a few words a row and tier.
 *
 * Holders with groups that restrict walk along with the others.  Beside the walk each keeps for how
 * many blocks on end each of its groups has held what was passed, and the row as it stood at the
 * last block where that was enough for all of them; in the end this is their answer.
 */
#include "index/tree.h"

#include "base/mem.h"

#include <string.h>

/* Sets behind those of the rows: who holds the block in tier t, and who surely. */
enum { SCRATCH_SETS = 2 * WP_TIER_MAX + 2 };

struct wp_overlap_window {
    struct wp_overlap_row best;
    uint32_t run[WP_WINDOWS_MAX];
};

int wp_overlap_init(struct wp_overlap *o, size_t holders)
{
    size_t words = holders ? (holders + 63) / 64 : 1, cap = words * 64 + 1;

    *o = (struct wp_overlap){.words = words, .cap = cap};
    o->row = wp_calloc(cap, sizeof *o->row);
    o->bits = wp_calloc((cap + SCRATCH_SETS) * words, sizeof *o->bits);
    o->window = wp_calloc(words * 64, sizeof *o->window);
    if (o->row && o->bits && o->window)
        return 0;
    wp_overlap_fini(o);
    return WP_ENOMEM;
}

void wp_overlap_fini(struct wp_overlap *o)
{
    wp_free(o->row);
    wp_free(o->bits);
    wp_free(o->window);
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

struct walk {
    const struct wp_index *ix;
    struct wp_overlap *o;
    uint64_t *held[WP_TIER_MAX], *sure[WP_TIER_MAX], *rest; /* of the block at hand */
    uint64_t *restricted;                                   /* holders with groups that restrict */
    bool any_restricted;
    uint8_t tiers; /* in which anybody has it */
};

static struct wp_overlap_row *add_row(struct walk *w, const struct wp_overlap_row *like)
{
    struct wp_overlap_row *r = &w->o->row[w->o->n];

    if (like)
        *r = *like;
    else
        *r = (struct wp_overlap_row){0};
    r->set = w->o->bits + w->o->n++ * w->o->words;
    memset(r->set, 0, w->o->words * sizeof r->set[0]);
    return r;
}

static void restrict_init(struct walk *w, uint32_t holder)
{
    const struct wp_holder *h = &w->ix->holders[holder];

    for (uint32_t g = 0; g < h->windows; g++)
        if (wp_window_restricts(&h->window[g])) {
            w->restricted[holder / 64] |= (uint64_t)1 << (holder % 64);
            w->any_restricted = true;
        }
    if (h->windows)
        w->o->window[holder] = (struct wp_overlap_window){0};
}

static void walk_init(struct walk *w, const struct wp_index *ix, struct wp_overlap *o)
{
    uint64_t *scratch = o->bits + o->cap * o->words;
    struct wp_overlap_row *all;

    *w = (struct walk){.ix = ix,
                       .o = o,
                       .rest = scratch + (SCRATCH_SETS - 1) * o->words,
                       .restricted = scratch + (SCRATCH_SETS - 2) * o->words};
    memset(w->restricted, 0, o->words * sizeof w->restricted[0]);
    for (size_t t = 0; t < WP_TIER_MAX; t++) {
        w->held[t] = scratch + 2 * t * o->words;
        w->sure[t] = scratch + (2 * t + 1) * o->words;
    }
    o->n = 0;
    all = add_row(w, NULL);
    for (uint32_t h = 0; h < ix->n_holders && h < o->words * 64; h++)
        if (ix->holders[h].live) {
            all->set[h / 64] |= (uint64_t)1 << (h % 64);
            restrict_init(w, h);
        }
}

static void mark(struct walk *w, uint32_t holder, uint8_t tiers, uint8_t sure)
{
    uint64_t bit = (uint64_t)1 << (holder % 64);

    if (holder >= w->o->words * 64)
        return;
    for (; tiers; tiers &= (uint8_t)(tiers - 1)) {
        int t = __builtin_ctz(tiers);

        w->held[t][holder / 64] |= bit;
        if (sure >> t & 1)
            w->sure[t][holder / 64] |= bit;
    }
}

/* Who holds the block; what a node holds counts for its ranks. */
static void look_at(struct walk *w, uint32_t node)
{
    const struct wp_index *ix = w->ix;

    w->tiers = 0;
    for (uint32_t i = wp_node_at(ix, node)->locs; i; i = wp_loc_at(ix, i)->next)
        w->tiers |= wp_loc_tiers(wp_loc_at(ix, i));
    for (uint8_t t = w->tiers; t; t &= (uint8_t)(t - 1)) {
        memset(w->held[__builtin_ctz(t)], 0, w->o->words * sizeof(uint64_t));
        memset(w->sure[__builtin_ctz(t)], 0, w->o->words * sizeof(uint64_t));
    }
    for (uint32_t i = wp_node_at(ix, node)->locs; i; i = wp_loc_at(ix, i)->next) {
        const struct wp_loc *l = wp_loc_at(ix, i);
        uint8_t tiers = wp_loc_tiers(l), sure = wp_loc_sure(ix, l);

        if (!tiers)
            continue;
        mark(w, l->holder, tiers, sure);
        for (uint32_t r = ix->holders[l->holder].first_rank; r != WP_NO_HOLDER;
             r = ix->holders[r].next_rank)
            mark(w, r, tiers, sure);
    }
}

/* Those of w->rest in `in` (and not in `out`) get a row of their own, one block longer than `from`.
 */
static void part(struct walk *w, const struct wp_overlap_row *from, int tier, bool doubtful)
{
    const uint64_t *in = w->held[tier], *sure = w->sure[tier];
    struct wp_overlap_row *r = NULL;

    for (size_t i = 0; i < w->o->words; i++) {
        uint64_t bits = w->rest[i] & in[i] & (doubtful ? ~sure[i] : sure[i]);

        if (!bits)
            continue;
        if (!r)
            r = add_row(w, from);
        r->set[i] = bits;
    }
    if (!r)
        return;
    r->blocks++;
    r->tier[tier]++;
    r->doubtful += doubtful;
}

/* Splits the row at o->row[at] over the block.  What stays there does not have it, or all of what
 * was there does. */
static void split(struct walk *w, size_t at)
{
    struct wp_overlap *o = w->o;
    size_t first = o->n;
    uint64_t left = 0;

    memcpy(w->rest, o->row[at].set, o->words * sizeof(uint64_t));
    memset(o->row[at].set, 0,
           o->words *
               sizeof(uint64_t)); /* so that there are never more sets than holders, plus one */
    for (uint8_t t = w->tiers; t; t &= (uint8_t)(t - 1)) {
        int tier = __builtin_ctz(t);

        part(w, &o->row[at], tier, false);
        part(w, &o->row[at], tier, true);
        for (size_t i = 0; i < o->words; i++)
            w->rest[i] &= ~w->held[tier][i];
    }
    memcpy(o->row[at].set, w->rest, o->words * sizeof(uint64_t));
    for (size_t i = 0; i < o->words; i++)
        left |= w->rest[i];
    if (left || first == o->n)
        return;
    /* nobody is left behind: the last part takes the row's place */
    o->n--;
    memcpy(o->row[at].set, o->row[o->n].set, o->words * sizeof(uint64_t));
    o->row[o->n].set = o->row[at].set;
    o->row[at] = o->row[o->n];
}

/*
 * The group has the block at the node.  What the holder has of its node comes whole, in all groups;
 * what graft() concluded is the prefix that a main group needs, not the tail that a window keeps.
 */
static bool has_in_group(const struct wp_index *ix, uint32_t loc, const struct wp_window *g)
{
    const struct wp_loc *l = loc ? wp_loc_at(ix, loc) : NULL;

    if (l && l->guess)
        return g->blocks == WP_WINDOW_ALL;
    return !l || !l->held || wp_window_holds(ix, loc, g->group);
}

/* The holder of the row has the block at the node, the k-th; is that an end that it can use? */
static void restrict_one(struct walk *w, uint32_t node, uint32_t holder,
                         const struct wp_overlap_row *row)
{
    const struct wp_index *ix = w->ix;
    const struct wp_holder *h = &ix->holders[holder];
    struct wp_overlap_window *own = &w->o->window[holder];
    uint32_t loc = wp_tree_loc(ix, node, holder), k = row->blocks;
    bool enough = true;

    for (uint32_t i = 0; i < h->windows; i++) {
        const struct wp_window *g = &h->window[i];

        if (!wp_window_restricts(g))
            continue;
        own->run[i] = has_in_group(ix, loc, g) ? own->run[i] + 1 : 0;
        if (own->run[i] < (k < g->blocks ? k : g->blocks))
            enough = false;
    }
    if (enough)
        own->best = *row;
}

static void restrict_all(struct walk *w, uint32_t node, uint32_t k)
{
    for (size_t at = 0; at < w->o->n; at++) {
        const struct wp_overlap_row *r = &w->o->row[at];

        for (size_t i = 0; r->blocks == k && i < w->o->words; i++)
            for (uint64_t bits = r->set[i] & w->restricted[i]; bits; bits &= bits - 1)
                restrict_one(w, node, (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(bits), r);
    }
}

/* Those who are restricted leave their rows, and rows that are empty then go. */
static void part_restricted(struct walk *w)
{
    struct wp_overlap *o = w->o;
    size_t n = 0;

    for (size_t at = 0; at < o->n; at++) {
        struct wp_overlap_row *from = &o->row[at], *to = &o->row[n];
        uint64_t left = 0, *set = to->set;

        for (size_t i = 0; i < o->words; i++) {
            set[i] = from->set[i] & ~w->restricted[i];
            left |= set[i];
        }
        *to = *from;
        to->set = set;
        n += left != 0;
    }
    o->n = n;
}

/* Each has its best end for an answer, in a row of its own. */
static void answer_restricted(struct walk *w)
{
    if (!w->any_restricted)
        return;
    part_restricted(w);
    for (size_t i = 0; i < w->o->words; i++)
        for (uint64_t bits = w->restricted[i]; bits; bits &= bits - 1) {
            size_t holder = i * 64 + (size_t)__builtin_ctzll(bits);

            if (w->o->window[holder].best.blocks)
                add_row(w, &w->o->window[holder].best)->set[i] = bits & -bits;
        }
}

/* Longest first, then the faster, then the surer.  0: the same answer. */
static int compare(const struct wp_overlap_row *a, const struct wp_overlap_row *b)
{
    if (a->blocks != b->blocks)
        return a->blocks > b->blocks ? -1 : 1;
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (a->tier[t] != b->tier[t])
            return a->tier[t] > b->tier[t] ? -1 : 1;
    return a->doubtful == b->doubtful ? 0 : a->doubtful < b->doubtful ? -1 : 1;
}

static void sort(struct wp_overlap *o) /* Shell's: qsort() may allocate */
{
    for (size_t gap = o->n / 2; gap > 0; gap /= 2)
        for (size_t i = gap; i < o->n; i++) {
            struct wp_overlap_row it = o->row[i];
            size_t at = i;

            for (; at >= gap && compare(&o->row[at - gap], &it) > 0; at -= gap)
                o->row[at] = o->row[at - gap];
            o->row[at] = it;
        }
}

/* Rows may have come to the same answer by different ways: they are one. */
static void join_equals(struct wp_overlap *o)
{
    size_t n = 0;

    for (size_t i = 0; i < o->n; i++) {
        struct wp_overlap_row *last = n ? &o->row[n - 1] : NULL;

        if (!o->row[i].blocks)
            continue;
        if (last && compare(last, &o->row[i]) == 0)
            for (size_t k = 0; k < o->words; k++)
                last->set[k] |= o->row[i].set[k];
        else
            o->row[n++] = o->row[i];
    }
    o->n = n;
}

static void walk(const struct wp_index *ix, uint32_t node, const uint64_t local[], size_t n,
                 struct wp_overlap *o)
{
    struct walk w;
    bool any = true;

    walk_init(&w, ix, o);
    for (size_t i = 0; i < n && any; i++) {
        size_t rows = o->n;

        node = wp_tree_child(ix, node, local[i]);
        if (!node)
            break;
        look_at(&w, node);
        any = false;
        for (size_t at = 0; at < rows; at++)
            if (o->row[at].blocks == i)
                split(&w, at);
        for (size_t at = 0; at < o->n && !any; at++)
            any = o->row[at].blocks == i + 1;
        if (w.any_restricted)
            restrict_all(&w, node, (uint32_t)i + 1);
    }
    answer_restricted(&w);
    sort(o);
    join_equals(o);
}

size_t wp_index_overlap(const struct wp_index *ix, uint32_t space, const uint64_t local[], size_t n,
                        struct wp_overlap *o)
{
    pthread_rwlock_t *lock = (pthread_rwlock_t *)&ix->lock;

    o->n = 0;
    pthread_rwlock_rdlock(lock);
    if (space < ix->n_spaces && o->cap)
        walk(ix, ix->spaces[space].root, local, n, o);
    pthread_rwlock_unlock(lock);
    return o->n ? o->row[0].blocks : 0;
}
