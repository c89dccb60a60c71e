/* SPDX-License-Identifier: Apache-2.0 */
#include "router/caches.h"

#include "adapters/tokens/cache.h"
#include "base/mem.h"
#include "router/doctor.h"
#include "tests/lib/test.h"

#define MIB (UINT64_C(1) << 20)

static void caches_give_way_in_order(void)
{
    static const struct {
        const char *label;
        uint64_t ceiling, index, history, doctor, doctor_cap, tokens_cap;
    } cases[] = {
        {"no ceiling", 0, 500, 500, 500, UINT64_MAX, UINT64_MAX},
        {"room for all", 100, 10, 10, 10, 80, 70},
        {"tokens first", 100, 50, 30, 20, 20, 0},
        {"then the doctor", 100, 50, 50, 20, 0, 0},
        {"part of it", 100, 50, 40, 20, 10, 0},
        {"more than there is", 100, 90, 50, 20, 0, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint64_t bytes[WP_CACHES] = {[WP_CACHE_TOKENS] = 7,
                                           [WP_CACHE_DOCTOR] = cases[i].doctor,
                                           [WP_CACHE_HISTORY] = cases[i].history,
                                           [WP_CACHE_INDEX] = cases[i].index};
        uint64_t doctor, tokens;

        wp_caches_share(cases[i].ceiling, bytes, &doctor, &tokens);
        EXPECT_UINT(cases[i].label, cases[i].doctor_cap, doctor);
        EXPECT_UINT(cases[i].label, cases[i].tokens_cap, tokens);
    }
}

static void the_index_has_half_of_a_ceiling_at_most(void)
{
    static const struct {
        const char *ceiling, *cap;
        uint64_t want;
    } cases[] = {{"limits.caches_bytes=0", "index.cap_bytes=2Gi", 2048 * MIB},
                 {"limits.caches_bytes=1Gi", "index.cap_bytes=2Gi", 512 * MIB},
                 {"limits.caches_bytes=8Gi", "index.cap_bytes=2Gi", 2048 * MIB}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const set[] = {cases[i].ceiling, cases[i].cap};
        struct wp_buf errors = {0};
        struct wp_config *c = NULL;

        EXPECT_INT("configuration", 0, wp_config_read(&c, NULL, set, 2, NULL, 0, &errors));
        if (c)
            EXPECT_UINT(cases[i].ceiling, cases[i].want, wp_config_index_cap(c));
        wp_config_destroy(c);
        wp_buf_fini(&errors);
    }
    {
        static const char *const set[] = {"limits.caches_bytes=1Mi"};
        struct wp_buf errors = {0};
        struct wp_config *c = NULL;

        EXPECT_INT("too little", WP_EINVAL, wp_config_read(&c, NULL, set, 1, NULL, 0, &errors));
        EXPECT_TEXT("said", "--set limits.caches_bytes: want 0, or at least 16Mi, got 1048576\n", wp_buf_str(&errors));
        wp_buf_fini(&errors);
    }
}

static void tokens_that_were_longest_unused_go(void)
{
    struct wp_tokens_cache c;
    size_t before;

    wp_tokens_cache_init(&c, MIB, 1);
    for (char name = 'a'; name <= 'h'; name++) {
        char *p = wp_malloc(4000);
        struct wp_blob *b = wp_blob_adopt(p, 4000);
        struct wp_tokens_key key = wp_tokens_key((struct wp_str){&name, 1}, 1);

        wp_tokens_cache_put(&c, &key, b);
        wp_blob_unref(b);
    }
    before = c.bytes;
    EXPECT_TRUE("all are there", before >= 32000);
    wp_tokens_cache_limit(&c, before / 2);
    EXPECT_TRUE("half", c.bytes <= before / 2 && c.bytes > before / 4);
    for (char name = 'a'; name <= 'h'; name++) {
        struct wp_tokens_key key = wp_tokens_key((struct wp_str){&name, 1}, 1);
        struct wp_blob *b = wp_tokens_cache_get(&c, &key);

        EXPECT_TRUE("the newest", (b != NULL) == (name > 'd'));
        wp_blob_unref(b);
    }
    wp_tokens_cache_limit(&c, 0);
    EXPECT_UINT("none", 0, c.bytes);
    wp_tokens_cache_fini(&c);
}

static void conversations_that_were_longest_silent_go(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_doctor *d = NULL;
    struct wp_doctor_stats s;
    size_t before;

    EXPECT_INT("doctor", 0, wp_doctor_create(&d, NULL, &err));
    for (uint32_t i = 1; i <= 100; i++) {
        struct wp_piece piece[2] = {{.hash = i, .n = 100}, {.hash = i + 1000, .n = 100}};
        struct wp_outline o = {.piece = piece, .n = 2, .total = 200, .link = {i, i + 5000}, .n_links = 2, .from_start = true};

        wp_doctor_see(d, &o, WP_STR("m"), i, 50, i);
    }
    wp_doctor_stats(d, &s);
    EXPECT_UINT("all are known", 100, s.sessions);
    before = s.bytes;
    wp_doctor_limit(d, before / 2);
    wp_doctor_stats(d, &s);
    EXPECT_TRUE("half", s.bytes <= before / 2 && s.sessions == 50);
    wp_doctor_limit(d, 0);
    wp_doctor_stats(d, &s);
    EXPECT_TRUE("none", s.bytes == 0 && s.sessions == 0);
    for (uint32_t i = 1; i <= 3; i++) { /* what is seen all the same is kept till the next one */
        struct wp_piece piece[1] = {{.hash = i, .n = 100}};
        struct wp_outline o = {.piece = piece, .n = 1, .total = 100, .link = {i}, .n_links = 1, .from_start = true};

        wp_doctor_see(d, &o, WP_STR("m"), i, 50, i);
    }
    wp_doctor_stats(d, &s);
    EXPECT_UINT("the last", 1, s.sessions);
    wp_doctor_limit(d, SIZE_MAX);
    wp_doctor_destroy(d);
}

static const struct wp_test tests[] = {
    {"caches give way in order", caches_give_way_in_order},
    {"the index has half of a ceiling at most", the_index_has_half_of_a_ceiling_at_most},
    {"tokens that were longest unused go", tokens_that_were_longest_unused_go},
    {"conversations that were longest silent go", conversations_that_were_longest_silent_go},
    {NULL, NULL},
};
const struct wp_suite suite_caches = {"caches", tests};
