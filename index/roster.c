/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has what of a run.  A word or a roster is made anew with each change and published by one
 * store; a single span that only becomes longer or shorter at its end is changed in place, which is
 * as whole as that for the one holder it speaks of.
 */
#include "index/inside.h"

#include <string.h>

enum { SPANS_MAX = 2 * WP_SEGMENT };

typedef _Atomic uint64_t word_t;

static uint64_t get(const word_t *w)
{
    return atomic_load_explicit((word_t *)w, memory_order_relaxed);
}

static void set(word_t *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_relaxed);
}

static word_t *roster_at(const struct wp_index *ix, uint64_t who)
{
    return wp_slab_at(&ix->rosters[who >> 32 & 31], (uint32_t)who);
}

/* A word's parts: spans of one holder each, and sets. */
struct roster {
    const word_t *single, *set; /* a set: its span, then its words */
    unsigned singles, sets, words;
    word_t own; /* a span that is the word itself */
};

static void open_roster(const struct wp_index *ix, uint64_t who, struct roster *r)
{
    *r = (struct roster){0};
    if (who & WP_WHO_SPAN) {
        atomic_init(&r->own, who & ~WP_WHO_SPAN);
        r->single = &r->own;
        r->singles = 1;
    } else if (who) {
        const word_t *w = roster_at(ix, who);
        uint64_t head = get(w);

        r->singles = wp_roster_singles(head);
        r->sets = wp_roster_sets(head);
        r->words = wp_roster_words(head);
        r->single = w + WP_ROSTER_HEAD;
        r->set = r->single + r->singles;
    }
}

static uint64_t single_of(const struct roster *r, unsigned i)
{
    return get(&r->single[i]);
}

static const word_t *set_of(const struct roster *r, unsigned i)
{
    return r->set + (size_t)i * (1 + r->words);
}

static bool in_set(const struct roster *r, const word_t *set, uint32_t holder)
{
    return holder / 64 < r->words && (get(&set[1 + holder / 64]) >> (holder % 64) & 1);
}

static unsigned spans_of(const struct roster *r, uint32_t holder, uint64_t out[SPANS_MAX])
{
    unsigned n = 0;

    for (unsigned i = 0; i < r->singles; i++)
        if (wp_span_holder(single_of(r, i)) == holder)
            out[n++] = single_of(r, i) & WP_SPAN_ATTR;
    for (unsigned i = 0; i < r->sets; i++)
        if (in_set(r, set_of(r, i), holder))
            out[n++] = get(set_of(r, i)) & WP_SPAN_ATTR;
    return n;
}

unsigned wp_spans_get(const struct wp_index *ix, uint32_t run, uint32_t holder,
                      uint64_t span[2 * WP_SEGMENT])
{
    uint64_t who = get(&wp_run_at(ix, run)->who);
    struct roster r;

    if (!who || (who & WP_WHO_SPAN && wp_span_holder(who) != holder))
        return 0;
    if (who & WP_WHO_SPAN) {
        span[0] = who & WP_SPAN_ATTR;
        return 1;
    }
    open_roster(ix, who, &r);
    return spans_of(&r, holder, span);
}

static wp_u128 bits(uint64_t span)
{
    unsigned lo = wp_span_lo(span), hi = wp_span_hi(span);
    wp_u128 upto = hi == 128 ? ~(wp_u128)0 : ((wp_u128)1 << hi) - 1;

    return upto >> lo << lo;
}

static wp_u128 cover_of_spans(const struct roster *r)
{
    wp_u128 cover = 0;

    for (unsigned i = 0; i < r->singles; i++)
        if (!(single_of(r, i) & WP_SPAN_WINDOW))
            cover |= bits(single_of(r, i));
    for (unsigned i = 0; i < r->sets; i++)
        if (!(get(set_of(r, i)) & WP_SPAN_WINDOW))
            cover |= bits(get(set_of(r, i)));
    return cover;
}

static wp_u128 cover_of(const struct wp_index *ix, uint64_t who)
{
    const word_t *w;

    if (!who)
        return 0;
    if (who & WP_WHO_SPAN)
        return who & WP_SPAN_WINDOW ? 0 : bits(who);
    w = roster_at(ix, who);
    return (wp_u128)get(&w[2]) << 64 | get(&w[1]);
}

wp_u128 wp_run_cover(const struct wp_index *ix, uint32_t run)
{
    return cover_of(ix, get(&wp_run_at(ix, run)->who));
}

static unsigned count_bits(wp_u128 b)
{
    return (unsigned)(__builtin_popcountll((uint64_t)b) +
                      __builtin_popcountll((uint64_t)(b >> 64)));
}

/* Adds a span to the figures, or takes it off. */
static void figure(struct wp_index *ix, struct wp_holder *h, uint64_t span, int64_t by)
{
    uint64_t n = (uint64_t)((int64_t)(wp_span_hi(span) - wp_span_lo(span)) * by); /* wraps */
    uint64_t sure = n * (unsigned)__builtin_popcount(wp_span_sure(span));

    if (span & WP_SPAN_WINDOW)
        return;
    h->blocks += n;
    for (uint8_t t = wp_span_tiers(span); t; t &= (uint8_t)(t - 1)) {
        h->tier[__builtin_ctz(t)] += n;
        ix->locations += n;
    }
    h->sure += sure;
    ix->sure += sure;
    if (span & WP_SPAN_GUESS)
        h->guesses += n;
}

void wp_roster_free(struct wp_index *ix, uint64_t who)
{
    wp_slab_give(&ix->rosters[who >> 32 & 31], (uint32_t)who);
}

/* What becomes of the old roster when the holder's spans are put in. */
struct plan {
    uint64_t put[SPANS_MAX];
    unsigned n;
    unsigned equal[SPANS_MAX]; /* old single spans of other holders that say the same */
    bool placed[SPANS_MAX];    /* an old set says it: the holder joins */
    unsigned singles, sets, words;
};

static void plan_for(struct plan *p, const uint64_t put[], unsigned n)
{
    p->n = n;
    p->singles = p->sets = 0;
    for (unsigned i = 0; i < n; i++) {
        p->put[i] = put[i];
        p->equal[i] = 0;
        p->placed[i] = false;
    }
}

static unsigned others_in(const struct roster *r, const word_t *set, uint32_t holder)
{
    unsigned n = 0;

    for (unsigned k = 0; k < r->words; k++)
        n += (unsigned)__builtin_popcountll(get(&set[1 + k]));
    return n - in_set(r, set, holder);
}

static int put_like(const struct plan *p, uint64_t span)
{
    for (unsigned k = 0; k < p->n; k++)
        if (p->put[k] == (span & WP_SPAN_ATTR))
            return (int)k;
    return -1;
}

/* A set pays when it is smaller than what it stands for. */
static bool pays(const struct plan *p, unsigned holders)
{
    return holders > p->words + 1;
}

static void count_old(const struct roster *r, uint32_t holder, struct plan *p)
{
    for (unsigned i = 0; i < r->singles; i++) {
        uint64_t s = single_of(r, i);
        int k = wp_span_holder(s) == holder ? -1 : put_like(p, s);

        p->singles += wp_span_holder(s) != holder;
        if (k >= 0)
            p->equal[k]++;
    }
    for (unsigned i = 0; i < r->sets; i++) {
        unsigned others = others_in(r, set_of(r, i), holder);
        int k = put_like(p, get(set_of(r, i)));

        if (k >= 0)
            p->placed[k] = true;
        p->sets += others > 1 || (k >= 0 && others);
        p->singles += others == 1 && k < 0;
        if (k >= 0 && !others)
            p->placed[k] = false;
    }
    for (unsigned k = 0; k < p->n; k++)
        if (!p->placed[k] && pays(p, p->equal[k] + 1)) {
            p->singles -= p->equal[k];
            p->sets++;
        } else if (!p->placed[k]) {
            p->equal[k] = 0; /* they stay as they are */
            p->singles++;
        } else {
            p->equal[k] = 0;
        }
}

static void set_bit(word_t *words, uint32_t holder)
{
    set(&words[holder / 64], get(&words[holder / 64]) | 1ull << (holder % 64));
}

/* One single span is left of a set. */
static uint64_t last_of(const struct roster *r, const word_t *set, uint32_t holder)
{
    for (unsigned k = 0; k < r->words; k++) {
        uint64_t b = get(&set[1 + k]);

        if (holder / 64 == k)
            b &= ~(1ull << (holder % 64));
        if (b)
            return (get(set) & WP_SPAN_ATTR) | (uint64_t)(k * 64 + (unsigned)__builtin_ctzll(b))
                                                   << 33;
    }
    return 0;
}

static word_t *copy_set(const struct roster *r, const word_t *from, word_t *to,
                        const struct plan *p, uint32_t holder, bool with)
{
    set(to, get(from));
    for (unsigned k = 0; k < p->words; k++) {
        uint64_t b = k < r->words ? get(&from[1 + k]) : 0;

        if (holder / 64 == k)
            b = with ? b | 1ull << (holder % 64) : b & ~(1ull << (holder % 64));
        set(&to[1 + k], b);
    }
    return to + 1 + p->words;
}

static void fill(const struct roster *r, uint32_t holder, struct plan *p, word_t *w)
{
    word_t *single = w + WP_ROSTER_HEAD, *end = single + p->singles;

    for (unsigned i = 0; i < r->singles; i++) {
        uint64_t s = single_of(r, i);
        int k = put_like(p, s);

        if (wp_span_holder(s) != holder && !(k >= 0 && p->equal[k]))
            set(single++, s);
    }
    for (unsigned k = 0; k < p->n; k++) {
        if (p->placed[k])
            continue;
        if (!p->equal[k]) {
            set(single++, p->put[k] | (uint64_t)holder << 33);
            continue;
        }
        set(end, p->put[k]);
        for (unsigned i = 0; i < p->words; i++)
            set(&end[1 + i], 0);
        set_bit(end + 1, holder);
        for (unsigned i = 0; i < r->singles; i++)
            if ((single_of(r, i) & WP_SPAN_ATTR) == p->put[k])
                set_bit(end + 1, wp_span_holder(single_of(r, i)));
        end += 1 + p->words;
    }
    for (unsigned i = 0; i < r->sets; i++) {
        const word_t *old = set_of(r, i);
        unsigned others = others_in(r, old, holder);
        bool with = others && put_like(p, get(old)) >= 0;

        if (others > 1 || with)
            end = copy_set(r, old, end, p, holder, with);
        else if (others == 1)
            set(single++, last_of(r, old, holder));
    }
}

/* Nobody has two spans, and all begin at 0: the span of each says how far it goes. */
static bool is_simple(const struct roster *r)
{
    uint64_t seen[(WP_HOLDERS_MAX + 64) / 64];
    unsigned words = 0;

    for (unsigned i = 0; i < r->singles; i++) {
        uint64_t s = single_of(r, i);
        unsigned k = wp_span_holder(s) / 64;

        if (wp_span_lo(s) || s & WP_SPAN_WINDOW)
            return false;
        for (; words <= k; words++)
            seen[words] = 0;
        if (seen[k] >> (wp_span_holder(s) % 64) & 1)
            return false;
        seen[k] |= 1ull << (wp_span_holder(s) % 64);
    }
    for (unsigned i = 0; i < r->sets; i++) {
        const word_t *w = set_of(r, i);

        if (wp_span_lo(get(w)) || get(w) & WP_SPAN_WINDOW)
            return false;
        for (unsigned k = 0; k < r->words; k++) {
            for (; words <= k; words++)
                seen[words] = 0;
            if (seen[k] & get(&w[1 + k]))
                return false;
            seen[k] |= get(&w[1 + k]);
        }
    }
    return true;
}

static int class_of(size_t words)
{
    int c = 0;

    while (c < WP_ROSTER_CLASSES && (size_t)4 << c < words)
        c++;
    return c;
}

static void head_and_cover(word_t *w, const struct plan *p)
{
    struct roster r = {.single = w + WP_ROSTER_HEAD,
                       .set = w + WP_ROSTER_HEAD + p->singles,
                       .singles = p->singles,
                       .sets = p->sets,
                       .words = p->words};
    wp_u128 cover = cover_of_spans(&r);

    set(&w[0], p->singles | (uint64_t)p->sets << 24 | (uint64_t)p->words << 48 |
                   (is_simple(&r) ? WP_ROSTER_SIMPLE : 0));
    set(&w[1], (uint64_t)cover);
    set(&w[2], (uint64_t)(cover >> 64));
}

/* The new word, 0 for nobody; false: no memory. */
static bool make(struct wp_index *ix, const struct roster *r, uint32_t holder, struct plan *p,
                 uint64_t *who)
{
    int c;
    uint32_t i;

    *who = 0;
    p->words = ix->words;
    count_old(r, holder, p);
    if (!p->sets && !p->singles)
        return true;
    if (!p->sets && p->singles == 1) {
        word_t lone[WP_ROSTER_HEAD + 1];

        fill(r, holder, p, lone);
        *who = get(&lone[WP_ROSTER_HEAD]) | WP_WHO_SPAN;
        return true;
    }
    c = class_of(WP_ROSTER_HEAD + (size_t)p->singles + (size_t)p->sets * (1 + p->words));
    if (c == WP_ROSTER_CLASSES)
        return false;
    if (wp_slab_left(&ix->rosters[c]) == 0) {
        struct wp_budget free_of_cap = {.bytes = 0};
        int rc = wp_slab_grow(&ix->rosters[c], 1, &free_of_cap, &ix->epoch);

        ix->budget.bytes += free_of_cap.bytes;
        if (rc < 0)
            return false;
    }
    i = wp_slab_take(&ix->rosters[c]);
    *who = WP_WHO_ROSTER | (uint64_t)c << 32 | i;
    fill(r, holder, p, roster_at(ix, *who));
    head_and_cover(roster_at(ix, *who), p);
    return true;
}

/* The holder's one span in the roster becomes longer or shorter at its end, or looks otherwise. */
/* A set says what the span is about to say, or so many do that a set pays. */
static bool meets_others(const struct wp_index *ix, const struct roster *r, uint64_t span)
{
    unsigned equal = 0;

    for (unsigned i = 0; i < r->singles; i++)
        equal += (single_of(r, i) & WP_SPAN_ATTR) == span;
    for (unsigned i = 0; i < r->sets; i++)
        if ((get(set_of(r, i)) & WP_SPAN_ATTR) == span)
            return true;
    return equal > ix->words;
}

static bool change_in_place(const struct wp_index *ix, uint64_t who, uint32_t holder,
                            const uint64_t was[], unsigned n_was, const uint64_t put[],
                            unsigned n_put)
{
    struct roster r;
    word_t *w;
    wp_u128 cover;

    if (!(who & WP_WHO_ROSTER) || n_was != 1 || n_put != 1 ||
        wp_span_lo(was[0]) != wp_span_lo(put[0]) || (was[0] ^ put[0]) & WP_SPAN_WINDOW)
        return false;
    open_roster(ix, who, &r);
    if (meets_others(ix, &r, put[0]))
        return false;
    for (unsigned i = 0; i < r.singles; i++)
        if (wp_span_holder(single_of(&r, i)) == holder) {
            w = roster_at(ix, who);
            if (wp_span_hi(put[0]) > wp_span_hi(was[0])) {
                cover = cover_of(ix, who) | bits(put[0]);
                set(&w[1], (uint64_t)cover);
                set(&w[2], (uint64_t)(cover >> 64));
            }
            atomic_store_explicit((word_t *)&r.single[i], put[0] | (uint64_t)holder << 33,
                                  memory_order_release);
            cover = cover_of_spans(&r);
            set(&w[1], (uint64_t)cover);
            set(&w[2], (uint64_t)(cover >> 64));
            return true;
        }
    return false;
}

/* Nothing is allocated: the holder's spans are emptied where they stand. */
static void vanish(const struct wp_index *ix, uint64_t who, uint32_t holder)
{
    struct roster r;

    open_roster(ix, who, &r);
    for (unsigned i = 0; i < r.singles; i++)
        if (wp_span_holder(single_of(&r, i)) == holder)
            set((word_t *)&r.single[i],
                (single_of(&r, i) & ~(WP_SPAN_LOOK & WP_SPAN_ATTR)) | WP_SPAN_WINDOW);
    for (unsigned i = 0; i < r.sets; i++) {
        word_t *w = (word_t *)set_of(&r, i);

        if (in_set(&r, w, holder))
            set(&w[1 + holder / 64], get(&w[1 + holder / 64]) & ~(1ull << (holder % 64)));
    }
}

static void publish(struct wp_index *ix, struct wp_run *r, uint64_t who)
{
    uint64_t old = get(&r->who);

    atomic_store_explicit(&r->who, who, memory_order_release);
    if (old & WP_WHO_ROSTER && old != who)
        wp_epoch_retire(&ix->epoch, WP_RETIRED_ROSTER, old);
}

/* The holder is the only one, before and after. */
static void put_alone(struct wp_index *ix, struct wp_run *it, struct wp_holder *h, uint32_t holder,
                      uint64_t old, const uint64_t put[], unsigned n)
{
    uint64_t was = old & WP_SPAN_ATTR;

    atomic_store_explicit(&it->who, n ? put[0] | (uint64_t)holder << 33 | WP_WHO_SPAN : 0,
                          memory_order_release);
    if (old) {
        figure(ix, h, was, -1);
        ix->blocks -= was & WP_SPAN_WINDOW ? 0 : wp_span_hi(was) - wp_span_lo(was);
    }
    if (n) {
        figure(ix, h, put[0], 1);
        ix->blocks += put[0] & WP_SPAN_WINDOW ? 0 : wp_span_hi(put[0]) - wp_span_lo(put[0]);
    }
}

/* False: no memory, and the holder has nothing of the run any more. */
bool wp_spans_put(struct wp_index *ix, uint32_t run, uint32_t holder, const uint64_t put[],
                  unsigned n)
{
    struct wp_run *it = wp_run_at(ix, run);
    struct wp_holder *h = &ix->holders[holder];
    uint64_t old = get(&it->who), who, was[SPANS_MAX];
    wp_u128 before;
    struct roster r;
    struct plan p;
    unsigned n_was;
    bool ok = true;

    if (n <= 1 && !(old & WP_WHO_ROSTER) && (!old || wp_span_holder(old) == holder)) {
        put_alone(ix, it, h, holder, old, put, n);
        return true;
    }
    before = cover_of(ix, old);
    open_roster(ix, old, &r);
    n_was = spans_of(&r, holder, was);
    if (!change_in_place(ix, old, holder, was, n_was, put, n)) {
        plan_for(&p, put, n);
        ok = make(ix, &r, holder, &p, &who);
        if (ok)
            publish(ix, it, who);
        else if (old & WP_WHO_SPAN && wp_span_holder(old) == holder)
            publish(ix, it, 0);
        else
            vanish(ix, old, holder);
    }
    for (unsigned i = 0; i < n_was; i++)
        figure(ix, h, was[i], -1);
    for (unsigned i = 0; ok && i < n; i++)
        figure(ix, h, put[i], 1);
    if (!ok && get(&it->who) & WP_WHO_ROSTER) {
        open_roster(ix, get(&it->who), &r);
        before = before & ~cover_of_spans(&r);
        ix->blocks -= count_bits(before);
        set(&roster_at(ix, get(&it->who))[1], (uint64_t)cover_of_spans(&r));
        set(&roster_at(ix, get(&it->who))[2], (uint64_t)(cover_of_spans(&r) >> 64));
        return false;
    }
    ix->blocks += count_bits(wp_run_cover(ix, run));
    ix->blocks -= count_bits(before);
    return ok;
}
