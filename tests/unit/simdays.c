/* SPDX-License-Identifier: Apache-2.0 */
/* The days of captured vLLM engines, played at the simulated one: what they found in their caches,
 * it finds. */
#include "tests/lib/kvscene.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct day {
    struct kv_scene s;
    json_t *expected; /* the steps' own numbers, by id */
    json_t *said;     /* by id: the prompt and the answer of each step */
    size_t probes;
    json_int_t differs; /* the step whose number is another one here; -1: none */
};

static json_t *step_of(const struct day *d, json_int_t id)
{
    json_t *step;
    size_t i;

    json_array_foreach(json_object_get(d->expected, "steps"), i,
                       step) if (json_integer_value(json_object_get(step, "id")) == id) return step;
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
        json_int_t of = json_integer_value(json_array_get(part, 1)),
                   n = json_integer_value(json_array_get(part, 2));
        bool made = strcmp(json_string_value(json_array_get(part, 0)), "gen") == 0;

        id_text(id, of);
        for (json_int_t k = 0; k < n; k++)
            json_array_append_new(
                ids, made ? json_integer(kv_token((uint32_t)of, (uint32_t)k))
                          : json_incref(json_array_get(json_object_get(d->said, id), (size_t)k)));
    }
    return ids;
}

static char *body_of(json_t *prompt, const json_t *max_tokens, const json_t *salt,
                     const json_t *adapter)
{
    json_t *body = json_pack("{s:o,s:O,s:b,s:b}", "prompt", prompt, "max_tokens", max_tokens,
                             "return_token_ids", 1, "ignore_eos", 1);
    char *text;

    if (salt)
        json_object_set(body, "cache_salt", (json_t *)salt);
    if (adapter)
        json_object_set(body, "model", (json_t *)adapter);
    text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static void play_step(struct day *d, json_int_t id)
{
    const json_t *step = step_of(d, id), *said;
    json_t *prompt = prompt_of(d, json_object_get(step, "prompt")), *v;
    char *body = body_of(prompt, json_object_get(step, "max_tokens"),
                         json_object_get(step, "cache_salt"), json_object_get(step, "lora"));
    char label[64], key[24], headers[96] = "Content-Type: application/json\r\n";

    if (json_object_get(step, "rank"))
        snprintf(headers, sizeof headers,
                 "Content-Type: application/json\r\nX-data-parallel-rank: %d\r\n",
                 (int)json_integer_value(json_object_get(step, "rank")));
    v = kv_scene_ask(&d->s, "POST", "/v1/completions", headers, body);
    snprintf(label, sizeof label, "step %lld: cached tokens", (long long)id);
    if (id != d->differs)
        EXPECT_INT(label, json_integer_value(json_object_get(step, "cached_tokens")), kv_cached(v));
    EXPECT_TRUE(label, kv_scene_compare(&d->s) == 0 || d->s.ranks > 1);
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
        char *body =
            body_of(prompt_of(d, parts), json_object_get(action, "max_tokens"), NULL, NULL);

        if (i < MOST)
            fd[i] = wp_rig_send(&d->s.rig, "POST", "/v1/completions",
                                "Content-Type: application/json\r\n", body, strlen(body));
        free(body);
    }
    for (i = 0; i < n && i < MOST; i++) {
        wp_rig_receive(fd[i], &a);
        EXPECT_INT("at once", 200, a.status);
        wp_rig_answer_fini(&a);
    }
    kv_scene_compare(&d->s);
}

static json_t *load(const char *path)
{
    size_t n;
    char *text = wp_test_data(path, &n);
    json_t *v = json_loadb(text ? text : "", text ? n : 0, 0, NULL);

    wp_free(text);
    return v;
}

static void restart(struct kv_scene *s)
{
    json_decref(kv_scene_ask(s, "POST", "/sim/events/restart", "", NULL));
    for (uint32_t i = 0; i < s->ranks; i++)
        kv_feed_forget(&s->feed[i]);
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
        else if (strstr(action, "reset"))
            json_decref(kv_scene_ask(&d->s, "POST", "/reset_prefix_cache", "", NULL));
        else if (strstr(action, "killed"))
            restart(&d->s);
    }
    json_decref(v);
}

/* The whole timelines: growing conversations, exact multiples, salts, eviction, copies, a reset.
 * What the real engine found in its cache, this one finds, at every step.  One differs: 0.23 evicts
 * by age alone, and so a block that has a name before one that never had, if that was freed later;
 * 0.32, and we, use up the nameless ones first. */
static void caches_what_the_captured_engines_cached(void)
{
    static const struct {
        const char *expected, *events;
        size_t probes;
        bool as_array;
        json_int_t differs;
    } days[] = {
        {"spec/real/vllm_0.32.0_expected.json", "spec/real/vllm_0.32.0_events.jsonl", 116, false,
         -1},
        {"spec/real/vllm_0.23.0_expected.json", "spec/real/vllm_0.23.0_events.jsonl", 112, true,
         52},
        {"spec/real/vllm_0.32.0_restart_expected.json",
         "spec/real/vllm_0.32.0_restart_events.jsonl", 45, false, -1},
        {"spec/real/vllm_0.32.0_lora_expected.json", "spec/real/vllm_0.32.0_lora_events.jsonl", 12,
         false, -1},
        {"spec/real/vllm_0.32.0_dp2_expected.json", "spec/real/vllm_0.32.0_dp2_events.jsonl", 8,
         false, -1},
    };

    for (size_t i = 0; i < sizeof days / sizeof days[0]; i++) {
        struct day d = {
            .expected = load(days[i].expected), .said = json_object(), .differs = days[i].differs};
        struct wp_str rest, line;
        size_t n;
        char *text = wp_test_data(days[i].events, &n);

        kv_scene_prepare(&d.s);
        d.s.conf.cost.block_size =
            (uint32_t)json_integer_value(json_object_get(d.expected, "block_size"));
        d.s.ranks = strstr(days[i].events, "dp2") ? 2 : 1;
        d.s.conf.cost.tier_blocks[0] =
            d.s.ranks == 2 ? 47 : 95; /* one less: vLLM keeps one for itself */
        d.s.conf.max_model_len = 0;
        d.s.events.as_array = d.s.events.bare_replies = days[i].as_array;
        kv_scene_start(&d.s, NULL);
        rest = (struct wp_str){text, text ? n : 0};
        while (wp_str_split(&rest, '\n', &line))
            play_line(&d, line);
        EXPECT_UINT(days[i].expected, days[i].probes, d.probes);
        kv_scene_stop(&d.s);
        wp_free(text);
        json_decref(d.expected);
        json_decref(d.said);
    }
}

static const struct wp_test tests[] = {
    {"caches what the captured engines cached", caches_what_the_captured_engines_cached},
    {NULL, NULL},
};
const struct wp_suite suite_simdays = {"simdays", tests};
