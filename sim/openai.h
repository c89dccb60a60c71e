/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/openai.h - reads the bodies of completion, chat and tokenize requests as vLLM 0.32 does, with
 * its refusals. Order of refusals, as there: content type, JSON, the schema's validators, the
 * schema's types, the model, the prompt's length, the sampling parameters, the vocabulary. Threads:
 * plain functions over plain data.
 */
#ifndef WP_SIM_OPENAI_H
#define WP_SIM_OPENAI_H

#include "base/mem.h"
#include "net/json.h"

enum { WP_OAI_SEQUENCES = 4096, WP_OAI_LOGPROBS = 20 };

struct wp_oai_limits {
    const char *model;
    uint32_t max_model_len;
    const char *const *adapter; /* [n_adapters] served names beside the model's */
    size_t n_adapters;
};

struct wp_oai_prompt {
    uint32_t *token; /* wp_malloc; NULL after wp_oai_drop_tokens() */
    size_t n;
    uint32_t output; /* tokens to make at most */
};

struct wp_oai_req {
    bool chat, stream, include_usage, continuous_usage, echo, return_ids, ignore_eos;
    bool natural; /* nobody said how long: the answer may end by itself */
    bool seeded;
    uint32_t adapter;              /* 1..n_adapters; 0: the base model */
    uint32_t n;                    /* choices a prompt */
    int logprobs, prompt_logprobs; /* alternatives wanted; -1: not asked for */
    uint64_t seed;
    struct wp_str request_id, salt; /* absent: none */
    struct wp_oai_prompt *prompt;
    size_t n_prompts;
    struct wp_arena arena; /* prompt[], request_id, salt */
};

/*
 * Return 0, or the status of a refusal whose body has been appended to answer, or a negative code.
 * r needs wp_oai_fini() in every case; content_type may be absent.
 */
int wp_oai_completion(struct wp_oai_req *r, const struct wp_oai_limits *lim,
                      struct wp_str content_type, struct wp_str body, struct wp_buf *answer);
int wp_oai_chat(struct wp_oai_req *r, const struct wp_oai_limits *lim, struct wp_str content_type,
                struct wp_str body, struct wp_buf *answer);
/* 0 when model is absent, empty, ours or an adapter; else 404 with its body. */
int wp_oai_check_model(const struct wp_oai_limits *lim, struct wp_json model,
                       struct wp_buf *answer);
uint32_t wp_oai_adapter(const struct wp_oai_limits *lim,
                        struct wp_json model); /* 1..n_adapters, or 0 */
void wp_oai_drop_tokens(struct wp_oai_req *r); /* they are hashed, and nobody wants them back */
void wp_oai_fini(struct wp_oai_req *r);

/* These answer at once: the status, with its body appended, or a negative code. */
int wp_oai_tokenize(const struct wp_oai_limits *lim, struct wp_str content_type, struct wp_str body,
                    struct wp_buf *answer);
int wp_oai_detokenize(const struct wp_oai_limits *lim, struct wp_str content_type,
                      struct wp_str body, struct wp_buf *answer);

#endif
