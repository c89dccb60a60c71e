/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out whether a client is still there while an answer is under way and nobody reads its
 * socket. Somebody reads whenever that is possible, because then the kernel tells of a reset by
 * itself.  It is impossible after a FIN, and unwanted while bytes wait in c->in or a body is
 * paused.  Then TCP_INFO is asked at 10 ms, doubling to 1 s. A FIN does not say whether the client
 * only stopped sending or has gone.  A probe, once, makes the difference visible: a closed socket
 * answers it with a reset, and the next tick finds the state CLOSE.
 */
#include "net/conn.h"

enum { TICK_MIN_US = 10000, TICK_MAX_US = 1000000 };

/* True between two events: nothing was written yet, or an empty line last.  A last CR may be half
 * of a line end. */
static bool between_events(const struct wp_ex *x)
{
    const uint8_t *t = x->tail;

    if (x->tail_n == 0)
        return true;
    if (x->tail_n < 2 || t[2] != '\n')
        return false;
    return t[1] == '\n' || (x->tail_n == 3 && t[1] == '\r' && (t[0] == '\n' || t[0] == '\r'));
}

static void probe(struct wp_ex *x)
{
    const struct wp_str interim = WP_STR("HTTP/1.1 100 Continue\r\n\r\n");
    const struct wp_str comment = WP_STR("3\r\n:\n\n\r\n");

    if (x->probed || x->head.minor == 0 || x->c->stream.queued)
        return; /* what is queued is a probe already */
    if (!x->begun) {
        x->probed = true;
        wp_ex_write(x, &interim, 1, -1, NULL);
    } else if (x->sse && x->reply_chunked && !x->ended && between_events(x)) {
        x->probed = true;
        wp_ex_write(x, &comment, 1, -1, NULL);
    }
}

static void on_tick(struct wp_timer *t)
{
    struct wp_conn *c = t->arg;

    if (c->state != WP_CONN_EXCHANGE || c->x->over || c->stream.reading)
        return;
    switch (wp_stream_peer(&c->stream)) {
    case WP_PEER_GONE:
        wp_conn_fail(c, WP_ECANCELED);
        return;
    case WP_PEER_HALF_CLOSED:
        probe(c->x);
        break;
    case WP_PEER_OPEN:
        break;
    }
    if (c->state != WP_CONN_EXCHANGE || c->x->over)
        return;
    c->tick_us = c->tick_us * 2 < TICK_MAX_US ? c->tick_us * 2 : TICK_MAX_US;
    wp_timer_in(c->stream.loop, t, c->tick_us);
}

void wp_peer_init(struct wp_conn *c)
{
    wp_timer_init(&c->tick, on_tick, c);
}

void wp_peer_watch(struct wp_conn *c)
{
    if (c->tick.armed)
        return;
    c->tick_us = TICK_MIN_US;
    wp_timer_in(c->stream.loop, &c->tick, c->tick_us);
}

void wp_peer_fin(struct wp_conn *c)
{
    probe(c->x);
    if (c->state == WP_CONN_EXCHANGE && !c->x->over) {
        wp_timer_stop(c->stream.loop, &c->tick);
        wp_peer_watch(c);
    }
}
