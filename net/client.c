/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client is its pool and the calls under way; the life of a call is in net/call.c.
 * Ending: calls are cancelled at once, told when `end` is closed (which is later, and keeps the
 * loop), and the client goes with the last of its connections.
 */
#include "net/client.h"

#include "net/call.h"

enum { IDLE_MAX = 64, HEAD_BYTES = 65536, SPARE_BYTES = 16384 };
#define CONNECT_US UINT64_C(2000000)

static void free_when_done(struct wp_client *c)
{
    void (*closed)(void *arg) = c->closed;
    void *arg = c->closed_arg;

    if (!c->end_closed || !wp_list_empty(&c->pool.all) || !wp_list_empty(&c->calls))
        return;
    while (c->n_spare)
        wp_buf_fini(&c->spare[--c->n_spare]);
    wp_free(c);
    if (closed)
        closed(arg);
}

static void on_pool_empty(struct wp_pool *p)
{
    free_when_done(WP_CONTAINER(p, struct wp_client, pool));
}

static void on_end_closed(uv_handle_t *h)
{
    struct wp_client *c = h->data;

    while (!wp_list_empty(&c->calls))
        wp_call_conclude(WP_CONTAINER(c->calls.next, struct call, link));
    c->end_closed = true;
    free_when_done(c);
}

int wp_client_create(struct wp_client **out, struct wp_loop *l, const struct wp_client_conf *conf,
                     struct wp_err *err)
{
    struct wp_client *c = wp_calloc(1, sizeof *c);

    if (!c)
        return wp_fail(err, WP_ENOMEM, "http client: %s", wp_strerror(WP_ENOMEM));
    c->loop = l;
    c->head_bytes = conf && conf->head_bytes ? conf->head_bytes : HEAD_BYTES;
    wp_pool_init(&c->pool, l, &wp_call_uplink_ops);
    c->pool.idle_max = conf && conf->idle_per_origin ? conf->idle_per_origin : IDLE_MAX;
    c->pool.idle_us = conf ? conf->idle_us : 0;
    c->pool.on_empty = on_pool_empty;
    wp_list_init(&c->calls);
    uv_idle_init(&l->uv, &c->end); /* cannot fail */
    c->end.data = c;
    *out = c;
    return 0;
}

void wp_client_destroy(struct wp_client *c, void (*closed)(void *arg), void *arg)
{
    if (!c || c->closing)
        return;
    c->closing = true;
    c->closed = closed;
    c->closed_arg = arg;
    WP_LIST_EACH(&c->calls, it)
    {
        wp_call_cancel(&WP_CONTAINER(it, struct call, link)->pub);
    }
    wp_pool_close(&c->pool);
    uv_close((uv_handle_t *)&c->end, on_end_closed);
}

void wp_client_forget(struct wp_client *c, struct wp_str host, uint16_t port)
{
    wp_pool_forget(&c->pool, host, port);
}

struct wp_loop *wp_client_loop(const struct wp_client *c)
{
    return c->loop;
}

size_t wp_client_idle(const struct wp_client *c)
{
    return c->pool.n_idle;
}

/* --- the request's head --- */

static bool ours(struct wp_str name)
{
    return wp_str_iis(name, "Host") || wp_str_iis(name, "Content-Length") ||
           wp_str_iis(name, "Connection") || wp_str_iis(name, "Transfer-Encoding");
}

static int put_host(struct wp_buf *b, const struct wp_call_spec *s)
{
    bool v6 = s->host.n && memchr(s->host.p, ':', s->host.n);
    char text[300];
    int n;

    if (s->host_field.p)
        return wp_http1_put_field(b, WP_STR("Host"), s->host_field);
    if (s->host.n > 256)
        return WP_EINVAL;
    n = snprintf(text, sizeof text, v6 ? "[%.*s]:%u" : "%.*s:%u", WP_STR_ARG(s->host),
                 (unsigned)s->port);
    return wp_http1_put_field(b, WP_STR("Host"), (struct wp_str){text, (size_t)n});
}

static bool wants_length(const struct wp_call_spec *s)
{
    return s->body || wp_str_is(s->method, "POST") || wp_str_is(s->method, "PUT") ||
           wp_str_is(s->method, "PATCH");
}

static int put_head(struct wp_buf *b, const struct wp_call_spec *s)
{
    char text[24];
    int rc = wp_http1_put_request(b, s->method, s->target), n;

    if (rc == 0)
        rc = put_host(b, s);
    for (size_t i = 0; rc == 0 && i < s->n_fields; i++)
        if (!ours(s->field[i].name))
            rc = wp_http1_put_field(b, s->field[i].name, s->field[i].value);
    if (rc == 0 && wants_length(s)) {
        n = snprintf(text, sizeof text, "%zu", s->body ? s->body->n : 0);
        rc = wp_http1_put_field(b, WP_STR("Content-Length"), (struct wp_str){text, (size_t)n});
    }
    return rc < 0 ? rc : wp_http1_put_end(b);
}

/* --- calls --- */

static void give_spare(struct wp_client *c, struct wp_buf *b)
{
    if (b->cap == 0 || b->cap > SPARE_BYTES || c->n_spare == CALL_SPARES) {
        wp_buf_fini(b);
        return;
    }
    b->n = 0;
    c->spare[c->n_spare++] = *b;
    *b = (struct wp_buf){0};
}

void wp_client_call_gone(struct wp_client *c, struct call *gone)
{
    give_spare(c, &gone->out);
    wp_origin_drop(gone->origin);
    wp_free(gone);
    free_when_done(c);
}

static uint64_t end_of(uint64_t now, uint64_t us)
{
    return us == 0 || us > UINT64_MAX - now ? UINT64_MAX : now + us;
}

static void fill(struct call *c, const struct wp_call_spec *s)
{
    uint64_t now = wp_loop_now_us(c->pub.client->loop);

    c->pub.user = s->user;
    c->pub.began_us = now;
    c->ops = s->ops;
    c->fresh = s->fresh;
    c->is_head = wp_str_is(s->method, "HEAD");
    c->body = s->body ? wp_blob_ref(s->body) : NULL;
    c->connect_end_us = end_of(now, s->connect_us ? s->connect_us : CONNECT_US);
    c->total_end_us = end_of(now, s->total_us);
    c->first_byte_us = s->first_byte_us;
    c->idle_us = s->idle_us;
}

struct wp_call *wp_call(struct wp_client *client, const struct wp_call_spec *s)
{
    struct call *c = client->closing ? NULL : wp_calloc(1, sizeof *c);
    int rc;

    if (!c)
        return NULL;
    c->pub.client = client;
    if (client->n_spare)
        c->out = client->spare[--client->n_spare];
    rc = put_head(&c->out, s);
    c->origin = rc == WP_ENOMEM ? NULL : wp_origin_take(&client->pool, s->host, s->port, s->tls);
    if (!c->origin) {
        give_spare(client, &c->out);
        wp_free(c);
        return NULL;
    }
    fill(c, s);
    wp_list_push(&client->calls, &c->link);
    if (rc < 0) {
        c->over = true;
        c->rc = rc;
        c->pub.why = "request";
    }
    wp_call_begin(c);
    return &c->pub;
}
