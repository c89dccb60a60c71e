/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker's answers say of whether it is well: the breaker, rests, recent failures, newcomers.  The rules are in worker.h. */
#include "router/worker.h"

enum { OPEN_MAX_US = 30000000, CROWDED = 3, REST_MIN_US = 500000, REST_MAX_US = 30000000 };
#define FAILING_US 60e6 /* what failed longer ago says nothing */

static unsigned failed_recently(const struct wp_worker *w)
{
    return (unsigned)__builtin_popcount(w->recent);
}

static void note(struct wp_worker *w, bool failed)
{
    w->recent = (w->recent << 1 | failed) & ((1u << WP_RECENT) - 1);
    w->n_recent += w->n_recent < WP_RECENT;
    if (w->n_recent == WP_RECENT && w->recent == 0)
        w->gray_us = 0;
    w->warmed += !failed && w->warmed < WP_WARM;
}

double wp_worker_failing(const struct wp_worker *w, uint64_t now_us)
{
    double age = now_us > w->failed_us ? (double)(now_us - w->failed_us) : 0;

    return w->recent && age < FAILING_US ? (double)failed_recently(w) / WP_RECENT * (1 - age / FAILING_US) : 0;
}

bool wp_worker_is_cold(const struct wp_worker *w, const struct wp_config *conf)
{
    uint32_t first = conf->health.slow_start;

    return first && w->warmed < WP_WARM && wp_worker_in_flight(w) >= first + 2 * w->warmed;
}

void wp_worker_failed(struct wp_worker *w, uint64_t now_us)
{
    note(w, true);
    w->failed_us = now_us;
}

/* Who lets many fail in a row lets half of a few fail. */
static bool is_gray(const struct wp_worker *w, const struct wp_config *conf)
{
    return 2 * conf->health.fail <= WP_RECENT && w->n_recent == WP_RECENT && 2 * failed_recently(w) >= WP_RECENT;
}

/* How long: twice as long as before, in a row of failures, or of times that half of all failed. */
static uint64_t twice(uint64_t was_us, const struct wp_config *conf)
{
    uint64_t us = was_us ? was_us * 2 : conf->health.interval_us;

    return us < OPEN_MAX_US ? us : OPEN_MAX_US;
}

void wp_worker_outcome(struct wp_worker *w, enum wp_outcome o, const struct wp_config *conf, uint64_t now_us)
{
    if (o == WP_OUTCOME_GOOD) {
        w->failures = 0;
        w->breaker = WP_BREAKER_CLOSED;
        w->half_open_busy = false;
        w->open_us = 0;
        return;
    }
    if (o != WP_OUTCOME_FAILED) {
        w->half_open_busy = false;
        return;
    }
    w->errors++;
    w->failures++;
    if (w->breaker == WP_BREAKER_CLOSED && w->failures < conf->health.fail && !is_gray(w, conf))
        return;
    if (w->breaker == WP_BREAKER_OPEN && !w->half_open_busy)
        return; /* a straggler of the time before it opened */
    if (w->breaker == WP_BREAKER_CLOSED && w->failures < conf->health.fail)
        w->open_us = w->gray_us = twice(w->gray_us, conf);
    else
        w->open_us = twice(w->open_us, conf);
    w->half_open_busy = false;
    w->breaker = WP_BREAKER_OPEN;
    w->opened_us = now_us;
    w->open_until_us = now_us + w->open_us;
    wp_log(WP_WARN, "worker", "worker=%s breaker open for %.1f s after %u failures, %u of the last %u attempts", w->conf.id, (double)w->open_us / 1e6,
           w->failures, failed_recently(w), w->n_recent);
}

static void rest(struct wp_worker *w, uint64_t us, const char *why, uint64_t now_us)
{
    uint64_t skipped;

    if (now_us + us > w->rest_until_us)
        w->rest_until_us = now_us + us;
    if (us && wp_log_may(&w->rest_said, now_us, &skipped))
        wp_log(WP_WARN, "worker", "worker=%s rests for %.1f s: %s; it rested %llu times more since this was last said", w->conf.id,
               (double)us / 1e6, why, (unsigned long long)skipped);
}

/*
 * An engine that says no at once looks idle, and would be sent more and more.  What it was sent before its rest began says nothing new when
 * it is refused.
 */
void wp_worker_busy(struct wp_worker *w, uint64_t placed_us, uint64_t asked_us, const struct wp_config *conf, uint64_t now_us)
{
    uint64_t most = conf->limits.rest_max_us < REST_MAX_US ? conf->limits.rest_max_us : REST_MAX_US;

    w->busies++;
    if (asked_us) {
        rest(w, asked_us, "it asked for that", now_us);
        return;
    }
    if (placed_us <= w->rested_us || ++w->crowded < CROWDED)
        return;
    w->rest_us = w->rest_us ? w->rest_us * 2 : REST_MIN_US;
    if (w->rest_us > most)
        w->rest_us = most;
    w->rested_us = now_us;
    w->crowd_until_us = now_us + w->rest_us;
    rest(w, w->rest_us, "it answers 429 without Retry-After", now_us);
}

/* A full engine that is busy with what it has must not be left to run empty. */
void wp_worker_served(struct wp_worker *w)
{
    note(w, false);
    w->crowded = 0;
    w->rest_us = 0;
}
