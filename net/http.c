/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http.h"

#include <stdlib.h>

struct wp_str wp_head_get(const struct wp_head *h, const char *name)
{
    struct wp_str want = wp_str_of(name);

    for (size_t i = 0; i < h->n_fields; i++)
        if (wp_str_ieq(h->field[i].name, want))
            return h->field[i].value;
    return (struct wp_str){0};
}

static bool list_has(struct wp_str list, struct wp_str token)
{
    struct wp_str part;

    while (wp_str_split(&list, ',', &part))
        if (wp_str_ieq(wp_str_trim(part), token))
            return true;
    return false;
}

static bool fields_have(const struct wp_head *h, const char *name, struct wp_str token)
{
    struct wp_str want = wp_str_of(name);

    for (size_t i = 0; i < h->n_fields; i++)
        if (wp_str_ieq(h->field[i].name, want) && list_has(h->field[i].value, token))
            return true;
    return false;
}

bool wp_head_has_token(const struct wp_head *h, const char *name, const char *token)
{
    return fields_have(h, name, wp_str_of(token));
}

bool wp_head_expects(const struct wp_head *h, bool *wanted)
{
    static const struct wp_str hundred = {"100-continue", 12};
    struct wp_str list, part;

    *wanted = false;
    for (size_t i = 0; i < h->n_fields; i++) {
        if (!wp_str_iis(h->field[i].name, "expect"))
            continue;
        list = h->field[i].value;
        while (wp_str_split(&list, ',', &part)) {
            part = wp_str_trim(part);
            if (part.n && !wp_str_ieq(part, hundred))
                return false;
            *wanted = *wanted || part.n;
        }
    }
    return true;
}

static bool host_byte(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
           (c && strchr("-._~%!$&'()*+;=", c));
}

/* The length of the host itself; 0: it is none. */
static size_t host_length(struct wp_str host)
{
    size_t i = 0;

    if (host.p[0] != '[') {
        while (i < host.n && host_byte((unsigned char)host.p[i]))
            i++;
        return i;
    }
    for (i = 1; i < host.n && host.p[i] != ']'; i++)
        if (!host.p[i] || !strchr("0123456789abcdefABCDEF:.", host.p[i]))
            return 0;
    return i == host.n || i == 1 ? 0 : i + 1;
}

bool wp_host_ok(struct wp_str host)
{
    size_t n = host.n ? host_length(host) : 0;
    uint64_t port = 0;

    if (n == 0 || n == host.n)
        return n == host.n;
    if (host.p[n] != ':' || host.n - n > 6)
        return false;
    return host.n - n == 1 ||
           (wp_str_u64((struct wp_str){host.p + n + 1, host.n - n - 1}, &port) && port <= 65535);
}

bool wp_path_ok(struct wp_str target)
{
    for (size_t i = 0; i < target.n; i++) {
        unsigned char c = (unsigned char)target.p[i];

        if (c <= ' ' || c >= 127 || c == '#')
            return false;
    }
    return target.n > 0 && target.p[0] == '/';
}

struct wp_str wp_target_path(struct wp_str target)
{
    const char *q = target.n ? memchr(target.p, '?', target.n) : NULL;

    if (q)
        target.n = (size_t)(q - target.p);
    return target;
}

struct wp_str wp_target_query(struct wp_str target)
{
    size_t path = wp_target_path(target).n;

    if (path == target.n)
        return (struct wp_str){0};
    return (struct wp_str){target.p + path + 1, target.n - path - 1};
}

struct wp_str wp_query_get(struct wp_str query, const char *name)
{
    struct wp_str part, key;

    while (wp_str_split(&query, '&', &part)) {
        struct wp_str value = part;

        if (!wp_str_split(&value, '=', &key) || !wp_str_is(key, name))
            continue;
        return value.p ? value : (struct wp_str){key.p + key.n, 0}; /* "?x" is there, and empty */
    }
    return (struct wp_str){0};
}

bool wp_hop_by_hop(const struct wp_head *h, struct wp_str name)
{
    static const struct wp_str always[] = {
        WP_STR_INIT("connection"), WP_STR_INIT("keep-alive"),        WP_STR_INIT("te"),
        WP_STR_INIT("trailer"),    WP_STR_INIT("transfer-encoding"), WP_STR_INIT("upgrade"),
    };

    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        if (wp_str_ieq(name, always[i]))
            return true;
    if (name.n >= 6 && wp_str_iis((struct wp_str){name.p, 6}, "proxy-"))
        return true;
    if (wp_str_iis(name, "host") || wp_str_iis(name, "content-length"))
        return false; /* Connection may not name these away: they decide where and how long a
                         message is */
    return fields_have(h, "connection", name);
}

static int compare_status(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

const char *wp_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } known[] = {
        /* clang-format off */
        {100, "Continue"}, {101, "Switching Protocols"}, {103, "Early Hints"},
        {200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"}, {206, "Partial Content"},
        {301, "Moved Permanently"}, {302, "Found"}, {303, "See Other"}, {304, "Not Modified"},
        {307, "Temporary Redirect"}, {308, "Permanent Redirect"},
        {400, "Bad Request"}, {401, "Unauthorized"}, {402, "Payment Required"}, {403, "Forbidden"},
        {404, "Not Found"}, {405, "Method Not Allowed"}, {406, "Not Acceptable"}, {408, "Request Timeout"},
        {409, "Conflict"}, {410, "Gone"}, {411, "Length Required"}, {412, "Precondition Failed"},
        {413, "Content Too Large"}, {414, "URI Too Long"}, {415, "Unsupported Media Type"},
        {417, "Expectation Failed"}, {421, "Misdirected Request"}, {422, "Unprocessable Content"},
        {424, "Failed Dependency"}, {425, "Too Early"}, {426, "Upgrade Required"},
        {428, "Precondition Required"}, {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"}, {501, "Not Implemented"}, {502, "Bad Gateway"},
        {503, "Service Unavailable"}, {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
        /* clang-format on */
    };
    const size_t n = sizeof known / sizeof known[0];
    const void *at = bsearch(&status, known, n, sizeof known[0], compare_status);

    return at ? known[((const char *)at - (const char *)known) / sizeof known[0]].text : "";
}

static bool parse_port(struct wp_str text, uint16_t *port)
{
    uint64_t n;

    if (text.n > 5 || !wp_str_u64(text, &n) || n > 65535)
        return false;
    *port = (uint16_t)n;
    return true;
}

static bool host_text(struct wp_str host, bool v6)
{
    for (size_t i = 0; i < host.n; i++) {
        unsigned char c = (unsigned char)host.p[i];

        if (c <= ' ' || c >= 127 || strchr("/\\?#@[]<>\"", c) || (c == ':' && !v6))
            return false;
    }
    return true;
}

/* Cuts "host", "host:port" or "[v6]:port"; *rest is what stands after the host: "" or ":port". */
static bool cut_host(struct wp_str text, struct wp_str *host, struct wp_str *rest)
{
    const char *end;

    if (text.n && text.p[0] == '[') {
        end = memchr(text.p, ']', text.n);
        if (!end)
            return false;
        *host = (struct wp_str){text.p + 1, (size_t)(end - text.p) - 1};
        *rest = (struct wp_str){end + 1, text.n - host->n - 2};
        return host->n > 0 && memchr(host->p, ':', host->n) && host_text(*host, true) &&
               (rest->n == 0 || rest->p[0] == ':');
    }
    end = text.n ? memchr(text.p, ':', text.n) : NULL;
    host->p = text.p;
    host->n = end ? (size_t)(end - text.p) : text.n;
    *rest = (struct wp_str){text.p + host->n, text.n - host->n};
    return host_text(*host, false);
}

bool wp_hostport_parse(struct wp_str text, struct wp_str *host, uint16_t *port)
{
    struct wp_str rest;

    return cut_host(text, host, &rest) && rest.n > 1 &&
           parse_port((struct wp_str){rest.p + 1, rest.n - 1}, port);
}

static bool cut_scheme(struct wp_str *text, bool *tls)
{
    for (int secure = 0; secure < 2; secure++) {
        size_t n = secure ? 8 : 7;

        if (text->n >= n &&
            wp_str_iis((struct wp_str){text->p, n}, secure ? "https://" : "http://")) {
            text->p += n;
            text->n -= n;
            *tls = secure;
            return true;
        }
    }
    return false;
}

bool wp_url_parse(struct wp_str text, struct wp_url *out, const char **why)
{
    struct wp_str authority, rest;
    const char *slash;

    *out = (struct wp_url){0};
    *why = "want http://host:port or https://host:port";
    if (!cut_scheme(&text, &out->tls))
        return false;
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];

        *why = c == '?'   ? "a query has no place here"
               : c == '#' ? "a fragment has no place here"
               : c == '@' ? "a user has no place here"
                          : "blanks and control bytes have no place here";
        if (c <= ' ' || c == 127 || c == '?' || c == '#' || c == '@')
            return false;
    }
    slash = text.n ? memchr(text.p, '/', text.n) : NULL;
    authority = (struct wp_str){text.p, slash ? (size_t)(slash - text.p) : text.n};
    out->path = (struct wp_str){text.p + authority.n, text.n - authority.n};
    while (out->path.n && out->path.p[out->path.n - 1] == '/')
        out->path.n--;
    *why = "the host is missing or malformed";
    if (!cut_host(authority, &out->host, &rest) || out->host.n == 0)
        return false;
    *why = "want a port from 1 to 65535";
    out->port = out->tls ? 443 : 80;
    if (rest.n &&
        (!parse_port((struct wp_str){rest.p + 1, rest.n - 1}, &out->port) || out->port == 0))
        return false;
    *why = NULL;
    return true;
}
