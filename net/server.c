/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listener.  It accepts by itself on a polled socket, because libuv, when descriptors run out,
 * accepts and closes what waits; here accepting pauses (at the limit of connections too), clients
 * wait in the backlog, and a connection that ends or a tenth of a second lets it go on.  While
 * somebody waits, connections that have been idle for longest make room: who holds many of them and
 * asks nothing must not keep out who does.
 */
#include "net/conn.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 1024, ACCEPTS_A_TURN = 64, RETRY_US = 100000, IDLE_LEAST_US = 500000, ROOM_AT_ONCE = 16 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct wp_str wp_server_date(struct wp_server *s)
{
    uint64_t now_s = wp_wall_us() / 1000000;

    if (s->date_s != now_s) {
        static const char days[] = "SunMonTueWedThuFriSat",
                          months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        time_t t = (time_t)now_s;
        struct tm tm;

        gmtime_r(&t, &tm);
        s->date_s = now_s;
        snprintf(s->date, sizeof s->date, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
                 days + 3 * tm.tm_wday, tm.tm_mday % 100, months + 3 * tm.tm_mon,
                 (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
    }
    return wp_str_of(s->date);
}

static void on_acceptable(uv_poll_t *poll, int status, int events);

/* Polls the listener when there is room, and only then. */
static void poll_or_not(struct wp_server *s)
{
    bool want = s->poll_open && !s->conf.held && !s->deaf && !s->closing && !s->retry.armed &&
                (s->conf.connections == 0 || s->n_conns < s->conf.connections);

    if (want == s->polling)
        return;
    s->polling = want;
    if (want)
        uv_poll_start(&s->poll, UV_READABLE, on_acceptable);
    else
        uv_poll_stop(&s->poll);
}

static bool is_idle(const struct wp_conn *c)
{
    if (c->state == WP_CONN_H2)
        return wp_h2_is_idle(c->h2);
    return c->state == WP_CONN_IDLE && !c->x && !wp_stream_shaking(&c->stream);
}

static bool full(const struct wp_server *s)
{
    return s->starved || (s->conf.connections && s->n_conns >= s->conf.connections);
}

static bool somebody_waits(const struct wp_server *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* Those whose deadline comes first have been idle for longest. */
static size_t find_idlest(struct wp_server *s, struct wp_conn *out[ROOM_AT_ONCE])
{
    uint64_t newest = wp_loop_now_us(s->loop) + s->conf.keepalive_us - IDLE_LEAST_US;
    size_t n = 0;

    WP_LIST_EACH(&s->conns, it)
    {
        struct wp_conn *c = WP_CONTAINER(it, struct wp_conn, link);
        size_t i;

        if (!is_idle(c) || !c->deadline.armed || c->deadline.at_us > newest)
            continue;
        for (i = n; i > 0 && out[i - 1]->deadline.at_us > c->deadline.at_us; i--)
            if (i < ROOM_AT_ONCE)
                out[i] = out[i - 1];
        if (i < ROOM_AT_ONCE)
            out[i] = c;
        n += n < ROOM_AT_ONCE;
    }
    return n;
}

static void make_room(struct wp_server *s)
{
    struct wp_conn *idlest[ROOM_AT_ONCE];
    size_t n = find_idlest(s, idlest);

    for (size_t i = 0; i < n; i++) {
        if (idlest[i]->state == WP_CONN_H2)
            wp_h2_quiet(idlest[i]->h2);
        else if (!wp_conn_has_unread(idlest[i]))
            wp_conn_close(idlest[i], false);
    }
}

static void on_retry(struct wp_timer *t)
{
    struct wp_server *s = t->arg;

    if (full(s) && somebody_waits(s))
        make_room(s);
    s->starved = false; /* the next accept says whether it still is */
    poll_or_not(s);
    if (full(s) && !s->deaf && !s->closing)
        wp_timer_in(s->loop, t, RETRY_US);
}

static void accept_later(struct wp_server *s, int rc)
{
    uint64_t now = wp_loop_now_us(s->loop), skipped = 0;

    s->starved = rc == UV_EMFILE || rc == UV_ENFILE;
    wp_timer_at(s->loop, &s->retry, now + RETRY_US);
    if (wp_log_may(&s->accept_limit, now, &skipped))
        wp_log(WP_WARN, "http", "accept: address=%s %s connections=%zu pause skipped=%llu",
               s->address, wp_strerror(rc), s->n_conns, (unsigned long long)skipped);
}

/* Not an error, but who wonders why clients wait finds it in the log. */
static void say_full(struct wp_server *s)
{
    uint64_t skipped = 0;

    if (wp_log_may(&s->accept_limit, wp_loop_now_us(s->loop), &skipped))
        wp_log(WP_WARN, "http", "accept: address=%s connections=%zu is the limit, others wait skipped=%llu",
               s->address, s->n_conns, (unsigned long long)skipped);
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct wp_server *s = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN && s->polling; i++) {
        union address peer;
        socklen_t n = sizeof peer;
        int fd = accept4(s->fd, &peer.any, &n, SOCK_NONBLOCK | SOCK_CLOEXEC), rc = 0;

        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd >= 0)
            rc = wp_conn_accept(s, fd, &peer.any, n);
        else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO)
            rc = -errno;
        if (rc < 0)
            accept_later(s, rc);
        poll_or_not(s);
    }
    if (!s->polling && !s->retry.armed && !s->deaf) {
        say_full(s);
        wp_timer_in(s->loop, &s->retry, RETRY_US);
    }
}

static int parse_address(struct wp_str text, union address *out, socklen_t *n, struct wp_err *err)
{
    struct wp_str host;
    char name[64] = "";
    uint16_t port;

    memset(out, 0, sizeof *out);
    if (!wp_hostport_parse(text, &host, &port) || host.n >= sizeof name)
        return wp_fail(err, WP_EINVAL, "listen: want address:port, got \"" WP_STR_FMT "\"",
                       WP_STR_ARG(text));
    if (host.n)
        memcpy(name, host.p, host.n);
    if (strcmp(name, "localhost") == 0)
        strcpy(name, "127.0.0.1");
    if (inet_pton(AF_INET, name, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(port);
        *n = sizeof out->v4;
        return 0;
    }
    if (name[0] && inet_pton(AF_INET6, name, &out->v6.sin6_addr) != 1)
        return wp_fail(err, WP_EINVAL, "listen: \"%s\" is no address of this machine's form", name);
    out->v6.sin6_family = AF_INET6; /* no name: all addresses of both kinds */
    out->v6.sin6_port = htons(port);
    *n = sizeof out->v6;
    return 0;
}

static int listen_on(struct wp_server *s, const union address *addr, socklen_t n)
{
    const int on = 1, off = 0;
    int fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
               sizeof on); /* past TIME_WAIT; two listeners still collide */
    if (addr->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if ((s->conf.reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0) ||
        bind(fd, &addr->any, n) < 0 || listen(fd, BACKLOG) < 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    s->fd = fd;
    return 0;
}

static int open_listener(struct wp_server *s, struct wp_err *err)
{
    union address addr;
    socklen_t n;
    int rc = parse_address(s->conf.address, &addr, &n, err);

    if (rc < 0)
        return rc;
    s->fd = s->conf.fd;
    rc = s->fd ? 0 : listen_on(s, &addr, n);
    if (rc == -EAFNOSUPPORT && s->address[0] == ':') { /* a machine without IPv6 */
        uint16_t port = addr.v6.sin6_port;

        memset(&addr, 0, sizeof addr);
        addr.v4.sin_family = AF_INET;
        addr.v4.sin_port = port;
        rc = listen_on(s, &addr, sizeof addr.v4);
    }
    if (rc < 0)
        return wp_fail(err, rc, "listen on %s: %s", s->address, wp_strerror(rc));
    n = sizeof addr;
    getsockname(s->fd, &addr.any, &n);
    s->port = ntohs(addr.any.sa_family == AF_INET ? addr.v4.sin_port : addr.v6.sin6_port);
    rc = uv_poll_init(&s->loop->uv, &s->poll, s->fd);
    if (rc < 0) {
        close(s->fd);
        return wp_fail(err, rc, "listen on %s: %s", s->address, wp_strerror(rc));
    }
    s->poll.data = s;
    s->poll_open = true;
    return 0;
}

static void set_defaults(struct wp_server_conf *c)
{
    c->head_bytes = c->head_bytes ? c->head_bytes : 65536;
    c->body_bytes = c->body_bytes ? c->body_bytes : 64 << 20;
    c->head_us = c->head_us ? c->head_us : 5000000;
    c->body_us = c->body_us ? c->body_us : 60000000;
    c->keepalive_us = c->keepalive_us ? c->keepalive_us : 60000000;
    c->send_us = c->send_us ? c->send_us : 60000000;
}

static void server_free(struct wp_server *s)
{
    wp_tls_unref(s->conf.tls);
    wp_free(s->address);
    wp_free(s);
}

int wp_server_create(struct wp_server **out, struct wp_loop *l, const struct wp_server_conf *conf,
                     struct wp_err *err)
{
    struct wp_server *s = wp_calloc(1, sizeof *s);
    int rc;

    if (!s)
        return wp_fail(err, WP_ENOMEM, "listen: %s", wp_strerror(WP_ENOMEM));
    s->loop = l;
    s->conf = *conf;
    wp_tls_ref(s->conf.tls);
    set_defaults(&s->conf);
    wp_list_init(&s->conns);
    wp_timer_init(&s->retry, on_retry, s);
    s->address = wp_strndup(conf->address.p ? conf->address.p : "", conf->address.n);
    s->conf.address = wp_str_of(s->address);
    rc = s->address ? open_listener(s, err)
                    : wp_fail(err, WP_ENOMEM, "listen: %s", wp_strerror(WP_ENOMEM));
    if (rc < 0) {
        server_free(s);
        return rc;
    }
    poll_or_not(s);
    *out = s;
    return 0;
}

int wp_server_share(struct wp_server *s, struct wp_err *err)
{
    const int on = 1;

    if (setsockopt(s->fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0)
        return 0;
    return wp_fail(err, -errno, "listen on %s: more loops than one: %s", s->address, wp_strerror(-errno));
}

void wp_server_update(struct wp_server *s, const struct wp_server_conf *conf)
{
    s->conf.connections = conf->connections;
    s->conf.head_bytes = conf->head_bytes;
    s->conf.body_bytes = conf->body_bytes;
    s->conf.head_us = conf->head_us;
    s->conf.body_us = conf->body_us;
    s->conf.keepalive_us = conf->keepalive_us;
    s->conf.send_us = conf->send_us;
    wp_tls_ref(conf->tls);
    wp_tls_unref(s->conf.tls);
    s->conf.tls = conf->tls;
    set_defaults(&s->conf);
    poll_or_not(s);
}

void wp_server_open(struct wp_server *s)
{
    s->conf.held = false;
    poll_or_not(s);
}

int wp_server_fd(const struct wp_server *s)
{
    return s->fd;
}

uint16_t wp_server_port(const struct wp_server *s)
{
    return s->port;
}

size_t wp_server_connections(const struct wp_server *s)
{
    return s->n_conns;
}

size_t wp_server_exchanges(const struct wp_server *s)
{
    return s->n_exchanges;
}

static void on_ended(struct wp_timer *t)
{
    struct wp_server *s = t->arg;
    void (*closed)(void *) = s->closed;
    void *arg = s->closed_arg;

    server_free(s);
    if (closed)
        closed(arg);
}

/* The last to go calls it; the end comes in a turn of its own. */
static void end_if_empty(struct wp_server *s)
{
    if (!s->closing || s->poll_open || s->n_conns)
        return;
    wp_timer_stop(s->loop, &s->retry);
    wp_timer_init(&s->retry, on_ended, s);
    wp_timer_in(s->loop, &s->retry, 0);
}

static void on_listener_closed(uv_handle_t *h)
{
    struct wp_server *s = h->data;

    close(s->fd);
    s->poll_open = false;
    end_if_empty(s);
}

static void close_listener(struct wp_server *s)
{
    wp_timer_stop(s->loop, &s->retry);
    poll_or_not(s);
    if (s->poll_open && !uv_is_closing((uv_handle_t *)&s->poll))
        uv_close((uv_handle_t *)&s->poll, on_listener_closed);
}

void wp_server_forget(struct wp_server *s, struct wp_conn *c)
{
    (void)c;
    s->n_conns--;
    if (!s->closing && s->retry.armed)
        wp_timer_stop(s->loop, &s->retry); /* a descriptor has come free */
    poll_or_not(s);
    end_if_empty(s);
}

void wp_server_quiet(struct wp_server *s)
{
    s->draining = true;
    WP_LIST_EACH(&s->conns, it)
    {
        struct wp_conn *c = WP_CONTAINER(it, struct wp_conn, link);

        if (c->state == WP_CONN_H2)
            wp_h2_quiet(c->h2);
        else if (c->state == WP_CONN_IDLE && !c->x && !wp_conn_has_unread(c))
            wp_conn_close(c, false);
    }
}

void wp_server_pass(struct wp_server *s)
{
    if (s->deaf || s->closing)
        return;
    s->deaf = s->draining = s->passing = true;
    close_listener(s);
    WP_LIST_EACH(&s->conns, it)
    {
        struct wp_conn *c = WP_CONTAINER(it, struct wp_conn, link);

        if (c->state == WP_CONN_H2)
            wp_h2_quiet(c->h2); /* GOAWAY says what was heard: nothing is lost */
    }
}

void wp_server_drain(struct wp_server *s)
{
    if (s->deaf || s->closing)
        return;
    s->deaf = true;
    close_listener(s);
    wp_server_quiet(s);
}

void wp_server_destroy(struct wp_server *s, void (*closed)(void *arg), void *arg)
{
    if (!s || s->closing)
        return;
    s->closing = true;
    s->closed = closed;
    s->closed_arg = arg;
    close_listener(s);
    WP_LIST_EACH(&s->conns, it)
    wp_conn_close(WP_CONTAINER(it, struct wp_conn, link), true);
    end_if_empty(s);
}
