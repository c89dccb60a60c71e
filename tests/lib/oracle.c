/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/oracle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/*
 * A fact: holder says that its block `engine` (of a space and a group) is at a place, with so many
 * copies in each tier. A belief: holder is taken to have the block at a place, without a copy that
 * we were told of (what graft() concludes). A mark: the holder's block at a place is sure in a
 * tier; what is not marked is in doubt.  A blur: the holder's block at a place is vague.  A share: what
 * a group that restricts has of a hash.  A rule: that it restricts, and how.
 */
struct place {
    uint32_t space;
    bool floats; /* below the block `unknown` of `group`, nobody knows where */
    uint16_t group;
    uint64_t unknown;
    size_t n;
    uint64_t path[WP_ORACLE_DEPTH];
};
struct fact {
    uint32_t holder;
    uint16_t group;
    uint64_t engine;
    unsigned copies[WP_TIER_MAX];
    struct place at;
};
struct belief {
    uint32_t holder;
    uint8_t tier;
    struct place at;
};
struct mark {
    uint32_t holder;
    uint8_t tier;
    struct place at;
};

struct blur {
    uint32_t holder;
    struct place at;
};
struct share {
    uint32_t holder, space;
    uint16_t group;
    uint64_t engine;
    unsigned copies[WP_TIER_MAX];
    bool doubt[WP_TIER_MAX];
};
struct rule {
    uint32_t holder;
    uint16_t group, main;
    uint32_t blocks;
    size_t stored;
    bool met;
};

#define LIST(type)     \
    struct {           \
        type *p;       \
        size_t n, cap; \
    }

struct wp_oracle {
    bool live[WP_ORACLE_HOLDERS];
    uint32_t node[WP_ORACLE_HOLDERS];
    LIST(struct fact) facts;
    LIST(struct belief) beliefs;
    LIST(struct mark) marks;
    LIST(struct blur) blurs;
    LIST(struct share) shares;
    LIST(struct rule) rules;
};

#define GROW(list)                                                       \
    do {                                                                 \
        if ((list).n == (list).cap) {                                    \
            (list).cap = (list).cap ? (list).cap * 2 : 64;               \
            (list).p = realloc((list).p, (list).cap * sizeof *(list).p); \
            if (!(list).p)                                               \
                abort();                                                 \
        }                                                                \
    } while (0)
#define CUT(list, i) ((list).p[i] = (list).p[--(list).n])

struct wp_oracle *wp_oracle_create(void)
{
    struct wp_oracle *o = calloc(1, sizeof *o);

    if (!o)
        abort();
    return o;
}

void wp_oracle_destroy(struct wp_oracle *o)
{
    if (!o)
        return;
    free(o->facts.p);
    free(o->beliefs.p);
    free(o->marks.p);
    free(o->blurs.p);
    free(o->shares.p);
    free(o->rules.p);
    free(o);
}

size_t wp_oracle_facts(const struct wp_oracle *o)
{
    return o->facts.n + o->beliefs.n + o->shares.n;
}

static bool same_start(const struct place *a, const struct place *b)
{
    return a->space == b->space && a->floats == b->floats &&
           (!a->floats || (a->group == b->group && a->unknown == b->unknown));
}

static bool same_place(const struct place *a, const struct place *b)
{
    return a->n == b->n && same_start(a, b) &&
           memcmp(a->path, b->path, a->n * sizeof a->path[0]) == 0;
}

static bool is_below(const struct place *a,
                     const struct place *b) /* b is on the way to a, and is not a */
{
    return a->n > b->n && same_start(a, b) &&
           memcmp(a->path, b->path, b->n * sizeof b->path[0]) == 0;
}

static void extend(struct place *p, uint64_t local)
{
    if (p->n == WP_ORACLE_DEPTH)
        abort(); /* the driver keeps chains short */
    p->path[p->n++] = local;
}

static bool has_copies(const struct fact *f)
{
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (f->copies[t])
            return true;
    return false;
}

static struct fact *find_fact(const struct wp_oracle *o, uint32_t holder, uint32_t space,
                              uint16_t group, uint64_t engine)
{
    for (size_t i = 0; i < o->facts.n; i++) {
        struct fact *f = &o->facts.p[i];

        if (f->engine == engine && f->holder == holder && f->group == group && f->at.space == space)
            return f;
    }
    return NULL;
}

static bool holds(const struct wp_oracle *o, uint32_t holder, const struct place *at,
                  int tier) /* tier -1: any */
{
    for (size_t i = 0; i < o->facts.n; i++) {
        const struct fact *f = &o->facts.p[i];

        if (f->holder == holder && same_place(&f->at, at) &&
            (tier < 0 ? has_copies(f) : f->copies[tier] > 0))
            return true;
    }
    return false;
}

static bool is_marked(const struct wp_oracle *o, uint32_t holder, const struct place *at, int tier)
{
    for (size_t i = 0; i < o->marks.n; i++)
        if (o->marks.p[i].holder == holder && o->marks.p[i].tier == tier &&
            same_place(&o->marks.p[i].at, at))
            return true;
    return false;
}

static bool is_vague(const struct wp_oracle *o, uint32_t holder, const struct place *at)
{
    for (size_t i = 0; i < o->blurs.n; i++)
        if (o->blurs.p[i].holder == holder && same_place(&o->blurs.p[i].at, at))
            return true;
    return false;
}

static void mark(struct wp_oracle *o, uint32_t holder, const struct place *at, uint8_t tier)
{
    if (is_marked(o, holder, at, tier) || is_vague(o, holder, at))
        return;
    GROW(o->marks);
    o->marks.p[o->marks.n++] = (struct mark){holder, tier, *at};
}

/* The block at the place is in doubt from now on, in all tiers. */
static void blur(struct wp_oracle *o, uint32_t holder, const struct place *at)
{
    for (size_t i = o->marks.n; i-- > 0;)
        if (o->marks.p[i].holder == holder && same_place(&o->marks.p[i].at, at))
            CUT(o->marks, i);
    if (is_vague(o, holder, at))
        return;
    GROW(o->blurs);
    o->blurs.p[o->blurs.n++] = (struct blur){holder, *at};
}

/* Someone that has a real copy below speaks for the belief. */
static bool is_supported(const struct wp_oracle *o, const struct belief *b)
{
    for (size_t i = 0; i < o->facts.n; i++)
        if (o->facts.p[i].holder == b->holder && has_copies(&o->facts.p[i]) &&
            is_below(&o->facts.p[i].at, &b->at))
            return true;
    return false;
}

static struct belief *belief_at(const struct wp_oracle *o, uint32_t holder, const struct place *at)
{
    for (size_t i = 0; i < o->beliefs.n; i++)
        if (o->beliefs.p[i].holder == holder && same_place(&o->beliefs.p[i].at, at))
            return &o->beliefs.p[i];
    return NULL;
}

/* Held there, or believed. */
static bool has_in(const struct wp_oracle *o, uint32_t holder, const struct place *at, int tier)
{
    const struct belief *b = belief_at(o, holder, at);

    return holds(o, holder, at, tier) || (b && b->tier == tier);
}

/*
 * After any change; lost: a copy or a belief went.  Beliefs end with a real copy at their place or
 * with the last one below; names without copies live only where a belief is; marks only where
 * something is held.  What goes may be what another one rested on, but only upwards of what is
 * real, so one pass in this order suffices.
 */
static void tidy(struct wp_oracle *o, uint32_t holder, bool lost)
{
    for (size_t i = o->beliefs.n; i-- > 0;) {
        const struct belief *b = &o->beliefs.p[i];

        if (b->holder == holder && (holds(o, holder, &b->at, -1) || !is_supported(o, b))) {
            CUT(o->beliefs, i);
            lost = true;
        }
    }
    if (!lost)
        return;
    for (size_t i = o->facts.n; i-- > 0;)
        if (o->facts.p[i].holder == holder && !has_copies(&o->facts.p[i]) &&
            !belief_at(o, holder, &o->facts.p[i].at))
            CUT(o->facts, i);
    for (size_t i = o->marks.n; i-- > 0;)
        if (o->marks.p[i].holder == holder && !has_in(o, holder, &o->marks.p[i].at, o->marks.p[i].tier))
            CUT(o->marks, i);
    for (size_t i = o->blurs.n; i-- > 0;)
        if (o->blurs.p[i].holder == holder && !holds(o, holder, &o->blurs.p[i].at, -1))
            CUT(o->blurs, i);
}

void wp_oracle_holder(struct wp_oracle *o, uint32_t holder, uint32_t node)
{
    assert(holder < WP_ORACLE_HOLDERS && !o->live[holder]);
    o->live[holder] = true;
    o->node[holder] = node;
}

void wp_oracle_clear(struct wp_oracle *o, uint32_t holder)
{
    for (size_t i = o->facts.n; i-- > 0;)
        if (o->facts.p[i].holder == holder)
            CUT(o->facts, i);
    for (size_t i = o->beliefs.n; i-- > 0;)
        if (o->beliefs.p[i].holder == holder)
            CUT(o->beliefs, i);
    for (size_t i = o->shares.n; i-- > 0;)
        if (o->shares.p[i].holder == holder)
            CUT(o->shares, i);
    for (size_t i = o->blurs.n; i-- > 0;)
        if (o->blurs.p[i].holder == holder)
            CUT(o->blurs, i);
    wp_oracle_doubt(o, holder);
}

void wp_oracle_drop(struct wp_oracle *o, uint32_t holder)
{
    wp_oracle_clear(o, holder);
    for (size_t i = o->rules.n; i-- > 0;)
        if (o->rules.p[i].holder == holder)
            CUT(o->rules, i);
    o->live[holder] = false;
    for (uint32_t h = 0; h < WP_ORACLE_HOLDERS; h++)
        if (o->node[h] == holder)
            o->node[h] = WP_NO_HOLDER;
}

void wp_oracle_doubt(struct wp_oracle *o, uint32_t holder)
{
    for (size_t i = o->marks.n; i-- > 0;)
        if (o->marks.p[i].holder == holder)
            CUT(o->marks, i);
    for (size_t i = 0; i < o->shares.n; i++)
        for (int t = 0; o->shares.p[i].holder == holder && t < WP_TIER_MAX; t++)
            o->shares.p[i].doubt[t] = o->shares.p[i].copies[t] > 0;
}

/* What floats below (holder, group, unknown) is below `place` from now on; doubt ends where either
 * was sure. */
static void move(struct wp_oracle *o, uint32_t holder, const struct place *from,
                 const struct place *to)
{
    for (size_t i = 0; i < o->facts.n; i++) {
        struct fact *f = &o->facts.p[i];
        struct place moved = *to;

        if (f->holder != holder || !same_start(&f->at, from))
            continue;
        for (size_t k = 0; k < f->at.n; k++)
            extend(&moved, f->at.path[k]);
        f->at = moved;
    }
    for (size_t i = o->marks.n; i-- > 0;) {
        struct mark m = o->marks.p[i];
        struct place moved = *to;

        if (m.holder != holder || !same_start(&m.at, from))
            continue;
        CUT(o->marks, i);
        for (size_t k = 0; k < m.at.n; k++)
            extend(&moved, m.at.path[k]);
        if (!is_marked(o, holder, &moved, m.tier)) {
            GROW(o->marks);
            o->marks.p[o->marks.n++] = (struct mark){holder, m.tier, moved};
            i = o->marks.n; /* from the end again: the list was reordered */
        }
    }
    for (size_t i = 0; i < o->blurs.n; i++) {
        struct place moved = *to, was = o->blurs.p[i].at;

        if (o->blurs.p[i].holder != holder || !same_start(&was, from))
            continue;
        for (size_t k = 0; k < was.n; k++)
            extend(&moved, was.path[k]);
        CUT(o->blurs, i);
        blur(o, holder, &moved);
        i = (size_t)-1; /* from the start again, for the same reason */
    }
    for (size_t i = o->blurs.n; i-- > 0;) /* marks that came to a vague place */
        if (o->blurs.p[i].holder == holder)
            blur(o, holder, &o->blurs.p[i].at);
}

static struct place start_of(const struct wp_kv_event *ev)
{
    return (struct place){
        .space = ev->space, .floats = true, .group = ev->group, .unknown = ev->parent};
}

static bool anything_below(const struct wp_oracle *o, uint32_t holder, const struct place *start)
{
    for (size_t i = 0; i < o->facts.n; i++)
        if (o->facts.p[i].holder == holder && same_start(&o->facts.p[i].at, start))
            return true;
    return false;
}

/* A store of what is in doubt begins its count anew: true if there was any. */
static bool begin_anew(struct wp_oracle *o, uint32_t holder, const struct place *at, uint8_t tier)
{
    if (!holds(o, holder, at, tier) || is_marked(o, holder, at, tier) || is_vague(o, holder, at))
        return false;
    for (size_t i = 0; i < o->facts.n; i++)
        if (o->facts.p[i].holder == holder && same_place(&o->facts.p[i].at, at))
            o->facts.p[i].copies[tier] = 0;
    return true;
}

/* One block of a store, right below *at, which moves on to it.  False: refused. */
static bool store_one(struct wp_oracle *o, const struct wp_kv_event *ev, struct place *at, size_t i)
{
    struct place own = {
        .space = ev->space, .floats = true, .group = ev->group, .unknown = ev->engine[i]};
    struct fact *f = find_fact(o, ev->holder, ev->space, ev->group, ev->engine[i]);
    struct place next = *at;
    bool moves, anew;

    extend(&next, ev->local[i]);
    if (!f && same_start(&next, &own))
        return false; /* below itself */
    moves = f && !same_place(&f->at, &next);
    if (moves) {
        memset(f->copies, 0, sizeof f->copies);
        f->at = next;
    }
    anew = begin_anew(o, ev->holder, &next, ev->tier);
    if (!f) {
        GROW(o->facts);
        f = &o->facts.p[o->facts.n++];
        *f = (struct fact){
            .holder = ev->holder, .group = ev->group, .engine = ev->engine[i], .at = next};
    }
    f->copies[ev->tier]++;
    if (ev->vague && ev->vague[i])
        blur(o, ev->holder, &next);
    mark(o, ev->holder, &next, ev->tier);
    if (anything_below(o, ev->holder, &own))
        move(o, ev->holder, &own, &next);
    tidy(o, ev->holder, moves || anew);
    *at = next;
    return true;
}

static struct rule *find_rule(const struct wp_oracle *o, uint32_t holder, uint16_t group)
{
    for (size_t i = 0; i < o->rules.n; i++)
        if (o->rules.p[i].holder == holder && o->rules.p[i].group == group)
            return &o->rules.p[i];
    return NULL;
}

static struct share *find_share(const struct wp_oracle *o, uint32_t holder, uint32_t space,
                                uint16_t group, uint64_t engine)
{
    for (size_t i = 0; i < o->shares.n; i++) {
        struct share *s = &o->shares.p[i];

        if (s->holder == holder && s->space == space && s->group == group && s->engine == engine)
            return s;
    }
    return NULL;
}

/* Has any rule's group the hash while its main group has it too? */
static void meet(struct wp_oracle *o, uint32_t holder, uint32_t space, uint64_t engine)
{
    for (size_t i = 0; i < o->rules.n; i++) {
        struct rule *r = &o->rules.p[i];
        const struct fact *f = find_fact(o, holder, space, r->main, engine);

        if (r->holder == holder && f && has_copies(f) &&
            find_share(o, holder, space, r->group, engine))
            r->met = true;
    }
}

void wp_oracle_window(struct wp_oracle *o, uint32_t holder, uint16_t group, uint16_t main,
                      uint32_t blocks)
{
    struct rule *r = find_rule(o, holder, group);

    if (!o->live[holder])
        return;
    if (!r && blocks) {
        GROW(o->rules);
        r = &o->rules.p[o->rules.n++];
        *r = (struct rule){.holder = holder, .group = group};
    }
    if (r) {
        r->main = main;
        r->blocks = blocks;
    }
    if (!r || blocks)
        return;
    CUT(o->rules, (size_t)(r - o->rules.p));
    for (size_t i = o->shares.n; i-- > 0;)
        if (o->shares.p[i].holder == holder && o->shares.p[i].group == group)
            CUT(o->shares, i);
}

static void share_all(struct wp_oracle *o, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        struct share *s = find_share(o, ev->holder, ev->space, ev->group, ev->engine[i]);

        if (ev->kind == WP_KV_REMOVED && (!s || !s->copies[ev->tier])) {
            res->unknown++;
            continue;
        }
        res->applied++;
        if (ev->kind == WP_KV_REMOVED) {
            bool any = false;

            if (--s->copies[ev->tier] == 0)
                s->doubt[ev->tier] = false;
            for (int t = 0; t < WP_TIER_MAX; t++)
                any |= s->copies[t] > 0;
            if (!any)
                CUT(o->shares, (size_t)(s - o->shares.p));
            continue;
        }
        if (!s) {
            GROW(o->shares);
            s = &o->shares.p[o->shares.n++];
            *s = (struct share){.holder = ev->holder,
                                .space = ev->space,
                                .group = ev->group,
                                .engine = ev->engine[i]};
        }
        if (s->doubt[ev->tier])
            s->copies[ev->tier] = 0; /* of before */
        s->doubt[ev->tier] = false;
        s->copies[ev->tier]++;
        find_rule(o, ev->holder, ev->group)->stored++;
        meet(o, ev->holder, ev->space, ev->engine[i]);
    }
}

static void store(struct wp_oracle *o, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    const struct fact *parent =
        ev->has_parent ? find_fact(o, ev->holder, ev->space, ev->group, ev->parent) : NULL;
    struct place at = {.space = ev->space};

    if (parent)
        at = parent->at;
    else if (ev->has_parent)
        at = start_of(ev);
    for (size_t i = 0; i < ev->n; i++) {
        if (!store_one(o, ev, &at, i)) {
            res->refused += ev->n - i;
            return;
        }
        res->applied++;
        res->floating += at.floats;
        meet(o, ev->holder, ev->space, ev->engine[i]);
    }
}

static void store_tier(struct wp_oracle *o, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        struct fact *f = find_fact(o, ev->holder, ev->space, ev->group, ev->engine[i]);
        bool anew;

        if (!f) {
            res->unknown++;
            continue;
        }
        anew = begin_anew(o, ev->holder, &f->at, ev->tier);
        f->copies[ev->tier]++;
        mark(o, ev->holder, &f->at, ev->tier);
        res->applied++;
        meet(o, ev->holder, ev->space, ev->engine[i]);
        tidy(o, ev->holder, anew);
    }
}

static void remove_all(struct wp_oracle *o, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        struct fact *f = find_fact(o, ev->holder, ev->space, ev->group, ev->engine[i]);
        struct belief *b = f && !has_copies(f) ? belief_at(o, ev->holder, &f->at) : NULL;

        if (f && f->copies[ev->tier]) {
            f->copies[ev->tier]--;
        } else if (b && b->tier == ev->tier) {
            CUT(o->beliefs, (size_t)(b - o->beliefs.p));
        } else {
            res->unknown++;
            continue;
        }
        res->applied++;
        tidy(o, ev->holder, true);
    }
}

/* Different places among a holder's facts and beliefs: i is the first that names its place. */
static bool first_here(const struct wp_oracle *o, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (o->facts.p[k].holder == o->facts.p[i].holder && has_copies(&o->facts.p[k]) &&
            same_place(&o->facts.p[k].at, &o->facts.p[i].at))
            return false;
    return has_copies(&o->facts.p[i]);
}

void wp_oracle_apply(struct wp_oracle *o, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    *res = (struct wp_kv_result){0};
    if (ev->holder >= WP_ORACLE_HOLDERS || !o->live[ev->holder]) {
        res->refused = ev->n;
    } else if (ev->kind == WP_KV_CLEARED) {
        for (size_t i = 0; i < o->facts.n; i++)
            res->applied += o->facts.p[i].holder == ev->holder && first_here(o, i);
        for (size_t i = 0; i < o->beliefs.n; i++)
            res->applied += o->beliefs.p[i].holder == ev->holder;
        wp_oracle_clear(o, ev->holder);
    } else if (find_rule(o, ev->holder, ev->group)) {
        share_all(o, ev, res);
    } else if (ev->kind == WP_KV_REMOVED) {
        remove_all(o, ev, res);
    } else if (!ev->main_group) {
        res->ignored = ev->n;
    } else if (ev->local) {
        store(o, ev, res);
    } else {
        store_tier(o, ev, res);
    }
}

static int fastest(const struct wp_oracle *o, uint32_t holder, const struct place *at)
{
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (holds(o, holder, at, t))
            return t;
    return -1;
}

/* Held blocks of the chain that lie on the prompt when it starts at block k, and the tier of the
 * first of them. */
static size_t lie_on(const struct wp_oracle *o, uint32_t holder, const struct place *start,
                     const uint64_t local[], size_t n, size_t k, int *tier)
{
    struct place at = *start;
    size_t held = 0;

    for (; k < n; k++) {
        int t;

        extend(&at, local[k]);
        t = fastest(o, holder, &at);
        if (t >= 0 && held++ == 0)
            *tier = t;
    }
    return held;
}

static void believe(struct wp_oracle *o, uint32_t holder, const struct place *at, uint8_t tier)
{
    struct belief *b = belief_at(o, holder, at);

    if (holds(o, holder, at, -1))
        return;
    if (b) {
        b->tier = tier < b->tier ? tier : b->tier;
        return;
    }
    GROW(o->beliefs);
    o->beliefs.p[o->beliefs.n++] = (struct belief){holder, tier, *at};
}

/* Hangs the chain where most of it lies on the prompt, if that is one place. */
static bool graft_one(struct wp_oracle *o, uint32_t holder, const struct place *start,
                      const uint64_t local[], size_t n)
{
    struct place at = {.space = start->space}, from = *start;
    size_t best = 0, most = 0;
    int tier = 0;

    for (size_t k = 1; k < n; k++) {
        int its = 0;
        size_t held = lie_on(o, holder, &from, local, n, k, &its);

        if (held && held == most)
            best = 0;
        if (held > most) {
            most = held;
            best = k;
            tier = its;
        }
    }
    if (!best)
        return false;
    for (size_t i = 0; i < best; i++) {
        extend(&at, local[i]);
        believe(o, holder, &at, (uint8_t)tier);
    }
    if (belief_at(o, holder, &at)) {
        GROW(o->facts);
        o->facts.p[o->facts.n++] =
            (struct fact){.holder = holder, .group = from.group, .engine = from.unknown, .at = at};
    }
    move(o, holder, &from, &at);
    tidy(o, holder, true);
    return true;
}

static uint64_t floating_of(const struct wp_oracle *o, uint32_t holder)
{
    uint64_t n = 0;

    for (size_t i = 0; i < o->facts.n; i++)
        n += o->facts.p[i].holder == holder && o->facts.p[i].at.floats && first_here(o, i);
    return n;
}

size_t wp_oracle_graft(struct wp_oracle *o, uint32_t holder, uint32_t space, const uint64_t local[],
                       size_t n)
{
    uint64_t before;
    bool again = true;

    if (holder >= WP_ORACLE_HOLDERS || !o->live[holder])
        return 0;
    before = floating_of(o, holder);
    while (again) {
        again = false;
        for (size_t i = 0; i < o->facts.n && !again; i++) {
            struct place start = o->facts.p[i].at;

            start.n = 0;
            again = o->facts.p[i].holder == holder && start.space == space && start.floats &&
                    graft_one(o, holder, &start, local, n);
        }
    }
    return before - floating_of(o, holder);
}

/* What the holder has at the place and is in doubt. */
static bool disown(struct wp_oracle *o, uint32_t holder, const struct place *at)
{
    struct belief *b = belief_at(o, holder, at);
    bool gone = false;

    if (b && !is_marked(o, holder, at, b->tier)) {
        CUT(o->beliefs, (size_t)(b - o->beliefs.p));
        gone = true;
    }
    for (int t = 0; t < WP_TIER_MAX; t++) {
        if (!holds(o, holder, at, t) || is_marked(o, holder, at, t))
            continue;
        gone = true;
        for (size_t i = 0; i < o->facts.n; i++)
            if (o->facts.p[i].holder == holder && same_place(&o->facts.p[i].at, at))
                o->facts.p[i].copies[t] = 0;
    }
    return gone;
}

size_t wp_oracle_confirm(struct wp_oracle *o, uint32_t holder, uint32_t space, const uint64_t local[],
                         size_t n, size_t blocks)
{
    struct place at = {.space = space};
    bool restricted = false;
    size_t changed = 0;

    if (holder >= WP_ORACLE_HOLDERS || !o->live[holder])
        return 0;
    for (size_t i = 0; i < o->rules.n; i++)
        restricted |= o->rules.p[i].holder == holder && (o->rules.p[i].stored < WP_WINDOW_TRIAL || o->rules.p[i].met);
    for (size_t i = 0; i < n; i++) {
        int t = 0;

        extend(&at, local[i]);
        while (t < WP_TIER_MAX && !has_in(o, holder, &at, t))
            t++;
        if (i < blocks && t < WP_TIER_MAX && !is_vague(o, holder, &at) && !is_marked(o, holder, &at, t)) {
            mark(o, holder, &at, (uint8_t)t);
            changed++;
        }
        if (i >= blocks && !restricted)
            changed += disown(o, holder, &at);
    }
    tidy(o, holder, true);
    return changed;
}

/* Tiers that a holder has of the prompt's blocks, of its own: bits, per block. */
struct own {
    uint8_t held[WP_ORACLE_DEPTH], sure[WP_ORACLE_DEPTH];
};

static bool on_prompt(const struct place *at, uint32_t space, const uint64_t local[], size_t n)
{
    return at->space == space && !at->floats && at->n <= n &&
           memcmp(at->path, local, at->n * sizeof local[0]) == 0;
}

static void gather(const struct wp_oracle *o, uint32_t space, const uint64_t local[], size_t n,
                   struct own own[WP_ORACLE_HOLDERS])
{
    memset(own, 0, WP_ORACLE_HOLDERS * sizeof own[0]);
    for (size_t i = 0; i < o->facts.n; i++) {
        const struct fact *f = &o->facts.p[i];

        if (!on_prompt(&f->at, space, local, n))
            continue;
        for (int t = 0; t < WP_TIER_MAX; t++)
            own[f->holder].held[f->at.n - 1] |= (uint8_t)((f->copies[t] > 0) << t);
    }
    for (size_t i = 0; i < o->beliefs.n; i++)
        if (on_prompt(&o->beliefs.p[i].at, space, local, n))
            own[o->beliefs.p[i].holder].held[o->beliefs.p[i].at.n - 1] |=
                (uint8_t)(1 << o->beliefs.p[i].tier);
    for (size_t i = 0; i < o->marks.n; i++)
        if (on_prompt(&o->marks.p[i].at, space, local, n))
            own[o->marks.p[i].holder].sure[o->marks.p[i].at.n - 1] |=
                (uint8_t)(1 << o->marks.p[i].tier);
}

/* Is block i of the prompt there for that rule?  Of the node it comes whole; a belief speaks only to a rule of all blocks. */
static bool rule_has(const struct wp_oracle *o, const struct rule *r, uint32_t space,
                     const uint64_t local[], size_t i)
{
    struct place at = {.space = space, .n = i + 1};

    memcpy(at.path, local, (i + 1) * sizeof local[0]);
    if (belief_at(o, r->holder, &at))
        return r->blocks == WP_WINDOW_ALL;
    if (!holds(o, r->holder, &at, -1))
        return true;
    for (size_t k = 0; k < o->facts.n; k++) {
        const struct fact *f = &o->facts.p[k];

        if (f->holder == r->holder && has_copies(f) && same_place(&f->at, &at) &&
            find_share(o, r->holder, space, r->group, f->engine))
            return true;
    }
    return false;
}

/* May the holder use k blocks of the prompt, of which it has all k? */
static bool rules_allow(const struct wp_oracle *o, uint32_t holder, uint32_t space,
                        const uint64_t local[], size_t k)
{
    for (size_t i = 0; i < o->rules.n; i++) {
        const struct rule *r = &o->rules.p[i];

        if (r->holder != holder || (r->stored >= WP_WINDOW_TRIAL && !r->met))
            continue;
        for (size_t back = 1; back <= k && back <= r->blocks; back++)
            if (!rule_has(o, r, space, local, k - back))
                return false;
    }
    return true;
}

void wp_oracle_overlap(const struct wp_oracle *o, uint32_t space, const uint64_t local[], size_t n,
                       struct wp_oracle_answer answer[WP_ORACLE_HOLDERS])
{
    struct own own[WP_ORACLE_HOLDERS];
    struct wp_oracle_answer all;

    memset(answer, 0, WP_ORACLE_HOLDERS * sizeof answer[0]);
    gather(o, space, local, n, own);
    for (uint32_t h = 0; h < WP_ORACLE_HOLDERS; h++) {
        all = (struct wp_oracle_answer){0};
        for (size_t i = 0; o->live[h] && i < n; i++) {
            uint8_t held = own[h].held[i], sure = own[h].sure[i];
            int t = 0;

            if (o->node[h] != WP_NO_HOLDER) {
                held |= own[o->node[h]].held[i];
                sure |= own[o->node[h]].sure[i];
            }
            if (!held)
                break;
            while (!(held >> t & 1))
                t++;
            all.blocks++;
            all.tier[t]++;
            all.doubtful += !(sure >> t & 1);
            if (rules_allow(o, h, space, local, i + 1))
                answer[h] = all;
        }
    }
}

void wp_oracle_reach(const struct wp_oracle *o, uint32_t holder, uint32_t space,
                     const uint64_t local[], size_t n, struct wp_reach *r)
{
    struct own own[WP_ORACLE_HOLDERS];
    uint32_t node = o->node[holder];
    uint8_t all_of[WP_ORACLE_DEPTH];
    size_t leading = 0;

    *r = (struct wp_reach){0};
    gather(o, space, local, n, own);
    for (size_t i = 0; i < n; i++)
        all_of[i] = (uint8_t)(own[holder].held[i] | (node == WP_NO_HOLDER ? 0 : own[node].held[i]));
    while (o->live[holder] && leading < n && all_of[leading])
        leading++;
    for (int t = 0; t < WP_TIER_MAX; t++) {
        while (r->upto[t] < leading && all_of[r->upto[t]] & ((2u << t) - 1))
            r->upto[t]++;
        for (size_t i = 0; i < leading; i++)
            r->on[t] += (all_of[i] & (1u << t)) != 0;
    }
}

static size_t in_common(const struct place *at, uint32_t space, const uint64_t local[], size_t n)
{
    size_t k = 0;

    while (at->space == space && !at->floats && k < n && k < at->n && at->path[k] == local[k])
        k++;
    return k;
}

size_t wp_oracle_known(const struct wp_oracle *o, uint32_t space, const uint64_t local[], size_t n)
{
    size_t most = 0;

    for (size_t i = 0; i < o->facts.n; i++) {
        size_t k = in_common(&o->facts.p[i].at, space, local, n);

        most = k > most ? k : most;
    }
    for (size_t i = 0; i < o->beliefs.n; i++) {
        size_t k = in_common(&o->beliefs.p[i].at, space, local, n);

        most = k > most ? k : most;
    }
    return most;
}

static bool place_seen(const struct wp_oracle *o,
                       size_t i) /* fact i's place is a holder's before, or a belief's */
{
    for (size_t k = 0; k < i; k++)
        if (has_copies(&o->facts.p[k]) && same_place(&o->facts.p[k].at, &o->facts.p[i].at))
            return true;
    for (size_t k = 0; k < o->beliefs.n; k++)
        if (same_place(&o->beliefs.p[k].at, &o->facts.p[i].at))
            return true;
    return false;
}

static bool belief_seen(const struct wp_oracle *o, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (same_place(&o->beliefs.p[k].at, &o->beliefs.p[i].at))
            return true;
    return false;
}

void wp_oracle_holder_stats(const struct wp_oracle *o, uint32_t holder,
                            uint64_t tier_blocks[WP_TIER_MAX], uint64_t *doubtful)
{
    memset(tier_blocks, 0, WP_TIER_MAX * sizeof tier_blocks[0]);
    *doubtful = 0;
    for (size_t i = 0; i < o->facts.n; i++) {
        const struct fact *f = &o->facts.p[i];

        if (f->holder != holder || f->at.floats || !first_here(o, i))
            continue;
        for (int t = 0; t < WP_TIER_MAX; t++)
            if (holds(o, holder, &f->at, t)) {
                tier_blocks[t]++;
                *doubtful += !is_marked(o, holder, &f->at, t);
            }
    }
    for (size_t i = 0; i < o->beliefs.n; i++)
        if (o->beliefs.p[i].holder == holder) {
            tier_blocks[o->beliefs.p[i].tier]++;
            *doubtful += !is_marked(o, holder, &o->beliefs.p[i].at, o->beliefs.p[i].tier);
        }
}

void wp_oracle_digest(const struct wp_oracle *o, uint32_t holder, struct wp_index_digest *d)
{
    memset(d, 0, sizeof *d);
    for (int t = 0; t < WP_TIER_MAX; t++) {
        for (size_t i = 0; i < o->facts.n; i++) {
            const struct fact *f = &o->facts.p[i];

            if (f->holder != holder || !f->copies[t])
                continue;
            *(f->at.floats ? &d->floating[t] : &d->names[t]) += 1;
            *(f->at.floats ? &d->floating_sum[t] : &d->sum[t]) += wp_index_mix(f->engine, f->group);
        }
        for (size_t i = 0; i < o->shares.n; i++) {
            const struct share *s = &o->shares.p[i];

            if (s->holder != holder || !s->copies[t])
                continue;
            d->names[t]++;
            d->sum[t] += wp_index_mix(s->engine, s->group);
        }
    }
}

void wp_oracle_stats(const struct wp_oracle *o, struct wp_index_stats *s)
{
    *s = (struct wp_index_stats){0};
    for (uint32_t h = 0; h < WP_ORACLE_HOLDERS; h++) {
        uint64_t tier[WP_TIER_MAX], doubtful;

        wp_oracle_holder_stats(o, h, tier, &doubtful);
        for (int t = 0; t < WP_TIER_MAX; t++)
            s->locations += tier[t];
        s->doubtful += doubtful;
        s->floating += floating_of(o, h);
    }
    for (size_t i = 0; i < o->facts.n; i++)
        s->blocks += !o->facts.p[i].at.floats && has_copies(&o->facts.p[i]) && !place_seen(o, i);
    for (size_t i = 0; i < o->beliefs.n; i++)
        s->blocks += !belief_seen(o, i);
}
