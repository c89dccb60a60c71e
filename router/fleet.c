/* SPDX-License-Identifier: Apache-2.0 */
#include "router/fleet_inner.h"
#include "router/verify.h"

#include "base/clock.h"
#include "index/identity.h"

#include <math.h>
#include <stdio.h>

enum { RATIOS_MAX = 256, FIRST_MEAN_TOKENS = 1024 };

static void lock(struct wp_fleet *f)
{
    pthread_mutex_lock(&f->lock);
}

static void unlock(struct wp_fleet *f)
{
    pthread_mutex_unlock(&f->lock);
}

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

    lock(f);
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
    }
    tell_waits(f, now);
    wp_index_stats(f->index, &s);
    wp_gauge_set(f->index_blocks, (double)s.blocks);
    wp_gauge_set(f->index_locations, (double)s.locations);
    wp_gauge_set(f->index_floating, (double)s.floating);
    wp_gauge_set(f->index_doubtful, (double)(s.doubtful + unsure));
    wp_gauge_set(f->index_bytes, (double)s.bytes);
    wp_gauge_set(f->index_cap, (double)s.cap_bytes);
    wp_gauge_set(f->history_blocks, (double)history);
    unlock(f);
}

static int make_metrics(struct wp_fleet *f, struct wp_metrics *m)
{
    static const double blocks[] = {-256, -64, -16, -4, -1, 0, 1, 4, 16, 64, 256};
    static const double error_s[] = {-10, -3, -1, -0.3, -0.1, -0.03, -0.01, 0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
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

int wp_fleet_create(struct wp_fleet **out, const struct wp_config *conf, struct wp_metrics *metrics, struct wp_err *err)
{
    struct wp_fleet *f = wp_calloc(1, sizeof *f);
    struct wp_index_conf ic = {.cap_bytes = conf->index.cap_bytes, .secret = wp_rng_secret()};
    int rc;

    if (!f)
        return wp_fail(err, WP_ENOMEM, "fleet: out of memory");
    pthread_mutex_init(&f->lock, NULL);
    wp_list_init(&f->workers);
    wp_list_init(&f->ratios);
    wp_list_init(&f->warm);
    f->mean_tokens = FIRST_MEAN_TOKENS;
    f->rng.state = conf->policy.conf.seed ? conf->policy.conf.seed : wp_rng_secret();
    f->spaces.seed = f->sized.seed = f->sticky.worker_of.seed = wp_rng_secret();
    rc = wp_records_init(&f->records, err);
    if (rc == 0)
        rc = wp_index_create(&f->index, &ic, err);
    if (rc == 0)
        rc = wp_history_create(&f->history, wp_rng_secret(), err);
    if (rc == 0)
        rc = wp_fleet_configure(f, conf, err);
    if (rc == 0 && make_metrics(f, metrics) < 0)
        rc = wp_fail(err, WP_ENOMEM, "fleet: out of memory");
    if (rc < 0) {
        wp_fleet_destroy(f);
        return rc;
    }
    *out = f;
    return 0;
}

/* What a rank was believed to hold is gone. */
static void forget_cache(struct wp_fleet *f, struct wp_rank *r)
{
    wp_index_clear(f->index, r->holder);
    wp_history_forget(f->history, r->holder);
}

static void forget_rank(struct wp_fleet *f, struct wp_rank *r)
{
    size_t i = 0;
    uint64_t k, v;

    wp_warm_free(r->warm);
    r->warm = NULL;
    r->unsure = false;
    forget_cache(f, r);
    wp_history_passed(f->history, r->holder, UINT64_MAX);
    /* Its number is given to another only when its last request has ended: their blocks are still counted under it. */
    if (r->load.in_flight == 0)
        wp_index_drop(f->index, r->holder);
    while (wp_map_next(&f->sized, &i, &k, &v))
        if (k >> 32 == r->holder) {
            wp_map_del(&f->sized, k);
            i = 0; /* deletion shifts entries: start over; removals are rare */
        }
}

static void forget_worker(struct wp_fleet *f, struct wp_worker *w)
{
    w->gone = true;
    wp_list_del(&w->link);
    f->n_workers--;
    f->n_ranks -= w->n_ranks;
    for (uint32_t i = 0; i < w->n_ranks; i++)
        forget_rank(f, &w->rank[i]);
    wp_series_drop(f->in_flight, w->conf.id);
    wp_series_drop(f->backlog, w->conf.id);
    wp_series_drop(f->up, w->conf.id);
    wp_series_drop(f->breaker, w->conf.id);
    wp_series_drop(f->ended, w->conf.id);
    wp_series_drop(f->drift, w->conf.id);
    wp_series_drop(f->resyncs, w->conf.id);
    wp_worker_unref(w);
}

void wp_fleet_destroy(struct wp_fleet *f)
{
    if (!f)
        return;
    WP_LIST_EACH(&f->workers, at)
    forget_worker(f, WP_CONTAINER(at, struct wp_worker, link));
    WP_LIST_EACH(&f->ratios, at)
    {
        struct wp_model_ratio *r = WP_CONTAINER(at, struct wp_model_ratio, link);

        wp_free(r->name);
        wp_free(r);
    }
    WP_LIST_EACH(&f->warm, at)
    wp_warm_free(WP_CONTAINER(at, struct wp_warm_rank, link));
    if (f->policy)
        f->policy->ops->destroy(f->policy);
    wp_history_destroy(f->history);
    wp_index_destroy(f->index);
    wp_records_fini(&f->records);
    wp_overlap_fini(&f->overlap);
    wp_sticky_fini(&f->sticky);
    wp_map_fini(&f->spaces);
    wp_map_fini(&f->sized);
    wp_free(f->candidate);
    wp_free(f->view);
    wp_free(f->verdict);
    wp_free(f->shown);
    pthread_mutex_destroy(&f->lock);
    wp_free(f);
}

int wp_fleet_configure(struct wp_fleet *f, const struct wp_config *conf, struct wp_err *err)
{
    struct wp_policy *fresh = NULL;
    int rc = wp_policy_create(&fresh, conf->policy.name, &conf->policy.conf, err);

    if (rc < 0)
        return rc;
    lock(f);
    if (f->policy)
        f->policy->ops->destroy(f->policy);
    f->policy = fresh;
    snprintf(f->policy_name, sizeof f->policy_name, "%s", conf->policy.name);
    f->conf = conf;
    WP_LIST_EACH(&f->workers, at)
    wp_worker_costs(WP_CONTAINER(at, struct wp_worker, link), conf);
    unlock(f);
    return 0;
}

/* A decision allocates nothing: room for the ranks of one more worker is made when the worker comes. */
static int make_room(struct wp_fleet *f, size_t more)
{
    size_t cap = f->cap ? f->cap : 16;
    struct wp_overlap o = {0};
    void *p;

    while (cap < f->n_ranks + more)
        cap *= 2;
    if (f->n_ranks + more <= f->cap && wp_index_holders(f->index) + more <= f->overlap.words * 64)
        return 0;
    if (f->n_ranks + more <= f->cap) /* numbers of removed workers whose requests still run: just the overlap needs more room */
        cap = f->cap;
#define GROW(field)                                                                                                                 \
    p = wp_realloc(f->field, cap * sizeof *f->field);                                                                               \
    if (!p)                                                                                                                         \
        return WP_ENOMEM;                                                                                                           \
    f->field = p;
    GROW(candidate)
    GROW(view)
    GROW(verdict)
    GROW(shown)
#undef GROW
    if (wp_overlap_init(&o, wp_index_holders(f->index) + cap * 2) < 0)
        return WP_ENOMEM;
    wp_overlap_fini(&f->overlap);
    f->overlap = o;
    f->cap = cap;
    return 0;
}

static int take_holders(struct wp_fleet *f, struct wp_worker *w, struct wp_err *err)
{
    for (uint32_t i = 0; i < w->n_ranks; i++) {
        int rc = wp_fleet_rewarm(f, w, &w->rank[i])
                     ? 0
                     : wp_index_holder(f->index, WP_HOLDER_RANK, WP_NO_HOLDER, &w->rank[i].holder, err);

        if (rc < 0) {
            while (i-- > 0)
                wp_index_drop(f->index, w->rank[i].holder);
            return rc;
        }
    }
    return 0;
}

static struct wp_worker *find(struct wp_fleet *f, struct wp_str id)
{
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (wp_str_is(id, w->conf.id))
            return w;
    }
    return NULL;
}

int wp_fleet_add(struct wp_fleet *f, const struct wp_config_worker *conf, const struct wp_config *all, struct wp_err *err)
{
    struct wp_worker *w;
    int rc = wp_worker_create(&w, conf, all, err);

    if (rc < 0)
        return rc;
    lock(f);
    if (find(f, wp_str_of(w->conf.id)))
        rc = wp_fail(err, WP_EEXIST, "worker %s: exists already", w->conf.id);
    else if (make_room(f, w->n_ranks) < 0)
        rc = wp_fail(err, WP_ENOMEM, "worker %s: out of memory", w->conf.id);
    else
        rc = take_holders(f, w, err);
    if (rc == 0) {
        w->fleet = f;
        w->in_flight_gauge = WP_SERIES(f->in_flight, w->conf.id);
        w->backlog_gauge = WP_SERIES(f->backlog, w->conf.id);
        w->up_gauge = WP_SERIES(f->up, w->conf.id);
        w->breaker_gauge = WP_SERIES(f->breaker, w->conf.id);
        w->drift = WP_SERIES(f->drift, w->conf.id);
        w->resyncs = WP_SERIES(f->resyncs, w->conf.id);
        for (int o = 0; o < WP_OUTCOMES; o++)
            w->ended[o] = WP_SERIES(f->ended, w->conf.id, wp_outcome_names[o]);
        wp_list_push(&f->workers, &w->link);
        f->n_workers++;
        f->n_ranks += w->n_ranks;
    }
    unlock(f);
    if (rc < 0)
        wp_worker_unref(w);
    return rc;
}

int wp_fleet_remove(struct wp_fleet *f, struct wp_str id)
{
    struct wp_worker *w;

    lock(f);
    w = find(f, id);
    if (w)
        forget_worker(f, w);
    wp_fleet_drop_cold(f);
    unlock(f);
    return w ? 0 : WP_ENOENT;
}

int wp_fleet_drain(struct wp_fleet *f, struct wp_str id, bool drain)
{
    struct wp_worker *w;

    lock(f);
    w = find(f, id);
    if (w)
        w->draining = drain;
    unlock(f);
    return w ? 0 : WP_ENOENT;
}

struct wp_worker *wp_fleet_find(struct wp_fleet *f, struct wp_str id)
{
    struct wp_worker *w;

    lock(f);
    w = find(f, id);
    if (w)
        wp_worker_ref(w);
    unlock(f);
    return w;
}

void wp_fleet_stick(struct wp_fleet *f, struct wp_str response_id, const struct wp_worker *w)
{
    lock(f);
    wp_sticky_put(&f->sticky, response_id, w->key);
    unlock(f);
}

struct wp_worker *wp_fleet_maker(struct wp_fleet *f, struct wp_str response_id)
{
    struct wp_worker *found = NULL;
    uint64_t key;

    lock(f);
    if (wp_sticky_get(&f->sticky, response_id, &key))
        WP_LIST_EACH(&f->workers, at)
        if (WP_CONTAINER(at, struct wp_worker, link)->key == key)
            found = wp_worker_ref(WP_CONTAINER(at, struct wp_worker, link));
    unlock(f);
    return found;
}

void wp_fleet_each(struct wp_fleet *f, void (*fn)(void *arg, struct wp_worker *w), void *arg)
{
    lock(f);
    WP_LIST_EACH(&f->workers, at)
    fn(arg, WP_CONTAINER(at, struct wp_worker, link));
    unlock(f);
}

/* A worker that was never sent anything turns out to have another number of ranks. */
static void change_ranks(struct wp_fleet *f, struct wp_worker *w, uint32_t n)
{
    struct wp_rank *was = w->rank;
    uint32_t n_was = w->n_ranks;
    struct wp_err err;

    if (make_room(f, n) < 0 || wp_worker_ranks(w, n) < 0)
        return; /* as it was: only its events are not followed */
    if (take_holders(f, w, &err) < 0) {
        wp_free(w->rank);
        w->rank = was;
        w->n_ranks = n_was;
        return;
    }
    for (uint32_t i = 0; i < n_was; i++)
        forget_rank(f, &was[i]);
    f->n_ranks += n;
    f->n_ranks -= n_was;
    wp_free(was);
}

void wp_fleet_probed(struct wp_fleet *f, struct wp_worker *w, struct wp_engine_facts *facts, const struct wp_config *conf)
{
    bool slept, was_up;

    lock(f);
    if (!w->gone) {
        slept = w->sleeping;
        was_up = w->up;
        if (!w->joined && !w->conf.ranks && facts->feed.ranks && !facts->feed.why && !facts->feed.dials &&
            facts->feed.ranks != w->n_ranks)
            change_ranks(f, w, facts->feed.ranks);
        if (wp_worker_reloaded(w, facts))
            for (uint32_t i = 0; i < w->n_ranks; i++)
                wp_index_doubt(f->index, w->rank[i].holder);
        wp_worker_probed(w, facts, conf);
        if (w->joined && !wp_list_empty(&f->warm))
            wp_fleet_drop_cold(f);
        wp_worker_others(w, facts, f->mean_tokens);
        if (was_up && !w->up)
            atomic_fetch_add(&f->downs, 1);
        for (uint32_t i = 0; w->sleeping && !slept && i < w->n_ranks; i++)
            forget_cache(f, &w->rank[i]); /* a sleeper has thrown it away */
    }
    unlock(f);
}

uint64_t wp_fleet_downs(const struct wp_fleet *f)
{
    return atomic_load(&f->downs);
}

bool wp_fleet_is_down(struct wp_fleet *f, const struct wp_worker *w)
{
    bool down;

    lock(f);
    down = w->joined && !w->up;
    unlock(f);
    return down;
}

void wp_fleet_unlist(struct wp_fleet *f, struct wp_worker *w, struct wp_str model)
{
    lock(f);
    wp_worker_unlist(w, model);
    unlock(f);
}

void wp_fleet_feed(struct wp_fleet *f, struct wp_worker *w, uint32_t rank, const struct wp_rank_feed *told)
{
    struct wp_rank *r = &w->rank[rank];

    lock(f);
    r->fed = told->fed;
    r->live = told->live;
    r->feed_state = told->state;
    r->coverage = told->coverage;
    r->next = told->next;
    r->window = told->window;
    r->unsure = told->unsure;
    if (told->block_size && !w->conf.block_size && !w->block_size_told) {
        w->block_size = told->block_size;
        w->block_size_told = true;
    }
    if (told->block_size && w->kv_tokens)
        wp_index_expect(f->index, r->holder, w->kv_tokens / told->block_size);
    wp_fleet_feed_moved(f, r, told->batch, wp_now_us());
    unlock(f);
}

void wp_fleet_forget(struct wp_fleet *f, struct wp_worker *w, uint32_t rank)
{
    lock(f);
    if (!w->gone)
        wp_history_forget(f->history, w->rank[rank].holder);
    unlock(f);
}

bool wp_fleet_verify_rank(struct wp_fleet *f, const struct wp_worker *w, uint32_t rank, struct wp_verify_rank *out)
{
    bool there;

    lock(f);
    there = !w->gone && rank < w->n_ranks;
    if (there)
        *out = (struct wp_verify_rank){
            .number = rank,
            .holder = w->rank[rank].holder,
            .feed = w->rank[rank].feed_state,
            .next = w->rank[rank].next,
            .block_size = w->block_size,
            .kv_tokens = w->kv_tokens,
            .kv_usage = w->kv_usage,
            .running = w->reported_running,
        };
    unlock(f);
    return there;
}

bool wp_fleet_resync_due(struct wp_fleet *f, struct wp_worker *w, uint32_t rank, char why[], size_t cap)
{
    struct wp_rank *r = &w->rank[rank];
    bool due;

    lock(f);
    due = r->resync_due;
    r->resync_due = false;
    if (due)
        snprintf(why, cap, "%s", r->resync_why);
    unlock(f);
    return due;
}

struct wp_index *wp_fleet_index(struct wp_fleet *f)
{
    return f->index;
}

uint32_t wp_fleet_block_size(struct wp_fleet *f, const struct wp_worker *w)
{
    uint32_t size;

    lock(f);
    size = w->block_size_told ? w->block_size : 0;
    unlock(f);
    return size;
}

uint64_t wp_fleet_requests(struct wp_fleet *f, const struct wp_worker *w)
{
    uint64_t n;

    lock(f);
    n = w->requests;
    unlock(f);
    return n;
}

double wp_fleet_coverage(struct wp_fleet *f, const struct wp_worker *w, uint32_t rank)
{
    double c;

    lock(f);
    c = w->rank[rank].coverage;
    unlock(f);
    return c;
}

char *wp_fleet_base_model(struct wp_fleet *f, const struct wp_worker *w)
{
    char *name = NULL;

    lock(f);
    for (size_t i = 0; !name && i < w->n_models; i++)
        if (!w->model[i].parent)
            name = wp_strdup(w->model[i].name);
    unlock(f);
    return name;
}

bool wp_fleet_serving(struct wp_fleet *f)
{
    uint64_t now = wp_now_us();
    bool any = false;
    const char *why;

    lock(f);
    WP_LIST_EACH(&f->workers, at)
    any |= wp_worker_ready(WP_CONTAINER(at, struct wp_worker, link), now, &why);
    unlock(f);
    return any;
}

/* The configured name that an alias stands for, or the name itself. */
static struct wp_str unalias(const struct wp_config *conf, struct wp_str name)
{
    for (size_t i = 0; i < conf->n_models; i++)
        for (char **a = conf->models[i].aliases; *a; a++)
            if (wp_str_is(name, *a))
                return wp_str_of(conf->models[i].name);
    return name;
}

static const struct wp_config_model *configured(const struct wp_config *conf, struct wp_str name)
{
    for (size_t i = 0; i < conf->n_models; i++)
        if (wp_str_is(name, conf->models[i].name))
            return &conf->models[i];
    return NULL;
}

/* The one base model that the fleet serves; absent when there are several or none. */
static struct wp_str only_model(struct wp_fleet *f)
{
    struct wp_str one = {0};

    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (size_t i = 0; i < w->n_models; i++) {
            if (w->model[i].parent)
                continue;
            if (one.p && !wp_str_is(one, w->model[i].name))
                return (struct wp_str){0};
            one = wp_str_of(w->model[i].name);
        }
    }
    return one;
}

static void add_size(struct wp_model_info *info, uint32_t size)
{
    for (size_t i = 0; i < info->n_sizes; i++)
        if (info->block_size[i] == size)
            return;
    if (info->n_sizes < WP_BLOCK_SIZES_MAX)
        info->block_size[info->n_sizes++] = size;
}

static double ratio_of(struct wp_fleet *f, struct wp_str model)
{
    WP_LIST_EACH(&f->ratios, at)
    {
        struct wp_model_ratio *r = WP_CONTAINER(at, struct wp_model_ratio, link);

        if (wp_str_is(model, r->name))
            return r->bytes_per_token;
    }
    return 4; /* English text in today's vocabularies, until usage says better */
}

static void look_for(struct wp_fleet *f, struct wp_str name, struct wp_model_info *info, const char **parent)
{
    bool any = false;

    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);
        const struct wp_engine_model *m = wp_worker_serves(w, name);

        any |= w->n_models > 0;
        if (!m)
            continue;
        info->known = true;
        *parent = m->parent ? m->parent : *parent;
        add_size(info, w->block_size);
        if (m->max_len > info->max_len)
            info->max_len = m->max_len;
    }
    /* Nobody has said what it serves yet: 503, not 404. */
    info->listed = info->known || configured(f->conf, name) != NULL;
    info->known = info->listed || !any;
}

int wp_fleet_model(struct wp_fleet *f, struct wp_str name, struct wp_arena *arena, struct wp_model_info *out)
{
    const struct wp_config_model *m;
    const char *parent = NULL;
    char *copy;

    *out = (struct wp_model_info){0};
    lock(f);
    name = name.p ? unalias(f->conf, name) : only_model(f);
    if (!name.p) {
        unlock(f);
        return 0;
    }
    look_for(f, name, out, &parent);
    out->bytes_per_token = ratio_of(f, parent ? wp_str_of(parent) : name); /* an adapter has its base's tokenizer */
    copy = wp_arena_strndup(arena, name.p, name.n);
    out->name = (struct wp_str){copy, name.n};
    out->base = out->name;
    if (copy && parent) {
        out->lora = out->name;
        copy = wp_arena_strndup(arena, parent, strlen(parent));
        out->base = (struct wp_str){copy, strlen(parent)};
    }
    m = copy ? configured(f->conf, out->base) : NULL;
    out->confirm = m ? m->confirm : WP_CONFIRM_PASSIVE;
    unlock(f);
    return copy ? 0 : WP_ENOMEM;
}

void wp_fleet_learn_tokens(struct wp_fleet *f, struct wp_str base, uint64_t bytes, uint64_t tokens)
{
    struct wp_model_ratio *found = NULL;
    double seen = tokens ? (double)bytes / (double)tokens : 0;

    if (tokens < 16 || seen < 0.1 || seen > 100)
        return; /* too short to tell, or nonsense */
    lock(f);
    WP_LIST_EACH(&f->ratios, at)
    if (wp_str_is(base, WP_CONTAINER(at, struct wp_model_ratio, link)->name))
        found = WP_CONTAINER(at, struct wp_model_ratio, link);
    if (!found && f->n_ratios < RATIOS_MAX) {
        found = wp_calloc(1, sizeof *found);
        if (found && !(found->name = wp_strndup(base.p, base.n))) {
            wp_free(found);
            found = NULL;
        }
        if (found) {
            found->bytes_per_token = seen;
            wp_list_push(&f->ratios, &found->link);
            f->n_ratios++;
        }
    }
    if (found)
        found->bytes_per_token += 0.05 * (seen - found->bytes_per_token);
    unlock(f);
}
