/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/h2.h - what the files of the server's HTTP/2 share: net/h2.c is the connection, net/h2_ex.c an exchange, net/h2_reply.c its answer.  Nobody else includes it.
 *
 * Happy path: nghttp2 turns bytes into frames and calls back; a whole head makes an exchange, whose body is handed out as it comes.
 * Answers lie in each stream's `out` until nghttp2 asks for them, which it does when the stream, the connection and
 * the socket have room.  What is on_over or on_drain for a handler is told in a turn of its own, never inside nghttp2.
 *
 * Flow control.  A stream's window is given back as its handler takes the body, so a paused one stops its client after
 * STREAM_WINDOW bytes, which are kept.  The connection's window is given back as bytes arrive: one
 * stream that is paused does not stop the others.
 *
 * Limits: STREAMS at once, one more is REFUSED_STREAM; heads as for HTTP/1; nghttp2's own on CONTINUATION frames, resets, PING and SETTINGS floods (a client that
 * goes beyond gets GOAWAY); per stream the deadlines of wp_server_conf.
 * Source: RFC 9113.
 */
#ifndef WP_NET_H2_H
#define WP_NET_H2_H

#include "net/conn.h"

#include <nghttp2/nghttp2.h>

struct wp_h2 { /* a connection */
    struct wp_conn *c;
    nghttp2_session *session;
    struct wp_list streams; /* wp_h2_ex that nghttp2 has not closed */
    size_t n_streams;
    size_t n_untold; /* handlers that wait for on_over: the connection's memory waits for them */
    bool inside;  /* nghttp2 is calling back: sending waits */
    bool leaving; /* GOAWAY is said */
    bool greeted; /* our SETTINGS are */
    bool flooded; /* more than we take of something that nghttp2 does not count */
    unsigned n_refused; /* streams beyond the limit */
    unsigned n_empty;   /* frames since the last that was not */
};

/* A stream with its exchange; lives until its handler has been told on_over and nghttp2 has closed it. */
struct wp_h2_ex {
    struct wp_exchange pub; /* first */
    struct wp_h2 *h;
    struct wp_list link;
    struct wp_timer done;  /* tells on_over */
    struct wp_timer ready; /* tells what nghttp2 must not wait for: the body that was kept, on_drain */
    struct wp_timer late;  /* the request's body, or the client that takes nothing */
    int32_t id;
    int rc;
    /* the request */
    struct wp_buf in; /* body that came while it was paused */
    uint64_t last_us, body_began_us, paused_us;
    bool body_done, told_end; /* all of it has come; and was handed out */
    bool paused, continued;
    int bad; /* status to refuse the head with; 0: it is good */
    /* the answer */
    struct wp_buf out;
    uint64_t taken_us; /* when the client last took some of it */
    uint64_t waits_us, waits_taken; /* since when there is always some, and what was taken of it */
    int64_t reply_left;
    bool bodiless, deferred, drain_due;
    bool begun, ended, cut, over, told;
    bool started; /* a handler knows it */
    bool closed;  /* the stream is */
    struct wp_head head;
    struct wp_arena bytes; /* where its slices lie */
    size_t n_head; /* bytes of fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts them */
    struct wp_str authority;
};

static inline struct wp_h2_ex *wp_h2_ex_of(struct wp_exchange *p)
{
    return (struct wp_h2_ex *)p;
}

/* net/h2_ex.c */
struct wp_h2_ex *wp_h2_ex_new(struct wp_h2 *h, int32_t id); /* a head begins.  NULL: out of memory */
void wp_h2_ex_gone(struct wp_h2_ex *x, int rc);             /* its stream is closed; it goes once its handler has been told rc */
void wp_h2_over(struct wp_h2_ex *x, int rc);                /* the first code counts */
/* Ends the exchange with rc, and answers with status when no answer has begun. */
void wp_h2_refuse(struct wp_h2_ex *x, int rc, int status, const char *why);
void wp_h2_reset(struct wp_h2_ex *x, uint32_t code);
void wp_h2_clock(struct wp_h2_ex *x); /* sets or stops the stream's deadline */
void wp_h2_deliver(struct wp_h2_ex *x, const char *p, size_t n); /* body, to the handler */
void wp_h2_give_back(struct wp_h2_ex *x, size_t n);              /* the window of so much of it */
void wp_h2_hand_out(struct wp_h2_ex *x);                         /* the body that was kept, and its end */

/* net/h2_reply.c */
void wp_h2_head(struct wp_h2_ex *x, int status, const char *type, const struct wp_field *field, size_t n, int64_t length);
void wp_h2_data(struct wp_h2_ex *x, const char *p, size_t n);
void wp_h2_end(struct wp_h2_ex *x);
ssize_t wp_h2_read_out(nghttp2_session *s, int32_t id, uint8_t *to, size_t n, uint32_t *flags, nghttp2_data_source *source, void *arg);

#endif
