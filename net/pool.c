/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   dial: NAMES --> CONNECT --> held <--> idle
 *                   ^     |       any may fall to closing; the memory goes when the stream is
 * closed.
 *                   +-----+ the next address, when the stream of the last one is closed
 */
#include "net/pool.h"

#include "base/mem.h"
#include "net/names.h"
#include "net/tls.h"

#include <xxhash.h>

#define IDLE_US      UINT64_C(4000000) /* engines close at 5 s */
#define PROMISED_MAX UINT64_C(300000000)
#define LESSON_US \
    UINT64_C(60000000) /* a lesson is forgotten then: the peer may have been restarted */
#define LEARNT_MIN \
    UINT64_C(20000) /* a restart closes connections of any age: do not learn to keep none */

enum { IN_KEEP_BYTES = 16384 }; /* larger buffers do not stay with an idle connection */

struct dial {
    struct wp_lookup *lookup;
    uint64_t until_us;
    size_t n, at;
    struct sockaddr_storage addr[WP_NAMES_ADDRS];
};

static void connect_next(struct wp_uplink *u);

/* --- origins --- */

static struct wp_list *bucket_of(struct wp_pool *p, struct wp_str host, uint16_t port)
{
    return &p->origin[XXH3_64bits_withSeed(host.p, host.n, port) % WP_ORIGIN_BUCKETS];
}

static bool is_at(const struct wp_origin *o, struct wp_str host, uint16_t port)
{
    return o->port == port && wp_str_eq(host, (struct wp_str){o->host, o->host_n});
}

static struct wp_origin *find(struct wp_pool *p, struct wp_str host, uint16_t port,
                              const struct wp_tls *tls)
{
    struct wp_list *b = bucket_of(p, host, port);

    WP_LIST_EACH(b, it)
    {
        struct wp_origin *o = WP_CONTAINER(it, struct wp_origin, bucket);

        if (o->tls == tls && is_at(o, host, port))
            return o;
    }
    return NULL;
}

static void origin_free(struct wp_origin *o)
{
    wp_list_del(&o->bucket);
    wp_list_del(&o->unused);
    o->pool->n_origins--;
    wp_tls_unref(o->tls);
    wp_free(o);
}

/* An origin that nobody uses stays for what it has learnt, while there are not too many. */
static void rest_if_unused(struct wp_origin *o)
{
    struct wp_pool *p = o->pool;

    if (o->users > 0 || o->links > 0)
        return;
    wp_list_push(&p->unused, &o->unused);
    while ((p->closing || p->n_origins > WP_ORIGINS_MAX) && !wp_list_empty(&p->unused))
        origin_free(WP_CONTAINER(p->unused.next, struct wp_origin, unused));
}

struct wp_origin *wp_origin_take(struct wp_pool *p, struct wp_str host, uint16_t port,
                                 struct wp_tls *tls)
{
    struct wp_origin *o = find(p, host, port, tls);

    if (!o) {
        o = wp_calloc(1, sizeof *o + host.n);
        if (!o)
            return NULL;
        o->pool = p;
        o->port = port;
        o->tls = wp_tls_ref(tls);
        o->promised_us = UINT64_MAX;
        o->host_n = host.n;
        if (host.n)
            memcpy(o->host, host.p, host.n);
        wp_list_init(&o->idle);
        wp_list_init(&o->unused);
        wp_list_push(bucket_of(p, host, port), &o->bucket);
        p->n_origins++;
    }
    wp_list_del(&o->unused);
    o->users++;
    return o;
}

void wp_origin_drop(struct wp_origin *o)
{
    o->users--;
    rest_if_unused(o);
}

void wp_origin_promise(struct wp_origin *o, uint64_t seconds)
{
    if (seconds > PROMISED_MAX / 1000000)
        seconds = PROMISED_MAX / 1000000;
    /* A second for the way; half of one when there is only one. */
    o->promised_us = seconds > 1 ? (seconds - 1) * 1000000 : seconds * 500000;
}

static uint64_t idle_limit(const struct wp_origin *o)
{
    uint64_t us = o->pool->idle_us;

    if (us == 0)
        us = o->promised_us != UINT64_MAX ? o->promised_us : IDLE_US;
    else if (o->promised_us < us)
        us = o->promised_us;
    if (o->learnt_us < us && wp_loop_now_us(o->pool->loop) < o->learnt_end_us)
        us = o->learnt_us;
    return us;
}

/* The peer closed a connection that was idle: stay below that time. */
static void learn(struct wp_uplink *u)
{
    struct wp_origin *o = u->origin;
    uint64_t now = wp_loop_now_us(o->pool->loop), us = (now - u->idle_since_us) / 4 * 3;

    if (us < LEARNT_MIN)
        us = LEARNT_MIN;
    if (us > o->learnt_us && now < o->learnt_end_us)
        return;
    o->learnt_us = us;
    o->learnt_end_us = now + LESSON_US;
}

/* --- the end of an uplink --- */

static void uplink_free(struct wp_uplink *u)
{
    struct wp_origin *o = u->origin;
    struct wp_pool *p = o->pool;

    wp_timer_stop(p->loop, &u->timer);
    wp_list_del(&u->link);
    wp_buf_fini(&u->in);
    wp_free(u->dial);
    wp_free(u);
    o->links--;
    rest_if_unused(o);
    if (p->closing && wp_list_empty(&p->all))
        p->on_empty(p); /* the pool may be gone */
}

static void leave_idle(struct wp_uplink *u)
{
    if (wp_list_empty(&u->idle))
        return;
    wp_list_del(&u->idle);
    u->origin->n_idle--;
    u->origin->pool->n_idle--;
    wp_timer_stop(u->origin->pool->loop, &u->timer);
}

void wp_uplink_close(struct wp_uplink *u, bool reset)
{
    if (u->closing)
        return;
    u->closing = true;
    u->again = false;
    u->holder = NULL;
    leave_idle(u);
    wp_timer_stop(u->origin->pool->loop, &u->timer);
    if (u->dial && u->dial->lookup) {
        wp_lookup_cancel(u->dial->lookup);
        u->dial->lookup = NULL;
    }
    if (!u->open)
        uplink_free(u);
    else if (reset && u->stream.connected)
        wp_stream_reset(&u->stream);
    else
        wp_stream_close(&u->stream);
}

static void on_closed(struct wp_stream *s)
{
    struct wp_uplink *u = WP_CONTAINER(s, struct wp_uplink, stream);

    u->open = false;
    if (u->again)
        connect_next(u);
    else
        uplink_free(u);
}

/* --- idle and held --- */

static void on_read(struct wp_stream *s, const char *p, size_t n)
{
    struct wp_uplink *u = WP_CONTAINER(s, struct wp_uplink, stream);

    if (u->holder) {
        u->origin->pool->ops->on_read(u->holder, p, n);
        return;
    }
    learn(u); /* nobody asked: most likely a 408 before it closes */
    wp_uplink_close(u, false);
}

static void on_eof(struct wp_stream *s)
{
    struct wp_uplink *u = WP_CONTAINER(s, struct wp_uplink, stream);

    if (u->holder) {
        u->origin->pool->ops->on_eof(u->holder);
        return;
    }
    learn(u);
    wp_uplink_close(u, false);
}

static void on_error(struct wp_stream *s, int rc)
{
    struct wp_uplink *u = WP_CONTAINER(s, struct wp_uplink, stream);

    if (u->holder) {
        u->origin->pool->ops->on_error(u->holder, rc);
        return;
    }
    learn(u);
    wp_uplink_close(u, false);
}

static void on_drain(struct wp_stream *s)
{
    struct wp_uplink *u = WP_CONTAINER(s, struct wp_uplink, stream);

    if (u->holder)
        u->origin->pool->ops->on_drain(u->holder);
}

struct wp_uplink *wp_uplink_reuse(struct wp_origin *o, void *holder)
{
    struct wp_uplink *u;

    if (wp_list_empty(&o->idle))
        return NULL;
    u = WP_CONTAINER(o->idle.next, struct wp_uplink, idle);
    if (wp_loop_now_us(o->pool->loop) - u->idle_since_us >= idle_limit(o))
        return NULL; /* and all others are older still; their timers close them */
    leave_idle(u);
    u->holder = holder;
    return u;
}

void wp_uplink_give(struct wp_uplink *u)
{
    struct wp_origin *o = u->origin;
    struct wp_pool *p = o->pool;
    uint64_t limit = idle_limit(o);

    if (u->closing)
        return;
    u->holder = NULL;
    u->in.n = 0;
    if (u->in.cap > IN_KEEP_BYTES)
        wp_buf_fini(&u->in);
    if (p->closing || u->epoch != o->epoch || limit == 0 || u->stream.eof || u->stream.queued > 0 ||
        wp_stream_read_start(&u->stream) < 0) {
        wp_uplink_close(u, false);
        return;
    }
    u->idle_since_us = wp_loop_now_us(p->loop);
    wp_list_insert(&o->idle, &u->idle);
    p->n_idle++;
    wp_timer_in(p->loop, &u->timer, limit);
    if (++o->n_idle > p->idle_max)
        wp_uplink_close(WP_CONTAINER(o->idle.prev, struct wp_uplink, idle), false);
}

/* --- dialling --- */

static void dial_failed(struct wp_uplink *u, int rc, const char *why)
{
    struct wp_origin *o = u->origin;
    const struct wp_uplink_ops *ops = o->pool->ops;
    void *holder = u->holder;

    wp_names_stale(o->pool->loop, (struct wp_str){o->host, o->host_n});
    wp_uplink_close(u, false);
    ops->on_up(holder, rc, why);
}

/* This address is no good: the next one, or the end. */
static void address_failed(struct wp_uplink *u, int rc, const char *why)
{
    struct dial *d = u->dial;

    wp_timer_stop(u->origin->pool->loop, &u->timer);
    /* Who answers, and is not who he should be, is not looked for elsewhere. */
    if (why || ++d->at >= d->n || wp_loop_now_us(u->origin->pool->loop) >= d->until_us) {
        dial_failed(u, rc, why ? why : "connect");
        return;
    }
    u->again = true;
    if (u->open)
        wp_stream_close(&u->stream);
    else
        connect_next(u);
}

static void on_connect(struct wp_stream *s, int rc)
{
    struct wp_uplink *u = WP_CONTAINER(s, struct wp_uplink, stream);

    if (u->again)
        return;
    if (rc == 0)
        rc = wp_stream_read_start(s);
    if (rc < 0) {
        address_failed(u, rc, wp_stream_tls_why(s));
        return;
    }
    wp_timer_stop(u->origin->pool->loop, &u->timer);
    wp_free(u->dial);
    u->dial = NULL;
    u->origin->pool->ops->on_up(u->holder, 0, NULL);
}

static const struct wp_stream_ops stream_ops = {on_read,  on_eof,     on_error,
                                                on_drain, on_connect, on_closed};

static void connect_next(struct wp_uplink *u)
{
    struct wp_loop *l = u->origin->pool->loop;
    struct dial *d = u->dial;
    uint64_t now = wp_loop_now_us(l), left = d->until_us > now ? d->until_us - now : 0;
    int rc;

    u->again = false;
    rc = wp_stream_init(&u->stream, l, &stream_ops);
    u->open = rc == 0;
    if (rc == 0 && u->origin->tls)
        rc = wp_stream_tls(&u->stream, u->origin->tls,
                           (struct wp_str){u->origin->host, u->origin->host_n});
    if (rc == 0)
        rc = wp_stream_connect(&u->stream, (struct sockaddr *)&d->addr[d->at]);
    if (rc < 0) {
        address_failed(u, rc, NULL);
        return;
    }
    if (d->at + 1 < d->n) /* the last one has until the holder's own deadline */
        wp_timer_in(l, &u->timer, left / (d->n - d->at));
}

static void on_names(void *arg, int rc, const struct sockaddr_storage addr[], size_t n)
{
    struct wp_uplink *u = arg;

    u->dial->lookup = NULL;
    if (rc < 0) {
        dial_failed(u, rc, "name");
        return;
    }
    u->dial->n = n;
    memcpy(u->dial->addr, addr, n * sizeof addr[0]);
    connect_next(u);
}

static void on_timer(struct wp_timer *t)
{
    struct wp_uplink *u = t->arg;

    if (u->dial)
        address_failed(u, WP_ETIMEDOUT, NULL);
    else
        wp_uplink_close(u, false);
}

struct wp_uplink *wp_uplink_dial(struct wp_origin *o, uint64_t until_us, void *holder)
{
    struct wp_pool *p = o->pool;
    struct wp_uplink *u = wp_calloc(1, sizeof *u);

    if (!u)
        return NULL;
    u->dial = wp_malloc(sizeof *u->dial);
    if (!u->dial) {
        wp_free(u);
        return NULL;
    }
    u->dial->until_us = until_us;
    u->dial->n = u->dial->at = 0;
    u->dial->lookup =
        wp_names_lookup(p->loop, (struct wp_str){o->host, o->host_n}, o->port, on_names, u);
    if (!u->dial->lookup) {
        wp_free(u->dial);
        wp_free(u);
        return NULL;
    }
    u->origin = o;
    u->holder = holder;
    u->epoch = o->epoch;
    wp_list_init(&u->idle);
    wp_list_push(&p->all, &u->link);
    wp_timer_init(&u->timer, on_timer, u);
    o->links++;
    wp_list_del(&o->unused);
    return u;
}

/* --- the pool --- */

void wp_pool_init(struct wp_pool *p, struct wp_loop *l, const struct wp_uplink_ops *ops)
{
    p->loop = l;
    p->ops = ops;
    for (size_t i = 0; i < WP_ORIGIN_BUCKETS; i++)
        wp_list_init(&p->origin[i]);
    wp_list_init(&p->unused);
    wp_list_init(&p->all);
}

static void forget(struct wp_origin *o)
{
    o->epoch++;
    o->promised_us = UINT64_MAX;
    o->learnt_end_us = 0;
    WP_LIST_EACH(&o->idle, it)
    {
        wp_uplink_close(WP_CONTAINER(it, struct wp_uplink, idle), false);
    }
    if (o->users == 0 && o->links == 0)
        origin_free(o);
}

void wp_pool_forget(struct wp_pool *p, struct wp_str host, uint16_t port)
{
    struct wp_list *b = bucket_of(p, host, port);

    WP_LIST_EACH(b, it)
    {
        struct wp_origin *o = WP_CONTAINER(it, struct wp_origin, bucket);

        if (is_at(o, host, port))
            forget(o);
    }
}

void wp_pool_close(struct wp_pool *p)
{
    WP_LIST_EACH(&p->all, it)
    {
        wp_uplink_close(WP_CONTAINER(it, struct wp_uplink, link), false);
    }
    p->closing = true; /* only now: on_empty does not come inside this call */
    while (!wp_list_empty(&p->unused))
        origin_free(WP_CONTAINER(p->unused.next, struct wp_origin, unused));
}
