/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A socket that we bind, and the publishers that connect to it.
 *
 * Whose a message is: its topic names the worker (the whole topic or the pod in it was configured),
 * or else it is the one worker without a topic. Of that worker's publishers it is the one that has
 * this topic and the rank that the batch states. The publisher that was made with the feed takes
 * the first topic and rank that come; more are made as they turn up. A batch that cannot be read
 * states no rank: it belongs to the one that expects its number, and if there is none it is
 * dropped, which the one that misses it will notice.
 *
 * Connections: the library says on which one a message came, by a number that is used again. A
 * publisher on another one than before has connected anew. When one is lost, its last messages may
 * still be unread, so its publishers are lost only when the socket is empty. If its number is used
 * again before that, the number says nothing any more.
 */
#include "adapters/events/feed_impl.h"

#include "base/mem.h"

#include <stdio.h>
#include <xxhash.h>
#include <zmq.h>

static void free_if_unused(struct bound *b)
{
    if (b->busy > 0 || !wp_list_empty(&b->publishers))
        return;
    wp_zsock_close(b->s);
    wp_list_del(&b->link);
    wp_map_fini(&b->by_topic);
    wp_free(b);
}

static struct publisher *of_link(struct wp_list *at)
{
    return WP_CONTAINER(at, struct publisher, bound_link);
}

/* -- whose message it is -- */

static bool has_topic(const struct publisher *p, struct wp_str topic)
{
    return p->claimed && wp_str_eq(p->topic, topic);
}

static uint64_t hash_of(const struct bound *b, struct wp_str topic)
{
    return XXH3_64bits_withSeed(topic.p, topic.n, b->by_topic.seed);
}

/* Some publisher that has the topic, or NULL. */
static struct publisher *by_topic(const struct bound *b, struct wp_str topic)
{
    uint64_t value;
    struct publisher *p;

    if (!wp_map_get(&b->by_topic, hash_of(b, topic), &value))
        return NULL;
    p = (struct publisher *)(uintptr_t)value;
    return has_topic(p, topic) ? p : NULL;
}

static bool names(const struct wp_feed *f, struct wp_str topic, struct wp_str pod)
{
    return f->conf.topic.p && (wp_str_eq(f->conf.topic, topic) || wp_str_eq(f->conf.topic, pod));
}

/* A publisher of the worker that a new topic belongs to: the one that names it, or the one that
 * names none. */
static struct publisher *by_claim(const struct bound *b, struct wp_str topic)
{
    struct publisher *other = NULL;
    struct wp_str pod, model;

    wp_topic_parse(topic, &pod, &model);
    WP_LIST_EACH(&b->publishers, at)
    {
        struct publisher *p = of_link(at);

        if (names(p->feed, topic, pod))
            return p;
        if (!p->feed->conf.topic.p && !other)
            other = p;
    }
    return other;
}

/* Makes p the publisher of this topic and rank. */
static bool claim(struct publisher *p, struct wp_str topic, const struct wp_batch_head *head)
{
    struct bound *b = p->bound;
    char *copy = wp_strndup(topic.p ? topic.p : "", topic.n);

    if (!copy)
        return false;
    if (!by_topic(b, topic) &&
        wp_map_put(&b->by_topic, hash_of(b, topic), (uint64_t)(uintptr_t)p) < 0) {
        wp_free(copy);
        return false;
    }
    p->topic = (struct wp_str){copy, topic.n};
    p->claimed = p->rank_seen = true;
    p->ranked = head->ranked;
    p->rank = head->ranked ? head->rank : p->port_rank;
    return true;
}

static struct publisher *claim_new(struct bound *b, struct publisher *sibling, struct wp_str topic,
                                   const struct wp_batch_head *head)
{
    struct publisher *p;

    if (sibling->feed->n_publishers >= WP_FEED_PUBLISHERS_MAX)
        return NULL;
    p = wp_publisher_new(sibling->feed, sibling->port_rank, false);
    if (!p)
        return NULL;
    p->bound = b;
    wp_list_push(&b->publishers, &p->bound_link);
    return claim(p, topic, head) ? p : NULL; /* unclaimed, it is there for the next message */
}

static struct publisher *first_unclaimed(struct bound *b, struct wp_feed *f)
{
    WP_LIST_EACH(&f->publishers, at)
    {
        struct publisher *p = WP_CONTAINER(at, struct publisher, link);

        if (p->bound == b && !p->claimed)
            return p;
    }
    return NULL;
}

static struct publisher *of_rank(struct bound *b, struct wp_feed *f, struct wp_str topic,
                                 const struct wp_batch_head *head)
{
    WP_LIST_EACH(&f->publishers, at)
    {
        struct publisher *p = WP_CONTAINER(at, struct publisher, link);

        if (p->bound == b && has_topic(p, topic) && p->ranked == head->ranked &&
            (!head->ranked || p->rank == head->rank))
            return p;
    }
    return NULL;
}

/* For a message without a readable batch: the one that expects it, or, when that does not matter,
 * the only one. */
static struct publisher *by_number(struct bound *b, struct publisher *any,
                                   const struct wp_zmessage *m)
{
    struct publisher *found = NULL;
    size_t n = 0;
    uint64_t seq = 0;

    for (size_t i = 0; m->n == 3 && i < m->frame[1].n; i++)
        seq = seq << 8 | (unsigned char)m->frame[1].p[i];
    WP_LIST_EACH(&any->feed->publishers, at)
    {
        struct publisher *p = WP_CONTAINER(at, struct publisher, link);

        if (p->bound != b)
            continue;
        n++;
        if (m->n == 3 && p->sub.known && p->sub.next == seq && p->claimed &&
            wp_str_eq(p->topic, m->frame[0]))
            found = p;
    }
    return found ? found : n == 1 || m->n != 3 || m->frame[1].n != 8 ? any : NULL;
}

static struct publisher *whose(struct bound *b, const struct wp_zmessage *m)
{
    struct publisher *any = by_topic(b, m->frame[0]), *p;
    struct wp_batch_head head;

    if (!any)
        any = by_claim(b, m->frame[0]);
    if (!any)
        return NULL;
    if (m->n != 3 || m->frame[1].n != 8 || !wp_feed_peek(any->feed, m->frame[2], &head))
        return any->feed->closing ? NULL : by_number(b, any, m);
    if (any->feed->closing)
        return NULL;
    p = of_rank(b, any->feed, m->frame[0], &head);
    if (p)
        return p;
    p = first_unclaimed(b, any->feed);
    if (p)
        return claim(p, m->frame[0], &head) ? p : NULL;
    return claim_new(b, any, m->frame[0], &head);
}

/* -- what the socket says -- */

/* A message of p came on connection fd.  p may have been asked already when somebody connected:
 * that was it, then. */
static void on_connection(struct publisher *p, int fd)
{
    bool asked = p->sub.up && p->fd == FD_NONE && !p->unsure;

    if (p->sub.up && p->fd == fd && !p->leaving)
        return;
    p->fd = fd;
    p->leaving = p->unsure = false;
    if (!asked)
        wp_publisher_connected(p);
}

static void on_message(void *arg, struct wp_zsock *s, const struct wp_zmessage *m)
{
    struct bound *b = arg;
    struct publisher *p;

    b->busy++;
    p = whose(b, m);
    if (!p || p->fd != m->fd || !wp_publisher_expects(p, m)) {
        wp_zsock_events(s); /* it may be the first of a connection that we have not heard of */
        p = whose(b, m);
    }
    if (!p) {
        b->feeds->unclaimed++;
    } else if (!p->feed->closing) {
        on_connection(p, m->fd);
        if (!p->feed->closing)
            wp_publisher_live(p, m);
    }
    b->busy--;
    free_if_unused(b);
}

/* Calls fn for each that is due.  Any call may close feeds, so the list is looked at anew each
 * time. */
static void each_due(struct bound *b, void (*fn)(struct publisher *p))
{
    bool again = true;

    b->busy++;
    while (again) {
        again = false;
        WP_LIST_EACH(&b->publishers, at)
        {
            struct publisher *p = of_link(at);

            if (!p->due)
                continue;
            p->due = false;
            fn(p);
            again = true;
            break;
        }
    }
    b->busy--;
    free_if_unused(b);
}

/* Somebody left who never spoke: that was the only silent one we know of, or it may have been any
 * of them. */
static void on_silent_down(struct bound *b)
{
    struct publisher *silent = NULL;
    size_t n = 0;

    WP_LIST_EACH(&b->publishers, at)
    {
        struct publisher *p = of_link(at);

        if (!p->sub.up || p->fd != FD_NONE)
            continue;
        p->maybe_lost = true;
        silent = p;
        n++;
    }
    if (n == 1)
        silent->leaving = b->leaving = true;
}

static void on_down(struct bound *b, int fd)
{
    bool known = false;

    if (b->stranger) { /* it never was a publisher's connection */
        b->stranger = false;
        return;
    }
    WP_LIST_EACH(&b->publishers, at)
    {
        struct publisher *p = of_link(at);

        if (p->fd == fd && fd >= 0)
            known = p->leaving = b->leaving = true;
    }
    if (!known)
        on_silent_down(b);
}

/* Somebody connected and has not spoken yet: who is missed, and can be asked, is. */
static void on_up(struct bound *b)
{
    WP_LIST_EACH(&b->publishers, at)
    {
        struct publisher *p = of_link(at);

        p->due = p->has_replay && (!p->sub.up || p->maybe_lost);
        p->unsure = p->unsure || (p->sub.up && p->fd == FD_NONE);
    }
    each_due(b, wp_publisher_sync);
}

/* That number means another connection from now on. */
static void on_accepted(struct bound *b, int fd)
{
    WP_LIST_EACH(&b->publishers, at)
    {
        struct publisher *p = of_link(at);

        if (p->leaving && p->fd == fd) {
            p->fd = FD_NONE;
            p->unsure = true;
        }
    }
}

static void on_event(void *arg, enum wp_zevent event, int fd)
{
    struct bound *b = arg;

    switch (event) {
    case WP_ZEVENT_ACCEPTED:
        on_accepted(b, fd);
        break;
    case WP_ZEVENT_UP:
        on_up(b);
        break;
    case WP_ZEVENT_DOWN:
        on_down(b, fd);
        break;
    case WP_ZEVENT_STRANGER: /* its end follows */
        b->stranger = true;
        break;
    case WP_ZEVENT_RETRY:
        break;
    }
}

static void lose(struct publisher *p)
{
    p->leaving = false;
    if (p->sub.up)
        wp_publisher_lost(p);
}

static void on_drained(void *arg)
{
    struct bound *b = arg;

    if (!b->leaving)
        return;
    b->leaving = false;
    WP_LIST_EACH(&b->publishers, at)
    {
        of_link(at)->due = of_link(at)->leaving;
    }
    each_due(b, lose);
}

static const struct wp_zsock_ops bound_ops = {
    .message = on_message, .event = on_event, .drained = on_drained};

/* -- who shares it -- */

static int make(struct bound **out, struct publisher *p, const char *endpoint, struct wp_err *err)
{
    struct wp_feeds *feeds = p->feed->feeds;
    struct bound *b = wp_calloc(1, sizeof *b);
    struct wp_zsock_conf conf = {
        .type = ZMQ_SUB,
        .heartbeat_ms = p->feed->conf.heartbeat_ms,
        .heartbeat_timeout_ms = p->feed->conf.heartbeat_timeout_ms,
        .ops = &bound_ops,
        .arg = b,
    };
    int rc;

    if (!b)
        return wp_fail(err, WP_ENOMEM, "%s", wp_strerror(WP_ENOMEM));
    b->feeds = feeds;
    b->by_topic.seed = (uint64_t)(uintptr_t)b;
    wp_list_init(&b->publishers);
    wp_list_init(&b->link);
    rc = wp_zsock_open(&b->s, feeds->z, &conf, err);
    if (rc == 0) {
        rc = wp_zsock_bind(b->s, endpoint, b->endpoint, sizeof b->endpoint, err);
        if (rc < 0)
            wp_zsock_close(b->s);
    }
    if (rc < 0) {
        wp_free(b);
        return rc;
    }
    snprintf(b->asked, sizeof b->asked, "%s", endpoint);
    wp_list_push(&feeds->bounds, &b->link);
    *out = b;
    return 0;
}

static struct bound *find(struct wp_feeds *feeds, const char *endpoint)
{
    bool any_port = endpoint[strlen(endpoint) - 1] == '*';

    WP_LIST_EACH(&feeds->bounds, at)
    {
        struct bound *b = WP_CONTAINER(at, struct bound, link);

        if (!any_port && (strcmp(b->asked, endpoint) == 0 || strcmp(b->endpoint, endpoint) == 0))
            return b;
    }
    return NULL;
}

/* Two workers behind one socket must be told apart. */
static int may_share(const struct bound *b, const struct wp_feed *f, struct wp_err *err)
{
    WP_LIST_EACH(&b->publishers, at)
    {
        const struct wp_feed *other = of_link(at)->feed;

        if (!f->conf.topic.p && !other->conf.topic.p)
            return wp_fail(err, WP_EEXIST,
                           "%s is bound for worker " WP_STR_FMT
                           " already: give one of them a topic, or a port of its own",
                           b->endpoint, WP_STR_ARG(other->conf.name));
        if (f->conf.topic.p && other->conf.topic.p && wp_str_eq(f->conf.topic, other->conf.topic))
            return wp_fail(err, WP_EEXIST,
                           "topic \"" WP_STR_FMT "\" at %s is worker " WP_STR_FMT "'s already",
                           WP_STR_ARG(f->conf.topic), b->endpoint, WP_STR_ARG(other->conf.name));
    }
    return 0;
}

int wp_bound_join(struct publisher *p, const char *endpoint, struct wp_err *err)
{
    struct bound *b = find(p->feed->feeds, endpoint);
    int rc = b ? may_share(b, p->feed, err) : make(&b, p, endpoint, err);

    if (rc < 0)
        return rc;
    p->bound = b;
    p->trouble = "bound, and no publisher has spoken yet";
    wp_list_push(&b->publishers, &p->bound_link);
    return 0;
}

/* Siblings may have the same topic: they are found by the worker's claim to it, and it is mapped
 * again with the next claim. */
void wp_bound_unclaim(struct publisher *p)
{
    if (p->claimed && by_topic(p->bound, p->topic) == p)
        wp_map_del(&p->bound->by_topic, hash_of(p->bound, p->topic));
    wp_free((char *)p->topic.p);
    p->topic = (struct wp_str){NULL, 0};
    p->claimed = false;
}

void wp_bound_leave(struct publisher *p)
{
    struct bound *b = p->bound;

    wp_bound_unclaim(p);
    wp_list_del(&p->bound_link);
    p->bound = NULL;
    free_if_unused(b);
}
