/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/fetch.h - one request and its whole answer, waited for.  For commands (`warmpath ctl`), never
 * on a loop: it runs one of its own until the answer is there. Threads: any; nothing is shared.
 */
#ifndef WP_NET_FETCH_H
#define WP_NET_FETCH_H

#include "base/str.h"
#include "net/http.h"

struct wp_err;

/*
 *   url         http://host:port/path?query, or https; query and path are sent as they are
 *   body        absent: none
 *   timeout_us  for all of it; 0: 30 s
 *   status      out: of the answer, whatever it is
 *   answer      out: the body is appended; its max is heeded
 *
 * Returns 0 when a whole answer came, else a negative code with a sentence that names the url's
 * host and port.
 */
int wp_fetch(const char *url, struct wp_str method, const struct wp_field field[], size_t n_fields,
             struct wp_str body, uint64_t timeout_us, int *status, struct wp_buf *answer,
             struct wp_err *err);

#endif
