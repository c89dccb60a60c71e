/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/tokens/rests.h - workers that are left alone for a while, and why: a hard rest is kept,
 * a soft one only while there are others to ask.  Bounded: of more than WP_RESTS_MAX the one that
 * ends first is forgotten.
 */
#ifndef WP_ADAPTERS_TOKENS_RESTS_H
#define WP_ADAPTERS_TOKENS_RESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WP_RESTS_MAX = 64 };

struct wp_rests {
    struct {
        uint64_t key, until_us;
        bool hard;
    } at[WP_RESTS_MAX];
    size_t n;
};

void wp_rest(struct wp_rests *r, uint64_t key, uint64_t until_us, bool hard);
void wp_rest_over(struct wp_rests *r, uint64_t key); /* it answered */
/* The keys of those who rest now, hard ones or all, into out[WP_RESTS_MAX].  Returns how many;
 * forgets whose rest is over. */
size_t wp_resting(struct wp_rests *r, uint64_t now_us, bool all, uint64_t out[]);

#endif
