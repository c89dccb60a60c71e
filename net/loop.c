/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap is a pairing heap: a push or a move to an earlier time is O(1), taking the first out
 * O(log n) amortized. Two handles of libuv serve all timers: `tick` when the earliest lies ahead,
 * `soon` (an idle handle) when it is due already, because a uv_timer of 0 ms that is started by a
 * timer runs in the same breath, for ever. Source: Fredman, Sedgewick, Sleator, Tarjan, The pairing
 * heap, Algorithmica 1 (1986).
 */
#include "net/loop.h"

#include "base/clock.h"
#include "base/mem.h"
#include "net/names.h"

#include <assert.h>
#include <string.h>

/* What is still open so long after wp_loop_stop() was forgotten. */
enum { CLOSE_GRACE_US = 2000000, OWN_HANDLES = 3 };

static struct wp_timer *meld(struct wp_timer *a, struct wp_timer *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->at_us < a->at_us) {
        struct wp_timer *c = a;

        a = b;
        b = c;
    }
    b->next = a->child;
    if (b->next)
        b->next->prev = b;
    b->prev = a;
    a->child = b;
    a->next = a->prev = NULL;
    return a;
}

/* Pairs a list of siblings from the left, then melds the pairs from the right, without recursion.
 */
static struct wp_timer *meld_siblings(struct wp_timer *first)
{
    struct wp_timer *pairs = NULL, *all = NULL;

    while (first) {
        struct wp_timer *a = first, *b = a->next;

        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct wp_timer *next = pairs->next;

        pairs->next = NULL;
        all = meld(all, pairs);
        pairs = next;
    }
    return all;
}

static void heap_remove(struct wp_loop *l, struct wp_timer *t)
{
    struct wp_timer *below = meld_siblings(t->child);

    if (t == l->timers) {
        l->timers = below;
    } else {
        if (t->prev->child == t)
            t->prev->child = t->next;
        else
            t->prev->next = t->next;
        if (t->next)
            t->next->prev = t->prev;
        l->timers = meld(l->timers, below);
    }
    t->child = t->next = t->prev = NULL;
    t->armed = false;
}

static void on_tick(uv_timer_t *tick);
static void on_soon(uv_idle_t *soon);

/* Sees to it that the loop wakes for the earliest timer. */
static void rearm(struct wp_loop *l)
{
    uint64_t at_ms;

    if (l->firing)
        return; /* fire() does it at its end */
    if (!l->timers) {
        uv_timer_stop(&l->tick);
        uv_idle_stop(&l->soon);
        return;
    }
    if (l->timers->at_us <= wp_now_us()) {
        uv_idle_start(&l->soon, on_soon);
        return;
    }
    uv_idle_stop(&l->soon);
    at_ms = l->timers->at_us / 1000 + (l->timers->at_us % 1000 != 0);
    uv_timer_start(&l->tick, on_tick, at_ms > uv_now(&l->uv) ? at_ms - uv_now(&l->uv) : 1, 0);
}

static void fire(struct wp_loop *l)
{
    l->firing = wp_now_us();
    while (l->timers && l->timers->at_us <= l->firing) {
        struct wp_timer *t = l->timers;

        heap_remove(l, t);
        t->fn(t);
    }
    l->firing = 0;
    rearm(l);
}

static void on_tick(uv_timer_t *tick)
{
    fire(WP_CONTAINER(tick, struct wp_loop, tick));
}

static void on_soon(uv_idle_t *soon)
{
    fire(WP_CONTAINER(soon, struct wp_loop, soon));
}

void wp_timer_init(struct wp_timer *t, wp_timer_fn fn, void *arg)
{
    *t = (struct wp_timer){.fn = fn, .arg = arg};
}

void wp_timer_at(struct wp_loop *l, struct wp_timer *t, uint64_t at_us)
{
    struct wp_timer *first = l->timers;

    if (l->firing && at_us <= l->firing)
        at_us = l->firing +
                1; /* the next turn's, or a timer that rearms itself would hold this one for ever */
    if (t->armed) {
        if (t->at_us == at_us)
            return;
        heap_remove(l, t);
    }
    t->at_us = at_us;
    t->armed = true;
    t->child = t->next = t->prev = NULL;
    l->timers = meld(l->timers, t);
    if (l->timers != first || first == t)
        rearm(l);
}

void wp_timer_in(struct wp_loop *l, struct wp_timer *t, uint64_t us)
{
    uint64_t now = wp_loop_now_us(l);

    wp_timer_at(l, t, us > UINT64_MAX - now ? UINT64_MAX : now + us);
}

/* The loop may then wake once for nothing: that is cheaper than to tell libuv each time. */
void wp_timer_stop(struct wp_loop *l, struct wp_timer *t)
{
    if (t->armed)
        heap_remove(l, t);
    if (!l->timers)
        rearm(l);
}

uint64_t wp_loop_now_us(const struct wp_loop *l)
{
    (void)l;
    return wp_now_us();
}

static void deliver(struct wp_loop *l)
{
    struct wp_letter *at;

    pthread_mutex_lock(&l->lock);
    at = l->letters;
    l->letters = NULL;
    l->letters_end = &l->letters;
    pthread_mutex_unlock(&l->lock);
    while (at) {
        struct wp_letter *next = at->next;

        at->fn(at); /* it may be gone afterwards */
        at = next;
    }
}

static void on_wake(uv_async_t *wake)
{
    deliver(WP_CONTAINER(wake, struct wp_loop, wake));
}

void wp_loop_post(struct wp_loop *l, struct wp_letter *letter)
{
    letter->next = NULL;
    pthread_mutex_lock(&l->lock);
    *l->letters_end = letter;
    l->letters_end = &letter->next;
    /* Inside the lock: the loop cannot end between the letter and the knock. */
    uv_async_send(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

int wp_loop_init(struct wp_loop *l, struct wp_err *err)
{
    int rc;

    memset(l, 0, sizeof *l);
    l->letters_end = &l->letters;
    l->read_bytes = wp_malloc(WP_READ_BYTES);
    if (!l->read_bytes)
        return wp_fail(err, WP_ENOMEM, "event loop: %s", wp_strerror(WP_ENOMEM));
    rc = uv_loop_init(&l->uv);
    if (rc < 0)
        goto free_bytes;
    rc = uv_async_init(&l->uv, &l->wake, on_wake);
    if (rc < 0)
        goto close_loop;
    uv_timer_init(&l->uv, &l->tick); /* these two cannot fail */
    uv_idle_init(&l->uv, &l->soon);
    pthread_mutex_init(&l->lock, NULL);
    return 0;

close_loop:
    uv_loop_close(&l->uv);
free_bytes:
    wp_free(l->read_bytes);
    return wp_fail(err, rc, "event loop: %s", wp_strerror(rc));
}

static void count_handle(uv_handle_t *h, void *arg)
{
    (void)h;
    ++*(size_t *)arg;
}

static bool others_open(struct wp_loop *l)
{
    size_t n = 0;

    uv_walk(&l->uv, count_handle, &n);
    return n > OWN_HANDLES;
}

static void close_names(struct wp_loop *l)
{
    struct wp_names *names = l->names;

    l->names = NULL;
    if (names)
        wp_names_destroy(names);
}

static void on_grace(struct wp_timer *t)
{
    *(bool *)t->arg = true;
}

int wp_loop_run(struct wp_loop *l)
{
    struct wp_timer grace;
    bool forgotten = false;

    while (!l->stopping)
        uv_run(&l->uv, UV_RUN_DEFAULT);
    wp_timer_init(&grace, on_grace, &forgotten);
    wp_timer_in(l, &grace, CLOSE_GRACE_US);
    for (;;) {
        close_names(l);
        if (forgotten || (!others_open(l) && l->timers->at_us > wp_now_us() + 1))
            break; /* what was put off to the next turn belongs to closing as well */
        uv_run(&l->uv, UV_RUN_ONCE);
    }
    wp_timer_stop(l, &grace);
    l->stopping = false; /* it may be run again */
    return others_open(l) ? UV_EBUSY : 0;
}

void wp_loop_stop(struct wp_loop *l)
{
    l->stopping = true;
    uv_stop(&l->uv);
}

void wp_loop_fini(struct wp_loop *l)
{
    int rc = 0;

    deliver(l);
    close_names(l);
    assert(!l->timers && "a timer outlives its loop");
    uv_close((uv_handle_t *)&l->tick, NULL);
    uv_close((uv_handle_t *)&l->soon, NULL);
    uv_close((uv_handle_t *)&l->wake, NULL);
    for (int turn = 0; turn < 16 && (rc = uv_loop_close(&l->uv)) == UV_EBUSY; turn++)
        uv_run(&l->uv, UV_RUN_NOWAIT);
    assert(rc == 0 && "a handle outlives its loop");
    (void)rc;
    pthread_mutex_destroy(&l->lock);
    wp_free(l->read_bytes);
}
