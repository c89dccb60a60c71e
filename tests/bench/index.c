/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index costs: rates of stores, removals and look-ups, and bytes for each (block, holder).
 * Best and median of five runs by the wall clock, because the machine may have other work; figures
 * include the lock and, for stores, the first touch of fresh memory.  `spin gaps` is the share of a
 * second in which a bare loop did not run.
 *
 *     make build/bench/index && build/bench/index
 */
#include "base/clock.h"
#include "base/rng.h"
#include "index/identity.h"
#include "index/index.h"

#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 5, WORKERS = 64, CHAIN = 128, PROMPT_MAX = 1024 };

struct shape {
    const char *name;
    uint32_t holders; /* of each chain */
    uint32_t chain;   /* blocks of an event */
    uint32_t chains;
};
static const struct shape shapes[] = {
    {"16 holders, chains of 128", 16, 128, 128},
    {" 1 holder,  chains of 128", 1, 128, 2048},
    {" 1 holder,  chains of 16", 1, 16, 16384},
    {" 1 holder,  one-block events", 1, 1, 131072},
};

struct bench {
    struct wp_index *ix;
    uint32_t space, holder[WORKERS];
    struct wp_overlap o;
    uint64_t local[CHAIN], engine[CHAIN];
};

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void bench_open(struct bench *b)
{
    struct wp_err err = WP_ERR_INIT;

    if (wp_index_create(&b->ix, &(struct wp_index_conf){.secret = 1}, &err) < 0 ||
        wp_index_space(b->ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &b->space, &err) < 0)
        die(err.text);
    for (int i = 0; i < WORKERS; i++)
        if (wp_index_holder(b->ix, WP_HOLDER_RANK, WP_NO_HOLDER, &b->holder[i], &err) < 0)
            die(err.text);
    if (wp_overlap_init(&b->o, WORKERS) < 0)
        die("out of memory");
}

static void bench_close(struct bench *b)
{
    wp_overlap_fini(&b->o);
    wp_index_destroy(b->ix);
}

static void make_chain(struct bench *b, uint32_t chain, uint32_t n, uint32_t worker)
{
    struct wp_rng local = {chain}, engine = {(uint64_t)chain << 32 | worker};

    for (uint32_t i = 0; i < n; i++) {
        b->local[i] = wp_rng_next(&local);
        b->engine[i] = wp_rng_next(&engine); /* engines agree on nothing */
    }
}

/* One pass over all chains of a shape; returns seconds, less what making the events took. */
static double pass(struct bench *b, const struct shape *s, enum wp_kv_kind kind)
{
    uint64_t spent = 0;

    for (uint32_t c = 0; c < s->chains; c++)
        for (uint32_t h = 0; h < s->holders; h++) {
            uint32_t worker = (c * s->holders + h) % WORKERS;
            struct wp_kv_event ev = {.kind = kind,
                                     .holder = b->holder[worker],
                                     .space = b->space,
                                     .main_group = true,
                                     .n = s->chain,
                                     .engine = b->engine,
                                     .local = b->local};
            uint64_t from;

            make_chain(b, c, s->chain, worker);
            from = wp_now_us();
            wp_index_apply(b->ix, &ev, NULL);
            spent += wp_now_us() - from;
        }
    return (double)spent / 1e6;
}

/* One-block events are shorter than the clock's grain: they are timed together, events made
 * beforehand. */
static double pass_of_ones(struct bench *b, const struct shape *s, enum wp_kv_kind kind)
{
    uint64_t *local = malloc(s->chains * sizeof *local),
             *engine = malloc(s->chains * sizeof *engine), from;

    if (!local || !engine)
        die("out of memory");
    for (uint32_t c = 0; c < s->chains; c++) {
        make_chain(b, c, 1, c % WORKERS);
        local[c] = b->local[0];
        engine[c] = b->engine[0];
    }
    from = wp_now_us();
    for (uint32_t c = 0; c < s->chains; c++) {
        struct wp_kv_event ev = {.kind = kind,
                                 .holder = b->holder[c % WORKERS],
                                 .space = b->space,
                                 .main_group = true,
                                 .n = 1,
                                 .engine = &engine[c],
                                 .local = &local[c]};

        wp_index_apply(b->ix, &ev, NULL);
    }
    from = wp_now_us() - from;
    free(local);
    free(engine);
    return (double)from / 1e6;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sort(double v[RUNS])
{
    qsort(v, RUNS, sizeof v[0], by_size);
}

static void bench_apply(const struct shape *s)
{
    double n = (double)s->holders * s->chain * s->chains / 1e6, bytes = 0, store[RUNS],
           removal[RUNS];

    for (int run = 0; run < RUNS; run++) {
        struct bench b;
        struct wp_index_stats st;
        double (*one_pass)(struct bench *, const struct shape *, enum wp_kv_kind) =
            s->chain > 1 ? pass : pass_of_ones;

        bench_open(&b);
        store[run] = n / one_pass(&b, s, WP_KV_STORED);
        wp_index_stats(b.ix, &st);
        if (st.locations != (uint64_t)(n * 1e6 + 0.5))
            die("not all was stored");
        bytes = (double)st.bytes / (double)st.locations;
        removal[run] = n / one_pass(&b, s, WP_KV_REMOVED);
        wp_index_stats(b.ix, &st);
        if (st.locations)
            die("not all was removed");
        bench_close(&b);
    }
    sort(store);
    sort(removal);
    printf("%-30s %8.2f %8.2f %8.2f %8.2f %8.0f\n", s->name, store[RUNS - 1], store[RUNS / 2],
           removal[RUNS - 1], removal[RUNS / 2], bytes);
}

/* A prompt of n blocks of which each of `holders` workers has a part; answers a second, in ns each.
 */
static void bench_overlap(const char *name, uint32_t n, uint32_t holders, bool uneven, bool known)
{
    struct bench b;
    uint64_t local[PROMPT_MAX], asked = 0;
    struct wp_rng rng = {9};
    double ns[RUNS];
    const uint32_t times = n > 256 ? 400 : 4000;

    bench_open(&b);
    for (uint32_t i = 0; i < n; i++)
        local[i] = wp_rng_next(&rng);
    for (uint32_t h = 0; h < holders; h++) {
        struct wp_kv_event ev = {.kind = WP_KV_STORED,
                                 .holder = b.holder[h],
                                 .space = b.space,
                                 .main_group = true,
                                 .n = uneven ? 1 + n * (h + 1) / (holders + 1) : n,
                                 .engine = local,
                                 .local = local};

        wp_index_apply(b.ix, &ev, NULL);
    }
    if (!known)
        local[0]++;
    for (int run = 0; run < RUNS; run++) {
        uint64_t from = wp_now_us();

        for (uint32_t i = 0; i < times; i++)
            asked += wp_index_overlap(b.ix, b.space, local, n, &b.o);
        ns[run] = (double)(wp_now_us() - from) * 1000 / times;
    }
    sort(ns);
    printf("%-30s %8.0f %8.0f %8.1f\n", name, ns[0], ns[RUNS / 2], (double)asked / RUNS / times);
    bench_close(&b);
}

static void bench_hashing(void)
{
    static uint32_t token[16 * 1024];
    static uint64_t local[1024];
    double ns[RUNS];

    for (uint32_t i = 0; i < 16 * 1024; i++)
        token[i] = i * 2654435761u;
    for (int run = 0; run < RUNS; run++) {
        uint64_t from = wp_now_us();

        for (int i = 0; i < 200; i++) {
            token[i]++;
            wp_hash_chain(local, wp_hash_tokens(token, 16 * 1024, 16, 1337, local, 1024), local);
        }
        ns[run] = (double)(wp_now_us() - from) * 1000 / (200 * 1024);
    }
    sort(ns);
    printf("%-30s %8.1f %8.1f\n", "block of 16 tokens", ns[0], ns[RUNS / 2]);
}

static void print_gaps(void)
{
    uint64_t start = wp_now_us(), last = start, lost = 0, longest = 0;

    while (last - start < 300000) {
        uint64_t now = wp_now_us(), gap = now - last;

        if (gap > 10) {
            lost += gap;
            longest = gap > longest ? gap : longest;
        }
        last = now;
    }
    printf("spin gaps: %.1f %% of the time lost, longest %.1f ms\n", (double)lost / 3000,
           (double)longest / 1000);
}

int main(void)
{
    print_gaps();
    printf("\n%-30s %8s %8s %8s %8s %8s\n", "", "store", "M/s", "remove", "M/s", "bytes a");
    printf("%-30s %8s %8s %8s %8s %8s\n", "apply, one writer", "best", "median", "best", "median",
           "holding");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        bench_apply(&shapes[i]);
    printf("\n%-30s %8s %8s %8s\n", "", "ns", "ns", "blocks");
    printf("%-30s %8s %8s %8s\n", "overlap, for 64 workers, warm", "best", "median", "found");
    bench_overlap("512 blocks, 1 holder", 512, 1, false, true);
    bench_overlap("512 blocks, 16 holders", 512, 16, false, true);
    bench_overlap("512 blocks, 64 uneven holders", 512, 64, true, true);
    bench_overlap("32 blocks, 64 holders", 32, 64, false, true);
    bench_overlap("512 blocks, first unknown", 512, 1, false, false);
    printf("\n%-30s %8s %8s\n", "hashing, ns", "best", "median");
    bench_hashing();
    return 0;
}
