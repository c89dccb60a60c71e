/* SPDX-License-Identifier: Apache-2.0 */
/* A decision: what each worker has of the prompt and what it has to do, the policy's choice, and
 * what follows from it. */
#include "sim/brain_impl.h"

#include "base/mem.h"

#include <math.h>

static int make_cap(struct wp_brain *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 256;
    void *p;

    if (n <= b->cap)
        return 0;
    while (cap < n)
        cap *= 2;
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

static uint32_t as_tokens(const struct wp_brain *b, uint64_t blocks)
{
    uint64_t tokens = blocks * b->conf.block_tokens;

    return tokens < b->ask.tokens ? (uint32_t)tokens : b->ask.tokens;
}

/* Leading blocks on each worker: what the index has, and beyond it what is on its way there.
 * fresh_blocks counts down by what requests in flight have. */
static void match(struct wp_brain *b, const struct wp_brain_flight *f)
{
    const struct wp_brain_names *s = &b->names;

    for (size_t i = 0; i < f->n; i++) {
        b->chain[i] = s->row[f->row[i]].id;
        b->local[i] = wp_index_mix(b->chain[i], 0);
    }
    wp_index_overlap(b->index, b->space, b->local, f->n, &b->overlap);
    for (uint32_t i = 0; i < b->conf.workers; i++) {
        struct wp_worker_view *v = &b->view[i];
        const struct wp_overlap_row *row = wp_overlap_of(&b->overlap, b->worker[i].holder);

        *v = (struct wp_worker_view){.fresh_blocks = (uint32_t)f->n};
        b->run[i] = row ? row->blocks : 0;
        v->has_tokens = v->index_tokens = as_tokens(b, b->run[i]);
        for (int t = 1; row && t < WP_BRAIN_TIERS; t++)
            v->hit_tier[t] = (uint32_t)((uint64_t)row->tier[t] * b->conf.block_tokens);
    }
    for (size_t k = 0; k < f->n; k++)
        for (uint32_t at = s->row[f->row[k]].claims; at != WP_NO_ROW; at = s->claim[at].next) {
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
    uint32_t slower = 0, since;
    uint64_t tokens;

    wp_load_since(&w->load, &since, &tokens);
    v->key = i + 1;
    v->in_flight = w->load.in_flight;
    v->waiting = w->reported ? w->state.waiting + since : w->load.in_flight - w->load.decoding;
    v->decoding = w->reported ? w->state.decoding : w->load.decoding;
    v->kv_tokens = w->reported ? w->state.kv_tokens : w->load.kv_tokens;
    v->prefill_tokens = w->reported ? w->state.prefill_tokens + tokens : w->load.prefill_tokens;
    v->pinned = w->reported && b->conf.gpu_blocks
                    ? (double)w->state.pinned_blocks / (double)b->conf.gpu_blocks
                    : 0;
    v->active_blocks = w->active_blocks;
    v->wait_us = wp_load_wait_us(&w->load, &b->conf.profile, b->now_us);
    v->in_busy_us = wp_link_in_busy(&b->links, i, b->now_us);
    v->out_busy_us = wp_link_out_busy(&b->links, i, b->now_us);
    v->link_bytes_per_s = wp_link_rate(&b->links, i, b->now_us);
    v->hit_tokens = as_tokens(b, b->run[i]);
    for (int t = 1; t < WP_BRAIN_TIERS; t++)
        slower += v->hit_tier[t];
    v->hit_tier[0] = v->hit_tokens > slower ? v->hit_tokens - slower : 0;
    v->block_size = b->conf.block_tokens;
    v->profile = &b->conf.profile;
    v->correction = 1;
}

/* What the store has of the prompt. */
static const struct wp_pool *pool_of(struct wp_brain *b, struct wp_pool *pool,
                                     const struct wp_brain_flight *f)
{
    struct wp_span *last = NULL;

    if (b->conf.store_blocks == 0)
        return NULL;
    *pool = (struct wp_pool){
        .span = b->span,
        .busy_us = wp_link_out_busy(&b->links, b->conf.workers, b->now_us),
        .bytes_per_s = wp_link_rate(&b->links, b->conf.workers, b->now_us),
    };
    for (size_t i = 0; i < f->n; i++) {
        if (!b->names.row[f->row[i]].stored) {
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

static double least_wait(const struct wp_brain *b)
{
    double least = INFINITY;

    for (uint32_t i = 0; i < b->conf.workers; i++)
        least = fmin(least, wp_load_wait_us(&b->worker[i].load, &b->conf.profile, b->now_us));
    return wp_load_wait_to_hold(least, b->conf.policy_conf.hold_us, &b->conf.profile);
}

/* Transfers that should have ended long ago, as far as their end would have been told by now. */
static void look_for_late(struct wp_brain *b)
{
    uint64_t told =
        b->now_us > (uint64_t)b->conf.stale_us ? b->now_us - (uint64_t)b->conf.stale_us : 0;
    struct wp_transfer *t;

    while ((t = wp_links_overdue(&b->links, told))) {
        const struct wp_brain_move *m = WP_CONTAINER(t, const struct wp_brain_move, t);
        uint32_t row = m->flight->row[m->from];

        if (t->source < b->conf.workers ? wp_brain_holds(&b->names, row, t->source)
                                        : b->names.row[row].stored)
            wp_links_late(&b->links, t, told);
        else
            wp_links_lost(&b->links, t);
    }
}

/* The blocks of the plan's transfers. */
static void move(struct wp_brain *b, struct wp_brain_flight *f, struct wp_brain_answer *a)
{
    const struct wp_verdict *v = &b->verdict[b->chosen];

    for (uint32_t i = 0; i < v->n_fetch; i++) {
        const struct wp_fetch *from = &v->fetch[i];
        struct wp_brain_move *m = &f->move[f->n_moves];
        uint32_t source = from->source == WP_POOL ? b->conf.workers : from->source;

        m->flight = f;
        m->from = from->from / b->conf.block_tokens;
        m->to = (from->to + b->conf.block_tokens - 1) / b->conf.block_tokens;
        if (m->to > f->n)
            m->to = (uint32_t)f->n;
        if (source > b->conf.workers || source == a->worker || m->from >= m->to)
            continue;
        wp_links_begin(&b->links, &m->t, b->now_us, source, a->worker,
                       (m->to - m->from) * b->conf.block_bytes);
        a->fetch[a->n_fetch++] = (struct wp_brain_fetch){
            source == b->conf.workers ? WP_BRAIN_FROM_STORE : source, m->from, m->to};
        f->n_moves++;
        b->stats.fetches++;
        b->stats.fetched_blocks += m->to - m->from;
        if (m->to > a->hit_blocks)
            a->hit_blocks = m->to;
    }
}

/* The room's facts come from requests as they are placed. */
static void note_asked(struct wp_brain *b, const struct wp_brain_flight *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct wp_brain_name *r = &b->names.row[f->row[i]];

        if (r->asked_us != UINT64_MAX) {
            bool held = r->holders > 0, coming = false;

            for (uint32_t at = r->claims; !held && !coming && at != WP_NO_ROW;
                 at = b->names.claim[at].next)
                coming = b->names.claim[at].pending > 0;
            wp_room_asked(&b->room, b->now_us, b->now_us - r->asked_us, held, coming);
        }
        r->asked_us = b->now_us;
    }
    wp_room_request(&b->room, b->now_us);
}

static void claim(struct wp_brain *b, struct wp_brain_flight *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct wp_brain_claim *c = wp_brain_claim(&b->names, f->row[i], f->worker);

        if (!c) /* the rest is not counted, which is not fatal */
            break;
        b->worker[f->worker].active_blocks += c->active++ == 0;
        c->pending++;
    }
}

static void tell(const struct wp_brain *b)
{
    const struct wp_decision d = {.id = b->asked_id,
                                  .wall_us = b->now_us,
                                  .placed = true,
                                  .ask = &b->ask,
                                  .w = b->view,
                                  .v = b->verdict,
                                  .n = b->conf.workers,
                                  .chosen = b->chosen};

    if (b->conf.on_decision)
        b->conf.on_decision(b->conf.on_decision_arg, &d);
}

static void decide(struct wp_brain *b, const struct wp_brain_flight *f)
{
    size_t key_blocks =
        b->conf.policy_conf.prefix_blocks < f->n ? b->conf.policy_conf.prefix_blocks : f->n;
    struct wp_pool pool;

    b->ask = (struct wp_ask){
        .now_us = b->now_us,
        .draw = wp_rng_next(&b->rng),
        .tokens = f->req.tokens,
        .exact = true,
        .max_tokens = f->req.output,
        .session_key = f->req.session_key,
        .chain = b->chain,
        .n_chain = f->n,
        .chain_tokens = b->conf.block_tokens,
        .latency_us = b->conf.latency_us,
        .queued = b->queue.n > 0,
    };
    match(b, f);
    b->ask.prefix_key = f->n ? b->chain[key_blocks ? key_blocks - 1 : 0] + 1 : 0;
    for (uint32_t i = 0; i < b->conf.workers; i++)
        look_at(b, i);
    wp_room_price(&b->room, b->now_us, b->view, b->conf.workers,
                  wp_prefill_us(&b->conf.profile, 0, 512), &b->ask.room);
    b->ask.room.block_us *= 512.0 / b->conf.block_tokens;
    b->ask.pool = pool_of(b, &pool, f);
    b->chosen = b->policy->ops->choose(b->policy, &b->ask, b->view, b->conf.workers, b->verdict);
    b->asked_id = f->req.id;
    tell(b);
    b->ask.pool = NULL; /* it ends here */
}

void wp_brain_place(struct wp_brain *b, struct wp_brain_flight *f, struct wp_brain_answer *a)
{
    uint64_t hit;

    wp_brain_flush(b);
    look_for_late(b);
    decide(b, f);
    *a = (struct wp_brain_answer){.worker = (uint32_t)b->chosen,
                                  .predicted_us = b->verdict[b->chosen].ttft_us,
                                  .hit_blocks = b->run[b->chosen],
                                  .held_us = (double)(b->now_us - f->asked_us)};
    f->worker = a->worker;
    f->placed = true;
    if (b->policy->ops->placed)
        b->policy->ops->placed(b->policy, &b->ask, &b->view[b->chosen]);
    move(b, f, a);
    note_asked(b, f);
    claim(b, f);
    hit = (uint64_t)a->hit_blocks * b->conf.block_tokens;
    if (hit >= f->req.tokens)
        hit = f->req.tokens - 1;
    wp_load_begin(&b->worker[f->worker].load, &f->item, &b->conf.profile, b->now_us,
                  wp_prefill_us(&b->conf.profile, hit, f->req.tokens),
                  f->req.tokens - (uint32_t)hit, f->req.tokens);
    b->stats.placed++;
    b->stats.in_flight++;
}

/* Rows of its blocks; names that are new are learnt. */
static struct wp_brain_flight *take(struct wp_brain *b, const struct wp_brain_req *r)
{
    struct wp_brain_flight *f = wp_calloc(1, sizeof *f + r->n * sizeof f->row[0]);
    uint32_t parent = WP_NO_ROW;

    if (!f)
        return NULL;
    f->req = *r;
    f->req.block = NULL;
    f->who = (struct wp_queue_who){.rank = r->priority,
                                   .tenant = r->tenant,
                                   .name = r->tenant,
                                   .weight = r->weight,
                                   .tokens = r->tokens};
    f->asked_us = b->now_us;
    f->n = r->n;
    for (size_t i = 0; i < r->n; i++) {
        if (wp_brain_name(&b->names, r->block[i], parent, (uint32_t)i, &f->row[i]) < 0) {
            wp_free(f);
            return NULL;
        }
        parent = f->row[i];
    }
    return f;
}

/* What it computes where that is least, whoever may get it. */
static double least_cost(struct wp_brain *b, const struct wp_brain_flight *f)
{
    uint32_t most = 0, row = 0;
    uint64_t from;

    while (row < f->n) { /* how far anybody has it */
        const struct wp_brain_name *r = &b->names.row[f->row[row]];
        bool there = r->holders > 0 || r->stored;

        for (uint32_t at = r->claims; !there && at != WP_NO_ROW; at = b->names.claim[at].next)
            there = b->names.claim[at].pending > 0;
        if (!there)
            break;
        row++;
    }
    most = row;
    from = (uint64_t)most * b->conf.block_tokens;
    if (from >= f->req.tokens)
        from = f->req.tokens - 1;
    return wp_prefill_us(&b->conf.profile, from, f->req.tokens);
}

/* ---- the queue ---- */

void wp_brain_drop(struct wp_brain *b, struct wp_brain_flight *f)
{
    wp_queue_del(&b->queue, &f->held);
    (void)wp_map_del(&b->flights, f->req.id);
    wp_free(f);
}

static void refuse(struct wp_brain *b, struct wp_queue_item *it)
{
    struct wp_brain_flight *f = WP_CONTAINER(it, struct wp_brain_flight, held);

    b->stats.refused++;
    if (b->conf.on_refused)
        b->conf.on_refused(b->conf.on_refused_arg, f->req.id);
    wp_brain_drop(b, f);
}

/* Whether it may be held, where tenants share the queue: not when its own crowds; when all is full
 * the one that has the most gives way. */
static bool may_hold(struct wp_brain *b, const struct wp_brain_flight *f, double cost)
{
    struct wp_queue_item *last;
    double share;

    if (wp_queue_crowds(&b->queue, f->who, cost))
        return false;
    if (b->queue.n < b->queue.conf.max)
        return true;
    last = wp_queue_below(&b->queue, f->who.rank);
    if (!last) {
        last = wp_queue_last(&b->queue, &share);
        if (!(share > wp_queue_share(&b->queue, f->who)) || last->rank < f->who.rank)
            return false;
    }
    refuse(b, last);
    return true;
}

enum fate { PLACE, HOLD, REFUSE };

static enum fate fate_of(struct wp_brain *b, struct wp_brain_flight *f)
{
    double cost;

    if (!b->policy->ops->holds || b->queue.conf.max == 0)
        return PLACE;
    cost = least_cost(b, f);
    if (!wp_queue_holds(&b->queue, least_wait(b), b->now_us, cost, f->who))
        return PLACE;
    if (b->conf.tenants && !may_hold(b, f, cost))
        return REFUSE;
    return wp_queue_push(&b->queue, &f->held, b->now_us, cost, f->who, 0) ? HOLD : PLACE;
}

int wp_brain_ask(struct wp_brain *b, uint64_t now_us, const struct wp_brain_req *r,
                 struct wp_brain_answer *a, struct wp_err *err)
{
    struct wp_brain_flight *f;
    uint64_t there;

    wp_brain_advance(b, now_us);
    b->stats.asked++;
    if (r->tokens == 0 || r->n > WP_BRAIN_BLOCKS_MAX)
        return wp_fail(
            err, WP_EINVAL,
            "a request of %u tokens in %zu blocks: want at least 1 token and at most %d blocks",
            r->tokens, r->n, WP_BRAIN_BLOCKS_MAX);
    if (wp_map_get(&b->flights, r->id, &there))
        return wp_fail(err, WP_EINVAL, "request %llu is under way already",
                       (unsigned long long)r->id);
    f = make_cap(b, r->n) < 0 ? NULL : take(b, r);
    if (!f || wp_map_put(&b->flights, r->id, (uintptr_t)f) < 0) {
        wp_free(f);
        return wp_fail(err, WP_ENOMEM, "request %llu: out of memory", (unsigned long long)r->id);
    }
    switch (fate_of(b, f)) {
    case HOLD:
        b->stats.held_ever++;
        *a = (struct wp_brain_answer){.held = true, .predicted_us = NAN};
        return 0;
    case REFUSE:
        b->stats.refused++;
        *a = (struct wp_brain_answer){.refused = true, .predicted_us = NAN};
        wp_brain_drop(b, f);
        return 0;
    case PLACE:
        break;
    }
    wp_queue_charge(&b->queue, f->who, f->req.tokens, b->now_us);
    wp_brain_place(b, f, a);
    return 0;
}

size_t wp_brain_tick(struct wp_brain *b, uint64_t now_us, wp_brain_place_fn on_place, void *arg)
{
    struct wp_queue_item *it;
    size_t n = 0;

    wp_brain_advance(b, now_us);
    while ((it = wp_queue_pop(&b->queue, b->now_us, least_wait(b)))) {
        struct wp_brain_flight *f = WP_CONTAINER(it, struct wp_brain_flight, held);
        struct wp_brain_answer a;

        if (it->end == WP_QUEUE_CROWDS) {
            refuse(b, it);
            continue;
        }
        wp_brain_place(b, f, &a);
        on_place(arg, f->req.id, &a);
        n++;
    }
    return n;
}

uint64_t wp_brain_next_us(const struct wp_brain *b)
{
    return b->queue.n ? wp_queue_next_us(&b->queue, b->now_us, least_wait(b)) : UINT64_MAX;
}
