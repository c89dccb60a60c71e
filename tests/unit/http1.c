/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/mem.h"
#include "net/http1.h"
#include "tests/lib/test.h"

enum { MAX = 4096 };

/* One reading of a head; split: its bytes come one by one. */
struct reading {
    struct wp_head h;
    long rc;
    int status;
    const char *why;
};

static void read_head(struct reading *r, bool response, const char *p, size_t n, size_t max, bool split)
{
    size_t from = 0;

    *r = (struct reading){0};
    for (size_t have = split ? 0 : n; have <= n && r->rc == 0; have++)
        r->rc = response ? wp_http1_response(p, have, max, &from, &r->h, &r->why)
                         : wp_http1_request(p, have, max, &from, &r->h, &r->status, &r->why);
}

#define S(lit) {lit, sizeof(lit) - 1} /* WP_STR() is no constant */
#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"

/* 0: accepted */
static const struct {
    const char *label;
    int status;
    struct wp_str bytes;
} request_cases[] = {
    /* clang-format off */
    {"plain",                          0, S(GET "\r\n")},
    {"empty lines before it",          0, S("\r\n\r\n" GET "\r\n")},
    {"too many empty lines",         400, S("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n" GET "\r\n")},
    {"a bare LF before it",          400, S("\n" GET "\r\n")},
    {"a bare CR before it",          400, S("\r" GET "\r\n")},
    {"HTTP/1.0 without Host",          0, S("GET / HTTP/1.0\r\n\r\n")},
    {"two blanks first",             400, S("GET  / HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"two blanks second",            400, S("GET /  HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"a blank at the end",           400, S("GET / HTTP/1.1 \r\nHost: a\r\n\r\n")},
    {"a blank in front",             400, S(" GET / HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"a tab between",                400, S("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"a blank in the target",        400, S("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"two words",                    400, S("GET /\r\nHost: a\r\n\r\n")},
    {"one word",                     400, S("GET\r\nHost: a\r\n\r\n")},
    {"no target",                    400, S("GET  HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"lower-case version",           400, S("GET / http/1.1\r\nHost: a\r\n\r\n")},
    {"long version",                 400, S("GET / HTTP/1.10\r\nHost: a\r\n\r\n")},
    {"HTTP/1.2",                     505, S("GET / HTTP/1.2\r\nHost: a\r\n\r\n")},
    {"HTTP/0.9",                     505, S("GET / HTTP/0.9\r\nHost: a\r\n\r\n")},
    {"the preface of HTTP/2",        505, S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
    {"a TLS hello",                  400, S("\x16\x03\x01\x02")},
    {"odd method",                   400, S("GE(T / HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"method with NUL",              400, S("GE\0T / HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"unknown method",               501, S("BREW / HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"lower-case method",            501, S("get / HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"a method of RTSP",             501, S("PLAY / HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"CONNECT",                      501, S("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"OPTIONS *",                      0, S("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"GET *",                        400, S("GET * HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"absolute",                       0, S("GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"absolute with user",           400, S("GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"absolute without host",        400, S("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"absolute without path",        400, S("GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"another scheme",               400, S("GET ftp://a/x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"no slash",                     400, S("GET x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"a fragment",                   400, S("GET /#x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"a high byte in the target",    400, S("GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"a control byte in the target", 400, S("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n")},
    {"bare LF after the line",       400, S("GET / HTTP/1.1\nHost: a\r\n\r\n")},
    {"bare LF after a field",        400, S(GET "X: 1\n\r\n")},
    {"bare LF as the end",           400, S(GET "\n")},
    {"bare CR in a value",           400, S(GET "X: 1\r2\r\n\r\n")},
    {"bare CR in a name",            400, S(GET "X\r: 1\r\n\r\n")},
    {"CR CR LF",                     400, S(GET "X: 1\r\r\n\r\n")},
    {"obs-fold",                     400, S(GET "X: 1\r\n 2\r\n\r\n")},
    {"obs-fold by a tab",            400, S(GET "X: 1\r\n\t2\r\n\r\n")},
    {"a blank before the first",     400, S("GET / HTTP/1.1\r\n Host: a\r\n\r\n")},
    {"empty name",                   400, S(GET ": 1\r\n\r\n")},
    {"only a colon",                 400, S(GET ":\r\n\r\n")},
    {"no colon",                     400, S(GET "X\r\n\r\n")},
    {"a blank before the colon",     400, S(GET "X : 1\r\n\r\n")},
    {"a blank in the name",          400, S(GET "X Y: 1\r\n\r\n")},
    {"a high byte in the name",      400, S(GET "X\xe4: 1\r\n\r\n")},
    {"NUL in the name",              400, S(GET "X\0: 1\r\n\r\n")},
    {"NUL in a value",               400, S(GET "X: a\0\r\n\r\n")},
    {"0x01 in a value",              400, S(GET "X: a\x01\r\n\r\n")},
    {"0x7f in a value",              400, S(GET "X: a\x7f\r\n\r\n")},
    {"a high byte in a value",         0, S(GET "X: \xc3\xa4\r\n\r\n")},
    {"a tab in a value",               0, S(GET "X: a\tb\r\n\r\n")},
    {"an empty value",                 0, S(GET "X:\r\n\r\n")},
    {"no Host",                      400, S("GET / HTTP/1.1\r\n\r\n")},
    {"two Host",                     400, S(GET "Host: b\r\n\r\n")},
    {"two equal Host",               400, S(GET "host: a\r\n\r\n")},
    {"two Host in HTTP/1.0",         400, S("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n")},
    {"empty Host",                     0, S("GET / HTTP/1.1\r\nHost:\r\n\r\n")},
    {"Host with port",                 0, S("GET / HTTP/1.1\r\nHost: a.b-c_d:80\r\n\r\n")},
    {"Host [v6]",                      0, S("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n")},
    {"Host list",                    400, S("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n")},
    {"Host with path",               400, S("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n")},
    {"Host with user",               400, S("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n")},
    {"Host with a bad port",         400, S("GET / HTTP/1.1\r\nHost: a:8o\r\n\r\n")},
    {"Host with a big port",         400, S("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n")},
    {"Host [",                       400, S("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n")},
    {"Host with a blank",            400, S("GET / HTTP/1.1\r\nHost: a b\r\n\r\n")},
    {"length",                         0, S(POST "Content-Length: 5\r\n\r\n")},
    {"the largest length",             0, S(POST "Content-Length: 9223372036854775807\r\n\r\n")},
    {"a length past it",             400, S(POST "Content-Length: 9223372036854775808\r\n\r\n")},
    {"an overflowing length",        400, S(POST "Content-Length: 18446744073709551621\r\n\r\n")},
    {"an empty length",              400, S(POST "Content-Length:\r\n\r\n")},
    {"a signed length",              400, S(POST "Content-Length: +5\r\n\r\n")},
    {"a negative length",            400, S(POST "Content-Length: -5\r\n\r\n")},
    {"a hex length",                 400, S(POST "Content-Length: 0x5\r\n\r\n")},
    {"a length with a blank",        400, S(POST "Content-Length: 5 5\r\n\r\n")},
    {"two lengths",                  400, S(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n")},
    {"a list of lengths",            400, S(POST "Content-Length: 5, 6\r\n\r\n")},
    {"chunked",                        0, S(POST "Transfer-Encoding: chunked\r\n\r\n")},
    {"Chunked",                        0, S(POST "Transfer-Encoding: Chunked\r\n\r\n")},
    {"chunked and length",           400, S(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n")},
    {"length and chunked",           400, S(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")},
    {"length and chunked with a tab", 400, S(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\t\r\n\r\n")},
    {"length and an odd coding",     400, S(POST "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n\r\n")},
    {"gzip, chunked",                501, S(POST "Transfer-Encoding: gzip, chunked\r\n\r\n")},
    {"two lines of codings",         501, S(POST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")},
    {"chunked, gzip",                400, S(POST "Transfer-Encoding: chunked, gzip\r\n\r\n")},
    {"chunked twice",                400, S(POST "Transfer-Encoding: chunked, chunked\r\n\r\n")},
    {"identity",                     501, S(POST "Transfer-Encoding: identity\r\n\r\n")},
    {"chunked with a parameter",     501, S(POST "Transfer-Encoding: chunked;x=1\r\n\r\n")},
    {"quoted chunked",               501, S(POST "Transfer-Encoding: \"chunked\"\r\n\r\n")},
    {"an empty coding",              400, S(POST "Transfer-Encoding:\r\n\r\n")},
    {"an empty coding in the list",  400, S(POST "Transfer-Encoding: ,chunked\r\n\r\n")},
    {"chunked in HTTP/1.0",          400, S("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n")},
    {"an upgrade reads as HTTP/1.1",   0, S(GET "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")},
    /* clang-format on */
};

static void heads_of_requests_are_judged(void)
{
    struct reading *whole = wp_malloc(sizeof *whole), *split = wp_malloc(sizeof *split);

    for (size_t i = 0; i < sizeof request_cases / sizeof request_cases[0]; i++) {
        const char *label = request_cases[i].label;
        struct wp_str s = request_cases[i].bytes;

        read_head(whole, false, s.p, s.n, MAX, false);
        read_head(split, false, s.p, s.n, MAX, true);
        if (request_cases[i].status) {
            EXPECT_TRUE(label, whole->rc < 0 && whole->why);
            EXPECT_INT(label, request_cases[i].status, whole->status);
        } else {
            EXPECT_INT(label, s.n, whole->rc);
        }
        EXPECT_INT(label, whole->rc, split->rc);
        EXPECT_INT(label, whole->status, split->status);
    }
    wp_free(whole);
    wp_free(split);
}

static void a_head_is_cut_into_its_parts(void)
{
    static const char head[] = "\r\nPOST http://b:1/v1/x?y=1 HTTP/1.1\r\nHost: a\r\nX-A:  v w \t\r\nx-b:\r\n"
                               "Content-Length: 12\r\nExpect: 100-Continue\r\nConnection: x, Close\r\n\r\nbody";
    struct reading *r = wp_malloc(sizeof *r);

    read_head(r, false, head, sizeof head - 1, MAX, true);
    EXPECT_INT("length", sizeof head - 1 - 4, r->rc);
    EXPECT_TEXT("method", "POST", r->h.method);
    EXPECT_TEXT("target", "/v1/x?y=1", r->h.target);
    EXPECT_INT("minor", 1, r->h.minor);
    EXPECT_UINT("fields", 6, r->h.n_fields);
    EXPECT_TEXT("the target's host wins", "b:1", wp_head_get(&r->h, "host"));
    EXPECT_TEXT("trimmed", "v w", wp_head_get(&r->h, "x-a"));
    EXPECT_TRUE("empty, not absent", wp_head_get(&r->h, "x-b").p && !wp_head_get(&r->h, "x-b").n);
    EXPECT_INT("content length", 12, r->h.content_length);
    EXPECT_TRUE("flags", !r->h.chunked && !r->h.keep_alive && r->h.expect_continue);
    EXPECT_INT("framing", WP_BODY_LENGTH, wp_http1_request_body(&r->h));
    wp_free(r);
}

static void keeping_the_connection_is_the_senders_wish(void)
{
    static const struct {
        const char *head;
        bool want;
    } cases[] = {
        {GET "\r\n", true},
        {GET "Connection: close\r\n\r\n", false},
        {GET "Connection: keep-alive\r\nConnection: CLOSE\r\n\r\n", false},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive, close\r\n\r\n", false},
    };
    struct reading *r = wp_malloc(sizeof *r);

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_head(r, false, cases[i].head, strlen(cases[i].head), MAX, false);
        EXPECT_INT(cases[i].head, cases[i].want, r->h.keep_alive);
    }
    wp_free(r);
}

static void limits_are_kept_whatever_the_packets(void)
{
    struct reading *r = wp_malloc(sizeof *r);
    struct wp_buf b = {0};

    wp_buf_adds(&b, GET);
    for (int i = 1; i < WP_FIELDS_MAX; i++)
        wp_buf_printf(&b, "x%d: 1\r\n", i);
    wp_buf_adds(&b, "\r\n");
    read_head(r, false, b.p, b.n, b.n, true);
    EXPECT_INT("just as many fields and bytes as may be", b.n, r->rc);
    for (int split = 0; split < 2; split++) {
        read_head(r, false, b.p, b.n, b.n - 1, split);
        EXPECT_INT("a byte more", WP_ETOOBIG, r->rc);
        EXPECT_INT("status", 431, r->status);
    }
    b.n -= 2;
    wp_buf_adds(&b, "y: 1\r\n\r\n");
    for (int split = 0; split < 2; split++) {
        read_head(r, false, b.p, b.n, b.n, split);
        EXPECT_INT("a field more", WP_ETOOBIG, r->rc);
        EXPECT_INT("status", 431, r->status);
    }
    wp_buf_fini(&b);
    wp_free(r);
}

static const struct {
    const char *label;
    int status; /* 0: refused */
    int framing;
    struct wp_str bytes;
} response_cases[] = {
    /* clang-format off */
    {"until close",            200, WP_BODY_UNTIL_CLOSE, S("HTTP/1.1 200 OK\r\n\r\n")},
    {"no reason",              200, WP_BODY_UNTIL_CLOSE, S("HTTP/1.1 200\r\n\r\n")},
    {"an empty reason",        200, WP_BODY_UNTIL_CLOSE, S("HTTP/1.1 200 \r\n\r\n")},
    {"a long reason",          200, WP_BODY_UNTIL_CLOSE, S("HTTP/1.0 200 all is \xe4 well\r\n\r\n")},
    {"a length",               200, WP_BODY_LENGTH,      S("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")},
    {"length 0",               200, WP_BODY_NONE,        S("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")},
    {"chunked",                200, WP_BODY_CHUNKED,     S("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")},
    {"204",                    204, WP_BODY_NONE,        S("HTTP/1.1 204 No Content\r\n\r\n")},
    {"304 with a length",      304, WP_BODY_NONE,        S("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n")},
    {"103",                    103, WP_BODY_NONE,        S("HTTP/1.1 103 Early Hints\r\nConnection: close\r\nContent-Length: 5\r\n\r\n")},
    {"101",                    101, WP_BODY_NONE,        S("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")},
    {"length and chunked",       0, 0, S("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n")},
    {"two lengths",              0, 0, S("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n")},
    {"gzip, chunked",            0, 0, S("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")},
    {"chunked in HTTP/1.0",      0, 0, S("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")},
    {"HTTP/2",                   0, 0, S("HTTP/2 200 OK\r\n\r\n")},
    {"HTTP/1.2",                 0, 0, S("HTTP/1.2 200 OK\r\n\r\n")},
    {"garbage",                  0, 0, S("SSH-2.0-x\r\n")},
    {"an empty line first",      0, 0, S("\r\nHTTP/1.1 200 OK\r\n\r\n")},
    {"two digits",               0, 0, S("HTTP/1.1 20 OK\r\n\r\n")},
    {"four digits",              0, 0, S("HTTP/1.1 2000 OK\r\n\r\n")},
    {"status 099",               0, 0, S("HTTP/1.1 099 OK\r\n\r\n")},
    {"status 600",               0, 0, S("HTTP/1.1 600 OK\r\n\r\n")},
    {"two blanks",               0, 0, S("HTTP/1.1  200 OK\r\n\r\n")},
    {"bare LF",                  0, 0, S("HTTP/1.1 200 OK\nX: 1\r\n\r\n")},
    {"bare CR",                  0, 0, S("HTTP/1.1 200 OK\rX: 1\r\n\r\n")},
    {"obs-fold",                 0, 0, S("HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\n\r\n")},
    {"NUL in the reason",        0, 0, S("HTTP/1.1 200 O\0K\r\n\r\n")},
    {"empty name",               0, 0, S("HTTP/1.1 200 OK\r\n: 1\r\n\r\n")},
    /* clang-format on */
};

static void heads_of_responses_are_judged(void)
{
    struct reading *whole = wp_malloc(sizeof *whole), *split = wp_malloc(sizeof *split);

    for (size_t i = 0; i < sizeof response_cases / sizeof response_cases[0]; i++) {
        const char *label = response_cases[i].label;
        struct wp_str s = response_cases[i].bytes;

        read_head(whole, true, s.p, s.n, MAX, false);
        read_head(split, true, s.p, s.n, MAX, true);
        EXPECT_INT(label, whole->rc, split->rc);
        if (!response_cases[i].status) {
            EXPECT_TRUE(label, whole->rc < 0 && whole->why);
            continue;
        }
        EXPECT_INT(label, s.n, whole->rc);
        EXPECT_INT(label, response_cases[i].status, split->h.status);
        EXPECT_INT(label, response_cases[i].framing, wp_http1_response_body(&whole->h, false));
        EXPECT_INT(label, WP_BODY_NONE, wp_http1_response_body(&whole->h, true));
    }
    wp_free(whole);
    wp_free(split);
}

/* Reads a chunked body in pieces of `step` bytes; rc is the bytes used, or the code. */
static long read_chunked(struct wp_str s, size_t step, struct wp_buf *out, bool *done)
{
    struct wp_chunked c = {0};
    size_t at = 0, have = 0;

    while (at < s.n && !c.done) {
        const char *data, *why = NULL;
        size_t data_n;
        long used;

        have = at == have ? (s.n - at < step ? s.n : at + step) : have;
        used = wp_chunked_read(&c, s.p + at, have - at, &data, &data_n, &why);
        if (used < 0) {
            EXPECT_TRUE("a reason", why != NULL);
            return used;
        }
        EXPECT_TRUE("a step goes ahead", used > 0);
        wp_buf_add(out, data, data_n);
        at += (size_t)used;
    }
    *done = c.done;
    return (long)at;
}

static const struct {
    const char *label;
    int rest; /* bytes behind the body; -1: refused; -2: not over */
    const char *data;
    struct wp_str bytes;
} chunked_cases[] = {
    /* clang-format off */
    {"one chunk",                 0, "abc",    S("3\r\nabc\r\n0\r\n\r\n")},
    {"two, and what follows",     4, "abcdef", S("3\r\nabc\r\n003\r\ndef\r\n000\r\n\r\nGET ")},
    {"hex in both cases",         0, "0123456789", S("A\r\n0123456789\r\n0\r\n\r\n")},
    {"extensions",                0, "abc",    S("3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\n\r\n")},
    {"trailers",                  0, "abc",    S("3\r\nabc\r\n0\r\nX: 1\r\ny:\r\n\r\n")},
    {"not over",                 -2, "ab",     S("3\r\nab")},
    {"not over at the last CRLF", -2, "",      S("0\r\n")},
    {"text after the size",      -1, "", S("3zz\r\nabc\r\n0\r\n\r\n")},
    {"0x",                       -1, "", S("0x3\r\nabc\r\n0\r\n\r\n")},
    {"a blank in front",         -1, "", S(" 3\r\nabc\r\n0\r\n\r\n")},
    {"a blank behind",           -1, "", S("3 \r\nabc\r\n0\r\n\r\n")},
    {"a sign",                   -1, "", S("+3\r\nabc\r\n0\r\n\r\n")},
    {"no size",                  -1, "", S("\r\nabc\r\n0\r\n\r\n")},
    {"only an extension",        -1, "", S(";a\r\nabc\r\n0\r\n\r\n")},
    {"17 digits",                -1, "", S("fffffffffffffffff\r\nabc\r\n0\r\n\r\n")},
    {"the sign bit",             -1, "", S("8000000000000000\r\nabc\r\n0\r\n\r\n")},
    {"the largest",              -2, "abc", S("7fffffffffffffff\r\nabc")},
    {"bare LF after the size",   -1, "", S("3\nabc\r\n0\r\n\r\n")},
    {"bare CR after the size",   -1, "", S("3\rabc\r\n0\r\n\r\n")},
    {"a control byte in an extension", -1, "", S("3;a=\x01\r\nabc\r\n0\r\n\r\n")},
    {"a bare CR in an extension", -1, "", S("3;a=\rb\r\nabc\r\n0\r\n\r\n")},
    {"a bare LF in an extension", -1, "", S("3;a\nabc\r\n0\r\n\r\n")},
    {"no CRLF after the data",   -1, "abc", S("3\r\nabcXX0\r\n\r\n")},
    {"bare LF after the data",   -1, "abc", S("3\r\nabc\n0\r\n\r\n")},
    {"data longer than said",    -1, "abc", S("3\r\nabcd\r\n0\r\n\r\n")},
    {"a folded trailer",         -1, "", S("0\r\nX: 1\r\n 2\r\n\r\n")},
    {"a trailer without colon",  -1, "", S("0\r\nX\r\n\r\n")},
    {"a trailer without name",   -1, "", S("0\r\n: x\r\n\r\n")},
    {"NUL in a trailer",         -1, "", S("0\r\nX: \0\r\n\r\n")},
    {"bare LF after a trailer",  -1, "", S("0\r\nX: 1\n\r\n")},
    {"bare LF at the end",       -1, "", S("0\r\n\n")},
    {"bare CR at the end",       -1, "", S("0\r\n\rX")},
    /* clang-format on */
};

static void chunked_bodies_are_read_and_judged(void)
{
    for (size_t i = 0; i < sizeof chunked_cases / sizeof chunked_cases[0]; i++) {
        const char *label = chunked_cases[i].label;
        struct wp_str s = chunked_cases[i].bytes;
        int rest = chunked_cases[i].rest;

        for (size_t step = 1; step <= s.n; step++) {
            struct wp_buf out = {0};
            bool done = false;
            long rc = read_chunked(s, step, &out, &done);

            if (rest == -1)
                EXPECT_INT(label, WP_EPROTO, rc);
            else
                EXPECT_INT(label, (long)s.n - (rest > 0 ? rest : 0), rc);
            EXPECT_INT(label, rest >= 0, done);
            EXPECT_TEXT(label, chunked_cases[i].data, wp_buf_str(&out));
            wp_buf_fini(&out);
        }
    }
}

static void chunk_lines_and_trailers_are_bounded(void)
{
    static const char *const start[] = {"1;", "0\r\nX: ", "0"};
    static const char *const more[] = {"x", "x", "0"};

    for (size_t i = 0; i < 3; i++) {
        struct wp_buf b = {0}, out = {0};
        bool done;

        wp_buf_adds(&b, start[i]);
        for (int k = 0; k < 9000; k++)
            wp_buf_adds(&b, more[i]);
        EXPECT_INT(start[i], WP_EPROTO, read_chunked(wp_buf_str(&b), b.n, &out, &done));
        wp_buf_fini(&b);
        wp_buf_fini(&out);
    }
}

/* The files of tests/data/cases/raw: the verdict on the first message of each. */
static const struct {
    const char *file;
    int head;   /* 0, or the status that refuses it */
    int body;   /* bytes of body, -1: refused, -2: not over */
} raw_cases[] = {
    /* clang-format off */
    {"B001", 400, 0}, {"B001b", 400, 0}, {"B003", 400, 0}, {"B005", 400, 0}, {"B005b", 400, 0}, {"B007", 400, 0},
    {"B009", 0, -1}, {"B010", 0, -1}, {"B010b", 0, -1}, {"B013", 0, -1}, {"B015", 0, -1}, {"B015b", 0, -1},
    {"B016", 400, 0}, {"B017", 0, -1}, {"B020", 400, 0}, {"B021", 400, 0}, {"B022", 400, 0}, {"B025", 400, 0},
    {"B025b", 400, 0}, {"B028", 0, 83}, {"B030", 0, 0}, {"B030b", 0, 0}, {"B032", 0, 83}, {"B034", 0, 83},
    {"B037", 0, 83}, {"B038", 0, 83}, {"B059", 0, 0}, {"B099-head", 0, -2}, {"B118", 0, -2}, {"B119", 0, 91},
    {"B246", 0, 1352}, {"plain", 0, 84},
    /* clang-format on */
};

static long raw_body(const struct wp_head *h, struct wp_str rest)
{
    struct wp_buf out = {0};
    bool done = false;
    long rc = 0;

    switch (wp_http1_request_body(h)) {
    case WP_BODY_CHUNKED:
        rc = read_chunked(rest, rest.n, &out, &done);
        rc = rc < 0 ? -1 : done ? (long)out.n : -2;
        wp_buf_fini(&out);
        return rc;
    case WP_BODY_LENGTH:
        return (int64_t)rest.n < h->content_length ? -2 : (long)h->content_length;
    default:
        return 0;
    }
}

static void the_cases_of_others_get_their_verdicts(void)
{
    struct reading *r = wp_malloc(sizeof *r);

    for (size_t i = 0; i < sizeof raw_cases / sizeof raw_cases[0]; i++) {
        const char *label = raw_cases[i].file;
        char path[64];
        size_t n;
        char *p;

        snprintf(path, sizeof path, "cases/raw/%s.http", label);
        p = wp_test_data(path, &n);
        for (int split = 0; p && split < 2; split++) {
            read_head(r, false, p, n, MAX, split);
            EXPECT_INT(label, raw_cases[i].head, r->rc < 0 ? r->status : 0);
            if (r->rc > 0)
                EXPECT_INT(label, raw_cases[i].body, raw_body(&r->h, (struct wp_str){p + r->rc, n - (size_t)r->rc}));
        }
        wp_free(p);
    }
    wp_free(r);
}

static void heads_are_written_clean_or_not_at_all(void)
{
    struct wp_buf b = {0};

    EXPECT_INT("request", 0, wp_http1_put_request(&b, WP_STR("GET"), WP_STR("/x")));
    EXPECT_INT("field", 0, wp_http1_put_field(&b, WP_STR("X-A"), WP_STR("b c")));
    EXPECT_INT("LF in a value", WP_EINVAL, wp_http1_put_field(&b, WP_STR("X-A"), WP_STR("b\nX: y")));
    EXPECT_INT("CR in a value", WP_EINVAL, wp_http1_put_field(&b, WP_STR("X-A"), WP_STR("b\rX: y")));
    EXPECT_INT("NUL in a value", WP_EINVAL, wp_http1_put_field(&b, WP_STR("X-A"), WP_STR("b\0")));
    EXPECT_INT("empty name", WP_EINVAL, wp_http1_put_field(&b, WP_STR(""), WP_STR("b")));
    EXPECT_INT("a colon in a name", WP_EINVAL, wp_http1_put_field(&b, WP_STR("a:"), WP_STR("b")));
    EXPECT_INT("a blank in the target", WP_EINVAL, wp_http1_put_request(&b, WP_STR("GET"), WP_STR("/ x")));
    EXPECT_INT("an odd method", WP_EINVAL, wp_http1_put_request(&b, WP_STR("G T"), WP_STR("/")));
    EXPECT_INT("an odd reason", WP_EINVAL, wp_http1_put_status(&b, 200, WP_STR("a\r\n")));
    EXPECT_INT("end", 0, wp_http1_put_end(&b));
    EXPECT_INT("status", 0, wp_http1_put_status(&b, 404, WP_STR("Not Found")));
    EXPECT_TEXT("all", "GET /x HTTP/1.1\r\nX-A: b c\r\n\r\nHTTP/1.1 404 Not Found\r\n", wp_buf_str(&b));
    wp_buf_fini(&b);
}

const struct wp_suite suite_http1 = {
    "http1",
    (const struct wp_test[]){
        {"heads of requests are judged, whole and byte by byte", heads_of_requests_are_judged},
        {"a head is cut into its parts", a_head_is_cut_into_its_parts},
        {"keeping the connection is the sender's wish", keeping_the_connection_is_the_senders_wish},
        {"limits are kept whatever the packets", limits_are_kept_whatever_the_packets},
        {"heads of responses are judged, whole and byte by byte", heads_of_responses_are_judged},
        {"chunked bodies are read and judged in pieces of any size", chunked_bodies_are_read_and_judged},
        {"chunk lines and trailers are bounded", chunk_lines_and_trailers_are_bounded},
        {"the cases of others get their verdicts", the_cases_of_others_get_their_verdicts},
        {"heads are written clean or not at all", heads_are_written_clean_or_not_at_all},
        {NULL, NULL},
    },
};
