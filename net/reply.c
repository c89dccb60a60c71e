/* SPDX-License-Identifier: Apache-2.0 */
/* What handlers call, whole answers, errors in OpenAI's shape, and what the server says to what is not HTTP. */
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

void wp_exchange_pause(struct wp_exchange *x)
{
    x->carrier->pause(x);
}

void wp_exchange_resume(struct wp_exchange *x)
{
    x->carrier->resume(x);
}

void wp_reply_interim(struct wp_exchange *x, int status, const struct wp_field *field, size_t n)
{
    x->carrier->interim(x, status, field, n);
}

void wp_reply_head(struct wp_exchange *x, int status, struct wp_str reason,
                   const struct wp_field *field, size_t n, int64_t length)
{
    x->carrier->head(x, status, reason, NULL, field, n, length);
}

void wp_reply_body(struct wp_exchange *x, const char *p, size_t n)
{
    x->carrier->body(x, p, n, NULL);
}

void wp_reply_blob(struct wp_exchange *x, struct wp_blob *b)
{
    x->carrier->body(x, b->p, b->n, b);
}

void wp_reply_end(struct wp_exchange *x)
{
    x->carrier->end(x);
}

void wp_reply_abort(struct wp_exchange *x)
{
    x->carrier->cut(x);
}

bool wp_reply_begun(const struct wp_exchange *x)
{
    return x->carrier->begun(x);
}

size_t wp_reply_queued(const struct wp_exchange *x)
{
    return x->carrier->queued(x);
}

void wp_reply(struct wp_exchange *x, int status, const char *type, const struct wp_field *field,
              size_t n, struct wp_str body)
{
    if (wp_reply_begun(x))
        return;
    x->carrier->head(x, status, wp_str_of(wp_reason(status)), type, field, n, (int64_t)body.n);
    wp_reply_body(x, body.p, body.n);
    wp_reply_end(x);
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
    case 417:
        return "expectation_failed";
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

/* A line a minute: who wonders why a client is turned away finds it in the log. */
static void say_refused(struct wp_server *s, int status, const char *why)
{
    struct wp_log_limit *limit = &s->refusal_limit[status != 413 && status != 431];
    uint64_t skipped = 0;

    if (wp_log_may(limit, wp_loop_now_us(s->loop), &skipped))
        wp_log(WP_INFO, "http", "refused: address=%s status=%d %s skipped=%llu", s->address, status, why, (unsigned long long)skipped);
}

int wp_refusal(struct wp_server *s, int status, const char *why, struct wp_buf *body, const char **type)
{
    say_refused(s, status, why);
    *type = s->conf.refuse ? s->conf.refuse(status, why, body, s->conf.arg) : NULL;
    if (*type)
        return 0;
    body->n = 0;
    *type = "application/json";
    return wp_error_json(body, status, refusal_code(status), NULL, why);
}

static int put_refusal(struct wp_server *s, int status, const char *why, struct wp_buf *out)
{
    struct wp_buf body = {0};
    const char *type = NULL;
    int rc = wp_refusal(s, status, why, &body, &type);

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
