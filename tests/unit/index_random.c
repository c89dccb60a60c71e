/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A million random operations against the oracle.  The universe is small, so that chains share
 * prefixes, hashes meet, and every odd order of events comes up; what an operation is called is
 * said at its function.
 */
#include "index/index.h"

#include "base/mem.h"
#include "base/rng.h"
#include "index/identity.h"
#include "tests/lib/oracle.h"
#include "tests/lib/test.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEPS = 10000 }; /* sanitizers are slow, and the plain build does it all */
#else
enum { STEPS = 100000 };
#endif
enum { SEEDS = 10, HOLDERS = 6, SPACES = 2, CHAIN = 10, FACTS_MAX = 160 };

struct world {
    struct wp_index *ix;
    struct wp_oracle * or ;
    struct wp_overlap o;
    struct wp_rng rng;
    uint32_t space[SPACES];
    uint32_t number[HOLDERS]; /* the holder's number now: ranks 0, 1 of node 4; ranks 2, 3; node 4;
                                 pool 5 */
    uint64_t liars;           /* one hash in so many is one of a few small ones; 0: none */
    uint64_t vague;           /* one store in so many has vague blocks; 0: none */
    bool bounded;    /* floats little, so that it may know less than the oracle, and never more */
    size_t claims;   /* that were compared */
    char wrong[160]; /* the first disagreement */
};

/* Which blocks of a store are vague: CHAIN of these from anywhere. */
static const bool all_vague[2 * CHAIN] = {[3] = true, [4] = true, [9] = true, [15] = true};

static uint64_t below(struct world *w, uint64_t n)
{
    return wp_rng_below(&w->rng, n);
}

static void disagree(struct world *w, const char *what, unsigned long long want,
                     unsigned long long got)
{
    if (!w->wrong[0])
        snprintf(w->wrong, sizeof w->wrong, "%s: want %llu, got %llu", what, want, got);
}

static void make_holder(struct world *w, int i)
{
    static const enum wp_holder_kind kind[HOLDERS] = {WP_HOLDER_RANK, WP_HOLDER_RANK,
                                                      WP_HOLDER_RANK, WP_HOLDER_RANK,
                                                      WP_HOLDER_NODE, WP_HOLDER_POOL};
    uint32_t node = i < 2 ? w->number[4] : WP_NO_HOLDER;
    struct wp_err err = WP_ERR_INIT;

    if (wp_index_holder(w->ix, kind[i], node, &w->number[i], &err) < 0)
        disagree(w, err.text, 0, 1);
    else
        wp_oracle_holder(w->or, w->number[i], node);
}

static void open_world(struct world *w, uint64_t seed, bool bounded)
{
    struct wp_index_conf conf = {.secret = seed, .floating_max = bounded ? 2 : 0};
    struct wp_err err = WP_ERR_INIT;

    *w = (struct world){.rng = {seed}, .bounded = bounded};
    w->vague = (const uint64_t[]){0, 40, 10}[seed / 2 % 3];
    if (!bounded)
        w->liars = (const uint64_t[]){0, 200, 30}[seed % 3];
    w->or = wp_oracle_create();
    if (wp_index_create(&w->ix, &conf, &err) < 0 || wp_overlap_init(&w->o, WP_ORACLE_HOLDERS) < 0)
        abort();
    for (uint32_t i = 0; i < SPACES; i++)
        wp_index_space(w->ix, WP_STR("m"), 16 + i, WP_STR(""), WP_SPACE_TOKENS, &w->space[i], &err);
    make_holder(w, 4);
    for (int i = 0; i < HOLDERS; i++)
        if (i != 4)
            make_holder(w, i);
}

static void close_world(struct world *w)
{
    wp_overlap_fini(&w->o);
    wp_index_destroy(w->ix);
    wp_oracle_destroy(w->or);
}

/* Local hashes of a prompt: mostly the same few, so that prefixes are shared. */
static size_t prompt(struct world *w, uint64_t local[])
{
    size_t n = 1 + below(w, CHAIN);

    for (size_t i = 0; i < n; i++)
        local[i] = below(w, 3) ? i < 4 ? 7 : i : 100 + below(w, 2);
    return n;
}

/* An engine's hash of the block that ends a prefix; sometimes a lie. */
static uint64_t engine_hash(struct world *w, const uint64_t local[], size_t n, uint16_t group)
{
    uint64_t h = 17;

    for (size_t i = 0; i < n; i++)
        h = (h ^ local[i]) * 0x9E3779B97F4A7C15u;
    if (w->liars && below(w, w->liars) == 0)
        return below(w, 4);
    return h + group / 3; /* groups 0 to 2 name blocks alike, as vLLM's do */
}

static struct wp_kv_event event(struct world *w, enum wp_kv_kind kind)
{
    static const uint8_t tier[] = {0, 0, 0, 1, 1, 2, WP_TIER_MAX - 1};

    return (struct wp_kv_event){
        .kind = kind,
        .holder = w->number[below(w, HOLDERS)],
        .space = w->space[below(w, 8) == 0],
        .group = (uint16_t)(below(w, 6)   ? 0
                            : below(w, 3) ? 1
                                          : 2 + below(w, 2)),
        .main_group = below(w, 50) != 0,
        .tier = tier[below(w, sizeof tier)],
    };
}

/* Groups 1 to 3 restrict now and then; group 0 is main unless it is said to be something else. */
static void restrict_group(struct world *w)
{
    static const uint32_t blocks[] = {0, 1, 1, 2, 3, WP_WINDOW_ALL};
    uint32_t holder = w->number[below(w, HOLDERS)];
    uint16_t group = (uint16_t)(below(w, 20) ? 1 + below(w, 3) : 0);
    uint32_t it = blocks[below(w, sizeof blocks / sizeof blocks[0])];

    wp_oracle_window(w->or, holder, group, group == 0, it);
    if (wp_index_window(w->ix, holder, group, group == 0, it) < 0)
        disagree(w, "window", 0, 1);
}

static void compare_results(struct world *w, struct wp_kv_result want, struct wp_kv_result got)
{
    if (w->bounded)
        return;
    if (want.applied != got.applied)
        disagree(w, "applied", want.applied, got.applied);
    if (want.unknown != got.unknown)
        disagree(w, "unknown", want.unknown, got.unknown);
    if (want.floating != got.floating)
        disagree(w, "floating", want.floating, got.floating);
    if (want.ignored != got.ignored)
        disagree(w, "ignored", want.ignored, got.ignored);
    if (want.refused != got.refused)
        disagree(w, "refused", want.refused, got.refused);
}

/* The same blocks in an event each, all of them at once. */
static void apply_pieces(struct world *w, const struct wp_kv_event *ev)
{
    struct wp_kv_event piece[CHAIN];
    struct wp_kv_result want, got[CHAIN];

    for (size_t i = 0; i < ev->n; i++) {
        piece[i] = *ev;
        piece[i].n = 1;
        piece[i].engine = ev->engine + i;
        piece[i].local = ev->local ? ev->local + i : NULL;
        piece[i].vague = ev->vague ? ev->vague + i : NULL;
        piece[i].has_parent = i || ev->has_parent;
        piece[i].parent = i ? ev->engine[i - 1] : ev->parent;
    }
    wp_index_apply_all(w->ix, piece, ev->n, got);
    for (size_t i = 0; i < ev->n; i++) {
        wp_oracle_apply(w->or, &piece[i], &want);
        compare_results(w, want, got[i]);
    }
}

static void apply(struct world *w, const struct wp_kv_event *ev)
{
    struct wp_kv_result want, got;

    if (ev->n > 1 && ev->n <= CHAIN && ev->kind != WP_KV_CLEARED && below(w, 4) == 0) {
        apply_pieces(w, ev);
        return;
    }
    wp_index_apply(w->ix, ev, &got);
    wp_oracle_apply(w->or, ev, &want);
    compare_results(w, want, got);
}

/* Some consecutive blocks of a prompt, from its start or below a parent that may be unknown. */
static void some_blocks(struct world *w, struct wp_kv_event *ev, uint64_t local[],
                        uint64_t engine[])
{
    size_t n = prompt(w, local), from = below(w, 3) ? 0 : (size_t)below(w, n);

    ev->has_parent = from > 0;
    if (from)
        ev->parent = engine_hash(w, local, from, ev->group);
    for (size_t i = from; i < n; i++)
        engine[i] = engine_hash(w, local, i + 1, ev->group);
    ev->n = n - from;
    ev->engine = engine + from;
    ev->local = local + from;
    if (w->vague && below(w, w->vague) == 0)
        ev->vague = all_vague + below(w, CHAIN);
}

static void store(struct world *w)
{
    uint64_t local[CHAIN], engine[CHAIN];
    struct wp_kv_event ev = event(w, WP_KV_STORED);

    some_blocks(w, &ev, local, engine);
    apply(w, &ev);
}

/* Heads, middles or tails, as an engine would, or any. */
static void remove_blocks(struct world *w)
{
    uint64_t local[CHAIN], engine[CHAIN];
    struct wp_kv_event ev = event(w, WP_KV_REMOVED);
    size_t skip;

    some_blocks(w, &ev, local, engine);
    ev.local = NULL;
    skip = (size_t)below(w, ev.n);
    ev.engine += skip;
    ev.n = below(w, 2) ? ev.n - skip : 1;
    apply(w, &ev);
}

/* A tier only, and then often the removal from the one before: a demotion, or a load. */
static void move_tier(struct world *w)
{
    uint64_t local[CHAIN], engine[CHAIN];
    struct wp_kv_event ev = event(w, WP_KV_STORED);

    some_blocks(w, &ev, local, engine);
    ev.local = NULL;
    apply(w, &ev);
    if (below(w, 3) == 0)
        return;
    ev.kind = WP_KV_REMOVED;
    ev.tier = (uint8_t)below(w, 2);
    apply(w, &ev);
}

static void drop_and_come_back(struct world *w)
{
    int i = (int)below(w, HOLDERS), k = (int)below(w, HOLDERS);

    wp_index_drop(w->ix, w->number[i]);
    wp_oracle_drop(w->or, w->number[i]);
    if (k != i && !(i == 4 && k < 2)) { /* two at once, so that numbers change owners */
        wp_index_drop(w->ix, w->number[k]);
        wp_oracle_drop(w->or, w->number[k]);
        if (k == 4 && i < 2) {
            int swap = i;

            i = k;
            k = swap;
        }
        make_holder(w, i);
        make_holder(w, k);
        return;
    }
    make_holder(w, i);
}

static void graft(struct world *w)
{
    uint64_t local[CHAIN];
    size_t n = prompt(w, local), want, got;
    struct wp_kv_event ev = event(w, WP_KV_STORED);

    want = wp_oracle_graft(w->or, ev.holder, ev.space, local, n);
    got = wp_index_graft(w->ix, ev.holder, ev.space, local, n);
    if (want != got)
        disagree(w, "grafted", want, got);
}

/* An answer's cached_tokens: often what the engine was believed to have, as often more or less. */
static void confirm(struct world *w)
{
    uint64_t local[CHAIN];
    size_t n = prompt(w, local), blocks = (size_t)below(w, n + 1), want, got;
    struct wp_kv_event ev = event(w, WP_KV_STORED);

    want = wp_oracle_confirm(w->or, ev.holder, ev.space, local, n, blocks);
    got = wp_index_confirm(w->ix, ev.holder, ev.space, local, n, blocks);
    if (want != got)
        disagree(w, "confirmed", want, got);
}

static void one_step(struct world *w)
{
    uint32_t holder = w->number[below(w, HOLDERS)];
    uint64_t what = below(w, 1000);

    if (wp_oracle_facts(w->or) > FACTS_MAX || what < 4) {
        struct wp_kv_event ev = event(w, WP_KV_CLEARED);

        apply(w, &ev);
    } else if (what < 6) {
        wp_index_clear(w->ix, holder);
        wp_oracle_clear(w->or, holder);
    } else if (what < 10) {
        drop_and_come_back(w);
    } else if (what < 24) {
        wp_index_doubt(w->ix, holder);
        wp_oracle_doubt(w->or, holder);
    } else if (what < 70 && !w->bounded) {
        graft(w);
    } else if (what < 74 && !w->bounded) {
        restrict_group(w);
    } else if (what < 94 && !w->bounded) {
        confirm(w);
    } else if (what < 200) {
        move_tier(w);
    } else if (what < 550) {
        store(w);
    } else {
        remove_blocks(w);
    }
}

static bool in_order(const struct wp_overlap *o)
{
    uint64_t seen = 0;

    for (size_t i = 0; i < o->n; i++) {
        const struct wp_overlap_row *r = &o->row[i], *b = i ? &o->row[i - 1] : NULL;

        if (!r->set[0] || (r->set[0] & seen) || !r->blocks || (b && b->blocks < r->blocks))
            return false;
        if (b && b->blocks == r->blocks && b->doubtful == r->doubtful &&
            memcmp(b->tier, r->tier, sizeof r->tier) == 0)
            return false;
        seen |= r->set[0];
    }
    return true;
}

static void compare_reach(struct world *w, uint32_t space, const uint64_t local[], size_t n)
{
    uint32_t holder = w->number[below(w, HOLDERS)];
    uint64_t chain[CHAIN], back[CHAIN];
    struct wp_reach want, got;
    size_t known = wp_oracle_known(w->or, space, local, n), k;

    wp_oracle_reach(w->or, holder, space, local, n, &want);
    wp_index_reach(w->ix, holder, space, local, n, &got);
    if (memcmp(&want, &got, sizeof want) != 0)
        disagree(w, "where a holder's blocks lie", want.upto[0], got.upto[0]);
    wp_hash_chain(local, n, chain);
    k = wp_index_unchain(w->ix, space, chain, n, back);
    if (k != known)
        disagree(w, "blocks known by their links", known, k);
    if (memcmp(back, local, k * sizeof back[0]) != 0)
        disagree(w, "local hashes of links", local[0], back[0]);
}

static void compare_overlap(struct world *w)
{
    struct wp_oracle_answer want[WP_ORACLE_HOLDERS];
    uint64_t local[CHAIN];
    size_t n = prompt(w, local);
    uint32_t space = w->space[below(w, 8) == 0], most = 0;

    wp_oracle_overlap(w->or, space, local, n, want);
    for (uint32_t h = 0; h < WP_ORACLE_HOLDERS; h++)
        most = want[h].blocks > most ? want[h].blocks : most;
    compare_reach(w, space, local, n);
    n = wp_index_overlap(w->ix, space, local, n, &w->o);
    if (n != most)
        disagree(w, "largest overlap", most, n);
    if (!in_order(&w->o))
        disagree(w, "rows in order", 1, 0);
    for (uint32_t h = 0; h < WP_ORACLE_HOLDERS; h++) {
        const struct wp_overlap_row none = {0}, *row = wp_overlap_of(&w->o, h);

        row = row ? row : &none;
        if (row->blocks != want[h].blocks)
            disagree(w, "overlap", want[h].blocks, row->blocks);
        if (row->doubtful != want[h].doubtful)
            disagree(w, "doubtful", want[h].doubtful, row->doubtful);
        for (int t = 0; t < WP_TIER_MAX; t++)
            if (row->tier[t] != want[h].tier[t])
                disagree(w, "in a tier", want[h].tier[t], row->tier[t]);
    }
}

static void gather_name(void *arg, uint64_t engine, uint16_t group, uint8_t tiers, bool floats)
{
    struct wp_index_digest *d = arg;

    for (; tiers; tiers &= (uint8_t)(tiers - 1)) {
        int t = __builtin_ctz(tiers);

        *(floats ? &d->floating[t] : &d->names[t]) += 1;
        *(floats ? &d->floating_sum[t] : &d->sum[t]) += wp_index_mix(engine, group);
    }
}

static void names_are_the_digests(struct world *w, uint32_t holder,
                                  const struct wp_index_digest *want)
{
    struct wp_index_digest d;
    uint64_t at = 0;

    memset(&d, 0, sizeof d);
    while (wp_index_names(w->ix, holder, &at, gather_name, &d))
        ;
    if (memcmp(&d, want, sizeof d) != 0)
        disagree(w, "names that were told one by one", want->names[0], d.names[0]);
}

static void compare_stats(struct world *w)
{
    struct wp_index_stats want, got;

    wp_oracle_stats(w->or, &want);
    wp_index_stats(w->ix, &got);
    if (want.blocks != got.blocks)
        disagree(w, "blocks", want.blocks, got.blocks);
    if (want.locations != got.locations)
        disagree(w, "locations", want.locations, got.locations);
    if (want.floating != got.floating)
        disagree(w, "floating blocks", want.floating, got.floating);
    if (want.doubtful != got.doubtful)
        disagree(w, "doubtful locations", want.doubtful, got.doubtful);
    for (uint32_t h = 0; h < WP_ORACLE_HOLDERS; h++) {
        uint64_t tier[2][WP_TIER_MAX], doubtful[2];
        struct wp_index_digest digest[2];

        wp_oracle_holder_stats(w->or, h, tier[0], &doubtful[0]);
        wp_index_holder_stats(w->ix, h, tier[1], &doubtful[1]);
        if (doubtful[0] != doubtful[1] || memcmp(tier[0], tier[1], sizeof tier[0]) != 0)
            disagree(w, "a holder's figures", doubtful[0], doubtful[1]);
        wp_oracle_digest(w->or, h, &digest[0]);
        wp_index_digest(w->ix, h, &digest[1]);
        if (memcmp(&digest[0], &digest[1], sizeof digest[0]) != 0)
            disagree(w, "a holder's names, of a tier", digest[0].names[0] + digest[0].floating[0],
                     digest[1].names[0] + digest[1].floating[0]);
        names_are_the_digests(w, h, &digest[1]);
        want.floating -= wp_index_holder_floating(w->ix, h);
    }
    if (want.floating)
        disagree(w, "floating blocks of all holders, too few by", 0, want.floating);
}

static void claims_no_more(struct world *w)
{
    struct wp_oracle_answer most[WP_ORACLE_HOLDERS];
    uint64_t local[CHAIN];
    size_t n = prompt(w, local);

    wp_oracle_overlap(w->or, w->space[0], local, n, most);
    wp_index_overlap(w->ix, w->space[0], local, n, &w->o);
    for (uint32_t h = 0; h < WP_ORACLE_HOLDERS; h++) {
        const struct wp_overlap_row *row = wp_overlap_of(&w->o, h);

        if (row && row->blocks > most[h].blocks)
            disagree(w, "claimed, at most", most[h].blocks, row->blocks);
        w->claims += row != NULL;
    }
}

static void compare(struct world *w, size_t step)
{
    struct wp_err err = WP_ERR_INIT;

    if (w->bounded)
        claims_no_more(w);
    else if (step % 2 == 0)
        compare_overlap(w);
    if (!w->bounded && step % 64 == 0)
        compare_stats(w);
    if (step % 256 == 0 && !wp_index_verify(w->ix, &err))
        disagree(w, err.text, 1, 0);
}

/* Returns the steps in agreement. */
static size_t run(struct world *w, uint64_t seed, size_t steps)
{
    char label[256];
    size_t step = 0;

    while (step < steps && !w->wrong[0]) {
        one_step(w);
        compare(w, step);
        step += !w->wrong[0];
    }
    snprintf(label, sizeof label, "seed %llu, step %zu: %s", (unsigned long long)seed, step,
             w->wrong[0] ? w->wrong : "agrees");
    EXPECT_TRUE(label, !w->wrong[0]);
    return step;
}

static void a_million_operations_agree_with_the_oracle(void)
{
    long live = wp_mem_live();
    size_t done = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world w;

        open_world(&w, seed, false);
        done += run(&w, seed, STEPS);
        close_world(&w);
    }
    EXPECT_UINT("operations done", (size_t)SEEDS * STEPS, done);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void a_bounded_index_never_claims_more_than_the_oracle(void)
{
    for (uint64_t seed = 101; seed <= 102; seed++) {
        struct wp_index_stats s;
        struct world w;

        open_world(&w, seed, true);
        run(&w, seed, STEPS / 5);
        wp_index_stats(w.ix, &s);
        EXPECT_TRUE("the bound was felt", s.evicted > STEPS / 200);
        EXPECT_TRUE("and something claimed", w.claims > STEPS / 5);
        close_world(&w);
    }
}

const struct wp_suite suite_index_random = {
    "index_random",
    (const struct wp_test[]){
        {"a million operations agree with the oracle", a_million_operations_agree_with_the_oracle},
        {"a bounded index never claims more than the oracle",
         a_bounded_index_never_claims_more_than_the_oracle},
        {NULL, NULL},
    },
};
