/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/wire.h - writes batches of KV events as engines do, in the map form.
 */
#ifndef WP_TESTS_LIB_WIRE_H
#define WP_TESTS_LIB_WIRE_H

#include "adapters/events/decode.h"

struct wp_wire_event {
    enum wp_event_kind kind;
    const uint64_t *hash;
    size_t n;
    const uint64_t *parent; /* NULL: none */
    const uint32_t *token;  /* NULL: nil */
    size_t n_tokens;
    bool pairs;             /* of n_tokens token ids, one fewer */
    uint32_t block_size;
    const char *medium, *lora, *salt, *spec_kind; /* NULL: left out */
    const uint32_t *group;                        /* NULL: left out */
    uint32_t window;                              /* 0: left out */
    int64_t lora_id;                              /* 0: nil */
    struct wp_str extra;                          /* MessagePack; absent: left out */
};

/* The payload, for wp_free().  Ends the program when out of memory. */
char *wp_wire_batch(const struct wp_wire_event e[], size_t n, size_t *bytes);

#endif
