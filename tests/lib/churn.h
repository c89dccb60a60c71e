/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/churn.h - the KV events of a fleet that serves a trace, without end.
 * Each 512-token id of the trace is cut into 32 blocks.  The trace is played with several salts side by side: each salt
 * makes all blocks different, as other users' prompts would be.  When it ends it starts again with new salts.  Of the
 * requests that go on from an earlier one, 70 % go to the worker of that one, the rest to one of 16 workers of the
 * conversation.  A worker keeps the blocks of its latest prompts and evicts tails first, before it stores: a request
 * gives at most one removal and one store.
 * The same configuration gives the same events.  Threads: one at a time.
 */
#ifndef WP_TESTS_LIB_CHURN_H
#define WP_TESTS_LIB_CHURN_H

#include "base/map.h"
#include "base/rng.h"
#include "sim/trace.h"
#include "tests/lib/kvbatch.h"

enum {
    CHURN_GROUP = 32,        /* blocks of 16 tokens in an id of the trace */
    CHURN_NEAR = 16,         /* workers that a conversation may go to */
    CHURN_SALTS_MAX = 64,
    CHURN_LOG = 1 << 17,     /* latest requests that churn_prompts() looks at */
    CHURN_EVENT_MAX = 40960, /* blocks that one request may add to a batch */
};

struct churn_conf {
    const struct wp_trace *trace; /* must outlive it */
    uint32_t workers;
    uint32_t capacity; /* blocks of a worker; above 4 x CHURN_GROUP */
    uint32_t salts;    /* played side by side */
    uint64_t seed;
};
struct churn_prompt { /* of request `req` of the trace, under that salt, on that worker */
    uint32_t req, salt, worker;
};
struct churn {
    struct churn_conf conf;
    struct churn_node *node;  /* groups that workers hold */
    struct churn_queue *lru;  /* of each worker */
    uint32_t n_nodes, free;
    struct wp_map at;         /* (group, worker) -> node */
    uint32_t *id;             /* ids of all requests, one after another, made dense */
    size_t *first;            /* of request i in id[] */
    uint32_t *blocks;         /* of request i, capped by what a worker can keep */
    uint32_t n_ids, n_req;
    uint16_t *last;           /* [salt][id] the worker that saw it last; CHURN_NOBODY */
    uint32_t next, epoch;     /* request, salt 0 of the current round of the trace */
    uint32_t turn;            /* salt of the next request */
    struct wp_rng rng;
    uint64_t held;            /* (block, worker) pairs now */
    uint64_t evicted;
    struct churn_prompt *log; /* ring */
    uint64_t logged;
};

/* Errors: WP_EINVAL, WP_ENOMEM. */
int churn_init(struct churn *c, const struct churn_conf *conf, struct wp_err *err);
void churn_fini(struct churn *c);

/* The events of the next request: none, a store, or a removal and a store.  Says which prompt it was. */
struct churn_prompt churn_next(struct churn *c, struct kv_batch *b);
/* Whole requests until the batch has that many blocks; it needs room for CHURN_EVENT_MAX more. */
void churn_fill(struct churn *c, struct kv_batch *b, size_t blocks);
/* Not yet every worker full: less than 95 % of what all can keep. */
bool churn_filling(const struct churn *c);

/*
 * Prompts of the latest requests whose first n blocks (a multiple of CHURN_GROUP) are held whole by the worker that
 * served them, no two with the same n blocks; newest first.  Returns how many, at most cap.
 */
size_t churn_prompts(const struct churn *c, uint32_t n, struct churn_prompt out[], size_t cap);
/* Hashes of the first n blocks of a prompt; returns how many there are.  chain may be NULL. */
size_t churn_hashes(const struct churn *c, const struct churn_prompt *p, size_t n, uint64_t local[], uint64_t chain[]);

#endif
