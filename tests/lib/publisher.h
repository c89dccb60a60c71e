/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/publisher.h - a KV event publisher for tests, as an engine has one: a PUB socket and a
 * ROUTER for replays. It lives on the thread of the loop under test and does nothing by itself:
 * publisher_look() reads what has come.  Its descriptors are on the loop, so that the loop wakes
 * when there is something.
 */
#ifndef WP_TESTS_LIB_PUBLISHER_H
#define WP_TESTS_LIB_PUBLISHER_H

#include "base/str.h"
#include "net/loop.h"

struct test_publisher {
    void *ctx, *pub, *router;
    uv_poll_t poll[2];
    unsigned open;
    char events[80], replay[80]; /* endpoints as they are */
    bool subscribed;             /* somebody listens */
    unsigned requests;           /* well-formed ones, ever */
    uint64_t start;              /* the last one's */
    char peer[64];               /* who asked it */
    size_t peer_n;
};

/*
 * bind: its PUB binds events, port * being one that stays free when it ends; otherwise it connects there.
 * replay NULL: it has none.
 */
bool publisher_open(struct test_publisher *p, struct wp_loop *l, const char *events, bool bind,
                    const char *replay);
void publisher_bound(struct test_publisher *p, int messages); /* what it keeps for a slow reader; 0, as at first: all */
void publisher_look(struct test_publisher *p);
void publisher_send(struct test_publisher *p, const struct wp_str frame[], size_t n); /* live */
void publisher_reply(struct test_publisher *p, const struct wp_str frame[],
                     size_t n); /* to who asked last */
/* Ends it, as a process ends: at once, and its ports are free. */
void publisher_end(struct test_publisher *p, struct wp_loop *l);

#endif
