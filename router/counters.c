/* SPDX-License-Identifier: Apache-2.0 */
/* What all loops count; the fleet and the feeds have their own.  docs/metrics.md has every name. */
#include "router/router.h"

void wp_counters_make(struct wp_counters *c, struct wp_metrics *m)
{
    static const double seconds[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
    static const double fine[] = {0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1};
    struct wp_family *reloads, *build;

#define FINE fine, sizeof fine / sizeof fine[0]
#define SECONDS seconds, sizeof seconds / sizeof seconds[0]
    c->requests = wp_family(m, WP_COUNTER, "warmpath_requests_total", "Answers to clients, by model and status.", "model,code", NULL, 0);
    c->prompt_tokens = wp_family(m, WP_COUNTER, "warmpath_prompt_tokens_total", "Prompt tokens by where they were expected to be.",
                                 "source", NULL, 0);
    c->confirmed = wp_family(m, WP_COUNTER, "warmpath_prompt_tokens_confirmed_total",
                             "Prompt tokens by where the engines' usage says they were.", "source", NULL, 0);
    c->retries = wp_family(m, WP_COUNTER, "warmpath_retries_total", "Further attempts, by why.", "reason", NULL, 0);
    c->key_limits = wp_family(m, WP_COUNTER, "warmpath_key_limits_total", "Requests that their API key's limits refused, by limit.", "limit", NULL, 0);
    c->overhead = wp_family(m, WP_HISTOGRAM, "warmpath_overhead_seconds", "Time in the router before dispatch, by stage.", "stage", FINE);
    c->read = WP_SERIES(c->overhead, "read");
    c->decide = WP_SERIES(c->overhead, "decide");
    c->tokens_wait = WP_SERIES(c->overhead, "tokens");
    c->tokens = wp_family(m, WP_COUNTER, "warmpath_tokens_total", "Prompts by where their token ids came from, or why there are none.",
                          "result", NULL, 0);
    c->tokens_calls = WP_SERIES0(wp_family(m, WP_COUNTER, "warmpath_tokens_calls_total", "Calls to engines for token ids.", "", NULL, 0));
    c->tokens_wrong = WP_SERIES0(wp_family(m, WP_COUNTER, "warmpath_tokens_wrong_total",
                                           "Prompts that an engine counted otherwise than it had said when asked for the ids.", "", NULL,
                                           0));
    c->ttft = WP_SERIES0(wp_family(m, WP_HISTOGRAM, "warmpath_request_ttft_seconds", "From the whole request to its first token.", "",
                                   SECONDS));
    c->itl = WP_SERIES0(wp_family(m, WP_HISTOGRAM, "warmpath_request_itl_seconds", "Between tokens of a stream.", "", SECONDS));
    c->loop_lag = WP_SERIES0(wp_family(m, WP_HISTOGRAM, "warmpath_loop_lag_seconds", "How late timers of a loop fire.", "", FINE));
    c->broken_streams = WP_SERIES0(wp_family(m, WP_COUNTER, "warmpath_broken_answers_total", "Answers that a worker broke off.", "",
                                             NULL, 0));
    c->client_gone = WP_SERIES0(wp_family(m, WP_COUNTER, "warmpath_client_gone_total", "Requests whose client went away.", "", NULL, 0));
    c->refused = WP_SERIES0(wp_family(m, WP_COUNTER, "warmpath_http_refused_total", "Messages that were not HTTP as it should be.", "",
                                      NULL, 0));
    reloads = wp_family(m, WP_COUNTER, "warmpath_reloads_total", "Reloads of the configuration, by result.", "result", NULL, 0);
    c->reloads_good = WP_SERIES(reloads, "applied");
    c->reloads_bad = WP_SERIES(reloads, "refused");
    build = wp_family(m, WP_GAUGE, "warmpath_build_info", "1, labelled with the version.", "version", NULL, 0);
    wp_gauge_set(WP_SERIES(build, WP_VERSION), 1);
}
