/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/load.h - `warmpath load`: plays a trace at an OpenAI endpoint, open loop, and measures.
 * Each request goes out at its own time stamp, whatever became of those before it; every time is
 * taken from that stamp, so a generator that is late makes figures worse, never better, and says
 * how late it was. scale compresses arrivals (load).  speed makes everything faster in wall time,
 * and all reported times are multiplied by it: against an engine run with the same --speed they are
 * the seconds of the engine that is imitated. Prompts are token ids drawn from the trace's hash
 * ids; output length is the trace's. Threads: everything belongs to the loop's.
 */
#ifndef WP_SIM_LOAD_H
#define WP_SIM_LOAD_H

#include "net/http.h"
#include "net/loop.h"
#include "policies/profile.h"
#include "sim/report.h"
#include "sim/trace.h"

struct wp_load_conf {
    struct wp_url target;             /* slices must live as long as the load */
    struct wp_tls *tls;               /* for an https target, else NULL; must live as long */
    const char *model, *label;        /* likewise */
    double scale, speed;              /* 1 */
    size_t warmup;                    /* the first of the trace, left out of the figures */
    size_t in_flight;                 /* at most; 0: no bound, which is what open loop means */
    uint32_t vocabulary;              /* prompt ids stay below it */
    bool whole;                       /* no streams: TTFT is then the time of the whole answer */
    uint64_t timeout_us;              /* of one request, wall time; 0: none */
    const struct wp_profile *profile; /* for the SLO's cold prefill; NULL: not known */
};

struct wp_load; /* sim/load.c */

/* trace is kept, not copied.  done(arg) comes once, when the last request is over or after
 * wp_load_stop(). */
int wp_load_create(struct wp_load **out, struct wp_loop *l, const struct wp_load_conf *conf,
                   const struct wp_trace *trace, void (*done)(void *arg), void *arg,
                   struct wp_err *err);
void wp_load_stop(
    struct wp_load *load); /* sends no more; what is in flight is cut off and counts nowhere */
/* closed(arg): last, later; may be NULL.  Stops first. */
void wp_load_destroy(struct wp_load *load, void (*closed)(void *arg), void *arg);

struct wp_load_state { /* at any time; counts are of all requests, warm-up too */
    size_t total, sent, in_flight, ended, failed, cut_off, warmup;
    double late_p99_s,
        late_max_s;     /* how long after its time a request went out; wall time.  Cost: a sort */
    double ttft_mean_s; /* of the measured ones so far */
};
void wp_load_state(const struct wp_load *load, struct wp_load_state *s);
struct wp_report *wp_load_report(struct wp_load *load);

/* The table with what the report does not know: errors by kind, keeping up.  json: the same as one
 * object. */
int wp_load_text(struct wp_load *load, struct wp_buf *out);
int wp_load_json(struct wp_load *load, struct wp_buf *out);

/* One request's body.  Errors: WP_ENOMEM. */
int wp_load_body(struct wp_buf *out, const char *model, const uint32_t token[], size_t n,
                 uint32_t output, bool stream);

/* The command.  Returns the exit status. */
int wp_load_main(int argc, char **argv);

#endif
