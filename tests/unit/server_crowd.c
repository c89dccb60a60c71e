/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crowd of clients and a handler that do anything at any time, from a seed: whatever happens,
 * each exchange is over exactly once, no callback comes out of turn, and nothing leaks.  (The
 * sanitizers watch the rest.)
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "net/server.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 12, LIVE = 64, STEPS = 4000 };

static struct crowd {
    struct wp_loop l;
    struct wp_server *s;
    struct wp_rng rng;
    int fd[CLIENTS]; /* -1: none */
    size_t at[CLIENTS], script[CLIENTS];
    struct wp_exchange *live[LIVE];
    int n_live, requests, overs, strays, closed;
    bool ended[LIVE];
} crowd;

static const struct wp_str scripts[] = {
#define S(lit)               \
    {                        \
        lit, sizeof(lit) - 1 \
    }
    S("GET /a HTTP/1.1\r\nHost: a\r\n\r\n"),
    S("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\nHEAD /c "
      "HTTP/1.1\r\nHost: a\r\n\r\n"),
    S("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world"),
    S("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x\r\n "
      "world\r\n0\r\nA: b\r\n\r\n"),
    S("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabcGET /b "
      "HTTP/1.0\r\n\r\n"),
    S("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX"),
    S("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\nshort"),
    S("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /a HTTP/1.0\r\n\r\n"),
    S("nonsense\r\n\r\n"),
    S("\r\n\r\n\r\nGET /a"),
#undef S
};
enum { SCRIPTS = sizeof scripts / sizeof scripts[0] };

static size_t below(size_t n)
{
    return (size_t)wp_rng_below(&crowd.rng, n);
}

static int find(const struct wp_exchange *x)
{
    for (int i = 0; i < crowd.n_live; i++)
        if (crowd.live[i] == x)
            return i;
    crowd.strays++;
    return -1;
}

static void act(struct wp_exchange *x)
{
    const struct wp_field field[] = {
        {WP_STR("Content-Type"), below(2) ? WP_STR("text/event-stream") : WP_STR("a/b")}};
    static const char big[70000];

    switch (below(12)) {
    case 0:
        wp_reply_head(x, 200, WP_STR("OK"), field, 1, below(3) ? -1 : (int64_t)below(30));
        break;
    case 1:
        wp_reply_body(x, "data: x\n\n", 9);
        break;
    case 2:
        wp_reply_body(x, big, below(sizeof big));
        break;
    case 3:
        wp_reply_end(x);
        break;
    case 4:
        if (below(4) == 0)
            wp_reply_abort(x);
        break;
    case 5:
        wp_exchange_pause(x);
        break;
    case 6:
    case 7:
        wp_exchange_resume(x);
        break;
    case 8:
        wp_reply_interim(x, 103, field, 1);
        break;
    case 9:
        wp_reply_error(x, 503, "no_worker", NULL, NULL, 0, "nobody");
        break;
    case 10: {
        struct wp_blob *b = wp_blob_copy(big, below(sizeof big));

        if (b)
            wp_reply_blob(x, b);
        wp_blob_unref(b);
        break;
    }
    default:
        wp_reply(x, below(4) ? 200 : 204, "a/b", NULL, 0, WP_STR("all"));
        break;
    }
}

static void on_body(struct wp_exchange *x, const char *p, size_t n)
{
    EXPECT_TRUE("body of a live one", find(x) >= 0 && p && n);
    if (below(3) == 0)
        act(x);
}

static void on_body_end(struct wp_exchange *x)
{
    int i = find(x);

    EXPECT_TRUE("one end", i >= 0 && !crowd.ended[i]);
    crowd.ended[i >= 0 ? i : 0] = true;
    if (below(2) == 0)
        act(x);
}

static void on_drain(struct wp_exchange *x)
{
    EXPECT_TRUE("drain of a live one", find(x) >= 0 && wp_reply_queued(x) == 0);
}

static void on_over(struct wp_exchange *x, int rc)
{
    int i = find(x);

    (void)rc;
    crowd.overs++;
    if (i < 0)
        return;
    crowd.n_live--;
    crowd.live[i] = crowd.live[crowd.n_live];
    crowd.ended[i] = crowd.ended[crowd.n_live];
}

static void on_request(struct wp_exchange *x, void *arg)
{
    static const struct wp_exchange_ops ops = {on_body, on_body_end, on_drain, on_over};

    (void)arg;
    x->ops = &ops;
    crowd.requests++;
    EXPECT_TRUE("few at once", crowd.n_live < LIVE);
    crowd.ended[crowd.n_live] = false;
    crowd.live[crowd.n_live++] = x;
    if (below(3) == 0)
        act(x);
}

static void hang_up(size_t i)
{
    const struct linger hard = {1, 0};

    if (below(2))
        setsockopt(crowd.fd[i], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(crowd.fd[i]);
    crowd.fd[i] = -1;
}

static void dial(size_t i)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    a.sin_port = htons(wp_server_port(crowd.s));
    crowd.fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    crowd.at[i] = 0;
    crowd.script[i] = below(SCRIPTS);
    if (connect(crowd.fd[i], (const struct sockaddr *)&a, sizeof a) < 0)
        hang_up(i);
}

static void client_acts(size_t i)
{
    struct wp_str s = scripts[crowd.script[i]];
    char bytes[50000];

    if (crowd.fd[i] < 0) {
        dial(i);
        return;
    }
    switch (below(10)) {
    case 0:
        if (below(4) == 0)
            hang_up(i);
        break;
    case 1:
        if (below(4) == 0)
            shutdown(crowd.fd[i], SHUT_WR);
        break;
    case 2:
    case 3:
    case 4:
        if (recv(crowd.fd[i], bytes, sizeof bytes, MSG_DONTWAIT) == 0)
            hang_up(i);
        break;
    default: {
        size_t n = below(4) ? s.n - crowd.at[i] : below(s.n - crowd.at[i] + 1);

        if (send(crowd.fd[i], s.p + crowd.at[i], n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
            crowd.at[i] += n;
        if (crowd.at[i] == s.n && below(2)) {
            crowd.at[i] = 0;
            crowd.script[i] = below(SCRIPTS);
        }
    }
    }
}

static void on_closed(void *arg)
{
    (void)arg;
    crowd.closed++;
    wp_loop_stop(&crowd.l);
}

static void run_crowd(uint64_t seed, bool starve)
{
    const struct wp_server_conf conf = {.address = WP_STR("127.0.0.1:0"),
                                        .body_bytes = 1000,
                                        .head_us = 3000,
                                        .body_us = 5000,
                                        .keepalive_us = 8000,
                                        .send_us = 4000,
                                        .connections = CLIENTS / 2,
                                        .on_request = on_request};
    struct wp_err err = WP_ERR_INIT;
    long live = wp_mem_live();

    memset(&crowd, 0, sizeof crowd);
    memset(crowd.fd, -1, sizeof crowd.fd);
    crowd.rng.state = seed;
    EXPECT_INT("loop", 0, wp_loop_init(&crowd.l, &err));
    EXPECT_INT("server", 0, wp_server_create(&crowd.s, &crowd.l, &conf, &err));
    for (int step = 0; step < STEPS; step++) {
        client_acts(below(CLIENTS));
        if (crowd.n_live && below(2))
            act(crowd.live[below((size_t)crowd.n_live)]);
        if (starve && below(8) == 0)
            wp_mem_fail_after((long)below(6));
        uv_run(&crowd.l.uv, UV_RUN_NOWAIT);
        wp_mem_fail_after(-1);
        if (step == STEPS - 200 && below(2))
            wp_server_drain(crowd.s);
    }
    wp_server_destroy(crowd.s, on_closed, NULL);
    EXPECT_INT("run", 0, wp_loop_run(&crowd.l));
    EXPECT_INT("closed", 1, crowd.closed);
    EXPECT_INT("each over once", crowd.requests, crowd.overs);
    EXPECT_INT("no callback out of turn", 0, crowd.strays);
    EXPECT_TRUE("something happened",
                starve || crowd.requests > 50); /* accepting may rest for long */
    for (size_t i = 0; i < CLIENTS; i++)
        if (crowd.fd[i] >= 0)
            hang_up(i);
    wp_loop_fini(&crowd.l);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void a_crowd_that_does_anything_harms_nothing(void)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        run_crowd(seed, false);
}

static void nor_does_one_that_runs_out_of_memory(void)
{
    for (uint64_t seed = 11; seed <= 14; seed++)
        run_crowd(seed, true);
}

const struct wp_suite suite_server_crowd = {
    "server_crowd",
    (const struct wp_test[]){
        {"a crowd that does anything harms nothing", a_crowd_that_does_anything_harms_nothing},
        {"nor does one that runs out of memory", nor_does_one_that_runs_out_of_memory},
        {NULL, NULL},
    },
};
