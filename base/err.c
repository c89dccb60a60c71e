/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A sentence is one line, whatever a peer's text in it had. */
static void settle(struct wp_err *err, const char *text)
{
    size_t i = 0;

    for (; text[i]; i++)
        err->text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i];
    err->text[i] = 0;
}

/* What is printed may be err's own text, so it is printed elsewhere first. */
int wp_fail(struct wp_err *err, int code, const char *fmt, ...)
{
    char text[sizeof err->text];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    settle(err, text);
    err->code = code;
    return code;
}

int wp_wrap(struct wp_err *err, const char *fmt, ...)
{
    char text[sizeof err->text];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %s", err->text);
    settle(err, text);
    return err->code;
}

const char *wp_strerror(int code)
{
    static const struct {
        int code;
        const char *text;
    } ours[] = {
        {0, "success"},
        {WP_ENOMEM, "out of memory"},
        {WP_EINVAL, "invalid argument"},
        {WP_EPROTO, "protocol error"},
        {WP_ECANCELED, "cancelled"},
        {WP_ETIMEDOUT, "timed out"},
        {WP_ECONNRESET, "connection reset"},
        {WP_ECONNREFUSED, "connection refused"},
        {WP_ENOENT, "not found"},
        {WP_EEXIST, "exists already"},
        {WP_EAGAIN, "try again"},
        {WP_ENOTSUP, "not supported"},
        {WP_ESYNTAX, "syntax error"},
        {WP_ETOOBIG, "too big"},
        {WP_EEOF, "ended early"},
        {WP_ENONAME, "name has no address"},
        {WP_EUSAGE, "usage"},
        {-EPIPE, "broken pipe"},
        {-EADDRINUSE, "address in use"},
        {-EACCES, "permission denied"},
        {-EHOSTUNREACH, "host unreachable"},
        {-ENETUNREACH, "network unreachable"},
        {-EMFILE, "too many open files"},
    };

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (ours[i].code == code)
            return ours[i].text;
    return code > -4096 && code < 0 && strerrordesc_np(-code) ? strerrordesc_np(-code)
                                                              : "unknown error";
}
