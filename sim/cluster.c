/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cluster.h"
#include "base/mem.h"
#include "sim/cluster_impl.h"

#include <assert.h>
#include <string.h>

/* ---- whose turn it is: a tournament over the engines' next events ---- */

static uint32_t earlier(const struct wp_cluster *c, uint32_t a, uint32_t b)
{
    uint64_t at_a = a < c->conf.workers ? c->node[a].next_us : UINT64_MAX;
    uint64_t at_b = b < c->conf.workers ? c->node[b].next_us : UINT64_MAX;

    return at_b < at_a ? b : a;
}

void wp_cluster_node_moved(struct wp_cluster *c, struct wp_node *n)
{
    uint64_t at = wp_model_next_us(n->model);
    size_t i = c->leaves + (size_t)(n - c->node);

    if (at == n->next_us)
        return;
    n->next_us = at;
    for (i /= 2; i > 0; i /= 2)
        c->winner[i] = earlier(c, c->winner[2 * i], c->winner[2 * i + 1]);
}

/* ---- what the engines tell ---- */

/* What a request will compute counts as there for those behind it, until it is. */
static int comes(struct wp_node *n, const struct wp_play *p)
{
    for (uint32_t i = 0; i < p->n_ids; i++) {
        uint64_t *count = wp_map_at(&n->coming, p->id[i]);

        if (count)
            ++*count;
        else if (wp_map_put(&n->coming, p->id[i], 1) < 0)
            return WP_ENOMEM;
    }
    return 0;
}

static void came(struct wp_node *n, const struct wp_play *p)
{
    for (uint32_t i = 0; i < p->n_ids; i++) {
        uint64_t *count = wp_map_at(&n->coming, p->id[i]);

        if (count && --*count == 0)
            (void)wp_map_del(&n->coming, p->id[i]);
    }
}

static void on_first(struct wp_cluster *c, struct wp_job *job, uint64_t at_us)
{
    job->first_us = at_us;
    came(job->node, job->play);
    wp_model_cached(job->req, job->hit);
    c->room = true;
    if (c->ops.on_first)
        c->ops.on_first(c->arg, at_us, (size_t)(job->node - c->node), job->play);
}

static void on_tokens(void *req_arg, uint64_t at_us, uint32_t n, bool first)
{
    struct wp_job *job = req_arg;

    (void)n;
    if (first)
        on_first(job->node->cluster, job, at_us);
}

/* Of the leading blocks that were hit, those that were fetched for this request, in tokens. */
static uint32_t fetched_tokens(const struct wp_cluster *c, const struct wp_job *job)
{
    uint32_t block = c->conf.engine.block_size, hits = job->hit[0] + job->hit[1] + job->hit[2],
             sum = 0;

    if (job->bytes == 0)
        return 0;
    for (uint32_t i = 0; i * block < hits; i++) {
        uint32_t left = hits - i * block;

        if (wp_bit(job->came, i))
            sum += left < block ? left : block;
    }
    return sum;
}

static void on_done(void *req_arg, uint64_t at_us)
{
    struct wp_job *job = req_arg;
    struct wp_node *n = job->node;
    struct wp_cluster *c = n->cluster;
    struct wp_outcome o = {
        .play = job->play,
        .worker = (size_t)(n - c->node),
        .placed_us = job->placed_us,
        .first_us = job->first_us,
        .done_us = at_us,
        .gpu = job->hit[0],
        .cpu = job->hit[1],
        .disk = job->hit[2],
        .fetched = fetched_tokens(c, job),
        .bytes_fetched = job->bytes,
    };
    uint32_t from_cpu = o.fetched < o.cpu ? o.fetched : o.cpu;

    o.cpu -=
        from_cpu; /* that is where they landed, and another request may have taken them up since */
    o.gpu -= o.fetched - from_cpu;
    n->in_flight--;
    c->in_flight--;
    c->room = true;
    if (c->ops.on_end)
        c->ops.on_end(c->arg, at_us, o.worker, &o);
    wp_free(job);
}

static void on_block(void *model_arg, uint64_t at_us, uint64_t id, uint8_t tier, bool stored)
{
    struct wp_node *n = model_arg;
    struct wp_cluster *c = n->cluster;

    wp_cluster_tell_block(c, (size_t)(n - c->node), tier, stored, id, at_us);
    if (!stored && tier == 1 && c->conf.store_blocks)
        wp_cluster_to_store(c, id);
}

static void on_step(void *model_arg, uint64_t at_us)
{
    struct wp_node *n = model_arg;

    n->changed = true;
    if (n->cluster->conf.stale_us)
        wp_cluster_tell_state(n->cluster, n, at_us);
}

static const struct wp_model_ops model_ops = {on_tokens, on_done, on_block, on_step};

/* ---- the fleet ---- */

static int make_nodes(struct wp_cluster *c, struct wp_err *err)
{
    struct wp_model_conf engine = c->conf.engine;
    int rc = 0;

    engine.merge_tokens = true;
    for (size_t i = 0; i < c->conf.workers && rc == 0; i++) {
        c->node[i].cluster = c;
        c->node[i].next_us = UINT64_MAX;
        rc = wp_model_create(&c->node[i].model, &engine, &model_ops, &c->node[i], err);
    }
    for (size_t i = 0; i < c->leaves; i++)
        c->winner[c->leaves + i] = (uint32_t)i;
    for (size_t i = c->leaves; i-- > 1;)
        c->winner[i] = earlier(c, c->winner[2 * i], c->winner[2 * i + 1]);
    return rc;
}

int wp_cluster_create(struct wp_cluster **out, const struct wp_cluster_conf *conf,
                      const struct wp_cluster_ops *ops, void *arg, struct wp_err *err)
{
    struct wp_cluster *c;
    int rc;

    if (conf->workers == 0 || conf->workers > WP_CLUSTER_WORKERS_MAX)
        return wp_fail(err, WP_EINVAL, "want 1 to %d workers, got %zu", WP_CLUSTER_WORKERS_MAX,
                       conf->workers);
    if (!(conf->link_bytes_per_s > 0) || !(conf->link_setup_us >= 0) ||
        (conf->store_blocks && !(conf->store_bytes_per_s > 0)))
        return wp_fail(err, WP_EINVAL, "want bandwidths above 0 and a set-up time of at least 0");
    c = wp_calloc(1, sizeof *c);
    if (!c)
        return wp_fail(err, WP_ENOMEM, "out of memory for a fleet");
    c->conf = *conf;
    c->ops = *ops;
    c->arg = arg;
    c->block_bytes =
        (double)conf->engine.block_size * (double)conf->engine.profile.kv_bytes_per_token;
    for (c->leaves = 1; c->leaves < conf->workers; c->leaves *= 2)
        ;
    c->node = wp_calloc(conf->workers, sizeof *c->node);
    c->winner = wp_calloc(2 * c->leaves, sizeof *c->winner);
    rc = c->node && c->winner
             ? wp_cache_init(&c->store, conf->store_blocks, conf->engine.secret, err)
             : wp_fail(err, WP_ENOMEM, "out of memory for %zu workers", conf->workers);
    if (rc == 0)
        rc = make_nodes(c, err);
    if (rc < 0) {
        wp_cluster_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

static void free_job(void *req_arg)
{
    wp_free(req_arg);
}

void wp_cluster_destroy(struct wp_cluster *c)
{
    if (!c)
        return;
    wp_cluster_links_fini(c);
    for (size_t i = 0; c->node && i < c->conf.workers; i++) {
        if (c->node[i].model)
            wp_model_each_req(c->node[i].model, free_job);
        wp_model_destroy(c->node[i].model);
        wp_map_fini(&c->node[i].coming);
    }
    wp_cache_fini(&c->store);
    wp_free(c->late);
    wp_free(c->node);
    wp_free(c->winner);
    wp_free(c);
}

/* Leading blocks that the worker has, or will have when the plan and the requests before it work
 * out. */
static uint32_t expected(const struct wp_node *n, const struct wp_play *p,
                         const struct wp_move fetch[], size_t n_fetch)
{
    uint32_t i = 0;

    for (; i < p->n_ids; i++) {
        bool comes = false;

        for (size_t k = 0; k < n_fetch && !comes; k++)
            comes = fetch[k].from <= i && i < fetch[k].to;
        if (!comes && wp_model_where(n->model, p->id[i]) < 0 && !wp_map_at(&n->coming, p->id[i]))
            break;
    }
    return i;
}

int wp_cluster_place(struct wp_cluster *c, const struct wp_play *p, size_t worker,
                     const struct wp_move fetch[], size_t n, struct wp_err *err)
{
    size_t words = n ? (p->n_ids + 63) / 64 : 0;
    struct wp_node *node = &c->node[worker];
    struct wp_job *job;
    int rc;

    if (worker >= c->conf.workers)
        return wp_fail(err, WP_EINVAL, "there is no worker %zu", worker);
    job = wp_malloc(sizeof *job + words * sizeof job->came[0]);
    if (!job)
        return wp_fail(err, WP_ENOMEM, "out of memory for a request");
    *job = (struct wp_job){.play = p, .node = node, .placed_us = c->now_us};
    if (words > 0)
        memset(job->came, 0, words * sizeof job->came[0]);
    rc = wp_model_submit(node->model, c->now_us, p->id, p->n_ids, p->input, p->output, job,
                         &job->req, err);
    if (rc < 0) {
        wp_free(job);
        return rc;
    }
    wp_model_expect(node->model, job->req, expected(node, p, fetch, n) * c->conf.engine.block_size);
    if (comes(node, p) < 0)
        c->rc = wp_fail(err, WP_ENOMEM, "out of memory for what is coming");
    node->in_flight++;
    c->in_flight++;
    node->changed = true;
    if (n > 0 && wp_cluster_fetch(c, job, fetch, n) < 0)
        c->rc = wp_fail(err, WP_ENOMEM, "out of memory for a fetch");
    wp_cluster_node_moved(c, node);
    if (c->conf.stale_us)
        wp_cluster_tell_state(c, node, c->now_us);
    return c->rc;
}

uint64_t wp_cluster_next_us(const struct wp_cluster *c)
{
    uint32_t first = c->leaves > 1 ? c->winner[1] : 0;
    uint64_t at = c->node[first].next_us, late = wp_cluster_late_us(c);

    if (c->n_heap && c->heap[0]->at_us < at)
        at = c->heap[0]->at_us;
    return late < at ? late : at;
}

static void tell_states(struct wp_cluster *c)
{
    for (size_t i = 0; i < c->conf.workers; i++) {
        if (!c->node[i].changed)
            continue;
        c->node[i].changed = false;
        if (!c->conf.stale_us)
            wp_cluster_tell_state(c, &c->node[i], c->now_us);
    }
}

static void one_event(struct wp_cluster *c, uint64_t at)
{
    struct wp_node *n = &c->node[c->leaves > 1 ? c->winner[1] : 0];

    c->now_us = at;
    if (n->next_us == at) {
        wp_model_run(n->model, at);
        wp_cluster_node_moved(c, n);
    } else if (c->n_heap && c->heap[0]->at_us == at) {
        wp_cluster_transfer_event(c);
    } else {
        wp_cluster_late_event(c);
    }
    if (!c->room)
        return;
    c->room = false;
    if (c->ops.on_room) {
        tell_states(c);
        c->ops.on_room(c->arg, at);
    }
}

int wp_cluster_run(struct wp_cluster *c, uint64_t until_us, struct wp_err *err)
{
    uint64_t at;

    while ((at = wp_cluster_next_us(c)) <= until_us && at != UINT64_MAX && c->rc == 0)
        one_event(c, at > c->now_us ? at : c->now_us);
    if (until_us != UINT64_MAX && until_us > c->now_us)
        c->now_us = until_us;
    tell_states(c);
    return c->rc < 0 ? wp_fail(err, c->rc, "fleet: out of memory") : 0;
}

void wp_cluster_stats(const struct wp_cluster *c, struct wp_cluster_stats *s)
{
    struct wp_model_stats m;

    *s = c->sum;
    s->in_flight = c->in_flight;
    for (size_t i = 0; i < c->conf.workers; i++) {
        wp_model_stats(c->node[i].model, &m);
        s->steps += m.steps;
    }
}
