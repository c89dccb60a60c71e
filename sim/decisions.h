/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/decisions.h - recorded decisions made again: `warmpath replay --decisions FILE`.
 * The file is one of `serve --record` (policies/decision.h, in frames).  A file that was cut short is good up to there: what it has is
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

#endif
