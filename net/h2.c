/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h2.h"

#include "base/clock.h"

#include <assert.h>

enum {
    STREAMS = 128,             /* at once on a connection */
    STREAMS_KNOWN = 65536,     /* what nghttp2 is told: see say_streams() */
    REFUSALS = 1000,           /* of streams beyond those, on a connection */
    EMPTY_FRAMES = 1000,       /* of a connection between two requests */
    SETTINGS_FIRST = 9 + 2,    /* where the value of a SETTINGS frame's first entry is */
    STREAM_WINDOW = 262144,    /* bytes of a body that may lie here unread */
    CONNECTION_WINDOW = 1 << 20,
    SEND_MARK = 262144,        /* of the socket's queue: nghttp2 is asked for more below it */
    RESETS_BURST = 1000, RESETS_A_SECOND = 33, CONTINUATIONS = 16,
};

const struct wp_str wp_h2_preface = {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24};

/* --- the head --- */

static void no_over(struct wp_exchange *x, int rc)
{
    (void)x;
    (void)rc;
}

static const struct wp_exchange_ops nobody = {.on_over = no_over};

/* What HTTP/1 would have refused by its grammar: the status to do it with, or 0. */
static int judge_fields(struct wp_h2_ex *x, const char **why)
{
    struct wp_head *h = &x->head;
    struct wp_str host = wp_head_get(h, "host");

    *why = "want a path, and nothing else, as the target";
    if (!wp_path_ok(h->target) && !(wp_str_is(h->target, "*") && wp_str_is(h->method, "OPTIONS")))
        return 400;
    *why = "Host and :authority differ";
    if (host.p && x->authority.p && !wp_str_eq(host, x->authority))
        return 400;
    *why = "a malformed host, or none";
    if (!wp_host_ok(x->authority) || !wp_host_ok(host) || (!host.p && !x->authority.n))
        return 400;
    *why = "too many fields";
    if (!host.p && h->n_fields == WP_FIELDS_MAX)
        return 431;
    *why = "an unknown expectation";
    return wp_head_expects(h, &h->expect_continue) ? 0 : 417;
}

static void judge_head(struct wp_h2_ex *x, const char **why)
{
    struct wp_head *h = &x->head;
    uint64_t n;

    h->minor = 1;
    h->keep_alive = true;
    h->content_length = -1;
    h->expect_continue = false;
    *why = "the head is too long";
    if (!x->bad)
        x->bad = judge_fields(x, why);
    if (x->bad)
        return;
    if (!wp_head_get(h, "host").p)
        h->field[h->n_fields++] = (struct wp_field){WP_STR("host"), x->authority};
    if (wp_str_u64(wp_head_get(h, "content-length"), &n) && n <= INT64_MAX)
        h->content_length = (int64_t)n;
}

/* The head is whole. */
static void start(struct wp_h2_ex *x)
{
    struct wp_conn *c = x->h->c;
    struct wp_server *s = c->server;
    const char *why = NULL;

    judge_head(x, &why);
    x->started = true;
    x->paused = x->head.expect_continue && !x->body_done;
    x->last_us = x->body_began_us = x->paused_us = wp_loop_now_us(s->loop);
    x->pub = (struct wp_exchange){.carrier = &wp_carrier_http2,
                                  .head = &x->head,
                                  .loop = s->loop,
                                  .ops = &nobody,
                                  .peer = &c->peer.any,
                                  .began_us = x->last_us,
                                  .body_max = s->conf.body_bytes};
    s->n_exchanges++;
    x->h->n_untold++;
    if (x->bad) {
        wp_h2_refuse(x, WP_EPROTO, x->bad, why);
        return;
    }
    x->pub.ops = NULL;
    s->conf.on_request(&x->pub, s->conf.arg);
    assert(x->pub.ops);
    if (s->draining)
        wp_h2_quiet(x->h);
    if (x->over || x->closed)
        return;
    if (!x->begun && x->head.content_length > 0 && (uint64_t)x->head.content_length > x->pub.body_max)
        wp_h2_refuse(x, WP_ETOOBIG, 413, "the body is too long");
    else
        wp_h2_hand_out(x);
    wp_h2_clock(x);
}

/* --- what nghttp2 tells --- */

static int go_on(const struct wp_h2 *h)
{
    return h->c->state == WP_CONN_CLOSED ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/*
 * One stream too many costs itself alone (RFC 9113 5.1.2: REFUSED_STREAM), and its client may try again.  nghttp2 would end the whole connection, once its
 * client has acknowledged the limit.
 */
static int refuse_stream(struct wp_h2 *h, int32_t id)
{
    h->flooded = ++h->n_refused > REFUSALS;
    if (h->flooded)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct wp_h2 *h = arg;
    struct wp_h2_ex *x;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (h->n_streams >= STREAMS)
        return refuse_stream(h, frame->hd.stream_id);
    x = wp_h2_ex_new(h, frame->hd.stream_id);
    if (!x)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, x->id, x);
    return 0;
}

/* Cookies may come in crumbs, for the sake of compression; one field holds them elsewhere (RFC 9113 8.2.3). */
static bool add_crumb(struct wp_h2_ex *x, struct wp_str name, struct wp_str value)
{
    for (size_t i = 0; wp_str_is(name, "cookie") && i < x->head.n_fields; i++) {
        struct wp_str *all = &x->head.field[i].value;
        char *p;

        if (!wp_str_is(x->head.field[i].name, "cookie"))
            continue;
        p = wp_arena_alloc(&x->bytes, all->n + 2 + value.n);
        if (p) {
            memcpy(p, all->p, all->n);
            memcpy(p + all->n, "; ", 2);
            memcpy(p + all->n + 2, value.p, value.n);
            *all = (struct wp_str){p, all->n + 2 + value.n};
        } else {
            x->bad = 431;
        }
        return true;
    }
    return false;
}

static void add_field(struct wp_h2_ex *x, struct wp_str name, struct wp_str value)
{
    struct wp_field f = {{wp_arena_strndup(&x->bytes, name.p, name.n), name.n}, {wp_arena_strndup(&x->bytes, value.p, value.n), value.n}};

    if (!f.name.p || !f.value.p)
        x->bad = 431;
    else if (wp_str_is(name, ":method"))
        x->head.method = f.value;
    else if (wp_str_is(name, ":path"))
        x->head.target = f.value;
    else if (wp_str_is(name, ":authority"))
        x->authority = f.value;
    else if (name.p[0] == ':')
        return;
    else if (x->head.n_fields == WP_FIELDS_MAX)
        x->bad = 431;
    else
        x->head.field[x->head.n_fields++] = f;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name, const uint8_t *value,
                     size_t n_value, uint8_t flags, void *arg)
{
    const struct wp_str k = {(const char *)name, n_name}, v = wp_str_trim((struct wp_str){(const char *)value, n_value});
    struct wp_h2_ex *x = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    struct wp_h2 *h = arg;

    (void)flags;
    if (!x || x->started) /* trailers are dropped */
        return 0;
    x->n_head += n_name + n_value + 32;
    if (x->n_head > h->c->server->conf.head_bytes)
        x->bad = 431;
    if (!x->bad && !add_crumb(x, k, v))
        add_field(x, k, v);
    return 0;
}

/* Frames that say nothing cost their sender nothing, either; nghttp2 counts those of other types. */
static bool is_empty(const nghttp2_frame *frame)
{
    return frame->hd.type == NGHTTP2_PRIORITY ||
           (frame->hd.type == NGHTTP2_DATA && frame->hd.length == 0 && !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM));
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct wp_h2_ex *x = frame->hd.stream_id ? nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) : NULL;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct wp_h2 *h = arg;

    if (is_empty(frame)) {
        h->flooded = ++h->n_empty > EMPTY_FRAMES;
        return h->flooded ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
    }
    if (!x || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    x->body_done = x->body_done || end;
    h->n_empty = 0;
    if (!x->started)
        start(x);
    else if (end)
        wp_h2_hand_out(x);
    return go_on(h);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *arg)
{
    struct wp_h2_ex *x = nghttp2_session_get_stream_user_data(session, id);
    struct wp_h2 *h = arg;

    (void)flags;
    if (nghttp2_session_consume_connection(session, n) < 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (!x)
        return 0;
    x->last_us = wp_loop_now_us(h->c->stream.loop);
    if (x->over || x->ended) { /* nobody wants it */
        wp_h2_give_back(x, n);
    } else if (x->paused || x->in.n > 0) {
        if (wp_buf_add(&x->in, (const char *)p, n) < 0)
            wp_conn_fail(h->c, WP_ENOMEM);
    } else {
        wp_h2_deliver(x, (const char *)p, n);
        wp_h2_give_back(x, n);
    }
    return go_on(h);
}

/* An answer that is whole while the request is not: the client may stop (RFC 9113 8.1). */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct wp_h2_ex *x = frame->hd.stream_id ? nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) : NULL;

    (void)arg;
    if (x && !x->body_done && x->begun && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, x->id, NGHTTP2_NO_ERROR) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct wp_h2_ex *x = nghttp2_session_get_stream_user_data(session, id);
    struct wp_h2 *h = arg;

    if (!x)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    wp_h2_ex_gone(x, x->ended && x->out.n == 0 && code == NGHTTP2_NO_ERROR ? 0 : WP_ECANCELED);
    if (h->n_streams == 0 && h->c->state == WP_CONN_H2)
        wp_timer_in(h->c->stream.loop, &h->c->deadline, h->c->server->conf.keepalive_us);
    return 0;
}

/* --- the connection --- */

static void *h2_malloc(size_t n, void *arg)
{
    (void)arg;
    return wp_malloc(n);
}

static void h2_free(void *p, void *arg)
{
    (void)arg;
    wp_free(p);
}

static void *h2_calloc(size_t n, size_t size, void *arg)
{
    (void)arg;
    return wp_calloc(n, size);
}

static void *h2_realloc(void *p, size_t n, void *arg)
{
    (void)arg;
    return wp_realloc(p, n);
}

static int session_new(struct wp_h2 *h)
{
    nghttp2_mem mem = {NULL, h2_malloc, h2_free, h2_calloc, h2_realloc};
    nghttp2_session_callbacks *calls = NULL;
    nghttp2_option *option = NULL;
    int rc = nghttp2_session_callbacks_new(&calls);

    if (rc == 0)
        rc = nghttp2_option_new(&option);
    if (rc == 0) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame_recv);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
        nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_frame_send);
        nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_stream_close);
        nghttp2_option_set_no_auto_window_update(option, 1);
#ifdef WP_NGHTTP2_LIMITS
        nghttp2_option_set_stream_reset_rate_limit(option, RESETS_BURST, RESETS_A_SECOND);
        nghttp2_option_set_max_continuations(option, CONTINUATIONS);
#endif
        rc = nghttp2_session_server_new3(&h->session, calls, h, option, &mem);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(calls);
    return rc < 0 ? WP_ENOMEM : 0;
}

static int greet(struct wp_h2 *h)
{
    const nghttp2_settings_entry mine[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_KNOWN}, /* the first: say_streams() */
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, h->c->server->conf.head_bytes},
    };

    if (nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, mine, sizeof mine / sizeof *mine) < 0 ||
        nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW) < 0)
        return WP_ENOMEM;
    return 0;
}

void wp_h2_begin(struct wp_conn *c)
{
    struct wp_h2 *h = wp_calloc(1, sizeof *h);

    if (h) {
        h->c = c;
        wp_list_init(&h->streams);
    }
    if (!h || session_new(h) < 0) {
        wp_free(h);
        wp_conn_close(c, true);
        return;
    }
    c->h2 = h;
    c->state = WP_CONN_H2;
    c->asked = true;
    wp_timer_in(c->stream.loop, &c->deadline, c->server->conf.keepalive_us);
    if (greet(h) < 0)
        wp_conn_fail(c, WP_ENOMEM);
}

/* Nothing more will be said or heard. */
static void leave_if_over(struct wp_h2 *h)
{
    bool over = h->leaving && h->n_streams == 0 && !nghttp2_session_want_write(h->session);

    if (h->c->state == WP_CONN_H2 &&
        (over || (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session)))) {
        wp_h2_gone(h, WP_ECANCELED);
        wp_conn_linger(h->c);
    }
}

/* Our first frame is SETTINGS: the client is told the limit that on_begin_headers() keeps, instead of nghttp2's. */
static void say_streams(struct wp_h2 *h, char *frame)
{
    const uint8_t value[4] = {0, 0, STREAMS >> 8, STREAMS & 255};

    if (!h->greeted && frame[3] == NGHTTP2_SETTINGS)
        memcpy(frame + SETTINGS_FIRST, value, sizeof value);
    h->greeted = true;
}

/* One write for as many frames as there are, up to a buffer full. */
static bool send_some(struct wp_h2 *h)
{
    static _Thread_local char batch[65536];
    struct wp_str piece = {batch, 0};
    ssize_t n = 0;
    int rc;

    h->inside = true;
    while (piece.n + 16384 + 9 <= sizeof batch) {
        const uint8_t *p;

        n = nghttp2_session_mem_send(h->session, &p);
        if (n <= 0)
            break;
        if (piece.n + (size_t)n > sizeof batch) { /* no frame of ours is that long */
            n = NGHTTP2_ERR_PROTO;
            break;
        }
        memcpy(batch + piece.n, p, (size_t)n);
        say_streams(h, batch + piece.n);
        piece.n += (size_t)n;
    }
    h->inside = false;
    if (h->c->state != WP_CONN_H2)
        return false;
    rc = piece.n ? wp_stream_write(&h->c->stream, &piece, 1, -1, NULL) : 0;
    if (n < 0 || rc < 0) {
        wp_conn_fail(h->c, n == NGHTTP2_ERR_NOMEM || rc == WP_ENOMEM ? WP_ENOMEM : WP_ECANCELED);
        return false;
    }
    wp_conn_wrote(h->c);
    return piece.n > 0;
}

void wp_h2_room(struct wp_h2 *h)
{
    if (h->inside) {
        wp_conn_kick(h->c);
        return;
    }
    while (h->c->state == WP_CONN_H2 && h->c->stream.queued < SEND_MARK && send_some(h))
        ;
    leave_if_over(h);
}

void wp_h2_read(struct wp_h2 *h, const char *p, size_t n)
{
    ssize_t rc;

    h->inside = true;
    rc = nghttp2_session_mem_recv(h->session, (const uint8_t *)p, n);
    h->inside = false;
    if (h->c->state != WP_CONN_H2)
        return;
    if (rc < 0) { /* it broke the rules beyond repair, or floods us */
        nghttp2_session_terminate_session(h->session, h->flooded || rc == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
        send_some(h);
        if (h->c->state == WP_CONN_H2) {
            wp_h2_gone(h, WP_ECANCELED);
            wp_conn_linger(h->c);
        }
        return;
    }
    wp_h2_room(h);
}

void wp_h2_quiet(struct wp_h2 *h)
{
    if (h->leaving || h->c->state != WP_CONN_H2)
        return;
    h->leaving = true;
    nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR, NULL, 0);
    wp_conn_kick(h->c);
}

bool wp_h2_is_idle(const struct wp_h2 *h)
{
    return h->n_streams == 0;
}

void wp_h2_idle(struct wp_h2 *h)
{
    if (h->n_streams == 0)
        wp_h2_quiet(h);
}

void wp_h2_gone(struct wp_h2 *h, int rc)
{
    WP_LIST_EACH(&h->streams, it)
    {
        struct wp_h2_ex *x = WP_CONTAINER(it, struct wp_h2_ex, link);

        if (h->session)
            nghttp2_session_set_stream_user_data(h->session, x->id, NULL);
        wp_h2_ex_gone(x, rc);
    }
}

bool wp_h2_free(struct wp_h2 *h)
{
    if (h->n_untold > 0)
        return false;
    nghttp2_session_del(h->session);
    wp_free(h);
    return true;
}
