/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/fault.h - what a simulated engine does wrong on purpose.
 *     SPEC = KIND[=VALUE][,every=K][,count=N][,retry-after=S]
 * every=K: each K-th request that the fault could strike; count=N: N times in all.  Of several
 * faults the first that strikes wins.  The faults of KV events strike batches; lose=0.01 each one
 * with that probability. Threads: one.
 */
#ifndef WP_SIM_FAULT_H
#define WP_SIM_FAULT_H

#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

/* clang-format off */
enum wp_fault_kind {
    WP_FAULT_NONE,
    /* any request, when its head has come */
    WP_FAULT_SILENT,      /* read, never answered */
    WP_FAULT_SLOW_ACCEPT, /* value: ms before anything happens */
    /* completions and chats, when the body has come */
    WP_FAULT_RESET,       /* RST */
    WP_FAULT_STATUS,      /* value: 500, 429, 503, ... */
    /* those that are good, before they reach the model */
    WP_FAULT_STALL,       /* counts as running, is never answered */
    WP_FAULT_STALL_PREFILL, /* the same for prompts of value tokens and more */
    WP_FAULT_ERROR_FIRST, /* a stream whose first event is an error */
    WP_FAULT_DIE_AFTER,   /* value: output tokens, then RST */
    /* batches of KV events (sim/publish.h), with probability share */
    WP_FAULT_LOSE,
    WP_FAULT_DOUBLE,
    WP_FAULT_REORDER,     /* the next one comes first */
    WP_FAULT_SKIP,        /* the number is used, nothing is sent or kept */
    WP_FAULT_EVENTS_RESTART, /* value: batches since the last start */
};
/* clang-format on */

struct wp_fault {
    enum wp_fault_kind kind;
    uint64_t value;
    double share;          /* 0..1 */
    uint64_t every, count; /* 1 and 0 (no end) when not said */
    int64_t retry_after;   /* seconds; -1: not said */
    uint64_t seen, struck;
};

/* Errors: WP_EUSAGE, naming what is known. */
int wp_fault_parse(struct wp_fault *f, struct wp_str spec, struct wp_err *err);

/*
 * The fault of fault[n] that strikes a request at this stage (kinds first..last), or NULL; counts
 * it.  tokens: of its prompt, 0 when not known yet.
 */
struct wp_fault *wp_fault_strike(struct wp_fault fault[], size_t n, enum wp_fault_kind first,
                                 enum wp_fault_kind last, uint64_t tokens);

/* The same for one batch of KV events: rng decides. */
struct wp_fault *wp_fault_draw(struct wp_fault fault[], size_t n, enum wp_fault_kind kind,
                               struct wp_rng *rng);

extern const char wp_fault_help[]; /* for the command line */

#endif
