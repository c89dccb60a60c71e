/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/fleet.h - all workers, what they hold, and who gets the next request.
 * The fleet owns workers, index, history and policy, and decides: candidates, their overlap with the prompt, the policy's
 * choice, the record of it.  One lock guards it; a decision takes tens to some hundred microseconds under it (tests/bench/decide.c).
 * Threads: any loop may call everything here.
 */
#ifndef WP_ROUTER_FLEET_H
#define WP_ROUTER_FLEET_H

#include "index/history.h"
#include "index/index.h"
#include "policies/queue.h"
#include "router/prompt.h"
#include "router/record.h"
#include "router/worker.h"

struct wp_fleet;

int wp_fleet_create(struct wp_fleet **out, const struct wp_config *conf, struct wp_metrics *metrics, struct wp_err *err);
/*
 * Before the first worker: the index of a snapshot's file takes the empty one's place.  Ranks of the same workers take their holders again.
 * Errors: WP_ENOENT (there is no such file), others with the reason; then the index stays empty.
 */
int wp_fleet_restore(struct wp_fleet *f, const char *file, struct wp_err *err);
void wp_fleet_restored(struct wp_fleet *f); /* after the configured workers: what is of others is dropped */
struct wp_warm_rank *wp_fleet_take_warm(struct wp_fleet *f, struct wp_worker *w, uint32_t rank); /* the caller's to free; NULL: none */
struct wp_waker;
void wp_fleet_waker(struct wp_fleet *f, struct wp_waker *w); /* starts workers of models that have none; it must outlive the fleet */
struct wp_recorder;
void wp_fleet_record(struct wp_fleet *f, struct wp_recorder *r); /* of every decision from now on; it must outlive the fleet */
void wp_fleet_destroy(struct wp_fleet *f); /* after every placement has ended */

/* Workers.  Errors of add: WP_EEXIST (the id is taken), WP_ENOMEM, WP_EINVAL. */
int wp_fleet_add(struct wp_fleet *f, const struct wp_config_worker *conf, const struct wp_config *all, struct wp_err *err);
int wp_fleet_remove(struct wp_fleet *f, struct wp_str id);            /* WP_ENOENT.  Requests on it go on */
int wp_fleet_drain(struct wp_fleet *f, struct wp_str id, bool drain); /* WP_ENOENT */
struct wp_worker *wp_fleet_find(struct wp_fleet *f, struct wp_str id); /* a reference, or NULL */
/* A worker made the stored response of that id; who made one: a reference, or NULL when it is unknown or gone. */
void wp_fleet_stick(struct wp_fleet *f, struct wp_str response_id, const struct wp_worker *w);
struct wp_worker *wp_fleet_maker(struct wp_fleet *f, struct wp_str response_id);
/* The ready worker of a model with the fewest requests, one of them at random when several have; not one of but[n] (their keys).  A
 * reference, or NULL. */
struct wp_worker *wp_fleet_idlest(struct wp_fleet *f, struct wp_str model, const uint64_t but[], size_t n);
/* Visits every worker under the lock; fn must not call back into the fleet. */
void wp_fleet_each(struct wp_fleet *f, void (*fn)(void *arg, struct wp_worker *w), void *arg);
/* Another policy and other limits, from the next decision on.  Errors: those of wp_policy_create; then nothing changed. */
int wp_fleet_configure(struct wp_fleet *f, const struct wp_config *conf, struct wp_err *err);
/* How often a worker went down by its probes: who compares it now and then needs no lock to know that nothing happened. */
uint64_t wp_fleet_downs(const struct wp_fleet *f);
bool wp_fleet_is_down(struct wp_fleet *f, const struct wp_worker *w);
void wp_fleet_probed(struct wp_fleet *f, struct wp_worker *w, struct wp_engine_facts *facts, const struct wp_config *conf);

/* What the feed of a rank knows of itself. */
struct wp_rank_feed {
    bool fed, live;
    const char *state; /* in a word, static */
    bool batch;        /* one was applied just now */
    bool unsure;       /* what it holds is a snapshot's, and nothing has confirmed it yet */
    double coverage;
    uint64_t next;       /* number of the batch that is expected */
    uint32_t block_size; /* that its events are in; 0: not known */
    uint32_t window;     /* blocks of the narrowest window that restricts it; 0: none known */
};
void wp_fleet_feed(struct wp_fleet *f, struct wp_worker *w, uint32_t rank, const struct wp_rank_feed *told);
/* The engine process behind a rank is another one now: what we sent to the old one is not in its cache. */
void wp_fleet_forget(struct wp_fleet *f, struct wp_worker *w, uint32_t rank);
/* What the rank's events claimed was wrong beyond chance (router/trust.h), and is in doubt since: true once for each time. */
bool wp_fleet_resync_due(struct wp_fleet *f, struct wp_worker *w, uint32_t rank, char why[], size_t cap);
struct wp_index *wp_fleet_index(struct wp_fleet *f);                               /* for the feeds: it guards itself */
uint32_t wp_fleet_block_size(struct wp_fleet *f, const struct wp_worker *w);       /* 0: nobody has told it yet */
uint64_t wp_fleet_requests(struct wp_fleet *f, const struct wp_worker *w);          /* sent to it so far */
double wp_fleet_coverage(struct wp_fleet *f, const struct wp_worker *w, uint32_t rank);
char *wp_fleet_base_model(struct wp_fleet *f, const struct wp_worker *w);          /* the caller's; NULL: not known yet */

/* A model as asked for: known or not, its base and adapter names, the block sizes of those who serve it. */
struct wp_model_info {
    bool known;  /* somebody serves it, or may yet turn out to */
    bool listed; /* configured, or told by a worker: only then it may name a metric's series, since clients can ask for anything */
    struct wp_str name, base, lora; /* in the arena; lora absent unless it is an adapter */
    uint32_t block_size[WP_BLOCK_SIZES_MAX];
    size_t n_sizes;
    uint32_t max_len; /* the largest of those who serve it; 0: unknown */
    enum wp_confirm confirm; /* what its answers' usage is good for */
    double bytes_per_token;
};
/* name absent: the one model that is served, when there is just one.  Errors: WP_ENOMEM. */
int wp_fleet_model(struct wp_fleet *f, struct wp_str name, struct wp_arena *arena, struct wp_model_info *out);
/* The worker has answered 404 for an adapter: it is off its list until a probe finds it there again. */
void wp_fleet_unlist(struct wp_fleet *f, struct wp_worker *w, struct wp_str model);
/* Appends GET /v1/models: the union over the fleet, of those that may(arg, name) lets pass (NULL: all).  id absent: all; else that entry alone, WP_ENOENT when unknown. */
int wp_fleet_models_json(struct wp_fleet *f, struct wp_str id, bool (*may)(const void *arg, struct wp_str model), const void *arg,
                         struct wp_buf *out);
/* base: adapters have the tokenizer of their base model. */
void wp_fleet_learn_tokens(struct wp_fleet *f, struct wp_str base, uint64_t bytes, uint64_t tokens);

struct wp_placement;
struct wp_tenant;
struct wp_hold_line;
struct wp_want {
    const char *id;                    /* the client's request id, for the record; NULL: none */
    const struct wp_model_info *model; /* NULL: whatever `only` serves */
    struct wp_prompt *prompt;          /* hashed for every block size of model; NULL or none: placed by load */
    uint32_t tokens;          /* of the prompt */
    uint32_t max_tokens;
    uint32_t sequences;       /* that the engine runs for it; 0 counts as 1 */
    uint64_t session_key;
    struct wp_queue_who who;        /* its place among those who wait (router/tenants.h) */
    const struct wp_tenant *tenant; /* for the record; NULL: none */
    int priority;
    uint64_t due_us, target_us;     /* when its first token is due, and how long it gave for that; 0: it has said nothing */
    const double *held_us;          /* for the record: how long it was held; NULL: it was not */
    struct wp_worker *const *avoid; /* workers that failed this request already */
    size_t n_avoid;
    bool ranked;            /* the client chose the rank, and may */
    uint32_t rank;
    struct wp_worker *only; /* this one and no other (the repeat of a reuse race, a stored response), or NULL */
    const struct wp_placement *again; /* on `only`, as the repeat of this attempt, which still counts there; else NULL */
};

enum wp_place_result {
    WP_PLACED,
    WP_PLACE_NOBODY,  /* no worker is ready: 503 */
    WP_PLACE_BUSY,    /* all that are ready are at limits.per_worker, or as many wait as may: 429 */
    WP_PLACE_LATE,    /* its first token would come after want.due_us on each: 429 */
    WP_PLACE_TOO_LONG, /* the prompt fits none, not even one that is away: 400 */
    WP_PLACE_HELD      /* no worker is free: it waits here (router/hold.h) */
};

/* A request on a worker.  Embed it in the request; it must not move between place and end. */
struct wp_placement {
    struct wp_worker *worker; /* a reference; NULL: not placed */
    struct wp_rank *rank;     /* of the worker, until it ends */
    uint32_t rank_number, n_ranks; /* as they were when it was placed */
    struct wp_load_item item;
    const struct wp_hashes *hashes; /* of the prompt at this worker's block size, or NULL */
    struct wp_history_ends ends; /* as they were noted in flight */
    uint32_t more;               /* sequences beyond the first */
    bool exact;                  /* the prompt is of token ids */
    uint32_t space;
    uint32_t tokens, hit_tokens, hit_tier[WP_TIERS];
    double ttft_us; /* predicted; NaN: none */
    double actual_us; /* NaN before its first token */
    uint64_t record, placed_us;
    uint32_t claimed_blocks; /* leading blocks that the rank's KV events claimed */
    bool claim_sure;         /* and none of them in doubt */
    int64_t cached_tokens; /* what the engine said that it had of the prompt, of token ids; negative: not said */
    bool in_flight_noted, first_seen, probe_of_breaker;
    struct wp_sample sample; /* of what its prefill takes */
    bool teaches;            /* it is one to learn from: nothing was to be fetched, and no others' requests are ahead of it */
    bool unsure;             /* what it found in the cache is a guess until its usage says so */
    bool whole;              /* set before wp_fleet_first(): what came is a whole answer, and not a first token */
    bool waits;              /* something was ahead of it */
    double low_us, high_us;  /* nine times of ten its first token comes between these; NaN: no prediction */
    struct wp_hold_line *line; /* whose queue its tokens are charged to; NULL: none */
    struct wp_queue_who who;
    uint64_t charged;          /* of its answer */
    int64_t told_prompt, told_cached; /* the answer's usage, whatever the prompt's form; negative: not said */
};

struct wp_hold;
/* As wp_fleet_place(), but that it may be held: then hold->placed() is called once, unless wp_fleet_unhold() comes before it. */
enum wp_place_result wp_fleet_place_or_hold(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, struct wp_hold *hold,
                                            const char **why, uint64_t *retry_after_us);
/* why: a word for the error's param when not placed ("breaker", "drain", ...).  retry_after_us: when asking again makes sense. */
enum wp_place_result wp_fleet_place(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, const char **why,
                                    uint64_t *retry_after_us);
void wp_fleet_first(struct wp_fleet *f, struct wp_placement *p);             /* its first token came */
/* The answer had so many tokens in all; after its end, too. */
void wp_fleet_answered(struct wp_fleet *f, struct wp_placement *p, uint64_t tokens);
void wp_fleet_tokens(struct wp_fleet *f, struct wp_placement *p, uint32_t n); /* and more */
/* Ends it, with what it says about the worker; the reference is dropped.  rest_us: the pause that a busy engine asked for, or 0. */
void wp_fleet_end(struct wp_fleet *f, struct wp_placement *p, enum wp_outcome o, uint64_t rest_us);

/* Prices want on every worker, dispatches nothing, appends the JSON of POST /explain. */
int wp_fleet_explain(struct wp_fleet *f, const struct wp_want *want, struct wp_buf *out);

/* Records and states as JSON. */
int wp_fleet_decisions_json(struct wp_fleet *f, size_t last, struct wp_buf *out);
int wp_fleet_decision_json(struct wp_fleet *f, uint64_t id, struct wp_buf *out); /* WP_ENOENT */
int wp_fleet_workers_json(struct wp_fleet *f, struct wp_str id, struct wp_buf *out); /* id absent: all */
struct wp_index_prefix;
/* top[n]: the longest shared prefixes, to be shown as well; NULL: not asked for. */
int wp_fleet_index_json(struct wp_fleet *f, const struct wp_index_prefix *top, size_t n, struct wp_buf *out);
void wp_fleet_note_growth(struct wp_fleet *f); /* every second or so */
/* Of the index and of history, the latter as blocks of WP_HISTORY_BLOCK_BYTES, which is the most that one takes. */
enum { WP_HISTORY_BLOCK_BYTES = 64 };
void wp_fleet_memory(struct wp_fleet *f, uint64_t *index_bytes, uint64_t *history_bytes);
bool wp_fleet_serving(struct wp_fleet *f); /* a worker is ready */
bool wp_fleet_welcomes(struct wp_fleet *f); /* or requests of some model wait until one is (models[].wake) */

#endif
