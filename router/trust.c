/* SPDX-License-Identifier: Apache-2.0 */
#include "router/trust.h"

#include <math.h>

bool wp_trust_hear(struct wp_trust *t, bool wrong, uint64_t now_us)
{
    if (now_us < t->rest_until_us)
        return false;
    t->claims++;
    t->wrong += wrong;
    if (t->evidence == 0)
        t->since_claims = t->since_wrong = 0;
    t->since_claims++;
    t->since_wrong += wrong;
    t->evidence += wrong ? log(WP_TRUST_BAD / WP_TRUST_CHANCE) : log((1 - WP_TRUST_BAD) / (1 - WP_TRUST_CHANCE));
    if (t->evidence < 0)
        t->evidence = 0;
    if (t->evidence < log(WP_TRUST_RUN))
        return false;
    t->evidence = 0;
    t->alarms++;
    t->rest_until_us = now_us + WP_TRUST_REST_US;
    return true;
}
