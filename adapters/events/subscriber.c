/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live message in order is applied. A higher number is a gap: it is held, and the replay is asked
 * from the number that was expected; everything live is held until the end marker, then let go in
 * order, and what is still missing by then is a hole. Without a replay a gap is a hole at once.
 *
 * A lower number is a late duplicate, or the first sign of a restart. Three things tell a restart:
 * a later timestamp, being the first message of a new connection, or a row of rising lower numbers
 * (an engine's clock may be set back while it restarts). A number with the very timestamp under
 * which it was applied is no part of such a row: what a replay brought comes again on the live
 * socket, and there it may have been doubled or overtaken.
 *
 * Letting go may be done in bursts, so that thousands of held messages do not hold up a loop. What
 * arrives meanwhile queues behind them, and is judged as the live message it is once its turn
 * comes: then a gap may be found, and what is behind it is simply held again.
 */
#include "adapters/events/subscriber.h"

#include "base/mem.h"

#include <assert.h>

#define END_MARK UINT64_MAX

enum { PENDING_MAX = 4096, PENDING_BYTES = 64 << 20, REPLY_US = 5000000 };

static const char LACKS_ALL[] = "nothing received yet";
static const char LACKS_START[] = "joined after its first batch";
static const char LACKS_HOLE[] = "numbers were lost";
static const char LACKS_REFUSED[] = "a payload was refused";

struct held {
    struct wp_list link;
    uint64_t seq;
    size_t n;
    char payload[];
};

/* clang-format off */
static const char *const action_names[WP_SUB_ACTIONS] = {
    [WP_SUB_APPLY] = "apply",
    [WP_SUB_HOLD] = "hold",
    [WP_SUB_GAP_HOLD] = "gap_hold",
    [WP_SUB_DROP_DUP] = "drop_dup",
    [WP_SUB_HOLE_CLEAR_APPLY] = "hole_clear_apply",
    [WP_SUB_RESTART_CLEAR_APPLY] = "restart_clear_apply",
    [WP_SUB_RESTART_CLEAR] = "restart_clear",
    [WP_SUB_REJECT_CLEAR] = "reject_clear",
    [WP_SUB_MALFORMED] = "malformed",
    [WP_SUB_END] = "end",
    [WP_SUB_REPLAY_TIMEOUT] = "replay_timeout",
    [WP_SUB_PROBE_OK] = "probe_ok",
    [WP_SUB_PROBE_MISMATCH] = "probe_mismatch",
    [WP_SUB_IGNORE] = "ignore",
};
/* clang-format on */

const char *wp_sub_action_name(enum wp_sub_action a)
{
    return action_names[a];
}

const char *wp_feed_state_name(enum wp_feed_state s)
{
    static const char *const names[WP_FEED_STATES] = {"unknown", "syncing", "live", "gapped"};

    return names[s];
}

static void tell(struct wp_subscriber *s, enum wp_sub_action action)
{
    s->conf.step(s->conf.arg, &(struct wp_sub_step){.action = action});
}

static void tell_seq(struct wp_subscriber *s, enum wp_sub_action action, uint64_t seq)
{
    s->conf.step(s->conf.arg,
                 &(struct wp_sub_step){.action = action, .numbered = true, .seq = seq});
}

static void malformed(struct wp_subscriber *s)
{
    s->counts.malformed++;
    tell(s, WP_SUB_MALFORMED);
}

static void duplicate(struct wp_subscriber *s, uint64_t seq)
{
    s->counts.duplicates++;
    tell_seq(s, WP_SUB_DROP_DUP, seq);
}

static void ask(struct wp_subscriber *s, uint64_t start, uint64_t now_us)
{
    s->counts.replays++;
    s->replaying = true;
    s->letting = 0; /* what is held is held again */
    s->asking = true;
    s->start = start;
    s->deadline_us = now_us + s->conf.reply_us;
}

static uint64_t number(struct wp_str f)
{
    uint64_t v = 0;

    for (size_t i = 0; i < f.n; i++)
        v = v << 8 | (unsigned char)f.p[i];
    return v;
}

/* -- the queue of held messages -- */

static size_t held_cost(size_t payload)
{
    return sizeof(struct held) + payload;
}

static struct held *first_held(const struct wp_subscriber *s)
{
    return WP_CONTAINER(s->pending.next, struct held, link);
}

static struct held *pop_held(struct wp_subscriber *s)
{
    struct held *h = WP_CONTAINER(wp_list_shift(&s->pending), struct held, link);

    s->held--;
    s->held_bytes -= held_cost(h->n);
    if (s->letting > 0)
        s->letting--;
    return h;
}

static bool has_room(const struct wp_subscriber *s, size_t payload)
{
    return s->held < s->conf.pending_max &&
           s->held_bytes + held_cost(payload) <= s->conf.pending_bytes;
}

/* Room is made by dropping the oldest.  What is dropped shows as a gap in due course. */
static void push_held(struct wp_subscriber *s, uint64_t seq, struct wp_str payload)
{
    struct held *h;

    while (s->held > 0 && !has_room(s, payload.n) &&
           held_cost(payload.n) <= s->conf.pending_bytes) {
        wp_free(pop_held(s));
        s->counts.dropped++;
    }
    h = has_room(s, payload.n) ? wp_malloc(sizeof *h + payload.n) : NULL;
    if (!h) {
        s->counts.dropped++;
        return;
    }
    h->seq = seq;
    h->n = payload.n;
    if (payload.n > 0)
        memcpy(h->payload, payload.p, payload.n);
    wp_list_push(&s->pending, &h->link);
    s->held++;
    s->held_bytes += held_cost(h->n);
}

static void drop_held(struct wp_subscriber *s)
{
    while (s->held > 0)
        wp_free(pop_held(s));
}

/* -- numbers -- */

/* Whether the publisher is known from its beginning once this batch is taken.  Some count from 1.
 */
static void learn(struct wp_subscriber *s, uint64_t seq, enum wp_clear clear)
{
    if (!s->begun)
        s->lacks = seq <= 1 ? NULL : LACKS_START;
    else if (clear == WP_CLEAR_DOUBT)
        s->lacks = LACKS_HOLE;
    s->begun = true;
}

static void restarted(struct wp_subscriber *s)
{
    s->counts.restarts++;
    s->begun = false;
    s->lacks = LACKS_ALL;
}

/* Without memory nothing is remembered, and duplicates are told by the other rules alone. */
static void remember(struct wp_subscriber *s, uint64_t seq, double ts)
{
    if (!s->seen)
        s->seen = wp_calloc(WP_SUB_SEEN, sizeof *s->seen);
    if (s->seen)
        s->seen[seq % WP_SUB_SEEN] = (struct wp_sub_seen){seq + 1, ts};
}

static bool is_remembered(const struct wp_subscriber *s, uint64_t seq, double ts)
{
    const struct wp_sub_seen *b = s->seen ? &s->seen[seq % WP_SUB_SEEN] : NULL;

    return b && b->after == seq + 1 && b->ts == ts;
}

/* Goes on to the number after seq, whether the payload is any good or not. */
static void take(struct wp_subscriber *s, uint64_t seq, struct wp_str payload,
                 enum wp_sub_action action)
{
    struct wp_sub_step step = {
        .action = action, .apply = true, .numbered = true, .seq = seq, .payload = payload};
    struct wp_batch_head head = {0};

    s->known = true;
    s->next = seq + 1; /* seq is below the end mark */
    s->fresh = s->resumed = false;
    s->dup_run = 0;
    if (action == WP_SUB_HOLE_CLEAR_APPLY) {
        s->counts.holes++;
        step.clear = WP_CLEAR_DOUBT;
    } else if (action == WP_SUB_RESTART_CLEAR_APPLY) {
        restarted(s);
        step.clear = WP_CLEAR_GONE;
    }
    learn(s, seq, step.clear);
    if (s->conf.head(s->conf.arg, payload, &head)) {
        s->timed = true;
        s->last_ts = head.ts;
        s->counts.applied++;
        remember(s, seq, head.ts);
    } else {
        s->counts.refused++;
        s->lacks = LACKS_REFUSED;
        step.action = WP_SUB_REJECT_CLEAR;
        step.apply = false;
        /* A refused first message of a restart does not bring the old incarnation back. */
        step.clear = step.clear == WP_CLEAR_GONE ? WP_CLEAR_GONE : WP_CLEAR_DOUBT;
    }
    s->conf.step(s->conf.arg, &step);
}

/* A number that is not lower than the one expected. */
static void advance(struct wp_subscriber *s, uint64_t seq, struct wp_str payload)
{
    bool missing = seq > s->next && !(s->back && s->next == 0); /* a resync has no beginning to miss */
    bool hole = s->known && (missing || s->resumed);

    take(s, seq, payload, hole ? WP_SUB_HOLE_CLEAR_APPLY : WP_SUB_APPLY);
}

/*
 * A live message, now or once it was held.  What a replay brought first comes again on the live
 * socket, as many lower numbers in a rising row as there are: they go on from the live number
 * before.  A restart's row begins with a fall.
 */
static void in_order(struct wp_subscriber *s, uint64_t seq, struct wp_str payload)
{
    struct wp_batch_head head = {0};
    bool fell = s->heard && seq <= s->live_last, timed, later;

    s->heard = true;
    s->live_last = seq;
    if (!s->known || seq >= s->next) {
        advance(s, seq, payload);
        return;
    }
    timed = s->conf.head(s->conf.arg, payload, &head);
    if (timed && is_remembered(s, seq, head.ts))
        s->dup_run = 0;
    else
        s->dup_run = fell ? 1 : s->dup_run > 0 ? s->dup_run + 1 : 0;
    later = timed && s->timed && head.ts > s->last_ts;
    if (later || s->fresh || s->dup_run >= WP_SUB_RESTART_RUN)
        take(s, seq, payload, WP_SUB_RESTART_CLEAR_APPLY);
    else
        duplicate(s, seq);
}

static bool is_gap(const struct wp_subscriber *s, uint64_t seq)
{
    return s->conf.replay && s->known && seq > s->next;
}

static void gap(struct wp_subscriber *s, uint64_t seq, uint64_t now_us)
{
    s->counts.gaps++;
    s->gapped = true;
    ask(s, s->next, now_us);
    tell_seq(s, WP_SUB_GAP_HOLD, seq);
}

static void release_one(struct wp_subscriber *s, uint64_t now_us)
{
    bool live = s->letting == 0; /* it came after the end of the replay */
    struct held *h = first_held(s);

    if (live && is_gap(s, h->seq)) {
        gap(s, h->seq, now_us);
        return;
    }
    h = pop_held(s);
    in_order(s, h->seq, (struct wp_str){h->payload, h->n});
    wp_free(h);
}

bool wp_subscriber_more(const struct wp_subscriber *s)
{
    return s->held > 0 && !s->replaying;
}

void wp_subscriber_release(struct wp_subscriber *s, uint64_t now_us)
{
    for (size_t n = 0; wp_subscriber_more(s) && (s->conf.burst == 0 || n < s->conf.burst); n++)
        release_one(s, now_us);
}

/* What a resync did not bring stays as it was. */
static void go_on(struct wp_subscriber *s)
{
    if (s->next < s->back) {
        s->next = s->back;
        s->last_ts = s->back_ts;
    }
    if (s->back)
        s->begun = true;
    s->back = 0;
}

/* The replay is over: what was held so far goes by the rule for what is missing for good. */
static void let_go(struct wp_subscriber *s, uint64_t now_us)
{
    go_on(s);
    s->replaying = s->gapped = s->asking = false;
    s->letting = s->held;
    wp_subscriber_release(s, now_us);
}

/* -- inputs -- */

void wp_subscriber_connected(struct wp_subscriber *s, uint64_t now_us)
{
    s->up = s->met = true;
    go_on(s); /* the probe is about the last batch of all */
    s->asking = s->heard = false;
    s->fresh = s->known;
    if (!s->conf.replay)
        return;
    if (!s->known) {
        s->known = true;
        s->next = 0;
    }
    s->probing = s->next > 0;
    s->probe = s->probing ? s->next - 1 : 0;
    s->gapped = false;
    ask(s, s->probe, now_us);
}

bool wp_subscriber_resync(struct wp_subscriber *s, uint64_t now_us)
{
    if (!s->conf.replay || !s->up || !s->known || s->next == 0 || s->replaying || s->held > 0)
        return false;
    s->back = s->next;
    s->back_ts = s->last_ts;
    s->next = 0;
    s->begun = false; /* its first batch says whether all is known */
    ask(s, 0, now_us);
    return true;
}

void wp_subscriber_disconnected(struct wp_subscriber *s)
{
    s->up = false;
}

void wp_subscriber_live(struct wp_subscriber *s, const struct wp_str frame[], size_t n,
                        uint64_t now_us)
{
    uint64_t seq;

    s->counts.messages++;
    if (n != 3 || frame[1].n != sizeof seq || (seq = number(frame[1])) == END_MARK) {
        malformed(s);
        return;
    }
    s->counts.bytes += frame[2].n;
    while (wp_subscriber_more(s) && !has_room(s, frame[2].n))
        release_one(s, now_us);
    if (s->replaying || s->held > 0) {
        push_held(s, seq, frame[2]);
        tell_seq(s, WP_SUB_HOLD, seq);
        return;
    }
    if (is_gap(s, seq)) {
        push_held(s, seq, frame[2]);
        gap(s, seq, now_us);
        return;
    }
    in_order(s, seq, frame[2]);
}

static void on_end(struct wp_subscriber *s, uint64_t now_us)
{
    struct wp_sub_step step = {.action = WP_SUB_RESTART_CLEAR, .clear = WP_CLEAR_GONE};

    if (!s->probing) {
        tell(s, WP_SUB_END);
        if (s->replaying)
            let_go(s, now_us);
        return;
    }
    s->probing = s->foreign = false; /* it no longer knows our last batch: a new incarnation */
    s->resumed = false;
    s->next = 0;
    restarted(s);
    ask(s, 0, now_us);
    s->conf.step(s->conf.arg, &step);
}

/* The same number and the same batch: nothing changed hands. */
static void on_probe(struct wp_subscriber *s, uint64_t seq, struct wp_str payload)
{
    struct wp_batch_head head = {0};
    bool timed = s->conf.head(s->conf.arg, payload, &head);
    bool same = timed == s->timed && (!timed || head.ts == s->last_ts);

    s->foreign = !same;
    if (same)
        s->probing = s->fresh = s->resumed = false;
    tell_seq(s, same ? WP_SUB_PROBE_OK : WP_SUB_PROBE_MISMATCH, seq);
}

void wp_subscriber_reply(struct wp_subscriber *s, const struct wp_str frame[], size_t n,
                         uint64_t now_us)
{
    uint64_t seq;

    s->counts.replies++;
    if ((n != 3 && n != 4) || frame[0].n > 0 || frame[n - 2].n != sizeof seq) {
        malformed(s);
        return;
    }
    seq = number(frame[n - 2]);
    s->gapped = false;
    s->deadline_us = now_us + s->conf.reply_us;
    if (!s->known || !s->conf.replay) { /* nobody asked */
        tell(s, WP_SUB_IGNORE);
        return;
    }
    if (seq == END_MARK) {
        on_end(s, now_us);
        return;
    }
    if (s->probing && seq == s->probe) {
        on_probe(s, seq, frame[n - 1]);
        return;
    }
    /* Behind the end marker held messages may still be waiting for their turn: they come first, and
     * what this reply carries is among them or will be missed and asked for. */
    if ((s->probing && s->foreign) || wp_subscriber_more(s)) {
        tell_seq(s, WP_SUB_IGNORE, seq);
        return;
    }
    s->probing = false; /* our last batch has left its buffer */
    if (seq < s->next)
        duplicate(s, seq);
    else
        advance(s, seq, frame[n - 1]);
}

uint64_t wp_subscriber_deadline(const struct wp_subscriber *s)
{
    return s->replaying ? s->deadline_us : UINT64_MAX;
}

void wp_subscriber_timeout(struct wp_subscriber *s, uint64_t now_us)
{
    struct wp_sub_step step = {.action = WP_SUB_REPLAY_TIMEOUT};

    s->counts.timeouts++;
    s->asking = false;
    if (s->probing && s->foreign) { /* silent, but known to be another incarnation */
        step.clear = WP_CLEAR_GONE;
        restarted(s);
        s->known = s->resumed = false;
    }
    s->probing = s->foreign = false;
    s->conf.step(s->conf.arg, &step);
    if (s->replaying)
        let_go(s, now_us);
}

bool wp_subscriber_request(struct wp_subscriber *s, uint64_t *start)
{
    bool asking = s->asking;

    s->asking = false;
    *start = s->start;
    return asking;
}

/* -- the rest -- */

enum wp_feed_state wp_subscriber_state(const struct wp_subscriber *s, const char **why)
{
    if (!s->up) {
        *why = s->met ? "disconnected" : "not connected yet";
        return WP_FEED_UNKNOWN;
    }
    if (s->gapped) {
        *why = "numbers are missing, replay asked for";
        return WP_FEED_GAPPED;
    }
    if (s->replaying || s->letting > 0) {
        *why = s->probing ? "asked whether it is the same publisher" : "replay";
        return WP_FEED_SYNCING;
    }
    *why = s->lacks ? s->lacks : "known from its first batch";
    return WP_FEED_LIVE;
}

bool wp_subscriber_whole(const struct wp_subscriber *s)
{
    return !s->lacks;
}

void wp_subscriber_forget(struct wp_subscriber *s)
{
    drop_held(s);
    s->known = s->timed = s->probing = s->asking = s->replaying = s->gapped = s->foreign =
        s->fresh = false;
    s->begun = s->heard = s->resumed = false;
    s->back = 0;
    s->dup_run = 0;
    s->lacks = LACKS_ALL;
}

struct wp_sub_mark wp_subscriber_mark(const struct wp_subscriber *s)
{
    return (struct wp_sub_mark){s->known && s->begun ? s->next : 0, s->last_ts, s->timed,
                                !s->lacks};
}

void wp_subscriber_resume(struct wp_subscriber *s, const struct wp_sub_mark *m)
{
    if (!m->next)
        return;
    s->known = s->begun = s->resumed = true;
    s->next = m->next;
    s->timed = m->timed;
    s->last_ts = m->last_ts;
    s->lacks = m->whole ? NULL : LACKS_START;
}

void wp_subscriber_init(struct wp_subscriber *s, const struct wp_sub_conf *conf)
{
    *s = (struct wp_subscriber){.conf = *conf, .lacks = LACKS_ALL};
    if (s->conf.pending_max == 0)
        s->conf.pending_max = PENDING_MAX;
    if (s->conf.pending_bytes == 0)
        s->conf.pending_bytes = PENDING_BYTES;
    if (s->conf.reply_us == 0)
        s->conf.reply_us = REPLY_US;
    wp_list_init(&s->pending);
}

void wp_subscriber_fini(struct wp_subscriber *s)
{
    drop_held(s);
    wp_free(s->seen);
    s->seen = NULL;
    assert(s->held_bytes == 0);
}
