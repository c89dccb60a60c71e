/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated engine's reading of requests: what it takes, and that it refuses as vLLM refuses.
 */
#include "sim/openai.h"

#include "sim/text.h"
#include "tests/lib/shape.h"
#include "tests/lib/test.h"

static const struct wp_oai_limits limits = {.model = "tiny", .max_model_len = 2048};

static int ask(const char *path, struct wp_str type, struct wp_str body, struct wp_oai_req *r,
               struct wp_buf *answer)
{
    if (strcmp(path, "/v1/completions") == 0)
        return wp_oai_completion(r, &limits, type, body, answer);
    if (strcmp(path, "/v1/chat/completions") == 0)
        return wp_oai_chat(r, &limits, type, body, answer);
    if (strcmp(path, "/tokenize") == 0)
        return wp_oai_tokenize(&limits, type, body, answer);
    if (strcmp(path, "/detokenize") == 0)
        return wp_oai_detokenize(&limits, type, body, answer);
    return -1;
}

/* One refusal of the capture: status, type, param and code must be the same; most messages too. */
static void same_refusal(const char *name, int status, const char *want, struct wp_str got)
{
    static const char *const own_words[] = {"role_missing", "prompt_negative", NULL};
    json_t *a = json_loads(want, 0, NULL), *b = json_loadb(got.p ? got.p : "", got.n, 0, NULL);
    static const char *const members[] = {"type", "param", "code", "message"};
    bool own = false;

    for (size_t i = 0; own_words[i]; i++)
        own |= strcmp(name, own_words[i]) == 0;
    for (size_t i = 0; i < 4; i++) {
        const json_t *x = json_object_get(json_object_get(a, "error"), members[i]);
        const json_t *y = json_object_get(json_object_get(b, "error"), members[i]);

        if (own && (i == 1 || i == 3)) {
            EXPECT_TRUE(name, y && json_typeof(x) == json_typeof(y));
        } else if (!y || !json_equal(x, y)) {
            EXPECT_TEXT(name, want, got);
            break;
        }
    }
    (void)status;
    json_decref(a);
    json_decref(b);
}

static void play(const json_t *entry)
{
    const json_t *request = json_object_get(entry, "request");
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *path = json_string_value(json_object_get(request, "path"));
    const json_t *type = json_object_get(json_object_get(request, "headers"), "Content-Type");
    int want = (int)json_integer_value(json_object_get(entry, "status")), got;
    struct wp_oai_req r = {0};
    struct wp_buf answer = {0};
    size_t n;
    char *body = wp_captured_body(request, &n);

    got = ask(path, type ? wp_str_of(json_string_value(type)) : WP_STR("application/json"),
              (struct wp_str){body, n}, &r, &answer);
    if (strstr(path, "tokenize"))
        EXPECT_INT(name, want, got);
    else if (strcmp(name, "dp_rank_header_5") != 0) /* a header's fault: sim/engine.c */
        EXPECT_INT(name, want == 200 ? 0 : want, got);
    if (want != 200 && got == want)
        same_refusal(name, want, json_string_value(json_object_get(entry, "body")),
                     wp_buf_str(&answer));
    wp_oai_fini(&r);
    wp_buf_fini(&answer);
    wp_free(body);
}

static void refuses_what_vllm_refuses(void)
{
    size_t n, i, played = 0;
    char *text = wp_test_data("spec/real/vllm_0.32.0_http.json", &n);
    json_t *all = text ? json_loadb(text, n, 0, NULL) : NULL, *entry;

    json_array_foreach(all, i, entry)
    {
        const json_t *request = json_object_get(entry, "request");
        const char *path = json_string_value(json_object_get(request, "path"));

        if (strcmp(json_string_value(json_object_get(request, "method")), "POST") == 0 &&
            (strcmp(path, "/v1/completions") == 0 || strcmp(path, "/v1/chat/completions") == 0 ||
             strstr(path, "tokenize"))) {
            play(entry);
            played++;
        }
    }
    EXPECT_TRUE("the capture has such requests", played > 60);
    json_decref(all);
    wp_free(text);
}

/* clang-format off */
static const struct {
    const char *label, *path, *body;
    int want;
    const char *message; /* a part of it */
} odd_cases[] = {
    {"lax integer", "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":\"7\"}", 0, NULL},
    {"integer as 7.0", "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":7.0}", 0, NULL},
    {"integer as 7.5", "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":7.5}", 400, "fractional part"},
    {"null is absent", "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":null,\"n\":null,\"stream\":null}", 0, NULL},
    {"no prompt", "/v1/completions", "{\"model\":\"tiny\"}", 400, "must be provided"},
    {"prompt is a number", "/v1/completions", "{\"prompt\":7}", 400, "list_type"},
    {"prompt has a hole", "/v1/completions", "{\"prompt\":[[1],[]]}", 400, "cannot be empty"},
    {"prompts of two kinds", "/v1/completions", "{\"prompt\":[\"a\",[1]]}", 400, "string_type"},
    {"an id past 2^32", "/v1/completions", "{\"prompt\":[1,99999999999]}", 400, "Token id 99999999999 is out"},
    {"an id just too big", "/v1/completions", "{\"prompt\":[151936]}", 400, "Token id 151936 is out"},
    {"the greatest id", "/v1/completions", "{\"prompt\":[151935]}", 0, NULL},
    {"model written with an escape", "/v1/completions", "{\"mod\\u0065l\":\"nope\",\"prompt\":\"x\"}", 404, "`nope`"},
    {"the last model counts", "/v1/completions", "{\"model\":\"nope\",\"model\":\"tiny\",\"prompt\":\"x\"}", 0, NULL},
    {"a lone surrogate", "/v1/completions", "{\"prompt\":\"\\ud800\"}", 0, NULL},
    {"a body that is null", "/v1/completions", "null", 400, "valid dictionary"},
    {"too many choices", "/v1/completions", "{\"prompt\":\"x\",\"n\":99999999}", 400, "n must be at most"},
    {"a message that is text", "/v1/chat/completions", "{\"messages\":[\"x\"]}", 400, "dict_type"},
    {"content that is a number", "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400, "string_type"},
    {"content in parts", "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}", 0, NULL},
    {"a picture", "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}", 400, "image"},
    {"both endings", "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"continue_final_message\":true}", 400, "Cannot set both"},
    {"logprobs of nothing", "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"top_logprobs\":3}", 400, "must be set"},
};
/* clang-format on */

static void judges_odd_requests(void)
{
    for (size_t i = 0; i < sizeof odd_cases / sizeof odd_cases[0]; i++) {
        struct wp_oai_req r = {0};
        struct wp_buf answer = {0};

        EXPECT_INT(odd_cases[i].label, odd_cases[i].want,
                   ask(odd_cases[i].path, WP_STR("application/json; charset=utf-8"),
                       wp_str_of(odd_cases[i].body), &r, &answer));
        if (odd_cases[i].message &&
            !memmem(answer.p, answer.n, odd_cases[i].message, strlen(odd_cases[i].message)))
            EXPECT_TEXT(odd_cases[i].label, odd_cases[i].message, wp_buf_str(&answer));
        wp_oai_fini(&r);
        wp_buf_fini(&answer);
    }
}

static void reads_what_is_asked(void)
{
    struct wp_oai_req r = {0};
    struct wp_buf answer = {0};

    EXPECT_INT(
        "taken", 0,
        wp_oai_completion(
            &r, &limits, WP_STR("application/json"),
            WP_STR(
                "{\"prompt\":[[5,6],[7,8,9]],\"max_tokens\":3000000,\"max_tokens\":2000,\"stream\":"
                "true,"
                "\"stream_options\":{\"include_usage\":true},\"temperature\":1,\"n\":2,\"seed\":-1,"
                "\"cache_salt\":\"t\\u0061\",\"request_id\":\"r1\",\"return_token_ids\":true}"),
            &answer));
    EXPECT_UINT("prompts", 2, r.n_prompts);
    EXPECT_UINT("choices", 2, r.n);
    EXPECT_UINT("second prompt", 3, r.prompt[1].n);
    EXPECT_UINT("its last id", 9, r.prompt[1].token[2]);
    EXPECT_UINT("output", 2000, r.prompt[0].output);
    EXPECT_TRUE("stream with usage and ids",
                r.stream && r.include_usage && !r.continuous_usage && r.return_ids && r.seeded);
    EXPECT_TEXT("salt", "ta", r.salt);
    EXPECT_TEXT("request id", "r1", r.request_id);
    EXPECT_INT("no logprobs", -1, r.logprobs);
    wp_oai_fini(&r);
    wp_buf_fini(&answer);
}

static void renders_a_chat(void)
{
    struct wp_oai_req r = {0};
    struct wp_buf answer = {0}, text = {0};

    EXPECT_INT("taken", 0,
               wp_oai_chat(&r, &limits, WP_STR("application/json"),
                           WP_STR("{\"messages\":[{\"role\":\"system\",\"content\":\"be "
                                  "\\u00e4\"},{\"role\":\"user\",\"content\":"
                                  "[{\"type\":\"text\",\"text\":\"hi\"}]}],\"max_tokens\":9,\"max_"
                                  "completion_tokens\":4}"),
                           &answer));
    wp_text_put_all(&text, r.prompt[0].token, r.prompt[0].n);
    EXPECT_TEXT("text",
                "<|im_start|>system\nbe "
                "\xc3\xa4<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
                wp_buf_str(&text));
    EXPECT_UINT("max_completion_tokens wins", 4, r.prompt[0].output);
    wp_oai_fini(&r);
    wp_buf_fini(&answer);
    wp_buf_fini(&text);
}

static void survives_every_lack_of_memory(void)
{
    static const struct {
        const char *path, *body;
    } asked[] = {
        {"/v1/completions",
         "{\"prompt\":[[5,6],[7]],\"cache_salt\":\"a\",\"request_id\":\"r\",\"max_tokens\":1}"},
        {"/v1/completions", "{\"prompt\":{},\"max_tokens\":\"x\"}"},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}"},
        {"/tokenize", "{\"prompt\":\"abc\",\"return_token_strs\":true}"},
        {"/detokenize", "{\"tokens\":[70,300]}"},
    };
    struct wp_oai_req r = {0};
    struct wp_buf answer = {0};
    long before = wp_mem_live();

    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++)
        for (long nth = 0;; nth++) {
            int rc;

            wp_mem_fail_after(nth);
            rc = ask(asked[i].path, WP_STR("application/json"), wp_str_of(asked[i].body), &r,
                     &answer);
            wp_oai_fini(&r);
            wp_buf_fini(&answer);
            answer = (struct wp_buf){0};
            EXPECT_INT("nothing leaks", before, wp_mem_live());
            if (!wp_mem_failed())
                break;
            EXPECT_INT(asked[i].body, WP_ENOMEM, rc);
        }
    wp_mem_fail_after(-1);
}

static void words_are_steady_and_come_back(void)
{
    struct wp_words a, b, c;
    struct wp_buf text = {0};
    uint32_t token[200], again[200];
    bool differ = false;

    wp_words_init(&a, 1, 42, 0);
    wp_words_init(&b, 1, 42, 0);
    wp_words_init(&c, 1, 42, 1);
    for (size_t i = 0; i < 200; i++) {
        token[i] = wp_words_next(&a);
        EXPECT_UINT("same seed, same words", token[i], wp_words_next(&b));
        differ |= token[i] != wp_words_next(&c);
    }
    EXPECT_TRUE("another choice says something else", differ);
    wp_text_put_all(&text, token, 200);
    EXPECT_UINT("a byte a token", 200, text.n);
    wp_text_tokens(wp_buf_str(&text), again);
    EXPECT_TRUE("its text has the same ids", memcmp(token, again, sizeof token) == 0);
    wp_buf_fini(&text);
}

static const struct wp_test tests[] = {
    {"refuses what vLLM refuses, in its words", refuses_what_vllm_refuses},
    {"judges odd requests", judges_odd_requests},
    {"reads what is asked", reads_what_is_asked},
    {"renders a chat", renders_a_chat},
    {"survives every lack of memory", survives_every_lack_of_memory},
    {"words are steady, and their text has the same ids", words_are_steady_and_come_back},
    {NULL, NULL},
};
const struct wp_suite suite_engine_openai = {"engine_openai", tests};
