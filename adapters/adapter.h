/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/adapter.h - foreign protocols behind tables of functions.
 * An engine adapter turns one kind of engine's health, model list and load into facts.  A probe asks over the loop's HTTP
 * client and answers exactly once, later; what was not learnt stays unknown, never 0.
 */
#ifndef WP_ADAPTERS_ADAPTER_H
#define WP_ADAPTERS_ADAPTER_H

#include "base/err.h"
#include "base/str.h"
#include "net/client.h"

enum { WP_ENGINE_MODELS_MAX = 256 };

struct wp_engine_model {
    char *name, *parent; /* parent: an adapter's base model, else NULL */
    uint32_t max_len;    /* 0: not said */
    uint64_t root;       /* of an adapter: hash of where it was loaded from; 0: not said */
};

enum { WP_ENGINE_ENDPOINT_MAX = 320 };

/* Where an engine's KV events come from, in its own words, and what that means seen from here. */
struct wp_engine_feed {
    bool known;      /* it was asked and has answered */
    uint32_t ranks;  /* 0: it publishes none */
    bool dials;      /* it connects: events is where somebody must listen */
    const char *why; /* why it cannot be followed as it stands; NULL: it can.  Static */
    char events[WP_ENGINE_ENDPOINT_MAX], replay[WP_ENGINE_ENDPOINT_MAX]; /* of rank 0, to connect to; "" none */
};

struct wp_engine_facts {
    bool up; /* it answers as an engine that serves */
    bool loading, sleeping;
    bool sleep_known; /* false: sleeping was not asked, or not answered */
    int rc;              /* why not up: a code, or an HTTP status when positive */
    const char *tls;     /* what TLS has against it; NULL: nothing.  Static */
    struct wp_engine_model *model;
    size_t n_models;
    bool models_known;
    uint32_t block_size;  /* 0: unknown */
    uint64_t kv_tokens;   /* KV capacity of one rank in tokens, gpu and host memory; 0: unknown */
    double running, waiting, kv_usage; /* negative: unknown */
    bool metrics_known;   /* the metrics page was there and had a name we know */
    const char *missing;  /* what was looked for in it and not found; NULL: nothing missing.  Static */
    char version[32];
    struct wp_engine_feed feed;
};
void wp_engine_facts_fini(struct wp_engine_facts *f);

struct wp_engine_target {
    struct wp_str host;
    uint16_t port;
    struct wp_tls *tls;      /* NULL: none; the probe takes a reference */
    struct wp_str base;      /* path prefix, "" or "/base" */
    struct wp_str health;    /* path; absent: the engine kind's own */
    struct wp_str bearer;    /* the worker's API key; absent: none */
    uint64_t timeout_us;     /* of the whole probe */
};

enum { WP_PROBE_HEALTH = 1, WP_PROBE_MODELS = 2, WP_PROBE_LOAD = 4, WP_PROBE_FEED = 8 }; /* what to ask */

struct wp_probe;
/* facts are the callback's only during the call, unless it takes model (and sets it to NULL, n_models 0). */
typedef void (*wp_probe_fn)(void *arg, struct wp_engine_facts *facts);

struct wp_engine_ops {
    const char *name; /* as a workers: entry spells it: vllm, openai */
    const char *summary;
    /* NULL when out of memory.  Answers exactly once, later than this call. */
    struct wp_probe *(*probe)(struct wp_client *c, const struct wp_engine_target *t, unsigned what, wp_probe_fn fn, void *arg);
};
void wp_probe_cancel(struct wp_probe *p); /* no answer comes */

extern const struct wp_engine_ops *const wp_engines[]; /* ends with NULL */
/* "auto" finds out: vllm when /metrics speaks vllm:, else openai. */
const struct wp_engine_ops *wp_engine_find(const char *name);

/* adapters/engines/prom.h reads Prometheus pages. */

#endif
