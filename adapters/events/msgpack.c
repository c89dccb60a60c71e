/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/msgpack.h"

#include <assert.h>
#include <endian.h>

/* Bytes of a value that begins with this byte; 0: wp_msgpack_read() has to look (lengths,
 * containers, c1). */
#define FOUR(x)    x, x, x, x
#define SIXTEEN(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x)
/* clang-format off */
static const uint8_t whole[256] = {
    SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1),
    [0xA0] = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
             25, 26, 27, 28, 29, 30, 31, 32,
    [0xC0] = 1, [0xC2] = 1, [0xC3] = 1,
    [0xCA] = 5, [0xCB] = 9,
    [0xCC] = 2, [0xCD] = 3, [0xCE] = 5, [0xCF] = 9,
    [0xD0] = 2, [0xD1] = 3, [0xD2] = 5, [0xD3] = 9,
    [0xD4] = 3, [0xD5] = 4, [0xD6] = 6, [0xD7] = 10, [0xD8] = 18,
    [0xE0] = SIXTEEN(1), SIXTEEN(1),
};
/* clang-format on */

static size_t left(const struct wp_msgpack_in *in)
{
    return (size_t)(in->end - in->p);
}

/* An unsigned number of 1, 2, 4 or 8 bytes. */
static bool number(struct wp_msgpack_in *in, size_t bytes, uint64_t *u)
{
    if (bytes > left(in))
        return false;
    *u = 0;
    for (size_t i = 0; i < bytes; i++)
        *u = *u << 8 | in->p[i];
    in->p += bytes;
    return true;
}

static int integer(struct wp_msgpack_in *in, size_t bytes, bool is_signed, struct wp_msgpack *v)
{
    unsigned pad = 64 - 8 * (unsigned)bytes;

    v->kind = WP_MSGPACK_UINT;
    if (!number(in, bytes, &v->u))
        return WP_EEOF;
    if (is_signed && v->u >> (63 - pad)) {
        v->kind = WP_MSGPACK_INT;
        v->u |= pad ? ~UINT64_C(0) << (64 - pad) : 0;
    }
    return 0;
}

static int real(struct wp_msgpack_in *in, size_t bytes, struct wp_msgpack *v)
{
    uint64_t u;

    v->kind = WP_MSGPACK_FLOAT;
    if (!number(in, bytes, &u))
        return WP_EEOF;
    if (bytes == 4) {
        uint32_t narrow = (uint32_t)u;
        float f;

        memcpy(&f, &narrow, sizeof f);
        v->d = (double)f;
    } else {
        memcpy(&v->d, &u, sizeof v->d);
    }
    return 0;
}

static int text(struct wp_msgpack_in *in, enum wp_msgpack_kind kind, uint64_t n,
                struct wp_msgpack *v)
{
    v->kind = kind;
    if (n > left(in))
        return WP_EEOF;
    v->bytes = (struct wp_str){(const char *)in->p, (size_t)n};
    in->p += n;
    return 0;
}

static int extension(struct wp_msgpack_in *in, uint64_t n, struct wp_msgpack *v)
{
    if (!number(in, 1, &v->u))
        return WP_EEOF;
    return text(in, WP_MSGPACK_EXT, n, v);
}

static int container(const struct wp_msgpack_in *in, enum wp_msgpack_kind kind, uint64_t n,
                     struct wp_msgpack *v)
{
    v->kind = kind;
    v->u = n;
    return n > (kind == WP_MSGPACK_MAP ? left(in) / 2 : left(in)) ? WP_EEOF : 0;
}

/* What follows b, one of c0..df. */
static int read_marked(struct wp_msgpack_in *in, uint8_t b, struct wp_msgpack *v)
{
    uint64_t n = 0;

    switch (b) {
    case 0xC0:
    case 0xC2:
    case 0xC3:
        v->kind = b == 0xC0 ? WP_MSGPACK_NIL : b == 0xC2 ? WP_MSGPACK_FALSE : WP_MSGPACK_TRUE;
        return 0;
    case 0xC4:
    case 0xC5:
    case 0xC6:
        return number(in, (size_t)1 << (b - 0xC4), &n) ? text(in, WP_MSGPACK_BIN, n, v) : WP_EEOF;
    case 0xC7:
    case 0xC8:
    case 0xC9:
        return number(in, (size_t)1 << (b - 0xC7), &n) ? extension(in, n, v) : WP_EEOF;
    case 0xCA:
    case 0xCB:
        return real(in, b == 0xCA ? 4 : 8, v);
    case 0xCC:
    case 0xCD:
    case 0xCE:
    case 0xCF:
        return integer(in, (size_t)1 << (b - 0xCC), false, v);
    case 0xD0:
    case 0xD1:
    case 0xD2:
    case 0xD3:
        return integer(in, (size_t)1 << (b - 0xD0), true, v);
    case 0xD4:
    case 0xD5:
    case 0xD6:
    case 0xD7:
    case 0xD8:
        return extension(in, UINT64_C(1) << (b - 0xD4), v);
    case 0xD9:
    case 0xDA:
    case 0xDB:
        return number(in, (size_t)1 << (b - 0xD9), &n) ? text(in, WP_MSGPACK_STR, n, v) : WP_EEOF;
    case 0xDC:
    case 0xDD:
        return number(in, b == 0xDC ? 2 : 4, &n) ? container(in, WP_MSGPACK_ARRAY, n, v) : WP_EEOF;
    case 0xDE:
    case 0xDF:
        return number(in, b == 0xDE ? 2 : 4, &n) ? container(in, WP_MSGPACK_MAP, n, v) : WP_EEOF;
    default:
        return WP_EPROTO; /* c1 */
    }
}

int wp_msgpack_read(struct wp_msgpack_in *in, struct wp_msgpack *v)
{
    struct wp_msgpack_in at = *in;
    uint8_t b;
    int rc = 0;

    *v = (struct wp_msgpack){.kind = WP_MSGPACK_UINT};
    if (left(in) == 0)
        return WP_EEOF;
    b = *at.p++;
    if (b <= 0x7F) {
        v->u = b;
    } else if (b >= 0xE0) {
        v->kind = WP_MSGPACK_INT;
        v->u = (uint64_t)((int64_t)b - 0x100);
    } else if (b <= 0x8F) {
        rc = container(&at, WP_MSGPACK_MAP, b & 0x0F, v);
    } else if (b <= 0x9F) {
        rc = container(&at, WP_MSGPACK_ARRAY, b & 0x0F, v);
    } else if (b <= 0xBF) {
        rc = text(&at, WP_MSGPACK_STR, b & 0x1F, v);
    } else {
        rc = read_marked(&at, b, v);
    }
    if (rc == 0)
        *in = at;
    return rc;
}

/*
 * The containers that are open within the value are a stack of how many values each still lacks. No
 * count exceeds the bytes that were left when it was read, so twice a map's pairs cannot wrap.
 */
int wp_msgpack_skip(struct wp_msgpack_in *in, unsigned open)
{
    uint64_t lacks[WP_MSGPACK_DEPTH + 1] = {1};
    struct wp_msgpack_in at = *in;
    struct wp_msgpack v;
    size_t top = 0;
    int rc;

    assert(open <= WP_MSGPACK_DEPTH);
    for (;;) {
        while (lacks[top] == 0) {
            if (top == 0) {
                *in = at;
                return 0;
            }
            top--;
        }
        while (lacks[top] && at.p < at.end && whole[*at.p]) {
            if (whole[*at.p] > left(&at))
                return WP_EEOF;
            at.p += whole[*at.p];
            lacks[top]--;
        }
        if (lacks[top] == 0)
            continue;
        rc = wp_msgpack_read(&at, &v);
        if (rc < 0)
            return rc;
        lacks[top]--;
        if (v.kind != WP_MSGPACK_ARRAY && v.kind != WP_MSGPACK_MAP)
            continue;
        if (open + top >= WP_MSGPACK_DEPTH)
            return WP_ETOOBIG;
        lacks[++top] = v.kind == WP_MSGPACK_MAP ? 2 * v.u : v.u;
    }
}

int wp_msgpack_slice(struct wp_msgpack_in *in, unsigned open, struct wp_str *value)
{
    const uint8_t *start = in->p;
    int rc = wp_msgpack_skip(in, open);

    if (rc == 0)
        *value = (struct wp_str){(const char *)start, (size_t)(in->p - start)};
    return rc;
}

/* The slow way, for forms that no writer of token ids chooses and for the last bytes of the input.
 */
static bool any_token(struct wp_msgpack_in *in, uint32_t *token)
{
    struct wp_msgpack_in at = *in;
    struct wp_msgpack v;

    if (wp_msgpack_read(&at, &v) < 0 || v.kind != WP_MSGPACK_UINT || v.u > UINT32_MAX)
        return false;
    *token = (uint32_t)v.u;
    *in = at;
    return true;
}

/*
 * A token id is a byte, or one of cc, cd, ce and 1, 2, 4 bytes.  Ids of all widths come mixed, and
 * a branch on the width would be guessed wrong at every other one: so eight bytes are fetched,
 * shifted and masked by a table.
 */
size_t wp_msgpack_tokens(struct wp_msgpack_in *in, size_t n, uint32_t *out)
{
    static const struct {
        uint32_t mask;
        uint8_t shift, bytes;
    } form[] = {{0x7F, 56, 1}, {0xFF, 48, 2}, {0xFFFF, 40, 3}, {0xFFFFFFFF, 24, 5}};
    size_t i;

    for (i = 0; i < n; i++) {
        unsigned k = 0;
        uint32_t token;
        uint64_t next;

        if (left(in) < sizeof next) {
            if (!any_token(in, &token))
                break;
        } else {
            memcpy(&next, in->p, sizeof next);
            if (*in->p > 0x7F)
                k = *in->p - 0xCBu;
            if (k > 3 || (k == 0 && *in->p > 0x7F)) {
                if (!any_token(in, &token))
                    break;
            } else {
                token = (uint32_t)(be64toh(next) >> form[k].shift) & form[k].mask;
                in->p += form[k].bytes;
            }
        }
        if (out)
            out[i] = token;
    }
    return i;
}
