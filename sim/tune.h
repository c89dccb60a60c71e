/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/tune.h - `warmpath replay --tune`: a search for settings of a policy on a trace, and whether what it gains is real.
 * It searches on the trace's first part alone, over two seeds; then the settings as they were and as they were found play the whole trace over five
 * seeds, and only requests of the part that was held out count.  A gain is real when it is more than 1 % and, taken as ratios of the same
 * seed, more than a one-sided t-test at 5 % puts down to luck.
 * The search: the defaults, where the settings are others; then each setting up and down by a factor, in an order drawn from the seed; what helps is kept, and gone on with; when nothing helps the
 * factor shrinks.  Source: Hooke and Jeeves, "Direct search solution of numerical and statistical problems", JACM 1961.
 * Same trace, settings and seed: same answer.  Threads: one.
 */
#ifndef WP_SIM_TUNE_H
#define WP_SIM_TUNE_H

#include "sim/replay.h"

enum { WP_TUNE_KNOBS = 16, WP_TUNE_SEEDS = 2, WP_TUNE_CHECKS = 5, WP_TUNE_EVALUATIONS_MAX = 10000, WP_TUNE_LEAST = 100 };

struct wp_tune_conf {
    const struct wp_replay_conf *replay; /* the policy, and its settings as they are */
    const struct wp_plays_conf *plays;   /* warmup: of the first part */
    const char *figure;                  /* what is to be small, as wp_tune_figures() names it; NULL: the mean TTFT */
    double share;                        /* of the trace's time to search on, 0.1..0.9 */
    size_t evaluations;                  /* at most */
};

struct wp_tune_knob {
    const char *key; /* below policy: */
    double from, to;
};
struct wp_tune_result {
    struct wp_tune_knob knob[WP_TUNE_KNOBS]; /* all that there are */
    size_t n_knobs, changed;
    size_t evaluations, searched, held_out; /* requests of the two parts */
    double search_from, search_to;          /* of the figure, on the first part */
    struct wp_figures was[WP_TUNE_CHECKS], is[WP_TUNE_CHECKS]; /* on what was held out, by seed */
    double ratio, lowest, highest, luck;    /* of the figure there: mean, extremes, what luck may do to the mean */
    bool real;
    struct wp_policy_conf conf; /* with what was found */
};

const char *const *wp_tune_figures(void); /* names, up to a NULL */
/* A figure of that name, small when it is good; slo_share counts as what is missing to 1. */
double wp_tune_figure(const struct wp_figures *f, const char *name);

/*
 * Errors: WP_EINVAL (nothing to tune in that policy, an unknown figure, a part with fewer than WP_TUNE_LEAST requests), and those of a replay.
 */
int wp_tune_run(struct wp_tune_result *r, const struct wp_tune_conf *conf, const struct wp_trace *t, struct wp_err *err);
/* Appends what was found, for people: a table, and what to paste into the configuration when the gain is real.  Errors: WP_ENOMEM. */
int wp_tune_text(const struct wp_tune_result *r, const struct wp_tune_conf *conf, struct wp_buf *out);
int wp_tune_json(const struct wp_tune_result *r, const struct wp_tune_conf *conf, struct wp_buf *out); /* the same as one object */
int wp_tune_snippet(const struct wp_tune_result *r, const struct wp_tune_conf *conf, struct wp_buf *out); /* the configuration alone */

#endif
