/* SPDX-License-Identifier: Apache-2.0 */
#include "router/ask.h"

#include "index/identity.h"
#include "router/form.h"

#include <math.h>
#include <stdio.h>

enum { FILE_TOKENS = 1500 }; /* what half a minute of sound becomes: the bytes of a file say nothing about its tokens */

int wp_refuse(struct wp_refusal *no, int status, const char *code, const char *param, uint64_t retry_us, const char *fmt, ...)
{
    va_list ap;

    *no = (struct wp_refusal){.status = status, .code = code, .param = param, .retry_us = retry_us, .final = !retry_us};
    va_start(ap, fmt);
    vsnprintf(no->text, sizeof no->text, fmt, ap);
    va_end(ap);
    return WP_EINVAL;
}

static int out_of_memory(struct wp_refusal *no)
{
    return wp_refuse(no, 503, "overloaded", "body_memory", 1000000, "The router is out of memory.");
}

static int read_model_name(struct wp_asked *a, struct wp_arena *arena, struct wp_refusal *no)
{
    struct wp_json v = a->json.model;
    char *p;
    long n;

    if (v.kind == WP_JSON_ABSENT || v.kind == WP_JSON_NULL)
        return 0;
    p = wp_arena_alloc(arena, v.n);
    if (!p)
        return out_of_memory(no);
    n = wp_json_text(v, p, v.n);
    if (n < 0)
        return wp_refuse(no, 400, "invalid_value", "model", 0, "model: want a string.");
    a->model_name = (struct wp_str){p, (size_t)n};
    return 0;
}

static int find_model(struct wp_asked *a, struct wp_fleet *f, const struct wp_config *conf, struct wp_arena *arena,
                      struct wp_refusal *no)
{
    if (wp_fleet_model(f, a->model_name, arena, &a->model) < 0)
        return out_of_memory(no);
    if (!a->model_name.p && !a->model.name.p) {
        if (wp_fleet_serving(f))
            return wp_refuse(no, 400, "missing_model", "model", 0, "model: want the name of a model; several are served here.");
        return wp_refuse(no, 503, "no_worker", "worker", conf->health.interval_us, "No worker is up.");
    }
    if (!a->model.known)
        return wp_refuse(no, 404, "model_not_found", "model", 0, "The model `" WP_STR_FMT "` does not exist.",
                         WP_STR_ARG(a->model_name));
    return 0;
}

/* Tags only name a part of the cache; all other transfer parameters steer an engine. */
static bool only_tags(struct wp_json v)
{
    struct wp_json key = {0}, at = {0};

    if (v.kind != WP_JSON_OBJECT)
        return false;
    while (wp_json_each_member(v, &key, &at))
        if (key.n < 13 || memcmp(key.p, "\"lmcache.tag.", 13) != 0)
            return false;
    return true;
}

static int check_steering(const struct wp_asked *a, struct wp_refusal *no)
{
    struct wp_body b = a->json;
    const char *member;

    if (only_tags(b.kv_transfer_params))
        b.kv_transfer_params = (struct wp_json){0};
    member = wp_body_steers(&b);
    if (!member)
        return 0;
    return wp_refuse(no, 400, "routing_field_refused", member, 0,
                     "%s: this member steers an engine and is not accepted from clients here.", member);
}

static void hash_all(struct wp_asked *a, struct wp_arena *arena)
{
    const struct wp_json salt = a->json.cache_salt;
    struct wp_str s = {0};

    if (salt.kind == WP_JSON_STRING && salt.n > 2)
        s = (struct wp_str){salt.p + 1, salt.n - 2};
    for (size_t i = 0; i < a->model.n_sizes; i++)
        wp_prompt_hashes(&a->prompt, a->model.block_size[i], a->model.lora, s, arena);
    a->prompt.bytes.p = NULL;
    a->prompt.mark = NULL;
    a->prompt.token = NULL;
}

void wp_ask_tokens(struct wp_asked *a, const uint32_t token[], size_t n, struct wp_arena *arena)
{
    a->prompt = (struct wp_prompt){.kind = WP_PROMPT_TOKENS, .token = token, .n_token = n};
    a->tokens = (uint32_t)n;
    hash_all(a, arena);
}

/* The text of a prompt is as long as the body, and would be held as long: it goes once its hashes, which are in arena, are made. */
static int hash_prompt(struct wp_asked *a, enum wp_route_kind kind, bool outlined, struct wp_arena *arena, const char **param, struct wp_err *err)
{
    struct wp_arena text = {0};
    int rc = wp_prompt_read(&a->prompt, kind, &a->json, &text, param, err);

    if (rc == 0 && outlined)
        a->outline = wp_outline_make(&a->prompt, arena);
    if (rc == 0)
        hash_all(a, arena);
    wp_arena_fini(&text);
    return rc;
}

static int read_prompt(struct wp_asked *a, enum wp_route_kind kind, size_t body_bytes, bool outlined, struct wp_arena *arena,
                       struct wp_refusal *no)
{
    const char *param = NULL;
    struct wp_err err = WP_ERR_INIT;
    int rc = hash_prompt(a, kind, outlined, arena, &param, &err);
    double bytes;

    if (rc == WP_ENOMEM)
        return out_of_memory(no);
    if (rc < 0)
        return wp_refuse(no, 400, "invalid_value", param, 0, "%s.", err.text);
    bytes = (double)(a->prompt.kind == WP_PROMPT_BYTES ? a->prompt.bytes.n : body_bytes);
    a->tokens = a->prompt.kind == WP_PROMPT_TOKENS ? (uint32_t)a->prompt.n_token
                                                   : (uint32_t)fmin(bytes / a->model.bytes_per_token + 1, UINT32_MAX);
    if (kind == WP_ROUTE_OPAQUE && a->tokens > FILE_TOKENS)
        a->tokens = FILE_TOKENS;
    /* An estimate beyond what an engine takes is wrong, or the engine will refuse: neither keeps a worker busy for longer. */
    if (a->prompt.kind != WP_PROMPT_TOKENS && a->model.max_len && a->tokens > a->model.max_len)
        a->tokens = a->model.max_len;
    return 0;
}

static int read_form(struct wp_asked *a, struct wp_str type, struct wp_str body, struct wp_refusal *no)
{
    const char *why;

    if (wp_form_field(type, body, "model", &a->model_name, &why) < 0)
        return wp_refuse(no, 400, "bad_form", NULL, 0, "The body is not a form: %s.", why);
    if (a->model_name.n == 0)
        a->model_name = (struct wp_str){0};
    return 0;
}

static int read_json(struct wp_asked *a, struct wp_str body, struct wp_arena *arena, struct wp_refusal *no)
{
    struct wp_err err = WP_ERR_INIT;

    if (wp_body_read(&a->json, body, &err) < 0)
        return wp_refuse(no, 400, "bad_json", NULL, 0, "The body is not a JSON object: %s.", body.n ? err.text : "it is empty");
    return read_model_name(a, arena, no);
}

int wp_ask_read(struct wp_asked *a, struct wp_fleet *f, const struct wp_config *conf, enum wp_route_kind kind, struct wp_str form,
                struct wp_str body, struct wp_arena *arena, struct wp_refusal *no)
{
    int rc = form.p ? read_form(a, form, body, no) : read_json(a, body, arena, no);

    if (rc < 0)
        return rc;
    rc = find_model(a, f, conf, arena, no);
    if (rc == 0 && !conf->listen.trust_client_routing)
        rc = check_steering(a, no);
    return rc ? rc : read_prompt(a, kind, body.n, conf->doctor, arena, no);
}

uint64_t wp_session_key(const struct wp_head *h, const struct wp_body *b)
{
    static const char *const fields[] = {"x-warmpath-session", "x-session-id", "x-smg-routing-key"};
    const struct wp_json *members[] = {&b->prompt_cache_key, &b->user};

    for (size_t i = 0; i < 3; i++) {
        struct wp_str v = wp_head_get(h, fields[i]);

        if (v.n)
            return wp_hash_item(v);
    }
    for (size_t i = 0; i < 2; i++)
        if (members[i]->kind == WP_JSON_STRING && members[i]->n > 2)
            return wp_hash_item((struct wp_str){members[i]->p + 1, members[i]->n - 2});
    return 0;
}

enum wp_route_kind wp_ask_guess(struct wp_str body)
{
    static const char *const names[] = {"messages", "prompt", "input", "input_ids", "text"};
    static const enum wp_route_kind kinds[] = {WP_ROUTE_CHAT, WP_ROUTE_COMPLETIONS, WP_ROUTE_RESPONSES, WP_ROUTE_GENERATE,
                                               WP_ROUTE_GENERATE};
    struct wp_json m[5];
    struct wp_err err;

    if (wp_json_members(wp_body_text(body), names, 5, m, &err) < 0)
        return WP_ROUTE_PLAIN;
    for (int i = 0; i < 5; i++)
        if (m[i].kind != WP_JSON_ABSENT)
            return kinds[i];
    return WP_ROUTE_PLAIN;
}
