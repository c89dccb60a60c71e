/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/api.h - the API port: which routes there are, and who may use them.  Nothing else reaches an engine.
 */
#ifndef WP_ROUTER_API_H
#define WP_ROUTER_API_H

#include "router/router.h"

void wp_api_on_request(struct wp_exchange *x, void *gate);

/* A path's kind for POST /explain, which takes any body that the API takes; false when no such route takes a body. */
bool wp_api_route(struct wp_str path, enum wp_route_kind *kind);

#endif
