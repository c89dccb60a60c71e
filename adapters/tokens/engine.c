/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer that asks an engine.  A *flight* is one question under way: those who wait for it, and at most two calls.
 *
 *   ask --> cache hit: answered at once
 *     |---> an equal flight: one more waits for it
 *     +---> a new flight, one call --- silent for hedge_us, or failed ---> a second call to another worker
 *
 *   the first good answer: into the cache, to all who wait; the other call is cancelled
 *   no call is left: all who wait get the reason of the last
 *   a waiter's limit: it gets LATE; when it was the last, the flight goes on alone (an orphan) for the cache, a bounded number
 *       of them, each call for a second at most
 *   the last waiter cancels: so are the calls
 *   destroy: the calls are cancelled; with the last of each flight its waiters get CANCELED
 *
 * A flight that is decided is out of the map, so nobody joins it any more, and it is freed when its last call has said on_over.
 * Callbacks of waiters may do anything, even destroy the tokenizer: it lives as long as a flight does, and a flight until it has told all.
 */
#include "adapters/tokens/kinds.h"

#include "adapters/tokens/cache.h"
#include "adapters/tokens/question.h"
#include "adapters/tokens/rests.h"

#include <stdio.h>

enum { CALLS_MAX = 2, CALL_US = 1000000, ORPHANS_MAX = 32 };
enum { REST_LACKS_US = 30000000, REST_TROUBLE_US = 1000000 };

struct attempt {
    struct wp_tokens_flight *flight;
    struct wp_call *call; /* NULL: over */
    void *who;
    uint64_t key;
    int status;
    enum wp_tokens_result wrong; /* found in the body; 0 (ASKED): nothing yet */
    struct wp_buf page;
};

struct wp_tokens_flight {
    struct wp_list link;
    struct engine *engine;
    struct wp_tokens_key key;
    struct wp_blob *question;
    struct wp_list waiters;
    struct attempt attempt[CALLS_MAX];
    unsigned tried, open;
    struct wp_timer hedge;
    enum wp_tokens_result last; /* why the last call brought nothing */
    bool decided, orphan;
    size_t n_model;
    char model[]; /* for the second call */
};

struct engine {
    struct wp_tokens pub; /* first */
    struct wp_loop *loop;
    struct wp_tokens_cache cache;
    struct wp_map by_key; /* low half of the key -> flight */
    struct wp_list flights;
    struct wp_rests rests;
    unsigned orphans;
    bool closing;
};

/* ---- ends ---- */

static void on_end(struct wp_timer *t)
{
    struct engine *e = t->arg;
    void (*closed)(void *) = e->pub.closed;
    void *arg = e->pub.closed_arg;

    wp_tokens_cache_fini(&e->cache);
    wp_map_fini(&e->by_key);
    wp_free(e);
    if (closed)
        closed(arg);
}

static void unless_used(struct engine *e)
{
    if (e->closing && wp_list_empty(&e->flights))
        wp_timer_in(e->loop, &e->pub.end, 0);
}

static void flight_free(struct wp_tokens_flight *f)
{
    struct engine *e = f->engine;

    wp_list_del(&f->link);
    wp_blob_unref(f->question);
    wp_free(f);
    unless_used(e);
}

static void tell(struct wp_tokens_wait *w, enum wp_tokens_result r, struct wp_blob *tokens)
{
    struct engine *e = w->flight->engine;

    wp_list_del(&w->link);
    wp_timer_stop(e->loop, &w->timer);
    w->flight = NULL;
    wp_count(e->pub.count[r], 1);
    w->fn(w, r, tokens);
}

static void tell_all(struct wp_tokens_flight *f, enum wp_tokens_result r, struct wp_blob *tokens)
{
    while (!wp_list_empty(&f->waiters)) {
        struct wp_tokens_wait *w = WP_CONTAINER(f->waiters.next, struct wp_tokens_wait, link);

        tell(w, tokens && w->joined ? WP_TOKENS_SHARED : r, tokens);
    }
}

static void take_out(struct wp_tokens_flight *f)
{
    struct wp_map *m = &f->engine->by_key;
    uint64_t *at = wp_map_at(m, f->key.low);

    if (at && *at == (uintptr_t)f) /* half a key may be another's too */
        wp_map_del(m, f->key.low);
}

/* Nothing more is expected of its calls: nobody joins it, and those that are open end. */
static void decide(struct wp_tokens_flight *f)
{
    struct engine *e = f->engine;

    f->decided = true;
    wp_timer_stop(e->loop, &f->hedge);
    take_out(f);
    if (f->orphan)
        e->orphans--;
    f->orphan = false;
    for (unsigned i = 0; i < f->tried; i++)
        if (f->attempt[i].call)
            wp_call_cancel(f->attempt[i].call);
}

static void slow(const struct attempt *a)
{
    struct engine *e = a->flight->engine;

    if (a->call)
        wp_rest(&e->rests, a->key, wp_loop_now_us(e->loop) + REST_TROUBLE_US, false);
}

static void finish(struct wp_tokens_flight *f, enum wp_tokens_result r, struct wp_blob *tokens)
{
    if (r == WP_TOKENS_HEDGED)
        slow(&f->attempt[0]);
    decide(f);
    if (tokens)
        wp_tokens_cache_put(&f->engine->cache, &f->key, tokens);
    tell_all(f, r, tokens);
    if (f->open == 0)
        flight_free(f);
}

/* ---- calls ---- */

static const struct wp_call_ops call_ops;

static bool pick(struct wp_tokens_flight *f, struct wp_tokens_worker *out)
{
    struct engine *e = f->engine;
    const struct wp_tokens_conf *conf = &e->pub.conf;
    uint64_t but[WP_RESTS_MAX + CALLS_MAX], now = wp_loop_now_us(e->loop);
    struct wp_str model = {f->model, f->n_model};

    for (int soft = 1; soft >= 0; soft--) {
        size_t n = wp_resting(&e->rests, now, soft, but);

        for (unsigned i = 0; i < f->tried; i++)
            but[n++] = f->attempt[i].key;
        if (conf->pick(conf->arg, model, but, n, out))
            return true;
    }
    return false;
}

static struct wp_call *post(struct attempt *a, const struct wp_tokens_worker *w)
{
    struct engine *e = a->flight->engine;
    char target[512], bearer[600];
    struct wp_field field[2] = {{WP_STR("content-type"), WP_STR("application/json")}, {WP_STR("authorization"), {0}}};
    struct wp_call_spec spec = {
        .host = w->host,
        .port = w->port,
        .tls = w->tls,
        .method = WP_STR("POST"),
        .field = field,
        .n_fields = 1,
        .body = a->flight->question,
        .connect_us = CALL_US,
        .total_us = CALL_US + wp_tokens_limit_us(&e->pub.conf, e->pub.conf.limit_us, a->flight->question->n),
        .ops = &call_ops,
        .user = a,
    };

    snprintf(target, sizeof target, WP_STR_FMT "/tokenize", WP_STR_ARG(w->base));
    spec.target = wp_str_of(target);
    if (w->bearer.n) {
        snprintf(bearer, sizeof bearer, "Bearer " WP_STR_FMT, WP_STR_ARG(w->bearer));
        field[1].value = wp_str_of(bearer);
        spec.n_fields = 2;
    }
    return wp_call(e->pub.conf.client, &spec);
}

/* One more call.  0; WP_TOKENS_NOBODY or WP_TOKENS_NO_MEMORY otherwise. */
static enum wp_tokens_result try_next(struct wp_tokens_flight *f)
{
    struct engine *e = f->engine;
    struct attempt *a = &f->attempt[f->tried];
    struct wp_tokens_worker w = {0};

    if (f->tried == CALLS_MAX || !pick(f, &w))
        return WP_TOKENS_NOBODY;
    *a = (struct attempt){.flight = f, .who = w.who, .key = w.key, .page.max = wp_tokens_answer_max(f->question->n)};
    a->call = post(a, &w);
    if (!a->call) {
        e->pub.conf.drop(e->pub.conf.arg, w.who);
        return WP_TOKENS_NO_MEMORY;
    }
    f->tried++;
    f->open++;
    wp_count(e->pub.conf.calls, 1);
    return 0;
}

static void on_hedge(struct wp_timer *t)
{
    try_next(t->arg); /* without a second one the first goes on alone */
}

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    struct attempt *a = c->user;

    a->status = h->status;
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    struct attempt *a = c->user;
    int rc = wp_buf_add(&a->page, p, n);

    if (rc == 0)
        return;
    a->wrong = rc == WP_ENOMEM ? WP_TOKENS_NO_MEMORY : WP_TOKENS_GARBAGE;
    wp_call_cancel(c);
}

/* What the call brought: ids, or why not; and what that says about the worker. */
static enum wp_tokens_result judge(struct attempt *a, int rc, struct wp_blob **tokens)
{
    struct engine *e = a->flight->engine;
    uint64_t now = wp_loop_now_us(e->loop);
    int status = a->status;

    if (a->wrong == 0 && rc == 0 && status == 200) {
        rc = wp_tokens_answer(wp_buf_str(&a->page), tokens);
        if (rc == 0) {
            wp_rest_over(&e->rests, a->key);
            return a == &a->flight->attempt[0] ? WP_TOKENS_ASKED : WP_TOKENS_HEDGED;
        }
        a->wrong = rc == WP_ENOMEM ? WP_TOKENS_NO_MEMORY : WP_TOKENS_GARBAGE;
    }
    if (a->wrong) {
        if (a->wrong == WP_TOKENS_GARBAGE)
            wp_rest(&e->rests, a->key, now + REST_LACKS_US, true);
        return a->wrong;
    }
    if (rc == WP_ENOMEM)
        return WP_TOKENS_NO_MEMORY;
    if (rc < 0 || status >= 500 || status < 400) {
        bool lacks = rc == 0 && (status == 501 || status < 400);

        wp_rest(&e->rests, a->key, now + (lacks ? REST_LACKS_US : REST_TROUBLE_US), true);
        return lacks ? WP_TOKENS_REFUSED : WP_TOKENS_FAILED;
    }
    if (status == 401 || status == 403 || status == 404 || status == 405)
        wp_rest(&e->rests, a->key, now + REST_LACKS_US, true);
    else if (status == 429)
        wp_rest(&e->rests, a->key, now + REST_TROUBLE_US, true);
    return WP_TOKENS_REFUSED;
}

/* The question itself is refused: another worker would say the same. */
static bool hopeless(const struct attempt *a, enum wp_tokens_result r)
{
    return r == WP_TOKENS_NO_MEMORY || (r == WP_TOKENS_REFUSED && (a->status == 400 || a->status == 413 || a->status == 422));
}

static void on_over(struct wp_call *c, int rc)
{
    struct attempt *a = c->user;
    struct wp_tokens_flight *f = a->flight;
    struct engine *e = f->engine;
    struct wp_blob *tokens = NULL;
    enum wp_tokens_result r = WP_TOKENS_CANCELED;

    a->call = NULL;
    f->open--;
    if (!f->decided)
        r = judge(a, rc, &tokens);
    wp_buf_fini(&a->page);
    e->pub.conf.drop(e->pub.conf.arg, a->who);
    if (f->decided) {
        if (f->open == 0) {
            tell_all(f, WP_TOKENS_CANCELED, NULL);
            flight_free(f);
        }
        return;
    }
    if (tokens) {
        finish(f, r, tokens);
        wp_blob_unref(tokens);
        return;
    }
    f->last = r;
    if (!hopeless(a, r) && !wp_list_empty(&f->waiters)) {
        wp_timer_stop(e->loop, &f->hedge);
        try_next(f);
    }
    if (f->open == 0)
        finish(f, f->last, NULL);
}

static const struct wp_call_ops call_ops = {.on_head = on_head, .on_body = on_body, .on_over = on_over};

/* ---- who waits ---- */

/* One has left a flight.  Was it the last, the flight goes on for the cache alone, or ends. */
static void left(struct wp_tokens_flight *f, bool late)
{
    struct engine *e = f->engine;

    if (f->decided || !wp_list_empty(&f->waiters))
        return;
    wp_timer_stop(e->loop, &f->hedge);
    if (late && e->orphans < ORPHANS_MAX && e->pub.conf.cache_bytes) {
        f->orphan = true;
        e->orphans++;
    } else {
        decide(f); /* its calls end later, and it with them */
    }
}

static void on_limit(struct wp_timer *t)
{
    struct wp_tokens_wait *w = WP_CONTAINER(t, struct wp_tokens_wait, timer);
    struct wp_tokens_flight *f = w->flight;
    struct engine *e = f->engine;

    for (unsigned i = 0; !f->decided && i < f->tried; i++)
        slow(&f->attempt[i]);
    wp_list_del(&w->link);
    w->flight = NULL;
    left(f, true);
    wp_count(e->pub.count[WP_TOKENS_LATE], 1);
    w->fn(w, WP_TOKENS_LATE, NULL);
}

static enum wp_tokens_result wait_for(struct wp_tokens_flight *f, struct wp_tokens_wait *w, wp_tokens_fn fn, bool joined)
{
    struct engine *e = f->engine;

    if (f->orphan) {
        f->orphan = false;
        e->orphans--;
    }
    w->fn = fn;
    w->flight = f;
    w->joined = joined;
    wp_list_push(&f->waiters, &w->link);
    wp_timer_init(&w->timer, on_limit, w);
    wp_timer_in(e->loop, &w->timer, wp_tokens_limit_us(&e->pub.conf, e->pub.conf.limit_us, f->question->n));
    return WP_TOKENS_LATER;
}

void wp_tokens_cancel(struct wp_tokens_wait *w)
{
    struct wp_tokens_flight *f = w->flight;

    if (!f)
        return;
    wp_list_del(&w->link);
    wp_timer_stop(f->engine->loop, &w->timer);
    w->flight = NULL;
    wp_count(f->engine->pub.count[WP_TOKENS_CANCELED], 1);
    left(f, false);
}

/* ---- asking ---- */

static struct wp_tokens_flight *find(const struct engine *e, const struct wp_tokens_key *key)
{
    struct wp_tokens_flight *f;
    uint64_t p;

    if (!wp_map_get(&e->by_key, key->low, &p))
        return NULL;
    f = (struct wp_tokens_flight *)(uintptr_t)p;
    return wp_tokens_key_same(&f->key, key) ? f : NULL;
}

/* Takes over question, also on failure. */
static enum wp_tokens_result take_off(struct engine *e, const struct wp_tokens_key *key, struct wp_blob *question, struct wp_str model,
                                      struct wp_tokens_wait *w, wp_tokens_fn fn)
{
    struct wp_tokens_flight *f = wp_calloc(1, sizeof *f + model.n);
    const struct wp_tokens_conf *conf = &e->pub.conf;
    enum wp_tokens_result r;

    if (!f) {
        wp_blob_unref(question);
        return WP_TOKENS_NO_MEMORY;
    }
    f->engine = e;
    f->key = *key;
    f->question = question;
    f->n_model = model.n;
    memcpy(f->model, model.p, model.n);
    wp_list_init(&f->waiters);
    wp_list_push(&e->flights, &f->link);
    wp_timer_init(&f->hedge, on_hedge, f);
    r = wp_map_put(&e->by_key, key->low, (uintptr_t)f) < 0 ? WP_TOKENS_NO_MEMORY : try_next(f);
    if (r) {
        take_out(f);
        flight_free(f);
        return r;
    }
    wp_timer_in(e->loop, &f->hedge, wp_tokens_limit_us(conf, conf->hedge_us, question->n));
    return wait_for(f, w, fn, false);
}

static struct wp_blob *question_of(const struct wp_tokens_prompt *p)
{
    struct wp_buf b = {0};
    struct wp_blob *q;
    size_t n;
    char *text;

    if (wp_tokens_question(&b, p) < 0) {
        wp_buf_fini(&b);
        return NULL;
    }
    text = wp_buf_take(&b, &n);
    q = wp_blob_adopt(text, n);
    return q;
}

static enum wp_tokens_result engine_ask(struct wp_tokens *t, const struct wp_tokens_prompt *p, struct wp_tokens_wait *w,
                                        wp_tokens_fn fn, struct wp_blob **now)
{
    struct engine *e = (struct engine *)t;
    struct wp_tokens_flight *f;
    struct wp_tokens_key key;
    struct wp_blob *question;

    if (e->closing)
        return WP_TOKENS_CANCELED;
    if (!wp_tokens_suited(p))
        return WP_TOKENS_UNSUITED;
    question = question_of(p);
    if (!question)
        return WP_TOKENS_NO_MEMORY;
    key = wp_tokens_key((struct wp_str){question->p, question->n}, t->conf.secret);
    *now = wp_tokens_cache_get(&e->cache, &key);
    f = *now ? NULL : find(e, &key);
    if (!*now && !f)
        return take_off(e, &key, question, p->model, w, fn);
    wp_blob_unref(question);
    return *now ? WP_TOKENS_CACHED : wait_for(f, w, fn, true);
}

static int engine_create(struct wp_tokens **out, const struct wp_tokens_conf *conf, struct wp_err *err)
{
    struct engine *e = wp_calloc(1, sizeof *e);

    if (!e)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    e->loop = wp_client_loop(conf->client);
    e->by_key.seed = conf->secret;
    wp_tokens_cache_init(&e->cache, conf->cache_bytes, conf->secret);
    wp_list_init(&e->flights);
    wp_timer_init(&e->pub.end, on_end, e);
    *out = &e->pub;
    return 0;
}

static void engine_destroy(struct wp_tokens *t, void (*closed)(void *arg), void *arg)
{
    struct engine *e = (struct engine *)t;

    e->closing = true;
    t->closed = closed;
    t->closed_arg = arg;
    WP_LIST_EACH(&e->flights, at)
    if (!WP_CONTAINER(at, struct wp_tokens_flight, link)->decided)
        decide(WP_CONTAINER(at, struct wp_tokens_flight, link));
    unless_used(e);
}

const struct wp_tokens_ops wp_tokens_engine_ops = {
    .name = "engine",
    .summary = "asks one of the model's engines (POST /tokenize, as vLLM has it)",
    .create = engine_create,
    .ask = engine_ask,
    .destroy = engine_destroy,
};
