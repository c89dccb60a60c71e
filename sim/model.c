/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The happy path: a submitted request lies in `arriving` until its time, then in `waiting`.  When a
 * step begins, waiting requests are admitted in order (room taken, hits pinned, lower tiers read)
 * and move to `prefill`; a step gives each of these a chunk of the budget.  Its end stores the
 * blocks that it filled.  The chunk that ends a prompt brings the first token and moves the request
 * to `decoding`, where every step brings one more; with the last one it is told, and gone.
 *
 *     ARRIVING --> WAITING --> PREFILL --> DECODING --> GONE    a cancel: from any state to GONE
 *
 * Requests that go while callbacks run are kept in `graves` until those have returned.
 */
#include "sim/model.h"
#include "base/list.h"
#include "base/mem.h"
#include "sim/tiers.h"

#include <assert.h>
#include <math.h>

enum { RUNNING_MAX = 65536 };
enum state { ARRIVING, WAITING, PREFILL, DECODING, GONE };

struct wp_model_req {
    struct wp_list link; /* in the list of its state */
    enum state state;
    bool telling; /* inside its on_done */
    double at_us;
    uint32_t tokens, output;
    uint32_t done;             /* prompt tokens cached or computed */
    uint32_t chunk;            /* of the step under way */
    uint32_t cached[WP_TIERS]; /* tokens */
    uint64_t born;             /* the step that brought the first token */
    void *arg;
    struct wp_holding held;
    uint64_t chain[]; /* [held.n], then held.slot[held.n] */
};

struct wp_model {
    struct wp_model_conf conf;
    struct wp_model_ops ops;
    void *arg;
    struct wp_tiers tiers;
    struct wp_list arriving, waiting, prefill, decoding, graves;
    struct wp_model_req **batch; /* [max_running] whom the end of a step concerns */
    double now_us, end_us, wake_us;
    bool busy, in_run;
    bool stuck; /* the first one waiting did not fit, and no room has come since */
    uint32_t n_running, n_waiting, n_decoding;
    uint64_t kv_tokens; /* of the decode batch */
    uint64_t step, next_finish;
    struct wp_model_stats sum; /* the counters of it */
};

static uint64_t whole_us(double us)
{
    return us >= 0x1p63 ? UINT64_MAX : (uint64_t)ceil(us);
}

static void on_tier_block(void *arg, uint64_t hash, enum wp_tier tier, bool stored)
{
    struct wp_model *m = arg;

    if (m->ops.on_block)
        m->ops.on_block(m->arg, whole_us(m->now_us), hash, (uint8_t)tier, stored);
}

/* ---- a step begins ---- */

static uint64_t blocks_of(const struct wp_model *m, uint64_t tokens)
{
    return (tokens + m->conf.block_size - 1) / m->conf.block_size;
}

static void count_hits(struct wp_model *m, struct wp_model_req *r)
{
    uint64_t tokens = 0, most = r->tokens - 1;

    for (unsigned t = 0; t < WP_TIERS; t++) {
        r->cached[t] = r->held.hit[t] * m->conf.block_size;
        tokens += r->cached[t];
    }
    if (tokens > most) { /* the last token is always computed; a partial block has fewer */
        r->cached[r->held.last] -= (uint32_t)(tokens - most);
        tokens = most;
    }
    r->done = (uint32_t)tokens;
    m->sum.cached_tokens += tokens;
}

/* False: r does not fit now. */
static bool admit(struct wp_model *m, struct wp_model_req *r)
{
    m->tiers.now_us = m->now_us;
    if (!wp_tiers_take(&m->tiers, &r->held, blocks_of(m, (uint64_t)r->tokens + r->output)))
        return false;
    count_hits(m, r);
    return true;
}

struct work {
    uint32_t budget;
    double tokens, area, wake_us;
};

/* A chunk of r's prompt for the step that begins, unless its blocks are still on their way. */
static void give_chunk(struct wp_model *m, struct wp_model_req *r, struct work *w)
{
    uint32_t left = r->tokens - r->done;

    if (r->held.ready_us > m->now_us) {
        w->wake_us = fmin(w->wake_us, r->held.ready_us);
        return;
    }
    r->chunk = left < w->budget ? left : w->budget;
    w->budget -= r->chunk;
    w->tokens += r->chunk;
    w->area += (double)r->chunk * r->done + (double)r->chunk * r->chunk / 2;
}

static void admit_waiting(struct wp_model *m, struct work *w)
{
    WP_LIST_EACH(&m->waiting, at)
    {
        struct wp_model_req *r = WP_CONTAINER(at, struct wp_model_req, link);

        if (w->budget == 0 || m->n_running == m->conf.profile.max_running || m->stuck)
            return;
        m->stuck = !admit(m, r);
        if (m->stuck)
            return;
        wp_list_del(at);
        wp_list_push(&m->prefill, at);
        r->state = PREFILL;
        m->n_waiting--;
        m->n_running++;
        give_chunk(m, r, w);
    }
}

static void step_begin(struct wp_model *m)
{
    const struct wp_profile *p = &m->conf.profile;
    uint32_t half = p->budget / 2;
    struct work w = {.wake_us = INFINITY};

    w.budget = p->budget - (m->n_decoding < half ? m->n_decoding : half);
    m->wake_us = INFINITY;
    WP_LIST_EACH(&m->prefill, at)
    {
        if (w.budget > 0)
            give_chunk(m, WP_CONTAINER(at, struct wp_model_req, link), &w);
    }
    admit_waiting(m, &w);
    m->busy = w.tokens > 0 || m->n_decoding > 0;
    if (m->busy)
        m->end_us =
            m->now_us + wp_step_us(p, w.tokens, w.area, m->n_decoding, (double)m->kv_tokens);
    else
        m->wake_us = w.wake_us;
}

/* ---- a step ends ---- */

static void bury(struct wp_model *m, struct wp_model_req *r)
{
    r->state = GONE;
    wp_list_del(&r->link);
    wp_list_push(&m->graves, &r->link);
}

static void empty_graves(struct wp_model *m)
{
    struct wp_list *at;

    while ((at = wp_list_shift(&m->graves)))
        wp_free(WP_CONTAINER(at, struct wp_model_req, link));
}

static void release(struct wp_model *m, struct wp_model_req *r)
{
    wp_tiers_release(&m->tiers, &r->held);
    m->stuck = false;
}

/* The step in which a decoding request gets its last token. */
static uint64_t last_step(const struct wp_model_req *r)
{
    return r->born + r->output - 1;
}

/* After next_finish has come, or its request went.  Not each step. */
static void find_next_finish(struct wp_model *m)
{
    m->next_finish = UINT64_MAX;
    WP_LIST_EACH(&m->decoding, at)
    {
        struct wp_model_req *r = WP_CONTAINER(at, struct wp_model_req, link);

        if (last_step(r) < m->next_finish)
            m->next_finish = last_step(r);
    }
}

static void leave_decoding(struct wp_model *m, struct wp_model_req *r)
{
    m->n_decoding--;
    m->kv_tokens -= r->tokens + (m->step - r->born + 1);
}

static void tell_tokens(struct wp_model *m, struct wp_model_req *r, uint32_t n, bool first)
{
    if (m->ops.on_tokens)
        m->ops.on_tokens(r->arg, whole_us(m->now_us), n, first);
}

static void finish(struct wp_model *m, struct wp_model_req *r)
{
    leave_decoding(m, r);
    bury(m, r);
    m->n_running--;
    r->telling = true;
    if (m->ops.on_done)
        m->ops.on_done(r->arg, whole_us(m->now_us));
    r->telling = false;
    release(m, r);
}

/* The blocks that tokens [r->done, upto) filled can be hit from now on. */
static void store(struct wp_model *m, struct wp_model_req *r, uint32_t upto)
{
    for (size_t i = r->done / m->conf.block_size; i < r->held.n; i++) {
        if ((uint64_t)(i + 1) * m->conf.block_size > upto && upto < r->tokens)
            break;
        if (wp_tiers_store(&m->tiers, &r->held, i))
            m->stuck = false;
    }
}

static void start_decoding(struct wp_model *m, struct wp_model_req *r)
{
    wp_list_del(&r->link);
    wp_list_push(&m->decoding, &r->link);
    r->state = DECODING;
    r->born = m->step;
    m->n_decoding++;
    m->kv_tokens += r->tokens + 1;
    m->sum.output_tokens++;
    if (last_step(r) < m->next_finish)
        m->next_finish = last_step(r);
}

static void end_chunk(struct wp_model *m, struct wp_model_req *r)
{
    uint32_t upto = r->done + r->chunk;

    store(m, r, upto);
    m->sum.prefill_tokens += r->chunk;
    r->done = upto;
    r->chunk = 0;
    if (r->done < r->tokens)
        return;
    start_decoding(m, r);
    tell_tokens(m, r, 1, true);
    if (r->state == DECODING && r->output == 1)
        finish(m, r);
}

static void end_decode(struct wp_model *m, struct wp_model_req *r)
{
    bool last = m->step == last_step(r);

    if (!m->conf.merge_tokens)
        tell_tokens(m, r, 1, false);
    else if (last)
        tell_tokens(m, r, r->output - 1, false);
    if (r->state == DECODING && last)
        finish(m, r);
}

/* Those whom the step's end concerns, decodes first.  A copy: callbacks may cancel any of them. */
static size_t gather(struct wp_model *m)
{
    bool each = !m->conf.merge_tokens || m->step == m->next_finish;
    size_t n = 0;

    WP_LIST_EACH(&m->decoding, at)
    {
        if (!each)
            break;
        m->batch[n++] = WP_CONTAINER(at, struct wp_model_req, link);
    }
    WP_LIST_EACH(&m->prefill, at)
    {
        struct wp_model_req *r = WP_CONTAINER(at, struct wp_model_req, link);

        if (r->chunk > 0)
            m->batch[n++] = r;
    }
    return n;
}

static void step_end(struct wp_model *m)
{
    bool some_finish;
    size_t n;

    m->busy = false;
    m->step++;
    m->sum.steps++;
    m->kv_tokens += m->n_decoding;
    m->sum.output_tokens += m->n_decoding;
    some_finish = m->step == m->next_finish;
    n = gather(m);
    for (size_t i = 0; i < n; i++) {
        if (m->batch[i]->state == DECODING)
            end_decode(m, m->batch[i]);
        else if (m->batch[i]->state == PREFILL)
            end_chunk(m, m->batch[i]);
    }
    if (some_finish || m->next_finish == m->step)
        find_next_finish(m);
}

/* ---- the interface ---- */

static int check_conf(const struct wp_model_conf *c, struct wp_err *err)
{
    if (c->block_size == 0)
        return wp_fail(err, WP_EINVAL, "want a block size of at least 1");
    if (c->tier_blocks[WP_GPU] == 0)
        return wp_fail(err, WP_EINVAL, "want at least 1 gpu block");
    if (c->profile.budget == 0)
        return wp_fail(err, WP_EINVAL, "want a step's budget of at least 1 token");
    if (c->profile.max_running == 0 || c->profile.max_running > RUNNING_MAX)
        return wp_fail(err, WP_EINVAL, "want 1 to %d running requests, got %u", RUNNING_MAX,
                       c->profile.max_running);
    if (!(c->profile.speed > 0))
        return wp_fail(err, WP_EINVAL, "want a speed above 0");
    return 0;
}

static double read_us(const struct wp_model_conf *c, double bytes_per_s)
{
    double bytes = (double)c->block_size * (double)c->profile.kv_bytes_per_token;

    return bytes_per_s > 0 ? 1e6 * bytes / bytes_per_s / c->profile.speed : 0;
}

int wp_model_create(struct wp_model **out, const struct wp_model_conf *conf,
                    const struct wp_model_ops *ops, void *model_arg, struct wp_err *err)
{
    struct wp_model *m;
    int rc = check_conf(conf, err);

    if (rc < 0)
        return wp_wrap(err, "engine model");
    m = wp_calloc(1, sizeof *m);
    if (!m)
        return wp_fail(err, WP_ENOMEM, "engine model: out of memory");
    m->conf = *conf;
    m->ops = *ops;
    m->arg = model_arg;
    m->wake_us = INFINITY;
    m->next_finish = UINT64_MAX;
    wp_list_init(&m->arriving);
    wp_list_init(&m->waiting);
    wp_list_init(&m->prefill);
    wp_list_init(&m->decoding);
    wp_list_init(&m->graves);
    rc = wp_tiers_init(&m->tiers, conf->tier_blocks, conf->secret, err);
    m->batch = wp_calloc(conf->profile.max_running, sizeof(struct wp_model_req *));
    if (rc == 0 && !m->batch)
        rc = wp_fail(err, WP_ENOMEM, "out of memory");
    if (rc < 0) {
        wp_model_destroy(m);
        return wp_wrap(err, "engine model");
    }
    m->tiers.read_us[WP_CPU] = read_us(conf, conf->profile.cpu_bytes_per_s);
    m->tiers.read_us[WP_DISK] = read_us(conf, conf->disk_bytes_per_s);
    m->tiers.on_block = on_tier_block;
    m->tiers.arg = m;
    *out = m;
    return 0;
}

void wp_model_destroy(struct wp_model *m)
{
    struct wp_list *at;

    if (!m)
        return;
    assert(!m->in_run);
    while ((at = wp_list_shift(&m->arriving)) || (at = wp_list_shift(&m->waiting)) ||
           (at = wp_list_shift(&m->prefill)) || (at = wp_list_shift(&m->decoding)))
        wp_free(WP_CONTAINER(at, struct wp_model_req, link));
    empty_graves(m);
    wp_tiers_fini(&m->tiers);
    wp_free(m->batch);
    wp_free(m);
}

static int check_request(const struct wp_model *m, size_t n, uint32_t tokens, uint32_t output,
                         struct wp_err *err)
{
    uint64_t blocks = blocks_of(m, (uint64_t)tokens + output), cap = m->conf.tier_blocks[WP_GPU];

    if (tokens == 0 || output == 0)
        return wp_fail(err, WP_EINVAL, "want a prompt and an output of at least 1 token");
    if (n > blocks_of(m, tokens))
        return wp_fail(err, WP_EINVAL, "want at most a hash a block, got %zu for %u tokens", n,
                       tokens);
    if (blocks > cap)
        return wp_fail(err, WP_ETOOBIG,
                       "%u prompt and %u output tokens can never fit into %llu blocks of %u",
                       tokens, output, (unsigned long long)cap, m->conf.block_size);
    return 0;
}

int wp_model_submit(struct wp_model *m, uint64_t now_us, const uint64_t chain[], size_t n,
                    uint32_t tokens, uint32_t output, void *req_arg, struct wp_model_req **out,
                    struct wp_err *err)
{
    struct wp_model_req *r;
    int rc = check_request(m, n, tokens, output, err);

    if (rc < 0)
        return rc;
    r = wp_malloc(sizeof *r + n * (sizeof r->chain[0] + sizeof r->held.slot[0]));
    if (!r)
        return wp_fail(err, WP_ENOMEM, "out of memory for a request of %u tokens", tokens);
    *r = (struct wp_model_req){
        .at_us = fmax((double)now_us, m->now_us),
        .tokens = tokens,
        .output = output,
        .arg = req_arg,
        .held = {.n = n, .chain = r->chain, .slot = (uint32_t *)(void *)&r->chain[n]},
    };
    if (n > 0) {
        memcpy(r->chain, chain, n * sizeof chain[0]);
        memset(r->held.slot, 0, n * sizeof r->held.slot[0]);
    }
    if (!wp_list_empty(&m->arriving)) /* in order of time, whatever the caller says */
        r->at_us = fmax(r->at_us, WP_CONTAINER(m->arriving.prev, struct wp_model_req, link)->at_us);
    wp_list_push(&m->arriving, &r->link);
    m->n_waiting++;
    if (out)
        *out = r;
    return 0;
}

void wp_model_cancel(struct wp_model *m, struct wp_model_req *r, uint64_t now_us)
{
    enum state was = r->state;

    if (was == GONE)
        return;
    if (was == DECODING)
        leave_decoding(m, r);
    bury(m, r);
    release(m, r);
    if (was == ARRIVING || was == WAITING)
        m->n_waiting--;
    else
        m->n_running--;
    if (was == DECODING && last_step(r) == m->next_finish)
        find_next_finish(m);
    if (!m->busy) /* the room may be what the next one waits for */
        m->wake_us = fmin(m->wake_us, fmax((double)now_us, m->now_us));
    if (!m->in_run)
        empty_graves(m);
}

uint32_t wp_model_cached(const struct wp_model_req *r, uint32_t tier[3])
{
    for (unsigned t = 0; tier && t < WP_TIERS; t++)
        tier[t] = r->cached[t];
    return r->cached[WP_GPU] + r->cached[WP_CPU] + r->cached[WP_DISK];
}

void wp_model_name_output(struct wp_model *m, struct wp_model_req *r, const uint64_t chain[],
                          size_t n)
{
    size_t from = r->tokens / m->conf.block_size;
    size_t most = ((size_t)r->tokens + r->output) / m->conf.block_size;

    assert(r->telling);
    if (n > most)
        n = most;
    while (n > from) /* the tail first: it is to go first */
        wp_tiers_leave(&m->tiers, &r->held, chain[--n]);
}

/* When something happens next; INFINITY: never. */
static double next_us(const struct wp_model *m)
{
    double at = m->busy ? m->end_us : m->wake_us;

    if (wp_list_empty(&m->arriving))
        return at;
    return fmin(at, WP_CONTAINER(m->arriving.next, struct wp_model_req, link)->at_us);
}

uint64_t wp_model_next_us(const struct wp_model *m)
{
    return whole_us(next_us(m));
}

static void take_arrivals(struct wp_model *m)
{
    WP_LIST_EACH(&m->arriving, at)
    {
        struct wp_model_req *r = WP_CONTAINER(at, struct wp_model_req, link);

        if (r->at_us > m->now_us)
            return;
        wp_list_del(at);
        wp_list_push(&m->waiting, at);
        r->state = WAITING;
    }
}

void wp_model_run(struct wp_model *m, uint64_t until_us)
{
    double at;

    assert(!m->in_run);
    m->in_run = true;
    while ((at = next_us(m)) <= (double)until_us) {
        m->now_us = fmax(m->now_us, at);
        if (m->busy && m->end_us <= at)
            step_end(m);
        take_arrivals(m);
        if (!m->busy)
            step_begin(m);
        empty_graves(m);
    }
    if (until_us < UINT64_MAX)
        m->now_us = fmax(m->now_us, (double)until_us);
    m->in_run = false;
}

void wp_model_reset_cache(struct wp_model *m)
{
    wp_tiers_reset(&m->tiers);
    m->stuck = false;
}

void wp_model_stats(const struct wp_model *m, struct wp_model_stats *s)
{
    *s = m->sum;
    s->running = m->n_running;
    s->waiting = m->n_waiting;
    s->decoding = m->n_decoding;
    for (unsigned t = 0; t < WP_TIERS; t++)
        s->tier_used[t] = m->tiers.tier[t].used;
    s->tier_used[WP_GPU] += m->tiers.reserved;
    s->pinned = m->tiers.tier[WP_GPU].pinned + m->tiers.reserved;
}
