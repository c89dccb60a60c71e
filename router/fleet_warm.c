/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet that goes on with a snapshot's index: which rank is which holder. */
#include "router/fleet_inner.h"

#include "base/mem.h"
#include "index/save.h"

static struct wp_warm_rank *record(struct wp_list *at)
{
    return WP_CONTAINER(at, struct wp_warm_rank, link);
}

int wp_fleet_restore(struct wp_fleet *f, const char *file, struct wp_err *err)
{
    struct wp_index_conf ic = {.cap_bytes = wp_config_index_cap(f->conf)};
    struct wp_index *ix = NULL;
    int rc = wp_warm_read(file, &ic, &ix, &f->warm, err);

    if (rc < 0)
        return rc;
    wp_index_destroy(f->index);
    f->index = ix;
    wp_index_watch(ix, wp_rooms_left, f->rooms);
    return 0;
}

static bool is_taken(const struct wp_fleet *f, const struct wp_warm_rank *rec)
{
    WP_LIST_EACH((struct wp_list *)&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (uint32_t i = 0; i < w->n_ranks; i++)
            if (w->rank[i].warm == rec)
                return true;
    }
    return false;
}

bool wp_fleet_rewarm(struct wp_fleet *f, const struct wp_worker *w, struct wp_rank *r)
{
    WP_LIST_EACH(&f->warm, at)
    {
        struct wp_warm_rank *rec = record(at);

        if (rec->rank != r->number || rec->ranks != w->n_ranks || strcmp(rec->id, w->conf.id) != 0 ||
            strcmp(rec->url, w->conf.url) != 0 || is_taken(f, rec))
            continue;
        r->holder = rec->holder;
        r->warm = rec;
        r->unsure = true;
        return true;
    }
    return false;
}

/* A worker that has not said yet how many ranks it has may come back with those of the snapshot. */
static bool may_come(const struct wp_fleet *f, const struct wp_warm_rank *rec)
{
    WP_LIST_EACH((struct wp_list *)&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        if (strcmp(w->conf.id, rec->id) == 0 && strcmp(w->conf.url, rec->url) == 0)
            return !w->joined && !w->conf.ranks;
    }
    return false;
}

void wp_fleet_drop_cold(struct wp_fleet *f)
{
    WP_LIST_EACH(&f->warm, at)
    {
        struct wp_warm_rank *rec = record(at);

        if (is_taken(f, rec) || may_come(f, rec))
            continue;
        wp_index_drop(f->index, rec->holder);
        wp_warm_free(rec);
    }
}

/* Holders that no record speaks of, and records that no worker is of. */
void wp_fleet_restored(struct wp_fleet *f)
{
    size_t n;

    pthread_mutex_lock(&f->lock);
    wp_fleet_drop_cold(f);
    n = wp_index_holders(f->index);
    for (uint32_t h = 0; h < n; h++) {
        bool known = false;

        WP_LIST_EACH(&f->warm, at)
        known = known || record(at)->holder == h;
        WP_LIST_EACH(&f->workers, at)
        {
            const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

            for (uint32_t i = 0; i < w->n_ranks; i++)
                known = known || w->rank[i].holder == h;
        }
        if (!known)
            wp_index_drop(f->index, h);
    }
    pthread_mutex_unlock(&f->lock);
}

struct wp_warm_rank *wp_fleet_take_warm(struct wp_fleet *f, struct wp_worker *w, uint32_t rank)
{
    struct wp_warm_rank *rec = NULL;

    pthread_mutex_lock(&f->lock);
    if (!w->gone && rank < w->n_ranks) {
        rec = w->rank[rank].warm;
        w->rank[rank].warm = NULL;
    }
    if (rec) { /* the caller's alone from here on */
        wp_list_del(&rec->link);
        wp_list_init(&rec->link);
    }
    pthread_mutex_unlock(&f->lock);
    return rec;
}

uint64_t wp_fleet_unsure(const struct wp_fleet *f, const struct wp_rank *r)
{
    uint64_t tier[WP_TIER_MAX], doubtful, n = 0;

    if (!r->unsure)
        return 0;
    wp_index_holder_stats(f->index, r->holder, tier, &doubtful);
    for (int t = 0; t < WP_TIER_MAX; t++)
        n += tier[t];
    return n - doubtful;
}

void wp_fleet_rank_stats(const struct wp_fleet *f, const struct wp_rank *r, uint64_t tier[WP_TIER_MAX], uint64_t *doubtful)
{
    wp_index_holder_stats(f->index, r->holder, tier, doubtful);
    *doubtful += wp_fleet_unsure(f, r);
}
