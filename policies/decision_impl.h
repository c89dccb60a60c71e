/* SPDX-License-Identifier: Apache-2.0 */
/* policies/decision_impl.h - the form of decisions' records: for decision.c, which writes, and decision_read.c alone. */
#ifndef WP_POLICIES_DECISION_IMPL_H
#define WP_POLICIES_DECISION_IMPL_H

#include "policies/decision.h"

enum { WP_DECISION_HEAD = 5, WP_DECISION_TEXT = 272, WP_DECISION_COSTS = 11 };
enum { WP_DECISION_ROW = 480 }; /* bytes of one worker, at most */
enum { FORM_ZERO, FORM_NAN, FORM_FOLLOWS, FORM_RAW };
enum { ASK_EXACT = 1, ASK_TUNED = 2, ASK_QUEUED = 4, ASK_POOL = 8 };

size_t wp_policy_settings(const struct wp_policy_conf *c, struct wp_decision_setting s[], size_t cap); /* policies.c */

static inline double *wp_decision_cost(struct wp_profile *p, int i)
{
    double *const at[WP_DECISION_COSTS] = {&p->a_us, &p->b_us, &p->t_c_us, &p->tw_us, &p->tov_us, &p->e_us, &p->d_us,
                                           &p->cpu_bytes_per_s, &p->disk_bytes_per_s, &p->remote_bytes_per_s, &p->speed};

    return at[i];
}
static inline void wp_decision_costs(const struct wp_profile *p, double x[WP_DECISION_COSTS])
{
    struct wp_profile copy = *p;

    for (int i = 0; i < WP_DECISION_COSTS; i++)
        x[i] = *wp_decision_cost(&copy, i);
}

/* In the order of policies/price.c, so that they come out to the bit; what comes out otherwise is written. */
static inline double wp_decision_sum(const struct wp_verdict *v)
{
    return v->term[WP_TERM_WAIT] + v->term[WP_TERM_FETCH] + v->term[WP_TERM_COMPUTE] + v->term[WP_TERM_LINK] + v->term[WP_TERM_ROOM] +
           v->term[WP_TERM_PIN];
}
static inline double wp_decision_ttft(const struct wp_verdict *v)
{
    return v->term[WP_TERM_WAIT] + v->term[WP_TERM_FETCH] + v->term[WP_TERM_COMPUTE] + v->step_us;
}

#endif
