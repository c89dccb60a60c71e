/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "sim/cluster_impl.h"

/* Room for one more at the end of the ring; NULL: out of memory, and the run cannot go on. */
static struct wp_late *one_more(struct wp_cluster *c)
{
    if (c->late_n == c->late_cap) {
        size_t cap = c->late_cap ? 2 * c->late_cap : 1024;
        struct wp_late *ring = wp_calloc(cap, sizeof *ring);

        if (!ring) {
            c->rc = WP_ENOMEM;
            return NULL;
        }
        for (size_t i = 0; i < c->late_n; i++)
            ring[i] = c->late[(c->late_first + i) & (c->late_cap - 1)];
        wp_free(c->late);
        c->late = ring;
        c->late_cap = cap;
        c->late_first = 0;
    }
    return &c->late[(c->late_first + c->late_n++) & (c->late_cap - 1)];
}

void wp_cluster_tell_block(struct wp_cluster *c, size_t worker, uint8_t tier, bool stored,
                           uint64_t id, uint64_t at_us)
{
    struct wp_late *l;

    if (!c->ops.on_block)
        return;
    if (c->conf.stale_us == 0) {
        c->ops.on_block(c->arg, at_us, worker, tier, stored, id);
        return;
    }
    l = one_more(c);
    if (l)
        *l = (struct wp_late){.at_us = at_us,
                              .worker = (uint32_t)worker,
                              .kind = WP_LATE_BLOCK,
                              .tier = tier,
                              .stored = stored,
                              .u.id = id};
}

static void state_of(const struct wp_node *n, struct wp_cluster_state *s)
{
    struct wp_model_stats m;

    wp_model_stats(n->model, &m);
    *s = (struct wp_cluster_state){
        .prefill_tokens = m.todo_tokens,
        .prefill_us = m.todo_us,
        .waiting = m.waiting,
        .in_flight = n->in_flight,
        .decoding = m.decoding,
        .kv_tokens = m.kv_tokens,
        .pinned = m.pinned,
    };
}

void wp_cluster_tell_state(struct wp_cluster *c, struct wp_node *n, uint64_t at_us)
{
    struct wp_late *l;
    struct wp_cluster_state s;

    if (!c->ops.on_state)
        return;
    if (c->conf.stale_us == 0) {
        state_of(n, &s);
        c->ops.on_state(c->arg, at_us, (size_t)(n - c->node), &s);
        return;
    }
    l = one_more(c);
    if (!l)
        return;
    *l = (struct wp_late){.at_us = at_us, .worker = (uint32_t)(n - c->node), .kind = WP_LATE_STATE};
    state_of(n, &l->u.state);
}

uint64_t wp_cluster_late_us(const struct wp_cluster *c)
{
    return c->late_n ? c->late[c->late_first].at_us + c->conf.stale_us : UINT64_MAX;
}

void wp_cluster_late_event(struct wp_cluster *c)
{
    struct wp_late *l = &c->late[c->late_first];

    if (l->kind == WP_LATE_BLOCK)
        c->ops.on_block(c->arg, l->at_us, l->worker, l->tier, l->stored, l->u.id);
    else
        c->ops.on_state(c->arg, l->at_us, l->worker, &l->u.state);
    c->late_first = (c->late_first + 1) & (c->late_cap - 1);
    c->late_n--;
}
