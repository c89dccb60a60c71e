/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A feed is its configuration and its publishers (publisher.c), which connect or share bound
 * sockets (bound.c). A feed that is closed hears nothing more; its memory goes on the next turn of
 * the loop, because the call may come from the depth of one of its own callbacks.
 */
#include "adapters/events/feed_impl.h"

#include <assert.h>

enum {
    REPLY_US = 5000000,
    GRACE_US = 30000000,
    HEARTBEAT_MS = 5000,
    HEARTBEAT_TIMEOUT_MS = 15000,
};

static void feed_free(struct wp_feed *f)
{
    WP_LIST_EACH(&f->publishers, at)
    {
        wp_publisher_free(WP_CONTAINER(at, struct publisher, link));
    }
    wp_arena_fini(&f->arena);
    wp_free(f);
}

static void on_gone(struct wp_timer *t)
{
    struct wp_feed *f = t->arg;
    void (*closed)(void *arg) = f->ops->closed;
    void *arg = f->arg;

    feed_free(f);
    if (closed)
        closed(arg);
}

static void stop(struct wp_feed *f)
{
    f->closing = true;
    WP_LIST_EACH(&f->publishers, at)
    {
        wp_publisher_close(WP_CONTAINER(at, struct publisher, link));
    }
}

void wp_feed_close(struct wp_feed *f)
{
    if (!f || f->closing)
        return;
    stop(f);
    wp_timer_in(f->feeds->loop, &f->gone, 0);
}

static int keep(struct wp_feed *f, struct wp_str *s)
{
    if (!s->p)
        return 0;
    s->p = wp_arena_strndup(&f->arena, s->p, s->n);
    return s->p ? 0 : WP_ENOMEM;
}

static int read_conf(struct wp_feed *f, const struct wp_feed_conf *conf, struct wp_err *err)
{
    struct wp_feed_conf *c = &f->conf;
    int rc;

    *c = *conf;
    c->ranks = c->ranks ? c->ranks : 1;
    c->grace_us = c->grace_us ? c->grace_us : GRACE_US;
    c->reply_us = c->reply_us ? c->reply_us : REPLY_US;
    c->heartbeat_ms = c->heartbeat_ms ? c->heartbeat_ms : HEARTBEAT_MS;
    c->heartbeat_timeout_ms =
        c->heartbeat_timeout_ms ? c->heartbeat_timeout_ms : HEARTBEAT_TIMEOUT_MS;
    if (keep(f, &c->name) < 0 || keep(f, &c->topic) < 0)
        return wp_fail(err, WP_ENOMEM, "%s", wp_strerror(WP_ENOMEM));
    if (c->ranks > WP_FEED_RANKS_MAX)
        return wp_fail(err, WP_EINVAL, "ranks: want a number up to %d, got %u", WP_FEED_RANKS_MAX,
                       c->ranks);
    rc = wp_endpoint_parse(&f->events, c->events, c->bind, c->ranks, err);
    if (rc < 0)
        return wp_wrap(err, "events");
    if (!c->replay.p)
        return 0;
    rc = wp_endpoint_parse(&f->replay, c->replay, false, c->ranks, err);
    if (rc < 0)
        return wp_wrap(err, "replay");
    if (!c->bind && !f->events.ipc && !f->replay.ipc &&
        strcmp(f->events.host, f->replay.host) == 0 && f->events.port < f->replay.port + c->ranks &&
        f->replay.port < f->events.port + c->ranks)
        return wp_fail(err, WP_EINVAL,
                       "event ports from %u and replay ports from %u overlap: each of %u ranks has "
                       "its own port",
                       f->events.port, f->replay.port, c->ranks);
    return 0;
}

static int open_rank(struct wp_feed *f, uint32_t rank, struct wp_err *err)
{
    struct publisher *p = wp_publisher_new(f, rank, f->conf.replay.p != NULL);
    char endpoint[WP_ENDPOINT_MAX];

    if (!p)
        return wp_fail(err, WP_ENOMEM, "%s", wp_strerror(WP_ENOMEM));
    if (f->conf.marks && !f->conf.bind)
        wp_subscriber_resume(&p->sub, &f->conf.marks[rank]);
    if (!f->conf.bind)
        return wp_publisher_connect(p, err);
    wp_endpoint_text(&f->events, rank, NULL, endpoint);
    return wp_bound_join(p, endpoint, err);
}

int wp_feed_open(struct wp_feed **out, struct wp_feeds *feeds, const struct wp_feed_conf *conf,
                 const struct wp_feed_ops *ops, void *arg, struct wp_err *err)
{
    struct wp_feed *f = wp_calloc(1, sizeof *f);
    int rc;

    if (!f)
        return wp_fail(err, WP_ENOMEM, "%s", wp_strerror(WP_ENOMEM));
    f->feeds = feeds;
    f->ops = ops;
    f->arg = arg;
    wp_list_init(&f->publishers);
    wp_timer_init(&f->gone, on_gone, f);
    rc = read_conf(f, conf, err);
    for (uint32_t rank = 0; rc == 0 && rank < f->conf.ranks; rank++)
        rc = open_rank(f, rank, err);
    if (rc < 0) {
        stop(f);
        feed_free(f);
        return rc;
    }
    f->conf.marks = NULL;
    *out = f;
    return 0;
}

static struct publisher *nth(const struct wp_feed *f, size_t i)
{
    struct wp_list *at = f->publishers.next;

    assert(i < f->n_publishers);
    while (i-- > 0)
        at = at->next;
    return WP_CONTAINER(at, struct publisher, link);
}

bool wp_feed_resync(struct wp_feed *f, uint32_t rank)
{
    bool asked = false;

    WP_LIST_EACH(&f->publishers, at)
    {
        struct publisher *p = WP_CONTAINER(at, struct publisher, link);

        if (!f->closing && p->rank == rank)
            asked |= wp_publisher_resync(p);
    }
    return asked;
}

size_t wp_feed_publishers(const struct wp_feed *f)
{
    return f->n_publishers;
}

void wp_feed_status(const struct wp_feed *f, size_t i, struct wp_feed_status *out)
{
    const struct publisher *p = nth(f, i);

    *out = (struct wp_feed_status){
        .rank = p->rank,
        .resumed = p->sub.resumed,
        .mark = wp_subscriber_mark(&p->sub),
        .whole = wp_subscriber_whole(&p->sub),
        .timed = p->sub.timed,
        .last_ts = p->sub.last_ts,
        .next = p->sub.next,
        .held = p->sub.held,
        .connections = p->connections,
        .losses = p->losses,
        .counts = p->sub.counts,
    };
    out->state = wp_subscriber_state(&p->sub, &out->why);
    if (out->state == WP_FEED_UNKNOWN && p->trouble)
        out->why = p->trouble;
}

const char *wp_feed_endpoint(const struct wp_feed *f, uint32_t rank)
{
    const struct publisher *p = nth(f, rank);

    return p->bound ? p->bound->endpoint : p->dial.at;
}

int wp_feeds_create(struct wp_feeds **out, struct wp_loop *loop, struct wp_err *err)
{
    struct wp_feeds *f = wp_calloc(1, sizeof *f);
    int rc;

    if (!f)
        return wp_fail(err, WP_ENOMEM, "%s", wp_strerror(WP_ENOMEM));
    f->loop = loop;
    wp_list_init(&f->bounds);
    rc = wp_zctx_create(&f->z, loop, err);
    if (rc < 0) {
        wp_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void wp_feeds_destroy(struct wp_feeds *f, void (*fn)(void *arg), void *arg)
{
    assert(wp_list_empty(&f->bounds) && "a feed is open");
    wp_zctx_destroy(f->z, fn, arg);
    wp_free(f);
}

uint64_t wp_feeds_unclaimed(const struct wp_feeds *f)
{
    return f->unclaimed;
}
