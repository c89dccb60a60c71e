/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions into files: what is told is there, what does not fit is counted and said, and files take turns. */
#include "router/recorder.h"

#include "base/mem.h"
#include "sim/decisions.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORKERS = 64 };

static char folder[64], file[80], old[90];
static struct wp_metrics *metrics;
static struct wp_policy *policy;
static struct wp_policy_conf conf;

static void set_up(void)
{
    struct wp_err err = WP_ERR_INIT;

    snprintf(folder, sizeof folder, "%s/wp-recorder-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    EXPECT_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/d", folder);
    snprintf(old, sizeof old, "%s.old", file);
    EXPECT_INT("metrics", 0, wp_metrics_create(&metrics, &err));
    wp_policy_conf_init(&conf);
    EXPECT_INT("policy", 0, wp_policy_create(&policy, "price", &conf, &err));
}

static void tear_down(void)
{
    unlink(file);
    unlink(old);
    EXPECT_INT("nothing else is there", 0, rmdir(folder));
    policy->ops->destroy(policy);
    wp_metrics_destroy(metrics);
}

static double count(const char *name)
{
    return wp_series_value(WP_SERIES0(wp_family(metrics, WP_COUNTER, name, "", "", NULL, 0)));
}

static void tell(struct wp_recorder *r, uint64_t id)
{
    static struct wp_worker_view v[WORKERS];
    static struct wp_verdict made[WORKERS];
    struct wp_ask ask = {.tokens = 1000, .draw = id};
    struct wp_decision d = {.id = id, .placed = true, .ask = &ask, .w = v, .v = made, .n = WORKERS};

    for (size_t i = 0; i < WORKERS; i++)
        v[i] = (struct wp_worker_view){.key = i + 1, .wait_us = 0.1 + (double)id + (double)i, .error = 0.01};
    d.chosen = policy->ops->choose(policy, &ask, v, WORKERS, made);
    wp_recorder_decision(r, &d);
}

/* What a file has, which must be whole. */
static struct wp_decision_counts counts_of(const char *name)
{
    static char bytes[64 << 20];
    FILE *f = fopen(name, "rb");
    struct wp_decisions d = {.seconds = 0};
    struct wp_err err = WP_ERR_INIT;
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;

    EXPECT_TRUE(name, f != NULL);
    if (f)
        fclose(f);
    EXPECT_INT(name, 0, wp_decisions_check(&d, bytes, n, &err));
    EXPECT_UINT(name, d.count.decisions, d.count.same);
    return d.count;
}

static void what_is_told_is_there(void)
{
    struct wp_recorder *r;
    struct wp_err err = WP_ERR_INIT;
    struct wp_decision_counts c;
    struct stat st;

    set_up();
    EXPECT_INT("recorder", 0, wp_recorder_create(&r, file, UINT64_MAX, metrics, &err));
    wp_recorder_policy(r, "price", &conf);
    for (uint64_t i = 1; i <= 100; i++) {
        tell(r, i);
        wp_recorder_outcome(r, i, 1.5, "good");
    }
    wp_recorder_destroy(r);
    c = counts_of(file);
    EXPECT_UINT("decisions", 100, c.decisions);
    EXPECT_UINT("outcomes", 100, c.outcomes);
    EXPECT_NEAR("counted", 200, count("warmpath_records_total"), 0);
    EXPECT_TRUE("for its owner alone", stat(file, &st) == 0 && (st.st_mode & 0777) == 0600);
    EXPECT_INT("the next one", 0, wp_recorder_create(&r, file, UINT64_MAX, metrics, &err));
    wp_recorder_destroy(r);
    EXPECT_UINT("finds it and puts it aside", 100, counts_of(old).decisions);
    EXPECT_UINT("and has nothing itself", 0, counts_of(file).decisions);
    tear_down();
}

/* Some 100 MB as fast as can be: whether the writer follows or not, what is not there is said. */
static void what_does_not_fit_is_counted(void)
{
    struct wp_recorder *r;
    struct wp_err err = WP_ERR_INIT;
    struct wp_decision_counts c;

    set_up();
    EXPECT_INT("recorder", 0, wp_recorder_create(&r, file, UINT64_MAX, metrics, &err));
    wp_recorder_policy(r, "price", &conf);
    for (uint64_t i = 1; i <= 10000; i++)
        tell(r, i);
    while (count("warmpath_records_total") < 1)
        tell(r, 1);
    wp_recorder_destroy(r);
    c = counts_of(file);
    EXPECT_NEAR("kept", count("warmpath_records_total"), (double)c.decisions, 0);
    EXPECT_TRUE("dropped, but for those behind the last that was kept", (double)c.lost <= count("warmpath_records_dropped_total"));
    EXPECT_NEAR("all", 10000, count("warmpath_records_total") + count("warmpath_records_dropped_total"), 0);
    tear_down();
}

static void files_take_turns(void)
{
    struct wp_recorder *r;
    struct wp_err err = WP_ERR_INIT;
    struct wp_decision_counts a, b;
    struct stat st;
    uint64_t told = 0;

    set_up();
    EXPECT_INT("recorder", 0, wp_recorder_create(&r, file, 100000, metrics, &err));
    wp_recorder_policy(r, "price", &conf);
    while (stat(old, &st) < 0 && told < 10000000)
        tell(r, ++told);
    for (int i = 0; i < 10; i++)
        tell(r, ++told);
    wp_recorder_destroy(r);
    a = counts_of(old);
    b = counts_of(file);
    EXPECT_TRUE("each is whole by itself", a.decisions > 0 && b.decisions > 0);
    EXPECT_TRUE("none is twice there", a.decisions + b.decisions <= told);
    tear_down();
}

static void a_folder_that_is_not_there_is_told_of(void)
{
    struct wp_recorder *r;
    struct wp_err err = WP_ERR_INIT;

    set_up();
    EXPECT_TRUE("no such folder", wp_recorder_create(&r, "/nonexistent/file", 1 << 20, metrics, &err) < 0);
    EXPECT_TRUE("named", strstr(err.text, "/nonexistent/file") != NULL);
    tear_down();
}

static const struct wp_test tests[] = {
    {"what is told is there", what_is_told_is_there},
    {"what does not fit is counted", what_does_not_fit_is_counted},
    {"files take turns", files_take_turns},
    {"a folder that is not there is told of", a_folder_that_is_not_there_is_told_of},
    {NULL, NULL},
};
const struct wp_suite suite_recorder = {"recorder", tests};
