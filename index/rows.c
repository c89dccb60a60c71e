/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holders with groups that restrict walk along with the others.  Beside the walk each keeps for how
 * many blocks on end each of its groups has held what was passed, and the row as it stood at the
 * last block where that was enough for all of them; in the end this is their answer.
 */
#include "index/walk.h"

#include <string.h>

static uint64_t *held(const struct wp_walk *w, int tier)
{
    return wp_scratch(w, 2 * (size_t)tier);
}

static uint64_t *sure(const struct wp_walk *w, int tier)
{
    return wp_scratch(w, 2 * (size_t)tier + 1);
}

static uint64_t *window(const struct wp_walk *w, int number)
{
    return wp_scratch(w, WP_WINDOW_SETS + (size_t)number);
}

static uint64_t *rest(const struct wp_walk *w)
{
    return wp_scratch(w, WP_REST_SET);
}

enum { FEW = 8, SORT_FEW = 12, SORT_BLOCKS = 8192 };

static struct wp_overlap_row *add_row(struct wp_walk *w, const struct wp_overlap_row *like)
{
    struct wp_overlap_row *r = &w->o->row[w->o->n];

    *r = *like;
    r->set = w->o->bits + w->o->n++ * w->o->words;
    memset(r->set, 0, w->o->words * sizeof r->set[0]);
    return r;
}

void wp_rows_init(struct wp_walk *w, const struct wp_index *ix, const struct wp_census *c,
                  struct wp_overlap *o)
{
    struct wp_overlap_row *all;

    w->ix = ix;
    w->census = c;
    w->o = o;
    w->words = c->words < o->words ? c->words : o->words;
    w->pos = 0;
    w->scratch = o->bits + o->cap * o->words;
    all = &o->row[0];
    *all = (struct wp_overlap_row){.set = o->bits};
    o->n = 1;
    for (size_t k = 0; k < o->words; k++)
        all->set[k] = k < w->words ? c->live[k] : 0;
    for (uint32_t i = 0; i < c->n_windows; i++)
        if (c->window[i].holder < w->words * 64)
            o->window[c->window[i].holder] = (struct wp_overlap_window){0};
}

/* How far a span goes of the m blocks at hand, and how its blocks count. */
struct stretch {
    uint32_t blocks;
    uint8_t tier;
    bool doubtful;
};

static struct stretch stretch_of(uint64_t span, unsigned m)
{
    unsigned tier = (unsigned)__builtin_ctz(wp_span_tiers(span) | 0x100u), hi = wp_span_hi(span);

    return (struct stretch){.blocks = tier < WP_TIER_MAX ? hi < m ? hi : m : 0,
                            .tier = (uint8_t)tier,
                            .doubtful = !(wp_span_sure(span) >> tier & 1)};
}

static void lengthen(struct wp_overlap_row *r, const struct stretch *s)
{
    r->blocks += s->blocks;
    r->tier[s->tier] += s->blocks;
    r->doubtful += s->doubtful ? s->blocks : 0;
}

/* Of the rows made since `first` from one row, that which is longer by just that; made when there
 * is none. */
static struct wp_overlap_row *row_for(struct wp_walk *w, const struct wp_overlap_row *from,
                                      size_t first, const struct stretch *s)
{
    struct wp_overlap *o = w->o;
    struct wp_overlap_row *r;

    for (size_t i = o->n; i > first; i--) {
        r = &o->row[i - 1];
        if (r->blocks == from->blocks + s->blocks &&
            r->tier[s->tier] == from->tier[s->tier] + s->blocks &&
            r->doubtful == from->doubtful + (s->doubtful ? s->blocks : 0))
            return r;
    }
    r = add_row(w, from);
    lengthen(r, s);
    return r;
}

/* The same for many: those of one length are mostly of one kind. */
static struct wp_overlap_row *row_among(struct wp_walk *w, const struct wp_overlap_row *from,
                                        size_t first, const struct stretch *s,
                                        uint16_t rows[WP_SEGMENT + 1])
{
    struct wp_overlap_row *r = rows[s->blocks] ? &w->o->row[first + rows[s->blocks] - 1] : NULL;

    if (r && r->tier[s->tier] == from->tier[s->tier] + s->blocks &&
        r->doubtful == from->doubtful + (s->doubtful ? s->blocks : 0))
        return r;
    r = row_for(w, from, r ? first : w->o->n, s); /* none of that length: none to look for */
    if (!rows[s->blocks] && r - w->o->row - (ptrdiff_t)first < UINT16_MAX)
        rows[s->blocks] = (uint16_t)(r - w->o->row - (ptrdiff_t)first + 1);
    return r;
}

/* Nobody is left behind in the row: the last one that was made from it takes its place. */
static void close_split(struct wp_walk *w, size_t at, size_t first)
{
    struct wp_overlap *o = w->o;
    uint64_t left = 0, *set = o->row[at].set, *last;
    const uint64_t *those = rest(w);

    for (size_t i = 0; i < o->words; i++)
        left |= set[i] = those[i];
    if (left || first == o->n)
        return;
    last = o->row[--o->n].set;
    for (size_t i = 0; i < o->words; i++)
        set[i] = last[i];
    o->row[o->n].set = set;
    o->row[at] = o->row[o->n];
    o->row[at].set = set;
}

static void open_split(struct wp_walk *w, size_t at)
{
    memcpy(rest(w), w->o->row[at].set, w->o->words * sizeof(uint64_t));
    memset(w->o->row[at].set, 0,
           w->o->words * sizeof(uint64_t)); /* never more sets than holders, plus one */
}

/* Just those of the row share one span: all of it becomes longer. */
static bool lengthen_whole(struct wp_walk *w, struct wp_overlap_row *row, const struct wp_seen *s,
                           unsigned m)
{
    const wp_word *set = s->sets ? s->set : NULL;
    uint64_t span = wp_word_get(set ? set : s->single);
    uint32_t holder = wp_span_holder(span);
    struct stretch it = stretch_of(span, m);
    uint64_t others = 0;

    if (s->singles + s->sets != 1 || !it.blocks || (!set && holder >= w->words * 64))
        return false;
    for (size_t k = 0; k < w->words; k++) {
        uint64_t in = !set           ? (holder / 64 == k ? 1ull << (holder % 64) : 0)
                      : k < s->words ? wp_word_get(&set[1 + k])
                                     : 0;

        others |= row->set[k] & ~in;
    }
    if (others)
        return false;
    lengthen(row, &it);
    return true;
}

/* Every holder has one span, from the run's first block on. */
static void split_simple(struct wp_walk *w, size_t at, const struct wp_seen *s, unsigned m)
{
    struct wp_overlap *o = w->o;
    size_t first = o->n;
    uint64_t *left = rest(w);
    uint16_t rows[WP_SEGMENT + 1]; /* of those made here: the one that is so much longer, if it is
                                      as the last one was */

    if (lengthen_whole(w, &o->row[at], s, m))
        return;
    if (s->singles > FEW)
        memset(rows, 0, sizeof rows);
    open_split(w, at);
    for (unsigned i = 0; i < s->singles; i++) {
        uint64_t span = wp_word_get(&s->single[i]);
        uint32_t holder = wp_span_holder(span);
        uint64_t bit = 1ull << (holder % 64);
        struct stretch it;

        if (holder >= w->words * 64 || !(left[holder / 64] & bit))
            continue;
        it = stretch_of(span, m);
        if (!it.blocks)
            continue;
        (s->singles > FEW ? row_among(w, &o->row[at], first, &it, rows)
                          : row_for(w, &o->row[at], first, &it))
            ->set[holder / 64] |= bit;
        left[holder / 64] &= ~bit;
    }
    for (unsigned i = 0; i < s->sets; i++) {
        const wp_word *set = s->set + (size_t)i * (1 + s->words);
        struct stretch it = stretch_of(wp_word_get(set), m);
        struct wp_overlap_row *r = NULL;
        size_t words = s->words < w->words ? s->words : w->words;

        for (size_t k = 0; it.blocks && k < words; k++) {
            uint64_t bits = left[k] & wp_word_get(&set[1 + k]);

            if (!bits)
                continue;
            if (!r)
                r = row_for(w, &o->row[at], first, &it);
            r->set[k] |= bits;
            left[k] &= ~bits;
        }
    }
    close_split(w, at, first);
}

/* Who has what of a stretch of blocks that is the same all along. */
static void mark(struct wp_walk *w, uint64_t span, size_t k, uint64_t bits)
{
    if (span & WP_SPAN_WINDOW) {
        for (uint16_t m = wp_span_window(span); m; m &= (uint16_t)(m - 1))
            window(w, __builtin_ctz(m))[k] |= bits;
        return;
    }
    wp_scratch(w, WP_OWN_SET)[k] |= bits;
    if (span & WP_SPAN_GUESS)
        wp_scratch(w, WP_GUESS_SET)[k] |= bits;
    for (uint8_t t = wp_span_tiers(span); t; t &= (uint8_t)(t - 1)) {
        int tier = __builtin_ctz(t);

        w->tiers |= (uint8_t)(1u << tier);
        held(w, tier)[k] |= bits;
        if (wp_span_sure(span) >> tier & 1)
            sure(w, tier)[k] |= bits;
    }
}

/* What a node holds counts for its ranks. */
static void mark_ranks(struct wp_walk *w, uint64_t span, uint32_t node)
{
    const struct wp_census *c = w->census;

    for (uint32_t i = 0; i < c->n_nodes && !(span & WP_SPAN_WINDOW); i++) {
        if (c->node[i] != node)
            continue;
        for (size_t k = 0; k < w->words; k++)
            for (uint8_t t = wp_span_tiers(span); t; t &= (uint8_t)(t - 1)) {
                int tier = __builtin_ctz(t);

                held(w, tier)[k] |= c->ranks[i * c->words + k];
                if (wp_span_sure(span) >> tier & 1)
                    sure(w, tier)[k] |= c->ranks[i * c->words + k];
            }
    }
}

static void look_at(struct wp_walk *w, const struct wp_seen *s, unsigned at)
{
    w->tiers = 0;
    memset(held(w, 0), 0, (WP_REST_SET)*w->o->words * sizeof(uint64_t));
    for (unsigned i = 0; i < s->singles; i++) {
        uint64_t span = wp_word_get(&s->single[i]);
        uint32_t holder = wp_span_holder(span);

        if (wp_span_lo(span) > at || at >= wp_span_hi(span))
            continue;
        if (holder < w->words * 64)
            mark(w, span, holder / 64, 1ull << (holder % 64));
        mark_ranks(w, span, holder);
    }
    for (unsigned i = 0; i < s->sets; i++) {
        const wp_word *set = s->set + (size_t)i * (1 + s->words);
        uint64_t span = wp_word_get(set);

        if (wp_span_lo(span) > at || at >= wp_span_hi(span))
            continue;
        for (size_t k = 0; k < s->words; k++) {
            uint64_t bits = wp_word_get(&set[1 + k]);

            if (k < w->words)
                mark(w, span, k, bits);
            for (; w->census->n_nodes && bits; bits &= bits - 1)
                mark_ranks(w, span, (uint32_t)(k * 64) + (uint32_t)__builtin_ctzll(bits));
        }
    }
}

/* Those of rest(w) in the tier get a row of their own, that much longer than `from`. */
static void part(struct wp_walk *w, const struct wp_overlap_row *from, int tier, bool doubtful,
                 uint32_t blocks)
{
    const uint64_t *in = held(w, tier), *surely = sure(w, tier), *left = rest(w);
    struct stretch s = {.blocks = blocks, .tier = (uint8_t)tier, .doubtful = doubtful};
    struct wp_overlap_row *r = NULL;

    for (size_t i = 0; i < w->words; i++) {
        uint64_t bits = left[i] & in[i] & (doubtful ? ~surely[i] : surely[i]);

        if (!bits)
            continue;
        if (!r) {
            r = add_row(w, from);
            lengthen(r, &s);
        }
        r->set[i] = bits;
    }
}

static void split(struct wp_walk *w, size_t at, uint32_t blocks)
{
    size_t first = w->o->n;

    open_split(w, at);
    for (uint8_t t = w->tiers; t; t &= (uint8_t)(t - 1)) {
        int tier = __builtin_ctz(t);

        part(w, &w->o->row[at], tier, false, blocks);
        part(w, &w->o->row[at], tier, true, blocks);
        for (size_t i = 0; i < w->words; i++)
            rest(w)[i] &= ~held(w, tier)[i];
    }
    close_split(w, at, first);
}

static bool in(const uint64_t *set, uint32_t holder)
{
    return set[holder / 64] >> (holder % 64) & 1;
}

/*
 * The group has the blocks at hand.  What the holder has of its node comes whole, in all groups;
 * what graft() concluded is the prefix that a main group needs, not the tail that a window keeps.
 */
static bool has_in_group(const struct wp_walk *w, const struct wp_census_window *g)
{
    if (in(wp_scratch(w, WP_GUESS_SET), g->holder))
        return g->blocks == WP_WINDOW_ALL;
    return !in(wp_scratch(w, WP_OWN_SET), g->holder) || in(window(w, g->number), g->holder);
}

/*
 * The holder of the row has the blocks at hand, the last `blocks` of the row: is the last of them
 * an end that it can use?  If it is not, none of those before is: they are the same all along.
 */
static void restrict_one(struct wp_walk *w, uint32_t holder, const struct wp_overlap_row *row,
                         uint32_t blocks)
{
    struct wp_overlap_window *own = &w->o->window[holder];
    uint32_t k = row->blocks;
    bool enough = true;

    for (const struct wp_census_window *g = &w->census->window[w->census->first_window[holder]];
         g->holder == holder; g++) {
        uint32_t *run = &own->run[g->number];

        *run = has_in_group(w, g) ? *run + blocks : 0;
        enough = enough && *run >= (k < g->blocks ? k : g->blocks);
    }
    if (enough)
        own->best = *row;
}

static void restrict_all(struct wp_walk *w, uint32_t upto, uint32_t blocks)
{
    for (size_t at = 0; at < w->o->n; at++) {
        const struct wp_overlap_row *row = &w->o->row[at];

        for (size_t k = 0; row->blocks == upto && k < w->words; k++)
            for (uint64_t bits = row->set[k] & w->census->restricted[k]; bits; bits &= bits - 1)
                restrict_one(w, (uint32_t)(k * 64) + (uint32_t)__builtin_ctzll(bits), row, blocks);
    }
}

/* Where among the first m blocks somebody's span begins or ends. */
static void seams(const struct wp_seen *s, unsigned m, uint64_t at[3])
{
    at[0] = at[1] = at[2] = 0;
    at[m / 64] |= 1ull << (m % 64);
    for (unsigned i = 0; i < s->singles + s->sets; i++) {
        uint64_t span = wp_word_get(
            i < s->singles ? &s->single[i] : s->set + (size_t)(i - s->singles) * (1 + s->words));
        unsigned lo = wp_span_lo(span), hi = wp_span_hi(span);

        at[lo / 64] |= 1ull << (lo % 64);
        at[hi / 64] |= 1ull << (hi % 64);
    }
}

bool wp_rows_any_at(const struct wp_overlap *o, size_t blocks)
{
    for (size_t at = o->n; at > 0; at--)
        if (o->row[at - 1].blocks == blocks)
            return true;
    return false;
}

/* Stretch by stretch: whatever spans there are, nodes, windows. */
static void go_slowly(struct wp_walk *w, const struct wp_seen *s, unsigned m)
{
    uint64_t seam[3];

    seams(s, m, seam);
    for (unsigned from = 0, to; from < m; from = to) {
        size_t rows = w->o->n;

        for (to = from + 1; !(seam[to / 64] >> (to % 64) & 1);)
            to++;
        look_at(w, s, from);
        for (size_t at = 0; at < rows; at++)
            if (w->o->row[at].blocks == w->pos + from)
                split(w, at, to - from);
        if (w->census->n_windows)
            restrict_all(w, (uint32_t)(w->pos + to), to - from);
        if (!wp_rows_any_at(w->o, w->pos + to))
            return;
    }
}

void wp_rows_go(struct wp_walk *w, const struct wp_seen *s, unsigned m)
{
    size_t rows = w->o->n;

    if (!s->simple || w->census->n_nodes || w->census->n_windows) {
        go_slowly(w, s, m);
        return;
    }
    for (size_t at = 0; at < rows; at++)
        if (w->o->row[at].blocks == w->pos)
            split_simple(w, at, s, m);
}

static uint64_t restricted(const struct wp_walk *w, size_t i)
{
    return i < w->words ? w->census->restricted[i] : 0;
}

/* Those who are restricted leave their rows, and rows that are empty then go. */
static void part_restricted(struct wp_walk *w)
{
    struct wp_overlap *o = w->o;
    size_t n = 0;

    for (size_t at = 0; at < o->n; at++) {
        struct wp_overlap_row *from = &o->row[at], *to = &o->row[n];
        uint64_t left = 0, *set = to->set;

        for (size_t i = 0; i < o->words; i++) {
            set[i] = from->set[i] & ~restricted(w, i);
            left |= set[i];
        }
        *to = *from;
        to->set = set;
        n += left != 0;
    }
    o->n = n;
}

/* Each has its best end for an answer, in a row of its own. */
static void answer_restricted(struct wp_walk *w)
{
    if (!w->census->n_windows)
        return;
    part_restricted(w);
    for (size_t i = 0; i < w->o->words; i++)
        for (uint64_t bits = restricted(w, i); bits; bits &= bits - 1) {
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

static void sort_few(struct wp_overlap *o) /* Shell's: qsort() may allocate */
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

/* The row takes its place among those behind `first`, which are as long. */
static void insert(struct wp_overlap_row to[], size_t first, size_t at,
                   const struct wp_overlap_row *row)
{
    for (; at > first && compare(&to[at - 1], row) > 0; at--)
        to[at] = to[at - 1];
    to[at] = *row;
}

/* Rows are mostly of different lengths, and there are not many lengths: a bit for each. */
static void sort_many(struct wp_overlap *o, size_t most)
{
    uint64_t seen[SORT_BLOCKS / 64 + 1];
    uint32_t last[SORT_BLOCKS + 1], none = UINT32_MAX; /* the row of that length that came last */
    struct wp_overlap_row *to = o->spare;
    size_t n = 0;

    memset(seen, 0, (most / 64 + 1) * sizeof seen[0]);
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t blocks = o->row[i].blocks;

        o->before[i] = seen[blocks / 64] >> (blocks % 64) & 1 ? last[blocks] : none;
        seen[blocks / 64] |= 1ull << (blocks % 64);
        last[blocks] = i;
    }
    for (size_t k = most / 64 + 1; k-- > 0;)
        for (uint64_t bits = seen[k]; bits;) {
            unsigned bit = 63 - (unsigned)__builtin_clzll(bits);
            size_t first = n;

            bits ^= 1ull << bit;
            /* cppcheck-suppress uninitvar ; a bit that is seen has a row */
            for (uint32_t i = last[k * 64 + bit]; i != none; i = o->before[i])
                insert(to, first, n++, &o->row[i]);
        }
    o->spare = o->row;
    o->row = to;
}

static void sort(struct wp_walk *w)
{
    if (w->o->n > SORT_FEW && w->n <= SORT_BLOCKS)
        sort_many(w->o, w->n);
    else
        sort_few(w->o);
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
        else if (n++ < i)
            o->row[n - 1] = o->row[i];
    }
    o->n = n;
}

void wp_rows_end(struct wp_walk *w)
{
    answer_restricted(w);
    if (w->o->n > 1)
        sort(w);
    join_equals(w->o);
}
