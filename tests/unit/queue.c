/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/queue.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

enum { MANY = 64 };

static const struct wp_queue_conf usual = {
    .max = MANY, .hold_us = 250000, .age = 0.1, .most_us = 60e6};

static void start(struct wp_queue *q, const struct wp_queue_conf *conf)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("made", 0, wp_queue_init(q, conf, &err));
}

static void nobody_is_held_while_anyone_is_free(void)
{
    struct wp_queue q;
    struct wp_queue_item it = {0};

    start(&q, &usual);
    EXPECT_TRUE("free", !wp_queue_holds(&q, 0, 1000, 1e6, 0));
    EXPECT_TRUE("just free", !wp_queue_holds(&q, 250000, 1000, 1e6, 0));
    EXPECT_TRUE("not free", wp_queue_holds(&q, 250001, 1000, 1e6, 0));
    EXPECT_TRUE("nobody is there", wp_queue_holds(&q, INFINITY, 1000, 1e6, 0));
    EXPECT_TRUE("nobody knows", wp_queue_holds(&q, NAN, 1000, 1e6, 0));
    EXPECT_TRUE("held", wp_queue_push(&q, &it, 1000, 2e6, 0, 0));
    EXPECT_TRUE("cheaper than who is held", !wp_queue_holds(&q, 0, 1000, 1e6, 0));
    EXPECT_TRUE("behind who is held", wp_queue_holds(&q, 0, 1000, 3e6, 0));
    EXPECT_TRUE("not yet", wp_queue_pop(&q, 2000, 250001) == NULL);
    EXPECT_TRUE("now", wp_queue_pop(&q, 3000, 250000) == &it);
    EXPECT_NEAR("for 2 ms", 2000, q.longest_us, 0);
    EXPECT_TRUE("nobody is left", wp_queue_pop(&q, 3000, 0) == NULL);
    wp_queue_fini(&q);
}

/* Later and shorter ones pass it for as long as its compute is longer, over age, and no longer. */
static void a_long_prompt_is_passed_for_a_bounded_time(void)
{
    struct wp_queue q;
    struct wp_queue_item big = {0}, small[MANY] = {{0}};
    uint64_t now = 0;
    size_t passed = 0;

    start(&q, &usual);
    (void)wp_queue_push(&q, &big, 0, 5e6, 0, UINT64_MAX); /* 5 s: for 50 s at most */
    for (size_t i = 0;; i++) {
        struct wp_queue_item *it;

        now += 1000000;
        (void)wp_queue_push(&q, &small[i % MANY], now, 1000, 0, UINT64_MAX);
        it = wp_queue_pop(&q, now, 0);
        if (it == &big)
            break;
        passed++;
        if (passed > 1000)
            break;
    }
    EXPECT_UINT("one a second", 49, passed);
    wp_queue_fini(&q);
}

static void it_is_bounded_and_can_be_off(void)
{
    struct wp_queue_conf off = usual;
    struct wp_queue_item it[MANY + 1] = {{0}};
    struct wp_queue q;

    start(&q, &usual);
    for (size_t i = 0; i < MANY; i++)
        EXPECT_TRUE("room", wp_queue_push(&q, &it[i], i, 1, 0, 0));
    EXPECT_TRUE("full", !wp_queue_push(&q, &it[MANY], 99, 1, 0, 0));
    EXPECT_UINT("counted", 1, q.refused);
    EXPECT_UINT("not in it", 0, it[MANY].at);
    wp_queue_fini(&q);
    off.max = 0;
    start(&q, &off);
    EXPECT_TRUE("nobody waits", !wp_queue_holds(&q, 1e9, 0, 1, 0));
    EXPECT_TRUE("nobody can", !wp_queue_push(&q, &it[0], 0, 1, 0, 0));
    wp_queue_fini(&q);
}

static void a_deadline_is_kept_whoever_is_free(void)
{
    struct wp_queue q;
    struct wp_queue_item it[3] = {{0}};

    start(&q, &usual);
    (void)wp_queue_push(&q, &it[0], 0, 1, 0, 0);
    (void)wp_queue_push(&q, &it[1], 0, 100, 0, 5000);
    (void)wp_queue_push(&q, &it[2], 0, 10, 0, 4000);
    wp_queue_del(&q, &it[2]); /* its client went away */
    wp_queue_del(&q, &it[2]);
    EXPECT_TRUE("asked in time", wp_queue_next_us(&q, 1000, 1e12) <= 5000);
    EXPECT_TRUE("not yet", wp_queue_pop(&q, 4999, 1e12) == NULL);
    EXPECT_TRUE("now", wp_queue_pop(&q, 5000, 1e12) == &it[1]);
    EXPECT_UINT("counted", 1, q.late);
    EXPECT_UINT("the next one", 60000000, wp_queue_next_us(&q, 6000, 1e12));
    EXPECT_TRUE("the longest hold", wp_queue_pop(&q, 60000000, NAN) == &it[0]);
    wp_queue_fini(&q);
}

/* Nothing is told any more: it asks to be asked when the wait has drained, and is never silent. */
static void it_says_when_to_ask_again(void)
{
    struct wp_queue q;
    struct wp_queue_item it = {0};

    start(&q, &usual);
    EXPECT_TRUE("nobody is held", wp_queue_next_us(&q, 1000, 1e6) == UINT64_MAX);
    (void)wp_queue_push(&q, &it, 1000, 1, 0, 0);
    EXPECT_UINT("when 0.75 s have drained", 1000 + 750001, wp_queue_next_us(&q, 1000, 1e6));
    EXPECT_UINT("soon", 2000, wp_queue_next_us(&q, 1000, 0));
    EXPECT_UINT("nobody is there", 60001000, wp_queue_next_us(&q, 1000, INFINITY));
    EXPECT_UINT("nobody knows", 60001000, wp_queue_next_us(&q, 1000, NAN));
    wp_queue_fini(&q);
}

static void ranks_come_first_and_equals_in_order(void)
{
    struct wp_queue q;
    struct wp_queue_item it[4] = {{0}};

    start(&q, &usual);
    (void)wp_queue_push(&q, &it[0], 0, 10, 1, 0);
    (void)wp_queue_push(&q, &it[1], 0, 1000, 0, 0);
    (void)wp_queue_push(&q, &it[2], 0, 1000, 0, 0);
    (void)wp_queue_push(&q, &it[3], 0, NAN, 2, 0);
    EXPECT_TRUE("rank 0", wp_queue_pop(&q, 1, 0) == &it[1]);
    EXPECT_TRUE("then its equal", wp_queue_pop(&q, 1, 0) == &it[2]);
    EXPECT_TRUE("rank 1", wp_queue_pop(&q, 1, 0) == &it[0]);
    EXPECT_TRUE("the last", wp_queue_pop(&q, 1, 0) == &it[3]);
    wp_queue_fini(&q);
}

/* Beside a list that is searched. */
static void any_sequence_comes_out_in_order(void)
{
    struct wp_rng r = {.state = 5};

    for (int round = 0; round < 200; round++) {
        struct wp_queue_item it[MANY] = {{0}};
        bool in[MANY] = {false};
        struct wp_queue q;

        start(&q, &usual);
        for (int k = 0; k < 300; k++) {
            size_t i = wp_rng_below(&r, MANY);

            if (in[i] && wp_rng_below(&r, 2)) {
                wp_queue_del(&q, &it[i]);
                in[i] = false;
            } else if (!in[i]) {
                in[i] =
                    wp_queue_push(&q, &it[i], wp_rng_below(&r, 100), (double)wp_rng_below(&r, 20),
                                  (uint32_t)wp_rng_below(&r, 2), UINT64_MAX);
            }
        }
        for (struct wp_queue_item *at, *last = NULL; (at = wp_queue_pop(&q, 1000, 0)); last = at) {
            EXPECT_TRUE("was in", in[at - it]);
            in[at - it] = false;
            if (last && (last->rank > at->rank || (last->rank == at->rank && last->key > at->key)))
                EXPECT_TRUE("in order", 0);
        }
        for (size_t i = 0; i < MANY; i++)
            EXPECT_TRUE("all came out", !in[i]);
        wp_queue_fini(&q);
    }
}

static void settings_that_make_no_sense_are_refused(void)
{
    struct wp_queue_conf bad[] = {usual, usual, usual, usual};
    struct wp_queue q;
    struct wp_err err;

    bad[0].hold_us = NAN;
    bad[1].age = 0;
    bad[2].most_us = -1;
    bad[3].max = (size_t)-1;
    for (size_t i = 0; i < 4; i++)
        EXPECT_INT("refused", WP_EINVAL, wp_queue_init(&q, &bad[i], &err));
    wp_mem_fail_after(0);
    EXPECT_INT("no memory", WP_ENOMEM, wp_queue_init(&q, &usual, &err));
    wp_mem_fail_after(-1);
}

static const struct wp_test tests[] = {
    {"nobody is held while anyone is free", nobody_is_held_while_anyone_is_free},
    {"a long prompt is passed for a bounded time", a_long_prompt_is_passed_for_a_bounded_time},
    {"it is bounded and can be off", it_is_bounded_and_can_be_off},
    {"a deadline is kept whoever is free", a_deadline_is_kept_whoever_is_free},
    {"it says when to ask again", it_says_when_to_ask_again},
    {"ranks come first and equals in order", ranks_come_first_and_equals_in_order},
    {"any sequence comes out in order", any_sequence_comes_out_in_order},
    {"settings that make no sense are refused", settings_that_make_no_sense_are_refused},
    {NULL, NULL},
};
const struct wp_suite suite_queue = {"queue", tests};
