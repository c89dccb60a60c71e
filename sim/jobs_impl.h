/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/jobs_impl.h - a completion or chat under way: shared by jobs.c (its start and end) and
 * turns.c (what the model says). Nobody else includes it.
 */
#ifndef WP_SIM_JOBS_IMPL_H
#define WP_SIM_JOBS_IMPL_H

#include "sim/engine_impl.h"
#include "sim/text.h"

struct wp_job_names { /* of one prompt's blocks; its tokens may be gone */
    uint64_t *chain;
    size_t n, known; /* known: the leading ones to whose blocks the job refers (sim/blocks.h) */
    uint32_t *tail;  /* tokens after the last whole block */
    size_t n_tail;
    uint64_t hash; /* of the whole prompt */
};

struct wp_seq {
    struct wp_job *job;
    struct wp_model_req *in; /* NULL: not in the model (any more) */
    const struct wp_job_names *names;
    const struct wp_oai_prompt *prompt;
    struct wp_words words;
    uint32_t *token;
    uint32_t n, cap, output, index;
    uint32_t cached;
    uint32_t named;   /* blocks of generated tokens */
    uint64_t chain;   /* of the last of them */
    uint64_t last_us; /* when its last token came, in the model's time */
};

struct wp_job {
    struct wp_list link; /* of engine->doomed */
    struct wp_visit *visit;
    struct wp_engine *engine;
    struct wp_rank *rank;
    struct wp_block_facts facts;
    struct wp_oai_req req;
    struct wp_answer answer;
    struct wp_job_names *names; /* one a prompt */
    struct wp_seq *seq;
    size_t n_seq, left;
    uint64_t hash_seed, arrived_us, tokens; /* tokens: generated so far */
    uint64_t die_after;                     /* tokens; UINT64_MAX: it lives */
    uint32_t first_cached;
    bool opened, stalled, muted;
};

void wp_job_doom(struct wp_job *j); /* its connection is reset after this turn */
void wp_job_leave_model(struct wp_job *j);
struct wp_put wp_job_event(struct wp_job *j);               /* the engine's scratch buffer, empty */
void wp_job_send(struct wp_job *j, const struct wp_put *o); /* sends what was put there */

#endif
