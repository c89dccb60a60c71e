/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/config.h - everything that can be set, as plain data.
 * Read from the file and the flags by the rows in config.c, checked whole, then constant; a reload
 * builds a new one and swaps. Owner: wp_config_destroy().  Strings are never NULL unless said;
 * times are microseconds, sizes bytes.
 */
#ifndef WP_ROUTER_CONFIG_H
#define WP_ROUTER_CONFIG_H

#include "base/conf.h"
#include "base/log.h"
#include "policies/policy.h"

enum wp_reveal {
    WP_REVEAL_AUTO,
    WP_REVEAL_ALL,
    WP_REVEAL_ID,
    WP_REVEAL_NONE
}; /* auto: all on loopback, else id */
enum wp_confirm { WP_CONFIRM_OFF, WP_CONFIRM_PASSIVE, WP_CONFIRM_INJECT };
enum wp_events_mode { WP_EVENTS_CONNECT, WP_EVENTS_BIND };
enum wp_role { WP_ROLE_BOTH, WP_ROLE_PREFILL, WP_ROLE_DECODE };

struct wp_config_tokenizer {
    char *kind;                              /* of adapters/tokens/tokens.h: bytes, engine */
    uint64_t limit_us, hedge_us, per_mib_us; /* engine */
    uint64_t cache_bytes;                    /* engine */
};

struct wp_config_model {
    char *name;
    char **aliases;              /* ends with NULL; never NULL itself */
    struct wp_config_tokenizer tokenizer;
    char *profile;               /* of the engine that serves it; "" = default */
    double speed;                /* of that engine against the profile */
    uint64_t kv_bytes_per_token; /* 0: the profile's */
    enum wp_confirm confirm;
    struct {                 /* while no worker of it is up */
        char **command;      /* a program and its arguments; empty: none */
        char *url;           /* "": none; with neither nobody is held */
        char *api_key;       /* from api_key_file, for the URL; "" none.  Secret */
        uint64_t wait_us, again_us;
        uint64_t most;
    } wake;
};

static inline bool wp_config_wakes(const struct wp_config_model *m)
{
    return m->wake.command[0] || *m->wake.url;
}

struct wp_config_pair {
    char *cert, *key;
};

struct wp_config_worker {
    char *id;     /* "" in the file: made from the URL: host:port */
    char *url;    /* http://host:port or https://host:port */
    char *engine; /* auto, vllm, openai */
    char *node;
    char **models;          /* empty: asked of the engine */
    uint32_t max_model_len; /* 0: asked of the engine */
    uint32_t block_size;    /* 0: asked of the engine, else 16 */
    char *events, *replay;  /* ZeroMQ endpoints of rank 0; events "": asked of the engine, "none": none */
    enum wp_events_mode events_mode;
    char *events_topic;     /* tells publishers apart that share a bound endpoint; "" any */
    uint32_t ranks;         /* data-parallel ranks behind its port; 0: asked of the engine, else 1 */
    uint64_t kv_tokens;     /* capacity for history; 0: asked of the engine, else the profile's */
    char *api_key;          /* from api_key_file; "" none.  Secret */
    char *ca;               /* PEM file of authorities for an https URL; "": the system's */
    char **tags;            /* k=v, ends with NULL */
};

struct wp_config {
    struct {
        char *api, *admin; /* host:port */
        char *admin_key;   /* from admin_key_file; "" none.  Secret */
        char **api_keys;   /* from api_keys_file, one a line; NULL-ended, never NULL.  Secret */
        bool insecure, trust_client_routing;
        enum wp_reveal reveal;
        struct {
            char *cert, *key;  /* PEM files; "": no TLS */
            char *client_ca;   /* "": clients need no certificate */
            struct wp_config_pair *more; /* for other names than cert's */
            size_t n_more;
            bool admin; /* the admin port speaks it too */
        } tls;
    } listen;
    struct wp_config_model *models;
    size_t n_models;
    struct wp_config_worker *workers;
    size_t n_workers;
    struct {
        char *name;
        struct wp_policy_conf conf;
    } policy;
    struct {
        uint64_t ttft_us, itl_us;
        double ttft_factor;
    } slo;
    struct {
        uint64_t connections, in_flight, per_worker; /* 0: no limit */
        uint64_t queue;                              /* 0: nobody is held */
        uint64_t body_bytes, bodies_total_bytes, head_bytes;
        uint64_t caches_bytes; /* 0: no ceiling over all of them */
        uint64_t head_us, body_us, keepalive_us, send_us, connect_us, first_byte_us, idle_us,
            drain_us, rest_max_us;
    } limits;
    struct {
        uint32_t attempts; /* beyond the first */
        double budget;     /* share of requests that may be repeated */
    } retry;
    struct {
        uint64_t interval_us;
        uint32_t fail, pass, slow_start;
        char *path; /* "": the engine kind's own */
    } health;
    struct {
        uint64_t cap_bytes;
        char *snapshot;       /* file; "": none */
        uint64_t snapshot_us; /* between two; 0: at the end and when asked alone */
    } index;
    struct {
        enum wp_log_level level;
        enum wp_log_format format;
    } log;
    struct {
        char *file; /* "": none */
        uint64_t max_bytes;
    } record;
    struct {
        char *header;   /* that names a request's tenant; "": none does */
        char **weights; /* name=weight, ends with NULL */
        uint32_t most;  /* names without a weight that have a share of their own at a time */
    } tenants;
    bool doctor; /* clients that break their own prefix cache are looked for */
    uint32_t threads;
};

/* The cap of the index, and of history: index.cap_bytes, or half of limits.caches_bytes if that is less (router/caches.h). */
uint64_t wp_config_index_cap(const struct wp_config *c);

/*
 * Reads file (NULL: none) and then set[n] ("policy.price.room_us=5000"; each as if written in the
 * file, later ones win) and worker[n] (a SPEC of the command line).  Errors go, one a line, into
 * errors (FILE:LINE: key: want ..., got ...); returns WP_EINVAL then and out is NULL.
 */
int wp_config_read(struct wp_config **out, const char *file, const char *const set[], size_t n_set,
                   const char *const worker[], size_t n_worker, struct wp_buf *errors);
void wp_config_destroy(struct wp_config *c);

/*
 * One workers: entry as JSON text (POST /workers), checked by the same rows; no file is read for it
 * and no environment variable replaced.  *w is the caller's: wp_config_worker_fini.  Errors:
 * WP_EINVAL, WP_ENOMEM; nothing to free then.
 */
int wp_config_worker_json(struct wp_config_worker *w, struct wp_str json, struct wp_err *err);
int wp_config_worker_copy(struct wp_config_worker *to, const struct wp_config_worker *from);
bool wp_config_worker_same(const struct wp_config_worker *a, const struct wp_config_worker *b);
void wp_config_worker_fini(struct wp_config_worker *w);

/* As JSON, secrets as "(set)" (GET /config).  Errors: WP_ENOMEM. */
int wp_config_json(const struct wp_config *c, struct wp_buf *out);
/* What differs, one "key: old -> new" a line, secrets only as "changed". */
int wp_config_diff(const struct wp_config *a, const struct wp_config *b, struct wp_buf *out);
/*
 * Before fresh takes the place of what runs: settings that need a restart stay as they are.  Errors: WP_ENOMEM; WP_EINVAL, told in errors,
 * when a port that stays open to other hosts would lose its keys.
 */
int wp_config_keep(struct wp_config *fresh, const struct wp_config *running, struct wp_buf *errors);
/* The reference that `warmpath help config` prints: every key, type, default, range, meaning. */
int wp_config_help(struct wp_buf *out);
/* Each key that holds a value: "workers[].url"; for the tests that hold the documents against the
 * rows. */
int wp_config_each(int (*fn)(void *arg, const char *name, const char *takes,
                             const struct wp_conf_key *row),
                   void *arg);

#endif
