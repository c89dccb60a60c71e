/* SPDX-License-Identifier: Apache-2.0 */
/* What the fleet shows of itself: workers, models, index, decisions. */
#include "router/fleet_inner.h"

#include "base/clock.h"

#include <math.h>

/* "k=v" as the table that the configuration has. */
static int pairs(struct wp_buf *b, char *const list[])
{
    int rc = wp_buf_adds(b, "{");

    for (size_t i = 0; rc == 0 && list[i]; i++) {
        struct wp_str value = wp_str_of(list[i]), key;

        wp_str_split(&value, '=', &key);
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : wp_buf_json(b, key);
        rc = rc ? rc : wp_buf_adds(b, ":");
        rc = rc ? rc : wp_buf_json(b, value);
    }
    return rc ? rc : wp_buf_adds(b, "}");
}

static int known(struct wp_buf *b, const char *key, double x)
{
    return x < 0 || !isfinite(x) ? wp_buf_printf(b, ",\"%s\":null", key) : wp_buf_printf(b, ",\"%s\":%.6g", key, x);
}

/* What a worker's ranks have and owe together; the wait is that of the best of them. */
struct summary {
    uint32_t in_flight, decoding;
    uint64_t backlog_tokens, index_blocks;
    double coverage;  /* of the rank that is covered least */
    const char *feed; /* its state */
    size_t history_blocks;
    uint64_t claims, claims_wrong, resyncs;
    const char *resync_why; /* of the last rank that had one */
    double wait_us;
};

static struct summary sum_up(struct wp_fleet *f, const struct wp_worker *w, uint64_t now)
{
    struct summary s = {.in_flight = wp_worker_in_flight(w), .wait_us = INFINITY, .coverage = INFINITY, .resync_why = ""};

    for (uint32_t i = 0; i < w->n_ranks; i++) {
        const struct wp_rank *r = &w->rank[i];
        uint64_t tier[WP_TIER_MAX], doubtful;

        wp_fleet_rank_stats(f, r, tier, &doubtful);
        s.decoding += r->load.decoding;
        s.backlog_tokens += r->load.prefill_tokens;
        s.wait_us = fmin(s.wait_us, wp_worker_wait_us(w, r, now));
        s.claims += r->trust.claims;
        s.claims_wrong += r->trust.wrong;
        s.resyncs += r->trust.alarms;
        if (r->resync_why[0])
            s.resync_why = r->resync_why;
        s.history_blocks += wp_history_blocks(f->history, r->holder);
        for (int t = 0; t < WP_TIER_MAX; t++)
            s.index_blocks += tier[t];
        if (r->coverage >= s.coverage)
            continue;
        s.coverage = r->coverage;
        s.feed = r->feed_state;
    }
    return s;
}

/* What `auto` has found behind the URL; "" before it has answered. */
static const char *found(const struct wp_worker *w)
{
    return w->reported_running >= 0 || w->reported_waiting >= 0 ? "vllm" : w->joined ? "openai" : "";
}

static int interval_json(const struct wp_interval *i, const char *name, struct wp_buf *b)
{
    double low, high;

    wp_interval_of(i, 1, &low, &high);
    return wp_buf_printf(b, ",\"%s\":{\"answers\":%llu,\"low\":%.4g,\"high\":%.4g,\"below\":%llu,\"above\":%llu}", name, (unsigned long long)i->n, low,
                         high, (unsigned long long)i->below, (unsigned long long)i->above);
}

/* What was learnt of its costs, as factors of its profile's, with a deviation of each; how far off predictions are. */
static int calibration_json(const struct wp_fleet *f, const struct wp_worker *w, struct wp_buf *b)
{
    const struct wp_calibration *c = &w->learnt;
    int rc = wp_buf_printf(b, ",\"calibration\":{\"used\":%s,\"samples\":%llu,\"refused\":%llu,\"clipped\":%llu,\"reopened\":%llu,\"error\":%.4g",
                           f->conf->policy.conf.calibrate ? "true" : "false", (unsigned long long)c->samples,
                           (unsigned long long)c->refused, (unsigned long long)c->clipped, (unsigned long long)c->reopened, w->error);

    for (int i = 0; rc == 0 && i < WP_FACT_CONSTANT; i++)
        rc = wp_buf_printf(b, ",\"%s\":{\"factor\":%.4g,\"deviation\":%.2g}", wp_fact_names[i], c->fact[i], wp_calibration_sd(c, (enum wp_fact)i));
    rc = rc ? rc
            : wp_buf_printf(b, ",\"%s\":{\"ms\":%.4g,\"deviation\":%.2g}", wp_fact_names[WP_FACT_CONSTANT], c->fact[WP_FACT_CONSTANT],
                            wp_calibration_sd(c, WP_FACT_CONSTANT));
    rc = rc ? rc : interval_json(&w->interval[0], "idle", b);
    rc = rc ? rc : interval_json(&w->interval[1], "waiting", b);
    return rc ? rc : wp_buf_adds(b, "}");
}

static int worker_json(struct wp_fleet *f, struct wp_worker *w, uint64_t now, struct wp_buf *b)
{
    const char *why;
    bool ready = wp_worker_ready(w, now, &why);
    struct summary s = sum_up(f, w, now);
    int rc = wp_buf_adds(b, "{\"id\":");

    rc = rc ? rc : wp_buf_json(b, wp_str_of(w->conf.id));
    rc = rc ? rc : wp_buf_adds(b, ",\"url\":");
    rc = rc ? rc : wp_buf_json(b, wp_str_of(w->conf.url));
    rc = rc ? rc : wp_buf_printf(b, ",\"engine\":\"%s\",\"found\":\"%s\",\"node\":", w->engine->name, found(w));
    rc = rc ? rc : wp_buf_json(b, wp_str_of(w->conf.node));
    rc = rc ? rc : wp_buf_printf(b, ",\"ready\":%s,\"why\":\"%s\",\"up\":%s,\"draining\":%s,\"breaker\":\"%s\",\"trouble\":",
                                 ready ? "true" : "false", ready ? "" : why, w->up ? "true" : "false",
                                 w->draining ? "true" : "false", wp_breaker_names[w->breaker]);
    rc = rc ? rc : wp_buf_json(b, wp_str_of(w->trouble));
    rc = rc ? rc : wp_buf_adds(b, ",\"models\":[");
    for (size_t i = 0; rc == 0 && i < w->n_models; i++) {
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : wp_buf_json(b, wp_str_of(w->model[i].name));
    }
    rc = rc ? rc : wp_buf_printf(b, "],\"max_model_len\":%u,\"block_size\":%u,\"kv_tokens\":%llu,\"tags\":",
                                 w->n_models ? w->model[0].max_len : 0, w->block_size, (unsigned long long)w->kv_tokens);
    rc = rc ? rc : pairs(b, w->conf.tags);
    rc = rc ? rc : wp_buf_printf(b, ",\"in_flight\":%u,\"decoding\":%u,\"prefill_backlog_tokens\":%llu,\"wait_us\":%.0f,"
                                    "\"requests\":%llu,\"failed\":%llu,\"busy\":%llu,\"profile\":\"%s\",\"speed\":%g,\"correction\":%.4g",
                                 s.in_flight, s.decoding, (unsigned long long)s.backlog_tokens, s.wait_us,
                                 (unsigned long long)w->requests,
                                 (unsigned long long)w->errors, (unsigned long long)w->busies, w->profile.name, w->profile.speed, wp_worker_pace(w));
    rc = rc ? rc : calibration_json(f, w, b);
    rc = rc ? rc : known(b, "reported_running", w->reported_running);
    rc = rc ? rc : known(b, "reported_waiting", w->reported_waiting);
    rc = rc ? rc : known(b, "kv_usage", w->kv_usage);
    rc = rc ? rc : wp_buf_printf(b, ",\"foreign_running\":%.6g,\"foreign_waiting\":%.6g", w->foreign.running, w->foreign.waiting);
    rc = rc ? rc : wp_buf_printf(b, ",\"failing\":%.3f", wp_worker_failing(w, wp_now_us()));
    rc = rc ? rc : wp_buf_printf(b, ",\"claims\":%llu,\"claims_wrong\":%llu,\"resyncs\":%llu,\"resync_why\":\"%s\"", (unsigned long long)s.claims,
                                 (unsigned long long)s.claims_wrong, (unsigned long long)s.resyncs, s.resync_why);
    return rc ? rc : wp_buf_printf(b, ",\"index_blocks\":%llu,\"history_blocks\":%zu,\"feed\":\"%s\",\"coverage\":%.4g,\"ranks\":%u}",
                                   (unsigned long long)s.index_blocks, s.history_blocks, s.feed, s.coverage, w->n_ranks);
}

int wp_fleet_workers_json(struct wp_fleet *f, struct wp_str id, struct wp_buf *b)
{
    uint64_t now = wp_now_us();
    int rc = id.p ? WP_ENOENT : wp_buf_adds(b, "{\"workers\":[");
    bool any = false;

    pthread_mutex_lock(&f->lock);
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (id.p) {
            if (wp_str_is(id, w->conf.id))
                rc = worker_json(f, w, now, b);
            continue;
        }
        if (rc == 0 && any)
            rc = wp_buf_adds(b, ",");
        rc = rc ? rc : worker_json(f, w, now, b);
        any = true;
    }
    pthread_mutex_unlock(&f->lock);
    return rc || id.p ? rc : wp_buf_adds(b, "]}");
}

static bool seen_before(struct wp_fleet *f, const struct wp_worker *until, size_t i)
{
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (size_t k = 0; k < (w == until ? i : w->n_models); k++)
            if (wp_str_is(wp_str_of(until->model[i].name), w->model[k].name))
                return true;
        if (w == until)
            return false;
    }
    return false;
}

static int model_json(const struct wp_engine_model *m, struct wp_buf *b)
{
    int rc = wp_buf_adds(b, "{\"id\":");

    rc = rc ? rc : wp_buf_json(b, wp_str_of(m->name));
    rc = rc ? rc : wp_buf_adds(b, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"warmpath\",\"root\":");
    rc = rc ? rc : wp_buf_json(b, wp_str_of(m->name));
    rc = rc ? rc : wp_buf_adds(b, ",\"parent\":");
    rc = rc ? rc : m->parent ? wp_buf_json(b, wp_str_of(m->parent)) : wp_buf_adds(b, "null");
    rc = rc ? rc : m->max_len ? wp_buf_printf(b, ",\"max_model_len\":%u}", m->max_len) : wp_buf_adds(b, ",\"max_model_len\":null}");
    return rc;
}

/* All aliases behind what is in the list already, or the one that is asked for. */
static int aliases_json(struct wp_fleet *f, struct wp_str id, bool (*may)(const void *arg, struct wp_str model), const void *arg,
                        struct wp_buf *b, bool any)
{
    int rc = id.p ? WP_ENOENT : 0;

    for (size_t i = 0; i < f->conf->n_models; i++)
        for (char **a = f->conf->models[i].aliases; *a; a++) {
            struct wp_engine_model m = {.name = *a, .parent = f->conf->models[i].name};

            if ((id.p ? rc != WP_ENOENT || !wp_str_is(id, *a) : rc < 0) || (may && !may(arg, wp_str_of(*a))))
                continue;
            rc = any ? wp_buf_adds(b, ",") : 0;
            rc = rc ? rc : model_json(&m, b);
            any = true;
        }
    return rc;
}

int wp_fleet_models_json(struct wp_fleet *f, struct wp_str id, bool (*may)(const void *arg, struct wp_str model), const void *arg,
                         struct wp_buf *b)
{
    int rc = id.p ? WP_ENOENT : wp_buf_adds(b, "{\"object\":\"list\",\"data\":[");
    bool any = false;

    pthread_mutex_lock(&f->lock);
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (size_t i = 0; i < w->n_models; i++) {
            if (may && !may(arg, wp_str_of(w->model[i].name)))
                continue;
            if (id.p && rc == WP_ENOENT && wp_str_is(id, w->model[i].name))
                rc = model_json(&w->model[i], b);
            if (id.p || rc < 0 || seen_before(f, w, i))
                continue;
            rc = any ? wp_buf_adds(b, ",") : 0;
            rc = rc ? rc : model_json(&w->model[i], b);
            any = true;
        }
    }
    if (id.p ? rc == WP_ENOENT : rc == 0)
        rc = aliases_json(f, id, may, arg, b, any);
    pthread_mutex_unlock(&f->lock);
    return rc || id.p ? rc : wp_buf_adds(b, "]}");
}

int wp_fleet_decisions_json(struct wp_fleet *f, size_t last, struct wp_buf *b)
{
    int rc = wp_buf_adds(b, "{\"decisions\":[");
    bool any = false;

    pthread_mutex_lock(&f->lock);
    for (uint64_t id = f->records.next - 1; rc == 0 && last && id; id--, last--) {
        struct wp_record *r = wp_records_at(&f->records, id);

        if (!r)
            break;
        rc = any ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : wp_record_json(r, b);
        any = true;
    }
    pthread_mutex_unlock(&f->lock);
    return rc ? rc : wp_buf_adds(b, "]}");
}

int wp_fleet_decision_json(struct wp_fleet *f, uint64_t id, struct wp_buf *b)
{
    struct wp_record *r;
    int rc;

    pthread_mutex_lock(&f->lock);
    r = wp_records_at(&f->records, id);
    rc = r ? wp_record_json(r, b) : WP_ENOENT;
    pthread_mutex_unlock(&f->lock);
    return rc;
}
