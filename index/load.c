/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index is built from what a file says.  Nothing of it is believed: each number is held against
 * what is there, and a file that says two things at once is refused whole.
 */
#include "index/load_impl.h"

#include "base/mem.h"
#include "index/hold.h"

enum { TEXT_MAX = 65536 };

int wp_loading_failed(const struct wp_loading *l, int rc)
{
    return wp_fail(l->err, rc, "%s",
                   rc == WP_ETOOBIG ? "what was saved does not fit into the index's cap"
                                    : wp_strerror(rc));
}

static int load_head(struct wp_loading *l)
{
    const struct wp_saved_index *h = &l->head;
    int rc = wp_frames_enter(l->in, WP_SAVED_INDEX, "the index", l->err);

    if (rc < 0)
        return rc;
    if (!wp_frames_get(l->in, &l->head, sizeof l->head))
        return wp_loading_refuse(l, "it ends too soon");
    if (h->version != WP_SAVED_VERSION)
        return wp_fail(l->err, WP_EINVAL,
                       "the index's version is %u, %s than %u, which this one reads", h->version,
                       h->version < WP_SAVED_VERSION ? "older" : "newer", WP_SAVED_VERSION);
    if (h->segment != WP_SEGMENT || h->tiers != WP_TIER_MAX || h->windows != WP_WINDOWS_MAX)
        return wp_fail(l->err, WP_EINVAL,
                       "made for segments of %u blocks, %u tiers and %u windows, not %u, %u and %u",
                       h->segment, h->tiers, h->windows, WP_SEGMENT, (unsigned)WP_TIER_MAX,
                       (unsigned)WP_WINDOWS_MAX);
    if (h->n_spaces > 65535 || h->n_holders > WP_HOLDERS_MAX || h->runs_top > WP_RUNS_MAX ||
        h->n_spaces > wp_frames_ahead(l->in) / sizeof(struct wp_saved_space))
        return wp_loading_refuse(l, "more spaces, holders or runs than there can be");
    return 0;
}

static int take_text(struct wp_loading *l, uint32_t n, char **out)
{
    if (n > TEXT_MAX || n > wp_frames_ahead(l->in))
        return wp_loading_refuse(l, "a name is too long");
    *out = wp_calloc(n + 1, 1);
    if (!*out)
        return wp_loading_failed(l, WP_ENOMEM);
    return wp_frames_get(l->in, *out, n) ? 0 : wp_loading_refuse(l, "a name ends too soon");
}

static int load_spaces(struct wp_loading *l)
{
    struct wp_index *ix = l->ix;
    uint32_t n = l->head.n_spaces;
    int rc = wp_frames_enter(l->in, WP_SAVED_SPACES, "spaces", l->err), why = 0;

    if (rc < 0 || !n)
        return rc;
    ix->spaces = wp_budget_alloc(&ix->budget, n, sizeof *ix->spaces, &why);
    if (!ix->spaces)
        return wp_loading_failed(l, why);
    ix->spaces_cap = n;
    while (rc == 0 && ix->n_spaces < n) {
        struct wp_space *sp = &ix->spaces[ix->n_spaces];
        struct wp_saved_space it;

        if (!wp_frames_get(l->in, &it, sizeof it) || it.kind > WP_SPACE_BIGRAM || !it.block_size)
            return wp_loading_refuse(l, "a space is none");
        *sp = (struct wp_space){.model_n = it.model_n,
                                .domain_n = it.domain_n,
                                .block_size = it.block_size,
                                .kind = (enum wp_space_kind)it.kind,
                                .root = wp_prefix_root(&ix->prefix, ix->n_spaces)};
        ix->n_spaces++;
        rc = take_text(l, it.model_n, &sp->model);
        rc = rc ? rc : take_text(l, it.domain_n, &sp->domain);
    }
    return rc;
}

/* -- holders -- */

static int load_window(struct wp_loading *l, struct wp_holder *h)
{
    struct wp_saved_window it;
    struct wp_window *w;

    if (!wp_frames_get(l->in, &it, sizeof it) || it.number >= WP_WINDOWS_MAX ||
        it.group >= WP_GROUPS || it.main >= WP_GROUPS || it.group == it.main || !it.blocks ||
        it.stored > WP_WINDOW_TRIAL || it.met > 1)
        return wp_loading_refuse(l, "a window is none");
    for (int k = 0; k < WP_WINDOWS_MAX; k++)
        if (h->window[k].used && (k == (int)it.number || h->window[k].group == it.group))
            return wp_loading_refuse(l, "a window is told twice");
    w = &h->window[it.number];
    *w = (struct wp_window){.used = true,
                            .group = (uint16_t)it.group,
                            .main = (uint16_t)it.main,
                            .blocks = it.blocks,
                            .stored = it.stored,
                            .met = it.met};
    h->windows++;
    return 0;
}

static bool keep_count(struct wp_loading *l, uint32_t n)
{
    if (l->shelves == l->shelves_room) {
        uint32_t room = l->shelves_room ? l->shelves_room * 2 : 64;
        uint32_t *wider = wp_realloc(l->shelf_n, room * sizeof *wider);

        if (!wider)
            return false;
        l->shelf_n = wider;
        l->shelves_room = room;
    }
    l->shelf_n[l->shelves++] = n;
    return true;
}

static int load_shelf(struct wp_loading *l, struct wp_holder *h)
{
    struct wp_shelf *s = &h->shelf[h->shelves];
    struct wp_saved_shelf it;
    const struct wp_window *w = NULL;

    if (!wp_frames_get(l->in, &it, sizeof it) || it.space >= l->ix->n_spaces ||
        it.group >= WP_GROUPS || it.window < -1 || it.window >= WP_WINDOWS_MAX)
        return wp_loading_refuse(l, "a book is none");
    if (it.window >= 0)
        w = &h->window[it.window];
    if (w && it.n && (!w->used || w->group != it.group))
        return wp_loading_refuse(l, "a book is of a window that there is not");
    *s = (struct wp_shelf){
        .space = it.space, .group = (uint16_t)it.group, .window = (int8_t)it.window};
    h->shelves++;
    return keep_count(l, it.n) ? 0 : wp_loading_failed(l, WP_ENOMEM);
}

static int load_holder(struct wp_loading *l, uint32_t *last)
{
    struct wp_index *ix = l->ix;
    struct wp_saved_holder it;
    struct wp_holder *h;
    int rc = 0;

    if (!wp_frames_get(l->in, &it, sizeof it) || it.number >= l->head.n_holders ||
        (*last != WP_NO_HOLDER && it.number <= *last) || it.kind > WP_HOLDER_POOL ||
        it.windows > WP_WINDOWS_MAX || it.shelves > WP_BOOKS_MAX)
        return wp_loading_refuse(l, "a holder is none");
    *last = it.number;
    h = &ix->holders[it.number];
    *h = (struct wp_holder){.live = true,
                            .kind = (enum wp_holder_kind)it.kind,
                            .node = it.node,
                            .next_rank = WP_NO_HOLDER,
                            .first_rank = WP_NO_HOLDER};
    for (uint32_t i = 0; rc == 0 && i < it.windows; i++)
        rc = load_window(l, h);
    if (rc < 0 || !it.shelves)
        return rc;
    h->shelf = wp_budget_alloc(&ix->budget, it.shelves, sizeof *h->shelf, &rc);
    if (!h->shelf)
        return wp_loading_failed(l, rc);
    h->shelves_cap = it.shelves;
    for (uint32_t i = 0; rc == 0 && i < it.shelves; i++)
        rc = load_shelf(l, h);
    return rc;
}

static int join_node(struct wp_loading *l, uint32_t rank)
{
    struct wp_holder *h = &l->ix->holders[rank], *node;

    if (!h->live || h->node == WP_NO_HOLDER)
        return 0;
    node = h->node < l->ix->n_holders ? &l->ix->holders[h->node] : NULL;
    if (h->kind != WP_HOLDER_RANK || !node || !node->live || node->kind != WP_HOLDER_NODE)
        return wp_loading_refuse(l, "a holder's node is none");
    h->next_rank = node->first_rank;
    node->first_rank = rank;
    return 0;
}

static int load_holders(struct wp_loading *l)
{
    struct wp_index *ix = l->ix;
    uint32_t n = l->head.n_holders, last = WP_NO_HOLDER;
    int rc = wp_frames_enter(l->in, WP_SAVED_HOLDERS, "holders", l->err), why = 0;

    if (rc < 0 || !n)
        return rc;
    ix->holders = wp_budget_alloc(&ix->budget, n, sizeof *ix->holders, &why);
    if (!ix->holders)
        return wp_loading_failed(l, why);
    ix->holders_cap = ix->n_holders = n;
    for (uint32_t i = 0; i < n; i++)
        ix->holders[i].node = ix->holders[i].next_rank = ix->holders[i].first_rank = WP_NO_HOLDER;
    while (rc == 0 && last != n - 1)
        rc = load_holder(l, &last);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = join_node(l, i);
    return rc;
}

/* -- runs -- */

static bool span_may_be(const struct wp_loading *l, uint64_t span, unsigned len)
{
    uint32_t holder = wp_span_holder(span);
    uint8_t tiers = wp_span_tiers(span), sure = wp_span_sure(span);

    if (span >> 49 || holder >= l->ix->n_holders || !l->ix->holders[holder].live ||
        wp_span_hi(span) > len || wp_span_lo(span) >= wp_span_hi(span))
        return false;
    if (span & WP_SPAN_WINDOW)
        return !(span & WP_SPAN_GUESS) && !(span & WP_SPAN_VAGUE) && wp_span_window(span);
    return tiers && !(sure & ~tiers) && !(span & WP_SPAN_VAGUE && sure) &&
           !(span & WP_SPAN_GUESS && tiers & (tiers - 1));
}

/* The windows that a span names are the holder's. */
static bool windows_are(const struct wp_holder *h, uint16_t windows)
{
    for (int k = 0; k < WP_WINDOWS_MAX; k++)
        if (windows >> k & 1 && !h->window[k].used)
            return false;
    return true;
}

/* A span of a holder that has others in the run: they must not lie on each other, and a window's
 * lies on what is held. */
static bool add_span(struct wp_part *part, uint64_t span)
{
    for (unsigned i = wp_span_lo(span); i < wp_span_hi(span); i++)
        if (!(span & WP_SPAN_WINDOW)) {
            if (part->look[i])
                return false;
            part->look[i] = span & WP_SPAN_LOOK;
        } else {
            if (!wp_look_real(part->look[i]) || part->windows[i])
                return false;
            part->windows[i] = wp_span_window(span);
        }
    return true;
}

static int load_span(struct wp_loading *l, uint32_t run, uint64_t span)
{
    struct wp_index *ix = l->ix;
    uint64_t has[2 * WP_SEGMENT], attr = span & WP_SPAN_ATTR;
    uint32_t holder = wp_span_holder(span);
    struct wp_part part;
    bool ok;

    if (!span_may_be(l, span, wp_run_len(wp_run_at(ix, run))))
        return wp_loading_refuse(l, "what a holder has of a run cannot be");
    if (!(span & WP_SPAN_WINDOW) && wp_spans_get(ix, run, holder, has) == 0) {
        ok = wp_spans_put(ix, run, holder, &attr, 1);
    } else {
        wp_part_get(ix, run, holder, &part);
        if ((span & WP_SPAN_WINDOW && !windows_are(&ix->holders[holder], wp_span_window(span))) ||
            !add_span(&part, span))
            return wp_loading_refuse(l, "a holder has a block of a run twice");
        ok = wp_part_put(ix, run, holder, &part);
    }
    return ok ? 0 : wp_loading_failed(l, WP_ENOMEM);
}

/* The place that the run hangs below, and its space. */
static bool parent_may_be(const struct wp_loading *l, const struct wp_saved_run *it,
                          uint32_t *place, uint32_t *space)
{
    const struct wp_run *r;

    *place = WP_NOWHERE;
    *space = it->space;
    if (it->parent == WP_NOWHERE)
        return it->space < l->ix->n_spaces;
    *place = wp_loading_place(l, it->parent);
    if (*place == WP_NOWHERE)
        return false;
    r = wp_run_at(l->ix, wp_place_run(*place));
    *space = wp_own_at(l->ix, wp_place_run(*place))->space;
    /* behind the last block a run would go on itself */
    return it->space == *space &&
           (wp_place_off(*place) + 1 < wp_run_len(r) || r->first + wp_run_len(r) == WP_SEGMENT);
}

static int load_run(struct wp_loading *l, const struct wp_saved_run *it)
{
    struct wp_index *ix = l->ix;
    uint64_t local[WP_SEGMENT], span;
    uint32_t place, space, run;
    int rc;

    if (it->number >= l->head.runs_top || l->run[it->number] || !it->len || it->len > WP_SEGMENT ||
        !parent_may_be(l, it, &place, &space))
        return wp_loading_refuse(l, "a run is none");
    if (!wp_frames_get(l->in, local, it->len * sizeof local[0]))
        return wp_loading_refuse(l, "a run ends too soon");
    if (wp_place_below(ix, space, place, local[0]) != WP_NOWHERE)
        return wp_loading_refuse(l, "a run is told twice");
    rc = wp_place_reserve(ix);
    if (rc < 0)
        return wp_loading_failed(l, rc);
    run = wp_place_run(wp_place_make(ix, space, place, local[0]));
    if (wp_run_at(ix, run)->first + it->len > WP_SEGMENT)
        return wp_loading_refuse(l, "a run goes on beyond its segment");
    if (wp_run_append(ix, run, local + 1, it->len - 1) != it->len - 1)
        return wp_loading_failed(l, WP_ETOOBIG);
    l->run[it->number] = run;
    wp_own_at(ix, run)->stamp = it->stamp;
    for (uint32_t i = 0; rc == 0 && i < it->spans; i++)
        rc = wp_frames_get(l->in, &span, sizeof span)
                 ? load_span(l, run, span)
                 : wp_loading_refuse(l, "what is held of a run ends too soon");
    return rc;
}

static int load_runs(struct wp_loading *l)
{
    struct wp_saved_run it;
    int rc = wp_frames_enter(l->in, WP_SAVED_RUNS, "runs", l->err);

    if (rc < 0)
        return rc;
    l->run = wp_calloc(l->head.runs_top + 1u, sizeof *l->run);
    if (!l->run)
        return wp_loading_failed(l, WP_ENOMEM);
    do {
        if (!wp_frames_get(l->in, &it, sizeof it))
            return wp_loading_refuse(l, "there are fewer than it says");
        rc = it.number ? load_run(l, &it) : 0;
    } while (rc == 0 && it.number);
    for (uint32_t i = 1; rc == 0 && i < l->ix->runs.top; i++)
        if (!wp_own_at(l->ix, i)->child && !wp_run_cover(l->ix, i))
            rc = wp_loading_refuse(l, "a run is good for nothing");
    return rc;
}

/* -- all of it -- */

static int load(struct wp_loading *l)
{
    struct wp_index *ix = l->ix;
    int rc = load_head(l);

    if (rc < 0)
        return rc;
    wp_prefix_init(&ix->prefix, l->head.secret);
    ix->conf.secret = l->head.secret;
    ix->clock = l->head.clock;
    rc = load_spaces(l);
    rc = rc ? rc : load_holders(l);
    if (rc == 0 && wp_census_make(ix) < 0) /* how many words a set has */
        return wp_loading_failed(l, WP_ENOMEM);
    rc = rc ? rc : load_runs(l);
    rc = rc ? rc : wp_load_details(l);
    return rc ? rc : wp_load_books(l);
}

int wp_index_load(struct wp_index **out, const struct wp_index_conf *conf, struct wp_frames_in *in,
                  struct wp_err *err)
{
    struct wp_loading l = {.in = in, .err = err};
    int rc = wp_index_create(&l.ix, conf, err);

    if (rc < 0)
        return rc;
    rc = load(&l);
    wp_free(l.run);
    wp_free(l.shelf_n);
    if (rc < 0) {
        wp_index_destroy(l.ix);
        return rc;
    }
    wp_epoch_reclaim(&l.ix->epoch);
    *out = l.ix;
    return 0;
}

bool wp_index_live(const struct wp_index *ix, uint32_t holder)
{
    struct wp_index *own = (struct wp_index *)ix;
    bool is;

    pthread_mutex_lock(&own->lock);
    is = holder < ix->n_holders && ix->holders[holder].live;
    pthread_mutex_unlock(&own->lock);
    return is;
}
