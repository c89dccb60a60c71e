/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/oracle.h - what the index must answer, by brute force.
 * Written from the words of index/index.h and index/inside.h's story, with plain lists and linear search, and sharing no
 * code with index/: only the event and the result of index/index.h.  A block's place is spelt out as the whole path of
 * local hashes from its start, so there is no tree, no hash table and no link that could be wrong in the same way.
 * Unbounded: no cap, no floating_max.  Out of memory or out of room it ends the program.
 */
#ifndef WP_TESTS_LIB_ORACLE_H
#define WP_TESTS_LIB_ORACLE_H

#include "index/index.h"

enum { WP_ORACLE_HOLDERS = 16, WP_ORACLE_DEPTH = 32 };

struct wp_oracle;

struct wp_oracle_answer {
    uint32_t blocks, tier[WP_TIER_MAX], doubtful; /* as wp_overlap_row */
};

struct wp_oracle *wp_oracle_create(void);
void wp_oracle_destroy(struct wp_oracle *o);

void wp_oracle_holder(struct wp_oracle *o, uint32_t holder, uint32_t node); /* under the number that the index gave */
void wp_oracle_drop(struct wp_oracle *o, uint32_t holder);
void wp_oracle_clear(struct wp_oracle *o, uint32_t holder);
void wp_oracle_doubt(struct wp_oracle *o, uint32_t holder);
void wp_oracle_window(struct wp_oracle *o, uint32_t holder, uint16_t group, uint16_t main, uint32_t blocks);
void wp_oracle_apply(struct wp_oracle *o, const struct wp_kv_event *ev, struct wp_kv_result *res);
size_t wp_oracle_graft(struct wp_oracle *o, uint32_t holder, uint32_t space, const uint64_t local[], size_t n);
size_t wp_oracle_confirm(struct wp_oracle *o, uint32_t holder, uint32_t space, const uint64_t local[], size_t n, size_t blocks);
void wp_oracle_overlap(const struct wp_oracle *o, uint32_t space, const uint64_t local[], size_t n,
                       struct wp_oracle_answer answer[WP_ORACLE_HOLDERS]);
void wp_oracle_reach(const struct wp_oracle *o, uint32_t holder, uint32_t space, const uint64_t local[], size_t n,
                     struct wp_reach *r);
/* Leading blocks of the prompt that lie on the way to something that a holder has. */
size_t wp_oracle_known(const struct wp_oracle *o, uint32_t space, const uint64_t local[], size_t n);
/* Of the index's figures, those that do not depend on how it is built: blocks, locations, floating, doubtful. */
void wp_oracle_stats(const struct wp_oracle *o, struct wp_index_stats *s);
void wp_oracle_holder_stats(const struct wp_oracle *o, uint32_t holder, uint64_t tier_blocks[WP_TIER_MAX],
                            uint64_t *doubtful);
void wp_oracle_digest(const struct wp_oracle *o, uint32_t holder, struct wp_index_digest *d);
size_t wp_oracle_facts(const struct wp_oracle *o); /* for the one who drives it: how much there is to search */

#endif
