/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/ingest.h"

#include "base/mem.h"
#include "index/identity.h"
#include "tests/lib/bytes.h"
#include "tests/lib/test.h"
#include "tests/lib/timeline.h"
#include "tests/lib/wire.h"

enum { B = 4, LONGEST = 64 };

/* Letters are tokens; a prompt of them has one more, so that all its whole blocks can be used. */
struct rig {
    struct wp_timeline t;
    struct wp_wire_event next; /* what the next event has beside its blocks */
    uint64_t parent;
};

static void rig_init(struct rig *r, uint32_t told)
{
    *r = (struct rig){0};
    wp_timeline_init(&r->t, told);
}

static size_t letters(const char *s, uint32_t out[LONGEST])
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)s[i];
    return n;
}

/* The name of the block that ends the text: any function of it, and of `domain` (what is named
 * apart). */
static uint64_t name(const char *text, size_t n, uint64_t domain)
{
    return wp_hash_item((struct wp_str){text, n}) ^ domain * 0x9E3779B97F4A7C15u;
}

static void send(struct rig *r, const struct wp_wire_event *e, size_t n)
{
    size_t bytes = 0;
    char *p = wp_wire_batch(e, n, &bytes);

    wp_timeline_payload(&r->t, 0, (struct wp_str){p, bytes});
    wp_free(p);
}

/* A store of what follows text[from] in blocks of `size`, named in the domain. */
static struct wp_wire_event store_event(struct rig *r, const char *text, size_t from, uint32_t size,
                                        uint64_t domain, uint32_t token[LONGEST],
                                        uint64_t hash[LONGEST])
{
    struct wp_wire_event e = r->next;
    size_t all = letters(text, token);

    e.kind = WP_EVENT_STORED;
    e.n = (all - from - e.pairs) / size;
    for (size_t i = 0; i < e.n; i++)
        hash[i] = name(text, from + (i + 1) * size, domain);
    r->parent = name(text, from, domain);
    e.parent = from ? &r->parent : NULL;
    e.hash = hash;
    e.token = token + from;
    e.n_tokens = e.n * size + e.pairs;
    e.block_size = size;
    return e;
}

static void store(struct rig *r, const char *text, size_t from, uint32_t size, uint64_t domain)
{
    uint32_t token[LONGEST];
    uint64_t hash[LONGEST];
    struct wp_wire_event e = store_event(r, text, from, size, domain, token, hash);

    send(r, &e, 1);
}

/* Hashes alone: of the blocks that end the text's first n letters, n in [from + size, text's end].
 */
static void say(struct rig *r, enum wp_event_kind kind, const char *text, size_t from,
                uint32_t size, uint64_t domain)
{
    uint64_t hash[LONGEST];
    struct wp_wire_event e = r->next;

    e.kind = kind;
    for (size_t at = from + size; at <= strlen(text); at += size)
        hash[e.n++] = name(text, at, domain);
    e.hash = hash;
    e.extra = (struct wp_str){0};
    send(r, &e, 1);
}

/* "blocks ?doubtful" of the prompt; an asked adapter and salt may be named. */
static void ask(struct rig *r, const char *label, const char *want, const char *prompt,
                const char *lora, const char *salt)
{
    uint32_t token[LONGEST], doubtful;
    size_t n = letters(prompt, token), blocks;
    char got[32];

    token[n] = 0;
    blocks = wp_timeline_claim(&r->t, 0, token, n + 1, wp_str_of(lora), wp_str_of(salt), &doubtful);
    snprintf(got, sizeof got, "%zu ?%u", blocks, doubtful);
    EXPECT_TEXT(label, want, wp_str_of(got));
}

static const struct wp_ingest_counts *counts(struct rig *r)
{
    return wp_ingest_counts(r->t.rank[0]);
}

/* --- sizes ------------------------------------------------------------------------------------ */

static void the_block_size_is_learnt_in_gpu_memory(void)
{
    struct rig r;

    rig_init(&r, 0);
    r.next.medium = "CPU";
    store(&r, "aaaabbbb", 0, 8, 1);
    EXPECT_UINT("not from a chunk in host memory", 0, wp_ingest_its_block_size(r.t.rank[0]));
    EXPECT_UINT("which is counted", 1, counts(&r)->wrong_size);
    r.next.medium = "GPU";
    store(&r, "aaaabbbb", 0, B, 0);
    EXPECT_UINT("learnt", B, wp_ingest_its_block_size(r.t.rank[0]));
    ask(&r, "indexed", "2 ?0", "aaaabbbb", NULL, NULL);
    store(&r, "aaaabbbb", 0, 3, 2);
    EXPECT_UINT("neither multiple nor fraction", 3, counts(&r)->wrong_size);
    ask(&r, "and ignored", "2 ?0", "aaaabbbb", NULL, NULL);
    wp_ingest_block_size(r.t.rank[0], 8);
    ask(&r, "another size was told: nothing is known", "0 ?0", "aaaabbbb", NULL, NULL);
    wp_timeline_fini(&r.t);
}

static void a_chunk_is_cut_and_goes_as_a_whole(void)
{
    struct rig r;

    rig_init(&r, B);
    r.next.medium = "CPU";
    store(&r, "aaaabbbbccccddddeeeeffff", 0, 12, 1);
    ask(&r, "six blocks of two chunks", "6 ?0", "aaaabbbbccccddddeeeeffff", NULL, NULL);
    ask(&r, "each on its own", "5 ?0", "aaaabbbbccccddddeeeexxxx", NULL, NULL);
    EXPECT_UINT("chunks", 2, counts(&r)->split);
    store(&r, "aaaabbbbccccddddeeeeffffgggghhhhiiii", 24, 12, 1);
    ask(&r, "the next hangs from the last piece", "9 ?0", "aaaabbbbccccddddeeeeffffgggghhhhiiii",
        NULL, NULL);
    say(&r, WP_EVENT_REMOVED, "aaaabbbbccccddddeeeeffff", 12, 12, 1);
    ask(&r, "all of one chunk are gone", "3 ?0", "aaaabbbbccccddddeeeeffffgggghhhhiiii", NULL,
        NULL);
    r.next.medium = "DISK";
    say(&r, WP_EVENT_STORED, "aaaabbbbcccc", 0, 12, 1);
    r.next.medium = "CPU";
    say(&r, WP_EVENT_REMOVED, "aaaabbbbcccc", 0, 12, 1);
    ask(&r, "moved to disk whole", "3 ?0", "aaaabbbbcccc", NULL, NULL);
    EXPECT_UINT("nothing unknown", 0, counts(&r)->unknown);
    wp_timeline_fini(&r.t);
}

static void parts_make_a_block_while_all_are_there(void)
{
    struct rig r;

    rig_init(&r, B);
    store(&r, "abcdefg", 0, 1, 1);
    ask(&r, "four make one, three none", "1 ?0", "abcdefgh", NULL, NULL);
    store(&r, "abcdefgh", 7, 1, 1);
    ask(&r, "the last part", "2 ?0", "abcdefgh", NULL, NULL);
    store(&r, "abcdefxy", 6, 1, 1);
    ask(&r, "a branch within a block", "2 ?0", "abcdefxy", NULL, NULL);
    say(&r, WP_EVENT_REMOVED, "abcdef", 5, 1, 1);
    ask(&r, "the part that they share is gone", "1 ?0", "abcdefgh", NULL, NULL);
    ask(&r, "for both", "1 ?0", "abcdefxy", NULL, NULL);
    store(&r, "abcdef", 5, 1, 1);
    ask(&r, "and back", "2 ?0", "abcdefxy", NULL, NULL);
    r.next.medium = "CPU";
    store(&r, "abcdefgh", 0, 1, 1);
    r.next.medium = "GPU";
    say(&r, WP_EVENT_REMOVED, "abcdefgh", 7, 1, 1);
    ask(&r, "held in host memory", "2 ?0", "abcdefgh", NULL, NULL);
    say(&r, WP_EVENT_CLEARED, "", 0, 1, 1);
    store(&r, "abcd", 0, 1, 1);
    ask(&r, "begun anew", "1 ?0", "abcdefgh", NULL, NULL);
    wp_timeline_fini(&r.t);
}

static void pages_of_one_token_are_gathered_into_sixteen(void)
{
    struct rig r;

    rig_init(&r, 0);
    store(&r, "abcdefghijklmnopqrstuvwxyzabcdefg", 0, 1, 1);
    EXPECT_UINT("ours", 16, wp_ingest_its_block_size(r.t.rank[0]));
    ask(&r, "two", "2 ?0", "abcdefghijklmnopqrstuvwxyzabcdefg", NULL, NULL);
    wp_timeline_fini(&r.t);
}

static void pairs_have_a_space_of_their_own(void)
{
    struct rig r;

    rig_init(&r, 0);
    r.next.pairs = true;
    store(&r, "abcdefghi", 0, B, 1);
    ask(&r, "blocks of p + 1 tokens", "2 ?0", "abcdefghi", NULL, NULL);
    ask(&r, "the next token counts", "1 ?0", "abcdefghx", NULL, NULL);
    say(&r, WP_EVENT_REMOVED, "abcdefgh", B, B, 1);
    ask(&r, "removed", "1 ?0", "abcdefghi", NULL, NULL);
    wp_timeline_fini(&r.t);
    rig_init(&r, 8);
    r.next.pairs = true;
    store(&r, "abcdefghijklmnopq", 0, 2, 1);
    ask(&r, "parts of pairs", "2 ?0", "abcdefghijklmnopq", NULL, NULL);
    ask(&r, "and their next token", "1 ?0", "abcdefghijklmnopx", NULL, NULL);
    wp_timeline_fini(&r.t);
    rig_init(&r, 2);
    r.next.pairs = true;
    store(&r, "abcdefghi", 0, 4, 1);
    ask(&r, "chunks of pairs", "4 ?0", "abcdefghi", NULL, NULL);
    ask(&r, "and theirs", "3 ?0", "abcdefghx", NULL, NULL);
    wp_timeline_fini(&r.t);
}

/* --- tiers ------------------------------------------------------------------------------------ */

static void a_tier_may_be_told_before_its_block(void)
{
    struct rig r;

    rig_init(&r, 0);
    r.next.medium = "CPU";
    say(&r, WP_EVENT_STORED, "aaaabbbb", 0, B, 0);
    EXPECT_UINT("parked", 2, counts(&r)->parked);
    r.next.medium = NULL;
    store(&r, "aaaabbbb", 0, B, 0);
    EXPECT_UINT("found", 2, counts(&r)->unparked);
    say(&r, WP_EVENT_REMOVED, "aaaabbbb", 0, B, 0);
    ask(&r, "in host memory", "2 ?0", "aaaabbbb", NULL, NULL);
    r.next.medium = "cpu_pinned";
    say(&r, WP_EVENT_REMOVED, "aaaabbbb", 0, B, 0);
    ask(&r, "nowhere", "0 ?0", "aaaabbbb", NULL, NULL);
    say(&r, WP_EVENT_STORED, "cccc", 0, B, 0);
    say(&r, WP_EVENT_REMOVED, "cccc", 0, B, 0);
    r.next.medium = NULL;
    store(&r, "cccc", 0, B, 0);
    say(&r, WP_EVENT_REMOVED, "cccc", 0, B, 0);
    ask(&r, "what left again is not parked", "0 ?0", "cccc", NULL, NULL);
    r.next.medium = "CPU";
    say(&r, WP_EVENT_STORED, "dddd", 0, B, 0);
    r.t.now_us += 31 * 1000 * 1000;
    r.next.medium = NULL;
    store(&r, "dddd", 0, B, 0);
    say(&r, WP_EVENT_REMOVED, "dddd", 0, B, 0);
    ask(&r, "nor is anything for long", "0 ?0", "dddd", NULL, NULL);
    wp_timeline_fini(&r.t);
}

/* --- groups ----------------------------------------------------------------------------------- */

static void main_and_window(struct rig *r, uint32_t group)
{
    static const uint32_t numbers[] = {0, 1, 2, 3};

    r->next = (struct wp_wire_event){.group = &numbers[group],
                                     .spec_kind = group == 0   ? "sliding_window"
                                                  : group == 3 ? "mamba"
                                                               : "full_attention",
                                     .window = group == 0 ? 6 : 0}; /* two blocks of 4 */
}

static void a_window_restricts_whichever_group_speaks_first(void)
{
    struct rig r;
    uint32_t token[LONGEST];
    uint64_t hash[LONGEST];
    struct wp_wire_event e;

    rig_init(&r, 0);
    main_and_window(&r, 0);
    e = store_event(&r, "aaaabbbbccccdddd", 0, B, 0, token, hash);
    e.hash += 2; /* the tail alone, with all tokens: a sparse store */
    e.n -= 2;
    send(&r, &e, 1);
    main_and_window(&r, 1);
    store(&r, "aaaabbbbccccdddd", 0, B, 0);
    ask(&r, "the whole", "4 ?0", "aaaabbbbccccdddd", NULL, NULL);
    ask(&r, "a prefix has no window of its own", "0 ?0", "aaaabbbbccccxxxx", NULL, NULL);
    main_and_window(&r, 0);
    say(&r, WP_EVENT_REMOVED, "aaaabbbbcccc", 8, B, 0);
    ask(&r, "a removal by its number alone", "0 ?0", "aaaabbbbccccdddd", NULL, NULL);
    store(&r, "aaaabbbb", 0, B, 0);
    ask(&r, "an earlier end", "2 ?0", "aaaabbbbccccdddd", NULL, NULL);
    EXPECT_UINT("counted", 4, counts(&r)->restricted);
    main_and_window(&r, 3);
    store(&r, "aaaabbbbccccdddd", 0, B, 0);
    EXPECT_UINT("other kinds are ignored", 4, counts(&r)->unused[WP_EVENT_NON_MAIN_GROUP]);
    wp_timeline_fini(&r.t);
}

/* As a router that is started again has it: the index stays, and another ingest takes over. */
static void what_is_resumed_goes_on(void)
{
    struct wp_ingest_conf conf = {.model = WP_STR("m"), .domain = WP_STR("")};
    struct wp_buf saved = {0}, again = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_ingest *p;
    struct rig r;

    rig_init(&r, 0);
    main_and_window(&r, 0);
    store(&r, "aaaabbbbcccc", 4, B, 0);
    main_and_window(&r, 1);
    store(&r, "aaaabbbbcccc", 0, B, 0);
    r.next = (struct wp_wire_event){.group = r.next.group, .salt = "s"};
    store(&r, "saltsalt", 0, B, 1);
    EXPECT_UINT("its window", 2, wp_ingest_window(r.t.rank[0]));
    EXPECT_INT("saved", 0, wp_ingest_save(r.t.rank[0], &saved));
    conf.index = r.t.ix;
    conf.holder = r.t.holder[0];
    for (size_t n = 0; n <= saved.n;
         n++) { /* what is cut is refused, and what the index was told ends: so another holder's */
        uint32_t other;

        wp_index_holder(r.t.ix, WP_HOLDER_RANK, WP_NO_HOLDER, &other, &err);
        conf.holder = n < saved.n ? other : r.t.holder[0];
        EXPECT_INT("created", 0, wp_ingest_create(&p, &conf, &err));
        EXPECT_INT("resumed", n < saved.n ? WP_EINVAL : 0,
                   wp_ingest_resume(p, (struct wp_str){saved.p, n}));
        wp_index_drop(r.t.ix, other);
        if (n < saved.n)
            wp_ingest_destroy(p);
    }
    wp_ingest_destroy(r.t.rank[0]);
    r.t.rank[0] = p;
    EXPECT_INT("saved again", 0, wp_ingest_save(p, &again));
    EXPECT_TRUE("the same", saved.n == again.n && memcmp(saved.p, again.p, saved.n) == 0);
    EXPECT_UINT("its window is known", 2, wp_ingest_window(p));
    ask(&r, "as before", "3 ?0", "aaaabbbbcccc", NULL, NULL);
    main_and_window(&r, 0);
    say(&r, WP_EVENT_REMOVED, "aaaabbbbcccc", 8, B, 0);
    ask(&r, "the group is known by its number", "0 ?0", "aaaabbbbcccc", NULL, NULL);
    wp_buf_fini(&saved);
    wp_buf_fini(&again);
    wp_timeline_fini(&r.t);
}

static void all_main_groups_must_hold_a_block(void)
{
    struct rig r;

    rig_init(&r, 0);
    main_and_window(&r, 1);
    store(&r, "aaaabbbbcccc", 0, B, 0);
    main_and_window(&r, 2);
    store(&r, "aaaabbbb", 0, B, 0);
    ask(&r, "what both have", "2 ?0", "aaaabbbbcccc", NULL, NULL);
    say(&r, WP_EVENT_REMOVED, "aaaa", 0, B, 0);
    ask(&r, "from the start", "0 ?0", "aaaabbbbcccc", NULL, NULL);
    wp_timeline_fini(&r.t);
}

static void what_connectors_say_without_a_group_is_meant_for_all(void)
{
    struct rig r;

    rig_init(&r, 0);
    main_and_window(&r, 1);
    store(&r, "aaaabbbbcccc", 0, B, 0);
    main_and_window(&r, 0);
    store(&r, "aaaabbbbcccc", 8, B, 0);
    ask(&r, "no window yet", "0 ?0", "aaaabbbbcccc", NULL, NULL);
    r.next = (struct wp_wire_event){.medium = "CPU"};
    say(&r, WP_EVENT_STORED, "aaaabbbbcccc", 0, B, 0);
    ask(&r, "offloaded whole", "3 ?0", "aaaabbbbcccc", NULL, NULL);
    say(&r, WP_EVENT_REMOVED, "aaaabbbbcccc", 0, B, 0);
    ask(&r, "and gone again", "0 ?0", "aaaabbbbcccc", NULL, NULL);
    wp_timeline_fini(&r.t);
}

static void a_window_that_names_blocks_otherwise_does_not_restrict(void)
{
    struct rig r;

    rig_init(&r, 0);
    main_and_window(&r, 1);
    store(&r, "aaaabbbb", 0, B, 0);
    main_and_window(&r, 0);
    for (int i = 0; i < WP_WINDOW_TRIAL / 2 - 1; i++)
        store(&r, "aaaabbbb", 0, B, 9);
    ask(&r, "on trial", "0 ?0", "aaaabbbb", NULL, NULL);
    store(&r, "aaaabbbb", 0, B, 9);
    ask(&r, "its places cannot be told", "2 ?0", "aaaabbbb", NULL, NULL);
    store(&r, "aaaa", 0, B, 0);
    ask(&r, "until one can", "1 ?0", "aaaabbbb", NULL, NULL);
    wp_timeline_fini(&r.t);
}

/* --- names ------------------------------------------------------------------------------------ */

static void a_salt_goes_on_through_its_chain(void)
{
    struct rig r;
    static const char first[] = "\x92\x91\xA1s\xC0", later[] = "\x91\xC0";

    rig_init(&r, 0);
    r.next.extra = (struct wp_str){first, 5};
    store(&r, "aaaabbbb", 0, B, 1);
    r.next.extra = (struct wp_str){later, 2};
    store(&r, "aaaabbbbcccc", 8, B, 1);
    ask(&r, "salted", "3 ?0", "aaaabbbbcccc", NULL, "s");
    ask(&r, "never plain", "0 ?0", "aaaabbbbcccc", NULL, NULL);
    ask(&r, "nor another", "0 ?0", "aaaabbbbcccc", NULL, "t");
    r.next = (struct wp_wire_event){.salt = "s"};
    store(&r, "xxxx", 0, B, 1);
    ask(&r, "told in a field", "1 ?0", "xxxx", NULL, "s");
    wp_timeline_fini(&r.t);
}

static void adapters_are_names_and_numbers_match_nothing(void)
{
    struct rig r;

    rig_init(&r, 0);
    r.next.lora = "ad1";
    store(&r, "aaaa", 0, B, 1);
    ask(&r, "named", "1 ?0", "aaaa", "ad1", NULL);
    ask(&r, "not the base model", "0 ?0", "aaaa", NULL, NULL);
    r.next = (struct wp_wire_event){.lora_id = 7};
    store(&r, "bbbb", 0, B, 1);
    ask(&r, "numbered", "0 ?0", "bbbb", NULL, NULL);
    ask(&r, "and the number is no name", "0 ?0", "bbbb", "7", NULL);
    wp_timeline_fini(&r.t);
}

/* The local hashes of a prompt with one item in its second block, and what the index says. */
static size_t ask_with_item(struct rig *r, const char *prompt, const char *item, uint32_t *doubtful)
{
    uint32_t token[LONGEST], space = 0;
    uint64_t local[LONGEST], hash = wp_hash_item(wp_str_of(item));
    size_t n = letters(prompt, token) / B;
    const struct wp_overlap_row *row;

    wp_hash_tokens(token, n * B, B, wp_hash_seed(wp_str_of(NULL), wp_str_of(NULL)), local, n);
    local[1] =
        wp_hash_block_items(token + B, B, wp_hash_seed(wp_str_of(NULL), wp_str_of(NULL)), &hash, 1);
    wp_ingest_space(r->t.rank[0], false, &space);
    wp_index_overlap(r->t.ix, space, local, n, &r->t.o);
    row = wp_overlap_of(&r->t.o, r->t.holder[0]);
    *doubtful = row ? row->doubtful : 0;
    return row ? row->blocks : 0;
}

static void media_are_part_of_a_block(void)
{
    /* nil, [[identifier, offset]]; then the same without an offset, with two items, malformed, and
     * for too few blocks */
    static const struct {
        const char *label, *prompt, *extra;
        size_t n;
        uint32_t blocks, doubtful;
    } cases[] = {
        {"placeholders show where it is", "abcdxyyy", "\x92\xC0\x91\x92\xA3pic\x01", 9, 2, 0},
        {"they begin before", "abcdyyyy", "\x92\xC0\x91\x92\xA3pic\x01", 9, 2, 1},
        {"no run of tokens shows it", "abcdwxyz", "\x92\xC0\x91\x92\xA3pic\x01", 9, 2, 1},
        {"two runs", "abcdxxyy", "\x92\xC0\x91\x92\xA3pic\x00", 9, 2, 1},
        {"it is not said", "abcdyyyy", "\x92\xC0\x91\xA3pic", 7, 2, 1},
        {"two of them", "abcdyyyy", "\x92\xC0\x92\x92\xA3pic\x00\x92\xA3pic\x02", 15, 1, 0},
        {"malformed", "abcdyyyy", "\x92\xC0\x91\x92\x01\x02", 6, 1, 0},
        {"not for each block", "abcdyyyy", "\x91\xC0", 2, 0, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig r;
        uint32_t doubtful;

        rig_init(&r, 0);
        r.next.extra = (struct wp_str){cases[i].extra, cases[i].n};
        store(&r, cases[i].prompt, 0, B, 1);
        EXPECT_UINT(cases[i].label, cases[i].blocks,
                    ask_with_item(&r, cases[i].prompt, "pic", &doubtful));
        EXPECT_UINT(cases[i].label, cases[i].doubtful, doubtful);
        EXPECT_UINT("another picture", cases[i].blocks ? 1 : 0,
                    ask_with_item(&r, cases[i].prompt, "pix", &doubtful));
        ask(&r, "plain text", cases[i].blocks ? "1 ?0" : "0 ?0", cases[i].prompt, NULL, NULL);
        wp_timeline_fini(&r.t);
    }
}

static void an_image_never_looks_like_its_placeholders(void) /* B223 */
{
    size_t n = 0, bytes = 0;
    char *text = wp_test_data("cases/kv/B223.hex", &n),
         *payload = wp_test_hex((struct wp_str){text, n}, &bytes);
    uint32_t token[33];
    struct rig r;

    rig_init(&r, 0);
    wp_timeline_payload(&r.t, 0, (struct wp_str){payload, bytes});
    for (uint32_t i = 0; i < 33; i++)
        token[i] = 1000 + i;
    EXPECT_UINT("the block before it", 1,
                wp_timeline_claim(&r.t, 0, token, 33, wp_str_of(NULL), wp_str_of(NULL), NULL));
    EXPECT_UINT("stored", 2, counts(&r)->stored);
    wp_timeline_fini(&r.t);
    wp_free(text);
    wp_free(payload);
}

/* --- what happens to a feed ------------------------------------------------------------------- */

static void coverage_is_what_is_known_of_what_there_is(void)
{
    struct rig r;
    const struct wp_ingest *p;

    rig_init(&r, 0);
    store(&r, "aaaabbbb", 0, B, 1);
    p = r.t.rank[0];
    EXPECT_NEAR("from the first batch", 1, wp_ingest_coverage(p, true, 8), 0);
    EXPECT_NEAR("two of eight", 0.25, wp_ingest_coverage(p, false, 8), 0);
    EXPECT_NEAR("two of one", 1, wp_ingest_coverage(p, false, 1), 0);
    EXPECT_NEAR("of nobody knows how many", 0, wp_ingest_coverage(p, false, 0), 0);
    say(&r, WP_EVENT_CLEARED, "", 0, B, 1);
    EXPECT_NEAR("since it cleared all", 1, wp_ingest_coverage(p, false, 8), 0);
    wp_ingest_doubt(r.t.rank[0]);
    EXPECT_NEAR("until something is lost", 0, wp_ingest_coverage(p, false, 8), 0);
    wp_timeline_fini(&r.t);
}

static void doubt_stays_until_a_store_and_a_restart_takes_all(void)
{
    struct rig r;

    rig_init(&r, 0);
    main_and_window(&r, 1);
    store(&r, "aaaabbbb", 0, B, 1);
    wp_ingest_doubt(r.t.rank[0]);
    ask(&r, "in doubt", "2 ?2", "aaaabbbb", NULL, NULL);
    store(&r, "aaaa", 0, B, 1);
    ask(&r, "confirmed", "2 ?1", "aaaabbbb", NULL, NULL);
    wp_ingest_gone(r.t.rank[0]);
    ask(&r, "gone", "0 ?0", "aaaabbbb", NULL, NULL);
    r.next = (struct wp_wire_event){0};
    store(&r, "aaaabbbbcccccccc", 0, 8, 1);
    EXPECT_UINT("another size, no groups", 8, wp_ingest_its_block_size(r.t.rank[0]));
    ask(&r, "and new blocks", "2 ?0", "aaaabbbbcccccccc", NULL, NULL);
    wp_timeline_fini(&r.t);
}

static void out_of_memory_costs_certainty_and_nothing_else(void)
{
    uint32_t token[LONGEST];
    uint64_t hash[LONGEST], parts[LONGEST];
    long live = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_wire_event e[3];
        struct wp_event_batch b;
        struct wp_err err = WP_ERR_INIT;
        struct rig r;
        size_t bytes = 0;
        char *p;
        bool failed;

        rig_init(&r, B);
        store(&r, "zzzz", 0, B, 3);
        r.next.salt = "s";
        e[0] = store_event(&r, "aaaabbbbccccdddd", 0, 8, 1, token, hash);
        e[1] = store_event(&r, "aaaabbbbccccdddd", 0, 1, 2, token, parts);
        e[2] = (struct wp_wire_event){
            .kind = WP_EVENT_STORED, .hash = parts, .n = 2, .medium = "DISK"};
        p = wp_wire_batch(e, 3, &bytes);
        wp_event_open(&b, (struct wp_str){p, bytes}, &err);
        wp_mem_fail_after(nth);
        wp_ingest_batch(r.t.rank[0], &b, 0);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        wp_free(p);
        if (!failed)
            ask(&r, "all", "4 ?0", "aaaabbbbccccdddd", NULL, "s");
        else
            EXPECT_TRUE("known", counts(&r)->lost + counts(&r)->refused <= 40);
        wp_timeline_fini(&r.t);
        if (!failed)
            break;
    }
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

const struct wp_suite suite_ingest = {
    "ingest",
    (const struct wp_test[]){
        {"the block size is learnt in GPU memory", the_block_size_is_learnt_in_gpu_memory},
        {"a chunk is cut, and goes as a whole", a_chunk_is_cut_and_goes_as_a_whole},
        {"parts make a block while all are there", parts_make_a_block_while_all_are_there},
        {"pages of one token are gathered into sixteen",
         pages_of_one_token_are_gathered_into_sixteen},
        {"pairs have a space of their own", pairs_have_a_space_of_their_own},
        {"a tier may be told before its block", a_tier_may_be_told_before_its_block},
        {"a window restricts, whichever group speaks first",
         a_window_restricts_whichever_group_speaks_first},
        {"what is resumed goes on", what_is_resumed_goes_on},
        {"all main groups must hold a block", all_main_groups_must_hold_a_block},
        {"what connectors say without a group is meant for all",
         what_connectors_say_without_a_group_is_meant_for_all},
        {"a window that names blocks otherwise does not restrict",
         a_window_that_names_blocks_otherwise_does_not_restrict},
        {"a salt goes on through its chain", a_salt_goes_on_through_its_chain},
        {"adapters are names, and numbers match nothing",
         adapters_are_names_and_numbers_match_nothing},
        {"media are part of a block", media_are_part_of_a_block},
        {"an image never looks like its placeholders", an_image_never_looks_like_its_placeholders},
        {"coverage is what is known of what there is", coverage_is_what_is_known_of_what_there_is},
        {"doubt stays until a store, and a restart takes all",
         doubt_stays_until_a_store_and_a_restart_takes_all},
        {"out of memory costs certainty and nothing else",
         out_of_memory_costs_certainty_and_nothing_else},
        {NULL, NULL},
    },
};
