/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flat table with prefetch: chain hash -> 16 bytes with up to three holders, or the number of a
 * bit set.  The table is sized for the workload beforehand (load 0.7), so that it never grows.
 * Look-ups and applies look 16 blocks ahead.  A reader-writer lock guards it, which a writer takes
 * for 64 blocks at a time.  An exact answer needs one probe a block: jumping is wrong where there
 * are holes.
 */
#include "tests/bench/index/answer.h"
#include "tests/bench/index/bench.h"
#include "tests/bench/index/engmap.h"
#include "index/identity.h"

#include <stdlib.h>

enum { INLINE = 3, IN_SET = 0xFF, AHEAD = 16, SLICE = 64 };

struct entry {
    uint64_t chain;
    uint8_t n, unused; /* 0: an empty slot */
    uint16_t holder[INLINE];
};
struct bits {
    uint64_t word[ANSWER_WORDS];
};
struct flat {
    pthread_rwlock_t lock;
    struct entry *slot;
    size_t cap;
    struct bits *set;
    uint32_t n_sets, cap_sets, *free_set, n_free;
    uint32_t workers;
    struct engmap *map;
    struct answer a;
};

static size_t home_of(const struct flat *s, uint64_t chain)
{
    return engmap_spread(chain, s->cap);
}

static size_t after(const struct flat *s, size_t i)
{
    return i + 1 < s->cap ? i + 1 : 0;
}

/* The block's slot, or the empty one where it belongs. */
static size_t find(const struct flat *s, uint64_t chain)
{
    size_t i = home_of(s, chain);

    while (s->slot[i].n && s->slot[i].chain != chain)
        i = after(s, i);
    return i;
}

static struct bits *set_of(const struct flat *s, const struct entry *e)
{
    return &s->set[e->holder[0] | (uint32_t)e->holder[1] << 16];
}

static uint32_t new_set(struct flat *s)
{
    uint32_t i;

    if (s->n_free)
        return s->free_set[--s->n_free];
    if (s->n_sets == s->cap_sets) {
        s->cap_sets = s->cap_sets ? s->cap_sets * 2 : 1024;
        s->set = realloc(s->set, s->cap_sets * sizeof *s->set);
        s->free_set = realloc(s->free_set, s->cap_sets * sizeof *s->free_set);
        if (!s->set || !s->free_set)
            die("out of memory");
    }
    i = s->n_sets++;
    return i;
}

static void add_holder(struct flat *s, struct entry *e, uint32_t w)
{
    struct bits b = {{0}};
    uint32_t i;

    if (e->n == IN_SET) {
        set_of(s, e)->word[w / 64] |= (uint64_t)1 << w % 64;
        return;
    }
    for (uint32_t k = 0; k < e->n; k++)
        if (e->holder[k] == w)
            return;
    if (e->n < INLINE) {
        e->holder[e->n++] = (uint16_t)w;
        return;
    }
    for (uint32_t k = 0; k < INLINE; k++)
        b.word[e->holder[k] / 64] |= (uint64_t)1 << e->holder[k] % 64;
    b.word[w / 64] |= (uint64_t)1 << w % 64;
    i = new_set(s);
    s->set[i] = b;
    e->n = IN_SET;
    e->holder[0] = (uint16_t)i;
    e->holder[1] = (uint16_t)(i >> 16);
}

static void delete_slot(struct flat *s, size_t i)
{
    for (size_t j = after(s, i); s->slot[j].n; j = after(s, j)) {
        size_t home = home_of(s, s->slot[j].chain);

        if (i <= j ? (home <= i || home > j) : (home <= i && home > j)) {
            s->slot[i] = s->slot[j];
            i = j;
        }
    }
    s->slot[i].n = 0;
}

static void take_holder(struct flat *s, size_t i, uint32_t w)
{
    struct entry *e = &s->slot[i];

    if (e->n == IN_SET) {
        struct bits *b = set_of(s, e);
        uint64_t left = 0;

        b->word[w / 64] &= ~((uint64_t)1 << w % 64);
        for (size_t k = 0; k < ANSWER_WORDS; k++)
            left |= b->word[k];
        if (left)
            return;
        s->free_set[s->n_free++] = (uint32_t)(b - s->set);
        delete_slot(s, i);
        return;
    }
    for (uint32_t k = 0; k < e->n; k++)
        if (e->holder[k] == w) {
            e->holder[k] = e->holder[--e->n];
            if (e->n == 0) {
                e->n = 1; /* delete_slot() decides what comes here */
                delete_slot(s, i);
            }
            return;
        }
}

static void *flat_create(uint32_t workers, uint64_t memberships, uint64_t blocks)
{
    struct flat *s = calloc(1, sizeof *s);

    if (!s || workers > ANSWER_WORDS * 64)
        return NULL;
    pthread_rwlock_init(&s->lock, NULL);
    s->workers = workers;
    s->cap = blocks * 10 / 7 + 64;
    s->slot = calloc(s->cap, sizeof *s->slot);
    s->map = calloc(workers, sizeof *s->map);
    if (!s->slot || !s->map)
        return NULL;
    for (uint32_t w = 0; w < workers; w++)
        if (!engmap_init(&s->map[w], memberships / workers + 64))
            return NULL;
    return s;
}

static void flat_destroy(void *p)
{
    struct flat *s = p;

    for (uint32_t w = 0; w < s->workers; w++)
        engmap_fini(&s->map[w]);
    free(s->map);
    free(s->slot);
    free(s->set);
    free(s->free_set);
    free(s);
}

static void store_slice(struct flat *s, uint32_t w, const uint64_t engine[], const uint64_t chain[],
                        size_t n, size_t more)
{
    for (size_t i = 0; i < n; i++) {
        size_t at;

        if (i + AHEAD < n + more) {
            __builtin_prefetch(&s->slot[home_of(s, chain[i + AHEAD])]);
            engmap_prefetch(&s->map[w], engine[i + AHEAD]);
        }
        engmap_put(&s->map[w], engine[i], chain[i]);
        at = find(s, chain[i]);
        s->slot[at].chain = chain[i];
        add_holder(s, &s->slot[at], w);
    }
}

static void remove_slice(struct flat *s, uint32_t w, const uint64_t engine[], size_t n, size_t more)
{
    uint64_t chain[SLICE];
    size_t known = 0;

    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n + more)
            engmap_prefetch(&s->map[w], engine[i + AHEAD]);
        if (engmap_take(&s->map[w], engine[i], &chain[known]))
            __builtin_prefetch(&s->slot[home_of(s, chain[known++])]);
    }
    for (size_t i = 0; i < known; i++) {
        size_t at = find(s, chain[i]);

        if (s->slot[at].n)
            take_holder(s, at, w);
    }
}

static void flat_apply(void *p, const struct kv_batch *b, void *ready, size_t from, size_t to)
{
    struct flat *s = p;

    (void)ready;
    for (size_t e = from; e < to; e++) {
        const struct kv_item *it = &b->item[e];

        for (size_t i = 0; i < it->n; i += SLICE) {
            size_t n = it->n - i < SLICE ? it->n - i : SLICE, more = it->n - i - n;

            pthread_rwlock_wrlock(&s->lock);
            if (it->kind == WP_KV_STORED)
                store_slice(s, it->worker, b->engine + it->at + i, b->chain + it->at + i, n, more);
            else
                remove_slice(s, it->worker, b->engine + it->at + i, n, more);
            pthread_rwlock_unlock(&s->lock);
        }
    }
}

static uint32_t flat_lookup(void *p, const uint64_t local[], const uint64_t chain[], size_t n)
{
    struct flat *s = p;
    uint32_t i = 0;

    (void)local;
    memset(s->a.seen, 0, sizeof s->a.seen);
    pthread_rwlock_rdlock(&s->lock);
    for (size_t k = 0; k < AHEAD && k < n; k++)
        __builtin_prefetch(&s->slot[home_of(s, chain[k])]);
    for (; i < n; i++) {
        const struct entry *e = &s->slot[find(s, chain[i])];
        struct bits one = {{0}};
        const struct bits *b = &one;

        if (i + AHEAD < n)
            __builtin_prefetch(&s->slot[home_of(s, chain[i + AHEAD])]);
        if (e->n == IN_SET)
            b = set_of(s, e);
        else
            for (uint32_t k = 0; k < e->n; k++)
                one.word[e->holder[k] / 64] |= (uint64_t)1 << e->holder[k] % 64;
        if (i == 0) {
            if (!e->n)
                break;
            answer_start(&s->a, b->word);
        } else if (!answer_and(&s->a, b->word, i)) {
            break;
        }
    }
    pthread_rwlock_unlock(&s->lock);
    if (i == n && n)
        answer_end(&s->a, i);
    return i;
}

static uint64_t flat_total(void *p)
{
    return answer_total(&((struct flat *)p)->a);
}

static size_t flat_hash(void *p, const uint32_t token[], size_t n, uint64_t out[])
{
    (void)p;
    n = wp_hash_tokens(token, n, 16, 1337, out, n / 16);
    wp_hash_chain(out, n, out);
    return n;
}

const struct subject subject_flat = {
    .name = "flat",
    .what = "a flat table with prefetch",
    .features = FEATURE_CHAIN,
    .create = flat_create,
    .destroy = flat_destroy,
    .apply = flat_apply,
    .lookup = flat_lookup,
    .total = flat_total,
    .hash = flat_hash,
};
