/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/kvscene.h"

#include "tests/lib/test.h"

static const char *const adapters[] = {"ad1", "ad2"};

void kv_scene_prepare(struct kv_scene *s)
{
    memset(s, 0, sizeof *s);
    wp_rig_conf(&s->conf, 5000);
    s->conf.hash_seed = 11;
    s->conf.adapter = adapters;
    s->conf.n_adapters = 2;
    s->events =
        (struct wp_engine_events){.endpoint = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*"};
    s->conf.events = &s->events;
    s->ranks = 1;
}

json_t *kv_scene_ask(struct kv_scene *s, const char *method, const char *path, const char *headers,
                     const char *body)
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

void kv_scene_start(struct kv_scene *s, const char *const faults[])
{
    static const char *const name[] = {"0", "1", "2"};
    json_t *sources;
    struct wp_buf topic = {0};

    s->conf.ranks = s->ranks;
    wp_rig_start_conf(&s->rig, &s->conf, faults);
    sources = kv_scene_ask(s, "GET", "/kv_event_sources", "", NULL);
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
        kv_feed_open(f, text_at(sources, name[i], "endpoint"),
                     text_at(sources, name[i], "replay_endpoint"));
    }
    wp_buf_fini(&topic);
    json_decref(sources);
}

void kv_scene_stop(struct kv_scene *s)
{
    for (uint32_t i = 0; i < s->ranks; i++)
        kv_feed_close(&s->feed[i]);
    wp_rig_stop(&s->rig);
}

/* Every rank's feed up to what the engine says, then against what it holds.  Returns the changes
 * that wait. */
uint64_t kv_scene_compare(struct kv_scene *s)
{
    static const char *const name[] = {"0", "1", "2"};
    json_t *dump = kv_scene_ask(s, "GET", "/sim/cache", "", NULL);
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

uint32_t kv_token(uint32_t line, uint32_t i)
{
    return 1000 + (line * 7919 + i * 104729) % 100000;
}

/* n tokens: `shared` of a common head, then of this line. */
void kv_put_prompt(struct wp_buf *b, uint32_t line, uint32_t shared, uint32_t n)
{
    wp_buf_adds(b, "{\"prompt\":[");
    for (uint32_t i = 0; i < n; i++)
        wp_buf_printf(b, "%s%u", i ? "," : "", kv_token(i < shared ? 0 : line, i));
    wp_buf_adds(b, "]");
}

char *kv_end_body(struct wp_buf *b, uint32_t output, const char *more)
{
    wp_buf_printf(b, ",\"max_tokens\":%u%s}", output, more);
    wp_buf_add(b, "", 1);
    return b->p;
}

uint32_t kv_cached(const json_t *answer)
{
    return (uint32_t)json_integer_value(
        json_object_get(json_object_get(json_object_get(answer, "usage"), "prompt_tokens_details"),
                        "cached_tokens"));
}

uint32_t kv_scene_complete(struct kv_scene *s, uint32_t line, uint32_t n, uint32_t output,
                           const char *more)
{
    struct wp_buf b = {0};
    json_t *v;
    uint32_t cached;

    kv_put_prompt(&b, line, 0, n);
    v = kv_scene_ask(s, "POST", "/v1/completions", "Content-Type: application/json\r\n",
                     kv_end_body(&b, output, more));
    cached = kv_cached(v);
    json_decref(v);
    wp_buf_fini(&b);
    return cached;
}
