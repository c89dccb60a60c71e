/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/trace_cmd.h"
#include "base/flags.h"
#include "sim/trace.h"

#include <stdio.h>

struct options {
    struct wp_trace_spec spec;
    const char *out, *stats;
};

enum { KIND, REQUESTS, SEED, RATE, OUT, STATS };
static const struct wp_flag flags[] = {
    [KIND] = {"--kind", "chat|tool|agent", "what the sessions are like (chat)"},
    [REQUESTS] = {"--requests", "N", "how many (10000)"},
    [SEED] = {"--seed", "N", "the same seed makes the same trace (1)"},
    [RATE] = {"--rate", "R", "mean arrivals a second (the kind's own: 3.4, 6.67, 1.45)"},
    [OUT] = {"--out", "FILE[.gz]", "where to write it (-, the standard output)"},
    [STATS] = {"--stats", "FILE[.gz]", "make nothing, print the statistics of that trace"},
    {NULL, NULL, NULL},
};

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct options *o = arg;
    uint64_t n = 0;
    int rc = 0;

    switch (i) {
    case KIND:
        o->spec.kind = value;
        break;
    case REQUESTS:
        rc = wp_flag_u64(&flags[i], value, 1, WP_TRACE_MAKE_MAX, &n, err);
        o->spec.requests = (size_t)n;
        break;
    case SEED:
        rc = wp_flag_u64(&flags[i], value, 0, UINT64_MAX, &o->spec.seed, err);
        break;
    case RATE:
        rc = wp_flag_double(&flags[i], value, 0.001, 10000, &o->spec.rate_per_s, err);
        break;
    case OUT:
        o->out = value;
        break;
    case STATS:
        o->stats = value;
        break;
    }
    return rc;
}

static int print_stats(FILE *f, const struct wp_trace *t, struct wp_err *err)
{
    struct wp_trace_stats s;
    int rc = wp_trace_stats(t, &s);

    if (rc < 0)
        return wp_fail(err, rc, "statistics: %s", wp_strerror(rc));
    fprintf(f, "requests               %zu\n", s.requests);
    fprintf(f, "duration               %.0f s\n", s.duration_s);
    fprintf(f, "requests a second      %.3f\n",
            s.duration_s > 0 ? (double)(s.requests - 1) / s.duration_s : 0);
    fprintf(f, "input tokens           mean %.0f, p50 %u, p99 %u\n", s.input_mean, s.input_p50,
            s.input_p99);
    fprintf(f, "output tokens          mean %.0f, p50 %u, p99 %u\n", s.output_mean, s.output_p50,
            s.output_p99);
    fprintf(f, "infinite-cache hits    %.1f %% of the prompt tokens\n", 100 * s.hit);
    fprintf(f, "sessions               %zu\n", s.sessions);
    fprintf(f, "different blocks       %zu\n", s.blocks);
    return 0;
}

static int run(const struct options *o, struct wp_err *err)
{
    struct wp_trace t;
    int rc;

    if (o->stats) {
        rc = wp_trace_read(&t, o->stats, 0, err);
    } else {
        rc = wp_trace_make(&t, &o->spec, err);
        if (rc == WP_EINVAL) /* the flags have checked all but the kind */
            err->code = rc = WP_EUSAGE;
    }
    if (rc < 0)
        return rc;
    if (!o->stats)
        rc = wp_trace_write(&t, o->out, err);
    if (rc == 0)
        rc = print_stats(o->stats ? stdout : stderr, &t, err);
    wp_trace_fini(&t);
    return rc;
}

int wp_trace_main(int argc, char **argv)
{
    struct options o = {.spec = {.kind = "chat", .requests = 10000, .seed = 1}, .out = "-"};
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_flags(argc, argv, flags, take, NULL, &o, &err);

    if (rc == 1) {
        wp_flags_help(
            stdout,
            "trace [--kind chat|tool|agent] [--requests N] [--out FILE[.gz]] | --stats FILE[.gz]",
            "Makes a request trace of sessions in Mooncake's form, or states the statistics of "
            "one.",
            flags);
        return 0;
    }
    if (rc == 0)
        rc = run(&o, &err);
    if (rc == 0)
        return 0;
    fprintf(stderr, "warmpath trace: %s\n", err.text);
    return rc == WP_EUSAGE ? 2 : 1;
}
