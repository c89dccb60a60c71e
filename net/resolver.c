/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c-ares tells which sockets it wants watched (on_socket); each gets a uv_poll_t, which is closed
 * when c-ares lets the socket go.  The resolver dies with the last of them.
 */
#include "net/resolver.h"

#include "base/mem.h"

#include <ares.h>
#include <string.h>

struct server {
    struct wp_resolver *resolver;
    ares_channel channel;
    struct wp_timer tick; /* c-ares' own deadlines */
};

struct watch { /* a socket of c-ares */
    uv_poll_t poll;
    struct wp_list link;
    struct server *server;
    int fd;
};

struct question {
    wp_resolver_fn fn;
    void *arg;
};

struct wp_resolver {
    struct wp_loop *loop;
    struct server server[WP_RESOLVER_SERVERS];
    size_t n_servers;
    struct wp_list watches;
    unsigned open; /* handles not yet closed */
    bool closing;
};

/* --- sockets and deadlines --- */

static void free_when_done(struct wp_resolver *r)
{
    if (r->closing && r->open == 0)
        wp_free(r);
}

static void on_watch_closed(uv_handle_t *h)
{
    struct watch *w = h->data;
    struct wp_resolver *r = w->server->resolver;

    wp_free(w);
    r->open--;
    free_when_done(r);
}

static void arm(struct server *s)
{
    struct timeval tv, *next = ares_timeout(s->channel, NULL, &tv);
    uint64_t us;

    if (!next) {
        wp_timer_stop(s->resolver->loop, &s->tick);
        return;
    }
    us = (uint64_t)tv.tv_sec * 1000000 + (uint64_t)tv.tv_usec;
    wp_timer_in(s->resolver->loop, &s->tick, us + 1000); /* its clock is coarser than ours */
}

static void process(struct server *s, int read_fd, int write_fd)
{
    ares_process_fd(s->channel, read_fd, write_fd);
    arm(s);
}

static void on_tick(struct wp_timer *t)
{
    process(t->arg, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
    struct watch *w = h->data;
    bool broken = status < 0;

    process(w->server, broken || (events & UV_READABLE) ? w->fd : ARES_SOCKET_BAD,
            broken || (events & UV_WRITABLE) ? w->fd : ARES_SOCKET_BAD);
}

static struct watch *find(struct server *s, int fd)
{
    WP_LIST_EACH(&s->resolver->watches, it)
    {
        struct watch *w = WP_CONTAINER(it, struct watch, link);

        if (w->fd == fd)
            return w;
    }
    return NULL;
}

/* NULL: the question runs into its deadline. */
static struct watch *make(struct server *s, int fd)
{
    struct watch *w = wp_calloc(1, sizeof *w);

    if (!w)
        return NULL;
    if (uv_poll_init(&s->resolver->loop->uv, &w->poll, fd) < 0) {
        wp_free(w);
        return NULL;
    }
    w->poll.data = w;
    w->server = s;
    w->fd = fd;
    s->resolver->open++;
    wp_list_push(&s->resolver->watches, &w->link);
    return w;
}

static void on_socket(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct watch *w = find(arg, fd);

    if (readable || writable) {
        if (!w)
            w = make(arg, fd);
        if (w)
            uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0),
                          on_poll);
    } else if (w) { /* c-ares closes the descriptor next: libuv must have let go of it */
        wp_list_del(&w->link);
        uv_close((uv_handle_t *)&w->poll, on_watch_closed);
    }
}

/* --- questions --- */

static enum wp_found_kind kind_of(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return WP_FOUND;
    case ARES_ENOTFOUND:
        return WP_FOUND_NO_NAME;
    case ARES_ENODATA:
        return WP_FOUND_EMPTY;
    case ARES_ETIMEOUT:
        return WP_FOUND_SILENCE;
    case ARES_ENOMEM:
        return WP_FOUND_NO_MEMORY;
    case ARES_EBADNAME:
    case ARES_EBADSTR:
    case ARES_EBADQUERY:
        return WP_FOUND_NONSENSE;
    default:
        return WP_FOUND_FAILURE;
    }
}

static void shorten(uint64_t *ttl_s, int ttl)
{
    if (ttl >= 0 && (uint64_t)ttl < *ttl_s)
        *ttl_s = (uint64_t)ttl;
}

static void take(struct wp_found *f, const struct ares_addrinfo *ai)
{
    f->ttl_s = UINT64_MAX;
    for (const struct ares_addrinfo_cname *c = ai->cnames; c; c = c->next)
        shorten(&f->ttl_s, c->ttl);
    for (const struct ares_addrinfo_node *a = ai->nodes; a && f->n < WP_RESOLVER_ADDRS;
         a = a->ai_next) {
        if (a->ai_addrlen > sizeof f->addr[0])
            continue;
        memset(&f->addr[f->n], 0, sizeof f->addr[0]);
        memcpy(&f->addr[f->n++], a->ai_addr, a->ai_addrlen);
        shorten(&f->ttl_s, a->ai_ttl);
    }
    if (f->n == 0)
        f->kind = WP_FOUND_EMPTY;
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *ai)
{
    struct question *q = arg;
    struct wp_found f;

    (void)timeouts;
    f.kind = kind_of(status);
    f.n = 0;
    f.ttl_s = 0;
    if (status == ARES_SUCCESS)
        take(&f, ai);
    if (ai)
        ares_freeaddrinfo(ai);
    if (status != ARES_EDESTRUCTION)
        q->fn(q->arg, &f);
    wp_free(q);
}

void wp_resolver_ask(struct wp_resolver *r, size_t server, const char *name, wp_resolver_fn fn,
                     void *arg)
{
    static const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC,
                                                     .ai_socktype = SOCK_STREAM};
    struct server *s = &r->server[server];
    struct question *q = wp_malloc(sizeof *q);

    if (!q) {
        fn(arg, &(struct wp_found){.kind = WP_FOUND_NO_MEMORY});
        return;
    }
    *q = (struct question){fn, arg};
    ares_getaddrinfo(s->channel, name, NULL, &hints, on_answer, q);
    arm(s);
}

size_t wp_resolver_servers(const struct wp_resolver *r)
{
    return r->n_servers;
}

/* --- servers --- */

static int code_of(int status)
{
    return status == ARES_SUCCESS ? 0 : status == ARES_ENOMEM ? WP_ENOMEM : WP_EINVAL;
}

static int list_servers(const char *csv, struct ares_addr_port_node **list)
{
    ares_channel c;
    int status = ares_init(&c);

    if (status != ARES_SUCCESS)
        return code_of(status);
    if (csv)
        status = ares_set_servers_ports_csv(c, csv);
    if (status == ARES_SUCCESS)
        status = ares_get_servers_ports(c, list);
    ares_destroy(c);
    return status == ARES_SUCCESS && !*list ? WP_EINVAL : code_of(status);
}

static int add_server(struct wp_resolver *r, const struct ares_addr_port_node *at,
                      uint64_t timeout_us)
{
    struct server *s = &r->server[r->n_servers];
    struct ares_addr_port_node one = *at;
    struct ares_options o = {0};
    int status;

    o.timeout = timeout_us < 1000 ? 1 : (int)(timeout_us / 1000);
    o.tries = 1;
    o.sock_state_cb = on_socket;
    o.sock_state_cb_data = s;
    status = ares_init_options(&s->channel, &o,
                               ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
    if (status != ARES_SUCCESS)
        return code_of(status);
    s->resolver = r;
    wp_timer_init(&s->tick, on_tick, s);
    r->n_servers++;
    one.next = NULL;
    return code_of(ares_set_servers_ports(s->channel, &one));
}

int wp_resolver_create(struct wp_resolver **out, struct wp_loop *l, const char *csv,
                       uint64_t timeout_us)
{
    struct ares_addr_port_node *list = NULL;
    struct wp_resolver *r = wp_calloc(1, sizeof *r);
    int rc;

    if (!r)
        return WP_ENOMEM;
    r->loop = l;
    wp_list_init(&r->watches);
    rc = list_servers(csv, &list);
    for (struct ares_addr_port_node *at = list; rc == 0 && at && r->n_servers < WP_RESOLVER_SERVERS;
         at = at->next)
        rc = add_server(r, at, timeout_us);
    if (list)
        ares_free_data(list);
    if (rc < 0)
        wp_resolver_destroy(r);
    else
        *out = r;
    return rc;
}

void wp_resolver_destroy(struct wp_resolver *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_servers; i++) {
        wp_timer_stop(r->loop, &r->server[i].tick);
        ares_destroy(r->server[i].channel); /* lets go of its sockets, see on_socket() */
    }
    r->closing = true;
    free_when_done(r);
}
