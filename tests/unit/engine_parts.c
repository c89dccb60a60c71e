/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts of the engine that need no socket: faults, JSON by hand. */
#include "sim/fault.h"
#include "sim/put.h"

#include "tests/lib/test.h"

#include <math.h>

/* clang-format off */
static const struct {
    const char *spec;
    enum wp_fault_kind kind; /* NONE: refused */
    uint64_t value, every, count;
    int64_t retry_after;
} fault_cases[] = {
    {"stall",                              WP_FAULT_STALL, 0, 1, 0, -1},
    {"stall-prefill=4096",                 WP_FAULT_STALL_PREFILL, 4096, 1, 0, -1},
    {"die-after=0",                        WP_FAULT_DIE_AFTER, 0, 1, 0, -1},
    {"status=503,every=3,retry-after=2",   WP_FAULT_STATUS, 503, 3, 0, 2},
    {"status=429,count=5,retry-after=0",   WP_FAULT_STATUS, 429, 1, 5, 0},
    {"slow-accept=250",                    WP_FAULT_SLOW_ACCEPT, 250, 1, 0, -1},
    {"silent,count=1",                     WP_FAULT_SILENT, 0, 1, 1, -1},
    {"reset",                              WP_FAULT_RESET, 0, 1, 0, -1},
    {"error-first",                        WP_FAULT_ERROR_FIRST, 0, 1, 0, -1},
    {"",                                   WP_FAULT_NONE, 0, 0, 0, 0},
    {"nonsense",                           WP_FAULT_NONE, 0, 0, 0, 0},
    {"stall=3",                            WP_FAULT_NONE, 0, 0, 0, 0},
    {"status",                             WP_FAULT_NONE, 0, 0, 0, 0},
    {"status=200",                         WP_FAULT_NONE, 0, 0, 0, 0},
    {"status=5oo",                         WP_FAULT_NONE, 0, 0, 0, 0},
    {"status=500,every=0",                 WP_FAULT_NONE, 0, 0, 0, 0},
    {"status=500,often=2",                 WP_FAULT_NONE, 0, 0, 0, 0},
    {"die-after=-1",                       WP_FAULT_NONE, 0, 0, 0, 0},
};
/* clang-format on */

static void faults_of_events_have_shares(void)
{
    static const struct {
        const char *spec;
        enum wp_fault_kind kind; /* NONE: refused */
        double share;
    } cases[] = {
        {"lose=0.25", WP_FAULT_LOSE, 0.25},     {"double=1,every=3", WP_FAULT_DOUBLE, 1},
        {"reorder=0", WP_FAULT_REORDER, 0},     {"skip=1e-3,count=2", WP_FAULT_SKIP, 0.001},
        {"lose", WP_FAULT_NONE, 0},             {"lose=1.1", WP_FAULT_NONE, 0},
        {"skip=-0.1", WP_FAULT_NONE, 0},        {"double=often", WP_FAULT_NONE, 0},
        {"events-restart=0", WP_FAULT_NONE, 0}, {"events-restart=9", WP_FAULT_EVENTS_RESTART, 0},
    };
    struct wp_rng rng = {4};
    struct wp_err err = WP_ERR_INIT;
    struct wp_fault f;
    int struck = 0;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        EXPECT_INT(cases[i].spec, cases[i].kind ? 0 : WP_EUSAGE,
                   wp_fault_parse(&f, wp_str_of(cases[i].spec), &err));
        if (cases[i].kind) {
            EXPECT_INT(cases[i].spec, cases[i].kind, f.kind);
            EXPECT_NEAR(cases[i].spec, cases[i].share, f.share, 0);
        }
    }
    wp_fault_parse(&f, WP_STR("lose=0.25"), &err);
    for (int i = 0; i < 10000; i++)
        struck += wp_fault_draw(&f, 1, WP_FAULT_LOSE, &rng) != NULL;
    EXPECT_NEAR("a quarter", 2500, struck, 150);
    EXPECT_TRUE("no other kind", !wp_fault_draw(&f, 1, WP_FAULT_SKIP, &rng));
}

static void fault_specs_are_read_or_refused(void)
{
    for (size_t i = 0; i < sizeof fault_cases / sizeof fault_cases[0]; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_fault f;
        int rc = wp_fault_parse(&f, wp_str_of(fault_cases[i].spec), &err);

        EXPECT_INT(fault_cases[i].spec, fault_cases[i].kind ? 0 : WP_EUSAGE, rc);
        if (rc < 0) {
            EXPECT_TRUE("the refusal says why", strstr(err.text, "fault") && strlen(err.text) > 20);
            continue;
        }
        EXPECT_INT(fault_cases[i].spec, fault_cases[i].kind, f.kind);
        EXPECT_UINT(fault_cases[i].spec, fault_cases[i].value, f.value);
        EXPECT_UINT(fault_cases[i].spec, fault_cases[i].every, f.every);
        EXPECT_UINT(fault_cases[i].spec, fault_cases[i].count, f.count);
        EXPECT_INT(fault_cases[i].spec, fault_cases[i].retry_after, f.retry_after);
    }
}

static void strike(const char *label, const char *spec, const char *want)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_fault f;
    char got[32] = "";

    EXPECT_INT(label, 0, wp_fault_parse(&f, wp_str_of(spec), &err));
    for (size_t i = 0; i < strlen(want); i++)
        strcat(got, wp_fault_strike(&f, 1, WP_FAULT_RESET, WP_FAULT_STATUS, 0) ? "x" : ".");
    EXPECT_TEXT(label, want, wp_str_of(got));
}

static void faults_strike_as_often_as_told(void)
{
    struct wp_fault two[2];
    struct wp_err err = WP_ERR_INIT;

    strike("always", "reset", "xxxx");
    strike("each third", "reset,every=3", "..x..x..x");
    strike("twice", "reset,count=2", "xx....");
    strike("each second, twice", "reset,every=2,count=2", ".x.x....");
    strike("another stage's", "stall", "....");
    wp_fault_parse(&two[0], WP_STR("stall-prefill=100,count=1"), &err);
    wp_fault_parse(&two[1], WP_STR("die-after=3"), &err);
    EXPECT_TRUE("short prompts pass the first",
                wp_fault_strike(two, 2, WP_FAULT_STALL, WP_FAULT_DIE_AFTER, 99) == &two[1]);
    EXPECT_TRUE("long ones do not",
                wp_fault_strike(two, 2, WP_FAULT_STALL, WP_FAULT_DIE_AFTER, 100) == &two[0]);
    EXPECT_TRUE("it is used up",
                wp_fault_strike(two, 2, WP_FAULT_STALL, WP_FAULT_DIE_AFTER, 100) == &two[1]);
}

static void numbers_are_written_by_hand(void)
{
    static const uint32_t token[] = {0, 7, 10, 4294967295u};
    struct wp_buf b = {0};
    struct wp_put o = {&b, 0};

    wp_put_u(&o, 0);
    wp_put(&o, " ");
    wp_put_u(&o, UINT64_MAX);
    wp_put(&o, " ");
    wp_put_tokens(&o, token, 4);
    wp_put_tokens(&o, token, 0);
    wp_put_f(&o, NAN);
    wp_put_f(&o, -0.5);
    EXPECT_TEXT("text", "0 18446744073709551615 [0,7,10,4294967295][]0-0.5", wp_buf_str(&b));
    wp_buf_fini(&b);
}

static void a_writer_stops_at_its_first_failure(void)
{
    struct wp_buf b = {.max = 4};
    struct wp_put o = {&b, 0};

    wp_put(&o, "abc");
    wp_put(&o, "de");
    wp_put(&o, "f");
    EXPECT_INT("failed", WP_ETOOBIG, o.rc);
    EXPECT_TEXT("nothing came after", "abc", wp_buf_str(&b));
    wp_buf_fini(&b);
}

static const struct wp_test tests[] = {
    {"fault specs are read or refused", fault_specs_are_read_or_refused},
    {"faults of events have shares", faults_of_events_have_shares},
    {"faults strike as often as told", faults_strike_as_often_as_told},
    {"numbers are written by hand", numbers_are_written_by_hand},
    {"a writer stops at its first failure", a_writer_stops_at_its_first_failure},
    {NULL, NULL},
};
const struct wp_suite suite_engine_parts = {"engine_parts", tests};
