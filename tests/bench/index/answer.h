/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/index/answer.h - a stand-in's answer: who still has all of it, and the count of each worker that dropped
 * out.
 */
#ifndef WP_TESTS_BENCH_INDEX_ANSWER_H
#define WP_TESTS_BENCH_INDEX_ANSWER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ANSWER_WORDS = 4 }; /* 256 workers */

struct answer {
    uint64_t alive[ANSWER_WORDS];
    uint32_t blocks[ANSWER_WORDS * 64]; /* of workers in seen */
    uint64_t seen[ANSWER_WORDS];
};

static inline void answer_start(struct answer *a, const uint64_t first[ANSWER_WORDS])
{
    memcpy(a->alive, first, sizeof a->alive);
    memcpy(a->seen, first, sizeof a->seen);
}

/* Block `at` is held by those; who is not among them has `at` blocks.  0: nobody is left. */
static inline uint64_t answer_and(struct answer *a, const uint64_t set[ANSWER_WORDS], uint32_t at)
{
    uint64_t left = 0;

    for (size_t k = 0; k < ANSWER_WORDS; k++) {
        for (uint64_t out = a->alive[k] & ~set[k]; out; out &= out - 1)
            a->blocks[k * 64 + (size_t)__builtin_ctzll(out)] = at;
        a->alive[k] &= set[k];
        left |= a->alive[k];
    }
    return left;
}

static inline void answer_end(struct answer *a, uint32_t n)
{
    answer_and(a, (const uint64_t[ANSWER_WORDS]){0}, n);
}

static inline uint64_t answer_total(const struct answer *a)
{
    uint64_t sum = 0;

    for (size_t k = 0; k < ANSWER_WORDS; k++)
        for (uint64_t left = a->seen[k]; left; left &= left - 1)
            sum += a->blocks[k * 64 + (size_t)__builtin_ctzll(left)];
    return sum;
}

#endif
