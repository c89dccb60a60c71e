/* SPDX-License-Identifier: Apache-2.0 */
/* router/doctor_inner.h - the doctor from inside: for doctor.c and doctor_json.c alone. */
#ifndef WP_ROUTER_DOCTOR_INNER_H
#define WP_ROUTER_DOCTOR_INNER_H

#include "base/list.h"
#include "base/map.h"
#include "router/doctor.h"

#include <pthread.h>

enum { DOCTOR_HEADS = 4096, DOCTOR_WAYS = 8 }; /* different ways of breaking that a finding tells apart */

/* Breaks of one kind at one place, of one model; shown once they are a habit. */
struct wp_finding {
    bool used, shown;
    uint8_t kind;
    uint8_t part;  /* enum wp_piece_kind of the piece that differed, the last time */
    uint8_t model; /* index */
    uint16_t number;
    uint32_t place; /* line: the piece's index; else 0 */
    uint64_t first_us, last_us, requests, sessions;
    double prompt_tokens, lost_tokens, at_tokens, n_tokens; /* sums */
    double dropped_tokens, grown_tokens;                    /* window: sums */
    uint32_t way[DOCTOR_WAYS]; /* what came in the place, of conversations too short for a habit */
    unsigned ways;
    uint64_t told_requests, told_tokens; /* counted in the metrics */
};

/* What stands before the first message: between which requests it was seen.  One of a hash's place is kept. */
struct wp_doctor_head {
    uint32_t hash;
    uint64_t first, last; /* numbers of requests, from 1 */
};

struct wp_doctor_model {
    char *name;
    uint64_t requests, turns, breaks;
    double prompt_tokens, turn_tokens, lost_tokens;
};

struct wp_doctor {
    pthread_mutex_t lock; /* guards all below */
    struct wp_list sessions; /* longest silent first */
    struct wp_map by_link;   /* key -> the first session of a chain */
    size_t n_sessions, bytes, cap_bytes;
    uint64_t requests, turns, breaks;
    struct wp_doctor_model model[WP_DOCTOR_MODELS];
    size_t n_models;
    struct wp_finding finding[WP_DOCTOR_FINDINGS];
    struct wp_doctor_head head[DOCTOR_HEADS];
    struct wp_family *breaks_total, *lost_total;
};

#endif
