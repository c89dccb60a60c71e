/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/decide.h - the policy behind the laboratory's line protocol: `warmpath decide --stdio`.
 * A simulator of any make tells what happens, in its own time, and is answered at once where a request goes; lines and answers:
 *     I key=value ...                          once, first: workers block_tokens block_bytes a b tw tov e d budget hbm dram store nic storebw lat
 *                                              pcie stale (seconds, bytes/s, blocks); other keys are ignored
 *     B t worker tier sign id                  a block came (+) or went (-): H gpu, D cpu, S the store (worker -1)
 *     S worker t prefill_tokens waiting in_flight decoding kv_tokens pinned_blocks
 *     F t req worker   E t req worker          first token, end
 *     R t req input_tokens nblocks id...       -> P req worker [source from to]...   or   H req
 *     T t                                      -> P lines, then a line with a dot
 *     Q                                        the end
 * A source is a worker, or the number of workers: the store.  A line that is none of these ends it with an error that names the line
 * and the field.
 */
#ifndef WP_SIM_DECIDE_H
#define WP_SIM_DECIDE_H

#include "sim/brain.h"

struct wp_decide {
    struct wp_brain_conf conf; /* policy, its settings and seed are the caller's; the rest comes with I */
    struct wp_brain *brain;    /* NULL before I */
    struct wp_buf *out;        /* the caller's: answers are appended */
    uint64_t line;
    bool over; /* Q was said */
    double nic[WP_BRAIN_WORKERS_MAX]; /* bytes/s of a worker's link where it is not I's nic; 0: that one */
    uint64_t *block;
    size_t cap;
};

/* conf is initialised; policy may be set afterwards, before the first line. */
void wp_decide_init(struct wp_decide *d, struct wp_buf *out);
void wp_decide_fini(struct wp_decide *d);
/* One line, without its newline.  Errors: WP_ESYNTAX, WP_EINVAL, naming line and field; WP_ENOMEM. */
int wp_decide_line(struct wp_decide *d, struct wp_str line, struct wp_err *err);

/* "0-7=1e9": links of workers that are known to be slower, or faster, than I says.  Errors: WP_EINVAL. */
int wp_decide_nic(struct wp_decide *d, struct wp_str text, struct wp_err *err);

int wp_decide_main(int argc, char **argv);

#endif
