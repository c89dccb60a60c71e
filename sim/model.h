/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/model.h - one engine in virtual time: continuous batching with chunked prefill, a block-level prefix cache in tiers, and the
 * timing of policies/profile.h.  It knows no socket and no clock: sim/engine.c drives it in real time, `replay` will in virtual time.
 *
 * Rules (docs/engine-model.md, from the laboratory): first come first served; a step takes each decoding request one token on,
 * and gives what is left of the token budget to prefills in order; a request is admitted when fewer than max_running run and its prompt + output
 * fit beside what running ones pin; a block can be hit from the end of the step that computed it; at least the last prompt token is always computed;
 * LRU per tier, tail of a prompt out first, evicted gpu blocks go to cpu, then disk, where those tiers exist; a hit in a lower tier is
 * brought up before the request is scheduled, at the tier's bandwidth, one queue a tier.  Blocks of generated tokens become hits too when the caller names them.
 * Threads: one.
 */
#ifndef WP_SIM_MODEL_H
#define WP_SIM_MODEL_H

#include "policies/profile.h"

struct wp_model;
struct wp_model_req; /* one request inside the model */

struct wp_model_conf {
    struct wp_profile profile; /* speed included: model time is engine time divided by it */
    uint32_t block_size;
    uint64_t tier_blocks[3];   /* gpu, cpu, disk; 0 for the last two: absent */
    double disk_bytes_per_s;   /* 0: no time at all; so is profile.cpu_bytes_per_s */
    uint64_t secret;
    bool whole_hits;   /* a prompt that is all cached computes its whole last block again, as vLLM does, not its last token */
    bool copies;       /* what is computed though it is cached becomes a second block of its name, as in vLLM (sim/tiers.h) */
    bool store_first;  /* a block that moves to a lower tier is told stored there before it is told gone above */
    bool merge_tokens; /* on_tokens only for the first token and, just before on_done, for all the others */
};

/*
 * Told in order of time, only from within wp_model_run; at_us is the model's time, rounded up.  on_tokens and on_done may submit and
 * cancel any request, this one too; on_block may call nothing but wp_model_stats.  Any of them may be NULL.
 */
struct wp_model_ops {
    void (*on_tokens)(void *req_arg, uint64_t at_us, uint32_t n, bool first); /* n output tokens came out */
    void (*on_done)(void *req_arg, uint64_t at_us); /* after its last token; the request is gone */
    /* A tier's content changed; tier 0 gpu, 1 cpu, 2 disk. */
    void (*on_block)(void *model_arg, uint64_t at_us, uint64_t block_hash, uint8_t tier, bool stored);
    void (*on_step)(void *model_arg, uint64_t at_us); /* a step has ended, and all that came of it was told; may call as on_block */
};

int wp_model_create(struct wp_model **out, const struct wp_model_conf *conf, const struct wp_model_ops *ops, void *model_arg,
                    struct wp_err *err);
void wp_model_destroy(struct wp_model *m);

/*
 * A request arrives at now_us (or at the last time told, when that is later): it is scheduled when wp_model_run gets there, so the driver
 * asks wp_model_next_us again.  chain[n]: its prompt's block hashes, copied; tokens: prompt tokens, at least 1; n is tokens / block_size,
 * or one more when the last, partial block has a name too (the laboratory's traces).  output: tokens it will make, at least 1.
 * Errors: WP_ENOMEM; WP_EINVAL; WP_ETOOBIG: prompt and output can never fit.  Cost: O(n), at admission O(n) again.
 */
int wp_model_submit(struct wp_model *m, uint64_t now_us, const uint64_t chain[], size_t n, uint32_t tokens, uint32_t output,
                    void *req_arg, struct wp_model_req **out, struct wp_err *err);
/* At any stage; no callback comes for it, its pins go at once, what it has stored stays.  The step that works on it ends in its time. */
void wp_model_cancel(struct wp_model *m, struct wp_model_req *r, uint64_t now_us);
/* Prompt tokens from cache, by tier (tier may be NULL); their sum is returned.  Known once admitted, 0 before. */
uint32_t wp_model_cached(const struct wp_model_req *r, uint32_t tier[3]);
/* The name of the next block that generated tokens have filled, so that it can be hit too.  Only inside its on_tokens and on_done. */
void wp_model_name_block(struct wp_model *m, struct wp_model_req *r, uint64_t hash);
/* The same for all that are left: its whole sequence's chain, prompt first. */
void wp_model_name_output(struct wp_model *m, struct wp_model_req *r, const uint64_t chain[], size_t n);

uint64_t wp_model_next_us(const struct wp_model *m);        /* when something happens next; UINT64_MAX: idle */
/* Plays all that happens up to then, included.  A late driver plays it all at once; the times told are the model's own.  Not re-entrant. */
void wp_model_run(struct wp_model *m, uint64_t until_us);
/*
 * What a fleet does to an engine (sim/model_fleet.c); not from within wp_model_run.
 * keep: the request is passed over until let, while others are admitted.  Before its admission alone; after it nothing happens.
 */
void wp_model_keep(struct wp_model *m, struct wp_model_req *r);
void wp_model_let(struct wp_model *m, struct wp_model_req *r, uint64_t now_us);
/* Until its admission the request counts in stats.todo as if so many prompt tokens were cached; 0 at first. */
void wp_model_expect(struct wp_model *m, struct wp_model_req *r, uint32_t cached);
/* A block came from elsewhere: it is the newest of the cpu tier now, or of the gpu's where there is none (if somebody can make room). */
void wp_model_land(struct wp_model *m, uint64_t now_us, uint64_t hash);
/* Somebody else reads the block here: in lower tiers it is the newest now. */
void wp_model_lend(struct wp_model *m, uint64_t hash);
/* What the requests that are not over were submitted with. */
void wp_model_each_req(const struct wp_model *m, void (*fn)(void *req_arg));
/* The fastest tier that has the block, or -1. */
int wp_model_where(const struct wp_model *m, uint64_t hash);
/* Drops all, told through on_block.  Running requests go on, and store nothing more. */
void wp_model_reset_cache(struct wp_model *m);
/* What each tier holds, in no order. */
void wp_model_each_block(const struct wp_model *m, uint8_t tier, void (*fn)(void *arg, uint64_t hash, uint32_t copies), void *arg);

struct wp_model_stats {
    uint32_t running, waiting;
    uint32_t decoding;             /* of the running ones */
    uint64_t tier_used[3], pinned; /* blocks; used: cached, and on the gpu reserved too */
    /* so far; preemptions stay 0: room for the output is reserved at admission */
    uint64_t prefill_tokens, cached_tokens, output_tokens, preemptions, steps;
    uint64_t todo_tokens; /* prompt tokens to be prefilled of all requests before their first token, */
    double todo_us;       /* and their prefill's cost, alone on the engine */
    uint64_t kv_tokens;   /* of the decoding ones */
};
void wp_model_stats(const struct wp_model *m, struct wp_model_stats *s);

#endif
