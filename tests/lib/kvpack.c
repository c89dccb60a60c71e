/* SPDX-License-Identifier: Apache-2.0 */
/* A msgpack reader that is only as large as what the simulated engine writes. */
#include "tests/lib/kvfeed.h"

struct reader {
    const unsigned char *p, *end;
    bool bad;
};

static uint64_t big(struct reader *r, size_t n)
{
    uint64_t x = 0;

    if ((size_t)(r->end - r->p) < n) {
        r->bad = true;
        return 0;
    }
    while (n--)
        x = x << 8 | *r->p++;
    return x;
}

static json_t *value(struct reader *r);

static json_t *list(struct reader *r, size_t n)
{
    json_t *a = json_array();

    while (n-- && !r->bad)
        json_array_append_new(a, value(r));
    return a;
}

static json_t *object(struct reader *r, size_t n)
{
    json_t *o = json_object();

    while (n-- && !r->bad) {
        json_t *k = value(r);

        json_object_set_new(o, json_is_string(k) ? json_string_value(k) : "?", value(r));
        json_decref(k);
    }
    return o;
}

static json_t *text(struct reader *r, size_t n)
{
    const char *p = (const char *)r->p;

    if ((size_t)(r->end - r->p) < n) {
        r->bad = true;
        return json_null();
    }
    r->p += n;
    return json_stringn(p, n);
}

static json_t *binary(struct reader *r, size_t n)
{
    if (n < 8 || (size_t)(r->end - r->p) < n) {
        r->bad = true;
        return json_null();
    }
    r->p += n - 8;
    return json_integer((json_int_t)big(r, 8));
}

static json_t *value(struct reader *r)
{
    unsigned char b = (unsigned char)big(r, 1);
    uint64_t bits;
    double x;

    if (b < 0x80)
        return json_integer(b);
    if (b < 0x90)
        return object(r, b & 15);
    if (b < 0xa0)
        return list(r, b & 15);
    if (b < 0xc0)
        return text(r, b & 31);
    switch (b) {
    case 0xc0:
        return json_null();
    case 0xc4:
        return binary(r, big(r, 1));
    case 0xcb:
        bits = big(r, 8);
        memcpy(&x, &bits, sizeof x);
        return json_real(x);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return json_integer((json_int_t)big(r, (size_t)1 << (b - 0xcc)));
    case 0xd9:
        return text(r, big(r, 1));
    case 0xda:
        return text(r, big(r, 2));
    case 0xdc:
        return list(r, big(r, 2));
    case 0xdd:
        return list(r, big(r, 4));
    default: /* nothing else is written */
        r->bad = true;
        return json_null();
    }
}

json_t *kv_msgpack(const unsigned char *p, size_t n)
{
    struct reader r = {p, p + n, false};
    json_t *v = value(&r);

    if (!r.bad && r.p == r.end)
        return v;
    json_decref(v);
    return NULL;
}
