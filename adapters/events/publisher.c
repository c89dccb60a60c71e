/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publisher's life, when we connect. The socket's monitor says that hands were shaken: the
 * subscriber is told, and asks for a replay (from the start, or the probe). Messages and replies go
 * into the subscriber, whose steps go to the owner. The monitor says that the connection is lost:
 * the library connects again by itself, and the name is looked up again beside it; if it takes
 * longer than the grace period, the owner is told that the entries are gone and all is as at first.
 *
 * A replay goes wrong: nobody answers in time, or in the middle answers cease. The socket is
 * closed, the subscriber goes on with what it held. The next question gets a new socket. No socket
 * can be had (descriptors are short): as if nobody answered.
 *
 * A held queue is let go in bursts, by a timer that is due at once, that is on the next turn.
 */
#include "adapters/events/feed_impl.h"

#include <stdio.h>
#include <zmq.h>

enum {
    BURST = 64, /* held messages let go in a turn */
    LOOK_AGAIN_US = 10000,
};

static const char AREA[] = "kv_events";

/* One line a minute a worker of what a publisher may cause as often as it likes. */
static bool may_log(struct wp_feed *f)
{
    uint64_t skipped;

    return wp_log_may(&f->log, wp_loop_now_us(f->feeds->loop), &skipped);
}

/* -- what the subscriber wants done -- */

static void log_step(const struct publisher *p, const struct wp_sub_step *step)
{
    struct wp_feed *f = p->feed;

    if (step->clear == WP_CLEAR_NONE && step->action != WP_SUB_GAP_HOLD &&
        step->action != WP_SUB_REPLAY_TIMEOUT)
        return;
    if (may_log(f))
        wp_log(WP_WARN, AREA, "worker=" WP_STR_FMT " rank=%u %s seq=%llu next=%llu",
               WP_STR_ARG(f->conf.name), p->rank, wp_sub_action_name(step->action),
               (unsigned long long)step->seq, (unsigned long long)p->sub.next);
}

static void on_step(void *arg, const struct wp_sub_step *step)
{
    struct publisher *p = arg;
    struct wp_feed *f = p->feed;

    if (f->closing)
        return;
    log_step(p, step);
    if (f->ops->step)
        f->ops->step(f->arg, p->rank, step);
    if (!f->closing && step->clear != WP_CLEAR_NONE)
        f->ops->clear(f->arg, p->rank, step->clear);
    if (!f->closing && step->apply)
        f->ops->apply(f->arg, p->rank, step->seq, step->payload);
}

static bool read_head(struct wp_feed *f, struct wp_str payload, struct wp_batch_head *out)
{
    *out = (struct wp_batch_head){0};
    if (f->closing || !f->ops->head(f->arg, payload, out))
        return false;
    if (out->rank >= WP_FEED_RANKS_MAX)
        out->ranked = false;
    return true;
}

bool wp_feed_peek(struct wp_feed *f, struct wp_str payload, struct wp_batch_head *out)
{
    f->last.ok = read_head(f, payload, out);
    f->last.payload = payload;
    f->last.head = *out;
    return f->last.ok;
}

/* A batch that was peeked at is not read twice, unless another was read since. */
static bool on_head(void *arg, struct wp_str payload, struct wp_batch_head *out)
{
    struct publisher *p = arg;
    struct wp_feed *f = p->feed;
    bool ok;

    if (payload.p && f->last.payload.p == payload.p) {
        ok = f->last.ok;
        *out = f->last.head;
    } else {
        ok = read_head(f, payload, out);
    }
    f->last.payload.p = NULL;
    if (ok && !p->rank_seen) {
        p->rank_seen = true;
        p->ranked = out->ranked;
        p->rank = out->ranked ? out->rank : p->port_rank;
    }
    return ok;
}

/* -- replay -- */

static void replay_close(struct publisher *p)
{
    wp_dial_stop(&p->replay_dial);
    wp_zsock_close(p->replay);
    p->replay = NULL;
    p->replay_up = p->replay_clean = false;
}

static void replay_send(struct publisher *p)
{
    char start[8];
    struct wp_str frame[2] = {{"", 0}, {start, sizeof start}};

    for (int i = 0; i < 8; i++)
        start[i] = (char)(p->replay_start >> (56 - 8 * i));
    p->replay_clean = false;
    wp_zsock_send(p->replay, frame, 2); /* if it cannot be sent, nobody answers */
}

static void on_replay_dialed(void *arg, int rc)
{
    struct publisher *p = arg;

    if (rc < 0 || p->replay_up)
        return; /* tried again, as long as the answer is waited for */
    p->replay_up = true;
    replay_send(p);
}

static bool ends_replay(const struct wp_zmessage *m)
{
    static const char mark[8] = "\xff\xff\xff\xff\xff\xff\xff\xff";

    return (m->n == 3 || m->n == 4) && m->frame[m->n - 2].n == 8 &&
           memcmp(m->frame[m->n - 2].p, mark, 8) == 0;
}

static void settle(struct publisher *p);

static void on_reply(void *arg, struct wp_zsock *s, const struct wp_zmessage *m)
{
    struct publisher *p = arg;

    (void)s;
    p->replay_heard = true;
    p->replay_clean = ends_replay(m);
    wp_subscriber_reply(&p->sub, m->frame, m->n, wp_loop_now_us(p->feed->feeds->loop));
    settle(p);
}

static const struct wp_zsock_ops replay_ops = {.message = on_reply};

static struct wp_zsock_conf socket_conf(struct publisher *p, int type,
                                        const struct wp_zsock_ops *ops)
{
    return (struct wp_zsock_conf){
        .type = type,
        .heartbeat_ms = p->feed->conf.heartbeat_ms,
        .heartbeat_timeout_ms = p->feed->conf.heartbeat_timeout_ms,
        .ops = ops,
        .arg = p,
    };
}

static void replay_ask(struct publisher *p, uint64_t start)
{
    struct wp_zsock_conf conf = socket_conf(p, ZMQ_DEALER, &replay_ops);
    struct wp_err err = WP_ERR_INIT;

    p->replay_start = start;
    if (!p->replay_clean)
        replay_close(p);
    if (p->replay) {
        replay_send(p);
        return;
    }
    if (wp_zsock_open(&p->replay, p->feed->feeds->z, &conf, &err) < 0) {
        p->replay = NULL;
        if (may_log(p->feed))
            wp_log(WP_WARN, AREA, "worker=" WP_STR_FMT " replay: %s",
                   WP_STR_ARG(p->feed->conf.name), err.text);
        return;
    }
    wp_dial_start(&p->replay_dial, p->feed->feeds->loop, p->replay, &p->feed->replay, p->port_rank,
                  on_replay_dialed, p);
}

static void on_silent(struct wp_timer *t)
{
    struct publisher *p = t->arg;
    struct wp_loop *l = p->feed->feeds->loop;
    uint64_t now = wp_loop_now_us(l), deadline = wp_subscriber_deadline(&p->sub);

    if (deadline > now) { /* replies have moved it since */
        if (deadline != UINT64_MAX)
            wp_timer_at(l, t, deadline);
        return;
    }
    if (p->replay && wp_zsock_pending(p->replay)) { /* it is we who are late */
        wp_timer_in(l, t, LOOK_AGAIN_US);
        return;
    }
    replay_close(p);
    if (p->bound && p->fd == FD_NONE && !p->replay_heard)
        wp_subscriber_disconnected(&p->sub); /* we only supposed that there was somebody */
    wp_subscriber_timeout(&p->sub, now);
    settle(p);
}

/* -- after each input -- */

static void on_more(struct wp_timer *t)
{
    struct publisher *p = t->arg;

    wp_subscriber_release(&p->sub, wp_loop_now_us(p->feed->feeds->loop));
    settle(p);
}

/* The text is static, or p->note. */
static void set_trouble(struct publisher *p, const char *fmt, const char *what)
{
    char note[sizeof p->note];

    snprintf(note, sizeof note, fmt, what);
    if (p->trouble && strcmp(note, p->note) == 0)
        return;
    memcpy(p->note, note, sizeof note);
    p->trouble = p->note;
    p->why = NULL; /* the same place, another text */
}

static void settle(struct publisher *p)
{
    struct wp_feed *f = p->feed;
    struct wp_loop *l = f->feeds->loop;
    enum wp_feed_state state;
    const char *why;
    uint64_t start;

    f->last.payload.p = NULL;
    if (f->closing)
        return;
    if (wp_subscriber_request(&p->sub, &start))
        replay_ask(p, start);
    if (wp_subscriber_more(&p->sub))
        wp_timer_in(l, &p->more, 0);
    if (wp_subscriber_deadline(&p->sub) == UINT64_MAX)
        wp_timer_stop(l, &p->silent);
    else if (!p->silent.armed)
        wp_timer_at(l, &p->silent, wp_subscriber_deadline(&p->sub));
    state = wp_subscriber_state(&p->sub, &why);
    if (state == WP_FEED_UNKNOWN && p->trouble)
        why = p->trouble;
    if (state == p->state && why == p->why)
        return;
    p->state = state;
    p->why = why;
    if (f->ops->state)
        f->ops->state(f->arg, p->rank, state, why);
}

void wp_publisher_sync(struct publisher *p)
{
    p->trouble = NULL;
    p->unsure = p->maybe_lost = p->leaving = false;
    wp_timer_stop(p->feed->feeds->loop, &p->grace);
    replay_close(p); /* whatever is on its way is from before */
    wp_subscriber_connected(&p->sub, wp_loop_now_us(p->feed->feeds->loop));
    settle(p);
}

bool wp_publisher_resync(struct publisher *p)
{
    bool asked = wp_subscriber_resync(&p->sub, wp_loop_now_us(p->feed->feeds->loop));

    settle(p);
    return asked;
}

void wp_publisher_connected(struct publisher *p)
{
    p->connections++;
    if (may_log(p->feed))
        wp_log(WP_INFO, AREA, "worker=" WP_STR_FMT " rank=%u connected",
               WP_STR_ARG(p->feed->conf.name), p->rank);
    wp_publisher_sync(p);
}

void wp_publisher_lost(struct publisher *p)
{
    p->losses++;
    p->fd = FD_NONE;
    if (may_log(p->feed))
        wp_log(WP_WARN, AREA, "worker=" WP_STR_FMT " rank=%u disconnected",
               WP_STR_ARG(p->feed->conf.name), p->rank);
    wp_subscriber_disconnected(&p->sub);
    wp_timer_in(p->feed->feeds->loop, &p->grace, p->feed->conf.grace_us);
    settle(p);
}

static void on_grace(struct wp_timer *t)
{
    struct publisher *p = t->arg;
    struct wp_feed *f = p->feed;
    bool begun = p->sub.begun;

    replay_close(p);
    wp_subscriber_forget(&p->sub);
    if (p->bound)
        wp_bound_unclaim(p);
    if (begun)
        f->ops->clear(f->arg, p->rank, WP_CLEAR_GONE);
    if (!f->closing)
        set_trouble(p, "%s", "disconnected for so long that what it had is forgotten");
    settle(p);
}

void wp_publisher_live(struct publisher *p, const struct wp_zmessage *m)
{
    wp_subscriber_live(&p->sub, m->frame, m->n, wp_loop_now_us(p->feed->feeds->loop));
    settle(p);
}

/* -- a socket of our own that connects -- */

bool wp_publisher_expects(const struct publisher *p, const struct wp_zmessage *m)
{
    char next[8];

    for (int i = 0; i < 8; i++)
        next[i] = (char)(p->sub.next >> (56 - 8 * i));
    return m->n == 3 && m->frame[1].n == 8 && memcmp(m->frame[1].p, next, 8) == 0;
}

static void on_live(void *arg, struct wp_zsock *s, const struct wp_zmessage *m)
{
    struct publisher *p = arg;

    /* An odd number may be the first of a new connection, of which we have not heard yet. */
    if (!wp_publisher_expects(p, m) && !wp_zsock_events(s))
        return;
    if (!p->sub.met) /* it spoke, so it is there */
        wp_publisher_connected(p);
    if (!p->feed->closing)
        wp_publisher_live(p, m);
}

static void on_event(void *arg, enum wp_zevent event, int fd)
{
    struct publisher *p = arg;

    (void)fd;
    switch (event) {
    case WP_ZEVENT_UP:
        wp_publisher_connected(p);
        return;
    case WP_ZEVENT_DOWN:
        wp_dial_failed(&p->dial);
        if (p->sub.up)
            wp_publisher_lost(p);
        return;
    case WP_ZEVENT_RETRY:
        wp_dial_failed(&p->dial);
        if (!p->stranger) /* else that is why, and the better reason */
            set_trouble(p,
                        p->sub.met ? "lost %s, trying again" : "cannot connect to %s, trying again",
                        p->dial.at);
        p->stranger = false;
        break;
    case WP_ZEVENT_STRANGER:
        p->stranger = true;
        set_trouble(p, "what answers at %s is no ZeroMQ publisher", p->dial.at);
        break;
    case WP_ZEVENT_ACCEPTED:
        break;
    }
    settle(p);
}

static const struct wp_zsock_ops live_ops = {.message = on_live, .event = on_event};

static void on_dialed(void *arg, int rc)
{
    struct publisher *p = arg;

    if (rc < 0) {
        set_trouble(p, "no address for %s, trying again", p->feed->events.host);
        settle(p);
    }
}

int wp_publisher_connect(struct publisher *p, struct wp_err *err)
{
    struct wp_zsock_conf conf = socket_conf(p, ZMQ_SUB, &live_ops);
    int rc = wp_zsock_open(&p->live, p->feed->feeds->z, &conf, err);

    if (rc < 0) {
        p->live = NULL;
        return rc;
    }
    wp_dial_start(&p->dial, p->feed->feeds->loop, p->live, &p->feed->events, p->port_rank,
                  on_dialed, p);
    return 0;
}

/* -- beginning and end -- */

struct publisher *wp_publisher_new(struct wp_feed *f, uint32_t port_rank, bool replay)
{
    struct publisher *p = wp_calloc(1, sizeof *p);
    struct wp_sub_conf conf = {
        .replay = replay,
        .pending_max = f->conf.pending_max,
        .pending_bytes = f->conf.pending_bytes,
        .burst = BURST,
        .reply_us = f->conf.reply_us,
        .head = on_head,
        .step = on_step,
        .arg = p,
    };

    if (!p)
        return NULL;
    p->feed = f;
    p->port_rank = p->rank = port_rank;
    p->has_replay = replay;
    p->fd = FD_NONE;
    wp_subscriber_init(&p->sub, &conf);
    p->state = wp_subscriber_state(&p->sub, &p->why);
    wp_timer_init(&p->silent, on_silent, p);
    wp_timer_init(&p->grace, on_grace, p);
    wp_timer_init(&p->more, on_more, p);
    wp_list_push(&f->publishers, &p->link);
    f->n_publishers++;
    return p;
}

void wp_publisher_close(struct publisher *p)
{
    struct wp_loop *l = p->feed->feeds->loop;

    replay_close(p);
    wp_dial_stop(&p->dial);
    wp_zsock_close(p->live);
    p->live = NULL;
    if (p->bound)
        wp_bound_leave(p);
    wp_timer_stop(l, &p->silent);
    wp_timer_stop(l, &p->grace);
    wp_timer_stop(l, &p->more);
}

void wp_publisher_free(struct publisher *p)
{
    wp_subscriber_fini(&p->sub);
    wp_free(p);
}
