/* SPDX-License-Identifier: Apache-2.0 */
#include "index/index.h"

#include "index/identity.h"
#include "tests/lib/index_rig.h"
#include "tests/lib/test.h"

/* "blocks gpu cpu disk remote ?doubtful" of the holder for the prompt; "-" for nothing. */
static const char *ask(struct wp_index_rig *r, uint32_t holder, const char *prompt, char out[64])
{
    uint64_t local[WP_INDEX_RIG_LONGEST];
    size_t n = wp_index_rig_letters(prompt, local);
    const struct wp_overlap_row *row;

    wp_index_overlap(r->ix, r->space, local, n, &r->o);
    row = wp_overlap_of(&r->o, holder);
    if (row)
        snprintf(out, 64, "%u %u %u %u %u ?%u", row->blocks, row->tier[0], row->tier[1],
                 row->tier[2], row->tier[3], row->doubtful);
    else
        strcpy(out, "-");
    return out;
}

#define ASK(label, want, r, holder, prompt)                                      \
    do {                                                                         \
        char out_[64];                                                           \
        EXPECT_TEXT(label, want, wp_str_of(ask((r), (holder), (prompt), out_))); \
    } while (0)

static void the_leading_blocks_count_in_any_interleaving_of_tiers(void)
{
    struct wp_index_rig r;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "", "abc");
    ASK("whole", "3 3 0 0 0 ?0", &r, r.w[2], "abc");
    ASK("longer prompt", "3 3 0 0 0 ?0", &r, r.w[2], "abcd");
    ASK("shorter prompt", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    ASK("other prompt", "1 1 0 0 0 ?0", &r, r.w[2], "axc");
    ASK("nothing asked", "-", &r, r.w[2], "");
    ASK("other holder", "-", &r, r.w[3], "abc");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[2], 1, "", "bc", true);
    EXPECT_UINT("two tiers more", 2, r.res.applied);
    wp_index_rig_remove(&r, r.w[2], 0, "b");
    ASK("each block once, in its fastest tier", "3 2 1 0 0 ?0", &r, r.w[2], "abc");
    wp_index_rig_store(&r, r.w[2], 3, "c", "d");
    ASK("gpu cpu gpu remote", "4 2 1 0 1 ?0", &r, r.w[2], "abcd");
    wp_index_rig_remove(&r, r.w[2], 1, "b");
    ASK("a hole ends it", "1 1 0 0 0 ?0", &r, r.w[2], "abcd");
    wp_index_rig_store(&r, r.w[2], 2, "a", "b");
    ASK("the hole is filled", "4 2 0 1 1 ?0", &r, r.w[2], "abcd");
    wp_index_rig_fini(&r);
}

static void a_digest_is_the_sum_over_names(void)
{
    struct wp_index_digest d;
    struct wp_index_rig r;

    EXPECT_UINT("the first output of SplitMix64 from 0", 0xE220A8397B1DCDAFu, wp_index_mix(0, 0));
    EXPECT_UINT("and the second", 0x6E789E6AA1B965F4u, wp_index_mix(0, 1));
    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "", "abc");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[2], 1, "", "b", true);
    wp_index_rig_store(&r, r.w[2], 0, "x", "yz");
    wp_index_rig_store(&r, r.w[2], 0, "", "a"); /* a second copy */
    wp_index_digest(r.ix, r.w[2], &d);
    EXPECT_UINT("names", 3, d.names[0]);
    EXPECT_UINT("sum", wp_index_mix('a', 0) + wp_index_mix('b', 0) + wp_index_mix('c', 0),
                d.sum[0]);
    EXPECT_UINT("of another tier", wp_index_mix('b', 0), d.sum[1]);
    EXPECT_UINT("floating", 2, d.floating[0]);
    EXPECT_UINT("their sum", wp_index_mix('y', 0) + wp_index_mix('z', 0), d.floating_sum[0]);
    wp_index_rig_remove(&r, r.w[2], 0, "acy");
    wp_index_digest(r.ix, r.w[2], &d);
    EXPECT_UINT("one copy is left", wp_index_mix('a', 0) + wp_index_mix('b', 0), d.sum[0]);
    EXPECT_UINT("one floats", wp_index_mix('z', 0), d.floating_sum[0]);
    wp_index_rig_store(&r, r.w[2], 0, "", "x");
    wp_index_digest(r.ix, r.w[2], &d);
    EXPECT_UINT("it landed",
                wp_index_mix('a', 0) + wp_index_mix('b', 0) + wp_index_mix('x', 0) +
                    wp_index_mix('z', 0),
                d.sum[0]);
    EXPECT_UINT("nothing floats", 0, d.floating[0] + d.floating_sum[0]);
    wp_index_clear(r.ix, r.w[2]);
    wp_index_digest(r.ix, r.w[2], &d);
    EXPECT_UINT("nothing", 0, d.names[0] + d.sum[0] + d.names[1] + d.sum[1]);
    wp_index_digest(r.ix, 1000, &d);
    EXPECT_UINT("nobody", 0, d.names[0] + d.sum[0]);
    wp_index_rig_fini(&r);
}

static void copies_are_counted(void)
{
    struct wp_index_rig r;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "", "ab");
    wp_index_rig_store(&r, r.w[2], 0, "a", "b");
    wp_index_rig_remove(&r, r.w[2], 0, "b");
    ASK("one copy is left", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    wp_index_rig_remove(&r, r.w[2], 1, "b");
    EXPECT_UINT("not in that tier", 1, r.res.unknown);
    wp_index_rig_remove(&r, r.w[2], 0, "bb");
    EXPECT_UINT("the last one", 1, r.res.applied);
    EXPECT_UINT("never below none", 1, r.res.unknown);
    ASK("gone", "1 1 0 0 0 ?0", &r, r.w[2], "ab");
    wp_index_rig_store(&r, r.w[2], 0, "a", "b");
    ASK("again", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    wp_index_rig_fini(&r);
}

static void what_a_node_holds_counts_for_its_ranks(void)
{
    struct wp_index_rig r;
    struct wp_err err = WP_ERR_INIT;
    uint32_t again;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "ab");
    wp_index_rig_store(&r, r.node, 2, "", "abcd");
    wp_index_rig_store(&r, r.pool, 3, "", "abc");
    ASK("rank: its own and the node's", "4 2 0 2 0 ?0", &r, r.w[0], "abcd");
    ASK("rank with nothing of its own", "4 0 0 4 0 ?0", &r, r.w[1], "abcd");
    ASK("rank elsewhere", "-", &r, r.w[2], "abcd");
    ASK("the node", "4 0 0 4 0 ?0", &r, r.node, "abcd");
    ASK("the pool is a row of its own", "3 0 0 0 3 ?0", &r, r.pool, "abcd");
    wp_index_drop(r.ix, r.node);
    ASK("without the node", "2 2 0 0 0 ?0", &r, r.w[0], "abcd");
    wp_index_holder(r.ix, WP_HOLDER_NODE, WP_NO_HOLDER, &again, &err);
    EXPECT_UINT("the number is given again", r.node, again);
    wp_index_rig_store(&r, again, 2, "", "abcd");
    ASK("and is not the old ranks' node", "2 2 0 0 0 ?0", &r, r.w[0], "abcd");
    EXPECT_INT("a rank is no node", WP_EINVAL,
               wp_index_holder(r.ix, WP_HOLDER_RANK, r.w[0], &again, &err));
    wp_index_rig_fini(&r);
}

static void holders_with_one_answer_share_a_row_longest_first(void)
{
    struct wp_index_rig r;
    uint64_t local[4];

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "abc");
    wp_index_rig_store(&r, r.w[1], 0, "", "abcd");
    wp_index_rig_store(&r, r.w[2], 0, "", "abc");
    wp_index_rig_store(&r, r.w[3], 1, "", "abc");
    EXPECT_UINT("largest", 4,
                wp_index_overlap(r.ix, r.space, local, wp_index_rig_letters("abcd", local), &r.o));
    EXPECT_UINT("rows", 3, r.o.n);
    EXPECT_UINT("first", (uint64_t)1 << r.w[1], r.o.row[0].set[0]);
    EXPECT_UINT("second: equal answers, the faster tier",
                (uint64_t)1 << r.w[0] | (uint64_t)1 << r.w[2], r.o.row[1].set[0]);
    EXPECT_UINT("third", (uint64_t)1 << r.w[3], r.o.row[2].set[0]);
    wp_index_rig_fini(&r);
}

static void spaces_and_groups_are_apart(void)
{
    struct wp_index_rig r;
    struct wp_err err = WP_ERR_INIT;
    uint32_t other, again;
    uint64_t hash[2] = {'a', 'b'};
    struct wp_kv_event ev = {.kind = WP_KV_STORED,
                             .group = 1,
                             .main_group = true,
                             .n = 2,
                             .engine = hash,
                             .local = hash};

    wp_index_rig_init(&r, NULL);
    wp_index_space(r.ix, WP_STR("m"), 32, WP_STR(""), WP_SPACE_TOKENS, &other, &err);
    wp_index_space(r.ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &again, &err);
    EXPECT_UINT("the same space", r.space, again);
    EXPECT_TRUE("another", other != r.space);
    wp_index_space(r.ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_BYTES, &again, &err);
    EXPECT_TRUE("another kind", again != r.space && again != other);
    wp_index_rig_store(&r, r.w[2], 0, "", "a");
    ev.holder = r.w[2];
    ev.space = other;
    wp_index_apply(r.ix, &ev, &r.res);
    ASK("other space", "1 1 0 0 0 ?0", &r, r.w[2], "ab");
    ev.space = r.space;
    wp_index_apply(r.ix, &ev, &r.res);
    ASK("another group of this space", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    wp_index_rig_remove(&r, r.w[2], 0, "ab");
    EXPECT_UINT("b is not of group 0", 1, r.res.unknown);
    ASK("a removal ends its group's copy only", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    ev.main_group = false;
    wp_index_apply(r.ix, &ev, &r.res);
    EXPECT_UINT("no main group", 2, r.res.ignored);
    wp_index_rig_fini(&r);
}

static void a_clear_and_a_drop_take_all_of_one_holder(void)
{
    struct wp_index_rig r;
    struct wp_err err = WP_ERR_INIT;
    struct wp_index_stats s;
    uint32_t again;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "", "abc");
    wp_index_rig_store(&r, r.w[3], 0, "", "ab");
    wp_index_rig_store(&r, r.w[2], 0, "?", "xyz");
    wp_index_rig_say(&r, WP_KV_CLEARED, r.w[2], 0, "", "", false);
    EXPECT_UINT("blocks cleared", 6, r.res.applied);
    ASK("cleared", "-", &r, r.w[2], "abc");
    ASK("the other one stays", "2 2 0 0 0 ?0", &r, r.w[3], "abc");
    wp_index_rig_store(&r, r.w[2], 0, "", "a");
    wp_index_drop(r.ix, r.w[2]);
    EXPECT_INT("holder", 0, wp_index_holder(r.ix, WP_HOLDER_RANK, WP_NO_HOLDER, &again, &err));
    EXPECT_UINT("the lowest free number", r.w[2], again);
    ASK("the new one has nothing of the old", "-", &r, again, "abc");
    wp_index_rig_remove(&r, again, 0, "a");
    EXPECT_UINT("nor its names", 1, r.res.unknown);
    wp_index_drop(r.ix, again);
    wp_index_drop(r.ix, again);
    wp_index_rig_store(&r, again, 0, "", "a");
    EXPECT_UINT("nobody", 1, r.res.refused);
    wp_index_clear(r.ix, r.w[3]);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("nothing is left", 0, s.blocks + s.locations + s.floating + s.doubtful);
    wp_index_rig_fini(&r);
}

static void what_is_doubted_is_doubtful_until_it_is_stored_again(void)
{
    struct wp_index_rig r;
    uint64_t tier[WP_TIER_MAX], doubtful;
    struct wp_index_stats s;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "", "abc");
    wp_index_rig_store(&r, r.w[3], 0, "", "abc");
    wp_index_doubt(r.ix, r.w[2]);
    ASK("all", "3 3 0 0 0 ?3", &r, r.w[2], "abc");
    ASK("only its", "3 3 0 0 0 ?0", &r, r.w[3], "abc");
    wp_index_rig_store(&r, r.w[2], 0, "a", "b");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[2], 1, "", "c", true);
    ASK("one is sure; c is in another tier, which is not where it counts", "3 3 0 0 0 ?2", &r,
        r.w[2], "abc");
    wp_index_holder_stats(r.ix, r.w[2], tier, &doubtful);
    EXPECT_UINT("gpu", 3, tier[0]);
    EXPECT_UINT("cpu", 1, tier[1]);
    EXPECT_UINT("doubtful locations", 2, doubtful);
    wp_index_rig_remove(&r, r.w[2], 0, "c");
    ASK("now it counts there", "3 2 1 0 0 ?1", &r, r.w[2], "abc");
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("blocks", 3, s.blocks);
    EXPECT_UINT("locations", 6, s.locations);
    EXPECT_UINT("doubtful", 1, s.doubtful);
    wp_index_rig_fini(&r);
}

static void zero_is_a_hash_like_any_other(void)
{
    struct wp_index_rig r;
    uint64_t hash[3] = {0, UINT64_MAX, 1}, local[3] = {0, 0, UINT64_MAX};
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED, .main_group = true, .n = 1, .engine = hash, .local = local};

    wp_index_rig_init(&r, NULL);
    ev.holder = r.w[2];
    ev.space = r.space;
    wp_index_apply(r.ix, &ev, &r.res);
    ev.has_parent = true;
    ev.parent = 0;
    ev.n = 2;
    ev.engine = hash + 1;
    ev.local = local + 1;
    wp_index_apply(r.ix, &ev, &r.res);
    EXPECT_UINT("below it", 0, r.res.floating);
    EXPECT_UINT("all", 3, wp_index_overlap(r.ix, r.space, local, 3, &r.o));
    ev.kind = WP_KV_REMOVED;
    ev.n = 1;
    ev.engine = hash;
    wp_index_apply(r.ix, &ev, &r.res);
    EXPECT_UINT("removed", 1, r.res.applied);
    EXPECT_UINT("beheaded", 0, wp_index_overlap(r.ix, r.space, local, 3, &r.o));
    wp_index_rig_fini(&r);
}

static void a_hash_that_a_removal_names_twice_goes_once(void)
{
    struct wp_index_rig r;
    struct wp_index_digest d;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "", "ab");
    wp_index_rig_store(&r, r.w[2], 0, "", "cd");
    wp_index_rig_remove(&r, r.w[2], 0, "aca"); /* another run between */
    EXPECT_UINT("gone", 2, r.res.applied);
    EXPECT_UINT("not there", 1, r.res.unknown);
    wp_index_digest(r.ix, r.w[2], &d);
    EXPECT_UINT("names", 2, d.names[0]);
    wp_index_rig_fini(&r);
}

static void a_chain_floats_until_its_place_is_learnt(void)
{
    struct wp_index_rig r;
    struct wp_index_stats s;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 1, "c", "def");
    EXPECT_UINT("floating", 3, r.res.floating);
    ASK("it answers nobody", "-", &r, r.w[2], "def");
    EXPECT_UINT("no place on this prompt", 0, wp_index_rig_graft(&r, r.w[2], "abcxyz"));
    EXPECT_UINT("nor at its start", 0, wp_index_rig_graft(&r, r.w[2], "defxyz"));
    EXPECT_UINT("nor for another holder", 0, wp_index_rig_graft(&r, r.w[3], "abcdef"));
    EXPECT_UINT("three blocks", 3, wp_index_rig_graft(&r, r.w[2], "abcde"));
    ASK("what is before counts, in doubt", "6 0 6 0 0 ?3", &r, r.w[2], "abcdef");
    wp_index_rig_store(&r, r.w[2], 1, "f", "g");
    EXPECT_UINT("what comes below floats no more", 0, r.res.floating);
    ASK("longer", "7 0 7 0 0 ?3", &r, r.w[2], "abcdefg");
    wp_index_rig_remove(&r, r.w[2], 1, "g");
    wp_index_rig_store(&r, r.w[2], 0, "", "ab");
    ASK("stored, so sure", "6 2 4 0 0 ?1", &r, r.w[2], "abcdef");
    wp_index_rig_remove(&r, r.w[2], 1, "c");
    EXPECT_UINT("it is known by the name that was awaited", 1, r.res.applied);
    ASK("and goes by it", "2 2 0 0 0 ?0", &r, r.w[2], "abcdef");
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("none floats", 0, s.floating);
    wp_index_rig_fini(&r);
}

static void a_guess_lasts_as_long_as_something_below_is_held(void)
{
    struct wp_index_rig r;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "b", "cd");
    wp_index_rig_graft(&r, r.w[2], "abcd");
    wp_index_rig_remove(&r, r.w[2], 0, "d");
    ASK("c is left", "3 3 0 0 0 ?2", &r, r.w[2], "abcd");
    wp_index_rig_remove(&r, r.w[2], 0, "c");
    ASK("nothing speaks for a and b any more", "-", &r, r.w[2], "abcd");
    wp_index_rig_fini(&r);
}

static void a_chain_joins_when_the_name_it_hangs_from_is_stored(void)
{
    struct wp_index_rig r;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[3], 0, "", "abcde");
    wp_index_rig_store(&r, r.w[2], 0, "b", "cd");
    wp_index_rig_store(&r, r.w[2], 0, "b", "x");
    wp_index_rig_store(&r, r.w[2], 0, "", "ab");
    ASK("joined, without doubt", "4 4 0 0 0 ?0", &r, r.w[2], "abcde");
    ASK("with all that hung there", "3 3 0 0 0 ?0", &r, r.w[2], "abx");
    ASK("the other holder's blocks are its own", "5 5 0 0 0 ?0", &r, r.w[3], "abcde");
    wp_index_rig_fini(&r);
}

static void an_ambiguous_chain_is_not_hung(void)
{
    struct wp_index_rig r;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "?", "x");
    EXPECT_UINT("two places alike", 0, wp_index_rig_graft(&r, r.w[2], "axbxc"));
    EXPECT_UINT("one place", 1, wp_index_rig_graft(&r, r.w[2], "abxc"));
    wp_index_rig_store(&r, r.w[3], 0, "?", "xy");
    EXPECT_UINT("the longer match decides", 2, wp_index_rig_graft(&r, r.w[3], "axbxyc"));
    ASK("there", "5 5 0 0 0 ?3", &r, r.w[3], "axbxyc");
    wp_index_rig_fini(&r);
}

static void no_block_hangs_below_itself(void)
{
    struct wp_index_rig r;
    struct wp_index_stats s;

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[2], 0, "a", "a");
    EXPECT_UINT("its own parent", 1, r.res.refused);
    wp_index_rig_store(&r, r.w[2], 0, "c", "ab");
    wp_index_rig_store(&r, r.w[2], 0, "b", "c");
    EXPECT_UINT("a ring", 1, r.res.refused);
    wp_index_rig_store(&r, r.w[2], 0, "c", "abcab");
    EXPECT_UINT("a ring within an event", 3, r.res.refused);
    wp_index_rig_store(&r, r.w[3], 0, "", "aaa");
    EXPECT_UINT("a name thrice: the last place stays", 3, r.res.applied);
    ASK("the place before it is a hole", "-", &r, r.w[3], "aaa");
    wp_index_clear(r.ix, r.w[2]);
    wp_index_clear(r.ix, r.w[3]);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("nothing is left", 0, s.blocks + s.floating);
    wp_index_rig_fini(&r);
}

static void the_last_word_on_a_name_wins(void)
{
    struct wp_index_rig r;
    uint64_t hash = 'a', local = 'z';
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED, .main_group = true, .n = 1, .engine = &hash, .local = &local};

    wp_index_rig_init(&r, NULL);
    ev.holder = r.w[2];
    ev.space = r.space;
    wp_index_rig_store(&r, r.w[2], 0, "", "ab");
    wp_index_rig_store(&r, r.w[2], 0, "", "a");
    wp_index_apply(r.ix, &ev, &r.res);
    ASK("the old place is void", "-", &r, r.w[2], "ab");
    ASK("the new one holds", "1 1 0 0 0 ?0", &r, r.w[2], "z");
    wp_index_rig_remove(&r, r.w[2], 0, "a");
    ASK("with one copy: we would rather claim too little", "-", &r, r.w[2], "z");
    wp_index_rig_store(&r, r.w[2], 0, "", "a");
    ASK("what hung below hangs there still", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    wp_index_rig_fini(&r);
}

static void events_out_of_bounds_are_refused(void)
{
    struct wp_index_rig r;
    uint64_t hash[1] = {1};
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED, .main_group = true, .n = 1, .engine = hash, .local = hash};

    wp_index_rig_init(&r, NULL);
    ev.holder = r.w[2];
    ev.space = 77;
    wp_index_apply(r.ix, &ev, &r.res);
    EXPECT_UINT("space", 1, r.res.refused);
    ev.space = r.space;
    ev.tier = WP_TIER_MAX;
    wp_index_apply(r.ix, &ev, &r.res);
    EXPECT_UINT("tier", 1, r.res.refused);
    ev.tier = 0;
    ev.holder = 1000;
    wp_index_apply(r.ix, &ev, NULL);
    wp_index_doubt(r.ix, 1000);
    wp_index_drop(r.ix, 1000);
    EXPECT_UINT("graft", 0, wp_index_graft(r.ix, 1000, r.space, hash, 1));
    EXPECT_UINT("no such space", 0, wp_index_overlap(r.ix, 77, hash, 1, &r.o));
    EXPECT_TRUE("no such holder", wp_overlap_of(&r.o, 1000) == NULL);
    wp_index_rig_fini(&r);
}

static void holders_beyond_the_room_of_the_answer_are_left_out(void)
{
    struct wp_index_rig r;
    struct wp_err err = WP_ERR_INIT;
    uint32_t h = 0;
    struct wp_overlap small;

    wp_index_rig_init(&r, NULL);
    EXPECT_INT("init", 0, wp_overlap_init(&small, 0));
    while (h < 100)
        wp_index_holder(r.ix, WP_HOLDER_RANK, r.node, &h, &err);
    wp_index_rig_store(&r, h, 0, "", "ab");
    EXPECT_UINT("left out", 0, wp_index_overlap(r.ix, r.space, (uint64_t[]){'a', 'b'}, 2, &small));
    wp_index_rig_store(&r, r.node, 0, "", "a");
    EXPECT_UINT("those within are there", 1,
                wp_index_overlap(r.ix, r.space, (uint64_t[]){'a', 'b'}, 2, &small));
    EXPECT_UINT("one row", 1, small.n);
    wp_overlap_fini(&small);
    wp_index_rig_fini(&r);
}

static void reach_says_how_far_each_tier_takes_a_prompt(void)
{
    struct wp_index_rig r;
    struct wp_reach to;
    uint64_t local[8];

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "ab");
    wp_index_rig_store(&r, r.w[0], 1, "b", "cd");
    wp_index_rig_store(&r, r.w[0], 0, "d", "e");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[0], 2, "", "ac", true);
    wp_index_rig_store(&r, r.node, 2, "", "abcdef");
    wp_index_reach(r.ix, r.w[0], r.space, local, wp_index_rig_letters("abcdef", local), &to);
    EXPECT_UINT("gpu alone", 2, to.upto[0]);
    EXPECT_UINT("with cpu", 5, to.upto[1]);
    EXPECT_UINT("with disk", 6, to.upto[2]);
    EXPECT_UINT("with all", 6, to.upto[WP_TIER_MAX - 1]);
    EXPECT_UINT("on gpu", 3, to.on[0]);
    EXPECT_UINT("on cpu", 2, to.on[1]);
    EXPECT_UINT("on disk", 6, to.on[2]);
    wp_index_reach(r.ix, r.w[2], r.space, local, 6, &to);
    EXPECT_UINT("elsewhere", 0, to.upto[2]);
    wp_index_reach(r.ix, 99, r.space, local, 6, &to);
    EXPECT_UINT("no such holder", 0, to.upto[2]);
    wp_index_rig_fini(&r);
}

static void links_of_a_chain_lead_back_to_its_blocks(void)
{
    struct wp_index_rig r;
    uint64_t local[8], chain[8], back[8] = {0};

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "abc");
    wp_index_rig_store(&r, r.w[1], 0, "b", "d");
    wp_index_rig_store(&r, r.w[1], 0, "", "abd");
    wp_hash_chain(local, wp_index_rig_letters("abde", local), chain);
    EXPECT_UINT("as far as it is known", 3, wp_index_unchain(r.ix, r.space, chain, 4, back));
    EXPECT_TRUE("the same blocks", memcmp(back, local, 3 * sizeof local[0]) == 0);
    chain[1]++;
    EXPECT_UINT("a link that leads nowhere", 1, wp_index_unchain(r.ix, r.space, chain, 4, back));
    EXPECT_UINT("a link from the middle", 0, wp_index_unchain(r.ix, r.space, chain + 2, 1, back));
    EXPECT_UINT("no such space", 0, wp_index_unchain(r.ix, 99, chain, 4, back));
    wp_index_rig_fini(&r);
}

static void an_engines_word_ends_doubt(void)
{
    struct wp_index_rig r;
    uint64_t local[8];
    size_t n = wp_index_rig_letters("abcdef", local);

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "abcd");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[0], 1, "", "b", true);
    wp_index_doubt(r.ix, r.w[0]);
    wp_index_rig_store(&r, r.w[0], 0, "d", "e");
    ASK("in doubt", "5 5 0 0 0 ?4", &r, r.w[0], "abcdef");
    EXPECT_UINT("two confirmed, two dropped", 4,
                wp_index_confirm(r.ix, r.w[0], r.space, local, n, 2));
    ASK("what it had", "2 2 0 0 0 ?0", &r, r.w[0], "abcdef");
    wp_index_rig_remove(&r, r.w[0], 0, "b");
    ASK("each in its fastest tier", "2 1 1 0 0 ?1", &r, r.w[0], "abcdef");
    EXPECT_UINT("again: the other tier", 1, wp_index_confirm(r.ix, r.w[0], r.space, local, n, 4));
    EXPECT_UINT("nothing is new", 0, wp_index_confirm(r.ix, r.w[0], r.space, local, n, 6));
    wp_index_rig_store(&r, r.w[0], 0, "", "abcd");
    ASK("what was sure is kept", "5 5 0 0 0 ?0", &r, r.w[0], "abcdef");
    EXPECT_UINT("also against its word", 0, wp_index_confirm(r.ix, r.w[0], r.space, local, n, 0));
    EXPECT_UINT("no such holder", 0, wp_index_confirm(r.ix, 99, r.space, local, n, 0));
    EXPECT_UINT("no such space", 0, wp_index_confirm(r.ix, r.w[0], 99, local, n, 0));
    wp_index_rig_fini(&r);
}

static void an_engines_word_judges_what_was_concluded(void)
{
    struct wp_index_rig r;
    uint64_t local[8];
    size_t n = wp_index_rig_letters("abcd", local);

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "b", "cd");
    wp_index_rig_store(&r, r.w[1], 0, "b", "cd");
    wp_index_rig_graft(&r, r.w[0], "abcd");
    wp_index_rig_graft(&r, r.w[1], "abcd");
    ASK("concluded", "4 4 0 0 0 ?2", &r, r.w[0], "abcd");
    EXPECT_UINT("right", 2, wp_index_confirm(r.ix, r.w[0], r.space, local, n, 4));
    ASK("sure", "4 4 0 0 0 ?0", &r, r.w[0], "abcd");
    EXPECT_UINT("wrong", 2, wp_index_confirm(r.ix, r.w[1], r.space, local, n, 0));
    ASK("gone", "-", &r, r.w[1], "abcd");
    wp_index_doubt(r.ix, r.w[0]);
    ASK("doubted again", "4 4 0 0 0 ?4", &r, r.w[0], "abcd");
    wp_index_rig_remove(&r, r.w[0], 0, "dc");
    ASK("with its last block", "-", &r, r.w[0], "abcd");
    wp_index_rig_fini(&r);
}

/* A hole took the removal of a block; then its store comes before the answer that would have said
 * so. */
static void a_store_of_what_is_in_doubt_counts_anew(void)
{
    struct wp_index_rig r;
    const uint64_t other = 77, a = 'a';
    struct wp_kv_event ev = {.kind = WP_KV_STORED,
                             .main_group = true,
                             .group = 2,
                             .n = 1,
                             .engine = &other,
                             .local = &a};

    wp_index_rig_init(&r, NULL);
    wp_index_rig_store(&r, r.w[0], 0, "", "ab");
    wp_index_rig_say(&r, WP_KV_STORED, r.w[0], 1, "", "b", true);
    ev.holder = r.w[0];
    ev.space = r.space;
    wp_index_apply(r.ix, &ev, NULL); /* another name of block a */
    wp_index_doubt(r.ix, r.w[0]);
    wp_index_rig_store(&r, r.w[0], 0, "", "ab");
    ASK("sure again", "2 2 0 0 0 ?0", &r, r.w[0], "ab");
    wp_index_rig_remove(&r, r.w[0], 0, "b");
    ASK("one removal suffices; the other tier stays, in doubt", "2 1 1 0 0 ?1", &r, r.w[0], "ab");
    wp_index_rig_store(&r, r.w[0], 1, "a", "b");
    wp_index_rig_store(&r, r.w[0], 1, "a", "b");
    wp_index_rig_remove(&r, r.w[0], 1, "b");
    ASK("what is sure is counted", "2 1 1 0 0 ?0", &r, r.w[0], "ab");
    wp_index_rig_remove(&r, r.w[0], 1, "b");
    wp_index_rig_remove(&r, r.w[0], 0, "a");
    ASK("whoever's name it was", "-", &r, r.w[0], "ab");
    wp_index_rig_fini(&r);
}

static void a_window_that_ends_a_run_contradicts_nothing(void)
{
    struct wp_index_rig r;
    uint64_t local[8];
    size_t n = wp_index_rig_letters("abcd", local);

    wp_index_rig_init(&r, NULL);
    EXPECT_INT("a window", 0, wp_index_window(r.ix, r.w[0], 1, 0, 1));
    wp_index_rig_store(&r, r.w[0], 0, "", "abcd");
    wp_index_doubt(r.ix, r.w[0]);
    EXPECT_UINT("one is confirmed, none is dropped", 1,
                wp_index_confirm(r.ix, r.w[0], r.space, local, n, 1));
    wp_index_window(r.ix, r.w[0], 1, 0, 0);
    ASK("all there", "4 4 0 0 0 ?3", &r, r.w[0], "abcd");
    wp_index_rig_fini(&r);
}

const struct wp_suite suite_index = {
    "index",
    (const struct wp_test[]){
        {"the leading blocks count in any interleaving of tiers",
         the_leading_blocks_count_in_any_interleaving_of_tiers},
        {"copies are counted", copies_are_counted},
        {"a digest is the sum over names", a_digest_is_the_sum_over_names},
        {"what a node holds counts for its ranks", what_a_node_holds_counts_for_its_ranks},
        {"holders with one answer share a row, longest first",
         holders_with_one_answer_share_a_row_longest_first},
        {"spaces and groups are apart", spaces_and_groups_are_apart},
        {"a clear and a drop take all of one holder", a_clear_and_a_drop_take_all_of_one_holder},
        {"what is doubted is doubtful until it is stored again",
         what_is_doubted_is_doubtful_until_it_is_stored_again},
        {"zero is a hash like any other", zero_is_a_hash_like_any_other},
        {"a hash that a removal names twice goes once",
         a_hash_that_a_removal_names_twice_goes_once},
        {"a chain floats until its place is learnt", a_chain_floats_until_its_place_is_learnt},
        {"a guess lasts as long as something below is held",
         a_guess_lasts_as_long_as_something_below_is_held},
        {"a chain joins when the name it hangs from is stored",
         a_chain_joins_when_the_name_it_hangs_from_is_stored},
        {"an ambiguous chain is not hung", an_ambiguous_chain_is_not_hung},
        {"no block hangs below itself", no_block_hangs_below_itself},
        {"the last word on a name wins", the_last_word_on_a_name_wins},
        {"events out of bounds are refused", events_out_of_bounds_are_refused},
        {"holders beyond the room of the answer are left out",
         holders_beyond_the_room_of_the_answer_are_left_out},
        {"reach says how far each tier takes a prompt",
         reach_says_how_far_each_tier_takes_a_prompt},
        {"links of a chain lead back to its blocks", links_of_a_chain_lead_back_to_its_blocks},
        {"an engine's word ends doubt", an_engines_word_ends_doubt},
        {"an engine's word judges what was concluded", an_engines_word_judges_what_was_concluded},
        {"a store of what is in doubt counts anew", a_store_of_what_is_in_doubt_counts_anew},
        {"a window that ends a run contradicts nothing",
         a_window_that_ends_a_run_contradicts_nothing},
        {NULL, NULL},
    },
};
