/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/publisher.h"

#include "tests/lib/ports.h"
#include "tests/lib/test.h"

#include <zmq.h>

static void on_news(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    publisher_look(h->data);
}

static void on_closed(uv_handle_t *h)
{
    struct test_publisher *p = h->data;

    p->open--;
}

static void watch(struct test_publisher *p, struct wp_loop *l, uv_poll_t *poll, void *sock)
{
    int fd;
    size_t n = sizeof fd;

    zmq_getsockopt(sock, ZMQ_FD, &fd, &n);
    EXPECT_INT("poll", 0, uv_poll_init(&l->uv, poll, fd));
    poll->data = p;
    p->open++;
    uv_poll_start(poll, UV_READABLE, on_news);
}

static void *open_socket(struct test_publisher *p, int type, const char *endpoint)
{
    void *s = zmq_socket(p->ctx, type);
    int none = 0, yes = 1, v6 = strchr(endpoint, '[') != NULL;

    zmq_setsockopt(s, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(s, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(s, ZMQ_IPV6, &v6, sizeof v6);
    if (type == ZMQ_XPUB)
        zmq_setsockopt(s, ZMQ_XPUB_VERBOSE, &yes, sizeof yes);
    return s;
}

static bool bind_to(void *s, const char *endpoint, char out[80])
{
    const char *star = strstr(endpoint, ":*");
    size_t n = 80;
    char chosen[80];
    int rc;

    if (star) {
        snprintf(chosen, sizeof chosen, "%.*s:%u", (int)(star - endpoint), endpoint, test_ports(1));
        endpoint = chosen;
    }
    rc = zmq_bind(s, endpoint);
    EXPECT_INT(endpoint, 0, rc);
    zmq_getsockopt(s, ZMQ_LAST_ENDPOINT, out, &n);
    return rc == 0;
}

bool publisher_open(struct test_publisher *p, struct wp_loop *l, const char *events, bool bind,
                    const char *replay)
{
    bool ok;

    memset(p, 0, sizeof *p);
    p->ctx = zmq_ctx_new();
    p->pub = open_socket(p, ZMQ_XPUB, events);
    watch(p, l, &p->poll[0], p->pub);
    ok = bind ? bind_to(p->pub, events, p->events) : zmq_connect(p->pub, events) == 0;
    if (!replay)
        return ok;
    p->router = open_socket(p, ZMQ_ROUTER, replay);
    watch(p, l, &p->poll[1], p->router);
    return bind_to(p->router, replay, p->replay) && ok;
}

void publisher_bound(struct test_publisher *p, int messages)
{
    EXPECT_INT("bound", 0, zmq_setsockopt(p->pub, ZMQ_SNDHWM, &messages, sizeof messages));
}

static void take_request(struct test_publisher *p, const char peer[], int peer_n)
{
    unsigned char part[3][64];
    int n[3] = {-1, -1, -1}, parts = 0, more = 1;
    size_t size = sizeof more;

    while (zmq_getsockopt(p->router, ZMQ_RCVMORE, &more, &size) == 0 && more) {
        int at = parts < 2 ? parts : 2;

        n[at] = zmq_recv(p->router, part[at], sizeof part[at], ZMQ_DONTWAIT);
        parts++;
    }
    EXPECT_TRUE("a request is an empty frame and 8 bytes", parts == 2 && n[0] == 0 && n[1] == 8);
    if (parts != 2 || n[0] != 0 || n[1] != 8)
        return;
    p->requests++;
    p->start = 0;
    for (int i = 0; i < 8; i++)
        p->start = p->start << 8 | part[1][i];
    memcpy(p->peer, peer, (size_t)peer_n);
    p->peer_n = (size_t)peer_n;
}

void publisher_look(struct test_publisher *p)
{
    char part[64];
    int n;

    while (p->pub && (n = zmq_recv(p->pub, part, sizeof part, ZMQ_DONTWAIT)) >= 0)
        p->subscribed = n > 0 && part[0] == 1;
    while (p->router && (n = zmq_recv(p->router, part, sizeof part, ZMQ_DONTWAIT)) >= 0)
        take_request(p, part, n);
}

static void send_all(void *s, const struct wp_str frame[], size_t n, int last)
{
    for (size_t i = 0; i < n; i++)
        EXPECT_INT(
            "sent", (long long)frame[i].n,
            zmq_send(s, frame[i].p, frame[i].n, ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : last)));
}

void publisher_send(struct test_publisher *p, const struct wp_str frame[], size_t n)
{
    send_all(p->pub, frame, n, 0);
}

void publisher_reply(struct test_publisher *p, const struct wp_str frame[], size_t n)
{
    struct wp_str to = {p->peer, p->peer_n};

    send_all(p->router, &to, 1, ZMQ_SNDMORE);
    send_all(p->router, frame, n, 0);
}

void publisher_end(struct test_publisher *p, struct wp_loop *l)
{
    for (unsigned i = 0; i < 2; i++)
        if (i == 0 ? p->pub : p->router)
            uv_close((uv_handle_t *)&p->poll[i], on_closed);
    zmq_close(p->pub);
    if (p->router)
        zmq_close(p->router);
    zmq_ctx_term(p->ctx);
    p->pub = p->router = NULL;
    while (p->open > 0)
        uv_run(&l->uv, UV_RUN_NOWAIT);
}
