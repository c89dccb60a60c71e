/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of blocks, who has them, and who works on prompts with them.  Events go to the index in
 * batches, at the next look-up: blocks that came first, then those that went.  Each is told once it
 * changes something, so copies add up whatever the order; and a block that moves to another tier is
 * never nowhere.
 */
#include "sim/brain_impl.h"

#include "base/mem.h"

int wp_brain_names_init(struct wp_brain_names *s, uint32_t workers, uint64_t seed)
{
    *s = (struct wp_brain_names){.words = (workers + 63) / 64, .free_claim = WP_NO_ROW};
    s->rows.seed = seed;
    return 0;
}

void wp_brain_names_fini(struct wp_brain_names *s)
{
    wp_map_fini(&s->rows);
    wp_free(s->direct);
    wp_free(s->row);
    wp_free(s->bits);
    wp_free(s->claim);
}

static size_t bits_of(const struct wp_brain_names *s)
{
    return WP_BRAIN_TIERS * s->words;
}

static int grow(struct wp_brain_names *s)
{
    size_t cap = s->cap ? 2 * s->cap : 1024;
    struct wp_brain_name *row = wp_realloc(s->row, cap * sizeof *row);
    uint64_t *bits;

    if (!row)
        return WP_ENOMEM;
    s->row = row;
    bits = wp_realloc(s->bits, cap * bits_of(s) * sizeof *bits);
    if (!bits)
        return WP_ENOMEM;
    s->bits = bits;
    s->cap = cap;
    return 0;
}

bool wp_brain_find(const struct wp_brain_names *s, uint64_t id, uint32_t *row)
{
    uint64_t at;

    if (id >= WP_BRAIN_DIRECT) {
        if (!wp_map_get(&s->rows, id, &at))
            return false;
        *row = (uint32_t)at;
        return true;
    }
    if (id >= s->n_direct || s->direct[id] == 0)
        return false;
    *row = s->direct[id] - 1;
    return true;
}

static int put(struct wp_brain_names *s, uint64_t id, uint32_t row)
{
    size_t n = s->n_direct ? s->n_direct : 4096;
    uint32_t *direct;

    if (id >= WP_BRAIN_DIRECT)
        return wp_map_put(&s->rows, id, row);
    while (n <= id)
        n *= 2;
    if (n != s->n_direct) {
        direct = wp_realloc(s->direct, n * sizeof *direct);
        if (!direct)
            return WP_ENOMEM;
        memset(direct + s->n_direct, 0, (n - s->n_direct) * sizeof *direct);
        s->direct = direct;
        s->n_direct = n;
    }
    s->direct[id] = row + 1;
    return 0;
}

int wp_brain_name(struct wp_brain_names *s, uint64_t id, uint32_t parent, uint32_t depth,
                  uint32_t *row)
{
    if (wp_brain_find(s, id, row))
        return 0;
    if (s->n >= WP_NO_ROW - 1 || (s->n == s->cap && grow(s) < 0) || put(s, id, (uint32_t)s->n) < 0)
        return WP_ENOMEM;
    *row = (uint32_t)s->n++;
    s->row[*row] = (struct wp_brain_name){
        .id = id, .parent = parent, .depth = depth, .claims = WP_NO_ROW, .asked_us = UINT64_MAX};
    memset(s->bits + *row * bits_of(s), 0, bits_of(s) * sizeof *s->bits);
    return 0;
}

bool wp_brain_holds(const struct wp_brain_names *s, uint32_t row, uint32_t worker)
{
    const uint64_t *bits = s->bits + row * bits_of(s) + worker / 64;
    uint64_t any = 0;

    for (int t = 0; t < WP_BRAIN_TIERS; t++)
        any |= bits[(size_t)t * s->words];
    return any >> worker % 64 & 1;
}

bool wp_brain_hold(struct wp_brain_names *s, uint32_t row, uint32_t worker, int tier, bool stored)
{
    uint64_t *word = s->bits + row * bits_of(s) + (size_t)tier * s->words + worker / 64;
    uint64_t bit = (uint64_t)1 << worker % 64;
    bool before = wp_brain_holds(s, row, worker);

    if (stored == !!(*word & bit))
        return false;
    *word ^= bit;
    if (wp_brain_holds(s, row, worker) != before)
        s->row[row].holders += stored ? 1u : -1u;
    return true;
}

static int grow_claims(struct wp_brain_names *s)
{
    uint32_t cap = s->cap_claim ? 2 * s->cap_claim : 1024;
    struct wp_brain_claim *claim = wp_realloc(s->claim, cap * sizeof *claim);

    if (!claim)
        return WP_ENOMEM;
    s->claim = claim;
    s->cap_claim = cap;
    return 0;
}

struct wp_brain_claim *wp_brain_claim(struct wp_brain_names *s, uint32_t row, uint32_t worker)
{
    uint32_t at;

    for (at = s->row[row].claims; at != WP_NO_ROW; at = s->claim[at].next)
        if (s->claim[at].worker == worker)
            return &s->claim[at];
    at = s->free_claim;
    if (at != WP_NO_ROW)
        s->free_claim = s->claim[at].next;
    else if (s->n_claim < s->cap_claim || grow_claims(s) == 0)
        at = s->n_claim++;
    else
        return NULL;
    s->claim[at] = (struct wp_brain_claim){.worker = worker, .next = s->row[row].claims};
    s->row[row].claims = at;
    return &s->claim[at];
}

void wp_brain_claim_drop(struct wp_brain_names *s, uint32_t row, uint32_t worker)
{
    for (uint32_t *link = &s->row[row].claims; *link != WP_NO_ROW; link = &s->claim[*link].next) {
        uint32_t at = *link;

        if (s->claim[at].worker != worker)
            continue;
        if (s->claim[at].pending == 0 && s->claim[at].active == 0) {
            *link = s->claim[at].next;
            s->claim[at].next = s->free_claim;
            s->free_claim = at;
        }
        return;
    }
}

/* How many events from at[0] on are one chain of one worker and tier; *down: the last block is told
 * first. */
static size_t chain_of(const struct wp_brain_names *s, const struct wp_brain_event at[], size_t n,
                       bool *down)
{
    size_t k = 1;

    *down = n > 1 && s->row[at[0].row].parent == at[1].row;
    while (k < n && k < WP_BRAIN_BATCH && at[k].worker == at[0].worker &&
           at[k].tier == at[0].tier) {
        uint32_t lower = at[*down ? k - 1 : k].row, upper = at[*down ? k : k - 1].row;

        if (s->row[lower].parent != upper)
            break;
        k++;
    }
    return k;
}

static void apply_stores(struct wp_brain *b, const struct wp_brain_event at[], size_t n, bool down)
{
    const struct wp_brain_name *row = b->names.row;
    uint64_t engine[WP_BRAIN_BATCH], local[WP_BRAIN_BATCH];
    const struct wp_brain_name *first = &row[at[down ? n - 1 : 0].row];
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED,
        .holder = b->worker[at[0].worker].holder,
        .space = b->space,
        .main_group = true,
        .tier = at[0].tier,
        .has_parent = first->parent != WP_NO_ROW,
        .n = n,
        .engine = engine,
        .local = local,
    };

    if (ev.has_parent)
        ev.parent = row[first->parent].id;
    for (size_t i = 0; i < n; i++) {
        engine[i] = row[at[down ? n - 1 - i : i].row].id;
        local[i] = wp_index_mix(engine[i], 0);
    }
    wp_index_apply(b->index, &ev, NULL);
}

static void apply_removals(struct wp_brain *b, const struct wp_brain_event at[], size_t n)
{
    uint64_t engine[WP_BRAIN_BATCH];
    struct wp_kv_event ev = {
        .kind = WP_KV_REMOVED,
        .holder = b->worker[at[0].worker].holder,
        .space = b->space,
        .main_group = true,
        .tier = at[0].tier,
        .n = n,
        .engine = engine,
    };

    for (size_t i = 0; i < n; i++)
        engine[i] = b->names.row[at[i].row].id;
    wp_index_apply(b->index, &ev, NULL);
}

/*
 * Each worker's and tier's together, in the order in which they came: engines take turns, and
 * chains that one of them stores step by step would go into the index step by step, at several
 * times the cost.
 */
static const struct wp_brain_event *sort(struct wp_brain *b, const struct wp_brain_later *l)
{
    uint32_t start[WP_BRAIN_WORKERS_MAX * WP_BRAIN_TIERS], lists = b->conf.workers * WP_BRAIN_TIERS,
                                                           sum = 0;

    memset(start, 0, lists * sizeof start[0]);
    for (size_t i = 0; i < l->n; i++)
        start[l->at[i].worker * WP_BRAIN_TIERS + l->at[i].tier]++;
    for (uint32_t i = 0; i < lists; i++) {
        uint32_t n = start[i];

        start[i] = sum;
        sum += n;
    }
    for (size_t i = 0; i < l->n; i++)
        b->sorted.at[start[l->at[i].worker * WP_BRAIN_TIERS + l->at[i].tier]++] = l->at[i];
    return b->sorted.at;
}

void wp_brain_flush(struct wp_brain *b)
{
    struct wp_brain_later *s = &b->stores, *r = &b->removals;
    const struct wp_brain_event *at = sort(b, s);
    size_t k;

    for (size_t i = 0; i < s->n; i += k) {
        bool down;

        k = chain_of(&b->names, at + i, s->n - i, &down);
        apply_stores(b, at + i, k, down);
    }
    at = sort(b, r);
    for (size_t i = 0; i < r->n; i += k) {
        for (k = 1; i + k < r->n && k < WP_BRAIN_BATCH; k++)
            if (at[i + k].worker != at[i].worker || at[i + k].tier != at[i].tier)
                break;
        apply_removals(b, at + i, k);
    }
    s->n = r->n = 0;
}
