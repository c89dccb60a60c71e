/* SPDX-License-Identifier: Apache-2.0 */
#include "router/target.h"

#include "tests/lib/test.h"

static struct wp_head head_of(const char *name, const char *value)
{
    return (struct wp_head){.field = {{wp_str_of(name), wp_str_of(value)}}, .n_fields = 1};
}

static void targets_are_milliseconds(void)
{
    static const struct {
        const char *said;
        bool ok;
        uint64_t us;
    } cases[] = {{"250", true, 250000},  {"0.5", true, 500}, {"86400000", true, 86400000000}, {"0", false, 0},  {"-1", false, 0},  {"1e3", false, 0},
                 {"soon", false, 0},     {".", false, 0},    {"1.2.3", false, 0},             {"", true, 0},   {"86400001", false, 0},
                 {"0x10", false, 0},     {"nan", false, 0},  {"99999999999999999999999999999999999999", false, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_head h = head_of("X-Warmpath-SLO-TTFT-ms", cases[i].said);
        uint64_t us = 7;

        EXPECT_INT(cases[i].said, cases[i].ok, wp_target_of(&h, &us));
        EXPECT_UINT(cases[i].said, cases[i].us, us);
    }
}

/* The official clients send what they were given: an int, or a float. */
static void patience_is_in_seconds(void)
{
    static const struct {
        const char *said;
        uint64_t us;
    } cases[] = {{"600", 600000000}, {"20.0", 20000000}, {"0.25", 250000}, {"None", 0}, {"", 0}, {"-3", 0}, {"1000000", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_head h = head_of("x-stainless-read-timeout", cases[i].said);

        EXPECT_UINT(cases[i].said, cases[i].us, wp_patience_of(&h));
    }
}

static const struct wp_test tests[] = {
    {"targets are milliseconds", targets_are_milliseconds},
    {"patience is in seconds", patience_is_in_seconds},
    {NULL, NULL},
};
const struct wp_suite suite_target = {"target", tests};
