/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ports.h"

#include "base/rng.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOWEST = 10000, USUAL_RANGE = 32768, TRIES = 1000 };

static unsigned range_begins(void)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    unsigned low = USUAL_RANGE;

    if (f) {
        if (fscanf(f, "%u", &low) != 1)
            low = USUAL_RANGE;
        fclose(f);
    }
    return low < LOWEST + 1000 ? USUAL_RANGE : low;
}

static bool binds(int family, const struct sockaddr *a, socklen_t n)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool taken = fd >= 0 && bind(fd, a, n) < 0 && errno == EADDRINUSE;

    if (fd >= 0)
        close(fd);
    return !taken;
}

static bool is_free(unsigned port)
{
    const struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 b = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    return binds(AF_INET, (const struct sockaddr *)&a, sizeof a) && binds(AF_INET6, (const struct sockaddr *)&b, sizeof b);
}

unsigned test_ports(unsigned n)
{
    struct wp_rng rng = {wp_rng_secret()};
    unsigned span = range_begins() - LOWEST - n;

    for (int i = 0; i < TRIES; i++) {
        unsigned first = LOWEST + (unsigned)wp_rng_below(&rng, span), k = 0;

        while (k < n && is_free(first + k))
            k++;
        if (k == n)
            return first;
    }
    EXPECT_TRUE("free ports", 0);
    return LOWEST;
}
