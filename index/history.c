/* SPDX-License-Identifier: Apache-2.0 */
#include "index/history.h"

#include "base/map.h"
#include "base/mem.h"

/*
 * A lane is what one holder has of one space: an array of blocks with the links of the LRU in it,
 * and a table of slots that finds a block by its key.  Block 0 is the list's head, so slot value 0
 * means empty and link 0 ends the list.  A block that is only in flight is not in the list: its
 * links point to itself.
 *
 *     slot[ ]  0 0 2 0 1 0 3 0          most recent                 least recent
 *     block[0] head            <------> block[2] <----> block[3] <----> head
 *
 * A prompt is touched from its end to its start, so a block is always more recent than what hangs
 * below it.
 */
struct block {
    uint64_t key;
    uint32_t prev, next;
    uint32_t in_flight;
    uint32_t ends : 31; /* prompts in flight that end here */
    uint32_t end : 1;   /* one that is in the LRU did */
};

struct ending { /* a request that is over, until the feed has passed its end */
    struct ending *next;
    uint64_t mark;
    struct wp_history_ends ends;
    size_t n;
    uint64_t hashes[]; /* n of the chain, then n local ones */
};

struct lane {
    struct lane *next; /* of the same holder */
    struct ending *endings;
    uint64_t secret;
    uint32_t space;
    uint32_t max; /* blocks of the LRU */
    uint32_t n;   /* in the LRU now */
    uint32_t in_use, top, free;
    bool torn;      /* what hung below a contradicted block may still be there */
    uint32_t slots; /* 0 or a power of two; 3/4 of that many blocks have room */
    uint32_t *slot;
    struct block *block;
};

struct wp_history {
    struct wp_map lanes; /* holder -> its first lane */
    uint64_t secret;
    size_t in_flight;
};

enum { SLOTS_MIN = 64 };
#define BLOCKS_MAX ((uint32_t)1 << 30)

static uint32_t room(const struct lane *l)
{
    return l->slots / 4 * 3;
}

static uint32_t home(const struct lane *l, uint64_t key)
{
    uint64_t x = (key ^ l->secret) * 0x9E3779B97F4A7C15u;

    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u; /* the key is somebody else's choice: neither its bits nor its order
                                 is trusted */
    return (uint32_t)(x >> 32) & (l->slots - 1);
}

/* The slot of the key, or the empty one where it would be. */
static uint32_t probe(const struct lane *l, uint64_t key)
{
    uint32_t i = home(l, key);

    while (l->slot[i] && l->block[l->slot[i]].key != key)
        i = (i + 1) & (l->slots - 1);
    return i;
}

/* The block of the key; 0: none. */
static uint32_t find(const struct lane *l, uint64_t key)
{
    return l->in_use ? l->slot[probe(l, key)] : 0;
}

static bool cached(const struct lane *l, uint32_t b)
{
    return l->block[b].next != b;
}

static int grow(struct lane *l)
{
    struct lane wider = *l;

    wider.slots = l->slots ? l->slots * 2 : SLOTS_MIN;
    if (room(&wider) > BLOCKS_MAX)
        return WP_ENOMEM;
    wider.slot = wp_calloc(wider.slots, sizeof wider.slot[0]);
    if (!wider.slot)
        return WP_ENOMEM;
    wider.block = wp_realloc(l->block, (room(&wider) + 1) * sizeof wider.block[0]);
    if (!wider.block) {
        wp_free(wider.slot);
        return WP_ENOMEM;
    }
    if (!l->block) {
        wider.block[0] = (struct block){0};
        wider.top = 1;
    }
    for (uint32_t i = 0; i < l->slots; i++)
        if (l->slot[i])
            wider.slot[probe(&wider, wider.block[l->slot[i]].key)] = l->slot[i];
    wp_free(l->slot);
    *l = wider;
    return 0;
}

/* Memory goes when nothing is kept: a holder that left costs its lane only. */
static void let_go(struct lane *l)
{
    if (l->in_use)
        return;
    wp_free(l->slot);
    wp_free(l->block);
    l->slot = NULL;
    l->block = NULL;
    l->slots = l->top = l->free = 0;
    l->torn = false;
}

/* A new block that is in no list.  The caller has made room. */
static uint32_t add(struct lane *l, uint64_t key)
{
    uint32_t b = l->free;

    if (b)
        l->free = l->block[b].next;
    else
        b = l->top++;
    l->slot[probe(l, key)] = b;
    l->block[b] = (struct block){.key = key, .prev = b, .next = b};
    l->in_use++;
    return b;
}

static void erase(struct lane *l, uint32_t b)
{
    uint32_t mask = l->slots - 1, hole = probe(l, l->block[b].key);

    for (uint32_t i = (hole + 1) & mask; l->slot[i]; i = (i + 1) & mask) {
        uint32_t from = home(l, l->block[l->slot[i]].key);

        if (((i - from) & mask) >=
            ((i - hole) & mask)) { /* its home is not between the hole and it */
            l->slot[hole] = l->slot[i];
            hole = i;
        }
    }
    l->slot[hole] = 0;
    l->block[b].next = l->free;
    l->free = b;
    l->in_use--;
}

static void unlink_block(struct lane *l, uint32_t b)
{
    struct block *it = &l->block[b];

    l->block[it->prev].next = it->next;
    l->block[it->next].prev = it->prev;
    it->prev = it->next = b;
    l->n--;
}

static void link_first(struct lane *l, uint32_t b)
{
    uint32_t first = l->block[0].next;

    l->block[b].prev = 0;
    l->block[b].next = first;
    l->block[first].prev = b;
    l->block[0].next = b;
    l->n++;
}

/* Out of the LRU, and out of memory unless it is in flight. */
static void evict(struct lane *l, uint32_t b)
{
    unlink_block(l, b);
    l->block[b].end = 0;
    if (!l->block[b].in_flight)
        erase(l, b);
}

static void shrink(struct lane *l, uint32_t to)
{
    while (l->n > to)
        evict(l, l->block[0].prev);
}

/* Makes the block the most recent one.  Out of memory: older blocks make room, so that a shorter
 * prefix is kept. */
static int touch(struct lane *l, uint64_t key)
{
    uint32_t b = find(l, key);
    int rc = 0;

    if (b && cached(l, b)) {
        unlink_block(l, b);
        link_first(l, b);
        return 0;
    }
    shrink(l, l->max - 1);
    if (!b) {
        if (l->in_use == room(l))
            rc = grow(l);
        while (l->in_use == room(l) && l->n)
            evict(l, l->block[0].prev);
        if (l->in_use == room(l))
            return rc;
        b = add(l, key);
    }
    link_first(l, b);
    return rc;
}

static struct lane *first_lane(const struct wp_history *h, uint32_t holder)
{
    uint64_t v = 0;

    wp_map_get(&h->lanes, holder, &v);
    return (struct lane *)(uintptr_t)v;
}

static struct lane *lane_of(const struct wp_history *h, uint32_t holder, uint32_t space)
{
    struct lane *l = first_lane(h, holder);

    while (l && l->space != space)
        l = l->next;
    return l;
}

static struct lane *lane_make(struct wp_history *h, uint32_t holder, uint32_t space)
{
    struct lane *l = lane_of(h, holder, space);

    if (l)
        return l;
    l = wp_calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->secret = h->secret;
    l->space = space;
    l->next = first_lane(h, holder);
    if (wp_map_put(&h->lanes, holder, (uintptr_t)l) < 0) {
        wp_free(l);
        return NULL;
    }
    return l;
}

int wp_history_create(struct wp_history **out, uint64_t secret, struct wp_err *err)
{
    struct wp_history *h = wp_calloc(1, sizeof *h);

    if (!h)
        return wp_fail(err, WP_ENOMEM, "history: out of memory");
    h->secret = h->lanes.seed = secret;
    *out = h;
    return 0;
}

void wp_history_destroy(struct wp_history *h)
{
    uint64_t key, v;

    if (!h)
        return;
    for (size_t i = 0; wp_map_next(&h->lanes, &i, &key, &v);)
        for (struct lane *l = (struct lane *)(uintptr_t)v, *next; l; l = next) {
            next = l->next;
            for (struct ending *e = l->endings, *later; e; e = later) {
                later = e->next;
                wp_free(e);
            }
            wp_free(l->slot);
            wp_free(l->block);
            wp_free(l);
        }
    wp_map_fini(&h->lanes);
    wp_free(h);
}

int wp_history_size(struct wp_history *h, uint32_t holder, uint32_t space, size_t blocks,
                    struct wp_err *err)
{
    struct lane *l = lane_make(h, holder, space);

    if (!l)
        return wp_fail(err, WP_ENOMEM, "history of holder %u: out of memory", holder);
    l->max = blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
    shrink(l, l->max);
    let_go(l);
    return 0;
}

void wp_history_forget(struct wp_history *h, uint32_t holder)
{
    for (struct lane *l = first_lane(h, holder); l; l = l->next) {
        shrink(l, 0);
        let_go(l);
    }
}

struct wp_history_ends wp_history_ends(size_t usable, size_t window)
{
    if (!window || !usable)
        return (struct wp_history_ends){0};
    return (struct wp_history_ends){usable <= window ? 1 : usable, usable};
}

static bool ends_with(struct wp_history_ends ends, size_t blocks)
{
    return blocks >= ends.first && blocks <= ends.last;
}

int wp_history_note(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[],
                    size_t n, struct wp_history_ends ends)
{
    struct lane *l = lane_of(h, holder, space);
    uint32_t first;
    int rc = 0;

    if (!l || !l->max)
        return 0;
    if (n > l->max)
        n = l->max; /* the rest would be evicted by the time we reach the start */
    while (n-- > 0) {
        if (touch(l, chain[n]) < 0)
            rc = WP_ENOMEM;
        first = l->block ? l->block[0].next : 0;
        if (ends_with(ends, n + 1) && first && l->block[first].key == chain[n])
            l->block[first].end = 1;
    }
    return rc;
}

void wp_history_contradict(struct wp_history *h, uint32_t holder, uint32_t space,
                           const uint64_t chain[], size_t n, size_t blocks)
{
    struct lane *l = lane_of(h, holder, space);

    for (size_t i = blocks; l && i < n; i++) {
        uint32_t b = find(l, chain[i]);

        if (b && cached(l, b)) {
            evict(l, b);
            l->torn = true;
        }
    }
}

int wp_history_begin(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[],
                     size_t n, struct wp_history_ends ends)
{
    struct lane *l = lane_make(h, holder, space);

    if (!l || n > BLOCKS_MAX)
        return WP_ENOMEM;
    while (room(l) - l->in_use < n) {
        if (grow(l) < 0) {
            let_go(l);
            return WP_ENOMEM;
        }
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t b = find(l, chain[i]);

        if (!b)
            b = add(l, chain[i]);
        l->block[b].in_flight++;
        if (ends_with(ends, i + 1))
            l->block[b].ends++;
    }
    h->in_flight += n;
    return 0;
}

void wp_history_end(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[],
                    size_t n, struct wp_history_ends ends)
{
    struct lane *l = lane_of(h, holder, space);

    for (size_t i = 0; l && i < n; i++) {
        uint32_t b = find(l, chain[i]);

        if (!b || !l->block[b].in_flight)
            continue;
        h->in_flight--;
        if (l->block[b].ends && ends_with(ends, i + 1))
            l->block[b].ends--;
        if (--l->block[b].in_flight == 0 && !cached(l, b))
            erase(l, b);
    }
    if (l && !l->n)
        let_go(l);
}

int wp_history_end_at(struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[],
                      const uint64_t local[], size_t n, struct wp_history_ends ends, uint64_t mark)
{
    struct lane *l = lane_of(h, holder, space);
    struct ending *e =
        l && n <= BLOCKS_MAX ? wp_malloc(sizeof *e + 2 * n * sizeof e->hashes[0]) : NULL;

    if (!e) {
        wp_history_end(h, holder, space, chain, n, ends);
        return l ? WP_ENOMEM : 0;
    }
    *e = (struct ending){.next = l->endings, .mark = mark, .ends = ends, .n = n};
    for (size_t i = 0; i < n; i++) {
        e->hashes[i] = chain[i];
        e->hashes[n + i] = local[i];
    }
    l->endings = e;
    return 0;
}

/* Those that are over by the mark, or by what told() says. */
static size_t end_those(struct wp_history *h, uint32_t holder, uint64_t mark,
                        wp_history_told_fn told, void *arg)
{
    size_t ended = 0;

    for (struct lane *l = first_lane(h, holder); l; l = l->next)
        for (struct ending **at = &l->endings; *at;) {
            struct ending *e = *at;

            if (told ? !told(arg, l->space, e->hashes + e->n, e->n, e->ends) : e->mark > mark) {
                at = &e->next;
                continue;
            }
            *at = e->next;
            wp_history_end(h, holder, l->space, e->hashes, e->n, e->ends);
            wp_free(e);
            ended++;
        }
    return ended;
}

size_t wp_history_passed(struct wp_history *h, uint32_t holder, uint64_t mark)
{
    return end_those(h, holder, mark, NULL, NULL);
}

size_t wp_history_told(struct wp_history *h, uint32_t holder, wp_history_told_fn told, void *arg)
{
    return end_those(h, holder, 0, told, arg);
}

enum where { ANYWHERE, IN_LRU, IN_FLIGHT };

static bool is_there(const struct lane *l, uint64_t key, enum where where)
{
    uint32_t b = find(l, key);

    return b && (where == ANYWHERE || (where == IN_LRU ? cached(l, b) : l->block[b].in_flight > 0));
}

/*
 * How many leading blocks of chain[n] are there.  No prefix is ever beheaded, so what is there ends once: the end is found by
 * doubling steps and then by halving, and a prompt of 512 blocks that a whole fleet holds costs some twenty look-ups a holder.
 * Only a contradiction can leave a hole; after one the walk goes block by block.
 */
static size_t leading(const struct lane *l, const uint64_t chain[], size_t n, enum where where)
{
    size_t held = 0, step = 1, beyond; /* the first `held` are there, the first `beyond` are not */

    while (held < n && is_there(l, chain[held + step - 1], where)) {
        held += step;
        step = l->torn ? 1 : held < n - held ? held : n - held;
    }
    if (held == n || l->torn)
        return held;
    for (beyond = held + step; held + 1 < beyond;) {
        size_t mid = held + (beyond - held) / 2;

        if (is_there(l, chain[mid - 1], where))
            held = mid;
        else
            beyond = mid;
    }
    return held;
}

size_t wp_history_overlap(const struct wp_history *h, uint32_t holder, uint32_t space,
                          const uint64_t chain[], size_t n, size_t *with_in_flight)
{
    const struct lane *l = lane_of(h, holder, space);
    size_t both = l ? leading(l, chain, n, ANYWHERE) : 0;

    if (with_in_flight)
        *with_in_flight = both;
    return both ? leading(l, chain, both, IN_LRU) : 0;
}

size_t wp_history_flight(const struct wp_history *h, uint32_t holder, uint32_t space, const uint64_t chain[], size_t n)
{
    const struct lane *l = lane_of(h, holder, space);

    return l ? leading(l, chain, n, IN_FLIGHT) : 0;
}

size_t wp_history_last_end(const struct wp_history *h, uint32_t holder, uint32_t space,
                           const uint64_t chain[], size_t n, size_t above, bool in_flight)
{
    const struct lane *l = lane_of(h, holder, space);

    for (; l && n > above; n--) {
        uint32_t b = find(l, chain[n - 1]);

        if (b && (in_flight ? l->block[b].ends > 0 : l->block[b].end))
            return n;
    }
    return 0;
}

size_t wp_history_blocks(const struct wp_history *h, uint32_t holder)
{
    size_t n = 0;

    for (const struct lane *l = first_lane(h, holder); l; l = l->next)
        n += l->n;
    return n;
}

size_t wp_history_in_flight(const struct wp_history *h)
{
    return h->in_flight;
}
