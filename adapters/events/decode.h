/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/decode.h - one payload of KV events, as engines publish it, read where it lies.
 *
 * wp_event_open() reads all of the payload and says yes or no; after a no nothing of it may be
 * applied.  Then wp_event_next() visits event after event:
 *
 *     struct wp_event_scratch scratch = {0};   kept from payload to payload
 *     struct wp_event_batch b;
 *     struct wp_event e;
 *
 *     if (wp_event_open(&b, payload, &err) < 0)
 *         ... count b.why, doubt what this publisher contributed, go on ...
 *     while ((rc = wp_event_next(&b, &scratch, &e)) > 0)
 *         ... apply e ...
 *
 * Both wire forms, decided for each event by its first byte: an array (vLLM to 0.23, SGLang to
 * 0.5.18) or a map (since then; TensorRT-LLM, Mooncake).  Unknown tags are skipped, unknown keys
 * and further elements ignored.  Of equal keys the last counts.
 *
 * Bounds: no count in a payload is believed (adapters/events/msgpack.h).  wp_event_open() allocates
 * nothing; a visit allocates for one event at a time, less than 64 bytes for each byte of it.
 *
 * Threads: a batch and a scratch belong to one thread at a time.  Texts and slices point into the
 * payload, which must stay meanwhile.
 *
 * Cost: each of the two passes is about 2 ns a token id (tests/bench/decode.c).
 */
#ifndef WP_ADAPTERS_EVENTS_DECODE_H
#define WP_ADAPTERS_EVENTS_DECODE_H

#include "adapters/events/msgpack.h"
#include "base/err.h"
#include "base/str.h"

enum wp_event_kind { WP_EVENT_STORED, WP_EVENT_REMOVED, WP_EVENT_CLEARED, WP_EVENT_SKIPPED };

/* Where a medium lies by default.  The first four have the numbers of the index's default tiers. */
enum wp_event_tier {
    WP_EVENT_GPU,
    WP_EVENT_CPU,
    WP_EVENT_DISK,
    WP_EVENT_REMOTE,
    WP_EVENT_UNKNOWN, /* nobody told us: take it for the slowest tier there is, never for gpu */
};

/* What an index may do with a store: the first reason against it that applies. */
enum wp_event_use {
    WP_EVENT_INDEX,           /* a chain of n blocks of block_size tokens */
    WP_EVENT_TIER_ONLY,       /* no tokens: blocks known by their hashes are in this tier too */
    WP_EVENT_NON_MAIN_GROUP,  /* not full attention: no prefix, though a window may restrict one */
    WP_EVENT_NON_INTEGER,     /* texts among the token ids */
    WP_EVENT_BROKEN_BIGRAM,   /* pairs that do not overlap */
    WP_EVENT_ZERO_BLOCK_SIZE, /* with tokens; without them (TIER_ONLY) block_size is often 0 */
    WP_EVENT_SPARSE,          /* tokens are not block_size for each hash: places unknown */
    WP_EVENT_SELF_REFERENCE,  /* a hash twice, or the parent among them */
};

/* Why a payload was refused.  Advice, for metrics and logs: that it was refused is what counts. */
enum wp_event_why {
    WP_EVENT_FINE,
    WP_EVENT_TRUNCATED,
    WP_EVENT_TRAILING_BYTES,
    WP_EVENT_DEPTH,
    WP_EVENT_RESERVED_BYTE,
    WP_EVENT_BAD_BATCH,
    WP_EVENT_BAD_TYPE,
    WP_EVENT_BAD_UTF8,
    WP_EVENT_RANGE,
    WP_EVENT_MISSING_FIELD,
};

struct wp_event_batch {
    double ts; /* seconds, but Mooncake's milliseconds: comparable within one publisher only */
    bool has_rank;
    uint32_t rank; /* data-parallel, 0..2^31-1 */
    size_t n;      /* events, skipped ones too */
    size_t stored, removed, cleared, skipped;
    size_t unknown_medium; /* stores and removals of tier WP_EVENT_UNKNOWN */
    enum wp_event_why why;
    size_t next; /* the event that comes next: its number, and where it lies */
    struct wp_msgpack_in in;
};

/* Texts are absent (p is NULL) when they were not said or nil; "" was said. */
struct wp_event {
    enum wp_event_kind kind;
    size_t i;          /* its number in the batch, from 0 */
    struct wp_str tag; /* "BlockStored", ... */

    /* Stored and removed. */
    const uint64_t *hash; /* n engine hashes, first block first; in the scratch until the next
                             visit. An integer counts modulo 2^64, of bytes the last 8 do */
    size_t n;
    bool binary;          /* some hash came as bytes; hashes has them whole */
    struct wp_str hashes; /* the array as sent, MessagePack */
    struct wp_str medium; /* absent: the GPU */
    enum wp_event_tier tier;
    bool has_group;
    uint32_t group; /* of KV cache groups.  All that a removal says: remember the store's kind */
    struct wp_str locality, ownership;

    /* Stored. */
    enum wp_event_use use;
    bool main_group; /* by its spec_kind; without one, group 0 is, and so is none */
    struct wp_str spec_kind;
    bool has_parent; /* false: a prompt begins here.  0 is a hash like any other */
    uint64_t parent;
    struct wp_str parent_sent; /* as sent, MessagePack; absent without a parent */
    const uint32_t *token;     /* in the scratch */
    size_t n_tokens;           /* bigram: one more than there were pairs */
    bool bigram;               /* ids came as pairs: a block of p spans p + 1 tokens, at stride p */
    uint32_t block_size;
    bool has_lora_id, has_window;
    int64_t lora_id;
    int64_t window; /* in tokens, of a sliding-window group */
    struct wp_str lora_name, cache_salt, session_id;
    struct wp_str extra_keys, mm_keys; /* arrays as sent: adapters/events/extra.h reads them */
};

/* What a visit needs room for; {0} is an empty one.  It grows with the largest event. */
struct wp_event_scratch {
    uint32_t *token;
    uint64_t *hash;
    size_t tokens, hashes; /* there is room for */
};
void wp_event_scratch_fini(struct wp_event_scratch *s);

/*
 * Judges a payload, whole, and fills b.  Errors: WP_EPROTO, with b->why; b is then a batch without
 * events.  Never allocates.
 */
int wp_event_open(struct wp_event_batch *b, struct wp_str payload, struct wp_err *err);

/*
 * The next event.  Returns 1, or 0 at the end, or WP_ENOMEM: then the same event comes again, and
 * who has to go on without it says wp_event_pass() (and has to doubt what he knows).
 */
int wp_event_next(struct wp_event_batch *b, struct wp_event_scratch *s, struct wp_event *e);
void wp_event_pass(struct wp_event_batch *b); /* past the next event, unseen */

/* The tier that a medium has by default, whatever the case of its letters; the GPU when absent. */
enum wp_event_tier wp_event_tier(struct wp_str medium);

/* Names for metrics and logs: "self_reference". */
const char *wp_event_use_name(enum wp_event_use use);
const char *wp_event_why_name(enum wp_event_why why);
const char *wp_event_tier_name(enum wp_event_tier tier);

#endif
