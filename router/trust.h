/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/trust.h - is what a rank's KV events claim what its engine says it has?
 *
 * Each answer that tells cached_tokens is a draw: wrong when the engine had less than events claimed for sure.  A few are by chance:
 * blocks go between our look and the engine's.  Whether there are more is Page's cumulative sum of the log likelihood ratio of
 * WP_TRUST_BAD to WP_TRUST_CHANCE: it falls with a right answer and rises with a wrong one, never below 0, and at ln(WP_TRUST_RUN) it is
 * an alarm.  As long as no more than WP_TRUST_CHANCE of the answers are wrong, each for itself, an alarm comes but once in
 * WP_TRUST_RUN answers on the average, or less often; six wrong ones in a row are one.
 * Source: E. S. Page, Continuous inspection schemes (Biometrika 1954); the bound: G. Lorden (Ann. Math. Stat. 1971).
 * Threads: the owner's.  It is told the time.
 */
#ifndef WP_ROUTER_TRUST_H
#define WP_ROUTER_TRUST_H

#include <stdbool.h>
#include <stdint.h>

#define WP_TRUST_CHANCE 0.05
#define WP_TRUST_BAD    0.5
#define WP_TRUST_RUN    1e6
enum { WP_TRUST_REST_US = 300000000 }; /* after an alarm nothing is heard for so long: what it led to must show first */

struct wp_trust {
    double evidence;
    uint64_t claims, wrong; /* answers heard, and those of them that were wrong */
    uint64_t since_claims, since_wrong; /* those that began when there was no evidence */
    uint64_t rest_until_us, alarms;
};

/* An answer.  True: an alarm; then all is as at first, but for the counts, after a rest. */
bool wp_trust_hear(struct wp_trust *t, bool wrong, uint64_t now_us);

#endif
