/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "net/tls.h"
#include "tests/lib/cert.h"
#include "tests/lib/ends.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

/* Two streams over loopback that speak TLS, the client's and the server's, and what each has heard. */
static struct certs certs;
static struct rig {
    struct wp_loop l;
    uv_tcp_t listener;
    struct end client, server;
    struct wp_tls *ours, *theirs; /* the client's, the server's */
    bool up;
} rig;

static void on_connection(uv_stream_t *listener, int rc)
{
    EXPECT_INT("connection", 0, rc);
    EXPECT_INT("init", 0, wp_stream_init(&rig.server.s, &rig.l, &end_ops));
    EXPECT_INT("accept", 0, wp_stream_accept(&rig.server.s, listener));
    if (rig.theirs)
        EXPECT_INT("tls", 0, wp_stream_tls(&rig.server.s, rig.theirs, (struct wp_str){0}));
    EXPECT_INT("read", 0, wp_stream_read_start(&rig.server.s));
    rig.up = true;
}

#define TURN_UNTIL(cond)                \
    do                                  \
        uv_run(&rig.l.uv, UV_RUN_ONCE); \
    while (!(cond))

/* name: whom the client expects; NULL: it speaks no TLS. */
static void set_up(const char *name, const char *ca, const struct wp_tls_pair *pair, size_t n, const char *client_ca)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct wp_err err = WP_ERR_INIT;
    int len = sizeof addr;

    memset(&rig, 0, sizeof rig);
    EXPECT_INT("loop", 0, wp_loop_init(&rig.l, &err));
    EXPECT_INT("client's", 0, wp_tls_client(&rig.ours, ca, &err));
    if (n)
        EXPECT_INT("server's", 0, wp_tls_server(&rig.theirs, pair, n, client_ca, &err));
    uv_tcp_init(&rig.l.uv, &rig.listener);
    EXPECT_INT("bind", 0, uv_tcp_bind(&rig.listener, (const struct sockaddr *)&addr, 0));
    uv_tcp_getsockname(&rig.listener, (struct sockaddr *)&addr, &len);
    EXPECT_INT("listen", 0, uv_listen((uv_stream_t *)&rig.listener, 8, on_connection));
    EXPECT_INT("init", 0, wp_stream_init(&rig.client.s, &rig.l, &end_ops));
    if (name)
        EXPECT_INT("tls", 0, wp_stream_tls(&rig.client.s, rig.ours, wp_str_of(name)));
    EXPECT_INT("connect", 0, wp_stream_connect(&rig.client.s, (const struct sockaddr *)&addr));
    TURN_UNTIL(rig.client.connects && rig.up);
}

static void plain_set_up(void)
{
    const struct wp_tls_pair pair = {certs.server.cert, certs.server.key};

    set_up("localhost", certs.ca.cert, &pair, 1, NULL);
    EXPECT_INT("shaken", 0, rig.client.rc);
    EXPECT_INT("read", 0, wp_stream_read_start(&rig.client.s));
}

static void tear_down(void)
{
    wp_stream_close(&rig.client.s);
    wp_stream_close(&rig.server.s);
    uv_close((uv_handle_t *)&rig.listener, NULL);
    wp_loop_stop(&rig.l);
    EXPECT_INT("run", 0, wp_loop_run(&rig.l));
    EXPECT_INT("client closed once", 1, rig.client.closed);
    EXPECT_INT("server closed once", 1, rig.server.closed);
    wp_buf_fini(&rig.client.got);
    wp_buf_fini(&rig.server.got);
    wp_tls_unref(rig.ours);
    wp_tls_unref(rig.theirs);
    wp_loop_fini(&rig.l);
}

static int write_all(struct end *e, const char *p, size_t n)
{
    const struct wp_str piece = {p, n};

    return wp_stream_write(&e->s, &piece, 1, -1, NULL);
}

static struct wp_blob *big_blob(size_t n)
{
    char *p = wp_malloc(n);

    for (size_t i = 0; i < n; i++)
        p[i] = (char)(i * 2654435761u >> 13);
    return wp_blob_adopt(p, n);
}

static bool same(const struct wp_buf *got, const struct wp_blob *want)
{
    return got->n == want->n && memcmp(got->p, want->p, want->n) == 0;
}

static void bytes_go_both_ways(void)
{
    certs_make(&certs);
    plain_set_up();
    EXPECT_INT("write", 0, write_all(&rig.client, "hello", 5));
    TURN_UNTIL(rig.server.got.n == 5);
    EXPECT_TEXT("there", "hello", wp_buf_str(&rig.server.got));
    EXPECT_INT("write", 0, write_all(&rig.server, "good day", 8));
    TURN_UNTIL(rig.client.got.n == 8);
    EXPECT_TEXT("back", "good day", wp_buf_str(&rig.client.got));
    EXPECT_TRUE("no reason", wp_stream_tls_why(&rig.client.s) == NULL);
    tear_down();
}

static void a_slow_reader_gets_every_byte(void)
{
    struct wp_blob *blob = big_blob(12000000);
    const struct wp_str piece[] = {WP_STR("head:"), {blob->p, blob->n}};
    size_t queued;

    plain_set_up();
    wp_stream_read_stop(&rig.server.s);
    EXPECT_INT("write", 0, wp_stream_write(&rig.client.s, piece, 2, 1, blob));
    queued = rig.client.s.queued;
    EXPECT_TRUE("much waits", queued > 1000000 && queued < 12100000);
    EXPECT_INT("fin", 0, wp_stream_shutdown(&rig.client.s));
    for (size_t stop = 100000; stop < 12000000; stop += 3000000) {
        rig.server.stop_at = stop;
        EXPECT_INT("read", 0, wp_stream_read_start(&rig.server.s));
        TURN_UNTIL(rig.server.got.n >= stop);
    }
    rig.server.stop_at = 0;
    EXPECT_INT("read", 0, wp_stream_read_start(&rig.server.s));
    TURN_UNTIL(rig.server.eofs);
    EXPECT_UINT("all of it", blob->n + 5, rig.server.got.n);
    wp_buf_consume(&rig.server.got, 5);
    EXPECT_TRUE("unchanged", same(&rig.server.got, blob));
    EXPECT_UINT("nothing waits", 0, rig.client.s.queued);
    EXPECT_INT("told", 1, rig.client.drains);
    EXPECT_INT("the other way is open", 0, write_all(&rig.server, "thanks", 6));
    TURN_UNTIL(rig.client.got.n == 6);
    wp_blob_unref(blob);
    tear_down();
}

/* All there is to read came in one go, and its reader wanted one byte of it at a time. */
static void what_nobody_wanted_yet_is_kept(void)
{
    plain_set_up();
    rig.server.stop_at = 1;
    for (int i = 0; i < 20; i++)
        EXPECT_INT("write", 0, write_all(&rig.client, "0123456789", 10));
    EXPECT_INT("fin", 0, wp_stream_shutdown(&rig.client.s));
    TURN_UNTIL(rig.server.got.n > 0);
    while (rig.server.got.n < 200) {
        size_t had = rig.server.got.n;

        rig.server.stop_at = had + 1;
        EXPECT_INT("read", 0, wp_stream_read_start(&rig.server.s));
        TURN_UNTIL(rig.server.got.n > had);
        EXPECT_TRUE("a record at a time", rig.server.got.n - had <= 10);
        EXPECT_INT("no end yet", 0, rig.server.eofs);
    }
    EXPECT_INT("read", 0, wp_stream_read_start(&rig.server.s));
    TURN_UNTIL(rig.server.eofs);
    EXPECT_INT("no error", 0, rig.server.errors);
    tear_down();
}

static void whoever_is_not_who_he_should_be_is_refused(void)
{
    static const struct {
        const char *label, *name, *why;
        bool stranger;
    } cases[] = {
        {"address", "127.0.0.1", NULL, false},
        {"another name", "elsewhere.test", "hostname mismatch", false},
        {"another address", "127.0.0.2", "IP address mismatch", false},
        {"unknown authority", "localhost", "self-signed certificate", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct wp_tls_pair good = {certs.server.cert, certs.server.key}, bad = {certs.stranger.cert, certs.stranger.key};

        set_up(cases[i].name, certs.ca.cert, cases[i].stranger ? &bad : &good, 1, NULL);
        EXPECT_INT(cases[i].label, cases[i].why ? WP_EPROTO : 0, rig.client.rc);
        if (cases[i].why) {
            const char *why = wp_stream_tls_why(&rig.client.s);

            EXPECT_TEXT(cases[i].label, cases[i].why, wp_str_of(why ? why : ""));
            TURN_UNTIL(rig.server.errors);
            EXPECT_INT("nothing was said", 0, (int)rig.server.got.n);
        }
        tear_down();
    }
}

static void the_name_asked_for_chooses_the_certificate(void)
{
    const struct wp_tls_pair pair[] = {{certs.server.cert, certs.server.key}, {certs.other.cert, certs.other.key}};

    set_up("other.test", certs.ca.cert, pair, 2, NULL);
    EXPECT_INT("the second", 0, rig.client.rc);
    tear_down();
    set_up("localhost", certs.ca.cert, pair, 2, NULL);
    EXPECT_INT("the first", 0, rig.client.rc);
    tear_down();
}

static void a_client_without_a_certificate_is_refused_where_one_is_asked_for(void)
{
    const struct wp_tls_pair pair = {certs.server.cert, certs.server.key};

    set_up("localhost", certs.ca.cert, &pair, 1, certs.ca.cert);
    if (rig.client.rc == 0)
        wp_stream_read_start(&rig.client.s); /* with TLS 1.3 it hears of it behind the handshake */
    TURN_UNTIL(rig.server.errors && (rig.client.rc < 0 || rig.client.errors));
    EXPECT_INT("server", WP_EPROTO, rig.server.rc);
    EXPECT_TEXT("why", "peer did not return a certificate", wp_str_of(wp_stream_tls_why(&rig.server.s)));
    tear_down();
}

static void what_is_not_tls_is_an_error(void)
{
    const struct wp_tls_pair pair = {certs.server.cert, certs.server.key};

    set_up(NULL, certs.ca.cert, &pair, 1, NULL);
    EXPECT_INT("write", 0, write_all(&rig.client, "GET / HTTP/1.1\r\n\r\n", 18));
    TURN_UNTIL(rig.server.errors);
    EXPECT_INT("server", WP_EPROTO, rig.server.rc);
    EXPECT_INT("writing is refused", WP_ECONNRESET, write_all(&rig.server, "x", 1));
    tear_down();
    set_up(NULL, certs.ca.cert, &pair, 1, NULL);
    EXPECT_INT("fin", 0, wp_stream_shutdown(&rig.client.s));
    TURN_UNTIL(rig.server.errors);
    EXPECT_INT("an end in the handshake", WP_ECONNRESET, rig.server.rc);
    tear_down();
}

static void a_fin_alone_ends_a_client_but_not_an_answer(void)
{
    plain_set_up();
    shutdown(rig.client.s.tcp.io_watcher.fd, SHUT_WR);
    TURN_UNTIL(rig.server.eofs);
    EXPECT_INT("no error", 0, rig.server.errors);
    tear_down();
    plain_set_up();
    shutdown(rig.server.s.tcp.io_watcher.fd, SHUT_WR);
    TURN_UNTIL(rig.client.errors);
    EXPECT_INT("cut off", WP_ECONNRESET, rig.client.rc);
    EXPECT_INT("no end", 0, rig.client.eofs);
    tear_down();
}

static void closing_says_so(void)
{
    plain_set_up();
    EXPECT_INT("write", 0, write_all(&rig.client, "x", 1));
    TURN_UNTIL(rig.server.got.n); /* both have shaken */
    wp_stream_close(&rig.server.s);
    TURN_UNTIL(rig.client.eofs || rig.client.errors);
    EXPECT_INT("an end", 1, rig.client.eofs);
    EXPECT_INT("no error", 0, rig.client.errors);
    tear_down();
    plain_set_up();
    wp_stream_reset(&rig.server.s);
    TURN_UNTIL(rig.client.eofs || rig.client.errors);
    EXPECT_INT("a reset is no end", 0, rig.client.eofs);
    tear_down();
}

static void files_that_are_not_right_are_named(void)
{
    const struct {
        const char *label;
        struct wp_tls_pair pair;
        const char *client_ca, *part;
    } cases[] = {
        {"no file", {"/nowhere.pem", certs.server.key}, NULL, "certificate /nowhere.pem: not found"},
        {"no PEM", {certs.server.key, certs.server.key}, NULL, "no start line"},
        {"another's key", {certs.server.cert, certs.other.key}, NULL, "key values mismatch"},
        {"no authorities", {certs.server.cert, certs.server.key}, certs.server.key, "client authorities"},
    };
    struct wp_tls *t = NULL, *again = NULL;
    struct wp_err err = WP_ERR_INIT;
    long live = wp_mem_live();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EXPECT_INT(cases[i].label, WP_EINVAL, wp_tls_server(&t, &cases[i].pair, 1, cases[i].client_ca, &err));
        EXPECT_TRUE(cases[i].label, strstr(err.text, cases[i].part) != NULL);
    }
    EXPECT_INT("client", WP_EINVAL, wp_tls_client(&t, certs.server.key, &err));
    EXPECT_INT("client", 0, wp_tls_client(&t, certs.ca.cert, &err));
    EXPECT_INT("client", 0, wp_tls_client(&again, certs.ca.cert, &err));
    EXPECT_TRUE("one file, one for all", t == again);
    wp_tls_unref(t);
    wp_tls_unref(again);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

/* Whichever allocation of ours fails, somebody hears of it, and nothing leaks. */
static void running_out_of_memory_is_told(void)
{
    struct wp_blob *blob = big_blob(6000000);
    const struct wp_str piece[] = {WP_STR("x"), {blob->p, blob->n}};
    bool hit = true;

    for (long nth = 0; hit; nth++) {
        int rc;

        plain_set_up();
        wp_stream_read_stop(&rig.server.s);
        wp_mem_fail_after(nth);
        rc = wp_stream_write(&rig.client.s, piece, 2, 1, blob);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_TRUE("told", hit ? rc < 0 : rc == 0);
        tear_down();
        EXPECT_TRUE("it ends", nth < 1000);
    }
    wp_blob_unref(blob);
    certs_remove(&certs);
}

const struct wp_suite suite_tls = {
    "tls",
    (const struct wp_test[]){
        {"bytes go both ways", bytes_go_both_ways},
        {"a slow reader gets every byte", a_slow_reader_gets_every_byte},
        {"what nobody wanted yet is kept", what_nobody_wanted_yet_is_kept},
        {"whoever is not who he should be is refused", whoever_is_not_who_he_should_be_is_refused},
        {"the name asked for chooses the certificate", the_name_asked_for_chooses_the_certificate},
        {"a client without a certificate is refused where one is asked for",
         a_client_without_a_certificate_is_refused_where_one_is_asked_for},
        {"what is not TLS is an error", what_is_not_tls_is_an_error},
        {"a FIN alone ends a client, but not an answer", a_fin_alone_ends_a_client_but_not_an_answer},
        {"closing says so", closing_says_so},
        {"files that are not right are named", files_that_are_not_right_are_named},
        {"running out of memory is told", running_out_of_memory_is_told},
        {NULL, NULL},
    },
};
