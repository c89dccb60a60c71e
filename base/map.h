/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/map.h - a hash map from 64-bit keys to 64-bit values (numbers, or pointers cast).
 * Open addressing, linear probing, no tombstones (deletion shifts back), grows by doubling at 3/4 full.
 * Keys may be aimed at: the bucket mixes in the map's own seed.  Threads: one at a time, or many readers.
 * Not for the prefix index, which has its own layout.
 */
#ifndef WP_BASE_MAP_H
#define WP_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wp_map_slot {
    uint64_t key, value;
    bool used;
};

struct wp_map {
    struct wp_map_slot *slots;
    size_t n, cap; /* cap is 0 or a power of two */
    uint64_t seed;
};

/* {0} is an empty map; a seed may be set before the first put. */
bool wp_map_get(const struct wp_map *m, uint64_t key, uint64_t *value);
/* A pointer to the value, good until the next put or del; NULL when absent. */
uint64_t *wp_map_at(const struct wp_map *m, uint64_t key);
/* Sets or replaces.  Errors: WP_ENOMEM, the map is as before. */
int wp_map_put(struct wp_map *m, uint64_t key, uint64_t value);
bool wp_map_del(struct wp_map *m, uint64_t key); /* false when it was not there */
void wp_map_fini(struct wp_map *m);

/* for (size_t i = 0; wp_map_next(m, &i, &k, &v);) visits every pair; do not change the map meanwhile. */
bool wp_map_next(const struct wp_map *m, size_t *i, uint64_t *key, uint64_t *value);

#endif
