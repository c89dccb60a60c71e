/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/names.h - host names to addresses, off the loop's critical path: c-ares driven by the loop's own polling.
 * Addresses and "localhost" are answered without asking.  Answers are kept for their TTL (1 s to 5 min); when asking fails,
 * an older answer is given for as long as there is one.  Concurrent questions for one name are one question.
 * Threads: one a loop.
 */
#ifndef WP_NET_NAMES_H
#define WP_NET_NAMES_H

#include "base/str.h"
#include "net/loop.h"

struct wp_names;
struct wp_lookup;

/* addr[n]: in the order to try; rc 0, or WP_ENONAME / WP_ETIMEDOUT / WP_ECANCELED with n 0.  Port is set. */
typedef void (*wp_names_fn)(void *arg, int rc, const struct sockaddr_storage addr[], size_t n);

/* Answers later than this call, exactly once.  NULL: out of memory.  The loop's names are made on first use. */
struct wp_lookup *wp_names_lookup(struct wp_loop *l, struct wp_str host, uint16_t port, wp_names_fn fn, void *arg);
void wp_lookup_cancel(struct wp_lookup *q); /* no answer comes */
/* The last good answer for host failed to connect: ask anew next time. */
void wp_names_stale(struct wp_loop *l, struct wp_str host);
/* By wp_loop_run() at the end; pending questions get WP_ECANCELED. */
void wp_names_destroy(struct wp_names *n);

#endif
