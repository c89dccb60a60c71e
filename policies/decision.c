/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/decision_impl.h"

#include "base/mem.h"

#include <math.h>

const char wp_decision_magic[8] = "wpdecide";

/* ---- settings, by name ---- */

size_t wp_decision_settings(const struct wp_policy_conf *c, struct wp_decision_setting s[WP_DECISION_SETTINGS])
{
    size_t n = wp_policy_settings(c, s, WP_DECISION_SETTINGS - 4);

    s[n++] = (struct wp_decision_setting){"price.calibrate", c->calibrate};
    s[n++] = (struct wp_decision_setting){"pull", c->pull};
    s[n++] = (struct wp_decision_setting){"prefix_blocks", c->prefix_blocks};
    s[n++] = (struct wp_decision_setting){"seed", (double)c->seed}; /* at most 15 digits, as the configuration has it */
    return n;
}

/* ---- bytes ---- */

static void put_u(struct wp_buf *b, uint64_t x)
{
    char *at = b->p + b->n;

    for (; x > 127; x >>= 7)
        *at++ = (char)(x | 128);
    *at++ = (char)x;
    b->n = (size_t)(at - b->p);
}

static void put_8(struct wp_buf *b, const void *p)
{
    memcpy(b->p + b->n, p, 8);
    b->n += 8;
}

static void put_text(struct wp_buf *b, const char *s)
{
    size_t n = strlen(s);

    n = n < WP_DECISION_TEXT ? n : WP_DECISION_TEXT;
    put_u(b, n);
    memcpy(b->p + b->n, s, n);
    b->n += n;
}

static bool is(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* How a number is written; by is what it would be if it followed from others. */
static unsigned form_of(double x, double by)
{
    return is(x, 0) ? FORM_ZERO : isnan(x) ? FORM_NAN : is(x, by) ? FORM_FOLLOWS : FORM_RAW;
}

struct numbers { /* written with their forms in front, four to a byte */
    double x[16];
    unsigned form[16];
    size_t n;
};

static void add_number(struct numbers *s, double x, double by)
{
    s->form[s->n] = form_of(x, by);
    s->x[s->n++] = x;
}

static void put_numbers(struct wp_buf *b, const struct numbers *s)
{
    uint64_t forms = 0;

    for (size_t i = 0; i < s->n; i++)
        forms |= (uint64_t)s->form[i] << (2 * i);
    put_u(b, forms);
    for (size_t i = 0; i < s->n; i++)
        if (s->form[i] == FORM_RAW)
            put_8(b, &s->x[i]);
}

/* A record's head; the length is known at its end. */
static size_t begin(struct wp_buf *b, char kind)
{
    b->p[b->n] = kind;
    b->n += WP_DECISION_HEAD;
    return b->n;
}

static void end(struct wp_buf *b, size_t from)
{
    uint32_t n = (uint32_t)(b->n - from);

    memcpy(b->p + from - 4, &n, 4);
}

/* ---- records ---- */

void wp_decision_writer_fini(struct wp_decision_writer *w)
{
    wp_map_fini(&w->number);
    wp_free(w->told);
    wp_free(w->row);
    *w = (struct wp_decision_writer){.n = 0};
}

int wp_decision_put_policy(struct wp_decision_writer *w, const char *name, const struct wp_policy_conf *conf, struct wp_buf *out)
{
    struct wp_decision_setting s[WP_DECISION_SETTINGS];
    size_t n = wp_decision_settings(conf, s), from;

    if (wp_buf_reserve(out, 256 + n * 64) < 0)
        return WP_ENOMEM;
    from = begin(out, 'P');
    put_text(out, name);
    put_u(out, n);
    for (size_t i = 0; i < n; i++) {
        put_text(out, s[i].name);
        put_8(out, &s[i].value);
    }
    end(out, from);
    w->policy_told = true;
    return 0;
}

/* A number for the worker; SIZE_MAX: no memory. */
static size_t number_of(struct wp_decision_writer *w, uint64_t key, bool *fresh)
{
    uint64_t found;
    size_t cap = w->cap ? 2 * w->cap : 16;
    void *p;

    *fresh = false;
    if (wp_map_get(&w->number, key, &found))
        return (size_t)found;
    if (w->n == WP_DECISION_WORKERS)
        return SIZE_MAX; /* then the writer begins anew */
    if (w->n == w->cap) {
        p = wp_realloc(w->told, cap * sizeof *w->told);
        if (!p)
            return SIZE_MAX;
        w->told = p;
        w->cap = cap;
    }
    if (wp_map_put(&w->number, key, w->n) < 0)
        return SIZE_MAX;
    *fresh = true;
    return w->n++;
}

static void put_worker(struct wp_decision_writer *w, size_t number, uint64_t key, const char *id, const struct wp_profile *p, struct wp_buf *out)
{
    double x[WP_DECISION_COSTS];
    size_t from = begin(out, 'W');

    put_u(out, number);
    put_8(out, &key);
    put_text(out, id);
    put_text(out, p->name);
    wp_decision_costs(p, x);
    for (int i = 0; i < WP_DECISION_COSTS; i++)
        put_8(out, &x[i]);
    put_u(out, p->budget);
    put_u(out, p->max_running);
    put_u(out, p->max_model_len);
    put_u(out, p->kv_bytes_per_token);
    put_u(out, p->gpu_tokens);
    put_u(out, p->cpu_tokens);
    end(out, from);
    w->told[number] = *p;
}

/* What has to be known of the workers before the decision. */
static int put_workers(struct wp_decision_writer *w, const struct wp_decision *d, struct wp_buf *out)
{
    void *rows = d->n > w->rows ? wp_realloc(w->row, d->n * sizeof *w->row) : w->row;

    if (d->n > w->rows && !rows)
        return WP_ENOMEM;
    w->row = rows;
    w->rows = d->n > w->rows ? d->n : w->rows;
    for (size_t i = 0; i < d->n; i++) {
        const struct wp_profile *p = d->w[i].profile ? d->w[i].profile : wp_profile_default();
        bool fresh;
        size_t number = number_of(w, d->w[i].key, &fresh);

        if (number == SIZE_MAX || wp_buf_reserve(out, 1024) < 0)
            return WP_ENOMEM;
        w->row[i] = (uint32_t)number;
        if (fresh || memcmp(&w->told[number], p, sizeof *p) != 0)
            put_worker(w, number, d->w[i].key, d->name ? d->name(d->arg, i) : "", p, out);
    }
    return 0;
}

static void put_ask(const struct wp_ask *a, struct wp_buf *out)
{
    struct numbers s = {.n = 0};
    const struct wp_pool *pool = a->pool;

    put_8(out, &a->now_us);
    put_8(out, &a->draw);
    put_8(out, &a->prefix_key);
    put_8(out, &a->session_key);
    put_u(out, a->tokens);
    put_u(out, a->max_tokens);
    put_u(out, (a->exact ? ASK_EXACT : 0) | (a->room.tuned ? ASK_TUNED : 0) | (a->queued ? ASK_QUEUED : 0) | (pool ? ASK_POOL : 0));
    add_number(&s, a->latency_us, 0);
    add_number(&s, a->room.block_us, 0);
    add_number(&s, a->room.delays, 0);
    add_number(&s, pool ? pool->busy_us : 0, 0);
    add_number(&s, pool ? pool->bytes_per_s : 0, 0);
    put_numbers(out, &s);
    put_u(out, pool ? pool->n : 0);
    for (size_t i = 0; pool && i < pool->n; i++) {
        put_u(out, pool->span[i].from);
        put_u(out, pool->span[i].to);
    }
}

static void put_view(const struct wp_worker_view *v, struct wp_buf *out)
{
    struct numbers s = {.n = 0};
    uint64_t tiers = 0;

    add_number(&s, v->wait_us, 1);
    add_number(&s, v->pinned, 1);
    add_number(&s, v->in_busy_us, 1);
    add_number(&s, v->out_busy_us, 1);
    add_number(&s, v->link_bytes_per_s, 1);
    add_number(&s, v->correction, 1);
    add_number(&s, v->error, 1);
    put_numbers(out, &s);
    put_u(out, v->in_flight);
    put_u(out, v->decoding);
    put_u(out, v->kv_tokens);
    put_u(out, v->waiting);
    put_u(out, v->prefill_tokens);
    put_u(out, v->active_blocks);
    put_u(out, v->fresh_blocks);
    put_u(out, v->has_tokens);
    put_u(out, v->hit_tokens);
    put_u(out, v->doubtful);
    put_u(out, v->block_size);
    put_u(out, v->index_tokens);
    for (int t = 0; t < WP_TIERS; t++)
        tiers |= (uint64_t)(v->hit_tier[t] != 0) << t;
    put_u(out, tiers);
    for (int t = 0; t < WP_TIERS; t++)
        if (v->hit_tier[t])
            put_u(out, v->hit_tier[t]);
}

static void put_verdict(const struct wp_worker_view *w, const struct wp_verdict *v, struct wp_buf *out)
{
    struct numbers s = {.n = 0};

    for (int t = 0; t < WP_TERMS; t++)
        add_number(&s, v->term[t], w->wait_us);
    add_number(&s, v->price, wp_decision_sum(v));
    add_number(&s, v->step_us, 0);
    add_number(&s, v->ttft_us, wp_decision_ttft(v));
    put_numbers(out, &s);
    put_u(out, v->n_fetch);
    for (uint32_t i = 0; i < v->n_fetch && i < WP_FETCHES; i++) {
        put_u(out, (uint64_t)v->fetch[i].source + 1);
        put_u(out, v->fetch[i].from);
        put_u(out, v->fetch[i].to);
    }
}

int wp_decision_put(struct wp_decision_writer *w, const struct wp_decision *d, struct wp_buf *out)
{
    size_t spans = d->ask->pool ? d->ask->pool->n : 0, from;
    int rc = put_workers(w, d, out);

    if (rc == 0)
        rc = wp_buf_reserve(out, 256 + 20 * spans + d->n * WP_DECISION_ROW);
    if (rc < 0)
        return rc;
    from = begin(out, 'D');
    put_u(out, d->id);
    put_8(out, &d->wall_us);
    put_u(out, d->placed);
    put_ask(d->ask, out);
    put_u(out, d->n);
    put_u(out, d->chosen < d->n ? d->chosen + 1 : 0);
    for (size_t i = 0; i < d->n; i++) {
        put_u(out, w->row[i]);
        put_view(&d->w[i], out);
        put_verdict(&d->w[i], &d->v[i], out);
    }
    end(out, from);
    return 0;
}

int wp_decision_put_outcome(uint64_t id, double ttft_us, const char *outcome, struct wp_buf *out)
{
    size_t from;

    if (wp_buf_reserve(out, 64 + WP_DECISION_TEXT) < 0)
        return WP_ENOMEM;
    from = begin(out, 'O');
    put_u(out, id);
    put_8(out, &ttft_us);
    put_text(out, outcome);
    end(out, from);
    return 0;
}

int wp_decision_lost(struct wp_decision_writer *w, uint64_t n, struct wp_buf *out)
{
    size_t from;

    wp_decision_writer_fini(w);
    if (wp_buf_reserve(out, 32) < 0)
        return WP_ENOMEM;
    from = begin(out, 'G');
    put_u(out, n);
    end(out, from);
    return 0;
}
