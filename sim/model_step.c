/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/model_step.h"

/* ---- a step begins ---- */

static void count_hits(struct wp_model *m, struct wp_model_req *r)
{
    uint64_t tokens = 0, most = r->tokens - 1;

    for (unsigned t = 0; t < WP_TIERS; t++) {
        r->cached[t] = r->held.hit[t] * m->conf.block_size;
        tokens += r->cached[t];
    }
    if (tokens > most) { /* the last token is always computed; a partial block has fewer */
        if (m->conf.whole_hits)
            most -= most % m->conf.block_size;
        r->cached[r->held.last] -= (uint32_t)(tokens - most);
        tokens = most;
    }
    r->done = (uint32_t)tokens;
    wp_model_reckon(m, r, r->done);
    m->sum.cached_tokens += tokens;
}

/* False: r does not fit now. */
static bool admit(struct wp_model *m, struct wp_model_req *r)
{
    m->tiers.now_us = m->now_us;
    if (!wp_tiers_take(&m->tiers, &r->held, wp_model_blocks(m, (uint64_t)r->tokens + r->output)))
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
        if (r->kept)
            continue;
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

void wp_model_step_begin(struct wp_model *m)
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
        m->ops.on_tokens(r->arg, wp_model_whole_us(m->now_us), n, first);
}

static void finish(struct wp_model *m, struct wp_model_req *r)
{
    leave_decoding(m, r);
    bury(m, r);
    m->n_running--;
    r->telling = true;
    if (m->ops.on_done)
        m->ops.on_done(r->arg, wp_model_whole_us(m->now_us));
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
    wp_model_reckon(m, r, upto);
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

void wp_model_step_end(struct wp_model *m)
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
    if (m->ops.on_step)
        m->ops.on_step(m->arg, wp_model_whole_us(m->now_us));
}

void wp_model_drop(struct wp_model *m, struct wp_model_req *r)
{
    enum state was = r->state;

    if (was == DECODING)
        leave_decoding(m, r);
    wp_model_reckon(m, r, r->tokens);
    bury(m, r);
    release(m, r);
    if (was == ARRIVING || was == WAITING)
        m->n_waiting--;
    else
        m->n_running--;
    if (was == DECODING && last_step(r) == m->next_finish)
        find_next_finish(m);
}
