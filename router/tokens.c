/* SPDX-License-Identifier: Apache-2.0 */
#include "router/tokens.h"

#include "base/rng.h"

struct tokenizer {
    struct wp_list link;
    struct wp_config_tokenizer conf; /* kind is model's tail */
    struct wp_tokens *tokens;
    char *kind;
    char model[];
};

struct wp_tokenizers {
    struct wp_gate *gate;
    struct wp_list all;
    unsigned open; /* tokenizers that have not closed */
    bool closing;
    struct wp_timer end;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- workers ---- */

static bool pick(void *arg, struct wp_str model, const uint64_t but[], size_t n,
                 struct wp_tokens_worker *out)
{
    struct wp_tokenizers *ts = arg;
    struct wp_worker *w = wp_fleet_idlest(ts->gate->router->fleet, model, but, n);

    if (!w)
        return false;
    *out = (struct wp_tokens_worker){
        .host = w->url.host,
        .port = w->url.port,
        .tls = w->tls,
        .base = w->url.path,
        .bearer = wp_str_of(w->conf.api_key),
        .key = w->key,
        .who = w,
    };
    return true;
}

static void drop(void *arg, void *who)
{
    (void)arg;
    wp_worker_unref(who);
}

/* ---- which there are ---- */

static void on_end(struct wp_timer *t)
{
    struct wp_tokenizers *ts = t->arg;
    void (*closed)(void *) = ts->closed;
    void *arg = ts->closed_arg;

    wp_free(ts);
    if (closed)
        closed(arg);
}

static void on_tokenizer_closed(void *arg)
{
    struct wp_tokenizers *ts = arg;

    if (--ts->open == 0 && ts->closing)
        wp_timer_in(&ts->gate->loop, &ts->end, 0);
}

static void remove_one(struct wp_tokenizers *ts, struct tokenizer *one)
{
    wp_list_del(&one->link);
    wp_tokens_destroy(one->tokens, on_tokenizer_closed, ts);
    wp_free(one);
}

static struct tokenizer *find(const struct wp_tokenizers *ts, struct wp_str model)
{
    WP_LIST_EACH(&ts->all, at)
    if (wp_str_is(model, WP_CONTAINER(at, struct tokenizer, link)->model))
        return WP_CONTAINER(at, struct tokenizer, link);
    return NULL;
}

static const struct wp_config_model *configured(const struct wp_tokenizers *ts, const char *model)
{
    const struct wp_config *conf = wp_gate_conf(ts->gate);

    for (size_t i = 0; i < conf->n_models; i++)
        if (strcmp(conf->models[i].name, model) == 0)
            return &conf->models[i];
    return NULL;
}

static bool same(const struct wp_config_tokenizer *a, const struct wp_config_tokenizer *b)
{
    return strcmp(a->kind, b->kind) == 0 && a->limit_us == b->limit_us &&
           a->hedge_us == b->hedge_us && a->per_mib_us == b->per_mib_us &&
           a->cache_bytes == b->cache_bytes;
}

static void add(struct wp_tokenizers *ts, const struct wp_config_model *m)
{
    struct wp_router *r = ts->gate->router;
    size_t n = strlen(m->name) + 1, n_kind = strlen(m->tokenizer.kind) + 1;
    struct tokenizer *one = wp_calloc(1, sizeof *one + n + n_kind);
    struct wp_err err = WP_ERR_INIT;
    struct wp_tokens_conf conf = {
        .client = ts->gate->client,
        .limit_us = m->tokenizer.limit_us,
        .hedge_us = m->tokenizer.hedge_us,
        .per_mib_us = m->tokenizer.per_mib_us,
        .cache_bytes = m->tokenizer.cache_bytes / wp_gate_conf(ts->gate)->threads,
        .secret = wp_rng_secret(),
        .pick = pick,
        .drop = drop,
        .arg = ts,
        .results = r->count.tokens,
        .calls = r->count.tokens_calls,
    };

    if (!one || wp_tokens_create(&one->tokens, m->tokenizer.kind, &conf, &err) < 0) {
        wp_log(WP_WARN, "tokens", "model=%s goes by bytes: %s", m->name,
               one ? err.text : "out of memory");
        wp_free(one);
        return;
    }
    memcpy(one->model, m->name, n);
    one->kind = memcpy(one->model + n, m->tokenizer.kind, n_kind);
    one->conf = m->tokenizer;
    one->conf.kind = one->kind;
    wp_list_push(&ts->all, &one->link);
    ts->open++;
}

void wp_tokenizers_configure(struct wp_tokenizers *ts)
{
    const struct wp_config *conf = wp_gate_conf(ts->gate);

    WP_LIST_EACH(&ts->all, at)
    {
        struct tokenizer *one = WP_CONTAINER(at, struct tokenizer, link);
        const struct wp_config_model *m = configured(ts, one->model);

        if (!m || !same(&m->tokenizer, &one->conf))
            remove_one(ts, one);
    }
    for (size_t i = 0; i < conf->n_models; i++)
        if (!find(ts, wp_str_of(conf->models[i].name)))
            add(ts, &conf->models[i]);
}

uint64_t wp_tokenizers_limit(struct wp_tokenizers *ts, uint64_t bytes)
{
    uint64_t all = 0, taken = 0;

    WP_LIST_EACH(&ts->all, at)
    all += WP_CONTAINER(at, struct tokenizer, link)->conf.cache_bytes;
    WP_LIST_EACH(&ts->all, at)
    {
        struct tokenizer *one = WP_CONTAINER(at, struct tokenizer, link);
        double share = all ? (double)bytes * ((double)one->conf.cache_bytes / (double)all) : 0;

        taken += wp_tokens_limit(one->tokens, share < 1e18 ? (size_t)share : SIZE_MAX);
    }
    return taken;
}

int wp_tokenizers_create(struct wp_tokenizers **out, struct wp_gate *g, struct wp_err *err)
{
    struct wp_tokenizers *ts = wp_calloc(1, sizeof *ts);

    if (!ts)
        return wp_fail(err, WP_ENOMEM, "tokenizers: out of memory");
    ts->gate = g;
    wp_list_init(&ts->all);
    wp_timer_init(&ts->end, on_end, ts);
    wp_tokenizers_configure(ts);
    *out = ts;
    return 0;
}

void wp_tokenizers_destroy(struct wp_tokenizers *ts, void (*closed)(void *arg), void *arg)
{
    if (!ts)
        return;
    ts->closed = closed;
    ts->closed_arg = arg;
    ts->closing = true;
    WP_LIST_EACH(&ts->all, at)
    remove_one(ts, WP_CONTAINER(at, struct tokenizer, link));
    if (ts->open == 0)
        wp_timer_in(&ts->gate->loop, &ts->end, 0);
}

/* ---- questions ---- */

enum wp_tokens_result wp_tokenizers_ask(struct wp_tokenizers *ts, struct wp_asked *a,
                                        enum wp_route_kind kind, struct wp_arena *arena,
                                        struct wp_tokens_wait *w, wp_tokens_fn fn)
{
    const struct wp_body *b = &a->json;
    struct wp_tokens_prompt p = {
        .chat = kind == WP_ROUTE_CHAT,
        .model = a->model.name,
        .prompt = b->prompt,
        .messages = b->messages,
        .tools = b->tools,
        .chat_template = b->chat_template,
        .chat_template_kwargs = b->chat_template_kwargs,
        .documents = b->documents,
        .reasoning_effort = b->reasoning_effort,
        .add_generation_prompt = b->add_generation_prompt,
        .continue_final_message = b->continue_final_message,
        .add_special_tokens = b->add_special_tokens,
        .truncate_prompt_tokens = b->truncate_prompt_tokens,
        .prompt_embeds = b->prompt_embeds,
    };
    struct tokenizer *one;
    struct wp_blob *now;
    enum wp_tokens_result r;

    if (a->prompt.kind != WP_PROMPT_BYTES ||
        (kind != WP_ROUTE_CHAT && kind != WP_ROUTE_COMPLETIONS))
        return WP_TOKENS_BYTES;
    one = ts ? find(ts, a->model.base) : NULL;
    if (!one)
        return WP_TOKENS_BYTES;
    if (!p.chat &&
        p.prompt.kind == WP_JSON_ARRAY) { /* one prompt, in a list: /tokenize wants the prompt */
        struct wp_json first = {0};

        wp_json_each(p.prompt, &first);
        p.prompt = first;
    }
    r = wp_tokens_ask(one->tokens, &p, w, fn, &now);
    wp_tokenizers_take(ts, a, now, arena);
    wp_blob_unref(now);
    return r;
}

void wp_tokenizers_take(struct wp_tokenizers *ts, struct wp_asked *a, const struct wp_blob *tokens,
                        struct wp_arena *arena)
{
    size_t bytes = a->prompt.bytes.n, n;

    if (!tokens)
        return;
    n = tokens->n / sizeof(uint32_t);
    wp_ask_tokens(a, (const uint32_t *)(const void *)tokens->p, n, arena);
    wp_fleet_learn_tokens(ts->gate->router->fleet, a->model.base, bytes,
                          n); /* for those that have to go without */
}
