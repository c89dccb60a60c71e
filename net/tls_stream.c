/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path of a read: what came lies in the loop's buffer and OpenSSL reads it from there (come); each record is
 * unwrapped into a buffer of the thread and handed on.  Only what nobody may have yet, because reading was
 * stopped, is kept.  Of a write: each piece is wrapped where it lies, into `out`, and goes to the socket in one call.  Once the
 * kernel takes no more, pieces wait unwrapped (a blob is referenced), so that a large body is never there twice.
 *
 * A FIN without the TLS end before it: a client's is taken for an end, because requests are framed and many clients
 * close so; a server's is an error, because an answer may end there by its framing.
 */
#include "net/tls_stream.h"

#include <arpa/inet.h>
#include <assert.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

enum {
    RECORD = 16384, FLUSH_BYTES = 65536, KEEP_BYTES = 4096,
    UPDATES_MAX = 64, UPDATES_US = 60000000, /* key updates of the peer, and the time that they may come in */
};

struct piece {
    struct wp_list link;
    struct wp_blob *blob;
    const char *p;
    size_t n;
    char copy[];
};

/* --- between OpenSSL and the session --- */

static int bio_read(BIO *b, char *to, int n)
{
    struct wp_tls_session *t = BIO_get_data(b);
    size_t take = (size_t)n < t->come.n ? (size_t)n : t->come.n;

    BIO_clear_retry_flags(b);
    if (take == 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    memcpy(to, t->come.p, take);
    t->come.p += take;
    t->come.n -= take;
    return (int)take;
}

static int bio_write(BIO *b, const char *from, int n)
{
    struct wp_tls_session *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    return wp_buf_add(&t->out, from, (size_t)n) < 0 ? -1 : n;
}

static long bio_ctrl(BIO *b, int what, long n, void *p)
{
    (void)b;
    (void)n;
    (void)p;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method;

static void method_make(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "warmpath");
    if (method) {
        BIO_meth_set_read(method, bio_read);
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_ctrl(method, bio_ctrl);
    }
}

static BIO *bio_new(struct wp_tls_session *t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *b;

    pthread_once(&once, method_make);
    b = method ? BIO_new(method) : NULL;
    if (b) {
        BIO_set_data(b, t);
        BIO_set_init(b, 1);
    }
    return b;
}

/* --- the session --- */

static int flush(struct wp_tls_session *t)
{
    struct wp_str all = {t->out.p, t->out.n};
    int rc = all.n ? wp_raw_write(t->stream, &all, 1, -1, NULL) : 0;

    t->out.n = 0;
    if (t->out.cap > KEEP_BYTES)
        wp_buf_fini(&t->out);
    return rc;
}

static const char *reason(const struct wp_tls_session *t)
{
    long verdict = SSL_get_verify_result(t->ssl);
    const char *text = ERR_reason_error_string(ERR_peek_error());

    if (verdict != X509_V_OK)
        return X509_verify_cert_error_string(verdict);
    return text ? text : "tls";
}

/* The last word of this session; what TLS has to say about it is sent. */
static void failed(struct wp_tls_session *t, int rc, const char *why)
{
    struct wp_stream *s = t->stream;
    bool shaking = t->state == WP_TLS_SHAKING;

    t->state = WP_TLS_FAILED;
    t->why = why;
    flush(t);
    s->reading = false;
    wp_raw_read_stop(s);
    if (shaking && !t->tls->server)
        s->ops->on_connect(s, rc);
    else
        s->ops->on_error(s, rc);
}

/* True when the session is open, and its owner still wants it. */
static bool shake(struct wp_tls_session *t)
{
    struct wp_stream *s = t->stream;
    int rc;

    ERR_clear_error();
    rc = SSL_do_handshake(t->ssl);
    if (rc != 1 && SSL_get_error(t->ssl, rc) != SSL_ERROR_WANT_READ) {
        failed(t, WP_EPROTO, reason(t));
        return false;
    }
    if (flush(t) < 0 || (rc != 1 && t->fin)) {
        failed(t, WP_ECONNRESET, "tls handshake");
        return false;
    }
    if (rc != 1)
        return false;
    t->state = WP_TLS_OPEN;
    if (!s->reading)
        wp_raw_read_stop(s);
    if (!t->tls->server)
        s->ops->on_connect(s, 0);
    if (!s->closing && !wp_list_empty(&t->plain))
        wp_tls_room(t);
    return !s->closing && t->state == WP_TLS_OPEN;
}

/* Each costs a new key and an answer, and OpenSSL takes any number of them. */
static void on_message(int written, int version, int type, const void *p, size_t n, SSL *ssl, void *arg)
{
    struct wp_tls_session *t = arg;

    (void)version;
    (void)ssl;
    t->updates += !written && type == SSL3_RT_HANDSHAKE && n > 0 && *(const uint8_t *)p == SSL3_MT_KEY_UPDATE;
}

static bool too_many_updates(struct wp_tls_session *t)
{
    uint64_t now = wp_loop_now_us(t->stream->loop);

    if (t->updates <= UPDATES_MAX)
        return false;
    if (now - t->updates_us < UPDATES_US)
        return true;
    t->updates_us = now;
    t->updates = 0;
    return false;
}

static void ended(struct wp_tls_session *t)
{
    struct wp_stream *s = t->stream;

    s->reading = false;
    wp_raw_read_stop(s);
    if (t->state == WP_TLS_OPEN && !t->tls->server) {
        failed(t, WP_ECONNRESET, "ended without the end of TLS");
        return;
    }
    s->eof = true;
    s->ops->on_eof(s);
}

static void deliver(struct wp_tls_session *t)
{
    static _Thread_local char plain[RECORD];
    struct wp_stream *s = t->stream;

    while (!s->closing && s->reading && t->state == WP_TLS_OPEN) {
        int n, what;

        ERR_clear_error();
        n = SSL_read(t->ssl, plain, sizeof plain);
        if (too_many_updates(t)) {
            failed(t, WP_EPROTO, "too many key updates");
            return;
        }
        if (n > 0) {
            s->ops->on_read(s, plain, (size_t)n);
            continue;
        }
        what = SSL_get_error(t->ssl, n);
        if (what == SSL_ERROR_WANT_READ)
            break;
        if (what != SSL_ERROR_ZERO_RETURN) {
            failed(t, WP_EPROTO, reason(t));
            return;
        }
        t->state = WP_TLS_CLOSED;
    }
    if (s->closing || t->state == WP_TLS_FAILED)
        return;
    if (flush(t) < 0)
        failed(t, WP_ECONNRESET, "tls");
    else if (s->reading && !s->eof && (t->state == WP_TLS_CLOSED || t->fin))
        ended(t);
}

/* p[n] has come behind what is kept. */
static void drive(struct wp_tls_session *t, const char *p, size_t n)
{
    bool behind = t->kept.n > 0;

    if (t->stream->closing || t->state == WP_TLS_FAILED)
        return;
    if (behind && n > 0 && wp_buf_add(&t->kept, p, n) < 0) {
        failed(t, WP_ENOMEM, "tls");
        return;
    }
    t->come = behind ? (struct wp_str){t->kept.p, t->kept.n} : (struct wp_str){p, n};
    if (t->state != WP_TLS_SHAKING || shake(t))
        deliver(t);
    if (behind)
        wp_buf_consume(&t->kept, t->kept.n - t->come.n);
    else if (t->come.n > 0 && wp_buf_add(&t->kept, t->come.p, t->come.n) < 0 &&
             !t->stream->closing)
        failed(t, WP_ENOMEM, "tls");
    if (t->kept.n == 0)
        wp_buf_fini(&t->kept);
    t->come = (struct wp_str){0};
}

void wp_tls_began(struct wp_tls_session *t)
{
    int rc = wp_raw_read_start(t->stream);

    if (rc < 0)
        failed(t, rc, "tls");
    else if (!t->tls->server)
        drive(t, NULL, 0);
}

void wp_tls_bytes(struct wp_tls_session *t, const char *p, size_t n)
{
    drive(t, p, n);
}

void wp_tls_fin(struct wp_tls_session *t)
{
    t->fin = true;
    drive(t, NULL, 0);
}

static void on_again(struct wp_timer *timer)
{
    drive(timer->arg, NULL, 0);
}

void wp_tls_resume(struct wp_tls_session *t)
{
    if (t->kept.n > 0 || t->fin || t->state == WP_TLS_CLOSED || SSL_has_pending(t->ssl))
        wp_timer_in(t->stream->loop, &t->again, 0);
}

/* --- writing --- */

static bool blocked(const struct wp_tls_session *t)
{
    return t->state == WP_TLS_SHAKING || t->stream->writes > 0;
}

/* Wraps as much of p[n] as the socket may take soon; how much, or an error. */
static ssize_t wrap(struct wp_tls_session *t, const char *p, size_t n)
{
    size_t at = 0;

    while (at < n && !blocked(t)) {
        size_t more = n - at < RECORD ? n - at : RECORD;
        int rc;

        ERR_clear_error();
        rc = SSL_write(t->ssl, p + at, (int)more);
        if (rc <= 0)
            return WP_EPROTO;
        at += (size_t)rc;
        if (t->out.n >= FLUSH_BYTES && (rc = flush(t)) < 0)
            return rc;
    }
    return (ssize_t)at;
}

static int keep(struct wp_tls_session *t, const char *p, size_t n, struct wp_blob *blob)
{
    struct piece *w = wp_malloc(sizeof *w + (blob ? 0 : n));

    if (!w)
        return WP_ENOMEM;
    *w = (struct piece){.p = p, .n = n};
    if (blob) {
        w->blob = wp_blob_ref(blob);
    } else {
        memcpy(w->copy, p, n);
        w->p = w->copy;
    }
    wp_list_push(&t->plain, &w->link);
    t->stream->queued += n;
    return 0;
}

static void piece_free(struct piece *w)
{
    wp_list_del(&w->link);
    wp_blob_unref(w->blob);
    wp_free(w);
}

int wp_tls_write(struct wp_tls_session *t, const struct wp_str piece[], size_t n, int held,
                 struct wp_blob *blob)
{
    if (t->state == WP_TLS_FAILED)
        return WP_ECONNRESET;
    for (size_t i = 0; i < n; i++) {
        ssize_t done = wp_list_empty(&t->plain) ? wrap(t, piece[i].p, piece[i].n) : 0;
        int rc = done < 0 ? (int)done : 0;

        if (rc == 0 && (size_t)done < piece[i].n)
            rc = keep(t, piece[i].p + done, piece[i].n - (size_t)done,
                      (int)i == held ? blob : NULL);
        if (rc < 0)
            return rc;
    }
    return flush(t);
}

static int say_end(struct wp_tls_session *t)
{
    ERR_clear_error();
    if (t->state == WP_TLS_OPEN || t->state == WP_TLS_CLOSED) {
        SSL_shutdown(t->ssl);
        flush(t); /* a peer that has gone is told by reading */
    }
    return wp_raw_shutdown(t->stream);
}

void wp_tls_room(struct wp_tls_session *t)
{
    while (!wp_list_empty(&t->plain) && !blocked(t)) {
        struct piece *w = WP_CONTAINER(t->plain.next, struct piece, link);
        ssize_t done = wrap(t, w->p, w->n);

        if (done < 0) {
            failed(t, (int)done, "tls");
            return;
        }
        w->p += done;
        w->n -= (size_t)done;
        t->stream->queued -= (size_t)done;
        if (w->n == 0)
            piece_free(w);
    }
    if (flush(t) < 0) {
        failed(t, WP_ECONNRESET, "tls");
        return;
    }
    if (t->fin_due && wp_list_empty(&t->plain)) {
        t->fin_due = false;
        say_end(t);
    }
}

int wp_tls_shutdown(struct wp_tls_session *t)
{
    if (wp_list_empty(&t->plain))
        return say_end(t);
    t->fin_due = true;
    return 0;
}

void wp_tls_close(struct wp_tls_session *t, bool reset)
{
    wp_timer_stop(t->stream->loop, &t->again);
    if (!reset && !t->stream->fin_sent && t->stream->queued == 0 &&
        (t->state == WP_TLS_OPEN || t->state == WP_TLS_CLOSED)) {
        ERR_clear_error();
        SSL_shutdown(t->ssl);
        flush(t);
    }
}

/* --- its life --- */

void wp_tls_free(struct wp_tls_session *t)
{
    while (!wp_list_empty(&t->plain))
        piece_free(WP_CONTAINER(t->plain.next, struct piece, link));
    SSL_free(t->ssl);
    wp_buf_fini(&t->kept);
    wp_buf_fini(&t->out);
    wp_tls_unref(t->tls);
    wp_free(t);
}

/* Whom the peer must prove to be: an address or a name. */
static bool expect(SSL *ssl, struct wp_str name)
{
    static const unsigned char alpn[] = "\x08http/1.1";
    char host[256];
    unsigned char address[16];

    if (name.n > 0 && name.p[name.n - 1] == '.')
        name.n--;
    if (name.n >= sizeof host)
        return false;
    memcpy(host, name.p, name.n);
    host[name.n] = '\0';
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1) {
        if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) != 1)
            return false;
    } else if (SSL_set1_host(ssl, host) != 1 || SSL_set_tlsext_host_name(ssl, host) != 1) {
        return false;
    }
    return SSL_set_alpn_protos(ssl, alpn, sizeof alpn - 1) == 0;
}

int wp_stream_tls(struct wp_stream *s, struct wp_tls *tls, struct wp_str name)
{
    struct wp_tls_session *t = wp_calloc(1, sizeof *t);
    BIO *bio;

    assert(!s->tls);
    if (!t)
        return WP_ENOMEM;
    t->stream = s;
    t->tls = wp_tls_ref(tls);
    wp_list_init(&t->plain);
    wp_timer_init(&t->again, on_again, t);
    ERR_clear_error();
    t->ssl = SSL_new(tls->context[0]);
    bio = t->ssl ? bio_new(t) : NULL;
    if (!bio || (!tls->server && !expect(t->ssl, name))) {
        BIO_free(bio);
        wp_tls_free(t);
        return WP_ENOMEM;
    }
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_msg_callback(t->ssl, on_message);
    SSL_set_msg_callback_arg(t->ssl, t);
    t->updates_us = wp_loop_now_us(s->loop);
    if (tls->server)
        SSL_set_accept_state(t->ssl);
    else
        SSL_set_connect_state(t->ssl);
    s->tls = t;
    if (s->connected)
        wp_tls_began(t);
    return 0;
}

bool wp_stream_shaking(const struct wp_stream *s)
{
    return s->tls && s->tls->state == WP_TLS_SHAKING;
}

const char *wp_stream_tls_why(const struct wp_stream *s)
{
    return s->tls ? s->tls->why : NULL;
}
