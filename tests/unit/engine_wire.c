/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated engine on a real socket: the captured requests of vLLM 0.32 get answers of the same
 * status and shape from it. */
#include "tests/lib/engine_rig.h"
#include "tests/lib/shape.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* clang-format off */
static const struct { const char *name, *why; } left_out[] = {
    {"kv_event_sources",                "needs --events (tests/unit/simevents.c asks for it); without them the engine answers {}"},
    {"render_chat",                     "needs --enable-scale-out (the 403 without it is played)"},
    {"render_chat_extras",              "needs --enable-scale-out"},
    {"render_completions",              "needs --enable-scale-out"},
    {"render_completions_ids",          "needs --enable-scale-out"},
    {"lora_load_not_allowed",           "needs run-time adapters (the 404 without them is played)"},
    {"abort_requests",                  "a route of the development server that nobody here calls"},
    {"chat_request_id_header_echo_flag", "needs --enable-request-id-headers"},
    {"models_with_adapter",             "needs adapters"},
};
/* clang-format on */

static const char *why_left_out(const char *name)
{
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        if (strcmp(left_out[i].name, name) == 0)
            return left_out[i].why;
    return NULL;
}

static bool is_stream(const json_t *entry)
{
    const char *type =
        json_string_value(json_object_get(json_object_get(entry, "headers"), "content-type"));

    return type && strncmp(type, "text/event-stream", 17) == 0;
}

static void shape_of(bool stream, struct wp_str body, struct wp_buf *out)
{
    if (stream)
        wp_shape_stream(body, out);
    else
        wp_shape_text(body, out);
}

/* Fields that the real one sent and a client may look at: the same, but for lengths. */
static void same_fields(const char *name, const json_t *want, const char *got)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)want, key, value)
    {
        char line[256];

        snprintf(line, sizeof line, "\r\n%s: %s\r\n", key, json_string_value(value));
        if (strcmp(key, "content-length") == 0)
            EXPECT_TRUE(name, strcasestr(got, "\r\ncontent-length: "));
        else if (!strcasestr(got, line))
            EXPECT_TEXT(name, line, wp_str_of(got));
    }
}

static void play(const struct wp_rig *r, const json_t *entry)
{
    const json_t *request = json_object_get(entry, "request");
    const char *name = json_string_value(json_object_get(entry, "name")), *key, *want_body;
    struct wp_buf headers = {0}, want = {0}, got = {0};
    struct wp_rig_answer a;
    json_t *value;
    size_t n;
    char *body = wp_captured_body(request, &n);

    json_object_foreach((json_t *)json_object_get(request, "headers"), key, value)
        wp_buf_printf(&headers, "%s: %s\r\n", key, json_string_value(value));
    if (body && !json_object_get(json_object_get(request, "headers"), "Content-Type"))
        wp_buf_adds(&headers, "Content-Type: application/json\r\n");
    wp_buf_add(&headers, "", 1);
    wp_rig_receive(wp_rig_send(r, json_string_value(json_object_get(request, "method")),
                               json_string_value(json_object_get(request, "path")), headers.p, body,
                               n),
                   &a);
    want_body = json_string_value(json_object_get(entry, "body"));
    EXPECT_INT(name, json_integer_value(json_object_get(entry, "status")), a.status);
    EXPECT_TRUE(name, a.whole);
    shape_of(is_stream(entry), wp_str_of(want_body), &want);
    shape_of(is_stream(entry), wp_buf_str(&a.body), &got);
    if (!wp_str_eq(wp_buf_str(&want), wp_buf_str(&got)))
        fprintf(stderr, "%s differs:\n  want %.*s\n  got  %.*s\n", name, (int)want.n, want.p,
                (int)got.n, got.p);
    EXPECT_TRUE(name, wp_str_eq(wp_buf_str(&want), wp_buf_str(&got)));
    if (a.head.p)
        same_fields(name, json_object_get(entry, "headers"), a.head.p);
    wp_rig_answer_fini(&a);
    wp_buf_fini(&headers);
    wp_buf_fini(&want);
    wp_buf_fini(&got);
    wp_free(body);
}

static void answers_as_vllm_answers(void)
{
    size_t n, i, played = 0, left = 0;
    char *text = wp_test_data("spec/real/vllm_0.32.0_http.json", &n);
    json_t *all = text ? json_loadb(text, n, 0, NULL) : NULL, *entry;
    struct wp_rig rig;

    wp_rig_start(&rig, NULL, 5000);
    json_array_foreach(all, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));

        if (why_left_out(name)) {
            left++;
        } else {
            play(&rig, entry);
            played++;
        }
    }
    EXPECT_UINT("every left-out entry exists", sizeof left_out / sizeof left_out[0], left);
    EXPECT_UINT("all others are played", json_array_size(all) - left, played);
    EXPECT_TRUE("and they are many", played > 80);
    wp_rig_stop(&rig);
    json_decref(all);
    wp_free(text);
}

/* A number in an answer's JSON, by a path of member names; -1 when it is not there. */
static long long number_at(const struct wp_rig_answer *a, const char *one, const char *two,
                           const char *three)
{
    json_t *v = json_loadb(a->body.p ? a->body.p : "", a->body.n, 0, NULL);
    const json_t *x = json_object_get(json_object_get(v, one), two);
    long long n;

    if (three)
        x = json_object_get(x, three);
    n = json_is_integer(x) ? json_integer_value(x) : -1;
    json_decref(v);
    return n;
}

static long long cached(const struct wp_rig *r, const char *body)
{
    struct wp_rig_answer a;
    long long n;

    wp_rig_ask(r, "POST", "/v1/completions", body, &a);
    EXPECT_INT(body, 200, a.status);
    n = number_at(&a, "usage", "prompt_tokens_details", "cached_tokens");
    wp_rig_answer_fini(&a);
    return n;
}

/* A completion request of n ids, counted up from first, with more members behind. */
static char *ids(uint32_t first, uint32_t n, const char *more)
{
    struct wp_buf b = {0};

    wp_buf_adds(&b, "{\"prompt\":[");
    for (uint32_t i = 0; i < n; i++)
        wp_buf_printf(&b, "%s%u", i ? "," : "", first + i);
    wp_buf_printf(&b, "],\"max_tokens\":4%s}", more);
    wp_buf_add(&b, "", 1);
    return b.p;
}

static void cached_is(const struct wp_rig *r, const char *label, long long want, char *body)
{
    EXPECT_INT(label, want, cached(r, body));
    wp_free(body);
}

static void finds_its_blocks_again(void)
{
    struct wp_rig_answer a;
    struct wp_rig rig;

    wp_rig_start(&rig, NULL, 5000);
    cached_is(&rig, "cold", 0, ids(1000, 100, ""));
    cached_is(&rig, "warm: three blocks of 32", 96, ids(1000, 100, ""));
    cached_is(&rig, "never the block of the last token", 64, ids(1000, 96, ""));
    cached_is(&rig, "a longer prompt finds the front", 96, ids(1000, 300, ""));
    cached_is(&rig, "another salt finds nothing", 0, ids(1000, 100, ",\"cache_salt\":\"a\""));
    cached_is(&rig, "the same salt does", 96, ids(1000, 100, ",\"cache_salt\":\"a\""));
    EXPECT_NEAR("hits are counted in tokens", 96 + 64 + 96 + 96,
                wp_rig_metric(&rig, "vllm:prefix_cache_hits_total", ""), 0);
    EXPECT_NEAR("and queries", 100 + 100 + 96 + 300 + 100 + 100,
                wp_rig_metric(&rig, "vllm:prefix_cache_queries_total", ""), 0);
    wp_rig_ask(&rig, "POST", "/reset_prefix_cache", NULL, &a);
    EXPECT_TEXT("reset", "{\"success\":true}", wp_buf_str(&a.body));
    wp_rig_answer_fini(&a);
    cached_is(&rig, "after a reset", 0, ids(1000, 100, ""));
    wp_rig_stop(&rig);
}

/* What it said is found again when it comes back as a part of a prompt, also as text. */
static void finds_what_it_said(void)
{
    struct wp_buf text = {0}, body = {0};
    struct wp_rig_answer a;
    struct wp_rig rig;
    json_t *v;

    wp_rig_start(&rig, NULL, 5000);
    for (int i = 0; i < 50; i++)
        wp_buf_adds(&text, "0123456789");
    wp_buf_add(&text, "", 1);
    wp_buf_printf(&body, "{\"prompt\":\"%s\",\"max_tokens\":100}", text.p);
    wp_buf_add(&body, "", 1);
    wp_rig_ask(&rig, "POST", "/v1/completions", body.p, &a);
    v = json_loadb(a.body.p, a.body.n, 0, NULL);
    body.n = 0;
    wp_buf_printf(&body, "{\"prompt\":\"%s%s and more\",\"max_tokens\":1}", text.p,
                  json_string_value(
                      json_object_get(json_array_get(json_object_get(v, "choices"), 0), "text")));
    wp_buf_add(&body, "", 1);
    EXPECT_INT("500 + 100 - 1 tokens are 18 blocks", 18 * 32, cached(&rig, body.p));
    json_decref(v);
    wp_rig_answer_fini(&a);
    wp_buf_fini(&text);
    wp_buf_fini(&body);
    wp_rig_stop(&rig);
}

static void says_the_same_again(void)
{
    static const char body[] = "{\"prompt\":\"x\",\"max_tokens\":40,\"n\":2,\"temperature\":1}";
    struct wp_rig_answer a, b;
    json_t *v, *w;
    struct wp_rig rig;

    wp_rig_start(&rig, NULL, 5000);
    wp_rig_ask(&rig, "POST", "/v1/completions", body, &a);
    wp_rig_ask(&rig, "POST", "/v1/completions", body, &b);
    v = json_loadb(a.body.p, a.body.n, 0, NULL);
    w = json_loadb(b.body.p, b.body.n, 0, NULL);
    EXPECT_TRUE("the same choices",
                v && json_equal(json_object_get(v, "choices"), json_object_get(w, "choices")));
    EXPECT_TRUE("under another id",
                v && !json_equal(json_object_get(v, "id"), json_object_get(w, "id")));
    EXPECT_TRUE(
        "two different ones",
        !json_equal(json_object_get(json_array_get(json_object_get(v, "choices"), 0), "text"),
                    json_object_get(json_array_get(json_object_get(v, "choices"), 1), "text")));
    json_decref(v);
    json_decref(w);
    wp_rig_answer_fini(&a);
    wp_rig_answer_fini(&b);
    wp_rig_stop(&rig);
}

static size_t count(struct wp_str text, const char *what)
{
    size_t n = 0;
    const char *p;

    while ((p = memmem(text.p, text.n, what, strlen(what)))) {
        text.n -= (size_t)(p - text.p) + 1;
        text.p = p + 1;
        n++;
    }
    return n;
}

static void streams_an_event_a_token(void)
{
    struct wp_rig_answer a;
    struct wp_rig rig;

    wp_rig_start(&rig, NULL, 5000);
    wp_rig_ask(&rig, "POST", "/v1/chat/completions",
               "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":50,\"stream\":"
               "true,\"n\":2,"
               "\"stream_options\":{\"include_usage\":true}}",
               &a);
    EXPECT_INT("status", 200, a.status);
    EXPECT_UINT("two roles, two times fifty tokens, usage, end", 104,
                count(wp_buf_str(&a.body), "data: "));
    EXPECT_UINT("of the first choice", 51, count(wp_buf_str(&a.body), "\"index\":0"));
    EXPECT_UINT("two ends", 2, count(wp_buf_str(&a.body), "\"finish_reason\":\"length\""));
    EXPECT_UINT("tokens are counted", 1, count(wp_buf_str(&a.body), "\"completion_tokens\":100"));
    wp_rig_answer_fini(&a);
    wp_rig_stop(&rig);
}

static void serves_many_streams_at_once(void)
{
    enum { STREAMS = 200 };
    struct wp_rig_answer a;
    struct wp_rig rig;
    int fd[STREAMS];

    wp_rig_start(&rig, NULL, 1000);
    for (uint32_t i = 0; i < STREAMS; i++) {
        char *body = ids(300 + i * 500, 40, ",\"stream\":true");

        fd[i] = wp_rig_send(&rig, "POST", "/v1/completions", "Content-Type: application/json\r\n",
                            body, strlen(body));
        wp_free(body);
    }
    for (size_t i = 0; i < STREAMS; i++) {
        wp_rig_receive(fd[i], &a);
        EXPECT_INT("status", 200, a.status);
        EXPECT_TRUE("whole", a.whole && a.body.n > 14 &&
                                 memcmp(a.body.p + a.body.n - 14, "data: [DONE]\n\n", 14) == 0);
        EXPECT_UINT("four tokens and the end", 5, count(wp_buf_str(&a.body), "data: "));
        wp_rig_answer_fini(&a);
    }
    EXPECT_NEAR("nobody runs", 0, wp_rig_metric(&rig, "vllm:num_requests_running", ""), 0);
    EXPECT_NEAR("all were counted", STREAMS,
                wp_rig_metric(&rig, "vllm:request_success_total", "length"), 0);
    wp_rig_stop(&rig);
}

/* At a hundredth of the real speed a prefill of 2,000 tokens takes ten seconds: nobody waits for it
 * here. */
static void a_client_that_goes_leaves_the_engine(void)
{
    struct wp_rig rig;
    char *body;
    int fd;

    wp_rig_start(&rig, NULL, 0.01);
    body = ids(500, 2000, "");
    fd = wp_rig_send(&rig, "POST", "/v1/completions", "Content-Type: application/json\r\n", body,
                     strlen(body));
    EXPECT_TRUE("it runs", wp_rig_metric_becomes(&rig, "vllm:num_requests_running", "", 1));
    close(fd);
    EXPECT_TRUE("it is gone", wp_rig_metric_becomes(&rig, "vllm:num_requests_running", "", 0));
    EXPECT_NEAR("as an abort", 1, wp_rig_metric(&rig, "vllm:request_success_total", "abort"), 0);
    wp_free(body);
    wp_rig_stop(&rig);
}

static void ends_in_the_middle_of_everything(void)
{
    struct wp_rig rig;
    char *body;
    int fd[3];

    wp_rig_start(&rig, (const char *const[]){"stall,count=1", NULL}, 0.01);
    body = ids(500, 2000, ",\"stream\":true");
    for (int i = 0; i < 3; i++)
        fd[i] = wp_rig_send(&rig, "POST", "/v1/completions", "Content-Type: application/json\r\n",
                            body, strlen(body));
    EXPECT_TRUE("they run", wp_rig_metric_becomes(&rig, "vllm:num_requests_running", "", 2) ||
                                wp_rig_metric_becomes(&rig, "vllm:num_requests_running", "", 3));
    wp_free(body);
    wp_rig_stop(&rig);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

static void faults_happen_on_the_wire(void)
{
    static const char *const faults[] = {"status=503,count=1,retry-after=7", "reset,count=1",
                                         "error-first,count=1", "die-after=3,count=1", NULL};
    static const char body[] = "{\"prompt\":\"x\",\"max_tokens\":9,\"stream\":true}";
    struct wp_rig_answer a;
    struct wp_rig rig;

    wp_rig_start(&rig, faults, 1000);
    wp_rig_ask(&rig, "POST", "/v1/completions", body, &a);
    EXPECT_INT("status", 503, a.status);
    EXPECT_TRUE("retry-after", a.head.p && strcasestr(a.head.p, "\r\nretry-after: 7\r\n"));
    wp_rig_answer_fini(&a);
    wp_rig_ask(&rig, "POST", "/v1/completions", body, &a);
    EXPECT_INT("no answer", 0, a.status);
    EXPECT_INT("but a reset", ECONNRESET, a.error);
    wp_rig_answer_fini(&a);
    wp_rig_ask(&rig, "POST", "/v1/completions", body, &a);
    EXPECT_INT("error first: status", 200, a.status);
    EXPECT_TRUE("error first",
                a.body.p && strncmp(a.body.p, "data: {\"error\":{\"message\":", 25) == 0);
    wp_rig_answer_fini(&a);
    wp_rig_ask(&rig, "POST", "/v1/completions", body, &a);
    EXPECT_INT("dies: status", 200, a.status);
    EXPECT_UINT("after three tokens", 3, count(wp_buf_str(&a.body), "data: "));
    EXPECT_TRUE("in the middle", !a.whole);
    wp_rig_answer_fini(&a);
    wp_rig_ask(&rig, "POST", "/v1/completions", body, &a);
    EXPECT_UINT("all are used up", 10, count(wp_buf_str(&a.body), "data: "));
    wp_rig_answer_fini(&a);
    EXPECT_NEAR("nobody runs", 0, wp_rig_metric(&rig, "vllm:num_requests_running", ""), 0);
    wp_rig_stop(&rig);
}

static void a_stalled_request_counts_until_its_client_goes(void)
{
    static const char body[] = "{\"prompt\":\"a prompt of thirty tokens, or so\",\"max_tokens\":9}";
    struct wp_rig_answer a;
    struct wp_rig rig;
    int fd;

    wp_rig_start(&rig, (const char *const[]){"stall-prefill=20", NULL}, 1000);
    fd = wp_rig_send(&rig, "POST", "/v1/completions", "Content-Type: application/json\r\n", body,
                     strlen(body));
    EXPECT_TRUE("it runs", wp_rig_metric_becomes(&rig, "vllm:num_requests_running", "", 1));
    wp_rig_ask(&rig, "POST", "/v1/completions", "{\"prompt\":\"short\"}", &a);
    EXPECT_INT("others are served", 200, a.status);
    wp_rig_answer_fini(&a);
    close(fd);
    EXPECT_TRUE("it is gone", wp_rig_metric_becomes(&rig, "vllm:num_requests_running", "", 0));
    wp_rig_stop(&rig);
}

static void refuses_a_context_that_cannot_fit(void)
{
    struct wp_engine_conf conf = {.listen = WP_STR("127.0.0.1:0"),
                                  .model = "m",
                                  .max_model_len = 97,
                                  .cost = {.block_size = 32, .tier_blocks = {3, 0, 0}}};
    struct wp_err err = WP_ERR_INIT;
    struct wp_engine *e = NULL;
    struct wp_loop loop;

    EXPECT_INT("loop", 0, wp_loop_init(&loop, &err));
    EXPECT_INT("refused", WP_EINVAL, wp_engine_create(&e, &loop, &conf, &err));
    EXPECT_TRUE("in words", strstr(err.text, "97 tokens does not fit"));
    wp_loop_stop(&loop);
    wp_loop_run(&loop);
    wp_loop_fini(&loop);
}

static const struct wp_test tests[] = {
    {"answers as vLLM answers", answers_as_vllm_answers},
    {"finds its blocks again", finds_its_blocks_again},
    {"finds what it said", finds_what_it_said},
    {"says the same again", says_the_same_again},
    {"streams an event a token", streams_an_event_a_token},
    {"serves many streams at once", serves_many_streams_at_once},
    {"a client that goes leaves the engine", a_client_that_goes_leaves_the_engine},
    {"ends in the middle of everything", ends_in_the_middle_of_everything},
    {"faults happen on the wire", faults_happen_on_the_wire},
    {"a stalled request counts until its client goes",
     a_stalled_request_counts_until_its_client_goes},
    {"refuses a context that cannot fit", refuses_a_context_that_cannot_fit},
    {NULL, NULL},
};
const struct wp_suite suite_engine_wire = {"engine_wire", tests};
