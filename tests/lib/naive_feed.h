/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/naive_feed.h - what a publisher's engine holds, read off its events by brute force.
 * Every block that was ever named is kept with the whole text of tokens that it ends, whatever its size; nothing is hashed,
 * cut or gathered.  Shares the decoder with the router, and nothing else.  Plain text, salts and adapters; no media items.
 */
#ifndef WP_TESTS_LIB_NAIVE_FEED_H
#define WP_TESTS_LIB_NAIVE_FEED_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WP_NAIVE_TIERS = 5 };

struct wp_naive_unit {
    uint64_t hash;
    uint32_t group;
    bool main, bigram, placed;
    uint32_t size;
    unsigned copies[WP_NAIVE_TIERS];
    char lora[32], salt[32];
    uint32_t *token; /* from the prompt's start to its end; of bigrams one more */
    size_t n;        /* without that one */
};

struct wp_naive_feed {
    struct wp_naive_unit *unit;
    size_t n, cap;
    uint32_t window; /* blocks that the window group must hold before an end; 0: there is none */
};

/* Ends the program when out of memory or when the payload is refused. */
void wp_naive_feed_apply(struct wp_naive_feed *f, struct wp_str payload);
void wp_naive_feed_fini(struct wp_naive_feed *f);

/* Leading blocks of `size` tokens of the prompt that the engine can reuse, and how many of them are not in GPU memory. */
size_t wp_naive_feed_claim(const struct wp_naive_feed *f, const uint32_t token[], size_t n, uint32_t size,
                           struct wp_str lora, struct wp_str salt, size_t *slower);

#endif
