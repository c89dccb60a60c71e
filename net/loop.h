/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/loop.h - one event loop a thread: libuv, timers by absolute deadline, and a letter box for other threads.
 * A timer is not a libuv handle: it is a link in the loop's heap, so it costs no memory to set, is stopped at once
 * and needs no closing.  One uv_timer wakes the loop for the earliest of them, in whole milliseconds and never early.
 * Threads: everything here belongs to the loop's own thread, but wp_loop_post().
 */
#ifndef WP_NET_LOOP_H
#define WP_NET_LOOP_H

#include "base/err.h"
#include "base/list.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct wp_timer;
typedef void (*wp_timer_fn)(struct wp_timer *t);

/* Embed it.  {0} plus wp_timer_init() is a stopped one. */
struct wp_timer {
    struct wp_timer *child, *next, *prev; /* pairing heap; prev is the parent for a first child */
    uint64_t at_us;
    wp_timer_fn fn;
    void *arg; /* the caller's */
    bool armed;
};

/* A letter from another thread.  Embed it; it is the loop's until fn has been called. */
struct wp_letter {
    struct wp_letter *next;
    void (*fn)(struct wp_letter *l);
};

enum { WP_READ_BYTES = 65536 };

struct wp_loop {
    uv_loop_t uv;
    uv_timer_t tick; /* wakes for timers->at_us */
    uv_idle_t soon;  /* for timers that are due already */
    uv_async_t wake;
    struct wp_timer *timers; /* earliest first */
    uint64_t firing;         /* the time for which timers are being called, or 0 */
    pthread_mutex_t lock;    /* guards letters */
    struct wp_letter *letters, **letters_end;
    struct wp_names *names; /* net/names.h; made on first use */
    char *read_bytes;       /* WP_READ_BYTES shared by every stream: what is read is used before the next read */
    bool stopping;
};

/* Errors: WP_ENOMEM and libuv's. */
int wp_loop_init(struct wp_loop *l, struct wp_err *err);
/*
 * Runs until wp_loop_stop() and then until every handle of others is closed (2 s at most).  Returns 0, or UV_EBUSY when
 * somebody left one open.  It may be run again.
 */
int wp_loop_run(struct wp_loop *l);
void wp_loop_stop(struct wp_loop *l); /* from the loop; from elsewhere post a letter that does it */
/* After run has returned.  Closes tick, wake and names. */
void wp_loop_fini(struct wp_loop *l);

/* Monotonic microseconds, as wp_now_us(). */
uint64_t wp_loop_now_us(const struct wp_loop *l);

void wp_timer_init(struct wp_timer *t, wp_timer_fn fn, void *arg);
/* Sets or moves the deadline.  A deadline in the past fires on the next turn, never inside this call. */
void wp_timer_at(struct wp_loop *l, struct wp_timer *t, uint64_t at_us);
void wp_timer_in(struct wp_loop *l, struct wp_timer *t, uint64_t us); /* from wp_loop_now_us() */
void wp_timer_stop(struct wp_loop *l, struct wp_timer *t);            /* a stopped one too */

/* Any thread.  fn runs on the loop, letters of one thread in order.  Never fails; after wp_loop_fini a bug. */
void wp_loop_post(struct wp_loop *l, struct wp_letter *letter);

#endif
