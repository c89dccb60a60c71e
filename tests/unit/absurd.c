/* SPDX-License-Identifier: Apache-2.0 */
/* Absurd facts and settings have defined answers: every policy, every number that it is told, every
 * setting at its bounds. */
#include "policies/decision.h"
#include "sim/replay.h"

#include "base/rng.h"
#include "tests/lib/test.h"

#include <float.h>
#include <math.h>

enum { WORKERS = 4, ROUNDS = 4000 };

static const double numbers[] = {0, -1, 1, 1e6, 1e300, -1e300, DBL_MIN, NAN, INFINITY, -INFINITY};
static const uint32_t counts[] = {0, 1, 16, 4096, 1 << 24, UINT32_MAX};

static double number(struct wp_rng *r)
{
    return numbers[wp_rng_below(r, sizeof numbers / sizeof numbers[0])];
}

static uint32_t count(struct wp_rng *r)
{
    return counts[wp_rng_below(r, sizeof counts / sizeof counts[0])];
}

static void any_view(struct wp_rng *r, struct wp_worker_view *w, size_t i)
{
    *w = (struct wp_worker_view){
        .key = i + 1,
        .in_flight = count(r),
        .decoding = count(r),
        .kv_tokens = count(r),
        .wait_us = number(r),
        .waiting = count(r),
        .prefill_tokens = count(r),
        .pinned = number(r),
        .active_blocks = count(r),
        .fresh_blocks = count(r),
        .has_tokens = count(r),
        .in_busy_us = number(r),
        .out_busy_us = number(r),
        .link_bytes_per_s = number(r),
        .hit_tokens = count(r),
        .doubtful = count(r),
        .block_size = count(r),
        .correction = number(r),
        .error = number(r),
        .index_tokens = count(r),
    };
    w->hit_tier[wp_rng_below(r, WP_TIERS)] = w->hit_tokens;
}

static void any_ask(struct wp_rng *r, struct wp_ask *ask)
{
    *ask = (struct wp_ask){
        .now_us = wp_rng_next(r) >> (wp_rng_next(r) % 64),
        .draw = wp_rng_next(r),
        .tokens = count(r),
        .exact = wp_rng_below(r, 2),
        .max_tokens = count(r),
        .prefix_key = count(r),
        .session_key = count(r),
        .latency_us = number(r),
        .room = {wp_rng_below(r, 2), number(r), number(r)},
        .queued = wp_rng_below(r, 2),
    };
}

static void a_choice(const struct wp_policy *p, size_t n, size_t at, const struct wp_verdict v[])
{
    if (n == 0) {
        EXPECT_UINT(p->ops->name, WP_NO_WORKER, at);
        return;
    }
    if (at >= n) {
        EXPECT_TRUE(p->ops->name, at < n);
        return;
    }
    if (v[at].n_fetch > WP_FETCHES)
        EXPECT_TRUE(p->ops->name, v[at].n_fetch <= WP_FETCHES);
    for (uint32_t k = 0; k < v[at].n_fetch && k < WP_FETCHES; k++)
        if (v[at].fetch[k].from >= v[at].fetch[k].to ||
            (v[at].fetch[k].source >= n && v[at].fetch[k].source != WP_POOL))
            EXPECT_TRUE("a transfer of something, from somebody", 0);
    if (strcmp(p->ops->name, "price") == 0 && !(v[at].price < INFINITY && v[at].ttft_us >= 0))
        EXPECT_TRUE("a price is a number, a prediction not negative", 0);
}

static void every_policy_chooses_whatever_it_is_told(void)
{
    struct wp_policy_conf c;
    struct wp_err err;
    struct wp_rng r = {77};

    for (size_t i = 0; wp_policies[i]; i++)
        for (int pull = 0; pull < 2; pull++) {
            struct wp_policy *p;

            wp_policy_conf_init(&c);
            c.pull = pull;
            EXPECT_INT("made", 0, wp_policy_create(&p, wp_policies[i]->name, &c, &err));
            for (int k = 0; k < ROUNDS; k++) {
                struct wp_worker_view w[WORKERS];
                struct wp_verdict v[WORKERS];
                struct wp_ask ask;
                size_t n = (size_t)wp_rng_below(&r, WORKERS + 1), at;

                any_ask(&r, &ask);
                for (size_t x = 0; x < n; x++)
                    any_view(&r, &w[x], x);
                at = p->ops->choose(p, &ask, w, n, v);
                a_choice(p, n, at, v);
                if (at < n && p->ops->placed)
                    p->ops->placed(p, &ask, &w[at]);
            }
            p->ops->destroy(p);
        }
}

/* ---- settings ---- */

static struct wp_plays plays;
static size_t measured;

static void make_plays(void)
{
    struct wp_trace_spec spec = {.kind = "chat", .requests = 120, .seed = 2};
    struct wp_plays_conf conf = {.copies = 1, .scale = 1.5, .jitter_s = 1, .seed = 1};
    struct wp_trace t;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("trace", 0, wp_trace_make(&t, &spec, &err));
    EXPECT_INT("plays", 0, wp_plays_make(&plays, &t, &conf, &err));
    wp_trace_fini(&t);
    measured = plays.n;
}

static void all_are_answered(const char *what, const char *policy, const struct wp_policy_conf *c,
                             double link_bytes_per_s, size_t workers)
{
    struct wp_replay_conf conf;
    struct wp_report *report = NULL;
    struct wp_figures f = {0};
    struct wp_err err = WP_ERR_INIT;

    wp_replay_conf_init(&conf);
    conf.workers = workers;
    conf.policy = policy;
    conf.policy_conf = *c;
    conf.link_bytes_per_s = link_bytes_per_s;
    conf.profile.gpu_tokens = 400 * 512;
    conf.profile.cpu_tokens = 200 * 512;
    EXPECT_INT(what, 0, wp_replay_run(&report, &conf, &plays, &err));
    if (report)
        wp_report_figures(report, &f);
    EXPECT_UINT(what, measured, f.requests);
    EXPECT_UINT(what, 0, f.errors);
    EXPECT_TRUE(what, isfinite(f.ttft_mean_s) && f.ttft_mean_s > 0);
    wp_report_destroy(report);
}

static void every_setting_at_its_bounds_answers_all(void)
{
    static const char *const values[] = {"0", "1e-6", "1", "1e6", "1e9", "1e12"};
    struct wp_decision_setting s[WP_DECISION_SETTINGS];
    struct wp_policy_conf c;
    struct wp_err err;
    size_t n, tried = 0;

    make_plays();
    wp_policy_conf_init(&c);
    n = wp_decision_settings(&c, s);
    for (size_t i = 0; i < n; i++) {
        const char *dot = strchr(s[i].name, '.');
        char policy[32];

        snprintf(policy, sizeof policy, "%.*s", dot ? (int)(dot - s[i].name) : 0, s[i].name);
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            wp_policy_conf_init(&c);
            if (wp_policy_set(&c, wp_str_of(s[i].name), wp_str_of(values[k]), &err) < 0)
                continue; /* beyond its bounds */
            all_are_answered(s[i].name, dot ? policy : "prefix_hash", &c, 25e9, 3);
            tried++;
        }
    }
    EXPECT_TRUE("each at two bounds or so", tried > 2 * n);
    wp_plays_fini(&plays);
}

static void links_and_fleets_that_are_hardly_there(void)
{
    struct wp_policy_conf c;

    make_plays();
    wp_policy_conf_init(&c);
    all_are_answered("a byte a second", "price", &c, 1, 3);
    all_are_answered("one worker", "price", &c, 25e9, 1);
    all_are_answered("one worker without links to speak of", "conductor", &c, 1, 1);
    c.hold_max = 1;
    c.hold_us = 0;
    all_are_answered("held at once, and one at most", "price", &c, 25e9, 2);
    c.hold_most_us = 0;
    all_are_answered("and not for any time", "price", &c, 25e9, 2);
    wp_plays_fini(&plays);
}

static const struct wp_test tests[] = {
    {"every policy chooses, whatever it is told", every_policy_chooses_whatever_it_is_told},
    {"every setting at its bounds answers all", every_setting_at_its_bounds_answers_all},
    {"links and fleets that are hardly there", links_and_fleets_that_are_hardly_there},
    {NULL, NULL},
};
const struct wp_suite suite_absurd = {"absurd", tests};
