/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever an HTTP/2 client sends, the server serves it or ends it, and every request that a handler saw is told its end, once.
 * The input is what follows the preface; a first byte with bit 0 makes the handler pause each body for a turn, with bit 1
 * answer before it, and with bit 2 it makes the so many hundredth allocation fail (bits 3 to 7).
 */
#include "base/mem.h"
#include "net/server.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static struct {
    struct wp_loop l;
    struct wp_server *server;
    bool pauses, early, closed;
    int begun, over;
} rig;

static void answer(struct wp_exchange *x)
{
    char text[64];
    int n = snprintf(text, sizeof text, "%llu bytes", (unsigned long long)x->body_seen);

    wp_reply(x, 200, "text/plain", NULL, 0, (struct wp_str){text, (size_t)n});
}

static void on_turn(struct wp_timer *t)
{
    struct wp_exchange *x = t->arg;

    wp_exchange_resume(x);
}

static void on_body(struct wp_exchange *x, const char *p, size_t n)
{
    struct wp_timer *t = x->user;

    (void)p;
    (void)n;
    if (rig.pauses && t) {
        wp_exchange_pause(x);
        wp_timer_in(&rig.l, t, 0);
    }
}

static void on_over(struct wp_exchange *x, int rc)
{
    struct wp_timer *t = x->user;

    (void)rc;
    rig.over++;
    if (t)
        wp_timer_stop(&rig.l, t);
    free(t);
}

static const struct wp_exchange_ops ops = {.on_body = on_body, .on_body_end = answer, .on_over = on_over};

static void on_request(struct wp_exchange *x, void *arg)
{
    (void)arg;
    rig.begun++;
    x->ops = &ops;
    x->user = calloc(1, sizeof(struct wp_timer));
    wp_timer_init(x->user, on_turn, x);
    if (rig.early)
        answer(x);
    else if (x->head->expect_continue)
        wp_timer_in(&rig.l, x->user, 0);
}

static void on_closed(void *arg)
{
    (void)arg;
    rig.closed = true;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    MUST(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

/* Sends what the server takes, and reads and forgets what it says, until both are done. */
static void play(int fd, const uint8_t *p, size_t n)
{
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    size_t at = 0;
    char got[4096];

    MUST(send(fd, hello, sizeof hello - 1, MSG_NOSIGNAL) == sizeof hello - 1);
    while (at < n) {
        ssize_t k = send(fd, p + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (k < 0 && errno != EAGAIN)
            break;
        at += k > 0 ? (size_t)k : 0;
        while (recv(fd, got, sizeof got, MSG_DONTWAIT) > 0)
            ;
        uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    }
    for (int turns = 0; turns < 6; turns++)
        uv_run(&rig.l.uv, UV_RUN_NOWAIT);
    close(fd);
    while (wp_server_connections(rig.server) > 0 || wp_server_exchanges(rig.server) > 0)
        uv_run(&rig.l.uv, UV_RUN_ONCE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_server_conf conf = {.address = WP_STR("127.0.0.1:0"), .on_request = on_request, .body_bytes = 65536};
    struct wp_err err = WP_ERR_INIT;
    long live = wp_mem_live();

    if (n == 0 || n > 65536)
        return 0;
    memset(&rig, 0, sizeof rig);
    rig.pauses = data[0] & 1;
    rig.early = data[0] & 2;
    MUST(wp_loop_init(&rig.l, &err) == 0 && wp_server_create(&rig.server, &rig.l, &conf, &err) == 0);
    wp_mem_fail_after(data[0] & 4 ? data[0] >> 3 : -1);
    play(connect_to(wp_server_port(rig.server)), data + 1, n - 1);
    wp_mem_fail_after(-1);
    wp_server_destroy(rig.server, on_closed, NULL);
    while (!rig.closed)
        uv_run(&rig.l.uv, UV_RUN_ONCE);
    wp_loop_stop(&rig.l);
    MUST(wp_loop_run(&rig.l) == 0);
    wp_loop_fini(&rig.l);
    MUST(rig.begun == rig.over);
    MUST(wp_mem_live() == live);
    return 0;
}
