/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/replay.h - `warmpath replay`: a trace played at a fleet in virtual time (sim/cluster.h), with the router's own mind
 * (sim/brain.h: serve's index and policies) deciding where each request goes.  The same seed gives the same figures.
 * Docs: docs/replay.md.
 */
#ifndef WP_SIM_REPLAY_H
#define WP_SIM_REPLAY_H

#include "policies/policy.h"
#include "sim/decisions.h"
#include "sim/plays.h"
#include "sim/report.h"
#include "sim/timeline.h"

struct wp_replay_conf {
    size_t workers;
    struct wp_profile profile;      /* of each worker; gpu_tokens and cpu_tokens are its caches */
    uint64_t store_blocks;          /* of the store that all share; 0: there is none */
    double link_bytes_per_s, link_setup_us, store_bytes_per_s;
    uint64_t stale_us;              /* how late the router is told of blocks and of what engines have to do */
    const char *policy, *label;     /* label: the column's head; NULL: the policy's name */
    struct wp_policy_conf policy_conf;
    uint64_t seed;
    double slo_ttft_s, slo_ttft_factor, slo_itl_s; /* 0: 5, 2, 0.15 */
    struct wp_decisions_out *record; /* NULL: decisions are not written */
    struct wp_timeline *timeline;    /* workers + 1 rows: seconds of prefill that wait on each, then requests held; NULL: not kept */
    /* Told of each request's end; o NULL: it was refused, so that its tenant crowds nobody out (policies/queue.h).  NULL: nobody is. */
    void (*on_end)(void *arg, const struct wp_play *p, const struct wp_outcome *o);
    void *on_end_arg;
};

/* The default fleet: 16 of the default profile, links of 25 GB/s and 2 ms, no store, nothing late. */
void wp_replay_conf_init(struct wp_replay_conf *c);

/*
 * Plays it all and fills a new report with what is not warm-up.  A request that can never fit is an error in it.
 * Errors: WP_EINVAL, WP_ENOMEM.
 */
int wp_replay_run(struct wp_report **out, const struct wp_replay_conf *conf, const struct wp_plays *plays, struct wp_err *err);

/* The command.  Returns the exit status. */
int wp_replay_main(int argc, char **argv);

#endif
