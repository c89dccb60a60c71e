/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/tls_stream.h - between net/stream.c, which moves bytes, and net/tls_stream.c, which wraps them.  Nobody else includes it.
 */
#ifndef WP_NET_TLS_STREAM_H
#define WP_NET_TLS_STREAM_H

#include "base/mem.h"
#include "net/stream.h"
#include "net/tls.h"

#include <openssl/ssl.h>
#include <sys/stat.h>

struct wp_tls {
    _Atomic unsigned refs;
    bool server;
    struct wp_list link; /* a client's, among those that may be shared */
    char *ca;
    struct stat stamp; /* of that file when it was read */
    size_t n;
    SSL_CTX *context[];
};

/*
 *   SHAKING --> OPEN --> CLOSED       any state may fall to FAILED
 * CLOSED: the peer has said that no more will come; writing may go on.
 */
enum wp_tls_state { WP_TLS_SHAKING, WP_TLS_OPEN, WP_TLS_CLOSED, WP_TLS_FAILED };

struct wp_tls_session {
    struct wp_stream *stream;
    struct wp_tls *tls;
    SSL *ssl;
    struct wp_str come;    /* from the peer and not unwrapped: where it lies, during a call */
    struct wp_buf kept;    /* and between calls */
    struct wp_buf out;     /* wrapped; empty between calls */
    struct wp_list plain;  /* what was handed over and is not wrapped yet */
    struct wp_timer again; /* hands out what lay here while reading was stopped */
    enum wp_tls_state state;
    uint64_t updates_us;   /* since when the peer's key updates are counted */
    uint32_t updates;
    bool fin;     /* the peer's TCP has ended behind what is here */
    bool fin_due; /* ours is to end once all is wrapped */
    const char *why;
};

/* net/tls_stream.c, called by net/stream.c */
void wp_tls_began(struct wp_tls_session *t);                           /* TCP is connected */
void wp_tls_bytes(struct wp_tls_session *t, const char *p, size_t n);  /* have come */
void wp_tls_fin(struct wp_tls_session *t);                             /* has come */
void wp_tls_resume(struct wp_tls_session *t);                          /* reading is wanted again */
void wp_tls_room(struct wp_tls_session *t);                            /* the kernel has taken all there was */
int wp_tls_write(struct wp_tls_session *t, const struct wp_str piece[], size_t n, int held, struct wp_blob *blob);
int wp_tls_shutdown(struct wp_tls_session *t);
void wp_tls_close(struct wp_tls_session *t, bool reset);               /* before the socket is */
void wp_tls_free(struct wp_tls_session *t);

/* net/stream.c, called by net/tls_stream.c: the same on the socket. */
int wp_raw_read_start(struct wp_stream *s);
void wp_raw_read_stop(struct wp_stream *s);
int wp_raw_write(struct wp_stream *s, const struct wp_str piece[], size_t n, int held, struct wp_blob *blob);
int wp_raw_shutdown(struct wp_stream *s);

#endif
