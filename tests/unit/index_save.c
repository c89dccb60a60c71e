/* SPDX-License-Identifier: Apache-2.0 */
/* An index that was saved and read back says what it said, goes on as the first would have, and is
 * refused when a bit is wrong. */
#include "index/save.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

enum { HOLDERS = 70, USED = 12, SPACES = 2, DEEP = 300, TREES = 4, STEPS = 400, WORLDS = 40 };

static const char magic[8] = "testfile";

struct world {
    struct wp_index *ix;
    struct wp_rng rng;
    uint32_t holder[USED], space[SPACES];
    bool floats; /* stores below what is not known, too */
};

static uint64_t below(struct world *w, uint64_t n)
{
    return wp_rng_below(&w->rng, n);
}

static int keep(void *ctx, const void *p, size_t n)
{
    return wp_buf_add(ctx, p, n);
}

static struct wp_buf save(const struct wp_index *ix)
{
    static struct wp_frames_out out;
    struct wp_buf b = {0};

    wp_frames_start(&out, magic, 1, keep, &b);
    wp_index_pause((struct wp_index *)ix);
    wp_index_save(ix, &out);
    wp_index_resume((struct wp_index *)ix);
    EXPECT_INT("saved", 0, wp_frames_finish(&out));
    EXPECT_UINT("bytes", b.n, out.bytes);
    return b;
}

static int load(struct wp_index **out, const void *p, size_t n, struct wp_err *err)
{
    const struct wp_index_conf conf = {.secret = 4711};
    struct wp_frames_in in;
    int rc = wp_frames_open(&in, magic, 1, p, n, err);

    rc = rc ? rc : wp_index_load(out, &conf, &in, err);
    if (rc == 0 && (rc = wp_frames_close(&in, err)) < 0)
        wp_index_destroy(*out);
    return rc;
}

static struct wp_index *load_again(const struct wp_buf *b)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_index *ix = NULL;

    if (load(&ix, b->p, b->n, &err) < 0) {
        EXPECT_TEXT("loaded", "", wp_str_of(err.text));
        abort();
    }
    if (!wp_index_verify(ix, &err))
        EXPECT_TEXT("verified", "", wp_str_of(err.text));
    return ix;
}

/* Block i of a prompt of that tree: two ways at each of a few depths. */
static void prompt(uint64_t ways, size_t n, uint64_t local[], uint64_t engine[])
{
    uint64_t h = ways % TREES + 1;

    for (size_t i = 0; i < n; i++) {
        local[i] = i % 7 == 3 && i < 60 ? 1000 + (ways >> (2 + i / 7) & 1) : i + ways % TREES;
        h = (h ^ local[i]) * 0x9E3779B97F4A7C15u;
        engine[i] = h;
    }
}

static void open_world(struct world *w, uint64_t seed, bool floats)
{
    const struct wp_index_conf conf = {.secret = seed};
    struct wp_err err = WP_ERR_INIT;
    uint32_t all[HOLDERS];

    *w = (struct world){.rng = {seed}, .floats = floats};
    if (wp_index_create(&w->ix, &conf, &err) < 0)
        abort();
    for (uint32_t i = 0; i < SPACES; i++)
        wp_index_space(w->ix, WP_STR("a model"), 16 + i, WP_STR("of"), WP_SPACE_TOKENS,
                       &w->space[i], &err);
    for (uint32_t i = 0; i < HOLDERS; i++)
        wp_index_holder(w->ix, i == 2 ? WP_HOLDER_NODE : WP_HOLDER_RANK,
                        i > 2 && i < 5 ? all[2] : WP_NO_HOLDER, &all[i], &err);
    for (uint32_t i = 0, used = 0; i < HOLDERS; i++)
        if (i % 6 == 2)
            w->holder[used++] = all[i];
        else if (i % 6 != 3)
            wp_index_drop(w->ix, all[i]); /* numbers are not without gaps */
    for (uint32_t i = 0; i < 3; i++)
        wp_index_window(w->ix, w->holder[i + 3], 1, 0, 3 + i);
}

static void step_of(struct world *w, struct wp_index *other)
{
    static uint64_t local[DEEP], engine[DEEP];
    static const bool vague[DEEP] = {[5] = true, [90] = true};
    size_t n = 1 + below(w, below(w, 4) ? 40 : DEEP), from = below(w, 4) == 0 ? below(w, n) : 0;
    uint64_t what = below(w, 100), ways = below(w, 64);
    struct wp_kv_event ev = {.kind = WP_KV_STORED,
                             .holder = w->holder[below(w, USED)],
                             .space = w->space[below(w, 5) == 0],
                             .group = (uint16_t)(below(w, 4) == 0),
                             .main_group = true,
                             .tier = (uint8_t)below(w, 3)};

    prompt(ways, n, local, engine);
    if (ev.group && below(w, 3) == 0) /* a name of its own for the same block */
        for (size_t i = 0; i < n; i++)
            engine[i]++;
    ev.has_parent = from > 0 && w->floats;
    from = w->floats ? from : 0;
    ev.parent = from ? engine[from - 1] : 0;
    ev.engine = engine + from;
    ev.local = local + from;
    ev.n = n - from;
    if (what < 45) {
        ev.vague = below(w, 6) == 0 ? vague + from : NULL;
    } else if (what < 55) {
        ev.local = NULL;
    } else if (what < 90) {
        ev.kind = WP_KV_REMOVED;
        from = below(w, ev.n);
        ev.engine += from;
        ev.n = below(w, 2) ? ev.n - from : 1;
    } else if (what < 94) {
        size_t upto = below(w, n + 1);

        wp_index_confirm(w->ix, ev.holder, ev.space, local, n, upto);
        if (other)
            wp_index_confirm(other, ev.holder, ev.space, local, n, upto);
        return;
    } else if (what < 97) {
        if (w->floats)
            wp_index_graft(w->ix, ev.holder, ev.space, local, n);
        return;
    } else if (what < 99) {
        wp_index_doubt(w->ix, ev.holder);
        if (other)
            wp_index_doubt(other, ev.holder);
        return;
    } else {
        ev.kind = WP_KV_CLEARED;
    }
    wp_index_apply(w->ix, &ev, NULL);
    if (other)
        wp_index_apply(other, &ev, NULL);
}

static bool same_row(const struct wp_overlap_row *a, const struct wp_overlap_row *b)
{
    if (!a || !b)
        return a == b;
    return a->blocks == b->blocks && a->doubtful == b->doubtful &&
           memcmp(a->tier, b->tier, sizeof a->tier) == 0;
}

/* Answers that differ, of all prompts and holders. */
static size_t differences(const struct world *w, const struct wp_index *b)
{
    static uint64_t local[DEEP], engine[DEEP];
    struct wp_overlap o[2];
    size_t wrong = 0;

    wp_overlap_init(&o[0], HOLDERS);
    wp_overlap_init(&o[1], HOLDERS);
    for (uint64_t ways = 0; ways < 64; ways++)
        for (uint32_t s = 0; s < SPACES; s++) {
            prompt(ways, DEEP, local, engine);
            wp_index_overlap(w->ix, w->space[s], local, DEEP, &o[0]);
            wp_index_overlap(b, w->space[s], local, DEEP, &o[1]);
            for (uint32_t h = 0; h < HOLDERS; h++)
                wrong += !same_row(wp_overlap_of(&o[0], h), wp_overlap_of(&o[1], h));
        }
    wp_overlap_fini(&o[0]);
    wp_overlap_fini(&o[1]);
    return wrong;
}

static void same_figures(const char *label, const struct wp_index *a, const struct wp_index *b)
{
    struct wp_index_stats s[2];

    wp_index_stats(a, &s[0]);
    wp_index_stats(b, &s[1]);
    EXPECT_UINT(label, s[0].blocks, s[1].blocks);
    EXPECT_UINT(label, s[0].locations, s[1].locations);
    EXPECT_UINT(label, s[0].doubtful, s[1].doubtful);
    EXPECT_UINT(label, wp_index_holders(a), wp_index_holders(b));
}

static void one_world(uint64_t seed)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_index *again;
    struct wp_buf b, twice;
    struct world w;

    open_world(&w, seed, seed % 4 == 0);
    for (int i = 0; i < STEPS; i++)
        step_of(&w, NULL);
    b = save(w.ix);
    again = load_again(&b);
    EXPECT_UINT("answers that differ", 0, differences(&w, again));
    same_figures("read back", w.ix, again);
    for (int i = 0; !w.floats && i < STEPS; i++)
        step_of(&w, again);
    if (!w.floats) {
        EXPECT_UINT("answers that differ later", 0, differences(&w, again));
        same_figures("later", w.ix, again);
        if (!wp_index_verify(again, &err))
            EXPECT_TEXT("verified later", "", wp_str_of(err.text));
    }
    twice = save(again);
    wp_index_destroy(again);
    again = load_again(&twice);
    EXPECT_UINT("answers that differ at the second time", 0, w.floats ? 0 : differences(&w, again));
    wp_index_destroy(again);
    wp_buf_fini(&b);
    wp_buf_fini(&twice);
    wp_index_destroy(w.ix);
}

static void random_worlds(void)
{
    for (uint64_t seed = 1; seed <= WORLDS; seed++)
        one_world(seed);
}

static void texts_and_numbers_stay(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_index *again;
    struct wp_buf b;
    struct world w;
    uint32_t space = 99, holder;

    open_world(&w, 5, false);
    b = save(w.ix);
    again = load_again(&b);
    EXPECT_INT(
        "", 0,
        wp_index_space(again, WP_STR("a model"), 17, WP_STR("of"), WP_SPACE_TOKENS, &space, &err));
    EXPECT_UINT("the space's number", w.space[1], space);
    EXPECT_INT(
        "", 0,
        wp_index_space(again, WP_STR("a model"), 17, WP_STR("on"), WP_SPACE_TOKENS, &space, &err));
    EXPECT_UINT("another domain", SPACES, space);
    EXPECT_TRUE("a holder is there", wp_index_live(again, w.holder[1]));
    EXPECT_TRUE("a gap is one", !wp_index_live(again, w.holder[1] + 2));
    EXPECT_INT("", 0, wp_index_holder(again, WP_HOLDER_RANK, WP_NO_HOLDER, &holder, &err));
    EXPECT_UINT("the gap is filled first", 0, holder);
    wp_index_destroy(again);
    wp_buf_fini(&b);
    wp_index_destroy(w.ix);
}

static void an_empty_one(void)
{
    const struct wp_index_conf conf = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_index *ix;
    struct wp_buf b;

    wp_index_create(&ix, &conf, &err);
    b = save(ix);
    wp_index_destroy(ix);
    wp_index_destroy(load_again(&b));
    wp_buf_fini(&b);
}

static struct wp_buf small_file(void)
{
    struct wp_buf b;
    struct world w;

    open_world(&w, 8, false);
    for (int i = 0; i < 40; i++)
        step_of(&w, NULL);
    b = save(w.ix);
    wp_index_destroy(w.ix);
    return b;
}

static void cut_anywhere_it_is_refused(void)
{
    struct wp_buf b = small_file();
    size_t taken = 0;

    for (size_t n = 0; n < b.n; n += n < 600 || n + 600 > b.n ? 1 : 31) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_index *ix = NULL;
        char *cut = wp_malloc(n ? n : 1);

        memcpy(cut, b.p, n);
        if (load(&ix, cut, n, &err) == 0) {
            taken++;
            wp_index_destroy(ix);
        }
        wp_free(cut);
    }
    EXPECT_UINT("taken", 0, taken);
    wp_buf_fini(&b);
}

static void with_a_wrong_bit_anywhere_it_is_refused(void)
{
    struct wp_buf b = small_file();
    size_t taken = 0;

    for (size_t i = 0; i < b.n; i += i < 600 ? 1 : 13) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_index *ix = NULL;

        b.p[i] ^= (char)(1 << i % 8);
        if (load(&ix, b.p, b.n, &err) == 0) {
            taken++;
            wp_index_destroy(ix);
        }
        b.p[i] ^= (char)(1 << i % 8);
    }
    EXPECT_UINT("taken", 0, taken);
    wp_buf_fini(&b);
}

static void says_why_it_is_refused(void)
{
    static const struct {
        const char *label, *want;
        size_t at;
        unsigned char byte;
    } cases[] = {
        {"magic", "not such a file: it begins with other bytes", 0, 'x'},
        {"newer", "version 2, newer than 1, which this one reads", 8, 2},
        {"older", "version 0, older than 1, which this one reads", 8, 0},
        {"byte order", "written on a machine of another byte order", 12, 9},
        {"first section", "at byte 16: want the section of the index: a checksum is wrong", 40, 99},
        {"other section", "at byte 16: want the section of the index: another one stands there", 16,
         3},
    };
    struct wp_buf b = small_file();

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_index *ix = NULL;
        char was = b.p[cases[i].at];

        b.p[cases[i].at] = (char)cases[i].byte;
        EXPECT_TRUE("refused", load(&ix, b.p, b.n, &err) < 0);
        EXPECT_TEXT(cases[i].label, cases[i].want, wp_str_of(err.text));
        b.p[cases[i].at] = was;
    }
    EXPECT_INT("more", 0, wp_buf_add(&b, "x", 1));
    {
        struct wp_err err = WP_ERR_INIT;
        struct wp_index *ix = NULL;

        EXPECT_TRUE("refused", load(&ix, b.p, b.n, &err) < 0);
        EXPECT_TEXT("something behind", "1 bytes follow the end", wp_str_of(err.text));
    }
    wp_buf_fini(&b);
}

/* Head words of the index itself: version, segment, tiers, windows. */
static void made_otherwise_it_is_refused(void)
{
    static const char *const want[] = {
        "the index's version is 9, newer than 1, which this one reads",
        "made for segments of 9 blocks", "", ""};

    for (uint32_t i = 0; i < 4; i++) {
        static struct wp_frames_out out;
        uint32_t head[12] = {1, WP_TIER_MAX, WP_TIER_MAX, WP_WINDOWS_MAX};
        struct wp_err err = WP_ERR_INIT;
        struct wp_index *ix = NULL;
        struct wp_buf b = {0};

        head[i] = 9;
        wp_frames_start(&out, magic, 1, keep, &b);
        wp_frames_section(&out, 1);
        wp_frames_put(&out, head, sizeof head);
        wp_frames_finish(&out);
        EXPECT_TRUE("refused", load(&ix, b.p, b.n, &err) < 0);
        EXPECT_TRUE(err.text, strstr(err.text, want[i]) != NULL);
        wp_buf_fini(&b);
    }
}

static void over_the_cap_it_is_refused(void)
{
    const struct wp_index_conf conf = {.cap_bytes = 100 << 10};
    struct wp_buf b = small_file();
    struct wp_err err = WP_ERR_INIT;
    struct wp_frames_in in;
    struct wp_index *ix;

    wp_frames_open(&in, magic, 1, b.p, b.n, &err);
    EXPECT_INT("", WP_ETOOBIG, wp_index_load(&ix, &conf, &in, &err));
    EXPECT_TEXT("", "what was saved does not fit into the index's cap", wp_str_of(err.text));
    wp_buf_fini(&b);
}

static void without_memory_it_is_refused(void)
{
    struct wp_buf b = small_file();
    size_t live = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_index *ix = NULL;
        int rc;

        wp_mem_fail_after(nth);
        rc = load(&ix, b.p, b.n, &err);
        if (!wp_mem_failed()) {
            EXPECT_INT("", 0, rc);
            wp_index_destroy(ix);
            break;
        }
        if (rc == 0) /* a ring of what is retired may do without */
            wp_index_destroy(ix);
        EXPECT_UINT("nothing leaks", live, wp_mem_live());
    }
    wp_mem_fail_after(-1);
    wp_buf_fini(&b);
}

static int fail_later(void *ctx, const void *p, size_t n)
{
    size_t *left = ctx;

    (void)p;
    if (n > *left)
        return WP_ETOOBIG;
    *left -= n;
    return 0;
}

static void a_full_disk_is_told(void)
{
    static struct wp_frames_out out;
    size_t left = 50;
    struct world w;

    open_world(&w, 3, false);
    wp_frames_start(&out, magic, 1, fail_later, &left);
    wp_index_save(w.ix, &out);
    EXPECT_INT("", WP_ETOOBIG, wp_frames_finish(&out));
    wp_index_destroy(w.ix);
}

static const struct wp_test tests[] = {
    {"random worlds are the same after they were saved and read back", random_worlds},
    {"spaces keep their texts and holders their numbers", texts_and_numbers_stay},
    {"an empty index", an_empty_one},
    {"a file that was cut anywhere is refused", cut_anywhere_it_is_refused},
    {"a file with a wrong bit anywhere is refused", with_a_wrong_bit_anywhere_it_is_refused},
    {"a refusal says why", says_why_it_is_refused},
    {"a file of another build is refused", made_otherwise_it_is_refused},
    {"a file that does not fit is refused", over_the_cap_it_is_refused},
    {"without memory it is refused and nothing leaks", without_memory_it_is_refused},
    {"a full disk is told", a_full_disk_is_told},
    {NULL, NULL},
};
const struct wp_suite suite_index_save = {"index_save", tests};
