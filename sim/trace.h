/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/trace.h - request traces in Mooncake's form: one JSON object a line, sorted by timestamp, plain or gzip.
 *     {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [int, ...]}
 * An id names a block of 512 tokens *and all before it*; the last one may be partial.  No text is in it.
 */
#ifndef WP_SIM_TRACE_H
#define WP_SIM_TRACE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { WP_TRACE_BLOCK = 512 };

struct wp_trace_req {
    uint64_t at_us;
    uint32_t input, output; /* tokens */
    uint32_t n_ids;
    const uint64_t *id;
};
struct wp_trace {
    struct wp_trace_req *req;
    size_t n;
    struct wp_arena arena;
};

/* Reads at most max requests (0: all).  Errors name FILE:LINE and what was wanted. */
int wp_trace_read(struct wp_trace *t, const char *path, size_t max, struct wp_err *err);
void wp_trace_fini(struct wp_trace *t);
/* Spreads arrivals: each uniformly within the next window_us of its time stamp, then sorts. */
void wp_trace_jitter(struct wp_trace *t, uint64_t window_us, uint64_t seed);
/* Token ids of a request's prompt into out[input]: same id, same tokens; ids stay below vocabulary and above 256. */
void wp_trace_tokens(const struct wp_trace_req *r, uint32_t vocabulary, uint32_t out[]);

/* A made-up trace.  Statistics: docs/traces.md.  kind: chat, tool, agent. */
struct wp_trace_spec {
    const char *kind;
    size_t requests;
    uint64_t seed;
    double rate_per_s; /* mean arrivals; 0: the kind's own */
};
int wp_trace_make(struct wp_trace *t, const struct wp_trace_spec *spec, struct wp_err *err);
int wp_trace_write(const struct wp_trace *t, const char *path, struct wp_err *err); /* gzip when it ends in .gz; "-": stdout */

#endif
