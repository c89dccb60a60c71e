/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/admin.h - the admin port: states, metrics, explain, workers, reload.  JSON in, JSON out.
 * With an admin key configured every call needs it, save /livez and /readyz.  Threads: gate 0's loop.
 */
#ifndef WP_ROUTER_ADMIN_H
#define WP_ROUTER_ADMIN_H

#include "router/router.h"

struct wp_admin {
    struct wp_gate *gate;
    struct wp_server *server;
    void (*workers_changed)(void *arg);
    /* Reads the configuration again; appends what changed or what is wrong.  0 or negative. */
    int (*reload)(void *arg, struct wp_buf *said);
    /* Begins a snapshot of the index.  0 or negative, with the reason. */
    int (*snapshot)(void *arg, struct wp_err *err);
    void *arg;
};

void wp_admin_on_request(struct wp_exchange *x, void *admin);

#endif
