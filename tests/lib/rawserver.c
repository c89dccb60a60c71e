/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/rawserver.h"

#include "tests/lib/ports.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct raw_conn {
    struct raw_server *server;
    struct raw_conn *next;
    const struct raw_step *step;
    uv_tcp_t tcp;
    uv_idle_t turn;
    uv_shutdown_t fin;
    char *seen; /* since the last RAW_EXPECT was met */
    size_t seen_n;
    size_t turns, dripped;
    unsigned handles;
    bool holding, ended;
};

static void play(struct raw_conn *c);

static void add(char **to, size_t *to_n, const char *p, size_t n)
{
    char *more = realloc(*to, *to_n + n + 1);

    if (!more)
        abort();
    memcpy(more + *to_n, p, n);
    *to_n += n;
    more[*to_n] = 0;
    *to = more;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct raw_conn *c = h->data;

    if (--c->handles > 0)
        return;
    for (struct raw_conn **at = &c->server->first; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    c->server->open--;
    free(c->seen);
    free(c);
}

static void end(struct raw_conn *c, bool reset)
{
    if (c->ended)
        return;
    c->ended = true;
    if (!reset || uv_tcp_close_reset(&c->tcp, on_handle_closed) < 0)
        uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&c->turn, on_handle_closed);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    (void)h;
    (void)hint;
    *buf = uv_buf_init(malloc(65536), 65536);
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct raw_conn *c = h->data;

    if (n > 0) {
        add(&c->server->got, &c->server->got_n, buf->base, (size_t)n);
        add(&c->seen, &c->seen_n, buf->base, (size_t)n);
    }
    free(buf->base);
    if (n > 0) {
        play(c);
    } else if (n == UV_EOF) {
        c->server->eofs++;
        end(c, false);
    } else if (n < 0) {
        c->server->resets++;
        end(c, false);
    }
}

static void on_written(uv_write_t *req, int rc)
{
    (void)rc;
    free(req);
}

static void send_bytes(struct raw_conn *c, const char *p, size_t n)
{
    uv_buf_t buf = uv_buf_init((char *)p, (unsigned)n);
    uv_write_t *req = malloc(sizeof *req);

    if (!req || uv_write(req, (uv_stream_t *)&c->tcp, &buf, 1, on_written) < 0)
        free(req);
}

static size_t length(const struct raw_step *s)
{
    return s->n || !s->text ? s->n : strlen(s->text);
}

static void on_turn(uv_idle_t *h)
{
    struct raw_conn *c = h->data;

    if (c->step->op == RAW_DRIP) {
        send_bytes(c, c->step->text + c->dripped, 1);
        if (++c->dripped < length(c->step))
            return;
    } else if (++c->turns < length(c->step)) {
        return;
    }
    uv_idle_stop(h);
    c->step++;
    play(c);
}

static bool met(struct raw_conn *c)
{
    size_t n = length(c->step);
    char *at = c->seen_n < n ? NULL : memmem(c->seen, c->seen_n, c->step->text, n);

    if (!at)
        return false;
    n += (size_t)(at - c->seen);
    memmove(c->seen, c->seen + n, c->seen_n - n + 1);
    c->seen_n -= n;
    return true;
}

static void on_fin(uv_shutdown_t *req, int rc)
{
    (void)req;
    (void)rc;
}

/* One step; false when it is not done yet, or the script has ended. */
static bool step(struct raw_conn *c)
{
    switch (c->step->op) {
    case RAW_END:
        return false;
    case RAW_EXPECT:
        return met(c);
    case RAW_SEND:
        send_bytes(c, c->step->text, length(c->step));
        return true;
    case RAW_DRIP:
    case RAW_TURN:
        c->dripped = c->turns = 0;
        uv_idle_start(&c->turn, on_turn);
        return false;
    case RAW_HOLD:
        c->holding = true;
        c->server->holding++;
        return false;
    case RAW_DEAF:
        uv_read_stop((uv_stream_t *)&c->tcp);
        return true;
    case RAW_HEAR:
        uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
        return true;
    case RAW_FIN:
        uv_shutdown(&c->fin, (uv_stream_t *)&c->tcp, on_fin);
        return true;
    case RAW_CLOSE:
    case RAW_RESET:
        end(c, c->step->op == RAW_RESET);
        return false;
    }
    return false;
}

static void play(struct raw_conn *c)
{
    while (!c->ended && !c->holding && !uv_is_active((uv_handle_t *)&c->turn) && step(c))
        c->step++;
}

static void on_connection(uv_stream_t *listener, int rc)
{
    struct raw_server *s = listener->data;
    struct raw_conn *c = calloc(1, sizeof *c);

    if (rc < 0 || !c)
        abort();
    c->server = s;
    c->step = s->script[s->accepted < s->n_scripts ? s->accepted : s->n_scripts - 1];
    c->handles = 2;
    c->tcp.data = c->turn.data = c;
    uv_tcp_init(s->loop, &c->tcp);
    uv_idle_init(s->loop, &c->turn);
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) < 0)
        abort();
    uv_tcp_nodelay(&c->tcp, 1);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    c->next = s->first;
    s->first = c;
    s->accepted++;
    s->open++;
    play(c);
}

int raw_server_start(struct raw_server *s, uv_loop_t *loop, bool v6,
                     const struct raw_step *const script[], size_t n)
{
    struct sockaddr_storage addr = {0};
    int addr_n = sizeof addr, rc;

    memset(s, 0, sizeof *s);
    s->loop = loop;
    s->script = script;
    s->n_scripts = n;
    s->tcp.data = s;
    s->closed = true;
    if (v6)
        uv_ip6_addr("::1", (int)test_ports(1), /* its twin on 127.0.0.1 is free, too */
                    (struct sockaddr_in6 *)&addr);
    else
        uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *)&addr);
    uv_tcp_init(loop, &s->tcp);
    s->closed = false;
    rc = uv_tcp_bind(&s->tcp, (struct sockaddr *)&addr, 0);
    if (rc == 0)
        rc = uv_listen((uv_stream_t *)&s->tcp, 128, on_connection);
    if (rc == 0)
        rc = uv_tcp_getsockname(&s->tcp, (struct sockaddr *)&addr, &addr_n);
    s->port = ntohs(v6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                       : ((struct sockaddr_in *)&addr)->sin_port);
    return rc;
}

void raw_server_go(struct raw_server *s)
{
    for (struct raw_conn *c = s->first, *next; c; c = next) {
        next = c->next;
        if (!c->holding)
            continue;
        c->holding = false;
        s->holding--;
        c->step++;
        play(c);
    }
}

void raw_server_hang_up(struct raw_server *s)
{
    for (struct raw_conn *c = s->first, *next; c; c = next) {
        next = c->next;
        end(c, false);
    }
}

void raw_server_deafen(struct raw_server *s)
{
    if (!s->closed)
        uv_close((uv_handle_t *)&s->tcp, NULL);
    s->closed = true;
}

void raw_server_stop(struct raw_server *s)
{
    raw_server_hang_up(s);
    raw_server_deafen(s);
}

void raw_server_fini(struct raw_server *s)
{
    free(s->got);
    s->got = NULL;
}
