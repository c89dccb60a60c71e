/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request is read and hashed without a lock; then, under the fleet's, each rank that serves the
 * model gets its match, and the answer is written from these.  All counts in the answer are tokens.
 */
#include "router/query.h"

#include "index/identity.h"
#include "router/fleet_inner.h"

enum member {
    MODEL,
    MODEL_NAME,
    LORA,
    TOKENS,
    SALT,
    TENANT,
    INSTANCE,
    BLOCK_SIZE,
    SEQ_HASHES,
    BLOCK_HASHES,
    BLOCK_HASH,
    N_MEMBERS
};
static const char *const names[N_MEMBERS] = {
    "model",       "model_name", "lora_name",  "token_ids",    "cache_salt", "tenant_id",
    "instance_id", "block_size", "seq_hashes", "block_hashes", "block_hash"};

struct query {
    struct wp_json m[N_MEMBERS];
    bool conductor; /* which dialect */
    struct wp_str tenant, instance;
    uint32_t block_size; /* 0: each worker's own */
    struct wp_model_info model;
    struct wp_prompt prompt; /* of tokens; else: */
    const uint64_t *hash;
    size_t n_hashes;
    uint64_t *local; /* room for as many, when they turn out to be links of a chain */
};

struct rank_match {
    const struct wp_worker *worker;
    uint32_t rank, block_size, blocks;
    uint64_t gpu_blocks; /* that the rank holds in all */
    struct wp_reach reach;
};

/* ---- reading ---- */

static bool given(struct wp_json v)
{
    return v.kind != WP_JSON_ABSENT && v.kind != WP_JSON_NULL;
}

/* Absent, null and "" are all nothing. */
static int text(struct query *q, enum member i, struct wp_str *out, struct wp_arena *arena,
                struct wp_refusal *no)
{
    char *p = given(q->m[i]) ? wp_arena_alloc(arena, q->m[i].n) : NULL;
    long n;

    if (!given(q->m[i]))
        return 0;
    if (!p)
        return WP_ENOMEM;
    n = wp_json_text(q->m[i], p, q->m[i].n);
    if (n < 0)
        return wp_refuse(no, 400, "invalid_value", names[i], 0, "%s: want a string.", names[i]);
    if (n > 0)
        *out = (struct wp_str){p, (size_t)n};
    return 0;
}

static int read_tokens(struct query *q, struct wp_arena *arena, struct wp_refusal *no)
{
    size_t cap = q->m[TOKENS].n / 2 + 1; /* "[1,2]": a token takes at least two bytes */
    uint32_t *token = wp_arena_alloc(arena, cap * sizeof *token);
    long n;

    if (!token)
        return WP_ENOMEM;
    n = wp_json_tokens(q->m[TOKENS], token, cap);
    if (n < 0)
        return wp_refuse(no, 400, "invalid_value", "token_ids", 0,
                         "token_ids: want an array of whole numbers, 0 or more.");
    q->prompt = (struct wp_prompt){
        .kind = n ? WP_PROMPT_TOKENS : WP_PROMPT_NONE, .token = token, .n_token = (size_t)n};
    return 0;
}

/* Signed numbers are taken too: Dynamo's tools write the hash's bits as i64. */
static int read_hashes(struct query *q, struct wp_arena *arena, struct wp_refusal *no)
{
    enum member i = given(q->m[SEQ_HASHES])     ? SEQ_HASHES
                    : given(q->m[BLOCK_HASHES]) ? BLOCK_HASHES
                                                : BLOCK_HASH;
    size_t cap = q->m[i].n / 2 + 1;
    uint64_t *hash = wp_arena_alloc(arena, 2 * cap * sizeof *hash);
    struct wp_json at = {0};
    int64_t x;

    if (!hash)
        return WP_ENOMEM;
    if (q->m[i].kind != WP_JSON_ARRAY)
        return wp_refuse(no, 400, "invalid_value", "block_hashes", 0,
                         "Want an array of hashes as block_hashes or seq_hashes.");
    while (q->n_hashes < WP_PROMPT_BLOCKS_MAX && wp_json_each(q->m[i], &at)) {
        uint64_t *out = &hash[q->n_hashes++];

        if (wp_json_u64(at, out))
            continue;
        if (!wp_json_i64(at, &x))
            return wp_refuse(no, 400, "invalid_value", names[i], 0, "%s: want numbers of 64 bits.",
                             names[i]);
        *out = (uint64_t)x;
    }
    q->hash = hash;
    q->local = hash + cap;
    return 0;
}

static int read_block_size(struct query *q, struct wp_refusal *no)
{
    uint64_t x;

    if (!given(q->m[BLOCK_SIZE]))
        return 0;
    if (!wp_json_u64(q->m[BLOCK_SIZE], &x) || x == 0 || x > 65536)
        return wp_refuse(no, 400, "invalid_value", "block_size", 0,
                         "block_size: want a whole number from 1 to 65536.");
    q->block_size = (uint32_t)x;
    return 0;
}

static int find_model(struct query *q, struct wp_fleet *f, struct wp_arena *arena,
                      struct wp_refusal *no)
{
    struct wp_str name = {0};
    int rc = text(q, given(q->m[MODEL]) ? MODEL : MODEL_NAME, &name, arena, no);

    if (rc == 0 && wp_fleet_model(f, name, arena, &q->model) < 0)
        rc = WP_ENOMEM;
    if (rc < 0)
        return rc;
    if (!q->model.name.p)
        return wp_refuse(no, 400, "missing_model", "model", 0,
                         "model: want the name of a model; not just one is served here.");
    if (!q->model.known && !q->conductor) /* the conductor says that nobody has anything */
        return wp_refuse(no, 404, "model_not_found", "model_name", 0,
                         "The model `" WP_STR_FMT "` does not exist.", WP_STR_ARG(name));
    return 0;
}

/* A set of hashes for each block size that is asked for, or served. */
static int hash_tokens(struct query *q, struct wp_arena *arena, struct wp_refusal *no)
{
    struct wp_str lora = q->model.lora, salt = {0};
    int rc = text(q, LORA, &lora, arena, no);

    rc = rc ? rc : text(q, SALT, &salt, arena, no);
    if (rc < 0 || q->prompt.kind == WP_PROMPT_NONE)
        return rc;
    for (size_t i = 0; i < (q->block_size ? 1 : q->model.n_sizes); i++)
        if (!wp_prompt_hashes(&q->prompt, q->block_size ? q->block_size : q->model.block_size[i],
                              lora, salt, arena))
            return WP_ENOMEM;
    return 0;
}

static int read_query(struct query *q, struct wp_fleet *f, struct wp_str body, bool by_hash,
                      struct wp_arena *arena, struct wp_refusal *no)
{
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_json_members(body, names, N_MEMBERS, q->m, &err);

    if (rc < 0)
        return wp_refuse(no, 400, "bad_json", NULL, 0, "The body is no JSON object: %s", err.text);
    q->conductor = given(q->m[MODEL]) || given(q->m[BLOCK_SIZE]) || given(q->m[INSTANCE]);
    q->tenant = WP_STR("default");
    rc = text(q, TENANT, &q->tenant, arena, no);
    rc = rc ? rc : text(q, INSTANCE, &q->instance, arena, no);
    rc = rc ? rc : read_block_size(q, no);
    rc = rc ? rc : by_hash ? read_hashes(q, arena, no) : read_tokens(q, arena, no);
    rc = rc ? rc : find_model(q, f, arena, no);
    if (rc < 0 || !by_hash)
        return rc < 0 ? rc : hash_tokens(q, arena, no);
    if (given(q->m[SALT]) &&
        !q->conductor) /* to ignore it would answer for another tenant's blocks */
        return wp_refuse(
            no, 400, "invalid_value", "cache_salt", 0,
            "cache_salt: the hashes must be made with it; it cannot be added to them.");
    return 0;
}

/* ---- looking, with the fleet's lock held ---- */

/* What to ask of the index for a worker; false: its blocks are not those that were asked for. */
static bool blocks_for(const struct query *q, const struct wp_worker *w, const uint64_t **local,
                       size_t *n)
{
    if (q->block_size && q->block_size != w->block_size)
        return false;
    *local = q->hash;
    *n = q->n_hashes;
    for (size_t i = 0; i < q->prompt.n_sets; i++)
        if (q->prompt.set[i].block_size == w->block_size) {
            *local = q->prompt.set[i].local;
            *n = q->prompt.set[i].n;
        }
    return true;
}

/* Fills f->overlap; hashes may be links of a chain as well. */
static void look_up(struct wp_fleet *f, const struct query *q, uint32_t space,
                    const uint64_t **local, size_t n)
{
    size_t most = wp_index_overlap(f->index, space, *local, n, &f->overlap), known;

    if (*local != q->hash)
        return;
    known = wp_index_unchain(f->index, space, q->hash, n, q->local);
    if (known <= most)
        return;
    *local = q->local;
    wp_index_overlap(f->index, space, q->local, known, &f->overlap);
}

static size_t match_worker(struct wp_fleet *f, const struct query *q, const struct wp_worker *w,
                           struct rank_match out[])
{
    const uint64_t *local = NULL;
    uint32_t space = wp_fleet_space(f, q->model.base, w->block_size, WP_PROMPT_TOKENS);
    size_t n = 0;

    if (space == 0xFFFFFFFF || !blocks_for(q, w, &local, &n))
        return 0;
    look_up(f, q, space, &local, n);
    for (uint32_t i = 0; i < w->n_ranks; i++) {
        const struct wp_overlap_row *row = wp_overlap_of(&f->overlap, w->rank[i].holder);
        struct rank_match *r = &out[i];
        uint64_t tier[WP_TIER_MAX], doubtful;

        wp_fleet_rank_stats(f, &w->rank[i], tier, &doubtful);
        *r = (struct rank_match){
            w, i, w->block_size, row ? row->blocks : 0, tier[WP_TIER_GPU], {{0}, {0}}};
        wp_index_reach(f->index, w->rank[i].holder, space, local, r->blocks, &r->reach);
    }
    return w->n_ranks;
}

static size_t match_all(struct wp_fleet *f, const struct query *q, struct rank_match out[])
{
    size_t n = 0;

    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (wp_worker_serves(w, q->model.name) &&
            (!q->instance.p || wp_str_is(q->instance, w->conf.id)))
            n += match_worker(f, q, w, out + n);
    }
    return n;
}

/* ---- answering ---- */

/* How far a rank gets with its first tiers; what is beyond disk counts with it. */
static uint64_t upto(const struct rank_match *r, int tier)
{
    return (uint64_t)r->block_size * (tier >= WP_TIER_DISK ? r->blocks : r->reach.upto[tier]);
}
static uint64_t gpu(const struct rank_match *r)
{
    return upto(r, WP_TIER_GPU);
}
static uint64_t cpu(const struct rank_match *r)
{
    return upto(r, WP_TIER_CPU);
}
static uint64_t whole(const struct rank_match *r)
{
    return upto(r, WP_TIER_DISK);
}
static uint64_t on_gpu(const struct rank_match *r)
{
    return (uint64_t)r->block_size * r->reach.on[WP_TIER_GPU];
}
static uint64_t on_cpu(const struct rank_match *r)
{
    return (uint64_t)r->block_size * r->reach.on[WP_TIER_CPU];
}
static uint64_t on_disk(const struct rank_match *r)
{
    return (uint64_t)r->block_size * r->reach.on[WP_TIER_DISK];
}
static uint64_t on_remote(const struct rank_match *r)
{
    return (uint64_t)r->block_size * r->reach.on[WP_TIER_REMOTE];
}
static uint64_t tree_size(const struct rank_match *r)
{
    return r->gpu_blocks;
}

typedef uint64_t (*figure)(const struct rank_match *r);

static uint64_t best(const struct rank_match r[], size_t n, figure of)
{
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = of(&r[i]) > most ? of(&r[i]) : most;
    return most;
}

static int by_rank(const struct rank_match r[], size_t n, figure of, struct wp_buf *b)
{
    int rc = wp_buf_adds(b, "{");

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = wp_buf_printf(b, "%s\"%u\":%llu", i ? "," : "", r[i].rank,
                           (unsigned long long)of(&r[i]));
    return rc ? rc : wp_buf_adds(b, "}");
}

static int member(struct wp_buf *b, const char *name, const struct rank_match r[], size_t n,
                  figure of)
{
    return wp_buf_printf(b, ",\"%s\":%llu", name, (unsigned long long)best(r, n, of));
}

/* One instance: its ranks are r[n]. */
typedef int (*writer)(const struct rank_match r[], size_t n, struct wp_buf *b);

static int scores(const struct rank_match r[], size_t n, struct wp_buf *b)
{
    return by_rank(r, n, gpu, b);
}

static int tree_sizes(const struct rank_match r[], size_t n, struct wp_buf *b)
{
    return by_rank(r, n, tree_size, b);
}

static int tenants(const struct rank_match r[], size_t n, struct wp_buf *b)
{
    int rc = wp_buf_printf(b, "{\"longest_matched\":%llu", (unsigned long long)best(r, n, whole));

    rc = rc ? rc : member(b, "GPU", r, n, on_gpu);
    rc = rc ? rc : member(b, "CPU", r, n, on_cpu);
    rc = rc ? rc : member(b, "DISK", r, n, on_disk);
    rc = rc ? rc : member(b, "REMOTE", r, n, on_remote);
    rc = rc ? rc : wp_buf_adds(b, ",\"DP\":");
    rc = rc ? rc : by_rank(r, n, whole, b);
    return rc ? rc : wp_buf_adds(b, "}");
}

static int instances(const struct rank_match r[], size_t n, struct wp_buf *b)
{
    int rc = wp_buf_printf(b, "{\"longest_matched\":%llu", (unsigned long long)best(r, n, whole));

    rc = rc ? rc : member(b, "gpu", r, n, gpu);
    rc = rc ? rc : member(b, "cpu", r, n, cpu);
    rc = rc ? rc : member(b, "disk", r, n, whole);
    rc = rc ? rc : wp_buf_adds(b, ",\"dp\":");
    rc = rc ? rc : by_rank(r, n, gpu, b);
    rc = rc ? rc : wp_buf_adds(b, ",\"rank_matches\":{");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = wp_buf_printf(b, "%s\"%u\":{\"gpu\":%llu,\"cpu\":%llu,\"disk\":%llu}", i ? "," : "",
                           r[i].rank, (unsigned long long)gpu(&r[i]),
                           (unsigned long long)cpu(&r[i]), (unsigned long long)whole(&r[i]));
    return rc ? rc : wp_buf_adds(b, "}}");
}

static int by_instance(const struct rank_match r[], size_t n, writer write, struct wp_buf *b)
{
    int rc = wp_buf_adds(b, "{");

    for (size_t i = 0, next; rc == 0 && i < n; i = next) {
        for (next = i + 1; next < n && r[next].worker == r[i].worker;)
            next++;
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : wp_buf_json(b, wp_str_of(r[i].worker->conf.id));
        rc = rc ? rc : wp_buf_adds(b, ":");
        rc = rc ? rc : write(r + i, next - i, b);
    }
    return rc ? rc : wp_buf_adds(b, "}");
}

static int answer(const struct query *q, const struct rank_match r[], size_t n, struct wp_buf *b)
{
    bool shadowed = q->conductor && wp_str_is(q->tenant, "instances");
    int rc = wp_buf_adds(b, "{");

    if (q->conductor) {
        rc = rc ? rc : wp_buf_json(b, q->tenant);
        rc = rc ? rc : wp_buf_adds(b, ":");
        rc = rc ? rc : by_instance(r, n, tenants, b);
    } else {
        rc = rc ? rc : wp_buf_adds(b, "\"scores\":");
        rc = rc ? rc : by_instance(r, n, scores, b);
        rc = rc ? rc : wp_buf_adds(b, ",\"frequencies\":[],\"tree_sizes\":");
        rc = rc ? rc : by_instance(r, n, tree_sizes, b);
    }
    if (!shadowed) {
        rc = rc ? rc : wp_buf_adds(b, ",\"instances\":");
        rc = rc ? rc : by_instance(r, n, instances, b);
    }
    return rc ? rc : wp_buf_adds(b, "}");
}

int wp_query(struct wp_fleet *f, struct wp_str body, bool by_hash, struct wp_arena *arena,
             struct wp_buf *out, struct wp_refusal *no)
{
    struct query q = {0};
    struct rank_match *match;
    int rc = read_query(&q, f, body, by_hash, arena, no);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&f->lock);
    match = wp_arena_alloc(arena, (f->n_ranks + 1) * sizeof *match);
    rc = match ? answer(&q, match, match_all(f, &q, match), out) : WP_ENOMEM;
    pthread_mutex_unlock(&f->lock);
    return rc;
}
