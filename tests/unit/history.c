/* SPDX-License-Identifier: Apache-2.0 */
#include "index/history.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

static const struct wp_history_ends NO_ENDS;

enum { W = 7, SPACE = 3 };

static struct wp_history *make(size_t blocks)
{
    struct wp_history *h = NULL;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0, wp_history_create(&h, 99, &err));
    EXPECT_INT("size", 0, wp_history_size(h, W, SPACE, blocks, &err));
    return h;
}

/* One letter stands for one block. */
static size_t letters(const char *s, uint64_t chain[])
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        chain[i] = (uint64_t)s[i];
    return n;
}

static void note(struct wp_history *h, const char *s)
{
    uint64_t chain[32];
    size_t n = letters(s, chain);

    EXPECT_INT("note", 0, wp_history_note(h, W, SPACE, chain, n, NO_ENDS));
}

static size_t overlap(const struct wp_history *h, const char *s, size_t *both)
{
    uint64_t chain[32];
    size_t n = letters(s, chain);

    return wp_history_overlap(h, W, SPACE, chain, n, both);
}

static void eviction_takes_tails_and_never_beheads_a_prefix(void)
{
    static const struct {
        const char *label, *notes, *asked; /* notes: prompts with blanks between, oldest first */
        size_t capacity, want, blocks;
    } cases[] = {
        {"all fits", "abc", "abcd", 4, 3, 3},
        {"a longer prompt keeps its start", "abcdef", "abcdef", 4, 4, 4},
        {"the older prompt loses its tail first", "abc xy", "abc", 4, 2, 4},
        {"and keeps its head while there is room", "abc xyz", "abc", 4, 1, 4},
        {"the newer one is whole", "abc xyz", "xyz", 4, 3, 4},
        {"a shared prefix is as young as its youngest user", "abc xy abd uv", "abd", 5, 3, 5},
        {"a tail of the older user goes", "abc xy abd uv", "abc", 5, 2, 5},
        {"capacity one", "abc", "abc", 1, 1, 1},
        {"capacity none", "abc", "abc", 0, 0, 0},
        {"the empty prompt", "", "a", 4, 0, 0},
        {"a hole ends the run", "a c", "abc", 4, 1, 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_history *h = make(cases[i].capacity);
        struct wp_str rest = wp_str_of(cases[i].notes), part;
        size_t both = 99;

        while (wp_str_split(&rest, ' ', &part)) {
            char one[32];

            snprintf(one, sizeof one, WP_STR_FMT, WP_STR_ARG(part));
            note(h, one);
        }
        EXPECT_UINT(cases[i].label, cases[i].want, overlap(h, cases[i].asked, &both));
        EXPECT_UINT(cases[i].label, cases[i].want, both);
        EXPECT_UINT(cases[i].label, cases[i].blocks, wp_history_blocks(h, W));
        wp_history_destroy(h);
    }
}

static void holders_and_spaces_are_apart(void)
{
    struct wp_history *h = make(8);
    struct wp_err err = WP_ERR_INIT;
    uint64_t chain[3] = {0, UINT64_MAX, 1};

    EXPECT_INT("size", 0, wp_history_size(h, W, SPACE + 1, 8, &err));
    EXPECT_INT("size", 0, wp_history_size(h, W + 1, SPACE, 8, &err));
    wp_history_note(h, W, SPACE, chain, 3, NO_ENDS);
    EXPECT_UINT("0 is a hash like any other", 3, wp_history_overlap(h, W, SPACE, chain, 3, NULL));
    EXPECT_UINT("other space", 0, wp_history_overlap(h, W, SPACE + 1, chain, 3, NULL));
    EXPECT_UINT("other holder", 0, wp_history_overlap(h, W + 1, SPACE, chain, 3, NULL));
    EXPECT_UINT("a holder never heard of", 0,
                wp_history_overlap(h, 0xFFFFFFFE, SPACE, chain, 3, NULL));
    EXPECT_INT("which keeps nothing", 0, wp_history_note(h, 0xFFFFFFFE, SPACE, chain, 3, NO_ENDS));
    wp_history_note(h, W, SPACE + 1, chain, 2, NO_ENDS);
    EXPECT_UINT("blocks of all spaces", 5, wp_history_blocks(h, W));
    wp_history_forget(h, W);
    EXPECT_UINT("forgotten in all spaces", 0, wp_history_blocks(h, W));
    wp_history_destroy(h);
}

static void in_flight_blocks_count_beside_the_history(void)
{
    struct wp_history *h = make(3);
    uint64_t abcd[4], abx[3];
    size_t both;

    letters("abcd", abcd);
    letters("abx", abx);
    note(h, "ab");
    EXPECT_INT("begin", 0, wp_history_begin(h, W, SPACE, abcd, 4, NO_ENDS));
    EXPECT_INT("begin another of the same prefix", 0, wp_history_begin(h, W, SPACE, abx, 3, NO_ENDS));
    EXPECT_UINT("in flight", 7, wp_history_in_flight(h));
    EXPECT_UINT("history", 2, overlap(h, "abcd", &both));
    EXPECT_UINT("together", 4, both);
    wp_history_forget(h, W);
    EXPECT_UINT("history is gone", 0, overlap(h, "abcd", &both));
    EXPECT_UINT("in flight stays", 4, both);
    wp_history_end(h, W, SPACE, abcd, 4, NO_ENDS);
    overlap(h, "abcd", &both);
    EXPECT_UINT("the other request's prefix stays", 2, both);
    wp_history_end(h, W, SPACE, abcd, 4, NO_ENDS);
    overlap(h, "abx", &both);
    EXPECT_UINT("c and d are not begun: nothing to end; a and b ended again", 0, both);
    wp_history_end(h, W, SPACE, abx, 3, NO_ENDS);
    EXPECT_UINT("at rest", 0, wp_history_in_flight(h));
    wp_history_destroy(h);
}

static void an_evicted_block_may_still_be_in_flight_and_come_back(void)
{
    struct wp_history *h = make(2);
    uint64_t ab[2];
    size_t both;

    letters("ab", ab);
    note(h, "ab");
    wp_history_begin(h, W, SPACE, ab, 2, NO_ENDS);
    note(h, "xy");
    EXPECT_UINT("history", 0, overlap(h, "ab", &both));
    EXPECT_UINT("together", 2, both);
    note(h, "ab");
    EXPECT_UINT("history again", 2, overlap(h, "ab", &both));
    wp_history_end(h, W, SPACE, ab, 2, NO_ENDS);
    EXPECT_UINT("ended, and held by history", 2, overlap(h, "ab", &both));
    EXPECT_UINT("together", 2, both);
    wp_history_destroy(h);
}

static void the_engines_word_drops_what_we_believed(void)
{
    struct wp_history *h = make(8);
    uint64_t abcd[4];

    letters("abcd", abcd);
    note(h, "abcd");
    wp_history_contradict(h, W, SPACE, abcd, 4, 9);
    EXPECT_UINT("it held more than we asked for", 4, overlap(h, "abcd", NULL));
    wp_history_contradict(h, W, SPACE, abcd, 4, 1);
    EXPECT_UINT("it held one", 1, overlap(h, "abcd", NULL));
    EXPECT_UINT("the rest is gone", 1, wp_history_blocks(h, W));
    wp_history_contradict(h, W, SPACE, abcd, 4, 0);
    EXPECT_UINT("it held none", 0, wp_history_blocks(h, W));
    wp_history_contradict(h, W + 1, SPACE, abcd, 4, 0); /* a holder never heard of */
    wp_history_destroy(h);
}

static void a_smaller_size_evicts_and_a_larger_one_keeps(void)
{
    struct wp_history *h = make(6);
    struct wp_err err = WP_ERR_INIT;

    note(h, "abcdef");
    EXPECT_INT("smaller", 0, wp_history_size(h, W, SPACE, 2, &err));
    EXPECT_UINT("the start stays", 2, overlap(h, "abcdef", NULL));
    EXPECT_INT("larger", 0, wp_history_size(h, W, SPACE, 100, &err));
    EXPECT_UINT("nothing is lost", 2, overlap(h, "abcdef", NULL));
    EXPECT_INT("none", 0, wp_history_size(h, W, SPACE, 0, &err));
    EXPECT_UINT("nothing is left", 0, wp_history_blocks(h, W));
    wp_history_destroy(h);
}

/* The model: lists searched from the front, most recent first, and a bag of what is in flight. */
enum { HOLDERS = 3, CAPACITY = 40, LONGEST = 24, REQUESTS = 16 };

struct model {
    uint64_t lru[HOLDERS][CAPACITY];
    size_t n[HOLDERS], max[HOLDERS];
    struct request {
        uint32_t holder;
        size_t n;
        uint64_t chain[LONGEST];
    } request[REQUESTS];
    size_t requests;
    bool calm; /* nothing is contradicted: prefixes have no holes */
};

static size_t model_find(const struct model *m, uint32_t w, uint64_t key)
{
    size_t i = 0;

    while (i < m->n[w] && m->lru[w][i] != key)
        i++;
    return i;
}

static void model_drop(struct model *m, uint32_t w, uint64_t key)
{
    size_t i = model_find(m, w, key);

    if (i == m->n[w])
        return;
    m->n[w]--;
    memmove(&m->lru[w][i], &m->lru[w][i + 1], (m->n[w] - i) * sizeof(uint64_t));
}

static void model_note(struct model *m, uint32_t w, const uint64_t chain[], size_t n)
{
    for (size_t i = n; i-- > 0;) {
        model_drop(m, w, chain[i]);
        if (m->max[w] && m->n[w] == m->max[w])
            m->n[w]--;
        if (m->max[w]) {
            memmove(&m->lru[w][1], &m->lru[w][0], m->n[w] * sizeof(uint64_t));
            m->lru[w][0] = chain[i];
            m->n[w]++;
        }
    }
}

static bool model_in_flight(const struct model *m, uint32_t w, uint64_t key)
{
    for (size_t r = 0; r < m->requests; r++)
        for (size_t i = 0; m->request[r].holder == w && i < m->request[r].n; i++)
            if (m->request[r].chain[i] == key)
                return true;
    return false;
}

static size_t model_overlap(const struct model *m, uint32_t w, const uint64_t chain[], size_t n,
                            size_t *both)
{
    size_t lru = 0;

    while (lru < n && model_find(m, w, chain[lru]) < m->n[w])
        lru++;
    for (*both = 0; *both < n; ++*both)
        if (model_find(m, w, chain[*both]) == m->n[w] && !model_in_flight(m, w, chain[*both]))
            break;
    return lru;
}

/* A walk down a tree with two children a block, so that prompts share prefixes. */
static size_t prompt(struct wp_rng *r, uint64_t chain[])
{
    size_t n = (size_t)wp_rng_below(r, LONGEST + 1);
    uint64_t at = 1 + wp_rng_below(r, 3);

    for (size_t i = 0; i < n; i++) {
        chain[i] = at;
        at = at * 2654435761u + (wp_rng_below(r, 8) == 0);
    }
    return n;
}

static void one_step(struct wp_history *h, struct model *m, struct wp_rng *r)
{
    uint32_t w = (uint32_t)wp_rng_below(r, HOLDERS);
    uint64_t chain[LONGEST];
    size_t n = prompt(r, chain), k;
    struct wp_err err = WP_ERR_INIT;

    switch (wp_rng_below(r, 12)) {
    case 0:
        if (wp_rng_below(r, 20))
            break;
        wp_history_forget(h, w);
        m->n[w] = 0;
        break;
    case 1:
        if (m->calm)
            break;
        k = (size_t)wp_rng_below(r, n + 2);
        wp_history_contradict(h, w, SPACE, chain, n, k);
        for (; k < n; k++)
            model_drop(m, w, chain[k]);
        break;
    case 2:
        if (wp_rng_below(r, 10))
            break;
        m->max[w] = (size_t)wp_rng_below(r, CAPACITY + 1);
        wp_history_size(h, w, SPACE, m->max[w], &err);
        m->n[w] = m->n[w] < m->max[w] ? m->n[w] : m->max[w];
        break;
    case 3:
    case 4:
        if (m->requests == REQUESTS)
            break;
        wp_history_begin(h, w, SPACE, chain, n, NO_ENDS);
        m->request[m->requests].holder = w;
        m->request[m->requests].n = n;
        memcpy(m->request[m->requests++].chain, chain, n * sizeof chain[0]);
        break;
    case 5:
    case 6:
        if (!m->requests)
            break;
        k = (size_t)wp_rng_below(r, m->requests);
        wp_history_end(h, m->request[k].holder, SPACE, m->request[k].chain, m->request[k].n, NO_ENDS);
        m->request[k] = m->request[--m->requests];
        break;
    default:
        wp_history_note(h, w, SPACE, chain, n, NO_ENDS);
        model_note(m, w, chain, n);
    }
}

static bool agrees(const struct wp_history *h, const struct model *m, struct wp_rng *r)
{
    uint32_t w = (uint32_t)wp_rng_below(r, HOLDERS);
    uint64_t chain[LONGEST];
    size_t n = prompt(r, chain), both, both_want, want = model_overlap(m, w, chain, n, &both_want),
           in_flight = 0;

    for (size_t i = 0; i < m->requests; i++)
        in_flight += m->request[i].n;
    return wp_history_overlap(h, w, SPACE, chain, n, &both) == want && both == both_want &&
           wp_history_blocks(h, w) == m->n[w] && wp_history_in_flight(h) == in_flight;
}

static void random_steps_agree_with_a_naive_model(void)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct wp_history *h = NULL;
        struct wp_err err = WP_ERR_INIT;
        struct wp_rng r = {seed};
        struct model *m = wp_calloc(1, sizeof *m);
        char label[64];
        size_t step = 0;

        m->calm = seed % 2;
        wp_history_create(&h, seed, &err);
        for (bool ok = true; ok && step < 10000; step += ok) {
            one_step(h, m, &r);
            ok = agrees(h, m, &r);
        }
        snprintf(label, sizeof label, "seed %u: steps in agreement", (unsigned)seed);
        EXPECT_UINT(label, 10000, step);
        while (m->requests--)
            wp_history_end(h, m->request[m->requests].holder, SPACE, m->request[m->requests].chain,
                           m->request[m->requests].n, NO_ENDS);
        EXPECT_UINT("at rest nothing is in flight", 0, wp_history_in_flight(h));
        wp_history_destroy(h);
        wp_free(m);
    }
}

static int fill(struct wp_history **out, const uint64_t chain[], size_t n)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_history *h;
    size_t both;
    int rc = wp_history_create(&h, 1, &err), begun;

    if (rc < 0)
        return rc;
    *out = h;
    rc = wp_history_size(h, W, SPACE, n, &err);
    if (rc == 0)
        rc = wp_history_note(h, W, SPACE, chain, n, NO_ENDS);
    EXPECT_UINT("what is remembered is a prefix", wp_history_blocks(h, W),
                wp_history_overlap(h, W, SPACE, chain, n, NULL));
    begun = wp_history_begin(h, W + 1, SPACE, chain, n, NO_ENDS);
    wp_history_overlap(h, W + 1, SPACE, chain, n, &both);
    EXPECT_UINT("all or nothing is in flight", begun < 0 ? 0 : n, both);
    EXPECT_UINT("and counted", both, wp_history_in_flight(h));
    if (begun == 0)
        wp_history_end(h, W + 1, SPACE, chain, n, NO_ENDS);
    EXPECT_UINT("at rest", 0, wp_history_in_flight(h));
    return rc < 0 ? rc : begun;
}

static void any_allocation_may_fail(void)
{
    uint64_t chain[400];
    long live = wp_mem_live();

    for (uint64_t i = 0; i < 400; i++)
        chain[i] = i * i;
    for (long nth = 0;; nth++) {
        struct wp_history *h = NULL;
        int rc;

        wp_mem_fail_after(nth);
        rc = fill(&h, chain, 400);
        if (!wp_mem_failed()) {
            wp_mem_fail_after(-1);
            EXPECT_INT("and in the end it works", 0, rc);
            EXPECT_UINT("all of it", 400, wp_history_blocks(h, W));
            wp_history_destroy(h);
            break;
        }
        EXPECT_INT("it says so", WP_ENOMEM, rc);
        wp_mem_fail_after(-1);
        wp_history_destroy(h);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void memory_is_bounded_and_goes_with_the_blocks(void)
{
    struct wp_history *h = make(1000);
    uint64_t chain[10];
    long live = 0;

    for (uint64_t p = 0; p < 5000; p++) {
        for (uint64_t i = 0; i < 10; i++)
            chain[i] = p * 10 + i;
        wp_history_begin(h, W, SPACE, chain, 10, NO_ENDS);
        wp_history_note(h, W, SPACE, chain, 10, NO_ENDS);
        wp_history_end(h, W, SPACE, chain, 10, NO_ENDS);
        if (p == 200)
            live = wp_mem_live();
    }
    EXPECT_UINT("full", 1000, wp_history_blocks(h, W));
    EXPECT_INT("no new table", live, wp_mem_live());
    wp_history_forget(h, W);
    EXPECT_INT("both tables are gone", live - 2, wp_mem_live());
    wp_history_destroy(h);
    wp_history_destroy(NULL);
}

static void what_is_over_counts_until_the_feed_has_passed_it(void)
{
    struct wp_history *h = make(0);
    uint64_t chain[8];
    size_t both, live = (size_t)wp_mem_live();

    wp_history_begin(h, W, SPACE, chain, letters("abc", chain), NO_ENDS);
    wp_history_begin(h, W, SPACE, chain, letters("abd", chain), NO_ENDS);
    wp_history_end_at(h, W, SPACE, chain, chain, letters("abc", chain), NO_ENDS, 20);
    wp_history_end_at(h, W, SPACE, chain, chain, letters("abd", chain), NO_ENDS, 10);
    overlap(h, "abc", &both);
    EXPECT_UINT("still there", 3, both);
    EXPECT_UINT("not yet", 0, wp_history_passed(h, W, 9));
    EXPECT_UINT("another's feed", 0, wp_history_passed(h, W + 1, 99));
    EXPECT_UINT("one", 1, wp_history_passed(h, W, 19));
    overlap(h, "abd", &both);
    EXPECT_UINT("what they share is left", 2, both);
    wp_history_begin(h, W, SPACE, chain, letters("x", chain), NO_ENDS);
    wp_mem_fail_after(0);
    EXPECT_INT("no memory: ended at once", WP_ENOMEM,
               wp_history_end_at(h, W, SPACE, chain, chain, letters("x", chain), NO_ENDS, 99));
    wp_mem_fail_after(-1);
    EXPECT_UINT("no feed any more", 1, wp_history_passed(h, W, UINT64_MAX));
    wp_history_begin(h, W, SPACE, chain, letters("abc", chain), NO_ENDS);
    wp_history_end_at(h, W, SPACE, chain, chain, letters("abc", chain), NO_ENDS, 20);
    EXPECT_TRUE("one is left to destroy", (size_t)wp_mem_live() > live);
    wp_history_destroy(h);
}

static bool is_of_n(void *arg, uint32_t space, const uint64_t local[], size_t n,
                    struct wp_history_ends ends)
{
    EXPECT_UINT("space", SPACE, space);
    EXPECT_UINT("its local hashes", 100 + n, local[n - 1]);
    EXPECT_UINT("its ends", n, ends.last);
    return n == *(const size_t *)arg;
}

static void what_is_over_ends_when_the_feed_has_told_it(void)
{
    static const uint64_t local[] = {101, 102, 103};
    struct wp_history *h = make(0);
    uint64_t chain[8];
    size_t both, n = 2;

    wp_history_begin(h, W, SPACE, chain, letters("abc", chain), wp_history_ends(3, 1));
    wp_history_begin(h, W, SPACE, chain, letters("ab", chain), wp_history_ends(2, 1));
    EXPECT_UINT("both are under way", 0, wp_history_told(h, W, is_of_n, &n));
    wp_history_end_at(h, W, SPACE, chain, local, letters("abc", chain), wp_history_ends(3, 1), 20);
    wp_history_end_at(h, W, SPACE, chain, local, letters("ab", chain), wp_history_ends(2, 1), 10);
    EXPECT_UINT("another's", 0, wp_history_told(h, W + 1, is_of_n, &n));
    EXPECT_UINT("one", 1, wp_history_told(h, W, is_of_n, &n));
    overlap(h, "abc", &both);
    EXPECT_UINT("the other waits", 3, both);
    n = 3;
    EXPECT_UINT("the other", 1, wp_history_told(h, W, is_of_n, &n));
    EXPECT_UINT("nothing is left", 0, wp_history_in_flight(h));
    wp_history_destroy(h);
}

static size_t last_end(const struct wp_history *h, const char *s, size_t above, bool in_flight)
{
    uint64_t chain[32];
    size_t n = letters(s, chain);

    return wp_history_last_end(h, W, SPACE, chain, n, above, in_flight);
}

/* A window of three blocks: a prompt of six serves at its end, one of two at each of its blocks. */
static void where_windows_restrict_a_prompt_serves_at_its_ends(void)
{
    struct wp_history_ends six = wp_history_ends(6, 3), five = wp_history_ends(5, 3), two = wp_history_ends(2, 3);
    struct wp_history *h = make(10);
    uint64_t chain[8];

    wp_history_begin(h, W, SPACE, chain, letters("abcdef", chain), six);
    wp_history_begin(h, W, SPACE, chain, letters("abcdef", chain), five); /* the last block is never used by itself */
    wp_history_begin(h, W, SPACE, chain, letters("xy", chain), two);
    EXPECT_UINT("whole", 6, last_end(h, "abcdef", 0, true));
    EXPECT_UINT("a block less", 5, last_end(h, "abcde", 0, true));
    EXPECT_UINT("within", 0, last_end(h, "abcd", 0, true));
    EXPECT_UINT("not more than is known otherwise", 0, last_end(h, "abcdef", 6, true));
    EXPECT_UINT("within the window", 1, last_end(h, "x", 0, true));
    EXPECT_UINT("not sent yet", 0, last_end(h, "abcdef", 0, false));
    wp_history_note(h, W, SPACE, chain, letters("abcdef", chain), six);
    EXPECT_UINT("in the LRU", 6, last_end(h, "abcdef", 0, false));
    EXPECT_UINT("at that end alone", 0, last_end(h, "abcde", 0, false));
    wp_history_end(h, W, SPACE, chain, letters("abcdef", chain), six);
    EXPECT_UINT("the other one's end stays", 5, last_end(h, "abcdef", 0, true));
    wp_history_end_at(h, W, SPACE, chain, chain, letters("abcdef", chain), five, 1);
    EXPECT_UINT("until the feed has passed", 5, last_end(h, "abcdef", 0, true));
    wp_history_passed(h, W, 1);
    EXPECT_UINT("gone", 0, last_end(h, "abcdef", 0, true));
    wp_history_forget(h, W);
    wp_history_note(h, W, SPACE, chain, letters("abcdef", chain), NO_ENDS);
    EXPECT_UINT("an end goes with its block", 0, last_end(h, "abcdef", 0, false));
    EXPECT_UINT("no window, no ends", 0, wp_history_ends(6, 0).last);
    wp_history_destroy(h);
}

const struct wp_suite suite_history = {
    "history",
    (const struct wp_test[]){
        {"eviction takes tails and never beheads a prefix",
         eviction_takes_tails_and_never_beheads_a_prefix},
        {"holders and spaces are apart", holders_and_spaces_are_apart},
        {"in-flight blocks count beside the history", in_flight_blocks_count_beside_the_history},
        {"an evicted block may still be in flight and come back",
         an_evicted_block_may_still_be_in_flight_and_come_back},
        {"the engine's word drops what we believed", the_engines_word_drops_what_we_believed},
        {"a smaller size evicts and a larger one keeps",
         a_smaller_size_evicts_and_a_larger_one_keeps},
        {"random steps agree with a naive model", random_steps_agree_with_a_naive_model},
        {"what is over ends when the feed has told it",
         what_is_over_ends_when_the_feed_has_told_it},
        {"what is over counts until the feed has passed it",
         what_is_over_counts_until_the_feed_has_passed_it},
        {"where windows restrict, a prompt serves at its ends",
         where_windows_restrict_a_prompt_serves_at_its_ends},
        {"any allocation may fail", any_allocation_may_fail},
        {"memory is bounded and goes with the blocks", memory_is_bounded_and_goes_with_the_blocks},
        {NULL, NULL},
    },
};
