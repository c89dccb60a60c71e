/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cert.h"

#include "tests/lib/test.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <unistd.h>

static void add(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *e;

    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    EXPECT_TRUE("extension", e && X509_add_ext(x, e, -1) == 1);
    X509_EXTENSION_free(e);
}

/* Signed by issuer with its key, or by itself when there is none. */
static X509 *make(EVP_PKEY *key, const char *name, const char *alt, X509 *issuer, EVP_PKEY *by)
{
    static long serial = 1;
    X509 *x = X509_new();
    X509_NAME *subject = X509_get_subject_name(x);

    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : subject);
    X509_set_pubkey(x, key);
    add(x, issuer ? issuer : x, NID_basic_constraints, alt ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (alt)
        add(x, issuer ? issuer : x, NID_subject_alt_name, alt);
    EXPECT_TRUE("signed", X509_sign(x, by ? by : key, EVP_sha256()) > 0);
    return x;
}

static void save(const char *dir, const char *name, char cert[96], char key_path[96], X509 *x, EVP_PKEY *key)
{
    FILE *f;

    snprintf(cert, 96, "%s/%s.pem", dir, name);
    snprintf(key_path, 96, "%s/%s.key", dir, name);
    f = fopen(cert, "w");
    EXPECT_TRUE("certificate", f && PEM_write_X509(f, x) == 1 && fclose(f) == 0);
    f = fopen(key_path, "w");
    EXPECT_TRUE("key", f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1 && fclose(f) == 0);
}

void certs_make(struct certs *c)
{
    const char *alt = "DNS:localhost,IP:127.0.0.1";
    EVP_PKEY *key[4];
    X509 *x[4];

    snprintf(c->dir, sizeof c->dir, "/tmp/warmpath-certs-XXXXXX");
    EXPECT_TRUE("folder", mkdtemp(c->dir) != NULL);
    for (int i = 0; i < 4; i++)
        key[i] = EVP_EC_gen("P-256");
    x[0] = make(key[0], "test authority", NULL, NULL, NULL);
    x[1] = make(key[1], "localhost", alt, x[0], key[0]);
    x[2] = make(key[2], "other.test", "DNS:other.test", x[0], key[0]);
    x[3] = make(key[3], "localhost", alt, NULL, NULL);
    save(c->dir, "ca", c->ca.cert, c->ca.key, x[0], key[0]);
    save(c->dir, "server", c->server.cert, c->server.key, x[1], key[1]);
    save(c->dir, "other", c->other.cert, c->other.key, x[2], key[2]);
    save(c->dir, "stranger", c->stranger.cert, c->stranger.key, x[3], key[3]);
    for (int i = 0; i < 4; i++) {
        X509_free(x[i]);
        EVP_PKEY_free(key[i]);
    }
}

void certs_remove(const struct certs *c)
{
    const char *files[] = {c->ca.cert, c->ca.key, c->server.cert, c->server.key,
                           c->other.cert, c->other.key, c->stranger.cert, c->stranger.key};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    rmdir(c->dir);
}
