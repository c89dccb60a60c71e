/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/tokens/question.h"

enum { ANSWER_MIN = 64 << 10, ANSWER_MAX = 32 << 20 };

static bool given(struct wp_json v)
{
    return v.kind != WP_JSON_ABSENT && v.kind != WP_JSON_NULL;
}

/* Parts of text alone are the same to /tokenize and to the chat; what else there is, is media or
 * will be. */
static bool is_text(struct wp_json part)
{
    static const char *const types[] = {"text", "refusal", "thinking", "input_text", "output_text"};
    struct wp_json type;

    if (part.kind == WP_JSON_STRING)
        return true;
    type = wp_json_get(part, "type");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (wp_json_is(type, types[i]))
            return true;
    return false;
}

bool wp_tokens_suited(const struct wp_tokens_prompt *p)
{
    struct wp_json message = {0};

    if (given(p->truncate_prompt_tokens) || given(p->prompt_embeds))
        return false;
    if (!p->chat)
        return p->prompt.kind == WP_JSON_STRING;
    if (p->messages.kind != WP_JSON_ARRAY)
        return false;
    while (wp_json_each(p->messages, &message)) {
        struct wp_json content = wp_json_get(message, "content"), part = {0};

        while (wp_json_each(content, &part))
            if (!is_text(part))
                return false;
    }
    return true;
}

static int put(struct wp_buf *b, const char *name, struct wp_json v)
{
    int rc;

    if (!given(v))
        return 0;
    rc = wp_buf_printf(b, ",\"%s\":", name);
    return rc ? rc : wp_buf_add(b, v.p, v.n);
}

static int put_template_arguments(struct wp_buf *b, const struct wp_tokens_prompt *p)
{
    struct wp_json_edit edit[2];
    struct wp_str own = {p->chat_template_kwargs.p, p->chat_template_kwargs.n};
    size_t n = 0;
    int rc;

    if (given(p->documents))
        edit[n++] = (struct wp_json_edit){"documents", {p->documents.p, p->documents.n}};
    if (given(p->reasoning_effort))
        edit[n++] = (struct wp_json_edit){"reasoning_effort",
                                          {p->reasoning_effort.p, p->reasoning_effort.n}};
    if (n == 0 ||
        (given(p->chat_template_kwargs) && p->chat_template_kwargs.kind != WP_JSON_OBJECT))
        return put(b, "chat_template_kwargs", p->chat_template_kwargs);
    rc = wp_buf_adds(b, ",\"chat_template_kwargs\":");
    return rc ? rc
              : wp_json_splice(b, given(p->chat_template_kwargs) ? own : WP_STR("{}"), edit, n);
}

int wp_tokens_question(struct wp_buf *b, const struct wp_tokens_prompt *p)
{
    int rc = wp_buf_reserve(b, 256 + p->model.n + p->prompt.n + p->messages.n + p->tools.n);

    rc = rc ? rc : wp_buf_adds(b, "{\"model\":");
    rc = rc ? rc : wp_buf_json(b, p->model);
    if (p->chat) {
        rc = rc ? rc : put(b, "messages", p->messages);
        rc = rc ? rc : put(b, "tools", p->tools);
        rc = rc ? rc : put(b, "chat_template", p->chat_template);
        rc = rc ? rc : put_template_arguments(b, p);
        rc = rc ? rc : put(b, "add_generation_prompt", p->add_generation_prompt);
        rc = rc ? rc : put(b, "continue_final_message", p->continue_final_message);
    } else {
        rc = rc ? rc : put(b, "prompt", p->prompt);
    }
    rc = rc ? rc : put(b, "add_special_tokens", p->add_special_tokens);
    return rc ? rc : wp_buf_adds(b, "}");
}

size_t wp_tokens_answer_max(size_t n)
{
    return n > (ANSWER_MAX - ANSWER_MIN) / 12 ? ANSWER_MAX : ANSWER_MIN + 12 * n;
}

int wp_tokens_answer(struct wp_str answer, struct wp_blob **out)
{
    static const char *const names[] = {"tokens", "count"};
    struct wp_err err = WP_ERR_INIT;
    struct wp_json v[2];
    uint64_t count;
    uint32_t *token;
    long n;

    *out = NULL;
    if (wp_json_members(answer, names, 2, v, &err) < 0)
        return WP_EPROTO;
    if (!wp_json_u64(v[1], &count)) { /* said, it saves a pass */
        n = wp_json_tokens(v[0], NULL, 0);
        count = n > 0 ? (uint64_t)n : 0;
    }
    if (count == 0 || count > v[0].n / 2) /* n ids take at least 2n + 1 bytes */
        return WP_EPROTO;
    token = wp_malloc(count * sizeof *token);
    if (!token)
        return WP_ENOMEM;
    n = wp_json_tokens(v[0], token, count);
    if (n < 0 || (uint64_t)n != count) {
        wp_free(token);
        return WP_EPROTO;
    }
    *out = wp_blob_adopt((char *)token, count * sizeof *token);
    return *out ? 0 : WP_ENOMEM;
}
