/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: everything that one part of the index says of another is checked, and every figure
 * counted anew. */
#include "index/inside.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct check {
    const struct wp_index *ix;
    struct wp_err *err;
    struct wp_holder *want; /* the holders' figures, counted */
    uint64_t blocks, locations, sure;
    uint32_t runs, chunks, rosters, details, names, fnodes, fnames;
};

static bool wrong(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(struct check *c, const char *fmt, ...)
{
    char text[128];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    wp_fail(c->err, WP_EINVAL, "index: %s", text);
    return false;
}

static const struct wp_detail *detail_at(const struct check *c, uint32_t d)
{
    return wp_pool_at(&c->ix->details, d);
}

static const struct wp_name *name_at(const struct check *c, uint32_t n)
{
    return wp_pool_at(&c->ix->names, n);
}

/* What one holder has of a run, into the counted figures; and whether it looks as it may. */
static bool check_part(struct check *c, uint32_t run, uint32_t holder, wp_u128 *cover)
{
    struct wp_holder *h = &c->want[holder];
    struct wp_part part;

    wp_part_get(c->ix, run, holder, &part);
    for (unsigned i = 0; i < WP_SEGMENT; i++) {
        uint8_t tiers = wp_look_tiers(part.look[i]), sure = wp_span_sure(part.look[i]);

        if (!tiers && !part.look[i] && !part.windows[i])
            continue;
        if (!tiers || i >= wp_run_len(wp_run_at(c->ix, run)) || !c->ix->holders[holder].live)
            return wrong(c, "run %u, block %u: holder %u cannot have it", run, i, holder);
        if ((sure & ~tiers) || (part.look[i] & WP_SPAN_VAGUE && sure) ||
            (part.look[i] & WP_SPAN_GUESS && (tiers & (tiers - 1) || part.windows[i])))
            return wrong(c, "run %u, block %u: holder %u has tiers %x, sure %x", run, i, holder,
                         tiers, sure);
        *cover |= (wp_u128)1 << i;
        h->blocks++;
        h->sure += (unsigned)__builtin_popcount(sure);
        h->guesses += (part.look[i] & WP_SPAN_GUESS) != 0;
        for (int t = 0; t < WP_TIER_MAX; t++)
            h->tier[t] += tiers >> t & 1;
        c->locations += (unsigned)__builtin_popcount(tiers);
        c->sure += (unsigned)__builtin_popcount(sure);
    }
    return true;
}

static bool check_run(struct check *c, uint32_t run, uint32_t parent, uint32_t space)
{
    const struct wp_run *r = wp_run_at(c->ix, run);
    const struct wp_run_own *own = wp_own_at(c->ix, run);
    wp_u128 cover = 0;
    uint32_t place = r->parent;
    uint64_t local = wp_run_local(c->ix, r, 0);

    if (r->gone || own->space != space || wp_run_len(r) == 0 ||
        r->first + wp_run_len(r) > WP_SEGMENT)
        return wrong(c, "run %u is not one", run);
    if (parent ? wp_place_run(place) != parent : place != WP_NOWHERE)
        return wrong(c, "run %u hangs below %x, not run %u", run, place, parent);
    if (parent && wp_place_off(place) >= wp_run_len(wp_run_at(c->ix, parent)))
        return wrong(c, "run %u hangs behind the end of run %u", run, parent);
    if (wp_place_below(c->ix, space, place, local) != wp_place(run, 0))
        return wrong(c, "run %u cannot be found", run);
    for (unsigned i = 1; i < wp_run_len(r); i++)
        if (wp_place_below(c->ix, space, wp_place(run, i - 1), wp_run_local(c->ix, r, i)) !=
            wp_place(run, i))
            return wrong(c, "block %u of run %u cannot be found", i, run);
    for (uint32_t h = 0; h < c->ix->n_holders; h++)
        if (!check_part(c, run, h, &cover))
            return false;
    if (cover != wp_run_cover(c->ix, run))
        return wrong(c, "run %u does not know what is held of it", run);
    if (!cover && !own->child)
        return wrong(c, "run %u is good for nothing", run);
    c->blocks += (unsigned)(__builtin_popcountll((uint64_t)cover) +
                            __builtin_popcountll((uint64_t)(cover >> 64)));
    c->chunks += (wp_run_len(r) + WP_CHUNK - 1) / WP_CHUNK;
    c->rosters += (atomic_load(&((struct wp_run *)r)->who) & WP_WHO_ROSTER) != 0;
    return c->runs++ <= c->ix->runs.n || wrong(c, "runs go round at %u", run);
}

static bool check_space(struct check *c, uint32_t space)
{
    uint32_t run = c->ix->spaces[space].child, parent = 0;

    while (run) {
        if (!check_run(c, run, parent, space))
            return false;
        if (wp_own_at(c->ix, run)->child) {
            parent = run;
            run = wp_own_at(c->ix, run)->child;
            continue;
        }
        while (run && !wp_own_at(c->ix, run)->next) {
            run = parent;
            parent = run && wp_run_at(c->ix, run)->parent != WP_NOWHERE
                         ? wp_place_run(wp_run_at(c->ix, run)->parent)
                         : 0;
        }
        run = run ? wp_own_at(c->ix, run)->next : 0;
    }
    return true;
}

static bool check_detail(struct check *c, uint32_t d, uint32_t holder)
{
    const struct wp_detail *it = detail_at(c, d);
    uint64_t look = wp_part_look(c->ix, it->place, holder);
    uint8_t tiers = it->rest;

    if (it->holder != holder || wp_run_at(c->ix, wp_place_run(it->place))->gone)
        return wrong(c, "detail %u is not of holder %u", d, holder);
    for (uint32_t n = it->names; n; n = name_at(c, n)->next, c->names++) {
        const struct wp_name *nm = name_at(c, n);
        const struct wp_shelf *s = &c->ix->holders[holder].shelf[nm->book];
        const uint32_t *value =
            nm->book < c->ix->holders[holder].shelves ? wp_book_find(&s->book, nm->engine) : NULL;
        uint8_t own = 0;

        if (nm->detail != d || !value || *value != (WP_NAMED | n))
            return wrong(c, "name %u of detail %u cannot be found", n, d);
        for (int t = 0; t < WP_TIER_MAX; t++)
            own |= (uint8_t)((nm->copies[t] != 0) << t);
        if (!own && !(look & WP_SPAN_GUESS))
            return wrong(c, "name %u has no copies", n);
        tiers |= own;
    }
    if (look & WP_SPAN_GUESS ? tiers != 0 : tiers == 0 || tiers != wp_look_tiers(look))
        return wrong(c, "detail %u has tiers %x, its place %x", d, tiers, wp_look_tiers(look));
    return true;
}

struct entries {
    struct check *c;
    uint32_t holder;
    uint64_t plain;
    bool ok;
};

static bool check_entry(void *ctx, uint64_t key, uint32_t *value)
{
    struct entries *e = ctx;
    uint64_t look;

    (void)key;
    if (*value & WP_NAMED || !e->ok)
        return true;
    if (wp_run_at(e->c->ix, wp_place_run(*value))->gone) {
        e->ok = wrong(e->c, "holder %u has a name for a run that is gone", e->holder);
        return true;
    }
    look = wp_part_look(e->c->ix, *value, e->holder);
    if (!wp_look_real(look))
        e->ok = wrong(e->c, "holder %u has a name for what it has not: %x", e->holder, *value);
    e->plain++;
    return true;
}

static bool check_names(struct check *c, uint32_t holder)
{
    struct wp_holder *h = &c->ix->holders[holder];
    struct entries e = {.c = c, .holder = holder, .ok = true};
    uint64_t windowed = 0, details = 0, rest = 0;

    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window < 0)
            wp_book_sweep(&h->shelf[i].book, check_entry, &e);
        else
            windowed += h->shelf[i].book.n;
    for (uint32_t d = h->detail; e.ok && d; d = detail_at(c, d)->next, details++) {
        e.ok = check_detail(c, d, holder);
        rest += detail_at(c, d)->rest != 0;
    }
    if (!e.ok)
        return false;
    c->details += (uint32_t)details;
    if (windowed != h->windowed || details != h->details)
        return wrong(c, "holder %u: %llu windowed, %llu details", holder,
                     (unsigned long long)windowed, (unsigned long long)details);
    /* each place that is held has one plain name, or a detail; those with a detail may have both */
    if (e.plain - rest + details != c->want[holder].blocks)
        return wrong(c, "holder %u has %llu blocks and %llu names for them", holder,
                     (unsigned long long)c->want[holder].blocks,
                     (unsigned long long)(e.plain - rest + details));
    return true;
}

static bool check_digest(struct check *c, uint32_t holder)
{
    const struct wp_holder *h = &c->ix->holders[holder];
    struct wp_index_digest kept = h->digest, want;

    wp_digest_count(c->ix, holder, &want);
    if (h->digest_stale) {
        memcpy(kept.names, want.names, sizeof kept.names);
        memcpy(kept.sum, want.sum, sizeof kept.sum);
    }
    return memcmp(&kept, &want, sizeof kept) == 0 ||
           wrong(c, "the digest of holder %u is not of its names", holder);
}

static bool check_holder(struct check *c, uint32_t holder)
{
    const struct wp_holder *h = &c->ix->holders[holder], *want = &c->want[holder];

    if (!check_names(c, holder))
        return false;
    if (h->blocks - h->floating != want->blocks || h->sure != want->sure ||
        h->guesses != want->guesses || memcmp(h->tier, want->tier, sizeof h->tier) != 0)
        return wrong(c, "figures of holder %u are not what it holds", holder);
    if (h->live && h->node != WP_NO_HOLDER && !c->ix->holders[h->node].live)
        return wrong(c, "holder %u has a node that is gone", holder);
    return check_digest(c, holder);
}

static bool check_floats(struct check *c)
{
    const struct wp_floats *f = &c->ix->floats;
    uint64_t floating = 0;

    for (uint32_t i = 0; i < c->ix->n_holders; i++) {
        const struct wp_holder *h = &c->ix->holders[i];
        uint32_t older = 0;

        floating += h->floating;
        for (uint32_t l = h->floats.oldest; l; older = l, l = wp_fnode_at(f, l)->younger) {
            const struct wp_fnode *n = wp_fnode_at(f, l);

            if (n->older != older || n->holder != i || !n->leaf || n->child || !n->held)
                return wrong(c, "floating leaf %u of holder %u stands wrong", l, i);
        }
        if (older != h->floats.youngest)
            return wrong(c, "the youngest floating leaf of holder %u is not the last", i);
    }
    if (floating != f->blocks)
        return wrong(c, "%llu blocks float, not %llu", (unsigned long long)floating,
                     (unsigned long long)f->blocks);
    return f->names.n == f->named.n ||
           wrong(c, "%u floating names, %u found", f->names.n, f->named.n);
}

static bool check_figures(struct check *c)
{
    const struct wp_index *ix = c->ix;
    uint64_t rosters = 0, windows = 0;

    for (int i = 0; i < WP_ROSTER_CLASSES; i++)
        rosters += ix->rosters[i].n;
    if (c->blocks != ix->blocks || c->locations != ix->locations || c->sure != ix->sure)
        return wrong(c, "%llu blocks and %llu locations are not what is held",
                     (unsigned long long)ix->blocks, (unsigned long long)ix->locations);
    if (c->runs != ix->runs.n || c->chunks != ix->chunks.n || c->rosters != rosters)
        return wrong(c, "%u runs of %u, %u chunks of %u, %u rosters of %u can be reached", c->runs,
                     ix->runs.n, c->chunks, ix->chunks.n, c->rosters, (unsigned)rosters);
    if (c->runs != ix->heads[0].n + ix->heads[1].n)
        return wrong(c, "%u runs, %u heads", c->runs, ix->heads[0].n + ix->heads[1].n);
    if (c->details != ix->details.n || c->details != ix->detailed.n ||
        c->names + windows > ix->names.n)
        return wrong(c, "%u details of %u can be reached", c->details, ix->details.n);
    if (ix->budget.cap && ix->budget.bytes > ix->budget.cap + ix->budget.cap / 8)
        return wrong(c, "%llu bytes are over the cap", (unsigned long long)ix->budget.bytes);
    return true;
}

static bool check_all(struct check *c)
{
    for (uint32_t i = 0; i < c->ix->n_spaces; i++)
        if (!check_space(c, i))
            return false;
    for (uint32_t i = 0; i < c->ix->n_holders; i++)
        if (!check_holder(c, i))
            return false;
    return check_floats(c) && check_figures(c);
}

bool wp_index_verify(const struct wp_index *ix, struct wp_err *err)
{
    struct check c = {.ix = ix, .err = err};
    struct wp_index *own = (struct wp_index *)ix;
    bool ok;

    pthread_mutex_lock(&own->lock);
    wp_epoch_drain(&own->epoch);
    c.want = wp_calloc(ix->n_holders ? ix->n_holders : 1, sizeof *c.want);
    ok = c.want ? check_all(&c) : wrong(&c, "out of memory");
    pthread_mutex_unlock(&own->lock);
    wp_free(c.want);
    return ok;
}
