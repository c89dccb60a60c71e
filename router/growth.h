/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/growth.h - by how much a figure has grown in about the last minute: it is noted every ten seconds, seven times over.
 * Threads: the owner's.
 */
#ifndef WP_ROUTER_GROWTH_H
#define WP_ROUTER_GROWTH_H

#include <stdbool.h>
#include <stdint.h>

enum { WP_GROWTH_NOTES = 7, WP_GROWTH_EVERY_US = 10000000 };

struct wp_growth {
    uint64_t value[WP_GROWTH_NOTES], noted_us; /* noted_us: when the last one was */
    unsigned n, next;
};

static inline bool wp_growth_due(const struct wp_growth *g, uint64_t now_us)
{
    return g->n == 0 || now_us >= g->noted_us + WP_GROWTH_EVERY_US;
}

static inline void wp_growth_note(struct wp_growth *g, uint64_t value, uint64_t now_us)
{
    g->value[g->next] = value;
    g->next = (g->next + 1) % WP_GROWTH_NOTES;
    g->n += g->n < WP_GROWTH_NOTES;
    g->noted_us = now_us;
}

/* Since the oldest note, a minute ago at most; less than 0: it has shrunk. */
static inline int64_t wp_growth_of(const struct wp_growth *g, uint64_t value)
{
    return g->n ? (int64_t)(value - g->value[(g->next + WP_GROWTH_NOTES - g->n) % WP_GROWTH_NOTES]) : 0;
}

#endif
