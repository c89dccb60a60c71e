/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may take a request, and what each would find there: the first step of a decision (place.c), under the fleet's lock.
 */
#include "router/fleet_inner.h"

#include "base/clock.h"
#include "index/identity.h"
#include "router/match.h"

#include <math.h>
#include <stdio.h>

#define FAILURE_US 1e6

static bool avoided(const struct wp_want *want, const struct wp_worker *w)
{
    for (size_t i = 0; i < want->n_avoid; i++)
        if (want->avoid[i] == w)
            return true;
    return want->only && want->only != w;
}

/* How long until something that says no says yes: for Retry-After. */
static uint64_t ready_in(const struct wp_worker *w, uint64_t now_us, const struct wp_config *conf)
{
    uint64_t at = now_us + conf->health.interval_us;

    if (w->breaker == WP_BREAKER_OPEN && w->open_until_us > now_us)
        at = w->open_until_us;
    else if (w->rest_until_us > now_us)
        at = w->rest_until_us;
    return at - now_us;
}

const struct wp_hashes *wp_fleet_hashes(const struct wp_want *want, const struct wp_worker *w)
{
    uint32_t size = want->prompt->kind == WP_PROMPT_BYTES ? WP_CHUNK_BYTES : w->block_size;

    for (size_t i = 0; i < want->prompt->n_sets; i++)
        if (want->prompt->set[i].block_size == size)
            return &want->prompt->set[i];
    return NULL;
}

/* Blocks that can be served from cache at all: never the one with the last token. */
static size_t usable(const struct wp_want *want, const struct wp_hashes *h)
{
    size_t n = want->prompt->kind == WP_PROMPT_TOKENS ? wp_usable_blocks(want->prompt->n_token, h->block_size) : h->n;

    return n < h->n ? n : h->n;
}

static uint32_t as_tokens(const struct wp_want *want, const struct wp_hashes *h, size_t blocks)
{
    if (want->prompt->kind == WP_PROMPT_TOKENS)
        return (uint32_t)(blocks * h->block_size);
    return (uint32_t)((double)blocks * h->block_size / (double)want->prompt->bytes.n * want->tokens);
}

/* Where what is claimed lies: what the index does not say counts as the fastest tier. */
static void spread(struct wp_fleet *f, const struct wp_want *want, const struct wp_hashes *h, const struct wp_rank *r,
                   const struct wp_match *m, struct wp_worker_view *v)
{
    const struct wp_overlap_row *row = wp_overlap_of(&f->overlap, r->holder);
    uint32_t slower = 0;

    v->hit_tokens = as_tokens(want, h, m->claim);
    for (int t = WP_TIER_MAX - 1; row && t > 0; t--) {
        v->hit_tier[t] = as_tokens(want, h, row->tier[t]);
        slower += v->hit_tier[t];
    }
    if (slower > v->hit_tokens) {
        memset(v->hit_tier, 0, sizeof v->hit_tier);
        slower = 0;
    }
    v->hit_tier[0] = v->hit_tokens - slower;
    v->doubtful = row ? as_tokens(want, h, r->unsure ? row->blocks : row->doubtful) : 0;
    if (v->doubtful > v->hit_tokens)
        v->doubtful = v->hit_tokens;
}

static void match(struct wp_fleet *f, const struct wp_want *want, struct wp_seat seat, struct wp_worker_view *v,
                  struct wp_candidate *c, uint32_t *last_space)
{
    const struct wp_hashes *h = want->prompt ? wp_fleet_hashes(want, seat.worker) : NULL;
    bool told = want->prompt && want->prompt->kind == WP_PROMPT_TOKENS;
    struct wp_match m;
    uint32_t space;
    size_t most;

    if (!h || h->n == 0)
        return;
    space = wp_fleet_space(f, want->model->base, h->block_size, want->prompt->kind);
    if (space == 0xFFFFFFFF)
        return;
    most = usable(want, h);
    if (space != *last_space)
        wp_index_overlap(f->index, space, h->local, most, &f->overlap);
    *last_space = space;
    m = wp_match_blocks(wp_overlap_of(&f->overlap, seat.rank->holder), f->history, seat.rank, space, told, h->chain, most);
    spread(f, want, h, seat.rank, &m, v);
    v->index_tokens = as_tokens(want, h, m.indexed > m.history ? m.indexed : m.history);
    v->fresh_blocks = (uint32_t)h->n;
    c->index_tokens = as_tokens(want, h, m.indexed);
    c->history_tokens = as_tokens(want, h, m.history);
    c->in_flight_tokens = as_tokens(want, h, m.together > m.history ? m.together - m.history : 0);
}

static void look_at(struct wp_fleet *f, const struct wp_want *want, struct wp_seat seat, size_t i, uint64_t now_us,
                    uint32_t *last_space)
{
    const struct wp_worker *w = seat.worker;
    const struct wp_load *l = &seat.rank->load;
    struct wp_worker_view *v = &f->view[i];
    struct wp_candidate *c = &f->shown[i];

    *v = (struct wp_worker_view){
        .key = seat.rank->key,
        .in_flight = l->in_flight + seat.rank->more + (uint32_t)((w->foreign.running + w->foreign.waiting) / w->n_ranks),
        .decoding = l->decoding + seat.rank->more - seat.rank->more_waiting + (uint32_t)(w->foreign.running / w->n_ranks),
        .kv_tokens = l->kv_tokens,
        .waiting = l->in_flight - l->decoding + seat.rank->more_waiting + (uint32_t)(w->foreign.waiting / w->n_ranks),
        .prefill_tokens = l->prefill_tokens,
        .pinned = w->profile.gpu_tokens ? fmin(1, (double)l->kv_tokens / (double)w->profile.gpu_tokens) : 0,
        .active_blocks = w->block_size ? (uint32_t)((l->kv_tokens + l->prefill_tokens) / w->block_size) : 0,
        .wait_us = wp_worker_wait_us(w, seat.rank, now_us),
        .block_size = w->block_size,
        .profile = &w->profile,
        .correction = 1,
        .error = w->error,
    };
    *c = (struct wp_candidate){.rank = seat.rank->number, .in_flight = v->in_flight};
    snprintf(c->worker, sizeof c->worker, "%s", w->conf.id);
    match(f, want, seat, v, c, last_space);
    c->hit_tokens = v->hit_tokens;
    memcpy(c->hit_tier, v->hit_tier, sizeof c->hit_tier);
    c->doubtful = v->doubtful;
    f->candidate[i] = seat;
}

static size_t look_at_ranks(struct wp_fleet *f, const struct wp_want *want, struct wp_worker *w, size_t n, uint64_t now_us,
                            uint32_t *last_space)
{
    for (uint32_t r = 0; r < w->n_ranks; r++)
        if (!want->ranked || want->rank == r || want->rank >= w->n_ranks)
            look_at(f, want, (struct wp_seat){w, &w->rank[r]}, n++, now_us, last_space);
    return n;
}

static bool is_too_long(const struct wp_want *want, const struct wp_engine_model *m)
{
    return m && m->max_len && want->prompt && want->prompt->kind == WP_PROMPT_TOKENS && want->tokens > m->max_len;
}

bool wp_fleet_has_warm(const struct wp_fleet *f, struct wp_str model, uint64_t now_us)
{
    uint64_t most = f->conf->limits.per_worker;
    const char *why;

    if (f->conf->health.slow_start == 0)
        return false;
    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (w->warmed >= WP_WARM && wp_worker_serves(w, model) && wp_worker_ready(w, now_us, &why) && (!most || wp_worker_in_flight(w) < most))
            return true;
    }
    return false;
}

/*
 * An engine that fails at once has nothing to do, and would look best.  What others lose by a failure is put at a second; whoever fails least is
 * not shunned, for somebody has to take it.
 */
static void shun_failing(struct wp_fleet *f, size_t n, uint64_t now_us)
{
    double least = 1;

    for (size_t i = 0; i < n; i++)
        least = fmin(least, wp_worker_failing(f->candidate[i].worker, now_us));
    for (size_t i = 0; i < n; i++) {
        double more = wp_worker_failing(f->candidate[i].worker, now_us) - least;

        f->view[i].wait_us += more > 0 ? FAILURE_US * more / (1.05 - more) : 0;
    }
}

struct seats { /* what was found, and why there is no more */
    size_t n, busy, too_long, away, cold;
};

static void look_for_seats(struct wp_fleet *f, const struct wp_want *want, bool spare_cold, uint64_t now_us, struct seats *s, const char **why,
                           uint64_t *retry_after_us)
{
    uint32_t last_space = 0xFFFFFFFF;

    *s = (struct seats){0};
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);
        const struct wp_engine_model *m = want->model ? wp_worker_serves(w, want->model->name) : NULL;
        uint64_t in_us;
        const char *not_now;

        if ((want->model && !m) || avoided(want, w))
            continue;
        if (is_too_long(want, m)) {
            s->too_long++;
        } else if (want->again) { /* takes over the place of the attempt that it repeats: what that one fills up must not keep it out */
            s->n = look_at_ranks(f, want, w, s->n, now_us, &last_space);
        } else if (!wp_worker_ready(w, now_us, &not_now)) {
            if (now_us < w->crowd_until_us) /* it would say 429 */
                s->busy++;
            else
                s->away++;
            *why = not_now;
            in_us = ready_in(w, now_us, f->conf);
            if (in_us < *retry_after_us)
                *retry_after_us = in_us;
        } else if (f->conf->limits.per_worker && wp_worker_in_flight(w) >= f->conf->limits.per_worker) {
            s->busy++;
        } else if (spare_cold && wp_worker_is_cold(w, f->conf)) {
            s->cold++;
        } else {
            s->n = look_at_ranks(f, want, w, s->n, now_us, &last_space);
        }
    }
}

size_t wp_fleet_candidates(struct wp_fleet *f, const struct wp_want *want, uint64_t now_us, enum wp_place_result *no,
                           const char **why, uint64_t *retry_after_us)
{
    bool spare_cold = want->model && !want->only && wp_fleet_has_warm(f, want->model->name, now_us);
    struct seats s;

    *why = "worker";
    *retry_after_us = f->conf->health.interval_us;
    look_for_seats(f, want, spare_cold, now_us, &s, why, retry_after_us);
    if (s.n == 0 && s.cold) /* those others cannot take this one */
        look_for_seats(f, want, false, now_us, &s, why, retry_after_us);
    shun_failing(f, s.n, now_us);
    *no = s.busy ? WP_PLACE_BUSY : s.too_long && !s.away ? WP_PLACE_TOO_LONG : WP_PLACE_NOBODY;
    if (s.busy)
        *why = "queue";
    return s.n;
}
