/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/err.h - how things fail.
 * What can fail returns an int: 0, or a negative code: an errno negated (libuv's codes are the same
 * numbers on Linux) or one of ours below.  The sentence for a human goes into a struct wp_err, which the
 * caller owns and which is wrapped on its way up, so that it reads from outside in:
 * "redis share cache-a: connect 10.0.0.5:6379: connection refused".
 * Threads: an error belongs to one thread.  Nothing here allocates or fails.
 */
#ifndef WP_BASE_ERR_H
#define WP_BASE_ERR_H

#include <errno.h>

enum {
    WP_ENOMEM = -ENOMEM,
    WP_EINVAL = -EINVAL,
    WP_EPROTO = -EPROTO, /* the peer broke its protocol */
    WP_ECANCELED = -ECANCELED,
    WP_ETIMEDOUT = -ETIMEDOUT,
    WP_ECONNRESET = -ECONNRESET,
    WP_ECONNREFUSED = -ECONNREFUSED,
    WP_ENOENT = -ENOENT,
    WP_EEXIST = -EEXIST,
    WP_EAGAIN = -EAGAIN,
    WP_ENOTSUP = -ENOTSUP,
    WP_ESYNTAX = -20001,  /* a text is not of its grammar */
    WP_ETOOBIG = -20002,  /* past a limit that we set */
    WP_EEOF = -20003,     /* ended before it should */
    WP_ENONAME = -20004,  /* a host name has no address */
    WP_EUSAGE = -20005,   /* the command line is wrong */
};

struct wp_err {
    int code;
    char text[512]; /* one sentence, no full stop, no newline; cut when longer */
};

#define WP_ERR_INIT {0, ""}

/* Sets err to the sentence and returns code (which must be negative).  err may not be NULL. */
int wp_fail(struct wp_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<sentence>: " before what err says and returns err's code. */
int wp_wrap(struct wp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A short name for any code above, in lower case ("connection refused"), or for another errno, as the C library has it.
 * Static storage. */
const char *wp_strerror(int code);

#endif
