/* SPDX-License-Identifier: Apache-2.0 */
/* Whole answers: short ones of the handler, errors in OpenAI's shape, and what the server says to
 * what is not HTTP. */
#include "net/conn.h"

#include <stdarg.h>
#include <stdio.h>

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 408:
    case 504:
        return "timeout_error";
    case 429:
        return "rate_limit_error";
    case 502:
        return "upstream_error";
    case 503:
        return "service_unavailable";
    default:
        return status < 500 || status == 501 || status == 505 ? "invalid_request_error"
                                                              : "server_error";
    }
}

int wp_error_json(struct wp_buf *out, int status, const char *code, const char *param,
                  const char *message)
{
    const size_t before = out->n;
    int rc = wp_buf_adds(out, "{\"error\":{\"message\":");

    if (rc == 0)
        rc = wp_buf_json(out, wp_str_of(message));
    if (rc == 0)
        rc = wp_buf_printf(out, ",\"type\":\"%s\",\"param\":", error_type(status));
    if (rc == 0)
        rc = param ? wp_buf_json(out, wp_str_of(param)) : wp_buf_adds(out, "null");
    if (rc == 0)
        rc = wp_buf_adds(out, ",\"code\":");
    if (rc == 0)
        rc = code ? wp_buf_json(out, wp_str_of(code)) : wp_buf_adds(out, "null");
    if (rc == 0)
        rc = wp_buf_adds(out, "}}");
    if (rc < 0)
        out->n = before;
    return rc;
}

void wp_reply(struct wp_exchange *p, int status, const char *type, const struct wp_field *field,
              size_t n, struct wp_str body)
{
    struct wp_ex *x = (struct wp_ex *)p;

    if (x->begun || x->over || x->c->state != WP_CONN_EXCHANGE)
        return;
    wp_ex_head(x, status, wp_str_of(wp_reason(status)), type, field, n, (int64_t)body.n);
    wp_reply_body(p, body.p, body.n);
    wp_reply_end(p);
}

void wp_reply_error(struct wp_exchange *x, int status, const char *code, const char *param,
                    const struct wp_field *field, size_t n, const char *fmt, ...)
{
    struct wp_buf body = {0};
    char message[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (wp_error_json(&body, status, code, param, message) < 0)
        wp_reply_abort(x);
    else
        wp_reply(x, status, "application/json", field, n, wp_buf_str(&body));
    wp_buf_fini(&body);
}

static const char *refusal_code(int status)
{
    switch (status) {
    case 408:
        return "request_timeout";
    case 413:
        return "body_too_large";
    case 431:
        return "head_too_large";
    case 501:
        return "not_implemented";
    case 505:
        return "http_version";
    default:
        return "bad_request";
    }
}

static int put_refusal(struct wp_server *s, int status, const char *why, struct wp_buf *out)
{
    struct wp_buf body = {0};
    const char *type = NULL;
    int rc = 0;

    if (s->conf.refuse)
        type = s->conf.refuse(status, why, &body, s->conf.arg);
    if (!type) {
        body.n = 0;
        type = "application/json";
        rc = wp_error_json(&body, status, refusal_code(status), NULL, why);
    }
    if (rc == 0)
        rc = wp_http1_put_status(out, status, wp_str_of(wp_reason(status)));
    if (rc == 0)
        rc = wp_buf_printf(
            out, "Content-Type: %s\r\nContent-Length: %zu\r\nDate: %s\r\nConnection: close\r\n\r\n",
            type, body.n, wp_server_date(s).p);
    if (rc == 0)
        rc = wp_buf_add(out, body.p, body.n);
    wp_buf_fini(&body);
    return rc;
}

void wp_conn_refuse(struct wp_conn *c, int status, const char *why)
{
    struct wp_server *s = c->server;
    struct wp_buf out = {0};
    int rc = put_refusal(s, status, why, &out);

    if (s->conf.on_refused)
        s->conf.on_refused(status, s->conf.arg);
    if (rc == 0 && c->state != WP_CONN_CLOSED) {
        const struct wp_str piece = wp_buf_str(&out);

        rc = wp_stream_write(&c->stream, &piece, 1, -1, NULL);
    }
    wp_buf_fini(&out);
    if (rc < 0)
        wp_conn_close(c, true);
    else
        wp_conn_linger(c);
}
