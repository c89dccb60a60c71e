/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/decisions.h - recorded decisions made again: `warmpath replay --decisions FILE`.
 * The file is one of `serve --record` or `replay --record` (policies/decision.h, in frames).  A file that was cut short is good up to there: what it has is
 * checked, and that it ends too soon is an error all the same.
 */
#ifndef WP_SIM_DECISIONS_H
#define WP_SIM_DECISIONS_H

#include "policies/decision.h"

struct wp_decisions {
    struct wp_decision_counts count;
    char first[256]; /* the first that came out otherwise, in words */
    double seconds;
};

/* The bytes of a file.  Errors: WP_EINVAL (what is wrong, and where; counts are of what came before), WP_ENOMEM. */
int wp_decisions_check(struct wp_decisions *d, const void *p, size_t n, struct wp_err *err);
/* A file: says on stdout what came of it.  Errors: as above, and the system's; WP_EIO: some came out otherwise. */
int wp_decisions_run(const char *file, struct wp_err *err);

/*
 * `replay --record FILE`: what was decided, written to a file of that form, which is made anew (mode 0600).  What fails on the way is told at the end.
 * Threads: one.
 */
struct wp_decisions_out;
int wp_decisions_out_open(struct wp_decisions_out **out, const char *file, struct wp_err *err);
/* A run begins, with workers and requests of its own. */
void wp_decisions_out_run(struct wp_decisions_out *o, const char *policy, const struct wp_policy_conf *conf);
void wp_decisions_out_decision(void *o, const struct wp_decision *d); /* wp_brain_conf's on_decision */
void wp_decisions_out_first(struct wp_decisions_out *o, uint64_t id, double ttft_us);
int wp_decisions_out_close(struct wp_decisions_out *o, struct wp_err *err); /* NULL does nothing */

#endif
