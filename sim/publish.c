/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PUB socket is written from the loop and never waits.  The ROUTER socket is watched through
 * its descriptor, which tells of changes only: so it is asked for its events until there are none.
 * It is a thing of its own (a door), because it outlives a restart or the publisher by the turn
 * that its handle needs to close; the last to go ends the ZeroMQ context.
 *
 * A restart closes both sockets and opens new ones on the same addresses.  libzmq closes behind our
 * back, so a bind may find its port still taken: it is tried again every few milliseconds, and
 * until then nobody hears us.
 */
#include "sim/publish.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <zmq.h>

enum { ENDPOINT = 256, RETRY_US = 3000, RETRIES = 2000, HELD_US = 20000 };

struct batch {
    uint64_t number;
    struct wp_buf payload;
};

struct door {
    struct wp_publish *owner; /* NULL: it is closing */
    void *socket, *context;   /* context: to be ended with it, or NULL */
    uv_poll_t poll;
};

struct wp_publish {
    struct wp_loop *loop;
    struct wp_blocks *blocks;
    struct wp_publish_conf conf;
    char endpoint[ENDPOINT], replay[ENDPOINT];
    char *topic;
    void *context, *pub;
    struct door *door;
    struct wp_change *change;
    size_t n_change, cap_change;
    bool broken; /* a change did not fit into memory */
    struct batch *kept;
    size_t first, n_kept; /* a ring of conf.buffer */
    uint64_t next, sent;  /* sent: batches since the start */
    struct batch held;    /* to be overtaken by the next one */
    bool holds;
    struct wp_timer release, reopen;
    unsigned tries;
    struct wp_rng rng;
};

/* ---- sockets ---- */

/* Where a wildcard port has become a real one. */
static void learn(void *socket, char endpoint[ENDPOINT])
{
    char bound[ENDPOINT];
    size_t n = sizeof bound, at = strlen(endpoint);
    const char *colon;

    if (at < 2 || strcmp(endpoint + at - 2, ":*") != 0)
        return;
    if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &n) == 0 && (colon = strrchr(bound, ':')))
        snprintf(endpoint + at - 2, ENDPOINT - at + 2, "%.16s", colon);
}

static void *socket_of(void *context, int type, const char *endpoint, int hwm)
{
    void *s = zmq_socket(context, type);
    int none = 0, yes = 1;

    if (!s)
        return NULL;
    zmq_setsockopt(s, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(s, ZMQ_SNDHWM, &hwm, sizeof hwm);
    if (strchr(endpoint, '[') || strstr(endpoint, "::"))
        zmq_setsockopt(s, ZMQ_IPV6, &yes, sizeof yes);
    return s;
}

/* ---- replay ---- */

static void send3(void *socket, int flags, const char *topic, uint64_t number, const char *payload,
                  size_t n)
{
    unsigned char bytes[8];

    for (int i = 7; i >= 0; i--, number >>= 8)
        bytes[i] = (unsigned char)number;
    if (topic)
        zmq_send(socket, topic, strlen(topic), ZMQ_SNDMORE | flags);
    zmq_send(socket, bytes, sizeof bytes, ZMQ_SNDMORE | flags);
    zmq_send(socket, n ? payload : "", n, flags);
}

static void reply(const struct door *d, zmq_msg_t *who, const char *topic, uint64_t number,
                  const struct wp_buf *payload)
{
    zmq_msg_t id;

    zmq_msg_init(&id);
    if (zmq_msg_copy(&id, who) < 0 ||
        zmq_msg_send(&id, d->socket, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&id);
        return;
    }
    zmq_send(d->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    send3(d->socket, ZMQ_DONTWAIT, topic, number, payload ? payload->p : NULL,
          payload ? payload->n : 0);
}

static void replay(const struct door *d, zmq_msg_t *who, uint64_t from)
{
    const struct wp_publish *p = d->owner;
    bool bare = p->conf.bare_replies;

    for (size_t i = 0; i < p->n_kept; i++) {
        const struct batch *b = &p->kept[(p->first + i) % p->conf.buffer];

        if (b->number >= from)
            reply(d, who, bare ? NULL : p->topic, b->number, &b->payload);
    }
    reply(d, who, bare ? NULL : "", UINT64_MAX, NULL);
}

/* One request: its frames are read to the end, whatever they are. */
static bool serve_one(const struct door *d)
{
    zmq_msg_t part[3];
    size_t n = 0;
    uint64_t from = 0;
    int more = 1;

    for (size_t i = 0; i < 3; i++)
        zmq_msg_init(&part[i]);
    for (; more; n++) {
        zmq_msg_t *m = &part[n < 3 ? n : 2]; /* what is too much falls on the last */

        if (zmq_msg_recv(m, d->socket, ZMQ_DONTWAIT) < 0)
            break;
        more = zmq_msg_more(m);
    }
    if (!more && n == 3 && zmq_msg_size(&part[1]) == 0 && zmq_msg_size(&part[2]) == 8) {
        for (size_t i = 0; i < 8; i++)
            from = from << 8 | ((unsigned char *)zmq_msg_data(&part[2]))[i];
        replay(d, &part[0], from);
    }
    for (size_t i = 0; i < 3; i++)
        zmq_msg_close(&part[i]);
    return n > 0;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct door *d = poll->data;
    int now = 0;
    size_t n = sizeof now;

    (void)status;
    (void)events;
    while (d->owner && zmq_getsockopt(d->socket, ZMQ_EVENTS, &now, &n) == 0 && (now & ZMQ_POLLIN))
        if (!serve_one(d))
            break;
}

static void on_door_closed(uv_handle_t *h)
{
    struct door *d = h->data;

    zmq_close(d->socket);
    if (d->context)
        zmq_ctx_term(d->context);
    wp_free(d);
}

static void door_close(struct door *d, void *context)
{
    d->owner = NULL;
    d->context = context;
    uv_poll_stop(&d->poll);
    uv_close((uv_handle_t *)&d->poll, on_door_closed);
}

static int door_open(struct wp_publish *p)
{
    struct door *d = wp_calloc(1, sizeof *d);
    int fd = -1, rc = WP_ENOMEM;
    size_t n = sizeof fd;

    if (!d)
        return WP_ENOMEM;
    d->owner = p;
    d->socket = socket_of(p->context, ZMQ_ROUTER, p->replay, 0);
    if (!d->socket || zmq_bind(d->socket, p->replay) < 0 ||
        zmq_getsockopt(d->socket, ZMQ_FD, &fd, &n) < 0) {
        rc = -zmq_errno();
        goto free_door;
    }
    rc = uv_poll_init(&p->loop->uv, &d->poll, fd);
    if (rc < 0)
        goto free_door;
    d->poll.data = d;
    learn(d->socket, p->replay);
    uv_poll_start(&d->poll, UV_READABLE, on_readable);
    p->door = d;
    return 0;

free_door:
    if (d->socket)
        zmq_close(d->socket);
    wp_free(d);
    return rc;
}

/* ---- opening and restarting ---- */

static int pub_open(struct wp_publish *p)
{
    bool binds = p->conf.mode == WP_PUBLISH_AUTO ? wp_publish_binds(p->endpoint)
                                                 : p->conf.mode == WP_PUBLISH_BIND;
    void *s = socket_of(p->context, ZMQ_PUB, p->endpoint, WP_PUBLISH_HWM);

    if (!s)
        return -zmq_errno();
    if ((binds ? zmq_bind(s, p->endpoint) : zmq_connect(s, p->endpoint)) < 0) {
        int rc = -zmq_errno();

        zmq_close(s);
        return rc;
    }
    if (binds)
        learn(s, p->endpoint);
    if (p->conf.mode == WP_PUBLISH_AUTO) /* what a wildcard has become is no wildcard any more */
        p->conf.mode = binds ? WP_PUBLISH_BIND : WP_PUBLISH_CONNECT;
    p->pub = s;
    return 0;
}

static int open_both(struct wp_publish *p, struct wp_err *err)
{
    int rc = p->pub ? 0 : pub_open(p);

    if (rc < 0)
        return wp_fail(err, rc, "events %s: %s", p->endpoint, zmq_strerror(-rc));
    rc = p->door || !p->replay[0] ? 0 : door_open(p);
    return rc < 0 ? wp_fail(err, rc, "replay %s: %s", p->replay, zmq_strerror(-rc)) : 0;
}

static void on_reopen(struct wp_timer *t)
{
    struct wp_publish *p = t->arg;
    struct wp_err err = WP_ERR_INIT;

    if (open_both(p, &err) == 0)
        return;
    if (++p->tries < RETRIES)
        wp_timer_in(p->loop, &p->reopen, RETRY_US);
    else
        wp_log(WP_ERROR, "kv_events", "rank=%u gives up: %s", p->conf.payload.rank, err.text);
}

static void forget(struct wp_publish *p)
{
    for (size_t i = 0; i < p->n_change; i++)
        wp_block_unref(p->blocks, p->change[i].block);
    p->n_change = 0;
    p->broken = false;
}

static void free_kept(struct wp_publish *p)
{
    for (size_t i = 0; p->kept && i < p->conf.buffer; i++)
        wp_buf_fini(&p->kept[i].payload);
    wp_buf_fini(&p->held.payload);
    wp_free(p->kept);
}

static void close_sockets(struct wp_publish *p, bool for_good)
{
    void *context = for_good ? p->context : NULL;

    if (p->pub)
        zmq_close(p->pub);
    p->pub = NULL;
    if (p->door)
        door_close(p->door, context);
    else if (context)
        zmq_ctx_term(context);
    p->door = NULL;
}

void wp_publish_restart(struct wp_publish *p)
{
    forget(p);
    wp_timer_stop(p->loop, &p->release);
    p->holds = false;
    p->first = p->n_kept = 0;
    p->next = p->sent = 0;
    p->tries = 0;
    close_sockets(p, false);
    wp_timer_in(p->loop, &p->reopen, 0);
}

/* ---- batches ---- */

static void send_batch(struct wp_publish *p, const struct batch *b)
{
    if (p->pub)
        send3(p->pub, ZMQ_DONTWAIT, p->topic, b->number, b->payload.p, b->payload.n);
}

static void release_held(struct wp_publish *p)
{
    if (p->holds)
        send_batch(p, &p->held);
    p->holds = false;
    wp_timer_stop(p->loop, &p->release);
}

static void on_release(struct wp_timer *t) /* nothing has come that could overtake it */
{
    release_held(t->arg);
}

static bool struck(struct wp_publish *p, enum wp_fault_kind kind)
{
    return wp_fault_draw(p->conf.fault, p->conf.n_faults, kind, &p->rng) != NULL;
}

/* On its way: lost, doubled, overtaken, or as it should. */
static void send_or_not(struct wp_publish *p, const struct batch *b)
{
    if (struck(p, WP_FAULT_LOSE))
        return;
    if (!p->holds && struck(p, WP_FAULT_REORDER)) {
        p->held.number = b->number;
        p->held.payload.n = 0;
        if (wp_buf_add(&p->held.payload, b->payload.p, b->payload.n) == 0) {
            p->holds = true;
            wp_timer_in(p->loop, &p->release, HELD_US);
            return;
        }
    }
    send_batch(p, b);
    if (struck(p, WP_FAULT_DOUBLE))
        send_batch(p, b);
    release_held(p);
}

/* Room for one batch more; the oldest goes for it. */
static struct batch *keep(struct wp_publish *p)
{
    struct batch *b;

    if (p->n_kept == p->conf.buffer)
        p->first = (p->first + 1) % p->conf.buffer;
    else
        p->n_kept++;
    b = &p->kept[(p->first + p->n_kept - 1) % p->conf.buffer];
    b->payload.n = 0;
    return b;
}

static void check_restart(struct wp_publish *p)
{
    for (size_t i = 0; i < p->conf.n_faults; i++) {
        struct wp_fault *f = &p->conf.fault[i];

        if (f->kind != WP_FAULT_EVENTS_RESTART || p->sent < f->value ||
            (f->count && f->struck >= f->count))
            continue;
        f->struck++;
        p->conf.on_restart(p->conf.arg);
        return;
    }
}

void wp_publish_step(struct wp_publish *p)
{
    struct batch *b;
    uint64_t number = p->next;

    if (p->n_change == 0 && !p->broken)
        return;
    p->next++;
    p->sent++;
    if (!p->broken && !struck(p, WP_FAULT_SKIP)) {
        b = keep(p);
        b->number = number;
        if (wp_payload_write(&b->payload, &p->conf.payload, (double)wp_wall_us() * 1e-6, p->change,
                             p->n_change) < 0)
            p->n_kept--; /* as when vLLM fails to encode: the number is used */
        else
            send_or_not(p, b);
    }
    forget(p);
    check_restart(p);
}

void wp_publish_change(struct wp_publish *p, enum wp_change_kind kind, uint8_t tier,
                       struct wp_block *block)
{
    if (p->n_change == p->cap_change) {
        size_t cap = p->cap_change ? p->cap_change * 2 : 64;
        struct wp_change *more = wp_realloc(p->change, cap * sizeof *more);

        if (!more) {
            p->broken = true;
            return;
        }
        p->change = more;
        p->cap_change = cap;
    }
    if (block)
        block->refs++;
    p->change[p->n_change++] = (struct wp_change){kind, tier, block};
}

uint64_t wp_publish_next(const struct wp_publish *p)
{
    return p->next;
}

size_t wp_publish_pending(const struct wp_publish *p)
{
    return p->n_change;
}

bool wp_publish_only_cleared(const struct wp_publish *p)
{
    for (size_t i = 0; i < p->n_change; i++)
        if (p->change[i].kind != WP_CLEARED)
            return false;
    return true;
}

const char *wp_publish_endpoint(const struct wp_publish *p)
{
    return p->endpoint;
}

const char *wp_publish_replay(const struct wp_publish *p)
{
    return p->replay[0] ? p->replay : NULL;
}

/* ---- a life ---- */

int wp_publish_create(struct wp_publish **out, struct wp_loop *l, struct wp_blocks *blocks,
                      const struct wp_publish_conf *conf, struct wp_err *err)
{
    struct wp_publish *p = wp_calloc(1, sizeof *p);
    uint32_t rank = conf->payload.rank;
    int rc = 0;

    if (!p)
        return wp_fail(err, WP_ENOMEM, "events: out of memory");
    p->loop = l;
    p->blocks = blocks;
    p->conf = *conf;
    p->rng.state = conf->seed + rank;
    wp_timer_init(&p->release, on_release, p);
    wp_timer_init(&p->reopen, on_reopen, p);
    p->topic = wp_strdup(conf->topic);
    p->kept = wp_calloc(conf->buffer, sizeof *p->kept);
    p->context = zmq_ctx_new();
    if (!p->topic || !p->kept || !p->context)
        rc = wp_fail(err, WP_ENOMEM, "events: out of memory");
    if (rc == 0)
        rc = wp_publish_shift(conf->endpoint, rank, p->endpoint, sizeof p->endpoint, err);
    if (rc == 0 && conf->replay)
        rc = wp_publish_shift(conf->replay, rank, p->replay, sizeof p->replay, err);
    if (rc == 0)
        rc = open_both(p, err);
    if (rc < 0) {
        wp_publish_destroy(p);
        return rc;
    }
    *out = p;
    return 0;
}

void wp_publish_destroy(struct wp_publish *p)
{
    if (!p)
        return;
    forget(p);
    wp_timer_stop(p->loop, &p->release);
    wp_timer_stop(p->loop, &p->reopen);
    if (p->context)
        close_sockets(p, true);
    free_kept(p);
    wp_free(p->change);
    wp_free(p->topic);
    wp_free(p);
}
