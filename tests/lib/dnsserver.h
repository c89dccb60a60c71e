/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/dnsserver.h - a name server on loopback (UDP), inside the test's own loop.  It gives
 * every name the same address, in one of several moods. Its memory is the C library's, so that a
 * test may make every wp_malloc() fail.
 */
#ifndef WP_TESTS_LIB_DNSSERVER_H
#define WP_TESTS_LIB_DNSSERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum dns_mood {
    DNS_RIGHT,   /* A: 127.0.0.last; AAAA: no records */
    DNS_V6_ONLY, /* AAAA: ::last; A: no records */
    DNS_EMPTY,   /* NOERROR without records */
    DNS_NXDOMAIN,
    DNS_SERVFAIL,
    DNS_SILENT,
    DNS_HELD, /* answers when dns_server_release() is called */
};

struct dns_server {
    uv_udp_t udp;
    enum dns_mood mood;
    uint8_t last;
    uint32_t ttl;
    unsigned asked; /* for A records; a question that is sent again is the same one */
    uint8_t id[2];  /* of the last one */
    char name[256]; /* asked for last */
    uint16_t port;
    char address[32]; /* "127.0.0.1:port" */
    bool closed;
    struct {
        uint8_t bytes[512];
        size_t n;
        struct sockaddr_storage from;
    } held[8];
    unsigned n_held;
    char buffer[2048];
};

int dns_server_start(struct dns_server *s, uv_loop_t *loop, uint8_t last, uint32_t ttl);
void dns_server_release(struct dns_server *s); /* DNS_HELD becomes DNS_RIGHT */
void dns_server_stop(struct dns_server *s);    /* run the loop afterwards */

#endif
