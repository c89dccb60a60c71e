/* SPDX-License-Identifier: Apache-2.0 */
#include "router/worker.h"

#include "base/mem.h"
#include "tests/lib/test.h"

static struct wp_config *conf;
static struct wp_worker *w;
static long live;

static struct wp_worker *make(const char *json)
{
    struct wp_config_worker cw;
    struct wp_err err = WP_ERR_INIT;
    struct wp_worker *made = NULL;

    EXPECT_INT("entry", 0, wp_config_worker_json(&cw, wp_str_of(json), &err));
    EXPECT_INT("worker", 0, wp_worker_create(&made, &cw, conf, &err));
    wp_config_worker_fini(&cw);
    return made;
}

static void set_up(const char *json, const char *const set[], size_t n)
{
    struct wp_buf errors = {0};

    live = wp_mem_live();
    EXPECT_INT("configuration", 0, wp_config_read(&conf, NULL, set, n, NULL, 0, &errors));
    wp_buf_fini(&errors);
    w = make(json);
}

static void tear_down(void)
{
    wp_worker_unref(w);
    wp_config_destroy(conf);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void probed(bool up, size_t models)
{
    struct wp_engine_facts f = {
        .up = up, .rc = up ? 200 : 500, .running = -1, .waiting = -1, .kv_usage = -1};

    if (up && models) {
        f.models_known = true;
        f.model = wp_calloc(models, sizeof *f.model);
        f.n_models = models;
        for (size_t i = 0; i < models; i++)
            f.model[i].name = wp_strdup(i ? "adapter" : "m");
    }
    wp_worker_probed(w, &f, conf);
    wp_engine_facts_fini(&f);
}

static const char *why_not(uint64_t now_us)
{
    const char *why;

    return wp_worker_ready(w, now_us, &why) ? "ready" : why;
}

#define EXPECT_WHY(label, want, now) EXPECT_TEXT(label, want, wp_str_of(why_not(now)))
#define URL                          "{\"url\":\"http://10.0.0.1:8000\"}"

/* ---- joining, going down, coming back ---- */

static void a_worker_joins_with_its_first_good_probe(void)
{
    static const char *const set[] = {"health.fail=3", "health.pass=2"};

    set_up(URL, set, 2);
    EXPECT_WHY("at first", "joining", 1);
    probed(false, 0);
    EXPECT_WHY("a bad probe", "joining", 1);
    EXPECT_TEXT("said why", "Internal Server Error", wp_str_of(w->trouble));
    probed(true, 0);
    EXPECT_WHY("without a model nobody can ask it", "joining", 1);
    EXPECT_TEXT("said why", "lists no model", wp_str_of(w->trouble));
    probed(true, 1);
    EXPECT_WHY("one good probe is enough at first", "ready", 1);
    EXPECT_TEXT("no trouble", "", wp_str_of(w->trouble));
    tear_down();
}

static void probes_in_a_row_take_it_down_and_bring_it_back(void)
{
    static const char *const set[] = {"health.fail=3", "health.pass=2"};

    set_up(URL, set, 2);
    probed(true, 1);
    for (int i = 0; i < 4; i++) { /* never three in a row */
        probed(false, 0);
        probed(false, 0);
        EXPECT_WHY("two bad ones", "ready", 1);
        probed(true, 1);
    }
    for (int i = 0; i < 3; i++)
        probed(false, 0);
    EXPECT_WHY("three bad ones", "down", 1);
    EXPECT_UINT("its models are still known", 1, w->n_models);
    probed(true, 1);
    EXPECT_WHY("one good one", "down", 1);
    probed(false, 0);
    probed(true, 1);
    EXPECT_WHY("one good one after a bad one", "down", 1);
    probed(true, 1);
    EXPECT_WHY("two in a row", "ready", 1);
    tear_down();
}

static void fixed_models_make_any_answer_good_but_loading_and_5xx(void)
{
    /* clang-format off */
    static const struct {
        const char *label;
        struct wp_engine_facts f;
        const char *want;
    } cases[] = {
        {"up", {.up = true, .rc = 200}, "ready"},
        {"denied", {.rc = 401}, "ready"},
        {"no such page", {.rc = 404}, "ready"},
        {"loading", {.rc = 503, .loading = true}, "joining"},
        {"error", {.rc = 500}, "joining"},
        {"nobody", {.rc = WP_ECONNREFUSED}, "joining"},
        {"no answer", {.rc = WP_ETIMEDOUT}, "joining"},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_engine_facts f = cases[i].f;

        set_up("{\"url\":\"http://"
               "10.0.0.1:8000\",\"models\":[\"fixed\",\"other\"],\"max_model_len\":77}",
               NULL, 0);
        wp_worker_probed(w, &f, conf);
        EXPECT_WHY(cases[i].label, cases[i].want, 1);
        EXPECT_TRUE("its models", wp_worker_serves(w, WP_STR("fixed")) &&
                                      wp_worker_serves(w, WP_STR("other")) && w->n_models == 2);
        EXPECT_TRUE("no others",
                    !wp_worker_serves(w, WP_STR("m")) && !wp_worker_serves(w, WP_STR("")));
        EXPECT_UINT("length", 77, w->model[0].max_len);
        tear_down();
    }
}

static void what_was_not_learnt_stays_as_it_was(void)
{
    struct wp_engine_facts known = {.up = true,
                                    .rc = 200,
                                    .running = 3,
                                    .waiting = 1,
                                    .kv_usage = 0.5,
                                    .metrics_known = true,
                                    .sleep_known = true,
                                    .block_size = 32,
                                    .kv_tokens = 4096,
                                    .version = "1.2"};
    struct wp_engine_facts unknown = {
        .up = true, .rc = 200, .running = -1, .waiting = -1, .kv_usage = -1};

    set_up("{\"url\":\"http://10.0.0.1:8000\",\"models\":[\"m\"]}", NULL, 0);
    EXPECT_UINT("a block size until it is known", 16, w->block_size);
    wp_worker_probed(w, &known, conf);
    wp_worker_probed(w, &unknown, conf);
    EXPECT_UINT("block size", 32, w->block_size);
    EXPECT_UINT("capacity", 4096, w->kv_tokens);
    EXPECT_NEAR("running", 3, w->reported_running, 0);
    EXPECT_TEXT("version", "1.2", wp_str_of(w->version));
    tear_down();
    set_up(
        "{\"url\":\"http://10.0.0.1:8000\",\"models\":[\"m\"],\"block_size\":8,\"kv_tokens\":99}",
        NULL, 0);
    wp_worker_probed(w, &known, conf);
    EXPECT_UINT("the configuration knows better", 8, w->block_size);
    EXPECT_UINT("of the capacity, too", 99, w->kv_tokens);
    tear_down();
}

static void a_sleeper_sleeps_until_it_says_otherwise(void)
{
    struct wp_engine_facts asleep = {.up = true, .rc = 200, .sleeping = true, .sleep_known = true},
                           awake = {.up = true, .rc = 200, .sleep_known = true},
                           silent = {.up = true, .rc = 200}, bad = {.rc = 500};

    set_up("{\"url\":\"http://10.0.0.1:8000\",\"models\":[\"m\"]}", NULL, 0);
    wp_worker_probed(w, &asleep, conf);
    EXPECT_WHY("asleep", "sleeping", 1);
    wp_worker_probed(w, &silent, conf);
    EXPECT_WHY("its metrics page did not answer", "sleeping", 1);
    wp_worker_probed(w, &bad, conf);
    EXPECT_WHY("nor its health page", "sleeping", 1);
    wp_worker_probed(w, &awake, conf);
    EXPECT_WHY("awake", "ready", 1);
    tear_down();
}

static void models_are_taken_over_and_may_go(void)
{
    set_up("{\"url\":\"http://10.0.0.1:8000\",\"max_model_len\":500}", NULL, 0);
    probed(true, 2);
    EXPECT_UINT("two", 2, w->n_models);
    EXPECT_TRUE("adapter", wp_worker_serves(w, WP_STR("adapter")) != NULL);
    EXPECT_UINT("the configuration's length", 500, w->model[1].max_len);
    probed(true, 1);
    EXPECT_TRUE("the adapter was unloaded", wp_worker_serves(w, WP_STR("adapter")) == NULL);
    tear_down();
}

/* ---- the breaker ---- */

static void outcome(enum wp_outcome o, uint64_t now_us)
{
    wp_worker_outcome(w, o, conf, now_us);
}

/* As the fleet does with the one request that goes. */
static void half_open(void)
{
    w->breaker = WP_BREAKER_HALF_OPEN;
    w->half_open_busy = true;
}

static void breaker_set_up(void)
{
    static const char *const set[] = {"health.fail=3", "health.interval_s=5"};

    set_up("{\"url\":\"http://10.0.0.1:8000\",\"models\":[\"m\"]}", set, 2);
    probed(true, 0);
    EXPECT_WHY("ready", "ready", 1);
}

static void the_breaker_opens_after_failures_in_a_row(void)
{
    breaker_set_up();
    for (int i = 0; i < 5; i++) {
        outcome(WP_OUTCOME_FAILED, 1);
        outcome(WP_OUTCOME_FAILED, 1);
        outcome(WP_OUTCOME_NEUTRAL, 1); /* says nothing */
        EXPECT_INT("closed", WP_BREAKER_CLOSED, w->breaker);
        outcome(WP_OUTCOME_GOOD, 1);
    }
    for (int i = 0; i < 3; i++)
        outcome(WP_OUTCOME_FAILED, 1000);
    EXPECT_INT("open", WP_BREAKER_OPEN, w->breaker);
    EXPECT_WHY("not now", "breaker", 1000);
    EXPECT_WHY("until an interval has passed", "breaker", 1000 + 4999999);
    EXPECT_WHY("then one may go", "ready", 1000 + 5000000);
    EXPECT_UINT("counted", 13, w->errors);
    tear_down();
}

static void the_half_open_request_decides(void)
{
    uint64_t now = 1000;

    breaker_set_up();
    for (int i = 0; i < 3; i++)
        outcome(WP_OUTCOME_FAILED, now);
    now += 5000000;
    half_open();
    EXPECT_WHY("just one", "breaker", now);
    outcome(WP_OUTCOME_NEUTRAL, now);
    EXPECT_INT("cancelled: still half open", WP_BREAKER_HALF_OPEN, w->breaker);
    EXPECT_WHY("and the slot is free", "ready", now);
    half_open();
    outcome(WP_OUTCOME_GOOD, now);
    EXPECT_INT("good: closed", WP_BREAKER_CLOSED, w->breaker);
    EXPECT_WHY("ready", "ready", now);
    outcome(WP_OUTCOME_FAILED, now);
    outcome(WP_OUTCOME_FAILED, now);
    EXPECT_INT("counted afresh", WP_BREAKER_CLOSED, w->breaker);
    outcome(WP_OUTCOME_FAILED, now);
    EXPECT_UINT("and the first interval again", now + 5000000, w->open_until_us);
    tear_down();
}

/* One that fails every other time never fails three times in a row. */
static void half_of_many_opens_it_too(void)
{
    uint64_t now = 1000, last = 0;

    breaker_set_up();
    for (int round = 0; round < 5; round++) {
        for (int i = 0; w->breaker == WP_BREAKER_CLOSED; i++) {
            EXPECT_TRUE("soon", i < 25);
            if (i % 2 == 0) {
                wp_worker_served(w);
                outcome(WP_OUTCOME_GOOD, now);
            } else {
                wp_worker_failed(w, now);
                outcome(WP_OUTCOME_FAILED, now);
            }
        }
        EXPECT_TRUE("longer each time, half a minute at most", w->open_until_us - now >= (last < 30000000 ? last * 3 / 2 : 30000000));
        last = w->open_until_us - now;
        now = w->open_until_us;
        half_open();
        wp_worker_served(w);
        outcome(WP_OUTCOME_GOOD, now);
    }
    EXPECT_UINT("in the end", 30000000, last);
    for (int i = 0; i < WP_RECENT; i++) {
        wp_worker_served(w);
        outcome(WP_OUTCOME_GOOD, now);
    }
    EXPECT_UINT("well again", 0, w->gray_us);
    tear_down();
}

static void failures_fade(void)
{
    breaker_set_up();
    EXPECT_NEAR("none", 0, wp_worker_failing(w, 1000), 0);
    for (int i = 0; i < 10; i++)
        wp_worker_failed(w, 1000);
    EXPECT_NEAR("half", 0.5, wp_worker_failing(w, 1000), 1e-9);
    EXPECT_NEAR("half a minute later", 0.25, wp_worker_failing(w, 1000 + 30000000), 1e-9);
    EXPECT_NEAR("a minute later", 0, wp_worker_failing(w, 1000 + 60000000), 1e-9);
    for (int i = 0; i < 20; i++)
        wp_worker_served(w);
    EXPECT_NEAR("or by good ones", 0, wp_worker_failing(w, 1000), 0);
    tear_down();
}

static void a_newcomer_gets_more_as_it_answers(void)
{
    breaker_set_up();
    EXPECT_TRUE("nothing yet", !wp_worker_is_cold(w, conf));
    w->rank[0].load.in_flight = 4;
    EXPECT_TRUE("four at once", wp_worker_is_cold(w, conf));
    wp_worker_served(w);
    EXPECT_TRUE("two more", !wp_worker_is_cold(w, conf));
    w->rank[0].load.in_flight = 6;
    EXPECT_TRUE("not more", wp_worker_is_cold(w, conf));
    for (int i = 0; i < WP_WARM; i++)
        wp_worker_served(w);
    w->rank[0].load.in_flight = 1000;
    EXPECT_TRUE("it has shown itself", !wp_worker_is_cold(w, conf));
    for (int i = 0; i < 3; i++)
        probed(false, 0);
    for (int i = 0; i < 2; i++)
        probed(true, 0);
    EXPECT_TRUE("it came back: a newcomer again", wp_worker_is_cold(w, conf));
    w->rank[0].load.in_flight = 0;
    tear_down();
}

static void the_time_doubles_to_half_a_minute(void)
{
    static const uint64_t want_s[] = {5, 10, 20, 30, 30, 30};
    uint64_t now = 1000;

    breaker_set_up();
    for (int i = 0; i < 2; i++)
        outcome(WP_OUTCOME_FAILED, now);
    for (size_t i = 0; i < sizeof want_s / sizeof want_s[0]; i++) {
        outcome(WP_OUTCOME_FAILED, now);
        EXPECT_UINT("open for", want_s[i] * 1000000, w->open_until_us - now);
        now = w->open_until_us;
        half_open();
    }
    tear_down();
}

static void stragglers_do_not_move_an_open_breaker(void)
{
    breaker_set_up();
    for (int i = 0; i < 3; i++)
        outcome(WP_OUTCOME_FAILED, 1000);
    for (int i = 0; i < 20; i++) /* requests that were under way when it opened */
        outcome(WP_OUTCOME_FAILED, 2000);
    EXPECT_UINT("as it opened", 1000 + 5000000, w->open_until_us);
    tear_down();
}

static void a_good_probe_never_closes_the_breaker(void)
{
    breaker_set_up();
    for (int i = 0; i < 3; i++)
        outcome(WP_OUTCOME_FAILED, 1000);
    for (int i = 0; i < 10; i++)
        probed(true, 0);
    EXPECT_INT("open", WP_BREAKER_OPEN, w->breaker);
    EXPECT_WHY("not now", "breaker", 2000);
    tear_down();
}

static void busy(uint64_t placed_us, uint64_t asked_us, uint64_t now_us)
{
    outcome(WP_OUTCOME_BUSY, now_us);
    wp_worker_busy(w, placed_us, asked_us, conf, now_us);
}

/* 429 without Retry-After: its own end, doubling, bounded; a burst counts once. */
static void who_says_no_to_everything_rests(void)
{
    static const uint64_t want_ms[] = {500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    static const char *const set[] = {"limits.rest_max_s=0"};
    uint64_t now = 1000;

    breaker_set_up();
    busy(now, 0, now);
    busy(now, 0, now);
    EXPECT_WHY("two may happen", "ready", now);
    for (size_t i = 0; i < sizeof want_ms / sizeof want_ms[0]; i++) {
        busy(now, 0, now);
        EXPECT_UINT("rests", want_ms[i] * 1000, w->rest_until_us - now);
        EXPECT_WHY("rests", "resting", now);
        for (int k = 0; k < 50; k++)
            busy(now - 1, 0, now + 1); /* under way when it began */
        now = w->rest_until_us;
        EXPECT_WHY("has rested", "ready", now);
    }
    EXPECT_INT("it has not failed", WP_BREAKER_CLOSED, w->breaker);
    EXPECT_UINT("counted", 2 + 51 * 8, w->busies);
    busy(now, 2000000, now);
    EXPECT_UINT("what it asks for it gets", now + 2000000, w->rest_until_us);
    tear_down();
    set_up("{\"url\":\"http://10.0.0.1:8000\",\"models\":[\"m\"]}", set, 1);
    probed(true, 0);
    for (int i = 0; i < 9; i++)
        busy(now, 0, now);
    EXPECT_WHY("no rest is wanted at all", "ready", now);
    tear_down();
}

static void every_no_has_its_word(void)
{
    breaker_set_up();
    w->rest_until_us = 500;
    EXPECT_WHY("resting", "resting", 499);
    EXPECT_WHY("rested", "ready", 500);
    w->draining = true;
    EXPECT_WHY("draining", "drain", 500);
    tear_down();
}

/* ---- making one ---- */

static void what_cannot_be_a_worker_is_refused(void)
{
    static const char *const bad[] = {"{\"url\":\"http://a:1\",\"engine\":\"auto\"}"};
    struct wp_config_worker cw;
    struct wp_err err = WP_ERR_INIT;
    struct wp_worker *made = NULL;

    set_up(URL, NULL, 0);
    EXPECT_INT("entry", 0, wp_config_worker_json(&cw, wp_str_of(bad[0]), &err));
    wp_free(cw.url);
    cw.url = wp_strdup("ftp://x");
    EXPECT_INT("url", WP_EINVAL, wp_worker_create(&made, &cw, conf, &err));
    wp_free(cw.url);
    cw.url = wp_strdup("http://x:1");
    wp_free(cw.engine);
    cw.engine = wp_strdup("abacus");
    EXPECT_INT("engine", WP_EINVAL, wp_worker_create(&made, &cw, conf, &err));
    wp_config_worker_fini(&cw);
    tear_down();
}

static void its_id_is_its_host_and_port(void)
{
    static const struct {
        const char *json, *id;
    } cases[] = {{"{\"url\":\"http://engine-1\"}", "engine-1:80"},
                 {"{\"url\":\"http://10.0.0.1:8000/base/\"}", "10.0.0.1:8000"},
                 {"{\"url\":\"http://10.0.0.1:8000\",\"id\":\"w1\"}", "w1"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_up(cases[i].json, NULL, 0);
        EXPECT_TEXT("id", cases[i].id, wp_str_of(w->conf.id));
        tear_down();
    }
}

static void no_allocation_that_fails_leaks(void)
{
    struct wp_config_worker cw;
    struct wp_err err = WP_ERR_INIT;
    bool hit = true;

    set_up(URL, NULL, 0);
    EXPECT_INT(
        "entry", 0,
        wp_config_worker_json(
            &cw, WP_STR("{\"url\":\"http://a:1\",\"models\":[\"x\",\"y\"],\"tags\":{\"a\":\"b\"}}"),
            &err));
    for (long nth = 0; hit; nth++) {
        struct wp_worker *made = NULL;
        long before = wp_mem_live();
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_worker_create(&made, &cw, conf, &err);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("told", hit ? WP_ENOMEM : 0, rc);
        if (rc == 0)
            wp_worker_unref(made);
        EXPECT_INT("nothing leaks", before, wp_mem_live());
    }
    wp_config_worker_fini(&cw);
    tear_down();
}

/* What an engine reports beyond what we sent counts when two scrapes agree; what is ours, or was for a moment, never does. */
static void what_others_have_on_an_engine_is_seen(void)
{
    static const struct {
        double running, waiting; /* negative: the page did not come */
        double foreign_running, foreign_waiting;
    } scrapes[] = {
        {2, 1, 0, 0},   /* ours: one decodes, two wait */
        {9, 5, 0, 0},   /* eleven more, of which three wait: once is not enough */
        {10, 4, 8, 2},  /* the smaller of the two */
        {3, 0, 0, 0},   /* they are gone */
        {8, 6, 0, 0},   {8, 6, 7, 4}, {-1, -1, 0, 0}, /* no page: our own account */
        {8, 6, 0, 0},   {20, 0, 7, 0}, /* they are admitted */
        {0, 0, 0, 0},
    };
    struct wp_load_item item[3];

    memset(item, 0, sizeof item);
    set_up("{\"url\":\"http://10.0.0.1:8000\",\"models\":[\"m\"]}", NULL, 0);
    for (int i = 0; i < 3; i++)
        wp_load_begin(&w->rank[0].load, &item[i], &w->profile, 1000, 0, 10, 10);
    wp_load_first(&w->rank[0].load, &item[0], &w->profile, 2000);
    for (size_t i = 0; i < sizeof scrapes / sizeof scrapes[0]; i++) {
        struct wp_engine_facts f = {.up = true, .rc = 200, .running = scrapes[i].running, .waiting = scrapes[i].waiting,
                                    .metrics_known = scrapes[i].running >= 0};
        double one = wp_prefill_us(&w->profile, 0, 500);
        char label[40];

        snprintf(label, sizeof label, "scrape %zu", i);
        wp_worker_others(w, &f, 500);
        EXPECT_NEAR(label, scrapes[i].foreign_running, w->foreign.running, 0);
        EXPECT_NEAR(label, scrapes[i].foreign_waiting, w->foreign.waiting, 0);
        EXPECT_NEAR(label, scrapes[i].foreign_waiting * one, w->foreign_wait_us, 1e-6 * one);
        EXPECT_NEAR(label, wp_load_wait_us(&w->rank[0].load, &w->profile, 3000) + w->foreign_wait_us,
                    wp_worker_wait_us(w, &w->rank[0], 3000), 0);
    }
    for (int i = 0; i < 3; i++)
        wp_load_end(&w->rank[0].load, &item[i], &w->profile, 4000);
    tear_down();
}

const struct wp_suite suite_worker = {
    "worker",
    (const struct wp_test[]){
        {"a worker joins with its first good probe", a_worker_joins_with_its_first_good_probe},
        {"probes in a row take it down and bring it back",
         probes_in_a_row_take_it_down_and_bring_it_back},
        {"fixed models make any answer good, but loading and 5xx",
         fixed_models_make_any_answer_good_but_loading_and_5xx},
        {"what was not learnt stays as it was", what_was_not_learnt_stays_as_it_was},
        {"a sleeper sleeps until it says otherwise", a_sleeper_sleeps_until_it_says_otherwise},
        {"models are taken over and may go", models_are_taken_over_and_may_go},
        {"the breaker opens after failures in a row", the_breaker_opens_after_failures_in_a_row},
        {"the half-open request decides", the_half_open_request_decides},
        {"the time doubles to half a minute", the_time_doubles_to_half_a_minute},
        {"half of many opens it, too", half_of_many_opens_it_too},
        {"failures fade", failures_fade},
        {"a newcomer gets more as it answers", a_newcomer_gets_more_as_it_answers},
        {"stragglers do not move an open breaker", stragglers_do_not_move_an_open_breaker},
        {"a good probe never closes the breaker", a_good_probe_never_closes_the_breaker},
        {"every no has its word", every_no_has_its_word},
        {"who says no to everything rests", who_says_no_to_everything_rests},
        {"what cannot be a worker is refused", what_cannot_be_a_worker_is_refused},
        {"its id is its host and port", its_id_is_its_host_and_port},
        {"no allocation that fails leaks", no_allocation_that_fails_leaks},
        {"what others have on an engine is seen", what_others_have_on_an_engine_is_seen},
        {NULL, NULL},
    },
};
