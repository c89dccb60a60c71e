/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request arrives (READ): its body is gathered, bounded by limits.body_bytes and, over all requests, by
 * limits.bodies_total_bytes.  Then it is read once and hashed; where the model's tokenizer asks an engine, its answer is waited for, a
 * bounded time (TOKENS); and it is placed (PLACE).  An attempt is one call to the chosen worker: CONNECT until its
 * first byte is written, PREFILL until the answer's head is on its way to the client, STREAM until it ends.  relay.c does the last two.
 *
 * Failing before STREAM: another worker (attempt.c).  Failing in STREAM: the stream ends in an error event.
 * The client goes: the call is cancelled, which closes the engine's connection.
 *
 * Ownership: the request is freed when the exchange is over and every call has said on_over.
 */
#include "router/request_inner.h"

#include "base/clock.h"
#include "router/edit.h"
#include "router/form.h"
#include "router/forward.h"
#include "router/target.h"

#include <assert.h>
#include <stdio.h>

enum { HOLD_LOOK_US = 1000, HOLD_LOOK_MOST_US = 200000, FAILURES_SAID = 10, FAILURES_EVERY_US = 10000000, GUESSED_MOST_S = 5, PREDICTED_MOST_S = 60 };

#define TO(s) (1u << REQ_##s)
static const unsigned may_follow[] = {
    [REQ_READ] = TO(TOKENS) | TO(PLACE) | TO(DONE),
    [REQ_TOKENS] = TO(PLACE) | TO(DONE),
    [REQ_PLACE] = TO(CONNECT) | TO(DONE),
    [REQ_CONNECT] = TO(PREFILL) | TO(PLACE) | TO(DONE),
    [REQ_PREFILL] = TO(STREAM) | TO(PLACE) | TO(DONE),
    [REQ_STREAM] = TO(DONE),
    [REQ_DONE] = 0,
};

void wp_request_move(struct wp_request *r, enum wp_request_state next)
{
    assert(may_follow[r->state] & (1u << next));
    (void)may_follow;
    r->state = next;
}

/* Of a fleet that fails nobody can read more than a few lines; *unsaid: those that were left out before this one. */
static bool may_say_failed(struct wp_gate *g, uint64_t now, unsigned *unsaid)
{
    if (now >= g->failures_until_us) {
        g->failures_until_us = now + FAILURES_EVERY_US;
        g->failures_said = 0;
    }
    if (g->failures_said == FAILURES_SAID) {
        g->failures_unsaid++;
        return false;
    }
    g->failures_said++;
    *unsaid = g->failures_unsaid;
    g->failures_unsaid = 0;
    return true;
}

/* One line a request: a warning when it was not the client who made it fail. */
static void say_ended(struct wp_request *r)
{
    bool failed = r->why[0] && !r->client_gone;
    enum wp_log_level level = WP_DEBUG;
    char ttft[24] = "-", more[64] = "";
    struct wp_str model = r->ask.model.name;
    unsigned unsaid = 0;

    if (failed && may_say_failed(r->gate, wp_now_us(), &unsaid))
        level = WP_WARN;
    if (!wp_log_on(level))
        return;
    if (r->first_us)
        snprintf(ttft, sizeof ttft, "%.1f", (double)(r->first_us - r->read_us) / 1000);
    if (unsaid)
        snprintf(more, sizeof more, "; %u more failed, unsaid, before it", unsaid);
    wp_log(level, "request", "id=%s model=%.*s worker=%s status=%d tokens=%u hit=%u ttft_ms=%s attempts=%u outcome=%s%s%s%s", r->id,
           model.n < 64 ? (int)model.n : 64, model.p ? model.p : "", r->tried ? r->tried->conf.id : "-", r->status, r->ask.tokens,
           r->tried ? r->place->hit_tokens : 0, ttft, r->attempts,
           r->client_gone ? "client_gone" : r->tried ? wp_outcome_names[r->outcome] : "refused", r->why[0] ? ": " : "", r->why, more);
}

void wp_request_unless_used(struct wp_request *r)
{
    struct wp_router *router = r->gate->router;
    uint64_t output = r->usage.output > 0 ? (uint64_t)r->usage.output : r->tokens_counted;

    if (r->x || r->calls_open)
        return;
    say_ended(r);
    if (output)
        wp_key_spend(&r->turn, wp_now_us(), output);
    wp_key_end(&r->turn);
    wp_fleet_answered(router->fleet, r->place, output);
    if (r->status == 200 && r->tenant)
        wp_count(r->tenant->count.tokens, r->ask.tokens + output);
    wp_tenant_leave(router->tenants, r->tenant);
    for (size_t i = 0; i < r->n_failed; i++)
        wp_worker_unref(r->failed[i]);
    wp_worker_unref(r->pinned);
    wp_worker_unref(r->tried);
    atomic_fetch_sub(&router->body_bytes, r->body_counted);
    atomic_fetch_sub(&router->in_flight, 1);
    wp_list_del(&r->link);
    wp_relay_fini(r);
    wp_buf_fini(&r->in);
    wp_blob_unref(r->body);
    wp_blob_unref(r->unedited);
    wp_arena_fini(&r->arena);
    wp_settings_unref(r->settings);
    wp_free(r);
}

void wp_request_settle(struct wp_request *r, enum wp_outcome o, uint64_t rest_us)
{
    r->outcome = o;
    wp_relay_let_go(r);
    wp_fleet_end(r->gate->router->fleet, r->place, o, rest_us);
}

static void answer_error(struct wp_request *r, int status, const char *code, const char *param, uint64_t retry_us, bool final,
                         const char *message)
{
    struct wp_field extra[WP_FORWARD_MAX];
    size_t n = wp_forward_own(r, extra, 0);
    char after[24], count[8];

    snprintf(count, sizeof count, "%d", status);
    wp_count(WP_SERIES(r->gate->router->count.requests, r->ask.model.listed && r->ask.model.name.p ? r->ask.model.name.p : "", count), 1);
    if (final)
        extra[n++] = (struct wp_field){WP_STR("x-should-retry"), WP_STR("false")};
    if (retry_us) {
        uint64_t s = (retry_us + 999999) / 1000000, most;

        /* Clients obey any number: keep it small, but what is predicted. */
        most = strcmp(code, "overloaded") == 0 || (param && strcmp(param, "wake") == 0) ? PREDICTED_MOST_S : GUESSED_MOST_S;
        snprintf(after, sizeof after, "%u", (unsigned)(s < 1 ? 1 : s > most ? most : s));
        extra[n++] = (struct wp_field){WP_STR("retry-after"), wp_str_of(after)};
    }
    r->status = status;
    if (status >= 500)
        snprintf(r->why, sizeof r->why, "%s", message);
    wp_request_move(r, REQ_DONE);
    wp_reply_error(r->x, status, code, param, extra, n, "%s", message);
}

void wp_request_no_memory(struct wp_request *r)
{
    answer_error(r, 503, "overloaded", "body_memory", 1000000, false, "The router is out of memory.");
}

static void refuse_placement(struct wp_request *r, enum wp_place_result no, const char *why, uint64_t retry_us)
{
    char text[256];

    if (no == WP_PLACE_TOO_LONG) {
        snprintf(text, sizeof text, "The prompt has %u tokens; the longest that a worker of this model takes is %u.", r->ask.tokens,
                 r->ask.model.max_len);
        answer_error(r, 400, "context_too_long", "prompt", 0, true, text);
    } else if (no == WP_PLACE_LATE || (no == WP_PLACE_BUSY && strcmp(why, "deadline") == 0)) {
        snprintf(text, sizeof text, "The first token cannot come within %.0f ms of the request, as x-warmpath-slo-ttft-ms wants it.",
                 (double)r->target_us / 1000);
        answer_error(r, 429, "overloaded", "deadline", retry_us, false, text);
    } else if (no == WP_PLACE_BUSY) {
        bool tenant = strcmp(why, "tenant") == 0;

        snprintf(text, sizeof text, "Tenant %s has as many requests waiting as its share allows.", r->tenant->name);
        answer_error(r, 429, "overloaded", why, retry_us, false, tenant ? text : "All workers of this model are at their limit of requests.");
    } else {
        snprintf(text, sizeof text, strcmp(why, "wake") == 0 ? "No worker of this model is up; one is being started (%s)." :
                 "No worker of this model can take the request now (%s).", why);
        answer_error(r, 503, "no_worker", why, retry_us, false, text);
    }
}

void wp_request_fail(struct wp_request *r, int rc, const char *what, bool unreached)
{
    char text[256];

    if (!r->x)
        return;
    if (rc == WP_ENOMEM) {
        wp_request_no_memory(r);
        return;
    }
    if (unreached && r->lost < 2) {
        answer_error(r, 503, "no_worker", "connect", r->settings->conf->health.interval_us, false,
                     "No worker of this model could be reached.");
        return;
    }
    snprintf(text, sizeof text, "The worker did not answer (%s: %s).", what ? what : "connection", wp_strerror(rc));
    if (rc == WP_ETIMEDOUT)
        answer_error(r, 504, "upstream_timeout", NULL, 0, true, text);
    else
        answer_error(r, 502, "upstream_failed", NULL, 0, true, text);
}

/* The id in /v1/responses/ID or /v1/responses/ID/cancel. */
static struct wp_str stored_id(struct wp_str target)
{
    struct wp_str rest = wp_target_path(target), id = {0};

    rest.p += sizeof "/v1/responses/" - 1;
    rest.n -= sizeof "/v1/responses/" - 1;
    wp_str_split(&rest, '/', &id);
    return id;
}

static bool find_maker(struct wp_request *r)
{
    r->pinned = wp_fleet_maker(r->gate->router->fleet, stored_id(r->x->head->target));
    if (!r->pinned)
        answer_error(r, 404, "not_found", NULL, 0, true, "No worker here is known to hold that response.");
    return r->pinned != NULL;
}

/* Who goes on from a stored response goes to its worker; an id that we do not know is for an engine to judge. */
static void pin_previous(struct wp_request *r)
{
    char id[256];
    long n = wp_json_text(r->ask.json.previous_response_id, id, sizeof id);

    if (n > 0)
        r->pinned = wp_fleet_maker(r->gate->router->fleet, (struct wp_str){id, (size_t)n});
}

static void refuse(struct wp_request *r, const struct wp_refusal *no)
{
    answer_error(r, no->status, no->code, no->param, no->retry_us, no->final, no->text);
}

/* The body is whole: read it once, or answer what is wrong with it. */
static bool understand(struct wp_request *r)
{
    struct wp_str type = wp_head_get(r->x->head, "content-type");
    bool form = r->kind == WP_ROUTE_OPAQUE && wp_form_is(type);
    struct wp_refusal no;

    if (r->kind == WP_ROUTE_STORED)
        return find_maker(r);
    if (!form)
        type = (struct wp_str){0};
    if (wp_ask_read(&r->ask, r->gate->router->fleet, r->settings->conf, r->kind, type, (struct wp_str){r->body->p, r->body->n},
                    &r->arena, &no) < 0) {
        refuse(r, &no);
        return false;
    }
    if (!wp_key_may(r->key, r->ask.model_name) && !wp_key_may(r->key, r->ask.model.name)) {
        answer_error(r, 403, "model_not_allowed", "model", 0, true, "This key may not use that model.");
        return false;
    }
    if (r->kind == WP_ROUTE_RESPONSES)
        pin_previous(r);
    if (wp_request_edit(r, form) < 0) {
        wp_request_no_memory(r);
        return false;
    }
    return true;
}

/* ---- held: no worker is free (router/hold.h) ---- */

/* It waits no longer: true when it had no place yet. */
static bool unhold(struct wp_request *r)
{
    if (!r->waiting || !wp_fleet_unhold(r->gate->router->fleet, &r->waits))
        return false; /* the letter is on its way */
    r->waiting = false;
    r->gate->held--;
    r->calls_open--;
    return true;
}

/* Under the fleet's lock, on any thread. */
static void on_placed(void *arg)
{
    struct wp_request *r = arg;

    wp_loop_post(&r->gate->loop, &r->placed);
}

static void on_letter(struct wp_letter *l)
{
    struct wp_request *r = WP_CONTAINER(l, struct wp_request, placed);

    r->waiting = false;
    r->gate->held--;
    r->calls_open--;
    if (!r->x || r->state == REQ_DONE) {
        wp_request_unless_used(r);
        return;
    }
    if (r->waits.result != WP_PLACED) {
        refuse_placement(r, r->waits.result, r->waits.why, r->waits.retry_us);
    } else if (!r->gate->client) { /* the gate closes: nothing can be sent any more */
        wp_request_settle(r, WP_OUTCOME_NEUTRAL, 0);
        answer_error(r, 503, "no_worker", "drain", 1000000, false, "The router is shutting down.");
    } else {
        atomic_fetch_add(&r->gate->router->first_tries, 1);
        wp_request_dispatch(r);
    }
}

static void look_at(struct wp_gate *g, uint64_t next_us)
{
    uint64_t now = wp_loop_now_us(&g->loop), soonest = now + HOLD_LOOK_US, latest = now + HOLD_LOOK_MOST_US;

    if (g->held) /* those whose letters are under way count here, and nobody is held any more: a look too many does no harm */
        wp_timer_at(&g->loop, &g->hold_tick, next_us < soonest ? soonest : next_us > latest ? latest : next_us);
}

void wp_requests_look_held(struct wp_timer *t)
{
    struct wp_gate *g = t->arg;

    look_at(g, wp_fleet_release(g->router->fleet));
}

/* The letter counts as a call: the request outlives it. */
static void hold(struct wp_request *r)
{
    struct wp_gate *g = r->gate;

    r->waiting = true;
    r->calls_open++;
    g->held++;
    wp_log(WP_DEBUG, "request", "id=%s held: no worker is free", r->id);
    if (g->held == 1 || r->waits.next_us < g->hold_tick.at_us)
        look_at(g, r->waits.next_us);
}

/* Until when it may be held: an answer's first byte is due within limits.first_byte_s, and some clients say how long they wait. */
static void patience(const struct wp_request *r, struct wp_hold *h)
{
    uint64_t us = r->settings->conf->limits.first_byte_us, client_us = wp_patience_of(r->x->head) / 2; /* half: the prefill comes yet */

    if (client_us)
        h->client_until_us = r->ready_us + client_us;
    if (client_us && (us == 0 || client_us < us))
        us = client_us;
    h->deadline_us = us ? r->ready_us + us : 0;
}

static void place_first(struct wp_request *r)
{
    enum wp_place_result no;
    uint64_t retry_us;
    const char *why;

    r->ready_us = wp_now_us();
    wp_request_move(r, REQ_PLACE);
    wp_key_spend(&r->turn, r->ready_us, r->ask.tokens);
    if (r->ask.outline && r->ask.model.listed)
        wp_doctor_see(r->gate->router->doctor, r->ask.outline, r->ask.model.name, wp_session_key(r->x->head, &r->ask.json), r->ask.tokens,
                      r->ready_us);
    r->waits = (struct wp_hold){.placed = on_placed, .arg = r};
    patience(r, &r->waits);
    r->placed.fn = on_letter;
    if (wp_request_place(r, r->place, &r->waits, &no, &why, &retry_us)) {
        atomic_fetch_add(&r->gate->router->first_tries, 1);
        wp_request_dispatch(r);
        wp_observe(r->gate->router->count.decide, (double)(wp_now_us() - r->ready_us) / 1e6);
    } else if (no == WP_PLACE_HELD) {
        hold(r);
    } else {
        refuse_placement(r, no, why, retry_us);
    }
}

/* The ids have come, or never will: then bytes stand in for them. */
static void on_tokens(struct wp_tokens_wait *w, enum wp_tokens_result result, struct wp_blob *tokens)
{
    struct wp_request *r = w->arg;

    wp_log(WP_DEBUG, "request", "id=%s tokens %s after %llu us", r->id, wp_tokens_result_names[result],
           (unsigned long long)(wp_now_us() - r->read_us));
    wp_observe(r->gate->router->count.tokens_wait, (double)(wp_now_us() - r->read_us) / 1e6);
    if (!r->gate->client) { /* the gate closes: nothing can be sent any more */
        answer_error(r, 503, "no_worker", "drain", 1000000, false, "The router is shutting down.");
        return;
    }
    wp_tokenizers_take(r->gate->tokenizers, &r->ask, tokens, &r->arena);
    r->tokens_told = tokens != NULL;
    place_first(r);
}

static void on_body_end(struct wp_exchange *x)
{
    struct wp_request *r = x->user;
    enum wp_tokens_result told;
    size_t n;
    char *p;

    if (r->state != REQ_READ)
        return; /* answered early */
    r->read_us = wp_now_us();
    wp_observe(r->gate->router->count.read, (double)(r->read_us - x->began_us) / 1e6);
    p = wp_buf_take(&r->in, &n);
    r->body = wp_blob_adopt(p, n);
    if (!r->body) {
        wp_request_no_memory(r);
        return;
    }
    if (!understand(r))
        return;
    r->wait.arg = r;
    told = wp_tokenizers_ask(r->gate->tokenizers, &r->ask, r->kind, &r->arena, &r->wait, on_tokens);
    r->tokens_told = told == WP_TOKENS_CACHED;
    if (told == WP_TOKENS_LATER)
        wp_request_move(r, REQ_TOKENS);
    else
        place_first(r);
}

static void on_body(struct wp_exchange *x, const char *p, size_t n)
{
    struct wp_request *r = x->user;
    const struct wp_config *conf = r->settings->conf;
    struct wp_router *router = r->gate->router;

    if (r->state != REQ_READ)
        return;
    if (conf->limits.bodies_total_bytes &&
        atomic_fetch_add(&router->body_bytes, n) + n > conf->limits.bodies_total_bytes) {
        r->body_counted += n;
        answer_error(r, 503, "overloaded", "body_memory", 1000000, false, "The router holds as many request bytes as it may.");
        return;
    }
    r->body_counted += conf->limits.bodies_total_bytes ? n : 0;
    if (wp_buf_add(&r->in, p, n) < 0)
        wp_request_no_memory(r);
}

static void on_drain(struct wp_exchange *x)
{
    wp_relay_drained(x->user);
}

/* Its body was too long, or too slow: the server has answered that. */
static bool turned_away(struct wp_request *r, int rc)
{
    if (r->state != REQ_READ || (rc != WP_ETOOBIG && rc != WP_ETIMEDOUT))
        return false;
    r->status = rc == WP_ETOOBIG ? 413 : 408;
    return true;
}

static void on_over(struct wp_exchange *x, int rc)
{
    struct wp_request *r = x->user;

    r->x = NULL;
    if (rc < 0 && r->state != REQ_DONE && !turned_away(r, rc)) {
        wp_count(r->gate->router->count.client_gone, 1);
        r->client_gone = true;
    }
    wp_tokens_cancel(&r->wait);
    unhold(r);
    if (r->call)
        wp_call_cancel(r->call);
    if (r->place->worker)
        wp_request_settle(r, WP_OUTCOME_NEUTRAL, 0);
    if (r->state != REQ_DONE)
        wp_request_move(r, REQ_DONE);
    wp_request_unless_used(r);
}

static const struct wp_exchange_ops exchange_ops = {
    .on_body = on_body,
    .on_body_end = on_body_end,
    .on_drain = on_drain,
    .on_over = on_over,
};

static void take_id(struct wp_request *r)
{
    struct wp_str id = wp_head_get(r->x->head, "x-request-id");

    if (wp_request_id_ok(id)) {
        memcpy(r->id, id.p, id.n);
        r->id[id.n] = 0;
    } else {
        wp_router_id(r->gate->router, r->id);
    }
}

static bool encoded(const struct wp_head *h)
{
    struct wp_str coding = wp_head_get(h, "content-encoding");

    return coding.n && !wp_str_iis(coding, "identity");
}

void wp_request_begin(struct wp_gate *g, struct wp_exchange *x, enum wp_route_kind kind, const struct wp_key *key,
                      struct wp_key_turn *turn)
{
    const struct wp_config *conf = wp_gate_conf(g);
    struct wp_request *r = wp_calloc(1, sizeof *r);

    if (!r) {
        wp_key_end(turn);
        wp_router_refuse(g, x, (struct wp_str){0}, 503, "overloaded", "body_memory", 1000000, "The router is out of memory.");
        return;
    }
    r->gate = g;
    r->settings = wp_settings_ref(g->settings);
    r->x = x;
    r->kind = kind;
    r->key = key;
    r->turn = *turn;
    r->place = &r->slot[0];
    r->usage = (struct wp_usage){-1, -1, -1};
    wp_list_push(&g->requests, &r->link);
    wp_relay_init(r);
    x->user = r;
    x->ops = &exchange_ops;
    take_id(r);
    r->tenant = wp_tenant_enter(g->router->tenants, x->head, key);
    if (atomic_fetch_add(&g->router->in_flight, 1) >= conf->limits.in_flight && conf->limits.in_flight)
        answer_error(r, 429, "overloaded", "queue", 1000000, false, "The router has as many requests under way as it may.");
    else if (!r->tenant)
        answer_error(r, 400, "bad_header", conf->tenants.header, 0, true, "The tenant's name: want 1 to 64 printable characters without quotes.");
    else if (!wp_priority_of(x->head, key, &r->priority))
        answer_error(r, 400, "bad_header", "x-warmpath-priority", 0, true, "x-warmpath-priority: want a whole number from -100 to 100, lower ones first.");
    else if (!wp_target_of(x->head, &r->target_us))
        answer_error(r, 400, "bad_header", "x-warmpath-slo-ttft-ms", 0, true, "x-warmpath-slo-ttft-ms: want milliseconds above 0, a day at most.");
    else if (encoded(x->head))
        answer_error(r, 415, "unsupported_encoding", "content-encoding", 0, true,
                     "Content-Encoding: want a body without a content coding.");
    else if (x->head->content_length > 0) /* a promise is not believed beyond a megabyte */
        wp_buf_reserve(&r->in, x->head->content_length < (1 << 20) ? (size_t)x->head->content_length : 1 << 20);
    wp_exchange_resume(x); /* it waits when the client expects a 100 first; does nothing once it is answered */
}

/* The worker is not to blame: it was we who hung up. */
static void cut(struct wp_request *r)
{
    static const char text[] = "The router is shutting down.";
    struct wp_call *c = r->call;

    r->call = NULL;
    wp_tokens_cancel(&r->wait);
    unhold(r);
    if (r->head_sent) {
        wp_relay_cut(r, 503, "no_worker", "drain", text);
        wp_request_move(r, REQ_DONE);
    } else {
        answer_error(r, 503, "no_worker", "drain", 1000000, false, text);
    }
    if (r->place->worker)
        wp_request_settle(r, WP_OUTCOME_NEUTRAL, 0);
    if (c)
        wp_call_cancel(c);
}

size_t wp_requests_cut(struct wp_gate *g)
{
    size_t n = 0;

    WP_LIST_EACH(&g->requests, at)
    {
        struct wp_request *r = WP_CONTAINER(at, struct wp_request, link);

        if (!r->x || r->state == REQ_DONE)
            continue;
        cut(r);
        n++;
    }
    return n;
}
