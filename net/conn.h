/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/conn.h - what the files of the server share: net/server.c listens and ends, net/conn.c reads
 * HTTP/1 requests, net/exchange.c writes its answers, net/peer.c finds out who has gone; net/h2.c, net/h2_ex.c
 * and net/h2_reply.c do all of that for HTTP/2; net/reply.c is what handlers call, whichever it is. Nobody else includes it.
 */
#ifndef WP_NET_CONN_H
#define WP_NET_CONN_H

#include "base/log.h"
#include "net/http1.h"
#include "net/server.h"
#include "net/stream.h"

#include <netinet/in.h>

/*
 *   IDLE --> HEAD --> EXCHANGE --> IDLE ...
 *              |         |
 *              +---------+--> LINGER --> CLOSED      any state may fall to CLOSED
 *
 * IDLE becomes H2 when the connection's first bytes are the preface of HTTP/2; then it has many exchanges at once, in
 * net/h2.c, and c->x is not used.
 *
 * LINGER: everything is said and a FIN is sent; what the client still sends is read and dropped for
 * a while, because closing over unread bytes would send a reset that overtakes the answer.
 */
enum wp_conn_state { WP_CONN_IDLE, WP_CONN_HEAD, WP_CONN_EXCHANGE, WP_CONN_H2, WP_CONN_LINGER, WP_CONN_CLOSED };

/* What a handler can do with an exchange, by each version of HTTP (wp_exchange_... and wp_reply_... of net/server.h). */
struct wp_carrier {
    void (*pause)(struct wp_exchange *x);
    void (*resume)(struct wp_exchange *x);
    void (*interim)(struct wp_exchange *x, int status, const struct wp_field *field, size_t n);
    /* type: a Content-Type besides, or NULL. */
    void (*head)(struct wp_exchange *x, int status, struct wp_str reason, const char *type,
                 const struct wp_field *field, size_t n, int64_t length);
    void (*body)(struct wp_exchange *x, const char *p, size_t n, struct wp_blob *blob);
    void (*end)(struct wp_exchange *x);
    void (*cut)(struct wp_exchange *x);
    bool (*begun)(const struct wp_exchange *x);
    size_t (*queued)(const struct wp_exchange *x);
};
extern const struct wp_carrier wp_carrier_http1, wp_carrier_http2;

struct wp_conn {
    struct wp_stream stream;
    struct wp_server *server;
    struct wp_list link;
    struct wp_h2 *h2;         /* in H2 and after it, else NULL */
    struct wp_ex *x;          /* until its on_over has been called, also in CLOSED */
    struct wp_timer deadline; /* of the state: idle, head, body, linger */
    struct wp_timer send;     /* looks whether the client takes what is queued */
    struct wp_timer tick;     /* asks TCP_INFO while nobody reads */
    struct wp_timer kick;     /* work put off to the next turn */
    struct wp_buf in; /* part of a head, or what came before it was wanted; empty when idle */
    size_t looked;    /* how far a head's end was looked for */
    uint64_t last_us; /* when a body's last byte came */
    uint64_t taken, taken_us; /* what the client had taken, and when that last changed */
    uint64_t tick_us;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } peer;
    enum wp_conn_state state;
    bool asked;  /* a request has begun on it: no preface will come */
    bool known;  /* past its handshake when it was looked at last: it may be idle for longer */
    bool keep;   /* the connection may serve again after this exchange */
    bool closed; /* the stream is; the memory waits for x */
};

struct wp_ex {
    struct wp_exchange pub; /* first */
    struct wp_conn *c;
    struct wp_timer done; /* tells on_over, never inside a call of the handler */
    int rc;
    /* the request's body */
    enum wp_framing framing;
    struct wp_chunked chunked;
    uint64_t left;          /* of a known length */
    uint64_t body_began_us; /* moved on by the time spent paused */
    uint64_t paused_us;
    bool body_done, paused, continued;
    /* the answer */
    struct wp_buf out;  /* a head that waits for its first bytes of body, until the next turn */
    int64_t reply_left; /* of a known length, else -1 */
    uint8_t tail[3];    /* the last bytes of body, newest last */
    uint8_t tail_n;
    bool reply_chunked, bodiless, sse;
    bool begun, ended, over;
    bool probed; /* net/peer.c has sent its probe */
    struct wp_head head;
    char bytes[]; /* the head's slices point here */
};

struct wp_server {
    struct wp_loop *loop;
    struct wp_server_conf conf;
    char *address;
    int fd;
    uint16_t port;
    uv_poll_t poll;
    struct wp_timer retry; /* of accepting */
    struct wp_list conns;
    size_t n_conns, n_exchanges;
    struct wp_log_limit accept_limit, refusal_limit[2]; /* of bodies and heads that are too long, and of all others */
    bool polling, poll_open, deaf, closing;
    bool starved;  /* there was no descriptor for the last one who came */
    bool draining; /* answers say that the connection closes */
    bool passing;  /* and one that has not been told so may ask once more */
    void (*closed)(void *arg);
    void *closed_arg;
    struct wp_head head; /* heads are read into it, and copied when they are whole */
    uint64_t date_s;
    char date[32];
};

/* net/server.c */
struct wp_str wp_server_date(struct wp_server *s);
void wp_server_forget(struct wp_server *s, struct wp_conn *c); /* c is gone */

/* net/conn.c */
/* Takes fd, also on failure. */
int wp_conn_accept(struct wp_server *s, int fd, const struct sockaddr *peer, socklen_t n);
void wp_conn_close(struct wp_conn *c, bool reset); /* an exchange gets WP_ECANCELED */
/* The kernel has bytes of it that nobody has read: a request among them would be answered by a reset when it is closed. */
bool wp_conn_has_unread(const struct wp_conn *c);
void wp_conn_fail(struct wp_conn *c, int rc);      /* closes with a reset; the exchange gets rc */
void wp_conn_linger(struct wp_conn *c);            /* everything is said */
void wp_conn_flow(struct wp_conn *c);     /* reads or not, as the state wants it.  No callbacks */
void wp_conn_kick(struct wp_conn *c);     /* flush, feed and flow in the next turn */
void wp_conn_wrote(struct wp_conn *c);    /* after each write: watches that it is taken */
void wp_ex_over(struct wp_ex *x, int rc); /* the first code counts */

/* net/body.c */
/* Takes one step from p[n]; the bytes used. */
size_t wp_body_eat(struct wp_ex *x, const char *p, size_t n);
void wp_body_end(struct wp_ex *x); /* it is whole: tells the handler */
/* Ends the exchange with rc, and answers with status if no answer has begun. */
void wp_body_bad(struct wp_ex *x, int rc, int status, const char *why);
void wp_body_clock(struct wp_conn *c); /* sets or stops its deadline */
void wp_body_late(struct wp_conn *c);  /* the deadline has come */
/* The handler wants the body: sends the 100 if one is waited for. */
void wp_body_continue(struct wp_ex *x);

/* net/exchange.c */
void wp_ex_flush(struct wp_ex *x); /* a head that waits goes out alone */
/* Writes pieces (at most 5) behind the head that waits.  On failure the connection is closed. */
void wp_ex_write(struct wp_ex *x, const struct wp_str piece[], size_t n, int held,
                 struct wp_blob *blob);
void wp_ex_head(struct wp_ex *x, int status, struct wp_str reason, const char *type,
                const struct wp_field *field, size_t n, int64_t length);

/* net/h2.c */
extern const struct wp_str wp_h2_preface;
void wp_h2_begin(struct wp_conn *c); /* the state is H2 now, or the connection is closed */
void wp_h2_read(struct wp_h2 *h, const char *p, size_t n);
void wp_h2_room(struct wp_h2 *h);          /* the socket takes more, or a turn has ended in which something was said */
void wp_h2_idle(struct wp_h2 *h);          /* the deadline of an idle connection */
void wp_h2_quiet(struct wp_h2 *h);         /* no more streams */
bool wp_h2_is_idle(const struct wp_h2 *h); /* there are none */
void wp_h2_gone(struct wp_h2 *h, int rc);  /* the connection is: all exchanges get rc */
bool wp_h2_free(struct wp_h2 *h);          /* false: somebody has not been told yet, and frees the connection later */
void wp_conn_free(struct wp_conn *c);

/* net/reply.c */
/* The body and the content type of an answer that the server makes itself. */
int wp_refusal(struct wp_server *s, int status, const char *why, struct wp_buf *body, const char **type);
/* Answers what is not HTTP: conf->refuse's body or an error of ours, then linger. */
void wp_conn_refuse(struct wp_conn *c, int status, const char *why);

/* net/peer.c */
void wp_peer_init(struct wp_conn *c);
void wp_peer_watch(struct wp_conn *c); /* nobody reads: starts the ticks */
void wp_peer_fin(struct wp_conn *c);   /* a FIN has come while an exchange was under way */

#endif
