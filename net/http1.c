/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A head is judged twice: by checks of ours that go over its lines and cut it into slices, then by
 * llhttp, which must find it good as well.  What both accept is HTTP; what either refuses is not
 * believed.  Looking for the end refuses bare LFs on the way, so that a verdict does not depend on
 * how the bytes were cut into packets.
 */
#include "net/http1.h"

#include "base/err.h"

#include <llhttp.h>

enum { LEADING_EMPTY_LINES = 8 };

struct verdict {
    int code, status;
    const char *why;
};

static bool bad(struct verdict *v, const char *why)
{
    *v = (struct verdict){WP_EPROTO, 400, why};
    return false;
}

static bool unknown(struct verdict *v, int status, const char *why)
{
    *v = (struct verdict){WP_ENOTSUP, status, why};
    return false;
}

static bool tchar(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool token(struct wp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!tchar((unsigned char)s.p[i]))
            return false;
    return s.n > 0;
}

/* What a field's value or a reason may hold: HTAB, blanks, visible bytes, and those beyond ASCII.
 */
static bool text(struct wp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if ((c < ' ' && c != '\t') || c == 127)
            return false;
    }
    return true;
}

static bool visible(struct wp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 127)
            return false;
    return s.n > 0;
}

/* Cuts a line, which ends in CRLF (that was seen to already), off *rest. */
static struct wp_str cut_line(struct wp_str *rest)
{
    const char *lf = memchr(rest->p, '\n', rest->n);
    struct wp_str line = {rest->p, (size_t)(lf - rest->p) - 1};

    rest->n -= line.n + 2;
    rest->p = lf + 1;
    return line;
}

/* Where the first line starts; -1: not known yet; -2: it is refused. */
static long skip_empty_lines(const char *p, size_t n, int most, struct verdict *v)
{
    size_t at = 0;

    for (int lines = 0; at < n && (p[at] == '\r' || p[at] == '\n'); lines++, at += 2) {
        if (p[at] == '\n')
            return bad(v, "bare LF"), -2;
        if (at + 1 == n)
            return -1;
        if (p[at + 1] != '\n')
            return bad(v, "bare CR"), -2;
        if (lines == most)
            return bad(v, "empty lines in place of a head"), -2;
    }
    return at < n ? (long)at : -1;
}

/* The end of the head that starts at `start`, 0 when it is not there yet, or the verdict's code. */
static long find_end(const char *p, size_t n, size_t start, size_t max, size_t *from,
                     struct verdict *v)
{
    size_t limit = n < max ? n : max, at = *from > start ? *from : start;

    while (at < limit) {
        const char *lf = memchr(p + at, '\n', limit - at);
        size_t i;

        if (!lf)
            break;
        i = (size_t)(lf - p);
        if (i == start || p[i - 1] != '\r')
            return bad(v, "bare LF"), v->code;
        if (i - start >= 3 && p[i - 2] == '\n')
            return (long)i + 1;
        at = i + 1;
    }
    *from = limit;
    if (n < max)
        return 0;
    *v = (struct verdict){WP_ETOOBIG, 431, "the head is too long"};
    return v->code;
}

static bool read_fields(struct wp_str rest, struct wp_head *h, struct verdict *v)
{
    h->n_fields = 0;
    for (;;) {
        struct wp_str line = cut_line(&rest), name, value;
        const char *colon;

        if (line.n == 0)
            return true;
        if (line.p[0] == ' ' || line.p[0] == '\t')
            return bad(v, "a folded field line");
        colon = memchr(line.p, ':', line.n);
        if (!colon)
            return bad(v, "a field line without colon");
        name = (struct wp_str){line.p, (size_t)(colon - line.p)};
        value = (struct wp_str){colon + 1, line.n - name.n - 1};
        if (!token(name))
            return bad(v, name.n ? "a byte that no field name has" : "a field without name");
        if (!text(value))
            return bad(v, "a control byte in a field value");
        if (h->n_fields == WP_FIELDS_MAX) {
            *v = (struct verdict){WP_ETOOBIG, 431, "too many fields"};
            return false;
        }
        h->field[h->n_fields++] = (struct wp_field){name, wp_str_trim(value)};
    }
}

static size_t count(const struct wp_head *h, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < h->n_fields; i++)
        n += wp_str_iis(h->field[i].name, name);
    return n;
}

/* Transfer-Encoding: nothing but one chunked, in HTTP/1.1, without a length beside it. */
static bool read_codings(struct wp_head *h, struct verdict *v)
{
    size_t chunked = 0, others = 0, fields = 0;
    bool last = false;

    for (size_t i = 0; i < h->n_fields; i++) {
        struct wp_str list = h->field[i].value, part;

        if (!wp_str_iis(h->field[i].name, "transfer-encoding"))
            continue;
        fields++;
        while (wp_str_split(&list, ',', &part)) {
            part = wp_str_trim(part);
            if (part.n == 0)
                return bad(v, "an empty transfer coding");
            last = wp_str_iis(part, "chunked");
            chunked += last;
            others += !last;
        }
    }
    if (fields == 0)
        return true;
    if (h->minor == 0)
        return bad(v, "Transfer-Encoding in HTTP/1.0");
    if (count(h, "content-length"))
        return bad(v, "both Content-Length and Transfer-Encoding");
    if (chunked > 1 || (chunked && !last))
        return bad(v, "chunked is not the last transfer coding");
    if (others || !chunked)
        return unknown(v, 501, "an unknown transfer coding");
    h->chunked = true;
    return true;
}

static bool read_length(struct wp_head *h, struct verdict *v)
{
    struct wp_str text_of = wp_head_get(h, "content-length");
    uint64_t n;

    if (!text_of.p)
        return true;
    if (count(h, "content-length") > 1)
        return bad(v, "several Content-Length");
    if (!wp_str_u64(text_of, &n) || n > INT64_MAX)
        return bad(v, "Content-Length is not a number");
    h->content_length = (int64_t)n;
    return true;
}

static bool read_framing(struct wp_head *h, struct verdict *v)
{
    h->content_length = -1;
    h->chunked = h->expect_continue = false;
    if (!read_codings(h, v) || !read_length(h, v))
        return false;
    h->keep_alive = !wp_head_has_token(h, "connection", "close") &&
                    (h->minor == 1 || wp_head_has_token(h, "connection", "keep-alive"));
    return true;
}

/* HTTP/1.0 has no interim answers, and so no expectations. */
static bool read_expect(struct wp_head *h, struct verdict *v)
{
    return h->minor == 0 || wp_head_expects(h, &h->expect_continue) ||
           unknown(v, 417, "an unknown expectation");
}

/* "HTTP/1.1" */
static bool read_version(struct wp_str s, int *minor, struct verdict *v)
{
    if (s.n != 8 || memcmp(s.p, "HTTP/", 5) != 0 || s.p[6] != '.' || s.p[5] < '0' || s.p[5] > '9' ||
        s.p[7] < '0' || s.p[7] > '9')
        return bad(v, "a malformed version");
    *minor = s.p[7] - '0';
    if (s.p[5] != '1' || *minor > 1)
        return unknown(v, 505, "neither HTTP/1.1 nor HTTP/1.0");
    return true;
}

static bool read_host(struct wp_head *h, struct verdict *v)
{
    size_t n = count(h, "host");

    if (n > 1)
        return bad(v, "several Host");
    if (n == 0)
        return h->minor == 0 || bad(v, "HTTP/1.1 without Host");
    return wp_host_ok(wp_head_get(h, "host")) || bad(v, "a malformed Host");
}

/* An absolute target becomes its path, and its authority takes the place of Host (RFC 9112 3.2.2).
 */
static bool read_absolute(struct wp_head *h, size_t scheme, struct verdict *v)
{
    struct wp_str rest = {h->target.p + scheme, h->target.n - scheme}, authority = rest;

    for (authority.n = 0; authority.n < rest.n && !strchr("/?", rest.p[authority.n]); authority.n++)
        ;
    if (authority.n == 0 || !wp_host_ok(authority))
        return bad(v, "a malformed authority in the target");
    rest.p += authority.n;
    rest.n -= authority.n;
    if (rest.n && rest.p[0] == '?')
        return bad(v, "a target without path");
    h->target = rest.n ? rest : WP_STR("/");
    for (size_t i = 0; i < h->n_fields; i++)
        if (wp_str_iis(h->field[i].name, "host"))
            h->field[i].value = authority;
    return true;
}

static bool read_target(struct wp_head *h, struct verdict *v)
{
    struct wp_str t = h->target;

    if (wp_str_is(h->method, "CONNECT"))
        return unknown(v, 501, "CONNECT is not for this server");
    if (memchr(t.p, '#', t.n))
        return bad(v, "a fragment in the target");
    if (t.p[0] == '/')
        return true;
    if (wp_str_is(t, "*"))
        return wp_str_is(h->method, "OPTIONS") || bad(v, "the target * is for OPTIONS alone");
    if (t.n > 7 && wp_str_iis((struct wp_str){t.p, 7}, "http://"))
        return read_absolute(h, 7, v);
    if (t.n > 8 && wp_str_iis((struct wp_str){t.p, 8}, "https://"))
        return read_absolute(h, 8, v);
    return bad(v, "a malformed target");
}

static bool read_request_line(struct wp_str line, struct wp_head *h, struct verdict *v)
{
    struct wp_str rest = line;

    if (!text(line) || memchr(line.p, '\t', line.n))
        return bad(v, "a control byte in the request line");
    if (!wp_str_split(&rest, ' ', &h->method) || !token(h->method))
        return bad(v, "a malformed method");
    if (!wp_str_split(&rest, ' ', &h->target) || h->target.n == 0)
        return bad(v, "two blanks or nothing after the method");
    if (!rest.p || memchr(rest.p, ' ', rest.n))
        return bad(v, "a request line has three words with one blank between them");
    if (!visible(h->target))
        return bad(v, "a byte that no target has");
    h->status = 0;
    h->reason = (struct wp_str){0};
    return read_version(rest, &h->minor, v);
}

static int on_whole(llhttp_t *ll)
{
    (void)ll;
    return HPE_PAUSED; /* the head was all that was asked about */
}

/* llhttp's opinion on a head that we like. */
static enum llhttp_errno ask_llhttp(enum llhttp_type type, const char *p, size_t n)
{
    static const llhttp_settings_t settings = {.on_headers_complete = on_whole};
    llhttp_t ll;
    enum llhttp_errno rc;

    llhttp_init(&ll, type, &settings);
    rc = llhttp_execute(&ll, p, n);
    return rc == HPE_PAUSED ? HPE_OK : rc == HPE_OK ? HPE_INTERNAL : rc;
}

static bool read_request(const char *p, size_t n, struct wp_head *h, struct verdict *v)
{
    struct wp_str rest = {p, n};

    if (!read_request_line(cut_line(&rest), h, v) || !read_fields(rest, h, v) ||
        !read_framing(h, v) || !read_host(h, v) || !read_target(h, v) || !read_expect(h, v))
        return false;
    switch (ask_llhttp(HTTP_REQUEST, p, n)) {
    case HPE_OK:
        return true;
    case HPE_INVALID_METHOD:
    case HPE_INVALID_CONSTANT: /* a method of another protocol */
        return unknown(v, 501, "an unknown method");
    default:
        return bad(v, "not HTTP/1.1");
    }
}

long wp_http1_request(const char *p, size_t n, size_t max, size_t *from, struct wp_head *h,
                      int *status, const char **why)
{
    struct verdict v = {0};
    long start = skip_empty_lines(p, n, LEADING_EMPTY_LINES, &v), end = v.code;

    if (start == -1)
        return 0;
    if (start >= 0 && !tchar((unsigned char)p[start]))
        bad(&v, "a malformed method");
    else if (start >= 0)
        end = find_end(p, n, (size_t)start, max, from, &v);
    if (!v.code && end > 0)
        read_request(p + start, (size_t)(end - start), h, &v);
    if (v.code) {
        *status = v.status;
        *why = v.why;
        return v.code;
    }
    return end;
}

/* "HTTP/1.1 200 OK", "HTTP/1.1 200 " and "HTTP/1.1 200" */
static bool read_status_line(struct wp_str line, struct wp_head *h, struct verdict *v)
{
    struct wp_str version = {line.p, line.n < 8 ? line.n : 8};

    if (!read_version(version, &h->minor, v))
        return false;
    if (line.n < 12 || line.p[8] != ' ' || (line.n > 12 && line.p[12] != ' '))
        return bad(v, "a malformed status line");
    h->status = 0;
    for (int i = 9; i < 12; i++) {
        if (line.p[i] < '0' || line.p[i] > '9')
            return bad(v, "a malformed status");
        h->status = h->status * 10 + line.p[i] - '0';
    }
    if (h->status < 100 || h->status > 599)
        return bad(v, "a status that does not exist");
    h->reason =
        line.n > 13 ? (struct wp_str){line.p + 13, line.n - 13} : (struct wp_str){line.p + 12, 0};
    h->method = h->target = (struct wp_str){0};
    return text(h->reason) || bad(v, "a control byte in the reason");
}

long wp_http1_response(const char *p, size_t n, size_t max, size_t *from, struct wp_head *h,
                       const char **why)
{
    struct verdict v = {0};
    long end = 0;

    if (n == 0)
        return 0;
    if (p[0] != 'H')
        bad(&v, "not an HTTP answer");
    else
        end = find_end(p, n, 0, max, from, &v);
    if (!v.code && end > 0) {
        struct wp_str rest = {p, (size_t)end};

        if (read_status_line(cut_line(&rest), h, &v) && read_fields(rest, h, &v) &&
            read_framing(h, &v) && ask_llhttp(HTTP_RESPONSE, p, (size_t)end) != HPE_OK)
            bad(&v, "not HTTP/1.1");
    }
    if (v.code) {
        *why = v.why;
        return v.code;
    }
    return end;
}

enum wp_framing wp_http1_request_body(const struct wp_head *h)
{
    if (h->chunked)
        return WP_BODY_CHUNKED;
    return h->content_length > 0 ? WP_BODY_LENGTH : WP_BODY_NONE;
}

enum wp_framing wp_http1_response_body(const struct wp_head *h, bool to_head_request)
{
    if (to_head_request || h->status < 200 || h->status == 204 || h->status == 304)
        return WP_BODY_NONE;
    if (h->chunked)
        return WP_BODY_CHUNKED;
    if (h->content_length >= 0)
        return h->content_length ? WP_BODY_LENGTH : WP_BODY_NONE;
    return WP_BODY_UNTIL_CLOSE;
}

static int put(struct wp_buf *b, bool clean, const struct wp_str piece[], size_t n)
{
    size_t all = 0;
    int rc;

    if (!clean)
        return WP_EINVAL;
    for (size_t i = 0; i < n; i++)
        all += piece[i].n;
    rc = wp_buf_reserve(b, all); /* so that a head is never left half written */
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = wp_buf_add(b, piece[i].p, piece[i].n);
    return rc;
}

int wp_http1_put_request(struct wp_buf *b, struct wp_str method, struct wp_str target)
{
    const struct wp_str piece[] = {method, WP_STR(" "), target, WP_STR(" HTTP/1.1\r\n")};

    return put(b, token(method) && visible(target), piece, 4);
}

int wp_http1_put_status(struct wp_buf *b, int status, struct wp_str reason)
{
    const char digits[3] = {(char)('0' + status / 100), (char)('0' + status / 10 % 10),
                            (char)('0' + status % 10)};
    const struct wp_str piece[] = {
        WP_STR("HTTP/1.1 "), {digits, 3}, WP_STR(" "), reason, WP_STR("\r\n")};

    return put(b, status >= 100 && status <= 999 && text(reason), piece, 5);
}

int wp_http1_put_field(struct wp_buf *b, struct wp_str name, struct wp_str value)
{
    const struct wp_str piece[] = {name, WP_STR(": "), value, WP_STR("\r\n")};

    return put(b, token(name) && text(value), piece, 4);
}

int wp_http1_put_end(struct wp_buf *b)
{
    return wp_buf_add(b, "\r\n", 2);
}
