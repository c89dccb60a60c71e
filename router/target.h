/* SPDX-License-Identifier: Apache-2.0 */
/* router/target.h - what a request says of the time that it has: when its first token is due, and how long its client waits at all. */
#ifndef WP_ROUTER_TARGET_H
#define WP_ROUTER_TARGET_H

#include "net/http.h"

/* x-warmpath-slo-ttft-ms, in microseconds; 0: it says none.  False: it is no number above 0, of a day at most. */
bool wp_target_of(const struct wp_head *h, uint64_t *us);
/* x-stainless-read-timeout, in seconds, as the official clients send it ("600", "20.5"); 0: it says none, or nothing that makes sense. */
uint64_t wp_patience_of(const struct wp_head *h);

#endif
