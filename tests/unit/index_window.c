/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that restrict, and blocks that are never certain.  Letters are blocks, hashes and names.
 */
#include "base/mem.h"
#include "tests/lib/index_rig.h"
#include "tests/lib/test.h"

enum { MAIN = 0, WIN = 5 };

static void share(struct wp_index_rig *r, enum wp_kv_kind kind, uint32_t holder, uint16_t group,
                  const char *blocks)
{
    uint64_t hash[WP_INDEX_RIG_LONGEST];
    struct wp_kv_event ev = {
        .kind = kind, .holder = holder, .space = r->space, .group = group, .engine = hash};

    ev.n = wp_index_rig_letters(blocks, hash);
    wp_index_apply(r->ix, &ev, &r->res);
}

/* "blocks gpu cpu ?doubtful" for each of the named holders, in one look-up. */
static void ask(struct wp_index_rig *r, const char *label, const char *prompt, uint32_t holder,
                const char *want)
{
    uint64_t local[WP_INDEX_RIG_LONGEST];
    const struct wp_overlap_row *row;
    char got[64] = "-";

    wp_index_overlap(r->ix, r->space, local, wp_index_rig_letters(prompt, local), &r->o);
    row = wp_overlap_of(&r->o, holder);
    if (row)
        snprintf(got, sizeof got, "%u %u %u ?%u", row->blocks, row->tier[0], row->tier[1],
                 row->doubtful);
    EXPECT_TEXT(label, want, wp_str_of(got));
}

static void the_largest_end_that_the_window_holds_counts(void)
{
    struct wp_index_rig r;
    uint32_t h;

    wp_index_rig_init(&r, NULL);
    h = r.w[2];
    wp_index_rig_store(&r, h, 1, "", "ab");
    wp_index_rig_store(&r, h, 0, "b", "cdef");
    wp_index_rig_store(&r, r.w[3], 0, "", "abcd");
    EXPECT_INT("window", 0, wp_index_window(r.ix, h, WIN, MAIN, 2));
    ask(&r, "nothing in the window", "abcdef", h, "-");
    ask(&r, "others are as they were", "abcdef", r.w[3], "4 4 0 ?0");
    share(&r, WP_KV_STORED, h, WIN, "ef");
    ask(&r, "the end", "abcdef", h, "6 4 2 ?0");
    ask(&r, "half of a window is none", "abcde", h, "-");
    share(&r, WP_KV_STORED, h, WIN, "bc");
    ask(&r, "an end within: its tiers", "abcde", h, "3 1 2 ?0");
    share(&r, WP_KV_STORED, h, WIN, "a");
    ask(&r, "from the start on less is enough", "axxx", h, "1 0 1 ?0");
    share(&r, WP_KV_STORED, h, WIN, "b");
    share(&r, WP_KV_REMOVED, h, WIN, "b");
    ask(&r, "copies are counted", "ab", h, "2 0 2 ?0");
    share(&r, WP_KV_REMOVED, h, WIN, "bb");
    EXPECT_UINT("never below none", 1, r.res.unknown);
    ask(&r, "a hole in it", "ab", h, "1 0 1 ?0");
    wp_index_rig_store(&r, r.w[0], 0, "", "abcdef");
    wp_index_window(r.ix, r.w[0], WIN, MAIN, WP_WINDOW_ALL);
    share(&r, WP_KV_STORED, r.w[0], WIN, "abd");
    ask(&r, "all of the prefix", "abcdef", r.w[0], "2 2 0 ?0");
    wp_index_window(r.ix, h, WIN, MAIN, 0);
    ask(&r, "no longer restricted", "abcdef", h, "6 4 2 ?0");
    wp_index_rig_fini(&r);
}

static void several_windows_must_agree_and_a_nodes_blocks_come_whole(void)
{
    struct wp_index_rig r;
    uint32_t h;

    wp_index_rig_init(&r, NULL);
    h = r.w[0];
    wp_index_rig_store(&r, h, 0, "", "abcd");
    wp_index_window(r.ix, h, 1, MAIN, 1);
    wp_index_window(r.ix, h, 2, MAIN, 3);
    share(&r, WP_KV_STORED, h, 1, "acd");
    share(&r, WP_KV_STORED, h, 2, "abc");
    ask(&r, "both", "abcd", h, "3 3 0 ?0");
    share(&r, WP_KV_REMOVED, h, 1, "c");
    ask(&r, "one less", "abcd", h, "1 1 0 ?0");
    wp_index_rig_store(&r, r.node, 1, "", "abcdef");
    wp_index_rig_remove(&r, h, 0, "d");
    ask(&r, "the node has the rest, in all groups", "abcdef", h, "6 3 3 ?0");
    wp_index_clear(r.ix, h);
    ask(&r, "all of it", "abcdef", h, "6 0 6 ?0");
    wp_index_rig_store(&r, h, 0, "", "a");
    ask(&r, "the groups are known still", "a", h, "-");
    wp_index_rig_fini(&r);
}

static void windows_out_of_bounds_are_refused(void)
{
    struct wp_index_rig r;
    uint32_t again;
    struct wp_err err = WP_ERR_INIT;

    wp_index_rig_init(&r, NULL);
    EXPECT_INT("no holder", WP_EINVAL, wp_index_window(r.ix, 99, 1, 0, 1));
    EXPECT_INT("no group", WP_EINVAL, wp_index_window(r.ix, r.w[0], WP_GROUPS, 0, 1));
    EXPECT_INT("its own", WP_EINVAL, wp_index_window(r.ix, r.w[0], 1, 1, 1));
    for (uint16_t g = 1; g <= WP_WINDOWS_MAX; g++)
        EXPECT_INT("room", 0, wp_index_window(r.ix, r.w[0], g, 0, 1));
    EXPECT_INT("no more", WP_ETOOBIG, wp_index_window(r.ix, r.w[0], 77, 0, 1));
    EXPECT_INT("an old one again", 0, wp_index_window(r.ix, r.w[0], 3, 0, 2));
    share(&r, WP_KV_STORED, r.w[0], 3, "abc");
    share(&r, WP_KV_STORED, r.w[0], WP_GROUPS, "a");
    EXPECT_UINT("no group", 1, r.res.refused);
    wp_index_drop(r.ix, r.w[0]);
    wp_index_holder(r.ix, WP_HOLDER_RANK, WP_NO_HOLDER, &again, &err);
    EXPECT_UINT("the number again", r.w[0], again);
    wp_index_rig_store(&r, again, 0, "", "a");
    ask(&r, "without the old one's groups", "a", again, "1 1 0 ?0");
    wp_index_rig_fini(&r);
}

static void what_windows_hold_is_bounded_too(void)
{
    struct wp_index_conf conf = {.secret = 5, .cap_bytes = 1 << 20};
    struct wp_index_rig r;
    struct wp_index_stats s;
    struct wp_kv_event ev = {.kind = WP_KV_STORED, .group = WIN, .n = 1};

    wp_index_rig_init(&r, &conf);
    wp_index_rig_store(&r, r.w[1], 0, "", "ab");
    wp_index_window(r.ix, r.w[0], WIN, MAIN, 1);
    ev.holder = r.w[0];
    ev.space = r.space;
    for (uint64_t i = 0; i < 100000; i++) {
        ev.engine = &i;
        wp_index_apply(r.ix, &ev, &r.res);
    }
    EXPECT_UINT("room was made", 0, r.res.refused);
    wp_index_stats(r.ix, &s);
    EXPECT_TRUE("within the cap", s.bytes <= conf.cap_bytes && s.evicted > 30000);
    ask(&r, "at its own cost", "ab", r.w[1], "2 2 0 ?0");
    wp_index_rig_fini(&r);
}

/* A hole, and then the engine's replay: what is stored again is the copy of before, not one more.
 */
static void what_a_window_had_counts_anew_after_a_hole(void)
{
    struct wp_index_rig r;
    uint32_t h;

    wp_index_rig_init(&r, NULL);
    h = r.w[2];
    wp_index_window(r.ix, h, WIN, MAIN, 1);
    wp_index_rig_store(&r, h, 0, "", "abc");
    share(&r, WP_KV_STORED, h, WIN, "abbccc");
    wp_index_doubt(r.ix, h);
    wp_index_rig_store(&r, h, 0, "", "abc");
    share(&r, WP_KV_STORED, h, WIN, "abcc");
    ask(&r, "all of it", "abc", h, "3 3 0 ?0");
    share(&r, WP_KV_REMOVED, h, WIN, "c");
    ask(&r, "one was stored twice", "abc", h, "3 3 0 ?0");
    share(&r, WP_KV_REMOVED, h, WIN, "c");
    ask(&r, "and is gone", "abc", h, "2 2 0 ?0");
    share(&r, WP_KV_REMOVED, h, WIN, "b");
    ask(&r, "the copies of before are void", "abc", h, "1 1 0 ?0");
    wp_index_doubt(r.ix, h);
    share(&r, WP_KV_REMOVED, h, WIN, "a");
    ask(&r, "a removal ends doubt", "abc", h, "-");
    share(&r, WP_KV_STORED, h, WIN, "aa");
    share(&r, WP_KV_REMOVED, h, WIN, "a");
    ask(&r, "and copies count as ever", "a", h, "1 1 0 ?1");
    wp_index_rig_fini(&r);
}

static void a_vague_block_is_in_doubt_whoever_confirms_it(void)
{
    static const bool vague[] = {false, true, false};
    uint64_t hash[] = {'a', 'b', 'c'};
    struct wp_index_rig r;
    struct wp_kv_event ev = {
        .main_group = true, .n = 3, .engine = hash, .local = hash, .vague = vague};

    wp_index_rig_init(&r, NULL);
    ev.holder = r.w[2];
    ev.space = r.space;
    wp_index_apply(r.ix, &ev, &r.res);
    ask(&r, "one of three", "abc", r.w[2], "3 3 0 ?1");
    wp_index_rig_store(&r, r.w[2], 0, "", "abc");
    ask(&r, "stored again", "abc", r.w[2], "3 3 0 ?1");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[2], 1, "", "b", true);
    wp_index_rig_remove(&r, r.w[2], 0, "bb");
    ask(&r, "in another tier", "abc", r.w[2], "3 2 1 ?1");
    wp_index_rig_remove(&r, r.w[2], 1, "b");
    wp_index_rig_store(&r, r.w[2], 0, "a", "b");
    ask(&r, "until it was gone", "abc", r.w[2], "3 3 0 ?0");
    wp_index_rig_fini(&r);
}

const struct wp_suite suite_index_window = {
    "index_window",
    (const struct wp_test[]){
        {"the largest end that the window holds counts",
         the_largest_end_that_the_window_holds_counts},
        {"several windows must agree, and a node's blocks come whole",
         several_windows_must_agree_and_a_nodes_blocks_come_whole},
        {"windows out of bounds are refused", windows_out_of_bounds_are_refused},
        {"what windows hold is bounded too", what_windows_hold_is_bounded_too},
        {"what a window had counts anew after a hole", what_a_window_had_counts_anew_after_a_hole},
        {"a vague block is in doubt whoever confirms it",
         a_vague_block_is_in_doubt_whoever_confirms_it},
        {NULL, NULL},
    },
};
