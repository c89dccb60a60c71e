/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/kvscene.h - a simulated engine that announces its KV events, a follower for each of its
 * ranks, and requests to it.
 */
#ifndef WP_TESTS_LIB_KVSCENE_H
#define WP_TESTS_LIB_KVSCENE_H

#include "base/rng.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/kvfeed.h"

enum { KV_RANKS = 3 };

struct kv_scene {
    struct wp_rig rig;
    struct wp_engine_conf conf;
    struct wp_engine_events events;
    struct kv_feed feed[KV_RANKS];
    uint32_t ranks;
    struct wp_rng rng;
};

/* Event sockets on free ports, two adapters ("ad1", "ad2"), one rank; to be changed before the
 * start. */
void kv_scene_prepare(struct kv_scene *s);
void kv_scene_start(struct kv_scene *s, const char *const faults[]);
void kv_scene_stop(struct kv_scene *s);
/* Every rank's feed up to what the engine says, then against what it holds.  Returns the changes
 * that wait: a rank with such is not held against it. */
uint64_t kv_scene_compare(struct kv_scene *s);

/* One request whose answer is 200 and JSON.  headers: "Name: value\r\n"..., may be "". */
json_t *kv_scene_ask(struct kv_scene *s, const char *method, const char *path, const char *headers,
                     const char *body);
/* A completion of n tokens of a line, with more members behind; returns its cached tokens. */
uint32_t kv_scene_complete(struct kv_scene *s, uint32_t line, uint32_t n, uint32_t output,
                           const char *more);
uint32_t kv_cached(const json_t *answer);

uint32_t kv_token(uint32_t line, uint32_t i); /* as the captures make theirs */
/* A body: n tokens, the first `shared` of them of line 0; and its end. */
void kv_put_prompt(struct wp_buf *b, uint32_t line, uint32_t shared, uint32_t n);
char *kv_end_body(struct wp_buf *b, uint32_t output, const char *more);

#endif
