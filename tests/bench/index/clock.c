/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/index/bench.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static double ns_per_tick = 1, cost_ns;

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t thread_cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t tick(void)
{
#if defined(__x86_64__)
    uint64_t t;

    _mm_lfence();
    t = __rdtsc();
    _mm_lfence();
    return t;
#else
    return now_ns();
#endif
}

double tick_ns(uint64_t ticks)
{
    return (double)ticks * ns_per_tick;
}

double tick_cost_ns(void)
{
    return cost_ns;
}

void clock_init(void)
{
    enum { EMPTY = 1001 };
    double empty[EMPTY];
    uint64_t from = now_ns(), t = tick(), spent;

    do
        spent = now_ns() - from;
    while (spent < 50000000);
    ns_per_tick = (double)spent / (double)(tick() - t);
    for (int i = 0; i < EMPTY; i++) {
        t = tick();
        empty[i] = tick_ns(tick() - t);
    }
    cost_ns = percentile(empty, EMPTY, 0.5);
}

uint64_t rss_bytes(void)
{
    unsigned long size, resident;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%lu %lu", &size, &resident) != 2)
        die("cannot read the process's size");
    fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void samples_init(struct samples *s, size_t cap)
{
    if (s->cap < cap) {
        free(s->ns);
        s->ns = malloc(cap * sizeof *s->ns);
        s->cap = cap;
        if (!s->ns)
            die("out of memory");
        memset(s->ns, 0, cap * sizeof *s->ns);
    }
    s->n = 0;
}

void samples_add(struct samples *s, uint64_t ticks)
{
    double ns = tick_ns(ticks) - cost_ns;

    if (s->n < s->cap)
        s->ns[s->n++] = ns < 0 ? 0 : ns > 4e9 ? 4000000000u : (uint32_t)ns;
}

static int by_ns(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static size_t rank(size_t n, double share)
{
    size_t at = (size_t)(share * (double)n);

    return at < n ? at : n - 1;
}

double samples_at(struct samples *s, double share)
{
    if (s->n == 0)
        return 0;
    qsort(s->ns, s->n, sizeof s->ns[0], by_ns);
    return s->ns[rank(s->n, share)];
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double percentile(double v[], size_t n, double share)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof v[0], by_size);
    return v[rank(n, share)];
}

/* One cache line a step, through all of them in a random cycle (Sattolo's), so that each read waits
 * for the last. */
double miss_ns(size_t bytes)
{
    size_t lines = bytes / 64, step = 64 / sizeof(uint64_t), at = 0;
    uint64_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct wp_rng rng = {7};
    enum { PARTS = 21, READS = 20000 };
    double part[PARTS]; /* the median: some lose the core */

    if (p == MAP_FAILED)
        return 0;
    for (size_t i = 0; i < lines; i++)
        p[i * step] = i;
    for (size_t i = lines; i-- > 1;) {
        size_t j = wp_rng_below(&rng, i);
        uint64_t swap = p[i * step];

        p[i * step] = p[j * step];
        p[j * step] = swap;
    }
    for (int k = 0; k < PARTS; k++) {
        uint64_t t = tick();

        for (size_t i = 0; i < READS; i++)
            at = p[at * step];
        part[k] = tick_ns(tick() - t) / READS;
    }
    if (at == lines) /* never: the reads must not be optimized away */
        die("no cycle");
    munmap(p, bytes);
    return percentile(part, PARTS, 0.5);
}

struct gaps spin_gaps(double seconds)
{
    static double gap[200000];
    struct gaps g = {0};
    uint64_t start = tick(), last = start, now;
    double us, lost = 0;
    size_t n = 0;

    while (tick_ns(last - start) < seconds * 1e9) {
        now = tick();
        us = tick_ns(now - last) / 1000;
        if (us > 1 && n < sizeof gap / sizeof gap[0]) {
            gap[n++] = us;
            lost += us;
        }
        last = now;
    }
    g.lost_share = lost / 1e6 / seconds;
    g.p99_us = percentile(gap, n, 0.99);
    g.longest_us = n ? gap[n - 1] : 0;
    return g;
}
