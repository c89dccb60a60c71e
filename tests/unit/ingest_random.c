/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random engines against a naive reading of their events: blocks of our size, chunks and parts of
 * it, tiers, copies, evictions in any order, a window group; messages in the wire's form, through
 * decoder, publisher and index.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "index/identity.h"
#include "tests/lib/naive_feed.h"
#include "tests/lib/test.h"
#include "tests/lib/timeline.h"
#include "tests/lib/wire.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEPS = 400 };
#else
enum { STEPS = 4000 };
#endif
enum { SEEDS = 12, B = 4, TOKENS = 24, HELD_MAX = 400, WINDOW = 2 };

/* A name that the engine has, in a tier of a group; copies are listed as often as there are. */
struct held {
    uint64_t hash;
    uint32_t group, size;
    uint8_t tier;
    uint32_t token[TOKENS];
    size_t n;
};

struct world {
    struct wp_timeline t;
    struct wp_naive_feed naive;
    struct wp_rng rng;
    struct held held[HELD_MAX];
    size_t n;
    bool window, pairs;
    char wrong[96];
};

static const char *const media[] = {"GPU", "CPU", "DISK"};

static size_t below(struct world *w, size_t n)
{
    return (size_t)wp_rng_below(&w->rng, n);
}

static void send(struct world *w, const struct wp_wire_event *e, size_t n)
{
    size_t bytes = 0;
    char *p = wp_wire_batch(e, n, &bytes);

    wp_timeline_payload(&w->t, 0, (struct wp_str){p, bytes});
    wp_naive_feed_apply(&w->naive, (struct wp_str){p, bytes});
    wp_free(p);
}

/* Few tokens, and mostly the same at each place, so that prompts share what they begin with. */
static void prompt(struct world *w, uint32_t token[TOKENS + 1])
{
    for (size_t i = 0; i <= TOKENS; i++)
        token[i] = (uint32_t)(i * 3 + (below(w, 12) == 0));
}

/* Each size has names of its own, as a connector's chunks have. */
static uint64_t name(const struct world *w, const uint32_t token[], size_t n, uint32_t size)
{
    uint64_t local = 0;

    wp_hash_tokens(token, n + w->pairs, (uint32_t)(n + w->pairs), size, &local, 1);
    return local;
}

static bool has(const struct world *w, uint64_t hash, uint32_t group)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->held[i].hash == hash && w->held[i].group == group)
            return true;
    return false;
}

static void keep(struct world *w, uint64_t hash, uint32_t group, uint32_t size, uint8_t tier)
{
    if (w->n == HELD_MAX)
        abort(); /* the caller keeps room */
    w->held[w->n++] = (struct held){.hash = hash, .group = group, .size = size, .tier = tier};
}

static void remove_some(struct world *w, size_t n)
{
    for (; n && w->n; n--) {
        struct held *h = &w->held[below(w, w->n)];
        struct wp_wire_event e = {.kind = WP_EVENT_REMOVED,
                                  .hash = &h->hash,
                                  .n = 1,
                                  .medium = media[h->tier],
                                  .group = &h->group};

        send(w, &e, 1);
        *h = w->held[--w->n];
    }
}

/* The window group keeps the last blocks of what is stored; its store comes before the main
 * group's, as vLLM's does. */
static void store(struct world *w)
{
    static const uint32_t sizes[] = {B, B, B, 2 * B, 3 * B, 2}, groups[] = {0, 1};
    uint32_t size = w->window ? B : sizes[below(w, 6)], token[TOKENS + 1];
    size_t units = TOKENS / size, from, to = 1 + below(w, units);
    uint64_t hash[TOKENS], parent = 0;
    struct wp_wire_event e[2] = {{.kind = WP_EVENT_STORED, .block_size = size, .pairs = w->pairs}};
    uint8_t tier = w->window ? 0 : (uint8_t)below(w, 3);

    if (w->n + 2 * TOKENS > HELD_MAX)
        remove_some(w, HELD_MAX / 2);
    prompt(w, token);
    for (from = 0; from < to && has(w, name(w, token, (from + 1) * size, size), 1); from++)
        ;
    if (from == to || below(w, 4) == 0) /* an engine may compute again what it has */
        from = from ? from - 1 : 0;
    for (size_t i = from; i < to; i++)
        hash[i - from] = name(w, token, (i + 1) * size, size);
    parent = name(w, token, from * size, size);
    e[0].medium = media[tier];
    e[0].parent = from ? &parent : NULL;
    e[0].token = token + from * size;
    e[0].n_tokens = (to - from) * size + w->pairs;
    e[1] = e[0];
    e[0].group = &groups[0];
    e[0].spec_kind = "sliding_window";
    e[0].window = WINDOW * B + 1;
    e[0].n = to - from < WINDOW ? to - from : below(w, WINDOW + 1);
    e[0].hash = hash + (to - from) - e[0].n;
    e[1].group = &groups[1];
    e[1].spec_kind = "full_attention";
    e[1].n = to - from;
    e[1].hash = hash;
    send(w, e + !w->window, 1 + w->window);
    for (size_t i = 0; w->window && i < e[0].n; i++)
        keep(w, e[0].hash[i], 0, size, tier);
    for (size_t i = 0; i < e[1].n; i++)
        keep(w, hash[i], 1, size, tier);
}

/* What is held goes to another tier as well, by its name alone. */
static void copy_tier(struct world *w)
{
    struct held *h = &w->held[below(w, w->n ? w->n : 1)];
    uint8_t tier = (uint8_t)below(w, 3);
    struct wp_wire_event e = {.kind = WP_EVENT_STORED,
                              .hash = &h->hash,
                              .n = 1,
                              .medium = media[tier],
                              .group = &h->group,
                              .spec_kind = "full_attention"};

    if (!w->n || w->n == HELD_MAX || w->window)
        return;
    send(w, &e, 1);
    keep(w, h->hash, h->group, h->size, tier);
}

static void compare(struct world *w)
{
    uint32_t token[TOKENS + 1];
    size_t slower, want, got, gpu;
    const struct wp_overlap_row *row;

    prompt(w, token);
    want = wp_naive_feed_claim(&w->naive, token, TOKENS + 1, B, wp_str_of(NULL), wp_str_of(NULL),
                               &slower);
    got = wp_timeline_claim(&w->t, 0, token, TOKENS + 1, wp_str_of(NULL), wp_str_of(NULL), NULL);
    row = wp_overlap_of(&w->t.o, w->t.holder[0]);
    gpu = row ? row->tier[0] : 0;
    if (!w->wrong[0] && (want != got || want - slower != gpu))
        snprintf(w->wrong, sizeof w->wrong, "want %zu, %zu of them in GPU memory, got %zu and %zu",
                 want, want - slower, got, gpu);
}

static void one_step(struct world *w)
{
    size_t what = below(w, 100);

    if (what < 45)
        store(w);
    else if (what < 60)
        copy_tier(w);
    else if (what < 99)
        remove_some(w, 1 + below(w, 4));
    else if (below(w, 4) == 0) {
        send(w, &(struct wp_wire_event){.kind = WP_EVENT_CLEARED}, 1);
        w->n = 0;
    }
}

static void claims_are_what_a_naive_reading_says(void)
{
    long live = wp_mem_live();

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world w = {.rng = {seed}, .window = seed % 3 == 0, .pairs = seed % 3 == 1};
        char label[160];
        size_t step = 0;

        wp_timeline_init(&w.t, B);
        w.naive.window = w.window ? WINDOW : 0;
        store(&w); /* so that there is something to ask */
        for (; step < STEPS && !w.wrong[0]; step++) {
            one_step(&w);
            compare(&w);
        }
        snprintf(label, sizeof label, "seed %u, step %zu: %s", (unsigned)seed, step,
                 w.wrong[0] ? w.wrong : "agrees");
        EXPECT_TRUE(label, !w.wrong[0]);
        wp_timeline_fini(&w.t);
        wp_naive_feed_fini(&w.naive);
    }
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

const struct wp_suite suite_ingest_random = {
    "ingest_random",
    (const struct wp_test[]){
        {"claims are what a naive reading says", claims_are_what_a_naive_reading_says},
        {NULL, NULL},
    },
};
