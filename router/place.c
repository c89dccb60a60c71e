/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decision, step by step, all under the fleet's lock: who may take the request and how much of its prompt each
 * of them has (seats.c), what the policy makes of that (choose), and the record of it.  Then the request counts on its worker until
 * wp_fleet_end(), whatever becomes of it.
 */
#include "router/fleet_inner.h"

#include "base/clock.h"
#include "index/identity.h"
#include "router/hold.h"
#include "router/recorder.h"
#include "router/tenants.h"

#include <math.h>
#include <stdio.h>

uint32_t wp_fleet_space(struct wp_fleet *f, struct wp_str base, uint32_t block_size, enum wp_prompt_kind kind)
{
    bool bytes = kind == WP_PROMPT_BYTES;
    uint64_t key = wp_hash_next(wp_hash_item(base), (uint64_t)block_size << 1 | bytes), found;
    uint32_t space;
    struct wp_err err;

    if (wp_map_get(&f->spaces, key, &found))
        return (uint32_t)found;
    if (wp_index_space(f->index, base, block_size, WP_STR(""), bytes ? WP_SPACE_BYTES : WP_SPACE_TOKENS, &space, &err) < 0 ||
        wp_map_put(&f->spaces, key, space) < 0)
        return 0xFFFFFFFF;
    return space;
}

size_t wp_fleet_choose(struct wp_fleet *f, const struct wp_want *want, size_t n, uint64_t now_us, uint64_t draw)
{
    const struct wp_hashes *h = want->prompt && want->prompt->n_sets ? &want->prompt->set[0] : NULL;
    struct wp_ask *ask = &f->ask;
    size_t key_blocks, best;

    *ask = (struct wp_ask){
        .now_us = now_us,
        .draw = draw,
        .tokens = want->tokens,
        .exact = want->prompt && want->prompt->kind == WP_PROMPT_TOKENS,
        .max_tokens = want->max_tokens,
        .session_key = want->session_key,
        .queued = f->n_held > 0,
    };
    if (h && h->n) {
        ask->chain = h->chain;
        ask->n_chain = h->n;
        ask->chain_tokens = h->block_size;
        key_blocks = (size_t)f->conf->policy.conf.prefix_blocks * 512 / h->block_size;
        if (want->prompt->kind == WP_PROMPT_BYTES)
            key_blocks = (size_t)(f->conf->policy.conf.prefix_blocks * 512 * want->model->bytes_per_token) / h->block_size;
        if (key_blocks > h->n)
            key_blocks = h->n;
        ask->prefix_key = wp_hash_next(wp_hash_item(want->model->base), h->chain[key_blocks ? key_blocks - 1 : 0]);
    }
    wp_fleet_price_room(f, want, n, now_us);
    best = f->policy->ops->choose(f->policy, ask, f->view, n, f->verdict);
    for (size_t i = 0; i < n; i++)
        f->shown[i].verdict = f->verdict[i];
    return best;
}

struct wp_worker *wp_fleet_idlest(struct wp_fleet *f, struct wp_str model, const uint64_t but[], size_t n)
{
    struct wp_worker *best = NULL;
    uint64_t now = wp_now_us();
    unsigned ties = 0;
    const char *why;

    pthread_mutex_lock(&f->lock);
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);
        bool not_this = !wp_worker_serves(w, model) || !wp_worker_ready(w, now, &why);

        for (size_t i = 0; !not_this && i < n; i++)
            not_this = but[i] == w->key;
        if (not_this || (best && wp_worker_in_flight(w) > wp_worker_in_flight(best)))
            continue;
        ties = best && wp_worker_in_flight(w) == wp_worker_in_flight(best) ? ties + 1 : 1;
        if (ties == 1 || wp_rng_below(&f->rng, ties) == 0)
            best = w;
    }
    if (best)
        wp_worker_ref(best);
    pthread_mutex_unlock(&f->lock);
    return best;
}

/* The chosen one first, then the cheapest; candidates without a price stay in order. */
static void keep_best(struct wp_fleet *f, struct wp_record *r, size_t n, size_t chosen)
{
    size_t best[WP_RECORD_CANDIDATES] = {chosen};

    r->n = 1;
    for (size_t i = 0; i < n; i++) {
        size_t at = r->n;
        double price = f->verdict[i].price;

        if (i == chosen)
            continue;
        while (at > 1 && price < f->verdict[best[at - 1]].price)
            at--;
        if (at == WP_RECORD_CANDIDATES)
            continue;
        if (r->n == WP_RECORD_CANDIDATES)
            r->n--;
        memmove(&best[at + 1], &best[at], (r->n - at) * sizeof best[0]);
        best[at] = i;
        r->n++;
    }
    for (size_t i = 0; i < r->n; i++) {
        r->candidate[i] = f->shown[best[i]];
        wp_seen_of(&r->seen[i], &f->view[best[i]]);
    }
}

static const char *candidate_name(void *arg, size_t i)
{
    return ((const struct wp_fleet *)arg)->candidate[i].worker->conf.id;
}

/* id 0: somebody only asked. */
static void record_whole(struct wp_fleet *f, size_t n, size_t chosen, uint64_t id)
{
    struct wp_decision d = {.id = id,
                            .wall_us = wp_wall_us(),
                            .placed = id != 0,
                            .ask = &f->ask,
                            .w = f->view,
                            .v = f->verdict,
                            .n = n,
                            .chosen = chosen,
                            .name = candidate_name,
                            .arg = f};

    if (f->recorder)
        wp_recorder_decision(f->recorder, &d);
}

static uint64_t record(struct wp_fleet *f, const struct wp_want *want, const struct wp_placement *p, size_t n, size_t chosen, uint64_t now_us, uint64_t draw)
{
    struct wp_record *r = wp_records_new(&f->records);

    r->at_us = now_us;
    r->wall_us = wp_wall_us();
    r->draw = draw;
    if (want->id)
        snprintf(r->request_id, sizeof r->request_id, "%s", want->id);
    if (want->model)
        snprintf(r->model, sizeof r->model, "%.*s", (int)want->model->name.n, want->model->name.p);
    snprintf(r->policy, sizeof r->policy, "%s", f->policy_name);
    snprintf(r->chosen, sizeof r->chosen, "%s", f->candidate[chosen].worker->conf.id);
    r->chosen_rank = f->candidate[chosen].rank->number;
    r->tokens = want->tokens;
    r->max_tokens = want->max_tokens;
    r->exact = want->prompt && want->prompt->kind == WP_PROMPT_TOKENS;
    r->n_workers = n;
    r->predicted_ttft_us = f->verdict[chosen].ttft_us;
    r->low_us = p->low_us;
    r->high_us = p->high_us;
    r->settings = f->conf->policy.conf;
    r->room = f->ask.room;
    r->queued = f->ask.queued;
    snprintf(r->tenant, sizeof r->tenant, "%s", want->tenant ? want->tenant->name : "");
    r->priority = want->priority;
    r->target_us = want->target_us;
    r->held_us = want->held_us ? *want->held_us : 0;
    keep_best(f, r, n, chosen);
    return r->id;
}

/* What all workers may keep in history together is as much as the index may; a block takes 64 bytes at most. */
static uint64_t history_share(const struct wp_fleet *f)
{
    uint64_t cap = wp_config_index_cap(f->conf);

    return cap ? cap / WP_HISTORY_BLOCK_BYTES / (f->n_ranks ? f->n_ranks : 1) : UINT32_MAX;
}

/*
 * History keeps as many blocks as the worker's caches hold, within its share; told again when that changes.  Capacities are
 * an engine's word, or a person's: no number of theirs makes us run out of memory.
 */
static void size_history(struct wp_fleet *f, struct wp_seat seat, uint32_t space, const struct wp_hashes *h, const struct wp_want *want)
{
    bool bytes = want->prompt->kind == WP_PROMPT_BYTES;
    double tokens_per_block = bytes ? h->block_size / want->model->bytes_per_token : h->block_size;
    uint64_t key = (uint64_t)seat.rank->holder << 32 | space, was = 0;
    uint64_t blocks = (uint64_t)fmin((double)seat.worker->kv_tokens / tokens_per_block, (double)history_share(f));
    struct wp_err err;

    if (wp_map_get(&f->sized, key, &was) && blocks <= was + was / 8 && was <= blocks + blocks / 8)
        return; /* the ratio of bytes to tokens drifts; the size follows in steps */
    if (wp_history_size(f->history, seat.rank->holder, space, blocks, &err) == 0)
        wp_map_put(&f->sized, key, blocks);
}

/* The repeat of a straggler goes to an open breaker's worker, too, but is not what the breaker waits for. */
static bool may_probe(const struct wp_worker *w, const struct wp_placement *repeated)
{
    return w->breaker != WP_BREAKER_CLOSED && (!repeated || wp_fleet_decides(w, repeated));
}

/* Where the prompt's blocks will serve others, by what is known of the rank now. */
struct wp_history_ends wp_fleet_ends(const struct wp_rank *r, const struct wp_hashes *h, uint32_t tokens)
{
    size_t usable = wp_usable_blocks(tokens, h->block_size);

    return wp_history_ends(usable < h->n ? usable : h->n, r->window);
}

static void begin(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, size_t chosen, uint64_t now_us)
{
    struct wp_seat seat = f->candidate[chosen];
    struct wp_worker *w = seat.worker;
    const struct wp_worker_view *v = &f->view[chosen];
    double work = wp_prefill_us(&w->profile, v->hit_tokens, want->tokens);

    *p = (struct wp_placement){
        .worker = wp_worker_ref(w),
        .rank = seat.rank,
        .rank_number = seat.rank->number,
        .n_ranks = w->n_ranks,
        .hashes = want->prompt ? wp_fleet_hashes(want, w) : NULL,
        .tokens = want->tokens,
        .more = want->sequences > 1 ? want->sequences - 1 : 0,
        .hit_tokens = v->hit_tokens,
        .ttft_us = f->verdict[chosen].ttft_us,
        .placed_us = now_us,
        .cached_tokens = -1,
        .probe_of_breaker = may_probe(w, want->again),
        .sample = {.from = v->hit_tokens,
                   .to = want->tokens,
                   .decoding = v->decoding,
                   .kv_tokens = (double)v->kv_tokens,
                   .queued = !wp_list_empty(&seat.rank->load.waiting)},
        .teaches = v->hit_tier[0] == v->hit_tokens && !(w->foreign.waiting > 0) && want->sequences <= 1,
        .unsure = v->doubtful > 0,
        .waits = v->wait_us > 0,
        .low_us = NAN,
        .high_us = NAN,
        .told_prompt = -1,
        .told_cached = -1,
    };
    if (isfinite(p->ttft_us))
        wp_interval_of(&w->interval[p->waits], p->ttft_us, &p->low_us, &p->high_us);
    memcpy(p->hit_tier, v->hit_tier, sizeof p->hit_tier);
    if (want->model)
        wp_fleet_charge_to(f, p, want);
    w->requests++;
    if (p->probe_of_breaker) {
        w->breaker = WP_BREAKER_HALF_OPEN;
        w->half_open_busy = true;
        w->half_open_by = p;
    }
    f->mean_tokens += 0.05 * ((double)(want->tokens - v->hit_tokens) - f->mean_tokens);
    wp_load_begin(&seat.rank->load, &p->item, &w->profile, now_us, work, want->tokens - v->hit_tokens, want->tokens);
    seat.rank->more += p->more;
    seat.rank->more_waiting += p->more;
    if (!p->hashes || p->hashes->n == 0)
        return;
    p->space = wp_fleet_space(f, want->model->base, p->hashes->block_size, want->prompt->kind);
    if (p->space == 0xFFFFFFFF)
        return;
    size_history(f, seat, p->space, p->hashes, want);
    p->claimed_blocks = f->shown[chosen].index_tokens / p->hashes->block_size;
    p->claim_sure = seat.rank->live && !v->doubtful;
    p->exact = want->prompt->kind == WP_PROMPT_TOKENS;
    if (p->exact)
        p->ends = wp_fleet_ends(seat.rank, p->hashes, p->tokens);
    p->in_flight_noted = wp_history_begin(f->history, seat.rank->holder, p->space, p->hashes->chain, p->hashes->n, p->ends) == 0;
}

static bool is_late(const struct wp_fleet *f, const struct wp_want *want, size_t i, uint64_t now_us)
{
    return want->due_us && (double)now_us + f->verdict[i].ttft_us > (double)want->due_us; /* no prediction: it is not known to be */
}

/* Those where it would come too late go.  Returns how many are left; *over_us: by how much the best of those that went is late. */
static size_t drop_late(struct wp_fleet *f, const struct wp_want *want, size_t n, uint64_t now_us, double *over_us)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++) {
        if (is_late(f, want, i, now_us)) {
            *over_us = fmin(*over_us, (double)now_us + f->verdict[i].ttft_us - (double)want->due_us);
            continue;
        }
        f->candidate[left] = f->candidate[i];
        f->view[left] = f->view[i];
        f->shown[left++] = f->shown[i];
    }
    return left;
}

/*
 * A request that says when its first token is due goes where that is predicted to be kept: the policy's choice among those alone.  It does not
 * matter to the policy how many others there were, so the decision can be made again from its record.
 */
static enum wp_place_result decide(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, size_t n, uint64_t now, const char **why,
                                   uint64_t *retry_us)
{
    uint64_t draw = wp_rng_next(&f->rng);
    size_t chosen = n ? wp_fleet_choose(f, want, n, now, draw) : WP_NO_WORKER;
    double over = INFINITY;

    if (chosen >= n)
        return WP_PLACE_NOBODY;
    while (chosen < n && is_late(f, want, chosen, now)) {
        n = drop_late(f, want, n, now, &over);
        chosen = n ? wp_fleet_choose(f, want, n, now, draw) : WP_NO_WORKER;
    }
    if (chosen >= n) {
        *why = "deadline";
        *retry_us = over < 3.6e9 ? (uint64_t)over : 0;
        return WP_PLACE_LATE;
    }
    begin(f, want, p, chosen, now);
    if (f->policy->ops->placed)
        f->policy->ops->placed(f->policy, &f->ask, &f->view[chosen]);
    if (!want->again)
        wp_fleet_note_asked(f, want, p, n, now);
    p->record = record(f, want, p, n, chosen, now, draw);
    record_whole(f, n, chosen, p->record);
    return WP_PLACED;
}

enum wp_place_result wp_fleet_place_now(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, uint64_t now_us, const char **why,
                                        uint64_t *retry_after_us)
{
    enum wp_place_result no;
    size_t n = wp_fleet_candidates(f, want, now_us, &no, why, retry_after_us);

    return n ? decide(f, want, p, n, now_us, why, retry_after_us) : no;
}

enum wp_place_result wp_fleet_place_or_hold(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, struct wp_hold *hold,
                                            const char **why, uint64_t *retry_after_us)
{
    enum wp_hold_result held = WP_HOLD_NO, asleep = WP_HOLD_NO;
    enum wp_place_result no, result;
    uint64_t now = wp_now_us();
    size_t n;

    pthread_mutex_lock(&f->lock);
    n = wp_fleet_candidates(f, want, now, &no, why, retry_after_us);
    if (hold && (n || (no == WP_PLACE_BUSY && want->model && wp_fleet_full(f, want->model->base, now))))
        held = wp_fleet_hold(f, hold, want, p, n, now, why, retry_after_us);
    else if (hold && no == WP_PLACE_NOBODY)
        asleep = wp_fleet_hold_asleep(f, hold, want, p, now, retry_after_us);
    if (asleep == WP_HOLD_FULL)
        *why = "wake";
    if (asleep == WP_HOLD_HELD || held == WP_HOLD_HELD || held == WP_HOLD_FULL)
        result = held == WP_HOLD_FULL ? WP_PLACE_BUSY : WP_PLACE_HELD;
    else
        result = n ? decide(f, want, p, n, now, why, retry_after_us) : no;
    if (hold && result == WP_PLACED)
        wp_fleet_charge_prompt(p, now);
    pthread_mutex_unlock(&f->lock);
    return result;
}

enum wp_place_result wp_fleet_place(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, const char **why,
                                    uint64_t *retry_after_us)
{
    return wp_fleet_place_or_hold(f, want, p, NULL, why, retry_after_us);
}

int wp_fleet_explain(struct wp_fleet *f, const struct wp_want *want, struct wp_buf *out)
{
    enum wp_place_result no;
    uint64_t now = wp_now_us(), retry;
    struct wp_seen seen;
    const char *why;
    size_t n, chosen;
    int rc;

    pthread_mutex_lock(&f->lock);
    n = wp_fleet_candidates(f, want, now, &no, &why, &retry);
    chosen = n ? wp_fleet_choose(f, want, n, now, wp_rng_next(&f->rng)) : WP_NO_WORKER;
    if (n)
        record_whole(f, n, chosen, 0);
    rc = wp_buf_adds(out, "{\"chosen\":");
    rc = rc ? rc : chosen < n ? wp_buf_json(out, wp_str_of(f->candidate[chosen].worker->conf.id)) : wp_buf_adds(out, "null");
    if (rc == 0 && chosen < n)
        rc = wp_buf_printf(out, ",\"chosen_rank\":%u", f->candidate[chosen].rank->number);
    if (rc == 0 && chosen >= n)
        rc = wp_buf_printf(out, ",\"why\":\"%s\"", why);
    rc = rc ? rc : wp_buf_printf(out, ",\"policy\":\"%s\",\"tokens\":%u,\"kind\":\"%s\",\"candidates\":[", f->policy_name, want->tokens,
                                 want->prompt && want->prompt->kind == WP_PROMPT_TOKENS  ? "tokens"
                                 : want->prompt && want->prompt->kind == WP_PROMPT_BYTES ? "bytes"
                                                                                         : "none");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = i ? wp_buf_adds(out, ",") : 0;
        wp_seen_of(&seen, &f->view[i]);
        rc = rc ? rc : wp_candidate_json(&f->shown[i], &seen, out);
    }
    rc = rc ? rc : wp_buf_adds(out, "]");
    rc = rc ? rc : wp_settings_json(&f->conf->policy.conf, &f->ask.room, f->ask.queued, out);
    rc = rc ? rc : wp_fleet_queue_json(f, want, n, out);
    pthread_mutex_unlock(&f->lock);
    return rc ? rc : wp_buf_adds(out, "}");
}
