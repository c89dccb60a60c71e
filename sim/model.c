/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/model.h"
#include "base/mem.h"
#include "sim/model_step.h"

#include <assert.h>

enum { RUNNING_MAX = 65536 };

static void on_tier_block(void *arg, uint64_t hash, enum wp_tier tier, bool stored)
{
    struct wp_model *m = arg;

    if (m->ops.on_block)
        m->ops.on_block(m->arg, wp_model_whole_us(m->now_us), hash, (uint8_t)tier, stored);
}

static void empty_graves(struct wp_model *m)
{
    struct wp_list *at;

    while ((at = wp_list_shift(&m->graves)))
        wp_free(WP_CONTAINER(at, struct wp_model_req, link));
}

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
    m->tiers.copies = conf->copies;
    m->tiers.store_first = conf->store_first;
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
    uint64_t blocks = wp_model_blocks(m, (uint64_t)tokens + output),
             cap = m->conf.tier_blocks[WP_GPU];

    if (tokens == 0 || output == 0)
        return wp_fail(err, WP_EINVAL, "want a prompt and an output of at least 1 token");
    if (n > wp_model_blocks(m, tokens))
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
    size_t slots = n + ((size_t)tokens + output) / m->conf.block_size - tokens / m->conf.block_size;
    size_t usable = m->conf.copies ? (tokens - 1) / m->conf.block_size : n;
    struct wp_model_req *r;
    int rc = check_request(m, n, tokens, output, err);

    if (rc < 0)
        return rc;
    r = wp_malloc(sizeof *r + n * sizeof r->chain[0] + slots * sizeof r->held.slot[0]);
    if (!r)
        return wp_fail(err, WP_ENOMEM, "out of memory for a request of %u tokens", tokens);
    *r = (struct wp_model_req){
        .at_us = fmax((double)now_us, m->now_us),
        .tokens = tokens,
        .output = output,
        .arg = req_arg,
        .held = {.n = n,
                 .usable = usable < n ? usable : n,
                 .chain = r->chain,
                 .slot = (uint32_t *)(void *)&r->chain[n]},
    };
    if (n > 0)
        memcpy(r->chain, chain, n * sizeof chain[0]);
    if (slots > 0)
        memset(r->held.slot, 0, slots * sizeof r->held.slot[0]);
    if (!wp_list_empty(&m->arriving)) /* in order of time, whatever the caller says */
        r->at_us = fmax(r->at_us, WP_CONTAINER(m->arriving.prev, struct wp_model_req, link)->at_us);
    wp_list_push(&m->arriving, &r->link);
    m->n_waiting++;
    wp_model_reckon(m, r, 0);
    if (out)
        *out = r;
    return 0;
}

void wp_model_cancel(struct wp_model *m, struct wp_model_req *r, uint64_t now_us)
{
    if (r->state == GONE)
        return;
    wp_model_drop(m, r);
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

void wp_model_name_block(struct wp_model *m, struct wp_model_req *r, uint64_t hash)
{
    size_t most = ((size_t)r->tokens + r->output) / m->conf.block_size;

    assert(m->in_run && (r->state == DECODING || r->telling));
    if (r->tokens / m->conf.block_size + r->held.named < most)
        wp_tiers_name(&m->tiers, &r->held, hash);
}

void wp_model_name_output(struct wp_model *m, struct wp_model_req *r, const uint64_t chain[],
                          size_t n)
{
    size_t from = r->tokens / m->conf.block_size + r->held.named;

    for (size_t i = from; i < n; i++)
        wp_model_name_block(m, r, chain[i]);
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
    return wp_model_whole_us(next_us(m));
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
            wp_model_step_end(m);
        take_arrivals(m);
        if (!m->busy)
            wp_model_step_begin(m);
        empty_graves(m);
    }
    if (until_us < UINT64_MAX)
        m->now_us = fmax(m->now_us, (double)until_us);
    m->in_run = false;
}

void wp_model_reset_cache(struct wp_model *m)
{
    struct wp_list *running[] = {&m->prefill, &m->decoding};

    wp_tiers_reset(&m->tiers);
    m->stuck = false;
    for (size_t i = 0; i < 2; i++) {
        WP_LIST_EACH(running[i], at)
        WP_CONTAINER(at, struct wp_model_req, link)->held.mute = true;
    }
}

void wp_model_each_block(const struct wp_model *m, uint8_t tier,
                         void (*fn)(void *arg, uint64_t hash, uint32_t copies), void *arg)
{
    wp_cache_each(&m->tiers.tier[tier], fn, arg);
}

void wp_model_stats(const struct wp_model *m, struct wp_model_stats *s)
{
    *s = m->sum;
    s->running = m->n_running;
    s->waiting = m->n_waiting;
    s->decoding = m->n_decoding;
    s->todo_us = fmax(m->todo_us, 0);
    s->kv_tokens = m->kv_tokens;
    for (unsigned t = 0; t < WP_TIERS; t++)
        s->tier_used[t] = m->tiers.tier[t].used;
    s->tier_used[WP_GPU] += m->tiers.reserved;
    s->pinned = m->tiers.tier[WP_GPU].pinned + m->tiers.reserved;
}
