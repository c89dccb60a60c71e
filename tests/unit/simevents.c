/* SPDX-License-Identifier: Apache-2.0 */
/* The KV events of the simulated engine, over real ZeroMQ sockets: whoever counts what it announces knows what it
 * holds. */
#include "base/rng.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/kvfeed.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <unistd.h>
#include <zmq.h>

enum { RANKS = 3 };

struct scene {
    struct wp_rig rig;
    struct wp_engine_conf conf;
    struct wp_engine_events events;
    struct kv_feed feed[RANKS];
    uint32_t ranks;
    struct wp_rng rng;
};

static const char *const adapters[] = {"ad1", "ad2"};

static void prepare(struct scene *s)
{
    memset(s, 0, sizeof *s);
    wp_rig_conf(&s->conf, 5000);
    s->conf.hash_seed = 11;
    s->conf.adapter = adapters;
    s->conf.n_adapters = 2;
    s->events = (struct wp_engine_events){.endpoint = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*"};
    s->conf.events = &s->events;
    s->ranks = 1;
}

static json_t *ask(struct scene *s, const char *method, const char *path, const char *headers, const char *body)
{
    struct wp_rig_answer a;
    json_t *v;
    int fd = wp_rig_send(&s->rig, method, path, headers, body, body ? strlen(body) : 0);

    wp_rig_receive(fd, &a);
    EXPECT_INT(path, 200, a.status);
    v = json_loadb(a.body.p ? a.body.p : "", a.body.n, 0, NULL);
    EXPECT_TRUE("JSON", v != NULL);
    wp_rig_answer_fini(&a);
    return v;
}

static const char *text_at(const json_t *v, const char *one, const char *two)
{
    return json_string_value(json_object_get(json_object_get(v, one), two));
}

static void start(struct scene *s, const char *const faults[])
{
    static const char *const name[] = {"0", "1", "2"};
    json_t *sources;
    struct wp_buf topic = {0};

    s->conf.ranks = s->ranks;
    wp_rig_start_conf(&s->rig, &s->conf, faults);
    sources = ask(s, "GET", "/kv_event_sources", "", NULL);
    EXPECT_UINT("a source a rank", s->ranks, json_object_size(sources));
    wp_buf_printf(&topic, "kv@127.0.0.1:%u@tiny", s->rig.port);
    wp_buf_add(&topic, "", 1);
    for (uint32_t i = 0; i < s->ranks; i++) {
        struct kv_feed *f = &s->feed[i];

        f->rank = i;
        f->block_size = s->conf.cost.block_size;
        f->as_array = s->events.as_array;
        f->tier_only = s->events.tier_only;
        f->bare = s->events.bare_replies;
        if (!s->events.topic)
            EXPECT_TEXT("topic", topic.p, wp_str_of(text_at(sources, name[i], "topic")));
        snprintf(f->topic, sizeof f->topic, "%s", text_at(sources, name[i], "topic"));
        kv_feed_open(f, text_at(sources, name[i], "endpoint"), text_at(sources, name[i], "replay_endpoint"));
    }
    wp_buf_fini(&topic);
    json_decref(sources);
}

static void stop(struct scene *s)
{
    for (uint32_t i = 0; i < s->ranks; i++)
        kv_feed_close(&s->feed[i]);
    wp_rig_stop(&s->rig);
}

/* Every rank's feed up to what the engine says, then against what it holds.  Returns the changes that wait. */
static uint64_t compare(struct scene *s)
{
    static const char *const name[] = {"0", "1", "2"};
    json_t *dump = ask(s, "GET", "/sim/cache", "", NULL);
    uint64_t waiting = 0;

    for (uint32_t i = 0; i < s->ranks; i++) {
        const json_t *rank = json_object_get(dump, name[i]);
        uint64_t pending = (uint64_t)json_integer_value(json_object_get(rank, "pending"));

        kv_feed_to(&s->feed[i], (uint64_t)json_integer_value(json_object_get(rank, "next")));
        if (pending == 0)
            kv_feed_expect(&s->feed[i], rank);
        waiting += pending;
    }
    json_decref(dump);
    return waiting;
}

/* ---- requests ---- */

static uint32_t token_of(uint32_t line, uint32_t i)
{
    return 1000 + (line * 7919 + i * 104729) % 100000;
}

/* n tokens: `shared` of a common head, then of this line. */
static void put_prompt(struct wp_buf *b, uint32_t line, uint32_t shared, uint32_t n)
{
    wp_buf_adds(b, "{\"prompt\":[");
    for (uint32_t i = 0; i < n; i++)
        wp_buf_printf(b, "%s%u", i ? "," : "", token_of(i < shared ? 0 : line, i));
    wp_buf_adds(b, "]");
}

static char *end_body(struct wp_buf *b, uint32_t output, const char *more)
{
    wp_buf_printf(b, ",\"max_tokens\":%u%s}", output, more);
    wp_buf_add(b, "", 1);
    return b->p;
}

static uint32_t cached_of(const json_t *answer)
{
    return (uint32_t)json_integer_value(
        json_object_get(json_object_get(json_object_get(answer, "usage"), "prompt_tokens_details"), "cached_tokens"));
}

static uint32_t complete(struct scene *s, uint32_t line, uint32_t n, uint32_t output, const char *more)
{
    struct wp_buf b = {0};
    json_t *v;
    uint32_t cached;

    put_prompt(&b, line, 0, n);
    v = ask(s, "POST", "/v1/completions", "Content-Type: application/json\r\n", end_body(&b, output, more));
    cached = cached_of(v);
    json_decref(v);
    wp_buf_fini(&b);
    return cached;
}

/* ---- what is announced ---- */

static void expect_log(const struct kv_feed *f, const char *want)
{
    EXPECT_TEXT("batches", want, wp_buf_str(&f->log));
}

/* The steps of the captured engine with prompts of exact multiples, and the shapes that it announced. */
static void announces_what_vllm_announced(void)
{
    struct scene s;

    prepare(&s);
    start(&s, NULL);
    complete(&s, 1, 122, 16, "");  /* three blocks of the prompt, one more while it answers */
    complete(&s, 901, 96, 1, "");  /* an exact multiple */
    complete(&s, 901, 96, 1, "");  /* its last block again: a copy */
    complete(&s, 901, 97, 1, "");  /* nothing new */
    EXPECT_UINT("salted", 0, complete(&s, 902, 99, 1, ",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT("not salted", 0, complete(&s, 902, 99, 1, ""));
    EXPECT_UINT("salted again", 96, complete(&s, 902, 99, 1, ",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT("an adapter", 0, complete(&s, 902, 99, 1, ",\"model\":\"ad1\",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT("the adapter again", 96, complete(&s, 902, 99, 1, ",\"model\":\"ad1\",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT("nothing waits", 0, compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 S1\n2 S3\n3 S1\n4 S3\n5 S3\n6 S3\n");
    stop(&s);
}

static void removals_come_before_the_stores_that_they_made_room_for(void)
{
    struct scene s;

    prepare(&s);
    s.conf.cost.tier_blocks[0] = 8;
    s.conf.max_model_len = 256;
    start(&s, NULL);
    complete(&s, 1, 100, 1, "");
    complete(&s, 2, 100, 1, "");
    complete(&s, 3, 100, 1, "");
    EXPECT_UINT("nothing waits", 0, compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 S3\n2 R1 R1 S3\n");
    stop(&s);
}

static void moves_down_are_announced_in_either_order(void)
{
    static const struct {
        bool remove_first, tier_only;
        const char *want;
    } cases[] = {
        {false, false, "0 S3\n1 S3\n2 S1cpu R1 S1cpu R1 S3\n"},
        {true, true, "0 S3\n1 S3\n2 R1 S1cpu R1 S1cpu S3\n"},
    };

    for (size_t i = 0; i < 2; i++) {
        struct scene s;

        prepare(&s);
        s.conf.cost.tier_blocks[0] = 8;
        s.conf.cost.tier_blocks[1] = 8;
        s.conf.max_model_len = 256;
        s.conf.remove_first = cases[i].remove_first;
        s.events.tier_only = cases[i].tier_only;
        start(&s, NULL);
        for (uint32_t line = 1; line < 4; line++)
            complete(&s, line, 100, 1, "");
        EXPECT_UINT("nothing waits", 0, compare(&s));
        expect_log(&s.feed[0], cases[i].want);
        stop(&s);
    }
}

static void a_reset_is_announced_with_the_next_step(void)
{
    struct scene s;

    prepare(&s);
    start(&s, NULL);
    complete(&s, 1, 100, 1, "");
    json_decref(ask(&s, "POST", "/reset_prefix_cache", "", NULL));
    json_decref(ask(&s, "POST", "/reset_prefix_cache", "", NULL));
    EXPECT_UINT("two clears wait", 2, compare(&s));
    EXPECT_UINT("nothing is left", 0, complete(&s, 1, 100, 1, ""));
    EXPECT_UINT("nothing waits", 0, compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 C C S3\n");
    complete(&s, 1, 101, 1, ""); /* a step that changes nothing says nothing */
    json_decref(ask(&s, "POST", "/reset_prefix_cache", "", NULL));
    complete(&s, 1, 10, 1, ""); /* a step that changes nothing, but a clear was waiting */
    EXPECT_UINT("nothing waits", 0, compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 C C S3\n2 C\n");
    stop(&s);
}

/* ---- the captured engines' days ---- */

struct day {
    struct scene s;
    json_t *expected; /* the steps' own numbers, by id */
    json_t *said;     /* by id: the prompt and the answer of each step */
    size_t probes;
    json_int_t differs; /* the step whose number is another one here; -1: none */
};

static json_t *step_of(const struct day *d, json_int_t id)
{
    json_t *step;
    size_t i;

    json_array_foreach(json_object_get(d->expected, "steps"), i, step)
        if (json_integer_value(json_object_get(step, "id")) == id)
            return step;
    return NULL;
}

static void id_text(char out[24], json_int_t id)
{
    snprintf(out, 24, "%lld", (long long)id);
}

/* ["gen", seed, n] or ["step", id, n], as the captures write prompts. */
static json_t *prompt_of(const struct day *d, const json_t *parts)
{
    json_t *ids = json_array(), *part;
    char id[24];
    size_t i;

    json_array_foreach((json_t *)parts, i, part)
    {
        json_int_t of = json_integer_value(json_array_get(part, 1)), n = json_integer_value(json_array_get(part, 2));
        bool made = strcmp(json_string_value(json_array_get(part, 0)), "gen") == 0;

        id_text(id, of);
        for (json_int_t k = 0; k < n; k++)
            json_array_append(ids, made ? json_integer(token_of((uint32_t)of, (uint32_t)k))
                                        : json_array_get(json_object_get(d->said, id), (size_t)k));
    }
    return ids;
}

static char *body_of(json_t *prompt, const json_t *max_tokens, const json_t *salt)
{
    json_t *body = json_pack("{s:o,s:O,s:b,s:b}", "prompt", prompt, "max_tokens", max_tokens, "return_token_ids", 1,
                             "ignore_eos", 1);
    char *text;

    if (salt)
        json_object_set(body, "cache_salt", (json_t *)salt);
    text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static void play_step(struct day *d, json_int_t id)
{
    const json_t *step = step_of(d, id), *said;
    json_t *prompt = prompt_of(d, json_object_get(step, "prompt")), *v;
    char *body = body_of(prompt, json_object_get(step, "max_tokens"), json_object_get(step, "cache_salt"));
    char label[64], key[24];

    v = ask(&d->s, "POST", "/v1/completions", "Content-Type: application/json\r\n", body);
    snprintf(label, sizeof label, "step %lld: cached tokens", (long long)id);
    if (id != d->differs)
        EXPECT_INT(label, json_integer_value(json_object_get(step, "cached_tokens")), cached_of(v));
    EXPECT_UINT(label, 0, compare(&d->s));
    said = json_array_get(json_object_get(v, "choices"), 0);
    id_text(key, id);
    json_object_set(d->said, key, json_object_get(said, "prompt_token_ids"));
    json_array_extend(json_object_get(d->said, key), json_object_get(said, "token_ids"));
    d->probes++;
    json_decref(v);
    free(body);
}

static void play_at_once(struct day *d, const json_t *action)
{
    enum { MOST = 8 };
    struct wp_rig_answer a;
    int fd[MOST];
    json_t *parts;
    size_t i, n = json_array_size(json_object_get(action, "prompts"));

    json_array_foreach(json_object_get(action, "prompts"), i, parts)
    {
        char *body = body_of(prompt_of(d, parts), json_object_get(action, "max_tokens"), NULL);

        if (i < MOST)
            fd[i] = wp_rig_send(&d->s.rig, "POST", "/v1/completions", "Content-Type: application/json\r\n", body,
                                strlen(body));
        free(body);
    }
    for (i = 0; i < n && i < MOST; i++) {
        wp_rig_receive(fd[i], &a);
        EXPECT_INT("at once", 200, a.status);
        wp_rig_answer_fini(&a);
    }
    compare(&d->s);
}

static json_t *load(const char *path)
{
    size_t n;
    char *text = wp_test_data(path, &n);
    json_t *v = json_loadb(text ? text : "", text ? n : 0, 0, NULL);

    wp_free(text);
    return v;
}

static void play_line(struct day *d, struct wp_str line)
{
    json_t *v = json_loadb(line.p, line.n, 0, NULL);
    const char *action = json_string_value(json_object_get(v, "action")),
               *kind = json_string_value(json_object_get(v, "kind"));

    if (kind && strcmp(kind, "step") == 0) {
        if (!action)
            play_step(d, json_integer_value(json_object_get(v, "id")));
        else if (json_object_get(v, "prompts"))
            play_at_once(d, v);
        else
            json_decref(ask(&d->s, "POST", "/reset_prefix_cache", "", NULL));
    }
    json_decref(v);
}

/* The whole timelines: growing conversations, exact multiples, salts, eviction, copies, a reset.  What the real
 * engine found in its cache, this one finds, at every step.  One differs: 0.23 evicts by age alone, and so a block that
 * has a name before one that never had, if that was freed later; 0.32, and we, use up the nameless ones first. */
static void caches_what_the_captured_engines_cached(void)
{
    static const struct {
        const char *expected, *events;
        size_t probes;
        bool as_array;
        json_int_t differs;
    } days[] = {
        {"spec/real/vllm_0.32.0_expected.json", "spec/real/vllm_0.32.0_events.jsonl", 116, false, -1},
        {"spec/real/vllm_0.23.0_expected.json", "spec/real/vllm_0.23.0_events.jsonl", 112, true, 52},
    };

    for (size_t i = 0; i < 2; i++) {
        struct day d = {.expected = load(days[i].expected), .said = json_object(), .differs = days[i].differs};
        struct wp_str rest, line;
        size_t n;
        char *text = wp_test_data(days[i].events, &n);

        prepare(&d.s);
        d.s.conf.cost.block_size = (uint32_t)json_integer_value(json_object_get(d.expected, "block_size"));
        d.s.conf.cost.tier_blocks[0] = 95; /* of 96, vLLM keeps one for itself */
        d.s.conf.max_model_len = 0;
        d.s.events.as_array = d.s.events.bare_replies = days[i].as_array;
        start(&d.s, NULL);
        rest = (struct wp_str){text, text ? n : 0};
        while (wp_str_split(&rest, '\n', &line))
            play_line(&d, line);
        EXPECT_UINT(days[i].expected, days[i].probes, d.probes);
        stop(&d.s);
        wp_free(text);
        json_decref(d.expected);
        json_decref(d.said);
    }
}

/* ---- a random life ---- */

static json_t *random_body(struct scene *s, struct wp_buf *b, json_t *before)
{
    static const char *const more[] = {"", "", "", "", ",\"n\":2", ",\"cache_salt\":\"a\"", ",\"model\":\"ad1\"",
                                       ",\"model\":\"ad2\",\"cache_salt\":\"b\""};
    struct wp_rng *r = &s->rng;
    uint32_t n = 1 + (uint32_t)wp_rng_below(r, 12) * 16 + (uint32_t)wp_rng_below(r, 2) * 15;
    const json_t *said = json_object_get(json_array_get(json_object_get(before, "choices"), 0), "token_ids");
    json_t *t;
    size_t i;

    put_prompt(b, 1 + (uint32_t)wp_rng_below(r, 6), (uint32_t)wp_rng_below(r, 4) * 32, n);
    if (json_array_size(said) && wp_rng_below(r, 2)) {
        /* on with the last conversation */
        b->n = 0;
        wp_buf_adds(b, "{\"prompt\":[");
        json_array_foreach(json_object_get(json_array_get(json_object_get(before, "choices"), 0), "prompt_token_ids"), i, t)
            wp_buf_printf(b, "%lld,", json_integer_value(t));
        json_array_foreach(said, i, t) wp_buf_printf(b, "%lld,", json_integer_value(t));
        wp_buf_printf(b, "%u]", token_of(7, n));
    }
    wp_buf_adds(b, ",\"return_token_ids\":true");
    end_body(b, 1 + (uint32_t)wp_rng_below(r, 70), more[wp_rng_below(r, 8)]);
    json_decref(before);
    return NULL;
}

static json_t *one_request(struct scene *s, json_t *before)
{
    struct wp_buf b = {0};
    char rank[64] = "Content-Type: application/json\r\n";
    json_t *v;

    if (json_array_size(json_object_get(before, "choices")) &&
        json_array_size(json_object_get(json_array_get(json_object_get(before, "choices"), 0), "prompt_token_ids")) > 250) {
        json_decref(before);
        before = NULL;
    }
    random_body(s, &b, before);
    if (s->ranks > 1 && wp_rng_below(&s->rng, 2))
        snprintf(rank, sizeof rank, "Content-Type: application/json\r\nX-data-parallel-rank: %u\r\n",
                 (unsigned)wp_rng_below(&s->rng, s->ranks));
    v = ask(s, "POST", "/v1/completions", rank, b.p);
    wp_buf_fini(&b);
    return v;
}

/* Some at once; one of them is cut off at once, so it may or may not come to anything. */
static void a_few_at_once(struct scene *s)
{
    enum { FEW = 5 };
    struct wp_rig_answer a;
    int fd[FEW];

    for (int i = 0; i < FEW; i++) {
        struct wp_buf b = {0};

        random_body(s, &b, NULL);
        fd[i] = wp_rig_send(&s->rig, "POST", "/v1/completions", "Content-Type: application/json\r\n", b.p, strlen(b.p));
        wp_buf_fini(&b);
    }
    close(fd[0]);
    for (int i = 1; i < FEW; i++) {
        wp_rig_receive(fd[i], &a);
        EXPECT_INT("status", 200, a.status);
        wp_rig_answer_fini(&a);
    }
    EXPECT_TRUE("all have gone", wp_rig_metric_becomes(&s->rig, "vllm:num_requests_running", "engine=\"0\"", 0));
    for (uint32_t i = 1; i < s->ranks; i++) {
        char label[32];

        snprintf(label, sizeof label, "engine=\"%u\"", i);
        EXPECT_TRUE("all have gone", wp_rig_metric_becomes(&s->rig, "vllm:num_requests_running", label, 0));
    }
}

static void live(struct scene *s, int steps)
{
    json_t *last = NULL;

    for (int i = 0; i < steps; i++) {
        uint64_t what = wp_rng_below(&s->rng, 40);

        if (what == 0)
            json_decref(ask(s, "POST", "/reset_prefix_cache", "", NULL));
        else if (what < 6)
            a_few_at_once(s);
        else
            last = one_request(s, last);
        compare(s);
    }
    json_decref(last);
}

static const struct {
    const char *label;
    uint32_t ranks;
    uint64_t tier[3];
    bool as_array, hash_bytes, tier_only, no_copies, remove_first;
    uint64_t seed;
} lives[] = {
    {"maps, one tier", 1, {24, 0, 0}, false, false, false, false, false, 1},
    {"arrays, ranks", 3, {20, 0, 0}, true, false, false, false, false, 2},
    {"maps, three tiers", 1, {24, 12, 16}, false, false, false, false, false, 3},
    {"arrays, tiers, binary hashes, ranks", 2, {24, 30, 0}, true, true, false, false, true, 4},
    {"maps, tiers by hash", 1, {24, 12, 40}, false, false, true, false, true, 5},
    {"arrays, tiers by hash", 2, {24, 0, 40}, true, true, true, true, false, 6},
};

static void whoever_counts_knows_what_it_holds(void)
{
    for (size_t i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        struct scene s;
        uint64_t stored = 0, removed = 0;

        prepare(&s);
        memcpy(s.conf.cost.tier_blocks, lives[i].tier, sizeof lives[i].tier);
        s.conf.max_model_len = 600;
        s.conf.no_copies = lives[i].no_copies;
        s.conf.remove_first = lives[i].remove_first;
        s.events.as_array = s.events.bare_replies = lives[i].as_array;
        s.events.hash_bytes = lives[i].hash_bytes;
        s.events.tier_only = lives[i].tier_only;
        s.ranks = lives[i].ranks;
        s.rng.state = lives[i].seed;
        start(&s, NULL);
        live(&s, 70);
        for (uint32_t k = 0; k < s.ranks; k++) {
            stored += s.feed[k].stores;
            removed += s.feed[k].removals;
            EXPECT_TRUE(lives[i].label, s.feed[k].live > 10);
            EXPECT_UINT("nothing is missed but at the start", 0, s.feed[k].gaps);
        }
        EXPECT_TRUE(lives[i].label, stored > 150 && removed > 100);
        stop(&s);
    }
}

/* ---- replay ---- */

static size_t hex(const char *text, unsigned char out[])
{
    size_t n = 0;

    for (; text[0] && text[1]; text += 2) {
        unsigned x;

        sscanf(text, "%2x", &x);
        out[n++] = (unsigned char)x;
    }
    return n;
}

/* Reads one message and holds it against frames of the fixture; a payload is any. */
static void expect_message(void *dealer, const char *label, const json_t *frames)
{
    unsigned char want[256];
    zmq_pollitem_t item = {.socket = dealer, .events = ZMQ_POLLIN};
    int more = 1;
    size_t i = 0;

    EXPECT_INT(label, 1, zmq_poll(&item, 1, 20000));
    for (; more; i++) {
        const char *text = json_string_value(json_array_get(frames, i));
        zmq_msg_t m;
        size_t n = hex(text ? text : "", want);

        zmq_msg_init(&m);
        if (zmq_msg_recv(&m, dealer, ZMQ_DONTWAIT) < 0)
            return;
        more = zmq_msg_more(&m);
        if (more || n == 0)
            EXPECT_TRUE(label, text && zmq_msg_size(&m) == n && memcmp(zmq_msg_data(&m), want, n) == 0);
        else
            EXPECT_TRUE(label, zmq_msg_size(&m) > 50);
        zmq_msg_close(&m);
    }
    EXPECT_UINT(label, json_array_size(frames), i);
}

static void send_frames(void *dealer, const json_t *frames)
{
    unsigned char bytes[256];
    const json_t *f;
    size_t i;

    json_array_foreach(frames, i, f)
    {
        size_t n = hex(json_string_value(f), bytes);

        zmq_send(dealer, bytes, n, i + 1 < json_array_size(frames) ? ZMQ_SNDMORE : 0);
    }
}

static void replays_with_the_frames_of_the_fixture(void)
{
    size_t n;
    char *text = wp_test_data("spec/cap_replay_wire.json", &n);
    json_t *wire = json_loadb(text ? text : "", n, 0, NULL), *ignored;

    for (int bare = 0; bare < 2; bare++) {
        const json_t *want =
            json_object_get(wire, bare ? "dealer_receives_without_topic" : "dealer_receives_with_topic");
        struct scene s;
        size_t i;

        prepare(&s);
        s.events.topic = "kv@10.0.0.7:8000@Qwen/Qwen3-8B";
        s.events.bare_replies = bare;
        start(&s, NULL);
        for (uint32_t k = 1; k < 4; k++)
            complete(&s, k, 100, 1, "");
        json_array_foreach(json_object_get(wire, "ignored_requests"), i, ignored)
            send_frames(s.feed[0].dealer, ignored);
        send_frames(s.feed[0].dealer, json_array_get(json_object_get(wire, "dealer_sends"), 0));
        EXPECT_UINT("a batch and the end", 2, json_array_size(want));
        expect_message(s.feed[0].dealer, "batch 2", json_array_get(want, 0));
        expect_message(s.feed[0].dealer, "end", json_array_get(want, 1));
        stop(&s);
    }
    json_decref(wire);
    wp_free(text);
}

static void replay_reaches_back_as_far_as_its_buffer(void)
{
    struct scene s;

    prepare(&s);
    s.events.buffer = 4;
    start(&s, NULL);
    EXPECT_UINT("nothing yet", 0, kv_feed_ask(&s.feed[0], 0));
    for (uint32_t k = 1; k < 4; k++)
        complete(&s, k, 100, 1, "");
    EXPECT_UINT("all three", 3, kv_feed_ask(&s.feed[0], 0));
    for (uint32_t k = 4; k < 11; k++)
        complete(&s, k, 100, 1, "");
    s.feed[0].holes_ok = true;
    EXPECT_UINT("the last four of ten", 4, kv_feed_ask(&s.feed[0], 0));
    EXPECT_UINT("three were lost", 3, s.feed[0].holes);
    EXPECT_UINT("the newest", 1, kv_feed_ask(&s.feed[0], 9));
    EXPECT_UINT("none of the future", 0, kv_feed_ask(&s.feed[0], 10));
    stop(&s);
}

/* ---- what goes wrong on purpose ---- */

static void losses_doubles_and_swaps_are_mended_by_replay(void)
{
    static const char *const faults[] = {"lose=0.2", "double=0.2", "reorder=0.2", NULL};
    struct scene s;

    prepare(&s);
    memcpy(s.conf.cost.tier_blocks, (uint64_t[3]){24, 12, 0}, sizeof s.conf.cost.tier_blocks);
    s.conf.max_model_len = 600;
    s.rng.state = 9;
    s.conf.seed = 3;
    start(&s, faults);
    s.feed[0].lossy = true;
    live(&s, 60);
    EXPECT_TRUE("some had to be asked for", s.feed[0].replayed > 5);
    EXPECT_TRUE("some came late", s.feed[0].late > 5);
    stop(&s);
}

static void a_skipped_number_is_lost_for_good(void)
{
    struct scene s;

    prepare(&s);
    start(&s, (const char *const[]){"skip=1,every=2", NULL});
    s.feed[0].holes_ok = s.feed[0].lossy = true;
    for (uint32_t k = 1; k < 7; k++)
        complete(&s, k, 100, 1, "");
    kv_feed_to(&s.feed[0], 6);
    expect_log(&s.feed[0], "0 S3\n2 S3\n4 S3\n");
    EXPECT_UINT("holes", 3, s.feed[0].holes);
    stop(&s);
}

static void a_restart_begins_at_zero_and_tells_nobody(void)
{
    struct scene s;

    prepare(&s);
    start(&s, NULL);
    for (uint32_t k = 1; k < 4; k++)
        complete(&s, k, 100, 1, "");
    compare(&s);
    json_decref(ask(&s, "POST", "/sim/events/restart", "", NULL));
    kv_feed_forget(&s.feed[0]);
    EXPECT_UINT("the cache is empty", 0, complete(&s, 1, 100, 1, ""));
    EXPECT_UINT("nothing waits", 0, compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 S3\n2 S3\n0 S3\n");
    json_decref(ask(&s, "POST", "/sim/events/restart?keep=true", "", NULL));
    kv_feed_forget(&s.feed[0]);
    EXPECT_UINT("now it is kept", 96, complete(&s, 1, 100, 1, ""));
    EXPECT_UINT("and nothing is said of it", 0, kv_feed_ask(&s.feed[0], 0));
    stop(&s);
}

static void a_fault_restarts_after_so_many_batches(void)
{
    struct scene s;
    json_t *dump;

    prepare(&s);
    start(&s, (const char *const[]){"events-restart=3,count=1", NULL});
    for (uint32_t k = 1; k < 4; k++)
        complete(&s, k, 100, 1, "");
    dump = ask(&s, "GET", "/sim/cache?tokens=true", "", NULL);
    EXPECT_INT("from 0", 0, json_integer_value(json_object_get(json_object_get(dump, "0"), "next")));
    EXPECT_UINT("an empty cache", 0, json_array_size(json_object_get(json_object_get(dump, "0"), "gpu")));
    json_decref(dump);
    for (uint32_t k = 1; k < 8; k++)
        complete(&s, k, 100, 1, "");
    compare(&s);
    EXPECT_UINT("once", 7, s.feed[0].next);
    dump = ask(&s, "GET", "/sim/cache?tokens=true", "", NULL);
    EXPECT_UINT("tokens are told", 32,
                json_array_size(json_array_get(
                    json_array_get(json_object_get(json_object_get(dump, "0"), "gpu"), 0), 5)));
    json_decref(dump);
    stop(&s);
}

static void a_forced_reset_leaves_nothing_of_running_requests(void)
{
    struct scene s;
    struct wp_buf b = {0};
    char *body;
    int fd;

    prepare(&s);
    s.conf.cost.profile.speed = 0.2; /* three hundred tokens take many seconds */
    start(&s, NULL);
    put_prompt(&b, 1, 0, 100);
    body = end_body(&b, 300, ",\"stream\":true");
    fd = wp_rig_send(&s.rig, "POST", "/v1/completions", "Content-Type: application/json\r\n", body, strlen(body));
    EXPECT_TRUE("it answers", wp_rig_metric_becomes(&s.rig, "vllm:generation_tokens_total", "", 1) ||
                                  wp_rig_metric(&s.rig, "vllm:generation_tokens_total", "") > 1);
    json_decref(ask(&s, "POST", "/reset_prefix_cache?reset_running_requests=true", "", NULL));
    close(fd);
    EXPECT_TRUE("it is gone", wp_rig_metric_becomes(&s.rig, "vllm:num_requests_running", "", 0));
    complete(&s, 2, 40, 1, "");
    EXPECT_UINT("nothing waits", 0, compare(&s));
    EXPECT_UINT("cleared once", 1, s.feed[0].cleared);
    EXPECT_UINT("one block is held", 1, s.feed[0].held[0].n);
    wp_buf_fini(&b);
    stop(&s);
}

/* ---- addresses ---- */

static void endpoints_follow_vllms_rules(void)
{
    static const struct {
        const char *endpoint;
        uint32_t rank;
        const char *want; /* NULL: refused */
        bool binds;
    } cases[] = {
        {"tcp://*:5557", 0, "tcp://*:5557", true},
        {"tcp://*:5557", 3, "tcp://*:5560", true},
        {"tcp://[::]:5557", 1, "tcp://[::]:5558", true},
        {"tcp://0.0.0.0:5557", 1, "tcp://0.0.0.0:5558", false},
        {"tcp://127.0.0.1:*", 2, "tcp://127.0.0.1:*", true},
        {"tcp://router:5557", 0, "tcp://router:5557", false},
        {"tcp://router:65535", 1, NULL, false},
        {"tcp://router", 1, NULL, false},
        {"inproc://x", 2, "inproc://x_dp2", true},
        {"ipc:///run/kv", 0, "ipc:///run/kv", true},
        {"ipc:///run/kv", 1, NULL, true},
        {"nonsense", 0, NULL, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_err err = WP_ERR_INIT;
        char out[64];
        int rc = wp_publish_shift(cases[i].endpoint, cases[i].rank, out, sizeof out, &err);

        EXPECT_TRUE(cases[i].endpoint, wp_publish_binds(cases[i].endpoint) == cases[i].binds);
        EXPECT_TRUE(cases[i].endpoint, (rc == 0) == (cases[i].want != NULL));
        if (rc == 0 && cases[i].want)
            EXPECT_TEXT(cases[i].endpoint, cases[i].want, wp_str_of(out));
    }
}

static void an_engine_that_cannot_publish_does_not_start(void)
{
    static const char *const bad[][2] = {{"tcp://*:1x", NULL}, {"ipc:///x", NULL}, {"tcp://127.0.0.1:*", "udp://x"}};
    long before = wp_mem_live();

    for (size_t i = 0; i < 3; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_engine *e = NULL;
        struct wp_loop loop;
        struct scene s;

        prepare(&s);
        s.conf.ranks = 2;
        s.events.endpoint = bad[i][0];
        s.events.replay = bad[i][1];
        EXPECT_INT("loop", 0, wp_loop_init(&loop, &err));
        EXPECT_TRUE(bad[i][0], wp_engine_create(&e, &loop, &s.conf, &err) < 0 && err.text[0]);
        wp_loop_stop(&loop);
        EXPECT_INT("every handle is closed", 0, wp_loop_run(&loop));
        wp_loop_fini(&loop);
        EXPECT_INT("nothing leaks", before, wp_mem_live());
    }
}

/* A publisher that connects to a subscriber that binds, as its endpoint says. */
static void connects_where_nothing_says_bind(void)
{
    void *context = zmq_ctx_new(), *sub = zmq_socket(context, ZMQ_SUB);
    zmq_pollitem_t item = {.socket = sub, .events = ZMQ_POLLIN};
    char endpoint[64];
    size_t n = sizeof endpoint;
    struct scene s;
    zmq_msg_t m;

    zmq_setsockopt(sub, ZMQ_SUBSCRIBE, "", 0);
    EXPECT_INT("bind", 0, zmq_bind(sub, "tcp://127.0.0.1:*"));
    zmq_getsockopt(sub, ZMQ_LAST_ENDPOINT, endpoint, &n);
    prepare(&s);
    s.events.endpoint = endpoint;
    wp_rig_start_conf(&s.rig, &s.conf, NULL);
    s.ranks = 0;
    for (uint32_t k = 1; k < 1000; k++) { /* what is said before it is connected may be lost */
        complete(&s, k, 40, 1, "");
        if (zmq_poll(&item, 1, 20) > 0)
            break;
    }
    zmq_msg_init(&m);
    EXPECT_TRUE("heard", zmq_msg_recv(&m, sub, ZMQ_DONTWAIT) > 3 && memcmp(zmq_msg_data(&m), "kv@", 3) == 0);
    zmq_msg_close(&m);
    stop(&s);
    zmq_close(sub);
    zmq_ctx_term(context);
}

static const struct wp_test tests[] = {
    {"announces what vLLM announced", announces_what_vllm_announced},
    {"removals come before the stores that they made room for", removals_come_before_the_stores_that_they_made_room_for},
    {"moves down are announced in either order", moves_down_are_announced_in_either_order},
    {"a reset is announced with the next step", a_reset_is_announced_with_the_next_step},
    {"caches what the captured engines cached", caches_what_the_captured_engines_cached},
    {"whoever counts knows what it holds", whoever_counts_knows_what_it_holds},
    {"replays with the frames of the fixture", replays_with_the_frames_of_the_fixture},
    {"replay reaches back as far as its buffer", replay_reaches_back_as_far_as_its_buffer},
    {"losses, doubles and swaps are mended by replay", losses_doubles_and_swaps_are_mended_by_replay},
    {"a skipped number is lost for good", a_skipped_number_is_lost_for_good},
    {"a restart begins at zero and tells nobody", a_restart_begins_at_zero_and_tells_nobody},
    {"a fault restarts after so many batches", a_fault_restarts_after_so_many_batches},
    {"a forced reset leaves nothing of running requests", a_forced_reset_leaves_nothing_of_running_requests},
    {"endpoints follow vLLM's rules", endpoints_follow_vllms_rules},
    {"an engine that cannot publish does not start", an_engine_that_cannot_publish_does_not_start},
    {"connects where nothing says bind", connects_where_nothing_says_bind},
    {NULL, NULL},
};
const struct wp_suite suite_simevents = {"simevents", tests};
