/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/stream.h - one byte stream on a loop: TCP, and TLS over it where wp_stream_tls() put it; who uses it need not know.
 * Reads arrive in the loop's shared buffer and must be used or copied inside on_read.  Writes go out at once as far
 * as the kernel takes them; the rest waits in the stream, referenced when it is a blob, copied when not, and
 * `queued` tells how much that is: who produces more stops above its own mark until on_drain.
 * Close protocol: wp_stream_close() may be called at any time, once or often, also inside a callback; pending
 * writes are dropped; on_closed is the last callback, always later than the call, and then the memory is the owner's.
 * After wp_stream_close() no other callback comes.
 */
#ifndef WP_NET_STREAM_H
#define WP_NET_STREAM_H

#include "base/mem.h"
#include "base/str.h"
#include "net/loop.h"

struct wp_stream;
struct wp_tls;         /* net/tls.h */
struct wp_tls_session; /* net/tls_stream.h */

struct wp_stream_ops {
    void (*on_read)(struct wp_stream *s, const char *p, size_t n);
    void (*on_eof)(struct wp_stream *s);            /* the peer sent FIN; writing may go on */
    void (*on_error)(struct wp_stream *s, int rc);  /* reset, write error; the owner closes */
    void (*on_drain)(struct wp_stream *s);          /* queued fell to 0 after it was above */
    void (*on_connect)(struct wp_stream *s, int rc); /* client side; may be NULL */
    void (*on_closed)(struct wp_stream *s);
};

struct wp_stream {
    struct wp_loop *loop;
    const struct wp_stream_ops *ops;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_shutdown_t fin;
    struct wp_tls_session *tls; /* NULL: plain */
    size_t queued;   /* bytes handed over whose write is not done */
    uint64_t handed; /* bytes of all writes so far, as they go over the wire */
    unsigned writes; /* uv_write requests under way */
    bool reading;    /* its owner reads */
    bool listening;  /* and the socket is read */
    bool closing, eof, connected, fin_sent;
};

/* A TCP stream that is neither connected nor accepted.  Errors: libuv's.  After success only close frees it. */
int wp_stream_init(struct wp_stream *s, struct wp_loop *l, const struct wp_stream_ops *ops);
int wp_stream_connect(struct wp_stream *s, const struct sockaddr *addr); /* answers on_connect */
int wp_stream_accept(struct wp_stream *s, uv_stream_t *listener);        /* TCP_NODELAY set on both sides */
int wp_stream_open(struct wp_stream *s, int fd); /* a connected socket; takes fd, also on failure */

/*
 * From here on the stream speaks TLS with these settings (it keeps a reference): a client's before wp_stream_connect, and on_connect then comes
 * after the handshake, with WP_EPROTO when it failed; a server's right after accept or open, and a failed one is told by on_error.  name: whom
 * the other side must prove to be, a host name or an address; a server ignores it.  Errors: WP_ENOMEM.
 */
int wp_stream_tls(struct wp_stream *s, struct wp_tls *tls, struct wp_str name);
/* Why TLS failed, in words of its library ("self-signed certificate"); NULL when it has not.  Static text. */
const char *wp_stream_tls_why(const struct wp_stream *s);

bool wp_stream_shaking(const struct wp_stream *s); /* TLS is being agreed on */

/* Starts or stops reading (back-pressure).  A stopped stream notices no FIN: see wp_stream_peer(). */
int wp_stream_read_start(struct wp_stream *s);
void wp_stream_read_stop(struct wp_stream *s);

/*
 * Writes piece[0..n), n <= 8.  What the kernel does not take is copied, but for the piece with index `held` (or -1), whose
 * bytes lie inside blob: the stream takes a reference instead.  Errors: WP_ENOMEM, libuv's: the stream is broken,
 * the owner closes it (on_error is not called for a code that was returned here).
 */
int wp_stream_write(struct wp_stream *s, const struct wp_str piece[], size_t n, int held, struct wp_blob *blob);

/* Bytes that the kernel has taken since the start: it stands still while the peer reads nothing. */
uint64_t wp_stream_taken(const struct wp_stream *s);

/* Whether the other side has all that was written (its kernel has acknowledged it; true when nobody can tell). */
bool wp_stream_arrived(const struct wp_stream *s);

int wp_stream_shutdown(struct wp_stream *s); /* FIN after what is queued */
void wp_stream_close(struct wp_stream *s);
void wp_stream_reset(struct wp_stream *s); /* close with RST: the peer must not take it for an end */

/* What TCP_INFO says of the other side: also when reading is stopped. */
enum wp_peer { WP_PEER_OPEN, WP_PEER_HALF_CLOSED, WP_PEER_GONE };
enum wp_peer wp_stream_peer(const struct wp_stream *s);

#endif
