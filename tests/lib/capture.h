/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/capture.h - scripts of multipart messages with what a subscriber must do at each step
 * (tests/data/spec/cap_*.json), and the head of a batch as far as these need it.
 */
#ifndef WP_TESTS_LIB_CAPTURE_H
#define WP_TESTS_LIB_CAPTURE_H

#include "adapters/events/subscriber.h"
#include "base/mem.h"

enum { CAP_FRAMES = 8, CAP_EXPECTS = 16 };

enum cap_kind { CAP_CONNECTED, CAP_LIVE, CAP_REPLY, CAP_TIMEOUT };

struct cap_expect {
    char action[32];
    bool numbered;
    uint64_t seq;
};

struct cap_step {
    enum cap_kind kind;
    struct wp_str frame[CAP_FRAMES];
    size_t frames;
    struct cap_expect expect[CAP_EXPECTS];
    size_t expects;
    bool asks; /* a replay request goes out */
    uint64_t start;
};

struct cap {
    char name[64];
    bool replay;
    struct cap_step *step;
    size_t steps;
    uint64_t next; /* at the end */
    bool replaying;
    struct wp_arena arena;
};

extern const char *const cap_names[]; /* every script, ends with NULL */

/* False, and a failed expectation, when it cannot be read. */
bool cap_load(struct cap *c, const char *name);
void cap_fini(struct cap *c);

/* Enough of msgpack for test payloads: [double, events, rank?], where rank is seen behind no
 * events. */
bool cap_head(void *arg, struct wp_str payload, struct wp_batch_head *out);
/* Writes such a payload (up to 16 bytes, rank < 0: none) and returns its length. */
size_t cap_payload(char *out, double ts, int rank);
/* Big-endian, 8 bytes. */
struct wp_str cap_number(char out[8], uint64_t seq);

#endif
