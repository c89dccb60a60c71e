/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers over real sockets, against two servers that play scripts. */
#include "adapters/tokens/tokens.h"

#include "adapters/tokens/cache.h"
#include "adapters/tokens/question.h"
#include "adapters/tokens/rests.h"
#include "tests/lib/rawserver.h"
#include "tests/lib/test.h"

enum { WAITS = 30, SERVERS = 2 };

struct seen {
    struct wp_tokens_wait wait;
    unsigned told;
    enum wp_tokens_result result;
    struct wp_blob *tokens;
    int cancel;   /* this one's wait, when told; -1 none */
    bool destroy; /* the tokenizer, when told */
};

static struct rig {
    struct wp_loop l;
    struct raw_server server[SERVERS];
    size_t n_servers;
    struct wp_client *client;
    struct wp_metrics *metrics;
    struct wp_family *results;
    struct wp_series *calls;
    struct wp_tokens *t;
    struct seen seen[WAITS];
    unsigned picked, dropped, tokens_closed, client_closed;
    bool inside;
    long live;
} rig;

#define TURN_UNTIL(cond) \
    while (!(cond))      \
    uv_run(&rig.l.uv, UV_RUN_ONCE)
#define SCRIPT(...)  ((const struct raw_step[]){__VA_ARGS__, {RAW_END, NULL, 0}})
#define SCRIPTS(...) ((const struct raw_step *const[]){__VA_ARGS__})
#define ASKED              \
    {                      \
        RAW_EXPECT, "}", 0 \
    }
#define SAY(text)         \
    {                     \
        RAW_SEND, text, 0 \
    }
#define HOLD              \
    {                     \
        RAW_HOLD, NULL, 0 \
    }
#define SILENT     SCRIPT(ASKED)
#define NO(status) "HTTP/1.1 " status "\r\nContent-Length: 2\r\n\r\n{}"
#define THREE                                                                         \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 68\r\n\r\n" \
    "{\"count\":3,\"max_model_len\":2048,\"tokens\":[1,2,4294967295],\"x\":null }"

static bool pick(void *arg, struct wp_str model, const uint64_t but[], size_t n,
                 struct wp_tokens_worker *out)
{
    EXPECT_TRUE("arg", arg == &rig);
    EXPECT_TEXT("model", "tiny", model);
    for (size_t s = 0; s < rig.n_servers; s++) {
        bool free = true;

        for (size_t i = 0; i < n; i++)
            free &= but[i] != 100 + s;
        if (!free)
            continue;
        *out = (struct wp_tokens_worker){.host = WP_STR("127.0.0.1"),
                                         .port = rig.server[s].port,
                                         .base = s ? WP_STR("/base") : WP_STR(""),
                                         .bearer = s ? WP_STR("key") : WP_STR(""),
                                         .key = 100 + s,
                                         .who = &rig.server[s]};
        rig.picked++;
        return true;
    }
    return false;
}

static void drop(void *arg, void *who)
{
    EXPECT_TRUE("arg", arg == &rig);
    EXPECT_TRUE("who", who == &rig.server[0] || who == &rig.server[1]);
    rig.dropped++;
}

static void on_closed(void *arg)
{
    EXPECT_TRUE("not inside a call", !rig.inside);
    ++*(unsigned *)arg;
}

static void destroy(void)
{
    rig.inside = true;
    wp_tokens_destroy(rig.t, on_closed, &rig.tokens_closed);
    rig.inside = false;
    rig.t = NULL;
}

static const struct wp_tokens_conf defaults = {
    .limit_us = 60000000, .hedge_us = 60000000, .cache_bytes = 1 << 20, .secret = 7};

static int create(const char *kind, const struct wp_tokens_conf *conf)
{
    struct wp_tokens_conf c = *conf;
    struct wp_err err = WP_ERR_INIT;

    c.client = rig.client;
    c.pick = pick;
    c.drop = drop;
    c.arg = &rig;
    c.results = rig.results;
    c.calls = rig.calls;
    return wp_tokens_create(&rig.t, kind, &c, &err);
}

static void set_up(const struct wp_tokens_conf *conf, const struct raw_step *const first[],
                   size_t n_first, const struct raw_step *const second[], size_t n_second)
{
    struct wp_err err = WP_ERR_INIT;

    memset(&rig, 0, sizeof rig);
    for (int i = 0; i < WAITS; i++)
        rig.seen[i].cancel = -1;
    rig.live = wp_mem_live();
    EXPECT_INT("loop", 0, wp_loop_init(&rig.l, &err));
    EXPECT_INT("metrics", 0, wp_metrics_create(&rig.metrics, &err));
    rig.results =
        wp_family(rig.metrics, WP_COUNTER, "warmpath_tokens_total", "", "result", NULL, 0);
    rig.calls = WP_SERIES0(
        wp_family(rig.metrics, WP_COUNTER, "warmpath_tokens_calls_total", "", "", NULL, 0));
    rig.n_servers = second ? 2 : 1;
    EXPECT_INT("server", 0, raw_server_start(&rig.server[0], &rig.l.uv, false, first, n_first));
    if (second)
        EXPECT_INT("server", 0,
                   raw_server_start(&rig.server[1], &rig.l.uv, false, second, n_second));
    EXPECT_INT("client", 0, wp_client_create(&rig.client, &rig.l, NULL, &err));
    if (conf)
        EXPECT_INT("tokenizer", 0, create("engine", conf));
}

#define N(scripts)            (sizeof(scripts) / sizeof(scripts)[0])
#define ONE(conf, ...)        set_up(conf, SCRIPTS(__VA_ARGS__), N(SCRIPTS(__VA_ARGS__)), NULL, 0)
#define TWO(conf, one, other) set_up(conf, SCRIPTS(one), 1, SCRIPTS(other), 1)

static void tear_down(void)
{
    if (rig.t) {
        destroy();
        EXPECT_UINT("closed later", 0, rig.tokens_closed);
        TURN_UNTIL(rig.tokens_closed);
    }
    wp_client_destroy(rig.client, on_closed, &rig.client_closed);
    TURN_UNTIL(rig.client_closed);
    for (size_t i = 0; i < rig.n_servers; i++)
        raw_server_stop(&rig.server[i]);
    wp_loop_stop(&rig.l);
    EXPECT_INT("run", 0, wp_loop_run(&rig.l));
    EXPECT_TRUE("closed at most once", rig.tokens_closed <= 1);
    EXPECT_UINT("every worker was given back", rig.picked, rig.dropped);
    for (int i = 0; i < WAITS; i++) {
        EXPECT_TRUE("told at most once", rig.seen[i].told <= 1);
        wp_blob_unref(rig.seen[i].tokens);
    }
    for (size_t i = 0; i < rig.n_servers; i++)
        raw_server_fini(&rig.server[i]);
    wp_metrics_destroy(rig.metrics);
    wp_loop_fini(&rig.l);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

static void on_tokens(struct wp_tokens_wait *w, enum wp_tokens_result r, struct wp_blob *tokens)
{
    struct seen *s = w->arg;

    EXPECT_TRUE("not inside a call", !rig.inside);
    EXPECT_TRUE("ids when it says so", (tokens != NULL) == (r < WP_TOKENS_BYTES));
    s->told++;
    s->result = r;
    s->tokens = tokens ? wp_blob_ref(tokens) : NULL;
    if (s->cancel >= 0)
        wp_tokens_cancel(&rig.seen[s->cancel].wait);
    if (s->destroy)
        destroy();
}

static struct wp_json value(const char *text)
{
    static const char *const name[] = {"v"};
    static char whole[8][2048]; /* a prompt of some members lives until the next but some */
    static unsigned at;
    struct wp_err err = WP_ERR_INIT;
    struct wp_json v = {0};
    char *b = whole[at++ % 8];

    snprintf(b, sizeof whole[0], "{\"v\":%s}", text);
    EXPECT_INT(text, 0, wp_json_members(wp_str_of(b), name, 1, &v, &err));
    return v;
}

static enum wp_tokens_result ask_for(int i, const struct wp_tokens_prompt *p)
{
    struct seen *s = &rig.seen[i];
    struct wp_blob *now = NULL;
    enum wp_tokens_result r;

    s->wait.arg = s;
    rig.inside = true;
    r = wp_tokens_ask(rig.t, p, &s->wait, on_tokens, &now);
    rig.inside = false;
    EXPECT_UINT("not told inside", 0, s->told);
    s->tokens = now;
    return r;
}

static enum wp_tokens_result ask(int i, const char *text)
{
    struct wp_tokens_prompt p = {.model = WP_STR("tiny"), .prompt = value(text)};

    return ask_for(i, &p);
}

static void expect_result(const char *label, int i, enum wp_tokens_result want)
{
    EXPECT_UINT(label, 1, rig.seen[i].told);
    EXPECT_TEXT(label, wp_tokens_result_names[want],
                wp_str_of(wp_tokens_result_names[rig.seen[i].result]));
}

static void expect_three(const char *label, const struct wp_blob *b)
{
    const uint32_t *id;

    EXPECT_TRUE(label, b != NULL);
    if (!b)
        return;
    id = (const uint32_t *)(const void *)b->p;
    EXPECT_UINT(label, 12, b->n);
    EXPECT_TRUE(label, id[0] == 1 && id[1] == 2 && id[2] == 4294967295u);
}

static double count(enum wp_tokens_result r)
{
    return wp_series_value(WP_SERIES(rig.results, wp_tokens_result_names[r]));
}

static void expect_got(const char *label, int server, const char *text, bool want)
{
    EXPECT_TRUE(label, (rig.server[server].got && strstr(rig.server[server].got, text)) == want);
}

/* --- what is asked, what is answered --- */

static void questions_have_what_changes_the_prompt_and_nothing_else(void)
{
    static const struct {
        const char *label, *body, *want; /* want NULL: not to be asked */
    } cases[] = {
        {"completion", "{\"prompt\":\"a\\u0062\",\"max_tokens\":3}",
         "{\"model\":\"tiny\",\"prompt\":\"a\\u0062\"}"},
        {"no special tokens", "{\"prompt\":\"a\",\"add_special_tokens\":false}",
         "{\"model\":\"tiny\",\"prompt\":\"a\",\"add_special_tokens\":false}"},
        {"truncated", "{\"prompt\":\"a\",\"truncate_prompt_tokens\":3}", NULL},
        {"not truncated", "{\"prompt\":\"a\",\"truncate_prompt_tokens\":null}",
         "{\"model\":\"tiny\",\"prompt\":\"a\"}"},
        {"embeddings", "{\"prompt\":\"a\",\"prompt_embeds\":\"AA==\"}", NULL},
        {"ids", "{\"prompt\":[1,2]}", NULL},
        {"chat", "{\"messages\":[{\"role\":\"user\", \"content\":\"x\"}],\"stream\":true}",
         "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\", \"content\":\"x\"}]}"},
        {"all of a chat's",
         "{\"messages\":[],\"tools\":[{}],\"chat_template\":\"t\",\"chat_template_kwargs\":{\"a\":"
         "1},\"add_generation_prompt\":false,"
         "\"continue_final_message\":true,\"add_special_tokens\":true,\"tool_choice\":\"auto\"}",
         "{\"model\":\"tiny\",\"messages\":[],\"tools\":[{}],\"chat_template\":\"t\",\"chat_"
         "template_kwargs\":{\"a\":1},"
         "\"add_generation_prompt\":false,\"continue_final_message\":true,\"add_special_tokens\":"
         "true}"},
        {"template arguments of their own",
         "{\"messages\":[],\"documents\":[{\"t\":1}],\"reasoning_effort\":\"low\"}",
         "{\"model\":\"tiny\",\"messages\":[],\"chat_template_kwargs\":{\"documents\":[{\"t\":1}],"
         "\"reasoning_effort\":\"low\"}}"},
        {"they win over the same ones inside",
         "{\"messages\":[],\"chat_template_kwargs\":{\"reasoning_effort\":\"high\",\"b\":2},"
         "\"reasoning_effort\":\"low\"}",
         "{\"model\":\"tiny\",\"messages\":[],\"chat_template_kwargs\":{\"reasoning_effort\":"
         "\"low\",\"b\":2}}"},
        {"what the engine will refuse, it may refuse",
         "{\"messages\":[],\"chat_template_kwargs\":7,\"documents\":[]}",
         "{\"model\":\"tiny\",\"messages\":[],\"chat_template_kwargs\":7}"},
        {"text parts", "{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"x\"},\"y\"]}]}",
         "{\"model\":\"tiny\",\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"x\"},\"y\"]"
         "}]}"},
        {"a picture",
         "{\"messages\":[{\"content\":\"x\"},{\"content\":[{\"type\":\"image_url\",\"image_url\":{"
         "\"url\":\"u\"}}]}]}",
         NULL},
        {"a picture that says no type", "{\"messages\":[{\"content\":[{\"image_url\":\"u\"}]}]}",
         NULL},
    };
    static const char *const names[] = {"prompt",
                                        "messages",
                                        "tools",
                                        "chat_template",
                                        "chat_template_kwargs",
                                        "documents",
                                        "reasoning_effort",
                                        "add_generation_prompt",
                                        "continue_final_message",
                                        "add_special_tokens",
                                        "truncate_prompt_tokens",
                                        "prompt_embeds"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_json v[12];
        struct wp_buf b = {0};
        struct wp_tokens_prompt p;

        EXPECT_INT(cases[i].label, 0,
                   wp_json_members(wp_str_of(cases[i].body), names, 12, v, &err));
        p = (struct wp_tokens_prompt){v[1].kind != WP_JSON_ABSENT,
                                      WP_STR("tiny"),
                                      v[0],
                                      v[1],
                                      v[2],
                                      v[3],
                                      v[4],
                                      v[5],
                                      v[6],
                                      v[7],
                                      v[8],
                                      v[9],
                                      v[10],
                                      v[11]};
        EXPECT_INT(cases[i].label, cases[i].want != NULL, wp_tokens_suited(&p));
        if (!cases[i].want)
            continue;
        EXPECT_INT(cases[i].label, 0, wp_tokens_question(&b, &p));
        EXPECT_TEXT(cases[i].label, cases[i].want, wp_buf_str(&b));
        wp_buf_fini(&b);
    }
}

static void answers_are_ids_or_refused(void)
{
    static const struct {
        const char *label, *text;
        long n; /* negative: not an answer */
    } cases[] = {
        {"as vLLM has it",
         "{\"count\":4,\"max_model_len\":2048,\"tokens\":[9707,11,1879,0],\"token_strs\":null}", 4},
        {"without a count", "{\"tokens\":[ 5 , 6 ]}", 2},
        {"empty", "{\"count\":0,\"tokens\":[]}", -1},
        {"too few", "{\"count\":3,\"tokens\":[1,2]}", -1},
        {"too many", "{\"count\":1,\"tokens\":[1,2]}", -1},
        {"a count that is a lie", "{\"count\":18446744073709551615,\"tokens\":[1,2]}", -1},
        {"negative", "{\"count\":1,\"tokens\":[-1]}", -1},
        {"too wide", "{\"count\":1,\"tokens\":[4294967296]}", -1},
        {"pieces", "{\"tokens\":[{\"id\":1,\"piece\":\"a\"}]}", -1},
        {"two prompts", "{\"tokens\":[[1],[2]],\"count\":[1,1]}", -1},
        {"none", "{\"error\":{}}", -1},
        {"no object", "[1,2]", -1},
        {"no JSON", "<html>", -1},
        {"nothing", "", -1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_blob *b = NULL;
        int rc = wp_tokens_answer(wp_str_of(cases[i].text), &b);

        EXPECT_INT(cases[i].label, cases[i].n < 0 ? WP_EPROTO : 0, rc);
        EXPECT_INT(cases[i].label, cases[i].n < 0 ? -1 : cases[i].n, b ? (long)(b->n / 4) : -1);
        wp_blob_unref(b);
    }
}

/* One captured exchange, played: our question is the captured one, its answer gives the captured
 * ids. */
static void play_captured(struct wp_json entry)
{
    static const char *const members[] = {"prompt", "messages", "add_generation_prompt",
                                          "add_special_tokens"};
    struct wp_json request = wp_json_get(wp_json_get(entry, "request"), "body"), v[4];
    struct wp_tokens_prompt p = {.model = WP_STR("tiny")};
    struct wp_err err = WP_ERR_INIT;
    char name[64] = "", body[2048], answer[4096];
    struct wp_json tokens;
    uint64_t status = 0;
    uint32_t want[64];
    long n, len;

    EXPECT_TRUE("name", wp_json_text(wp_json_get(entry, "name"), name, sizeof name - 1) > 0);
    EXPECT_TRUE(name, wp_json_u64(wp_json_get(entry, "status"), &status));
    len = wp_json_text(wp_json_get(entry, "body"), body, sizeof body);
    EXPECT_TRUE(name, len > 0);
    wp_json_find(request, members, 4, v);
    p.chat = v[1].kind != WP_JSON_ABSENT;
    p.prompt = v[0];
    p.messages = v[1];
    p.add_generation_prompt = v[2];
    p.add_special_tokens = v[3];
    if (!wp_tokens_suited(&p))
        return; /* tok_noprompt, tok_list: nothing that we would ask */
    n = snprintf(answer, sizeof answer, "HTTP/1.1 %d X\r\nContent-Length: %ld\r\n\r\n%.*s",
                 (int)status, len, (int)len, body);
    ONE(&defaults, SCRIPT(ASKED, {RAW_SEND, answer, (size_t)n}));
    EXPECT_INT(name, WP_TOKENS_LATER, ask_for(0, &p));
    TURN_UNTIL(rig.seen[0].told);
    expect_got(name, 0, "POST /tokenize HTTP/1.1\r\n", true);
    tokens = (struct wp_json){0};
    if (wp_json_members((struct wp_str){body, (size_t)len}, (const char *const[]){"tokens"}, 1,
                        &tokens, &err) == 0 &&
        status == 200 && wp_json_tokens(tokens, want, 64) > 0) {
        n = wp_json_tokens(tokens, want, 64);
        expect_result(name, 0, WP_TOKENS_ASKED);
        EXPECT_INT(name, n * 4, rig.seen[0].tokens ? (long)rig.seen[0].tokens->n : 0);
        EXPECT_TRUE(name,
                    rig.seen[0].tokens && memcmp(rig.seen[0].tokens->p, want, (size_t)n * 4) == 0);
    } else {
        expect_result(name, 0,
                      status == 200 ? WP_TOKENS_GARBAGE /* no ids at all */ : WP_TOKENS_REFUSED);
    }
    tear_down();
}

static void captured_answers_give_their_ids(void)
{
    static const char *const files[] = {"spec/real/vllm_0.23.0_http.json",
                                        "spec/real/vllm_0.32.0_http.json"};

    for (size_t i = 0; i < 2; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_json all = {0}, at = {0};
        struct wp_buf b = {0};
        unsigned played = 0;
        size_t n;
        char *text = wp_test_data(files[i], &n);

        EXPECT_INT("wrapped", 0, wp_buf_printf(&b, "{\"all\":%.*s}", (int)n, text));
        EXPECT_INT("read", 0,
                   wp_json_members(wp_buf_str(&b), (const char *const[]){"all"}, 1, &all, &err));
        while (wp_json_each(all, &at)) {
            char name[64] = "";

            wp_json_text(wp_json_get(at, "name"), name, sizeof name - 1);
            if (strncmp(name, "tok_", 4) != 0)
                continue;
            play_captured(at);
            played++;
        }
        EXPECT_UINT("played", 8, played);
        wp_buf_fini(&b);
        wp_free(text);
    }
}

/* --- the happy path --- */

static void a_cached_answer_asks_nobody(void)
{
    ONE(&defaults, SCRIPT(ASKED, SAY(THREE)));
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(0, "\"hello\""));
    TURN_UNTIL(rig.seen[0].told);
    expect_result("asked", 0, WP_TOKENS_ASKED);
    expect_three("asked", rig.seen[0].tokens);
    EXPECT_INT("again", WP_TOKENS_CACHED, ask(1, "\"hello\""));
    expect_three("again", rig.seen[1].tokens);
    EXPECT_TRUE("the same ids, not a copy", rig.seen[0].tokens == rig.seen[1].tokens);
    EXPECT_NEAR("one call", 1, wp_series_value(rig.calls), 0);
    EXPECT_NEAR("counted", 1, count(WP_TOKENS_ASKED), 0);
    EXPECT_NEAR("counted", 1, count(WP_TOKENS_CACHED), 0);
    tear_down();
}

static void equal_questions_at_once_are_one(void)
{
    ONE(&defaults, SCRIPT(ASKED, HOLD, SAY(THREE)));
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(0, "\"hello\""));
    EXPECT_INT("joined", WP_TOKENS_LATER, ask(1, "\"hello\""));
    EXPECT_INT("joined", WP_TOKENS_LATER, ask(2, "\"hello\""));
    TURN_UNTIL(rig.server[0].holding);
    wp_tokens_cancel(&rig.seen[0].wait); /* who asked goes, those who joined stay */
    rig.seen[1].cancel = 2;              /* and one of them is cancelled while the other is told */
    raw_server_go(&rig.server[0]);
    TURN_UNTIL(rig.seen[1].told);
    expect_result("joined", 1, WP_TOKENS_SHARED);
    expect_three("joined", rig.seen[1].tokens);
    EXPECT_UINT("cancelled", 0, rig.seen[0].told + rig.seen[2].told);
    EXPECT_NEAR("one call", 1, wp_series_value(rig.calls), 0);
    EXPECT_NEAR("cancelled", 2, count(WP_TOKENS_CANCELED), 0);
    tear_down();
}

static void a_second_worker_is_asked_when_the_first_is_silent(void)
{
    struct wp_tokens_conf conf = defaults;

    conf.hedge_us = 1000;
    TWO(&conf, SILENT, SCRIPT(ASKED, SAY(THREE)));
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(0, "\"hello\""));
    TURN_UNTIL(rig.seen[0].told);
    expect_result("hedged", 0, WP_TOKENS_HEDGED);
    expect_three("hedged", rig.seen[0].tokens);
    TURN_UNTIL(rig.dropped == 2);
    EXPECT_NEAR("two calls", 2, wp_series_value(rig.calls), 0);
    expect_got("base path and key", 1, "POST /base/tokenize HTTP/1.1\r\n", true);
    expect_got("base path and key", 1, "\r\nauthorization: Bearer key\r\n", true);
    expect_got("no key of another", 0, "authorization", false);
    /* The silent one is not the first to be asked again. */
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(1, "\"more\""));
    EXPECT_UINT("the other", 3, rig.picked);
    EXPECT_NEAR("one call more", 3, wp_series_value(rig.calls), 0);
    wp_tokens_cancel(&rig.seen[1].wait);
    TURN_UNTIL(rig.dropped == 3);
    expect_got("the other", 0, "more", false);
    tear_down();
}

static void the_first_may_still_win_after_the_hedge(void)
{
    struct wp_tokens_conf conf = defaults;

    conf.hedge_us = 1000;
    TWO(&conf, SCRIPT(ASKED, HOLD, SAY(THREE)), SILENT);
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(0, "\"hello\""));
    TURN_UNTIL(rig.server[1].got_n && rig.server[0].holding);
    raw_server_go(&rig.server[0]);
    TURN_UNTIL(rig.seen[0].told);
    expect_result("won", 0, WP_TOKENS_ASKED);
    tear_down();
}

static void hedges_are_few_when_everybody_is_slow(void)
{
    struct wp_tokens_conf conf = defaults;
    char text[16];

    conf.hedge_us = 1000;
    conf.limit_us = 5000;
    TWO(&conf, SILENT, SILENT);
    for (int i = 0; i < WAITS; i++) {
        snprintf(text, sizeof text, "\"q %d\"", i);
        EXPECT_INT("asked", WP_TOKENS_LATER, ask(i, text));
    }
    for (int i = 0; i < WAITS; i++) {
        TURN_UNTIL(rig.seen[i].told);
        expect_result("late", i, WP_TOKENS_LATE);
    }
    EXPECT_NEAR("a second call for ten, and a tenth", WAITS + 10 + WAITS / 10,
                wp_series_value(rig.calls), 0);
    tear_down();
}

/* --- failing --- */

static void what_fails_is_asked_of_another_at_once(void)
{
    static const struct {
        const char *label, *answer;
    } cases[] = {
        {"no such route", NO("404 Not Found")},
        {"not enabled", NO("403 Forbidden")},
        {"no key", NO("401 Unauthorized")},
        {"not implemented", NO("501 Not Implemented")},
        {"trouble", NO("500 Internal Server Error")},
        {"overloaded", NO("429 Too Many Requests")},
        {"garbage", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"},
        {"moved", NO("301 Moved")},
        {"not HTTP", "hello\r\n\r\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        TWO(&defaults, SCRIPT(ASKED, SAY(cases[i].answer)),
            SCRIPT(ASKED, SAY(THREE), ASKED, SAY(THREE)));
        EXPECT_INT(cases[i].label, WP_TOKENS_LATER, ask(0, "\"hello\""));
        TURN_UNTIL(rig.seen[0].told);
        expect_result(cases[i].label, 0, WP_TOKENS_HEDGED);
        EXPECT_INT(cases[i].label, WP_TOKENS_LATER, ask(1, "\"more\""));
        TURN_UNTIL(rig.seen[1].told);
        expect_result("who failed rests", 1, WP_TOKENS_ASKED);
        EXPECT_NEAR("who failed rests", 3, wp_series_value(rig.calls), 0);
        expect_got("who failed rests", 0, "more", false);
        tear_down();
    }
}

static void without_another_the_reason_is_told(void)
{
    static char huge[200000];
    const struct {
        const char *label, *answer;
        enum wp_tokens_result want, next; /* of the question after it */
    } cases[] = {
        {"no such route", NO("404 Not Found"), WP_TOKENS_REFUSED, WP_TOKENS_NOBODY},
        {"not enabled", NO("403 Forbidden"), WP_TOKENS_REFUSED, WP_TOKENS_NOBODY},
        {"a question that is refused", NO("400 Bad Request"), WP_TOKENS_REFUSED, WP_TOKENS_LATER},
        {"trouble", NO("503 Service Unavailable"), WP_TOKENS_FAILED, WP_TOKENS_NOBODY},
        {"garbage", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", WP_TOKENS_GARBAGE,
         WP_TOKENS_NOBODY},
        {"too large", huge, WP_TOKENS_GARBAGE, WP_TOKENS_NOBODY},
    };
    size_t at =
        (size_t)snprintf(huge, sizeof huge, "HTTP/1.1 200 OK\r\nContent-Length: 190000\r\n\r\n");

    memset(huge + at, ' ', 190000);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ONE(&defaults, SCRIPT(ASKED, SAY(cases[i].answer)));
        EXPECT_INT(cases[i].label, WP_TOKENS_LATER, ask(0, "\"hello\""));
        TURN_UNTIL(rig.seen[0].told);
        expect_result(cases[i].label, 0, cases[i].want);
        EXPECT_INT(cases[i].label, cases[i].next, ask(1, "\"hello\""));
        EXPECT_NEAR(cases[i].label, 1, count(cases[i].want), 0);
        tear_down();
    }
}

static void a_question_that_is_refused_is_not_put_to_another(void)
{
    TWO(&defaults, SCRIPT(ASKED, SAY(NO("400 Bad Request"))), SILENT);
    ask(0, "\"hello\"");
    TURN_UNTIL(rig.seen[0].told);
    expect_result("refused", 0, WP_TOKENS_REFUSED);
    EXPECT_NEAR("one call", 1, wp_series_value(rig.calls), 0);
    tear_down();
}

static void nobody_to_ask_is_told_at_once(void)
{
    ONE(&defaults, SILENT);
    rig.n_servers = 0;
    EXPECT_INT("nobody", WP_TOKENS_NOBODY, ask(0, "\"hello\""));
    rig.n_servers = 1;
    EXPECT_INT("unsuited", WP_TOKENS_UNSUITED, ask(0, "[\"a\",\"b\"]"));
    EXPECT_NEAR("no call", 0, wp_series_value(rig.calls), 0);
    EXPECT_NEAR("counted", 1, count(WP_TOKENS_NOBODY), 0);
    EXPECT_NEAR("counted", 1, count(WP_TOKENS_UNSUITED), 0);
    tear_down();
}

static void a_worker_that_is_not_there_fails(void)
{
    ONE(&defaults, SILENT);
    raw_server_deafen(&rig.server[0]);
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(0, "\"hello\""));
    TURN_UNTIL(rig.seen[0].told);
    expect_result("failed", 0, WP_TOKENS_FAILED);
    EXPECT_INT("and rests", WP_TOKENS_NOBODY, ask(1, "\"hello\""));
    tear_down();
}

static void what_is_late_is_told_and_kept_for_the_next(void)
{
    struct wp_tokens_conf conf = defaults;

    conf.limit_us = 1000;
    ONE(&conf, SCRIPT(ASKED, HOLD, SAY(THREE)));
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(0, "\"hello\""));
    TURN_UNTIL(rig.seen[0].told && rig.server[0].holding);
    expect_result("late", 0, WP_TOKENS_LATE);
    EXPECT_UINT("its call goes on", 0, rig.dropped);
    raw_server_go(&rig.server[0]);
    TURN_UNTIL(rig.dropped == 1);
    EXPECT_INT("known now", WP_TOKENS_CACHED, ask(1, "\"hello\""));
    expect_three("known now", rig.seen[1].tokens);
    EXPECT_NEAR("one call", 1, wp_series_value(rig.calls), 0);
    tear_down();
    conf.cache_bytes = 0; /* nothing to go on for */
    ONE(&conf, SILENT);
    ask(0, "\"hello\"");
    TURN_UNTIL(rig.seen[0].told && rig.dropped == 1);
    expect_result("late", 0, WP_TOKENS_LATE);
    tear_down();
}

static void one_more_may_join_what_is_late(void)
{
    struct wp_tokens_conf conf = defaults;

    conf.limit_us = 1000;
    ONE(&conf, SCRIPT(ASKED, HOLD, SAY(THREE)));
    ask(0, "\"hello\"");
    TURN_UNTIL(rig.seen[0].told && rig.server[0].holding);
    rig.t->conf.limit_us = 60000000;
    EXPECT_INT("joined", WP_TOKENS_LATER, ask(1, "\"hello\""));
    raw_server_go(&rig.server[0]);
    TURN_UNTIL(rig.seen[1].told);
    expect_result("joined", 1, WP_TOKENS_SHARED);
    tear_down();
}

static void limits_grow_with_the_question(void)
{
    struct wp_tokens_conf conf = {.per_mib_us = 250000};

    EXPECT_UINT("none", 20000, wp_tokens_limit_us(&conf, 20000, 0));
    EXPECT_UINT("a MiB", 270000, wp_tokens_limit_us(&conf, 20000, 1 << 20));
    EXPECT_UINT("4 KiB", 5976, wp_tokens_limit_us(&conf, 5000, 4096));
}

/* --- ends --- */

enum stage { CONNECTING, ANSWERING, HEDGING, LATE_ALONE, TELLING, STAGES };

static void bring_to(enum stage s)
{
    static const struct raw_step first[] = {
        ASKED,
        SAY("HTTP/1.1 200 OK\r\nContent-Length: 68\r\n\r\n{\"coun"),
        HOLD,
        SAY("t\":3,\"max_model_len\":2048,\"tokens\":[1,2,4294967295],\"x\":null }"),
        {RAW_END, NULL, 0},
    };
    static const struct raw_step second[] = {ASKED,
                                             {RAW_END, NULL, 0}}; /* they outlive this call */
    struct wp_tokens_conf conf = defaults;

    if (s == HEDGING)
        conf.hedge_us = 1000;
    if (s == LATE_ALONE)
        conf.limit_us = 1000;
    TWO(&conf, first, second);
    EXPECT_INT("asked", WP_TOKENS_LATER, ask(0, "\"hello\""));
    EXPECT_INT("joined", WP_TOKENS_LATER, ask(1, "\"hello\""));
    if (s == ANSWERING || s == TELLING)
        TURN_UNTIL(rig.server[0].holding);
    if (s == HEDGING)
        TURN_UNTIL(rig.server[0].holding && rig.server[1].got_n);
    if (s == LATE_ALONE)
        TURN_UNTIL(rig.server[0].holding && rig.seen[0].told && rig.seen[1].told);
}

static void cancelling_works_at_every_stage(void)
{
    for (enum stage s = 0; s < STAGES; s++) {
        bool told = s == LATE_ALONE;

        bring_to(s);
        if (s == TELLING) {
            rig.seen[0].cancel = 0; /* itself: nothing is left to cancel */
            raw_server_go(&rig.server[0]);
            TURN_UNTIL(rig.seen[0].told && rig.seen[1].told);
            expect_result("told", 0, WP_TOKENS_ASKED);
            told = true;
        }
        wp_tokens_cancel(&rig.seen[0].wait);
        wp_tokens_cancel(&rig.seen[0].wait);
        wp_tokens_cancel(&rig.seen[1].wait);
        if (s != LATE_ALONE) /* that one has a cache to fill */
            TURN_UNTIL(rig.dropped == rig.picked);
        EXPECT_UINT("not told", told ? 2 : 0, rig.seen[0].told + rig.seen[1].told);
        EXPECT_NEAR("counted", told ? 0 : 2, count(WP_TOKENS_CANCELED), 0);
        tear_down();
    }
}

static void destroying_answers_who_waits_at_every_stage(void)
{
    for (enum stage s = 0; s < STAGES; s++) {
        bring_to(s);
        if (s == TELLING) {
            rig.seen[0].destroy = true;
            raw_server_go(&rig.server[0]);
            TURN_UNTIL(rig.tokens_closed);
            expect_result("told", 0, WP_TOKENS_ASKED);
            expect_result("told all the same", 1, WP_TOKENS_SHARED);
        } else {
            destroy();
            EXPECT_UINT("later", s == LATE_ALONE ? 2 : 0, rig.seen[0].told + rig.seen[1].told);
            TURN_UNTIL(rig.tokens_closed);
            expect_result("told", 0, s == LATE_ALONE ? WP_TOKENS_LATE : WP_TOKENS_CANCELED);
            expect_result("told", 1, s == LATE_ALONE ? WP_TOKENS_LATE : WP_TOKENS_CANCELED);
        }
        tear_down();
    }
    wp_tokens_destroy(NULL, on_closed, NULL);
}

static void a_client_that_goes_first_fails_the_question(void)
{
    ONE(&defaults, SILENT);
    ask(0, "\"hello\"");
    TURN_UNTIL(rig.server[0].got_n);
    wp_client_destroy(rig.client, on_closed, &rig.client_closed);
    TURN_UNTIL(rig.seen[0].told && rig.client_closed);
    expect_result("failed", 0, WP_TOKENS_FAILED);
    destroy();
    TURN_UNTIL(rig.tokens_closed);
    rig.client_closed = 0;
    EXPECT_INT("another client, to be torn down", 0,
               wp_client_create(&rig.client, &rig.l, NULL, &(struct wp_err)WP_ERR_INIT));
    tear_down();
}

static void the_bytes_tokenizer_has_none(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_tokens *t;

    ONE(NULL, SILENT);
    EXPECT_INT("created", 0, create("bytes", &defaults));
    EXPECT_INT("bytes", WP_TOKENS_BYTES, ask(0, "\"hello\""));
    EXPECT_NEAR("counted", 1, count(WP_TOKENS_BYTES), 0);
    wp_tokens_cancel(&rig.seen[0].wait);
    EXPECT_INT("unknown", WP_EINVAL, wp_tokens_create(&t, "bpe", &rig.t->conf, &err));
    EXPECT_TEXT("named", "tokenizer: unknown kind \"bpe\"", wp_str_of(err.text));
    tear_down();
}

static void every_allocation_may_fail(void)
{
    bool hit = true;

    for (long nth = 0; hit; nth++) {
        enum wp_tokens_result r = WP_TOKENS_NO_MEMORY;

        ONE(NULL, SCRIPT(ASKED, SAY(THREE)));
        WP_SERIES(rig.results, "asked"); /* metrics have sinks of their own for this */
        wp_mem_fail_after(nth);
        if (create("engine", &defaults) == 0)
            r = ask(0, "\"hello\"");
        if (r == WP_TOKENS_LATER) {
            TURN_UNTIL(rig.seen[0].told);
            r = rig.seen[0].result;
        }
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        /* Without memory for the cache's entry, or a metric's series, the ids are there all the
         * same. */
        EXPECT_TRUE("ids, or the reason",
                    r == WP_TOKENS_ASKED ||
                        (hit && (r == WP_TOKENS_NO_MEMORY || r == WP_TOKENS_FAILED)));
        tear_down();
    }
}

/* --- parts --- */

static void the_cache_is_bounded_and_the_longest_unused_goes(void)
{
    long live = wp_mem_live();
    struct wp_tokens_cache c;
    struct wp_tokens_key key[40];
    struct wp_blob *b;
    char text[16], big[3800] = "";
    size_t held = 0;

    wp_tokens_cache_init(&c, 4096, 3);
    for (int i = 0; i < 40; i++) {
        snprintf(text, sizeof text, "question %d", i);
        key[i] = wp_tokens_key(wp_str_of(text), 3);
        b = wp_blob_copy("0123456789abcdef", 16);
        wp_tokens_cache_put(&c, &key[i], b);
        wp_blob_unref(b);
        EXPECT_TRUE("bounded", c.bytes <= 4096);
        b = wp_tokens_cache_get(&c, &key[0]); /* the first stays in use */
        EXPECT_TRUE("in use", b != NULL);
        wp_blob_unref(b);
    }
    for (int i = 0; i < 40; i++) {
        b = wp_tokens_cache_get(&c, &key[i]);
        held += b != NULL;
        EXPECT_TRUE("the newest are there, the second is not", i == 1    ? !b
                                                               : i == 39 ? b != NULL
                                                                         : true);
        wp_blob_unref(b);
    }
    EXPECT_TRUE("some", held > 4 && held < 40);
    key[0].high ^= 1;
    EXPECT_TRUE("half a key is none", !wp_tokens_cache_get(&c, &key[0]));
    b = wp_blob_copy(big, sizeof big);
    wp_tokens_cache_put(&c, &key[0], b); /* takes the place of the other, and all others' */
    EXPECT_TRUE("bounded", c.bytes <= 4096);
    wp_blob_unref(b);
    wp_tokens_cache_fini(&c);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void rests_end_and_are_bounded(void)
{
    uint64_t out[WP_RESTS_MAX];
    struct wp_rests r = {0};

    wp_rest(&r, 1, 100, true);
    wp_rest(&r, 2, 100, false);
    EXPECT_UINT("hard", 1, wp_resting(&r, 50, false, out));
    EXPECT_UINT("hard", 1, out[0]);
    EXPECT_UINT("all", 2, wp_resting(&r, 50, true, out));
    wp_rest(&r, 1, 60, false); /* the longer one stands */
    EXPECT_UINT("still", 1, wp_resting(&r, 70, false, out));
    wp_rest_over(&r, 1);
    EXPECT_UINT("over", 0, wp_resting(&r, 70, false, out));
    EXPECT_UINT("ended", 0, wp_resting(&r, 100, true, out));
    for (uint64_t k = 0; k < 100; k++)
        wp_rest(&r, k, 1000 + k, true);
    EXPECT_UINT("bounded", WP_RESTS_MAX, wp_resting(&r, 0, true, out));
    EXPECT_UINT("the last ends last", 1, wp_resting(&r, 1098, true, out));
    EXPECT_UINT("the last ends last", 99, out[0]);
}

const struct wp_suite suite_tokens = {
    "tokens",
    (const struct wp_test[]){
        {"questions have what changes the prompt and nothing else",
         questions_have_what_changes_the_prompt_and_nothing_else},
        {"answers are ids, or refused", answers_are_ids_or_refused},
        {"captured answers give their ids", captured_answers_give_their_ids},
        {"a cached answer asks nobody", a_cached_answer_asks_nobody},
        {"equal questions at once are one", equal_questions_at_once_are_one},
        {"a second worker is asked when the first is silent",
         a_second_worker_is_asked_when_the_first_is_silent},
        {"the first may still win after the hedge", the_first_may_still_win_after_the_hedge},
        {"hedges are few when everybody is slow", hedges_are_few_when_everybody_is_slow},
        {"what fails is asked of another at once", what_fails_is_asked_of_another_at_once},
        {"without another the reason is told", without_another_the_reason_is_told},
        {"a question that is refused is not put to another",
         a_question_that_is_refused_is_not_put_to_another},
        {"nobody to ask is told at once", nobody_to_ask_is_told_at_once},
        {"a worker that is not there fails", a_worker_that_is_not_there_fails},
        {"what is late is told, and kept for the next", what_is_late_is_told_and_kept_for_the_next},
        {"one more may join what is late", one_more_may_join_what_is_late},
        {"limits grow with the question", limits_grow_with_the_question},
        {"cancelling works at every stage", cancelling_works_at_every_stage},
        {"destroying answers who waits at every stage",
         destroying_answers_who_waits_at_every_stage},
        {"a client that goes first fails the question",
         a_client_that_goes_first_fails_the_question},
        {"the bytes tokenizer has none", the_bytes_tokenizer_has_none},
        {"every allocation may fail", every_allocation_may_fail},
        {"the cache is bounded, and the longest unused goes",
         the_cache_is_bounded_and_the_longest_unused_goes},
        {"rests end and are bounded", rests_end_and_are_bounded},
        {NULL, NULL},
    },
};
