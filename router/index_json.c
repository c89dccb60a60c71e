/* SPDX-License-Identifier: Apache-2.0 */
/* What the index holds, for operators: of all, of each rank, and the longest prefixes that several of them have. */
#include "router/fleet_inner.h"

#include "base/clock.h"

static uint64_t locations_of(struct wp_fleet *f, const struct wp_rank *r)
{
    uint64_t tier[WP_TIER_MAX], doubtful, n = 0;

    wp_index_holder_stats(f->index, r->holder, tier, &doubtful);
    for (int t = 0; t < WP_TIER_MAX; t++)
        n += tier[t];
    return n;
}

void wp_fleet_note_growth(struct wp_fleet *f)
{
    uint64_t now = wp_now_us();
    struct wp_index_stats s;

    pthread_mutex_lock(&f->lock);
    if (wp_growth_due(&f->growth_bytes, now)) {
        wp_index_stats(f->index, &s);
        wp_growth_note(&f->growth_bytes, s.bytes, now);
        wp_growth_note(&f->growth_blocks, s.blocks, now);
        wp_growth_note(&f->growth_locations, s.locations, now);
        WP_LIST_EACH(&f->workers, at)
        {
            struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

            for (uint32_t i = 0; i < w->n_ranks; i++)
                wp_growth_note(&w->rank[i].growth, locations_of(f, &w->rank[i]), now);
        }
    }
    pthread_mutex_unlock(&f->lock);
}

static int rank_json(struct wp_fleet *f, const struct wp_worker *w, const struct wp_rank *r, struct wp_buf *b)
{
    uint64_t tier[WP_TIER_MAX], doubtful, blocks, bytes;
    int rc = wp_buf_adds(b, "{\"worker\":");

    wp_fleet_rank_stats(f, r, tier, &doubtful);
    wp_index_holder_size(f->index, r->holder, &blocks, &bytes);
    rc = rc ? rc : wp_buf_json(b, wp_str_of(w->conf.id));
    rc = rc ? rc : wp_buf_printf(b, ",\"rank\":%u,\"blocks\":%llu,\"gpu\":%llu,\"cpu\":%llu,\"disk\":%llu,\"remote\":%llu,\"doubtful\":%llu,"
                                    "\"floating\":%llu,\"growth\":%lld,\"bytes\":%llu",
                                 r->number, (unsigned long long)blocks, (unsigned long long)tier[0], (unsigned long long)tier[1],
                                 (unsigned long long)tier[2], (unsigned long long)tier[3], (unsigned long long)doubtful,
                                 (unsigned long long)wp_index_holder_floating(f->index, r->holder),
                                 (long long)wp_growth_of(&r->growth, locations_of(f, r)), (unsigned long long)bytes);
    return rc ? rc
              : wp_buf_printf(b, ",\"history\":%zu,\"in_flight\":%u,\"feed\":\"%s\",\"coverage\":%.4g}",
                              wp_history_blocks(f->history, r->holder), r->load.in_flight, r->feed_state, r->coverage);
}

static int ranks_json(struct wp_fleet *f, struct wp_buf *b)
{
    bool any = false;
    int rc = wp_buf_adds(b, "\"workers\":[");

    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (uint32_t i = 0; rc == 0 && i < w->n_ranks; i++) {
            rc = any ? wp_buf_adds(b, ",") : 0;
            rc = rc ? rc : rank_json(f, w, &w->rank[i], b);
            any = true;
        }
    }
    return rc ? rc : wp_buf_adds(b, "]");
}

static int holder_json(struct wp_fleet *f, uint32_t holder, struct wp_buf *b)
{
    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (uint32_t i = 0; i < w->n_ranks; i++) {
            int rc;

            if (w->rank[i].holder != holder)
                continue;
            rc = wp_buf_adds(b, "{\"worker\":");
            rc = rc ? rc : wp_buf_json(b, wp_str_of(w->conf.id));
            return rc ? rc : wp_buf_printf(b, ",\"rank\":%u}", i);
        }
    }
    return wp_buf_adds(b, "null"); /* it went meanwhile */
}

static int prefix_json(struct wp_fleet *f, const struct wp_index_prefix *p, struct wp_buf *b)
{
    enum wp_space_kind kind = WP_SPACE_TOKENS;
    struct wp_buf model = {0};
    uint32_t size = 0;
    int rc = wp_buf_adds(b, "{\"model\":");

    wp_index_space_is(f->index, p->space, &model, &size, &kind);
    rc = rc ? rc : wp_buf_json(b, wp_buf_str(&model));
    rc = rc ? rc : wp_buf_printf(b, ",\"block_size\":%u,\"blocks\":%u,\"holders\":%u,\"block_hash\":\"%llu\",\"workers\":[", size, p->blocks,
                                 p->holders, (unsigned long long)p->chain);
    wp_buf_fini(&model);
    for (uint32_t i = 0; rc == 0 && i < p->holders && i < WP_TOP_HOLDERS; i++) {
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : holder_json(f, p->holder[i], b);
    }
    return rc ? rc : wp_buf_adds(b, "]}");
}

static int top_json(struct wp_fleet *f, const struct wp_index_prefix *top, size_t n, struct wp_buf *b)
{
    int rc = wp_buf_adds(b, ",\"top\":[");

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : prefix_json(f, &top[i], b);
    }
    return rc ? rc : wp_buf_adds(b, "]");
}

int wp_fleet_index_json(struct wp_fleet *f, const struct wp_index_prefix *top, size_t n, struct wp_buf *b)
{
    struct wp_index_stats s;
    int rc;

    pthread_mutex_lock(&f->lock);
    wp_index_stats(f->index, &s);
    WP_LIST_EACH(&f->workers, at)
    {
        const struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (uint32_t i = 0; i < w->n_ranks; i++)
            s.doubtful += wp_fleet_unsure(f, &w->rank[i]);
    }
    rc = wp_buf_printf(b, "{\"blocks\":%llu,\"locations\":%llu,\"floating\":%llu,\"doubtful\":%llu,\"bytes\":%llu,\"cap_bytes\":%llu,"
                          "\"evicted\":%llu,\"in_flight_blocks\":%zu,",
                       (unsigned long long)s.blocks, (unsigned long long)s.locations, (unsigned long long)s.floating,
                       (unsigned long long)s.doubtful, (unsigned long long)s.bytes, (unsigned long long)s.cap_bytes,
                       (unsigned long long)s.evicted, wp_history_in_flight(f->history));
    rc = rc ? rc : wp_buf_printf(b, "\"growth\":{\"blocks\":%lld,\"locations\":%lld,\"bytes\":%lld},",
                                 (long long)wp_growth_of(&f->growth_blocks, s.blocks),
                                 (long long)wp_growth_of(&f->growth_locations, s.locations),
                                 (long long)wp_growth_of(&f->growth_bytes, s.bytes));
    rc = rc ? rc : ranks_json(f, b);
    rc = rc || !top ? rc : top_json(f, top, n, b);
    pthread_mutex_unlock(&f->lock);
    return rc ? rc : wp_buf_adds(b, "}");
}
