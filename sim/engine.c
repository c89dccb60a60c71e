/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine_impl.h"

#include "base/clock.h"
#include "base/rng.h"
#include "sim/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

struct wp_route {
    const char *path;
    const char *allow; /* "GET", "POST", "GET, POST" */
    void (*handle)(struct wp_visit *v);
};

static void reply_json(struct wp_visit *v, int status, const char *text)
{
    wp_reply(v->x, status, "application/json", NULL, 0, wp_str_of(text));
}

static void reply_put(struct wp_visit *v, int status, const char *type, const struct wp_put *o)
{
    if (o->rc < 0)
        reply_json(v, 500, "{\"detail\":\"out of memory\"}");
    else
        wp_reply(v->x, status, type, NULL, 0, wp_buf_str(o->b));
}

static void empty(struct wp_visit *v)
{
    wp_reply_head(v->x, 200, (struct wp_str){0}, NULL, 0, 0);
    wp_reply_end(v->x);
}

static void version(struct wp_visit *v)
{
    reply_json(v, 200, "{\"version\":\"0.32.0\"}");
}

static void load(struct wp_visit *v)
{
    reply_json(v, 200, "{\"server_load\":0}"); /* as without --enable-server-load-tracking */
}

static void is_sleeping(struct wp_visit *v)
{
    reply_json(v, 200, "{\"is_sleeping\":false}");
}

static void event_sources(struct wp_visit *v)
{
    struct wp_buf b = {0};
    struct wp_put o = {&b, 0};

    wp_ranks_sources(v->engine, &o);
    reply_put(v, 200, "application/json", &o);
    wp_buf_fini(&b);
}

static void models(struct wp_visit *v)
{
    struct wp_buf b = {0};
    struct wp_put o = {&b, 0};

    wp_answer_models(&o, &v->engine->limits, wp_wall_us() / 1000000);
    reply_put(v, 200, "application/json", &o);
    wp_buf_fini(&b);
}

static void metrics(struct wp_visit *v)
{
    struct wp_buf b = {0};
    struct wp_put o = {&b, 0};

    wp_engine_turn(v->engine);
    o.rc = wp_gauges_page(v->engine, &b);
    reply_put(v, 200, "text/plain; version=0.0.4; charset=utf-8", &o);
    wp_buf_fini(&b);
}

/* While blocks are in use it does nothing, and says so; reset_running_requests=true drops them all
 * the same. */
static void reset_prefix_cache(struct wp_visit *v)
{
    struct wp_engine *e = v->engine;
    struct wp_str force =
        wp_query_get(wp_target_query(v->x->head->target), "reset_running_requests");
    uint64_t running = 0;

    wp_engine_turn(e);
    for (uint32_t i = 0; i < e->n_ranks; i++) {
        struct wp_model_stats s;

        wp_model_stats(e->rank[i].model, &s);
        running += s.running;
    }
    if (running && !wp_str_iis(force, "true")) {
        reply_json(v, 200, "{\"success\":false}");
        return;
    }
    for (uint32_t i = 0; i < e->n_ranks; i++)
        wp_rank_reset(&e->rank[i]);
    wp_engine_turn(e);
    reply_json(v, 200, "{\"success\":true}");
}

/* For tests: what every rank holds in truth. */
static void dump(struct wp_visit *v)
{
    static const char *const what[] = {
        [WP_DUMP_TOKENS] = "tokens", [WP_DUMP_NAMES] = "names", [WP_DUMP_DIGEST] = "digest"};
    struct wp_str query = wp_target_query(v->x->head->target);
    enum wp_dump w = WP_DUMP_DIGEST;
    struct wp_buf b = {0};
    struct wp_put o = {&b, 0};

    while (w != WP_DUMP_BLOCKS && !wp_str_iis(wp_query_get(query, what[w]), "true"))
        w--;
    wp_engine_turn(v->engine);
    wp_ranks_dump(v->engine, w, &o);
    reply_put(v, 200, "application/json", &o);
    wp_buf_fini(&b);
}

/* For tests: as if the process had been killed and started anew, but for its HTTP port. */
static void restart_events(struct wp_visit *v)
{
    struct wp_engine *e = v->engine;
    struct wp_str query = wp_target_query(v->x->head->target);
    bool keep = wp_str_iis(wp_query_get(query, "keep"), "true");
    uint64_t rank = UINT64_MAX;

    if (wp_query_get(query, "rank").p &&
        (!wp_str_u64(wp_query_get(query, "rank"), &rank) || rank >= e->n_ranks)) {
        reply_json(v, 400, "{\"detail\":\"no such rank\"}");
        return;
    }
    wp_engine_turn(e);
    for (uint32_t i = 0; i < e->n_ranks; i++)
        if (rank == UINT64_MAX || rank == i)
            wp_rank_restart(&e->rank[i], keep);
    wp_engine_turn(e);
    reply_json(v, 200, "{\"success\":true}");
}

static void at_once(struct wp_visit *v,
                    int (*make)(const struct wp_oai_limits *lim, struct wp_str type,
                                struct wp_str body, struct wp_buf *answer))
{
    struct wp_buf b = {0};
    struct wp_put o = {&b, 0};
    int rc =
        make(&v->engine->limits, wp_head_get(v->x->head, "Content-Type"), wp_buf_str(&v->body), &b);

    o.rc = rc < 0 ? rc : 0;
    reply_put(v, rc, "application/json", &o);
    wp_buf_fini(&b);
}

static void tokenize(struct wp_visit *v)
{
    at_once(v, wp_oai_tokenize);
}

static void detokenize(struct wp_visit *v)
{
    at_once(v, wp_oai_detokenize);
}

static void render(struct wp_visit *v)
{
    struct wp_buf b = {0};
    struct wp_put o = {&b, 0};
    int rc = wp_oai_error(&b, 403, "PermissionDeniedError", NULL,
                          "Scale-out endpoints are disabled. Restart vllm serve with "
                          "--enable-scale-out to enable them.");

    o.rc = rc < 0 ? rc : 0;
    reply_put(v, 403, "application/json", &o);
    wp_buf_fini(&b);
}

static void completions(struct wp_visit *v)
{
    wp_job_start(v, false);
}

static void chat_completions(struct wp_visit *v)
{
    wp_job_start(v, true);
}

/* clang-format off */
static const struct wp_route routes[] = {
    {"/v1/completions",             "POST",      completions},
    {"/v1/chat/completions",        "POST",      chat_completions},
    {"/v1/completions/render",      "POST",      render},
    {"/v1/chat/completions/render", "POST",      render},
    {"/v1/models",                  "GET",       models},
    {"/tokenize",                   "POST",      tokenize},
    {"/detokenize",                 "POST",      detokenize},
    {"/health",                     "GET",       empty},
    {"/ping",                       "GET, POST", empty},
    {"/metrics",                    "GET",       metrics},
    {"/load",                       "GET",       load},
    {"/version",                    "GET",       version},
    {"/is_sleeping",                "GET",       is_sleeping},
    {"/kv_event_sources",           "GET",       event_sources},
    {"/reset_prefix_cache",         "POST",      reset_prefix_cache},
    {"/sim/cache",                  "GET",       dump},
    {"/sim/events/restart",         "POST",      restart_events},
};
/* clang-format on */

static bool allows(const struct wp_route *r, struct wp_str method)
{
    struct wp_str list = wp_str_of(r->allow), one;

    while (wp_str_split(&list, ',', &one))
        if (wp_str_eq(wp_str_trim(one), method))
            return true;
    return false;
}

static void dispatch(struct wp_visit *v)
{
    struct wp_str path = wp_target_path(v->x->head->target);
    struct wp_field allow = {WP_STR("Allow"), {0}};

    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!wp_str_is(path, routes[i].path))
            continue;
        if (allows(&routes[i], v->x->head->method)) {
            routes[i].handle(v);
            return;
        }
        allow.value = wp_str_of(routes[i].allow);
        wp_reply(v->x, 405, "application/json", &allow, 1,
                 WP_STR("{\"detail\":\"Method Not Allowed\"}"));
        return;
    }
    reply_json(v, 404, "{\"detail\":\"Not Found\"}");
}

static void on_body(struct wp_exchange *x, const char *p, size_t n)
{
    struct wp_visit *v = x->user;

    if (wp_buf_add(&v->body, p, n) < 0)
        v->failed = true;
}

static void on_body_end(struct wp_exchange *x)
{
    struct wp_visit *v = x->user;

    if (v->failed)
        reply_json(v, 500, "{\"detail\":\"out of memory\"}");
    else
        dispatch(v);
}

static void on_over(struct wp_exchange *x, int rc)
{
    struct wp_visit *v = x->user;

    (void)rc;
    if (!v)
        return;
    wp_timer_stop(v->engine->loop, &v->slow);
    if (v->job)
        wp_job_over(v->job);
    wp_buf_fini(&v->body);
    wp_free(v);
}

static const struct wp_exchange_ops exchange_ops = {
    .on_body = on_body, .on_body_end = on_body_end, .on_over = on_over};
static const struct wp_exchange_ops silent_ops = {.on_over = on_over};

static void on_slow(struct wp_timer *t)
{
    struct wp_visit *v = t->arg;

    wp_exchange_resume(v->x);
}

static void on_request(struct wp_exchange *x, void *arg)
{
    struct wp_engine *e = arg;
    struct wp_visit *v = wp_calloc(1, sizeof *v);
    struct wp_fault *f =
        wp_fault_strike(e->fault, e->n_faults, WP_FAULT_SILENT, WP_FAULT_SLOW_ACCEPT, 0);

    x->ops = f && f->kind == WP_FAULT_SILENT ? &silent_ops : &exchange_ops;
    x->user = v;
    if (!v) {
        x->ops = &silent_ops;
        wp_reply_error(x, 500, "out_of_memory", NULL, NULL, 0, "out of memory");
        return;
    }
    v->engine = e;
    v->x = x;
    wp_timer_init(&v->slow, on_slow, v);
    if (f && f->kind == WP_FAULT_SLOW_ACCEPT) {
        wp_exchange_pause(x);
        wp_timer_in(e->loop, &v->slow, f->value * 1000);
    } else {
        wp_exchange_resume(x);
    }
}

static const char *refuse(int status, const char *why, struct wp_buf *out, void *arg)
{
    (void)status;
    (void)why;
    (void)arg;
    wp_buf_adds(out, "Invalid HTTP request received.");
    return "text/plain; charset=utf-8";
}

static int listen_on(struct wp_engine *e, struct wp_str address, struct wp_err *err)
{
    struct wp_server_conf conf = {
        .address = address,
        .head_bytes = 65536,
        .body_bytes = UINT64_C(64) << 20,
        .head_us = 10000000,
        .body_us = 60000000,
        .keepalive_us = 5000000, /* as uvicorn does it */
        .send_us = 60000000,
        .on_request = on_request,
        .refuse = refuse,
        .arg = e,
    };

    return wp_server_create(&e->server, e->loop, &conf, err);
}

static int check_length(struct wp_engine *e, uint32_t wanted, struct wp_err *err)
{
    uint64_t room = e->cost.tier_blocks[0] * e->cost.block_size,
             most = e->cost.profile.max_model_len;

    if (e->cost.block_size == 0 || e->cost.tier_blocks[0] == 0)
        return wp_fail(err, WP_EINVAL, "want at least one block of at least one token on the gpu");
    if (wanted > room)
        return wp_fail(err, WP_EINVAL,
                       "a context of %u tokens does not fit into %" PRIu64 " blocks of %u tokens",
                       wanted, e->cost.tier_blocks[0], e->cost.block_size);
    if (most == 0 || most > room)
        most = room;
    e->limits.max_model_len = wanted ? wanted : (uint32_t)(most < UINT32_MAX ? most : UINT32_MAX);
    return 0;
}

static int copy_adapters(struct wp_engine *e, const struct wp_engine_conf *conf)
{
    e->adapter = wp_calloc(conf->n_adapters, sizeof *e->adapter);
    if (!e->adapter)
        return WP_ENOMEM;
    e->limits.adapter = (const char *const *)e->adapter;
    for (; e->limits.n_adapters < conf->n_adapters; e->limits.n_adapters++) {
        char *name = wp_strdup(conf->adapter[e->limits.n_adapters]);

        if (!name)
            return WP_ENOMEM;
        e->adapter[e->limits.n_adapters] = name;
    }
    return 0;
}

static int copy_conf(struct wp_engine *e, const struct wp_engine_conf *conf, struct wp_err *err)
{
    e->cost = conf->cost;
    e->cost.whole_hits = true;
    e->cost.copies = !conf->no_copies;
    e->cost.store_first = !conf->remove_first;
    e->blocks = (struct wp_blocks){.block_size = conf->cost.block_size, .secret = conf->hash_seed};
    e->announces = conf->events != NULL;
    e->replay_buffer =
        conf->events && conf->events->buffer ? conf->events->buffer : WP_PUBLISH_BUFFER;
    e->seed = conf->seed;
    e->ids.state = wp_rng_secret();
    wp_list_init(&e->doomed);
    wp_timer_init(&e->clock, wp_engine_on_clock, e);
    e->name = wp_strdup(conf->model);
    e->fault = wp_memdup(conf->fault, conf->n_faults * sizeof *conf->fault);
    e->n_faults = conf->n_faults;
    e->block_token = wp_calloc(conf->cost.block_size, sizeof *e->block_token);
    if (!e->name || !e->fault || !e->block_token || copy_adapters(e, conf) < 0)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    e->limits.model = e->name;
    snprintf(e->fingerprint, sizeof e->fingerprint, "vllm-0.32.0-%08x",
             (unsigned)XXH3_64bits(e->name, strlen(e->name)));
    return check_length(e, conf->max_model_len, err);
}

static void engine_free(struct wp_engine *e)
{
    wp_timer_stop(e->loop, &e->clock);
    wp_ranks_fini(e);
    wp_blocks_fini(&e->blocks);
    wp_metrics_destroy(e->metrics);
    wp_buf_fini(&e->scratch);
    for (size_t i = 0; i < e->limits.n_adapters; i++)
        wp_free(e->adapter[i]);
    wp_free(e->adapter);
    wp_free(e->block_token);
    wp_free(e->topic);
    wp_free(e->fault);
    wp_free(e->name);
    wp_free(e);
}

/* "kv@127.0.0.1:8000@sim": the address as told, the port as bound. */
static int make_topic(struct wp_engine *e, const struct wp_engine_conf *conf)
{
    const char *colon = memrchr(conf->listen.p, ':', conf->listen.n);
    struct wp_buf b = {0};
    int rc;

    if (conf->events->topic)
        rc = wp_buf_adds(&b, conf->events->topic);
    else
        rc = wp_buf_printf(&b, "kv@%.*s:%u@%s", (int)(colon ? colon - conf->listen.p : 0),
                           conf->listen.p, wp_server_port(e->server), e->name);
    if (rc == 0)
        rc = wp_buf_add(&b, "", 1);
    e->topic = b.p;
    return rc;
}

static int announce(struct wp_engine *e, const struct wp_engine_conf *conf, struct wp_err *err)
{
    if (make_topic(e, conf) < 0)
        return wp_fail(err, WP_ENOMEM, "engine: out of memory");
    return wp_ranks_announce(e, conf->events, err);
}

int wp_engine_create(struct wp_engine **out, struct wp_loop *l, const struct wp_engine_conf *conf,
                     struct wp_err *err)
{
    struct wp_engine *e = wp_calloc(1, sizeof *e);
    int rc;

    if (!e)
        return wp_fail(err, WP_ENOMEM, "engine: out of memory");
    e->loop = l;
    rc = copy_conf(e, conf, err);
    if (rc == 0)
        rc = wp_metrics_create(&e->metrics, err);
    if (rc == 0)
        rc = wp_ranks_create(e, conf->ranks ? conf->ranks : 1, err);
    e->born_us = wp_now_us();
    if (rc == 0)
        rc = listen_on(e, conf->listen, err);
    if (rc < 0) {
        engine_free(e);
        return rc;
    }
    rc = conf->events ? announce(e, conf, err) : 0;
    if (rc < 0) {
        wp_engine_destroy(e, NULL, NULL);
        return rc;
    }
    *out = e;
    return 0;
}

uint16_t wp_engine_port(const struct wp_engine *e)
{
    return wp_server_port(e->server);
}

size_t wp_engine_exchanges(const struct wp_engine *e)
{
    return wp_server_exchanges(e->server);
}

void wp_engine_drain(struct wp_engine *e)
{
    wp_server_drain(e->server);
}

static void on_closed(void *arg)
{
    struct wp_engine *e = arg;
    void (*closed)(void *) = e->closed;
    void *closed_arg = e->closed_arg;

    engine_free(e);
    if (closed)
        closed(closed_arg);
}

void wp_engine_destroy(struct wp_engine *e, void (*closed)(void *arg), void *arg)
{
    e->closed = closed;
    e->closed_arg = arg;
    wp_server_destroy(e->server, on_closed, e);
}
