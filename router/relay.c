/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer on its way from the engine to the client.
 *
 * Its head decides: 429, 503 and an adapter's 404 go to another worker if one can take the request, everything else is the client's.  The head of an
 * event stream alone tells a client nothing, but once it has passed nobody else can be asked: it is held until the first byte behind it,
 * for HOLD_US at most, and an engine that dies meanwhile died before it answered.  Bytes pass as they
 * come, unchanged; the engine is read no faster than the client reads (a mark at RELAY_HIGH queued bytes).  Events are watched as they pass, for the first token,
 * usage, and an error as the first event; nothing is parsed that is not looked for.
 * An event stream that breaks ends in one more event, `data: {"error": ...}`, and its last chunk, never in an invented [DONE]; any other answer that breaks is cut,
 * so that nobody takes it for whole.
 */
#include "router/request_inner.h"

#include "base/clock.h"
#include "router/forward.h"
#include "router/unasked.h"

#include <stdio.h>

enum { RELAY_HIGH = 256 * 1024, EVENT_KEPT = 16 * 1024, TOKEN_BATCH = 16, HOLD_US = 200000 };

static void take_number(struct wp_json v, int64_t *out)
{
    uint64_t x;

    if (wp_json_u64(v, &x) && x <= UINT32_MAX) /* no prompt is longer, and sums stay sums */
        *out = (int64_t)x;
}

/* Usage in any of its three dialects; of several reports the last counts, field by field. */
static void take_usage(struct wp_usage *u, struct wp_json usage)
{
    static const char *const names[] = {"prompt_tokens",         "completion_tokens",       "input_tokens",
                                        "output_tokens",         "prompt_tokens_details",   "input_tokens_details",
                                        "cache_read_input_tokens", "cache_creation_input_tokens"};
    struct wp_json m[8], cached;
    int64_t fresh = -1, read = -1, made = -1;

    if (!wp_json_find(usage, names, 8, m))
        return;
    take_number(m[0], &u->prompt);
    take_number(m[1], &u->output);
    take_number(m[3], &u->output);
    take_number(m[2], &fresh);
    take_number(m[6], &read);
    take_number(m[7], &made);
    if (fresh >= 0) /* the messages form counts cached tokens apart */
        u->prompt = fresh + (read > 0 ? read : 0) + (made > 0 ? made : 0);
    if (read >= 0)
        u->cached = read;
    cached = wp_json_get(m[4].kind == WP_JSON_OBJECT ? m[4] : m[5], "cached_tokens");
    take_number(cached, &u->cached);
}

static bool filled(struct wp_json v)
{
    return (v.kind == WP_JSON_STRING && v.n > 2) || (v.kind == WP_JSON_ARRAY && v.n > 2);
}

static bool has_content(struct wp_json choices, struct wp_json type)
{
    static const char *const delta_names[] = {"content", "reasoning_content", "reasoning", "tool_calls"};
    static const char *const choice_names[] = {"delta", "text"};
    struct wp_json at = {0}, c[2], d[4];
    char name[64];
    long n;

    if (choices.kind == WP_JSON_ARRAY) {
        while (wp_json_each(choices, &at)) {
            if (!wp_json_find(at, choice_names, 2, c))
                continue;
            if (filled(c[1]))
                return true;
            if (wp_json_find(c[0], delta_names, 4, d))
                for (int i = 0; i < 4; i++)
                    if (filled(d[i]))
                        return true;
        }
        return false;
    }
    n = wp_json_text(type, name, sizeof name);
    return n > 5 && memmem(name, (size_t)n, "delta", 5);
}

static void first_token(struct wp_request *r, uint64_t now)
{
    if (r->first_seen)
        return;
    r->first_seen = true;
    r->first_us = now;
    r->place->whole = !r->is_sse && wp_body_max_tokens(&r->ask.json) != 1;
    wp_fleet_first(r->gate->router->fleet, r->place);
    wp_observe(r->gate->router->count.ttft, (double)(now - r->read_us) / 1e6);
}

static void token_event(struct wp_request *r)
{
    uint64_t now = wp_now_us();

    first_token(r, now);
    if (r->last_event_us)
        wp_observe(r->gate->router->count.itl, (double)(now - r->last_event_us) / 1e6);
    r->last_event_us = now;
    if (++r->tokens_counted % TOKEN_BATCH == 0)
        wp_fleet_tokens(r->gate->router->fleet, r->place, TOKEN_BATCH);
}

static void learn_maker(struct wp_request *r, struct wp_json id)
{
    char text[256];
    long n = r->kind == WP_ROUTE_RESPONSES && r->place->worker ? wp_json_text(id, text, sizeof text) : -1;

    if (n > 0)
        wp_fleet_stick(r->gate->router->fleet, (struct wp_str){text, (size_t)n}, r->place->worker);
}

static void on_event(void *arg, const struct wp_sse_event *ev)
{
    static const char *const names[] = {"choices", "type", "usage", "error", "message", "response"};
    struct wp_request *r = arg;
    struct wp_json m[6];
    struct wp_err err;

    r->events++;
    if (wp_str_is(ev->data, "[DONE]")) {
        r->done_seen = true;
        return;
    }
    if (ev->cut || wp_json_members(ev->data, names, 6, m, &err) < 0)
        return;
    if (m[3].kind == WP_JSON_OBJECT && !r->first_seen)
        r->error_first = true;
    r->unasked_came = r->unasked && wp_unasked_is(m[0], m[2]);
    if (m[2].kind == WP_JSON_OBJECT)
        take_usage(&r->usage, m[2]);
    for (int i = 4; i < 6; i++) /* message_start and response.completed carry it one level down */
        if (m[i].kind == WP_JSON_OBJECT)
            take_usage(&r->usage, wp_json_get(m[i], "usage"));
    if (m[5].kind == WP_JSON_OBJECT && r->events == 1)
        learn_maker(r, wp_json_get(m[5], "id"));
    if (has_content(m[0], m[1]))
        token_event(r);
}

/* An engine that must tell of each token of the prompt computes it all, whatever it has: that says nothing of its cache. */
static bool passes_the_cache(const struct wp_request *r)
{
    static const char *const members[] = {"\"prompt_logprobs\"", "\"echo\""};

    for (int i = 0; r->body && i < 2; i++)
        if (memmem(r->body->p, r->body->n, members[i], strlen(members[i])))
            return true;
    return false;
}

static void count_tokens(struct wp_request *r)
{
    static const char *const tiers[] = {"gpu", "cpu", "disk", "remote"};
    struct wp_counters *c = &r->gate->router->count;
    const struct wp_placement *p = r->place;
    bool passes;

    for (int t = 0; t < 4; t++)
        if (p->hit_tier[t])
            wp_count(WP_SERIES(c->prompt_tokens, tiers[t]), p->hit_tier[t]);
    wp_count(WP_SERIES(c->prompt_tokens, "recomputed"), p->tokens - p->hit_tokens);
    if (r->usage.prompt >= 0 && r->usage.cached >= 0 && r->usage.cached <= r->usage.prompt) {
        wp_count(WP_SERIES(c->confirmed, "gpu"), (uint64_t)r->usage.cached);
        wp_count(WP_SERIES(c->confirmed, "recomputed"), (uint64_t)(r->usage.prompt - r->usage.cached));
    }
    passes = (r->usage.cached >= 0 || r->place->sample.ready) && passes_the_cache(r);
    r->place->teaches &= !passes;
    if (r->usage.cached >= 0 && r->ask.prompt.kind == WP_PROMPT_TOKENS && (uint64_t)r->usage.prompt == r->ask.tokens &&
        r->ask.model.confirm != WP_CONFIRM_OFF && !passes)
        r->place->cached_tokens = r->usage.cached; /* not of other tokens than those that were matched */
    r->place->told_prompt = r->usage.prompt;
    r->place->told_cached = r->usage.cached;
    if (r->usage.prompt > 0 && r->tokens_told && (uint64_t)r->usage.prompt != r->ask.tokens)
        wp_count(c->tokens_wrong, 1);
    if (r->usage.prompt > 0 && r->ask.prompt.kind == WP_PROMPT_BYTES)
        wp_fleet_learn_tokens(r->gate->router->fleet, r->ask.model.base, r->ask.prompt.bytes.n, (uint64_t)r->usage.prompt);
}

/* The answer is over for the worker: what it says about it. */
static void conclude(struct wp_request *r, bool whole)
{
    bool asked_to_wait = r->status == 503 && r->rest_us; /* it rests, as it said: it does not fail */
    enum wp_outcome o = !whole || (r->status >= 500 && !asked_to_wait) || r->error_first ? WP_OUTCOME_FAILED
                        : r->status == 429 || asked_to_wait                              ? WP_OUTCOME_BUSY
                        : r->status >= 400                                               ? WP_OUTCOME_NEUTRAL
                                                                                         : WP_OUTCOME_GOOD;

    if (!r->place->worker)
        return;
    if (whole && r->status < 300) {
        static const char *const names[] = {"usage", "id"};
        struct wp_json m[2];
        struct wp_err err;

        if (r->kept.n && wp_json_members(wp_buf_str(&r->kept), names, 2, m, &err) == 0) {
            take_usage(&r->usage, m[0]);
            learn_maker(r, m[1]);
        }
        count_tokens(r);
    }
    if (r->unasked && r->is_sse && o == WP_OUTCOME_GOOD && r->place->hit_tokens > 0) /* some engines say nothing in place of 0 */
        wp_unasked_over(r, r->usage.cached >= 0);
    if (o == WP_OUTCOME_FAILED && !r->why[0])
        snprintf(r->why, sizeof r->why, "%s", r->error_first ? "the answer began with an error" : "the engine answered so");
    wp_request_settle(r, o, r->rest_us);
}

static void count_answer(struct wp_request *r)
{
    char code[8];

    snprintf(code, sizeof code, "%d", r->status);
    wp_count(WP_SERIES(r->gate->router->count.requests, r->ask.model.listed && r->ask.model.name.p ? r->ask.model.name.p : "", code), 1);
}

static void on_sent(struct wp_call *c)
{
    struct wp_request *r = c->user;

    if (c != r->call)
        return;
    wp_request_move(r, REQ_PREFILL);
}

static bool try_elsewhere(struct wp_request *r, const struct wp_head *h)
{
    uint64_t rest = wp_retry_after_us(wp_head_get(h, "retry-after"), r->settings->conf->limits.rest_max_us);
    struct wp_call *c = r->call;
    bool unloaded = h->status == 404 && r->ask.model.lora.p; /* the worker has dropped an adapter that it listed a moment ago */
    enum wp_outcome o = unloaded ? WP_OUTCOME_NEUTRAL : h->status == 503 && !rest ? WP_OUTCOME_FAILED : WP_OUTCOME_BUSY;

    if (h->status != 429 && h->status != 503 && !unloaded)
        return false;
    if (unloaded)
        wp_fleet_unlist(r->gate->router->fleet, r->place->worker, r->ask.model.name);
    r->call = NULL; /* a new attempt sets it; the old one is cancelled after */
    if (!wp_request_retry(r, unloaded ? "unloaded" : h->status == 429 ? "busy" : "unavailable", o, rest, true)) {
        r->call = c;
        r->rest_us = rest;
        return false;
    }
    wp_call_cancel(c);
    return true;
}

static void pass_head(struct wp_request *r, const struct wp_held_head *h)
{
    r->head_sent = true;
    wp_request_move(r, REQ_STREAM);
    if (r->is_sse) {
        wp_sse_init(&r->sse, EVENT_KEPT, on_event, r);
        r->sse_ready = true;
    } else if (r->status < 300) {
        first_token(r, wp_now_us());
    }
    wp_reply_head(r->x, r->status, h->reason, h->field, h->n, h->length);
    count_answer(r);
}

static bool keep_text(struct wp_request *r, struct wp_str *s)
{
    char *p = wp_arena_strndup(&r->arena, s->p, s->n);

    s->p = p;
    return p != NULL;
}

static bool hold(struct wp_request *r, const struct wp_held_head *h)
{
    struct wp_held_head *kept = &r->held;

    *kept = *h;
    kept->field = wp_arena_alloc(&r->arena, h->n * sizeof *h->field);
    if (!kept->field || !keep_text(r, &kept->reason))
        return false;
    memcpy(kept->field, h->field, h->n * sizeof *h->field);
    for (size_t i = 0; i < h->n; i++)
        if (!keep_text(r, &kept->field[i].name) || !keep_text(r, &kept->field[i].value))
            return false;
    r->holds = true;
    wp_timer_in(&r->gate->loop, &r->hold, HOLD_US);
    return true;
}

void wp_relay_let_go(struct wp_request *r)
{
    if (!r->holds)
        return;
    r->holds = false;
    wp_timer_stop(&r->gate->loop, &r->hold);
}

static void pass_held(struct wp_request *r)
{
    wp_relay_let_go(r);
    pass_head(r, &r->held);
}

static void on_hold_end(struct wp_timer *t)
{
    struct wp_request *r = t->arg;

    if (r->holds && r->x)
        pass_held(r);
}

void wp_relay_init(struct wp_request *r)
{
    wp_timer_init(&r->hold, on_hold_end, r);
}

static bool coded(const struct wp_head *h)
{
    struct wp_str coding = wp_head_get(h, "content-encoding");

    return coding.n && !wp_str_iis(coding, "identity");
}

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    struct wp_request *r = c->user;
    struct wp_field field[WP_FORWARD_MAX];
    struct wp_str type = wp_head_get(h, "content-type");
    struct wp_held_head head = {.reason = h->reason, .field = field, .length = h->chunked ? -1 : h->content_length};
    bool waits;

    if (c != r->call || !r->x || try_elsewhere(r, h))
        return;
    r->status = h->status;
    r->is_sse = type.n >= 17 && wp_str_iis((struct wp_str){type.p, 17}, "text/event-stream");
    head.n = wp_forward_answer(r, h, field);
    waits = r->is_sse;
    r->is_sse = waits && !coded(h); /* from here on it says that we can read it and write into it */
    if (!waits || !hold(r, &head))
        pass_head(r, &head);
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    struct wp_request *r = c->user;

    if (c != r->call || !r->x)
        return;
    if (r->holds)
        pass_held(r);
    if (r->sse_ready && r->unasked) {
        wp_unasked_pass(r, p, n);
        if (wp_reply_queued(r->x) > RELAY_HIGH)
            wp_call_pause(c);
        return;
    }
    if (r->sse_ready)
        wp_sse_feed(&r->sse, p, n);
    else if (!r->unkept && (r->status >= 300 || r->kept.n + n > WP_ANSWER_KEPT || wp_buf_add(&r->kept, p, n) < 0)) {
        r->unkept = true; /* there is no usage to learn from, and nothing else is lost; a rest of it says nothing */
        wp_buf_fini(&r->kept);
    }
    wp_reply_body(r->x, p, n);
    if (wp_reply_queued(r->x) > RELAY_HIGH)
        wp_call_pause(c);
}

void wp_relay_drained(struct wp_request *r)
{
    if (r->call)
        wp_call_resume(r->call);
}

/* The engine is gone in the middle of an answer. */
static void broken(struct wp_request *r, int rc, const char *why)
{
    char text[200];

    wp_count(r->gate->router->count.broken_streams, 1);
    snprintf(r->why, sizeof r->why, "the answer broke after %llu events: %s (%s)", (unsigned long long)r->events, wp_strerror(rc),
             why ? why : "connection");
    snprintf(text, sizeof text, "The worker broke off the stream (%s).", wp_strerror(rc));
    wp_relay_cut(r, 502, "upstream_failed", NULL, text);
}

void wp_relay_cut(struct wp_request *r, int status, const char *code, const char *param, const char *text)
{
    struct wp_buf b = {0};

    if (!r->is_sse) {
        wp_reply_abort(r->x);
        return;
    }
    wp_unasked_flush(r);
    if (!wp_sse_between(&r->sse))
        wp_buf_adds(&b, "\n\n");
    if (wp_buf_adds(&b, "data: ") < 0 || wp_error_json(&b, status, code, param, text) < 0 || wp_buf_adds(&b, "\n\n") < 0) {
        wp_reply_abort(r->x);
    } else {
        wp_reply_body(r->x, b.p, b.n);
        wp_reply_end(r->x);
    }
    wp_buf_fini(&b);
}

/*
 * A reused connection that dies before a byte of the answer may have been closed under us (the reuse race: the worker is well) or may be a worker that this
 * very request killed; nobody can tell.  So it is repeated once on the same worker, on a fresh connection.  If that dies too the worker
 * died, and is one of the two that a request may take down.
 */
static void failed_before_head(struct wp_request *r, const struct wp_call *c, int rc)
{
    const char *reason = c->phase == WP_CALL_CONNECT ? "connect" : rc == WP_ETIMEDOUT ? "timeout" : "reset";
    bool unsaid = c->phase == WP_CALL_CONNECT && (rc == WP_EINVAL || rc == WP_ETOOBIG || rc == WP_ENOTSUP);
    bool died = c->phase != WP_CALL_CONNECT && rc != WP_ETIMEDOUT && !wp_is_our_trouble(rc);
    enum wp_outcome o = WP_OUTCOME_FAILED;

    if (unsaid) { /* our client will not write such a request: no worker is to blame, and the next would not see it either */
        wp_request_settle(r, WP_OUTCOME_NEUTRAL, 0);
        wp_request_fail(r, rc, c->why, false);
        return;
    }
    if (died && c->reused && c->phase == WP_CALL_SENT && !r->races && !r->lost) {
        r->races++;
        r->race_repeat = true;
        if (wp_request_retry(r, "reuse", WP_OUTCOME_NEUTRAL, 0, false))
            return;
        r->race_repeat = false;
    }
    r->lost += died;
    if (wp_is_our_trouble(rc))
        o = WP_OUTCOME_NEUTRAL;
    if (r->lost < 2 && wp_request_retry(r, reason, o, 0, rc == WP_ETIMEDOUT && c->phase != WP_CALL_CONNECT))
        return;
    wp_request_settle(r, o, 0);
    wp_request_fail(r, rc, c->why, c->phase == WP_CALL_CONNECT);
}

static void on_over(struct wp_call *c, int rc)
{
    struct wp_request *r = c->user;

    r->calls_open--;
    if (c != r->call) {
        wp_request_unless_used(r);
        return;
    }
    r->call = NULL;
    if (!r->x) {
        wp_request_unless_used(r);
        return;
    }
    if (rc == 0 && r->holds) /* a stream without an event */
        pass_held(r);
    if (!r->head_sent) {
        failed_before_head(r, c, rc);
        return;
    }
    if (rc < 0) {
        broken(r, rc, c->why);
    } else {
        wp_unasked_flush(r);
        wp_reply_end(r->x);
    }
    conclude(r, rc == 0);
    wp_request_move(r, REQ_DONE);
}

void wp_relay_fini(struct wp_request *r)
{
    if (r->sse_ready)
        wp_sse_fini(&r->sse);
    wp_buf_fini(&r->kept);
    wp_buf_fini(&r->back);
}

const struct wp_call_ops wp_relay_ops = {
    .on_sent = on_sent,
    .on_head = on_head,
    .on_body = on_body,
    .on_over = on_over,
};
