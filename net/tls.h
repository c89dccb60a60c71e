/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/tls.h - TLS 1.2 and 1.3 by OpenSSL: the settings that many streams share (net/stream.h puts them on one).
 *
 * A wp_tls is made once from files, never changes, and is counted: a reload makes a new one for the connections to come, and
 * those that are open keep theirs.  The server's side chooses its certificate by the name that the client sends (SNI): the
 * first one whose names match it, else the first of all.  It offers "h2" and "http/1.1" by ALPN, and goes on with a client that
 * offers none; one that offers only others is refused (RFC 7301 3.2).  The client's side checks the chain and
 * the name, always: there is no switch that turns this off.  Old versions, renegotiation and compression are off.
 *
 * Threads: reading and counting from any; OpenSSL locks what streams on several loops share.
 */
#ifndef WP_NET_TLS_H
#define WP_NET_TLS_H

#include "base/err.h"

#include <stddef.h>

struct wp_tls;

struct wp_tls_pair {  /* paths of PEM files */
    const char *cert; /* the server's own first, then what leads to its authority */
    const char *key;
};

/*
 * n >= 1 pairs; client_ca: who connects must show a certificate that these authorities signed (NULL: nobody is asked).
 * Errors: WP_EINVAL with the file and what is wrong with it (unreadable, no PEM, key of another certificate); WP_ENOMEM.
 */
int wp_tls_server(struct wp_tls **out, const struct wp_tls_pair pair[], size_t n, const char *client_ca, struct wp_err *err);
/*
 * ca: a file of authorities instead of the system's (NULL: those that OpenSSL was built for, or $SSL_CERT_FILE).  Who asks for the same file, as long
 * as it has not changed, gets the same settings.  Errors as above.
 */
int wp_tls_client(struct wp_tls **out, const char *ca, struct wp_err *err);

struct wp_tls *wp_tls_ref(struct wp_tls *t); /* NULL gives NULL */
void wp_tls_unref(struct wp_tls *t);         /* NULL does nothing */

#endif
