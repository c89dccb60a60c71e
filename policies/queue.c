/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/queue.h"

#include "base/mem.h"

#include <math.h>

static const uint64_t soonest_us = 1000; /* between two looks */

int wp_queue_init(struct wp_queue *q, const struct wp_queue_conf *c, struct wp_err *err)
{
    *q = (struct wp_queue){.conf = *c, .first_deadline_us = UINT64_MAX};
    if (!(c->hold_us >= 0 && c->hold_us <= 1e12))
        return wp_fail(err, WP_EINVAL, "hold_us: want a number from 0 to 1e12, got %g", c->hold_us);
    if (!(c->age > 0 && c->age <= 1e6))
        return wp_fail(err, WP_EINVAL, "age: want a number above 0 and up to 1e6, got %g", c->age);
    if (!(c->most_us >= 0 && c->most_us <= 1e12))
        return wp_fail(err, WP_EINVAL, "hold_most_us: want a number from 0 to 1e12, got %g",
                       c->most_us);
    if (c->max > 1 << 24)
        return wp_fail(err, WP_EINVAL, "queue: want at most %d requests, got %zu", 1 << 24, c->max);
    if (c->max && !(q->heap = wp_malloc((c->max + 1) * sizeof(void *))))
        return wp_fail(err, WP_ENOMEM, "queue of %zu requests: out of memory", c->max);
    return 0;
}

void wp_queue_fini(struct wp_queue *q)
{
    wp_free(q->heap);
    q->heap = NULL;
}

static bool is_free(const struct wp_queue *q, double least_wait_us)
{
    return least_wait_us <= q->conf.hold_us; /* no number: no */
}

static bool before(const struct wp_queue_item *a, const struct wp_queue_item *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->key != b->key ? a->key < b->key : a->number < b->number;
}

static double key_of(const struct wp_queue *q, double cost_us, uint64_t arrived_us)
{
    return (cost_us > 0 ? fmin(cost_us, 1e15) : 0) + q->conf.age * (double)arrived_us;
}

bool wp_queue_holds(const struct wp_queue *q, double least_wait_us, uint64_t now_us, double cost_us,
                    uint32_t rank)
{
    struct wp_queue_item it = {
        .rank = rank, .key = key_of(q, cost_us, now_us), .number = q->pushed};

    if (q->conf.max == 0)
        return false;
    return !is_free(q, least_wait_us) || (q->n && !before(&it, q->heap[1]));
}

static void put(struct wp_queue *q, size_t at, struct wp_queue_item *it)
{
    q->heap[at] = it;
    it->at = at;
}

static void up(struct wp_queue *q, size_t at, struct wp_queue_item *it)
{
    while (at > 1 && before(it, q->heap[at / 2])) {
        put(q, at, q->heap[at / 2]);
        at /= 2;
    }
    put(q, at, it);
}

static void down(struct wp_queue *q, size_t at, struct wp_queue_item *it)
{
    for (size_t child; (child = 2 * at) <= q->n; at = child) {
        if (child < q->n && before(q->heap[child + 1], q->heap[child]))
            child++;
        if (!before(q->heap[child], it))
            break;
        put(q, at, q->heap[child]);
    }
    put(q, at, it);
}

bool wp_queue_push(struct wp_queue *q, struct wp_queue_item *it, uint64_t arrived_us,
                   double cost_us, uint32_t rank, uint64_t deadline_us)
{
    if (q->n >= q->conf.max) {
        q->refused++;
        return false;
    }
    if (deadline_us == 0)
        deadline_us = arrived_us + (uint64_t)q->conf.most_us;
    *it = (struct wp_queue_item){
        .rank = rank,
        .key = key_of(q, cost_us, arrived_us),
        .arrived_us = arrived_us,
        .deadline_us = deadline_us,
        .number = q->pushed++,
    };
    if (deadline_us < q->first_deadline_us)
        q->first_deadline_us = deadline_us;
    q->n++;
    up(q, q->n, it);
    return true;
}

static struct wp_queue_item *first_deadline(const struct wp_queue *q)
{
    struct wp_queue_item *first = NULL;

    for (size_t i = 1; i <= q->n; i++)
        if (!first || q->heap[i]->deadline_us < first->deadline_us)
            first = q->heap[i];
    return first;
}

void wp_queue_del(struct wp_queue *q, struct wp_queue_item *it)
{
    struct wp_queue_item *last;
    size_t at = it->at;

    if (at == 0)
        return;
    it->at = 0;
    last = q->heap[q->n--];
    if (last != it) {
        if (at > 1 && before(last, q->heap[at / 2]))
            up(q, at, last);
        else
            down(q, at, last);
    }
    if (it->deadline_us == q->first_deadline_us)
        q->first_deadline_us = first_deadline(q) ? first_deadline(q)->deadline_us : UINT64_MAX;
}

struct wp_queue_item *wp_queue_pop(struct wp_queue *q, uint64_t now_us, double least_wait_us)
{
    struct wp_queue_item *it = now_us >= q->first_deadline_us ? first_deadline(q) : NULL;
    double held;

    q->late += it != NULL;
    if (!it && q->n && is_free(q, least_wait_us))
        it = q->heap[1];
    if (!it)
        return NULL;
    wp_queue_del(q, it);
    held = now_us > it->arrived_us ? (double)(now_us - it->arrived_us) : 0;
    q->released++;
    q->held_us += held;
    q->longest_us = fmax(q->longest_us, held);
    return it;
}

uint64_t wp_queue_next_us(const struct wp_queue *q, uint64_t now_us, double least_wait_us)
{
    double over = least_wait_us - q->conf.hold_us;
    uint64_t at;

    if (q->n == 0)
        return UINT64_MAX;
    if (!(over < 1e15))
        return q->first_deadline_us;
    at = now_us + (over > 0 ? (uint64_t)over + 1 : 0);
    if (at < now_us + soonest_us)
        at = now_us + soonest_us;
    return at < q->first_deadline_us ? at : q->first_deadline_us;
}
