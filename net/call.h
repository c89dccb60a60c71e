/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/call.h - what net/client.c (the client, its requests' heads) and net/call.c (a call's life)
 * share.  Not for others.
 */
#ifndef WP_NET_CALL_H
#define WP_NET_CALL_H

#include "net/client.h"
#include "net/http1.h"
#include "net/pool.h"

enum { CALL_SPARES = 8 };

struct wp_client {
    struct wp_loop *loop;
    struct wp_pool pool;
    uint32_t head_bytes;
    struct wp_list calls;
    struct wp_buf spare[CALL_SPARES]; /* memory for requests' heads */
    size_t n_spare;
    uv_idle_t end; /* never started: its closing is the "later" of wp_client_destroy() */
    bool closing, end_closed;
    void (*closed)(void *arg);
    void *closed_arg;
};

enum call_state { CALL_START, CALL_DIAL, CALL_SEND, CALL_WAIT, CALL_BODY };

struct call {
    struct wp_call pub; /* first */
    struct wp_list link;
    const struct wp_call_ops *ops;
    enum call_state state;
    bool is_head, fresh;
    /* The verdict: set once, told by conclude(). */
    bool over;
    int rc;
    bool keep;   /* the connection may be kept */
    bool paused; /* by the caller */
    bool resume; /* what lies in uplink->in goes on with the next turn */
    bool heard;  /* a byte came, of whatever kind */
    bool late;   /* a deadline was passed at the last look: the bytes may be there, unread */

    struct wp_origin *origin;
    struct wp_uplink *uplink;
    struct wp_buf out; /* the request's head, until it is written */
    struct wp_blob *body;

    struct wp_timer timer;
    uint64_t connect_end_us, total_end_us; /* UINT64_MAX: none */
    uint64_t first_byte_us, idle_us;       /* 0: none */
    uint64_t mark_us, taken; /* the last sign of life, and what the peer had taken then */

    size_t looked; /* at an unfinished head */
    unsigned interims;
    enum wp_framing framing;
    uint64_t left; /* of WP_BODY_LENGTH */
    struct wp_chunked chunked;
};

extern const struct wp_uplink_ops wp_call_uplink_ops;

void wp_call_begin(struct call *c);    /* its life begins on the next turn */
void wp_call_conclude(struct call *c); /* a call with a verdict: on_over, then it is gone */
void wp_client_call_gone(struct wp_client *c, struct call *gone);

#endif
