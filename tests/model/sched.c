/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: coroutines, the walk over their interleavings, and the memory that each run finds
 * as it was. */
#include "tests/model/model.h"

#include "base/mem.h"

#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    MEMORY = 1 << 20,
    LINE = 64,
    STACK = 1 << 18,
    DEPTH = 4096,
    TRACE = 1 << 16,
    PAGES = 4 * WP_PAGE,
    ANY = 4,
    POISON = 0xDD
};

struct world { /* what each run finds as it was */
    size_t used;
    long fail_in; /* allocations until one fails; negative: never */
    uint8_t freed[MEMORY / LINE];
    _Alignas(LINE) char memory[MEMORY];
};
static struct world now, then;

static struct {
    uint8_t readers, writers; /* bits: who has looked, who has written, in any run */
} known[MEMORY / ANY];

static struct thread {
    ucontext_t at;
    bool done;
    unsigned steps;
} thread[WP_MODEL_THREADS];
static char stack[WP_MODEL_THREADS][STACK] __attribute__((aligned(LINE)));

static struct {
    uint8_t n, taken;
} path[DEPTH];
static struct step {
    const char *file;
    int line;
    int who;
} trace[TRACE];
static size_t depth, length, steps;
static const struct wp_model *model;
static void *state;
static int who = -1;
static unsigned threads, interrupted, most_steps;
static bool learned, broken;
static ucontext_t outside;
static jmp_buf failed; /* outside; a coroutine goes to where run() called it */

int wp_model_who(void)
{
    return who;
}

/* Memory: base/mem.h's functions, as far as the index calls them. */

void *wp_aligned_alloc(size_t align, size_t size)
{
    size_t at = now.used;

    (void)align; /* all begins on a line of its own */
    if (now.fail_in >= 0 && now.fail_in-- == 0)
        return NULL;
    now.used += LINE + (size + LINE) / LINE * LINE;
    if (now.used > MEMORY) {
        fprintf(stderr, "the model's memory is too small\n");
        exit(2);
    }
    memcpy(now.memory + at, &size, sizeof size);
    return now.memory + at + LINE;
}

void *wp_huge_alloc(size_t n) /* no slab here becomes so large */
{
    (void)n;
    return NULL;
}

void *wp_malloc(size_t size)
{
    return wp_aligned_alloc(LINE, size);
}

void *wp_calloc(size_t n, size_t size)
{
    void *p = wp_malloc(n * size);

    return p ? memset(p, 0, n * size) : NULL;
}

void wp_free(void *p)
{
    size_t at, size;

    if (!p)
        return;
    at = (size_t)((char *)p - now.memory);
    WP_MODEL_WANT("freed once", !now.freed[at / LINE]);
    memcpy(&size, (char *)p - LINE, sizeof size);
    memset(p, POISON, size);
    memset(now.freed + at / LINE, 1, (size + LINE) / LINE);
}

char *wp_strndup(const char *s, size_t n)
{
    char *p = wp_calloc(n + 1, 1);

    return p ? memcpy(p, s, n) : NULL;
}

void *wp_realloc(void *p, size_t size)
{
    void *q = wp_malloc(size);
    size_t old = 0;

    if (!q)
        return NULL;
    if (p)
        memcpy(&old, (char *)p - LINE, sizeof old);
    memcpy(q, p, old < size ? old : size);
    wp_free(p);
    return q;
}

bool wp_pages_grow(struct wp_pages *p, size_t bytes)
{
    if (!p->at && (p->at = wp_calloc(1, PAGES)) != NULL)
        p->reserved = PAGES;
    if (bytes > p->reserved)
        return false;
    if (p->bytes < bytes)
        p->bytes = bytes;
    return true;
}

void wp_mem_fail_after(long n)
{
    now.fail_in = n;
}

void wp_pages_drop(struct wp_pages *p, size_t from, size_t to)
{
    memset(p->at + from, 0, to - from);
}

void wp_pages_touch(struct wp_pages *p)
{
    (void)p; /* it is all there */
}

void wp_pages_fini(struct wp_pages *p)
{
    wp_free(p->at);
    *p = (struct wp_pages){0};
}

/* Whose turn is it? */

static void go_to(int next)
{
    int me = who;

    who = next;
    if (me != next)
        swapcontext(me < 0 ? &outside : &thread[me].at, &thread[next].at);
}

/* One of so many ways, as the path says, or the first. */
static unsigned choose(unsigned n)
{
    if (n < 2)
        return 0;
    if (depth == length) {
        if (length == DEPTH) {
            fprintf(stderr, "a run has too many choices\n");
            exit(2);
        }
        path[length].n = (uint8_t)n;
        path[length++].taken = 0;
    }
    return path[depth++].taken;
}

/* The i-th of those that can go on, without one. */
static int other(int but, unsigned i)
{
    for (unsigned t = 0; t < threads; t++)
        if ((int)t != but && !thread[t].done && i-- == 0)
            return (int)t;
    return -1;
}

static unsigned others(int but)
{
    unsigned n = 0;

    for (unsigned t = 0; t < threads; t++)
        n += (int)t != but && !thread[t].done;
    return n;
}

static bool shared(size_t place, enum wp_model_kind kind)
{
    uint8_t me = (uint8_t)(1u << who), was_read = known[place].readers,
            was_written = known[place].writers;

    if (kind != WP_MODEL_STORE)
        known[place].readers |= me;
    if (kind != WP_MODEL_LOAD)
        known[place].writers |= me;
    learned |= known[place].readers != was_read || known[place].writers != was_written;
    return (known[place].writers | (kind == WP_MODEL_LOAD ? 0 : known[place].readers)) & ~me;
}

void wp_model_op(const volatile void *at, enum wp_model_kind kind, const char *file, int line)
{
    size_t place = (size_t)((const volatile char *)at - now.memory);
    unsigned i;

    if (who < 0 || place >= MEMORY) /* on a coroutine's stack */
        return;
    if (++thread[who].steps > WP_MODEL_STEPS && who != WP_MODEL_WRITER)
        wp_model_fail(file, line,
                      "a reader takes a bounded number of steps, wherever the writer stands");
    if (shared(place / ANY, kind) && interrupted < model->bound) {
        i = choose(1 + others(who));
        if (i) {
            interrupted++;
            go_to(other(who, i - 1));
        }
    }
    if (steps < TRACE)
        trace[steps++] = (struct step){file, line, who};
    if (now.freed[place / LINE])
        wp_model_fail(file, line, "nobody looks at what was freed");
    wp_watch_step(at, kind == WP_MODEL_LOAD);
}

void wp_model_pause(void)
{
    if (who >= 0 && others(who))
        go_to(other(who, choose(others(who))));
}

static void body(void)
{
    unsigned n;

    if (who == WP_MODEL_WRITER)
        model->write(state);
    else
        model->read(state, (unsigned)who - 1);
    if (who != WP_MODEL_WRITER && thread[who].steps > most_steps)
        most_steps = thread[who].steps;
    thread[who].done = true;
    n = others(who);
    if (n) {
        go_to(other(who, choose(n)));
    } else {
        who = -1;
        setcontext(&outside);
    }
}

void wp_model_fail(const char *file, int line, const char *what)
{
    size_t from = steps > 60 ? steps - 60 : 0;

    printf("FAILED %s: %s:%d: not true: %s\n", model->name, file, line, what);
    for (size_t i = from; i < steps; i++)
        if (i == from || trace[i].who != trace[i - 1].who)
            printf("%s    %s %s:%d", i == from ? "" : "\n",
                   trace[i].who == WP_MODEL_WRITER ? "writer" : "reader",
                   strrchr(trace[i].file, '/') + 1, trace[i].line);
        else
            printf(" %d", trace[i].line);
    printf("\n");
    if (who < 0)
        longjmp(failed, 1);
    who = -1;
    broken = true;
    setcontext(&outside);
    abort(); /* not reached */
}

void wp_model_crashed(int signal)
{
    (void)signal;
    wp_model_fail(__FILE__, __LINE__, "a pointer leads to memory that is in use");
}

static void run(void)
{
    memcpy(&now, &then, offsetof(struct world, memory) + then.used);
    depth = steps = interrupted = 0;
    for (unsigned t = 0; t < threads; t++) {
        thread[t].done = false;
        thread[t].steps = 0;
        getcontext(&thread[t].at);
        thread[t].at.uc_stack.ss_sp = stack[t];
        thread[t].at.uc_stack.ss_size = STACK;
        thread[t].at.uc_link = NULL;
        makecontext(&thread[t].at, body, 0);
    }
    go_to((int)choose(threads));
    if (broken)
        return;
    wp_watch_end();
    if (model->end)
        model->end(state);
}

/* The next path; false: that was the last one. */
static bool advance(void)
{
    while (length && path[length - 1].taken + 1 == path[length - 1].n)
        length--;
    if (!length)
        return false;
    path[length - 1].taken++;
    return true;
}

bool wp_model_run(const struct wp_model *m, unsigned long *total)
{
    static unsigned long runs; /* static: after a longjmp() they are what they were */
    static unsigned longest;

    model = m;
    threads = 1 + m->readers;
    memset(&now, 0, sizeof now);
    now.fail_in = -1;
    broken = false;
    memset(known, 0, sizeof known);
    who = -1;
    runs = longest = most_steps = 0;
    length = 0;
    if (setjmp(failed))
        return false;
    wp_watch_begin();
    state = m->begin();
    memcpy(&then, &now, sizeof then);
    do {
        learned = false;
        run();
        if (broken)
            return false;
        runs++;
        if (learned) {
            runs = longest = 0;
            length = 0;
        } else if (length > longest) {
            longest = (unsigned)length;
        }
    } while (learned || advance());
    printf("  %-76s %9lu interleavings, ", m->name, runs);
    if (m->bound == WP_MODEL_ALL)
        printf("all");
    else
        printf("<= %u interruptions", m->bound);
    *total += runs;
    printf("; %u choices, %u steps of a reader at most\n", longest, most_steps);
    return true;
}
