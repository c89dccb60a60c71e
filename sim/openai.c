/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/openai.h"

#include "sim/chat.h"
#include "sim/prompts.h"
#include "sim/text.h"

#include <math.h>
#include <stdio.h>

/* The members that we look at, of both routes. */
/* clang-format off */
enum field {
    F_MODEL, F_PROMPT, F_MESSAGES, F_MAX_TOKENS, F_MAX_COMPLETION, F_N, F_STREAM, F_STREAM_OPTIONS, F_TEMPERATURE, F_SEED,
    F_ECHO, F_LOGPROBS, F_TOP_LOGPROBS, F_PROMPT_LOGPROBS, F_RETURN_IDS, F_REQUEST_ID, F_SALT, F_IGNORE_EOS, F_TOOLS,
    F_GENERATION, F_UNFINISHED, F_EMBEDS, F_TOP_P, F_PRIORITY,
    FIELDS
};
/* clang-format on */

static const char *const names[FIELDS] = {
    [F_MODEL] = "model",
    [F_PROMPT] = "prompt",
    [F_MESSAGES] = "messages",
    [F_MAX_TOKENS] = "max_tokens",
    [F_MAX_COMPLETION] = "max_completion_tokens",
    [F_N] = "n",
    [F_STREAM] = "stream",
    [F_STREAM_OPTIONS] = "stream_options",
    [F_TEMPERATURE] = "temperature",
    [F_SEED] = "seed",
    [F_ECHO] = "echo",
    [F_LOGPROBS] = "logprobs",
    [F_TOP_LOGPROBS] = "top_logprobs",
    [F_PROMPT_LOGPROBS] = "prompt_logprobs",
    [F_RETURN_IDS] = "return_token_ids",
    [F_REQUEST_ID] = "request_id",
    [F_SALT] = "cache_salt",
    [F_IGNORE_EOS] = "ignore_eos",
    [F_TOOLS] = "tools",
    [F_GENERATION] = "add_generation_prompt",
    [F_UNFINISHED] = "continue_final_message",
    [F_EMBEDS] = "prompt_embeds",
    [F_TOP_P] = "top_p",
    [F_PRIORITY] = "priority",
};

/* What is said, before it is judged against the model. */
struct said {
    struct wp_json v[FIELDS], whole;
    int64_t max_tokens, n;
    bool has_max;
    double temperature;
};

static bool is_set(struct wp_json v)
{
    return v.kind != WP_JSON_ABSENT && v.kind != WP_JSON_NULL;
}

uint32_t wp_oai_adapter(const struct wp_oai_limits *lim, struct wp_json model)
{
    for (uint32_t i = 0; i < lim->n_adapters; i++)
        if (wp_json_is(model, lim->adapter[i]))
            return i + 1;
    return 0;
}

int wp_oai_check_model(const struct wp_oai_limits *lim, struct wp_json model, struct wp_buf *answer)
{
    struct wp_buf name = {0};
    int rc;

    if (!is_set(model) || model.n == 2 || wp_json_is(model, lim->model) ||
        wp_oai_adapter(lim, model))
        return 0;
    rc = wp_json_put_text(&name, model);
    if (rc == 0)
        rc = wp_oai_error(answer, 404, "NotFoundError", "model",
                          "The model `" WP_STR_FMT "` does not exist. Valid aliases: %s.",
                          WP_STR_ARG(wp_buf_str(&name)), lim->model);
    wp_buf_fini(&name);
    return rc;
}

/* What vLLM's own validators refuse before any type is looked at. */
static int check_first(const struct wp_json v[], bool chat, struct wp_buf *answer)
{
    bool no_prompt =
        !is_set(v[F_PROMPT]) || (v[F_PROMPT].kind == WP_JSON_STRING && v[F_PROMPT].n == 2);

    if (is_set(v[F_STREAM_OPTIONS]) && v[F_STREAM].kind != WP_JSON_TRUE)
        return wp_oai_error(
            answer, 400, "BadRequestError", "stream_options",
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)");
    if (!chat && no_prompt && !is_set(v[F_EMBEDS]))
        return wp_oai_error(
            answer, 400, "BadRequestError", "prompt",
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)");
    if (!chat && is_set(v[F_EMBEDS]))
        return wp_oai_error(answer, 400, "BadRequestError", NULL,
                            "You must set `--enable-prompt-embeds` to input `prompt_embeds`.");
    if (is_set(v[F_SALT]) && (v[F_SALT].kind != WP_JSON_STRING || v[F_SALT].n == 2))
        return wp_oai_error(answer, 400, "BadRequestError", "cache_salt",
                            "Parameter 'cache_salt' must be a non-empty string if provided. "
                            "(parameter=cache_salt)");
    if (chat && is_set(v[F_TOP_LOGPROBS]) && v[F_LOGPROBS].kind != WP_JSON_TRUE)
        return wp_oai_error(
            answer, 400, "BadRequestError", "top_logprobs",
            "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)");
    return 0;
}

/* Types of the members that both routes share. */
static void read_common(struct wp_oai_req *r, struct wp_schema *s, struct said *said)
{
    const struct wp_json *v = said->v;
    double ignored;
    int64_t seed, k;

    said->n = 1;
    said->temperature = 1;
    wp_schema_string(s, v[F_MODEL], "body.model");
    said->has_max = wp_schema_int(s, v[F_MAX_TOKENS], "body.max_tokens", &said->max_tokens);
    if (r->chat && wp_schema_int(s, v[F_MAX_COMPLETION], "body.max_completion_tokens", &k)) {
        said->max_tokens = k;
        said->has_max = true;
    }
    wp_schema_int(s, v[F_N], "body.n", &said->n);
    wp_schema_bool(s, v[F_STREAM], "body.stream", &r->stream);
    wp_schema_float(s, v[F_TEMPERATURE], "body.temperature", &said->temperature);
    wp_schema_float(s, v[F_TOP_P], "body.top_p", &ignored);
    if (wp_schema_int(s, v[F_SEED], "body.seed", &seed)) {
        r->seed = (uint64_t)seed;
        r->seeded = true;
    }
    if (wp_schema_int(s, v[F_PROMPT_LOGPROBS], "body.prompt_logprobs", &k))
        r->prompt_logprobs = k < 0 ? -1 : k > WP_OAI_LOGPROBS ? WP_OAI_LOGPROBS : (int)k;
    wp_schema_bool(s, v[F_ECHO], "body.echo", &r->echo);
    wp_schema_bool(s, v[F_RETURN_IDS], "body.return_token_ids", &r->return_ids);
    wp_schema_bool(s, v[F_IGNORE_EOS], "body.ignore_eos", &r->ignore_eos);
    wp_schema_int(s, v[F_PRIORITY], "body.priority", &k);
    wp_schema_string(s, v[F_REQUEST_ID], "body.request_id");
    if (is_set(v[F_STREAM_OPTIONS])) {
        if (v[F_STREAM_OPTIONS].kind != WP_JSON_OBJECT)
            wp_schema_fault(s, "model_attributes_type", "body.stream_options",
                            "Input should be a valid dictionary or object to extract fields from",
                            v[F_STREAM_OPTIONS]);
        wp_schema_bool(s, wp_json_get(v[F_STREAM_OPTIONS], "include_usage"),
                       "body.stream_options.include_usage", &r->include_usage);
        wp_schema_bool(s, wp_json_get(v[F_STREAM_OPTIONS], "continuous_usage_stats"),
                       "body.stream_options.continuous_usage_stats", &r->continuous_usage);
        r->continuous_usage = r->continuous_usage && r->include_usage;
    }
}

static void read_logprobs(struct wp_oai_req *r, struct wp_schema *s, const struct said *said)
{
    int64_t k = 0;
    bool want = false;

    if (r->chat) {
        wp_schema_bool(s, said->v[F_LOGPROBS], "body.logprobs", &want);
        wp_schema_int(s, said->v[F_TOP_LOGPROBS], "body.top_logprobs", &k);
    } else {
        want = wp_schema_int(s, said->v[F_LOGPROBS], "body.logprobs", &k);
    }
    if (want)
        r->logprobs = k < 0 ? 0 : k > WP_OAI_LOGPROBS ? WP_OAI_LOGPROBS : (int)k;
    if (!r->chat && r->echo && want && r->prompt_logprobs < 0)
        r->prompt_logprobs = r->logprobs;
}

static int keep_text(struct wp_oai_req *r, struct wp_json v, struct wp_str *out)
{
    struct wp_buf text = {0};
    int rc = 0;

    if (v.kind != WP_JSON_STRING)
        return 0;
    rc = wp_json_put_text(&text, v);
    if (rc == 0) {
        out->n = text.n;
        out->p = wp_arena_strndup(&r->arena, text.p ? text.p : "", text.n);
        if (!out->p)
            rc = WP_ENOMEM;
    }
    wp_buf_fini(&text);
    return rc;
}

static int check_max_tokens(const struct said *said, const struct wp_oai_limits *lim,
                            struct wp_buf *answer)
{
    if (!said->has_max || said->max_tokens <= (int64_t)lim->max_model_len)
        return 0;
    return wp_oai_error(answer, 400, "BadRequestError", "max_tokens",
                        "max_tokens=%lld cannot be greater than max_model_len=%u. Please request "
                        "fewer output tokens. "
                        "(parameter=max_tokens, value=%lld)",
                        (long long)said->max_tokens, lim->max_model_len,
                        (long long)said->max_tokens);
}

/* The sampling parameters of one prompt. */
static int check_sampling(struct wp_oai_req *r, const struct said *said, int64_t room,
                          struct wp_buf *answer, uint32_t *output)
{
    int64_t max = said->has_max ? said->max_tokens : r->chat ? room : 16;
    double t = said->temperature;

    if (max > room)
        max = room;
    if (said->n < 1)
        return wp_oai_error(answer, 400, "BadRequestError", NULL, "n must be at least 1, got %lld.",
                            (long long)said->n);
    if (said->n > WP_OAI_SEQUENCES || (uint64_t)said->n * r->n_prompts > WP_OAI_SEQUENCES)
        return wp_oai_error(answer, 400, "BadRequestError", NULL, "n must be at most %d, got %lld.",
                            WP_OAI_SEQUENCES, (long long)said->n);
    if (t < 0)
        return wp_oai_error(
            answer, 400, "BadRequestError", "temperature",
            "temperature must be non-negative, got %.*f. (parameter=temperature, value=%.*f)",
            t == floor(t) ? 1 : 3, t, t == floor(t) ? 1 : 3, t);
    if (max < 1)
        return wp_oai_error(
            answer, 400, "BadRequestError", "max_tokens",
            "max_tokens must be at least 1, got %lld. (parameter=max_tokens, value=%lld)",
            (long long)max, (long long)max);
    if (t < 1e-5 && said->n > 1)
        return wp_oai_error(answer, 400, "BadRequestError", NULL,
                            "n must be 1 when using greedy sampling, got %lld.",
                            (long long)said->n);
    r->n = (uint32_t)said->n;
    *output = (uint32_t)max;
    return 0;
}

static int check_prompts(struct wp_oai_req *r, const struct said *said,
                         const struct wp_oai_limits *lim, struct wp_buf *answer)
{
    int rc = 0;

    for (size_t i = 0; i < r->n_prompts && rc == 0; i++)
        rc = check_sampling(r, said, (int64_t)lim->max_model_len - (int64_t)r->prompt[i].n, answer,
                            &r->prompt[i].output);
    for (size_t i = 0; i < r->n_prompts && rc == 0; i++) {
        const struct wp_oai_prompt *p = &r->prompt[i];

        if (p->n == 0)
            return wp_oai_error(answer, 400, "BadRequestError", NULL,
                                "The decoder prompt cannot be empty");
        for (size_t k = 0; k < p->n; k++)
            if (p->token[k] >= WP_TEXT_VOCABULARY)
                return wp_oai_error(answer, 400, "BadRequestError", NULL,
                                    "Token id %u is out of vocabulary", p->token[k]);
    }
    return rc;
}

/* Everything up to the model, for both routes. */
static int read_request(struct wp_oai_req *r, struct said *said, const struct wp_oai_limits *lim,
                        struct wp_str type, struct wp_str body, struct wp_buf *answer)
{
    struct wp_schema s = {0};
    int rc;

    *r = (struct wp_oai_req){.chat = r->chat, .logprobs = -1, .prompt_logprobs = -1, .n = 1};
    rc = wp_schema_members(&s, type, body, names, FIELDS, said->v, &said->whole);
    if (rc == 0 && s.n == 0)
        rc = check_first(said->v, r->chat, answer);
    if (rc == 0 && s.n == 0) {
        read_common(r, &s, said);
        read_logprobs(r, &s, said);
        if (!r->chat && !wp_prompt_ok(said->v[F_PROMPT]))
            wp_prompt_blame(&s, said->v[F_PROMPT]);
        if (r->chat && said->v[F_MESSAGES].kind == WP_JSON_ABSENT)
            wp_schema_fault(&s, "missing", "body.messages", "Field required", said->whole);
        else if (r->chat)
            wp_chat_check(&s, said->v[F_MESSAGES]);
    }
    if (rc == 0)
        rc = wp_schema_answer(&s, answer);
    if (rc == 0)
        rc = wp_oai_check_model(lim, said->v[F_MODEL], answer);
    r->adapter = wp_oai_adapter(lim, said->v[F_MODEL]);
    if (rc == 0)
        rc = keep_text(r, said->v[F_REQUEST_ID], &r->request_id);
    if (rc == 0)
        rc = keep_text(r, said->v[F_SALT], &r->salt);
    if (rc == 0)
        rc = check_max_tokens(said, lim, answer);
    wp_schema_fini(&s);
    return rc;
}

int wp_oai_completion(struct wp_oai_req *r, const struct wp_oai_limits *lim,
                      struct wp_str content_type, struct wp_str body, struct wp_buf *answer)
{
    struct said said = {0};
    int rc;

    r->chat = false;
    rc = read_request(r, &said, lim, content_type, body, answer);
    if (rc == 0)
        rc = wp_prompts_read(r, lim, said.v[F_PROMPT], answer);
    return rc ? rc : check_prompts(r, &said, lim, answer);
}

/* The conversation's text; defaults differ from route to route only in name. */
static int render(const struct wp_json v[], struct wp_schema *s, struct wp_buf *text,
                  struct wp_buf *answer)
{
    struct wp_chat c = {v[F_MESSAGES], v[F_TOOLS], true, false};
    int rc;

    wp_schema_bool(s, v[F_GENERATION], "body.add_generation_prompt", &c.generation);
    wp_schema_bool(s, v[F_UNFINISHED], "body.continue_final_message", &c.unfinished);
    rc = wp_schema_answer(s, answer);
    return rc ? rc : wp_chat_render(&c, text, answer);
}

int wp_oai_chat(struct wp_oai_req *r, const struct wp_oai_limits *lim, struct wp_str content_type,
                struct wp_str body, struct wp_buf *answer)
{
    struct said said = {0};
    struct wp_schema s = {0};
    struct wp_buf text = {0};
    int rc;

    r->chat = true;
    rc = read_request(r, &said, lim, content_type, body, answer);
    if (rc == 0)
        rc = render(said.v, &s, &text, answer);
    if (rc == 0)
        rc = wp_prompts_text(r, lim, wp_buf_str(&text), answer);
    if (rc == 0)
        rc = check_prompts(r, &said, lim, answer);
    r->natural = !said.has_max && !r->ignore_eos;
    r->echo = false;
    wp_schema_fini(&s);
    wp_buf_fini(&text);
    return rc;
}

void wp_oai_drop_tokens(struct wp_oai_req *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        wp_free(r->prompt[i].token);
        r->prompt[i].token = NULL;
    }
}

void wp_oai_fini(struct wp_oai_req *r)
{
    wp_oai_drop_tokens(r);
    wp_arena_fini(&r->arena);
    *r = (struct wp_oai_req){0};
}
