/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The tokenizer that asks an engine.  A *flight* is one question under way: those who wait for it, and at most two
 * calls (calls.c).
 *
 *   ask --> cache hit: answered at once
 *     |---> an equal flight: one more waits for it
 *     +---> a new flight, one call --- silent for hedge_us, or failed ---> a second call, to another worker
 *
 *   the first good answer   into the cache, to all who wait; the other call is cancelled
 *   no call is left         all who wait get the reason of the last
 *   a waiter's limit        it gets LATE; was it the last, the flight goes on alone, for the cache: an orphan, of which
 *                           there are few, and their calls end soon
 *   the last one cancels    so are the calls
 *   destroy                 the calls are cancelled; with the last of each flight its waiters get CANCELED
 *
 * A flight that is decided is out of the map, so nobody joins it any more, and it is freed when its last call is over.
 * Callbacks of waiters may do anything, even destroy the tokenizer: it lives as long as a flight does, and a flight
 * until it has told all.
 */
/* clang-format on */
#include "adapters/tokens/flight.h"

#include "adapters/tokens/question.h"

enum { ORPHANS_MAX = 32 };

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

static void finish(struct wp_tokens_flight *f, enum wp_tokens_result r, struct wp_blob *tokens)
{
    if (r == WP_TOKENS_HEDGED)
        wp_flight_slow(&f->attempt[0]);
    decide(f);
    if (tokens)
        wp_tokens_cache_put(&f->engine->cache, &f->key, tokens);
    tell_all(f, r, tokens);
    if (f->open == 0)
        flight_free(f);
}

/* A fleet that is slow as a whole is not helped by twice the questions: hedges are a tenth of them,
 * and the first ten are free. */
static bool may_hedge(struct engine *e)
{
    if (e->questions > 10000) { /* old times fade */
        e->questions /= 2;
        e->hedges /= 2;
    }
    if (e->hedges >= 10 + e->questions / 10)
        return false;
    e->hedges++;
    return true;
}

static void on_hedge(struct wp_timer *t)
{
    struct wp_tokens_flight *f = t->arg;

    if (may_hedge(f->engine))
        wp_flight_call(f); /* without a second one the first goes on alone */
}

void wp_flight_over(struct wp_tokens_flight *f, enum wp_tokens_result r, bool hopeless,
                    struct wp_blob *tokens)
{
    f->open--;
    if (f->decided) {
        if (f->open == 0) {
            tell_all(f, WP_TOKENS_CANCELED, NULL);
            flight_free(f);
        }
        return;
    }
    if (tokens) {
        finish(f, r, tokens);
        return;
    }
    if (!hopeless && !wp_list_empty(&f->waiters)) {
        wp_timer_stop(f->engine->loop, &f->hedge);
        wp_flight_call(f);
    }
    if (f->open == 0)
        finish(f, r, NULL);
}

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
        wp_flight_slow(&f->attempt[i]);
    wp_list_del(&w->link);
    w->flight = NULL;
    left(f, true);
    wp_count(e->pub.count[WP_TOKENS_LATE], 1);
    w->fn(w, WP_TOKENS_LATE, NULL);
}

static enum wp_tokens_result wait_for(struct wp_tokens_flight *f, struct wp_tokens_wait *w,
                                      wp_tokens_fn fn, bool joined)
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
    wp_timer_in(e->loop, &w->timer,
                wp_tokens_limit_us(&e->pub.conf, e->pub.conf.limit_us, f->question->n));
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
static enum wp_tokens_result take_off(struct engine *e, const struct wp_tokens_key *key,
                                      struct wp_blob *question, struct wp_str model,
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
    r = wp_map_put(&e->by_key, key->low, (uintptr_t)f) < 0 ? WP_TOKENS_NO_MEMORY
                                                           : wp_flight_call(f);
    if (r) {
        take_out(f);
        flight_free(f);
        return r;
    }
    e->questions++;
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

static enum wp_tokens_result engine_ask(struct wp_tokens *t, const struct wp_tokens_prompt *p,
                                        struct wp_tokens_wait *w, wp_tokens_fn fn,
                                        struct wp_blob **now)
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

static int engine_create(struct wp_tokens **out, const struct wp_tokens_conf *conf,
                         struct wp_err *err)
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

static size_t engine_limit(struct wp_tokens *t, size_t bytes)
{
    struct engine *e = (struct engine *)t;

    wp_tokens_cache_limit(&e->cache, bytes < t->conf.cache_bytes ? bytes : t->conf.cache_bytes);
    return e->cache.bytes;
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
    .limit = engine_limit,
    .destroy = engine_destroy,
};
