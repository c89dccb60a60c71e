/* SPDX-License-Identifier: Apache-2.0 */
#include "router/unasked.h"

enum { KEPT_MAX = 16 * 1024, SILENT_SAID = 20 };

/* What is neither an object nor nothing is for the engine to refuse. */
static bool may_ask(struct wp_json options)
{
    static const char *const names[] = {"include_usage", "continuous_usage_stats"};
    struct wp_json m[2];

    if (options.kind == WP_JSON_ABSENT || options.kind == WP_JSON_NULL)
        return true;
    return wp_json_find(options, names, 2, m) && m[0].kind != WP_JSON_TRUE && m[1].kind != WP_JSON_TRUE;
}

bool wp_unasked_wanted(const struct wp_request *r)
{
    return r->ask.model.confirm == WP_CONFIRM_INJECT && (r->kind == WP_ROUTE_CHAT || r->kind == WP_ROUTE_COMPLETIONS) &&
           r->ask.json.stream.kind == WP_JSON_TRUE && may_ask(r->ask.json.stream_options);
}

int wp_unasked_options(const struct wp_request *r, struct wp_buf *out)
{
    static const struct wp_json_edit ask = {"include_usage", {"true", 4}};
    struct wp_json was = r->ask.json.stream_options;

    return wp_json_splice(out, was.kind == WP_JSON_OBJECT ? (struct wp_str){was.p, was.n} : WP_STR("{}"), &ask, 1);
}

void wp_unasked_over(struct wp_request *r, bool said)
{
    unsigned *silent = &r->gate->unasked_silent;

    *silent = said ? 0 : *silent + 1;
    if (*silent == SILENT_SAID || (*silent && *silent % (SILENT_SAID * 100) == 0))
        wp_log(WP_WARN, "confirm",
               "worker=%s: none of %u streams of known prompts told prompt_tokens_details.cached_tokens, though asked; nothing is confirmed "
               "(vLLM: --enable-prompt-tokens-details)",
               r->tried ? r->tried->conf.id : "-", *silent);
}

bool wp_unasked_is(struct wp_json choices, struct wp_json usage)
{
    struct wp_json at = {0};

    return usage.kind == WP_JSON_OBJECT && choices.kind == WP_JSON_ARRAY && !wp_json_each(choices, &at);
}

void wp_unasked_flush(struct wp_request *r)
{
    if (r->back.n)
        wp_reply_body(r->x, r->back.p, r->back.n);
    r->back.n = 0;
}

/* Up to and with the end of the line, if it is there. */
static size_t line(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == '\n' || p[i] == '\r')
            return i + 1;
    return n;
}

/* Without memory bytes are not kept back, and the event passes. */
static void keep(struct wp_request *r, const char *p, size_t n)
{
    if (!r->back_long && r->back.n - r->back_event + n <= KEPT_MAX && wp_buf_add(&r->back, p, n) == 0)
        return;
    wp_unasked_flush(r);
    wp_reply_body(r->x, p, n);
    r->back_event = 0;
    r->back_long = true;
}

/* An empty line: what came since the one before is an event, or nothing. */
static void end_event(struct wp_request *r, char last)
{
    if (r->unasked_came && !r->back_long) {
        r->back.n = r->back_event;
        r->back_cr = last == '\r';
    }
    r->back_event = r->back.n;
    r->unasked_came = r->back_long = false;
}

void wp_unasked_pass(struct wp_request *r, const char *p, size_t n)
{
    while (n) {
        size_t k = line(p, n);

        wp_sse_feed(&r->sse, p, k);
        if (!(r->back_cr && *p == '\n')) /* else it ends the line that is gone */
            keep(r, p, k);
        r->back_cr = false;
        if ((p[k - 1] == '\n' || p[k - 1] == '\r') && wp_sse_between(&r->sse))
            end_event(r, p[k - 1]);
        p += k;
        n -= k;
    }
    if (!r->back_event)
        return;
    wp_reply_body(r->x, r->back.p, r->back_event); /* whole events */
    memmove(r->back.p, r->back.p + r->back_event, r->back.n - r->back_event);
    r->back.n -= r->back_event;
    r->back_event = 0;
}
