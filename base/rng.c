/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/random.h>

uint64_t wp_rng_next(struct wp_rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t wp_rng_below(struct wp_rng *r, uint64_t n)
{
    uint64_t floor = -n % n; /* 2^64 mod n: what would favour the small numbers is drawn again */
    uint64_t x;

    do
        x = wp_rng_next(r);
    while (x < floor);
    return x % n;
}

double wp_rng_unit(struct wp_rng *r)
{
    return (double)(wp_rng_next(r) >> 11) * 0x1p-53;
}

double wp_rng_exp(struct wp_rng *r, double mean)
{
    return -mean * log1p(-wp_rng_unit(r));
}

double wp_rng_normal(struct wp_rng *r)
{
    double u = 1 - wp_rng_unit(r);

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * wp_rng_unit(r)); /* Box and Muller, 1958 */
}

uint64_t wp_rng_secret(void)
{
    uint64_t x;
    ssize_t n;

    do
        n = getrandom(&x, sizeof x, 0);
    while (n < 0 && errno == EINTR);
    if (n != sizeof x)
        abort();
    return x;
}
