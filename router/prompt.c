/* SPDX-License-Identifier: Apache-2.0 */
#include "router/prompt.h"

#include "index/identity.h"

#include <stddef.h>

#define MEMBERS(X)                                                                                                     \
    X(model)                                                                                                           \
    X(stream) X(prompt) X(messages) X(input) X(max_tokens) X(max_completion_tokens) X(max_output_tokens) X(n)         \
    X(user) X(prompt_cache_key) X(cache_salt) X(kv_transfer_params) X(bootstrap_host) X(bootstrap_port)                \
    X(bootstrap_room) X(routed_dp_rank) X(data_parallel_rank) X(tools) X(tool_choice) X(response_format)               \
    X(chat_template) X(chat_template_kwargs) X(documents) X(reasoning_effort) X(system) X(instructions) X(text)        \
    X(input_ids) X(request_id) X(rid) X(previous_response_id) X(vllm_xargs) X(add_generation_prompt)                   \
    X(continue_final_message) X(add_special_tokens) X(truncate_prompt_tokens) X(prompt_embeds) X(stream_options)

#define NAME(m) #m,
static const char *const names[] = {MEMBERS(NAME)};
enum { N_NAMES = sizeof names / sizeof names[0] };

struct wp_str wp_body_text(struct wp_str body)
{
    size_t mark = body.n >= 3 && memcmp(body.p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;

    return (struct wp_str){body.p + mark, body.n - mark};
}

int wp_body_read(struct wp_body *b, struct wp_str text, struct wp_err *err)
{
    struct wp_json found[N_NAMES];
    size_t i = 0;
    int rc = wp_json_members(wp_body_text(text), names, N_NAMES, found, err);

    if (rc < 0)
        return rc;
#define TAKE(m) b->m = found[i++];
    MEMBERS(TAKE)
    return 0;
}

static bool given(struct wp_json v)
{
    return v.kind != WP_JSON_ABSENT && v.kind != WP_JSON_NULL;
}

const char *wp_body_steers(const struct wp_body *b)
{
    if (given(b->kv_transfer_params))
        return "kv_transfer_params";
    if (given(b->bootstrap_host))
        return "bootstrap_host";
    if (given(b->bootstrap_port))
        return "bootstrap_port";
    if (given(b->bootstrap_room))
        return "bootstrap_room";
    if (given(b->routed_dp_rank))
        return "routed_dp_rank";
    return given(b->data_parallel_rank) ? "data_parallel_rank" : NULL;
}

uint32_t wp_body_max_tokens(const struct wp_body *b)
{
    const struct wp_json *from[] = {&b->max_completion_tokens, &b->max_tokens, &b->max_output_tokens};
    uint64_t x;

    for (size_t i = 0; i < 3; i++)
        if (given(*from[i]))
            return wp_json_u64(*from[i], &x) && x <= UINT32_MAX ? (uint32_t)x : 0;
    return 0;
}

enum { SEQUENCES_MAX = 4096 }; /* engines take no more, and an account must not be led astray */

static bool is_prompt(struct wp_json v)
{
    return v.kind == WP_JSON_STRING || v.kind == WP_JSON_ARRAY;
}

uint32_t wp_body_sequences(const struct wp_body *b)
{
    struct wp_json at = {0};
    uint64_t n = 1, prompts = 0;

    if (b->prompt.kind == WP_JSON_ARRAY)
        while (prompts < SEQUENCES_MAX && wp_json_each(b->prompt, &at) && is_prompt(at))
            prompts++;
    if (!wp_json_u64(b->n, &n) || n < 1)
        n = 1;
    n = n < SEQUENCES_MAX ? n : SEQUENCES_MAX;
    n *= prompts ? prompts : 1;
    return (uint32_t)(n < SEQUENCES_MAX ? n : SEQUENCES_MAX);
}

static int tokens(struct wp_prompt *p, struct wp_json v, struct wp_arena *arena)
{
    size_t cap = v.n / 2 + 1; /* "[1,2]": a token takes at least two bytes */
    uint32_t *token;
    long n;

    token = wp_arena_alloc(arena, cap * sizeof *token);
    if (!token)
        return WP_ENOMEM;
    n = wp_json_tokens(v, token, cap);
    if (n <= 0)
        return 0; /* not token ids after all, or empty: the engine says what it thinks of it */
    p->token = token;
    p->n_token = (size_t)n;
    p->kind = WP_PROMPT_TOKENS;
    return 0;
}

/* str, [int] and one-element lists of these are one prompt; anything else has no one prefix. */
static int completion(struct wp_prompt *p, struct wp_json v, struct wp_arena *arena)
{
    struct wp_json first = {0}, second;

    if (v.kind == WP_JSON_STRING) {
        p->bytes = (struct wp_str){v.p + 1, v.n - 2};
        p->kind = p->bytes.n ? WP_PROMPT_BYTES : WP_PROMPT_NONE;
        return 0;
    }
    if (!wp_json_each(v, &first))
        return 0;
    if (first.kind == WP_JSON_NUMBER)
        return tokens(p, v, arena);
    second = first;
    if (wp_json_each(v, &second))
        return 0;
    return first.kind == WP_JSON_STRING || first.kind == WP_JSON_ARRAY ? completion(p, first, arena) : 0;
}

/* Each level of a nested text is read once more by those above it: deeper than messages go, it is copied as it stands. */
enum { BULK = 1024, LEVELS = 10 };

/* Bulk data stands as its hash, so that an image is not a million blocks. */
static bool is_bulk(struct wp_json key, struct wp_json v)
{
    return v.kind == WP_JSON_STRING && v.n >= BULK &&
           (memcmp(v.p, "\"data:", 6) == 0 || wp_json_is(key, "data") || wp_json_is(key, "file_data") || wp_json_is(key, "url"));
}

static int canonical(struct wp_buf *b, struct wp_json key, struct wp_json v, unsigned level);

/* Without cache_control: that mark moves to the newest message with each turn, and no prompt has it. */
static int canonical_object(struct wp_buf *b, struct wp_json v, unsigned level)
{
    struct wp_json key = {0}, at = {0};
    int rc = wp_buf_adds(b, "{");

    while (rc == 0 && wp_json_each_member(v, &key, &at)) {
        if (wp_json_is(key, "cache_control"))
            continue;
        rc = wp_buf_add(b, key.p, key.n);
        rc = rc ? rc : wp_buf_adds(b, ":");
        rc = rc ? rc : canonical(b, key, at, level);
        rc = rc ? rc : wp_buf_adds(b, ",");
    }
    return rc ? rc : wp_buf_adds(b, "}");
}

static int canonical_items(struct wp_buf *b, struct wp_json v, unsigned level)
{
    struct wp_json at = {0};
    int rc = 0;

    while (rc == 0 && wp_json_each(v, &at)) {
        rc = canonical(b, (struct wp_json){0}, at, level);
        rc = rc ? rc : wp_buf_adds(b, ",");
    }
    return rc;
}

/* Appends v compactly: the same bytes however it was laid out, whatever its size. */
static int canonical(struct wp_buf *b, struct wp_json key, struct wp_json v, unsigned level)
{
    int rc;

    if (is_bulk(key, v))
        return wp_buf_printf(b, "#%016llx", (unsigned long long)wp_hash_item((struct wp_str){v.p, v.n}));
    if (level < LEVELS && v.kind == WP_JSON_OBJECT)
        return canonical_object(b, v, level + 1);
    if (level < LEVELS && v.kind == WP_JSON_ARRAY) {
        rc = wp_buf_adds(b, "[");
        rc = rc ? rc : canonical_items(b, v, level + 1);
        return rc ? rc : wp_buf_adds(b, "]");
    }
    return wp_json_compact(b, v);
}

struct part {
    struct wp_json v;
    enum wp_part is;
};

static int add_mark(struct wp_buf *marks, size_t from, const struct wp_buf *b, enum wp_part is)
{
    struct wp_mark m = {.at = (uint32_t)from, .n = (uint32_t)(b->n - from), .part = is};

    return marks->n < WP_MARKS_MAX * sizeof m && b->n < UINT32_MAX ? wp_buf_add(marks, &m, sizeof m) : 0;
}

/* A list without its end: a conversation that grows keeps its prefix. */
static int canonical_part(struct wp_buf *b, const struct part *p, struct wp_buf *marks)
{
    bool list = p->v.kind == WP_JSON_ARRAY;
    struct wp_json at = {0};
    size_t from;
    int rc = 0;

    if (!list)
        at = p->v;
    while (rc == 0 && (!list || wp_json_each(p->v, &at))) {
        from = b->n;
        rc = canonical(b, (struct wp_json){0}, at, 1);
        rc = rc || !list ? rc : wp_buf_adds(b, ",");
        rc = rc ? rc : add_mark(marks, from, b, p->is);
        if (!list)
            break;
    }
    return rc;
}

static void keep(struct wp_prompt *p, const struct wp_buf *b, const struct wp_buf *marks, struct wp_arena *arena)
{
    char *copy = b->n ? wp_arena_strndup(arena, b->p, b->n) : NULL;
    struct wp_mark *m = copy ? wp_arena_alloc(arena, marks->n) : NULL;

    if (!copy)
        return;
    p->bytes = (struct wp_str){copy, b->n};
    p->kind = WP_PROMPT_BYTES;
    if (!m || marks->n == WP_MARKS_MAX * sizeof *m)
        return;
    memcpy(m, marks->p, marks->n);
    p->mark = m;
    p->n_marks = marks->n / sizeof *m;
}

static int conversation(struct wp_prompt *p, const struct part part[], size_t n, struct wp_arena *arena)
{
    struct wp_buf b = {0}, marks = {0};
    size_t room = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!given(part[i].v))
            continue;
        room += part[i].v.n;
        rc = wp_buf_printf(&b, "%c", (int)('a' + i)); /* which member it is belongs to the key */
        rc = rc ? rc : canonical_part(&b, &part[i], &marks);
    }
    if (rc == 0)
        keep(p, &b, &marks, arena);
    if (rc == 0 && room && !p->bytes.p)
        rc = WP_ENOMEM;
    wp_buf_fini(&b);
    wp_buf_fini(&marks);
    return rc;
}

static int wrong(const char *param, const char *want, const char **out, struct wp_err *err)
{
    *out = param;
    return wp_fail(err, WP_EINVAL, "%s: want %s", param, want);
}

int wp_prompt_read(struct wp_prompt *p, enum wp_route_kind kind, const struct wp_body *b, struct wp_arena *arena,
                   const char **param, struct wp_err *err)
{
    const struct part chat[] = {{b->tools, WP_PART_TOOL},
                                {b->tool_choice, WP_PART_ASIDE},
                                {b->response_format, WP_PART_ASIDE},
                                {b->chat_template, WP_PART_OPTION},
                                {b->chat_template_kwargs, WP_PART_OPTION},
                                {b->documents, WP_PART_OPTION},
                                {b->reasoning_effort, WP_PART_OPTION},
                                {b->messages, WP_PART_MESSAGE}};
    const struct part anthropic[] = {{b->tools, WP_PART_TOOL}, {b->system, WP_PART_SYSTEM}, {b->messages, WP_PART_MESSAGE}};
    const struct part responses[] = {{b->tools, WP_PART_TOOL}, {b->instructions, WP_PART_SYSTEM}, {b->input, WP_PART_MESSAGE}};
    struct wp_json first = {0};

    switch (kind) {
    case WP_ROUTE_CHAT:
    case WP_ROUTE_MESSAGES:
        if (b->messages.kind != WP_JSON_ARRAY)
            return wrong("messages", "an array of messages", param, err);
        if (!wp_json_each(b->messages, &first))
            return 0;
        return kind == WP_ROUTE_CHAT ? conversation(p, chat, 8, arena) : conversation(p, anthropic, 3, arena);
    case WP_ROUTE_COMPLETIONS:
        if (given(b->prompt) && b->prompt.kind != WP_JSON_STRING && b->prompt.kind != WP_JSON_ARRAY)
            return wrong("prompt", "a string, token ids, or a list of these", param, err);
        return completion(p, b->prompt, arena);
    case WP_ROUTE_RESPONSES:
        if (given(b->input) && b->input.kind != WP_JSON_STRING && b->input.kind != WP_JSON_ARRAY)
            return wrong("input", "a string or an array of items", param, err);
        return conversation(p, responses, 3, arena);
    case WP_ROUTE_GENERATE:
        return completion(p, given(b->input_ids) ? b->input_ids : b->text, arena);
    case WP_ROUTE_STORED:
    case WP_ROUTE_PLAIN:
    case WP_ROUTE_OPAQUE:
        return 0;
    }
    return 0;
}

const struct wp_hashes *wp_prompt_hashes(struct wp_prompt *p, uint32_t block_size, struct wp_str lora, struct wp_str salt,
                                         struct wp_arena *arena)
{
    struct wp_hashes *h;
    uint64_t seed;
    size_t cap;

    if (p->kind == WP_PROMPT_NONE || block_size == 0)
        return NULL;
    if (p->kind == WP_PROMPT_BYTES)
        block_size = WP_CHUNK_BYTES;
    for (size_t i = 0; i < p->n_sets; i++)
        if (p->set[i].block_size == block_size)
            return &p->set[i];
    if (p->n_sets == WP_BLOCK_SIZES_MAX)
        return NULL;
    cap = (p->kind == WP_PROMPT_TOKENS ? p->n_token : p->bytes.n) / block_size;
    if (cap > WP_PROMPT_BLOCKS_MAX)
        cap = WP_PROMPT_BLOCKS_MAX;
    h = &p->set[p->n_sets];
    h->local = wp_arena_alloc(arena, 2 * cap * sizeof *h->local);
    if (!h->local)
        return NULL;
    h->chain = h->local + cap;
    h->block_size = block_size;
    seed = wp_hash_seed(lora, salt);
    h->n = p->kind == WP_PROMPT_TOKENS ? wp_hash_tokens(p->token, p->n_token, block_size, seed, h->local, cap)
                                       : wp_hash_bytes(p->bytes, block_size, seed, h->local, cap);
    wp_hash_chain(h->local, h->n, h->chain);
    p->n_sets++;
    return h;
}
