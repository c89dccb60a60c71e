/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/engine_rig.h - a simulated engine on a loop of its own thread, and a client that is
 * only sockets: it shares no code with what it tests.
 */
#ifndef WP_TESTS_LIB_ENGINE_RIG_H
#define WP_TESTS_LIB_ENGINE_RIG_H

#include "base/mem.h"
#include "sim/engine.h"

struct wp_rig {
    pthread_t thread;
    struct wp_loop loop;
    struct wp_engine *engine;
    struct wp_letter stop;
    uint16_t port;
    long live; /* allocations before */
};

/* Model "tiny", context 2048, blocks of 32, 96 of them, as the captured engine had; very fast.
 * faults: specs, ends with NULL. */
void wp_rig_start(struct wp_rig *r, const char *const faults[], double speed);
/* The same in two steps: the configuration, to be changed at will, then the start. */
void wp_rig_conf(struct wp_engine_conf *conf, double speed);
void wp_rig_start_conf(struct wp_rig *r, struct wp_engine_conf *conf, const char *const faults[]);
void wp_rig_stop(struct wp_rig *r); /* and expects that nothing leaked */

struct wp_rig_answer {
    int status;               /* 0: none came */
    int error;                /* errno of the last read; 0: ended well */
    bool whole;               /* as long as its framing says */
    struct wp_buf head, body; /* the body without its chunks */
};
/* Connects and sends; returns the socket, or -1.  headers: "Name: value\r\n"..., may be "". */
int wp_rig_send(const struct wp_rig *r, const char *method, const char *path, const char *headers,
                const char *body, size_t n);
void wp_rig_receive(int fd, struct wp_rig_answer *a); /* until its end; closes fd */
void wp_rig_ask(const struct wp_rig *r, const char *method, const char *path, const char *body,
                struct wp_rig_answer *a);
void wp_rig_answer_fini(struct wp_rig_answer *a);

/* A series' value on /metrics, by its name and a part of its labels; -1 when it is not there. */
double wp_rig_metric(const struct wp_rig *r, const char *name, const char *label);
/* Asks again and again until it is that; false after some thousand times. */
bool wp_rig_metric_becomes(const struct wp_rig *r, const char *name, const char *label,
                           double want);

#endif
