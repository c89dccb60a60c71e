/* SPDX-License-Identifier: Apache-2.0 */
#include "router/lend.h"

static bool same_costs(const struct wp_worker *a, const struct wp_worker *b)
{
    return strcmp(a->costs.name, b->costs.name) == 0 && a->costs.speed == b->costs.speed;
}

static bool is_long_ago(const struct wp_fleet *f, const struct wp_worker *w)
{
    return f->lessons - w->lesson > WP_LEND_AFTER * (uint64_t)f->n_workers;
}

static bool wants(const struct wp_fleet *f, const struct wp_worker *w)
{
    return w->learnt.samples == 0 || is_long_ago(f, w);
}

static bool has(const struct wp_fleet *f, const struct wp_worker *w)
{
    return w->learnt.samples >= WP_LEND_SAMPLES && !is_long_ago(f, w);
}

void wp_fleet_learnt(struct wp_fleet *f, struct wp_worker *w)
{
    w->lesson = ++f->lessons;
    w->borrowed = false;
    wp_worker_learnt(w, f->conf->policy.conf.calibrate);
    if (!has(f, w) || f->lessons % f->n_workers != 0) /* so the walk is one step an answer */
        return;
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *other = WP_CONTAINER(at, struct wp_worker, link);

        if (other != w && wants(f, other) && same_costs(other, w))
            wp_worker_borrow(other, w, f->conf->policy.conf.calibrate);
    }
}

void wp_fleet_lend(struct wp_fleet *f, struct wp_worker *w)
{
    const struct wp_worker *best = NULL;

    if (!wants(f, w))
        return;
    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *other = WP_CONTAINER(at, struct wp_worker, link);

        if (other != w && has(f, other) && same_costs(other, w) && (!best || other->lesson > best->lesson))
            best = other;
    }
    if (best)
        wp_worker_borrow(w, best, f->conf->policy.conf.calibrate);
}
