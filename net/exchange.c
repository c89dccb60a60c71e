/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers by HTTP/1.  A head is kept until its first bytes of body come or the turn ends, so that both go out
 * in one writev; after that each call is one writev of chunk line, data and CRLF, and allocates
 * only what the kernel does not take. What breaks closes the connection at once and is told by
 * on_over later.
 */
#include "net/conn.h"

#include "base/clock.h"

#include <stdio.h>

/* The exchange, unless nothing more can be said in it. */
static struct wp_ex *live(struct wp_exchange *p)
{
    struct wp_ex *x = (struct wp_ex *)p;

    return x->over || x->ended || x->c->state != WP_CONN_EXCHANGE ? NULL : x;
}

void wp_ex_write(struct wp_ex *x, const struct wp_str piece[], size_t n, int held,
                 struct wp_blob *blob)
{
    struct wp_str all[6] = {wp_buf_str(&x->out)};
    struct wp_conn *c = x->c;
    int rc;

    for (size_t i = 0; i < n; i++)
        all[i + 1] = piece[i];
    rc = wp_stream_write(&c->stream, all, n + 1, held < 0 ? -1 : held + 1, blob);
    wp_buf_fini(&x->out);
    if (rc < 0)
        wp_conn_fail(c, rc == WP_ENOMEM ? rc : WP_ECANCELED);
    else
        wp_conn_wrote(c);
}

void wp_ex_flush(struct wp_ex *x)
{
    if (x->out.n)
        wp_ex_write(x, NULL, 0, -1, NULL);
}

static void pause_body(struct wp_exchange *p)
{
    struct wp_ex *x = live(p);

    if (!x || x->paused || x->body_done)
        return;
    x->paused = true;
    x->paused_us = wp_loop_now_us(x->pub.loop);
    wp_body_clock(x->c);
    wp_conn_flow(x->c);
}

static void resume_body(struct wp_exchange *p)
{
    struct wp_ex *x = live(p);
    uint64_t now;

    if (!x || !x->paused)
        return;
    x->paused = false;
    now = wp_loop_now_us(x->pub.loop);
    x->body_began_us += now - x->paused_us;
    x->c->last_us = now;
    wp_conn_kick(x->c);
}

static void interim(struct wp_exchange *p, int status, const struct wp_field *field, size_t n)
{
    struct wp_ex *x = live(p);
    struct wp_buf b = {0};
    int rc;

    if (!x || x->begun || x->head.minor == 0 || status < 100 || status > 199 || status == 101)
        return;
    rc = wp_http1_put_status(&b, status, wp_str_of(wp_reason(status)));
    for (size_t i = 0; i < n && rc == 0; i++)
        if (!wp_str_iis(field[i].name, "connection") &&
            !wp_str_iis(field[i].name, "content-length") &&
            !wp_str_iis(field[i].name, "transfer-encoding"))
            rc = wp_http1_put_field(&b, field[i].name, field[i].value);
    if (rc == 0)
        rc = wp_http1_put_end(&b);
    if (rc == 0) {
        const struct wp_str piece = wp_buf_str(&b);

        x->continued = x->continued || status == 100;
        wp_ex_write(x, &piece, 1, -1, NULL);
    }
    wp_buf_fini(&b);
    if (rc == WP_ENOMEM)
        wp_conn_fail(x->c, rc);
}

/* Fields that the server writes itself, and what they tell it. */
static bool ours(struct wp_str name)
{
    return wp_str_iis(name, "content-length") || wp_str_iis(name, "transfer-encoding") ||
           wp_str_iis(name, "connection");
}

static bool media_is_sse(struct wp_str type)
{
    static const char sse[] = "text/event-stream";

    return type.n >= sizeof sse - 1 && wp_str_iis((struct wp_str){type.p, sizeof sse - 1}, sse);
}

/* The fields as given, less ours; notes a Date, an event stream, and a wish to close. */
static int put_fields(struct wp_ex *x, const struct wp_field *field, size_t n, bool *dated,
                      bool *close)
{
    bool sse = false, coded = false;
    int rc = 0;

    for (size_t i = 0; i < n && rc != WP_ENOMEM; i++) {
        struct wp_str name = field[i].name;

        if (wp_str_iis(name, "connection"))
            *close = *close || wp_str_iis(field[i].value, "close");
        if (ours(name))
            continue;
        *dated = *dated || wp_str_iis(name, "date");
        coded = coded || wp_str_iis(name, "content-encoding");
        sse = sse || (wp_str_iis(name, "content-type") && media_is_sse(field[i].value));
        rc = wp_http1_put_field(&x->out, name,
                                field[i].value); /* one that is not clean is left out */
    }
    x->sse = sse && !coded;
    return rc == WP_ENOMEM ? rc : 0;
}

static int put_framing(struct wp_ex *x, int status, int64_t length)
{
    x->bodiless = status == 204 || status == 304 || wp_str_is(x->head.method, "HEAD");
    x->reply_left = length;
    if (status == 204 || status == 304)
        return 0;
    if (length >= 0)
        return wp_buf_printf(&x->out, "Content-Length: %lld\r\n", (long long)length);
    if (x->head.minor == 0) {
        x->c->keep = x->c->keep && x->bodiless;
        return 0;
    }
    if (x->bodiless)
        return 0;
    x->reply_chunked = true;
    return wp_buf_adds(&x->out, "Transfer-Encoding: chunked\r\n");
}

static int put_connection(struct wp_ex *x)
{
    if (!x->c->keep)
        return wp_buf_adds(&x->out, "Connection: close\r\n");
    return x->head.minor == 0 ? wp_buf_adds(&x->out, "Connection: keep-alive\r\n") : 0;
}

void wp_ex_head(struct wp_ex *x, int status, struct wp_str reason, const char *type,
                const struct wp_field *field, size_t n, int64_t length)
{
    struct wp_server *s = x->c->server;
    bool dated = false, close = false;
    int rc;

    x->begun = true;
    rc = wp_http1_put_status(&x->out, status, reason);
    if (rc == WP_EINVAL)
        rc = wp_http1_put_status(&x->out, status, WP_STR(""));
    if (rc == 0 && type)
        rc = wp_http1_put_field(&x->out, WP_STR("Content-Type"), wp_str_of(type));
    if (rc == 0)
        rc = put_fields(x, field, n, &dated, &close);
    if (rc == 0 && !dated)
        rc = wp_http1_put_field(&x->out, WP_STR("Date"), wp_server_date(s));
    x->c->keep = x->head.keep_alive && x->body_done && !s->draining && !close;
    if (rc == 0)
        rc = put_framing(x, status, length);
    if (rc == 0)
        rc = put_connection(x);
    if (rc == 0)
        rc = wp_http1_put_end(&x->out);
    if (rc < 0)
        wp_conn_fail(x->c, rc);
    else
        wp_conn_kick(x->c); /* flushes it when no body comes in this turn */
}

static void head(struct wp_exchange *p, int status, struct wp_str reason, const char *type,
                 const struct wp_field *field, size_t n, int64_t length)
{
    struct wp_ex *x = live(p);

    if (x && !x->begun)
        wp_ex_head(x, status, reason, type, field, n, length);
}

static void note_tail(struct wp_ex *x, const char *p, size_t n)
{
    size_t take = n < sizeof x->tail ? n : sizeof x->tail;

    memmove(x->tail, x->tail + take, sizeof x->tail - take);
    memcpy(x->tail + sizeof x->tail - take, p + n - take, take);
    x->tail_n = (uint8_t)(x->tail_n + take < sizeof x->tail ? x->tail_n + take : sizeof x->tail);
}

static void cut(struct wp_exchange *p)
{
    struct wp_ex *x = (struct wp_ex *)p;
    struct wp_conn *c = x->c;

    if (x->over || c->state != WP_CONN_EXCHANGE)
        return;
    wp_ex_flush(x);
    wp_ex_over(x, WP_ECANCELED);
    /* Where a FIN alone shows that the answer is cut, all that was said still arrives. */
    if (x->begun && (x->reply_chunked || x->reply_left > 0))
        wp_conn_linger(c);
    else
        wp_conn_close(c, true);
}

static void body(struct wp_exchange *p, const char *data, size_t n, struct wp_blob *blob)
{
    struct wp_ex *x = live(p);
    char line[20];
    struct wp_str piece[3] = {{line, 0}, {data, n}, WP_STR("\r\n")};

    if (!x || !x->begun || x->bodiless || n == 0)
        return;
    if (x->reply_left >= 0) {
        if (n >
            (uint64_t)x
                ->reply_left) { /* more than was said: what follows would read as the next answer */
            cut(p);
            return;
        }
        x->reply_left -= (int64_t)n;
    }
    if (x->sse)
        note_tail(x, data, n);
    if (x->reply_chunked)
        piece[0].n = (size_t)snprintf(line, sizeof line, "%zx\r\n", n);
    wp_ex_write(x, piece, x->reply_chunked ? 3 : 2, blob ? 1 : -1, blob);
}

static void end(struct wp_exchange *p)
{
    struct wp_ex *x = live(p);
    const struct wp_str last = WP_STR("0\r\n\r\n");

    if (!x)
        return;
    if (!x->begun || (x->reply_left > 0 && !x->bodiless)) {
        cut(p);
        return;
    }
    x->ended = true;
    if (x->reply_chunked)
        wp_ex_write(x, &last, 1, -1, NULL);
    else
        wp_ex_flush(x);
    if (!x->over && x->c->stream.queued == 0)
        wp_ex_over(x, 0);
    else
        wp_conn_kick(x->c); /* what is left of the request's body is read and dropped meanwhile */
}

static bool begun(const struct wp_exchange *x)
{
    return ((const struct wp_ex *)x)->begun;
}

static size_t queued(const struct wp_exchange *x)
{
    return ((const struct wp_ex *)x)->c->stream.queued;
}

const struct wp_carrier wp_carrier_http1 = {
    .pause = pause_body,
    .resume = resume_body,
    .interim = interim,
    .head = head,
    .body = body,
    .end = end,
    .cut = cut,
    .begun = begun,
    .queued = queued,
};
