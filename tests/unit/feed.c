/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds over real ZeroMQ sockets.  The publisher is in the test (tests/lib/publisher.h), on the
 * same loop: a test does something and runs the loop until what must follow has followed.
 */
#include "adapters/events/feed.h"

#include "adapters/events/endpoint.h"
#include "adapters/events/zsock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/lib/capture.h"
#include "tests/lib/ports.h"
#include "tests/lib/publisher.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <unistd.h>

enum { GIVE_UP_US = 20000000, STEPS_MAX = 64 };

#define ANY_PORT "tcp://127.0.0.1:*"

/* What a feed told its owner. */
struct seen {
    struct wp_feed *feed;
    struct {
        enum wp_sub_action action;
        bool numbered;
        uint64_t seq;
    } step[STEPS_MAX]; /* since the last look */
    size_t steps;
    uint64_t applied, all_steps;
    uint64_t per_turn, most_per_turn;
    unsigned clears[3];
    uint32_t rank; /* of the last apply or clear */
    uint64_t ranks[8];
    enum wp_feed_state state;
    char why[200];
    bool closed;
    uint64_t close_at; /* with that step, counted from 1 */
};

struct rig {
    struct wp_loop loop;
    struct wp_feeds *feeds;
    struct wp_timer guard;
    uv_check_t turn;
    struct seen seen[3];
    bool late, ended;
    long live; /* allocations before */
};

static void on_step(void *arg, uint32_t rank, const struct wp_sub_step *step)
{
    struct seen *s = arg;

    (void)rank;
    EXPECT_TRUE("nothing after the close", !s->closed && s->feed);
    if (s->steps < STEPS_MAX) {
        s->step[s->steps].action = step->action;
        s->step[s->steps].numbered = step->numbered;
        s->step[s->steps++].seq = step->seq;
    }
    if (++s->all_steps == s->close_at) {
        wp_feed_close(s->feed);
        s->feed = NULL;
    }
}

static void on_apply(void *arg, uint32_t rank, uint64_t seq, struct wp_str payload)
{
    struct seen *s = arg;

    (void)seq;
    EXPECT_TRUE("nothing after the close", s->feed != NULL);
    EXPECT_TRUE("a payload", payload.n > 0);
    s->applied++;
    s->per_turn++;
    s->rank = rank;
    s->ranks[rank % 8]++;
}

static void on_clear(void *arg, uint32_t rank, enum wp_clear how)
{
    struct seen *s = arg;

    EXPECT_TRUE("nothing after the close", s->feed != NULL);
    s->clears[how]++;
    s->rank = rank;
}

static void on_state(void *arg, uint32_t rank, enum wp_feed_state state, const char *why)
{
    struct seen *s = arg;

    (void)rank;
    EXPECT_TRUE("nothing after the close", s->feed != NULL);
    s->state = state;
    snprintf(s->why, sizeof s->why, "%s", why);
}

static void on_feed_closed(void *arg)
{
    struct seen *s = arg;

    EXPECT_TRUE("once", !s->closed);
    s->closed = true;
}

static const struct wp_feed_ops ops = {cap_head, on_apply, on_clear,
                                       on_state, on_step,  on_feed_closed};

static void on_guard(struct wp_timer *t)
{
    *(bool *)t->arg = true;
}

static void on_turn(uv_check_t *h)
{
    struct rig *r = h->data;

    for (int i = 0; i < 3; i++) {
        struct seen *s = &r->seen[i];

        s->most_per_turn = s->per_turn > s->most_per_turn ? s->per_turn : s->most_per_turn;
        s->per_turn = 0;
    }
}

static void rig_init(struct rig *r)
{
    struct wp_err err = WP_ERR_INIT;

    memset(r, 0, sizeof *r);
    r->live = wp_mem_live();
    wp_log_setup(WP_ERROR, WP_LOG_TEXT);
    EXPECT_INT("loop", 0, wp_loop_init(&r->loop, &err));
    EXPECT_INT("feeds", 0, wp_feeds_create(&r->feeds, &r->loop, &err));
    wp_timer_init(&r->guard, on_guard, &r->late);
    wp_timer_in(&r->loop, &r->guard, GIVE_UP_US);
    uv_check_init(&r->loop.uv, &r->turn);
    r->turn.data = r;
    uv_check_start(&r->turn, on_turn);
}

static void on_feeds_ended(void *arg)
{
    *(bool *)arg = true;
}

static void close_feed(struct seen *s)
{
    wp_feed_close(s->feed);
    s->feed = NULL;
}

static void rig_fini(struct rig *r)
{
    for (int i = 0; i < 3; i++)
        close_feed(&r->seen[i]);
    wp_feeds_destroy(r->feeds, on_feeds_ended, &r->ended);
    EXPECT_TRUE("never inside the call", !r->ended);
    while (!r->ended && !r->late)
        uv_run(&r->loop.uv, UV_RUN_ONCE);
    EXPECT_TRUE("in time", !r->late);
    wp_timer_stop(&r->loop, &r->guard);
    uv_close((uv_handle_t *)&r->turn, NULL);
    wp_loop_stop(&r->loop);
    EXPECT_INT("all handles closed", 0, wp_loop_run(&r->loop));
    wp_loop_fini(&r->loop);
    EXPECT_INT("nothing leaks", r->live, wp_mem_live());
    wp_log_setup(WP_INFO, WP_LOG_TEXT);
}

#define UNTIL(r, condition)                     \
    do {                                        \
        while (!(condition) && !(r)->late)      \
            uv_run(&(r)->loop.uv, UV_RUN_ONCE); \
        EXPECT_TRUE(#condition, !(r)->late);    \
    } while (0)

static struct wp_str at(const char *text)
{
    return wp_str_of(text);
}

static bool open_feed(struct rig *r, int i, const struct wp_feed_conf *conf)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_feed_conf c = *conf;
    int rc;

    c.name = at("w");
    rc = wp_feed_open(&r->seen[i].feed, r->feeds, &c, &ops, &r->seen[i], &err);
    EXPECT_TEXT("open", "", at(err.text));
    return rc == 0;
}

static void status(struct rig *r, int i, size_t publisher, struct wp_feed_status *st)
{
    wp_feed_status(r->seen[i].feed, publisher, st);
}

static uint64_t next_of(struct rig *r, int i)
{
    struct wp_feed_status st;

    status(r, i, 0, &st);
    return st.next;
}

static void publish_as(struct test_publisher *p, const char *topic, uint64_t seq, double ts,
                       int rank)
{
    char number[8], payload[16];
    size_t n = cap_payload(payload, ts, rank);

    publisher_send(p, (struct wp_str[]){at(topic), cap_number(number, seq), {payload, n}}, 3);
}

static void publish(struct test_publisher *p, uint64_t seq, double ts)
{
    publish_as(p, "t", seq, ts, -1);
}

/* topic NULL: the older form. */
static void answer(struct test_publisher *p, const char *topic, uint64_t seq, double ts)
{
    char number[8], payload[16];
    size_t n = seq == UINT64_MAX ? 0 : cap_payload(payload, ts, -1);

    if (topic)
        publisher_reply(
            p, (struct wp_str[]){{"", 0}, at(topic), cap_number(number, seq), {payload, n}}, 4);
    else
        publisher_reply(p, (struct wp_str[]){{"", 0}, cap_number(number, seq), {payload, n}}, 3);
}

static void end_answer(struct test_publisher *p)
{
    answer(p, NULL, UINT64_MAX, 0);
}

/* -- the scripts, over real sockets -- */

struct play {
    struct rig *r;
    const struct cap *c;
    struct test_publisher pub;
    bool bind, open; /* bind: the feed binds */
    char events[80], replay[80];
};

/* Connects anew: at the same ports, as an engine that is started again. */
static void play_connect(struct play *p)
{
    struct wp_feed_status st = {0};
    uint64_t before;

    status(p->r, 0, 0, &st);
    before = st.connections;
    if (p->open)
        publisher_end(&p->pub, &p->r->loop);
    p->open =
        publisher_open(&p->pub, &p->r->loop, p->events, !p->bind, p->c->replay ? p->replay : NULL);
    UNTIL(p->r, p->pub.subscribed);
    if (!p->bind)
        UNTIL(p->r, (status(p->r, 0, 0, &st), st.connections > before));
}

static void play_step(struct play *p, const struct cap_step *s)
{
    bool again = p->open;

    p->r->seen[0].steps = 0;
    switch (s->kind) {
    case CAP_CONNECTED:
        play_connect(p);
        if (p->bind && again && !p->c->replay)
            return; /* noticed with the first message */
        break;
    case CAP_LIVE:
        publisher_send(&p->pub, s->frame, s->frames);
        break;
    case CAP_REPLY:
        publisher_reply(&p->pub, s->frame, s->frames);
        break;
    case CAP_TIMEOUT:
        break; /* it comes by itself */
    }
}

static void play_cap(const struct cap *c, bool bind)
{
    struct rig r;
    struct play p = {.r = &r, .c = c, .bind = bind};
    struct seen *seen = &r.seen[0];
    struct wp_feed_status st = {0};
    struct wp_feed_conf conf = {.bind = bind};
    bool timeout = strcmp(c->name, "cap_replay_timeout") == 0;

    rig_init(&r);
    /* Learn two free ports. */
    publisher_open(&p.pub, &r.loop, ANY_PORT, true, ANY_PORT);
    memcpy(p.events, p.pub.events, sizeof p.events);
    memcpy(p.replay, p.pub.replay, sizeof p.replay);
    publisher_end(&p.pub, &r.loop);
    conf.events = at(p.events);
    conf.replay = c->replay ? at(p.replay) : (struct wp_str){0};
    conf.reply_us = timeout ? 100000 : GIVE_UP_US;
    if (!open_feed(&r, 0, &conf)) {
        rig_fini(&r);
        return;
    }
    for (size_t i = 0; i < c->steps && !r.late; i++) {
        const struct cap_step *s = &c->step[i];
        unsigned requests = p.open && s->kind != CAP_CONNECTED ? p.pub.requests : 0;
        char label[128];

        snprintf(label, sizeof label, "%s step %zu %s", c->name, i, bind ? "bound" : "connected");
        if (s->kind != CAP_CONNECTED && s->kind != CAP_TIMEOUT && s->frames == 0)
            continue; /* no such message can be sent */
        play_step(&p, s);
        UNTIL(&r, seen->steps >= s->expects);
        EXPECT_UINT(label, s->expects, seen->steps);
        for (size_t k = 0; k < s->expects && k < seen->steps; k++) {
            EXPECT_TEXT(label, s->expect[k].action, at(wp_sub_action_name(seen->step[k].action)));
            EXPECT_UINT(label, s->expect[k].seq, seen->step[k].seq);
        }
        if (s->asks) {
            UNTIL(&r, p.pub.requests > requests);
            EXPECT_UINT(label, s->start, p.pub.start);
        }
    }
    status(&r, 0, 0, &st);
    EXPECT_UINT(c->name, c->next, st.next);
    EXPECT_INT(c->name, WP_FEED_LIVE, st.state);
    publisher_end(&p.pub, &r.loop);
    rig_fini(&r);
}

static void every_script_can_be_played_over_sockets_that_connect(void)
{
    for (int i = 0; cap_names[i]; i++) {
        struct cap c;

        if (cap_load(&c, cap_names[i]))
            play_cap(&c, false);
        cap_fini(&c);
    }
}

static void every_script_can_be_played_over_a_socket_that_is_bound(void)
{
    for (int i = 0; cap_names[i]; i++) {
        struct cap c;

        if (cap_load(&c, cap_names[i]))
            play_cap(&c, true);
        cap_fini(&c);
    }
}

/* -- bursts -- */

static void a_long_burst_is_applied_whole_though_nothing_follows_it(void)
{
    enum { N = 10000, LOST = 100, SPLIT = N / 2 };
    struct rig r;
    struct test_publisher pub;
    struct seen *seen = &r.seen[0];

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(pub.events), .replay = at(pub.replay)});
    UNTIL(&r, pub.subscribed && pub.requests == 1);
    end_answer(&pub);
    UNTIL(&r, seen->state == WP_FEED_LIVE);
    for (uint64_t i = 0; i < N; i++)
        if (i < SPLIT || i >= SPLIT + LOST)
            publish(&pub, i, (double)i);
    UNTIL(&r, pub.requests == 2);
    EXPECT_UINT("asked from the gap", SPLIT, pub.start);
    for (uint64_t i = SPLIT; i < N; i++)
        answer(&pub, i % 2 ? "t" : NULL, i, (double)i);
    end_answer(&pub);
    UNTIL(&r, next_of(&r, 0) == N && seen->state == WP_FEED_LIVE);
    EXPECT_UINT("each once", N, seen->applied);
    EXPECT_UINT("no hole", 0, seen->clears[WP_CLEAR_DOUBT] + seen->clears[WP_CLEAR_GONE]);
    EXPECT_TRUE("others had their turn", seen->most_per_turn <= WP_ZSOCK_TURN + 64);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static void one_message_alone_is_applied(void)
{
    struct rig r;
    struct test_publisher pub;

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, NULL);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(pub.events)});
    UNTIL(&r, pub.subscribed);
    publish(&pub, 0, 1);
    UNTIL(&r, r.seen[0].applied == 1);
    EXPECT_TEXT("known", "known from its first batch", at(r.seen[0].why));
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static void one_publisher_that_floods_does_not_stall_another(void)
{
    enum { N = 5000 };
    struct rig r;
    struct test_publisher flood, calm;

    rig_init(&r);
    publisher_open(&flood, &r.loop, ANY_PORT, true, NULL);
    publisher_open(&calm, &r.loop, ANY_PORT, true, NULL);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(flood.events)});
    open_feed(&r, 1, &(struct wp_feed_conf){.events = at(calm.events)});
    UNTIL(&r, flood.subscribed && calm.subscribed);
    for (uint64_t i = 0; i < N; i++)
        publish(&flood, i, (double)i);
    UNTIL(&r, r.seen[0].applied > 0); /* it is in full flood */
    publish(&calm, 0, 1);
    UNTIL(&r, r.seen[1].applied == 1);
    UNTIL(&r, r.seen[0].applied == N);
    EXPECT_TRUE("in shares", r.seen[0].most_per_turn <= WP_ZSOCK_TURN);
    publisher_end(&flood, &r.loop);
    publisher_end(&calm, &r.loop);
    rig_fini(&r);
}

/* We read nothing while more is sent at once than the queues on the way take; the publisher's is short. */
static void what_full_queues_drop_is_a_gap_and_comes_again(void)
{
    enum { N = 150000, SHORT = 100 };
    struct rig r;
    struct test_publisher pub;
    struct seen *seen = &r.seen[0];
    uint64_t next = N;

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(pub.events), .replay = at(pub.replay)});
    UNTIL(&r, pub.subscribed && pub.requests == 1);
    end_answer(&pub);
    UNTIL(&r, seen->state == WP_FEED_LIVE);
    wp_timer_in(&r.loop, &r.guard, 6 * GIVE_UP_US); /* sanitizers take their time with so many */
    publisher_bound(&pub, SHORT);
    for (uint64_t i = 0; i < N; i++)
        publish(&pub, i, (double)i);
    publisher_bound(&pub, 0);
    for (; pub.requests == 1 && !r.late; uv_run(&r.loop.uv, UV_RUN_ONCE))
        publish(&pub, next, (double)next), next++; /* the next one that comes shows the gap */
    EXPECT_INT("state", WP_FEED_GAPPED, seen->state);
    EXPECT_TRUE("some were lost", pub.start > 0 && pub.start < N);
    EXPECT_UINT("all before were not", pub.start, seen->applied);
    for (uint64_t i = pub.start; i < next; i++)
        answer(&pub, NULL, i, (double)i);
    end_answer(&pub);
    UNTIL(&r, seen->state == WP_FEED_LIVE && next_of(&r, 0) == next);
    EXPECT_UINT("each once", next, seen->applied);
    EXPECT_UINT("no hole", 0, seen->clears[WP_CLEAR_DOUBT] + seen->clears[WP_CLEAR_GONE]);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static void what_was_held_is_let_go_in_bursts_too(void)
{
    enum { N = 3000 };
    struct rig r;
    struct test_publisher pub;
    struct wp_feed_status st = {0};

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(pub.events), .replay = at(pub.replay)});
    UNTIL(&r, pub.subscribed && pub.requests == 1);
    for (uint64_t i = 0; i < N; i++)
        publish(&pub, i, (double)i);
    UNTIL(&r, (status(&r, 0, 0, &st), st.held == N));
    EXPECT_INT("waiting", WP_FEED_SYNCING, st.state);
    end_answer(&pub);
    UNTIL(&r, r.seen[0].applied == N);
    UNTIL(&r, r.seen[0].state == WP_FEED_LIVE);
    EXPECT_TRUE("in bursts", r.seen[0].most_per_turn <= 128);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

/* -- replay -- */

static void a_slow_replay_is_waited_for_and_a_silent_one_is_not(void)
{
    struct rig r;
    struct test_publisher pub;
    struct seen *seen = &r.seen[0];
    struct wp_feed_status st = {0};

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    open_feed(&r, 0,
              &(struct wp_feed_conf){
                  .events = at(pub.events), .replay = at(pub.replay), .reply_us = 150000});
    UNTIL(&r, pub.subscribed && pub.requests == 1);
    publish(&pub, 9, 9);
    for (uint64_t i = 0; i < 4; i++) {
        answer(&pub, NULL, i, (double)i);
        UNTIL(&r, seen->applied == i + 1);
    }
    /* The fifth never comes. */
    UNTIL(&r, seen->applied == 5);
    status(&r, 0, 0, &st);
    EXPECT_UINT("given up once", 1, st.counts.timeouts);
    EXPECT_UINT("a hole", 1, seen->clears[WP_CLEAR_DOUBT]);
    EXPECT_UINT("gone on", 10, st.next);
    EXPECT_TEXT("why", "numbers were lost", at(seen->why));
    /* What is still on its way from it goes nowhere, and is no answer to the next question. */
    for (uint64_t i = 4; i < 9; i++)
        answer(&pub, NULL, i, (double)i);
    end_answer(&pub);
    publish(&pub, 12, 12);
    UNTIL(&r, pub.requests == 2);
    EXPECT_UINT("asked from", 10, pub.start);
    answer(&pub, NULL, 10, 10);
    answer(&pub, NULL, 11, 11);
    end_answer(&pub);
    UNTIL(&r, seen->applied == 8);
    status(&r, 0, 0, &st);
    EXPECT_UINT("no late reply was heard", 7, st.counts.replies);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static void a_replay_socket_that_is_not_there_costs_its_time_only(void)
{
    struct rig r;
    struct test_publisher pub;
    struct wp_feed_status st = {0};

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, NULL);
    /* Port 9 is nobody's here. */
    open_feed(&r, 0,
              &(struct wp_feed_conf){
                  .events = at(pub.events), .replay = at("tcp://127.0.0.1:9"), .reply_us = 100000});
    UNTIL(&r, pub.subscribed);
    publish(&pub, 3, 3);
    UNTIL(&r, r.seen[0].applied == 1);
    status(&r, 0, 0, &st);
    EXPECT_UINT("once", 1, st.counts.timeouts);
    EXPECT_TEXT("why", "joined after its first batch", at(r.seen[0].why));
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

/* -- connections -- */

static void a_restart_is_noticed_by_the_connection_and_the_probe(void)
{
    struct rig r;
    struct test_publisher pub;
    struct seen *seen = &r.seen[0];
    char events[80], replay[80];

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    memcpy(events, pub.events, sizeof events);
    memcpy(replay, pub.replay, sizeof replay);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(events), .replay = at(replay)});
    UNTIL(&r, pub.subscribed && pub.requests == 1);
    answer(&pub, "t", 0, 1);
    answer(&pub, "t", 1, 2);
    end_answer(&pub);
    UNTIL(&r, seen->applied == 2 && seen->state == WP_FEED_LIVE);
    publisher_end(&pub, &r.loop);
    UNTIL(&r, seen->state == WP_FEED_UNKNOWN);
    EXPECT_UINT("entries stay for now", 0, seen->clears[WP_CLEAR_GONE]);
    publisher_open(&pub, &r.loop, events, true, replay);
    UNTIL(&r, pub.subscribed && pub.requests == 1);
    EXPECT_UINT("the probe", 1, pub.start);
    end_answer(&pub);
    UNTIL(&r, pub.requests == 2);
    EXPECT_UINT("another incarnation", 1, seen->clears[WP_CLEAR_GONE]);
    EXPECT_UINT("all of it", 0, pub.start);
    answer(&pub, NULL, 0, 50);
    end_answer(&pub);
    UNTIL(&r, seen->applied == 3 && seen->state == WP_FEED_LIVE);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static void a_publisher_that_stays_away_is_forgotten(void)
{
    struct rig r;
    struct test_publisher pub;
    struct seen *seen = &r.seen[0];
    char events[80];

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, NULL);
    memcpy(events, pub.events, sizeof events);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(events), .grace_us = 50000});
    UNTIL(&r, pub.subscribed);
    publish(&pub, 0, 1);
    UNTIL(&r, seen->applied == 1);
    publisher_end(&pub, &r.loop);
    UNTIL(&r, seen->clears[WP_CLEAR_GONE] == 1);
    UNTIL(&r, strncmp(seen->why, "lost tcp://127.0.0.1:", 21) == 0);
    EXPECT_INT("state", WP_FEED_UNKNOWN, seen->state);
    publisher_open(&pub, &r.loop, events, true, NULL);
    UNTIL(&r, pub.subscribed);
    publish(&pub, 5, 9);
    UNTIL(&r, seen->applied == 2);
    EXPECT_UINT("as at first", 0, seen->clears[WP_CLEAR_DOUBT]);
    EXPECT_TEXT("why", "joined after its first batch", at(seen->why));
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static void a_publisher_behind_a_bound_socket_is_missed_too(void)
{
    struct rig r;
    struct test_publisher a, b;
    char events[80];

    rig_init(&r);
    open_feed(&r, 0,
              &(struct wp_feed_conf){
                  .events = at(ANY_PORT), .bind = true, .topic = at("pod-a"), .grace_us = 50000});
    snprintf(events, sizeof events, "%s", wp_feed_endpoint(r.seen[0].feed, 0));
    open_feed(
        &r, 1,
        &(struct wp_feed_conf){
            .events = at(events), .bind = true, .topic = at("kv@pod-b@m"), .grace_us = 50000});
    publisher_open(&a, &r.loop, events, false, NULL);
    publisher_open(&b, &r.loop, events, false, NULL);
    UNTIL(&r, a.subscribed && b.subscribed);
    publish_as(&a, "kv@pod-a@m", 0, 1, -1);
    publish_as(&b, "kv@pod-b@m", 0, 1, -1);
    UNTIL(&r, r.seen[0].applied == 1 && r.seen[1].applied == 1);
    publisher_end(&a, &r.loop);
    UNTIL(&r, r.seen[0].clears[WP_CLEAR_GONE] == 1);
    EXPECT_INT("unknown", WP_FEED_UNKNOWN, r.seen[0].state);
    EXPECT_INT("the other is live", WP_FEED_LIVE, r.seen[1].state);
    publish_as(&b, "kv@pod-b@m", 1, 2, -1);
    UNTIL(&r, r.seen[1].applied == 2);
    EXPECT_UINT("and complete", 0,
                r.seen[1].clears[WP_CLEAR_GONE] + r.seen[1].clears[WP_CLEAR_DOUBT]);
    /* With its clock set back, and numbers that fall: the connection tells. */
    publisher_end(&b, &r.loop);
    publisher_open(&b, &r.loop, events, false, NULL);
    UNTIL(&r, b.subscribed);
    publish_as(&b, "kv@pod-b@m", 0, 0.5, -1);
    UNTIL(&r, r.seen[1].applied == 3);
    EXPECT_UINT("a restart", 1, r.seen[1].clears[WP_CLEAR_GONE]);
    publisher_end(&b, &r.loop);
    rig_fini(&r);
}

static void publishers_on_one_bound_socket_are_told_apart(void)
{
    struct rig r;
    struct test_publisher a, b;
    struct wp_feed_status st = {0};
    char events[80];

    rig_init(&r);
    open_feed(
        &r, 0,
        &(struct wp_feed_conf){.events = at(ANY_PORT), .bind = true, .topic = at("10.0.0.7:8000")});
    snprintf(events, sizeof events, "%s", wp_feed_endpoint(r.seen[0].feed, 0));
    open_feed(&r, 1,
              &(struct wp_feed_conf){.events = at(events), .bind = true, .topic = at("engine-b")});
    publisher_open(&a, &r.loop, events, false, NULL);
    publisher_open(&b, &r.loop, events, false, NULL);
    UNTIL(&r, a.subscribed && b.subscribed);
    for (uint64_t i = 0; i < 300; i++) {
        publish_as(&a, "kv@10.0.0.7:8000@m", i, (double)i, i % 2 ? 1 : -1);
        publish_as(&b, "engine-b", i, (double)i, -1);
        publish_as(&b, "engine-c", i, (double)i, -1);
    }
    UNTIL(&r, r.seen[1].applied == 300 && wp_feeds_unclaimed(r.feeds) == 300);
    UNTIL(&r, (status(&r, 0, 0, &st), st.counts.messages == 150));
    EXPECT_UINT("a publisher a rank", 2, wp_feed_publishers(r.seen[0].feed));
    status(&r, 0, 1, &st);
    EXPECT_UINT("as the batch says", 1, st.rank);
    EXPECT_UINT("its own numbers", 150, st.counts.messages);
    EXPECT_UINT("b is whole", 0, r.seen[1].clears[WP_CLEAR_DOUBT]);
    publisher_end(&a, &r.loop);
    publisher_end(&b, &r.loop);
    rig_fini(&r);
}

static void a_worker_without_a_topic_takes_what_nobody_claims(void)
{
    struct rig r;
    struct test_publisher pub;
    struct wp_feed *again = NULL;
    struct wp_err err = WP_ERR_INIT;
    struct wp_feed_conf conf = {.name = at("x"), .bind = true};
    struct wp_feed_status st = {0};
    char events[80];

    rig_init(&r);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(ANY_PORT), .bind = true});
    EXPECT_INT("state", WP_FEED_UNKNOWN, (status(&r, 0, 0, &st), st.state));
    EXPECT_TEXT("why", "bound, and no publisher has spoken yet", at(st.why));
    snprintf(events, sizeof events, "%s", wp_feed_endpoint(r.seen[0].feed, 0));
    open_feed(&r, 1, &(struct wp_feed_conf){.events = at(events), .bind = true, .topic = at("b")});
    conf.events = at(events);
    EXPECT_INT("a second one", WP_EEXIST,
               wp_feed_open(&again, r.feeds, &conf, &ops, &r.seen[2], &err));
    conf.topic = at("b");
    EXPECT_INT("the same topic", WP_EEXIST,
               wp_feed_open(&again, r.feeds, &conf, &ops, &r.seen[2], &err));
    publisher_open(&pub, &r.loop, events, false, NULL);
    UNTIL(&r, pub.subscribed);
    publish_as(&pub, "", 0, 1, -1);
    publish_as(&pub, "b", 0, 1, -1);
    publish_as(&pub, "", 1, 2, 3);
    UNTIL(&r, r.seen[0].applied == 2 && r.seen[1].applied == 1);
    EXPECT_UINT("ranks", 1, r.seen[0].ranks[3]);
    /* One goes; its topic is nobody's in particular then. */
    close_feed(&r.seen[1]);
    publish_as(&pub, "b", 1, 2, -1);
    UNTIL(&r, r.seen[0].applied == 3);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static int bound_to(unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

static void each_rank_has_its_own_ports_and_trouble(void)
{
    struct rig r;
    struct test_publisher pub[2];
    struct wp_feed_status st = {0};
    unsigned port;
    char events[80], other[80];

    rig_init(&r);
    port = test_ports(2);
    snprintf(events, sizeof events, "tcp://127.0.0.1:%u", port);
    snprintf(other, sizeof other, "tcp://127.0.0.1:%u", port + 1);
    publisher_open(&pub[0], &r.loop, events, true, NULL);
    publisher_open(&pub[1], &r.loop, other, true, NULL);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(events), .ranks = 2});
    UNTIL(&r, pub[0].subscribed && pub[1].subscribed);
    publish(&pub[0], 0, 1);
    publish(&pub[1], 4, 1);
    publish(&pub[1], 6, 1);
    UNTIL(&r, r.seen[0].ranks[0] == 1 && r.seen[0].ranks[1] == 2);
    EXPECT_UINT("one rank's hole", 1, r.seen[0].clears[WP_CLEAR_DOUBT]);
    status(&r, 0, 0, &st);
    EXPECT_TRUE("is not the other's", st.whole && st.counts.holes == 0);
    EXPECT_TEXT("endpoint", other, at(wp_feed_endpoint(r.seen[0].feed, 1)));
    publisher_end(&pub[0], &r.loop);
    publisher_end(&pub[1], &r.loop);
    rig_fini(&r);
}

static void a_name_has_several_addresses_and_the_one_that_answers_is_found(void)
{
    struct rig r;
    struct test_publisher pub;
    unsigned port = 0;
    char events[80];

    rig_init(&r);
    publisher_open(&pub, &r.loop, "tcp://[::1]:*", true, NULL);
    sscanf(pub.events, "tcp://[::1]:%u", &port);
    snprintf(events, sizeof events, "tcp://localhost:%u", port);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(events)});
    UNTIL(&r, pub.subscribed);
    publisher_end(&pub, &r.loop);
    /* It comes back at the other one. */
    snprintf(events, sizeof events, "tcp://127.0.0.1:%u", port);
    publisher_open(&pub, &r.loop, events, true, NULL);
    UNTIL(&r, pub.subscribed);
    publish(&pub, 0, 1);
    UNTIL(&r, r.seen[0].applied == 1);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

static void frames_without_end_are_counted_and_let_go(void)
{
    struct rig r;
    struct test_publisher pub;
    struct wp_feed_status st = {0};
    struct wp_str many[100];

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(pub.events), .replay = at(pub.replay)});
    UNTIL(&r, pub.subscribed && pub.requests == 1);
    for (int i = 0; i < 100; i++)
        many[i] = at("12345678");
    publisher_send(&pub, many, 100);
    publisher_reply(&pub, many, 100);
    publisher_reply(&pub, many, 6);
    end_answer(&pub);
    publish(&pub, 0, 1);
    UNTIL(&r, r.seen[0].applied == 1);
    status(&r, 0, 0, &st);
    EXPECT_UINT("malformed", 3, st.counts.malformed);
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
}

/* -- strangers: what is there is no publisher -- */

static int listen_at(unsigned *port)
{
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    int fd = bound_to(0);

    getsockname(fd, (struct sockaddr *)&a, &n);
    *port = ntohs(a.sin_port);
    EXPECT_INT("listen", 0, listen(fd, 8));
    return fd;
}

/* What a ZeroMQ PUB says when somebody connects. */
static const char hello[] = "\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                            "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                            "\4\x19\5READY\x0bSocket-Type\0\0\0\3PUB";

static void an_engine_that_freezes_is_missed_by_its_heart(void)
{
    struct rig r;
    unsigned port;
    int fd = listen_at(&port), peer;
    char events[80];

    rig_init(&r);
    snprintf(events, sizeof events, "tcp://127.0.0.1:%u", port);
    open_feed(&r, 0,
              &(struct wp_feed_conf){
                  .events = at(events), .heartbeat_ms = 20, .heartbeat_timeout_ms = 40});
    peer = accept(fd, NULL, NULL);
    EXPECT_INT("said", sizeof hello - 1, write(peer, hello, sizeof hello - 1));
    UNTIL(&r, r.seen[0].state == WP_FEED_LIVE);
    UNTIL(&r, r.seen[0].state == WP_FEED_UNKNOWN); /* the connection stands all the while */
    UNTIL(&r, strncmp(r.seen[0].why, "lost tcp://127.0.0.1:", 21) == 0);
    close(peer);
    close(fd);
    rig_fini(&r);
}

static void what_is_no_publisher_is_called_that(void)
{
    struct rig r;
    unsigned port;
    int fd = listen_at(&port), peer;
    char events[80];

    rig_init(&r);
    snprintf(events, sizeof events, "tcp://127.0.0.1:%u", port);
    open_feed(&r, 0, &(struct wp_feed_conf){.events = at(events)});
    peer = accept(fd, NULL, NULL);
    EXPECT_INT("said", 28, write(peer, "HTTP/1.1 400 Bad Request\r\n\r\n", 28));
    close(peer);
    UNTIL(&r, strncmp(r.seen[0].why, "what answers at ", 16) == 0);
    EXPECT_INT("state", WP_FEED_UNKNOWN, r.seen[0].state);
    close(fd);
    rig_fini(&r);
}

/* A port that is probed: a connection that says nothing must not be taken for the engine's. */
static void a_probe_of_a_bound_port_is_not_the_end_of_a_silent_engine(void)
{
    struct rig r;
    struct test_publisher pub;
    struct wp_feed_status st = {0};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned port = 0;
    char events[80];
    int fd;

    rig_init(&r);
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    snprintf(events, sizeof events, "%s", pub.replay);
    publisher_end(&pub, &r.loop);
    open_feed(&r, 0,
              &(struct wp_feed_conf){.events = at(ANY_PORT), .bind = true, .replay = at(events)});
    publisher_open(&pub, &r.loop, wp_feed_endpoint(r.seen[0].feed, 0), false, events);
    UNTIL(&r, pub.requests == 1);
    end_answer(&pub);
    UNTIL(&r, r.seen[0].state == WP_FEED_LIVE);
    sscanf(wp_feed_endpoint(r.seen[0].feed, 0), "tcp://127.0.0.1:%u", &port);
    a.sin_port = htons((uint16_t)port);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_INT("connect", 0, connect(fd, (struct sockaddr *)&a, sizeof a));
    EXPECT_TRUE("greeted", read(fd, events, 1) == 1);
    close(fd);
    publish(&pub, 0, 1); /* behind it, so to say */
    UNTIL(&r, r.seen[0].applied == 1);
    status(&r, 0, 0, &st);
    EXPECT_UINT("not lost", 0, st.losses);
    EXPECT_UINT("not asked again", 1, pub.requests);
    publisher_end(&pub, &r.loop);
    UNTIL(&r, r.seen[0].state == WP_FEED_UNKNOWN); /* that was it */
    rig_fini(&r);
}

/* -- closing -- */

/* A life with all that can happen in it, closed with step number n inside the callback. */
static bool closed_at_step(uint64_t n, bool bind)
{
    struct rig r;
    struct test_publisher pub;
    struct seen *seen = &r.seen[0];
    char events[80], replay[80];
    bool closed;

    rig_init(&r);
    seen->close_at = n;
    publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
    memcpy(replay, pub.replay, sizeof replay);
    memcpy(events, pub.events, sizeof events);
    if (bind) {
        publisher_end(&pub, &r.loop);
        open_feed(&r, 0,
                  &(struct wp_feed_conf){.events = at(events), .replay = at(replay), .bind = true});
        publisher_open(&pub, &r.loop, events, false, replay);
    } else {
        open_feed(&r, 0, &(struct wp_feed_conf){.events = at(events), .replay = at(replay)});
    }
    UNTIL(&r, pub.requests == 1 && pub.subscribed);
    publish(&pub, 2, 2);
    publish(&pub, 3, 3);
    UNTIL(&r, seen->closed || seen->all_steps == 2);
    answer(&pub, NULL, 0, 1);
    answer(&pub, NULL, 1, 1);
    answer(&pub, "t", 2, 2);
    end_answer(&pub);
    UNTIL(&r, seen->closed || seen->all_steps == 8);
    if (!seen->closed) {
        publish(&pub, 6, 6); /* a gap, and only the end for an answer */
        UNTIL(&r, seen->closed || pub.requests == 2);
    }
    if (!seen->closed) {
        end_answer(&pub);
        UNTIL(&r, seen->closed || seen->applied == 5);
    }
    closed = seen->closed;
    publisher_end(&pub, &r.loop);
    rig_fini(&r);
    return closed;
}

static void a_feed_may_close_itself_in_any_callback(void)
{
    uint64_t n;

    for (n = 1; closed_at_step(n, false); n++)
        ;
    EXPECT_TRUE("all steps had their turn", n > 8);
    for (n = 1; closed_at_step(n, true); n++)
        ;
    EXPECT_TRUE("and bound", n > 8);
}

/* Closed from outside after so many turns of the loop, whatever happens then. */
static void a_feed_may_be_closed_after_any_turn_of_the_loop(void)
{
    for (int turns = 0; turns < 40; turns++) {
        struct rig r;
        struct test_publisher pub;
        bool bind = turns % 2, sent = false;

        rig_init(&r);
        publisher_open(&pub, &r.loop, ANY_PORT, true, ANY_PORT);
        open_feed(&r, 0,
                  &(struct wp_feed_conf){.events = bind ? at(ANY_PORT) : at(pub.events),
                                         .replay = at(pub.replay),
                                         .bind = bind,
                                         .reply_us = 1000});
        open_feed(&r, 1,
                  &(struct wp_feed_conf){.events = at("tcp://localhost:9"),
                                         .replay = at("tcp://localhost:19")});
        for (int i = 0; i < turns / 2; i++) {
            uv_run(&r.loop.uv, UV_RUN_NOWAIT);
            publisher_look(&pub);
            if (pub.subscribed && !sent) {
                for (uint64_t k = 0; k < 500; k++)
                    publish(&pub, k * 3, (double)k);
                sent = true;
            }
        }
        publisher_end(&pub, &r.loop);
        rig_fini(&r);
    }
}

static void without_memory_nothing_is_left_behind(void)
{
    for (long nth = 0;; nth++) {
        struct rig r;
        struct wp_err err = WP_ERR_INIT;
        struct wp_feed *feed = NULL;
        bool failed;
        int rc;

        rig_init(&r);
        wp_mem_fail_after(nth);
        rc = wp_feed_open(
            &feed, r.feeds,
            &(struct wp_feed_conf){
                .name = at("w"), .events = at(ANY_PORT), .bind = true, .topic = at("t")},
            &ops, &r.seen[0], &err);
        if (rc == 0)
            rc = wp_feed_open(&r.seen[1].feed, r.feeds,
                              &(struct wp_feed_conf){
                                  .name = at("v"), .events = at("tcp://127.0.0.1:9"), .ranks = 2},
                              &ops, &r.seen[1], &err);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("told", failed ? WP_ENOMEM : 0, rc);
        r.seen[0].feed = feed;
        if (rc < 0)
            r.seen[1].feed = NULL;
        rig_fini(&r);
        if (!failed)
            break;
    }
}

/* -- endpoints and topics -- */

static void endpoints_that_cannot_work_are_refused_with_what_would(void)
{
    static const struct {
        const char *events, *replay;
        bool bind;
        uint32_t ranks;
        const char *want;
    } cases[] = {
        {"10.0.0.1:5557", NULL, false, 1,
         "events: \"10.0.0.1:5557\": want tcp://HOST:PORT or ipc:///PATH"},
        {"tcp://h", NULL, false, 1, "events: \"tcp://h\": want tcp://HOST:PORT or ipc:///PATH"},
        {"tcp://h:", NULL, false, 1, "events: \"tcp://h:\": want a port from 1 to 65535"},
        {"tcp://h:0", NULL, false, 1, "events: \"tcp://h:0\": want a port from 1 to 65535"},
        {"tcp://h:65536", NULL, false, 1, "events: \"tcp://h:65536\": want a port from 1 to 65535"},
        {"tcp://h:18446744073709551615", NULL, false, 2,
         "events: \"tcp://h:18446744073709551615\": want a port from which every rank has one, up "
         "to 65535"},
        {"tcp://h:65535", NULL, false, 2,
         "events: \"tcp://h:65535\": want a port from which every rank has one, up to 65535"},
        {"tcp://::1:5557", NULL, false, 1,
         "events: \"tcp://::1:5557\": want tcp://HOST:PORT or ipc:///PATH"},
        {"tcp://h;x:1", NULL, false, 1,
         "events: \"tcp://h;x:1\": want tcp://HOST:PORT or ipc:///PATH"},
        {"tcp://*:5557", NULL, false, 1,
         "events: \"tcp://*:5557\": that is an address to bind; to connect want the engine's host"},
        {"tcp://h:5557", "tcp://0.0.0.0:5558", true, 1,
         "replay: \"tcp://0.0.0.0:5558\": that is an address to bind; to connect want the engine's "
         "host"},
        {"tcp://h:5557", "tcp://h:5558", false, 2,
         "event ports from 5557 and replay ports from 5558 overlap: each of 2 ranks has its own "
         "port"},
        {"tcp://h:5558", "tcp://h:5557", false, 2,
         "event ports from 5558 and replay ports from 5557 overlap: each of 2 ranks has its own "
         "port"},
        {"ipc:///tmp/x", NULL, false, 2,
         "events: \"ipc:///tmp/x\": an ipc endpoint has one rank; want tcp for more"},
        {"ipc://", NULL, false, 1, "events: \"ipc://\": want tcp://HOST:PORT or ipc:///PATH"},
        {"tcp://h:1", NULL, false, 257, "ranks: want a number up to 256, got 257"},
    };
    struct rig r;

    rig_init(&r);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_feed_conf conf = {.name = at("w"),
                                    .events = at(cases[i].events),
                                    .replay = at(cases[i].replay),
                                    .bind = cases[i].bind,
                                    .ranks = cases[i].ranks};
        struct wp_err err = WP_ERR_INIT;
        struct wp_feed *feed = NULL;

        EXPECT_INT(cases[i].events, WP_EINVAL,
                   wp_feed_open(&feed, r.feeds, &conf, &ops, &r.seen[0], &err));
        EXPECT_TEXT(cases[i].events, cases[i].want, at(err.text));
    }
    rig_fini(&r);
}

static void an_endpoint_is_written_as_the_library_reads_it(void)
{
    static const struct {
        const char *text;
        bool bind;
        uint32_t rank;
        const char *host, *want;
    } cases[] = {
        {"tcp://10.0.0.1:5557", false, 0, NULL, "tcp://10.0.0.1:5557"},
        {"tcp://10.0.0.1:5557", false, 3, NULL, "tcp://10.0.0.1:5560"},
        {"tcp://engine:5557", false, 1, "fd00::7", "tcp://[fd00::7]:5558"},
        {"tcp://[fd00::7]:5557", false, 0, NULL, "tcp://[fd00::7]:5557"},
        {"tcp://[::]:5557", true, 0, NULL, "tcp://[::]:5557"},
        {"tcp://*:5557", true, 1, NULL, "tcp://*:5558"},
        {"ipc:///run/x.sock", false, 0, NULL, "ipc:///run/x.sock"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_endpoint e;
        char out[WP_ENDPOINT_MAX] = "";

        EXPECT_INT(
            cases[i].text, 0,
            wp_endpoint_parse(&e, at(cases[i].text), cases[i].bind, cases[i].rank + 1, &err));
        wp_endpoint_text(&e, cases[i].rank, cases[i].host, out);
        EXPECT_TEXT(cases[i].text, cases[i].want, at(out));
    }
}

static void a_topic_names_a_pod_and_a_model(void)
{
    static const struct {
        const char *topic, *pod, *model;
    } cases[] = {
        {"", "", NULL},
        {"kv@10.0.0.7:8000@Qwen/Qwen3-8B", "10.0.0.7:8000", "Qwen/Qwen3-8B"},
        {"kv@vllm-0@llama", "vllm-0", "llama"},
        {"kv@[fd00::7]:8000@m", "[fd00::7]:8000", "m"},
        {"kv-events", "kv-events", NULL},
        {"kv@only-two", "kv@only-two", NULL},
        {"kv@a@b@c", "kv@a@b@c", NULL},
        {"kv@a@b@c@d", "kv@a@b@c@d", NULL},
        {"xx@a@b", "a", "b"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_str pod, model;

        wp_topic_parse(at(cases[i].topic), &pod, &model);
        EXPECT_TEXT(cases[i].topic, cases[i].pod, pod);
        EXPECT_TRUE(cases[i].topic, (model.p != NULL) == (cases[i].model != NULL));
        if (cases[i].model)
            EXPECT_TEXT(cases[i].topic, cases[i].model, model);
    }
}

const struct wp_suite suite_feed = {
    "feed",
    (const struct wp_test[]){
        {"every script can be played over sockets that connect",
         every_script_can_be_played_over_sockets_that_connect},
        {"every script can be played over a socket that is bound",
         every_script_can_be_played_over_a_socket_that_is_bound},
        {"a long burst is applied whole though nothing follows it",
         a_long_burst_is_applied_whole_though_nothing_follows_it},
        {"one message alone is applied", one_message_alone_is_applied},
        {"one publisher that floods does not stall another",
         one_publisher_that_floods_does_not_stall_another},
        {"what full queues drop is a gap, and comes again", what_full_queues_drop_is_a_gap_and_comes_again},
        {"what was held is let go in bursts too", what_was_held_is_let_go_in_bursts_too},
        {"a slow replay is waited for and a silent one is not",
         a_slow_replay_is_waited_for_and_a_silent_one_is_not},
        {"a replay socket that is not there costs its time only",
         a_replay_socket_that_is_not_there_costs_its_time_only},
        {"a restart is noticed by the connection and the probe",
         a_restart_is_noticed_by_the_connection_and_the_probe},
        {"a publisher that stays away is forgotten", a_publisher_that_stays_away_is_forgotten},
        {"a publisher behind a bound socket is missed too",
         a_publisher_behind_a_bound_socket_is_missed_too},
        {"publishers on one bound socket are told apart",
         publishers_on_one_bound_socket_are_told_apart},
        {"a worker without a topic takes what nobody claims",
         a_worker_without_a_topic_takes_what_nobody_claims},
        {"each rank has its own ports and trouble", each_rank_has_its_own_ports_and_trouble},
        {"a name has several addresses, and the one that answers is found",
         a_name_has_several_addresses_and_the_one_that_answers_is_found},
        {"frames without end are counted and let go", frames_without_end_are_counted_and_let_go},
        {"an engine that freezes is missed by its heart",
         an_engine_that_freezes_is_missed_by_its_heart},
        {"what is no publisher is called that", what_is_no_publisher_is_called_that},
        {"a probe of a bound port is not the end of a silent engine",
         a_probe_of_a_bound_port_is_not_the_end_of_a_silent_engine},
        {"a feed may close itself in any callback", a_feed_may_close_itself_in_any_callback},
        {"a feed may be closed after any turn of the loop",
         a_feed_may_be_closed_after_any_turn_of_the_loop},
        {"without memory nothing is left behind", without_memory_nothing_is_left_behind},
        {"endpoints that cannot work are refused with what would",
         endpoints_that_cannot_work_are_refused_with_what_would},
        {"an endpoint is written as the library reads it",
         an_endpoint_is_written_as_the_library_reads_it},
        {"a topic names a pod and a model", a_topic_names_a_pod_and_a_model},
        {NULL, NULL},
    },
};
