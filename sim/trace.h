/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/trace.h - request traces in Mooncake's form: one JSON object a line, sorted by timestamp, plain or gzip.
 *     {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [int, ...]}
 * with, if one likes, "tenant": a number up to 1000 and "priority": a number up to 200, lower ones first; both are 0 when they are not there.
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
    uint32_t tenant, priority; /* optional members; priority: lower ones first */
};
struct wp_trace {
    struct wp_trace_req *req;
    size_t n;
    struct wp_arena arena;
};

enum {
    WP_TRACE_LINE_MAX = 16 << 20,  /* bytes */
    WP_TRACE_TOKENS_MAX = 1 << 24, /* of a prompt or an output */
    WP_TRACE_TENANTS_MAX = 1000,
    WP_TRACE_PRIORITY_MAX = 200,
};
#define WP_TRACE_BYTES_MAX ((size_t)4 << 30) /* of a whole trace in memory */
#define WP_TRACE_MS_MAX 1000000000000.0      /* of a time stamp */

/*
 * Reads at most max requests (0: all) into t, which need not be initialised and is empty on failure.  Blank lines and members that are
 * not ours are passed over; an output of 0 counts as 1.  Errors: WP_ENOENT and kin; WP_ESYNTAX, WP_EINVAL, WP_ETOOBIG, WP_EEOF and
 * WP_ENOMEM, naming FILE:LINE and what was wanted.
 */
int wp_trace_read(struct wp_trace *t, const char *path, size_t max, struct wp_err *err);
void wp_trace_fini(struct wp_trace *t);
/* Appends a request; its ids, filled by the caller, lie in t's arena.  NULL: out of memory. */
struct wp_trace_req *wp_trace_add(struct wp_trace *t, uint64_t at_us, uint32_t input, uint32_t output, uint64_t **ids);
/* Spreads arrivals: each uniformly within the next window_us of its time stamp, then sorts.  Same seed, same order. */
void wp_trace_jitter(struct wp_trace *t, uint64_t window_us, uint64_t seed);
/* Token ids of a request's prompt into out[input]: same id, same tokens; they stay above 256 and below vocabulary (> 257). */
void wp_trace_tokens(const struct wp_trace_req *r, uint32_t vocabulary, uint32_t out[]);

/* A made-up trace.  Statistics: docs/traces.md.  kind: chat, tool, agent. */
struct wp_trace_spec {
    const char *kind;
    size_t requests;
    uint64_t seed;
    double rate_per_s; /* mean arrivals; 0: the kind's own */
};
enum { WP_TRACE_MAKE_MAX = 10000000 };
/* Errors: WP_EINVAL, naming the kinds that there are or the bounds; WP_ENOMEM.  t need not be initialised and is empty on failure. */
int wp_trace_make(struct wp_trace *t, const struct wp_trace_spec *spec, struct wp_err *err);
int wp_trace_write(const struct wp_trace *t, const char *path, struct wp_err *err); /* gzip when it ends in .gz; "-": stdout */

struct wp_trace_stats {
    size_t requests, sessions;
    double duration_s; /* first to last arrival */
    double input_mean, output_mean;
    uint32_t input_p50, input_p99, output_p50, output_p99;
    double hit;    /* share of prompt tokens found in a cache without end; at least the last token of each is computed */
    size_t blocks; /* different ids */
};
/*
 * A request starts a session unless its prompt goes on from an earlier one: holds the last full block of it, which that one had been the
 * first to have, and nobody has gone on from that one yet.  Errors: WP_ENOMEM.
 */
int wp_trace_stats(const struct wp_trace *t, struct wp_trace_stats *s);

#endif
