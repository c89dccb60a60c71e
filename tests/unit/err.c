/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "tests/lib/test.h"

#include <string.h>

static void an_error_reads_from_outside_in(void)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("code", WP_ECONNREFUSED,
               wp_fail(&err, WP_ECONNREFUSED, "connect %s:%d", "10.0.0.5", 6379));
    EXPECT_INT("code stays", WP_ECONNREFUSED, wp_wrap(&err, "redis share %s", "cache-a"));
    EXPECT_INT("code stays", WP_ECONNREFUSED, err.code);
    EXPECT_TEXT("text", "redis share cache-a: connect 10.0.0.5:6379", wp_str_of(err.text));
}

static void an_error_may_be_made_of_itself(void)
{
    struct wp_err err = WP_ERR_INIT;

    wp_fail(&err, WP_EINVAL, "inner");
    wp_fail(&err, WP_EPROTO, "<%s> and <%s>", err.text, err.text);
    EXPECT_TEXT("fail", "<inner> and <inner>", wp_str_of(err.text));
    wp_wrap(&err, "[%s]", err.text);
    EXPECT_TEXT("wrap", "[<inner> and <inner>]: <inner> and <inner>", wp_str_of(err.text));
}

static void a_sentence_is_one_line_and_fits(void)
{
    struct wp_err err = WP_ERR_INIT;
    char lots[2000];

    wp_fail(&err, WP_EPROTO, "peer said \"%s\"", "a\r\nb\x7F\tc");
    EXPECT_TEXT("control bytes", "peer said \"a??b??c\"", wp_str_of(err.text));
    memset(lots, 'x', sizeof lots - 1);
    lots[sizeof lots - 1] = 0;
    wp_fail(&err, WP_EPROTO, "%s", lots);
    EXPECT_UINT("cut", sizeof err.text - 1, strlen(err.text));
    wp_wrap(&err, "outside");
    EXPECT_UINT("cut again", sizeof err.text - 1, strlen(err.text));
    EXPECT_TRUE("what is outside stays", strncmp(err.text, "outside: xxx", 12) == 0);
    wp_wrap(&err, "%s", lots);
    EXPECT_UINT("no room for the inside", sizeof err.text - 1, strlen(err.text));
}

static void every_code_has_a_name(void)
{
    EXPECT_TEXT("ours", "syntax error", wp_str_of(wp_strerror(WP_ESYNTAX)));
    EXPECT_TEXT("errno's", "connection refused", wp_str_of(wp_strerror(-ECONNREFUSED)));
    EXPECT_TEXT("none", "success", wp_str_of(wp_strerror(0)));
    EXPECT_TEXT("positive", "unknown error", wp_str_of(wp_strerror(5)));
    for (int code = -30000; code <= 1; code++) {
        const char *name = wp_strerror(code);

        if (!name || !*name)
            EXPECT_INT("a code without a name", 0, code);
    }
}

const struct wp_suite suite_err = {
    "err",
    (const struct wp_test[]){
        {"an error reads from outside in", an_error_reads_from_outside_in},
        {"an error may be made of itself", an_error_may_be_made_of_itself},
        {"a sentence is one line and fits", a_sentence_is_one_line_and_fits},
        {"every code has a name", every_code_has_a_name},
        {NULL, NULL},
    },
};
