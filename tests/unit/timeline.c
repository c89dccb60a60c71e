/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/timeline.h"

#include "base/mem.h"
#include "base/rng.h"
#include "sim/plot.h"
#include "tests/lib/test.h"

#include <math.h>

static struct wp_timeline *made(size_t rows, uint64_t end_us)
{
    struct wp_timeline *t = NULL;
    struct wp_err err;

    EXPECT_INT("made", 0, wp_timeline_create(&t, rows, end_us, &err));
    return t;
}

static void a_slice_has_the_mean_over_its_time(void)
{
    struct wp_timeline *t = made(2, 160000); /* a millisecond each */

    wp_timeline_set(t, 0, 500, 4);
    wp_timeline_set(t, 0, 1500, 8);
    wp_timeline_set(t, 0, 3000, 0);
    wp_timeline_close(t);
    EXPECT_NEAR("half of it at 4", 2, wp_timeline_mean(t, 0, 0), 1e-9);
    EXPECT_NEAR("half at 4 and half at 8", 6, wp_timeline_mean(t, 0, 1), 1e-9);
    EXPECT_NEAR("all at 8", 8, wp_timeline_mean(t, 0, 2), 1e-9);
    EXPECT_NEAR("then nothing", 0, wp_timeline_mean(t, 0, 3), 1e-9);
    EXPECT_NEAR("the other row knows nothing of it", 0, wp_timeline_mean(t, 1, 1), 0);
    wp_timeline_destroy(t);
}

static void what_is_set_adds_up(void)
{
    struct wp_rng rng = {11};

    for (int round = 0; round < 50; round++) {
        uint64_t end = 1 + wp_rng_below(&rng, 10000000), now = 0;
        struct wp_timeline *t = made(1, end);
        double want = 0, got = 0, value = 0;

        end = wp_timeline_end_us(t);
        for (int k = 0; k < 300; k++) {
            uint64_t next = now + wp_rng_below(&rng, end / 100);

            want += value * (double)((next < end ? next : end) - (now < end ? now : end));
            value = wp_rng_unit(&rng);
            wp_timeline_set(t, 0, next, value);
            now = next;
        }
        want += now < end ? value * (double)(end - now) : 0;
        wp_timeline_close(t);
        for (size_t b = 0; b < WP_TIMELINE_BINS; b++)
            got += wp_timeline_mean(t, 0, b) * (double)end / WP_TIMELINE_BINS;
        EXPECT_NEAR("the area", want, got, 1e-6 * want + 1e-6);
        wp_timeline_destroy(t);
    }
}

static void a_clock_that_goes_back_changes_nothing_before(void)
{
    struct wp_timeline *t = made(1, 160000);

    wp_timeline_set(t, 0, 2000, 5);
    wp_timeline_set(t, 0, 1000, 1);
    wp_timeline_set(t, 0, UINT64_MAX, 9);
    wp_timeline_close(t);
    EXPECT_NEAR("before", 0, wp_timeline_mean(t, 0, 1), 0);
    EXPECT_NEAR("from then on, to the end", 1, wp_timeline_mean(t, 0, WP_TIMELINE_BINS - 1), 1e-9);
    wp_timeline_destroy(t);
}

static void text_is_escaped(void)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"<script>alert('x')</script>", "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"},
        {"a&b \"c\"", "a&amp;b &quot;c&quot;"},
        {"tab\there\x01\x7f", "tab here  "},
        {"\xC3\xA4 \xFF \xC3", "\xC3\xA4 \xEF\xBF\xBD \xEF\xBF\xBD"},
        {"", ""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_buf b = {0};
        struct wp_put o = {&b, 0};

        wp_html(&o, cases[i].in);
        EXPECT_TEXT(cases[i].in, cases[i].out, wp_buf_str(&b));
        wp_buf_fini(&b);
    }
}

static double cell(const void *arg, size_t row, size_t column)
{
    (void)arg;
    return row == column ? NAN : (double)column;
}

/* Figures that no run has must not make a plot without end, or one that is no plot. */
static void absurd_figures_are_drawn_somehow(void)
{
    static const double bad[] = {NAN, -1, 0, INFINITY, 1e300};
    struct wp_plot_line line = {"bad", bad, bad, 5};
    struct wp_plot_heat heat = {.title = "bad",
                                .x_label = "",
                                .y_label = "",
                                .unit = "s",
                                .rows = 3,
                                .columns = 4,
                                .value = cell};

    for (size_t i = 0; i < 5; i++) {
        struct wp_plot_axes a = {.title = "bad",
                                 .x_label = "",
                                 .y_label = "",
                                 .log_x = i & 1,
                                 .x_min = i & 1 ? 1e-3 : 0,
                                 .x_max = bad[i],
                                 .y_max = bad[i]};
        struct wp_buf b = {0};
        struct wp_put o = {&b, 0};

        wp_plot_lines(&o, &a, &line, 1);
        heat.most = heat.x_max = bad[i];
        wp_plot_heat(&o, &heat);
        wp_buf_add(&b, "", 1);
        EXPECT_INT("written", 0, o.rc);
        EXPECT_TRUE("no more than a page", b.n < 100000);
        EXPECT_TRUE("numbers alone", strstr(b.p, "nan") == NULL && strstr(b.p, "inf\"") == NULL);
        wp_buf_fini(&b);
    }
}

static const struct wp_test tests[] = {
    {"a slice has the mean over its time", a_slice_has_the_mean_over_its_time},
    {"what is set adds up", what_is_set_adds_up},
    {"a clock that goes back changes nothing before",
     a_clock_that_goes_back_changes_nothing_before},
    {"text is escaped", text_is_escaped},
    {"absurd figures are drawn somehow", absurd_figures_are_drawn_somehow},
    {NULL, NULL},
};
const struct wp_suite suite_timeline = {"timeline", tests};
