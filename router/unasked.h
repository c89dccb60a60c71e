/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/unasked.h - the usage that a client did not ask for: of models with `confirm: inject` it is asked for in streams, and
 * the one event that brings it is taken out of the answer again.
 *
 * Bytes go through the watching of events (net/sse.h) line by line.  What belongs to an event that has not ended is kept back, 16 KiB
 * of it at most: a longer one is not the one that is looked for, and passes.  All else passes as it came, in its order.
 */
#ifndef WP_ROUTER_UNASKED_H
#define WP_ROUTER_UNASKED_H

#include "router/request_inner.h"

/* Would it be asked for?  A stream of a chat or a completion, whose client does not ask for usage, in an event of its own or in each. */
bool wp_unasked_wanted(const struct wp_request *r);
/* Appends the text of the member stream_options that asks for it: the client's, and include_usage. */
int wp_unasked_options(const struct wp_request *r, struct wp_buf *out);
/* A stream for which it was asked is over, of a prompt that the engine should know; said: it told what it had.  Many that did not are told of in the log. */
void wp_unasked_over(struct wp_request *r, bool said);

/* An event of the answer: is it that one? */
bool wp_unasked_is(struct wp_json choices, struct wp_json usage);

/* Takes p[n] of the stream, feeds the watcher, and passes on to the client what is to pass. */
void wp_unasked_pass(struct wp_request *r, const char *p, size_t n);
void wp_unasked_flush(struct wp_request *r); /* what is kept back passes: the stream is over */

#endif
