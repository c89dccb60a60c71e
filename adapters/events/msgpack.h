/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/msgpack.h - reads MessagePack where it lies.
 *
 * For payloads of others: any legal form is read, the shortest or not.  A length is never believed:
 * what does not fit into the bytes that are left is refused at its head (an array's element is a
 * byte at least, a map's pair two), so a count that was read is at most the number of bytes.
 * Nesting ends at WP_MSGPACK_DEPTH.  Nothing allocates or recurses.
 *
 * Errors: WP_EEOF (cut short, or a length that cannot be true), WP_EPROTO (the byte c1, which has
 * no meaning), WP_ETOOBIG (too deep).
 *
 * Source: the MessagePack specification, version 5.
 */
#ifndef WP_ADAPTERS_EVENTS_MSGPACK_H
#define WP_ADAPTERS_EVENTS_MSGPACK_H

#include "base/err.h"
#include "base/str.h"

enum { WP_MSGPACK_DEPTH = 32 }; /* containers within each other */

enum wp_msgpack_kind {
    WP_MSGPACK_NIL,
    WP_MSGPACK_FALSE,
    WP_MSGPACK_TRUE,
    WP_MSGPACK_UINT, /* 0 or more, however it was written */
    WP_MSGPACK_INT,  /* below 0 */
    WP_MSGPACK_FLOAT,
    WP_MSGPACK_STR, /* not checked to be UTF-8 */
    WP_MSGPACK_BIN,
    WP_MSGPACK_EXT,
    WP_MSGPACK_ARRAY,
    WP_MSGPACK_MAP,
};

/* A scalar whole, or the head of an array or a map: its content follows in the input. */
struct wp_msgpack {
    enum wp_msgpack_kind kind;
    uint64_t u; /* UINT: the number.  INT: in two's complement.  ARRAY: elements, MAP: pairs.  EXT:
                   its type */
    double d;   /* FLOAT */
    struct wp_str bytes; /* STR, BIN, EXT: where they lie; p is never NULL */
};

struct wp_msgpack_in { /* what is still to be read */
    const uint8_t *p, *end;
};

static inline struct wp_msgpack_in wp_msgpack_in(struct wp_str s)
{
    const uint8_t *p = (const uint8_t *)s.p;

    return (struct wp_msgpack_in){p, s.n ? p + s.n : p};
}

/* One scalar or head.  After an error in is where it was. */
int wp_msgpack_read(struct wp_msgpack_in *in, struct wp_msgpack *v);

/*
 * Past one value, whatever it is.  open: how many containers in is within already; a container that
 * would be number WP_MSGPACK_DEPTH + 1 is refused, empty or not.  Cost: a nanosecond or two for a
 * number.
 */
int wp_msgpack_skip(struct wp_msgpack_in *in, unsigned open);

/* The same, and says where the value lies. */
int wp_msgpack_slice(struct wp_msgpack_in *in, unsigned open, struct wp_str *value);

/*
 * Reads up to n token ids, which are whole numbers 0..2^32-1, into out (NULL: only checks them);
 * stops before the first value that is none.  Returns how many it read.
 */
size_t wp_msgpack_tokens(struct wp_msgpack_in *in, size_t n, uint32_t *out);

#endif
