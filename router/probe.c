/* SPDX-License-Identifier: Apache-2.0 */
#include "router/probe.h"

#include <stdio.h>

enum { TIMEOUT_MIN_US = 1000000, TIMEOUT_MAX_US = 5000000, FIRST_US = 200000 };

struct patient {
    struct wp_list link;
    struct wp_prober *prober;
    struct wp_worker *worker; /* a reference */
    struct wp_timer timer;
    struct wp_probe *probe; /* under way */
    uint64_t pause_us;      /* while it is not up: doubles up to the interval */
    bool there;             /* found in the fleet by the sync at hand */
    const char *missing;    /* the last one that was said, to say it once */
};

struct wp_prober {
    struct wp_gate *gate;
    /*
     * Of its own: a request that finds a connection which only a probe has used cannot tell a connection that was closed under it
     * from a worker that it killed.
     */
    struct wp_client *client;
    struct wp_list patients;
    void (*answered)(void *arg);
    void *arg;
};

static void next(struct patient *p, bool up)
{
    uint64_t interval = wp_gate_conf(p->prober->gate)->health.interval_us;

    p->pause_us = up ? interval : p->pause_us ? p->pause_us * 2 : FIRST_US;
    if (p->pause_us > interval)
        p->pause_us = interval;
    wp_timer_in(&p->prober->gate->loop, &p->timer, p->pause_us);
    if (up)
        p->pause_us = 0;
}

static void on_answer(void *arg, struct wp_engine_facts *facts)
{
    struct patient *p = arg;
    struct wp_gate *g = p->prober->gate;

    p->probe = NULL;
    if (facts->up && facts->missing && facts->missing != p->missing)
        wp_log(WP_INFO, "worker", "worker=%s does not tell its load: looked for %s; our own account decides", p->worker->conf.id,
               facts->missing);
    p->missing = facts->missing;
    wp_fleet_probed(g->router->fleet, p->worker, facts, wp_gate_conf(g));
    if (p->prober->answered)
        p->prober->answered(p->prober->arg);
    next(p, facts->up);
}

/* A worker that takes connections and says nothing is found out no slower than the operator wants to hear of it. */
static uint64_t timeout_us(uint64_t interval_us)
{
    return interval_us < TIMEOUT_MIN_US ? TIMEOUT_MIN_US : interval_us > TIMEOUT_MAX_US ? TIMEOUT_MAX_US : interval_us;
}

static void on_time(struct wp_timer *t)
{
    struct patient *p = t->arg;
    struct wp_worker *w = p->worker;
    struct wp_gate *g = p->prober->gate;
    struct wp_engine_target target = {
        .host = w->url.host,
        .port = w->url.port,
        .tls = w->tls,
        .base = w->url.path,
        .health = wp_str_of(wp_gate_conf(g)->health.path),
        .bearer = wp_str_of(w->conf.api_key),
        .timeout_us = timeout_us(wp_gate_conf(g)->health.interval_us),
    };

    p->probe = w->engine->probe(p->prober->client, &target,
                                WP_PROBE_HEALTH | WP_PROBE_MODELS | WP_PROBE_LOAD | (wp_worker_asks_feed(w) ? WP_PROBE_FEED : 0),
                                on_answer, p);
    if (!p->probe)
        next(p, false); /* out of memory: later */
}

static void patient_free(struct patient *p)
{
    wp_timer_stop(&p->prober->gate->loop, &p->timer);
    if (p->probe)
        wp_probe_cancel(p->probe);
    wp_list_del(&p->link);
    wp_worker_unref(p->worker);
    wp_free(p);
}

static struct patient *find(struct wp_prober *pr, const struct wp_worker *w)
{
    WP_LIST_EACH(&pr->patients, at)
    if (WP_CONTAINER(at, struct patient, link)->worker == w)
        return WP_CONTAINER(at, struct patient, link);
    return NULL;
}

static void see(void *arg, struct wp_worker *w) /* under the fleet's lock */
{
    struct wp_prober *pr = arg;
    struct patient *p = find(pr, w);

    if (!p) {
        p = wp_calloc(1, sizeof *p);
        if (!p)
            return; /* the next sync tries again */
        p->prober = pr;
        p->worker = wp_worker_ref(w);
        wp_timer_init(&p->timer, on_time, p);
        wp_list_push(&pr->patients, &p->link);
        wp_timer_in(&pr->gate->loop, &p->timer, 0);
    }
    p->there = true;
}

int wp_prober_create(struct wp_prober **out, struct wp_gate *g, void (*answered)(void *arg), void *arg, struct wp_err *err)
{
    struct wp_prober *p = wp_calloc(1, sizeof *p);
    const struct wp_client_conf cc = {0};
    int rc;

    if (!p)
        return wp_fail(err, WP_ENOMEM, "prober: out of memory");
    rc = wp_client_create(&p->client, &g->loop, &cc, err);
    if (rc < 0) {
        wp_free(p);
        return rc;
    }
    p->gate = g;
    p->answered = answered;
    p->arg = arg;
    wp_list_init(&p->patients);
    *out = p;
    return 0;
}

void wp_prober_sync(struct wp_prober *pr)
{
    WP_LIST_EACH(&pr->patients, at)
    WP_CONTAINER(at, struct patient, link)->there = false;
    wp_fleet_each(pr->gate->router->fleet, see, pr);
    WP_LIST_EACH(&pr->patients, at)
    if (!WP_CONTAINER(at, struct patient, link)->there)
        patient_free(WP_CONTAINER(at, struct patient, link));
}

void wp_prober_destroy(struct wp_prober *pr)
{
    if (!pr)
        return;
    WP_LIST_EACH(&pr->patients, at)
    patient_free(WP_CONTAINER(at, struct patient, link));
    wp_client_destroy(pr->client, NULL, NULL);
    wp_free(pr);
}
