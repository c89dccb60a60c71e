/* SPDX-License-Identifier: Apache-2.0 */
#include "router/worker.h"

#include "base/rng.h"
#include "index/identity.h"

#include <stdio.h>

const char *const wp_breaker_names[] = {"closed", "half_open", "open"};
const char *const wp_outcome_names[] = {"neutral", "good", "failed", "busy"};
enum { ROOTS_MAX = 1024 };

struct wp_worker *wp_worker_ref(struct wp_worker *w)
{
    atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
    return w;
}

static void free_models(struct wp_engine_model *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wp_free(m[i].name);
        wp_free(m[i].parent);
    }
    wp_free(m);
}

void wp_worker_unref(struct wp_worker *w)
{
    if (!w || atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1)
        return;
    free_models(w->model, w->n_models);
    wp_worker_sweep_ranks(w); /* requests have references */
    wp_map_fini(&w->roots);
    wp_tls_unref(w->tls);
    wp_free(w->rank);
    wp_config_worker_fini(&w->conf);
    wp_free(w);
}

static int fixed_models(struct wp_worker *w)
{
    size_t n = 0;

    while (w->conf.models[n])
        n++;
    if (n == 0)
        return 0;
    w->model = wp_calloc(n, sizeof *w->model);
    if (!w->model)
        return WP_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        w->model[i].name = wp_strdup(w->conf.models[i]);
        if (!w->model[i].name)
            return WP_ENOMEM;
        w->model[i].max_len = w->conf.max_model_len;
        w->n_models = i + 1;
    }
    w->models_fixed = true;
    return 0;
}

/* The configured model that tells what this worker costs: the first it lists, or the only one there is. */
static const struct wp_config_model *costs_as(const struct wp_config_worker *w, const struct wp_config *all)
{
    for (char **m = w->models; *m; m++)
        for (size_t i = 0; i < all->n_models; i++)
            if (wp_str_is(wp_str_of(*m), all->models[i].name))
                return &all->models[i];
    return all->n_models == 1 ? &all->models[0] : NULL;
}

static int set_profile(struct wp_worker *w, const struct wp_config *all, struct wp_err *err)
{
    const struct wp_config_model *m = costs_as(&w->conf, all);
    int rc = wp_profile_find(m && m->profile[0] ? m->profile : wp_profile_name(0), &w->costs, err);

    if (rc == 0 && m) {
        w->costs.speed *= m->speed > 0 ? m->speed : 1;
        if (m->kv_bytes_per_token)
            w->costs.kv_bytes_per_token = m->kv_bytes_per_token;
    }
    return rc;
}

static void forget_learnt(struct wp_worker *w)
{
    wp_calibration_init(&w->learnt, &w->costs);
    w->borrowed = false;
    w->lesson = 0;
    w->interval[0] = w->interval[1] = (struct wp_interval){.n = 0};
}

void wp_worker_learnt(struct wp_worker *w, bool calibrate)
{
    const struct wp_work typical = wp_work_of(&w->costs, 0, WP_TYPICAL_TOKENS, 0, 0, false);

    w->profile = w->costs;
    w->error = 0;
    if (!calibrate || (!w->learnt.samples && !w->borrowed))
        return;
    wp_calibration_apply(&w->learnt, &w->costs, &w->profile);
    w->error = wp_calibration_error(&w->learnt, &typical);
}

void wp_worker_borrow(struct wp_worker *w, const struct wp_worker *from, bool calibrate)
{
    wp_calibration_borrow(&w->learnt, &from->learnt);
    w->borrowed = true;
    wp_worker_learnt(w, calibrate);
}

double wp_worker_pace(const struct wp_worker *w)
{
    const struct wp_work typical = wp_work_of(&w->costs, 0, WP_TYPICAL_TOKENS, 0, 0, false);
    double us = wp_work_us(&typical);

    return us > 0 && (w->learnt.samples || w->borrowed) ? wp_calibration_us(&w->learnt, &typical) / us : 1;
}

void wp_worker_costs(struct wp_worker *w, const struct wp_config *all)
{
    const struct wp_profile was = w->costs;
    struct wp_err err = WP_ERR_INIT;

    if (set_profile(w, all, &err) < 0)
        w->costs = was; /* no profile of that name: the configuration's check has told */
    else if (strcmp(was.name, w->costs.name) != 0 || was.speed != w->costs.speed)
        forget_learnt(w); /* it was against other costs */
    wp_worker_learnt(w, all->policy.conf.calibrate);
}

static int set_id(struct wp_worker *w)
{
    char text[300];

    if (w->conf.id[0])
        return 0;
    snprintf(text, sizeof text, "%.*s:%u", (int)w->url.host.n, w->url.host.p, w->url.port);
    wp_free(w->conf.id);
    w->conf.id = wp_strdup(text);
    return w->conf.id ? 0 : WP_ENOMEM;
}

int wp_worker_ranks(struct wp_worker *w, uint32_t n)
{
    struct wp_rank *rank = wp_calloc(n, sizeof *rank);
    bool fed = wp_worker_source(w).events[0] != 0;

    if (!rank)
        return WP_ENOMEM;
    w->key = wp_hash_item(wp_str_of(w->conf.id));
    w->rank = rank;
    w->n_ranks = n;
    w->ranks_made++;
    for (uint32_t i = 0; i < n; i++) {
        w->rank[i].number = i;
        w->rank[i].feed_state = fed ? "unknown" : "none";
        w->rank[i].key = n > 1 ? wp_hash_next(w->key, i) : w->key;
        wp_load_init(&w->rank[i].load);
    }
    return 0;
}

struct wp_feed_source wp_worker_source(const struct wp_worker *w)
{
    const struct wp_config_worker *c = &w->conf;
    bool found = !c->events[0] && w->found.ranks && !w->found.why && !w->found.dials && w->found.ranks == w->n_ranks;

    if (c->events[0] && strcmp(c->events, "none") != 0)
        return (struct wp_feed_source){c->events, c->replay, c->events_topic, c->events_mode == WP_EVENTS_BIND};
    return (struct wp_feed_source){found ? w->found.events : "", found ? w->found.replay : "", "", false};
}

bool wp_worker_asks_feed(const struct wp_worker *w)
{
    return !w->conf.events[0] && !w->found.known;
}

static uint32_t in_flight_of(const struct wp_old_ranks *o)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->n; i++)
        n += o->rank[i].load.in_flight;
    return n;
}

uint32_t wp_worker_in_flight(const struct wp_worker *w)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n_ranks; i++)
        n += w->rank[i].load.in_flight;
    for (const struct wp_old_ranks *o = w->old; o; o = o->next)
        n += in_flight_of(o);
    return n;
}

void wp_worker_sweep_ranks(struct wp_worker *w)
{
    for (struct wp_old_ranks **at = &w->old, *o; (o = *at);) {
        if (in_flight_of(o)) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        wp_free(o->rank);
        wp_free(o);
    }
}

int wp_worker_create(struct wp_worker **out, const struct wp_config_worker *conf, const struct wp_config *all, struct wp_err *err)
{
    struct wp_worker *w = wp_calloc(1, sizeof *w);
    const char *why = "";
    int rc;

    if (!w)
        return wp_fail(err, WP_ENOMEM, "worker: out of memory");
    atomic_init(&w->refs, 1);
    wp_list_init(&w->link);
    w->roots.seed = wp_rng_secret();
    w->reported_running = w->reported_waiting = w->kv_usage = -1;
    rc = wp_config_worker_copy(&w->conf, conf);
    if (rc < 0) {
        wp_free(w);
        return wp_fail(err, rc, "worker: out of memory");
    }
    if (!wp_url_parse(wp_str_of(w->conf.url), &w->url, &why)) {
        rc = wp_fail(err, WP_EINVAL, "worker url: want http://HOST:PORT or https://HOST:PORT, got %s: %s", w->conf.url, why);
        goto free;
    }
    if (w->url.tls && wp_tls_client(&w->tls, *w->conf.ca ? w->conf.ca : NULL, err) < 0) {
        rc = wp_wrap(err, "worker %s", w->conf.url);
        goto free;
    }
    w->engine = wp_engine_find(w->conf.engine);
    if (!w->engine) {
        rc = wp_fail(err, WP_EINVAL, "worker engine: unknown kind \"%s\"", w->conf.engine);
        goto free;
    }
    rc = set_profile(w, all, err);
    if (rc == 0 && (set_id(w) < 0 || fixed_models(w) < 0 || wp_worker_ranks(w, w->conf.ranks ? w->conf.ranks : 1) < 0))
        rc = wp_fail(err, WP_ENOMEM, "worker: out of memory");
    if (rc < 0)
        goto free;
    forget_learnt(w);
    w->profile = w->costs;
    w->block_size = w->conf.block_size ? w->conf.block_size : 16;
    w->block_size_told = w->conf.block_size != 0;
    w->kv_tokens = w->conf.kv_tokens ? w->conf.kv_tokens : w->profile.gpu_tokens + w->profile.cpu_tokens;
    *out = w;
    return 0;

free:
    wp_worker_unref(w);
    return rc;
}

const struct wp_engine_model *wp_worker_serves(const struct wp_worker *w, struct wp_str model)
{
    for (size_t i = 0; i < w->n_models; i++)
        if (wp_str_is(model, w->model[i].name))
            return &w->model[i];
    return NULL;
}

bool wp_is_our_trouble(int rc)
{
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -EADDRNOTAVAIL || rc == WP_ENOMEM;
}

void wp_worker_unlist(struct wp_worker *w, struct wp_str model)
{
    for (size_t i = 0; i < w->n_models && !w->models_fixed; i++) {
        struct wp_engine_model *m = &w->model[i];

        if (!m->parent || !wp_str_is(model, m->name))
            continue;
        wp_free(m->name);
        wp_free(m->parent);
        *m = w->model[--w->n_models];
        return;
    }
}

bool wp_worker_ready(const struct wp_worker *w, uint64_t now_us, const char **why)
{
    *why = w->draining                                                       ? "drain"
           : !w->joined                                                      ? "joining"
           : w->sleeping                                                     ? "sleeping"
           : !w->up                                                          ? "down"
           : w->breaker == WP_BREAKER_OPEN && now_us < w->open_until_us      ? "breaker"
           : w->breaker != WP_BREAKER_CLOSED && w->half_open_busy            ? "breaker"
           : now_us < w->rest_until_us                                       ? "resting"
                                                                             : NULL;
    return *why == NULL;
}

static void take_models(struct wp_worker *w, struct wp_engine_facts *f)
{
    if (w->models_fixed || !f->models_known)
        return;
    free_models(w->model, w->n_models);
    w->model = f->model;
    w->n_models = f->n_models;
    f->model = NULL;
    f->n_models = 0;
    if (w->conf.max_model_len)
        for (size_t i = 0; i < w->n_models; i++)
            w->model[i].max_len = w->conf.max_model_len;
}

/* Names are clients' to make up where adapters are loaded at run time: beyond some, those not listed now are forgotten. */
static void forget_roots(struct wp_worker *w, const struct wp_engine_facts *f)
{
    struct wp_map kept = {.seed = w->roots.seed};

    if (w->roots.n < ROOTS_MAX)
        return;
    for (size_t i = 0; i < f->n_models; i++) {
        uint64_t key = wp_hash_item(wp_str_of(f->model[i].name)), was;

        if (wp_map_get(&w->roots, key, &was))
            wp_map_put(&kept, key, was); /* out of memory: forgotten, too */
    }
    wp_map_fini(&w->roots);
    w->roots = kept;
}

bool wp_worker_reloaded(struct wp_worker *w, const struct wp_engine_facts *f)
{
    bool any = false;

    for (size_t i = 0; f->models_known && i < f->n_models; i++) {
        const struct wp_engine_model *m = &f->model[i];
        uint64_t key = wp_hash_item(wp_str_of(m->name)), was;
        bool known = m->root && wp_map_get(&w->roots, key, &was);

        if (!m->root || (known && was == m->root))
            continue;
        if (!known)
            forget_roots(w, f);
        else
            wp_log(WP_INFO, "worker", "worker=%s adapter=%s was loaded from another path: what the worker holds is in doubt", w->conf.id, m->name);
        any |= known;
        wp_map_put(&w->roots, key, m->root);
    }
    return any;
}

double wp_worker_wait_us(const struct wp_worker *w, const struct wp_rank *r, uint64_t now_us)
{
    return wp_load_wait_us(&r->load, &w->profile, now_us) + w->foreign_wait_us;
}

static double less(double a, double b)
{
    return a < b ? a : b;
}

/* Those beyond our own that are in no batch yet wait, the others run.  What we sent and has not begun to answer may be either. */
static struct wp_foreign surplus(const struct wp_worker *w, const struct wp_engine_facts *f)
{
    double running = f->running > 0 ? f->running : 0, waiting = f->waiting > 0 ? f->waiting : 0, own = 0, own_waiting = 0, more;
    struct wp_foreign s = {0};

    for (uint32_t i = 0; i < w->n_ranks; i++) {
        own += w->rank[i].load.in_flight + w->rank[i].more; /* an engine counts sequences */
        own_waiting += w->rank[i].load.in_flight - w->rank[i].load.decoding + w->rank[i].more_waiting;
    }
    more = running + waiting - own;
    if (more <= 0)
        return s;
    s.waiting = waiting > own_waiting ? less(waiting - own_waiting, more) : 0;
    s.running = more - s.waiting;
    return s;
}

/*
 * Our own account is the truth about what we sent.  What an engine reports beyond it counts when two scrapes in a row agree: at one
 * of them a request may have ended here and not yet there.  A page that did not come says nothing, and nothing is made of it.
 */
void wp_worker_others(struct wp_worker *w, const struct wp_engine_facts *f, double mean_tokens)
{
    struct wp_foreign now = {0}, was = w->surplus;

    if (wp_is_our_trouble(f->rc))
        return;
    if (f->metrics_known)
        now = surplus(w, f);
    w->surplus = now;
    w->foreign = (struct wp_foreign){less(now.running, was.running), less(now.waiting, was.waiting)};
    w->foreign_wait_us =
        w->foreign.waiting / w->n_ranks * wp_prefill_us(&w->profile, 0, (uint32_t)mean_tokens);
}

static void take_load(struct wp_worker *w, const struct wp_engine_facts *f)
{
    if (f->block_size && !w->conf.block_size) {
        w->block_size = f->block_size;
        w->block_size_told = true;
    }
    if (f->kv_tokens && !w->conf.kv_tokens)
        w->kv_tokens = f->kv_tokens;
    if (f->metrics_known) {
        w->reported_running = f->running;
        w->reported_waiting = f->waiting;
        w->kv_usage = f->kv_usage;
    }
    if (f->version[0])
        memcpy(w->version, f->version, sizeof w->version);
}

/* What the engine says of its events; a worker that comes back is asked again. */
static void take_feed(struct wp_worker *w, const struct wp_engine_facts *f)
{
    const struct wp_engine_feed *is = &f->feed, was = w->found;

    if (!is->known)
        return;
    w->found = *is;
    if (!is->ranks || (was.why == is->why && was.dials == is->dials && was.ranks == is->ranks && strcmp(was.events, is->events) == 0))
        return;
    if (is->why)
        wp_log(WP_WARN, "kv_events", "worker=%s announces KV events that cannot be followed: %s; history stands in", w->conf.id, is->why);
    else if (is->dials)
        wp_log(WP_WARN, "kv_events",
               "worker=%s sends its KV events to %s, where nobody listens unless you say so: give it events: \"%s\", events_mode: bind, "
               "ranks: %u, or start the engine with an endpoint tcp://*:PORT",
               w->conf.id, is->events, is->events, is->ranks);
    else if (is->ranks != w->n_ranks)
        wp_log(WP_WARN, "kv_events", "worker=%s announces KV events of %u ranks and has %u here, which was configured; history stands in",
               w->conf.id, is->ranks, w->n_ranks);
    else
        wp_log(WP_INFO, "kv_events", "worker=%s announces KV events of %u ranks at %s, replay %s", w->conf.id, is->ranks, is->events,
               is->replay[0] ? is->replay : "none");
}

/* One that was never up cannot go down: it is told of as often as one that does. */
static void say_probed(const struct wp_worker *w, bool was_up, const struct wp_config *conf)
{
    if (was_up != w->up)
        wp_log(w->up ? WP_INFO : WP_WARN, "worker", "worker=%s %s%s%s models=%zu block_size=%u", w->conf.id, w->up ? "up" : "down",
               w->up ? "" : ": ", w->trouble, w->n_models, w->block_size);
    else if (!w->joined && w->bad_probes == conf->health.fail)
        wp_log(WP_WARN, "worker", "worker=%s url=%s has not come up: %s; it is asked on", w->conf.id, w->conf.url, w->trouble);
}

void wp_worker_probed(struct wp_worker *w, struct wp_engine_facts *f, const struct wp_config *conf)
{
    bool was_up = w->up;
    /* An engine whose models are configured and that answers HTTP at all is good enough, whatever routes it lacks. */
    bool good = f->up || (w->models_fixed && !f->loading && f->rc >= 100 && f->rc < 500);

    if (wp_is_our_trouble(f->rc))
        return; /* no news of the worker */
    take_models(w, f);
    take_load(w, f);
    take_feed(w, f);
    if (f->sleep_known)
        w->sleeping = f->sleeping;
    if (good && (w->n_models || w->joined)) {
        w->bad_probes = 0;
        if (!w->joined || ++w->good_probes >= conf->health.pass)
            w->up = true;
        w->joined = true;
        w->trouble[0] = 0;
    } else {
        w->good_probes = 0;
        snprintf(w->trouble, sizeof w->trouble, "%s", f->loading ? "loading" : good ? "lists no model" :
                 f->tls ? f->tls : f->rc > 0 ? wp_reason(f->rc) : wp_strerror(f->rc));
        w->found.known = false;
        if (++w->bad_probes >= conf->health.fail)
            w->up = false;
    }
    if (!was_up && w->up)
        w->warmed = 0;
    say_probed(w, was_up, conf);
}
