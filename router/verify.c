/* SPDX-License-Identifier: Apache-2.0 */
#include "router/verify.h"

#include "index/index.h"
#include "net/json.h"

#include <stdio.h>
#include <stdlib.h>

enum { WAITS = 30, WAIT_US = 100000, AGAIN = 5, SHOWN = 16, TIERS = 3, PAGE_MAX = 256 << 20, TIMEOUT_US = 20000000 };

static const char *const tier_names[TIERS] = {"gpu", "cpu", "disk"};

struct side { /* of a tier, on one side */
    uint64_t names, sum;
};

struct name {
    uint64_t engine;
    bool met;
};

struct tier {
    struct side index, engine;
    struct name *name; /* the engine's, sorted */
    size_t n;
    uint64_t missing, extra; /* names that the index has not, and that the engine has not */
    uint64_t missing_shown[SHOWN], extra_shown[SHOWN];
    uint64_t listed_sum; /* of the index's names that were met */
};

struct rank {
    struct wp_verify_rank is;
    uint64_t next, pending; /* the engine's */
    struct tier tier[TIERS];
    uint64_t below; /* the index's names in slower tiers, of which the engine says nothing */
    bool differs;
    bool moving; /* it changed whenever it was read */
};

struct wp_verify {
    struct wp_gate *gate;
    struct wp_worker *worker;
    wp_verify_fn fn;
    void *arg;
    struct wp_call *call;
    struct wp_timer timer;
    struct wp_buf page;
    int status, page_rc;
    bool names; /* they were asked for, not digests */
    unsigned waits, again;
    struct rank *rank;
    uint32_t n_ranks, at_rank; /* at_rank: whose names are compared */
    uint64_t cursor;
};

static void forget_names(struct wp_verify *v)
{
    for (uint32_t i = 0; v->rank && i < v->n_ranks; i++)
        for (int t = 0; t < TIERS; t++) {
            wp_free(v->rank[i].tier[t].name);
            v->rank[i].tier[t].name = NULL;
        }
}

static void verify_free(struct wp_verify *v)
{
    forget_names(v);
    wp_free(v->rank);
    wp_buf_fini(&v->page);
    wp_worker_unref(v->worker);
    wp_free(v);
}

void wp_verify_cancel(struct wp_verify *v)
{
    if (!v)
        return;
    wp_timer_stop(&v->gate->loop, &v->timer);
    if (v->call) {
        v->fn = NULL; /* it goes with its call */
        wp_call_cancel(v->call);
    } else {
        verify_free(v);
    }
}

static void end(struct wp_verify *v, int rc, const char *why, struct wp_buf *json)
{
    wp_verify_fn fn = v->fn;

    v->fn = NULL;
    fn(v->arg, rc, why, json);
    verify_free(v);
}

/* ---- what is said ---- */

static int hashes_json(struct wp_buf *b, const char *key, uint64_t n, const uint64_t shown[])
{
    int rc = wp_buf_printf(b, ",\"%s\":%llu,\"%s_hashes\":[", key, (unsigned long long)n, key);

    for (uint64_t i = 0; rc == 0 && i < n && i < SHOWN; i++)
        rc = wp_buf_printf(b, "%s\"%llu\"", i ? "," : "", (unsigned long long)shown[i]);
    return rc ? rc : wp_buf_adds(b, "]");
}

static bool same(const struct tier *t)
{
    return t->index.names == t->engine.names && t->index.sum == t->engine.sum;
}

static int tier_json(const struct tier *t, const char *name, struct wp_buf *b)
{
    int rc = wp_buf_printf(b,
                           "{\"tier\":\"%s\",\"agrees\":%s,\"index_names\":%llu,\"index_digest\":\"%llu\",\"engine_names\":%llu,"
                           "\"engine_digest\":\"%llu\"",
                           name, same(t) ? "true" : "false", (unsigned long long)t->index.names, (unsigned long long)t->index.sum,
                           (unsigned long long)t->engine.names, (unsigned long long)t->engine.sum);

    rc = rc ? rc : hashes_json(b, "missing", t->missing, t->missing_shown);
    rc = rc ? rc : hashes_json(b, "extra", t->extra, t->extra_shown);
    return rc ? rc : wp_buf_adds(b, "}");
}

static bool is_live(const struct rank *r)
{
    return strcmp(r->is.feed, "live") == 0;
}

static const char *verdict_of(const struct rank *r)
{
    return !r->differs ? "true" : !is_live(r) || r->moving || r->pending || r->next != r->is.next ? "null" : "false";
}

static int rank_json(const struct rank *r, struct wp_buf *b)
{
    int rc = wp_buf_printf(b, "{\"rank\":%u,\"agrees\":%s,\"feed\":\"%s\",\"feed_next\":%llu,\"engine_next\":%llu,\"engine_pending\":%llu,\"tiers\":[",
                           r->is.number, verdict_of(r), r->is.feed, (unsigned long long)r->is.next, (unsigned long long)r->next,
                           (unsigned long long)r->pending);

    for (int t = 0; rc == 0 && t < TIERS; t++) {
        rc = t ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : tier_json(&r->tier[t], tier_names[t], b);
    }
    return rc ? rc : wp_buf_printf(b, "],\"not_known\":%llu}", (unsigned long long)r->below);
}

static int begin_json(const struct wp_verify *v, const char *engine, const char *agrees, const char *says, struct wp_buf *b)
{
    int rc = wp_buf_adds(b, "{\"worker\":");

    rc = rc ? rc : wp_buf_json(b, wp_str_of(v->worker->conf.id));
    return rc ? rc : wp_buf_printf(b, ",\"engine\":\"%s\",\"agrees\":%s,\"says\":\"%s\",\"ranks\":[", engine, agrees, says);
}

static void conclude(struct wp_verify *v)
{
    const char *agrees = "true", *says = "the index has what the engine has";
    struct wp_buf b = {0};
    bool live = true;
    int rc;

    for (uint32_t i = 0; i < v->n_ranks; i++) {
        const char *one = verdict_of(&v->rank[i]);

        live &= is_live(&v->rank[i]);
        if (strcmp(one, "false") == 0 || strcmp(agrees, "true") == 0)
            agrees = one;
    }
    if (strcmp(agrees, "false") == 0)
        says = "they differ, and the feed has all that the engine has announced";
    else if (strcmp(agrees, "null") == 0 && !live)
        says = "they differ, and no live feed tells what the engine has";
    else if (strcmp(agrees, "null") == 0)
        says = "they differ, while the engine goes on: it has announced what the feed has not heard, or is about to";
    rc = begin_json(v, "simulated", agrees, says, &b);
    for (uint32_t i = 0; rc == 0 && i < v->n_ranks; i++) {
        rc = i ? wp_buf_adds(&b, ",") : 0;
        rc = rc ? rc : rank_json(&v->rank[i], &b);
    }
    rc = rc ? rc : wp_buf_adds(&b, "]}");
    end(v, rc, NULL, &b);
    wp_buf_fini(&b);
}

/* A real engine: more than its capacity it cannot have; which blocks it has nobody can ask. */
static int usage_json(struct wp_verify *v, struct rank *r, struct wp_buf *b)
{
    uint64_t tier[WP_TIER_MAX], doubtful, capacity = r->is.block_size ? r->is.kv_tokens / r->is.block_size : 0;
    bool over;
    int rc;

    wp_index_holder_stats(wp_fleet_index(v->gate->router->fleet), r->is.holder, tier, &doubtful);
    over = capacity && tier[0] + tier[1] > capacity;
    r->differs = over;
    rc = wp_buf_printf(b, "{\"rank\":%u,\"agrees\":%s,\"feed\":\"%s\",\"gpu_blocks\":%llu,\"cpu_blocks\":%llu,\"doubtful\":%llu,\"capacity_blocks\":",
                       r->is.number, over ? "false" : "null", r->is.feed, (unsigned long long)tier[0], (unsigned long long)tier[1],
                       (unsigned long long)doubtful);
    rc = rc ? rc : capacity ? wp_buf_printf(b, "%llu", (unsigned long long)capacity) : wp_buf_adds(b, "null");
    rc = rc ? rc : wp_buf_adds(b, ",\"in_use_blocks\":");
    rc = rc                               ? rc
         : capacity && r->is.kv_usage >= 0 ? wp_buf_printf(b, "%.0f", r->is.kv_usage * (double)capacity)
                                           : wp_buf_adds(b, "null");
    return rc ? rc : wp_buf_printf(b, ",\"running\":%s}", r->is.running < 0 ? "null" : r->is.running > 0 ? "true" : "false");
}

static void conclude_by_usage(struct wp_verify *v)
{
    struct wp_buf b = {0}, ranks = {0};
    bool over = false;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < v->n_ranks; i++) {
        rc = i ? wp_buf_adds(&ranks, ",") : 0;
        rc = rc ? rc : usage_json(v, &v->rank[i], &ranks);
        over |= v->rank[i].differs;
    }
    rc = rc ? rc
            : begin_json(v, v->worker->engine->name, over ? "false" : "null",
                         over ? "the index has more blocks than the engine has room for"
                              : "the index has no more blocks than the engine has room for; which ones the engine has it does not tell", &b);
    rc = rc ? rc : wp_buf_add(&b, ranks.p ? ranks.p : "", ranks.n);
    rc = rc ? rc : wp_buf_adds(&b, "]}");
    end(v, rc, NULL, &b);
    wp_buf_fini(&b);
    wp_buf_fini(&ranks);
}

/* ---- what is asked ---- */

static void ask(struct wp_verify *v, bool names);

/* A rank's figures of the index, as they are now. */
static bool look(struct wp_verify *v, struct rank *r, uint32_t number)
{
    struct wp_index_digest d;

    if (!wp_fleet_verify_rank(v->gate->router->fleet, v->worker, number, &r->is))
        return false;
    wp_index_digest(wp_fleet_index(v->gate->router->fleet), r->is.holder, &d);
    r->below = 0;
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (t < TIERS)
            r->tier[t].index = (struct side){d.names[t] + d.floating[t], d.sum[t] + d.floating_sum[t]};
        else
            r->below += d.names[t] + d.floating[t];
    return true;
}

static bool number_in(struct wp_json v, uint64_t *out)
{
    char text[32];
    long n = wp_json_text(v, text, sizeof text);

    return n > 0 ? wp_str_u64((struct wp_str){text, (size_t)n}, out) : wp_json_u64(v, out);
}

static int by_engine(const void *a, const void *b)
{
    const struct name *x = a, *y = b;

    return x->engine < y->engine ? -1 : x->engine > y->engine;
}

static int read_names(struct tier *t, struct wp_json list)
{
    struct wp_json at = {0};
    size_t n = 0;

    t->engine = (struct side){0};
    while (wp_json_each(list, &at))
        n++;
    t->name = wp_calloc(n ? n : 1, sizeof *t->name);
    if (!t->name)
        return WP_ENOMEM;
    t->n = 0;
    at = (struct wp_json){0};
    while (wp_json_each(list, &at) && t->n < n && number_in(at, &t->name[t->n].engine)) {
        t->engine.names++;
        t->engine.sum += wp_index_mix(t->name[t->n++].engine, 0);
    }
    qsort(t->name, t->n, sizeof *t->name, by_engine);
    return 0;
}

/* The engine's object of one rank.  WP_ESYNTAX: it is something else. */
static int read_rank(struct wp_verify *v, struct rank *r, struct wp_json j)
{
    for (int t = 0; t < TIERS; t++) {
        struct wp_json is = wp_json_get(j, tier_names[t]);
        struct tier *to = &r->tier[t];
        int rc = v->names ? (is.kind == WP_JSON_ARRAY ? read_names(to, is) : WP_ESYNTAX) : 0;

        if (rc < 0)
            return rc;
        if (!v->names && (!number_in(wp_json_get(is, "names"), &to->engine.names) || !number_in(wp_json_get(is, "digest"), &to->engine.sum)))
            return WP_ESYNTAX;
    }
    return number_in(wp_json_get(j, "next"), &r->next) && number_in(wp_json_get(j, "pending"), &r->pending) ? 0 : WP_ESYNTAX;
}

static int read_page(struct wp_verify *v)
{
    struct wp_err err;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < v->n_ranks; i++) {
        char key[16];
        const char *name = key;
        struct wp_json j;

        snprintf(key, sizeof key, "%u", i);
        rc = wp_json_members(wp_buf_str(&v->page), &name, 1, &j, &err);
        rc = rc ? rc : read_rank(v, &v->rank[i], j);
        rc = rc ? rc : look(v, &v->rank[i], i) ? 0 : WP_ENOENT;
    }
    return rc;
}

/* True: all that the engine has announced has been heard, or it was waited for long enough. */
static bool in_step(struct wp_verify *v)
{
    bool late = false;

    for (uint32_t i = 0; i < v->n_ranks; i++) {
        struct rank *r = &v->rank[i];

        r->differs = false;
        for (int t = 0; t < TIERS; t++)
            r->differs |= !same(&r->tier[t]);
        late |= r->differs && (r->pending || r->next != r->is.next);
    }
    return !late || v->waits == WAITS;
}

static void meet(void *arg, uint64_t engine, uint16_t group, uint8_t tiers, bool floats)
{
    struct rank *r = arg;

    (void)floats;
    for (int t = 0; t < TIERS; t++) {
        struct name want = {.engine = engine}, *found;
        struct tier *to = &r->tier[t];

        if (!(tiers >> t & 1))
            continue;
        to->listed_sum += wp_index_mix(engine, group);
        found = group ? NULL : bsearch(&want, to->name, to->n, sizeof want, by_engine);
        if (found)
            found->met = true;
        else if (to->extra++ < SHOWN)
            to->extra_shown[to->extra - 1] = engine;
    }
}

/* Was every name met, and once?  Then what the engine has besides is missing. */
static bool met_all(struct wp_verify *v, struct rank *r)
{
    struct rank now = {.is = r->is};

    if (!look(v, &now, r->is.number) || now.is.next != r->is.next)
        return false;
    for (int t = 0; t < TIERS; t++) {
        struct tier *to = &r->tier[t];

        if (now.tier[t].index.sum != to->listed_sum)
            return false;
        to->index = now.tier[t].index;
        for (size_t i = 0; i < to->n; i++)
            if (!to->name[i].met && to->missing++ < SHOWN)
                to->missing_shown[to->missing - 1] = to->name[i].engine;
    }
    return true;
}

/* A slice of the comparison of names. */
static void compare(struct wp_verify *v)
{
    struct rank *r = &v->rank[v->at_rank];

    if (wp_index_names(wp_fleet_index(v->gate->router->fleet), r->is.holder, &v->cursor, meet, r)) {
        wp_timer_in(&v->gate->loop, &v->timer, 0);
        return;
    }
    r->moving = !met_all(v, r);
    if (r->moving && v->again++ < AGAIN) {
        v->names = false;
        wp_timer_in(&v->gate->loop, &v->timer, WAIT_US);
    } else if (++v->at_rank < v->n_ranks) {
        wp_timer_in(&v->gate->loop, &v->timer, 0);
    } else {
        conclude(v);
    }
}

static void on_time(struct wp_timer *t)
{
    struct wp_verify *v = t->arg;

    if (v->names)
        compare(v);
    else
        ask(v, false);
}

static void start_compare(struct wp_verify *v)
{
    for (uint32_t i = 0; i < v->n_ranks; i++)
        for (int t = 0; t < TIERS; t++) {
            struct tier *to = &v->rank[i].tier[t];

            to->missing = to->extra = to->listed_sum = 0;
        }
    v->at_rank = 0;
    v->cursor = 0;
    wp_timer_in(&v->gate->loop, &v->timer, 0);
}

static void judge(struct wp_verify *v)
{
    bool differ = false;
    int rc = read_page(v);

    wp_buf_fini(&v->page);
    if (rc == WP_ESYNTAX || rc == WP_EINVAL) {
        conclude_by_usage(v);
        return;
    }
    if (rc < 0) {
        end(v, rc, NULL, NULL);
        return;
    }
    if (!in_step(v)) {
        v->waits++;
        v->names = false;
        wp_timer_in(&v->gate->loop, &v->timer, WAIT_US);
        return;
    }
    for (uint32_t i = 0; i < v->n_ranks; i++)
        differ |= v->rank[i].differs;
    if (!differ)
        conclude(v);
    else if (v->names)
        start_compare(v);
    else
        ask(v, true);
}

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    struct wp_verify *v = c->user;

    v->status = h->status;
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    struct wp_verify *v = c->user;
    int rc = v->page_rc ? v->page_rc : wp_buf_add(&v->page, p, n);

    v->page_rc = rc;
}

static void on_over(struct wp_call *c, int rc)
{
    struct wp_verify *v = c->user;

    v->call = NULL;
    rc = rc ? rc : v->page_rc;
    if (!v->fn) /* cancelled */
        verify_free(v);
    else if (rc < 0)
        end(v, rc, c->why, NULL);
    else if (v->status != 200)
        conclude_by_usage(v);
    else
        judge(v);
}

static const struct wp_call_ops call_ops = {.on_head = on_head, .on_body = on_body, .on_over = on_over};

static void ask(struct wp_verify *v, bool names)
{
    const struct wp_worker *w = v->worker;
    char target[600], bearer[512];
    struct wp_field auth = {WP_STR("Authorization"), {0}};
    struct wp_call_spec spec = {
        .host = w->url.host,
        .port = w->url.port,
        .tls = w->tls,
        .method = WP_STR("GET"),
        .field = &auth,
        .n_fields = w->conf.api_key[0] != 0,
        .total_us = TIMEOUT_US,
        .ops = &call_ops,
        .user = v,
    };

    forget_names(v);
    v->names = names;
    v->status = v->page_rc = 0;
    v->page = (struct wp_buf){.max = PAGE_MAX};
    snprintf(bearer, sizeof bearer, "Bearer %s", w->conf.api_key);
    auth.value = wp_str_of(bearer);
    snprintf(target, sizeof target, "%.*s/sim/cache?%s=true", (int)w->url.path.n, w->url.path.p, names ? "names" : "digest");
    spec.target = wp_str_of(target);
    v->call = wp_call(v->gate->client, &spec);
    if (!v->call)
        end(v, WP_ENOMEM, NULL, NULL);
}

struct wp_verify *wp_verify(struct wp_gate *g, struct wp_worker *w, wp_verify_fn fn, void *arg)
{
    struct wp_verify *v = wp_calloc(1, sizeof *v);
    struct rank *rank = wp_calloc(w->n_ranks, sizeof *rank);

    if (!v || !rank) {
        wp_free(v);
        wp_free(rank);
        wp_worker_unref(w);
        return NULL;
    }
    *v = (struct wp_verify){.gate = g, .worker = w, .fn = fn, .arg = arg, .rank = rank, .n_ranks = w->n_ranks};
    for (uint32_t i = 0; i < v->n_ranks; i++)
        wp_fleet_verify_rank(g->router->fleet, w, i, &rank[i].is);
    wp_timer_init(&v->timer, on_time, v);
    wp_timer_in(&g->loop, &v->timer, 0);
    return v;
}
