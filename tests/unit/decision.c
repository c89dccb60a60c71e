/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions as bytes: what was decided is decided again from them, to the bit; and what is no such record is refused. */
#include "policies/decision.h"

#include "base/frames.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sim/decisions.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 300 };

static struct wp_rng rng;
static struct wp_profile profiles[MOST];
static struct wp_worker_view view[MOST];
static struct wp_verdict verdict[MOST];
static struct wp_span spans[3];
static struct wp_pool pool;

static uint64_t below(uint64_t n)
{
    return wp_rng_below(&rng, n);
}

static double some(double most)
{
    return below(4) ? wp_rng_unit(&rng) * most : below(2) ? 0 : 1;
}

/* Workers of a busy fleet; wild: also what no fleet has. */
static void draw_workers(size_t n, bool wild)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, -1, 1e300, 5e-324, -0.0};

    for (size_t i = 0; i < n; i++) {
        struct wp_worker_view *v = &view[i];

        if (below(8) == 0 || !profiles[i].name[0]) {
            profiles[i] = *wp_profile_default();
            profiles[i].a_us *= 0.5 + wp_rng_unit(&rng); /* as calibration leaves it */
            profiles[i].t_c_us = some(3000);
        }
        *v = (struct wp_worker_view){.key = 77 * (i + 1),
                                     .in_flight = (uint32_t)below(200),
                                     .decoding = (uint32_t)below(100),
                                     .kv_tokens = below(1000000),
                                     .wait_us = some(3e6),
                                     .waiting = (uint32_t)below(10),
                                     .prefill_tokens = below(200000),
                                     .pinned = some(1),
                                     .active_blocks = (uint32_t)below(2000),
                                     .fresh_blocks = (uint32_t)below(200),
                                     .hit_tokens = (uint32_t)below(60000),
                                     .block_size = 16,
                                     .profile = &profiles[i],
                                     .correction = 1,
                                     .error = some(0.1),
                                     .index_tokens = (uint32_t)below(60000)};
        v->hit_tier[1] = below(2) ? (uint32_t)below(v->hit_tokens + 1) : 0;
        v->hit_tier[0] = v->hit_tokens - v->hit_tier[1];
        v->doubtful = below(3) ? 0 : (uint32_t)below(v->hit_tokens + 1);
        if (wild) {
            v->has_tokens = (uint32_t)below(90000);
            v->link_bytes_per_s = some(25e9);
            v->in_busy_us = some(1e6);
            v->out_busy_us = some(1e6);
            if (below(3) == 0)
                v->wait_us = odd[below(7)];
            if (below(3) == 0)
                v->correction = odd[below(7)];
            if (below(3) == 0)
                v->profile = NULL;
        }
    }
}

static struct wp_ask draw_ask(bool wild)
{
    struct wp_ask a = {.now_us = wp_rng_next(&rng) >> 20,
                       .draw = wp_rng_next(&rng),
                       .tokens = (uint32_t)below(100000),
                       .exact = below(2),
                       .max_tokens = (uint32_t)below(5000),
                       .prefix_key = wp_rng_next(&rng),
                       .session_key = below(2) ? wp_rng_next(&rng) : 0,
                       .queued = below(2)};

    if (below(2))
        a.room = (struct wp_room_price){true, some(30000), some(5)};
    if (wild && below(2)) {
        spans[0] = (struct wp_span){0, (uint32_t)below(3000)};
        spans[1] = (struct wp_span){4000, 4000 + (uint32_t)below(3000)};
        pool = (struct wp_pool){spans, below(3), some(1e6), some(2e10)};
        a.pool = &pool;
        a.latency_us = 2000;
    }
    return a;
}

static const char *name_of(void *arg, size_t i)
{
    static char text[40];

    (void)arg;
    snprintf(text, sizeof text, "engine-%zu.example.org:8000", i);
    return text;
}

/* Decides n times among so many workers and appends what is said of it. */
static void decide(struct wp_decision_writer *w, struct wp_policy *p, size_t n, size_t workers, bool wild, struct wp_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        struct wp_ask ask = draw_ask(wild);
        struct wp_decision d = {.id = i + 1, .wall_us = 1700000000000000 + i, .placed = below(8) != 0, .ask = &ask, .w = view, .v = verdict,
                                .n = workers, .name = name_of};

        draw_workers(workers, wild);
        d.chosen = p->ops->choose(p, &ask, view, workers, verdict);
        EXPECT_INT("written", 0, wp_decision_put(w, &d, out));
        if (d.placed && d.chosen < workers && p->ops->placed)
            p->ops->placed(p, &ask, &view[d.chosen]);
        if (d.placed)
            EXPECT_INT("outcome", 0, wp_decision_put_outcome(d.id, below(2) ? NAN : 1234.5, "good", out));
    }
}

static int read_all(struct wp_decision_reader *r, const struct wp_buf *b, struct wp_err *err)
{
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < b->n;) {
        uint32_t n;

        memcpy(&n, b->p + at + 1, 4);
        rc = wp_decision_read(r, (uint8_t)b->p[at], b->p + at + 5, n, err);
        at += 5 + n;
    }
    return rc;
}

static void each_policy_decides_the_same_again(void)
{
    for (size_t k = 0; wp_policies[k]; k++)
        for (int wild = 0; wild < 2; wild++) {
            const char *name = wp_policies[k]->name;
            struct wp_decision_writer w = {.n = 0};
            struct wp_decision_reader *r;
            struct wp_decision_counts c;
            struct wp_policy_conf conf;
            struct wp_policy *p;
            struct wp_buf out = {0};
            struct wp_err err = WP_ERR_INIT;

            rng.state = 5 + k;
            wp_policy_conf_init(&conf);
            conf.room_us = 12345.678901234567;
            conf.seed = 3;
            conf.pull = wild;
            EXPECT_INT(name, 0, wp_policy_create(&p, name, &conf, &err));
            EXPECT_INT(name, 0, wp_decision_put_policy(&w, name, &conf, &out));
            decide(&w, p, 300, 1 + below(20), wild, &out);
            EXPECT_INT(name, 0, wp_decision_reader_create(&r, &err));
            EXPECT_INT(name, 0, read_all(r, &out, &err));
            wp_decision_counted(r, &c);
            EXPECT_UINT(name, 300, c.decisions);
            EXPECT_UINT(name, strcmp(name, "sglang") == 0 ? 0 : 300, c.same);
            EXPECT_TEXT(name, "", wp_str_of(wp_decision_first_difference(r)));
            wp_decision_reader_destroy(r);
            wp_decision_writer_fini(&w);
            wp_buf_fini(&out);
            p->ops->destroy(p);
        }
}

static struct wp_buf price_log(size_t n, size_t workers)
{
    struct wp_decision_writer w = {.n = 0};
    struct wp_policy_conf conf;
    struct wp_policy *p;
    struct wp_buf out = {0};
    struct wp_err err = WP_ERR_INIT;

    memset(profiles, 0, sizeof profiles);
    wp_policy_conf_init(&conf);
    EXPECT_INT("policy", 0, wp_policy_create(&p, "price", &conf, &err));
    EXPECT_INT("settings", 0, wp_decision_put_policy(&w, "price", &conf, &out));
    decide(&w, p, n, workers, false, &out);
    wp_decision_writer_fini(&w);
    p->ops->destroy(p);
    return out;
}

static void a_decision_among_sixteen_takes_two_kilobytes_at_most(void)
{
    struct wp_buf out;
    size_t most = 0, sum = 0, n = 0;

    rng.state = 8;
    out = price_log(500, 16);
    for (size_t at = 0; at < out.n;) {
        uint32_t size;

        memcpy(&size, out.p + at + 1, 4);
        if (out.p[at] == 'D') {
            most = size > most ? size : most;
            sum += size;
            n++;
        }
        at += 5 + size;
    }
    EXPECT_UINT("all", 500, n);
    EXPECT_TRUE("the longest", most <= 2048);
    EXPECT_TRUE("the mean", sum / n < 1700);
    EXPECT_TRUE("with what is said of workers", out.n / n < 2048 + 512);
    wp_buf_fini(&out);
}

static void what_was_changed_is_seen(void)
{
    struct wp_decision_reader *r;
    struct wp_decision_counts c;
    struct wp_err err = WP_ERR_INIT;
    struct wp_policy_conf conf;
    struct wp_decision_writer w = {.n = 0};
    struct wp_ask ask = {.tokens = 5000, .draw = 1};
    struct wp_decision d = {.id = 9, .ask = &ask, .w = view, .v = verdict, .n = 2, .placed = true};
    struct wp_policy *p;

    wp_policy_conf_init(&conf);
    EXPECT_INT("policy", 0, wp_policy_create(&p, "price", &conf, &err));
    for (int change = 0; change < 4; change++) {
        static const char *const said[] = {"", "the choice", "compute", "prediction"};
        struct wp_buf out = {0};

        view[0] = (struct wp_worker_view){.key = 1, .correction = 1};
        view[1] = (struct wp_worker_view){.key = 2, .correction = 1, .wait_us = 5e6};
        d.chosen = p->ops->choose(p, &ask, view, 2, verdict);
        if (change == 1)
            d.chosen = 1;
        if (change == 2)
            verdict[1].term[WP_TERM_COMPUTE] = nextafter(verdict[1].term[WP_TERM_COMPUTE], 0);
        if (change == 3)
            verdict[0].ttft_us = NAN;
        EXPECT_INT("settings", 0, wp_decision_put_policy(&w, "price", &conf, &out));
        EXPECT_INT("written", 0, wp_decision_put(&w, &d, &out));
        EXPECT_INT("reader", 0, wp_decision_reader_create(&r, &err));
        EXPECT_INT("read", 0, read_all(r, &out, &err));
        wp_decision_counted(r, &c);
        EXPECT_UINT("seen", change != 0, c.differ);
        EXPECT_TRUE(said[change], strstr(wp_decision_first_difference(r), said[change]) != NULL);
        wp_decision_reader_destroy(r);
        wp_decision_writer_fini(&w);
        wp_buf_fini(&out);
    }
    p->ops->destroy(p);
}

static void after_a_gap_all_is_said_again(void)
{
    static const char *const names[] = {"price", "round_robin"};

    for (int k = 0; k < 2; k++) {
        struct wp_decision_writer w = {.n = 0};
        struct wp_policy_conf conf;
        struct wp_policy *p;
        struct wp_buf out = {0}, thrown = {0};
        struct wp_decision_reader *r;
        struct wp_decision_counts c;
        struct wp_err err = WP_ERR_INIT;

        rng.state = 4;
        wp_policy_conf_init(&conf);
        EXPECT_INT("policy", 0, wp_policy_create(&p, names[k], &conf, &err));
        EXPECT_INT("settings", 0, wp_decision_put_policy(&w, names[k], &conf, &out));
        decide(&w, p, 10, 5, false, &out);
        decide(&w, p, 7, 6, false, &thrown);
        EXPECT_INT("gap", 0, wp_decision_lost(&w, 7, &out));
        EXPECT_INT("settings", 0, wp_decision_put_policy(&w, names[k], &conf, &out));
        decide(&w, p, 10, 6, false, &out);
        EXPECT_INT("reader", 0, wp_decision_reader_create(&r, &err));
        EXPECT_INT("read", 0, read_all(r, &out, &err));
        wp_decision_counted(r, &c);
        EXPECT_UINT("lost", 7, c.lost);
        EXPECT_UINT("same", k ? 10 : 20, c.same);
        EXPECT_UINT("whoever remembers is not judged any more", k ? 10 : 0, c.unjudged);
        wp_decision_reader_destroy(r);
        wp_decision_writer_fini(&w);
        wp_buf_fini(&out);
        wp_buf_fini(&thrown);
        p->ops->destroy(p);
    }
}

static void records_that_are_not_whole_are_refused(void)
{
    struct wp_buf out;
    struct wp_decision_reader *r;
    struct wp_err err = WP_ERR_INIT;

    rng.state = 3;
    out = price_log(2, 3);
    EXPECT_INT("reader", 0, wp_decision_reader_create(&r, &err));
    for (size_t at = 0; at < out.n;) {
        uint32_t n;

        memcpy(&n, out.p + at + 1, 4);
        for (uint32_t cut = 0; cut < n; cut++)
            EXPECT_INT("cut", WP_EINVAL, wp_decision_read(r, (uint8_t)out.p[at], out.p + at + 5, cut, &err));
        EXPECT_INT("whole", 0, wp_decision_read(r, (uint8_t)out.p[at], out.p + at + 5, n, &err));
        at += 5 + n;
    }
    EXPECT_INT("unknown", WP_EINVAL, wp_decision_read(r, 'x', "", 0, &err));
    wp_decision_reader_destroy(r);
    EXPECT_INT("reader", 0, wp_decision_reader_create(&r, &err));
    EXPECT_INT("a gap", WP_EINVAL, wp_decision_read(r, 'G', "\x80", 1, &err));
    EXPECT_INT("nothing before", WP_EINVAL, wp_decision_read(r, 'D', "", 0, &err));
    wp_decision_reader_destroy(r);
    wp_buf_fini(&out);
}

static int put(void *ctx, const void *p, size_t n)
{
    return wp_buf_add(ctx, p, n);
}

static void a_file_of_many_frames_is_read_through(void)
{
    static struct wp_frames_out o;
    struct wp_buf log, file = {0};
    struct wp_decisions d;
    struct wp_err err = WP_ERR_INIT;

    rng.state = 6;
    log = price_log(400, 16);
    wp_frames_start(&o, wp_decision_magic, WP_DECISION_VERSION, put, &file);
    for (size_t at = 0; at < log.n; at += 10000) { /* records straddle frames */
        wp_frames_section(&o, WP_DECISION_SECTION);
        wp_frames_put(&o, log.p + at, log.n - at < 10000 ? log.n - at : 10000);
        wp_frames_section(&o, 0);
    }
    EXPECT_INT("file", 0, wp_frames_finish(&o));
    EXPECT_INT("checked", 0, wp_decisions_check(&d, file.p, file.n, &err));
    EXPECT_UINT("same", 400, d.count.same);
    EXPECT_INT("cut", WP_EINVAL, wp_decisions_check(&d, file.p, file.n - 17, &err));
    EXPECT_TRUE("what is there is checked", d.count.same > 300 && d.count.differ == 0);
    file.n = 0;
    wp_frames_start(&o, wp_decision_magic, WP_DECISION_VERSION, put, &file);
    EXPECT_INT("empty", 0, wp_frames_finish(&o));
    EXPECT_INT("nobody decided", 0, wp_decisions_check(&d, file.p, file.n, &err));
    wp_buf_fini(&log);
    wp_buf_fini(&file);
}

static void no_allocation_that_fails_leaks(void)
{
    struct wp_policy_conf conf;
    struct wp_ask ask = {.tokens = 5000};
    struct wp_decision d = {.id = 9, .ask = &ask, .w = view, .v = verdict, .n = 40};

    wp_policy_conf_init(&conf);
    memset(verdict, 0, sizeof verdict);
    for (size_t i = 0; i < 40; i++)
        view[i] = (struct wp_worker_view){.key = i + 1};
    for (long nth = 0;; nth++) {
        struct wp_decision_writer w = {.n = 0};
        struct wp_decision_reader *r = NULL;
        struct wp_err err = WP_ERR_INIT;
        struct wp_buf out = {0};
        bool failed;
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_decision_put_policy(&w, "price", &conf, &out);
        rc = rc ? rc : wp_decision_put(&w, &d, &out);
        rc = rc ? rc : wp_decision_put_outcome(9, 1, "good", &out);
        rc = rc ? rc : wp_decision_reader_create(&r, &err);
        rc = rc ? rc : read_all(r, &out, &err);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("told", failed ? WP_ENOMEM : 0, rc);
        wp_decision_reader_destroy(r);
        wp_decision_writer_fini(&w);
        wp_buf_fini(&out);
        if (!failed)
            break;
    }
}

static const struct wp_test tests[] = {
    {"each policy decides the same again", each_policy_decides_the_same_again},
    {"a decision among sixteen takes two kilobytes at most", a_decision_among_sixteen_takes_two_kilobytes_at_most},
    {"what was changed is seen", what_was_changed_is_seen},
    {"after a gap all is said again", after_a_gap_all_is_said_again},
    {"records that are not whole are refused", records_that_are_not_whole_are_refused},
    {"a file of many frames is read through", a_file_of_many_frames_is_read_through},
    {"no allocation that fails leaks", no_allocation_that_fails_leaks},
    {NULL, NULL},
};
const struct wp_suite suite_decision = {"decision", tests};
