/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What readers are told while the writer works: never of a block that its holder had at no time of
 * the call, always of what was there all the time.  Branches hang from a trunk that two holders
 * have for ever; each branch comes once, in pieces, loses parts, and goes, or stays. Their memory
 * is used again and again, so a reader that is late looks at what has become something else.
 */
#include "index/index.h"

#include "base/rng.h"
#include "tests/lib/index_rig.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <sched.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { BRANCHES = 300 };
#else
enum { BRANCHES = 3000 };
#endif
enum {
    TRUNK = 40,
    BRANCH = 300,
    ALL = TRUNK + BRANCH,
    READERS = 2,
    KEPT_EVERY = 50,
    AT_LEAST = 300
};
enum { BEFORE, ALIVE, KEPT, GONE };

static _Atomic int life[BRANCHES];
static _Atomic int newest;
static _Atomic bool stop;

static void prompt(uint64_t branch, uint64_t local[ALL])
{
    struct wp_rng rng = {branch + 1};

    for (uint64_t i = 0; i < ALL; i++)
        local[i] = i < TRUNK ? 1000 + i : wp_rng_next(&rng);
}

struct reader {
    struct wp_index_rig *r;
    uint64_t asked, kept, alive, too_much, too_little, strangers;
    uint64_t seed;
};

static void ask(struct reader *me, struct wp_overlap *o, uint64_t branch)
{
    uint64_t local[ALL];
    int before = life[branch], after;

    prompt(branch, local);
    wp_index_overlap(me->r->ix, me->r->space, local, ALL, o);
    after = life[branch];
    me->strangers += wp_overlap_of(o, me->r->w[3]) != NULL;
    for (int i = 0; i < 2; i++) {
        const struct wp_overlap_row *row = wp_overlap_of(o, me->r->w[i]);
        uint32_t blocks = row ? row->blocks : 0;

        me->too_little += blocks < TRUNK || (before == KEPT && blocks < ALL);
        me->too_much += blocks > ALL || (blocks > TRUNK && (before == GONE || after == BEFORE));
    }
    me->asked++;
    me->kept += before == KEPT;
    me->alive += before == ALIVE || after == ALIVE;
}

static void *read_on(void *arg)
{
    struct reader *me = arg;
    struct wp_rng rng = {me->seed};
    struct wp_overlap o;

    if (wp_overlap_init(&o, 64) < 0)
        return NULL;
    while (!stop || me->asked < AT_LEAST) {
        uint64_t at = (uint64_t)newest,
                 back = wp_rng_below(&rng, 2) ? wp_rng_below(&rng, 4) : wp_rng_below(&rng, at + 1);

        ask(me, &o, back > at ? 0 : at - back);
    }
    wp_overlap_fini(&o);
    return NULL;
}

/* Engine hashes differ from holder to holder. */
static void say(struct wp_index_rig *r, enum wp_kv_kind kind, int holder, const uint64_t local[],
                size_t from, size_t n)
{
    uint64_t engine[ALL], parent = from ? local[from - 1] + (uint64_t)holder : 0;
    struct wp_kv_event ev = {.kind = kind,
                             .holder = r->w[holder],
                             .space = r->space,
                             .main_group = true,
                             .has_parent = from > 0,
                             .parent = parent,
                             .n = n,
                             .engine = engine,
                             .local = kind == WP_KV_STORED ? local + from : NULL};

    for (size_t i = 0; i < n; i++)
        engine[i] = local[from + i] + (uint64_t)holder;
    wp_index_apply(r->ix, &ev, &r->res);
}

static void live(struct wp_index_rig *r, uint64_t branch, struct wp_rng *rng)
{
    uint64_t local[ALL];

    prompt(branch, local);
    life[branch] = ALIVE;
    newest = (int)branch;
    for (int h = 0; h < 2; h++) {
        size_t cut = 1 + wp_rng_below(rng, BRANCH - 1), hole = TRUNK + wp_rng_below(rng, BRANCH);

        say(r, WP_KV_STORED, h, local, TRUNK, cut);
        say(r, WP_KV_STORED, h, local, TRUNK + cut, BRANCH - cut);
        say(r, WP_KV_REMOVED, h, local, hole, 1);
        if (branch % KEPT_EVERY == 0)
            say(r, WP_KV_STORED, h, local, hole, 1);
        else
            say(r, WP_KV_REMOVED, h, local, TRUNK, BRANCH);
    }
    life[branch] = branch % KEPT_EVERY ? GONE : KEPT;
}

static void readers_see_what_is_there_and_nothing_else(void)
{
    struct wp_index_rig r;
    struct wp_rng rng = {9};
    struct reader me[READERS] = {{0}};
    pthread_t thread[READERS];
    uint64_t local[ALL];

    wp_index_rig_init(&r, NULL);
    prompt(0, local);
    for (int h = 0; h < 2; h++)
        say(&r, WP_KV_STORED, h, local, 0, TRUNK);
    for (int i = 0; i < READERS; i++) {
        me[i] = (struct reader){.r = &r, .seed = (uint64_t)i + 1};
        EXPECT_INT("thread", 0, pthread_create(&thread[i], NULL, read_on, &me[i]));
    }
    for (uint64_t b = 0; b < BRANCHES; b++) {
        live(&r, b, &rng);
        if (b % 16 == 0)
            sched_yield(); /* not to wait for anything: so that one processor is enough for all */
    }
    stop = true;
    for (int i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        EXPECT_TRUE("asked", me[i].asked >= AT_LEAST && me[i].kept > 0);
        EXPECT_UINT("claims of what was not there", 0, me[i].too_much);
        EXPECT_UINT("what was there all the time is missed", 0, me[i].too_little);
        EXPECT_UINT("a holder that has nothing", 0, me[i].strangers);
    }
    wp_index_rig_fini(&r);
}

const struct wp_suite suite_index_readers = {
    "index_readers",
    (const struct wp_test[]){
        {"readers see what is there and nothing else", readers_see_what_is_there_and_nothing_else},
        {NULL, NULL},
    },
};
