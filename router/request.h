/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/request.h - the life of a request that goes to an engine.
 *
 *   READ --> TOKENS --> PLACE --> CONNECT --> PREFILL --> STREAM --> DONE      any state may fall to DONE;
 *     |                 ^ ^          |           |                             the TTFT clock runs until STREAM
 *     +-----------------+ +----------+-----------+ attempt failed before the answer's head went to the client
 *       nothing to wait for
 */
#ifndef WP_ROUTER_REQUEST_H
#define WP_ROUTER_REQUEST_H

#include "router/prompt.h"
#include "router/router.h"

/* Takes over the exchange, and the turn of its key (NULL: there is none): reads its body, places it, relays the answer. */
void wp_request_begin(struct wp_gate *g, struct wp_exchange *x, enum wp_route_kind kind, const struct wp_key *key,
                      struct wp_key_turn *turn);

void wp_requests_look_held(struct wp_timer *t); /* a gate's hold_tick: those who wait for a worker to be free are placed, if one is */

/* Ends all requests of a gate whose answers are not out: with an error where nothing was said yet.  How many there were. */
size_t wp_requests_cut(struct wp_gate *g);

/*
 * Workers of the gate's requests may have gone down: who has had no answer there is placed elsewhere.  Returns how many wait on a
 * worker that is down, because no other can take them.
 */
size_t wp_requests_rescue(struct wp_gate *g);

#endif
