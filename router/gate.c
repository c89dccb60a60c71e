/* SPDX-License-Identifier: Apache-2.0 */
#include "router/gate.h"

#include "router/api.h"
#include "router/request.h"
#include "router/tokens.h"

#include <stdio.h>

enum { LAG_EVERY_US = 100000, STRANDED_TICKS = 10, DRAIN_LOOK_US = 20000, LAST_WORDS_US = 1000000 };

/* A worker that takes requests and says nothing is found out by its probes, which are another loop's. */
static void look_after(struct wp_gate *g)
{
    uint64_t downs = wp_fleet_downs(g->router->fleet);

    if (downs == g->downs_seen && (g->stranded_ticks == 0 || --g->stranded_ticks > 0))
        return;
    g->downs_seen = downs;
    g->stranded_ticks = wp_requests_rescue(g) ? STRANDED_TICKS : 0;
}

/* How late a timer fires is how long the loop was busy with something else. */
static void on_lag_tick(struct wp_timer *t)
{
    struct wp_gate *g = t->arg;
    uint64_t now = wp_loop_now_us(&g->loop);

    wp_observe(g->router->count.loop_lag, now > g->lag_due_us ? (double)(now - g->lag_due_us) / 1e6 : 0);
    g->lag_due_us = now + LAG_EVERY_US;
    wp_timer_at(&g->loop, &g->lag_tick, g->lag_due_us);
    look_after(g);
    wp_caches_look(g);
}

static void on_refused(int status, void *arg)
{
    struct wp_gate *g = arg;
    char code[8];

    snprintf(code, sizeof code, "%d", status);
    wp_count(WP_SERIES(g->router->count.requests, "", code), 1);
    wp_count(g->router->count.refused, 1);
}

void wp_server_conf_from(struct wp_server_conf *sc, const struct wp_settings *s)
{
    const struct wp_config *conf = s->conf;

    sc->connections = (size_t)s->connections;
    sc->head_bytes = (uint32_t)conf->limits.head_bytes;
    sc->body_bytes = conf->limits.body_bytes;
    sc->head_us = conf->limits.head_us;
    sc->body_us = conf->limits.body_us;
    sc->keepalive_us = conf->limits.keepalive_us;
    sc->send_us = conf->limits.send_us;
}

int wp_gate_init(struct wp_gate *g, struct wp_router *r, size_t number, struct wp_err *err)
{
    struct wp_client_conf cc = {.head_bytes = 0};
    int rc;

    g->router = r;
    g->number = number;
    wp_list_init(&g->requests);
    rc = wp_loop_init(&g->loop, err);
    if (rc < 0)
        return rc;
    rc = wp_client_create(&g->client, &g->loop, &cc, err);
    if (rc < 0) {
        wp_loop_fini(&g->loop);
        return rc;
    }
    g->settings = wp_settings_ref(r->settings);
    if (wp_tokenizers_create(&g->tokenizers, g, err) < 0)
        wp_log(WP_WARN, "tokens", "all prompts go by bytes: %s", err->text);
    wp_timer_init(&g->hold_tick, wp_requests_look_held, g);
    wp_timer_init(&g->lag_tick, on_lag_tick, g);
    g->lag_due_us = wp_loop_now_us(&g->loop) + LAG_EVERY_US;
    wp_timer_at(&g->loop, &g->lag_tick, g->lag_due_us);
    return 0;
}

/* Clients are spread over the loops by the kernel, so each has its share of the connections. */
static void limits_of(struct wp_gate *g, struct wp_server_conf *sc)
{
    wp_server_conf_from(sc, g->settings);
    sc->connections = (sc->connections + g->router->n_gates - 1) / g->router->n_gates;
}

int wp_gate_listen(struct wp_gate *g, struct wp_str address, int fd, bool held, struct wp_err *err)
{
    bool first = g->number == 0;
    struct wp_server_conf sc = {
        .address = address,
        .reuse_port = !first,
        .fd = fd,
        .held = held,
        .on_request = wp_api_on_request,
        .on_refused = on_refused,
        .arg = g,
    };
    int rc;

    limits_of(g, &sc);
    sc.tls = g->settings->tls;
    rc = wp_server_create(&g->api, &g->loop, &sc, err);
    return rc == 0 && first && g->router->n_gates > 1 ? wp_server_share(g->api, err) : rc;
}

void wp_gate_open(struct wp_gate *g)
{
    if (g->api)
        wp_server_open(g->api);
}

static void on_closed(void *arg)
{
    struct wp_gate *g = arg;

    if (--g->closing == 0)
        wp_loop_stop(&g->loop);
}

static void close_now(struct wp_gate *g)
{
    wp_timer_stop(&g->loop, &g->lag_tick);
    wp_timer_stop(&g->loop, &g->hold_tick);
    g->closing = 1;
    if (g->api) {
        g->closing++;
        wp_server_destroy(g->api, on_closed, g);
        g->api = NULL;
    }
    if (g->tokenizers) {
        g->closing++;
        wp_tokenizers_destroy(g->tokenizers, on_closed, g);
        g->tokenizers = NULL;
    }
    wp_client_destroy(g->client, on_closed, g);
    g->client = NULL;
}

/* No more patience: who waits or reads is told so, and the last words get a second to go out. */
static void cut_requests(struct wp_gate *g)
{
    size_t n = wp_requests_cut(g);

    if (n)
        wp_log(WP_WARN, "serve", "drain over: requests=%zu cut", n);
}

/* True while answers are on their way to clients, for a second at most. */
static bool last_words(struct wp_gate *g, uint64_t now)
{
    if (!g->close_by_us)
        g->close_by_us = now + LAST_WORDS_US;
    return wp_server_connections(g->api) > 0 && now < g->close_by_us;
}

/* While requests are under way newcomers are told so (api.c); then the port closes, and what was being told ends. */
static void on_drain_look(struct wp_timer *t)
{
    struct wp_gate *g = t->arg;
    uint64_t now = wp_loop_now_us(&g->loop);
    bool late = now >= g->drain_until_us, again = false;

    if (late && g->api && !g->close_by_us) {
        cut_requests(g);
        last_words(g, now);
    }
    if (g->api && !g->port_closed) {
        again = true; /* also behind the closing: what came in this very turn is read before the end */
        g->port_closed = late || atomic_load(&g->router->in_flight) == 0;
        if (g->port_closed)
            wp_server_drain(g->api);
    } else if (g->api && (wp_server_exchanges(g->api) > 0 || (g->handed && wp_server_connections(g->api) > 0)) && !late) {
        again = true;
    } else if (g->api && last_words(g, now)) {
        again = true;
    } else if (g->before_close && !g->before_close(g->before_close_arg)) {
        again = true;
    }
    if (again)
        wp_timer_at(&g->loop, t, now + DRAIN_LOOK_US);
    else
        close_now(g);
}

void wp_gate_drain(struct wp_gate *g, uint64_t deadline_us, bool handed)
{
    if (g->drain_until_us) { /* asked again: no more patience */
        g->drain_until_us = 1;
        return;
    }
    g->drain_until_us = deadline_us;
    g->handed = g->port_closed = handed;
    if (g->api && handed)
        wp_server_pass(g->api);
    else if (g->api)
        wp_server_quiet(g->api);
    wp_timer_init(&g->drain_tick, on_drain_look, g);
    wp_timer_in(&g->loop, &g->drain_tick, 0);
}

void wp_gate_fini(struct wp_gate *g)
{
    wp_settings_unref(g->settings);
    wp_loop_fini(&g->loop);
}

struct gate_letter {
    struct wp_letter letter;
    struct wp_gate *gate;
    uint64_t deadline_us;
    bool handed;
    struct wp_settings *settings;
};

static void open_drain(struct wp_letter *l)
{
    struct gate_letter *gl = WP_CONTAINER(l, struct gate_letter, letter);

    wp_gate_drain(gl->gate, gl->deadline_us, gl->handed);
    wp_free(gl);
}

static void open_settings(struct wp_letter *l)
{
    struct gate_letter *gl = WP_CONTAINER(l, struct gate_letter, letter);
    struct wp_server_conf sc = {0};
    struct wp_gate *g = gl->gate;

    wp_settings_unref(g->settings);
    g->settings = gl->settings;
    if (g->tokenizers)
        wp_tokenizers_configure(g->tokenizers);
    if (g->api) {
        limits_of(g, &sc);
        sc.tls = g->settings->tls;
        wp_server_update(g->api, &sc);
    }
    wp_free(gl);
}

static int post(struct wp_gate *g, void (*open)(struct wp_letter *), uint64_t deadline_us, bool handed, struct wp_settings *s)
{
    struct gate_letter *gl = wp_calloc(1, sizeof *gl);

    if (!gl)
        return WP_ENOMEM;
    gl->letter.fn = open;
    gl->gate = g;
    gl->deadline_us = deadline_us;
    gl->handed = handed;
    gl->settings = s ? wp_settings_ref(s) : NULL;
    wp_loop_post(&g->loop, &gl->letter);
    return 0;
}

int wp_gate_post_drain(struct wp_gate *g, uint64_t deadline_us, bool handed)
{
    return post(g, open_drain, deadline_us, handed, NULL);
}

static void open_port(struct wp_letter *l)
{
    struct gate_letter *gl = WP_CONTAINER(l, struct gate_letter, letter);

    wp_gate_open(gl->gate);
    wp_free(gl);
}

int wp_gate_post_open(struct wp_gate *g)
{
    return post(g, open_port, 0, false, NULL);
}

int wp_gate_post_settings(struct wp_gate *g, struct wp_settings *s)
{
    return post(g, open_settings, 0, false, s);
}
