/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/index/engmap.h"

#include <stdlib.h>

bool engmap_init(struct engmap *m, size_t expected)
{
    *m = (struct engmap){.cap = expected * 4 / 3 + 16};
    m->slot = calloc(m->cap, sizeof *m->slot);
    return m->slot;
}

void engmap_fini(struct engmap *m)
{
    free(m->slot);
}

static size_t next(const struct engmap *m, size_t i)
{
    return i + 1 < m->cap ? i + 1 : 0;
}

static void grow(struct engmap *m)
{
    struct engmap old = *m;

    if (!engmap_init(m, old.n * 2))
        abort();
    for (size_t i = 0; i < old.cap; i++)
        if (old.slot[i].engine)
            engmap_put(m, old.slot[i].engine, old.slot[i].chain);
    engmap_fini(&old);
}

void engmap_put(struct engmap *m, uint64_t engine, uint64_t chain)
{
    size_t i = engmap_home(m, engine);

    while (m->slot[i].engine && m->slot[i].engine != engine)
        i = next(m, i);
    if (!m->slot[i].engine && ++m->n > m->cap / 8 * 7) {
        m->n--;
        grow(m);
        engmap_put(m, engine, chain);
        return;
    }
    m->slot[i] = (struct engmap_slot){engine, chain};
}

bool engmap_take(struct engmap *m, uint64_t engine, uint64_t *chain)
{
    size_t i = engmap_home(m, engine), j, home;

    while (m->slot[i].engine != engine) {
        if (!m->slot[i].engine)
            return false;
        i = next(m, i);
    }
    *chain = m->slot[i].chain;
    for (j = next(m, i); m->slot[j].engine; j = next(m, j)) {
        home = engmap_home(m, m->slot[j].engine);
        if (i <= j ? (home <= i || home > j) : (home <= i && home > j)) {
            m->slot[i] = m->slot[j];
            i = j;
        }
    }
    m->slot[i].engine = 0;
    m->n--;
    return true;
}
