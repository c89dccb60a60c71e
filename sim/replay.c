/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One replay.  The cluster plays what happens up to the next arrival and tells the brain; the brain
 * is asked where the request goes, and the cluster takes it there.  A request that the brain holds
 * is placed later, when the brain says so: after something has ended, or at a time that it names.
 */
#include "sim/replay.h"
#include "base/mem.h"
#include "sim/brain.h"

#include <stdio.h>

struct run {
    const struct wp_replay_conf *conf;
    const struct wp_plays *plays;
    struct wp_brain *brain;
    struct wp_cluster *cluster;
    struct wp_report *report;
    struct wp_err err; /* the first that came inside a callback */
    int rc;
};

void wp_replay_conf_init(struct wp_replay_conf *c)
{
    *c = (struct wp_replay_conf){
        .workers = 16,
        .profile = *wp_profile_default(),
        .link_bytes_per_s = 25e9,
        .link_setup_us = 2000,
        .store_bytes_per_s = 20e9,
        .seed = 1,
    };
    wp_policy_conf_init(&c->policy_conf);
}

static uint64_t number_of(const struct run *r, const struct wp_play *p)
{
    return (uint64_t)(p - r->plays->play);
}

/* ---- what the brain is told ---- */

static void on_block(void *arg, uint64_t at_us, size_t worker, uint8_t tier, bool stored,
                     uint64_t id)
{
    struct run *r = arg;
    bool store = worker == r->conf->workers;

    wp_brain_block(r->brain, at_us + r->conf->stale_us,
                   store ? WP_BRAIN_NO_WORKER : (uint32_t)worker, store ? WP_BRAIN_STORE : tier,
                   stored, id);
}

static void on_state(void *arg, uint64_t at_us, size_t worker, const struct wp_cluster_state *s)
{
    struct run *r = arg;
    struct wp_brain_state state = {
        .prefill_tokens = s->prefill_tokens,
        .waiting = s->waiting,
        .in_flight = s->in_flight,
        .decoding = s->decoding,
        .kv_tokens = s->kv_tokens,
        .pinned_blocks = s->pinned,
    };

    wp_brain_state(r->brain, at_us + r->conf->stale_us, at_us, (uint32_t)worker, &state);
    if (r->conf->timeline)
        wp_timeline_set(r->conf->timeline, worker, at_us, 1e-6 * s->prefill_us);
}

static void note_held(struct run *r, uint64_t now_us)
{
    struct wp_brain_stats s;

    if (!r->conf->timeline)
        return;
    wp_brain_stats(r->brain, &s);
    wp_timeline_set(r->conf->timeline, r->conf->workers, now_us, (double)s.held);
}

static void on_first(void *arg, uint64_t at_us, size_t worker, const struct wp_play *p)
{
    struct run *r = arg;

    (void)worker;
    wp_brain_first(r->brain, at_us, number_of(r, p));
    if (r->conf->record)
        wp_decisions_out_first(r->conf->record, number_of(r, p), (double)(at_us - p->at_us));
}

static void fail(struct run *r, int rc, const struct wp_err *err)
{
    if (r->rc < 0)
        return;
    r->rc = rc;
    r->err = *err;
}

static void sample(struct run *r, const struct wp_outcome *o)
{
    const struct wp_play *p = o->play;
    struct wp_err err = WP_ERR_INIT;
    char name[24];
    struct wp_sample s = {
        .worker = name,
        .prompt = p->input,
        .output = p->output,
        .hit = {[WP_HIT_GPU] = o->gpu,
                [WP_HIT_CPU] = o->cpu,
                [WP_HIT_DISK] = o->disk,
                [WP_HIT_FETCHED] = o->fetched},
        .ttft_s = 1e-6 * (double)(o->first_us - p->at_us),
        .e2e_s = 1e-6 * (double)(o->done_us - p->at_us),
        .itl_s = p->output > 1 ? 1e-6 * (double)(o->done_us - o->first_us) / (p->output - 1) : 0,
        .cold_s = 1e-6 * wp_prefill_us(&r->conf->profile, 0, p->input),
        .bytes_fetched = o->bytes_fetched,
    };

    snprintf(name, sizeof name, "%zu", o->worker);
    if (wp_report_add(r->report, &s) < 0)
        fail(r, wp_fail(&err, WP_ENOMEM, "out of memory for a report"), &err);
}

static void on_end(void *arg, uint64_t at_us, size_t worker, const struct wp_outcome *o)
{
    struct run *r = arg;

    (void)worker;
    wp_brain_end(r->brain, at_us, number_of(r, o->play));
    if (!o->play->warm)
        sample(r, o);
    if (r->conf->on_end)
        r->conf->on_end(r->conf->on_end_arg, o->play, o);
}

/* The mind has refused it, so that its tenant crowds nobody out. */
static void on_refused(void *arg, uint64_t i)
{
    struct run *r = arg;
    const struct wp_play *p = &r->plays->play[i];

    if (!p->warm)
        (void)wp_report_add(r->report, &(struct wp_sample){.failed = true});
    if (r->conf->on_end)
        r->conf->on_end(r->conf->on_end_arg, p, NULL);
}

/* ---- where requests go ---- */

/* Such a one is an error of its own, not of the replay. */
static bool never_fits(const struct run *r, const struct wp_play *p)
{
    return ((uint64_t)p->input + p->output + WP_TRACE_BLOCK - 1) / WP_TRACE_BLOCK >
           r->conf->profile.gpu_tokens / WP_TRACE_BLOCK;
}

static void place(void *arg, uint64_t i, const struct wp_brain_answer *a)
{
    struct run *r = arg;
    struct wp_move move[WP_FETCHES];
    struct wp_err err = WP_ERR_INIT;
    int rc;

    for (uint32_t k = 0; k < a->n_fetch; k++) {
        bool store = a->fetch[k].source == WP_BRAIN_FROM_STORE;

        move[k] = (struct wp_move){store ? (uint32_t)r->conf->workers : a->fetch[k].source,
                                   a->fetch[k].from, a->fetch[k].to};
    }
    rc = wp_cluster_place(r->cluster, &r->plays->play[i], a->worker, move, a->n_fetch, &err);
    if (rc < 0)
        fail(r, rc, &err);
}

static void ask(struct run *r, uint64_t i)
{
    const struct wp_play *p = &r->plays->play[i];
    struct wp_brain_req req = {.id = i,
                               .tokens = p->input,
                               .output = p->output,
                               .tenant = p->tenant,
                               .priority = p->priority,
                               .block = p->id,
                               .n = p->n_ids};
    struct wp_brain_answer a;
    struct wp_err err = WP_ERR_INIT;
    int rc;

    if (never_fits(r, p)) {
        if (!p->warm)
            (void)wp_report_add(r->report, &(struct wp_sample){.failed = true});
        return;
    }
    rc = wp_brain_ask(r->brain, p->at_us, &req, &a, &err);
    if (rc < 0)
        fail(r, rc, &err);
    else if (a.refused)
        on_refused(r, i);
    else if (!a.held)
        place(r, i, &a);
}

static void on_room(void *arg, uint64_t at_us)
{
    struct run *r = arg;

    if (wp_brain_next_us(r->brain) == UINT64_MAX)
        return;
    wp_brain_tick(r->brain, at_us, place, r);
    note_held(r, at_us);
}

static const struct wp_cluster_ops ops = {on_block, on_state, on_first, on_end, on_room};

static int play(struct run *r)
{
    size_t i = 0, n = r->plays->n;

    while (r->rc == 0) {
        uint64_t arrival = i < n ? r->plays->play[i].at_us : UINT64_MAX,
                 tick = wp_brain_next_us(r->brain);
        uint64_t until = arrival < tick ? arrival : tick;
        int rc = wp_cluster_run(r->cluster, until, &r->err);

        if (rc < 0)
            return rc;
        if (until == UINT64_MAX)
            break;
        if (tick <= until)
            wp_brain_tick(r->brain, until, place, r);
        while (i < n && r->plays->play[i].at_us <= until && r->rc == 0) {
            ask(r, i++);
            if (r->rc == 0)
                r->rc = wp_cluster_run(r->cluster, until, &r->err);
        }
        note_held(r, until);
    }
    return r->rc;
}

/* ---- one run ---- */

/* The largest number of one; 0: the trace knows no tenants. */
static uint32_t tenants_of(const struct wp_plays *p)
{
    uint32_t most = 0;

    for (size_t i = 0; i < p->n; i++)
        most = p->play[i].tenant > most ? p->play[i].tenant : most;
    return most;
}

static int make(struct run *r)
{
    const struct wp_replay_conf *c = r->conf;
    uint64_t gpu = c->profile.gpu_tokens / WP_TRACE_BLOCK,
             cpu = c->profile.cpu_tokens / WP_TRACE_BLOCK;
    struct wp_cluster_conf fleet = {
        .workers = c->workers,
        .engine = {.profile = c->profile,
                   .block_size = WP_TRACE_BLOCK,
                   .tier_blocks = {gpu, cpu, 0},
                   .secret = c->seed},
        .store_blocks = c->store_blocks,
        .link_bytes_per_s = c->link_bytes_per_s,
        .link_setup_us = c->link_setup_us,
        .store_bytes_per_s = c->store_bytes_per_s,
        .stale_us = c->stale_us,
    };
    struct wp_cluster_ops told = ops;
    struct wp_brain_conf mind;
    struct wp_report_conf table = {
        .label = c->label ? c->label : c->policy,
        .workers = c->workers,
        .slo_ttft_s = c->slo_ttft_s,
        .slo_ttft_factor = c->slo_ttft_factor,
        .slo_itl_s = c->slo_itl_s,
    };
    int rc;

    wp_brain_conf_init(&mind);
    mind.policy = c->policy;
    mind.policy_conf = c->policy_conf;
    mind.workers = (uint32_t)c->workers;
    mind.block_tokens = WP_TRACE_BLOCK;
    mind.profile = c->profile;
    mind.gpu_blocks = gpu;
    mind.cpu_blocks = cpu;
    mind.store_blocks = c->store_blocks;
    mind.nic_bytes_per_s = c->link_bytes_per_s;
    mind.store_bytes_per_s = c->store_bytes_per_s;
    mind.latency_us = c->link_setup_us;
    mind.stale_us = (double)c->stale_us;
    mind.seed = c->seed;
    mind.tenants = tenants_of(r->plays);
    mind.on_refused = on_refused;
    mind.on_refused_arg = r;
    if (c->record) {
        wp_decisions_out_run(c->record, c->policy, &c->policy_conf);
        mind.on_decision = wp_decisions_out_decision;
        mind.on_decision_arg = c->record;
    }
    rc = wp_brain_create(&r->brain, &mind, &r->err);
    if (rc == 0 &&
        wp_brain_is_blind(r->brain)) /* half of the time would go into an index that nobody asks */
        told.on_block = NULL;
    if (rc == 0)
        rc = wp_cluster_create(&r->cluster, &fleet, &told, r, &r->err);
    return rc < 0 ? rc : wp_report_create(&r->report, &table, &r->err);
}

int wp_replay_run(struct wp_report **out, const struct wp_replay_conf *conf,
                  const struct wp_plays *plays, struct wp_err *err)
{
    struct run *r = wp_calloc(1, sizeof *r);
    int rc;

    if (!r)
        return wp_fail(err, WP_ENOMEM, "out of memory for a replay");
    r->conf = conf;
    r->plays = plays;
    rc = make(r);
    if (rc == 0)
        rc = play(r);
    if (rc == 0) {
        wp_report_span(r->report, plays->span_s);
        if (conf->timeline)
            wp_timeline_close(conf->timeline);
        *out = r->report;
    } else {
        wp_report_destroy(r->report);
        *err = r->err;
    }
    wp_cluster_destroy(r->cluster);
    wp_brain_destroy(r->brain);
    wp_free(r);
    return rc;
}
