/* SPDX-License-Identifier: Apache-2.0 */
/* Ours, through index/index.h alone. */
#include "tests/bench/index/bench.h"
#include "base/mem.h"
#include "index/identity.h"

#include <stdlib.h>

struct ours {
    struct wp_index *ix;
    uint32_t space, workers;
    struct wp_overlap o;
    uint32_t *holder;
};

static void *ours_create(uint32_t workers, uint64_t memberships, uint64_t blocks)
{
    struct wp_err err = WP_ERR_INIT;
    struct ours *s = wp_calloc(1, sizeof *s);
    struct wp_index_conf conf = {.secret = 1};

    (void)blocks;
    if (!s || !(s->holder = wp_calloc(workers, sizeof *s->holder)))
        return NULL;
    s->workers = workers;
    if (wp_index_create(&s->ix, &conf, &err) < 0 ||
        wp_index_space(s->ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &s->space, &err) < 0)
        return NULL;
    for (uint32_t i = 0; i < workers; i++)
        if (wp_index_holder(s->ix, WP_HOLDER_RANK, WP_NO_HOLDER, &s->holder[i], &err) < 0)
            return NULL;
    for (uint32_t i = 0; i < workers; i++) /* as an engine tells the size of its cache */
        wp_index_expect(s->ix, s->holder[i], memberships / workers);
    return wp_overlap_init(&s->o, wp_index_holders(s->ix)) < 0 ? NULL : s;
}

static void ours_destroy(void *p)
{
    struct ours *s = p;

    wp_overlap_fini(&s->o);
    wp_index_destroy(s->ix);
    wp_free(s->holder);
    wp_free(s);
}

static void *ours_prepare(void *p, const struct kv_batch *b)
{
    struct ours *s = p;
    struct wp_kv_event *ev = wp_calloc(b->n_items + 1, sizeof *ev);

    if (!ev)
        die("out of memory");
    for (size_t i = 0; i < b->n_items; i++) {
        ev[i] = kv_batch_as_event(b, &b->item[i]);
        ev[i].holder = s->holder[ev[i].holder];
        ev[i].space = s->space;
        if (ev[i].tier) /* blocks that are known already, in one more tier */
            ev[i].local = NULL;
    }
    return ev;
}

static void ours_apply(void *p, const struct kv_batch *b, void *ready, size_t from, size_t to)
{
    struct ours *s = p;
    const struct wp_kv_event *ev = ready;
    struct wp_kv_result res[64];

    (void)b;
    for (size_t i = from, n; i < to; i += n) {
        n = to - i < 64 ? to - i : 64;
        wp_index_apply_all(s->ix, &ev[i], n, res);
        for (size_t k = 0; k < n; k++)
            if (res[k].refused || res[k].unknown || res[k].floating || res[k].ignored)
                die("ours: an event was not applied whole");
    }
}

static void ours_done(void *p, void *ready)
{
    (void)p;
    wp_free(ready);
}

static uint32_t ours_lookup(void *p, const uint64_t local[], const uint64_t chain[], size_t n)
{
    struct ours *s = p;

    (void)chain;
    return (uint32_t)wp_index_overlap(s->ix, s->space, local, n, &s->o);
}

static uint64_t ours_total(void *p)
{
    const struct wp_overlap *o = &((struct ours *)p)->o;
    uint64_t sum = 0;

    for (size_t i = 0; i < o->n; i++)
        for (size_t w = 0; w < o->words; w++)
            sum += (uint64_t)o->row[i].blocks *
                   (unsigned)__builtin_popcountll((unsigned long long)o->row[i].set[w]);
    return sum;
}

static size_t ours_hash(void *p, const uint32_t token[], size_t n, uint64_t out[])
{
    (void)p;
    return wp_hash_tokens(token, n, 16, 1337, out, n / 16);
}

void ours_windows(void *p, uint32_t blocks)
{
    struct ours *s = p;

    for (uint32_t i = 0; i < s->workers; i++)
        if (wp_index_window(s->ix, s->holder[i], 1, 0, blocks) < 0)
            die("ours: no window");
}

const struct subject subject_ours = {
    .name = "warmpath",
    .what = "this index",
    .features = FEATURE_TIERS | FEATURE_WINDOWS,
    .create = ours_create,
    .destroy = ours_destroy,
    .prepare = ours_prepare,
    .apply = ours_apply,
    .done = ours_done,
    .lookup = ours_lookup,
    .total = ours_total,
    .hash = ours_hash,
};
