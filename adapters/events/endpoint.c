/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/endpoint.h"

#include <stdio.h>
#include <sys/un.h>

static const char WANT[] = "want tcp://HOST:PORT or ipc:///PATH";

static int refuse(struct wp_err *err, struct wp_str text, const char *want)
{
    return wp_fail(err, WP_EINVAL, "\"" WP_STR_FMT "\": %s", WP_STR_ARG(text), want);
}

static int parse_ipc(struct wp_endpoint *e, struct wp_str text, struct wp_str path, uint32_t ranks,
                     struct wp_err *err)
{
    if (path.n == 0 || path.n >= sizeof((struct sockaddr_un *)0)->sun_path ||
        memchr(path.p, 0, path.n))
        return refuse(err, text, WANT);
    if (ranks > 1)
        return refuse(err, text, "an ipc endpoint has one rank; want tcp for more");
    e->ipc = true;
    memcpy(e->host, path.p, path.n);
    return 0;
}

/* The host of "host:port" without brackets, and the port's text. */
static bool split_port(struct wp_str at, struct wp_str *host, struct wp_str *port)
{
    size_t colon = at.n;

    while (colon > 0 && at.p[colon - 1] != ':')
        colon--;
    if (colon < 2)
        return false;
    *host = (struct wp_str){at.p, colon - 1};
    *port = (struct wp_str){at.p + colon, at.n - colon};
    if (host->p[0] == '[' && host->n > 2 && host->p[host->n - 1] == ']')
        *host = (struct wp_str){host->p + 1, host->n - 2};
    else if (memchr(host->p, ':', host->n))
        return false; /* IPv6 wants brackets */
    return true;
}

static bool host_ok(struct wp_str host)
{
    if (host.n == 0 || host.n >= sizeof((struct wp_endpoint *)0)->host)
        return false;
    for (size_t i = 0; i < host.n; i++)
        if (host.p[i] <= ' ' || host.p[i] >= 127 || strchr("[]/;@", host.p[i]))
            return false;
    return true;
}

static bool is_any(struct wp_str host)
{
    return wp_str_is(host, "*") || wp_str_is(host, "0.0.0.0") || wp_str_is(host, "::");
}

int wp_endpoint_parse(struct wp_endpoint *e, struct wp_str text, bool bind, uint32_t ranks,
                      struct wp_err *err)
{
    struct wp_str at = {text.p, text.n}, host, port;
    uint64_t number = 0;

    memset(e, 0, sizeof *e);
    if (wp_str_starts(text, "ipc://"))
        return parse_ipc(e, text, (struct wp_str){text.p + 6, text.n - 6}, ranks, err);
    if (!wp_str_starts(text, "tcp://"))
        return refuse(err, text, WANT);
    at = (struct wp_str){text.p + 6, text.n - 6};
    if (!split_port(at, &host, &port) || !host_ok(host))
        return refuse(err, text, WANT);
    if (bind && ranks == 1 && wp_str_is(port, "*"))
        number = 0;
    else if (!wp_str_u64(port, &number) || number == 0 || number > 65535 || number + ranks > 65536)
        return refuse(err, text,
                      ranks > 1 ? "want a port from which every rank has one, up to 65535"
                                : "want a port from 1 to 65535");
    e->any = is_any(host);
    if (e->any && !bind)
        return refuse(err, text, "that is an address to bind; to connect want the engine's host");
    memcpy(e->host, host.p, host.n);
    e->port = (uint16_t)number;
    return 0;
}

void wp_endpoint_text(const struct wp_endpoint *e, uint32_t rank, const char *host,
                      char out[WP_ENDPOINT_MAX])
{
    const char *name = host ? host : e->host;
    bool v6 = strchr(name, ':') != NULL;
    char port[16] = "*";

    if (e->ipc) {
        snprintf(out, WP_ENDPOINT_MAX, "ipc://%s", e->host);
        return;
    }
    if (e->port > 0)
        snprintf(port, sizeof port, "%u", (unsigned)(e->port + rank));
    snprintf(out, WP_ENDPOINT_MAX, v6 ? "tcp://[%s]:%s" : "tcp://%s:%s", name, port);
}

void wp_topic_parse(struct wp_str topic, struct wp_str *pod, struct wp_str *model)
{
    struct wp_str rest = topic, part[4];
    size_t n = 0;

    while (n < 4 && wp_str_split(&rest, '@', &part[n]))
        n++;
    *pod = n == 3 ? part[1] : topic;
    *model = n == 3 ? part[2] : (struct wp_str){NULL, 0};
}
