/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics, with vLLM's names; tests/data/spec/real/vllm_0.32.0_metrics.prom is the page of the
 * real one. */
#include "sim/engine_impl.h"

#include <stdio.h>

static const double seconds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06,  0.08, 0.1,
                                 0.25,  0.5,   0.75, 1.0,  2.5,  5.0,   7.5,  10,
                                 20,    40,    80,   160,  640,  2560.0};
static const double gaps[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                              0.75, 1.0,   2.5,  5.0,   7.5, 10,   20,  40,  80};
static const double tokens[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

#define N(a)   (sizeof(a) / sizeof((a)[0]))
#define ENGINE "engine,model_name"

struct who { /* the labels of a rank's series */
    const char *rank, *model;
};

static struct wp_series *plain(struct wp_gauges *g, enum wp_metric_kind kind, struct who w,
                               const char *name, const char *help)
{
    return WP_SERIES(wp_family(g->m, kind, name, help, ENGINE, NULL, 0), w.rank, w.model);
}

static struct wp_series *histogram(struct wp_gauges *g, struct who w, const char *name,
                                   const char *help, const double bounds[], size_t n)
{
    return WP_SERIES(wp_family(g->m, WP_HISTOGRAM, name, help, ENGINE, bounds, n), w.rank, w.model);
}

static void gauges_now(struct wp_gauges *g, struct who w)
{
    struct wp_family *reason, *sleep;

    g->running =
        plain(g, WP_GAUGE, w, "vllm:num_requests_running", "Requests in the running batch.");
    g->waiting =
        plain(g, WP_GAUGE, w, "vllm:num_requests_waiting", "Requests waiting to be admitted.");
    reason = wp_family(g->m, WP_GAUGE, "vllm:num_requests_waiting_by_reason",
                       "Waiting requests by reason.", ENGINE ",reason", NULL, 0);
    g->by_capacity = WP_SERIES(reason, w.rank, w.model, "capacity");
    WP_SERIES(reason, w.rank, w.model, "deferred");
    sleep = wp_family(g->m, WP_GAUGE, "vllm:engine_sleep_state",
                      "1 for the state the engine is in.", ENGINE ",sleep_state", NULL, 0);
    wp_gauge_set(WP_SERIES(sleep, w.rank, w.model, "awake"), 1);
    WP_SERIES(sleep, w.rank, w.model, "weights_offloaded");
    WP_SERIES(sleep, w.rank, w.model, "discard_all");
    g->usage =
        plain(g, WP_GAUGE, w, "vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.");
}

static void counters(struct wp_gauges *g, struct who w)
{
    struct wp_family *f;

    g->queries =
        plain(g, WP_COUNTER, w, "vllm:prefix_cache_queries_total", "Prompt tokens looked up.");
    g->hits = plain(g, WP_COUNTER, w, "vllm:prefix_cache_hits_total",
                    "Prompt tokens found on the device.");
    g->asked = plain(g, WP_COUNTER, w, "vllm:external_prefix_cache_queries_total",
                     "Prompt tokens asked of lower tiers.");
    g->external = plain(g, WP_COUNTER, w, "vllm:external_prefix_cache_hits_total",
                        "Prompt tokens found in lower tiers.");
    g->preemptions = plain(g, WP_COUNTER, w, "vllm:num_preemptions_total",
                           "Requests put back for want of blocks.");
    g->prompt = plain(g, WP_COUNTER, w, "vllm:prompt_tokens_total", "Prompt tokens served.");
    f = wp_family(g->m, WP_COUNTER, "vllm:prompt_tokens_by_source_total",
                  "Prompt tokens by where they came from.", ENGINE ",source", NULL, 0);
    g->computed = WP_SERIES(f, w.rank, w.model, "local_compute");
    g->local = WP_SERIES(f, w.rank, w.model, "local_cache_hit");
    WP_SERIES(f, w.rank, w.model, "external_kv_transfer");
    g->cached = plain(g, WP_COUNTER, w, "vllm:prompt_tokens_cached_total",
                      "Prompt tokens served from cache.");
    f = wp_family(g->m, WP_COUNTER, "vllm:prompt_tokens_cached_by_source_total",
                  "The same by tier.", ENGINE ",source", NULL, 0);
    g->tier[0] = WP_SERIES(f, w.rank, w.model, "device");
    g->tier[1] = WP_SERIES(f, w.rank, w.model, "host");
    g->tier[2] = WP_SERIES(f, w.rank, w.model, "disk");
    g->generated = plain(g, WP_COUNTER, w, "vllm:generation_tokens_total", "Tokens generated.");
    f = wp_family(g->m, WP_COUNTER, "vllm:request_success_total", "Requests ended, by how.",
                  ENGINE ",finished_reason", NULL, 0);
    g->by_stop = WP_SERIES(f, w.rank, w.model, "stop");
    g->by_length = WP_SERIES(f, w.rank, w.model, "length");
    g->by_abort = WP_SERIES(f, w.rank, w.model, "abort");
    WP_SERIES(f, w.rank, w.model, "error");
}

void wp_gauges_init(struct wp_gauges *g, struct wp_metrics *m, const char *rank, const char *model)
{
    struct who w = {rank, model};

    g->m = m;
    gauges_now(g, w);
    counters(g, w);
    g->prompts = histogram(g, w, "vllm:request_prompt_tokens", "Prompt tokens a request.", tokens,
                           N(tokens));
    g->outputs = histogram(g, w, "vllm:request_generation_tokens", "Generated tokens a request.",
                           tokens, N(tokens));
    g->ttft = histogram(g, w, "vllm:time_to_first_token_seconds",
                        "From arrival to the first token.", seconds, N(seconds));
    g->itl =
        histogram(g, w, "vllm:inter_token_latency_seconds", "Between two tokens.", gaps, N(gaps));
    g->e2e = histogram(g, w, "vllm:e2e_request_latency_seconds", "From arrival to the last token.",
                       seconds, N(seconds));
}

/* Too many labels for a family of ours, and it never changes.  num_gpu_blocks is the sum over all
 * ranks, as vLLM has it; the size in tokens is a rank's. */
static int cache_config(const struct wp_engine *e, struct wp_buf *out)
{
    char cpu[24] = "None";
    int rc = wp_buf_adds(out, "# HELP vllm:cache_config_info The cache's settings as labels.\n"
                              "# TYPE vllm:cache_config_info gauge\n");

    if (e->cost.tier_blocks[1])
        snprintf(cpu, sizeof cpu, "%llu", (unsigned long long)e->cost.tier_blocks[1]);
    for (uint32_t i = 0; i < e->n_ranks && rc == 0; i++)
        rc = wp_buf_printf(
            out,
            "vllm:cache_config_info{block_size=\"%u\",cache_dtype=\"auto\",enable_prefix_caching="
            "\"True\","
            "engine=\"%u\",gpu_memory_utilization=\"0.92\",is_attention_free=\"False\",kv_cache_"
            "size_"
            "tokens=\"%llu\","
            "num_cpu_blocks=\"%s\",num_gpu_blocks=\"%llu\",num_gpu_blocks_override=\"None\","
            "prefix_caching_hash_algo=\"sha256\",sliding_window=\"None\"} 1.0\n",
            e->cost.block_size, i,
            (unsigned long long)(e->cost.tier_blocks[0] * e->cost.block_size), cpu,
            (unsigned long long)(e->cost.tier_blocks[0] * e->n_ranks));
    return rc;
}

static void refresh(const struct wp_engine *e, struct wp_rank *r)
{
    struct wp_model_stats s;
    double missing;

    wp_model_stats(r->model, &s);
    wp_gauge_set(r->gauges.running, (double)s.running + r->stalled);
    wp_gauge_set(r->gauges.waiting, s.waiting);
    wp_gauge_set(r->gauges.by_capacity, s.waiting);
    wp_gauge_set(r->gauges.usage, (double)s.pinned / (double)e->cost.tier_blocks[0]);
    missing = (double)s.preemptions - wp_series_value(r->gauges.preemptions);
    if (missing > 0)
        wp_count(r->gauges.preemptions, (uint64_t)missing);
}

int wp_gauges_page(struct wp_engine *e, struct wp_buf *out)
{
    int rc;

    for (uint32_t i = 0; i < e->n_ranks; i++)
        refresh(e, &e->rank[i]);
    rc = wp_metrics_render(e->metrics, out);
    return rc < 0 ? rc : cache_config(e, out);
}
