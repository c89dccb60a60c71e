/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/server.h - the one HTTP server: router, admin port and simulated engine all stand on it.
 *
 * Happy path: a connection is accepted; a head arrives (on_request); its body arrives in pieces (on_body, on_body_end);
 * the handler answers with wp_reply_head(), wp_reply_body()..., wp_reply_end(), from any later callback of the
 * same loop; on_over(x, 0) is the last word on that exchange, and the connection reads the next request.
 *
 * What the server does by itself: keep-alive; pipelined requests one after another, in order; Expect: 100-continue (the 100 goes
 * out when the handler first wants the body); HEAD without bodies; HTTP/1.0 answered close-delimited; a Date field; limits and deadlines of
 * wp_server_conf; 4xx for what is not HTTP, through conf->refuse; early answers (an answer before the request's
 * body has ended: it is sent, the rest of the body is drained within bounds or the connection closes).
 *
 * A client that goes away: RST cancels at once.  A FIN alone may be a half-close, so it is probed once: before the
 * answer's head by an interim 100 Continue (HTTP/1.1 only), on an event stream between two events by a comment
 * line; then TCP_INFO is read at 10 ms, doubling to 1 s: gone is on_over(x, WP_ECANCELED), CLOSE_WAIT is a half-close and is served.
 * HTTP/1.0: a FIN is a half-close.  Reading that is stopped for back-pressure or for a pipelined request never
 * makes the server blind: the same ticks run then.
 *
 * Threads: a server belongs to one loop.  Several loops may listen on one port (reuse_port).
 */
#ifndef WP_NET_SERVER_H
#define WP_NET_SERVER_H

#include "base/mem.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/tls.h"

struct wp_server;
struct wp_exchange;

struct wp_carrier;

/* One request and its answer.  Handler's view; the rest is the server's. */
struct wp_exchange {
    const struct wp_carrier *carrier; /* the server's: the version of HTTP that it came by */
    const struct wp_head *head; /* good until on_over */
    struct wp_loop *loop;
    const struct wp_exchange_ops *ops; /* set by on_request, which must not leave it NULL */
    void *user;                        /* the handler's */
    const struct sockaddr *peer;
    uint64_t began_us;  /* when the head was whole */
    uint64_t body_max;  /* bytes; more is refused with 413.  Starts as conf->body_bytes; on_request may change it */
    uint64_t body_seen; /* bytes of body so far */
};

struct wp_exchange_ops {
    /* All may be NULL but on_over. */
    void (*on_body)(struct wp_exchange *x, const char *p, size_t n);
    void (*on_body_end)(struct wp_exchange *x);
    void (*on_drain)(struct wp_exchange *x); /* wp_reply_queued() fell to 0 after it was above */
    /*
     * Exactly once, last; x is gone afterwards.  0: the answer is out.  WP_ECANCELED: the client went away.
     * WP_ETIMEDOUT: it sent or read too slowly.  WP_EPROTO / WP_ETOOBIG: its body broke the rules (it has been answered
     * 400 or 413 if no answer had begun).  WP_ENOMEM: there was no memory to go on.
     */
    void (*on_over)(struct wp_exchange *x, int rc);
};

struct wp_server_conf {
    struct wp_str address; /* "127.0.0.1:30000", "[::]:0", ":8000" (all addresses) */
    struct wp_tls *tls;    /* NULL: none; the server takes a reference */
    bool reuse_port;       /* SO_REUSEPORT: joins a server that wp_server_share() was called for */
    int fd;                /* a listening socket of that address, the server's once it is created; 0: one is made */
    bool held;             /* nobody is accepted until wp_server_open() */
    /* At once, for this server; beyond, accepting pauses, and who has been idle for longest (half a second at least) makes room.  0: no limit */
    size_t connections;
    /* 0 is the default: */
    uint32_t head_bytes;   /* 65536 */
    uint64_t body_bytes;   /* 64 MiB */
    uint64_t head_us;      /* 5 s, from a head's first byte to its end: else 408 */
    uint64_t body_us;      /* 60 s, longest silence inside a body; and a body must average 1 KiB/s after that long: else 408 */
    uint64_t keepalive_us; /* 60 s, idle between requests, and before the first */
    uint64_t send_us;      /* 60 s, longest time in which a client takes nothing of what is queued (and a quarter more); of a stream of HTTP/2 it must take 1 KiB/s on average */
    void (*on_request)(struct wp_exchange *x, void *arg);
    /*
     * Writes the body of an answer that the server makes itself (400, 408, 413, 431, 501, 505) into out and returns its
     * content type; NULL: an OpenAI-shaped JSON error.
     */
    const char *(*refuse)(int status, const char *why, struct wp_buf *out, void *arg);
    void (*on_refused)(int status, void *arg); /* for counting; may be NULL */
    void *arg;
};

/* Binds and listens; conf is copied, address too.  Errors: libuv's, with the address in the sentence. */
int wp_server_create(struct wp_server **out, struct wp_loop *l, const struct wp_server_conf *conf, struct wp_err *err);
void wp_server_open(struct wp_server *s);     /* accepts from now on; a no-op when it does */
int wp_server_fd(const struct wp_server *s);  /* the listening socket: the server's */
uint16_t wp_server_port(const struct wp_server *s); /* the bound one, also for port 0 */
size_t wp_server_connections(const struct wp_server *s);
size_t wp_server_exchanges(const struct wp_server *s); /* under way */

/*
 * Lets servers with reuse_port join this one, which was created without and so found nobody there: the port is taken first by one, and
 * another program that would join unasked is refused (EADDRINUSE) as long as that one has not said this.  Those who join must run as the same user;
 * what creates and joins at once is still told apart, because each of two programs takes the port first.
 */
int wp_server_share(struct wp_server *s, struct wp_err *err);
/*
 * Other limits (connections, head_bytes ... send_us of conf) and other TLS; the rest of it is not looked at.  For what begins from now on: a
 * head, a body, a pause that has its deadline already keeps it, and a connection its TLS.
 */
void wp_server_update(struct wp_server *s, const struct wp_server_conf *conf);

/* Closes idle connections, and the others after their exchange.  New ones are still accepted, for one exchange each. */
void wp_server_quiet(struct wp_server *s);
/* The same, and stops accepting. */
void wp_server_drain(struct wp_server *s);
/*
 * Stops accepting, and drops nobody: another process accepts on the same socket.  Each connection has one more answer, which says that it closes
 * then; who asks for none closes by himself or is idle for too long.
 */
void wp_server_pass(struct wp_server *s);
/*
 * Ends everything: exchanges get on_over(x, WP_ECANCELED).  closed(arg) comes last, later than this call; then the
 * server is freed.  closed may be NULL.
 */
void wp_server_destroy(struct wp_server *s, void (*closed)(void *arg), void *arg);

/* Body flow.  A fresh exchange is paused when it has Expect: 100-continue, else it flows. */
void wp_exchange_pause(struct wp_exchange *x);
void wp_exchange_resume(struct wp_exchange *x);

/* An interim answer, such as 103.  Errors are told by on_over later. */
void wp_reply_interim(struct wp_exchange *x, int status, const struct wp_field *field, size_t n);

/*
 * The answer's head.  length -1: unknown, goes chunked (or close-delimited to HTTP/1.0).  Fields: as given, less
 * Content-Length, Transfer-Encoding and Connection, which the server sets itself ("close" among them is obeyed); a Date
 * is added when there is none; one that is not clean is left out.  Copied.  Once an exchange; goes out with the first
 * of the body, or alone at the turn's end.
 * Nothing here fails to the caller: what breaks is told by on_over, later than the call.
 */
void wp_reply_head(struct wp_exchange *x, int status, struct wp_str reason, const struct wp_field *field, size_t n,
                   int64_t length);
void wp_reply_body(struct wp_exchange *x, const char *p, size_t n); /* copied where the kernel does not take it */
void wp_reply_blob(struct wp_exchange *x, struct wp_blob *b);       /* referenced, not copied */
void wp_reply_end(struct wp_exchange *x); /* of the request's body no more is handed out */
/*
 * The answer cannot be completed, and the client must see that: no last chunk or less than the length, then a FIN behind
 * all that was said; a reset where a FIN would look like an end, or nothing was said.  on_over(x, WP_ECANCELED) follows.
 */
void wp_reply_abort(struct wp_exchange *x);
bool wp_reply_begun(const struct wp_exchange *x);   /* wp_reply_head was called */
size_t wp_reply_queued(const struct wp_exchange *x); /* bytes that wait for the client */

/* Head, body, end in one.  type: "application/json". */
void wp_reply(struct wp_exchange *x, int status, const char *type, const struct wp_field *field, size_t n,
              struct wp_str body);

/*
 * An OpenAI-shaped error: {"error":{"message","type","param","code"}}, type drawn from the status (spec: openai-api.md 6).  code: a
 * short word; param: NULL for null.  field[n]: further fields (Retry-After).  The message is a sentence.
 */
void wp_reply_error(struct wp_exchange *x, int status, const char *code, const char *param, const struct wp_field *field,
                    size_t n, const char *fmt, ...) __attribute__((format(printf, 7, 8)));
int wp_error_json(struct wp_buf *out, int status, const char *code, const char *param, const char *message);

#endif
