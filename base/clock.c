/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <assert.h>
#include <time.h>

static uint64_t read_us(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t wp_now_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

uint64_t wp_wall_us(void)
{
    return read_us(CLOCK_REALTIME);
}

uint64_t wp_clock_us(const struct wp_clock *c)
{
    return c->real ? wp_now_us() : atomic_load(&c->virtual_us);
}

void wp_clock_set(struct wp_clock *c, uint64_t now_us)
{
    assert(!c->real && now_us >= atomic_load(&c->virtual_us));
    atomic_store(&c->virtual_us, now_us);
}
