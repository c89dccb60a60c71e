/* SPDX-License-Identifier: Apache-2.0 */
/* A decision: what each worker has of the prompt and what it has to do, the policy's choice, and what follows from it. */
#include "sim/brain_impl.h"

#include "base/mem.h"

#include <math.h>

int wp_brain_room(struct wp_brain *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 256;
    void *p;

    if (n <= b->cap)
        return 0;
    while (cap < n)
        cap *= 2;
    if (!(p = wp_realloc(b->row, cap * sizeof *b->row)))
        return WP_ENOMEM;
    b->row = p;
    if (!(p = wp_realloc(b->local, cap * sizeof *b->local)))
        return WP_ENOMEM;
    b->local = p;
    if (!(p = wp_realloc(b->chain, cap * sizeof *b->chain)))
        return WP_ENOMEM;
    b->chain = p;
    if (!(p = wp_realloc(b->span, cap * sizeof *b->span)))
        return WP_ENOMEM;
    b->span = p;
    b->cap = cap;
    return 0;
}

int wp_brain_rows(struct wp_brain *b, const uint64_t block[], size_t n)
{
    uint32_t parent = WP_NO_ROW;

    if (wp_brain_room(b, n) < 0)
        return WP_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (wp_brain_name(&b->names, block[i], parent, (uint32_t)i, &b->row[i]) < 0)
            return WP_ENOMEM;
        parent = b->row[i];
        b->chain[i] = block[i];
        b->local[i] = wp_index_mix(block[i], 0);
    }
    return 0;
}

static uint32_t as_tokens(const struct wp_brain *b, uint64_t blocks)
{
    uint64_t tokens = blocks * b->conf.block_tokens;

    return tokens < b->ask.tokens ? (uint32_t)tokens : b->ask.tokens;
}

/* Until something that is free at at_us is free. */
static double until(const struct wp_brain *b, uint64_t at_us)
{
    return at_us > b->now_us ? (double)(at_us - b->now_us) : 0;
}

/* Leading blocks on each worker: what the index has, and beyond it what is on its way there.  fresh_blocks counts down by what
 * requests in flight have. */
static void match(struct wp_brain *b, size_t n)
{
    const struct wp_brain_names *s = &b->names;

    wp_index_overlap(b->index, b->space, b->local, n, &b->overlap);
    for (uint32_t i = 0; i < b->conf.workers; i++) {
        struct wp_worker_view *v = &b->view[i];
        const struct wp_overlap_row *row = wp_overlap_of(&b->overlap, b->worker[i].holder);

        *v = (struct wp_worker_view){.fresh_blocks = (uint32_t)n};
        b->run[i] = row ? row->blocks : 0;
        v->has_tokens = v->index_tokens = as_tokens(b, b->run[i]);
        for (int t = 1; row && t < WP_BRAIN_TIERS; t++)
            v->hit_tier[t] = (uint32_t)((uint64_t)row->tier[t] * b->conf.block_tokens);
    }
    for (size_t k = 0; k < n; k++)
        for (uint32_t at = s->row[b->row[k]].claims; at != WP_NO_ROW; at = s->claim[at].next) {
            const struct wp_brain_claim *c = &s->claim[at];

            if (c->pending && b->run[c->worker] == k)
                b->run[c->worker]++;
            b->view[c->worker].fresh_blocks -= c->active > 0;
        }
}

static void look_at(struct wp_brain *b, uint32_t i)
{
    const struct wp_brain_worker *w = &b->worker[i];
    struct wp_worker_view *v = &b->view[i];
    uint32_t slower = 0;

    v->key = i + 1;
    v->in_flight = w->reported ? w->state.in_flight : w->load.in_flight;
    v->waiting = w->reported ? w->state.waiting : w->load.in_flight - w->load.decoding;
    v->decoding = w->reported ? w->state.decoding : w->load.decoding;
    v->kv_tokens = w->reported ? w->state.kv_tokens : w->load.kv_tokens;
    v->prefill_tokens = w->reported ? w->state.prefill_tokens : w->load.prefill_tokens;
    v->pinned = w->reported && b->conf.gpu_blocks ? (double)w->state.pinned_blocks / (double)b->conf.gpu_blocks : 0;
    v->active_blocks = w->active_blocks;
    v->wait_us = wp_load_wait_us(&w->load, &b->conf.profile, b->now_us);
    v->in_busy_us = until(b, w->in_free_us);
    v->out_busy_us = until(b, w->out_free_us);
    v->link_bytes_per_s = w->bytes_per_s;
    v->hit_tokens = as_tokens(b, b->run[i]);
    for (int t = 1; t < WP_BRAIN_TIERS; t++)
        slower += v->hit_tier[t];
    v->hit_tier[0] = v->hit_tokens > slower ? v->hit_tokens - slower : 0;
    v->block_size = b->conf.block_tokens;
    v->profile = &b->conf.profile;
    v->correction = 1;
}

/* What the store has of the prompt. */
static const struct wp_pool *pool_of(struct wp_brain *b, struct wp_pool *pool, size_t n)
{
    struct wp_span *last = NULL;

    if (b->conf.store_blocks == 0)
        return NULL;
    *pool = (struct wp_pool){.span = b->span, .busy_us = until(b, b->store_free_us), .bytes_per_s = b->conf.store_bytes_per_s};
    for (size_t i = 0; i < n; i++) {
        if (!b->names.row[b->row[i]].stored) {
            last = NULL;
            continue;
        }
        if (!last) {
            last = &b->span[pool->n++];
            last->from = as_tokens(b, i);
        }
        last->to = as_tokens(b, i + 1);
    }
    return pool;
}

/* The blocks of a transfer, and what it does to the links. */
static void move(struct wp_brain *b, uint32_t to, const struct wp_fetch *f, struct wp_brain_fetch *out)
{
    struct wp_brain_worker *w = &b->worker[to];
    uint64_t *source = f->source == WP_POOL ? &b->store_free_us : &b->worker[f->source].out_free_us;
    double rate = f->source == WP_POOL ? b->conf.store_bytes_per_s : b->worker[f->source].bytes_per_s;
    uint64_t start = b->now_us;

    out->source = f->source == WP_POOL ? WP_BRAIN_FROM_STORE : f->source;
    out->from = f->from / b->conf.block_tokens;
    out->to = (f->to + b->conf.block_tokens - 1) / b->conf.block_tokens;
    rate = fmin(rate, w->bytes_per_s);
    start = start > *source ? start : *source;
    start = start > w->in_free_us ? start : w->in_free_us;
    start += rate > 0 ? (uint64_t)fmin(1e15, (out->to - out->from) * b->conf.block_bytes / rate * 1e6) : 0;
    *source = w->in_free_us = start;
    b->stats.fetches++;
    b->stats.fetched_blocks += out->to - out->from;
}

static int placed(struct wp_brain *b, const struct wp_brain_req *r, uint32_t to, uint32_t hit)
{
    struct wp_brain_flight *f = wp_calloc(1, sizeof *f + r->n * sizeof f->row[0]);
    struct wp_brain_worker *w = &b->worker[to];

    if (!f || wp_map_put(&b->flights, r->id, (uintptr_t)f) < 0) {
        wp_free(f);
        return WP_ENOMEM;
    }
    *f = (struct wp_brain_flight){.id = r->id, .placed_us = b->now_us, .worker = to};
    for (size_t i = 0; i < r->n; i++) {
        struct wp_brain_claim *c = wp_brain_claim(&b->names, b->row[i], to);

        if (!c) /* the rest is not counted, which is not fatal */
            break;
        w->active_blocks += c->active++ == 0;
        c->pending++;
        b->names.row[b->row[i]].asked_us = b->now_us;
        f->row[f->n++] = b->row[i];
    }
    wp_load_begin(&w->load, &f->item, &b->conf.profile, b->now_us, wp_prefill_us(&b->conf.profile, hit, r->tokens), r->tokens - hit,
                  r->tokens);
    b->stats.placed++;
    b->stats.in_flight++;
    return 0;
}

static void answer(struct wp_brain *b, const struct wp_brain_req *r, struct wp_brain_answer *a)
{
    const struct wp_verdict *v = &b->verdict[b->chosen];
    uint32_t hit = b->view[b->chosen].hit_tokens;

    *a = (struct wp_brain_answer){.worker = (uint32_t)b->chosen, .predicted_us = v->ttft_us};
    for (uint32_t i = 0; i < v->n_fetch; i++) {
        if (v->fetch[i].to <= v->fetch[i].from)
            continue;
        move(b, a->worker, &v->fetch[i], &a->fetch[a->n_fetch++]);
        hit = v->fetch[i].to > hit ? v->fetch[i].to : hit;
    }
    a->hit_blocks = (uint32_t)((hit + b->conf.block_tokens - 1) / b->conf.block_tokens);
    if (a->hit_blocks > r->n)
        a->hit_blocks = (uint32_t)r->n;
}

static void decide(struct wp_brain *b, const struct wp_brain_req *r)
{
    size_t key_blocks = b->conf.policy_conf.prefix_blocks < r->n ? b->conf.policy_conf.prefix_blocks : r->n;
    struct wp_pool pool;

    b->ask = (struct wp_ask){
        .now_us = b->now_us,
        .draw = wp_rng_next(&b->rng),
        .tokens = r->tokens,
        .exact = true,
        .max_tokens = r->output,
        .prefix_key = r->n ? b->chain[key_blocks ? key_blocks - 1 : 0] + 1 : 0,
        .session_key = r->session_key,
        .chain = b->chain,
        .n_chain = r->n,
        .chain_tokens = b->conf.block_tokens,
        .latency_us = b->conf.latency_us,
    };
    match(b, r->n);
    for (uint32_t i = 0; i < b->conf.workers; i++)
        look_at(b, i);
    b->ask.pool = pool_of(b, &pool, r->n);
    b->chosen = b->policy->ops->choose(b->policy, &b->ask, b->view, b->conf.workers, b->verdict);
    b->asked_id = r->id;
    b->ask.pool = NULL;
}

int wp_brain_ask(struct wp_brain *b, uint64_t now_us, const struct wp_brain_req *r, struct wp_brain_answer *a, struct wp_err *err)
{
    uint64_t there;
    uint32_t hit;

    wp_brain_advance(b, now_us);
    b->stats.asked++;
    if (r->tokens == 0 || r->n > WP_BRAIN_BLOCKS_MAX)
        return wp_fail(err, WP_EINVAL, "a request of %u tokens in %zu blocks: want at least 1 token and at most %d blocks", r->tokens,
                       r->n, WP_BRAIN_BLOCKS_MAX);
    if (wp_map_get(&b->flights, r->id, &there))
        return wp_fail(err, WP_EINVAL, "request %llu is under way already", (unsigned long long)r->id);
    if (wp_brain_rows(b, r->block, r->n) < 0)
        return wp_fail(err, WP_ENOMEM, "request %llu: out of memory", (unsigned long long)r->id);
    wp_brain_flush(b);
    decide(b, r);
    answer(b, r, a);
    hit = (uint32_t)((uint64_t)a->hit_blocks * b->conf.block_tokens < r->tokens ? a->hit_blocks * b->conf.block_tokens : r->tokens - 1);
    if (placed(b, r, a->worker, hit) < 0)
        return wp_fail(err, WP_ENOMEM, "request %llu: out of memory", (unsigned long long)r->id);
    if (b->policy->ops->placed)
        b->policy->ops->placed(b->policy, &b->ask, &b->view[b->chosen]);
    return 0;
}

size_t wp_brain_tick(struct wp_brain *b, uint64_t now_us, wp_brain_place_fn on_place, void *arg)
{
    (void)on_place;
    (void)arg;
    wp_brain_advance(b, now_us);
    return 0;
}

uint64_t wp_brain_next_us(const struct wp_brain *b)
{
    (void)b;
    return UINT64_MAX;
}
