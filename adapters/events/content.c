/* SPDX-License-Identifier: Apache-2.0 */
/* What a stored block is called by its content: tokens, adapter, salt, media items. */
#include "adapters/events/extra.h"
#include "adapters/events/ingest_impl.h"
#include "index/identity.h"

#include <stdio.h>

static const struct wp_str none;

static uint64_t salt_adds(struct wp_str salt)
{
    return wp_hash_seed(none, salt) - wp_hash_seed(none, none);
}

void wp_ingest_content(const struct wp_ingest *p, const struct wp_event *e, struct wp_content *c)
{
    struct wp_extra_names names;
    char opaque_name[32];

    wp_extra_names(e, &names);
    *c = (struct wp_content){.plain = !names.items && !names.opaque, .opaque = names.opaque};
    if (names.salt.n)
        c->salt = salt_adds(names.salt);
    else if (e->has_parent)
        wp_map_get(&p->salt, e->parent, &c->salt);
    if (names.numbered) {
        /* no adapter can be asked for by a name with a zero in it */
        int n =
            snprintf(opaque_name, sizeof opaque_name, "%cadapter %lld", 0, (long long)e->lora_id);

        names.lora = (struct wp_str){opaque_name, (size_t)n};
    }
    c->seed = wp_hash_seed(names.lora, none) + c->salt;
}

uint64_t wp_ingest_nowhere(const struct wp_ingest *p, uint64_t engine)
{
    return wp_hash_next(p->conf.secret, engine);
}

/*
 * True when the item can begin nowhere else in the block, as its tokens stand: at the start of the
 * only run of equal tokens that is longer than one.  Source: engines put one placeholder for each
 * token of an item.
 */
static bool is_fixed(const uint32_t token[], uint32_t n, int64_t offset)
{
    size_t at = (size_t)offset, end;

    if (offset < 0 || offset >= (int64_t)n)
        return false;
    for (end = at; end + 1 < n && token[end + 1] == token[at];)
        end++;
    if (end == at || (at > 0 && token[at - 1] == token[at]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (i >= at && i <= end)
            continue;
        if (token[i] == token[at] || (i + 1 < n && token[i] == token[i + 1]))
            return false;
    }
    return true;
}

/* An item that began before is where it is by the blocks before: as sure as they are. */
static bool is_vague(const struct wp_extra *b, const uint32_t token[], uint32_t n, bool before)
{
    if (b->n == 0)
        return false;
    if (b->n > 1 || !b->item[0].placed)
        return true;
    return b->item[0].offset < 0 ? before : !is_fixed(token, n, b->item[0].offset);
}

static uint64_t hash_items(const struct wp_extra *b, const uint32_t token[], uint32_t n,
                           uint64_t seed)
{
    uint64_t item[WP_EXTRA_ITEMS];

    for (size_t i = 0; i < b->n; i++)
        item[i] = b->item[i].hash;
    return wp_hash_block_items(token, n, seed, item, b->n);
}

/* Blocks with keys of their own; cut into pieces they cannot be told which piece an item is in. */
static bool hash_with_extras(struct wp_ingest *p, const struct wp_event *e,
                             const struct wp_content *c, size_t k, uint32_t width)
{
    size_t size = p->block_size;
    bool before = true, any = false;
    struct wp_extra_walk walk;
    struct wp_extra block;

    wp_extra_begin(&walk, e);
    for (size_t i = 0; wp_extra_next(&walk, &block); i++) {
        const uint32_t *token = e->token + i * k * size;
        bool opaque = block.opaque || (block.n && k > 1);

        before = is_vague(&block, token, width, before);
        any |= before && !opaque;
        p->counts.opaque += opaque;
        p->counts.vague += before && !opaque;
        for (size_t j = 0; j < k; j++) {
            size_t at = i * k + j;

            p->vague[at] = before && !opaque;
            if (opaque)
                p->local[at] = wp_ingest_nowhere(p, p->engine[at]);
            else if (block.n)
                p->local[at] = hash_items(&block, token, width, c->seed);
            else
                wp_hash_tokens(token + j * size, width, width, c->seed, &p->local[at], 1);
        }
    }
    return any;
}

bool wp_ingest_hash(struct wp_ingest *p, const struct wp_event *e, const struct wp_content *c,
                    size_t k)
{
    uint32_t width = p->block_size + e->bigram; /* pairs at stride p->block_size */

    if (!c->plain)
        return hash_with_extras(p, e, c, k, width);
    if (!e->bigram)
        wp_hash_tokens(e->token, e->n_tokens, p->block_size, c->seed, p->local, e->n * k);
    else
        for (size_t i = 0; i < e->n * k; i++)
            wp_hash_tokens(e->token + i * p->block_size, width, width, c->seed, &p->local[i], 1);
    return false;
}
