/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/policy.h"

#include "base/mem.h"
#include "base/rng.h"
#include "router/config.h"
#include "tests/lib/test.h"

#include <math.h>

enum { MANY = 64 };

static struct wp_policy *made(const char *name)
{
    struct wp_policy_conf conf;
    struct wp_policy *p = NULL;
    struct wp_err err = WP_ERR_INIT;

    wp_policy_conf_init(&conf);
    EXPECT_INT(name, 0, wp_policy_create(&p, name, &conf, &err));
    return p;
}

static void blank(struct wp_worker_view w[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        w[i] = (struct wp_worker_view){
            .key = 1000 + i, .block_size = 16, .profile = wp_profile_default(), .correction = 1};
}

static size_t asked(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                    size_t n)
{
    struct wp_verdict v[MANY];

    return p->ops->choose(p, ask, w, n, v);
}

static void every_policy_can_be_had_by_its_name(void)
{
    static const char *const names[] = {"price",      "round_robin",  "random",      "least_loaded",
                                        "least_work", "power_of_two", "prefix_hash", "session",
                                        "dynamo",     "sglang",       "llmd",        "preble",
                                        "conductor"};
    struct wp_policy_conf conf;
    struct wp_err err = WP_ERR_INIT;

    wp_policy_conf_init(&conf);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct wp_policy *p = made(names[i]);

        EXPECT_TEXT("in the list", names[i], wp_str_of(wp_policies[i]->name));
        EXPECT_TRUE("says what it does", wp_policies[i]->summary && wp_policies[i]->summary[0]);
        EXPECT_TRUE("its table", p && p->ops == wp_policies[i]);
        p->ops->destroy(p);
        wp_policies[i]->destroy(NULL);
        wp_mem_fail_after(0);
        EXPECT_INT("no memory", WP_ENOMEM, wp_policy_create(&p, names[i], &conf, &err));
        EXPECT_TRUE("nothing made", p == NULL);
        wp_mem_fail_after(-1);
    }
    EXPECT_TRUE("no more", wp_policies[sizeof names / sizeof names[0]] == NULL);
    for (int t = 0; t < WP_TERMS; t++)
        EXPECT_TRUE("terms have names", wp_term_names[t] != NULL);
    EXPECT_INT("nothing leaks", 0, wp_mem_live());
}

static void a_wrong_name_or_number_is_told_what_would_be_right(void)
{
    struct wp_policy *p;
    struct wp_policy_conf conf;
    struct wp_err err = WP_ERR_INIT;

    wp_policy_conf_init(&conf);
    EXPECT_INT("near", WP_EINVAL, wp_policy_create(&p, "prise", &conf, &err));
    EXPECT_TEXT(
        "near",
        "unknown policy \"prise\"; did you mean \"price\"? known: price, round_robin, "
        "random, least_loaded, least_work, power_of_two, prefix_hash, session, dynamo, sglang, "
        "llmd, preble, conductor",
        wp_str_of(err.text));
    EXPECT_INT("far", WP_EINVAL, wp_policy_create(&p, "zzzzzzzzzz", &conf, &err));
    EXPECT_TRUE("far", strstr(err.text, "\"zzzzzzzzzz\"; known: price, round_robin") != NULL);
    EXPECT_INT("empty", WP_EINVAL, wp_policy_create(&p, "", &conf, &err));
    conf.room_us = -3;
    EXPECT_INT("number", WP_EINVAL, wp_policy_create(&p, "price", &conf, &err));
    EXPECT_TEXT("number", "policy.price.room_us: want a number from 0 to 1e+09, got -3",
                wp_str_of(err.text));
    wp_policy_conf_init(&conf);
    conf.doubt = NAN;
    EXPECT_INT("no number", WP_EINVAL, wp_policy_create(&p, "price", &conf, &err));
    wp_policy_conf_init(&conf);
    conf.bound = 0.5;
    EXPECT_INT("a bound below the mean", WP_EINVAL, wp_policy_create(&p, "session", &conf, &err));
}

static void settings_that_are_no_numbers_can_be_set_too(void)
{
    static const struct {
        const char *key, *value, *why; /* NULL: it is right */
    } cases[] = {
        {"pull", "true", NULL},
        {"policy.pull", "true", NULL},
        {"pull", "1", "policy.pull: want true or false, got \"1\""},
        {"prefix_blocks", "8", NULL},
        {"prefix_blocks", "1.5",
         "policy.prefix_blocks: want a whole number from 1 to 4096, got \"1.5\""},
        {"prefix_blocks", "0",
         "policy.prefix_blocks: want a whole number from 1 to 4096, got \"0\""},
        {"pul", "true", "unknown setting \"policy.pul\""},
    };
    struct wp_policy_conf c;
    struct wp_err err;

    wp_policy_conf_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = wp_policy_set(&c, wp_str_of(cases[i].key), wp_str_of(cases[i].value), &err);

        EXPECT_INT(cases[i].key, cases[i].why ? WP_EINVAL : 0, rc);
        if (cases[i].why)
            EXPECT_TEXT(cases[i].key, cases[i].why, wp_str_of(err.text));
    }
    EXPECT_TRUE("pull", c.pull);
    EXPECT_UINT("blocks", 8, c.prefix_blocks);
}

/* The defaults stand twice: in the rows that the help is made of, and in the code. */
static void the_configuration_has_the_same_defaults(void)
{
    struct wp_buf errors = {0};
    struct wp_config *c = NULL;
    struct wp_policy_conf want, *got;

    wp_policy_conf_init(&want);
    EXPECT_INT("read", 0, wp_config_read(&c, NULL, NULL, 0, NULL, 0, &errors));
    if (!c) {
        wp_buf_fini(&errors);
        return;
    }
    got = &c->policy.conf;
    EXPECT_TEXT("the first is the default", wp_policies[0]->name, wp_str_of(c->policy.name));
    EXPECT_NEAR("room_us", want.room_us, got->room_us, 0);
    EXPECT_NEAR("room_cap_blocks", want.room_cap_blocks, got->room_cap_blocks, 0);
    EXPECT_NEAR("room_wait_share", want.room_wait_share, got->room_wait_share, 0);
    EXPECT_NEAR("near_us", want.near_us, got->near_us, 0);
    EXPECT_NEAR("near_share", want.near_share, got->near_share, 0);
    EXPECT_NEAR("doubt", want.doubt, got->doubt, 0);
    EXPECT_NEAR("bound", want.bound, got->bound, 0);
    EXPECT_UINT("prefix_blocks", want.prefix_blocks, got->prefix_blocks);
    EXPECT_UINT("seed", want.seed, got->seed);
    wp_config_destroy(c);
    wp_buf_fini(&errors);
}

static void no_worker_and_one_worker(void)
{
    struct wp_worker_view w[1];

    blank(w, 1);
    for (size_t i = 0; wp_policies[i]; i++) {
        struct wp_policy *p = made(wp_policies[i]->name);
        struct wp_rng r = {.state = 3};

        for (int k = 0; k < 20; k++) {
            struct wp_ask ask = {.draw = wp_rng_next(&r),
                                 .tokens = (uint32_t)wp_rng_next(&r),
                                 .prefix_key = wp_rng_below(&r, 2),
                                 .session_key = wp_rng_below(&r, 2)};

            w[0].in_flight = (uint32_t)wp_rng_next(&r);
            EXPECT_TRUE("none", asked(p, &ask, w, 0) == WP_NO_WORKER);
            EXPECT_UINT("the one", 0, asked(p, &ask, w, 1));
        }
        p->ops->destroy(p);
    }
}

/* Whatever stands in a view, a policy answers with one of the workers and writes every verdict. */
static void absurd_views_have_an_answer(void)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, -1, 0, 1, 1e300};
    static const uint32_t whole[] = {0, 1, 511, UINT32_MAX};
    static const uint64_t chain[] = {7, 0, 7, UINT64_MAX};
    struct wp_profile broken = {.a_us = NAN, .speed = 0};

    for (size_t i = 0; wp_policies[i]; i++) {
        struct wp_policy *p = made(wp_policies[i]->name);
        struct wp_rng r = {.state = i};

        for (int k = 0; k < 2000; k++) {
            struct wp_worker_view w[5];
            struct wp_verdict v[5];
            struct wp_ask ask = {.draw = wp_rng_next(&r),
                                 .tokens = whole[wp_rng_below(&r, 4)],
                                 .prefix_key = wp_rng_next(&r) & 3,
                                 .session_key = wp_rng_next(&r) & 3,
                                 .now_us = wp_rng_next(&r),
                                 .chain = chain,
                                 .n_chain = wp_rng_below(&r, 5),
                                 .chain_tokens = 512,
                                 .latency_us = odd[wp_rng_below(&r, 7)],
                                 .room = {.tuned = k & 2,
                                          .block_us = odd[wp_rng_below(&r, 7)],
                                          .delays = odd[wp_rng_below(&r, 7)]}};
            struct wp_span span = {whole[wp_rng_below(&r, 4)], whole[wp_rng_below(&r, 4)]};
            struct wp_pool pool = {&span, 1, odd[wp_rng_below(&r, 7)], odd[wp_rng_below(&r, 7)]};
            size_t at;

            for (size_t j = 0; j < 5; j++) {
                w[j] = (struct wp_worker_view){.key = wp_rng_below(&r, 3),
                                               .in_flight = whole[wp_rng_below(&r, 4)],
                                               .decoding = whole[wp_rng_below(&r, 4)],
                                               .kv_tokens = wp_rng_next(&r),
                                               .wait_us = odd[wp_rng_below(&r, 7)],
                                               .waiting = whole[wp_rng_below(&r, 4)],
                                               .prefill_tokens = wp_rng_next(&r),
                                               .pinned = odd[wp_rng_below(&r, 7)],
                                               .active_blocks = whole[wp_rng_below(&r, 4)],
                                               .fresh_blocks = whole[wp_rng_below(&r, 4)],
                                               .index_tokens = whole[wp_rng_below(&r, 4)],
                                               .block_size = whole[wp_rng_below(&r, 4)],
                                               .hit_tokens = whole[wp_rng_below(&r, 4)],
                                               .doubtful = k & 1 ? 0 : whole[wp_rng_below(&r, 4)],
                                               .has_tokens = whole[wp_rng_below(&r, 4)],
                                               .in_busy_us = odd[wp_rng_below(&r, 7)],
                                               .out_busy_us = odd[wp_rng_below(&r, 7)],
                                               .link_bytes_per_s = odd[wp_rng_below(&r, 7)],
                                               .correction = odd[wp_rng_below(&r, 7)]};
                w[j].profile = j == 1 ? NULL : j == 2 ? &broken : wp_profile_default();
                for (int t = 0; t < WP_TIERS; t++)
                    w[j].hit_tier[t] = whole[wp_rng_below(&r, 4)];
            }
            ask.pool = k & 4 ? &pool : NULL;
            memset(v, 0x55, sizeof v);
            at = p->ops->choose(p, &ask, w, 5, v);
            if (at < 5 && p->ops->placed)
                p->ops->placed(p, &ask, &w[at]);
            if (at >= 5 || !isfinite(v[at].ttft_us) || v[at].ttft_us < 0)
                EXPECT_TRUE(wp_policies[i]->name, 0);
            for (size_t j = 0; j < 5; j++) {
                const double *all = (const double *)&v[j]; /* terms, price, prediction */

                for (uint32_t f = 0; f < v[j].n_fetch; f++)
                    if (f >= WP_FETCHES || v[j].fetch[f].from >= v[j].fetch[f].to ||
                        (v[j].fetch[f].source >= 5 && v[j].fetch[f].source != WP_POOL))
                        EXPECT_TRUE("a fetch of something from somebody", 0);
                for (size_t t = 0; t < offsetof(struct wp_verdict, n_fetch) / sizeof all[0]; t++)
                    if (!isnan(all[t]) && !(all[t] >= 0 && all[t] < 1e30)) /* 0x55.. is 1e103 */
                        EXPECT_TRUE(wp_policies[i]->name, 0);
            }
        }
        p->ops->destroy(p);
    }
}

static void the_same_draws_make_the_same_choices_without_allocation(void)
{
    for (size_t i = 0; wp_policies[i]; i++) {
        struct wp_policy *a = made(wp_policies[i]->name), *b = made(wp_policies[i]->name);
        struct wp_rng r = {.state = 11};
        struct wp_worker_view w[MANY];
        long live = wp_mem_live();

        wp_mem_fail_after(0);
        for (int k = 0; k < 500; k++) {
            size_t n = 1 + (size_t)wp_rng_below(&r, MANY);
            struct wp_ask ask = {.draw = wp_rng_next(&r), .tokens = 5000, .prefix_key = k % 7 + 1};

            blank(w, n);
            for (size_t j = 0; j < n; j++) {
                w[j].in_flight = (uint32_t)wp_rng_below(&r, 4);
                w[j].hit_tokens = w[j].hit_tier[0] = 512 * (uint32_t)wp_rng_below(&r, 4);
            }
            EXPECT_UINT(wp_policies[i]->name, asked(a, &ask, w, n), asked(b, &ask, w, n));
        }
        EXPECT_TRUE("nothing was asked of the allocator", !wp_mem_failed());
        wp_mem_fail_after(-1);
        EXPECT_INT("live", live, wp_mem_live());
        a->ops->destroy(a);
        b->ops->destroy(b);
    }
}

static void round_robin_takes_each_in_turn(void)
{
    struct wp_policy *p = made("round_robin");
    struct wp_worker_view w[4];

    blank(w, 4);
    for (size_t i = 0; i < 12; i++)
        EXPECT_UINT("turn", i % 4, asked(p, &(struct wp_ask){.tokens = 1}, w, 4));
    for (size_t i = 0; i < 6; i++) /* one left */
        EXPECT_UINT("turn of three", i % 3, asked(p, &(struct wp_ask){.tokens = 1}, w, 3));
    p->ops->destroy(p);
}

/* Shares of 64,000 draws over 8 workers: 8,000 each, with a standard deviation of 84. */
static void random_is_even(void)
{
    struct wp_policy *p = made("random");
    struct wp_rng r = {.state = 5};
    struct wp_worker_view w[8];
    int seen[8] = {0};

    blank(w, 8);
    for (int i = 0; i < 64000; i++)
        seen[asked(p, &(struct wp_ask){.draw = wp_rng_next(&r)}, w, 8)]++;
    for (int i = 0; i < 8; i++)
        EXPECT_NEAR("share", 8000, seen[i], 5 * 84);
    p->ops->destroy(p);
}

static void least_loaded_takes_the_fewest_and_spreads_equals(void)
{
    struct wp_policy *p = made("least_loaded");
    struct wp_rng r = {.state = 5};
    struct wp_worker_view w[5];
    int seen[5] = {0};

    blank(w, 5);
    w[0].in_flight = 3, w[1].in_flight = 1, w[2].in_flight = 2, w[3].in_flight = 1,
    w[4].in_flight = 1;
    for (int i = 0; i < 30000; i++)
        seen[asked(p, &(struct wp_ask){.draw = wp_rng_next(&r)}, w, 5)]++;
    EXPECT_INT("three", 0, seen[0]);
    EXPECT_INT("two", 0, seen[2]);
    for (int i = 1; i < 5; i += i == 1 ? 2 : 1)
        EXPECT_NEAR("one: a third", 10000, seen[i], 5 * 82);
    p->ops->destroy(p);
}

/* Of n workers with in_flight 0..n-1, the k-th least is the better of a pair in n-1-k of C(n,2). */
static void power_of_two_has_the_distribution_of_the_better_of_two(void)
{
    struct wp_policy *p = made("power_of_two");
    struct wp_rng r = {.state = 9};
    struct wp_worker_view w[6];
    int seen[6] = {0};

    blank(w, 6);
    for (uint32_t i = 0; i < 6; i++)
        w[i].in_flight = i;
    for (int i = 0; i < 60000; i++) {
        struct wp_verdict v[6];
        size_t compared = 0;

        seen[p->ops->choose(p, &(struct wp_ask){.draw = wp_rng_next(&r)}, w, 6, v)]++;
        for (int j = 0; j < 6; j++)
            compared += !isnan(v[j].price);
        if (compared != 2)
            EXPECT_UINT("compared", 2, compared);
    }
    for (int i = 0; i < 6; i++)
        EXPECT_NEAR("share", 60000.0 * (5 - i) / 15, seen[i], 5 * 115);
    EXPECT_INT("never the fullest", 0, seen[5]);
    p->ops->destroy(p);
}

static void a_hashed_key_stays_where_it_is(void)
{
    struct wp_policy *p = made("prefix_hash");
    struct wp_worker_view w[9], without[8];
    int seen[9] = {0}, moved = 0;

    blank(w, 9);
    for (uint64_t key = 1; key <= 9000; key++) {
        struct wp_ask ask = {.prefix_key = key, .draw = key * 77, .tokens = 5000};
        size_t at = asked(p, &ask, w, 9), again;

        seen[at]++;
        ask.draw = ~key;
        EXPECT_UINT("whatever the draw", at, asked(p, &ask, w, 9));
        memcpy(without, w, 4 * sizeof w[0]); /* worker 4 leaves; the order of the others is kept */
        memcpy(without + 4, w + 5, 4 * sizeof w[0]);
        again = asked(p, &ask, without, 8);
        again += again >= 4;
        if (at == 4)
            moved += again != 4;
        else
            EXPECT_UINT("stays when another leaves", at, again);
    }
    for (int i = 0; i < 9; i++)
        EXPECT_NEAR("even", 1000, seen[i], 5 * 30);
    EXPECT_INT("those of the one that left move", seen[4], moved);
    p->ops->destroy(p);
}

static const struct {
    const char *label, *policy;
    uint64_t prefix_key, session_key;
    bool spills;
} constant_keys[] = {
    {"one prefix", "prefix_hash", 7, 0, true},
    {"one session (a constant user)", "session", 0, 7, true},
    {"no session, one prefix", "session", 7, 0, true},
    {"neither", "session", 0, 0, false},
    {"no prompt", "prefix_hash", 0, 7, false},
};

/* 400 requests that never end, all with one key: nobody gets more than the bound at any time. */
static void a_constant_key_spills_over_at_the_bound(void)
{
    for (size_t c = 0; c < sizeof constant_keys / sizeof constant_keys[0]; c++) {
        struct wp_policy *p = made(constant_keys[c].policy);
        struct wp_rng r = {.state = 2};
        struct wp_worker_view w[8];
        uint32_t most = 0, least = UINT32_MAX;

        blank(w, 8);
        for (uint32_t i = 0; i < 400; i++) {
            struct wp_ask ask = {.draw = wp_rng_next(&r),
                                 .tokens = 5000,
                                 .prefix_key = constant_keys[c].prefix_key,
                                 .session_key = constant_keys[c].session_key};
            size_t at = asked(p, &ask, w, 8);

            if (++w[at].in_flight > ceil(1.25 * (i + 1) / 8))
                EXPECT_TRUE(constant_keys[c].label, 0);
        }
        for (int i = 0; i < 8; i++) {
            most = w[i].in_flight > most ? w[i].in_flight : most;
            least = w[i].in_flight < least ? w[i].in_flight : least;
        }
        EXPECT_UINT(constant_keys[c].label, constant_keys[c].spills ? 63 : 50, most);
        EXPECT_TRUE(constant_keys[c].label, constant_keys[c].spills ? least < 50 : least == 50);
        p->ops->destroy(p);
    }
}

static void a_session_outranks_its_prefix(void)
{
    struct wp_policy *p = made("session");
    struct wp_worker_view w[16];
    size_t first;

    blank(w, 16);
    first = asked(p, &(struct wp_ask){.session_key = 5, .prefix_key = 1}, w, 16);
    for (uint64_t k = 2; k < 50; k++)
        EXPECT_UINT("same session, other prompt", first,
                    asked(p, &(struct wp_ask){.session_key = 5, .prefix_key = k}, w, 16));
    p->ops->destroy(p);
}

const struct wp_suite suite_policies = {
    "policies",
    (const struct wp_test[]){
        {"every policy can be had by its name", every_policy_can_be_had_by_its_name},
        {"a wrong name or number is told what would be right",
         a_wrong_name_or_number_is_told_what_would_be_right},
        {"settings that are no numbers can be set, too",
         settings_that_are_no_numbers_can_be_set_too},
        {"the configuration has the same defaults", the_configuration_has_the_same_defaults},
        {"no worker, and one worker", no_worker_and_one_worker},
        {"absurd views have an answer", absurd_views_have_an_answer},
        {"the same draws make the same choices, without allocation",
         the_same_draws_make_the_same_choices_without_allocation},
        {"round_robin takes each in turn", round_robin_takes_each_in_turn},
        {"random is even", random_is_even},
        {"least_loaded takes the fewest and spreads equals",
         least_loaded_takes_the_fewest_and_spreads_equals},
        {"power_of_two has the distribution of the better of two",
         power_of_two_has_the_distribution_of_the_better_of_two},
        {"a hashed key stays where it is", a_hashed_key_stays_where_it_is},
        {"a constant key spills over at the bound", a_constant_key_spills_over_at_the_bound},
        {"a session outranks its prefix", a_session_outranks_its_prefix},
        {NULL, NULL},
    },
};
