/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/ingest.h - what the events of one publisher mean for the index.
 *
 *     subscriber  -->  decode  -->  ingest  -->  index
 *     (in order?)      (one batch)  (this)       (who holds what)
 *
 * One per publisher and rank, for one holder of the index.  It keeps what a stream of events takes for granted:
 *
 * - the *block size*, told by the caller or learnt from the first store in GPU memory.  Other sizes: a whole multiple is cut
 *   into blocks of ours, whole fractions are gathered (adapters/events/gather.h), the rest is counted and ignored.
 *   Pages of one or two tokens are no block size: they are gathered into 16;
 * - the *groups*: group -> kind, since a removal carries a number alone.  The first main group decides; further main ones and
 *   sliding windows restrict it (wp_index_window()); others are counted and ignored.  What is said without a group, as connectors do, is
 *   meant for all of them;
 * - the *salt* of a chain, which is told with a prompt's first block only;
 * - stores of a tier for blocks that are not known yet: parked for half a minute.
 *
 * Blocks that carry media items take them into their local hash.  One with more than one item, or with one whose place its tokens
 * do not fix, is vague.  What is not understood gets an identity that matches nothing, and so does what hangs from it.
 *
 * Owner: the caller.  Threads: one.  Tokens and hashes are never logged.
 */
#ifndef WP_ADAPTERS_EVENTS_PUBLISHER_H
#define WP_ADAPTERS_EVENTS_PUBLISHER_H

#include "adapters/events/decode.h"
#include "index/index.h"

struct wp_ingest;

enum { WP_INGEST_USES = WP_EVENT_SELF_REFERENCE + 1 };

struct wp_ingest_medium { /* a medium that the configuration describes */
    struct wp_str name;      /* whatever the case of its letters */
    uint8_t tier;
};

struct wp_ingest_conf { /* copied, texts too; media must stay */
    struct wp_index *index;
    uint32_t holder;
    struct wp_str model, domain; /* of the spaces */
    uint32_t block_size;         /* as the engine said; 0: learn it */
    uint64_t secret;
    bool zero_is_root;           /* a parent 0 is none (llm-d's simulator, array form) */
    const struct wp_ingest_medium *medium; /* asked before the defaults; an unknown medium is the last tier */
    size_t n_media;
    size_t parts_max, parked_max, salted_max; /* 0: 1,048,576, 4,096, 1,048,576 */
};

/* All counted in blocks as the publisher names them, unless it says otherwise. */
struct wp_ingest_counts {
    uint64_t batches, events, cleared; /* events */
    uint64_t stored, removed;          /* of the main group, that the index took */
    uint64_t restricted;               /* stores of groups that restrict */
    uint64_t unknown;                  /* removals of what is not known */
    uint64_t floating;                 /* of the stored: their place is not known yet */
    uint64_t parked, unparked;         /* stores of a tier before, and when, the block came */
    uint64_t unused[WP_INGEST_USES]; /* stores that no index can use, by reason */
    uint64_t wrong_size;               /* neither a multiple nor a fraction of the block size, or none known */
    uint64_t split, gathered;          /* chunks that were cut; blocks that parts made */
    uint64_t opaque, vague, refused;
    uint64_t lost;                     /* events, for want of memory: the rest is in doubt since */
};

/* Errors: WP_ENOMEM. */
int wp_ingest_create(struct wp_ingest **out, const struct wp_ingest_conf *conf, struct wp_err *err);
void wp_ingest_destroy(struct wp_ingest *p); /* what it contributed stays in the index */

/* Applies a batch, from where it stands to its end. */
void wp_ingest_batch(struct wp_ingest *p, struct wp_event_batch *b, uint64_t now_us);

/* Messages were lost for good: what it contributed counts for less until it is confirmed. */
void wp_ingest_doubt(struct wp_ingest *p);
/* It started anew, or stayed away: what it contributed is no more, and what was learnt of it may be otherwise now. */
void wp_ingest_gone(struct wp_ingest *p);

/*
 * What it takes for granted, as bytes, and back into one that is as created, for a holder that has what it had.  Tiers of blocks to come are left
 * out.  save: WP_ENOTSUP when parts of blocks are kept (they are not saved: what was contributed cannot be gone on with), WP_ENOMEM.
 * resume: WP_EINVAL when the bytes are none, or of another block size; then it is as created.
 */
int wp_ingest_save(const struct wp_ingest *p, struct wp_buf *out);
int wp_ingest_resume(struct wp_ingest *p, struct wp_str saved);

/* The engine said its block size.  Another one than before: as after wp_ingest_gone(). */
void wp_ingest_block_size(struct wp_ingest *p, uint32_t block_size);
uint32_t wp_ingest_its_block_size(const struct wp_ingest *p); /* that prompts are matched at; 0: not known yet */

/* Blocks of the narrowest sliding window among its groups; 0: none restricts, as far as it has said. */
uint32_t wp_ingest_window(const struct wp_ingest *p);

/* The space of what it published so far.  False: there is none yet. */
bool wp_ingest_space(const struct wp_ingest *p, bool bigram, uint32_t *space);

/*
 * How much of what the engine holds is known: 1 when everything since its first batch is (whole, as wp_subscriber_whole()
 * says), or since it cleared all, else the known blocks' share of its capacity in blocks (0: unknown, then 0).
 */
double wp_ingest_coverage(const struct wp_ingest *p, bool whole, uint64_t capacity);

const struct wp_ingest_counts *wp_ingest_counts(const struct wp_ingest *p);

#endif
