/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/forward.h - which fields cross, and what is added: docs/rewrites.md is the list of both.
 */
#ifndef WP_ROUTER_FORWARD_H
#define WP_ROUTER_FORWARD_H

#include "router/request_inner.h"

enum { WP_FORWARD_MAX = WP_FIELDS_MAX + 16 };

/* The fields of the request as the engine gets them.  Strings are in the request's arena.  Returns how many; 0: out of memory. */
size_t wp_forward_request(struct wp_request *r, struct wp_field out[WP_FORWARD_MAX]);
/* The fields of the answer as the client gets them. */
size_t wp_forward_answer(struct wp_request *r, const struct wp_head *h, struct wp_field out[WP_FORWARD_MAX]);
/* Fields for errors that we make after attempts, and for every answer: x-request-id and what reveal allows. */
size_t wp_forward_own(struct wp_request *r, struct wp_field out[], size_t n);
/* A Retry-After value (seconds or date) as time from now, capped; 0 when absent or unreadable. */
uint64_t wp_retry_after_us(struct wp_str value, uint64_t cap_us);
/* Copies the client's request id when it is short and clean. */
bool wp_request_id_ok(struct wp_str id);

#endif
