/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/load_impl.h - shared by load.c (when requests go out), shot.c (one request) and
 * load_report.c. Nobody else includes it.
 */
#ifndef WP_SIM_LOAD_IMPL_H
#define WP_SIM_LOAD_IMPL_H

#include "net/client.h"
#include "net/sse.h"
#include "sim/load.h"

enum { WP_LOAD_KINDS = 24 };

struct wp_load {
    struct wp_loop *loop;
    struct wp_client *client;
    struct wp_load_conf conf;
    const struct wp_trace *trace;
    struct wp_report *report;
    struct wp_timer next;
    struct wp_list shots; /* in flight */
    struct wp_buf target;
    uint32_t *token; /* scratch, of the longest prompt */
    double *late;    /* [sent], wall seconds */
    size_t sent, in_flight, ended, failed, warm_failed, cut_off;
    uint64_t start_us, last_us; /* of the first and the latest measured event */
    double ttft_sum_s;
    size_t ttft_n;
    struct {
        char name[32];
        uint64_t n;
    } kind[WP_LOAD_KINDS]; /* errors of measured requests; the last one is "other" */
    bool stopped, told;
    void (*done)(void *arg);
    void *arg;
    struct wp_timer tell;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* sim/shot.c: sends request i of the trace, which was due at due_us. */
int wp_shot_fire(struct wp_load *load, size_t i, uint64_t due_us);
void wp_shot_cut(struct wp_list *link); /* cancels one of load->shots */
/* sim/load.c: one of them is over. */
void wp_load_shot_over(struct wp_load *load);
void wp_load_error(struct wp_load *load, size_t i, const char *kind);

#endif
