/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of hybrid models: which one decides, which restrict it, and how. */
#include "adapters/events/ingest_impl.h"

static const struct group everyone = {0, GROUP_MAIN, 0};
static const struct group nobody = {0, GROUP_IGNORED, 0};

static bool is_window(const struct wp_event *e)
{
    return (wp_str_is(e->spec_kind, "sliding_window") ||
            wp_str_is(e->spec_kind, "sliding_window_mla")) &&
           e->has_window && e->window > 1;
}

/* Blocks that the group must hold before a prefix's end; 0: it cannot restrict. */
static uint32_t blocks_of(const struct wp_ingest *p, const struct wp_event *e)
{
    uint64_t size = e->block_size, blocks;

    if (!size || (p->block_size && p->block_size != size))
        return 0; /* its blocks are not the main group's */
    if (e->main_group)
        return WP_WINDOW_ALL;
    if (!is_window(e))
        return 0;
    blocks = ((uint64_t)e->window - 1 + size - 1) / size;
    return blocks < WP_WINDOW_ALL ? (uint32_t)blocks : WP_WINDOW_ALL;
}

/* A store shows a group for the first time. */
static struct group learn(struct wp_ingest *p, const struct wp_event *e)
{
    struct group g = {e->group, GROUP_IGNORED, 0};
    uint32_t blocks = blocks_of(p, e);

    if (e->main_group && !p->has_main) {
        g.role = GROUP_MAIN;
        p->has_main = true;
    } else if (blocks && wp_index_window(p->conf.index, p->conf.holder,
                                         (uint16_t)(p->restricting + 1), 0, blocks) == 0) {
        g.role = GROUP_RESTRICTS;
        g.number = ++p->restricting;
        if (blocks != WP_WINDOW_ALL && (!p->window || blocks < p->window))
            p->window = blocks;
    }
    if (p->n_groups < GROUPS_MAX)
        p->group[p->n_groups++] = g;
    return g;
}

struct group wp_ingest_group(struct wp_ingest *p, const struct wp_event *e)
{
    bool store = e->kind == WP_EVENT_STORED;

    if (!e->has_group)
        return store && !e->main_group ? nobody : everyone;
    for (size_t i = 0; i < p->n_groups; i++)
        if (p->group[i].wire == e->group)
            return p->group[i];
    if (p->n_groups == GROUPS_MAX)
        return nobody;
    if (store)
        return learn(p, e);
    return e->group == 0 && !p->has_main ? everyone : nobody;
}

void wp_ingest_forget_groups(struct wp_ingest *p)
{
    for (; p->restricting; p->restricting--)
        wp_index_window(p->conf.index, p->conf.holder, p->restricting, 0, 0);
    p->n_groups = 0;
    p->window = 0;
    p->has_main = false;
}

uint32_t wp_ingest_window(const struct wp_ingest *p)
{
    return p->window;
}
