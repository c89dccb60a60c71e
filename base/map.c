/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/err.h"
#include "base/mem.h"

static size_t bucket(const struct wp_map *m, uint64_t key)
{
    uint64_t x = (key ^ m->seed) * 0x9E3779B97F4A7C15u;

    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u; /* small and sequential keys must spread */
    return (size_t)(x ^ (x >> 32)) & (m->cap - 1);
}

static struct wp_map_slot *find(const struct wp_map *m, uint64_t key)
{
    if (!m->cap)
        return NULL;
    for (size_t i = bucket(m, key); m->slots[i].used; i = (i + 1) & (m->cap - 1))
        if (m->slots[i].key == key)
            return &m->slots[i];
    return NULL;
}

bool wp_map_get(const struct wp_map *m, uint64_t key, uint64_t *value)
{
    struct wp_map_slot *s = find(m, key);

    if (s)
        *value = s->value;
    return s != NULL;
}

uint64_t *wp_map_at(const struct wp_map *m, uint64_t key)
{
    struct wp_map_slot *s = find(m, key);

    return s ? &s->value : NULL;
}

static void place(struct wp_map *m, uint64_t key, uint64_t value)
{
    size_t i = bucket(m, key);

    while (m->slots[i].used)
        i = (i + 1) & (m->cap - 1);
    m->slots[i] = (struct wp_map_slot){key, value, true};
}

static int grow(struct wp_map *m)
{
    struct wp_map wider = {.seed = m->seed, .cap = m->cap ? m->cap * 2 : 8, .n = m->n};

    wider.slots = wp_calloc(wider.cap, sizeof *wider.slots);
    if (!wider.slots)
        return WP_ENOMEM;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].used)
            place(&wider, m->slots[i].key, m->slots[i].value);
    wp_free(m->slots);
    *m = wider;
    return 0;
}

int wp_map_put(struct wp_map *m, uint64_t key, uint64_t value)
{
    struct wp_map_slot *s = find(m, key);

    if (s) {
        s->value = value;
        return 0;
    }
    if (m->n + 1 > m->cap / 4 * 3) {
        int rc = grow(m);

        if (rc < 0)
            return rc;
    }
    place(m, key, value);
    m->n++;
    return 0;
}

bool wp_map_del(struct wp_map *m, uint64_t key)
{
    struct wp_map_slot *s = find(m, key);
    size_t hole, i;

    if (!s)
        return false;
    hole = (size_t)(s - m->slots);
    for (i = (hole + 1) & (m->cap - 1); m->slots[i].used; i = (i + 1) & (m->cap - 1)) {
        size_t home = bucket(m, m->slots[i].key);

        /* what may stand at the hole moves there: its home is not between the hole and where it is */
        if (((i - home) & (m->cap - 1)) >= ((i - hole) & (m->cap - 1))) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole].used = false;
    m->n--;
    return true;
}

void wp_map_fini(struct wp_map *m)
{
    wp_free(m->slots);
    m->slots = NULL;
    m->n = m->cap = 0;
}

bool wp_map_next(const struct wp_map *m, size_t *i, uint64_t *key, uint64_t *value)
{
    for (; *i < m->cap; (*i)++)
        if (m->slots[*i].used) {
            *key = m->slots[*i].key;
            *value = m->slots[(*i)++].value;
            return true;
        }
    return false;
}
