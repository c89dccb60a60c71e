/* SPDX-License-Identifier: Apache-2.0 */
#include "net/json.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/test.h"

#include <stdlib.h>

/* A copy in memory of just that size, so that a sanitizer sees one byte too far. */
static struct wp_str exact(const char *p, size_t n)
{
    char *copy = malloc(n ? n : 1);

    if (n)
        memcpy(copy, p, n);
    return (struct wp_str){copy, n};
}

static void drop(struct wp_str s)
{
    free((char *)(uintptr_t)s.p);
}

static int verdict(const char *p, size_t n, struct wp_err *err)
{
    struct wp_str text = exact(p, n);
    int rc = wp_json_members(text, NULL, 0, NULL, err);

    drop(text);
    return rc == WP_EINVAL ? 0 : rc; /* valid, and no object */
}

/* clang-format off */
static const struct { const char *text; size_t n; int want; } texts[] = {
#define OK(t)  {t, sizeof(t) - 1, 0}
#define BAD(t) {t, sizeof(t) - 1, WP_ESYNTAX}
    /* values */
    OK("null"), OK("true"), OK("false"), OK("\"\""), OK("[]"), OK("{}"), OK(" \t\r\n{ } \n"), OK("[ ]"),
    OK("[1,2,[3,{\"a\":[]}],null]"), OK("{\"a\":{\"b\":{}},\"c\":[true,false]}"), OK("{\"\":0}"),
    BAD(""), BAD(" "), BAD("nul"), BAD("nulL"), BAD("nullx"), BAD("True"), BAD("tru"), BAD("falsy"), BAD("undefined"), BAD("NaN"),
    BAD("Infinity"), BAD("-Infinity"), BAD("'a'"), BAD("/* */1"), BAD("\0"), BAD("1\0"), BAD("\f1"), BAD("\v1"), BAD("\xC2\xA0" "1"),
    /* brackets and commas */
    BAD("["), BAD("]"), BAD("{"), BAD("}"), BAD("[1"), BAD("[1,"), BAD("[1,]"), BAD("[,1]"), BAD("[1 2]"), BAD("[1}"), BAD("{]"), BAD("[}"),
    BAD("{\"a\"}"), BAD("{\"a\":}"), BAD("{\"a\":1,}"), BAD("{,\"a\":1}"), BAD("{\"a\" 1}"), BAD("{a:1}"), BAD("{1:1}"), BAD("{\"a\":1]"),
    BAD("{\"a\":1 \"b\":2}"), BAD("{\"a\":1,,\"b\":2}"), BAD("{\"a\"::1}"), BAD("{\"a\":1"), BAD("{\"a\":"), BAD("{\"a"), BAD("{\"a\":{\"b\":1,}}"),
    BAD("[{\"a\":1,}]"), BAD("[{\"a\"}]"), BAD("[[1]"), BAD("[\"a\":1]"),
    /* one value, nothing else */
    BAD("1 2"), BAD("{} {}"), BAD("[]]"), BAD("{}}"), BAD("{},"), BAD("null null"), BAD("\"a\"b"), BAD("{}\0"), BAD("\xEF\xBB\xBF{}"), BAD("\xEF\xBB\xBF"),
    /* numbers */
    OK("0"), OK("-0"), OK("7"), OK("-7"), OK("10"), OK("1234567890123456789012345678901234567890"), OK("0.0"), OK("-0.50"), OK("1.5e3"), OK("1e3"),
    OK("1E+3"), OK("1e-3"), OK("0e0"), OK("-0E-00"), OK("1e999"), OK("0.1e0001"), OK("[0,-1,2.5,3e4]"),
    BAD("00"), BAD("01"), BAD("-01"), BAD("-"), BAD("+1"), BAD("--1"), BAD(".5"), BAD("1."), BAD("-.5"), BAD("1.e3"), BAD("1e"), BAD("1e+"), BAD("1E-"),
    BAD("0x10"), BAD("1_000"), BAD("1,000"), BAD("1.2.3"), BAD("1e3.0"), BAD("1e3e3"), BAD("- 1"), BAD("[1.]"), BAD("[-]"), BAD("1a"),
    /* many of them */
    OK("[12,345, 6789 ,0,1]"), OK("[12, 3,4,\n5,{\"a\":6,\"b\":[7,8]},9,10]"), OK("[1,2,3.5,4e1,-5,6]"), OK("[[1,2],[3,4]]"),
    BAD("[12,345,,6]"), BAD("[12,345,"), BAD("[12,345,]"), BAD("[12,345, "), BAD("[12,045]"), BAD("[1,2,3}"), BAD("[1,2,3:4]"), BAD("{\"a\":1,2,3}"),
    BAD("{\"a\":[1,2],3,4}"), BAD("[1,2,3a]"), BAD("[1,2,3 4]"), BAD("[1,2,\"a\",3,]"),
    /* escapes */
    OK("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), OK("\"\\u0000\\u00e9\\uFFFF\\uAbCd\""), OK("\"\\ud83d\\ude00\""), OK("\"\\uD800\""), OK("\"\\uDC00\\uD800\""),
    OK("\"\\ud800x\""), OK("\"\\ud800\\n\""), OK("{\"\\ud800\":1}"),
    BAD("\"\\x41\""), BAD("\"\\'\""), BAD("\"\\a\""), BAD("\"\\0\""), BAD("\"\\U0041\""), BAD("\"\\u\""), BAD("\"\\u12\""), BAD("\"\\u123\""), BAD("\"\\u12g4\""),
    BAD("\"\\u 123\""), BAD("\"\\"), BAD("\"\\\""), BAD("\"\\u00"), BAD("\"\\\n\""), BAD("\"\\\xC3\xA9\""),
    /* strings */
    OK("\"plain text of more than sixteen bytes, so that the wide path is taken\""), OK("\"a\x7F" "b\""), OK("\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\""),
    OK("\"0123456789abcde\xC3\xA9\""), OK("\"0123456789abcdef\""), OK("\"\xEF\xBB\xBF\""), OK("\"\xEF\xBF\xBF\""), OK("\"\xF4\x8F\xBF\xBF\""),
    BAD("\""), BAD("\"a"), BAD("\"a\nb\""), BAD("\"a\tb\""), BAD("\"a\0b\""), BAD("\"\x1F\""), BAD("\"0123456789abcdef0123\x01\""), BAD("\"0123456789abcdef"),
    BAD("\"\x80\""), BAD("\"\xBF\""), BAD("\"\xC0\x80\""), BAD("\"\xC1\xBF\""), BAD("\"\xC3\""), BAD("\"\xC3\x28\""), BAD("\"\xE0\x80\x80\""), BAD("\"\xE0\x9F\xBF\""),
    BAD("\"\xE2\x82\""), BAD("\"\xE2\x82"), BAD("\"\xED\xA0\x80\""), BAD("\"\xED\xBF\xBF\""), BAD("\"\xF0\x80\x80\x80\""), BAD("\"\xF0\x8F\xBF\xBF\""),
    BAD("\"\xF4\x90\x80\x80\""), BAD("\"\xF5\x80\x80\x80\""), BAD("\"\xFF\""), BAD("\"\xFE\""), BAD("\"\xF0\x9F\x98\""), BAD("{\"\xC3\":1}"),
#undef OK
#undef BAD
};
/* clang-format on */

static void the_verdict_is_that_of_rfc_8259(void)
{
    struct wp_err err = WP_ERR_INIT;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        EXPECT_INT(texts[i].text, texts[i].want, verdict(texts[i].text, texts[i].n, &err));
}

static void every_cut_of_a_valid_object_is_refused(void)
{
    static const char text[] =
        "{\"a\":[1,-2.5e+3,\"x\\u00e9\\n\xC3\xA9\",{\"b\":null,\"c\":true}],\"d\":false}";
    struct wp_err err = WP_ERR_INIT;

    for (size_t n = 0; n + 1 < sizeof text; n++)
        EXPECT_INT("cut", WP_ESYNTAX, verdict(text, n, &err));
    EXPECT_INT("whole", 0, verdict(text, sizeof text - 1, &err));
}

static void an_error_names_the_byte(void)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("rc", WP_ESYNTAX, verdict("{\"a\": 01}", 9, &err));
    EXPECT_TEXT("sentence", "JSON byte 7: want no digit after a leading 0", wp_str_of(err.text));
    EXPECT_INT("rc", WP_ESYNTAX, verdict("{\"a\":", 5, &err));
    EXPECT_TEXT("sentence", "JSON ends at byte 5, want a value", wp_str_of(err.text));
    EXPECT_INT("no object", WP_EINVAL, wp_json_members(WP_STR("[1]"), NULL, 0, NULL, &err));
    EXPECT_INT("absent text", WP_ESYNTAX, wp_json_members((struct wp_str){0}, NULL, 0, NULL, &err));
}

/* n levels of open brackets, all arrays or arrays and objects in turn, closed again. */
static int nested(unsigned n, bool mixed, struct wp_err *err)
{
    struct wp_buf b = {0};
    int rc;

    for (unsigned i = 0; i < n; i++)
        wp_buf_adds(&b, mixed && i % 3 == 0 ? "{\"k\":" : "[");
    wp_buf_adds(&b, "1");
    for (unsigned i = n; i-- > 0;)
        wp_buf_adds(&b, mixed && i % 3 == 0 ? "}" : "]");
    rc = verdict(b.p, b.n, err);
    wp_buf_fini(&b);
    return rc;
}

static void depth_is_bounded(void)
{
    struct wp_err err = WP_ERR_INIT;

    for (int mixed = 0; mixed < 2; mixed++) {
        EXPECT_INT("63", 0, nested(63, mixed, &err));
        EXPECT_INT("64", 0, nested(64, mixed, &err));
        EXPECT_INT("65", 0, nested(65, mixed, &err));
        EXPECT_INT("128", 0, nested(128, mixed, &err));
        EXPECT_INT("129", 0, nested(129, mixed, &err));
        EXPECT_INT("1024", 0, nested(1024, mixed, &err));
        EXPECT_INT("1025", WP_ETOOBIG, nested(1025, mixed, &err));
        EXPECT_INT("100,000", WP_ETOOBIG, nested(100000, mixed, &err));
    }
}

static void members_are_found_by_decoded_name_and_the_last_one_counts(void)
{
    static const char *const names[] = {"model", "a\nb", "\xF0\x9F\x98\x80", "none", "",
                                        "deep",  "a"};
    static const char text[] =
        " { \"model\" : \"first\", \"deep\": {\"model\": 1, \"none\": 2}, \"mod\\u0065l\":[1, 2] ,"
        "\"a\\nb\":-1.5e2,\"\\ud83d\\uDE00\":true,\"\":null, \"modelmodelmodelmodel\": 9, "
        "\"mode\": 8,"
        " \"a\\u0000\": 7, \"\\ud800\": 6 } ";
    static const char *const want[] = {
        "[1, 2]", "-1.5e2", "true", "", "null", "{\"model\": 1, \"none\": 2}", ""};
    static const enum wp_json_kind kinds[] = {WP_JSON_ARRAY,  WP_JSON_NUMBER, WP_JSON_TRUE,
                                              WP_JSON_ABSENT, WP_JSON_NULL,   WP_JSON_OBJECT,
                                              WP_JSON_ABSENT};
    struct wp_str t = exact(text, sizeof text - 1);
    struct wp_err err = WP_ERR_INIT;
    struct wp_json out[7], whole = {WP_JSON_OBJECT, t.p + 1, t.n - 2};

    EXPECT_INT("rc", 0, wp_json_members(t, names, 7, out, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < 7; i++) {
            EXPECT_INT(names[i], kinds[i], out[i].kind);
            EXPECT_TEXT(names[i], want[i], ((struct wp_str){out[i].p, out[i].n}));
        }
        EXPECT_TRUE("the same by find", wp_json_find(whole, names, 7, out));
    }
    EXPECT_INT("get", WP_JSON_ABSENT, wp_json_get(out[0], "model").kind);
    EXPECT_INT("get", WP_JSON_NUMBER, wp_json_get(out[5], "none").kind);
    EXPECT_TRUE("no object", !wp_json_find(out[0], names, 7, out) && out[5].kind == WP_JSON_ABSENT);
    drop(t);
}

static void arrays_and_objects_are_walked_in_order(void)
{
    static const char text[] = "{\"a\":[ 1 ,\"],[}\\\"\" , [[] , {\"x\":\"}\"}],{ } ,-2e3, "
                               "true,null,false ] , \"b\" : { \"c\" "
                               ": 1,\"d\":\"\\\\\" } }";
    static const char *const want[] = {
        "1", "\"],[}\\\"\"", "[[] , {\"x\":\"}\"}]", "{ }", "-2e3", "true", "null", "false"};
    static const char *const names[] = {"a", "b"};
    struct wp_str t = exact(text, sizeof text - 1);
    struct wp_err err = WP_ERR_INIT;
    struct wp_json out[2], at = {0}, key;
    size_t n = 0;

    EXPECT_INT("rc", 0, wp_json_members(t, names, 2, out, &err));
    for (; wp_json_each(out[0], &at); n++)
        EXPECT_TEXT("item", n < 8 ? want[n] : "none", ((struct wp_str){at.p, at.n}));
    EXPECT_UINT("items", 8, n);
    at = (struct wp_json){0};
    EXPECT_TRUE("c", wp_json_each_member(out[1], &key, &at) && wp_json_is(key, "c") && at.n == 1);
    EXPECT_TRUE("d", wp_json_each_member(out[1], &key, &at) && wp_json_is(key, "d") &&
                         wp_json_is(at, "\\"));
    EXPECT_TRUE("end", !wp_json_each_member(out[1], &key, &at));
    at = (struct wp_json){0};
    EXPECT_TRUE("no array", !wp_json_each(out[1], &at) && !wp_json_each_member(out[0], &key, &at));
    drop(t);
}

static struct wp_json lone(struct wp_str t)
{
    enum wp_json_kind k = *t.p == '"'   ? WP_JSON_STRING
                          : *t.p == '[' ? WP_JSON_ARRAY
                                        : WP_JSON_NUMBER;

    return (struct wp_json){k, t.p, t.n};
}

/* clang-format off */
static const struct { const char *text, *want; long n; } strings[] = {
    {"\"\"", "", 0},
    {"\"abc\"", "abc", 3},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
    {"\"x\\u0041y\\u00e9\\u20AC\"", "xAy\xC3\xA9\xE2\x82\xAC", 8},
    {"\"\\ud83d\\ude00!\"", "\xF0\x9F\x98\x80!", 5},
    {"\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF", 4},
    {"\"\\ud800\\udc00\"", "\xF0\x90\x80\x80", 4},
    {"\"\\ud83d\"", "", -1},
    {"\"\\ude00\"", "", -1},
    {"\"\\ude00\\ud83d\"", "", -1},
    {"\"\\ud83d\\ud83d\\ude00\"", "", -1},
    {"\"\\ud83dabcdef\"", "", -1},
    {"\"\\ud83d\\u0041\"", "", -1},
    {"\"\\ud83d\\n1234\"", "", -1},
    {"\"0123456789\"", "", -1}, /* room for eight */
    {"\"1234567\\u20ac\"", "", -1},
    {"12", "", -1},
};
/* clang-format on */

static void text_is_decoded_unless_it_has_no_form_or_no_room(void)
{
    char out[8];

    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        struct wp_str t = exact(strings[i].text, strlen(strings[i].text));
        long n = wp_json_text(lone(t), out, sizeof out);

        EXPECT_INT(strings[i].text, strings[i].n, n);
        EXPECT_TEXT(strings[i].text, strings[i].want,
                    ((struct wp_str){out, n > 0 ? (size_t)n : 0}));
        EXPECT_TRUE(strings[i].text, wp_json_is(lone(t), strings[i].want) == (n >= 0));
        drop(t);
    }
    EXPECT_TRUE("prefix", !wp_json_is(lone(WP_STR("\"abc\"")), "ab") &&
                              !wp_json_is(lone(WP_STR("\"ab\"")), "abc"));
    EXPECT_TRUE("a zero is a byte", !wp_json_is(lone(WP_STR("\"a\\u0000\"")), "a"));
    EXPECT_INT("a zero is a byte", 2, wp_json_text(lone(WP_STR("\"a\\u0000\"")), out, sizeof out));
    EXPECT_INT("absent", -1, wp_json_text((struct wp_json){0}, out, sizeof out));
}

/* clang-format off */
static const struct { const char *text; bool u_ok; uint64_t u; bool i_ok; int64_t i; bool d_ok; double d; } numbers[] = {
    {"0", true, 0, true, 0, true, 0},
    {"-0", true, 0, true, 0, true, 0},
    {"-0.0e5", true, 0, true, 0, true, 0},
    {"42", true, 42, true, 42, true, 42},
    {"-42", false, 0, true, -42, true, -42},
    {"3.0", true, 3, true, 3, true, 3},
    {"3.5", false, 0, false, 0, true, 3.5},
    {"1e3", true, 1000, true, 1000, true, 1000},
    {"12.50e1", true, 125, true, 125, true, 125},
    {"12.55e1", false, 0, false, 0, true, 125.5},
    {"1200e-2", true, 12, true, 12, true, 12},
    {"1201e-2", false, 0, false, 0, true, 12.01},
    {"0.000012e6", true, 12, true, 12, true, 12},
    {"18446744073709551615", true, UINT64_MAX, false, 0, true, 18446744073709551615.0},
    {"18446744073709551616", false, 0, false, 0, true, 18446744073709551616.0},
    {"9223372036854775807", true, INT64_MAX, true, INT64_MAX, true, 9223372036854775807.0},
    {"9223372036854775808", true, (uint64_t)INT64_MAX + 1, false, 0, true, 9223372036854775808.0},
    {"-9223372036854775808", false, 0, true, INT64_MIN, true, -9223372036854775808.0},
    {"-9223372036854775809", false, 0, false, 0, true, -9223372036854775809.0},
    {"1e19", true, UINT64_C(10000000000000000000), false, 0, true, 1e19},
    {"1e20", false, 0, false, 0, true, 1e20},
    {"0e99999999999999999999", true, 0, true, 0, true, 0},
    {"1e99999999999999999999", false, 0, false, 0, false, 0},
    {"-1e400", false, 0, false, 0, false, 0},
    {"1e-99999999999999999999", false, 0, false, 0, true, 0},
    {"0.00000000000000000000000000000000000000000000000000000000000000000000000000000000001e84", true, 10, true, 10, true, 10},
    {"100000000000000000000000000000000000000000000000000000000000000000000000000000000e-79", true, 10, true, 10, true, 10},
    {"-3.1415926535897932384626433832795028841971693993751058209749445923078164062862", false, 0, false, 0, true, -3.141592653589793},
    {"0.0000000000000000000000000000000000000000000000000000000000000000000000000000000", true, 0, true, 0, true, 0},
    {"\"1\"", false, 0, false, 0, false, 0},
};
/* clang-format on */

static void numbers_are_read_exactly_or_not_at_all(void)
{
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
        struct wp_str t = exact(numbers[k].text, strlen(numbers[k].text));
        uint64_t u = 0;
        int64_t i = 0;
        double d = 0;

        EXPECT_TRUE(numbers[k].text, wp_json_u64(lone(t), &u) == numbers[k].u_ok);
        EXPECT_UINT(numbers[k].text, numbers[k].u, u);
        EXPECT_TRUE(numbers[k].text, wp_json_i64(lone(t), &i) == numbers[k].i_ok);
        EXPECT_INT(numbers[k].text, numbers[k].i, i);
        EXPECT_TRUE(numbers[k].text, wp_json_double(lone(t), &d) == numbers[k].d_ok);
        EXPECT_NEAR(numbers[k].text, numbers[k].d, d, 0);
        drop(t);
    }
}

/* clang-format off */
static const struct { const char *text; long n; uint32_t last; } token_cases[] = {
    {"[]", 0, 0}, {"[ \n]", 0, 0}, {"[7]", 1, 7}, {"[ 1 , 2\n,3 ]", 3, 3}, {"[1,2,3,4,5,6,7,8,9]", 9, 0},
    {"[4294967295]", 1, UINT32_MAX}, {"[4294967296]", -1, 0}, {"[42949672950]", -1, 0}, {"[99999999999999999999999]", -1, 0},
    {"[1,-2]", -1, 0}, {"[-0]", 1, 0}, {"[1.5]", -1, 0}, {"[3.0,1e3]", 2, 1000}, {"[1e10]", -1, 0},
    {"[[1]]", -1, 0}, {"[1,[2]]", -1, 0}, {"[\"1\"]", -1, 0}, {"[1,\"2,3\"]", -1, 0}, {"[null]", -1, 0}, {"[true]", -1, 0},
    {"[{\"a\":1}]", -1, 0}, {"12", -1, 0}, {"\"[1]\"", -1, 0},
};
/* clang-format on */

static void tokens_are_whole_numbers_of_32_bits(void)
{
    uint32_t out[8];

    for (size_t i = 0; i < sizeof token_cases / sizeof token_cases[0]; i++) {
        struct wp_str t = exact(token_cases[i].text, strlen(token_cases[i].text));
        long n;

        out[7] = 77;
        n = wp_json_tokens(lone(t), out, 7);
        EXPECT_INT(token_cases[i].text, token_cases[i].n, n);
        if (n > 0 && n <= 7)
            EXPECT_UINT(token_cases[i].text, token_cases[i].last, out[n - 1]);
        EXPECT_UINT("nothing is written past the room", 77, out[7]);
        drop(t);
    }
    EXPECT_INT("no room at all", 3, wp_json_tokens(lone(WP_STR("[1,2,3]")), NULL, 0));
}

static void blanks_into(struct wp_buf *b, struct wp_rng *r)
{
    static const char *const some[] = {"", "", "", "", "", "", " ", " ", "  ", "\n", "\t"};

    wp_buf_adds(b, some[wp_rng_below(r, sizeof some / sizeof some[0])]);
}

/* [numbers], one byte or none of it spoilt; few numbers have more than eight digits. */
static void some_list(struct wp_buf *b, struct wp_rng *r)
{
    static const char spoil[] = "0123456789, -.e[]{}\"x\n\0";
    bool blanks = wp_rng_below(r, 2), tight = wp_rng_below(r, 2);

    wp_buf_adds(b, "[");
    for (uint64_t i = 0, n = wp_rng_below(r, 60); i < n; i++) {
        uint64_t digits = wp_rng_below(r, 200) ? 1 + wp_rng_below(r, 6) : 1 + wp_rng_below(r, 80);

        wp_buf_adds(b, i ? tight ? "," : ", " : "");
        if (blanks)
            blanks_into(b, r);
        for (uint64_t d = 0; d < digits; d++)
            wp_buf_printf(b, "%u", (unsigned)(wp_rng_below(r, 9) + (d == 0)));
        if (blanks)
            blanks_into(b, r);
    }
    wp_buf_adds(b, "]");
    if (wp_rng_below(r, 2))
        b->p[1 + wp_rng_below(r, b->n - 1)] = spoil[wp_rng_below(r, sizeof spoil - 1)];
}

static const char *past_digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* Just a list of whole numbers from 0 to 2^32 - 1, read a byte at a time: how many, or -1. */
static long read_plainly(struct wp_str t, uint32_t out[])
{
    const char *p = t.p + 1, *end = t.p + t.n;
    long n = 0;

    for (;;) {
        const char *q;
        uint64_t x;

        while (p < end && (*p == ' ' || *p == '\n' || *p == '\t'))
            p++;
        if (n == 0 && end - p == 1 && *p == ']')
            return 0;
        q = past_digits(p, end);
        if (q == p || q == end || (*p == '0' && q - p > 1) || !wp_str_u64((struct wp_str){p, (size_t)(q - p)}, &x) || x > UINT32_MAX)
            return -1;
        out[n++] = (uint32_t)x;
        for (p = q; p < end && (*p == ' ' || *p == '\n' || *p == '\t');)
            p++;
        if (p < end && *p == ']')
            return end - p == 1 ? n : -1;
        if (p == end || *p++ != ',')
            return -1;
    }
}

/* By many bytes at a time: whatever stands in it, wherever it is cut. */
static void lists_are_read_as_one_number_after_the_other(void)
{
    struct wp_rng r = {11};
    struct wp_err err = WP_ERR_INIT;
    uint32_t want[4096], got[4096];
    size_t good = 0;

    for (int round = 0; round < 20000; round++) {
        struct wp_buf b = {0};
        struct wp_str t;
        long n;

        some_list(&b, &r);
        t = exact(b.p, b.n);
        n = read_plainly(t, want);
        if (verdict(t.p, t.n, &err) == 0) {
            long m = wp_json_tokens(lone(t), got, 4096);

            EXPECT_TRUE("what is no list of whole numbers may be numbers all the same", n < 0 || m == n);
            EXPECT_TRUE("each", n <= 0 || memcmp(want, got, (size_t)n * sizeof want[0]) == 0);
            good += n > 0;
        } else {
            EXPECT_INT("a list is valid", -1, n);
        }
        drop(t);
        wp_buf_fini(&b);
    }
    EXPECT_TRUE("most are", good > 5000);
}

static void a_million_tokens_come_back(void)
{
    enum { N = 1000000 };
    uint32_t *out = wp_malloc(N * sizeof *out);
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf b = {0};
    size_t wrong = 0;

    for (uint32_t i = 0; i < N; i++)
        wp_buf_printf(&b, "%s%u", i ? ", " : "[", i * 4294u);
    wp_buf_adds(&b, "]");
    EXPECT_INT("valid", 0, verdict(b.p, b.n, &err));
    EXPECT_INT("count", N, wp_json_tokens(lone(wp_buf_str(&b)), out, N));
    for (uint32_t i = 0; i < N; i++)
        wrong += out[i] != i * 4294u;
    EXPECT_UINT("wrong ones", 0, wrong);
    wp_buf_fini(&b);
    wp_free(out);
}

static void compact_drops_blanks_between_tokens_only(void)
{
    static const char text[] = "{ \"a b\" : [ 1.50 , \"x \\\" y\" ,{ }\t],\r\n\"c\":\n null }";
    struct wp_str t = exact(text, sizeof text - 1);
    struct wp_buf b = {0};

    EXPECT_INT("rc", 0, wp_json_compact(&b, (struct wp_json){WP_JSON_OBJECT, t.p, t.n}));
    EXPECT_TEXT("text", "{\"a b\":[1.50,\"x \\\" y\",{}],\"c\":null}", wp_buf_str(&b));
    EXPECT_INT("a string as it is", 0, wp_json_compact(&b, lone(WP_STR("\" \\u0041 \""))));
    EXPECT_TEXT("behind", "}\" \\u0041 \"", ((struct wp_str){b.p + b.n - 11, 11}));
    wp_buf_fini(&b);
    b.max = 4;
    wp_buf_adds(&b, "ab");
    EXPECT_INT("past the limit", WP_ETOOBIG,
               wp_json_compact(&b, (struct wp_json){WP_JSON_OBJECT, t.p, t.n}));
    EXPECT_TEXT("as before", "ab", wp_buf_str(&b));
    wp_buf_fini(&b);
    drop(t);
}

/* clang-format off */
static const struct { const char *label, *text, *want; struct wp_json_edit edit[3]; size_t n; } splices[] = {
#define V(t) {t, sizeof(t) - 1}
#define GONE {NULL, 0}
    {"no edit", " {\"a\" : 1 }\n", " {\"a\" : 1 }\n", {{0}}, 0},
    {"replace", "{ \"a\" : 1 , \"b\":2}", "{ \"a\" : [3] , \"b\":2}", {{"a", V("[3]")}}, 1},
    {"replace the last", "{\"a\":1,\"b\" :\t2 }\n", "{\"a\":1,\"b\" :\tnull }\n", {{"b", V("null")}}, 1},
    {"append", "{\"a\":1 }", "{\"a\":1,\"x\":true }", {{"x", V("true")}}, 1},
    {"append to an empty object", " { } ", " {\"x\":1 } ", {{"x", V("1")}}, 1},
    {"append two", "{}", "{\"x\":1,\"y\":2}", {{"x", V("1")}, {"y", V("2")}}, 2},
    {"append a name that needs escapes", "{}", "{\"a\\\"\\n\":1}", {{"a\"\n", V("1")}}, 1},
    {"remove the only one", "{ \"a\":1 }", "{  }", {{"a", GONE}}, 1},
    {"remove the first", "{ \"a\":1 , \"b\":2,\"c\":3}", "{ \"b\":2,\"c\":3}", {{"a", GONE}}, 1},
    {"remove the middle", "{\"a\":1 , \"b\":2 ,\"c\":3}", "{\"a\":1 ,\"c\":3}", {{"b", GONE}}, 1},
    {"remove the last", "{\"a\":1,\n \"b\":2\n}", "{\"a\":1\n}", {{"b", GONE}}, 1},
    {"remove the first two", "{ \"a\":1,\"b\":2, \"c\" :3}", "{ \"c\" :3}", {{"a", GONE}, {"b", GONE}}, 2},
    {"remove the last two", "{\"a\":1, \"b\":2, \"c\":3 }", "{\"a\":1 }", {{"b", GONE}, {"c", GONE}}, 2},
    {"remove all", "{\"a\":1,\"b\":2}", "{}", {{"a", GONE}, {"b", GONE}}, 2},
    {"remove all and append", "{ \"a\":1,\"b\":2 }", "{ \"c\":3 }", {{"a", GONE}, {"b", GONE}, {"c", V("3")}}, 3},
    {"remove what is not there", "{\"a\":1}", "{\"a\":1}", {{"x", GONE}}, 1},
    {"replace the last of duplicates, the others go", "{\"a\":1,\"b\":0,\"a\":2,\"c\":0}", "{\"b\":0,\"a\":9,\"c\":0}", {{"a", V("9")}}, 1},
    {"remove all duplicates", "{\"a\":1,\"b\":0,\"a\":2}", "{\"b\":0}", {{"a", GONE}}, 1},
    {"duplicates that nobody edits stay", "{\"a\":1,\"b\":0,\"a\":2}", "{\"a\":1,\"a\":2}", {{"b", GONE}}, 1},
    {"an escaped key is the same name", "{\"mod\\u0065l\" : \"x\"}", "{\"mod\\u0065l\" : \"y\"}", {{"model", V("\"y\"")}}, 1},
    {"an escaped key is removed", "{\"mod\\u0065l\":\"x\",\"a\":1}", "{\"a\":1}", {{"model", GONE}}, 1},
    {"an escaped duplicate goes", "{\"model\":1,\"mod\\u0065l\":2}", "{\"mod\\u0065l\":3}", {{"model", V("3")}}, 1},
    {"members inside are no members", "{\"o\":{\"a\":1},\"s\":\"a\",\"a\":2}", "{\"o\":{\"a\":1},\"s\":\"a\",\"a\":3}", {{"a", V("3")}}, 1},
    {"replace, remove, append", "{\"a\":1, \"b\":2, \"c\":3}", "{\"a\":7, \"c\":3,\"d\":4}", {{"a", V("7")}, {"b", GONE}, {"d", V("4")}}, 3},
    {"of two edits of a name the later counts", "{\"a\":1}", "{\"a\":3}", {{"a", V("2")}, {"a", V("3")}}, 2},
    {"of two new ones too", "{}", "{\"a\":3}", {{"a", V("2")}, {"a", V("3")}}, 2},
    {"a lone surrogate stays as it is", "{\"s\":\"\\ud800\",\"n\":1e999,\"a\":1}", "{\"s\":\"\\ud800\",\"n\":1e999}", {{"a", GONE}}, 1},
#undef V
#undef GONE
};
/* clang-format on */

static void a_splice_leaves_every_other_byte(void)
{
    for (size_t i = 0; i < sizeof splices / sizeof splices[0]; i++) {
        struct wp_str t = exact(splices[i].text, strlen(splices[i].text));
        struct wp_err err = WP_ERR_INIT;
        struct wp_buf b = {0};

        EXPECT_INT(splices[i].label, 0, wp_json_splice(&b, t, splices[i].edit, splices[i].n));
        EXPECT_TEXT(splices[i].label, splices[i].want, wp_buf_str(&b));
        EXPECT_INT(splices[i].label, 0, wp_json_members(wp_buf_str(&b), NULL, 0, NULL, &err));
        wp_buf_fini(&b);
        drop(t);
    }
}

static void a_splice_that_fails_leaves_the_buffer(void)
{
    const struct wp_json_edit edit[] = {{"a", WP_STR("12345678901234567890")}, {"b", WP_STR("2")}};
    struct wp_str t = WP_STR("{\"a\":1,\"c\":\"a long text so that the buffer must grow more than "
                             "once while it is written\"}");
    struct wp_buf b = {0};
    long live = wp_mem_live();

    EXPECT_INT("no object", WP_EINVAL, wp_json_splice(&b, WP_STR("[1]"), edit, 2));
    EXPECT_INT("nothing", WP_EINVAL, wp_json_splice(&b, WP_STR(" "), edit, 2));
    b.max = 60;
    wp_buf_adds(&b, "x");
    EXPECT_INT("too big", WP_ETOOBIG, wp_json_splice(&b, t, edit, 2));
    EXPECT_TEXT("as before", "x", wp_buf_str(&b));
    wp_buf_fini(&b);
    b.max = 0;
    for (long nth = 0;; nth++) {
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_json_splice(&b, t, edit, 2);
        if (!wp_mem_failed())
            break;
        EXPECT_INT("no memory", WP_ENOMEM, rc);
        EXPECT_UINT("as before", 0, b.n);
        wp_buf_fini(&b);
    }
    wp_mem_fail_after(-1);
    wp_buf_fini(&b);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

/* clang-format off */
static const struct { const char *file; int rc; const char *model; } files[] = {
    {"B044", 0, "alias-of-test-model"}, {"B081", 0, "test-model"}, {"B107a", 0, "no-such-model"}, {"B107b", 0, NULL}, {"B107c", 0, "test-model"},
    {"B107d", WP_ESYNTAX, NULL}, {"B108", 0, "a\"},\"x\":\"\\\n\a\xE2\x80\xA8\xC3\xA9"}, {"B116", 0, "test-model"}, {"B120a", 0, "test-model"},
    {"B120b", 0, "test-model"}, {"B120c", 0, "test-model"}, {"B129", 0, "test-model"}, {"B216-turn1", 0, "test-model"}, {"B216-turn2", 0, "test-model"},
    {"B218-turn1", 0, "test-model"}, {"B218-turn2-dropped", 0, "test-model"}, {"B218-turn2-kept", 0, "test-model"}, {"B249", 0, "test-model"},
    {"plain", 0, "test-model"}, {"stream", 0, "test-model"},
};
/* clang-format on */

static void the_bodies_of_the_cases_are_read_and_edited(void)
{
    const struct wp_json_edit edit = {"model", WP_STR("\"other\"")};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_json model;
        struct wp_buf b = {0};
        char path[64];
        size_t n;
        char *p;

        snprintf(path, sizeof path, "cases/json/%s.json", files[i].file);
        p = wp_test_data(path, &n);
        if (!p)
            continue;
        EXPECT_INT(path, files[i].rc,
                   wp_json_members((struct wp_str){p, n}, &edit.name, 1, &model, &err));
        if (files[i].rc == 0) {
            EXPECT_TRUE(path, files[i].model ? wp_json_is(model, files[i].model)
                                             : model.kind == WP_JSON_ABSENT);
            EXPECT_INT(path, 0, wp_json_splice(&b, (struct wp_str){p, n}, &edit, 1));
            EXPECT_INT(path, 0, wp_json_members(wp_buf_str(&b), &edit.name, 1, &model, &err));
            EXPECT_TRUE(path, wp_json_is(model, "other"));
        }
        wp_buf_fini(&b);
        wp_free(p);
    }
}

const struct wp_suite suite_json = {
    "json",
    (const struct wp_test[]){
        {"the verdict is that of RFC 8259", the_verdict_is_that_of_rfc_8259},
        {"every cut of a valid object is refused", every_cut_of_a_valid_object_is_refused},
        {"an error names the byte", an_error_names_the_byte},
        {"depth is bounded", depth_is_bounded},
        {"members are found by decoded name and the last one counts",
         members_are_found_by_decoded_name_and_the_last_one_counts},
        {"arrays and objects are walked in order", arrays_and_objects_are_walked_in_order},
        {"text is decoded unless it has no form or no room",
         text_is_decoded_unless_it_has_no_form_or_no_room},
        {"numbers are read exactly or not at all", numbers_are_read_exactly_or_not_at_all},
        {"tokens are whole numbers of 32 bits", tokens_are_whole_numbers_of_32_bits},
        {"lists are read as one number after the other", lists_are_read_as_one_number_after_the_other},
        {"a million tokens come back", a_million_tokens_come_back},
        {"compact drops blanks between tokens only", compact_drops_blanks_between_tokens_only},
        {"a splice leaves every other byte", a_splice_leaves_every_other_byte},
        {"a splice that fails leaves the buffer", a_splice_that_fails_leaves_the_buffer},
        {"the bodies of the cases are read and edited",
         the_bodies_of_the_cases_are_read_and_edited},
        {NULL, NULL},
    },
};
