/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "sim/cluster_impl.h"

#include <math.h>

static bool before(const struct wp_transfer *a, const struct wp_transfer *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

static void sift_down(struct wp_cluster *c, size_t i)
{
    struct wp_transfer *t = c->heap[i];

    for (size_t kid; (kid = 2 * i + 1) < c->n_heap; i = kid) {
        if (kid + 1 < c->n_heap && before(c->heap[kid + 1], c->heap[kid]))
            kid++;
        if (!before(c->heap[kid], t))
            break;
        c->heap[i] = c->heap[kid];
    }
    c->heap[i] = t;
}

static int push(struct wp_cluster *c, struct wp_transfer *t)
{
    size_t i = c->n_heap;

    if (c->n_heap == c->cap_heap) {
        size_t cap = c->cap_heap ? 2 * c->cap_heap : 64;
        struct wp_transfer **heap = wp_realloc(c->heap, cap * sizeof(struct wp_transfer *));

        if (!heap)
            return WP_ENOMEM;
        c->heap = heap;
        c->cap_heap = cap;
    }
    c->n_heap++;
    for (; i > 0 && before(t, c->heap[(i - 1) / 2]); i = (i - 1) / 2)
        c->heap[i] = c->heap[(i - 1) / 2];
    c->heap[i] = t;
    return 0;
}

static void pop(struct wp_cluster *c)
{
    c->heap[0] = c->heap[--c->n_heap];
    if (c->n_heap)
        sift_down(c, 0);
}

static void again(struct wp_cluster *c, struct wp_transfer *t, double at_us)
{
    t->at_us = (uint64_t)ceil(fmin(at_us, 0x1p62));
    t->seq = c->seq++;
    sift_down(c, 0);
}

static int add(struct wp_cluster *c, struct wp_job *job, const struct wp_move *f)
{
    struct wp_transfer *t = wp_malloc(sizeof *t);

    if (!t)
        return WP_ENOMEM;
    *t = (struct wp_transfer){.at_us = c->now_us,
                              .seq = c->seq++,
                              .job = job,
                              .src = f->src,
                              .from = f->from,
                              .to = f->to};
    if (push(c, t) < 0) {
        wp_free(t);
        return WP_ENOMEM;
    }
    job->transfers++;
    return 0;
}

int wp_cluster_fetch(struct wp_cluster *c, struct wp_job *job, const struct wp_move fetch[],
                     size_t n)
{
    size_t me = (size_t)(job->node - c->node),
           sources = c->conf.workers + (c->conf.store_blocks > 0);
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct wp_move *f = &fetch[i];

        if (f->src < sources && f->src != me && f->from < f->to && f->to <= job->play->n_ids)
            rc = add(c, job, f);
    }
    if (job->transfers > 0)
        wp_model_keep(job->node->model, job->req);
    return rc;
}

static bool source_has(const struct wp_cluster *c, uint32_t src, uint64_t id)
{
    return src < c->conf.workers ? wp_model_where(c->node[src].model, id) >= 0
                                 : wp_cache_find(&c->store, id) != 0;
}

/* What is read is used: it stays longer where it was. */
static void read_from(struct wp_cluster *c, uint32_t src, uint64_t id)
{
    if (src < c->conf.workers)
        wp_model_lend(c->node[src].model, id);
    else
        wp_cache_touch(&c->store, wp_cache_find(&c->store, id));
}

/* The source's way out: when it is free. */
static double *way_out(struct wp_cluster *c, uint32_t src)
{
    return src < c->conf.workers ? &c->node[src].out_us : &c->store_us;
}

/* Up to the first block that the source has lost: what stands behind it would be of no use. */
static void begin(struct wp_cluster *c, struct wp_transfer *t)
{
    double rate = c->conf.link_bytes_per_s, bytes, free_us;
    uint32_t to = t->from;

    if (t->src == c->conf.workers)
        rate = fmin(rate, c->conf.store_bytes_per_s);
    while (to < t->to && source_has(c, t->src, t->job->play->id[to]))
        to++;
    for (uint32_t i = to; i-- > t->from;) /* the head of the prompt is the newest */
        read_from(c, t->src, t->job->play->id[i]);
    bytes = (to - t->from) * c->block_bytes;
    c->sum.blocks_skipped += t->to - to;
    c->sum.bytes_fetched += (uint64_t)bytes;
    t->job->bytes += (uint64_t)bytes;
    t->to = to;
    t->under_way = true;
    free_us = (double)c->now_us + 1e6 * bytes / rate;
    if (to > t->from)
        *way_out(c, t->src) = t->job->node->in_us = free_us;
    again(c, t, free_us + (to > t->from ? c->conf.link_setup_us : 0));
}

static void end(struct wp_cluster *c, struct wp_transfer *t)
{
    struct wp_job *job = t->job;

    pop(c);
    for (uint32_t i = t->to; i-- > t->from;) { /* the head of the prompt is the newest */
        wp_bit_set(job->came, i);
        wp_model_land(job->node->model, c->now_us, job->play->id[i]);
    }
    c->sum.transfers++;
    wp_free(t);
    if (--job->transfers > 0)
        return;
    wp_model_let(job->node->model, job->req, c->now_us);
    wp_cluster_node_moved(c, job->node);
}

void wp_cluster_transfer_event(struct wp_cluster *c)
{
    struct wp_transfer *t = c->heap[0];
    double free_us = fmax(*way_out(c, t->src), t->job->node->in_us);

    if (t->under_way)
        end(c, t);
    else if (free_us > (double)c->now_us)
        again(c, t, free_us);
    else
        begin(c, t);
}

void wp_cluster_to_store(struct wp_cluster *c, uint64_t id)
{
    uint32_t slot = wp_cache_find(&c->store, id);
    uint64_t out;

    if (slot != 0) {
        wp_cache_touch(&c->store, slot);
        return;
    }
    if (c->store.used == c->store.cap && wp_cache_evict(&c->store, &out))
        wp_cluster_tell_block(c, c->conf.workers, 0, false, out, c->now_us);
    wp_cache_add(&c->store, id);
    wp_cluster_tell_block(c, c->conf.workers, 0, true, id, c->now_us);
}

void wp_cluster_links_fini(struct wp_cluster *c)
{
    for (size_t i = 0; i < c->n_heap; i++)
        wp_free(c->heap[i]);
    wp_free(c->heap);
}
