/* SPDX-License-Identifier: Apache-2.0 */
#include "index/prefix.h"

#include "base/rng.h"
#include "tests/lib/test.h"

enum { ROUNDS = 2000 };

static void some_blocks(struct wp_rng *r, uint64_t local[WP_SEGMENT])
{
    for (unsigned i = 0; i < WP_SEGMENT; i++)
        local[i] = wp_rng_next(r);
}

/* The formula, word by word. */
static struct wp_sums plainly(const struct wp_prefix *p, uint32_t at, const uint64_t local[],
                              size_t n)
{
    struct wp_sums s = {0};

    for (size_t i = 0; i < n; i++)
        for (unsigned pass = 0; pass < 2; pass++) {
            uint64_t k = p->k[at + i + pass];
            uint32_t low = (uint32_t)k + (uint32_t)local[i],
                     high = (uint32_t)(k >> 32) + (uint32_t)(local[i] >> 32);

            *(pass ? &s.b : &s.a) += (uint64_t)low * high;
        }
    return s;
}

static void sums_are_what_the_formula_says(void)
{
    struct wp_rng r = {7};
    struct wp_prefix p;
    uint64_t local[WP_SEGMENT];

    wp_prefix_init(&p, 99);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t at = (uint32_t)wp_rng_below(&r, WP_SEGMENT),
                 n = (uint32_t)wp_rng_below(&r, WP_SEGMENT - at + 1);
        struct wp_sums want, got;

        some_blocks(&r, local);
        want = plainly(&p, at, local, n);
        for (int wide = 0; wide < 2; wide++) {
            struct wp_prefix q = p;

            q.wide = p.wide && wide; /* by the narrow way too */
            got = wp_prefix_add(&q, (struct wp_sums){0}, at, local, n);
            EXPECT_UINT("a", want.a, got.a);
            EXPECT_UINT("b", want.b, got.b);
        }
    }
}

static void parts_add_up(void)
{
    struct wp_rng r = {8};
    struct wp_prefix p;
    uint64_t local[WP_SEGMENT];

    wp_prefix_init(&p, 5);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t cut = (uint32_t)wp_rng_below(&r, WP_SEGMENT + 1);
        struct wp_sums whole, parts;

        some_blocks(&r, local);
        whole = wp_prefix_add(&p, (struct wp_sums){0}, 0, local, WP_SEGMENT);
        parts = wp_prefix_add(&p, (struct wp_sums){0}, 0, local, cut);
        parts = wp_prefix_add(&p, parts, cut, local + cut, WP_SEGMENT - cut);
        EXPECT_UINT("a", whole.a, parts.a);
        EXPECT_UINT("b", whole.b, parts.b);
    }
}

static uint64_t key_of(const struct wp_prefix *p, uint64_t base, const uint64_t local[], uint32_t n)
{
    return wp_prefix_key(p, base, wp_prefix_add(p, (struct wp_sums){0}, 0, local, n), n);
}

/* Each way in which two prefixes may differ; and the secret. */
static void other_prefixes_have_other_keys(void)
{
    struct wp_rng r = {9};
    struct wp_prefix p, q;
    uint64_t local[WP_SEGMENT], key;

    wp_prefix_init(&p, 5);
    wp_prefix_init(&q, 6);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = 2 + (uint32_t)wp_rng_below(&r, WP_SEGMENT - 1),
                 i = (uint32_t)wp_rng_below(&r, n - 1);
        uint64_t swap, bit = 1ull << wp_rng_below(&r, 64);

        some_blocks(&r, local);
        key = key_of(&p, 1, local, n);
        EXPECT_UINT("the same", key, key_of(&p, 1, local, n));
        EXPECT_TRUE("another base", key != key_of(&p, 2, local, n));
        EXPECT_TRUE("shorter", key != key_of(&p, 1, local, n - 1));
        EXPECT_TRUE("another secret", key != key_of(&q, 1, local, n));
        local[i] ^= bit;
        EXPECT_TRUE("a bit", key != key_of(&p, 1, local, n));
        local[i] ^= bit;
        swap = local[i];
        local[i] = local[i + 1];
        local[i + 1] = swap;
        EXPECT_TRUE("another order", key != key_of(&p, 1, local, n));
        local[i + 1] = local[i];
        local[i] = swap;
        local[n - 1] = 0;
        EXPECT_TRUE("a block of noughts is not none",
                    key_of(&p, 1, local, n) != key_of(&p, 1, local, n - 1));
    }
}

const struct wp_suite suite_prefix = {
    "prefix",
    (const struct wp_test[]){
        {"sums are what the formula says, by any way", sums_are_what_the_formula_says},
        {"parts add up", parts_add_up},
        {"other prefixes have other keys", other_prefixes_have_other_keys},
        {NULL, NULL},
    },
};
