/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine adapters and the one probe they share.  A probe asks its pages one after another: health, models, metrics, sources of
 * KV events, as far as it was told to and the kind has them.  Each page is bounded; the first that says "not up" ends it.
 */
#include "adapters/adapter.h"

#include "adapters/engines/facts.h"
#include "base/mem.h"

#include <string.h>

enum { PAGE_MAX = 4 << 20 };
enum step { STEP_HEALTH, STEP_MODELS, STEP_METRICS, STEP_FEED };

struct kind {
    const char *health;   /* NULL: the model list stands for it */
    bool health_optional; /* a 404 there says nothing */
    bool metrics;
};
static const struct kind vllm_kind = {"/health", false, true};
static const struct kind openai_kind = {NULL, true, false};
static const struct kind auto_kind = {"/health", true, true};

struct wp_probe {
    struct wp_client *client;
    struct wp_loop *loop;
    const struct kind *kind;
    unsigned left; /* WP_PROBE_ bits */
    enum step step;
    char *host, *base, *health, *bearer; /* bearer: the whole value of the field */
    uint16_t port;
    struct wp_tls *tls;
    uint64_t deadline_us;
    struct wp_call *call;
    int status, page_rc; /* page_rc: why its page was cut off */
    struct wp_buf page, target;
    struct wp_engine_facts facts;
    wp_probe_fn fn; /* NULL: cancelled */
    void *arg;
};

static void probe_free(struct wp_probe *p)
{
    wp_engine_facts_fini(&p->facts);
    wp_buf_fini(&p->page);
    wp_buf_fini(&p->target);
    wp_free(p->host);
    wp_free(p->base);
    wp_free(p->health);
    wp_free(p->bearer);
    wp_tls_unref(p->tls);
    wp_free(p);
}

static void take_health(struct wp_probe *p, int rc)
{
    struct wp_engine_facts *f = &p->facts;

    f->rc = rc < 0 ? rc : p->status;
    f->up = rc == 0 && p->status >= 200 && p->status < 300;
    if (rc == 0 && p->kind->health_optional && (p->status == 404 || p->status == 405 || p->status == 501))
        f->up = true; /* no such page: the model list will tell */
    f->loading = rc == 0 && p->status == 503 && p->page.n && memmem(p->page.p, p->page.n, "oading", 6);
    if (!f->up)
        p->left = 0;
}

static void take_models(struct wp_probe *p, int rc)
{
    struct wp_engine_facts *f = &p->facts;

    f->rc = rc < 0 ? rc : p->status;
    f->up = rc == 0 && p->status == 200;
    rc = f->up ? wp_facts_models(f, wp_buf_str(&p->page)) : 0;
    if (rc < 0) {
        f->up = false;
        f->rc = rc;
    }
    if (!f->up)
        p->left = 0;
}

/* A page that is not there, or says nothing known, takes nothing away: our own account of the load stands. */
static void take_metrics(struct wp_probe *p, int rc)
{
    p->facts.sleep_known = rc == 0; /* whoever answers without a word of sleep is awake; who does not answer may sleep on */
    if (rc == 0 && p->status == 200)
        wp_facts_vllm_metrics(&p->facts, wp_buf_str(&p->page));
    else
        p->facts.missing = "GET /metrics";
}

/* Versions before 0.32 have no such page: any answer is one. */
static void take_feed(struct wp_probe *p, int rc)
{
    p->facts.feed.known = rc == 0 && p->status < 500;
    if (rc == 0 && p->status == 200)
        wp_facts_vllm_sources(&p->facts, wp_buf_str(&p->page), wp_str_of(p->host));
}

static void ask(struct wp_probe *p);

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    struct wp_probe *p = c->user;

    p->status = h->status;
}

static void on_body(struct wp_call *c, const char *bytes, size_t n)
{
    struct wp_probe *p = c->user;

    p->page_rc = wp_buf_add(&p->page, bytes, n);
    if (p->page_rc < 0)
        wp_call_cancel(c);
}

static void on_over(struct wp_call *c, int rc)
{
    struct wp_probe *p = c->user;

    p->call = NULL;
    if (!p->fn) {
        probe_free(p);
        return;
    }
    if (p->page_rc < 0)
        rc = p->page_rc;
    if (rc == WP_EPROTO && p->tls && c->phase == WP_CALL_CONNECT)
        p->facts.tls = c->why;
    if (p->step == STEP_HEALTH)
        take_health(p, rc);
    else if (p->step == STEP_MODELS)
        take_models(p, rc);
    else if (p->step == STEP_METRICS)
        take_metrics(p, rc);
    else
        take_feed(p, rc);
    ask(p);
}

static const struct wp_call_ops probe_ops = {.on_head = on_head, .on_body = on_body, .on_over = on_over};

static bool next_step(struct wp_probe *p, const char **path)
{
    if (p->left & WP_PROBE_HEALTH) {
        p->left &= ~(unsigned)WP_PROBE_HEALTH;
        p->step = STEP_HEALTH;
        *path = p->health ? p->health : p->kind->health;
        if (*path)
            return true;
        p->left |= WP_PROBE_MODELS;
    }
    if (p->left & WP_PROBE_MODELS) {
        p->left &= ~(unsigned)WP_PROBE_MODELS;
        p->step = STEP_MODELS;
        *path = "/v1/models";
        return true;
    }
    if (p->left & WP_PROBE_LOAD && p->kind->metrics) {
        p->left &= ~(unsigned)WP_PROBE_LOAD;
        p->step = STEP_METRICS;
        *path = "/metrics";
        return true;
    }
    if (p->left & WP_PROBE_FEED && p->facts.metrics_known) { /* it speaks as vLLM does */
        p->left &= ~(unsigned)WP_PROBE_FEED;
        p->step = STEP_FEED;
        *path = "/kv_event_sources";
        return true;
    }
    return false;
}

/* Starts the next call; false when out of memory. */
static bool call(struct wp_probe *p, const char *path)
{
    uint64_t now = wp_loop_now_us(p->loop);
    struct wp_field field = {WP_STR("authorization"), wp_str_of(p->bearer)};
    struct wp_call_spec spec = {
        .host = wp_str_of(p->host),
        .port = p->port,
        .tls = p->tls,
        .method = WP_STR("GET"),
        .field = &field,
        .n_fields = p->bearer ? 1 : 0,
        .total_us = p->deadline_us > now ? p->deadline_us - now : 1,
        .ops = &probe_ops,
        .user = p,
    };

    p->target.n = 0;
    if (wp_buf_adds(&p->target, p->base) < 0 || wp_buf_adds(&p->target, path) < 0)
        return false;
    spec.target = wp_buf_str(&p->target);
    p->status = 0;
    p->page_rc = 0;
    p->page.n = 0;
    p->call = wp_call(p->client, &spec);
    return p->call != NULL;
}

static void ask(struct wp_probe *p)
{
    const char *path;

    if (next_step(p, &path)) {
        if (call(p, path))
            return;
        if (p->step == STEP_FEED) {
            /* it will be asked again */
        } else if (p->step == STEP_METRICS) {
            p->facts.missing = "GET /metrics";
        } else {
            p->facts.up = false;
            p->facts.rc = WP_ENOMEM;
        }
    }
    p->fn(p->arg, &p->facts);
    probe_free(p);
}

static int copy(char **out, struct wp_str s)
{
    *out = s.n ? wp_strndup(s.p, s.n) : NULL;
    return s.n && !*out ? WP_ENOMEM : 0;
}

static int copy_bearer(struct wp_probe *p, struct wp_str key)
{
    struct wp_buf b = {0};
    int rc = 0;
    size_t n;

    if (!key.n)
        return 0;
    rc = wp_buf_adds(&b, "Bearer ");
    rc = rc ? rc : wp_buf_add(&b, key.p, key.n);
    rc = rc ? rc : wp_buf_add(&b, "", 1);
    if (rc < 0)
        wp_buf_fini(&b);
    else
        p->bearer = wp_buf_take(&b, &n);
    return rc;
}

static struct wp_probe *begin(struct wp_client *c, const struct wp_engine_target *t, unsigned what, const struct kind *kind,
                              wp_probe_fn fn, void *arg)
{
    struct wp_probe *p = wp_calloc(1, sizeof *p);
    const char *path;

    if (!p)
        return NULL;
    wp_facts_init(&p->facts);
    p->client = c;
    p->loop = wp_client_loop(c);
    p->kind = kind;
    p->left = what;
    p->port = t->port;
    p->tls = wp_tls_ref(t->tls);
    p->page.max = PAGE_MAX;
    p->deadline_us = wp_loop_now_us(p->loop) + t->timeout_us;
    p->fn = fn;
    p->arg = arg;
    p->base = wp_strndup(t->base.p, t->base.n);
    if (!p->base || copy(&p->host, t->host) < 0 || copy(&p->health, t->health) < 0 || copy_bearer(p, t->bearer) < 0 ||
        !next_step(p, &path) || !call(p, path)) {
        probe_free(p);
        return NULL;
    }
    return p;
}

void wp_probe_cancel(struct wp_probe *p)
{
    p->fn = NULL; /* a probe always has a call under way: its end frees it */
    wp_call_cancel(p->call);
}

#define KIND(name, about)                                                                                              \
    static struct wp_probe *probe_##name(struct wp_client *c, const struct wp_engine_target *t, unsigned what,        \
                                         wp_probe_fn fn, void *arg)                                                    \
    {                                                                                                                  \
        return begin(c, t, what, &name##_kind, fn, arg);                                                               \
    }                                                                                                                  \
    static const struct wp_engine_ops name##_ops = {#name, about, probe_##name};

KIND(auto, "finds out what the engine has: health, models, vLLM's metrics")
KIND(vllm, "vLLM: /health, /v1/models, /metrics, /kv_event_sources")
KIND(openai, "anything with /v1/models; no metrics are read")

const struct wp_engine_ops *const wp_engines[] = {&auto_ops, &vllm_ops, &openai_ops, NULL};

const struct wp_engine_ops *wp_engine_find(const char *name)
{
    for (size_t i = 0; wp_engines[i]; i++)
        if (strcmp(wp_engines[i]->name, name) == 0)
            return wp_engines[i];
    return NULL;
}
