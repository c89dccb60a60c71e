/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/plan.h"

#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

enum { N = 24, BLOCK = 512 };
static const double token_bytes = 327680;

static struct wp_plan_job job(uint32_t tokens, uint32_t hit, double wait_us)
{
    return (struct wp_plan_job){.tokens = tokens,
                                .hit = hit,
                                .block = BLOCK,
                                .wait_us = wait_us,
                                .a_us = 50,
                                .b2_us = 4.15e-4,
                                .bytes_per_token = token_bytes};
}

static void workers(struct wp_worker_view w[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        w[i] = (struct wp_worker_view){
            .link_bytes_per_s = 25e9, .block_size = BLOCK, .profile = wp_profile_default()};
}

static void nothing_to_fetch_is_no_plan(void)
{
    struct wp_worker_view w[3];
    struct wp_ask ask = {.tokens = 8192, .latency_us = 2000};
    struct wp_plan_sources s;
    struct wp_plan p;
    struct wp_plan_job j = job(8192, 0, 0);

    workers(w, 3);
    wp_plan_sources(&s, &ask, w, 3);
    EXPECT_UINT("no source", 0, s.n);
    EXPECT_NEAR("as it is", wp_plan_cost(&j, 0, 0, 0), wp_plan_best(&s, &w[0], &j, 0, &p), 0);
    EXPECT_UINT("no plan", 0, p.n);
    w[1].has_tokens = 4096;
    w[0].link_bytes_per_s = 0;
    wp_plan_sources(&s, &ask, w, 3);
    EXPECT_UINT("one source", 1, s.n);
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_UINT("no link to fetch over", 0, p.n);
    j.hit = 4096;
    (void)wp_plan_best(&s, &w[2], &j, 0, &p);
    EXPECT_UINT("it has as much", 0, p.n);
}

static void a_fast_link_brings_all_and_a_slow_one_what_the_wait_hides(void)
{
    struct wp_worker_view w[2];
    struct wp_ask ask = {.tokens = 16384, .latency_us = 2000};
    struct wp_plan_sources s;
    struct wp_plan p;
    struct wp_plan_job j = job(16384, 0, 0);

    workers(w, 2);
    w[1].has_tokens = 8192;
    wp_plan_sources(&s, &ask, w, 2);
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_UINT("all of it", 8192, p.n ? p.fetch[0].to : 0);
    EXPECT_NEAR("107 ms and latency", 8192 * token_bytes / 25e9 * 1e6 + 2000, p.done_us, 1);
    w[1].link_bytes_per_s = 1e9; /* slower than computing it */
    wp_plan_sources(&s, &ask, w, 2);
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_UINT("nothing", 0, p.n);
    j.wait_us = 600000;
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_UINT("what is there in 0.6 s", 3 * BLOCK, p.n ? p.fetch[0].to : 0);
    EXPECT_TRUE("hidden", p.done_us <= j.wait_us);
    (void)wp_plan_best(&s, &w[0], &j, 1e9, &p);
    EXPECT_UINT("not worth its margin", 0, p.n);
}

static void sources_are_spread_and_a_busy_one_is_passed_over(void)
{
    struct wp_worker_view w[N];
    struct wp_ask ask = {.tokens = 16384, .latency_us = 2000};
    struct wp_plan_sources s;
    struct wp_plan p;
    struct wp_plan_job j = job(16384, 0, 0);
    struct wp_rng r = {.state = 1};
    bool used[N] = {false};
    int n = 0;

    workers(w, N);
    for (int i = 1; i < N; i++)
        w[i].has_tokens = 8192;
    for (int k = 0; k < 400; k++) {
        ask.draw = wp_rng_next(&r);
        wp_plan_sources(&s, &ask, w, N);
        EXPECT_UINT("equals are one", 1, s.n);
        (void)wp_plan_best(&s, &w[0], &j, 0, &p);
        n += !used[p.fetch[0].source];
        used[p.fetch[0].source] = true;
    }
    EXPECT_INT("each of them in turn", N - 1, n);
    w[5].has_tokens = 8704; /* a block more, and a long queue */
    w[5].out_busy_us = 3e6;
    wp_plan_sources(&s, &ask, w, N);
    EXPECT_UINT("two that matter", 2, s.n);
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_TRUE("not the busy one", p.n == 1 && p.fetch[0].source != 5);
}

static void the_pool_goes_on_where_peers_end(void)
{
    struct wp_worker_view w[2];
    struct wp_span span[] = {{0, 512}, {4096, 12288}};
    struct wp_pool pool = {.span = span, .n = 2, .bytes_per_s = 20e9};
    struct wp_ask ask = {.tokens = 16384, .latency_us = 2000, .pool = &pool};
    struct wp_plan_sources s;
    struct wp_plan p;
    struct wp_plan_job j = job(16384, 1024, 0);

    workers(w, 2);
    w[1].has_tokens = 6144;
    wp_plan_sources(&s, &ask, w, 2);
    EXPECT_UINT("together", 12288, s.most);
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_UINT("both", 2, p.n);
    EXPECT_UINT("the peer first", 1, p.fetch[0].source);
    EXPECT_UINT("to its end", 6144, p.fetch[0].to);
    EXPECT_TRUE("then the pool",
                p.fetch[1].source == WP_POOL && p.fetch[1].from == 6144 && p.fetch[1].to == 12288);
    w[1].has_tokens = 0;
    wp_plan_sources(&s, &ask, w, 2);
    j.hit = 5120;
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_TRUE("from the middle of what the pool has",
                p.n == 1 && p.fetch[0].source == WP_POOL && p.fetch[0].from == 5120);
    j.hit = 1024;
    (void)wp_plan_best(&s, &w[0], &j, 0, &p);
    EXPECT_UINT("a hole", 0, p.n);
}

/* Every beginning of every source's run, in whole blocks: none is cheaper. */
static double by_force(const struct wp_ask *ask, const struct wp_worker_view w[], size_t n,
                       size_t to, const struct wp_plan_job *j)
{
    double best = wp_plan_cost(j, j->hit, 0, 0);

    for (size_t i = 0; i < n; i++)
        for (uint32_t end = j->hit + BLOCK; i != to && end <= w[i].has_tokens; end += BLOCK) {
            double rate = fmin(w[i].link_bytes_per_s, w[to].link_bytes_per_s),
                   us = (end - j->hit) * token_bytes / rate * 1e6;
            double done = fmax(w[i].out_busy_us, w[to].in_busy_us) + us + ask->latency_us;

            best = fmin(best, wp_plan_cost(j, end, done, us));
        }
    return best;
}

static void no_other_end_is_better(void)
{
    struct wp_rng r = {.state = 9};
    int fetched = 0;

    for (int k = 0; k < 3000; k++) {
        struct wp_worker_view w[N];
        struct wp_ask ask = {.tokens = 1 + (uint32_t)wp_rng_below(&r, 40000),
                             .latency_us = 2000,
                             .draw = wp_rng_next(&r)};
        struct wp_plan_sources s;
        struct wp_plan p;
        struct wp_plan_job j = job(ask.tokens, 0, wp_rng_exp(&r, 300000));
        size_t n = 2 + wp_rng_below(&r, 3), to = wp_rng_below(&r, n); /* few enough for the front */
        double got, want;

        workers(w, N);
        for (size_t i = 0; i < n; i++) {
            w[i].has_tokens = BLOCK * (uint32_t)wp_rng_below(&r, ask.tokens / BLOCK + 1);
            w[i].out_busy_us = wp_rng_below(&r, 3) ? 0 : wp_rng_exp(&r, 200000);
            w[i].in_busy_us = wp_rng_below(&r, 3) ? 0 : wp_rng_exp(&r, 200000);
            w[i].link_bytes_per_s = wp_rng_below(&r, 4) ? 25e9 : 2e9;
        }
        j.hit = w[to].has_tokens;
        j.link_share = wp_rng_below(&r, 2) ? 0.1 : 0;
        wp_plan_sources(&s, &ask, w, n);
        got = wp_plan_best(&s, &w[to], &j, 0, &p);
        want = by_force(&ask, w, n, to, &j);
        fetched += p.n > 0;
        if (!(got <= want + 1e-6))
            EXPECT_NEAR("as cheap", want, got, 1e-6);
        if (p.n)
            EXPECT_NEAR("what it says", got, wp_plan_cost(&j, p.to, p.done_us, p.moved_us), 1e-6);
    }
    EXPECT_TRUE("it fetched", fetched > 300);
}

static const struct wp_test tests[] = {
    {"nothing to fetch is no plan", nothing_to_fetch_is_no_plan},
    {"a fast link brings all, and a slow one what the wait hides",
     a_fast_link_brings_all_and_a_slow_one_what_the_wait_hides},
    {"sources are spread, and a busy one is passed over",
     sources_are_spread_and_a_busy_one_is_passed_over},
    {"the pool goes on where peers end", the_pool_goes_on_where_peers_end},
    {"no other end is better", no_other_end_is_better},
    {NULL, NULL},
};
const struct wp_suite suite_plan = {"plan", tests};
