/* SPDX-License-Identifier: Apache-2.0 */
#include "router/keys.h"

#include "base/mem.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { DIGEST = 32, NAME_MAX_BYTES = 64, KEYS_MAX = 100000 };
#define MINUTE_US 60e6
#define LIMIT_MAX UINT64_C(1000000000000)

const char *const wp_key_no_names[] = {"", "requests", "tokens", "at_once"};

struct bucket {
    double level;
    uint64_t as_of_us;
};

/* What a key has used; shared by the configurations that know the key, and by its requests under way. */
struct wp_key_use {
    _Atomic unsigned refs;
    pthread_mutex_t lock;
    struct bucket requests, tokens;
    uint64_t token_limit; /* of the newest configuration */
    uint64_t at_once;
};

struct wp_key {
    char name[NAME_MAX_BYTES + 1], tenant[NAME_MAX_BYTES + 1];
    bool any_tenant;
    int best;
    unsigned char digest[DIGEST];
    char *models;                      /* as written, with commas; NULL: all */
    uint64_t requests, tokens, at_once; /* 0: no limit */
    struct wp_key_use *use;
};

struct wp_keys {
    size_t n;
    struct wp_key key[];
};

static struct wp_key_use *use_ref(struct wp_key_use *u)
{
    atomic_fetch_add_explicit(&u->refs, 1, memory_order_relaxed);
    return u;
}

static void use_unref(struct wp_key_use *u)
{
    if (!u || atomic_fetch_sub_explicit(&u->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&u->lock);
    wp_free(u);
}

static struct wp_key_use *use_new(const struct wp_key *k)
{
    struct wp_key_use *u = wp_calloc(1, sizeof *u);

    if (!u)
        return NULL;
    atomic_init(&u->refs, 1);
    pthread_mutex_init(&u->lock, NULL);
    u->requests.level = (double)k->requests;
    u->tokens.level = (double)k->tokens;
    return u;
}

/* --- lines --- */

static bool hash(struct wp_str s, unsigned char out[DIGEST])
{
    unsigned n = DIGEST;

    return EVP_Digest(s.p, s.n, out, &n, EVP_sha256(), NULL) == 1;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool unhex(struct wp_str s, unsigned char out[DIGEST])
{
    if (s.n != 2 * DIGEST)
        return false;
    for (size_t i = 0; i < DIGEST; i++) {
        int hi = hex(s.p[2 * i]), lo = hex(s.p[2 * i + 1]);

        if (hi < 0 || lo < 0)
            return false;
        out[i] = (unsigned char)(hi << 4 | lo);
    }
    return true;
}

static int take_key(struct wp_key *k, struct wp_str word, size_t nth, struct wp_err *err)
{
    if (!wp_str_starts(word, "sha256:"))
        return hash(word, k->digest) ? 0 : wp_fail(err, WP_ENOMEM, "out of memory");
    if (unhex((struct wp_str){word.p + 7, word.n - 7}, k->digest))
        return 0;
    return wp_fail(err, WP_EINVAL, "key %zu: want sha256: and 64 hex digits", nth);
}

static int take_limit(uint64_t *at, struct wp_str name, struct wp_str value, size_t nth, struct wp_err *err)
{
    if (wp_str_u64(value, at) && *at > 0 && *at <= LIMIT_MAX)
        return 0;
    return wp_fail(err, WP_EINVAL, "key %zu: " WP_STR_FMT ": want a whole number above 0, got \"" WP_STR_FMT "\"", nth, WP_STR_ARG(name),
                   WP_STR_ARG(value));
}

static bool printable(struct wp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 0x7F || s.p[i] == '"' || s.p[i] == '\\')
            return false;
    return s.n > 0;
}

static int take_name(char name[NAME_MAX_BYTES + 1], const char *what, struct wp_str value, size_t nth, struct wp_err *err)
{
    if (!printable(value) || value.n > NAME_MAX_BYTES)
        return wp_fail(err, WP_EINVAL, "key %zu: %s: want 1 to %d printable characters", nth, what, NAME_MAX_BYTES);
    snprintf(name, NAME_MAX_BYTES + 1, WP_STR_FMT, WP_STR_ARG(value));
    return 0;
}

static int take_priority(struct wp_key *k, struct wp_str value, size_t nth, struct wp_err *err)
{
    bool minus = value.n && *value.p == '-';
    struct wp_str digits = {value.p + minus, value.n - minus};
    uint64_t n;

    if (!wp_str_u64(digits, &n) || n > 100)
        return wp_fail(err, WP_EINVAL, "key %zu: priority: want a whole number from -100 to 100", nth);
    k->best = minus ? -(int)n : (int)n;
    return 0;
}

static int take_yes(bool *yes, const char *what, struct wp_str value, size_t nth, struct wp_err *err)
{
    *yes = wp_str_is(value, "yes");
    return *yes || wp_str_is(value, "no") ? 0 : wp_fail(err, WP_EINVAL, "key %zu: %s: want yes or no", nth, what);
}

static int take_word(struct wp_key *k, struct wp_str word, size_t nth, struct wp_err *err)
{
    const char *eq = memchr(word.p, '=', word.n);
    struct wp_str name = {word.p, eq ? (size_t)(eq - word.p) : word.n}, value = {NULL, 0};

    if (eq)
        value = (struct wp_str){eq + 1, word.n - name.n - 1};
    if (eq && wp_str_is(name, "requests"))
        return take_limit(&k->requests, name, value, nth, err);
    if (eq && wp_str_is(name, "tokens"))
        return take_limit(&k->tokens, name, value, nth, err);
    if (eq && wp_str_is(name, "at_once"))
        return take_limit(&k->at_once, name, value, nth, err);
    if (eq && wp_str_is(name, "name"))
        return take_name(k->name, "name", value, nth, err);
    if (eq && wp_str_is(name, "tenant"))
        return take_name(k->tenant, "tenant", value, nth, err);
    if (eq && wp_str_is(name, "any_tenant"))
        return take_yes(&k->any_tenant, "any_tenant", value, nth, err);
    if (eq && wp_str_is(name, "priority"))
        return take_priority(k, value, nth, err);
    if (eq && wp_str_is(name, "models") && value.n > 0) {
        wp_free(k->models);
        k->models = wp_strndup(value.p, value.n);
        return k->models ? 0 : wp_fail(err, WP_ENOMEM, "out of memory");
    }
    /* The word may be a part of a key that has a blank: it is not repeated. */
    return wp_fail(err, WP_EINVAL, "key %zu: want name=, models=, requests=, tokens=, at_once=, tenant=, any_tenant= or priority= behind it, got something else",
                   nth);
}

static int read_line(struct wp_key *k, struct wp_str line, size_t nth, struct wp_err *err)
{
    struct wp_str word;
    bool first = true;
    int rc = 0;

    snprintf(k->name, sizeof k->name, "key %zu", nth);
    for (size_t at = 0; rc == 0 && at < line.n;) {
        size_t from = at;

        while (at < line.n && line.p[at] != ' ' && line.p[at] != '\t')
            at++;
        word = (struct wp_str){line.p + from, at - from};
        at++;
        if (word.n == 0)
            continue;
        rc = first ? take_key(k, word, nth, err) : take_word(k, word, nth, err);
        first = false;
    }
    return rc;
}

static const struct wp_key *same_key(const struct wp_keys *keys, const struct wp_key *k, size_t n)
{
    for (size_t i = 0; keys && i < n; i++)
        if (CRYPTO_memcmp(keys->key[i].digest, k->digest, DIGEST) == 0)
            return &keys->key[i];
    return NULL;
}

static int take_line(struct wp_keys *keys, const char *line, const struct wp_keys *was, struct wp_err *err)
{
    struct wp_key *k = &keys->key[keys->n];
    const struct wp_key *before, *twin;
    int rc = read_line(k, wp_str_of(line), keys->n + 1, err);

    keys->n++;
    if (rc < 0)
        return rc;
    twin = same_key(keys, k, keys->n - 1);
    if (twin)
        return wp_fail(err, WP_EINVAL, "key %zu: the same as key %zu", keys->n, (size_t)(twin - keys->key) + 1);
    before = same_key(was, k, was ? was->n : 0);
    k->use = before ? use_ref(before->use) : use_new(k);
    return k->use ? 0 : wp_fail(err, WP_ENOMEM, "out of memory");
}

int wp_keys_create(struct wp_keys **out, char *const lines[], const struct wp_keys *was, struct wp_err *err)
{
    struct wp_keys *keys;
    size_t n = 0;
    int rc = 0;

    while (lines[n])
        n++;
    if (n > KEYS_MAX)
        return wp_fail(err, WP_EINVAL, "want at most %d keys, got %zu", KEYS_MAX, n);
    keys = wp_calloc(1, sizeof *keys + n * sizeof keys->key[0]);
    if (!keys)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take_line(keys, lines[i], was, err);
    if (rc < 0)
        wp_keys_destroy(keys);
    else
        *out = keys;
    return rc;
}

void wp_keys_destroy(struct wp_keys *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->n; i++) {
        wp_free(k->key[i].models);
        use_unref(k->key[i].use);
    }
    wp_free(k);
}

size_t wp_keys_count(const struct wp_keys *k)
{
    return k ? k->n : 0;
}

/* --- requests --- */

const struct wp_key *wp_keys_find(const struct wp_keys *k, const struct wp_head *h)
{
    struct wp_str given = wp_head_get(h, "authorization");
    const struct wp_key *found = NULL;
    unsigned char digest[DIGEST];

    if (given.n > 7 && wp_str_iis((struct wp_str){given.p, 7}, "bearer "))
        given = wp_str_trim((struct wp_str){given.p + 7, given.n - 7});
    else
        given = wp_head_get(h, "x-api-key");
    if (given.n == 0 || !hash(given, digest))
        return NULL;
    for (size_t i = 0; i < wp_keys_count(k); i++)
        if (CRYPTO_memcmp(k->key[i].digest, digest, DIGEST) == 0)
            found = &k->key[i];
    return found;
}

const char *wp_key_name(const struct wp_key *k)
{
    return k->name;
}

const char *wp_key_tenant(const struct wp_key *k)
{
    return k->tenant;
}

bool wp_key_any_tenant(const struct wp_key *k)
{
    return k->any_tenant;
}

int wp_key_best(const struct wp_key *k)
{
    return k->best;
}

bool wp_key_may(const struct wp_key *k, struct wp_str model)
{
    struct wp_str rest, one;

    if (!k || !k->models)
        return true;
    rest = wp_str_of(k->models);
    while (wp_str_split(&rest, ',', &one))
        if (wp_str_eq(one, model))
            return true;
    return false;
}

static void fill(struct bucket *b, uint64_t limit, uint64_t now_us)
{
    if (now_us > b->as_of_us && b->as_of_us > 0)
        b->level += (double)(now_us - b->as_of_us) * (double)limit / MINUTE_US;
    if (b->level > (double)limit)
        b->level = (double)limit;
    if (now_us > b->as_of_us)
        b->as_of_us = now_us;
}

/* How long until the bucket holds so much. */
static uint64_t until(const struct bucket *b, double want, uint64_t limit)
{
    double us = (want - b->level) * MINUTE_US / (double)limit;

    return us < 1 ? 1 : us > 3600e6 ? UINT64_C(3600000000) : (uint64_t)us + 1;
}

static enum wp_key_no judge(const struct wp_key *k, struct wp_key_use *u, uint64_t now_us, uint64_t *limit, uint64_t *retry_us)
{
    if (k->at_once && u->at_once >= k->at_once) {
        *limit = k->at_once;
        *retry_us = 1000000;
        return WP_KEY_AT_ONCE;
    }
    if (k->requests) {
        fill(&u->requests, k->requests, now_us);
        if (u->requests.level < 1) {
            *limit = k->requests;
            *retry_us = until(&u->requests, 1, k->requests);
            return WP_KEY_REQUESTS;
        }
    }
    if (k->tokens) {
        fill(&u->tokens, k->tokens, now_us);
        if (u->tokens.level <= 0) {
            *limit = k->tokens;
            *retry_us = until(&u->tokens, 1, k->tokens);
            return WP_KEY_TOKENS;
        }
    }
    return WP_KEY_OK;
}

enum wp_key_no wp_key_begin(const struct wp_key *k, struct wp_key_turn *turn, uint64_t now_us, uint64_t *limit, uint64_t *retry_us)
{
    struct wp_key_use *u = k->use;
    enum wp_key_no no;

    pthread_mutex_lock(&u->lock);
    no = judge(k, u, now_us, limit, retry_us);
    if (no == WP_KEY_OK) {
        u->at_once++;
        u->requests.level -= k->requests ? 1 : 0;
        u->token_limit = k->tokens;
        turn->use = use_ref(u);
    }
    pthread_mutex_unlock(&u->lock);
    return no;
}

void wp_key_spend(struct wp_key_turn *turn, uint64_t now_us, uint64_t tokens)
{
    struct wp_key_use *u = turn->use;

    if (!u)
        return;
    pthread_mutex_lock(&u->lock);
    if (u->token_limit) {
        fill(&u->tokens, u->token_limit, now_us);
        u->tokens.level -= (double)(tokens < LIMIT_MAX ? tokens : LIMIT_MAX);
    }
    pthread_mutex_unlock(&u->lock);
}

void wp_key_end(struct wp_key_turn *turn)
{
    struct wp_key_use *u = turn->use;

    if (!u)
        return;
    turn->use = NULL;
    pthread_mutex_lock(&u->lock);
    u->at_once--;
    pthread_mutex_unlock(&u->lock);
    use_unref(u);
}
