/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/preble.c - Preble's E2, exploit or explore: the worker with the longest match when more
 * of the prompt is cached there than is not and it is not overloaded; else the one with the least
 * load, what this prompt would add there included. Load is the work sent there, prefill and decode
 * in seconds, which fades within window_s; overloaded is who has more than `overload` times the
 * least plus 5 s.  Of the output it is told what the request may make at most (max_tokens; in
 * replay the true length), else it takes 256. Source: Srivatsa et al., "Preble: Efficient
 * Distributed Prompt Scheduling for LLM Serving", ICLR 2025, arXiv:2407.00023 (E2), without its
 * moving of hot prefixes; the fading window and the margin are the laboratory's.
 */
#include "policies/rules.h"

#include "base/map.h"
#include "base/mem.h"

#include <math.h>

enum { OUTPUT = 256, WORKERS_MAX = 4096 };
static const double margin_s = 5;

struct sent { /* to one worker */
    double load_s;
    uint64_t as_of_us;
};

struct preble {
    struct wp_policy base;
    struct wp_policy_conf conf;
    struct wp_map row; /* a worker's key -> its row */
    struct sent *sent;
    size_t n, cap;
};

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    struct preble *p = wp_calloc(1, sizeof *p);

    if (!p)
        return wp_fail(err, WP_ENOMEM, "policy preble: out of memory");
    p->base.ops = &wp_policy_preble;
    p->conf = *conf;
    *out = &p->base;
    return 0;
}

static void destroy(struct wp_policy *policy)
{
    struct preble *p = (struct preble *)policy;

    if (!p)
        return;
    wp_map_fini(&p->row);
    wp_free(p->sent);
    wp_free(p);
}

static double load_s(const struct preble *p, const struct wp_worker_view *w, uint64_t now_us)
{
    uint64_t row;
    const struct sent *s;

    if (!wp_map_get(&p->row, w->key, &row))
        return 0;
    s = &p->sent[row];
    return now_us > s->as_of_us
               ? s->load_s * exp(-1e-6 * (double)(now_us - s->as_of_us) / p->conf.preble_window_s)
               : s->load_s;
}

/* Prefill of what is not cached, and the tokens of the answer in a batch of those that decode
 * there. */
static double work_s(const struct wp_ask *ask, const struct wp_worker_view *w)
{
    const struct wp_profile *p = wp_view_profile(w);
    double output = ask->max_tokens ? ask->max_tokens : OUTPUT;

    return 1e-6 * (wp_prefill_us(p, wp_rule_cached(ask, w), ask->tokens) +
                   output * (p->e_us + p->d_us * ask->tokens));
}

static size_t choose(struct wp_policy *policy, const struct wp_ask *ask,
                     const struct wp_worker_view w[], size_t n, struct wp_verdict v[])
{
    const struct preble *p = (const struct preble *)policy;
    struct wp_policy_plain plain = {.conf = p->conf};
    double least = INFINITY, load;
    uint32_t longest = 0, hit;
    size_t at = WP_NO_WORKER;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    for (size_t i = 0; i < n; i++) {
        load = load_s(p, &w[i], ask->now_us);
        v[i].price = v[i].term[WP_TERM_SCORE] = load + work_s(ask, &w[i]);
        least = fmin(least, load);
    }
    for (size_t i = 0; i < n; i++) {
        hit = wp_rule_cached(ask, &w[i]);
        if (hit > longest || (hit == longest && at != WP_NO_WORKER && v[i].price < v[at].price)) {
            longest = hit;
            at = i;
        }
    }
    if (at == WP_NO_WORKER || 2 * (uint64_t)longest <= ask->tokens ||
        load_s(p, &w[at], ask->now_us) > p->conf.preble_overload * least + margin_s)
        at = wp_rule_lowest(ask, v, n);
    wp_predict_chosen(&plain, ask, &w[at], &v[at]);
    return at;
}

static struct sent *sent_to(struct preble *p, uint64_t key)
{
    uint64_t row;

    if (wp_map_get(&p->row, key, &row))
        return &p->sent[row];
    if (p->n == WORKERS_MAX) { /* they come and go: all start again */
        wp_map_fini(&p->row);
        p->n = 0;
    }
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 16;
        struct sent *more = wp_realloc(p->sent, cap * sizeof *more);

        if (!more)
            return NULL;
        p->sent = more;
        p->cap = cap;
    }
    if (wp_map_put(&p->row, key, p->n) < 0)
        return NULL;
    p->sent[p->n] = (struct sent){0};
    return &p->sent[p->n++];
}

static void placed(struct wp_policy *policy, const struct wp_ask *ask,
                   const struct wp_worker_view *w)
{
    struct preble *p = (struct preble *)policy;
    double before = load_s(p, w, ask->now_us);
    struct sent *s = sent_to(p, w->key);

    if (!s)
        return;
    s->load_s = before + work_s(ask, w);
    s->as_of_us = ask->now_us > s->as_of_us ? ask->now_us : s->as_of_us;
}

const struct wp_policy_ops wp_policy_preble = {
    .name = "preble",
    .summary = "Preble's E2: the longest match, or the least load sent of late",
    .create = create,
    .choose = choose,
    .placed = placed,
    .destroy = destroy,
};
