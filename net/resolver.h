/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/resolver.h - asks one name server one question: c-ares driven by the loop's own polling.  For
 * net/names.c, which decides whom to ask when, and what to think of an answer.
 *
 * Each server has a c-ares channel of its own that tries once.  So we see which server said what:
 * c-ares alone would take "no address" from a broken first server as the last word, and would begin
 * with a dead one every time.
 *
 * Threads: a resolver belongs to one loop.
 */
#ifndef WP_NET_RESOLVER_H
#define WP_NET_RESOLVER_H

#include "net/loop.h"

enum { WP_RESOLVER_ADDRS = 16, WP_RESOLVER_SERVERS = 8 }; /* more are passed over */

struct wp_resolver;

enum wp_found_kind {
    WP_FOUND,
    WP_FOUND_NO_NAME, /* it does not exist */
    WP_FOUND_EMPTY,   /* it exists, or so that server says, without an address */
    WP_FOUND_SILENCE, /* no answer in time */
    WP_FOUND_FAILURE, /* refused, broken, unreachable */
    WP_FOUND_NO_MEMORY,
    WP_FOUND_NONSENSE, /* no name that can be asked for */
};

struct wp_found {
    enum wp_found_kind kind;
    uint64_t ttl_s; /* the shortest of all records */
    size_t n;
    struct sockaddr_storage addr[WP_RESOLVER_ADDRS]; /* in the order to try (RFC 6724) */
};
/* Must not destroy the resolver; may ask. */
typedef void (*wp_resolver_fn)(void *arg, const struct wp_found *found);

/* csv: "address[:port],..."; NULL: the system's servers.  Errors: WP_EINVAL, WP_ENOMEM. */
int wp_resolver_create(struct wp_resolver **out, struct wp_loop *l, const char *csv,
                       uint64_t timeout_us);
/* Questions under way get no answer.  The memory goes when the loop has closed its handles.  NULL
 * does nothing. */
void wp_resolver_destroy(struct wp_resolver *r);
size_t wp_resolver_servers(const struct wp_resolver *r);
/* Answers once, also inside this call (names of /etc/hosts). */
void wp_resolver_ask(struct wp_resolver *r, size_t server, const char *name, wp_resolver_fn fn,
                     void *arg);

#endif
