/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/timeline.h"

#include "base/mem.h"
#include "index/identity.h"
#include "tests/lib/test.h"

enum { SECRET = 77 };

static struct wp_ingest *ingest_of(struct wp_timeline *t, size_t rank)
{
    struct wp_ingest_conf conf = {.index = t->ix,
                                  .model = WP_STR("m"),
                                  .domain = WP_STR(""),
                                  .block_size = t->told_size,
                                  .secret = SECRET};
    struct wp_err err = WP_ERR_INIT;

    if (t->rank[rank])
        return t->rank[rank];
    wp_index_holder(t->ix, WP_HOLDER_RANK, WP_NO_HOLDER, &t->holder[rank], &err);
    conf.holder = t->holder[rank];
    EXPECT_INT("ingest", 0, wp_ingest_create(&t->rank[rank], &conf, &err));
    return t->rank[rank];
}

static bool on_head(void *arg, struct wp_str payload, struct wp_batch_head *out)
{
    struct wp_timeline_feed *f = arg;
    struct wp_err err = WP_ERR_INIT;

    if (wp_event_open(&f->batch, payload, &err) < 0)
        return false;
    *out = (struct wp_batch_head){f->batch.ts, f->batch.has_rank, f->batch.rank};
    return true;
}

static void on_step(void *arg, const struct wp_sub_step *step)
{
    struct wp_timeline_feed *f = arg;
    struct wp_timeline *t = f->of;
    size_t socket = (size_t)(f - t->feed), rank = socket;
    struct wp_ingest *p;

    if (step->apply && f->batch.has_rank && f->batch.rank < WP_TIMELINE_RANKS)
        rank = f->batch.rank;
    p = ingest_of(t, rank);
    if (step->clear == WP_CLEAR_DOUBT)
        wp_ingest_doubt(p);
    if (step->clear == WP_CLEAR_GONE)
        wp_ingest_gone(p);
    if (step->apply)
        wp_ingest_batch(p, &f->batch, t->now_us);
}

void wp_timeline_init(struct wp_timeline *t, uint32_t told_size)
{
    struct wp_err err = WP_ERR_INIT;

    *t = (struct wp_timeline){.told_size = told_size};
    EXPECT_INT("index", 0,
               wp_index_create(&t->ix, &(struct wp_index_conf){.secret = SECRET}, &err));
    EXPECT_INT("overlap", 0, wp_overlap_init(&t->o, WP_TIMELINE_RANKS));
}

void wp_timeline_fini(struct wp_timeline *t)
{
    struct wp_err err = WP_ERR_INIT;
    bool ok = wp_index_verify(t->ix, &err);

    EXPECT_TRUE(ok ? "verify" : err.text, ok);
    for (size_t i = 0; i < WP_TIMELINE_RANKS; i++) {
        wp_ingest_destroy(t->rank[i]);
        if (t->feed[i].open)
            wp_subscriber_fini(&t->feed[i].sub);
    }
    wp_overlap_fini(&t->o);
    wp_index_destroy(t->ix);
}

void wp_timeline_live(struct wp_timeline *t, size_t socket, const struct wp_str frame[3])
{
    struct wp_timeline_feed *f = &t->feed[socket];

    if (!f->open) {
        wp_subscriber_init(&f->sub,
                           &(struct wp_sub_conf){.head = on_head, .step = on_step, .arg = f});
        wp_subscriber_connected(&f->sub, t->now_us);
        f->of = t;
        f->open = true;
    }
    t->now_us += 1000;
    wp_subscriber_live(&f->sub, frame, 3, t->now_us);
}

void wp_timeline_payload(struct wp_timeline *t, size_t rank, struct wp_str payload)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;

    EXPECT_INT("payload", 0, wp_event_open(&b, payload, &err));
    wp_ingest_batch(ingest_of(t, rank), &b, t->now_us);
}

/* Blocks of pairs have a token more, at the same stride. */
static size_t hash_prompt(const uint32_t token[], size_t n, uint32_t size, bool bigram,
                          uint64_t seed, uint64_t *local)
{
    size_t blocks = wp_usable_blocks(n, size);

    for (size_t i = 0; i < blocks; i++)
        wp_hash_tokens(token + i * size, size + bigram, size + bigram, seed, &local[i], 1);
    return blocks;
}

size_t wp_timeline_claim(struct wp_timeline *t, size_t rank, const uint32_t token[], size_t n,
                         struct wp_str lora, struct wp_str salt, uint32_t *doubtful)
{
    struct wp_ingest *p = ingest_of(t, rank);
    uint64_t *local = wp_calloc(n + 1, sizeof *local);
    uint32_t space;
    size_t blocks, most = 0;

    if (doubtful)
        *doubtful = 0;
    for (int bigram = 0; local && bigram <= 1; bigram++) {
        const struct wp_overlap_row *row;

        if (!wp_ingest_space(p, bigram, &space))
            continue;
        blocks = hash_prompt(token, n, wp_ingest_its_block_size(p), bigram,
                             wp_hash_seed(lora, salt), local);
        wp_index_overlap(t->ix, space, local, blocks, &t->o);
        row = wp_overlap_of(&t->o, t->holder[rank]);
        if (!row || row->blocks <= most)
            continue;
        most = row->blocks;
        if (doubtful)
            *doubtful = row->doubtful;
    }
    wp_free(local);
    return most;
}
