/* SPDX-License-Identifier: Apache-2.0 */
#include "router/match.h"

/* The window's tail is there only where a prompt ended; what the index knows better is left to it. */
static void keep_ends(struct wp_match *m, const struct wp_history *h, const struct wp_rank *r, uint32_t space, const uint64_t chain[])
{
    m->history = wp_history_last_end(h, r->holder, space, chain, m->history, m->indexed, false);
    m->flight = wp_history_last_end(h, r->holder, space, chain, m->flight, m->indexed, true);
    m->together = m->history > m->flight ? m->history : m->flight;
}

struct wp_match wp_match_blocks(const struct wp_overlap_row *row, const struct wp_history *h, const struct wp_rank *r, uint32_t space,
                                bool told, const uint64_t chain[], size_t most)
{
    bool fed = r->fed && told;
    double weight = fed ? 1 - r->coverage : 1;
    struct wp_match m = {.indexed = row ? row->blocks : 0};

    if (m.indexed > most)
        m.indexed = most;
    m.history = wp_history_overlap(h, r->holder, space, chain, most, &m.together);
    m.flight = fed ? wp_history_flight(h, r->holder, space, chain, most) : m.together;
    if (fed && r->window)
        keep_ends(&m, h, r, space, chain);
    m.claim = m.indexed;
    if (m.history > m.indexed)
        m.claim += (size_t)(weight * (double)(m.history - m.indexed));
    if (m.flight > m.claim)
        m.claim = m.flight;
    return m;
}
