/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/worker.h - one worker: what is known of it, whether it may be sent requests, and what it owes us.
 * Owner: the fleet's list holds one reference, each placement one more.  Everything below `fleet` is guarded by the
 * fleet's lock; what stands above it never changes.
 *
 * May it be sent a request?  All of these must say yes, and each no has an end of its own:
 *     joined     it has answered a probe, or requests, since it was added
 *     up         probes: down after health.fail bad ones in a row, up after health.pass good ones
 *     breaker    requests: closed -> open after health.fail failed attempts in a row, for a time that doubles from one probe
 *                interval to 30 s -> half open: one request goes; its end decides.  A good probe never closes it.  It opens, too, when half
 *                of the last WP_RECENT attempts failed, in whatever order, longer each time until as many in a row were good.
 *     resting    the engine said Retry-After: until then.  Or it said 429 without one, three times in a row: for half a second, doubling to 30 s
 *                as long as it answers nothing good
 *     draining   an operator said so
 */
#ifndef WP_ROUTER_WORKER_H
#define WP_ROUTER_WORKER_H

#include "adapters/adapter.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/metrics.h"
#include "policies/calibrate.h"
#include "policies/load.h"
#include "router/config.h"
#include "router/growth.h"
#include "router/trust.h"

#include <stdatomic.h>

/* A data-parallel rank of a worker: a cache and a queue of its own behind the worker's one HTTP port. */
struct wp_rank {
    uint32_t number, holder;
    uint64_t key; /* hash of the worker's id and the rank */
    struct wp_load load;
    struct wp_meter meter; /* of its first tokens */
    uint32_t more, more_waiting; /* sequences of its requests beyond one each; of them, those whose request has no first token */
    bool fed;        /* it has a feed of KV events */
    bool live;       /* that feed is connected and knows where it stands */
    bool old;        /* others have taken its place; the last requests that were sent to it are still running */
    uint64_t next;          /* number of the batch that the feed expects */
    bool unsure;     /* what the index says of it is from a snapshot, and its publisher has not confirmed it yet: all is in doubt */
    struct wp_warm_rank *warm; /* its record of a snapshot, until its feed is opened; of the fleet's list */
    const char *feed_state; /* of that feed, in a word; "none" without one */
    uint32_t window; /* blocks of the narrowest sliding window that its feed has shown; 0: none */
    struct wp_trust trust;   /* in what its events claim */
    bool resync_due;         /* an alarm: its feed is to ask for everything again */
    char resync_why[96];     /* the last one's reason, for people */
    struct wp_growth growth; /* of its locations in the index */
    double coverage; /* share of what the rank holds that its feed has told, 0..1 */
};

/*
 * An attempt ended: failed moves the breaker, good closes it, neither (cancelled, 4xx) frees a half-open slot.  Busy (429, or 503 with
 * Retry-After) is neither, too, and goes to wp_worker_busy() besides.
 */
enum wp_outcome { WP_OUTCOME_NEUTRAL, WP_OUTCOME_GOOD, WP_OUTCOME_FAILED, WP_OUTCOME_BUSY, WP_OUTCOMES };
extern const char *const wp_outcome_names[];

enum { WP_TYPICAL_TOKENS = 4096 };
enum { WP_RECENT = 20, WP_WARM = 32 }; /* attempts; good answers after which a worker is no newcomer */
enum wp_breaker { WP_BREAKER_CLOSED, WP_BREAKER_HALF_OPEN, WP_BREAKER_OPEN };
extern const char *const wp_breaker_names[];

/* Requests that an engine has and that we did not send it: another router's, or somebody's who goes past us. */
struct wp_foreign {
    double running, waiting; /* over all ranks */
};

/* Ranks that a worker had; their last request frees them. */
struct wp_old_ranks {
    struct wp_old_ranks *next;
    struct wp_rank *rank;
    uint32_t n;
};

struct wp_worker {
    _Atomic unsigned refs;
    struct wp_config_worker conf;
    struct wp_url url; /* into conf.url */
    struct wp_tls *tls; /* for an https URL; NULL: none */
    uint64_t key;      /* hash of the id */
    const struct wp_engine_ops *engine;
    struct wp_series *ended[WP_OUTCOMES]; /* counters of attempts */
    struct wp_series *drift, *resyncs;
    struct wp_series *in_flight_gauge, *backlog_gauge, *up_gauge, *breaker_gauge, *pace_gauge;

    struct wp_fleet *fleet;
    struct wp_list link;
    struct wp_rank *rank; /* these three change on the first loop alone, which may read them without the lock */
    uint32_t n_ranks;     /* at least 1 */
    uint32_t ranks_made;  /* how often they were made anew */
    struct wp_old_ranks *old;
    bool joined, up, draining, gone, sleeping;
    unsigned bad_probes, good_probes;
    char trouble[160]; /* why it is not up, for people */
    enum wp_breaker breaker;
    unsigned failures; /* attempts in a row */
    uint32_t recent;   /* the last WP_RECENT attempts, good or failed, a bit each: set when it failed, the newest lowest */
    unsigned n_recent; /* of them there have been */
    uint64_t failed_us, gray_us; /* the last failure; how long the breaker was open last for that share of failures */
    unsigned warmed;   /* good answers since it came up, WP_WARM at most */
    unsigned crowded;  /* 429 in a row, without Retry-After, of attempts that began after its last rest did */
    bool half_open_busy;
    const void *half_open_by; /* the placement that decides */
    uint64_t opened_us, open_until_us, open_us, rest_until_us;
    uint64_t rested_us, rest_us, crowd_until_us; /* of the rests that we gave it unasked: when the last began, how long it was, its end */
    struct wp_log_limit rest_said;
    struct wp_engine_model *model; /* as the engine or the configuration lists them */
    size_t n_models;
    bool models_fixed; /* by the configuration */
    struct wp_map roots; /* hash of an adapter's name -> where it was loaded from last, also of those that are not listed now */
    uint32_t block_size;
    bool block_size_told; /* by the configuration, the engine or its events; else it is a guess */
    uint64_t kv_tokens; /* of one rank */
    struct wp_profile costs, profile; /* as configured; as learnt, which is what counts */
    struct wp_calibration learnt;
    bool borrowed;      /* it has shown nothing itself, and goes by what another one has */
    uint64_t lesson;    /* the fleet's count of them when it has shown something last */
    double error; /* share that a prefill of WP_TYPICAL_TOKENS may be off by; 0 before anything was learnt */
    struct wp_interval interval[2]; /* of predictions: nothing to wait for; something */
    double reported_running, reported_waiting, kv_usage; /* negative: unknown */
    struct wp_foreign surplus, foreign; /* at the last scrape; what counts: what two in a row have shown */
    double foreign_wait_us; /* of a rank: what the waiting ones of it are reckoned to take */
    uint64_t requests, errors, busies; /* busies: answers 429, and 503 with Retry-After */
    char version[32];
    struct wp_engine_feed found; /* what the engine says of its events; asked when the configuration does not */
};

/* Where the events of a worker come from; events "": nowhere.  The strings are the worker's. */
struct wp_feed_source {
    const char *events, *replay, *topic;
    bool bind;
};

struct wp_worker *wp_worker_ref(struct wp_worker *w);
void wp_worker_unref(struct wp_worker *w);

/* Copies conf.  Errors: WP_ENOMEM, WP_EINVAL (URL, engine, profile). */
int wp_worker_create(struct wp_worker **out, const struct wp_config_worker *conf, const struct wp_config *all, struct wp_err *err);

/* A call failed for want of something on this machine (descriptors, ports, memory): that says nothing about the worker. */
bool wp_is_our_trouble(int rc);

/* All below: with the fleet's lock held. */
const struct wp_engine_model *wp_worker_serves(const struct wp_worker *w, struct wp_str model);
void wp_worker_unlist(struct wp_worker *w, struct wp_str model); /* an adapter is off its list, until a probe lists it again */
uint32_t wp_worker_in_flight(const struct wp_worker *w); /* over its ranks, old ones too */
/* What a new request would wait there, by our own account and by what others have on it. */
double wp_worker_wait_us(const struct wp_worker *w, const struct wp_rank *r, uint64_t now_us);
/* False: not now; *why gets one word for people and metrics (joining, down, breaker, resting, draining, sleeping). */
bool wp_worker_ready(const struct wp_worker *w, uint64_t now_us, const char **why);
/* Takes profile, speed and bytes a token from the models of a configuration read anew.  What was learnt stays while they do. */
void wp_worker_costs(struct wp_worker *w, const struct wp_config *all);
/* Something was learnt: the profile follows, if it is to. */
void wp_worker_learnt(struct wp_worker *w, bool calibrate);
/* It goes by what another of the same costs has shown, until it shows something itself. */
void wp_worker_borrow(struct wp_worker *w, const struct wp_worker *from, bool calibrate);
double wp_worker_pace(const struct wp_worker *w); /* a typical prefill as learnt over what the profile says; 1 at first */
/* Share of its recent attempts that failed, fading in a minute without another failure. */
double wp_worker_failing(const struct wp_worker *w, uint64_t now_us);
/* It has come up not long ago, and has as many requests as it should have at once until it has answered more. */
bool wp_worker_is_cold(const struct wp_worker *w, const struct wp_config *conf);
/* The breaker's part of it. */
void wp_worker_outcome(struct wp_worker *w, enum wp_outcome o, const struct wp_config *conf, uint64_t now_us);
void wp_worker_failed(struct wp_worker *w, uint64_t now_us); /* an attempt, before wp_worker_outcome() is told of it */
void wp_worker_served(struct wp_worker *w); /* something good, also of the time before it rested: its next rest is a short one */
/* placed_us: when the attempt began; asked_us: the pause that the engine asked for, or 0. */
void wp_worker_busy(struct wp_worker *w, uint64_t placed_us, uint64_t asked_us, const struct wp_config *conf, uint64_t now_us);
struct wp_feed_source wp_worker_source(const struct wp_worker *w);
bool wp_worker_asks_feed(const struct wp_worker *w); /* the configuration says nothing of events, and the engine has not yet */
int wp_worker_ranks(struct wp_worker *w, uint32_t n); /* makes them; those before are the caller's.  Errors: WP_ENOMEM */
void wp_worker_sweep_ranks(struct wp_worker *w);       /* frees old ones that have no request any more */
void wp_worker_probed(struct wp_worker *w, struct wp_engine_facts *f, const struct wp_config *conf);
/*
 * The same facts, first: is an adapter there that had its name from elsewhere before?  vLLM 0.32 hashes the path into its blocks and leaves it out of
 * its events, so that all that the index has under the name may be what the engine does not use any more.
 */
bool wp_worker_reloaded(struct wp_worker *w, const struct wp_engine_facts *f);
/* The same facts again: what others have on it.  mean_tokens: what a request has to prefill on the average, since theirs are not known. */
void wp_worker_others(struct wp_worker *w, const struct wp_engine_facts *f, double mean_tokens);

#endif
