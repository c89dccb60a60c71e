/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/event_json.h"

#include "adapters/events/decode.h"

#include <inttypes.h>
#include <stdlib.h>

static json_t *text(struct wp_str s)
{
    return s.p ? json_stringn(s.p, s.n) : json_null();
}

static json_t *number(bool has, int64_t v)
{
    return has ? json_integer(v) : json_null();
}

static json_t *hex(struct wp_str s)
{
    char *p = malloc(2 * s.n + 1);
    json_t *v;

    for (size_t i = 0; p && i < s.n; i++)
        snprintf(p + 2 * i, 3, "%02x", (uint8_t)s.p[i]);
    v = p ? json_stringn(p, 2 * s.n) : NULL;
    free(p);
    return v;
}

static json_t *decimal(uint64_t v)
{
    return json_sprintf("%" PRIu64, v);
}

/* A value in an opaque list; the fixtures have no floats, extensions or keys other than texts
 * there. */
static json_t *any_value(struct wp_msgpack_in *in)
{
    struct wp_msgpack v, key;
    json_t *out;

    (void)wp_msgpack_read(in, &v);
    switch (v.kind) {
    case WP_MSGPACK_NIL:
        return json_null();
    case WP_MSGPACK_FALSE:
    case WP_MSGPACK_TRUE:
        return json_boolean(v.kind == WP_MSGPACK_TRUE);
    case WP_MSGPACK_UINT:
    case WP_MSGPACK_INT:
        return json_integer((json_int_t)v.u);
    case WP_MSGPACK_FLOAT:
        return json_real(v.d);
    case WP_MSGPACK_STR:
        return text(v.bytes);
    case WP_MSGPACK_BIN:
        return json_pack("{s:o}", "bin", hex(v.bytes));
    case WP_MSGPACK_ARRAY:
        out = json_array();
        for (uint64_t i = 0; i < v.u; i++)
            json_array_append_new(out, any_value(in));
        return out;
    case WP_MSGPACK_MAP:
        out = json_object();
        for (uint64_t i = 0; i < v.u; i++) {
            (void)wp_msgpack_read(in, &key);
            json_object_setn_new(out, key.bytes.p, key.bytes.n, any_value(in));
        }
        return out;
    default:
        return NULL;
    }
}

static json_t *opaque(struct wp_str list, bool raw)
{
    struct wp_msgpack_in in = wp_msgpack_in(list);

    return !list.p ? json_null() : raw ? hex(list) : any_value(&in);
}

static json_t *hashes(const struct wp_event *e)
{
    json_t *out = json_array();

    for (size_t i = 0; i < e->n; i++)
        json_array_append_new(out, decimal(e->hash[i]));
    return out;
}

/* null when no hash is binary, else the bytes of each that is. */
static json_t *hash_bytes(const struct wp_event *e)
{
    struct wp_msgpack_in in = wp_msgpack_in(e->hashes);
    struct wp_msgpack v;
    json_t *out;

    if (!e->binary)
        return json_null();
    out = json_array();
    (void)wp_msgpack_read(&in, &v);
    for (size_t i = 0; i < e->n; i++) {
        (void)wp_msgpack_read(&in, &v);
        json_array_append_new(out, v.kind == WP_MSGPACK_BIN ? hex(v.bytes) : json_null());
    }
    return out;
}

static json_t *parent_bytes(const struct wp_event *e)
{
    struct wp_msgpack_in in = wp_msgpack_in(e->parent_sent);
    struct wp_msgpack v = {0};

    (void)wp_msgpack_read(&in, &v);
    return v.kind == WP_MSGPACK_BIN ? hex(v.bytes) : json_null();
}

static json_t *use(enum wp_event_use u)
{
    return json_pack("{s:s, s:o}", "use",
                     u == WP_EVENT_INDEX       ? "index"
                     : u == WP_EVENT_TIER_ONLY ? "tier_only"
                                               : "ignore",
                     "reason",
                     u == WP_EVENT_INDEX ? json_null() : json_string(wp_event_use_name(u)));
}

static void add_stored(json_t *o, const struct wp_event *e, bool raw)
{
    json_t *tokens = json_array();

    for (size_t i = 0; i < e->n_tokens; i++)
        json_array_append_new(tokens, json_integer(e->token[i]));
    json_object_set_new(o, "parent", e->has_parent ? decimal(e->parent) : json_null());
    json_object_set_new(o, "parent_bytes", parent_bytes(e));
    json_object_set_new(o, "tokens", tokens);
    json_object_set_new(o, "bigram", json_boolean(e->bigram));
    json_object_set_new(o, "block_size", json_integer(e->block_size));
    json_object_set_new(o, "lora_id", number(e->has_lora_id, e->lora_id));
    json_object_set_new(o, "lora_name", text(e->lora_name));
    json_object_set_new(o, "spec_kind", text(e->spec_kind));
    json_object_set_new(o, "sliding_window", number(e->has_window, e->window));
    json_object_set_new(o, "session_id", text(e->session_id));
    json_object_set_new(o, "cache_salt", text(e->cache_salt));
    json_object_set_new(o, "extra_keys", opaque(e->extra_keys, raw));
    json_object_set_new(o, "mm_keys", opaque(e->mm_keys, raw));
    json_object_set_new(o, "index", use(e->use));
}

static json_t *one(const struct wp_event *e, bool raw)
{
    json_t *o = json_object();

    json_object_set_new(o, "i", json_integer((json_int_t)e->i));
    if (e->kind == WP_EVENT_SKIPPED) {
        json_object_set_new(o, "reason", json_string("unknown_tag"));
        json_object_set_new(o, "tag", text(e->tag));
        return o;
    }
    json_object_set_new(o, "type", text(e->tag));
    if (e->kind == WP_EVENT_CLEARED)
        return o;
    json_object_set_new(o, "hashes", hashes(e));
    json_object_set_new(o, "hash_bytes", hash_bytes(e));
    json_object_set_new(o, "medium", text(e->medium));
    json_object_set_new(o, "tier", json_string(wp_event_tier_name(e->tier)));
    json_object_set_new(o, "group_idx", number(e->has_group, e->group));
    json_object_set_new(o, "locality", text(e->locality));
    json_object_set_new(o, "ownership", text(e->ownership));
    if (e->kind == WP_EVENT_STORED)
        add_stored(o, e, raw);
    return o;
}

json_t *wp_event_json(struct wp_str payload, bool raw)
{
    struct wp_event_scratch scratch = {0};
    struct wp_event_batch b;
    struct wp_err err = WP_ERR_INIT;
    struct wp_event e;
    json_t *events, *skipped;
    size_t n = 0;
    int rc;

    if (wp_event_open(&b, payload, &err) < 0)
        return json_pack("{s:s}", "reject", wp_event_why_name(b.why));
    events = json_array();
    skipped = json_array();
    for (; (rc = wp_event_next(&b, &scratch, &e)) > 0; n++)
        json_array_append_new(e.kind == WP_EVENT_SKIPPED ? skipped : events, one(&e, raw));
    wp_event_scratch_fini(&scratch);
    if (rc < 0 || n != b.n || json_array_size(skipped) != b.skipped) {
        json_decref(events);
        json_decref(skipped);
        return NULL;
    }
    return json_pack("{s:f, s:o, s:o, s:o}", "ts", b.ts, "dp_rank", number(b.has_rank, b.rank),
                     "events", events, "skipped", skipped);
}
