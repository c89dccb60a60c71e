/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/engine.h - `warmpath engine`: a simulated inference engine on real sockets, which a client
 * cannot tell from vLLM 0.32. The model (sim/model.h) says when tokens come; this drives it in real
 * time: at each wake-up it plays all that is due by the exact clock, so late wake-ups delay single
 * tokens and never add up.
 *
 * A request: its head (faults that strike any request), its body, then a route.  Completions and
 * chats become a job: refused, or one sequence a prompt and choice in the model; tokens go out as
 * they come, or all at the end; the job ends with the exchange. A client that goes away takes its
 * sequences out of the model.
 *
 * Threads: everything belongs to the loop's.
 */
#ifndef WP_SIM_ENGINE_H
#define WP_SIM_ENGINE_H

#include "net/server.h"
#include "sim/fault.h"
#include "sim/model.h"
#include "sim/publish.h"

struct wp_engine; /* sim/engine_impl.h */

enum { WP_ENGINE_RANKS = 64 };

struct wp_engine_events { /* KV events; sim/publish.h and sim/payload.h say what these mean */
    const char *endpoint, *replay, *topic; /* replay, topic: may be NULL */
    enum wp_publish_mode mode;
    size_t buffer; /* 0: vLLM's 10,000 */
    bool bare_replies, as_array, hash_bytes, tier_only;
};

struct wp_engine_conf {
    struct wp_str listen; /* "127.0.0.1:0" */
    const char *model;    /* the served name */
    struct wp_model_conf cost;
    uint32_t max_model_len; /* 0: as much as the profile and the gpu tier allow */
    uint64_t seed;          /* of what it says, and of what goes wrong with events */
    uint64_t hash_seed;     /* of the hashes that it announces */
    uint32_t ranks;         /* 0: one */
    bool no_copies;         /* a model without copies (sim/tiers.h) */
    bool remove_first; /* a block that moves to a lower tier is announced gone above before it is
                          stored below */
    const char *const *adapter; /* [n_adapters] LoRA adapters, each a served name */
    size_t n_adapters;
    const struct wp_engine_events *events; /* NULL: none */
    const struct wp_fault *fault;
    size_t n_faults;
};

/* conf is copied.  Errors: WP_EINVAL (a context that cannot fit), WP_ENOMEM, libuv's. */
int wp_engine_create(struct wp_engine **out, struct wp_loop *l, const struct wp_engine_conf *conf,
                     struct wp_err *err);
uint16_t wp_engine_port(const struct wp_engine *e);
size_t wp_engine_exchanges(const struct wp_engine *e); /* under way */
void wp_engine_drain(struct wp_engine *e);             /* takes no new connections */
void wp_engine_destroy(struct wp_engine *e, void (*closed)(void *arg),
                       void *arg); /* closed: last, later; may be NULL */

/* The command.  Returns the exit status. */
int wp_engine_main(int argc, char **argv);

#endif
