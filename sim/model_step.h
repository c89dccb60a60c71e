/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/model_step.h - inside the engine model.
 *
 * The happy path: a submitted request lies in `arriving` until its time, then in `waiting`.  When a
 * step begins, waiting requests are admitted in order (room taken, hits pinned, lower tiers read)
 * and move to `prefill`; a step gives each of these a chunk of the budget.  Its end stores the
 * blocks that it filled.  The chunk that ends a prompt brings the first token and moves the request
 * to `decoding`, where every step brings one more; with the last one it is told, and gone.
 *
 *     ARRIVING --> WAITING --> PREFILL --> DECODING --> GONE    a cancel: from any state to GONE
 *
 * Requests that go while callbacks run are kept in `graves` until those have returned.
 * This header is what sim/model.c (the interface) and sim/model_step.c (the scheduler) share; nobody else includes it.
 */
#ifndef WP_SIM_MODEL_STEP_H
#define WP_SIM_MODEL_STEP_H

#include "base/list.h"
#include "sim/model.h"
#include "sim/tiers.h"

#include <math.h>

enum state { ARRIVING, WAITING, PREFILL, DECODING, GONE };

struct wp_model_req {
    struct wp_list link; /* in the list of its state */
    enum state state;
    bool telling; /* inside its on_done */
    bool kept;    /* not to be admitted */
    double at_us;
    uint32_t tokens, output;
    uint32_t done;             /* prompt tokens cached or computed */
    uint32_t chunk;            /* of the step under way */
    uint32_t cached[WP_TIERS]; /* tokens */
    uint32_t todo;             /* of the sums in stats, its own part; */
    double todo_us;            /* and its cost */
    uint64_t born;             /* the step that brought the first token */
    void *arg;
    struct wp_holding held;
    uint64_t chain[]; /* [held.n], then held.slot[held.n] */
};

struct wp_model {
    struct wp_model_conf conf;
    struct wp_model_ops ops;
    void *arg;
    struct wp_tiers tiers;
    struct wp_list arriving, waiting, prefill, decoding, graves;
    struct wp_model_req **batch; /* [max_running] whom the end of a step concerns */
    double now_us, end_us, wake_us;
    bool busy, in_run;
    bool stuck; /* the first one waiting did not fit, and no room has come since */
    uint32_t n_running, n_waiting, n_decoding;
    uint64_t kv_tokens; /* of the decode batch */
    uint64_t step, next_finish;
    double todo_us;
    struct wp_model_stats sum; /* the counters of it, and todo_tokens */
};

static inline uint64_t wp_model_whole_us(double us)
{
    return us >= 0x1p63 ? UINT64_MAX : (uint64_t)ceil(us);
}

static inline uint64_t wp_model_blocks(const struct wp_model *m, uint64_t tokens)
{
    return (tokens + m->conf.block_size - 1) / m->conf.block_size;
}

/* So many tokens of r's prompt need no prefill any more. */
static inline void wp_model_reckon(struct wp_model *m, struct wp_model_req *r, uint32_t done)
{
    double us = wp_prefill_us(&m->conf.profile, done, r->tokens);

    m->sum.todo_tokens += r->tokens - done;
    m->sum.todo_tokens -= r->todo;
    m->todo_us = m->sum.todo_tokens ? m->todo_us + us - r->todo_us : 0; /* no rounding is carried on for ever */
    r->todo = r->tokens - done;
    r->todo_us = us;
}

/* At now_us, not busy: admits, gives chunks, and sets busy with end_us, or wake_us. */
void wp_model_step_begin(struct wp_model *m);
/* At end_us: stores, tells, and finishes. */
void wp_model_step_end(struct wp_model *m);
/* A cancel: r leaves whatever it is in, and what it holds is free. */
void wp_model_drop(struct wp_model *m, struct wp_model_req *r);

#endif
