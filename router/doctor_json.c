/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor found, for people. */
#include "router/doctor_inner.h"

#include <math.h>

static const char *const advice[WP_BREAKS] = {
    [WP_BREAK_WINDOW] = "cut seldom and by much: drop half of the old messages at once, then let the conversation grow again",
    [WP_BREAK_LINE] = "move what changes behind what stays: to the end of the prompt, or into the newest message",
    [WP_BREAK_TOOLS_ORDER] = "send the tools in one order, sorted by name",
    [WP_BREAK_TOOLS_CHANGED] = "send one list of tools with every request, and say in the newest message which are meant",
    [WP_BREAK_THINKING] = "send an assistant's message the same way each time: with what it thought from then on, or never",
    [WP_BREAK_OPTIONS] = "send the template's options with every request, not with some",
    [WP_BREAK_EDITED] = "leave earlier messages as they were sent; what is to be left out, leave out seldom and all at once",
};

/* Of a window that is cut in half whenever it is full: which share of its tokens would be found in the cache. */
static double stepwise_share(const struct wp_finding *f)
{
    double n = (double)f->requests, full = f->prompt_tokens / n, head = f->at_tokens / n, grown = f->grown_tokens / n;
    double half = (full - head) / 2, turns;

    if (!(half > 0) || !(grown > 0))
        return 0;
    turns = fmax(1, floor(half / grown));
    return fmax(0, 1 - (half + turns * grown) / (turns * (head + 1.5 * half)));
}

static int finding_json(const struct wp_finding *f, uint64_t now_us, struct wp_buf *b)
{
    double n = (double)f->requests, share = f->prompt_tokens > 0 ? f->lost_tokens / f->prompt_tokens : 0;
    int rc = wp_buf_printf(b, "{\"kind\":\"%s\",\"requests\":%llu,\"sessions\":%llu,\"first_s_ago\":%.0f,\"last_s_ago\":%.0f,",
                           wp_break_names[f->kind], (unsigned long long)f->requests, (unsigned long long)f->sessions,
                           (double)(now_us - f->first_us) / 1e6, (double)(now_us - f->last_us) / 1e6);

    rc = rc ? rc
            : wp_buf_printf(b, "\"part\":\"%s\",\"number\":%u,\"at_tokens\":%.0f,\"changed_tokens\":%.0f,\"prompt_tokens\":%.0f,",
                            wp_piece_names[f->part], f->number, f->at_tokens / n, f->n_tokens / n, f->prompt_tokens / n);
    rc = rc ? rc : wp_buf_printf(b, "\"lost_tokens\":%.0f,\"lost_share\":%.3f,", f->lost_tokens, fmin(share, 1));
    if (f->kind == WP_BREAK_WINDOW)
        rc = rc ? rc
                : wp_buf_printf(b, "\"dropped_tokens\":%.0f,\"grown_tokens\":%.0f,\"hit_share\":%.3f,\"stepwise_hit_share\":%.3f,",
                                f->dropped_tokens / n, f->grown_tokens / n, f->at_tokens / fmax(f->prompt_tokens, 1), stepwise_share(f));
    return rc ? rc : wp_buf_printf(b, "\"advice\":\"%s\"}", advice[f->kind]);
}

static int model_json(struct wp_doctor *d, size_t model, uint64_t now_us, struct wp_buf *b)
{
    const struct wp_doctor_model *m = &d->model[model];
    int rc = wp_buf_adds(b, "{\"model\":");
    bool any = false;

    rc = rc ? rc : wp_buf_json(b, wp_str_of(m->name));
    rc = rc ? rc
            : wp_buf_printf(b, ",\"requests\":%llu,\"turns\":%llu,\"broken_turns\":%llu,\"turn_tokens\":%.0f,\"lost_tokens\":%.0f,\"findings\":[",
                            (unsigned long long)m->requests, (unsigned long long)m->turns, (unsigned long long)m->breaks, m->turn_tokens,
                            m->lost_tokens);
    for (size_t i = 0; rc == 0 && i < WP_DOCTOR_FINDINGS; i++) {
        const struct wp_finding *f = &d->finding[i];

        if (!f->used || !f->shown || f->model != model)
            continue;
        rc = any ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : finding_json(f, now_us, b);
        any = true;
    }
    return rc ? rc : wp_buf_adds(b, "]}");
}

int wp_doctor_json(struct wp_doctor *d, uint64_t now_us, struct wp_buf *b)
{
    int rc;

    pthread_mutex_lock(&d->lock);
    rc = wp_buf_printf(b, "{\"enabled\":true,\"requests\":%llu,\"sessions\":%zu,\"bytes\":%zu,\"models\":[", (unsigned long long)d->requests,
                       d->n_sessions, d->bytes);
    for (size_t i = 0; rc == 0 && i < d->n_models; i++) {
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : model_json(d, i, now_us, b);
    }
    pthread_mutex_unlock(&d->lock);
    return rc ? rc : wp_buf_adds(b, "]}");
}
