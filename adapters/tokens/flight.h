/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/tokens/flight.h - the tokenizer that asks an engine, from inside: for engine.c (a
 * question's life) and calls.c (the calls of one question) alone.
 */
#ifndef WP_ADAPTERS_TOKENS_FLIGHT_H
#define WP_ADAPTERS_TOKENS_FLIGHT_H

#include "adapters/tokens/cache.h"
#include "adapters/tokens/kinds.h"
#include "adapters/tokens/rests.h"

enum { CALLS_MAX = 2 };

struct attempt {
    struct wp_tokens_flight *flight;
    struct wp_call *call; /* NULL: over */
    void *who;
    uint64_t key;
    int status;
    enum wp_tokens_result wrong; /* found in the body; 0 (ASKED): nothing yet */
    struct wp_buf page;
};

struct wp_tokens_flight {
    struct wp_list link;
    struct engine *engine;
    struct wp_tokens_key key;
    struct wp_blob *question;
    struct wp_list waiters;
    struct attempt attempt[CALLS_MAX];
    unsigned tried, open;
    struct wp_timer hedge;
    bool decided, orphan;
    size_t n_model;
    char model[]; /* for the second call */
};

struct engine {
    struct wp_tokens pub; /* first */
    struct wp_loop *loop;
    struct wp_tokens_cache cache;
    struct wp_map by_key; /* low half of the key -> flight */
    struct wp_list flights;
    struct wp_rests rests;
    unsigned orphans, questions, hedges; /* decayed, the latter two */
    bool closing;
};

/* calls.c: one more call.  0; WP_TOKENS_NOBODY or WP_TOKENS_NO_MEMORY when there is none. */
enum wp_tokens_result wp_flight_call(struct wp_tokens_flight *f);
/* calls.c: a call that is under way keeps others waiting: its worker is asked later than others. */
void wp_flight_slow(const struct attempt *a);
/*
 * engine.c: a call is over, and brought tokens (a reference of its caller's) or nothing, and why.
 * hopeless: another worker would say the same.  f may be gone afterwards.
 */
void wp_flight_over(struct wp_tokens_flight *f, enum wp_tokens_result r, bool hopeless,
                    struct wp_blob *tokens);

#endif
