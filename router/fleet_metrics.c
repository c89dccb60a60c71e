/* SPDX-License-Identifier: Apache-2.0 */
/* What the fleet tells Prometheus. */
#include "router/fleet_inner.h"

#include "base/clock.h"

#include <math.h>

/* For autoscalers: what a request for a model would wait on the best worker that can take it. */
static void tell_waits(struct wp_fleet *f, uint64_t now)
{
    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *first = WP_CONTAINER(at, struct wp_worker, link);

        for (size_t i = 0; i < first->n_models; i++) {
            struct wp_str name = wp_str_of(first->model[i].name);
            double best = INFINITY;
            const char *why;

            if (first->model[i].parent)
                continue; /* an adapter waits as its base does, and there are many of them: no labels */
            WP_LIST_EACH(&f->workers, other)
            {
                struct wp_worker *w = WP_CONTAINER(other, struct wp_worker, link);

                if (wp_worker_serves(w, name) && wp_worker_ready(w, now, &why))
                    for (uint32_t r = 0; r < w->n_ranks; r++)
                        best = fmin(best, wp_worker_wait_us(w, &w->rank[r], now));
            }
            wp_gauge_set(WP_SERIES(f->predicted_wait, first->model[i].name), best / 1e6);
        }
    }
}

static uint64_t backlog_tokens(const struct wp_worker *w)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < w->n_ranks; i++)
        n += w->rank[i].load.prefill_tokens;
    return n;
}

/* Before each scrape: gauges that are cheaper to read off than to keep. */
static void on_scrape(void *arg)
{
    struct wp_fleet *f = arg;
    uint64_t now = wp_now_us();
    struct wp_index_stats s;
    uint64_t unsure = 0;
    size_t history = 0;

    pthread_mutex_lock(&f->lock);
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);
        const char *why;

        for (uint32_t i = 0; i < w->n_ranks; i++) {
            history += wp_history_blocks(f->history, w->rank[i].holder);
            unsure += wp_fleet_unsure(f, &w->rank[i]);
        }
        wp_gauge_set(w->in_flight_gauge, wp_worker_in_flight(w));
        wp_gauge_set(w->backlog_gauge, (double)backlog_tokens(w));
        wp_gauge_set(w->up_gauge, wp_worker_ready(w, now, &why) || w->up ? 1 : 0);
        wp_gauge_set(w->breaker_gauge, w->breaker);
        wp_gauge_set(w->pace_gauge, wp_worker_pace(w));
    }
    tell_waits(f, now);
    wp_gauge_set(f->queue_depth, (double)f->n_held);
    wp_index_stats(f->index, &s);
    wp_gauge_set(f->index_blocks, (double)s.blocks);
    wp_gauge_set(f->index_locations, (double)s.locations);
    wp_gauge_set(f->index_floating, (double)s.floating);
    wp_gauge_set(f->index_doubtful, (double)(s.doubtful + unsure));
    wp_gauge_set(f->index_bytes, (double)s.bytes);
    wp_gauge_set(f->index_cap, (double)s.cap_bytes);
    wp_gauge_set(f->history_blocks, (double)history);
    pthread_mutex_unlock(&f->lock);
}

int wp_fleet_metrics(struct wp_fleet *f, struct wp_metrics *m)
{
    static const double blocks[] = {-256, -64, -16, -4, -1, 0, 1, 4, 16, 64, 256};
    static const double wait_s[] = {0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
    static const double error_s[] = {-10, -3, -1, -0.3, -0.1, -0.03, -0.01, 0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
    struct wp_family *interval;
#define GAUGE0(name, help) wp_series(wp_family(m, WP_GAUGE, name, help, "", NULL, 0), NULL)

    f->metrics = m;
    f->in_flight = wp_family(m, WP_GAUGE, "warmpath_worker_in_flight", "Requests under way, by our own count.", "worker", NULL, 0);
    f->backlog = wp_family(m, WP_GAUGE, "warmpath_worker_prefill_backlog_tokens", "Prompt tokens dispatched, before their first token.",
                           "worker", NULL, 0);
    f->up = wp_family(m, WP_GAUGE, "warmpath_worker_up", "1 when the worker's probes pass.", "worker", NULL, 0);
    f->breaker = wp_family(m, WP_GAUGE, "warmpath_worker_breaker_state", "0 closed, 1 half open, 2 open.", "worker", NULL, 0);
    f->ended = wp_family(m, WP_COUNTER, "warmpath_worker_requests_total",
                         "Attempts at a worker, by how they ended: good, failed, busy (429), neutral (other 4xx, cancelled).",
                         "worker,outcome", NULL, 0);
    f->drift = wp_family(m, WP_HISTOGRAM, "warmpath_index_drift_blocks",
                         "Leading blocks of a prompt that a worker's KV events claimed, less those that its engine said it had.", "worker", blocks,
                         sizeof blocks / sizeof blocks[0]);
    f->resyncs = wp_family(m, WP_COUNTER, "warmpath_index_resyncs_total",
                           "Times that what a worker's KV events told was put in doubt because its claims were wrong beyond chance.", "worker",
                           NULL, 0);
    f->price_error = WP_SERIES0(wp_family(m, WP_HISTOGRAM, "warmpath_price_error_seconds",
                                          "Actual minus predicted time to first token.", "", error_s,
                                          sizeof error_s / sizeof error_s[0]));
    interval = wp_family(m, WP_COUNTER, "warmpath_price_interval_total",
                         "First tokens by where they fell against the interval in which nine of ten were predicted.", "result", NULL, 0);
    f->interval[0] = WP_SERIES(interval, "below");
    f->interval[1] = WP_SERIES(interval, "inside");
    f->interval[2] = WP_SERIES(interval, "above");
    f->pace = wp_family(m, WP_GAUGE, "warmpath_worker_cost_factor", "What a prefill costs there over what its profile says, as learnt.", "worker",
                        NULL, 0);
    f->queue_depth = GAUGE0("warmpath_queue_depth", "Requests held in the router, because no worker is free.");
    f->queue_wait = WP_SERIES0(wp_family(m, WP_HISTOGRAM, "warmpath_queue_wait_seconds", "How long requests that were held were held.", "", wait_s,
                                         sizeof wait_s / sizeof wait_s[0]));
    f->predicted_wait = wp_family(m, WP_GAUGE, "warmpath_predicted_wait_seconds",
                                  "Wait of a new request on the best worker of its model; infinite when none can take it.", "model",
                                  NULL, 0);
    f->index_blocks = GAUGE0("warmpath_index_blocks", "Prefix blocks in the index.");
    f->index_locations = GAUGE0("warmpath_index_locations", "Places where blocks lie.");
    f->index_floating = GAUGE0("warmpath_index_floating", "Blocks whose place in a prompt is not known yet.");
    f->index_doubtful = GAUGE0("warmpath_index_doubtful", "Locations in doubt.");
    f->index_bytes = GAUGE0("warmpath_index_bytes", "Memory of the index.");
    f->index_cap = GAUGE0("warmpath_index_cap_bytes", "Its cap.");
    f->history_blocks = GAUGE0("warmpath_history_blocks", "Prefix blocks that workers are reckoned to hold because they were sent there.");
    return wp_metrics_on_scrape(m, on_scrape, f);
}
