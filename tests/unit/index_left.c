/* SPDX-License-Identifier: Apache-2.0 */
/* Who watches an index is told of what leaves it. */
#include "index/index.h"

#include "tests/lib/test.h"

enum { BLOCKS = 300, TOLD_MAX = 4096 };

static struct wp_index *ix;
static uint32_t space, holder[2];
static uint64_t hash[BLOCKS];
static struct {
    struct wp_index_left left[TOLD_MAX];
    size_t n;
} told;

static void on_left(void *arg, const struct wp_index_left *l)
{
    EXPECT_TRUE("the argument", arg == &told);
    if (told.n < TOLD_MAX)
        told.left[told.n++] = *l;
}

static void set_up(uint32_t block_size)
{
    struct wp_err err;

    told.n = 0;
    wp_index_create(&ix, &(struct wp_index_conf){.secret = 7}, &err);
    wp_index_space(ix, WP_STR("m"), block_size, WP_STR(""), WP_SPACE_TOKENS, &space, &err);
    for (int i = 0; i < 2; i++)
        wp_index_holder(ix, WP_HOLDER_RANK, WP_NO_HOLDER, &holder[i], &err);
    for (size_t i = 0; i < BLOCKS; i++)
        hash[i] = 1000 + i;
    wp_index_watch(ix, on_left, &told);
}

static void tear_down(void)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_TRUE("whole", wp_index_verify(ix, &err));
    wp_index_destroy(ix);
}

static void say(enum wp_kv_kind kind, int h, uint8_t tier, size_t from, size_t n)
{
    struct wp_kv_event ev = {.kind = kind,
                             .holder = holder[h],
                             .space = space,
                             .main_group = true,
                             .tier = tier,
                             .has_parent = from > 0,
                             .parent = from ? hash[from - 1] : 0,
                             .n = n,
                             .engine = hash + from,
                             .local = kind == WP_KV_STORED ? hash + from : NULL};

    wp_index_apply(ix, &ev, NULL);
}

static void each_block_is_told_once_with_its_place(void)
{
    set_up(512);
    say(WP_KV_STORED, 0, 0, 0, BLOCKS);
    say(WP_KV_REMOVED, 0, 0, 100, 200);
    EXPECT_UINT("all that went", 200, told.n);
    for (size_t i = 0; i < told.n; i++) {
        EXPECT_UINT("at its place", told.left[i].local - 1000, told.left[i].at);
        EXPECT_TRUE("nobody else has it", told.left[i].last);
        EXPECT_UINT("of its space", space, told.left[i].space);
    }
    say(WP_KV_REMOVED, 0, 0, 100, 200);
    EXPECT_UINT("and not again", 200, told.n);
    tear_down();
}

static void it_left_when_its_last_tier_did(void)
{
    set_up(512);
    say(WP_KV_STORED, 0, 0, 0, 10);
    say(WP_KV_STORED, 1, 0, 0, 10);
    say(WP_KV_STORED, 0, 1, 0, 10);
    say(WP_KV_REMOVED, 0, 0, 0, 10);
    EXPECT_UINT("it is in another tier", 0, told.n);
    say(WP_KV_REMOVED, 0, 1, 4, 6);
    EXPECT_UINT("now it is not", 6, told.n);
    EXPECT_TRUE("somebody else has it", !told.left[0].last);
    say(WP_KV_REMOVED, 1, 0, 4, 6);
    EXPECT_UINT("there, too", 12, told.n);
    EXPECT_TRUE("the last one", told.left[11].last);
    tear_down();
}

static void a_copy_that_goes_leaves_the_other(void)
{
    set_up(512);
    say(WP_KV_STORED, 0, 0, 0, 4);
    say(WP_KV_STORED, 0, 0, 0, 4);
    say(WP_KV_REMOVED, 0, 0, 3, 1);
    EXPECT_UINT("one is left", 0, told.n);
    say(WP_KV_REMOVED, 0, 0, 3, 1);
    EXPECT_UINT("none is", 1, told.n);
    tear_down();
}

static void one_block_in_512_tokens_is_told(void)
{
    static const struct {
        uint32_t size, stride;
    } cases[] = {{16, 32}, {64, 8}, {100, 4}, {512, 1}, {1024, 1}, {1, 128}};

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        uint32_t stride = wp_index_stride(cases[k].size);
        size_t want = 0;

        /* segments may be built shorter, and no stride is longer than they are */
        EXPECT_TRUE("the stride, or a segment", stride == cases[k].stride || stride == 4);
        set_up(cases[k].size);
        say(WP_KV_STORED, 0, 0, 0, BLOCKS);
        say(WP_KV_REMOVED, 0, 0, 7, BLOCKS - 7);
        for (size_t i = 7; i < BLOCKS; i++)
            want += i % stride == stride - 1;
        EXPECT_UINT("the sample", want, told.n);
        for (size_t i = 0; i < told.n; i++)
            EXPECT_UINT("each at its place", stride - 1, told.left[i].at % stride);
        tear_down();
    }
}

static void resets_and_refusals_are_no_evictions(void)
{
    set_up(512);
    say(WP_KV_STORED, 0, 0, 0, 50);
    say(WP_KV_CLEARED, 0, 0, 0, 0);
    say(WP_KV_STORED, 0, 0, 0, 50);
    wp_index_drop(ix, holder[0]);
    EXPECT_UINT("neither a clear nor a drop", 0, told.n);
    wp_index_watch(ix, NULL, NULL);
    say(WP_KV_STORED, 1, 0, 0, 50);
    say(WP_KV_REMOVED, 1, 0, 0, 50);
    EXPECT_UINT("nobody watches", 0, told.n);
    tear_down();
}

static const struct wp_test tests[] = {
    {"each block is told once, with its place", each_block_is_told_once_with_its_place},
    {"it left when its last tier did", it_left_when_its_last_tier_did},
    {"a copy that goes leaves the other", a_copy_that_goes_leaves_the_other},
    {"one block in 512 tokens is told", one_block_in_512_tokens_is_told},
    {"resets and refusals are no evictions", resets_and_refusals_are_no_evictions},
    {NULL, NULL},
};
const struct wp_suite suite_index_left = {"index_left", tests};
