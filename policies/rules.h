/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/rules.h - what the rules of other projects share (dynamo.c, llmd.c, sglang.c, preble.c, conductor.c, pull.c).
 * They are re-made from public descriptions, to compare with and to move from; docs/replay.md has the table.
 * Threads: any.  Nothing here allocates or fails.  Cost: O(n) each.
 */
#ifndef WP_POLICIES_RULES_H
#define WP_POLICIES_RULES_H

#include "policies/pick.h"

extern const struct wp_policy_ops wp_policy_least_work, wp_policy_dynamo, wp_policy_llmd, wp_policy_sglang, wp_policy_preble, wp_policy_conductor;

/* The lowest price; among equals one by ask->draw.  n > 0, and not all prices NaN. */
size_t wp_rule_lowest(const struct wp_ask *ask, const struct wp_verdict v[], size_t n);
/* [0, 1): the same for the same two. */
double wp_rule_hash(uint64_t block, uint64_t worker);
/* What a rule that knows events alone takes as cached there: tokens, less than the prompt. */
uint32_t wp_rule_cached(const struct wp_ask *ask, const struct wp_worker_view *w);
/* The peer that can give most of the prompt to w[at], the least busy of equals; WP_NO_WORKER: nobody has more than it. */
size_t wp_rule_source(const struct wp_worker_view w[], size_t n, size_t at);
/* v gets the fetch of all that any peer, then the pool, has beyond what w[at] has. */
void wp_rule_pull(const struct wp_ask *ask, const struct wp_worker_view w[], size_t n, size_t at, struct wp_verdict *v);

/* policies/pull.c: inner with every fetch there is.  Takes ownership of inner, also on failure.  Errors: WP_ENOMEM. */
int wp_pull_create(struct wp_policy **out, struct wp_policy *inner, struct wp_err *err);

#endif
