/* SPDX-License-Identifier: Apache-2.0 */
/* How floating chains find their place by a prompt that they line up with. */
#include "index/inside.h"

/* How many blocks that the holder has below the awaited node lie on the prompt, from block k on;
 * the tier of the first. */
static size_t line_up(const struct wp_index *ix, uint32_t awaited, const uint64_t local[], size_t n,
                      size_t k, uint8_t *tier)
{
    uint32_t node = awaited;
    size_t held = 0;

    for (; k < n && (node = wp_float_child(ix, node, local[k])) != 0; k++) {
        uint8_t tiers = wp_fnode_at(&ix->floats, node)->held;

        if (tiers && !held++)
            *tier = (uint8_t)__builtin_ctz(tiers);
    }
    return held;
}

/* The one block of the prompt from which most lies on it; 0: none, or not certain. */
static size_t place_of(const struct wp_index *ix, uint32_t awaited, const uint64_t local[],
                       size_t n, uint8_t *tier)
{
    size_t best = 0, most = 0;

    for (size_t k = 1; k < n; k++) {
        uint8_t its = 0;
        size_t held = line_up(ix, awaited, local, n, k, &its);

        if (held && held == most)
            best = 0;
        if (held > most) {
            most = held;
            best = k;
            *tier = its;
        }
    }
    return best;
}

/* The prompt's first k blocks count as held by the holder, in doubt; what is awaited is block k
 * - 1.  False: no memory. */
static bool hang_on_prompt(struct wp_index *ix, uint32_t awaited, const uint64_t local[], size_t k,
                           uint8_t tier)
{
    const struct wp_fnode *node = wp_fnode_at(&ix->floats, awaited);
    uint32_t place = WP_NOWHERE, below, holder = node->holder, space = node->space;
    struct wp_arrival a = {.holder = holder, .space = space, .awaited = true};
    bool ok = true;

    for (size_t i = 0; ok && i < k; i++) {
        below = wp_place_below(ix, space, place, local[i]);
        if (below == WP_NOWHERE) {
            ok = wp_place_reserve(ix) == 0;
            if (ok)
                below = wp_place_make(ix, space, place, local[i]);
        }
        if (!ok)
            break;
        wp_run_pin(ix, wp_place_run(below)); /* what is below a guess is on its way */
        place = below;
        ok = wp_hold_guess(ix, holder, place, tier);
    }
    if (ok && wp_part_look(ix, place, holder) & WP_SPAN_GUESS) {
        const struct wp_fname *name = wp_fname_at(&ix->floats, node->names);

        a.place = place;
        a.group = name->group;
        a.engine = name->engine;
        wp_hold_arrive(ix, &a); /* a removal by this name ends the guess; without memory, nothing
                                   does but what is below */
    }
    if (ok)
        wp_float_land(ix, awaited, place);
    if (place != WP_NOWHERE && (!ok || wp_part_look(ix, place, holder) & WP_SPAN_GUESS))
        wp_hold_unsupported(ix, holder, place);
    wp_run_pin(ix, 0);
    return ok;
}

/* An awaited node of the holder with a child of that local hash that has a certain place on the
 * prompt; 0: none. */
static uint32_t candidate(const struct wp_index *ix, uint32_t holder, uint32_t space,
                          const uint64_t local[], size_t n, size_t k, size_t *place, uint8_t *tier)
{
    uint32_t hash = wp_float_head_hash(ix, holder, local[k]);

    WP_TABLE_EACH(&ix->floats.heads, hash, head)
    {
        const struct wp_fnode *it = wp_fnode_at(&ix->floats, head);

        if (it->local != local[k] || it->space != space || it->holder != holder)
            continue;
        *place = place_of(ix, it->parent, local, n, tier);
        if (*place)
            return it->parent;
    }
    return 0;
}

static bool seen_before(const uint64_t local[], size_t k)
{
    for (size_t i = 1; i < k; i++)
        if (local[i] == local[k])
            return true;
    return false;
}

static bool any_head(const struct wp_index *ix, uint32_t holder, uint64_t local)
{
    uint32_t hash = wp_float_head_hash(ix, holder, local);

    WP_TABLE_EACH(&ix->floats.heads, hash, head)
    {
        return true;
    }
    return false;
}

static void graft(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[],
                  size_t n)
{
    for (size_t k = 1; k < n; k++) {
        uint32_t awaited;
        size_t place = 0;
        uint8_t tier = 0;

        if (!any_head(ix, holder, local[k]) || seen_before(local, k))
            continue;
        while ((awaited = candidate(ix, holder, space, local, n, k, &place, &tier)) != 0)
            if (!hang_on_prompt(ix, awaited, local, place, tier))
                return;
    }
}

size_t wp_index_graft(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[],
                      size_t n)
{
    uint64_t before = 0, after = 0;

    pthread_mutex_lock(&ix->lock);
    if (holder < ix->n_holders && ix->holders[holder].live && space < ix->n_spaces &&
        n < UINT32_MAX && ix->holders[holder].floating) {
        before = ix->holders[holder].floating;
        graft(ix, holder, space, local, n);
        after = ix->holders[holder].floating;
        wp_epoch_reclaim(&ix->epoch);
    }
    pthread_mutex_unlock(&ix->lock);
    return before - after;
}
