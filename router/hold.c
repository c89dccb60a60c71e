/* SPDX-License-Identifier: Apache-2.0 */
#include "router/hold.h"

#include "base/clock.h"
#include "router/fleet_inner.h"
#include "router/tenants.h"
#include "router/wake.h"

#include <math.h>

enum { LINES_MAX = 256, LINE_MOST = 65536, AT_ONCE = 64, LOOK_EVERY_US = 100000, BACK_MOST = 8, SHOWN_SAMPLES = 16 };
#define UNSHOWN_US 2e6

struct wp_hold_line {
    struct wp_list link;
    char *model; /* base */
    bool asleep; /* some are held because no worker is up; what starts one is asked for */
    struct wp_queue queue;
};

static struct wp_queue_conf conf_of(const struct wp_fleet *f)
{
    const struct wp_policy_conf *c = &f->conf->policy.conf;

    return (struct wp_queue_conf){.max = LINE_MOST, .hold_us = c->hold_us, .age = c->age, .most_us = c->hold_most_us, .tenants = WP_TENANTS};
}

static bool is_on(const struct wp_fleet *f)
{
    return f->policy->ops->holds && f->conf->policy.conf.hold_max > 0 && f->conf->limits.queue > 0;
}

static struct wp_hold_line *find_line(struct wp_fleet *f, struct wp_str model)
{
    WP_LIST_EACH(&f->lines, at)
    {
        struct wp_hold_line *l = WP_CONTAINER(at, struct wp_hold_line, link);

        if (wp_str_is(model, l->model))
            return l;
    }
    return NULL;
}

/* NULL: no memory, or more models than anybody serves. */
static struct wp_hold_line *line_of(struct wp_fleet *f, struct wp_str model)
{
    const struct wp_queue_conf conf = conf_of(f);
    struct wp_hold_line *l = find_line(f, model);
    struct wp_err err;

    if (l)
        return l;
    if (f->n_lines == LINES_MAX || !(l = wp_calloc(1, sizeof *l)))
        return NULL;
    l->model = wp_strndup(model.p, model.n);
    if (!l->model || wp_queue_init(&l->queue, &conf, &err) < 0) {
        wp_free(l->model);
        wp_free(l);
        return NULL;
    }
    wp_list_push(&f->lines, &l->link);
    f->n_lines++;
    return l;
}

void wp_fleet_hold_fini(struct wp_fleet *f)
{
    WP_LIST_EACH(&f->lines, at)
    {
        struct wp_hold_line *l = WP_CONTAINER(at, struct wp_hold_line, link);

        wp_list_del(&l->link);
        wp_queue_fini(&l->queue);
        wp_free(l->model);
        wp_free(l);
    }
}

static double least_wait(struct wp_fleet *f, struct wp_str model, uint64_t now_us)
{
    bool has_warm = wp_fleet_has_warm(f, model, now_us);
    double least = INFINITY;
    const char *why;

    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (!wp_worker_serves(w, model) || !wp_worker_ready(w, now_us, &why))
            continue;
        if (f->conf->limits.per_worker && wp_worker_in_flight(w) >= f->conf->limits.per_worker)
            continue;
        if (has_warm && wp_worker_is_cold(w, f->conf))
            continue;
        for (uint32_t r = 0; r < w->n_ranks; r++)
            least = fmin(least, wp_load_wait_to_hold(wp_worker_wait_us(w, &w->rank[r], now_us), f->conf->policy.conf.hold_us, &w->profile));
    }
    return least;
}

/* Engines that said 429 are another matter: who comes then is told so, too. */
bool wp_fleet_full(struct wp_fleet *f, struct wp_str model, uint64_t now_us)
{
    const char *why;

    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (f->conf->limits.per_worker && wp_worker_serves(w, model) && wp_worker_ready(w, now_us, &why) &&
            wp_worker_in_flight(w) >= f->conf->limits.per_worker)
            return true;
    }
    return false;
}

/* What it computes where that is least; nobody: on an idle one that has nothing of it. */
static double least_cost(const struct wp_fleet *f, const struct wp_want *want, size_t n)
{
    double cost = n ? INFINITY : wp_prefill_us(wp_profile_default(), 0, want->tokens);

    for (size_t i = 0; i < n; i++) {
        const struct wp_worker_view *v = &f->view[i];
        uint32_t hit = v->hit_tokens < want->tokens ? v->hit_tokens : want->tokens ? want->tokens - 1 : 0;

        cost = fmin(cost, wp_prefill_us(v->profile ? v->profile : wp_profile_default(), hit, want->tokens));
    }
    return cost;
}

/* What is predicted of all of them rests on what they have shown, and not on a profile alone. */
static bool is_shown(const struct wp_fleet *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (f->candidate[i].worker->learnt.samples < SHOWN_SAMPLES)
            return false;
    return true;
}

/* ---- tokens ---- */

void wp_fleet_charge_to(struct wp_fleet *f, struct wp_placement *p, const struct wp_want *want)
{
    p->line = f->n_lines ? find_line(f, want->model->base) : NULL;
    p->who = want->who;
}

void wp_fleet_charge_prompt(struct wp_placement *p, uint64_t now_us)
{
    if (p->line)
        wp_queue_charge(&p->line->queue, p->who, p->who.tokens, now_us);
}

void wp_fleet_charge(struct wp_placement *p, uint64_t tokens, uint64_t now_us)
{
    if (!p->line)
        return;
    p->charged += tokens;
    wp_queue_charge(&p->line->queue, p->who, tokens, now_us);
}

/* ---- in ---- */

static void let_go(struct wp_fleet *f, struct wp_hold *h, uint64_t now_us)
{
    h->line = NULL;
    h->held_us = now_us > h->since_us ? (double)(now_us - h->since_us) : 0;
    f->n_held--;
    wp_observe(f->queue_wait, h->held_us / 1e6);
    if (!h->want->tenant)
        return;
    wp_gauge_add(h->want->tenant->count.held, -1);
    wp_count_f(h->want->tenant->count.held_s, h->held_us / 1e6);
}

/* When it makes sense to come again: when the predicted wait is over. */
static uint64_t retry_in(const struct wp_fleet *f, const struct wp_hold_line *l, struct wp_queue_who who, double cost_us, double least_us)
{
    double us = wp_queue_expect_us(&l->queue, who, cost_us);

    if (isnan(us))
        us = least_us;
    return us < 3.6e9 ? (uint64_t)us : f->conf->health.interval_us;
}

static void refuse_held(struct wp_fleet *f, struct wp_hold_line *l, struct wp_hold *h, const char *why, uint64_t now_us)
{
    wp_queue_del(&l->queue, &h->item);
    let_go(f, h, now_us);
    if (h->want->tenant)
        wp_count(h->want->tenant->count.refused, 1);
    h->result = WP_PLACE_BUSY;
    h->why = why;
    h->retry_us = retry_in(f, l, h->want->who, h->item.cost_us, INFINITY);
    h->placed(h->arg);
}

/* All places are taken.  True: somebody who has less right to one has given it up. */
static bool make_room(struct wp_fleet *f, struct wp_hold_line *line, struct wp_queue_who who, uint64_t now_us)
{
    struct wp_queue_item *it = wp_queue_below(&line->queue, who.rank);
    double own = wp_queue_share(&line->queue, who), most = 0;

    if (it) {
        refuse_held(f, line, WP_CONTAINER(it, struct wp_hold, item), "queue", now_us);
        return true;
    }
    WP_LIST_EACH(&f->lines, at)
    {
        struct wp_hold_line *l = WP_CONTAINER(at, struct wp_hold_line, link);
        double share;
        struct wp_queue_item *last = wp_queue_last(&l->queue, &share);

        if (share > most) {
            most = share;
            it = last;
            line = l;
        }
    }
    if (!it || most <= own || it->rank < who.rank)
        return false;
    refuse_held(f, line, WP_CONTAINER(it, struct wp_hold, item), "tenant", now_us);
    return true;
}

static enum wp_hold_result refuse(const struct wp_want *want, bool alone, const char **why)
{
    *why = alone ? "queue" : "tenant";
    if (!alone && want->tenant)
        wp_count(want->tenant->count.refused, 1);
    return WP_HOLD_FULL;
}

static enum wp_hold_result put(struct wp_fleet *f, struct wp_hold_line *line, struct wp_hold *h, const struct wp_want *want, double cost,
                               uint64_t now_us, uint64_t most_us)
{
    if (!wp_queue_push(&line->queue, &h->item, now_us, cost, want->who, most_us))
        return WP_HOLD_NO;
    h->line = line;
    h->want = want;
    h->since_us = now_us;
    f->n_held++;
    if (want->tenant)
        wp_gauge_add(want->tenant->count.held, 1);
    h->next_us = wp_fleet_release_held(f, now_us); /* one that is held may go to who is free, this one or another */
    return WP_HOLD_HELD;
}

enum wp_hold_result wp_fleet_hold(struct wp_fleet *f, struct wp_hold *h, const struct wp_want *want, struct wp_placement *p, size_t n,
                                  uint64_t now_us, const char **why, uint64_t *retry_us)
{
    struct wp_hold_line *line;
    double cost, least = INFINITY;
    uint64_t most = now_us + (uint64_t)fmin(f->conf->policy.conf.hold_most_us, is_shown(f, n) ? INFINITY : UNSHOWN_US);

    if (!is_on(f) || !want->model || !want->model->listed || want->only)
        return WP_HOLD_NO;
    for (size_t i = 0; i < n; i++)
        least = fmin(least, wp_load_wait_to_hold(f->view[i].wait_us, f->conf->policy.conf.hold_us, f->view[i].profile));
    if (f->n_held == 0 && least <= f->conf->policy.conf.hold_us)
        return WP_HOLD_NO;
    line = line_of(f, want->model->base);
    if (!line)
        return WP_HOLD_NO;
    cost = least_cost(f, want, n);
    if (!wp_queue_holds(&line->queue, least, now_us, cost, want->who))
        return WP_HOLD_NO;
    *retry_us = retry_in(f, line, want->who, cost, least);
    if (want->due_us) { /* from then on no worker could keep it: it is looked at once more, and refused */
        double latest = (double)want->due_us - cost, expected = wp_queue_expect_us(&line->queue, want->who, cost);

        if (latest <= (double)now_us || (double)now_us + expected > latest) {
            *why = "deadline";
            return WP_HOLD_FULL;
        }
        most = latest < (double)most ? (uint64_t)latest : most;
    }
    if (wp_queue_crowds(&line->queue, want->who, cost))
        return refuse(want, false, why);
    if (wp_queue_expect_us(&line->queue, want->who, cost) > f->conf->policy.conf.hold_most_us)
        return refuse(want, true, why); /* it would go out at its deadline, to a worker that is not free then either */
    if (f->n_held >= f->conf->limits.queue && !make_room(f, line, want->who, now_us))
        return refuse(want, wp_queue_alone(&line->queue, want->who), why);
    if ((double)f->n_held >= f->conf->policy.conf.hold_max)
        return WP_HOLD_NO;
    h->p = p;
    return put(f, line, h, want, cost, now_us, h->deadline_us && h->deadline_us < most ? h->deadline_us : most);
}

/* ---- asleep ---- */

static const struct wp_config_model *wakes(const struct wp_fleet *f, struct wp_str model)
{
    for (size_t i = 0; i < f->conf->n_models; i++)
        if (wp_str_is(model, f->conf->models[i].name) && wp_config_wakes(&f->conf->models[i]))
            return &f->conf->models[i];
    return NULL;
}

/* No worker of it is up.  *unsure: of some worker nobody knows yet, for it was not asked how it is. */
static bool is_asleep(const struct wp_fleet *f, struct wp_str model, bool *unsure)
{
    *unsure = false;
    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (!w->joined && w->bad_probes == 0)
            *unsure = true;
        if (w->up && !w->draining && !w->sleeping && wp_worker_serves(w, model))
            return false;
    }
    return true;
}

enum wp_hold_result wp_fleet_hold_asleep(struct wp_fleet *f, struct wp_hold *h, const struct wp_want *want, struct wp_placement *p, uint64_t now_us,
                                         uint64_t *retry_us)
{
    const struct wp_config_model *m = want->model && !want->only ? wakes(f, want->model->base) : NULL;
    uint64_t until = now_us + (m ? m->wake.wait_us : 0);
    struct wp_hold_line *line;
    bool unsure;

    if (!m || !is_asleep(f, want->model->base, &unsure))
        return WP_HOLD_NO;
    line = line_of(f, want->model->base);
    if (!line)
        return WP_HOLD_NO;
    if (line->queue.n >= m->wake.most) {
        *retry_us = wp_wake_expect_us(f->waker, m, now_us);
        return WP_HOLD_FULL;
    }
    line->asleep = true;
    h->p = p;
    if (h->client_until_us && h->client_until_us < until)
        until = h->client_until_us;
    if (want->due_us && want->due_us < until)
        until = want->due_us;
    return put(f, line, h, want, least_cost(f, want, 0), now_us, until);
}

/* While it is, what starts a worker is asked for as long as somebody waits. */
static void look_after_sleeper(struct wp_fleet *f, struct wp_hold_line *l, uint64_t now_us)
{
    const struct wp_config_model *m = wakes(f, wp_str_of(l->model));
    bool unsure;

    l->asleep = m && is_asleep(f, wp_str_of(l->model), &unsure);
    if (l->asleep && !unsure && l->queue.n)
        wp_wake_ask(f->waker, m, now_us);
    if (m && !l->asleep)
        wp_wake_came(f->waker, m, now_us);
}

/* ---- out ---- */

/* False: those who are free cannot take it (it is too long for them), and those who can are full: it waits on. */
static bool place_held(struct wp_fleet *f, struct wp_hold_line *l, struct wp_hold *h, uint64_t now_us)
{
    h->held_us = now_us > h->since_us ? (double)(now_us - h->since_us) : 0;
    f->n_held--;
    h->result = wp_fleet_place_now(f, h->want, h->p, now_us, &h->why, &h->retry_us);
    f->n_held++;
    if (h->result == WP_PLACE_BUSY && h->item.end == WP_QUEUE_TURN && is_on(f) && wp_fleet_full(f, wp_str_of(l->model), now_us))
        return false;
    let_go(f, h, now_us);
    if (h->result == WP_PLACE_NOBODY && l->asleep) {
        const struct wp_config_model *m = wakes(f, wp_str_of(l->model));

        h->why = "wake";
        h->retry_us = m ? wp_wake_expect_us(f->waker, m, now_us) : h->retry_us;
    }
    h->placed(h->arg);
    return true;
}

/* Everybody, when holding was switched off, but those who wait for a worker to come up. */
static struct wp_queue_item *next_of(struct wp_fleet *f, struct wp_hold_line *l, uint64_t now_us, double least)
{
    return wp_queue_pop(&l->queue, now_us, is_on(f) || l->asleep ? least : 0);
}

static uint64_t release_line(struct wp_fleet *f, struct wp_hold_line *l, uint64_t now_us)
{
    struct wp_queue_item *it, *back[BACK_MOST];
    double least = INFINITY;
    uint64_t next;
    int n = 0;

    if (l->asleep)
        look_after_sleeper(f, l, now_us);
    for (int i = 0; i < AT_ONCE && l->queue.n && n < BACK_MOST; i++) {
        least = least_wait(f, wp_str_of(l->model), now_us);
        it = next_of(f, l, now_us, least);
        if (!it)
            break;
        if (it->end == WP_QUEUE_CROWDS) {
            refuse_held(f, l, WP_CONTAINER(it, struct wp_hold, item), "tenant", now_us);
            continue;
        }
        if (!place_held(f, l, WP_CONTAINER(it, struct wp_hold, item), now_us))
            back[n++] = it;
    }
    for (int i = 0; i < n; i++)
        wp_queue_put_back(&l->queue, back[i]);
    next = wp_queue_next_us(&l->queue, now_us, least);
    return n && next < now_us + LOOK_EVERY_US ? now_us + LOOK_EVERY_US : next; /* before that somebody ends, or nothing has changed */
}

uint64_t wp_fleet_release_held(struct wp_fleet *f, uint64_t now_us)
{
    uint64_t next = UINT64_MAX;

    if (f->n_held == 0)
        return next;
    WP_LIST_EACH(&f->lines, at)
    {
        struct wp_hold_line *l = WP_CONTAINER(at, struct wp_hold_line, link);
        uint64_t own = l->queue.n ? release_line(f, l, now_us) : UINT64_MAX;

        next = own < next ? own : next;
    }
    if (f->lines.next != &f->lines) { /* the other one first, the next time: they may share workers */
        struct wp_list *first = f->lines.next;

        wp_list_del(first);
        wp_list_push(&f->lines, first);
    }
    return f->n_held == 0 ? UINT64_MAX : next < now_us + LOOK_EVERY_US ? next : now_us + LOOK_EVERY_US; /* a worker may come back meanwhile */
}

void wp_fleet_hold_configure(struct wp_fleet *f)
{
    const struct wp_queue_conf conf = conf_of(f);

    WP_LIST_EACH(&f->lines, at)
    WP_CONTAINER(at, struct wp_hold_line, link)->queue.conf = conf;
    wp_fleet_release_held(f, wp_now_us());
}

bool wp_fleet_unhold(struct wp_fleet *f, struct wp_hold *h)
{
    bool held;

    pthread_mutex_lock(&f->lock);
    held = h->line != NULL;
    if (held) {
        uint64_t now = wp_now_us();

        wp_queue_del(&h->line->queue, &h->item);
        let_go(f, h, now);
        wp_fleet_release_held(f, now);
    }
    pthread_mutex_unlock(&f->lock);
    return held;
}

uint64_t wp_fleet_release(struct wp_fleet *f)
{
    uint64_t next;

    pthread_mutex_lock(&f->lock);
    next = wp_fleet_release_held(f, wp_now_us());
    pthread_mutex_unlock(&f->lock);
    return next;
}

int wp_fleet_queue_json(struct wp_fleet *f, const struct wp_want *want, size_t n, struct wp_buf *out)
{
    const struct wp_hold_line *l = want->model ? find_line(f, want->model->base) : NULL;
    double cost = l ? least_cost(f, want, n) : 0, wait = l ? wp_queue_expect_us(&l->queue, want->who, cost) : NAN;
    int rc = wp_buf_adds(out, ",\"tenant\":");

    rc = rc ? rc : wp_buf_json(out, wp_str_of(want->tenant ? want->tenant->name : ""));
    rc = rc ? rc : wp_buf_printf(out, ",\"priority\":%d,\"queue\":{\"held\":%zu,\"held_of_tenant\":%zu,\"crowds\":%s", want->priority, l ? l->queue.n : 0,
                                 l ? l->queue.tenant[want->who.tenant <= WP_TENANTS ? want->who.tenant : 0].held : 0,
                                 l && wp_queue_crowds(&l->queue, want->who, cost) ? "true" : "false");
    if (rc == 0 && isfinite(wait))
        rc = wp_buf_printf(out, ",\"expected_us\":%.0f", wait);
    return rc ? rc : wp_buf_adds(out, "}");
}
