/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/brain.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

static struct wp_brain *brain_with(const struct wp_brain_conf *conf)
{
    struct wp_brain *b = NULL;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0, wp_brain_create(&b, conf, &err));
    return b;
}

static struct wp_brain *brain(uint32_t workers)
{
    struct wp_brain_conf conf;

    wp_brain_conf_init(&conf);
    conf.workers = workers;
    return brain_with(&conf);
}

/* A prompt of n whole blocks named from.. */
static struct wp_brain_answer ask(struct wp_brain *b, uint64_t t, uint64_t id, uint64_t from,
                                  size_t n)
{
    uint64_t block[128];
    struct wp_brain_req r = {.id = id, .tokens = (uint32_t)(512 * n), .block = block, .n = n};
    struct wp_brain_answer a = {0};
    struct wp_err err = WP_ERR_INIT;

    for (size_t i = 0; i < n; i++)
        block[i] = from + i;
    EXPECT_INT("asked", 0, wp_brain_ask(b, t, &r, &a, &err));
    return a;
}

static void serve(struct wp_brain *b, uint64_t t, uint64_t id, uint32_t worker, uint64_t from,
                  size_t n)
{
    for (size_t i = 0; i < n; i++)
        wp_brain_block(b, t, worker, WP_BRAIN_GPU, true, from + i);
    wp_brain_first(b, t, id);
    wp_brain_end(b, t + 1000, id);
}

static void a_prompt_goes_back_to_where_its_blocks_are(void)
{
    struct wp_brain *b = brain(4);
    struct wp_brain_answer a = ask(b, 0, 1, 100, 20), again;

    EXPECT_UINT("nothing is there yet", 0, a.hit_blocks);
    serve(b, 2000000, 1, a.worker, 100, 20);
    for (uint64_t k = 0; k < 8; k++) {
        again = ask(b, 3000000 + k * 1000000, 2 + k, 100, 20);
        EXPECT_UINT("the same worker", a.worker, again.worker);
        EXPECT_UINT("all of it", 20, again.hit_blocks);
        wp_brain_end(b, 3500000 + k * 1000000, 2 + k);
    }
    wp_brain_destroy(b);
}

static void what_is_on_its_way_counts_as_there(void)
{
    struct wp_brain *b = brain(4);
    struct wp_brain_answer a = ask(b, 0, 1, 100, 4), again = ask(b, 60000, 2, 100, 4);

    EXPECT_UINT("behind it", a.worker, again.worker);
    EXPECT_UINT("all of it", 4, again.hit_blocks);
    wp_brain_destroy(b);
}

static void what_is_gone_does_not_count(void)
{
    struct wp_brain *b = brain(2);
    struct wp_brain_answer a = ask(b, 0, 1, 100, 8);

    serve(b, 1000000, 1, a.worker, 100, 8);
    for (uint64_t i = 8; i-- > 3;)
        wp_brain_block(b, 1500000, a.worker, WP_BRAIN_GPU, false, 100 + i);
    wp_brain_block(b, 1500000, a.worker, WP_BRAIN_CPU, true, 103);
    a = ask(b, 2000000, 2, 100, 8);
    EXPECT_UINT("three on the gpu, one on the cpu", 4, a.hit_blocks);
    wp_brain_destroy(b);
}

static void what_nobody_knows_is_counted_and_ignored(void)
{
    struct wp_brain *b = brain(2);
    struct wp_brain_stats s;

    wp_brain_block(b, 0, 0, WP_BRAIN_GPU, true, 7);
    wp_brain_block(b, 0, 9, WP_BRAIN_GPU, true, 7);
    wp_brain_first(b, 0, 3);
    wp_brain_end(b, 0, 3);
    wp_brain_state(b, 0, 0, 5, &(struct wp_brain_state){0});
    wp_brain_stats(b, &s);
    EXPECT_UINT("blocks", 1, s.unknown_blocks);
    EXPECT_UINT("workers", 2, s.unknown_workers);
    EXPECT_UINT("requests", 2, s.unknown_requests);
    EXPECT_UINT("nothing is known", 0, s.blocks);
    wp_brain_destroy(b);
}

static void settings_that_make_no_sense_are_refused(void)
{
    struct wp_brain_conf conf;
    struct wp_brain *b;
    struct wp_err err = WP_ERR_INIT;

    wp_brain_conf_init(&conf);
    conf.workers = 0;
    EXPECT_INT("nobody", WP_EINVAL, wp_brain_create(&b, &conf, &err));
    EXPECT_TRUE("said", strstr(err.text, "workers"));
    wp_brain_conf_init(&conf);
    conf.nic_bytes_per_s = NAN;
    EXPECT_INT("no number", WP_EINVAL, wp_brain_create(&b, &conf, &err));
    wp_brain_conf_init(&conf);
    conf.policy = "pirce";
    EXPECT_INT("no policy", WP_EINVAL, wp_brain_create(&b, &conf, &err));
    EXPECT_TRUE("the nearest", strstr(err.text, "price"));
}

static void every_policy_answers(void)
{
    for (size_t p = 0; wp_policies[p]; p++) {
        struct wp_brain_conf conf;
        struct wp_brain *b;

        wp_brain_conf_init(&conf);
        conf.policy = wp_policies[p]->name;
        conf.workers = 1 + (uint32_t)p;
        b = brain_with(&conf);
        for (uint64_t k = 0; k < 30; k++)
            EXPECT_TRUE(conf.policy, ask(b, k * 1000, k, 10 * k, 5).worker < conf.workers);
        wp_brain_destroy(b);
    }
}

static void explain_is_one_object(void)
{
    struct wp_brain *b = brain(3);
    struct wp_buf out = {0};

    EXPECT_INT("before anything", 0, wp_brain_explain(b, &out));
    out.n = 0;
    (void)ask(b, 0, 1, 100, 20);
    EXPECT_INT("explain", 0, wp_brain_explain(b, &out));
    EXPECT_TRUE("terms", memmem(out.p, out.n, "\"compute\":", 10));
    EXPECT_TRUE("ends", out.p[out.n - 1] == '}');
    wp_buf_fini(&out);
    wp_brain_destroy(b);
}

/* ---- held ---- */

struct placed {
    uint64_t id[64];
    uint32_t worker[64];
    size_t n;
};

static void on_place(void *arg, uint64_t req, const struct wp_brain_answer *a)
{
    struct placed *p = arg;

    EXPECT_TRUE("room", p->n < 64);
    p->id[p->n] = req;
    p->worker[p->n++] = a->worker;
}

static void busy(struct wp_brain *b, uint64_t t, uint32_t worker, uint64_t tokens)
{
    wp_brain_state(b, t, t, worker,
                   &(struct wp_brain_state){.prefill_tokens = tokens, .in_flight = 1});
}

static void requests_wait_in_the_router_and_the_short_ones_go_first(void)
{
    struct wp_brain *b = brain(2);
    struct placed p = {.n = 0};
    struct wp_brain_stats s;

    busy(b, 0, 0, 40000); /* two seconds */
    busy(b, 0, 1, 20000);
    EXPECT_TRUE("held", ask(b, 1000, 1, 1000, 60).held);
    EXPECT_TRUE("held", ask(b, 2000, 2, 2000, 2).held);
    EXPECT_UINT("nobody is free", 0, wp_brain_tick(b, 3000, on_place, &p));
    EXPECT_TRUE("it says when", wp_brain_next_us(b) > 500000 && wp_brain_next_us(b) < 900000);
    wp_brain_stats(b, &s);
    EXPECT_UINT("two wait", 2, s.held);
    EXPECT_UINT("one", 1, wp_brain_tick(b, wp_brain_next_us(b), on_place, &p));
    EXPECT_UINT("the short one", 2, p.id[0]);
    EXPECT_UINT("to who is free", 1, p.worker[0]);
    EXPECT_UINT("then the other", 1, wp_brain_tick(b, wp_brain_next_us(b), on_place, &p));
    EXPECT_TRUE("nobody is held any more", wp_brain_next_us(b) == UINT64_MAX);
    EXPECT_TRUE("held", ask(b, 1000000, 3, 3000, 60).held);
    wp_brain_cancel(b, 1000001, 3);
    EXPECT_TRUE("its client went away", wp_brain_next_us(b) == UINT64_MAX);
    wp_brain_destroy(b);
}

/* The last report was seconds ago, and says busy: what was said has drained since, and nobody waits
 * for news. */
static void late_reports_starve_nobody(void)
{
    struct wp_brain *b = brain(2);
    struct placed p = {.n = 0};
    uint64_t t = 10000000;

    for (uint32_t w = 0; w < 2; w++) /* 10 s of work, 5 s ago */
        wp_brain_state(b, t, t - 5000000, w,
                       &(struct wp_brain_state){.prefill_tokens = 200000, .in_flight = 20});
    for (uint64_t k = 0; k < 20; k++)
        EXPECT_TRUE("held", ask(b, t + k, k, 100 * k, 20).held);
    while (p.n < 20 && t < 60000000) {
        uint64_t next = wp_brain_next_us(b);

        EXPECT_TRUE("in order", next > t);
        t = next;
        (void)wp_brain_tick(b, t, on_place, &p);
    }
    EXPECT_UINT("all of them", 20, p.n);
    EXPECT_TRUE("as what was said drains, and each has its time", t > 14000000 && t < 22000000);
    wp_brain_destroy(b);
}

static void a_queue_that_is_off_or_full_holds_nobody(void)
{
    struct wp_brain_conf conf;
    struct wp_brain *b;

    wp_brain_conf_init(&conf);
    conf.workers = 1;
    conf.policy_conf.hold_max = 0;
    b = brain_with(&conf);
    busy(b, 0, 0, 100000);
    EXPECT_TRUE("off", !ask(b, 1, 1, 0, 5).held);
    wp_brain_destroy(b);
    conf.policy_conf.hold_max = 1;
    b = brain_with(&conf);
    busy(b, 0, 0, 100000);
    EXPECT_TRUE("one", ask(b, 1, 1, 0, 5).held);
    EXPECT_TRUE("and no more", !ask(b, 2, 2, 0, 5).held);
    wp_brain_destroy(b);
}

static void what_is_short_enough_goes_by_the_speed(void)
{
    static const double speeds[] = {1, 8, 0.5};
    struct wp_brain_conf conf;

    for (size_t i = 0; i < sizeof speeds / sizeof speeds[0]; i++) {
        struct wp_brain *b;

        wp_brain_conf_init(&conf);
        conf.workers = 1;
        conf.profile.speed = speeds[i];
        b = brain_with(&conf);
        busy(b, 0, 0, 3500);
        EXPECT_TRUE("0.18 s of an engine at speed 1", !ask(b, 1, 1, 0, 5).held);
        wp_brain_destroy(b);
        b = brain_with(&conf);
        busy(b, 0, 0, 8000);
        EXPECT_TRUE("0.43 s of it", ask(b, 1, 1, 0, 5).held);
        wp_brain_destroy(b);
    }
}

/* ---- fetched ---- */

static void a_context_is_fetched_when_who_has_it_is_busy(void)
{
    struct wp_brain *b = brain(2);
    struct wp_brain_answer a = ask(b, 0, 1, 100, 60), again;
    uint32_t other = 1 - a.worker;

    serve(b, 3000000, 1, a.worker, 100, 60);
    busy(b, 3100000, a.worker, 100000); /* five seconds */
    again = ask(b, 3200000, 2, 100, 60);
    EXPECT_UINT("the free one", other, again.worker);
    EXPECT_UINT("one transfer", 1, again.n_fetch);
    EXPECT_TRUE("all of it", again.fetch[0].source == a.worker && again.fetch[0].from == 0 &&
                                 again.fetch[0].to == 60);
    EXPECT_TRUE("soon", again.predicted_us < 1e6);
    wp_brain_destroy(b);
}

static void what_links_really_do_is_found_out(void)
{
    struct wp_brain *b = brain(2);
    struct wp_brain_answer a = ask(b, 0, 1, 100, 60), again;
    uint32_t other = 1 - a.worker;

    serve(b, 3000000, 1, a.worker, 100, 60);
    busy(b, 3100000, a.worker, 100000);
    again = ask(b, 3200000, 2, 100, 60);
    EXPECT_UINT("one transfer", 1, again.n_fetch);
    for (uint64_t i = 60; i-- > 0;) /* ten seconds for ten gigabytes */
        wp_brain_block(b, 13300000, other, WP_BRAIN_CPU, true, 100 + i);
    serve(b, 14000000, 2, other, 100, 60);
    for (uint64_t i = 60; i-- > 0;) {
        wp_brain_block(b, 14100000, other, WP_BRAIN_CPU, false, 100 + i);
        wp_brain_block(b, 14100000, other, WP_BRAIN_GPU, false, 100 + i);
    }
    busy(b, 14200000, a.worker, 60000);
    again = ask(b, 14300000, 3, 100, 60);
    EXPECT_UINT("not again", 0, again.n_fetch);
    wp_brain_destroy(b);
}

static void the_store_is_a_source(void)
{
    struct wp_brain_conf conf;
    struct wp_brain_answer a;
    struct wp_brain *b;

    wp_brain_conf_init(&conf);
    conf.workers = 1;
    conf.store_blocks = 1000;
    b = brain_with(&conf);
    (void)ask(b, 0, 1, 100, 60);
    wp_brain_first(b, 3000000, 1);
    wp_brain_end(b, 3000000, 1);
    for (uint64_t i = 60; i-- > 20;)
        wp_brain_block(b, 3100000, WP_BRAIN_NO_WORKER, WP_BRAIN_STORE, true, 100 + i);
    for (uint64_t i = 0; i < 25; i++)
        wp_brain_block(b, 3100000, 0, WP_BRAIN_GPU, true, 100 + i);
    a = ask(b, 3200000, 2, 100, 60);
    EXPECT_UINT("one transfer", 1, a.n_fetch);
    EXPECT_TRUE("its tail", a.fetch[0].source == WP_BRAIN_FROM_STORE && a.fetch[0].from == 25 &&
                                a.fetch[0].to == 60);
    wp_brain_destroy(b);
}

static void a_clock_that_jumps_stops_nobody(void)
{
    static const uint64_t times[] = {5000000, 10, UINT64_MAX / 4, 7, UINT64_MAX / 2, 0};
    struct wp_brain *b = brain(3);
    struct placed p = {.n = 0};
    uint64_t id = 0;

    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        for (uint64_t k = 0; k < 4; k++) {
            struct wp_brain_answer a;

            id++;
            a = ask(b, times[i], id, 100 * id, 30);
            EXPECT_TRUE("an answer", a.held || a.worker < 3);
            wp_brain_state(b, times[i], times[(i + 3) % 6], (uint32_t)k,
                           &(struct wp_brain_state){.prefill_tokens = UINT64_MAX >> k});
        }
        (void)wp_brain_tick(b, times[i], on_place, &p);
    }
    (void)wp_brain_tick(b, UINT64_MAX / 2 + 61000000, on_place, &p);
    EXPECT_TRUE("nobody is held for ever", wp_brain_next_us(b) == UINT64_MAX);
    for (uint64_t k = 1; k <= id; k++)
        wp_brain_end(b, 3, k);
    wp_brain_destroy(b);
}

static void it_survives_every_allocation_that_fails(void)
{
    long live = wp_mem_live();
    bool done = false;

    for (long n = 0; !done; n++) {
        struct wp_brain_conf conf;
        struct wp_brain *b = NULL;
        struct wp_err err = WP_ERR_INIT;
        uint64_t block[3] = {1, 2, 3};
        struct wp_brain_req r = {.id = 1, .tokens = 1500, .block = block, .n = 3};
        struct wp_brain_answer a;

        wp_brain_conf_init(&conf);
        wp_mem_fail_after(n);
        if (wp_brain_create(&b, &conf, &err) == 0 && wp_brain_ask(b, 0, &r, &a, &err) == 0) {
            wp_brain_block(b, 1, a.worker, WP_BRAIN_GPU, true, 1);
            r.id = 2;
            (void)wp_brain_ask(b, 2, &r, &a, &err);
            wp_brain_end(b, 3, 1);
        }
        done = !wp_mem_failed();
        wp_mem_fail_after(-1);
        wp_brain_destroy(b);
        EXPECT_INT("nothing is left", live, wp_mem_live());
    }
}

static const struct wp_test tests[] = {
    {"a prompt goes back to where its blocks are", a_prompt_goes_back_to_where_its_blocks_are},
    {"what is on its way counts as there", what_is_on_its_way_counts_as_there},
    {"what is gone does not count", what_is_gone_does_not_count},
    {"what nobody knows is counted and ignored", what_nobody_knows_is_counted_and_ignored},
    {"settings that make no sense are refused", settings_that_make_no_sense_are_refused},
    {"every policy answers", every_policy_answers},
    {"explain is one object", explain_is_one_object},
    {"requests wait in the router, and the short ones go first",
     requests_wait_in_the_router_and_the_short_ones_go_first},
    {"late reports starve nobody", late_reports_starve_nobody},
    {"a queue that is off or full holds nobody", a_queue_that_is_off_or_full_holds_nobody},
    {"what is short enough goes by the speed", what_is_short_enough_goes_by_the_speed},
    {"a context is fetched when who has it is busy", a_context_is_fetched_when_who_has_it_is_busy},
    {"what links really do is found out", what_links_really_do_is_found_out},
    {"the store is a source", the_store_is_a_source},
    {"a clock that jumps stops nobody", a_clock_that_jumps_stops_nobody},
    {"it survives every allocation that fails", it_survives_every_allocation_that_fails},
    {NULL, NULL},
};
const struct wp_suite suite_brain = {"brain", tests};
