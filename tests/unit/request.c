/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's life between a client and engines that play scripts, on one loop: whatever ends it,
 * at whatever moment, its placement is settled once, no count stays, and nothing leaks.
 */
#include "router/request.h"

#include "base/clock.h"
#include "router/api.h"
#include "router/gate.h"
#include "tests/lib/rawserver.h"
#include "tests/lib/test.h"

#include <stdio.h>

enum { ENGINES = 3, PATIENCE_US = 30000000 };

static struct rig {
    struct wp_router router;
    struct wp_settings settings;
    struct wp_gate gate;
    struct wp_client *client;
    struct raw_server engine[ENGINES];
    size_t n;
    struct wp_call *call;
    unsigned overs, closed;
    int status, rc;
    struct wp_buf body;
    bool drop_on_head, drop_on_body;
    long live;
} rig;

/* ---- the client ---- */

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    rig.status = h->status;
    if (rig.drop_on_head)
        wp_call_cancel(c);
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    wp_buf_add(&rig.body, p, n);
    if (rig.drop_on_body)
        wp_call_cancel(c);
}

static void on_over(struct wp_call *c, int rc)
{
    (void)c;
    rig.call = NULL;
    rig.overs++;
    rig.rc = rc;
}

static const struct wp_call_ops ops = {.on_head = on_head, .on_body = on_body, .on_over = on_over};

#define BODY "{\"model\":\"m\",\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}"

static void post(const char *body)
{
    struct wp_blob *b = wp_blob_copy(body, strlen(body));
    struct wp_call_spec spec = {.host = WP_STR("127.0.0.1"),
                                .port = wp_server_port(rig.gate.api),
                                .method = WP_STR("POST"),
                                .target = WP_STR("/v1/completions"),
                                .body = b,
                                .ops = &ops};

    rig.overs = 0;
    rig.status = rig.rc = 0;
    rig.body.n = 0;
    if (b)
        rig.call = wp_call(rig.client, &spec);
    wp_blob_unref(b);
}

/* The gate's own tick turns the loop at least every 100 ms, so a wait that never ends is seen. */
#define TURN_UNTIL(cond)                             \
    do {                                             \
        uint64_t until_ = wp_now_us() + PATIENCE_US; \
        while (!(cond) && wp_now_us() < until_)      \
            uv_run(&rig.gate.loop.uv, UV_RUN_ONCE);  \
        EXPECT_TRUE("it comes: " #cond, cond);       \
    } while (0)

static void turn(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        uv_run(&rig.gate.loop.uv, UV_RUN_NOWAIT);
}

/* ---- the router ---- */

static struct wp_worker *worker(size_t i)
{
    char id[8];

    snprintf(id, sizeof id, "w%zu", i);
    return wp_fleet_find(rig.router.fleet, wp_str_of(id));
}

static void add_worker(size_t i)
{
    struct wp_engine_facts f = {.up = true, .rc = 200};
    struct wp_config_worker w;
    struct wp_err err = WP_ERR_INIT;
    struct wp_worker *made;
    char json[128];

    snprintf(json, sizeof json,
             "{\"url\":\"http://127.0.0.1:%u\",\"id\":\"w%zu\",\"models\":[\"m\"]}",
             rig.engine[i].port, i);
    EXPECT_INT("entry", 0, wp_config_worker_json(&w, wp_str_of(json), &err));
    EXPECT_INT("worker", 0, wp_fleet_add(rig.router.fleet, &w, rig.settings.conf, &err));
    wp_config_worker_fini(&w);
    made = worker(i);
    wp_fleet_probed(rig.router.fleet, made, &f, rig.settings.conf);
    wp_worker_unref(made);
}

static void sinks(struct wp_counters *c)
{
    struct wp_series **all[] = {
        &c->ttft,         &c->itl,          &c->read,        &c->decide,         &c->tokens_wait,
        &c->tokens_calls, &c->tokens_wrong, &c->loop_lag,    &c->broken_streams, &c->client_gone,
        &c->refused,      &c->reloads_bad,  &c->reloads_good};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        *all[i] = WP_SERIES0(NULL);
    c->requests = wp_family(rig.router.metrics, WP_COUNTER, "warmpath_requests_total", "x",
                            "model,code", NULL, 0);
}

/* script[i] is engine i's, for each of its connections. */
static void set_up(const struct raw_step *const script[], size_t n, const char *const set[],
                   size_t n_set)
{
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_router *r = &rig.router;

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    rig.n = n;
    EXPECT_INT("configuration", 0,
               wp_config_read(&rig.settings.conf, NULL, set, n_set, NULL, 0, &errors));
    EXPECT_TEXT("configuration", "", wp_buf_str(&errors));
    wp_buf_fini(&errors);
    atomic_init(&rig.settings.refs, 1);
    r->settings = &rig.settings;
    r->gate = &rig.gate;
    r->n_gates = 1;
    r->on_loopback = true;
    EXPECT_INT("metrics", 0, wp_metrics_create(&r->metrics, &err));
    sinks(&r->count);
    wp_caches_init(&r->caches, r->metrics);
    EXPECT_INT("tenants", 0, wp_tenants_create(&r->tenants, r->metrics, &err));
    wp_tenants_configure(r->tenants, rig.settings.conf);
    EXPECT_INT("doctor", 0, wp_doctor_create(&r->doctor, r->metrics, &err));
    EXPECT_INT("fleet", 0, wp_fleet_create(&r->fleet, rig.settings.conf, r->metrics, &err));
    EXPECT_INT("gate", 0, wp_gate_init(&rig.gate, r, 0, &err));
    EXPECT_INT("listen", 0, wp_gate_listen(&rig.gate, WP_STR("127.0.0.1:0"), 0, false, &err));
    EXPECT_INT("client", 0, wp_client_create(&rig.client, &rig.gate.loop, NULL, &err));
    for (size_t i = 0; i < n; i++) {
        EXPECT_INT("engine", 0,
                   raw_server_start(&rig.engine[i], &rig.gate.loop.uv, false, &script[i], 1));
        add_worker(i);
    }
}

static void on_closed(void *arg)
{
    ++*(unsigned *)arg;
}

static void expect_at_rest(void)
{
    struct wp_buf b = {0};

    TURN_UNTIL(atomic_load(&rig.router.in_flight) == 0);
    EXPECT_UINT("bodies", 0, atomic_load(&rig.router.body_bytes));
    for (size_t i = 0; i < rig.n; i++) {
        struct wp_worker *w = worker(i);

        EXPECT_UINT("in flight", 0, wp_worker_in_flight(w));
        EXPECT_TRUE("the breaker's slot", !w->half_open_busy);
        wp_worker_unref(w);
    }
    EXPECT_INT("index", 0, wp_fleet_index_json(rig.router.fleet, NULL, 0, &b));
    EXPECT_TRUE("no block in flight", memmem(b.p, b.n, "\"in_flight_blocks\":0,", 21) != NULL);
    wp_buf_fini(&b);
}

static void tear_down(void)
{
    if (rig.call)
        wp_call_cancel(rig.call);
    expect_at_rest();
    wp_client_destroy(rig.client, on_closed, &rig.closed);
    TURN_UNTIL(rig.closed);
    for (size_t i = 0; i < rig.n; i++)
        raw_server_stop(&rig.engine[i]);
    wp_gate_drain(&rig.gate, 1, false);
    EXPECT_INT("run", 0, wp_loop_run(&rig.gate.loop));
    for (size_t i = 0; i < rig.n; i++)
        raw_server_fini(&rig.engine[i]);
    wp_settings_ref(&rig.settings);
    wp_gate_fini(&rig.gate);
    wp_tenants_destroy(rig.router.tenants);
    wp_doctor_destroy(rig.router.doctor);
    wp_fleet_destroy(rig.router.fleet);
    wp_metrics_destroy(rig.router.metrics);
    wp_config_destroy(rig.settings.conf);
    wp_buf_fini(&rig.body);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

#define SCRIPT(...)  ((const struct raw_step[]){__VA_ARGS__, {RAW_END, NULL, 0}})
#define SCRIPTS(...) ((const struct raw_step *const[]){__VA_ARGS__})
#define SET_UP(...)                                                                            \
    set_up(SCRIPTS(__VA_ARGS__), sizeof SCRIPTS(__VA_ARGS__) / sizeof SCRIPTS(__VA_ARGS__)[0], \
           quiet, sizeof quiet / sizeof quiet[0])
static const char *const quiet[] = {"log.level=error", "health.fail=3", "retry.attempts=2"};

#define ASKED                    \
    {                            \
        RAW_EXPECT, "19,20]}", 0 \
    }
#define JSON                                                                \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " \
    "31\r\n\r\n{\"usage\":{\"prompt_tokens\": 20}}"
#define SSE \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
#define EVENT "2a\r\ndata: {\"choices\":[{\"text\":\"token one\"}]}\n\n\r\n"
#define LAST  "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"

static unsigned asked(size_t i)
{
    unsigned n = 0;

    for (const char *at = rig.engine[i].got; at && (at = strstr(at, "POST /v1/completions")); at++)
        n++;
    return n;
}

static uint64_t failures(size_t i)
{
    struct wp_worker *w = worker(i);
    uint64_t n = w->errors;

    wp_worker_unref(w);
    return n;
}

/* ---- how answers end ---- */

/* clang-format off */
static const struct {
    const char *label;
    struct raw_step step[5];
    int status;
    bool whole;          /* for the client */
    const char *in_body; /* something that must be in it */
    unsigned failures, asked; /* of the one worker */
} answers[] = {
    {"json", {ASKED, {RAW_SEND, JSON, 0}}, 200, true, "usage", 0, 1},
    {"json, byte by byte", {ASKED, {RAW_DRIP, JSON, 0}}, 200, true, "usage", 0, 1},
    {"stream", {ASKED, {RAW_SEND, SSE, 0}, {RAW_SEND, EVENT, 0}, {RAW_SEND, LAST, 0}}, 200, true, "[DONE]", 0, 1},
    {"stream, byte by byte", {ASKED, {RAW_DRIP, SSE EVENT EVENT LAST, 0}}, 200, true, "[DONE]", 0, 1},
    {"stream that breaks", {ASKED, {RAW_SEND, SSE EVENT, 0}, {RAW_CLOSE, NULL, 0}}, 200, true, "upstream_failed", 1, 1},
    {"stream that breaks before its first byte", {ASKED, {RAW_SEND, SSE, 0}, {RAW_CLOSE, NULL, 0}}, 502, true, "upstream_failed", 1, 1},
    {"stream that is cut in its first chunk's size", {ASKED, {RAW_SEND, SSE "2", 0}, {RAW_RESET, NULL, 0}}, 502, true, "upstream_failed", 1, 1},
    {"stream of nothing", {ASKED, {RAW_SEND, SSE, 0}, {RAW_TURN, NULL, 3}, {RAW_SEND, "0\r\n\r\n", 0}}, 200, true, NULL, 0, 1},
    {"stream that is reset", {ASKED, {RAW_SEND, SSE EVENT, 0}, {RAW_TURN, NULL, 3}, {RAW_RESET, NULL, 0}}, 200, true, "upstream_failed", 1, 1},
    {"stream that begins with an error", {ASKED, {RAW_SEND, SSE "1b\r\ndata: {\"error\":{\"code\":1}}\n\n\r\n0\r\n\r\n", 0}}, 200, true, "error", 1, 1},
    {"json that breaks", {ASKED, {RAW_SEND, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 0}, {RAW_CLOSE, NULL, 0}}, 200, false, "half", 1, 1},
    {"400", {ASKED, {RAW_SEND, "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", 0}}, 400, true, "no", 0, 1},
    {"500", {ASKED, {RAW_SEND, "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", 0}}, 500, true, "no", 1, 1},
    {"429", {ASKED, {RAW_SEND, "HTTP/1.1 429 Busy\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno", 0}}, 429, true, "no", 0, 1},
    {"503", {ASKED, {RAW_SEND, "HTTP/1.1 503 Down\r\nContent-Length: 2\r\n\r\nno", 0}}, 503, true, "no", 1, 1},
    {"503 that asks for a pause", {ASKED, {RAW_SEND, "HTTP/1.1 503 Down\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno", 0}}, 503, true, "no", 0, 1},
    {"204", {ASKED, {RAW_SEND, "HTTP/1.1 204 Nothing\r\n\r\n", 0}}, 204, true, NULL, 0, 1},
    {"no HTTP", {ASKED, {RAW_SEND, "SSH-2.0-x\r\n\r\n", 0}}, 502, true, "upstream_failed", 1, 1},
    {"hangs up", {ASKED, {RAW_CLOSE, NULL, 0}}, 502, true, "upstream_failed", 1, 1},
    {"usage beyond numbers", {ASKED, {RAW_SEND, SSE
        "76\r\ndata: {\"usage\":{\"input_tokens\":9223372036854775807,\"cache_read_input_tokens\":9223372036854775807,\"output_tokens\":1}}\n\n\r\n" LAST, 0}},
        200, true, "[DONE]", 0, 1},
};
/* clang-format on */

static void every_end_of_an_answer_settles_it_once(void)
{
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        SET_UP(answers[i].step);
        post(BODY);
        TURN_UNTIL(rig.overs);
        EXPECT_INT(answers[i].label, answers[i].status, rig.status);
        EXPECT_INT(answers[i].label, answers[i].whole, rig.rc == 0);
        if (answers[i].in_body)
            EXPECT_TRUE(answers[i].label,
                        rig.body.n && memmem(rig.body.p, rig.body.n, answers[i].in_body,
                                             strlen(answers[i].in_body)));
        expect_at_rest();
        EXPECT_UINT(answers[i].label, answers[i].failures, failures(0));
        EXPECT_UINT(answers[i].label, answers[i].asked, asked(0));
        tear_down();
    }
}

/* ---- the client goes ---- */

static void a_client_may_go_at_any_moment(void)
{
    static const struct raw_step stream[] = {
        ASKED, {RAW_TURN, NULL, 5}, {RAW_DRIP, SSE EVENT EVENT EVENT LAST, 0}, {RAW_END, NULL, 0}};

    for (unsigned turns = 0; turns < 120; turns++) {
        SET_UP(stream);
        post(BODY);
        turn(turns);
        if (rig.call)
            wp_call_cancel(rig.call);
        TURN_UNTIL(rig.overs);
        expect_at_rest();
        EXPECT_UINT("the worker is not to blame", 0, failures(0));
        tear_down();
    }
}

static void a_client_may_go_in_its_callbacks(void)
{
    for (int what = 0; what < 2; what++) {
        SET_UP(SCRIPT(ASKED, {RAW_SEND, SSE EVENT, 0}, {RAW_HOLD, NULL, 0}));
        rig.drop_on_head = what == 0;
        rig.drop_on_body = what == 1;
        post(BODY);
        TURN_UNTIL(rig.overs);
        EXPECT_INT("by itself", WP_ECANCELED, rig.rc);
        expect_at_rest();
        TURN_UNTIL(rig.engine[0].open == 0); /* the engine's connection was closed with it */
        tear_down();
    }
}

static void the_router_may_close_at_any_moment(void)
{
    static const struct raw_step stream[] = {
        ASKED, {RAW_TURN, NULL, 5}, {RAW_DRIP, SSE EVENT EVENT LAST, 0}, {RAW_END, NULL, 0}};

    for (unsigned turns = 0; turns < 60; turns += 3) {
        SET_UP(stream);
        post(BODY);
        turn(turns);
        tear_down();
    }
}

static void nothing_is_tried_again_when_the_router_closes(void)
{
    static const struct raw_step stream[] = {
        ASKED, {RAW_TURN, NULL, 5}, {RAW_DRIP, SSE EVENT EVENT LAST, 0}, {RAW_END, NULL, 0}};

    for (unsigned turns = 0; turns < 60; turns++) {
        SET_UP(stream, stream);
        post(BODY);
        turn(turns);
        wp_gate_drain(&rig.gate, 1, false); /* it closes under the request, not after it */
        turn(turns % 7);
        tear_down();
    }
}

/* ---- another attempt ---- */

#define SERVED            \
    ASKED,                \
    {                     \
        RAW_SEND, JSON, 0 \
    }
#define BUSY "HTTP/1.1 429 Busy\r\nContent-Length: 2\r\n\r\nno"

static void a_busy_worker_passes_it_on(void)
{
    /* All three answer 429 but one: whoever is asked first, it ends there. */
    SET_UP(SCRIPT(ASKED, {RAW_SEND, BUSY, 0}), SCRIPT(SERVED, SERVED, SERVED, SERVED),
           SCRIPT(ASKED, {RAW_SEND, BUSY, 0}));
    for (int i = 0; i < 4; i++) {
        post(BODY);
        TURN_UNTIL(rig.overs);
        EXPECT_INT("served", 200, rig.status);
        expect_at_rest();
    }
    EXPECT_UINT("by that one", 4, asked(1));
    EXPECT_UINT("nobody is to blame", 0, failures(0) + failures(1) + failures(2));
    tear_down();
}

static void a_client_may_go_between_attempts(void)
{
    for (unsigned turns = 0; turns < 60; turns++) {
        SET_UP(SCRIPT(ASKED, {RAW_SEND, BUSY, 0}), SCRIPT(ASKED, {RAW_CLOSE, NULL, 0}),
               SCRIPT(ASKED, {RAW_SEND, BUSY, 0}));
        post(BODY);
        turn(turns);
        if (rig.call)
            wp_call_cancel(rig.call);
        TURN_UNTIL(rig.overs);
        expect_at_rest();
        tear_down();
    }
}

static void no_request_takes_more_than_two_workers_down(void)
{
    SET_UP(SCRIPT(ASKED, {RAW_CLOSE, NULL, 0}), SCRIPT(ASKED, {RAW_CLOSE, NULL, 0}),
           SCRIPT(ASKED, {RAW_CLOSE, NULL, 0}));
    post(BODY);
    TURN_UNTIL(rig.overs);
    EXPECT_INT("suspected", 502, rig.status);
    expect_at_rest();
    EXPECT_UINT("two", 2, asked(0) + asked(1) + asked(2));
    EXPECT_UINT("each failed once", 2, failures(0) + failures(1) + failures(2));
    tear_down();
}

/* The reuse race with one place on the worker: the repeat must not be refused by the attempt that
 * it repeats. */
static void a_kept_connection_that_dies_is_no_failure(void)
{
    static const char *const set[] = {"log.level=error", "limits.per_worker=1"};
    /* The connection serves one request and is closed with the second one on it; the next
     * connection plays the same. */
    const struct raw_step *script = SCRIPT(ASKED, {RAW_SEND, JSON, 0}, ASKED, {RAW_CLOSE, NULL, 0});

    set_up(&script, 1, set, 2);
    for (int i = 0; i < 3; i++) {
        post(BODY);
        TURN_UNTIL(rig.overs);
        EXPECT_INT("served", 200, rig.status);
        expect_at_rest();
    }
    EXPECT_UINT("the worker is well", 0, failures(0));
    EXPECT_UINT("two were repeated", 5, asked(0));
    tear_down();
}

/* The race's repeat dies as well: that was one worker, and there is another. */
static void a_worker_that_dies_twice_is_one_worker(void)
{
    const struct raw_step *const twice[] = {
        SCRIPT(ASKED, {RAW_SEND, JSON, 0}, ASKED, {RAW_HOLD, NULL, 0}, {RAW_CLOSE, NULL, 0}),
        SCRIPT(ASKED, {RAW_CLOSE, NULL, 0})};

    for (int other_dies = 0; other_dies < 2; other_dies++) {
        SET_UP(twice[0], other_dies ? twice[1] : SCRIPT(SERVED), SCRIPT(ASKED, {RAW_CLOSE, NULL, 0}));
        rig.engine[0].script = twice;
        rig.engine[0].n_scripts = 2;
        wp_fleet_drain(rig.router.fleet, WP_STR("w1"), true);
        wp_fleet_drain(rig.router.fleet, WP_STR("w2"), true);
        post(BODY);
        TURN_UNTIL(rig.overs);
        EXPECT_INT("served", 200, rig.status);
        post(BODY);
        TURN_UNTIL(rig.engine[0].holding);
        wp_fleet_drain(rig.router.fleet, WP_STR("w1"), false);
        wp_fleet_drain(rig.router.fleet, WP_STR("w2"), other_dies == 0);
        raw_server_go(&rig.engine[0]);
        TURN_UNTIL(rig.overs);
        EXPECT_INT("the other one serves, or is the second", other_dies ? 502 : 200, rig.status);
        expect_at_rest();
        EXPECT_UINT("on the kept connection, and on a fresh one", 3, asked(0));
        EXPECT_UINT("then elsewhere, once", 1, asked(1) + asked(2));
        EXPECT_UINT("it failed once", 1, failures(0));
        tear_down();
    }
}

/* The head of a stream alone is not an answer yet. */
static void a_stream_without_an_event_is_tried_elsewhere(void)
{
    SET_UP(SCRIPT(ASKED, {RAW_SEND, SSE, 0}, {RAW_TURN, NULL, 3}, {RAW_CLOSE, NULL, 0}),
           SCRIPT(ASKED, {RAW_SEND, SSE, 0}, {RAW_TURN, NULL, 3}, {RAW_SEND, EVENT LAST, 0}));
    wp_fleet_drain(rig.router.fleet, WP_STR("w1"), true);
    post(BODY);
    TURN_UNTIL(asked(0));
    wp_fleet_drain(rig.router.fleet, WP_STR("w1"), false);
    TURN_UNTIL(rig.overs);
    EXPECT_INT("served", 200, rig.status);
    EXPECT_TRUE("whole", rig.body.n && memmem(rig.body.p, rig.body.n, "[DONE]", 6) &&
                             !memmem(rig.body.p, rig.body.n, "error", 5));
    expect_at_rest();
    EXPECT_UINT("by the other", 1, asked(1));
    EXPECT_UINT("which the first is told", 1, failures(0));
    tear_down();
}

static void a_head_is_not_held_for_long(void)
{
    SET_UP(SCRIPT(ASKED, {RAW_SEND, SSE, 0}, {RAW_HOLD, NULL, 0}, {RAW_SEND, EVENT LAST, 0}));
    post(BODY);
    TURN_UNTIL(rig.status);
    EXPECT_INT("the head has come", 200, rig.status);
    EXPECT_UINT("alone", 0, rig.body.n);
    raw_server_go(&rig.engine[0]);
    TURN_UNTIL(rig.overs);
    EXPECT_TRUE("and the rest", rig.body.n && memmem(rig.body.p, rig.body.n, "[DONE]", 6));
    tear_down();
}

/* As when the engine's process is stopped: it takes what comes, and says nothing. */
static void goes_down(size_t i)
{
    struct wp_engine_facts f = {.rc = WP_ETIMEDOUT};
    struct wp_worker *w = worker(i);

    for (int k = 0; k < 3; k++)
        wp_fleet_probed(rig.router.fleet, w, &f, rig.settings.conf);
    EXPECT_TRUE("down", !w->up);
    wp_worker_unref(w);
}

static void who_waits_on_a_worker_that_goes_down_is_placed_elsewhere(void)
{
    SET_UP(SCRIPT(ASKED, {RAW_HOLD, NULL, 0}), SCRIPT(ASKED, {RAW_HOLD, NULL, 0}, {RAW_SEND, JSON, 0}, ASKED, {RAW_HOLD, NULL, 0}),
           SCRIPT(SERVED));
    wp_fleet_drain(rig.router.fleet, WP_STR("w1"), true);
    wp_fleet_drain(rig.router.fleet, WP_STR("w2"), true);
    post(BODY);
    TURN_UNTIL(rig.engine[0].holding);
    goes_down(0);
    turn(20);
    EXPECT_UINT("there is no other: it waits on", 0, rig.overs);
    wp_fleet_drain(rig.router.fleet, WP_STR("w1"), false);
    TURN_UNTIL(rig.engine[1].holding);
    TURN_UNTIL(rig.engine[0].resets);
    raw_server_go(&rig.engine[1]);
    TURN_UNTIL(rig.overs);
    EXPECT_INT("served", 200, rig.status);
    expect_at_rest();
    EXPECT_UINT("the first has failed", 1, failures(0));
    post(BODY);
    TURN_UNTIL(rig.engine[1].holding);
    wp_fleet_drain(rig.router.fleet, WP_STR("w2"), false);
    goes_down(1);
    TURN_UNTIL(rig.overs);
    EXPECT_INT("another request, another worker", 200, rig.status);
    tear_down();
}

static void two_workers_that_go_down_are_enough(void)
{
    SET_UP(SCRIPT(ASKED, {RAW_HOLD, NULL, 0}), SCRIPT(ASKED, {RAW_HOLD, NULL, 0}), SCRIPT(SERVED));
    wp_fleet_drain(rig.router.fleet, WP_STR("w2"), true);
    post(BODY);
    TURN_UNTIL(rig.engine[0].holding || rig.engine[1].holding);
    goes_down(rig.engine[0].holding ? 0 : 1);
    TURN_UNTIL(rig.engine[0].holding && rig.engine[1].holding);
    wp_fleet_drain(rig.router.fleet, WP_STR("w2"), false);
    goes_down(0);
    goes_down(1);
    TURN_UNTIL(rig.overs);
    EXPECT_INT("suspected", 502, rig.status);
    expect_at_rest();
    EXPECT_UINT("no third one", 0, asked(2));
    tear_down();
}

/* ---- labels, memory ---- */

static void names_that_clients_invent_are_no_labels(void)
{
    struct wp_worker *w;
    struct wp_buf b = {0};

    SET_UP(SCRIPT(ASKED, {RAW_SEND, JSON, 0}));
    w = worker(0);
    wp_fleet_remove(rig.router.fleet, WP_STR("w0"));
    wp_worker_unref(w);
    {
        struct wp_config_worker cw;
        struct wp_err err = WP_ERR_INIT;

        EXPECT_INT("entry", 0,
                   wp_config_worker_json(
                       &cw, WP_STR("{\"url\":\"http://127.0.0.1:1\",\"id\":\"w0\"}"), &err));
        EXPECT_INT("one that has not said what it serves", 0,
                   wp_fleet_add(rig.router.fleet, &cw, rig.settings.conf, &err));
        wp_config_worker_fini(&cw);
    }
    for (int i = 0; i < 20; i++) {
        char body[64];

        snprintf(body, sizeof body, "{\"model\":\"invented-%d\",\"prompt\":\"x\"}", i);
        post(body);
        TURN_UNTIL(rig.overs);
        EXPECT_INT("nobody yet", 503, rig.status);
    }
    EXPECT_INT("page", 0, wp_metrics_render(rig.router.metrics, &b));
    EXPECT_TRUE("no label", !memmem(b.p, b.n, "invented", 8));
    EXPECT_TRUE("but counted", memmem(b.p, b.n, "{model=\"\",code=\"503\"} 20", 24) != NULL);
    wp_buf_fini(&b);
    tear_down();
}

static void no_allocation_that_fails_leaves_a_request(void)
{
    static const struct raw_step stream[] = {ASKED,
                                             {RAW_SEND, SSE, 0},
                                             {RAW_SEND, EVENT, 0},
                                             {RAW_SEND, LAST, 0},
                                             ASKED,
                                             {RAW_SEND, SSE, 0},
                                             {RAW_SEND, EVENT, 0},
                                             {RAW_SEND, LAST, 0},
                                             {RAW_END, NULL, 0}};
    bool hit = true;

    for (long nth = 0; hit && nth < 2000; nth++) {
        SET_UP(stream, stream);
        wp_mem_fail_after(nth);
        post(BODY);
        TURN_UNTIL(!rig.call);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (!hit)
            EXPECT_INT("and was served", 200, rig.status);
        expect_at_rest();
        EXPECT_UINT("no worker is to blame", 0, failures(0) + failures(1));
        post(BODY);
        TURN_UNTIL(rig.overs);
        EXPECT_INT("the next one is served", 200, rig.status);
        tear_down();
    }
}

/* ---- ids are asked for first ---- */

static const char *const by_engine[] = {
    "log.level=error", "models.0.name=m", "models.0.tokenizer.kind=engine",
    "models.0.tokenizer.limit_ms=60000", "models.0.tokenizer.hedge_ms=60000"};
#define TEXT "{\"model\":\"m\",\"prompt\":\"all work and no play\"}"
#define IDS  "HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n{\"count\":3,\"tokens\":[7,8,9] }"
#define UP(...)                                                                                \
    set_up(SCRIPTS(__VA_ARGS__), sizeof SCRIPTS(__VA_ARGS__) / sizeof SCRIPTS(__VA_ARGS__)[0], \
           by_engine, sizeof by_engine / sizeof by_engine[0])
static const struct raw_step slow_ids[] = {
    {RAW_EXPECT, "}", 0}, {RAW_TURN, NULL, 5},           {RAW_DRIP, IDS, 0}, {RAW_EXPECT, "}", 0},
    {RAW_TURN, NULL, 5},  {RAW_DRIP, SSE EVENT LAST, 0}, {RAW_END, NULL, 0}};
static const struct raw_step swift_ids[] = {
    {RAW_EXPECT, "}", 0}, {RAW_SEND, IDS, 0},  {RAW_EXPECT, "}", 0}, {RAW_SEND, JSON, 0},
    {RAW_EXPECT, "}", 0}, {RAW_SEND, JSON, 0}, {RAW_END, NULL, 0}};

static void a_prompt_of_text_waits_for_its_ids(void)
{
    UP(slow_ids);
    post(TEXT);
    TURN_UNTIL(rig.overs);
    EXPECT_INT("served", 200, rig.status);
    EXPECT_TRUE("asked", strstr(rig.engine[0].got, "POST /tokenize HTTP/1.1"));
    EXPECT_TRUE("then sent",
                strstr(strstr(rig.engine[0].got, "/tokenize"), "POST /v1/completions"));
    tear_down();
}

static void a_client_may_go_while_ids_are_awaited(void)
{
    for (unsigned turns = 0; turns < 160; turns++) {
        UP(slow_ids);
        post(TEXT);
        turn(turns);
        if (rig.call)
            wp_call_cancel(rig.call);
        TURN_UNTIL(rig.overs);
        expect_at_rest();
        EXPECT_UINT("the worker is not to blame", 0, failures(0));
        tear_down();
    }
}

static void the_router_may_close_while_ids_are_awaited(void)
{
    for (unsigned turns = 0; turns < 120; turns++) {
        UP(slow_ids);
        post(TEXT);
        turn(turns);
        wp_gate_drain(&rig.gate, 1, false); /* it closes under the request, not after it */
        turn(turns % 7);
        tear_down();
    }
}

static void ids_that_find_no_memory_are_done_without(void)
{
    bool hit = true;

    for (long nth = 0; hit && nth < 2000; nth++) {
        UP(swift_ids, swift_ids);
        wp_mem_fail_after(nth);
        post(TEXT);
        TURN_UNTIL(!rig.call);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (!hit)
            EXPECT_INT("and was served", 200, rig.status);
        expect_at_rest();
        EXPECT_UINT("no worker is to blame", 0, failures(0) + failures(1));
        tear_down();
    }
}

const struct wp_suite suite_request = {
    "request",
    (const struct wp_test[]){
        {"every end of an answer settles it once", every_end_of_an_answer_settles_it_once},
        {"a client may go at any moment", a_client_may_go_at_any_moment},
        {"a client may go in its callbacks", a_client_may_go_in_its_callbacks},
        {"the router may close at any moment", the_router_may_close_at_any_moment},
        {"nothing is tried again when the router closes",
         nothing_is_tried_again_when_the_router_closes},
        {"a busy worker passes it on", a_busy_worker_passes_it_on},
        {"a client may go between attempts", a_client_may_go_between_attempts},
        {"no request takes more than two workers down",
         no_request_takes_more_than_two_workers_down},
        {"a kept connection that dies is no failure", a_kept_connection_that_dies_is_no_failure},
        {"a stream without an event is tried elsewhere",
         a_stream_without_an_event_is_tried_elsewhere},
        {"a head is not held for long", a_head_is_not_held_for_long},
        {"who waits on a worker that goes down is placed elsewhere",
         who_waits_on_a_worker_that_goes_down_is_placed_elsewhere},
        {"two workers that go down are enough", two_workers_that_go_down_are_enough},
        {"a worker that dies twice is one worker", a_worker_that_dies_twice_is_one_worker},
        {"names that clients invent are no labels", names_that_clients_invent_are_no_labels},
        {"no allocation that fails leaves a request", no_allocation_that_fails_leaves_a_request},
        {"a prompt of text waits for its ids", a_prompt_of_text_waits_for_its_ids},
        {"a client may go while ids are awaited", a_client_may_go_while_ids_are_awaited},
        {"the router may close while ids are awaited", the_router_may_close_while_ids_are_awaited},
        {"ids that find no memory are done without", ids_that_find_no_memory_are_done_without},
        {NULL, NULL},
    },
};
