/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What running engines published and what they said themselves of each prompt: the index must say
 * the same, at every step but those that come before the news of a reset or a restart can have
 * arrived.
 */
#include "base/mem.h"
#include "index/identity.h"
#include "router/match.h"
#include "tests/lib/bytes.h"
#include "tests/lib/naive_feed.h"
#include "tests/lib/test.h"
#include "tests/lib/timeline.h"

#include <jansson.h>
#include <stdlib.h>

enum { PROMPT_MAX = 4096 };

struct play {
    struct wp_timeline t;
    json_t *expected;
    uint32_t block_size;
    bool hex; /* frames are, not base64 */
    size_t asked, equal, stale, stale_equal, live;
};

static json_t *load(const char *name, const char *kind)
{
    char path[160];
    size_t n = 0;
    char *p;
    json_t *root;

    snprintf(path, sizeof path, "%s_%s", name, kind);
    p = wp_test_data(path, &n);
    root = p ? json_loadb(p, n, 0, NULL) : NULL;
    wp_free(p);
    EXPECT_TRUE(path, root);
    return root;
}

static json_t *step_of(const struct play *p, json_int_t id)
{
    json_t *step;
    size_t i;

    json_array_foreach(json_object_get(p->expected, "steps"), i,
                       step) if (json_integer_value(json_object_get(step, "id")) == id) return step;
    return NULL;
}

static size_t prompt_of(const struct play *p, const json_t *step, uint32_t out[PROMPT_MAX]);

/* The step's prompt and then its output, n of them. */
static size_t from_step(const struct play *p, json_int_t id, size_t n, uint32_t *out, size_t room)
{
    const json_t *step = step_of(p, id), *output = json_object_get(step, "output"), *token;
    uint32_t *all = wp_calloc(PROMPT_MAX, sizeof *all);
    size_t have = prompt_of(p, step, all), i;

    json_array_foreach(output, i, token) if (have < PROMPT_MAX) all[have++] =
        (uint32_t)json_integer_value(token);
    EXPECT_TRUE("as many tokens as are wanted", n <= have && n <= room);
    n = n < room ? n : room;
    memcpy(out, all, n * sizeof *out);
    wp_free(all);
    return n;
}

static size_t prompt_of(const struct play *p, const json_t *step, uint32_t out[PROMPT_MAX])
{
    const json_t *part;
    size_t n = 0, i;

    json_array_foreach(json_object_get(step, "prompt"), i, part)
    {
        json_int_t a = json_integer_value(json_array_get(part, 1)),
                   count = json_integer_value(json_array_get(part, 2));

        if (strcmp(json_string_value(json_array_get(part, 0)), "step") == 0) {
            n += from_step(p, a, (size_t)count, out + n, PROMPT_MAX - n);
            continue;
        }
        for (json_int_t k = 0; k < count && n < PROMPT_MAX; k++)
            out[n++] = (uint32_t)(1000 + (a * 7919 + k * 104729) % 100000);
    }
    return n;
}

static struct wp_str text_of(const json_t *o, const char *key)
{
    return wp_str_of(json_string_value(json_object_get(o, key)));
}

static void compare(struct play *p, const char *name, const json_t *step)
{
    uint32_t token[PROMPT_MAX];
    size_t n = prompt_of(p, step, token),
           rank = (size_t)json_integer_value(json_object_get(step, "rank"));
    size_t claim = p->block_size * wp_timeline_claim(&p->t, rank, token, n, text_of(step, "lora"),
                                                     text_of(step, "cache_salt"), NULL);
    size_t cached =
        (size_t)json_integer_value(json_object_get(step, "cached_tokens")); /* null: none */
    bool stale = json_is_true(json_object_get(step, "stale"));
    char label[160];

    EXPECT_UINT("prompt", (size_t)json_integer_value(json_object_get(step, "prompt_tokens")), n);
    snprintf(label, sizeof label, "%s step %d, %s", name,
             (int)json_integer_value(json_object_get(step, "id")),
             json_string_value(json_object_get(step, "label")));
    if (stale) {
        p->stale++;
        p->stale_equal += claim == cached;
        return;
    }
    p->asked++;
    p->equal += claim == cached;
    EXPECT_UINT(label, cached, claim);
}

static void live(struct play *p, const json_t *line, struct wp_naive_feed *naive)
{
    struct wp_str frame[3];
    char *own[3];

    for (size_t i = 0; i < 3; i++) {
        struct wp_str text =
            wp_str_of(json_string_value(json_array_get(json_object_get(line, "frames"), i)));

        own[i] = p->hex ? wp_test_hex(text, &frame[i].n) : wp_test_base64(text, &frame[i].n);
        frame[i].p = own[i];
    }
    wp_timeline_live(&p->t, (size_t)json_integer_value(json_object_get(line, "rank")), frame);
    if (naive)
        wp_naive_feed_apply(naive, frame[2]);
    for (size_t i = 0; i < 3; i++)
        wp_free(own[i]);
    p->live++;
}

static void play_init(struct play *p, const char *name, uint32_t told)
{
    *p = (struct play){0};
    p->expected = load(name, "expected.json");
    p->block_size = (uint32_t)json_integer_value(json_object_get(p->expected, "block_size"));
    wp_timeline_init(&p->t, told ? p->block_size : 0);
}

/* Plays the lines of NAME_events.jsonl. */
static void play(struct play *p, const char *name, uint32_t told)
{
    char path[160];
    size_t n = 0;
    char *text;
    struct wp_str rest, line;

    play_init(p, name, told);
    snprintf(path, sizeof path, "%s_events.jsonl", name);
    text = wp_test_data(path, &n);
    rest = (struct wp_str){text, n};
    while (wp_str_split(&rest, '\n', &line)) {
        json_t *o = json_loadb(line.p, line.n, 0, NULL);

        if (wp_str_is(text_of(o, "kind"), "live"))
            live(p, o, NULL);
        else if (json_object_get(o, "id") && !json_object_get(o, "action"))
            compare(p, name, step_of(p, json_integer_value(json_object_get(o, "id"))));
        json_decref(o);
    }
    wp_free(text);
}

static void end(struct play *p)
{
    wp_timeline_fini(&p->t);
    json_decref(p->expected);
}

static const struct {
    const char *name;
    size_t steps, stale, messages;
} timelines[] = {
    {"spec/real/vllm_0.23.0", 111, 1, 134},
    {"spec/real/vllm_0.32.0", 115, 1, 117},
    /* Killed and started anew: numbers begin again, and nothing says so. */
    {"spec/real/vllm_0.32.0_restart", 43, 2, 37},
    {"spec/real/vllm_0.32.0_lora", 11, 1, 7},
    {"spec/real/vllm_0.32.0_window", 37, 0, 31},
    {"spec/real/vllm_0.32.0_dp2", 6, 2, 10},
    /* By `make real-vllm`. */
    {"real/vllm_0.23.0_adapters", 11, 0, 5},
    {"real/vllm_0.23.0_clients", 40, 0, 91},
    {"real/vllm_0.23.0_copies", 24, 0, 29},
    {"real/vllm_0.23.0_ranks", 40, 0, 73},
    {"real/vllm_0.23.0_resets", 5, 0, 82},
    {"real/vllm_0.23.0_restart", 26, 0, 36},
    {"real/vllm_0.23.0_window", 40, 0, 71},
    {"real/vllm_0.32.0_adapters", 11, 0, 6},
    {"real/vllm_0.32.0_clients", 40, 0, 61},
    {"real/vllm_0.32.0_copies", 17, 0, 19},
    {"real/vllm_0.32.0_ranks", 40, 0, 73},
    {"real/vllm_0.32.0_resets", 5, 0, 44},
    {"real/vllm_0.32.0_restart", 26, 0, 29},
    {"real/vllm_0.32.0_window", 40, 0, 59},
};

static void the_index_says_what_the_engine_says(void)
{
    for (size_t i = 0; i < sizeof timelines / sizeof timelines[0]; i++)
        for (int told = 0; told <= 1; told++) {
            struct play p;

            play(&p, timelines[i].name, told);
            EXPECT_UINT(timelines[i].name, timelines[i].steps, p.asked);
            EXPECT_UINT(timelines[i].name, timelines[i].steps, p.equal);
            EXPECT_UINT(timelines[i].name, timelines[i].stale, p.stale);
            EXPECT_UINT(timelines[i].name, timelines[i].messages, p.live);
            end(&p);
        }
}

/* As a router goes about it: prompts one after the other, of which the last few count as in flight, since no batch has passed their end. */
enum { LATE = 3 };

struct traffic {
    struct wp_history *history;
    struct wp_rank rank;
    struct sent {
        uint64_t chain[PROMPT_MAX];
        size_t n;
        struct wp_history_ends ends;
    } sent[LATE];
    size_t steps;
};

static void dispatch(struct traffic *t, struct play *p, const char *name, const json_t *step)
{
    static uint32_t token[PROMPT_MAX];
    static uint64_t local[PROMPT_MAX];
    struct sent *s = &t->sent[t->steps++ % LATE];
    size_t n = prompt_of(p, step, token), usable = wp_usable_blocks(n, p->block_size);
    size_t cached = (size_t)json_integer_value(json_object_get(step, "cached_tokens"));
    struct wp_match m;
    char label[160];

    wp_history_end(t->history, 0, 0, s->chain, s->n, s->ends);
    s->n = wp_hash_tokens(token, n, p->block_size, wp_hash_seed((struct wp_str){0}, (struct wp_str){0}), local, PROMPT_MAX);
    wp_hash_chain(local, s->n, s->chain);
    wp_timeline_claim(&p->t, 0, token, n, (struct wp_str){0}, (struct wp_str){0}, NULL);
    t->rank = (struct wp_rank){.fed = true, .live = true, .coverage = 1, .window = wp_ingest_window(p->t.rank[0])};
    m = wp_match_blocks(wp_overlap_of(&p->t.o, p->t.holder[0]), t->history, &t->rank, 0, true, s->chain, usable);
    snprintf(label, sizeof label, "%s step %d", name, (int)json_integer_value(json_object_get(step, "id")));
    EXPECT_UINT(label, cached / p->block_size, m.claim);
    s->ends = wp_history_ends(usable, t->rank.window);
    wp_history_begin(t->history, 0, 0, s->chain, s->n, s->ends);
    wp_history_note(t->history, 0, 0, s->chain, s->n, s->ends);
}

/* What was sent and what is in flight claim no more of a window model than it serves. */
static void what_is_in_flight_knows_the_window(void)
{
    static struct traffic t;
    struct wp_err err = WP_ERR_INIT;
    struct wp_str rest, line;
    struct play p;
    size_t n = 0;
    char *text = wp_test_data("spec/real/vllm_0.32.0_window_events.jsonl", &n);

    t = (struct traffic){0};
    play_init(&p, "spec/real/vllm_0.32.0_window", 1);
    EXPECT_INT("history", 0, wp_history_create(&t.history, 1, &err));
    wp_history_size(t.history, 0, 0, 1000, &err);
    rest = (struct wp_str){text, n};
    while (wp_str_split(&rest, '\n', &line)) {
        json_t *o = json_loadb(line.p, line.n, 0, NULL);

        if (wp_str_is(text_of(o, "kind"), "live"))
            live(&p, o, NULL);
        else if (json_object_get(o, "id"))
            dispatch(&t, &p, "window", step_of(&p, json_integer_value(json_object_get(o, "id"))));
        json_decref(o);
    }
    EXPECT_UINT("steps", 37, t.steps);
    wp_free(text);
    wp_history_destroy(t.history);
    end(&p);
}

/* The prompt that ends with each block that was ever named. */
static void compare_all(struct play *p, const char *name, const struct wp_naive_feed *naive)
{
    char label[160];

    for (size_t i = 0; i < naive->n; i++) {
        const struct wp_naive_unit *u = &naive->unit[i];
        struct wp_str lora = wp_str_of(u->lora), salt = wp_str_of(u->salt);
        uint32_t token[PROMPT_MAX] = {0}, size = wp_ingest_its_block_size(p->t.rank[0]);
        size_t slower;

        if (!u->placed || u->n + 1 > PROMPT_MAX)
            continue;
        memcpy(token, u->token, (u->n + u->bigram) * sizeof token[0]);
        snprintf(label, sizeof label, "%s message %zu, block %zu", name, p->live, i);
        EXPECT_UINT(label, wp_naive_feed_claim(naive, token, u->n + 1, size, lora, salt, &slower),
                    wp_timeline_claim(&p->t, 0, token, u->n + 1, lora, salt, NULL));
        p->asked++;
    }
}

/* Captures without an engine's word on prompts: held against a naive reading of the same events. */
static void other_captures_agree_with_a_naive_reading(void)
{
    static const struct {
        const char *name;
        bool hex;
        size_t messages;
    } captures[] = {
        {"sglang_0.5.23_live.jsonl", true, 11},   /* with a gap: salted, sessions, a flush */
        {"sglang_0.5.23_events.jsonl", true, 25}, /* splits, evictions, pairs, pages, four tiers */
        {"vllm_0.32.0_bin_hashes_events.jsonl", false, 4},
    };

    for (size_t c = 0; c < sizeof captures / sizeof captures[0]; c++) {
        struct wp_naive_feed naive = {0};
        struct play p = {.hex = captures[c].hex};
        struct wp_str rest, line;
        char path[160], *text;
        size_t n = 0;

        snprintf(path, sizeof path, "spec/real/%s", captures[c].name);
        text = wp_test_data(path, &n);
        wp_timeline_init(&p.t, 0);
        rest = (struct wp_str){text, n};
        while (wp_str_split(&rest, '\n', &line)) {
            json_t *o = json_loadb(line.p, line.n, 0, NULL);

            if (json_array_size(json_object_get(o, "frames")) == 3) {
                live(&p, o, &naive);
                compare_all(&p, captures[c].name, &naive);
            }
            json_decref(o);
        }
        EXPECT_UINT(captures[c].name, captures[c].messages, p.live);
        EXPECT_TRUE("prompts were asked", p.asked > p.live);
        wp_timeline_fini(&p.t);
        wp_naive_feed_fini(&naive);
        wp_free(text);
    }
}

const struct wp_suite suite_timelines = {
    "timelines",
    (const struct wp_test[]){
        {"the index says what the engine says", the_index_says_what_the_engine_says},
        {"what is in flight knows the window", what_is_in_flight_knows_the_window},
        {"other captures agree with a naive reading", other_captures_agree_with_a_naive_reading},
        {NULL, NULL},
    },
};
