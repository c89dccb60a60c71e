/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/tune.h"

#include "tests/lib/test.h"

#include <jansson.h>

static struct wp_trace trace;
static struct wp_replay_conf replay;
static struct wp_plays_conf plays;

static void set_up(const char *policy, size_t requests)
{
    struct wp_trace_spec spec = {.kind = "agent", .requests = requests, .seed = 5};
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("trace", 0, wp_trace_make(&trace, &spec, &err));
    wp_replay_conf_init(&replay);
    replay.workers = 4;
    replay.policy = policy;
    replay.profile.gpu_tokens = 400 * 512;
    replay.profile.cpu_tokens = 1000 * 512;
    plays =
        (struct wp_plays_conf){.copies = 1, .scale = 0.4, .jitter_s = 1, .warmup = 0.1, .seed = 1};
}

static struct wp_tune_conf conf(size_t evaluations)
{
    return (struct wp_tune_conf){
        .replay = &replay, .plays = &plays, .share = 0.6, .evaluations = evaluations};
}

static void a_setting_that_is_far_off_is_found(void)
{
    struct wp_tune_conf c = conf(10);
    struct wp_tune_result r;
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf text = {0}, json = {0};
    json_t *root;

    set_up("llmd", 500);
    replay.policy_conf.llmd_prefix = 0.01; /* what is cached hardly counts */
    EXPECT_INT("searched", 0, wp_tune_run(&r, &c, &trace, &err));
    EXPECT_TRUE("within its bound", r.evaluations <= 10 && r.evaluations > 2);
    EXPECT_UINT("its knobs", 3, r.n_knobs);
    EXPECT_TRUE("it went up", r.knob[0].to > 0.02);
    EXPECT_TRUE("it is better there", r.search_to < 0.99 * r.search_from);
    EXPECT_TRUE("and on what was held out", r.real && r.ratio < 0.8);
    EXPECT_UINT("all requests are of one part", 500, r.searched + r.held_out);
    EXPECT_INT("text", 0, wp_tune_text(&r, &c, &text));
    EXPECT_INT("json", 0, wp_tune_json(&r, &c, &json));
    wp_buf_add(&text, "", 1);
    EXPECT_TRUE("for the configuration",
                strstr(text.p, "policy:\n  name: llmd\n  llmd:\n    prefix: ") != NULL);
    root = json_loadb(json.p, json.n, 0, NULL);
    EXPECT_TRUE("it is JSON", root != NULL);
    EXPECT_TRUE("and says so", json_is_true(json_object_get(root, "real")));
    EXPECT_TRUE("with the same lines",
                json_is_string(json_object_get(root, "configuration")) &&
                    strstr(text.p, json_string_value(json_object_get(root, "configuration"))) !=
                        NULL);
    json_decref(root);
    wp_buf_fini(&text);
    wp_buf_fini(&json);
    wp_trace_fini(&trace);
}

static void the_same_search_finds_the_same(void)
{
    struct wp_buf json[2] = {{0}, {0}};

    for (int k = 0; k < 2; k++) {
        struct wp_tune_conf c = conf(4);
        struct wp_tune_result r;
        struct wp_err err = WP_ERR_INIT;

        set_up("price", 260);
        EXPECT_INT("searched", 0, wp_tune_run(&r, &c, &trace, &err));
        EXPECT_INT("json", 0, wp_tune_json(&r, &c, &json[k]));
        wp_trace_fini(&trace);
    }
    EXPECT_TRUE("to the byte",
                json[0].n == json[1].n && memcmp(json[0].p, json[1].p, json[0].n) == 0);
    wp_buf_fini(&json[0]);
    wp_buf_fini(&json[1]);
}

static void nothing_found_is_no_gain(void)
{
    struct wp_tune_conf c = conf(1);
    struct wp_tune_result r;
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf text = {0};

    set_up("price", 260);
    EXPECT_INT("searched", 0, wp_tune_run(&r, &c, &trace, &err));
    EXPECT_UINT("the settings as they are, and no more", 1, r.evaluations);
    EXPECT_UINT("nothing changed", 0, r.changed);
    EXPECT_TRUE("no gain", !r.real && r.ratio == 1);
    EXPECT_INT("text", 0, wp_tune_text(&r, &c, &text));
    wp_buf_add(&text, "", 1);
    EXPECT_TRUE("it says so", strstr(text.p, "leave the settings as they are") != NULL);
    EXPECT_TRUE("and offers none", strstr(text.p, "policy:\n") == NULL);
    wp_buf_fini(&text);
    wp_trace_fini(&trace);
}

static void what_cannot_be_tuned_is_told(void)
{
    static const struct {
        const char *policy, *figure;
        size_t requests;
        const char *why;
    } cases[] = {
        {"round_robin", NULL, 400, "--tune: there is nothing to tune in round_robin"},
        {"price", "ttft", 400, "--tune-for: unknown figure \"ttft\""},
        {"price", NULL, 150, "want at least 100 of each"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_tune_conf c = conf(5);
        struct wp_tune_result r;
        struct wp_err err = WP_ERR_INIT;

        set_up(cases[i].policy, cases[i].requests);
        c.figure = cases[i].figure;
        EXPECT_INT(cases[i].why, WP_EINVAL, wp_tune_run(&r, &c, &trace, &err));
        EXPECT_TRUE(err.text, strstr(err.text, cases[i].why) != NULL);
        wp_trace_fini(&trace);
    }
}

static void every_figure_is_small_when_it_is_good(void)
{
    struct wp_figures good = {.slo = 0.99}, bad = {.ttft_mean_s = 1,
                                                   .ttft_p50_s = 1,
                                                   .ttft_p90_s = 1,
                                                   .ttft_p99_s = 1,
                                                   .e2e_p99_s = 1,
                                                   .slo = 0.5};

    for (const char *const *f = wp_tune_figures(); *f; f++)
        EXPECT_TRUE(*f, wp_tune_figure(&good, *f) < wp_tune_figure(&bad, *f));
}

static const struct wp_test tests[] = {
    {"a setting that is far off is found", a_setting_that_is_far_off_is_found},
    {"the same search finds the same", the_same_search_finds_the_same},
    {"nothing found is no gain", nothing_found_is_no_gain},
    {"what cannot be tuned is told", what_cannot_be_tuned_is_told},
    {"every figure is small when it is good", every_figure_is_small_when_it_is_good},
    {NULL, NULL},
};
const struct wp_suite suite_tune = {"tune", tests};
