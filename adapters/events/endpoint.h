/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/endpoint.h - where a publisher is: "tcp://host:port", "tcp://[::1]:5557",
 * "ipc:///path"; to bind also tcp with a star for the host (every interface) or the port (any).  Each data-parallel rank has an endpoint of its own,
 * its port that many higher.
 */
#ifndef WP_ADAPTERS_EVENTS_ENDPOINT_H
#define WP_ADAPTERS_EVENTS_ENDPOINT_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

enum { WP_ENDPOINT_MAX = 320 }; /* as text, the zero included */

struct wp_endpoint {
    bool ipc;
    bool any;       /* every interface: only to bind */
    char host[256]; /* of ipc: the path; without brackets */
    uint16_t port;  /* 0: any free one, only to bind */
};

/*
 * bind: for us to bind rather than to connect.  ranks: how many ports in a row are wanted, at least 1.
 * Errors: WP_EINVAL, with what would be right.
 */
int wp_endpoint_parse(struct wp_endpoint *e, struct wp_str text, bool bind, uint32_t ranks, struct wp_err *err);
/* As the library wants it, with another host when host is not NULL. */
void wp_endpoint_text(const struct wp_endpoint *e, uint32_t rank, const char *host, char out[WP_ENDPOINT_MAX]);

/* A topic names its publisher: "kv@POD@MODEL"; any other is the pod as a whole, and model is absent. */
void wp_topic_parse(struct wp_str topic, struct wp_str *pod, struct wp_str *model);

#endif
