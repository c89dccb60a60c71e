/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/payload.h - what vLLM puts into the third frame of a KV event message: msgpack.
 *
 *     [ts, [event...], rank]        events as maps (0.32) or as arrays (0.23, all 12 elements)
 *
 * Changes are written in the order in which they came about.  Neighbours that continue a chain in
 * one tier become one BlockStored; every BlockRemoved names one hash, as in the captures
 * (tests/data/spec/real/vllm_*_events.jsonl).
 * Threads: pure functions.
 */
#ifndef WP_SIM_PAYLOAD_H
#define WP_SIM_PAYLOAD_H

#include "sim/blocks.h"

enum wp_change_kind { WP_STORED, WP_REMOVED, WP_CLEARED };

struct wp_change {
    enum wp_change_kind kind;
    uint8_t tier;           /* 0 gpu, 1 cpu, 2 disk */
    struct wp_block *block; /* NULL: cleared */
};

struct wp_payload_conf {
    bool as_array;   /* vLLM up to 0.23 */
    bool hash_bytes; /* 32 bytes, whose last eight are the number */
    bool tier_only;  /* stores below the gpu say hashes and medium only, as vLLM's offload connector
                        does */
    uint32_t block_size;
    uint32_t rank;
};

/* Errors: WP_ENOMEM; out then ends with a part of it. */
int wp_payload_write(struct wp_buf *out, const struct wp_payload_conf *conf, double ts,
                     const struct wp_change change[], size_t n);

#endif
