/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/load.h"

#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

/* Without overhead and decode costs: the slow-down is 1.  A step's chunk is 100 tokens of 10 us: 1
 * ms. */
static const struct wp_profile plain = {.a_us = 10, .budget = 100, .speed = 1};
/* Each decoding sequence adds 0.1 to the slow-down, each 1,000 tokens of KV 0.5. */
static const struct wp_profile slowed = {
    .a_us = 10, .budget = 100, .e_us = 100, .d_us = 0.5, .speed = 1};

static void expect_rest(const char *label, const struct wp_load *l)
{
    EXPECT_TRUE(label, wp_list_empty(&l->waiting));
    EXPECT_TRUE(label, l->backlog_us == 0 && l->pending_us == 0);
    EXPECT_UINT(label, 0, l->in_flight);
    EXPECT_UINT(label, 0, l->decoding);
    EXPECT_UINT(label, 0, l->kv_tokens);
    EXPECT_UINT(label, 0, l->prefill_tokens);
    EXPECT_TRUE(label, wp_load_wait_us(l, &plain, UINT64_MAX) == 0);
}

static void work_drains_with_time(void)
{
    struct wp_load l;
    struct wp_load_item it[2] = {{.stage = 0}, {.stage = 0}};

    wp_load_init(&l);
    EXPECT_NEAR("idle", 0, wp_load_wait_us(&l, &plain, 1000), 0);
    wp_load_begin(&l, &it[0], &plain, 1000, 50000, 5000, 8000);
    EXPECT_NEAR("at once", 50000, wp_load_wait_us(&l, &plain, 1000), 1e-6);
    EXPECT_NEAR("20 ms later", 30000, wp_load_wait_us(&l, &plain, 21000), 1e-6);
    wp_load_begin(&l, &it[1], &plain, 21000, 7000, 700, 700);
    EXPECT_NEAR("one more", 37000, wp_load_wait_us(&l, &plain, 21000), 1e-6);
    EXPECT_UINT("outstanding tokens", 5700, l.prefill_tokens);
    EXPECT_UINT("nothing decodes", 0, l.kv_tokens);
    wp_load_end(&l, &it[0], &plain, 21000);
    wp_load_end(&l, &it[1], &plain, 21000);
    expect_rest("ended", &l);
}

static void a_decode_batch_slows_the_drain(void)
{
    struct wp_load l;
    struct wp_load_item d = {.stage = 0}, it = {.stage = 0};

    wp_load_init(&l);
    wp_load_begin(&l, &d, &slowed, 0, 0, 1, 1800);
    wp_load_first(&l, &d, &slowed, 0);
    wp_load_token(&l, &d, 200);
    EXPECT_UINT("prompt and output", 2000, l.kv_tokens);
    wp_load_begin(&l, &it, &slowed, 0, 10000, 1000, 1000); /* slow-down 1 + 0.1 + 1.0 */
    EXPECT_NEAR("whole", 21000, wp_load_wait_us(&l, &slowed, 0), 1e-6);
    EXPECT_NEAR("half", 10500, wp_load_wait_us(&l, &slowed, 10500), 1e-3);
    wp_load_end(&l, &d, &slowed, 10500);
    EXPECT_NEAR("the rest goes at full pace", 5000, wp_load_wait_us(&l, &slowed, 10500), 1e-3);
    wp_load_end(&l, &it, &slowed, 10500);
    expect_rest("ended", &l);
}

static void a_first_token_sets_the_reckoning_right(void)
{
    struct wp_load l;
    struct wp_load_item it[3] = {{.stage = 0}, {.stage = 0}, {.stage = 0}};

    wp_load_init(&l);
    for (int i = 0; i < 3; i++)
        wp_load_begin(&l, &it[i], &plain, 0, 10000, 1000, 1000);
    wp_load_first(&l, &it[0], &plain,
                  2000); /* sooner than reckoned: it had a longer prefix cached */
    EXPECT_NEAR("no more than what is behind it", 20000, wp_load_wait_us(&l, &plain, 2000), 1e-6);
    wp_load_first(&l, &it[1], &plain, 20000); /* later than reckoned, 2,000 us would be left */
    EXPECT_NEAR("what is behind, less one step", 9000, wp_load_wait_us(&l, &plain, 20000), 1e-6);
    for (int i = 0; i < 3; i++)
        wp_load_end(&l, &it[i], &plain, 30000);
    expect_rest("ended", &l);
}

static void a_first_token_vouches_for_all_that_were_dispatched_before(void)
{
    struct wp_load l;
    struct wp_load_item it[3] = {{.stage = 0}, {.stage = 0}, {.stage = 0}};

    wp_load_init(&l);
    for (int i = 0; i < 3; i++)
        wp_load_begin(&l, &it[i], &plain, 0, 10000, 1000, 1000);
    wp_load_first(&l, &it[1], &plain, 1000);
    EXPECT_NEAR("two are done", 10000, wp_load_wait_us(&l, &plain, 1000), 1e-6);
    EXPECT_UINT("one's tokens are outstanding", 1000, l.prefill_tokens);
    EXPECT_UINT("one decodes", 1, l.decoding);
    EXPECT_UINT("all are in flight", 3, l.in_flight);
    wp_load_first(&l, &it[0], &plain, 1001);
    EXPECT_UINT("two decode", 2, l.decoding);
    wp_load_first(&l, &it[0], &plain, 1002);
    EXPECT_UINT("a second first token is none", 2, l.decoding);
    for (int i = 2; i >= 0; i--) {
        wp_load_end(&l, &it[i], &plain, 5000);
        wp_load_end(&l, &it[i], &plain, 5000);
    }
    expect_rest("ended, twice each", &l);
}

static void a_stalled_worker_does_not_look_free(void)
{
    struct wp_load l;
    struct wp_load_item it[2] = {{.stage = 0}, {.stage = 0}};
    double last = 0;

    wp_load_init(&l);
    wp_load_begin(&l, &it[0], &plain, 0, 1e6, 1000, 1000);
    wp_load_begin(&l, &it[1], &plain, 0, 1e6, 1000, 1000);
    EXPECT_NEAR("on time", 0.05 * 2e6, wp_load_wait_us(&l, &plain, 1000000) - 0.9e6, 1e-3);
    EXPECT_NEAR("head 2 s late", (0.05 + 0.95 / 2) * 2e6, wp_load_wait_us(&l, &plain, 3000000),
                1e-3);
    for (uint64_t t = 2000000; t < 3600000000u; t += 10000000) {
        double w = wp_load_wait_us(&l, &plain, t);

        EXPECT_TRUE("later is never less", w >= last);
        EXPECT_TRUE("never more than what waits", w <= 2e6);
        last = w;
    }
    wp_load_first(&l, &it[0], &plain, 3600000000u);
    EXPECT_TRUE("a sign of life: only what is behind",
                wp_load_wait_us(&l, &plain, 3600000000u) <= 1e6);
    wp_load_end(&l, &it[1], &plain, 3600000000u);
    wp_load_end(&l, &it[0], &plain, 3600000000u);
    expect_rest("ended", &l);
}

static void what_is_cancelled_in_the_queue_is_taken_off(void)
{
    struct wp_load l;
    struct wp_load_item it[3] = {{.stage = 0}, {.stage = 0}, {.stage = 0}};

    wp_load_init(&l);
    for (int i = 0; i < 3; i++)
        wp_load_begin(&l, &it[i], &plain, 0, 10000, 1000, 1000);
    wp_load_end(&l, &it[1], &plain, 4000); /* not begun: all of it */
    EXPECT_NEAR("6 + 10", 16000, wp_load_wait_us(&l, &plain, 4000), 1e-6);
    wp_load_end(&l, &it[0], &plain, 4000); /* begun: what was left of it */
    EXPECT_NEAR("10", 10000, wp_load_wait_us(&l, &plain, 4000), 1e-6);
    wp_load_end(&l, &it[2], &plain, 4000);
    expect_rest("ended", &l);
}

static void a_clock_that_goes_back_drains_nothing(void)
{
    struct wp_load l;
    struct wp_load_item it[2] = {{.stage = 0}, {.stage = 0}};

    wp_load_init(&l);
    wp_load_begin(&l, &it[0], &plain, 1000000, 50000, 1, 1);
    EXPECT_NEAR("asked in the past", 50000, wp_load_wait_us(&l, &plain, 5), 1e-6);
    wp_load_begin(&l, &it[1], &plain, 10, 1000, 1, 1);
    EXPECT_NEAR("begun in the past", 51000, wp_load_wait_us(&l, &plain, 10), 1e-6);
    EXPECT_NEAR("and goes on from there", 41000, wp_load_wait_us(&l, &plain, 10010), 1e-6);
    wp_load_end(&l, &it[0], &plain, 0);
    wp_load_end(&l, &it[1], &plain, 0);
    expect_rest("ended", &l);
}

static void absurd_work_is_defined(void)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, -1, 1e300};
    struct wp_load l;

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct wp_load_item it = {.stage = 0};

        wp_load_init(&l);
        wp_load_begin(&l, &it, NULL, UINT64_MAX, odd[i], UINT32_MAX, UINT32_MAX);
        EXPECT_TRUE("wait", isfinite(wp_load_wait_us(&l, NULL, UINT64_MAX)) &&
                                wp_load_wait_us(&l, NULL, 0) >= 0);
        wp_load_first(&l, &it, NULL, 0);
        wp_load_token(&l, &it, UINT32_MAX);
        EXPECT_UINT("saturates", UINT32_MAX, l.kv_tokens);
        wp_load_end(&l, &it, NULL, UINT64_MAX);
        expect_rest("ended", &l);
    }
}

/* Any sequence of calls, a clock that jumps both ways: invariants after each, exact rest at the
 * end. */
static void random_sequences(void)
{
    enum { ITEMS = 40 };
    struct wp_rng r = {.state = 7};

    for (int round = 0; round < 60; round++) {
        struct wp_load l;
        struct wp_load_item it[ITEMS] = {{.stage = 0}};
        uint64_t now = 1000000;

        wp_load_init(&l);
        for (int step = 0; step < 400; step++) {
            struct wp_load_item *at = &it[wp_rng_below(&r, ITEMS)];
            double w;

            now += wp_rng_below(&r, 100000);
            now -= wp_rng_below(&r, 20) ? 0 : wp_rng_below(&r, now);
            switch (wp_rng_below(&r, 5)) {
            case 0:
            case 1:
                if (at->stage == WP_LOAD_NONE)
                    wp_load_begin(&l, at, &slowed, now, wp_rng_exp(&r, 30000),
                                  (uint32_t)wp_rng_below(&r, 9000), 9000);
                break;
            case 2:
                wp_load_first(&l, at, &slowed, now);
                break;
            case 3:
                wp_load_token(&l, at, 1 + (uint32_t)wp_rng_below(&r, 3));
                break;
            default:
                wp_load_end(&l, at, &slowed, now);
            }
            w = wp_load_wait_us(&l, &slowed, now + wp_rng_below(&r, 100000));
            if (!(w >= 0 && isfinite(w) && l.backlog_us >= 0 && l.pending_us >= 0 &&
                  l.backlog_us <= l.pending_us + 1e-3 && l.decoding <= l.in_flight))
                EXPECT_INT("invariants hold at step", -1, step);
        }
        for (int i = 0; i < ITEMS; i++)
            wp_load_end(&l, &it[i], &slowed, now);
        expect_rest("all ended", &l);
    }
}

/* Three requests, and a report of the moment when the first one was half through. */
static void a_report_is_believed_and_what_came_later_added(void)
{
    struct wp_load l;
    struct wp_load_item it[3] = {{.stage = 0}, {.stage = 0}, {.stage = 0}};
    uint32_t n;
    uint64_t tokens;

    wp_load_init(&l);
    wp_load_begin(&l, &it[0], &plain, 0, 10000, 1000, 1000);
    wp_load_begin(&l, &it[1], &plain, 0, 10000, 1000, 1000);
    wp_load_begin(&l, &it[2], &plain, 50000, 7000, 700, 700);
    wp_load_told(&l, &plain, 9000, 1500, 3, 0, 0); /* slower than reckoned: 500 tokens in 9 ms */
    EXPECT_NEAR("15 ms at 9 ms, done at 24; 7 ms at 50 ms", 7000,
                wp_load_wait_us(&l, &plain, 50000), 1e-6);
    EXPECT_NEAR("and drains", 2000, wp_load_wait_us(&l, &plain, 55000), 1e-6);
    wp_load_since(&l, &n, &tokens);
    EXPECT_UINT("one since", 1, n);
    EXPECT_UINT("of 700", 700, tokens);
    wp_load_told(&l, &plain, 49000, 2000, 3, 0, 0); /* it had done nothing at all */
    EXPECT_NEAR("20 ms at 49 ms, 19 at 50, and 7", 26000, wp_load_wait_us(&l, &plain, 50000), 1e-6);
    wp_load_told(&l, &plain, 60000, 700, 3, 3, 0);
    EXPECT_NEAR("all is in it", 7000, wp_load_wait_us(&l, &plain, 60000), 1e-6);
    wp_load_told(&l, &plain, 60000, 3700, 4, 0, 0);
    EXPECT_NEAR("others' work too", 37000, wp_load_wait_us(&l, &plain, 60000), 1e-6);
    wp_load_told(&l, &plain, 60000, 9700, 3, 0, 0);
    EXPECT_NEAR("counted otherwise: our own account goes on", 37000,
                wp_load_wait_us(&l, &plain, 60000), 1e-6);
    wp_load_told(&l, &slowed, 60000, 700, 3, 10, 0);
    EXPECT_NEAR("its own word on its batch", 14000, wp_load_wait_us(&l, &slowed, 60000), 1e-6);
    for (int i = 0; i < 3; i++)
        wp_load_end(&l, &it[i], &plain, 70000);
    wp_load_told(&l, &plain, 70000, 0, 3, 0, 0);
    expect_rest("at the end", &l);
}

static void absurd_reports_have_an_answer(void)
{
    struct wp_load l;
    struct wp_load_item it = {.stage = 0};

    wp_load_init(&l);
    wp_load_told(&l, NULL, UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX);
    EXPECT_TRUE("a number", isfinite(wp_load_wait_us(&l, NULL, 0)));
    wp_load_begin(&l, &it, NULL, 1000, NAN, UINT32_MAX, 0);
    wp_load_told(&l, NULL, 0, UINT64_MAX, 9, 0, 0);
    EXPECT_TRUE("a number",
                isfinite(wp_load_wait_us(&l, NULL, 5)) && wp_load_wait_us(&l, NULL, 5) >= 0);
    wp_load_end(&l, &it, NULL, 0);
    EXPECT_TRUE("not negative", wp_load_wait_us(&l, NULL, UINT64_MAX) >= 0);
}

const struct wp_suite suite_load = {
    "load",
    (const struct wp_test[]){
        {"work drains with time", work_drains_with_time},
        {"a decode batch slows the drain", a_decode_batch_slows_the_drain},
        {"a first token sets the reckoning right", a_first_token_sets_the_reckoning_right},
        {"a first token vouches for all that were dispatched before",
         a_first_token_vouches_for_all_that_were_dispatched_before},
        {"a stalled worker does not look free", a_stalled_worker_does_not_look_free},
        {"what is cancelled in the queue is taken off",
         what_is_cancelled_in_the_queue_is_taken_off},
        {"a clock that goes back drains nothing", a_clock_that_goes_back_drains_nothing},
        {"absurd work is defined", absurd_work_is_defined},
        {"any sequence of calls keeps the account, and ends at rest", random_sequences},
        {"a report is believed, and what came later added",
         a_report_is_believed_and_what_came_later_added},
        {"absurd reports have an answer", absurd_reports_have_an_answer},
        {NULL, NULL},
    },
};
