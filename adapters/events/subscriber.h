/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/subscriber.h - what one publisher's messages mean: apply, hold, ask again, forget.
 *
 * An engine's KV events carry numbers that rise by one.  What is missing is asked for over a second
 * socket (the replay) while live messages wait; what cannot be had any more is a hole; numbers that
 * start anew are a restart.  This is that logic alone: no sockets, no clock, no index.  It is fed
 * messages and told the time, and calls back with steps in the order in which they must be done.
 *
 *     connected --> SYNCING --end of replay--> LIVE --gap--> GAPPED --first reply--> SYNCING
 *                   (without a replay LIVE at once)          a time-out or the end leads to LIVE
 *
 * After a reconnect the last number applied is asked for once more (the probe): the same batch
 * proves that nothing changed hands; another batch, or none, is a publisher that restarted.
 *
 * One per publisher, which is an endpoint, or a topic and a rank behind a bound socket.
 * Owner: the caller.  Threads: one.  Memory: 8 KiB of what was applied last, and held messages, in a
 * queue bounded by count and by bytes; past its bounds the oldest goes, is counted, and shows as a hole.
 * Cost: O(1) a message, and one copy of those that are held.
 */
#ifndef WP_ADAPTERS_EVENTS_SUBSCRIBER_H
#define WP_ADAPTERS_EVENTS_SUBSCRIBER_H

#include "base/list.h"
#include "base/str.h"

/* clang-format off */
enum wp_sub_action {
    WP_SUB_APPLY,
    WP_SUB_HOLD,                /* waits for the end of a replay, or for its turn */
    WP_SUB_GAP_HOLD,            /* numbers are missing: waits, and a replay is asked for */
    WP_SUB_DROP_DUP,
    WP_SUB_HOLE_CLEAR_APPLY,    /* numbers are lost for good */
    WP_SUB_RESTART_CLEAR_APPLY, /* a new incarnation */
    WP_SUB_RESTART_CLEAR,       /* the same, and a replay from 0 is asked for */
    WP_SUB_REJECT_CLEAR,        /* the payload was refused: a replay would only repeat it */
    WP_SUB_MALFORMED,
    WP_SUB_END,                 /* of a replay */
    WP_SUB_REPLAY_TIMEOUT,
    WP_SUB_PROBE_OK,
    WP_SUB_PROBE_MISMATCH,
    WP_SUB_IGNORE,              /* a reply that answers nothing, or comes from another incarnation */
    WP_SUB_ACTIONS
};
/* clang-format on */

/* What a step asks of the index, before anything is applied. */
enum wp_clear {
    WP_CLEAR_NONE,
    WP_CLEAR_DOUBT, /* what this publisher contributed counts for less until confirmed */
    WP_CLEAR_GONE,  /* what this publisher contributed is no more */
};

enum wp_feed_state {
    WP_FEED_UNKNOWN, /* not connected */
    WP_FEED_SYNCING, /* a replay runs */
    WP_FEED_LIVE,
    WP_FEED_GAPPED, /* numbers are missing, and nothing came yet of the replay that was asked for */
    WP_FEED_STATES
};

struct wp_sub_step {
    enum wp_sub_action action;
    enum wp_clear clear;   /* first */
    bool apply;            /* then apply payload */
    bool numbered;         /* seq is set */
    uint64_t seq;
    struct wp_str payload; /* the callback's only during the call */
};

/* What a batch says of itself. */
struct wp_batch_head {
    double ts; /* seconds, by the publisher's clock */
    bool ranked;
    uint32_t rank; /* data-parallel rank, when ranked */
};

struct wp_sub_conf {
    bool replay;                       /* there is a replay socket */
    size_t pending_max, pending_bytes; /* 0: 4,096 messages, 64 MiB */
    size_t burst;                      /* held messages let go in one call; 0: all */
    uint64_t reply_us;                 /* how long a replay may be silent; 0: 5 s */
    /*
     * False when the payload does not decode.  A step that applies follows at once upon this call for
     * the same bytes, with no other call between, so a decoder may keep what it read.
     */
    bool (*head)(void *arg, struct wp_str payload, struct wp_batch_head *out);
    void (*step)(void *arg, const struct wp_sub_step *step); /* must not call back into this module */
    void *arg;
};

struct wp_sub_counts {
    uint64_t messages, bytes; /* live ones, and their payloads */
    uint64_t replies;
    uint64_t applied;
    uint64_t gaps;       /* found, and a replay asked for */
    uint64_t holes;      /* numbers lost for good */
    uint64_t restarts;
    uint64_t duplicates;
    uint64_t refused;    /* payloads that did not decode */
    uint64_t malformed;  /* not even a message */
    uint64_t replays;    /* asked for, probes included */
    uint64_t timeouts;
    uint64_t dropped;    /* held messages that the queue had no room for */
};

struct wp_sub_seen { /* a batch that was applied */
    uint64_t after; /* its number + 1; 0: none */
    double ts;
};

struct wp_subscriber {
    struct wp_sub_conf conf;
    struct wp_sub_counts counts;
    struct wp_sub_seen *seen; /* the last WP_SUB_SEEN, by number; NULL: nothing yet, or no memory */
    uint64_t next, probe, start; /* next is the number expected, if known; probe, if probing; start, if asking */
    uint64_t live_last, deadline_us; /* live_last: the last live number on this connection, if heard */
    double last_ts; /* of the last batch applied, if timed */
    uint64_t back;  /* during a resync: the number expected before it, where it goes on at least; else 0 */
    double back_ts;
    unsigned dup_run; /* lower numbers in a rising row that began with a fall */
    bool known, timed, probing, asking;
    bool heard;
    bool up, met;   /* connected now; connected once */
    bool replaying; /* live messages are held */
    bool gapped;    /* nothing came yet for a gap */
    bool foreign;   /* the probe came back as another batch */
    bool fresh;     /* connected anew, nothing heard on this connection yet */
    bool begun;     /* something was applied since the last restart */
    bool resumed;   /* goes on from a mark, and nothing has shown yet that this is the publisher it is of */
    const char *lacks; /* why not all is known, or NULL */
    struct wp_list pending; /* oldest first */
    size_t held, held_bytes;
    size_t letting; /* of those, how many the end of a replay has let go */
};

enum { WP_SUB_RESTART_RUN = 8 }; /* so many lower numbers in a row, after a fall, are no duplicates */
enum { WP_SUB_SEEN = 512 };      /* batches that are known again by number and timestamp */

void wp_subscriber_init(struct wp_subscriber *s, const struct wp_sub_conf *conf);
void wp_subscriber_fini(struct wp_subscriber *s);

/* Where a subscriber stands: to be kept beside what was applied, and gone on from in another process. */
struct wp_sub_mark {
    uint64_t next;  /* the number expected; 0: nothing was applied */
    double last_ts; /* of the batch before it, if timed */
    bool timed, whole;
};
struct wp_sub_mark wp_subscriber_mark(const struct wp_subscriber *s);
/*
 * Goes on from a mark, before it is connected for the first time.  The first replay asks for the batch before the mark: the same batch
 * proves it, another one or none is a restart, and if the publisher keeps it no longer, or has no replay, the next batch comes with a hole.
 */
void wp_subscriber_resume(struct wp_subscriber *s, const struct wp_sub_mark *m);

/* The publisher's live socket is connected, for the first time or anew. */
void wp_subscriber_connected(struct wp_subscriber *s, uint64_t now_us);
/* It is no longer: nothing changes but the state. */
void wp_subscriber_disconnected(struct wp_subscriber *s);

/* A message of the live socket: topic, number, payload.  Any frames may be given. */
void wp_subscriber_live(struct wp_subscriber *s, const struct wp_str frame[], size_t n, uint64_t now_us);
/* A message of the replay socket, either form: "", [topic], number, payload. */
void wp_subscriber_reply(struct wp_subscriber *s, const struct wp_str frame[], size_t n, uint64_t now_us);

/* When the replay that runs has been silent for too long; UINT64_MAX: none runs. */
uint64_t wp_subscriber_deadline(const struct wp_subscriber *s);
/* It has been: give it up and go on with what was held. */
void wp_subscriber_timeout(struct wp_subscriber *s, uint64_t now_us);

/* Held messages wait for wp_subscriber_release(), which lets the next conf.burst of them go. */
bool wp_subscriber_more(const struct wp_subscriber *s);
void wp_subscriber_release(struct wp_subscriber *s, uint64_t now_us);

/* True once for each replay that is to be asked for now: look after every call above. */
bool wp_subscriber_request(struct wp_subscriber *s, uint64_t *start);

/*
 * What it told has turned out wrong: asks for everything that is still to be had, from the beginning, and goes on from where it
 * stood.  False: it cannot be asked now (no replay socket, not connected, a replay runs).  What the caller has of it is in doubt.
 */
bool wp_subscriber_resync(struct wp_subscriber *s, uint64_t now_us);

/* It stayed away too long and the caller dropped what it had contributed: as if it had never been. */
void wp_subscriber_forget(struct wp_subscriber *s);

/* *why is static text. */
enum wp_feed_state wp_subscriber_state(const struct wp_subscriber *s, const char **why);
/* Everything since the publisher's first batch, or its last restart, is known. */
bool wp_subscriber_whole(const struct wp_subscriber *s);

const char *wp_sub_action_name(enum wp_sub_action a); /* "gap_hold" */
const char *wp_feed_state_name(enum wp_feed_state s); /* "live" */

#endif
