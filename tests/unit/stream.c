/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/lib/ends.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>

/* Two streams over loopback, the client's and the server's, and what each has heard. */
static struct rig {
    struct wp_loop l;
    uv_tcp_t listener;
    struct end client, server;
    bool up, listener_closed;
    long live;
} rig;

static void on_connection(uv_stream_t *listener, int rc)
{
    EXPECT_INT("connection", 0, rc);
    EXPECT_INT("init", 0, wp_stream_init(&rig.server.s, &rig.l, &end_ops));
    EXPECT_INT("accept", 0, wp_stream_accept(&rig.server.s, listener));
    rig.up = true;
}

static void on_listener_closed(uv_handle_t *h)
{
    (void)h;
    rig.listener_closed = true;
}

#define TURN_UNTIL(cond)                \
    do                                  \
        uv_run(&rig.l.uv, UV_RUN_ONCE); \
    while (!(cond))

static void set_up(bool connected)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct wp_err err = WP_ERR_INIT;
    int n = sizeof addr;

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    EXPECT_INT("loop", 0, wp_loop_init(&rig.l, &err));
    uv_tcp_init(&rig.l.uv, &rig.listener);
    EXPECT_INT("bind", 0, uv_tcp_bind(&rig.listener, (const struct sockaddr *)&addr, 0));
    uv_tcp_getsockname(&rig.listener, (struct sockaddr *)&addr, &n);
    if (connected)
        EXPECT_INT("listen", 0, uv_listen((uv_stream_t *)&rig.listener, 8, on_connection));
    EXPECT_INT("init", 0, wp_stream_init(&rig.client.s, &rig.l, &end_ops));
    EXPECT_INT("connect", 0, wp_stream_connect(&rig.client.s, (const struct sockaddr *)&addr));
    TURN_UNTIL(rig.client.connects && (rig.up || !connected));
}

static void tear_down(void)
{
    int before = rig.client.closed;

    wp_stream_close(&rig.client.s);
    wp_stream_close(&rig.client.s); /* often is as good as once */
    EXPECT_INT("never inside the call", before, rig.client.closed);
    if (rig.up)
        wp_stream_close(&rig.server.s);
    uv_close((uv_handle_t *)&rig.listener, on_listener_closed);
    wp_loop_stop(&rig.l);
    EXPECT_INT("run", 0, wp_loop_run(&rig.l));
    EXPECT_INT("client closed once", 1, rig.client.closed);
    EXPECT_INT("server closed once", rig.up, rig.server.closed);
    wp_buf_fini(&rig.client.got);
    wp_buf_fini(&rig.server.got);
    wp_loop_fini(&rig.l);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

static void pieces_arrive_in_order_without_an_allocation(void)
{
    const struct wp_str piece[] = {WP_STR("one "), {NULL, 0}, WP_STR("two "), WP_STR("three")};
    long live;

    set_up(true);
    EXPECT_INT("read", 0, wp_stream_read_start(&rig.server.s));
    live = wp_mem_live();
    EXPECT_INT("write", 0, wp_stream_write(&rig.client.s, piece, 4, -1, NULL));
    EXPECT_INT("no allocation", live, wp_mem_live());
    EXPECT_UINT("nothing waits", 0, rig.client.s.queued);
    TURN_UNTIL(rig.server.got.n == 13);
    EXPECT_TEXT("bytes", "one two three", wp_buf_str(&rig.server.got));
    EXPECT_UINT("taken", 13, wp_stream_taken(&rig.client.s));
    tear_down();
}

/* Fills the pipe to a reader that does not read; returns what was written. */
static size_t fill(struct wp_buf *want, struct wp_blob *blob)
{
    size_t all = 0;

    for (int i = 0; i < 2 || rig.client.s.queued == 0; i++) {
        const struct wp_str piece[] = {WP_STR("<"), {blob->p, blob->n}, WP_STR(">")};

        EXPECT_INT("write", 0, wp_stream_write(&rig.client.s, piece, 3, 1, blob));
        for (int k = 0; want && k < 3; k++)
            wp_buf_add(want, piece[k].p, piece[k].n);
        all += blob->n + 2;
    }
    /* and once more behind what waits, in pieces of which none is held */
    for (int i = 0; i < 3; i++) {
        const struct wp_str piece[] = {WP_STR("a"), WP_STR("bc")};

        EXPECT_INT("write", 0, wp_stream_write(&rig.client.s, piece, 2, -1, NULL));
        if (want)
            wp_buf_adds(want, "abc");
        all += 3;
    }
    return all;
}

static struct wp_blob *big_blob(size_t n)
{
    struct wp_blob *b = wp_blob_adopt(wp_malloc(n), n);

    for (size_t i = 0; i < n; i++)
        b->p[i] = (char)(i * 31 + i / 251);
    return b;
}

static void a_slow_reader_gets_every_byte_and_the_writer_learns_when(void)
{
    struct wp_blob *blob;
    struct wp_buf want = {0};
    size_t all;

    set_up(true);
    blob = big_blob(3000001);
    all = fill(&want, blob);
    EXPECT_TRUE("some of it waits", rig.client.s.queued > 0);
    EXPECT_TRUE("the blob is held, not copied", blob->refs > 1);
    EXPECT_TRUE("taken stands below", wp_stream_taken(&rig.client.s) < all);
    EXPECT_INT("no drain yet", 0, rig.client.drains);
    wp_stream_read_start(&rig.server.s);
    TURN_UNTIL(rig.server.got.n == all && rig.client.drains);
    EXPECT_INT("one drain", 1, rig.client.drains);
    EXPECT_TRUE("same bytes", all == want.n && memcmp(want.p, rig.server.got.p, all) == 0);
    EXPECT_UINT("the blob is let go", 1, blob->refs);
    EXPECT_UINT("taken", all, wp_stream_taken(&rig.client.s));
    wp_buf_fini(&want);
    wp_blob_unref(blob);
    tear_down();
}

static void closing_drops_what_waits(void)
{
    struct wp_blob *blob;

    set_up(true);
    blob = big_blob(3000001);
    fill(NULL, blob);
    wp_stream_close(&rig.client.s);
    TURN_UNTIL(rig.client.closed);
    EXPECT_UINT("the blob is let go", 1, blob->refs);
    EXPECT_INT("no drain", 0, rig.client.drains);
    EXPECT_INT("no error", 0, rig.client.errors);
    wp_blob_unref(blob);
    tear_down();
}

static void a_fin_is_an_end_of_reading_only(void)
{
    const struct wp_str hi = WP_STR("hi");

    set_up(true);
    wp_stream_read_start(&rig.client.s);
    EXPECT_INT("open", WP_PEER_OPEN, wp_stream_peer(&rig.server.s));
    wp_stream_write(&rig.client.s, &hi, 1, -1, NULL);
    EXPECT_INT("shutdown", 0, wp_stream_shutdown(&rig.client.s));
    while (wp_stream_peer(&rig.server.s) == WP_PEER_OPEN) /* seen although nobody reads */
        uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    EXPECT_INT("half closed", WP_PEER_HALF_CLOSED, wp_stream_peer(&rig.server.s));
    wp_stream_read_start(&rig.server.s);
    TURN_UNTIL(rig.server.eofs);
    EXPECT_TEXT("bytes before it", "hi", wp_buf_str(&rig.server.got));
    EXPECT_INT("writing goes on", 0, wp_stream_write(&rig.server.s, &hi, 1, -1, NULL));
    TURN_UNTIL(rig.client.got.n == 2);
    tear_down();
}

static void a_reset_is_an_error_at_the_other_side(void)
{
    set_up(true);
    wp_stream_read_start(&rig.server.s);
    wp_stream_reset(&rig.client.s);
    TURN_UNTIL(rig.server.errors);
    EXPECT_INT("code", WP_ECONNRESET, rig.server.rc);
    EXPECT_INT("gone", WP_PEER_GONE, wp_stream_peer(&rig.server.s));
    EXPECT_INT("no eof", 0, rig.server.eofs);
    tear_down();
}

static void a_port_where_nobody_listens_refuses(void)
{
    set_up(false);
    EXPECT_INT("code", WP_ECONNREFUSED, rig.client.rc);
    tear_down();
}

static void a_write_without_memory_is_told_at_once(void)
{
    struct wp_blob *blob;
    struct wp_str piece;
    int rc = 0;

    set_up(true);
    blob = big_blob(8000000);
    piece = (struct wp_str){blob->p, blob->n};
    wp_mem_fail_after(0);
    for (int i = 0; i < 8 && rc == 0; i++)
        rc = wp_stream_write(&rig.client.s, &piece, 1, -1, NULL);
    wp_mem_fail_after(-1);
    EXPECT_INT("code", WP_ENOMEM, rc);
    EXPECT_UINT("nothing waits", 0, rig.client.s.queued);
    wp_blob_unref(blob);
    tear_down();
}

const struct wp_suite suite_stream = {
    "stream",
    (const struct wp_test[]){
        {"pieces arrive in order without an allocation",
         pieces_arrive_in_order_without_an_allocation},
        {"a slow reader gets every byte, and the writer learns when",
         a_slow_reader_gets_every_byte_and_the_writer_learns_when},
        {"closing drops what waits", closing_drops_what_waits},
        {"a FIN is an end of reading only", a_fin_is_an_end_of_reading_only},
        {"a reset is an error at the other side", a_reset_is_an_error_at_the_other_side},
        {"a port where nobody listens refuses", a_port_where_nobody_listens_refuses},
        {"a write without memory is told at once", a_write_without_memory_is_told_at_once},
        {NULL, NULL},
    },
};
