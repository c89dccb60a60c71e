/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of a decision, all under the fleet's lock: its first token, its end, and what the answer says of the worker: of what it holds
 * (confirm, judge), of how fast it is (learn), of whether it is well (wp_worker_outcome).
 */
#include "router/lend.h"
#include "router/fleet_inner.h"

#include "base/clock.h"
#include "index/identity.h"
#include "router/hold.h"
#include "router/recorder.h"

#include <math.h>
#include <stdio.h>

/*
 * Its first token came.  What that says of the engine's costs is known when the answer's usage has told what was cached, so it is learnt from at
 * the end; how good the prediction was is known now.
 */
static void measure(struct wp_fleet *f, struct wp_placement *p, uint64_t now_us)
{
    struct wp_worker *w = p->worker;
    double actual = (double)(now_us - p->placed_us);
    int side;

    wp_meter_first(&p->rank->meter, &p->sample, &w->costs, p->placed_us, now_us, !p->whole);
    if (p->whole || !isfinite(p->ttft_us))
        return;
    side = wp_interval_hear(&w->interval[p->waits], p->ttft_us, actual);
    wp_count(f->interval[side < 0 ? 0 : side == 0 ? 1 : 2], 1);
    wp_observe(f->price_error, (actual - p->ttft_us) / 1e6);
}

static void learn(struct wp_fleet *f, struct wp_placement *p)
{
    struct wp_sample *s = &p->sample;
    bool told = p->told_prompt > 0 && p->told_cached >= 0 && p->told_cached <= p->told_prompt;

    if (!p->teaches || (p->unsure && !told) || p->worker->gone)
        return;
    if (!p->exact && p->told_prompt > 0) { /* its length was estimated, and so was its hit */
        s->from = (uint32_t)((double)s->from * (double)p->told_prompt / s->to);
        s->to = (uint32_t)p->told_prompt;
    }
    if (told)
        s->from = (uint32_t)p->told_cached;
    if (s->from < s->to && wp_calibration_take(&p->worker->learnt, s, &p->worker->costs, p->exact || p->told_prompt > 0))
        wp_fleet_learnt(f, p->worker);
}

/* What of it floats finds its place. */
static void graft(struct wp_fleet *f, const struct wp_placement *p)
{
    if (p->rank->fed && p->first_seen && p->exact && !wp_fleet_rank_gone(p))
        wp_index_graft(f->index, p->rank->holder, p->space, p->hashes->local, p->hashes->n);
}

/* What the rank's events claimed is in doubt from now on; its feed will ask for everything again. */
static void distrust(struct wp_fleet *f, const struct wp_placement *p)
{
    struct wp_rank *r = p->rank;

    snprintf(r->resync_why, sizeof r->resync_why, "%llu of %llu answers in a row had fewer cached tokens than its events claimed",
             (unsigned long long)r->trust.since_wrong, (unsigned long long)r->trust.since_claims);
    wp_index_doubt(f->index, r->holder);
    wp_count(p->worker->resyncs, 1);
    r->resync_due = true;
}

static void judge(struct wp_fleet *f, const struct wp_placement *p, size_t blocks)
{
    double drift = (double)p->claimed_blocks - (double)blocks;

    if (!p->exact || p->more) /* of several sequences some found what others had just stored */
        return;
    wp_observe(p->worker->drift, drift);
    if (p->claimed_blocks && p->claim_sure && wp_trust_hear(&p->rank->trust, drift > 0, wp_now_us()))
        distrust(f, p);
}

/* What its events told is right or wrong as far as the engine says so itself. */
static void confirm(struct wp_fleet *f, const struct wp_placement *p)
{
    size_t usable = p->hashes ? wp_usable_blocks(p->tokens, p->hashes->block_size) : 0;

    if (p->cached_tokens < 0 || !p->rank->fed || wp_fleet_rank_gone(p) || usable == 0 || p->space == 0xFFFFFFFF)
        return;
    wp_index_confirm(f->index, p->rank->holder, p->space, p->hashes->local, usable < p->hashes->n ? usable : p->hashes->n,
                     (size_t)p->cached_tokens / p->hashes->block_size);
    judge(f, p, (size_t)p->cached_tokens / p->hashes->block_size);
}

void wp_fleet_first(struct wp_fleet *f, struct wp_placement *p)
{
    uint64_t now = wp_now_us();
    double actual = (double)(now - p->placed_us);
    struct wp_worker *w = p->worker;
    struct wp_record *r;

    if (!w || p->first_seen)
        return;
    p->first_seen = true;
    p->actual_us = actual;
    pthread_mutex_lock(&f->lock);
    wp_load_first(&p->rank->load, &p->item, &w->profile, now);
    p->rank->more_waiting -= p->more;
    if (p->in_flight_noted && !wp_fleet_rank_gone(p))
        wp_history_note(f->history, p->rank->holder, p->space, p->hashes->chain, p->hashes->n,
                        p->exact ? wp_fleet_ends(p->rank, p->hashes, p->tokens) : p->ends);
    /* What a window has left behind is free while the answer is still being generated, and may go: from here on the events say it. */
    if (!p->rank->live || p->rank->window || !p->exact)
        wp_fleet_flown(f, p, p->rank->live && p->exact ? now : 0);
    measure(f, p, now);
    r = wp_records_at(&f->records, p->record);
    if (r)
        r->actual_ttft_us = actual;
    wp_fleet_release_held(f, now);
    pthread_mutex_unlock(&f->lock);
}

void wp_fleet_tokens(struct wp_fleet *f, struct wp_placement *p, uint32_t n)
{
    if (!p->worker)
        return;
    pthread_mutex_lock(&f->lock);
    wp_load_token(&p->rank->load, &p->item, n);
    wp_fleet_charge(p, n, wp_now_us());
    pthread_mutex_unlock(&f->lock);
}

void wp_fleet_answered(struct wp_fleet *f, struct wp_placement *p, uint64_t tokens)
{
    if (!p->line || tokens <= p->charged)
        return;
    pthread_mutex_lock(&f->lock);
    wp_fleet_charge(p, tokens - p->charged, wp_now_us());
    pthread_mutex_unlock(&f->lock);
}

void wp_fleet_end(struct wp_fleet *f, struct wp_placement *p, enum wp_outcome o, uint64_t rest_us)
{
    struct wp_worker *w = p->worker;
    uint64_t now = wp_now_us();
    struct wp_record *r;

    if (!w)
        return;
    pthread_mutex_lock(&f->lock);
    wp_load_end(&p->rank->load, &p->item, &w->profile, now);
    p->rank->more -= p->more;
    p->rank->more_waiting -= p->first_seen ? 0 : p->more;
    graft(f, p);
    wp_fleet_flown(f, p, now);
    confirm(f, p);
    if (o == WP_OUTCOME_GOOD)
        learn(f, p);
    if (!w->gone)
        wp_count(w->ended[o], 1);
    if (o == WP_OUTCOME_BUSY)
        wp_worker_busy(w, p->placed_us, rest_us, f->conf, now);
    else if (o == WP_OUTCOME_GOOD)
        wp_worker_served(w);
    else if (o == WP_OUTCOME_FAILED)
        wp_worker_failed(w, now);
    /* Others than the one that decides are stragglers of the time before it opened, or were repeated: a burst opens it once. */
    if (wp_fleet_decides(w, p) || (w->breaker == WP_BREAKER_CLOSED && p->placed_us > w->opened_us))
        wp_worker_outcome(w, o, f->conf, now);
    r = wp_records_at(&f->records, p->record);
    if (r)
        snprintf(r->outcome, sizeof r->outcome, "%s", wp_outcome_names[o]);
    if (f->recorder)
        wp_recorder_outcome(f->recorder, p->record, p->actual_us, wp_outcome_names[o]);
    if (wp_fleet_rank_gone(p) && p->rank->load.in_flight == 0)
        wp_index_drop(f->index, p->rank->holder);
    if (p->rank->old)
        wp_worker_sweep_ranks(w);
    wp_fleet_release_held(f, now);
    pthread_mutex_unlock(&f->lock);
    p->worker = NULL;
    wp_worker_unref(w);
}
