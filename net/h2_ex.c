/* SPDX-License-Identifier: Apache-2.0 */
/* One exchange of HTTP/2: its life, its deadlines, its request's body. */
#include "net/h2.h"

#include "base/clock.h"

enum { BYTES_PER_S = 1024 }; /* on average, of a body and of an answer */

static void ex_free(struct wp_h2_ex *x)
{
    struct wp_loop *l = x->h->c->stream.loop;

    wp_timer_stop(l, &x->done);
    wp_timer_stop(l, &x->ready);
    wp_timer_stop(l, &x->late);
    wp_buf_fini(&x->in);
    wp_buf_fini(&x->out);
    wp_arena_fini(&x->bytes);
    wp_free(x);
}

static void free_if_done(struct wp_h2_ex *x)
{
    if (x->closed && (x->told || !x->started))
        ex_free(x);
}

static void on_done(struct wp_timer *t)
{
    struct wp_h2_ex *x = t->arg;
    struct wp_h2 *h = x->h;
    struct wp_conn *c = h->c;

    x->told = true;
    c->server->n_exchanges--;
    h->n_untold--;
    x->pub.ops->on_over(&x->pub, x->rc);
    free_if_done(x);
    if (c->closed && h->n_untold == 0)
        wp_conn_free(c);
}

void wp_h2_over(struct wp_h2_ex *x, int rc)
{
    if (x->over)
        return;
    x->over = true;
    x->rc = rc;
    wp_buf_fini(&x->in);
    if (x->started)
        wp_timer_in(x->h->c->stream.loop, &x->done, 0);
}

void wp_h2_reset(struct wp_h2_ex *x, uint32_t code)
{
    if (!x->closed && nghttp2_submit_rst_stream(x->h->session, NGHTTP2_FLAG_NONE, x->id, code) < 0)
        wp_conn_fail(x->h->c, WP_ENOMEM);
    else
        wp_conn_kick(x->h->c);
}

void wp_h2_refuse(struct wp_h2_ex *x, int rc, int status, const char *why)
{
    struct wp_server *s = x->h->c->server;
    struct wp_buf body = {0};
    const char *type = NULL;

    if (x->begun || x->closed || wp_refusal(s, status, why, &body, &type) < 0) {
        wp_h2_reset(x, NGHTTP2_CANCEL);
    } else {
        if (s->conf.on_refused)
            s->conf.on_refused(status, s->conf.arg);
        wp_h2_head(x, status, type, NULL, 0, (int64_t)body.n);
        wp_h2_data(x, body.p, body.n);
        wp_h2_end(x);
    }
    wp_buf_fini(&body);
    wp_h2_over(x, rc);
}

/* --- deadlines of a stream --- */

void wp_h2_clock(struct wp_h2_ex *x)
{
    const struct wp_server_conf *conf = &x->h->c->server->conf;
    struct wp_loop *l = x->h->c->stream.loop;

    if (x->closed)
        wp_timer_stop(l, &x->late);
    else if (x->out.n > 0)
        wp_timer_at(l, &x->late, x->taken_us + conf->send_us);
    else if (!x->body_done && !x->paused && !x->ended && !x->over)
        wp_timer_at(l, &x->late, x->last_us + (x->started ? conf->body_us : conf->head_us));
    else
        wp_timer_stop(l, &x->late);
}

/* It takes nothing, or dribbles: a window that opens byte by byte would hold its answer, and a worker's place, for ever. */
static bool takes_too_little(const struct wp_h2_ex *x, uint64_t now, uint64_t limit)
{
    uint64_t waits = now - x->waits_us;

    return now - x->taken_us >= limit || (waits >= limit && x->waits_taken < waits / 1000000 * BYTES_PER_S);
}

static void on_late(struct wp_timer *t)
{
    struct wp_h2_ex *x = t->arg;
    const struct wp_server_conf *conf = &x->h->c->server->conf;
    uint64_t now = wp_loop_now_us(x->h->c->stream.loop), took = now - x->body_began_us;

    if (!x->started) {
        wp_conn_fail(x->h->c, WP_ETIMEDOUT); /* a head that does not end holds up the whole connection */
    } else if (x->out.n > 0) {
        if (takes_too_little(x, now, conf->send_us)) {
            wp_h2_over(x, WP_ETIMEDOUT);
            wp_h2_reset(x, NGHTTP2_CANCEL);
        } else {
            wp_h2_clock(x);
        }
    } else if (now - x->last_us >= conf->body_us ||
               (took >= conf->body_us && x->pub.body_seen < took / 1000000 * BYTES_PER_S)) {
        wp_h2_refuse(x, WP_ETIMEDOUT, 408, "the body came too slowly");
    } else {
        wp_h2_clock(x);
    }
}

/* --- the request's body --- */

void wp_h2_deliver(struct wp_h2_ex *x, const char *p, size_t n)
{
    if (n > x->pub.body_max || x->pub.body_seen > x->pub.body_max - n) {
        wp_h2_refuse(x, WP_ETOOBIG, 413, "the body is too long");
        return;
    }
    x->pub.body_seen += n;
    if (x->pub.ops->on_body)
        x->pub.ops->on_body(&x->pub, p, n);
}

void wp_h2_give_back(struct wp_h2_ex *x, size_t n)
{
    if (!x->closed && nghttp2_session_consume_stream(x->h->session, x->id, n) < 0)
        wp_conn_fail(x->h->c, WP_ENOMEM);
    else
        wp_conn_kick(x->h->c);
}

void wp_h2_hand_out(struct wp_h2_ex *x)
{
    while (x->in.n > 0 && !x->paused && !x->over) {
        struct wp_buf in = x->in;

        x->in = (struct wp_buf){0};
        wp_h2_deliver(x, in.p, in.n);
        wp_h2_give_back(x, in.n);
        wp_buf_fini(&in);
    }
    if (!x->body_done || x->told_end || x->paused || x->over || x->in.n > 0)
        return;
    x->told_end = true;
    wp_h2_clock(x);
    if (x->pub.ops->on_body_end && !x->ended)
        x->pub.ops->on_body_end(&x->pub);
}

static void on_ready(struct wp_timer *t)
{
    struct wp_h2_ex *x = t->arg;

    if (x->closed || x->over)
        return;
    wp_h2_hand_out(x);
    wp_h2_clock(x);
    if (x->drain_due && x->out.n == 0 && !x->over && !x->ended) {
        x->drain_due = false;
        if (x->pub.ops->on_drain)
            x->pub.ops->on_drain(&x->pub);
    }
}

struct wp_h2_ex *wp_h2_ex_new(struct wp_h2 *h, int32_t id)
{
    struct wp_h2_ex *x = wp_malloc(sizeof *x);
    struct wp_loop *l = h->c->stream.loop;

    if (!x)
        return NULL;
    memset(x, 0, offsetof(struct wp_h2_ex, head));
    x->head.n_fields = 0; /* its fields are many, and stay as they are */
    x->head.status = 0;
    x->head.chunked = false;
    x->head.reason = x->head.method = x->head.target = x->authority = (struct wp_str){0};
    x->bytes = (struct wp_arena){0};
    x->n_head = 0;
    x->h = h;
    x->id = id;
    x->reply_left = -1;
    x->pub.loop = l;
    wp_timer_init(&x->done, on_done, x);
    wp_timer_init(&x->ready, on_ready, x);
    wp_timer_init(&x->late, on_late, x);
    x->last_us = wp_loop_now_us(l);
    wp_list_push(&h->streams, &x->link);
    if (h->n_streams++ == 0)
        wp_timer_stop(l, &h->c->deadline);
    wp_h2_clock(x);
    return x;
}

void wp_h2_ex_gone(struct wp_h2_ex *x, int rc)
{
    struct wp_h2 *h = x->h;

    x->closed = true;
    wp_list_del(&x->link);
    h->n_streams--;
    wp_timer_stop(h->c->stream.loop, &x->late);
    wp_timer_stop(h->c->stream.loop, &x->ready);
    wp_h2_over(x, rc);
    free_if_done(x);
}
