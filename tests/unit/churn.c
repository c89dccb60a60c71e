/* SPDX-License-Identifier: Apache-2.0 */
/* The workloads that benchmarks of the index play: they must be what an engine could send, or the
 * figures mean nothing. */
#include "tests/lib/churn.h"
#include "base/mem.h"
#include "tests/lib/test.h"

enum { WORKERS = 8, CAPACITY = 2048, BATCH = 20000, REQUESTS = 4000 };

static void make_trace(struct wp_trace *t)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_trace_spec spec = {.kind = "chat", .requests = 300, .seed = 3};

    EXPECT_INT("trace", 0, wp_trace_make(t, &spec, &err));
}

static void start(struct churn *c, struct kv_batch *b, const struct wp_trace *t, bool opaque)
{
    struct wp_err err = WP_ERR_INIT;
    struct churn_conf conf = {t, WORKERS, CAPACITY, 3, 7};

    EXPECT_INT("churn", 0, churn_init(c, &conf, &err));
    EXPECT_INT("batch", 0, kv_batch_init(b, 4096, BATCH + CHURN_EVENT_MAX, opaque));
}

/* What one worker holds, by engine hash, checked event by event. */
struct told {
    struct wp_map held[WORKERS];
    uint64_t n, bad_removals, bad_stores, bad_parents, over;
};

static void tell(struct told *t, const struct kv_batch *b)
{
    for (size_t i = 0; i < b->n_items; i++) {
        const struct kv_item *it = &b->item[i];
        struct wp_map *held = &t->held[it->worker];

        if (it->kind == WP_KV_STORED && it->has_parent && !wp_map_at(held, it->parent))
            t->bad_parents++;
        for (uint64_t k = it->at; k < it->at + it->n; k++)
            if (it->kind == WP_KV_REMOVED) {
                if (wp_map_del(held, b->engine[k]))
                    t->n--;
                else
                    t->bad_removals++;
            } else if (wp_map_at(held, b->engine[k])) {
                t->bad_stores++;
            } else {
                EXPECT_INT("put", 0, wp_map_put(held, b->engine[k], 1));
                t->n++;
            }
        t->over += held->n > CAPACITY;
    }
}

static void told_fini(struct told *t)
{
    for (int w = 0; w < WORKERS; w++)
        wp_map_fini(&t->held[w]);
}

static void events_are_what_engines_could_send(void)
{
    struct wp_trace trace;
    struct churn c;
    struct kv_batch b;
    struct told t = {0};

    make_trace(&trace);
    start(&c, &b, &trace, true);
    for (int i = 0; i < REQUESTS; i++) {
        kv_batch_reset(&b);
        churn_next(&c, &b);
        tell(&t, &b);
    }
    EXPECT_UINT("removed what was not held", 0, t.bad_removals);
    EXPECT_UINT("stored what was held", 0, t.bad_stores);
    EXPECT_UINT("hung from what was not held", 0, t.bad_parents);
    EXPECT_UINT("held more than a worker can", 0, t.over);
    EXPECT_UINT("counted", t.n, c.held);
    EXPECT_TRUE("in steady state", !churn_filling(&c) && c.evicted > c.held);
    told_fini(&t);
    kv_batch_fini(&b);
    churn_fini(&c);
    wp_trace_fini(&trace);
}

/* Of a prompt's blocks a worker holds the first so many, and none behind them. */
static void tails_go_first(void)
{
    struct wp_trace trace;
    struct churn c;
    struct kv_batch b;
    struct told t = {0};
    static uint64_t local[4096], chain[4096];
    unsigned beheaded = 0;

    make_trace(&trace);
    start(&c, &b, &trace, false);
    for (int i = 0; i < REQUESTS; i++) {
        struct churn_prompt p;
        bool hole[WORKERS] = {false};

        kv_batch_reset(&b);
        p = churn_next(&c, &b);
        tell(&t, &b);
        for (size_t k = 0, n = churn_hashes(&c, &p, 4096, local, chain); k < n; k++)
            for (int w = 0; w < WORKERS; w++) {
                bool held = wp_map_at(&t.held[w], chain[k]);

                beheaded += held && hole[w];
                hole[w] |= !held;
            }
    }
    EXPECT_UINT("blocks without the one before", 0, beheaded);
    told_fini(&t);
    kv_batch_fini(&b);
    churn_fini(&c);
    wp_trace_fini(&trace);
}

static void the_same_configuration_gives_the_same_events(void)
{
    struct wp_trace trace;
    struct churn c[2];
    struct kv_batch b[2];

    make_trace(&trace);
    for (int i = 0; i < 2; i++) {
        start(&c[i], &b[i], &trace, i);
        churn_fill(&c[i], &b[i], BATCH);
    }
    EXPECT_UINT("events", b[0].n_items, b[1].n_items);
    EXPECT_UINT("blocks", b[0].n, b[1].n);
    EXPECT_INT("local hashes", 0, memcmp(b[0].local, b[1].local, b[0].n * sizeof b[0].local[0]));
    EXPECT_INT("shared names are the chain's", 0,
               memcmp(b[0].engine, b[0].chain, b[0].n * sizeof b[0].chain[0]));
    EXPECT_TRUE("names of a worker's own are not", b[1].engine[0] != b[1].chain[0]);
    EXPECT_TRUE("two workers call a block by two names",
                kv_engine(1, 0, true) != kv_engine(1, 1, true));
    for (int i = 0; i < 2; i++) {
        kv_batch_fini(&b[i]);
        churn_fini(&c[i]);
    }
    wp_trace_fini(&trace);
}

/* The index says of each prompt that the churn calls whole that the worker has all of it. */
static void whole_prompts_are_whole_in_the_index(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_index_conf conf = {.secret = 1};
    struct wp_trace trace;
    struct churn c;
    struct kv_batch b;
    struct wp_index *ix;
    struct wp_overlap o;
    struct churn_prompt p[64];
    uint64_t local[128];
    uint32_t space, holder;
    unsigned refused = 0;
    size_t n;

    make_trace(&trace);
    start(&c, &b, &trace, true);
    EXPECT_INT("index", 0, wp_index_create(&ix, &conf, &err));
    EXPECT_INT("space", 0,
               wp_index_space(ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &space, &err));
    for (int w = 0; w < WORKERS; w++)
        EXPECT_INT("holder", 0, wp_index_holder(ix, WP_HOLDER_RANK, WP_NO_HOLDER, &holder, &err));
    EXPECT_INT("overlap", 0, wp_overlap_init(&o, WORKERS));
    churn_fill(&c, &b, BATCH);
    kv_batch_cut(&b, 64); /* pieces of an event hang from one another */
    for (size_t i = 0; i < b.n_items; i++) {
        struct wp_kv_event ev = kv_batch_as_event(&b, &b.item[i]);
        struct wp_kv_result res;

        ev.space = space;
        wp_index_apply(ix, &ev, &res);
        refused += res.refused || res.unknown || res.floating || res.ignored;
    }
    EXPECT_UINT("events that were not applied whole", 0, refused);
    n = churn_prompts(&c, 128, p, 64);
    EXPECT_TRUE("some are whole", n > 4);
    for (size_t i = 0; i < n; i++) {
        const struct wp_overlap_row *row;

        EXPECT_UINT("blocks", 128, churn_hashes(&c, &p[i], 128, local, NULL));
        wp_index_overlap(ix, space, local, 128, &o);
        row = wp_overlap_of(&o, p[i].worker);
        EXPECT_UINT("held", 128, row ? row->blocks : 0);
    }
    wp_overlap_fini(&o);
    wp_index_destroy(ix);
    kv_batch_fini(&b);
    churn_fini(&c);
    wp_trace_fini(&trace);
}

static void twins_stand_behind_their_events(void)
{
    struct kv_batch b;

    EXPECT_INT("batch", 0, kv_batch_init(&b, 8, 16, false));
    for (uint32_t w = 0; w < 3; w++) {
        kv_batch_event(&b, WP_KV_STORED, w);
        kv_batch_block(&b, kv_key(1, w), 0);
    }
    kv_batch_twin(&b, 2, 1, true);
    EXPECT_UINT("of the odd worker alone", 4, b.n_items);
    EXPECT_UINT("itself", 0, b.item[1].tier);
    EXPECT_UINT("its twin", 1, b.item[2].worker);
    EXPECT_UINT("tier", 2, b.item[2].tier);
    EXPECT_UINT("group", 1, b.item[2].group);
    EXPECT_UINT("the same blocks", b.item[1].at, b.item[2].at);
    kv_batch_fini(&b);
}

static void running_out_of_memory_leaks_nothing(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_trace trace;
    struct churn c;
    struct churn_conf conf = {&trace, 2, 256, 1, 1};
    long live;

    make_trace(&trace);
    live = wp_mem_live();
    for (long nth = 0;; nth++) {
        int rc;

        wp_mem_fail_after(nth);
        rc = churn_init(&c, &conf, &err);
        if (!wp_mem_failed()) {
            EXPECT_INT("made at last", 0, rc);
            churn_fini(&c);
            break;
        }
        EXPECT_INT("out of memory", WP_ENOMEM, rc);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
    wp_mem_fail_after(-1);
    conf.capacity = 1;
    EXPECT_INT("too small", WP_EINVAL, churn_init(&c, &conf, &err));
    wp_trace_fini(&trace);
}

static const struct wp_test tests[] = {
    {"events are what engines could send", events_are_what_engines_could_send},
    {"tails go first", tails_go_first},
    {"the same configuration gives the same events", the_same_configuration_gives_the_same_events},
    {"whole prompts are whole in the index", whole_prompts_are_whole_in_the_index},
    {"twins stand behind their events", twins_stand_behind_their_events},
    {"running out of memory leaks nothing", running_out_of_memory_leaks_nothing},
    {NULL, NULL},
};
const struct wp_suite suite_churn = {"churn", tests};
