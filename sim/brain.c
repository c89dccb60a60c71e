/* SPDX-License-Identifier: Apache-2.0 */
/* The brain's life, and what it is told. */
#include "sim/brain_impl.h"

#include "base/mem.h"

#include <math.h>

void wp_brain_conf_init(struct wp_brain_conf *c)
{
    *c = (struct wp_brain_conf){
        .workers = 16,
        .block_tokens = 512,
        .profile = *wp_profile_default(),
        .nic_bytes_per_s = 25e9,
        .store_bytes_per_s = 20e9,
        .latency_us = 2000,
    };
    c->gpu_blocks = c->profile.gpu_tokens / c->block_tokens;
    c->cpu_blocks = c->profile.cpu_tokens / c->block_tokens;
    wp_policy_conf_init(&c->policy_conf);
}

static int check(const struct wp_brain_conf *c, struct wp_err *err)
{
    const struct {
        const char *name;
        double value, min, max;
    } rows[] = {
        {"workers", c->workers, 1, WP_BRAIN_WORKERS_MAX},
        {"block_tokens", c->block_tokens, 1, 1 << 20},
        {"block_bytes", c->block_bytes, 0, 1e15},
        {"nic", c->nic_bytes_per_s, 0, 1e15},
        {"storebw", c->store_bytes_per_s, 0, 1e15},
        {"lat", c->latency_us, 0, 1e12},
        {"stale", c->stale_us, 0, 1e12},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!(rows[i].value >= rows[i].min && rows[i].value <= rows[i].max))
            return wp_fail(err, WP_EINVAL, "%s: want a number from %g to %g, got %g", rows[i].name,
                           rows[i].min, rows[i].max, rows[i].value);
    return 0;
}

static int make_index(struct wp_brain *b, struct wp_err *err)
{
    struct wp_index_conf conf = {.floating_max = 1 << 20};
    int rc = wp_index_create(&b->index, &conf, err);

    rc = rc ? rc
            : wp_index_space(b->index, WP_STR("trace"), b->conf.block_tokens, WP_STR(""),
                             WP_SPACE_TOKENS, &b->space, err);
    for (uint32_t i = 0; rc == 0 && i < b->conf.workers; i++) {
        rc = wp_index_holder(b->index, WP_HOLDER_RANK, WP_NO_HOLDER, &b->worker[i].holder, err);
        if (rc == 0)
            wp_index_expect(b->index, b->worker[i].holder,
                            (size_t)(b->conf.gpu_blocks + b->conf.cpu_blocks));
    }
    if (rc == 0 && wp_overlap_init(&b->overlap, b->conf.workers) < 0)
        rc = wp_fail(err, WP_ENOMEM, "look-ups: out of memory");
    return rc;
}

static int make_workers(struct wp_brain *b, struct wp_err *err)
{
    uint32_t n = b->conf.workers;

    b->worker = wp_calloc(n, sizeof *b->worker);
    b->view = wp_calloc(n, sizeof *b->view);
    b->verdict = wp_calloc(n, sizeof *b->verdict);
    b->run = wp_calloc(n, sizeof *b->run);
    if (!b->worker || !b->view || !b->verdict || !b->run)
        return wp_fail(err, WP_ENOMEM, "workers: out of memory");
    for (uint32_t i = 0; i < n; i++)
        wp_load_init(&b->worker[i].load);
    return 0;
}

static int make_links(struct wp_brain *b, struct wp_err *err)
{
    double *rate = wp_calloc(b->conf.workers, sizeof *rate);
    int rc = WP_ENOMEM;

    for (uint32_t i = 0; rate && i < b->conf.workers; i++)
        rate[i] = b->conf.worker_nic_bytes_per_s ? b->conf.worker_nic_bytes_per_s[i]
                                                 : b->conf.nic_bytes_per_s;
    if (rate)
        rc = wp_links_init(&b->links, b->conf.workers, rate, b->conf.store_bytes_per_s,
                           b->conf.latency_us);
    wp_free(rate);
    return rc < 0 ? wp_fail(err, rc, "links: out of memory") : 0;
}

static int make_queue(struct wp_brain *b, struct wp_err *err)
{
    const struct wp_policy_conf *c = &b->conf.policy_conf;
    struct wp_queue_conf conf = {.hold_us = c->hold_us,
                                 .age = c->age,
                                 .most_us = c->hold_most_us,
                                 .tenants = b->conf.tenants};

    conf.max = c->hold_max >= 1 && c->hold_max <= 1e9 ? (size_t)c->hold_max : 0;
    return wp_queue_init(&b->queue, &conf, err);
}

int wp_brain_create(struct wp_brain **out, const struct wp_brain_conf *conf, struct wp_err *err)
{
    struct wp_brain *b = NULL;
    int rc = check(conf, err);

    *out = NULL;
    if (rc < 0)
        return rc;
    b = wp_calloc(1, sizeof *b);
    if (!b)
        return wp_fail(err, WP_ENOMEM, "brain: out of memory");
    b->conf = *conf;
    if (!(b->conf.block_bytes > 0))
        b->conf.block_bytes = (double)conf->profile.kv_bytes_per_token * conf->block_tokens;
    b->rng.state = b->flights.seed = conf->seed;
    b->chosen = WP_NO_WORKER;
    rc = wp_brain_names_init(&b->names, conf->workers, conf->seed);
    rc = rc ? rc : make_workers(b, err);
    rc = rc ? rc : make_links(b, err);
    rc = rc ? rc : make_index(b, err);
    rc = rc ? rc
            : wp_policy_create(&b->policy, conf->policy ? conf->policy : wp_policies[0]->name,
                               &conf->policy_conf, err);
    rc = rc ? rc : make_queue(b, err);
    b->conf.worker_nic_bytes_per_s = NULL;
    b->conf.policy = NULL;
    if (rc < 0) {
        wp_brain_destroy(b);
        return rc;
    }
    *out = b;
    return 0;
}

void wp_brain_destroy(struct wp_brain *b)
{
    uint64_t key, value;

    if (!b)
        return;
    for (size_t i = 0; wp_map_next(&b->flights, &i, &key, &value);)
        wp_free((void *)(uintptr_t)value);
    wp_map_fini(&b->flights);
    if (b->policy)
        b->policy->ops->destroy(b->policy);
    wp_overlap_fini(&b->overlap);
    if (b->index)
        wp_index_destroy(b->index);
    wp_brain_names_fini(&b->names);
    wp_links_fini(&b->links);
    wp_queue_fini(&b->queue);
    wp_free(b->worker);
    wp_free(b->view);
    wp_free(b->verdict);
    wp_free(b->run);
    wp_free(b->local);
    wp_free(b->chain);
    wp_free(b->span);
    wp_free(b);
}

/* A block has left a worker, or, where there is a store, that. */
static void left(struct wp_brain *b, uint32_t row, bool last)
{
    const struct wp_brain_name *r = &b->names.row[row];
    uint64_t from = (uint64_t)r->depth * b->conf.block_tokens;

    if (r->asked_us != UINT64_MAX)
        wp_room_gone(&b->room, b->now_us, b->now_us > r->asked_us ? b->now_us - r->asked_us : 0,
                     last,
                     last ? wp_prefill_us(&b->conf.profile, from, from + b->conf.block_tokens) : 0);
}

/* A block that was fetched is there: so is all of its transfer, whose last block comes first. */
static void landed(struct wp_brain *b, uint32_t row, uint32_t worker)
{
    uint64_t late = (uint64_t)b->conf.stale_us, at = b->now_us > late ? b->now_us - late : 0;

    WP_LIST_EACH(&b->links.link[worker].in, it)
    {
        struct wp_brain_move *m = WP_CONTAINER(it, struct wp_brain_move, t.of_worker);

        if (m->flight->row[m->to - 1] == row) {
            wp_links_done(&b->links, &m->t, at);
            return;
        }
    }
}

/* The tier that blocks leave a worker from, and that fetched ones come to. */
static int last_tier(const struct wp_brain *b)
{
    return b->conf.cpu_blocks ? WP_BRAIN_CPU : WP_BRAIN_GPU;
}

static void in_store(struct wp_brain *b, uint32_t row, bool stored)
{
    struct wp_brain_name *r = &b->names.row[row];

    if (r->stored && !stored && r->holders == 0)
        left(b, row, true);
    r->stored = stored;
}

bool wp_brain_is_blind(const struct wp_brain *b)
{
    return b->policy->ops->blind;
}

void wp_brain_block(struct wp_brain *b, uint64_t now_us, uint32_t worker, enum wp_brain_tier tier,
                    bool stored, uint64_t id)
{
    struct wp_brain_later *later = stored ? &b->stores : &b->removals;
    uint32_t row;

    wp_brain_advance(b, now_us);
    if (tier == WP_BRAIN_STORE ? worker != WP_BRAIN_NO_WORKER
                               : worker >= b->conf.workers || (int)tier >= WP_BRAIN_TIERS) {
        b->stats.unknown_workers++;
        return;
    }
    if (!wp_brain_find(&b->names, id, &row)) {
        b->stats.unknown_blocks++;
        return;
    }
    if (tier == WP_BRAIN_STORE) {
        in_store(b, row, stored);
        return;
    }
    if (!wp_brain_hold(&b->names, row, worker, (int)tier, stored))
        return;
    if (stored && (int)tier == last_tier(b))
        landed(b, row, worker);
    if (!stored && (int)tier >= last_tier(b) && !wp_brain_holds(&b->names, row, worker))
        left(b, row, b->names.row[row].holders == 0 && b->conf.store_blocks == 0);
    if (later->n == WP_BRAIN_LATER)
        wp_brain_flush(b);
    later->at[later->n++] = (struct wp_brain_event){row, worker, (uint8_t)tier};
}

void wp_brain_state(struct wp_brain *b, uint64_t now_us, uint64_t as_of_us, uint32_t worker,
                    const struct wp_brain_state *s)
{
    wp_brain_advance(b, now_us);
    if (worker >= b->conf.workers) {
        b->stats.unknown_workers++;
        return;
    }
    b->worker[worker].state = *s;
    b->worker[worker].reported = true;
    wp_load_told(&b->worker[worker].load, &b->conf.profile,
                 as_of_us < b->now_us ? as_of_us : b->now_us, s->prefill_tokens, s->in_flight,
                 s->decoding, s->kv_tokens);
}

static struct wp_brain_flight *flight_of(struct wp_brain *b, uint64_t req)
{
    uint64_t at;

    if (wp_map_get(&b->flights, req, &at))
        return (struct wp_brain_flight *)(uintptr_t)at;
    b->stats.unknown_requests++;
    return NULL;
}

/* Its blocks are no longer on their way: what there is of them was told. */
static void arrived(struct wp_brain *b, struct wp_brain_flight *f)
{
    if (f->first)
        return;
    f->first = true;
    for (uint32_t i = 0; i < f->n_moves; i++)
        wp_links_lost(&b->links, &f->move[i].t);
    for (size_t i = 0; i < f->n; i++) {
        struct wp_brain_claim *c = wp_brain_claim(&b->names, f->row[i], f->worker);

        if (c && c->pending)
            c->pending--;
    }
}

void wp_brain_first(struct wp_brain *b, uint64_t now_us, uint64_t req)
{
    struct wp_brain_flight *f = flight_of(b, req);

    wp_brain_advance(b, now_us);
    if (!f || !f->placed)
        return;
    arrived(b, f);
    wp_load_first(&b->worker[f->worker].load, &f->item, &b->conf.profile, b->now_us);
}

static void left_worker(struct wp_brain *b, struct wp_brain_flight *f)
{
    struct wp_brain_worker *w = &b->worker[f->worker];

    arrived(b, f);
    wp_load_end(&w->load, &f->item, &b->conf.profile, b->now_us);
    for (size_t i = 0; i < f->n; i++) {
        struct wp_brain_claim *c = wp_brain_claim(&b->names, f->row[i], f->worker);

        if (c && c->active && --c->active == 0)
            w->active_blocks--;
        wp_brain_claim_drop(&b->names, f->row[i], f->worker);
    }
    b->stats.in_flight--;
}

void wp_brain_end(struct wp_brain *b, uint64_t now_us, uint64_t req)
{
    struct wp_brain_flight *f = flight_of(b, req);

    wp_brain_advance(b, now_us);
    if (!f)
        return;
    if (f->placed) {
        left_worker(b, f);
        wp_queue_charge(&b->queue, f->who, f->req.output, b->now_us);
    }
    wp_brain_drop(b, f);
}

void wp_brain_cancel(struct wp_brain *b, uint64_t now_us, uint64_t req)
{
    wp_brain_end(b, now_us, req);
}

void wp_brain_stats(const struct wp_brain *b, struct wp_brain_stats *s)
{
    *s = b->stats;
    s->blocks = b->names.n;
    s->held = b->queue.n;
}
