/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/decode_impl.h - what decode.c (batches) and event.c (one event) share.
 */
#ifndef WP_ADAPTERS_EVENTS_DECODE_IMPL_H
#define WP_ADAPTERS_EVENTS_DECODE_IMPL_H

#include "adapters/events/decode.h"

/* Containers around: an element of the batch has one, an event two, a field of it three. */
enum { IN_BATCH = 1, IN_EVENTS, IN_EVENT, IN_FIELD };

struct wp_event_reader {
    struct wp_msgpack_in in;
    struct wp_event_scratch *out; /* NULL: judge, and write no arrays */
    enum wp_event_why why;        /* with WP_EPROTO */
    const char *where;            /* the field that is wrong; NULL: no particular one */
};

/* Refuses: sets why and where, returns WP_EPROTO. */
int wp_event_refuse(struct wp_event_reader *r, enum wp_event_why why, const char *where);
int wp_event_refuse_msgpack(struct wp_event_reader *r, int rc); /* by what msgpack.h said */

/* Fields that must be text, or a whole number 0..2^31-1, when there and not nil. */
int wp_event_text(struct wp_event_reader *r, struct wp_str v, const char *where, struct wp_str *out);
int wp_event_count(struct wp_event_reader *r, struct wp_str v, const char *where, bool *has, uint32_t *out);

/*
 * Reads the event at r->in, in either form, and moves past it.  With an out the event is filled whole, else all but its
 * arrays and its use.  Errors: WP_EPROTO; with an out WP_ENOMEM.
 */
int wp_event_read(struct wp_event_reader *r, struct wp_event *e);

#endif
