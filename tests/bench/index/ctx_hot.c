/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts that many share.  64 system prompts of 32 blocks that all 256 workers hold, each with 64
 * conversations of 96 blocks behind it on one worker; 5,000 other roots; 24 prompts of 512 blocks
 * of which each worker holds another part.
 */
#include "tests/bench/index/bench.h"

enum {
    WORKERS = 256,
    SYSTEMS = 64,
    SHARED = 32,
    TALKS = 64,
    TALK = 96,
    ROOTS = 5000,
    UNEVEN = 24,
    LONG = 512,
    SALT_SYSTEM = 1000001, /* of names, no other context's */
    SALT_TALK,
    SALT_ROOT,
    SALT_UNEVEN,
};

static void flush_if_full(struct state *st, size_t more)
{
    if (st->batch.n + more < st->batch.cap && st->batch.n_items + 1 < st->batch.cap_items)
        return;
    apply_batch(st);
    kv_batch_reset(&st->batch);
}

static void store(struct state *st, uint32_t worker, uint64_t key, uint32_t n)
{
    flush_if_full(st, n);
    kv_batch_event(&st->batch, WP_KV_STORED, worker);
    for (uint32_t i = 0; i < n; i++)
        kv_batch_block(&st->batch, key, i);
}

/* Everywhere from a tenth of the prompt on; half of the workers have all of it. */
static uint32_t part(uint32_t prompt, uint32_t worker)
{
    uint64_t draw = kv_mix((uint64_t)prompt << 32 | worker);

    return worker % 2 ? LONG : LONG / 10 + (uint32_t)(draw % (LONG - LONG / 10));
}

static void open_hot(struct state *st)
{
    state_open(st, 1 << 17, 1 << 13, st->sub == &subject_ours);
    state_subject(st, WORKERS, 4500000, 600000);
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint32_t s = 0; s < SYSTEMS; s++)
            store(st, w, kv_key(SALT_SYSTEM, s), SHARED);
    for (uint32_t i = 0; i < SYSTEMS * TALKS; i++) {
        store(st, (uint32_t)(kv_mix(i) % WORKERS), kv_key(SALT_TALK, i), TALK);
        kv_batch_parent(&st->batch, kv_key(SALT_SYSTEM, i / TALKS), SHARED - 1);
    }
    for (uint32_t i = 0; i < ROOTS; i++)
        store(st, i % WORKERS, kv_key(SALT_ROOT, i), 16);
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint32_t i = 0; i < UNEVEN; i++)
            store(st, w, kv_key(SALT_UNEVEN, i), part(i, w));
    apply_batch(st);
    kv_batch_reset(&st->batch);
}

static size_t ask_blocks(struct state *st, size_t from, uint64_t key, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        st->buf[from + i] = kv_local(key, i);
        st->buf_chain[from + i] = kv_chain(st->buf[from + i]);
    }
    return from + n;
}

static size_t next_hot(struct state *st, void *ctx)
{
    (void)ctx;
    return ask_blocks(st, 0, kv_key(SALT_SYSTEM, (uint32_t)(kv_mix(st->turn++) % SYSTEMS)), SHARED);
}

static uint64_t unknown(struct state *st)
{
    return kv_mix(++st->turn ^ (st->round + 1) << 50);
}

static size_t next_cold(struct state *st, void *ctx)
{
    (void)ctx;
    return ask_blocks(st, 0, unknown(st), LONG);
}

static size_t next_cold_after(struct state *st, void *ctx)
{
    size_t n = next_hot(st, ctx);

    return ask_blocks(st, n, unknown(st), LONG - SHARED);
}

static size_t next_uneven(struct state *st, void *ctx)
{
    (void)ctx;
    return ask_blocks(st, 0, kv_key(SALT_UNEVEN, (uint32_t)(kv_mix(st->turn++) % UNEVEN)), LONG);
}

static void look_up(struct state *st, struct outcome *o, size_t (*next)(struct state *, void *))
{
    static struct samples samples;
    struct asking a = {
        .next = next, .most = st->opt->quick ? 3000 : 10000, .seconds = st->opt->quick ? 0.5 : 2};

    st->turn = 0;
    samples_init(&samples, a.most);
    ask(st, &a, &samples, o);
    o->v[0] = samples_at(&samples, 0.5);
    o->v[1] = samples_at(&samples, 0.99);
    o->v[2] = (double)samples.n;
    o->ok = 1;
}

static void line_hot(struct state *st, struct outcome *o)
{
    look_up(st, o, next_hot);
}
static void line_cold(struct state *st, struct outcome *o)
{
    look_up(st, o, next_cold);
}
static void line_cold_after(struct state *st, struct outcome *o)
{
    look_up(st, o, next_cold_after);
}
static void line_uneven(struct state *st, struct outcome *o)
{
    look_up(st, o, next_uneven);
}

/* Only the hashing, of a prompt of 512 blocks: p50 and best. */
static void line_hash(struct state *st, struct outcome *o)
{
    static uint32_t token[LONG * 16];
    static struct samples samples;

    samples_init(&samples, 2000);
    for (size_t i = 0; i < samples.cap; i++) {
        uint64_t t;

        token[i % (LONG * 16)]++;
        t = tick();
        st->sub->hash(st->s, token, LONG * 16, st->buf);
        samples_add(&samples, tick() - t);
    }
    o->v[0] = samples_at(&samples, 0.5);
    o->v[1] = samples_at(&samples, 0.99);
    o->ok = 1;
}

/* clang-format off */
#define P50_P99 {"p50 ns", "p99 ns", NULL}
static const struct line lines[] = {
    {"hot", "32 hot blocks, held by all 256", P50_P99, false, line_hot, 0},
    {"cold_many", "cold: first block unknown, 5,000 roots", P50_P99, false, line_cold, 0},
    {"cold_after", "cold after a shared 32", P50_P99, false, line_cold_after, 0},
    {"uneven", "512 blocks, 256 uneven holders", P50_P99, false, line_uneven, 0},
    {"hash", "hash of a 512-block prompt, alone", P50_P99, false, line_hash, 0},
};
const struct context ctx_hot = {"hot", "Prompts that many share", open_hot, lines, sizeof lines / sizeof lines[0], 0, false, false};
/* clang-format on */
