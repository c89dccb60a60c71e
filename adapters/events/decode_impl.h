/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/decode_impl.h - what decode.c (batches), event.c (one event, in either form) and
 * fields.c (its fields) share.
 */
#ifndef WP_ADAPTERS_EVENTS_DECODE_IMPL_H
#define WP_ADAPTERS_EVENTS_DECODE_IMPL_H

#include "adapters/events/decode.h"

/* How many containers are around a value that is an element of the batch, an event, its field, ...
 */
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

/*
 * Fields, from their slices: v is a value as sent that was skipped whole before, or absent, which
 * is as good as nil.  Nil leaves the result alone.  where: the field's name, for a refusal.
 */
struct wp_msgpack wp_event_head(struct wp_str v, struct wp_msgpack_in *rest);
int wp_event_text(struct wp_event_reader *r, struct wp_str v, const char *where,
                  struct wp_str *out); /* UTF-8 */
int wp_event_count(struct wp_event_reader *r, struct wp_str v, const char *where, bool *has,
                   uint32_t *out); /* 0..2^31-1 */
int wp_event_i64(struct wp_event_reader *r, struct wp_str v, const char *where, bool *has,
                 int64_t *out);
int wp_event_list(struct wp_event_reader *r, struct wp_str v, const char *where,
                  struct wp_str *out); /* an array of anything whose texts are UTF-8 */

/* With an out they may also answer WP_ENOMEM. */
int wp_event_hashes(struct wp_event_reader *r, struct wp_str v, struct wp_event *e);
int wp_event_parent(struct wp_event_reader *r, struct wp_str v, struct wp_event *e);

/*
 * Token ids in the form that nearly all events have, a plain array: read in one pass, from where
 * r->in is.  Returns 1 when that is what was there: r->in is past it, *sent is it, *n how many;
 * else 0 and r->in has not moved.
 */
int wp_event_flat_tokens(struct wp_event_reader *r, struct wp_str *sent, size_t *n);

/* All else: nil, pairs, texts among the ids (e->use says so), or what is refused. */
int wp_event_odd_tokens(struct wp_event_reader *r, struct wp_str v, struct wp_event *e);

/*
 * Reads the event at r->in, in either form, and moves past it.  With an out the event is filled
 * whole, else all but its arrays and its use.  Errors: WP_EPROTO; with an out WP_ENOMEM.
 */
int wp_event_read(struct wp_event_reader *r, struct wp_event *e);

#endif
