/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/publish.h - the KV events of one data-parallel rank, over ZeroMQ as vLLM sends them.
 *
 * Changes are collected; each step's become one batch: number taken, payload written, kept for
 * replay, sent as three frames (topic, number as eight bytes big-endian, payload).  Numbers start
 * at 0 and rise by one. A step without changes sends nothing.  The replay socket answers
 * (delimiter, first number) with what is kept from there on, then an end marker; anything else is
 * ignored.
 *
 * What goes wrong on purpose (sim/fault.h): a batch may be lost, doubled or overtaken by the next
 * one on its way (replay has it all the same), or its number may be used for nothing (replay does
 * not have it either). A restart begins at 0 on new sockets with an empty memory, and says so to
 * nobody.
 *
 * Nothing here waits for a peer.  A subscriber that reads too slowly loses batches beyond 100,000
 * of them. Threads: the loop's; libzmq has one of its own for each publisher.
 */
#ifndef WP_SIM_PUBLISH_H
#define WP_SIM_PUBLISH_H

#include "net/loop.h"
#include "sim/fault.h"
#include "sim/payload.h"

enum { WP_PUBLISH_HWM = 100000, WP_PUBLISH_BUFFER = 10000 };

enum wp_publish_mode {
    WP_PUBLISH_AUTO, /* vLLM's rule: bind when there is a "*" or "::" in the endpoint, or for ipc
                        and inproc; else connect */
    WP_PUBLISH_BIND,
    WP_PUBLISH_CONNECT,
};

struct wp_publish_conf {
    const char *endpoint,
        *replay; /* of rank 0; replay may be NULL; "tcp://127.0.0.1:*" binds any free port */
    const char *topic;
    enum wp_publish_mode mode;
    bool bare_replies; /* replay without topics, as before 0.26 */
    size_t buffer;     /* batches kept for replay, at least 1 */
    struct wp_payload_conf payload;
    struct wp_fault *fault; /* shared, not copied */
    size_t n_faults;
    uint64_t seed; /* of the faults' draws */
    void (*on_restart)(
        void *arg); /* a fault restarts it, after a batch.  Calls wp_publish_restart() */
    void *arg;
};

struct wp_publish;

/* conf is copied but for fault; blocks outlives it.  Errors: WP_EINVAL (an endpoint), WP_ENOMEM,
 * libzmq's errno negated. */
int wp_publish_create(struct wp_publish **out, struct wp_loop *l, struct wp_blocks *blocks,
                      const struct wp_publish_conf *conf, struct wp_err *err);
/* The sockets close during the next turns of the loop.  What waits is dropped. */
void wp_publish_destroy(struct wp_publish *p); /* NULL does nothing */

/* block: NULL for WP_CLEARED.  Never fails: when memory is short the batch is, and its number is
 * used. */
void wp_publish_change(struct wp_publish *p, enum wp_change_kind kind, uint8_t tier,
                       struct wp_block *block);
void wp_publish_step(struct wp_publish *p); /* sends what was collected */
/* Drops what was collected and what is kept. */
void wp_publish_restart(struct wp_publish *p);

uint64_t wp_publish_next(const struct wp_publish *p);     /* the next batch's number */
size_t wp_publish_pending(const struct wp_publish *p);    /* changes collected */
bool wp_publish_only_cleared(const struct wp_publish *p); /* ... and all of them are WP_CLEARED */
/* As bound when the port was left open, else as told with the rank's offset; replay: NULL when
 * there is none. */
const char *wp_publish_endpoint(const struct wp_publish *p);
const char *wp_publish_replay(const struct wp_publish *p);

/*
 * The endpoint of a rank: its port is higher by the rank, an inproc name ends in _dpN.  Whether it
 * is to be bound by vLLM's rule.  Errors: WP_EINVAL (ipc of a rank above 0, no port); WP_ETOOBIG.
 */
int wp_publish_shift(const char *endpoint, uint32_t rank, char *out, size_t room,
                     struct wp_err *err);
bool wp_publish_binds(const char *endpoint);

#endif
