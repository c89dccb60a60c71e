/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/replay.h"

#include "base/mem.h"
#include "sim/policy_set.h"
#include "tests/lib/test.h"

#include <string.h>

static void make_plays(struct wp_plays *p, size_t requests, double scale, uint64_t seed)
{
    struct wp_trace_spec spec = {.kind = "chat", .requests = requests, .seed = 3};
    struct wp_plays_conf conf = {
        .copies = 2, .scale = scale, .jitter_s = 1, .warmup = 0.1, .seed = seed};
    struct wp_trace t;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("trace", 0, wp_trace_make(&t, &spec, &err));
    EXPECT_INT("plays", 0, wp_plays_make(p, &t, &conf, &err));
    wp_trace_fini(&t);
}

static struct wp_report *run(const struct wp_plays *p, const char *policy, bool pull,
                             uint64_t stale_us, uint64_t store)
{
    struct wp_report *r = NULL;
    struct wp_replay_conf c;
    struct wp_err err = WP_ERR_INIT;

    wp_replay_conf_init(&c);
    c.workers = 4;
    c.policy = policy;
    c.policy_conf.pull = pull;
    c.stale_us = stale_us;
    c.store_blocks = store;
    c.profile.gpu_tokens = 400 * 512;
    c.profile.cpu_tokens = 300 * 512;
    EXPECT_INT(policy, 0, wp_replay_run(&r, &c, p, &err));
    return r;
}

static size_t measured(const struct wp_plays *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        n += !p->play[i].warm;
    return n;
}

static void every_policy_plays_the_same_trace_twice_alike(void)
{
    struct wp_plays p;

    make_plays(&p, 200, 0.3, 1);
    for (size_t i = 0; wp_policies[i]; i++) {
        for (int k = 0; k < 4; k++) {
            struct wp_buf once = {0}, again = {0};
            struct wp_figures f;

            for (int turn = 0; turn < 2; turn++) {
                struct wp_report *r =
                    run(&p, wp_policies[i]->name, k & 1, k & 2 ? 500000 : 0, k & 1 ? 2000 : 0);

                if (!r)
                    continue;
                wp_report_figures(r, &f);
                wp_report_json(r, turn ? &again : &once);
                wp_report_destroy(r);
            }
            EXPECT_UINT(wp_policies[i]->name, measured(&p), f.requests);
            EXPECT_UINT("no errors", 0, f.errors);
            EXPECT_TRUE("some hits", f.hit > 0.01);
            EXPECT_TRUE("a time", f.ttft_mean_s > 0.01 && f.ttft_mean_s < 1000);
            EXPECT_TRUE("again", wp_str_eq(wp_buf_str(&once), wp_buf_str(&again)));
            EXPECT_TRUE("pulling moves bytes", !(k & 1) || f.bytes_fetched > 0);
            wp_buf_fini(&once);
            wp_buf_fini(&again);
        }
    }
    wp_plays_fini(&p);
    EXPECT_INT("nothing leaks", 0, wp_mem_live());
}

static void another_seed_is_another_load(void)
{
    struct wp_plays p, q;
    struct wp_report *a, *b;
    struct wp_figures f, g;

    make_plays(&p, 300, 1, 1);
    make_plays(&q, 300, 1, 2);
    a = run(&p, "random", false, 0, 0);
    b = run(&q, "random", false, 0, 0);
    wp_report_figures(a, &f);
    wp_report_figures(b, &g);
    EXPECT_TRUE("other figures", f.ttft_mean_s != g.ttft_mean_s);
    EXPECT_UINT("of as many", f.requests, g.requests);
    wp_report_destroy(a);
    wp_report_destroy(b);
    wp_plays_fini(&p);
    wp_plays_fini(&q);
}

static void what_can_never_fit_is_an_error_of_its_own(void)
{
    struct wp_plays p;
    struct wp_report *r;
    struct wp_figures f;
    size_t large = 0;

    make_plays(&p, 200, 1, 1);
    for (size_t i = 0; i < p.n; i += 5) {
        p.play[i].output = 400 * 512;
        large += !p.play[i].warm;
    }
    r = run(&p, "price", false, 0, 0);
    wp_report_figures(r, &f);
    EXPECT_UINT("errors", large, f.errors);
    EXPECT_UINT("all are counted", measured(&p), f.requests);
    wp_report_destroy(r);
    wp_plays_fini(&p);
}

static void any_allocation_may_fail(void)
{
    struct wp_plays p;
    long live, nth = 0;

    make_plays(&p, 3, 1, 1);
    live = wp_mem_live();
    for (;; nth++) {
        struct wp_report *r = NULL;
        struct wp_replay_conf c;
        struct wp_err err = WP_ERR_INIT;
        int rc;

        wp_replay_conf_init(&c);
        c.workers = 2;
        c.policy = "conductor";
        c.stale_us = 1000;
        wp_mem_fail_after(nth);
        rc = wp_replay_run(&r, &c, &p, &err);
        if (!wp_mem_failed()) {
            EXPECT_INT("works in the end", 0, rc);
            wp_report_destroy(r);
            break;
        }
        if (rc == 0) /* what the mind could not note is no failure */
            wp_report_destroy(r);
        else
            EXPECT_INT("reported", WP_ENOMEM, rc);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
    wp_mem_fail_after(-1);
    EXPECT_TRUE("some were tried", nth > 20);
    wp_plays_fini(&p);
}

static void settings_are_read_and_refused(void)
{
    static const char *const good[] = {"policy.llmd.queue=7", "policy.pull=true",
                                       "fleet.link_bytes_per_s=5e9", "slo.itl_ms=80"};
    static const struct {
        const char *set, *want;
    } bad[] = {
        {"policy.dynamo.prefil_weight=2", "prefill_weight"},
        {"polic.bound=2", "policy"},
        {"policy.bound=0.5", "want a number from 1"},
        {"fleet.store_blocks=-1", "want a whole number"},
        {"slo", "="},
    };
    struct wp_settings s;
    struct wp_err err = WP_ERR_INIT;
    struct wp_policy_conf d;

    wp_policy_conf_init(&d);
    EXPECT_INT("none", 0, wp_settings_read(&s, NULL, 0, &err));
    EXPECT_NEAR("a default", d.sglang_match, s.policy.sglang_match, 0);
    EXPECT_NEAR("a default", 25e9, s.fleet.link_bytes_per_s, 0);
    EXPECT_INT("some", 0, wp_settings_read(&s, good, 4, &err));
    EXPECT_NEAR("queue", 7, s.policy.llmd_queue, 0);
    EXPECT_TRUE("pull", s.policy.pull);
    EXPECT_NEAR("link", 5e9, s.fleet.link_bytes_per_s, 0);
    EXPECT_NEAR("itl", 80, s.slo.itl_ms, 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT_INT(bad[i].set, WP_EUSAGE, wp_settings_read(&s, &bad[i].set, 1, &err));
        if (!strstr(err.text, bad[i].want))
            EXPECT_TEXT(bad[i].set, bad[i].want, wp_str_of(err.text));
    }
    EXPECT_INT("nothing leaks", 0, wp_mem_live());
}

#define TEST(f, name) \
    {                 \
        name, f       \
    }
const struct wp_suite suite_replay = {
    "replay",
    (const struct wp_test[]){
        /* clang-format off */
        TEST(every_policy_plays_the_same_trace_twice_alike, "every policy plays the same trace twice alike"),
        TEST(another_seed_is_another_load, "another seed is another load"),
        TEST(what_can_never_fit_is_an_error_of_its_own, "what can never fit is an error of its own"),
        TEST(any_allocation_may_fail, "any allocation may fail"),
        TEST(settings_are_read_and_refused, "settings are read and refused"),
        {NULL, NULL},
        /* clang-format on */
    },
};
