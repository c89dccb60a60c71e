/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/naive_engine.h - the engine model again, as plainly as its rules can be said: arrays, linear searches, time stamps.
 * It shares no code with sim/ and answers for whole loads; sim/model.c is held against it.
 */
#ifndef WP_TESTS_LIB_NAIVE_ENGINE_H
#define WP_TESTS_LIB_NAIVE_ENGINE_H

#include "sim/model.h"

enum { NAIVE_BLOCKS = 64 };

struct naive_req {
    uint64_t at_us; /* the load is sorted by it */
    uint32_t tokens, output;
    size_t n;
    uint64_t chain[NAIVE_BLOCKS];
    double first_us, done_us; /* out */
    uint32_t cached[3];       /* out: tokens by tier */
    /* its own */
    int state, admitted, begun; /* the orders of admission and of first tokens */
    uint32_t done, chunk, made;
    bool mine[NAIVE_BLOCKS];
    uint64_t reserved;
    double ready_us;
};

void naive_run(const struct wp_model_conf *c, struct naive_req req[], size_t n);

#endif
