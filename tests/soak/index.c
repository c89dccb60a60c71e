/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index for as long as one likes, under a cap that is less than its fleet would take: workers
 * store and evict, are cleared, doubted, dropped and made again, while a reader asks.  In the end
 * its bytes were never above the cap, it agrees with itself, and the process's size has not grown
 * since the first third: not from one sample to another, which luck may do, but by the line that
 * fits all of them best.
 *
 *     build/soak/index [--ops N] [--minutes N]
 */
#include "tests/lib/churn.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 64, CAPACITY = 24000, CAP_BYTES = 24 << 20, BATCH = 1 << 15, SAMPLES = 4096 };
enum { ASKED = 64, PROMPT = 256 };

struct prompt {
    _Atomic uint64_t local[PROMPT];
};
struct soak {
    struct wp_index *ix;
    uint32_t space, holder[WORKERS];
    struct churn churn;
    struct kv_batch batch;
    struct prompt asked[ASKED];
    _Atomic bool stop;
    uint64_t ops, looked_up, over, wrong;
    double x[SAMPLES], y[SAMPLES]; /* seconds, MB */
    size_t n;
    struct wp_rng rng;
};

static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "soak: %s\n", what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double rss_mb(void)
{
    unsigned long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    need(f && fscanf(f, "%lu %lu", &size, &resident) == 2, "cannot read the process's size");
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static void new_holder(struct soak *s, uint32_t w)
{
    struct wp_err err = WP_ERR_INIT;

    need(wp_index_holder(s->ix, WP_HOLDER_RANK, WP_NO_HOLDER, &s->holder[w], &err) == 0,
         "no holder");
    wp_index_expect(s->ix, s->holder[w], CAPACITY);
}

/* Each answer is possible: rows in order, none longer than the prompt, tiers that add up. */
static void *reader(void *arg)
{
    struct soak *s = arg;
    struct wp_overlap o;

    need(wp_overlap_init(&o, WORKERS * 2) == 0, "no memory");
    for (uint64_t turn = 0; !atomic_load(&s->stop); turn++) {
        uint64_t local[PROMPT];

        for (size_t i = 0; i < PROMPT; i++)
            local[i] = atomic_load_explicit(&s->asked[turn % ASKED].local[i], memory_order_relaxed);
        wp_index_overlap(s->ix, s->space, local, PROMPT, &o);
        for (size_t i = 0; i < o.n; i++) {
            uint32_t sum = 0;

            for (int t = 0; t < WP_TIER_MAX; t++)
                sum += o.row[i].tier[t];
            s->wrong += sum != o.row[i].blocks || sum > PROMPT || (i && sum > o.row[i - 1].blocks);
        }
        s->looked_up++;
    }
    wp_overlap_fini(&o);
    return NULL;
}

static void next_prompts(struct soak *s)
{
    static struct churn_prompt p[ASKED];
    uint64_t local[PROMPT];
    size_t n = churn_prompts(&s->churn, PROMPT, p, ASKED);

    for (size_t k = 0; k < n; k++) {
        churn_hashes(&s->churn, &p[k], PROMPT, local, NULL);
        for (size_t i = 0; i < PROMPT; i++)
            atomic_store_explicit(&s->asked[k].local[i], local[i], memory_order_relaxed);
    }
}

/* What befalls workers. */
static void befall(struct soak *s)
{
    uint32_t w = (uint32_t)wp_rng_below(&s->rng, WORKERS);

    switch (wp_rng_below(&s->rng, 8)) {
    case 0:
        wp_index_drop(s->ix, s->holder[w]);
        new_holder(s, w);
        break;
    case 1:
        wp_index_clear(s->ix, s->holder[w]);
        break;
    case 2:
        wp_index_doubt(s->ix, s->holder[w]);
        break;
    default:
        break;
    }
}

static void play_batch(struct soak *s)
{
    enum { GROUP = 32 };
    struct wp_kv_event ev[GROUP];
    struct wp_index_stats st;

    kv_batch_reset(&s->batch);
    churn_fill(&s->churn, &s->batch, BATCH);
    for (size_t i = 0, n; i < s->batch.n_items; i += n) {
        for (n = 0; n < GROUP && i + n < s->batch.n_items; n++) {
            ev[n] = kv_batch_as_event(&s->batch, &s->batch.item[i + n]);
            ev[n].holder = s->holder[ev[n].holder];
            ev[n].space = s->space;
        }
        wp_index_apply_all(s->ix, ev, n, NULL);
        wp_index_stats(s->ix, &st);
        s->over += st.bytes > CAP_BYTES;
    }
    s->ops += s->batch.n;
}

static void sample(struct soak *s, double from)
{
    if (s->n == SAMPLES) { /* every other one goes */
        for (s->n = 0; s->n < SAMPLES / 2; s->n++) {
            s->x[s->n] = s->x[2 * s->n];
            s->y[s->n] = s->y[2 * s->n];
        }
    }
    s->x[s->n] = now_s() - from;
    s->y[s->n++] = rss_mb();
}

/* By least squares: what the size has risen by from the first third's end to the end, and its mean.
 */
static double growth_mb(const struct soak *s, double *mean)
{
    double mx = 0, my = 0, xy = 0, xx = 0;
    size_t from = s->n / 3;

    for (size_t i = from; i < s->n; i++) {
        mx += s->x[i] / (double)(s->n - from);
        my += s->y[i] / (double)(s->n - from);
    }
    for (size_t i = from; i < s->n; i++) {
        xy += (s->x[i] - mx) * (s->y[i] - my);
        xx += (s->x[i] - mx) * (s->x[i] - mx);
    }
    *mean = my;
    return xx > 0 ? xy / xx * (s->x[s->n - 1] - s->x[from]) : 0;
}

static void start(struct soak *s, const struct wp_trace *trace)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_index_conf conf = {.secret = 1, .cap_bytes = CAP_BYTES, .floating_max = 4096};
    struct churn_conf cc = {
        .trace = trace, .workers = WORKERS, .capacity = CAPACITY, .salts = 4, .seed = 5};

    need(wp_index_create(&s->ix, &conf, &err) == 0, "no index");
    need(wp_index_space(s->ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &s->space, &err) == 0,
         "no space");
    for (uint32_t w = 0; w < WORKERS; w++)
        new_holder(s, w);
    need(churn_init(&s->churn, &cc, &err) == 0, "no fleet");
    need(kv_batch_init(&s->batch, 1 << 14, BATCH + CHURN_EVENT_MAX, true) == 0, "no memory");
}

static int tell(struct soak *s, double spent)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_index_stats st;
    double mean, growth = growth_mb(s, &mean),
                 limit = 0.02 * mean + 1; /* pages that the allocator happens to keep */
    bool agrees = wp_index_verify(s->ix, &err), bad;

    wp_index_stats(s->ix, &st);
    printf("%" PRIu64 " blocks stored and removed, %" PRIu64 " look-ups, %.0f s; %" PRIu64
           " blocks evicted for the cap, %" PRIu64 " held, %.1f of %.1f MB\n",
           s->ops, s->looked_up, spent, st.evicted, st.blocks, (double)st.bytes / 1e6,
           CAP_BYTES / 1e6);
    printf("the process has %.1f MB on the mean, and has grown by %+.2f MB since the first third "
           "(%zu samples)\n",
           mean, growth, s->n);
    bad = !agrees || s->over || s->wrong || !st.evicted || growth > limit;
    if (!agrees)
        printf("FAILED it does not agree with itself: %s\n", err.text);
    if (s->over)
        printf("FAILED it was above the cap %" PRIu64 " times\n", s->over);
    if (s->wrong)
        printf("FAILED %" PRIu64 " answers were impossible\n", s->wrong);
    if (!st.evicted)
        printf("FAILED the cap was never reached\n");
    if (growth > limit)
        printf("FAILED it grows\n");
    printf("%d passed, %d failed\n", !bad, bad);
    return bad;
}

int main(int argc, char **argv)
{
    static struct soak s = {.rng = {3}};
    struct wp_err err = WP_ERR_INIT;
    struct wp_trace trace;
    struct wp_trace_spec made = {.kind = "chat", .requests = 3000, .seed = 1};
    double ops = 2e9, minutes = 0, from = now_s(), next = 0;
    pthread_t thread;

    for (int i = 1; i + 1 < argc; i += 2)
        *(strcmp(argv[i], "--minutes") == 0 ? &minutes : &ops) = atof(argv[i + 1]);
    need(wp_trace_make(&trace, &made, &err) == 0, err.text);
    start(&s, &trace);
    need(pthread_create(&thread, NULL, reader, &s) == 0, "no thread");
    for (uint64_t batch = 1; minutes > 0 ? now_s() - from < minutes * 60 : (double)s.ops < ops;
         batch++) {
        play_batch(&s);
        befall(&s);
        if (batch % 16 == 0)
            next_prompts(&s);
        if ((double)s.ops >= next || minutes > 0) {
            sample(&s, from);
            next = (double)s.ops + ops / 300;
        }
    }
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    return tell(&s, now_s() - from);
}
