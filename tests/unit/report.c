/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/report.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <unistd.h>

static struct wp_report *report(const char *label, size_t workers)
{
    struct wp_report_conf conf = {.label = label, .workers = workers};
    struct wp_report *r = NULL;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT(err.text, 0, wp_report_create(&r, &conf, &err));
    return r;
}

static void an_empty_report_has_zeros_and_no_nan(void)
{
    struct wp_report *r = report("empty", 0);
    struct wp_figures f;
    struct wp_buf b = {0};

    wp_report_figures(r, &f);
    EXPECT_UINT("requests", 0, f.requests);
    EXPECT_NEAR("ttft", 0, f.ttft_mean_s, 0);
    EXPECT_NEAR("recomputed", 0, f.recomputed, 0);
    EXPECT_INT("json", 0, wp_report_json(r, &b));
    EXPECT_TRUE("no nan", !memmem(b.p, b.n, "nan", 3) && !memmem(b.p, b.n, "inf", 3));
    wp_buf_fini(&b);
    wp_report_destroy(r);
}

static void figures_are_those_of_the_samples(void)
{
    struct wp_report *r = report("p", 4);
    struct wp_figures f;

    for (int i = 100; i >= 1; i--) { /* ttft 0.01..1.00, half of each prompt from cache */
        struct wp_sample s = {
            .worker = i % 2 ? "w1" : "w2",
            .prompt = 1000,
            .output = 11,
            .hit = {[WP_HIT_GPU] = 300, [WP_HIT_CPU] = 200},
            .ttft_s = i / 100.0,
            .itl_s = 0.02,
            .e2e_s = i / 100.0 + 0.2,
            .bytes_fetched = 10,
        };

        EXPECT_INT("add", 0, wp_report_add(r, &s));
    }
    EXPECT_INT("add", 0, wp_report_add(r, &(struct wp_sample){.failed = true, .prompt = 77}));
    wp_report_span(r, 50.5);
    wp_report_figures(r, &f);
    EXPECT_UINT("requests", 101, f.requests);
    EXPECT_UINT("errors", 1, f.errors);
    EXPECT_UINT("prompt tokens of what worked", 100000, f.prompt_tokens);
    EXPECT_UINT("output tokens", 1100, f.output_tokens);
    EXPECT_UINT("bytes", 1000, f.bytes_fetched);
    EXPECT_NEAR("hit", 0.5, f.hit, 1e-12);
    EXPECT_NEAR("gpu", 0.3, f.share[WP_HIT_GPU], 1e-12);
    EXPECT_NEAR("recomputed", 0.5, f.recomputed, 1e-12);
    EXPECT_NEAR("mean", 0.505, f.ttft_mean_s, 1e-12);
    EXPECT_NEAR("p50", 0.51, f.ttft_p50_s, 1e-12);
    EXPECT_NEAR("p90", 0.91, f.ttft_p90_s, 1e-12);
    EXPECT_NEAR("p99", 1.0, f.ttft_p99_s, 1e-12);
    EXPECT_NEAR("itl p50", 0.02, f.itl_p50_s, 1e-12);
    EXPECT_NEAR("e2e p99", 1.2, f.e2e_p99_s, 1e-12);
    EXPECT_NEAR("slo: errors are not within", 100.0 / 101, f.slo, 1e-12);
    EXPECT_NEAR("two of four workers idle", 2.0, f.imbalance, 1e-12);
    EXPECT_NEAR("rate", 2.0, f.requests_per_s, 1e-12);
    wp_report_destroy(r);
}

static const struct {
    const char *label;
    double ttft_s, cold_s, itl_s;
    uint32_t output;
    double want;
} slo_cases[] = {
    /* clang-format off */
    {"under the flat limit",             4.9, 0.1, 0.10, 9, 1},
    {"over the flat limit",              5.1, 0.1, 0.10, 9, 0},
    {"a long prompt may take twice",     9.9, 5.0, 0.10, 9, 1},
    {"but no more than twice",          10.1, 5.0, 0.10, 9, 0},
    {"slow tokens",                      1.0, 0.1, 0.16, 9, 0},
    {"one token has no time between",    1.0, 0.1, 9.00, 1, 1},
    /* clang-format on */
};

static void the_slo_is_the_laboratorys(void)
{
    for (size_t i = 0; i < sizeof slo_cases / sizeof slo_cases[0]; i++) {
        struct wp_report *r = report("slo", 0);
        struct wp_sample s = {.prompt = 10,
                              .output = slo_cases[i].output,
                              .ttft_s = slo_cases[i].ttft_s,
                              .cold_s = slo_cases[i].cold_s,
                              .itl_s = slo_cases[i].itl_s};
        struct wp_figures f;

        EXPECT_INT(slo_cases[i].label, 0, wp_report_add(r, &s));
        wp_report_figures(r, &f);
        EXPECT_NEAR(slo_cases[i].label, slo_cases[i].want, f.slo, 0);
        wp_report_destroy(r);
    }
}

static void gaps_give_percentiles_within_two_percent(void)
{
    struct wp_report *r = report("gaps", 0);
    struct wp_figures f;

    for (int i = 1; i <= 1000; i++)
        wp_report_gap(r, i * 1e-3);
    wp_report_gap(r, 0);
    wp_report_gap(r, 1e12);
    wp_report_figures(r, &f);
    EXPECT_NEAR("p50", 0.5, f.itl_p50_s, 0.01);
    EXPECT_NEAR("p99", 0.99, f.itl_p99_s, 0.02);
    wp_report_destroy(r);
}

static char *temp_report(const char *label, double ttft_s)
{
    struct wp_report *r = report(label, 1);
    struct wp_sample s = {.worker = "w", .prompt = 100, .ttft_s = ttft_s, .hit = {25}};
    char *path = wp_strdup("/tmp/wp-report-XXXXXX");
    struct wp_err err = WP_ERR_INIT;
    int fd = mkstemp(path);

    EXPECT_TRUE("temporary file", fd >= 0);
    close(fd);
    EXPECT_INT("add", 0, wp_report_add(r, &s));
    EXPECT_INT(err.text, 0, wp_report_save(r, path, &err));
    wp_report_destroy(r);
    return path;
}

static void saved_reports_stand_side_by_side_with_ratios(void)
{
    char *a = temp_report("round_robin", 2.0), *b = temp_report("price", 0.5);
    const char *both[] = {a, b}, *missing[] = {a, "/nonexistent/report.json"};
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf out = {0};

    EXPECT_INT(err.text, 0, wp_report_compare(both, 2, &out, &err));
    EXPECT_TRUE("labels",
                memmem(out.p, out.n, "round_robin", 11) && memmem(out.p, out.n, "price", 5));
    EXPECT_TRUE("ratio of the mean", memmem(out.p, out.n, "   0.25x", 8) != NULL);
    EXPECT_TRUE("same hits", memmem(out.p, out.n, "   1.00x", 8) != NULL);
    EXPECT_INT("missing file", WP_ENOENT, wp_report_compare(missing, 2, &out, &err));
    EXPECT_TRUE("named", strstr(err.text, "/nonexistent/report.json") != NULL);
    EXPECT_INT("none", WP_EINVAL, wp_report_compare(both, 0, &out, &err));
    wp_buf_fini(&out);
    unlink(a);
    unlink(b);
    wp_free(a);
    wp_free(b);
}

static void what_is_no_report_is_refused_by_name(void)
{
    static const struct {
        const char *text;
        int want;
    } cases[] = {{"", WP_ESYNTAX},
                 {"{", WP_ESYNTAX},
                 {"[]", WP_EINVAL},
                 {"{\"requests\": \"x\"}", WP_EINVAL}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[] = "/tmp/wp-report-XXXXXX";
        const char *one[] = {path};
        struct wp_err err = WP_ERR_INIT;
        struct wp_buf out = {0};
        int fd = mkstemp(path);

        EXPECT_TRUE("written", write(fd, cases[i].text, strlen(cases[i].text)) >= 0);
        close(fd);
        EXPECT_INT(cases[i].text, cases[i].want, wp_report_compare(one, 1, &out, &err));
        EXPECT_TRUE("file named", strstr(err.text, path) != NULL);
        wp_buf_fini(&out);
        unlink(path);
    }
}

static int everything(struct wp_err *err)
{
    struct wp_report_conf conf = {.label = "x"};
    struct wp_sample s = {.worker = "w1", .prompt = 5, .output = 2};
    struct wp_report *r;
    struct wp_buf b = {0};
    int rc = wp_report_create(&r, &conf, err);

    if (rc < 0)
        return rc;
    rc = wp_report_add(r, &s);
    s.worker = "w2";
    if (rc == 0)
        rc = wp_report_add(r, &s);
    if (rc == 0)
        rc = wp_report_text(r, &b);
    if (rc == 0)
        rc = wp_report_json(r, &b);
    wp_buf_fini(&b);
    wp_report_destroy(r);
    return rc;
}

static void any_allocation_may_fail(void)
{
    long live = wp_mem_live(), nth = 0;
    struct wp_err err = WP_ERR_INIT;

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
    EXPECT_TRUE("some allocations were tried", nth > 5);
}

const struct wp_suite suite_report = {
    "report",
    (const struct wp_test[]){
        {"an empty report has zeros and no nan", an_empty_report_has_zeros_and_no_nan},
        {"figures are those of the samples", figures_are_those_of_the_samples},
        {"the SLO is the laboratory's", the_slo_is_the_laboratorys},
        {"gaps give percentiles within two percent", gaps_give_percentiles_within_two_percent},
        {"saved reports stand side by side with ratios",
         saved_reports_stand_side_by_side_with_ratios},
        {"what is no report is refused by name", what_is_no_report_is_refused_by_name},
        {"any allocation may fail", any_allocation_may_fail},
        {NULL, NULL},
    },
};
