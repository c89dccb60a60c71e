/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts of a request: where it goes, the call, and the next one when that failed before the answer's head went to the client.
 *
 * Another worker is tried at most retry.attempts times.  Free of the retry budget: connect failures and the reuse race, since the
 * engine has seen nothing (the race is repeated once on the same worker, on a fresh connection, and when that dies too the worker is the first
 * of two), and a worker that died with the request in flight: but of those at most two, then the request itself is suspected and answered 502.
 * A worker goes down by its probes: who has no answer from it is repeated like that, too, or waits on where there is no other.
 */
#include "router/request_inner.h"

#include "base/clock.h"
#include "router/edit.h"
#include "router/forward.h"

#include <math.h>

enum { TOKENS_WAITED_FOR = 131072 }; /* at most, of an answer that comes whole */

bool wp_request_place(struct wp_request *r, struct wp_placement *p, struct wp_hold *hold, enum wp_place_result *result, const char **why,
                      uint64_t *retry_us)
{
    struct wp_want *want = &r->want;
    uint64_t rank;

    *want = (struct wp_want){
        .id = r->id,
        .model = r->kind == WP_ROUTE_STORED ? NULL : &r->ask.model,
        .prompt = &r->ask.prompt,
        .tokens = r->ask.tokens,
        .max_tokens = wp_body_max_tokens(&r->ask.json),
        .sequences = wp_body_sequences(&r->ask.json),
        .session_key = wp_session_key(r->x->head, &r->ask.json),
        .who = wp_tenant_who(r->tenant, r->priority, r->ask.tokens),
        .tenant = r->tenant,
        .priority = r->priority,
        .held_us = &r->waits.held_us,
        .target_us = r->target_us,
        .due_us = r->target_us && r->attempts == 0 ? r->read_us + r->target_us : 0, /* one that was begun is not given up for it */
        .avoid = r->failed,
        .n_avoid = r->n_failed,
        .only = r->race_repeat ? r->place->worker : r->pinned,
        .again = r->race_repeat ? r->place : NULL,
    };
    if (r->settings->conf->listen.trust_client_routing &&
        wp_str_u64(wp_head_get(r->x->head, "x-data-parallel-rank"), &rank) && rank <= UINT32_MAX) {
        want->ranked = true;
        want->rank = (uint32_t)rank;
    }
    if (r->race_repeat) {
        want->ranked = true;
        want->rank = r->place->rank_number;
    }
    *result = wp_fleet_place_or_hold(r->gate->router->fleet, want, p, hold, why, retry_us);
    return *result == WP_PLACED;
}

static bool budget_allows(struct wp_router *router, double share)
{
    uint64_t tries = atomic_load(&router->first_tries), repeats = atomic_load(&router->repeats);

    if (tries > 10000) { /* old times fade: both are halved, and a lost update between loops does no harm */
        atomic_store(&router->first_tries, tries / 2);
        atomic_store(&router->repeats, repeats / 2);
    }
    if ((double)repeats >= 10 + share * (double)tries) /* ten are free, or a quiet router could never retry */
        return false;
    atomic_fetch_add(&router->repeats, 1);
    return true;
}

static bool avoid_worker(struct wp_request *r, struct wp_worker *w)
{
    for (size_t i = 0; i < r->n_failed; i++)
        if (r->failed[i] == w)
            return true;
    if (r->n_failed == WP_ATTEMPTS_MAX)
        return false;
    r->failed[r->n_failed++] = wp_worker_ref(w);
    return true;
}

bool wp_request_retry(struct wp_request *r, const char *reason, enum wp_outcome o, uint64_t rest_us, bool counts)
{
    const struct wp_config *conf = r->settings->conf;
    struct wp_placement *next = r->place == &r->slot[0] ? &r->slot[1] : &r->slot[0];
    enum wp_place_result no;
    uint64_t retry_us;
    const char *why;

    if (!r->gate->client) /* the gate closes: nothing can be sent any more */
        return false;
    if (!r->x || r->head_sent || r->attempts >= WP_ATTEMPTS_MAX || (!r->race_repeat && r->attempts - r->races > conf->retry.attempts))
        return false;
    if (!r->race_repeat && (r->pinned || !avoid_worker(r, r->place->worker)))
        return false;
    if (!wp_request_place(r, next, NULL, &no, &why, &retry_us))
        return false;
    if (counts && !budget_allows(r->gate->router, conf->retry.budget)) {
        wp_fleet_end(r->gate->router->fleet, next, WP_OUTCOME_NEUTRAL, 0);
        return false;
    }
    wp_count(WP_SERIES(r->gate->router->count.retries, reason), 1);
    wp_log(WP_DEBUG, "request", "id=%s worker=%s %s, next worker=%s", r->id, r->place->worker->conf.id, reason,
           next->worker->conf.id);
    wp_request_settle(r, o, rest_us);
    r->place = next;
    if (r->state != REQ_PLACE)
        wp_request_move(r, REQ_PLACE);
    wp_request_dispatch(r);
    return true;
}

/*
 * How long an answer may keep us waiting: the limit, twice what the prompt should take there, and where the answer comes whole, at
 * the end of its generation, the time of its tokens.  Six times the limit in all at most, so that an engine that is silent is given up in a time
 * that the operator knows; but whoever says how many tokens it wants, and wants them at once, waits for as many, as the engine may well be at
 * work all that time.
 */
static uint64_t first_byte_us(const struct wp_request *r)
{
    const struct wp_config *conf = r->settings->conf;
    uint64_t limit = conf->limits.first_byte_us;
    uint32_t tokens = wp_body_max_tokens(&r->ask.json);
    double more = isfinite(r->place->ttft_us) ? 2 * r->place->ttft_us : 0, asked = 0;

    if (r->ask.json.stream.kind != WP_JSON_TRUE) {
        asked = (double)(tokens < TOKENS_WAITED_FOR ? tokens : TOKENS_WAITED_FOR) * (double)conf->slo.itl_us;
        more += tokens ? 0 : 4096 * (double)conf->slo.itl_us;
    }
    return limit + (uint64_t)(fmin(fmax(more, 0), 5.0 * (double)limit) + asked);
}

/* The target behind the worker's base path; absent when out of memory. */
static struct wp_str target_on(struct wp_request *r, const struct wp_worker *w)
{
    struct wp_str base = w->url.path, path = r->x->head->target;
    char *p;

    if (!base.n)
        return path;
    p = wp_arena_alloc(&r->arena, base.n + path.n);
    if (!p)
        return (struct wp_str){0};
    memcpy(p, base.p, base.n);
    memcpy(p + base.n, path.p, path.n);
    return (struct wp_str){p, base.n + path.n};
}

void wp_request_dispatch(struct wp_request *r)
{
    struct wp_field field[WP_FORWARD_MAX];
    const struct wp_config *conf = r->settings->conf;
    struct wp_worker *w = r->place->worker;
    struct wp_call_spec spec = {
        .host = w->url.host,
        .port = w->url.port,
        .tls = w->tls,
        .method = r->x->head->method,
        .field = field,
        .connect_us = conf->limits.connect_us,
        .first_byte_us = first_byte_us(r),
        .idle_us = conf->limits.idle_us,
        .fresh = r->races || r->lost,
        .ops = &wp_relay_ops,
        .user = r,
    };

    spec.target = r->attempts == 0 || wp_request_edit_again(r) == 0 ? target_on(r, w) : (struct wp_str){0};
    spec.body = r->body;
    r->attempts++;
    wp_worker_unref(r->tried);
    r->tried = wp_worker_ref(w);
    r->placed_us = wp_now_us();
    spec.n_fields = wp_forward_request(r, field);
    r->race_repeat = false;
    wp_request_move(r, REQ_CONNECT);
    r->call = spec.n_fields && spec.target.p ? wp_call(r->gate->client, &spec) : NULL;
    if (r->call) {
        r->calls_open++;
        return;
    }
    wp_request_settle(r, WP_OUTCOME_NEUTRAL, 0);
    wp_request_no_memory(r);
}

/* Its worker is down: as when the connection had died, but that one who can go nowhere else may as well wait for it to come back. */
static bool rescue(struct wp_request *r)
{
    struct wp_call *c = r->call;
    bool died = c->phase != WP_CALL_CONNECT;

    if (died && r->lost) { /* the second one */
        r->call = NULL;
        wp_request_settle(r, WP_OUTCOME_FAILED, 0);
        wp_request_fail(r, -ECONNABORTED, "it went down", false);
        wp_call_cancel(c);
        return true;
    }
    r->call = NULL; /* a new attempt sets it; the old one is cancelled after */
    r->lost += died;
    if (!wp_request_retry(r, "down", WP_OUTCOME_FAILED, 0, false)) {
        r->lost -= died;
        r->call = c;
        return false;
    }
    wp_call_cancel(c);
    return true;
}

size_t wp_requests_rescue(struct wp_gate *g)
{
    size_t stranded = 0;

    WP_LIST_EACH(&g->requests, at)
    {
        struct wp_request *r = WP_CONTAINER(at, struct wp_request, link);

        if (r->x && r->call && !r->head_sent && wp_fleet_is_down(g->router->fleet, r->place->worker))
            stranded += !rescue(r);
    }
    return stranded;
}
