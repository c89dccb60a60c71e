/* SPDX-License-Identifier: Apache-2.0 */
#include "router/ask.h"

#include "base/mem.h"
#include "index/identity.h"
#include "tests/lib/test.h"

static struct wp_config *conf;
static struct wp_metrics *metrics;
static struct wp_fleet *fleet;
static struct wp_arena arena;
static struct wp_asked asked;
static struct wp_refusal no;
static long live;

static void set_up(const char *const set[], size_t n)
{
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;

    live = wp_mem_live();
    EXPECT_INT("configuration", 0, wp_config_read(&conf, NULL, set, n, NULL, 0, &errors));
    wp_buf_fini(&errors);
    EXPECT_INT("metrics", 0, wp_metrics_create(&metrics, &err));
    EXPECT_INT("fleet", 0, wp_fleet_create(&fleet, conf, metrics, &err));
}

static void tear_down(void)
{
    wp_arena_fini(&arena);
    wp_fleet_destroy(fleet);
    wp_metrics_destroy(metrics);
    wp_config_destroy(conf);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void worker(const char *json, bool up)
{
    struct wp_config_worker w;
    struct wp_err err = WP_ERR_INIT;
    struct wp_engine_facts f = {.up = true, .rc = 200};
    struct wp_worker *made;

    EXPECT_INT("entry", 0, wp_config_worker_json(&w, wp_str_of(json), &err));
    EXPECT_INT("worker", 0, wp_fleet_add(fleet, &w, conf, &err));
    made = wp_fleet_find(fleet, wp_str_of(w.id));
    EXPECT_TRUE("there", made != NULL);
    if (up && made)
        wp_fleet_probed(fleet, made, &f, conf);
    wp_worker_unref(made);
    wp_config_worker_fini(&w);
}

static int ask(enum wp_route_kind kind, const char *form, const char *body)
{
    asked = (struct wp_asked){0};
    no = (struct wp_refusal){0};
    return wp_ask_read(&asked, fleet, conf, kind, wp_str_of(form), wp_str_of(body), &arena, &no);
}

#define FORM "multipart/form-data; boundary=b"
#define W1   "{\"url\":\"http://127.0.0.1:1\",\"id\":\"w1\",\"models\":[\"test-model\"]}"
#define W2   "{\"url\":\"http://127.0.0.1:2\",\"id\":\"w2\",\"models\":[\"other\"]}"

/* clang-format off */
static const struct {
    enum wp_route_kind kind;
    const char *body;
    int status; /* 0: taken */
    const char *code, *param;
} cases[] = {
    {WP_ROUTE_CHAT, "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 0, NULL, NULL},
    {WP_ROUTE_CHAT, "{\"model\":\"no-such-model\",\"messages\":[{}]}", 404, "model_not_found", "model"},
    {WP_ROUTE_CHAT, "{\"messages\":[{}]}", 400, "missing_model", "model"},
    {WP_ROUTE_CHAT, "{\"model\":null,\"messages\":[{}]}", 400, "missing_model", "model"},
    {WP_ROUTE_CHAT, "{\"model\":7,\"messages\":[{}]}", 400, "invalid_value", "model"},
    {WP_ROUTE_CHAT, "{\"model\":[\"test-model\"],\"messages\":[{}]}", 400, "invalid_value", "model"},
    {WP_ROUTE_CHAT, "{\"model\":\"\\ud800\",\"messages\":[{}]}", 400, "invalid_value", "model"},
    {WP_ROUTE_CHAT, "{\"model\":\"\",\"messages\":[{}]}", 404, "model_not_found", "model"},
    {WP_ROUTE_CHAT, "{\"model\":\"test-model\",\"messages\":null}", 400, "invalid_value", "messages"},
    {WP_ROUTE_CHAT, "{\"model\":\"test-model\",\"messages\":[]}", 0, NULL, NULL}, /* an engine's to judge */
    {WP_ROUTE_CHAT, "", 400, "bad_json", NULL},
    {WP_ROUTE_CHAT, "{\"model\": \"test-model\", \"messages\": [", 400, "bad_json", NULL},
    {WP_ROUTE_CHAT, "[]", 400, "bad_json", NULL},
    {WP_ROUTE_CHAT, "null", 400, "bad_json", NULL},
    {WP_ROUTE_CHAT, "{}{}", 400, "bad_json", NULL},
    {WP_ROUTE_COMPLETIONS, "{\"model\":\"test-model\",\"prompt\":7}", 400, "invalid_value", "prompt"},
    {WP_ROUTE_COMPLETIONS, "{\"model\":\"t\\u0065st-model\",\"prompt\":\"x\"}", 0, NULL, NULL},
    {WP_ROUTE_RESPONSES, "{\"model\":\"test-model\",\"input\":7}", 400, "invalid_value", "input"},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"input\":7}", 0, NULL, NULL},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"kv_transfer_params\":{\"do_remote_prefill\":true}}", 400, "routing_field_refused", "kv_transfer_params"},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"kv_transfer_params\":{\"lmcache.tag.user\":\"x\"}}", 0, NULL, NULL},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"kv_transfer_params\":{\"lmcache.tag.user\":\"x\",\"y\":1}}", 400, "routing_field_refused", "kv_transfer_params"},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"kv_transfer_params\":{\"lmcache.tag\":1}}", 400, "routing_field_refused", "kv_transfer_params"},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"kv_transfer_params\":[]}", 400, "routing_field_refused", "kv_transfer_params"},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"kv_transfer_params\":null}", 0, NULL, NULL},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"bootstrap_host\":\"evil\"}", 400, "routing_field_refused", "bootstrap_host"},
    {WP_ROUTE_PLAIN, "{\"model\":\"test-model\",\"routed_dp_r\\u0061nk\":1}", 400, "routing_field_refused", "routed_dp_rank"},
    {WP_ROUTE_OPAQUE, "{\"model\":\"other\"}", 0, NULL, NULL},
};
/* clang-format on */

static void expect_refusal(const char *body, int rc, int status, const char *code,
                           const char *param)
{
    EXPECT_INT(body, status ? WP_EINVAL : 0, rc);
    EXPECT_INT(body, status, no.status);
    EXPECT_TEXT(body, code ? code : "", wp_str_of(no.code ? no.code : ""));
    EXPECT_TEXT(body, param ? param : "", wp_str_of(no.param ? no.param : ""));
    EXPECT_INT("a sentence", status != 0, no.text[0] != 0);
    EXPECT_INT("final unless a pause is named", status && !no.retry_us, no.final);
}

static void each_body_is_taken_or_refused_with_its_reason(void)
{
    set_up(NULL, 0);
    worker(W1, true);
    worker(W2, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(cases[i].body, ask(cases[i].kind, NULL, cases[i].body), cases[i].status,
                       cases[i].code, cases[i].param);
    tear_down();
}

static void one_model_needs_no_name(void)
{
    set_up(NULL, 0);
    expect_refusal("nobody is there", ask(WP_ROUTE_COMPLETIONS, NULL, "{\"prompt\":\"x\"}"), 503,
                   "no_worker", "worker");
    EXPECT_TRUE("ask again", no.retry_us > 0);
    worker(W1, true);
    expect_refusal("one", ask(WP_ROUTE_COMPLETIONS, NULL, "{\"prompt\":\"x\"}"), 0, NULL, NULL);
    EXPECT_TEXT("that one", "test-model", asked.model.name);
    expect_refusal("a form", ask(WP_ROUTE_OPAQUE, FORM, "--b\r\n\r\n\r\n--b--"), 0, NULL, NULL);
    EXPECT_TEXT("that one", "test-model", asked.model.name);
    expect_refusal("no form", ask(WP_ROUTE_OPAQUE, FORM, "--b\r\n"), 400, "bad_form", NULL);
    expect_refusal("a form's model",
                   ask(WP_ROUTE_OPAQUE, FORM,
                       "--b\r\nContent-Disposition: form-data; name=model\r\n\r\nx\r\n--b--"),
                   404, "model_not_found", "model");
    worker(W2, false);
    expect_refusal("two", ask(WP_ROUTE_COMPLETIONS, NULL, "{\"prompt\":\"x\"}"), 400,
                   "missing_model", "model");
    tear_down();
}

static void trusted_clients_may_steer(void)
{
    static const char *const set[] = {"listen.trust_client_routing=true"};

    set_up(set, 1);
    worker(W1, true);
    expect_refusal("trusted",
                   ask(WP_ROUTE_PLAIN, NULL, "{\"model\":\"test-model\",\"routed_dp_rank\":1}"), 0,
                   NULL, NULL);
    tear_down();
}

static void tokens_are_counted_or_estimated(void)
{
    set_up(NULL, 0);
    worker(W1, true);
    ask(WP_ROUTE_COMPLETIONS, NULL, "{\"model\":\"test-model\",\"prompt\":[1,2,3]}");
    EXPECT_UINT("counted", 3, asked.tokens);
    ask(WP_ROUTE_COMPLETIONS, NULL, "{\"model\":\"test-model\",\"prompt\":\"0123456789\"}");
    EXPECT_UINT("at four bytes each", 3, asked.tokens);
    ask(WP_ROUTE_COMPLETIONS, NULL, "{\"model\":\"test-model\",\"prompt\":[\"abc\",\"abc\"]}");
    EXPECT_TRUE("several prompts by the body", asked.tokens > 5);
    wp_fleet_learn_tokens(fleet, WP_STR("test-model"), 2000, 1000);
    ask(WP_ROUTE_COMPLETIONS, NULL, "{\"model\":\"test-model\",\"prompt\":\"0123456789\"}");
    EXPECT_UINT("as learnt", 6, asked.tokens);
    tear_down();
}

static void salt_and_adapter_make_other_blocks(void)
{
    static const char *const bodies[] = {
        "{\"model\":\"test-model\",\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
        "{\"model\":\"test-model\",\"cache_salt\":\"a\",\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,"
        "14,15,16,17]}",
        "{\"model\":\"test-model\",\"cache_salt\":\"b\",\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,"
        "14,15,16,17]}",
    };
    uint64_t first[3] = {0};

    set_up(NULL, 0);
    worker(W1, true);
    for (int i = 0; i < 3; i++) {
        ask(WP_ROUTE_COMPLETIONS, NULL, bodies[i]);
        EXPECT_TRUE("one block", asked.prompt.n_sets == 1 && asked.prompt.set[0].n == 1);
        if (asked.prompt.n_sets)
            first[i] = asked.prompt.set[0].local[0];
    }
    EXPECT_TRUE("all differ", first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    tear_down();
}

static void a_session_key_is_the_first_there_is(void)
{
    struct wp_head h = {.field = {{WP_STR("X-SMG-Routing-Key"), WP_STR("c")},
                                  {WP_STR("X-Session-Id"), WP_STR("b")},
                                  {WP_STR("X-Warmpath-Session"), WP_STR("a")}},
                        .n_fields = 3};
    static const char *const names[] = {"a", "b", "c"};
    struct wp_body body, none = {0};
    struct wp_err err;

    EXPECT_INT("read", 0,
               wp_body_read(&body, WP_STR("{\"prompt_cache_key\":\"d\",\"user\":\"e\"}"), &err));
    for (size_t n = 3; n > 0; n--) {
        h.n_fields = n;
        EXPECT_UINT("fields in order", wp_hash_item(wp_str_of(names[3 - n])),
                    wp_session_key(&h, &body));
    }
    h.n_fields = 0;
    EXPECT_UINT("then the cache key", wp_hash_item(WP_STR("d")), wp_session_key(&h, &body));
    EXPECT_INT("read", 0,
               wp_body_read(&body, WP_STR("{\"prompt_cache_key\":\"\",\"user\":\"e\"}"), &err));
    EXPECT_UINT("then the user", wp_hash_item(WP_STR("e")), wp_session_key(&h, &body));
    EXPECT_INT("read", 0,
               wp_body_read(&body, WP_STR("{\"prompt_cache_key\":null,\"user\":7}"), &err));
    EXPECT_UINT("none", 0, wp_session_key(&h, &body));
    EXPECT_UINT("none at all", 0, wp_session_key(&h, &none));
}

static void explain_guesses_the_route_by_members(void)
{
    static const struct {
        const char *body;
        enum wp_route_kind want;
    } guesses[] = {
        {"{\"messages\":[]}", WP_ROUTE_CHAT},
        {"{\"prompt\":\"\"}", WP_ROUTE_COMPLETIONS},
        {"{\"input\":\"\"}", WP_ROUTE_RESPONSES},
        {"{\"input_ids\":[]}", WP_ROUTE_GENERATE},
        {"{\"text\":\"\"}", WP_ROUTE_GENERATE},
        {"{}", WP_ROUTE_PLAIN},
        {"[", WP_ROUTE_PLAIN},
    };

    for (size_t i = 0; i < sizeof guesses / sizeof guesses[0]; i++)
        EXPECT_INT(guesses[i].body, guesses[i].want, wp_ask_guess(wp_str_of(guesses[i].body)));
}

static void no_allocation_that_fails_is_taken_for_the_clients_fault(void)
{
    bool hit = true;

    set_up(NULL, 0);
    worker(W1, true);
    for (long nth = 0; hit; nth++) {
        int rc;

        wp_mem_fail_after(nth);
        rc =
            ask(WP_ROUTE_CHAT, NULL,
                "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (rc < 0)
            EXPECT_INT("ours", 503, no.status);
        else
            EXPECT_TEXT("its model", "test-model", asked.model.name);
        wp_arena_fini(&arena);
    }
    tear_down();
}

/* A million words for a model that takes 100 tokens; ids are counted, whatever they come to. */
static void an_estimate_is_no_longer_than_the_model_takes(void)
{
    static const char *const kinds[] = {"\"prompt\":\"", "\"messages\":[{\"role\":\"user\",\"content\":\""};
    static const char *const ends[] = {"\"}", "\"}]}"};
    struct wp_buf b = {0};

    set_up(NULL, 0);
    worker("{\"url\":\"http://127.0.0.1:1\",\"id\":\"w1\",\"models\":[\"test-model\"],\"max_model_len\":100}", true);
    for (int i = 0; i < 2; i++) {
        b.n = 0;
        wp_buf_printf(&b, "{\"model\":\"test-model\",%s", kinds[i]);
        for (int k = 0; k < 1000; k++)
            wp_buf_adds(&b, "word ");
        wp_buf_adds(&b, ends[i]);
        wp_buf_add(&b, "", 1);
        EXPECT_INT("taken", 0, ask(i ? WP_ROUTE_CHAT : WP_ROUTE_COMPLETIONS, NULL, b.p));
        EXPECT_UINT("as much as it takes", 100, asked.tokens);
    }
    b.n = 0;
    wp_buf_adds(&b, "{\"model\":\"test-model\",\"prompt\":[1");
    for (int k = 0; k < 119; k++)
        wp_buf_adds(&b, ",2");
    wp_buf_adds(&b, "]}");
    wp_buf_add(&b, "", 1);
    EXPECT_INT("taken", 0, ask(WP_ROUTE_COMPLETIONS, NULL, b.p));
    EXPECT_UINT("counted", 120, asked.tokens);
    wp_buf_fini(&b);
    tear_down();
}

const struct wp_suite suite_ask = {
    "ask",
    (const struct wp_test[]){
        {"each body is taken, or refused with its reason",
         each_body_is_taken_or_refused_with_its_reason},
        {"one model needs no name", one_model_needs_no_name},
        {"trusted clients may steer", trusted_clients_may_steer},
        {"tokens are counted or estimated", tokens_are_counted_or_estimated},
        {"an estimate is no longer than the model takes",
         an_estimate_is_no_longer_than_the_model_takes},
        {"salt and adapter make other blocks", salt_and_adapter_make_other_blocks},
        {"a session key is the first there is", a_session_key_is_the_first_there_is},
        {"explain guesses the route by members", explain_guesses_the_route_by_members},
        {"no allocation that fails is taken for the client's fault",
         no_allocation_that_fails_is_taken_for_the_clients_fault},
        {NULL, NULL},
    },
};
