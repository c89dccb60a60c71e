/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event: find its fields, whichever form it has, then read those that its tag has.
 * Judging and visiting are one code, so that they cannot disagree; only a visit has a scratch to write to.
 */
#include "adapters/events/decode_impl.h"

#include "adapters/events/repeats.h"
#include "base/mem.h"

enum field {
    TYPE,
    HASHES,
    PARENT,
    TOKENS,
    BLOCK_SIZE,
    LORA_ID,
    MEDIUM,
    LORA_NAME,
    EXTRA_KEYS,
    GROUP,
    SPEC_KIND,
    WINDOW,
    LOCALITY,
    OWNERSHIP,
    SESSION,
    SALT,
    MM_KEYS,
    FIELDS,
};

#define NAME(s) {s, sizeof(s) - 1}
static const struct wp_str names[FIELDS] = {
    [TYPE] = NAME("type"),
    [HASHES] = NAME("block_hashes"),
    [PARENT] = NAME("parent_block_hash"),
    [TOKENS] = NAME("token_ids"),
    [BLOCK_SIZE] = NAME("block_size"),
    [LORA_ID] = NAME("lora_id"),
    [MEDIUM] = NAME("medium"),
    [LORA_NAME] = NAME("lora_name"),
    [EXTRA_KEYS] = NAME("extra_keys"),
    [GROUP] = NAME("group_idx"),
    [SPEC_KIND] = NAME("kv_cache_spec_kind"),
    [WINDOW] = NAME("kv_cache_spec_sliding_window"),
    [LOCALITY] = NAME("locality"),
    [OWNERSHIP] = NAME("ownership"),
    [SESSION] = NAME("session_id"),
    [SALT] = NAME("cache_salt"),
    [MM_KEYS] = NAME("mm_keys"),
};

/* The fields of an array event, behind its tag. */
static const enum field stored_order[] = {HASHES,    PARENT,     TOKENS, BLOCK_SIZE, LORA_ID, MEDIUM,
                                          LORA_NAME, EXTRA_KEYS, GROUP,  SPEC_KIND,  WINDOW};
static const enum field removed_order[] = {HASHES, MEDIUM, GROUP};

struct found {
    struct wp_str f[FIELDS]; /* each value as sent; absent when there is none */
    bool flat;               /* f[TOKENS] is an array of token ids and nothing else, and is in the scratch already */
    size_t n_flat;
};

/* --- room ------------------------------------------------------------------------------------- */

static int room_for_tokens(struct wp_event_scratch *s, size_t n)
{
    uint32_t *p;

    if (n <= s->tokens)
        return 0;
    n += n / 2;
    p = wp_malloc(n * sizeof *p);
    if (!p)
        return WP_ENOMEM;
    wp_free(s->token);
    s->token = p;
    s->tokens = n;
    return 0;
}

static int room_for_hashes(struct wp_event_scratch *s, size_t n)
{
    uint64_t *p;

    if (n <= s->hashes)
        return 0;
    n += n / 2;
    p = wp_malloc(n * sizeof *p);
    if (!p)
        return WP_ENOMEM;
    wp_free(s->hash);
    s->hash = p;
    s->hashes = n;
    return 0;
}

/* --- refusing --------------------------------------------------------------------------------- */

int wp_event_refuse(struct wp_event_reader *r, enum wp_event_why why, const char *where)
{
    r->why = why;
    r->where = where;
    return WP_EPROTO;
}

int wp_event_refuse_msgpack(struct wp_event_reader *r, int rc)
{
    return wp_event_refuse(r,
                           rc == WP_EEOF       ? WP_EVENT_TRUNCATED
                           : rc == WP_ETOOBIG ? WP_EVENT_DEPTH
                                               : WP_EVENT_RESERVED_BYTE,
                           NULL);
}

static int read_value(struct wp_event_reader *r, struct wp_msgpack *v)
{
    int rc = wp_msgpack_read(&r->in, v);

    return rc < 0 ? wp_event_refuse_msgpack(r, rc) : 0;
}

static int slice_value(struct wp_event_reader *r, unsigned open, struct wp_str *v)
{
    int rc = wp_msgpack_slice(&r->in, open, v);

    return rc < 0 ? wp_event_refuse_msgpack(r, rc) : 0;
}

/* --- values of a type ------------------------------------------------------------------------- */

/* A value that was sliced before: reading its head cannot fail.  An absent one is nil. */
static struct wp_msgpack head_of(struct wp_str slice, struct wp_msgpack_in *rest)
{
    struct wp_msgpack v = {.kind = WP_MSGPACK_NIL};

    *rest = wp_msgpack_in(slice);
    if (slice.p)
        (void)wp_msgpack_read(rest, &v);
    return v;
}

static bool is_utf8(struct wp_str s)
{
    for (size_t at = 0, n; at < s.n; at += n) {
        n = wp_utf8_len(s.p + at, s.n - at);
        if (n == 0)
            return false;
    }
    return true;
}

int wp_event_text(struct wp_event_reader *r, struct wp_str v, const char *where, struct wp_str *out)
{
    struct wp_msgpack_in rest;
    struct wp_msgpack head = head_of(v, &rest);

    if (head.kind == WP_MSGPACK_NIL)
        return 0;
    if (head.kind != WP_MSGPACK_STR)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, where);
    if (!is_utf8(head.bytes))
        return wp_event_refuse(r, WP_EVENT_BAD_UTF8, where);
    *out = head.bytes;
    return 0;
}

int wp_event_count(struct wp_event_reader *r, struct wp_str v, const char *where, bool *has,
                   uint32_t *out)
{
    struct wp_msgpack_in rest;
    struct wp_msgpack head = head_of(v, &rest);

    if (head.kind == WP_MSGPACK_NIL)
        return 0;
    if (head.kind != WP_MSGPACK_UINT && head.kind != WP_MSGPACK_INT)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, where);
    if (head.kind == WP_MSGPACK_INT || head.u > INT32_MAX)
        return wp_event_refuse(r, WP_EVENT_RANGE, where);
    *has = true;
    *out = (uint32_t)head.u;
    return 0;
}

static int any_i64(struct wp_event_reader *r, struct wp_str v, const char *where, bool *has,
                   int64_t *out)
{
    struct wp_msgpack_in rest;
    struct wp_msgpack head = head_of(v, &rest);

    if (head.kind == WP_MSGPACK_NIL)
        return 0;
    if (head.kind != WP_MSGPACK_UINT && head.kind != WP_MSGPACK_INT)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, where);
    if (head.kind == WP_MSGPACK_UINT && head.u > INT64_MAX)
        return wp_event_refuse(r, WP_EVENT_RANGE, where);
    *has = true;
    *out = (int64_t)head.u;
    return 0;
}

/*
 * Whether all texts in a value are UTF-8.  The value may be anything else: its depth is bounded already, and with it
 * this recursion.  Keys of maps count only when they are texts themselves.
 */
static bool texts_are_utf8(struct wp_msgpack_in *in, unsigned open)
{
    struct wp_msgpack v;
    bool ok = true;

    (void)wp_msgpack_read(in, &v);
    if (v.kind == WP_MSGPACK_STR)
        return is_utf8(v.bytes);
    if (v.kind == WP_MSGPACK_ARRAY)
        for (uint64_t i = 0; ok && i < v.u; i++)
            ok = texts_are_utf8(in, open + 1);
    if (v.kind == WP_MSGPACK_MAP)
        for (uint64_t i = 0; ok && i < v.u; i++) {
            struct wp_msgpack_in key = *in;
            struct wp_msgpack k;

            (void)wp_msgpack_skip(in, open + 1);
            (void)wp_msgpack_read(&key, &k);
            ok = k.kind != WP_MSGPACK_STR || is_utf8(k.bytes);
            ok = ok && texts_are_utf8(in, open + 1);
        }
    return ok;
}

static int any_array(struct wp_event_reader *r, struct wp_str v, const char *where,
                     struct wp_str *out)
{
    struct wp_msgpack_in rest;
    struct wp_msgpack head = head_of(v, &rest);

    if (head.kind == WP_MSGPACK_NIL)
        return 0;
    if (head.kind != WP_MSGPACK_ARRAY)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, where);
    rest = wp_msgpack_in(v);
    if (!texts_are_utf8(&rest, IN_EVENT))
        return wp_event_refuse(r, WP_EVENT_BAD_UTF8, where);
    *out = v;
    return 0;
}

/* --- hashes ----------------------------------------------------------------------------------- */

static int read_hash(struct wp_event_reader *r, struct wp_msgpack_in *in, const char *where,
                     uint64_t *hash, bool *binary)
{
    struct wp_msgpack v = {0};

    (void)wp_msgpack_read(in, &v);
    if (v.kind == WP_MSGPACK_UINT || v.kind == WP_MSGPACK_INT) {
        *hash = v.u;
        return 0;
    }
    if (v.kind != WP_MSGPACK_BIN)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, where);
    if (v.bytes.n < 1 || v.bytes.n > 64)
        return wp_event_refuse(r, WP_EVENT_RANGE, where);
    *hash = 0;
    for (size_t i = v.bytes.n > 8 ? v.bytes.n - 8 : 0; i < v.bytes.n; i++)
        *hash = *hash << 8 | (uint8_t)v.bytes.p[i];
    *binary = true;
    return 0;
}

static int read_hashes(struct wp_event_reader *r, struct wp_str v, struct wp_event *e)
{
    const char *where = names[HASHES].p;
    struct wp_msgpack_in in;
    struct wp_msgpack head = head_of(v, &in);
    int rc = 0;

    if (!v.p)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, where);
    if (head.kind != WP_MSGPACK_ARRAY)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, where);
    e->hashes = v;
    e->n = (size_t)head.u;
    if (r->out && room_for_hashes(r->out, e->n + wp_repeats_room(e->n)) < 0)
        return WP_ENOMEM;
    for (size_t i = 0; rc == 0 && i < e->n; i++) {
        uint64_t hash = 0;

        rc = read_hash(r, &in, where, &hash, &e->binary);
        if (r->out)
            r->out->hash[i] = hash;
    }
    e->hash = r->out ? r->out->hash : NULL;
    return rc;
}

static int read_parent(struct wp_event_reader *r, struct wp_str v, struct wp_event *e)
{
    struct wp_msgpack_in in;
    bool binary;

    if (head_of(v, &in).kind == WP_MSGPACK_NIL)
        return 0;
    in = wp_msgpack_in(v);
    e->has_parent = true;
    e->parent_sent = v;
    return read_hash(r, &in, names[PARENT].p, &e->parent, &binary);
}

/* --- token ids -------------------------------------------------------------------------------- */

/*
 * Tries the form that nearly all events have, an array of token ids, without a look at its length before: true when
 * it was that, and r->in is past it.  With an out the ids are in the scratch.
 */
static int try_flat(struct wp_event_reader *r, struct found *f)
{
    struct wp_msgpack_in at = r->in;
    struct wp_msgpack head;

    f->flat = false;
    if (wp_msgpack_read(&at, &head) < 0 || head.kind != WP_MSGPACK_ARRAY)
        return 0;
    f->n_flat = (size_t)head.u;
    if (r->out && room_for_tokens(r->out, f->n_flat) < 0)
        return WP_ENOMEM;
    if (wp_msgpack_tokens(&at, f->n_flat, r->out ? r->out->token : NULL) < f->n_flat)
        return 0;
    f->flat = true;
    f->f[TOKENS] = (struct wp_str){(const char *)r->in.p, (size_t)(at.p - r->in.p)};
    r->in = at;
    return 0;
}

/* One value that has to be a token id. */
static int read_token(struct wp_event_reader *r, struct wp_msgpack_in *in, uint32_t *token)
{
    struct wp_msgpack v = {0};

    if (wp_msgpack_tokens(in, 1, token) == 1)
        return 0;
    (void)wp_msgpack_read(in, &v);
    return wp_event_refuse(r,
                           v.kind == WP_MSGPACK_UINT || v.kind == WP_MSGPACK_INT ? WP_EVENT_RANGE
                                                                                 : WP_EVENT_BAD_TYPE,
                           names[TOKENS].p);
}

/* n > 0 pairs: the first members, and the last second one.  Sets use when they do not overlap. */
static int read_pairs(struct wp_event_reader *r, struct wp_msgpack_in *in, size_t n,
                      struct wp_event *e)
{
    uint32_t pair[2] = {0}, before = 0;
    struct wp_msgpack head;
    int rc = 0;

    e->bigram = true;
    e->n_tokens = n + 1;
    if (r->out && room_for_tokens(r->out, n + 1) < 0)
        return WP_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        (void)wp_msgpack_read(in, &head);
        if (head.kind != WP_MSGPACK_ARRAY || head.u != 2)
            return wp_event_refuse(r, WP_EVENT_BAD_TYPE, names[TOKENS].p);
        rc = read_token(r, in, &pair[0]);
        rc = rc < 0 ? rc : read_token(r, in, &pair[1]);
        if (rc < 0)
            return rc;
        if (i && pair[0] != before)
            e->use = WP_EVENT_BROKEN_BIGRAM;
        before = pair[1];
        if (r->out) {
            if (i == 0)
                r->out->token[0] = pair[0];
            r->out->token[i + 1] = pair[1];
        }
    }
    return rc;
}

/* What try_flat() did not take: nil, pairs, texts among the ids, or a mistake. */
static int read_odd_tokens(struct wp_event_reader *r, struct wp_str v, struct wp_event *e)
{
    struct wp_msgpack_in in, at;
    struct wp_msgpack head = head_of(v, &in), one = {0};
    int rc = 0;

    if (head.kind == WP_MSGPACK_NIL)
        return 0;
    if (head.kind != WP_MSGPACK_ARRAY)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, names[TOKENS].p);
    at = in;
    (void)wp_msgpack_read(&at, &one); /* it is not empty, or it were flat */
    if (one.kind == WP_MSGPACK_ARRAY)
        return read_pairs(r, &in, (size_t)head.u, e);
    e->use = WP_EVENT_NON_INTEGER;
    for (uint64_t i = 0; rc == 0 && i < head.u; i++) {
        uint32_t token;

        at = in;
        (void)wp_msgpack_read(&at, &one);
        if (one.kind == WP_MSGPACK_STR)
            in = at;
        else
            rc = read_token(r, &in, &token);
    }
    return rc;
}

/* e->use becomes what the shape of the tokens says against it. */
static int read_tokens(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    int rc = 0;

    if (!f->f[TOKENS].p)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[TOKENS].p);
    if (f->flat)
        e->n_tokens = f->n_flat;
    else
        rc = read_odd_tokens(r, f->f[TOKENS], e);
    e->token = r->out ? r->out->token : NULL;
    return rc;
}

/* --- the events ------------------------------------------------------------------------------- */

static bool is_main(const struct wp_event *e)
{
    if (e->spec_kind.p)
        return wp_str_is(e->spec_kind, "full_attention") ||
               wp_str_is(e->spec_kind, "mla_attention") ||
               wp_str_is(e->spec_kind, "sink_full_attention");
    return !e->has_group || e->group == 0;
}

static enum wp_event_use judge_use(const struct wp_event *e, uint64_t room[])
{
    size_t span = e->n_tokens - (e->bigram ? 1 : 0);

    if (!e->main_group)
        return WP_EVENT_NON_MAIN_GROUP;
    if (e->use != WP_EVENT_INDEX)
        return e->use;
    if (e->n_tokens == 0)
        return WP_EVENT_TIER_ONLY;
    if (e->block_size == 0)
        return WP_EVENT_ZERO_BLOCK_SIZE;
    if (span % e->block_size || span / e->block_size != e->n)
        return WP_EVENT_SPARSE;
    for (size_t i = 0; e->has_parent && i < e->n; i++)
        if (e->hash[i] == e->parent)
            return WP_EVENT_SELF_REFERENCE;
    return wp_repeats(e->hash, e->n, room) ? WP_EVENT_SELF_REFERENCE : WP_EVENT_INDEX;
}

static int read_texts(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    const struct {
        enum field field;
        struct wp_str *out;
    } text[] = {{LORA_NAME, &e->lora_name}, {SPEC_KIND, &e->spec_kind}, {SESSION, &e->session_id},
                {SALT, &e->cache_salt}};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof text / sizeof text[0]; i++)
        rc = wp_event_text(r, f->f[text[i].field], names[text[i].field].p, text[i].out);
    return rc;
}

/* What stores and removals have. */
static int read_place(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    int rc = wp_event_text(r, f->f[MEDIUM], names[MEDIUM].p, &e->medium);

    e->tier = wp_event_tier(e->medium);
    rc = rc < 0 ? rc : wp_event_count(r, f->f[GROUP], names[GROUP].p, &e->has_group, &e->group);
    rc = rc < 0 ? rc : wp_event_text(r, f->f[LOCALITY], names[LOCALITY].p, &e->locality);
    return rc < 0 ? rc : wp_event_text(r, f->f[OWNERSHIP], names[OWNERSHIP].p, &e->ownership);
}

static int read_stored(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    bool has_size;
    int rc = read_hashes(r, f->f[HASHES], e);

    e->kind = WP_EVENT_STORED;
    rc = rc < 0 ? rc : read_parent(r, f->f[PARENT], e);
    rc = rc < 0 ? rc : read_tokens(r, f, e);
    if (rc == 0 && !f->f[BLOCK_SIZE].p)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[BLOCK_SIZE].p);
    rc = rc < 0 ? rc
                : wp_event_count(r, f->f[BLOCK_SIZE], names[BLOCK_SIZE].p, &has_size, &e->block_size);
    rc = rc < 0 ? rc : any_i64(r, f->f[LORA_ID], names[LORA_ID].p, &e->has_lora_id, &e->lora_id);
    rc = rc < 0 ? rc : any_i64(r, f->f[WINDOW], names[WINDOW].p, &e->has_window, &e->window);
    rc = rc < 0 ? rc : read_place(r, f, e);
    rc = rc < 0 ? rc : read_texts(r, f, e);
    rc = rc < 0 ? rc : any_array(r, f->f[EXTRA_KEYS], names[EXTRA_KEYS].p, &e->extra_keys);
    rc = rc < 0 ? rc : any_array(r, f->f[MM_KEYS], names[MM_KEYS].p, &e->mm_keys);
    if (rc < 0)
        return rc;
    e->main_group = is_main(e);
    if (r->out)
        e->use = judge_use(e, r->out->hash ? r->out->hash + e->n : NULL);
    return 0;
}

static int read_removed(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    int rc = read_hashes(r, f->f[HASHES], e);

    e->kind = WP_EVENT_REMOVED;
    return rc < 0 ? rc : read_place(r, f, e);
}

/* --- the two forms ---------------------------------------------------------------------------- */

static int find_field(struct wp_event_reader *r, enum field k, struct found *f)
{
    if (k == TOKENS) {
        int rc = try_flat(r, f);

        if (rc < 0 || f->flat)
            return rc;
    }
    return slice_value(r, IN_EVENT, &f->f[k]);
}

/* SGLang has a map where vLLM has the adapter's name. */
static void open_metadata(struct found *f)
{
    struct wp_msgpack_in in;
    struct wp_msgpack map = head_of(f->f[LORA_NAME], &in), key;

    if (map.kind != WP_MSGPACK_MAP)
        return;
    f->f[LORA_NAME] = (struct wp_str){0};
    for (uint64_t i = 0; i < map.u; i++) {
        struct wp_msgpack_in at = in;
        struct wp_str value = {0};

        (void)wp_msgpack_skip(&in, IN_FIELD);
        (void)wp_msgpack_slice(&in, IN_FIELD, &value);
        (void)wp_msgpack_read(&at, &key);
        if (key.kind == WP_MSGPACK_STR && wp_str_eq(key.bytes, names[SALT]))
            f->f[SALT] = value;
        if (key.kind == WP_MSGPACK_STR && wp_str_eq(key.bytes, names[SESSION]))
            f->f[SESSION] = value;
    }
}

static int find_in_array(struct wp_event_reader *r, uint64_t n, struct found *f, struct wp_event *e)
{
    const enum field *order = NULL;
    struct wp_str ignored;
    size_t known = 0;
    int rc;

    if (n == 0)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[TYPE].p);
    rc = slice_value(r, IN_EVENT, &f->f[TYPE]);
    rc = rc < 0 ? rc : wp_event_text(r, f->f[TYPE], names[TYPE].p, &e->tag);
    if (rc < 0)
        return rc;
    if (wp_str_is(e->tag, "BlockStored")) {
        order = stored_order;
        known = sizeof stored_order / sizeof stored_order[0];
    } else if (wp_str_is(e->tag, "BlockRemoved")) {
        order = removed_order;
        known = sizeof removed_order / sizeof removed_order[0];
    }
    for (uint64_t i = 1; rc == 0 && i < n; i++)
        rc = i <= known ? find_field(r, order[i - 1], f) : slice_value(r, IN_EVENT, &ignored);
    if (rc == 0)
        open_metadata(f);
    return rc;
}

static int find_in_map(struct wp_event_reader *r, uint64_t n, struct found *f, struct wp_event *e)
{
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        struct wp_msgpack_in at = r->in;
        struct wp_msgpack key;
        struct wp_str ignored;
        unsigned k = FIELDS;

        rc = slice_value(r, IN_EVENT, &ignored);
        if (rc < 0)
            return rc;
        (void)wp_msgpack_read(&at, &key);
        for (k = 0; key.kind == WP_MSGPACK_STR && k < FIELDS; k++)
            if (wp_str_eq(key.bytes, names[k]))
                break;
        rc = key.kind == WP_MSGPACK_STR && k < FIELDS ? find_field(r, (enum field)k, f)
                                                      : slice_value(r, IN_EVENT, &ignored);
    }
    if (rc < 0)
        return rc;
    if (!f->f[TYPE].p)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[TYPE].p);
    return wp_event_text(r, f->f[TYPE], names[TYPE].p, &e->tag);
}

int wp_event_read(struct wp_event_reader *r, struct wp_event *e)
{
    struct found f = {0};
    struct wp_msgpack head;
    int rc = read_value(r, &head);

    *e = (struct wp_event){.kind = WP_EVENT_SKIPPED};
    if (rc < 0)
        return rc;
    if (head.kind == WP_MSGPACK_ARRAY)
        rc = find_in_array(r, head.u, &f, e);
    else if (head.kind == WP_MSGPACK_MAP)
        rc = find_in_map(r, head.u, &f, e);
    else
        rc = wp_event_refuse(r, WP_EVENT_BAD_TYPE, NULL);
    if (rc < 0)
        return rc;
    if (!e->tag.p) /* nil */
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, names[TYPE].p);
    if (wp_str_is(e->tag, "BlockStored"))
        return read_stored(r, &f, e);
    if (wp_str_is(e->tag, "BlockRemoved"))
        return read_removed(r, &f, e);
    if (wp_str_is(e->tag, "AllBlocksCleared"))
        e->kind = WP_EVENT_CLEARED;
    return 0;
}
