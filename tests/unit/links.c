/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/links.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

enum { N = 8 };
static const double GB = 1e9;

static void start(struct wp_links *l)
{
    double rate[N];

    for (int i = 0; i < N; i++)
        rate[i] = 25 * GB;
    EXPECT_INT("made", 0, wp_links_init(l, N, rate, 20 * GB, 2000));
}

static void transfers_queue_on_both_links(void)
{
    struct wp_links l;
    struct wp_transfer a, b, c, d;

    start(&l);
    wp_links_begin(&l, &a, 1000, 0, 1, 25e6); /* a millisecond */
    wp_links_begin(&l, &b, 1000, 0, 2, 25e6);
    wp_links_begin(&l, &c, 1000, 3, 2, 25e6);
    wp_links_begin(&l, &d, 1000, N, 4, 20e6); /* the pool's link is the slower one */
    EXPECT_UINT("at once", 2000, a.end_us);
    EXPECT_UINT("behind the first, at the source", 3000, b.end_us);
    EXPECT_UINT("behind the second, at the worker", 4000, c.end_us);
    EXPECT_UINT("the pool", 2000, d.end_us);
    EXPECT_NEAR("busy out", 2000, wp_link_out_busy(&l, 0, 1000), 0);
    EXPECT_NEAR("busy in", 3000, wp_link_in_busy(&l, 2, 1000), 0);
    EXPECT_NEAR("busy later", 0, wp_link_in_busy(&l, 2, 9000), 0);
    wp_links_done(&l, &a, 4000);
    wp_links_done(&l, &a, 4000); /* twice is once */
    wp_links_lost(&l, &b);
    wp_links_lost(&l, &c);
    wp_links_lost(&l, &d);
    EXPECT_TRUE("nothing is open", wp_list_empty(&l.open));
    EXPECT_NEAR("as said", 25 * GB, wp_link_rate(&l, 0, 5000), 1);
    wp_links_fini(&l);
}

/* A world with slow links in which each transfer is told of when it ends. */
static uint64_t play(struct wp_links *l, const double truth[], uint64_t now, uint32_t from,
                     uint32_t to)
{
    struct wp_transfer t;
    double us = 1e9 / fmin(truth[from], truth[to]) * 1e6;

    wp_links_begin(l, &t, now, from, to, 1e9);
    wp_links_done(l, &t, now + (uint64_t)us + 2000);
    return now + (uint64_t)us + 3000;
}

static void slow_links_are_found_and_fast_ones_cleared(void)
{
    double truth[N] = {1e9, 1e9, 25e9, 25e9, 1e9, 25e9, 25e9, 25e9};
    struct wp_links l;
    struct wp_rng r = {.state = 3};
    uint64_t now = 1000000;

    start(&l);
    for (int k = 0; k < 60; k++) {
        uint32_t a = (uint32_t)wp_rng_below(&r, N), b = (uint32_t)wp_rng_below(&r, N - 1);

        now = play(&l, truth, now, a, b + (b >= a));
    }
    for (uint32_t i = 0; i < N; i++)
        EXPECT_TRUE("found", fabs(log(wp_link_rate(&l, i, now) / truth[i])) < 0.3);
    now += 7200000000u;
    for (uint32_t i = 0; i < N; i++)
        EXPECT_TRUE("forgiven in time", wp_link_rate(&l, i, now) > 0.9 * 25e9);
    wp_links_fini(&l);
}

static void what_is_late_counts_before_it_ends(void)
{
    struct wp_links l;
    struct wp_transfer t, u;

    start(&l);
    wp_links_begin(&l, &t, 0, 0, 1, 1e9); /* 40 ms, they say */
    wp_links_begin(&l, &u, 0, 2, 1, 1e9);
    EXPECT_TRUE("in time", wp_links_overdue(&l, 100000) == NULL);
    EXPECT_TRUE("by far", wp_links_overdue(&l, 1000000) == &t);
    wp_links_late(&l, &t, 1000000);
    EXPECT_NEAR("no faster than that", 1e9, wp_link_rate(&l, 1, 1000000), 1e7);
    EXPECT_TRUE("asked once", wp_links_overdue(&l, 1000000) == NULL);
    EXPECT_TRUE("it is still busy", u.start_us >= 1000000);
    wp_links_lost(&l, &t);
    wp_links_lost(&l, &u);
    wp_links_fini(&l);
}

static void absurd_links_have_an_answer(void)
{
    double rate[3] = {0, NAN, -5};
    struct wp_links l;
    struct wp_transfer t;

    EXPECT_INT("made", 0, wp_links_init(&l, 3, rate, INFINITY, NAN));
    for (uint32_t i = 0; i < 3; i++)
        EXPECT_NEAR("no link", 0, wp_link_rate(&l, i, 5), 0);
    wp_links_begin(&l, &t, 100, 0, 1, NAN);
    EXPECT_UINT("at once", 100, t.end_us);
    wp_links_done(&l, &t, 5); /* before it began */
    wp_links_begin(&l, &t, 100, 3, 2, 1e30);
    EXPECT_TRUE("asked", wp_links_overdue(&l, UINT64_MAX) == &t);
    wp_links_late(&l, &t, UINT64_MAX);
    wp_links_done(&l, &t, UINT64_MAX);
    EXPECT_TRUE("a number", isfinite(wp_link_in_busy(&l, 2, 0)));
    wp_links_fini(&l);
    wp_mem_fail_after(0);
    EXPECT_INT("no memory", WP_ENOMEM, wp_links_init(&l, 3, rate, 1, 1));
    wp_mem_fail_after(-1);
}

static const struct wp_test tests[] = {
    {"transfers queue on both links", transfers_queue_on_both_links},
    {"slow links are found and fast ones cleared", slow_links_are_found_and_fast_ones_cleared},
    {"what is late counts before it ends", what_is_late_counts_before_it_ends},
    {"absurd links have an answer", absurd_links_have_an_answer},
    {NULL, NULL},
};
const struct wp_suite suite_links = {"links", tests};
