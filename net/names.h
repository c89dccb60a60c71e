/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/names.h - host names to addresses, off the loop's critical path: c-ares driven by the loop's own polling.
 * Addresses and "localhost" are answered without asking.  Answers are kept for their TTL (1 s to 5 min); when asking fails,
 * an older answer is given for as long as there is one.  Concurrent questions for one name are one question.
 *
 * Servers are asked one after another, starting with the one that answered last: a server that is silent (0.7 s), fails, or
 * knows no address costs its time once, not for every name.  Only when none has an address is the name without one.
 * A name whose answer is too old waits at most 0.25 s for a new one and is then given the old one, while asking goes on: a
 * dead name server never holds up a request to a host that was known.
 * A denial (no such name, no address) leaves the old answer too; it goes after three denials in a row over at least a minute.
 *
 * Bounded: WP_NAMES_MAX names are kept, the longest unused goes first; WP_NAMES_ADDRS addresses of each.
 * Threads: one a loop.
 */
#ifndef WP_NET_NAMES_H
#define WP_NET_NAMES_H

#include "base/str.h"
#include "net/loop.h"

enum { WP_NAMES_MAX = 1024, WP_NAMES_ADDRS = 16 };

struct wp_names;
struct wp_lookup;

/* addr[n]: in the order to try; rc 0, or WP_ENONAME / WP_ETIMEDOUT / WP_ECANCELED / WP_ENOMEM with n 0.  Port is set. */
typedef void (*wp_names_fn)(void *arg, int rc, const struct sockaddr_storage addr[], size_t n);

/* Answers later than this call, exactly once.  NULL: out of memory.  The loop's names are made on first use. */
struct wp_lookup *wp_names_lookup(struct wp_loop *l, struct wp_str host, uint16_t port, wp_names_fn fn, void *arg);
void wp_lookup_cancel(struct wp_lookup *q); /* no answer comes */
/* The last good answer for host failed to connect: ask anew next time. */
void wp_names_stale(struct wp_loop *l, struct wp_str host);
/* By wp_loop_run() at the end; pending questions get WP_ECANCELED.  NULL does nothing. */
void wp_names_destroy(struct wp_names *n);

/*
 * Asks these name servers, "address[:port],..." ("[v6]:port"), instead of the system's; NULL: the system's.  Questions under
 * way are asked anew.  Errors: WP_EINVAL, WP_ENOMEM; then all is as before.
 */
int wp_names_servers(struct wp_loop *l, const char *csv);

/* How long things last; {0} members keep their default. */
struct wp_names_times {
    uint64_t ttl_min_us, ttl_max_us; /* 1 s, 300 s */
    uint64_t retry_us;               /* after a failure nobody asks again for 1 s */
    uint64_t patience_us;            /* how long a new answer is waited for when there is an old one: 0.25 s */
    uint64_t grace_us;               /* denials must last that long: 60 s */
    uint64_t timeout_us;             /* of one server's answer: 0.7 s; heeded by the next wp_names_servers() */
};
int wp_names_tune(struct wp_loop *l, const struct wp_names_times *t); /* Errors: WP_ENOMEM */

#endif
