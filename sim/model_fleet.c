/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/model_step.h"

#include <assert.h>

void wp_model_keep(struct wp_model *m, struct wp_model_req *r)
{
    assert(!m->in_run);
    if (r->state == ARRIVING || r->state == WAITING)
        r->kept = true;
}

void wp_model_let(struct wp_model *m, struct wp_model_req *r, uint64_t now_us)
{
    assert(!m->in_run);
    if (!r->kept)
        return;
    r->kept = false;
    m->stuck = false; /* it may stand before the one that did not fit */
    if (!m->busy)
        m->wake_us = fmin(m->wake_us, fmax((double)now_us, m->now_us));
}

void wp_model_expect(struct wp_model *m, struct wp_model_req *r, uint32_t cached)
{
    if (r->state == ARRIVING || r->state == WAITING)
        wp_model_reckon(m, r, cached < r->tokens ? cached : r->tokens - 1);
}

void wp_model_land(struct wp_model *m, uint64_t now_us, uint64_t hash)
{
    assert(!m->in_run);
    m->now_us = fmax(m->now_us, (double)now_us);
    m->tiers.now_us = m->now_us;
    wp_tiers_land(&m->tiers, hash);
}

void wp_model_lend(struct wp_model *m, uint64_t hash)
{
    for (int t = WP_CPU; t < WP_TIERS; t++) {
        uint32_t slot = wp_cache_find(&m->tiers.tier[t], hash);

        if (slot != 0)
            wp_cache_touch(&m->tiers.tier[t], slot);
    }
}

void wp_model_each_req(const struct wp_model *m, void (*fn)(void *req_arg))
{
    const struct wp_list *all[] = {&m->arriving, &m->waiting, &m->prefill, &m->decoding};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        WP_LIST_EACH((struct wp_list *)all[i], at)
    fn(WP_CONTAINER(at, struct wp_model_req, link)->arg);
}

int wp_model_where(const struct wp_model *m, uint64_t hash)
{
    for (int t = 0; t < WP_TIERS; t++)
        if (wp_cache_find(&m->tiers.tier[t], hash) != 0)
            return t;
    return -1;
}
