/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/tokens.h - a gate's tokenizers: one for each model of the configuration, of the kind that
 * its tokenizer: says. A prompt of text or chat is put to its model's; until that answers, or the
 * limit passes, the request waits.  Workers are asked beside their requests: that counts nowhere
 * and blocks nobody. Threads: the gate's loop; each gate has a cache of its own.
 */
#ifndef WP_ROUTER_TOKENS_H
#define WP_ROUTER_TOKENS_H

#include "adapters/tokens/tokens.h"
#include "router/ask.h"
#include "router/router.h"

struct wp_tokenizers;

int wp_tokenizers_create(struct wp_tokenizers **out, struct wp_gate *g, struct wp_err *err);
/*
 * The gate's settings are others now: tokenizers whose settings are the same stay, with what they
 * know.  A model whose tokenizer cannot be made, for want of memory, goes by bytes.
 */
/* What all of them keep takes at most so many bytes from now on, in proportion to what each may; returns how many it takes. */
uint64_t wp_tokenizers_limit(struct wp_tokenizers *ts, uint64_t bytes);
void wp_tokenizers_configure(struct wp_tokenizers *ts);
/* Who waits is answered WP_TOKENS_CANCELED; closed(arg) comes last, later.  NULL does nothing and
 * calls nothing. */
void wp_tokenizers_destroy(struct wp_tokenizers *ts, void (*closed)(void *arg), void *arg);

/*
 * Asks for the ids of a prompt that has none.  WP_TOKENS_LATER: fn comes, with w->arg
 * (adapters/tokens/tokens.h), and then wp_tokenizers_take() is called for what it brings.  Anything
 * else: a is as good as it gets, with ids when they were at hand.
 */
enum wp_tokens_result wp_tokenizers_ask(struct wp_tokenizers *ts, struct wp_asked *a,
                                        enum wp_route_kind kind, struct wp_arena *arena,
                                        struct wp_tokens_wait *w, wp_tokens_fn fn);
void wp_tokenizers_take(struct wp_tokenizers *ts, struct wp_asked *a, const struct wp_blob *tokens,
                        struct wp_arena *arena);

#endif
