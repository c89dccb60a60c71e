/* SPDX-License-Identifier: Apache-2.0 */
#include "index/book.h"

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

enum { SECRET = 0x5EC4E7 };

static bool drop_all(void *ctx, uint64_t key, uint32_t *value)
{
    (void)ctx, (void)key, (void)value;
    return false;
}

static void an_empty_book_has_no_memory_and_nothing_in_it(void)
{
    struct wp_book b = {0};
    struct wp_budget budget = {0};

    wp_book_prefetch(&b, 7);
    EXPECT_UINT("add none", 0, wp_book_add_run(&b, NULL, 0, 0));
    EXPECT_TRUE("find", !wp_book_find(&b, 0));
    EXPECT_TRUE("del", !wp_book_del(&b, 0));
    wp_book_sweep(&b, drop_all, NULL);
    EXPECT_TRUE("settle", wp_book_settle(&b, 9));
    EXPECT_INT("reserve nothing", 0, wp_book_reserve(&b, SECRET, 0, &budget));
    EXPECT_UINT("bytes", 0, b.bytes);
    wp_book_fini(&b, &budget);
    EXPECT_UINT("budget", 0, budget.bytes);
}

/* The same operations on a book and on base/map.h. */
struct pair {
    struct wp_book b;
    struct wp_map m;
    struct wp_budget budget;
    uint64_t secret;
};

static void store(struct pair *p, uint64_t key, uint32_t value)
{
    uint32_t *v = wp_book_find(&p->b, key);

    if (v) {
        *v = value;
    } else {
        EXPECT_INT("reserve", 0, wp_book_reserve(&p->b, p->secret, 1, &p->budget));
        wp_book_put(&p->b, key, value);
    }
    EXPECT_INT("map", 0, wp_map_put(&p->m, key, value));
}

static void erase(struct pair *p, uint64_t key)
{
    bool was = wp_map_del(&p->m, key);

    if (wp_book_del(&p->b, key) != was)
        EXPECT_TRUE("del tells whether it was there", 0);
}

struct looked {
    struct pair *p;
    size_t n, wrong;
};

static void see(void *ctx, uint64_t key, uint32_t value)
{
    struct looked *l = ctx;
    uint64_t want = 0;

    l->n++;
    l->wrong += !wp_map_get(&l->p->m, key, &want) || want != value;
}

/* All entries are seen, however few buckets at a time. */
static void same_when_looked_at(const char *label, struct pair *p)
{
    struct looked l = {.p = p};
    uint32_t at = 0;

    do
        at = wp_book_look(&p->b, at, 1 + (uint32_t)(p->b.n % 7), see, &l);
    while (at);
    EXPECT_UINT(label, p->b.n, l.n);
    EXPECT_UINT(label, 0, l.wrong);
}

static void same(const char *label, struct pair *p)
{
    uint64_t key, value;
    size_t wrong = 0;

    EXPECT_UINT(label, p->m.n, p->b.n);
    for (size_t i = 0; wp_map_next(&p->m, &i, &key, &value);) {
        const uint32_t *v = wp_book_find(&p->b, key);

        wrong += !v || *v != value;
    }
    EXPECT_UINT(label, 0, wrong);
    EXPECT_UINT(label, p->b.bytes, p->budget.bytes);
    same_when_looked_at(label, p);
}

static void pair_fini(struct pair *p)
{
    wp_book_fini(&p->b, &p->budget);
    wp_map_fini(&p->m);
    EXPECT_UINT("budget", 0, p->budget.bytes);
}

static void random_operations_agree_with_a_plain_map(void)
{
    struct pair p = {.secret = SECRET};
    struct wp_rng rng = {7};

    for (int i = 0; i < 200000; i++) {
        uint64_t key = wp_rng_below(&rng, 30000);

        if (wp_rng_below(&rng, 100) < (i / 50000 % 2 ? 30u : 70u))
            store(&p, key, (uint32_t)i);
        else
            erase(&p, key);
        if (i % 20000 == 0)
            same("so far", &p);
    }
    same("at the end", &p);
    pair_fini(&p);
}

/* Puts and dels by turns for as long as it takes to get from one size to another, through every
 * state of every move. */
static void a_book_that_grows_and_shrinks_loses_nothing_at_any_step(void)
{
    static const uint32_t sizes[] = {1,    5,   60,    300, 700, 3000, 20000,
                                     9000, 150, 12000, 200, 2,   4000, 0};
    struct pair p = {.secret = SECRET};
    struct wp_rng rng = {3};
    uint64_t first = 0, next = 0;
    size_t moving = 0;

    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        while (p.b.n != sizes[k]) {
            bool more = p.b.n < sizes[k];

            if (wp_rng_below(&rng, 4) == 0 && p.b.n)
                more = !more;
            if (more)
                store(&p, next++, (uint32_t)wp_rng_next(&rng));
            else
                erase(&p, first++);
            if (!wp_book_settle(&p.b, 0) && ++moving % 101 == 0)
                same("while moving", &p);
        }
        same("at size", &p);
    }
    EXPECT_TRUE("moves were seen", moving > 1000);
    EXPECT_UINT("no memory", 0, p.b.bytes);
    pair_fini(&p);
}

static void keys_of_any_shape_are_kept(void)
{
    static const uint64_t steps[] = {
        1, 2, 64, 1u << 20, 1ull << 32, 1ull << 52, 0x9E3779B97F4A7C15u};

    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        struct pair p = {.secret = wp_rng_secret()};

        for (uint64_t i = 0; i < 2000; i++)
            store(&p, i * steps[k], (uint32_t)i);
        store(&p, 0, 1);
        store(&p, UINT64_MAX, 2);
        store(&p, p.secret, 3);
        store(&p, ~p.secret, UINT32_MAX);
        same("stored", &p);
        EXPECT_TRUE("not stored", !wp_book_find(&p.b, 2000 * steps[k] + 5));
        for (uint64_t i = 0; i < 2000; i += 2)
            erase(&p, i * steps[k]);
        same("half erased", &p);
        pair_fini(&p);
    }
}

/* wp_book_hash backwards: each step of it is one to one. */
static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd;

    for (int i = 0; i < 5; i++)
        x *= 2 - odd * x;
    return x;
}

static uint64_t key_for(uint64_t secret, uint64_t hash)
{
    uint64_t x = hash ^ (hash >> 32);

    x *= inverse(0xD6E8FEB86659FD93u);
    x ^= x >> 32;
    return x * inverse(0x9E3779B97F4A7C15u) ^ secret;
}

/* Somebody has learnt the secret: all keys have one home.  Slow, but nothing is lost. */
static void keys_that_share_a_home_are_kept(void)
{
    static const struct {
        const char *label;
        uint64_t first; /* hash */
    } cases[] = {
        {"the first home", 0},
        {"in the middle", 1ull << 63},
        {"the last home, so that all wrap around", UINT64_MAX - 100000},
    };

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct pair p = {.secret = SECRET};
        struct wp_rng rng = {k};
        uint64_t n = 1500;

        EXPECT_UINT("inverted", cases[k].first,
                    wp_book_hash(SECRET, key_for(SECRET, cases[k].first)));
        for (uint64_t i = 0; i < n; i++) {
            store(&p, key_for(SECRET, cases[k].first + i), (uint32_t)i);
            store(&p, wp_rng_next(&rng), 1);
        }
        same(cases[k].label, &p);
        EXPECT_TRUE(cases[k].label, !wp_book_find(&p.b, key_for(SECRET, cases[k].first + n)));
        for (uint64_t i = 0; i < n; i++) {
            erase(&p, key_for(SECRET, cases[k].first + (i * 7) % n));
            if (i % 100 == 0)
                same(cases[k].label, &p);
        }
        same(cases[k].label, &p);
        pair_fini(&p);
    }
}

struct visit {
    struct pair *p;
    uint64_t keep_below;
    size_t visited, wrong;
};

/* Keeps keys below a bound, and adds one to their values. */
static bool keep_some(void *ctx, uint64_t key, uint32_t *value)
{
    struct visit *v = ctx;
    uint64_t there = 0;

    v->visited++;
    v->wrong += !wp_map_get(&v->p->m, key, &there) || there != *value;
    if (key >= v->keep_below) {
        wp_map_del(&v->p->m, key);
        return false;
    }
    ++*value;
    wp_map_put(&v->p->m, key, *value);
    return true;
}

static void sweep_to(struct pair *p, uint64_t keep_below)
{
    struct visit v = {.p = p, .keep_below = keep_below};
    size_t n = p->b.n;

    wp_book_sweep(&p->b, keep_some, &v);
    EXPECT_UINT("each once", n, v.visited);
    EXPECT_UINT("as stored", 0, v.wrong);
    same("swept", p);
}

static void a_sweep_sees_each_entry_once_in_every_state_of_a_move(void)
{
    for (uint32_t settled = 0; settled < 2000; settled += 90) {
        struct pair p = {.secret = SECRET};
        uint64_t n = 0;

        while (n < 3000 || wp_book_settle(&p.b, 0))
            store(&p, n, (uint32_t)(n * 3)), n++;
        wp_book_settle(&p.b, settled);
        sweep_to(&p, UINT64_MAX); /* all stay */
        sweep_to(&p, n - n / 4);
        wp_book_settle(&p.b, settled);
        for (uint64_t i = 0; i < 100; i++)
            store(&p, i + n, 1);
        sweep_to(&p, 50);
        EXPECT_TRUE("memory went back", p.b.bytes <= 4096);
        sweep_to(&p, 0);
        EXPECT_UINT("all of it", 0, p.b.bytes);
        pair_fini(&p);
    }
}

static void a_sweep_may_come_while_a_table_shrinks(void)
{
    for (uint32_t settled = 0; settled < 3000; settled += 170) {
        struct pair p = {.secret = SECRET};
        uint64_t first = 0;

        for (uint64_t i = 0; i < 12000; i++)
            store(&p, i, 5);
        while (!wp_book_settle(&p.b, 1000))
            ;
        while (wp_book_settle(&p.b, 0))
            erase(&p, first++);
        wp_book_settle(&p.b, settled);
        sweep_to(&p, UINT64_MAX);
        sweep_to(&p, 11000);
        pair_fini(&p);
    }
}

static void a_growth_beyond_the_budget_is_refused_and_changes_nothing(void)
{
    struct pair p = {.secret = SECRET, .budget = {.cap = 100000}};
    uint64_t n = 0;
    size_t room;
    int rc;

    while ((rc = wp_book_reserve(&p.b, SECRET, 1, &p.budget)) == 0) {
        wp_book_put(&p.b, n, 1);
        wp_map_put(&p.m, n++, 1);
        if (p.budget.bytes > p.budget.cap)
            EXPECT_UINT("within the cap", p.budget.cap, p.budget.bytes);
    }
    EXPECT_INT("refused", WP_ETOOBIG, rc);
    EXPECT_TRUE("not too early", n * 20 > 100000);
    EXPECT_INT("again", WP_ETOOBIG, wp_book_reserve(&p.b, SECRET, UINT32_MAX, &p.budget));
    same("as it was", &p);
    room = p.b.n;
    for (uint64_t i = 0; i < 5; i++)
        erase(&p, i);
    EXPECT_INT("room for what went", 0, wp_book_reserve(&p.b, SECRET, 5, &p.budget));
    EXPECT_INT("not for more", WP_ETOOBIG, wp_book_reserve(&p.b, SECRET, 6, &p.budget));
    EXPECT_INT("still", 0, wp_book_reserve(&p.b, SECRET, 5, &p.budget));
    for (uint64_t i = 0; i < 5; i++)
        store(&p, i, 2);
    EXPECT_UINT("full again", room, p.b.n);
    p.budget.cap *= 2;
    for (uint64_t i = 0; i < 500; i++)
        store(&p, n + i, 3);
    same("more allowed, more there", &p);
    pair_fini(&p);
}

static void what_was_reserved_stays_whatever_is_deleted(void)
{
    struct pair p = {.secret = SECRET};

    for (uint64_t i = 0; i < 9000; i++)
        store(&p, i, 1);
    EXPECT_INT("reserve", 0, wp_book_reserve(&p.b, SECRET, 5000, &p.budget));
    for (uint64_t i = 0; i < 9000; i++)
        erase(&p, i);
    for (uint64_t i = 0; i < 5000; i++) {
        wp_book_put(&p.b, i, 2);
        wp_map_put(&p.m, i, 2);
    }
    same("all came in", &p);
    pair_fini(&p);
}

static void without_memory_a_book_stays_as_it_was(void)
{
    long live = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_book b = {0};
        struct wp_budget budget = {0};
        uint64_t n = 0;
        int rc = 0;

        wp_mem_fail_after(nth);
        for (; n < 5000 && rc == 0; n += rc == 0) {
            rc = wp_book_reserve(&b, SECRET, 1, &budget);
            if (rc == 0)
                wp_book_put(&b, n, (uint32_t)n);
        }
        for (uint64_t i = 0; i < n; i++)
            if (!wp_book_find(&b, i))
                EXPECT_TRUE("found", 0);
        for (uint64_t i = 0; i < n; i++) /* shrinking may fail too: then it is later */
            if (!wp_book_del(&b, i))
                EXPECT_TRUE("deleted", 0);
        EXPECT_UINT("empty", 0, b.n);
        if (!wp_mem_failed()) {
            wp_mem_fail_after(-1);
            wp_book_fini(&b, &budget);
            break;
        }
        EXPECT_TRUE("said so, or did without", rc == 0 || rc == WP_ENOMEM);
        wp_book_fini(&b, &budget);
        EXPECT_UINT("budget", 0, budget.bytes);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
}

static void an_entry_costs_sixteen_bytes(void)
{
    struct wp_book b = {0};
    struct wp_budget budget = {0};
    double sum = 0, most = 0;
    uint64_t from = 10000, to = 300000;

    for (uint64_t i = 1; i <= to; i++) {
        double each;

        EXPECT_INT("reserve", 0, wp_book_reserve(&b, SECRET, 1, &budget));
        wp_book_put(&b, i, 1);
        each = (double)b.bytes / (double)i;
        if (i < from)
            continue;
        sum += each;
        most = each > most ? each : most;
    }
    EXPECT_TRUE("on the mean", sum / (double)(to - from + 1) < 16.5);
    EXPECT_TRUE("at most", most < 18);
    for (uint64_t i = 1; i <= to; i++) {
        wp_book_del(&b, i);
        if (b.n == 1000)
            EXPECT_TRUE("and gives them back", b.bytes < 5 * 16 * 1000);
    }
    EXPECT_UINT("all", 0, b.bytes);
    wp_book_fini(&b, &budget);
}

/* Without care at each del, 70 % of the keys would end up away from home. */
static void replacing_all_keys_many_times_leaves_most_at_home(void)
{
    struct wp_book b = {0};
    struct wp_budget budget = {0};
    uint64_t first = 0, next = 0, away = 0;
    uint32_t buckets;

    EXPECT_INT("reserve", 0, wp_book_reserve(&b, SECRET, 20000, &budget));
    buckets = b.side[b.now].buckets;
    while (next < 400000) {
        if (b.n >= buckets * 83ull / 20)
            wp_book_del(&b, first++);
        EXPECT_INT("reserve", 0, wp_book_reserve(&b, SECRET, 1, &budget));
        wp_book_put(&b, next++, 1);
    }
    for (uint32_t i = 0; i < buckets; i++)
        away += b.at[i].state >> 10 & 0x3FFF;
    EXPECT_UINT("it never grew", buckets, b.side[b.now].buckets);
    EXPECT_TRUE("a fifth at most is away", away < b.n / 5);
    wp_book_fini(&b, &budget);
}

/* Up to 40 keys at a time, some of which are there; through growth and shrinking. */
static void runs_of_keys_agree_with_a_plain_map(void)
{
    struct pair p = {.secret = SECRET};
    struct wp_rng rng = {11};
    uint64_t key[40], was;

    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t n = 1 + (uint32_t)wp_rng_below(&rng, 40), want = 0;
        uint64_t from = wp_rng_below(&rng, 30000), step = 1 + wp_rng_below(&rng, 3);
        struct wp_book_found found[WP_BOOK_AHEAD];

        for (uint32_t k = 0; k < n; k++)
            key[k] = from + k * step;
        if (wp_rng_below(&rng, 100) < (i / 5000 % 2 ? 30u : 70u)) {
            while (want < n && !wp_map_get(&p.m, key[want], &was))
                EXPECT_INT("map", 0, wp_map_put(&p.m, key[want], i + want)), want++;
            EXPECT_INT("reserve", 0, wp_book_reserve(&p.b, p.secret, n, &p.budget));
            EXPECT_UINT("put", want, wp_book_add_run(&p.b, key, n, i));
        } else {
            n = n < WP_BOOK_AHEAD ? n : WP_BOOK_AHEAD;
            if (wp_rng_below(&rng, 4) == 0)
                key[n - 1] = key[0]; /* found twice, deleted once */
            wp_book_find_run(&p.b, key, n, found);
            for (uint32_t k = 0; k < n; k++) {
                EXPECT_TRUE("found", !found[k].there || !wp_map_get(&p.m, key[k], &was) ||
                                         was == found[k].value);
                EXPECT_TRUE("deleted",
                            (found[k].there && wp_book_del_found(&p.b, key[k], &found[k])) ==
                                wp_map_del(&p.m, key[k]));
            }
        }
        if (i % 1000 == 0)
            same("so far", &p);
    }
    same("at the end", &p);
    pair_fini(&p);
}

/* Room to spare for what fills it, and memory that the aims for the index allow. */
static void a_foretold_book_is_roomy_and_never_moves(void)
{
    struct wp_book b = {0};
    struct wp_budget budget = {0};
    uint64_t first = 0, next = 0, away = 0;
    const size_t n = 43000;
    uint32_t buckets;

    EXPECT_INT("expect", 0, wp_book_expect(&b, SECRET, n, &budget));
    buckets = b.side[b.now].buckets;
    EXPECT_TRUE("bytes of an entry", (double)b.bytes / (double)n < 16.9);
    while (next < 10 * n) {
        if (b.n == n)
            EXPECT_TRUE("there", wp_book_del(&b, first++));
        EXPECT_INT("reserve", 0, wp_book_reserve(&b, SECRET, 1, &budget));
        wp_book_put(&b, next, (uint32_t)next);
        next++;
    }
    EXPECT_UINT("buckets", buckets, b.side[b.now].buckets);
    EXPECT_TRUE("holes wait, and are not gathered", b.holes <= WP_BOOK_HOLES);
    EXPECT_TRUE("idle", wp_book_settle(&b, 100000));
    EXPECT_UINT("no hole waits", 0, b.holes);
    for (uint32_t i = 0; i < buckets; i++)
        away += b.at[i].state >> 10 & 0x3FFF;
    EXPECT_TRUE("a seventh at most is away", away < b.n / 7);
    for (uint64_t k = first; k < next; k++)
        EXPECT_TRUE("each", wp_book_find(&b, k) && *wp_book_find(&b, k) == (uint32_t)k);
    wp_book_fini(&b, &budget);
}

static const struct wp_test tests[] = {
    {"runs of keys agree with a plain map", runs_of_keys_agree_with_a_plain_map},
    {"a foretold book is roomy and never moves", a_foretold_book_is_roomy_and_never_moves},
    {"replacing all keys many times leaves most at home",
     replacing_all_keys_many_times_leaves_most_at_home},
    {"an empty book has no memory and nothing in it",
     an_empty_book_has_no_memory_and_nothing_in_it},
    {"random operations agree with a plain map", random_operations_agree_with_a_plain_map},
    {"a book that grows and shrinks loses nothing at any step",
     a_book_that_grows_and_shrinks_loses_nothing_at_any_step},
    {"keys of any shape are kept", keys_of_any_shape_are_kept},
    {"keys that share a home are kept", keys_that_share_a_home_are_kept},
    {"a sweep sees each entry once in every state of a move",
     a_sweep_sees_each_entry_once_in_every_state_of_a_move},
    {"a sweep may come while a table shrinks", a_sweep_may_come_while_a_table_shrinks},
    {"a growth beyond the budget is refused and changes nothing",
     a_growth_beyond_the_budget_is_refused_and_changes_nothing},
    {"what was reserved stays whatever is deleted", what_was_reserved_stays_whatever_is_deleted},
    {"without memory a book stays as it was", without_memory_a_book_stays_as_it_was},
    {"an entry costs sixteen bytes", an_entry_costs_sixteen_bytes},
    {NULL, NULL},
};
const struct wp_suite suite_book = {"book", tests};
