/* SPDX-License-Identifier: Apache-2.0 */
#include "router/tenants.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "index/identity.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct wp_tenants {
    pthread_mutex_t lock;
    const struct wp_config *conf;
    struct wp_map by_key;
    uint64_t secret;
    struct wp_list free, idle; /* idle: the one that has waited longest first */
    size_t others;             /* rows of names without a weight */
    struct wp_family *held, *held_s, *tokens, *refused;
    struct wp_tenant_series other;
    struct wp_tenant row[1 + WP_TENANTS];
};

static struct wp_tenant_series series(struct wp_tenants *t, const char *name)
{
    return (struct wp_tenant_series){WP_SERIES(t->held, name), WP_SERIES(t->held_s, name), WP_SERIES(t->tokens, name), WP_SERIES(t->refused, name)};
}

static void name_row(struct wp_tenant *r, struct wp_str name, uint64_t key, double weight)
{
    snprintf(r->name, sizeof r->name, WP_STR_FMT, WP_STR_ARG(name));
    r->key = key;
    r->weight = weight;
}

int wp_tenants_create(struct wp_tenants **out, struct wp_metrics *m, struct wp_err *err)
{
    struct wp_tenants *t = wp_calloc(1, sizeof *t);

    if (!t)
        return wp_fail(err, WP_ENOMEM, "tenants: out of memory");
    pthread_mutex_init(&t->lock, NULL);
    t->secret = wp_rng_secret();
    t->by_key.seed = wp_rng_secret();
    wp_list_init(&t->free);
    wp_list_init(&t->idle);
    t->held = wp_family(m, WP_GAUGE, "warmpath_tenant_held", "Requests held in the router, by tenant; those without a weight are \"other\".", "tenant",
                        NULL, 0);
    t->held_s = wp_family(m, WP_COUNTER, "warmpath_tenant_held_seconds_total", "How long requests of a tenant were held, together.", "tenant", NULL, 0);
    t->tokens = wp_family(m, WP_COUNTER, "warmpath_tenant_tokens_total", "Tokens of prompts and answers that were served, by tenant.", "tenant", NULL, 0);
    t->refused = wp_family(m, WP_COUNTER, "warmpath_tenant_refused_total",
                           "Requests refused because their tenant had as much held as its share allows.", "tenant", NULL, 0);
    t->other = series(t, "other");
    for (uint32_t i = 0; i <= WP_TENANTS; i++) {
        struct wp_tenant *r = &t->row[i];

        r->row = i;
        wp_list_init(&r->link);
        name_row(r, i ? WP_STR("other") : WP_STR("default"), i, 1);
        r->count = i ? t->other : series(t, "default");
        if (i && i <= WP_TENANTS_NAMED)
            wp_list_push(&t->free, &r->link);
    }
    *out = t;
    return 0;
}

void wp_tenants_destroy(struct wp_tenants *t)
{
    if (!t)
        return;
    wp_map_fini(&t->by_key);
    pthread_mutex_destroy(&t->lock);
    wp_free(t);
}

bool wp_tenant_weight(const char *text, double *weight)
{
    char *end;

    *weight = strtod(text, &end);
    return *text && *end == 0 && *weight >= 1e-3 && *weight <= 1e6;
}

/* In the configuration: "name=weight". */
static bool weight_of(const struct wp_config *conf, const char *name, double *weight)
{
    size_t n = strlen(name);

    for (char **w = conf->tenants.weights; *w; w++)
        if (strncmp(*w, name, n) == 0 && (*w)[n] == '=')
            return wp_tenant_weight(*w + n + 1, weight);
    *weight = 1;
    return false;
}

/* While it has requests its series stay: they count on them. */
static void weigh(struct wp_tenants *t, struct wp_tenant *r)
{
    bool was = r->configured;

    r->stale = false;
    r->configured = weight_of(t->conf, r->name, &r->weight);
    r->count = r->configured || r->row == 0 ? series(t, r->name) : t->other;
    if (r->row)
        t->others = t->others + was - r->configured;
}

void wp_tenants_configure(struct wp_tenants *t, const struct wp_config *conf)
{
    pthread_mutex_lock(&t->lock);
    t->conf = conf;
    for (uint32_t i = 0; i <= WP_TENANTS_NAMED; i++)
        t->row[i].stale = true;
    pthread_mutex_unlock(&t->lock);
}

bool wp_tenant_name_ok(struct wp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 0x7F || s.p[i] == '"' || s.p[i] == '\\')
            return false;
    return s.n > 0 && s.n <= WP_TENANT_NAME;
}

static void forget(struct wp_tenants *t, struct wp_tenant *r)
{
    wp_map_del(&t->by_key, r->key);
    wp_list_del(&r->link);
    wp_list_push(&t->free, &r->link);
    t->others -= !r->configured;
}

/* The longest idle one of those without a weight, when there are more of them than there may be; for one with a weight, any. */
static void make_room(struct wp_tenants *t, bool configured)
{
    WP_LIST_EACH(&t->idle, at)
    {
        struct wp_tenant *r = WP_CONTAINER(at, struct wp_tenant, link);

        if (r->configured && !configured)
            continue;
        forget(t, r);
        return;
    }
}

static struct wp_tenant *shared(struct wp_tenants *t, uint64_t key)
{
    uint64_t n = t->conf->tenants.most ? WP_TENANTS_SHARED : 1;

    return &t->row[1 + WP_TENANTS_NAMED + wp_hash_next(t->secret, key) % n];
}

static struct wp_tenant *new_row(struct wp_tenants *t, const char *name, uint64_t key)
{
    double weight;
    bool configured = weight_of(t->conf, name, &weight);
    struct wp_list *at;
    struct wp_tenant *r;

    if (!configured && t->others >= t->conf->tenants.most)
        make_room(t, false);
    if (!configured && t->others >= t->conf->tenants.most)
        return shared(t, key);
    if (wp_list_empty(&t->free))
        make_room(t, configured);
    at = t->free.next;
    if (at == &t->free || wp_map_put(&t->by_key, key, (uintptr_t)WP_CONTAINER(at, struct wp_tenant, link)) < 0)
        return shared(t, key);
    wp_list_del(at);
    r = WP_CONTAINER(at, struct wp_tenant, link);
    name_row(r, wp_str_of(name), key, weight);
    r->configured = false;
    t->others++;
    weigh(t, r);
    return r;
}

static struct wp_tenant *row_of(struct wp_tenants *t, struct wp_str given)
{
    char name[WP_TENANT_NAME + 1];
    uint64_t key, at;
    struct wp_tenant *r;

    snprintf(name, sizeof name, WP_STR_FMT, WP_STR_ARG(given));
    if (!*name || strcmp(name, "default") == 0)
        return &t->row[0];
    key = wp_hash_item(wp_str_of(name));
    if (!wp_map_get(&t->by_key, key, &at))
        return new_row(t, name, key);
    r = (struct wp_tenant *)(uintptr_t)at;
    return strcmp(r->name, name) == 0 ? r : shared(t, key); /* a hash can be aimed at */
}

struct wp_tenant *wp_tenant_enter(struct wp_tenants *t, const struct wp_head *h, const struct wp_key *key)
{
    const char *fixed = key ? wp_key_tenant(key) : "";
    struct wp_str name = wp_str_of(fixed);
    struct wp_tenant *r;

    pthread_mutex_lock(&t->lock);
    if (*t->conf->tenants.header && (!*fixed || wp_key_any_tenant(key))) {
        struct wp_str told = wp_head_get(h, t->conf->tenants.header);

        name = told.n ? told : name;
    }
    if (name.n && !wp_tenant_name_ok(name)) {
        pthread_mutex_unlock(&t->lock);
        return NULL;
    }
    r = row_of(t, name);
    if (r->requests == 0 && r->stale && r->row <= WP_TENANTS_NAMED)
        weigh(t, r);
    if (r->requests++ == 0)
        wp_list_del(&r->link);
    pthread_mutex_unlock(&t->lock);
    return r;
}

void wp_tenant_leave(struct wp_tenants *t, struct wp_tenant *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&t->lock);
    if (--r->requests == 0 && r->row && r->row <= WP_TENANTS_NAMED)
        wp_list_push(&t->idle, &r->link);
    pthread_mutex_unlock(&t->lock);
}

bool wp_priority_of(const struct wp_head *h, const struct wp_key *key, int *priority)
{
    struct wp_str text = wp_head_get(h, "x-warmpath-priority"), digits = text;
    int best = key ? wp_key_best(key) : -WP_PRIORITY_MOST;
    uint64_t n = 0;

    *priority = 0;
    if (text.n && *text.p == '-')
        digits = (struct wp_str){text.p + 1, text.n - 1};
    if (text.n && (!wp_str_u64(digits, &n) || n > WP_PRIORITY_MOST))
        return false;
    *priority = digits.p == text.p ? (int)n : -(int)n;
    if (*priority < best)
        *priority = best;
    return true;
}

struct wp_queue_who wp_tenant_who(const struct wp_tenant *r, int priority, uint32_t tokens)
{
    return (struct wp_queue_who){
        .rank = (uint32_t)(priority + WP_PRIORITY_MOST),
        .tenant = r ? r->row : 0,
        .name = r ? r->key : 0,
        .weight = r ? r->weight : 1,
        .tokens = tokens,
    };
}
