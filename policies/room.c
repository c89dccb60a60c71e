/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/room.h"

#include <math.h>

static const double tau_us = 300e6, arrivals_tau_us = 60e6, busy_tau_us = 120e6;
static const double prior_blocks = 200,
                    prior_hits = 20; /* before anything is known, every tenth comes back */
static const double around = 6;  /* ages between A / 6 and 6 A tell of the age at which blocks go */
static const double least_s = 5; /* of uptime, for rates */
static const double most_behind = 3; /* of 1 / (1 - busy) */

void wp_room_init(struct wp_room *r)
{
    *r = (struct wp_room){0};
}

static double since(uint64_t now_us, uint64_t then_us)
{
    return now_us > then_us ? (double)(now_us - then_us) : 0;
}

static double each(const struct wp_room *r)
{
    return r->each > 0 ? r->each : 1;
}

static void decay(struct wp_room *r, uint64_t now_us)
{
    double f;

    if (!r->started) {
        r->started = true;
        r->since_us = r->at_us = r->requests_us = r->busy_us = now_us;
    }
    if (now_us <= r->at_us)
        return;
    f = exp(-since(now_us, r->at_us) / tau_us);
    r->at_us = now_us;
    r->left *= f;
    r->left_age_us *= f;
    r->gone *= f;
    r->gone_us *= f;
    r->kept *= f;
    r->again *= f;
}

void wp_room_gone(struct wp_room *r, uint64_t now_us, uint64_t age_us, bool last, double compute_us)
{
    decay(r, now_us);
    r->evicts = true;
    r->left += each(r);
    r->left_age_us += each(r) * (double)age_us;
    if (last) {
        r->gone += each(r);
        r->gone_us += compute_us > 0 && compute_us < 1e12 ? each(r) * compute_us : 0;
    }
}

void wp_room_asked(struct wp_room *r, uint64_t now_us, uint64_t age_us, bool held, bool on_its_way)
{
    double typical;

    decay(r, now_us);
    typical = r->left > 1 ? r->left_age_us / r->left : 1e15;
    if (held && (double)age_us > typical / around)
        r->kept += each(r);
    else if (!held && !on_its_way && (double)age_us < typical * around)
        r->again += each(r);
}

void wp_room_request(struct wp_room *r, uint64_t now_us)
{
    double dt;

    decay(r, now_us);
    dt = since(now_us, r->requests_us);
    r->requests = r->requests * exp(-dt / arrivals_tau_us) + 1e6 / arrivals_tau_us;
    r->requests_us = now_us > r->requests_us ? now_us : r->requests_us;
}

/* What a decayed sum is short of, as it started with nothing. */
static double full(const struct wp_room *r, uint64_t now_us, double tau)
{
    return 1 - exp(-fmax(since(now_us, r->since_us), least_s * 1e6) / tau);
}

/* Requests that one lost second delays. */
static double delays(struct wp_room *r, uint64_t now_us, const struct wp_worker_view w[], size_t n)
{
    double wait_us = 0, busy = 0, keep = exp(-since(now_us, r->busy_us) / busy_tau_us), share,
           arrivals;

    for (size_t i = 0; i < n; i++) {
        wait_us += w[i].wait_us > 0 ? fmin(w[i].wait_us, 1e12) : 0;
        busy += w[i].wait_us > 1;
    }
    r->busy = r->busy * keep + busy / (double)n * (1 - keep);
    r->busy_us = now_us > r->busy_us ? now_us : r->busy_us;
    share = fmin(1, r->busy / full(r, now_us, busy_tau_us));
    arrivals = r->requests / full(r, now_us, arrivals_tau_us) / (double)n;
    return arrivals * (wait_us / (double)n / 1e6) * fmin(most_behind, 1 / fmax(1 - share, 1e-3));
}

void wp_room_price(struct wp_room *r, uint64_t now_us, const struct wp_worker_view w[], size_t n,
                   double block_us, struct wp_room_price *out)
{
    double compute, gone, kept;

    *out = (struct wp_room_price){.tuned = true};
    decay(r, now_us);
    out->delays = n ? delays(r, now_us, w, n) : 0;
    if (n == 0 || !r->evicts) /* nothing had to go yet: there is room */
        return;
    compute = (r->gone_us + fmax(0, block_us)) / (r->gone + 1);
    gone = fmin(1, (r->again + prior_hits) / (r->gone + prior_blocks));
    kept = fmin(1, (r->kept + prior_hits) / (r->kept + r->gone + prior_blocks));
    out->block_us = compute * (gone + kept * out->delays);
}
