/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/ingest_impl.h"

#include "base/mem.h"
#include "index/identity.h"

enum { PARTS_MAX = 1 << 20 };
/* Any number: what it makes of an engine hash is another one only by accident. */
#define PIECE UINT64_C(0x7069656365)

int wp_ingest_create(struct wp_ingest **out, const struct wp_ingest_conf *conf, struct wp_err *err)
{
    struct wp_ingest *p = wp_calloc(1, sizeof *p);

    if (!p)
        return wp_fail(err, WP_ENOMEM, "ingest: out of memory");
    p->conf = *conf;
    p->model = wp_strndup(conf->model.n ? conf->model.p : "", conf->model.n);
    p->domain = wp_strndup(conf->domain.n ? conf->domain.p : "", conf->domain.n);
    if (!p->model || !p->domain) {
        wp_ingest_destroy(p);
        return wp_fail(err, WP_ENOMEM, "ingest: out of memory");
    }
    p->conf.model.p = p->model;
    p->conf.domain.p = p->domain;
    p->block_size = conf->block_size <= BLOCK_SIZE_MAX ? conf->block_size : 0;
    p->told = p->block_size != 0;
    p->salt.seed = p->salted.seed = p->parked.seed = conf->secret;
    *out = p;
    return 0;
}

void wp_ingest_destroy(struct wp_ingest *p)
{
    if (!p)
        return;
    wp_event_scratch_fini(&p->scratch);
    wp_map_fini(&p->salt);
    wp_map_fini(&p->salted);
    wp_map_fini(&p->parked);
    wp_gather_fini(&p->gather);
    wp_free(p->engine);
    wp_free(p->local);
    wp_free(p->vague);
    wp_free(p->model);
    wp_free(p->domain);
    wp_free(p);
}

static void map_empty(struct wp_map *m)
{
    uint64_t seed = m->seed;

    wp_map_fini(m);
    *m = (struct wp_map){.seed = seed};
}

/* --- the index -------------------------------------------------------------------------------- */

static struct wp_kv_event event_of(const struct wp_ingest *p, enum wp_kv_kind kind,
                                   const struct group *g, uint8_t tier)
{
    return (struct wp_kv_event){
        .kind = kind,
        .holder = p->conf.holder,
        .space = p->space[p->bigram],
        .group = g->number,
        .main_group = g->role == GROUP_MAIN,
        .tier = tier,
    };
}

static void tally(struct wp_ingest *p, const struct wp_kv_event *ev, const struct wp_kv_result *res)
{
    bool removed = ev->kind == WP_KV_REMOVED;

    *(removed ? &p->counts.removed : &p->counts.stored) += res->applied;
    p->counts.unknown += removed ? res->unknown : 0;
    p->counts.floating += res->floating;
    p->counts.refused += res->refused;
}

static void flush(struct wp_ingest *p)
{
    struct wp_ingest_queue *q = &p->queue;
    struct wp_kv_result res[QUEUE_MAX];

    wp_index_apply_all(p->conf.index, q->ev, q->n, res);
    for (size_t i = 0; i < q->n; i++)
        tally(p, &q->ev[i], &res[i]);
    q->n = 0;
}

/* A store or removal of the main group whose outcome nobody waits for. */
static void put(struct wp_ingest *p, const struct wp_kv_event *ev)
{
    struct wp_ingest_queue *q = &p->queue;
    struct wp_kv_result res;

    if (ev->n != 1 || ev->vague) {
        flush(p);
        wp_index_apply(p->conf.index, ev, &res);
        tally(p, ev, &res);
        return;
    }
    q->ev[q->n] = *ev;
    q->engine[q->n] = ev->engine[0];
    q->ev[q->n].engine = &q->engine[q->n];
    if (ev->local) {
        q->local[q->n] = ev->local[0];
        q->ev[q->n].local = &q->local[q->n];
    }
    if (++q->n == QUEUE_MAX)
        flush(p);
}

/* Hashes without content: removals, tiers, and all that groups which restrict say. */
static struct wp_kv_result say(struct wp_ingest *p, enum wp_kv_kind kind, const struct group *g,
                               uint8_t tier, const uint64_t hash[], size_t n)
{
    struct wp_kv_event ev = event_of(p, kind, g, tier);
    struct wp_kv_result res;

    ev.engine = hash;
    ev.n = n;
    flush(p);
    wp_index_apply(p->conf.index, &ev, &res);
    p->counts.refused += res.refused;
    return res;
}

/*
 * One hash of the main group, of which no content is said: it may be of either space, as a
 * publisher may have sent both. The index's word for it: known or not.
 */
static bool say_of(struct wp_ingest *p, enum wp_kv_kind kind, const struct group *g, uint8_t tier,
                   uint64_t hash)
{
    bool last = p->bigram, known = false;

    for (int i = 0; i < 2 && !known; i++, p->bigram = !p->bigram)
        known = p->has_space[p->bigram] && !say(p, kind, g, tier, &hash, 1).unknown;
    p->bigram = last;
    return known;
}

/* What was said without a group is meant for those that restrict as well. */
static void say_to_all(struct wp_ingest *p, enum wp_kv_kind kind, const struct wp_event *e,
                       uint8_t tier)
{
    for (uint16_t number = 1; !e->has_group && number <= p->restricting; number++)
        say(p, kind, &(struct group){0, GROUP_RESTRICTS, number}, tier, e->hash, e->n);
}

static uint8_t tier_of(const struct wp_ingest *p, const struct wp_event *e)
{
    for (size_t i = 0; e->medium.p && i < p->conf.n_media; i++)
        if (wp_str_ieq(e->medium, p->conf.medium[i].name))
            return p->conf.medium[i].tier;
    return e->tier == WP_EVENT_UNKNOWN ? WP_TIER_MAX - 1 : (uint8_t)e->tier;
}

static bool make_room(struct wp_ingest *p, size_t n)
{
    uint64_t *engine, *local;
    bool *vague;

    if (n <= p->room)
        return true;
    engine = wp_realloc(p->engine, n * sizeof *engine);
    p->engine = engine ? engine : p->engine;
    local = wp_realloc(p->local, n * sizeof *local);
    p->local = local ? local : p->local;
    vague = wp_realloc(p->vague, n * sizeof *vague);
    p->vague = vague ? vague : p->vague;
    if (!engine || !local || !vague)
        return false;
    p->room = n;
    return true;
}

/* --- stores ----------------------------------------------------------------------------------- */

/* The name of piece j of a chunk, which itself names the last one. */
static uint64_t piece(uint64_t chunk, size_t j)
{
    return wp_hash_next(chunk, PIECE + j);
}

/* The other pieces of a chunk that the index knows: what is said of it is meant for them. */
static void say_of_pieces(struct wp_ingest *p, enum wp_kv_kind kind, const struct group *g,
                          uint8_t tier, uint64_t chunk)
{
    for (size_t j = 0; j + 1 < p->split_max; j++) {
        uint64_t name = piece(chunk, j);

        say_of(p, kind, g, tier, name);
    }
}

/* Tiers of this block that were told before it came. */
static void unpark(struct wp_ingest *p, const struct group *g, uint64_t hash)
{
    for (uint8_t t = 0; t < WP_TIER_MAX; t++)
        while (wp_ingest_unpark(p, hash, t)) {
            p->counts.unparked += say(p, WP_KV_STORED, g, t, &hash, 1).applied;
            say_of_pieces(p, WP_KV_STORED, g, t, hash);
        }
}

/* Blocks, or chunks of k blocks each. */
static int store_blocks(struct wp_ingest *p, const struct wp_event *e, const struct group *g,
                        const struct wp_content *c, size_t k)
{
    struct wp_kv_event ev = event_of(p, WP_KV_STORED, g, tier_of(p, e));

    if (!make_room(p, e->n * k))
        return WP_ENOMEM;
    for (size_t i = 0; i < e->n * k; i++)
        p->engine[i] = i % k == k - 1 ? e->hash[i / k] : piece(e->hash[i / k], i % k);
    if (k > p->split_max)
        p->split_max = (uint32_t)k;
    p->counts.split += k > 1 ? e->n : 0;
    ev.vague = wp_ingest_hash(p, e, c, k) ? p->vague : NULL;
    ev.has_parent = e->has_parent && !(p->conf.zero_is_root && e->parent == 0);
    ev.parent = e->parent;
    ev.n = e->n * k;
    ev.engine = p->engine;
    ev.local = p->local;
    put(p, &ev);
    return 0;
}

/* A block that parts made, lost, or moved. */
static void on_gathered(void *arg, const struct wp_gathered *b)
{
    struct wp_ingest *p = arg;
    const struct group g = {0, GROUP_MAIN, 0};
    uint32_t width = p->block_size + b->bigram;
    struct wp_kv_event ev = event_of(p, WP_KV_STORED, &g, (uint8_t)b->now);
    struct wp_kv_result res;
    uint64_t local;

    if (b->was >= 0 && b->now >= 0)
        say(p, WP_KV_STORED, &g, (uint8_t)b->now, &b->name, 1);
    if (b->was >= 0) {
        say(p, WP_KV_REMOVED, &g, (uint8_t)b->was, &b->name, 1);
        return;
    }
    local = wp_ingest_nowhere(p, b->name);
    if (!b->opaque)
        wp_hash_tokens(b->token, width, width, b->seed, &local, 1);
    ev.has_parent = b->has_parent && !(p->conf.zero_is_root && b->parent == 0);
    ev.parent = b->parent;
    ev.n = 1;
    ev.engine = &b->name;
    ev.local = &local;
    flush(p);
    wp_index_apply(p->conf.index, &ev, &res);
    p->counts.gathered++;
    p->counts.stored += res.applied;
    p->counts.floating += res.floating;
    p->counts.refused += res.refused;
}

static void store_parts(struct wp_ingest *p, const struct wp_event *e, const struct wp_content *c)
{
    struct wp_gather *g = &p->gather;

    if (!g->size)
        wp_gather_init(g, e->block_size, p->block_size / e->block_size, e->bigram,
                       p->conf.parts_max ? p->conf.parts_max : PARTS_MAX, p->conf.secret,
                       on_gathered, p);
    if (g->size != e->block_size || g->bigram != e->bigram) {
        p->counts.wrong_size += e->n;
        return;
    }
    p->counts.opaque += c->plain ? 0 : e->n;
    p->counts.refused += e->n - wp_gather_store(g, e->hash, e->n, e->has_parent, e->parent,
                                                e->token, c->seed, !c->plain, tier_of(p, e));
}

static int store_main(struct wp_ingest *p, const struct wp_event *e, const struct group *g)
{
    uint32_t size = e->block_size, ours;
    struct wp_content c;
    int rc = 0;

    ours = p->block_size;
    if (!ours || (size % ours && ours % size)) {
        p->counts.wrong_size += e->n;
        return 0;
    }
    if (!wp_ingest_make_space(p, e->bigram))
        return WP_ENOMEM;
    wp_ingest_content(p, e, &c);
    if (c.salt)
        wp_ingest_salt_store(p, e, c.salt);
    if (size < ours)
        store_parts(p, e, &c);
    else
        rc = store_blocks(p, e, g, &c, size / ours);
    if (rc < 0)
        return rc;
    say_to_all(p, WP_KV_STORED, e, tier_of(p, e));
    for (size_t i = 0; p->parked.n && i < e->n; i++)
        unpark(p, g, e->hash[i]);
    return 0;
}

/* Hashes alone: blocks that are known, or will be, are in this tier too. */
static void store_tier(struct wp_ingest *p, const struct wp_event *e, const struct group *g)
{
    uint8_t tier = tier_of(p, e);

    for (size_t i = 0; i < e->n; i++) {
        uint64_t *salted = wp_map_at(&p->salted, e->hash[i]);

        if (salted)
            ++*salted;
        if (p->gather.size && wp_gather_give(&p->gather, e->hash[i], tier))
            continue;
        if (!say_of(p, WP_KV_STORED, g, tier, e->hash[i])) {
            wp_ingest_park(p, e->hash[i], tier);
            continue;
        }
        p->counts.stored++;
        say_of_pieces(p, WP_KV_STORED, g, tier, e->hash[i]);
    }
    if (p->has_space[p->bigram])
        say_to_all(p, WP_KV_STORED, e, tier);
}

static int store(struct wp_ingest *p, const struct wp_event *e)
{
    struct group g;

    wp_ingest_learn_size(p, e);
    g = wp_ingest_group(p, e);
    if (g.role == GROUP_RESTRICTS)
        wp_ingest_presume_size(p, e);
    if (g.role == GROUP_RESTRICTS && p->has_space[p->bigram]) {
        p->counts.restricted += say(p, WP_KV_STORED, &g, tier_of(p, e), e->hash, e->n).applied;
        return 0;
    }
    if (g.role == GROUP_MAIN && e->use == WP_EVENT_INDEX)
        return store_main(p, e, &g);
    if (g.role == GROUP_MAIN && e->use == WP_EVENT_TIER_ONLY)
        store_tier(p, e, &g);
    else
        p->counts.unused[g.role == GROUP_MAIN ? e->use : WP_EVENT_NON_MAIN_GROUP] += e->n;
    return 0;
}

/* --- removals --------------------------------------------------------------------------------- */

static void remove_main(struct wp_ingest *p, const struct wp_event *e, const struct group *g)
{
    uint8_t tier = tier_of(p, e);

    if (!p->gather.size && p->split_max <= 1 && !p->parked.n &&
        !(p->has_space[0] && p->has_space[1])) {
        struct wp_kv_event ev = event_of(p, WP_KV_REMOVED, g, tier);

        ev.engine = e->hash;
        ev.n = e->n;
        put(p, &ev);
        return;
    }
    for (size_t i = 0; i < e->n; i++) {
        const uint64_t *hash = &e->hash[i];

        if ((p->gather.size && wp_gather_take(&p->gather, *hash, tier)) ||
            say_of(p, WP_KV_REMOVED, g, tier, *hash)) {
            p->counts.removed++;
            say_of_pieces(p, WP_KV_REMOVED, g, tier, *hash);
        } else {
            p->counts.unknown += !wp_ingest_unpark(p, *hash, tier);
        }
    }
}

static void remove_blocks(struct wp_ingest *p, const struct wp_event *e)
{
    struct group g = wp_ingest_group(p, e);
    uint8_t tier = tier_of(p, e);

    if (g.role == GROUP_IGNORED)
        return;
    if (!p->has_space[p->bigram]) {
        for (size_t i = 0; g.role == GROUP_MAIN && i < e->n; i++)
            p->counts.unknown += !wp_ingest_unpark(p, e->hash[i], tier);
        return;
    }
    if (g.role == GROUP_RESTRICTS) {
        p->counts.unknown += say(p, WP_KV_REMOVED, &g, tier, e->hash, e->n).unknown;
        return;
    }
    wp_ingest_salt_remove(p, e);
    remove_main(p, e, &g);
    say_to_all(p, WP_KV_REMOVED, e, tier);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* What is kept beside the index goes with what is in it. */
static void forget_blocks(struct wp_ingest *p)
{
    map_empty(&p->salt);
    map_empty(&p->salted);
    map_empty(&p->parked);
    wp_gather_clear(&p->gather);
}

static int apply(struct wp_ingest *p, const struct wp_event *e)
{
    p->counts.events++;
    if (e->kind == WP_EVENT_STORED)
        return e->n || e->has_group ? store(p, e) : 0;
    if (e->kind == WP_EVENT_REMOVED) {
        remove_blocks(p, e);
    } else if (e->kind == WP_EVENT_CLEARED) {
        flush(p);
        wp_index_clear(p->conf.index, p->conf.holder);
        forget_blocks(p);
        p->counts.cleared++;
        p->cleared = true;
    }
    return 0;
}

void wp_ingest_batch(struct wp_ingest *p, struct wp_event_batch *b, uint64_t now_us)
{
    struct wp_event e;

    p->now_us = now_us;
    p->counts.batches++;
    if (!p->has_space[p->bigram])
        wp_ingest_look_ahead(p, *b);
    for (;;) {
        int rc = wp_event_next(b, &p->scratch, &e);

        if (rc == 0)
            break;
        if (rc < 0)
            wp_event_pass(b);
        else
            rc = apply(p, &e);
        if (rc < 0) {
            p->counts.lost++;
            flush(p);
            wp_ingest_doubt(p);
        }
    }
    flush(p);
}

void wp_ingest_doubt(struct wp_ingest *p)
{
    p->cleared = false;
    wp_index_doubt(p->conf.index, p->conf.holder);
}

void wp_ingest_gone(struct wp_ingest *p)
{
    p->cleared = false;
    wp_index_clear(p->conf.index, p->conf.holder);
    forget_blocks(p);
    wp_gather_fini(&p->gather);
    wp_ingest_forget_groups(p);
    p->split_max = 0;
    p->has_space[0] = p->has_space[1] = p->bigram = false;
    p->presumed = false;
    if (!p->told)
        p->block_size = 0;
}

void wp_ingest_block_size(struct wp_ingest *p, uint32_t block_size)
{
    if (!block_size || block_size > BLOCK_SIZE_MAX)
        return;
    p->told = true;
    if (block_size == p->block_size)
        return;
    p->block_size = block_size;
    wp_ingest_gone(p);
}

uint32_t wp_ingest_its_block_size(const struct wp_ingest *p)
{
    return p->block_size;
}

bool wp_ingest_space(const struct wp_ingest *p, bool bigram, uint32_t *space)
{
    if (p->has_space[bigram])
        *space = p->space[bigram];
    return p->has_space[bigram];
}

double wp_ingest_coverage(const struct wp_ingest *p, bool whole, uint64_t capacity)
{
    uint64_t tier[WP_TIER_MAX], doubtful;

    if (whole || p->cleared)
        return 1;
    if (!capacity)
        return 0;
    wp_index_holder_stats(p->conf.index, p->conf.holder, tier, &doubtful);
    return tier[WP_TIER_GPU] < capacity ? (double)tier[WP_TIER_GPU] / (double)capacity : 1;
}

const struct wp_ingest_counts *wp_ingest_counts(const struct wp_ingest *p)
{
    return &p->counts;
}
