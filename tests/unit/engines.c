/* SPDX-License-Identifier: Apache-2.0 */
/* Probes over real sockets, against an engine that plays a script. */
#include "adapters/adapter.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tests/lib/rawserver.h"
#include "tests/lib/test.h"

enum { ALL = WP_PROBE_HEALTH | WP_PROBE_MODELS | WP_PROBE_LOAD };

static struct rig {
    struct wp_loop l;
    struct raw_server server;
    struct wp_client *client;
    struct wp_probe *probe;
    unsigned answers, closed;
    bool inside, take_models;
    struct wp_engine_facts facts;
    long live;
} rig;

#define TURN_UNTIL(cond) \
    while (!(cond))      \
    uv_run(&rig.l.uv, UV_RUN_ONCE)

static void on_answer(void *arg, struct wp_engine_facts *f)
{
    EXPECT_TRUE("its argument", arg == &rig);
    EXPECT_TRUE("not inside the call", !rig.inside);
    rig.answers++;
    rig.probe = NULL;
    wp_engine_facts_fini(&rig.facts);
    rig.facts = *f;
    if (rig.take_models) { /* as the header allows */
        f->model = NULL;
        f->n_models = 0;
    } else {
        rig.facts.model = NULL; /* they go with the probe */
        rig.facts.n_models = f->n_models;
    }
}

static void on_closed(void *arg)
{
    ++*(unsigned *)arg;
}

static void set_up(const struct raw_step *const script[], size_t n)
{
    struct wp_err err = WP_ERR_INIT;

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    EXPECT_INT("loop", 0, wp_loop_init(&rig.l, &err));
    EXPECT_INT("server", 0, raw_server_start(&rig.server, &rig.l.uv, false, script, n));
    EXPECT_INT("client", 0, wp_client_create(&rig.client, &rig.l, NULL, &err));
}

static void tear_down(void)
{
    if (rig.take_models)
        wp_engine_facts_fini(&rig.facts);
    if (rig.client)
        wp_client_destroy(rig.client, on_closed, &rig.closed);
    TURN_UNTIL(rig.closed);
    raw_server_stop(&rig.server);
    wp_loop_stop(&rig.l);
    EXPECT_INT("run", 0, wp_loop_run(&rig.l));
    raw_server_fini(&rig.server);
    wp_loop_fini(&rig.l);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

static struct wp_engine_target target(void)
{
    return (struct wp_engine_target){
        .host = WP_STR("127.0.0.1"), .port = rig.server.port, .timeout_us = 20000000};
}

static bool probe(const char *kind, const struct wp_engine_target *t, unsigned what)
{
    rig.inside = true;
    rig.probe = wp_engine_find(kind)->probe(rig.client, t, what, on_answer, &rig);
    rig.inside = false;
    return rig.probe != NULL;
}

static void expect_word(const char *label, const char *want, const char *got)
{
    EXPECT_TEXT(label, want ? want : "(none)", wp_str_of(got ? got : "(none)"));
}

/* One connection; each part is an answer to one request.  "" ends the connection instead. */
enum { PARTS = 4 };
static struct raw_step steps[2 * PARTS + 2];
static const struct raw_step *const script[] = {steps};

static void answers(const char *const part[PARTS])
{
    size_t n = 0;

    for (int i = 0; i < PARTS && part[i]; i++) {
        steps[n++] = (struct raw_step){RAW_EXPECT, "\r\n\r\n", 0};
        steps[n++] = part[i][0] ? (struct raw_step){RAW_SEND, part[i], 0}
                                : (struct raw_step){RAW_CLOSE, NULL, 0};
    }
    steps[n] = (struct raw_step){RAW_END, NULL, 0};
    set_up(script, 1);
}

#define OK      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define GONE    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
#define LOADING "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n{\"e\": \"Loading\"}"
#define DOWN    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"
#define DENIED  "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
#define MODELS                                                         \
    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: " \
    "chunked\r\n\r\n18\r\n{\"data\":[{\"id\":\"tiny\"}]}\r\n0\r\n\r\n"
#define LOAD                                                                  \
    "HTTP/1.1 200 OK\r\nContent-Length: 56\r\n\r\nvllm:num_requests_running " \
    "3\nvllm:num_requests_waiting 0\n"
#define GARBAGE  "\1\2\3 what is this\r\n\r\n"
#define NOT_LIST "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"

/* clang-format off */
static const struct probe_case {
    const char *label, *kind;
    unsigned what;
    const char *part[PARTS]; /* to each request in turn */
    bool up, loading;
    int rc;
    size_t models;
    double running; /* negative: unknown */
    const char *missing, *asked;
} cases[] = {
    {"up", "vllm", ALL, {OK, MODELS, LOAD}, true, false, 200, 1, 3, "vllm:cache_config_info", "/health /v1/models /metrics"},
    {"up, found out", "auto", ALL, {OK, MODELS, LOAD}, true, false, 200, 1, 3, "vllm:cache_config_info", "/health /v1/models /metrics"},
    {"up, no metrics page", "auto", ALL, {OK, MODELS, GONE}, true, false, 200, 1, -1, "GET /metrics", "/health /v1/models /metrics"},
    {"no health page", "auto", ALL, {GONE, MODELS, LOAD}, true, false, 200, 1, 3, "vllm:cache_config_info", "/health /v1/models /metrics"},
    {"vllm must have one", "vllm", ALL, {GONE}, false, false, 404, 0, -1, NULL, "/health"},
    {"openai has models alone", "openai", ALL, {MODELS}, true, false, 200, 1, -1, NULL, "/v1/models"},
    {"health of openai is its models", "openai", WP_PROBE_HEALTH, {MODELS}, true, false, 200, 1, -1, NULL, "/v1/models"},
    {"loading", "vllm", ALL, {LOADING}, false, true, 503, 0, -1, NULL, "/health"},
    {"down", "auto", ALL, {DOWN}, false, false, 503, 0, -1, NULL, "/health"},
    {"denied", "auto", ALL, {OK, DENIED}, false, false, 401, 0, -1, NULL, "/health /v1/models"},
    {"garbage", "vllm", ALL, {GARBAGE}, false, false, WP_EPROTO, 0, -1, NULL, "/health"},
    {"garbage later", "vllm", ALL, {OK, GARBAGE}, false, false, WP_EPROTO, 0, -1, NULL, "/health /v1/models"},
    {"no list", "openai", ALL, {NOT_LIST}, false, false, WP_EPROTO, 0, -1, NULL, "/v1/models"},
    {"hangs up", "vllm", ALL, {""}, false, false, WP_EEOF, 0, -1, NULL, "/health"},
    {"metrics hang up", "vllm", ALL, {OK, MODELS, ""}, true, false, 200, 1, -1, "GET /metrics", "/health /v1/models /metrics"},
    {"garbage metrics", "vllm", ALL, {OK, MODELS, NOT_LIST}, true, false, 200, 1, -1, "vllm:num_requests_running", "/health /v1/models /metrics"},
    {"just the load", "vllm", WP_PROBE_LOAD, {LOAD}, false, false, 0, 0, 3, "vllm:cache_config_info", "/metrics"},
    {"just the health", "vllm", WP_PROBE_HEALTH, {OK}, true, false, 200, 0, -1, NULL, "/health"},
};
/* clang-format on */

static void expect_asked(const char *label, const char *want)
{
    struct wp_buf b = {0};
    const char *at = rig.server.got ? rig.server.got : "";

    while ((at = strstr(at, "GET "))) {
        wp_buf_printf(&b, "%s%.*s", b.n ? " " : "", (int)strcspn(at + 4, " "), at + 4);
        at += 4;
    }
    EXPECT_TEXT(label, want, wp_buf_str(&b));
    wp_buf_fini(&b);
}

static void an_engine_is_what_its_pages_say(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct probe_case *c = &cases[i];
        struct wp_engine_target t;

        answers(c->part);
        t = target();
        EXPECT_TRUE(c->label, probe(c->kind, &t, c->what));
        TURN_UNTIL(rig.answers);
        EXPECT_INT(c->label, c->up, rig.facts.up);
        EXPECT_INT(c->label, c->loading, rig.facts.loading);
        EXPECT_INT(c->label, c->rc, rig.facts.rc);
        EXPECT_UINT(c->label, c->models, rig.facts.n_models);
        EXPECT_NEAR(c->label, c->running, rig.facts.running, 0);
        expect_word(c->label, c->missing, rig.facts.missing);
        expect_asked(c->label, c->asked);
        EXPECT_UINT(c->label, 1, rig.answers);
        EXPECT_INT(c->label,
                   strstr(c->asked, "/metrics") && strcmp(c->label, "metrics hang up") != 0,
                   rig.facts.sleep_known);
        tear_down();
    }
}

static void nobody_there_is_told_later(void)
{
    static const char *const none[PARTS] = {NULL};
    struct wp_engine_target t;

    answers(none);
    t = target();
    t.port = 1;
    EXPECT_TRUE("a probe", probe("vllm", &t, ALL));
    EXPECT_UINT("later", 0, rig.answers);
    TURN_UNTIL(rig.answers);
    EXPECT_INT("refused", WP_ECONNREFUSED, rig.facts.rc);
    EXPECT_TRUE("down", !rig.facts.up);
    tear_down();
}

static void an_engine_that_hangs_is_given_up_at_any_page(void)
{
    static const char *const hangs[][PARTS] = {
        {NULL}, {OK}, {OK, MODELS}, {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"}};

    for (size_t i = 0; i < sizeof hangs / sizeof hangs[0]; i++) {
        struct wp_engine_target t;

        answers(hangs[i]);
        t = target();
        t.timeout_us = 30000;
        EXPECT_TRUE("a probe", probe("vllm", &t, ALL));
        TURN_UNTIL(rig.answers);
        EXPECT_INT("load that hangs leaves it up", i == 2, rig.facts.up);
        EXPECT_INT("why", i == 2 ? 200 : WP_ETIMEDOUT, rig.facts.rc);
        tear_down();
    }
}

static void a_page_without_end_is_cut_off(void)
{
    static const char *const heads[][PARTS] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"},
        {OK, "HTTP/1.1 200 OK\r\n\r\n"},
        {OK, MODELS, "HTTP/1.1 200 OK\r\n\r\n"}};
    size_t n = 5 << 20;
    char *bulk = wp_malloc(n);

    memset(bulk, ' ', n);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct wp_engine_target t;
        size_t at = 0;

        answers(heads[i]);
        while (steps[at].op != RAW_END)
            at++;
        steps[at++] = (struct raw_step){RAW_SEND, bulk, n};
        steps[at] = (struct raw_step){RAW_END, NULL, 0};
        t = target();
        EXPECT_TRUE("a probe", probe("vllm", &t, ALL));
        TURN_UNTIL(rig.answers);
        EXPECT_INT("up all the same when it is the load", i == 2, rig.facts.up);
        EXPECT_INT("why", i == 2 ? 200 : WP_ETOOBIG, rig.facts.rc);
        expect_word("what is missing", i == 2 ? "GET /metrics" : NULL, rig.facts.missing);
        tear_down();
    }
    wp_free(bulk);
}

static void base_path_own_health_page_and_key_are_used(void)
{
    static const char *const part[PARTS] = {OK, MODELS, LOAD};
    struct wp_engine_target t;
    char key[3000];
    size_t n = 0;

    answers(part);
    memset(key, 'k', sizeof key - 1); /* a token of an identity provider is easily that long */
    key[sizeof key - 1] = 0;
    t = target();
    t.base = WP_STR("/base");
    t.health = WP_STR("/ping?x=1");
    t.bearer = wp_str_of(key);
    EXPECT_TRUE("a probe", probe("vllm", &t, ALL));
    TURN_UNTIL(rig.answers);
    EXPECT_TRUE("up", rig.facts.up);
    expect_asked("pages", "/base/ping?x=1 /base/v1/models /base/metrics");
    for (const char *at = rig.server.got; (at = strstr(at, "uthorization: Bearer k")); at++)
        n += strspn(at + 21, "k") == sizeof key - 1;
    EXPECT_UINT("the whole key with each", 3, n);
    tear_down();
}

static void the_answer_may_keep_the_models(void)
{
    static const char *const part[PARTS] = {MODELS};
    struct wp_engine_target t;

    answers(part);
    rig.take_models = true;
    t = target();
    EXPECT_TRUE("a probe", probe("openai", &t, ALL));
    TURN_UNTIL(rig.answers);
    EXPECT_UINT("one", 1, rig.facts.n_models);
    if (rig.facts.n_models)
        expect_word("name", "tiny", rig.facts.model[0].name);
    tear_down();
}

/* At each stage: before anything, connected, after each page, in the middle of one. */
static void a_cancelled_probe_answers_nothing(void)
{
    for (unsigned turns = 0; turns < 40; turns++) {
        static const char *const part[PARTS] = {OK, MODELS, LOAD};
        struct wp_engine_target t;

        answers(part);
        for (size_t i = 0; steps[i].op != RAW_END; i++)
            if (steps[i].op == RAW_SEND)
                steps[i].op = turns % 2 ? RAW_DRIP : RAW_SEND;
        t = target();
        EXPECT_TRUE("a probe", probe("vllm", &t, ALL));
        for (unsigned k = 0; k < turns && !rig.answers; k++)
            uv_run(&rig.l.uv, UV_RUN_ONCE);
        if (rig.probe) {
            wp_probe_cancel(rig.probe);
            for (int k = 0; k < 3; k++)
                uv_run(&rig.l.uv, UV_RUN_NOWAIT);
            EXPECT_UINT("no answer", 0, rig.answers);
        }
        tear_down();
    }
}

static void the_client_may_go_first(void)
{
    for (unsigned turns = 0; turns < 6; turns++) {
        static const char *const part[PARTS] = {OK, MODELS};
        struct wp_engine_target t;

        answers(part);
        t = target();
        EXPECT_TRUE("a probe", probe("vllm", &t, ALL));
        for (unsigned k = 0; k < turns; k++)
            uv_run(&rig.l.uv, UV_RUN_ONCE);
        wp_client_destroy(rig.client, on_closed, &rig.closed);
        rig.client = NULL;
        TURN_UNTIL(rig.closed);
        EXPECT_UINT("told once", 1, rig.answers);
        tear_down();
    }
}

static void no_allocation_that_fails_breaks_a_probe(void)
{
    bool hit = true;

    for (long nth = 0; hit; nth++) {
        static const char *const part[PARTS] = {OK, MODELS, LOAD};
        struct wp_engine_target t;
        bool begun;

        answers(part);
        t = target();
        t.base = WP_STR("/b");
        t.bearer = WP_STR("k");
        wp_mem_fail_after(nth);
        begun = probe("vllm", &t, ALL);
        if (begun)
            TURN_UNTIL(rig.answers);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_UINT("answered if begun", begun, rig.answers);
        if (!hit)
            EXPECT_TRUE("up and all known",
                        rig.facts.up && rig.facts.metrics_known && rig.facts.n_models == 1);
        else if (begun && rig.facts.up)
            EXPECT_TRUE("load alone was lost, and that is said",
                        !rig.facts.metrics_known && rig.facts.missing);
        else if (begun)
            EXPECT_INT("why", WP_ENOMEM, rig.facts.rc);
        tear_down();
    }
}

static void kinds_are_found_by_name(void)
{
    EXPECT_TRUE("vllm", wp_engine_find("vllm") != NULL);
    EXPECT_TRUE("auto", wp_engine_find("auto") != NULL);
    EXPECT_TRUE("openai", wp_engine_find("openai") != NULL);
    EXPECT_TRUE("none", wp_engine_find("VLLM") == NULL && wp_engine_find("") == NULL);
    for (size_t i = 0; wp_engines[i]; i++)
        EXPECT_TRUE(wp_engines[i]->name, wp_engine_find(wp_engines[i]->name) == wp_engines[i] &&
                                             wp_engines[i]->summary[0]);
}

const struct wp_suite suite_engines = {
    "engines",
    (const struct wp_test[]){
        {"an engine is what its pages say", an_engine_is_what_its_pages_say},
        {"nobody there is told later", nobody_there_is_told_later},
        {"an engine that hangs is given up at any page",
         an_engine_that_hangs_is_given_up_at_any_page},
        {"a page without end is cut off", a_page_without_end_is_cut_off},
        {"base path, own health page and key are used", base_path_own_health_page_and_key_are_used},
        {"the answer may keep the models", the_answer_may_keep_the_models},
        {"a cancelled probe answers nothing", a_cancelled_probe_answers_nothing},
        {"the client may go first", the_client_may_go_first},
        {"no allocation that fails breaks a probe", no_allocation_that_fails_breaks_a_probe},
        {"kinds are found by name", kinds_are_found_by_name},
        {NULL, NULL},
    },
};
