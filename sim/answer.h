/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/answer.h - what vLLM 0.32 writes: whole answers and the events of a stream, for completions
 * and chats. Wire fact: tests/data/spec/real/vllm_0.32.0_http.json; tests/unit/engine_wire.c plays
 * that file. Threads: plain functions over plain data.
 */
#ifndef WP_SIM_ANSWER_H
#define WP_SIM_ANSWER_H

#include "sim/openai.h"
#include "sim/put.h"

struct wp_answer { /* what all parts of one answer share */
    const struct wp_oai_req *req;
    const char *model, *fingerprint;
    struct wp_str id; /* "cmpl-8f8db6fca74386bf" */
    uint64_t created; /* seconds since 1970 */
};

struct wp_answer_seq { /* one choice as it stands */
    uint32_t index;    /* prompt number x n + choice */
    const struct wp_oai_prompt *prompt;
    const uint32_t *token; /* generated so far */
    size_t n;
    size_t from;        /* a chunk: the first that is new */
    const char *finish; /* "length", "stop"; NULL: goes on */
};

struct wp_answer_usage {
    uint64_t prompt, completion, cached; /* tokens */
};

/* Stream events, whole, with "data: " and the empty line. */
void wp_answer_role(struct wp_put *o, const struct wp_answer *a,
                    const struct wp_answer_seq *s); /* a chat's first one */
void wp_answer_chunk(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_seq *s);
void wp_answer_last(struct wp_put *o, const struct wp_answer *a,
                    const struct wp_answer_usage *u); /* usage if asked for, [DONE] */

void wp_answer_whole(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_seq seq[],
                     size_t n, const struct wp_answer_usage *u);

/* GET /v1/models */
void wp_answer_models(struct wp_put *o, const struct wp_oai_limits *lim, uint64_t created);

#endif
