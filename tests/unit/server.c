/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server over real loopback sockets.  Clients are plain non-blocking sockets driven by the same
 * thread: bytes in, turns of the loop, bytes out.  UNTIL() turns the loop until something is so;
 * its guard only ends a broken run.
 */
#include "base/clock.h"
#include "base/err.h"
#include "net/server.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GOT_MAX = 1 << 20, CLIENTS = 8, MS = 1000, LONG = 20000000 };

struct client {
    int fd;
    bool eof, reset;
    bool deaf; /* do not read */
    size_t n, all;
    char got[GOT_MAX];
};

static struct rig {
    struct wp_loop l;
    struct wp_server *s;
    struct client *client[CLIENTS];
    struct wp_exchange *held; /* the last one of /hold, /sse and their kin */
    int requests, overs, ends, drains, refused, closed;
    int last_rc, last_refused;
    size_t most_queued, left; /* of /big */
    size_t body_bytes;
    struct wp_buf body, targets;
    bool in_call; /* a handler's call into the server is under way: no callback may come */
    long live;
} rig;

static bool late(uint64_t since)
{
    return wp_now_us() - since > LONG;
}

static void turn(void)
{
    uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = rig.client[i];
        ssize_t n;

        while (c && !c->eof && !c->reset && !c->deaf) {
            if (c->n == sizeof c->got)
                c->n = 0;
            n = recv(c->fd, c->got + c->n, sizeof c->got - c->n - (c->n + 1 < sizeof c->got),
                     MSG_DONTWAIT);
            if (n < 0 && errno == EAGAIN)
                break;
            c->eof = n == 0;
            c->reset = n < 0;
            if (n > 0) {
                c->n += (size_t)n;
                c->all += (size_t)n;
            }
        }
    }
}

#define UNTIL(cond)                      \
    do {                                 \
        uint64_t since_ = wp_now_us();   \
        while (!(cond) && !late(since_)) \
            turn();                      \
        EXPECT_TRUE(#cond, cond);        \
    } while (0)

/* The handler: what it does is in the path. */

static void count_over(struct wp_exchange *x, int rc)
{
    EXPECT_TRUE("on_over never comes inside a call", !rig.in_call);
    rig.overs++;
    rig.last_rc = rc;
    if (rig.held == x)
        rig.held = NULL;
}

static void gather(struct wp_exchange *x, const char *p, size_t n)
{
    (void)x;
    rig.body_bytes += n;
    wp_buf_add(&rig.body, p, n);
}

static void reply_text(struct wp_exchange *x, int status, struct wp_str body)
{
    rig.in_call = true;
    wp_reply(x, status, "text/plain", NULL, 0, body);
    rig.in_call = false;
}

static void echo_end(struct wp_exchange *x)
{
    rig.ends++;
    reply_text(x, 200, wp_buf_str(&rig.body));
    rig.body.n = 0;
}

static void note_end(struct wp_exchange *x)
{
    (void)x;
    rig.ends++;
}

static void pump(struct wp_exchange *x)
{
    static const char piece[10000];

    while (rig.left && wp_reply_queued(x) < 100000) {
        size_t n = rig.left < sizeof piece ? rig.left : sizeof piece;

        rig.left -= n;
        wp_reply_body(x, piece, n);
        if (wp_reply_queued(x) > rig.most_queued)
            rig.most_queued = wp_reply_queued(x);
    }
    if (rig.left == 0)
        wp_reply_end(x);
}

static void count_drain(struct wp_exchange *x)
{
    rig.drains++;
    if (rig.left)
        pump(x);
}

static const struct wp_exchange_ops echo_ops = {gather, echo_end, NULL, count_over};
static const struct wp_exchange_ops hold_ops = {gather, note_end, count_drain, count_over};

static void start_stream(struct wp_exchange *x, const char *type, int64_t length,
                         struct wp_str first)
{
    const struct wp_field field[] = {{WP_STR("Content-Type"), wp_str_of(type)},
                                     {WP_STR("connection"), WP_STR("x")}};

    rig.in_call = true;
    wp_reply_head(x, 200, WP_STR("OK"), field, 2, length);
    wp_reply_body(x, first.p, first.n);
    rig.in_call = false;
    rig.held = x;
}

static void on_request(struct wp_exchange *x, void *arg)
{
    struct wp_str path = wp_target_path(x->head->target);

    EXPECT_TRUE("arg", arg == &rig);
    rig.requests++;
    wp_buf_printf(&rig.targets, WP_STR_FMT " ", WP_STR_ARG(path));
    x->ops = &hold_ops;
    if (wp_str_is(path, "/echo"))
        x->ops = &echo_ops;
    if (wp_str_is(path, "/echo"))
        wp_exchange_resume(x);
    else if (wp_str_is(path, "/now"))
        reply_text(x, 200, WP_STR("now"));
    else if (wp_str_is(path, "/none"))
        reply_text(x, 204, WP_STR(""));
    else if (wp_str_is(path, "/error"))
        wp_reply_error(x, 429, "overloaded", "queue", NULL, 0, "no \"place\" for %d", 7);
    else if (wp_str_is(path, "/small")) {
        x->body_max = 4;
        wp_exchange_resume(x);
    } else if (wp_str_is(path, "/paused"))
        wp_exchange_pause(x);
    else if (wp_str_is(path, "/sse"))
        start_stream(x, "text/event-stream", -1, WP_STR("data: 1\n\n"));
    else if (wp_str_is(path, "/sse-mid"))
        start_stream(x, "text/event-stream; charset=utf-8", -1, WP_STR("data: 1\n\ndata: 2\n"));
    else if (wp_str_is(path, "/stream"))
        start_stream(x, "text/plain", -1, WP_STR("abc"));
    else if (wp_str_is(path, "/cut"))
        start_stream(x, "text/plain", 10, WP_STR("abc"));
    else if (wp_str_is(path, "/big")) {
        rig.left = 16 << 20;
        start_stream(x, "text/plain", 16 << 20, WP_STR(""));
        pump(x);
    }
    if (!wp_reply_begun(x))
        rig.held = x;
}

static void on_refused(int status, void *arg)
{
    (void)arg;
    rig.refused++;
    rig.last_refused = status;
}

static void on_server_closed(void *arg)
{
    (void)arg;
    rig.closed++;
    wp_loop_stop(&rig.l);
}

static struct wp_server_conf conf(void)
{
    return (struct wp_server_conf){.address = WP_STR("127.0.0.1:0"),
                                   .body_bytes = 1 << 20,
                                   .head_bytes = 8192,
                                   .head_us = LONG,
                                   .body_us = LONG,
                                   .keepalive_us = LONG,
                                   .send_us = LONG,
                                   .on_request = on_request,
                                   .on_refused = on_refused,
                                   .arg = &rig};
}

static void set_up(const struct wp_server_conf *c)
{
    struct wp_server_conf plain = conf();
    struct wp_err err = WP_ERR_INIT;

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    EXPECT_INT("loop", 0, wp_loop_init(&rig.l, &err));
    EXPECT_INT("server", 0, wp_server_create(&rig.s, &rig.l, c ? c : &plain, &err));
}

static void hang_up(struct client *c)
{
    for (int i = 0; i < CLIENTS; i++)
        if (rig.client[i] == c)
            rig.client[i] = NULL;
    close(c->fd);
    free(c);
}

static void tear_down(void)
{
    wp_server_destroy(rig.s, on_server_closed, NULL);
    EXPECT_INT("never inside the call", 0, rig.closed);
    EXPECT_INT("run", 0, wp_loop_run(&rig.l));
    EXPECT_INT("closed once", 1, rig.closed);
    EXPECT_INT("each request is over once", rig.requests, rig.overs);
    for (int i = 0; i < CLIENTS; i++)
        if (rig.client[i])
            hang_up(rig.client[i]);
    wp_buf_fini(&rig.body);
    wp_buf_fini(&rig.targets);
    wp_loop_fini(&rig.l);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

static struct client *dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client *c = calloc(1, sizeof *c);
    int i = 0;

    a.sin_port = htons(wp_server_port(rig.s));
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_INT("connect", 0, connect(c->fd, (const struct sockaddr *)&a, sizeof a));
    while (rig.client[i])
        i++;
    rig.client[i] = c;
    return c;
}

static void say_n(struct client *c, const char *p, size_t n)
{
    EXPECT_INT("sent", (long)n, send(c->fd, p, n, MSG_NOSIGNAL));
}

static void say(struct client *c, const char *text)
{
    say_n(c, text, strlen(text));
}

static struct client *ask(const char *text)
{
    struct client *c = dial();

    say(c, text);
    return c;
}

/* How often text stands in what the client got. */
static int heard(const struct client *c, const char *text)
{
    int n = 0;

    for (const char *at = c->got; (at = strstr(at, text)); at++)
        n++;
    return n;
}

#define HOST               "Host: a\r\n"
#define GET(path)          "GET " path " HTTP/1.1\r\n" HOST "\r\n"
#define POST(path, fields) "POST " path " HTTP/1.1\r\n" HOST fields "\r\n"

static void a_connection_serves_again_and_again(void)
{
    struct client *c;

    set_up(NULL);
    c = dial();
    for (int i = 1; i <= 3; i++) {
        say(c, GET("/now"));
        UNTIL(heard(c, "\r\n\r\nnow") == i && rig.overs == i);
        EXPECT_INT("rc", 0, rig.last_rc);
    }
    EXPECT_INT("status", 3, heard(c, "HTTP/1.1 200 OK\r\n"));
    EXPECT_INT("type", 3, heard(c, "Content-Type: text/plain\r\n"));
    EXPECT_INT("length", 3, heard(c, "Content-Length: 3\r\n"));
    EXPECT_INT("date", 3, heard(c, "\r\nDate: "));
    EXPECT_INT("no close", 0, heard(c, "Connection:"));
    EXPECT_UINT("one connection", 1, wp_server_connections(rig.s));
    EXPECT_UINT("no exchange", 0, wp_server_exchanges(rig.s));
    tear_down();
}

static void pipelined_requests_are_answered_in_order(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(POST("/echo", "Content-Length: 2\r\n") "A." GET("/hold")
                POST("/echo", "Content-Length: 2\r\n") "C.");
    UNTIL(heard(c, "A.") == 1 && rig.held);
    for (int i = 0; i < 50; i++)
        turn();
    EXPECT_INT("the third waits", 2, rig.requests);
    reply_text(rig.held, 200, WP_STR("B."));
    UNTIL(heard(c, "C.") == 1);
    EXPECT_TEXT("order", "/echo /hold /echo ", wp_buf_str(&rig.targets));
    EXPECT_TRUE("order of answers", strstr(c->got, "A.") < strstr(c->got, "B.") &&
                                        strstr(c->got, "B.") < strstr(c->got, "C."));
    EXPECT_INT("all served", 3, heard(c, "200 OK"));
    tear_down();
}

static void a_reset_is_noticed_behind_a_pipelined_request(void)
{
    const struct linger hard = {1, 0};
    struct client *c;

    set_up(NULL);
    c = ask(GET("/hold") GET("/now"));
    UNTIL(rig.held);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    hang_up(c);
    UNTIL(rig.overs == 1);
    EXPECT_INT("rc", WP_ECANCELED, rig.last_rc);
    UNTIL(wp_server_connections(rig.s) == 0);
    EXPECT_INT("the second never ran", 1, rig.requests);
    tear_down();
}

static void requests_may_come_byte_by_byte(void)
{
    static const char text[] = "\r\n" POST("/echo", "Content-Length: 5\r\n") "hello" POST(
        "/echo", "Transfer-Encoding: chunked\r\n") "3;x=y\r\nwor\r\n2\r\nld\r\n0\r\nT: 1\r\n\r\n";
    struct client *c;

    set_up(NULL);
    c = dial();
    for (size_t i = 0; i < sizeof text - 1; i++) {
        say_n(c, text + i, 1);
        turn();
    }
    UNTIL(rig.overs == 2 && heard(c, "\r\n\r\nworld"));
    EXPECT_INT("hello", 1, heard(c, "\r\n\r\nhello"));
    EXPECT_INT("ends", 2, rig.ends);
    tear_down();
}

static void requests_may_be_cut_at_every_byte(void)
{
    static const char text[] =
        POST("/echo", "Transfer-Encoding: chunked\r\n") "5\r\nhello\r\n0\r\n\r\n" GET("/now");

    set_up(NULL);
    for (size_t cut = 1; cut < sizeof text - 1; cut++) {
        struct client *c = dial();
        int before = rig.overs;

        say_n(c, text, cut);
        turn();
        turn();
        say_n(c, text + cut, sizeof text - 1 - cut);
        UNTIL(rig.overs == before + 2 && heard(c, "hello") && heard(c, "now"));
        hang_up(c);
    }
    tear_down();
}

static void a_long_body_passes_in_pieces(void)
{
    enum { N = 600000 };
    char *body = malloc(N), *at = body;
    struct client *c;

    memset(body, 'x', N);
    set_up(NULL);
    c = ask(POST("/echo", "Content-Length: 600000\r\n"));
    while (at < body + N) {
        ssize_t n = send(c->fd, at, (size_t)(body + N - at), MSG_DONTWAIT);

        at += n > 0 ? n : 0;
        turn();
    }
    UNTIL(c->n > N && rig.overs == 1);
    EXPECT_UINT("body", N, rig.body_bytes);
    EXPECT_TRUE("echoed", memcmp(c->got + c->n - N, body, N) == 0);
    free(body);
    tear_down();
}

static void answers_without_bodies_have_none(void)
{
    struct client *c;

    set_up(NULL);
    c = ask("HEAD /now HTTP/1.1\r\n" HOST "\r\n" GET("/none") "HEAD /stream HTTP/1.1\r\n" HOST
                                                              "\r\n");
    UNTIL(rig.held);
    wp_reply_end(rig.held);
    UNTIL(rig.overs == 3);
    say(c, GET("/now"));
    UNTIL(heard(c, "\r\n\r\nnow") == 1 && rig.overs == 4);
    EXPECT_INT("HEAD has the length", 2, heard(c, "Content-Length: 3\r\n"));
    EXPECT_INT("no other has", 2, heard(c, "Content-Length"));
    EXPECT_INT("no coding", 0, heard(c, "Transfer-Encoding"));
    EXPECT_INT("four answers", 4, heard(c, "HTTP/1.1 "));
    tear_down();
}

static void an_unknown_length_goes_chunked(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(GET("/stream"));
    UNTIL(rig.held && heard(c, "\r\n\r\n3\r\nabc\r\n"));
    EXPECT_INT("coding", 1, heard(c, "Transfer-Encoding: chunked\r\n"));
    EXPECT_INT("the handler's Connection is not passed", 0, heard(c, "onnection"));
    wp_reply_body(rig.held, "", 0);
    wp_reply_body(rig.held, "0123456789abcdef", 16);
    wp_reply_end(rig.held);
    UNTIL(rig.overs == 1);
    EXPECT_INT("rc", 0, rig.last_rc);
    UNTIL(heard(c, "\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"));
    tear_down();
}

static void http_1_0_is_answered_until_close(void)
{
    struct client *c, *k;

    set_up(NULL);
    c = ask("GET /stream HTTP/1.0\r\n\r\n");
    UNTIL(rig.held);
    wp_reply_end(rig.held);
    UNTIL(c->eof);
    EXPECT_INT("plain", 1, heard(c, "\r\n\r\nabc"));
    EXPECT_INT("no chunks", 0, heard(c, "chunked"));
    EXPECT_INT("close", 1, heard(c, "Connection: close\r\n"));
    k = ask("GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    UNTIL(heard(k, "now") == 1 && rig.overs == 2);
    say(k, "GET /now HTTP/1.0\r\n\r\n");
    UNTIL(k->eof && heard(k, "now") == 2);
    EXPECT_INT("kept as asked", 1, heard(k, "Connection: keep-alive\r\n"));
    tear_down();
}

static void an_error_is_of_openais_shape(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(GET("/error"));
    UNTIL(rig.overs == 1);
    UNTIL(heard(
        c,
        "\r\n\r\n{\"error\":{\"message\":\"no \\\"place\\\" for 7\",\"type\":\"rate_limit_error\","
        "\"param\":\"queue\",\"code\":\"overloaded\"}}"));
    EXPECT_INT("status", 1, heard(c, "HTTP/1.1 429 Too Many Requests\r\n"));
    EXPECT_INT("type", 1, heard(c, "Content-Type: application/json\r\n"));
    tear_down();
}

static void a_client_that_expects_100_gets_it_when_its_body_is_wanted(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(POST("/hold", "Expect: 100-continue\r\nContent-Length: 2\r\n"));
    UNTIL(rig.held);
    for (int i = 0; i < 20; i++)
        turn();
    EXPECT_UINT("nothing yet", 0, c->n);
    wp_exchange_resume(rig.held);
    UNTIL(heard(c, "HTTP/1.1 100 Continue\r\n\r\n") == 1);
    say(c, "hi");
    UNTIL(rig.ends == 1);
    reply_text(rig.held, 200, WP_STR("ok"));
    UNTIL(rig.overs == 1 && heard(c, "ok"));
    say(c, GET("/now"));
    UNTIL(heard(c, "now"));
    EXPECT_INT("one 100", 1, heard(c, "100 Continue"));
    tear_down();
}

static void no_100_when_the_body_is_coming_or_not_wanted(void)
{
    struct client *c, *early, *big;

    set_up(NULL);
    c = ask(POST("/echo", "Expect: 100-continue\r\nContent-Length: 2\r\n") "hi");
    UNTIL(rig.overs == 1 && heard(c, "hi"));
    EXPECT_INT("no 100", 0, heard(c, "100 Continue"));
    early = ask(POST("/now", "Expect: 100-continue\r\nContent-Length: 2\r\n"));
    UNTIL(early->eof && heard(early, "now"));
    EXPECT_INT("no 100", 0, heard(early, "100 Continue"));
    EXPECT_INT("close", 1, heard(early, "Connection: close\r\n"));
    big = ask(POST("/echo", "Expect: 100-continue\r\nContent-Length: 107374182400\r\n"));
    UNTIL(big->eof && heard(big, "HTTP/1.1 413 "));
    EXPECT_INT("no 100", 0, heard(big, "100 Continue"));
    UNTIL(rig.overs == 3);
    EXPECT_INT("rc", WP_ETOOBIG, rig.last_rc);
    tear_down();
}

static void a_body_past_the_limit_is_refused(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(POST("/small", "Content-Length: 5\r\n") "12345");
    UNTIL(c->eof && rig.overs == 1);
    EXPECT_INT("413", 1, heard(c, "HTTP/1.1 413 Content Too Large\r\n"));
    EXPECT_INT(
        "shape", 1,
        heard(c, "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"body_too_large\""));
    EXPECT_INT("rc", WP_ETOOBIG, rig.last_rc);
    c = ask(POST("/small", "Transfer-Encoding: chunked\r\n") "3\r\nabc\r\n2\r\nde\r\n");
    UNTIL(c->eof && rig.overs == 2 && heard(c, "HTTP/1.1 413 "));
    EXPECT_INT("rc", WP_ETOOBIG, rig.last_rc);
    c = ask(POST("/small", "Transfer-Encoding: chunked\r\n") "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
    UNTIL(rig.ends == 1);
    EXPECT_INT("refused", 2, rig.refused);
    tear_down();
}

static void what_is_not_http_is_answered_and_closed(void)
{
    static const struct {
        const char *text, *status;
        int code;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", 400},
        {"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "HTTP/1.1 505 ", 505},
        {"\x16\x03\x01", "HTTP/1.1 400 ", 400},
        {"BREW / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 501 ", 501},
        {POST("/echo", "Transfer-Encoding: chunked\r\n") "zz\r\n" GET("/smuggled"), "HTTP/1.1 400 ",
         400},
        {POST("/echo", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") GET("/smuggled"),
         "HTTP/1.1 400 ", 400},
    };
    struct wp_buf b = {0};
    struct client *c;

    set_up(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        c = ask(cases[i].text);
        UNTIL(c->eof);
        EXPECT_INT(cases[i].text, 1, heard(c, cases[i].status));
        EXPECT_INT("close", 1, heard(c, "Connection: close\r\n"));
        EXPECT_INT("code", cases[i].code, rig.last_refused);
        EXPECT_TRUE("not cut off", !c->reset);
        hang_up(c);
    }
    wp_buf_adds(&b, "GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 9000; i++)
        wp_buf_adds(&b, "x");
    c = dial();
    say_n(c, b.p, b.n);
    wp_buf_fini(&b);
    UNTIL(c->eof && heard(c, "HTTP/1.1 431 "));
    UNTIL(rig.overs == rig.requests);
    EXPECT_INT("only the chunked one reached the handler", 1, rig.requests);
    EXPECT_INT("rc", WP_EPROTO, rig.last_rc);
    tear_down();
}

static const char *refuse_text(int status, const char *why, struct wp_buf *out, void *arg)
{
    (void)arg;
    wp_buf_printf(out, "%d %s", status, why ? "said" : "unsaid");
    return "text/plain";
}

/* The files of tests/data/cases/raw: what they hide never becomes a request, and the next client is
 * served. */
static void the_cases_of_others_smuggle_nothing(void)
{
    static const char *const files[] = {
        "B001", "B001b", "B003", "B005",      "B005b", "B007", "B009", "B010", "B010b", "B013",
        "B015", "B015b", "B016", "B017",      "B020",  "B021", "B022", "B025", "B025b", "B028",
        "B030", "B030b", "B059", "B099-head", "B118",  "B119", "B246", "plain"};
    struct client *c;

    set_up(NULL);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[64];
        size_t n;
        char *p;

        snprintf(path, sizeof path, "cases/raw/%s.http", files[i]);
        p = wp_test_data(path, &n);
        if (!p)
            continue;
        c = dial();
        say_n(c, p, n);
        wp_free(p);
        for (int k = 0; k < 10; k++)
            turn();
        EXPECT_TRUE(files[i], !c->reset);
        hang_up(c);
        c = ask(GET("/now"));
        UNTIL(heard(c, "now"));
        hang_up(c);
    }
    wp_buf_add(&rig.targets, "", 1);
    EXPECT_TRUE("nothing hidden ran", !strstr(rig.targets.p, "smuggled"));
    tear_down();
}

static void refusals_may_have_a_form_of_their_own(void)
{
    struct wp_server_conf form = conf();
    struct client *c;

    form.refuse = refuse_text;
    set_up(&form);
    c = ask("nonsense\r\n\r\n");
    UNTIL(c->eof);
    EXPECT_INT("body", 1, heard(c, "\r\n\r\n400 said"));
    EXPECT_INT("type", 1, heard(c, "Content-Type: text/plain\r\n"));
    tear_down();
}

static void an_early_answer_arrives_while_the_body_is_still_sent(void)
{
    char *body = calloc(1, 500000);
    struct client *c;

    set_up(NULL);
    c = ask(POST("/now", "Content-Length: 900000\r\n"));
    for (size_t at = 0; at < 400000;) {
        ssize_t n = send(c->fd, body, 100000, MSG_DONTWAIT | MSG_NOSIGNAL);

        at += n > 0 ? (size_t)n : 0;
        turn();
    }
    UNTIL(c->eof);
    EXPECT_TRUE("not cut off", !c->reset && heard(c, "\r\n\r\nnow") == 1);
    EXPECT_INT("close", 1, heard(c, "Connection: close\r\n"));
    UNTIL(rig.overs == 1);
    EXPECT_INT("rc", 0, rig.last_rc);
    EXPECT_UINT("the handler saw none of it", 0, rig.body_bytes);
    hang_up(c);
    UNTIL(wp_server_connections(rig.s) == 0);
    free(body);
    tear_down();
}

static void a_half_closed_client_is_served(void)
{
    struct client *c, *old, *sse;

    set_up(NULL);
    c = ask(GET("/hold"));
    shutdown(c->fd, SHUT_WR);
    UNTIL(rig.held && heard(c, "HTTP/1.1 100 Continue\r\n\r\n") == 1); /* the probe */
    for (uint64_t since = wp_now_us(); wp_now_us() - since < 40 * MS;)
        turn(); /* some ticks: none may cancel */
    reply_text(rig.held, 200, WP_STR("late"));
    UNTIL(c->eof && heard(c, "\r\n\r\nlate"));
    EXPECT_INT("one probe", 1, heard(c, "100 Continue"));
    old = ask("GET /hold HTTP/1.0\r\n\r\n");
    shutdown(old->fd, SHUT_WR);
    UNTIL(rig.held);
    for (uint64_t since = wp_now_us(); wp_now_us() - since < 40 * MS;)
        turn();
    reply_text(rig.held, 200, WP_STR("late"));
    UNTIL(old->eof && heard(old, "\r\n\r\nlate"));
    EXPECT_INT("no probe for HTTP/1.0", 0, heard(old, "100 Continue"));
    sse = ask(GET("/sse"));
    shutdown(sse->fd, SHUT_WR);
    UNTIL(heard(sse, "3\r\n:\n\n\r\n") == 1);
    wp_reply_body(rig.held, "data: 2\n\n", 9);
    wp_reply_end(rig.held);
    UNTIL(sse->eof && heard(sse, "data: 2\n\n\r\n0\r\n\r\n"));
    UNTIL(rig.overs == 3);
    EXPECT_INT("rc", 0, rig.last_rc);
    tear_down();
}

static void a_half_closed_client_is_served_all_that_it_pipelined(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(GET("/hold") GET("/now"));
    shutdown(c->fd, SHUT_WR);
    UNTIL(rig.held && heard(c, "100 Continue")); /* noticed although nobody reads */
    reply_text(rig.held, 200, WP_STR("one"));
    UNTIL(c->eof && heard(c, "one") && heard(c, "now"));
    UNTIL(wp_server_connections(rig.s) == 0);
    tear_down();
}

static void a_client_that_goes_away_in_silence_is_noticed(void)
{
    static const char *const asks[] = {GET("/hold"), GET("/sse"), GET("/hold") GET("/now"),
                                       POST("/paused", "Content-Length: 3\r\n") "abc"};

    set_up(NULL);
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        struct client *c = ask(asks[i]);

        UNTIL(rig.held && (i != 1 || heard(c, "data: 1")));
        hang_up(c);
        UNTIL(rig.overs == (int)i + 1);
        EXPECT_INT(asks[i], WP_ECANCELED, rig.last_rc);
        UNTIL(wp_server_connections(rig.s) == 0);
    }
    tear_down();
}

static void no_comment_is_put_inside_an_event(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(GET("/sse-mid"));
    UNTIL(heard(c, "data: 2\n\r\n"));
    shutdown(c->fd, SHUT_WR);
    for (uint64_t since = wp_now_us(); wp_now_us() - since < 30 * MS;)
        turn();
    EXPECT_INT("none inside", 0, heard(c, "\r\n:\n\n\r\n"));
    wp_reply_body(rig.held, "\r", 1);
    for (uint64_t since = wp_now_us(); wp_now_us() - since < 90 * MS;)
        turn();
    EXPECT_INT("none inside a line end", 0, heard(c, "\r\n:\n\n\r\n"));
    wp_reply_body(rig.held, "\n", 1);
    UNTIL(heard(c, "1\r\n\n\r\n3\r\n:\n\n\r\n") == 1);
    wp_reply_end(rig.held);
    UNTIL(c->eof && rig.overs == 1);
    tear_down();
}

static void a_reset_cancels_at_once(void)
{
    const struct linger hard = {1, 0};
    struct client *c;

    set_up(NULL);
    c = ask(GET("/hold"));
    UNTIL(rig.held);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    hang_up(c);
    UNTIL(rig.overs == 1);
    EXPECT_INT("rc", WP_ECANCELED, rig.last_rc);
    tear_down();
}

static void a_body_that_ends_early_is_refused(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(POST("/echo", "Content-Length: 5\r\n") "abc");
    shutdown(c->fd, SHUT_WR);
    UNTIL(c->eof && heard(c, "HTTP/1.1 400 ") && rig.overs == 1);
    EXPECT_INT("rc", WP_EPROTO, rig.last_rc);
    EXPECT_INT("no end", 0, rig.ends);
    tear_down();
}

static void a_slow_reader_holds_the_writer_back(void)
{
    struct client *c;

    set_up(NULL);
    c = dial();
    c->deaf = true;
    say(c, GET("/big"));
    UNTIL(rig.requests == 1 && rig.held && wp_reply_queued(rig.held) > 0);
    for (int i = 0; i < 100; i++)
        turn();
    EXPECT_TRUE("it waits", rig.left > 0 && rig.overs == 0);
    EXPECT_TRUE("bounded", rig.most_queued < 100000 + 10000);
    EXPECT_INT("no drain", 0, rig.drains);
    c->deaf = false;
    UNTIL(rig.overs == 1);
    EXPECT_INT("rc", 0, rig.last_rc);
    EXPECT_TRUE("drained", rig.drains > 0);
    UNTIL(c->all > 16 << 20);
    EXPECT_TRUE("still bounded", rig.most_queued < 100000 + 10000);
    tear_down();
}

static void a_body_waits_while_it_is_paused(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(POST("/paused", "Transfer-Encoding: chunked\r\n") "3\r\nabc\r\n");
    UNTIL(rig.held);
    say(c, "3\r\ndef\r\n0\r\n\r\n");
    for (int i = 0; i < 50; i++)
        turn();
    EXPECT_UINT("nothing came", 0, rig.body_bytes);
    wp_exchange_resume(rig.held);
    EXPECT_UINT("not inside the call", 0, rig.body_bytes);
    UNTIL(rig.ends == 1);
    EXPECT_TEXT("body", "abcdef", wp_buf_str(&rig.body));
    reply_text(rig.held, 200, WP_STR("ok"));
    UNTIL(heard(c, "ok") && rig.overs == 1);
    tear_down();
}

static void an_answer_that_is_cut_looks_cut(void)
{
    struct client *c;

    set_up(NULL);
    c = ask(GET("/stream"));
    UNTIL(rig.held);
    wp_reply_abort(rig.held);
    UNTIL(c->eof || c->reset);
    EXPECT_INT("what was said arrives", 1, heard(c, "abc"));
    EXPECT_INT("no last chunk", 0, heard(c, "\r\n0\r\n"));
    c = ask(GET("/cut"));
    UNTIL(rig.held && heard(c, "abc"));
    wp_reply_end(rig.held); /* seven bytes too early */
    UNTIL(c->eof || c->reset);
    c = ask("GET /stream HTTP/1.0\r\n\r\n");
    UNTIL(rig.held && heard(c, "abc"));
    wp_reply_abort(rig.held);
    UNTIL(c->reset);
    UNTIL(rig.overs == 3);
    EXPECT_INT("rc", WP_ECANCELED, rig.last_rc);
    tear_down();
}

static void slow_clients_are_let_go(void)
{
    struct wp_server_conf quick = conf();
    struct client *c;

    quick.head_us = quick.body_us = quick.send_us = 20 * MS;
    quick.keepalive_us = 30 * MS;
    set_up(&quick);
    c = dial();
    UNTIL(c->eof);
    EXPECT_UINT("idle: nothing to say", 0, c->n);
    c = ask("GET / HT");
    UNTIL(c->eof && heard(c, "HTTP/1.1 408 "));
    c = ask(POST("/echo", "Content-Length: 5\r\n") "ab");
    UNTIL(c->eof && heard(c, "HTTP/1.1 408 ") && rig.overs == 1);
    EXPECT_INT("body", WP_ETIMEDOUT, rig.last_rc);
    c = ask(GET("/now"));
    UNTIL(c->eof && heard(c, "now") && rig.overs == 2);
    EXPECT_INT("kept, then idle", 0, heard(c, "Connection"));
    c = dial();
    c->deaf = true;
    say(c, GET("/big"));
    UNTIL(rig.overs == 3);
    EXPECT_INT("send", WP_ETIMEDOUT, rig.last_rc);
    tear_down();
}

static void a_body_that_trickles_is_let_go(void)
{
    struct wp_server_conf quick = conf();
    struct client *c;
    int sent = 0;

    quick.body_us = 1100 * MS; /* whole seconds count */
    set_up(&quick);
    c = ask(POST("/echo", "Content-Length: 100000\r\n"));
    for (uint64_t since = wp_now_us(); !heard(c, "HTTP/1.1 408 ") && !late(since);) {
        if (wp_now_us() - since > (uint64_t)sent * 100 * MS) {
            send(c->fd, "x", 1, MSG_NOSIGNAL);
            sent++;
        }
        turn();
    }
    EXPECT_INT("408", 1, heard(c, "HTTP/1.1 408 "));
    EXPECT_INT("rc", WP_ETIMEDOUT, rig.last_rc);
    tear_down();
}

static void a_paused_body_has_no_deadline(void)
{
    struct wp_server_conf quick = conf();
    struct client *c;

    quick.body_us = 20 * MS;
    set_up(&quick);
    c = ask(POST("/paused", "Content-Length: 3\r\n"));
    UNTIL(rig.held);
    for (uint64_t since = wp_now_us(); wp_now_us() - since < 60 * MS;)
        turn();
    EXPECT_INT("not over", 0, rig.overs);
    say(c, "abc");
    wp_exchange_resume(rig.held);
    UNTIL(rig.ends == 1);
    tear_down();
}

static void drain_lets_exchanges_end_and_idle_ones_go(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client *idle, *busy;
    int fd;

    set_up(NULL);
    a.sin_port = htons(wp_server_port(rig.s));
    idle = ask(GET("/now"));
    UNTIL(rig.overs == 1);
    busy = ask(GET("/hold"));
    UNTIL(rig.held);
    wp_server_drain(rig.s);
    wp_server_drain(rig.s);
    UNTIL(idle->eof);
    EXPECT_INT("the busy one goes on", 1, rig.overs);
    reply_text(rig.held, 200, WP_STR("last"));
    UNTIL(busy->eof && heard(busy, "last"));
    EXPECT_INT("close", 1, heard(busy, "Connection: close\r\n"));
    hang_up(busy);
    UNTIL(wp_server_connections(rig.s) == 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_INT("nobody listens", -1, connect(fd, (const struct sockaddr *)&a, sizeof a));
    close(fd);
    tear_down();
}

static void a_server_may_be_destroyed_at_every_stage(void)
{
    static const char *const asks[] = {
        "",
        "GET / HT",
        GET("/hold"),
        GET("/hold") GET("/now"),
        POST("/paused", "Content-Length: 3\r\n") "abc",
        POST("/echo", "Content-Length: 3\r\n") "ab",
        POST("/hold", "Expect: 100-continue\r\nContent-Length: 3\r\n"),
        GET("/sse"),
        GET("/stream"),
        GET("/big"),
        GET("/now"),
        POST("/now", "Content-Length: 3\r\n"),
        "x y z\r\n\r\n",
        "HEAD /stream HTTP/1.1\r\n" HOST "\r\n"};

    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++)
        for (int turns = 0; turns < 6; turns++) {
            struct client *c;

            set_up(NULL);
            c = dial();
            if (asks[i][0])
                say(c, asks[i]);
            c->deaf = true;
            for (int k = 0; k < turns; k++)
                turn();
            tear_down();
        }
}

static void connections_beyond_the_limit_wait(void)
{
    struct wp_server_conf two = conf();
    struct client *a, *b, *c;

    two.connections = 2;
    set_up(&two);
    a = ask(GET("/now"));
    b = ask(GET("/now"));
    c = ask(GET("/now"));
    UNTIL(heard(a, "now") && heard(b, "now"));
    for (int i = 0; i < 50; i++)
        turn();
    EXPECT_UINT("two at once", 2, wp_server_connections(rig.s));
    EXPECT_INT("the third waits", 0, heard(c, "now"));
    hang_up(a);
    UNTIL(heard(c, "now"));
    tear_down();
}

static void a_request_that_meets_the_idle_limit_is_served(void)
{
    struct wp_server_conf c = conf();
    struct client *a;

    c.keepalive_us = 50 * MS;
    set_up(&c);
    for (int i = 0; i < 2; i++) { /* a connection's first request, and a later one */
        a = dial();
        UNTIL(wp_server_connections(rig.s) == 1);
        if (i)
            say(a, GET("/now"));
        UNTIL(heard(a, "now") == i);
        for (uint64_t since = wp_now_us(); wp_now_us() - since <= 60 * MS;) /* the loop stands still meanwhile */
            ;
        say(a, GET("/now"));
        UNTIL(heard(a, "now") == i + 1);
        EXPECT_TRUE("not reset", !a->reset);
        hang_up(a);
        UNTIL(wp_server_connections(rig.s) == 0);
        tear_down();
        set_up(&c);
    }
    tear_down();
}

static void limits_may_change_while_it_runs(void)
{
    struct wp_server_conf c = conf();
    struct client *a, *b, *late_one;

    c.connections = 1;
    set_up(&c);
    a = ask(GET("/now"));
    b = ask(GET("/now"));
    UNTIL(heard(a, "now"));
    EXPECT_INT("the second waits", 0, heard(b, "now"));
    c.connections = 0;
    c.keepalive_us = c.head_us = 20 * MS;
    c.body_bytes = 4;
    c.head_bytes = 200;
    wp_server_update(rig.s, &c);
    UNTIL(heard(b, "now") && b->eof); /* kept for the new time only */
    late_one = dial();
    UNTIL(late_one->eof);
    late_one = ask("GET / HT");
    UNTIL(heard(late_one, "HTTP/1.1 408 "));
    late_one = ask(POST("/echo", "Content-Length: 5\r\n") "abcde");
    UNTIL(heard(late_one, "HTTP/1.1 413 "));
    c = conf();
    wp_server_update(rig.s, &c);
    late_one = ask(POST("/echo", "Content-Length: 5\r\n") "abcde");
    UNTIL(heard(late_one, "HTTP/1.1 200 ") && heard(late_one, "abcde"));
    tear_down();
}

static void accepting_rests_while_there_are_no_descriptors(void)
{
    struct rlimit old, none;
    struct client *c;
    int next;

    set_up(NULL);
    c = ask(GET("/now"));
    next = dup(c->fd);
    close(next);
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    none.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &none);
    for (int i = 0; i < 50; i++)
        turn();
    setrlimit(RLIMIT_NOFILE, &old);
    EXPECT_UINT("none accepted", 0, wp_server_connections(rig.s));
    EXPECT_TRUE("none dropped", !c->eof && !c->reset);
    UNTIL(heard(c, "now"));
    tear_down();
}

static void a_port_is_taken_once(void)
{
    struct wp_server_conf again = conf();
    struct wp_server *other = NULL;
    struct wp_err err = WP_ERR_INIT;
    char address[32];

    set_up(NULL);
    snprintf(address, sizeof address, "127.0.0.1:%u", wp_server_port(rig.s));
    again.address = wp_str_of(address);
    EXPECT_INT("taken", -EADDRINUSE, wp_server_create(&other, &rig.l, &again, &err));
    EXPECT_TRUE("the sentence names it",
                strstr(err.text, address) && strstr(err.text, "address in use"));
    again.reuse_port = true;
    EXPECT_INT("not shared by one alone", -EADDRINUSE,
               wp_server_create(&other, &rig.l, &again, &err));
    again.address = WP_STR("127.0.0.1");
    EXPECT_INT("no port", WP_EINVAL, wp_server_create(&other, &rig.l, &again, &err));
    again.address = WP_STR("example:80");
    EXPECT_INT("no address", WP_EINVAL, wp_server_create(&other, &rig.l, &again, &err));
    tear_down();
}

static void loops_may_share_a_port(void)
{
    struct wp_server_conf shared = conf();
    struct wp_server *other = NULL;
    struct wp_err err = WP_ERR_INIT;
    char address[32];
    int closed_before;

    shared.address = WP_STR("[::1]:0");
    set_up(&shared);
    snprintf(address, sizeof address, "[::1]:%u", wp_server_port(rig.s));
    shared.address = wp_str_of(address);
    shared.reuse_port = true;
    EXPECT_INT("not before it is asked in", -EADDRINUSE, wp_server_create(&other, &rig.l, &shared, &err));
    EXPECT_INT("shared", 0, wp_server_share(rig.s, &err));
    shared.reuse_port = false;
    EXPECT_INT("who wants it alone is refused", -EADDRINUSE, wp_server_create(&other, &rig.l, &shared, &err));
    shared.reuse_port = true;
    EXPECT_INT("second", 0, wp_server_create(&other, &rig.l, &shared, &err));
    EXPECT_UINT("port", wp_server_port(rig.s), wp_server_port(other));
    closed_before = rig.closed;
    wp_server_destroy(other, on_server_closed, NULL);
    UNTIL(rig.closed == closed_before + 1);
    rig.closed = 0;
    shared.address = WP_STR(":0");
    EXPECT_INT("all addresses", 0, wp_server_create(&other, &rig.l, &shared, &err));
    EXPECT_TRUE("a port", wp_server_port(other) != 0);
    wp_server_destroy(other, NULL, NULL);
    tear_down(); /* the loop was stopped already: closing ends all the same */
}

static void empty_lines_between_requests_begin_nothing(void)
{
    struct wp_server_conf quick = conf();
    struct client *c;

    quick.head_us = 10 * MS;
    set_up(&quick);
    c = ask(GET("/now") "\r\n");
    UNTIL(heard(c, "now") == 1 && rig.overs == 1);
    for (uint64_t since = wp_now_us(); wp_now_us() - since < 30 * MS;)
        turn();
    EXPECT_INT("no 408", 0, heard(c, "408"));
    say(c, "\r\n" GET("/now"));
    UNTIL(heard(c, "now") == 2);
    tear_down();
}

static void interim_answers_go_before_the_answer(void)
{
    const struct wp_field field[] = {{WP_STR("Link"), WP_STR("x")},
                                     {WP_STR("Content-Length"), WP_STR("5")}};
    struct client *c;

    set_up(NULL);
    c = ask(GET("/hold"));
    UNTIL(rig.held);
    wp_reply_interim(rig.held, 103, field, 2);
    reply_text(rig.held, 200, WP_STR("ok"));
    UNTIL(rig.overs == 1 && heard(c, "ok"));
    EXPECT_INT("103", 1,
               heard(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n"));
    tear_down();
}

/* Whatever allocation fails: each request is over once, nothing leaks, and the server serves
 * afterwards. */
static void any_allocation_may_fail(void)
{
    static const char *const asks[] = {
        "GET /now HTT",
        GET("/now") GET("/error"),
        POST("/echo", "Content-Length: 3\r\n") "abc",
        GET("/sse"),
        GET("/big"),
        "x y z\r\n\r\n",
    };

    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++)
        for (long nth = 0;; nth++) {
            struct client *c;
            bool failed;

            set_up(NULL);
            c = ask(asks[i]);
            c->deaf = true;
            wp_mem_fail_after(nth);
            for (int k = 0; k < 8; k++)
                turn();
            failed = wp_mem_failed();
            wp_mem_fail_after(-1);
            c = ask(GET("/now"));
            UNTIL(heard(c, "now"));
            tear_down();
            if (!failed)
                break;
        }
}

static void nothing_is_allocated_for_what_the_kernel_takes(void)
{
    struct client *c;
    long live;

    set_up(NULL);
    c = ask(GET("/sse"));
    UNTIL(rig.held && heard(c, "data: 1"));
    live = wp_mem_live();
    wp_mem_fail_after(0);
    for (int i = 0; i < 20; i++)
        wp_reply_body(rig.held, "data: 2\n\n", 9);
    wp_mem_fail_after(-1);
    EXPECT_INT("live", live, wp_mem_live());
    UNTIL(heard(c, "data: 2") == 20);
    EXPECT_INT("alive", 0, rig.overs);
    tear_down();
}

const struct wp_suite suite_server = {
    "server",
    (const struct wp_test[]){
        {"a connection serves again and again", a_connection_serves_again_and_again},
        {"pipelined requests are answered in order", pipelined_requests_are_answered_in_order},
        {"a reset is noticed behind a pipelined request",
         a_reset_is_noticed_behind_a_pipelined_request},
        {"requests may come byte by byte", requests_may_come_byte_by_byte},
        {"requests may be cut at every byte", requests_may_be_cut_at_every_byte},
        {"a long body passes in pieces", a_long_body_passes_in_pieces},
        {"answers without bodies have none", answers_without_bodies_have_none},
        {"an unknown length goes chunked", an_unknown_length_goes_chunked},
        {"HTTP/1.0 is answered until close", http_1_0_is_answered_until_close},
        {"an error is of OpenAI's shape", an_error_is_of_openais_shape},
        {"a client that expects 100 gets it when its body is wanted",
         a_client_that_expects_100_gets_it_when_its_body_is_wanted},
        {"no 100 when the body is coming, or not wanted",
         no_100_when_the_body_is_coming_or_not_wanted},
        {"a body past the limit is refused", a_body_past_the_limit_is_refused},
        {"what is not HTTP is answered and closed", what_is_not_http_is_answered_and_closed},
        {"the cases of others smuggle nothing", the_cases_of_others_smuggle_nothing},
        {"refusals may have a form of their own", refusals_may_have_a_form_of_their_own},
        {"an early answer arrives while the body is still sent",
         an_early_answer_arrives_while_the_body_is_still_sent},
        {"a half-closed client is served", a_half_closed_client_is_served},
        {"a half-closed client is served all that it pipelined",
         a_half_closed_client_is_served_all_that_it_pipelined},
        {"a client that goes away in silence is noticed",
         a_client_that_goes_away_in_silence_is_noticed},
        {"no comment is put inside an event", no_comment_is_put_inside_an_event},
        {"a reset cancels at once", a_reset_cancels_at_once},
        {"a body that ends early is refused", a_body_that_ends_early_is_refused},
        {"a slow reader holds the writer back", a_slow_reader_holds_the_writer_back},
        {"a body waits while it is paused", a_body_waits_while_it_is_paused},
        {"an answer that is cut looks cut", an_answer_that_is_cut_looks_cut},
        {"slow clients are let go", slow_clients_are_let_go},
        {"a body that trickles is let go", a_body_that_trickles_is_let_go},
        {"a paused body has no deadline", a_paused_body_has_no_deadline},
        {"drain lets exchanges end and idle ones go", drain_lets_exchanges_end_and_idle_ones_go},
        {"a server may be destroyed at every stage", a_server_may_be_destroyed_at_every_stage},
        {"a request that meets the idle limit is served", a_request_that_meets_the_idle_limit_is_served},
        {"connections beyond the limit wait", connections_beyond_the_limit_wait},
        {"limits may change while it runs", limits_may_change_while_it_runs},
        {"accepting rests while there are no descriptors",
         accepting_rests_while_there_are_no_descriptors},
        {"a port is taken once", a_port_is_taken_once},
        {"loops may share a port", loops_may_share_a_port},
        {"empty lines between requests begin nothing", empty_lines_between_requests_begin_nothing},
        {"interim answers go before the answer", interim_answers_go_before_the_answer},
        {"any allocation may fail", any_allocation_may_fail},
        {"nothing is allocated for what the kernel takes",
         nothing_is_allocated_for_what_the_kernel_takes},
        {NULL, NULL},
    },
};
