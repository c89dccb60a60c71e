/* SPDX-License-Identifier: Apache-2.0 */
/* The index under pressure: memory that runs out or is capped, churn, readers beside the writer. */
#include "index/index.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/index_rig.h"
#include "tests/lib/test.h"

#include <pthread.h>

/* Chains of twelve blocks that share their first four with the nine others of their family. */
static size_t numbered(uint64_t chain, uint64_t local[12])
{
    for (uint64_t i = 0; i < 12; i++)
        local[i] = i < 4 ? 1 + chain / 10 * 100 + i : 1000000 + chain * 100 + i;
    return 12;
}

static void apply_chain(struct wp_index_rig *r, enum wp_kv_kind kind, uint32_t holder,
                        uint64_t chain, size_t from)
{
    uint64_t local[12];
    struct wp_kv_event ev = {.kind = kind, .holder = holder, .space = r->space, .main_group = true};

    ev.n = numbered(chain, local) - from;
    ev.engine = ev.local = local + from;
    ev.has_parent = from > 0;
    ev.parent = local[from ? from - 1 : 0];
    wp_index_apply(r->ix, &ev, &r->res);
}

static void churn_leaves_the_memory_flat(void)
{
    struct wp_index_rig r;
    struct wp_index_stats warm = {0}, s;
    long live = 0;

    wp_index_rig_init(&r, NULL);
    for (uint64_t i = 0; i < 4000; i++) {
        apply_chain(&r, WP_KV_STORED, r.w[i % 4], i, 0);
        if (i >= 1000)
            apply_chain(&r, WP_KV_REMOVED, r.w[(i - 1000) % 4], i - 1000, 0);
        if (i == 1000) {
            wp_index_stats(r.ix, &warm);
            live = wp_mem_live();
        }
    }
    wp_index_stats(r.ix, &s);
    EXPECT_TRUE("within a twentieth", s.bytes <= warm.bytes + warm.bytes / 20);
    EXPECT_TRUE("a few chunks at most", wp_mem_live() <= live + 4);
    EXPECT_TRUE("blocks are there", s.blocks > 8000);
    for (int i = 0; i < 4; i++)
        wp_index_clear(r.ix, r.w[i]);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("and none in the end", 0, s.blocks);
    wp_index_rig_fini(&r);
}

static void the_cap_evicts_tails_first_from_the_holder_with_the_most(void)
{
    enum { CAP = 1 << 20, SMALL = 20 };
    struct wp_index_rig r;
    struct wp_index_stats s;
    uint64_t local[12], tier[WP_TIER_MAX], doubtful;
    bool whole = true;
    size_t some = 0;

    wp_index_rig_init(&r, &(struct wp_index_conf){.cap_bytes = CAP, .secret = 3});
    for (uint64_t i = 0; i < SMALL; i++)
        apply_chain(&r, WP_KV_STORED, r.w[3], 1000 + i, 0);
    for (uint64_t i = 0; i < 3000; i++)
        apply_chain(&r, WP_KV_STORED, r.w[2], 10000 + i, 0);
    wp_index_stats(r.ix, &s);
    EXPECT_TRUE("never over the cap", s.bytes <= CAP);
    EXPECT_TRUE("some were evicted", s.evicted > 1000);
    for (uint64_t i = 0; i < SMALL; i++) {
        size_t n = numbered(1000 + i, local);

        whole = whole && wp_index_overlap(r.ix, r.space, local, n, &r.o) == n;
    }
    EXPECT_TRUE("the small holder keeps all it has", whole);
    for (uint64_t i = 0; i < 3000;
         i++) { /* what is held is reached from the start: no prefix lost its head */
        const struct wp_overlap_row *row;
        size_t n = numbered(10000 + i, local);

        wp_index_overlap(r.ix, r.space, local, n, &r.o);
        row = wp_overlap_of(&r.o, r.w[2]);
        some += row && row->blocks > 4 ? row->blocks - 4 : 0;
        if (i % 10 == 0)
            some += row ? row->blocks < 4 ? row->blocks : 4 : 0;
    }
    wp_index_holder_stats(r.ix, r.w[2], tier, &doubtful);
    EXPECT_UINT("all that is held can be used", tier[0], some);
    numbered(12999, local);
    EXPECT_UINT("the newest is whole", 12, wp_index_overlap(r.ix, r.space, local, 12, &r.o));
    wp_index_rig_fini(&r);
}

static void a_cap_too_small_for_anything_refuses(void)
{
    struct wp_index_rig r;

    wp_index_rig_init(&r, &(struct wp_index_conf){.cap_bytes = 120000});
    apply_chain(&r, WP_KV_STORED, r.w[2], 1, 0);
    EXPECT_UINT("refused", 12, r.res.refused);
    apply_chain(&r, WP_KV_STORED, r.w[2], 1, 3);
    EXPECT_UINT("refused, floating too", 9, r.res.refused);
    wp_index_rig_fini(&r);
}

static void floating_chains_are_bounded_oldest_tails_first(void)
{
    struct wp_index_rig r;
    struct wp_index_stats s;

    wp_index_rig_init(&r, &(struct wp_index_conf){.floating_max = 5});
    wp_index_rig_store(&r, r.w[2], 0, "?", "abc");
    wp_index_rig_store(&r, r.w[2], 0, "!", "xyz");
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("no more than that", 5, s.floating);
    EXPECT_UINT("one went", 1, s.evicted);
    EXPECT_UINT("the older chain's tail", 2, wp_index_rig_graft(&r, r.w[2], "1abc"));
    EXPECT_UINT("the newer is whole", 3, wp_index_rig_graft(&r, r.w[2], "1xyz"));
    wp_index_rig_store(&r, r.w[2], 0, "%", "ghijkl");
    EXPECT_UINT("a chain longer than that is kept at its start", 1, r.res.refused);
    wp_index_stats(r.ix, &s);
    EXPECT_UINT("five", 5, s.floating);
    wp_index_rig_fini(&r);
}

/* A life with everything in it; what was refused is for the caller to judge. */
static size_t live_a_little(struct wp_index_rig *r)
{
    size_t refused = 0;
    uint64_t local[12];

    for (uint64_t i = 0; i < 120; i++) {
        apply_chain(r, WP_KV_STORED, r->w[i % 4], i, 0);
        refused += r->res.refused;
        apply_chain(r, WP_KV_STORED, r->w[(i + 1) % 4], i + 1000, 5);
        refused += r->res.refused;
        if (i % 3 == 0)
            apply_chain(r, WP_KV_REMOVED, r->w[i % 4], i, 6);
        if (i % 5 == 0)
            wp_index_graft(r->ix, r->w[(i + 1) % 4], r->space, local, numbered(i + 1000, local));
        if (i == 60)
            wp_index_drop(r->ix, r->w[0]);
    }
    return refused;
}

static void any_allocation_may_fail(void)
{
    long live = wp_mem_live();
    size_t failures = 0;

    for (long nth = 0;; nth++) {
        struct wp_index_rig r;
        struct wp_err err = WP_ERR_INIT;
        bool failed, ok;

        wp_index_rig_init(&r, NULL);
        wp_mem_fail_after(nth);
        live_a_little(&r);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        ok = wp_index_verify(r.ix, &err);
        EXPECT_TRUE(ok ? "verify" : err.text, ok);
        wp_index_rig_fini(&r);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        failures += failed;
        if (!failed)
            break;
    }
    EXPECT_TRUE("there were allocations to fail", failures > 10);
}

static void making_the_frame_may_run_out_of_memory(void)
{
    long live = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_index *ix = NULL;
        struct wp_err err = WP_ERR_INIT;
        struct wp_overlap o = {0};
        uint32_t n;
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_index_create(&ix, &(struct wp_index_conf){0}, &err);
        if (rc == 0)
            rc = wp_index_space(ix, WP_STR("m"), 16, WP_STR("d"), WP_SPACE_TOKENS, &n, &err);
        if (rc == 0)
            rc = wp_index_holder(ix, WP_HOLDER_RANK, WP_NO_HOLDER, &n, &err);
        if (rc == 0)
            rc = wp_overlap_init(&o, 70);
        wp_overlap_fini(&o);
        wp_index_destroy(ix);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        if (!wp_mem_failed())
            break;
        EXPECT_INT("says so", WP_ENOMEM, rc);
    }
    wp_mem_fail_after(-1);
}

/* Two readers ask while the main thread stores, removes, drops and grafts: for the thread
 * sanitizer, and for claims. */
struct reader {
    struct wp_index_rig *r;
    _Atomic bool *stop;
    size_t asked, wrong;
};

static void *read_on(void *arg)
{
    struct reader *me = arg;
    struct wp_rng rng = {(uintptr_t)me};
    struct wp_overlap o;
    struct wp_index_stats s;
    uint64_t local[12], tier[WP_TIER_MAX], doubtful;

    if (wp_overlap_init(&o, 64) < 0)
        return NULL;
    while (!*me->stop || me->asked < 100) {
        size_t n = numbered(wp_rng_below(&rng, 60), local),
               most = wp_index_overlap(me->r->ix, me->r->space, local, n, &o);

        me->wrong += most > n || (o.n && o.row[0].blocks != most);
        for (size_t i = 0; i < o.n; i++)
            me->wrong += o.row[i].tier[0] + o.row[i].tier[1] != o.row[i].blocks || !o.row[i].blocks;
        wp_index_stats(me->r->ix, &s);
        wp_index_holder_stats(me->r->ix, me->r->w[2], tier, &doubtful);
        me->wrong += s.doubtful > s.locations || doubtful > tier[0] + tier[1];
        me->asked++;
    }
    wp_overlap_fini(&o);
    return NULL;
}

static void readers_and_the_writer_do_not_disturb_each_other(void)
{
    struct wp_index_rig r;
    struct wp_rng rng = {4};
    _Atomic bool stop = false;
    struct reader me[2] = {{.r = &r, .stop = &stop}, {.r = &r, .stop = &stop}};
    pthread_t thread[2];

    wp_index_rig_init(&r, NULL);
    for (int i = 0; i < 2; i++)
        EXPECT_INT("thread", 0, pthread_create(&thread[i], NULL, read_on, &me[i]));
    for (int i = 0; i < 3000; i++) {
        uint64_t chain = wp_rng_below(&rng, 60), local[12];
        uint32_t w = r.w[wp_rng_below(&rng, 4)];

        apply_chain(&r, wp_rng_below(&rng, 2) ? WP_KV_STORED : WP_KV_REMOVED, w, chain,
                    wp_rng_below(&rng, 8));
        if (i % 50 == 0)
            wp_index_graft(r.ix, w, r.space, local, numbered(chain, local));
        if (i % 300 == 0)
            wp_index_doubt(r.ix, w);
        if (i % 500 == 0)
            wp_index_clear(r.ix, w);
    }
    stop = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        EXPECT_TRUE("asked", me[i].asked >= 100);
        EXPECT_UINT("wrong answers", 0, me[i].wrong);
    }
    wp_index_rig_fini(&r);
}

const struct wp_suite suite_index_bounds = {
    "index_bounds",
    (const struct wp_test[]){
        {"churn leaves the memory flat", churn_leaves_the_memory_flat},
        {"the cap evicts tails first, from the holder with the most",
         the_cap_evicts_tails_first_from_the_holder_with_the_most},
        {"a cap too small for anything refuses", a_cap_too_small_for_anything_refuses},
        {"floating chains are bounded, oldest tails first",
         floating_chains_are_bounded_oldest_tails_first},
        {"any allocation may fail", any_allocation_may_fail},
        {"making the frame may run out of memory", making_the_frame_may_run_out_of_memory},
        {"readers and the writer do not disturb each other",
         readers_and_the_writer_do_not_disturb_each_other},
        {NULL, NULL},
    },
};
