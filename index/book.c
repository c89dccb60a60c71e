/* SPDX-License-Identifier: Apache-2.0 */
#include "index/book_impl.h"

#include "base/err.h"

#include <assert.h>

_Static_assert(sizeof(struct wp_book_bucket) == 64, "a bucket is a cache line");

/* Buckets for so many entries: a power of two below a page, then whole pages; 0: too many. */
static uint32_t buckets_for(size_t entries)
{
    size_t want = entries * 5 / 21 + 1, some = 1;

    if (entries > room(BUCKETS_MAX - PAGE_BUCKETS))
        return 0;
    if (want > PAGE_BUCKETS)
        return (uint32_t)((want + PAGE_BUCKETS - 1) / PAGE_BUCKETS * PAGE_BUCKETS);
    while (room((uint32_t)some) < entries)
        some *= 2;
    return (uint32_t)some;
}

static size_t table_bytes(uint32_t buckets)
{
    if (!buckets)
        return 0;
    return buckets < PAGE_BUCKETS ? (size_t)(buckets + 1) * LINE : (size_t)buckets * LINE;
}

uint32_t *wp_book_find(const struct wp_book *b, uint64_t key)
{
    struct spot s;

    return locate(b, key, &s) ? &b->at[s.at].value[s.way] : NULL;
}

static void count(struct wp_book *b, size_t bytes)
{
    b->budget->bytes += bytes - b->bytes;
    b->bytes = bytes;
}

/* Moves those of bucket i that have that home, of before; how many. */
static uint32_t move_from(struct wp_book *b, uint32_t i, struct home h)
{
    struct wp_book_bucket *k = &b->at[i];
    struct home next = {0, b->now};
    uint32_t n = 0;

    for (uint32_t m = of_side(b, i, h.side); m; m &= m - 1) {
        uint32_t way = (uint32_t)__builtin_ctz(m);
        uint64_t key = k->key[way], hash = wp_book_hash(b->secret, key);

        if (wp_book_home(hash, b->side[h.side].buckets) != h.at)
            continue;
        vacate(b, i, way, h);
        next.at = wp_book_home(hash, b->side[b->now].buckets);
        place(b, next, hash, key, k->value[way]);
        n++;
    }
    return n;
}

static bool grows(const struct wp_book *b)
{
    return b->side[b->now].buckets > b->side[!b->now].buckets;
}

/* The next home moves: the highest that is left when the table grows, else the lowest. */
static void move_home(struct wp_book *b)
{
    struct home h = {grows(b) ? b->left + b->n_left - 1 : b->left, !b->now};
    uint32_t away = away_of(b->at[h.at].state), i = h.at;

    b->left += !grows(b);
    b->n_left--;
    b->at[h.at].state %= AWAY;
    move_from(b, i, h);
    while (away) {
        i = after(b, i, h.side);
        away -= move_from(b, i, h);
    }
}

/* Gives back the pages before bucket `to` that are beyond the new end of a table that shrinks. */
static void drop(struct wp_book *b, uint32_t to)
{
    size_t bytes = (size_t)(to - b->dropped) * LINE;

    wp_pages_drop(&b->pages, (size_t)b->dropped * LINE, (size_t)to * LINE);
    b->dropped = to;
    count(b, b->bytes - bytes);
}

static void move_some(struct wp_book *b, uint32_t homes)
{
    struct wp_book_side *old = &b->side[!b->now];
    uint32_t passed;

    for (; homes && b->n_left; homes--)
        move_home(b);
    passed = b->n_left ? b->left / PAGE_BUCKETS * PAGE_BUCKETS : old->buckets;
    if (!grows(b) && passed > b->dropped &&
        (!b->n_left || (!old->wrapped && passed - b->dropped >= DROP_PAGES * PAGE_BUCKETS)))
        drop(b, passed);
    if (!b->n_left)
        *old = (struct wp_book_side){0};
}

/* From now on homes are reckoned by that size. */
static void start_move(struct wp_book *b, uint32_t buckets)
{
    b->left = 0;
    b->n_left = b->side[b->now].buckets;
    b->now = !b->now;
    b->side[b->now] = (struct wp_book_side){.buckets = buckets, .end = buckets};
}

/* Less than a page, or nothing before: into memory of its own, at once. */
static int rebuild(struct wp_book *b, uint32_t buckets)
{
    struct wp_book next = {
        .secret = b->secret, .budget = b->budget, .n = b->n, .owed = b->owed, .least = b->least};
    uint32_t size = b->side[b->now].buckets;

    if (buckets >= PAGE_BUCKETS) {
        if (!wp_pages_grow(&next.pages, table_bytes(buckets)))
            return WP_ENOMEM;
        next.at = (struct wp_book_bucket *)(void *)next.pages.at;
    } else {
        next.small = wp_calloc(1, table_bytes(buckets));
        if (!next.small)
            return WP_ENOMEM;
        next.at = (void *)(((uintptr_t)next.small + LINE - 1) & ~(uintptr_t)(LINE - 1));
    }
    next.side[0] = (struct wp_book_side){.buckets = buckets, .end = buckets};
    for (uint32_t i = 0; i < size; i++)
        for (uint32_t m = b->at[i].state & USED; m; m &= m - 1) {
            uint64_t key = b->at[i].key[__builtin_ctz(m)], hash = wp_book_hash(b->secret, key);

            place(&next, home_of(&next, hash), hash, key, b->at[i].value[__builtin_ctz(m)]);
        }
    wp_free(b->small);
    next.bytes = b->bytes;
    *b = next;
    count(b, table_bytes(buckets));
    return 0;
}

static int grow(struct wp_book *b, uint32_t buckets)
{
    const struct wp_budget *budget = b->budget;
    struct wp_book_side *old = &b->side[b->now];
    size_t more = table_bytes(buckets) - (b->small ? 0 : b->bytes);

    if (budget->cap && (more > budget->cap || budget->bytes > budget->cap - more))
        return WP_ETOOBIG;
    if (!b->pages.at)
        return rebuild(b, buckets);
    if (!wp_pages_grow(&b->pages, table_bytes(buckets)))
        return WP_ENOMEM;
    b->at = (struct wp_book_bucket *)(void *)b->pages.at;
    count(b, table_bytes(buckets));
    start_move(b, buckets);
    if (!b->n)
        b->n_left = 0;
    while (old->wrapped) /* the last homes' keys are at the start, and move before the end of a
                            search does */
        move_home(b);
    old->end = buckets;
    if (!b->n || old->buckets <= PAGE_BUCKETS)
        move_some(b, old->buckets);
    return 0;
}

static bool nearly_empty(const struct wp_book *b)
{
    uint32_t buckets = b->side[b->now].buckets;

    return buckets > PAGE_BUCKETS && b->n + b->owed < room(buckets) / 4 &&
           b->least < room(buckets) / 2;
}

/* Puts a home's keys that have wrapped nearer to it, where there is room by now. */
static void unwrap_home(struct wp_book *b, struct home h)
{
    uint32_t away = away_of(b->at[h.at].state), i = h.at;

    while (away) {
        uint32_t m;

        i = after(b, i, h.side);
        for (m = of_side(b, i, h.side); m; m &= m - 1) {
            uint32_t way = (uint32_t)__builtin_ctz(m);
            uint64_t key = b->at[i].key[way];

            if (!lives_at(b, key, h))
                continue;
            away--;
            if (i > h.at)
                continue;
            vacate(b, i, way, h);
            one_back(b, h.at);
            place(b, h, wp_book_hash(b->secret, key), key, b->at[i].value[way]);
        }
    }
}

/* Starts to move to half of what there is room for, but not less than what puts may fill until the
 * move is over. */
static void shrink(struct wp_book *b)
{
    uint32_t old = b->side[b->now].buckets, buckets;
    size_t need = b->n + b->owed > b->least ? b->n + b->owed : b->least, meanwhile = need + old / 4;

    buckets = buckets_for(need * 2 > meanwhile ? need * 2 : meanwhile);
    if (buckets < PAGE_BUCKETS)
        buckets = PAGE_BUCKETS;
    for (uint32_t i = 1; i <= PAGE_BUCKETS && b->side[b->now].wrapped; i++)
        unwrap_home(b, (struct home){old - i, b->now});
    start_move(b, buckets);
    b->dropped = buckets;
}

/* Eight times as many homes at every eighth put or del: their lines are next to each other. */
void wp_book_work(struct wp_book *b)
{
    if (moving(b) && ++b->beat % BEAT == 0)
        move_some(b, BEAT * (grows(b) ? 4 : 16));
}

int wp_book_reserve(struct wp_book *b, uint64_t secret, uint32_t n, struct wp_budget *budget)
{
    size_t want = b->n + n, have = room(b->side[b->now].buckets);
    uint32_t buckets;
    int rc;

    b->secret = secret;
    b->budget = budget;
    if (want > have) {
        if (moving(b))
            move_some(b, b->n_left);
        have += have / 32 * 5;
        buckets = buckets_for(want > have ? want : have);
        rc = buckets ? grow(b, buckets) : WP_ETOOBIG;
        if (rc < 0)
            return rc;
    }
    b->owed = n;
    return 0;
}

int wp_book_expect(struct wp_book *b, uint64_t secret, size_t n, struct wp_budget *budget)
{
    uint32_t owed = b->owed;
    size_t roomy = n / EXPECT_MORE + n;
    int rc = 0;

    if (roomy > UINT32_MAX)
        return WP_ETOOBIG;
    if (n > b->n)
        rc = wp_book_reserve(b, secret, (uint32_t)(roomy - b->n), budget);
    b->owed = owed;
    if (rc == 0)
        b->least = n;
    return rc;
}

void wp_book_put(struct wp_book *b, uint64_t key, uint32_t value)
{
    uint64_t hash;

    assert(b->n < room(b->side[b->now].buckets));
    wp_book_work(b);
    hash = wp_book_hash(b->secret, key);
    place(b, home_of(b, hash), hash, key, value);
    b->n++;
    b->owed -= b->owed > 0;
}

static void clear(struct wp_book *b)
{
    wp_free(b->small);
    wp_pages_fini(&b->pages);
    if (b->budget)
        count(b, 0);
    *b = (struct wp_book){.secret = b->secret, .budget = b->budget};
}

/*
 * There is room in bucket i: a key comes home to it; where that one stood, or i when none of the
 * home's keys stands elsewhere.
 */
static uint32_t call_home(struct wp_book *b, uint32_t i)
{
    struct home h = {i, i - b->left < b->n_left ? !b->now : b->now};
    uint32_t at = i, m = 0, way;
    uint64_t key;

    if (!away_of(b->at[i].state) || (b->at[i].state & USED) == USED)
        return i;
    while (!m) {
        at = after(b, at, h.side);
        m = living(b, at, h);
    }
    way = (uint32_t)__builtin_ctz(m);
    key = b->at[at].key[way];
    vacate(b, at, way, h);
    one_back(b, i);
    place(b, h, wp_book_hash(b->secret, key), key, b->at[at].value[way]);
    return at;
}

/* Bucket i has room that keys of its own, which stand elsewhere, are to be called into; their lines
 * are called for. */
static void note_hole(struct wp_book *b, uint32_t i)
{
    if (!away_of(b->at[i].state) || b->holes == WP_BOOK_HOLES)
        return;
    __builtin_prefetch(&b->at[i + 1], 1);
    __builtin_prefetch(&b->at[i + 2], 1);
    b->hole[(b->first_hole + b->holes++) % WP_BOOK_HOLES] = i;
}

/*
 * The oldest holes are filled, up to n steps, until few enough are left.  A key that comes home
 * leaves a hole itself. Without it most keys of a full table end up away from home after all have
 * been replaced once: 70 %, with it a sixth.
 */
static void fill_holes(struct wp_book *b, unsigned n, unsigned left)
{
    for (; n && b->holes > left; n--) {
        uint32_t i = b->hole[b->first_hole], next;

        b->first_hole = (uint8_t)((b->first_hole + 1) % WP_BOOK_HOLES);
        b->holes--;
        next = call_home(b, i);
        if (next != i)
            note_hole(b, next);
    }
}

void wp_book_del_at(struct wp_book *b, const struct spot *s)
{
    vacate(b, s->at, s->way, s->home);
    if (s->at != s->home.at)
        one_back(b, s->home.at);
    b->n--;
    if (!b->n && !b->owed && !b->least) {
        clear(b);
        return;
    }
    note_hole(b, s->at);
    fill_holes(b, FILLED_AT_ONCE, HOLES_WAIT);
    if (!moving(b) && nearly_empty(b))
        shrink(b);
    wp_book_work(b);
}

bool wp_book_del(struct wp_book *b, uint64_t key)
{
    struct spot s;

    if (!locate(b, key, &s))
        return false;
    wp_book_del_at(b, &s);
    return true;
}

bool wp_book_settle(struct wp_book *b, uint32_t n)
{
    fill_holes(b, n, 0);
    if (!moving(b) && nearly_empty(b))
        shrink(b);
    if (moving(b))
        move_some(b, n);
    return !moving(b);
}

/* The bucket itself, or where buckets that may have entries go on. */
static uint32_t skip_dropped(const struct wp_book *b, uint32_t i)
{
    return moving(b) && !grows(b) && i == b->side[b->now].buckets ? b->dropped : i;
}

unsigned wp_book_read(const struct wp_book *b, uint32_t *at, uint64_t key[WP_BOOK_WAYS],
                      uint32_t value[WP_BOOK_WAYS])
{
    uint32_t end = b->side[b->side[0].buckets < b->side[1].buckets].buckets;
    unsigned n = 0;

    for (; !n && *at < end; ++*at) {
        *at = skip_dropped(b, *at);
        if (*at == end)
            break;
        for (uint32_t m = b->at[*at].state & USED; m; m &= m - 1) {
            key[n] = b->at[*at].key[__builtin_ctz(m)];
            value[n++] = b->at[*at].value[__builtin_ctz(m)];
        }
    }
    return n;
}

void wp_book_sweep(struct wp_book *b, bool (*fn)(void *ctx, uint64_t key, uint32_t *value),
                   void *ctx)
{
    uint32_t end = b->side[b->side[0].buckets < b->side[1].buckets].buckets;

    for (uint32_t i = 0; i < end; i++) {
        i = skip_dropped(b, i);
        if (i == end)
            break;
        for (uint32_t m = b->at[i].state & USED; m; m &= m - 1) {
            struct wp_book_bucket *k = &b->at[i];
            uint32_t way = (uint32_t)__builtin_ctz(m);
            struct home h;

            if (fn(ctx, k->key[way], &k->value[way]))
                continue;
            h = home_of(b, wp_book_hash(b->secret, k->key[way]));
            vacate(b, i, way, h);
            if (h.at != i)
                one_back(b, h.at);
            b->n--;
        }
    }
    if (b->at && !b->n && !b->owed && !b->least)
        clear(b);
    if (!nearly_empty(b))
        return;
    if (moving(b))
        move_some(b, b->n_left);
    if (nearly_empty(b))
        shrink(b);
    if (moving(b))
        move_some(b, b->n_left);
}

uint32_t wp_book_look(const struct wp_book *b, uint32_t from, uint32_t n,
                      void (*fn)(void *ctx, uint64_t key, uint32_t value), void *ctx)
{
    uint32_t end = b->side[b->side[0].buckets < b->side[1].buckets].buckets, i = from;

    for (uint32_t upto = n < UINT32_MAX - from ? from + n : UINT32_MAX; i < end && i < upto; i++) {
        if (moving(b) && !grows(b) && i >= b->side[b->now].buckets && i < b->dropped)
            i = b->dropped; /* the pages before it have gone back */
        if (i >= end)
            break;
        for (uint32_t m = b->at[i].state & USED; m; m &= m - 1)
            fn(ctx, b->at[i].key[__builtin_ctz(m)], b->at[i].value[__builtin_ctz(m)]);
    }
    return i < end ? i : 0;
}

void wp_book_fini(struct wp_book *b, struct wp_budget *budget)
{
    b->budget = budget;
    clear(b);
    *b = (struct wp_book){0};
}
