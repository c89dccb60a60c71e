/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path of a write: uv_try_write() hands everything to the kernel and nothing is allocated.
 * What it does not take goes into one request that owns a copy of the rest, except the held piece,
 * which lies in a blob. Order is kept because nothing is tried while something waits (libuv refuses
 * then).
 */
#include "net/stream.h"

#include "net/tls_stream.h"

#include <assert.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECES_MAX = 8 };

struct pending {
    uv_write_t req;
    struct wp_stream *stream;
    struct wp_blob *blob;
    size_t n;
    char copy[];
};

static struct wp_stream *stream_of(void *handle)
{
    return WP_CONTAINER(handle, struct wp_stream, tcp);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    (void)hint;
    *buf = uv_buf_init(stream_of(h)->loop->read_bytes, WP_READ_BYTES);
}

/* libuv takes a hang-up behind some bytes for an end and never asks the socket: a reset is not an end. */
static int hidden_error(const struct wp_stream *s)
{
    int error = 0;
    socklen_t n = sizeof error;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&s->tcp, &fd) < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        return WP_ECONNRESET;
    return -error;
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct wp_stream *s = stream_of(h);

    if (n == 0 || s->closing)
        return;
    if (n > 0) {
        if (s->tls)
            wp_tls_bytes(s->tls, buf->base, (size_t)n);
        else
            s->ops->on_read(s, buf->base, (size_t)n);
        return;
    }
    wp_raw_read_stop(s);
    if (n == UV_EOF)
        n = hidden_error(s);
    if (n == 0 && s->tls) {
        wp_tls_fin(s->tls);
        return;
    }
    s->reading = false;
    if (n == 0) {
        s->eof = true;
        s->ops->on_eof(s);
    } else {
        s->ops->on_error(s, (int)n);
    }
}

static void on_connect(uv_connect_t *req, int rc)
{
    struct wp_stream *s = WP_CONTAINER(req, struct wp_stream, connect);

    if (s->closing)
        return;
    if (rc == 0) {
        s->connected = true;
        uv_tcp_nodelay(&s->tcp, 1);
    }
    if (rc == 0 && s->tls)
        wp_tls_began(s->tls);
    else if (s->ops->on_connect)
        s->ops->on_connect(s, rc);
}

static void on_written(uv_write_t *req, int rc)
{
    struct pending *w = WP_CONTAINER(req, struct pending, req);
    struct wp_stream *s = w->stream;

    s->queued -= w->n;
    s->writes--;
    wp_blob_unref(w->blob);
    wp_free(w);
    if (s->closing)
        return;
    if (rc < 0) {
        s->ops->on_error(s, rc);
        return;
    }
    if (s->tls && s->writes == 0)
        wp_tls_room(s->tls);
    if (!s->closing && s->queued == 0)
        s->ops->on_drain(s);
}

static void on_closed(uv_handle_t *h)
{
    struct wp_stream *s = stream_of(h);

    if (s->tls)
        wp_tls_free(s->tls);
    s->tls = NULL;
    s->ops->on_closed(s);
}

int wp_stream_init(struct wp_stream *s, struct wp_loop *l, const struct wp_stream_ops *ops)
{
    memset(s, 0, sizeof *s);
    s->loop = l;
    s->ops = ops;
    return uv_tcp_init(&l->uv, &s->tcp);
}

int wp_stream_connect(struct wp_stream *s, const struct sockaddr *addr)
{
    return uv_tcp_connect(&s->connect, &s->tcp, addr, on_connect);
}

int wp_stream_accept(struct wp_stream *s, uv_stream_t *listener)
{
    int rc = uv_accept(listener, (uv_stream_t *)&s->tcp);

    if (rc < 0)
        return rc;
    s->connected = true;
    uv_tcp_nodelay(&s->tcp,
                   1); /* fails only when the peer has gone already: the first read tells */
    return 0;
}

int wp_stream_open(struct wp_stream *s, int fd)
{
    int rc = uv_tcp_open(&s->tcp, fd);

    if (rc < 0) {
        close(fd);
        return rc;
    }
    s->connected = true;
    uv_tcp_nodelay(&s->tcp, 1);
    return 0;
}

int wp_raw_read_start(struct wp_stream *s)
{
    int rc;

    if (s->listening)
        return 0;
    rc = uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read);
    s->listening = rc == 0;
    return rc;
}

void wp_raw_read_stop(struct wp_stream *s)
{
    if (!s->listening)
        return;
    s->listening = false;
    uv_read_stop((uv_stream_t *)&s->tcp);
}

int wp_stream_read_start(struct wp_stream *s)
{
    int rc;

    if (s->reading || s->closing || s->eof)
        return 0;
    rc = wp_raw_read_start(s);
    s->reading = rc == 0;
    if (s->reading && s->tls)
        wp_tls_resume(s->tls);
    return rc;
}

void wp_stream_read_stop(struct wp_stream *s)
{
    s->reading = false;
    if (!s->tls || s->tls->state != WP_TLS_SHAKING)
        wp_raw_read_stop(s);
}

/* Queues what is left of the pieces after the first `skip` bytes. */
static int write_later(struct wp_stream *s, const struct wp_str piece[], size_t n, size_t skip,
                       int held, struct wp_blob *blob)
{
    uv_buf_t buf[3]; /* copied, held, copied */
    unsigned n_bufs = 0;
    size_t copied = 0, at = 0, left = skip;
    struct pending *w;
    int rc;

    for (size_t i = 0; i < n; i++)
        copied += (int)i == held ? 0 : piece[i].n;
    w = wp_malloc(sizeof *w + copied);
    if (!w)
        return WP_ENOMEM;
    *w = (struct pending){.stream = s};
    for (size_t i = 0; i < n; i++) {
        size_t gone = left < piece[i].n ? left : piece[i].n, more = piece[i].n - gone;

        left -= gone;
        if (more == 0)
            continue;
        w->n += more;
        if ((int)i == held) {
            w->blob = wp_blob_ref(blob);
            buf[n_bufs++] = (uv_buf_t){.base = (char *)piece[i].p + gone, .len = more};
            continue;
        }
        memcpy(w->copy + at, piece[i].p + gone, more);
        if (n_bufs > 0 && buf[n_bufs - 1].base + buf[n_bufs - 1].len == w->copy + at)
            buf[n_bufs - 1].len += more;
        else
            buf[n_bufs++] = (uv_buf_t){.base = w->copy + at, .len = more};
        at += more;
    }
    rc = uv_write(&w->req, (uv_stream_t *)&s->tcp, buf, n_bufs, on_written);
    if (rc < 0) {
        wp_blob_unref(w->blob);
        wp_free(w);
        return rc;
    }
    s->queued += w->n;
    s->writes++;
    return 0;
}

int wp_raw_write(struct wp_stream *s, const struct wp_str piece[], size_t n, int held,
                 struct wp_blob *blob)
{
    uv_buf_t buf[PIECES_MAX];
    unsigned n_bufs = 0;
    size_t all = 0;
    int rc = UV_EAGAIN;

    assert(n <= PIECES_MAX);
    for (size_t i = 0; i < n; i++) {
        if (piece[i].n == 0)
            continue;
        buf[n_bufs++] = (uv_buf_t){.base = (char *)piece[i].p, .len = piece[i].n};
        all += piece[i].n;
    }
    if (all == 0)
        return 0;
    if (s->writes == 0)
        rc = uv_try_write((uv_stream_t *)&s->tcp, buf, n_bufs);
    if (rc < 0 && rc != UV_EAGAIN)
        return rc;
    s->handed += all;
    if (rc > 0 && (size_t)rc == all)
        return 0;
    return write_later(s, piece, n, rc > 0 ? (size_t)rc : 0, held, blob);
}

int wp_stream_write(struct wp_stream *s, const struct wp_str piece[], size_t n, int held,
                    struct wp_blob *blob)
{
    if (s->closing)
        return WP_ECANCELED;
    return s->tls ? wp_tls_write(s->tls, piece, n, held, blob)
                  : wp_raw_write(s, piece, n, held, blob);
}

uint64_t wp_stream_taken(const struct wp_stream *s)
{
    return s->handed - uv_stream_get_write_queue_size((const uv_stream_t *)&s->tcp);
}

bool wp_stream_arrived(const struct wp_stream *s)
{
    uv_os_fd_t fd;
    int unsent = 0;

    if (s->queued)
        return false;
    return uv_fileno((const uv_handle_t *)&s->tcp, &fd) < 0 || ioctl(fd, SIOCOUTQ, &unsent) < 0 ||
           unsent == 0;
}

static void on_shutdown(uv_shutdown_t *req, int rc)
{
    (void)req;
    (void)rc; /* a peer that has gone is told by reading */
}

int wp_raw_shutdown(struct wp_stream *s)
{
    return uv_shutdown(&s->fin, (uv_stream_t *)&s->tcp, on_shutdown);
}

int wp_stream_shutdown(struct wp_stream *s)
{
    if (s->closing || s->fin_sent)
        return 0;
    s->fin_sent = true;
    return s->tls ? wp_tls_shutdown(s->tls) : wp_raw_shutdown(s);
}

static void close_by(struct wp_stream *s, bool reset)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    uv_os_fd_t fd;

    if (s->closing)
        return;
    if (s->tls) {
        reset = reset && s->tls->state != WP_TLS_FAILED; /* which would overtake TLS's last word */
        wp_tls_close(s->tls, reset);
    }
    /* By hand, because uv_tcp_close_reset() refuses after a shutdown. */
    if (reset && uv_fileno((const uv_handle_t *)&s->tcp, &fd) == 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    s->closing = true;
    s->reading = s->listening = false;
    uv_close((uv_handle_t *)&s->tcp, on_closed);
}

void wp_stream_close(struct wp_stream *s)
{
    close_by(s, false);
}

void wp_stream_reset(struct wp_stream *s)
{
    close_by(s, true);
}

enum wp_peer wp_stream_peer(const struct wp_stream *s)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    uv_os_fd_t fd;

    if (s->closing || uv_fileno((const uv_handle_t *)&s->tcp, &fd) < 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
        return WP_PEER_GONE;
    switch (info.tcpi_state) {
    case TCP_CLOSE_WAIT:
        return WP_PEER_HALF_CLOSED;
    case TCP_CLOSE:
    case TCP_CLOSING:
    case TCP_TIME_WAIT:
    case TCP_LAST_ACK:
        return WP_PEER_GONE;
    default:
        return WP_PEER_OPEN;
    }
}
