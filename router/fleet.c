/* SPDX-License-Identifier: Apache-2.0 */
#include "router/lend.h"
#include "router/fleet_inner.h"
#include "router/hold.h"
#include "router/recorder.h"
#include "router/verify.h"

#include "base/clock.h"
#include "index/identity.h"

#include <math.h>
#include <stdio.h>

enum { FIRST_MEAN_TOKENS = 1024 };

static void lock(struct wp_fleet *f)
{
    pthread_mutex_lock(&f->lock);
}

static void unlock(struct wp_fleet *f)
{
    pthread_mutex_unlock(&f->lock);
}

int wp_fleet_create(struct wp_fleet **out, const struct wp_config *conf, struct wp_metrics *metrics, struct wp_err *err)
{
    struct wp_fleet *f = wp_calloc(1, sizeof *f);
    struct wp_index_conf ic = {.cap_bytes = wp_config_index_cap(conf), .secret = wp_rng_secret()};
    int rc;

    if (!f)
        return wp_fail(err, WP_ENOMEM, "fleet: out of memory");
    pthread_mutex_init(&f->lock, NULL);
    wp_list_init(&f->workers);
    wp_list_init(&f->ratios);
    wp_list_init(&f->warm);
    wp_list_init(&f->lines);
    f->mean_tokens = FIRST_MEAN_TOKENS;
    f->rng.state = conf->policy.conf.seed ? conf->policy.conf.seed : wp_rng_secret();
    f->spaces.seed = f->sized.seed = f->sticky.worker_of.seed = wp_rng_secret();
    rc = wp_records_init(&f->records, err);
    if (rc == 0)
        rc = wp_index_create(&f->index, &ic, err);
    if (rc == 0)
        rc = wp_rooms_create(&f->rooms, wp_rng_secret(), err);
    if (rc == 0)
        wp_index_watch(f->index, wp_rooms_left, f->rooms);
    if (rc == 0)
        rc = wp_history_create(&f->history, wp_rng_secret(), err);
    if (rc == 0)
        rc = wp_fleet_configure(f, conf, err);
    if (rc == 0 && wp_fleet_metrics(f, metrics) < 0)
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

void wp_fleet_forget_rank(struct wp_fleet *f, struct wp_rank *r)
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
        wp_fleet_forget_rank(f, &w->rank[i]);
    wp_series_drop(f->in_flight, w->conf.id);
    wp_series_drop(f->backlog, w->conf.id);
    wp_series_drop(f->up, w->conf.id);
    wp_series_drop(f->breaker, w->conf.id);
    wp_series_drop(f->ended, w->conf.id);
    wp_series_drop(f->drift, w->conf.id);
    wp_series_drop(f->pace, w->conf.id);
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
    wp_fleet_hold_fini(f);
    wp_history_destroy(f->history);
    wp_index_destroy(f->index);
    wp_rooms_destroy(f->rooms);
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
    if (f->recorder)
        wp_recorder_policy(f->recorder, conf->policy.name, &conf->policy.conf);
    f->conf = conf;
    WP_LIST_EACH(&f->workers, at)
    wp_worker_costs(WP_CONTAINER(at, struct wp_worker, link), conf);
    wp_fleet_hold_configure(f);
    unlock(f);
    return 0;
}

int wp_fleet_make_room(struct wp_fleet *f, size_t more)
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

int wp_fleet_take_holders(struct wp_fleet *f, struct wp_worker *w, struct wp_err *err)
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

void wp_fleet_record(struct wp_fleet *f, struct wp_recorder *r)
{
    lock(f);
    f->recorder = r;
    wp_recorder_policy(r, f->policy_name, &f->conf->policy.conf);
    unlock(f);
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
    else if (wp_fleet_make_room(f, w->n_ranks) < 0)
        rc = wp_fail(err, WP_ENOMEM, "worker %s: out of memory", w->conf.id);
    else
        rc = wp_fleet_take_holders(f, w, err);
    if (rc == 0) {
        w->fleet = f;
        w->in_flight_gauge = WP_SERIES(f->in_flight, w->conf.id);
        w->backlog_gauge = WP_SERIES(f->backlog, w->conf.id);
        w->up_gauge = WP_SERIES(f->up, w->conf.id);
        w->breaker_gauge = WP_SERIES(f->breaker, w->conf.id);
        w->pace_gauge = WP_SERIES(f->pace, w->conf.id);
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

void wp_fleet_probed(struct wp_fleet *f, struct wp_worker *w, struct wp_engine_facts *facts, const struct wp_config *conf)
{
    bool slept, was_up;

    lock(f);
    if (!w->gone) {
        slept = w->sleeping;
        was_up = w->up;
        if (!w->conf.ranks && facts->feed.ranks && !facts->feed.why && !facts->feed.dials &&
            facts->feed.ranks != w->n_ranks)
            wp_fleet_change_ranks(f, w, facts->feed.ranks);
        if (wp_worker_reloaded(w, facts))
            for (uint32_t i = 0; i < w->n_ranks; i++)
                wp_index_doubt(f->index, w->rank[i].holder);
        wp_worker_probed(w, facts, conf);
        wp_fleet_lend(f, w);
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
    struct wp_rank *r;

    lock(f);
    if (rank >= w->n_ranks) {
        unlock(f);
        return;
    }
    r = &w->rank[rank];
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
    if (!w->gone && rank < w->n_ranks)
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

void wp_fleet_waker(struct wp_fleet *f, struct wp_waker *w)
{
    lock(f);
    f->waker = w;
    unlock(f);
}

void wp_fleet_memory(struct wp_fleet *f, uint64_t *index_bytes, uint64_t *history_bytes)
{
    struct wp_index_stats s;
    uint64_t blocks = 0;

    wp_index_stats(f->index, &s);
    lock(f);
    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (uint32_t i = 0; i < w->n_ranks; i++)
            blocks += wp_history_blocks(f->history, w->rank[i].holder);
    }
    unlock(f);
    *index_bytes = s.bytes;
    *history_bytes = blocks * WP_HISTORY_BLOCK_BYTES;
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

bool wp_fleet_welcomes(struct wp_fleet *f)
{
    bool any = wp_fleet_serving(f);

    lock(f);
    for (size_t i = 0; !any && i < f->conf->n_models; i++)
        any = wp_config_wakes(&f->conf->models[i]);
    unlock(f);
    return any;
}
