/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/index/bench.h - the parts of the index benchmark.
 *     ../index.c options, the order of things                  fleet.c    a process for each subject
 *     report.c   the page
 *     subject_*  what is measured: ours, two stand-ins, and the peers of tests/bench/peers through dlopen()
 *     ctx_*      contexts: a state of the index and the lines measured on it
 *     clock.c    timers, percentiles, the machine's own figures
 * Each (context, subject) is a process of its own, forked from one that has no threads; the parent tells them in turn
 * to measure a line, so that a loud minute hits all alike, and memory figures are of one subject only.
 */
#ifndef WP_TESTS_BENCH_INDEX_BENCH_H
#define WP_TESTS_BENCH_INDEX_BENCH_H

#include "tests/lib/churn.h"
#include "tests/lib/kvbatch.h"

#include <pthread.h>
#include <stdio.h>

/*
 * What is measured.  prepare() turns a batch into what the subject's own interface takes, outside the clock; apply()
 * applies events [from, to) of it, on one thread; lookup() runs on one thread, maybe another.  Layout shared with
 * tests/bench/peers.
 */
struct subject {
    const char *name, *what;
    uint32_t async;    /* apply() only hands over; flush() waits, and says what the subject's own writer has used */
    uint32_t features; /* FEATURE_ bits */
    /* Never more than so many (block, worker) pairs and blocks.  NULL: out of memory. */
    void *(*create)(uint32_t workers, uint64_t memberships, uint64_t blocks);
    void (*destroy)(void *s);
    void *(*prepare)(void *s, const struct kv_batch *b);
    void (*apply)(void *s, const struct kv_batch *b, void *ready, size_t from, size_t to);
    void (*done)(void *s, void *ready);
    uint64_t (*flush)(void *s); /* CPU time of its writer in ns, when async */
    /* The longest overlap; total() then says the sum over all holders. */
    uint32_t (*lookup)(void *s, const uint64_t local[], const uint64_t chain[], size_t n);
    uint64_t (*total)(void *s);
    size_t (*hash)(void *s, const uint32_t token[], size_t n, uint64_t out[]); /* what lookup() needs, blocks of 16 */
    void (*idle)(void *s); /* between rounds: clean-up of its own */
};
enum { FEATURE_TIERS = 1, FEATURE_WINDOWS = 2, FEATURE_CHAIN = 4 /* look-ups want chain hashes */ };
extern const struct subject subject_ours, subject_flat, subject_mutex;
/* Of build/.../libwp_bench_peers.so; NULL and a message when it cannot be loaded. */
const struct subject *subject_peer(const char *library, const char *symbol);

/* clock.c */
uint64_t tick(void);                 /* ordered: neither earlier nor later work leaks over it */
double tick_ns(uint64_t ticks);      /* calibrated once by clock_init() */
double tick_cost_ns(void);           /* of an empty interval; taken off every sample */
void clock_init(void);
uint64_t now_ns(void);
uint64_t thread_cpu_ns(void);
uint64_t rss_bytes(void);
struct samples {
    uint32_t *ns;
    size_t n, cap;
};
void samples_init(struct samples *s, size_t cap);
void samples_add(struct samples *s, uint64_t ticks);
double samples_at(struct samples *s, double share); /* sorts; nearest rank */
double miss_ns(size_t bytes);                       /* of a dependent read in a random cycle */
struct gaps {
    double lost_share, p99_us, longest_us;
};
struct gaps spin_gaps(double seconds); /* of a bare loop: gaps over 1 us */
double percentile(double v[], size_t n, double share);

/* What a line gives in one round. */
enum { VALUES = 4, ROUNDS_MAX = 15 };
struct outcome {
    double v[VALUES];
    uint64_t check; /* sum over all answers, or 0: equal for subjects that agree */
    int ok;
};

struct options {
    bool quick, big;
    int rounds;
    const char *trace, *peers, *out, *save, *before, *label;
    const char *only, *line, *subject; /* lists; NULL: all */
    size_t blocks; /* memberships of the trace context, about */
};

struct state; /* of a context in its process */
struct line {
    const char *key, *title;
    const char *unit[VALUES]; /* of each value; NULL ends */
    bool more_is_better;
    void (*run)(struct state *st, struct outcome *o);
    uint32_t needs; /* FEATURE_ bits without which a subject has no such line */
};
struct context {
    const char *key, *title;
    void (*open)(struct state *st);
    const struct line *line;
    size_t n_lines;
    uint32_t needs;
    bool once; /* one round is enough, and each line wants a process of its own */
    bool big;  /* only with --big */
};
extern const struct context ctx_memory, ctx_apply, ctx_own, ctx_wide, ctx_wider, ctx_trace, ctx_trace40, ctx_hot, ctx_workers, ctx_tiers,
    ctx_windows;

struct state {
    const struct options *opt;
    const struct subject *sub;
    const struct context *ctx;
    const struct wp_trace *trace;
    void *s;
    struct kv_batch batch;
    struct churn churn;
    uint32_t workers;
    struct churn_prompt *prompt; /* of the size asked for last */
    size_t n_prompts, turn;
    struct churn_prompt *other; /* of 512 blocks, asked between */
    size_t n_others, other_turn;
    uint64_t *buf, *buf_chain; /* the prompt asked now, in cache */
    uint64_t round;
    uint32_t variant; /* of the context */
    void (*edit)(struct kv_batch *b);
    bool wide;
};
enum { PROMPT_MAX = 8192 };

/* run.c: what contexts share */
void state_open(struct state *st, size_t batch_blocks, size_t batch_items, bool opaque);
void state_subject(struct state *st, uint32_t workers, uint64_t memberships, uint64_t blocks);
void apply_batch(struct state *st); /* the whole batch, outside any clock */
double apply_timed(struct state *st); /* M blocks per CPU second of the writer */
void die(const char *what) __attribute__((noreturn));

/*
 * Look-ups, timed one by one.  next() leaves the prompt in st->buf and says its length; between(), when not NULL, runs
 * before each, untimed.  Ends after `most` look-ups, or after `seconds`.
 */
struct asking {
    size_t (*next)(struct state *st, void *ctx);
    void (*between)(struct state *st, void *ctx);
    void *ctx;
    size_t most;
    double seconds;
    bool hash; /* hashing the prompt's tokens is part of it */
    const atomic_bool *stop;
};
void ask(struct state *st, const struct asking *a, struct samples *s, struct outcome *o);

/* A thread that applies the batch meanwhile, at so many blocks a second; 0: flat out.  It ends with the batch. */
struct writing {
    struct state *st;
    double rate;
    void *ready;
    pthread_t thread;
    atomic_bool ended, hurry;
};
void writing_start(struct writing *w, struct state *st, double rate);
void writing_end(struct writing *w); /* the rest at once, then waits */

/* ctx_trace.c: what the contexts of other fleets share with it.  edit, when not NULL, changes each batch. */
void trace_open(struct state *st, uint32_t workers, size_t blocks, size_t batch, void (*edit)(struct kv_batch *));
void trace_fill(struct state *st);
void trace_memory(struct state *st, struct outcome *o);
void trace_line_mix(struct state *st, struct outcome *o);
void trace_line_warm(struct state *st, struct outcome *o);
void trace_line_warm_writes(struct state *st, struct outcome *o);
size_t trace_write_blocks(const struct state *st);
/* subject_ours.c: group 1 of each worker restricts its main group to that window. */
void ours_windows(void *s, uint32_t blocks);

/* fleet.c: the processes, and what they said. */
enum { SUBJECTS_MAX = 5, LINES_MAX = 16 };
struct cell {
    double v[VALUES][ROUNDS_MAX];
    uint64_t check[ROUNDS_MAX];
    int n;
};
struct results {
    const struct context *ctx;
    const struct subject *sub[SUBJECTS_MAX];
    size_t n_sub;
    struct cell cell[LINES_MAX][SUBJECTS_MAX];
    struct gaps gap[ROUNDS_MAX];
    int rounds;
    unsigned disagree; /* answers of subjects differed so many times */
};
void fleet_run(struct results *r, const struct options *opt, const struct wp_trace *trace);
bool line_for(const struct line *l, const struct subject *s);
bool listed(const char *list, const char *key); /* separated by commas; NULL lists all */
double cell_median(const struct cell *c, int value);
double cell_best(const struct cell *c, int value, bool more_is_better);

/* report.c */
void report_head(FILE *out, const struct options *opt, const struct wp_trace *trace, bool made);
void report_context(FILE *out, const struct results *r, const struct options *opt);
void report_save(FILE *save, const struct results *r);

/* open.c */
void run_open_loop(struct state *st, struct outcome *o);
void run_overload(struct state *st, struct outcome *o);

#endif
