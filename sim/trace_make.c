/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up trace is a crowd of sessions.  A session takes a prefix from a library (a system prompt, a tool's instructions, a document),
 * adds a first prompt, and then turn after turn the answer and something new, each after a time to think.  It ends by chance, or when
 * its context is full; some kinds rewrite a full context instead and go on.  Sessions begin as a Poisson process well before the trace
 * does, so that its first second is like any other: those under way enter with a long prompt.
 *
 * Blocks get their ids from a counter when a session first has them, and the last, partial one gets a new id with each turn: so equal ids
 * mean an equal prefix, and the same seed gives the same file.
 */
#include "sim/trace.h"
#include "base/str.h"

#include <math.h>

/* A lognormal number of tokens (or seconds). */
struct spread {
    double median, sigma;
};

struct class {
    double share;     /* of the kind's sessions */
    unsigned library; /* how many prefixes there are */
    double zipf;      /* how unlike in use: the k-th is taken in proportion to 1 / k^zipf */
    uint32_t prefix_min, prefix_max; /* tokens of a prefix, spread evenly over the logarithm */
    struct spread first, more;       /* tokens of the first prompt, and of each later turn beside the answer */
    struct spread answer;            /* tokens */
    double terse;                    /* share of answers that are 3 to 30 tokens instead */
    double turns;                    /* mean of a geometric number */
    struct spread think;             /* seconds from the end of an answer to the next turn */
    uint32_t context;                /* tokens, prompt and answer */
    double rewrite;                  /* of the context that a full one is cut down to; 0: the session ends */
};

enum { CLASSES = 4, LIBRARY_MAX = 256, OUTPUT_MAX = 8192 };

static const struct kind {
    const char *name;
    double rate_per_s;
    double warm_s; /* how long before the trace sessions begin */
    struct class class[CLASSES];
} kinds[] = {
    /* clang-format off */
    /*  share  library zipf  prefix         first          more          answer      terse  turns  think       context  rewrite */
    {"chat", 3.4, 1800, {
        {0.98,   4,   1.0,   520,   1000, {4700, 1.22}, {750, 1.55}, {350, 0.50}, 0.14,   1.49, {45, 1.0}, 128000, 0},
        {0.02, 100,   0.8,  8000,  60000, { 300, 1.00}, {400, 1.00}, {330, 0.55}, 0.05,   2.50, {60, 1.0}, 128000, 0},
    }},
    {"tool", 6.67, 1800, {
        {0.27,   4,   1.0,   520,   1000, {4700, 1.22}, {750, 1.55}, {350, 0.50}, 0.14,   1.49, {45, 1.0}, 128000, 0},
        {0.53,   1,   1.0,  6144,   6144, { 350, 0.70}, {300, 0.70}, { 30, 0.15}, 0.45,   1.00, {10, 1.0}, 128000, 0},
        {0.17,   1,   1.0,  2560,   2560, { 700, 0.60}, {300, 0.70}, { 25, 0.40}, 0.00,   1.00, {10, 1.0}, 128000, 0},
        {0.03,  12,   1.1,  1536,   9000, { 500, 0.80}, {300, 0.70}, { 60, 0.70}, 0.00,   1.00, {10, 1.0}, 128000, 0},
    }},
    {"agent", 1.45, 9000, {
        {0.80,  80,   1.0,  9000,  13000, {24000, 1.10}, {1000, 1.10}, {212, 1.20}, 0.00, 42.00, {11, 1.45}, 195000, 0.30},
        {0.20,  20,   1.0,  4000,   9000, { 3000, 0.90}, {1500, 1.00}, {180, 1.00}, 0.00,  9.00, { 6, 0.90}, 195000, 0.30},
    }},
    /* clang-format on */
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct session {
    const struct class *class;
    double at_s; /* of its next request */
    uint32_t tokens, shared; /* of the prompt; of these, the prefix's */
    uint32_t n, cap;
    uint64_t *id; /* [n] one a block of the prompt */
};

/* A prefix of a library: made when first taken. */
struct prefix {
    uint32_t tokens;
    uint64_t first_id; /* its full blocks have ids in a row */
};

struct maker {
    const struct kind *kind;
    struct wp_rng rng;
    double rate_per_s, sessions_per_s;
    uint64_t next_id;
    struct prefix library[CLASSES][LIBRARY_MAX];
    struct session **heap; /* by time of the next request */
    size_t n, cap;
};

static double draw(struct wp_rng *rng, struct spread s)
{
    return s.median * exp(s.sigma * wp_rng_normal(rng));
}

static uint32_t draw_tokens(struct wp_rng *rng, struct spread s, uint32_t most)
{
    double x = draw(rng, s);

    return x < 1 ? 1 : x < most ? (uint32_t)x : most;
}

/* ---- the heap ---- */

static void swap(struct session **a, struct session **b)
{
    struct session *s = *a;

    *a = *b;
    *b = s;
}

static int heap_push(struct maker *k, struct session *s)
{
    size_t i = k->n;

    if (k->n == k->cap) {
        size_t cap = k->cap ? 2 * k->cap : 64;
        struct session **heap = wp_realloc(k->heap, cap * sizeof *heap);

        if (!heap)
            return WP_ENOMEM;
        k->heap = heap;
        k->cap = cap;
    }
    k->heap[k->n++] = s;
    for (; i > 0 && k->heap[i]->at_s < k->heap[(i - 1) / 2]->at_s; i = (i - 1) / 2)
        swap(&k->heap[i], &k->heap[(i - 1) / 2]);
    return 0;
}

static struct session *heap_pop(struct maker *k)
{
    struct session *s = k->heap[0];
    size_t i = 0;

    k->heap[0] = k->heap[--k->n];
    for (;;) {
        size_t least = i, l = 2 * i + 1, r = l + 1;

        if (l < k->n && k->heap[l]->at_s < k->heap[least]->at_s)
            least = l;
        if (r < k->n && k->heap[r]->at_s < k->heap[least]->at_s)
            least = r;
        if (least == i)
            return s;
        swap(&k->heap[i], &k->heap[least]);
        i = least;
    }
}

/* ---- a session ---- */

static void session_destroy(struct session *s)
{
    if (s)
        wp_free(s->id);
    wp_free(s);
}

/* The prompt grows to `tokens`: its full blocks stay, all behind them are new. */
static int grow(struct maker *k, struct session *s, uint32_t tokens)
{
    uint32_t n = (tokens + WP_TRACE_BLOCK - 1) / WP_TRACE_BLOCK;

    if (n > s->cap) {
        uint32_t cap = n + n / 2;
        uint64_t *id = wp_realloc(s->id, cap * sizeof *id);

        if (!id)
            return WP_ENOMEM;
        s->id = id;
        s->cap = cap;
    }
    s->n = s->tokens / WP_TRACE_BLOCK;
    while (s->n < n)
        s->id[s->n++] = k->next_id++;
    s->tokens = tokens;
    return 0;
}

static const struct class *pick_class(struct maker *k)
{
    double x = wp_rng_unit(&k->rng);
    size_t i = 0;

    while (i + 1 < CLASSES && k->kind->class[i + 1].share > 0 && x >= k->kind->class[i].share)
        x -= k->kind->class[i++].share;
    return &k->kind->class[i];
}

static struct prefix *pick_prefix(struct maker *k, const struct class *c)
{
    double sum = 0, x, ratio = (double)c->prefix_max / c->prefix_min;
    struct prefix *p;
    unsigned i = 0;

    for (unsigned j = 1; j <= c->library; j++)
        sum += pow(j, -c->zipf);
    x = wp_rng_unit(&k->rng) * sum;
    while (i + 1 < c->library && (x -= pow(i + 1, -c->zipf)) >= 0)
        i++;
    p = &k->library[c - k->kind->class][i];
    if (p->tokens == 0) {
        p->tokens = (uint32_t)(c->prefix_min * pow(ratio, wp_rng_unit(&k->rng)));
        p->first_id = k->next_id;
        k->next_id += p->tokens / WP_TRACE_BLOCK;
    }
    return p;
}

static int session_create(struct maker *k, double at_s)
{
    const struct class *c = pick_class(k);
    const struct prefix *p = pick_prefix(k, c);
    struct session *s = wp_calloc(1, sizeof *s);
    uint64_t next;
    int rc;

    if (!s)
        return WP_ENOMEM;
    s->class = c;
    s->at_s = at_s;
    s->shared = p->tokens;
    next = k->next_id; /* the prefix's blocks have their ids already */
    k->next_id = p->first_id;
    rc = grow(k, s, p->tokens / WP_TRACE_BLOCK * WP_TRACE_BLOCK);
    k->next_id = next;
    if (rc == 0)
        rc = grow(k, s, p->tokens + draw_tokens(&k->rng, c->first, c->context - p->tokens - OUTPUT_MAX));
    if (rc == 0)
        rc = heap_push(k, s);
    if (rc < 0)
        session_destroy(s);
    return rc;
}

static uint32_t draw_answer(struct maker *k, const struct class *c)
{
    if (wp_rng_unit(&k->rng) < c->terse)
        return 3 + (uint32_t)(27 * pow(wp_rng_unit(&k->rng), 4)); /* most of them very short */
    return draw_tokens(&k->rng, c->answer, OUTPUT_MAX);
}

/* The next turn of s, after an answer: back into the heap, or gone.  Sets s->at_s. */
static int next_turn(struct maker *k, struct session *s, uint32_t answer)
{
    const struct class *c = s->class;
    uint32_t more = answer + draw_tokens(&k->rng, c->more, c->context / 2);
    int rc = 0;

    if (wp_rng_unit(&k->rng) * c->turns < 1)
        goto gone;
    if (s->tokens + more + OUTPUT_MAX > c->context) {
        uint32_t rest = (uint32_t)((s->tokens - s->shared) * c->rewrite);

        if (c->rewrite == 0 || s->shared + rest + more + OUTPUT_MAX > c->context)
            goto gone;
        s->tokens = s->shared;
        rc = grow(k, s, s->shared + rest);
    }
    if (rc == 0)
        rc = grow(k, s, s->tokens + more);
    s->at_s += answer * 0.02 + draw(&k->rng, c->think);
    if (rc == 0)
        rc = heap_push(k, s);
    if (rc == 0)
        return 0;
gone:
    session_destroy(s);
    return rc;
}

/* ---- the trace ---- */

static int emit(struct wp_trace *t, const struct session *s, double at_s, uint32_t answer)
{
    uint64_t *id;

    if (!wp_trace_add(t, (uint64_t)(at_s * 1e6), s->tokens, answer, &id))
        return WP_ENOMEM;
    memcpy(id, s->id, s->n * sizeof *id);
    return 0;
}

static int play(struct maker *k, struct wp_trace *t, size_t requests)
{
    double born_s = -k->kind->warm_s;
    int rc = 0;

    while (t->n < requests && rc == 0) {
        struct session *s;
        uint32_t answer;

        if (k->n == 0 || born_s <= k->heap[0]->at_s) {
            rc = session_create(k, born_s);
            born_s += wp_rng_exp(&k->rng, 1 / k->sessions_per_s);
            continue;
        }
        s = heap_pop(k);
        answer = draw_answer(k, s->class);
        if (s->at_s >= 0)
            rc = emit(t, s, s->at_s, answer);
        if (rc < 0)
            session_destroy(s);
        else
            rc = next_turn(k, s, answer);
    }
    return rc;
}

/* Stretches time so that the mean rate is what was asked for, and rounds it to milliseconds, as traces have it. */
static void set_rate(struct wp_trace *t, double rate_per_s)
{
    uint64_t first = t->req[0].at_us;
    double took = (double)(t->req[t->n - 1].at_us - first);
    double stretch = took > 0 ? (double)(t->n - 1) / rate_per_s * 1e6 / took : 1;

    for (size_t i = 0; i < t->n; i++)
        t->req[i].at_us = (uint64_t)((double)(t->req[i].at_us - first) * stretch / 1000) * 1000;
}

static const struct kind *find_kind(const char *name, struct wp_err *err)
{
    const char *known[KINDS], *near;

    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
        known[i] = kinds[i].name;
    }
    near = wp_str_nearest(wp_str_of(name), known, KINDS);
    wp_fail(err, WP_EINVAL, "unknown kind of trace \"%.64s\"%s%s%s known: chat, tool, agent", name,
            near ? "; did you mean \"" : ";", near ? near : "", near ? "\"?" : "");
    return NULL;
}

static double sessions_per_s(const struct kind *kind, double rate_per_s)
{
    double turns = 0;

    for (size_t i = 0; i < CLASSES; i++)
        turns += kind->class[i].share * kind->class[i].turns;
    return rate_per_s / turns;
}

int wp_trace_make(struct wp_trace *t, const struct wp_trace_spec *spec, struct wp_err *err)
{
    struct maker *k;
    const struct kind *kind = find_kind(spec->kind, err);
    int rc;

    *t = (struct wp_trace){0};
    if (!kind)
        return WP_EINVAL;
    if (spec->requests < 1 || spec->requests > WP_TRACE_MAKE_MAX)
        return wp_fail(err, WP_EINVAL, "want 1 to %d requests, got %zu", WP_TRACE_MAKE_MAX, spec->requests);
    if (spec->rate_per_s != 0 && !(spec->rate_per_s >= 1e-3 && spec->rate_per_s <= 1e4))
        return wp_fail(err, WP_EINVAL, "want a rate of 0.001 to 10000 requests a second, got %g", spec->rate_per_s);
    k = wp_calloc(1, sizeof *k);
    if (!k)
        return wp_fail(err, WP_ENOMEM, "out of memory for a trace");
    k->kind = kind;
    k->rng.state = spec->seed;
    k->rate_per_s = spec->rate_per_s > 0 ? spec->rate_per_s : kind->rate_per_s;
    k->sessions_per_s = sessions_per_s(kind, k->rate_per_s);
    rc = play(k, t, spec->requests);
    if (rc == 0)
        set_rate(t, k->rate_per_s);
    else
        wp_fail(err, rc, "a trace of %zu requests: %s", spec->requests, wp_strerror(rc));
    while (k->n > 0)
        session_destroy(k->heap[--k->n]);
    wp_free(k->heap);
    wp_free(k);
    if (rc < 0)
        wp_trace_fini(t);
    return rc;
}
