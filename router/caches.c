/* SPDX-License-Identifier: Apache-2.0 */
#include "router/caches.h"

#include "router/router.h"
#include "router/tokens.h"

enum { EVERY = 10 };
const char *const wp_cache_names[WP_CACHES] = {"tokens", "doctor", "history", "index"};

void wp_caches_init(struct wp_caches *c, struct wp_metrics *m)
{
    struct wp_family *f = wp_family(m, WP_GAUGE, "warmpath_cache_bytes", "Memory of what the router remembers, by what it is.", "cache", NULL, 0);

    for (int i = 0; i < WP_CACHES; i++)
        c->bytes[i] = WP_SERIES(f, wp_cache_names[i]);
    c->ceiling = WP_SERIES0(wp_family(m, WP_GAUGE, "warmpath_cache_ceiling_bytes", "limits.caches_bytes; 0: none.", "", NULL, 0));
    atomic_init(&c->tokens, 0);
    atomic_init(&c->tokens_cap, UINT64_MAX);
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

void wp_caches_share(uint64_t ceiling, const uint64_t bytes[WP_CACHES], uint64_t *doctor_cap, uint64_t *tokens_cap)
{
    uint64_t doctor = bytes[WP_CACHE_DOCTOR];

    *doctor_cap = *tokens_cap = UINT64_MAX;
    if (ceiling == 0)
        return;
    *doctor_cap = less(ceiling, bytes[WP_CACHE_INDEX] + bytes[WP_CACHE_HISTORY]);
    *tokens_cap = less(*doctor_cap, doctor < *doctor_cap ? doctor : *doctor_cap);
}

/* Those that belong to no gate. */
static void look_at_all(struct wp_router *r)
{
    uint64_t ceiling = r->settings->conf->limits.caches_bytes, bytes[WP_CACHES], doctor_cap, tokens_cap;
    struct wp_doctor_stats doctor;

    wp_doctor_stats(r->doctor, &doctor);
    bytes[WP_CACHE_TOKENS] = atomic_load(&r->caches.tokens);
    bytes[WP_CACHE_DOCTOR] = doctor.bytes;
    wp_fleet_memory(r->fleet, &bytes[WP_CACHE_INDEX], &bytes[WP_CACHE_HISTORY]);
    wp_caches_share(ceiling, bytes, &doctor_cap, &tokens_cap);
    wp_doctor_limit(r->doctor, doctor_cap < SIZE_MAX ? (size_t)doctor_cap : SIZE_MAX);
    atomic_store(&r->caches.tokens_cap, tokens_cap);
    for (int i = 0; i < WP_CACHES; i++)
        wp_gauge_set(r->caches.bytes[i], (double)bytes[i]);
    wp_gauge_set(r->caches.ceiling, (double)ceiling);
}

void wp_caches_look(struct wp_gate *g)
{
    struct wp_router *r = g->router;
    uint64_t cap, now;

    if (g->caches_ticks++ % EVERY)
        return;
    if (g->number == 0)
        look_at_all(r);
    if (!g->tokenizers)
        return;
    cap = atomic_load(&r->caches.tokens_cap);
    now = wp_tokenizers_limit(g->tokenizers, cap == UINT64_MAX ? cap : cap / r->n_gates);
    atomic_fetch_add(&r->caches.tokens, now - g->tokens_bytes); /* modulo 2^64: it may be less */
    g->tokens_bytes = now;
}
