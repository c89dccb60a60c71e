/* SPDX-License-Identifier: Apache-2.0 */
#include "router/router.h"

struct wp_settings *wp_settings_ref(struct wp_settings *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void wp_settings_unref(struct wp_settings *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    wp_config_destroy(s->conf);
    wp_tls_unref(s->tls);
    wp_keys_destroy(s->keys);
    wp_free(s);
}

/* The certificates of listen.tls, as they lie in their files now. */
static int read_tls(struct wp_tls **out, const struct wp_config *c, struct wp_buf *errors)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_tls_pair *pair;
    int rc;

    if (!*c->listen.tls.cert)
        return 0;
    pair = wp_calloc(1 + c->listen.tls.n_more, sizeof *pair);
    if (!pair)
        return WP_ENOMEM;
    pair[0] = (struct wp_tls_pair){c->listen.tls.cert, c->listen.tls.key};
    for (size_t i = 0; i < c->listen.tls.n_more; i++)
        pair[i + 1] = (struct wp_tls_pair){c->listen.tls.more[i].cert, c->listen.tls.more[i].key};
    rc = wp_tls_server(out, pair, 1 + c->listen.tls.n_more,
                       *c->listen.tls.client_ca ? c->listen.tls.client_ca : NULL, &err);
    if (rc < 0)
        wp_buf_printf(errors, "listen.tls: %s\n", err.text);
    wp_free(pair);
    return rc;
}

static int read_keys(struct wp_keys **out, const struct wp_config *c, const struct wp_settings *was, struct wp_buf *errors)
{
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_keys_create(out, c->listen.api_keys, was ? was->keys : NULL, &err);

    if (rc < 0)
        wp_buf_printf(errors, "listen.api_keys_file: %s\n", err.text);
    return rc;
}

struct wp_settings *wp_settings_load(const char *file, const char *const set[], size_t n_set, const char *const worker[], size_t n_worker,
                                     const struct wp_settings *was, struct wp_buf *errors)
{
    struct wp_settings *st = wp_calloc(1, sizeof *st);

    if (!st)
        return NULL;
    atomic_init(&st->refs, 1);
    if (wp_config_read(&st->conf, file, set, n_set, worker, n_worker, errors) < 0) {
        wp_free(st);
        return NULL;
    }
    if (read_tls(&st->tls, st->conf, errors) < 0 || read_keys(&st->keys, st->conf, was, errors) < 0) {
        wp_settings_unref(st);
        return NULL;
    }
    return st;
}
