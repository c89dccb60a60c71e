/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include "net/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <string.h>

/* What came first in OpenSSL's queue, in its words or the system's. */
static const char *reason(void)
{
    unsigned long first = ERR_peek_error();
    const char *text = ERR_SYSTEM_ERROR(first) ? wp_strerror(-ERR_GET_REASON(first)) : ERR_reason_error_string(first);

    return text ? text : "no reason given";
}

static int bad_file(struct wp_err *err, const char *what, const char *path)
{
    return wp_fail(err, WP_EINVAL, "%s %s: %s", what, path, reason());
}

static SSL_CTX *context_new(const SSL_METHOD *method)
{
    SSL_CTX *c = SSL_CTX_new(method);

    if (!c)
        return NULL;
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    return c;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *n_out,
                   const unsigned char *in, unsigned n_in, void *arg)
{
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *chosen;

    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&chosen, n_out, ours, sizeof ours - 1, in, n_in) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int on_name(SSL *ssl, int *alert, void *arg)
{
    struct wp_tls *t = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    (void)alert;
    for (size_t i = 0; name && i < t->n; i++)
        if (X509_check_host(SSL_CTX_get0_certificate(t->context[i]), name, 0, 0, NULL) == 1) {
            SSL_set_SSL_CTX(ssl, t->context[i]);
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_OK;
}

static int load_pair(SSL_CTX *c, const struct wp_tls_pair *pair, struct wp_err *err)
{
    if (SSL_CTX_use_certificate_chain_file(c, pair->cert) != 1)
        return bad_file(err, "certificate", pair->cert);
    if (SSL_CTX_use_PrivateKey_file(c, pair->key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(c) != 1)
        return bad_file(err, "key", pair->key);
    return 0;
}

static int ask_clients(SSL_CTX *c, const char *client_ca, struct wp_err *err)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(client_ca);

    if (!names || SSL_CTX_load_verify_locations(c, client_ca, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return bad_file(err, "client authorities", client_ca);
    }
    SSL_CTX_set_client_CA_list(c, names);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return 0;
}

static int server_context(struct wp_tls *t, const struct wp_tls_pair *pair, const char *client_ca,
                          struct wp_err *err)
{
    static const unsigned char id[] = "warmpath";
    SSL_CTX *c = context_new(TLS_server_method());
    int rc;

    if (!c)
        return wp_fail(err, WP_ENOMEM, "no memory for TLS");
    t->context[t->n++] = c;
    SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_id_context(c, id, sizeof id - 1);
    SSL_CTX_set_alpn_select_cb(c, on_alpn, NULL);
    SSL_CTX_set_tlsext_servername_callback(c, on_name);
    SSL_CTX_set_tlsext_servername_arg(c, t);
    rc = load_pair(c, pair, err);
    return rc == 0 && client_ca ? ask_clients(c, client_ca, err) : rc;
}

static struct wp_tls *tls_new(size_t n, bool server)
{
    struct wp_tls *t = wp_calloc(1, sizeof *t + n * sizeof t->context[0]);

    if (t) {
        t->refs = 1;
        t->server = server;
        wp_list_init(&t->link);
    }
    ERR_clear_error();
    return t;
}

static void tls_free(struct wp_tls *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        SSL_CTX_free(t->context[i]);
    wp_free(t->ca);
    wp_free(t);
}

int wp_tls_server(struct wp_tls **out, const struct wp_tls_pair pair[], size_t n,
                  const char *client_ca, struct wp_err *err)
{
    struct wp_tls *t = tls_new(n, true);
    int rc = 0;

    if (!t)
        return wp_fail(err, WP_ENOMEM, "no memory for TLS");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = server_context(t, &pair[i], client_ca, err);
    ERR_clear_error();
    if (rc < 0)
        tls_free(t);
    else
        *out = t;
    return rc;
}

/* What clients of one file share, as long as one of them lives.  A system's authorities are a megabyte. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wp_list clients = {&clients, &clients};

static bool same_file(const struct wp_tls *t, const char *ca, const struct stat *is)
{
    return strcmp(t->ca, ca) == 0 && t->stamp.st_ino == is->st_ino && t->stamp.st_size == is->st_size &&
           t->stamp.st_mtim.tv_sec == is->st_mtim.tv_sec && t->stamp.st_mtim.tv_nsec == is->st_mtim.tv_nsec;
}

static struct wp_tls *find_client(const char *ca, const struct stat *is)
{
    WP_LIST_EACH(&clients, it)
    {
        struct wp_tls *t = WP_CONTAINER(it, struct wp_tls, link);

        if (same_file(t, ca, is))
            return wp_tls_ref(t);
    }
    return NULL;
}

static int client_new(struct wp_tls **out, const char *ca, struct wp_err *err)
{
    struct wp_tls *t = tls_new(1, false);
    SSL_CTX *c = t ? context_new(TLS_client_method()) : NULL;
    int rc = 0;

    if (c)
        t->context[t->n++] = c;
    if (!c || !(t->ca = wp_strdup(ca ? ca : "")))
        rc = wp_fail(err, WP_ENOMEM, "no memory for TLS");
    else if (ca && SSL_CTX_load_verify_locations(c, ca, NULL) != 1)
        rc = bad_file(err, "authorities", ca);
    else if (!ca && SSL_CTX_set_default_verify_paths(c) != 1)
        rc = wp_fail(err, WP_EINVAL, "the system's authorities: %s", reason());
    ERR_clear_error();
    if (rc < 0) {
        tls_free(t);
        return rc;
    }
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
    *out = t;
    return 0;
}

int wp_tls_client(struct wp_tls **out, const char *ca, struct wp_err *err)
{
    struct stat is = {0};
    int rc = 0;

    if (ca)
        stat(ca, &is); /* a missing one is told by who reads it */
    pthread_mutex_lock(&lock);
    *out = find_client(ca ? ca : "", &is);
    if (!*out) {
        rc = client_new(out, ca, err);
        if (rc == 0) {
            (*out)->stamp = is;
            wp_list_push(&clients, &(*out)->link);
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

struct wp_tls *wp_tls_ref(struct wp_tls *t)
{
    if (t)
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void wp_tls_unref(struct wp_tls *t)
{
    bool last;

    if (!t)
        return;
    pthread_mutex_lock(&lock); /* nobody finds it between the last and its end */
    last = atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1;
    if (last)
        wp_list_del(&t->link);
    pthread_mutex_unlock(&lock);
    if (last)
        tls_free(t);
}
