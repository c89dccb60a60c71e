/* SPDX-License-Identifier: Apache-2.0 */
#include "router/growth.h"

#include "tests/lib/test.h"

static void growth_is_since_a_minute_ago(void)
{
    struct wp_growth g = {0};
    uint64_t now = 5;

    EXPECT_INT("nothing noted", 0, wp_growth_of(&g, 700));
    EXPECT_TRUE("due", wp_growth_due(&g, now));
    wp_growth_note(&g, 100, now);
    EXPECT_TRUE("not yet", !wp_growth_due(&g, now + WP_GROWTH_EVERY_US - 1));
    EXPECT_INT("since the first note", 600, wp_growth_of(&g, 700));
    EXPECT_INT("it may shrink", -60, wp_growth_of(&g, 40));
    for (int i = 0; i < 20; i++) {
        now += WP_GROWTH_EVERY_US;
        EXPECT_TRUE("due again", wp_growth_due(&g, now));
        wp_growth_note(&g, 100 + 10 * ((uint64_t)i + 1), now);
    }
    EXPECT_INT("since six notes before the last", 60, wp_growth_of(&g, 300));
}

const struct wp_suite suite_growth = {
    "growth",
    (const struct wp_test[]){
        {"growth is since a minute ago", growth_is_since_a_minute_ago},
        {NULL, NULL},
    },
};
