/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/extra.h"

#include "base/mem.h"
#include "index/identity.h"
#include "tests/lib/bytes.h"
#include "tests/lib/test.h"

/* What wp_extra.h says of the store-th store of a payload, as one line. */
static void describe(struct wp_str payload, size_t store, struct wp_buf *out)
{
    struct wp_event_scratch s = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_extra_names names;
    struct wp_extra_walk x;
    struct wp_extra block;
    struct wp_event_batch b;
    struct wp_event e;

    wp_event_open(&b, payload, &err);
    while (wp_event_next(&b, &s, &e) > 0 && (e.kind != WP_EVENT_STORED || store--))
        ;
    wp_extra_names(&e, &names);
    wp_buf_printf(out, "lora=" WP_STR_FMT " salt=" WP_STR_FMT "%s%s%s", WP_STR_ARG(names.lora),
                  WP_STR_ARG(names.salt), names.numbered ? " numbered" : "",
                  names.items ? " items" : "", names.opaque ? " opaque" : "");
    wp_extra_begin(&x, &e);
    for (size_t n = 0; wp_extra_next(&x, &block); n++) {
        EXPECT_TRUE("no more than there are", n < e.n);
        wp_buf_adds(out, block.opaque ? " | ?" : " |");
        for (size_t i = 0; i < block.n; i++) {
            EXPECT_UINT("the item's hash", wp_hash_item(block.item[i].id), block.item[i].hash);
            wp_buf_printf(out, " " WP_STR_FMT, WP_STR_ARG(block.item[i].id));
            if (block.item[i].placed)
                wp_buf_printf(out, "@%lld", (long long)block.item[i].offset);
        }
    }
    wp_event_scratch_fini(&s);
}

static void what_names_blocks_beside_tokens_is_told(void)
{
    /* clang-format off */
    static const struct { const char *file; size_t store; const char *want; } cases[] = {
        {"spec/vllm_arr_v09_stored.msgpack", 0, "lora= salt= | |"},
        {"spec/vllm_arr_lora_id.msgpack", 0, "lora= salt= numbered |"},
        {"spec/vllm_arr_lora_name.msgpack", 0, "lora=sql-expert-v3 salt= | |"},
        {"spec/vllm_arr_extra_keys_bare.msgpack", 0, "lora= salt=tenant-7 items | mm-a1b2c3 |"},
        {"spec/vllm_arr_extra_keys_pairs.msgpack", 0, "lora=sql-expert-v3 salt= items | 9f86d081884c7d65@2 | 9f86d081884c7d65@-2"},
        {"spec/vllm_map_all_fields.msgpack", 0, "lora= salt=tenant-7 |"},
        {"spec/vllm_map_extra_keys_mixed.msgpack", 0, "lora=sql-expert-v3 salt=salt-9 items opaque | ? c0ffee00@3 |"},
        {"spec/vllm_map_typed_extra_keys.msgpack", 0, "lora=sql-expert-v3 salt=salt-9 | |"},
        {"spec/sglang_arr_salt.msgpack", 0, "lora= salt=tenant-7 | |"},
        {"spec/sglang_map_lora.msgpack", 0, "lora=sql-expert-v3 salt= | |"},
        {"spec/trtllm_map_mm.msgpack", 0, "lora= salt= items | | 5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f@0"},
        {"fuzz/kv_event/case_B142", 0, "lora= salt= | | | |"},
        {"fuzz/kv_event/case_B142", 1, "lora= salt=salt-1 | |"},
        {"fuzz/kv_event/case_B142", 2, "lora= salt=s |"},
        {"fuzz/kv_event/case_B223", 0, "lora= salt= items | | 9f2c7a10aa51@0"},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_buf got = {0};
        size_t n = 0;
        char *p = wp_test_data(cases[i].file, &n);

        describe((struct wp_str){p, n}, cases[i].store, &got);
        EXPECT_TEXT(cases[i].file, cases[i].want, wp_buf_str(&got));
        wp_buf_fini(&got);
        wp_free(p);
    }
}

/* [0.0, [{type, one or two hashes, parent, tokens, block size, extra_keys}]]; keys: MessagePack in
 * hex. */
static void with_keys(const char *keys, bool parent, struct wp_buf *got)
{
    static const char *const stored =
        "93cb00000000000000009188a474797065ab426c6f636b53746f726564"
        "ac626c6f636b5f686173686573920102"
        "a9746f6b656e5f6964739405060708"
        "aa626c6f636b5f73697a6502a96c6f72615f6e616d65a26c31a76c6f72615f6964c0"
        "b1706172656e745f626c6f636b5f68617368";
    struct wp_buf hex = {0};
    size_t n;
    char *p;

    wp_buf_printf(&hex, "%s%saa65787472615f6b657973%sc0", stored, parent ? "09" : "c0", keys);
    p = wp_test_hex(wp_buf_str(&hex), &n);
    EXPECT_TRUE("hex", p);
    if (p)
        describe((struct wp_str){p, n}, 0, got);
    wp_free(p);
    wp_buf_fini(&hex);
}

static void keys_not_understood_make_a_block_opaque(void)
{
    /* clang-format off */
    static const struct { const char *label, *keys; bool parent; const char *want; } cases[] = { /* adapter "l1" */
        {"none",                          "c0", 0, "lora=l1 salt= | |"},
        {"nils",                          "92c0c0", 0, "lora=l1 salt= | |"},
        {"the adapter in each",           "9291a26c3191a26c31", 0, "lora=l1 salt= | |"},
        {"adapter and salt",              "9292a26c31a173c0", 0, "lora=l1 salt=s | |"},
        {"not the first block of all",    "9292a26c31a173c0", 1, "lora=l1 salt= items | s |"},
        {"an identifier later",           "92c091a16d", 0, "lora=l1 salt= items | | m"},
        {"item, then salt",               "929292a16d03a173c0", 0, "lora=l1 salt=s items | m@3 |"},
        {"bare items, then salt",         "9293a16da16ea173c0", 0, "lora=l1 salt=s items | m n |"},
        {"an item told twice is one",     "929292a16d0392a16d03c0", 0, "lora=l1 salt= items | m@3 |"},
        {"one item at two places",        "929292a16d0392a16d04c0", 0, "lora=l1 salt= items | m@3 m@4 |"},
        {"an entry too few",              "91c0", 0, "lora=l1 salt= opaque | ? | ?"},
        {"an entry too many",             "93c0c0c0", 0, "lora=l1 salt= opaque | ? | ?"},
        {"no list",                       "92a173c0", 0, "lora=l1 salt= opaque | ? |"},
        {"a number",                      "929107c0", 0, "lora=l1 salt= opaque | ? |"},
        {"embeddings",                    "92c091c40101", 0, "lora=l1 salt= opaque | | ?"},
        {"a pair of texts",               "929192a16da16ec0", 0, "lora=l1 salt= opaque | ? |"},
        {"a pair with a boolean",         "929192a16dc3c0", 0, "lora=l1 salt= opaque | ? |"},
        {"a triple",                      "929193a16d0304c0", 0, "lora=l1 salt= opaque | ? |"},
        {"no identifier",                 "929192a003c0", 0, "lora=l1 salt= opaque | ? |"},
        {"a place past 63 bits",          "929192a16dcfffffffffffffffffc0", 0, "lora=l1 salt= opaque | ? |"},
        {"an unknown type",               "929181a474797065a178c0", 0, "lora=l1 salt= opaque | ? |"},
        {"another adapter",               "929182a474797065a46c6f7261a46e616d65a26c32c0", 0, "lora=l1 salt= opaque | |"},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_buf got = {0};

        with_keys(cases[i].keys, cases[i].parent, &got);
        EXPECT_TEXT(cases[i].label, cases[i].want, wp_buf_str(&got));
        wp_buf_fini(&got);
    }
}

static const struct wp_test tests[] = {
    {"what names blocks beside tokens is told", what_names_blocks_beside_tokens_is_told},
    {"keys not understood make a block opaque", keys_not_understood_make_a_block_opaque},
    {NULL, NULL},
};
const struct wp_suite suite_extra = {"extra", tests};
