/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static struct wp_metrics *make(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_metrics *m = NULL;

    if (wp_metrics_create(&m, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return m;
}

static void expect_page(const char *label, struct wp_metrics *m, const char *want)
{
    struct wp_buf page = {0};

    EXPECT_INT(label, 0, wp_metrics_render(m, &page));
    EXPECT_TEXT(label, want, wp_buf_str(&page));
    wp_buf_fini(&page);
}

static void a_page_has_families_in_order_and_series_from_zero(void)
{
    struct wp_metrics *m = make();
    struct wp_family *reqs =
        wp_family(m, WP_COUNTER, "requests_total", "Answered requests.", "model,code", NULL, 0);
    struct wp_family *up = wp_family(m, WP_GAUGE, "up", "1 when it is.", "", NULL, 0);
    struct wp_series *ok = WP_SERIES(reqs, "m", "200");

    (void)WP_SERIES(reqs, "m", "404");
    wp_count(ok, 2);
    wp_gauge_set(WP_SERIES0(up), -1.5);
    wp_gauge_add(WP_SERIES0(up), 2.25);
    EXPECT_TRUE("the same series twice", ok == WP_SERIES(reqs, "m", "200"));
    EXPECT_TRUE("the same family twice",
                reqs == wp_family(m, WP_COUNTER, "requests_total", "x", "model,code", NULL, 0));
    EXPECT_NEAR("value", 2, wp_series_value(ok), 0);
    EXPECT_NEAR("gauge", 0.75, wp_series_value(WP_SERIES0(up)), 0);
    expect_page("page", m,
                "# HELP requests_total Answered requests.\n"
                "# TYPE requests_total counter\n"
                "requests_total{model=\"m\",code=\"200\"} 2\n"
                "requests_total{model=\"m\",code=\"404\"} 0\n"
                "# HELP up 1 when it is.\n"
                "# TYPE up gauge\n"
                "up 0.75\n");
    wp_metrics_destroy(m);
}

static void a_histogram_is_cumulative_and_ends_in_inf(void)
{
    static const double bounds[] = {0.005, 0.1, 1, 2.5};
    struct wp_metrics *m = make();
    struct wp_family *f = wp_family(m, WP_HISTOGRAM, "ttft_seconds", "h", "model", bounds, 4);
    struct wp_family *bare = wp_family(m, WP_HISTOGRAM, "bare", "h", "", NULL, 0);
    struct wp_series *s = WP_SERIES(f, "a");

    wp_observe(s, 0.005); /* a bound belongs to its own bucket */
    wp_observe(s, 0.5);
    wp_observe(s, 2);
    wp_observe(s, 2.5);
    wp_observe(s, 100);
    wp_observe(s, NAN);
    wp_observe(WP_SERIES0(bare), 3);
    EXPECT_NEAR("count", 5, wp_series_value(s), 0);
    expect_page("page", m,
                "# HELP ttft_seconds h\n"
                "# TYPE ttft_seconds histogram\n"
                "ttft_seconds_bucket{model=\"a\",le=\"0.005\"} 1\n"
                "ttft_seconds_bucket{model=\"a\",le=\"0.1\"} 1\n"
                "ttft_seconds_bucket{model=\"a\",le=\"1\"} 2\n"
                "ttft_seconds_bucket{model=\"a\",le=\"2.5\"} 4\n"
                "ttft_seconds_bucket{model=\"a\",le=\"+Inf\"} 5\n"
                "ttft_seconds_sum{model=\"a\"} 105.005\n"
                "ttft_seconds_count{model=\"a\"} 5\n"
                "# HELP bare h\n"
                "# TYPE bare histogram\n"
                "bare_bucket{le=\"+Inf\"} 1\n"
                "bare_sum 3\n"
                "bare_count 1\n");
    wp_metrics_destroy(m);
}

static void what_would_break_a_line_is_escaped(void)
{
    struct wp_metrics *m = make();
    struct wp_family *f = wp_family(m, WP_GAUGE, "g", "a \\ and \"b\"\nand c", "l", NULL, 0);

    wp_gauge_set(WP_SERIES(f, "q\"b\\s\nn"), 1);
    wp_gauge_set(WP_SERIES(f, "gr\xC3\xBC\xC3\x9F\x65 \xFF\xC3"), 2);
    expect_page("page", m,
                "# HELP g a \\\\ and \"b\"\\nand c\n"
                "# TYPE g gauge\n"
                "g{l=\"q\\\"b\\\\s\\nn\"} 1\n"
                "g{l=\"gr\xC3\xBC\xC3\x9F\x65 \xEF\xBF\xBD\xEF\xBF\xBD\"} 2\n");
    wp_metrics_destroy(m);
}

static const struct {
    double x;
    const char *text;
} numbers[] = {
    {0, "0"},           {-0.0, "-0"},
    {0.1, "0.1"},       {1.0 / 3, "0.3333333333333333"},
    {1e21, "1e+21"},    {123456789012, "123456789012"},
    {INFINITY, "+Inf"}, {-INFINITY, "-Inf"},
    {NAN, "NaN"},       {5e-324, "4.94065645841247e-324"},
};

static void numbers_read_back_as_they_were(void)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct wp_metrics *m = make();
        char want[128];

        wp_gauge_set(WP_SERIES0(wp_family(m, WP_GAUGE, "g", "h", "", NULL, 0)), numbers[i].x);
        snprintf(want, sizeof want, "# HELP g h\n# TYPE g gauge\ng %s\n", numbers[i].text);
        expect_page(numbers[i].text, m, want);
        wp_metrics_destroy(m);
    }
}

static void counters_take_steps_and_fractions_and_never_fall(void)
{
    struct wp_metrics *m = make();
    struct wp_family *f = wp_family(m, WP_COUNTER, "c_total", "h", "", NULL, 0);

    wp_count(WP_SERIES0(f), 9007199254740993u);
    expect_page("exact past 2^53", m,
                "# HELP c_total h\n# TYPE c_total counter\nc_total 9007199254740993\n");
    wp_metrics_destroy(m);

    m = make();
    f = wp_family(m, WP_COUNTER, "c_total", "h", "", NULL, 0);
    wp_count(WP_SERIES0(f), 3);
    wp_count_f(WP_SERIES0(f), 0.25);
    wp_count_f(WP_SERIES0(f), -1);
    wp_count_f(WP_SERIES0(f), NAN);
    expect_page("mixed", m, "# HELP c_total h\n# TYPE c_total counter\nc_total 3.25\n");
    wp_metrics_destroy(m);
}

static void a_dropped_series_is_gone_and_comes_back_from_zero(void)
{
    struct wp_metrics *m = make();
    struct wp_family *f = wp_family(m, WP_COUNTER, "c_total", "h", "worker,kind", NULL, 0);

    wp_count(WP_SERIES(f, "w1", "a"), 1);
    wp_count(WP_SERIES(f, "w2", "a"), 2);
    wp_count(WP_SERIES(f, "w1", "b"), 3);
    wp_series_drop(f, "w1");
    expect_page("without w1", m,
                "# HELP c_total h\n# TYPE c_total counter\n"
                "c_total{worker=\"w2\",kind=\"a\"} 2\n");
    (void)WP_SERIES(f, "w1", "b");
    expect_page("w1 again", m,
                "# HELP c_total h\n# TYPE c_total counter\n"
                "c_total{worker=\"w2\",kind=\"a\"} 2\n"
                "c_total{worker=\"w1\",kind=\"b\"} 0\n");
    wp_series_drop(f, "w1");
    wp_series_drop(f, "w2");
    wp_series_drop(f, "w3");
    expect_page("nothing left", m, "# HELP c_total h\n# TYPE c_total counter\n");
    wp_metrics_destroy(m);
}

static bool has(struct wp_str page, const char *text)
{
    return page.n && memmem(page.p, page.n, text, strlen(text));
}

static void past_the_cap_series_share_other(void)
{
    struct wp_metrics *m = make();
    struct wp_family *f = wp_family(m, WP_COUNTER, "c_total", "h", "model,code", NULL, 0);
    struct wp_series *a, *b;
    struct wp_buf page = {0};
    char name[16];

    for (int i = 0; i < WP_SERIES_MAX; i++) {
        snprintf(name, sizeof name, "m%d", i);
        wp_count(WP_SERIES(f, name, "x"), 1);
    }
    EXPECT_INT("render", 0, wp_metrics_render(m, &page));
    EXPECT_TRUE("no other yet", !has(wp_buf_str(&page), "other"));
    page.n = 0;
    a = WP_SERIES(f, "one", "x");
    b = WP_SERIES(f, "two", "y");
    EXPECT_TRUE("shared", a == b && b == WP_SERIES(f, "other", "other"));
    wp_count(a, 1);
    wp_count(b, 1);
    EXPECT_INT("render", 0, wp_metrics_render(m, &page));
    EXPECT_TRUE("other is shown",
                has(wp_buf_str(&page), "\nc_total{model=\"other\",code=\"other\"} 2\n"));
    wp_series_drop(f, "m7");
    EXPECT_TRUE("room again", WP_SERIES(f, "one", "x") != a);
    wp_series_drop(f, "other");
    EXPECT_NEAR("other starts anew", 0, wp_series_value(WP_SERIES(f, "three", "x")), 0);
    wp_buf_fini(&page);
    wp_metrics_destroy(m);
}

static void set_gauge(void *arg)
{
    wp_gauge_add(WP_SERIES0(arg), 1); /* gets a series: the lock may not be held */
}

static void scrape_functions_run_before_each_page(void)
{
    struct wp_metrics *m = make();
    struct wp_family *f = wp_family(m, WP_GAUGE, "g", "h", "", NULL, 0);

    EXPECT_INT("on_scrape", 0, wp_metrics_on_scrape(m, set_gauge, f));
    EXPECT_INT("on_scrape", 0, wp_metrics_on_scrape(m, set_gauge, f));
    expect_page("first", m, "# HELP g h\n# TYPE g gauge\ng 2\n");
    expect_page("second", m, "# HELP g h\n# TYPE g gauge\ng 4\n");
    wp_metrics_destroy(m);
}

static void without_a_family_everything_counts_nowhere(void)
{
    struct wp_series *s = WP_SERIES(NULL, "x");

    wp_count(s, 1);
    wp_count_f(s, 1);
    wp_gauge_set(s, 1);
    wp_gauge_add(s, 1);
    wp_observe(s, 1);
    wp_series_drop(NULL, "x");
    EXPECT_TRUE("no registry, no family", wp_family(NULL, WP_GAUGE, "g", "h", "", NULL, 0) == NULL);
    EXPECT_NEAR("value", 0, wp_series_value(s), 0);
}

static void no_allocation_that_fails_breaks_or_leaks(void)
{
    static const double bounds[] = {1, 2};
    long before = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_metrics *m = NULL;
        struct wp_err err = WP_ERR_INIT;
        struct wp_buf page = {0};
        bool failed;
        int rc = 0;

        wp_mem_fail_after(nth);
        if (wp_metrics_create(&m, &err) == 0) {
            struct wp_family *f = wp_family(m, WP_COUNTER, "c_total", "h", "a,b", NULL, 0);
            struct wp_family *h = wp_family(m, WP_HISTOGRAM, "h", "h", "a", bounds, 2);

            wp_count(WP_SERIES(f, "x", "y"), 1);
            wp_observe(WP_SERIES(h, "x"), 1);
            wp_metrics_on_scrape(m, set_gauge, NULL);
            rc = wp_metrics_render(m, &page);
        }
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_TRUE("all of the page or nothing", rc == 0 || (rc == WP_ENOMEM && page.n == 0));
        wp_buf_fini(&page);
        wp_metrics_destroy(m);
        EXPECT_INT("nothing leaks", before, wp_mem_live());
        if (!failed)
            break;
    }
}

struct crowd {
    struct wp_metrics *m;
    struct wp_family *count, *gauge, *time;
};

static void *work(void *arg)
{
    struct crowd *c = arg;
    char name[8];

    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "w%d", i % 7);
        wp_count(WP_SERIES(c->count, name), 1);
        wp_count_f(WP_SERIES(c->count, name), 0.5);
        wp_gauge_add(WP_SERIES0(c->gauge), i % 2 ? 1 : -1);
        wp_observe(WP_SERIES0(c->time), i % 4);
    }
    return NULL;
}

static void threads_lose_no_count(void)
{
    static const double bounds[] = {0.5, 1.5};
    struct crowd c = {.m = make()};
    pthread_t t[4];
    double sum = 0;
    char name[8];

    c.count = wp_family(c.m, WP_COUNTER, "c_total", "h", "w", NULL, 0);
    c.gauge = wp_family(c.m, WP_GAUGE, "g", "h", "", NULL, 0);
    c.time = wp_family(c.m, WP_HISTOGRAM, "t", "h", "", bounds, 2);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&t[i], NULL, work, &c) != 0)
            abort();
    for (int i = 0; i < 20; i++) {
        struct wp_buf page = {0};

        EXPECT_INT("render", 0, wp_metrics_render(c.m, &page));
        wp_buf_fini(&page);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "w%d", i);
        sum += wp_series_value(WP_SERIES(c.count, name));
    }
    EXPECT_NEAR("counters", 4 * 2000 * 1.5, sum, 0);
    EXPECT_NEAR("gauge", 0, wp_series_value(WP_SERIES0(c.gauge)), 0);
    EXPECT_NEAR("histogram", 8000, wp_series_value(WP_SERIES0(c.time)), 0);
    wp_metrics_destroy(c.m);
}

const struct wp_suite suite_metrics = {
    "metrics",
    (const struct wp_test[]){
        {"a page has families in order and series from zero",
         a_page_has_families_in_order_and_series_from_zero},
        {"a histogram is cumulative and ends in inf", a_histogram_is_cumulative_and_ends_in_inf},
        {"what would break a line is escaped", what_would_break_a_line_is_escaped},
        {"numbers read back as they were", numbers_read_back_as_they_were},
        {"counters take steps and fractions and never fall",
         counters_take_steps_and_fractions_and_never_fall},
        {"a dropped series is gone and comes back from zero",
         a_dropped_series_is_gone_and_comes_back_from_zero},
        {"past the cap series share other", past_the_cap_series_share_other},
        {"scrape functions run before each page", scrape_functions_run_before_each_page},
        {"without a family everything counts nowhere", without_a_family_everything_counts_nowhere},
        {"no allocation that fails breaks or leaks", no_allocation_that_fails_breaks_or_leaks},
        {"threads lose no count", threads_lose_no_count},
        {NULL, NULL},
    },
};
