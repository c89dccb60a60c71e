/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/hostname.h - the text of a host name, and the names that need no asking.  For net/names.c.
 * Threads: plain functions over plain data.
 */
#ifndef WP_NET_HOSTNAME_H
#define WP_NET_HOSTNAME_H

#include "base/str.h"

#include <sys/socket.h>

enum { WP_HOSTNAME_BYTES = 254 }; /* 253 and a dot behind */

/* host in lower case and ended by a zero; false when it is no name at all: empty, too long, blanks,
 * control bytes. */
bool wp_hostname_plain(struct wp_str host, char out[WP_HOSTNAME_BYTES + 1]);

/*
 * The addresses of a plain name that is an address itself, or localhost (RFC 6761: loopback, never
 * asked for). Returns how many; 0 when it must be asked for.
 */
size_t wp_hostname_known(const char *name, struct sockaddr_storage addr[2]);

#endif
