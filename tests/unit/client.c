/* SPDX-License-Identifier: Apache-2.0 */
/* The client's calls over real sockets, against a server that plays scripts. */
#include "net/client.h"

#include "base/clock.h"
#include "net/call.h"
#include "net/names.h"
#include "tests/lib/dnsserver.h"
#include "tests/lib/rawserver.h"
#include "tests/lib/test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CALLS = 4 };

/* What one call has told, and what to do to it when it tells. */
struct seen {
    struct wp_call *call;
    unsigned sents, heads, bodies, overs;
    int status, rc;
    enum wp_call_phase phase;
    bool reused, race;
    const char *why;
    struct wp_buf body;
    bool cancel_on_sent, cancel_on_head, cancel_on_body, pause_on_head, pause_on_body,
        destroy_on_body;
};

static struct rig {
    struct wp_loop l;
    struct raw_server server;
    struct wp_client *client;
    struct seen seen[CALLS];
    unsigned closed;
    bool inside; /* a call of the client's is on the stack: it must not call back */
    long live;
} rig;

static void on_sent(struct wp_call *c)
{
    struct seen *s = c->user;

    EXPECT_TRUE("not inside a call", !rig.inside);
    s->sents++;
    if (s->cancel_on_sent)
        wp_call_cancel(c);
}

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    struct seen *s = c->user;

    s->heads++;
    s->status = h->status;
    EXPECT_INT("phase at the head", WP_CALL_HEAD, c->phase);
    if (s->cancel_on_head)
        wp_call_cancel(c);
    if (s->pause_on_head)
        wp_call_pause(c);
}

static void on_closed(void *arg)
{
    EXPECT_TRUE("not inside a call", !rig.inside);
    ++*(unsigned *)arg;
}

static void destroy_client(void)
{
    rig.inside = true;
    wp_client_destroy(rig.client, on_closed, &rig.closed);
    rig.inside = false;
    rig.client = NULL;
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    struct seen *s = c->user;

    EXPECT_TRUE("not inside a call", !rig.inside);
    EXPECT_TRUE("no empty piece", n > 0);
    s->bodies++;
    EXPECT_INT("copied", 0, wp_buf_add(&s->body, p, n));
    if (s->cancel_on_body) {
        wp_call_cancel(c);
        wp_call_cancel(c);
    }
    if (s->pause_on_body)
        wp_call_pause(c);
    if (s->destroy_on_body)
        destroy_client();
}

static void on_over(struct wp_call *c, int rc)
{
    struct seen *s = c->user;

    EXPECT_TRUE("not inside a call", !rig.inside);
    s->overs++;
    s->rc = rc;
    s->phase = c->phase;
    s->reused = c->reused;
    s->race = c->race;
    s->why = c->why;
    s->call = NULL;
}

static const struct wp_call_ops ops = {on_sent, on_head, on_body, on_over};

#define TURN_UNTIL(cond) \
    while (!(cond))      \
    uv_run(&rig.l.uv, UV_RUN_ONCE)

static void set_up(const struct wp_client_conf *conf, const struct raw_step *const script[],
                   size_t n)
{
    struct wp_err err = WP_ERR_INIT;

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    EXPECT_INT("loop", 0, wp_loop_init(&rig.l, &err));
    EXPECT_INT("server", 0, raw_server_start(&rig.server, &rig.l.uv, false, script, n));
    EXPECT_INT("client", 0, wp_client_create(&rig.client, &rig.l, conf, &err));
}

#define SCRIPT(...)  ((const struct raw_step[]){__VA_ARGS__, {RAW_END, NULL, 0}})
#define SCRIPTS(...) ((const struct raw_step *const[]){__VA_ARGS__})
#define SET_UP(conf, ...) \
    set_up(conf, SCRIPTS(__VA_ARGS__), sizeof SCRIPTS(__VA_ARGS__) / sizeof SCRIPTS(__VA_ARGS__)[0])

static void tear_down(void)
{
    if (rig.client) {
        destroy_client();
        EXPECT_UINT("closed later", 0, rig.closed);
    }
    TURN_UNTIL(rig.closed);
    raw_server_stop(&rig.server);
    wp_loop_stop(&rig.l);
    EXPECT_INT("run", 0, wp_loop_run(&rig.l));
    EXPECT_UINT("closed once", 1, rig.closed);
    for (int i = 0; i < CALLS; i++) {
        EXPECT_TRUE("over at most once", rig.seen[i].overs <= 1);
        wp_buf_fini(&rig.seen[i].body);
    }
    raw_server_fini(&rig.server);
    wp_loop_fini(&rig.l);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

static struct wp_call_spec spec_of(int i)
{
    return (struct wp_call_spec){.host = WP_STR("127.0.0.1"),
                                 .port = rig.server.port,
                                 .method = WP_STR("GET"),
                                 .target = WP_STR("/v1/models"),
                                 .ops = &ops,
                                 .user = &rig.seen[i]};
}

static void call_with(int i, const struct wp_call_spec *spec)
{
    rig.inside = true;
    rig.seen[i].call = wp_call(rig.client, spec);
    rig.inside = false;
    EXPECT_TRUE("a call", rig.seen[i].call != NULL);
}

static void call(int i)
{
    struct wp_call_spec spec = spec_of(i);

    call_with(i, &spec);
}

static void get(int i)
{
    call(i);
    TURN_UNTIL(rig.seen[i].overs);
}

static void cancel(int i)
{
    rig.inside = true;
    wp_call_cancel(rig.seen[i].call);
    rig.inside = false;
}

static void expect_text(const char *label, const char *want, const char *got)
{
    EXPECT_TEXT(label, want, wp_str_of(got ? got : "(none)"));
}

static void expect_over(const char *label, int i, int rc, enum wp_call_phase phase, const char *why)
{
    const struct seen *s = &rig.seen[i];

    EXPECT_UINT(label, 1, s->overs);
    EXPECT_INT(label, rc, s->rc);
    EXPECT_INT(label, phase, s->phase);
    expect_text(label, why ? why : "(none)", s->why);
}

#define ASKED                     \
    {                             \
        RAW_EXPECT, "\r\n\r\n", 0 \
    }
#define OK2 "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

/* --- what is asked --- */

static void a_head_carries_host_fields_in_order_and_a_length_where_one_belongs(void)
{
    static const struct {
        const char *label, *method, *host_field, *body, *want;
    } cases[] = {
        {"get", "GET", NULL, NULL,
         "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nb: 2\r\nA: 1\r\n\r\n"},
        {"host field", "GET", "router.test", NULL,
         "GET /v1/models HTTP/1.1\r\nHost: router.test\r\nb: 2\r\nA: 1\r\n\r\n"},
        {"post without a body", "POST", "r", NULL,
         "POST /v1/models HTTP/1.1\r\nHost: r\r\nb: 2\r\nA: 1\r\nContent-Length: 0\r\n\r\n"},
        {"post", "POST", "r", "abc",
         "POST /v1/models HTTP/1.1\r\nHost: r\r\nb: 2\r\nA: 1\r\nContent-Length: 3\r\n\r\nabc"},
        {"delete", "DELETE", "r", NULL,
         "DELETE /v1/models HTTP/1.1\r\nHost: r\r\nb: 2\r\nA: 1\r\n\r\n"},
    };
    const struct wp_field field[] = {{WP_STR("b"), WP_STR("2")},
                                     {WP_STR("content-length"), WP_STR("77")},
                                     {WP_STR("Connection"), WP_STR("close")},
                                     {WP_STR("transfer-encoding"), WP_STR("chunked")},
                                     {WP_STR("HOST"), WP_STR("evil")},
                                     {WP_STR("A"), WP_STR("1")}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_call_spec spec;
        char want[256];

        SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, OK2, 0}));
        spec = spec_of(0);
        spec.method = wp_str_of(cases[i].method);
        spec.host_field = wp_str_of(cases[i].host_field);
        spec.field = field;
        spec.n_fields = sizeof field / sizeof field[0];
        spec.body = cases[i].body ? wp_blob_copy(cases[i].body, strlen(cases[i].body)) : NULL;
        call_with(0, &spec);
        wp_blob_unref(spec.body);
        TURN_UNTIL(rig.seen[0].overs);
        TURN_UNTIL(!cases[i].body || strstr(rig.server.got, cases[i].body));
        snprintf(want, sizeof want, cases[i].want, (unsigned)rig.server.port);
        expect_text(cases[i].label, want, rig.server.got);
        expect_over(cases[i].label, 0, 0, WP_CALL_BODY, NULL);
        EXPECT_UINT(cases[i].label, 1, rig.seen[0].sents);
        tear_down();
    }
}

static void what_cannot_be_asked_is_told_later(void)
{
    struct wp_call_spec spec;

    SET_UP(NULL, SCRIPT(ASKED));
    spec = spec_of(0);
    spec.method = WP_STR("G T");
    call_with(0, &spec);
    spec = spec_of(1);
    spec.target = WP_STR("/a b");
    call_with(1, &spec);
    spec = spec_of(2);
    spec.field = &(struct wp_field){WP_STR("a"), WP_STR("1\r\nb: 2")};
    spec.n_fields = 1;
    call_with(2, &spec);
    EXPECT_UINT("not yet", 0, rig.seen[0].overs + rig.seen[1].overs + rig.seen[2].overs);
    TURN_UNTIL(rig.seen[0].overs && rig.seen[1].overs && rig.seen[2].overs);
    expect_over("method", 0, WP_EINVAL, WP_CALL_CONNECT, "request");
    expect_over("target", 1, WP_EINVAL, WP_CALL_CONNECT, "request");
    expect_over("field", 2, WP_EINVAL, WP_CALL_CONNECT, "request");
    EXPECT_UINT("nobody was called", 0, rig.server.accepted);
    tear_down();
}

/* --- answers --- */

#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define I100    "HTTP/1.1 100 Continue\r\n\r\n"
#define I4      I100 I100 I100 I100

static const struct answer_case {
    const char *label, *method, *bytes;
    bool close; /* the server closes behind it */
    int rc;
    enum wp_call_phase phase;
    const char *why; /* "*": any */
    int status;
    const char *body;
    bool kept;
} answers[] = {
    /* clang-format off */
    {"length", "GET", OK2, false, 0, WP_CALL_BODY, NULL, 200, "hi", true},
    {"length 0", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, 0, WP_CALL_HEAD, NULL, 200, "", true},
    {"chunked", "GET", CHUNKED "2\r\nhi\r\n3;x=y\r\n you\r\n0\r\n\r\n", false, WP_EPROTO, WP_CALL_BODY, "chunk", 200, "hi yo", false},
    {"chunked with trailers", "GET", CHUNKED "2\r\nhi\r\n4;x=y\r\n you\r\n0\r\nT: 1\r\n\r\n", false, 0, WP_CALL_BODY, NULL, 200, "hi you", true},
    {"until close", "GET", "HTTP/1.1 200 OK\r\n\r\nhi you", true, 0, WP_CALL_BODY, NULL, 200, "hi you", false},
    {"until close, empty", "GET", "HTTP/1.1 200 OK\r\n\r\n", true, 0, WP_CALL_HEAD, NULL, 200, "", false},
    {"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, 0, WP_CALL_BODY, NULL, 200, "hi", false},
    {"HTTP/1.0 kept", "GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", false, 0, WP_CALL_BODY, NULL, 200, "hi", true},
    {"Connection: close", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", false, 0, WP_CALL_BODY, NULL, 200, "hi", false},
    {"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false, 0, WP_CALL_HEAD, NULL, 200, "", true},
    {"HEAD, chunked", "HEAD", CHUNKED, false, 0, WP_CALL_HEAD, NULL, 200, "", true},
    {"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", false, 0, WP_CALL_HEAD, NULL, 204, "", true},
    {"304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", false, 0, WP_CALL_HEAD, NULL, 304, "", true},
    {"1xx", "GET", I100 "HTTP/1.1 103 Early Hints\r\nConnection: close\r\nContent-Length: 9\r\n\r\n" OK2, false, 0, WP_CALL_BODY, NULL, 200, "hi", true},
    {"16 of 1xx", "GET", I4 I4 I4 I4 OK2, false, 0, WP_CALL_BODY, NULL, 200, "hi", true},
    {"17 of 1xx", "GET", I4 I4 I4 I4 I100 OK2, false, WP_EPROTO, WP_CALL_SENT, "interim", 0, "", false},
    {"101", "GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", false, WP_EPROTO, WP_CALL_SENT, "upgrade", 0, "", false},
    {"length and chunked", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", false, WP_EPROTO, WP_CALL_HEAD, "*", 0, "", false},
    {"no HTTP", "GET", "SSH-2.0-x\r\n\r\n", false, WP_EPROTO, WP_CALL_HEAD, "*", 0, "", false},
    {"too short", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", true, WP_EEOF, WP_CALL_BODY, "body", 200, "hi", false},
    {"chunks end early", "GET", CHUNKED "2\r\nhi\r\n", true, WP_EEOF, WP_CALL_BODY, "body", 200, "hi", false},
    {"only the last line end is missing", "GET", CHUNKED "2\r\nhi\r\n0\r\n", true, 0, WP_CALL_BODY, NULL, 200, "hi", false},
    {"head ends early", "GET", "HTTP/1.1 200 OK\r\nConte", true, WP_EEOF, WP_CALL_HEAD, "head", 0, "", false},
    {"interim head ends early", "GET", "HTTP/1.1 100 Cont", true, WP_EEOF, WP_CALL_SENT, "head", 0, "", false},
    {"nothing", "GET", "", true, WP_EEOF, WP_CALL_SENT, "head", 0, "", false},
    {"bare LF after a chunk size", "GET", CHUNKED "2\nhi\r\n0\r\n\r\n", false, WP_EPROTO, WP_CALL_HEAD, "chunk", 200, "", false},
    {"chunk size too large", "GET", CHUNKED "ffffffffffffffff1\r\n", false, WP_EPROTO, WP_CALL_HEAD, "chunk", 200, "", false},
    /* clang-format on */
};

static void play_answer(const struct answer_case *a, enum raw_op how)
{
    struct wp_call_spec spec;
    struct seen *s = &rig.seen[0];

    SET_UP(NULL, SCRIPT(ASKED, {*a->bytes ? how : RAW_TURN, a->bytes, 0},
                        {a->close ? RAW_FIN : RAW_END, NULL, 0}));
    spec = spec_of(0);
    spec.method = wp_str_of(a->method);
    call_with(0, &spec);
    TURN_UNTIL(s->overs);
    expect_over(a->label, 0, a->rc, a->phase, a->why && *a->why == '*' ? s->why : a->why);
    EXPECT_INT(a->label, a->status, s->status);
    EXPECT_TEXT(a->label, a->body, wp_buf_str(&s->body));
    EXPECT_UINT(a->label, a->kept, wp_client_idle(rig.client));
    EXPECT_TRUE(a->label, !s->race && !s->reused);
    tear_down();
}

static void an_answer_reads_alike_whole_and_byte_by_byte(void)
{
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        play_answer(&answers[i], RAW_SEND);
        play_answer(&answers[i], RAW_DRIP);
    }
}

static void an_answer_may_be_cut_in_two_anywhere(void)
{
    static const char text[] = I100 CHUNKED "2\r\nhi\r\n4\r\n you\r\n0\r\n\r\n";

    for (size_t cut = 1; cut < sizeof text - 1; cut++) {
        SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, text, cut}, {RAW_TURN, NULL, 2},
                            {RAW_SEND, text + cut, sizeof text - 1 - cut}));
        get(0);
        expect_over("cut", 0, 0, WP_CALL_BODY, NULL);
        EXPECT_TEXT("cut", "hi you", wp_buf_str(&rig.seen[0].body));
        EXPECT_UINT("kept", 1, wp_client_idle(rig.client));
        tear_down();
    }
}

static void a_head_past_the_limit_is_refused(void)
{
    static char big[4096];
    const struct wp_client_conf conf = {.head_bytes = 1024};

    snprintf(big, sizeof big, "HTTP/1.1 200 OK\r\nX: %03000d\r\n\r\n", 1);
    SET_UP(&conf, SCRIPT(ASKED, {RAW_SEND, big, 0}));
    get(0);
    expect_over("too large", 0, WP_ETOOBIG, WP_CALL_HEAD, rig.seen[0].why);
    EXPECT_UINT("no head", 0, rig.seen[0].heads);
    tear_down();
}

static void bytes_after_the_message_end_the_connection(void)
{
    SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, OK2 "HTTP/1.1 200 OK\r\n", 0}));
    get(0);
    expect_over("answered", 0, 0, WP_CALL_BODY, NULL);
    EXPECT_UINT("not kept", 0, wp_client_idle(rig.client));
    TURN_UNTIL(rig.server.open == 0);
    tear_down();
}

static void a_reset_is_not_the_end_of_a_body(void)
{
    static const char *const text[] = {"HTTP/1.1 200 OK\r\n\r\nhi", "HTTP/1.1 200 OK\r\n\r\n",
                                       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
                                       "HTTP/1.1 200"};

    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, text[i], 0}, {RAW_RESET, NULL, 0}));
        get(0);
        EXPECT_INT(text[i], WP_ECONNRESET, rig.seen[0].rc);
        tear_down();
        SET_UP(NULL,
               SCRIPT(ASKED, {RAW_SEND, text[i], 0}, {RAW_TURN, NULL, 3}, {RAW_RESET, NULL, 0}));
        get(0);
        EXPECT_INT(text[i], WP_ECONNRESET, rig.seen[0].rc);
        tear_down();
    }
}

/* --- the pool --- */

#define TWICE                                                                     \
    {RAW_EXPECT, "\r\n\r\n", 0}, {RAW_SEND, OK2, 0}, {RAW_EXPECT, "\r\n\r\n", 0}, \
    {                                                                             \
        RAW_SEND, OK2, 0                                                          \
    }

static void a_connection_is_used_again_unless_the_call_wants_a_fresh_one(void)
{
    struct wp_call_spec spec;

    SET_UP(NULL, SCRIPT(TWICE, TWICE));
    get(0);
    EXPECT_TRUE("first", !rig.seen[0].reused);
    get(1);
    EXPECT_TRUE("second", rig.seen[1].reused && !rig.seen[1].race);
    EXPECT_UINT("one connection", 1, rig.server.accepted);
    spec = spec_of(2);
    spec.fresh = true;
    call_with(2, &spec);
    TURN_UNTIL(rig.seen[2].overs);
    EXPECT_TRUE("fresh", !rig.seen[2].reused);
    EXPECT_UINT("two connections", 2, rig.server.accepted);
    EXPECT_UINT("both idle", 2, wp_client_idle(rig.client));
    wp_client_forget(rig.client, WP_STR("127.0.0.1"), rig.server.port);
    EXPECT_UINT("forgotten", 0, wp_client_idle(rig.client));
    TURN_UNTIL(rig.server.eofs == 2);
    tear_down();
}

static void the_newest_idle_connection_goes_first_and_the_oldest_makes_room(void)
{
    const struct wp_client_conf conf = {.idle_per_origin = 2};

    SET_UP(&conf,
           SCRIPT(ASKED, {RAW_HOLD, NULL, 0}, {RAW_SEND, OK2, 0}, ASKED, {RAW_SEND, OK2, 0}));
    for (int i = 0; i < 3; i++)
        call(i);
    TURN_UNTIL(rig.server.holding == 3);
    raw_server_go(&rig.server);
    TURN_UNTIL(rig.seen[0].overs && rig.seen[1].overs && rig.seen[2].overs);
    EXPECT_UINT("kept", 2, wp_client_idle(rig.client));
    TURN_UNTIL(rig.server.eofs == 1);
    get(3);
    EXPECT_TRUE("reused", rig.seen[3].reused);
    EXPECT_UINT("kept", 2, wp_client_idle(rig.client));
    tear_down();
}

static void a_connection_in_use_while_its_origin_is_forgotten_is_not_kept(void)
{
    SET_UP(NULL, SCRIPT(ASKED, {RAW_HOLD, NULL, 0}, {RAW_SEND, OK2, 0}));
    call(0);
    TURN_UNTIL(rig.server.holding);
    wp_client_forget(rig.client, WP_STR("127.0.0.1"), rig.server.port);
    raw_server_go(&rig.server);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("served", 0, 0, WP_CALL_BODY, NULL);
    EXPECT_UINT("not kept", 0, wp_client_idle(rig.client));
    tear_down();
}

static void an_idle_connection_that_ends_or_speaks_is_dropped(void)
{
    static const enum raw_op how[] = {RAW_CLOSE, RAW_RESET, RAW_FIN, RAW_SEND};

    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        SET_UP(NULL,
               SCRIPT(ASKED, {RAW_SEND, OK2, 0}, {RAW_HOLD, NULL, 0},
                      {how[i], "HTTP/1.1 408 x\r\n\r\n", 0}),
               SCRIPT(TWICE));
        get(0);
        EXPECT_UINT("kept", 1, wp_client_idle(rig.client));
        TURN_UNTIL(rig.server.holding);
        raw_server_go(&rig.server);
        TURN_UNTIL(wp_client_idle(rig.client) == 0);
        get(1);
        expect_over("on a new connection", 1, 0, WP_CALL_BODY, NULL);
        EXPECT_TRUE("not reused", !rig.seen[1].reused);
        tear_down();
    }
}

static void idle_connections_go_at_their_limit(void)
{
    const struct wp_client_conf conf = {.idle_us = 5000};

    SET_UP(&conf, SCRIPT(TWICE));
    get(0);
    EXPECT_UINT("kept", 1, wp_client_idle(rig.client));
    TURN_UNTIL(rig.server.eofs == 1);
    EXPECT_UINT("gone", 0, wp_client_idle(rig.client));
    tear_down();
}

static void the_limit_is_learnt_from_what_a_peer_does(void)
{
    struct wp_origin *o;

    /* The first connection is closed by the peer while idle; so the second one is closed by us,
     * long before 4 s. */
    SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, OK2, 0}, {RAW_TURN, NULL, 3}, {RAW_CLOSE, NULL, 0}),
           SCRIPT(TWICE));
    get(0);
    TURN_UNTIL(wp_client_idle(rig.client) == 0);
    get(1);
    EXPECT_UINT("kept", 1, wp_client_idle(rig.client));
    o = wp_origin_take(&rig.client->pool, WP_STR("127.0.0.1"), rig.server.port, NULL);
    EXPECT_TRUE("far below the default", o->learnt_us < 1000000 && o->learnt_end_us > wp_now_us());
    wp_origin_drop(o);
    TURN_UNTIL(rig.server.eofs == 1);
    tear_down();
}

static void the_limit_is_learnt_from_what_a_peer_promises(void)
{
    static const struct {
        const char *label, *bytes;
        uint64_t idle_us, promised_us;
        bool kept;
    } cases[] = {
        {"5", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=9\r\nContent-Length: 0\r\n\r\n", 0,
         4000000, true},
        {"60", "HTTP/1.1 200 OK\r\nkeep-alive: max=9 , Timeout=60\r\nContent-Length: 0\r\n\r\n", 0,
         59000000, true},
        {"1", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n", 0, 500000,
         true},
        {"0", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 0\r\n\r\n", 0, 0, false},
        {"huge",
         "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=18446744073709551615\r\nContent-Length: 0\r\n\r\n",
         0, 299000000, true},
        {"odd", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=x, time\r\nContent-Length: 0\r\n\r\n", 0,
         UINT64_MAX, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_origin *o;

        SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, cases[i].bytes, 0}));
        get(0);
        EXPECT_UINT(cases[i].label, cases[i].kept, wp_client_idle(rig.client));
        o = wp_origin_take(&rig.client->pool, WP_STR("127.0.0.1"), rig.server.port, NULL);
        EXPECT_UINT(cases[i].label, cases[i].promised_us, o->promised_us);
        wp_origin_drop(o);
        tear_down();
    }
}

static void the_reuse_race_is_told_exactly(void)
{
    static const struct {
        const char *label;
        struct raw_step step[3];
        int rc; /* 0: any failure */
        enum wp_call_phase phase;
        bool race;
    } cases[] = {
        {"closed before a byte", {{RAW_CLOSE, NULL, 0}}, 0, WP_CALL_SENT, true},
        {"reset before a byte", {{RAW_RESET, NULL, 0}}, WP_ECONNRESET, WP_CALL_SENT, true},
        {"an interim answer first",
         {{RAW_SEND, I100, 0}, {RAW_TURN, NULL, 2}, {RAW_CLOSE, NULL, 0}},
         WP_EEOF,
         WP_CALL_SENT,
         false},
        {"a byte first",
         {{RAW_SEND, "H", 0}, {RAW_TURN, NULL, 2}, {RAW_CLOSE, NULL, 0}},
         WP_EEOF,
         WP_CALL_HEAD,
         false},
        {"no answer in time", {{RAW_END, NULL, 0}}, WP_ETIMEDOUT, WP_CALL_SENT, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_call_spec spec;

        SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, OK2, 0}, ASKED, cases[i].step[0], cases[i].step[1],
                            cases[i].step[2]));
        get(0);
        spec = spec_of(1);
        spec.first_byte_us = 20000;
        call_with(1, &spec);
        TURN_UNTIL(rig.seen[1].overs);
        EXPECT_TRUE(cases[i].label, rig.seen[1].reused);
        EXPECT_INT(cases[i].label, cases[i].phase, rig.seen[1].phase);
        EXPECT_INT(cases[i].label, cases[i].rc ? cases[i].rc : rig.seen[1].rc, rig.seen[1].rc);
        EXPECT_INT(cases[i].label, cases[i].race, rig.seen[1].race);
        tear_down();
    }
    SET_UP(NULL, SCRIPT(ASKED, {RAW_CLOSE, NULL, 0}));
    get(0);
    EXPECT_TRUE("a first use is no race", rig.seen[0].rc < 0 && !rig.seen[0].race);
    tear_down();
}

/* --- connecting --- */

static void a_refused_connection_is_told_with_its_code(void)
{
    struct wp_call_spec spec;

    SET_UP(NULL, SCRIPT(ASKED));
    raw_server_deafen(&rig.server);
    spec = spec_of(0);
    spec.total_us = 5000000;
    uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    call_with(0, &spec);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("refused", 0, WP_ECONNREFUSED, WP_CALL_CONNECT, "connect");
    EXPECT_UINT("nothing was sent", 0, rig.seen[0].sents);
    tear_down();
}

static void the_next_address_is_tried(void)
{
    struct wp_call_spec spec;
    static const struct raw_step script[] = {ASKED, {RAW_SEND, OK2, 0}, {RAW_END, NULL, 0}};
    static const struct raw_step *const scripts[] = {script};

    /* localhost is 127.0.0.1 first; only [::1] listens. */
    SET_UP(NULL, SCRIPT(ASKED));
    raw_server_deafen(&rig.server);
    uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    if (raw_server_start(&rig.server, &rig.l.uv, true, scripts, 1) < 0) {
        wp_skip("no [::1] here");
        tear_down();
        return;
    }
    spec = spec_of(0);
    spec.host = WP_STR("localhost");
    call_with(0, &spec);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("answered", 0, 0, WP_CALL_BODY, NULL);
    tear_down();
}

static void a_name_without_address_is_told(void)
{
    struct wp_call_spec spec;

    SET_UP(NULL, SCRIPT(ASKED));
    spec = spec_of(0);
    spec.host = WP_STR("no name");
    spec.host_field = WP_STR("x");
    call_with(0, &spec);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("no name", 0, WP_ENONAME, WP_CALL_CONNECT, "name");
    tear_down();
}

/* --- deadlines, pauses --- */

static void each_deadline_has_its_name(void)
{
    static const struct {
        const char *label, *why;
        struct raw_step step[3];
        uint64_t connect_us, first_byte_us, idle_us, total_us;
        bool big;
        enum wp_call_phase phase;
    } cases[] = {
        /* clang-format off */
        {"first byte", "first byte", {ASKED}, 0, 20000, 0, 0, false, WP_CALL_SENT},
        {"interim answers are no first byte", "first byte", {ASKED, {RAW_SEND, I100, 0}}, 0, 20000, 0, 0, false, WP_CALL_SENT},
        {"idle", "idle", {ASKED, {RAW_SEND, CHUNKED "2\r\nhi\r\n", 0}}, 0, 1000000, 20000, 0, false, WP_CALL_BODY},
        {"total", "total", {ASKED, {RAW_SEND, CHUNKED "2\r\nhi\r\n", 0}}, 0, 1000000, 1000000, 20000, false, WP_CALL_BODY},
        {"total before an answer", "total", {ASKED}, 0, 0, 0, 20000, false, WP_CALL_SENT},
        {"a peer that does not read", "send", {{RAW_DEAF, NULL, 0}}, 0, 50000, 0, 0, true, WP_CALL_SENT},
        /* clang-format on */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_call_spec spec;

        SET_UP(NULL, SCRIPT(cases[i].step[0], cases[i].step[1], cases[i].step[2]));
        spec = spec_of(0);
        spec.first_byte_us = cases[i].first_byte_us;
        spec.idle_us = cases[i].idle_us;
        spec.total_us = cases[i].total_us;
        if (cases[i].big)
            spec.body = wp_blob_adopt(wp_calloc(1, 32 << 20), 32 << 20);
        call_with(0, &spec);
        wp_blob_unref(spec.body);
        TURN_UNTIL(rig.seen[0].overs);
        expect_over(cases[i].label, 0, WP_ETIMEDOUT, cases[i].phase, cases[i].why);
        tear_down();
    }
}

static void a_chunked_answer_without_its_last_line_end_is_whole_at_the_idle_deadline(void)
{
    struct wp_call_spec spec;

    SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, CHUNKED "2\r\nhi\r\n0\r\n", 0}));
    spec = spec_of(0);
    spec.idle_us = 10000;
    call_with(0, &spec);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("whole", 0, 0, WP_CALL_BODY, NULL);
    EXPECT_UINT("not kept", 0, wp_client_idle(rig.client));
    tear_down();
}

static void connecting_has_a_deadline_that_includes_the_name(void)
{
    struct wp_call_spec spec;
    struct dns_server dns;

    SET_UP(NULL, SCRIPT(ASKED));
    EXPECT_INT("dns", 0, dns_server_start(&dns, &rig.l.uv, 1, 60));
    EXPECT_INT("servers", 0, wp_names_servers(&rig.l, dns.address));
    dns.mood = DNS_SILENT;
    spec = spec_of(0);
    spec.host = WP_STR("engine.test.");
    spec.connect_us = 20000;
    call_with(0, &spec);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("too slow", 0, WP_ETIMEDOUT, WP_CALL_CONNECT, "connect");
    EXPECT_TRUE("asked", dns.asked > 0);
    dns_server_stop(&dns);
    tear_down();
}

static void a_call_goes_to_the_address_of_its_name(void)
{
    struct wp_call_spec spec;
    struct dns_server dns;

    SET_UP(NULL, SCRIPT(TWICE));
    EXPECT_INT("dns", 0, dns_server_start(&dns, &rig.l.uv, 1, 60));
    EXPECT_INT("servers", 0, wp_names_servers(&rig.l, dns.address));
    for (int i = 0; i < 2; i++) {
        spec = spec_of(i);
        spec.host = WP_STR("engine.test.");
        call_with(i, &spec);
        TURN_UNTIL(rig.seen[i].overs);
        expect_over("answered", i, 0, WP_CALL_BODY, NULL);
        EXPECT_INT("reused", i, rig.seen[i].reused);
    }
    EXPECT_UINT("asked once", 1, dns.asked);
    dns_server_stop(&dns);
    tear_down();
}

/* Listens on 127.0.0.1 at that port with a queue that is full: whoever connects waits.  The fds to
 * close, or false. */
static bool full_listener(uint16_t port, int fd[4])
{
    struct sockaddr_in addr;
    bool ok;

    uv_ip4_addr("127.0.0.1", port, &addr);
    for (int i = 0; i < 4; i++)
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ok = bind(fd[0], (struct sockaddr *)&addr, sizeof addr) == 0 && listen(fd[0], 0) == 0;
    for (int i = 1; i < 4 && ok; i++)
        connect(fd[i], (struct sockaddr *)&addr, sizeof addr);
    return ok;
}

static void an_address_that_hangs_leaves_time_for_the_next(void)
{
    static const struct raw_step script[] = {ASKED, {RAW_SEND, OK2, 0}, {RAW_END, NULL, 0}};
    static const struct raw_step *const scripts[] = {script};
    struct wp_call_spec spec;
    int fd[4] = {-1, -1, -1, -1};

    SET_UP(NULL, SCRIPT(ASKED));
    raw_server_deafen(&rig.server);
    uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    if (raw_server_start(&rig.server, &rig.l.uv, true, scripts, 1) < 0 ||
        !full_listener(rig.server.port, fd)) {
        wp_skip("no [::1] here, or its port is taken on 127.0.0.1");
    } else {
        spec = spec_of(0);
        spec.host = WP_STR("localhost");
        spec.connect_us = 400000;
        call_with(0, &spec);
        TURN_UNTIL(rig.seen[0].overs);
        expect_over("answered", 0, 0, WP_CALL_BODY, NULL);
    }
    for (int i = 0; i < 4; i++)
        close(fd[i]);
    tear_down();
}

static void a_paused_call_hands_nothing_over_and_rests_its_deadlines(void)
{
    struct wp_call_spec spec;
    struct seen *s = &rig.seen[0];
    uint64_t until;

    SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, CHUNKED "2\r\nhi\r\n4\r\n you\r\n0\r\n\r\n", 0}));
    spec = spec_of(0);
    spec.idle_us = 10000;
    s->pause_on_head = s->pause_on_body = true;
    call_with(0, &spec);
    TURN_UNTIL(s->heads);
    until = wp_now_us() + 30000; /* three times the deadline */
    while (wp_now_us() < until)
        uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    EXPECT_UINT("nothing", 0, s->bodies + s->overs);
    rig.inside = true;
    wp_call_resume(s->call);
    wp_call_pause(s->call);
    wp_call_resume(s->call);
    rig.inside = false;
    TURN_UNTIL(s->bodies);
    EXPECT_TEXT("both chunks", "hi you", wp_buf_str(&s->body));
    EXPECT_UINT("as one piece, for one read brought them", 1, s->bodies);
    EXPECT_UINT("not over", 0, s->overs);
    wp_call_resume(s->call);
    wp_call_pause(s->call);
    EXPECT_UINT("nor while it is paused again", 0, s->overs);
    wp_call_resume(s->call);
    TURN_UNTIL(s->overs);
    expect_over("over", 0, 0, WP_CALL_BODY, NULL);
    EXPECT_UINT("kept", 1, wp_client_idle(rig.client));
    tear_down();
}

static void back_pressure_reaches_the_sender(void)
{
    static char big[48 << 20] = "HTTP/1.1 200 OK\r\nContent-Length: 50331600\r\n\r\n";
    size_t at = strlen(big);
    struct seen *s = &rig.seen[0];

    SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, big, at + 50331600}));
    EXPECT_TRUE("fits", at + 50331600 <= sizeof big);
    s->pause_on_head = true;
    call(0);
    TURN_UNTIL(s->heads);
    for (int i = 0; i < 100; i++)
        uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    EXPECT_TRUE("no more than one read is held", rig.client && s->bodies == 0);
    wp_call_resume(s->call);
    TURN_UNTIL(s->overs);
    expect_over("all of it", 0, 0, WP_CALL_BODY, NULL);
    EXPECT_UINT("bytes", 50331600, s->body.n);
    tear_down();
}

/* --- bodies going up --- */

static struct wp_blob *big_blob(size_t n)
{
    char *p = wp_malloc(n);

    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 23);
    return wp_blob_adopt(p, n);
}

static void a_large_body_goes_up_by_reference(void)
{
    enum { N = 8 << 20 };
    struct wp_blob *b = big_blob(N);
    struct wp_call_spec spec;
    char *at;

    memcpy(b->p + N - 3, "END", 3);
    SET_UP(NULL, SCRIPT(ASKED, {RAW_DEAF, NULL, 0}, {RAW_TURN, NULL, 3}, {RAW_HEAR, NULL, 0},
                        {RAW_EXPECT, "END", 3}, {RAW_SEND, OK2, 0}));
    spec = spec_of(0);
    spec.method = WP_STR("POST");
    spec.body = b;
    call_with(0, &spec);
    EXPECT_TRUE("referenced", b->refs > 1);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("answered", 0, 0, WP_CALL_BODY, NULL);
    EXPECT_UINT("kept", 1, wp_client_idle(rig.client));
    EXPECT_UINT("dropped again", 1, b->refs);
    at = strstr(rig.server.got, "\r\n\r\n");
    EXPECT_TRUE("every byte", at && rig.server.got_n - (size_t)(at + 4 - rig.server.got) == N &&
                                  !memcmp(at + 4, b->p, N));
    tear_down();
    wp_blob_unref(b);
}

static void an_early_answer_is_taken_and_the_connection_closed(void)
{
    static const enum raw_op then[] = {RAW_END, RAW_CLOSE, RAW_RESET};

    for (size_t i = 0; i < sizeof then / sizeof then[0]; i++) {
        struct wp_call_spec spec;

        SET_UP(NULL, SCRIPT(ASKED, {RAW_DEAF, NULL, 0},
                            {RAW_SEND, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!", 0},
                            {then[i], NULL, 0}));
        spec = spec_of(0);
        spec.method = WP_STR("POST");
        spec.body = big_blob(32 << 20);
        call_with(0, &spec);
        wp_blob_unref(spec.body);
        TURN_UNTIL(rig.seen[0].overs);
        expect_over("taken", 0, 0, WP_CALL_BODY, NULL);
        EXPECT_INT("status", 413, rig.seen[0].status);
        EXPECT_TEXT("body", "no!", wp_buf_str(&rig.seen[0].body));
        EXPECT_UINT("not kept", 0, wp_client_idle(rig.client));
        tear_down();
    }
}

/* --- cancelling, closing, memory --- */

static void a_call_may_be_cancelled_at_every_stage(void)
{
    struct wp_call_spec spec;

    for (int turns = 0; turns < 12; turns++) {
        SET_UP(NULL, SCRIPT(ASKED, {RAW_DRIP, CHUNKED "2\r\nhi\r\n", 0}));
        call(0);
        for (int i = 0; i < turns; i++)
            uv_run(&rig.l.uv, UV_RUN_NOWAIT);
        cancel(0);
        wp_call_cancel(rig.seen[0].call);
        EXPECT_UINT("later", 0, rig.seen[0].overs);
        TURN_UNTIL(rig.seen[0].overs);
        EXPECT_INT("cancelled", WP_ECANCELED, rig.seen[0].rc);
        EXPECT_UINT("not kept", 0, wp_client_idle(rig.client));
        TURN_UNTIL(rig.server.open == 0);
        tear_down();
    }
    for (int where = 0; where < 3; where++) {
        SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, OK2, 0}));
        rig.seen[0].cancel_on_sent = where == 0;
        rig.seen[0].cancel_on_head = where == 1;
        rig.seen[0].cancel_on_body = where == 2;
        get(0);
        EXPECT_INT("cancelled", WP_ECANCELED, rig.seen[0].rc);
        EXPECT_INT("heads", where >= 1, rig.seen[0].heads);
        EXPECT_INT("bodies", where == 2, rig.seen[0].bodies);
        tear_down();
    }
    SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, CHUNKED "2\r\nhi\r\n2\r\nho\r\n", 0}));
    rig.seen[0].pause_on_body = true;
    call(0);
    TURN_UNTIL(rig.seen[0].bodies);
    cancel(0);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("while paused", 0, WP_ECANCELED, WP_CALL_BODY, NULL);
    TURN_UNTIL(rig.server.resets == 1); /* an unmistakable end */
    tear_down();

    SET_UP(NULL, SCRIPT({RAW_DEAF, NULL, 0}));
    spec = spec_of(0);
    spec.body = big_blob(32 << 20);
    call_with(0, &spec);
    wp_blob_unref(spec.body);
    TURN_UNTIL(rig.seen[0].sents);
    cancel(0);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("while sending", 0, WP_ECANCELED, WP_CALL_SENT, NULL);
    tear_down();
}

static void a_client_may_be_destroyed_at_every_stage(void)
{
    for (int turns = 0; turns < 12; turns++) {
        SET_UP(NULL, SCRIPT(ASKED, {RAW_DRIP, OK2, 0}), SCRIPT(ASKED, {RAW_SEND, OK2, 0}));
        call(0);
        call(1);
        for (int i = 0; i < turns; i++)
            uv_run(&rig.l.uv, UV_RUN_NOWAIT);
        tear_down();
        EXPECT_UINT("over", 1, rig.seen[0].overs);
        EXPECT_UINT("over", 1, rig.seen[1].overs);
    }
    SET_UP(NULL, SCRIPT(ASKED, {RAW_SEND, CHUNKED "2\r\nhi\r\n2\r\nho\r\n", 0}));
    rig.seen[0].destroy_on_body = true;
    call(0);
    TURN_UNTIL(rig.seen[0].overs);
    expect_over("inside its own callback", 0, WP_ECANCELED, WP_CALL_BODY, NULL);
    EXPECT_UINT("one piece", 1, rig.seen[0].bodies);
    tear_down();
    SET_UP(NULL, SCRIPT(ASKED));
    tear_down(); /* unused */
}

static void running_out_of_memory_costs_the_call_and_no_more(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_client *c = NULL;
    bool hit = true;

    wp_mem_fail_after(0);
    EXPECT_INT("create", WP_ENOMEM, wp_client_create(&c, NULL, NULL, &err));
    wp_mem_fail_after(-1);
    for (long nth = 0; hit; nth++) {
        struct wp_call_spec spec;

        SET_UP(NULL, SCRIPT(ASKED, {RAW_DRIP, CHUNKED "2\r\nhi\r\n0\r\n\r\n", 0}));
        EXPECT_INT("room for the body", 0, wp_buf_reserve(&rig.seen[0].body, 64));
        spec = spec_of(0);
        wp_mem_fail_after(nth);
        rig.seen[0].call = wp_call(rig.client, &spec);
        if (rig.seen[0].call)
            TURN_UNTIL(rig.seen[0].overs);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (rig.seen[0].overs) /* else wp_call() has said so */
            EXPECT_INT("told", hit ? WP_ENOMEM : 0, rig.seen[0].rc);
        else
            EXPECT_TRUE("no call", hit && !rig.seen[0].call);
        spec = spec_of(1);
        spec.fresh = true;
        call_with(1, &spec);
        TURN_UNTIL(rig.seen[1].overs);
        EXPECT_INT("the next one is served", 0, rig.seen[1].rc);
        tear_down();
    }
}

const struct wp_suite suite_client = {
    "client",
    (const struct wp_test[]){
        {"a head carries host, fields in order, and a length where one belongs",
         a_head_carries_host_fields_in_order_and_a_length_where_one_belongs},
        {"what cannot be asked is told later", what_cannot_be_asked_is_told_later},
        {"an answer reads alike whole and byte by byte",
         an_answer_reads_alike_whole_and_byte_by_byte},
        {"an answer may be cut in two anywhere", an_answer_may_be_cut_in_two_anywhere},
        {"a head past the limit is refused", a_head_past_the_limit_is_refused},
        {"bytes after the message end the connection", bytes_after_the_message_end_the_connection},
        {"a reset is not the end of a body", a_reset_is_not_the_end_of_a_body},
        {"a connection is used again unless the call wants a fresh one",
         a_connection_is_used_again_unless_the_call_wants_a_fresh_one},
        {"the newest idle connection goes first, and the oldest makes room",
         the_newest_idle_connection_goes_first_and_the_oldest_makes_room},
        {"a connection in use while its origin is forgotten is not kept",
         a_connection_in_use_while_its_origin_is_forgotten_is_not_kept},
        {"an idle connection that ends or speaks is dropped",
         an_idle_connection_that_ends_or_speaks_is_dropped},
        {"idle connections go at their limit", idle_connections_go_at_their_limit},
        {"the limit is learnt from what a peer does", the_limit_is_learnt_from_what_a_peer_does},
        {"the limit is learnt from what a peer promises",
         the_limit_is_learnt_from_what_a_peer_promises},
        {"the reuse race is told exactly", the_reuse_race_is_told_exactly},
        {"a refused connection is told with its code", a_refused_connection_is_told_with_its_code},
        {"the next address is tried", the_next_address_is_tried},
        {"a name without address is told", a_name_without_address_is_told},
        {"each deadline has its name", each_deadline_has_its_name},
        {"a chunked answer without its last line end is whole at the idle deadline",
         a_chunked_answer_without_its_last_line_end_is_whole_at_the_idle_deadline},
        {"connecting has a deadline that includes the name",
         connecting_has_a_deadline_that_includes_the_name},
        {"a call goes to the address of its name", a_call_goes_to_the_address_of_its_name},
        {"an address that hangs leaves time for the next",
         an_address_that_hangs_leaves_time_for_the_next},
        {"a paused call hands nothing over and rests its deadlines",
         a_paused_call_hands_nothing_over_and_rests_its_deadlines},
        {"back-pressure reaches the sender", back_pressure_reaches_the_sender},
        {"a large body goes up by reference", a_large_body_goes_up_by_reference},
        {"an early answer is taken and the connection closed",
         an_early_answer_is_taken_and_the_connection_closed},
        {"a call may be cancelled at every stage", a_call_may_be_cancelled_at_every_stage},
        {"a client may be destroyed at every stage", a_client_may_be_destroyed_at_every_stage},
        {"running out of memory costs the call and no more",
         running_out_of_memory_costs_the_call_and_no_more},
        {NULL, NULL},
    },
};
