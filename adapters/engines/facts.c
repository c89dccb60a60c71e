/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/engines/facts.h"

#include "adapters/engines/prom.h"
#include "base/mem.h"
#include "index/identity.h"
#include "net/json.h"

#include <math.h>

/* Beyond these a page talks nonsense, and what it says is unknown. */
#define KV_TOKENS_MAX (UINT64_C(1) << 40)
static const double requests_max = 1e9;

void wp_facts_init(struct wp_engine_facts *f)
{
    *f = (struct wp_engine_facts){.running = -1, .waiting = -1, .kv_usage = -1};
}

void wp_engine_facts_fini(struct wp_engine_facts *f)
{
    for (size_t i = 0; i < f->n_models; i++) {
        wp_free(f->model[i].name);
        wp_free(f->model[i].parent);
    }
    wp_free(f->model);
    f->model = NULL;
    f->n_models = 0;
}

/* *out stays NULL when v is no usable name.  Errors: WP_ENOMEM. */
static int text_of(struct wp_json v, char **out)
{
    char buf[512];
    long n = wp_json_text(v, buf, sizeof buf);

    *out = NULL;
    if (n <= 0 || memchr(buf, 0, (size_t)n))
        return 0;
    *out = wp_strndup(buf, (size_t)n);
    return *out ? 0 : WP_ENOMEM;
}

/* Of a text of any length, as it stands in the page; 0: none. */
static uint64_t hash_of(struct wp_json v)
{
    return v.kind == WP_JSON_STRING && v.n > 2 ? wp_hash_item((struct wp_str){v.p, v.n}) | 1 : 0;
}

static int take_model(struct wp_engine_facts *f, struct wp_json entry)
{
    static const char *const names[] = {"id", "parent", "max_model_len", "root"};
    struct wp_engine_model *out = &f->model[f->n_models];
    struct wp_json m[4];
    uint64_t len;

    if (!wp_json_find(entry, names, 4, m))
        return 0;
    if (text_of(m[0], &out->name) < 0)
        return WP_ENOMEM;
    if (!out->name)
        return 0; /* an entry without a name is nobody's model */
    if (text_of(m[1], &out->parent) < 0) {
        wp_free(out->name);
        return WP_ENOMEM;
    }
    out->max_len = wp_json_u64(m[2], &len) && len <= UINT32_MAX ? (uint32_t)len : 0;
    out->root = out->parent ? hash_of(m[3]) : 0;
    f->n_models++;
    return 0;
}

int wp_facts_models(struct wp_engine_facts *f, struct wp_str page)
{
    static const char *const names[] = {"data"};
    struct wp_json data, at = {0};
    struct wp_err err;

    if (wp_json_members(page, names, 1, &data, &err) < 0 || data.kind != WP_JSON_ARRAY)
        return WP_EPROTO;
    wp_engine_facts_fini(f);
    f->model = wp_calloc(WP_ENGINE_MODELS_MAX, sizeof *f->model);
    if (!f->model)
        return WP_ENOMEM;
    while (f->n_models < WP_ENGINE_MODELS_MAX && wp_json_each(data, &at))
        if (take_model(f, at) < 0) { /* a list that lost entries would look like models that went */
            wp_engine_facts_fini(f);
            return WP_ENOMEM;
        }
    f->models_known = true;
    return 0;
}

static void add_known(double *sum, double x)
{
    if (x >= 0 && x <= requests_max)
        *sum = (*sum < 0 ? 0 : *sum) + x;
}

static uint64_t label_number(const struct wp_prom *p, const char *name)
{
    char text[64];
    uint64_t x;

    return wp_prom_label(p, name, text, sizeof text) && wp_str_u64(wp_str_of(text), &x) ? x : 0; /* may say None */
}

/* What the series of vllm:cache_config_info say, one for each rank. */
struct cache_config {
    unsigned ranks;
    uint64_t blocks, host; /* num_gpu_blocks: in every series the sum over the ranks (0.23, 0.32); num_cpu_blocks */
    uint64_t tokens;       /* kv_cache_size_tokens: one rank's, from 0.32 on, and fewer than the blocks of hybrid models have */
};

static void take_cache_config(struct wp_engine_facts *f, struct cache_config *c, const struct wp_prom *p)
{
    uint64_t size = label_number(p, "block_size");

    if (size && size <= 65536)
        f->block_size = (uint32_t)size;
    c->ranks++;
    c->blocks = label_number(p, "num_gpu_blocks");
    c->host = label_number(p, "num_cpu_blocks");
    c->tokens = label_number(p, "kv_cache_size_tokens");
}

static uint64_t kv_tokens_of(const struct cache_config *c, uint32_t block_size)
{
    uint64_t tokens = c->tokens <= KV_TOKENS_MAX ? c->tokens : 0;

    if (!block_size)
        return tokens;
    if (!tokens && c->ranks && c->blocks <= KV_TOKENS_MAX / block_size)
        tokens = block_size * (c->blocks / c->ranks);
    /* What host memory keeps is the engine's to bring back: affinity must outlive the GPU's share of the cache. */
    if (tokens && c->host <= KV_TOKENS_MAX / block_size)
        tokens += block_size * c->host;
    return tokens;
}

/* One name, and for every rank three labelled series in any order.  An engine sleeps when one of its ranks does. */
static void sleep_state(struct wp_engine_facts *f, const struct wp_prom *p)
{
    char state[32];

    if (!wp_prom_label(p, "sleep_state", state, sizeof state))
        f->sleeping |= p->value > 0;
    else if (strcmp(state, "awake") == 0)
        f->sleeping |= p->value == 0;
    else if (strcmp(state, "weights_offloaded") == 0 || strcmp(state, "discard_all") == 0)
        f->sleeping |= p->value > 0;
}

void wp_facts_vllm_metrics(struct wp_engine_facts *f, struct wp_str page)
{
    struct wp_prom p;
    double usage = -1;
    unsigned ranks = 0;
    struct cache_config cache = {0};
    uint64_t tokens;

    while (wp_prom_next(&page, &p)) {
        if (wp_str_is(p.name, "vllm:num_requests_running")) {
            add_known(&f->running, p.value);
        } else if (wp_str_is(p.name, "vllm:num_requests_waiting")) {
            add_known(&f->waiting, p.value);
        } else if (wp_str_is(p.name, "vllm:kv_cache_usage_perc") || wp_str_is(p.name, "vllm:gpu_cache_usage_perc")) {
            add_known(&usage, p.value);
            ranks += p.value >= 0 && p.value <= requests_max;
        } else if (wp_str_is(p.name, "vllm:cache_config_info")) {
            take_cache_config(f, &cache, &p);
        } else if (wp_str_is(p.name, "vllm:engine_sleep_state")) {
            sleep_state(f, &p);
        }
    }
    if (ranks)
        f->kv_usage = usage / ranks;
    tokens = kv_tokens_of(&cache, f->block_size);
    if (tokens)
        f->kv_tokens = tokens;
    f->metrics_known = f->running >= 0 || f->waiting >= 0;
    f->missing = f->running < 0   ? "vllm:num_requests_running"
                 : f->waiting < 0 ? "vllm:num_requests_waiting"
                 : !f->block_size ? "vllm:cache_config_info"
                                  : NULL;
}
