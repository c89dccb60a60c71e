/* SPDX-License-Identifier: Apache-2.0 */
/* The payloads of the simulated engine's KV events, byte for byte those that running vLLM engines
 * sent. */
#include "base/mem.h"
#include "sim/payload.h"
#include "tests/lib/kvfeed.h"
#include "tests/lib/test.h"

#include <stdlib.h>

enum { MOST = 256 };

struct rebuilt { /* a captured batch, as changes */
    struct wp_change change[MOST];
    struct wp_block *block[MOST];
    size_t n;
    struct wp_payload_conf conf;
    bool strange; /* it has what this engine never writes */
};

static const json_t *member(const struct rebuilt *r, const json_t *e, const char *name, size_t at)
{
    return r->conf.as_array ? json_array_get(e, at) : json_object_get(e, name);
}

static struct wp_block *add(struct rebuilt *r, enum wp_change_kind kind)
{
    struct wp_block *b = wp_calloc(1, sizeof *b + r->conf.block_size * sizeof b->token[0]);

    r->block[r->n] = b;
    r->change[r->n++] = (struct wp_change){kind, 0, b};
    return b;
}

static uint64_t number(const json_t *v)
{
    return (uint64_t)json_integer_value(v);
}

static void rebuild_stored(struct rebuilt *r, const json_t *e)
{
    const json_t *hashes = member(r, e, "block_hashes", 1),
                 *parent = member(r, e, "parent_block_hash", 2),
                 *ids = member(r, e, "token_ids", 3), *keys = member(r, e, "extra_keys", 8);
    uint64_t last = number(parent);
    bool root = json_is_null(parent);

    r->strange |= !r->conf.as_array && json_object_size(e) != 11;
    for (size_t i = 0; i < json_array_size(hashes) && r->n < MOST; i++) {
        struct wp_block *b = add(r, WP_STORED);
        const char *salt;

        b->hash = b->chain = number(json_array_get(hashes, i));
        b->parent = b->parent_hash = last;
        b->root = root;
        b->adapter = json_string_value(member(r, e, "lora_name", 7));
        b->adapter_id = (uint32_t)number(member(r, e, "lora_id", 5));
        salt = json_string_value(json_array_get(json_array_get(keys, i), b->adapter != NULL));
        b->salt = salt ? wp_strdup(salt) : NULL;
        for (size_t k = 0; k < r->conf.block_size; k++)
            b->token[k] = (uint32_t)number(json_array_get(ids, i * r->conf.block_size + k));
        last = b->hash;
        root = false;
    }
}

static void rebuild(struct rebuilt *r, const json_t *batch)
{
    json_t *e;
    size_t i;

    r->conf.rank = (uint32_t)number(json_array_get(batch, 2));
    json_array_foreach(json_array_get(batch, 1), i, e)
    {
        const char *tag = json_string_value(member(r, e, "type", 0));

        if (r->n == MOST)
            return;
        if (strcmp(tag, "BlockStored") == 0)
            rebuild_stored(r, e);
        else if (strcmp(tag, "BlockRemoved") == 0)
            add(r, WP_REMOVED)->hash = number(json_array_get(member(r, e, "block_hashes", 1), 0));
        else
            r->change[r->n++] = (struct wp_change){.kind = WP_CLEARED};
    }
}

static void drop(struct rebuilt *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->block[i])
            wp_free(r->block[i]->salt);
        wp_free(r->block[i]);
    }
}

static size_t from_base64(const char *text, unsigned char out[])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    size_t n = 0;
    int have = 0;

    for (; *text && *text != '='; text++) {
        bits = bits << 6 | (uint32_t)(strchr(letters, *text) - letters);
        have += 6;
        if (have >= 8)
            out[n++] = (unsigned char)(bits >> (have -= 8));
    }
    return n;
}

/* Returns whether the line was one that this engine could have written. */
static bool check_line(struct wp_str line, bool as_array, uint32_t block_size)
{
    json_t *v = json_loadb(line.p, line.n, 0, NULL), *batch;
    const char *text = json_string_value(json_array_get(json_object_get(v, "frames"), 2));
    struct rebuilt r = {.conf = {.as_array = as_array, .block_size = block_size}};
    unsigned char *bytes = wp_malloc(text ? strlen(text) + 1 : 1);
    size_t n = text ? from_base64(text, bytes) : 0;
    struct wp_buf out = {0};

    if (text) {
        batch = kv_msgpack(bytes, n);
        EXPECT_TRUE("it can be read", batch != NULL);
        rebuild(&r, batch);
        EXPECT_INT("written", 0,
                   wp_payload_write(&out, &r.conf, json_real_value(json_array_get(batch, 0)),
                                    r.change, r.n));
        if (!r.strange)
            EXPECT_TRUE("the same bytes", out.n == n && memcmp(out.p, bytes, n) == 0);
        json_decref(batch);
    }
    json_decref(v);
    drop(&r);
    wp_free(bytes);
    wp_buf_fini(&out);
    return text && !r.strange;
}

static void writes_the_bytes_that_vllm_wrote(void)
{
    static const struct {
        const char *path;
        bool as_array;
        uint32_t block_size;
        size_t want;
    } files[] = {
        {"spec/real/vllm_0.32.0_events.jsonl", false, 32, 60},
        {"spec/real/vllm_0.23.0_events.jsonl", true, 16, 60},
        {"spec/real/vllm_0.32.0_lora_events.jsonl", false, 32, 5},
        {"spec/real/vllm_0.32.0_dp2_events.jsonl", false, 32, 3},
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t n, same = 0;
        char *text = wp_test_data(files[i].path, &n);
        struct wp_str rest = {text, text ? n : 0}, line;

        while (wp_str_split(&rest, '\n', &line))
            same += check_line(line, files[i].as_array, files[i].block_size);
        EXPECT_TRUE(files[i].path, same >= files[i].want);
        wp_free(text);
    }
}

static void lower_tiers_by_hash_and_binary_hashes(void)
{
    struct wp_block b = {.hash = 0x0102030405060708, .root = true};
    const struct wp_change change[] = {
        {WP_STORED, 1, &b}, {WP_STORED, 1, &b}, {WP_REMOVED, 2, &b}, {WP_CLEARED, 0, NULL}};
    static const struct wp_payload_conf confs[] = {
        {.tier_only = true}, {.tier_only = true, .as_array = true, .hash_bytes = true}};

    for (size_t i = 0; i < 2; i++) {
        struct wp_buf out = {0};
        json_t *v, *events, *e;

        EXPECT_INT("written", 0, wp_payload_write(&out, &confs[i], 1.5, change, 4));
        EXPECT_TRUE("32 bytes each", !confs[i].hash_bytes || memmem(out.p, out.n, "\xc4\x20", 2));
        v = kv_msgpack((const unsigned char *)out.p, out.n);
        events = json_array_get(v, 1);
        EXPECT_UINT("two stores are one", 3, json_array_size(events));
        e = json_array_get(events, 0);
        EXPECT_UINT("members", i ? 12 : 8, i ? json_array_size(e) : json_object_size(e));
        EXPECT_UINT("the number is in the last eight", b.hash,
                    number(json_array_get(
                        i ? json_array_get(e, 1) : json_object_get(e, "block_hashes"), 1)));
        EXPECT_TEXT(
            "medium", "CPU",
            wp_str_of(json_string_value(i ? json_array_get(e, 6) : json_object_get(e, "medium"))));
        e = json_array_get(events, 1);
        EXPECT_TEXT(
            "medium", "STORAGE",
            wp_str_of(json_string_value(i ? json_array_get(e, 2) : json_object_get(e, "medium"))));
        json_decref(v);
        wp_buf_fini(&out);
    }
}

static void blocks_live_while_somebody_refers_to_them(void)
{
    static const uint32_t token[] = {1, 2};
    struct wp_blocks all = {.block_size = 2, .secret = 5};
    struct wp_block_facts facts = {NULL, 0, WP_STR("salt")};
    uint64_t parent = 7;
    struct wp_block *a = wp_blocks_get(&all, 7, NULL, 7, token, &facts),
                    *b = wp_blocks_get(&all, 8, &parent, 9, token, &facts);

    EXPECT_TRUE("the same again",
                wp_blocks_get(&all, 7, NULL, 7, token, &facts) == a && a->refs == 2);
    EXPECT_TEXT("a root has the salt", "salt", wp_str_of(a->salt));
    EXPECT_TRUE("others have none", b->salt == NULL && b->parent_hash == a->hash && !b->root);
    wp_block_unref(&all, a);
    EXPECT_TRUE("still there", wp_blocks_find(&all, 7) == a);
    wp_block_unref(&all, a);
    EXPECT_TRUE("gone", wp_blocks_find(&all, 7) == NULL);
    EXPECT_TRUE("another secret, another hash", wp_blocks_hash(5, 7) != wp_blocks_hash(6, 7));
    wp_blocks_fini(&all); /* b, too */
}

static void a_block_that_memory_is_short_for_is_not_there(void)
{
    static const uint32_t token[] = {1, 2};
    struct wp_block_facts facts = {NULL, 0, WP_STR("salt")};
    long live = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_blocks all = {.block_size = 2};
        struct wp_block *b;

        wp_mem_fail_after(nth);
        b = wp_blocks_get(&all, 7, NULL, 7, token, &facts);
        EXPECT_TRUE("it is there or not", b == wp_blocks_find(&all, 7));
        wp_blocks_fini(&all);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        if (!wp_mem_failed())
            break;
        EXPECT_TRUE("told", b == NULL);
    }
    wp_mem_fail_after(-1);
}

static const struct wp_test tests[] = {
    {"writes the bytes that vLLM wrote", writes_the_bytes_that_vllm_wrote},
    {"lower tiers by hash, and binary hashes", lower_tiers_by_hash_and_binary_hashes},
    {"blocks live while somebody refers to them", blocks_live_while_somebody_refers_to_them},
    {"a block that memory is short for is not there",
     a_block_that_memory_is_short_for_is_not_there},
    {NULL, NULL},
};
const struct wp_suite suite_simpayload = {"simpayload", tests};
