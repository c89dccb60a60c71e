/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of an event, one type after the other: what each takes, and what it becomes.
 */
#include "adapters/events/decode_impl.h"

#include "adapters/events/repeats.h"
#include "base/mem.h"

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
                           rc == WP_EEOF      ? WP_EVENT_TRUNCATED
                           : rc == WP_ETOOBIG ? WP_EVENT_DEPTH
                                              : WP_EVENT_RESERVED_BYTE,
                           NULL);
}

/* --- values of a type ------------------------------------------------------------------------- */

/* A value that was sliced before: reading its head cannot fail.  An absent one is nil. */
struct wp_msgpack wp_event_head(struct wp_str slice, struct wp_msgpack_in *rest)
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
    struct wp_msgpack head = wp_event_head(v, &rest);

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
    struct wp_msgpack head = wp_event_head(v, &rest);

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

int wp_event_i64(struct wp_event_reader *r, struct wp_str v, const char *where, bool *has,
                 int64_t *out)
{
    struct wp_msgpack_in rest;
    struct wp_msgpack head = wp_event_head(v, &rest);

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
 * Whether all texts in a value are UTF-8.  The value may be anything else: its depth is bounded
 * already, and with it this recursion.  Keys of maps count only when they are texts themselves.
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

int wp_event_list(struct wp_event_reader *r, struct wp_str v, const char *where, struct wp_str *out)
{
    struct wp_msgpack_in rest;
    struct wp_msgpack head = wp_event_head(v, &rest);

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

int wp_event_hashes(struct wp_event_reader *r, struct wp_str v, struct wp_event *e)
{
    const char *where = "block_hashes";
    struct wp_msgpack_in in;
    struct wp_msgpack head = wp_event_head(v, &in);
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

int wp_event_parent(struct wp_event_reader *r, struct wp_str v, struct wp_event *e)
{
    struct wp_msgpack_in in;
    bool binary;

    if (wp_event_head(v, &in).kind == WP_MSGPACK_NIL)
        return 0;
    in = wp_msgpack_in(v);
    e->has_parent = true;
    e->parent_sent = v;
    return read_hash(r, &in, "parent_block_hash", &e->parent, &binary);
}

/* --- token ids -------------------------------------------------------------------------------- */

static const char token_ids[] = "token_ids";

int wp_event_flat_tokens(struct wp_event_reader *r, struct wp_str *sent, size_t *n)
{
    struct wp_msgpack_in at = r->in;
    struct wp_msgpack head;

    if (wp_msgpack_read(&at, &head) < 0 || head.kind != WP_MSGPACK_ARRAY)
        return 0;
    *n = (size_t)head.u;
    if (r->out && room_for_tokens(r->out, *n) < 0)
        return WP_ENOMEM;
    if (wp_msgpack_tokens(&at, *n, r->out ? r->out->token : NULL) < *n)
        return 0;
    *sent = (struct wp_str){(const char *)r->in.p, (size_t)(at.p - r->in.p)};
    r->in = at;
    return 1;
}

/* One value that has to be a token id. */
static int read_token(struct wp_event_reader *r, struct wp_msgpack_in *in, uint32_t *token)
{
    struct wp_msgpack v = {0};

    if (wp_msgpack_tokens(in, 1, token) == 1)
        return 0;
    (void)wp_msgpack_read(in, &v);
    return wp_event_refuse(
        r,
        v.kind == WP_MSGPACK_UINT || v.kind == WP_MSGPACK_INT ? WP_EVENT_RANGE : WP_EVENT_BAD_TYPE,
        token_ids);
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
            return wp_event_refuse(r, WP_EVENT_BAD_TYPE, token_ids);
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

int wp_event_odd_tokens(struct wp_event_reader *r, struct wp_str v, struct wp_event *e)
{
    struct wp_msgpack_in in, at;
    struct wp_msgpack head = wp_event_head(v, &in), one = {0};
    int rc = 0;

    if (head.kind == WP_MSGPACK_NIL)
        return 0;
    if (head.kind != WP_MSGPACK_ARRAY)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, token_ids);
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
