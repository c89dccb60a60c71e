/* SPDX-License-Identifier: Apache-2.0 */
/* A process for each subject of a context.  The parent says which line to measure next; one works
 * at a time. */
#include "tests/bench/index/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct order {
    uint32_t line, round; /* line NO_MORE: end.  A closed pipe would not do: later children have its
                             other end too */
};
#define NO_MORE 0xFFFFFFFFu
struct child {
    pid_t pid; /* 0: none, or it died */
    int to, from;
};

bool line_for(const struct line *l, const struct subject *s)
{
    return (l->needs & ~s->features) == 0;
}

static bool read_all(int fd, void *p, size_t n)
{
    ssize_t got;

    for (size_t at = 0; at < n; at += (size_t)got)
        if ((got = read(fd, (char *)p + at, n - at)) <= 0)
            return false;
    return true;
}

static void child_main(struct state *st, int in, int out)
{
    struct outcome o = {.ok = 1};
    struct order next;

    if (st->ctx->open)
        st->ctx->open(st);
    if (write(out, &o, sizeof o) != sizeof o)
        die("the parent is gone");
    while (read_all(in, &next, sizeof next) && next.line != NO_MORE) {
        o = (struct outcome){0};
        st->round = next.round;
        st->ctx->line[next.line].run(st, &o);
        if (write(out, &o, sizeof o) != sizeof o)
            die("the parent is gone");
    }
    _exit(0); /* what it holds goes with it */
}

static struct child child_start(const struct results *r, const struct options *opt,
                                const struct wp_trace *trace, const struct subject *sub)
{
    struct state st = {.opt = opt, .sub = sub, .ctx = r->ctx, .trace = trace};
    struct child c = {0};
    struct outcome o;
    int to[2], from[2];

    if (pipe(to) < 0 || pipe(from) < 0 || (c.pid = fork()) < 0)
        die("no process");
    if (c.pid == 0) {
        close(to[1]);
        close(from[0]);
        child_main(&st, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    c.to = to[1];
    c.from = from[0];
    if (!read_all(c.from, &o, sizeof o)) {
        fprintf(stderr, "%s: %s could not be filled\n", r->ctx->key, sub->name);
        waitpid(c.pid, NULL, 0);
        c.pid = 0;
    }
    return c;
}

static void child_end(struct child *c)
{
    struct order end = {.line = NO_MORE};

    if (c->pid && write(c->to, &end, sizeof end) != sizeof end)
        fprintf(stderr, "a process ended before its time\n");
    close(c->to);
    close(c->from);
    if (c->pid)
        waitpid(c->pid, NULL, 0);
    c->pid = 0;
}

static void measure(struct results *r, struct child *c, size_t sub, uint32_t line, int round)
{
    struct order next = {line, (uint32_t)round};
    struct cell *cell = &r->cell[line][sub];
    struct outcome o = {0};

    if (!c->pid || !line_for(&r->ctx->line[line], r->sub[sub]))
        return;
    if (write(c->to, &next, sizeof next) != sizeof next || !read_all(c->from, &o, sizeof o)) {
        fprintf(stderr, "%s/%s: %s failed\n", r->ctx->key, r->ctx->line[line].key,
                r->sub[sub]->name);
        waitpid(c->pid, NULL, 0);
        c->pid = 0;
        return;
    }
    if (!o.ok)
        return;
    for (int v = 0; v < VALUES; v++)
        cell->v[v][cell->n] = o.v[v];
    cell->check[cell->n++] = o.check;
}

/* Subjects that were asked the same, the same number of times, must have said the same. */
static void compare_answers(struct results *r, uint32_t line)
{
    const struct cell *ours = &r->cell[line][0];

    for (size_t s = 1; s < r->n_sub; s++) {
        const struct cell *other = &r->cell[line][s];
        int at = ours->n - 1;

        if (at >= 0 && other->n == ours->n && ours->check[at] && other->check[at] &&
            ours->v[2][at] == other->v[2][at] && ours->check[at] != other->check[at]) {
            fprintf(stderr, "%s/%s: %s answers otherwise\n", r->ctx->key, r->ctx->line[line].key,
                    r->sub[s]->name);
            r->disagree++;
        }
    }
}

static void run_together(struct results *r, const struct options *opt, const struct wp_trace *trace)
{
    struct child c[SUBJECTS_MAX];

    for (size_t s = 0; s < r->n_sub; s++)
        c[s] = child_start(r, opt, trace, r->sub[s]);
    for (int round = 0; round < r->rounds; round++) {
        r->gap[round] = spin_gaps(0.2);
        for (uint32_t line = 0; line < r->ctx->n_lines; line++) {
            fprintf(stderr, "\r%-10s round %d of %d: %-12s", r->ctx->key, round + 1, r->rounds,
                    r->ctx->line[line].key);
            for (size_t s = 0; s < r->n_sub && listed(opt->line, r->ctx->line[line].key); s++)
                measure(r, &c[s], s, line, round);
            compare_answers(r, line);
        }
    }
    for (size_t s = 0; s < r->n_sub; s++)
        child_end(&c[s]);
}

static void run_apart(struct results *r, const struct options *opt, const struct wp_trace *trace)
{
    r->gap[0] = spin_gaps(0.2);
    for (uint32_t line = 0; line < r->ctx->n_lines; line++)
        for (size_t s = 0; s < r->n_sub; s++) {
            struct child c;

            if (!listed(opt->line, r->ctx->line[line].key))
                continue;
            fprintf(stderr, "\r%-10s %-12s %-12s", r->ctx->key, r->ctx->line[line].key,
                    r->sub[s]->name);
            c = child_start(r, opt, trace, r->sub[s]);
            measure(r, &c, s, line, 0);
            child_end(&c);
        }
}

void fleet_run(struct results *r, const struct options *opt, const struct wp_trace *trace)
{
    if (r->ctx->n_lines > LINES_MAX)
        die("too many lines");
    r->rounds = r->ctx->once ? 1 : opt->rounds;
    if (r->ctx->once)
        run_apart(r, opt, trace);
    else
        run_together(r, opt, trace);
    fprintf(stderr, "\r%-60s\r", "");
}

double cell_median(const struct cell *c, int value)
{
    double v[ROUNDS_MAX];

    memcpy(v, c->v[value], sizeof v);
    return percentile(v, (size_t)c->n, 0.5);
}

double cell_best(const struct cell *c, int value, bool more_is_better)
{
    double best = c->v[value][0];

    for (int i = 1; i < c->n; i++)
        if (more_is_better ? c->v[value][i] > best : c->v[value][i] < best)
            best = c->v[value][i];
    return best;
}
