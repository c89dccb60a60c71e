/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/msgpack.h"

#include "base/mem.h"
#include "tests/lib/bytes.h"
#include "tests/lib/test.h"

/* Bytes of memory that is exactly as long; the caller's. */
static struct wp_msgpack_in input(const char *hex, char **p)
{
    size_t n;

    *p = wp_test_hex(wp_str_of(hex), &n);
    EXPECT_TRUE(hex, *p);
    return wp_msgpack_in((struct wp_str){*p, *p ? n : 0});
}

static void every_form_of_a_value_is_read(void)
{
    /* clang-format off */
    static const struct {
        const char *hex;
        enum wp_msgpack_kind kind;
        uint64_t u;
        double d;
        const char *bytes;
    } cases[] = {
        {"00", WP_MSGPACK_UINT, 0, 0, NULL},
        {"7f", WP_MSGPACK_UINT, 127, 0, NULL},
        {"ccff", WP_MSGPACK_UINT, 255, 0, NULL},
        {"cdffff", WP_MSGPACK_UINT, 65535, 0, NULL},
        {"ceffffffff", WP_MSGPACK_UINT, UINT32_MAX, 0, NULL},
        {"cfffffffffffffffff", WP_MSGPACK_UINT, UINT64_MAX, 0, NULL},
        {"cf0000000000000007", WP_MSGPACK_UINT, 7, 0, NULL},
        {"d07f", WP_MSGPACK_UINT, 127, 0, NULL},
        {"d17fff", WP_MSGPACK_UINT, 32767, 0, NULL},
        {"d27fffffff", WP_MSGPACK_UINT, INT32_MAX, 0, NULL},
        {"d37fffffffffffffff", WP_MSGPACK_UINT, INT64_MAX, 0, NULL},
        {"ff", WP_MSGPACK_INT, UINT64_MAX, 0, NULL},
        {"e0", WP_MSGPACK_INT, (uint64_t)-32, 0, NULL},
        {"d080", WP_MSGPACK_INT, (uint64_t)-128, 0, NULL},
        {"d18000", WP_MSGPACK_INT, (uint64_t)-32768, 0, NULL},
        {"d280000000", WP_MSGPACK_INT, (uint64_t)INT32_MIN, 0, NULL},
        {"d38000000000000000", WP_MSGPACK_INT, (uint64_t)INT64_MIN, 0, NULL},
        {"d3ffffffffffffffff", WP_MSGPACK_INT, UINT64_MAX, 0, NULL},
        {"ca3fc00000", WP_MSGPACK_FLOAT, 0, 1.5, NULL},
        {"cb3ff8000000000000", WP_MSGPACK_FLOAT, 0, 1.5, NULL},
        {"c0", WP_MSGPACK_NIL, 0, 0, NULL},
        {"c2", WP_MSGPACK_FALSE, 0, 0, NULL},
        {"c3", WP_MSGPACK_TRUE, 0, 0, NULL},
        {"a0", WP_MSGPACK_STR, 0, 0, ""},
        {"a3616263", WP_MSGPACK_STR, 0, 0, "abc"},
        {"d9026162", WP_MSGPACK_STR, 0, 0, "ab"},
        {"da00026162", WP_MSGPACK_STR, 0, 0, "ab"},
        {"db000000026162", WP_MSGPACK_STR, 0, 0, "ab"},
        {"c4026162", WP_MSGPACK_BIN, 0, 0, "ab"},
        {"c500026162", WP_MSGPACK_BIN, 0, 0, "ab"},
        {"c6000000026162", WP_MSGPACK_BIN, 0, 0, "ab"},
        {"d40561", WP_MSGPACK_EXT, 5, 0, "a"},
        {"d5056162", WP_MSGPACK_EXT, 5, 0, "ab"},
        {"d60561626364", WP_MSGPACK_EXT, 5, 0, "abcd"},
        {"d7056162636465666768", WP_MSGPACK_EXT, 5, 0, "abcdefgh"},
        {"d80561626364656667686162636465666768", WP_MSGPACK_EXT, 5, 0, "abcdefghabcdefgh"},
        {"c70105" "61", WP_MSGPACK_EXT, 5, 0, "a"},
        {"c8000105" "61", WP_MSGPACK_EXT, 5, 0, "a"},
        {"c90000000105" "61", WP_MSGPACK_EXT, 5, 0, "a"},
        {"c70005", WP_MSGPACK_EXT, 5, 0, ""},
        {"90", WP_MSGPACK_ARRAY, 0, 0, NULL},
        {"80", WP_MSGPACK_MAP, 0, 0, NULL},
        {"dc0000", WP_MSGPACK_ARRAY, 0, 0, NULL},
        {"dd00000000", WP_MSGPACK_ARRAY, 0, 0, NULL},
        {"de0000", WP_MSGPACK_MAP, 0, 0, NULL},
        {"df00000000", WP_MSGPACK_MAP, 0, 0, NULL},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *hex = cases[i].hex;
        struct wp_msgpack v;
        char *p;
        struct wp_msgpack_in in = input(hex, &p), start = in, again = in;

        EXPECT_INT(hex, 0, wp_msgpack_read(&in, &v));
        EXPECT_INT(hex, cases[i].kind, v.kind);
        EXPECT_UINT(hex, cases[i].u, v.u);
        EXPECT_NEAR(hex, cases[i].d, v.d, 0);
        EXPECT_TRUE(hex, in.p == in.end);
        EXPECT_TRUE(hex, !v.bytes.p == !cases[i].bytes);
        if (cases[i].bytes)
            EXPECT_TEXT(hex, cases[i].bytes, v.bytes);
        EXPECT_INT(hex, 0, wp_msgpack_skip(&again, 0));
        EXPECT_TRUE(hex, again.p == again.end);
        for (const uint8_t *cut = start.p; cut < start.end; cut++) { /* any shorter is too short */
            struct wp_msgpack_in cut_in = {start.p, cut};

            EXPECT_INT(hex, WP_EEOF, wp_msgpack_read(&cut_in, &v));
            EXPECT_INT(hex, WP_EEOF, wp_msgpack_skip(&cut_in, 0));
            EXPECT_TRUE("stays where it was", cut_in.p == start.p);
        }
        wp_free(p);
    }
}

static void what_cannot_be_true_is_refused_at_its_head(void)
{
    static const struct {
        const char *hex;
        int rc;
    } cases[] = {
        {"c1", WP_EPROTO},
        {"", WP_EEOF},
        {"dbffffffff61", WP_EEOF},
        {"c6ffffffff61", WP_EEOF},
        {"c9ffffffff05", WP_EEOF},
        {"ddffffffff00", WP_EEOF},
        {"dd000000020", WP_EEOF},
        {"dfffffffff0000", WP_EEOF},
        {"df0000000100", WP_EEOF},
        {"820000c0", WP_EEOF},
        {"9100", 0},
        {"810000", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_msgpack v;
        char *p = NULL, hex[32];
        struct wp_msgpack_in in;

        snprintf(hex, sizeof hex, "%s%s", cases[i].hex, strlen(cases[i].hex) % 2 ? "0" : "");
        in = input(hex, &p);
        EXPECT_INT(hex, cases[i].rc, wp_msgpack_read(&in, &v));
        wp_free(p);
    }
}

static void one_value_is_skipped_whole(void)
{
    static const struct {
        const char *hex;
        int rc;
        size_t n;
    } cases[] = {
        {"00ff", 0, 1},
        {"9301a26162c0ff", 0, 6},
        {"82a1619201c3c0cb000000000000000000", 0, 16},
        {"9391900080ff", 0, 5},
        {"dc000391c091910500ff", 0, 9},
        {"9200", WP_EEOF, 0},
        {"92c000c1", 0, 3},
        {"93c000c1", WP_EPROTO, 0},
        {"9293", WP_EEOF, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_str slice = {0};
        char *p;
        struct wp_msgpack_in in = input(cases[i].hex, &p), start = in;

        EXPECT_INT(cases[i].hex, cases[i].rc, wp_msgpack_slice(&in, 0, &slice));
        EXPECT_UINT(cases[i].hex, cases[i].n, (size_t)(in.p - start.p));
        EXPECT_UINT(cases[i].hex, cases[i].n, slice.n);
        wp_free(p);
    }
}

static void containers_within_each_other_are_bounded(void)
{
    for (unsigned n = 1; n <= 64; n++) {
        char deep[64];

        memset(deep, '\x91', n - 1);
        deep[n - 1] = '\x90';
        for (unsigned open = 0; open <= WP_MSGPACK_DEPTH; open++) {
            struct wp_msgpack_in in = wp_msgpack_in((struct wp_str){deep, n});

            EXPECT_INT("depth", open + n <= WP_MSGPACK_DEPTH ? 0 : WP_ETOOBIG,
                       wp_msgpack_skip(&in, open));
        }
    }
}

static void token_ids_are_read_in_every_form(void)
{
    static const struct {
        const char *hex;
        size_t n;
        uint32_t last;
    } cases[] = {
        /* up to 12 are asked for */
        {"00", 1, 0},
        {"007fcc80cdfffeceffffffff01", 6, 1},
        {"cf00000000ffffffff", 1, UINT32_MAX},
        {"cf000000010000000001", 0, 0},
        {"01d002d10003d200000004d30000000000000005", 5, 5},
        {"0102ff", 2, 2},
        {"01d0ff", 1, 1},
        {"01c0", 1, 1},
        {"01a161", 1, 1},
        {"01cb3ff0000000000000", 1, 1},
        {"01c3", 1, 1},
        {"0191020304050607080910", 1, 1},
        {"01cdff", 1, 1},
        {"000102030405060708090a0b0c0d", 12, 11},
        {"cd0100cd0101cd0102cd0103cd0104cd0105", 6, 0x105},
        {"ce00010000ce00010001ce00010002ce00", 3, 0x10002},
        {"", 0, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[12] = {0};
        char *p;
        struct wp_msgpack_in in = input(cases[i].hex, &p), check = in;
        size_t n = wp_msgpack_tokens(&in, 12, out);

        EXPECT_UINT(cases[i].hex, cases[i].n, n);
        EXPECT_UINT(cases[i].hex, cases[i].last, n ? out[n - 1] : 0);
        EXPECT_UINT(cases[i].hex, n, wp_msgpack_tokens(&check, 12, NULL));
        EXPECT_TRUE("stops at the same place", in.p == check.p);
        wp_free(p);
    }
}

static const struct wp_test tests[] = {
    {"every form of a value is read", every_form_of_a_value_is_read},
    {"what cannot be true is refused at its head", what_cannot_be_true_is_refused_at_its_head},
    {"one value is skipped whole", one_value_is_skipped_whole},
    {"containers within each other are bounded", containers_within_each_other_are_bounded},
    {"token ids are read in every form", token_ids_are_read_in_every_form},
    {NULL, NULL},
};
const struct wp_suite suite_msgpack = {"msgpack", tests};
