/* SPDX-License-Identifier: Apache-2.0 */
/* What room costs at a decision, and what a decision tells of it (router/rooms.h). */
#include "router/fleet_inner.h"

/* The blocks that the facts are about: of a prompt of tokens, where the policy has a price and half of the candidates tell of their blocks. */
static const struct wp_hashes *of_facts(const struct wp_fleet *f, const struct wp_want *want, size_t n, const struct wp_worker *w)
{
    const struct wp_hashes *h = want->prompt && want->prompt->kind == WP_PROMPT_TOKENS ? wp_fleet_hashes(want, w) : NULL;
    size_t told = 0;

    if (!h || h->n == 0 || !f->policy->ops->prices_room || f->conf->policy.conf.room_tuned <= 0)
        return NULL;
    for (size_t i = 0; i < n; i++)
        told += f->candidate[i].rank->fed && f->candidate[i].rank->live;
    return 2 * told >= n ? h : NULL;
}

void wp_fleet_price_room(struct wp_fleet *f, const struct wp_want *want, size_t n, uint64_t now_us)
{
    const struct wp_worker *w = f->candidate[0].worker;
    const struct wp_hashes *h = of_facts(f, want, n, w);
    uint32_t space = h ? wp_fleet_space(f, want->model->base, h->block_size, WP_PROMPT_TOKENS) : 0xFFFFFFFF;

    if (space != 0xFFFFFFFF)
        wp_rooms_price(f->rooms, now_us, space, f->view, n, &w->profile, &f->ask.room);
}

void wp_fleet_note_asked(struct wp_fleet *f, const struct wp_want *want, const struct wp_placement *p, size_t n, uint64_t now_us)
{
    const struct wp_hashes *h = of_facts(f, want, n, p->worker);
    struct wp_rooms_ask a = {.space = p->space, .profile = &p->worker->profile};

    if (!h || p->space == 0xFFFFFFFF)
        return;
    a.block_size = h->block_size;
    a.local = h->local;
    a.n = h->n;
    for (size_t i = 0; i < n; i++) {
        size_t held = f->shown[i].index_tokens / h->block_size, coming = f->view[i].hit_tokens / h->block_size;

        if (f->candidate[i].worker->block_size != h->block_size)
            continue;
        a.held = held > a.held ? held : a.held;
        a.coming = coming > a.coming ? coming : a.coming;
        a.capacity_tokens += (double)f->candidate[i].worker->kv_tokens;
    }
    wp_rooms_asked(f->rooms, now_us, &a);
}
