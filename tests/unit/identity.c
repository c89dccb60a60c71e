/* SPDX-License-Identifier: Apache-2.0 */
#include "index/identity.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <stdlib.h>
#include <xxhash.h>

enum { TOKENS_MAX = 256, BLOCKS_MAX = 32 };

struct vector {
    uint32_t token[TOKENS_MAX];
    uint64_t local[BLOCKS_MAX], chain[BLOCKS_MAX];
    size_t tokens, blocks;
    uint32_t block_size;
    struct wp_str lora, salt;
};

static struct wp_str member(const json_t *o, const char *name)
{
    return wp_str_of(json_string_value(json_object_get(o, name)));
}

static size_t numbers(const json_t *list, uint64_t out[], size_t cap)
{
    size_t n = json_array_size(list) < cap ? json_array_size(list) : cap;

    for (size_t i = 0; i < n; i++)
        wp_str_u64(wp_str_of(json_string_value(json_array_get(list, i))), &out[i]);
    return n;
}

static void read_vector(const json_t *o, struct vector *v)
{
    const json_t *tokens = json_object_get(o, "tokens");

    *v = (struct vector){.block_size =
                             (uint32_t)json_integer_value(json_object_get(o, "block_size"))};
    v->tokens = json_array_size(tokens) < TOKENS_MAX ? json_array_size(tokens) : TOKENS_MAX;
    for (size_t i = 0; i < v->tokens; i++)
        v->token[i] = (uint32_t)json_integer_value(json_array_get(tokens, i));
    v->blocks = numbers(json_object_get(o, "local_hashes"), v->local, BLOCKS_MAX);
    numbers(json_object_get(o, "sequence_hashes"), v->chain, BLOCKS_MAX);
    v->lora = member(o, "lora");
    v->salt = member(o, "salt");
}

static void check_vector(const struct vector *v)
{
    uint64_t local[BLOCKS_MAX], chain[BLOCKS_MAX];
    size_t n = wp_hash_tokens(v->token, v->tokens, v->block_size, wp_hash_seed(v->lora, v->salt),
                              local, BLOCKS_MAX);

    EXPECT_UINT("blocks", v->blocks, n);
    wp_hash_chain(local, n, chain);
    for (size_t i = 0; i < n && i < v->blocks; i++) {
        EXPECT_UINT("local hash", v->local[i], local[i]);
        EXPECT_UINT("block hash", v->chain[i], chain[i]);
    }
}

static void the_hashes_are_dynamos(void)
{
    size_t n = 0;
    char *text = wp_test_data("spec/hash_vectors.json", &n);
    json_t *root = text ? json_loadb(text, n, 0, NULL) : NULL;
    const json_t *vectors = json_object_get(root, "dynamo");

    EXPECT_UINT("vectors: plain, adapter, salt, both", 4, json_array_size(vectors));
    for (size_t i = 0; i < json_array_size(vectors); i++) {
        struct vector v;

        read_vector(json_array_get(vectors, i), &v);
        EXPECT_TRUE("a vector has blocks", v.blocks > 0);
        check_vector(&v);
    }
    json_decref(root);
    wp_free(text);
}

static void an_absent_name_and_an_empty_one_add_nothing_to_the_seed(void)
{
    struct wp_str absent = {0};

    EXPECT_UINT("absent", 1337, wp_hash_seed(absent, absent));
    EXPECT_UINT("empty", 1337, wp_hash_seed(WP_STR(""), WP_STR("")));
    EXPECT_TRUE("adapter and salt do not stand for each other",
                wp_hash_seed(WP_STR("a"), absent) != wp_hash_seed(absent, WP_STR("a")));
    EXPECT_UINT("both are added, wrapping",
                wp_hash_seed(WP_STR("a"), absent) + wp_hash_seed(absent, WP_STR("b")) - 1337,
                wp_hash_seed(WP_STR("a"), WP_STR("b")));
}

static void a_partial_tail_has_no_name(void)
{
    static const struct {
        const char *label;
        size_t tokens;
        uint32_t block_size;
        size_t cap, want;
    } cases[] = {
        {"none", 0, 16, 8, 0},           {"one short of a block", 15, 16, 8, 0},
        {"a whole block", 16, 16, 8, 1}, {"a block and a tail", 31, 16, 8, 1},
        {"two blocks", 32, 16, 8, 2},    {"more than there is room for", 64, 16, 3, 3},
        {"no room", 64, 16, 0, 0},       {"blocks of one token", 5, 1, 8, 5},
        {"no block size", 64, 0, 8, 0},
    };
    uint32_t token[64];
    char text[64];
    uint64_t local[8];

    for (uint32_t i = 0; i < 64; i++)
        token[i] = i;
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_str s = {text, cases[i].tokens};

        EXPECT_UINT(
            cases[i].label, cases[i].want,
            wp_hash_tokens(token, cases[i].tokens, cases[i].block_size, 1337, local, cases[i].cap));
        EXPECT_UINT(cases[i].label, cases[i].want,
                    wp_hash_bytes(s, cases[i].block_size, 1337, local, cases[i].cap));
    }
}

static void an_engine_never_serves_the_last_token_from_cache(void)
{
    static const struct {
        size_t tokens;
        uint32_t block_size;
        size_t want;
    } cases[] = {{0, 16, 0},  {1, 16, 0},  {16, 16, 0}, {17, 16, 1},
                 {32, 16, 1}, {33, 16, 2}, {5, 1, 4},   {9, 0, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        EXPECT_UINT("usable blocks", cases[i].want,
                    wp_usable_blocks(cases[i].tokens, cases[i].block_size));
}

/* What the header says, byte by byte. */
static uint64_t packed(const uint32_t token[], size_t n, const uint64_t sorted[], size_t k,
                       uint64_t seed)
{
    unsigned char bytes[2048];
    size_t at = 0;

    for (size_t i = 0; i < n; i++)
        for (int b = 0; b < 4; b++)
            bytes[at++] = (unsigned char)(token[i] >> (8 * b));
    for (size_t i = 0; i < k; i++)
        for (int b = 0; b < 8; b++)
            bytes[at++] = (unsigned char)(sorted[i] >> (8 * b));
    return XXH3_64bits_withSeed(bytes, at, seed);
}

static void items_of_a_block_are_appended_sorted(void)
{
    uint32_t token[256];
    uint64_t item[3] = {UINT64_MAX, 0, 77}, sorted[3] = {0, 77, UINT64_MAX}, one;

    for (uint32_t i = 0; i < 256; i++)
        token[i] = i * 0x01020304u;
    EXPECT_UINT("three", packed(token, 16, sorted, 3, 9),
                wp_hash_block_items(token, 16, 9, item, 3));
    for (size_t i = 0; i < 3; i++)
        EXPECT_UINT("sorted in place", sorted[i], item[i]);
    EXPECT_UINT("a block larger than a slice", packed(token, 256, sorted, 3, 9),
                wp_hash_block_items(token, 256, 9, item, 3));
    wp_hash_tokens(token, 16, 16, 9, &one, 1);
    EXPECT_UINT("none is a plain block", one, wp_hash_block_items(token, 16, 9, NULL, 0));
}

static void an_item_named_by_text_is_its_hash(void)
{
    EXPECT_UINT("text", XXH3_64bits_withSeed("cat.png", 7, 0), wp_hash_item(WP_STR("cat.png")));
    EXPECT_UINT("empty", XXH3_64bits_withSeed("", 0, 0), wp_hash_item((struct wp_str){0}));
}

static void a_chain_may_be_made_in_place_and_is_its_links(void)
{
    uint64_t local[4] = {0, 5, 5, UINT64_MAX}, chain[4];

    wp_hash_chain(local, 4, chain);
    EXPECT_UINT("the first is its local hash", 0, chain[0]);
    EXPECT_UINT("a link", wp_hash_next(chain[1], 5), chain[2]);
    EXPECT_TRUE("equal blocks at two places have two names", chain[1] != chain[2]);
    wp_hash_chain(local, 4, local);
    EXPECT_TRUE("in place", memcmp(local, chain, sizeof chain) == 0);
    wp_hash_chain(NULL, 0, NULL);
}

static void chunks_of_bytes_are_hashed_whole(void)
{
    uint64_t local[2];

    EXPECT_UINT("chunks", 2, wp_hash_bytes(WP_STR("abcdefgh?"), 4, 11, local, 2));
    EXPECT_UINT("first", XXH3_64bits_withSeed("abcd", 4, 11), local[0]);
    EXPECT_UINT("second", XXH3_64bits_withSeed("efgh", 4, 11), local[1]);
}

const struct wp_suite suite_identity = {
    "identity",
    (const struct wp_test[]){
        {"the hashes are Dynamo's", the_hashes_are_dynamos},
        {"an absent name and an empty one add nothing to the seed",
         an_absent_name_and_an_empty_one_add_nothing_to_the_seed},
        {"a partial tail has no name", a_partial_tail_has_no_name},
        {"an engine never serves the last token from cache",
         an_engine_never_serves_the_last_token_from_cache},
        {"items of a block are appended sorted", items_of_a_block_are_appended_sorted},
        {"an item named by text is its hash", an_item_named_by_text_is_its_hash},
        {"a chain may be made in place and is its links",
         a_chain_may_be_made_in_place_and_is_its_links},
        {"chunks of bytes are hashed whole", chunks_of_bytes_are_hashed_whole},
        {NULL, NULL},
    },
};
