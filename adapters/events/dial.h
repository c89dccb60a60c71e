/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/dial.h - connects a ZeroMQ socket to a host by name.
 *
 * The library would look names up on its one thread and wait there, and a dead name server would
 * silence every publisher.  So it is only ever given addresses: names are looked up by net/names.h,
 * and again after a failure, because an engine that is started anew may be elsewhere.  Of several
 * addresses the next is tried each time.  To the address it has the library itself comes back.
 */
#ifndef WP_ADAPTERS_EVENTS_DIAL_H
#define WP_ADAPTERS_EVENTS_DIAL_H

#include "adapters/events/endpoint.h"
#include "adapters/events/zsock.h"
#include "net/names.h"

struct wp_dial {
    struct wp_loop *loop;
    struct wp_zsock *s;
    const struct wp_endpoint *to; /* the caller's, longer lived */
    uint32_t rank;
    struct wp_lookup *lookup;
    struct wp_timer again;
    char at[WP_ENDPOINT_MAX]; /* connected or connecting to; "" for nothing yet */
    bool failed;              /* there: try another address if there is one */
    /* 0: the library is at work and frames may be sent (each new address); negative: no address, tries again. */
    void (*fn)(void *arg, int rc);
    void *arg;
};

/* fn may be called inside this call. */
void wp_dial_start(struct wp_dial *d, struct wp_loop *loop, struct wp_zsock *s, const struct wp_endpoint *to,
                   uint32_t rank, void (*fn)(void *arg, int rc), void *arg);
/* The connection was lost or refused. */
void wp_dial_failed(struct wp_dial *d);
void wp_dial_stop(struct wp_dial *d); /* before the socket is closed; {0} and a stopped one too */

#endif
