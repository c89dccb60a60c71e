/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data-parallel ranks of an engine: each a model of its own with its own cache, and its own
 * publisher of KV events, behind one HTTP port.
 *
 * What a model tells of its blocks becomes changes of its rank's feed, and leaves with the step
 * that brought it about.  An engine that has nothing to do sends what was left when a request was
 * cancelled before its step; but a reset is announced with the next step only, as vLLM does it.
 */
#include "sim/engine_impl.h"

#include "index/index.h"

#include "base/clock.h"

#include <stdio.h>

static const char *const tier_names[] = {"gpu", "cpu", "disk"};

/* ---- what the model tells ---- */

void wp_rank_on_block(void *arg, uint64_t at_us, uint64_t chain, uint8_t tier, bool stored)
{
    struct wp_rank *r = arg;
    struct wp_blocks *all = &r->engine->blocks;
    struct wp_block *b = r->publish ? wp_blocks_find(all, chain) : NULL;

    (void)at_us;
    if (!b) /* no events; or memory was short when it was named, and it is not known */
        return;
    if (stored)
        b->refs++;
    if (!r->silent)
        wp_publish_change(r->publish, stored ? WP_STORED : WP_REMOVED, tier, b);
    if (!stored)
        wp_block_unref(all, b);
}

void wp_rank_on_step(void *arg, uint64_t at_us)
{
    struct wp_rank *r = arg;

    (void)at_us;
    if (r->publish)
        wp_publish_step(r->publish);
}

static void clear(struct wp_rank *r)
{
    r->silent = true;
    wp_model_reset_cache(r->model);
    r->silent = false;
}

static void on_restart(void *arg)
{
    wp_rank_restart(arg, false);
}

void wp_rank_reset(struct wp_rank *r)
{
    clear(r);
    if (r->publish)
        wp_publish_change(r->publish, WP_CLEARED, 0, NULL);
}

void wp_rank_restart(struct wp_rank *r, bool keep)
{
    if (!keep)
        clear(r);
    if (r->publish)
        wp_publish_restart(r->publish);
}

/* ---- a turn ---- */

void wp_ranks_run(struct wp_engine *e, uint64_t until_us)
{
    for (uint32_t i = 0; i < e->n_ranks; i++) {
        struct wp_rank *r = &e->rank[i];

        wp_model_run(r->model, until_us);
        if (r->publish && wp_model_next_us(r->model) == UINT64_MAX &&
            !wp_publish_only_cleared(r->publish))
            wp_publish_step(r->publish);
    }
}

uint64_t wp_ranks_next(const struct wp_engine *e)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = 0; i < e->n_ranks; i++) {
        uint64_t next = wp_model_next_us(e->rank[i].model);

        if (next < first)
            first = next;
    }
    return first;
}

static uint64_t load_of(const struct wp_rank *r)
{
    struct wp_model_stats s;

    wp_model_stats(r->model, &s);
    return 4 * (uint64_t)s.waiting + s.running + r->stalled;
}

/* As vLLM's front end weighs them; of equals the next in turn. */
struct wp_rank *wp_ranks_least(struct wp_engine *e)
{
    struct wp_rank *best = NULL;
    uint32_t from = e->n_ranks > 1 ? e->turn++ % e->n_ranks : 0;

    for (uint32_t i = 0; i < e->n_ranks; i++) {
        struct wp_rank *r = &e->rank[(from + i) % e->n_ranks];

        if (!best || load_of(r) < load_of(best))
            best = r;
    }
    return best;
}

/* ---- pages ---- */

static void put_source(struct wp_put *o, const struct wp_engine *e, const struct wp_publish *p)
{
    const char *replay = wp_publish_replay(p);

    wp_put(o, "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":");
    wp_put_json(o, wp_str_of(wp_publish_endpoint(p)));
    wp_put(o, ",\"replay_endpoint\":");
    if (replay)
        wp_put_json(o, wp_str_of(replay));
    else
        wp_put(o, "null");
    wp_put(o, ",\"buffer_steps\":");
    wp_put_u(o, e->replay_buffer);
    wp_put(o, ",\"hwm\":100000,\"max_queue_size\":100000,\"topic\":");
    wp_put_json(o, wp_str_of(e->topic));
    wp_put(o, "}");
}

void wp_ranks_sources(const struct wp_engine *e, struct wp_put *o)
{
    wp_put(o, "{");
    for (uint32_t i = 0; i < e->n_ranks && e->rank[i].publish; i++) {
        wp_put(o, i ? ",\"" : "\"");
        wp_put_u(o, i);
        wp_put(o, "\":");
        put_source(o, e, e->rank[i].publish);
    }
    wp_put(o, "}");
}

struct dump {
    struct wp_put *o;
    const struct wp_engine *engine;
    bool tokens, comma;
    uint64_t n, sum;
};

static void put_number(struct wp_put *o,
                       uint64_t x) /* as text: JSON readers lose the low bits of 64 */
{
    wp_put(o, "\"");
    wp_put_u(o, x);
    wp_put(o, "\"");
}

static void put_block(void *arg, uint64_t chain, uint32_t copies)
{
    struct dump *d = arg;
    struct wp_put *o = d->o;
    const struct wp_block *b = wp_blocks_find(&d->engine->blocks, chain);

    wp_put(o, d->comma ? ",[" : "[");
    d->comma = true;
    put_number(o, wp_blocks_hash(d->engine->blocks.secret, chain));
    wp_put(o, ",");
    wp_put_u(o, copies);
    wp_put(o, ",");
    put_number(o, chain);
    if (b) {
        wp_put(o, ",");
        put_number(o, b->local);
        wp_put(o, ",");
        if (b->root)
            wp_put(o, "null");
        else
            put_number(o, b->parent);
    }
    if (b && d->tokens) {
        wp_put(o, ",");
        wp_put_tokens(o, b->token, d->engine->cost.block_size);
    }
    wp_put(o, "]");
}

static void put_name(void *arg, uint64_t chain, uint32_t copies)
{
    struct dump *d = arg;

    (void)copies;
    if (d->comma)
        wp_put(d->o, ",");
    d->comma = true;
    put_number(d->o, wp_blocks_hash(d->engine->blocks.secret, chain));
}

static void add_up(void *arg, uint64_t chain, uint32_t copies)
{
    struct dump *d = arg;

    (void)copies;
    d->n++;
    d->sum += wp_index_mix(wp_blocks_hash(d->engine->blocks.secret, chain), 0);
}

static void put_tier(const struct wp_model *m, uint8_t tier, enum wp_dump what, struct dump *d)
{
    if (what == WP_DUMP_DIGEST) {
        wp_model_each_block(m, tier, add_up, d);
        wp_put(d->o, "{\"names\":");
        wp_put_u(d->o, d->n);
        wp_put(d->o, ",\"digest\":");
        put_number(d->o, d->sum);
        wp_put(d->o, "}");
        return;
    }
    wp_put(d->o, "[");
    wp_model_each_block(m, tier, what == WP_DUMP_NAMES ? put_name : put_block, d);
    wp_put(d->o, "]");
}

void wp_ranks_dump(const struct wp_engine *e, enum wp_dump what, struct wp_put *o)
{
    for (uint32_t i = 0; i < e->n_ranks; i++) {
        const struct wp_rank *r = &e->rank[i];

        wp_put(o, i ? ",\"" : "{\"");
        wp_put_u(o, i);
        wp_put(o, "\":{\"next\":");
        wp_put_u(o, r->publish ? wp_publish_next(r->publish) : 0);
        wp_put(o, ",\"pending\":");
        wp_put_u(o, r->publish ? wp_publish_pending(r->publish) : 0);
        for (uint8_t t = 0; t < 3; t++) {
            struct dump d = {.o = o, .engine = e, .tokens = what == WP_DUMP_TOKENS};

            wp_put(o, ",\"");
            wp_put(o, tier_names[t]);
            wp_put(o, "\":");
            put_tier(r->model, t, what, &d);
        }
        wp_put(o, "}");
    }
    wp_put(o, "}");
}

/* ---- a life ---- */

int wp_ranks_create(struct wp_engine *e, uint32_t n, struct wp_err *err)
{
    char label[16];
    int rc = 0;

    e->rank = wp_calloc(n, sizeof *e->rank);
    if (!e->rank)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    for (; e->n_ranks < n && rc == 0; e->n_ranks++) {
        struct wp_rank *r = &e->rank[e->n_ranks];

        r->engine = e;
        r->number = e->n_ranks;
        snprintf(label, sizeof label, "%u", r->number);
        wp_gauges_init(&r->gauges, e->metrics, label, e->name);
        rc = wp_model_create(&r->model, &e->cost, &wp_engine_model_ops, r, err);
    }
    return rc;
}

int wp_ranks_announce(struct wp_engine *e, const struct wp_engine_events *ev, struct wp_err *err)
{
    struct wp_publish_conf conf = {
        .endpoint = ev->endpoint,
        .replay = ev->replay,
        .topic = e->topic,
        .mode = ev->mode,
        .bare_replies = ev->bare_replies,
        .buffer = e->replay_buffer,
        .payload = {ev->as_array, ev->hash_bytes, ev->tier_only, e->cost.block_size, 0},
        .fault = e->fault,
        .n_faults = e->n_faults,
        .seed = e->seed,
        .on_restart = on_restart,
    };
    int rc = 0;

    for (uint32_t i = 0; i < e->n_ranks && rc == 0; i++) {
        conf.payload.rank = i;
        conf.arg = &e->rank[i];
        rc = wp_publish_create(&e->rank[i].publish, e->loop, &e->blocks, &conf, err);
    }
    return rc;
}

void wp_ranks_fini(struct wp_engine *e)
{
    for (uint32_t i = 0; i < e->n_ranks; i++) {
        wp_publish_destroy(e->rank[i].publish);
        wp_model_destroy(e->rank[i].model);
    }
    wp_free(e->rank);
}
