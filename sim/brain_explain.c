/* SPDX-License-Identifier: Apache-2.0 */
/* The last decision for people. */
#include "sim/brain_impl.h"

#include <math.h>

/* JSON has no NaN: what is unknown is null. */
static int number(struct wp_buf *out, const char *key, double x)
{
    return isfinite(x) ? wp_buf_printf(out, ",\"%s\":%.17g", key, x)
                       : wp_buf_printf(out, ",\"%s\":null", key);
}

static int fetches(const struct wp_verdict *v, struct wp_buf *out)
{
    int rc = wp_buf_adds(out, ",\"fetch\":[");

    for (uint32_t i = 0; rc == 0 && i < v->n_fetch; i++) {
        rc = wp_buf_adds(out, i ? ",{\"source\":" : "{\"source\":");
        if (rc == 0)
            rc = v->fetch[i].source == WP_POOL ? wp_buf_adds(out, "\"store\"")
                                               : wp_buf_printf(out, "%u", v->fetch[i].source);
        rc = rc ? rc
                : wp_buf_printf(out, ",\"from\":%u,\"to\":%u}", v->fetch[i].from, v->fetch[i].to);
    }
    return rc ? rc : wp_buf_adds(out, "]}");
}

static int candidate(const struct wp_worker_view *w, const struct wp_verdict *v, uint32_t i,
                     struct wp_buf *out)
{
    int rc = wp_buf_printf(out,
                           "%s{\"worker\":%u,\"hit\":%u,\"has\":%u,\"in_flight\":%u,\"decoding\":%"
                           "u,\"kv_tokens\":%llu",
                           i ? "," : "", i, w->hit_tokens, w->has_tokens, w->in_flight, w->decoding,
                           (unsigned long long)w->kv_tokens);

    rc = rc ? rc : number(out, "wait_us", w->wait_us);
    rc = rc ? rc : number(out, "in_busy_us", w->in_busy_us);
    rc = rc ? rc : number(out, "out_busy_us", w->out_busy_us);
    rc = rc ? rc : number(out, "link_bytes_per_s", w->link_bytes_per_s);
    for (int t = 0; rc == 0 && t < WP_TERMS; t++)
        if (!isnan(v->term[t]))
            rc = number(out, wp_term_names[t], v->term[t]);
    rc = rc ? rc : number(out, "price_us", v->price);
    rc = rc ? rc : number(out, "step_us", v->step_us);
    rc = rc ? rc : number(out, "ttft_us", v->ttft_us);
    return rc ? rc : fetches(v, out);
}

int wp_brain_explain(const struct wp_brain *b, struct wp_buf *out)
{
    int rc = wp_buf_printf(out,
                           "{\"policy\":\"%s\",\"request\":%llu,\"time_us\":%llu,\"tokens\":%u,"
                           "\"draw\":\"%llu\",\"chosen\":",
                           b->policy->ops->name, (unsigned long long)b->asked_id,
                           (unsigned long long)b->ask.now_us, b->ask.tokens,
                           (unsigned long long)b->ask.draw);

    if (rc == 0)
        rc = b->chosen == WP_NO_WORKER ? wp_buf_adds(out, "null")
                                       : wp_buf_printf(out, "%zu", b->chosen);
    rc = rc ? rc : wp_buf_adds(out, ",\"candidates\":[");
    for (uint32_t i = 0; rc == 0 && b->chosen != WP_NO_WORKER && i < b->conf.workers; i++)
        rc = candidate(&b->view[i], &b->verdict[i], i, out);
    return rc ? rc : wp_buf_adds(out, "]}");
}
