/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios of the whole index: the writer applies events, the reader looks prompts up.  One letter
 * stands for one block.  Of each holder a look-up may say only what that holder had at some moment
 * of the call, block by block: no more, and no less.  What it had between which events is reckoned
 * here by the plainest rules.  With segments of 4 blocks the prompt "abcdef" is two runs.
 */
#include "tests/model/model.h"

#include "base/mem.h"
#include "index/index.h"

#include <string.h>

enum { EVENTS = 8, LETTERS = 128, CROWD = 10000, DOUBT = 0x100, PROMPT = 16 };
enum { STORE = 1, REMOVE, CLEAR, DROP, JOIN, DOUBTED, CROWDED, STARVED };

struct event { /* ends with a kind of 0 */
    uint8_t kind, holder, tier;
    const char *parent, *blocks; /* STARVED: a removal of blocks without memory, so that what is in
                                    parent goes, too */
    unsigned crowd; /* so many prompts of one block each, by holder 0, that nobody asks for */
};

struct story {
    unsigned holders;
    struct event before[EVENTS], then[EVENTS];
    const char *prompt[2]; /* one after the other */
};

struct scene {
    const struct story *story;
    struct wp_index *ix;
    uint32_t space;
    uint64_t crowd;
    struct wp_overlap o[2];
    uint16_t had[EVENTS + 1][4]
                [LETTERS]; /* before the first event of `then`, after it, ...: tiers, and DOUBT */
    unsigned begun, done;  /* events of `then` */
};

static void reckon(uint16_t had[4][LETTERS], const struct event *e)
{
    for (const char *b = e->blocks; b && *b; b++)
        if (e->kind == STORE)
            had[e->holder][(int)*b] =
                (uint16_t)((had[e->holder][(int)*b] & ~DOUBT) | 1u << e->tier);
        else if (e->kind == REMOVE)
            had[e->holder][(int)*b] &= (uint16_t) ~(1u << e->tier);
    for (const char *b = e->parent; b && e->kind == STARVED && *b; b++)
        had[e->holder][(int)*b] = 0;
    if (e->kind == CLEAR || e->kind == DROP)
        memset(had[e->holder], 0, sizeof had[0]);
    for (int i = 0; i < LETTERS && e->kind == DOUBTED; i++)
        had[e->holder][i] |= had[e->holder][i] ? DOUBT : 0;
}

static void hashes(struct wp_index *ix, struct wp_kv_event *ev, const char *parent,
                   const char *blocks)
{
    uint64_t hash[PROMPT];
    struct wp_kv_result res;

    for (ev->n = 0; blocks[ev->n]; ev->n++)
        hash[ev->n] = (uint64_t)blocks[ev->n];
    ev->engine = hash;
    ev->local = ev->kind == WP_KV_STORED ? hash : NULL;
    ev->has_parent = parent;
    ev->parent = parent ? (uint64_t)*parent : 0;
    wp_index_apply(ix, ev, &res);
    WP_MODEL_WANT("an event is applied whole", res.applied == ev->n);
}

static void crowd(struct scene *s, struct wp_kv_event *ev, unsigned n)
{
    for (; n; n--) {
        uint64_t hash = CROWD + s->crowd++;

        ev->n = 1;
        ev->engine = ev->local = &hash;
        wp_index_apply(s->ix, ev, NULL);
    }
}

static void apply(struct scene *s, const struct event *e)
{
    struct wp_kv_event ev = {
        .holder = e->holder, .space = s->space, .main_group = true, .tier = e->tier};
    struct wp_err err = WP_ERR_INIT;
    uint32_t holder;

    ev.kind = e->kind == REMOVE || e->kind == STARVED ? WP_KV_REMOVED : WP_KV_STORED;
    if (e->kind == STARVED)
        wp_mem_fail_after(0);
    if (e->kind == STARVED || e->kind == STORE || e->kind == REMOVE)
        hashes(s->ix, &ev, e->parent, e->blocks);
    else if (e->kind == CLEAR)
        wp_index_clear(s->ix, e->holder);
    else if (e->kind == DROP)
        wp_index_drop(s->ix, e->holder);
    else if (e->kind == DOUBTED)
        wp_index_doubt(s->ix, e->holder);
    else if (e->kind == JOIN)
        WP_MODEL_WANT("a holder",
                      wp_index_holder(s->ix, WP_HOLDER_RANK, WP_NO_HOLDER, &holder, &err) == 0 &&
                          holder == e->holder);
    else
        crowd(s, &ev, e->crowd);
    wp_mem_fail_after(-1);
}

static void *begin(const struct story *story)
{
    struct scene *s = wp_calloc(1, sizeof *s);
    struct wp_err err = WP_ERR_INIT;

    s->story = story;
    wp_index_create(&s->ix, &(struct wp_index_conf){.secret = 5}, &err);
    wp_index_space(s->ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &s->space, &err);
    for (unsigned i = 0; i < story->holders; i++)
        apply(s, &(struct event){.kind = JOIN, .holder = (uint8_t)i});
    for (const struct event *e = story->before; e->kind; e++) {
        apply(s, e);
        reckon(s->had[0], e);
    }
    for (unsigned i = 0; story->then[i].kind; i++) {
        memcpy(s->had[i + 1], s->had[i], sizeof s->had[i]);
        reckon(s->had[i + 1], &story->then[i]);
    }
    for (int i = 0; i < 2; i++)
        wp_overlap_init(&s->o[i], wp_index_holders(s->ix));
    wp_index_overlap(s->ix, s->space, &s->crowd, 1, &s->o[0]); /* the thread has its first slot */
    return s;
}

static void write_story(void *state)
{
    struct scene *s = state;

    for (const struct event *e = s->story->then; e->kind; e++) {
        s->begun++;
        apply(s, e);
        s->done++;
    }
}

/* At some moment from one event to another the holder had the block so: none of the bits, or the
 * fastest tier, or in doubt. */
enum how { LACKED, HAD, DOUBTFUL, SURE };
static bool once(const struct scene *s, unsigned from, unsigned to, uint32_t holder, int letter,
                 enum how how, int tier)
{
    for (unsigned i = from; i <= to; i++) {
        uint16_t had = s->had[i][holder][letter];

        if (!had              ? how == LACKED
            : how == DOUBTFUL ? (had & DOUBT) != 0
            : how == SURE     ? !(had & DOUBT)
                              : how == HAD && (tier < 0 || __builtin_ctz(had) == tier))
            return true;
    }
    return false;
}

static void judge(const struct scene *s, unsigned from, unsigned to, const char *prompt,
                  uint32_t holder, const struct wp_overlap *o)
{
    const struct wp_overlap_row *row = wp_overlap_of(o, holder);
    unsigned n = row ? row->blocks : 0, sum = 0, may = 0, must = 0;

    for (unsigned i = 0; i < n; i++) {
        WP_MODEL_WANT("a holder that is found had the block",
                      once(s, from, to, holder, prompt[i], HAD, -1));
        may += once(s, from, to, holder, prompt[i], DOUBTFUL, 0);
        must += !once(s, from, to, holder, prompt[i], SURE, 0) &&
                !once(s, from, to, holder, prompt[i], LACKED, 0);
    }
    WP_MODEL_WANT("a holder that is not found lacked the block",
                  !prompt[n] || once(s, from, to, holder, prompt[n], LACKED, 0));
    for (int t = 0; row && t < WP_TIER_MAX; t++) {
        unsigned most = 0;

        for (unsigned i = 0; i < n; i++)
            most += once(s, from, to, holder, prompt[i], HAD, t);
        WP_MODEL_WANT("a tier that is named had the block", row->tier[t] <= most);
        sum += row->tier[t];
    }
    WP_MODEL_WANT("each block counts in one tier", sum == n);
    WP_MODEL_WANT("what counts as doubtful was",
                  !row || (row->doubtful <= may && row->doubtful >= must));
}

static void look(struct scene *s, unsigned reader, const char *prompt)
{
    uint64_t local[PROMPT];
    unsigned from = s->done, to;
    size_t n = 0;

    for (; prompt[n]; n++)
        local[n] = (uint64_t)prompt[n];
    wp_index_overlap(s->ix, s->space, local, n, &s->o[reader]);
    to = s->begun;
    for (uint32_t h = 0; h < s->story->holders; h++)
        judge(s, from, to, prompt, h, &s->o[reader]);
}

static void read_story(void *state, unsigned reader)
{
    struct scene *s = state;

    for (int i = 0; i < 2 && s->story->prompt[i]; i++)
        look(s, reader, s->story->prompt[i]);
}

static void end(void *state)
{
    struct scene *s = state;
    struct wp_err err = WP_ERR_INIT;

    read_story(s, 0); /* nothing moves any more: the answers are exact */
    WP_MODEL_WANT("the index agrees with itself", wp_index_verify(s->ix, &err));
}

#define STORY(name, ...)                                 \
    static void *name##_begin(void)                      \
    {                                                    \
        static const struct story story = {__VA_ARGS__}; \
        return begin(&story);                            \
    }
#define S(h, parent, blocks)           \
    {                                  \
        STORE, h, 0, parent, blocks, 0 \
    }
#define S_ON(h, t, parent, blocks)     \
    {                                  \
        STORE, h, t, parent, blocks, 0 \
    }
#define R(h, blocks)                  \
    {                                 \
        REMOVE, h, 0, NULL, blocks, 0 \
    }
#define R_ON(h, t, blocks)            \
    {                                 \
        REMOVE, h, t, NULL, blocks, 0 \
    }
#define OF(kind, h)               \
    {                             \
        kind, h, 0, NULL, NULL, 0 \
    }
#define MANY(n)                      \
    {                                \
        CROWDED, 0, 0, NULL, NULL, n \
    }

/* A word that is a span: longer, shorter, elsewhere, gone, and back. */
STORY(word, 2, {S(0, NULL, "ab")},
      {S(0, "b", "cdef"), R(0, "ef"), R(0, "d"), R(0, "abc"), S(0, NULL, "a")}, {"abcdef"})
/* From a span to a roster, to a set, and back to a span. */
STORY(roster, 4, {S(0, NULL, "abcd")},
      {S(1, NULL, "abcd"), S(2, NULL, "ab"), S(3, NULL, "abcd"), R(1, "abcd"), OF(CLEAR, 0),
       R(2, "ab")},
      {"abcd"})
/* A span of a roster becomes longer and shorter, and is in another tier: in place. */
STORY(place, 3, {S(0, NULL, "abcd"), S(1, NULL, "a")},
      {S(1, "a", "b"), S(1, "b", "c"), R(1, "c"), S_ON(1, 1, NULL, "ab"), R(1, "ab"), R(0, "d")},
      {"abcd"})
/* In place, at the end of what anybody has: which offsets the roster covers changes, too. */
STORY(cover, 3, {S(0, NULL, "ab"), S(1, NULL, "a")},
      {S(0, "b", "c"), S(0, "c", "d"), R(0, "d"), R(0, "c")}, {"abcd"})
/* Two runs whose rosters are replaced in turn, so that one's memory becomes the other's. */
STORY(recycled, 4, {S(0, NULL, "ab"), S(1, NULL, "a"), S(2, NULL, "xy"), S(3, NULL, "x")},
      {R(1, "a"), S(3, "x", "y"), S(0, NULL, "x"), S(1, NULL, "xy"), S(2, NULL, "a"), R(0, "x")},
      {"ab", "xy"})
STORY(recycled_twice, 4, {S(0, NULL, "ab"), S(1, NULL, "a"), S(2, NULL, "xy"), S(3, NULL, "x")},
      {S(2, NULL, "a"), S(0, NULL, "xy"), R(2, "a"), R(0, "x"), S(3, NULL, "ab")}, {"xy", "ab"})
/* A run goes, and its memory becomes another prompt's. */
STORY(run, 2, {S(0, NULL, "ab")},
      {R(0, "ab"), S(1, NULL, "xy"), R(1, "xy"), S(1, NULL, "ab"), R(1, "b")}, {"ab", "xy"})
/* Prompts that part in the middle of a run, and go on behind it. */
STORY(fork_, 2, {S(0, NULL, "abcd"), S(0, "b", "xy")},
      {S(1, NULL, "ab"), S(1, "b", "x"), S(0, "d", "ef"), R(0, "xy"), R(0, "ef")},
      {"abxy", "abcdef"})
/* What is in doubt, and sure again. */
STORY(doubt, 2, {S(0, NULL, "abcd"), S(1, NULL, "ab")},
      {OF(DOUBTED, 0), S(0, NULL, "ab"), OF(DOUBTED, 1), S(0, "b", "cd")}, {"abcd"})
/* A holder goes, and another one gets its number. */
STORY(drop, 3, {S(0, NULL, "abcd"), S(1, NULL, "abcd"), S(2, NULL, "ab")},
      {OF(DROP, 1), OF(JOIN, 1), S(1, NULL, "a"), OF(CLEAR, 0)}, {"abcd"})
/* The lists of the slabs grow (at 64 items), and the head tables (at 192 heads). */
STORY(lists, 2, {S(0, NULL, "abcd"), S(1, NULL, "ab"), MANY(60)},
      {MANY(3), S(1, "b", "cd"), MANY(2), R(0, "d")}, {"abcdef"})
STORY(tables, 2, {S(0, NULL, "abcd"), MANY(188)},
      {MANY(4), S(1, NULL, "abcd"), R(0, "abcd"), MANY(16), S(0, NULL, "ab")}, {"abcd"})
/* No memory for another roster (one chunk of them has room for three): the holder is taken out of
 * the one that there is. */
STORY(starved, 2,
      {S(0, NULL, "ab"), S(1, NULL, "abc"), S(0, NULL, "x"), S(1, NULL, "x"), S(0, NULL, "y"),
       S(1, NULL, "y")},
      {{STARVED, 1, 0, "abc", "a", 0}, R(0, "b"), S(1, NULL, "a")}, {"abc"})

#define WHOLE(name, story, readers, bound)                                          \
    {                                                                               \
        "index: " name, readers, bound, story##_begin, write_story, read_story, end \
    }
const struct wp_model wp_models_whole[] = {
    WHOLE("a word that is one span", word, 1, 3),
    WHOLE("a word that is one span, two readers", word, 2, 2),
    WHOLE("span, roster, set, and back", roster, 1, 3),
    WHOLE("changes in place", place, 1, 3),
    WHOLE("changes in place at the roster's end", cover, 1, 3),
    WHOLE("changes in place, two readers", cover, 2, 2),
    WHOLE("a roster's memory becomes another's", recycled, 1, 3),
    WHOLE("a roster's memory becomes another's, the other way round", recycled_twice, 1, 3),
    WHOLE("a run's memory becomes another's", run, 1, 3),
    WHOLE("prompts that part", fork_, 1, 3),
    WHOLE("doubt", doubt, 1, 3),
    WHOLE("a holder dropped, its number given again", drop, 1, 3),
    WHOLE("no memory for a roster", starved, 1, 3),
    WHOLE("slab lists grow", lists, 1, 3),
    WHOLE("head tables grow", tables, 1, 3),
    {0},
};
