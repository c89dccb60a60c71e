/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/brain.h - the router's mind in virtual time: the index, the accounts of what workers have to do, the backlogs of links, a
 * policy and the admission queue.  It is told what a router is told, when it is told, and asked where requests go: by `decide`
 * over the laboratory's line protocol and by `replay` over simulated engines.  The code that decides is serve's own.
 *
 * Blocks have names of 64 bits that stand for a block and all before it, as in Mooncake's traces: one name, one prefix.  A name's
 * parent is learnt from the first request that has it, so requests come before the events of their blocks; events of names that no
 * request had are counted and otherwise ignored.  A name that a later request has behind another parent ends the hit there.
 *
 * Workers are 0..workers-1.  Times are microseconds; one that is earlier than the last is taken as the last.  Requests are named by the
 * caller; a name is free again after wp_brain_end() or wp_brain_cancel().
 * What is not known (a worker, a request, an end without an ask) is ignored and counted in wp_brain_stats().
 * Names are kept for good, some 60 bytes each with 16 workers: it is as large as the trace has different blocks.
 * Threads: one.  Same calls, same answers.
 */
#ifndef WP_SIM_BRAIN_H
#define WP_SIM_BRAIN_H

#include "policies/decision.h"
#include "policies/policy.h"

struct wp_brain;

enum { WP_BRAIN_WORKERS_MAX = 1024 };
enum { WP_BRAIN_BLOCKS_MAX = 1 << 20 };           /* of one request */
enum wp_brain_tier { WP_BRAIN_GPU, WP_BRAIN_CPU, WP_BRAIN_DISK, WP_BRAIN_STORE };
#define WP_BRAIN_NO_WORKER 0xFFFFFFFFu            /* in events of the store */
#define WP_BRAIN_FROM_STORE 0xFFFFFFFEu           /* as the source of a fetch */

struct wp_brain_conf {
    const char *policy;                 /* its name; NULL: the default */
    struct wp_policy_conf policy_conf;  /* wp_policy_conf_init() first */
    uint32_t workers;
    uint32_t block_tokens;              /* 512 in the laboratory */
    double block_bytes;                 /* what a transfer of one moves; 0: from the profile */
    struct wp_profile profile;          /* of every worker */
    uint64_t gpu_blocks, cpu_blocks, store_blocks; /* store_blocks 0: no store */
    double nic_bytes_per_s;             /* of each worker, in and out; 0: nothing can be fetched */
    const double *worker_nic_bytes_per_s; /* workers of them, copied: what each really has; NULL: not told */
    double store_bytes_per_s;           /* of the fleet */
    double latency_us;                  /* of a transfer */
    uint32_t tenants;                   /* requests are of tenants 0..tenants; 0: there are none, and nobody is refused */
    double stale_us;                    /* how late events and reports are said to be; 0: at once, or not said */
    uint64_t seed;
    /* Told of each placement's decision, before it is acted upon; its id is the request's.  NULL: nobody is. */
    void (*on_decision)(void *arg, const struct wp_decision *d);
    void *on_decision_arg;
    /* Told of requests that were held and are refused, so that their tenant crowds nobody out; they are over.  NULL: nobody is. */
    void (*on_refused)(void *arg, uint64_t req);
    void *on_refused_arg;
};

/* A worker's report, as of its time: what was dispatched later is not in it, the brain adds its own. */
struct wp_brain_state {
    uint64_t prefill_tokens; /* still to be computed */
    uint32_t waiting, in_flight, decoding;
    uint64_t kv_tokens;      /* of the decode batch */
    uint64_t pinned_blocks;
};

struct wp_brain_req {
    uint64_t id;
    uint32_t tokens;       /* of the prompt, at least 1 */
    uint32_t output;       /* 0: not told; no rule but preble_e2 looks at it */
    uint64_t session_key;  /* 0: none */
    uint32_t tenant;       /* up to conf.tenants */
    double weight;         /* of that tenant; 0: 1 */
    uint32_t priority;     /* lower ones first */
    const uint64_t *block; /* n names, copied while it is held; tokens / block_tokens, or one more for the partial block */
    size_t n;
};

struct wp_brain_fetch {
    uint32_t source;   /* a worker, or WP_BRAIN_FROM_STORE */
    uint32_t from, to; /* blocks of the prompt */
};
struct wp_brain_answer {
    bool refused;    /* its tenant has as much held as it may: it is over */
    bool held;       /* it waits in the router: wp_brain_tick() will place it */
    uint32_t worker; /* when it is not held */
    uint32_t hit_blocks;     /* leading ones, as the router believes: there, on their way there, or fetched by this plan */
    double predicted_us;     /* time to the first token, from now; NaN: the policy has no prediction */
    double held_us;          /* how long it was held */
    uint32_t n_fetch;
    struct wp_brain_fetch fetch[WP_FETCHES];
};

void wp_brain_conf_init(struct wp_brain_conf *c); /* the laboratory's: 16 workers, the default profile, 25 GB/s */

/* Errors: WP_EINVAL (settings, naming them; unknown policy), WP_ENOMEM. */
int wp_brain_create(struct wp_brain **out, const struct wp_brain_conf *conf, struct wp_err *err);
void wp_brain_destroy(struct wp_brain *b);

bool wp_brain_is_blind(const struct wp_brain *b); /* its policy looks at no cache: it need not be told of blocks */

/* A block came (stored) or went.  worker: WP_BRAIN_NO_WORKER for the store. */
void wp_brain_block(struct wp_brain *b, uint64_t now_us, uint32_t worker, enum wp_brain_tier tier, bool stored, uint64_t id);
/* as_of_us: when the report was made; now_us when it arrived. */
void wp_brain_state(struct wp_brain *b, uint64_t now_us, uint64_t as_of_us, uint32_t worker, const struct wp_brain_state *s);
void wp_brain_first(struct wp_brain *b, uint64_t now_us, uint64_t req); /* its first token was seen */
void wp_brain_end(struct wp_brain *b, uint64_t now_us, uint64_t req);   /* it is over, whatever became of it */
void wp_brain_cancel(struct wp_brain *b, uint64_t now_us, uint64_t req); /* its client went away, held or not */

/* Where r goes.  Errors: WP_ENOMEM; WP_EINVAL: no tokens, too many blocks, a name in use. */
int wp_brain_ask(struct wp_brain *b, uint64_t now_us, const struct wp_brain_req *r, struct wp_brain_answer *a, struct wp_err *err);
/*
 * Places those held ones whose time has come, cheapest first; on_place may not call the brain but for wp_brain_explain().
 * Call it after what was told and at wp_brain_next_us().  Returns how many were placed.
 */
typedef void (*wp_brain_place_fn)(void *arg, uint64_t req, const struct wp_brain_answer *a);
size_t wp_brain_tick(struct wp_brain *b, uint64_t now_us, wp_brain_place_fn on_place, void *arg);
uint64_t wp_brain_next_us(const struct wp_brain *b); /* when a tick may place one though nothing was told; UINT64_MAX: none is held */

/* The last decision as one JSON object: what was known of each worker, the terms, the choice.  Errors: WP_ENOMEM. */
int wp_brain_explain(const struct wp_brain *b, struct wp_buf *out);

struct wp_brain_stats {
    uint64_t asked, placed, in_flight, held, held_ever, refused, fetches;
    uint64_t fetched_blocks;         /* asked for */
    uint64_t unknown_blocks, unknown_requests, unknown_workers; /* told of */
    uint64_t blocks;                 /* names known */
};
void wp_brain_stats(const struct wp_brain *b, struct wp_brain_stats *s);

#endif
