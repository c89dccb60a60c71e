/* SPDX-License-Identifier: Apache-2.0 */
#include "router/forward.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

static struct rig {
    struct wp_router router;
    struct wp_settings settings;
    struct wp_gate gate;
    struct wp_head head, answer;
    struct wp_exchange x;
    struct sockaddr_in peer;
    struct wp_request r;
    struct wp_field out[WP_FORWARD_MAX];
    size_t n;
    long live;
} rig;

static void set_up(const char *const set[], size_t n, const char *worker)
{
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_config_worker w;

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    EXPECT_INT("configuration", 0,
               wp_config_read(&rig.settings.conf, NULL, set, n, NULL, 0, &errors));
    wp_buf_fini(&errors);
    rig.router.on_loopback = true;
    rig.gate.router = &rig.router;
    rig.gate.settings = &rig.settings;
    rig.peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0A000007)};
    rig.head =
        (struct wp_head){.method = WP_STR("POST"), .target = WP_STR("/v1/completions"), .minor = 1};
    rig.x = (struct wp_exchange){.head = &rig.head, .peer = (const struct sockaddr *)&rig.peer};
    rig.r = (struct wp_request){.gate = &rig.gate,
                                .settings = &rig.settings,
                                .x = &rig.x,
                                .place = &rig.r.slot[0],
                                .id = "the-id"};
    EXPECT_INT("entry", 0, wp_config_worker_json(&w, wp_str_of(worker), &err));
    EXPECT_INT("worker", 0, wp_worker_create(&rig.r.place->worker, &w, rig.settings.conf, &err));
    wp_config_worker_fini(&w);
}

static void tear_down(void)
{
    wp_worker_unref(rig.r.tried);
    wp_worker_unref(rig.r.place->worker);
    wp_arena_fini(&rig.r.arena);
    wp_config_destroy(rig.settings.conf);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

static void field(struct wp_head *h, const char *name, const char *value)
{
    h->field[h->n_fields++] = (struct wp_field){wp_str_of(name), wp_str_of(value)};
}

/* The values of all fields of that name, with a bar between. */
static void expect_field(const char *name, const char *want)
{
    struct wp_buf b = {0};

    for (size_t i = 0; i < rig.n; i++)
        if (wp_str_iis(rig.out[i].name, name)) {
            wp_buf_adds(&b, b.n ? "|" : "");
            wp_buf_add(&b, rig.out[i].value.p, rig.out[i].value.n);
        }
    EXPECT_TEXT(name, want, wp_buf_str(&b));
    wp_buf_fini(&b);
}

#define PLAIN "{\"url\":\"http://10.0.0.1:8000\"}"

/* ---- to the engine ---- */

static void a_request_crosses_without_what_ends_here(void)
{
    static const struct {
        const char *name, *value, *want; /* want NULL: as it came */
    } fields[] = {
        {"Accept", "text/event-stream", NULL},
        {"X-Custom", "1", NULL},
        {"traceparent", "00-abc", NULL},
        {"Authorization", "Bearer client", NULL}, /* ours to check only when we have keys */
        {"Connection", "close, X-Hop", ""},
        {"X-Hop", "1", ""},
        {"Keep-Alive", "timeout=5", ""},
        {"TE", "trailers", ""},
        {"Transfer-Encoding", "chunked", ""},
        {"Host", "router", ""},
        {"Content-Length", "5", ""},
        {"Expect", "100-continue", ""},
        {"X-Warmpath-Session", "s", ""},
        {"x-warmpath-anything", "s", ""},
        {"X-Data-Parallel-Rank", "1", ""},
        {"x-prefiller-host-port", "evil:1", ""},
        {"x-gateway-destination-endpoint", "evil:1", ""},
        {"X-Forwarded-For", "1.2.3.4", "1.2.3.4, 10.0.0.7"},
    };

    set_up(NULL, 0, PLAIN);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        field(&rig.head, fields[i].name, fields[i].value);
    rig.n = wp_forward_request(&rig.r, rig.out);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        expect_field(fields[i].name, fields[i].want ? fields[i].want : fields[i].value);
    tear_down();
}

static void trusted_routing_fields_cross(void)
{
    static const char *const set[] = {"listen.trust_client_routing=true"};

    set_up(set, 1, PLAIN);
    field(&rig.head, "X-Data-Parallel-Rank", "1");
    field(&rig.head, "X-Warmpath-Tenant", "t");
    rig.n = wp_forward_request(&rig.r, rig.out);
    expect_field("x-data-parallel-rank", "1");
    expect_field("x-warmpath-tenant", "");
    tear_down();
}

static void an_id_is_the_clients_and_differs_with_each_attempt(void)
{
    char first[160];

    set_up(NULL, 0, PLAIN);
    field(&rig.head, "X-Request-Id", "the-id");
    rig.n = wp_forward_request(&rig.r, rig.out);
    for (size_t i = 0; i < rig.n; i++)
        if (wp_str_iis(rig.out[i].name, "x-request-id"))
            snprintf(first, sizeof first, WP_STR_FMT, WP_STR_ARG(rig.out[i].value));
    EXPECT_TRUE("begins with it", strncmp(first, "the-id-", 7) == 0 && strlen(first) > 7);
    rig.n = wp_forward_request(&rig.r, rig.out);
    for (size_t i = 0; i < rig.n; i++)
        EXPECT_TRUE("another one", !wp_str_is(rig.out[i].value, first));
    tear_down();
}

static void a_workers_own_key_takes_the_place_of_the_clients(void)
{
    char key[3000], want[3100];

    set_up(NULL, 0, PLAIN);
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    wp_free(rig.r.place->worker->conf.api_key);
    rig.r.place->worker->conf.api_key = wp_strdup(key);
    field(&rig.head, "Authorization", "Bearer client");
    field(&rig.head, "X-Api-Key", "client");
    rig.n = wp_forward_request(&rig.r, rig.out);
    snprintf(want, sizeof want, "Bearer %s", key);
    expect_field("authorization", want);
    expect_field("x-api-key", "");
    tear_down();
}

static void what_many_proxies_wrote_is_kept_whole(void)
{
    char via[6000], want[6100];

    set_up(NULL, 0, PLAIN);
    memset(via, '1', sizeof via - 1);
    via[sizeof via - 1] = 0;
    field(&rig.head, "X-Forwarded-For", via);
    field(&rig.head, "X-Forwarded-For", "2.2.2.2");
    rig.n = wp_forward_request(&rig.r, rig.out);
    snprintf(want, sizeof want, "%s, 2.2.2.2, 10.0.0.7", via);
    expect_field("x-forwarded-for", want);
    tear_down();
}

static void as_many_fields_as_a_head_may_have_cross(void)
{
    static char names[WP_FIELDS_MAX][16];

    set_up(NULL, 0, PLAIN);
    for (size_t i = 0; i < WP_FIELDS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "x-f%zu", i);
        field(&rig.head, names[i], "v");
    }
    rig.n = wp_forward_request(&rig.r, rig.out);
    EXPECT_UINT("and two of ours", WP_FIELDS_MAX + 2, rig.n);
    rig.answer = rig.head;
    rig.r.is_sse = true;
    rig.r.attempts = 1;
    rig.n = wp_forward_answer(&rig.r, &rig.answer, rig.out);
    EXPECT_TRUE("back, too", rig.n > WP_FIELDS_MAX && rig.n <= WP_FORWARD_MAX);
    tear_down();
}

static void a_lack_of_memory_sends_nothing_by_halves(void)
{
    for (long nth = 0; nth < 3; nth++) {
        bool hit;

        set_up(NULL, 0, PLAIN);
        wp_free(rig.r.place->worker->conf.api_key);
        rig.r.place->worker->conf.api_key = wp_strdup("k");
        field(&rig.head, "X-Custom", "1");
        wp_mem_fail_after(nth);
        rig.n = wp_forward_request(&rig.r, rig.out);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (hit)
            EXPECT_UINT("not without its key", 0, rig.n);
        else
            expect_field("authorization", "Bearer k");
        tear_down();
    }
}

/* ---- to the client ---- */

static void an_answer_crosses_without_the_engines_inside(void)
{
    set_up(NULL, 0, PLAIN);
    field(&rig.answer, "Content-Type", "application/json");
    field(&rig.answer, "Server", "uvicorn");
    field(&rig.answer, "Content-Length", "5");
    field(&rig.answer, "Connection", "keep-alive");
    field(&rig.answer, "X-Request-Id", "engine's");
    field(&rig.answer, "X-Warmpath-Worker", "forged");
    rig.r.attempts = 1;
    rig.r.tried = wp_worker_ref(rig.r.place->worker);
    rig.r.place->hit_tokens = 48;
    rig.r.place->hit_tier[0] = 32;
    rig.r.place->hit_tier[1] = 16;
    rig.r.place->ttft_us = 1500;
    rig.r.read_us = 100;
    rig.r.placed_us = 350;
    rig.n = wp_forward_answer(&rig.r, &rig.answer, rig.out);
    expect_field("content-type", "application/json");
    expect_field("server", "uvicorn");
    expect_field("content-length", "");
    expect_field("connection", "");
    expect_field("x-request-id", "the-id");
    expect_field("x-warmpath-worker", "10.0.0.1:8000");
    expect_field("x-warmpath-attempts", "1");
    expect_field("x-warmpath-overlap", "total=48;gpu=32;cpu=16;fetch=0;kind=bytes");
    expect_field("x-warmpath-ttft-ms", "1.5");
    expect_field("x-warmpath-overhead-us", "250");
    expect_field("cache-control", "");
    expect_field("x-warmpath-decision", "");
    tear_down();
}

static void an_event_stream_is_not_to_be_buffered(void)
{
    set_up(NULL, 0, PLAIN);
    rig.r.is_sse = true;
    rig.n = wp_forward_answer(&rig.r, &rig.answer, rig.out);
    expect_field("cache-control", "no-cache");
    expect_field("x-accel-buffering", "no");
    field(&rig.answer, "Cache-Control", "no-store");
    field(&rig.answer, "X-Accel-Buffering", "yes");
    rig.n = wp_forward_answer(&rig.r, &rig.answer, rig.out);
    expect_field("cache-control", "no-store");
    expect_field("x-accel-buffering", "yes");
    tear_down();
}

static void no_more_is_revealed_than_is_allowed(void)
{
    static const struct {
        const char *set;
        bool loopback;
        const char *id, *worker;
    } cases[] = {
        {"listen.reveal=all", false, "the-id", "10.0.0.1:8000"},
        {"listen.reveal=id", true, "the-id", ""},
        {"listen.reveal=none", true, "", ""},
        {"listen.reveal=auto", true, "the-id", "10.0.0.1:8000"},
        {"listen.reveal=auto", false, "the-id", ""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_up(&cases[i].set, 1, PLAIN);
        rig.router.on_loopback = cases[i].loopback;
        rig.r.attempts = 1;
        rig.r.tried = wp_worker_ref(rig.r.place->worker);
        rig.r.place->ttft_us = NAN;
        rig.r.place->record = 77;
        field(&rig.head, "X-Warmpath-Explain", "1");
        rig.n = wp_forward_own(&rig.r, rig.out, 0);
        expect_field("x-request-id", cases[i].id);
        expect_field("x-warmpath-worker", cases[i].worker);
        expect_field("x-warmpath-decision", cases[i].worker[0] ? "77" : "");
        expect_field("x-warmpath-ttft-ms", "");
        tear_down();
    }
}

/* ---- values ---- */

static void date_in(char out[64], const char *format, int seconds)
{
    time_t at = (time_t)(wp_wall_us() / 1000000) + seconds;
    struct tm tm;

    gmtime_r(&at, &tm);
    strftime(out, 64, format, &tm);
}

static void a_pause_is_seconds_or_a_date_and_capped(void)
{
    static const struct {
        const char *text;
        uint64_t want_us;
    } cases[] = {
        {"0", 0},
        {"1", 1000000},
        {"300", 300000000},
        {"301", 300000000},
        {"18446744073709551615", 300000000},
        {"99999999999999999999999", 300000000},
        {"", 0},
        {"-1", 0},
        {"soon", 0},
        {"1.5", 0},
        {"0x10", 0},
        {"Fri, 32 Foo 2020 00:00:00 GMT", 0},
        {"Wed, 21 Oct 2015 07:28:00 GMT", 0},
        {"Wed, 21 Oct 9999 07:28:00 GMT", 300000000},
    };
    static const char *const formats[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                          "%a %b %e %H:%M:%S %Y"};
    char date[64];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        EXPECT_UINT(cases[i].text, cases[i].want_us,
                    wp_retry_after_us(wp_str_of(cases[i].text), 300000000));
    for (size_t i = 0; i < 3; i++) {
        uint64_t us;

        date_in(date, formats[i], 100);
        us = wp_retry_after_us(wp_str_of(date), 300000000);
        EXPECT_TRUE(date, us > 90000000 && us <= 100000000);
        date_in(date, formats[i], -100);
        EXPECT_UINT(date, 0, wp_retry_after_us(wp_str_of(date), 300000000));
    }
    EXPECT_UINT("no pause allowed", 0, wp_retry_after_us(WP_STR("5"), 0));
    EXPECT_UINT("a cap of less than a second", 500000, wp_retry_after_us(WP_STR("5"), 500000));
    EXPECT_UINT("absent", 0, wp_retry_after_us((struct wp_str){0}, 300000000));
}

static void a_request_id_is_short_and_clean(void)
{
    static const struct {
        const char *id;
        bool ok;
    } cases[] = {{"a", true},    {"A-z0_9.:+/=@~", true}, {"", false},
                 {"a b", false}, {"a\"b", false},         {"a\tb", false},
                 {"a;b", false}, {"\xC3\xA9", false},     {"a{b}", false}};
    char longest[130];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        EXPECT_INT(cases[i].id, cases[i].ok, wp_request_id_ok(wp_str_of(cases[i].id)));
    memset(longest, 'x', sizeof longest);
    EXPECT_TRUE("128", wp_request_id_ok((struct wp_str){longest, 128}));
    EXPECT_TRUE("129", !wp_request_id_ok((struct wp_str){longest, 129}));
    EXPECT_TRUE("a zero", !wp_request_id_ok((struct wp_str){"a\0b", 3}));
    EXPECT_TRUE("absent", !wp_request_id_ok((struct wp_str){0}));
}

const struct wp_suite suite_forward = {
    "forward",
    (const struct wp_test[]){
        {"a request crosses without what ends here", a_request_crosses_without_what_ends_here},
        {"trusted routing fields cross", trusted_routing_fields_cross},
        {"an id is the client's, and differs with each attempt",
         an_id_is_the_clients_and_differs_with_each_attempt},
        {"a worker's own key takes the place of the client's",
         a_workers_own_key_takes_the_place_of_the_clients},
        {"what many proxies wrote is kept whole", what_many_proxies_wrote_is_kept_whole},
        {"as many fields as a head may have cross", as_many_fields_as_a_head_may_have_cross},
        {"a lack of memory sends nothing by halves", a_lack_of_memory_sends_nothing_by_halves},
        {"an answer crosses without the engine's inside",
         an_answer_crosses_without_the_engines_inside},
        {"an event stream is not to be buffered", an_event_stream_is_not_to_be_buffered},
        {"no more is revealed than is allowed", no_more_is_revealed_than_is_allowed},
        {"a pause is seconds or a date, and capped", a_pause_is_seconds_or_a_date_and_capped},
        {"a request id is short and clean", a_request_id_is_short_and_clean},
        {NULL, NULL},
    },
};
