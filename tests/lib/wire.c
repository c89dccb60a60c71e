/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/wire.h"

#include "base/mem.h"

#include <stdlib.h>

struct out {
    char *p;
    size_t n, cap;
};

static void put(struct out *o, const void *p, size_t n)
{
    if (o->n + n > o->cap) {
        o->cap = (o->n + n) * 2;
        o->p = wp_realloc(o->p, o->cap);
        if (!o->p)
            abort();
    }
    memcpy(o->p + o->n, p, n);
    o->n += n;
}

static void put_number(struct out *o, uint8_t head, uint64_t v, size_t width)
{
    uint8_t b[9] = {head};

    for (size_t i = 0; i < width; i++)
        b[width - i] = (uint8_t)(v >> (8 * i));
    put(o, b, width + 1);
}

static void put_text(struct out *o, const char *s)
{
    put_number(o, 0xD9, strlen(s), 1);
    put(o, s, strlen(s));
}

static void put_uint(struct out *o, uint64_t v)
{
    put_number(o, 0xCF, v, 8);
}

static void put_nil(struct out *o)
{
    put(o, "\xC0", 1);
}

static void put_tokens(struct out *o, const struct wp_wire_event *e)
{
    if (!e->token) {
        put_nil(o);
        return;
    }
    put_number(o, 0xDD, e->n_tokens - e->pairs, 4);
    for (size_t i = 0; i < e->n_tokens - e->pairs; i++) {
        if (e->pairs)
            put(o, "\x92", 1);
        put_number(o, 0xCE, e->token[i], 4);
        if (e->pairs)
            put_number(o, 0xCE, e->token[i + 1], 4);
    }
}

static void put_event(struct out *o, const struct wp_wire_event *e)
{
    static const char *const tag[] = {"BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"};
    const struct {
        const char *key, *text;
    } texts[] = {{"medium", e->medium},
                 {"lora_name", e->lora},
                 {"cache_salt", e->salt},
                 {"kv_cache_spec_kind", e->spec_kind}};
    struct out body = {0};
    uint32_t pairs = 1;

    put_text(&body, "block_hashes");
    put_number(&body, 0xDD, e->n, 4);
    for (size_t i = 0; i < e->n; i++)
        put_uint(&body, e->hash[i]);
    put_text(&body, "parent_block_hash");
    if (e->parent)
        put_uint(&body, *e->parent);
    else
        put_nil(&body);
    put_text(&body, "token_ids");
    put_tokens(&body, e);
    put_text(&body, "block_size");
    put_uint(&body, e->block_size);
    put_text(&body, "lora_id");
    if (e->lora_id)
        put_uint(&body, (uint64_t)e->lora_id);
    else
        put_nil(&body);
    pairs += 5;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].text) {
            put_text(&body, texts[i].key);
            put_text(&body, texts[i].text);
            pairs++;
        }
    if (e->group) {
        put_text(&body, "group_idx");
        put_uint(&body, *e->group);
        pairs++;
    }
    if (e->window) {
        put_text(&body, "kv_cache_spec_sliding_window");
        put_uint(&body, e->window);
        pairs++;
    }
    if (e->extra.p) {
        put_text(&body, "extra_keys");
        put(&body, e->extra.p, e->extra.n);
        pairs++;
    }
    put_number(o, 0xDE, pairs, 2);
    put_text(o, "type");
    put_text(o, tag[e->kind]);
    put(o, body.p, body.n);
    wp_free(body.p);
}

char *wp_wire_batch(const struct wp_wire_event e[], size_t n, size_t *bytes)
{
    struct out o = {0};

    put(&o, "\x92", 1);
    put_uint(&o, 1);
    put_number(&o, 0xDC, n, 2);
    for (size_t i = 0; i < n; i++)
        put_event(&o, &e[i]);
    *bytes = o.n;
    return o.p;
}
