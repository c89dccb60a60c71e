/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/profile.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>

/*
 * Where the numbers are from.  docs/engine-model.md has them with their sources, and
 * tests/unit/profile.c computes them again.
 *
 * The first row is the laboratory's own.  The others follow its arithmetic:
 *   a     2 P_active / (G MFU); G is 989 TFLOP/s per H100 or H200 in bf16, 1979 in fp8
 *   b     2 L H (d_qk + d_v) / (G MFU): the quadratic part, attention
 *   tw    bytes of all weights / 0.70 of the memory's bandwidth (3.35 TB/s per H100, 4.8 per H200):
 *         the share that the laboratory's 7.5 ms are for 141 GB on eight H100.  A mixture of
 *         experts reads nearly all of its experts in a step of 2,048 tokens
 *   d     bytes of KV per token / 0.61 of that bandwidth: the laboratory's 20 ns for 320 KiB on
 *         eight H100
 *   e     a: a decoding sequence computes one token
 *   tov, budget, max_running: the laboratory's
 *   gpu   0.90 of the memory less the weights less 4 GB a GPU for activations, in whole blocks of
 *         512 tokens
 *   cpu   126 GB of DRAM a GPU (1 TB a node of eight); to the GPUs 50 GB/s over one PCIe 5 x16,
 *         100 GB/s a node
 *   disk  7 GB/s, one NVMe Gen4 drive; remote 20 GB/s, the laboratory's shared store
 *
 * MFU is measured for Llama-3-8B (0.48: a public report of 0.9 s for 20,000 tokens on one H100);
 * the others are assumptions, to be corrected by what a fleet is seen to do.
 */
/* clang-format off */
static const struct wp_profile profiles[] = {
    {
        /*
         * The laboratory's: 140 GFLOP a token at 35 % MFU; 4 x 8192 x 80 FLOP at 40 %.
         * KV 80 layers x 8 heads x 128 x 2 x 2 B.
         */
        .name = "llama-3-70b-8xh100",
        .a_us = 50, .b_us = 8.3e-4, .tw_us = 7500, .tov_us = 2000, .e_us = 50, .d_us = 0.020,
        .budget = 2048, .max_running = 256, .kv_bytes_per_token = 327680,
        .gpu_tokens = 2400 * 512, .cpu_tokens = 6000 * 512, .cpu_bytes_per_s = 100e9,
        .disk_bytes_per_s = 7e9, .remote_bytes_per_s = 20e9,
        .max_model_len = 262144, /* no limit there; the longest request of its traces: 202k */
        .speed = 1,
    },
    {
        /* P 8.03e9 bf16 (16.06 GB), L 32, H 32, d 128 + 128, MFU 0.48.  KV 2x32x8x128x2 B. */
        .name = "llama-3-8b-1xh100",
        .a_us = 33.83, .b_us = 1.1044e-3, .tw_us = 6850, .tov_us = 2000, .e_us = 33.83, .d_us = 0.0641,
        .budget = 2048, .max_running = 256, .kv_bytes_per_token = 131072,
        .gpu_tokens = 773 * 512, .cpu_tokens = 1875 * 512, .cpu_bytes_per_s = 50e9,
        .disk_bytes_per_s = 7e9, .remote_bytes_per_s = 20e9,
        .max_model_len = 131072,
        .speed = 1,
    },
    {
        /* P 405.9e9 fp8 (405.9 GB, computed in fp8), L 126, H 128, d 128 + 128, MFU 0.48.  KV 2x126x8x128x2 B. */
        .name = "llama-3.1-405b-fp8-8xh100",
        .a_us = 106.8, .b_us = 1.0866e-3, .tw_us = 21640, .tov_us = 2000, .e_us = 106.8, .d_us = 0.0316,
        .budget = 2048, .max_running = 256, .kv_bytes_per_token = 516096,
        .gpu_tokens = 522 * 512, .cpu_tokens = 3809 * 512, .cpu_bytes_per_s = 100e9,
        .disk_bytes_per_s = 7e9, .remote_bytes_per_s = 20e9,
        .max_model_len = 131072,
        .speed = 1,
    },
    {
        /* P 22e9 active of 235e9 bf16 (470 GB), L 94, H 64, d 128 + 128, MFU 0.30.  KV 2x94x4x128x2 B. */
        .name = "qwen3-235b-a22b-8xh100",
        .a_us = 18.54, .b_us = 1.2977e-3, .tw_us = 25050, .tov_us = 2000, .e_us = 18.54, .d_us = 0.0118,
        .budget = 2048, .max_running = 256, .kv_bytes_per_token = 192512,
        .gpu_tokens = 750 * 512, .cpu_tokens = 10212 * 512, .cpu_bytes_per_s = 100e9,
        .disk_bytes_per_s = 7e9, .remote_bytes_per_s = 20e9,
        .max_model_len = 131072,
        .speed = 1,
    },
    {
        /*
         * P 37e9 active of 671e9 fp8 (671 GB, computed in fp8), L 61, H 128, d 192 + 128, MFU 0.30.
         * KV 61x576x2 B (MLA, bf16).  Under tensor parallelism every rank holds all of it: an
         * eighth of the eight H200 counts, and each rank reads its own copy over PCIe.  The cpu
         * tier is written by one rank.
         */
        .name = "deepseek-v3-8xh200",
        .a_us = 15.58, .b_us = 1.0521e-3, .tw_us = 24960, .tov_us = 2000, .e_us = 15.58, .d_us = 0.0240,
        .budget = 2048, .max_running = 256, .kv_bytes_per_token = 70272,
        .gpu_tokens = 1084 * 512, .cpu_tokens = 27978 * 512, .cpu_bytes_per_s = 12.5e9,
        .disk_bytes_per_s = 7e9, .remote_bytes_per_s = 20e9,
        .max_model_len = 163840,
        .speed = 1,
    },
    {
        /*
         * P 5.1e9 active of 117e9 in MXFP4 (65.3 GB), computed in bf16, L 36 of which half slide
         * over 128 tokens (so L/2), H 64, d 64 + 64, MFU 0.30.  KV 36x8x64x2x2 B, of which half
         * grows with the context.  gpu: 0.95 of the memory, as it is run there.
         */
        .name = "gpt-oss-120b-1xh100",
        .a_us = 34.38, .b_us = 9.94e-4, .tw_us = 27850, .tov_us = 2000, .e_us = 34.38, .d_us = 0.0180,
        .budget = 2048, .max_running = 256, .kv_bytes_per_token = 36864,
        .gpu_tokens = 354 * 512, .cpu_tokens = 6666 * 512, .cpu_bytes_per_s = 50e9,
        .disk_bytes_per_s = 7e9, .remote_bytes_per_s = 20e9,
        .max_model_len = 131072,
        .speed = 1,
    },
};
/* clang-format on */
enum { PROFILES = sizeof profiles / sizeof profiles[0] };

const char *wp_profile_name(size_t i)
{
    return i < PROFILES ? profiles[i].name : NULL;
}

const struct wp_profile *wp_profile_default(void)
{
    return &profiles[0];
}

static int unknown(const char *name, struct wp_err *err)
{
    const char *names[PROFILES], *near;
    struct wp_buf all = {.max = 400};

    for (size_t i = 0; i < PROFILES; i++) {
        names[i] = profiles[i].name;
        (void)wp_buf_printf(&all, "%s%s", i ? ", " : "",
                            names[i]); /* no memory: a shorter sentence */
    }
    near = wp_str_nearest(wp_str_of(name), names, PROFILES);
    if (near)
        wp_fail(err, WP_EINVAL,
                "unknown profile \"%.64s\"; did you mean \"%s\"? known: " WP_STR_FMT, name, near,
                WP_STR_ARG(wp_buf_str(&all)));
    else
        wp_fail(err, WP_EINVAL, "unknown profile \"%.64s\"; known: " WP_STR_FMT ", or a YAML file",
                name, WP_STR_ARG(wp_buf_str(&all)));
    wp_buf_fini(&all);
    return WP_EINVAL;
}

static bool is_file(const char *name)
{
    size_t n = strlen(name);

    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".yaml") == 0);
}

int wp_profile_find(const char *name, struct wp_profile *out, struct wp_err *err)
{
    if (is_file(name))
        return wp_profile_read(name, out, err);
    for (size_t i = 0; i < PROFILES; i++)
        if (strcmp(name, profiles[i].name) == 0) {
            *out = profiles[i];
            return 0;
        }
    return unknown(name, err);
}

/* What a cost may be: a profile with absurd numbers must not make a price that cannot be compared.
 */
static double cost(double us)
{
    if (!(us > 0))
        return 0; /* NaN too */
    return us < 1e18 ? us : 1e18;
}

static double paced(const struct wp_profile *p, double us)
{
    return cost(p->speed > 0 ? us / p->speed : us);
}

double wp_prefill_us(const struct wp_profile *p, uint64_t from, uint64_t to)
{
    double n, sum;

    if (from >= to)
        return 0;
    n = (double)(to - from);
    sum = (double)from + (double)to;
    return paced(p, p->t_c_us + p->a_us * n + p->b_us / 2 * n * sum); /* n sum = to^2 - from^2 */
}

double wp_step_us(const struct wp_profile *p, double prefill_tokens, double prefill_area,
                  double decoding, double kv_tokens)
{
    return paced(p, p->tov_us + fmax(p->tw_us, p->a_us * prefill_tokens) + p->b_us * prefill_area +
                        p->e_us * decoding + p->d_us * kv_tokens);
}

double wp_last_step_us(const struct wp_profile *p, uint64_t prefill_tokens, double decoding,
                       double kv_tokens)
{
    double beside = cost(p->tov_us + p->e_us * decoding + p->d_us * kv_tokens);
    double last = 0, share = 0;

    if (p->budget && prefill_tokens) {
        last = (double)((prefill_tokens - 1) % p->budget + 1);
        share = last / p->budget;
    }
    return paced(p, (1 - share) * beside + cost(p->tw_us - p->a_us * last));
}

static double rate_of(const struct wp_profile *p, size_t tier)
{
    switch (tier) {
    case 1:
        return p->cpu_bytes_per_s;
    case 2:
        return p->disk_bytes_per_s;
    default:
        return p->remote_bytes_per_s;
    }
}

double wp_fetch_us(const struct wp_profile *p, const uint32_t tier[], size_t n)
{
    double us = 0;

    for (size_t i = 1; i < n; i++)
        if (tier[i])
            us += tier[i] * ((double)p->kv_bytes_per_token * 1e6 /
                             rate_of(p, i)); /* rate 0: without end, cut below */
    return paced(p, us);
}

double wp_slow_down(const struct wp_profile *p, double decoding, double kv_tokens)
{
    double beside = p->tov_us + p->e_us * decoding + p->d_us * kv_tokens;
    double chunk = p->a_us * p->budget;

    if (!(chunk > 0))
        return 1;
    beside = cost(beside) / chunk;
    return 1 + (beside < 1e6 ? beside : 1e6);
}
