/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/clock.h - time, real or made up.
 * Monotonic microseconds everywhere; wall time only where a human or a protocol reads it.  index/ and policies/
 * never ask: they are told.  A virtual clock moves only when it is set, so a test or a simulation runs at any hour.
 */
#ifndef WP_BASE_CLOCK_H
#define WP_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct wp_clock {
    _Atomic uint64_t virtual_us; /* read when real is false */
    _Bool real;
};

#define WP_CLOCK_REAL {0, 1}
#define WP_CLOCK_VIRTUAL {0, 0}

/* Monotonic, starts anywhere, never goes back.  Cost: about 25 ns when real. */
uint64_t wp_clock_us(const struct wp_clock *c);
void wp_clock_set(struct wp_clock *c, uint64_t now_us); /* virtual clocks only; never backwards */
uint64_t wp_now_us(void);                               /* the real monotonic clock */
uint64_t wp_wall_us(void);                              /* since 1970, may jump */

#endif
