/* SPDX-License-Identifier: Apache-2.0 */
#include "index/index.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

#include <pthread.h>

enum { LONGEST = 64 };

/* An index with some holders and a way to say things to it.  One letter stands for one block, and
 * for its engine hash. */
struct rig {
    struct wp_index *ix;
    uint32_t space, w[4], node, pool; /* w[0], w[1] are ranks of the node */
    struct wp_overlap o;
    struct wp_kv_result res;
};

static void rig_init(struct rig *r, const struct wp_index_conf *conf)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0,
               wp_index_create(&r->ix, conf ? conf : &(struct wp_index_conf){.secret = 5}, &err));
    wp_index_space(r->ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &r->space, &err);
    wp_index_holder(r->ix, WP_HOLDER_NODE, WP_NO_HOLDER, &r->node, &err);
    for (int i = 0; i < 4; i++)
        EXPECT_INT(
            "holder", 0,
            wp_index_holder(r->ix, WP_HOLDER_RANK, i < 2 ? r->node : WP_NO_HOLDER, &r->w[i], &err));
    wp_index_holder(r->ix, WP_HOLDER_POOL, WP_NO_HOLDER, &r->pool, &err);
    EXPECT_INT("overlap", 0, wp_overlap_init(&r->o, wp_index_holders(r->ix)));
}

static void rig_fini(struct rig *r)
{
    struct wp_err err = WP_ERR_INIT;
    bool ok = wp_index_verify(r->ix, &err);

    EXPECT_TRUE(ok ? "verify" : err.text, ok);
    wp_overlap_fini(&r->o);
    wp_index_destroy(r->ix);
}

static size_t letters(const char *s, uint64_t out[])
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        out[i] = (uint64_t)s[i];
    return n;
}

static void say(struct rig *r, enum wp_kv_kind kind, uint32_t holder, uint8_t tier,
                const char *parent, const char *blocks, bool tier_only)
{
    uint64_t hash[LONGEST];
    struct wp_kv_event ev = {
        .kind = kind, .holder = holder, .space = r->space, .main_group = true, .tier = tier};

    ev.n = letters(blocks, hash);
    ev.engine = hash;
    ev.local = kind == WP_KV_STORED && !tier_only ? hash : NULL;
    ev.has_parent = *parent;
    ev.parent = (uint64_t)*parent;
    wp_index_apply(r->ix, &ev, &r->res);
}

static void store(struct rig *r, uint32_t holder, uint8_t tier, const char *parent,
                  const char *blocks)
{
    say(r, WP_KV_STORED, holder, tier, parent, blocks, false);
}

static void remove_blocks(struct rig *r, uint32_t holder, uint8_t tier, const char *blocks)
{
    say(r, WP_KV_REMOVED, holder, tier, "", blocks, false);
}

static size_t graft(struct rig *r, uint32_t holder, const char *prompt)
{
    uint64_t local[LONGEST];
    size_t n = letters(prompt, local);

    return wp_index_graft(r->ix, holder, r->space, local, n);
}

/* "blocks gpu cpu disk remote ?doubtful" of the holder for the prompt; "-" for nothing. */
static const char *ask(struct rig *r, uint32_t holder, const char *prompt, char out[64])
{
    uint64_t local[LONGEST];
    size_t n = letters(prompt, local);
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
    struct rig r;

    rig_init(&r, NULL);
    store(&r, r.w[2], 0, "", "abc");
    ASK("whole", "3 3 0 0 0 ?0", &r, r.w[2], "abc");
    ASK("longer prompt", "3 3 0 0 0 ?0", &r, r.w[2], "abcd");
    ASK("shorter prompt", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    ASK("other prompt", "1 1 0 0 0 ?0", &r, r.w[2], "axc");
    ASK("nothing asked", "-", &r, r.w[2], "");
    ASK("other holder", "-", &r, r.w[3], "abc");
    say(&r, WP_KV_STORED, r.w[2], 1, "", "bc", true);
    EXPECT_UINT("two tiers more", 2, r.res.applied);
    remove_blocks(&r, r.w[2], 0, "b");
    ASK("each block once, in its fastest tier", "3 2 1 0 0 ?0", &r, r.w[2], "abc");
    store(&r, r.w[2], 3, "c", "d");
    ASK("gpu cpu gpu remote", "4 2 1 0 1 ?0", &r, r.w[2], "abcd");
    remove_blocks(&r, r.w[2], 1, "b");
    ASK("a hole ends it", "1 1 0 0 0 ?0", &r, r.w[2], "abcd");
    store(&r, r.w[2], 2, "a", "b");
    ASK("the hole is filled", "4 2 0 1 1 ?0", &r, r.w[2], "abcd");
    rig_fini(&r);
}

static void copies_are_counted(void)
{
    struct rig r;

    rig_init(&r, NULL);
    store(&r, r.w[2], 0, "", "ab");
    store(&r, r.w[2], 0, "a", "b");
    remove_blocks(&r, r.w[2], 0, "b");
    ASK("one copy is left", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    remove_blocks(&r, r.w[2], 1, "b");
    EXPECT_UINT("not in that tier", 1, r.res.unknown);
    remove_blocks(&r, r.w[2], 0, "bb");
    EXPECT_UINT("the last one", 1, r.res.applied);
    EXPECT_UINT("never below none", 1, r.res.unknown);
    ASK("gone", "1 1 0 0 0 ?0", &r, r.w[2], "ab");
    store(&r, r.w[2], 0, "a", "b");
    ASK("again", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    rig_fini(&r);
}

static void what_a_node_holds_counts_for_its_ranks(void)
{
    struct rig r;
    struct wp_err err = WP_ERR_INIT;
    uint32_t again;

    rig_init(&r, NULL);
    store(&r, r.w[0], 0, "", "ab");
    store(&r, r.node, 2, "", "abcd");
    store(&r, r.pool, 3, "", "abc");
    ASK("rank: its own and the node's", "4 2 0 2 0 ?0", &r, r.w[0], "abcd");
    ASK("rank with nothing of its own", "4 0 0 4 0 ?0", &r, r.w[1], "abcd");
    ASK("rank elsewhere", "-", &r, r.w[2], "abcd");
    ASK("the node", "4 0 0 4 0 ?0", &r, r.node, "abcd");
    ASK("the pool is a row of its own", "3 0 0 0 3 ?0", &r, r.pool, "abcd");
    wp_index_drop(r.ix, r.node);
    ASK("without the node", "2 2 0 0 0 ?0", &r, r.w[0], "abcd");
    wp_index_holder(r.ix, WP_HOLDER_NODE, WP_NO_HOLDER, &again, &err);
    EXPECT_UINT("the number is given again", r.node, again);
    store(&r, again, 2, "", "abcd");
    ASK("and is not the old ranks' node", "2 2 0 0 0 ?0", &r, r.w[0], "abcd");
    EXPECT_INT("a rank is no node", WP_EINVAL,
               wp_index_holder(r.ix, WP_HOLDER_RANK, r.w[0], &again, &err));
    rig_fini(&r);
}

static void holders_with_one_answer_share_a_row_longest_first(void)
{
    struct rig r;
    uint64_t local[4];

    rig_init(&r, NULL);
    store(&r, r.w[0], 0, "", "abc");
    store(&r, r.w[1], 0, "", "abcd");
    store(&r, r.w[2], 0, "", "abc");
    store(&r, r.w[3], 1, "", "abc");
    EXPECT_UINT("largest", 4, wp_index_overlap(r.ix, r.space, local, letters("abcd", local), &r.o));
    EXPECT_UINT("rows", 3, r.o.n);
    EXPECT_UINT("first", (uint64_t)1 << r.w[1], r.o.row[0].set[0]);
    EXPECT_UINT("second: equal answers, the faster tier",
                (uint64_t)1 << r.w[0] | (uint64_t)1 << r.w[2], r.o.row[1].set[0]);
    EXPECT_UINT("third", (uint64_t)1 << r.w[3], r.o.row[2].set[0]);
    rig_fini(&r);
}

static void spaces_and_groups_are_apart(void)
{
    struct rig r;
    struct wp_err err = WP_ERR_INIT;
    uint32_t other, again;
    uint64_t hash[2] = {'a', 'b'};
    struct wp_kv_event ev = {.kind = WP_KV_STORED,
                             .group = 1,
                             .main_group = true,
                             .n = 2,
                             .engine = hash,
                             .local = hash};

    rig_init(&r, NULL);
    wp_index_space(r.ix, WP_STR("m"), 32, WP_STR(""), WP_SPACE_TOKENS, &other, &err);
    wp_index_space(r.ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &again, &err);
    EXPECT_UINT("the same space", r.space, again);
    EXPECT_TRUE("another", other != r.space);
    wp_index_space(r.ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_BYTES, &again, &err);
    EXPECT_TRUE("another kind", again != r.space && again != other);
    store(&r, r.w[2], 0, "", "a");
    ev.holder = r.w[2];
    ev.space = other;
    wp_index_apply(r.ix, &ev, &r.res);
    ASK("other space", "1 1 0 0 0 ?0", &r, r.w[2], "ab");
    ev.space = r.space;
    wp_index_apply(r.ix, &ev, &r.res);
    ASK("another group of this space", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    remove_blocks(&r, r.w[2], 0, "ab");
    EXPECT_UINT("b is not of group 0", 1, r.res.unknown);
    ASK("a removal ends its group's copy only", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    ev.main_group = false;
    wp_index_apply(r.ix, &ev, &r.res);
    EXPECT_UINT("no main group", 2, r.res.ignored);
    rig_fini(&r);
}

static void a_clear_and_a_drop_take_all_of_one_holder(void)
{
    struct rig r;
    struct wp_err err = WP_ERR_INIT;
    struct wp_index_stats s;
    uint32_t again;

    rig_init(&r, NULL);
    store(&r, r.w[2], 0, "", "abc");
    store(&r, r.w[3], 0, "", "ab");
    store(&r, r.w[2], 0, "?", "xyz");
    say(&r, WP_KV_CLEARED, r.w[2], 0, "", "", false);
    EXPECT_UINT("blocks cleared", 6, r.res.applied);
    ASK("cleared", "-", &r, r.w[2], "abc");
    ASK("the other one stays", "2 2 0 0 0 ?0", &r, r.w[3], "abc");
    store(&r, r.w[2], 0, "", "a");
    wp_index_drop(r.ix, r.w[2]);
    EXPECT_INT("holder", 0, wp_index_holder(r.ix, WP_HOLDER_RANK, WP_NO_HOLDER, &again, &err));
    EXPECT_UINT("the lowest free number", r.w[2], again);
    ASK("the new one has nothing of the old", "-", &r, again, "abc");
    remove_blocks(&r, again, 0, "a");
    EXPECT_UINT("nor its names", 1, r.res.unknown);
    wp_index_drop(r.ix, again);
    wp_index_drop(r.ix, again);
    store(&r, again, 0, "", "a");
    EXPECT_UINT("nobody", 1, r.res.refused);
    wp_index_clear(r.ix, r.w[3]);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("nothing is left", 0, s.blocks + s.locations + s.floating + s.doubtful);
    rig_fini(&r);
}

static void what_is_doubted_is_doubtful_until_it_is_stored_again(void)
{
    struct rig r;
    uint64_t tier[WP_TIER_MAX], doubtful;
    struct wp_index_stats s;

    rig_init(&r, NULL);
    store(&r, r.w[2], 0, "", "abc");
    store(&r, r.w[3], 0, "", "abc");
    wp_index_doubt(r.ix, r.w[2]);
    ASK("all", "3 3 0 0 0 ?3", &r, r.w[2], "abc");
    ASK("only its", "3 3 0 0 0 ?0", &r, r.w[3], "abc");
    store(&r, r.w[2], 0, "a", "b");
    say(&r, WP_KV_STORED, r.w[2], 1, "", "c", true);
    ASK("one is sure; c is in another tier, which is not where it counts", "3 3 0 0 0 ?2", &r,
        r.w[2], "abc");
    wp_index_holder_stats(r.ix, r.w[2], tier, &doubtful);
    EXPECT_UINT("gpu", 3, tier[0]);
    EXPECT_UINT("cpu", 1, tier[1]);
    EXPECT_UINT("doubtful locations", 2, doubtful);
    remove_blocks(&r, r.w[2], 0, "c");
    ASK("now it counts there", "3 2 1 0 0 ?1", &r, r.w[2], "abc");
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("blocks", 3, s.blocks);
    EXPECT_UINT("locations", 6, s.locations);
    EXPECT_UINT("doubtful", 1, s.doubtful);
    rig_fini(&r);
}

static void zero_is_a_hash_like_any_other(void)
{
    struct rig r;
    uint64_t hash[3] = {0, UINT64_MAX, 1}, local[3] = {0, 0, UINT64_MAX};
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED, .main_group = true, .n = 1, .engine = hash, .local = local};

    rig_init(&r, NULL);
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
    rig_fini(&r);
}

static void a_chain_floats_until_its_place_is_learnt(void)
{
    struct rig r;
    struct wp_index_stats s;

    rig_init(&r, NULL);
    store(&r, r.w[2], 1, "c", "def");
    EXPECT_UINT("floating", 3, r.res.floating);
    ASK("it answers nobody", "-", &r, r.w[2], "def");
    EXPECT_UINT("no place on this prompt", 0, graft(&r, r.w[2], "abcxyz"));
    EXPECT_UINT("nor at its start", 0, graft(&r, r.w[2], "defxyz"));
    EXPECT_UINT("nor for another holder", 0, graft(&r, r.w[3], "abcdef"));
    EXPECT_UINT("three blocks", 3, graft(&r, r.w[2], "abcde"));
    ASK("what is before counts, in doubt", "6 0 6 0 0 ?3", &r, r.w[2], "abcdef");
    store(&r, r.w[2], 1, "f", "g");
    EXPECT_UINT("what comes below floats no more", 0, r.res.floating);
    ASK("longer", "7 0 7 0 0 ?3", &r, r.w[2], "abcdefg");
    remove_blocks(&r, r.w[2], 1, "g");
    store(&r, r.w[2], 0, "", "ab");
    ASK("stored, so sure", "6 2 4 0 0 ?1", &r, r.w[2], "abcdef");
    remove_blocks(&r, r.w[2], 1, "c");
    EXPECT_UINT("it is known by the name that was awaited", 1, r.res.applied);
    ASK("and goes by it", "2 2 0 0 0 ?0", &r, r.w[2], "abcdef");
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("none floats", 0, s.floating);
    rig_fini(&r);
}

static void a_guess_lasts_as_long_as_something_below_is_held(void)
{
    struct rig r;

    rig_init(&r, NULL);
    store(&r, r.w[2], 0, "b", "cd");
    graft(&r, r.w[2], "abcd");
    remove_blocks(&r, r.w[2], 0, "d");
    ASK("c is left", "3 3 0 0 0 ?2", &r, r.w[2], "abcd");
    remove_blocks(&r, r.w[2], 0, "c");
    ASK("nothing speaks for a and b any more", "-", &r, r.w[2], "abcd");
    rig_fini(&r);
}

static void a_chain_joins_when_the_name_it_hangs_from_is_stored(void)
{
    struct rig r;

    rig_init(&r, NULL);
    store(&r, r.w[3], 0, "", "abcde");
    store(&r, r.w[2], 0, "b", "cd");
    store(&r, r.w[2], 0, "b", "x");
    store(&r, r.w[2], 0, "", "ab");
    ASK("joined, without doubt", "4 4 0 0 0 ?0", &r, r.w[2], "abcde");
    ASK("with all that hung there", "3 3 0 0 0 ?0", &r, r.w[2], "abx");
    ASK("the other holder's blocks are its own", "5 5 0 0 0 ?0", &r, r.w[3], "abcde");
    rig_fini(&r);
}

static void an_ambiguous_chain_is_not_hung(void)
{
    struct rig r;

    rig_init(&r, NULL);
    store(&r, r.w[2], 0, "?", "x");
    EXPECT_UINT("two places alike", 0, graft(&r, r.w[2], "axbxc"));
    EXPECT_UINT("one place", 1, graft(&r, r.w[2], "abxc"));
    store(&r, r.w[3], 0, "?", "xy");
    EXPECT_UINT("the longer match decides", 2, graft(&r, r.w[3], "axbxyc"));
    ASK("there", "5 5 0 0 0 ?3", &r, r.w[3], "axbxyc");
    rig_fini(&r);
}

static void no_block_hangs_below_itself(void)
{
    struct rig r;
    struct wp_index_stats s;

    rig_init(&r, NULL);
    store(&r, r.w[2], 0, "a", "a");
    EXPECT_UINT("its own parent", 1, r.res.refused);
    store(&r, r.w[2], 0, "c", "ab");
    store(&r, r.w[2], 0, "b", "c");
    EXPECT_UINT("a ring", 1, r.res.refused);
    store(&r, r.w[2], 0, "c", "abcab");
    EXPECT_UINT("a ring within an event", 3, r.res.refused);
    store(&r, r.w[3], 0, "", "aaa");
    EXPECT_UINT("a name thrice: the last place stays", 3, r.res.applied);
    ASK("the place before it is a hole", "-", &r, r.w[3], "aaa");
    wp_index_clear(r.ix, r.w[2]);
    wp_index_clear(r.ix, r.w[3]);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("nothing is left", 0, s.blocks + s.floating);
    rig_fini(&r);
}

static void the_last_word_on_a_name_wins(void)
{
    struct rig r;
    uint64_t hash = 'a', local = 'z';
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED, .main_group = true, .n = 1, .engine = &hash, .local = &local};

    rig_init(&r, NULL);
    ev.holder = r.w[2];
    ev.space = r.space;
    store(&r, r.w[2], 0, "", "ab");
    store(&r, r.w[2], 0, "", "a");
    wp_index_apply(r.ix, &ev, &r.res);
    ASK("the old place is void", "-", &r, r.w[2], "ab");
    ASK("the new one holds", "1 1 0 0 0 ?0", &r, r.w[2], "z");
    remove_blocks(&r, r.w[2], 0, "a");
    ASK("with one copy: we would rather claim too little", "-", &r, r.w[2], "z");
    store(&r, r.w[2], 0, "", "a");
    ASK("what hung below hangs there still", "2 2 0 0 0 ?0", &r, r.w[2], "ab");
    rig_fini(&r);
}

static void events_out_of_bounds_are_refused(void)
{
    struct rig r;
    uint64_t hash[1] = {1};
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED, .main_group = true, .n = 1, .engine = hash, .local = hash};

    rig_init(&r, NULL);
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
    rig_fini(&r);
}

static void holders_beyond_the_room_of_the_answer_are_left_out(void)
{
    struct rig r;
    struct wp_err err = WP_ERR_INIT;
    uint32_t h = 0;
    struct wp_overlap small;

    rig_init(&r, NULL);
    EXPECT_INT("init", 0, wp_overlap_init(&small, 0));
    while (h < 100)
        wp_index_holder(r.ix, WP_HOLDER_RANK, r.node, &h, &err);
    store(&r, h, 0, "", "ab");
    EXPECT_UINT("left out", 0, wp_index_overlap(r.ix, r.space, (uint64_t[]){'a', 'b'}, 2, &small));
    store(&r, r.node, 0, "", "a");
    EXPECT_UINT("those within are there", 1,
                wp_index_overlap(r.ix, r.space, (uint64_t[]){'a', 'b'}, 2, &small));
    EXPECT_UINT("one row", 1, small.n);
    wp_overlap_fini(&small);
    rig_fini(&r);
}

/* Chains of twelve blocks that share their first four with the nine others of their family. */
static size_t numbered(uint64_t chain, uint64_t local[12])
{
    for (uint64_t i = 0; i < 12; i++)
        local[i] = i < 4 ? 1 + chain / 10 * 100 + i : 1000000 + chain * 100 + i;
    return 12;
}

static void apply_chain(struct rig *r, enum wp_kv_kind kind, uint32_t holder, uint64_t chain,
                        size_t from)
{
    uint64_t local[12];
    struct wp_kv_event ev = {.kind = kind, .holder = holder, .space = r->space, .main_group = true};

    ev.n = numbered(chain, local) - from;
    ev.engine = ev.local = local + from;
    ev.has_parent = from > 0;
    ev.parent = local[from ? from - 1 : 0];
    wp_index_apply(r->ix, &ev, &r->res);
}

static void churn_leaves_the_memory_flat(void)
{
    struct rig r;
    struct wp_index_stats warm, s;
    long live = 0;

    rig_init(&r, NULL);
    for (uint64_t i = 0; i < 4000; i++) {
        apply_chain(&r, WP_KV_STORED, r.w[i % 4], i, 0);
        if (i >= 1000)
            apply_chain(&r, WP_KV_REMOVED, r.w[(i - 1000) % 4], i - 1000, 0);
        if (i == 1000) {
            wp_index_stats(r.ix, &warm);
            live = wp_mem_live();
        }
    }
    wp_index_stats(r.ix, &s);
    EXPECT_TRUE("within a twentieth", s.bytes <= warm.bytes + warm.bytes / 20);
    EXPECT_TRUE("a few chunks at most", wp_mem_live() <= live + 4);
    EXPECT_TRUE("blocks are there", s.blocks > 8000);
    for (int i = 0; i < 4; i++)
        wp_index_clear(r.ix, r.w[i]);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("and none in the end", 0, s.blocks);
    rig_fini(&r);
}

static void the_cap_evicts_tails_first_from_the_holder_with_the_most(void)
{
    enum { CAP = 1 << 20, SMALL = 20 };
    struct rig r;
    struct wp_index_stats s;
    uint64_t local[12], tier[WP_TIER_MAX], doubtful;
    bool whole = true;
    size_t some = 0;

    rig_init(&r, &(struct wp_index_conf){.cap_bytes = CAP, .secret = 3});
    for (uint64_t i = 0; i < SMALL; i++)
        apply_chain(&r, WP_KV_STORED, r.w[3], 1000 + i, 0);
    for (uint64_t i = 0; i < 3000; i++)
        apply_chain(&r, WP_KV_STORED, r.w[2], 10000 + i, 0);
    wp_index_stats(r.ix, &s);
    EXPECT_TRUE("never over the cap", s.bytes <= CAP);
    EXPECT_TRUE("some were evicted", s.evicted > 1000);
    for (uint64_t i = 0; i < SMALL; i++) {
        size_t n = numbered(1000 + i, local);

        whole = whole && wp_index_overlap(r.ix, r.space, local, n, &r.o) == n;
    }
    EXPECT_TRUE("the small holder keeps all it has", whole);
    for (uint64_t i = 0; i < 3000;
         i++) { /* what is held is reached from the start: no prefix lost its head */
        const struct wp_overlap_row *row;
        size_t n = numbered(10000 + i, local);

        wp_index_overlap(r.ix, r.space, local, n, &r.o);
        row = wp_overlap_of(&r.o, r.w[2]);
        some += row && row->blocks > 4 ? row->blocks - 4 : 0;
        if (i % 10 == 0)
            some += row ? row->blocks < 4 ? row->blocks : 4 : 0;
    }
    wp_index_holder_stats(r.ix, r.w[2], tier, &doubtful);
    EXPECT_UINT("all that is held can be used", tier[0], some);
    numbered(12999, local);
    EXPECT_UINT("the newest is whole", 12, wp_index_overlap(r.ix, r.space, local, 12, &r.o));
    rig_fini(&r);
}

static void a_cap_too_small_for_anything_refuses(void)
{
    struct rig r;

    rig_init(&r, &(struct wp_index_conf){.cap_bytes = 120000});
    apply_chain(&r, WP_KV_STORED, r.w[2], 1, 0);
    EXPECT_UINT("refused", 12, r.res.refused);
    apply_chain(&r, WP_KV_STORED, r.w[2], 1, 3);
    EXPECT_UINT("refused, floating too", 9, r.res.refused);
    rig_fini(&r);
}

static void floating_chains_are_bounded_oldest_tails_first(void)
{
    struct rig r;
    struct wp_index_stats s;

    rig_init(&r, &(struct wp_index_conf){.floating_max = 5});
    store(&r, r.w[2], 0, "?", "abc");
    store(&r, r.w[2], 0, "!", "xyz");
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("no more than that", 5, s.floating);
    EXPECT_UINT("one went", 1, s.evicted);
    EXPECT_UINT("the older chain's tail", 2, graft(&r, r.w[2], "1abc"));
    EXPECT_UINT("the newer is whole", 3, graft(&r, r.w[2], "1xyz"));
    store(&r, r.w[2], 0, "%", "ghijkl");
    EXPECT_UINT("a chain longer than that is kept at its start", 1, r.res.refused);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("five", 5, s.floating);
    rig_fini(&r);
}

/* A life with everything in it; what was refused is for the caller to judge. */
static size_t live_a_little(struct rig *r)
{
    size_t refused = 0;
    uint64_t local[12];

    for (uint64_t i = 0; i < 120; i++) {
        apply_chain(r, WP_KV_STORED, r->w[i % 4], i, 0);
        refused += r->res.refused;
        apply_chain(r, WP_KV_STORED, r->w[(i + 1) % 4], i + 1000, 5);
        refused += r->res.refused;
        if (i % 3 == 0)
            apply_chain(r, WP_KV_REMOVED, r->w[i % 4], i, 6);
        if (i % 5 == 0)
            wp_index_graft(r->ix, r->w[(i + 1) % 4], r->space, local, numbered(i + 1000, local));
        if (i == 60)
            wp_index_drop(r->ix, r->w[0]);
    }
    return refused;
}

static void any_allocation_may_fail(void)
{
    long live = wp_mem_live();
    size_t failures = 0;

    for (long nth = 0;; nth++) {
        struct rig r;
        struct wp_err err = WP_ERR_INIT;
        bool failed, ok;

        rig_init(&r, NULL);
        wp_mem_fail_after(nth);
        live_a_little(&r);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        ok = wp_index_verify(r.ix, &err);
        EXPECT_TRUE(ok ? "verify" : err.text, ok);
        rig_fini(&r);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        failures += failed;
        if (!failed)
            break;
    }
    EXPECT_TRUE("there were allocations to fail", failures > 10);
}

static void making_the_frame_may_run_out_of_memory(void)
{
    long live = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_index *ix = NULL;
        struct wp_err err = WP_ERR_INIT;
        struct wp_overlap o = {0};
        uint32_t n;
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_index_create(&ix, &(struct wp_index_conf){0}, &err);
        if (rc == 0)
            rc = wp_index_space(ix, WP_STR("m"), 16, WP_STR("d"), WP_SPACE_TOKENS, &n, &err);
        if (rc == 0)
            rc = wp_index_holder(ix, WP_HOLDER_RANK, WP_NO_HOLDER, &n, &err);
        if (rc == 0)
            rc = wp_overlap_init(&o, 70);
        wp_overlap_fini(&o);
        wp_index_destroy(ix);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        if (!wp_mem_failed())
            break;
        EXPECT_INT("says so", WP_ENOMEM, rc);
    }
    wp_mem_fail_after(-1);
}

/* Two readers ask while the main thread stores, removes, drops and grafts: for the thread
 * sanitizer, and for claims. */
struct reader {
    struct rig *r;
    _Atomic bool *stop;
    size_t asked, wrong;
};

static void *read_on(void *arg)
{
    struct reader *me = arg;
    struct wp_rng rng = {(uintptr_t)me};
    struct wp_overlap o;
    struct wp_index_stats s;
    uint64_t local[12], tier[WP_TIER_MAX], doubtful;

    if (wp_overlap_init(&o, 64) < 0)
        return NULL;
    while (!*me->stop || me->asked < 100) {
        size_t n = numbered(wp_rng_below(&rng, 60), local),
               most = wp_index_overlap(me->r->ix, me->r->space, local, n, &o);

        me->wrong += most > n || (o.n && o.row[0].blocks != most);
        for (size_t i = 0; i < o.n; i++)
            me->wrong += o.row[i].tier[0] + o.row[i].tier[1] != o.row[i].blocks || !o.row[i].blocks;
        wp_index_stats(me->r->ix, &s);
        wp_index_holder_stats(me->r->ix, me->r->w[2], tier, &doubtful);
        me->wrong += s.doubtful > s.locations || doubtful > tier[0] + tier[1];
        me->asked++;
    }
    wp_overlap_fini(&o);
    return NULL;
}

static void readers_and_the_writer_do_not_disturb_each_other(void)
{
    struct rig r;
    struct wp_rng rng = {4};
    _Atomic bool stop = false;
    struct reader me[2] = {{.r = &r, .stop = &stop}, {.r = &r, .stop = &stop}};
    pthread_t thread[2];

    rig_init(&r, NULL);
    for (int i = 0; i < 2; i++)
        EXPECT_INT("thread", 0, pthread_create(&thread[i], NULL, read_on, &me[i]));
    for (int i = 0; i < 3000; i++) {
        uint64_t chain = wp_rng_below(&rng, 60), local[12];
        uint32_t w = r.w[wp_rng_below(&rng, 4)];

        apply_chain(&r, wp_rng_below(&rng, 2) ? WP_KV_STORED : WP_KV_REMOVED, w, chain,
                    wp_rng_below(&rng, 8));
        if (i % 50 == 0)
            wp_index_graft(r.ix, w, r.space, local, numbered(chain, local));
        if (i % 300 == 0)
            wp_index_doubt(r.ix, w);
        if (i % 500 == 0)
            wp_index_clear(r.ix, w);
    }
    stop = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        EXPECT_TRUE("asked", me[i].asked >= 100);
        EXPECT_UINT("wrong answers", 0, me[i].wrong);
    }
    rig_fini(&r);
}

const struct wp_suite suite_index = {
    "index",
    (const struct wp_test[]){
        {"the leading blocks count in any interleaving of tiers",
         the_leading_blocks_count_in_any_interleaving_of_tiers},
        {"copies are counted", copies_are_counted},
        {"what a node holds counts for its ranks", what_a_node_holds_counts_for_its_ranks},
        {"holders with one answer share a row, longest first",
         holders_with_one_answer_share_a_row_longest_first},
        {"spaces and groups are apart", spaces_and_groups_are_apart},
        {"a clear and a drop take all of one holder", a_clear_and_a_drop_take_all_of_one_holder},
        {"what is doubted is doubtful until it is stored again",
         what_is_doubted_is_doubtful_until_it_is_stored_again},
        {"zero is a hash like any other", zero_is_a_hash_like_any_other},
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
        {"churn leaves the memory flat", churn_leaves_the_memory_flat},
        {"the cap evicts tails first, from the holder with the most",
         the_cap_evicts_tails_first_from_the_holder_with_the_most},
        {"a cap too small for anything refuses", a_cap_too_small_for_anything_refuses},
        {"floating chains are bounded, oldest tails first",
         floating_chains_are_bounded_oldest_tails_first},
        {"any allocation may fail", any_allocation_may_fail},
        {"making the frame may run out of memory", making_the_frame_may_run_out_of_memory},
        {"readers and the writer do not disturb each other",
         readers_and_the_writer_do_not_disturb_each_other},
        {NULL, NULL},
    },
};
