/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/load.h - our own account of what a worker has to do: the truth between the engine's reports.
 * A request counts from dispatch to its end, never by age.  Its prefill is work until its first token; the work of a
 * worker is reckoned to drain at the pace its decode batch allows, and is set right by each first token.
 * Threads: one at a time.  Cost: O(1), no allocation after add.
 */
#ifndef WP_POLICIES_LOAD_H
#define WP_POLICIES_LOAD_H

#include "base/list.h"
#include "policies/profile.h"

struct wp_load { /* one worker; {0} then wp_load_init */
    struct wp_list waiting; /* wp_load_item, in order of dispatch */
    double backlog_us;      /* prefill work as of as_of_us, not slowed */
    double pending_us;      /* sum over waiting */
    uint64_t as_of_us;
    uint32_t in_flight, decoding;
    uint64_t kv_tokens, prefill_tokens;
};
struct wp_load_item { /* one request; embed it */
    struct wp_list link;
    double work_us;
    uint32_t prefill_tokens, kv_tokens;
    uint8_t stage; /* 0 not counted, 1 waiting, 2 decoding */
};

void wp_load_init(struct wp_load *l);
void wp_load_begin(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p, uint64_t now_us,
                   double work_us, uint32_t prefill_tokens, uint32_t prompt_tokens);
void wp_load_first(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p, uint64_t now_us);
void wp_load_token(struct wp_load *l, struct wp_load_item *it, uint32_t n); /* n more tokens of output */
void wp_load_end(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p, uint64_t now_us);
/* Time until a new request's prefill could start, slow-down by the decode batch included. */
double wp_load_wait_us(const struct wp_load *l, const struct wp_profile *p, uint64_t now_us);

#endif
