/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet that serves a trace: 256 workers in steady state, every block applied once.  Prompts
 * that are asked are whole on one worker, no two alike, each asked once before any is asked again.
 */
#include "tests/bench/index/bench.h"

#include <stdlib.h>
#include <string.h>

enum { WORKERS = 256, BATCH = 1 << 16 };

static void next_batch(struct state *st, size_t blocks)
{
    kv_batch_reset(&st->batch);
    churn_fill(&st->churn, &st->batch, blocks);
    if (st->edit)
        st->edit(&st->batch);
}

/* Filled, and as much again, so that most of what it holds has been through an eviction. */
void trace_fill(struct state *st)
{
    uint64_t applied = 0, wanted;

    while (churn_filling(&st->churn)) {
        next_batch(st, BATCH);
        apply_batch(st);
    }
    for (wanted = 2 * st->churn.held; applied < wanted; applied += st->batch.n) {
        next_batch(st, BATCH);
        apply_batch(st);
    }
}

void trace_open(struct state *st, uint32_t workers, size_t blocks, size_t batch,
                void (*edit)(struct kv_batch *b))
{
    struct wp_err err = WP_ERR_INIT;
    struct churn_conf conf = {.trace = st->trace,
                              .workers = workers,
                              .capacity = (uint32_t)(blocks / workers),
                              .salts = (uint32_t)(blocks / 1600000) + 1,
                              .seed = 5};

    /* Peers get the chain's hash as the engine's, which is the better case for them; ours gets
     * hashes that differ from worker to worker. */
    st->edit = edit;
    state_open(st, batch + CHURN_EVENT_MAX, batch / 16 + 4096, st->sub == &subject_ours);
    if (conf.salts > CHURN_SALTS_MAX)
        conf.salts = CHURN_SALTS_MAX;
    if (churn_init(&st->churn, &conf, &err) < 0)
        die(err.text);
    state_subject(st, workers, blocks, blocks);
}

size_t trace_write_blocks(const struct state *st)
{
    return st->opt->quick ? 300000 : 2000000;
}

static void open_10m(struct state *st)
{
    trace_open(st, WORKERS, st->opt->blocks, trace_write_blocks(st), NULL);
    trace_fill(st);
}

static void open_40m(struct state *st)
{
    trace_open(st, WORKERS, 42000000, trace_write_blocks(st), NULL);
    trace_fill(st);
}

void trace_memory(struct state *st, struct outcome *o)
{
    uint64_t before;

    trace_open(st, WORKERS, st->opt->blocks, BATCH, NULL);
    before = rss_bytes();
    trace_fill(st);
    o->v[0] = ((double)rss_bytes() - (double)before) / (double)st->churn.held;
    o->v[1] = (double)st->churn.held / 1e6;
    o->ok = 1;
}

/* --- prompts --- */

struct choice {
    uint32_t blocks, held; /* asked, and of them known */
    uint32_t others;       /* look-ups of 512 blocks between */
    uint64_t cold;
};

/* In random order: that of age would be kind to caches. */
static size_t find_prompts(struct state *st, uint32_t held, struct churn_prompt p[])
{
    size_t n = churn_prompts(&st->churn, held, p, CHURN_LOG);

    if (!n)
        die("no prompt is that long");
    for (size_t i = n; i-- > 1;) {
        size_t j = kv_mix(i + st->round) % (i + 1);
        struct churn_prompt swap = p[i];

        p[i] = p[j];
        p[j] = swap;
    }
    return n;
}

static size_t next_prompt(struct state *st, void *ctx)
{
    const struct choice *c = ctx;
    const struct churn_prompt *p = &st->prompt[st->turn++ % st->n_prompts];
    size_t n = churn_hashes(&st->churn, p, c->held, st->buf, st->buf_chain);

    for (; n < c->blocks; n++) {
        st->buf[n] = kv_mix(st->turn * PROMPT_MAX + n);
        st->buf_chain[n] = kv_chain(st->buf[n]);
    }
    return n;
}

static size_t next_cold(struct state *st, void *ctx)
{
    struct choice *c = ctx;

    for (size_t i = 0; i < c->blocks; i++) {
        st->buf[i] = kv_mix(c->cold++ ^ (uint64_t)1 << 60);
        st->buf_chain[i] = kv_chain(st->buf[i]);
    }
    return c->blocks;
}

static void ask_others(struct state *st, void *ctx)
{
    const struct choice *c = ctx;

    for (uint32_t i = 0; i < c->others; i++) {
        const struct churn_prompt *p = &st->other[st->other_turn++ % st->n_others];
        size_t n = churn_hashes(&st->churn, p, 512, st->buf, st->buf_chain);

        st->sub->lookup(st->s, st->buf, st->buf_chain, n);
    }
}

static size_t look_ups(const struct state *st)
{
    return st->opt->quick ? 3000 : 10000;
}

static struct samples samples;

static void report(struct outcome *o)
{
    o->v[0] = samples_at(&samples, 0.5);
    o->v[1] = samples_at(&samples, 0.99);
    o->v[2] = (double)samples.n;
    o->ok = samples.n > 0;
}

/* rate: blocks a second beside, 0 none, below 0: as fast as the writer can. */
static void look_up(struct state *st, struct outcome *o, struct choice c, double rate, bool hash)
{
    struct asking a = {.next = c.held ? next_prompt : next_cold,
                       .between = c.others ? ask_others : NULL,
                       .ctx = &c,
                       .most = look_ups(st) / (c.others + 1),
                       .seconds = st->opt->quick ? 0.3 : 1.5,
                       .hash = hash};
    struct writing w;

    st->turn = st->other_turn = 0;
    if (c.held) {
        st->n_prompts = find_prompts(st, c.held, st->prompt);
        a.most = a.most < st->n_prompts ? a.most : st->n_prompts; /* none twice */
    }
    if (c.others)
        st->n_others = find_prompts(st, 512, st->other);
    samples_init(&samples, 4000000);
    if (rate != 0) {
        next_batch(st, trace_write_blocks(st) / (rate < 0 ? 1 : 2));
        writing_start(&w, st, rate < 0 ? 0 : rate);
        a.stop = &w.ended;
        a.most = samples.cap;
        a.seconds = rate < 0 ? 5 : a.seconds;
    }
    ask(st, &a, &samples, o);
    if (rate != 0)
        writing_end(&w);
    report(o);
}

/* --- lines --- */

void trace_line_mix(struct state *st, struct outcome *o)
{
    next_batch(st, trace_write_blocks(st));
    o->v[0] = apply_timed(st);
    o->ok = 1;
}

void trace_line_warm(struct state *st, struct outcome *o)
{
    look_up(st, o, (struct choice){512, 512, 0, 0}, 0, false);
}

static void line_warm_hash(struct state *st, struct outcome *o)
{
    look_up(st, o, (struct choice){512, 512, 0, 0}, 0, true);
}

void trace_line_warm_writes(struct state *st, struct outcome *o)
{
    look_up(st, o, (struct choice){512, 512, 0, 0}, 1e6, false);
}

static void line_warm_storm(struct state *st, struct outcome *o)
{
    look_up(st, o, (struct choice){512, 512, 0, 0}, -1, false);
    o->v[2] = o->v[0] > 0 ? o->v[1] / o->v[0] : 0;
}

static void line_half(struct state *st, struct outcome *o)
{
    look_up(st, o, (struct choice){512, 256, 0, 0}, 0, false);
}

static void line_half_writes(struct state *st, struct outcome *o)
{
    look_up(st, o, (struct choice){512, 256, 0, 0}, 1e6, false);
}

/* Few prompts of the trace are that long: others are asked between, so that caches hold none of it.
 */
static void look_up_4096(struct state *st, struct outcome *o, double rate)
{
    look_up(st, o, (struct choice){4096, st->opt->quick ? 2048 : 4096, 20, 0}, rate, false);
}

static void line_4096(struct state *st, struct outcome *o)
{
    look_up_4096(st, o, 0);
}

static void line_4096_writes(struct state *st, struct outcome *o)
{
    look_up_4096(st, o, 1e6);
}

static void line_cold(struct state *st, struct outcome *o)
{
    look_up(st, o, (struct choice){512, 0, 0, (uint64_t)st->round << 40}, 0, false);
}

/* From the moment that the writer has a slice of at most 64 blocks until all of it is visible. */
static void line_slice(struct state *st, struct outcome *o)
{
    void *ready;

    next_batch(st, trace_write_blocks(st) / 4);
    if (st->sub->async) { /* nobody sees when: but the next line wants the same state */
        apply_batch(st);
        return;
    }
    kv_batch_cut(&st->batch, 64);
    samples_init(&samples, st->batch.cap_items);
    ready = st->sub->prepare ? st->sub->prepare(st->s, &st->batch) : NULL;
    for (size_t i = 0; i < st->batch.n_items; i++) {
        uint64_t t = tick();

        st->sub->apply(st->s, &st->batch, ready, i, i + 1);
        if (st->batch.item[i].n == 64)
            samples_add(&samples, tick() - t);
    }
    if (st->sub->done)
        st->sub->done(st->s, ready);
    report(o);
}

static void line_rss(struct state *st, struct outcome *o)
{
    o->v[0] = (double)st->churn.held / 1e6;
    o->v[1] = (double)churn_prompts(&st->churn, 512, st->prompt, CHURN_LOG);
    o->v[2] =
        (double)churn_prompts(&st->churn, st->opt->quick ? 2048 : 4096, st->prompt, CHURN_LOG);
    o->v[3] = (double)rss_bytes() / 1e6;
    o->ok = 1;
}

/* clang-format off */
#define P50_P99 {"p50 ns", "p99 ns", NULL}
static const struct line lines[] = {
    {"state", "the state: memberships, whole prompts, size", {"M", "prompts of 512", "prompts of 4,096", "MB, with the generator"}, false, line_rss, 0},
    {"mix", "trace mix", {"M/s", NULL}, true, trace_line_mix, 0},
    {"warm", "512 blocks, warm", P50_P99, false, trace_line_warm, 0},
    {"warm_1m", "512 blocks, warm, 1 M blocks/s written beside", P50_P99, false, trace_line_warm_writes, 0},
    {"warm_storm", "512 blocks, warm, writer flat out", {"p50 ns", "p99 ns", "p99 / p50", NULL}, false, line_warm_storm, 0},
    {"half", "512 blocks, half warm", P50_P99, false, line_half, 0},
    {"half_1m", "512 blocks, half warm, 1 M blocks/s", P50_P99, false, line_half_writes, 0},
    {"4096", "4,096 blocks, warm, between other prompts", P50_P99, false, line_4096, 0},
    {"4096_1m", "4,096 blocks, warm, between other prompts, 1 M blocks/s", P50_P99, false, line_4096_writes, 0},
    {"cold_few", "cold: first block unknown, few roots", P50_P99, false, line_cold, 0},
    {"warm_hash", "hash + look-up, 512 blocks, warm", P50_P99, false, line_warm_hash, 0},
    {"slice", "slice of 64 blocks, dequeued to visible", P50_P99, false, line_slice, 0},
    {"open", "open loop, the highest rate kept up with", {"M ops/s", "look-up p50 us", "look-up p99 us", "visible p99 us"}, true, run_open_loop, 0},
    {"overload", "all due at once", {"M ops/s", NULL}, true, run_overload, 0},
};
const struct context ctx_trace = {"trace", "Trace workload, 256 workers", open_10m, lines, sizeof lines / sizeof lines[0], 0, false, false};
const struct context ctx_trace40 = {"trace40", "Trace workload, 256 workers, 40 M memberships", open_40m, lines, 12, 0, false, true};
/* clang-format on */
