/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/decision.h - decisions as bytes: what was asked, what was known, what was drawn, made of it and chosen, and what came of it; and
 * the same decision made again from these bytes, to the bit.
 *
 * A log is a stream of records, each a byte of kind, its length in four bytes, and so many bytes:
 *     'P'  the policy and its settings, by name; at the beginning, and when they change
 *     'W'  a worker: a number to name it by, its key, id and profile; before the first decision that shows it, and when its profile has changed
 *     'D'  a decision: the ask, and every worker as the policy saw it, with the verdict
 *     'O'  the outcome of one: time to the first token, and a word
 *     'G'  so many records are missing here, and what was said before is to be said again
 * Whole numbers are seven bits a byte, numbers with a point eight bytes unless they are 0, 1, not a number, or what follows from the others
 * (a price is the sum of its terms).  So a decision among 16 workers takes about 1.3 KB, and 2 KB at most where nothing is fetched from others.
 * Files hold them in frames (base/frames.h), which know when they are not whole.
 *
 * No prompt: neither text nor tokens nor the names of its blocks.  So what sglang's rule goes by is not there, and its decisions cannot be made
 * again.  Rules that remember (round_robin, preble) are judged until the first gap.
 * Threads: one at a time.
 */
#ifndef WP_POLICIES_DECISION_H
#define WP_POLICIES_DECISION_H

#include "base/map.h"
#include "policies/policy.h"

/* The form changes with the terms that there are. */
enum { WP_DECISION_VERSION = 1 << 8 | WP_TERMS, WP_DECISION_SECTION = 1, WP_DECISION_WORKERS = 65536, WP_DECISION_MAX = 16 << 20 };
extern const char wp_decision_magic[8];

struct wp_decision {
    uint64_t id, wall_us;
    bool placed; /* the request went there; false: somebody only asked */
    const struct wp_ask *ask;
    const struct wp_worker_view *w;
    const struct wp_verdict *v;
    size_t n, chosen;
    const char *(*name)(void *arg, size_t i); /* of w[i], for people; NULL: none */
    void *arg;
};

/* All settings of a policy by their names in the configuration.  Returns how many. */
enum { WP_DECISION_SETTINGS = 64 };
struct wp_decision_setting {
    const char *name;
    double value;
};
size_t wp_decision_settings(const struct wp_policy_conf *c, struct wp_decision_setting s[WP_DECISION_SETTINGS]);

/* ---- writing ---- */

struct wp_decision_writer { /* {0} is one that has written nothing */
    struct wp_map number;   /* key of a worker -> its number */
    struct wp_profile *told; /* its profile as last written */
    size_t n, cap;
    uint32_t *row; /* numbers of the decision at hand */
    size_t rows;
    bool policy_told;
};

void wp_decision_writer_fini(struct wp_decision_writer *w);
/* All append to out.  Errors: WP_ENOMEM; what was appended is then to be thrown away, and wp_decision_lost() called. */
int wp_decision_put_policy(struct wp_decision_writer *w, const char *name, const struct wp_policy_conf *conf, struct wp_buf *out);
int wp_decision_put(struct wp_decision_writer *w, const struct wp_decision *d, struct wp_buf *out);
int wp_decision_put_outcome(uint64_t id, double ttft_us, const char *outcome, struct wp_buf *out);
/* n records could not be kept: begins anew.  wp_decision_put_policy() must come before the next decision. */
int wp_decision_lost(struct wp_decision_writer *w, uint64_t n, struct wp_buf *out);

/* ---- reading, and deciding again ---- */

struct wp_decision_counts {
    uint64_t decisions, same, differ, unjudged, outcomes, lost, workers; /* workers: shown, over all decisions */
};
struct wp_decision_reader;

int wp_decision_reader_create(struct wp_decision_reader **out, struct wp_err *err);
void wp_decision_reader_destroy(struct wp_decision_reader *r);
/*
 * One record of n bytes, without its head.  A decision is made again and compared: choice, terms, prices, predictions and fetches.
 * Errors: WP_EINVAL, what is wrong in words; WP_ENOMEM.
 */
int wp_decision_read(struct wp_decision_reader *r, uint8_t kind, const void *p, size_t n, struct wp_err *err);
void wp_decision_counted(const struct wp_decision_reader *r, struct wp_decision_counts *out);
/* The first that came out otherwise, in words; "" when none did. */
const char *wp_decision_first_difference(const struct wp_decision_reader *r);

#endif
