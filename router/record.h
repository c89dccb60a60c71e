/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/record.h - what was decided, from what, and what came of it.
 * The last WP_RECORDS decisions are kept in a ring; of each the chosen worker and the best candidates up to
 * WP_RECORD_CANDIDATES.  No prompt text, no tokens.
 */
#ifndef WP_ROUTER_RECORD_H
#define WP_ROUTER_RECORD_H

#include "base/err.h"
#include "base/str.h"
#include "policies/policy.h"

enum { WP_RECORDS = 1024, WP_RECORD_CANDIDATES = 16 };
enum { WP_RECORD_ID = 272 }; /* a worker's id whole, be it a host name and a port: who is chosen is looked up by it */

struct wp_candidate {
    char worker[WP_RECORD_ID];
    uint32_t rank;
    struct wp_verdict verdict;
    uint32_t hit_tokens, hit_tier[WP_TIERS], doubtful, in_flight, index_tokens, history_tokens, in_flight_tokens;
};

/* What the price of one went by, beside that; of those that are kept. */
struct wp_seen {
    struct wp_profile costs;
    double wait_us, pinned, correction, error;
    uint64_t kv_tokens;
    uint32_t decoding, fresh_blocks, block_size;
};

struct wp_record {
    uint64_t id; /* 0: an empty slot */
    uint64_t at_us, wall_us, draw;
    char request_id[129], model[128], policy[24], chosen[WP_RECORD_ID];
    uint32_t chosen_rank, tokens, max_tokens;
    bool exact;
    size_t n_workers; /* that were candidates */
    size_t n;         /* candidates kept, best first */
    struct wp_candidate candidate[WP_RECORD_CANDIDATES];
    struct wp_seen seen[WP_RECORD_CANDIDATES];
    double predicted_ttft_us, actual_ttft_us; /* NaN: unknown */
    double low_us, high_us;                   /* nine of ten such predictions turn out between these; NaN: unknown */
    struct wp_policy_conf settings;
    struct wp_room_price room;
    bool queued;
    char tenant[65]; /* "": none */
    int priority;
    double held_us;
    uint64_t target_us; /* 0: none */
    char outcome[16];                         /* "", or one of wp_outcome_names */
};

struct wp_records {
    struct wp_record *ring;
    uint64_t next; /* the id that the next one gets; from 1 */
};

int wp_records_init(struct wp_records *r, struct wp_err *err);
void wp_records_fini(struct wp_records *r);
struct wp_record *wp_records_new(struct wp_records *r);              /* cleared, id set; never NULL */
struct wp_record *wp_records_at(struct wp_records *r, uint64_t id); /* NULL: no longer, or never, there */
/* 64-bit numbers that a reader of JSON may round stand in quotes: the draw. */
/* The worker as the policy saw it, beside what it made of it: so that the prices can be computed again (docs/policies.md has a script). */
void wp_seen_of(struct wp_seen *s, const struct wp_worker_view *v);
/* Settings, and what else of a decision is the same for all its candidates: ,"settings":{...},"room":{...},"queued":false */
int wp_settings_json(const struct wp_policy_conf *c, const struct wp_room_price *room, bool queued, struct wp_buf *out);
int wp_record_json(const struct wp_record *r, struct wp_buf *out);
int wp_candidate_json(const struct wp_candidate *c, const struct wp_seen *s, struct wp_buf *out);

#endif
