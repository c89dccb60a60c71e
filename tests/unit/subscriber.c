/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/subscriber.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/lib/capture.h"
#include "tests/lib/test.h"

enum { LOG_MAX = 16384, SECOND = 1000000 };

/* What a subscriber did. */
struct log {
    struct wp_sub_step step[LOG_MAX];
    size_t n;
    uint64_t payload_bytes;
};

static void on_step(void *arg, const struct wp_sub_step *step)
{
    struct log *log = arg;

    if (log->n < LOG_MAX)
        log->step[log->n++] = *step;
    log->payload_bytes += step->payload.n;
}

static struct wp_sub_conf conf_for(struct log *log, bool replay)
{
    return (struct wp_sub_conf){.replay = replay, .head = cap_head, .step = on_step, .arg = log};
}

static void feed_step(struct wp_subscriber *s, const struct cap_step *at)
{
    switch (at->kind) {
    case CAP_CONNECTED:
        wp_subscriber_connected(s, 0);
        break;
    case CAP_LIVE:
        wp_subscriber_live(s, at->frame, at->frames, 0);
        break;
    case CAP_REPLY:
        wp_subscriber_reply(s, at->frame, at->frames, 0);
        break;
    case CAP_TIMEOUT:
        wp_subscriber_timeout(s, 0);
        break;
    }
}

static void play(const struct cap *c, size_t burst)
{
    struct log *log = wp_calloc(1, sizeof *log);
    struct wp_sub_conf conf = conf_for(log, c->replay);
    struct wp_subscriber s;
    const char *why;

    conf.burst = burst;
    wp_subscriber_init(&s, &conf);
    for (size_t i = 0; i < c->steps; i++) {
        const struct cap_step *at = &c->step[i];
        char label[128];
        uint64_t start;

        snprintf(label, sizeof label, "%s step %zu", c->name, i);
        log->n = 0;
        feed_step(&s, at);
        while (wp_subscriber_more(&s))
            wp_subscriber_release(&s, 0);
        EXPECT_UINT(label, at->expects, log->n);
        for (size_t k = 0; k < at->expects && k < log->n; k++) {
            EXPECT_TEXT(label, at->expect[k].action,
                        wp_str_of(wp_sub_action_name(log->step[k].action)));
            EXPECT_INT(label, at->expect[k].numbered, log->step[k].numbered);
            EXPECT_UINT(label, at->expect[k].seq, log->step[k].seq);
        }
        EXPECT_INT(label, at->asks, wp_subscriber_request(&s, &start));
        if (at->asks)
            EXPECT_UINT(label, at->start, start);
    }
    EXPECT_UINT(c->name, c->next, s.next);
    EXPECT_INT(c->name, c->replaying, wp_subscriber_deadline(&s) != UINT64_MAX);
    EXPECT_INT(c->name, WP_FEED_LIVE, wp_subscriber_state(&s, &why));
    wp_subscriber_fini(&s);
    wp_free(log);
}

static void every_script_is_followed_step_by_step(void)
{
    for (int i = 0; cap_names[i]; i++) {
        struct cap c;

        if (cap_load(&c, cap_names[i])) {
            play(&c, 0);
            play(&c, 1);
        }
        cap_fini(&c);
    }
}

/* -- messages made by hand -- */

struct rig {
    struct wp_subscriber s;
    struct log *log;
};

static void rig_init(struct rig *r, bool replay, void (*tune)(struct wp_sub_conf *conf))
{
    struct wp_sub_conf conf;

    r->log = wp_calloc(1, sizeof *r->log);
    conf = conf_for(r->log, replay);
    if (tune)
        tune(&conf);
    wp_subscriber_init(&r->s, &conf);
}

static void rig_fini(struct rig *r)
{
    wp_subscriber_fini(&r->s);
    wp_free(r->log);
}

static void live_of(struct rig *r, uint64_t seq, double ts, size_t size, uint64_t now)
{
    char number[8], *payload = wp_calloc(1, size > 12 ? size : 12);
    size_t n = cap_payload(payload, ts, -1);

    wp_subscriber_live(
        &r->s,
        (struct wp_str[]){WP_STR("t"), cap_number(number, seq), {payload, size > n ? size : n}}, 3,
        now);
    wp_free(payload);
}

static void live(struct rig *r, uint64_t seq, double ts)
{
    live_of(r, seq, ts, 0, 0);
}

static void reply_at(struct rig *r, uint64_t seq, double ts, uint64_t now)
{
    char number[8], payload[16];
    size_t n = cap_payload(payload, ts, -1);

    wp_subscriber_reply(&r->s, (struct wp_str[]){{"", 0}, cap_number(number, seq), {payload, n}}, 3,
                        now);
}

static void reply(struct rig *r, uint64_t seq, double ts)
{
    reply_at(r, seq, ts, 0);
}

static void refused(struct rig *r, uint64_t seq)
{
    char number[8];

    wp_subscriber_live(&r->s, (struct wp_str[]){{"", 0}, cap_number(number, seq), WP_STR("\xc1")},
                       3, 0);
}

/* The steps since the last look, as one line: "apply 3, hold 4". */
static void did(struct rig *r, const char *label, const char *want)
{
    struct wp_buf b = {0};

    for (size_t i = 0; i < r->log->n; i++) {
        const struct wp_sub_step *s = &r->log->step[i];
        static const char *const clears[] = {"", " doubt", " gone"};

        wp_buf_printf(&b, "%s%s", i ? ", " : "", wp_sub_action_name(s->action));
        if (s->numbered)
            wp_buf_printf(&b, " %llu", (unsigned long long)s->seq);
        wp_buf_adds(&b, clears[s->clear]);
    }
    EXPECT_TEXT(label, want, wp_buf_str(&b));
    wp_buf_fini(&b);
    r->log->n = 0;
}

static void asks(struct rig *r, const char *label, long long want)
{
    uint64_t start;

    EXPECT_INT(label, want, wp_subscriber_request(&r->s, &start) ? (long long)start : -1);
    EXPECT_TRUE("only once", !wp_subscriber_request(&r->s, &start));
}

static void in_state(struct rig *r, enum wp_feed_state want, const char *why_want)
{
    const char *why;

    EXPECT_TEXT("state", wp_feed_state_name(want),
                wp_str_of(wp_feed_state_name(wp_subscriber_state(&r->s, &why))));
    EXPECT_TEXT("reason", why_want, wp_str_of(why));
}

static void the_state_and_its_reason_follow_the_feed(void)
{
    struct rig r;

    rig_init(&r, true, NULL);
    in_state(&r, WP_FEED_UNKNOWN, "not connected yet");
    EXPECT_TRUE("nothing known", !wp_subscriber_whole(&r.s));
    wp_subscriber_connected(&r.s, 0);
    in_state(&r, WP_FEED_SYNCING, "replay");
    asks(&r, "all", 0);
    reply(&r, 0, 1);
    reply(&r, UINT64_MAX, 0);
    in_state(&r, WP_FEED_LIVE, "known from its first batch");
    live(&r, 4, 5);
    in_state(&r, WP_FEED_GAPPED, "numbers are missing, replay asked for");
    asks(&r, "what is missing", 1);
    reply(&r, 2, 3);
    in_state(&r, WP_FEED_SYNCING, "replay");
    reply(&r, UINT64_MAX, 0);
    in_state(&r, WP_FEED_LIVE, "numbers were lost");
    wp_subscriber_disconnected(&r.s);
    in_state(&r, WP_FEED_UNKNOWN, "disconnected");
    wp_subscriber_connected(&r.s, 0);
    in_state(&r, WP_FEED_SYNCING, "asked whether it is the same publisher");
    reply(&r, UINT64_MAX, 0);
    in_state(&r, WP_FEED_SYNCING, "replay");
    reply(&r, UINT64_MAX, 0);
    in_state(&r, WP_FEED_LIVE, "nothing received yet");
    live(&r, 0, 9);
    EXPECT_TRUE("known from its new beginning", wp_subscriber_whole(&r.s));
    refused(&r, 1);
    in_state(&r, WP_FEED_LIVE, "a payload was refused");
    rig_fini(&r);

    rig_init(&r, false, NULL);
    wp_subscriber_connected(&r.s, 0);
    in_state(&r, WP_FEED_LIVE, "nothing received yet");
    live(&r, 7, 1);
    in_state(&r, WP_FEED_LIVE, "joined after its first batch");
    live(&r, 0, 2);
    in_state(&r, WP_FEED_LIVE, "known from its first batch");
    rig_fini(&r);
}

static void each_clear_says_whether_entries_are_doubtful_or_gone(void)
{
    struct rig r;

    rig_init(&r, false, NULL);
    wp_subscriber_connected(&r.s, 0);
    live(&r, 3, 1);
    live(&r, 5, 2);
    refused(&r, 6);
    live(&r, 0, 3);
    did(&r, "no replay",
        "apply 3, hole_clear_apply 5 doubt, reject_clear 6 doubt, restart_clear_apply 0 gone");
    wp_subscriber_connected(&r.s, 0);
    live(&r, 1, 4);
    wp_subscriber_connected(&r.s, 0);
    refused(&r, 0);
    did(&r, "a refused first message of a restart", "apply 1, reject_clear 0 gone");
    rig_fini(&r);
}

/* Found over real sockets: a row of ten held messages that the replay had brought was taken for a
 * restart. */
static void what_a_replay_brought_first_is_no_restart_when_it_comes_again(void)
{
    struct rig r;

    rig_init(&r, true, NULL);
    wp_subscriber_connected(&r.s, 0);
    for (uint64_t i = 0; i < 10; i++)
        live(&r, i, (double)i);
    for (uint64_t i = 0; i < 40; i++)
        reply(&r, i, (double)i);
    reply(&r, UINT64_MAX, 0); /* lets the ten go */
    for (uint64_t i = 10; i < 40; i++)
        live(&r, i, (double)i); /* they were still unread */
    live(&r, 40, 40);
    EXPECT_UINT("all are duplicates", 40, r.s.counts.duplicates);
    EXPECT_UINT("nothing restarted", 0, r.s.counts.restarts);
    EXPECT_UINT("applied once", 41, r.s.counts.applied);
    for (uint64_t i = 20; i < 28; i++)
        live(&r, i, 1); /* a fall, and a clock that was set back */
    EXPECT_UINT("that is one", 1, r.s.counts.restarts);
    rig_fini(&r);
}

/* Found over real sockets with messages doubled and reordered: the fall began a row that the
 * replay's messages went on with. */
static void nor_is_it_one_when_a_message_is_doubled_or_overtaken(void)
{
    struct rig r;

    rig_init(&r, true, NULL);
    wp_subscriber_connected(&r.s, 0);
    reply(&r, UINT64_MAX, 0);
    for (uint64_t i = 0; i < 10; i++)
        live(&r, i, (double)i);
    live(&r, 11, 11); /* it has overtaken 10 */
    for (uint64_t i = 10; i < 40; i++)
        reply(&r, i, (double)i);
    reply(&r, UINT64_MAX, 0);
    for (uint64_t i = 10; i < 40; i++) {
        if (i != 11)
            live(&r, i, (double)i);
        if (i == 12)
            live(&r, i, (double)i);
    }
    live(&r, 40, 40);
    EXPECT_UINT("nothing restarted", 0, r.s.counts.restarts);
    EXPECT_UINT("applied once", 41, r.s.counts.applied);
    for (uint64_t i = 30; i < 38; i++)
        live(&r, i, (double)i - 0.5); /* the same numbers, another life */
    EXPECT_UINT("that is one", 1, r.s.counts.restarts);
    rig_fini(&r);
}

static void small_queue(struct wp_sub_conf *conf)
{
    conf->pending_max = 4;
}

static void small_bytes(struct wp_sub_conf *conf)
{
    conf->pending_bytes = 1000;
}

static void a_full_queue_drops_the_oldest_and_that_is_a_hole(void)
{
    struct rig r;

    rig_init(&r, true, small_queue);
    wp_subscriber_connected(&r.s, 0);
    for (uint64_t i = 0; i < 7; i++)
        live(&r, i, (double)i);
    r.log->n = 0;
    EXPECT_UINT("bounded", 4, r.s.held);
    EXPECT_UINT("counted", 3, r.s.counts.dropped);
    reply(&r, 0, 0);
    reply(&r, UINT64_MAX, 0);
    did(&r, "by count", "apply 0, end, hole_clear_apply 3 doubt, apply 4, apply 5, apply 6");
    rig_fini(&r);

    rig_init(&r, true, small_bytes);
    wp_subscriber_connected(&r.s, 0);
    for (uint64_t i = 0; i < 100; i++) {
        live_of(&r, i, (double)i, 100 + i, 0);
        EXPECT_TRUE("bounded by bytes", r.s.held_bytes <= 1000 && (i < 4 || r.s.held > 3));
    }
    EXPECT_UINT("counted", 100 - r.s.held, r.s.counts.dropped);
    live_of(&r, 100, 100, 2000, 0);
    EXPECT_TRUE("one too big for the queue takes nobody else's place", r.s.held > 2);
    r.log->n = 0;
    reply(&r, UINT64_MAX, 0);
    EXPECT_UINT("the first let go is a hole", 1, r.s.counts.holes);
    live(&r, 101, 101);
    asks(&r, "and the one too big is missed", 100);
    rig_fini(&r);
}

static void a_message_that_memory_has_no_room_for_is_a_gap_later(void)
{
    struct rig r;

    rig_init(&r, true, NULL);
    wp_subscriber_connected(&r.s, 0);
    asks(&r, "at first", 0);
    live(&r, 0, 1);
    wp_mem_fail_after(1); /* the first is the test's own */
    live(&r, 1, 2);
    EXPECT_TRUE("failed", wp_mem_failed());
    wp_mem_fail_after(-1);
    live(&r, 2, 3);
    reply(&r, UINT64_MAX, 0);
    did(&r, "hole", "hold 0, hold 1, hold 2, end, apply 0, hole_clear_apply 2 doubt");
    EXPECT_UINT("counted", 1, r.s.counts.dropped);
    rig_fini(&r);
}

static void burst_of_two(struct wp_sub_conf *conf)
{
    conf->burst = 2;
    conf->pending_max = 6;
}

static void what_was_held_goes_in_bursts_and_new_ones_queue_behind(void)
{
    struct rig r;

    rig_init(&r, true, burst_of_two);
    wp_subscriber_connected(&r.s, 0);
    asks(&r, "all", 0);
    for (uint64_t i = 0; i < 5; i++)
        live(&r, i, (double)i);
    r.log->n = 0;
    reply(&r, UINT64_MAX, 0);
    did(&r, "two at once", "end, apply 0, apply 1");
    live(&r, 5, 5);
    live(&r, 8, 8);
    live(&r, 9, 9);
    reply(&r, 7, 7);
    did(&r, "behind the others", "hold 5, hold 8, hold 9, ignore 7");
    live(&r, 10, 10);
    did(&r, "a full queue goes on instead of dropping", "apply 2, hold 10");
    wp_subscriber_release(&r.s, 0);
    did(&r, "two more", "apply 3, apply 4");
    wp_subscriber_release(&r.s, 0);
    did(&r, "a gap among those that came late", "apply 5, gap_hold 8");
    asks(&r, "it", 6);
    EXPECT_TRUE("the rest waits", !wp_subscriber_more(&r.s));
    reply(&r, 6, 6);
    reply(&r, UINT64_MAX, 0);
    wp_subscriber_release(&r.s, 0);
    did(&r, "rest", "apply 6, end, hole_clear_apply 8 doubt, apply 9, apply 10");
    EXPECT_UINT("nothing dropped", 0, r.s.counts.dropped);
    rig_fini(&r);
}

static void a_replay_may_be_slow_but_not_silent(void)
{
    struct rig r;

    rig_init(&r, true, NULL);
    EXPECT_UINT("nothing asked", UINT64_MAX, wp_subscriber_deadline(&r.s));
    wp_subscriber_connected(&r.s, SECOND);
    EXPECT_UINT("from the question", 6 * SECOND, wp_subscriber_deadline(&r.s));
    reply_at(&r, 0, 1, 4 * SECOND);
    EXPECT_UINT("from the last reply", 9 * SECOND, wp_subscriber_deadline(&r.s));
    live_of(&r, 3, 4, 0, 8 * SECOND);
    EXPECT_UINT("not from live ones", 9 * SECOND, wp_subscriber_deadline(&r.s));
    wp_subscriber_timeout(&r.s, 9 * SECOND);
    EXPECT_UINT("over", UINT64_MAX, wp_subscriber_deadline(&r.s));
    r.log->n = 0;
    reply_at(&r, 1, 2, 10 * SECOND);
    reply_at(&r, 3, 4, 10 * SECOND);
    reply_at(&r, 4, 5, 10 * SECOND);
    reply_at(&r, UINT64_MAX, 0, 10 * SECOND);
    did(&r, "late replies", "drop_dup 1, drop_dup 3, apply 4, end");
    rig_fini(&r);
}

static void a_resync_brings_all_again_and_goes_on_where_it_was(void)
{
    struct rig r;
    uint64_t start = 7;

    rig_init(&r, true, NULL);
    EXPECT_TRUE("nobody is there", !wp_subscriber_resync(&r.s, 0));
    wp_subscriber_connected(&r.s, 0);
    EXPECT_TRUE("a replay runs", !wp_subscriber_resync(&r.s, 0));
    for (uint64_t i = 0; i < 4; i++)
        reply(&r, i, (double)i);
    reply(&r, UINT64_MAX, 0);
    wp_subscriber_request(&r.s, &start);
    r.log->n = 0;
    EXPECT_TRUE("now", wp_subscriber_resync(&r.s, 0));
    EXPECT_TRUE("asked", wp_subscriber_request(&r.s, &start));
    EXPECT_UINT("from the beginning", 0, start);
    live(&r, 4, 4);  /* waits */
    reply(&r, 2, 2); /* the first ones have left its buffer, which is no hole */
    reply(&r, 3, 3);
    reply(&r, UINT64_MAX, 0);
    did(&r, "again", "hold 4, apply 2, apply 3, end, apply 4");
    EXPECT_TRUE("its beginning is not known any more", !wp_subscriber_whole(&r.s));
    r.log->n = 0;
    wp_subscriber_resync(&r.s, 0);
    reply(&r, UINT64_MAX, 0); /* nothing is left */
    live(&r, 5, 5);
    did(&r, "goes on", "end, apply 5");
    r.log->n = 0;
    wp_subscriber_resync(&r.s, 0);
    reply(&r, 0, 0);
    wp_subscriber_timeout(&r.s, 0);
    live(&r, 5, 5);
    live(&r, 6, 6);
    did(&r, "broken off", "apply 0, replay_timeout, drop_dup 5, apply 6");
    wp_subscriber_resync(&r.s, 0);
    r.log->n = 0;
    wp_subscriber_connected(&r.s, 0);
    EXPECT_TRUE("asked", wp_subscriber_request(&r.s, &start));
    EXPECT_UINT("whether it is the same", 6, start);
    reply(&r, 6, 6);
    reply(&r, UINT64_MAX, 0);
    did(&r, "a connection in between", "probe_ok 6, end");
    rig_fini(&r);
    rig_init(&r, false, NULL);
    wp_subscriber_connected(&r.s, 0);
    live(&r, 1, 1);
    EXPECT_TRUE("no replay", !wp_subscriber_resync(&r.s, 0));
    rig_fini(&r);
}

static void a_foreign_publisher_that_falls_silent_is_gone_all_the_same(void)
{
    struct rig r;

    rig_init(&r, true, NULL);
    wp_subscriber_connected(&r.s, 0);
    reply(&r, 0, 1);
    reply(&r, 1, 2);
    reply(&r, UINT64_MAX, 0);
    wp_subscriber_connected(&r.s, 0);
    reply(&r, 1, 50);
    live(&r, 2, 51);
    r.log->n = 0;
    wp_subscriber_timeout(&r.s, 0);
    did(&r, "not taken for the old one's next batch", "replay_timeout gone, apply 2");
    EXPECT_TRUE("joined late", !wp_subscriber_whole(&r.s));
    rig_fini(&r);
}

static void what_was_forgotten_is_asked_for_from_the_start(void)
{
    struct rig r;

    rig_init(&r, true, NULL);
    wp_subscriber_connected(&r.s, 0);
    live(&r, 0, 1);
    reply(&r, 0, 1);
    wp_subscriber_disconnected(&r.s);
    wp_subscriber_forget(&r.s);
    asks(&r, "nothing", -1);
    EXPECT_UINT("nothing runs", UINT64_MAX, wp_subscriber_deadline(&r.s));
    EXPECT_UINT("nothing held", 0, r.s.held);
    wp_subscriber_connected(&r.s, 0);
    asks(&r, "all", 0);
    rig_fini(&r);
}

static void replies_that_nobody_asked_for_change_nothing(void)
{
    struct rig r;

    rig_init(&r, false, NULL);
    reply(&r, 0, 1);
    live(&r, 3, 1);
    reply(&r, 4, 2);
    reply(&r, UINT64_MAX, 2);
    live(&r, 4, 2);
    did(&r, "no replay", "ignore, apply 3, ignore, ignore, apply 4");
    rig_fini(&r);
}

/* -- random sequences against a naive model -- */

/*
 * The rules once more, as plainly as can be: everything is kept in arrays, and what the model says
 * is compared after each input.  A payload is just its timestamp here; below 0 it does not decode.
 */
struct model {
    bool replay, replaying, fresh, foreign;
    long long next, probe; /* -1: none */
    double last;           /* NAN-free: -1 is none */
    struct {
        long long seq;
        bool fell; /* below the live number before */
    } dups[64];
    int n_dups;
    long long live; /* the last live number of this connection, -1: none */
    struct {
        long long seq;
        double ts;
    } held[64];
    int n_held, max;
    struct {
        long long seq;
        double ts;
    } applied[WP_SUB_SEEN];
    long long latest; /* applied */
    long long request;
    char out[4096];
};

static void say(struct model *m, const char *what, long long seq)
{
    size_t n = strlen(m->out);

    if (seq < 0)
        snprintf(m->out + n, sizeof m->out - n, "%s;", what);
    else
        snprintf(m->out + n, sizeof m->out - n, "%s %lld;", what, seq);
}

static void model_take(struct model *m, const char *what, long long seq, double ts)
{
    m->next = seq + 1;
    m->fresh = false;
    m->n_dups = 0;
    say(m, ts < 0 ? "reject_clear" : what, seq);
    if (ts >= 0) {
        m->last = ts;
        m->applied[seq % WP_SUB_SEEN].seq = seq;
        m->applied[seq % WP_SUB_SEEN].ts = ts;
        m->latest = seq;
    }
}

/* How many lower numbers rose in a row up to now, since one that fell; 0: none fell. */
static int model_row(const struct model *m)
{
    int row = 0;

    for (int i = m->n_dups - 1; i >= 0; i--) {
        row++;
        if (m->dups[i].fell)
            return row;
    }
    return 0;
}

/* A live message. */
static void model_judge(struct model *m, long long seq, double ts)
{
    bool fell = m->live >= 0 && seq <= m->live;

    m->live = seq;
    if (m->next < 0 || seq == m->next) {
        model_take(m, "apply", seq, ts);
        return;
    }
    if (seq > m->next) {
        model_take(m, "hole_clear_apply", seq, ts);
        return;
    }
    if (ts >= 0 && m->applied[seq % WP_SUB_SEEN].seq == seq &&
        m->applied[seq % WP_SUB_SEEN].ts == ts) {
        m->n_dups = 0;
    } else {
        m->dups[m->n_dups].seq = seq;
        m->dups[m->n_dups++].fell = fell;
    }
    if ((ts >= 0 && m->last >= 0 && ts > m->last) || m->fresh || model_row(m) >= 8)
        model_take(m, "restart_clear_apply", seq, ts);
    else
        say(m, "drop_dup", seq);
    if (m->n_dups == 64) {
        memmove(m->dups, m->dups + 32, sizeof m->dups[0] * 32);
        m->n_dups = 32;
    }
}

static void model_free_held(struct model *m)
{
    int n = m->n_held;

    m->replaying = false;
    m->n_held = 0;
    for (int i = 0; i < n; i++)
        model_judge(m, m->held[i].seq, m->held[i].ts);
}

static void model_ask(struct model *m, long long start)
{
    m->replaying = true;
    m->request = start;
}

static void model_connected(struct model *m)
{
    m->fresh = m->next >= 0;
    m->live = -1;
    if (!m->replay)
        return;
    if (m->next < 0)
        m->next = 0;
    m->probe = m->next - 1;
    model_ask(m, m->next > 0 ? m->next - 1 : 0);
}

static void model_live(struct model *m, long long seq, double ts)
{
    if (m->replaying || (m->replay && m->next >= 0 && seq > m->next)) {
        if (!m->replaying)
            model_ask(m, m->next), say(m, "gap_hold", seq);
        else
            say(m, "hold", seq);
        if (m->n_held == m->max)
            memmove(m->held, m->held + 1, sizeof m->held[0] * (size_t)--m->n_held);
        m->held[m->n_held].seq = seq;
        m->held[m->n_held++].ts = ts;
    } else {
        model_judge(m, seq, ts);
    }
}

static void model_reply(struct model *m, long long seq, double ts) /* -1 is the end */
{
    if (!m->replay || m->next < 0) {
        say(m, "ignore", -1);
    } else if (seq < 0 && m->probe >= 0) {
        m->probe = -1;
        m->foreign = false;
        m->next = 0;
        model_ask(m, 0);
        say(m, "restart_clear", -1);
    } else if (seq < 0) {
        say(m, "end", -1);
        if (m->replaying)
            model_free_held(m);
    } else if (m->probe >= 0 && seq == m->probe) {
        bool same = ts < 0 ? m->last < 0 : ts == m->last;

        m->foreign = !same;
        if (same)
            m->fresh = false, m->probe = -1;
        say(m, same ? "probe_ok" : "probe_mismatch", seq);
    } else if (m->probe >= 0 && m->foreign) {
        say(m, "ignore", seq);
    } else {
        m->probe = -1;
        if (seq < m->next)
            say(m, "drop_dup", seq);
        else
            model_take(m, seq > m->next ? "hole_clear_apply" : "apply", seq, ts);
    }
}

static void model_timeout(struct model *m)
{
    say(m, "replay_timeout", -1);
    if (m->probe >= 0 && m->foreign)
        m->next = -1;
    m->probe = -1;
    m->foreign = false;
    if (m->replaying)
        model_free_held(m);
}

static void send_either(struct rig *r, bool live_one, long long seq, double ts)
{
    char number[8], payload[16] = "\xc1";
    size_t n = ts < 0 ? 1 : cap_payload(payload, ts, -1);
    struct wp_str f[] = {
        {"", 0}, cap_number(number, seq < 0 ? UINT64_MAX : (uint64_t)seq), {payload, n}};

    if (live_one)
        wp_subscriber_live(&r->s, f, 3, 0);
    else
        wp_subscriber_reply(&r->s, f, 3, 0);
}

/* One input, mostly near what is expected, so that every rule has its turn. */
static void one_input(struct rig *r, struct model *m, struct wp_rng *rng, double *clock)
{
    uint64_t what = wp_rng_below(rng, 100), near = wp_rng_below(rng, 10);
    long long next = m->next < 0 ? 0 : m->next;
    long long seq = near < 5   ? next
                    : near < 7 ? next + (long long)wp_rng_below(rng, 4)
                               : (long long)wp_rng_below(rng, (uint64_t)next + 1);
    double ts = wp_rng_below(rng, 20) == 0  ? -1
                : wp_rng_below(rng, 8) == 0 ? *clock - 3
                                            : (*clock += 1);

    if (wp_rng_below(rng, 6) == 0 && m->latest > 9) { /* one of the last ones again */
        seq = m->latest - (long long)wp_rng_below(rng, 9);
        if (m->applied[seq % WP_SUB_SEEN].seq == seq)
            ts = m->applied[seq % WP_SUB_SEEN].ts;
    }
    if (what < 4) {
        wp_subscriber_connected(&r->s, 0);
        model_connected(m);
    } else if (what < 55) {
        send_either(r, true, seq, ts);
        model_live(m, seq, ts);
    } else if (what < 85) { /* late replies too: they come whether one was asked for or not */
        if (m->probe >= 0 && wp_rng_below(rng, 2) == 0)
            seq = m->probe, ts = wp_rng_below(rng, 2) ? m->last : ts;
        send_either(r, false, seq, ts);
        model_reply(m, seq, ts);
    } else if (what < 97) {
        send_either(r, false, -1, 0);
        model_reply(m, -1, 0);
    } else {
        wp_subscriber_timeout(&r->s, 0);
        model_timeout(m);
    }
}

static bool agrees(struct rig *r, struct model *m, uint64_t seed, int i)
{
    struct wp_buf b = {0};
    char label[64];
    uint64_t start;
    bool ok;

    for (size_t k = 0; k < r->log->n; k++) {
        const struct wp_sub_step *s = &r->log->step[k];

        wp_buf_adds(&b, wp_sub_action_name(s->action));
        wp_buf_printf(&b, s->numbered ? " %llu;" : ";", (unsigned long long)s->seq);
    }
    snprintf(label, sizeof label, "seed %llu input %d", (unsigned long long)seed, i);
    ok = wp_str_is(wp_buf_str(&b), m->out);
    if (!ok)
        EXPECT_TEXT(label, m->out, wp_buf_str(&b));
    wp_buf_fini(&b);
    if (wp_subscriber_request(&r->s, &start) != (m->request >= 0) ||
        (m->request >= 0 && start != (uint64_t)m->request) || r->s.held != (size_t)m->n_held ||
        (r->s.known ? (long long)r->s.next : -1) != m->next) {
        ok = false;
        EXPECT_TRUE(label, ok);
    }
    r->log->n = 0;
    m->out[0] = 0;
    m->request = -1;
    return ok;
}

static void random_inputs_agree_with_a_naive_model(void)
{
    enum { SEEDS = 60, INPUTS = 1500 };
    bool ok = true;
    uint64_t restarts = 0, holes = 0, dropped = 0;

    for (uint64_t seed = 1; seed <= SEEDS && ok; seed++) {
        struct wp_rng rng = {seed};
        struct model m = {.replay = seed % 3 != 0,
                          .next = -1,
                          .probe = -1,
                          .last = -1,
                          .live = -1,
                          .max = 4,
                          .request = -1};
        double clock = 100;
        struct rig r;

        rig_init(&r, m.replay, small_queue);
        for (int i = 0; i < INPUTS && ok; i++) {
            one_input(&r, &m, &rng, &clock);
            ok = agrees(&r, &m, seed, i);
        }
        restarts += r.s.counts.restarts;
        holes += r.s.counts.holes;
        dropped += r.s.counts.dropped;
        rig_fini(&r);
    }
    EXPECT_TRUE("agreed", ok);
    EXPECT_TRUE("every rule had its turn", restarts > 100 && holes > 100 && dropped > 100);
}

const struct wp_suite suite_subscriber = {
    "subscriber",
    (const struct wp_test[]){
        {"every script is followed step by step", every_script_is_followed_step_by_step},
        {"the state and its reason follow the feed", the_state_and_its_reason_follow_the_feed},
        {"each clear says whether entries are doubtful or gone",
         each_clear_says_whether_entries_are_doubtful_or_gone},
        {"what a replay brought first is no restart when it comes again",
         what_a_replay_brought_first_is_no_restart_when_it_comes_again},
        {"nor is it one when a message is doubled or overtaken",
         nor_is_it_one_when_a_message_is_doubled_or_overtaken},
        {"a full queue drops the oldest, and that is a hole",
         a_full_queue_drops_the_oldest_and_that_is_a_hole},
        {"a message that memory has no room for is a gap later",
         a_message_that_memory_has_no_room_for_is_a_gap_later},
        {"what was held goes in bursts, and new ones queue behind",
         what_was_held_goes_in_bursts_and_new_ones_queue_behind},
        {"a replay may be slow but not silent", a_replay_may_be_slow_but_not_silent},
        {"a resync brings all again and goes on where it was",
         a_resync_brings_all_again_and_goes_on_where_it_was},
        {"a foreign publisher that falls silent is gone all the same",
         a_foreign_publisher_that_falls_silent_is_gone_all_the_same},
        {"what was forgotten is asked for from the start",
         what_was_forgotten_is_asked_for_from_the_start},
        {"replies that nobody asked for change nothing",
         replies_that_nobody_asked_for_change_nothing},
        {"random inputs agree with a naive model", random_inputs_agree_with_a_naive_model},
        {NULL, NULL},
    },
};
