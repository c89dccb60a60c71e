/* SPDX-License-Identifier: Apache-2.0 */
/* wp_fetch() runs a loop of its own, so the server runs on another thread. */
#include "net/fetch.h"

#include "base/err.h"
#include "base/mem.h"
#include "tests/lib/rawserver.h"
#include "tests/lib/test.h"

#include <pthread.h>

static struct rig {
    uv_loop_t loop;
    uv_async_t stop;
    struct raw_server server;
    pthread_t thread;
    struct wp_buf answer;
    int status;
    struct wp_err err;
    char url[64];
    long live;
} rig;

static void on_stop(uv_async_t *h)
{
    raw_server_stop(&rig.server);
    uv_close((uv_handle_t *)h, NULL);
}

static void *serve(void *arg)
{
    uv_run(arg, UV_RUN_DEFAULT);
    return NULL;
}

static void set_up(const char *path, const struct raw_step script[])
{
    static const struct raw_step *scripts[1];

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    scripts[0] = script;
    uv_loop_init(&rig.loop);
    uv_async_init(&rig.loop, &rig.stop, on_stop);
    EXPECT_INT("server", 0, raw_server_start(&rig.server, &rig.loop, false, scripts, 1));
    snprintf(rig.url, sizeof rig.url, "http://127.0.0.1:%u%s", (unsigned)rig.server.port, path);
    EXPECT_INT("thread", 0, pthread_create(&rig.thread, NULL, serve, &rig.loop));
}

static void join(void)
{
    uv_async_send(&rig.stop);
    pthread_join(rig.thread, NULL);
}

static void tear_down(void)
{
    EXPECT_INT("loop", 0, uv_loop_close(&rig.loop));
    raw_server_fini(&rig.server);
    wp_buf_fini(&rig.answer);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

static int fetch(struct wp_str method, struct wp_str body, uint64_t timeout_us)
{
    const struct wp_field field = {WP_STR("Authorization"), WP_STR("Bearer x")};

    return wp_fetch(rig.url, method, &field, 1, body, timeout_us, &rig.status, &rig.answer,
                    &rig.err);
}

#define SCRIPT(...) ((const struct raw_step[]){__VA_ARGS__, {RAW_END, NULL, 0}})
#define ASKED                     \
    {                             \
        RAW_EXPECT, "\r\n\r\n", 0 \
    }

static void a_whole_answer_is_given(void)
{
    char want[200];

    set_up("/workers?x=1",
           SCRIPT(ASKED, {RAW_EXPECT, "{}", 0},
                  {RAW_SEND, "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno!", 0}));
    EXPECT_INT("fetched", 0, fetch(WP_STR("POST"), WP_STR("{}"), 0));
    EXPECT_INT("status", 404, rig.status);
    EXPECT_TEXT("answer", "no!", wp_buf_str(&rig.answer));
    snprintf(want, sizeof want,
             "POST /workers?x=1 HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAuthorization: Bearer "
             "x\r\nContent-Length: 2\r\n\r\n{}",
             (unsigned)rig.server.port);
    join();
    EXPECT_TEXT("asked", want, wp_str_of(rig.server.got));
    tear_down();
    set_up("", SCRIPT(ASKED, {RAW_SEND, "HTTP/1.1 200 OK\r\n\r\nhi", 0}, {RAW_CLOSE, NULL, 0}));
    EXPECT_INT("fetched", 0, fetch(WP_STR("GET"), (struct wp_str){0}, 0));
    EXPECT_TEXT("answer", "hi", wp_buf_str(&rig.answer));
    join();
    tear_down();
}

static void what_goes_wrong_is_a_sentence(void)
{
    char want[128];

    set_up("/", SCRIPT(ASKED, {RAW_SEND, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", 0},
                       {RAW_FIN, NULL, 0}));
    EXPECT_INT("cut", WP_EEOF, fetch(WP_STR("GET"), (struct wp_str){0}, 0));
    snprintf(want, sizeof want, "http://127.0.0.1:%u: body: %s", (unsigned)rig.server.port,
             wp_strerror(WP_EEOF));
    EXPECT_TEXT("sentence", want, wp_str_of(rig.err.text));
    join();
    tear_down();
    set_up("/", SCRIPT(ASKED));
    EXPECT_INT("silent", WP_ETIMEDOUT, fetch(WP_STR("GET"), (struct wp_str){0}, 20000));
    join();
    tear_down();
    set_up("/", SCRIPT(ASKED, {RAW_SEND, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 0}));
    rig.answer.max = 1;
    EXPECT_INT("too large", WP_ETOOBIG, fetch(WP_STR("GET"), (struct wp_str){0}, 0));
    snprintf(rig.url, sizeof rig.url, "ftp://x/");
    EXPECT_INT("url", WP_EINVAL, fetch(WP_STR("GET"), (struct wp_str){0}, 0));
    EXPECT_TRUE("named", strstr(rig.err.text, "ftp://x/") != NULL);
    join();
    tear_down();
}

static void running_out_of_memory_is_told(void)
{
    bool hit = true;

    for (long nth = 0; hit; nth++) {
        int rc;

        set_up("/", SCRIPT(ASKED, {RAW_SEND, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 0}));
        wp_mem_fail_after(nth);
        rc = fetch(WP_STR("GET"), WP_STR("x"), 0);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("told", hit ? WP_ENOMEM : 0, rc);
        join();
        tear_down();
    }
}

const struct wp_suite suite_fetch = {
    "fetch",
    (const struct wp_test[]){
        {"a whole answer is given", a_whole_answer_is_given},
        {"what goes wrong is a sentence", what_goes_wrong_is_a_sentence},
        {"running out of memory is told", running_out_of_memory_is_told},
        {NULL, NULL},
    },
};
