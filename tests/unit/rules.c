/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of other projects, by examples that can be reckoned by hand. */
#include "policies/rules.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <string.h>

enum { N = 3 };

static struct wp_policy *made(const char *name, bool pull)
{
    struct wp_policy_conf conf;
    struct wp_policy *p = NULL;
    struct wp_err err = WP_ERR_INIT;

    wp_policy_conf_init(&conf);
    conf.pull = pull;
    conf.sglang_blocks = 4;
    EXPECT_INT(name, 0, wp_policy_create(&p, name, &conf, &err));
    return p;
}

static void views(struct wp_worker_view w[N])
{
    for (size_t i = 0; i < N; i++)
        w[i] = (struct wp_worker_view){.key = i + 1,
                                       .block_size = 512,
                                       .link_bytes_per_s = 25e9,
                                       .correction = 1,
                                       .fresh_blocks = 8};
}

static const uint64_t chain[] = {11, 12, 13, 14, 15, 16, 17, 18};
static const struct wp_ask ask = {.tokens = 4096,
                                  .exact = true,
                                  .chain = chain,
                                  .n_chain = 8,
                                  .chain_tokens = 512,
                                  .latency_us = 2000};

static void dynamo_counts_blocks(void)
{
    struct wp_policy *p = made("dynamo", false);
    struct wp_worker_view w[N];
    struct wp_verdict v[N];

    views(w);
    w[0].prefill_tokens = 2048; /* 4 + 8 blocks, 8 fresh */
    w[1].active_blocks = 10;    /* 8 blocks, 10 + 8 */
    w[2].index_tokens = 3072;   /* 2 blocks, 6 of 8 active beside 5 others */
    w[2].active_blocks = 11;
    w[2].fresh_blocks = 2;
    EXPECT_UINT("the cached one", 2, p->ops->choose(p, &ask, w, N, v));
    EXPECT_NEAR("outstanding", 20, v[0].price, 1e-9);
    EXPECT_NEAR("active", 26, v[1].price, 1e-9);
    EXPECT_NEAR("cached", 15, v[2].price, 1e-9);
    p->ops->destroy(p);
}

static void llmd_adds_up_its_scores(void)
{
    struct wp_policy *p = made("llmd", false);
    struct wp_worker_view w[N];
    struct wp_verdict v[N];

    views(w);
    w[0].waiting = 4; /* 2 x 0.75 + 0 + 1 */
    w[0].index_tokens = 3072;
    w[1].waiting = 2; /* 0 + 0.5 + 0.8 */
    w[1].pinned = 0.2;
    w[2].index_tokens = 1024; /* 2 x 0.25 + 1 + 0.7 */
    w[2].pinned = 0.3;
    EXPECT_UINT("the longest match", 0, p->ops->choose(p, &ask, w, N, v));
    EXPECT_NEAR("short of 4 by", 4 - 2.5, v[0].price, 1e-9);
    EXPECT_NEAR("short of 4 by", 4 - 1.3, v[1].price, 1e-9);
    EXPECT_NEAR("short of 4 by", 4 - 2.2, v[2].price, 1e-9);
    p->ops->destroy(p);
}

static void sglang_goes_back_to_where_it_sent(void)
{
    struct wp_policy *p = made("sglang", false);
    struct wp_worker_view w[N];
    struct wp_verdict v[N];
    struct wp_ask half = ask, other = ask;
    uint64_t others[] = {91, 92, 93};

    views(w);
    w[0].in_flight = 5;
    w[1].in_flight = 9;
    half.n_chain = 4;
    EXPECT_UINT("nothing sent yet: the shortest queue", 2, p->ops->choose(p, &half, w, N, v));
    p->ops->placed(p, &half, &w[1]);
    EXPECT_UINT("half of it is there", 1, p->ops->choose(p, &ask, w, N, v));
    w[1].in_flight = 70;
    EXPECT_UINT("queues are uneven", 2, p->ops->choose(p, &ask, w, N, v));
    w[0].in_flight = w[2].in_flight = 69;
    EXPECT_UINT("but not by much", 1, p->ops->choose(p, &ask, w, N, v));
    other.chain = others;
    other.n_chain = 3;
    p->ops->placed(p, &other,
                   &w[1]); /* four blocks are remembered: the head of the first alone stays */
    w[2].in_flight = 1;
    EXPECT_UINT("an eighth is not enough", 2, p->ops->choose(p, &ask, w, N, v));
    other.chain = NULL;
    other.n_chain = 0;
    EXPECT_UINT("no names", 2, p->ops->choose(p, &other, w, N, v));
    p->ops->placed(p, &other, &w[1]);
    p->ops->destroy(p);
    EXPECT_INT("nothing leaks", 0, wp_mem_live());
}

static void sglang_forgets_when_memory_runs_out(void)
{
    for (long nth = 0;; nth++) {
        struct wp_policy *p = made("sglang", false);
        struct wp_worker_view w[N];
        struct wp_verdict v[N];
        bool failed;

        views(w);
        wp_mem_fail_after(nth);
        for (size_t i = 0; i < N; i++)
            p->ops->placed(p, &ask, &w[i]);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_TRUE("chooses on", p->ops->choose(p, &ask, w, N, v) < N);
        p->ops->destroy(p);
        EXPECT_INT("nothing leaks", 0, wp_mem_live());
        if (!failed)
            break;
    }
}

static void preble_explores_what_it_cannot_exploit(void)
{
    struct wp_policy *p = made("preble", false);
    struct wp_worker_view w[N];
    struct wp_verdict v[N];
    struct wp_ask later = ask;

    views(w);
    w[1].index_tokens = 3072;
    EXPECT_UINT("more cached than not", 1, p->ops->choose(p, &ask, w, N, v));
    for (int i = 0; i < 200; i++)
        p->ops->placed(p, &ask, &w[1]);
    EXPECT_TRUE("overloaded", p->ops->choose(p, &ask, w, N, v) != 1);
    later.now_us = 3600000000;
    EXPECT_UINT("an hour later it is not", 1, p->ops->choose(p, &later, w, N, v));
    w[1].index_tokens = 2048;
    w[0].index_tokens = 1024;
    later.now_us = 0;
    EXPECT_UINT("half is not more: least load and prefill", 0, p->ops->choose(p, &later, w, N, v));
    p->ops->destroy(p);
    EXPECT_INT("nothing leaks", 0, wp_mem_live());
}

static void the_conductor_moves_long_matches(void)
{
    struct wp_policy *p = made("conductor", false);
    struct wp_worker_view w[N];
    struct wp_verdict v[N];
    const struct wp_profile *d = wp_profile_default();

    views(w);
    w[0].index_tokens = w[0].has_tokens = 4096;
    w[0].wait_us = 500000;
    w[1].index_tokens = w[1].has_tokens = 3072;
    w[1].wait_us = 300000;
    EXPECT_UINT("the idle one fetches", 2, p->ops->choose(p, &ask, w, N, v));
    EXPECT_UINT("one transfer", 1, v[2].n_fetch);
    EXPECT_UINT("from the longest", 0, v[2].fetch[0].source);
    EXPECT_UINT("all of it", 4096, v[2].fetch[0].to - v[2].fetch[0].from);
    EXPECT_NEAR("at the link's pace",
                2000 + 1e6 * 4096 * 327680.0 / 25e9 + wp_prefill_us(d, 4095, 4096), v[2].price, 1);
    EXPECT_UINT("a match of three quarters is kept", 0, v[1].n_fetch);
    EXPECT_NEAR("and computed from; the queue is work, as if nobody decoded",
                300000 / wp_slow_down(d, 0, 0) + wp_prefill_us(d, 3072, 4096), v[1].price, 1);
    EXPECT_NEAR("the prediction is not", 300000 + wp_prefill_us(d, 3072, 4096), v[1].ttft_us, 1);
    w[1].decoding = 100;
    w[1].kv_tokens = 1000000;
    p->ops->choose(p, &ask, w, N, v);
    EXPECT_NEAR("nor beside others who decode",
                300000 / wp_slow_down(d, 100, 1000000) + wp_prefill_us(d, 3072, 4096), v[1].price,
                1);
    w[2].link_bytes_per_s = 0;
    p->ops->choose(p, &ask, w, N, v);
    EXPECT_UINT("without a link nothing moves", 0, v[2].n_fetch);
    p->ops->destroy(p);
}

static void pull_fetches_whatever_there_is(void)
{
    struct wp_policy *p = made("round_robin", true);
    struct wp_span span[] = {{512, 1024}, {2048, 3584}};
    struct wp_pool pool = {span, 2, 0, 20e9};
    struct wp_worker_view w[N];
    struct wp_verdict v[N];
    struct wp_ask with = ask;

    views(w);
    with.pool = &pool;
    w[1].has_tokens = w[1].index_tokens = 2048;
    w[2].has_tokens = w[2].index_tokens = 2560;
    EXPECT_TEXT("its name", "round_robin", wp_str_of(p->ops->name));
    EXPECT_UINT("in turn", 0, p->ops->choose(p, &with, w, N, v));
    EXPECT_UINT("a peer and the pool", 2, v[0].n_fetch);
    EXPECT_UINT("the longest", 2, v[0].fetch[0].source);
    EXPECT_UINT("up to its end", 2560, v[0].fetch[0].to);
    EXPECT_UINT("the pool", WP_POOL, v[0].fetch[1].source);
    EXPECT_UINT("what is beyond", 3584 - 2560, v[0].fetch[1].to - v[0].fetch[1].from);
    p->ops->placed(p, &with, &w[0]);
    EXPECT_UINT("the next", 1, p->ops->choose(p, &with, w, N, v));
    EXPECT_UINT("only what it has not", 512, v[1].fetch[0].to - v[1].fetch[0].from);
    EXPECT_UINT("nobody", WP_NO_WORKER, p->ops->choose(p, &with, w, 0, v));
    p->ops->destroy(p);
    EXPECT_INT("nothing leaks", 0, wp_mem_live());
}

static void least_work_is_the_shortest_wait(void)
{
    struct wp_policy *p = made("least_work", false);
    struct wp_worker_view w[N];
    struct wp_verdict v[N];

    views(w);
    w[0].wait_us = 3;
    w[1].wait_us = 2;
    w[2].wait_us = 5;
    w[1].in_flight = 100;
    EXPECT_UINT("whoever has how many", 1, p->ops->choose(p, &ask, w, N, v));
    p->ops->destroy(p);
}

#define TEST(f, name) \
    {                 \
        name, f       \
    }
const struct wp_suite suite_rules = {
    "rules",
    (const struct wp_test[]){
        /* clang-format off */
        TEST(dynamo_counts_blocks, "dynamo counts blocks"),
        TEST(llmd_adds_up_its_scores, "llmd adds up its scores"),
        TEST(sglang_goes_back_to_where_it_sent, "sglang goes back to where it sent"),
        TEST(sglang_forgets_when_memory_runs_out, "sglang forgets when memory runs out"),
        TEST(preble_explores_what_it_cannot_exploit, "preble explores what it cannot exploit"),
        TEST(the_conductor_moves_long_matches, "the conductor moves long matches"),
        TEST(pull_fetches_whatever_there_is, "pull fetches whatever there is"),
        TEST(least_work_is_the_shortest_wait, "least_work is the shortest wait"),
        {NULL, NULL},
        /* clang-format on */
    },
};
