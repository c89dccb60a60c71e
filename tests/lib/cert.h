/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/cert.h - certificates for a test: an authority and what it signs, as PEM files in a folder of their own. */
#ifndef WP_TESTS_CERT_H
#define WP_TESTS_CERT_H

struct certs {
    char dir[64];
    struct {
        char cert[96], key[96];
    } ca, server, other, stranger; /* server: localhost and 127.0.0.1; other: other.test; stranger: localhost, signed by itself */
};

void certs_make(struct certs *c); /* fails the test when it cannot */
void certs_remove(const struct certs *c);

#endif
