/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/tokens/tokens.h - from a request's prompt to the token ids that the engine will see.
 *
 * A tokenizer is chosen by name (models[].tokenizer.kind):
 *     bytes     has no ids, ever: the router matches the prompt's text, approximately
 *     engine    asks one of the model's workers, by vLLM's POST /tokenize (0.23 and 0.32)
 * A question is put by wp_tokens_ask().  It is answered at once (from the cache, or because there
 * is nothing to wait for), or later by a callback, within a limit; without ids the caller goes on
 * with bytes.
 *
 * engine, the happy path: the members that change the prompt become a body of their own, whose hash
 * is looked up in the cache; an equal question that is under way is joined; else a worker is asked,
 * and its answer is kept.  Hedging: a second worker is asked when the first fails, or is silent for
 * hedge_us (for a tenth of the questions at most, past the first ten: a fleet that is slow as a
 * whole is not asked twice). Whoever answers first wins, and the other call is cancelled.  Failing:
 * both fail, or the limit passes, and the caller gets the reason instead of ids.  A call that is
 * merely late goes on for a second, for the cache: the same question may come again.  When nobody
 * waits because all cancelled, the calls are cancelled. A worker that lacks the route (401, 403,
 * 404, 405, 501, or an answer that is none) is left alone for 30 s, one that cannot be reached or
 * has trouble of its own for one; a late one is asked again within a second only when there is no
 * other.
 *
 * What /tokenize cannot say, is not asked (unsuited): media (their placeholders are not expanded
 * there), truncate_prompt_tokens, prompt_embeds.  documents and reasoning_effort go into
 * chat_template_kwargs, where the chat route puts them too, since /tokenize ignores them elsewhere.
 * Source: engines' wire facts as captured in tests/data/spec/real/ (tok_*); "hedged requests" as in
 * Dean and Barroso, The Tail at Scale, CACM 2013.
 *
 * Owner: the caller embeds a struct wp_tokens_wait; it must stay where it is until it was answered
 * or cancelled. Threads: a tokenizer belongs to its client's loop.
 */
#ifndef WP_ADAPTERS_TOKENS_TOKENS_H
#define WP_ADAPTERS_TOKENS_TOKENS_H

#include "base/mem.h"
#include "base/metrics.h"
#include "net/client.h"
#include "net/json.h"

struct wp_tokens;

/* What becomes of a question: each has exactly one of these, and is counted under its name. */
enum wp_tokens_result {
    /* With ids: */
    WP_TOKENS_ASKED,  /* a worker said so */
    WP_TOKENS_HEDGED, /* the second worker said so */
    WP_TOKENS_SHARED, /* an equal question was under way */
    WP_TOKENS_CACHED,
    /* Without: */
    WP_TOKENS_BYTES,     /* a tokenizer of this kind has none */
    WP_TOKENS_UNSUITED,  /* the engine could not be asked this exactly */
    WP_TOKENS_NOBODY,    /* no worker to ask, or none that has the route */
    WP_TOKENS_LATE,      /* the limit passed */
    WP_TOKENS_FAILED,    /* the connection failed, the engine had trouble (5xx) */
    WP_TOKENS_REFUSED,   /* the engine will not answer this (4xx) */
    WP_TOKENS_GARBAGE,   /* an answer that is none, or far too long */
    WP_TOKENS_NO_MEMORY, /* ours */
    WP_TOKENS_CANCELED,  /* by wp_tokens_cancel() or wp_tokens_destroy() */
    WP_TOKENS_RESULTS,
    WP_TOKENS_LATER = WP_TOKENS_RESULTS, /* from wp_tokens_ask() alone: the callback will tell */
};
extern const char *const wp_tokens_result_names[WP_TOKENS_RESULTS];

/* A prompt: members of the request's body where they lie (ABSENT when not there).  Needed only
 * during wp_tokens_ask(). */
struct wp_tokens_prompt {
    bool chat;
    struct wp_str model;   /* as the engines know it */
    struct wp_json prompt; /* of a completion: one string */
    struct wp_json messages, tools, chat_template, chat_template_kwargs, documents,
        reasoning_effort, add_generation_prompt, continue_final_message; /* of a chat */
    struct wp_json add_special_tokens, truncate_prompt_tokens, prompt_embeds;
};

/* A worker that may be asked.  Slices must live until who is dropped. */
struct wp_tokens_worker {
    struct wp_str host;
    uint16_t port;
    struct wp_tls *tls;   /* NULL: none; lives as the slices do */
    struct wp_str base;   /* path prefix, "" or "/base" */
    struct wp_str bearer; /* its API key; "" none */
    uint64_t key;         /* the same for the same worker, as long as it lives */
    void *who;            /* the owner's reference */
};

struct wp_tokens_conf {
    struct wp_client *client;
    uint64_t limit_us,
        hedge_us;        /* a question waits so long at most; a second worker is asked after */
    uint64_t per_mib_us; /* both are longer by this for each MiB of the question */
    size_t cache_bytes;  /* of questions answered; 0: none are kept */
    uint64_t secret;     /* seeds the hash of questions: equal hashes cannot be aimed at */
    /* Any ready worker of model but those, the least busy; false when there is none.  drop() gives
     * who back. */
    bool (*pick)(void *arg, struct wp_str model, const uint64_t but[], size_t n,
                 struct wp_tokens_worker *out);
    void (*drop)(void *arg, void *who);
    void *arg;
    struct wp_family *results; /* by result; NULL: not counted */
    struct wp_series *calls;   /* calls made; NULL: not counted */
};

struct wp_tokens_wait;
/*
 * tokens: the ids as uint32_t, n bytes of them; NULL without.  It is the callback's only during the
 * call: whoever keeps it takes a reference, and nobody changes it.
 */
typedef void (*wp_tokens_fn)(struct wp_tokens_wait *w, enum wp_tokens_result r,
                             struct wp_blob *tokens);

struct wp_tokens_wait {
    void *arg; /* the caller's */
    /* Ours: */
    wp_tokens_fn fn;
    struct wp_list link;
    struct wp_timer timer;
    struct wp_tokens_flight *flight; /* NULL: not waiting */
    bool joined;
};

struct wp_tokens_ops {
    const char *name;    /* as the configuration spells it */
    const char *summary; /* one line */
    int (*create)(struct wp_tokens **out, const struct wp_tokens_conf *conf, struct wp_err *err);
    enum wp_tokens_result (*ask)(struct wp_tokens *t, const struct wp_tokens_prompt *p,
                                 struct wp_tokens_wait *w, wp_tokens_fn fn, struct wp_blob **now);
    /* What it keeps takes at most so many bytes from now on, and conf.cache_bytes; returns how many it takes.  NULL: it keeps nothing. */
    size_t (*limit)(struct wp_tokens *t, size_t bytes);
    void (*destroy)(struct wp_tokens *t, void (*closed)(void *arg), void *arg);
};
extern const struct wp_tokens_ops *const wp_tokenizers[]; /* ends with NULL */
const struct wp_tokens_ops *wp_tokenizer_find(const char *name);

/* An implementation embeds this as its first member. */
struct wp_tokens {
    const struct wp_tokens_ops *ops;
    struct wp_tokens_conf conf;
    struct wp_series *count[WP_TOKENS_RESULTS];
    struct wp_timer end; /* the "later" of destroy */
    void (*closed)(void *arg);
    void *closed_arg;
};

/* Errors: WP_EINVAL (no such kind), WP_ENOMEM. */
int wp_tokens_create(struct wp_tokens **out, const char *kind, const struct wp_tokens_conf *conf,
                     struct wp_err *err);
/*
 * Questions that wait are answered WP_TOKENS_CANCELED, and then closed(arg) comes, later than this
 * call.  NULL does nothing and calls nothing.
 */
void wp_tokens_destroy(struct wp_tokens *t, void (*closed)(void *arg), void *arg);

/*
 * Returns WP_TOKENS_LATER: fn(w, ...) comes exactly once, not before this call has returned, unless
 * w is cancelled.  Else the result, and *now is a reference to the ids when there are any, the
 * caller's to drop; fn is not called. Cost: a copy and a hash of the prompt; a cache hit asks
 * nobody.
 */
enum wp_tokens_result wp_tokens_ask(struct wp_tokens *t, const struct wp_tokens_prompt *p,
                                    struct wp_tokens_wait *w, wp_tokens_fn fn,
                                    struct wp_blob **now);
size_t wp_tokens_limit(struct wp_tokens *t, size_t bytes);
void wp_tokens_cancel(
    struct wp_tokens_wait *w); /* no answer comes; one that is not waiting is left alone */

/* How long is waited for a question of that many bytes. */
uint64_t wp_tokens_limit_us(const struct wp_tokens_conf *conf, uint64_t base_us, size_t bytes);

#endif
