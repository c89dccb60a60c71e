/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes out of the model goes to the clients: at each turn all that is due by the exact clock.
 * A stream passes each token on as an event, other answers wait for the last.  A job that breaks (a
 * fault, no memory) is doomed: it falls silent at once and is cut when the model has ended its
 * turn.
 */
#include "sim/jobs_impl.h"

#include "base/clock.h"
#include "index/identity.h"

void wp_job_doom(struct wp_job *j)
{
    if (!j->muted)
        wp_list_push(&j->engine->doomed, &j->link);
    j->muted = true;
}

/* Sends what was put into the engine's scratch buffer. */
void wp_job_send(struct wp_job *j, const struct wp_put *o)
{
    if (o->rc < 0)
        wp_job_doom(j);
    else
        wp_reply_body(j->visit->x, o->b->p, o->b->n);
}

struct wp_put wp_job_event(struct wp_job *j)
{
    j->engine->scratch.n = 0;
    return (struct wp_put){&j->engine->scratch, 0};
}

static const char *finish_of(const struct wp_seq *s)
{
    if (s->n < s->output)
        return NULL;
    return s->output < s->prompt->output ? "stop" : "length";
}

static struct wp_answer_seq seen(const struct wp_seq *s, size_t from)
{
    return (struct wp_answer_seq){s->index, s->prompt, s->token, s->n, from, finish_of(s)};
}

static void open_chat(struct wp_job *j)
{
    for (size_t i = 0; i < j->n_seq && !j->muted; i++) {
        struct wp_answer_seq a = seen(&j->seq[i], 0);
        struct wp_put o = wp_job_event(j);

        wp_answer_role(&o, &j->answer, &a);
        wp_job_send(j, &o);
    }
}

static void count_first(struct wp_seq *s, uint64_t at_us)
{
    struct wp_gauges *g = &s->job->rank->gauges;
    uint32_t tier[3] = {0}, n = (uint32_t)s->prompt->n;

    s->cached = wp_model_cached(s->in, tier);
    wp_count(g->queries, n);
    wp_count(g->hits, tier[0]);
    if (s->job->engine->cost.tier_blocks[1])
        wp_count(g->asked, n - tier[0]);
    wp_count(g->external, tier[1] + tier[2]);
    wp_count(g->prompt, n);
    wp_count(g->computed, n - s->cached);
    wp_count(g->local, s->cached);
    wp_count(g->cached, s->cached);
    for (size_t i = 0; i < 3; i++)
        wp_count(g->tier[i], tier[i]);
    wp_observe(g->ttft, (double)(at_us - s->job->arrived_us) * 1e-6);
    wp_observe(g->prompts, n);
}

static int append(struct wp_seq *s, uint32_t n)
{
    uint32_t cap = s->cap ? s->cap : 16;
    uint32_t *grown;

    while (cap < s->n + n)
        cap *= 2;
    if (cap > s->cap) {
        grown = wp_realloc(s->token, cap * sizeof *grown);
        if (!grown)
            return WP_ENOMEM;
        s->token = grown;
        s->cap = cap;
    }
    while (n--)
        s->token[s->n++] = wp_words_next(&s->words);
    return 0;
}

/* The tokens of the next block that is not named yet: the end of the prompt, then what was said. */
static void gather(const struct wp_seq *s, uint32_t block, uint32_t token[])
{
    const struct wp_job_names *names = s->names;
    size_t from = (size_t)s->named * block;

    for (size_t i = 0; i < block; i++) {
        size_t at = from + i;

        token[i] = at < names->n_tail ? names->tail[at] : s->token[at - names->n_tail];
    }
}

static int name_block(struct wp_seq *s)
{
    const struct wp_job_names *names = s->names;
    struct wp_engine *e = s->job->engine;
    uint32_t block = e->cost.block_size;
    const uint64_t *parent = s->named ? &s->chain : names->n ? &names->chain[names->n - 1] : NULL;
    struct wp_block *b = NULL;
    uint64_t local, chain;

    gather(s, block, e->block_token);
    wp_hash_tokens(e->block_token, block, block, s->job->hash_seed, &local, 1);
    chain = parent ? wp_hash_next(*parent, local) : local;
    if (e->announces) {
        b = wp_blocks_get(&e->blocks, chain, parent, local, e->block_token, &s->job->facts);
        if (!b)
            return WP_ENOMEM;
    }
    wp_model_name_block(s->job->rank->model, s->in, chain);
    wp_block_unref(&e->blocks, b); /* whoever holds it refers to it now */
    s->chain = chain;
    s->named++;
    return 0;
}

/* Whole blocks that end in generated tokens can be hit too, as soon as they are full: of all tokens
 * but the last, whose KV is not computed yet. */
static int name_blocks(struct wp_seq *s)
{
    uint32_t block = s->job->engine->cost.block_size;
    int rc = 0;

    while (rc == 0 && (s->names->n + s->named + 1) * block <= s->prompt->n + s->n - 1)
        rc = name_block(s);
    return rc;
}

static void on_tokens(void *arg, uint64_t at_us, uint32_t n, bool first)
{
    struct wp_seq *s = arg;
    struct wp_job *j = s->job;
    struct wp_gauges *g = &j->rank->gauges;
    uint32_t from = s->n;

    if (first)
        count_first(s, at_us);
    else
        wp_observe(g->itl, (double)(at_us - s->last_us) * 1e-6);
    if (j->tokens == 0)
        j->first_cached = s->cached;
    s->last_us = at_us;
    wp_count(g->generated, n);
    if (append(s, n) < 0 || name_blocks(s) < 0)
        wp_job_doom(j);
    j->tokens += n;
    if (j->req.stream && !j->muted) {
        struct wp_answer_seq a = seen(s, from);
        struct wp_put o;

        if (j->req.chat && !j->opened)
            open_chat(j);
        j->opened = true;
        o = wp_job_event(j);
        wp_answer_chunk(&o, &j->answer, &a);
        if (!j->muted)
            wp_job_send(j, &o);
    }
    if (j->tokens >= j->die_after)
        wp_job_doom(j);
}

static void reply_whole(struct wp_job *j, const struct wp_answer_usage *u)
{
    struct wp_answer_seq *all = wp_malloc(j->n_seq * sizeof *all);
    struct wp_put o = wp_job_event(j);

    if (!all)
        o.rc = WP_ENOMEM;
    for (size_t i = 0; all && i < j->n_seq; i++)
        all[i] = seen(&j->seq[i], 0);
    if (all)
        wp_answer_whole(&o, &j->answer, all, j->n_seq, u);
    if (o.rc < 0)
        wp_job_doom(j);
    else
        wp_reply(j->visit->x, 200, "application/json", NULL, 0, wp_buf_str(o.b));
    wp_free(all);
}

static void job_finish(struct wp_job *j)
{
    struct wp_answer_usage u = {0, j->tokens, j->first_cached};
    struct wp_put o;

    for (size_t i = 0; i < j->req.n_prompts; i++)
        u.prompt += j->req.prompt[i].n;
    if (!j->req.stream) {
        u.cached = j->seq[j->n_seq - 1].cached;
        reply_whole(j, &u);
        return;
    }
    o = wp_job_event(j);
    wp_answer_last(&o, &j->answer, &u);
    wp_job_send(j, &o);
    if (!j->muted)
        wp_reply_end(j->visit->x);
}

static void on_done(void *arg, uint64_t at_us)
{
    struct wp_seq *s = arg;
    struct wp_job *j = s->job;
    struct wp_gauges *g = &j->rank->gauges;

    s->in = NULL;
    wp_observe(g->e2e, (double)(at_us - j->arrived_us) * 1e-6);
    wp_observe(g->outputs, s->n);
    wp_count(s->output < s->prompt->output ? g->by_stop : g->by_length, 1);
    if (--j->left == 0 && !j->muted)
        job_finish(j);
}

const struct wp_model_ops wp_engine_model_ops = {
    .on_tokens = on_tokens,
    .on_done = on_done,
    .on_block = wp_rank_on_block,
    .on_step = wp_rank_on_step,
};

void wp_job_leave_model(struct wp_job *j)
{
    for (size_t i = 0; i < j->n_seq; i++)
        if (j->seq[i].in) {
            wp_model_cancel(j->rank->model, j->seq[i].in, j->engine->told_us);
            j->seq[i].in = NULL;
            wp_count(j->rank->gauges.by_abort, 1);
        }
}

void wp_engine_turn(struct wp_engine *e)
{
    struct wp_list *it;
    uint64_t next;

    e->told_us = wp_now_us() - e->born_us;
    wp_ranks_run(e, e->told_us);
    while ((it = wp_list_shift(&e->doomed))) {
        struct wp_job *j = WP_CONTAINER(it, struct wp_job, link);

        wp_job_leave_model(j);
        wp_reply_abort(j->visit->x);
    }
    next = wp_ranks_next(e);
    if (next == UINT64_MAX)
        wp_timer_stop(e->loop, &e->clock);
    else
        wp_timer_at(e->loop, &e->clock, e->born_us + next);
}

void wp_engine_on_clock(struct wp_timer *t)
{
    wp_engine_turn(t->arg);
}
