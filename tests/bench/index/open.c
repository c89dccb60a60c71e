/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open loop over the trace workload.  The schedule is made before the clock starts: each request
 * asks for all blocks of its prompt and then brings its events, due at once, at an absolute time;
 * times between requests are exponential, weighted by the blocks.  One thread asks, one applies;
 * each waits for the deadline, never for the other.  What comes late counts from its deadline.
 * Rates count blocks asked, stored and removed, from the start to the last completion.  A rate is
 * kept up with when all is done within 1.10 of the schedule's length.  The same schedule with
 * nothing behind it must end within 1.01 of it, or the trial is void.
 */
#include "tests/bench/index/bench.h"
#include "base/rng.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct request {
    size_t at, n;    /* of the prompt in local[] */
    size_t from, to; /* items */
    double share;    /* of the schedule at which it is due */
};
struct schedule {
    struct request *req;
    size_t n, cap, n_local, cap_local, ops;
    uint64_t *local, *chain;
};
struct trial {
    struct state *st;
    const struct schedule *sc;
    void *ready;
    uint64_t start, window_ns, asked_ns, applied_ns; /* when the last was done */
    bool empty;
    struct samples look_up, visible;
};

static void make_schedule(struct state *st, struct schedule *sc, size_t ops)
{
    struct wp_rng rng = {st->round * 977 + 3};
    double t = 0;

    sc->n = sc->n_local = 0;
    kv_batch_reset(&st->batch);
    while (sc->n_local + st->batch.n < ops && sc->n < sc->cap &&
           sc->n_local + CHURN_EVENT_MAX < sc->cap_local &&
           st->batch.n + CHURN_EVENT_MAX < st->batch.cap) {
        struct request *r = &sc->req[sc->n++];
        size_t blocks = st->batch.n;
        struct churn_prompt p;

        *r = (struct request){.at = sc->n_local, .from = st->batch.n_items, .share = t};
        p = churn_next(&st->churn, &st->batch);
        r->n = churn_hashes(&st->churn, &p, PROMPT_MAX, sc->local + r->at, sc->chain + r->at);
        r->to = st->batch.n_items;
        sc->n_local += r->n;
        t += (double)(r->n + st->batch.n - blocks) * wp_rng_exp(&rng, 1);
    }
    sc->ops = sc->n_local + st->batch.n;
    for (size_t i = 0; i < sc->n; i++)
        sc->req[i].share /= t;
}

static struct schedule *schedule_of(struct state *st, size_t ops)
{
    static struct schedule sc;

    if (!sc.req) {
        sc = (struct schedule){.cap = ops / 64, .cap_local = ops + 2 * CHURN_EVENT_MAX};
        sc.req = malloc(sc.cap * sizeof *sc.req);
        sc.local = malloc(sc.cap_local * sizeof *sc.local);
        sc.chain = malloc(sc.cap_local * sizeof *sc.chain);
        if (!sc.req || !sc.local || !sc.chain)
            die("out of memory");
    }
    make_schedule(st, &sc, ops);
    return &sc;
}

static uint64_t wait_for(const struct trial *t, const struct request *r)
{
    uint64_t due = t->start + (uint64_t)(r->share * (double)t->window_ns);

    while (now_ns() < due)
        if (t->st->sub->async)
            sched_yield();
    return due;
}

static void note(struct samples *s, uint64_t due, uint64_t now)
{
    if (s->n < s->cap)
        s->ns[s->n++] = now - due < 4000000000u ? (uint32_t)(now - due) : 4000000000u;
}

static void *apply_all(void *arg)
{
    struct trial *t = arg;
    struct state *st = t->st;

    for (size_t i = 0; i < t->sc->n; i++) {
        const struct request *r = &t->sc->req[i];
        uint64_t due = wait_for(t, r);

        if (!t->empty && r->from < r->to) {
            st->sub->apply(st->s, &st->batch, t->ready, r->from, r->to);
            note(&t->visible, due, now_ns());
        }
    }
    if (!t->empty && st->sub->flush)
        st->sub->flush(st->s);
    t->applied_ns = now_ns();
    return NULL;
}

static void ask_all(struct trial *t)
{
    struct state *st = t->st;

    for (size_t i = 0; i < t->sc->n; i++) {
        const struct request *r = &t->sc->req[i];
        uint64_t due = wait_for(t, r);

        if (!t->empty) {
            st->sub->lookup(st->s, t->sc->local + r->at, t->sc->chain + r->at, r->n);
            note(&t->look_up, due, now_ns());
        }
    }
    t->asked_ns = now_ns();
}

/* Returns how long it took as a multiple of the window, or in ns when there is none. */
static double play(struct trial *t, bool empty)
{
    pthread_t writer;
    uint64_t end;

    t->empty = empty;
    samples_init(&t->look_up, t->sc->cap);
    samples_init(&t->visible, t->sc->cap);
    t->start = now_ns() + 200000; /* both threads are there by then */
    if (pthread_create(&writer, NULL, apply_all, t) != 0)
        die("no thread");
    ask_all(t);
    pthread_join(writer, NULL);
    end = (t->asked_ns > t->applied_ns ? t->asked_ns : t->applied_ns) - t->start;
    return t->window_ns ? (double)end / (double)t->window_ns : (double)end;
}

static size_t trial_ops(const struct state *st)
{
    return st->opt->quick ? 400000 : 3000000;
}

static void open_trial(struct trial *t, struct state *st)
{
    t->st = st;
    t->sc = schedule_of(st, trial_ops(st));
    t->ready = st->sub->prepare ? st->sub->prepare(st->s, &st->batch) : NULL;
}

static void close_trial(struct trial *t)
{
    if (t->st->sub->done)
        t->st->sub->done(t->st->s, t->ready);
}

static double overload(struct trial *t, struct state *st)
{
    double ns;

    open_trial(t, st);
    t->window_ns = 0;
    ns = play(t, false);
    close_trial(t);
    return (double)t->sc->ops * 1e3 / ns;
}

void run_overload(struct state *st, struct outcome *o)
{
    static struct trial t;

    o->v[0] = overload(&t, st);
    o->ok = 1;
}

void run_open_loop(struct state *st, struct outcome *o)
{
    static const double shares[] = {0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1};
    static struct trial t;
    double most = overload(&t, st), took;

    /* All schedules are played, some by nobody's clock: the next line finds the same state whoever
     * is measured. */
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        open_trial(&t, st);
        if (o->ok) {
            st->sub->apply(st->s, &st->batch, t.ready, 0, st->batch.n_items);
            close_trial(&t);
            continue;
        }
        t.window_ns = (uint64_t)((double)t.sc->ops * 1e3 / (most * shares[i]));
        for (int try = 0; (took = play(&t, true)) > 1.01 && try < 3; try++)
            ;
        if (took > 1.01)
            fprintf(stderr, "\nopen loop: the generator was late itself (%.3f)\n", took);
        if (play(&t, false) <= 1.10 && took <= 1.01) {
            o->v[0] = most * shares[i];
            o->v[1] = samples_at(&t.look_up, 0.5) / 1e3;
            o->v[2] = samples_at(&t.look_up, 0.99) / 1e3;
            o->v[3] = st->sub->async ? 0 : samples_at(&t.visible, 0.99) / 1e3;
            o->ok = 1;
        }
        close_trial(&t);
    }
}
