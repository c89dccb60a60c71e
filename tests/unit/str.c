/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "base/err.h"
#include "base/mem.h"
#include "tests/lib/test.h"

static void slices_compare_by_bytes(void)
{
    struct wp_str none = {0};

    EXPECT_TRUE("same", wp_str_eq(WP_STR("ab"), wp_str_of("ab")));
    EXPECT_TRUE("shorter", !wp_str_eq(WP_STR("ab"), WP_STR("abc")));
    EXPECT_TRUE("case", !wp_str_is(WP_STR("aB"), "ab") && wp_str_iis(WP_STR("aB"), "Ab"));
    EXPECT_TRUE("only ASCII letters are alike", !wp_str_ieq(WP_STR("[\xC4"), WP_STR("{\xE4")));
    EXPECT_TRUE("absent is empty", wp_str_eq(none, WP_STR("")) && wp_str_of(NULL).p == NULL);
    EXPECT_TRUE("starts", wp_str_starts(WP_STR("abc"), "ab") && !wp_str_starts(WP_STR("a"), "ab"));
    EXPECT_TRUE("starts with nothing", wp_str_starts(none, "") && !wp_str_starts(none, "a"));
    EXPECT_TEXT("trim", "a b", wp_str_trim(WP_STR(" \t\r\na b\n ")));
    EXPECT_UINT("trim to nothing", 0, wp_str_trim(WP_STR(" \t ")).n);
    EXPECT_UINT("trim nothing", 0, wp_str_trim(none).n);
}

static void a_text_is_split_into_all_its_parts(void)
{
    static const struct {
        const char *text, *want; /* parts, each closed by a bar */
    } cases[] = {
        {"a,b", "a|b|"}, {"a", "a|"}, {"", "|"}, {",", "||"}, {"a,,b,", "a||b||"}, {NULL, ""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_str rest = wp_str_of(cases[i].text), part;
        struct wp_buf all = {0};

        while (wp_str_split(&rest, ',', &part)) {
            wp_buf_add(&all, part.p, part.n);
            wp_buf_adds(&all, "|");
        }
        EXPECT_TEXT(cases[i].want, cases[i].want, wp_buf_str(&all));
        wp_buf_fini(&all);
    }
}

static void whole_numbers_are_whole_texts(void)
{
    static const struct {
        const char *text;
        bool u, i;
        uint64_t want;
        int64_t signed_want;
    } cases[] = {
        {"0", true, true, 0, 0},
        {"007", true, true, 7, 7},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", true, false, (uint64_t)INT64_MAX + 1, 0},
        {"18446744073709551615", true, false, UINT64_MAX, 0},
        {"18446744073709551616", false, false, 0, 0},
        {"99999999999999999999", false, false, 0, 0},
        {"-1", false, true, 0, -1},
        {"-9223372036854775808", false, true, 0, INT64_MIN},
        {"-9223372036854775809", false, false, 0, 0},
        {"", false, false, 0, 0},
        {"-", false, false, 0, 0},
        {"+1", false, false, 0, 0},
        {"--1", false, false, 0, 0},
        {" 1", false, false, 0, 0},
        {"1 ", false, false, 0, 0},
        {"0x1", false, false, 0, 0},
        {"1e3", false, false, 0, 0},
        {"1.0", false, false, 0, 0},
    };

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        uint64_t u = 77;
        int64_t i = 77;

        EXPECT_INT(cases[k].text, cases[k].u, wp_str_u64(wp_str_of(cases[k].text), &u));
        EXPECT_UINT(cases[k].text, cases[k].u ? cases[k].want : 77, u);
        EXPECT_INT(cases[k].text, cases[k].i, wp_str_i64(wp_str_of(cases[k].text), &i));
        EXPECT_INT(cases[k].text, cases[k].i ? cases[k].signed_want : 77, i);
    }
}

static void doubles_are_finite_and_whole_texts(void)
{
    static const struct {
        struct wp_str text;
        bool ok;
        double want;
    } cases[] = {
        {{"0", 1}, true, 0},      {{"-1.5", 4}, true, -1.5}, {{"1e3", 3}, true, 1000},
        {{".5", 2}, true, 0.5},   {{"5.", 2}, true, 5},      {{"+2", 2}, true, 2},
        {{"1e-400", 6}, true, 0}, {{"1e400", 5}, false, 0},  {{"inf", 3}, false, 0},
        {{"-inf", 4}, false, 0},  {{"nan", 3}, false, 0},    {{"", 0}, false, 0},
        {{" 1", 2}, false, 0},    {{"\f1", 2}, false, 0},    {{"\v1", 2}, false, 0},
        {{"1 ", 2}, false, 0},    {{"1x", 2}, false, 0},     {{"1\0", 2}, false, 0},
        {{"1,5", 3}, false, 0},   {{"-", 1}, false, 0},      {{"\0", 1}, false, 0},
        {{"12", 1}, true, 1}, /* a slice ends where it ends */
    };
    char longest[80];
    double x;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        x = 77;
        EXPECT_INT(cases[i].text.p, cases[i].ok, wp_str_double(cases[i].text, &x));
        EXPECT_NEAR(cases[i].text.p, cases[i].ok ? cases[i].want : 77, x, 0);
    }
    memset(longest, '1', sizeof longest);
    EXPECT_TRUE("absurdly long", !wp_str_double((struct wp_str){longest, sizeof longest}, &x));
}

static void bytes_take_units(void)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t want;
    } cases[] = {
        {"0", true, 0},
        {"100", true, 100},
        {"1K", true, 1000},
        {"64Mi", true, 64 << 20},
        {"2Gi", true, (uint64_t)2 << 30},
        {"3T", true, 3000000000000},
        {"16777215Ti", true, (uint64_t)16777215 << 40},
        {"16777216Ti", false, 0},
        {"1k", false, 0},
        {"1i", false, 0},
        {"Mi", false, 0},
        {"i", false, 0},
        {"", false, 0},
        {"1 Mi", false, 0},
        {"1MiB", false, 0},
        {"-1K", false, 0},
        {"1.5Gi", false, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t x = 77;

        EXPECT_INT(cases[i].text, cases[i].ok, wp_str_bytes(wp_str_of(cases[i].text), &x));
        EXPECT_UINT(cases[i].text, cases[i].ok ? cases[i].want : 77, x);
    }
}

static void the_nearest_word_is_near(void)
{
    static const char *const list[] = {"price", "round_robin", "random", "session"};
    char lots[200];

    EXPECT_TEXT("swapped", "price", wp_str_of(wp_str_nearest(WP_STR("pirce"), list, 4)));
    EXPECT_TEXT("case", "session", wp_str_of(wp_str_nearest(WP_STR("SESSION"), list, 4)));
    EXPECT_TEXT("the nearer one", "random", wp_str_of(wp_str_nearest(WP_STR("randon"), list, 4)));
    EXPECT_TRUE("far", !wp_str_nearest(WP_STR("weather"), list, 4));
    EXPECT_TRUE("nothing", !wp_str_nearest(WP_STR(""), list, 4));
    EXPECT_TRUE("no list", !wp_str_nearest(WP_STR("price"), list, 0));
    memset(lots, 'p', sizeof lots);
    EXPECT_TRUE("very long", !wp_str_nearest((struct wp_str){lots, sizeof lots}, list, 4));
}

static void a_buffer_grows_to_its_limit_and_stays_as_it_was_after_an_error(void)
{
    struct wp_buf b = {.max = 100};
    char hundred[100];
    size_t n;
    char *p;

    memset(hundred, 'x', sizeof hundred);
    EXPECT_INT("some", 0, wp_buf_adds(&b, "abc"));
    EXPECT_INT("too much", WP_ETOOBIG, wp_buf_add(&b, hundred, 98));
    EXPECT_INT("too much", WP_ETOOBIG,
               wp_buf_printf(&b, "%s",
                             "1234567890123456789012345678901234567890"
                             "12345678901234567890123456789012345678901234567890123456789"));
    EXPECT_TEXT("as before", "abc", wp_buf_str(&b));
    EXPECT_INT("all of it", 0, wp_buf_add(&b, hundred, 97));
    EXPECT_UINT("full", 100, b.n);
    EXPECT_INT("no more", WP_ETOOBIG, wp_buf_adds(&b, "x"));
    EXPECT_INT("nothing more fits", 0, wp_buf_adds(&b, ""));
    EXPECT_INT("no overflow", WP_ETOOBIG, wp_buf_reserve(&b, SIZE_MAX));
    wp_buf_consume(&b, 97);
    EXPECT_TEXT("consumed", "xxx", wp_buf_str(&b));
    wp_buf_consume(&b, 5);
    EXPECT_UINT("consumed all", 0, b.n);
    EXPECT_INT("again", 0, wp_buf_printf(&b, "%d-%s", 7, "y"));
    p = wp_buf_take(&b, &n);
    EXPECT_TEXT("taken", "7-y", ((struct wp_str){p, n}));
    EXPECT_TRUE("empty", b.p == NULL && b.n == 0 && b.cap == 0);
    wp_free(p);
    wp_buf_fini(&b);
}

static void text_becomes_a_json_string(void)
{
    static const struct {
        struct wp_str text;
        const char *want;
    } cases[] = {
        {{NULL, 0}, "\"\""},
        {{"plain", 5}, "\"plain\""},
        {{"\"\\\n\t\x01\x7F/", 7}, "\"\\\"\\\\\\n\\u0009\\u0001\\u007f/\""},
        {{"a\0b", 3}, "\"a\\u0000b\""},
        {{"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9}, "\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\""},
        {{"a\xFFz", 3}, "\"a\xEF\xBF\xBDz\""},
        {{"\xC0\x80", 2}, "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                 /* overlong */
        {{"\xED\xA0\x80", 3}, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""}, /* a surrogate */
        {{"\xF4\x90\x80\x80x", 5},
         "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDx\""}, /* past the last one */
        {{"\xE2\x82", 2}, "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},         /* cut */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_buf b = {0}, tight = {.max = 2};

        EXPECT_INT("json", 0, wp_buf_json(&b, cases[i].text));
        EXPECT_TEXT("json", cases[i].want, wp_buf_str(&b));
        wp_buf_adds(&tight, "x");
        EXPECT_INT("no room", WP_ETOOBIG, wp_buf_json(&tight, cases[i].text));
        EXPECT_TEXT("as before", "x", wp_buf_str(&tight));
        wp_buf_fini(&b);
        wp_buf_fini(&tight);
    }
}

static void a_buffer_survives_a_lack_of_memory(void)
{
    struct wp_buf b = {0};

    wp_mem_fail_after(0);
    EXPECT_INT("add", WP_ENOMEM, wp_buf_adds(&b, "abc"));
    wp_mem_fail_after(0);
    EXPECT_INT("printf", WP_ENOMEM, wp_buf_printf(&b, "abc"));
    wp_mem_fail_after(-1);
    EXPECT_INT("later", 0, wp_buf_adds(&b, "abc"));
    wp_mem_fail_after(0);
    EXPECT_INT("grow", WP_ENOMEM, wp_buf_reserve(&b, 1000));
    wp_mem_fail_after(-1);
    EXPECT_TEXT("as before", "abc", wp_buf_str(&b));
    wp_buf_fini(&b);
}

const struct wp_suite suite_str = {
    "str",
    (const struct wp_test[]){
        {"slices compare by bytes", slices_compare_by_bytes},
        {"a text is split into all its parts", a_text_is_split_into_all_its_parts},
        {"whole numbers are whole texts", whole_numbers_are_whole_texts},
        {"doubles are finite and whole texts", doubles_are_finite_and_whole_texts},
        {"bytes take units", bytes_take_units},
        {"the nearest word is near", the_nearest_word_is_near},
        {"a buffer grows to its limit and stays as it was after an error",
         a_buffer_grows_to_its_limit_and_stays_as_it_was_after_an_error},
        {"text becomes a JSON string", text_becomes_a_json_string},
        {"a buffer survives a lack of memory", a_buffer_survives_a_lack_of_memory},
        {NULL, NULL},
    },
};
