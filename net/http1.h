/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/http1.h - HTTP/1.1 as bytes: heads in, heads out, chunked bodies in.
 * Heads go through llhttp in strict mode and through checks of ours where even that is lax: a bare CR or LF, two
 * blanks in a request line, obs-fold, empty or odd names, control bytes in values, none or several Host, both
 * Content-Length and Transfer-Encoding, unequal or overflowing lengths, chunked in HTTP/1.0, codings other than a final
 * chunked.  Upgrade is never taken: such a message reads as plain HTTP/1.1.
 * The chunk reader is ours alone, because a chunk line must be refused before its data is believed.
 * Threads: plain functions over plain data.  No allocation.
 * Source: RFC 9112.
 */
#ifndef WP_NET_HTTP1_H
#define WP_NET_HTTP1_H

#include "net/http.h"

/*
 * Looks for a whole head at the start of p[n].
 * Returns its length with the empty line, 0 when it has not ended yet, or a negative code: WP_EPROTO (answer 400,
 * *why has the reason as static text), WP_ETOOBIG past max bytes or past WP_FIELDS_MAX fields (431), WP_ENOTSUP (a version other
 * than 1.0 and 1.1: 505; a transfer coding we do not know: 501; an Expect of anything but 100-continue: 417; *status says which).  `from` is how far an earlier call has looked, to keep the cost linear; start with 0, it is updated.
 * Empty lines before a request line are skipped (RFC 9112 2.2), and counted in the length.
 */
long wp_http1_request(const char *p, size_t n, size_t max, size_t *from, struct wp_head *h, int *status,
                      const char **why);
/* The same for a response; `to_head` and the status decide later whether a body follows (wp_http1_body). */
long wp_http1_response(const char *p, size_t n, size_t max, size_t *from, struct wp_head *h, const char **why);

/* How the body that follows a head is framed. */
enum wp_framing { WP_BODY_NONE, WP_BODY_LENGTH, WP_BODY_CHUNKED, WP_BODY_UNTIL_CLOSE };
enum wp_framing wp_http1_request_body(const struct wp_head *h);
enum wp_framing wp_http1_response_body(const struct wp_head *h, bool to_head_request);

/* Reads a chunked body piece by piece.  {0} is a fresh one. */
struct wp_chunked {
    uint64_t left; /* data bytes still to come of this chunk */
    uint32_t line; /* bytes of the present chunk line or of all trailers: bounded */
    uint8_t state;
    bool done; /* the last CRLF was read: the message is whole */
    bool last; /* the 0 chunk was read: all data is known */
};

/*
 * Takes from p[n] one step: *data, *data_n is body data found (or empty).  Returns the bytes used (at least 1 unless
 * n is 0 or done), or WP_EPROTO with *why.  Call again while bytes are left and not done.  Trailers are checked, bounded, and dropped: they never merge into
 * the head's fields.
 */
long wp_chunked_read(struct wp_chunked *c, const char *p, size_t n, const char **data, size_t *data_n,
                     const char **why);

/* Appends a head.  Names and values must be clean (they are checked again: WP_EINVAL for CR, LF, NUL, empty names). */
int wp_http1_put_request(struct wp_buf *b, struct wp_str method, struct wp_str target);
int wp_http1_put_status(struct wp_buf *b, int status, struct wp_str reason);
int wp_http1_put_field(struct wp_buf *b, struct wp_str name, struct wp_str value);
int wp_http1_put_end(struct wp_buf *b); /* the empty line */

#endif
