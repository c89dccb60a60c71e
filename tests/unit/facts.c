/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/engines/facts.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <jansson.h>

/* ---- metrics ---- */

static void a_page_gives_what_it_says_and_no_more(void)
{
    /* clang-format off */
    static const struct {
        const char *file;
        double running, waiting, usage; /* negative: unknown */
        uint32_t block_size;
        uint64_t kv_tokens;
        const char *missing;
    } cases[] = {
        /* Two ranks: requests add up, usage is the mean. */
        {"spec/metrics_vllm.prom", 8, 7, (0.8125 + 0.015) / 2, 16, 27184 * 16, NULL},
        {"spec/metrics_vllm_old.prom", 2, 0, 0.25, 32, 3200, NULL},
        {"spec/real/vllm_0.32.0_metrics.prom", 0, 0, 0, 32, 3072, NULL},
        {"spec/real/vllm_0.23.0_metrics.prom", 0, 0, 0, 16, 96 * 16, NULL},
        {"real/vllm_0.32.0_ranks_metrics.prom", 0, 0, 0, 32, 1536, NULL}, /* two ranks, each with as much */
        {"real/vllm_0.23.0_ranks_metrics.prom", 0, 0, 0, 16, 1536, NULL},
        {"spec/real/vllm_0.32.0_lora_metrics.prom", -1, -1, -1, 0, 0, "vllm:num_requests_running"},
        {"spec/metrics_sglang.prom", -1, -1, -1, 0, 0, "vllm:num_requests_running"},
        {"spec/metrics_llamacpp.prom", -1, -1, -1, 0, 0, "vllm:num_requests_running"},
        {"spec/metrics_trtllm.prom", -1, -1, -1, 0, 0, "vllm:num_requests_running"},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_engine_facts f;
        size_t n = 0;
        char *text = wp_test_data(cases[i].file, &n);

        wp_facts_init(&f);
        wp_facts_vllm_metrics(&f, (struct wp_str){text, n});
        EXPECT_NEAR(cases[i].file, cases[i].running, f.running, 0);
        EXPECT_NEAR(cases[i].file, cases[i].waiting, f.waiting, 0);
        EXPECT_NEAR(cases[i].file, cases[i].usage, f.kv_usage, 1e-9);
        EXPECT_UINT(cases[i].file, cases[i].block_size, f.block_size);
        EXPECT_UINT(cases[i].file, cases[i].kv_tokens, f.kv_tokens);
        EXPECT_INT(cases[i].file, cases[i].running >= 0, f.metrics_known);
        EXPECT_TEXT(cases[i].file, cases[i].missing ? cases[i].missing : "", wp_str_of(f.missing ? f.missing : ""));
        EXPECT_TRUE(cases[i].file, !f.sleeping);
        wp_engine_facts_fini(&f);
        wp_free(text);
    }
}

/* B207: three series of one name; every order, one rank and two, awake and asleep in both ways. */
static void sleep_is_told_by_the_series_in_any_order(void)
{
    static const char *const states[] = {"awake", "weights_offloaded", "discard_all"};
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    char page[1024], label[64];

    for (int is = 0; is < 3; is++)
        for (int o = 0; o < 6; o++)
            for (int asleep_rank = -1; asleep_rank < 2; asleep_rank++) { /* -1: one rank alone */
                struct wp_engine_facts f;
                int n = 0;

                for (int rank = 0; rank < (asleep_rank < 0 ? 1 : 2); rank++)
                    for (int k = 0; k < 3; k++) {
                        int one = asleep_rank < 0 || rank == asleep_rank ? is : 0;

                        n += snprintf(page + n, sizeof page - (size_t)n,
                                      "vllm:engine_sleep_state{engine=\"%d\",model_name=\"m\",sleep_state=\"%s\"} %d.0\n", rank,
                                      states[orders[o][k]], orders[o][k] == one);
                    }
                snprintf(label, sizeof label, "%s, order %d, rank %d", states[is], o, asleep_rank);
                wp_facts_init(&f);
                wp_facts_vllm_metrics(&f, (struct wp_str){page, (size_t)n});
                EXPECT_INT(label, is != 0, f.sleeping);
            }
}

static void sleep_in_other_words_is_understood(void)
{
    /* clang-format off */
    static const struct {
        const char *page;
        bool sleeping;
    } cases[] = {
        {"vllm:engine_sleep_state 1\n", true},
        {"vllm:engine_sleep_state 0\n", false},
        {"vllm:engine_sleep_state{engine=\"0\"} 2\n", true},
        {"vllm:engine_sleep_state NaN\n", false},
        {"vllm:engine_sleep_state{sleep_state=\"discard_all\"} 1\n", true},
        {"vllm:engine_sleep_state{sleep_state=\"something_new\"} 1\n", false}, /* an unknown word shuts no worker */
        {"vllm:engine_sleep_state{sleep_state=\"awake\"} NaN\n", false},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_engine_facts f;

        wp_facts_init(&f);
        wp_facts_vllm_metrics(&f, wp_str_of(cases[i].page));
        EXPECT_INT(cases[i].page, cases[i].sleeping, f.sleeping);
    }
}

static void absurd_numbers_are_unknown(void)
{
    /* clang-format off */
    static const struct {
        const char *page;
        double running, usage;
        uint32_t block_size;
        uint64_t kv_tokens;
    } cases[] = {
        {"vllm:num_requests_running NaN\n", -1, -1, 0, 0},
        {"vllm:num_requests_running -3\n", -1, -1, 0, 0},
        {"vllm:num_requests_running +Inf\n", -1, -1, 0, 0},
        {"vllm:num_requests_running NaN\nvllm:num_requests_running 2\n", 2, -1, 0, 0},
        {"vllm:kv_cache_usage_perc NaN\nvllm:kv_cache_usage_perc 0.5\n", -1, 0.5, 0, 0},
        {"vllm:cache_config_info{block_size=\"0\",num_gpu_blocks=\"9\"} 1\n", -1, -1, 0, 0},
        {"vllm:cache_config_info{block_size=\"65537\",num_gpu_blocks=\"9\"} 1\n", -1, -1, 0, 0},
        {"vllm:cache_config_info{block_size=\"-16\",num_gpu_blocks=\"9\"} 1\n", -1, -1, 0, 0},
        {"vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"None\"} 1\n", -1, -1, 0, 0},
        {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n", -1, -1, 16, 0},
        {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"18446744073709551615\"} 1\n", -1, -1, 16, 0},
        {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"99999999999999999999999\"} 1\n", -1, -1, 16, 0},
        {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"8\",kv_cache_size_tokens=\"96\"} 1\n", -1, -1, 16, 96},
        {"vllm:cache_config_info{block_size=\"16\",kv_cache_size_tokens=\"18446744073709551615\"} 1\n", -1, -1, 16, 0},
        {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"8\",num_cpu_blocks=\"100\"} 1\n", -1, -1, 16, 1728},
        {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"8\",num_cpu_blocks=\"18446744073709551615\"} 1\n", -1, -1, 16, 128},
        /* A series for every rank, each with the blocks of all; the worker's fact is what one rank has. */
        {"vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"8\"} 1\n"
         "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"8\"} 1\n", -1, -1, 16, 64},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_engine_facts f;

        wp_facts_init(&f);
        wp_facts_vllm_metrics(&f, wp_str_of(cases[i].page));
        EXPECT_NEAR(cases[i].page, cases[i].running, f.running, 0);
        EXPECT_NEAR(cases[i].page, cases[i].usage, f.kv_usage, 1e-9);
        EXPECT_UINT(cases[i].page, cases[i].block_size, f.block_size);
        EXPECT_UINT(cases[i].page, cases[i].kv_tokens, f.kv_tokens);
    }
}

/* ---- models ---- */

static void a_model_list_gives_names_parents_and_lengths(void)
{
    struct wp_engine_facts f;
    struct wp_str page = WP_STR("{\"object\":\"list\",\"data\":["
                                "{\"id\":\"base\",\"root\":\"x\",\"parent\":null,\"max_model_len\":2048},"
                                "{\"id\":\"ad\\u0061pter/1\",\"root\":\"/lora/1\",\"parent\":\"base\",\"max_model_len\":null},"
                                "{\"id\":\"\"},{\"id\":7},{\"object\":\"model\"},5,null,{\"id\":\"\\ud800\"},{\"id\":\"a\\u0000b\"},"
                                "{\"id\":\"long\",\"max_model_len\":99999999999}]}");

    wp_facts_init(&f);
    EXPECT_INT("taken", 0, wp_facts_models(&f, page));
    EXPECT_TRUE("known", f.models_known);
    EXPECT_UINT("those with a name", 3, f.n_models);
    if (f.n_models == 3) {
        EXPECT_TEXT("first", "base", wp_str_of(f.model[0].name));
        EXPECT_TRUE("a base has no parent", f.model[0].parent == NULL);
        EXPECT_UINT("its length", 2048, f.model[0].max_len);
        EXPECT_TEXT("second", "adapter/1", wp_str_of(f.model[1].name));
        EXPECT_TEXT("its base", "base", wp_str_of(f.model[1].parent));
        EXPECT_TRUE("where from", f.model[1].root && !f.model[0].root);
        EXPECT_UINT("no length", 0, f.model[1].max_len);
        EXPECT_UINT("an absurd length is none", 0, f.model[2].max_len);
    }
    EXPECT_INT("again", 0, wp_facts_models(&f, page));
    EXPECT_UINT("in place of the first", 3, f.n_models);
    wp_engine_facts_fini(&f);
}

static void what_is_no_model_list_is_refused_and_takes_nothing_away(void)
{
    static const char *const pages[] = {"", "{", "[]", "\"x\"", "{}", "{\"data\":null}", "{\"data\":{}}", "{\"data\":\"x\"}",
                                        "<html>502</html>", "{\"data\":[{\"id\":\"a\"}", "{\"data\":[]}x"};
    struct wp_engine_facts f;

    wp_facts_init(&f);
    EXPECT_INT("a good one", 0, wp_facts_models(&f, WP_STR("{\"data\":[{\"id\":\"a\"}]}")));
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        EXPECT_INT(pages[i], WP_EPROTO, wp_facts_models(&f, wp_str_of(pages[i])));
        EXPECT_UINT(pages[i], 1, f.n_models);
    }
    EXPECT_INT("an empty list is one", 0, wp_facts_models(&f, WP_STR("{\"data\":[]}")));
    EXPECT_UINT("nothing in it", 0, f.n_models);
    EXPECT_TRUE("and that is known", f.models_known);
    wp_engine_facts_fini(&f);
}

static void models_are_bounded(void)
{
    struct wp_engine_facts f;
    struct wp_buf b = {0};

    wp_buf_adds(&b, "{\"data\":[");
    for (int i = 0; i < WP_ENGINE_MODELS_MAX + 50; i++)
        wp_buf_printf(&b, "%s{\"id\":\"m%d\"}", i ? "," : "", i);
    wp_buf_adds(&b, "]}");
    wp_facts_init(&f);
    EXPECT_INT("taken", 0, wp_facts_models(&f, wp_buf_str(&b)));
    EXPECT_UINT("bounded", WP_ENGINE_MODELS_MAX, f.n_models);
    wp_engine_facts_fini(&f);
    wp_buf_fini(&b);
}

static void real_model_lists_are_read(void)
{
    size_t n = 0, lists = 0;
    char *text = wp_test_data("spec/real/vllm_0.32.0_http.json", &n);
    json_t *all = json_loadb(text, n, 0, NULL), *one;
    size_t i;

    json_array_foreach(all, i, one)
    {
        const char *path = json_string_value(json_object_get(json_object_get(one, "request"), "path"));
        json_t *body = json_object_get(one, "body");
        struct wp_engine_facts f;

        if (!path || strcmp(path, "/v1/models") != 0 || !json_is_string(body))
            continue;
        lists++;
        wp_facts_init(&f);
        EXPECT_INT("taken", 0, wp_facts_models(&f, (struct wp_str){json_string_value(body), json_string_length(body)}));
        EXPECT_TRUE("not empty", f.n_models >= 1);
        if (f.n_models) {
            EXPECT_TEXT("name", "tiny", wp_str_of(f.model[0].name));
            EXPECT_UINT("length", 2048, f.model[0].max_len);
        }
        wp_engine_facts_fini(&f);
    }
    EXPECT_TRUE("there was one", lists > 0);
    json_decref(all);
    wp_free(text);
}

static void no_allocation_that_fails_shortens_the_list(void)
{
    struct wp_str page = WP_STR("{\"data\":[{\"id\":\"a\"},{\"id\":\"b\",\"parent\":\"a\"},{\"id\":\"c\"}]}");
    long live = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_engine_facts f;
        bool failed;
        int rc;

        wp_facts_init(&f);
        wp_mem_fail_after(nth);
        rc = wp_facts_models(&f, page);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("told", failed ? WP_ENOMEM : 0, rc);
        EXPECT_UINT("all or nothing", failed ? 0 : 3, f.n_models);
        EXPECT_INT("known", !failed, f.models_known);
        wp_engine_facts_fini(&f);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        if (!failed)
            break;
    }
}

/* ---- sources of KV events ---- */

#define SOURCE(endpoint, replay) "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"" endpoint "\",\"replay_endpoint\":" replay "}"

/* "RANKS EVENTS REPLAY [dials] [why]" */
static void expect_feed(const char *label, const char *want, struct wp_str page, const char *host)
{
    struct wp_engine_facts f;
    char got[1000];
    int rc;

    wp_facts_init(&f);
    rc = wp_facts_vllm_sources(&f, page, wp_str_of(host));
    EXPECT_INT(label, rc == 0, f.feed.known);
    if (rc < 0)
        snprintf(got, sizeof got, "refused");
    else
        snprintf(got, sizeof got, "%u %s %s%s%s%s", f.feed.ranks, f.feed.events[0] ? f.feed.events : "-",
                 f.feed.replay[0] ? f.feed.replay : "-", f.feed.dials ? " dials" : "", f.feed.why ? " " : "", f.feed.why ? f.feed.why : "");
    EXPECT_TEXT(label, want, wp_str_of(got));
    wp_engine_facts_fini(&f);
}

static void an_engine_says_where_its_events_come_from(void)
{
    static const char elsewhere[] = " its endpoint is one of its own machine";
    char long_why[200];
    /* clang-format off */
    static const struct {
        const char *label, *page, *host, *want;
    } cases[] = {
        {"every interface", "{\"0\":" SOURCE("tcp://*:5557", "\"tcp://*:5558\"") "}", "10.0.0.1", "1 tcp://10.0.0.1:5557 tcp://10.0.0.1:5558"},
        {"IPv6", "{\"0\":" SOURCE("tcp://[::]:5557", "null") "}", "fd00::1", "1 tcp://[fd00::1]:5557 -"},
        {"IPv6 in brackets", "{\"0\":" SOURCE("tcp://*:5557", "null") "}", "[fd00::1]", "1 tcp://[fd00::1]:5557 -"},
        {"two ranks, in any order", "{\"1\":" SOURCE("tcp://*:5558", "\"tcp://*:6001\"") ",\"0\":" SOURCE("tcp://*:5557", "\"tcp://*:6000\"") "}", "e", "2 tcp://e:5557 tcp://e:6000"},
        {"a replay of one rank alone", "{\"1\":" SOURCE("tcp://*:5558", "null") ",\"0\":" SOURCE("tcp://*:5557", "\"tcp://*:6000\"") "}", "e", "2 tcp://e:5557 -"},
        {"it connects", "{\"0\":" SOURCE("tcp://10.0.0.9:5557", "\"tcp://*:5558\"") "}", "10.0.0.1", "1 tcp://10.0.0.9:5557 tcp://10.0.0.1:5558 dials"},
        {"a socket here", "{\"0\":" SOURCE("ipc:///run/kv", "\"tcp://127.0.0.1:5558\"") "}", "127.0.0.1", "1 ipc:///run/kv tcp://127.0.0.1:5558"},
        {"its replay is on its own machine", "{\"0\":" SOURCE("tcp://*:5557", "\"tcp://127.0.0.1:5558\"") "}", "10.0.0.1", "1 tcp://10.0.0.1:5557 -"},
        {"off", "{}", "e", "0 - -"},
        {"switched off", "{\"0\":{\"enable_kv_cache_events\":false,\"publisher\":\"zmq\"}}", "e", "0 - -"},
        {"silent", "{\"0\":{\"enable_kv_cache_events\":true,\"publisher\":null}}", "e", "1 - - its events are switched on, and no publisher sends them"},
        {"ports that do not follow", "{\"0\":" SOURCE("tcp://*:1", "null") ",\"1\":" SOURCE("tcp://*:3", "null") "}", "e", "2 tcp://e:1 - the ports of its ranks do not follow each other"},
        {"a rank too high", "{\"0\":" SOURCE("tcp://*:1", "null") ",\"2\":" SOURCE("tcp://*:3", "null") "}", "e", "2 tcp://e:1 - some of its ranks are missing"},
        {"a rank twice", "{\"0\":" SOURCE("tcp://*:1", "null") ",\"0\":" SOURCE("tcp://*:1", "null") "}", "e", "1 tcp://e:1 - its ranks are not told apart"},
        {"any port", "{\"0\":" SOURCE("tcp://*:*", "null") "}", "e", "1 tcp://e:* - its endpoint is none that can be read"},
        {"another object", "{\"error\":{}}", "e", "refused"},
        {"an array", "[]", "e", "refused"},
        {"nothing", "", "e", "refused"},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_feed(cases[i].label, cases[i].want, wp_str_of(cases[i].page), cases[i].host);
    snprintf(long_why, sizeof long_why, "1 ipc:///run/kv -%s", elsewhere);
    expect_feed("a socket elsewhere", long_why, WP_STR("{\"0\":" SOURCE("ipc:///run/kv", "\"tcp://127.0.0.1:5558\"") "}"), "10.0.0.1");
}

/* A base model and its adapters, one of which was loaded later. */
static void captured_adapters_are_read(void)
{
    static const char *const file[] = {"real/vllm_0.32.0_adapters_models.json", "real/vllm_0.23.0_adapters_models.json"};
    static const char *const name[] = {"tiny", "ad1", "ad2"};

    for (int i = 0; i < 2; i++) {
        struct wp_engine_facts f;
        size_t n = 0;
        char *text = wp_test_data(file[i], &n);

        wp_facts_init(&f);
        EXPECT_INT(file[i], 0, wp_facts_models(&f, (struct wp_str){text, n}));
        EXPECT_UINT(file[i], 3, f.n_models);
        for (size_t k = 0; k < f.n_models && k < 3; k++) {
            EXPECT_TEXT(file[i], name[k], wp_str_of(f.model[k].name));
            EXPECT_TEXT(file[i], k ? "tiny" : "", wp_str_of(f.model[k].parent ? f.model[k].parent : ""));
            EXPECT_UINT(file[i], k ? 0 : 2048, f.model[k].max_len);
        }
        wp_engine_facts_fini(&f);
        wp_free(text);
    }
}

/* The answers of running engines. */
static void captured_sources_are_understood(void)
{
    static const char *const file[] = {"spec/real/vllm_0.32.0_http.json", "spec/real/vllm_0.32.0_dp2_sources.json"};
    static const char *const want[] = {"1 ipc:///run/kv/a tcp://127.0.0.1:18101", "2 tcp://127.0.0.1:21405 tcp://127.0.0.1:21107 dials"};

    for (int i = 0; i < 2; i++) {
        size_t n = 0, k;
        char *text = wp_test_data(file[i], &n);
        json_t *all = json_loadb(text, n, 0, NULL), *one;
        bool found = false;

        json_array_foreach(all, k, one)
        {
            if (strcmp(json_string_value(json_object_get(one, "name")), "kv_event_sources") != 0)
                continue;
            found = true;
            expect_feed(file[i], want[i], wp_str_of(json_string_value(json_object_get(one, "body"))), "127.0.0.1");
        }
        EXPECT_TRUE(file[i], found);
        json_decref(all);
        wp_free(text);
    }
}

/* Two ranks that bind on every address: at the worker's, and each port follows from the first. */
static void captured_ranks_that_bind_are_found(void)
{
    static const char file[] = "real/vllm_0.32.0_ranks_sources.json";
    size_t n = 0;
    char *text = wp_test_data(file, &n);

    expect_feed(file, "2 tcp://10.0.0.1:29782 tcp://10.0.0.1:29784", (struct wp_str){text, n}, "10.0.0.1");
    wp_free(text);
}

const struct wp_suite suite_facts = {
    "facts",
    (const struct wp_test[]){
        {"a page gives what it says and no more", a_page_gives_what_it_says_and_no_more},
        {"sleep is told by the series in any order", sleep_is_told_by_the_series_in_any_order},
        {"sleep in other words is understood", sleep_in_other_words_is_understood},
        {"absurd numbers are unknown", absurd_numbers_are_unknown},
        {"a model list gives names, parents and lengths", a_model_list_gives_names_parents_and_lengths},
        {"what is no model list is refused and takes nothing away", what_is_no_model_list_is_refused_and_takes_nothing_away},
        {"models are bounded", models_are_bounded},
        {"real model lists are read", real_model_lists_are_read},
        {"captured adapters are read", captured_adapters_are_read},
        {"no allocation that fails shortens the list", no_allocation_that_fails_shortens_the_list},
        {"an engine says where its events come from", an_engine_says_where_its_events_come_from},
        {"captured sources are understood", captured_sources_are_understood},
        {"captured ranks that bind are found", captured_ranks_that_bind_are_found},
        {NULL, NULL},
    },
};
