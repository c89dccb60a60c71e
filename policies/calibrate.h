/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/calibrate.h - what an engine really costs, learnt from when its answers began.
 *
 * A profile (policies/profile.h) says what a prefill takes.  An answer's first token says what it
 * took.  Five numbers are learnt for each worker, as factors of its profile's: compute    of a_us,
 * per token attention  of b_us, per token and token of context steps      of tov_us and tw_us, per
 * step decoding   of e_us and d_us, per sequence and token of the batch beside it and, in
 * microseconds, what each prefill takes besides (t_c_us: the way there and back is in it).
 *
 * The method.  Recursive least squares, as a Kalman filter whose state is the five numbers.  It
 * starts at the profile with the belief that all factors are off together (one engine is slower
 * than another) and each a little for itself: so what no request has shown yet moves with what many
 * have.  An innovation beyond HUBER deviations counts as one of HUBER, and the belief narrows by as
 * much less: one absurd sample moves little, whatever it says.  SHIFTS in a row beyond it, all to
 * one side, are another engine, and the belief is opened again.  Factors stay within 1/20 and 20,
 * and within 1/8 and 8 of compute. Sources: R. E. Kalman (J. Basic Eng. 1960); P. J. Huber (Ann.
 * Math. Stat. 1964).
 *
 * The interval.  How far off a prediction will be has more reasons than the five numbers: what
 * waits ahead, what others do.  So it goes from the sixth smallest to the sixth largest of the last
 * WP_INTERVAL_SEEN ratios of actual to predicted: the next one is as likely to be any of them in
 * order, so it falls inside in 1 - 12/129 of all cases, whatever the law. Source: V. Vovk, A.
 * Gammerman, G. Shafer, Algorithmic Learning in a Random World (2005).
 *
 * Threads: one at a time.  No allocation.  Cost: some 200 multiplications a sample.
 */
#ifndef WP_POLICIES_CALIBRATE_H
#define WP_POLICIES_CALIBRATE_H

#include "policies/profile.h"

#include <stdbool.h>

enum wp_fact {
    WP_FACT_COMPUTE,
    WP_FACT_ATTENTION,
    WP_FACT_STEPS,
    WP_FACT_DECODING,
    WP_FACT_CONSTANT,
    WP_FACTS
};
extern const char *const wp_fact_names[WP_FACTS]; /* "compute", ...; "constant" */

/* What a prefill is made of, each in microseconds by the profile; the constant's is 1000. */
struct wp_work {
    double part[WP_FACTS];
};

struct wp_calibration {
    double fact[WP_FACTS];          /* factors; the constant in milliseconds */
    double cov[WP_FACTS][WP_FACTS]; /* of what is believed of them */
    double noise; /* variance of what is seen beside what is expected of it; 1 at first */
    uint64_t samples, refused, clipped, reopened;
    int beyond; /* samples in a row beyond HUBER deviations: to that side */
};

void wp_calibration_init(struct wp_calibration *c, const struct wp_profile *p);
/* Begins anew, at what another engine of that profile has shown, a quarter as unsure as at first: its own
 * first answers, which are often slow, do not say more than that. */
void wp_calibration_borrow(struct wp_calibration *c, const struct wp_calibration *from);

/* Prefill of prompt tokens from..to; ahead: a step runs already, and is half through. */
struct wp_work wp_work_of(const struct wp_profile *p, uint64_t from, uint64_t to, double decoding,
                          double kv_tokens, bool ahead);
void wp_work_add(struct wp_work *w, const struct wp_work *more);
double wp_work_us(const struct wp_work *w); /* by the profile */
double wp_calibration_us(const struct wp_calibration *c,
                         const struct wp_work *w); /* by what was learnt */

/*
 * That much work took so long.  fuzz_us: a deviation that is known of (a step's length, where
 * samples begin within one). Returns false, and learns nothing, from what cannot be: not above 0,
 * not finite, more than an hour, or no work.
 */
bool wp_calibration_hear(struct wp_calibration *c, const struct wp_work *w, double took_us,
                         double fuzz_us);

/* The profile with what was learnt in it. */
void wp_calibration_apply(const struct wp_calibration *c, const struct wp_profile *from,
                          struct wp_profile *to);
/* One deviation of what is believed of a fact. */
double wp_calibration_sd(const struct wp_calibration *c, enum wp_fact f);
/* Of the time of some work: a share, 0..1.  What a price may take for a tie. */
double wp_calibration_error(const struct wp_calibration *c, const struct wp_work *w);

/* ---- the interval of a prediction ---- */

enum { WP_INTERVAL_SEEN = 128, WP_INTERVAL_OUT = 6 };
struct wp_interval {              /* {0} is one that has seen nothing */
    float seen[WP_INTERVAL_SEEN]; /* logarithms of actual over predicted, in order of time, in a
                                     ring */
    float sorted[WP_INTERVAL_SEEN];
    uint64_t n, below, above; /* all that were heard, and how they turned out */
};

/* Such predictions turn out between these nine times of ten.  Until sixteen were seen: half to
 * twice, or as far as they went. */
void wp_interval_of(const struct wp_interval *i, double predicted_us, double *low_us,
                    double *high_us);
/* How one turned out: -1 below what the interval was, 0 inside, 1 above.  What is not above 0 is
 * ignored, as 0. */
int wp_interval_hear(struct wp_interval *i, double predicted_us, double actual_us);

/* ---- which samples there are ---- */

/*
 * Of one rank of an engine.  An engine prefills in order of arrival: so what a request took is the
 * time since its dispatch, or since the first token of the one before it where that came later.
 * Short ones share steps, so they are counted together with the next one.
 */
struct wp_meter {
    uint64_t last_us;  /* a first token came; 0: none yet */
    double carried_us; /* of short ones */
    struct wp_work carried;
};
struct wp_sample {     /* of one request; {0} before its dispatch */
    uint32_t from, to; /* prompt tokens */
    double decoding, kv_tokens;
    bool queued; /* something was to be prefilled before it */
    bool ready;  /* its first token has come, and it is one to learn from */
    double took_us;
    struct wp_work with; /* short ones that are counted in */
};

/* Its first token came.  streamed: what came is a first token and not a whole answer. */
void wp_meter_first(struct wp_meter *m, struct wp_sample *s, const struct wp_profile *p,
                    uint64_t placed_us, uint64_t now_us, bool streamed);
/* What of it was cached is known, or will never be: s->from is set right by the caller.  exact:
 * s->to is known, not estimated. */
bool wp_calibration_take(struct wp_calibration *c, const struct wp_sample *s,
                         const struct wp_profile *p, bool exact);

#endif
