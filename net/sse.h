/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/sse.h - watches an event stream as it passes: where events end, and what their data is.
 * Line ends may be LF, CRLF or CR, also split between pieces; several data lines join with LF; comments, other fields and a
 * byte order mark are passed over.  What is left at the end without an empty line is no event.
 * Bounded: at most `max` bytes of data are kept of one event; of a longer one the start is given and cut is set.  The buffer is allocated once.
 * Source: WHATWG HTML, server-sent events; the spec's openai-api.md 5.
 */
#ifndef WP_NET_SSE_H
#define WP_NET_SSE_H

#include "base/str.h"

struct wp_sse_event {
    struct wp_str name; /* the event field, "" when none */
    struct wp_str data; /* joined; good inside the callback */
    bool cut;
};
typedef void (*wp_sse_fn)(void *arg, const struct wp_sse_event *ev);

struct wp_sse {
    struct wp_buf data;
    char name[64];
    uint8_t name_n;
    char line[64]; /* the start of the present line, up to and with its colon */
    uint32_t line_n;
    uint8_t state, bom;
    bool after_cr, has_data, cut, between; /* between: no byte since the last empty line */
    wp_sse_fn fn;
    void *arg;
};

void wp_sse_init(struct wp_sse *s, size_t max, wp_sse_fn fn, void *arg);
void wp_sse_fini(struct wp_sse *s);
/* Looks at p[n]; calls fn for each event that ends in it.  Errors: WP_ENOMEM (the event at hand is marked cut). */
int wp_sse_feed(struct wp_sse *s, const char *p, size_t n);
/* True when a comment line may be put into the stream here. */
bool wp_sse_between(const struct wp_sse *s);

#endif
