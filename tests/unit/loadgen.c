/* SPDX-License-Identifier: Apache-2.0 */
/* The load generator: its bodies, and runs against the simulated engine and against servers that
 * misbehave. */
#include "sim/load.h"

#include "base/mem.h"
#include "net/json.h"
#include "net/server.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <unistd.h>

enum { REQUESTS = 20, BLOCKS = 3 };

static void a_load_asks_for_what_the_trace_says(void)
{
    static const char *const names[] = {"model",  "prompt",     "max_tokens",
                                        "stream", "ignore_eos", "stream_options"};
    uint32_t token[1000], back[1000];
    struct wp_buf b = {0};
    struct wp_json v[6];
    struct wp_err err = WP_ERR_INIT;
    uint64_t max = 0;

    for (uint32_t i = 0; i < 1000; i++)
        token[i] = 257 + i * 31;
    EXPECT_INT("made", 0, wp_load_body(&b, "a \"b\"", token, 1000, 343, true));
    EXPECT_INT("it is JSON", 0, wp_json_members(wp_buf_str(&b), names, 6, v, &err));
    EXPECT_TRUE("model", wp_json_is(v[0], "a \"b\""));
    EXPECT_INT("prompt", 1000, wp_json_tokens(v[1], back, 1000));
    EXPECT_TRUE("the same ids", memcmp(token, back, sizeof token) == 0);
    EXPECT_TRUE("max_tokens", wp_json_u64(v[2], &max) && max == 343);
    EXPECT_TRUE("a stream that never ends early",
                v[3].kind == WP_JSON_TRUE && v[4].kind == WP_JSON_TRUE);
    EXPECT_TRUE("with usage", wp_json_get(v[5], "include_usage").kind == WP_JSON_TRUE);
    b.n = 0;
    EXPECT_INT("whole", 0, wp_load_body(&b, "m", token, 1, 1, false));
    EXPECT_TEXT(
        "whole",
        "{\"model\":\"m\",\"prompt\":[257],\"max_tokens\":1,\"temperature\":0,\"ignore_eos\":true}",
        wp_buf_str(&b));
    wp_buf_fini(&b);
}

/* ---- a trace by hand, and a loop to play it on ---- */

struct play {
    struct wp_loop loop;
    struct wp_load *load;
    struct wp_load_conf conf;
    struct wp_trace trace;
    struct wp_trace_req req[REQUESTS];
    uint64_t id[REQUESTS][BLOCKS];
    bool stop_at_once, done;
};

/* All share their first block, every second one its second; a millisecond apart. */
static void prepare(struct play *p, uint16_t port, size_t n)
{
    struct wp_err err = WP_ERR_INIT;

    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < n; i++) {
        p->id[i][0] = 1;
        p->id[i][1] = 2 + i % 2;
        p->id[i][2] = 100 + i;
        p->req[i] = (struct wp_trace_req){.at_us = i * 1000, .input = 1100, .output = 5, .n_ids = BLOCKS, .id = p->id[i]};
    }
    p->trace = (struct wp_trace){.req = p->req, .n = n};
    p->conf = (struct wp_load_conf){
        .target = {.host = WP_STR("127.0.0.1"), .port = port},
        .model = "tiny",
        .label = "test",
        .scale = 1,
        .speed = 1,
        .vocabulary = 32000,
        .timeout_us = 20000000,
    };
    EXPECT_INT("loop", 0, wp_loop_init(&p->loop, &err));
}

static void on_done(void *arg)
{
    struct play *p = arg;

    p->done = true;
}

static void on_closed(void *arg)
{
    struct play *p = arg;

    wp_loop_stop(&p->loop);
}

static void run(struct play *p)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("create", 0,
               wp_load_create(&p->load, &p->loop, &p->conf, &p->trace, on_done, p, &err));
    if (p->stop_at_once)
        wp_load_stop(p->load);
    while (!p->done)
        uv_run(&p->loop.uv, UV_RUN_ONCE);
}

static void finish(struct play *p)
{
    wp_load_destroy(p->load, on_closed, p);
    EXPECT_INT("every handle was closed", 0, wp_loop_run(&p->loop));
    wp_loop_fini(&p->loop);
}

static uint64_t kind(struct play *p, const char *name)
{
    struct wp_buf text = {0};
    uint64_t n;
    json_t *v;

    EXPECT_INT("json", 0, wp_load_json(p->load, &text));
    v = json_loadb(text.p, text.n, 0, NULL);
    EXPECT_TRUE("it is one object", json_is_object(v));
    n = (uint64_t)json_integer_value(json_object_get(json_object_get(v, "errors_by_kind"), name));
    json_decref(v);
    wp_buf_fini(&text);
    return n;
}

static void measures_what_the_engine_serves(void)
{
    struct wp_load_state s;
    struct wp_figures f;
    struct wp_rig rig;
    struct play p;

    wp_rig_start(&rig, NULL, 5000);
    prepare(&p, rig.port, REQUESTS);
    p.conf.warmup = 4;
    p.conf.in_flight = 1; /* one after the other, so that what is cached is known */
    run(&p);
    wp_load_state(p.load, &s);
    EXPECT_UINT("sent", REQUESTS, s.sent);
    EXPECT_UINT("ended", REQUESTS, s.ended);
    EXPECT_UINT("failed", 0, s.failed);
    wp_report_figures(wp_load_report(p.load), &f);
    EXPECT_UINT("measured", REQUESTS - 4, f.requests);
    EXPECT_UINT("prompt tokens", 1100 * (REQUESTS - 4), f.prompt_tokens);
    EXPECT_UINT("output tokens", 5 * (REQUESTS - 4), f.output_tokens);
    EXPECT_NEAR("two blocks of 512 come from cache", 1024.0 / 1100, f.share[WP_HIT_CACHED], 1e-9);
    EXPECT_TRUE("times are in order", f.ttft_p50_s > 0 && f.ttft_p99_s <= f.e2e_p99_s);
    finish(&p);
    wp_rig_stop(&rig);
}

static void asks_for_whole_answers_too(void)
{
    struct wp_load_state s;
    struct wp_rig rig;
    struct play p;

    wp_rig_start(&rig, NULL, 5000);
    prepare(&p, rig.port, 5);
    p.conf.whole = true;
    run(&p);
    wp_load_state(p.load, &s);
    EXPECT_UINT("ended", 5, s.ended);
    EXPECT_UINT("failed", 0, s.failed);
    finish(&p);
    wp_rig_stop(&rig);
}

static void names_what_went_wrong(void)
{
    static const char *const faults[] = {"status=503,count=2", "reset,count=3",
                                         "error-first,count=1", "die-after=2,count=4", NULL};
    struct wp_load_state s;
    struct wp_rig rig;
    struct play p;

    wp_rig_start(&rig, faults, 1000);
    prepare(&p, rig.port, REQUESTS);
    run(&p);
    wp_load_state(p.load, &s);
    EXPECT_UINT("failed", 10, s.failed);
    EXPECT_UINT("by status", 2, kind(&p, "status 503"));
    EXPECT_UINT("resets", 3, kind(&p, "closed before an answer"));
    EXPECT_UINT("error events", 1, kind(&p, "error in the stream"));
    EXPECT_UINT("deaths", 4, kind(&p, "cut off in the answer"));
    finish(&p);
    wp_rig_stop(&rig);
}

static void nobody_listens(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC,
                    0); /* bound, not listening: the port stays ours */
    socklen_t n = sizeof at;
    struct wp_load_state s;
    struct play p;

    EXPECT_INT("bound", 0,
               bind(fd, (struct sockaddr *)&at, n) || getsockname(fd, (struct sockaddr *)&at, &n));
    prepare(&p, ntohs(at.sin_port), 3);
    p.conf.warmup = 1;
    run(&p);
    wp_load_state(p.load, &s);
    EXPECT_UINT("all failed", 3, s.failed);
    EXPECT_UINT("two of them count", 2, kind(&p, "connect failed"));
    finish(&p);
    close(fd);
}

/* An engine that never answers: stopping, or destroying, ends what is in flight. */
static void stops_at_any_time(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_load_state s;
    struct wp_rig rig;
    struct play p;

    wp_rig_start(&rig, (const char *const[]){"silent", NULL}, 1);
    prepare(&p, rig.port, 3);
    p.stop_at_once = true;
    run(&p);
    wp_load_state(p.load, &s);
    EXPECT_UINT("nothing was sent", 0, s.sent);
    finish(&p);
    prepare(&p, rig.port, 3);
    EXPECT_INT("create", 0, wp_load_create(&p.load, &p.loop, &p.conf, &p.trace, NULL, NULL, &err));
    do {
        uv_run(&p.loop.uv, UV_RUN_ONCE);
        wp_load_state(p.load, &s);
    } while (s.sent < 3);
    EXPECT_UINT("all wait", 3, s.in_flight);
    finish(&p);
    wp_rig_stop(&rig);
}

/* ---- a server that answers from a table ---- */

/* clang-format off */
#define TEXT "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
static const struct {
    const char *label, *type, *body, *want; /* want: the kind of error; NULL: none */
} canned[] = {
    {"good", "text/event-stream", TEXT TEXT "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1100,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n", NULL},
    {"comments and CRLF", "text/event-stream", ": hi\r\n\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\r\n\r\ndata: [DONE]\r\n\r\n", NULL},
    {"no end", "text/event-stream", TEXT TEXT, "stream without an end"},
    {"no text", "text/event-stream", "data: {\"choices\":[{\"text\":\"\"}]}\n\ndata: [DONE]\n\n", "no text"},
    {"garbage", "text/event-stream", "data: {{{\n\ndata: [DONE]\n\n", "error in the stream"},
    {"an error in the middle", "text/event-stream", TEXT "data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n", "error in the stream"},
    {"nothing at all", "application/json", "", "stream without an end"},
    {"no event stream", "application/json", "{\"choices\":[]}", "stream without an end"},
};
/* clang-format on */
enum { CANNED = sizeof canned / sizeof canned[0] };

static void on_asked(struct wp_exchange *x)
{
    static const struct wp_field worker = {{"X-Warmpath-Worker", 17}, {"w1", 2}};
    size_t *next = x->user;
    size_t i = (*next)++ % CANNED;

    wp_reply(x, 200, canned[i].type, &worker, 1, wp_str_of(canned[i].body));
}

static void on_over(struct wp_exchange *x, int rc)
{
    (void)x;
    (void)rc;
}

static void on_request(struct wp_exchange *x, void *arg)
{
    static const struct wp_exchange_ops ops = {.on_body_end = on_asked, .on_over = on_over};

    x->ops = &ops;
    x->user = arg;
}

static void judges_what_servers_send(void)
{
    size_t next = 0;
    struct wp_server_conf conf = {.address = WP_STR("127.0.0.1:0"),
                                  .head_bytes = 65536,
                                  .body_bytes = 1 << 20,
                                  .head_us = 20000000,
                                  .body_us = 20000000,
                                  .keepalive_us = 20000000,
                                  .send_us = 20000000,
                                  .on_request = on_request,
                                  .arg = &next};
    struct wp_err err = WP_ERR_INIT;
    struct wp_server *server;
    long live = wp_mem_live();
    struct wp_load_state s;
    struct wp_figures f;
    struct play p;

    prepare(&p, 0, CANNED);
    p.conf.in_flight = 1;
    EXPECT_INT("server", 0, wp_server_create(&server, &p.loop, &conf, &err));
    p.conf.target.port = wp_server_port(server);
    run(&p);
    wp_load_state(p.load, &s);
    EXPECT_UINT("two are good", CANNED - 2, s.failed);
    for (size_t i = 0; i < CANNED; i++)
        EXPECT_TRUE(canned[i].label, !canned[i].want || kind(&p, canned[i].want) > 0);
    EXPECT_UINT("three have no end", 3, kind(&p, "stream without an end"));
    EXPECT_UINT("two have errors", 2, kind(&p, "error in the stream"));
    wp_report_figures(wp_load_report(p.load), &f);
    EXPECT_NEAR("one worker did it all", 1, f.imbalance, 1e-9);
    wp_server_destroy(server, NULL, NULL);
    finish(&p);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void survives_every_lack_of_memory(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_load *load;
    struct play p;
    long live;

    prepare(&p, 1, 1);
    live = wp_mem_live();
    for (long nth = 0;; nth++) {
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_load_create(&load, &p.loop, &p.conf, &p.trace, NULL, NULL, &err);
        if (!wp_mem_failed()) {
            EXPECT_INT("enough", 0, rc);
            break;
        }
        EXPECT_INT("too little", WP_ENOMEM, rc);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
    wp_mem_fail_after(-1);
    p.load = load;
    finish(&p);
}

static const struct wp_test tests[] = {
    {"a load asks for what the trace says", a_load_asks_for_what_the_trace_says},
    {"measures what the engine serves", measures_what_the_engine_serves},
    {"asks for whole answers too", asks_for_whole_answers_too},
    {"names what went wrong", names_what_went_wrong},
    {"nobody listens", nobody_listens},
    {"stops at any time", stops_at_any_time},
    {"judges what servers send", judges_what_servers_send},
    {"survives every lack of memory", survives_every_lack_of_memory},
    {NULL, NULL},
};
const struct wp_suite suite_loadgen = {"loadgen", tests};
