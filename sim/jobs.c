/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's life: refused at once, or its sequences (one a prompt and choice) go into the model and
 * turns.c speaks for them.  The exchange's end is the job's: what is still in the model then is
 * cancelled.  A stalled job never enters the model.
 */
#include "sim/jobs_impl.h"

#include "base/clock.h"
#include "index/identity.h"
#include "sim/schema.h"

#include <stdio.h>
#include <xxhash.h>

static void job_free(struct wp_job *j)
{
    for (size_t i = 0; j->seq && i < j->n_seq; i++)
        wp_free(j->seq[i].token);
    for (size_t i = 0; j->names && i < j->req.n_prompts; i++) {
        for (size_t k = 0; k < j->names[i].known; k++)
            wp_block_unref(&j->engine->blocks,
                           wp_blocks_find(&j->engine->blocks, j->names[i].chain[k]));
        wp_free(j->names[i].chain);
        wp_free(j->names[i].tail);
    }
    wp_free(j->names);
    wp_free(j->seq);
    wp_free((void *)j->answer.id.p);
    wp_oai_fini(&j->req);
    wp_list_del(&j->link);
    wp_free(j);
}

void wp_job_over(struct wp_job *j)
{
    struct wp_engine *e = j->engine;

    j->muted = true;
    if (j->stalled)
        j->rank->stalled--;
    if (j->left) {
        wp_engine_turn(e); /* what was due before the client went has happened */
        wp_job_leave_model(j);
        wp_engine_turn(e);
    }
    job_free(j);
}

/* With events: what is announced of a block must be known when it is stored. */
static int know_blocks(struct wp_job *j, const struct wp_oai_prompt *p, struct wp_job_names *names,
                       const uint64_t local[])
{
    struct wp_engine *e = j->engine;

    for (; e->announces && names->known < names->n; names->known++) {
        size_t i = names->known;

        if (!wp_blocks_get(&e->blocks, names->chain[i], i ? &names->chain[i - 1] : NULL, local[i],
                           p->token + i * e->cost.block_size, &j->facts))
            return WP_ENOMEM;
    }
    return 0;
}

static int name_prompt(struct wp_job *j, const struct wp_oai_prompt *p, struct wp_job_names *names)
{
    uint32_t block = j->engine->cost.block_size;
    uint64_t *local;
    int rc;

    names->n = p->n / block;
    names->n_tail = p->n % block;
    names->chain = wp_malloc(names->n * sizeof *names->chain);
    names->tail = wp_malloc(names->n_tail * sizeof *names->tail);
    local = wp_malloc(names->n * sizeof *local);
    if (!names->chain || !names->tail || !local) {
        wp_free(local);
        return WP_ENOMEM;
    }
    if (names->n_tail)
        memcpy(names->tail, p->token + names->n * block, names->n_tail * sizeof *names->tail);
    wp_hash_tokens(p->token, p->n, block, j->hash_seed, local, names->n);
    wp_hash_chain(local, names->n, names->chain);
    names->hash = XXH3_64bits(p->token, p->n * sizeof *p->token);
    rc = know_blocks(j, p, names, local);
    wp_free(local);
    return rc;
}

/* Where an answer to which nobody set an end ends by itself. */
static uint32_t natural_end(const struct wp_job_names *names, uint32_t choice)
{
    struct wp_rng r = {names->hash + choice};

    return 16 + (uint32_t)wp_rng_below(&r, 240);
}

static int make_seqs(struct wp_job *j)
{
    const struct wp_oai_req *r = &j->req;
    uint64_t seed = j->engine->seed + (r->seeded ? r->seed : 0);

    j->names = wp_calloc(r->n_prompts, sizeof *j->names);
    j->seq = wp_calloc(r->n_prompts * r->n, sizeof *j->seq);
    if (!j->names || !j->seq)
        return WP_ENOMEM;
    j->n_seq = r->n_prompts * r->n;
    for (size_t i = 0; i < j->n_seq; i++) {
        struct wp_seq *s = &j->seq[i];
        uint32_t choice = (uint32_t)(i % r->n);

        s->job = j;
        s->index = (uint32_t)i;
        s->prompt = &r->prompt[i / r->n];
        s->names = &j->names[i / r->n];
        if (choice == 0 && name_prompt(j, s->prompt, &j->names[i / r->n]) < 0)
            return WP_ENOMEM;
        s->output = s->prompt->output;
        if (r->natural && natural_end(s->names, choice) < s->output)
            s->output = natural_end(s->names, choice);
        wp_words_init(&s->words, seed, s->names->hash, choice);
    }
    return 0;
}

static int make_id(struct wp_job *j, const struct wp_head *head)
{
    struct wp_str given = wp_head_get(head, "X-Request-Id");
    struct wp_buf id = {0};
    int rc = wp_buf_adds(&id, j->req.chat ? "chatcmpl-" : "cmpl-");

    if (!given.n)
        given = j->req.request_id;
    if (rc == 0 && given.n)
        rc = wp_buf_add(&id, given.p, given.n);
    else if (rc == 0)
        rc = wp_buf_printf(&id, "%016llx", (unsigned long long)wp_rng_next(&j->engine->ids));
    j->answer = (struct wp_answer){
        &j->req,
        j->facts.adapter ? j->facts.adapter : j->engine->limits.model,
        j->engine->fingerprint,
        wp_buf_str(&id),
        wp_wall_us() / 1000000,
    };
    return rc;
}

static int choose_rank(struct wp_job *j, const struct wp_head *head, struct wp_buf *answer)
{
    struct wp_engine *e = j->engine;
    int64_t rank;

    if (!wp_str_i64(wp_str_trim(wp_head_get(head, "X-data-parallel-rank")), &rank)) {
        j->rank = wp_ranks_least(e);
        return 0;
    }
    if (rank < 0 || rank >= e->n_ranks)
        return wp_oai_error(answer, 400, "BadRequestError", NULL,
                            "data_parallel_rank %lld is out of range [0, %u).", (long long)rank,
                            e->n_ranks);
    j->rank = &e->rank[rank];
    return 0;
}

/* Everything short of the model.  Returns 0, a status with its body in answer, or a negative code.
 */
static int job_read(struct wp_job *j, struct wp_buf *answer)
{
    const struct wp_head *head = j->visit->x->head;
    struct wp_str type = wp_head_get(head, "Content-Type"), body = wp_buf_str(&j->visit->body);
    int rc;

    if (j->req.chat)
        rc = wp_oai_chat(&j->req, &j->engine->limits, type, body, answer);
    else
        rc = wp_oai_completion(&j->req, &j->engine->limits, type, body, answer);
    if (rc == 0)
        rc = choose_rank(j, head, answer);
    if (rc == 0) {
        if (j->req.adapter)
            j->facts.adapter = j->engine->adapter[j->req.adapter - 1];
        j->facts.adapter_id = j->req.adapter;
        j->facts.salt = j->req.salt;
        j->hash_seed = wp_hash_seed(wp_str_of(j->facts.adapter), j->req.salt);
        rc = make_seqs(j);
    }
    if (rc == 0)
        rc = make_id(j, head);
    if (rc == 0 && !j->req.echo && !j->req.return_ids && j->req.prompt_logprobs < 0)
        wp_oai_drop_tokens(&j->req);
    return rc;
}

static int submit(struct wp_job *j, struct wp_buf *answer)
{
    struct wp_engine *e = j->engine;
    struct wp_err err = WP_ERR_INIT;
    int rc = 0;

    wp_engine_turn(e);
    j->arrived_us = e->told_us;
    for (size_t i = 0; i < j->n_seq && rc == 0; i++) {
        struct wp_seq *s = &j->seq[i];

        rc = wp_model_submit(j->rank->model, e->told_us, s->names->chain, s->names->n,
                             (uint32_t)s->prompt->n, s->output, s, &s->in, &err);
        j->left += rc == 0;
    }
    if (rc < 0) {
        wp_job_leave_model(j);
        j->left = 0;
    }
    return rc == WP_ETOOBIG ? wp_oai_error(answer, 400, "BadRequestError", NULL, "%s", err.text)
                            : rc;
}

static void reply_head(struct wp_visit *v)
{
    static const struct wp_field sse = {{"Content-Type", 12},
                                        {"text/event-stream; charset=utf-8", 32}};

    wp_reply_head(v->x, 200, (struct wp_str){0}, &sse, 1, -1);
}

static void reply_refusal(struct wp_visit *v, int rc, struct wp_buf *answer)
{
    if (rc < 0) {
        answer->n = 0;
        rc = wp_oai_error(answer, 500, "InternalServerError", NULL, "%s", wp_strerror(rc));
    }
    wp_reply(v->x, rc < 0 ? 500 : rc, "application/json", NULL, 0, wp_buf_str(answer));
}

static void fail_as_told(struct wp_visit *v, const struct wp_fault *f)
{
    struct wp_buf answer = {0};
    char after[24];
    struct wp_field field = {WP_STR("Retry-After"), {after, 0}};
    int status = (int)f->value;

    if (f->kind == WP_FAULT_RESET) {
        wp_reply_abort(v->x);
        return;
    }
    field.value.n = (size_t)snprintf(after, sizeof after, "%lld", (long long)f->retry_after);
    wp_oai_error(&answer, status,
                 status == 429   ? "RateLimitError"
                 : status == 503 ? "ServiceUnavailableError"
                                 : "InternalServerError",
                 NULL, "This answer was asked for with --fault.");
    wp_reply(v->x, status, "application/json", &field, f->retry_after >= 0, wp_buf_str(&answer));
    wp_buf_fini(&answer);
}

static void error_first(struct wp_job *j)
{
    struct wp_put o = wp_job_event(j);

    wp_put(&o, "data: ");
    if (o.rc == 0)
        o.rc =
            wp_oai_error(o.b, 500, "InternalServerError", NULL, "EngineCore encountered an issue.");
    if (o.rc > 0)
        o.rc = 0;
    wp_put(&o, "\n\ndata: [DONE]\n\n");
    reply_head(j->visit);
    wp_job_send(j, &o);
    wp_reply_end(j->visit->x);
}

/* Does a fault take this good request?  True: it is dealt with. */
static bool struck(struct wp_job *j)
{
    struct wp_engine *e = j->engine;
    uint64_t tokens = 0;
    struct wp_fault *f;

    for (size_t i = 0; i < j->req.n_prompts; i++)
        tokens += j->req.prompt[i].n;
    f = wp_fault_strike(e->fault, e->n_faults, WP_FAULT_STALL, WP_FAULT_DIE_AFTER, tokens);
    switch (f ? f->kind : WP_FAULT_NONE) {
    case WP_FAULT_STALL:
    case WP_FAULT_STALL_PREFILL:
        j->stalled = true;
        j->rank->stalled++;
        return true;
    case WP_FAULT_ERROR_FIRST:
        error_first(j);
        return true;
    case WP_FAULT_DIE_AFTER:
        j->die_after = f->value;
        return false;
    default:
        return false;
    }
}

void wp_job_start(struct wp_visit *v, bool chat)
{
    struct wp_engine *e = v->engine;
    struct wp_fault *f = wp_fault_strike(e->fault, e->n_faults, WP_FAULT_RESET, WP_FAULT_STATUS, 0);
    struct wp_job *j = f ? NULL : wp_calloc(1, sizeof *j);
    struct wp_buf answer = {0};
    int rc = j ? 0 : WP_ENOMEM;

    if (f) {
        fail_as_told(v, f);
        return;
    }
    if (j) {
        wp_list_init(&j->link);
        j->visit = v;
        j->engine = e;
        j->req.chat = chat;
        j->die_after = UINT64_MAX;
        rc = job_read(j, &answer);
    }
    if (rc == 0) {
        v->job = j;
        wp_buf_fini(&v->body);
        v->body = (struct wp_buf){0};
        if (struck(j))
            return;
        rc = submit(j, &answer);
    }
    if (rc != 0) {
        v->job = NULL;
        reply_refusal(v, rc, &answer);
        wp_buf_fini(&answer);
        if (j)
            job_free(j);
        return;
    }
    if (j->req.stream)
        reply_head(v);
    if (j->die_after == 0)
        wp_job_doom(j);
    wp_engine_turn(e);
}
