/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/dial.h"

#include "net/hostname.h"

#include <netdb.h>
#include <stdio.h>

enum { AGAIN_US = 1000000 };

static void text_of(const struct wp_dial *d, const struct sockaddr_storage *a,
                    char out[WP_ENDPOINT_MAX])
{
    char host[128];
    socklen_t n =
        a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (getnameinfo((const struct sockaddr *)a, n, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        host[0] = 0;
    wp_endpoint_text(d->to, d->rank, host, out);
}

static void connect_to(struct wp_dial *d, const char *endpoint)
{
    struct wp_err err = WP_ERR_INIT;
    int rc;

    if (d->at[0])
        wp_zsock_disconnect(d->s, d->at);
    rc = wp_zsock_connect(d->s, endpoint, &err);
    snprintf(d->at, sizeof d->at, "%s", rc == 0 ? endpoint : "");
    d->failed = false;
    if (rc < 0)
        wp_timer_in(d->loop, &d->again, AGAIN_US);
    d->fn(d->arg, rc);
}

/* The address to use: the one in use unless it is no longer given or has just failed, then the one
 * behind it. */
static void choose(const struct wp_dial *d, const struct sockaddr_storage addr[], size_t n,
                   char out[WP_ENDPOINT_MAX])
{
    for (size_t i = 0; i < n && d->at[0]; i++) {
        text_of(d, &addr[i], out);
        if (strcmp(out, d->at) != 0)
            continue;
        if (d->failed)
            text_of(d, &addr[(i + 1) % n], out);
        return;
    }
    text_of(d, &addr[0], out);
}

static void on_names(void *arg, int rc, const struct sockaddr_storage addr[], size_t n)
{
    struct wp_dial *d = arg;
    char next[WP_ENDPOINT_MAX];

    d->lookup = NULL;
    if (rc < 0 || n == 0) {
        wp_timer_in(d->loop, &d->again, AGAIN_US);
        if (!d->at[0])
            d->fn(d->arg, rc < 0 ? rc : WP_ENONAME);
        return;
    }
    choose(d, addr, n, next);
    if (strcmp(next, d->at) == 0)
        d->failed = false; /* the library goes on there by itself */
    else
        connect_to(d, next);
}

static void look_up(struct wp_dial *d)
{
    d->lookup = wp_names_lookup(d->loop, wp_str_of(d->to->host), d->to->port, on_names, d);
    if (!d->lookup)
        wp_timer_in(d->loop, &d->again, AGAIN_US);
}

static void on_again(struct wp_timer *t)
{
    struct wp_dial *d = t->arg;

    if (!d->lookup)
        look_up(d);
}

static bool numeric(const char *host)
{
    struct sockaddr_storage addr[2];

    return wp_hostname_known(host, addr) == 1;
}

void wp_dial_start(struct wp_dial *d, struct wp_loop *loop, struct wp_zsock *s,
                   const struct wp_endpoint *to, uint32_t rank, void (*fn)(void *arg, int rc),
                   void *arg)
{
    char at[WP_ENDPOINT_MAX];

    *d = (struct wp_dial){.loop = loop, .s = s, .to = to, .rank = rank, .fn = fn, .arg = arg};
    wp_timer_init(&d->again, on_again, d);
    if (to->ipc || numeric(to->host)) {
        wp_endpoint_text(to, rank, NULL, at);
        connect_to(d, at);
    } else {
        look_up(d);
    }
}

void wp_dial_failed(struct wp_dial *d)
{
    if (d->to->ipc || d->lookup || d->again.armed || numeric(d->to->host))
        return;
    d->failed = true;
    wp_names_stale(d->loop, wp_str_of(d->to->host));
    wp_timer_in(d->loop, &d->again, AGAIN_US);
}

void wp_dial_stop(struct wp_dial *d)
{
    if (!d->loop)
        return;
    if (d->lookup)
        wp_lookup_cancel(d->lookup);
    d->lookup = NULL;
    wp_timer_stop(d->loop, &d->again);
}
