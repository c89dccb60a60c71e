/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/policy.c - what one choose() costs, for each policy and for fleets of three sizes.
 *     make build/bench/policy && build/bench/policy
 * The prompt is 8,000 tokens; hits, waits and loads differ between workers.  Best of five rounds.
 * Then plan and choice together, of price: 256 workers with links, prompts of up to 512 blocks of
 * 512 tokens that others have in part, a pool, tuned room; a new fleet each 64 decisions.  p50 and
 * p99 of single decisions.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "policies/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 1024, ROUNDS = 5 };

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void fleet(struct wp_worker_view w[], size_t n, struct wp_rng *r)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t hit = 512 * (uint32_t)wp_rng_below(r, 8), cpu = hit / 4;

        w[i] = (struct wp_worker_view){.key = wp_rng_next(r),
                                       .in_flight = (uint32_t)wp_rng_below(r, 30),
                                       .decoding = (uint32_t)wp_rng_below(r, 20),
                                       .kv_tokens = wp_rng_below(r, 100000),
                                       .wait_us = wp_rng_exp(r, 300000),
                                       .hit_tokens = hit,
                                       .hit_tier = {hit - cpu, cpu},
                                       .block_size = 16,
                                       .profile = wp_profile_default(),
                                       .correction = 1};
    }
}

static double cost_ns(struct wp_policy *p, const struct wp_worker_view w[], size_t n,
                      struct wp_verdict v[], struct wp_rng *r)
{
    const int calls = (int)(400000 / n) + 100;
    double best = 1e18;
    volatile size_t sink = 0;

    for (int k = 0; k < ROUNDS; k++) {
        double t = now_ns();

        for (int i = 0; i < calls; i++) {
            struct wp_ask ask = {.draw = wp_rng_next(r), .tokens = 8000, .prefix_key = 1};

            ask.prefix_key += ask.draw;
            sink += p->ops->choose(p, &ask, w, n, v);
        }
        t = (now_ns() - t) / calls;
        best = t < best ? t : best;
    }
    (void)sink;
    return best;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Some have nothing, some a part, some nearly all. */
static void links(struct wp_worker_view w[], size_t n, uint32_t tokens, struct wp_rng *r)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t part = wp_rng_below(r, 4) ? 0 : (uint32_t)wp_rng_below(r, tokens / 512) * 512,
                 cpu = part / 3;

        w[i].has_tokens = w[i].hit_tokens = part;
        w[i].hit_tier[0] = part - cpu;
        w[i].hit_tier[1] = cpu;
        w[i].block_size = 512;
        w[i].link_bytes_per_s = 25e9;
        w[i].in_busy_us = wp_rng_below(r, 3) ? 0 : wp_rng_exp(r, 200000);
        w[i].out_busy_us = wp_rng_below(r, 3) ? 0 : wp_rng_exp(r, 200000);
        w[i].pinned = 0.7;
        w[i].fresh_blocks = tokens / 512;
    }
}

static void plans(struct wp_policy *p, struct wp_worker_view w[], struct wp_verdict v[],
                  struct wp_rng *r)
{
    enum { WORKERS = 256, CALLS = 20000 };
    static double ns[CALLS];
    struct wp_span span[] = {{0, 4096}, {8192, 512 * 512}};
    struct wp_pool pool = {.span = span, .n = 2, .bytes_per_s = 20e9};
    size_t fetched = 0;

    fleet(w, WORKERS, r);
    for (int i = 0; i < CALLS; i++) {
        struct wp_ask ask = {.draw = wp_rng_next(r),
                             .tokens = 512 * (256 + (uint32_t)wp_rng_below(r, 257)),
                             .latency_us = 2000,
                             .pool = i & 1 ? &pool : NULL,
                             .room = {.tuned = true, .block_us = 3000, .delays = 0.5}};
        size_t at;
        double t;

        if (i % 64 == 0)
            links(w, WORKERS, 512 * 512, r);
        t = now_ns();
        at = p->ops->choose(p, &ask, w, WORKERS, v);
        ns[i] = now_ns() - t;
        fetched += v[at].n_fetch > 0;
    }
    qsort(ns, CALLS, sizeof ns[0], by_size);
    printf("\nplan and choice, 256 workers, 512 blocks: p50 %.1f us, p99 %.1f us; %zu %% of them "
           "fetch\n",
           ns[CALLS / 2] / 1e3, ns[CALLS / 100 * 99] / 1e3, 100 * fetched / CALLS);
}

int main(void)
{
    static const size_t sizes[] = {16, 256, 1024};
    struct wp_worker_view *w = wp_calloc(MOST, sizeof *w);
    struct wp_verdict *v = wp_calloc(MOST, sizeof *v);
    struct wp_rng r = {.state = 1};
    struct wp_policy_conf conf;
    struct wp_err err = WP_ERR_INIT;

    if (!w || !v)
        return 1;
    fleet(w, MOST, &r);
    wp_policy_conf_init(&conf);
    printf("one choose(), ns      16 workers     256    1024\n");
    for (size_t i = 0; wp_policies[i]; i++) {
        struct wp_policy *p;

        if (wp_policy_create(&p, wp_policies[i]->name, &conf, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        printf("%-20s", wp_policies[i]->name);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            printf("%*.0f", k ? 8 : 12, cost_ns(p, w, sizes[k], v, &r));
        printf("\n");
        p->ops->destroy(p);
    }
    {
        struct wp_policy *p;

        if (wp_policy_create(&p, "price", &conf, &err) < 0)
            return 1;
        plans(p, w, v, &r);
        p->ops->destroy(p);
    }
    wp_free(w);
    wp_free(v);
    return 0;
}
