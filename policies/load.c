/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/load.h"

#include <assert.h>
#include <math.h>

static const double late_share =
    0.05; /* of the pending work, once the reckoning says that nothing is left */
static const double late_half_us =
    2e6; /* of the rest, half counts when a first token is late by this much */

static const struct wp_profile *known(const struct wp_profile *p)
{
    return p ? p : wp_profile_default();
}

static double slow_down(const struct wp_load *l, const struct wp_profile *p)
{
    if (l->reported)
        return wp_slow_down(known(p), l->batch, (double)l->batch_kv);
    return wp_slow_down(known(p), l->decoding, (double)l->kv_tokens);
}

static double drained(const struct wp_load *l, const struct wp_profile *p, uint64_t now_us)
{
    if (now_us <= l->as_of_us || !(l->backlog_us > 0))
        return l->backlog_us;
    return fmax(0, l->backlog_us - (double)(now_us - l->as_of_us) / slow_down(l, p));
}

static double token_us(const struct wp_profile *p)
{
    return fmax(0, p->a_us / (p->speed > 0 ? p->speed : 1));
}

/* Also after the clock went backwards: to stay at the later time would stop the draining until it
 * comes again. */
static void advance(struct wp_load *l, const struct wp_profile *p, uint64_t now_us)
{
    l->backlog_us = drained(l, p, now_us);
    l->as_of_us = now_us;
}

/* The request's prefill is work no more. */
static void settle(struct wp_load *l, struct wp_load_item *it, enum wp_load_stage stage)
{
    wp_list_del(&it->link);
    l->pending_us = wp_list_empty(&l->waiting)
                        ? 0
                        : fmax(0, l->pending_us - it->work_us); /* rounding does not stay */
    l->prefill_tokens -= it->prefill_tokens;
    it->stage = (uint8_t)stage;
}

/* Of the work of a request that waits: what the reckoning says is still to do.  The backlog is the
 * end of the queue. */
static double remaining(const struct wp_load *l, const struct wp_load_item *it)
{
    double behind = 0;

    for (const struct wp_list *at = it->link.next; at != &l->waiting; at = at->next)
        behind += WP_CONTAINER(at, const struct wp_load_item, link)->work_us;
    return fmin(it->work_us, fmax(0, l->backlog_us - behind));
}

void wp_load_init(struct wp_load *l)
{
    *l = (struct wp_load){0};
    wp_list_init(&l->waiting);
}

void wp_load_begin(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p,
                   uint64_t now_us, double work_us, uint32_t prefill_tokens, uint32_t prompt_tokens)
{
    assert(it->stage == WP_LOAD_NONE);
    advance(l, p, now_us);
    it->work_us = work_us > 0 ? fmin(work_us, 1e15) : 0; /* NaN too */
    it->prefill_tokens = prefill_tokens;
    it->kv_tokens = it->prompt_tokens = prompt_tokens;
    it->at_us = now_us;
    it->stage = WP_LOAD_WAITING;
    wp_list_push(&l->waiting, &it->link);
    l->backlog_us += it->work_us;
    l->pending_us += it->work_us;
    l->prefill_tokens += prefill_tokens;
    l->in_flight++;
    it->due_us = now_us + (uint64_t)fmin(l->backlog_us * slow_down(l, p), 1e18);
}

/* Everything up to the request is prefilled: what is behind it remains, less what the same step may
 * have begun. */
static void set_right(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p)
{
    double step = token_us(known(p)) * known(p)->budget;

    for (struct wp_list *at = l->waiting.next; at != &it->link; at = l->waiting.next)
        settle(l, WP_CONTAINER(at, struct wp_load_item, link), WP_LOAD_PASSED);
    settle(l, it, WP_LOAD_DECODING);
    if (l->believed)
        return;
    l->backlog_us = fmin(l->pending_us, fmax(l->backlog_us, l->pending_us - step));
}

void wp_load_first(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p,
                   uint64_t now_us)
{
    if (it->stage != WP_LOAD_WAITING && it->stage != WP_LOAD_PASSED)
        return;
    advance(l, p, now_us);
    if (it->stage == WP_LOAD_WAITING)
        set_right(l, it, p);
    it->stage = WP_LOAD_DECODING;
    l->moved_us = now_us;
    l->decoding++;
    l->kv_tokens += it->kv_tokens;
}

void wp_load_token(struct wp_load *l, struct wp_load_item *it, uint32_t n)
{
    if (it->stage != WP_LOAD_DECODING)
        return;
    if (n > UINT32_MAX - it->kv_tokens)
        n = UINT32_MAX - it->kv_tokens;
    it->kv_tokens += n;
    l->kv_tokens += n;
}

void wp_load_end(struct wp_load *l, struct wp_load_item *it, const struct wp_profile *p,
                 uint64_t now_us)
{
    double left;

    if (it->stage == WP_LOAD_NONE)
        return;
    advance(l, p, now_us);
    switch (it->stage) {
    case WP_LOAD_WAITING:
        left = remaining(l, it);
        settle(l, it, WP_LOAD_NONE);
        l->backlog_us = fmax(0, l->backlog_us - left);
        if (!l->believed)
            l->backlog_us = fmin(l->pending_us, l->backlog_us);
        break;
    case WP_LOAD_DECODING:
        l->decoding--;
        l->kv_tokens -= it->kv_tokens;
        break;
    default:
        break;
    }
    it->stage = WP_LOAD_NONE;
    l->moved_us = now_us;
    l->in_flight--;
}

/* Of a request's prefill the last `tokens` ones. */
static double tail_us(const struct wp_load_item *it, const struct wp_profile *p, uint64_t tokens)
{
    if (tokens >= it->prefill_tokens)
        return it->work_us;
    return fmin(it->work_us, wp_prefill_us(p, it->prompt_tokens - tokens, it->prompt_tokens));
}

/* What was dispatched after the report, each at its time, on top of what the report says. */
static void add_since(struct wp_load *l, struct wp_list *at, const struct wp_profile *p)
{
    for (; at != &l->waiting; at = at->next) {
        const struct wp_load_item *it = WP_CONTAINER(at, const struct wp_load_item, link);

        if (it->at_us > l->as_of_us)
            advance(l, p, it->at_us);
        l->backlog_us += it->work_us;
    }
}

void wp_load_told(struct wp_load *l, const struct wp_profile *p, uint64_t as_of_us,
                  uint64_t prefill_tokens, uint32_t in_flight, uint32_t decoding,
                  uint64_t kv_tokens)
{
    struct wp_list *at = l->waiting.prev, *since;
    uint64_t known_tokens = l->prefill_tokens;
    uint32_t later = 0;

    p = known(p);
    l->reported = true;
    l->batch = decoding;
    l->batch_kv = kv_tokens;
    l->told_us = as_of_us;
    while (at != &l->waiting && WP_CONTAINER(at, struct wp_load_item, link)->at_us > as_of_us) {
        known_tokens -= WP_CONTAINER(at, struct wp_load_item, link)->prefill_tokens;
        at = at->prev;
        later++;
    }
    l->believed = prefill_tokens <= known_tokens || in_flight > l->in_flight - later;
    if (!l->believed)
        return;
    l->backlog_us = 0;
    l->as_of_us = as_of_us;
    since = at->next;
    for (; at != &l->waiting && prefill_tokens; at = at->prev) {
        const struct wp_load_item *it = WP_CONTAINER(at, const struct wp_load_item, link);
        uint64_t tokens = prefill_tokens < it->prefill_tokens ? prefill_tokens : it->prefill_tokens;

        l->backlog_us += tail_us(it, p, tokens);
        prefill_tokens -= tokens;
    }
    l->backlog_us += fmin(1e15, token_us(p) * (double)prefill_tokens);
    add_since(l, since, p);
}

void wp_load_since(const struct wp_load *l, uint32_t *requests, uint64_t *prefill_tokens)
{
    *requests = 0;
    *prefill_tokens = 0;
    for (const struct wp_list *at = l->waiting.prev; at != &l->waiting; at = at->prev) {
        const struct wp_load_item *it = WP_CONTAINER(at, const struct wp_load_item, link);

        if (it->at_us <= l->told_us)
            break;
        ++*requests;
        *prefill_tokens += it->prefill_tokens;
    }
}

double wp_load_wait_us(const struct wp_load *l, const struct wp_profile *p, uint64_t now_us)
{
    const struct wp_load_item *head;
    double late, share;
    uint64_t since;

    if (l->believed)
        return slow_down(l, p) * drained(l, p, now_us);
    if (wp_list_empty(&l->waiting))
        return 0;
    head = WP_CONTAINER(l->waiting.next, const struct wp_load_item, link);
    since = head->due_us > l->moved_us ? head->due_us : l->moved_us;
    late = now_us > since ? (double)(now_us - since) : 0;
    share = late_share + (1 - late_share) * late / (late + late_half_us);
    return slow_down(l, p) * fmax(drained(l, p, now_us), share * l->pending_us);
}
