/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/queue.h"

#include "base/mem.h"

#include <math.h>

static const uint64_t soonest_us = 1000; /* between two looks */
#define FADE_US    10e6                  /* what was released counts for so long */
#define TELLING_US 0.3e6
enum { TELLING = 8, TENANTS_MAX = 1 << 20 };

static struct wp_queue_item *item_of(const struct wp_heap_node *n)
{
    return n ? WP_CONTAINER(n, struct wp_queue_item, in_order) : NULL;
}

static struct wp_queue_tenant *tenant_at(const struct wp_heap_node *n)
{
    return n ? WP_CONTAINER(n, struct wp_queue_tenant, node) : NULL;
}

static struct wp_queue_item *due(const struct wp_queue *q)
{
    struct wp_heap_node *n = q->deadlines.first;

    return n ? WP_CONTAINER(n, struct wp_queue_item, by_deadline) : NULL;
}

/* ---- orders ---- */

static bool before(const struct wp_queue_item *a, const struct wp_queue_item *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->key != b->key ? a->key < b->key : a->number < b->number;
}

static bool item_before(const struct wp_heap_node *a, const struct wp_heap_node *b)
{
    return before(item_of(a), item_of(b));
}

/* Two tenants by their accounts and first ones. */
static bool comes_first(double account_a, const struct wp_queue_item *a, double account_b,
                        const struct wp_queue_item *b)
{
    if (a->rank != b->rank || account_a == account_b)
        return before(a, b);
    return account_a < account_b;
}

static bool tenant_before(const struct wp_heap_node *a, const struct wp_heap_node *b)
{
    const struct wp_queue_tenant *s = tenant_at(a), *t = tenant_at(b);

    return comes_first(s->account, item_of(s->items.first), t->account, item_of(t->items.first));
}

static bool due_before(const struct wp_heap_node *a, const struct wp_heap_node *b)
{
    const struct wp_queue_item *x = WP_CONTAINER(a, struct wp_queue_item, by_deadline);
    const struct wp_queue_item *y = WP_CONTAINER(b, struct wp_queue_item, by_deadline);

    return x->deadline_us != y->deadline_us ? x->deadline_us < y->deadline_us
                                            : x->number < y->number;
}

/* ---- life ---- */

int wp_queue_init(struct wp_queue *q, const struct wp_queue_conf *c, struct wp_err *err)
{
    *q = (struct wp_queue){
        .conf = *c, .tenants.before = tenant_before, .deadlines.before = due_before};
    wp_list_init(&q->recent);
    wp_list_init(&q->held);
    if (!(c->hold_us >= 0 && c->hold_us <= 1e12))
        return wp_fail(err, WP_EINVAL, "hold_us: want a number from 0 to 1e12, got %g", c->hold_us);
    if (!(c->age > 0 && c->age <= 1e6))
        return wp_fail(err, WP_EINVAL, "age: want a number above 0 and up to 1e6, got %g", c->age);
    if (!(c->most_us >= 0 && c->most_us <= 1e12))
        return wp_fail(err, WP_EINVAL, "hold_most_us: want a number from 0 to 1e12, got %g",
                       c->most_us);
    if (c->max > 1 << 24)
        return wp_fail(err, WP_EINVAL, "queue: want at most %d requests, got %zu", 1 << 24, c->max);
    if (c->tenants > TENANTS_MAX)
        return wp_fail(err, WP_EINVAL, "tenants: want at most %d, got %u", TENANTS_MAX, c->tenants);
    q->tenant = wp_calloc(c->tenants + 1, sizeof *q->tenant);
    if (!q->tenant)
        return wp_fail(err, WP_ENOMEM, "queue of %u tenants: out of memory", c->tenants);
    for (uint32_t i = 0; i <= c->tenants; i++) {
        q->tenant[i].items.before = item_before;
        q->tenant[i].weight = 1;
        wp_list_init(&q->tenant[i].list);
        wp_list_init(&q->tenant[i].recent);
        wp_list_init(&q->tenant[i].held_link);
    }
    return 0;
}

void wp_queue_fini(struct wp_queue *q)
{
    wp_free(q->tenant);
    q->tenant = NULL;
}

/* ---- tenants ---- */

static double weight_of(struct wp_queue_who who)
{
    return who.weight > 1e-6 && who.weight < 1e9 ? who.weight : 1;
}

static struct wp_queue_tenant *row_of(const struct wp_queue *q, struct wp_queue_who who)
{
    return &q->tenant[who.tenant <= q->conf.tenants ? who.tenant : 0];
}

static void forget_recent(struct wp_queue *q, struct wp_queue_tenant *t)
{
    if (!t->is_recent)
        return;
    wp_list_del(&t->recent);
    t->is_recent = false;
    q->recent_weight -= t->weight;
    if (wp_list_empty(&q->recent))
        q->recent_weight = 0; /* no rounding is carried on */
}

/* It has come: it is the last that did, and those that stayed away for too long are here no more.
 */
static struct wp_queue_tenant *touch(struct wp_queue *q, struct wp_queue_who who, uint64_t now_us)
{
    struct wp_queue_tenant *t = row_of(q, who);

    forget_recent(q, t);
    t->weight = weight_of(who);
    t->seen_us = now_us;
    t->is_recent = true;
    wp_list_push(&q->recent, &t->recent);
    q->recent_weight += t->weight;
    WP_LIST_EACH(&q->recent, at)
    {
        struct wp_queue_tenant *old = WP_CONTAINER(at, struct wp_queue_tenant, recent);

        if ((double)old->seen_us + q->conf.most_us >= (double)now_us)
            break;
        if (old->held == 0)
            forget_recent(q, old);
    }
    return t;
}

/* The account of one who has nobody held, and whose first one comes. */
static double begins_at(const struct wp_queue *q, const struct wp_queue_tenant *t, uint64_t name)
{
    double own = t->name == name ? t->account : 0, least = INFINITY;

    WP_LIST_EACH(&q->held, at)
    least = fmin(least, WP_CONTAINER(at, struct wp_queue_tenant, held_link)->account);
    return fmax(own, isfinite(least) ? least : q->account);
}

/* What it goes by has changed: its account, or its first one. */
static void moved(struct wp_queue *q, struct wp_queue_tenant *t)
{
    wp_heap_del(&q->tenants, &t->node);
    wp_list_del(&t->held_link);
    if (t->held == 0)
        return;
    wp_heap_put(&q->tenants, &t->node);
    wp_list_push(&q->held, &t->held_link);
}

static void charge(struct wp_queue *q, struct wp_queue_tenant *t, uint64_t tokens)
{
    wp_heap_del(&q->tenants, &t->node);
    t->account += (double)tokens / t->weight;
    moved(q, t);
}

void wp_queue_charge(struct wp_queue *q, struct wp_queue_who who, uint64_t tokens, uint64_t now_us)
{
    struct wp_queue_tenant *t;

    if (q->conf.tenants == 0)
        return;
    t = row_of(q, who);
    if (t->held == 0)
        t->account = begins_at(q, t, who.name);
    t->name = who.name;
    charge(q, touch(q, who, now_us), tokens);
    if (q->n == 0)
        q->account = t->account;
}

bool wp_queue_alone(const struct wp_queue *q, struct wp_queue_who who)
{
    const struct wp_queue_tenant *t = row_of(q, who);
    const struct wp_list *first = q->recent.next;

    return first == &q->recent || (first == &t->recent && first->next == &q->recent);
}

double wp_queue_share(const struct wp_queue *q, struct wp_queue_who who)
{
    return (double)(row_of(q, who)->held + 1) / weight_of(who);
}

struct wp_queue_item *wp_queue_last(const struct wp_queue *q, double *share)
{
    const struct wp_queue_tenant *most = NULL;

    *share = 0;
    WP_LIST_EACH(&q->held, at)
    {
        const struct wp_queue_tenant *t = WP_CONTAINER(at, struct wp_queue_tenant, held_link);

        if ((double)t->held / t->weight <= *share)
            continue;
        *share = (double)t->held / t->weight;
        most = t;
    }
    return most ? WP_CONTAINER(most->list.prev, struct wp_queue_item, link) : NULL;
}

/* Whether b has less right to its place than a: a worse rank, a tenant that has more, or it came later. */
static bool gives_way(const struct wp_queue *q, const struct wp_queue_item *a,
                      const struct wp_queue_item *b)
{
    const struct wp_queue_tenant *s = &q->tenant[a->tenant], *t = &q->tenant[b->tenant];
    double x = (double)s->held / s->weight, y = (double)t->held / t->weight;

    if (a->rank != b->rank)
        return b->rank > a->rank;
    return x != y ? y > x : b->number > a->number;
}

struct wp_queue_item *wp_queue_below(const struct wp_queue *q, uint32_t rank)
{
    struct wp_queue_item *last = NULL;

    WP_LIST_EACH(&q->held, t)
    WP_LIST_EACH(&WP_CONTAINER(t, struct wp_queue_tenant, held_link)->list, at)
    {
        struct wp_queue_item *it = WP_CONTAINER(at, struct wp_queue_item, link);

        if (it->rank > rank && (!last || gives_way(q, last, it)))
            last = it;
    }
    return last;
}

/* ---- how fast it goes ---- */

/* Compute released a microsecond, of late; 0: not known. */
static double pace(const struct wp_queue *q)
{
    return q->popped >= TELLING && q->busy_us >= TELLING_US ? q->done_us / q->busy_us : 0;
}

static void went(struct wp_queue *q, double cost_us, uint64_t now_us)
{
    double dt = now_us > q->mark_us ? (double)(now_us - q->mark_us) : 0;
    double keep = FADE_US / (FADE_US + dt);

    q->busy_us = q->busy_us * keep + dt;
    q->done_us = q->done_us * keep + cost_us;
    q->popped++;
    if (now_us > q->mark_us)
        q->mark_us = now_us;
}

/* What it has held, at its share. */
static double own_us(const struct wp_queue *q, struct wp_queue_who who, double cost_us)
{
    const struct wp_queue_tenant *t = row_of(q, who);
    double weight = weight_of(who), all = q->recent_weight + (t->is_recent ? 0 : weight);

    return (t->cost_us + cost_us) * (all / weight) / pace(q);
}

double wp_queue_expect_us(const struct wp_queue *q, struct wp_queue_who who, double cost_us)
{
    return pace(q) > 0 ? fmin(own_us(q, who, cost_us), (q->cost_us + cost_us) / pace(q)) : NAN;
}

bool wp_queue_crowds(const struct wp_queue *q, struct wp_queue_who who, double cost_us)
{
    return pace(q) > 0 && !wp_queue_alone(q, who) && own_us(q, who, cost_us) > q->conf.most_us / 2;
}

/* ---- in and out ---- */

static bool is_free(const struct wp_queue *q, double least_wait_us)
{
    return least_wait_us <= q->conf.hold_us; /* no number: no */
}

static double key_of(const struct wp_queue *q, double cost_us, uint64_t arrived_us)
{
    return (cost_us > 0 ? fmin(cost_us, 1e15) : 0) + q->conf.age * (double)arrived_us;
}

static bool comes_before_all(const struct wp_queue *q, const struct wp_queue_item *it,
                             struct wp_queue_who who)
{
    const struct wp_queue_tenant *t = row_of(q, who), *first = tenant_at(q->tenants.first);

    if (t == first)
        return before(it, item_of(t->items.first));
    return comes_first(t->held ? t->account : begins_at(q, t, who.name), it, first->account,
                       item_of(first->items.first));
}

bool wp_queue_holds(const struct wp_queue *q, double least_wait_us, uint64_t now_us, double cost_us,
                    struct wp_queue_who who)
{
    struct wp_queue_item it = {
        .rank = who.rank, .key = key_of(q, cost_us, now_us), .number = q->pushed};

    if (q->conf.max == 0)
        return false;
    return !is_free(q, least_wait_us) || (q->n && !comes_before_all(q, &it, who));
}

static void put_in(struct wp_queue *q, struct wp_queue_tenant *t, struct wp_queue_item *it)
{
    q->n++;
    wp_heap_del(&q->tenants, &t->node);
    wp_heap_put(&t->items, &it->in_order);
    wp_heap_put(&q->deadlines, &it->by_deadline);
    wp_list_init(&it->link);
    wp_list_push(&t->list, &it->link);
    t->held++;
    t->cost_us += it->cost_us;
    q->cost_us += it->cost_us;
    moved(q, t);
}

void wp_queue_put_back(struct wp_queue *q, struct wp_queue_item *it)
{
    struct wp_queue_tenant *t = &q->tenant[it->tenant];

    wp_heap_del(&q->tenants, &t->node);
    t->account -= it->tokens / t->weight;
    q->done_us = fmax(q->done_us - it->cost_us, 0);
    q->popped -= q->popped > 0;
    q->released--;
    put_in(q, t, it);
}

bool wp_queue_push(struct wp_queue *q, struct wp_queue_item *it, uint64_t arrived_us,
                   double cost_us, struct wp_queue_who who, uint64_t deadline_us)
{
    struct wp_queue_tenant *t;

    if (q->n >= q->conf.max) {
        q->refused++;
        return false;
    }
    if (deadline_us == 0)
        deadline_us = arrived_us + (uint64_t)q->conf.most_us;
    *it = (struct wp_queue_item){
        .rank = who.rank,
        .tenant = (uint32_t)(row_of(q, who) - q->tenant),
        .tokens = who.tokens,
        .key = key_of(q, cost_us, arrived_us),
        .cost_us = cost_us > 0 ? fmin(cost_us, 1e15) : 0,
        .arrived_us = arrived_us,
        .deadline_us = deadline_us,
        .number = q->pushed++,
    };
    t = row_of(q, who);
    if (t->held == 0)
        t->account = begins_at(q, t, who.name);
    t->name = who.name;
    touch(q, who, arrived_us);
    if (q->n == 0)
        q->mark_us = arrived_us;
    put_in(q, t, it);
    return true;
}

void wp_queue_del(struct wp_queue *q, struct wp_queue_item *it)
{
    struct wp_queue_tenant *t;

    if (!it->in_order.in)
        return;
    t = &q->tenant[it->tenant];
    wp_heap_del(&q->tenants, &t->node);
    wp_heap_del(&t->items, &it->in_order);
    wp_heap_del(&q->deadlines, &it->by_deadline);
    wp_list_del(&it->link);
    t->cost_us = --t->held ? t->cost_us - it->cost_us : 0;
    q->cost_us = --q->n ? q->cost_us - it->cost_us : 0;
    if (q->n == 0)
        q->account = t->account;
    moved(q, t);
}

static struct wp_queue_who who_is(const struct wp_queue *q, const struct wp_queue_item *it)
{
    const struct wp_queue_tenant *t = &q->tenant[it->tenant];

    return (struct wp_queue_who){
        .rank = it->rank, .tenant = it->tenant, .name = t->name, .weight = t->weight};
}

/* Whose turn it is, or whose deadline has come. */
static struct wp_queue_item *next(struct wp_queue *q, uint64_t now_us, double least_wait_us)
{
    struct wp_queue_item *it = due(q);

    if (it && now_us >= it->deadline_us) {
        it->end = wp_queue_crowds(q, who_is(q, it), 0) ? WP_QUEUE_CROWDS : WP_QUEUE_LATE;
        return it;
    }
    return q->n && is_free(q, least_wait_us) ? item_of(tenant_at(q->tenants.first)->items.first)
                                             : NULL;
}

struct wp_queue_item *wp_queue_pop(struct wp_queue *q, uint64_t now_us, double least_wait_us)
{
    struct wp_queue_item *it = next(q, now_us, least_wait_us);
    double held;

    if (!it)
        return NULL;
    q->late += it->end == WP_QUEUE_LATE;
    wp_queue_del(q, it);
    if (it->end == WP_QUEUE_CROWDS) {
        q->crowded++;
        return it;
    }
    charge(q, &q->tenant[it->tenant], it->tokens);
    if (q->n == 0)
        q->account = q->tenant[it->tenant].account;
    went(q, it->cost_us, now_us);
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
        return due(q)->deadline_us;
    at = now_us + (over > 0 ? (uint64_t)over + 1 : 0);
    if (at < now_us + soonest_us)
        at = now_us + soonest_us;
    return at < due(q)->deadline_us ? at : due(q)->deadline_us;
}
