/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/doctor.c - what the prefix doctor costs a request: its outline, and its look at it.
 * make build/bench/doctor && build/bench/doctor.  A thousand conversations in turn, of so many messages each.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "router/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TALKS = 1000, TURNS = 4, WORDS = 80 };

static void words(struct wp_buf *b, struct wp_rng *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        wp_buf_printf(b, "w%llu ", (unsigned long long)wp_rng_below(r, 50000));
}

static void body(struct wp_buf *b, unsigned talk, unsigned messages)
{
    struct wp_rng shared = {7}, own = {talk + 100};

    b->n = 0;
    wp_buf_adds(b, "{\"messages\":[{\"role\":\"system\",\"content\":\"");
    for (unsigned i = 0; i < 100; i++) {
        words(b, &shared, 12);
        wp_buf_adds(b, "\\n");
    }
    for (unsigned i = 0; i < messages; i++) {
        wp_buf_printf(b, "\"},{\"role\":\"%s\",\"content\":\"", i % 2 ? "assistant" : "user");
        words(b, &own, WORDS);
    }
    wp_buf_adds(b, "\"}]}");
}

static double us(uint64_t ns, uint64_t n)
{
    return (double)ns / 1000 / (double)n;
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void measure(unsigned messages)
{
    uint64_t read = 0, outlined = 0, seen = 0, bytes = 0, n = 0;
    struct wp_doctor *d;
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf b = {0};

    if (wp_doctor_create(&d, NULL, &err) < 0)
        exit(1);
    for (unsigned turn = 0; turn < TURNS; turn++)
        for (unsigned talk = 0; talk < TALKS; talk++, n++) {
            struct wp_arena arena = {0};
            struct wp_prompt p = {0};
            const struct wp_outline *o;
            struct wp_body json;
            const char *param;
            uint64_t at[4];

            body(&b, talk, messages + 2 * turn);
            at[0] = now_ns();
            if (wp_body_read(&json, wp_buf_str(&b), &err) < 0 ||
                wp_prompt_read(&p, WP_ROUTE_CHAT, &json, &arena, &param, &err) < 0)
                exit(1);
            at[1] = now_ns();
            o = wp_outline_make(&p, &arena);
            at[2] = now_ns();
            if (o)
                wp_doctor_see(d, o, WP_STR("m"), 0, o->total / 4, n);
            at[3] = now_ns();
            read += at[1] - at[0];
            outlined += at[2] - at[1];
            seen += at[3] - at[2];
            bytes += b.n;
            wp_arena_fini(&arena);
        }
    printf("%8u %10.1f %12.1f %12.1f %12.1f\n", messages, (double)bytes / (double)n / 1024, us(read, n), us(outlined, n), us(seen, n));
    wp_buf_fini(&b);
    wp_doctor_destroy(d);
}

int main(void)
{
    printf("%8s %10s %12s %12s %12s\n", "messages", "KiB", "read, us", "outline, us", "see, us");
    measure(1);
    measure(11);
    measure(51);
    measure(301);
    return 0;
}
