/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/room.h"

#include "tests/lib/test.h"

#include <math.h>

static const double block_us = 25709; /* of the default engine, at the start of a prompt */

static struct wp_room_price price(struct wp_room *r, uint64_t now, double wait_us)
{
    struct wp_worker_view w[2] = {{.wait_us = wait_us}, {.wait_us = wait_us}};
    struct wp_room_price p;

    wp_room_price(r, now, w, 2, block_us, &p);
    return p;
}

static void a_new_fleet_starts_from_the_prior(void)
{
    struct wp_room r;
    struct wp_room_price p;

    wp_room_init(&r);
    p = price(&r, 1000, 0);
    EXPECT_TRUE("known", p.tuned);
    EXPECT_NEAR("nothing had to go: there is room", 0, p.block_us, 0);
    wp_room_gone(&r, 1000, 0, false, 0);
    p = price(&r, 1000, 0);
    EXPECT_NEAR("a tenth of a block's compute", block_us / 10, p.block_us, 1);
    EXPECT_NEAR("nobody is delayed", 0, p.delays, 0);
}

static void what_is_asked_for_again_makes_room_dear(void)
{
    struct wp_room r;
    double before, dear;

    wp_room_init(&r);
    for (uint64_t k = 0; k < 2000; k++)
        wp_room_gone(&r, 1000000 + k * 1000, 60000000, true, 100000);
    before = price(&r, 3000000, 0).block_us;
    for (uint64_t k = 0; k < 1000; k++)
        wp_room_asked(&r, 3000000, 90000000, false, false);
    dear = price(&r, 3000000, 0).block_us;
    EXPECT_NEAR("half of them came back", 100000 * (1020.0 / 2200), dear, 0.02 * dear);
    EXPECT_TRUE("dearer", dear > 10 * before);
    for (uint64_t k = 0; k < 1000; k++) {
        wp_room_asked(&r, 3000000, 3600000000u, false, false); /* long gone */
        wp_room_asked(&r, 3000000, 90000000, false, true);     /* on its way */
        wp_room_asked(&r, 3000000, 1000, true, false);         /* young */
    }
    EXPECT_NEAR("these say nothing", dear, price(&r, 3000000, 0).block_us, 1);
    EXPECT_TRUE("in an hour it is forgotten", price(&r, 3603000000u, 0).block_us < dear / 5);
}

static void hits_just_in_time_count_when_time_is_short(void)
{
    struct wp_room r;
    double idle, busy;

    wp_room_init(&r);
    for (uint64_t k = 0; k < 1000; k++) {
        wp_room_gone(&r, 1000000 + k * 1000, 60000000, true, 100000);
        wp_room_asked(&r, 1000000 + k * 1000, 30000000, true, false);
        wp_room_request(&r, 1000000 + k * 1000);
    }
    idle = price(&r, 2000000, 0).block_us;
    busy = price(&r, 2000000, 2e6).block_us;
    EXPECT_TRUE("a wait makes it dear", busy > 3 * idle);
    EXPECT_TRUE("bounded", price(&r, 2000001, INFINITY).block_us < 1e15);
}

static void absurd_facts_have_an_answer(void)
{
    struct wp_room r;
    struct wp_room_price p;

    wp_room_init(&r);
    wp_room_gone(&r, UINT64_MAX, UINT64_MAX, true, NAN);
    wp_room_gone(&r, 5, UINT64_MAX, true, -1);
    wp_room_asked(&r, 0, UINT64_MAX, true, true);
    wp_room_request(&r, 0);
    p = price(&r, 1, NAN);
    EXPECT_TRUE("a number", isfinite(p.block_us) && p.block_us >= 0 && isfinite(p.delays));
    wp_room_price(&r, 2, NULL, 0, block_us, &p);
    EXPECT_NEAR("nobody", 0, p.block_us, 0);
}

static const struct wp_test tests[] = {
    {"a new fleet starts from the prior", a_new_fleet_starts_from_the_prior},
    {"what is asked for again makes room dear", what_is_asked_for_again_makes_room_dear},
    {"hits just in time count when time is short", hits_just_in_time_count_when_time_is_short},
    {"absurd facts have an answer", absurd_facts_have_an_answer},
    {NULL, NULL},
};
const struct wp_suite suite_room = {"room", tests};
