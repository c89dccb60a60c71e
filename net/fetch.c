/* SPDX-License-Identifier: Apache-2.0 */
#include "net/fetch.h"

#include "base/err.h"
#include "net/client.h"

#define TIMEOUT_US UINT64_C(30000000)

struct fetch {
    struct wp_loop loop;
    struct wp_client *client;
    struct wp_buf *answer;
    int status, rc;
    const char *why;
};

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    struct fetch *f = c->user;

    f->status = h->status;
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    struct fetch *f = c->user;

    f->rc = wp_buf_add(f->answer, p, n);
    if (f->rc < 0)
        wp_call_cancel(c);
}

static void on_client_closed(void *arg)
{
    struct fetch *f = arg;

    wp_loop_stop(&f->loop);
}

static void on_over(struct wp_call *c, int rc)
{
    struct fetch *f = c->user;

    if (f->rc == 0) {
        f->rc = rc;
        f->why = c->why;
    }
    wp_client_destroy(f->client, on_client_closed, f);
}

static const struct wp_call_ops ops = {NULL, on_head, on_body, on_over};

/* The part of a URL that is the request's target: all from the first slash behind the host. */
static struct wp_str target_of(const char *url)
{
    const char *at = strstr(url, "://");

    at = at ? strpbrk(at + 3, "/?") : NULL;
    return at && *at == '/' ? wp_str_of(at) : WP_STR("/");
}

static int parse(const char *url, struct wp_url *out, struct wp_err *err)
{
    struct wp_str text = wp_str_of(url);
    const char *query = strchr(url, '?'), *why = NULL;

    if (query)
        text.n = (size_t)(query - url);
    if (!wp_url_parse(text, out, &why))
        return wp_fail(err, WP_EINVAL, "%s: %s", url, why);
    return 0;
}

static int run(struct fetch *f, const struct wp_call_spec *spec, struct wp_err *err)
{
    int rc = wp_loop_init(&f->loop, err);

    if (rc < 0)
        return rc;
    rc = wp_client_create(&f->client, &f->loop, NULL, err);
    if (rc < 0)
        goto fini_loop;
    if (!wp_call(f->client, spec)) {
        f->rc = WP_ENOMEM;
        wp_client_destroy(f->client, on_client_closed, f);
    }
    wp_loop_run(&f->loop);
    rc = f->rc;
    if (rc < 0)
        wp_fail(err, rc, "%s%s%s", f->why ? f->why : "", f->why ? ": " : "", wp_strerror(rc));
fini_loop:
    wp_loop_fini(&f->loop);
    return rc;
}

int wp_fetch(const char *url, struct wp_str method, const struct wp_field field[], size_t n_fields,
             struct wp_str body, uint64_t timeout_us, int *status, struct wp_buf *answer,
             struct wp_err *err)
{
    struct fetch f = {.answer = answer};
    struct wp_url u;
    struct wp_call_spec spec = {
        .method = method, .target = target_of(url), .field = field, .n_fields = n_fields};
    int rc = parse(url, &u, err);

    if (rc < 0)
        return rc;
    spec.host = u.host;
    spec.port = u.port;
    if (u.tls && wp_tls_client(&spec.tls, NULL, err) < 0)
        return err->code;
    spec.total_us = timeout_us ? timeout_us : TIMEOUT_US;
    spec.connect_us = spec.total_us;
    spec.ops = &ops;
    spec.user = &f;
    if (body.p) {
        spec.body = wp_blob_copy(body.p, body.n);
        if (!spec.body)
            rc = wp_fail(err, WP_ENOMEM, "%s", wp_strerror(WP_ENOMEM));
    }
    rc = rc < 0 ? rc : run(&f, &spec, err);
    wp_blob_unref(spec.body);
    wp_tls_unref(spec.tls);
    if (rc < 0)
        return wp_wrap(err, "http%s://" WP_STR_FMT ":%u", u.tls ? "s" : "", WP_STR_ARG(u.host), (unsigned)u.port);
    *status = f.status;
    return 0;
}
