/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/tenants.h - whose a request is, as a row of the admission queue's table (policies/queue.h), and how it may put itself before others.
 *
 * The name of a request's tenant is what its API key says (tenant=NAME), else the header tenants.header, else nothing: then it is
 * "default", the first row.  Clients make names up, so there are rows for WP_TENANTS_NAMED of them: those with a weight in the configuration always
 * have one, of others tenants.most at a time.  A row whose requests have all ended waits for its name to come again, and is given to
 * another name when rows run out, the one that has waited longest first.  Names beyond that share WP_TENANTS_SHARED rows by a hash that nobody outside
 * can foretell: that is stochastic fairness queueing (McKenney, INFOCOM 1990), and who makes up a million names crowds those rows alone.
 * With tenants.most: 0 all names without a weight are one tenant.
 *
 * Metrics have a label for names with a weight, "default", and "other" for all the rest.
 * Threads: any; one lock, held for a look-up.  A row's facts do not change while a request has it, but for its weight.
 */
#ifndef WP_ROUTER_TENANTS_H
#define WP_ROUTER_TENANTS_H

#include "base/metrics.h"
#include "net/http.h"
#include "policies/queue.h"
#include "router/config.h"
#include "router/keys.h"

enum {
    WP_TENANTS_NAMED = 1536,
    WP_TENANTS_SHARED = 64,
    WP_TENANTS = WP_TENANTS_NAMED + WP_TENANTS_SHARED, /* rows beyond the first */
    WP_TENANT_NAME = 64,
    WP_PRIORITY_MOST = 100, /* priorities are from -100 to 100, lower ones first */
};

struct wp_tenant_series { /* of one label */
    struct wp_series *held, *held_s, *tokens, *refused;
};
struct wp_tenant {
    uint32_t row;
    char name[WP_TENANT_NAME + 1]; /* "default", "other" */
    uint64_t key;                  /* of the name */
    double weight;
    struct wp_tenant_series count;
    /* The table's: */
    struct wp_list link; /* of those that are free, or wait for their name */
    uint64_t requests;
    bool configured, stale; /* stale: the configuration has changed since it was looked up */
};
struct wp_tenants;

int wp_tenants_create(struct wp_tenants **out, struct wp_metrics *m, struct wp_err *err); /* WP_ENOMEM */
void wp_tenants_destroy(struct wp_tenants *t);
/* Weights and bounds from now on.  conf must live until the next one has come. */
void wp_tenants_configure(struct wp_tenants *t, const struct wp_config *conf);

/*
 * The tenant of a request with that head and key (NULL: none), until wp_tenant_leave().  NULL: the header's value is none that a tenant can have
 * (1 to 64 printable characters without quotes and backslashes).
 */
struct wp_tenant *wp_tenant_enter(struct wp_tenants *t, const struct wp_head *h, const struct wp_key *key);
void wp_tenant_leave(struct wp_tenants *t, struct wp_tenant *tenant); /* NULL: nothing */

/* x-warmpath-priority, or 0; no better than the key may have.  False: it is no whole number from -100 to 100. */
bool wp_priority_of(const struct wp_head *h, const struct wp_key *key, int *priority);
/* Of a request of so many tokens, as the queue takes it. */
struct wp_queue_who wp_tenant_who(const struct wp_tenant *tenant, int priority, uint32_t tokens);

bool wp_tenant_name_ok(struct wp_str name);
/* A weight as text: above 0, up to 1e6. */
bool wp_tenant_weight(const char *text, double *weight);

#endif
