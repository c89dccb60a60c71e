/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/load.h"
#include "policies/policy.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

/* The default engine without overhead: no slow-down while nothing decodes. */
static struct wp_profile engine(void)
{
    struct wp_profile p = *wp_profile_default();

    p.tov_us = 0;
    return p;
}

static struct wp_policy *price_with(const struct wp_policy_conf *conf)
{
    struct wp_policy *p = NULL;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0, wp_policy_create(&p, "price", conf, &err));
    return p;
}

static struct wp_policy *price(void)
{
    struct wp_policy_conf conf;

    wp_policy_conf_init(&conf);
    return price_with(&conf);
}

static struct wp_worker_view view(const struct wp_profile *p, double wait_us, uint32_t hit)
{
    return (struct wp_worker_view){.wait_us = wait_us,
                                   .hit_tokens = hit,
                                   .hit_tier = {hit},
                                   .block_size = 16,
                                   .profile = p,
                                   .correction = 1};
}

/* The example of docs/policies.md, number by number. */
static void the_worked_example_of_the_documentation(void)
{
    static const double want[3][6] = {
        /* wait, fetch, compute, room, price, ttft: microseconds, to the nearest */
        {150000, 0, 120180, 92000, 362180, 270180},
        {0, 0, 445995, 368000, 813995, 445995},
        {30000, 0, 232961, 184000, 446961, 262961},
    };
    struct wp_worker_view w[3] = {view(wp_profile_default(), 150000, 6144),
                                  view(wp_profile_default(), 0, 0),
                                  view(wp_profile_default(), 30000, 4096)};
    struct wp_policy *p = price();
    struct wp_verdict v[3];

    w[0].decoding = 20, w[0].kv_tokens = 100000, w[0].in_flight = 21;
    w[2].decoding = 10, w[2].kv_tokens = 40000, w[2].in_flight = 11;
    w[2].hit_tier[0] = 0, w[2].hit_tier[1] = 4096;
    EXPECT_UINT("chosen", 0, p->ops->choose(p, &(struct wp_ask){.tokens = 8192}, w, 3, v));
    for (int i = 0; i < 3; i++) {
        EXPECT_NEAR("wait", want[i][0], v[i].term[WP_TERM_WAIT], 1);
        EXPECT_NEAR("fetch", want[i][1], v[i].term[WP_TERM_FETCH], 1);
        EXPECT_NEAR("compute", want[i][2], v[i].term[WP_TERM_COMPUTE], 1);
        EXPECT_NEAR("room", want[i][3], v[i].term[WP_TERM_ROOM], 1);
        EXPECT_NEAR("price", want[i][4], v[i].price, 1);
        EXPECT_NEAR("ttft", want[i][5], v[i].ttft_us, 1);
        EXPECT_TRUE("it has no score", isnan(v[i].term[WP_TERM_SCORE]));
    }
    p->ops->destroy(p);
}

static const struct {
    const char *label;
    uint32_t tokens;
    struct {
        double wait_us;
        uint32_t hit, in_flight;
    } w[2];
    size_t want;
} cases[] = {
    /* 8,192 cold: 437 ms of compute and 320 ms of room; with 7,680 held: 29 ms and 20 ms */
    {"warm beats cold", 8192, {{0, 0, 0}, {0, 7680, 0}}, 1},
    {"warm beats cold with some queue", 8192, {{0, 0, 0}, {400000, 7680, 0}}, 1},
    {"cold beats warm when the queue costs more", 8192, {{0, 0, 0}, {800000, 7680, 0}}, 0},
    {"idle beats busy with unique prompts", 8192, {{50000, 0, 3}, {0, 0, 0}}, 1},
    {"a big index elsewhere attracts nothing unique", 100, {{50000, 0, 3}, {0, 0, 0}}, 1},
    {"the longer prefix", 8192, {{0, 4096, 0}, {0, 4608, 0}}, 1},
    {"a tie goes to the less loaded", 8192, {{0, 0, 2}, {0, 0, 1}}, 1},
    {"a near tie goes to the less loaded", 8192, {{0, 0, 2}, {900, 0, 1}}, 1},
    {"load is no reason for more than a tie", 8192, {{0, 4096, 200}, {0, 0, 0}}, 0},
    {"a hit beyond the prompt is all but its last token", 100, {{0, 4000, 0}, {1030, 99, 0}}, 0},
    {"nothing to compute: the shorter queue", 0, {{9000, 0, 0}, {2000, 0, 0}}, 1},
    {"an endless prompt", UINT32_MAX, {{0, 1 << 20, 0}, {0, 1 << 30, 0}}, 1},
};

static void each_case_goes_to_the_right_worker(void)
{
    struct wp_profile e = engine();
    struct wp_policy *p = price();

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct wp_worker_view w[2];
        struct wp_verdict v[2];
        struct wp_rng r = {.state = c};

        for (int i = 0; i < 2; i++) {
            w[i] = view(&e, cases[c].w[i].wait_us, cases[c].w[i].hit);
            w[i].in_flight = cases[c].w[i].in_flight;
        }
        for (int k = 0; k < 16; k++) {
            struct wp_ask ask = {.tokens = cases[c].tokens, .draw = wp_rng_next(&r)};

            EXPECT_UINT(cases[c].label, cases[c].want, p->ops->choose(p, &ask, w, 2, v));
        }
    }
    p->ops->destroy(p);
}

/* One of two engines holds a prompt that 40 clients send at once. */
static void a_hot_prefix_spills_over_when_queueing_costs_more_than_it_saves(void)
{
    struct wp_profile e = engine();
    struct wp_policy *p = price();
    struct wp_load load[2];
    struct wp_load_item it[40] = {{.stage = 0}};
    uint32_t hit[2] = {7680, 0};
    int got[2] = {0, 0}, first = -1;
    struct wp_rng r = {.state = 1};

    wp_load_init(&load[0]);
    wp_load_init(&load[1]);
    for (int i = 0; i < 40; i++) {
        struct wp_worker_view w[2];
        struct wp_verdict v[2];
        struct wp_ask ask = {.tokens = 8192, .draw = wp_rng_next(&r)};
        size_t at;

        for (int j = 0; j < 2; j++) {
            w[j] = view(&e, wp_load_wait_us(&load[j], &e, 0), hit[j]);
            w[j].in_flight = load[j].in_flight;
        }
        at = p->ops->choose(p, &ask, w, 2, v);
        if (first < 0 && at == 1) {
            double saved = wp_prefill_us(&e, 0, 8192) - wp_prefill_us(&e, 7680, 8192);
            double one = wp_prefill_us(&e, 7680, 8192);

            first = i;
            EXPECT_TRUE("the queue costs more than the prefill saved", w[0].wait_us > saved);
            EXPECT_TRUE("and 15 blocks of room", w[0].wait_us > saved + 300000 - 15000);
            EXPECT_TRUE("but not more", w[0].wait_us < saved + 300000 + one + 15000);
        }
        got[at]++;
        wp_load_begin(&load[at], &it[i], &e, 0, wp_prefill_us(&e, hit[at], 8192), 8192 - hit[at],
                      8192);
        hit[at] = 7680; /* what is in flight there counts as held */
    }
    EXPECT_TRUE("not at once", first > 10);
    EXPECT_TRUE("but it does", first > 0 && first < 40);
    EXPECT_TRUE("most stay warm", got[0] > got[1]);
    p->ops->destroy(p);
}

static double price_of(const struct wp_policy_conf *c, const struct wp_worker_view *w,
                       uint32_t tokens, enum wp_term term)
{
    struct wp_policy *p = price_with(c);
    struct wp_verdict v[1];

    (void)p->ops->choose(p, &(struct wp_ask){.tokens = tokens}, w, 1, v);
    p->ops->destroy(p);
    EXPECT_NEAR("terms add up", v[0].price,
                v[0].term[WP_TERM_WAIT] + v[0].term[WP_TERM_FETCH] + v[0].term[WP_TERM_COMPUTE] +
                    v[0].term[WP_TERM_ROOM],
                v[0].price * 1e-12);
    return v[0].term[term];
}

static void room_is_charged_per_block_and_capped_per_context(void)
{
    struct wp_profile e = engine();
    struct wp_worker_view w = view(&e, 100000, 512);
    struct wp_policy_conf c;

    wp_policy_conf_init(&c);
    EXPECT_NEAR("4 blocks", 4 * (20000 + .1 * 100000), price_of(&c, &w, 5 * 512, WP_TERM_ROOM),
                1e-6);
    EXPECT_NEAR("100 blocks", 20 * 20000 + 100 * .1 * 100000,
                price_of(&c, &w, 101 * 512, WP_TERM_ROOM), 1e-6);
    c.room_cap_blocks = 0;
    EXPECT_NEAR("uncapped", 100 * (20000 + .1 * 100000), price_of(&c, &w, 101 * 512, WP_TERM_ROOM),
                1e-6);
    c.room_us = c.room_wait_share = 0;
    EXPECT_NEAR("free", 0, price_of(&c, &w, 101 * 512, WP_TERM_ROOM), 0);
}

/* Workers with these waits (the last row: not known), and the price of one block of room. */
static void room_follows_the_median_wait(void)
{
    static const struct {
        const char *label;
        size_t n;
        double wait_us[5], median;
    } rows[] = {
        {"one", 1, {700}, 700},
        {"two: the shorter", 2, {900, 100}, 100},
        {"one long queue changes nothing", 3, {1e9, 500, 400}, 500},
        {"order does not matter", 5, {5, 1, 4, 2, 3}, 3},
        {"equal ones", 5, {7, 7, 7, 7, 7}, 7},
        {"unknown ones do not count", 4, {NAN, 300, INFINITY, 100}, 100},
        {"none is known", 2, {NAN, NAN}, 0},
    };
    struct wp_profile e = engine();
    struct wp_policy_conf c;
    struct wp_policy *p;
    struct wp_rng r = {.state = 8};

    wp_policy_conf_init(&c);
    c.room_us = 0;
    c.room_wait_share = 1;
    p = price_with(&c);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct wp_worker_view w[5];
        struct wp_verdict v[5];

        for (size_t i = 0; i < rows[k].n; i++)
            w[i] = view(&e, rows[k].wait_us[i], 0);
        (void)p->ops->choose(p, &(struct wp_ask){.tokens = 512}, w, rows[k].n, v);
        for (size_t i = 0; i < rows[k].n; i++)
            EXPECT_NEAR(rows[k].label, rows[k].median, v[i].term[WP_TERM_ROOM], 1e-9);
    }
    for (int k = 0; k < 200; k++) { /* any: as many are below it as a median has */
        struct wp_worker_view w[50];
        struct wp_verdict v[50];
        size_t n = 1 + (size_t)wp_rng_below(&r, 50), below = 0, at_most = 0;

        for (size_t i = 0; i < n; i++)
            w[i] = view(&e, (double)wp_rng_below(&r, 20), 0);
        (void)p->ops->choose(p, &(struct wp_ask){.tokens = 512}, w, n, v);
        for (size_t i = 0; i < n; i++) {
            below += w[i].wait_us < v[0].term[WP_TERM_ROOM];
            at_most += w[i].wait_us <= v[0].term[WP_TERM_ROOM];
        }
        EXPECT_TRUE("lower median", below <= (n - 1) / 2 && at_most > (n - 1) / 2);
    }
    p->ops->destroy(p);
}

static void speed_scales_every_term(void)
{
    struct wp_profile e = engine(), fast = engine();
    struct wp_worker_view slow_w = view(&e, 60000, 0), fast_w = view(&fast, 10000, 0);
    struct wp_policy_conf c;

    fast.speed = 6;
    fast_w.hit_tokens = slow_w.hit_tokens = 2048;
    fast_w.hit_tier[2] = slow_w.hit_tier[2] = 2048;
    wp_policy_conf_init(&c);
    for (int t = WP_TERM_WAIT; t <= WP_TERM_ROOM; t++)
        EXPECT_NEAR(wp_term_names[t], price_of(&c, &slow_w, 8192, (enum wp_term)t) / 6,
                    price_of(&c, &fast_w, 8192, (enum wp_term)t), 1e-6);
}

static void a_slower_tier_costs_its_fetch_beyond_the_wait(void)
{
    struct wp_profile e = engine();
    struct wp_worker_view w = view(&e, 0, 4096);
    struct wp_policy_conf c;

    wp_policy_conf_init(&c);
    EXPECT_NEAR("gpu", 0, price_of(&c, &w, 8192, WP_TERM_FETCH), 0);
    w.hit_tier[0] = 2048, w.hit_tier[1] = 2048; /* 671 MB at 100 GB/s */
    EXPECT_NEAR("cpu", 6710.9, price_of(&c, &w, 8192, WP_TERM_FETCH), 0.1);
    w.wait_us = 5000;
    EXPECT_NEAR("hidden in part", 1710.9, price_of(&c, &w, 8192, WP_TERM_FETCH), 0.1);
    w.wait_us = 7000;
    EXPECT_NEAR("hidden", 0, price_of(&c, &w, 8192, WP_TERM_FETCH), 0);
    w.wait_us = 0;
    w.hit_tier[1] = UINT32_MAX, w.hit_tokens = 4096; /* more in tiers than the hit: in proportion */
    EXPECT_TRUE("never more than the hit", price_of(&c, &w, 8192, WP_TERM_FETCH) < 13422);
}

static void what_was_learnt_and_what_is_doubted_change_compute(void)
{
    struct wp_profile e = engine();
    struct wp_worker_view w = view(&e, 0, 4096);
    struct wp_policy_conf c;
    double base;

    wp_policy_conf_init(&c);
    base = price_of(&c, &w, 8192, WP_TERM_COMPUTE);
    EXPECT_NEAR("C(4096, 8192)", wp_prefill_us(&e, 4096, 8192), base, 1e-6);
    w.correction = 1.5;
    EXPECT_NEAR("slower than thought", 1.5 * base, price_of(&c, &w, 8192, WP_TERM_COMPUTE), 1e-6);
    w.correction = NAN;
    EXPECT_NEAR("nothing learnt", base, price_of(&c, &w, 8192, WP_TERM_COMPUTE), 1e-6);
    w.correction = 1e9;
    EXPECT_NEAR("at most twenty times", 20 * base, price_of(&c, &w, 8192, WP_TERM_COMPUTE), 1e-3);
    w.correction = 1;
    w.doubtful = 1024;
    EXPECT_NEAR("half of a doubtful hit", wp_prefill_us(&e, 3584, 8192),
                price_of(&c, &w, 8192, WP_TERM_COMPUTE), 1e-6);
    w.doubtful = UINT32_MAX;
    EXPECT_NEAR("all of it", wp_prefill_us(&e, 2048, 8192), price_of(&c, &w, 8192, WP_TERM_COMPUTE),
                1e-6);
    c.doubt = 0;
    EXPECT_NEAR("no doubtful hit", wp_prefill_us(&e, 0, 8192),
                price_of(&c, &w, 8192, WP_TERM_COMPUTE), 1e-6);
}

/* A thousand unique prompts at once on 16 idle engines. */
static void unique_prompts_spread_by_work(void)
{
    struct wp_profile e = engine();
    struct wp_policy *p = price();
    struct wp_worker_view w[16];
    struct wp_verdict v[16];
    struct wp_rng r = {.state = 4};
    double most = 0, sum = 0;

    for (int i = 0; i < 16; i++)
        w[i] = view(&e, 0, 0);
    for (int i = 0; i < 1000; i++) {
        struct wp_ask ask = {.tokens = 100 + (uint32_t)wp_rng_exp(&r, 8000),
                             .draw = wp_rng_next(&r)};
        size_t at = p->ops->choose(p, &ask, w, 16, v);

        w[at].wait_us += wp_prefill_us(&e, 0, ask.tokens);
        w[at].in_flight++;
    }
    for (int i = 0; i < 16; i++) {
        most = fmax(most, w[i].wait_us);
        sum += w[i].wait_us;
    }
    EXPECT_TRUE("within 6 % of even", most < 1.06 * sum / 16);
    p->ops->destroy(p);
}

static void equal_workers_share_by_the_draw(void)
{
    struct wp_profile e = engine();
    struct wp_policy *p = price();
    struct wp_worker_view w[4];
    struct wp_verdict v[4];
    struct wp_rng r = {.state = 4};
    int seen[4] = {0};

    for (int i = 0; i < 4; i++)
        w[i] = view(&e, 0, 0);
    for (int i = 0; i < 40000; i++)
        seen[p->ops->choose(p, &(struct wp_ask){.tokens = 900, .draw = wp_rng_next(&r)}, w, 4,
                            v)]++;
    for (int i = 0; i < 4; i++)
        EXPECT_NEAR("a quarter", 10000, seen[i], 5 * 87);
    p->ops->destroy(p);
}

/* What an engine does with few tokens takes a step; the price of it is what it takes from others.
 */
static void a_short_prompt_takes_a_step_and_costs_its_tokens(void)
{
    static const struct {
        const char *label;
        double wait_us, correction;
        uint32_t hit, decoding;
        double step_us; /* of a prompt of 40 tokens */
    } rows[] = {
        {"idle", 0, 1, 0, 0, 7500 - 50 * 40 + 2000 * (1 - 40 / 2048.0)},
        {"all but the last token held", 0, 1, 40, 0, 7500 - 50 + 2000 * (1 - 1 / 2048.0)},
        {"an engine that is twice as slow", 0, 2, 0, 0,
         2 * (7500 - 50 * 40 + 2000 * (1 - 40 / 2048.0))},
        {"beside one that decodes: half a step more", 0, 1, 0, 1,
         7500 - 50 * 40 + 2050 * (1 - 40 / 2048.0) + (7500 + 2050) / 2.0},
        {"others are ahead: a part of it is theirs", 5000, 1, 0, 0,
         2500 - 50 * 40 + 2000 * (1 - 40 / 2048.0)},
        {"many are", 50000, 1, 0, 0, 0},
    };
    struct wp_policy *p = price();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wp_worker_view w = view(wp_profile_default(), rows[i].wait_us, rows[i].hit);
        struct wp_verdict v[1];

        w.correction = rows[i].correction;
        w.decoding = rows[i].decoding;
        (void)p->ops->choose(p, &(struct wp_ask){.tokens = 40}, &w, 1, v);
        EXPECT_NEAR(rows[i].label, rows[i].step_us, v[0].step_us, 0.1);
        EXPECT_NEAR("predicted",
                    v[0].term[WP_TERM_WAIT] + v[0].term[WP_TERM_COMPUTE] + v[0].step_us,
                    v[0].ttft_us, 1e-6);
        EXPECT_NEAR("not in the price",
                    v[0].term[WP_TERM_WAIT] + v[0].term[WP_TERM_COMPUTE] + v[0].term[WP_TERM_ROOM],
                    v[0].price, 1e-6);
    }
    p->ops->destroy(p);
}

/* Idle engines whose corrections differ a little, and short prompts one after another. */
static void ties_go_by_the_draw_and_not_by_the_price(void)
{
    static const double learnt[4] = {1.2, 1.1, 1, 1.3};
    struct wp_profile e = engine();
    struct wp_policy *p = price();
    struct wp_worker_view w[4];
    struct wp_verdict v[4];
    struct wp_rng r = {.state = 11};
    int seen[4] = {0};

    for (int i = 0; i < 4; i++) {
        w[i] = view(&e, 0, 0);
        w[i].correction = learnt[i];
    }
    for (int i = 0; i < 40000; i++)
        seen[p->ops->choose(p, &(struct wp_ask){.tokens = 40, .draw = wp_rng_next(&r)}, w, 4, v)]++;
    EXPECT_TRUE("the prices differ", v[2].price < v[3].price);
    for (int i = 0; i < 4; i++)
        EXPECT_NEAR("a quarter", 10000, seen[i], 5 * 87);
    p->ops->destroy(p);
}

const struct wp_suite suite_price = {
    "price",
    (const struct wp_test[]){
        {"the worked example of the documentation", the_worked_example_of_the_documentation},
        {"each case goes to the right worker", each_case_goes_to_the_right_worker},
        {"a hot prefix spills over when queueing costs more than it saves",
         a_hot_prefix_spills_over_when_queueing_costs_more_than_it_saves},
        {"room is charged per block, and capped per context",
         room_is_charged_per_block_and_capped_per_context},
        {"room follows the median wait", room_follows_the_median_wait},
        {"speed scales every term", speed_scales_every_term},
        {"a slower tier costs its fetch beyond the wait",
         a_slower_tier_costs_its_fetch_beyond_the_wait},
        {"what was learnt and what is doubted change compute",
         what_was_learnt_and_what_is_doubted_change_compute},
        {"unique prompts spread by work", unique_prompts_spread_by_work},
        {"equal workers share by the draw", equal_workers_share_by_the_draw},
        {"a short prompt takes a step and costs its tokens",
         a_short_prompt_takes_a_step_and_costs_its_tokens},
        {"ties go by the draw and not by the price", ties_go_by_the_draw_and_not_by_the_price},
        {NULL, NULL},
    },
};
