/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/recorder.h - every decision into a file (`serve --record FILE`), from which `warmpath replay --decisions FILE` makes it again.
 * What is told is put into a buffer of bounded size under a lock of its own, and a thread writes it: who decides never waits for a disk.  When the buffer
 * is full, records are dropped and counted, and the file says how many are missing where.
 * A file that has grown to its bound is finished and renamed to FILE.old, in the place of the one before; so is one that is there at the start.
 * A file of a process that was killed lacks its end, and is good up to the last second.
 * Form: policies/decision.h in frames (base/frames.h).  Threads: any.
 */
#ifndef WP_ROUTER_RECORDER_H
#define WP_ROUTER_RECORDER_H

#include "base/metrics.h"
#include "policies/decision.h"

enum { WP_RECORDER_BUFFER = 8 << 20 };

struct wp_recorder;

void wp_recorder_metrics(struct wp_metrics *m); /* they are there, at 0, also where nothing is recorded */
/* Errors: what the system says of the file; WP_ENOMEM. */
int wp_recorder_create(struct wp_recorder **out, const char *file, uint64_t max_bytes, struct wp_metrics *metrics, struct wp_err *err);
void wp_recorder_destroy(struct wp_recorder *r); /* writes what is left; NULL does nothing */

/* The policy in force from now on. */
void wp_recorder_policy(struct wp_recorder *r, const char *name, const struct wp_policy_conf *conf);
void wp_recorder_decision(struct wp_recorder *r, const struct wp_decision *d);
void wp_recorder_outcome(struct wp_recorder *r, uint64_t id, double ttft_us, const char *outcome);

#endif
