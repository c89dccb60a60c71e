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
    EXPECT_UINT(label, p->b.paid, p->budget.bytes);
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

static const struct wp_test tests[] = {
    {"an empty book has no memory and nothing in it",
     an_empty_book_has_no_memory_and_nothing_in_it},
    {"random operations agree with a plain map", random_operations_agree_with_a_plain_map},
    {NULL, NULL},
};
const struct wp_suite suite_book = {"book", tests};
