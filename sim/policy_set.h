/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/policy_set.h - `--set KEY=VALUE` for programs that have a policy and no configuration file: the keys of `policy:`
 * (policies/rows.h) and, for whoever simulates a fleet, those of its links, store and caches and of the objective.
 */
#ifndef WP_SIM_POLICY_SET_H
#define WP_SIM_POLICY_SET_H

#include "policies/policy.h"

struct wp_settings {
    struct wp_policy_conf policy;
    struct { /* fleet.* */
        double link_bytes_per_s, link_setup_us, store_bytes_per_s;
        uint64_t store_blocks;
        uint64_t gpu_blocks, cpu_blocks; /* of 512 tokens, a worker; 0: the profile's; no cpu tier: no_cpu */
        bool no_cpu;
    } fleet;
    struct { /* slo.* */
        double ttft_s, ttft_factor, itl_ms;
    } slo;
};

/* Defaults, then set[n] in order.  Errors: WP_EUSAGE, the first one's sentence, with the nearest key; WP_ENOMEM. */
int wp_settings_read(struct wp_settings *s, const char *const set[], size_t n, struct wp_err *err);

#endif
