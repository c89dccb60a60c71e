/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tests/lib/test.h"

static void a_virtual_clock_moves_when_it_is_set(void)
{
    struct wp_clock c = WP_CLOCK_VIRTUAL;

    EXPECT_UINT("starts", 0, wp_clock_us(&c));
    wp_clock_set(&c, 5);
    wp_clock_set(&c, 5);
    EXPECT_UINT("set", 5, wp_clock_us(&c));
    wp_clock_set(&c, UINT64_MAX);
    EXPECT_UINT("any hour", UINT64_MAX, wp_clock_us(&c));
}

static void a_real_clock_never_goes_back(void)
{
    struct wp_clock c = WP_CLOCK_REAL;
    uint64_t was = wp_clock_us(&c);
    int back = 0;

    for (int i = 0; i < 1000; i++) {
        uint64_t now = i % 2 ? wp_now_us() : wp_clock_us(&c); /* the same clock */

        back += now < was;
        was = now;
    }
    EXPECT_INT("steps back", 0, back);
}

static void the_wall_shows_this_century(void)
{
    EXPECT_TRUE("after 2020", wp_wall_us() > 1577836800000000);
    EXPECT_TRUE("before 2100", wp_wall_us() < 4102444800000000);
}

const struct wp_suite suite_clock = {
    "clock",
    (const struct wp_test[]){
        {"a virtual clock moves when it is set", a_virtual_clock_moves_when_it_is_set},
        {"a real clock never goes back", a_real_clock_never_goes_back},
        {"the wall shows this century", the_wall_shows_this_century},
        {NULL, NULL},
    },
};
