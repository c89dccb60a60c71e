/* SPDX-License-Identifier: Apache-2.0 */
/* router/serve_inner.h - the process: for serve.c and serve_line.c alone. */
#ifndef WP_ROUTER_SERVE_INNER_H
#define WP_ROUTER_SERVE_INNER_H

#include "router/admin.h"
#include "router/feeds.h"
#include "router/gate.h"
#include "router/probe.h"
#include "router/recorder.h"
#include "router/snapshot.h"
#include "router/upgrade.h"
#include "router/wake.h"

enum { WP_SERVE_WORDS = 4096 };

struct wp_serve {
    struct wp_router router;
    struct wp_admin admin;
    struct wp_prober *prober;
    struct wp_feed_desk *desk;
    struct wp_snapshots *snapshots;
    struct wp_waker *waker;
    struct wp_recorder *recorder;
    uv_signal_t hup, term, intr, usr2;
    struct wp_inherited in;
    struct wp_upgrade *upgrade;
    struct wp_timer meet; /* somebody waits until we serve */
    uint64_t meet_until_us;
    unsigned open; /* signal handles, the admin server, the desk, the upgrade, until closed */
    bool closing;
    char *file;
    char *set[WP_SERVE_WORDS], *worker[WP_SERVE_WORDS];
    size_t n_set, n_worker;
    const char *model;
};

/* The command line.  1: help was asked for, and is printed.  Errors: WP_EUSAGE, WP_ENOMEM. */
int wp_serve_line(struct wp_serve *s, int argc, char **argv, struct wp_err *err);

#endif
