/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunk reader of net/http1.h: a machine of one byte a step, but for data, which passes in
 * pieces.
 *
 *   SIZE --> EXT --> SIZE_LF --> DATA --> DATA_CR --> DATA_LF --> SIZE ...
 *     +--------------^   |0
 *                        v
 *                  LINE --> NAME --> VALUE --> LINE_LF --> LINE ...
 *                    +--> END_LF --> done
 */
#include "net/http1.h"

#include "base/err.h"

enum { LINE_MAX_BYTES = 1024, TRAILERS_MAX_BYTES = 8192 };

enum state { SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, NAME, VALUE, LINE_LF, END_LF };

static bool name_byte(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool text_byte(unsigned char c)
{
    return (c >= ' ' && c != 127) || c == '\t';
}

static int hex(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *size_byte(struct wp_chunked *c, unsigned char b)
{
    int digit = hex(b);

    if (digit >= 0) {
        if (c->left >> 59) /* one more digit would reach the sign bit */
            return "a chunk size that overflows";
        c->left = c->left << 4 | (unsigned)digit;
        return NULL;
    }
    if (c->line == 1)
        return "a chunk without size";
    if (b != '\r' && b != ';')
        return "a malformed chunk size";
    c->state = b == '\r' ? SIZE_LF : EXT;
    return NULL;
}

static const char *want(struct wp_chunked *c, bool is_so, enum state next, const char *why)
{
    if (!is_so)
        return why;
    c->state = (uint8_t)next;
    return NULL;
}

/* One byte that is not data.  NULL, or why it is refused. */
static const char *step(struct wp_chunked *c, unsigned char b)
{
    c->line++;
    if (c->line > (c->last ? TRAILERS_MAX_BYTES : LINE_MAX_BYTES))
        return c->last ? "trailers that are too long" : "a chunk line that is too long";
    switch ((enum state)c->state) {
    case SIZE:
        return size_byte(c, b);
    case EXT:
        if (b == '\r')
            c->state = SIZE_LF;
        return b == '\r' || text_byte(b) ? NULL : "a control byte in a chunk extension";
    case SIZE_LF:
        c->last = c->left == 0;
        c->line = 0;
        return want(c, b == '\n', c->last ? LINE : DATA, "a bare CR in a chunk line");
    case DATA_CR:
        return want(c, b == '\r', DATA_LF, "no CRLF after a chunk's data");
    case DATA_LF:
        c->line = 0;
        return want(c, b == '\n', SIZE, "no CRLF after a chunk's data");
    case LINE:
        if (b == '\r')
            c->state = END_LF;
        else
            return want(c, name_byte(b), NAME, "a malformed trailer");
        return NULL;
    case NAME:
        if (b == ':')
            c->state = VALUE;
        return b == ':' || name_byte(b) ? NULL : "a malformed trailer name";
    case VALUE:
        if (b == '\r')
            c->state = LINE_LF;
        return b == '\r' || text_byte(b) ? NULL : "a control byte in a trailer";
    case LINE_LF:
        return want(c, b == '\n', LINE, "a bare CR in a trailer");
    case END_LF:
        c->done = b == '\n';
        return c->done ? NULL : "a bare CR after the last chunk";
    case DATA:
        break;
    }
    return "a chunk reader that has lost its way";
}

long wp_chunked_read(struct wp_chunked *c, const char *p, size_t n, const char **data,
                     size_t *data_n, const char **why)
{
    size_t at = 0;

    *data = NULL;
    *data_n = 0;
    while (at < n && !c->done) {
        if (c->state == DATA) {
            *data = p + at;
            *data_n = c->left < n - at ? (size_t)c->left : n - at;
            c->left -= *data_n;
            if (c->left == 0) {
                c->state = DATA_CR;
                c->line = 0;
            }
            return (long)(at + *data_n);
        }
        *why = step(c, (unsigned char)p[at++]);
        if (*why)
            return WP_EPROTO;
    }
    return (long)at;
}
