/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/load.h - our own account of what a worker has to do: the truth between the engine's
 * reports.
 * A request counts from dispatch to its end, never by age.  Its prefill is work until its first
 * token; the work of a worker is reckoned to drain at the pace its decode batch allows, and is set
 * right by each first token.
 *
 * The reckoning.  An engine prefills in order of arrival, one chunk of `budget` tokens a step.  So
 *   - between reports, backlog drains at 1 / slow_down since as_of (wp_slow_down of profile.h);
 *   - the first token of a request says that all dispatched before it are prefilled too, or will
 *     be with the same step.  They are work no more, and backlog is what was dispatched behind it,
 *     less at most one step's chunk, which may be done already:
 *         behind - a budget <= backlog <= behind
 *   - a request whose first token is late does not make its worker look free.  Late by t since it
 *     was due, or since the worker last gave a first token or an end, whichever is later, at least
 *     this share of the pending work counts:
 *         0.05 + 0.95 t / (t + 2 s)
 *     A worker that stalls looks nearly idle for a moment, and half as full as all that waits on
 *     it after two seconds.  Never more than what waits counts: an answer that is not streamed
 *     shows no first token until its end, and must not shut its worker.
 *
 * Reports.  An engine that says how many prompt tokens it still has to compute is believed: backlog is
 * what the tokens stand for, as of the report.  It computes in order, so they are those of the last
 * requests that it had by then; what was dispatched since is added at its time, and all drains from
 * there on as above. 
 * A report of more than all requests known here have to compute is believed where it has more requests in flight, too, and the rest
 * costs a_us a token; else the engine counts otherwise, perhaps without what it will find in its cache, and our own account goes on.
 * So a report that is late by seconds neither hides a worker that has become free nor what was sent there meanwhile.
 * A late first token changes nothing where the last report was believed, as the next one will tell.
 *
 * An answer that is not streamed: call wp_load_first() and wp_load_end() when it has come.
 * A clock that goes backwards drains nothing.  Gauges are exactly 0 when nothing is in flight.
 * Threads: one at a time.  No allocation.
 * Cost: O(1) over a request's life; ending it before its first token is O(requests waiting there).
 */
#ifndef WP_POLICIES_LOAD_H
#define WP_POLICIES_LOAD_H

#include "base/list.h"
#include "policies/profile.h"

struct wp_load {            /* one worker; {0} then wp_load_init */
    struct wp_list waiting; /* wp_load_item, in order of dispatch */
    double backlog_us;      /* prefill work as of as_of_us, not slowed */
    double pending_us;      /* sum over waiting */
    uint64_t as_of_us;
    uint64_t moved_us; /* the last first token or end */
    uint32_t in_flight, decoding;
    uint64_t kv_tokens, prefill_tokens;
    bool reported; /* by wp_load_told, as of told_us: the decode batch is the engine's own word */
    uint64_t told_us;
    bool believed; /* backlog is the last report's */
    uint32_t batch;
    uint64_t batch_kv;
};
/* Passed: a request dispatched later had its first token, so this one's is due any moment. */
enum wp_load_stage { WP_LOAD_NONE, WP_LOAD_WAITING, WP_LOAD_DECODING, WP_LOAD_PASSED };
struct wp_load_item { /* one request; embed it, {0} before use */
    struct wp_list link;
    double work_us;
    uint64_t at_us;  /* of its dispatch */
    uint64_t due_us; /* when its first token was reckoned to come, at its dispatch */
    uint32_t prompt_tokens;
    uint32_t prefill_tokens, kv_tokens;
    uint8_t stage; /* enum wp_load_stage */
};

void wp_load_init(struct wp_load *l);
/* p may be NULL in all of these: the default profile.  work_us: prefill of what is missing. */
void wp_load_begin(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p,
                   uint64_t now_us, double work_us, uint32_t prefill_tokens,
                   uint32_t prompt_tokens);
/* Does nothing unless the request waits or was passed. */
void wp_load_first(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p,
                   uint64_t now_us);
/* n more tokens of output, the first one included; before wp_load_first() they do not count. */
void wp_load_token(struct wp_load *l, struct wp_load_item *it, uint32_t n);
/* At any stage; does nothing when the request is not counted, so it may be called twice. */
void wp_load_end(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p,
                 uint64_t now_us);
/*
 * The engine's own word as of as_of_us, which may be long ago, but not later than what was told since.
 * Cost: O(requests waiting there).
 */
void wp_load_told(struct wp_load *l, const struct wp_profile *p, uint64_t as_of_us,
                    uint64_t prefill_tokens, uint32_t in_flight, uint32_t decoding, uint64_t kv_tokens);
/* What was dispatched later than the last report. */
void wp_load_since(const struct wp_load *l, uint32_t *requests, uint64_t *prefill_tokens);
/*
 * Time until a new request's prefill could start, slow-down by the decode batch included.  Never
 * negative, never NaN.
 */
double wp_load_wait_us(const struct wp_load *l, const struct wp_profile *p, uint64_t now_us);
/*
 * A wait as it is held against hold_us (policies/queue.h), which is of an engine at speed 1: one that is twice as fast is free with
 * half as much.  It is above hold_us when the wait is above hold_us / speed, and drains as the wait does.
 */
static inline double wp_load_wait_to_hold(double wait_us, double hold_us, const struct wp_profile *p)
{
    double speed = p && p->speed > 0 ? p->speed : 1;

    return wait_us + hold_us * (1 - 1 / speed);
}

#endif
