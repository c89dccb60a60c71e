/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cluster.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sim/plays.h"
#include "tests/lib/test.h"

#include <math.h>

enum { BLOCK = 512, PLAYS = 64, IDS = 64 };

/* What a fleet has told. */
struct told {
    struct wp_outcome end[PLAYS];
    size_t ends, firsts, states;
    uint64_t first_us[PLAYS];
    long held[WP_CLUSTER_WORKERS_MAX + 1][3];
    uint64_t last_block_us, last_state_us, backwards;
    struct wp_cluster_state state;
};

struct rig {
    struct wp_cluster *c;
    struct told told;
    struct wp_play play[PLAYS];
    uint64_t id[PLAYS][IDS];
};

static void on_block(void *arg, uint64_t at_us, size_t worker, uint8_t tier, bool stored,
                     uint64_t id)
{
    struct told *t = &((struct rig *)arg)->told;

    (void)id;
    t->held[worker][tier] += stored ? 1 : -1;
    t->backwards += at_us < t->last_block_us;
    t->last_block_us = at_us;
}

static void on_state(void *arg, uint64_t at_us, size_t worker, const struct wp_cluster_state *s)
{
    struct told *t = &((struct rig *)arg)->told;

    if (worker == 0)
        t->state = *s;
    t->last_state_us = at_us;
    t->states++;
}

static void on_first(void *arg, uint64_t at_us, size_t worker, const struct wp_play *p)
{
    struct rig *r = arg;

    (void)worker;
    r->told.first_us[p - r->play] = at_us;
    r->told.firsts++;
}

static void on_end(void *arg, uint64_t at_us, size_t worker, const struct wp_outcome *o)
{
    struct rig *r = arg;

    (void)at_us;
    (void)worker;
    r->told.end[o->play - r->play] = *o;
    r->told.ends++;
}

static const struct wp_cluster_ops ops = {on_block, on_state, on_first, on_end, NULL};

static struct wp_cluster_conf conf(size_t workers)
{
    return (struct wp_cluster_conf){
        .workers = workers,
        .engine = {.profile = *wp_profile_default(),
                   .block_size = BLOCK,
                   .tier_blocks = {100, 100, 0}},
        .link_bytes_per_s = 25e9,
        .link_setup_us = 2000,
        .store_bytes_per_s = 20e9,
    };
}

static struct rig *start(const struct wp_cluster_conf *c)
{
    struct rig *r = wp_calloc(1, sizeof *r);
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0, wp_cluster_create(&r->c, c, &ops, r, &err));
    return r;
}

static void stop(struct rig *r)
{
    wp_cluster_destroy(r->c);
    wp_free(r);
}

/* Request i: a prompt of the line `prompt`, so many tokens. */
static void place(struct rig *r, size_t i, uint64_t prompt, uint32_t tokens, uint32_t output,
                  size_t worker, const struct wp_move move[], size_t n)
{
    struct wp_err err = WP_ERR_INIT;

    for (uint64_t k = 0; k < IDS; k++)
        r->id[i][k] = prompt << 32 | k;
    r->play[i] = (struct wp_play){
        .input = tokens, .output = output, .n_ids = (tokens + BLOCK - 1) / BLOCK, .id = r->id[i]};
    EXPECT_INT("place", 0, wp_cluster_place(r->c, &r->play[i], worker, move, n, &err));
}

static void run(struct rig *r, uint64_t until_us)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("run", 0, wp_cluster_run(r->c, until_us, &err));
}

static const double block_bytes = 512.0 * 327680;

static double link_us(double blocks)
{
    return 2000 + 1e6 * blocks * block_bytes / 25e9;
}

static double up_us(double blocks) /* from DRAM to the GPU */
{
    return 1e6 * blocks * block_bytes / 100e9;
}

/* The last step alone: one token computed, the weights read. */
static const double last_us = 2000 + 7500;

static void a_fetched_prompt_takes_the_links_time(void)
{
    struct wp_cluster_conf c = conf(2);
    struct rig *r = start(&c);
    struct wp_move all = {0, 0, 16};
    uint64_t at;
    struct wp_cluster_stats s;

    place(r, 0, 1, 8192, 1, 0, NULL, 0);
    run(r, 10000000);
    at = 10000000;
    place(r, 1, 1, 8192, 1, 1, &all, 1);
    run(r, UINT64_MAX);
    EXPECT_NEAR("first token", link_us(16) + up_us(16) + last_us,
                (double)(r->told.first_us[1] - at), 20);
    EXPECT_UINT("all but the last token was fetched", 8191, r->told.end[1].fetched);
    EXPECT_UINT("and is no hit in DRAM", 0, r->told.end[1].cpu);
    EXPECT_UINT("bytes", 16ull * 512 * 327680, r->told.end[1].bytes_fetched);
    EXPECT_INT("they stay in DRAM", 16, r->told.held[1][1]);
    wp_cluster_stats(r->c, &s);
    EXPECT_UINT("at rest", 0, s.in_flight);
    stop(r);
}

static void a_link_carries_one_transfer_after_another(void)
{
    struct wp_cluster_conf c = conf(4);
    struct rig *r = start(&c);
    struct wp_move from_0 = {0, 0, 16}, halves[2] = {{0, 0, 8}, {3, 8, 16}};

    place(r, 0, 1, 8192, 1, 0, NULL, 0);
    place(r, 1, 1, 8192, 1, 3, NULL, 0);
    run(r, 10000000);
    place(r, 2, 1, 8192, 1, 1, &from_0, 1);
    place(r, 3, 1, 8192, 1, 2, &from_0, 1);
    run(r, 20000000);
    EXPECT_NEAR("the first", link_us(16) + up_us(16) + last_us, (double)r->told.first_us[2] - 1e7,
                20);
    EXPECT_NEAR("the second waits for the source", link_us(32) + up_us(16) + last_us,
                (double)r->told.first_us[3] - 1e7, 20);
    stop(r);

    r = start(&c);
    place(r, 0, 1, 8192, 1, 0, NULL, 0);
    place(r, 1, 1, 8192, 1, 3, NULL, 0);
    run(r, 10000000);
    place(r, 2, 1, 8192, 1, 1, halves, 2);
    run(r, 20000000);
    EXPECT_NEAR("two sources wait for one way in", link_us(16) + up_us(16) + last_us,
                (double)r->told.first_us[2] - 1e7, 20);
    EXPECT_UINT("both count", 8191, r->told.end[2].fetched);
    stop(r);
}

static void others_pass_a_request_that_waits_for_its_blocks(void)
{
    struct wp_cluster_conf c = conf(2);
    struct rig *r = start(&c);
    struct wp_move all = {0, 0, 60};

    place(r, 0, 1, 30720, 1, 0, NULL, 0);
    run(r, 10000000);
    place(r, 1, 1, 30720, 1, 1, &all, 1);
    place(r, 2, 2, 512, 1, 1, NULL, 0);
    run(r, UINT64_MAX);
    EXPECT_TRUE("the later one is first", r->told.first_us[2] < r->told.first_us[1]);
    EXPECT_NEAR("at once", 2000 + 50 * 512 + 8.3e-4 * 512 * 256, (double)r->told.first_us[2] - 1e7,
                5);
    stop(r);
}

static void what_the_source_has_lost_is_skipped(void)
{
    struct wp_cluster_conf c = conf(2);
    struct rig *r = start(&c);
    struct wp_move moves[] = {{0, 0, 16}, {1, 0, 16}, {7, 0, 16}, {0, 3, 3}, {0, 0, 999}};
    struct wp_cluster_stats s;

    place(r, 0, 1, 4096, 1, 0, NULL, 0);
    run(r, 10000000);
    place(r, 1, 1, 8192, 1, 1, moves, 5);
    run(r, UINT64_MAX);
    wp_cluster_stats(r->c, &s);
    EXPECT_UINT("skipped", 8, s.blocks_skipped);
    EXPECT_UINT(
        "one transfer, for from itself, from nobody, of nothing and beyond the prompt are none", 1,
        s.transfers);
    EXPECT_UINT("what was there", 4096, r->told.end[1].fetched);
    EXPECT_UINT("bytes", 8ull * 512 * 327680, r->told.end[1].bytes_fetched);
    stop(r);
}

static void the_store_takes_what_dram_lets_go_and_gives_it_back(void)
{
    struct wp_cluster_conf c = conf(2);
    struct rig *r;
    struct wp_move all = {2, 0, 16};
    uint64_t at = 200000000;

    c.engine.tier_blocks[0] = 20;
    c.engine.tier_blocks[1] = 20;
    c.store_blocks = 30;
    r = start(&c);
    for (size_t i = 0; i < 4; i++) {
        place(r, i, i + 1, 8192, 1, 0, NULL, 0);
        run(r, (i + 1) * 10000000);
    }
    EXPECT_INT("gpu, beside what the last one reserved", 19, r->told.held[0][0]);
    EXPECT_INT("cpu", 20, r->told.held[0][1]);
    EXPECT_INT("store", 4 * 16 - 19 - 20, r->told.held[2][0]);
    run(r, at);
    place(r, 10, 1, 8192, 1, 1, &all, 1);
    run(r, UINT64_MAX);
    EXPECT_UINT("from the store", 8191, r->told.end[10].fetched);
    EXPECT_NEAR("at its own pace", 2000 + 1e6 * 16 * block_bytes / 20e9 + up_us(16) + last_us,
                (double)(r->told.first_us[10] - at), 20);
    stop(r);
}

static void a_router_is_told_late(void)
{
    struct wp_cluster_conf c = conf(1);
    struct rig *r;

    c.stale_us = 500000;
    r = start(&c);
    place(r, 0, 1, 512, 1, 0, NULL, 0);
    run(r, 400000);
    EXPECT_UINT("the first token is seen at once", 1, r->told.firsts);
    EXPECT_INT("its block is not", 0, r->told.held[0][0]);
    EXPECT_UINT("nor is the state", 0, r->told.states);
    run(r, 500000);
    EXPECT_UINT("the dispatch", 1, r->told.states);
    EXPECT_UINT("with what it brought", 512, r->told.state.prefill_tokens);
    run(r, UINT64_MAX);
    EXPECT_INT("then it is", 1, r->told.held[0][0]);
    EXPECT_UINT("nothing is left to do", 0, r->told.state.prefill_tokens);
    EXPECT_UINT("nobody is there", 0, r->told.state.in_flight);
    EXPECT_NEAR("as of its time", 27700, (double)r->told.last_state_us, 500);
    stop(r);
}

static void a_state_says_what_is_to_be_done(void)
{
    struct wp_cluster_conf c = conf(1);
    struct rig *r = start(&c);

    place(r, 0, 1, 8192, 100, 0, NULL, 0);
    place(r, 1, 2, 4096, 100, 0, NULL, 0);
    run(r, 0);
    EXPECT_UINT("tokens", 12288, r->told.state.prefill_tokens);
    EXPECT_NEAR("cost",
                wp_prefill_us(wp_profile_default(), 0, 8192) +
                    wp_prefill_us(wp_profile_default(), 0, 4096),
                r->told.state.prefill_us, 1);
    run(r, 1000000);
    EXPECT_UINT("both decode", 2, r->told.state.decoding);
    EXPECT_UINT("nothing to prefill", 0, r->told.state.prefill_tokens);
    EXPECT_UINT("pinned", 17 + 9, r->told.state.pinned);
    place(r, 2, 1, 8192, 1, 0, NULL, 0);
    run(r, 1000000);
    EXPECT_UINT("what is cached is no work", 1, r->told.state.prefill_tokens);
    run(r, UINT64_MAX);
    EXPECT_UINT("at rest", 0,
                r->told.state.prefill_tokens + r->told.state.in_flight + r->told.state.kv_tokens);
    stop(r);
}

/* Any load ends, twice alike, and nothing is told out of order. */
static uint64_t random_run(uint64_t seed, uint64_t stale_us)
{
    struct wp_cluster_conf c = conf(5);
    struct rig *r;
    struct wp_rng rng = {seed};
    uint64_t at = 0, sum = 0;

    c.engine.tier_blocks[0] = 60;
    c.engine.tier_blocks[1] = 50;
    c.store_blocks = 40;
    c.stale_us = stale_us;
    r = start(&c);
    for (size_t i = 0; i < PLAYS; i++) {
        struct wp_move move[3];
        size_t n = wp_rng_below(&rng, 4);

        for (size_t k = 0; k < n; k++) {
            move[k].src = (uint32_t)wp_rng_below(&rng, 7);
            move[k].from = (uint32_t)wp_rng_below(&rng, 20);
            move[k].to = move[k].from + (uint32_t)wp_rng_below(&rng, 20);
        }
        run(r, at += wp_rng_below(&rng, 500000));
        place(r, i, wp_rng_below(&rng, 9), 1 + (uint32_t)wp_rng_below(&rng, 20000),
              1 + (uint32_t)wp_rng_below(&rng, 200), (size_t)wp_rng_below(&rng, 5), move, n);
    }
    run(r, UINT64_MAX);
    EXPECT_UINT("all end", PLAYS, r->told.ends);
    EXPECT_UINT("in order", 0, r->told.backwards);
    for (size_t w = 0; w < 5; w++) {
        EXPECT_TRUE("gpu within its room", r->told.held[w][0] >= 0 && r->told.held[w][0] <= 60);
        EXPECT_TRUE("cpu within its room", r->told.held[w][1] >= 0 && r->told.held[w][1] <= 50);
    }
    EXPECT_TRUE("store within its room", r->told.held[5][0] >= 0 && r->told.held[5][0] <= 40);
    for (size_t i = 0; i < PLAYS; i++) {
        const struct wp_outcome *o = &r->told.end[i];

        EXPECT_TRUE("no more hits than prompt",
                    o->gpu + o->cpu + o->disk + o->fetched < o->play->input);
        sum = sum * 31 + o->first_us * 7 + o->done_us + o->fetched;
    }
    stop(r);
    return sum;
}

static void random_loads_end_the_same_way_each_time(void)
{
    for (uint64_t seed = 1; seed < 40; seed++) {
        uint64_t once = random_run(seed, 0);

        EXPECT_UINT("again", once, random_run(seed, 0));
        EXPECT_UINT("who is told late changes nothing", once, random_run(seed, 300000));
    }
}

static int everything(struct wp_err *err)
{
    struct wp_cluster_conf c = conf(3);
    struct wp_move all = {0, 0, 16};
    uint64_t id[16];
    struct wp_play p[2];
    struct wp_cluster *cl;
    int rc;

    c.stale_us = 1000;
    for (size_t i = 0; i < 16; i++)
        id[i] = i;
    p[0] = p[1] = (struct wp_play){.input = 8192, .output = 3, .n_ids = 16, .id = id};
    rc = wp_cluster_create(&cl, &c, &ops, NULL, err);
    if (rc < 0)
        return rc;
    wp_cluster_destroy(cl);
    c.engine.profile.max_running = 4;
    rc = wp_cluster_create(&cl, &c, &(struct wp_cluster_ops){0}, NULL, err);
    if (rc < 0)
        return rc;
    rc = wp_cluster_place(cl, &p[0], 0, NULL, 0, err);
    if (rc == 0)
        rc = wp_cluster_run(cl, 10000000, err);
    if (rc == 0)
        rc = wp_cluster_place(cl, &p[1], 1, &all, 1, err);
    if (rc == 0)
        rc = wp_cluster_run(cl, 10010000, err); /* in the middle of it */
    wp_cluster_destroy(cl);
    return rc;
}

static void any_allocation_may_fail(void)
{
    struct wp_err err = WP_ERR_INIT;
    long live = wp_mem_live(), nth = 0;

    for (;; nth++) {
        int rc;

        wp_mem_fail_after(nth);
        rc = everything(&err);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        if (!wp_mem_failed()) {
            EXPECT_INT("works in the end", 0, rc);
            break;
        }
        EXPECT_INT("reported", WP_ENOMEM, rc);
    }
    wp_mem_fail_after(-1);
    EXPECT_TRUE("some were tried", nth > 10);
}

static void wrong_fleets_are_refused(void)
{
    struct wp_cluster_conf c = conf(0);
    struct wp_cluster *cl;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("nobody", WP_EINVAL, wp_cluster_create(&cl, &c, &ops, NULL, &err));
    c = conf(1025);
    EXPECT_INT("too many", WP_EINVAL, wp_cluster_create(&cl, &c, &ops, NULL, &err));
    c = conf(1);
    c.link_bytes_per_s = 0;
    EXPECT_INT("no link", WP_EINVAL, wp_cluster_create(&cl, &c, &ops, NULL, &err));
    c = conf(1);
    c.store_blocks = 1;
    c.store_bytes_per_s = NAN;
    EXPECT_INT("a store without a way", WP_EINVAL, wp_cluster_create(&cl, &c, &ops, NULL, &err));
}

/* ---- plays ---- */

static void make_trace(struct wp_trace *t, size_t n)
{
    *t = (struct wp_trace){0};
    for (size_t i = 0; i < n; i++) {
        uint64_t *id;

        wp_trace_add(t, i * 1000000, 1024, 10, &id);
        id[0] = 7; /* everybody's */
        id[1] = 100 + i;
    }
}

static void copies_share_hot_blocks_alone(void)
{
    struct wp_plays_conf c = {.copies = 3, .scale = 2, .jitter_s = 3, .warmup = 0.1, .seed = 4};
    struct wp_err err = WP_ERR_INIT;
    struct wp_plays p, again;
    struct wp_trace t;
    size_t warm = 0;

    make_trace(&t, 100);
    EXPECT_INT("make", 0, wp_plays_make(&p, &t, &c, &err));
    EXPECT_INT("again", 0, wp_plays_make(&again, &t, &c, &err));
    EXPECT_UINT("requests", 300, p.n);
    for (size_t i = 0; i < p.n; i++) {
        EXPECT_UINT("the hot one is one", p.play[0].id[0], p.play[i].id[0]);
        EXPECT_UINT("the same seed, the same order", p.play[i].id[1], again.play[i].id[1]);
        EXPECT_UINT("the same seed, the same time", p.play[i].at_us, again.play[i].at_us);
        EXPECT_TRUE("within shift and jitter", p.play[i].at_us <= (99 + 63) * 1000000ull / 2);
        warm += p.play[i].warm;
        for (size_t k = 0; k < i; k++)
            EXPECT_TRUE("all others are apart", p.play[i].id[1] != p.play[k].id[1]);
    }
    EXPECT_UINT("a tenth of the time is warm-up", 30, warm);
    EXPECT_TRUE("it lasts", p.span_s > 40 && p.span_s < 81);
    wp_plays_fini(&p);
    wp_plays_fini(&again);
    c.scale = 0;
    EXPECT_INT("no scale", WP_EINVAL, wp_plays_make(&p, &t, &c, &err));
    c.scale = 1;
    c.copies = 1000000;
    EXPECT_INT("too many copies", WP_ETOOBIG, wp_plays_make(&p, &t, &c, &err));
    wp_trace_fini(&t);
}

static void one_copy_is_the_trace_itself(void)
{
    struct wp_plays_conf c = {.copies = 1, .scale = 1, .seed = 4};
    struct wp_err err = WP_ERR_INIT;
    struct wp_plays p;
    struct wp_trace t;

    make_trace(&t, 5);
    EXPECT_INT("make", 0, wp_plays_make(&p, &t, &c, &err));
    for (size_t i = 0; i < p.n; i++)
        EXPECT_UINT("its time", i * 1000000, p.play[i].at_us);
    wp_plays_fini(&p);
    wp_trace_fini(&t);
}

#define TEST(f, name) \
    {                 \
        name, f       \
    }
const struct wp_suite suite_cluster = {
    "cluster",
    (const struct wp_test[]){
        /* clang-format off */
        TEST(a_fetched_prompt_takes_the_links_time, "a fetched prompt takes the links' time"),
        TEST(a_link_carries_one_transfer_after_another, "a link carries one transfer after another"),
        TEST(others_pass_a_request_that_waits_for_its_blocks, "others pass a request that waits for its blocks"),
        TEST(what_the_source_has_lost_is_skipped, "what the source has lost is skipped"),
        TEST(the_store_takes_what_dram_lets_go_and_gives_it_back, "the store takes what DRAM lets go and gives it back"),
        TEST(a_router_is_told_late, "a router is told late"),
        TEST(a_state_says_what_is_to_be_done, "a state says what is to be done"),
        TEST(random_loads_end_the_same_way_each_time, "random loads end the same way each time"),
        TEST(any_allocation_may_fail, "any allocation may fail"),
        TEST(wrong_fleets_are_refused, "wrong fleets are refused"),
        TEST(copies_share_hot_blocks_alone, "copies share hot blocks alone"),
        TEST(one_copy_is_the_trace_itself, "one copy is the trace itself"),
        {NULL, NULL},
        /* clang-format on */
    },
};
