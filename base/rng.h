/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/rng.h - random numbers from a seed: the same seed gives the same numbers on every machine
 * (wp_rng_exp and wp_rng_normal: as far as its C library computes logarithms alike).
 * Source: splitmix64 (Steele, Lea, Flood, OOPSLA 2014).  Not for secrets: those come from wp_rng_secret().
 */
#ifndef WP_BASE_RNG_H
#define WP_BASE_RNG_H

#include <stdint.h>

struct wp_rng {
    uint64_t state; /* any value is a seed */
};

uint64_t wp_rng_next(struct wp_rng *r);
uint64_t wp_rng_below(struct wp_rng *r, uint64_t n); /* 0..n-1, without bias; n > 0 */
double wp_rng_unit(struct wp_rng *r);                /* [0, 1) */
double wp_rng_exp(struct wp_rng *r, double mean);
double wp_rng_normal(struct wp_rng *r); /* mean 0, deviation 1 */
uint64_t wp_rng_secret(void);           /* 64 bits of the kernel's; aborts when it has none */

#endif
