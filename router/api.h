/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/api.h - the API port: which routes there are, and who may use them.  Nothing else reaches an engine.
 */
#ifndef WP_ROUTER_API_H
#define WP_ROUTER_API_H

#include "router/router.h"

void wp_api_on_request(struct wp_exchange *x, void *gate);

#endif
