/* SPDX-License-Identifier: Apache-2.0 */
/* A crowd that comes at once with one new prefix: whoever is sent to its one holder waits for all
 * others there. */
#include "sim/replay.h"

#include "tests/lib/test.h"

enum { CROWD = 500, PREFIX = 16 }; /* 16 blocks of 512: 8k */

/* before: requests that the fleet is busy with when the crowd comes. */
static struct wp_figures play(const char *policy, size_t workers, size_t before, uint64_t stale_us)
{
    struct wp_plays_conf pc = {.copies = 1, .scale = 1, .seed = 1};
    struct wp_figures f = {0};
    struct wp_replay_conf rc;
    struct wp_report *r = NULL;
    struct wp_err err = WP_ERR_INIT;
    struct wp_plays p;
    struct wp_trace t = {0};
    uint64_t next = 1000, *ids;

    for (size_t i = 0; i < before; i++) {
        EXPECT_TRUE("room", wp_trace_add(&t, i * 40000, 6 * 512, 200, &ids));
        for (size_t k = 0; k < 6; k++)
            ids[k] = next++;
    }
    for (size_t i = 0; i < CROWD; i++) {
        EXPECT_TRUE("room", wp_trace_add(&t, 2000000 + i * 100, PREFIX * 512 + 200, 50, &ids));
        for (size_t k = 0; k < PREFIX; k++)
            ids[k] = k + 1;
        ids[PREFIX] = next++;
    }
    EXPECT_INT("plays", 0, wp_plays_make(&p, &t, &pc, &err));
    wp_trace_fini(&t);
    wp_replay_conf_init(&rc);
    rc.workers = workers;
    rc.policy = policy;
    rc.stale_us = stale_us;
    EXPECT_INT("replay", 0, wp_replay_run(&r, &rc, &p, &err));
    if (r) {
        wp_report_figures(r, &f);
        wp_report_destroy(r);
    }
    wp_plays_fini(&p);
    EXPECT_UINT("all were served", CROWD + before, f.requests);
    return f;
}

static void a_herd_does_not_trample_the_one_holder(void)
{
    static const struct {
        const char *label;
        size_t workers, before;
        uint64_t stale_us;
    } cases[] = {
        {"16 idle workers", 16, 0, 50000}, {"16 busy workers", 16, 50, 50000},
        {"4 workers", 4, 0, 50000},        {"64 workers", 64, 0, 50000},
        {"nothing late", 16, 0, 0},        {"nothing late, 64 workers", 64, 0, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_figures price =
            play("price", cases[i].workers, cases[i].before, cases[i].stale_us);
        struct wp_figures least =
            play("least_work", cases[i].workers, cases[i].before, cases[i].stale_us);

        if (!(price.ttft_p99_s <= 1.01 * least.ttft_p99_s)) /* a step more or less */
            EXPECT_NEAR(cases[i].label, least.ttft_p99_s, price.ttft_p99_s, 0);
    }
}

static const struct wp_test tests[] = {
    {"a herd does not trample the one holder", a_herd_does_not_trample_the_one_holder},
    {NULL, NULL},
};
const struct wp_suite suite_herd = {"herd", tests};
