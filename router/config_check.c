/* SPDX-License-Identifier: Apache-2.0 */
#include "router/config_check.h"

#include "adapters/adapter.h"
#include "adapters/tokens/tokens.h"
#include "net/http.h"
#include "net/tls.h"
#include "policies/profile.h"
#include "router/keys.h"
#include "router/tenants.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

static const char id_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@[]-";

int wp_check_address(const char *text, struct wp_err *err)
{
    struct wp_str host;
    uint16_t port;

    if (wp_hostport_parse(wp_str_of(text), &host, &port))
        return 0;
    return wp_fail(err, WP_EINVAL, "want host:port, [v6]:port or :port, got \"%.64s\"", text);
}

int wp_check_url(const char *text, struct wp_err *err)
{
    struct wp_url url;
    const char *why = NULL;

    if (!wp_url_parse(wp_str_of(text), &url, &why))
        return wp_fail(err, WP_EINVAL, "want http://host:port, got \"%.64s\": %s", text, why);
    for (size_t i = 0; i < url.host.n; i++) /* it becomes the worker's id */
        if (!strchr(id_letters, url.host.p[i]))
            return wp_fail(err, WP_EINVAL,
                           "want http://host:port, got \"%.64s\": want letters, digits and .:-_ in "
                           "the host",
                           text);
    return 0;
}

int wp_check_ca(const char *text, struct wp_err *err)
{
    struct wp_tls *tls = NULL;
    int rc = wp_tls_client(&tls, text, err);

    wp_tls_unref(tls);
    return rc;
}

int wp_check_endpoint(const char *text, struct wp_err *err)
{
    struct wp_str host, rest = wp_str_of(text);
    uint16_t port;

    if (wp_str_starts(rest, "ipc://") && rest.n > 6)
        return 0;
    if (wp_str_starts(rest, "tcp://") && wp_hostport_parse((struct wp_str){rest.p + 6, rest.n - 6}, &host, &port) && port)
        return 0;
    return wp_fail(err, WP_EINVAL, "want tcp://host:port or ipc://path, got \"%.64s\"", text);
}

int wp_check_events(const char *text, struct wp_err *err)
{
    return strcmp(text, "none") == 0 ? 0 : wp_check_endpoint(text, err);
}

int wp_check_id(const char *text, struct wp_err *err)
{
    size_t n = strlen(text);

    if (strspn(text, id_letters) == n && n <= 128)
        return 0;
    return wp_fail(err, WP_EINVAL, "want at most 128 letters, digits and ._:@[]-, got \"%.64s\"",
                   text);
}

int wp_check_path(const char *text, struct wp_err *err)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7F || *p == '#')
            return wp_fail(err, WP_EINVAL, "want a path without blanks, got \"%.64s\"", text);
    return *text == '/'
               ? 0
               : wp_fail(err, WP_EINVAL, "want a path that starts with /, got \"%.64s\"", text);
}

int wp_check_header(const char *text, struct wp_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~";

    if (strspn(text, letters) == strlen(text) && strlen(text) <= 128)
        return 0;
    return wp_fail(err, WP_EINVAL, "want the name of a header, got \"%.64s\"", text);
}

/* One of known[n]; later[n_later] are the names of later versions. */
static int one_of(const char *text, const char *what, const char *const known[], size_t n,
                  const char *const later[], size_t n_later, struct wp_err *err)
{
    const char *near = wp_str_nearest(wp_str_of(text), known, n);
    char all[256] = "";
    size_t at = 0;

    for (size_t i = 0; i < n_later; i++)
        if (strcmp(text, later[i]) == 0)
            return wp_fail(err, WP_EINVAL, "%s \"%s\" is not in this version", what, text);
    for (size_t i = 0; i < n && at < sizeof all; i++) {
        if (strcmp(text, known[i]) == 0)
            return 0;
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", known[i]);
    }
    if (near)
        return wp_fail(err, WP_EINVAL, "unknown %s \"%.64s\"; did you mean \"%s\"? known: %s", what,
                       text, near, all);
    return wp_fail(err, WP_EINVAL, "unknown %s \"%.64s\"; known: %s", what, text, all);
}

const char *wp_known_engine(size_t i)
{
    return wp_engines[i] ? wp_engines[i]->name : NULL;
}

const char *wp_known_tokenizer(size_t i)
{
    return wp_tokenizers[i] ? wp_tokenizers[i]->name : NULL;
}

int wp_check_engine(const char *text, struct wp_err *err)
{
    static const char *const later[] = {"sglang", "trtllm", "llamacpp"};
    const char *known[16];
    size_t n = 0;

    for (; n < 16 && wp_engines[n]; n++)
        known[n] = wp_engines[n]->name;
    return one_of(text, "engine", known, n, later, 3, err);
}

int wp_check_tokenizer(const char *text, struct wp_err *err)
{
    static const char *const later[] = {"bpe"};
    const char *known[8];
    size_t n = 0;

    for (; n < 8 && wp_tokenizers[n]; n++)
        known[n] = wp_tokenizers[n]->name;
    return one_of(text, "tokenizer", known, n, later, 1, err);
}

int wp_check_policy(const char *text, struct wp_err *err)
{
    const char *known[32];
    size_t n = 0;

    for (; n < 32 && wp_policies[n]; n++)
        known[n] = wp_policies[n]->name;
    return one_of(text, "policy", known, n, NULL, 0, err);
}

int wp_check_profile(const char *text, struct wp_err *err)
{
    struct wp_profile p;

    return wp_profile_find(text, &p, err);
}

bool wp_is_loopback(const char *address)
{
    struct wp_str host;
    uint16_t port;
    char text[64];
    struct in_addr v4;
    struct in6_addr v6;

    if (!wp_hostport_parse(wp_str_of(address), &host, &port) || host.n == 0 ||
        host.n >= sizeof text)
        return false;
    memcpy(text, host.p, host.n);
    text[host.n] = 0;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, text, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return wp_str_iis(host, "localhost");
}

static void check_tls(struct wp_conf *conf, const struct wp_config *c)
{
    bool cert = *c->listen.tls.cert, key = *c->listen.tls.key;

    if (cert != key)
        wp_conf_error(conf, cert ? "listen.tls.key" : "listen.tls.cert",
                      "want a PEM file beside listen.tls.%s, got nothing", cert ? "cert" : "key");
    if (!cert && (*c->listen.tls.client_ca || c->listen.tls.n_more || c->listen.tls.admin))
        wp_conf_error(conf, "listen.tls.cert", "want a PEM file beside the others of listen.tls, got nothing");
}

static void check_keys(struct wp_conf *conf, const struct wp_config *c)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_keys *keys = NULL;
    int rc = wp_keys_create(&keys, c->listen.api_keys, NULL, &err);

    if (rc == WP_ENOMEM)
        conf->no_memory = true;
    else if (rc < 0)
        wp_conf_error(conf, "listen.api_keys_file", "%s", err.text);
    wp_keys_destroy(keys);
}

static void check_listen(struct wp_conf *conf, const struct wp_config *c)
{
    struct wp_str host;
    uint16_t api = 0, admin = 0;

    wp_hostport_parse(wp_str_of(c->listen.api), &host, &api);
    wp_hostport_parse(wp_str_of(c->listen.admin), &host, &admin);
    if (*c->listen.api == 0)
        wp_conf_error(conf, "listen.api", "want host:port, got nothing");
    if (*c->listen.admin == 0)
        wp_conf_error(conf, "listen.admin", "want host:port, got nothing");
    if (api && api == admin)
        wp_conf_error(conf, "listen.admin", "want another port than listen.api, got %u", admin);
    check_tls(conf, c);
    check_keys(conf, c);
    if (c->listen.insecure)
        return;
    if (*c->listen.api && !wp_is_loopback(c->listen.api) && !c->listen.api_keys[0] &&
        !*c->listen.tls.client_ca && !wp_conf_given(conf, "listen.api_keys_file"))
        wp_conf_error(conf, "listen.api",
                      "%s may be reached from other hosts: want listen.api_keys_file, "
                      "listen.tls.client_ca, or listen.insecure: true",
                      c->listen.api);
    if (*c->listen.admin && !wp_is_loopback(c->listen.admin) && !*c->listen.admin_key &&
        !wp_conf_given(conf, "listen.admin_key_file"))
        wp_conf_error(conf, "listen.admin",
                      "%s may be reached from other hosts: want listen.admin_key_file, or "
                      "listen.insecure: true",
                      c->listen.admin);
}

int wp_config_name_worker(struct wp_config_worker *w)
{
    struct wp_url url;
    const char *why;
    char text[300];

    if (*w->id || !wp_url_parse(wp_str_of(w->url), &url, &why))
        return 0;
    if (memchr(url.host.p, ':', url.host.n))
        snprintf(text, sizeof text, "[" WP_STR_FMT "]:%u", WP_STR_ARG(url.host), url.port);
    else
        snprintf(text, sizeof text, WP_STR_FMT ":%u", WP_STR_ARG(url.host), url.port);
    wp_free(w->id);
    w->id = wp_strdup(text);
    return w->id ? 0 : WP_ENOMEM;
}

/* wp_str_nearest and maps aside: a fleet is some thousand workers, so ids are sorted and neighbours
 * compared. */
static int by_id(const void *a, const void *b)
{
    const struct wp_config_worker *const *x = a, *const *y = b;
    int order = strcmp((*x)->id, (*y)->id);

    return order ? order : (*x > *y) - (*x < *y);
}

static void check_workers(struct wp_conf *conf, struct wp_config *c)
{
    const struct wp_config_worker **sorted = wp_calloc(c->n_workers, sizeof(void *));
    char key[64];

    if (!sorted) {
        conf->no_memory = true;
        return;
    }
    for (size_t i = 0; i < c->n_workers; i++) {
        if (wp_config_name_worker(&c->workers[i]) < 0) {
            conf->no_memory = true;
            goto done;
        }
        sorted[i] = &c->workers[i];
    }
    qsort(sorted, c->n_workers, sizeof(void *), by_id);
    for (size_t i = 1; i < c->n_workers; i++)
        if (*sorted[i]->id && strcmp(sorted[i]->id, sorted[i - 1]->id) == 0) {
            snprintf(key, sizeof key, "workers.%zu.id", (size_t)(sorted[i] - c->workers));
            wp_conf_error(conf, key, "want an id of its own, got \"%s\" as workers.%zu has",
                          sorted[i]->id, (size_t)(sorted[i - 1] - c->workers));
        }
done:
    wp_free(sorted);
}

static bool named(const struct wp_config_model *m, const char *name)
{
    bool found = strcmp(m->name, name) == 0;

    for (char **a = m->aliases; *a; a++)
        found = found || strcmp(*a, name) == 0;
    return found;
}

/* A name may stand once: not as an alias of itself, nor twice among the aliases. */
static void check_aliases(struct wp_conf *conf, const struct wp_config_model *m, size_t i)
{
    char key[64];

    snprintf(key, sizeof key, "models.%zu.aliases", i);
    for (char **a = m->aliases; *a; a++) {
        bool twice = strcmp(*a, m->name) == 0;

        for (char **b = m->aliases; b < a; b++)
            twice = twice || strcmp(*a, *b) == 0;
        if (twice)
            wp_conf_error(conf, key, "want names of its own, got \"%s\" twice", *a);
    }
}

static void check_models(struct wp_conf *conf, const struct wp_config *c)
{
    char key[64];

    for (size_t i = 0; i < c->n_models; i++) {
        check_aliases(conf, &c->models[i], i);
        if (!c->models[i].wake.command[0] || !*c->models[i].wake.url)
            continue;
        snprintf(key, sizeof key, "models.%zu.wake.url", i);
        wp_conf_error(conf, key, "want either command or url, got both");
    }
    for (size_t i = 1; i < c->n_models; i++)
        for (size_t j = 0; j < i; j++) {
            const char *twice = named(&c->models[j], c->models[i].name) ? c->models[i].name : NULL;

            for (char **a = c->models[i].aliases; !twice && *a; a++)
                twice = named(&c->models[j], *a) ? *a : NULL;
            if (!twice || !*twice)
                continue;
            snprintf(key, sizeof key, "models.%zu.name", i);
            wp_conf_error(conf, key, "want names of its own, got \"%s\" as models.%zu has", twice,
                          j);
        }
}

static void check_tenants(struct wp_conf *conf, const struct wp_config *c)
{
    for (char **w = c->tenants.weights; *w; w++) {
        const char *eq = strchr(*w, '=');
        struct wp_str name = {*w, (size_t)(eq - *w)};
        double weight;
        char key[160];

        snprintf(key, sizeof key, "tenants.weights.%.*s", (int)(name.n < 128 ? name.n : 128), name.p);
        if (!wp_tenant_name_ok(name))
            wp_conf_error(conf, key, "want a name of 1 to %d printable characters without quotes", WP_TENANT_NAME);
        else if (!wp_tenant_weight(eq + 1, &weight))
            wp_conf_error(conf, key, "want a number from 0.001 to 1000000, got \"%.64s\"", eq + 1);
    }
}

enum { CACHES_LEAST = 16 << 20 };

static void check_caches(struct wp_conf *conf, const struct wp_config *c)
{
    if (c->limits.caches_bytes && c->limits.caches_bytes < CACHES_LEAST)
        wp_conf_error(conf, "limits.caches_bytes", "want 0, or at least 16Mi, got %llu", (unsigned long long)c->limits.caches_bytes);
}

void wp_config_check(struct wp_conf *conf, struct wp_config *c)
{
    check_listen(conf, c);
    check_workers(conf, c);
    check_models(conf, c);
    check_tenants(conf, c);
    check_caches(conf, c);
    if (c->limits.bodies_total_bytes < c->limits.body_bytes)
        wp_conf_error(conf, "limits.bodies_total_bytes",
                      "want at least limits.body_bytes, %llu, got %llu",
                      (unsigned long long)c->limits.body_bytes,
                      (unsigned long long)c->limits.bodies_total_bytes);
}
