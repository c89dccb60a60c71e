/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/upgrade.h - a new program takes the place of the one that runs, and no connection is lost; and what the service manager is told.
 *
 * The old process starts the program anew (the same words, looked up anew: another binary may lie there by now) and hands it its listening
 * sockets.  The new one reads its configuration, meets its workers, and only then accepts; it tells the old one, which stops
 * accepting and drains.  Connections that wait in a queue wait in a socket that both have, so none is refused.  When the new one ends before it is
 * ready, or is not ready in WP_UPGRADE_US, the old one goes on as if nothing had been asked.
 *
 *     old: SIGUSR2 --> spawn ------------------------> ready: stop accepting, drain, exit
 *     new:             configuration, listen (held) --> serving: accept, say ready
 *
 * Threads: gate 0's.
 */
#ifndef WP_ROUTER_UPGRADE_H
#define WP_ROUTER_UPGRADE_H

#include "router/router.h"

enum { WP_INHERIT_MAX = 64 };
#define WP_UPGRADE_US UINT64_C(60000000)

/* What the process that started this one has handed over. */
struct wp_inherited {
    int ready; /* where to say that we serve; -1: nobody waits */
    int admin; /* listening sockets; -1: none */
    int api[WP_INHERIT_MAX];
    size_t n_api;
};

/*
 * Reads it from the environment, and takes it out of there.  Sockets for other addresses than these are closed: the configuration has
 * changed.  What cannot be read is as if it were not there.
 */
void wp_inherit(struct wp_inherited *in, const char *api, const char *admin);
/* All that nobody has taken. */
void wp_inherited_close(struct wp_inherited *in);

struct wp_upgrade;
struct wp_upgrade_ops {
    void (*ready)(void *arg);  /* the new process serves */
    void (*closed)(void *arg); /* answers wp_upgrade_destroy() */
};

/* Errors: WP_ENOMEM. */
int wp_upgrade_create(struct wp_upgrade **out, struct wp_loop *l, const struct wp_upgrade_ops *ops, void *arg, struct wp_err *err);
/* Starts the new process with these sockets.  Errors: WP_EEXIST: one is under way; libuv's. */
int wp_upgrade_start(struct wp_upgrade *u, int admin_fd, const char *admin, const int api_fd[], size_t n_api, const char *api,
                     struct wp_err *err);
void wp_upgrade_destroy(struct wp_upgrade *u);

/* A line for systemd's notify protocol (sd_notify(3)), when there is somebody to hear it ($NOTIFY_SOCKET): "READY=1". */
void wp_notify(const char *state);

#endif
