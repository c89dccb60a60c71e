/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/engines/prom.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <math.h>

static void a_line_is_a_sample_or_is_passed_over(void)
{
    /* clang-format off */
    static const struct {
        const char *line, *name, *labels; /* name NULL: no sample */
        double value;
    } cases[] = {
        {"a 1", "a", "", 1},
        {"a\t1", "a", "", 1},
        {"  a   1.5e+06  ", "a", "", 1.5e6},
        {"a 1\r", "a", "", 1},
        {"a 1 1789095000123", "a", "", 1},
        {"a\t1\t1789095000123", "a", "", 1},
        {"a{} 2", "a", "", 2},
        {"a{x=\"1\"} 2", "a", "x=\"1\"", 2},
        {"a{x=\"1\"}2", "a", "x=\"1\"", 2},
        {"a{x=\"}\"} 3", "a", "x=\"}\"", 3},
        {"a{x=\"\\\"}\"} 4", "a", "x=\"\\\"}\"", 4},
        {"a{x=\"\\\\\"} 5", "a", "x=\"\\\\\"", 5},
        {"a:b_c 6", "a:b_c", "", 6},
        {"a -1", "a", "", -1},
        {"a 1 # {trace_id=\"x\"} 0.5", "a", "", 1},
        {"", NULL, NULL, 0},
        {"   ", NULL, NULL, 0},
        {"# TYPE a gauge", NULL, NULL, 0},
        {"  # HELP a 1", NULL, NULL, 0},
        {"a", NULL, NULL, 0},
        {"a ", NULL, NULL, 0},
        {"a one", NULL, NULL, 0},
        {"a 1x", NULL, NULL, 0},
        {"a{x=\"1\" 2", NULL, NULL, 0},
        {"a{x=\"1} 2", NULL, NULL, 0},
        {"{x=\"1\"} 2", NULL, NULL, 0},
        {"a 1111111111111111111111111111111111111111111111111111111111111111", NULL, NULL, 0},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_str page = wp_str_of(cases[i].line);
        struct wp_prom p;
        bool got = wp_prom_next(&page, &p);

        EXPECT_INT(cases[i].line, cases[i].name != NULL, got);
        if (!got || !cases[i].name)
            continue;
        EXPECT_TEXT(cases[i].line, cases[i].name, p.name);
        EXPECT_TEXT(cases[i].line, cases[i].labels, p.labels);
        EXPECT_NEAR(cases[i].line, cases[i].value, p.value, 0);
        EXPECT_TRUE("just one", !wp_prom_next(&page, &p));
    }
}

static void numbers_that_are_none_are_values(void)
{
    struct wp_str page = WP_STR("a NaN\nb +Inf\nc -Inf\n");
    struct wp_prom p;

    EXPECT_TRUE("NaN", wp_prom_next(&page, &p) && isnan(p.value));
    EXPECT_TRUE("+Inf", wp_prom_next(&page, &p) && isinf(p.value) && p.value > 0);
    EXPECT_TRUE("-Inf", wp_prom_next(&page, &p) && isinf(p.value) && p.value < 0);
}

static void broken_lines_hide_no_good_ones(void)
{
    struct wp_str page = WP_STR("# x\na{b=\"\n\n}\n{} 1\ngood 7\nlast 8");
    struct wp_prom p;

    EXPECT_TRUE("first", wp_prom_next(&page, &p));
    EXPECT_TEXT("first", "good", p.name);
    EXPECT_TRUE("last, without a line end", wp_prom_next(&page, &p));
    EXPECT_TEXT("last", "last", p.name);
    EXPECT_TRUE("end", !wp_prom_next(&page, &p));
    EXPECT_TRUE("still the end", !wp_prom_next(&page, &p));
}

static void a_label_is_found_by_its_whole_name_and_unescaped(void)
{
    /* clang-format off */
    static const struct {
        const char *labels, *name, *want; /* want NULL: none */
    } cases[] = {
        {"", "a", NULL},
        {"a=\"1\"", "a", "1"},
        {"a=\"1\",b=\"2\"", "b", "2"},
        {"a=\"1\", b = \"2\"", "b", NULL}, /* nobody writes blanks around '=': what follows is not read */
        {"a=\"1\", b=\"2\",", "b", "2"},
        {"aa=\"1\",a=\"2\"", "a", "2"},
        {"a=\"\"", "a", ""},
        {"b=\"a=\\\"9\\\"\",a=\"1\"", "a", "1"},
        {"b=\",a=9,\",a=\"1\"", "a", "1"},
        {"a=\"x\\\"y\\\\z\\n\"", "a", "x\"y\\z\n"},
        {"a=\"open", "a", "open"},
        {"a=\"open\\", "a", "open\\"},
        {"a", "a", NULL},
        {"a=", "a", NULL},
        {"a=1,b=\"2\"", "b", NULL},
        {",,,", "a", NULL},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_prom p = {.labels = wp_str_of(cases[i].labels)};
        char out[64];
        bool got = wp_prom_label(&p, cases[i].name, out, sizeof out);

        EXPECT_INT(cases[i].labels, cases[i].want != NULL, got);
        if (got && cases[i].want)
            EXPECT_TEXT(cases[i].labels, cases[i].want, wp_str_of(out));
    }
}

static void a_long_value_is_cut_and_ended(void)
{
    struct wp_prom p = {.labels = WP_STR("a=\"123456789\",b=\"x\"")};
    char out[4] = "zzz";

    EXPECT_TRUE("there", wp_prom_label(&p, "a", out, sizeof out));
    EXPECT_TEXT("cut", "123", wp_str_of(out));
    EXPECT_TRUE("the next is found", wp_prom_label(&p, "b", out, sizeof out));
    EXPECT_TEXT("next", "x", wp_str_of(out));
}

static void a_real_page_has_all_its_samples(void)
{
    static const char *const files[] = {
        "spec/real/vllm_0.32.0_metrics.prom", "spec/real/vllm_0.23.0_metrics.prom",
        "spec/metrics_sglang.prom", "spec/metrics_llamacpp.prom", "spec/metrics_trtllm.prom"};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t n = 0, want = 0, got = 0;
        char *text = wp_test_data(files[i], &n);
        struct wp_str page = {text, n}, line, rest = {text, n};
        struct wp_prom p;

        while (wp_str_split(&rest, '\n', &line))
            want += line.n > 0 && line.p[0] != '#';
        while (wp_prom_next(&page, &p))
            got++;
        EXPECT_UINT(files[i], want, got);
        EXPECT_TRUE(files[i], got > 2);
        wp_free(text);
    }
}

const struct wp_suite suite_prom = {
    "prom",
    (const struct wp_test[]){
        {"a line is a sample or is passed over", a_line_is_a_sample_or_is_passed_over},
        {"numbers that are none are values", numbers_that_are_none_are_values},
        {"broken lines hide no good ones", broken_lines_hide_no_good_ones},
        {"a label is found by its whole name and unescaped",
         a_label_is_found_by_its_whole_name_and_unescaped},
        {"a long value is cut and ended", a_long_value_is_cut_and_ended},
        {"a real page has all its samples", a_real_page_has_all_its_samples},
        {NULL, NULL},
    },
};
