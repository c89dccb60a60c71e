/* SPDX-License-Identifier: Apache-2.0 */
#include "router/rooms.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#include <math.h>

enum { SPACE = 3, PROMPT = 64 };

static struct wp_rooms *rooms;

static void set_up(void)
{
    struct wp_err err;

    EXPECT_INT("made", 0, wp_rooms_create(&rooms, 99, &err));
}

static void ask(uint32_t space, uint64_t first, uint64_t now_us, size_t held, double capacity)
{
    uint64_t local[PROMPT];
    struct wp_rooms_ask a = {.space = space,
                             .block_size = 512,
                             .local = local,
                             .n = PROMPT,
                             .held = held,
                             .coming = held,
                             .profile = wp_profile_default(),
                             .capacity_tokens = capacity};

    for (size_t i = 0; i < PROMPT; i++)
        local[i] = first + i;
    wp_rooms_asked(rooms, now_us, &a);
}

static void leave(uint32_t space, uint64_t first, bool last)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        wp_rooms_left(rooms, &(struct wp_index_left){
                                 .space = space, .at = i, .local = first + i, .last = last});
}

static struct wp_room_price price(uint32_t space)
{
    struct wp_worker_view w = {.wait_us = 0};
    struct wp_room_price p;

    wp_rooms_price(rooms, wp_now_us(), space, &w, 1, wp_profile_default(), &p);
    return p;
}

static void without_facts_nothing_is_tuned(void)
{
    set_up();
    EXPECT_TRUE("no space is known", !price(SPACE).tuned);
    leave(SPACE, 1, true);
    EXPECT_TRUE("what leaves makes none known", !price(SPACE).tuned);
    ask(SPACE, 1, wp_now_us(), 0, 1e6);
    EXPECT_TRUE("a prompt does", price(SPACE).tuned);
    EXPECT_NEAR("and there is room", 0, price(SPACE).block_us, 0);
    EXPECT_TRUE("elsewhere nothing is known", !price(SPACE + 1).tuned);
    wp_rooms_destroy(rooms);
}

static void what_left_and_comes_back_makes_room_dear(void)
{
    double before;

    set_up();
    for (uint64_t k = 0; k < 40; k++)
        ask(SPACE, 1000 * k, wp_now_us(), 0, 1e6);
    leave(SPACE, 999999, true);
    EXPECT_NEAR("what nobody asked for here says nothing", 0, price(SPACE).block_us, 0);
    for (uint64_t k = 0; k < 40; k++)
        leave(SPACE, 1000 * k, true);
    before = price(SPACE).block_us;
    EXPECT_TRUE("it has a price", before > 0);
    for (uint64_t k = 0; k < 20; k++)
        ask(SPACE, 1000 * k, wp_now_us(), 0, 1e6);
    EXPECT_TRUE("half of it came back", price(SPACE).block_us > 3 * before);
    wp_rooms_destroy(rooms);
}

/* Of a fleet that holds much a share is looked at, and counts for the rest. */
static void a_large_fleet_has_the_same_price(void)
{
    double whole = 0;

    for (int large = 0; large < 2; large++) {
        double capacity = large ? 512.0 * (1 << 19) : 1e6; /* one in 16 */
        double block_us;

        set_up();
        for (uint64_t k = 0; k < 400; k++)
            ask(SPACE, 1000 * k, wp_now_us(), 0, capacity);
        for (uint64_t k = 0; k < 400; k++)
            leave(SPACE, 1000 * k, true);
        for (uint64_t k = 0; k < 200; k++)
            ask(SPACE, 1000 * k, wp_now_us(), 0, capacity);
        block_us = price(SPACE).block_us;
        if (large)
            EXPECT_NEAR("about the same", whole, block_us, 0.25 * whole);
        whole = block_us;
        wp_rooms_destroy(rooms);
    }
}

static void spaces_are_bounded(void)
{
    set_up();
    for (uint32_t s = 0; s < WP_ROOMS_MAX + 3; s++)
        ask(s, 1, wp_now_us(), 0, 1e6);
    EXPECT_TRUE("the last one that is known", price(WP_ROOMS_MAX - 1).tuned);
    EXPECT_TRUE("those beyond are not", !price(WP_ROOMS_MAX).tuned);
    wp_rooms_destroy(rooms);
}

static void without_memory_nothing_is_tuned(void)
{
    set_up();
    wp_mem_fail_after(0);
    ask(SPACE, 1, wp_now_us(), 0, 1e6);
    EXPECT_TRUE("it failed", wp_mem_failed());
    EXPECT_TRUE("and the settings stand in", !price(SPACE).tuned);
    ask(SPACE, 1, wp_now_us(), 0, 1e6);
    EXPECT_TRUE("until there is some", price(SPACE).tuned);
    wp_rooms_destroy(rooms);
}

static const struct wp_test tests[] = {
    {"without facts nothing is tuned", without_facts_nothing_is_tuned},
    {"what left and comes back makes room dear", what_left_and_comes_back_makes_room_dear},
    {"a large fleet has the same price", a_large_fleet_has_the_same_price},
    {"spaces are bounded", spaces_are_bounded},
    {"without memory nothing is tuned", without_memory_nothing_is_tuned},
    {NULL, NULL},
};
const struct wp_suite suite_rooms = {"rooms", tests};
