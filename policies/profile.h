/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/profile.h - what an engine costs, in one table of facts: used by the price, by the
 * simulated engine and by the simulation.
 * Prefill of tokens p..n:  C(p, n) = t_c + a (n - p) + (b / 2)(n^2 - p^2), in microseconds.
 * A step of continuous batching that prefills P tokens (A = sum of n ctx + n^2/2 over its chunks)
 * beside B decoding sequences with K tokens of KV in all:
 *     tov + max(tw, a P) + b A + e B + d K
 * Source: the laboratory's engine model, fitted to published figures (docs/engine-model.md).
 */
#ifndef WP_POLICIES_PROFILE_H
#define WP_POLICIES_PROFILE_H

#include "base/err.h"
#include "base/str.h"

struct wp_profile {
    char name[64];
    double a_us;          /* per prefilled token */
    double b_us;          /* per token and token of context */
    double t_c_us;        /* constant part of a prefill */
    double tw_us;         /* reading the weights: a step is never shorter */
    double tov_us;        /* overhead of a step */
    double e_us, d_us;    /* per decoding sequence; per KV token of the decode batch */
    uint32_t budget;      /* tokens of a step */
    uint32_t max_running; /* requests */
    uint64_t kv_bytes_per_token;
    uint64_t gpu_tokens, cpu_tokens; /* KV capacity of one worker */
    double cpu_bytes_per_s;          /* cpu tier to gpu */
    double disk_bytes_per_s;         /* disk tier to gpu */
    double remote_bytes_per_s;       /* remote tier, and all slower ones, to gpu */
    uint32_t max_model_len;
    double speed; /* 1; 6: everything six times as fast */
};

/*
 * By name, or from a YAML file when name has a '/' or ends in .yaml.  It reads the file: not for a
 * loop.  Errors: WP_EINVAL, naming what is known, or the file's line; WP_ENOMEM.
 */
int wp_profile_find(const char *name, struct wp_profile *out, struct wp_err *err);
/*
 * A file has this struct's members as keys.  `like: NAME` takes what it does not say from a
 * built-in profile; without that a_us b_us tw_us e_us d_us kv_bytes_per_token gpu_tokens must be
 * there.
 */
int wp_profile_read(const char *path, struct wp_profile *out, struct wp_err *err);
/* The built-in ones in order, NULL past the end; 0 is the default. */
const char *wp_profile_name(size_t i);
const struct wp_profile *wp_profile_default(void); /* static storage */

/*
 * All divided by speed (as 1 when it is not above 0), never negative, never NaN.
 * from >= to counts as 0 tokens and costs nothing.
 */
double wp_prefill_us(const struct wp_profile *p, uint64_t from, uint64_t to);
double wp_step_us(const struct wp_profile *p, double prefill_tokens, double prefill_area,
                  double decoding, double kv_tokens);
/*
 * What the steps of a prefill of so many tokens, alone in its engine, take beyond C and slow-down:
 * the last one has all of a step's overhead, whatever part of the budget it fills, and no step is
 * over before the weights are read: (1 - r / budget)(tov + e B + d K) + max(0, tw - a r),  r = what
 * the last step prefills
 */
double wp_last_step_us(const struct wp_profile *p, uint64_t prefill_tokens, double decoding,
                       double kv_tokens);
/* tier[n]: tokens in tier 0 (gpu: free), 1 (cpu), 2 (disk), 3.. (remote), one after the other. */
double wp_fetch_us(const struct wp_profile *p, const uint32_t tier[], size_t n);
/* Of a prefill beside a decode batch: 1 + (tov + e B + d K) / (a budget).  Never below 1. */
double wp_slow_down(const struct wp_profile *p, double decoding, double kv_tokens);

#endif
