/* SPDX-License-Identifier: Apache-2.0 */
/* What an ingest takes for granted, as bytes: for a router that is started again. */
#include "adapters/events/ingest_impl.h"

#include <string.h>

enum { VERSION = 2, SALTS_MAX = 1 << 24 };

struct head {
    uint32_t version, block_size, n_groups, restricting, split_max, window;
    uint8_t has_space[2], bigram, presumed, cleared, has_main, spare[2];
    uint64_t salts, salted;
};

static int put_map(struct wp_buf *out, const struct wp_map *m)
{
    uint64_t pair[2];
    int rc = 0;

    for (size_t i = 0; rc == 0 && wp_map_next(m, &i, &pair[0], &pair[1]);)
        rc = wp_buf_add(out, pair, sizeof pair);
    return rc;
}

int wp_ingest_save(const struct wp_ingest *p, struct wp_buf *out)
{
    struct head h = {
        .version = VERSION,
        .block_size = p->block_size,
        .n_groups = (uint32_t)p->n_groups,
        .restricting = p->restricting,
        .split_max = p->split_max,
        .window = p->window,
        .has_space = {p->has_space[0], p->has_space[1]},
        .bigram = p->bigram,
        .presumed = p->presumed,
        .cleared = p->cleared,
        .has_main = p->has_main,
        .salts = p->salt.n,
        .salted = p->salted.n,
    };
    int rc;

    if (p->gather.n)
        return WP_ENOTSUP;
    rc = wp_buf_add(out, &h, sizeof h);
    for (size_t i = 0; rc == 0 && i < p->n_groups; i++) {
        uint32_t g[3] = {p->group[i].wire, (uint32_t)p->group[i].role, p->group[i].number};

        rc = wp_buf_add(out, g, sizeof g);
    }
    rc = rc ? rc : put_map(out, &p->salt);
    return rc ? rc : put_map(out, &p->salted);
}

static bool take(struct wp_str *from, void *to, size_t n)
{
    if (from->n < n)
        return false;
    memcpy(to, from->p, n);
    from->p += n;
    from->n -= n;
    return true;
}

static bool take_groups(struct wp_ingest *p, struct wp_str *from, const struct head *h)
{
    uint32_t g[3];

    for (uint32_t i = 0; i < h->n_groups; i++) {
        if (!take(from, g, sizeof g) || g[1] > GROUP_IGNORED || g[2] > h->restricting)
            return false;
        p->group[p->n_groups++] = (struct group){g[0], (enum group_role)g[1], (uint16_t)g[2]};
    }
    return true;
}

static bool take_map(struct wp_map *m, struct wp_str *from, uint64_t n)
{
    uint64_t pair[2];

    for (; n; n--)
        if (!take(from, pair, sizeof pair) || wp_map_put(m, pair[0], pair[1]) < 0)
            return false;
    return true;
}

static bool take_all(struct wp_ingest *p, struct wp_str from)
{
    struct head h;

    if (!take(&from, &h, sizeof h) || h.version != VERSION || h.n_groups > GROUPS_MAX ||
        h.restricting > WP_WINDOWS_MAX || h.block_size > BLOCK_SIZE_MAX ||
        h.split_max > BLOCK_SIZE_MAX || h.salts > SALTS_MAX || h.salted > SALTS_MAX ||
        (p->told && h.block_size != p->block_size) ||
        (!h.block_size && (h.has_space[0] || h.has_space[1])))
        return false;
    p->block_size = h.block_size;
    for (int i = 0; i < 2; i++)
        if (h.has_space[i] && !wp_ingest_make_space(p, i))
            return false;
    p->bigram = h.bigram;
    p->presumed = h.presumed;
    p->cleared = h.cleared;
    p->has_main = h.has_main;
    p->restricting = (uint16_t)h.restricting;
    p->split_max = h.split_max;
    p->window = h.window;
    return take_groups(p, &from, &h) && take_map(&p->salt, &from, h.salts) &&
           take_map(&p->salted, &from, h.salted) && !from.n;
}

int wp_ingest_resume(struct wp_ingest *p, struct wp_str saved)
{
    if (take_all(p, saved))
        return 0;
    p->restricting = WP_WINDOWS_MAX; /* whatever the index was told ends */
    wp_ingest_gone(p);
    return WP_EINVAL;
}
