/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/caches.h - one ceiling over what the router only remembers: limits.caches_bytes.
 * In the order in which they give way, the first before the others:
 *     tokens    ids of prompts that were asked of engines (models[].tokenizer.cache_bytes, for each model)
 *     doctor    outlines of conversations (WP_DOCTOR_BYTES)
 *     history   blocks of prompts that were sent to workers
 *     index     blocks that KV events told of (index.cap_bytes)
 * The last two get half of the ceiling each at most, at the start, if their own caps are larger; they never have more than that.  What they leave is the doctor's,
 * and what that leaves is for tokens: both are looked at every second, and drop what they have longest not used.  So the sum
 * may be above the ceiling by what is learnt in a second.  Without a ceiling each has its own bound alone; it is counted all the same.
 * Threads: each gate tells and asks for its own tokens; gate 0 looks at the rest.
 */
#ifndef WP_ROUTER_CACHES_H
#define WP_ROUTER_CACHES_H

#include "base/metrics.h"
#include "router/config.h"

#include <stdatomic.h>

enum wp_cache { WP_CACHE_TOKENS, WP_CACHE_DOCTOR, WP_CACHE_HISTORY, WP_CACHE_INDEX, WP_CACHES };
extern const char *const wp_cache_names[WP_CACHES];

struct wp_caches {
    struct wp_series *bytes[WP_CACHES], *ceiling;
    _Atomic uint64_t tokens;     /* of all gates */
    _Atomic uint64_t tokens_cap; /* for all gates together */
};
struct wp_gate;

void wp_caches_init(struct wp_caches *c, struct wp_metrics *m);
/* What those that go before leave, of a ceiling (0: none): caps of the first two. */
void wp_caches_share(uint64_t ceiling, const uint64_t bytes[WP_CACHES], uint64_t *doctor_cap, uint64_t *tokens_cap);
void wp_caches_look(struct wp_gate *g); /* on each gate's tick: now and then it does something */

#endif
