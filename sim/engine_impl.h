/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/engine_impl.h - what engine.c (server and routes), jobs.c (requests in the model), ranks.c
 * (models and their events) and gauges.c (the metrics page) share. Nobody else includes it.
 */
#ifndef WP_SIM_ENGINE_IMPL_H
#define WP_SIM_ENGINE_IMPL_H

#include "base/metrics.h"
#include "base/rng.h"
#include "sim/answer.h"
#include "sim/engine.h"

struct wp_gauges { /* of one rank */
    struct wp_metrics *m;
    struct wp_series *running, *waiting, *by_capacity, *usage;
    struct wp_series *queries, *hits, *prompt, *computed, *local, *asked, *external, *cached,
        *tier[3], *generated;
    struct wp_series *by_length, *by_stop, *by_abort, *preemptions;
    struct wp_series *ttft, *itl, *e2e, *prompts, *outputs;
};

struct wp_rank {
    struct wp_engine *engine;
    struct wp_model *model;
    struct wp_publish *publish; /* NULL: no events */
    struct wp_gauges gauges;
    uint32_t number;
    uint32_t stalled; /* requests that a fault keeps */
    bool silent;      /* what its model tells is not announced block by block */
};

struct wp_engine {
    struct wp_loop *loop;
    struct wp_server *server;
    struct wp_rank *rank; /* [n_ranks] */
    uint32_t n_ranks, turn;
    struct wp_blocks blocks; /* of all ranks; empty without events */
    uint32_t *block_token;   /* [block_size] at hand while a block gets its name */
    char *topic;
    size_t replay_buffer;
    bool announces;        /* there are events, so blocks are known by more than their names */
    struct wp_timer clock; /* when a model has something to say */
    struct wp_model_conf cost;
    struct wp_oai_limits limits;
    struct wp_metrics *metrics;
    struct wp_list doomed; /* jobs that a fault ends: after the model has had its turn */
    struct wp_buf scratch; /* one event at a time */
    struct wp_fault *fault;
    size_t n_faults;
    char *name;
    char **adapter; /* [limits.n_adapters] */
    char fingerprint[32];
    uint64_t seed;
    uint64_t born_us, told_us; /* where the model's time starts, and how far it has been played */
    struct wp_rng ids;         /* of request ids: never the same in two processes */
    void (*closed)(void *arg);
    void *closed_arg;
};

struct wp_job;

/* One exchange: made when its head has come, gone when it is over. */
struct wp_visit {
    struct wp_engine *engine;
    struct wp_exchange *x;
    const struct wp_route *route;
    struct wp_buf body;
    struct wp_job *job;   /* NULL: none, or not yet */
    struct wp_timer slow; /* of a slow-accept fault */
    bool failed;          /* out of memory while the body came */
};

/* sim/jobs.c, sim/turns.c: a completion or chat whose body is whole.  Answers, now or later. */
void wp_job_start(struct wp_visit *v, bool chat);
void wp_job_over(struct wp_job *j);       /* its exchange is over: out of the model, freed */
void wp_engine_turn(struct wp_engine *e); /* plays what is due and sets the clock */
void wp_engine_on_clock(struct wp_timer *t);
extern const struct wp_model_ops wp_engine_model_ops;
/* sim/ranks.c */
int wp_ranks_create(struct wp_engine *e, uint32_t n, struct wp_err *err);
int wp_ranks_announce(struct wp_engine *e, const struct wp_engine_events *ev, struct wp_err *err);
void wp_ranks_fini(struct wp_engine *e);
void wp_ranks_run(struct wp_engine *e, uint64_t until_us);
uint64_t wp_ranks_next(
    const struct wp_engine *e); /* when one of them has something to say; UINT64_MAX: none */
struct wp_rank *wp_ranks_least(struct wp_engine *e); /* loaded */
void wp_ranks_sources(const struct wp_engine *e, struct wp_put *o);
enum wp_dump { WP_DUMP_BLOCKS, WP_DUMP_TOKENS, WP_DUMP_NAMES, WP_DUMP_DIGEST };
void wp_ranks_dump(const struct wp_engine *e, enum wp_dump what, struct wp_put *o);
void wp_rank_reset(struct wp_rank *r);
void wp_rank_restart(struct wp_rank *r,
                     bool keep); /* keep: the cache; else it is empty, and nobody is told */
void wp_rank_on_block(void *arg, uint64_t at_us, uint64_t chain, uint8_t tier, bool stored);
void wp_rank_on_step(void *arg, uint64_t at_us);
/* sim/gauges.c */
void wp_gauges_init(struct wp_gauges *g, struct wp_metrics *m, const char *rank, const char *model);
int wp_gauges_page(struct wp_engine *e, struct wp_buf *out);

#endif
