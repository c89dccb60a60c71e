/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores and removals of families: chains of one length, each on so many workers, removed in random
 * order, tails first.  Every round has new names, as new prompts would; memory is warm from the
 * first round on, which counts like the others, and the memory context has the rate without that.
 */
#include "tests/bench/index/bench.h"

#include <stdlib.h>

enum {
    WORKERS = 256,
    ROUND_SALTS = 1000,
    LIVE = 16384,
    GROWTH = 32,
    STEM = 16,
    WIDE = 190000, /* kv-index 2.0.0 may fail from 196,608 children of one block on */
    WIDER = 262144,
    FEW = 1000,
    WIDE_CHAIN = 16
};

struct family {
    uint32_t holders, chain, chains;
};

static uint64_t name_of(const struct state *st, uint32_t chain)
{
    uint32_t round = st->wide ? 0 : (uint32_t)st->round; /* that context keeps what it has */

    return kv_key(2000000 + round * ROUND_SALTS + (st->wide ? 0 : st->variant), chain);
}

static uint32_t worker_of(uint64_t key, uint32_t k)
{
    return (uint32_t)((key + 13 * k) % WORKERS);
}

/* A number below n for each i below n, each once: a walk by a step that has no factor in common
 * with n. */
static uint32_t shuffled(uint32_t i, uint32_t n)
{
    return (uint32_t)(((uint64_t)i * 2654435761u + 12345) % n); /* a prime above every n */
}

static void family_event(struct state *st, const struct family *f, enum wp_kv_kind kind, uint32_t i)
{
    uint64_t key = name_of(st, i % f->chains);

    kv_batch_event(&st->batch, kind, worker_of(key, i / f->chains));
    for (uint32_t b = 0; b < f->chain; b++)
        kv_batch_block(&st->batch, key, kind == WP_KV_STORED ? b : f->chain - 1 - b);
}

/* All chains of all holders, in batches; M blocks per CPU second. */
static double family_pass(struct state *st, const struct family *f, enum wp_kv_kind kind)
{
    uint32_t n = f->chains * f->holders;
    double us = 0, blocks = 0;

    for (uint32_t i = 0; i < n;) {
        kv_batch_reset(&st->batch);
        for (; i < n && st->batch.n + f->chain <= st->batch.cap &&
               st->batch.n_items < st->batch.cap_items;
             i++)
            family_event(st, f, kind, kind == WP_KV_STORED ? i : shuffled(i, n));
        blocks += (double)st->batch.n;
        us += (double)st->batch.n / apply_timed(st);
    }
    return blocks / us;
}

static uint32_t scaled(const struct state *st, uint32_t n)
{
    return st->opt->quick ? n / 8 : n;
}

static void open_apply(struct state *st)
{
    state_open(st, 1 << 16, 1 << 16, st->sub == &subject_ours || st->ctx == &ctx_own);
    state_subject(st, WORKERS, 5000000, 5000000);
}

static void run_family(struct state *st, struct outcome *o, struct family f)
{
    f.chains = scaled(st, f.chains);
    o->v[0] = family_pass(st, &f, WP_KV_STORED);
    o->v[1] = family_pass(st, &f, WP_KV_REMOVED);
    if (st->sub->idle)
        st->sub->idle(st->s);
    o->ok = 1;
}

static void line_16(struct state *st, struct outcome *o)
{
    st->variant = 1;
    run_family(st, o, (struct family){16, 128, 2048});
}
static void line_1(struct state *st, struct outcome *o)
{
    st->variant = 2;
    run_family(st, o, (struct family){1, 128, 32768});
}
static void line_short(struct state *st, struct outcome *o)
{
    st->variant = 3;
    run_family(st, o, (struct family){1, 16, 131072});
}

/* --- one block an event --- */

/* Step s of the growth: worker after worker, a sixteenth of its live chains. */
static void growth_step(struct state *st, uint32_t live, enum wp_kv_kind kind, uint32_t place)
{
    kv_batch_reset(&st->batch);
    for (uint32_t part = 0; part < 16; part++)
        for (uint32_t c = part; c < live; c += 16) {
            uint64_t key = name_of(st, shuffled(c, live));

            kv_batch_event(&st->batch, kind, worker_of(key, 0));
            if (kind == WP_KV_STORED)
                kv_batch_parent(&st->batch, key, place - 1);
            kv_batch_block(&st->batch, key, place);
        }
}

static void line_ones(struct state *st, struct outcome *o)
{
    struct family stem = {1, STEM, scaled(st, LIVE)};
    double us[2] = {0}, blocks = 0;

    st->variant = 4;
    family_pass(st, &stem, WP_KV_STORED);
    for (uint32_t i = 0; i < GROWTH; i++) {
        growth_step(st, stem.chains, WP_KV_STORED, STEM + i);
        us[0] += (double)st->batch.n / apply_timed(st);
        blocks += (double)st->batch.n;
    }
    for (uint32_t i = GROWTH; i-- > 0;) {
        growth_step(st, stem.chains, WP_KV_REMOVED, STEM + i);
        us[1] += (double)st->batch.n / apply_timed(st);
    }
    family_pass(st, &stem, WP_KV_REMOVED);
    if (st->sub->idle)
        st->sub->idle(st->s);
    o->v[0] = blocks / us[0];
    o->v[1] = blocks / us[1];
    o->ok = 1;
}

/* --- removal below a root with many children --- */

/* Some of the chains go and come back. */
static void wide(struct state *st, struct outcome *o, uint32_t roots)
{
    struct family f = {1, WIDE_CHAIN, roots};
    double us = 0, blocks = 0;
    uint32_t times = st->opt->quick ? 1 : 3, n = 1000;

    for (uint32_t t = 0; t < times; t++) {
        kv_batch_reset(&st->batch);
        for (uint32_t i = 0; i < n; i++)
            family_event(st, &f, WP_KV_REMOVED, shuffled(i + t * n, roots));
        us += (double)st->batch.n / apply_timed(st);
        blocks += (double)st->batch.n;
        kv_batch_reset(&st->batch);
        for (uint32_t i = 0; i < n; i++)
            family_event(st, &f, WP_KV_STORED, shuffled(i + t * n, roots));
        apply_batch(st);
    }
    if (st->sub->idle)
        st->sub->idle(st->s);
    o->v[0] = blocks / us;
    o->v[1] = us * 1e3 / (n * times);
    o->ok = 1;
}

static void line_few(struct state *st, struct outcome *o)
{
    struct family f = {1, WIDE_CHAIN, FEW};

    st->variant = 5;
    family_pass(st, &f, WP_KV_STORED);
    wide(st, o, FEW);
    family_pass(st, &f, WP_KV_REMOVED);
}

static void line_wide(struct state *st, struct outcome *o)
{
    wide(st, o, st->variant);
}

static void open_roots(struct state *st, uint32_t roots)
{
    struct family f = {1, WIDE_CHAIN, roots};

    st->variant = roots;
    open_apply(st);
    st->wide = true;
    family_pass(st, &f, WP_KV_STORED);
}

static void open_wide(struct state *st)
{
    open_roots(st, scaled(st, WIDE));
}

static void open_wider(struct state *st)
{
    open_roots(st, scaled(st, WIDER));
}

/* clang-format off */
#define STORE_REMOVE {"store M/s", "remove M/s", NULL}
#define CHAIN_NS {"remove M/s", "ns a chain", NULL}
static const struct line lines[] = {
    {"f16", "chains of 128, 16 holders", STORE_REMOVE, true, line_16, 0},
    {"f1", "chains of 128, 1 holder", STORE_REMOVE, true, line_1, 0},
    {"f1_16", "chains of 16, 1 holder", STORE_REMOVE, true, line_short, 0},
    {"ones", "one-block events", STORE_REMOVE, true, line_ones, 0},
    {"few_roots", "removal of chains of 16, 1,000 roots", CHAIN_NS, true, line_few, 0},
};
const struct context ctx_own = {"own", "The same with other engine hashes on each worker, for all", open_apply, lines, 1, 0, false, false};
static const struct line wide_lines[] = {
    {"many_roots", "removal of chains of 16", CHAIN_NS, true, line_wide, 0},
};
const struct context ctx_wide = {"wide", "190,000 roots", open_wide, wide_lines, 1, 0, false, false};
const struct context ctx_wider = {"wider", "262,000 roots", open_wider, wide_lines, 1, 0, false, false};
/* clang-format on */
const struct context ctx_apply = {"apply",
                                  "Stores and removals by shape",
                                  open_apply,
                                  lines,
                                  sizeof lines / sizeof lines[0],
                                  0,
                                  false,
                                  false};

/* --- memory of the same shapes, each in a process of its own --- */

static void memory(struct state *st, struct outcome *o, struct family f)
{
    uint64_t before;
    double held;

    f.chains = scaled(st, f.chains);
    held = (double)f.chains * f.holders * f.chain;
    state_open(st, 1 << 16, 1 << 14, st->sub == &subject_ours);
    before = rss_bytes();
    state_subject(st, WORKERS, (uint64_t)held, (uint64_t)held / f.holders);
    o->v[2] = family_pass(st, &f, WP_KV_STORED); /* into fresh memory */
    o->v[0] = ((double)rss_bytes() - (double)before) / held;
    o->v[1] = held / 1e6;
    o->ok = 1;
}

static void memory_16(struct state *st, struct outcome *o)
{
    memory(st, o, (struct family){16, 128, 5120});
}
static void memory_1(struct state *st, struct outcome *o)
{
    memory(st, o, (struct family){1, 128, 81920});
}
static void memory_short(struct state *st, struct outcome *o)
{
    memory(st, o, (struct family){1, 16, 190000});
}

/* clang-format off */
#define BYTES {"bytes", "M held", "fill M/s", NULL}
static const struct line memory_lines[] = {
    {"f16", "chains of 128, 16 holders", BYTES, false, memory_16, 0},
    {"f1", "chains of 128, 1 holder", BYTES, false, memory_1, 0},
    {"f1_16", "chains of 16, 1 holder", BYTES, false, memory_short, 0},
    {"trace", "trace workload after churn", {"bytes", "M held", NULL}, false, trace_memory, 0},
};
const struct context ctx_memory = {"memory", "Memory, RSS per (block, holder)", NULL, memory_lines, sizeof memory_lines / sizeof memory_lines[0], 0, true, false};
/* clang-format on */
