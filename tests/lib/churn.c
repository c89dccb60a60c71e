/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/churn.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { CHURN_NOBODY = 0xFFFF, BLOCK_TOKENS = 16, STICKY_PERCENT = 70 };
#define NONE 0xFFFFFFFFu

/* A group of up to 32 blocks on one worker: a prefix of it, held of them.  Lists by index. */
struct churn_node {
    uint64_t key; /* of the group's blocks */
    uint32_t worker, held;
    uint32_t older, newer; /* in the worker's queue; newer chains the free ones */
};
struct churn_queue {
    uint32_t oldest, newest, held;
};

static uint64_t node_key(uint64_t group, uint32_t worker)
{
    return kv_mix(group ^ (uint64_t)worker << 48);
}

static void unlink_node(struct churn *c, uint32_t i)
{
    struct churn_node *n = &c->node[i];
    struct churn_queue *q = &c->lru[n->worker];

    *(n->older == NONE ? &q->oldest : &c->node[n->older].newer) = n->newer;
    *(n->newer == NONE ? &q->newest : &c->node[n->newer].older) = n->older;
}

static void push_newest(struct churn *c, uint32_t i)
{
    struct churn_node *n = &c->node[i];
    struct churn_queue *q = &c->lru[n->worker];

    n->older = q->newest;
    n->newer = NONE;
    *(q->newest == NONE ? &q->oldest : &c->node[q->newest].newer) = i;
    q->newest = i;
}

static uint32_t find_node(const struct churn *c, uint64_t group, uint32_t worker)
{
    uint64_t i;

    return wp_map_get(&c->at, node_key(group, worker), &i) ? (uint32_t)i : NONE;
}

static uint32_t new_node(struct churn *c, uint64_t group, uint32_t worker)
{
    uint32_t i = c->free;

    assert(i != NONE);
    c->free = c->node[i].newer;
    c->node[i] = (struct churn_node){.key = group, .worker = worker};
    if (wp_map_put(&c->at, node_key(group, worker), i) < 0)
        abort();
    push_newest(c, i);
    return i;
}

static void free_node(struct churn *c, uint32_t i)
{
    unlink_node(c, i);
    wp_map_del(&c->at, node_key(c->node[i].key, c->node[i].worker));
    c->node[i].newer = c->free;
    c->free = i;
}

/* Tails first, from the group that was used longest ago. */
static void evict(struct churn *c, uint32_t worker, uint32_t blocks, struct kv_batch *b)
{
    kv_batch_event(b, WP_KV_REMOVED, worker);
    while (blocks) {
        uint32_t i = c->lru[worker].oldest;
        struct churn_node *n = &c->node[i];

        for (; blocks && n->held; blocks--) {
            kv_batch_block(b, n->key, --n->held);
            c->lru[worker].held--;
            c->held--;
            c->evicted++;
        }
        if (n->held == 0)
            free_node(c, i);
    }
}

static uint32_t group_size(const struct churn *c, uint32_t req, uint32_t k)
{
    uint32_t from = k * CHURN_GROUP, n = c->blocks[req];

    return n - from < CHURN_GROUP ? n - from : CHURN_GROUP;
}

static uint32_t groups_of(const struct churn *c, uint32_t req)
{
    return (c->blocks[req] + CHURN_GROUP - 1) / CHURN_GROUP;
}

static uint32_t choose(struct churn *c, uint32_t req, uint32_t salt_slot)
{
    const uint32_t *id = c->id + c->first[req];
    uint32_t n = groups_of(c, req), base;
    const uint16_t *last = c->last + (size_t)salt_slot * c->n_ids;

    for (uint32_t k = n; k-- > 1;) /* the first id is the system prompt: nobody's conversation */
        if (last[id[k]] != CHURN_NOBODY) {
            if (wp_rng_below(&c->rng, 100) < STICKY_PERCENT)
                return last[id[k]];
            break;
        }
    base = (uint32_t)(kv_key(c->epoch + salt_slot, id[n > 1]) % c->conf.workers);
    return (uint32_t)((base + wp_rng_below(&c->rng, CHURN_NEAR)) % c->conf.workers);
}

/* Leading blocks of the prompt that the worker has.  Their groups become the newest, heads last. */
static uint32_t hit(struct churn *c, uint32_t req, uint32_t salt, uint32_t worker)
{
    const uint32_t *id = c->id + c->first[req];
    uint32_t groups = groups_of(c, req), k = 0, blocks = 0, found[CHURN_EVENT_MAX / CHURN_GROUP];

    for (uint32_t size; k < groups; k++) {
        size = group_size(c, req, k);
        found[k] = find_node(c, kv_key(salt, id[k]), worker);
        if (found[k] == NONE)
            break;
        blocks += c->node[found[k]].held < size ? c->node[found[k]].held : size;
        if (c->node[found[k]].held < size) {
            k++;
            break;
        }
    }
    while (k-- > 0) {
        unlink_node(c, found[k]);
        push_newest(c, found[k]);
    }
    return blocks;
}

static void store(struct churn *c, uint32_t req, uint32_t salt, uint32_t worker, uint32_t have,
                  struct kv_batch *b)
{
    const uint32_t *id = c->id + c->first[req];
    uint32_t groups = groups_of(c, req), n = c->blocks[req];

    kv_batch_event(b, WP_KV_STORED, worker);
    if (have)
        kv_batch_parent(b, kv_key(salt, id[(have - 1) / CHURN_GROUP]), (have - 1) % CHURN_GROUP);
    for (uint32_t i = have; i < n; i++)
        kv_batch_block(b, kv_key(salt, id[i / CHURN_GROUP]), i % CHURN_GROUP);
    for (uint32_t k = groups; k-- > 0;) { /* heads last, so that they are the newest */
        uint64_t group = kv_key(salt, id[k]);
        uint32_t i = find_node(c, group, worker), size = group_size(c, req, k);

        if (i == NONE) {
            i = new_node(c, group, worker);
        } else {
            unlink_node(c, i);
            push_newest(c, i);
        }
        if (c->node[i].held < size) {
            c->lru[worker].held += size - c->node[i].held;
            c->held += size - c->node[i].held;
            c->node[i].held = size;
        }
    }
}

struct churn_prompt churn_next(struct churn *c, struct kv_batch *b)
{
    uint32_t req = c->next, slot = c->turn, salt = c->epoch + slot, worker = choose(c, req, slot);
    uint32_t have = hit(c, req, salt, worker), need = c->blocks[req] - have;
    uint32_t room = c->conf.capacity - c->lru[worker].held;
    struct churn_prompt p = {req, salt, worker};

    if (need > room)
        evict(c, worker, need - room, b);
    if (need)
        store(c, req, salt, worker, have, b);
    for (uint32_t k = 0; k < groups_of(c, req); k++)
        c->last[(size_t)slot * c->n_ids + c->id[c->first[req] + k]] = (uint16_t)worker;
    c->log[c->logged++ % CHURN_LOG] = p;
    if (++c->turn == c->conf.salts) {
        c->turn = 0;
        c->next++;
    }
    if (c->next == c->n_req) {
        c->next = 0;
        c->epoch += c->conf.salts;
        memset(c->last, 0xFF, (size_t)c->conf.salts * c->n_ids * sizeof *c->last);
    }
    return p;
}

void churn_fill(struct churn *c, struct kv_batch *b, size_t blocks)
{
    while (b->n < blocks)
        churn_next(c, b);
}

bool churn_filling(const struct churn *c)
{
    return (double)c->held < 0.95 * c->conf.workers * c->conf.capacity;
}

static bool held_whole(const struct churn *c, const struct churn_prompt *p, uint32_t groups)
{
    for (uint32_t k = groups; k-- > 0;) {
        uint32_t i = find_node(c, kv_key(p->salt, c->id[c->first[p->req] + k]), p->worker);

        if (i == NONE || c->node[i].held < CHURN_GROUP)
            return false;
    }
    return true;
}

size_t churn_prompts(const struct churn *c, uint32_t n, struct churn_prompt out[], size_t cap)
{
    struct wp_map seen = {.seed = 1};
    uint32_t groups = n / CHURN_GROUP;
    uint64_t oldest = c->logged > CHURN_LOG ? c->logged - CHURN_LOG : 0, known;
    size_t found = 0;

    for (uint64_t i = c->logged; i-- > oldest && found < cap;) {
        const struct churn_prompt *p = &c->log[i % CHURN_LOG];
        uint64_t key;

        if (c->blocks[p->req] < n)
            continue;
        key = kv_key(p->salt, c->id[c->first[p->req] + groups - 1]);
        if (wp_map_get(&seen, key, &known) || !held_whole(c, p, groups))
            continue;
        if (wp_map_put(&seen, key, 1) < 0)
            abort();
        out[found++] = *p;
    }
    wp_map_fini(&seen);
    return found;
}

size_t churn_hashes(const struct churn *c, const struct churn_prompt *p, size_t n, uint64_t local[],
                    uint64_t chain[])
{
    const uint32_t *id = c->id + c->first[p->req];

    n = n < c->blocks[p->req] ? n : c->blocks[p->req];
    for (size_t i = 0; i < n; i++) {
        local[i] = kv_local(kv_key(p->salt, id[i / CHURN_GROUP]), (uint32_t)(i % CHURN_GROUP));
        if (chain)
            chain[i] = kv_chain(local[i]);
    }
    return n;
}

/* Ids become 0, 1, 2 ...; a prompt is cut to half of what a worker can keep. */
static int read_trace(struct churn *c)
{
    const struct wp_trace *t = c->conf.trace;
    struct wp_map dense = {.seed = 1};
    uint32_t most = c->conf.capacity / 2 / CHURN_GROUP * CHURN_GROUP;
    size_t ids = 0;
    int rc = 0;

    if (most > CHURN_EVENT_MAX / 2)
        most = CHURN_EVENT_MAX / 2;
    for (size_t i = 0; i < t->n; i++)
        ids += t->req[i].n_ids;
    c->id = wp_calloc(ids + 1, sizeof *c->id);
    c->first = wp_calloc(t->n + 1, sizeof *c->first);
    c->blocks = wp_calloc(t->n + 1, sizeof *c->blocks);
    if (!c->id || !c->first || !c->blocks)
        return WP_ENOMEM;
    ids = 0;
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        uint32_t n = t->req[i].input / BLOCK_TOKENS;

        if (n > t->req[i].n_ids * CHURN_GROUP)
            n = t->req[i].n_ids * CHURN_GROUP;
        if (n == 0)
            continue;
        c->first[c->n_req] = ids;
        c->blocks[c->n_req++] = n < most ? n : most;
        for (uint32_t k = 0; k < t->req[i].n_ids && rc == 0; k++) {
            uint64_t *at = wp_map_at(&dense, t->req[i].id[k]);

            c->id[ids++] = at ? (uint32_t)*at : c->n_ids;
            if (!at)
                rc = wp_map_put(&dense, t->req[i].id[k], c->n_ids++);
        }
    }
    wp_map_fini(&dense);
    return rc;
}

/* All of it is touched now, so that the process does not grow while something is measured. */
static int make_room(struct churn *c)
{
    const struct churn_conf *conf = &c->conf;
    int rc = 0;

    /* Few groups are held in part: a prompt has one at its end, a worker one at its oldest end. */
    c->n_nodes = conf->workers * (conf->capacity / CHURN_GROUP * 2 + 64);
    c->node = wp_calloc(c->n_nodes, sizeof *c->node);
    c->lru = wp_calloc(conf->workers, sizeof *c->lru);
    c->last = wp_malloc((size_t)conf->salts * (c->n_ids + 1) * sizeof *c->last);
    c->log = wp_malloc(CHURN_LOG * sizeof *c->log);
    if (!c->node || !c->lru || !c->last || !c->log)
        return WP_ENOMEM;
    memset(c->log, 0, CHURN_LOG * sizeof *c->log);
    memset(c->last, 0xFF, (size_t)conf->salts * (c->n_ids + 1) * sizeof *c->last);
    for (uint32_t w = 0; w < conf->workers; w++)
        c->lru[w] = (struct churn_queue){NONE, NONE, 0};
    for (uint32_t i = 0; i < c->n_nodes; i++)
        c->node[i].newer = i + 1 < c->n_nodes ? i + 1 : NONE;
    for (uint32_t i = 0; i < c->n_nodes && rc == 0; i++)
        rc = wp_map_put(&c->at, kv_mix(i), 0);
    for (uint32_t i = 0; i < c->n_nodes; i++)
        wp_map_del(&c->at, kv_mix(i));
    return rc;
}

int churn_init(struct churn *c, const struct churn_conf *conf, struct wp_err *err)
{
    int rc;

    *c = (struct churn){.conf = *conf, .at = {.seed = 1}, .rng = {conf->seed}};
    if (!conf->trace->n || !conf->workers || conf->workers >= CHURN_NOBODY || !conf->salts ||
        conf->salts > CHURN_SALTS_MAX || conf->capacity < 4 * CHURN_GROUP)
        return wp_fail(err, WP_EINVAL,
                       "churn: want a trace, 1 to 65,534 workers, 1 to %d salts and room for %d "
                       "blocks",
                       CHURN_SALTS_MAX, 4 * CHURN_GROUP);
    rc = read_trace(c);
    if (rc == 0)
        rc = make_room(c);
    if (rc < 0) {
        churn_fini(c);
        return wp_fail(err, WP_ENOMEM, "churn: out of memory");
    }
    return 0;
}

void churn_fini(struct churn *c)
{
    wp_free(c->node);
    wp_free(c->lru);
    wp_free(c->id);
    wp_free(c->first);
    wp_free(c->blocks);
    wp_free(c->last);
    wp_free(c->log);
    wp_map_fini(&c->at);
    *c = (struct churn){0};
}
