/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/decisions.c - what it costs to record a decision among 16 workers, and to make it again.
 * make build/bench/decisions && build/bench/decisions [N [FILE]]: N decisions (200,000), through a file (here, and removed).
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "router/recorder.h"
#include "sim/decisions.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 16 };

static void must(int rc, const struct wp_err *err)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void draw(struct wp_rng *r, struct wp_worker_view v[], struct wp_profile p[], bool learns)
{
    for (size_t i = 0; i < WORKERS; i++) {
        v[i] = (struct wp_worker_view){.key = i + 1,
                                       .in_flight = (uint32_t)wp_rng_below(r, 60),
                                       .decoding = (uint32_t)wp_rng_below(r, 40),
                                       .kv_tokens = wp_rng_below(r, 800000),
                                       .wait_us = wp_rng_below(r, 3) ? wp_rng_unit(r) * 1e6 : 0,
                                       .block_size = 16,
                                       .profile = &p[i],
                                       .correction = 1,
                                       .error = 0.02,
                                       .hit_tokens = (uint32_t)wp_rng_below(r, 20000)};
        v[i].hit_tier[0] = v[i].hit_tokens;
    }
    if (learns) /* one answer a decision, of one worker */
        p[wp_rng_below(r, WORKERS)].a_us = 40 + 20 * wp_rng_unit(r);
}

int main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, spent = 0, chosen = 0, began;
    const char *file = argc > 2 ? argv[2] : "decisions.bench";
    struct wp_worker_view v[WORKERS];
    struct wp_verdict made[WORKERS];
    struct wp_profile p[WORKERS];
    struct wp_metrics *metrics;
    struct wp_err err = WP_ERR_INIT;
    struct wp_policy_conf conf;
    struct wp_recorder *rec;
    struct wp_policy *policy;
    struct wp_rng rng = {1};
    struct stat st;

    wp_policy_conf_init(&conf);
    must(wp_metrics_create(&metrics, &err), &err);
    must(wp_policy_create(&policy, "price", &conf, &err), &err);
    must(wp_recorder_create(&rec, file, UINT64_MAX, metrics, &err), &err);
    wp_recorder_policy(rec, "price", &conf);
    for (size_t i = 0; i < WORKERS; i++)
        p[i] = *wp_profile_default();
    for (uint64_t i = 0; i < n; i++) {
        struct wp_ask ask = {.now_us = i * 1000, .draw = wp_rng_next(&rng), .tokens = (uint32_t)wp_rng_below(&rng, 30000), .exact = true};
        struct wp_decision d = {.id = i + 1, .placed = true, .ask = &ask, .w = v, .v = made, .n = WORKERS};

        draw(&rng, v, p, true);
        began = wp_now_us();
        d.chosen = policy->ops->choose(policy, &ask, v, WORKERS, made);
        chosen += wp_now_us() - began;
        began = wp_now_us();
        wp_recorder_decision(rec, &d);
        spent += wp_now_us() - began;
        if (i % 4000 == 3999) /* a writer that cannot follow drops: that is not what is measured */
            nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    wp_recorder_destroy(rec);
    must(stat(file, &st) < 0 ? -errno : 0, &err);
    printf("chosen in %.2f us, recorded in %.2f us, %.0f bytes each\n", (double)chosen / (double)n, (double)spent / (double)n,
           (double)st.st_size / (double)n);
    must(wp_decisions_run(file, &err), &err);
    unlink(file);
    policy->ops->destroy(policy);
    wp_metrics_destroy(metrics);
    return 0;
}
