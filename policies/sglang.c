/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/sglang.c - the cache-aware rule of SGLang's router.  It hears no events: it remembers
 * the prompts that it sent to each worker. more than balance_abs between the most and the fewest in
 * flight, and more than balance_rel times as many: fewest in flight else, more than `match` of the
 * prompt was sent to somebody before: who has most of it else: fewest in flight What is remembered
 * of each worker is a least-recently-used set of blocks in place of SGLang's tree of text, which is
 * cut by size too. A caller without names of blocks (ask->chain) gets the fewest in flight. Source:
 * SGLang, documentation of the router (cache-aware load balancing: cache_threshold,
 * balance_abs_threshold, balance_rel_threshold) and Zheng et al., "SGLang", arXiv:2312.07104.
 */
#include "policies/rules.h"

#include "base/map.h"
#include "base/mem.h"

#include <math.h>

enum { WORKERS_MAX = 1024 };

struct block {
    uint64_t id;
    uint32_t older, newer; /* block[0] is both ends */
};

struct memory {       /* of one worker */
    struct wp_map at; /* id -> its place */
    struct block *block;
    uint32_t n, room; /* of block[room + 1] */
};

struct sglang {
    struct wp_policy base;
    struct wp_policy_conf conf;
    struct wp_map row; /* a worker's key -> its memory */
    struct memory *memory;
    size_t n, cap;
};

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    struct sglang *p = wp_calloc(1, sizeof *p);

    if (!p)
        return wp_fail(err, WP_ENOMEM, "policy sglang: out of memory");
    p->base.ops = &wp_policy_sglang;
    p->conf = *conf;
    *out = &p->base;
    return 0;
}

static void forget_all(struct sglang *p)
{
    for (size_t i = 0; i < p->n; i++) {
        wp_map_fini(&p->memory[i].at);
        wp_free(p->memory[i].block);
    }
    wp_map_fini(&p->row);
    p->n = 0;
}

static void destroy(struct wp_policy *policy)
{
    struct sglang *p = (struct sglang *)policy;

    if (!p)
        return;
    forget_all(p);
    wp_free(p->memory);
    wp_free(p);
}

/* Leading blocks that were sent there. */
static size_t match(const struct sglang *p, const struct wp_ask *ask,
                    const struct wp_worker_view *w)
{
    uint64_t row;
    size_t k = 0;

    if (!ask->chain || !wp_map_get(&p->row, w->key, &row))
        return 0;
    while (k < ask->n_chain && wp_map_at(&p->memory[row].at, ask->chain[k]))
        k++;
    return k;
}

/* Of several that were sent as much, one and the same for a prefix: a tree of texts names one, too.
 */
static void spread(const struct wp_ask *ask, const struct wp_worker_view w[], size_t n,
                   size_t longest, uint64_t seed, struct wp_verdict v[])
{
    for (size_t i = 0; i < n && longest > 0; i++)
        if (v[i].price == (double)(ask->n_chain - longest + 1))
            v[i].price = v[i].term[WP_TERM_SCORE] =
                v[i].price - wp_rule_hash(ask->chain[longest - 1] ^ seed, w[i].key);
}

static size_t choose(struct wp_policy *policy, const struct wp_ask *ask,
                     const struct wp_worker_view w[], size_t n, struct wp_verdict v[])
{
    struct sglang *p = (struct sglang *)policy;
    struct wp_policy_plain plain = {.conf = p->conf};
    uint32_t most = 0, fewest = UINT32_MAX;
    size_t longest = 0, at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    for (size_t i = 0; i < n; i++) {
        most = w[i].in_flight > most ? w[i].in_flight : most;
        fewest = w[i].in_flight < fewest ? w[i].in_flight : fewest;
    }
    if (most - fewest <= p->conf.sglang_balance_abs ||
        most <= p->conf.sglang_balance_rel * fewest) {
        for (size_t i = 0; i < n; i++) {
            size_t k = match(p, ask, &w[i]);

            v[i].price = v[i].term[WP_TERM_SCORE] = (double)(ask->n_chain - k + 1);
            longest = k > longest ? k : longest;
        }
    }
    spread(ask, w, n, longest, p->conf.seed, v);
    at = (double)longest > p->conf.sglang_match * (double)ask->n_chain
             ? wp_rule_lowest(ask, v, n)
             : wp_pick_least(ask, w, n, v);
    wp_predict_chosen(&plain, ask, &w[at], &v[at]);
    return at;
}

/* ---- what was sent ---- */

static int start(struct memory *m, uint32_t room)
{
    *m = (struct memory){.room = room};
    m->block = wp_calloc((size_t)room + 1, sizeof *m->block);
    return m->block ? 0 : WP_ENOMEM;
}

static struct memory *memory_of(struct sglang *p, uint64_t key)
{
    uint64_t row;

    if (wp_map_get(&p->row, key, &row))
        return &p->memory[row];
    if (p->n == WORKERS_MAX) /* they come and go */
        forget_all(p);
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 16;
        struct memory *more = wp_realloc(p->memory, cap * sizeof *more);

        if (!more)
            return NULL;
        p->memory = more;
        p->cap = cap;
    }
    if (start(&p->memory[p->n], (uint32_t)p->conf.sglang_blocks) < 0)
        return NULL;
    if (wp_map_put(&p->row, key, p->n) < 0) {
        wp_free(p->memory[p->n].block);
        return NULL;
    }
    return &p->memory[p->n++];
}

static void take_out(struct memory *m, uint32_t i)
{
    struct block *b = m->block;

    b[b[i].older].newer = b[i].newer;
    b[b[i].newer].older = b[i].older;
}

static void put_newest(struct memory *m, uint32_t i)
{
    struct block *b = m->block;

    b[i].newer = 0;
    b[i].older = b[0].older;
    b[b[i].older].newer = i;
    b[0].older = i;
}

static void note(struct memory *m, uint64_t id)
{
    const uint64_t *at = wp_map_at(&m->at, id);
    uint32_t i;

    if (at) {
        i = (uint32_t)*at;
        take_out(m, i);
        put_newest(m, i);
        return;
    }
    i = m->n < m->room ? m->n + 1 : m->block[0].newer;
    if (i == m->block[0].newer && m->n == m->room) { /* the oldest makes room */
        at = wp_map_at(&m->at, m->block[i].id);
        if (at && *at == i)
            wp_map_del(&m->at, m->block[i].id);
        take_out(m, i);
        m->block[i].id = 0;
    }
    if (wp_map_put(&m->at, id, i) < 0) {
        if (m->n == m->room) /* its place stays, under a name that nobody asks for */
            put_newest(m, i);
        return;
    }
    m->n += m->n < m->room;
    m->block[i].id = id;
    put_newest(m, i);
}

static void placed(struct wp_policy *policy, const struct wp_ask *ask,
                   const struct wp_worker_view *w)
{
    struct memory *m = ask->chain ? memory_of((struct sglang *)policy, w->key) : NULL;

    for (size_t k = m ? ask->n_chain : 0; k-- > 0;) /* the head is the newest */
        note(m, ask->chain[k]);
}

const struct wp_policy_ops wp_policy_sglang = {
    .name = "sglang",
    .summary = "SGLang's router: the longest prompt sent before, unless queues are uneven",
    .blind = true,
    .create = create,
    .choose = choose,
    .placed = placed,
    .destroy = destroy,
};
