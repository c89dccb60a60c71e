/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/tokens/cache.h"

#include <xxhash.h>

struct entry {
    struct wp_list link;
    struct wp_tokens_key key;
    struct wp_blob *tokens;
};

struct wp_tokens_key wp_tokens_key(struct wp_str question, uint64_t secret)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(question.p, question.n, secret);

    return (struct wp_tokens_key){h.low64, h.high64, question.n};
}

bool wp_tokens_key_same(const struct wp_tokens_key *a, const struct wp_tokens_key *b)
{
    return a->low == b->low && a->high == b->high && a->n == b->n;
}

void wp_tokens_cache_init(struct wp_tokens_cache *c, size_t cap_bytes, uint64_t secret)
{
    *c = (struct wp_tokens_cache){.at.seed = secret, .cap_bytes = cap_bytes};
    wp_list_init(&c->by_use);
}

/* With its share of the map: slots are 24 bytes and at least 3/8 of them are used. */
static size_t weight(const struct wp_blob *tokens)
{
    return sizeof(struct entry) + sizeof *tokens + tokens->n + 64;
}

static struct entry *find(const struct wp_tokens_cache *c, uint64_t low)
{
    uint64_t p;

    return wp_map_get(&c->at, low, &p) ? (struct entry *)(uintptr_t)p : NULL;
}

static void drop(struct wp_tokens_cache *c, struct entry *e)
{
    c->bytes -= weight(e->tokens);
    wp_map_del(&c->at, e->key.low);
    wp_list_del(&e->link);
    wp_blob_unref(e->tokens);
    wp_free(e);
}

void wp_tokens_cache_fini(struct wp_tokens_cache *c)
{
    WP_LIST_EACH(&c->by_use, at)
    drop(c, WP_CONTAINER(at, struct entry, link));
    wp_map_fini(&c->at);
}

struct wp_blob *wp_tokens_cache_get(struct wp_tokens_cache *c, const struct wp_tokens_key *key)
{
    struct entry *e = find(c, key->low);

    if (!e || !wp_tokens_key_same(&e->key, key))
        return NULL;
    wp_list_del(&e->link);
    wp_list_push(&c->by_use, &e->link);
    return wp_blob_ref(e->tokens);
}

void wp_tokens_cache_limit(struct wp_tokens_cache *c, size_t cap_bytes)
{
    c->cap_bytes = cap_bytes;
    while (c->bytes > c->cap_bytes)
        drop(c, WP_CONTAINER(c->by_use.next, struct entry, link));
}

void wp_tokens_cache_put(struct wp_tokens_cache *c, const struct wp_tokens_key *key,
                         struct wp_blob *tokens)
{
    struct entry *e = find(c, key->low);
    size_t more = weight(tokens);

    if (e)
        drop(c, e);
    if (more > c->cap_bytes)
        return;
    while (c->bytes + more > c->cap_bytes)
        drop(c, WP_CONTAINER(c->by_use.next, struct entry, link));
    e = wp_malloc(sizeof *e);
    if (!e)
        return;
    if (wp_map_put(&c->at, key->low, (uintptr_t)e) < 0) {
        wp_free(e);
        return;
    }
    e->key = *key;
    e->tokens = wp_blob_ref(tokens);
    wp_list_push(&c->by_use, &e->link);
    c->bytes += more;
}
