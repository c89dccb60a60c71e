/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sticky.h"

#include "base/mem.h"
#include "index/identity.h"

void wp_sticky_put(struct wp_sticky *s, struct wp_str response_id, uint64_t worker_key)
{
    uint64_t key = wp_hash_item(response_id), *place;

    if (wp_map_at(&s->worker_of, key)) {
        wp_map_put(&s->worker_of, key, worker_key);
        return;
    }
    if (!s->ring)
        s->ring = wp_malloc(WP_STICKY_MAX * sizeof *s->ring);
    if (!s->ring)
        return;
    place = &s->ring[s->next % WP_STICKY_MAX];
    if (s->next >= WP_STICKY_MAX)
        wp_map_del(&s->worker_of, *place);
    if (wp_map_put(&s->worker_of, key, worker_key) < 0)
        return;
    *place = key;
    s->next++;
}

bool wp_sticky_get(const struct wp_sticky *s, struct wp_str response_id, uint64_t *worker_key)
{
    return wp_map_get(&s->worker_of, wp_hash_item(response_id), worker_key);
}

void wp_sticky_fini(struct wp_sticky *s)
{
    wp_map_fini(&s->worker_of);
    wp_free(s->ring);
    s->ring = NULL;
    s->next = 0;
}
