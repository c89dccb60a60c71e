/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of hashes beside the index: tiers of blocks to come, and salts of chains. */
#include "adapters/events/ingest_impl.h"
#include "index/identity.h"

enum { PARKED_MS = 30000 };
enum { PARKED_MAX = 4096, SALTED_MAX = 1 << 20 };
enum { COUNT_BITS = 16 }; /* of a parked value: how many; above them when, in ms */

static uint64_t parked_key(uint64_t engine, uint8_t tier)
{
    return wp_hash_next(engine, tier);
}

static void sweep(struct wp_ingest *p, uint64_t now_ms)
{
    uint64_t key, v;
    bool any = true;

    while (any) { /* the map must not change under the walk */
        any = false;
        for (size_t i = 0; !any && wp_map_next(&p->parked, &i, &key, &v);)
            any = (v >> COUNT_BITS) + PARKED_MS < now_ms;
        if (any)
            wp_map_del(&p->parked, key);
    }
}

void wp_ingest_park(struct wp_ingest *p, uint64_t engine, uint8_t tier)
{
    size_t max = p->conf.parked_max ? p->conf.parked_max : PARKED_MAX;
    uint64_t now_ms = p->now_us / 1000, count = 0, key = parked_key(engine, tier), v;

    if (wp_map_get(&p->parked, key, &v) && (v >> COUNT_BITS) + PARKED_MS >= now_ms)
        count = v & (((uint64_t)1 << COUNT_BITS) - 1);
    else if (p->parked.n >= max)
        sweep(p, now_ms);
    if ((count == 0 && p->parked.n >= max) || count + 1 >= (uint64_t)1 << COUNT_BITS)
        return;
    if (wp_map_put(&p->parked, key, now_ms << COUNT_BITS | (count + 1)) == 0)
        p->counts.parked++;
}

bool wp_ingest_unpark(struct wp_ingest *p, uint64_t engine, uint8_t tier)
{
    uint64_t key = parked_key(engine, tier), v;

    if (!p->parked.n || !wp_map_get(&p->parked, key, &v))
        return false;
    if ((v & (((uint64_t)1 << COUNT_BITS) - 1)) > 1)
        *wp_map_at(&p->parked, key) = v - 1;
    else
        wp_map_del(&p->parked, key);
    return (v >> COUNT_BITS) + PARKED_MS >= p->now_us / 1000;
}

void wp_ingest_salt_store(struct wp_ingest *p, const struct wp_event *e, uint64_t salt)
{
    size_t max = p->conf.salted_max ? p->conf.salted_max : SALTED_MAX;

    for (size_t i = 0; i < e->n; i++) {
        uint64_t *copies = wp_map_at(&p->salted, e->hash[i]);

        if (copies) {
            ++*copies;
            *wp_map_at(&p->salt, e->hash[i]) = salt;
        } else if (p->salted.n < max && wp_map_put(&p->salt, e->hash[i], salt) == 0 &&
                   wp_map_put(&p->salted, e->hash[i], 1) < 0) {
            wp_map_del(&p->salt, e->hash[i]);
        }
    }
}

void wp_ingest_salt_remove(struct wp_ingest *p, const struct wp_event *e)
{
    for (size_t i = 0; p->salted.n && i < e->n; i++) {
        uint64_t *copies = wp_map_at(&p->salted, e->hash[i]);

        if (copies && --*copies == 0) {
            wp_map_del(&p->salted, e->hash[i]);
            wp_map_del(&p->salt, e->hash[i]);
        }
    }
}
