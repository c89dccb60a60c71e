/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The router as a process.  Start: configuration, fleet, gates; the admin port, then the API port, taken by one listener alone, so that
 * a second router is refused, then shared with the other loops' listeners; then threads.
 * Signals, on gate 0: HUP reloads, all or nothing; TERM and INT drain (readiness says no first, idle connections close, requests
 * end, at most limits.drain_s) and a second one ends at once.
 */
#include "router/serve.h"

#include "base/clock.h"
#include "base/flags.h"
#include "router/admin.h"
#include "router/config_check.h"
#include "router/feeds.h"
#include "router/gate.h"
#include "router/machine.h"
#include "router/probe.h"
#include "router/recorder.h"
#include "router/snapshot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { GATES_MAX = 64, WORDS_MAX = 4096 };

struct serve {
    struct wp_router router;
    struct wp_admin admin;
    struct wp_prober *prober;
    struct wp_feed_desk *desk;
    struct wp_snapshots *snapshots;
    struct wp_recorder *recorder;
    uv_signal_t hup, term, intr;
    unsigned open; /* signal handles and the admin server, until closed */
    bool closing;
    char *file;
    char *set[WORDS_MAX], *worker[WORDS_MAX];
    size_t n_set, n_worker;
    const char *model;
};

/* ---- command line ---- */

static const struct wp_flag flags[] = {
    {"-c", "FILE", "the configuration; without one, flags say it all"},
    {"--listen", "ADDR", "API address, HOST:PORT (127.0.0.1:30000)"},
    {"--admin", "ADDR", "admin and metrics address (127.0.0.1:29000)"},
    {"--worker", "SPEC", "URL[,key=value]...: an engine; may be given more than once"},
    {"--model", "NAME", "the model that the --worker engines serve, when they do not say it themselves"},
    {"--policy", "NAME", "how a worker is chosen (price); see `warmpath policies`"},
    {"--threads", "N", "event loops (1)"},
    {"--log-level", "LEVEL", "error, warn, info or debug (info)"},
    {"--record", "FILE", "write every decision there, for `warmpath replay --decisions`"},
    {"--set", "KEY=VALUE", "any key of the configuration, as in policy.price.room_us=5000; see `warmpath help config`"},
    {NULL, NULL, NULL},
};
enum { F_FILE, F_LISTEN, F_ADMIN, F_WORKER, F_MODEL, F_POLICY, F_THREADS, F_LOG, F_RECORD, F_SET };
static const char *const flag_keys[] = {[F_LISTEN] = "listen.api", [F_ADMIN] = "listen.admin", [F_POLICY] = "policy.name",
                                        [F_THREADS] = "threads",   [F_LOG] = "log.level", [F_RECORD] = "record.file"};

static int keep(char **list, size_t *n, const char *prefix, const char *value, struct wp_err *err)
{
    size_t len = strlen(prefix) + strlen(value) + 1;
    char *p = *n < WORDS_MAX ? wp_malloc(len) : NULL;

    if (!p)
        return wp_fail(err, WP_EUSAGE, "too many flags, or out of memory");
    snprintf(p, len, "%s%s", prefix, value);
    list[(*n)++] = p;
    return 0;
}

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct serve *s = arg;
    char prefix[64];

    switch (i) {
    case F_FILE:
        wp_free(s->file);
        s->file = wp_strdup(value);
        return s->file ? 0 : wp_fail(err, WP_EUSAGE, "out of memory");
    case F_WORKER:
        return keep(s->worker, &s->n_worker, "", value, err);
    case F_MODEL:
        s->model = value;
        return 0;
    case F_SET:
        return keep(s->set, &s->n_set, "", value, err);
    default:
        snprintf(prefix, sizeof prefix, "%s %s=", flags[i].name, flag_keys[i]);
        return keep(s->set, &s->n_set, prefix, value, err);
    }
}

/* --model is said for the workers of the command line that do not name theirs. */
static int spread_model(struct serve *s, struct wp_err *err)
{
    for (size_t i = 0; s->model && i < s->n_worker; i++) {
        char *old = s->worker[i];
        size_t len = strlen(old) + strlen(s->model) + 16;

        if (strstr(old, ",models="))
            continue;
        s->worker[i] = wp_malloc(len);
        if (!s->worker[i]) {
            s->worker[i] = old;
            return wp_fail(err, WP_ENOMEM, "out of memory");
        }
        snprintf(s->worker[i], len, "%s,models=%s", old, s->model);
        wp_free(old);
    }
    return 0;
}

/* ---- configuration ---- */

/* The certificates of listen.tls, as they lie in their files now. */
static int read_tls(struct wp_tls **out, const struct wp_config *c, struct wp_buf *errors)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_tls_pair *pair;
    int rc;

    if (!*c->listen.tls.cert)
        return 0;
    pair = wp_calloc(1 + c->listen.tls.n_more, sizeof *pair);
    if (!pair)
        return WP_ENOMEM;
    pair[0] = (struct wp_tls_pair){c->listen.tls.cert, c->listen.tls.key};
    for (size_t i = 0; i < c->listen.tls.n_more; i++)
        pair[i + 1] = (struct wp_tls_pair){c->listen.tls.more[i].cert, c->listen.tls.more[i].key};
    rc = wp_tls_server(out, pair, 1 + c->listen.tls.n_more,
                       *c->listen.tls.client_ca ? c->listen.tls.client_ca : NULL, &err);
    if (rc < 0)
        wp_buf_printf(errors, "listen.tls: %s\n", err.text);
    wp_free(pair);
    return rc;
}

static int read_keys(struct wp_keys **out, const struct wp_config *c, const struct wp_settings *was, struct wp_buf *errors)
{
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_keys_create(out, c->listen.api_keys, was ? was->keys : NULL, &err);

    if (rc < 0)
        wp_buf_printf(errors, "listen.api_keys_file: %s\n", err.text);
    return rc;
}

static struct wp_settings *read_settings(struct serve *s, struct wp_buf *errors)
{
    struct wp_settings *st = wp_calloc(1, sizeof *st);

    if (!st)
        return NULL;
    atomic_init(&st->refs, 1);
    if (wp_config_read(&st->conf, s->file, (const char *const *)s->set, s->n_set, (const char *const *)s->worker, s->n_worker,
                       errors) < 0) {
        wp_free(st);
        return NULL;
    }
    if (read_tls(&st->tls, st->conf, errors) < 0 || read_keys(&st->keys, st->conf, s->router.settings, errors) < 0) {
        wp_settings_unref(st);
        return NULL;
    }
    return st;
}

static const struct wp_config_worker *find_worker(const struct wp_config *c, const char *id)
{
    for (size_t i = 0; i < c->n_workers; i++)
        if (strcmp(c->workers[i].id, id) == 0)
            return &c->workers[i];
    return NULL;
}

/* Brings the fleet from the old file's workers to the new one's.  Workers that were added by hand stay. */
static void change_workers(struct serve *s, const struct wp_config *was, const struct wp_config *is)
{
    struct wp_err err = WP_ERR_INIT;

    for (size_t i = 0; i < was->n_workers; i++) {
        const struct wp_config_worker *kept = find_worker(is, was->workers[i].id);

        if (!kept || !wp_config_worker_same(kept, &was->workers[i]))
            wp_fleet_remove(s->router.fleet, wp_str_of(was->workers[i].id));
    }
    for (size_t i = 0; i < is->n_workers; i++)
        if (wp_fleet_add(s->router.fleet, &is->workers[i], is, &err) < 0 && err.code != WP_EEXIST)
            wp_log(WP_ERROR, "config", "%s", err.text);
}

/*
 * What the file says now, made fit to take the old one's place: settings that need a restart are told and stay.  NULL: refused, with the
 * reason in said.  Nothing has changed yet but, last, the fleet's policy.
 */
static struct wp_settings *read_again(struct serve *s, struct wp_buf *said)
{
    struct wp_router *r = &s->router;
    struct wp_settings *fresh = read_settings(s, said), *old = r->settings;
    struct wp_buf changes = {0}, wrong = {0};
    struct wp_err err = WP_ERR_INIT;

    if (!fresh)
        return NULL;
    if (wp_config_diff(old->conf, fresh->conf, &changes) < 0)
        wp_buf_adds(&wrong, "out of memory\n");
    else if (fresh->conf->n_workers == 0 && old->conf->n_workers > 0)
        wp_buf_adds(&wrong, "workers: want at least one, got none; the old configuration stays\n");
    else if (wp_config_keep(fresh->conf, old->conf, &wrong) < 0)
        wp_buf_adds(&wrong, wrong.n ? "" : "out of memory\n");
    else if (wp_fleet_configure(r->fleet, fresh->conf, &err) < 0)
        wp_buf_printf(&wrong, "%s\n", err.text);
    wp_buf_add(said, wrong.n ? wrong.p : changes.p, wrong.n ? wrong.n : changes.n);
    if (wrong.n) {
        wp_settings_unref(fresh);
        fresh = NULL;
    }
    wp_buf_fini(&changes);
    wp_buf_fini(&wrong);
    return fresh;
}

/* One line of the log for each line that was said. */
static void log_lines(enum wp_log_level level, const char *before, const struct wp_buf *said)
{
    struct wp_str rest = wp_buf_str(said), line;

    while (wp_str_split(&rest, '\n', &line))
        if (line.n)
            wp_log(level, "config", "%s%.*s", before, (int)line.n, line.p);
}

/* Every loop and listener uses the new settings from now on. */
static void put_into_force(struct serve *s, struct wp_settings *fresh)
{
    struct wp_router *r = &s->router;
    const struct wp_settings *old = r->settings;
    struct wp_server_conf admin = {0};

    fresh->connections = fresh->conf->limits.connections == old->conf->limits.connections
                             ? old->connections
                             : wp_machine_connections(fresh->conf->limits.connections, r->n_gates);
    r->settings = fresh;
    for (size_t i = 0; i < r->n_gates; i++)
        if (wp_gate_post_settings(&r->gate[i], fresh) < 0)
            wp_log(WP_ERROR, "config", "a loop keeps the old configuration: out of memory");
    wp_server_conf_from(&admin, fresh);
    admin.tls = fresh->conf->listen.tls.admin ? fresh->tls : NULL;
    wp_server_update(s->admin.server, &admin);
}

static int reload(void *arg, struct wp_buf *said)
{
    struct serve *s = arg;
    struct wp_router *r = &s->router;
    struct wp_settings *old = r->settings, *fresh = read_again(s, said);

    if (!fresh) {
        wp_count(r->count.reloads_bad, 1);
        wp_log(WP_ERROR, "config", "reload refused, the old configuration stays");
        log_lines(WP_ERROR, "refused: ", said);
        return WP_EINVAL;
    }
    wp_log(WP_INFO, "config", "reloaded%s", said->n ? "" : ": nothing changed");
    log_lines(WP_INFO, "changed: ", said);
    wp_log_setup(fresh->conf->log.level, fresh->conf->log.format);
    change_workers(s, old->conf, fresh->conf);
    put_into_force(s, fresh);
    wp_settings_unref(old);
    wp_prober_sync(s->prober);
    wp_feed_desk_sync(s->desk);
    wp_count(r->count.reloads_good, 1);
    return 0;
}

/* ---- signals and the end ---- */

static void one_closed(void *arg)
{
    struct serve *s = arg;

    s->open--;
}

static void signal_closed(uv_handle_t *h)
{
    one_closed(h->data);
}

/*
 * Gate 0 asks before it closes: first until all other gates have ended (signals and the admin port are theirs as well), then what stands
 * on its loop is told to close, then until it has.
 */
static bool before_close(void *arg)
{
    struct serve *s = arg;

    if (atomic_load(&s->router.gates_running))
        return false;
    if (!s->closing) {
        s->closing = true;
        wp_snapshots_finish(s->snapshots);
        wp_prober_destroy(s->prober);
        s->prober = NULL;
        wp_feed_desk_destroy(s->desk, one_closed, s);
        s->desk = NULL;
        uv_close((uv_handle_t *)&s->hup, signal_closed);
        uv_close((uv_handle_t *)&s->term, signal_closed);
        uv_close((uv_handle_t *)&s->intr, signal_closed);
        wp_server_destroy(s->admin.server, one_closed, s);
    }
    return s->open == 0;
}

static void on_end(uv_signal_t *h, int number)
{
    struct serve *s = h->data;
    struct wp_router *r = &s->router;
    uint64_t until = wp_now_us() + r->settings->conf->limits.drain_us;

    wp_log(WP_INFO, "serve", "signal %d: %s", number, atomic_load(&r->draining) ? "ending now" : "draining");
    atomic_store(&r->draining, true);
    for (size_t i = 1; i < r->n_gates; i++)
        wp_gate_post_drain(&r->gate[i], until);
    wp_gate_drain(&r->gate[0], until);
}

static void on_hup(uv_signal_t *h, int number)
{
    struct wp_buf said = {0};

    wp_log(WP_INFO, "serve", "signal %d: reload", number);
    reload(h->data, &said);
    wp_buf_fini(&said);
}

static void workers_changed(void *arg)
{
    struct serve *s = arg;

    if (!s->prober)
        return;
    wp_prober_sync(s->prober);
    wp_feed_desk_sync(s->desk);
}

/* A worker that has just said what it serves may have a feed to open. */
static void on_probed(void *arg)
{
    struct serve *s = arg;

    wp_feed_desk_sync(s->desk);
}

static int take_snapshot(void *arg, struct wp_err *err)
{
    struct serve *s = arg;

    return s->closing || !s->snapshots ? wp_fail(err, WP_EAGAIN, "the router is shutting down") : wp_snapshots_take(s->snapshots, err);
}

static int watch_signals(struct serve *s, struct wp_err *err)
{
    struct {
        uv_signal_t *h;
        uv_signal_cb cb;
        int number;
    } all[] = {{&s->hup, on_hup, SIGHUP}, {&s->term, on_end, SIGTERM}, {&s->intr, on_end, SIGINT}};

    for (int i = 0; i < 3; i++) {
        int rc = uv_signal_init(&s->router.gate[0].loop.uv, all[i].h);

        if (rc < 0)
            return wp_fail(err, rc, "signals: %s", wp_strerror(rc));
        all[i].h->data = s;
        s->open++;
        rc = uv_signal_start(all[i].h, all[i].cb, all[i].number);
        if (rc < 0)
            return wp_fail(err, rc, "signals: %s", wp_strerror(rc));
    }
    return 0;
}

/* ---- start ---- */

static int listen_all(struct serve *s, struct wp_err *err)
{
    struct wp_router *r = &s->router;
    const struct wp_config *conf = r->settings->conf;
    struct wp_server_conf admin = {.address = wp_str_of(conf->listen.admin), .on_request = wp_admin_on_request, .arg = &s->admin};
    char bound[300];
    struct wp_str host;
    uint16_t port;
    int rc;

    wp_server_conf_from(&admin, r->settings);
    admin.tls = conf->listen.tls.admin ? r->settings->tls : NULL;
    s->admin = (struct wp_admin){.gate = &r->gate[0], .workers_changed = workers_changed, .reload = reload, .snapshot = take_snapshot, .arg = s};
    rc = wp_server_create(&s->admin.server, &r->gate[0].loop, &admin, err);
    if (rc < 0)
        return wp_wrap(err, "admin port");
    s->open++;
    rc = wp_gate_listen(&r->gate[0], wp_str_of(conf->listen.api), err);
    if (rc < 0)
        return wp_wrap(err, "API port");
    if (!wp_hostport_parse(wp_str_of(conf->listen.api), &host, &port))
        host = (struct wp_str){0};
    snprintf(bound, sizeof bound, memchr(host.p ? host.p : "", ':', host.n) ? "[%.*s]:%u" : "%.*s:%u", (int)host.n,
             host.p ? host.p : "", wp_server_port(r->gate[0].api)); /* with port 0 the others join the one that was given */
    for (size_t i = 1; i < r->n_gates; i++) {
        rc = wp_gate_listen(&r->gate[i], wp_str_of(bound), err);
        if (rc < 0)
            return wp_wrap(err, "API port");
    }
    wp_log(WP_INFO, "serve", "api=%s admin=%.*s:%u workers=%zu policy=%s threads=%zu", bound,
           (int)(strrchr(conf->listen.admin, ':') - conf->listen.admin), conf->listen.admin, wp_server_port(s->admin.server),
           conf->n_workers, conf->policy.name, r->n_gates);
    return 0;
}

static void *run_gate(void *arg)
{
    struct wp_gate *g = arg;

    wp_loop_run(&g->loop);
    atomic_fetch_sub(&g->router->gates_running, 1);
    return NULL;
}

/* What cannot be read is told, and the router starts with nothing known. */
static void restore(struct wp_fleet *f, const struct wp_config *conf)
{
    uint64_t then = wp_now_us();
    struct wp_err err = WP_ERR_INIT;
    struct wp_index_stats is;
    int rc;

    if (!conf->index.snapshot[0])
        return;
    rc = wp_fleet_restore(f, conf->index.snapshot, &err);
    if (rc == WP_ENOENT) {
        wp_log(WP_INFO, "snapshot", "%s: there is none yet", conf->index.snapshot);
    } else if (rc < 0) {
        wp_log(WP_ERROR, "snapshot", "refused, starting with an empty index: %s", err.text);
    } else {
        wp_index_stats(wp_fleet_index(f), &is);
        wp_log(WP_INFO, "snapshot", "%s: restored %llu blocks at %llu locations in %.3f s; in doubt until the feeds confirm them",
               conf->index.snapshot, (unsigned long long)is.blocks, (unsigned long long)is.locations,
               (double)(wp_now_us() - then) / 1e6);
    }
}

static int start(struct serve *s, struct wp_err *err)
{
    struct wp_router *r = &s->router;
    const struct wp_config *conf = r->settings->conf;
    int rc = wp_metrics_create(&r->metrics, err);

    r->started_us = wp_now_us();
    r->id_salt = wp_rng_secret();
    r->on_loopback = wp_is_loopback(conf->listen.api);
    if (rc == 0)
        wp_counters_make(&r->count, r->metrics);
    rc = rc ? rc : wp_fleet_create(&r->fleet, conf, r->metrics, err);
    if (rc == 0)
        wp_recorder_metrics(r->metrics);
    if (rc == 0 && conf->record.file[0]) {
        rc = wp_recorder_create(&s->recorder, conf->record.file, conf->record.max_bytes, r->metrics, err);
        if (rc == 0)
            wp_fleet_record(r->fleet, s->recorder);
    }
    rc = rc ? rc : wp_doctor_create(&r->doctor, r->metrics, err);
    if (rc == 0)
        restore(r->fleet, conf);
    for (size_t i = 0; rc == 0 && i < conf->n_workers; i++)
        rc = wp_fleet_add(r->fleet, &conf->workers[i], conf, err);
    if (rc < 0)
        return rc;
    wp_fleet_restored(r->fleet);
    r->gate = wp_calloc(conf->threads, sizeof *r->gate);
    if (!r->gate)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    r->settings->connections = wp_machine_connections(conf->limits.connections, conf->threads);
    for (; rc == 0 && r->n_gates < conf->threads; r->n_gates += rc == 0)
        rc = wp_gate_init(&r->gate[r->n_gates], r, r->n_gates, err);
    if (rc < 0)
        return rc;
    r->gate[0].before_close = before_close;
    r->gate[0].before_close_arg = s;
    rc = watch_signals(s, err);
    rc = rc ? rc : listen_all(s, err);
    rc = rc ? rc : wp_feed_desk_create(&s->desk, &r->gate[0], err);
    rc = rc ? rc : wp_snapshots_create(&s->snapshots, &r->gate[0], s->desk, err);
    rc = rc ? rc : wp_prober_create(&s->prober, &r->gate[0], on_probed, s, err);
    if (rc < 0)
        return rc;
    s->open++; /* the desk */
    wp_prober_sync(s->prober);
    wp_feed_desk_sync(s->desk);
    return 0;
}

static void finish(struct serve *s)
{
    struct wp_router *r = &s->router;

    for (size_t i = 0; i < r->n_gates; i++)
        wp_gate_fini(&r->gate[i]);
    wp_free(r->gate);
    wp_snapshots_destroy(s->snapshots);
    wp_doctor_destroy(r->doctor);
    wp_fleet_destroy(r->fleet);
    wp_recorder_destroy(s->recorder);
    wp_metrics_destroy(r->metrics);
    wp_settings_unref(r->settings);
    for (size_t i = 0; i < s->n_set; i++)
        wp_free(s->set[i]);
    for (size_t i = 0; i < s->n_worker; i++)
        wp_free(s->worker[i]);
    wp_free(s->file);
    wp_free(s);
}

static int run(struct serve *s)
{
    struct wp_router *r = &s->router;
    size_t started = 1;

    for (; started < r->n_gates; started++) {
        atomic_fetch_add(&r->gates_running, 1);
        if (pthread_create(&r->gate[started].thread, NULL, run_gate, &r->gate[started]) != 0) {
            atomic_fetch_sub(&r->gates_running, 1);
            break;
        }
    }
    if (started < r->n_gates) {
        wp_log(WP_ERROR, "serve", "only %zu of %zu threads could be started", started, r->n_gates);
        raise(SIGTERM);
    }
    wp_loop_run(&r->gate[0].loop);
    for (size_t i = 1; i < r->n_gates; i++)
        if (i < started)
            pthread_join(r->gate[i].thread, NULL);
        else
            wp_loop_run(&r->gate[i].loop);
    wp_log(WP_INFO, "serve", "done");
    return started == r->n_gates ? 0 : 1;
}

int wp_serve_main(int argc, char **argv)
{
    struct serve *s = wp_calloc(1, sizeof *s);
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf errors = {0};
    int rc;

    if (!s)
        return 1;
    rc = wp_flags(argc, argv, flags, take, NULL, s, &err);
    if (rc == 1) {
        wp_flags_help(stdout, "serve [-c FILE] [--worker URL]...", "Routes OpenAI-API requests to the engine where each "
                      "starts soonest.", flags);
        finish(s);
        return 0;
    }
    rc = rc ? rc : spread_model(s, &err);
    if (rc < 0) {
        fprintf(stderr, "warmpath serve: %s\n", err.text);
        finish(s);
        return 2;
    }
    s->router.settings = read_settings(s, &errors);
    if (!s->router.settings) {
        fprintf(stderr, "%.*s", (int)errors.n, errors.p ? errors.p : "");
        wp_buf_fini(&errors);
        finish(s);
        return 2;
    }
    wp_buf_fini(&errors);
    wp_log_setup(s->router.settings->conf->log.level, s->router.settings->conf->log.format);
    signal(SIGPIPE, SIG_IGN);
    wp_machine_setup();
    rc = start(s, &err);
    if (rc < 0) {
        wp_log(WP_ERROR, "serve", "%s", err.text);
        exit(1); /* nothing runs yet: the kernel takes back what was made */
    }
    rc = run(s);
    finish(s);
    return rc;
}
