/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/prompts.h"

#include "sim/text.h"

#include <stdio.h>

/* Is every element a number of this kind of list?  The four readings of a prompt are tried and
 * blamed in this order. */
void wp_prompt_blame(struct wp_schema *s, struct wp_json p)
{
    static const char *const pass_type[] = {"int_parsing", "list_type", "string_type"};
    static const char *const pass_msg[] = {
        "Input should be a valid integer, unable to parse string as an integer",
        "Input should be a valid list",
        "Input should be a valid string",
    };
    char loc[64];

    for (int pass = 0; pass < 3; pass++) {
        struct wp_json e = {0};
        size_t i = 0;

        if (pass == 2 || p.kind != WP_JSON_ARRAY)
            wp_schema_fault(s, pass == 2 ? "string_type" : "list_type", "body.prompt",
                            pass_msg[pass == 2 ? 2 : 1], p);
        for (; wp_json_each(p, &e); i++) {
            double x;

            snprintf(loc, sizeof loc, "body.prompt.%zu", i);
            if (pass == 0 && e.kind == WP_JSON_NUMBER && wp_json_double(e, &x) && x < 0)
                wp_schema_line(s, loc,
                               "{'type': 'greater_than_equal', 'loc': '%s', 'msg': 'Input should "
                               "be greater than or "
                               "equal to 0', 'input': '%.*s', 'ctx': {'ge': 0}}",
                               loc, (int)(e.n < 40 ? e.n : 40), e.p);
            else if ((pass == 0 && e.kind != WP_JSON_NUMBER) ||
                     (pass == 1 && e.kind != WP_JSON_ARRAY) ||
                     (pass == 2 && e.kind != WP_JSON_STRING))
                wp_schema_fault(s, pass_type[pass], loc, pass_msg[pass], e);
        }
    }
}

/* Whole numbers that are not negative, any size: beyond 2^32 they are merely no vocabulary's. */
static bool is_ids(struct wp_json a)
{
    struct wp_json e = {0};
    uint64_t x;

    while (wp_json_each(a, &e))
        if (!wp_json_u64(e, &x))
            return false;
    return a.kind == WP_JSON_ARRAY;
}

bool wp_prompt_ok(struct wp_json p)
{
    struct wp_json e = {0}, first = {0};

    if (p.kind == WP_JSON_STRING)
        return true;
    if (p.kind != WP_JSON_ARRAY)
        return false;
    if (!wp_json_each(p, &first) || wp_json_tokens(p, NULL, 0) >= 0)
        return true;
    if (first.kind == WP_JSON_NUMBER)
        return is_ids(p);
    while (wp_json_each(p, &e))
        if (e.kind != first.kind ||
            (e.kind != WP_JSON_STRING && wp_json_tokens(e, NULL, 0) < 0 && !is_ids(e)))
            return false;
    return true;
}

static int too_long(const struct wp_oai_limits *lim, const char *at_least, size_t n,
                    struct wp_buf *answer)
{
    return wp_oai_error(answer, 400, "BadRequestError", "input_tokens",
                        "This model's maximum context length is %u tokens. However, your prompt "
                        "contains %s%zu input tokens, "
                        "which exceeds this limit even without any output tokens. Please reduce "
                        "the length of the input prompt. "
                        "(parameter=input_tokens, value=%zu)",
                        lim->max_model_len, at_least, n, n);
}

static int add_text(struct wp_oai_prompt *p, const struct wp_oai_limits *lim, struct wp_str text,
                    struct wp_buf *answer)
{
    if (text.n > lim->max_model_len)
        return too_long(lim, "at least ", (size_t)lim->max_model_len + 1, answer);
    p->token = wp_malloc(text.n * sizeof *p->token);
    if (!p->token)
        return WP_ENOMEM;
    p->n = text.n;
    wp_text_tokens(text, p->token);
    return 0;
}

static int add_ids(struct wp_oai_prompt *p, const struct wp_oai_limits *lim, struct wp_json ids,
                   struct wp_buf *answer)
{
    long n = wp_json_tokens(ids, NULL, 0);
    struct wp_json e = {0};
    uint64_t x;

    while (n < 0 && wp_json_each(ids, &e))
        if (wp_json_u64(e, &x) && x > UINT32_MAX)
            return wp_oai_error(answer, 400, "BadRequestError", NULL,
                                "Token id %llu is out of vocabulary", (unsigned long long)x);
    if (n > (long)lim->max_model_len)
        return too_long(lim, "", (size_t)n, answer);
    p->token = wp_malloc((size_t)n * sizeof *p->token);
    if (!p->token)
        return WP_ENOMEM;
    p->n = (size_t)n;
    wp_json_tokens(ids, p->token, p->n);
    return 0;
}

static int add_prompt(struct wp_oai_prompt *p, const struct wp_oai_limits *lim, struct wp_json v,
                      struct wp_buf *answer)
{
    struct wp_buf text = {0};
    int rc;

    if (v.kind == WP_JSON_ARRAY)
        return add_ids(p, lim, v, answer);
    rc = wp_json_put_text(&text, v);
    if (rc == 0)
        rc = add_text(p, lim, wp_buf_str(&text), answer);
    wp_buf_fini(&text);
    return rc;
}

static int make_prompts(struct wp_oai_req *r, size_t n)
{
    r->prompt = wp_arena_alloc(&r->arena, n * sizeof *r->prompt);
    if (!r->prompt)
        return WP_ENOMEM;
    memset(r->prompt, 0, n * sizeof *r->prompt);
    r->n_prompts = n;
    return 0;
}

int wp_prompts_read(struct wp_oai_req *r, const struct wp_oai_limits *lim, struct wp_json p,
                    struct wp_buf *answer)
{
    struct wp_json e = {0}, first = {0};
    size_t n = 0;
    int rc;

    wp_json_each(p, &first);
    if (p.kind == WP_JSON_ARRAY && first.kind == WP_JSON_ABSENT)
        return wp_oai_error(answer, 400, "BadRequestError", NULL,
                            "You must pass at least one prompt");
    if (p.kind == WP_JSON_STRING || first.kind == WP_JSON_NUMBER) {
        rc = make_prompts(r, 1);
        return rc < 0 ? rc : add_prompt(&r->prompt[0], lim, p, answer);
    }
    while (wp_json_each(p, &e))
        n++;
    if (n > WP_OAI_SEQUENCES)
        return wp_oai_error(answer, 400, "BadRequestError", "prompt",
                            "at most %d prompts are taken at once, got %zu.", WP_OAI_SEQUENCES, n);
    rc = make_prompts(r, n);
    e = (struct wp_json){0};
    for (size_t i = 0; rc == 0 && wp_json_each(p, &e); i++)
        rc = add_prompt(&r->prompt[i], lim, e, answer);
    return rc;
}

int wp_prompts_text(struct wp_oai_req *r, const struct wp_oai_limits *lim, struct wp_str text,
                    struct wp_buf *answer)
{
    int rc = make_prompts(r, 1);

    return rc < 0 ? rc : add_text(&r->prompt[0], lim, text, answer);
}
