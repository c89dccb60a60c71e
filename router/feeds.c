/* SPDX-License-Identifier: Apache-2.0 */
#include "router/feeds.h"

#include "adapters/events/feed.h"
#include "adapters/events/ingest.h"
#include "base/clock.h"
#include "index/index.h"
#include "router/warm.h"

#include <math.h>
#include <stdio.h>

enum { LOOK_US = 500000, SILENT_US = 30000000, SILENT_REQUESTS = 5 };

struct watch_rank {
    struct watch *watch;
    uint32_t number;
    struct wp_ingest *ingest;
    enum wp_feed_state state;
    bool resyncing;           /* a replay runs because its claims were wrong */
    bool resumed;             /* it was restored from a snapshot, and its publisher may have to confirm it yet */
    double last_ts;           /* of the last batch, by the publisher's clock */
    uint64_t batches;
    struct wp_ingest_counts told; /* what the metrics know already */
};

struct watch { /* one worker with a feed */
    struct wp_list link;
    struct wp_feed_desk *desk;
    struct wp_worker *worker; /* a reference */
    char *model;              /* the base model that its events are about */
    char *events, *replay;    /* where it is followed */
    struct wp_feed *feed;
    struct watch_rank *rank;
    uint32_t n_ranks;
    uint32_t ranks_made; /* the worker's, when it was opened: others than those are not its */
    bool there;          /* found in the fleet by the sync at hand */
    bool refused;        /* its endpoint is wrong: said once */
    uint64_t opened_us, requests_then;
    bool silence_said;
    struct wp_log_limit limit;
};

struct wp_feed_desk {
    struct wp_gate *gate;
    struct wp_feeds *feeds;
    struct wp_list watches;
    struct wp_timer look;
    struct wp_event_scratch scratch;
    struct wp_event_batch batch; /* what head() read, for the apply() that follows */
    struct wp_family *events, *states, *lag, *coverage;
    unsigned open; /* feeds that have not said closed */
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- what comes from a feed ---- */

static struct watch_rank *rank_of(struct watch *w, uint32_t rank)
{
    return rank < w->n_ranks ? &w->rank[rank] : NULL;
}

static void tell_fleet(struct watch_rank *r, bool batch)
{
    struct watch *w = r->watch;
    struct wp_feed_status status = {0};
    struct wp_rank_feed told = {
        .fed = true,
        .live = r->state == WP_FEED_LIVE || r->state == WP_FEED_SYNCING,
        .state = wp_feed_state_name(r->state),
        .batch = batch,
    };
    uint32_t size = wp_ingest_its_block_size(r->ingest);

    for (size_t i = 0; w->feed && i < wp_feed_publishers(w->feed); i++) {
        struct wp_feed_status s;

        wp_feed_status(w->feed, i, &s);
        if (s.rank == r->number)
            status = s;
    }
    r->resumed = r->resumed && status.resumed;
    told.unsure = r->resumed;
    told.block_size = size;
    told.next = status.next;
    told.window = wp_ingest_window(r->ingest);
    told.coverage = r->state == WP_FEED_UNKNOWN
                        ? 0
                        : wp_ingest_coverage(r->ingest, status.whole, size ? w->worker->kv_tokens / size : 0);
    wp_fleet_feed(w->desk->gate->router->fleet, w->worker, r->number, &told);
}

static bool on_batch_head(void *arg, struct wp_str payload, struct wp_batch_head *out)
{
    struct watch *w = arg;
    struct wp_feed_desk *d = w->desk;
    struct wp_err err = WP_ERR_INIT;
    uint64_t skipped;

    if (wp_event_open(&d->batch, payload, &err) < 0) {
        wp_count(WP_SERIES(d->events, w->worker->conf.id, "batch", "rejected"), 1);
        if (wp_log_may(&w->limit, wp_now_us(), &skipped))
            wp_log(WP_WARN, "kv_events", "worker=%s payload refused: %s (%llu more)", w->worker->conf.id, err.text,
                   (unsigned long long)skipped);
        return false;
    }
    *out = (struct wp_batch_head){.ts = d->batch.ts, .ranked = d->batch.has_rank, .rank = d->batch.rank};
    return true;
}

static void on_apply(void *arg, uint32_t rank, uint64_t seq, struct wp_str payload)
{
    struct watch *w = arg;
    struct watch_rank *r = rank_of(w, rank);

    (void)seq;
    (void)payload;
    if (!r) {
        wp_count(WP_SERIES(w->desk->events, w->worker->conf.id, "batch", "foreign_rank"), 1);
        return;
    }
    r->last_ts = w->desk->batch.ts;
    r->batches++;
    wp_ingest_batch(r->ingest, &w->desk->batch, wp_now_us());
    wp_count(WP_SERIES(w->desk->events, w->worker->conf.id, "batch", "applied"), 1);
    tell_fleet(r, true);
}

static void on_clear(void *arg, uint32_t rank, enum wp_clear how)
{
    struct watch *w = arg;
    struct watch_rank *r = rank_of(w, rank);

    if (!r || how == WP_CLEAR_NONE)
        return;
    if (how == WP_CLEAR_GONE) {
        wp_ingest_gone(r->ingest);
        wp_fleet_forget(w->desk->gate->router->fleet, w->worker, rank);
    } else {
        wp_ingest_doubt(r->ingest);
    }
    wp_count(WP_SERIES(w->desk->events, w->worker->conf.id, "clear", how == WP_CLEAR_GONE ? "gone" : "doubt"), 1);
    wp_log(WP_WARN, "kv_events", "worker=%s rank=%u %s", w->worker->conf.id, rank,
           how == WP_CLEAR_GONE ? "started anew or stayed away: what it held is gone" : "lost messages: what it holds is in doubt");
    tell_fleet(r, false);
}

static void on_state(void *arg, uint32_t rank, enum wp_feed_state state, const char *why)
{
    struct watch *w = arg;
    struct watch_rank *r = rank_of(w, rank);

    if (!r)
        return;
    r->state = state;
    if (r->resyncing && state != WP_FEED_SYNCING) {
        r->resyncing = false;
        wp_ingest_doubt(r->ingest);
    }
    wp_log(WP_INFO, "kv_events", "worker=%s rank=%u %s%s%s", w->worker->conf.id, rank, wp_feed_state_name(state), why ? ": " : "",
           why ? why : "");
    tell_fleet(r, false);
}

static void desk_free(struct wp_feed_desk *d)
{
    wp_event_scratch_fini(&d->scratch);
    if (d->closed)
        d->closed(d->closed_arg);
    wp_free(d);
}

static void feeds_closed(void *arg)
{
    desk_free(arg);
}

static void watch_free(struct watch *w)
{
    for (uint32_t i = 0; i < w->n_ranks; i++)
        wp_ingest_destroy(w->rank[i].ingest);
    wp_free(w->rank);
    wp_free(w->model);
    wp_free(w->events);
    wp_free(w->replay);
    wp_worker_unref(w->worker);
    wp_free(w);
}

static void on_closed(void *arg)
{
    struct watch *w = arg;
    struct wp_feed_desk *d = w->desk;

    watch_free(w);
    if (--d->open == 0 && d->closing)
        wp_feeds_destroy(d->feeds, feeds_closed, d);
}

static const struct wp_feed_ops feed_ops = {
    .head = on_batch_head,
    .apply = on_apply,
    .clear = on_clear,
    .state = on_state,
    .closed = on_closed,
};

/* ---- opening and closing ---- */

static void drop_series(struct watch *w)
{
    struct wp_feed_desk *d = w->desk;

    wp_series_drop(d->events, w->worker->conf.id);
    wp_series_drop(d->states, w->worker->conf.id);
    wp_series_drop(d->lag, w->worker->conf.id);
    wp_series_drop(d->coverage, w->worker->conf.id);
}

static void stop(struct watch *w)
{
    wp_list_del(&w->link);
    drop_series(w);
    if (w->feed)
        wp_feed_close(w->feed); /* on_closed frees the watch */
    else
        watch_free(w);
}

/* The worker is there and its publisher is elsewhere, or nowhere: what it told is not known to hold any more. */
static void abandon(struct watch *w)
{
    const struct wp_rank_feed none = {.state = "none"};

    for (uint32_t i = 0; i < w->n_ranks; i++) {
        wp_ingest_gone(w->rank[i].ingest);
        wp_fleet_feed(w->desk->gate->router->fleet, w->worker, i, &none);
    }
}

static int make_ingests(struct watch *w, struct wp_err *err)
{
    struct wp_worker *k = w->worker;
    uint32_t n = k->n_ranks;

    w->rank = wp_calloc(n, sizeof *w->rank);
    if (!w->rank)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    for (; w->n_ranks < n; w->n_ranks++) {
        struct watch_rank *r = &w->rank[w->n_ranks];
        struct wp_ingest_conf pc = {
            .index = wp_fleet_index(w->desk->gate->router->fleet),
            .holder = k->rank[w->n_ranks].holder,
            .model = wp_str_of(w->model),
            .domain = WP_STR(""),
            .block_size = wp_fleet_block_size(w->desk->gate->router->fleet, k),
            .secret = wp_rng_secret(),
        };
        int rc = wp_ingest_create(&r->ingest, &pc, err);

        if (rc < 0)
            return rc;
        r->watch = w;
        r->number = w->n_ranks;
    }
    return 0;
}

/* What a snapshot had of the rank goes on, or is gone: where it is followed, or what about, is another one now. */
static struct wp_sub_mark resume(struct watch *w, struct watch_rank *r)
{
    struct wp_warm_rank *warm = wp_fleet_take_warm(w->desk->gate->router->fleet, w->worker, r->number);
    struct wp_sub_mark mark = {0};

    if (!warm)
        return mark;
    if (warm->mark.next && strcmp(warm->events, w->events) == 0 && strcmp(warm->model, w->model) == 0 &&
        !wp_worker_source(w->worker).bind && wp_ingest_resume(r->ingest, wp_buf_str(&warm->ingest)) == 0) {
        mark = warm->mark;
        r->resumed = true;
    } else {
        wp_log(WP_INFO, "kv_events", "worker=%s rank=%u what a snapshot had of it is dropped: it is followed otherwise now",
               w->worker->conf.id, r->number);
        wp_ingest_gone(r->ingest);
    }
    wp_warm_free(warm);
    return mark;
}

static int open_feed(struct watch *w, struct wp_err *err)
{
    struct wp_sub_mark marks[WP_FEED_RANKS_MAX] = {{0}};
    struct wp_feed_source from = wp_worker_source(w->worker);
    struct wp_feed_conf fc = {
        .name = wp_str_of(w->worker->conf.id),
        .events = wp_str_of(w->events),
        .bind = from.bind,
        .replay = w->replay[0] ? wp_str_of(w->replay) : (struct wp_str){0},
        .topic = from.topic[0] ? wp_str_of(from.topic) : (struct wp_str){0},
        .ranks = w->worker->n_ranks,
        .marks = marks,
    };
    int rc = make_ingests(w, err);

    for (uint32_t i = 0; rc == 0 && i < w->n_ranks && i < WP_FEED_RANKS_MAX; i++)
        marks[i] = resume(w, &w->rank[i]);
    rc = rc ? rc : wp_feed_open(&w->feed, w->desk->feeds, &fc, &feed_ops, w, err);
    if (rc < 0)
        return rc;
    w->desk->open++;
    w->opened_us = wp_now_us();
    for (uint32_t i = 0; i < w->n_ranks; i++)
        tell_fleet(&w->rank[i], false);
    return 0;
}

/* The model that a worker's events are about is known from the moment it says what it serves. */
static void try_open(struct watch *w)
{
    struct wp_err err = WP_ERR_INIT;

    if (w->feed || w->refused)
        return;
    if (!w->model)
        w->model = wp_fleet_base_model(w->desk->gate->router->fleet, w->worker);
    if (!w->model)
        return;
    if (open_feed(w, &err) < 0) {
        w->refused = true;
        abandon(w);
        wp_log(WP_ERROR, "kv_events", "worker=%s: %s; history stands in for its events", w->worker->conf.id, err.text);
    }
}

static struct watch *find(struct wp_feed_desk *d, const struct wp_worker *k)
{
    WP_LIST_EACH(&d->watches, at)
    if (WP_CONTAINER(at, struct watch, link)->worker == k)
        return WP_CONTAINER(at, struct watch, link);
    return NULL;
}

static void see(void *arg, struct wp_worker *k) /* under the fleet's lock */
{
    struct wp_feed_desk *d = arg;
    struct wp_feed_source from = wp_worker_source(k);
    struct watch *w = find(d, k);

    for (uint32_t i = 0; !from.events[0] && k->joined && i < k->n_ranks; i++)
        if (k->rank[i].warm) { /* nobody will ever say what became of it */
            wp_index_clear(wp_fleet_index(d->gate->router->fleet), k->rank[i].holder);
            wp_warm_free(k->rank[i].warm);
            k->rank[i].warm = NULL;
            k->rank[i].unsure = false;
        }

    if (!w && from.events[0]) {
        w = wp_calloc(1, sizeof *w);
        if (!w)
            return; /* the next sync tries again */
        w->desk = d;
        w->worker = wp_worker_ref(k);
        w->ranks_made = k->ranks_made;
        w->events = wp_strdup(from.events);
        w->replay = wp_strdup(from.replay);
        wp_list_push(&d->watches, &w->link);
    }
    if (w) /* else it goes, and the next sync follows it where it is now */
        w->there = w->ranks_made == k->ranks_made && w->events && w->replay && strcmp(w->events, from.events) == 0 && strcmp(w->replay, from.replay) == 0;
}

void wp_feed_desk_sync(struct wp_feed_desk *d)
{
    bool other_ranks = false;

    WP_LIST_EACH(&d->watches, at)
    WP_CONTAINER(at, struct watch, link)->there = false;
    wp_fleet_each(d->gate->router->fleet, see, d);
    WP_LIST_EACH(&d->watches, at)
    {
        struct watch *w = WP_CONTAINER(at, struct watch, link);

        if (w->there)
            try_open(w);
        else if (w->worker->gone)
            stop(w);
        else if (w->ranks_made != w->worker->ranks_made) { /* what was told of the old ones is forgotten */
            other_ranks = true;
            stop(w);
        } else {
            abandon(w);
            stop(w);
        }
    }
    if (other_ranks) /* their feeds are opened at once */
        wp_feed_desk_sync(d);
}

/* ---- now and then ---- */

/* A feed that says nothing while its engine answers requests is suspicious. */
static void suspect(struct watch *w, uint64_t now)
{
    uint64_t batches = 0, requests = wp_fleet_requests(w->desk->gate->router->fleet, w->worker);
    const char *id = w->worker->conf.id;

    for (uint32_t i = 0; i < w->n_ranks; i++)
        batches += w->rank[i].batches;
    if (batches) {
        w->silence_said = false;
        return;
    }
    if (w->silence_said || now < w->opened_us + SILENT_US || requests < SILENT_REQUESTS)
        return;
    w->silence_said = true;
    wp_log(WP_WARN, "kv_events",
           "worker=%s no event in %llu s and %llu requests (%s %s, state %s): is the engine started with --kv-events-config, its publisher "
           "zmq and its endpoint with a * so that it binds? history stands in",
           id, (unsigned long long)((now - w->opened_us) / 1000000), (unsigned long long)requests,
           wp_worker_source(w->worker).bind ? "bound" : "connecting to", w->events, wp_feed_state_name(w->rank[0].state));
}

/* Its claims were wrong beyond chance.  What a replay brings is no surer than what it brought before: it is in doubt as well. */
static void resync(struct watch_rank *r)
{
    struct watch *w = r->watch;
    char why[128];

    if (!wp_fleet_resync_due(w->desk->gate->router->fleet, w->worker, r->number, why, sizeof why))
        return;
    r->resyncing = wp_feed_resync(w->feed, r->number);
    wp_log(WP_WARN, "kv_events", "worker=%s rank=%u resync: %s; what it holds is in doubt%s", w->worker->conf.id, r->number, why,
           r->resyncing ? ", and asked for again" : "");
}

static void on_look(struct wp_timer *t)
{
    struct wp_feed_desk *d = t->arg;
    uint64_t now = wp_now_us();

    WP_LIST_EACH(&d->watches, at)
    {
        struct watch *w = WP_CONTAINER(at, struct watch, link);
        uint32_t size = wp_fleet_block_size(d->gate->router->fleet, w->worker);

        try_open(w);
        for (uint32_t i = 0; w->feed && i < w->n_ranks; i++) {
            if (size)
                wp_ingest_block_size(w->rank[i].ingest, size);
            resync(&w->rank[i]);
            tell_fleet(&w->rank[i], false);
        }
        if (w->feed)
            suspect(w, now);
    }
    wp_fleet_note_growth(d->gate->router->fleet);
    wp_timer_in(&d->gate->loop, t, LOOK_US);
}

#define TELL(kind, result, field)                                                                                      \
    wp_count(WP_SERIES(d->events, id, kind, result), now->field - r->told.field)

static void tell_counts(struct wp_feed_desk *d, struct watch_rank *r)
{
    const struct wp_ingest_counts *now = wp_ingest_counts(r->ingest);
    const char *id = r->watch->worker->conf.id;

    TELL("stored", "applied", stored);
    TELL("stored", "floating", floating);
    TELL("stored", "wrong_size", wrong_size);
    TELL("stored", "vague", vague);
    TELL("stored", "opaque", opaque);
    TELL("stored", "parked", parked);
    TELL("stored", "refused", refused);
    TELL("removed", "applied", removed);
    TELL("removed", "unknown", unknown);
    TELL("cleared", "applied", cleared);
    for (int u = 0; u < WP_INGEST_USES; u++)
        if (now->unused[u] > r->told.unused[u])
            wp_count(WP_SERIES(d->events, id, "stored", wp_event_use_name((enum wp_event_use)u)), now->unused[u] - r->told.unused[u]);
    r->told = *now;
}

static void on_scrape(void *arg)
{
    struct wp_feed_desk *d = arg;
    double wall = (double)wp_wall_us() / 1e6;

    WP_LIST_EACH(&d->watches, at)
    {
        struct watch *w = WP_CONTAINER(at, struct watch, link);
        const char *id = w->worker->conf.id;
        unsigned in[WP_FEED_STATES] = {0};
        double lag = 0, coverage = 1;

        for (uint32_t i = 0; w->feed && i < w->n_ranks; i++) {
            struct watch_rank *r = &w->rank[i];

            tell_counts(d, r);
            in[r->state]++;
            if (r->batches)
                lag = fmax(lag, fmax(0, wall - r->last_ts));
            coverage = fmin(coverage, wp_fleet_coverage(d->gate->router->fleet, w->worker, i));
        }
        if (!w->feed)
            in[WP_FEED_UNKNOWN] = w->worker->n_ranks;
        for (int s = 0; s < WP_FEED_STATES; s++)
            wp_gauge_set(WP_SERIES(d->states, id, wp_feed_state_name((enum wp_feed_state)s)), in[s]);
        wp_gauge_set(WP_SERIES(d->lag, id), lag);
        wp_gauge_set(WP_SERIES(d->coverage, id), w->feed ? coverage : 0);
    }
}

/* ---- for a snapshot ---- */

static int save_rank(struct watch *w, const struct watch_rank *r, struct wp_buf *out)
{
    struct wp_worker *k = w->worker;
    struct wp_warm_rank rec = {.id = k->conf.id,
                               .url = k->conf.url,
                               .events = w->events,
                               .replay = w->replay,
                               .model = w->model,
                               .rank = r->number,
                               .ranks = w->n_ranks,
                               .holder = k->rank[r->number].holder};
    int rc;

    for (size_t i = 0; i < wp_feed_publishers(w->feed); i++) {
        struct wp_feed_status s;

        wp_feed_status(w->feed, i, &s);
        if (s.rank == r->number)
            rec.mark = s.mark;
    }
    if (!rec.mark.next)
        return 0;
    rc = wp_ingest_save(r->ingest, &rec.ingest);
    rc = rc ? rc : wp_warm_put(out, &rec);
    wp_buf_fini(&rec.ingest);
    return rc == WP_ENOTSUP ? 0 : rc;
}

struct saving {
    struct wp_buf *out;
    int rc;
};

static void save_warm(void *arg, struct wp_worker *k) /* under the fleet's lock: ranks whose feeds are not open yet */
{
    struct saving *s = arg;

    for (uint32_t i = 0; s->rc == 0 && i < k->n_ranks; i++)
        if (k->rank[i].warm)
            s->rc = wp_warm_put(s->out, k->rank[i].warm);
}

int wp_feed_desk_save(struct wp_feed_desk *d, struct wp_buf *out)
{
    struct saving s = {.out = out};

    wp_fleet_each(d->gate->router->fleet, save_warm, &s);
    WP_LIST_EACH(&d->watches, at)
    {
        struct watch *w = WP_CONTAINER(at, struct watch, link);

        for (uint32_t i = 0; s.rc == 0 && w->feed && i < w->n_ranks && !w->worker->gone; i++)
            s.rc = save_rank(w, &w->rank[i], out);
    }
    return s.rc;
}

/* ---- life ---- */

int wp_feed_desk_create(struct wp_feed_desk **out, struct wp_gate *g, struct wp_err *err)
{
    struct wp_metrics *m = g->router->metrics;
    struct wp_feed_desk *d = wp_calloc(1, sizeof *d);
    int rc;

    if (!d)
        return wp_fail(err, WP_ENOMEM, "feeds: out of memory");
    d->gate = g;
    wp_list_init(&d->watches);
    rc = wp_feeds_create(&d->feeds, &g->loop, err);
    if (rc < 0) {
        wp_free(d);
        return rc;
    }
    d->events = wp_family(m, WP_COUNTER, "warmpath_kv_events_total", "KV events in blocks (batches: one by one), by what became of them.",
                          "worker,kind,result", NULL, 0);
    d->states = wp_family(m, WP_GAUGE, "warmpath_kv_feed_state", "Ranks of a worker whose feed is in that state.", "worker,state", NULL, 0);
    d->lag = wp_family(m, WP_GAUGE, "warmpath_kv_feed_lag_seconds",
                       "Age of the last batch, by the engine's clock; it grows while an engine has nothing to say.", "worker", NULL, 0);
    d->coverage = wp_family(m, WP_GAUGE, "warmpath_kv_feed_coverage", "Share of what a worker holds that its feed has told.", "worker",
                            NULL, 0);
    wp_timer_init(&d->look, on_look, d);
    wp_timer_in(&g->loop, &d->look, LOOK_US);
    rc = wp_metrics_on_scrape(m, on_scrape, d);
    if (rc < 0) {
        wp_feed_desk_destroy(d, NULL, NULL);
        return wp_fail(err, rc, "feeds: out of memory");
    }
    *out = d;
    return 0;
}

void wp_feed_desk_destroy(struct wp_feed_desk *d, void (*closed)(void *arg), void *arg)
{
    d->closing = true;
    d->closed = closed;
    d->closed_arg = arg;
    wp_timer_stop(&d->gate->loop, &d->look);
    WP_LIST_EACH(&d->watches, at)
    stop(WP_CONTAINER(at, struct watch, link));
    if (d->open == 0)
        wp_feeds_destroy(d->feeds, feeds_closed, d);
}
