/* SPDX-License-Identifier: Apache-2.0 */
#include "router/prompt.h"

#include "index/identity.h"
#include "tests/lib/test.h"

static struct wp_arena arena;
static struct wp_body body;
static struct wp_prompt prompt;
static const char *param;

static int read_as(enum wp_route_kind kind, const char *text)
{
    struct wp_err err = WP_ERR_INIT;

    prompt = (struct wp_prompt){0};
    param = NULL;
    EXPECT_INT(text, 0, wp_body_read(&body, wp_str_of(text), &err));
    return wp_prompt_read(&prompt, kind, &body, &arena, &param, &err);
}

/* ---- what is a prompt ---- */

/* clang-format off */
static const struct form_case {
    enum wp_route_kind kind;
    const char *body;
    int rc;
    enum wp_prompt_kind want;
    size_t n; /* tokens, or bytes when not 0 */
    const char *param;
} forms[] = {
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":\"abc\"}", 0, WP_PROMPT_BYTES, 3, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":\"\"}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[1,2, 3]}", 0, WP_PROMPT_TOKENS, 3, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[0]}", 0, WP_PROMPT_TOKENS, 1, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[4294967295]}", 0, WP_PROMPT_TOKENS, 1, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[4294967296]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[1.5]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[-1]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[1,\"a\"]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[\"abc\"]}", 0, WP_PROMPT_BYTES, 3, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[[7,8]]}", 0, WP_PROMPT_TOKENS, 2, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[[1],[2]]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[{\"a\":1}]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":[[]]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":null}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":7}", WP_EINVAL, WP_PROMPT_NONE, 0, "prompt"},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":{}}", WP_EINVAL, WP_PROMPT_NONE, 0, "prompt"},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":\"a\",\"prompt\":[5]}", 0, WP_PROMPT_TOKENS, 1, NULL}, /* the last one counts */
    {WP_ROUTE_COMPLETIONS, "{\"pro\\u006dpt\":[5,6]}", 0, WP_PROMPT_TOKENS, 2, NULL},
    {WP_ROUTE_COMPLETIONS, "{\"prompt\":\"\\ud800\"}", 0, WP_PROMPT_BYTES, 6, NULL}, /* a lone surrogate stands as written */
    {WP_ROUTE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 0, WP_PROMPT_BYTES, 0, NULL},
    {WP_ROUTE_CHAT, "{\"messages\":[\"odd\"]}", 0, WP_PROMPT_BYTES, 0, NULL},
    {WP_ROUTE_CHAT, "{\"messages\":[]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_CHAT, "{\"messages\":null}", WP_EINVAL, WP_PROMPT_NONE, 0, "messages"},
    {WP_ROUTE_CHAT, "{\"messages\":\"hi\"}", WP_EINVAL, WP_PROMPT_NONE, 0, "messages"},
    {WP_ROUTE_CHAT, "{\"prompt\":\"hi\"}", WP_EINVAL, WP_PROMPT_NONE, 0, "messages"},
    {WP_ROUTE_MESSAGES, "{\"system\":\"s\",\"messages\":[{\"role\":\"user\"}]}", 0, WP_PROMPT_BYTES, 0, NULL},
    {WP_ROUTE_MESSAGES, "{\"system\":\"s\"}", WP_EINVAL, WP_PROMPT_NONE, 0, "messages"},
    {WP_ROUTE_RESPONSES, "{\"input\":\"hi\"}", 0, WP_PROMPT_BYTES, 0, NULL},
    {WP_ROUTE_RESPONSES, "{\"input\":[{\"role\":\"user\"}]}", 0, WP_PROMPT_BYTES, 0, NULL},
    {WP_ROUTE_RESPONSES, "{\"instructions\":\"be\"}", 0, WP_PROMPT_BYTES, 0, NULL},
    {WP_ROUTE_RESPONSES, "{}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_RESPONSES, "{\"input\":7}", WP_EINVAL, WP_PROMPT_NONE, 0, "input"},
    {WP_ROUTE_GENERATE, "{\"text\":\"abc\"}", 0, WP_PROMPT_BYTES, 3, NULL},
    {WP_ROUTE_GENERATE, "{\"input_ids\":[1,2],\"text\":\"abc\"}", 0, WP_PROMPT_TOKENS, 2, NULL},
    {WP_ROUTE_GENERATE, "{\"input_ids\":[[1,2]]}", 0, WP_PROMPT_TOKENS, 2, NULL},
    {WP_ROUTE_GENERATE, "{\"input_ids\":[[1],[2]]}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_GENERATE, "{}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_PLAIN, "{\"input\":\"text\"}", 0, WP_PROMPT_NONE, 0, NULL},
    {WP_ROUTE_OPAQUE, "{\"prompt\":\"text\"}", 0, WP_PROMPT_NONE, 0, NULL},
};
/* clang-format on */

static void every_form_of_a_prompt_is_known_or_none(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form_case *c = &forms[i];

        EXPECT_INT(c->body, c->rc, read_as(c->kind, c->body));
        EXPECT_INT(c->body, c->want, prompt.kind);
        if (c->n)
            EXPECT_UINT(c->body, c->n,
                        c->want == WP_PROMPT_TOKENS ? prompt.n_token : prompt.bytes.n);
        EXPECT_TEXT(c->body, c->param ? c->param : "", wp_str_of(param ? param : ""));
        EXPECT_INT(c->body, prompt.kind == WP_PROMPT_BYTES, prompt.bytes.n > 0);
        wp_arena_fini(&arena);
    }
}

static void what_steers_an_engine_is_named(void)
{
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"{}", NULL},
        {"{\"kv_transfer_params\":null,\"routed_dp_rank\":null}", NULL},
        {"{\"kv_transfer_params\":{}}", "kv_transfer_params"},
        {"{\"kv_transfer_params\":null,\"kv_transfer_p\\u0061rams\":{\"a\":1}}",
         "kv_transfer_params"},
        {"{\"bootstrap_host\":\"x\"}", "bootstrap_host"},
        {"{\"bootstrap_port\":1}", "bootstrap_port"},
        {"{\"bootstrap_room\":[1]}", "bootstrap_room"},
        {"{\"routed_dp_rank\":0}", "routed_dp_rank"},
        {"{\"data_parallel_rank\":0}", "data_parallel_rank"},
        {"{\"x\":{\"routed_dp_rank\":0}}", NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got;

        read_as(WP_ROUTE_PLAIN, cases[i].body);
        got = wp_body_steers(&body);
        EXPECT_TEXT(cases[i].body, cases[i].want ? cases[i].want : "", wp_str_of(got ? got : ""));
    }
}

static void max_tokens_is_the_most_specific_one(void)
{
    static const struct {
        const char *body;
        uint32_t want;
    } cases[] = {
        {"{}", 0},
        {"{\"max_tokens\":null}", 0},
        {"{\"max_tokens\":5}", 5},
        {"{\"max_tokens\":5.0}", 5},
        {"{\"max_tokens\":5,\"max_completion_tokens\":7}", 7},
        {"{\"max_tokens\":5,\"max_completion_tokens\":null}", 5},
        {"{\"max_output_tokens\":9}", 9},
        {"{\"max_tokens\":-1}", 0},
        {"{\"max_tokens\":\"5\"}", 0},
        {"{\"max_tokens\":4294967295}", 4294967295u},
        {"{\"max_tokens\":4294967296}", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_as(WP_ROUTE_PLAIN, cases[i].body);
        EXPECT_UINT(cases[i].body, cases[i].want, wp_body_max_tokens(&body));
    }
}

/* ---- canonical bytes ---- */

static char *bytes_of(enum wp_route_kind kind, const char *text, size_t *n)
{
    char *p;

    EXPECT_INT(text, 0, read_as(kind, text));
    p = wp_strndup(prompt.bytes.p, prompt.bytes.n);
    *n = prompt.bytes.n;
    wp_arena_fini(&arena);
    return p;
}

static void expect_same(const char *label, enum wp_route_kind kind, const char *a, const char *b,
                        bool want)
{
    size_t na, nb;
    char *pa = bytes_of(kind, a, &na), *pb = bytes_of(kind, b, &nb);

    EXPECT_INT(label, want, na == nb && memcmp(pa, pb, na) == 0);
    wp_free(pa);
    wp_free(pb);
}

/* clang-format off */
static const struct {
    const char *label, *a, *b;
    bool same;
} pairs[] = {
    {"blanks", "{\"messages\":[{\"role\":\"user\",\"content\":\"a b\"}]}", "{ \"messages\" : [ { \"role\" :\t\"user\",\n\"content\": \"a b\" } ] }", true},
    {"other members", "{\"messages\":[{\"r\":1}],\"temperature\":0.1}", "{\"max_tokens\":9,\"messages\":[{\"r\":1}],\"seed\":4}", true},
    {"order of members at the top", "{\"tools\":[{\"a\":1}],\"messages\":[{\"r\":1}]}", "{\"messages\":[{\"r\":1}],\"tools\":[{\"a\":1}]}", true},
    {"duplicates: the last one counts", "{\"messages\":[{\"r\":2}],\"messages\":[{\"r\":1}]}", "{\"messages\":[{\"r\":1}]}", true},
    {"escaped key at the top", "{\"m\\u0065ssages\":[{\"r\":1}]}", "{\"messages\":[{\"r\":1}]}", true},
    {"null is absent", "{\"messages\":[{\"r\":1}],\"tools\":null}", "{\"messages\":[{\"r\":1}]}", true},
    {"the cache mark is no part of the prompt", "{\"messages\":[{\"r\":1,\"cache_control\":{\"type\":\"ephemeral\"}}]}", "{\"messages\":[{\"r\":1}]}", true},
    {"text", "{\"messages\":[{\"content\":\"a b\"}]}", "{\"messages\":[{\"content\":\"a  b\"}]}", false},
    {"tools", "{\"messages\":[{\"r\":1}],\"tools\":[{\"a\":1}]}", "{\"messages\":[{\"r\":1}],\"tools\":[{\"a\":2}]}", false},
    {"template", "{\"messages\":[{\"r\":1}],\"chat_template\":\"x\"}", "{\"messages\":[{\"r\":1}],\"chat_template\":\"y\"}", false},
    {"which member it is", "{\"messages\":[{\"r\":1}],\"tools\":[\"x\"]}", "{\"messages\":[{\"r\":1}],\"documents\":[\"x\"]}", false},
    {"nested lists are told apart", "{\"messages\":[[1],2]}", "{\"messages\":[[1,2]]}", false},
    {"objects and lists are told apart", "{\"messages\":[{\"a\":{\"b\":\"c\"}}]}", "{\"messages\":[{\"a\":\"b\",\"c\":1}]}", false},
    {"lone surrogates are told apart", "{\"messages\":[{\"c\":\"\\ud800\"}]}", "{\"messages\":[{\"c\":\"\\ud801\"}]}", false},
};
/* clang-format on */

static void canonical_bytes_say_what_the_template_sees(void)
{
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        expect_same(pairs[i].label, WP_ROUTE_CHAT, pairs[i].a, pairs[i].b, pairs[i].same);
}

/* A message just below and above every size around a kilobyte, laid out with blanks and without. */
static void layout_changes_nothing_at_any_size(void)
{
    char text[1200], tight[2048], loose[2048];

    for (int n = 900; n < 1100; n++) {
        memset(text, 'x', (size_t)n);
        text[n] = 0;
        snprintf(tight, sizeof tight, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                 text);
        snprintf(loose, sizeof loose,
                 "{\"messages\": [ {\"role\" : \"user\" ,   \"content\" :  \"%s\"  } ]}", text);
        expect_same("layout", WP_ROUTE_CHAT, tight, loose, true);
    }
}

static void build(struct wp_buf *b, enum wp_route_kind kind, int turns)
{
    const char *list = kind == WP_ROUTE_RESPONSES ? "input" : "messages";

    b->n = 0;
    wp_buf_printf(b, "{\"model\":\"m\",\"%s\":\"be good\",\"%s\":[",
                  kind == WP_ROUTE_RESPONSES ? "instructions" : "system", list);
    for (int i = 0; i < turns; i++) {
        bool last = i == turns - 1;

        wp_buf_printf(b, "%s{\"role\":\"%s\",\"content\":[{\"type\":\"text\",\"text\":\"",
                      i ? "," : "", i % 2 ? "assistant" : "user");
        for (int k = 0; k < 20 + 19 * i;
             k++) /* 380 bytes to 4 KiB: some objects on each side of a kilobyte */
            wp_buf_printf(b, "turn %d word %d ", i, k);
        wp_buf_printf(b, "\"%s}]}", last ? ",\"cache_control\":{\"type\":\"ephemeral\"}" : "");
    }
    wp_buf_adds(b, "],\"tools\":[{\"name\":\"f\"}]}");
    wp_buf_add(b, "", 1);
}

static void a_conversation_that_grows_keeps_its_prefix(void)
{
    static const enum wp_route_kind kinds[] = {WP_ROUTE_CHAT, WP_ROUTE_MESSAGES,
                                               WP_ROUTE_RESPONSES};

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct wp_buf text = {0};
        char *was = NULL;
        size_t was_n = 0;

        for (int turns = 1; turns < 14; turns++) {
            size_t n;
            char *is;

            build(&text, kinds[k], turns);
            is = bytes_of(kinds[k], text.p, &n);
            EXPECT_TRUE("it grows", n > was_n);
            EXPECT_TRUE("behind what was there", !was || memcmp(was, is, was_n) == 0);
            wp_free(was);
            was = is;
            was_n = n;
        }
        wp_free(was);
        wp_buf_fini(&text);
    }
}

static void the_cases_share_what_they_should(void)
{
    static const struct {
        const char *a, *b;
        enum wp_route_kind kind;
        bool prefix; /* the first one's messages are the start of the second one's */
    } cases[] = {
        {"cases/json/B218-turn1.json", "cases/json/B218-turn2-kept.json", WP_ROUTE_CHAT, true},
        {"cases/json/B129.json", "cases/json/B129.json", WP_ROUTE_CHAT, true},
        {"cases/json/B216-turn1.json", "cases/json/B216-turn2.json", WP_ROUTE_MESSAGES, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n, na, nb;
        char *a = wp_test_data(cases[i].a, &n), *b = wp_test_data(cases[i].b, &n);
        char *pa = bytes_of(cases[i].kind, a, &na), *pb = bytes_of(cases[i].kind, b, &nb);

        EXPECT_INT(cases[i].b, cases[i].prefix, na <= nb && memcmp(pa, pb, na) == 0);
        wp_free(a);
        wp_free(b);
        wp_free(pa);
        wp_free(pb);
    }
}

static void bulk_data_is_a_few_blocks_and_still_told_apart(void)
{
    static const char *const forms_of_it[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{"
        "\"url\":\"data:image/png;base64,%s\"}}]}]}",
        "{\"messages\":[{\"content\":[{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"%s\","
        "\"format\":\"wav\"}}]}]}",
        "{\"messages\":[{\"content\":[{\"type\":\"file\",\"file\":{\"file_data\":\"%s\"}}]}]}",
        "{\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":"
        "\"%s\"}}]}]}",
        "{\"messages\":[{\"content\":[{\"type\":\"tool_result\",\"content\":[{\"source\":{"
        "\"d\\u0061ta\":\"%s\"}}]}]}]}",
        "{\"messages\":[{\"images\":[\"data:x;base64,%s\"]}]}",
        "{\"messages\":[{\"content\":\"data:x;base64,%s\"}]}",
    };
    enum { N = 10 << 20 };
    char *data = wp_malloc(N + 1), *text = wp_malloc(N + 1024);

    for (size_t i = 0; i < sizeof forms_of_it / sizeof forms_of_it[0]; i++) {
        size_t n, was_n;
        char *was, *is;

        memset(data, 'A', N);
        data[N] = 0;
        snprintf(text, N + 1024, forms_of_it[i], data); /* NOLINT: the forms are ours */
        was = bytes_of(WP_ROUTE_CHAT, text, &was_n);
        EXPECT_TRUE(forms_of_it[i], was_n < 512);
        data[N / 2] = 'B';
        snprintf(text, N + 1024, forms_of_it[i], data); /* NOLINT */
        is = bytes_of(WP_ROUTE_CHAT, text, &n);
        EXPECT_TRUE("another image", n == was_n && memcmp(was, is, n) != 0);
        wp_free(was);
        wp_free(is);
    }
    wp_free(data);
    wp_free(text);
}

static void a_deep_text_is_read_in_time(void)
{
    struct wp_buf b = {0};
    size_t n;
    char *p;

    wp_buf_adds(&b, "{\"messages\":");
    for (int i = 0; i < WP_JSON_DEPTH - 2; i++)
        wp_buf_adds(&b, i % 2 ? "{\"a\":" : "[");
    wp_buf_adds(&b, "1");
    for (int i = WP_JSON_DEPTH - 3; i >= 0; i--)
        wp_buf_adds(&b, i % 2 ? "}" : "]");
    wp_buf_adds(&b, "}");
    wp_buf_add(&b, "", 1);
    p = bytes_of(WP_ROUTE_CHAT, b.p, &n);
    EXPECT_TRUE("whole", n > WP_JSON_DEPTH * 2);
    wp_free(p);
    wp_buf_fini(&b);
}

/* ---- hashes ---- */

static void hashes_follow_tokens_model_salt_and_adapter(void)
{
    static const struct {
        const char *label, *lora, *salt;
    } cases[] = {
        {"plain", NULL, NULL}, {"adapter", "sql", NULL}, {"salt", NULL, "s"}, {"both", "sql", "s"}};
    uint64_t first[4], chain[4];

    for (size_t i = 0; i < 4; i++) {
        const struct wp_hashes *h;
        uint32_t token[] = {1, 2, 3, 4};
        uint64_t want;

        read_as(WP_ROUTE_COMPLETIONS, "{\"prompt\":[1,2,3,4,5,6,7,8,9]}");
        h = wp_prompt_hashes(&prompt, 4, wp_str_of(cases[i].lora), wp_str_of(cases[i].salt),
                             &arena);
        EXPECT_TRUE(cases[i].label, h && h->n == 2 && h->block_size == 4);
        if (!h)
            continue;
        wp_hash_tokens(token, 4, 4,
                       wp_hash_seed(wp_str_of(cases[i].lora), wp_str_of(cases[i].salt)), &want, 1);
        EXPECT_UINT(cases[i].label, want, h->local[0]);
        EXPECT_UINT("a chain begins with its first block", h->local[0], h->chain[0]);
        EXPECT_UINT("and goes on", wp_hash_next(h->chain[0], h->local[1]), h->chain[1]);
        EXPECT_TRUE("the same again", wp_prompt_hashes(&prompt, 4, wp_str_of(cases[i].lora),
                                                       wp_str_of(cases[i].salt), &arena) == h);
        first[i] = h->local[0];
        chain[i] = h->chain[1];
        for (size_t k = 0; k < i; k++)
            EXPECT_TRUE("all differ", first[k] != first[i] && chain[k] != chain[i]);
        wp_arena_fini(&arena);
    }
}

static void each_block_size_has_a_set_of_its_own_up_to_four(void)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5};
    const struct wp_str none = {0};

    read_as(WP_ROUTE_COMPLETIONS, "{\"prompt\":[1,2,3,4,5,6,7]}");
    for (size_t i = 0; i < 5; i++) {
        const struct wp_hashes *h = wp_prompt_hashes(&prompt, sizes[i], none, none, &arena);

        EXPECT_INT("room for four", i < 4, h != NULL);
        if (h)
            EXPECT_UINT("whole blocks", 7 / sizes[i], h->n);
    }
    EXPECT_TRUE("no block size, no blocks",
                wp_prompt_hashes(&prompt, 0, none, none, &arena) == NULL);
    wp_arena_fini(&arena);
    read_as(WP_ROUTE_COMPLETIONS,
            "{\"prompt\":\"0123456789012345678901234567890123456789012345678901234567890123x\"}");
    for (size_t i = 0; i < 5; i++) {
        const struct wp_hashes *h = wp_prompt_hashes(&prompt, sizes[i], none, none, &arena);

        EXPECT_TRUE("bytes have chunks for any", h && h->block_size == WP_CHUNK_BYTES && h->n == 1);
    }
    EXPECT_UINT("one set", 1, prompt.n_sets);
    wp_arena_fini(&arena);
    read_as(WP_ROUTE_PLAIN, "{}");
    EXPECT_TRUE("no prompt, no hashes", wp_prompt_hashes(&prompt, 16, none, none, &arena) == NULL);
    read_as(WP_ROUTE_COMPLETIONS, "{\"prompt\":[1,2]}");
    EXPECT_TRUE("shorter than a block",
                wp_prompt_hashes(&prompt, 16, none, none, &arena) == NULL || prompt.set[0].n == 0);
    wp_arena_fini(&arena);
}

static void blocks_are_bounded(void)
{
    size_t n = ((size_t)WP_PROMPT_BLOCKS_MAX + 5) * WP_CHUNK_BYTES;
    char *text = wp_malloc(n + 32);
    const struct wp_hashes *h;
    size_t at = (size_t)snprintf(text, 32, "{\"prompt\":\"");

    memset(text + at, 'x', n);
    memcpy(text + at + n, "\"}", 3);
    read_as(WP_ROUTE_COMPLETIONS, text);
    EXPECT_UINT("all of it is the prompt", n, prompt.bytes.n);
    h = wp_prompt_hashes(&prompt, 16, (struct wp_str){0}, (struct wp_str){0}, &arena);
    EXPECT_TRUE("bounded", h && h->n == WP_PROMPT_BLOCKS_MAX);
    wp_arena_fini(&arena);
    wp_free(text);
}

static void no_allocation_that_fails_leaks_or_lies(void)
{
    static const struct {
        enum wp_route_kind kind;
        const char *text;
    } cases[] = {
        {WP_ROUTE_CHAT, "{\"tools\":[1],\"messages\":[{\"a\":"
                        "\"0123456789012345678901234567890123456789012345678901234567890123\"}]}"},
        {WP_ROUTE_COMPLETIONS, "{\"prompt\":[1,2,3,4,5]}"}};

    for (size_t i = 0; i < 2; i++) {
        long live = wp_mem_live();
        bool hit = true;

        for (long nth = 0; hit; nth++) {
            const struct wp_hashes *h = NULL;
            int rc;

            wp_mem_fail_after(nth);
            rc = read_as(cases[i].kind, cases[i].text);
            if (rc == 0)
                h = wp_prompt_hashes(&prompt, 2, (struct wp_str){0}, (struct wp_str){0}, &arena);
            hit = wp_mem_failed();
            wp_mem_fail_after(-1);
            EXPECT_TRUE("told", hit ? rc == WP_ENOMEM || !h : rc == 0 && h);
            wp_arena_fini(&arena);
            EXPECT_INT("nothing leaks", live, wp_mem_live());
        }
    }
}

const struct wp_suite suite_prompt = {
    "prompt",
    (const struct wp_test[]){
        {"every form of a prompt is known, or none", every_form_of_a_prompt_is_known_or_none},
        {"what steers an engine is named", what_steers_an_engine_is_named},
        {"max_tokens is the most specific one", max_tokens_is_the_most_specific_one},
        {"canonical bytes say what the template sees", canonical_bytes_say_what_the_template_sees},
        {"layout changes nothing at any size", layout_changes_nothing_at_any_size},
        {"a conversation that grows keeps its prefix", a_conversation_that_grows_keeps_its_prefix},
        {"the cases share what they should", the_cases_share_what_they_should},
        {"bulk data is a few blocks, and still told apart",
         bulk_data_is_a_few_blocks_and_still_told_apart},
        {"a deep text is read in time", a_deep_text_is_read_in_time},
        {"hashes follow tokens, model, salt and adapter",
         hashes_follow_tokens_model_salt_and_adapter},
        {"each block size has a set of its own, up to four",
         each_block_size_has_a_set_of_its_own_up_to_four},
        {"blocks are bounded", blocks_are_bounded},
        {"no allocation that fails leaks or lies", no_allocation_that_fails_leaks_or_lies},
        {NULL, NULL},
    },
};
