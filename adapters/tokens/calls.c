/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/tokens/flight.h"

#include "adapters/tokens/question.h"

#include <stdio.h>

enum { CALL_US = 1000000, REST_LACKS_US = 30000000, REST_TROUBLE_US = 1000000 };

static const struct wp_call_ops call_ops;

void wp_flight_slow(const struct attempt *a)
{
    struct engine *e = a->flight->engine;

    if (a->call)
        wp_rest(&e->rests, a->key, wp_loop_now_us(e->loop) + REST_TROUBLE_US, false);
}

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
    struct wp_field field[2] = {{WP_STR("content-type"), WP_STR("application/json")},
                                {WP_STR("authorization"), {0}}};
    struct wp_call_spec spec = {
        .host = w->host,
        .port = w->port,
        .tls = w->tls,
        .method = WP_STR("POST"),
        .field = field,
        .n_fields = 1,
        .body = a->flight->question,
        .connect_us = CALL_US,
        .total_us = CALL_US +
                    wp_tokens_limit_us(&e->pub.conf, e->pub.conf.limit_us, a->flight->question->n),
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

enum wp_tokens_result wp_flight_call(struct wp_tokens_flight *f)
{
    struct engine *e = f->engine;
    struct attempt *a = &f->attempt[f->tried];
    struct wp_tokens_worker w = {0};

    if (f->tried == CALLS_MAX || !pick(f, &w))
        return WP_TOKENS_NOBODY;
    *a = (struct attempt){
        .flight = f, .who = w.who, .key = w.key, .page.max = wp_tokens_answer_max(f->question->n)};
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
    return r == WP_TOKENS_NO_MEMORY ||
           (r == WP_TOKENS_REFUSED && (a->status == 400 || a->status == 413 || a->status == 422));
}

static void on_over(struct wp_call *c, int rc)
{
    struct attempt *a = c->user;
    struct wp_tokens_flight *f = a->flight;
    struct wp_tokens_conf *conf = &f->engine->pub.conf;
    enum wp_tokens_result r = WP_TOKENS_CANCELED;
    struct wp_blob *tokens = NULL;

    a->call = NULL;
    if (!f->decided)
        r = judge(a, rc, &tokens);
    wp_buf_fini(&a->page);
    conf->drop(conf->arg, a->who);
    wp_flight_over(f, r, hopeless(a, r), tokens);
    wp_blob_unref(tokens);
}

static const struct wp_call_ops call_ops = {
    .on_head = on_head, .on_body = on_body, .on_over = on_over};
