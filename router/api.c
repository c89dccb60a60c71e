/* SPDX-License-Identifier: Apache-2.0 */
#include "router/api.h"

#include "base/clock.h"
#include "router/request.h"

#include <stdio.h>

enum local { FORWARD, MODELS, HEALTH };

/* clang-format off */
static const struct route {
    const char *path; /* a '*' at the end stands for the rest */
    const char *method;
    enum local local;
    enum wp_route_kind kind;
} routes[] = {
    {"/v1/chat/completions", "POST", FORWARD, WP_ROUTE_CHAT},
    {"/v1/completions", "POST", FORWARD, WP_ROUTE_COMPLETIONS},
    {"/v1/responses", "POST", FORWARD, WP_ROUTE_RESPONSES},
    {"/v1/responses/*", "GET", FORWARD, WP_ROUTE_STORED},
    {"/v1/responses/*", "DELETE", FORWARD, WP_ROUTE_STORED},
    {"/v1/responses/*", "POST", FORWARD, WP_ROUTE_STORED}, /* .../cancel */
    {"/v1/messages", "POST", FORWARD, WP_ROUTE_MESSAGES},
    {"/v1/messages/count_tokens", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/generate", "POST", FORWARD, WP_ROUTE_GENERATE},
    {"/v1/embeddings", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/v1/rerank", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/v2/rerank", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/rerank", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/v1/score", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/score", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/tokenize", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/detokenize", "POST", FORWARD, WP_ROUTE_PLAIN},
    {"/v1/audio/*", "POST", FORWARD, WP_ROUTE_OPAQUE},
    {"/v1/images/*", "POST", FORWARD, WP_ROUTE_OPAQUE},
    {"/v1/models", "GET", MODELS, 0},
    {"/v1/models/*", "GET", MODELS, 0},
    {"/health", "GET", HEALTH, 0},
};
/* clang-format on */

/*
 * What may stand for the rest of a path that goes on to an engine: plain words between single slashes.  Dots that climb, escapes and
 * parameters are how "/v1/audio/%2e%2e/..." would reach what is no route of ours, once somebody behind us tidies the path up.
 */
static bool plain(struct wp_str rest)
{
    struct wp_str word;

    while (wp_str_split(&rest, '/', &word)) {
        if (word.n == 0 || wp_str_is(word, ".") || wp_str_is(word, ".."))
            return false;
        for (size_t i = 0; i < word.n; i++) {
            char c = word.p[i];

            if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'))
                return false;
        }
    }
    return true;
}

static bool matches(const struct route *r, struct wp_str path)
{
    size_t n = strlen(r->path);

    if (r->path[n - 1] == '*')
        return path.n > n - 1 && memcmp(path.p, r->path, n - 1) == 0 &&
               (r->local != FORWARD || plain((struct wp_str){path.p + n - 1, path.n - n + 1}));
    return wp_str_is(path, r->path);
}

/* The route, or NULL with the methods that the path takes in allow ("" when there is no such path). */
static const struct route *find(struct wp_str method, struct wp_str path, char allow[64])
{
    size_t n = 0;

    allow[0] = 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const struct route *r = &routes[i];

        if (!matches(r, path))
            continue;
        if (wp_str_is(method, r->method) || (wp_str_is(method, "HEAD") && r->local != FORWARD))
            return r;
        n += (size_t)snprintf(allow + n, 64 - n, "%s%s%s", n ? ", " : "", r->method, r->local != FORWARD ? ", HEAD" : "");
    }
    return NULL;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A model's id may hold '/', also percent-encoded: all that is left of the path is the id. */
static struct wp_str decode(struct wp_str s, char out[512])
{
    size_t n = 0;

    for (size_t i = 0; i < s.n && n < 511; i++) {
        int hi = i + 2 < s.n ? hex(s.p[i + 1]) : -1, lo = i + 2 < s.n ? hex(s.p[i + 2]) : -1;

        if (s.p[i] == '%' && hi >= 0 && lo >= 0) {
            out[n++] = (char)(hi << 4 | lo);
            i += 2;
        } else {
            out[n++] = s.p[i];
        }
    }
    return (struct wp_str){out, n};
}

static bool may(const void *key, struct wp_str model)
{
    return wp_key_may(key, model);
}

static void models(struct wp_gate *g, struct wp_exchange *x, struct wp_str path, const struct wp_key *key)
{
    struct wp_buf b = {0};
    struct wp_str id = {0};
    char text[512];
    int rc;

    if (path.n > 11)
        id = decode((struct wp_str){path.p + 11, path.n - 11}, text);
    rc = wp_fleet_models_json(g->router->fleet, id, may, key, &b);
    if (rc == WP_ENOENT)
        wp_router_refuse(g, x, (struct wp_str){0}, 404, "model_not_found", "model", 0, "The model `" WP_STR_FMT "` does not exist.",
                         WP_STR_ARG(id));
    else if (rc < 0)
        wp_router_refuse(g, x, (struct wp_str){0}, 503, "overloaded", "body_memory", 1000000, "The router is out of memory.");
    else
        wp_reply(x, 200, "application/json", NULL, 0, wp_buf_str(&b));
    wp_buf_fini(&b);
}

static void health(struct wp_gate *g, struct wp_exchange *x)
{
    struct wp_router *r = g->router;

    if (atomic_load(&r->draining))
        wp_router_refuse(g, x, (struct wp_str){0}, 503, "no_worker", "drain", 5000000, "The router is shutting down.");
    else if (!wp_fleet_welcomes(r->fleet))
        wp_router_refuse(g, x, (struct wp_str){0}, 503, "no_worker", "worker", 5000000, "No worker is up.");
    else
        wp_reply(x, 200, "application/json", NULL, 0, WP_STR("{\"status\":\"ok\"}"));
}

/* Takes the request on its key's account, or says which limit forbids it and when to come again. */
static bool admit(struct wp_gate *g, struct wp_exchange *x, const struct wp_key *key, struct wp_key_turn *turn)
{
    uint64_t limit = 0, retry_us = 0;
    enum wp_key_no no = key ? wp_key_begin(key, turn, wp_now_us(), &limit, &retry_us) : WP_KEY_OK;

    if (no == WP_KEY_OK)
        return true;
    wp_count(WP_SERIES(g->router->count.key_limits, wp_key_no_names[no]), 1);
    if (no == WP_KEY_AT_ONCE)
        wp_router_refuse(g, x, (struct wp_str){0}, 429, "rate_limit_exceeded", wp_key_no_names[no], retry_us,
                         "%s may have %llu requests under way at once, and has.", wp_key_name(key), (unsigned long long)limit);
    else
        wp_router_refuse(g, x, (struct wp_str){0}, 429, "rate_limit_exceeded", wp_key_no_names[no], retry_us,
                         "%s may use %llu %s a minute, and has; the next one fits in %.1f s.", wp_key_name(key), (unsigned long long)limit,
                         wp_key_no_names[no], (double)retry_us / 1e6);
    return false;
}

void wp_api_on_request(struct wp_exchange *x, void *arg)
{
    struct wp_gate *g = arg;
    const struct wp_keys *keys = g->settings->keys;
    struct wp_str path = wp_target_path(x->head->target);
    char allow[64];
    const struct route *r = find(x->head->method, path, allow);
    const struct wp_key *key = NULL;
    struct wp_key_turn turn = {0};

    x->ops = &wp_answer_only; /* until a request takes over */
    if (wp_keys_count(keys) && (r ? r->local != HEALTH : allow[0] != 0))
        key = wp_keys_find(keys, x->head);
    if (!key && wp_keys_count(keys) && (r ? r->local != HEALTH : allow[0] != 0)) {
        wp_router_refuse(g, x, (struct wp_str){0}, 401, "unauthorized", NULL, 0, "A valid API key is needed.");
    } else if (!r && allow[0]) {
        wp_router_refuse(g, x, (struct wp_str){0}, 405, "method_not_allowed", allow, 0, "This route takes %s.", allow);
    } else if (!r) {
        wp_router_refuse(g, x, (struct wp_str){0}, 404, "not_found", NULL, 0, "There is no such route here.");
    } else if (r->local != HEALTH && atomic_load(&g->router->draining)) {
        wp_router_refuse(g, x, (struct wp_str){0}, 503, "no_worker", "drain", 5000000, "The router is shutting down.");
    } else if (r->local == MODELS) {
        models(g, x, path, key);
    } else if (r->local == HEALTH) {
        health(g, x);
    } else if (admit(g, x, key, &turn)) {
        wp_request_begin(g, x, r->kind, key, &turn);
    }
}
