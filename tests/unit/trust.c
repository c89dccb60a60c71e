/* SPDX-License-Identifier: Apache-2.0 */
#include "router/trust.h"

#include "base/rng.h"
#include "tests/lib/test.h"

static void six_wrong_answers_in_a_row_are_an_alarm(void)
{
    struct wp_trust t = {0};

    for (int i = 0; i < 1000; i++)
        EXPECT_TRUE("right", !wp_trust_hear(&t, false, 0));
    for (int i = 0; i < 5; i++)
        EXPECT_TRUE("not yet", !wp_trust_hear(&t, true, 0));
    EXPECT_TRUE("the sixth", wp_trust_hear(&t, true, 0));
    EXPECT_UINT("of these", 6, t.since_claims);
    EXPECT_UINT("all wrong", 6, t.since_wrong);
    EXPECT_UINT("all answers", 1006, t.claims);
    EXPECT_UINT("one alarm", 1, t.alarms);
}

static void after_an_alarm_there_is_a_rest(void)
{
    struct wp_trust t = {0};
    int n = 0;

    while (!wp_trust_hear(&t, true, 7))
        ;
    for (int i = 0; i < 100; i++)
        EXPECT_TRUE("rests", !wp_trust_hear(&t, true, 6 + WP_TRUST_REST_US));
    EXPECT_UINT("what is said meanwhile is not heard", 6, t.claims);
    do
        n++;
    while (!wp_trust_hear(&t, true, 7 + WP_TRUST_REST_US));
    EXPECT_INT("then from the beginning", 6, n);
    EXPECT_UINT("two", 2, t.alarms);
}

/* How many alarms in n answers of which that share is wrong. */
static uint64_t alarms(double share, uint32_t n, uint64_t seed)
{
    struct wp_rng rng = {seed};
    struct wp_trust t = {0};

    for (uint32_t i = 0; i < n; i++) {
        wp_trust_hear(&t, (double)wp_rng_below(&rng, 1000000) < share * 1e6, 0);
        t.rest_until_us = 0;
    }
    return t.alarms;
}

/* The bound is one in a million; 10 million answers may well bring some, but hardly 20. */
static void chance_is_no_alarm_and_more_is(void)
{
    EXPECT_UINT("half of what chance may do", 0, alarms(WP_TRUST_CHANCE / 2, 1000000, 1));
    EXPECT_TRUE("what chance may do", alarms(WP_TRUST_CHANCE, 10000000, 2) < 20);
    EXPECT_TRUE("a third is wrong", alarms(0.33, 1000, 3) > 0);
    EXPECT_TRUE("half is wrong", alarms(0.5, 100, 4) > 0);
}

const struct wp_suite suite_trust = {
    "trust",
    (const struct wp_test[]){
        {"six wrong answers in a row are an alarm", six_wrong_answers_in_a_row_are_an_alarm},
        {"after an alarm there is a rest", after_an_alarm_there_is_a_rest},
        {"chance is no alarm and more is", chance_is_no_alarm_and_more_is},
        {NULL, NULL},
    },
};
