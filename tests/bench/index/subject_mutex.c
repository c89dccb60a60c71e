/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one writes first: a hash map from chain hash to the set of holders, in 64 shards with a
 * mutex each, buckets sized for the workload beforehand; a map a worker from engine hash to chain
 * hash, with a mutex.  A look-up takes the block's shard's lock for each block and stops when
 * nobody is left.
 */
#include "tests/bench/index/answer.h"
#include "tests/bench/index/bench.h"
#include "tests/bench/index/engmap.h"
#include "index/identity.h"

#include <stdlib.h>

enum { SHARDS = 64 };

struct block {
    struct block *next;
    uint64_t chain, set[ANSWER_WORDS];
};
struct shard {
    pthread_mutex_t lock;
    struct block **bucket;
    size_t n_buckets;
};
struct sharded {
    struct shard shard[SHARDS];
    struct engmap *map;
    pthread_mutex_t *map_lock;
    uint32_t workers;
    struct answer a;
};

static void *mutex_create(uint32_t workers, uint64_t memberships, uint64_t blocks)
{
    struct sharded *s = calloc(1, sizeof *s);

    if (!s || workers > ANSWER_WORDS * 64)
        return NULL;
    s->workers = workers;
    s->map = calloc(workers, sizeof *s->map);
    s->map_lock = calloc(workers, sizeof *s->map_lock);
    if (!s->map || !s->map_lock)
        return NULL;
    for (uint32_t w = 0; w < workers; w++) {
        pthread_mutex_init(&s->map_lock[w], NULL);
        if (!engmap_init(&s->map[w], memberships / workers + 64))
            return NULL;
    }
    for (int i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&s->shard[i].lock, NULL);
        s->shard[i].n_buckets = blocks / SHARDS + 16;
        s->shard[i].bucket = calloc(s->shard[i].n_buckets, sizeof *s->shard[i].bucket);
        if (!s->shard[i].bucket)
            return NULL;
    }
    return s;
}

static void mutex_destroy(void *p)
{
    struct sharded *s = p;

    for (int i = 0; i < SHARDS; i++) {
        for (size_t k = 0; k < s->shard[i].n_buckets; k++)
            for (struct block *b = s->shard[i].bucket[k], *next; b; b = next) {
                next = b->next;
                free(b);
            }
        free(s->shard[i].bucket);
    }
    for (uint32_t w = 0; w < s->workers; w++)
        engmap_fini(&s->map[w]);
    free(s->map);
    free(s->map_lock);
    free(s);
}

static struct shard *shard_of(struct sharded *s, uint64_t chain)
{
    return &s->shard[chain % SHARDS];
}

/* Where the pointer to the block is, or would be. */
static struct block **find(struct shard *sh, uint64_t chain)
{
    struct block **at = &sh->bucket[engmap_spread(chain, sh->n_buckets)];

    while (*at && (*at)->chain != chain)
        at = &(*at)->next;
    return at;
}

static void store(struct sharded *s, uint32_t w, uint64_t engine, uint64_t chain)
{
    struct shard *sh = shard_of(s, chain);
    struct block **at;

    engmap_put(&s->map[w], engine, chain);
    pthread_mutex_lock(&sh->lock);
    at = find(sh, chain);
    if (!*at) {
        *at = calloc(1, sizeof **at);
        if (!*at)
            die("out of memory");
        (*at)->chain = chain;
    }
    (*at)->set[w / 64] |= (uint64_t)1 << w % 64;
    pthread_mutex_unlock(&sh->lock);
}

static void take(struct sharded *s, uint32_t w, uint64_t engine)
{
    uint64_t chain, left = 0;
    struct shard *sh;
    struct block **at, *b;

    if (!engmap_take(&s->map[w], engine, &chain))
        return;
    sh = shard_of(s, chain);
    pthread_mutex_lock(&sh->lock);
    at = find(sh, chain);
    b = *at;
    if (b) {
        b->set[w / 64] &= ~((uint64_t)1 << w % 64);
        for (size_t k = 0; k < ANSWER_WORDS; k++)
            left |= b->set[k];
        if (!left) {
            *at = b->next;
            free(b);
        }
    }
    pthread_mutex_unlock(&sh->lock);
}

static void mutex_apply(void *p, const struct kv_batch *b, void *ready, size_t from, size_t to)
{
    struct sharded *s = p;

    (void)ready;
    for (size_t e = from; e < to; e++) {
        const struct kv_item *it = &b->item[e];

        pthread_mutex_lock(&s->map_lock[it->worker]);
        for (size_t i = it->at; i < it->at + it->n; i++)
            if (it->kind == WP_KV_STORED)
                store(s, it->worker, b->engine[i], b->chain[i]);
            else
                take(s, it->worker, b->engine[i]);
        pthread_mutex_unlock(&s->map_lock[it->worker]);
    }
}

static uint32_t mutex_lookup(void *p, const uint64_t local[], const uint64_t chain[], size_t n)
{
    struct sharded *s = p;
    uint32_t i = 0;

    (void)local;
    memset(s->a.seen, 0, sizeof s->a.seen);
    for (; i < n; i++) {
        struct shard *sh = shard_of(s, chain[i]);
        uint64_t set[ANSWER_WORDS] = {0};
        const struct block *b;

        pthread_mutex_lock(&sh->lock);
        b = *find(sh, chain[i]);
        if (b)
            memcpy(set, b->set, sizeof set);
        pthread_mutex_unlock(&sh->lock);
        if (i == 0) {
            if (!b)
                break;
            answer_start(&s->a, set);
        } else if (!answer_and(&s->a, set, i)) {
            break;
        }
    }
    if (i == n && n)
        answer_end(&s->a, i);
    return i;
}

static uint64_t mutex_total(void *p)
{
    return answer_total(&((struct sharded *)p)->a);
}

static size_t mutex_hash(void *p, const uint32_t token[], size_t n, uint64_t out[])
{
    return subject_flat.hash(p, token, n, out);
}

const struct subject subject_mutex = {
    .name = "mutex",
    .what = "a hash map in shards with a mutex each",
    .features = FEATURE_CHAIN,
    .create = mutex_create,
    .destroy = mutex_destroy,
    .apply = mutex_apply,
    .lookup = mutex_lookup,
    .total = mutex_total,
    .hash = mutex_hash,
};
