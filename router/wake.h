/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/wake.h - scale from zero: what starts a worker of a model that has none.
 * A model with models[].wake may be asked for while no worker of it is up: its requests are held (router/hold.h), wake.most of them for wake.wait_s at
 * most, and the first of them has wake.command run or wake.url POSTed to, once however many wait, and again after wake.again_s when somebody
 * still does.  What it starts becomes a worker as any other does: it is configured, and a probe finds it up, or it is added.
 *
 * The command is a program and its arguments, with no shell between: ["sh", "-c", "..."] has one.  It has the router's environment and
 * WARMPATH_MODEL, no input, and the router's stderr for both its outputs.  It is not waited for by anything: how it ends is logged and
 * counted; one that still runs is not started a second time, and goes on when the router ends.
 * Threads: wp_wake_ask() and wp_wake_expect_us() any; the rest gate 0's.
 */
#ifndef WP_ROUTER_WAKE_H
#define WP_ROUTER_WAKE_H

#include "router/router.h"

struct wp_waker;

int wp_waker_create(struct wp_waker **out, struct wp_gate *g, struct wp_metrics *m, struct wp_err *err); /* WP_ENOMEM, and a client's */
/* After a configuration was read: what its URLs need.  Errors: those of TLS, logged; then https URLs fail. */
void wp_waker_configure(struct wp_waker *w, const struct wp_config *conf);
void wp_waker_close(struct wp_waker *w, void (*closed)(void *arg), void *arg); /* nothing is started any more; closed: later */
void wp_waker_destroy(struct wp_waker *w);                                     /* after that, when its loop has ended */

/* Somebody waits for the model, which has a wake: it is started unless it was within wake.again_s.  w NULL: nothing. */
void wp_wake_ask(struct wp_waker *w, const struct wp_config_model *m, uint64_t now_us);
void wp_wake_came(struct wp_waker *w, const struct wp_config_model *m, uint64_t now_us); /* a worker is up */
/* In how long a worker may be up, by how long the last one took; wake.again_s as long as none has. */
uint64_t wp_wake_expect_us(struct wp_waker *w, const struct wp_config_model *m, uint64_t now_us);

#endif
