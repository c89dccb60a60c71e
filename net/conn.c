/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: bytes come (on_read) and are eaten where they lie, in the loop's own buffer: a whole
 * head becomes an exchange with a copy of just that head; its body goes to the handler piece by
 * piece.  Bytes that may not be eaten yet (half a head, a paused body, a pipelined request) are
 * kept in c->in, and reading stops while an exchange has such. When the answer is out and on_over
 * was told, the next request is eaten. Failing: a head or body that breaks the rules is answered by
 * wp_conn_refuse(); a connection that breaks ends its exchange with wp_conn_fail(); either way the
 * exchange ends by wp_ex_over(), whose on_over comes in a later turn. A connection's memory goes
 * when its stream is closed and its exchange has been told, whichever is later.
 */
#include "net/conn.h"

#include "base/clock.h"

#include <assert.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINGER_US = 5000000, KEEPALIVE_S = 60, UNREAD_US = 1000 };

static struct wp_conn *conn_of(struct wp_stream *s)
{
    return WP_CONTAINER(s, struct wp_conn, stream);
}

void wp_conn_free(struct wp_conn *c)
{
    struct wp_server *s = c->server;

    if (c->h2 && !wp_h2_free(c->h2))
        return;

    wp_buf_fini(&c->in);
    wp_list_del(&c->link);
    wp_free(c);
    wp_server_forget(s, c);
}

bool wp_conn_has_unread(const struct wp_conn *c)
{
    uv_os_fd_t fd;
    int unread = 0;

    return uv_fileno((const uv_handle_t *)&c->stream.tcp, &fd) == 0 && ioctl(fd, FIONREAD, &unread) == 0 && unread > 0;
}

void wp_conn_close(struct wp_conn *c, bool reset)
{
    struct wp_loop *l = c->stream.loop;

    if (c->state == WP_CONN_CLOSED)
        return;
    if (c->x)
        wp_ex_over(c->x, WP_ECANCELED);
    if (c->h2)
        wp_h2_gone(c->h2, WP_ECANCELED);
    c->state = WP_CONN_CLOSED;
    wp_timer_stop(l, &c->deadline);
    wp_timer_stop(l, &c->send);
    wp_timer_stop(l, &c->tick);
    wp_timer_stop(l, &c->kick);
    if (reset)
        wp_stream_reset(&c->stream);
    else
        wp_stream_close(&c->stream);
}

void wp_conn_fail(struct wp_conn *c, int rc)
{
    if (c->x)
        wp_ex_over(c->x, rc);
    if (c->h2)
        wp_h2_gone(c->h2, rc);
    wp_conn_close(c, true);
}

void wp_conn_linger(struct wp_conn *c)
{
    if (c->state == WP_CONN_LINGER || c->state == WP_CONN_CLOSED)
        return;
    c->state = WP_CONN_LINGER;
    wp_timer_stop(c->stream.loop, &c->tick);
    wp_timer_in(c->stream.loop, &c->deadline, LINGER_US);
    if ((c->stream.eof && c->stream.queued == 0) || wp_stream_shutdown(&c->stream) < 0)
        wp_conn_close(c, false);
    wp_conn_flow(c);
}

void wp_conn_flow(struct wp_conn *c)
{
    bool exchange = c->state == WP_CONN_EXCHANGE, read = true;

    if (c->state == WP_CONN_CLOSED || (exchange && c->x->over))
        return;
    if (exchange && c->x->ended && !c->x->body_done)
        read = true; /* and drop it */
    else if (exchange)
        read = c->in.n == 0 && (c->x->body_done || !c->x->paused);
    if (!read)
        wp_stream_read_stop(&c->stream);
    else if (wp_stream_read_start(&c->stream) < 0)
        wp_conn_close(c, true);
    if (exchange && !c->stream.reading)
        wp_peer_watch(c);
}

void wp_conn_kick(struct wp_conn *c)
{
    if (!c->kick.armed && c->state != WP_CONN_CLOSED)
        wp_timer_in(c->stream.loop, &c->kick, 0);
}

void wp_conn_wrote(struct wp_conn *c)
{
    if (c->stream.queued == 0 || c->send.armed)
        return;
    c->taken = wp_stream_taken(&c->stream);
    c->taken_us = wp_loop_now_us(c->stream.loop);
    wp_timer_in(c->stream.loop, &c->send, c->server->conf.send_us / 4);
}

static void on_send_check(struct wp_timer *t)
{
    struct wp_conn *c = t->arg;
    uint64_t now = wp_loop_now_us(c->stream.loop), taken = wp_stream_taken(&c->stream);

    if (c->stream.queued == 0)
        return;
    if (taken != c->taken) {
        c->taken = taken;
        c->taken_us = now;
    } else if (now - c->taken_us >= c->server->conf.send_us) {
        wp_conn_fail(c, WP_ETIMEDOUT);
        return;
    }
    wp_timer_in(c->stream.loop, t, c->server->conf.send_us / 4);
}

static void on_deadline(struct wp_timer *t)
{
    struct wp_conn *c = t->arg;

    switch (c->state) {
    case WP_CONN_IDLE:
        if (wp_conn_has_unread(c) && !wp_stream_shaking(&c->stream)) {
            wp_timer_in(c->stream.loop, t, UNREAD_US); /* it is read in this very turn */
            break;
        }
        if (c->known || wp_stream_shaking(&c->stream)) {
            wp_conn_close(c, false);
            break;
        }
        c->known = true;
        wp_timer_in(c->stream.loop, t, c->server->conf.keepalive_us);
        break;
    case WP_CONN_HEAD:
        wp_conn_refuse(c, 408, "the head came too slowly");
        break;
    case WP_CONN_EXCHANGE:
        wp_body_late(c);
        break;
    case WP_CONN_H2:
        wp_h2_idle(c->h2);
        break;
    case WP_CONN_LINGER:
        wp_conn_close(c, c->stream.queued > 0);
        break;
    case WP_CONN_CLOSED:
        break;
    }
}

static void moved(struct wp_str *s, const char *from, size_t n, char *to)
{
    if (s->p && s->p >= from && s->p <= from + n)
        s->p = to + (s->p - from);
}

/* An exchange with a copy of the head that lies at p[n] and was read into the server's head. */
static struct wp_ex *ex_new(struct wp_conn *c, const char *p, size_t n)
{
    struct wp_ex *x = wp_malloc(sizeof *x + n);

    if (!x)
        return NULL;
    memset(x, 0, offsetof(struct wp_ex, head));
    x->head = c->server->head;
    memcpy(x->bytes, p, n);
    moved(&x->head.method, p, n, x->bytes);
    moved(&x->head.target, p, n, x->bytes);
    for (size_t i = 0; i < x->head.n_fields; i++) {
        moved(&x->head.field[i].name, p, n, x->bytes);
        moved(&x->head.field[i].value, p, n, x->bytes);
    }
    x->c = c;
    return x;
}

static void on_done(struct wp_timer *t);

static void ex_start(struct wp_ex *x)
{
    struct wp_conn *c = x->c;
    struct wp_server *s = c->server;
    uint64_t now = wp_loop_now_us(s->loop);

    wp_timer_init(&x->done, on_done, x);
    wp_timer_stop(s->loop, &c->deadline);
    c->x = x;
    c->state = WP_CONN_EXCHANGE;
    c->asked = true;
    c->keep = false;
    c->last_us = x->body_began_us = x->paused_us = now;
    s->n_exchanges++;
    x->framing = wp_http1_request_body(&x->head);
    x->left = x->framing == WP_BODY_LENGTH ? (uint64_t)x->head.content_length : 0;
    x->body_done = x->framing == WP_BODY_NONE;
    x->paused = x->head.expect_continue && !x->body_done;
    x->pub = (struct wp_exchange){.carrier = &wp_carrier_http1,
                                  .head = &x->head,
                                  .loop = s->loop,
                                  .peer = &c->peer.any,
                                  .began_us = now,
                                  .body_max = s->conf.body_bytes};
    s->conf.on_request(&x->pub, s->conf.arg);
    assert(x->pub.ops);
    if (x->over)
        return;
    if (!x->begun && x->left > x->pub.body_max)
        wp_body_bad(x, WP_ETOOBIG, 413, "the body is too long");
    else if (x->body_done)
        wp_body_end(x);
    else
        wp_body_clock(c);
}

/* Whether p[n] is the preface of HTTP/2, or may become it. */
static bool is_preface(const struct wp_conn *c, const char *p, size_t n)
{
    return !c->asked && memcmp(p, wp_h2_preface.p, n < wp_h2_preface.n ? n : wp_h2_preface.n) == 0;
}

/* The bytes of a head at p[n], 0 when it is not whole yet. */
static size_t eat_head(struct wp_conn *c, const char *p, size_t n)
{
    struct wp_server *s = c->server;
    const char *why = NULL;
    int status = 400;
    struct wp_ex *x;
    long used;

    if (c->state == WP_CONN_IDLE && n >= 2 && p[0] == '\r' && p[1] == '\n')
        return 2; /* what some send behind a body begins no head, and no head's deadline */
    if (n > 0 && is_preface(c, p, n)) {
        if (n >= wp_h2_preface.n)
            wp_h2_begin(c);
        used = 0;
    } else {
        used = wp_http1_request(p, n, s->conf.head_bytes, &c->looked, &s->head, &status, &why);
    }
    if (used < 0) {
        wp_conn_refuse(c, status, why);
        return n;
    }
    if (used == 0) {
        if (c->state == WP_CONN_IDLE)
            wp_timer_in(s->loop, &c->deadline, s->conf.head_us);
        if (c->state == WP_CONN_IDLE || c->state == WP_CONN_HEAD)
            c->state = WP_CONN_HEAD;
        return 0;
    }
    c->looked = 0;
    x = ex_new(c, p, (size_t)used);
    if (x)
        ex_start(x);
    else
        wp_conn_close(c, true);
    return (size_t)used;
}

/* Takes from p[n] as much as the state allows; the bytes used. */
static size_t eat(struct wp_conn *c, const char *p, size_t n)
{
    size_t at = 0;

    while (at < n) {
        size_t used;

        switch (c->state) {
        case WP_CONN_IDLE:
        case WP_CONN_HEAD:
            used = eat_head(c, p + at, n - at);
            if (used == 0 && c->state != WP_CONN_H2)
                return c->state == WP_CONN_CLOSED ? n : at;
            at += used;
            break;
        case WP_CONN_H2:
            wp_h2_read(c->h2, p + at, n - at);
            return n;
        case WP_CONN_EXCHANGE:
            if (c->x->ended && !c->x->body_done)
                return n;
            if (c->x->over || c->x->body_done || c->x->paused)
                return at;
            at += wp_body_eat(c->x, p + at, n - at);
            break;
        case WP_CONN_LINGER:
        case WP_CONN_CLOSED:
            return n;
        }
    }
    return at;
}

static void eat_kept(struct wp_conn *c)
{
    wp_buf_consume(&c->in, eat(c, c->in.p, c->in.n));
    if (c->in.n == 0)
        wp_buf_fini(&c->in);
}

static void on_read(struct wp_stream *stream, const char *p, size_t n)
{
    struct wp_conn *c = conn_of(stream);
    bool behind = c->in.n > 0;
    size_t used;

    if (c->state == WP_CONN_EXCHANGE)
        c->last_us = wp_loop_now_us(stream->loop);
    used = behind ? 0 : eat(c, p, n);
    if (used < n && wp_buf_add(&c->in, p + used, n - used) < 0) {
        wp_conn_fail(c, WP_ENOMEM);
        return;
    }
    if (behind)
        eat_kept(c);
    wp_conn_flow(c);
}

static void on_eof(struct wp_stream *stream)
{
    struct wp_conn *c = conn_of(stream);

    switch (c->state) {
    case WP_CONN_IDLE:
    case WP_CONN_HEAD:
        wp_conn_close(c, false);
        break;
    case WP_CONN_EXCHANGE:
        if (c->x->over)
            break;
        if (!c->x->body_done && !c->x->ended)
            wp_body_bad(c->x, WP_EPROTO, 400, "the body ended early");
        else
            wp_peer_fin(c);
        break;
    case WP_CONN_H2:
        wp_conn_fail(c, WP_ECANCELED); /* no half-closed clients here: its streams have ends of their own */
        break;
    case WP_CONN_LINGER:
        if (stream->queued == 0)
            wp_conn_close(c, false);
        break;
    case WP_CONN_CLOSED:
        break;
    }
}

static void on_error(struct wp_stream *stream, int rc)
{
    (void)rc;
    wp_conn_fail(conn_of(stream), WP_ECANCELED);
}

static void on_drain(struct wp_stream *stream)
{
    struct wp_conn *c = conn_of(stream);

    wp_timer_stop(stream->loop, &c->send);
    if (c->state == WP_CONN_LINGER && stream->eof)
        wp_conn_close(c, false);
    if (c->state == WP_CONN_H2)
        wp_h2_room(c->h2);
    if (c->state != WP_CONN_EXCHANGE || c->x->over)
        return;
    if (c->x->ended)
        wp_ex_over(c->x, 0);
    else if (c->x->pub.ops->on_drain)
        c->x->pub.ops->on_drain(&c->x->pub);
}

static void on_closed(struct wp_stream *stream)
{
    struct wp_conn *c = conn_of(stream);

    c->closed = true;
    if (!c->x)
        wp_conn_free(c);
}

static void on_kick(struct wp_timer *t)
{
    struct wp_conn *c = t->arg;

    if (c->state == WP_CONN_H2) {
        wp_h2_room(c->h2);
        return;
    }
    if (c->state == WP_CONN_EXCHANGE && !c->x->over) {
        wp_ex_flush(c->x);
        if (!c->x->paused)
            wp_body_continue(c->x);
    }
    if (c->in.n && c->state != WP_CONN_CLOSED)
        eat_kept(c);
    wp_body_clock(c);
    wp_conn_flow(c);
}

static void next_request(struct wp_conn *c)
{
    struct wp_server *s = c->server;

    if (c->state == WP_CONN_LINGER || c->state == WP_CONN_CLOSED)
        return;
    if (!c->keep || (s->draining && !s->passing)) {
        wp_buf_fini(&c->in);
        wp_conn_linger(c);
        return;
    }
    c->state = WP_CONN_IDLE;
    c->known = true;
    wp_timer_stop(s->loop, &c->tick);
    wp_timer_in(s->loop, &c->deadline, s->conf.keepalive_us);
    if (c->in.n)
        eat_kept(c);
    if (c->stream.eof && (c->state == WP_CONN_IDLE || c->state == WP_CONN_HEAD))
        wp_conn_close(c, false);
    wp_conn_flow(c);
}

static void on_done(struct wp_timer *t)
{
    struct wp_ex *x = t->arg;
    struct wp_conn *c = x->c;

    c->x = NULL;
    c->server->n_exchanges--;
    if (c->state == WP_CONN_EXCHANGE)
        c->state = WP_CONN_IDLE; /* nobody asks c->x any more */
    x->pub.ops->on_over(&x->pub, x->rc);
    wp_buf_fini(&x->out);
    wp_free(x);
    if (c->closed)
        wp_conn_free(c);
    else
        next_request(c);
}

void wp_ex_over(struct wp_ex *x, int rc)
{
    if (x->over)
        return;
    x->over = true;
    x->rc = rc;
    if (x->c->state == WP_CONN_EXCHANGE)
        wp_timer_stop(x->pub.loop, &x->c->deadline);
    wp_timer_stop(x->pub.loop, &x->c->tick);
    wp_timer_in(x->pub.loop, &x->done, 0);
}

int wp_conn_accept(struct wp_server *s, int fd, const struct sockaddr *peer, socklen_t n)
{
    static const struct wp_stream_ops ops = {.on_read = on_read,
                                             .on_eof = on_eof,
                                             .on_error = on_error,
                                             .on_drain = on_drain,
                                             .on_closed = on_closed};
    struct wp_conn *c = wp_calloc(1, sizeof *c);
    int rc = c ? wp_stream_init(&c->stream, s->loop, &ops) : WP_ENOMEM;

    if (rc < 0) {
        wp_free(c);
        close(fd);
        return rc;
    }
    memcpy(&c->peer, peer, n < sizeof c->peer ? n : sizeof c->peer);
    c->server = s;
    wp_list_push(&s->conns, &c->link);
    s->n_conns++;
    wp_timer_init(&c->deadline, on_deadline, c);
    wp_timer_init(&c->send, on_send_check, c);
    wp_timer_init(&c->kick, on_kick, c);
    wp_peer_init(c);
    rc = wp_stream_open(&c->stream, fd);
    if (rc == 0 && s->conf.tls)
        rc = wp_stream_tls(&c->stream, s->conf.tls, (struct wp_str){0});
    if (rc < 0) {
        wp_conn_close(c, false);
        return rc;
    }
    uv_tcp_keepalive(&c->stream.tcp, 1,
                     KEEPALIVE_S); /* a host that vanished sends nothing, not even a reset */
    c->known = !s->conf.tls;
    wp_timer_in(s->loop, &c->deadline, c->known ? s->conf.keepalive_us : s->conf.head_us);
    wp_conn_flow(c);
    return 0;
}
