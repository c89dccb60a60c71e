/* SPDX-License-Identifier: Apache-2.0 */
#include "index/identity.h"
#include "tests/lib/index_rig.h"
#include "tests/lib/test.h"

/* "blocks x holders, ..." of the best n. */
static const char *top(struct wp_index_rig *r, size_t n, char out[256])
{
    struct wp_index_prefix p[WP_TOP_MAX];
    struct wp_index_top *t;
    size_t at = 0;

    out[0] = 0;
    EXPECT_INT("start", 0, wp_index_top_start(&t, n));
    while (!wp_index_top_step(r->ix, t))
        ;
    n = wp_index_top_take(r->ix, t, p);
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, 256 - at, "%s%ux%u", i ? " " : "", p[i].blocks,
                               p[i].holders);
    wp_index_top_free(t);
    return out;
}

static void shared_prefixes_are_told_by_weight(void)
{
    struct wp_index_prefix p[4];
    struct wp_index_top *t;
    struct wp_index_rig r;
    uint64_t local[WP_INDEX_RIG_LONGEST], chain[WP_INDEX_RIG_LONGEST];
    char out[256];

    wp_index_rig_init(&r, NULL);
    EXPECT_TEXT("nothing", "", wp_str_of(top(&r, 4, out)));
    wp_index_rig_store(&r, r.w[0], 0, "", "abcdefghijkl");
    EXPECT_TEXT("nothing is shared", "", wp_str_of(top(&r, 4, out)));
    wp_index_rig_store(&r, r.w[1], 0, "", "abcdefghijkl");
    EXPECT_TEXT("once, however many runs it crosses", "12x2", wp_str_of(top(&r, 4, out)));
    wp_index_rig_store(&r, r.w[2], 1, "", "abcdefghi");
    wp_index_rig_store(&r, r.w[3], 0, "", "abcdefghiXYZ");
    EXPECT_TEXT("the most blocks times holders first", "9x4", wp_str_of(top(&r, 1, out)));
    wp_index_rig_store(&r, r.w[2], 0, "", "uvw");
    wp_index_rig_store(&r, r.pool, 3, "", "uvw");
    top(&r, 9, out);
    EXPECT_TRUE(out, strstr(out, "9x4") == out && strstr(out, " 3x2"));
    EXPECT_INT("start", 0, wp_index_top_start(&t, 1));
    while (!wp_index_top_step(r.ix, t))
        ;
    wp_index_rig_remove(&r, r.w[3], 0, "i");
    EXPECT_UINT("one", 1, wp_index_top_take(r.ix, t, p));
    wp_index_top_free(t);
    EXPECT_UINT("as it is when it is told", 3, p[0].holders);
    EXPECT_UINT("holder", r.w[0], p[0].holder[0]);
    EXPECT_UINT("holder", r.w[2], p[0].holder[2]);
    wp_hash_chain(local, wp_index_rig_letters("abcdefghi", local), chain);
    EXPECT_UINT("its name", chain[8], p[0].chain);
    wp_index_rig_fini(&r);
}

static void what_goes_between_slices_is_not_told(void)
{
    struct wp_index_prefix p[4];
    struct wp_index_top *t;
    struct wp_index_rig r;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "abcdef");
    wp_index_rig_store(&r, r.w[1], 0, "", "abcdef");
    EXPECT_INT("start", 0, wp_index_top_start(&t, 4));
    while (!wp_index_top_step(r.ix, t))
        ;
    wp_index_clear(r.ix, r.w[0]);
    wp_index_clear(r.ix, r.w[1]);
    wp_index_rig_store(&r, r.w[0], 0, "", "uvwxyz");
    EXPECT_UINT("none", 0, wp_index_top_take(r.ix, t, p));
    wp_index_top_free(t);
    wp_index_rig_fini(&r);
}

static void the_size_of_a_holder_is_its_own(void)
{
    struct wp_buf model = {0};
    enum wp_space_kind kind = WP_SPACE_BYTES;
    uint64_t blocks, bytes;
    struct wp_index_rig r;
    uint32_t size = 0;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "abcdef");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[0], 1, "", "ab", true);
    wp_index_rig_store(&r, r.w[0], 0, "x", "y"); /* floats */
    wp_index_holder_size(r.ix, r.w[0], &blocks, &bytes);
    EXPECT_UINT("blocks, each once", 6, blocks);
    EXPECT_TRUE("six names", bytes >= 6 * 12);
    wp_index_holder_size(r.ix, 1000, &blocks, &bytes);
    EXPECT_UINT("nobody", 0, blocks + bytes);
    wp_index_clear(r.ix, r.w[0]);
    wp_index_holder_size(r.ix, r.w[0], &blocks, &bytes);
    EXPECT_UINT("gone", 0, blocks + bytes);
    EXPECT_TRUE("a space", wp_index_space_is(r.ix, r.space, &model, &size, &kind));
    EXPECT_TEXT("its model", "m", wp_buf_str(&model));
    EXPECT_UINT("its block size", 16, size);
    EXPECT_INT("its kind", WP_SPACE_TOKENS, kind);
    EXPECT_TRUE("no space", !wp_index_space_is(r.ix, 7, &model, &size, &kind));
    wp_buf_fini(&model);
    wp_index_rig_fini(&r);
}

const struct wp_suite suite_index_top = {
    "index_top",
    (const struct wp_test[]){
        {"shared prefixes are told by weight", shared_prefixes_are_told_by_weight},
        {"what goes between slices is not told", what_goes_between_slices_is_not_told},
        {"the size of a holder is its own", the_size_of_a_holder_is_its_own},
        {NULL, NULL},
    },
};
