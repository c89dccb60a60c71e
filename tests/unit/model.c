/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/model.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/naive_engine.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 16, MAX_BLOCKS = 1024 };

/* What one request was told. */
struct told {
    struct wp_model *m;
    struct wp_model_req *r;
    uint64_t first_us, last_us, done_us;
    uint32_t tokens, firsts, cached, tier[3];
    struct wp_model_req *cancel_at_first; /* this other one */
    const uint64_t *whole;                /* names it at the end */
    size_t whole_n;
    uint64_t resubmit_tokens;
};

static void on_tokens(void *arg, uint64_t at_us, uint32_t n, bool first)
{
    struct told *t = arg;

    t->tokens += n;
    t->firsts += first;
    t->last_us = at_us;
    if (!first)
        return;
    t->first_us = at_us;
    t->cached = wp_model_cached(t->r, t->tier);
    if (t->cancel_at_first)
        wp_model_cancel(t->m, t->cancel_at_first, at_us);
}

static void on_done(void *arg, uint64_t at_us)
{
    struct told *t = arg;

    t->done_us = at_us;
    if (t->whole)
        wp_model_name_output(t->m, t->r, t->whole, t->whole_n);
}

struct blocks {
    long held[3];
    uint64_t stored, removed, last_removed;
};

static void on_block(void *arg, uint64_t at_us, uint64_t hash, uint8_t tier, bool stored)
{
    struct blocks *b = arg;

    (void)at_us;
    b->held[tier] += stored ? 1 : -1;
    b->stored += stored;
    b->removed += !stored;
    if (!stored && tier == 0)
        b->last_removed = hash;
}

static const struct wp_model_ops ops = {on_tokens, on_done, on_block, NULL};

static struct wp_profile profile(void)
{
    struct wp_profile p;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("default profile", 0, wp_profile_find(wp_profile_name(0), &p, &err));
    return p;
}

static struct wp_model_conf conf(uint64_t gpu, uint64_t cpu, uint64_t disk)
{
    return (struct wp_model_conf){.profile = profile(),
                                  .block_size = BLOCK,
                                  .tier_blocks = {gpu, cpu, disk},
                                  .disk_bytes_per_s = 5e9,
                                  .secret = 7};
}

static struct wp_model *create(const struct wp_model_conf *c, void *arg)
{
    struct wp_model *m = NULL;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0, wp_model_create(&m, c, &ops, arg, &err));
    return m;
}

/* The chain of prompt `id`: blocks 0.. of a line that no other id shares. */
static const uint64_t *chain_of(uint64_t id, uint64_t out[MAX_BLOCKS])
{
    for (uint64_t i = 0; i < MAX_BLOCKS; i++)
        out[i] = id << 32 | i;
    return out;
}

static int submit(struct wp_model *m, uint64_t at_us, uint64_t id, uint32_t tokens, uint32_t output,
                  struct told *t)
{
    uint64_t chain[MAX_BLOCKS];
    struct wp_err err = WP_ERR_INIT;

    *t = (struct told){.m = m};
    return wp_model_submit(m, at_us, chain_of(id, chain), tokens / BLOCK, tokens, output, t, &t->r, &err);
}

static void expect_rest(const char *label, struct wp_model *m)
{
    struct wp_model_stats s;

    wp_model_stats(m, &s);
    EXPECT_UINT(label, 0, s.running);
    EXPECT_UINT(label, 0, s.waiting);
    EXPECT_UINT(label, 0, s.decoding);
    EXPECT_UINT(label, 0, s.pinned);
    EXPECT_UINT(label, UINT64_MAX, wp_model_next_us(m));
}

/* The formula, chunk by chunk: from `done` on, alone in the engine. */
static double prefill_alone(const struct wp_profile *p, uint32_t done, uint32_t tokens)
{
    double us = 0;

    while (done < tokens) {
        uint32_t n = tokens - done < p->budget ? tokens - done : p->budget;

        us += p->tov_us + fmax(p->tw_us, p->a_us * n) + p->b_us * ((double)n * done + (double)n * n / 2);
        done += n;
    }
    return us;
}

static void a_single_request_takes_what_the_formula_says(void)
{
    static const uint32_t lengths[] = {1, 15, 16, 17, 100, 2047, 2048, 2049, 12000};

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct wp_model_conf c = conf(2000, 0, 0);
        struct blocks b = {.stored = 0};
        struct wp_model *m = create(&c, &b);
        struct told t;
        double us = prefill_alone(&c.profile, 0, lengths[i]);

        EXPECT_INT("submit", 0, submit(m, 1000, 1, lengths[i], 3, &t));
        EXPECT_UINT("it happens at its time", 1000, wp_model_next_us(m));
        wp_model_run(m, UINT64_MAX);
        EXPECT_UINT("first token", (uint64_t)ceil(1000 + us), t.first_us);
        for (uint32_t k = 1; k < 3; k++)
            us += c.profile.tov_us + c.profile.tw_us + c.profile.e_us + c.profile.d_us * (lengths[i] + k);
        EXPECT_NEAR("last token", 1000 + us, (double)t.done_us, 1.001);
        EXPECT_UINT("it is the last", t.last_us, t.done_us);
        EXPECT_UINT("tokens", 3, t.tokens);
        EXPECT_UINT("one first", 1, t.firsts);
        EXPECT_UINT("nothing cached", 0, t.cached);
        EXPECT_INT("full blocks stored", lengths[i] / BLOCK, b.held[0]);
        expect_rest("rest", m);
        wp_model_destroy(m);
    }
}

static void speed_divides_all_times(void)
{
    for (int tier = 0; tier < 2; tier++) {
        uint64_t took[2];

        for (int fast = 0; fast < 2; fast++) {
            struct wp_model_conf c = conf(tier ? 300 : 2000, 2000, 0);
            struct blocks b = {.stored = 0};
            struct wp_model *m;
            struct told t, other;

            c.profile.speed = fast ? 8 : 1;
            m = create(&c, &b);
            submit(m, 0, 1, 4000, 10, &t);
            wp_model_run(m, UINT64_MAX);
            submit(m, 0, 2, 4000, 10, &other);
            wp_model_run(m, UINT64_MAX);
            submit(m, 100000000, 1, 4000, 10, &t);
            wp_model_run(m, UINT64_MAX);
            EXPECT_TRUE("read from the cpu tier", (t.tier[1] > 0) == (tier == 1));
            took[fast] = t.done_us - 100000000;
            wp_model_destroy(m);
        }
        EXPECT_NEAR("an eighth", (double)took[0] / 8, (double)took[1], 1);
    }
}

static const struct {
    const char *label;
    uint32_t first, second, want_cached;
} cached_cases[] = {
    /* clang-format off */
    {"the same prompt with a part of a block",  100, 100, 96},
    {"an exact multiple computes one token",     96,  96, 95},
    {"a longer prompt",                          96, 200, 96},
    {"a shorter one",                           200,  97, 96},
    {"less than a block",                        15,  15, 0},
    {"one token",                                 1,   1, 0},
    {"one block",                                16,  16, 15},
    /* clang-format on */
};

static void a_cached_prefix_shortens_and_the_last_token_is_computed(void)
{
    for (size_t i = 0; i < sizeof cached_cases / sizeof cached_cases[0]; i++) {
        struct wp_model_conf c = conf(100, 0, 0);
        struct blocks b = {.stored = 0};
        struct wp_model *m = create(&c, &b);
        struct wp_model_stats s;
        struct told one, two;

        submit(m, 0, 1, cached_cases[i].first, 1, &one);
        wp_model_run(m, 1000000);
        submit(m, 1000000, 1, cached_cases[i].second, 1, &two);
        wp_model_run(m, UINT64_MAX);
        EXPECT_UINT(cached_cases[i].label, cached_cases[i].want_cached, two.cached);
        EXPECT_UINT(cached_cases[i].label, two.cached, two.tier[0]);
        EXPECT_UINT(cached_cases[i].label,
                    (uint64_t)ceil(1000000 + prefill_alone(&c.profile, two.cached, cached_cases[i].second)),
                    two.first_us);
        wp_model_stats(m, &s);
        EXPECT_UINT("conservation", cached_cases[i].first + cached_cases[i].second,
                    s.prefill_tokens + s.cached_tokens);
        expect_rest(cached_cases[i].label, m);
        wp_model_destroy(m);
    }
}

static void whole_hits_end_at_a_blocks_border(void)
{
    struct wp_model_conf c = conf(100, 0, 0);
    struct blocks b = {.stored = 0};
    struct told t[3];
    struct wp_model *m;

    c.whole_hits = true;
    m = create(&c, &b);
    for (uint64_t i = 0; i < 3; i++) {
        submit(m, i * 1000000, 1, i < 2 ? 4 * BLOCK : 5 * BLOCK, 1, &t[i]);
        wp_model_run(m, (i + 1) * 1000000);
    }
    EXPECT_UINT("cold", 0, t[0].cached);
    EXPECT_UINT("all but the block with the last token", 3 * BLOCK, t[1].cached);
    EXPECT_UINT("a longer prompt has it too", 4 * BLOCK, t[2].cached);
    expect_rest("at the end", m);
    wp_model_destroy(m);
}

static void blocks_can_be_hit_from_the_end_of_the_step_that_computed_them(void)
{
    struct wp_model_conf c = conf(2000, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    struct told long_one, same, later;

    submit(m, 0, 1, 5000, 1, &long_one); /* three steps: 2048, 2048, 904 + what is left for others */
    submit(m, 1, 1, 5000, 1, &same);     /* admitted when the third begins */
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("two steps' blocks", 4096, same.cached);
    submit(m, 9000000, 1, 5000, 1, &later);
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("all full blocks", 5000 / BLOCK * BLOCK, later.cached);
    EXPECT_INT("no block twice", 5000 / BLOCK, b.held[0]);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void requests_are_served_first_come_first_served(void)
{
    struct wp_model_conf c = conf(1000, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    struct told t[4];
    double us = 0;

    for (uint64_t i = 0; i < 4; i++) /* the third is short, and does not overtake */
        submit(m, i, i + 1, i == 2 ? 10 : 2048, 1, &t[i]);
    wp_model_run(m, UINT64_MAX);
    us += prefill_alone(&c.profile, 0, 2048);
    EXPECT_UINT("first alone", (uint64_t)ceil(us), t[0].first_us);
    us += prefill_alone(&c.profile, 0, 2048);
    EXPECT_UINT("second", (uint64_t)ceil(us), t[1].first_us);
    EXPECT_TRUE("third after it", t[2].first_us > t[1].first_us);
    EXPECT_TRUE("fourth last", t[3].first_us > t[2].first_us);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void no_more_than_max_running_run(void)
{
    struct wp_model_conf c = conf(1000, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m;
    struct wp_model_stats s;
    struct told t[5];
    uint32_t most = 0;

    c.profile.max_running = 2;
    m = create(&c, &b);
    for (uint64_t i = 0; i < 5; i++)
        submit(m, 0, i + 1, 32, 20, &t[i]);
    while (wp_model_next_us(m) != UINT64_MAX) {
        wp_model_run(m, wp_model_next_us(m));
        wp_model_stats(m, &s);
        most = s.running > most ? s.running : most;
        EXPECT_TRUE("at most two", s.running <= 2 && s.decoding <= s.running);
    }
    EXPECT_UINT("two together", 2, most);
    EXPECT_TRUE("in pairs", t[2].first_us > t[1].done_us && t[4].first_us > t[3].done_us);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void what_does_not_fit_waits_and_what_never_fits_is_refused(void)
{
    struct wp_model_conf c = conf(10, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    struct told big, next, never;

    EXPECT_INT("161 tokens", WP_ETOOBIG, submit(m, 0, 9, 160, 1, &never));
    EXPECT_INT("no prompt", WP_EINVAL, submit(m, 0, 9, 0, 1, &never));
    EXPECT_INT("no output", WP_EINVAL, submit(m, 0, 9, 1, 0, &never));
    EXPECT_INT("160 fit", 0, submit(m, 0, 1, 150, 10, &big));
    EXPECT_INT("another", 0, submit(m, 0, 2, 10, 6, &next));
    wp_model_run(m, UINT64_MAX);
    EXPECT_TRUE("waits for the room", next.first_us > big.done_us);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void the_tail_of_the_longest_unused_prompt_goes_first(void)
{
    struct wp_model_conf c = conf(10, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    struct told t;

    submit(m, 0, 1, 64, 1, &t); /* blocks 0..3 and one for the output */
    wp_model_run(m, UINT64_MAX);
    submit(m, 1000000, 2, 64, 1, &t);
    wp_model_run(m, UINT64_MAX);
    EXPECT_INT("both are here", 8, b.held[0]);
    submit(m, 2000000, 3, 32, 16, &t); /* 3 blocks: 2 are free */
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("one went", 1, b.removed);
    EXPECT_UINT("the tail of the first", (uint64_t)1 << 32 | 3, b.last_removed);
    submit(m, 3000000, 1, 64, 1, &t);
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("its head still hits", 48, t.cached);
    wp_model_destroy(m);
}

static void what_is_evicted_goes_down_the_tiers_and_comes_back_in_time(void)
{
    struct wp_model_conf c = conf(10, 4, 20);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    double bytes = (double)BLOCK * (double)c.profile.kv_bytes_per_token, ready, us;
    struct told t;

    submit(m, 0, 1, 144, 1, &t); /* nine blocks */
    wp_model_run(m, UINT64_MAX);
    submit(m, 1000000, 2, 144, 1, &t);
    wp_model_run(m, UINT64_MAX);
    EXPECT_INT("gpu", 9, b.held[0]);
    EXPECT_INT("the last evicted ones on the cpu", 4, b.held[1]);
    EXPECT_INT("the others on disk", 5, b.held[2]);
    submit(m, 2000000, 1, 144, 1, &t);
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("from the gpu", 0, t.tier[0]);
    EXPECT_UINT("from the cpu", 64, t.tier[1]);
    EXPECT_UINT("from disk, less the last token", 79, t.tier[2]);
    ready = fmax(4 * bytes / c.profile.cpu_bytes_per_s, 5 * bytes / c.disk_bytes_per_s) * 1e6;
    us = 2000000 + ready + prefill_alone(&c.profile, 143, 144);
    EXPECT_NEAR("both queues read at once", us, (double)t.first_us, 1.001);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void a_request_whose_blocks_are_on_their_way_is_passed_by_others(void)
{
    struct wp_model_conf c = conf(20, 100, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m;
    struct told slow, quick, twin;

    c.profile.cpu_bytes_per_s = 1e8; /* half a second for ten blocks */
    m = create(&c, &b);
    submit(m, 0, 1, 160, 1, &slow);
    wp_model_run(m, UINT64_MAX);
    submit(m, 0, 2, 319, 1, &quick);
    wp_model_run(m, UINT64_MAX);
    submit(m, 10000000, 1, 160, 1, &slow);
    submit(m, 10000001, 1, 160, 1, &twin); /* hits what is still coming: waits too, and does not read again */
    submit(m, 10000002, 3, 40, 1, &quick);
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("slow hits below", 159, slow.tier[1]);
    EXPECT_UINT("its twin above", 159, twin.tier[0]);
    EXPECT_TRUE("passed", quick.done_us < slow.first_us);
    EXPECT_TRUE("as late", twin.first_us >= slow.first_us && slow.first_us > 10500000);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void named_outputs_can_be_hit(void)
{
    struct wp_model_conf c = conf(30, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    uint64_t chain[MAX_BLOCKS];
    struct told t, next;

    chain_of(1, chain);
    submit(m, 0, 1, 40, 30, &t);
    t.whole = chain;
    t.whole_n = 4; /* 70 tokens: four full blocks, two of them of the prompt */
    wp_model_run(m, UINT64_MAX);
    EXPECT_INT("stored", 4, b.held[0]);
    submit(m, 5000000, 1, 100, 1, &next);
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("hit", 64, next.cached);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void a_partial_last_block_may_have_a_name(void)
{
    struct wp_model_conf c = conf(30, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    uint64_t chain[MAX_BLOCKS];
    struct wp_err err = WP_ERR_INIT;
    struct told t[2];

    chain_of(1, chain);
    for (uint64_t i = 0; i < 2; i++) {
        t[i] = (struct told){.m = m};
        EXPECT_INT("submit", 0,
                   wp_model_submit(m, i * 1000000, chain, 3, 40, 1, &t[i], &t[i].r, &err));
        wp_model_run(m, UINT64_MAX);
    }
    EXPECT_UINT("all but the last token", 39, t[1].cached);
    EXPECT_INT("one name too many", WP_EINVAL, wp_model_submit(m, 0, chain, 4, 40, 1, &t[0], NULL, &err));
    wp_model_destroy(m);
}

/* Stops a request after `steps` events, wherever it then is, with others around it. */
static void a_cancel_at_every_stage_gives_everything_back(void)
{
    for (int steps = 0; steps < 14; steps++) {
        struct wp_model_conf c = conf(60, 100, 100);
        struct blocks b = {.stored = 0};
        struct wp_model *m;
        struct wp_model_stats s;
        struct told victim, blocked, old;
        uint64_t now = 0;

        c.profile.budget = 128;
        c.profile.cpu_bytes_per_s = 5e8;
        m = create(&c, &b);
        submit(m, 0, 1, 900, 1, &old); /* fills the gpu, then goes to the cpu */
        wp_model_run(m, UINT64_MAX);
        submit(m, 0, 2, 900, 1, &old);
        wp_model_run(m, UINT64_MAX);
        submit(m, 20000000, 1, 800, 5, &victim); /* arriving, loading, prefill, decoding, gone */
        submit(m, 20000000, 3, 300, 2, &blocked);
        for (int i = 0; i < steps; i++)
            wp_model_run(m, now = wp_model_next_us(m));
        if (victim.done_us == 0)
            wp_model_cancel(m, victim.r, now);
        wp_model_stats(m, &s);
        EXPECT_TRUE("only the other is left", s.running + s.waiting <= 1);
        wp_model_run(m, UINT64_MAX);
        EXPECT_UINT("the other is served", 2, blocked.tokens);
        expect_rest("rest", m);
        wp_model_stats(m, &s);
        for (int t = 0; t < 3; t++)
            EXPECT_UINT("what was told is what is held", (uint64_t)b.held[t], s.tier_used[t]);
        wp_model_destroy(m);
    }
}

static void a_callback_may_cancel_any_request(void)
{
    for (int whom = 0; whom < 4; whom++) {
        struct wp_model_conf c = conf(100, 0, 0);
        struct blocks b = {.stored = 0};
        struct wp_model *m = create(&c, &b);
        struct told t[4];

        for (uint64_t i = 0; i < 4; i++)
            submit(m, i < 3 ? 0 : 12000, i + 1, 20, i == 2 ? 1 : 30, &t[i]);
        t[1].cancel_at_first = t[whom].r;
        wp_model_run(m, UINT64_MAX);
        for (int i = 0; i < 4; i++)
            EXPECT_TRUE("all but one end", (t[i].done_us > 0) == (i != whom));
        expect_rest("rest", m);
        wp_model_destroy(m);
    }
}

static void an_unfinished_model_can_be_destroyed(void)
{
    long live = wp_mem_live();

    for (int steps = 0; steps < 12; steps++) {
        struct wp_model_conf c = conf(60, 100, 0);
        struct blocks b = {.stored = 0};
        struct wp_model *m = create(&c, &b);
        struct told t[3];

        for (uint64_t i = 0; i < 3; i++)
            submit(m, i * 5, i + 1, 500, 4, &t[i]);
        for (int i = 0; i < steps; i++)
            wp_model_run(m, wp_model_next_us(m));
        wp_model_destroy(m);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
    wp_model_destroy(NULL);
}

static void reset_takes_all_names_and_running_requests_go_on(void)
{
    struct wp_model_conf c = conf(20, 20, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    struct told t[3];

    submit(m, 0, 1, 160, 1, &t[0]);
    wp_model_run(m, UINT64_MAX);
    submit(m, 0, 2, 192, 1, &t[1]); /* pushes some of the first down */
    wp_model_run(m, UINT64_MAX);
    submit(m, 9000000, 2, 192, 50, &t[2]);
    wp_model_run(m, 9100000);
    EXPECT_TRUE("it is running", t[2].tokens > 0 && t[2].done_us == 0);
    EXPECT_INT("with its blocks", 16, b.held[0]);
    wp_model_reset_cache(m);
    EXPECT_INT("their names go", 0, b.held[0]);
    EXPECT_INT("the cpu is empty", 0, b.held[1]);
    wp_model_run(m, UINT64_MAX);
    EXPECT_TRUE("it ends", t[2].done_us > 0);
    EXPECT_INT("and has stored nothing more", 0, b.held[0]);
    expect_rest("rest", m);
    submit(m, 20000000, 2, 192, 1, &t[1]);
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("nothing is found", 0, t[1].cached);
    EXPECT_INT("and all is stored again", 12, b.held[0]);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void a_reset_in_mid_prefill_stores_nothing_behind_the_names_it_took(void)
{
    struct wp_model_conf c = conf(400, 0, 0);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    struct told t;

    submit(m, 0, 1, 3000, 30, &t);
    wp_model_run(m, wp_model_next_us(m)); /* arrives */
    wp_model_run(m, wp_model_next_us(m)); /* the first step ends */
    EXPECT_INT("the first chunk is stored", 128, b.held[0]);
    wp_model_reset_cache(m);
    wp_model_run(m, UINT64_MAX);
    EXPECT_TRUE("it ends", t.done_us > 0);
    EXPECT_INT("nothing is held", 0, b.held[0]);
    expect_rest("rest", m);
    wp_model_destroy(m);
}

struct copies {
    uint64_t hash;
    uint32_t copies;
};

static void count_copies(void *arg, uint64_t hash, uint32_t copies)
{
    struct copies *c = arg;

    if (c->hash == hash)
        c->copies = copies;
}

static uint32_t copies_of(const struct wp_model *m, uint64_t hash)
{
    struct copies c = {hash, 0};

    wp_model_each_block(m, 0, count_copies, &c);
    return c.copies;
}

/* As a running vLLM does it: the last block of a prompt that ends with it is computed again, into a
 * second block. */
static void an_exact_multiple_makes_copies(void)
{
    struct wp_model_conf c = conf(30, 0, 0);
    struct blocks b = {.stored = 0};
    uint64_t chain[MAX_BLOCKS];
    struct wp_model *m;
    struct told t[2];

    c.copies = c.whole_hits = true;
    m = create(&c, &b);
    chain_of(1, chain);
    submit(m, 0, 1, 48, 1, &t[0]);
    wp_model_run(m, UINT64_MAX);
    for (uint64_t i = 1; i < 4; i++) {
        submit(m, i * 1000000, 1, 48, 1, &t[0]);
        wp_model_run(m, UINT64_MAX);
        EXPECT_UINT("two of three hit", 32, t[0].cached);
        EXPECT_UINT("a copy more", i + 1, copies_of(m, chain[2]));
        EXPECT_UINT("none of the others", 1, copies_of(m, chain[1]));
        EXPECT_UINT("each is told", 3 + i, b.stored);
    }
    submit(m, 5000000, 1, 49, 1, &t[0]);
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("a token more hits it", 48, t[0].cached);
    submit(m, 6000000, 7, 420, 1, &t[0]); /* 27 of 30: what was used last stays, one of each */
    wp_model_run(m, UINT64_MAX);
    EXPECT_UINT("the copies go first, the one that was hit stays", 1, copies_of(m, chain[2]));
    EXPECT_UINT("all told", 3, b.removed);
    submit(m, 7000000, 2, 48, 1, &t[0]); /* sent together: the later one only computes its last block */
    submit(m, 7000000, 2, 48, 1, &t[1]);
    wp_model_run(m, UINT64_MAX);
    chain_of(2, chain);
    EXPECT_UINT("equal prompts at once copy their last", 2, copies_of(m, chain[2]));
    EXPECT_UINT("and no other", 1, copies_of(m, chain[0]));
    expect_rest("rest", m);
    wp_model_destroy(m);
}

static void generated_blocks_are_copied_too(void)
{
    for (int copies = 0; copies < 2; copies++) {
        struct wp_model_conf c = conf(30, 0, 0);
        struct blocks b = {.stored = 0};
        uint64_t chain[MAX_BLOCKS];
        struct wp_model *m;
        struct told t;

        c.copies = copies;
        m = create(&c, &b);
        chain_of(1, chain);
        for (uint64_t i = 0; i < 2; i++) {
            submit(m, i * 1000000, 1, 40, 30, &t);
            t.whole = chain;
            t.whole_n = 4;
            wp_model_run(m, UINT64_MAX);
        }
        EXPECT_UINT("said twice", copies ? 2 : 1, copies_of(m, chain[3]));
        EXPECT_UINT("asked twice", 1, copies_of(m, chain[1]));
        EXPECT_INT("held", copies ? 6 : 4, b.held[0]);
        expect_rest("rest", m);
        wp_model_destroy(m);
    }
}

static void merged_tokens_change_no_time(void)
{
    uint64_t done[2][30];

    for (int merged = 0; merged < 2; merged++) {
        struct wp_model_conf c = conf(500, 100, 0);
        struct blocks b = {.stored = 0};
        struct wp_model *m;
        struct told t[30];

        c.merge_tokens = merged;
        m = create(&c, &b);
        for (uint64_t i = 0; i < 30; i++)
            submit(m, i * 3000, i % 7, 100 + (uint32_t)i * 20, (uint32_t)i * 3 + 1, &t[i]);
        wp_model_run(m, UINT64_MAX);
        for (uint32_t i = 0; i < 30; i++) {
            done[merged][i] = t[i].done_us;
            EXPECT_UINT("all tokens", i * 3 + 1, t[i].tokens);
        }
        expect_rest("rest", m);
        wp_model_destroy(m);
    }
    EXPECT_TRUE("the same times", memcmp(done[0], done[1], sizeof done[0]) == 0);
}

static void a_late_driver_catches_up_on_the_models_own_times(void)
{
    uint64_t done[2][20];

    for (int late = 0; late < 2; late++) {
        struct wp_model_conf c = conf(300, 100, 0);
        struct blocks b = {.stored = 0};
        struct wp_model *m = create(&c, &b);
        struct told t[20];

        for (uint64_t i = 0; i < 20; i++) {
            if (!late)
                wp_model_run(m, i * 7000);
            submit(m, i * 7000, i % 5, 200 + (uint32_t)i * 30, 10, &t[i]);
        }
        while (!late && wp_model_next_us(m) != UINT64_MAX)
            wp_model_run(m, wp_model_next_us(m));
        wp_model_run(m, UINT64_MAX);
        for (int i = 0; i < 20; i++)
            done[late][i] = t[i].done_us;
        wp_model_destroy(m);
    }
    EXPECT_TRUE("the same times", memcmp(done[0], done[1], sizeof done[0]) == 0);
}

/* ---- the soak ---- */

enum { SOAK = 300 };

static void make_load(struct naive_req req[SOAK], uint64_t seed)
{
    struct wp_rng rng = {seed};
    uint64_t at = 0;

    for (size_t i = 0; i < SOAK; i++) {
        uint64_t line = wp_rng_below(&rng, 12), fork = wp_rng_below(&rng, 12), n;

        at += wp_rng_below(&rng, 60000);
        req[i] = (struct naive_req){.at_us = at,
                                    .tokens = 1 + (uint32_t)wp_rng_below(&rng, 700),
                                    .output = 1 + (uint32_t)wp_rng_below(&rng, 40)};
        n = req[i].tokens / BLOCK;
        for (uint64_t k = 0; k < n; k++) /* a shared head, then one of two tails */
            req[i].chain[k] = k < fork ? line << 32 | k : (line + 100 + fork) << 32 | k;
        req[i].n = n;
    }
}

static void soak_once(uint64_t seed, const struct wp_model_conf *c)
{
    struct naive_req *req = wp_calloc(SOAK, sizeof *req);
    struct told *t = wp_calloc(SOAK, sizeof *t);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(c, &b);
    struct wp_model_stats s;
    struct wp_err err = WP_ERR_INIT;
    uint64_t prompt = 0;

    make_load(req, seed);
    naive_run(c, req, SOAK);
    for (size_t i = 0; i < SOAK; i++) {
        t[i].m = m;
        prompt += req[i].tokens;
        EXPECT_INT("submit", 0,
                   wp_model_submit(m, req[i].at_us, req[i].chain, req[i].n, req[i].tokens, req[i].output,
                                   &t[i], &t[i].r, &err));
    }
    wp_model_run(m, UINT64_MAX);
    for (size_t i = 0; i < SOAK; i++) {
        EXPECT_NEAR("first token", req[i].first_us, (double)t[i].first_us, 1.001);
        EXPECT_NEAR("done", req[i].done_us, (double)t[i].done_us, 1.001);
        for (int k = 0; k < 3; k++)
            EXPECT_UINT("cached", req[i].cached[k], t[i].tier[k]);
        EXPECT_UINT("output", req[i].output, t[i].tokens);
    }
    wp_model_stats(m, &s);
    EXPECT_UINT("conservation", prompt, s.prefill_tokens + s.cached_tokens);
    for (int k = 0; k < 3; k++)
        EXPECT_UINT("what was told is what is held", (uint64_t)b.held[k], s.tier_used[k]);
    EXPECT_TRUE("something was cached and something evicted", s.cached_tokens > 0 && b.removed > 0);
    expect_rest("rest", m);
    wp_model_destroy(m);
    wp_free(t);
    wp_free(req);
}

static void a_naive_engine_agrees_on_random_load(void)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct wp_model_conf c = conf(seed < 3 ? 60 : 150, seed % 3 * 40, seed % 2 * 100);

        c.profile.budget = seed % 2 ? 128 : 2048;
        c.profile.max_running = seed % 2 ? 3 : 256;
        c.profile.cpu_bytes_per_s = 1e9;
        soak_once(seed, &c);
    }
}

static void random_cancels_leave_nothing_behind(void)
{
    struct wp_model_conf c = conf(80, 60, 60);
    struct blocks b = {.stored = 0};
    struct wp_model *m = create(&c, &b);
    struct naive_req *req = wp_calloc(SOAK, sizeof *req);
    struct told *t = wp_calloc(SOAK, sizeof *t);
    struct wp_rng rng = {99};
    struct wp_err err = WP_ERR_INIT;
    struct wp_model_stats s;
    size_t cancelled = 0, done = 0;

    make_load(req, 5);
    for (size_t i = 0; i < SOAK; i++) {
        size_t k = (size_t)wp_rng_below(&rng, i + 1);

        wp_model_run(m, req[i].at_us);
        t[i].m = m;
        wp_model_submit(m, req[i].at_us, req[i].chain, req[i].n, req[i].tokens, req[i].output, &t[i],
                        &t[i].r, &err);
        if (wp_rng_below(&rng, 3) > 0 || t[k].done_us > 0 || !t[k].r)
            continue;
        wp_model_cancel(m, t[k].r, req[i].at_us);
        t[k].r = NULL;
        cancelled++;
    }
    wp_model_run(m, UINT64_MAX);
    for (size_t i = 0; i < SOAK; i++)
        done += t[i].done_us > 0;
    EXPECT_TRUE("some were cancelled", cancelled > 10);
    EXPECT_UINT("all others are done", SOAK - cancelled, done);
    expect_rest("rest", m);
    wp_model_stats(m, &s);
    for (int k = 0; k < 3; k++)
        EXPECT_UINT("what was told is what is held", (uint64_t)b.held[k], s.tier_used[k]);
    wp_model_destroy(m);
    wp_free(t);
    wp_free(req);
}

static void wrong_configurations_are_refused(void)
{
    struct wp_model_conf good = conf(10, 0, 0), bad[5] = {good, good, good, good, good};
    struct wp_model *m = NULL;
    struct wp_err err = WP_ERR_INIT;

    bad[0].block_size = 0;
    bad[1].tier_blocks[0] = 0;
    bad[2].profile.max_running = 0;
    bad[3].profile.speed = 0;
    bad[4].tier_blocks[1] = (uint64_t)1 << 40;
    for (int i = 0; i < 5; i++)
        EXPECT_TRUE("refused", wp_model_create(&m, &bad[i], &ops, NULL, &err) < 0 && !m && err.text[0]);
}

static int everything(struct wp_err *err)
{
    struct wp_model_conf c = conf(100, 10, 10);
    uint64_t chain[2] = {1, 2};
    struct wp_model *m;
    struct told t = {0};
    struct blocks b = {.stored = 0};
    int rc = wp_model_create(&m, &c, &ops, &b, err);

    if (rc < 0)
        return rc;
    t.m = m;
    rc = wp_model_submit(m, 0, chain, 2, 40, 5, &t, &t.r, err);
    wp_model_run(m, UINT64_MAX);
    wp_model_destroy(m);
    return rc;
}

static void any_allocation_may_fail(void)
{
    long live = wp_mem_live(), nth = 0;
    struct wp_err err = WP_ERR_INIT;

    for (;; nth++) {
        int rc;

        wp_mem_fail_after(nth);
        rc = everything(&err);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        if (!wp_mem_failed()) {
            EXPECT_INT("works in the end", 0, rc);
            break;
        }
        EXPECT_INT("reported", WP_ENOMEM, rc);
    }
    wp_mem_fail_after(-1);
    EXPECT_TRUE("some were tried", nth > 5);
}

#define TEST(f, name) {name, f}
const struct wp_suite suite_model = {
    "model",
    (const struct wp_test[]){
        /* clang-format off */
        TEST(a_single_request_takes_what_the_formula_says, "a single request takes what the formula says"),
        TEST(speed_divides_all_times, "speed divides all times"),
        TEST(a_cached_prefix_shortens_and_the_last_token_is_computed, "a cached prefix shortens, and the last token is computed"),
        TEST(whole_hits_end_at_a_blocks_border, "whole hits end at a block's border"),
        TEST(blocks_can_be_hit_from_the_end_of_the_step_that_computed_them, "blocks can be hit from the end of the step that computed them"),
        TEST(requests_are_served_first_come_first_served, "requests are served first come, first served"),
        TEST(no_more_than_max_running_run, "no more than max_running run"),
        TEST(what_does_not_fit_waits_and_what_never_fits_is_refused, "what does not fit waits, and what never fits is refused"),
        TEST(the_tail_of_the_longest_unused_prompt_goes_first, "the tail of the longest unused prompt goes first"),
        TEST(what_is_evicted_goes_down_the_tiers_and_comes_back_in_time, "what is evicted goes down the tiers and comes back in time"),
        TEST(a_request_whose_blocks_are_on_their_way_is_passed_by_others, "a request whose blocks are on their way is passed by others"),
        TEST(named_outputs_can_be_hit, "named outputs can be hit"),
        TEST(a_partial_last_block_may_have_a_name, "a partial last block may have a name"),
        TEST(a_cancel_at_every_stage_gives_everything_back, "a cancel at every stage gives everything back"),
        TEST(a_callback_may_cancel_any_request, "a callback may cancel any request"),
        TEST(an_unfinished_model_can_be_destroyed, "an unfinished model can be destroyed"),
        TEST(reset_takes_all_names_and_running_requests_go_on, "reset takes all names and running requests go on"),
        TEST(a_reset_in_mid_prefill_stores_nothing_behind_the_names_it_took, "a reset in mid prefill stores nothing behind the names it took"),
        TEST(an_exact_multiple_makes_copies, "an exact multiple makes copies"),
        TEST(generated_blocks_are_copied_too, "generated blocks are copied too"),
        TEST(merged_tokens_change_no_time, "merged tokens change no time"),
        TEST(a_late_driver_catches_up_on_the_models_own_times, "a late driver catches up on the model's own times"),
        TEST(a_naive_engine_agrees_on_random_load, "a naive engine agrees on random load"),
        TEST(random_cancels_leave_nothing_behind, "random cancels leave nothing behind"),
        TEST(wrong_configurations_are_refused, "wrong configurations are refused"),
        TEST(any_allocation_may_fail, "any allocation may fail"),
        /* clang-format on */
        {NULL, NULL},
    },
};
