/* SPDX-License-Identifier: Apache-2.0 */
/* A request's body on its way to the handler: framing, limits, deadlines, and the 100 that some
 * clients wait for. */
#include "net/conn.h"

#include "base/clock.h"

#include <sys/ioctl.h>

enum { BODY_BYTES_PER_S = 1024 };

void wp_body_clock(struct wp_conn *c)
{
    struct wp_ex *x = c->x;

    if (c->state != WP_CONN_EXCHANGE)
        return;
    if (x->over || x->body_done || x->paused || x->ended)
        wp_timer_stop(c->stream.loop, &c->deadline);
    else if (!c->deadline.armed)
        wp_timer_at(c->stream.loop, &c->deadline, c->last_us + c->server->conf.body_us);
}

/* The exchange cannot go on because of the client's body: an answer if none has begun. */
void wp_body_bad(struct wp_ex *x, int rc, int status, const char *why)
{
    struct wp_conn *c = x->c;

    wp_ex_over(x, rc);
    if (x->begun)
        wp_conn_close(c, true);
    else
        wp_conn_refuse(c, status, why);
}

void wp_body_late(struct wp_conn *c)
{
    uint64_t now = wp_loop_now_us(c->stream.loop), limit = c->server->conf.body_us;
    uint64_t took = now - c->x->body_began_us;

    if (now - c->last_us >= limit ||
        (took >= limit && c->x->pub.body_seen < took / 1000000 * BODY_BYTES_PER_S))
        wp_body_bad(c->x, WP_ETIMEDOUT, 408, "the body came too slowly");
    else
        wp_body_clock(c);
}

void wp_body_end(struct wp_ex *x)
{
    x->body_done = true;
    wp_body_clock(x->c);
    if (x->pub.ops->on_body_end && !x->ended)
        x->pub.ops->on_body_end(&x->pub);
}

static void body_data(struct wp_ex *x, const char *p, size_t n)
{
    if (n == 0)
        return;
    if (n > x->pub.body_max || x->pub.body_seen > x->pub.body_max - n) {
        wp_body_bad(x, WP_ETOOBIG, 413, "the body is too long");
        return;
    }
    x->pub.body_seen += n;
    if (x->pub.ops->on_body)
        x->pub.ops->on_body(&x->pub, p, n);
}

/* Takes one step of the body from p[n]; the bytes used. */
size_t wp_body_eat(struct wp_ex *x, const char *p, size_t n)
{
    const char *data, *why = NULL;
    size_t data_n;
    long used;

    if (x->framing == WP_BODY_LENGTH) {
        data_n = x->left < n ? (size_t)x->left : n;
        x->left -= data_n;
        body_data(x, p, data_n);
        if (x->left == 0 && !x->over)
            wp_body_end(x);
        return data_n;
    }
    used = wp_chunked_read(&x->chunked, p, n, &data, &data_n, &why);
    if (used < 0) {
        wp_body_bad(x, WP_EPROTO, 400, why);
        return n;
    }
    body_data(x, data, data_n);
    if (x->chunked.done && !x->over)
        wp_body_end(x);
    return (size_t)used;
}

/* The 100 that a client waits for, unless its body is on the way already. */
void wp_body_continue(struct wp_ex *x)
{
    const struct wp_str line = WP_STR("HTTP/1.1 100 Continue\r\n\r\n");
    uv_os_fd_t fd;
    int unread = 0;

    if (!x->head.expect_continue || x->continued || x->begun || x->body_done)
        return;
    x->continued = true;
    if (x->pub.body_seen || x->chunked.line || x->c->in.n)
        return;
    if (uv_fileno((uv_handle_t *)&x->c->stream.tcp, &fd) == 0 &&
        ioctl(fd, FIONREAD, &unread) == 0 && unread)
        return;
    wp_ex_write(x, &line, 1, -1, NULL);
}
