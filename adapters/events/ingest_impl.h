/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/ingest_impl.h - what ingest.c (events), sizes.c (block size), groups.c (who speaks), content.c (what a
 * block is called) and parked.c (tiers of blocks to come) share.
 */
#ifndef WP_ADAPTERS_EVENTS_PUBLISHER_IMPL_H
#define WP_ADAPTERS_EVENTS_PUBLISHER_IMPL_H

#include "adapters/events/gather.h"
#include "adapters/events/ingest.h"
#include "base/map.h"

enum { GROUPS_MAX = 64 };
enum { BLOCK_SIZE_MAX = 65536 };

enum group_role { GROUP_MAIN, GROUP_RESTRICTS, GROUP_IGNORED };
struct group {
    uint32_t wire; /* its number in events */
    enum group_role role;
    uint16_t number; /* in the index: the main group is 0 */
};

/* Events of one block, as decoding makes them: they go to the index together, and before any other. */
enum { QUEUE_MAX = 32 };
struct wp_ingest_queue {
    struct wp_kv_event ev[QUEUE_MAX];
    uint64_t engine[QUEUE_MAX], local[QUEUE_MAX];
    size_t n;
};

struct wp_ingest {
    struct wp_ingest_conf conf;
    char *model, *domain;
    struct wp_ingest_counts counts;
    struct wp_event_scratch scratch;

    uint32_t block_size; /* 0: not known */
    bool told;           /* by the caller, not learnt */
    bool presumed;       /* of a group that restricts: the main group's may be another */
    bool has_space[2];   /* tokens, bigrams */
    bool cleared;        /* nothing was lost since it cleared all */
    uint32_t space[2];
    bool bigram;         /* so was the last store with tokens: removals and tiers mean that space */

    struct group group[GROUPS_MAX];
    size_t n_groups;
    uint16_t restricting; /* numbers given so far */
    bool has_main;
    uint32_t window; /* blocks of the narrowest one that restricts; 0: none */

    struct wp_map salt, salted; /* engine hash -> what the salt adds to the seed, and copies */
    struct wp_map parked;
    uint32_t split_max; /* the most blocks that a chunk was cut into */
    struct wp_gather gather;

    uint64_t *engine, *local; /* of the event at hand, in blocks of ours */
    bool *vague;
    size_t room;
    uint64_t now_us;
    struct wp_ingest_queue queue; /* empty between batches */
};

/* The space of our block size, made when new; it is that of removals from now on.  False: out of memory. */
bool wp_ingest_make_space(struct wp_ingest *p, bool bigram);
/* Of any event: a main group's store in GPU memory tells the block size. */
void wp_ingest_learn_size(struct wp_ingest *p, const struct wp_event *e);
/* No main group has spoken yet: one that restricts has blocks of the same size, as a rule. */
void wp_ingest_presume_size(struct wp_ingest *p, const struct wp_event *e);
/* Groups that restrict may speak first in a batch, and what they say needs the size and the space. */
void wp_ingest_look_ahead(struct wp_ingest *p, struct wp_event_batch b);

/* The role of the event's group, learnt from it when new, and its number in the index. */
struct group wp_ingest_group(struct wp_ingest *p, const struct wp_event *e);
void wp_ingest_forget_groups(struct wp_ingest *p);

/* What names the event's blocks beside their tokens. */
struct wp_content {
    uint64_t seed;
    uint64_t salt; /* what the salt adds to it */
    bool plain;    /* tokens and seed are all there is */
    bool opaque;   /* some block matches nothing */
};
void wp_ingest_content(const struct wp_ingest *p, const struct wp_event *e, struct wp_content *c);
/* Local hashes of the event's n * k blocks into p->local, and which are vague (false: none is, and p->vague is not written). */
bool wp_ingest_hash(struct wp_ingest *p, const struct wp_event *e, const struct wp_content *c, size_t k);
uint64_t wp_ingest_nowhere(const struct wp_ingest *p, uint64_t engine); /* a local hash that matches nothing */

/* The salt of a chain: told with its first block, and known by any of its blocks until all their copies are gone. */
void wp_ingest_salt_store(struct wp_ingest *p, const struct wp_event *e, uint64_t salt);
void wp_ingest_salt_remove(struct wp_ingest *p, const struct wp_event *e);

/* Stores of a tier that came before their blocks. */
void wp_ingest_park(struct wp_ingest *p, uint64_t engine, uint8_t tier);
bool wp_ingest_unpark(struct wp_ingest *p, uint64_t engine, uint8_t tier); /* one of them */

#endif
