/* SPDX-License-Identifier: Apache-2.0 */
#include "net/hostname.h"

#include <uv.h>

bool wp_hostname_plain(struct wp_str host, char out[WP_HOSTNAME_BYTES + 1])
{
    if (host.n == 0 || host.n > WP_HOSTNAME_BYTES)
        return false;
    for (size_t i = 0; i < host.n; i++) {
        unsigned char c = (unsigned char)host.p[i];

        if (c <= ' ' || c == 0x7f)
            return false;
        out[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    out[host.n] = 0;
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

size_t wp_hostname_known(const char *name, struct sockaddr_storage addr[2])
{
    if (uv_ip4_addr(name, 0, (struct sockaddr_in *)&addr[0]) == 0 ||
        uv_ip6_addr(name, 0, (struct sockaddr_in6 *)&addr[0]) == 0)
        return 1;
    if (strcmp(name, "localhost") != 0 && strcmp(name, "localhost.") != 0 &&
        !ends_with(name, ".localhost"))
        return 0;
    uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *)&addr[0]);
    uv_ip6_addr("::1", 0, (struct sockaddr_in6 *)&addr[1]);
    return 2;
}
