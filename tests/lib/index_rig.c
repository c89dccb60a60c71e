/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/index_rig.h"

#include "tests/lib/test.h"

void wp_index_rig_init(struct wp_index_rig *r, const struct wp_index_conf *conf)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0,
               wp_index_create(&r->ix, conf ? conf : &(struct wp_index_conf){.secret = 5}, &err));
    wp_index_space(r->ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &r->space, &err);
    wp_index_holder(r->ix, WP_HOLDER_NODE, WP_NO_HOLDER, &r->node, &err);
    for (int i = 0; i < 4; i++)
        EXPECT_INT(
            "holder", 0,
            wp_index_holder(r->ix, WP_HOLDER_RANK, i < 2 ? r->node : WP_NO_HOLDER, &r->w[i], &err));
    wp_index_holder(r->ix, WP_HOLDER_POOL, WP_NO_HOLDER, &r->pool, &err);
    EXPECT_INT("overlap", 0, wp_overlap_init(&r->o, wp_index_holders(r->ix)));
}

void wp_index_rig_fini(struct wp_index_rig *r)
{
    struct wp_err err = WP_ERR_INIT;
    bool ok = wp_index_verify(r->ix, &err);

    EXPECT_TRUE(ok ? "verify" : err.text, ok);
    wp_overlap_fini(&r->o);
    wp_index_destroy(r->ix);
}

size_t wp_index_rig_letters(const char *s, uint64_t out[])
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        out[i] = (uint64_t)s[i];
    return n;
}

void wp_index_rig_say(struct wp_index_rig *r, enum wp_kv_kind kind, uint32_t holder, uint8_t tier,
                      const char *parent, const char *blocks, bool tier_only)
{
    uint64_t hash[WP_INDEX_RIG_LONGEST];
    struct wp_kv_event ev = {
        .kind = kind, .holder = holder, .space = r->space, .main_group = true, .tier = tier};

    ev.n = wp_index_rig_letters(blocks, hash);
    ev.engine = hash;
    ev.local = kind == WP_KV_STORED && !tier_only ? hash : NULL;
    ev.has_parent = *parent;
    ev.parent = (uint64_t)*parent;
    wp_index_apply(r->ix, &ev, &r->res);
}

void wp_index_rig_store(struct wp_index_rig *r, uint32_t holder, uint8_t tier, const char *parent,
                        const char *blocks)
{
    wp_index_rig_say(r, WP_KV_STORED, holder, tier, parent, blocks, false);
}

void wp_index_rig_remove(struct wp_index_rig *r, uint32_t holder, uint8_t tier, const char *blocks)
{
    wp_index_rig_say(r, WP_KV_REMOVED, holder, tier, "", blocks, false);
}

size_t wp_index_rig_graft(struct wp_index_rig *r, uint32_t holder, const char *prompt)
{
    uint64_t local[WP_INDEX_RIG_LONGEST];
    size_t n = wp_index_rig_letters(prompt, local);

    return wp_index_graft(r->ix, holder, r->space, local, n);
}
