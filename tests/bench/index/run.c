/* SPDX-License-Identifier: Apache-2.0 */
/* What contexts share: applying batches, asking look-ups one by one, a writer beside. */
#include "tests/bench/index/bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(const char *what)
{
    fprintf(stderr, "bench-index: %s\n", what);
    exit(1);
}

void state_open(struct state *st, size_t batch_blocks, size_t batch_items, bool opaque)
{
    if (kv_batch_init(&st->batch, batch_items, batch_blocks, opaque) < 0)
        die("out of memory");
    st->buf = calloc(PROMPT_MAX, sizeof *st->buf);
    st->buf_chain = calloc(PROMPT_MAX, sizeof *st->buf_chain);
    st->prompt = calloc(CHURN_LOG, sizeof *st->prompt);
    st->other = calloc(CHURN_LOG, sizeof *st->other);
    if (!st->buf || !st->buf_chain || !st->prompt || !st->other)
        die("out of memory");
    memset(st->other, 1, CHURN_LOG * sizeof *st->other);
    memset(st->prompt, 1, CHURN_LOG * sizeof *st->prompt);
}

void state_subject(struct state *st, uint32_t workers, uint64_t memberships, uint64_t blocks)
{
    st->workers = workers;
    st->s = st->sub->create(workers, memberships, blocks);
    if (!st->s)
        die("the subject cannot be made");
}

static void *prepare(struct state *st)
{
    return st->sub->prepare ? st->sub->prepare(st->s, &st->batch) : NULL;
}

static void done(struct state *st, void *ready)
{
    if (st->sub->done)
        st->sub->done(st->s, ready);
}

double apply_timed(struct state *st)
{
    void *ready = prepare(st);
    uint64_t from = st->sub->flush ? st->sub->flush(st->s) : thread_cpu_ns(), spent;

    st->sub->apply(st->s, &st->batch, ready, 0, st->batch.n_items);
    spent = (st->sub->flush ? st->sub->flush(st->s) : thread_cpu_ns()) - from;
    done(st, ready);
    return spent ? (double)st->batch.n * 1e3 / (double)spent : 0;
}

void apply_batch(struct state *st)
{
    void *ready = prepare(st);

    st->sub->apply(st->s, &st->batch, ready, 0, st->batch.n_items);
    if (st->sub->flush)
        st->sub->flush(st->s);
    done(st, ready);
}

/* The tokens are others than the prompt's: what is hashed is thrown away, and costs the same. */
static uint32_t ask_once(struct state *st, size_t n, bool hash)
{
    static uint32_t token[PROMPT_MAX * 16];
    static uint64_t out[PROMPT_MAX];

    if (hash) {
        token[0]++;
        st->sub->hash(st->s, token, n * 16, out);
    }
    return st->sub->lookup(st->s, st->buf, st->buf_chain, n);
}

void ask(struct state *st, const struct asking *a, struct samples *s, struct outcome *o)
{
    uint64_t from = now_ns();
    double spent = 0;

    for (size_t i = 0; i < a->most && spent < a->seconds; i++) {
        size_t n;
        uint64_t t;
        uint32_t found;

        if (a->between)
            a->between(st, a->ctx);
        n = a->next(st, a->ctx);
        t = tick();
        found = ask_once(st, n, a->hash);
        samples_add(s, tick() - t);
        if (!a->stop)
            o->check += kv_mix(st->sub->total(st->s) * 31 + found);
        else if (atomic_load_explicit(a->stop, memory_order_relaxed))
            break;
        if (i % 16 == 0)
            spent = (double)(now_ns() - from) / 1e9;
    }
}

static void *write_on(void *arg)
{
    struct writing *w = arg;
    struct state *st = w->st;
    const struct kv_batch *b = &st->batch;
    uint64_t from = now_ns(), written = 0;

    for (size_t i = 0; i < b->n_items; i++) {
        uint64_t due = w->rate > 0 ? from + (uint64_t)((double)written / w->rate * 1e9) : from;

        while (now_ns() < due && !atomic_load_explicit(&w->hurry, memory_order_relaxed))
            if (st->sub->async) /* its own thread needs the core */
                sched_yield();
        st->sub->apply(st->s, b, w->ready, i, i + 1);
        written += b->item[i].n;
    }
    if (st->sub->flush)
        st->sub->flush(st->s);
    atomic_store(&w->ended, true);
    return NULL;
}

void writing_start(struct writing *w, struct state *st, double rate)
{
    *w = (struct writing){.st = st, .rate = rate, .ready = prepare(st)};
    if (pthread_create(&w->thread, NULL, write_on, w) != 0)
        die("no thread");
}

void writing_end(struct writing *w)
{
    atomic_store(&w->hurry, true);
    pthread_join(w->thread, NULL);
    done(w->st, w->ready);
}
