/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/decision_impl.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>

enum { SPANS_MAX = 1 << 20, NAME_MAX_ = 64 };

struct known { /* a worker */
    bool told;
    uint64_t key;
    char id[WP_DECISION_TEXT + 1];
    struct wp_profile profile;
};

struct wp_decision_reader {
    struct wp_policy *policy;
    char name[NAME_MAX_];
    bool remembers, gap, cannot; /* its decisions go by those before; one of these is missing; by what no record has */
    struct known *worker;
    size_t n_workers, workers_cap;
    struct wp_worker_view *view;
    struct wp_verdict *was, *now;
    uint32_t *number;
    size_t cap;
    struct wp_span *span;
    size_t span_cap;
    struct wp_decision_counts count;
    char first[256];
};

struct bytes { /* what is left of a record */
    const uint8_t *p;
    size_t n;
    bool bad;
};

static uint64_t get_u(struct bytes *b)
{
    uint64_t x = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (!b->n)
            break;
        b->n--;
        x |= (uint64_t)(*b->p & 127) << shift;
        if (!(*b->p++ & 128))
            return x;
    }
    b->bad = true;
    return 0;
}

static uint32_t get_32(struct bytes *b)
{
    uint64_t x = get_u(b);

    b->bad |= x > UINT32_MAX;
    return (uint32_t)x;
}

static void get_8(struct bytes *b, void *to)
{
    if (b->n < 8) {
        b->bad = true;
        memset(to, 0, 8);
        return;
    }
    memcpy(to, b->p, 8);
    b->p += 8;
    b->n -= 8;
}

static void get_text(struct bytes *b, char *to, size_t cap)
{
    uint64_t n = get_u(b);

    if (n > b->n || n >= cap) {
        b->bad = true;
        n = 0;
    }
    memcpy(to, b->p, n);
    to[n] = 0;
    b->p += n;
    b->n -= n;
}

/* Forms first; what follows from others is left as NULL says: the caller's. */
static uint64_t get_forms(struct bytes *b, size_t n)
{
    uint64_t forms = get_u(b);

    b->bad |= forms >> (2 * n) != 0;
    return forms;
}

static double get_number(struct bytes *b, uint64_t *forms, double by)
{
    unsigned form = *forms & 3;
    double x;

    *forms >>= 2;
    switch (form) {
    case FORM_ZERO:
        return 0;
    case FORM_NAN:
        return NAN;
    case FORM_FOLLOWS:
        return by;
    default:
        get_8(b, &x);
        return x;
    }
}

static int refuse(const char *what, struct wp_err *err)
{
    return wp_fail(err, WP_EINVAL, "%s", what);
}

int wp_decision_reader_create(struct wp_decision_reader **out, struct wp_err *err)
{
    *out = wp_calloc(1, sizeof **out);
    return *out ? 0 : wp_fail(err, WP_ENOMEM, "out of memory");
}

void wp_decision_reader_destroy(struct wp_decision_reader *r)
{
    if (!r)
        return;
    if (r->policy)
        r->policy->ops->destroy(r->policy);
    wp_free(r->worker);
    wp_free(r->view);
    wp_free(r->was);
    wp_free(r->now);
    wp_free(r->number);
    wp_free(r->span);
    wp_free(r);
}

void wp_decision_counted(const struct wp_decision_reader *r, struct wp_decision_counts *out)
{
    *out = r->count;
}

const char *wp_decision_first_difference(const struct wp_decision_reader *r)
{
    return r->first;
}

/* ---- settings ---- */

static int set(struct wp_policy_conf *c, const char *key, double value, struct wp_err *err)
{
    char text[40];

    if (strcmp(key, "price.calibrate") == 0)
        c->calibrate = value != 0;
    else if (strcmp(key, "pull") == 0)
        c->pull = value != 0;
    else if (strcmp(key, "prefix_blocks") == 0)
        c->prefix_blocks = value >= 1 && value <= 1e9 ? (uint32_t)value : 1;
    else if (strcmp(key, "seed") == 0)
        c->seed = value >= 0 && value <= 1e15 ? (uint64_t)value : 0;
    else {
        snprintf(text, sizeof text, "%.17g", value);
        return wp_policy_set(c, wp_str_of(key), wp_str_of(text), err);
    }
    return 0;
}

static int read_policy(struct wp_decision_reader *r, struct bytes *b, struct wp_err *err)
{
    struct wp_policy_conf conf;
    struct wp_policy *fresh;
    uint64_t n;
    int rc;

    wp_policy_conf_init(&conf);
    get_text(b, r->name, sizeof r->name);
    n = get_u(b);
    for (uint64_t i = 0; i < n && !b->bad; i++) {
        char key[NAME_MAX_];
        double value;

        get_text(b, key, sizeof key);
        get_8(b, &value);
        if (!b->bad && (rc = set(&conf, key, value, err)) < 0)
            return rc;
    }
    if (b->bad || b->n)
        return refuse("a policy's settings are not whole", err);
    rc = wp_policy_create(&fresh, r->name, &conf, err);
    if (rc < 0)
        return rc;
    if (r->policy)
        r->policy->ops->destroy(r->policy);
    r->policy = fresh;
    r->remembers = strcmp(r->name, "round_robin") == 0 || strcmp(r->name, "preble_e2") == 0 || strcmp(r->name, "preble") == 0;
    r->cannot = strcmp(r->name, "sglang") == 0;
    return 0;
}

/* ---- workers ---- */

static int read_worker(struct wp_decision_reader *r, struct bytes *b, struct wp_err *err)
{
    uint64_t number = get_u(b);
    struct known k = {.told = true};
    void *p;

    get_8(b, &k.key);
    get_text(b, k.id, sizeof k.id);
    get_text(b, k.profile.name, sizeof k.profile.name);
    for (int i = 0; i < WP_DECISION_COSTS; i++)
        get_8(b, wp_decision_cost(&k.profile, i));
    k.profile.budget = get_32(b);
    k.profile.max_running = get_32(b);
    k.profile.max_model_len = get_32(b);
    k.profile.kv_bytes_per_token = get_u(b);
    k.profile.gpu_tokens = get_u(b);
    k.profile.cpu_tokens = get_u(b);
    if (b->bad || b->n || number > r->n_workers || number >= WP_DECISION_WORKERS)
        return refuse("a worker is not whole, or out of order", err);
    if (number == r->workers_cap) {
        size_t cap = r->workers_cap ? 2 * r->workers_cap : 16;

        p = wp_realloc(r->worker, cap * sizeof *r->worker);
        if (!p)
            return wp_fail(err, WP_ENOMEM, "out of memory");
        r->worker = p;
        r->workers_cap = cap;
    }
    r->n_workers += number == r->n_workers;
    r->worker[number] = k;
    return 0;
}

/* ---- decisions ---- */

static bool room_for(struct wp_decision_reader *r, size_t n)
{
    size_t cap = n < 16 ? 16 : n;
    void *p;

    if (n <= r->cap)
        return true;
#define GROW(field)                                                                                                                 \
    p = wp_realloc(r->field, cap * sizeof *r->field);                                                                               \
    if (!p)                                                                                                                         \
        return false;                                                                                                               \
    r->field = p;
    GROW(view)
    GROW(was)
    GROW(now)
    GROW(number)
#undef GROW
    r->cap = cap;
    return true;
}

static bool get_spans(struct wp_decision_reader *r, struct bytes *b, struct wp_pool *pool)
{
    uint64_t n = get_u(b);
    void *p;

    if (b->bad || n > SPANS_MAX || n > b->n)
        return false;
    if (n > r->span_cap) {
        p = wp_realloc(r->span, n * sizeof *r->span);
        if (!p)
            return false;
        r->span = p;
        r->span_cap = n;
    }
    for (uint64_t i = 0; i < n; i++) {
        r->span[i].from = get_32(b);
        r->span[i].to = get_32(b);
    }
    pool->span = r->span;
    pool->n = n;
    return !b->bad;
}

static bool get_ask(struct wp_decision_reader *r, struct bytes *b, struct wp_ask *a, struct wp_pool *pool)
{
    uint64_t bits, forms;

    get_8(b, &a->now_us);
    get_8(b, &a->draw);
    get_8(b, &a->prefix_key);
    get_8(b, &a->session_key);
    a->tokens = get_32(b);
    a->max_tokens = get_32(b);
    bits = get_u(b);
    a->exact = bits & ASK_EXACT;
    a->room.tuned = bits & ASK_TUNED;
    a->queued = bits & ASK_QUEUED;
    forms = get_forms(b, 5);
    a->latency_us = get_number(b, &forms, 0);
    a->room.block_us = get_number(b, &forms, 0);
    a->room.delays = get_number(b, &forms, 0);
    pool->busy_us = get_number(b, &forms, 0);
    pool->bytes_per_s = get_number(b, &forms, 0);
    a->pool = bits & ASK_POOL ? pool : NULL;
    return get_spans(r, b, pool);
}

static void get_view(struct bytes *b, struct wp_worker_view *v)
{
    uint64_t forms = get_forms(b, 7), tiers;

    v->wait_us = get_number(b, &forms, 1);
    v->pinned = get_number(b, &forms, 1);
    v->in_busy_us = get_number(b, &forms, 1);
    v->out_busy_us = get_number(b, &forms, 1);
    v->link_bytes_per_s = get_number(b, &forms, 1);
    v->correction = get_number(b, &forms, 1);
    v->error = get_number(b, &forms, 1);
    v->in_flight = get_32(b);
    v->decoding = get_32(b);
    v->kv_tokens = get_u(b);
    v->waiting = get_32(b);
    v->prefill_tokens = get_u(b);
    v->active_blocks = get_32(b);
    v->fresh_blocks = get_32(b);
    v->has_tokens = get_32(b);
    v->hit_tokens = get_32(b);
    v->doubtful = get_32(b);
    v->block_size = get_32(b);
    v->index_tokens = get_32(b);
    tiers = get_u(b);
    b->bad |= tiers >> WP_TIERS != 0;
    for (int t = 0; t < WP_TIERS; t++)
        v->hit_tier[t] = tiers & 1u << t ? get_32(b) : 0;
}

static void get_verdict(struct bytes *b, const struct wp_worker_view *w, size_t n, struct wp_verdict *v)
{
    uint64_t forms = get_forms(b, WP_TERMS + 3), price, ttft;

    for (int t = 0; t < WP_TERMS; t++)
        v->term[t] = get_number(b, &forms, w->wait_us);
    price = forms & 3;
    v->price = get_number(b, &forms, 0);
    v->step_us = get_number(b, &forms, 0);
    ttft = forms & 3;
    v->ttft_us = get_number(b, &forms, 0);
    if (price == FORM_FOLLOWS)
        v->price = wp_decision_sum(v);
    if (ttft == FORM_FOLLOWS)
        v->ttft_us = wp_decision_ttft(v);
    v->n_fetch = get_32(b);
    b->bad |= v->n_fetch > WP_FETCHES;
    for (uint32_t i = 0; i < v->n_fetch && !b->bad; i++) {
        uint64_t source = get_u(b);

        b->bad |= source == 0 || (source > n && source != (uint64_t)WP_POOL + 1);
        v->fetch[i].source = (uint32_t)(source - 1);
        v->fetch[i].from = get_32(b);
        v->fetch[i].to = get_32(b);
    }
}

static bool bits_same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* The name of what differs, or NULL. */
static const char *difference(const struct wp_verdict *a, const struct wp_verdict *b)
{
    for (int t = 0; t < WP_TERMS; t++)
        if (!bits_same(a->term[t], b->term[t]))
            return wp_term_names[t];
    if (!bits_same(a->price, b->price))
        return "price";
    if (!bits_same(a->step_us, b->step_us))
        return "step";
    if (!bits_same(a->ttft_us, b->ttft_us))
        return "prediction";
    if (a->n_fetch != b->n_fetch)
        return "number of fetches";
    for (uint32_t i = 0; i < a->n_fetch; i++)
        if (a->fetch[i].source != b->fetch[i].source || a->fetch[i].from != b->fetch[i].from || a->fetch[i].to != b->fetch[i].to)
            return "fetch";
    return NULL;
}

static void differs(struct wp_decision_reader *r, uint64_t id, const char *what, const char *worker, double was, double now)
{
    r->count.differ++;
    if (!r->first[0])
        snprintf(r->first, sizeof r->first, "decision %llu: %s%s%s: %.17g was written, %.17g comes out", (unsigned long long)id, what,
                 worker ? " of worker " : "", worker ? worker : "", was, now);
}

static void compare(struct wp_decision_reader *r, uint64_t id, size_t n, size_t was, size_t now)
{
    if (was != now) {
        differs(r, id, "the choice", NULL, (double)was, (double)now);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const char *what = difference(&r->was[i], &r->now[i]);

        if (what) {
            differs(r, id, what, r->worker[r->number[i]].id, r->was[i].price, r->now[i].price);
            return;
        }
    }
    r->count.same++;
}

static int decide(struct wp_decision_reader *r, uint64_t id, const struct wp_ask *ask, size_t n, size_t was, bool placed, struct wp_err *err)
{
    size_t now;

    if (!r->policy)
        return refuse("a decision stands before its policy", err);
    now = r->policy->ops->choose(r->policy, ask, r->view, n, r->now);
    if (r->cannot || (r->gap && r->remembers))
        r->count.unjudged++;
    else
        compare(r, id, n, was, now);
    if (placed && was < n && r->policy->ops->placed)
        r->policy->ops->placed(r->policy, ask, &r->view[was]);
    return 0;
}

static int read_decision(struct wp_decision_reader *r, struct bytes *b, struct wp_err *err)
{
    struct wp_ask ask = {.now_us = 0};
    struct wp_pool pool = {.n = 0};
    uint64_t id = get_u(b), wall, placed, n, chosen;

    get_8(b, &wall);
    placed = get_u(b);
    if (!get_ask(r, b, &ask, &pool))
        return refuse("what was asked is not whole", err);
    n = get_u(b);
    chosen = get_u(b);
    if (b->bad || placed > 1 || n > WP_DECISION_WORKERS || n > b->n || chosen > n)
        return refuse("a decision is not whole", err);
    if (!room_for(r, (size_t)n))
        return wp_fail(err, WP_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        uint64_t number = get_u(b);

        if (b->bad || number >= r->n_workers)
            return refuse("a decision shows a worker that nobody has told of", err);
        r->number[i] = (uint32_t)number;
        r->view[i] = (struct wp_worker_view){.key = r->worker[number].key, .profile = &r->worker[number].profile};
        get_view(b, &r->view[i]);
        get_verdict(b, &r->view[i], (size_t)n, &r->was[i]);
    }
    if (b->bad || b->n)
        return refuse("a decision's workers are not whole", err);
    r->count.decisions++;
    r->count.workers += n;
    return decide(r, id, &ask, (size_t)n, chosen ? (size_t)chosen - 1 : WP_NO_WORKER, placed, err);
}

static int read_outcome(struct wp_decision_reader *r, struct bytes *b, struct wp_err *err)
{
    char word[WP_DECISION_TEXT + 1];
    double ttft;

    get_u(b);
    get_8(b, &ttft);
    get_text(b, word, sizeof word);
    if (b->bad || b->n)
        return refuse("an outcome is not whole", err);
    r->count.outcomes++;
    return 0;
}

static int read_gap(struct wp_decision_reader *r, struct bytes *b, struct wp_err *err)
{
    uint64_t n = get_u(b);

    if (b->bad || b->n)
        return refuse("a gap is not whole", err);
    r->count.lost += n;
    r->gap |= n > 0;
    r->n_workers = 0;
    return 0;
}

int wp_decision_read(struct wp_decision_reader *r, uint8_t kind, const void *p, size_t n, struct wp_err *err)
{
    struct bytes b = {p, n, false};

    switch (kind) {
    case 'P':
        return read_policy(r, &b, err);
    case 'W':
        return read_worker(r, &b, err);
    case 'D':
        return read_decision(r, &b, err);
    case 'O':
        return read_outcome(r, &b, err);
    case 'G':
        return read_gap(r, &b, err);
    default:
        return wp_fail(err, WP_EINVAL, "a record of unknown kind %u", kind);
    }
}
