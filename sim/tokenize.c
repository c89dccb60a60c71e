/* SPDX-License-Identifier: Apache-2.0 */
/* POST /tokenize and /detokenize: their place in sim/openai.h is beside the routes that they
 * explain. */
#include "sim/openai.h"

#include "sim/chat.h"
#include "sim/put.h"
#include "sim/text.h"

enum {
    T_MODEL,
    T_PROMPT,
    T_MESSAGES,
    T_STRS,
    T_GENERATION,
    T_UNFINISHED,
    T_TOOLS,
    T_TOKENS,
    T_FIELDS
};

static const char *const names[T_FIELDS] = {
    "model",
    "prompt",
    "messages",
    "return_token_strs",
    "add_generation_prompt",
    "continue_final_message",
    "tools",
    "tokens",
};

static int put_tokens_of(const struct wp_oai_limits *lim, struct wp_str text, bool strs,
                         struct wp_buf *answer)
{
    uint32_t *token = wp_malloc(text.n * sizeof *token);
    struct wp_put o = {answer, token ? 0 : WP_ENOMEM};

    if (token)
        wp_text_tokens(text, token);
    wp_put(&o, "{\"count\":");
    wp_put_u(&o, text.n);
    wp_put(&o, ",\"max_model_len\":");
    wp_put_u(&o, lim->max_model_len);
    wp_put(&o, ",\"tokens\":");
    if (token)
        wp_put_tokens(&o, token, text.n);
    wp_put(&o, ",\"token_strs\":");
    for (size_t i = 0; strs && i < text.n; i++) {
        wp_put(&o, i ? "," : "[");
        wp_put_json(&o, (struct wp_str){text.p + i, 1});
    }
    wp_put(&o, !strs ? "null}" : text.n ? "]}" : "[]}");
    wp_free(token);
    return o.rc < 0 ? o.rc : 200;
}

/* Which of the two forms is it, and is it whole?  What is wrong with both is told of both. */
static void check_form(struct wp_schema *s, const struct wp_json v[], struct wp_json whole)
{
    if (v[T_PROMPT].kind == WP_JSON_STRING)
        return;
    if (v[T_MESSAGES].kind != WP_JSON_ABSENT && v[T_PROMPT].kind == WP_JSON_ABSENT) {
        wp_chat_check(s, v[T_MESSAGES]);
        return;
    }
    if (v[T_PROMPT].kind == WP_JSON_ABSENT)
        wp_schema_fault(s, "missing", "body.prompt", "Field required", whole);
    else
        wp_schema_fault(s, "string_type", "body.prompt", "Input should be a valid string",
                        v[T_PROMPT]);
    wp_schema_fault(s, "missing", "body.messages", "Field required", whole);
}

int wp_oai_tokenize(const struct wp_oai_limits *lim, struct wp_str content_type, struct wp_str body,
                    struct wp_buf *answer)
{
    struct wp_schema s = {0};
    struct wp_json v[T_FIELDS] = {{0}}, whole = {0};
    struct wp_chat c = {.generation = true};
    struct wp_buf text = {0};
    bool strs = false;
    int rc = wp_schema_members(&s, content_type, body, names, T_FIELDS, v, &whole);

    if (rc == 0 && s.n == 0) {
        wp_schema_string(&s, v[T_MODEL], "body.model");
        wp_schema_bool(&s, v[T_STRS], "body.return_token_strs", &strs);
        wp_schema_bool(&s, v[T_GENERATION], "body.add_generation_prompt", &c.generation);
        wp_schema_bool(&s, v[T_UNFINISHED], "body.continue_final_message", &c.unfinished);
        check_form(&s, v, whole);
    }
    if (rc == 0)
        rc = wp_schema_answer(&s, answer);
    if (rc == 0)
        rc = wp_oai_check_model(lim, v[T_MODEL], answer);
    c.messages = v[T_MESSAGES];
    c.tools = v[T_TOOLS];
    if (rc == 0)
        rc = v[T_PROMPT].kind == WP_JSON_STRING ? wp_json_put_text(&text, v[T_PROMPT])
                                                : wp_chat_render(&c, &text, answer);
    if (rc == 0)
        rc = put_tokens_of(lim, wp_buf_str(&text), strs, answer);
    wp_buf_fini(&text);
    wp_schema_fini(&s);
    return rc;
}

static int put_text_of(struct wp_json tokens, struct wp_buf *answer)
{
    struct wp_put o = {answer, 0};
    struct wp_buf text = {0};
    struct wp_json e = {0};
    uint64_t id;

    while (o.rc == 0 && wp_json_each(tokens, &e))
        if (wp_json_u64(e, &id) && id < WP_TEXT_VOCABULARY)
            o.rc = wp_text_put(&text, (uint32_t)id);
    wp_put(&o, "{\"prompt\":");
    wp_put_json(&o, wp_buf_str(&text));
    wp_put(&o, "}");
    wp_buf_fini(&text);
    return o.rc < 0 ? o.rc : 200;
}

int wp_oai_detokenize(const struct wp_oai_limits *lim, struct wp_str content_type,
                      struct wp_str body, struct wp_buf *answer)
{
    struct wp_schema s = {0};
    struct wp_json v[T_FIELDS] = {{0}}, whole = {0}, e = {0};
    int64_t id;
    int rc = wp_schema_members(&s, content_type, body, names, T_FIELDS, v, &whole);

    if (rc == 0 && s.n == 0) {
        wp_schema_string(&s, v[T_MODEL], "body.model");
        if (v[T_TOKENS].kind == WP_JSON_ABSENT)
            wp_schema_fault(&s, "missing", "body.tokens", "Field required", whole);
        else if (v[T_TOKENS].kind != WP_JSON_ARRAY)
            wp_schema_fault(&s, "list_type", "body.tokens", "Input should be a valid list",
                            v[T_TOKENS]);
        while (wp_json_each(v[T_TOKENS], &e)) {
            if (e.kind == WP_JSON_NULL)
                wp_schema_fault(&s, "int_type", "body.tokens", "Input should be a valid integer",
                                e);
            else if (wp_schema_int(&s, e, "body.tokens", &id) && id < 0)
                wp_schema_fault(&s, "greater_than_equal", "body.tokens",
                                "Input should be greater than or equal to 0", e);
        }
    }
    if (rc == 0)
        rc = wp_schema_answer(&s, answer);
    if (rc == 0)
        rc = wp_oai_check_model(lim, v[T_MODEL], answer);
    if (rc == 0)
        rc = put_text_of(v[T_TOKENS], answer);
    wp_schema_fini(&s);
    return rc;
}
