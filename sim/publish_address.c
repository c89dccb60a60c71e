/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank publishes, and whether it binds there: vLLM's rules. */
#include "sim/publish.h"

#include <stdio.h>

bool wp_publish_binds(const char *endpoint)
{
    return strchr(endpoint, '*') || strstr(endpoint, "::") || strncmp(endpoint, "ipc://", 6) == 0 ||
           strncmp(endpoint, "inproc://", 9) == 0;
}

int wp_publish_shift(const char *endpoint, uint32_t rank, char *out, size_t room,
                     struct wp_err *err)
{
    const char *colon = strrchr(endpoint, ':');
    uint64_t port = 0;
    int n;

    if (rank == 0 && strstr(endpoint, "://")) {
        n = snprintf(out, room, "%s", endpoint);
    } else if (strncmp(endpoint, "inproc://", 9) == 0) {
        n = snprintf(out, room, "%s_dp%u", endpoint, rank);
    } else if (strncmp(endpoint, "tcp://", 6) != 0) {
        return wp_fail(err, WP_EINVAL, "%s: want tcp://HOST:PORT for several ranks", endpoint);
    } else if (colon && strcmp(colon, ":*") == 0) {
        n = snprintf(out, room, "%s", endpoint);
    } else if (colon && wp_str_u64(wp_str_of(colon + 1), &port) && port + rank <= UINT16_MAX) {
        n = snprintf(out, room, "%.*s:%u", (int)(colon - endpoint), endpoint,
                     (unsigned)port + rank);
    } else {
        return wp_fail(err, WP_EINVAL, "%s: want a port that leaves room for rank %u", endpoint,
                       rank);
    }
    return (size_t)n < room ? 0 : wp_fail(err, WP_ETOOBIG, "an endpoint of %d bytes", n);
}
