/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The router as a process.  Start: configuration, fleet, gates; the admin port, then the API port, taken by one listener alone, so that
 * a second router is refused, then shared with the other loops' listeners; then threads.
 * Signals, on gate 0: HUP reloads, all or nothing; TERM and INT drain (readiness says no first, idle connections close, requests
 * end, at most limits.drain_s) and a second one ends at once; USR2 has a new process take over (router/upgrade.h).
 */
#include "router/serve.h"

#include "base/clock.h"
#include "router/config_check.h"
#include "router/machine.h"
#include "router/serve_inner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GATES_MAX = 64, LOOK_US = 20000, SERVING_US = 10000000 };

/* ---- configuration ---- */

static struct wp_settings *read_settings(struct wp_serve *s, struct wp_buf *errors)
{
    return wp_settings_load(s->file, (const char *const *)s->set, s->n_set, (const char *const *)s->worker, s->n_worker,
                            s->router.settings, errors);
}

static const struct wp_config_worker *find_worker(const struct wp_config *c, const char *id)
{
    for (size_t i = 0; i < c->n_workers; i++)
        if (strcmp(c->workers[i].id, id) == 0)
            return &c->workers[i];
    return NULL;
}

/* Brings the fleet from the old file's workers to the new one's.  Workers that were added by hand stay. */
static void change_workers(struct wp_serve *s, const struct wp_config *was, const struct wp_config *is)
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
static struct wp_settings *read_again(struct wp_serve *s, struct wp_buf *said)
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
    } else {
        wp_tenants_configure(r->tenants, fresh->conf);
        wp_waker_configure(s->waker, fresh->conf);
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
static void put_into_force(struct wp_serve *s, struct wp_settings *fresh)
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
    struct wp_serve *s = arg;
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
    struct wp_serve *s = arg;

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
    struct wp_serve *s = arg;

    if (atomic_load(&s->router.gates_running))
        return false;
    if (!s->closing) {
        s->closing = true;
        (s->router.gate[0].handed ? wp_snapshots_stop : wp_snapshots_finish)(s->snapshots);
        wp_waker_close(s->waker, one_closed, s);
        wp_prober_destroy(s->prober);
        s->prober = NULL;
        wp_feed_desk_destroy(s->desk, one_closed, s);
        s->desk = NULL;
        uv_close((uv_handle_t *)&s->hup, signal_closed);
        uv_close((uv_handle_t *)&s->term, signal_closed);
        uv_close((uv_handle_t *)&s->intr, signal_closed);
        uv_close((uv_handle_t *)&s->usr2, signal_closed);
        wp_timer_stop(&s->router.gate[0].loop, &s->meet);
        wp_upgrade_destroy(s->upgrade);
        wp_server_destroy(s->admin.server, one_closed, s);
    }
    return s->open == 0;
}

static void on_end(uv_signal_t *h, int number)
{
    struct wp_serve *s = h->data;
    struct wp_router *r = &s->router;
    uint64_t until = wp_now_us() + r->settings->conf->limits.drain_us;

    wp_log(WP_INFO, "serve", "signal %d: %s", number, atomic_load(&r->draining) ? "ending now" : "draining");
    wp_notify("STOPPING=1");
    atomic_store(&r->draining, true);
    for (size_t i = 1; i < r->n_gates; i++)
        wp_gate_post_drain(&r->gate[i], until, false);
    wp_gate_drain(&r->gate[0], until, false);
}

/* The new process accepts: what has come to us is served to its end, also what comes on connections that we have. */
static void on_successor(void *arg)
{
    struct wp_serve *s = arg;
    struct wp_router *r = &s->router;
    uint64_t until = wp_now_us() + r->settings->conf->limits.drain_us;

    wp_server_pass(s->admin.server);
    for (size_t i = 1; i < r->n_gates; i++)
        wp_gate_post_drain(&r->gate[i], until, true);
    wp_gate_drain(&r->gate[0], until, true);
    wp_snapshots_stop(s->snapshots);
}

static void on_usr2(uv_signal_t *h, int number)
{
    struct wp_serve *s = h->data;
    struct wp_router *r = &s->router;
    struct wp_err err = WP_ERR_INIT;
    int fd[GATES_MAX];
    size_t n = 0;

    for (; n < r->n_gates && n < GATES_MAX && r->gate[n].api; n++)
        fd[n] = wp_server_fd(r->gate[n].api);
    if (n < r->n_gates || s->closing)
        wp_log(WP_WARN, "upgrade", "signal %d: not while the router ends", number);
    else if (wp_upgrade_start(s->upgrade, wp_server_fd(s->admin.server), r->settings->conf->listen.admin, fd, n, r->settings->conf->listen.api,
                              &err) < 0)
        wp_log(WP_ERROR, "upgrade", "signal %d: %s", number, err.text);
}

static void on_hup(uv_signal_t *h, int number)
{
    struct wp_buf said = {0};

    wp_log(WP_INFO, "serve", "signal %d: reload", number);
    reload(h->data, &said);
    wp_buf_fini(&said);
}

static const struct wp_upgrade_ops upgrade_ops = {.ready = on_successor, .closed = one_closed};

static void workers_changed(void *arg)
{
    struct wp_serve *s = arg;

    if (!s->prober)
        return;
    wp_prober_sync(s->prober);
    wp_feed_desk_sync(s->desk);
}

/* A worker that has just said what it serves may have a feed to open. */
static void on_probed(void *arg)
{
    struct wp_serve *s = arg;

    wp_feed_desk_sync(s->desk);
}

static int take_snapshot(void *arg, struct wp_err *err)
{
    struct wp_serve *s = arg;

    return s->closing || !s->snapshots ? wp_fail(err, WP_EAGAIN, "the router is shutting down") : wp_snapshots_take(s->snapshots, err);
}

static int watch_signals(struct wp_serve *s, struct wp_err *err)
{
    struct {
        uv_signal_t *h;
        uv_signal_cb cb;
        int number;
    } all[] = {{&s->hup, on_hup, SIGHUP}, {&s->term, on_end, SIGTERM}, {&s->intr, on_end, SIGINT}, {&s->usr2, on_usr2, SIGUSR2}};

    for (int i = 0; i < 4; i++) {
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

static int listen_api(struct wp_serve *s, size_t i, struct wp_str address, struct wp_err *err)
{
    int rc = wp_gate_listen(&s->router.gate[i], address, i < s->in.n_api ? s->in.api[i] : 0, s->in.ready >= 0, err);

    return rc < 0 ? wp_wrap(err, "API port") : 0;
}

/* Accepts, and tells who waits for it. */
static void serve_now(struct wp_serve *s)
{
    struct wp_router *r = &s->router;
    char text[64];

    wp_server_open(s->admin.server);
    wp_gate_open(&r->gate[0]);
    for (size_t i = 1; i < r->n_gates; i++)
        wp_gate_post_open(&r->gate[i]);
    if (s->in.ready >= 0 && write(s->in.ready, "1", 1) < 0)
        wp_log(WP_WARN, "upgrade", "nobody waits for us any more");
    for (size_t i = r->n_gates; i < s->in.n_api; i++)
        close(s->in.api[i]); /* fewer threads than before */
    s->in.n_api = 0;
    wp_inherited_close(&s->in);
    snprintf(text, sizeof text, "READY=1\nMAINPID=%d", getpid());
    wp_notify(text);
}

static void on_meet(struct wp_timer *t)
{
    struct wp_serve *s = t->arg;

    if (wp_fleet_serving(s->router.fleet) || wp_now_us() >= s->meet_until_us)
        serve_now(s);
    else
        wp_timer_in(&s->router.gate[0].loop, t, LOOK_US);
}

static int listen_all(struct wp_serve *s, struct wp_err *err)
{
    struct wp_router *r = &s->router;
    const struct wp_config *conf = r->settings->conf;
    struct wp_server_conf admin = {.address = wp_str_of(conf->listen.admin), .on_request = wp_admin_on_request, .arg = &s->admin};
    char bound[300];
    struct wp_str host;
    uint16_t port;
    int rc;

    wp_inherit(&s->in, conf->listen.api, conf->listen.admin);
    wp_server_conf_from(&admin, r->settings);
    admin.tls = conf->listen.tls.admin ? r->settings->tls : NULL;
    admin.held = s->in.ready >= 0;
    admin.fd = s->in.admin > 0 ? s->in.admin : 0;
    s->admin = (struct wp_admin){.gate = &r->gate[0], .workers_changed = workers_changed, .reload = reload, .snapshot = take_snapshot, .arg = s};
    rc = wp_server_create(&s->admin.server, &r->gate[0].loop, &admin, err);
    if (rc < 0)
        return wp_wrap(err, "admin port");
    s->in.admin = -1;
    s->open++;
    rc = listen_api(s, 0, wp_str_of(conf->listen.api), err);
    if (rc < 0)
        return rc;
    if (!wp_hostport_parse(wp_str_of(conf->listen.api), &host, &port))
        host = (struct wp_str){0};
    snprintf(bound, sizeof bound, memchr(host.p ? host.p : "", ':', host.n) ? "[%.*s]:%u" : "%.*s:%u", (int)host.n,
             host.p ? host.p : "", wp_server_port(r->gate[0].api)); /* with port 0 the others join the one that was given */
    for (size_t i = 1; i < r->n_gates; i++) {
        rc = listen_api(s, i, wp_str_of(bound), err);
        if (rc < 0)
            return rc;
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

static int start(struct wp_serve *s, struct wp_err *err)
{
    struct wp_router *r = &s->router;
    const struct wp_config *conf = r->settings->conf;
    int rc = wp_metrics_create(&r->metrics, err);

    r->started_us = wp_now_us();
    r->id_salt = wp_rng_secret();
    r->on_loopback = wp_is_loopback(conf->listen.api);
    if (rc == 0) {
        wp_counters_make(&r->count, r->metrics);
        wp_caches_init(&r->caches, r->metrics);
    }
    rc = rc ? rc : wp_fleet_create(&r->fleet, conf, r->metrics, err);
    if (rc == 0)
        wp_recorder_metrics(r->metrics);
    if (rc == 0 && conf->record.file[0]) {
        rc = wp_recorder_create(&s->recorder, conf->record.file, conf->record.max_bytes, r->metrics, err);
        if (rc == 0)
            wp_fleet_record(r->fleet, s->recorder);
    }
    rc = rc ? rc : wp_tenants_create(&r->tenants, r->metrics, err);
    if (rc == 0)
        wp_tenants_configure(r->tenants, conf);
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
    rc = wp_upgrade_create(&s->upgrade, &r->gate[0].loop, &upgrade_ops, s, err);
    s->open += rc == 0;
    rc = rc ? rc : watch_signals(s, err);
    rc = rc ? rc : listen_all(s, err);
    rc = rc ? rc : wp_feed_desk_create(&s->desk, &r->gate[0], err);
    rc = rc ? rc : wp_snapshots_create(&s->snapshots, &r->gate[0], s->desk, err);
    rc = rc ? rc : wp_waker_create(&s->waker, &r->gate[0], r->metrics, err);
    if (rc == 0) {
        s->open++;
        wp_waker_configure(s->waker, conf);
        wp_fleet_waker(r->fleet, s->waker);
    }
    rc = rc ? rc : wp_prober_create(&s->prober, &r->gate[0], on_probed, s, err);
    if (rc < 0)
        return rc;
    s->open++; /* the desk */
    wp_prober_sync(s->prober);
    wp_feed_desk_sync(s->desk);
    wp_timer_init(&s->meet, on_meet, s);
    s->meet_until_us = wp_now_us() + (s->in.ready >= 0 ? SERVING_US : 0);
    wp_timer_in(&r->gate[0].loop, &s->meet, 0);
    return 0;
}

static void finish(struct wp_serve *s)
{
    struct wp_router *r = &s->router;

    for (size_t i = 0; i < r->n_gates; i++)
        wp_gate_fini(&r->gate[i]);
    wp_free(r->gate);
    wp_snapshots_destroy(s->snapshots);
    wp_doctor_destroy(r->doctor);
    wp_tenants_destroy(r->tenants);
    wp_fleet_destroy(r->fleet);
    wp_waker_destroy(s->waker);
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

static int run(struct wp_serve *s)
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
    struct wp_serve *s = wp_calloc(1, sizeof *s);
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf errors = {0};
    int rc;

    if (!s)
        return 1;
    rc = wp_serve_line(s, argc, argv, &err);
    if (rc == 1) {
        finish(s);
        return 0;
    }
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
