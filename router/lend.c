/* SPDX-License-Identifier: Apache-2.0 */
#include "router/lend.h"

#include "base/clock.h"

static bool same_costs(const struct wp_worker *a, const struct wp_worker *b)
{
    return strcmp(a->costs.name, b->costs.name) == 0 && a->costs.speed == b->costs.speed;
}

static bool wants(const struct wp_worker *w, uint64_t now)
{
    return w->learnt.samples == 0 || now - w->learnt_us > (w->learnt.samples < WP_LEND_LITTLE ? WP_LEND_SOON_US : WP_LEND_US);
}

static bool has(const struct wp_worker *w, uint64_t now)
{
    return w->learnt.samples >= WP_LEND_SAMPLES && now - w->learnt_us <= WP_LEND_US;
}

void wp_fleet_learnt(struct wp_fleet *f, struct wp_worker *w)
{
    uint64_t now = wp_now_us(), n = w->learnt.samples;

    w->learnt_us = now;
    w->borrowed = false;
    wp_worker_learnt(w, f->conf->policy.conf.calibrate);
    if (!has(w, now) || (n & (n - 1)) != 0) /* the more it has shown, the less there is to tell */
        return;
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *other = WP_CONTAINER(at, struct wp_worker, link);

        if (other != w && wants(other, now) && same_costs(other, w))
            wp_worker_borrow(other, w, f->conf->policy.conf.calibrate);
    }
}

void wp_fleet_lend(struct wp_fleet *f, struct wp_worker *w)
{
    const struct wp_worker *best = NULL;
    uint64_t now = wp_now_us();

    if (!wants(w, now))
        return;
    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *other = WP_CONTAINER(at, struct wp_worker, link);

        if (other != w && has(other, now) && same_costs(other, w) && (!best || other->learnt_us > best->learnt_us))
            best = other;
    }
    if (best)
        wp_worker_borrow(w, best, f->conf->policy.conf.calibrate);
}
