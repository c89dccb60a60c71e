/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     START --> DIAL --> SEND --> WAIT --> BODY --> over
 *        |                ^ |               ^          any state may fall to over; an early answer
 *        +----------------+ +---------------+          goes from SEND to BODY
 *          reused
 *
 * Each event of the connection is worked off as far as it goes; what ends the call on the way only
 * sets the verdict (over, rc), and the event's own function concludes at its end, so nothing below
 * it ever stands on freed memory.  A verdict set from outside (wp_call_cancel) is concluded by the
 * timer on the next turn.
 *
 * One timer serves all deadlines.  Signs of life only move mark_us; the timer looks when it fires
 * and goes on sleeping if there is time left.  A deadline that seems passed gets one more turn of
 * the loop, in which bytes that are there are read: after a stop of the whole process nobody is
 * blamed for our own absence.
 */
#include "net/call.h"

#include "base/clock.h"
#include "net/names.h"

enum { INTERIMS_MAX = 16, STATUS_AT = 9 /* in "HTTP/1.1 200" */ };

static void heard_final(struct call *c)
{
    if (c->pub.phase < WP_CALL_HEAD)
        c->pub.phase = WP_CALL_HEAD;
    if (c->pub.first_byte_us == 0)
        c->pub.first_byte_us = wp_now_us();
}

static void verdict(struct call *c, int rc, const char *why)
{
    if (c->over)
        return;
    if (c->uplink && c->state < CALL_BODY && c->uplink->in.n > 0 && c->uplink->in.n <= STATUS_AT)
        heard_final(c); /* it can no longer turn out to be an interim answer */
    c->over = true;
    c->rc = rc;
    c->pub.why = why;
    c->pub.race =
        c->pub.reused && !c->heard && (rc == WP_EEOF || rc == WP_ECONNRESET || rc == UV_EPIPE);
}

static void let_go(struct call *c)
{
    struct wp_uplink *u = c->uplink;

    c->uplink = NULL;
    if (!u)
        return;
    if (c->rc == 0 && c->keep)
        wp_uplink_give(u);
    else
        wp_uplink_close(u, c->rc < 0);
}

void wp_call_conclude(struct call *c)
{
    struct wp_client *client = c->pub.client;

    wp_timer_stop(client->loop, &c->timer);
    let_go(c);
    wp_list_del(&c->link);
    wp_blob_unref(c->body);
    c->body = NULL;
    c->ops->on_over(&c->pub, c->rc);
    wp_client_call_gone(client, c); /* the client may be gone, too */
}

/* --- deadlines --- */

static uint64_t after(uint64_t mark_us, uint64_t us)
{
    return us == 0 || us > UINT64_MAX - mark_us ? UINT64_MAX : mark_us + us;
}

static uint64_t silence_end(const struct call *c)
{
    switch (c->state) {
    case CALL_DIAL:
        return c->connect_end_us;
    case CALL_SEND:
    case CALL_WAIT:
        return c->paused ? UINT64_MAX : after(c->mark_us, c->first_byte_us);
    case CALL_BODY:
        return c->paused ? UINT64_MAX : after(c->mark_us, c->idle_us);
    default:
        return UINT64_MAX;
    }
}

static uint64_t due(const struct call *c)
{
    uint64_t us = silence_end(c);

    return us < c->total_end_us ? us : c->total_end_us;
}

/* Sees that the timer fires no later than it must; an early one looks and sleeps again. */
static void arm(struct call *c)
{
    uint64_t us = due(c);

    if (us != UINT64_MAX && (!c->timer.armed || c->timer.at_us > us))
        wp_timer_at(c->pub.client->loop, &c->timer, us);
}

static void alive(struct call *c)
{
    c->mark_us = wp_now_us();
    c->late = false;
}

static const char *what_is_late(const struct call *c, uint64_t now)
{
    if (now >= c->total_end_us)
        return "total";
    switch (c->state) {
    case CALL_DIAL:
        return "connect";
    case CALL_SEND:
        return "send";
    case CALL_WAIT:
        return "first byte";
    default:
        return "idle";
    }
}

static void check_deadlines(struct call *c)
{
    uint64_t now = wp_now_us();

    if (c->state == CALL_SEND && wp_stream_taken(&c->uplink->stream) != c->taken) {
        c->taken = wp_stream_taken(&c->uplink->stream);
        alive(c);
    }
    if (now < due(c)) {
        c->late = false;
    } else if (!c->late) {
        c->late = true;
        wp_timer_in(c->pub.client->loop, &c->timer, 0);
        return;
    } else if (c->state == CALL_BODY && c->framing == WP_BODY_CHUNKED && c->chunked.last) {
        c->keep = false;
        verdict(c, 0, NULL); /* all its data has come: only the last line end is missing */
    } else {
        if (c->state == CALL_DIAL)
            wp_names_stale(c->pub.client->loop,
                           (struct wp_str){c->origin->host, c->origin->host_n});
        verdict(c, WP_ETIMEDOUT, what_is_late(c, now));
    }
    if (!c->over)
        arm(c);
}

/* --- the answer --- */

static void note_promise(struct call *c, const struct wp_head *h)
{
    struct wp_str all = wp_head_get(h, "Keep-Alive"), part;
    uint64_t seconds;

    while (wp_str_split(&all, ',', &part)) {
        part = wp_str_trim(part);
        if (part.n < 8 || !wp_str_iis((struct wp_str){part.p, 8}, "timeout="))
            continue;
        part = wp_str_trim((struct wp_str){part.p + 8, part.n - 8});
        if (wp_str_u64(part, &seconds))
            wp_origin_promise(c->origin, seconds);
    }
}

static void whole(struct call *c)
{
    verdict(c, 0, NULL);
}

static void final_head(struct call *c, const struct wp_head *h)
{
    heard_final(c);
    c->state = CALL_BODY;
    alive(c);
    c->framing = wp_http1_response_body(h, c->is_head);
    c->left = c->framing == WP_BODY_LENGTH ? (uint64_t)h->content_length : 0;
    c->keep = h->keep_alive && c->framing != WP_BODY_UNTIL_CLOSE;
    if (c->body && !wp_stream_arrived(&c->uplink->stream))
        c->keep = false; /* an early answer: what is still on its way would read as the next request */
    note_promise(c, h);
    c->ops->on_head(&c->pub, h);
    if (c->framing == WP_BODY_NONE || (c->framing == WP_BODY_LENGTH && c->left == 0))
        whole(c);
}

/* These two return how many bytes they used; 0: more are needed, or there is a verdict. */
static size_t take_head(struct call *c, const char *p, size_t n)
{
    struct wp_head h;
    const char *why = NULL;
    long used = wp_http1_response(p, n, c->pub.client->head_bytes, &c->looked, &h, &why);

    if (used < 0) {
        heard_final(c);
        verdict(c, (int)used, why ? why : "head");
        return 0;
    }
    if (used == 0) {
        if (n > STATUS_AT && p[STATUS_AT] != '1')
            heard_final(c);
        return 0;
    }
    c->looked = 0;
    if (h.status == 101 || (h.status < 200 && ++c->interims > INTERIMS_MAX))
        verdict(c, WP_EPROTO, h.status == 101 ? "upgrade" : "interim");
    else if (h.status >= 200)
        final_head(c, &h);
    return (size_t)used;
}

static void hand_over(struct call *c, const char *p, size_t n)
{
    if (n == 0)
        return;
    c->pub.phase = WP_CALL_BODY;
    c->ops->on_body(&c->pub, p, n);
}

/*
 * All the chunks of one read are handed over as one piece, so that what stands behind writes once: an engine that is quicker than we
 * are leaves many events in a read.  A piece that is alone is not copied.
 */
static size_t take_chunked(struct call *c, const char *p, size_t n)
{
    static _Thread_local char gathered[WP_READ_BYTES];
    const char *data = NULL, *why = NULL;
    struct wp_str got = {0};
    size_t data_n = 0, at = 0;
    long used = 0;

    n = n < sizeof gathered ? n : sizeof gathered; /* so all of it has room */
    while (at < n && !c->chunked.done) {
        used = wp_chunked_read(&c->chunked, p + at, n - at, &data, &data_n, &why);
        if (used < 0)
            break;
        at += (size_t)used;
        if (data_n == 0)
            continue;
        if (got.n > 0) {
            if (got.p != gathered)
                memcpy(gathered, got.p, got.n);
            memcpy(gathered + got.n, data, data_n);
            data = gathered;
        }
        got = (struct wp_str){data, got.n + data_n};
    }
    hand_over(c, got.p, got.n);
    if (used < 0) {
        verdict(c, (int)used, "chunk");
        return 0;
    }
    if (c->chunked.done && !c->paused) /* who pauses hears of the end when he goes on: resume() */
        whole(c);
    return at;
}

static size_t take_body(struct call *c, const char *p, size_t n)
{
    if (c->framing == WP_BODY_CHUNKED)
        return take_chunked(c, p, n);
    if (c->framing == WP_BODY_LENGTH) {
        if (n > c->left)
            n = (size_t)c->left;
        c->left -= n;
    }
    hand_over(c, p, n);
    if (c->framing == WP_BODY_LENGTH && c->left == 0)
        whole(c);
    return n;
}

/* Works off p[n]; returns how much was used before more is needed, the caller pauses, or there is a
 * verdict. */
static size_t feed(struct call *c, const char *p, size_t n)
{
    size_t at = 0, used;

    while (at < n && !c->over && !c->paused) {
        used = c->state < CALL_BODY ? take_head(c, p + at, n - at) : take_body(c, p + at, n - at);
        if (used == 0)
            break;
        at += used;
    }
    if (c->over && at < n)
        c->keep = false; /* more than the message */
    return at;
}

/* What was kept from earlier reads goes first. */
static void feed_kept(struct call *c)
{
    struct wp_buf *in = &c->uplink->in;
    size_t used = feed(c, in->p, in->n);

    if (!c->over)
        wp_buf_consume(in, used);
}

static void on_read(void *holder, const char *p, size_t n)
{
    struct call *c = holder;
    size_t used = 0;

    c->heard = true;
    if (c->state == CALL_BODY)
        alive(c); /* a head that drips, and interim answers, are no answer yet */
    if (c->uplink->in.n == 0)
        used = feed(c, p, n);
    if (!c->over && used < n) {
        bool waits = c->uplink->in.n > 0;

        if (wp_buf_add(&c->uplink->in, p + used, n - used) < 0)
            verdict(c, WP_ENOMEM, "memory");
        else if (waits && !c->resume)
            feed_kept(c);
    }
    if (c->over)
        wp_call_conclude(c);
    else
        arm(c);
}

static void on_eof(void *holder)
{
    struct call *c = holder;

    c->keep = false;
    if (c->state < CALL_BODY)
        verdict(c, WP_EEOF, "head");
    else if (c->framing == WP_BODY_UNTIL_CLOSE ||
             (c->framing == WP_BODY_CHUNKED && c->chunked.last))
        whole(c);
    else
        verdict(c, WP_EEOF, "body");
    wp_call_conclude(c);
}

/* --- the request --- */

static void sent(struct call *c)
{
    alive(c);
    c->pub.sent_us = c->mark_us;
    if (c->state == CALL_SEND)
        c->state = CALL_WAIT;
}

static void send_request(struct call *c)
{
    struct wp_str piece[2] = {wp_buf_str(&c->out)};
    int rc;

    c->state = CALL_SEND;
    c->pub.phase = WP_CALL_SENT;
    alive(c);
    c->pub.connected_us = c->mark_us;
    if (c->ops->on_sent)
        c->ops->on_sent(&c->pub);
    if (c->over)
        return;
    if (c->body)
        piece[1] = (struct wp_str){c->body->p, c->body->n};
    rc = wp_stream_write(&c->uplink->stream, piece, c->body ? 2 : 1, c->body ? 1 : -1, c->body);
    if (rc < 0) {
        verdict(c, rc, "send");
        return;
    }
    c->taken = wp_stream_taken(&c->uplink->stream);
    if (c->uplink->stream.queued == 0)
        sent(c);
    if (c->paused)
        wp_stream_read_stop(&c->uplink->stream);
    arm(c);
}

static void on_up(void *holder, int rc, const char *why)
{
    struct call *c = holder;

    if (rc < 0) {
        c->uplink = NULL;
        verdict(c, rc, why);
    } else {
        send_request(c);
    }
    if (c->over)
        wp_call_conclude(c);
}

static void on_drain(void *holder)
{
    struct call *c = holder;

    sent(c);
    arm(c);
}

/*
 * While reading goes on it was a write that failed.  The peer may have answered before it closed (a
 * 413, say), so its side is read to the end: that end is sure to come now.
 */
static void on_error(void *holder, int rc)
{
    struct call *c = holder;

    c->keep = false;
    if (c->uplink->stream.reading) {
        if (c->state == CALL_SEND)
            sent(c);
        arm(c);
        return;
    }
    verdict(c, rc, "reset");
    wp_call_conclude(c);
}

const struct wp_uplink_ops wp_call_uplink_ops = {on_up, on_read, on_eof, on_error, on_drain};

/* --- begin, pause, cancel --- */

static void start(struct call *c)
{
    c->state = CALL_DIAL;
    c->uplink = c->fresh ? NULL : wp_uplink_reuse(c->origin, c);
    if (c->uplink) {
        c->pub.reused = true;
        send_request(c);
        return;
    }
    c->uplink = wp_uplink_dial(
        c->origin, c->connect_end_us < c->total_end_us ? c->connect_end_us : c->total_end_us, c);
    if (!c->uplink)
        verdict(c, WP_ENOMEM, "memory");
    else
        arm(c);
}

static void go_on(struct call *c)
{
    c->resume = false;
    if (c->paused || !c->uplink)
        return;
    feed_kept(c);
    if (!c->over && !c->paused && c->framing == WP_BODY_CHUNKED && c->chunked.done)
        whole(c);
    if (!c->over && !c->paused && wp_stream_read_start(&c->uplink->stream) < 0)
        verdict(c, WP_ECONNRESET, "reset");
    if (!c->over)
        arm(c);
}

static void on_timer(struct wp_timer *t)
{
    struct call *c = t->arg;

    if (!c->over && c->state == CALL_START)
        start(c);
    else if (!c->over && c->resume)
        go_on(c);
    else if (!c->over)
        check_deadlines(c);
    if (c->over)
        wp_call_conclude(c);
}

void wp_call_begin(struct call *c)
{
    wp_timer_init(&c->timer, on_timer, c);
    wp_timer_in(c->pub.client->loop, &c->timer, 0);
}

void wp_call_pause(struct wp_call *pub)
{
    struct call *c = (struct call *)pub;

    if (c->paused || c->over)
        return;
    c->paused = true;
    if (c->uplink && c->state >= CALL_SEND)
        wp_stream_read_stop(&c->uplink->stream);
}

void wp_call_resume(struct wp_call *pub)
{
    struct call *c = (struct call *)pub;

    if (!c->paused || c->over)
        return;
    c->paused = false;
    alive(c);
    if (!c->uplink || c->state < CALL_SEND)
        return;       /* connecting: sending begins with reading */
    c->resume = true; /* not in here: on_body must not come inside this call */
    wp_timer_in(c->pub.client->loop, &c->timer, 0);
}

void wp_call_cancel(struct wp_call *pub)
{
    struct call *c = (struct call *)pub;

    if (c->over)
        return;
    verdict(c, WP_ECANCELED, NULL);
    let_go(c);
    wp_timer_in(c->pub.client->loop, &c->timer, 0);
}
