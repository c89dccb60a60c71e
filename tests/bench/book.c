/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/book.c - what an engine map takes: bytes an entry, time an operation, and the longest
 * single put. make build/bench/book && build/bench/book [entries...] Times are the best and the
 * median of five rounds.  Longest puts are those of one fill, with a clock read around each; beside
 * them what the machine itself takes from a thread that only reads the clock for as long.
 */
#include "index/book.h"

#include "base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 5, AHEAD = 16, BATCH = 64 };

static const uint64_t secret = 0x5EC4E75EC4E7;
static struct wp_budget budget;
static struct wp_book book;
static volatile uint64_t sink;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Opaque names, each its own: i is the order in which they come. */
static uint64_t key_of(uint64_t i)
{
    struct wp_rng r = {i};

    return wp_rng_next(&r);
}

static void need(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "book: no room\n");
        exit(1);
    }
}

/* The line of a name that is to come. */
static void touch(uint64_t first, uint64_t i)
{
    wp_book_prefetch(&book, key_of(first + i + AHEAD));
}

static void fill(uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        if ((i - from) % BATCH == 0)
            need(wp_book_reserve(&book, secret, BATCH, &budget));
        touch(from, i - from);
        wp_book_put(&book, key_of(i), (uint32_t)i);
    }
}

static void drain(uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        touch(from, i - from);
        sink += wp_book_del(&book, key_of(i));
    }
}

/* n names in a random order of [from, from + span) */
static void look(uint64_t from, uint64_t span, uint64_t n, bool ahead)
{
    struct wp_rng r = {span}, far = {span};

    for (int k = 0; k < AHEAD; k++)
        (void)wp_rng_next(&far);
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t *v;

        if (ahead)
            wp_book_prefetch(&book, key_of(from + wp_rng_next(&far) % span));
        v = wp_book_find(&book, key_of(from + wp_rng_next(&r) % span));
        sink += v ? *v : 1;
    }
}

/* The oldest go, new ones come, each asked for first: what a full worker does. */
static void churn(uint64_t oldest, uint64_t newest, uint64_t n, bool ahead)
{
    for (uint64_t i = 0; i < n; i++) {
        if (i % BATCH == 0)
            need(wp_book_reserve(&book, secret, BATCH, &budget));
        if (ahead) {
            touch(oldest, i);
            touch(newest, i);
        }
        sink += wp_book_del(&book, key_of(oldest + i));
        sink += wp_book_find(&book, key_of(newest + i)) != NULL;
        wp_book_put(&book, key_of(newest + i), (uint32_t)i);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void tell(const char *what, double ns[], size_t rounds)
{
    qsort(ns, rounds, sizeof *ns, by_size);
    printf("  %-34s %8.1f %8.1f\n", what, ns[0], ns[rounds / 2]);
}

static void times(uint64_t n)
{
    double t[8][ROUNDS], entry = 0;
    uint64_t some = n < 2000000 ? n : 2000000, oldest = 0;
    size_t rounds = n < 5000000 ? ROUNDS : 3;

    for (size_t r = 0; r < rounds; r++) {
        uint64_t at[9];

        at[0] = now_ns();
        fill(oldest, oldest + n);
        at[1] = now_ns();
        look(oldest, n, some, true);
        at[2] = now_ns();
        look(oldest, n, some, false);
        at[3] = now_ns();
        look(oldest + 2 * n, n, some, true);
        at[4] = now_ns();
        look(oldest + 2 * n, n, some, false);
        at[5] = now_ns();
        churn(oldest, oldest + n, n, true);
        oldest += n;
        at[6] = now_ns();
        churn(oldest, oldest + n, some, false);
        oldest += some;
        entry = (double)book.bytes / (double)book.n;
        at[7] = now_ns();
        drain(oldest, oldest + n);
        oldest += n;
        at[8] = now_ns();
        for (int i = 0; i < 8; i++)
            t[i][r] = (double)(at[i + 1] - at[i]) / (double)(i == 0 || i == 5 || i == 7 ? n : some);
    }
    printf("%" PRIu64 " entries, %.2f bytes each after churn; ns an operation: best, median\n", n,
           entry);
    tell("fill from nothing, look-ahead 16", t[0], rounds);
    tell("find, there, look-ahead 16", t[1], rounds);
    tell("find, there, none", t[2], rounds);
    tell("find, not there, look-ahead 16", t[3], rounds);
    tell("find, not there, none", t[4], rounds);
    tell("del + find + put, look-ahead 16", t[5], rounds);
    tell("del + find + put, none", t[6], rounds);
    tell("del until empty, look-ahead 16", t[7], rounds);
}

struct tail {
    uint64_t over_us[3]; /* 5, 20, 100 */
    uint64_t longest, all, n;
};

static void count(struct tail *t, uint64_t ns)
{
    static const uint64_t over[3] = {5000, 20000, 100000};

    for (int i = 0; i < 3; i++)
        t->over_us[i] += ns > over[i];
    t->longest = ns > t->longest ? ns : t->longest;
    t->all += ns;
    t->n++;
}

static void tell_tail(const char *what, const struct tail *t)
{
    printf("  %-34s %9" PRIu64 " steps, %6.0f ms: %6" PRIu64 " over 5 us, %5" PRIu64
           " over 20, %4" PRIu64 " over 100, longest %7.1f us\n",
           what, t->n, (double)t->all / 1e6, t->over_us[0], t->over_us[1], t->over_us[2],
           (double)t->longest / 1e3);
}

static void longest(uint64_t n)
{
    struct tail put = {0}, del = {0}, bare = {0};
    uint64_t before, after;

    for (uint64_t i = 0; i < n; i++) {
        before = now_ns();
        if (i % BATCH == 0)
            need(wp_book_reserve(&book, secret, BATCH, &budget));
        wp_book_put(&book, key_of(i), 1);
        count(&put, now_ns() - before);
    }
    for (uint64_t i = 0; i < n; i++) {
        before = now_ns();
        wp_book_del(&book, key_of(i));
        count(&del, now_ns() - before);
    }
    before = now_ns();
    do {
        after = now_ns();
        count(&bare, after - before);
        before = after;
    } while (bare.all < put.all);
    tell_tail("puts, filling", &put);
    tell_tail("dels, emptying", &del);
    tell_tail("reads of the clock", &bare);
}

static size_t rss(void)
{
    unsigned long all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%lu %lu", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * 4096;
}

static void bytes(uint64_t n)
{
    static const uint64_t at[] = {100, 1000, 10000, 40000, 100000, 150000, 450000, 1000000};
    size_t before = rss(), k = 0;
    double sum = 0, most = 0, from_rss = 0;
    uint64_t parts = 0;

    printf("growing: bytes an entry");
    for (uint64_t i = 1; i <= n; i++) {
        double each;

        need(wp_book_reserve(&book, secret, 1, &budget));
        wp_book_put(&book, key_of(i), 1);
        each = (double)book.bytes / (double)i;
        if (k < sizeof at / sizeof *at && i == at[k]) {
            printf(", %.2f at %" PRIu64, each, i);
            k++;
        }
        if (i < 10000)
            continue;
        sum += each;
        most = each > most ? each : most;
        if (i % 10000 == 0 && i >= 100000) {
            from_rss += (double)(rss() - before) / (double)i;
            parts++;
        }
    }
    printf("\n  from 10000 to %" PRIu64
           ": mean %.2f, most %.2f; by RSS from 100000 on: mean %.2f\n",
           n, sum / (double)(n - 9999), most, from_rss / (double)parts);
    drain(1, n + 1);
    wp_book_fini(&book, &budget);
}

int main(int argc, char **argv)
{
    static const uint64_t usual[] = {40000, 450000, 10000000};

    setvbuf(stdout, NULL, _IOLBF, 0);
    bytes(1000000);
    for (int i = 0; i < (argc > 1 ? argc - 1 : 3); i++) {
        uint64_t n = argc > 1 ? strtoull(argv[i + 1], NULL, 10) : usual[i];

        times(n);
        longest(n);
    }
    wp_book_fini(&book, &budget);
    return 0;
}
