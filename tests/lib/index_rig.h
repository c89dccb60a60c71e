/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/index_rig.h - an index with a few holders, and short ways to say things to it.
 * One letter stands for one block: it is the block's local hash and its engine hash.
 */
#ifndef WP_TESTS_LIB_INDEX_RIG_H
#define WP_TESTS_LIB_INDEX_RIG_H

#include "index/index.h"

enum { WP_INDEX_RIG_LONGEST = 64 };

struct wp_index_rig {
    struct wp_index *ix;
    uint32_t space, w[4], node, pool; /* w[0], w[1] are ranks of the node */
    struct wp_overlap o;
    struct wp_kv_result res; /* of the last event */
};

void wp_index_rig_init(struct wp_index_rig *r,
                       const struct wp_index_conf *conf); /* conf NULL: no bounds */
void wp_index_rig_fini(struct wp_index_rig *r);           /* verifies */
size_t wp_index_rig_letters(const char *s, uint64_t out[]);
void wp_index_rig_say(struct wp_index_rig *r, enum wp_kv_kind kind, uint32_t holder, uint8_t tier,
                      const char *parent, const char *blocks, bool tier_only); /* parent "": none */
void wp_index_rig_store(struct wp_index_rig *r, uint32_t holder, uint8_t tier, const char *parent,
                        const char *blocks);
void wp_index_rig_remove(struct wp_index_rig *r, uint32_t holder, uint8_t tier, const char *blocks);
size_t wp_index_rig_graft(struct wp_index_rig *r, uint32_t holder, const char *prompt);

#endif
