/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/query.h - POST /query and /query_by_hash: what the index claims now of a prompt, for other
 * routers and for tools. From KV events alone: neither history nor what is in flight.  Complete
 * blocks count, also the one with the last token.
 *
 * Two dialects, told apart by the members of the request; docs/query.md has them with the versions
 * that were read: Dynamo's standalone indexer   model_name                        {scores,
 * frequencies, tree_sizes, instances} the Mooncake conductor        model, or block_size,
 * instance_id  {TENANT: {INSTANCE: {...}}, instances} Hashes may be local ones or links of a chain
 * (index/identity.h), whichever the index knows more of.
 */
#ifndef WP_ROUTER_QUERY_H
#define WP_ROUTER_QUERY_H

#include "router/ask.h"

/* Appends the answer to body.  Everything found lives in arena.  Errors: WP_EINVAL with *no filled;
 * WP_ENOMEM. */
int wp_query(struct wp_fleet *f, struct wp_str body, bool by_hash, struct wp_arena *arena,
             struct wp_buf *out, struct wp_refusal *no);

#endif
