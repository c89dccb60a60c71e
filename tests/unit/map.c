/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

enum { KEYS = 512 };

/* What the map should hold, as plain arrays. */
struct model {
    uint64_t value[KEYS];
    bool there[KEYS];
    size_t n;
};

static void agree(const struct wp_map *m, const struct model *want, uint64_t stride)
{
    size_t seen = 0, wrong = 0;
    uint64_t k, v;

    for (size_t i = 0; wp_map_next(m, &i, &k, &v);) {
        seen++;
        wrong += k % stride != 0 || k / stride >= KEYS || !want->there[k / stride] ||
                 want->value[k / stride] != v;
    }
    for (size_t i = 0; i < KEYS; i++) {
        bool there = wp_map_get(m, i * stride, &v);
        uint64_t *at = wp_map_at(m, i * stride);

        wrong += there != want->there[i] || (there && v != want->value[i]) ||
                 (at != NULL) != there || (at && *at != v);
    }
    EXPECT_UINT("size", want->n, m->n);
    EXPECT_UINT("visited", want->n, seen);
    EXPECT_UINT("wrong", 0, wrong);
}

static void a_map_is_what_plain_arrays_say(void)
{
    static const uint64_t strides[] = {1, 8, (uint64_t)1 << 32};

    for (size_t s = 0; s < 3; s++) {
        struct wp_map m = {.seed = s * 12345};
        struct model want = {.n = 0};
        struct wp_rng r = {s};

        for (unsigned step = 0; step < 20000; step++) {
            size_t i = wp_rng_below(&r, KEYS);
            uint64_t key = i * strides[s], v = wp_rng_next(&r);

            if (wp_rng_below(&r, 5) < 2 + (step / 4000) % 2) { /* it grows and shrinks by turns */
                EXPECT_INT("del", want.there[i], wp_map_del(&m, key));
                want.n -= want.there[i];
                want.there[i] = false;
            } else {
                EXPECT_INT("put", 0, wp_map_put(&m, key, v));
                want.n += !want.there[i];
                want.there[i] = true;
                want.value[i] = v;
            }
            if (step % 1000 == 0)
                agree(&m, &want, strides[s]);
        }
        agree(&m, &want, strides[s]);
        EXPECT_TRUE("at most three quarters full", m.n <= m.cap / 4 * 3);
        wp_map_fini(&m);
    }
}

static void an_empty_map_has_nothing(void)
{
    struct wp_map m = {0};
    uint64_t k = 7, v = 7;
    size_t i = 0;

    EXPECT_TRUE("get", !wp_map_get(&m, 0, &v) && !wp_map_at(&m, 0) && !wp_map_del(&m, 0));
    EXPECT_TRUE("next", !wp_map_next(&m, &i, &k, &v));
    EXPECT_INT("key 0 is a key", 0, wp_map_put(&m, 0, 1));
    EXPECT_TRUE("there", wp_map_get(&m, 0, &v) && v == 1);
    wp_map_fini(&m);
    EXPECT_TRUE("empty again", !wp_map_get(&m, 0, &v));
    EXPECT_INT("and of use again", 0, wp_map_put(&m, 1, 1));
    wp_map_fini(&m);
}

static void without_memory_a_map_stays_as_it_was(void)
{
    struct wp_map m = {0};
    uint64_t v;

    wp_mem_fail_after(0);
    EXPECT_INT("first", WP_ENOMEM, wp_map_put(&m, 1, 1));
    wp_mem_fail_after(-1);
    for (uint64_t k = 0; k < 6; k++)
        EXPECT_INT("put", 0, wp_map_put(&m, k, k));
    wp_mem_fail_after(0);
    EXPECT_INT("growth", WP_ENOMEM, wp_map_put(&m, 6, 6));
    wp_mem_fail_after(0);
    EXPECT_INT("replacing needs none", 0, wp_map_put(&m, 5, 55));
    wp_mem_fail_after(-1);
    EXPECT_UINT("six", 6, m.n);
    EXPECT_TRUE("as before", wp_map_get(&m, 5, &v) && v == 55 && !wp_map_get(&m, 6, &v));
    wp_map_fini(&m);
}

const struct wp_suite suite_map = {
    "map",
    (const struct wp_test[]){
        {"a map is what plain arrays say", a_map_is_what_plain_arrays_say},
        {"an empty map has nothing", an_empty_map_has_nothing},
        {"without memory a map stays as it was", without_memory_a_map_stays_as_it_was},
        {NULL, NULL},
    },
};
