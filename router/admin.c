/* SPDX-License-Identifier: Apache-2.0 */
#include "router/admin.h"

#include "base/clock.h"
#include "index/index.h"
#include "router/query.h"
#include "router/tokens.h"
#include "router/verify.h"

#include <stdio.h>

enum { BODY_MAX = 1 << 20 };

struct admin_call {
    struct wp_admin *admin;
    struct wp_exchange *x;
    const struct admin_route *route;
    struct wp_str id; /* what stands for '*' in the route */
    struct wp_buf body;
    /* POST /explain waits for ids as a request does. */
    struct wp_arena arena;
    struct wp_asked ask;
    struct wp_tokens_wait wait;
    /* GET /index?top=N walks the index in slices. */
    struct wp_index_top *top;
    struct wp_timer walk;
    struct wp_verify *verify;
};

struct admin_route {
    const char *method, *path; /* one '*' stands for a part without '/' */
    void (*run)(struct admin_call *c);
    bool open; /* needs no key */
};

static struct wp_router *router_of(struct admin_call *c)
{
    return c->admin->gate->router;
}

/* Who did what to the fleet. */
static void note(struct admin_call *c, const char *act, struct wp_str id)
{
    char peer[64] = "?";

    uv_ip_name(c->x->peer, peer, sizeof peer);
    if (id.p)
        wp_log(WP_INFO, "admin", "%s worker=%.*s by=%s", act, (int)(id.n < 128 ? id.n : 128), id.p, peer);
    else
        wp_log(WP_INFO, "admin", "%s by=%s", act, peer);
}

static void say(struct admin_call *c, int status, const char *code, const char *param, const char *text)
{
    wp_reply_error(c->x, status, code, param, NULL, 0, "%s", text);
}

/* Answers with what a writer wrote, or with what its code means. */
static void answer(struct admin_call *c, int rc, const char *type, struct wp_buf *b)
{
    if (rc == WP_ENOENT)
        say(c, 404, "not_found", NULL, "There is no such thing here.");
    else if (rc < 0)
        say(c, 500, "internal", NULL, wp_strerror(rc));
    else
        wp_reply(c->x, 200, type, NULL, 0, wp_buf_str(b));
    wp_buf_fini(b);
}

static const char no_worker[] = "There is no worker of that id.";

static void livez(struct admin_call *c)
{
    wp_reply(c->x, 200, "application/json", NULL, 0, WP_STR("{\"status\":\"live\"}"));
}

static void readyz(struct admin_call *c)
{
    if (atomic_load(&router_of(c)->draining))
        say(c, 503, "no_worker", "drain", "The router is shutting down.");
    else if (!wp_fleet_welcomes(router_of(c)->fleet))
        say(c, 503, "no_worker", "worker", "No worker is up.");
    else
        wp_reply(c->x, 200, "application/json", NULL, 0, WP_STR("{\"status\":\"ready\"}"));
}

static void metrics(struct admin_call *c)
{
    struct wp_buf b = {0};

    answer(c, wp_metrics_render(router_of(c)->metrics, &b), "text/plain; version=0.0.4; charset=utf-8", &b);
}

static void version(struct admin_call *c)
{
    wp_reply(c->x, 200, "application/json", NULL, 0, WP_STR("{\"version\":\"" WP_VERSION "\"}"));
}

static void config(struct admin_call *c)
{
    struct wp_buf b = {0};

    answer(c, wp_config_json(wp_gate_conf(c->admin->gate), &b), "application/json", &b);
}

static void workers(struct admin_call *c)
{
    struct wp_buf b = {0};

    int rc = wp_fleet_workers_json(router_of(c)->fleet, c->id, &b);

    if (rc == WP_ENOENT)
        say(c, 404, "not_found", "worker", no_worker);
    else
        answer(c, rc, "application/json", &b);
}

/* A slice of the walk, and the others on further turns of the loop. */
static void on_walk(struct wp_timer *t)
{
    struct admin_call *c = t->arg;
    struct wp_index *ix = wp_fleet_index(router_of(c)->fleet);
    struct wp_index_prefix top[WP_TOP_MAX];
    struct wp_buf b = {0};
    size_t n;

    if (!wp_index_top_step(ix, c->top)) {
        wp_timer_in(&c->admin->gate->loop, t, 0);
        return;
    }
    n = wp_index_top_take(ix, c->top, top);
    answer(c, wp_fleet_index_json(router_of(c)->fleet, top, n, &b), "application/json", &b);
}

static void index_state(struct admin_call *c)
{
    struct wp_str top = wp_query_get(wp_target_query(c->x->head->target), "top");
    struct wp_buf b = {0};
    uint64_t n = 0;

    if (!top.p)
        answer(c, wp_fleet_index_json(router_of(c)->fleet, NULL, 0, &b), "application/json", &b);
    else if (!wp_str_u64(top, &n) || n == 0 || n > WP_TOP_MAX)
        say(c, 400, "invalid_value", "top", "top: want a whole number from 1 to 100.");
    else if (wp_index_top_start(&c->top, n) < 0)
        answer(c, WP_ENOMEM, "application/json", &b);
    else
        wp_timer_in(&c->admin->gate->loop, &c->walk, 0);
}

static void on_verified(void *arg, int rc, const char *why, struct wp_buf *json)
{
    struct admin_call *c = arg;

    c->verify = NULL;
    if (rc == WP_ENOENT)
        say(c, 404, "not_found", "worker", no_worker);
    else if (rc < 0)
        wp_reply_error(c->x, 502, "upstream_failed", NULL, NULL, 0, "The worker could not be asked: %s%s%s", wp_strerror(rc),
                       why ? ", " : "", why ? why : "");
    else
        answer(c, 0, "application/json", json);
}

static void verify(struct admin_call *c)
{
    struct wp_worker *w = wp_fleet_find(router_of(c)->fleet, c->id);
    struct wp_buf none = {0};

    if (!w) {
        say(c, 404, "not_found", "worker", no_worker);
        return;
    }
    c->verify = wp_verify(c->admin->gate, w, on_verified, c);
    if (!c->verify)
        answer(c, WP_ENOMEM, "application/json", &none);
}

static void decisions(struct admin_call *c)
{
    struct wp_str last = wp_query_get(wp_target_query(c->x->head->target), "last");
    struct wp_buf b = {0};
    uint64_t n = 20;

    if (last.p && (!wp_str_u64(last, &n) || n == 0 || n > WP_RECORDS)) {
        say(c, 400, "invalid_value", "last", "last: want a whole number from 1 to 1024.");
        return;
    }
    answer(c, wp_fleet_decisions_json(router_of(c)->fleet, n, &b), "application/json", &b);
}

static void decision(struct admin_call *c)
{
    struct wp_buf b = {0};
    uint64_t id = 0;
    int rc = wp_str_u64(c->id, &id) ? wp_fleet_decision_json(router_of(c)->fleet, id, &b) : WP_ENOENT;

    answer(c, rc, "application/json", &b);
}

static void doctor(struct admin_call *c)
{
    struct wp_buf b = {0};
    int rc = wp_gate_conf(c->admin->gate)->doctor ? wp_doctor_json(router_of(c)->doctor, wp_now_us(), &b)
                                                  : wp_buf_adds(&b, "{\"enabled\":false}");

    answer(c, rc, "application/json", &b);
}

static void add_worker(struct admin_call *c)
{
    struct wp_config_worker w = {0};
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_config_worker_json(&w, wp_buf_str(&c->body), &err);

    if (rc == 0) {
        rc = wp_fleet_add(router_of(c)->fleet, &w, wp_gate_conf(c->admin->gate), &err);
        if (rc == 0)
            note(c, "added", wp_str_of(w.id));
        wp_config_worker_fini(&w);
    }
    if (rc < 0) {
        say(c, rc == WP_EEXIST ? 409 : rc == WP_ENOMEM ? 503 : 400, rc == WP_EEXIST ? "exists" : "invalid_value", NULL, err.text);
        return;
    }
    c->admin->workers_changed(c->admin->arg);
    wp_reply(c->x, 201, "application/json", NULL, 0, WP_STR("{\"added\":true}"));
}

static void done(struct admin_call *c, int rc, const char *act)
{
    if (rc == WP_ENOENT) {
        say(c, 404, "not_found", "worker", no_worker);
        return;
    }
    note(c, act, c->id);
    c->admin->workers_changed(c->admin->arg);
    wp_reply(c->x, 200, "application/json", NULL, 0, WP_STR("{\"done\":true}"));
}

static void remove_worker(struct admin_call *c)
{
    done(c, wp_fleet_remove(router_of(c)->fleet, c->id), "removed");
}

static void drain_worker(struct admin_call *c)
{
    done(c, wp_fleet_drain(router_of(c)->fleet, c->id, true), "drained");
}

static void undrain_worker(struct admin_call *c)
{
    done(c, wp_fleet_drain(router_of(c)->fleet, c->id, false), "undrained");
}

static void explain_asked(struct admin_call *c)
{
    struct wp_tenant *tenant = wp_tenant_enter(router_of(c)->tenants, c->x->head, NULL);
    struct wp_buf b = {0};
    int priority = 0;
    struct wp_want want = {
        .model = &c->ask.model,
        .prompt = &c->ask.prompt,
        .tokens = c->ask.tokens,
        .max_tokens = wp_body_max_tokens(&c->ask.json),
        .session_key = wp_session_key(c->x->head, &c->ask.json),
    };

    if (!tenant || !wp_priority_of(c->x->head, NULL, &priority)) {
        say(c, 400, "bad_header", NULL, "Want a tenant's name of 1 to 64 printable characters, and a priority from -100 to 100.");
    } else {
        want.tenant = tenant;
        want.priority = priority;
        want.who = wp_tenant_who(tenant, priority, c->ask.tokens);
        answer(c, wp_fleet_explain(router_of(c)->fleet, &want, &b), "application/json", &b);
    }
    wp_tenant_leave(router_of(c)->tenants, tenant);
}

static void on_tokens(struct wp_tokens_wait *w, enum wp_tokens_result result, struct wp_blob *tokens)
{
    struct admin_call *c = w->arg;

    (void)result;
    wp_tokenizers_take(c->admin->gate->tokenizers, &c->ask, tokens, &c->arena);
    explain_asked(c);
}

static void explain(struct admin_call *c)
{
    struct wp_str body = wp_buf_str(&c->body);
    struct wp_gate *g = c->admin->gate;
    enum wp_route_kind kind = wp_ask_guess(body);
    struct wp_refusal no;

    if (wp_ask_read(&c->ask, g->router->fleet, wp_gate_conf(g), kind, (struct wp_str){0}, body, &c->arena, &no) < 0) {
        say(c, no.status, no.code, no.param, no.text);
        return;
    }
    c->wait.arg = c;
    if (wp_tokenizers_ask(g->tokenizers, &c->ask, kind, &c->arena, &c->wait, on_tokens) != WP_TOKENS_LATER)
        explain_asked(c);
}

static void run_query(struct admin_call *c, bool by_hash)
{
    struct wp_buf b = {0};
    struct wp_refusal no;
    int rc = wp_query(router_of(c)->fleet, wp_buf_str(&c->body), by_hash, &c->arena, &b, &no);

    if (rc == WP_EINVAL) {
        say(c, no.status, no.code, no.param, no.text);
        wp_buf_fini(&b);
        return;
    }
    answer(c, rc, "application/json", &b);
}

static void query(struct admin_call *c)
{
    run_query(c, false);
}

static void query_by_hash(struct admin_call *c)
{
    run_query(c, true);
}

static void reload(struct admin_call *c)
{
    struct wp_buf said = {0}, b = {0};
    int rc;

    note(c, "reload", (struct wp_str){0});
    rc = c->admin->reload(c->admin->arg, &said);

    if (rc < 0) {
        wp_reply_error(c->x, 400, "invalid_configuration", NULL, NULL, 0, WP_STR_FMT, WP_STR_ARG(wp_buf_str(&said)));
    } else {
        rc = wp_buf_adds(&b, "{\"reloaded\":true,\"changed\":");
        rc = rc ? rc : wp_buf_json(&b, wp_buf_str(&said));
        rc = rc ? rc : wp_buf_adds(&b, "}");
        answer(c, rc, "application/json", &b);
    }
    wp_buf_fini(&said);
}

static void snapshot(struct admin_call *c)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf b = {0};
    int rc;

    note(c, "snapshot", (struct wp_str){0});
    rc = c->admin->snapshot(c->admin->arg, &err);
    if (rc < 0) {
        wp_reply_error(c->x, rc == WP_ENOTSUP ? 400 : rc == WP_EAGAIN ? 409 : 500, rc == WP_ENOTSUP ? "not_configured" : "snapshot_failed",
                       NULL, NULL, 0, "%s", err.text);
        return;
    }
    rc = wp_buf_adds(&b, "{\"snapshot\":\"begun\"}");
    answer(c, rc, "application/json", &b);
}

/* clang-format off */
static const struct admin_route routes[] = {
    {"GET",    "/livez",             livez,          true},
    {"GET",    "/readyz",            readyz,         true},
    {"GET",    "/metrics",           metrics,        false},
    {"GET",    "/version",           version,        false},
    {"GET",    "/config",            config,         false},
    {"GET",    "/workers",           workers,        false},
    {"POST",   "/workers",           add_worker,     false},
    {"POST",   "/workers/*/drain",   drain_worker,   false},
    {"POST",   "/workers/*/undrain", undrain_worker, false},
    {"GET",    "/workers/*",         workers,        false},
    {"DELETE", "/workers/*",         remove_worker,  false},
    {"GET",    "/index",             index_state,    false},
    {"GET",    "/index/verify/*",    verify,         false},
    {"POST",   "/index/snapshot",    snapshot,       false},
    {"GET",    "/decisions",         decisions,      false},
    {"GET",    "/decisions/*",       decision,       false},
    {"GET",    "/doctor",            doctor,         false},
    {"POST",   "/explain",           explain,        false},
    {"POST",   "/query",             query,          false},
    {"POST",   "/query_by_hash",     query_by_hash,  false},
    {"POST",   "/reload",            reload,         false},
};
/* clang-format on */

static bool matches(const char *pattern, struct wp_str path, struct wp_str *id)
{
    const char *star = strchr(pattern, '*');
    size_t head, tail, n;

    *id = (struct wp_str){0};
    if (!star)
        return wp_str_is(path, pattern);
    head = (size_t)(star - pattern);
    tail = strlen(star + 1);
    if (path.n <= head + tail || memcmp(path.p, pattern, head) != 0 || memcmp(path.p + path.n - tail, star + 1, tail) != 0)
        return false;
    n = path.n - head - tail;
    *id = (struct wp_str){path.p + head, n};
    return !memchr(id->p, '/', n);
}

/* The route, or NULL with allow: the methods that this path has ("" when there is no such path). */
static const struct admin_route *find(const struct wp_head *h, struct wp_str *id, char allow[64])
{
    struct wp_str path = wp_target_path(h->target);

    allow[0] = 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!matches(routes[i].path, path, id))
            continue;
        if (wp_str_is(h->method, routes[i].method) || (wp_str_is(h->method, "HEAD") && routes[i].method[0] == 'G'))
            return &routes[i];
        snprintf(allow + strlen(allow), 64 - strlen(allow), "%s%s", allow[0] ? ", " : "",
                 routes[i].method[0] == 'G' ? "GET, HEAD" : routes[i].method);
    }
    return NULL;
}

static void on_body(struct wp_exchange *x, const char *p, size_t n)
{
    struct admin_call *c = x->user;

    wp_buf_add(&c->body, p, n); /* the server has its own bound; what is cut is refused as broken JSON */
}

static void on_body_end(struct wp_exchange *x)
{
    struct admin_call *c = x->user;

    c->route->run(c);
}

static void on_over(struct wp_exchange *x, int rc)
{
    struct admin_call *c = x->user;

    (void)rc;
    wp_tokens_cancel(&c->wait);
    wp_timer_stop(&c->admin->gate->loop, &c->walk);
    wp_index_top_free(c->top);
    wp_verify_cancel(c->verify);
    wp_arena_fini(&c->arena);
    wp_buf_fini(&c->body);
    wp_free(c);
}

static const struct wp_exchange_ops call_ops = {.on_body = on_body, .on_body_end = on_body_end, .on_over = on_over};

void wp_admin_on_request(struct wp_exchange *x, void *arg)
{
    const struct wp_field bearer = {WP_STR("www-authenticate"), WP_STR("Bearer")};
    struct wp_admin *a = arg;
    const struct wp_config *conf = wp_gate_conf(a->gate);
    const char *key = conf->listen.admin_key;
    const struct admin_route *r;
    struct admin_call *c;
    struct wp_str id;
    char allow[64];

    r = find(x->head, &id, allow);
    x->ops = &wp_answer_only; /* until a call takes over */
    if (!(r && r->open) && key[0] && !wp_router_key_ok(x->head, &key, 1))
        wp_reply_error(x, 401, "unauthorized", NULL, &bearer, 1, "The admin key is needed.");
    else if (!r && allow[0])
        wp_reply_error(x, 405, "method_not_allowed", NULL, &(struct wp_field){WP_STR("allow"), wp_str_of(allow)}, 1,
                       "This call takes %s.", allow);
    else if (!r)
        wp_reply_error(x, 404, "not_found", NULL, NULL, 0, "There is no such call here.");
    else if (!(c = wp_calloc(1, sizeof *c)))
        wp_reply_error(x, 503, "overloaded", "body_memory", NULL, 0, "The router is out of memory.");
    else {
        c->admin = a;
        c->x = x;
        c->route = r;
        c->id = id;
        wp_timer_init(&c->walk, on_walk, c);
        x->user = c;
        x->ops = &call_ops;
        x->body_max = r->run == explain || r->run == query || r->run == query_by_hash ? conf->limits.body_bytes : BODY_MAX;
        wp_exchange_resume(x); /* it waits when the client expects a 100 first */
    }
}
