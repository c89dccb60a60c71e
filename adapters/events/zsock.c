/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A socket that may have something to read stands in its context's list of the ready. An idle
 * handle serves that list once a turn of the loop, while it is not empty: each socket its share,
 * then to the end of the list, until the turn's budget is used up. The library's descriptors put
 * sockets into the list, and so does every call that may have swallowed the news.
 *
 * A closed socket is out of every list at once and its memory goes with its last libuv handle, so a
 * callback deep inside may close it. The context's own memory goes when the library has ended.
 */
#include "adapters/events/zsock.h"

#include "base/list.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <zmq.h>

enum {
    MAX_SOCKETS = 65535, /* the library's own default is 1,023: at three a publisher, 341 of them */
    HIGH_WATER = 100000, /* as many as an engine keeps for a slow reader */
    MESSAGE_MAX = 64 << 20, /* a batch that stores a million tokens has about 6 MB */
    HANDSHAKE_MS = 10000,
    CONNECT_MS = 5000,
    RETRY_MS = 100,
    RETRY_MAX_MS = 5000,
};

struct wp_zctx {
    struct wp_loop *loop;
    void *ctx;
    uv_idle_t turn;
    uv_work_t ending;
    struct wp_list ready;
    size_t sockets;  /* whose handles are not closed */
    uint64_t serial; /* names monitors */
    bool turning, closing;
    void (*fn)(void *arg);
    void *arg;
};

struct wp_zsock {
    struct wp_zctx *z;
    struct wp_zsock_conf conf;
    void *sock, *monitor; /* NULL once closed */
    uv_poll_t poll, monitor_poll;
    struct wp_list ready;
    unsigned open;
};

static int fail(struct wp_err *err, const char *what)
{
    int code = zmq_errno();

    return wp_fail(err, -code, "%s: %s", what, zmq_strerror(code));
}

/* -- the context's end -- */

static void on_turn_closed(uv_handle_t *h)
{
    struct wp_zctx *z = h->data;
    void (*fn)(void *arg) = z->fn;
    void *arg = z->arg;

    wp_free(z);
    if (fn)
        fn(arg);
}

static void end_library(uv_work_t *w)
{
    struct wp_zctx *z = WP_CONTAINER(w, struct wp_zctx, ending);

    while (zmq_ctx_term(z->ctx) < 0 && zmq_errno() == EINTR)
        ;
}

static void on_library_ended(uv_work_t *w, int status)
{
    struct wp_zctx *z = WP_CONTAINER(w, struct wp_zctx, ending);

    (void)status;
    uv_close((uv_handle_t *)&z->turn, on_turn_closed);
}

static void end_when_idle(struct wp_zctx *z)
{
    if (!z->closing || z->sockets > 0)
        return;
    if (uv_queue_work(&z->loop->uv, &z->ending, end_library, on_library_ended) < 0) {
        end_library(&z->ending);
        on_library_ended(&z->ending, 0);
    }
}

int wp_zctx_create(struct wp_zctx **out, struct wp_loop *loop, struct wp_err *err)
{
    struct wp_zctx *z = wp_calloc(1, sizeof *z);
    int rc;

    if (!z)
        return wp_fail(err, WP_ENOMEM, "ZeroMQ: %s", wp_strerror(WP_ENOMEM));
    z->ctx = zmq_ctx_new();
    if (!z->ctx) {
        rc = fail(err, "ZeroMQ");
        wp_free(z);
        return rc;
    }
    zmq_ctx_set(z->ctx, ZMQ_MAX_SOCKETS, MAX_SOCKETS);
    zmq_ctx_set(z->ctx, ZMQ_BLOCKY, 0);
    z->loop = loop;
    z->turn.data = z;
    wp_list_init(&z->ready);
    uv_idle_init(&loop->uv, &z->turn);
    *out = z;
    return 0;
}

void wp_zctx_destroy(struct wp_zctx *z, void (*fn)(void *arg), void *arg)
{
    z->closing = true;
    z->fn = fn;
    z->arg = arg;
    end_when_idle(z);
}

/* -- reading -- */

static void on_turn(uv_idle_t *h);

static void make_ready(struct wp_zsock *s)
{
    struct wp_zctx *z = s->z;

    if (!s->sock || !wp_list_empty(&s->ready))
        return;
    wp_list_push(&z->ready, &s->ready);
    if (!z->turning)
        uv_idle_start(&z->turn, on_turn);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    make_ready(h->data);
}

static bool has_input(struct wp_zsock *s)
{
    int events = 0;
    size_t n = sizeof events;

    return zmq_getsockopt(s->sock, ZMQ_EVENTS, &events, &n) == 0 && (events & ZMQ_POLLIN);
}

bool wp_zsock_pending(struct wp_zsock *s)
{
    bool pending = has_input(s);

    if (pending)
        make_ready(s); /* to ask may have swallowed the news */
    return pending;
}

/* The monitor's messages: a number of 16 bits and a value of 32, then the endpoint. */
static bool read_event(struct wp_zsock *s, unsigned *event, int *value)
{
    struct {
        uint16_t event;
        int32_t value;
    } __attribute__((packed)) body = {0};
    char endpoint[8];
    int n = zmq_recv(s->monitor, &body, sizeof body, ZMQ_DONTWAIT);
    int more = 0;
    size_t size = sizeof more;

    if (n < 0)
        return false;
    *event = n == sizeof body ? body.event : 0;
    *value = body.value;
    while (zmq_getsockopt(s->monitor, ZMQ_RCVMORE, &more, &size) == 0 && more)
        if (zmq_recv(s->monitor, endpoint, sizeof endpoint, ZMQ_DONTWAIT) < 0)
            break;
    return true;
}

static void tell_event(struct wp_zsock *s, unsigned event, int value)
{
    const struct wp_zsock_conf *c = &s->conf;

    switch (event) {
    case ZMQ_EVENT_ACCEPTED:
        c->ops->event(c->arg, WP_ZEVENT_ACCEPTED, value);
        break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        c->ops->event(c->arg, WP_ZEVENT_UP, -1);
        break;
    case ZMQ_EVENT_DISCONNECTED:
        c->ops->event(c->arg, WP_ZEVENT_DOWN, value);
        break;
    case ZMQ_EVENT_CONNECT_RETRIED:
        c->ops->event(c->arg, WP_ZEVENT_RETRY, -1);
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        c->ops->event(c->arg, WP_ZEVENT_STRANGER, -1);
        break;
    default:
        break;
    }
}

bool wp_zsock_events(struct wp_zsock *s)
{
    unsigned event;
    int value;

    while (s->monitor && read_event(s, &event, &value))
        tell_event(s, event, value);
    return s->sock != NULL;
}

struct batch {
    zmq_msg_t part[WP_ZSOCK_FRAMES];
    struct wp_zmessage m;
    size_t kept, bytes;
};

static void batch_close(struct batch *b)
{
    for (size_t i = 0; i < b->kept; i++)
        zmq_msg_close(&b->part[i]);
}

/* The parts of a message come all at once.  False: there is none. */
static bool read_message(struct wp_zsock *s, struct batch *b)
{
    bool more = true;

    b->kept = b->bytes = 0;
    b->m.n = 0;
    b->m.fd = -1;
    while (more) {
        zmq_msg_t extra, *part = b->kept < WP_ZSOCK_FRAMES ? &b->part[b->kept] : &extra;

        zmq_msg_init(part);
        if (zmq_msg_recv(part, s->sock, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(part);
            return b->m.n > 0;
        }
        more = zmq_msg_more(part);
        b->bytes += zmq_msg_size(part);
        b->m.n++;
        if (part == &extra) {
            zmq_msg_close(part);
            continue;
        }
        b->m.frame[b->kept++] = (struct wp_str){zmq_msg_data(part), zmq_msg_size(part)};
    }
    return true;
}

/* Reads up to a socket's share.  True when there may be more. */
static bool serve(struct wp_zsock *s, size_t *messages, size_t *bytes)
{
    struct batch b;

    if (!wp_zsock_events(s))
        return false;
    for (size_t n = 0; n<WP_ZSOCK_SHARE && * messages> 0 && *bytes > 0; n++) {
        if (!read_message(s, &b)) {
            if (has_input(s))
                continue; /* it came between the two calls */
            if (s->conf.ops->drained)
                s->conf.ops->drained(s->conf.arg);
            return false;
        }
        --*messages;
        *bytes -= b.bytes < *bytes ? b.bytes : *bytes;
#ifdef ZMQ_SRCFD
        b.m.fd = zmq_msg_get(&b.part[0], ZMQ_SRCFD);
#endif
        s->conf.ops->message(s->conf.arg, s, &b.m);
        batch_close(&b);
        if (!s->sock)
            return false;
    }
    return true;
}

static void on_turn(uv_idle_t *h)
{
    struct wp_zctx *z = h->data;
    size_t messages = WP_ZSOCK_TURN, bytes = WP_ZSOCK_TURN_BYTES;

    z->turning = true;
    while (messages > 0 && bytes > 0 && !wp_list_empty(&z->ready)) {
        struct wp_zsock *s = WP_CONTAINER(wp_list_shift(&z->ready), struct wp_zsock, ready);

        if (serve(s, &messages, &bytes))
            make_ready(s);
    }
    z->turning = false;
    if (wp_list_empty(&z->ready))
        uv_idle_stop(&z->turn);
}

/* -- a socket's life -- */

static void set(void *sock, int option, int value)
{
    zmq_setsockopt(sock, option, &value, sizeof value);
}

static void tune(void *sock, const struct wp_zsock_conf *c)
{
    int64_t max = MESSAGE_MAX;

    set(sock, ZMQ_LINGER, 0);
    set(sock, ZMQ_RCVHWM, HIGH_WATER);
    set(sock, ZMQ_RECONNECT_IVL, RETRY_MS);
    set(sock, ZMQ_RECONNECT_IVL_MAX, RETRY_MAX_MS);
    set(sock, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    set(sock, ZMQ_CONNECT_TIMEOUT, CONNECT_MS);
    set(sock, ZMQ_TCP_KEEPALIVE, 1);
    if (c->heartbeat_ms > 0) {
        set(sock, ZMQ_HEARTBEAT_IVL, (int)c->heartbeat_ms);
        set(sock, ZMQ_HEARTBEAT_TIMEOUT, (int)c->heartbeat_timeout_ms);
        set(sock, ZMQ_HEARTBEAT_TTL, (int)c->heartbeat_timeout_ms);
    }
    zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &max, sizeof max);
    if (c->type == ZMQ_SUB)
        zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "", 0);
}

/*
 * The library's thread writes to the monitor and would wait for a reader: so the reader is there
 * before anything is connected, has no limit, and leaves after the writer.
 */
static void *open_monitor(struct wp_zctx *z, void *sock)
{
    void *pair = zmq_socket(z->ctx, ZMQ_PAIR);
    char name[64];

    if (!pair)
        return NULL;
    snprintf(name, sizeof name, "inproc://monitor-%llu", (unsigned long long)++z->serial);
    set(pair, ZMQ_LINGER, 0);
    set(pair, ZMQ_RCVHWM, 0);
    if (zmq_socket_monitor(
            sock, name,
            ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) == 0 &&
        zmq_connect(pair, name) == 0)
        return pair;
    zmq_socket_monitor(sock, NULL, 0);
    zmq_close(pair);
    return NULL;
}

static void close_library_sockets(struct wp_zsock *s)
{
    if (s->monitor) {
        zmq_socket_monitor(s->sock, NULL, 0);
        zmq_close(s->monitor);
    }
    zmq_close(s->sock);
    s->sock = s->monitor = NULL;
}

static void on_poll_closed(uv_handle_t *h)
{
    struct wp_zsock *s = h->data;
    struct wp_zctx *z = s->z;

    if (--s->open > 0)
        return;
    wp_free(s);
    z->sockets--;
    end_when_idle(z);
}

static int watch(struct wp_zsock *s, uv_poll_t *poll, void *sock)
{
    int fd = -1, rc;
    size_t n = sizeof fd;

    if (zmq_getsockopt(sock, ZMQ_FD, &fd, &n) < 0)
        return -zmq_errno();
    rc = uv_poll_init(&s->z->loop->uv, poll, fd);
    if (rc < 0)
        return rc;
    poll->data = s;
    s->open++;
    return uv_poll_start(poll, UV_READABLE, on_readable);
}

int wp_zsock_open(struct wp_zsock **out, struct wp_zctx *z, const struct wp_zsock_conf *conf,
                  struct wp_err *err)
{
    struct wp_zsock *s = wp_calloc(1, sizeof *s);
    int rc;

    if (!s)
        return wp_fail(err, WP_ENOMEM, "ZeroMQ socket: %s", wp_strerror(WP_ENOMEM));
    s->z = z;
    s->conf = *conf;
    wp_list_init(&s->ready);
    s->sock = zmq_socket(z->ctx, conf->type);
    if (!s->sock) {
        rc = fail(err, "ZeroMQ socket");
        goto free_socket;
    }
    tune(s->sock, conf);
    if (conf->ops->event) {
        s->monitor = open_monitor(z, s->sock);
        if (!s->monitor) {
            rc = fail(err, "ZeroMQ monitor");
            goto close_sockets;
        }
    }
    z->sockets++;
    rc = watch(s, &s->poll, s->sock);
    if (rc == 0 && s->monitor)
        rc = watch(s, &s->monitor_poll, s->monitor);
    if (rc < 0) {
        wp_fail(err, rc, "ZeroMQ socket: %s", wp_strerror(rc));
        if (s->open > 0) {
            wp_zsock_close(s); /* the rest goes with its handle */
            return rc;
        }
        z->sockets--;
        goto close_sockets;
    }
    *out = s;
    return 0;

close_sockets:
    close_library_sockets(s);
free_socket:
    wp_free(s);
    return rc;
}

/* libuv lets go of the descriptors at once, before the library closes them. */
void wp_zsock_close(struct wp_zsock *s)
{
    if (!s || !s->sock)
        return;
    wp_list_del(&s->ready);
    uv_close((uv_handle_t *)&s->poll, on_poll_closed);
    if (s->monitor && s->open > 1)
        uv_close((uv_handle_t *)&s->monitor_poll, on_poll_closed);
    close_library_sockets(s);
}

/* Off by default, and on it would write every IPv4 address as a mapped one. */
static void allow_v6(struct wp_zsock *s, const char *endpoint)
{
    set(s->sock, ZMQ_IPV6, strchr(endpoint, '[') || strstr(endpoint, "//*"));
}

int wp_zsock_connect(struct wp_zsock *s, const char *endpoint, struct wp_err *err)
{
    allow_v6(s, endpoint);
    if (zmq_connect(s->sock, endpoint) < 0)
        return fail(err, endpoint);
    make_ready(s);
    return 0;
}

void wp_zsock_disconnect(struct wp_zsock *s, const char *endpoint)
{
    zmq_disconnect(s->sock, endpoint);
    make_ready(s);
}

int wp_zsock_bind(struct wp_zsock *s, const char *endpoint, char endpoint_out[], size_t n,
                  struct wp_err *err)
{
    allow_v6(s, endpoint);
    if (zmq_bind(s->sock, endpoint) < 0)
        return fail(err, endpoint);
    if (zmq_getsockopt(s->sock, ZMQ_LAST_ENDPOINT, endpoint_out, &n) < 0)
        endpoint_out[0] = 0;
    make_ready(s);
    return 0;
}

int wp_zsock_send(struct wp_zsock *s, const struct wp_str frame[], size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        int flags = ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0);

        if (zmq_send(s->sock, frame[i].p, frame[i].n, flags) < 0)
            rc = -zmq_errno();
    }
    make_ready(s); /* sending may have swallowed the news of something to read */
    return rc;
}
