/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/prompt.h - from a request's body to what routing needs of it: one scan of the JSON.
 * A prompt of token ids is known exactly.  Text and chat become canonical bytes (what changes the template first, then the messages in order, without
 * blanks, long data URLs as their hash), cut into chunks of WP_CHUNK_BYTES: approximate, in a space of their own.
 * Several prompts in one request, and routes without a prefix cache, have none: they are placed by load.
 * Owner: everything points into the body or into the arena; both must outlive it.
 */
#ifndef WP_ROUTER_PROMPT_H
#define WP_ROUTER_PROMPT_H

#include "base/mem.h"
#include "net/json.h"

enum { WP_MARKS_MAX = 4096, WP_CHUNK_BYTES = 64, WP_PROMPT_BLOCKS_MAX = 131072, WP_BLOCK_SIZES_MAX = 4 };

enum wp_route_kind {
    WP_ROUTE_CHAT,
    WP_ROUTE_COMPLETIONS,
    WP_ROUTE_RESPONSES,
    WP_ROUTE_MESSAGES,
    WP_ROUTE_GENERATE, /* SGLang's own */
    WP_ROUTE_STORED,   /* a stored response by its id: goes to the worker that made it */
    WP_ROUTE_PLAIN,    /* JSON without a prefix cache: embeddings, rerank, tokenize, ... */
    WP_ROUTE_OPAQUE,   /* may be multipart: audio, images */
};

/* The members of a body that a router reads; kinds are the body's own, ABSENT when not there. */
struct wp_body {
    struct wp_json model, stream, prompt, messages, input, max_tokens, max_completion_tokens, max_output_tokens, n, user,
        prompt_cache_key, cache_salt, kv_transfer_params, bootstrap_host, bootstrap_port, bootstrap_room, routed_dp_rank,
        data_parallel_rank, tools, tool_choice, response_format, chat_template, chat_template_kwargs, documents, reasoning_effort,
        system, instructions, text, input_ids, request_id, rid, previous_response_id, vllm_xargs, add_generation_prompt,
        continue_final_message, add_special_tokens, truncate_prompt_tokens, prompt_embeds, stream_options;
};

/* A body behind the byte order mark that some clients begin with, and engines pass over (RFC 8259 8.1). */
struct wp_str wp_body_text(struct wp_str body);
/* Errors: WP_ESYNTAX, WP_ETOOBIG, WP_EINVAL as wp_json_members(). */
int wp_body_read(struct wp_body *b, struct wp_str text, struct wp_err *err);
/* The name of a member that steers an engine and is not the client's to set, or NULL. */
const char *wp_body_steers(const struct wp_body *b);
uint32_t wp_body_max_tokens(const struct wp_body *b); /* 0: not said */
uint32_t wp_body_sequences(const struct wp_body *b);  /* that an engine runs for it: each of its prompts n times; at least 1 */

enum wp_prompt_kind { WP_PROMPT_NONE, WP_PROMPT_TOKENS, WP_PROMPT_BYTES };

struct wp_hashes {
    uint32_t block_size; /* tokens, or WP_CHUNK_BYTES */
    size_t n;
    uint64_t *local, *chain;
};

/* Of a conversation's canonical bytes: where each tool, option and message of it lies.  Good as long as the bytes are. */
enum wp_part { WP_PART_TOOL, WP_PART_OPTION, WP_PART_SYSTEM, WP_PART_MESSAGE, WP_PART_ASIDE /* in no template */ };
struct wp_mark {
    uint32_t at, n; /* bytes */
    enum wp_part part;
};

struct wp_prompt {
    enum wp_prompt_kind kind;
    const struct wp_mark *mark; /* in order; NULL: it is no conversation, or a very long one */
    size_t n_marks;
    const uint32_t *token; /* WP_PROMPT_TOKENS */
    size_t n_token;
    struct wp_str bytes; /* WP_PROMPT_BYTES: canonical */
    struct wp_hashes set[WP_BLOCK_SIZES_MAX];
    size_t n_sets;
};

/*
 * What the route's prompt is.  Errors: WP_EINVAL when the prompt's member has a kind that no engine takes (*param names it); WP_ENOMEM.
 */
int wp_prompt_read(struct wp_prompt *p, enum wp_route_kind kind, const struct wp_body *b, struct wp_arena *arena,
                   const char **param, struct wp_err *err);

/* Hashes for one block size (bytes: any asked size gives chunks).  The same size again gives the same set; NULL: no prompt, no room, no memory. */
const struct wp_hashes *wp_prompt_hashes(struct wp_prompt *p, uint32_t block_size, struct wp_str lora, struct wp_str salt,
                                         struct wp_arena *arena);

#endif
