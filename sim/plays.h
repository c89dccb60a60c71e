/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/plays.h - what a replay plays: a trace, once or as several crowds that share its hot prefixes.
 * Copies of a trace load a large fleet as one loads a small one.  Ids of different copies are different, but for those of blocks that
 * more than 2 % of the trace's requests have: a system prompt is everybody's.  Each copy starts at a time of its own within a
 * minute of the trace, so that they do not come in step.  Then arrivals are spread by the jitter and compressed by the scale.
 * What comes in the first tenth of the trace is warm-up.
 * Source: the laboratory's load (docs/replay.md).
 */
#ifndef WP_SIM_PLAYS_H
#define WP_SIM_PLAYS_H

#include "sim/cluster.h"
#include "sim/trace.h"

struct wp_plays_conf {
    size_t copies;     /* at least 1 */
    double scale;      /* above 0: arrivals so many times as dense */
    double jitter_s;   /* of the trace's time, before it is scaled */
    double warmup;     /* share of the trace's time */
    uint64_t seed;
};

struct wp_plays {
    struct wp_play *play; /* [n], in order of arrival */
    size_t n;
    uint64_t *ids;
    double span_s; /* from the first measured arrival to the last */
};

/* The trace is not needed afterwards.  Errors: WP_EINVAL, WP_ENOMEM, WP_ETOOBIG. */
int wp_plays_make(struct wp_plays *p, const struct wp_trace *t, const struct wp_plays_conf *conf, struct wp_err *err);
void wp_plays_fini(struct wp_plays *p);

#endif
