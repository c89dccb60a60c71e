/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/router.h - the running router: what all loops share, and what each has for itself.
 * Threads: the router is shared and changes only by atomics or behind the fleet's lock; a gate belongs to its loop's
 * thread.  The configuration is constant; a reload hands each gate a new one by letter, and the old one goes with its last reference.
 */
#ifndef WP_ROUTER_ROUTER_H
#define WP_ROUTER_ROUTER_H

#include "base/rng.h"
#include "net/client.h"
#include "net/server.h"
#include "router/caches.h"
#include "router/doctor.h"
#include "router/fleet.h"
#include "router/keys.h"
#include "router/tenants.h"

struct wp_settings { /* a configuration with its holders */
    _Atomic unsigned refs;
    struct wp_config *conf;
    struct wp_tls *tls;   /* of listen.tls; NULL: none */
    struct wp_keys *keys; /* of listen.api_keys_file */
    uint64_t connections; /* limits.connections, or fewer where descriptors are few; 0: no limit */
};
struct wp_settings *wp_settings_ref(struct wp_settings *s);
void wp_settings_unref(struct wp_settings *s);
/*
 * The file (NULL: none) under these words (wp_config_read), with what its own files hold.  was: the ones in force, whose keys' use goes on; NULL:
 * none.  NULL: refused, with the reasons in errors, or out of memory.
 */
struct wp_settings *wp_settings_load(const char *file, const char *const set[], size_t n_set, const char *const worker[], size_t n_worker,
                                     const struct wp_settings *was, struct wp_buf *errors);

struct wp_counters {
    struct wp_family *requests;  /* model, code */
    struct wp_family *prompt_tokens, *confirmed; /* source */
    struct wp_family *retries; /* reason */
    struct wp_family *key_limits; /* limit */
    struct wp_family *overhead; /* stage */
    struct wp_family *tokens; /* result */
    struct wp_series *ttft, *itl, *read, *decide, *tokens_wait, *tokens_calls, *tokens_wrong, *loop_lag, *broken_streams, *client_gone, *refused, *reloads_bad, *reloads_good;
};

void wp_counters_make(struct wp_counters *c, struct wp_metrics *m);

struct wp_router {
    struct wp_fleet *fleet;
    struct wp_doctor *doctor;
    struct wp_tenants *tenants;
    struct wp_metrics *metrics;
    struct wp_counters count;
    struct wp_caches caches;
    struct wp_gate *gate;
    size_t n_gates;
    _Atomic uint64_t body_bytes; /* of request bodies held, all gates */
    _Atomic uint64_t in_flight;  /* API requests under way, all gates */
    _Atomic uint64_t first_tries, repeats; /* decayed: the retry budget */
    _Atomic uint64_t ids;
    _Atomic bool draining;
    _Atomic unsigned gates_running; /* of other threads than gate 0's */
    bool on_loopback; /* the API listener: decides reveal: auto */
    uint64_t started_us, id_salt;
    struct wp_settings *settings; /* the newest; gate 0's alone */
};

struct wp_gate { /* one loop */
    struct wp_router *router;
    size_t number;
    struct wp_loop loop;
    struct wp_server *api;
    struct wp_client *client;
    struct wp_tokenizers *tokenizers; /* router/tokens.h; NULL: none, all prompts go by bytes */
    struct wp_settings *settings;
    pthread_t thread;
    struct wp_timer lag_tick, drain_tick, hold_tick;
    uint64_t tokens_bytes; /* of its tokenizers, as last told (router/caches.h) */
    unsigned caches_ticks;
    size_t held; /* requests that wait in the router for a worker to be free */
    struct wp_list requests; /* under way; router/request.h */
    uint64_t lag_due_us, drain_until_us; /* 0: not draining */
    uint64_t close_by_us; /* what was said may go out until then; 0: requests are under way, and may be */
    uint64_t downs_seen;      /* of wp_fleet_downs() */
    unsigned stranded_ticks; /* until those who wait on a worker that is down are looked at again; 0: there are none */
    bool port_closed;
    bool handed; /* another process accepts in our place */
    bool (*before_close)(void *arg); /* gate 0: its other things are closed; NULL: nothing to ask */
    void *before_close_arg;
    unsigned closing; /* things that have not said closed yet */
    uint64_t failures_until_us; /* lines about failed requests: so many were said until then, and so many were not */
    unsigned failures_said, failures_unsaid;
    unsigned unasked_silent; /* streams in a row that told no usage though asked: router/unasked.h */
};

static inline const struct wp_config *wp_gate_conf(const struct wp_gate *g)
{
    return g->settings->conf;
}

/* An unguessable enough, unique id for a request: 32 hex digits and a zero. */
void wp_router_id(struct wp_router *r, char out[33]);
enum wp_reveal wp_router_reveal(const struct wp_router *r, const struct wp_config *c);

/* For exchanges that are answered at once and need no callback. */
extern const struct wp_exchange_ops wp_answer_only;

/* Counts and answers an error in OpenAI's shape. */
void wp_router_refuse(struct wp_gate *g, struct wp_exchange *x, struct wp_str model, int status, const char *code,
                      const char *param, uint64_t retry_after_us, const char *fmt, ...) __attribute__((format(printf, 8, 9)));

/* True when the request carries one of the keys (Authorization: Bearer or x-api-key), compared in constant time; or when there are none. */
bool wp_router_key_ok(const struct wp_head *h, const char *const keys[], size_t n);

#endif
