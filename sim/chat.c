/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/chat.h"

#include <stdio.h>

static void check_message(struct wp_schema *s, struct wp_json m, size_t i)
{
    static const char *const names[] = {"role", "content"};
    struct wp_json v[2], part = {0};
    char loc[64];

    if (m.kind != WP_JSON_OBJECT) {
        snprintf(loc, sizeof loc, "body.messages.%zu", i);
        wp_schema_fault(s, "dict_type", loc, "Input should be a valid dictionary", m);
        return;
    }
    wp_json_find(m, names, 2, v);
    snprintf(loc, sizeof loc, "body.messages.%zu.role", i);
    if (v[0].kind == WP_JSON_ABSENT)
        wp_schema_fault(s, "missing", loc, "Field required", m);
    else if (v[0].kind != WP_JSON_STRING)
        wp_schema_fault(s, "string_type", loc, "Input should be a valid string", v[0]);
    snprintf(loc, sizeof loc, "body.messages.%zu.content", i);
    switch (v[1].kind) {
    case WP_JSON_ABSENT:
    case WP_JSON_NULL:
    case WP_JSON_STRING:
        break;
    case WP_JSON_ARRAY:
        while (wp_json_each(v[1], &part))
            if (part.kind != WP_JSON_OBJECT && part.kind != WP_JSON_STRING)
                wp_schema_fault(s, "dict_type", loc, "Input should be a valid dictionary", part);
        break;
    default:
        wp_schema_fault(s, "string_type", loc, "Input should be a valid string", v[1]);
    }
}

void wp_chat_check(struct wp_schema *s, struct wp_json messages)
{
    struct wp_json m = {0};
    size_t i = 0;

    if (messages.kind == WP_JSON_ARRAY)
        while (wp_json_each(messages, &m))
            check_message(s, m, i++);
    else
        wp_schema_fault(s, "list_type", "body.messages", "Input should be a valid list", messages);
}

/* One part of a content list.  Parts of media are refused as a model without eyes and ears does. */
static int put_part(struct wp_buf *text, struct wp_json part, struct wp_buf *answer)
{
    static const char *const names[] = {"type", "text", "refusal", "thinking"};
    static const char *const media[] = {"image", "audio", "video"};
    struct wp_json v[4];
    char type[32];
    long n;

    if (part.kind == WP_JSON_STRING)
        return wp_json_put_text(text, part);
    wp_json_find(part, names, 4, v);
    n = wp_json_text(v[0], type, sizeof type - 1);
    type[n < 0 ? 0 : n] = 0;
    for (size_t i = 1; i < 4; i++)
        if (v[i].kind == WP_JSON_STRING)
            return wp_json_put_text(text, v[i]);
    for (size_t i = 0; i < 3; i++)
        if (strstr(type, media[i]))
            return wp_oai_error(answer, 400, "BadRequestError", NULL,
                                "At most 0 %s(s) may be provided in one prompt.", media[i]);
    return wp_oai_error(answer, 400, "BadRequestError", NULL, "Unknown part type: %s", type);
}

static int put_message(struct wp_buf *text, struct wp_json m, struct wp_buf *answer)
{
    static const char *const names[] = {"role", "content", "tool_calls"};
    struct wp_json v[3], part = {0};
    int rc;

    wp_json_find(m, names, 3, v);
    rc = wp_buf_adds(text, "<|im_start|>");
    if (rc == 0)
        rc = wp_json_put_text(text, v[0]);
    if (rc == 0)
        rc = wp_buf_adds(text, "\n");
    if (rc == 0 && v[1].kind == WP_JSON_STRING)
        rc = wp_json_put_text(text, v[1]);
    while (rc == 0 && wp_json_each(v[1], &part))
        rc = put_part(text, part, answer);
    if (rc == 0 && v[2].kind == WP_JSON_ARRAY)
        rc = wp_json_compact(text, v[2]);
    return rc;
}

int wp_chat_render(const struct wp_chat *c, struct wp_buf *text, struct wp_buf *answer)
{
    struct wp_json m = {0}, one = {0};
    bool first = true;
    int rc = 0;

    if (c->generation && c->unfinished)
        return wp_oai_error(
            answer, 400, "BadRequestError", NULL,
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
    if (!wp_json_each(c->messages, &one))
        return wp_oai_error(
            answer, 400, "BadRequestError", NULL,
            "Cannot apply chat template to an empty conversation. Provide at least one message.");
    one = (struct wp_json){0};
    if (wp_json_each(c->tools, &one)) {
        rc = wp_buf_adds(text, "<|im_start|>system\nTools: ");
        if (rc == 0)
            rc = wp_json_compact(text, c->tools);
        if (rc == 0)
            rc = wp_buf_adds(text, "<|im_end|>\n");
    }
    while (rc == 0 && wp_json_each(c->messages, &m)) {
        if (!first)
            rc = wp_buf_adds(text, "<|im_end|>\n");
        if (rc == 0)
            rc = put_message(text, m, answer);
        first = false;
    }
    if (rc == 0 && !c->unfinished)
        rc = wp_buf_adds(text, "<|im_end|>\n");
    if (rc == 0 && c->generation)
        rc = wp_buf_adds(text, "<|im_start|>assistant\n");
    return rc;
}
