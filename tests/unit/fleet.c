/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet from outside: who gets a request, and that every mark ends with what it counts. */
#include "router/fleet.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "router/ask.h"
#include "router/hold.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>

static struct wp_config *conf;
static struct wp_metrics *metrics;
static struct wp_fleet *fleet;
static long live;

#define SET_UP(...)                                                     \
    do {                                                                \
        static const char *const set[] = {__VA_ARGS__};                 \
        set_up(set, sizeof set / sizeof set[0]);                        \
    } while (0)

static void set_up(const char *const set[], size_t n)
{
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;

    live = wp_mem_live();
    EXPECT_INT("configuration", 0, wp_config_read(&conf, NULL, set, n, NULL, 0, &errors));
    EXPECT_TEXT("configuration", "", wp_buf_str(&errors));
    wp_buf_fini(&errors);
    EXPECT_INT("metrics", 0, wp_metrics_create(&metrics, &err));
    EXPECT_INT("fleet", 0, wp_fleet_create(&fleet, conf, metrics, &err));
}

static void tear_down(void)
{
    wp_fleet_destroy(fleet);
    wp_metrics_destroy(metrics);
    wp_config_destroy(conf);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static int add(const char *id)
{
    struct wp_config_worker w;
    struct wp_err err = WP_ERR_INIT;
    char json[600];
    int rc;

    snprintf(json, sizeof json, "{\"url\":\"http://127.0.0.1:1\",\"id\":\"%s\"}", id);
    EXPECT_INT("entry", 0, wp_config_worker_json(&w, wp_str_of(json), &err));
    rc = wp_fleet_add(fleet, &w, conf, &err);
    wp_config_worker_fini(&w);
    return rc;
}

/* A probe's answer: models is "a b>a" (an adapter b of a), all adapters loaded from root. */
struct answer {
    const char *models;
    uint32_t block_size, max_len;
    uint64_t kv_tokens;
    bool sleeping, down;
    uint64_t root;
    uint32_t ranks; /* whose events it announces; 0: not asked */
};

static void probed(const char *id, struct answer a)
{
    struct wp_engine_facts f = {.up = !a.down, .rc = a.down ? 500 : 200, .running = -1, .waiting = -1, .kv_usage = -1,
                                .sleep_known = true, .sleeping = a.sleeping, .block_size = a.block_size, .kv_tokens = a.kv_tokens,
                                .feed = {.known = a.ranks > 0, .ranks = a.ranks, .events = "tcp://127.0.0.1:1"}};
    struct wp_worker *w = wp_fleet_find(fleet, wp_str_of(id));
    struct wp_str rest = wp_str_of(a.models), one;

    f.model = wp_calloc(8, sizeof *f.model);
    f.models_known = a.models != NULL;
    while (a.models && wp_str_split(&rest, ' ', &one)) {
        struct wp_str parent = one, name;

        wp_str_split(&parent, '>', &name);
        f.model[f.n_models++] = (struct wp_engine_model){wp_strndup(name.p, name.n), parent.p ? wp_strndup(parent.p, parent.n) : NULL,
                                                         a.max_len, parent.p ? a.root : 0};
    }
    EXPECT_TRUE(id, w != NULL);
    if (w)
        wp_fleet_probed(fleet, w, &f, conf);
    wp_engine_facts_fini(&f);
    wp_worker_unref(w);
}

static void add_up(const char *id, struct answer a)
{
    EXPECT_INT(id, 0, add(id));
    if (!a.models)
        a.models = "m";
    probed(id, a);
}

/* ---- requests ---- */

struct req {
    struct wp_arena arena;
    struct wp_asked ask;
    struct wp_placement p;
    struct wp_want want;
    char *body;
    const char *why;
    uint64_t retry_us;
};

static void req_body(struct req *r, const char *body)
{
    struct wp_refusal no = {0};
    int rc;

    *r = (struct req){.body = wp_strdup(body)};
    rc = wp_ask_read(&r->ask, fleet, conf, wp_ask_guess(wp_str_of(r->body)), (struct wp_str){0}, wp_str_of(r->body), &r->arena, &no);
    EXPECT_TEXT("understood", "", wp_str_of(rc < 0 ? no.text : ""));
    r->want = (struct wp_want){.model = &r->ask.model, .prompt = &r->ask.prompt, .tokens = r->ask.tokens};
}

/* n token ids: those of the seed, the same for all n. */
static void req_tokens(struct req *r, const char *model, unsigned seed, size_t n)
{
    struct wp_buf b = {0};

    wp_buf_printf(&b, "{\"model\":\"%s\",\"prompt\":[", model);
    for (size_t i = 0; i < n; i++)
        wp_buf_printf(&b, "%s%u", i ? "," : "", seed * 100000 + (unsigned)i);
    wp_buf_adds(&b, "]}");
    wp_buf_add(&b, "", 1);
    req_body(r, b.p);
    wp_buf_fini(&b);
}

static enum wp_place_result place(struct req *r)
{
    return wp_fleet_place(fleet, &r->want, &r->p, &r->why, &r->retry_us);
}

static void done(struct req *r)
{
    wp_arena_fini(&r->arena);
    wp_free(r->body);
}

static void expect_placed(const char *label, struct req *r, const char *id)
{
    EXPECT_INT(label, WP_PLACED, place(r));
    EXPECT_TEXT(label, id, wp_str_of(r->p.worker ? r->p.worker->conf.id : "(none)"));
}

static void end(struct req *r, enum wp_outcome o)
{
    wp_fleet_end(fleet, &r->p, o, 0);
    wp_fleet_end(fleet, &r->p, WP_OUTCOME_FAILED, 0); /* ended already: nothing */
}

/* The whole of a request on one worker. */
static void serve_on(const char *id, const char *model, unsigned seed, size_t n)
{
    struct wp_worker *w = wp_fleet_find(fleet, wp_str_of(id));
    struct req r;

    req_tokens(&r, model, seed, n);
    r.want.only = w;
    expect_placed("served", &r, id);
    wp_fleet_first(fleet, &r.p);
    wp_fleet_tokens(fleet, &r.p, 5);
    end(&r, WP_OUTCOME_GOOD);
    done(&r);
    wp_worker_unref(w);
}

/* ---- what the fleet says of itself ---- */

static json_t *load(struct wp_buf *b, int rc, const char *what)
{
    json_error_t e;
    json_t *v;

    EXPECT_INT(what, 0, rc);
    v = json_loadb(b->p, b->n, JSON_REJECT_DUPLICATES, &e);
    EXPECT_TEXT(what, "", wp_str_of(v ? "" : e.text));
    wp_buf_fini(b);
    return v;
}

static json_t *explain(struct req *r)
{
    struct wp_buf b = {0};
    int rc = wp_fleet_explain(fleet, &r->want, &b);

    return load(&b, rc, "explain");
}

static json_t *candidate(json_t *explained, const char *id)
{
    json_t *c;
    size_t i;

    json_array_foreach(json_object_get(explained, "candidates"), i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "worker")), id) == 0)
            return c;
    }
    return NULL;
}

static long long hit(const char *id, const char *model, unsigned seed, size_t n, const char *which)
{
    struct req r;
    long long tokens;
    json_t *v;

    req_tokens(&r, model, seed, n);
    v = explain(&r);
    tokens = json_integer_value(json_object_get(json_object_get(candidate(v, id), "overlap"), which));
    json_decref(v);
    done(&r);
    return tokens;
}

static json_t *index_now(void)
{
    struct wp_buf b = {0};
    int rc = wp_fleet_index_json(fleet, NULL, 0, &b);

    return load(&b, rc, "index");
}

static long long index_number(const char *key)
{
    json_t *v = index_now();
    long long x = json_integer_value(json_object_get(v, key));

    json_decref(v);
    return x;
}

static void expect_at_rest(void)
{
    struct wp_buf b = {0};
    json_t *v = load(&b, wp_fleet_workers_json(fleet, (struct wp_str){0}, &b), "workers"), *w;
    size_t i;

    json_array_foreach(json_object_get(v, "workers"), i, w)
    {
        EXPECT_INT("in flight", 0, json_integer_value(json_object_get(w, "in_flight")));
        EXPECT_INT("decoding", 0, json_integer_value(json_object_get(w, "decoding")));
        EXPECT_INT("backlog", 0, json_integer_value(json_object_get(w, "prefill_backlog_tokens")));
        EXPECT_NEAR("wait", 0, json_number_value(json_object_get(w, "wait_us")), 0);
    }
    json_decref(v);
    EXPECT_INT("blocks in flight", 0, index_number("in_flight_blocks"));
    EXPECT_INT("page", 0, wp_metrics_render(metrics, &b));
    wp_buf_add(&b, "", 1);
    for (const char *at = b.p; (at = strstr(at, "\nwarmpath_worker_in_flight{")); at++)
        EXPECT_TEXT("gauge", "} 0", ((struct wp_str){strchr(at, '}'), 3}));
    for (const char *at = b.p; (at = strstr(at, "\nwarmpath_worker_prefill_backlog_tokens{")); at++)
        EXPECT_TEXT("gauge", "} 0", ((struct wp_str){strchr(at, '}'), 3}));
    wp_buf_fini(&b);
}

/* ---- tests: models ---- */

static void a_model_is_known_by_who_serves_it(void)
{
    struct wp_arena arena = {0};
    struct wp_model_info info;

    SET_UP("models.0.name=big", "models.0.aliases.0=gpt-x", "models.1.name=cold");
    EXPECT_INT("add", 0, add("w1"));
    EXPECT_INT("ok", 0, wp_fleet_model(fleet, WP_STR("whatever"), &arena, &info));
    EXPECT_TRUE("nobody has said what it serves: it may be", info.known);
    EXPECT_TRUE("but it is not known to be", !info.listed);
    probed("w1", (struct answer){.models = "big sql>big", .block_size = 32, .max_len = 100});
    add_up("w2", (struct answer){.models = "big", .block_size = 16, .max_len = 200});
    EXPECT_INT("ok", 0, wp_fleet_model(fleet, WP_STR("whatever"), &arena, &info));
    EXPECT_TRUE("now it is not", !info.known && !info.listed);
    EXPECT_INT("ok", 0, wp_fleet_model(fleet, WP_STR("cold"), &arena, &info));
    EXPECT_TRUE("configured is known", info.known && info.listed && info.n_sizes == 0);
    EXPECT_INT("ok", 0, wp_fleet_model(fleet, WP_STR("gpt-x"), &arena, &info));
    EXPECT_TEXT("an alias", "big", info.name);
    EXPECT_TEXT("its base", "big", info.base);
    EXPECT_TRUE("no adapter", !info.lora.p && info.known && info.listed);
    EXPECT_UINT("both sizes", 2, info.n_sizes);
    EXPECT_UINT("the longest", 200, info.max_len);
    EXPECT_INT("ok", 0, wp_fleet_model(fleet, WP_STR("sql"), &arena, &info));
    EXPECT_TEXT("an adapter's base", "big", info.base);
    EXPECT_TEXT("an adapter's name", "sql", info.lora);
    EXPECT_UINT("of who has it", 1, info.n_sizes);
    EXPECT_INT("ok", 0, wp_fleet_model(fleet, (struct wp_str){0}, &arena, &info));
    EXPECT_TEXT("the only one", "big", info.name);
    add_up("w3", (struct answer){.models = "other"});
    EXPECT_INT("ok", 0, wp_fleet_model(fleet, (struct wp_str){0}, &arena, &info));
    EXPECT_TRUE("no more", !info.name.p && !info.known);
    wp_arena_fini(&arena);
    tear_down();
}

static void the_model_list_is_the_union(void)
{
    static const char *const ids[] = {"a", "lo", "b", "al"};
    struct wp_buf b = {0};
    json_t *v, *m;
    size_t i;

    SET_UP("models.0.name=a", "models.0.aliases.0=al");
    add_up("w1", (struct answer){.models = "a lo>a"});
    add_up("w2", (struct answer){.models = "a b"});
    v = load(&b, wp_fleet_models_json(fleet, (struct wp_str){0}, NULL, NULL, &b), "models");
    EXPECT_UINT("each once", 4, json_array_size(json_object_get(v, "data")));
    json_array_foreach(json_object_get(v, "data"), i, m)
    {
        EXPECT_TEXT("id", ids[i], wp_str_of(json_string_value(json_object_get(m, "id"))));
    }
    json_decref(v);
    for (i = 0; i < 4; i++) {
        v = load(&b, wp_fleet_models_json(fleet, wp_str_of(ids[i]), NULL, NULL, &b), ids[i]);
        EXPECT_TEXT("what is listed can be asked for", ids[i], wp_str_of(json_string_value(json_object_get(v, "id"))));
        json_decref(v);
    }
    EXPECT_INT("another", WP_ENOENT, wp_fleet_models_json(fleet, WP_STR("c"), NULL, NULL, &b));
    wp_buf_fini(&b);
    tear_down();
}

static void bytes_per_token_is_learnt_within_bounds(void)
{
    struct wp_arena arena = {0};
    struct wp_model_info info;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){.models = "m ad>m"});
#define RATIO(name) (wp_fleet_model(fleet, WP_STR(name), &arena, &info), info.bytes_per_token)
    EXPECT_NEAR("until usage says better", 4, RATIO("m"), 0);
    wp_fleet_learn_tokens(fleet, WP_STR("m"), 30, 15);
    wp_fleet_learn_tokens(fleet, WP_STR("m"), 1000, 0);
    wp_fleet_learn_tokens(fleet, WP_STR("m"), 1, 1000);
    wp_fleet_learn_tokens(fleet, WP_STR("m"), UINT64_MAX, 16);
    wp_fleet_learn_tokens(fleet, WP_STR("m"), 16, UINT64_MAX);
    EXPECT_NEAR("nonsense teaches nothing", 4, RATIO("m"), 0);
    wp_fleet_learn_tokens(fleet, WP_STR("m"), 3000, 1000);
    EXPECT_NEAR("learnt", 3, RATIO("m"), 1e-9);
    EXPECT_NEAR("an adapter has its base's tokens", 3, RATIO("ad"), 1e-9);
    for (int i = 0; i < 1000; i++)
        wp_fleet_learn_tokens(fleet, WP_STR("m"), 5000, 1000);
    EXPECT_NEAR("follows", 5, RATIO("m"), 1e-6);
    for (int i = 0; i < 2000; i++) {
        char name[16];

        snprintf(name, sizeof name, "x%d", i);
        wp_fleet_learn_tokens(fleet, wp_str_of(name), 5000, 1000);
    }
    EXPECT_NEAR("still known among many", 5, RATIO("m"), 1e-6);
    wp_arena_fini(&arena);
    tear_down();
}

/* ---- tests: who may take it ---- */

static void each_no_has_its_reason(void)
{
    struct req r;

    SET_UP("limits.per_worker=1", "health.fail=1", "health.interval_s=7", "log.level=error");
    EXPECT_INT("add", 0, add("w1"));
    req_tokens(&r, "m", 1, 40);
    EXPECT_INT("it lists no model yet", WP_PLACE_NOBODY, place(&r));
    EXPECT_TEXT("why", "worker", wp_str_of(r.why));
    EXPECT_UINT("ask again", 7000000, r.retry_us);
    done(&r);
    probed("w1", (struct answer){.models = "m", .max_len = 50});
    req_tokens(&r, "m", 1, 40);
    expect_placed("ready", &r, "w1");
    {
        struct req more;

        req_tokens(&more, "m", 2, 40);
        EXPECT_INT("full", WP_PLACE_BUSY, place(&more));
        EXPECT_TEXT("why", "queue", wp_str_of(more.why));
        done(&more);
    }
    end(&r, WP_OUTCOME_GOOD);
    done(&r);
    req_tokens(&r, "m", 1, 51);
    EXPECT_INT("too long", WP_PLACE_TOO_LONG, place(&r));
    wp_fleet_drain(fleet, WP_STR("w1"), true);
    EXPECT_INT("it does not matter who drains", WP_PLACE_TOO_LONG, place(&r));
    done(&r);
    req_tokens(&r, "m", 1, 50);
    EXPECT_INT("drained", WP_PLACE_NOBODY, place(&r));
    EXPECT_TEXT("why", "drain", wp_str_of(r.why));
    wp_fleet_drain(fleet, WP_STR("w1"), false);
    expect_placed("undrained", &r, "w1");
    wp_fleet_end(fleet, &r.p, WP_OUTCOME_BUSY, 3000000);
    EXPECT_INT("the engine asked for a pause", WP_PLACE_NOBODY, place(&r));
    EXPECT_TEXT("why", "resting", wp_str_of(r.why));
    EXPECT_TRUE("until then", r.retry_us > 2000000 && r.retry_us <= 3000000);
    done(&r);
    expect_at_rest();
    tear_down();
}

/* "Too long" is final: a client never asks again.  It must not be said while a worker that could take it is away. */
static void too_long_is_said_when_it_fits_nobody(void)
{
    struct req r;

    SET_UP("health.fail=1", "log.level=error");
    add_up("short", (struct answer){.max_len = 50});
    add_up("long", (struct answer){.max_len = 500});
    req_tokens(&r, "m", 1, 100);
    expect_placed("fits one", &r, "long");
    end(&r, WP_OUTCOME_GOOD);
    wp_fleet_drain(fleet, WP_STR("long"), true);
    EXPECT_INT("away", WP_PLACE_NOBODY, place(&r));
    EXPECT_TEXT("why", "drain", wp_str_of(r.why));
    done(&r);
    req_tokens(&r, "m", 1, 501);
    EXPECT_INT("fits none", WP_PLACE_TOO_LONG, place(&r));
    done(&r);
    tear_down();
}

static void a_failed_worker_is_avoided_and_an_only_one_is_kept(void)
{
    struct wp_worker *w1;
    struct req r;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    add_up("w2", (struct answer){0});
    w1 = wp_fleet_find(fleet, WP_STR("w1"));
    for (int i = 0; i < 20; i++) {
        req_tokens(&r, "m", 3, 64);
        r.want.avoid = &w1;
        r.want.n_avoid = 1;
        expect_placed("the other one", &r, "w2");
        end(&r, WP_OUTCOME_GOOD);
        r.want.n_avoid = 0;
        r.want.only = w1;
        expect_placed("just that one", &r, "w1");
        end(&r, WP_OUTCOME_GOOD);
        done(&r);
    }
    wp_worker_unref(w1);
    expect_at_rest();
    tear_down();
}

/* The repeat on the same worker is placed before the first attempt is let go: its own place must not be in its way. */
static void a_repeat_does_not_stand_in_its_own_way(void)
{
    struct req r, other;
    struct wp_placement first;

    SET_UP("limits.per_worker=1", "health.fail=1", "health.interval_s=0.01", "log.level=error");
    add_up("w1", (struct answer){0});
    for (int round = 0; round < 2; round++) {
        req_tokens(&r, "m", 3, 64);
        expect_placed("placed", &r, "w1");
        EXPECT_INT("the second round is the breaker's one request", round, r.p.probe_of_breaker);
        first = (struct wp_placement){0};
        r.want.only = r.p.worker;
        r.want.again = &r.p;
        EXPECT_INT("once more", WP_PLACED, wp_fleet_place(fleet, &r.want, &first, &r.why, &r.retry_us));
        end(&r, WP_OUTCOME_NEUTRAL);
        EXPECT_INT("the repeat decides now", round, first.worker->half_open_busy);
        req_tokens(&other, "m", 4, 64);
        EXPECT_TRUE("no third one", place(&other) != WP_PLACED);
        done(&other);
        wp_fleet_end(fleet, &first, WP_OUTCOME_FAILED, 0); /* opens the breaker */
        done(&r);
        expect_at_rest();
        for (uint64_t until = wp_now_us() + 10000; wp_now_us() < until;)
            ; /* the shortest interval there is has to pass, in real time */
    }
    tear_down();
}

static void one_request_goes_to_a_half_open_worker_and_decides(void)
{
    struct req a, b;
    struct wp_worker *w;

    SET_UP("health.fail=1", "health.interval_s=0.01", "log.level=error");
    add_up("w1", (struct answer){0});
    w = wp_fleet_find(fleet, WP_STR("w1"));
    req_tokens(&a, "m", 1, 64);
    req_tokens(&b, "m", 2, 64);
    expect_placed("a", &a, "w1");
    expect_placed("b: a straggler to be", &b, "w1");
    end(&a, WP_OUTCOME_FAILED);
    EXPECT_INT("open", WP_BREAKER_OPEN, w->breaker);
    while (place(&a) != WP_PLACED)
        ; /* ten milliseconds */
    EXPECT_INT("half open", WP_BREAKER_HALF_OPEN, w->breaker);
    end(&b, WP_OUTCOME_GOOD);
    EXPECT_INT("a straggler closes nothing", WP_BREAKER_HALF_OPEN, w->breaker);
    EXPECT_TRUE("nor frees the slot", place(&b) == WP_PLACE_NOBODY);
    EXPECT_TEXT("why", "breaker", wp_str_of(b.why));
    end(&a, WP_OUTCOME_NEUTRAL);
    expect_placed("cancelled: the next may try", &b, "w1");
    end(&b, WP_OUTCOME_GOOD);
    EXPECT_INT("closed", WP_BREAKER_CLOSED, w->breaker);
    done(&a);
    done(&b);
    wp_worker_unref(w);
    expect_at_rest();
    tear_down();
}

/* Requests of one burst: what was sent before the breaker opened, or repeats that, does not make it wait longer. */
static void a_burst_opens_the_breaker_once(void)
{
    struct req r[5];
    struct wp_placement repeat = {0};
    struct wp_worker *w;

    SET_UP("health.fail=1", "health.interval_s=0.01", "log.level=error");
    add_up("w1", (struct answer){0});
    w = wp_fleet_find(fleet, WP_STR("w1"));
    for (unsigned i = 0; i < 4; i++) {
        req_tokens(&r[i], "m", i, 64);
        expect_placed("burst", &r[i], "w1");
    }
    end(&r[0], WP_OUTCOME_FAILED);
    EXPECT_INT("open", WP_BREAKER_OPEN, w->breaker);
    r[1].want.only = w;
    r[1].want.again = &r[1].p;
    EXPECT_INT("the reuse race is repeated there", WP_PLACED,
               wp_fleet_place(fleet, &r[1].want, &repeat, &r[1].why, &r[1].retry_us));
    end(&r[1], WP_OUTCOME_NEUTRAL);
    EXPECT_INT("which does not half open it", WP_BREAKER_OPEN, w->breaker);
    wp_fleet_end(fleet, &repeat, WP_OUTCOME_FAILED, 0);
    EXPECT_UINT("nor double its time", 10000, w->open_us);
    req_tokens(&r[4], "m", 4, 64);
    while (place(&r[4]) != WP_PLACED)
        ; /* ten milliseconds */
    end(&r[4], WP_OUTCOME_GOOD);
    EXPECT_INT("closed", WP_BREAKER_CLOSED, w->breaker);
    end(&r[2], WP_OUTCOME_FAILED);
    end(&r[3], WP_OUTCOME_FAILED);
    EXPECT_INT("stragglers do not open it again", WP_BREAKER_CLOSED, w->breaker);
    for (int i = 0; i < 5; i++)
        done(&r[i]);
    wp_worker_unref(w);
    expect_at_rest();
    tear_down();
}

static void who_refuses_all_rests_and_the_answer_is_busy(void)
{
    struct req r;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    req_tokens(&r, "m", 1, 40);
    for (int i = 0; i < 3; i++) {
        expect_placed("refused", &r, "w1");
        end(&r, WP_OUTCOME_BUSY);
    }
    EXPECT_INT("as its engine would say", WP_PLACE_BUSY, place(&r));
    EXPECT_TRUE("for half a second", r.retry_us > 400000 && r.retry_us <= 500000);
    done(&r);
    expect_at_rest();
    tear_down();
}

/* A prompt of so many tokens whose first token took so many times what was predicted; the clock is real, so its beginning is moved. */
static void answered(const char *id, size_t tokens, double times, void (*change)(struct req *r))
{
    static unsigned seed = 500;
    struct req r;

    req_tokens(&r, "m", seed++, tokens);
    if (seed > 600)
        seed = 500;
    expect_placed("placed", &r, id);
    r.p.placed_us -= (uint64_t)(times * r.p.ttft_us);
    r.p.told_prompt = (int64_t)tokens;
    r.p.told_cached = 0;
    if (change)
        change(&r);
    wp_fleet_first(fleet, &r.p);
    end(&r, WP_OUTCOME_GOOD);
    done(&r);
}

static void as_a_whole(struct req *r)
{
    r->p.whole = true;
}

static void past_the_cache(struct req *r)
{
    r->p.teaches = false;
}

static void with_doubt(struct req *r)
{
    r->p.unsure = true;
    r->p.told_cached = -1;
}

static void told_absurdly(struct req *r)
{
    r->p.told_prompt = -7;
    r->p.told_cached = 1000000000;
}

static void answers_correct_the_profile(void)
{
    static const struct {
        const char *label;
        void (*change)(struct req *r);
        bool learns;
    } rows[] = {
        {"a stream whose usage is told", NULL, true},
        {"a whole answer has no first token", as_a_whole, false},
        {"who asks for the prompt's logprobs computes all", past_the_cache, false},
        {"a hit in doubt that nobody confirms", with_doubt, false},
        {"absurd usage is no usage", told_absurdly, true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wp_worker *w;
        double first;

        SET_UP("log.level=error");
        add_up("w1", (struct answer){0});
        w = wp_fleet_find(fleet, WP_STR("w1"));
        EXPECT_NEAR("nothing is known at first", 0, w->error, 0);
        first = w->profile.a_us;
        for (int k = 0; k < 20; k++)
            answered("w1", 2000 + 300 * (size_t)k, k == 0 ? 3 : 1, rows[i].change);
        EXPECT_INT(rows[i].label, rows[i].learns, w->profile.a_us > 2 * first && w->profile.a_us < 4 * first);
        EXPECT_INT(rows[i].label, rows[i].learns, w->learnt.samples == 20);
        EXPECT_INT(rows[i].label, rows[i].learns, w->error > 0 && w->error < 0.2);
        EXPECT_INT(rows[i].label, rows[i].learns, wp_worker_pace(w) > 2 && wp_worker_pace(w) < 4);
        wp_worker_unref(w);
        expect_at_rest();
        tear_down();
    }
}

/* Else it would be priced by a profile that is far off, and never be sent anything beside those that are known to be quick. */
static void who_has_shown_nothing_goes_by_others(void)
{
    struct wp_worker *w[3];
    double given;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    add_up("w2", (struct answer){0});
    w[0] = wp_fleet_find(fleet, WP_STR("w1"));
    w[1] = wp_fleet_find(fleet, WP_STR("w2"));
    EXPECT_INT("w2 waits", 0, wp_fleet_drain(fleet, WP_STR("w2"), true));
    given = w[0]->profile.a_us;
    for (int k = 0; k < 20; k++)
        answered("w1", 4000, k == 0 ? 3 : 1, NULL);
    EXPECT_TRUE("w1 is slower than its profile", w[0]->profile.a_us > 2 * given);
    EXPECT_TRUE("w2 is taken to be so", w[1]->profile.a_us > 1.5 * given && w[1]->learnt.samples == 0 && w[1]->borrowed);
    EXPECT_TRUE("less surely", w[1]->error > w[0]->error);
    add_up("w3", (struct answer){0});
    w[2] = wp_fleet_find(fleet, WP_STR("w3"));
    EXPECT_NEAR("who joins, too", w[0]->profile.a_us, w[2]->profile.a_us, 1e-9);
    EXPECT_INT("w1 waits, too", 0, wp_fleet_drain(fleet, WP_STR("w1"), true));
    answered("w3", 4000, 1, NULL);
    EXPECT_TRUE("until it shows something itself", w[2]->learnt.samples == 1 && !w[2]->borrowed);
    for (int i = 0; i < 3; i++)
        wp_worker_unref(w[i]);
    expect_at_rest();
    tear_down();
}

static void configure(const char *const set[], size_t n)
{
    struct wp_config *fresh;
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("read", 0, wp_config_read(&fresh, NULL, set, n, NULL, 0, &errors));
    EXPECT_INT("configured", 0, wp_fleet_configure(fleet, fresh, &err));
    wp_config_destroy(conf);
    conf = fresh;
    wp_buf_fini(&errors);
}

static void what_was_learnt_stays_as_long_as_the_profile(void)
{
    struct wp_worker *w;
    double learnt, given;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    w = wp_fleet_find(fleet, WP_STR("w1"));
    given = w->profile.a_us;
    for (int k = 0; k < 20; k++)
        answered("w1", 4000, k == 0 ? 3 : 1, NULL);
    learnt = w->profile.a_us;
    EXPECT_TRUE("learnt", learnt > 2 * given);
    configure((const char *const[]){"log.level=error", "policy.price.calibrate=false"}, 2);
    EXPECT_NEAR("switched off, the profile is what counts", given, w->profile.a_us, 0);
    answered("w1", 4000, 1, NULL);
    EXPECT_NEAR("also after an answer", given, w->profile.a_us, 0);
    configure((const char *const[]){"log.level=error"}, 1);
    EXPECT_TRUE("and it is still known when it is on again", w->profile.a_us > 1.5 * given);
    wp_worker_unref(w);
    tear_down();
}

/* ---- tests: requests that wait in the router ---- */

static unsigned placed_ones;

static void on_placed(void *arg)
{
    struct wp_hold *h = arg;

    placed_ones++;
    EXPECT_INT("placed", WP_PLACED, h->result);
}

static enum wp_place_result place_or_hold(struct req *r, struct wp_hold *h)
{
    *h = (struct wp_hold){.placed = on_placed, .arg = h};
    return wp_fleet_place_or_hold(fleet, &r->want, &r->p, h, &r->why, &r->retry_us);
}

static void who_finds_nobody_free_is_held(void)
{
    struct req big, a, b, c;
    struct wp_hold hold[4];

    placed_ones = 0;
    SET_UP("log.level=error", "limits.queue=2");
    add_up("w1", (struct answer){0});
    req_tokens(&big, "m", 1, 60000);
    req_tokens(&a, "m", 2, 5000);
    req_tokens(&b, "m", 3, 200);
    req_tokens(&c, "m", 4, 200);
    EXPECT_INT("it is free", WP_PLACED, place_or_hold(&big, &hold[0]));
    EXPECT_INT("it is not", WP_PLACE_HELD, place_or_hold(&a, &hold[1]));
    EXPECT_TRUE("asked again some time", hold[1].next_us != UINT64_MAX);
    EXPECT_INT("nor for a short one", WP_PLACE_HELD, place_or_hold(&b, &hold[2]));
    EXPECT_INT("the queue is full", WP_PLACE_BUSY, place_or_hold(&c, &hold[3]));
    EXPECT_TEXT("why", "queue", wp_str_of(c.why));
    EXPECT_TRUE("and when to come again", c.retry_us > 250000);
    EXPECT_TRUE("one leaves", wp_fleet_unhold(fleet, &hold[1]));
    EXPECT_TRUE("once", !wp_fleet_unhold(fleet, &hold[1]));
    EXPECT_INT("then there is room", WP_PLACE_HELD, place_or_hold(&c, &hold[3]));
    EXPECT_UINT("nobody has a place", 0, placed_ones);
    wp_fleet_first(fleet, &big.p);
    EXPECT_UINT("the first token sets both free", 2, placed_ones);
    EXPECT_TRUE("too late to leave", !wp_fleet_unhold(fleet, &hold[2]));
    EXPECT_TEXT("there", "w1", wp_str_of(b.p.worker->conf.id));
    EXPECT_TRUE("held", hold[2].held_us > 0);
    end(&b, WP_OUTCOME_GOOD);
    end(&c, WP_OUTCOME_GOOD);
    end(&big, WP_OUTCOME_GOOD);
    expect_at_rest();
    done(&big);
    done(&a);
    done(&b);
    done(&c);
    tear_down();
}

/* One that answers 500 at once is always idle: it must not have most of the requests. */
static void who_fails_at_once_does_not_look_best(void)
{
    static const char *const policy[] = {"policy.name=price", "policy.name=least_loaded"}, *const fail[] = {"health.fail=1000", "health.fail=9"};
    static struct req all[200];

    for (int k = 0; k < 2; k++) {
        size_t to_gray = 0;

        set_up((const char *const[]){policy[k], fail[k]}, 2);
        add_up("gray", (struct answer){0});
        add_up("well", (struct answer){0});
        for (int i = 0; i < 200; i++) {
            req_tokens(&all[i], "m", (unsigned)i + 1, 100);
            EXPECT_INT("placed", WP_PLACED, place(&all[i]));
            if (all[i].p.worker && strcmp(all[i].p.worker->conf.id, "gray") == 0)
                end(&all[i], ++to_gray % 3 ? WP_OUTCOME_FAILED : WP_OUTCOME_GOOD); /* the other one computes on */
        }
        EXPECT_TRUE(policy[k], to_gray < 40);
        for (int i = 0; i < 200; i++) {
            end(&all[i], WP_OUTCOME_GOOD);
            done(&all[i]);
        }
        tear_down();
    }
}

static void who_has_failed_costs_more_for_a_while(void)
{
    struct req busy, r;

    SET_UP("policy.name=price", "health.fail=1000");
    add_up("gray", (struct answer){0});
    add_up("well", (struct answer){0});
    for (unsigned i = 0; i < 6; i++) {
        req_tokens(&r, "m", i + 1, 100);
        r.want.only = wp_fleet_find(fleet, WP_STR("gray"));
        expect_placed("gray", &r, "gray");
        end(&r, WP_OUTCOME_FAILED);
        wp_worker_unref(r.want.only);
        done(&r);
    }
    req_tokens(&busy, "m", 50, 2000);
    expect_placed("the other one", &busy, "well");
    req_tokens(&r, "m", 51, 100);
    expect_placed("though it has something to do", &r, "well");
    end(&r, WP_OUTCOME_GOOD);
    end(&busy, WP_OUTCOME_GOOD);
    done(&r);
    done(&busy);
    tear_down();
}

/* While somebody who has shown himself can take them. */
static void a_newcomer_is_not_sent_a_rush(void)
{
    static struct req all[60];
    size_t to_new = 0;

    SET_UP("policy.name=least_loaded");
    add_up("old", (struct answer){0});
    for (unsigned i = 0; i < WP_WARM; i++)
        serve_on("old", "m", i + 1, 100);
    for (int i = 0; i < 30; i++) { /* it is busy */
        req_tokens(&all[i], "m", 1000, 100);
        expect_placed("old", &all[i], "old");
    }
    add_up("new", (struct answer){0});
    for (int i = 30; i < 60; i++) {
        req_tokens(&all[i], "m", 1000, 100);
        EXPECT_INT("placed", WP_PLACED, place(&all[i]));
        to_new += all[i].p.worker && strcmp(all[i].p.worker->conf.id, "new") == 0;
    }
    EXPECT_UINT("health.slow_start", 4, to_new);
    for (int i = 0; i < 60; i++) {
        end(&all[i], WP_OUTCOME_GOOD);
        done(&all[i]);
    }
    EXPECT_INT("drained", 0, wp_fleet_drain(fleet, WP_STR("old"), true));
    for (int i = 0; i < 60; i++) { /* nobody else is there */
        req_tokens(&all[i], "m", 1000, 100);
        expect_placed("new", &all[i], "new");
    }
    for (int i = 0; i < 60; i++) {
        end(&all[i], WP_OUTCOME_GOOD);
        done(&all[i]);
    }
    tear_down();
}

/* a has the prompt and is busy, b has nothing to do: a is the policy's choice, b would begin sooner. */
static void a_first_token_that_is_due_decides_where(void)
{
    static const struct {
        const char *label;
        uint64_t target_us;
        enum wp_place_result want;
        const char *id;
    } cases[] = {
        {"no target", 0, WP_PLACED, "a"},
        {"time enough", 30000000, WP_PLACED, "a"},
        {"not there", 1400000, WP_PLACED, "b"},
        {"nowhere", 500000, WP_PLACE_LATE, NULL},
    };
    struct req busy, r;

    SET_UP("policy.price.calibrate=false", "policy.price.room_us=100000", "policy.price.near_us=0", "policy.price.near_share=0");
    add_up("a", (struct answer){0});
    add_up("b", (struct answer){0});
    serve_on("a", "m", 1, 18000);
    req_tokens(&busy, "m", 9, 28000);
    busy.want.only = wp_fleet_find(fleet, WP_STR("a"));
    expect_placed("busy", &busy, "a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        req_tokens(&r, "m", 1, 18000);
        r.want.target_us = cases[i].target_us;
        r.want.due_us = cases[i].target_us ? wp_now_us() + cases[i].target_us : 0;
        EXPECT_INT(cases[i].label, cases[i].want, place(&r));
        if (cases[i].id) {
            EXPECT_TEXT(cases[i].label, cases[i].id, wp_str_of(r.p.worker ? r.p.worker->conf.id : "(none)"));
            end(&r, WP_OUTCOME_NEUTRAL);
        } else {
            EXPECT_TEXT("why", "deadline", wp_str_of(r.why));
            EXPECT_TRUE("when it is worth asking again", r.retry_us > 10000 && r.retry_us < 10000000);
        }
        done(&r);
    }
    end(&busy, WP_OUTCOME_GOOD);
    wp_worker_unref(busy.want.only);
    done(&busy);
    tear_down();
}

/* Only one of two takes so long a prompt, and is full: it waits for that one, while others pass it to the free one. */
static void a_long_prompt_waits_for_who_can_take_it(void)
{
    struct req first, wide, narrow;
    struct wp_hold hold[3];

    SET_UP("limits.per_worker=1", "log.level=error");
    add_up("short", (struct answer){.max_len = 500});
    add_up("long", (struct answer){.max_len = 5000});
    req_tokens(&first, "m", 1, 1000);
    req_tokens(&wide, "m", 2, 1000);
    req_tokens(&narrow, "m", 3, 100);
    EXPECT_INT("first", WP_PLACED, place_or_hold(&first, &hold[0]));
    EXPECT_INT("it waits", WP_PLACE_HELD, place_or_hold(&wide, &hold[1]));
    EXPECT_TRUE("not in a hurry", wp_fleet_release(fleet) > wp_now_us() + 10000);
    EXPECT_TRUE("and waits on", hold[1].line != NULL);
    EXPECT_INT("a short one need not", WP_PLACED, place_or_hold(&narrow, &hold[2]));
    EXPECT_TEXT("on the other", "short", wp_str_of(narrow.p.worker ? narrow.p.worker->conf.id : "(none)"));
    end(&first, WP_OUTCOME_GOOD);
    EXPECT_TRUE("its turn", hold[1].line == NULL);
    EXPECT_INT("placed", WP_PLACED, hold[1].result);
    EXPECT_TEXT("where it fits", "long", wp_str_of(wide.p.worker ? wide.p.worker->conf.id : "(none)"));
    end(&wide, WP_OUTCOME_GOOD);
    end(&narrow, WP_OUTCOME_GOOD);
    done(&first);
    done(&wide);
    done(&narrow);
    expect_at_rest();
    tear_down();
}

static void who_is_held_is_refused_when_it_would_be_late(void)
{
    struct req big, a, b;
    struct wp_hold hold[3];

    SET_UP("policy.price.hold_us=1000");
    add_up("w", (struct answer){0});
    req_tokens(&big, "m", 1, 20000);
    req_tokens(&a, "m", 2, 2000);
    req_tokens(&b, "m", 3, 2000);
    EXPECT_INT("it is free", WP_PLACED, place_or_hold(&big, &hold[0]));
    a.want.due_us = wp_now_us() + 50000; /* its own compute takes 100 ms */
    EXPECT_INT("never in time", WP_PLACE_BUSY, place_or_hold(&a, &hold[1]));
    EXPECT_TEXT("why", "deadline", wp_str_of(a.why));
    b.want.due_us = wp_now_us() + 500000;
    EXPECT_INT("perhaps", WP_PLACE_HELD, place_or_hold(&b, &hold[2]));
    EXPECT_TRUE("so long", hold[2].item.deadline_us < b.want.due_us);
    EXPECT_TRUE("let go", wp_fleet_unhold(fleet, &hold[2]));
    end(&big, WP_OUTCOME_GOOD);
    done(&big);
    done(&a);
    done(&b);
    tear_down();
}

static void a_reload_that_ends_holding_sends_all(void)
{
    struct req big, a;
    struct wp_hold hold[2];

    placed_ones = 0;
    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    req_tokens(&big, "m", 1, 60000);
    req_tokens(&a, "m", 2, 5000);
    EXPECT_INT("first", WP_PLACED, place_or_hold(&big, &hold[0]));
    EXPECT_INT("held", WP_PLACE_HELD, place_or_hold(&a, &hold[1]));
    configure((const char *const[]){"log.level=error", "policy.name=least_loaded"}, 2);
    EXPECT_UINT("sent", 1, placed_ones);
    end(&a, WP_OUTCOME_GOOD);
    end(&big, WP_OUTCOME_GOOD);
    expect_at_rest();
    done(&big);
    done(&a);
    tear_down();
}

static void without_memory_nobody_is_held(void)
{
    for (long nth = 0;; nth++) {
        struct req big, a;
        struct wp_hold hold[2];
        enum wp_place_result got;
        bool failed;

        placed_ones = 0;
        SET_UP("log.level=error");
        add_up("w1", (struct answer){0});
        req_tokens(&big, "m", 1, 60000);
        req_tokens(&a, "m", 2, 5000);
        EXPECT_INT("first", WP_PLACED, place_or_hold(&big, &hold[0]));
        end(&big, WP_OUTCOME_NEUTRAL);
        EXPECT_INT("again", WP_PLACED, place(&big));
        wp_mem_fail_after(nth);
        got = place_or_hold(&a, &hold[1]);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_TRUE("placed or held", got == WP_PLACE_HELD || (failed && got == WP_PLACED));
        if (got == WP_PLACE_HELD)
            EXPECT_TRUE("let go", wp_fleet_unhold(fleet, &hold[1]));
        end(&a, WP_OUTCOME_NEUTRAL);
        end(&big, WP_OUTCOME_NEUTRAL);
        expect_at_rest();
        done(&big);
        done(&a);
        tear_down();
        if (!failed)
            break;
    }
}

/* ---- tests: what a worker has ---- */

static void a_prompt_counts_where_it_went(void)
{
    struct req r;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    add_up("w2", (struct answer){0});
    serve_on("w1", "m", 1, 64);
    EXPECT_INT("never the block with the last token", 48, hit("w1", "m", 1, 64, "total"));
    EXPECT_INT("longer prompts share it", 64, hit("w1", "m", 1, 100, "total"));
    EXPECT_INT("from history", 64, hit("w1", "m", 1, 100, "history"));
    EXPECT_INT("not the other worker", 0, hit("w2", "m", 1, 64, "total"));
    EXPECT_INT("not another prompt", 0, hit("w1", "m", 2, 64, "total"));
    req_tokens(&r, "m", 2, 64);
    EXPECT_INT("anywhere", WP_PLACED, place(&r));
    EXPECT_INT("in flight counts at once", 48, hit(r.p.worker->conf.id, "m", 2, 64, "in_flight"));
    end(&r, WP_OUTCOME_NEUTRAL);
    EXPECT_INT("and ends with it, before a first token", 0, hit("w1", "m", 2, 64, "total"));
    done(&r);
    expect_at_rest();
    tear_down();
}

static void each_block_size_is_matched_at_its_own(void)
{
    SET_UP("log.level=error");
    add_up("w16", (struct answer){.block_size = 16});
    add_up("w32", (struct answer){.block_size = 32});
    add_up("w24", (struct answer){.block_size = 24});
    serve_on("w16", "m", 1, 100);
    EXPECT_INT("16", 96, hit("w16", "m", 1, 100, "total"));
    EXPECT_INT("32 has nothing", 0, hit("w32", "m", 1, 100, "total"));
    serve_on("w32", "m", 1, 100);
    serve_on("w24", "m", 1, 70);
    EXPECT_INT("16", 96, hit("w16", "m", 1, 97, "total"));
    EXPECT_INT("32", 64, hit("w32", "m", 1, 96, "total"));
    EXPECT_INT("24", 48, hit("w24", "m", 1, 96, "total"));
    expect_at_rest();
    tear_down();
}

static void adapters_and_models_share_nothing(void)
{
    SET_UP("models.0.name=m", "models.0.aliases.0=alias", "log.level=error");
    add_up("w1", (struct answer){.models = "m sql>m k>m n"});
    serve_on("w1", "m", 1, 64);
    EXPECT_INT("itself", 48, hit("w1", "m", 1, 64, "total"));
    EXPECT_INT("its alias", 48, hit("w1", "alias", 1, 64, "total"));
    EXPECT_INT("an adapter", 0, hit("w1", "sql", 1, 64, "total"));
    serve_on("w1", "sql", 1, 64);
    EXPECT_INT("the adapter", 48, hit("w1", "sql", 1, 64, "total"));
    EXPECT_INT("another adapter", 0, hit("w1", "k", 1, 64, "total"));
    EXPECT_INT("another model", 0, hit("w1", "n", 1, 64, "total"));
    expect_at_rest();
    tear_down();
}

/* B207: sleep discards the KV cache. */
static void a_sleeper_gets_nothing_and_forgets(void)
{
    struct req r;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    serve_on("w1", "m", 1, 64);
    probed("w1", (struct answer){.models = "m", .sleeping = true});
    req_tokens(&r, "m", 1, 64);
    EXPECT_INT("asleep", WP_PLACE_NOBODY, place(&r));
    EXPECT_TEXT("why", "sleeping", wp_str_of(r.why));
    probed("w1", (struct answer){.models = "m"});
    expect_placed("awake", &r, "w1");
    EXPECT_UINT("with an empty cache", 0, r.p.hit_tokens);
    end(&r, WP_OUTCOME_GOOD);
    done(&r);
    expect_at_rest();
    tear_down();
}

static void an_engine_of_absurd_size_does_not_eat_our_memory(void)
{
    struct req r;
    long long held;

    SET_UP("index.cap_bytes=1Mi", "log.level=error");
    add_up("w1", (struct answer){.kv_tokens = UINT64_MAX});
    for (unsigned i = 0; i < 600; i++)
        serve_on("w1", "m", i, 1600);
    {
        json_t *v = index_now();

        held = json_integer_value(json_object_get(json_array_get(json_object_get(v, "workers"), 0), "history"));
        json_decref(v);
    }
    EXPECT_TRUE("history keeps to the index's cap", held > 1000 && held * 64 <= 1 << 20);
    req_body(&r, "{\"model\":\"m\",\"prompt\":\"0123456789012345678901234567890123456789012345678901234567890123\"}");
    wp_fleet_learn_tokens(fleet, WP_STR("m"), 10000, 100); /* 100 bytes a token: more chunks than tokens */
    r.ask.model.bytes_per_token = 100;
    expect_placed("text, too", &r, "w1");
    end(&r, WP_OUTCOME_GOOD);
    done(&r);
    tear_down();
}

/* ---- tests: coming and going ---- */

static void a_number_is_not_given_again_while_its_requests_run(void)
{
    struct wp_worker *w1, *w2, *w3;
    uint32_t holder;
    struct req r;

    SET_UP("log.level=error");
    add_up("w1", (struct answer){0});
    serve_on("w1", "m", 1, 64);
    w1 = wp_fleet_find(fleet, WP_STR("w1"));
    holder = w1->rank[0].holder;
    req_tokens(&r, "m", 1, 64);
    expect_placed("under way", &r, "w1");
    EXPECT_INT("gone", 0, wp_fleet_remove(fleet, WP_STR("w1")));
    EXPECT_INT("only once", WP_ENOENT, wp_fleet_remove(fleet, WP_STR("w1")));
    EXPECT_TRUE("its blocks are still in flight", index_number("in_flight_blocks") > 0);
    add_up("w1", (struct answer){0}); /* the same name again */
    w2 = wp_fleet_find(fleet, WP_STR("w1"));
    EXPECT_TRUE("another worker, another number", w2 != w1 && w2->rank[0].holder != holder);
    EXPECT_INT("that has nothing", 0, hit("w1", "m", 1, 64, "total"));
    wp_fleet_first(fleet, &r.p);
    EXPECT_INT("what a gone one prefilled is nobody's", 0, hit("w1", "m", 1, 64, "total"));
    end(&r, WP_OUTCOME_GOOD);
    done(&r);
    expect_at_rest();
    add_up("w3", (struct answer){0});
    w3 = wp_fleet_find(fleet, WP_STR("w3"));
    EXPECT_UINT("now the number is free", holder, w3->rank[0].holder);
    EXPECT_INT("and empty", 0, hit("w3", "m", 1, 64, "total"));
    wp_worker_unref(w1);
    wp_worker_unref(w2);
    wp_worker_unref(w3);
    tear_down();
}

static void an_id_is_one_workers(void)
{
    SET_UP("log.level=error");
    EXPECT_INT("one", 0, add("w1"));
    EXPECT_INT("two", WP_EEXIST, add("w1"));
    EXPECT_INT("drain whom", WP_ENOENT, wp_fleet_drain(fleet, WP_STR("w2"), true));
    EXPECT_TRUE("find whom", wp_fleet_find(fleet, WP_STR("w2")) == NULL);
    EXPECT_TRUE("nobody serves", !wp_fleet_serving(fleet));
    probed("w1", (struct answer){.models = "m"});
    EXPECT_TRUE("somebody serves", wp_fleet_serving(fleet));
    tear_down();
}

static void what_explain_chooses_is_among_its_candidates(void)
{
    char id[129];
    struct wp_buf b = {0};
    struct req r;
    json_t *v, *all;

    SET_UP("log.level=error");
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = 0;
    for (char c = 'a'; c < 'd'; c++) { /* names that differ at their end */
        id[sizeof id - 2] = c;
        add_up(id, (struct answer){0});
    }
    req_tokens(&r, "m", 1, 64);
    v = explain(&r);
    EXPECT_TRUE("among them", candidate(v, json_string_value(json_object_get(v, "chosen"))) != NULL);
    json_decref(v);
    EXPECT_INT("placed", WP_PLACED, place(&r));
    v = load(&b, wp_fleet_decision_json(fleet, r.p.record, &b), "decision");
    EXPECT_TRUE("a record, too", candidate(v, json_string_value(json_object_get(v, "chosen"))) != NULL);
    EXPECT_TEXT("and it is the placement's", r.p.worker->conf.id, wp_str_of(json_string_value(json_object_get(v, "chosen"))));
    EXPECT_TEXT("no outcome yet", "", wp_str_of(json_string_value(json_object_get(v, "outcome"))));
    json_decref(v);
    wp_fleet_first(fleet, &r.p);
    end(&r, WP_OUTCOME_GOOD);
    all = load(&b, wp_fleet_decisions_json(fleet, 5, &b), "decisions");
    v = json_array_get(json_object_get(all, "decisions"), 0);
    EXPECT_TEXT("an outcome", "good", wp_str_of(json_string_value(json_object_get(v, "outcome"))));
    EXPECT_TRUE("a time", json_is_number(json_object_get(v, "actual_ttft_us")));
    json_decref(all);
    done(&r);
    tear_down();
}

static void a_record_keeps_the_chosen_one_and_the_cheapest(void)
{
    struct wp_buf b = {0};
    struct req r, busy[40];
    json_t *v, *c;
    double was = -1;
    size_t i;

    SET_UP("log.level=error");
    for (int k = 0; k < 40; k++) {
        char id[8];
        struct wp_worker *w;

        snprintf(id, sizeof id, "w%d", k);
        add_up(id, (struct answer){0});
        w = wp_fleet_find(fleet, wp_str_of(id));
        req_tokens(&busy[k], "m", 100 + (unsigned)k, 100 * (size_t)(1 + k * 7 % 40));
        busy[k].want.only = w;
        expect_placed("busy", &busy[k], id);
        wp_worker_unref(w);
    }
    req_tokens(&r, "m", 1, 64);
    EXPECT_INT("placed", WP_PLACED, place(&r));
    v = load(&b, wp_fleet_decision_json(fleet, r.p.record, &b), "decision");
    EXPECT_INT("of all", 40, json_integer_value(json_object_get(v, "workers")));
    EXPECT_UINT("some", WP_RECORD_CANDIDATES, json_array_size(json_object_get(v, "candidates")));
    json_array_foreach(json_object_get(v, "candidates"), i, c)
    {
        double price = json_number_value(json_object_get(c, "price_us"));

        if (i == 0)
            EXPECT_TEXT("the chosen one first", r.p.worker->conf.id, wp_str_of(json_string_value(json_object_get(c, "worker"))));
        if (i > 0)
            EXPECT_TRUE("in order", price >= was);
        was = i ? price : -1;
    }
    json_decref(v);
    v = explain(&r);
    json_array_foreach(json_object_get(v, "candidates"), i, c)
    {
        size_t cheaper = 0, k;
        json_t *d;

        json_array_foreach(json_object_get(v, "candidates"), k, d)
        {
            cheaper += json_number_value(json_object_get(d, "price_us")) < json_number_value(json_object_get(c, "price_us"));
        }
        EXPECT_TRUE("explain shows them all", json_array_size(json_object_get(v, "candidates")) == 40 && cheaper < 40);
    }
    json_decref(v);
    for (int k = 0; k < 40; k++) {
        end(&busy[k], WP_OUTCOME_NEUTRAL);
        done(&busy[k]);
    }
    end(&r, WP_OUTCOME_GOOD);
    done(&r);
    expect_at_rest();
    tear_down();
}

static void the_wait_is_told_for_base_models(void)
{
    struct wp_buf b = {0};

    SET_UP("log.level=error");
    add_up("w1", (struct answer){.models = "m ad>m"});
    EXPECT_INT("page", 0, wp_metrics_render(metrics, &b));
    EXPECT_TRUE("none", memmem(b.p, b.n, "warmpath_predicted_wait_seconds{model=\"m\"} 0\n", 45) != NULL);
    EXPECT_TRUE("not for adapters", !memmem(b.p, b.n, "model=\"ad\"", 10));
    b.n = 0;
    wp_fleet_drain(fleet, WP_STR("w1"), true);
    EXPECT_INT("page", 0, wp_metrics_render(metrics, &b));
    EXPECT_TRUE("nobody can", memmem(b.p, b.n, "warmpath_predicted_wait_seconds{model=\"m\"} +Inf\n", 48) != NULL);
    wp_buf_fini(&b);
    tear_down();
}

/* ---- tests: any order ---- */

enum { FLIGHT = 40 };

static void step(struct wp_rng *rng, struct req flight[FLIGHT], bool under_way[FLIGHT])
{
    size_t i = wp_rng_below(rng, FLIGHT);
    char id[8];

    snprintf(id, sizeof id, "w%u", (unsigned)wp_rng_below(rng, 6));
    switch (wp_rng_below(rng, 12)) {
    case 0:
        wp_fleet_remove(fleet, wp_str_of(id));
        break;
    case 1:
        if (add(id) == 0)
            probed(id, (struct answer){.models = "m ad>m", .block_size = 8u << wp_rng_below(rng, 3),
                                       .kv_tokens = 100 + wp_rng_below(rng, 2000)});
        break;
    case 2:
        wp_fleet_drain(fleet, wp_str_of(id), wp_rng_below(rng, 2));
        break;
    case 3:
    case 4:
        if (under_way[i])
            wp_fleet_first(fleet, &flight[i].p);
        break;
    case 5:
        if (under_way[i])
            wp_fleet_tokens(fleet, &flight[i].p, (uint32_t)wp_rng_below(rng, 100));
        break;
    case 6:
    case 7:
        if (under_way[i]) {
            end(&flight[i], (enum wp_outcome)wp_rng_below(rng, 3));
            done(&flight[i]);
            under_way[i] = false;
        }
        break;
    default:
        if (!under_way[i]) {
            req_tokens(&flight[i], wp_rng_below(rng, 4) ? "m" : "ad", (unsigned)wp_rng_below(rng, 5), 1 + wp_rng_below(rng, 300));
            under_way[i] = place(&flight[i]) == WP_PLACED;
            if (!under_way[i])
                done(&flight[i]);
        }
    }
}

static void after_any_order_of_steps_all_is_at_rest(void)
{
    static struct req flight[FLIGHT];

    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct wp_rng rng = {.state = seed};
        bool under_way[FLIGHT] = {false};

        SET_UP("health.fail=1000", "limits.per_worker=15", "models.0.name=m", "models.1.name=ad", "log.level=error");
        for (int k = 0; k < 800; k++)
            step(&rng, flight, under_way);
        for (int i = 0; i < FLIGHT; i++)
            if (under_way[i]) {
                end(&flight[i], WP_OUTCOME_GOOD);
                done(&flight[i]);
            }
        expect_at_rest();
        tear_down();
    }
}

static void no_allocation_that_fails_leaves_a_mark(void)
{
    bool hit_one = true;

    for (long nth = 0; hit_one; nth++) {
        struct wp_config_worker w;
        struct wp_err err = WP_ERR_INIT;
        struct wp_fleet *made = NULL;
        long before;
        int rc;

        live = wp_mem_live();
        EXPECT_INT("configuration", 0, wp_config_read(&conf, NULL, NULL, 0, NULL, 0, &(struct wp_buf){0}));
        EXPECT_INT("entry", 0, wp_config_worker_json(&w, WP_STR("{\"url\":\"http://a:1\",\"models\":[\"m\"]}"), &err));
        EXPECT_INT("metrics", 0, wp_metrics_create(&metrics, &err));
        before = wp_mem_live();
        wp_mem_fail_after(nth);
        rc = wp_fleet_create(&made, conf, metrics, &err);
        if (rc == 0)
            rc = wp_fleet_add(made, &w, conf, &err);
        hit_one = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_TRUE("told, or done without", hit_one || rc == 0);
        EXPECT_TRUE("one of them", rc == 0 || rc == WP_ENOMEM);
        if (made)
            wp_fleet_destroy(made);
        (void)before;
        wp_metrics_destroy(metrics);
        wp_config_worker_fini(&w);
        wp_config_destroy(conf);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
}

static void a_request_is_placed_whatever_allocation_fails(void)
{
    bool hit_one = true;

    SET_UP("log.level=error");
    for (long nth = 0; hit_one; nth++) {
        struct req r;
        char id[16];

        snprintf(id, sizeof id, "w%ld", nth);
        add_up(id, (struct answer){.block_size = (uint32_t)(nth % 60 + 1)});
        req_tokens(&r, "m", (unsigned)nth, 300);
        r.want.only = wp_fleet_find(fleet, wp_str_of(id));
        wp_mem_fail_after(nth);
        EXPECT_INT("placed", WP_PLACED, place(&r));
        wp_fleet_first(fleet, &r.p);
        wp_fleet_end(fleet, &r.p, WP_OUTCOME_GOOD, 0);
        hit_one = wp_mem_failed();
        wp_mem_fail_after(-1);
        wp_worker_unref(r.want.only);
        done(&r);
        wp_fleet_remove(fleet, wp_str_of(id));
    }
    expect_at_rest();
    tear_down();
}

/* ---- tests: several threads ---- */

static void *one_loop(void *arg)
{
    struct wp_rng rng = {.state = (uintptr_t)arg};
    struct req flight[8];
    bool under_way[8] = {false};

    for (int k = 0; k < 400; k++) {
        size_t i = wp_rng_below(&rng, 8);
        struct wp_arena arena = {0};
        struct wp_model_info info;
        struct wp_refusal no;
        struct wp_buf b = {0};
        char id[8];

        snprintf(id, sizeof id, "w%u", (unsigned)wp_rng_below(&rng, 5));
        switch (wp_rng_below(&rng, 8)) {
        case 0: {
            struct wp_config_worker w;
            struct wp_err err = WP_ERR_INIT;
            char json[128];

            snprintf(json, sizeof json, "{\"url\":\"http://a:1\",\"id\":\"%s\",\"models\":[\"m\"]}", id);
            if (wp_config_worker_json(&w, wp_str_of(json), &err) == 0) {
                wp_fleet_add(fleet, &w, conf, &err);
                wp_config_worker_fini(&w);
            }
            break;
        }
        case 1:
            wp_fleet_remove(fleet, wp_str_of(id));
            break;
        case 2: {
            struct wp_worker *w = wp_fleet_find(fleet, wp_str_of(id));
            struct wp_engine_facts f = {.up = true, .rc = 200, .sleep_known = true, .block_size = 16};

            if (w)
                wp_fleet_probed(fleet, w, &f, conf);
            wp_worker_unref(w);
            break;
        }
        case 3:
            wp_metrics_render(metrics, &b);
            wp_fleet_workers_json(fleet, (struct wp_str){0}, &b);
            wp_fleet_decisions_json(fleet, 3, &b);
            wp_fleet_model(fleet, WP_STR("m"), &arena, &info);
            wp_fleet_learn_tokens(fleet, WP_STR("m"), 4000 + wp_rng_below(&rng, 100), 1000);
            break;
        default:
            if (under_way[i]) {
                wp_fleet_first(fleet, &flight[i].p);
                wp_fleet_tokens(fleet, &flight[i].p, 3);
                wp_fleet_end(fleet, &flight[i].p, (enum wp_outcome)wp_rng_below(&rng, WP_OUTCOMES), 0);
                wp_arena_fini(&flight[i].arena);
                under_way[i] = false;
                break;
            }
            flight[i] = (struct req){0};
            if (wp_ask_read(&flight[i].ask, fleet, conf, WP_ROUTE_COMPLETIONS, (struct wp_str){0},
                            WP_STR("{\"model\":\"m\",\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]}"), &flight[i].arena,
                            &no) == 0) {
                flight[i].want = (struct wp_want){.model = &flight[i].ask.model, .prompt = &flight[i].ask.prompt,
                                                  .tokens = flight[i].ask.tokens};
                under_way[i] = place(&flight[i]) == WP_PLACED;
            }
            if (!under_way[i])
                wp_arena_fini(&flight[i].arena);
        }
        wp_arena_fini(&arena);
        wp_buf_fini(&b);
    }
    for (size_t i = 0; i < 8; i++)
        if (under_way[i]) {
            wp_fleet_end(fleet, &flight[i].p, WP_OUTCOME_NEUTRAL, 0);
            wp_arena_fini(&flight[i].arena);
        }
    return NULL;
}

static void loops_do_not_disturb_each_other(void)
{
    pthread_t t[4];

    SET_UP("health.fail=1000", "models.0.name=m", "log.level=error");
    for (uintptr_t i = 0; i < 4; i++)
        EXPECT_INT("thread", 0, pthread_create(&t[i], NULL, one_loop, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    expect_at_rest();
    tear_down();
}

/* What events told is in doubt; the engine's cached_tokens of a prompt of known ids settles it, where there is a feed. */
static void cached_tokens_end_doubt(void)
{
    static const struct {
        const char *label;
        bool fed;
        int64_t cached; /* -1: not said */
        long long total, doubtful;
    } cases[] = {
        {"not said", true, -1, 64, 64},  {"all of it", true, 64, 64, 0}, {"half of it", true, 39, 32, 0},
        {"nothing", true, 0, 0, 0},      {"no feed", false, 64, 64, 64}, {"more than can be", true, 1000, 64, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_rank_feed feed = {.fed = true, .live = true, .state = "live", .coverage = 1};
        struct wp_kv_event ev = {.kind = WP_KV_STORED, .main_group = true, .n = 4};
        struct wp_err err = WP_ERR_INIT;
        struct wp_worker *w;
        struct req r;

        SET_UP("log.level=error");
        add_up("a", (struct answer){.block_size = 16});
        w = wp_fleet_find(fleet, WP_STR("a"));
        req_tokens(&r, "m", 1, 80);
        ev.holder = w->rank[0].holder;
        ev.engine = ev.local = r.ask.prompt.set[0].local;
        wp_index_space(wp_fleet_index(fleet), WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &ev.space, &err);
        wp_index_apply(wp_fleet_index(fleet), &ev, NULL);
        wp_index_doubt(wp_fleet_index(fleet), ev.holder);
        feed.fed = feed.live = cases[i].fed;
        wp_fleet_feed(fleet, w, 0, &feed);
        expect_placed(cases[i].label, &r, "a");
        r.p.cached_tokens = cases[i].cached;
        end(&r, WP_OUTCOME_GOOD);
        done(&r);
        EXPECT_INT(cases[i].label, cases[i].total, hit("a", "m", 1, 80, "index"));
        EXPECT_INT(cases[i].label, cases[i].doubtful, hit("a", "m", 1, 80, "doubtful"));
        wp_worker_unref(w);
        tear_down();
    }
}

/*
 * What was sent counts until the feed has told it, and then the feed alone is asked: what the engine evicts with its next step is not claimed,
 * however soon that comes.
 */
static void what_the_feed_has_told_is_in_flight_no_more(void)
{
    static const struct {
        const char *label;
        uint32_t window;
        size_t before, between; /* blocks that are told before the answer ends, and after it */
        long long evicted;      /* what is claimed when they are gone again */
    } cases[] = {
        {"never told", 0, 0, 0, 80},           {"told before the answer ends", 0, 5, 0, 0}, {"told after it", 0, 0, 5, 0},
        {"half of it is not it", 0, 0, 3, 80}, {"the rest of it later", 0, 2, 5, 0},        {"a window: told before", 1, 5, 0, 0},
        {"a window: told after", 1, 0, 5, 0},  {"a window: never", 1, 0, 0, 80},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_rank_feed feed = {.fed = true, .live = true, .state = "live", .coverage = 1, .batch = true, .window = cases[i].window};
        struct wp_kv_event ev = {.kind = WP_KV_STORED, .main_group = true};
        struct wp_err err = WP_ERR_INIT;
        struct wp_worker *w;
        struct req r;

        SET_UP("log.level=error");
        add_up("a", (struct answer){.block_size = 16});
        w = wp_fleet_find(fleet, WP_STR("a"));
        wp_fleet_feed(fleet, w, 0, &feed);
        req_tokens(&r, "m", 1, 81);
        ev.holder = w->rank[0].holder;
        ev.engine = ev.local = r.ask.prompt.set[0].local;
        wp_index_space(wp_fleet_index(fleet), WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &ev.space, &err);
        expect_placed(cases[i].label, &r, "a");
        ev.n = cases[i].before;
        wp_index_apply(wp_fleet_index(fleet), &ev, NULL);
        wp_fleet_feed(fleet, w, 0, &feed);
        wp_fleet_first(fleet, &r.p);
        end(&r, WP_OUTCOME_GOOD);
        ev.n = cases[i].between;
        wp_index_apply(wp_fleet_index(fleet), &ev, NULL);
        wp_fleet_feed(fleet, w, 0, &feed);
        EXPECT_INT(cases[i].label, 80, hit("a", "m", 1, 81, "total"));
        wp_index_clear(wp_fleet_index(fleet), ev.holder);
        EXPECT_INT(cases[i].label, cases[i].evicted, hit("a", "m", 1, 81, "total"));
        done(&r);
        wp_worker_unref(w);
        tear_down();
    }
}

/* Its engine says that it has another number of ranks than at first: requests under way end where they were, others go to the new ranks. */
static void a_worker_comes_back_with_other_ranks(void)
{
    static const uint32_t counts[] = {2, 4, 4, 3, 1};
    struct wp_rank_feed fed = {.fed = true, .live = true, .state = "live", .coverage = 1};
    struct req r[5], first;
    struct wp_worker *w;

    SET_UP("log.level=error");
    add_up("a", (struct answer){.block_size = 16});
    w = wp_fleet_find(fleet, WP_STR("a"));
    wp_fleet_feed(fleet, w, 0, &fed);
    req_tokens(&first, "m", 9, 81);
    expect_placed("one rank", &first, "a");
    EXPECT_UINT("one rank", 1, first.p.n_ranks);
    for (size_t i = 0; i < 5; i++) {
        probed("a", (struct answer){.models = "m", .block_size = 16, .ranks = counts[i]});
        EXPECT_UINT("ranks", counts[i], w->n_ranks);
        req_tokens(&r[i], "m", (unsigned)i, 81);
        expect_placed("placed", &r[i], "a");
        EXPECT_UINT("of so many", counts[i], r[i].p.n_ranks);
        EXPECT_UINT("all are under way", i + 2, wp_worker_in_flight(w));
        wp_fleet_feed(fleet, w, 7, &fed); /* no rank of its */
        wp_fleet_feed(fleet, w, 0, &fed);
    }
    for (size_t i = 0; i < 5; i += 2) {
        wp_fleet_first(fleet, &r[i].p);
        end(&r[i], WP_OUTCOME_GOOD);
        done(&r[i]);
    }
    EXPECT_UINT("in flight", 3, wp_worker_in_flight(w));
    EXPECT_INT("what an old rank had is nobody's", 0, hit("a", "m", 0, 81, "total"));
    EXPECT_INT("what a new one has is", 80, hit("a", "m", 4, 81, "total"));
    wp_fleet_first(fleet, &first.p);
    end(&first, WP_OUTCOME_GOOD);
    done(&first);
    EXPECT_INT("nor the oldest's", 0, hit("a", "m", 9, 81, "total"));
    EXPECT_INT("removed meanwhile", 0, wp_fleet_remove(fleet, WP_STR("a")));
    for (size_t i = 1; i < 5; i += 2) {
        end(&r[i], WP_OUTCOME_FAILED);
        done(&r[i]);
    }
    EXPECT_UINT("none", 0, wp_worker_in_flight(w));
    EXPECT_UINT("no holder is left", 0, wp_index_holders(wp_fleet_index(fleet)));
    wp_worker_unref(w);
    tear_down();
}

/* An adapter under its old name from another path: what its blocks are called has changed unseen. */
static void an_adapter_from_another_path_is_in_doubt(void)
{
    static const struct {
        const char *label, *models;
        uint64_t root;
        long long doubtful;
    } steps[] = {
        {"first seen", "m ad>m", 1, 0},       {"the same", "m ad>m", 1, 0},   {"not listed", "m", 0, 0},
        {"back from there", "m ad>m", 1, 0},  {"not said", "m ad>m", 0, 0},   {"off again", "m", 0, 0},
        {"from elsewhere", "m ad>m", 2, 64}, {"stays so", "m ad>m", 2, 64}, {"another's", "m ad>m be>m", 2, 64},
    };
    struct wp_rank_feed feed = {.fed = true, .live = true, .state = "live", .coverage = 1};
    struct wp_kv_event ev = {.kind = WP_KV_STORED, .main_group = true, .n = 4};
    struct wp_err err = WP_ERR_INIT;
    struct wp_worker *w;
    struct req r;

    SET_UP("log.level=error");
    add_up("a", (struct answer){.models = "m ad>m", .block_size = 16, .root = 1});
    w = wp_fleet_find(fleet, WP_STR("a"));
    req_tokens(&r, "ad", 1, 80);
    ev.holder = w->rank[0].holder;
    ev.engine = ev.local = r.ask.prompt.set[0].local;
    wp_index_space(wp_fleet_index(fleet), WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &ev.space, &err);
    wp_index_apply(wp_fleet_index(fleet), &ev, NULL);
    wp_fleet_feed(fleet, w, 0, &feed);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        probed("a", (struct answer){.models = steps[i].models, .block_size = 16, .root = steps[i].root});
        if (!strstr(steps[i].models, "ad"))
            continue;
        EXPECT_INT(steps[i].label, 64, hit("a", "ad", 1, 80, "index"));
        EXPECT_INT(steps[i].label, steps[i].doubtful, hit("a", "ad", 1, 80, "doubtful"));
    }
    done(&r);
    wp_worker_unref(w);
    tear_down();
}

/* An engine counts the sequences of a request one by one; they are ours all the same. */
static void the_sequences_of_a_request_are_not_foreign(void)
{
    static const struct {
        const char *label, *body;
        uint32_t sequences;
    } bodies[] = {
        {"one", "{\"model\":\"m\",\"prompt\":[1,2,3]}", 1},
        {"n", "{\"model\":\"m\",\"prompt\":[1,2,3],\"n\":4}", 4},
        {"several prompts", "{\"model\":\"m\",\"prompt\":[[1,2],[3],\"x\"],\"n\":2}", 6},
        {"nonsense", "{\"model\":\"m\",\"prompt\":\"x\",\"n\":-3}", 1},
        {"without end", "{\"model\":\"m\",\"prompt\":[\"x\",\"y\"],\"n\":99999999999}", 4096},
    };

    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        uint32_t n = bodies[i].sequences;
        struct wp_engine_facts running = {.rc = 200, .metrics_known = true, .running = n, .waiting = 0};
        struct wp_engine_facts waiting = {.rc = 200, .metrics_known = true, .running = 0, .waiting = n + 1};
        struct wp_worker *w;
        struct req r;

        SET_UP("log.level=error");
        add_up("a", (struct answer){.block_size = 16});
        w = wp_fleet_find(fleet, WP_STR("a"));
        req_body(&r, bodies[i].body);
        r.want.sequences = wp_body_sequences(&r.ask.json);
        EXPECT_UINT(bodies[i].label, n, r.want.sequences);
        expect_placed(bodies[i].label, &r, "a");
        for (int k = 0; k < 2; k++)
            wp_worker_others(w, &waiting, 1000);
        EXPECT_NEAR("one of another's waits", 1, w->foreign.waiting, 0);
        wp_fleet_first(fleet, &r.p);
        for (int k = 0; k < 2; k++)
            wp_worker_others(w, &running, 1000);
        EXPECT_NEAR(bodies[i].label, 0, w->foreign.running + w->foreign.waiting, 0);
        end(&r, WP_OUTCOME_GOOD);
        EXPECT_UINT("at rest", 0, w->rank[0].more + w->rank[0].more_waiting);
        done(&r);
        wp_worker_unref(w);
        tear_down();
    }
}

/* Adapters come and go under ever new names: what is remembered of them has an end. */
static void adapters_without_end_are_not_remembered_without_end(void)
{
    struct wp_worker *w;

    SET_UP("log.level=error");
    add_up("a", (struct answer){.models = "m", .block_size = 16});
    w = wp_fleet_find(fleet, WP_STR("a"));
    for (int i = 0; i < 3000; i++) {
        char models[40];

        snprintf(models, sizeof models, "m stays>m ad%d>m", i);
        probed("a", (struct answer){.models = models, .block_size = 16, .root = 1});
        EXPECT_TRUE("bounded", w->roots.n <= 1024);
    }
    EXPECT_TRUE("some are", w->roots.n > 1);
    wp_worker_unref(w);
    tear_down();
}

const struct wp_suite suite_fleet = {
    "fleet",
    (const struct wp_test[]){
        {"a model is known by who serves it", a_model_is_known_by_who_serves_it},
        {"the model list is the union", the_model_list_is_the_union},
        {"bytes per token is learnt within bounds", bytes_per_token_is_learnt_within_bounds},
        {"each no has its reason", each_no_has_its_reason},
        {"too long is said when it fits nobody", too_long_is_said_when_it_fits_nobody},
        {"a failed worker is avoided, and an only one is kept", a_failed_worker_is_avoided_and_an_only_one_is_kept},
        {"a repeat does not stand in its own way", a_repeat_does_not_stand_in_its_own_way},
        {"one request goes to a half-open worker and decides", one_request_goes_to_a_half_open_worker_and_decides},
        {"who finds nobody free is held", who_finds_nobody_free_is_held},
        {"who fails at once does not look best", who_fails_at_once_does_not_look_best},
        {"who has failed costs more for a while", who_has_failed_costs_more_for_a_while},
        {"a newcomer is not sent a rush", a_newcomer_is_not_sent_a_rush},
        {"a first token that is due decides where", a_first_token_that_is_due_decides_where},
        {"a long prompt waits for who can take it", a_long_prompt_waits_for_who_can_take_it},
        {"who is held is refused when it would be late", who_is_held_is_refused_when_it_would_be_late},
        {"a reload that ends holding sends all", a_reload_that_ends_holding_sends_all},
        {"without memory nobody is held", without_memory_nobody_is_held},
        {"answers correct the profile", answers_correct_the_profile},
        {"who has shown nothing goes by others", who_has_shown_nothing_goes_by_others},
        {"what was learnt stays as long as the profile", what_was_learnt_stays_as_long_as_the_profile},
        {"a burst opens the breaker once", a_burst_opens_the_breaker_once},
        {"who refuses all rests, and the answer is busy", who_refuses_all_rests_and_the_answer_is_busy},
        {"a prompt counts where it went", a_prompt_counts_where_it_went},
        {"each block size is matched at its own", each_block_size_is_matched_at_its_own},
        {"adapters and models share nothing", adapters_and_models_share_nothing},
        {"a sleeper gets nothing and forgets", a_sleeper_gets_nothing_and_forgets},
        {"an engine of absurd size does not eat our memory", an_engine_of_absurd_size_does_not_eat_our_memory},
        {"a number is not given again while its requests run", a_number_is_not_given_again_while_its_requests_run},
        {"an id is one worker's", an_id_is_one_workers},
        {"what explain chooses is among its candidates", what_explain_chooses_is_among_its_candidates},
        {"a record keeps the chosen one and the cheapest", a_record_keeps_the_chosen_one_and_the_cheapest},
        {"the wait is told for base models", the_wait_is_told_for_base_models},
        {"after any order of steps all is at rest", after_any_order_of_steps_all_is_at_rest},
        {"no allocation that fails leaves a mark", no_allocation_that_fails_leaves_a_mark},
        {"a request is placed whatever allocation fails", a_request_is_placed_whatever_allocation_fails},
        {"loops do not disturb each other", loops_do_not_disturb_each_other},
        {"cached_tokens end doubt", cached_tokens_end_doubt},
        {"a worker comes back with other ranks", a_worker_comes_back_with_other_ranks},
        {"what the feed has told is in flight no more", what_the_feed_has_told_is_in_flight_no_more},
        {"an adapter from another path is in doubt", an_adapter_from_another_path_is_in_doubt},
        {"the sequences of a request are not foreign", the_sequences_of_a_request_are_not_foreign},
        {"adapters without end are not remembered without end", adapters_without_end_are_not_remembered_without_end},
        {NULL, NULL},
    },
};
