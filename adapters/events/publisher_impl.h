/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/publisher_impl.h - what publisher.c (events), groups.c (who speaks), content.c (what a block is called)
 * and parked.c (tiers of blocks to come) share.
 */
#ifndef WP_ADAPTERS_EVENTS_PUBLISHER_IMPL_H
#define WP_ADAPTERS_EVENTS_PUBLISHER_IMPL_H

#include "adapters/events/gather.h"
#include "adapters/events/publisher.h"
#include "base/map.h"

enum { GROUPS_MAX = 64 };
enum { BLOCK_SIZE_MAX = 65536 };

enum group_role { GROUP_MAIN, GROUP_RESTRICTS, GROUP_IGNORED };
struct group {
    uint32_t wire; /* its number in events */
    enum group_role role;
    uint16_t number; /* in the index: the main group is 0 */
};

struct wp_publisher {
    struct wp_publisher_conf conf;
    char *model, *domain;
    struct wp_publisher_counts counts;
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

    struct wp_map salt, salted; /* engine hash -> what the salt adds to the seed, and copies */
    struct wp_map parked;
    uint32_t split_max; /* the most blocks that a chunk was cut into */
    struct wp_gather gather;

    uint64_t *engine, *local; /* of the event at hand, in blocks of ours */
    bool *vague;
    size_t room;
    uint64_t now_us;
};

/* The role of the event's group, learnt from it when new, and its number in the index. */
struct group wp_publisher_group(struct wp_publisher *p, const struct wp_event *e);
void wp_publisher_forget_groups(struct wp_publisher *p);

/* What names the event's blocks beside their tokens. */
struct wp_content {
    uint64_t seed;
    uint64_t salt; /* what the salt adds to it */
    bool plain;    /* tokens and seed are all there is */
    bool opaque;   /* some block matches nothing */
};
void wp_publisher_content(const struct wp_publisher *p, const struct wp_event *e, struct wp_content *c);
/* Local hashes of the event's n * k blocks into p->local, and which are vague (false: none is, and p->vague is not written). */
bool wp_publisher_hash(struct wp_publisher *p, const struct wp_event *e, const struct wp_content *c, size_t k);
uint64_t wp_publisher_nowhere(const struct wp_publisher *p, uint64_t engine); /* a local hash that matches nothing */

/* The salt of a chain: told with its first block, and known by any of its blocks until all their copies are gone. */
void wp_publisher_salt_store(struct wp_publisher *p, const struct wp_event *e, uint64_t salt);
void wp_publisher_salt_remove(struct wp_publisher *p, const struct wp_event *e);

/* Stores of a tier that came before their blocks. */
void wp_publisher_park(struct wp_publisher *p, uint64_t engine, uint8_t tier);
bool wp_publisher_unpark(struct wp_publisher *p, uint64_t engine, uint8_t tier); /* one of them */

#endif
