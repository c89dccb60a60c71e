/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/queue.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

enum { MANY = 64 };

static const struct wp_queue_conf usual = {
    .max = MANY, .hold_us = 250000, .age = 0.1, .most_us = 60e6};

static const struct wp_queue_who nobodys = {0}; /* of no tenant, and no rank */

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
    EXPECT_TRUE("free", !wp_queue_holds(&q, 0, 1000, 1e6, nobodys));
    EXPECT_TRUE("just free", !wp_queue_holds(&q, 250000, 1000, 1e6, nobodys));
    EXPECT_TRUE("not free", wp_queue_holds(&q, 250001, 1000, 1e6, nobodys));
    EXPECT_TRUE("nobody is there", wp_queue_holds(&q, INFINITY, 1000, 1e6, nobodys));
    EXPECT_TRUE("nobody knows", wp_queue_holds(&q, NAN, 1000, 1e6, nobodys));
    EXPECT_TRUE("held", wp_queue_push(&q, &it, 1000, 2e6, nobodys, 0));
    EXPECT_TRUE("cheaper than who is held", !wp_queue_holds(&q, 0, 1000, 1e6, nobodys));
    EXPECT_TRUE("behind who is held", wp_queue_holds(&q, 0, 1000, 3e6, nobodys));
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
    (void)wp_queue_push(&q, &big, 0, 5e6, nobodys, UINT64_MAX); /* 5 s: for 50 s at most */
    for (size_t i = 0;; i++) {
        struct wp_queue_item *it;

        now += 1000000;
        (void)wp_queue_push(&q, &small[i % MANY], now, 1000, nobodys, UINT64_MAX);
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
        EXPECT_TRUE("room", wp_queue_push(&q, &it[i], i, 1, nobodys, 0));
    EXPECT_TRUE("full", !wp_queue_push(&q, &it[MANY], 99, 1, nobodys, 0));
    EXPECT_UINT("counted", 1, q.refused);
    EXPECT_UINT("not in it", 0, it[MANY].in_order.in);
    wp_queue_fini(&q);
    off.max = 0;
    start(&q, &off);
    EXPECT_TRUE("nobody waits", !wp_queue_holds(&q, 1e9, 0, 1, nobodys));
    EXPECT_TRUE("nobody can", !wp_queue_push(&q, &it[0], 0, 1, nobodys, 0));
    wp_queue_fini(&q);
}

static void a_deadline_is_kept_whoever_is_free(void)
{
    struct wp_queue q;
    struct wp_queue_item it[3] = {{0}};

    start(&q, &usual);
    (void)wp_queue_push(&q, &it[0], 0, 1, nobodys, 0);
    (void)wp_queue_push(&q, &it[1], 0, 100, nobodys, 5000);
    (void)wp_queue_push(&q, &it[2], 0, 10, nobodys, 4000);
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
    (void)wp_queue_push(&q, &it, 1000, 1, nobodys, 0);
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
    (void)wp_queue_push(&q, &it[0], 0, 10, (struct wp_queue_who){.rank = 1}, 0);
    (void)wp_queue_push(&q, &it[1], 0, 1000, nobodys, 0);
    (void)wp_queue_push(&q, &it[2], 0, 1000, nobodys, 0);
    (void)wp_queue_push(&q, &it[3], 0, NAN, (struct wp_queue_who){.rank = 2}, 0);
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
                in[i] = wp_queue_push(
                    &q, &it[i], wp_rng_below(&r, 100), (double)wp_rng_below(&r, 20),
                    (struct wp_queue_who){.rank = (uint32_t)wp_rng_below(&r, 2)}, UINT64_MAX);
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

/* ---- tenants ---- */

enum { ROWS = 4 };
static const struct wp_queue_conf shared = {
    .max = MANY, .hold_us = 250000, .age = 0.1, .most_us = 60e6, .tenants = ROWS};

static struct wp_queue_who tenant(uint32_t n, double weight)
{
    return (struct wp_queue_who){.tenant = n, .name = n, .weight = weight, .tokens = 100};
}

/* All have somebody held all the time; how many of each are let go in 1,000? */
static void tenants_get_tokens_by_their_weights(void)
{
    static const double weight[ROWS] = {1, 1, 2, 4};
    struct wp_queue_item it[ROWS][8] = {{{0}}};
    double got[ROWS] = {0};
    struct wp_queue q;

    start(&q, &shared);
    for (uint32_t t = 0; t < ROWS; t++)
        for (int k = 0; k < 8; k++)
            (void)wp_queue_push(&q, &it[t][k], 0, 1e6 * t, tenant(t + 1, weight[t]), UINT64_MAX);
    for (uint64_t now = 1; now <= 1000; now++) {
        struct wp_queue_item *at = wp_queue_pop(&q, now, 0);
        uint32_t t = at->tenant - 1;

        got[t] += at->tokens;
        (void)wp_queue_push(&q, at, now, 1e6 * t, tenant(t + 1, weight[t]), UINT64_MAX);
        for (uint32_t a = 0; a < ROWS; a++)
            for (uint32_t b = 0; b < ROWS; b++)
                EXPECT_TRUE("never further apart than a request of each",
                            got[a] / weight[a] - got[b] / weight[b] <= 100 / weight[a] + 1e-9);
    }
    EXPECT_TRUE("in proportion", got[3] > 3.9 * got[0] && got[3] < 4.1 * got[0]);
    wp_queue_fini(&q);
}

static void silence_saves_nothing_up(void)
{
    struct wp_queue_item busy[8] = {{0}}, idle[8] = {{0}};
    struct wp_queue q;
    int in_a_row = 0, most = 0;

    start(&q, &shared);
    for (int i = 0; i < 8; i++)
        (void)wp_queue_push(&q, &busy[i], 0, 1, tenant(1, 1), UINT64_MAX);
    for (uint64_t now = 1; now < 100; now++)
        (void)wp_queue_push(&q, wp_queue_pop(&q, now, 0), now, 1, tenant(1, 1), UINT64_MAX);
    for (int i = 0; i < 8; i++)
        (void)wp_queue_push(&q, &idle[i], 100, 1, tenant(2, 1), UINT64_MAX);
    for (uint64_t now = 101; q.n; now++) {
        in_a_row = wp_queue_pop(&q, now, 0)->tenant == 2 ? in_a_row + 1 : 0;
        most = in_a_row > most ? in_a_row : most;
    }
    EXPECT_TRUE("they take turns", most <= 2);
    wp_queue_fini(&q);
}

static void a_rank_goes_before_all_tenants_until_a_deadline(void)
{
    struct wp_queue_who low = tenant(1, 1), high = tenant(2, 1);
    struct wp_queue_item it[3] = {{0}};
    struct wp_queue q;

    high.tokens = 1000000;
    low.rank = 1;
    start(&q, &shared);
    (void)wp_queue_push(&q, &it[0], 0, 1, low, 50);
    (void)wp_queue_push(&q, &it[1], 0, 1e6, high, 0);
    (void)wp_queue_push(&q, &it[2], 0, 1e6, high, 0);
    EXPECT_TRUE("the better rank, much as it had", wp_queue_pop(&q, 1, 0) == &it[1]);
    EXPECT_TRUE("the deadline", wp_queue_pop(&q, 50, 0) == &it[0]);
    EXPECT_INT("is told", WP_QUEUE_LATE, it[0].end);
    EXPECT_TRUE("the rest", wp_queue_pop(&q, 51, 0) == &it[2]);
    wp_queue_fini(&q);
}

static void what_is_put_back_was_never_away(void)
{
    struct wp_queue_item it[2] = {{0}};
    struct wp_queue q;

    start(&q, &shared);
    (void)wp_queue_push(&q, &it[0], 0, 1000, tenant(1, 2), 0);
    (void)wp_queue_push(&q, &it[1], 0, 2000, tenant(2, 1), 0);
    for (int i = 0; i < 3; i++) {
        EXPECT_TRUE("the first", wp_queue_pop(&q, 10, 0) == &it[0]);
        wp_queue_put_back(&q, &it[0]);
        EXPECT_UINT("held", 2, q.n);
        EXPECT_UINT("none went", 0, q.released);
        EXPECT_NEAR("nothing was charged", 0, q.tenant[1].account, 1e-9);
    }
    EXPECT_UINT("its deadline stands", 60000000, wp_queue_next_us(&q, 0, 1e18));
    wp_queue_del(&q, &it[0]);
    EXPECT_TRUE("the other one", wp_queue_pop(&q, 10, 0) == &it[1]);
    wp_queue_fini(&q);
}

static void a_row_that_has_another_name_begins_anew(void)
{
    struct wp_queue_who was = tenant(1, 1), is = tenant(1, 1);
    struct wp_queue_item it = {0};
    struct wp_queue q;

    is.name = 77;
    start(&q, &shared);
    wp_queue_charge(&q, tenant(2, 1), 10, 1);
    (void)wp_queue_push(&q, &it, 2, 1, tenant(2, 1), 0); /* somebody is held: accounts count */
    wp_queue_charge(&q, was, 1000000, 3);
    EXPECT_TRUE("who had much comes last", wp_queue_holds(&q, 0, 4, 0, was));
    EXPECT_TRUE("another one does not", !wp_queue_holds(&q, 0, 4, 0, is));
    wp_queue_del(&q, &it);
    wp_queue_fini(&q);
}

/* Four seconds of compute a second are let go; the longest hold is 60 s. */
static void who_crowds_is_told_so(void)
{
    struct wp_queue_item it[MANY] = {{0}}, other = {0};
    struct wp_queue q;
    double share;
    size_t n = 0;

    start(&q, &shared);
    for (uint64_t now = 0; now < 5000000; now += 250000) {
        (void)wp_queue_push(&q, &other, now, 1e6, tenant(1, 1), UINT64_MAX);
        EXPECT_TRUE("alone it never does", !wp_queue_crowds(&q, tenant(1, 1), 1e12));
        (void)wp_queue_pop(&q, now + 249999, 0);
    }
    (void)wp_queue_push(&q, &other, 5000000, 1e6, tenant(2, 1), 5000001);
    EXPECT_TRUE("not alone", !wp_queue_alone(&q, tenant(1, 1)));
    for (; n < MANY - 1 && !wp_queue_crowds(&q, tenant(1, 1), 4e6); n++)
        (void)wp_queue_push(&q, &it[n], 5000000, 4e6, tenant(1, 1), 5000010 + n);
    EXPECT_UINT("half of the longest hold at half of the fleet", 15, n);
    EXPECT_NEAR("its wait", 32, 1e-6 * wp_queue_expect_us(&q, tenant(1, 1), 4e6), 17);
    EXPECT_TRUE("the last to come of who has most", wp_queue_last(&q, &share) == &it[14]);
    EXPECT_NEAR("so many", 15, share, 1e-9);
    EXPECT_NEAR("the other would have", 2, wp_queue_share(&q, tenant(2, 1)), 1e-9);
    EXPECT_TRUE("of worse rank is nobody", !wp_queue_below(&q, 0));
    (void)wp_queue_push(&q, &it[n], 5000000, 40e6, tenant(1, 1), 6000000);
    EXPECT_TRUE("the other's deadline",
                wp_queue_pop(&q, 5000001, 1e9) == &other && other.end == WP_QUEUE_LATE);
    EXPECT_TRUE("its own", wp_queue_pop(&q, 5000010, 1e9) == &it[0]);
    EXPECT_INT("it crowds", WP_QUEUE_CROWDS, it[0].end);
    EXPECT_UINT("counted", 1, q.crowded);
    wp_queue_fini(&q);
}

/* Beside a search of all: rank, account, key. */
static void any_sequence_of_tenants_comes_out_in_order(void)
{
    struct wp_rng r = {.state = 9};

    for (int round = 0; round < 200; round++) {
        struct wp_queue_item it[MANY] = {{0}};
        struct wp_queue q;

        start(&q, &shared);
        for (int k = 0; k < 400; k++) {
            size_t i = wp_rng_below(&r, MANY);
            struct wp_queue_who who =
                tenant((uint32_t)wp_rng_below(&r, ROWS + 1), 1 + (double)wp_rng_below(&r, 3));
            struct wp_queue_item *best = NULL, *got;

            who.rank = (uint32_t)wp_rng_below(&r, 3);
            if (it[i].in_order.in && wp_rng_below(&r, 3) == 0)
                wp_queue_del(&q, &it[i]);
            else if (!it[i].in_order.in)
                (void)wp_queue_push(&q, &it[i], wp_rng_below(&r, 100), (double)wp_rng_below(&r, 20),
                                    who, UINT64_MAX);
            if (wp_rng_below(&r, 2))
                continue;
            for (size_t j = 0; j < MANY; j++) {
                double a, b;

                if (!it[j].in_order.in)
                    continue;
                a = q.tenant[it[j].tenant].account;
                b = best ? q.tenant[best->tenant].account : 0;
                if (!best || it[j].rank < best->rank ||
                    (it[j].rank == best->rank &&
                     (a < b ||
                      (a == b && (it[j].key < best->key ||
                                  (it[j].key == best->key && it[j].number < best->number))))))
                    best = &it[j];
            }
            got = wp_queue_pop(&q, 1000, 0);
            EXPECT_TRUE("the one that a search finds", got == best);
        }
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
    {"tenants get tokens by their weights", tenants_get_tokens_by_their_weights},
    {"silence saves nothing up", silence_saves_nothing_up},
    {"a rank goes before all tenants, until a deadline",
     a_rank_goes_before_all_tenants_until_a_deadline},
    {"what is put back was never away", what_is_put_back_was_never_away},
    {"a row that has another name begins anew", a_row_that_has_another_name_begins_anew},
    {"who crowds is told so", who_crowds_is_told_so},
    {"any sequence of tenants comes out in order", any_sequence_of_tenants_comes_out_in_order},
    {"settings that make no sense are refused", settings_that_make_no_sense_are_refused},
    {NULL, NULL},
};
const struct wp_suite suite_queue = {"queue", tests};
