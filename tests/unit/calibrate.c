/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calibration against the engine model in virtual time: the router believes one profile, the engine
 * has another.  What is predicted is what a policy predicts, from our own account of the worker's
 * work.
 */
#include "policies/calibrate.h"

#include "base/mem.h"
#include "base/rng.h"
#include "policies/load.h"
#include "policies/pick.h"
#include "sim/model.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

enum { REQUESTS = 1200, LEARNT = 200, BLOCK = 512, LIES = 7 };

/* ---- a router with one worker ---- */

struct rig;
struct asked {
    struct rig *rig;
    struct wp_model_req *req;
    struct wp_load_item item;
    struct wp_sample sample;
    uint64_t at_us, first_us;
    double predicted, low, high;
    uint32_t tokens, n;
    bool waits;
};

struct rig {
    struct wp_profile believed, learnt;
    struct wp_calibration cal;
    struct wp_interval interval[2];
    struct wp_meter meter;
    struct wp_load load;
    struct wp_model *engine;
    struct asked *asked;
    bool usage;          /* the engine tells what was cached */
    unsigned lie;        /* every so many a first token is told at an absurd time; 0: none */
    uint32_t claim_more; /* tokens of hit that are claimed and not there */
    size_t inside, judged;
};

static void on_tokens(void *arg, uint64_t at_us, uint32_t n, bool first)
{
    struct asked *a = arg;
    struct rig *r = a->rig;
    uint64_t told = at_us;

    if (!first) {
        wp_load_token(&r->load, &a->item, n);
        return;
    }
    if (r->lie && (size_t)(a - r->asked) % r->lie == 0)
        told = (size_t)(a - r->asked) % 2 ? a->at_us + 1 : at_us + 500000000;
    a->first_us = at_us;
    wp_load_first(&r->load, &a->item, &r->learnt, at_us);
    wp_load_token(&r->load, &a->item, n);
    wp_meter_first(&r->meter, &a->sample, &r->believed, a->at_us, told, true);
    if (r->lie && told != at_us)
        r->meter.last_us = at_us;
    r->judged += (size_t)(a - r->asked) >= LEARNT;
    r->inside += (size_t)(a - r->asked) >= LEARNT && (double)(at_us - a->at_us) >= a->low &&
                 (double)(at_us - a->at_us) <= a->high;
    wp_interval_hear(&r->interval[a->waits], a->predicted, (double)(at_us - a->at_us));
}

static void on_done(void *arg, uint64_t at_us)
{
    struct asked *a = arg;
    struct rig *r = a->rig;

    wp_load_end(&r->load, &a->item, &r->learnt, at_us);
    if (r->usage)
        a->sample.from = wp_model_cached(a->req, NULL);
    if (wp_calibration_take(&r->cal, &a->sample, &r->believed, true))
        wp_calibration_apply(&r->cal, &r->believed, &r->learnt);
}

static const struct wp_model_ops ops = {.on_tokens = on_tokens, .on_done = on_done};

static void begin(struct rig *r, const struct wp_profile *believed,
                  const struct wp_profile *true_one)
{
    struct wp_model_conf c = {.profile = *true_one,
                              .block_size = BLOCK,
                              .tier_blocks = {true_one->gpu_tokens / BLOCK, 0, 0},
                              .secret = 1};
    struct wp_err err = WP_ERR_INIT;

    *r = (struct rig){.believed = *believed,
                      .learnt = *believed,
                      .usage = r->usage,
                      .lie = r->lie,
                      .claim_more = r->claim_more};
    wp_calibration_init(&r->cal, believed);
    wp_load_init(&r->load);
    r->asked = wp_calloc(REQUESTS, sizeof *r->asked);
    EXPECT_INT("engine", 0, wp_model_create(&r->engine, &c, &ops, r, &err));
}

static void ask(struct rig *r, size_t i, uint64_t now, uint32_t tokens, uint32_t hit,
                uint32_t output)
{
    uint64_t chain[512];
    struct asked *a = &r->asked[i];
    struct wp_ask q = {.now_us = now, .tokens = tokens};
    uint32_t claim = hit + r->claim_more < tokens ? hit + r->claim_more : tokens - 1;
    struct wp_worker_view v = {.decoding = r->load.decoding,
                               .kv_tokens = r->load.kv_tokens,
                               .wait_us = wp_load_wait_us(&r->load, &r->learnt, now),
                               .hit_tokens = claim,
                               .hit_tier = {claim},
                               .profile = &r->learnt,
                               .correction = 1};
    struct wp_verdict d;
    struct wp_err err;

    wp_predict(&q, &v, 0.5, &d);
    a->rig = r;
    a->at_us = now;
    a->tokens = tokens;
    a->predicted = d.ttft_us;
    a->waits = v.wait_us > 0;
    wp_interval_of(&r->interval[a->waits], d.ttft_us, &a->low, &a->high);
    a->sample = (struct wp_sample){.from = claim,
                                   .to = tokens,
                                   .decoding = r->load.decoding,
                                   .kv_tokens = (double)r->load.kv_tokens,
                                   .queued = !wp_list_empty(&r->load.waiting)};
    wp_load_begin(&r->load, &a->item, &r->learnt, now, wp_prefill_us(&r->learnt, claim, tokens),
                  tokens - claim, tokens);
    for (size_t k = 0; k < tokens / BLOCK; k++) /* one of eight prefixes, and then its own */
        chain[k] = k < hit / BLOCK ? 1000 * (1 + hit) + k : 1000000 * (i + 1) + k;
    EXPECT_INT(
        "asked", 0,
        wp_model_submit(r->engine, now, chain, tokens / BLOCK, tokens, output, a, &a->req, &err));
}

/* Requests come by chance; busy: the share of the engine's time that they take. */
static void play(struct rig *r, const struct wp_profile *true_one, double busy, uint64_t seed)
{
    struct wp_rng rng = {seed};
    double now = 1e6;

    for (size_t i = 0; i < REQUESTS; i++) {
        uint32_t hit = (uint32_t)wp_rng_below(&rng, 6) * 2 * BLOCK;
        uint32_t tokens = hit + 1 + (uint32_t)(wp_rng_exp(&rng, 4000));
        double gap;

        if (tokens > 60000)
            tokens = 60000;
        gap = (wp_prefill_us(true_one, hit, tokens) * wp_slow_down(true_one, 10, 50000) +
               true_one->tw_us) /
              busy;
        now += wp_rng_exp(&rng, 1) * gap;
        wp_model_run(r->engine, (uint64_t)now);
        ask(r, i, (uint64_t)now, tokens, hit, 1 + (uint32_t)wp_rng_below(&rng, 200));
    }
    wp_model_run(r->engine, (uint64_t)now + 3600000000u);
}

static void end(struct rig *r)
{
    wp_model_destroy(r->engine);
    wp_free(r->asked);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of |predicted / actual - 1| over requests from..to. */
static double median_error(const struct rig *r, size_t from, size_t to)
{
    static double e[REQUESTS];
    size_t n = 0;

    for (size_t i = from; i < to; i++)
        e[n++] =
            fabs(r->asked[i].predicted / (double)(r->asked[i].first_us - r->asked[i].at_us) - 1);
    qsort(e, n, sizeof *e, by_size);
    return e[n / 2];
}

/* ---- engines that are not what they are said to be ---- */

static const struct off {
    const char *name;
    double a, b, steps, decode, constant_us;
} engines[] = {
    {"as the profile says", 1, 1, 1, 1, 0},
    {"three times slower", 3, 3, 3, 3, 0},
    {"three times faster", 1 / 3.0, 1 / 3.0, 1 / 3.0, 1 / 3.0, 0},
    {"slow to compute", 3, 1, 1, 1, 0},
    {"slow at attention", 1.2, 3, 1, 1, 0},
    {"slow at its steps", 1, 1, 3, 3, 0},
    {"fast, but for its steps", 1 / 3.0, 1 / 2.0, 2, 1, 0},
};

static struct wp_profile made(const struct off *o)
{
    struct wp_profile p = *wp_profile_default();

    p.a_us *= o->a;
    p.b_us *= o->b;
    p.tov_us *= o->steps;
    p.tw_us *= o->steps;
    p.e_us *= o->decode;
    p.d_us *= o->decode;
    p.t_c_us += o->constant_us;
    p.gpu_tokens *= 100; /* what is there stays there */
    return p;
}

static void an_engine_is_learnt_within_two_hundred_requests(void)
{
    static const double loads[] = {0.05, 0.4, 0.7};
    double inside = 0, judged = 0;

    for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++)
        for (size_t k = 0; k < 3; k++)
            for (unsigned usage = 0; usage < 2; usage++) {
                struct wp_profile t = made(&engines[i]);
                struct rig r = {.usage = usage};
                char label[96];
                double e;

                begin(&r, wp_profile_default(), &t);
                play(&r, &t, loads[k], 11 + k);
                e = median_error(&r, LEARNT, 2 * LEARNT);
                snprintf(label, sizeof label,
                         "%s, busy %.2f, usage %d: median error %.3f, inside %.3f", engines[i].name,
                         loads[k], usage, e, (double)r.inside / (double)r.judged);
                EXPECT_TRUE(label, e <= 0.15);
                inside += (double)r.inside;
                judged += (double)r.judged;
                end(&r);
            }
    EXPECT_NEAR("nine of ten fall inside their interval", 0.9, inside / judged, 0.03);
}

/* ---- feedback that is wrong ---- */

static void absurd_first_tokens_move_little(void)
{
    static const double lies[] = {NAN, INFINITY, -INFINITY, -5, 0, 1e300};
    struct wp_profile t = made(&engines[1]);
    struct rig r = {.usage = true, .lie = LIES};
    struct wp_calibration before;

    begin(&r, wp_profile_default(), &t);
    play(&r, &t, 0.4, 5);
    EXPECT_TRUE("learnt among lies", median_error(&r, LEARNT, REQUESTS) <= 0.15);
    EXPECT_TRUE("they were seen to be none", r.cal.clipped > REQUESTS / LIES / 4);
    before = r.cal;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct wp_work w = wp_work_of(&r.believed, 0, 4096, 0, 0, false), none = {.part = {0}};

        EXPECT_TRUE("refused", !wp_calibration_hear(&r.cal, &w, lies[i], 0));
        EXPECT_TRUE("no work", !wp_calibration_hear(&r.cal, &none, 1000, 0));
    }
    EXPECT_NEAR("and nothing moved", before.fact[0], r.cal.fact[0], 0);
    end(&r);
}

/* One engine says nothing of its cache, and has but half of what is claimed of it: no worse than
 * the claims are. */
static void wrong_claims_keep_it_within_bounds(void)
{
    struct wp_profile t = made(&engines[0]);
    struct rig r = {.claim_more = 2048};

    begin(&r, wp_profile_default(), &t);
    play(&r, &t, 0.4, 6);
    EXPECT_TRUE("predictions are as good as they can be",
                median_error(&r, LEARNT, REQUESTS) <= 0.35);
    EXPECT_TRUE("compute", r.cal.fact[WP_FACT_COMPUTE] > 0.5 && r.cal.fact[WP_FACT_COMPUTE] < 2);
    end(&r);
}

static void any_feedback_leaves_it_finite_and_bounded(void)
{
    struct wp_rng rng = {9};
    struct wp_calibration c;
    struct wp_profile p;

    for (int kind = 0; kind < 4; kind++) {
        wp_calibration_init(&c, wp_profile_default());
        for (int i = 0; i < 20000; i++) {
            uint32_t from = (uint32_t)wp_rng_below(&rng, 100000);
            struct wp_work w = wp_work_of(
                wp_profile_default(), from, from + wp_rng_below(&rng, 100000),
                (double)wp_rng_below(&rng, 300), (double)wp_rng_below(&rng, 2000000), i % 2);
            double us = kind == 0    ? 1e-300
                        : kind == 1  ? 3.5e9
                        : kind == 2  ? wp_rng_exp(&rng, 1e7)
                        : i / 10 % 2 ? 1
                                     : 1e9;

            wp_calibration_hear(&c, &w, us, 0);
        }
        wp_calibration_apply(&c, wp_profile_default(), &p);
        for (int i = 0; i < WP_FACTS; i++) {
            EXPECT_TRUE(wp_fact_names[i], c.fact[i] >= 0 && c.fact[i] <= 10000);
            for (int k = 0; k < WP_FACTS; k++)
                EXPECT_TRUE("belief", isfinite(c.cov[i][k]));
        }
        EXPECT_TRUE("a profile",
                    p.a_us > 0 && isfinite(p.a_us) && p.a_us <= 20 * wp_profile_default()->a_us);
    }
}

/* ---- an engine changes ---- */

static void another_engine_behind_the_same_name_is_learnt_anew(void)
{
    struct wp_calibration c;
    struct wp_rng rng = {4};

    wp_calibration_init(&c, wp_profile_default());
    for (int i = 0; i < 600; i++) {
        uint32_t from = 512 * (uint32_t)wp_rng_below(&rng, 10);
        struct wp_work w = wp_work_of(wp_profile_default(), from,
                                      from + 1000 + wp_rng_below(&rng, 8000), 5, 20000, true);

        wp_calibration_hear(&c, &w, wp_work_us(&w) * (i < 300 ? 1 : 4) + 1000 * wp_rng_unit(&rng),
                            0);
        if (i == 299)
            EXPECT_NEAR("the first", 1, wp_calibration_us(&c, &w) / wp_work_us(&w), 0.05);
        if (i == 340)
            EXPECT_NEAR("the second, forty requests later", 4,
                        wp_calibration_us(&c, &w) / wp_work_us(&w), 0.4);
    }
    EXPECT_TRUE("seen to be another", c.reopened >= 1 && c.reopened < 5);
}

static void what_is_not_known_yet_is_said_to_be_so(void)
{
    struct wp_calibration c;
    struct wp_work prefill = wp_work_of(wp_profile_default(), 0, 4096, 0, 0, false),
                   long_one = wp_work_of(wp_profile_default(), 0, 100000, 0, 0, false);
    double first;

    wp_calibration_init(&c, wp_profile_default());
    first = wp_calibration_error(&c, &prefill);
    EXPECT_TRUE("at first all may be off", first > 0.8);
    for (int i = 0; i < 100; i++)
        wp_calibration_hear(&c, &prefill, 3 * wp_work_us(&prefill), 0);
    EXPECT_TRUE("what was seen is known", wp_calibration_error(&c, &prefill) < 0.03);
    EXPECT_TRUE("what was not is less so",
                wp_calibration_error(&c, &long_one) > 2 * wp_calibration_error(&c, &prefill));
    EXPECT_NEAR("but it moved along", 3, wp_calibration_us(&c, &long_one) / wp_work_us(&long_one),
                0.5);
    EXPECT_TRUE("a deviation", wp_calibration_sd(&c, WP_FACT_COMPUTE) < 0.3);
}

static void an_interval_is_exact_for_any_law(void)
{
    struct wp_rng rng = {12};

    for (int law = 0; law < 3; law++) {
        struct wp_interval i = {.n = 0};
        unsigned inside = 0;

        for (int k = 0; k < 5000; k++) {
            double actual = law == 0   ? 1000
                            : law == 1 ? wp_rng_exp(&rng, 1000)
                                       : 1000 * exp(wp_rng_normal(&rng)),
                   low, high;

            if (law == 0)
                actual += wp_rng_unit(&rng);
            wp_interval_of(&i, 1000, &low, &high);
            EXPECT_TRUE("in order", low <= high);
            inside += k >= 200 && actual >= low && actual <= high;
            wp_interval_hear(&i, 1000, actual);
        }
        EXPECT_NEAR("inside", 1 - 12 / 129.0, inside / 4800.0, 0.02);
        EXPECT_INT("no prediction", 0, wp_interval_hear(&i, NAN, 5));
        EXPECT_INT("nonsense", 0, wp_interval_hear(&i, 1000, -5));
        EXPECT_UINT("heard", 5000, i.n);
    }
}

/* Two idle workers, one learnt to be three hundredths faster: a tie while that may be chance. */
static void what_may_be_chance_is_a_tie(void)
{
    static const double errors[] = {0, 0.05};
    struct wp_policy_conf conf;
    struct wp_policy *policy;
    struct wp_err err = WP_ERR_INIT;

    wp_policy_conf_init(&conf);
    EXPECT_INT("policy", 0, wp_policy_create(&policy, "price", &conf, &err));
    for (int k = 0; k < 2; k++) {
        struct wp_profile fast = *wp_profile_default();
        unsigned slow_ones = 0;

        fast.a_us *= 0.95;
        for (uint64_t i = 0; i < 100; i++) {
            struct wp_ask ask = {.tokens = 8192, .draw = i * 0x9E3779B97F4A7C15u};
            struct wp_worker_view w[2] = {{.key = 1, .profile = &fast, .correction = 1, .error = errors[k]},
                                          {.key = 2, .profile = wp_profile_default(), .correction = 1, .error = errors[k]}};
            struct wp_verdict v[2];

            slow_ones += policy->ops->choose(policy, &ask, w, 2, v) == 1;
        }
        EXPECT_TRUE("each gets its part when nobody knows", k ? slow_ones > 25 && slow_ones < 75 : slow_ones == 0);
    }
    policy->ops->destroy(policy);
}

static void profiles_without_costs_are_left_alone(void)
{
    struct wp_profile nothing = {.name = "nothing"}, out;
    struct wp_calibration c;
    struct wp_work w;

    wp_calibration_init(&c, &nothing);
    w = wp_work_of(&nothing, 0, 1000, 3, 1000, true);
    EXPECT_TRUE("nothing to learn from", !wp_calibration_hear(&c, &w, 1000, 0));
    wp_calibration_apply(&c, &nothing, &out);
    EXPECT_NEAR("nothing", 0, out.a_us, 0);
    EXPECT_NEAR("no work", 0, wp_work_us(&(struct wp_work){.part = {0}}), 0);
}

static const struct wp_test tests[] = {
    {"an engine is learnt within two hundred requests",
     an_engine_is_learnt_within_two_hundred_requests},
    {"absurd first tokens move little", absurd_first_tokens_move_little},
    {"wrong claims keep it within bounds", wrong_claims_keep_it_within_bounds},
    {"any feedback leaves it finite and bounded", any_feedback_leaves_it_finite_and_bounded},
    {"another engine behind the same name is learnt anew",
     another_engine_behind_the_same_name_is_learnt_anew},
    {"what is not known yet is said to be so", what_is_not_known_yet_is_said_to_be_so},
    {"an interval is exact for any law", an_interval_is_exact_for_any_law},
    {"what may be chance is a tie", what_may_be_chance_is_a_tie},
    {"profiles without costs are left alone", profiles_without_costs_are_left_alone},
    {NULL, NULL},
};
const struct wp_suite suite_calibrate = {"calibrate", tests};
