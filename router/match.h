/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/match.h - how much of a prompt a rank is believed to have, and who says so.
 *
 * KV events are believed as far as they cover what the rank holds; for the rest history stands in, with the weight that
 * coverage leaves, and alone where there is no feed.  Events are about tokens: of a prompt that is known as bytes they say
 * nothing, and history is alone, too.  What is in flight counts at once.
 *
 * Where a sliding window restricts the rank, neither history nor what is in flight says more than the engine would serve: a
 * prompt that was computed leaves its window's tail at its last usable block and nowhere else, so that it serves prompts that
 * go on from there.
 * Source: a running vLLM 0.32 (spec: "what a window costs").
 */
#ifndef WP_ROUTER_MATCH_H
#define WP_ROUTER_MATCH_H

#include "index/history.h"
#include "index/index.h"
#include "router/worker.h"

/* In blocks. */
struct wp_match {
    size_t indexed;  /* its KV events */
    size_t history;  /* what we sent there */
    size_t flight;   /* what is on its way there, alone */
    size_t together; /* history and in flight */
    size_t claim;    /* what we believe */
};

/*
 * row: the rank's of the look-up, or NULL; told: the prompt is of tokens, which events are about; chain[most]: the blocks that
 * the prompt can use.  No allocation.
 */
struct wp_match wp_match_blocks(const struct wp_overlap_row *row, const struct wp_history *h, const struct wp_rank *r,
                                uint32_t space, bool told, const uint64_t chain[], size_t most);

#endif
