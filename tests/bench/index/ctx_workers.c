/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other fleets on the trace workload, ours alone: 1,024 workers; half of the workers with a second
 * tier that has all that the first has; a group with a sliding window on every worker (it stores
 * and removes what the main group does, so that the window never ends a run).
 */
#include "tests/bench/index/bench.h"

enum { WINDOW_BLOCKS = 64 };

static size_t fleet_blocks(const struct state *st)
{
    return st->opt->blocks / 4;
}

static void open_1024(struct state *st)
{
    size_t blocks = st->opt->quick ? st->opt->blocks * 2 : st->opt->blocks;

    trace_open(st, 1024, blocks, trace_write_blocks(st), NULL);
    trace_fill(st);
}

static void second_tier(struct kv_batch *b)
{
    kv_batch_twin(b, WP_TIER_CPU, 0, true);
}

static void open_tiers(struct state *st)
{
    trace_open(st, 256, fleet_blocks(st) * 2, trace_write_blocks(st), second_tier);
    trace_fill(st);
}

static void second_group(struct kv_batch *b)
{
    kv_batch_twin(b, 0, 1, false);
}

static void open_windows(struct state *st)
{
    trace_open(st, 256, fleet_blocks(st), trace_write_blocks(st), second_group);
    ours_windows(st->s, WINDOW_BLOCKS);
    trace_fill(st);
}

/* clang-format off */
static const struct line lines[] = {
    {"mix", "trace mix", {"M/s", NULL}, true, trace_line_mix, 0},
    {"warm", "512 blocks, warm", {"p50 ns", "p99 ns", NULL}, false, trace_line_warm, 0},
    {"warm_1m", "512 blocks, warm, 1 M blocks/s written beside", {"p50 ns", "p99 ns", NULL}, false, trace_line_warm_writes, 0},
};
enum { LINES = sizeof lines / sizeof lines[0] };
const struct context ctx_workers = {"workers", "1,024 workers", open_1024, lines, LINES, FEATURE_TIERS, false, false};
const struct context ctx_tiers = {"tiers", "Two tiers on half of the workers", open_tiers, lines, LINES, FEATURE_TIERS, false, false};
const struct context ctx_windows = {"windows", "A sliding window on every worker", open_windows, lines, LINES, FEATURE_WINDOWS, false, false};
/* clang-format on */
