/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/blocks.h"

#include "base/mem.h"

#include <xxhash.h>

uint64_t wp_blocks_hash(uint64_t secret, uint64_t chain)
{
    return XXH3_64bits_withSeed(&chain, sizeof chain, secret);
}

static void block_free(struct wp_block *b)
{
    wp_free(b->salt);
    wp_free(b);
}

static struct wp_block *block_make(const struct wp_blocks *all, uint64_t chain,
                                   const uint64_t *parent, uint64_t local, const uint32_t token[],
                                   const struct wp_block_facts *facts)
{
    struct wp_block *b = wp_malloc(sizeof *b + all->block_size * sizeof token[0]);

    if (!b)
        return NULL;
    *b = (struct wp_block){
        .chain = chain,
        .parent = parent ? *parent : 0,
        .local = local,
        .hash = wp_blocks_hash(all->secret, chain),
        .parent_hash = parent ? wp_blocks_hash(all->secret, *parent) : 0,
        .adapter = facts->adapter,
        .adapter_id = facts->adapter_id,
        .root = !parent,
    };
    memcpy(b->token, token, all->block_size * sizeof token[0]);
    if (b->root && facts->salt.n) {
        b->salt = wp_strndup(facts->salt.p, facts->salt.n);
        if (!b->salt) {
            wp_free(b);
            return NULL;
        }
    }
    return b;
}

struct wp_block *wp_blocks_get(struct wp_blocks *all, uint64_t chain, const uint64_t *parent,
                               uint64_t local, const uint32_t token[],
                               const struct wp_block_facts *facts)
{
    struct wp_block *b = wp_blocks_find(all, chain);

    if (!b) {
        b = block_make(all, chain, parent, local, token, facts);
        if (!b)
            return NULL;
        if (wp_map_put(&all->by_chain, chain, (uint64_t)(uintptr_t)b) < 0) {
            block_free(b);
            return NULL;
        }
    }
    b->refs++;
    return b;
}

struct wp_block *wp_blocks_find(const struct wp_blocks *all, uint64_t chain)
{
    uint64_t p;

    return wp_map_get(&all->by_chain, chain, &p) ? (struct wp_block *)(uintptr_t)p : NULL;
}

void wp_block_unref(struct wp_blocks *all, struct wp_block *b)
{
    if (!b || --b->refs > 0)
        return;
    wp_map_del(&all->by_chain, b->chain);
    block_free(b);
}

void wp_blocks_fini(struct wp_blocks *all)
{
    uint64_t chain, p;

    for (size_t i = 0; wp_map_next(&all->by_chain, &i, &chain, &p);)
        block_free((struct wp_block *)(uintptr_t)p);
    wp_map_fini(&all->by_chain);
}
