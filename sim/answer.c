/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/answer.h"

#include "sim/logprobs.h"
#include "sim/text.h"

static void put_opening(struct wp_put *o, const struct wp_answer *a, const char *object)
{
    wp_put(o, "{\"id\":");
    wp_put_json(o, a->id);
    wp_put(o, ",\"object\":\"");
    wp_put(o, object);
    wp_put(o, "\",\"created\":");
    wp_put_u(o, a->created);
    wp_put(o, ",\"model\":");
    wp_put_json(o, wp_str_of(a->model));
    wp_put(o, ",\"choices\":[");
}

static void put_fingerprint(struct wp_put *o, const struct wp_answer *a)
{
    wp_put(o, "\"system_fingerprint\":\"");
    wp_put(o, a->fingerprint);
    wp_put(o, "\"");
}

static void put_finish(struct wp_put *o, const char *finish)
{
    wp_put(o, finish ? "\"finish_reason\":\"" : "\"finish_reason\":null");
    wp_put(o, finish ? finish : "");
    wp_put(o, finish ? "\"" : "");
}

/* The text of tokens as one JSON string, the prompt's before it when it is echoed. */
static void put_text(struct wp_put *o, const struct wp_oai_prompt *echo, const uint32_t token[],
                     size_t n)
{
    struct wp_buf text = {0};

    if (o->rc == 0 && echo)
        o->rc = wp_text_put_all(&text, echo->token, echo->n);
    if (o->rc == 0)
        o->rc = wp_text_put_all(&text, token, n);
    wp_put_json(o, wp_buf_str(&text));
    wp_buf_fini(&text);
}

static void put_ids(struct wp_put *o, bool wanted, const uint32_t token[], size_t n)
{
    if (wanted)
        wp_put_tokens(o, token, n);
    else
        wp_put(o, "null");
}

static void put_counts(struct wp_put *o, const struct wp_answer_usage *u)
{
    wp_put(o, "\"usage\":{\"prompt_tokens\":");
    wp_put_u(o, u->prompt);
    wp_put(o, ",\"total_tokens\":");
    wp_put_u(o, u->prompt + u->completion);
    wp_put(o, ",\"completion_tokens\":");
    wp_put_u(o, u->completion);
}

/* What every chunk of a stream may end in: usage so far, the fingerprint once. */
static void put_chunk_end(struct wp_put *o, const struct wp_answer *a,
                          const struct wp_answer_seq *s, size_t n)
{
    struct wp_answer_usage u = {s->prompt->n, n, 0};

    wp_put(o, "]");
    if (a->req->continuous_usage) {
        wp_put(o, ",");
        put_counts(o, &u);
        wp_put(o, ",\"completion_tokens_details\":null}");
    }
    if (s->finish && !a->req->include_usage) {
        wp_put(o, ",");
        put_fingerprint(o, a);
    }
}

void wp_answer_role(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_seq *s)
{
    const struct wp_answer_seq none = {.prompt = s->prompt};

    wp_put(o, "data: ");
    put_opening(o, a, "chat.completion.chunk");
    wp_put(o, "{\"index\":");
    wp_put_u(o, s->index);
    wp_put(o, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_"
              "reason\":null}");
    put_chunk_end(o, a, &none, 0);
    wp_put(o, ",\"prompt_token_ids\":");
    put_ids(o, a->req->return_ids, s->prompt->token, s->prompt->n);
    wp_put(o, ",\"prompt_text\":null}\n\n");
}

static void chat_chunk(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_seq *s)
{
    put_opening(o, a, "chat.completion.chunk");
    wp_put(o, "{\"index\":");
    wp_put_u(o, s->index);
    wp_put(o, ",\"delta\":{\"content\":");
    put_text(o, NULL, s->token + s->from, s->n - s->from);
    wp_put(o, "},\"logprobs\":");
    wp_logprobs_chat(o, a->req, s);
    wp_put(o, ",");
    put_finish(o, s->finish);
    wp_put(o, s->finish ? ",\"stop_reason\":null,\"token_ids\":" : ",\"token_ids\":");
    put_ids(o, a->req->return_ids, s->token + s->from, s->n - s->from);
    wp_put(o, "}");
}

static void completion_chunk(struct wp_put *o, const struct wp_answer *a,
                             const struct wp_answer_seq *s)
{
    bool first = s->from == 0, echo = first && a->req->echo;

    put_opening(o, a, "text_completion");
    wp_put(o, "{\"index\":");
    wp_put_u(o, s->index);
    wp_put(o, ",\"text\":");
    put_text(o, echo ? s->prompt : NULL, s->token + s->from, s->n - s->from);
    wp_put(o, ",\"logprobs\":");
    wp_logprobs_completion(o, a->req, s, echo);
    wp_put(o, ",");
    put_finish(o, s->finish);
    wp_put(o, ",\"stop_reason\":null,\"prompt_token_ids\":");
    put_ids(o, first && a->req->return_ids, s->prompt->token, s->prompt->n);
    wp_put(o, ",\"token_ids\":");
    put_ids(o, a->req->return_ids, s->token + s->from, s->n - s->from);
    wp_put(o, "}");
}

void wp_answer_chunk(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_seq *s)
{
    wp_put(o, "data: ");
    if (a->req->chat)
        chat_chunk(o, a, s);
    else
        completion_chunk(o, a, s);
    put_chunk_end(o, a, s, s->n);
    wp_put(o, "}\n\n");
}

void wp_answer_last(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_usage *u)
{
    if (a->req->include_usage) {
        wp_put(o, "data: ");
        put_opening(o, a, a->req->chat ? "chat.completion.chunk" : "text_completion");
        wp_put(o, "],");
        put_counts(o, u);
        wp_put(o, ",\"prompt_tokens_details\":{\"cached_tokens\":");
        wp_put_u(o, u->cached);
        wp_put(o, a->req->chat ? ",\"created_cache_tokens\":0}}," : "}},");
        put_fingerprint(o, a);
        wp_put(o, "}\n\n");
    }
    wp_put(o, "data: [DONE]\n\n");
}

static void chat_choice(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_seq *s)
{
    wp_put(o, "{\"index\":");
    wp_put_u(o, s->index);
    wp_put(o, ",\"message\":{\"role\":\"assistant\",\"content\":");
    put_text(o, NULL, s->token, s->n);
    wp_put(o, ",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,"
              "\"reasoning\":null},\"logprobs\":");
    wp_logprobs_chat(o, a->req, s);
    wp_put(o, ",");
    put_finish(o, s->finish);
    wp_put(o, ",\"stop_reason\":null,\"token_ids\":");
    put_ids(o, a->req->return_ids, s->token, s->n);
    wp_put(o, ",\"routed_experts\":null}");
}

static void completion_choice(struct wp_put *o, const struct wp_answer *a,
                              const struct wp_answer_seq *s)
{
    wp_put(o, "{\"index\":");
    wp_put_u(o, s->index);
    wp_put(o, ",\"text\":");
    put_text(o, a->req->echo ? s->prompt : NULL, s->token, s->n);
    wp_put(o, ",\"logprobs\":");
    wp_logprobs_completion(o, a->req, s, a->req->echo);
    wp_put(o, ",");
    put_finish(o, s->finish);
    wp_put(o, ",\"stop_reason\":null,\"token_ids\":");
    put_ids(o, a->req->return_ids, s->token, s->n);
    wp_put(o, ",\"prompt_logprobs\":");
    wp_logprobs_prompt(o, a->req, s->prompt);
    wp_put(o, ",\"prompt_token_ids\":");
    put_ids(o, a->req->return_ids, s->prompt->token, s->prompt->n);
    wp_put(o, ",\"routed_experts\":null}");
}

void wp_answer_whole(struct wp_put *o, const struct wp_answer *a, const struct wp_answer_seq seq[],
                     size_t n, const struct wp_answer_usage *u)
{
    bool chat = a->req->chat;

    put_opening(o, a, chat ? "chat.completion" : "text_completion");
    for (size_t i = 0; i < n; i++) {
        wp_put(o, i ? "," : "");
        if (chat)
            chat_choice(o, a, &seq[i]);
        else
            completion_choice(o, a, &seq[i]);
    }
    wp_put(o, "],\"service_tier\":null,");
    put_fingerprint(o, a);
    wp_put(o, ",");
    put_counts(o, u);
    wp_put(o, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    wp_put_u(o, u->cached);
    wp_put(o, chat ? ",\"created_cache_tokens\":0" : ",\"created_cache_tokens\":null");
    wp_put(o, ",\"multimodal_tokens\":null},\"completion_tokens_details\":null}");
    if (chat) {
        wp_put(o, ",\"prompt_logprobs\":");
        wp_logprobs_prompt(o, a->req, seq[0].prompt);
        wp_put(o, ",\"prompt_token_ids\":");
        put_ids(o, a->req->return_ids, seq[0].prompt->token, seq[0].prompt->n);
        wp_put(o, ",\"prompt_text\":null");
    }
    wp_put(o, ",\"kv_transfer_params\":null,\"ec_transfer_params\":null,\"metrics\":null}");
}

static void put_model(struct wp_put *o, const struct wp_oai_limits *lim, const char *name,
                      uint64_t created)
{
    bool base = name == lim->model;

    wp_put(o, "{\"id\":");
    wp_put_json(o, wp_str_of(name));
    wp_put(o, ",\"object\":\"model\",\"created\":");
    wp_put_u(o, created);
    wp_put(o, ",\"owned_by\":\"vllm\",\"root\":");
    wp_put_json(o, wp_str_of(name));
    wp_put(o, ",\"parent\":");
    if (base)
        wp_put(o, "null");
    else
        wp_put_json(o, wp_str_of(lim->model));
    wp_put(o, ",\"max_model_len\":");
    if (base)
        wp_put_u(o, lim->max_model_len);
    else
        wp_put(o, "null");
    wp_put(o, ",\"permission\":[{\"id\":\"modelperm-");
    if (o->rc == 0)
        o->rc = wp_buf_printf(o->b, "%016llx", (unsigned long long)created);
    wp_put(o, "\",\"object\":\"model_permission\",\"created\":");
    wp_put_u(o, created);
    wp_put(o, ",\"allow_create_engine\":false,\"allow_sampling\":true,\"allow_logprobs\":true,"
              "\"allow_search_indices\":false,"
              "\"allow_view\":true,\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":"
              "null,\"is_blocking\":false}]}");
}

void wp_answer_models(struct wp_put *o, const struct wp_oai_limits *lim, uint64_t created)
{
    wp_put(o, "{\"object\":\"list\",\"data\":[");
    put_model(o, lim, lim->model, created);
    for (size_t i = 0; i < lim->n_adapters; i++) {
        wp_put(o, ",");
        put_model(o, lim, lim->adapter[i], created);
    }
    wp_put(o, "]}");
}
