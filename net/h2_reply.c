/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h2.h"

#include <stdio.h>

enum { FIELDS_OUT_MAX = WP_FIELDS_MAX + 4 };

/* The exchange, unless nothing more can be said in it. */
static struct wp_h2_ex *live(struct wp_exchange *p)
{
    struct wp_h2_ex *x = wp_h2_ex_of(p);

    return x->over || x->ended || x->cut || x->closed ? NULL : x;
}

/* Sends now, or when nghttp2 has returned. */
static void go_on(struct wp_h2_ex *x)
{
    if (x->closed)
        return;
    if (x->deferred) {
        x->deferred = false;
        if (nghttp2_session_resume_data(x->h->session, x->id) == NGHTTP2_ERR_NOMEM) {
            wp_conn_fail(x->h->c, WP_ENOMEM);
            return;
        }
    }
    wp_conn_kick(x->h->c);
}

static void pause_body(struct wp_exchange *p)
{
    struct wp_h2_ex *x = live(p);

    if (!x || x->paused || x->told_end)
        return;
    x->paused = true;
    x->paused_us = wp_loop_now_us(x->pub.loop);
    wp_h2_clock(x);
}

static void resume_body(struct wp_exchange *p)
{
    struct wp_h2_ex *x = live(p);
    uint64_t now;

    if (!x || !x->paused)
        return;
    x->paused = false;
    now = wp_loop_now_us(x->pub.loop);
    x->body_began_us += now - x->paused_us;
    x->last_us = now;
    if (x->head.expect_continue && !x->continued && !x->begun && !x->body_done && x->in.n == 0 && x->pub.body_seen == 0)
        wp_reply_interim(p, 100, NULL, 0);
    wp_timer_in(x->pub.loop, &x->ready, 0);
}

/* --- fields --- */

struct fields {
    nghttp2_nv nv[FIELDS_OUT_MAX];
    size_t n;
    struct wp_buf names; /* in lower case */
};

static void put(struct fields *f, const char *name, size_t n_name, struct wp_str value)
{
    f->nv[f->n++] = (nghttp2_nv){(uint8_t *)name, (uint8_t *)(value.n ? value.p : ""), n_name, value.n, NGHTTP2_NV_FLAG_NONE};
}

/* Fields of one connection of HTTP/1, and those that the server makes itself (RFC 9113 8.2.2). */
static bool not_here(struct wp_str name)
{
    static const char *const never[] = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade",
                                        "content-length", NULL};

    for (size_t i = 0; never[i]; i++)
        if (wp_str_iis(name, never[i]))
            return true;
    return false;
}

static bool clean(struct wp_str name, struct wp_str value)
{
    return name.n && nghttp2_check_header_name((const uint8_t *)name.p, name.n) &&
           nghttp2_check_header_value_rfc9113((const uint8_t *)value.p, value.n);
}

/* The fields as given, less those that have no place here and those that are not clean. */
static int put_fields(struct fields *f, const struct wp_field *field, size_t n, bool *dated)
{
    size_t all = 0, at = 0;

    for (size_t i = 0; i < n; i++)
        all += field[i].name.n;
    if (wp_buf_reserve(&f->names, all + 1) < 0)
        return WP_ENOMEM;
    for (size_t i = 0; i < n && f->n < FIELDS_OUT_MAX - 3; i++) {
        struct wp_str name = {f->names.p + at, field[i].name.n};

        for (size_t k = 0; k < name.n; k++) {
            char ch = field[i].name.p[k];

            f->names.p[at + k] = (char)(ch >= 'A' && ch <= 'Z' ? ch + 32 : ch);
        }
        if (not_here(name) || !clean(name, field[i].value))
            continue;
        *dated = *dated || wp_str_is(name, "date");
        put(f, name.p, name.n, field[i].value);
        at += name.n;
    }
    return 0;
}

static void interim(struct wp_exchange *p, int status, const struct wp_field *field, size_t n)
{
    struct wp_h2_ex *x = live(p);
    struct fields f = {.n = 0};
    char code[12];
    bool dated = false;

    if (!x || x->begun || status < 100 || status > 199 || status == 101)
        return;
    snprintf(code, sizeof code, "%d", status);
    put(&f, ":status", 7, wp_str_of(code));
    x->continued = x->continued || status == 100;
    if (put_fields(&f, field, n, &dated) < 0 ||
        nghttp2_submit_headers(x->h->session, NGHTTP2_FLAG_NONE, x->id, NULL, f.nv, f.n, NULL) < 0)
        wp_conn_fail(x->h->c, WP_ENOMEM);
    else
        go_on(x);
    wp_buf_fini(&f.names);
}

void wp_h2_head(struct wp_h2_ex *x, int status, const char *type, const struct wp_field *field, size_t n, int64_t length)
{
    const nghttp2_data_provider body = {.read_callback = wp_h2_read_out};
    struct fields f = {.n = 0};
    char code[12], text[24];
    bool dated = false;

    x->begun = true;
    x->bodiless = status == 204 || status == 304 || wp_str_is(x->head.method, "HEAD");
    x->reply_left = length;
    snprintf(code, sizeof code, "%d", status >= 200 && status <= 999 ? status : 502);
    put(&f, ":status", 7, wp_str_of(code));
    if (type)
        put(&f, "content-type", 12, wp_str_of(type));
    if (put_fields(&f, field, n, &dated) < 0)
        goto failed;
    if (length >= 0 && status != 204 && status != 304) {
        snprintf(text, sizeof text, "%lld", (long long)length);
        put(&f, "content-length", 14, wp_str_of(text));
    }
    if (!dated)
        put(&f, "date", 4, wp_server_date(x->h->c->server));
    if (nghttp2_submit_response(x->h->session, x->id, f.nv, f.n, x->bodiless ? NULL : &body) < 0)
        goto failed;
    wp_buf_fini(&f.names);
    x->taken_us = wp_loop_now_us(x->pub.loop);
    go_on(x);
    return;

failed:
    wp_buf_fini(&f.names);
    wp_conn_fail(x->h->c, WP_ENOMEM);
}

static void head(struct wp_exchange *p, int status, struct wp_str reason, const char *type, const struct wp_field *field, size_t n,
                 int64_t length)
{
    struct wp_h2_ex *x = live(p);

    (void)reason; /* HTTP/2 has none */
    if (x && !x->begun)
        wp_h2_head(x, status, type, field, n, length);
}

/* --- the body --- */

/* nghttp2 wants bytes of the answer. */
ssize_t wp_h2_read_out(nghttp2_session *s, int32_t id, uint8_t *to, size_t n, uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct wp_h2_ex *x = nghttp2_session_get_stream_user_data(s, id);
    size_t take;

    (void)source;
    (void)arg;
    if (!x)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    take = x->out.n < n ? x->out.n : n;
    if (take == 0 && x->cut)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream is reset: the answer is cut */
    if (take == 0 && !x->ended) {
        x->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (take) {
        memcpy(to, x->out.p, take);
        wp_buf_consume(&x->out, take);
        x->waits_taken += take;
        x->taken_us = wp_loop_now_us(x->pub.loop);
        if (x->out.n == 0) {
            wp_buf_fini(&x->out);
            x->drain_due = true;
        }
    }
    if (x->ended && x->out.n == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (x->drain_due)
        wp_timer_in(x->pub.loop, &x->ready, 0);
    return (ssize_t)take;
}

void wp_h2_data(struct wp_h2_ex *x, const char *p, size_t n)
{
    if (x->bodiless || n == 0)
        return;
    if (x->out.n == 0) {
        x->taken_us = x->waits_us = wp_loop_now_us(x->pub.loop);
        x->waits_taken = 0;
    }
    if (wp_buf_add(&x->out, p, n) < 0) {
        wp_conn_fail(x->h->c, WP_ENOMEM);
        return;
    }
    wp_h2_clock(x);
    go_on(x);
}

static void cut(struct wp_exchange *p)
{
    struct wp_h2_ex *x = live(p);

    if (!x)
        return;
    x->cut = true;
    if (x->begun && !x->bodiless)
        go_on(x); /* what was said goes out first */
    else
        wp_h2_reset(x, NGHTTP2_INTERNAL_ERROR);
    wp_h2_over(x, WP_ECANCELED);
}

static void body(struct wp_exchange *p, const char *data, size_t n, struct wp_blob *blob)
{
    struct wp_h2_ex *x = live(p);

    (void)blob; /* frames are copies anyway */
    if (!x || !x->begun)
        return;
    if (x->reply_left >= 0 && !x->bodiless) {
        if (n > (uint64_t)x->reply_left) {
            cut(p);
            return;
        }
        x->reply_left -= (int64_t)n;
    }
    wp_h2_data(x, data, n);
}

void wp_h2_end(struct wp_h2_ex *x)
{
    x->ended = true;
    wp_h2_clock(x);
    go_on(x);
}

static void end(struct wp_exchange *p)
{
    struct wp_h2_ex *x = live(p);

    if (!x)
        return;
    if (!x->begun || (x->reply_left > 0 && !x->bodiless))
        cut(p);
    else
        wp_h2_end(x);
}

static bool begun(const struct wp_exchange *x)
{
    return ((const struct wp_h2_ex *)x)->begun;
}

static size_t queued(const struct wp_exchange *x)
{
    return ((const struct wp_h2_ex *)x)->out.n;
}

const struct wp_carrier wp_carrier_http2 = {
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
