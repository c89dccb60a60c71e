/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/payload.h"

#include "base/err.h"

static const char *const media[] = {"GPU", "CPU", "STORAGE"};

/* Remembers its first failure, as sim/put.h does. */
struct pack {
    struct wp_buf *b;
    const struct wp_payload_conf *conf;
    int rc;
};

static void raw(struct pack *o, const void *p, size_t n)
{
    if (o->rc == 0)
        o->rc = wp_buf_add(o->b, p, n);
}

/* A first byte, and n as big-endian bytes behind it. */
static void head(struct pack *o, unsigned char first, uint64_t n, size_t bytes)
{
    unsigned char out[9] = {first};

    for (size_t i = bytes; i > 0; i--, n >>= 8)
        out[i] = (unsigned char)n;
    raw(o, out, bytes + 1);
}

static void nil(struct pack *o)
{
    head(o, 0xc0, 0, 0);
}

static void uint(struct pack *o, uint64_t x)
{
    if (x < 0x80)
        head(o, (unsigned char)x, 0, 0);
    else if (x <= UINT8_MAX)
        head(o, 0xcc, x, 1);
    else if (x <= UINT16_MAX)
        head(o, 0xcd, x, 2);
    else if (x <= UINT32_MAX)
        head(o, 0xce, x, 4);
    else
        head(o, 0xcf, x, 8);
}

static void number(struct pack *o, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    head(o, 0xcb, bits, 8);
}

static void text(struct pack *o, const char *s)
{
    size_t n = strlen(s);

    if (n < 32)
        head(o, (unsigned char)(0xa0 | n), 0, 0);
    else if (n <= UINT8_MAX)
        head(o, 0xd9, n, 1);
    else if (n <= UINT16_MAX)
        head(o, 0xda, n, 2);
    else
        head(o, 0xdb, n, 4);
    raw(o, s, n);
}

static void array(struct pack *o, size_t n)
{
    if (n < 16)
        head(o, (unsigned char)(0x90 | n), 0, 0);
    else if (n <= UINT16_MAX)
        head(o, 0xdc, n, 2);
    else
        head(o, 0xdd, n, 4);
}

static void map(struct pack *o, size_t n) /* of our own fields: fewer than 16 */
{
    head(o, (unsigned char)(0x80 | n), 0, 0);
}

static void key(struct pack *o, const char *name) /* arrays have no names */
{
    if (!o->conf->as_array)
        text(o, name);
}

static void hash(struct pack *o, uint64_t h)
{
    if (!o->conf->hash_bytes) {
        uint(o, h);
        return;
    }
    head(o, 0xc4, 32, 1);
    for (uint64_t i = 3; i > 0; i--)
        for (int shift = 56; shift >= 0; shift -= 8)
            raw(o, &(unsigned char){(unsigned char)(wp_blocks_hash(i, h) >> shift)}, 1);
    for (int shift = 56; shift >= 0; shift -= 8)
        raw(o, &(unsigned char){(unsigned char)(h >> shift)}, 1);
}

static void text_or_nil(struct pack *o, const char *s)
{
    if (s)
        text(o, s);
    else
        nil(o);
}

static void open_event(struct pack *o, const char *tag, size_t members)
{
    if (o->conf->as_array)
        array(o, members);
    else
        map(o, members);
    key(o, "type");
    text(o, tag);
}

static void hashes(struct pack *o, const struct wp_change change[], size_t n)
{
    key(o, "block_hashes");
    array(o, n);
    for (size_t i = 0; i < n; i++)
        hash(o, change[i].block->hash);
}

static void extra_keys(struct pack *o, const struct wp_change change[], size_t n)
{
    key(o, "extra_keys");
    array(o, n);
    for (size_t i = 0; i < n; i++) {
        const struct wp_block *b = change[i].block;

        if (!b->adapter && !b->salt) {
            nil(o);
            continue;
        }
        array(o, (size_t)(b->adapter != NULL) + (b->salt != NULL));
        if (b->adapter)
            text(o, b->adapter);
        if (b->salt)
            text(o, b->salt);
    }
}

static void tokens(struct pack *o, const struct wp_change change[], size_t n)
{
    uint32_t size = o->conf->block_size;

    key(o, "token_ids");
    array(o, n * size);
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < size; k++)
            uint(o, change[i].block->token[k]);
}

/* Eleven keys, or the twelve elements of which the last is a window that there is not. */
static void stored(struct pack *o, const struct wp_change change[], size_t n)
{
    const struct wp_block *first = change[0].block;

    open_event(o, "BlockStored", o->conf->as_array ? 12 : 11);
    hashes(o, change, n);
    key(o, "parent_block_hash");
    if (first->root)
        nil(o);
    else
        hash(o, first->parent_hash);
    tokens(o, change, n);
    key(o, "block_size");
    uint(o, o->conf->block_size);
    key(o, "lora_id");
    if (first->adapter)
        uint(o, first->adapter_id);
    else
        nil(o);
    key(o, "medium");
    text(o, media[change[0].tier]);
    key(o, "lora_name");
    text_or_nil(o, first->adapter);
    extra_keys(o, change, n);
    key(o, "group_idx");
    uint(o, 0);
    key(o, "kv_cache_spec_kind");
    text(o, "full_attention");
    if (o->conf->as_array)
        nil(o);
}

static void stored_by_hash(struct pack *o, const struct wp_change change[], size_t n)
{
    open_event(o, "BlockStored", o->conf->as_array ? 12 : 8);
    hashes(o, change, n);
    key(o, "parent_block_hash");
    nil(o);
    key(o, "token_ids");
    array(o, 0);
    key(o, "block_size");
    uint(o, 0);
    key(o, "lora_id");
    nil(o);
    key(o, "medium");
    text(o, media[change[0].tier]);
    key(o, "lora_name");
    nil(o);
    for (int i = 0; o->conf->as_array && i < 4; i++)
        nil(o);
}

static bool by_hash(const struct wp_payload_conf *conf, const struct wp_change *c)
{
    return conf->tier_only && c->tier > 0;
}

static void removed(struct pack *o, const struct wp_change *c)
{
    bool group = !by_hash(o->conf, c);

    open_event(o, "BlockRemoved", o->conf->as_array || group ? 4 : 3);
    hashes(o, c, 1);
    key(o, "medium");
    text(o, media[c->tier]);
    if (group)
        key(o, "group_idx");
    if (group)
        uint(o, 0);
    else if (o->conf->as_array)
        nil(o);
}

/* How many of change[n] become one event with the first. */
static size_t run_of(const struct wp_payload_conf *conf, const struct wp_change change[], size_t n)
{
    size_t k = 1;

    while (change[0].kind == WP_STORED && k < n && change[k].kind == WP_STORED &&
           change[k].tier == change[0].tier) {
        const struct wp_block *last = change[k - 1].block, *next = change[k].block;

        if (!by_hash(conf, &change[0]) &&
            (next->root || next->parent != last->chain || next->adapter != last->adapter))
            break;
        k++;
    }
    return k;
}

int wp_payload_write(struct wp_buf *out, const struct wp_payload_conf *conf, double ts,
                     const struct wp_change change[], size_t n)
{
    struct pack o = {out, conf, 0};
    size_t events = 0, k;

    for (size_t i = 0; i < n; i += run_of(conf, change + i, n - i))
        events++;
    array(&o, 3);
    number(&o, ts);
    array(&o, events);
    for (size_t i = 0; i < n; i += k) {
        k = run_of(conf, change + i, n - i);
        if (change[i].kind == WP_CLEARED)
            open_event(&o, "AllBlocksCleared", 1);
        else if (change[i].kind == WP_REMOVED)
            removed(&o, &change[i]);
        else if (by_hash(conf, &change[i]))
            stored_by_hash(&o, change + i, k);
        else
            stored(&o, change + i, k);
    }
    uint(&o, conf->rank);
    return o.rc;
}
