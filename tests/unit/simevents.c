/* SPDX-License-Identifier: Apache-2.0 */
/* The KV events of the simulated engine, over real ZeroMQ sockets: whoever counts what it announces
 * knows what it holds. */
#include "tests/lib/kvscene.h"
#include "tests/lib/test.h"

#include <unistd.h>
#include <zmq.h>

/* ---- what is announced ---- */

static void expect_log(const struct kv_feed *f, const char *want)
{
    EXPECT_TEXT("batches", want, wp_buf_str(&f->log));
}

/* The steps of the captured engine with prompts of exact multiples, and the shapes that it
 * announced. */
static void announces_what_vllm_announced(void)
{
    struct kv_scene s;

    kv_scene_prepare(&s);
    kv_scene_start(&s, NULL);
    kv_scene_complete(&s, 1, 122, 16,
                      ""); /* three blocks of the prompt, one more while it answers */
    kv_scene_complete(&s, 901, 96, 1, ""); /* an exact multiple */
    kv_scene_complete(&s, 901, 96, 1, ""); /* its last block again: a copy */
    kv_scene_complete(&s, 901, 97, 1, ""); /* nothing new */
    EXPECT_UINT("salted", 0, kv_scene_complete(&s, 902, 99, 1, ",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT("not salted", 0, kv_scene_complete(&s, 902, 99, 1, ""));
    EXPECT_UINT("salted again", 96,
                kv_scene_complete(&s, 902, 99, 1, ",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT(
        "an adapter", 0,
        kv_scene_complete(&s, 902, 99, 1, ",\"model\":\"ad1\",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT(
        "the adapter again", 96,
        kv_scene_complete(&s, 902, 99, 1, ",\"model\":\"ad1\",\"cache_salt\":\"tenant-a\""));
    EXPECT_UINT("nothing waits", 0, kv_scene_compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 S1\n2 S3\n3 S1\n4 S3\n5 S3\n6 S3\n");
    kv_scene_stop(&s);
}

static void removals_come_before_the_stores_that_they_made_room_for(void)
{
    struct kv_scene s;

    kv_scene_prepare(&s);
    s.conf.cost.tier_blocks[0] = 8;
    s.conf.max_model_len = 256;
    kv_scene_start(&s, NULL);
    kv_scene_complete(&s, 1, 100, 1, "");
    kv_scene_complete(&s, 2, 100, 1, "");
    kv_scene_complete(&s, 3, 100, 1, "");
    EXPECT_UINT("nothing waits", 0, kv_scene_compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 S3\n2 R1 R1 S3\n");
    kv_scene_stop(&s);
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
        struct kv_scene s;

        kv_scene_prepare(&s);
        s.conf.cost.tier_blocks[0] = 8;
        s.conf.cost.tier_blocks[1] = 8;
        s.conf.max_model_len = 256;
        s.conf.remove_first = cases[i].remove_first;
        s.events.tier_only = cases[i].tier_only;
        kv_scene_start(&s, NULL);
        for (uint32_t line = 1; line < 4; line++)
            kv_scene_complete(&s, line, 100, 1, "");
        EXPECT_UINT("nothing waits", 0, kv_scene_compare(&s));
        expect_log(&s.feed[0], cases[i].want);
        kv_scene_stop(&s);
    }
}

static void a_reset_is_announced_with_the_next_step(void)
{
    struct kv_scene s;

    kv_scene_prepare(&s);
    kv_scene_start(&s, NULL);
    kv_scene_complete(&s, 1, 100, 1, "");
    json_decref(kv_scene_ask(&s, "POST", "/reset_prefix_cache", "", NULL));
    json_decref(kv_scene_ask(&s, "POST", "/reset_prefix_cache", "", NULL));
    EXPECT_UINT("two clears wait", 2, kv_scene_compare(&s));
    EXPECT_UINT("nothing is left", 0, kv_scene_complete(&s, 1, 100, 1, ""));
    EXPECT_UINT("nothing waits", 0, kv_scene_compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 C C S3\n");
    kv_scene_complete(&s, 1, 101, 1, ""); /* a step that changes nothing says nothing */
    json_decref(kv_scene_ask(&s, "POST", "/reset_prefix_cache", "", NULL));
    kv_scene_complete(&s, 1, 10, 1, ""); /* a step that changes nothing, but a clear was waiting */
    EXPECT_UINT("nothing waits", 0, kv_scene_compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 C C S3\n2 C\n");
    kv_scene_stop(&s);
}

/* ---- a random life ---- */

static json_t *random_body(struct kv_scene *s, struct wp_buf *b, json_t *before)
{
    static const char *const more[] = {"",
                                       "",
                                       "",
                                       "",
                                       ",\"n\":2",
                                       ",\"cache_salt\":\"a\"",
                                       ",\"model\":\"ad1\"",
                                       ",\"model\":\"ad2\",\"cache_salt\":\"b\""};
    struct wp_rng *r = &s->rng;
    uint32_t n = 1 + (uint32_t)wp_rng_below(r, 12) * 16 + (uint32_t)wp_rng_below(r, 2) * 15;
    const json_t *said =
        json_object_get(json_array_get(json_object_get(before, "choices"), 0), "token_ids");
    json_t *t;
    size_t i;

    kv_put_prompt(b, 1 + (uint32_t)wp_rng_below(r, 6), (uint32_t)wp_rng_below(r, 4) * 32, n);
    if (json_array_size(said) && wp_rng_below(r, 2)) {
        /* on with the last conversation */
        b->n = 0;
        wp_buf_adds(b, "{\"prompt\":[");
        json_array_foreach(json_object_get(json_array_get(json_object_get(before, "choices"), 0),
                                           "prompt_token_ids"),
                           i, t) wp_buf_printf(b, "%lld,", json_integer_value(t));
        json_array_foreach(said, i, t) wp_buf_printf(b, "%lld,", json_integer_value(t));
        wp_buf_printf(b, "%u]", kv_token(7, n));
    }
    wp_buf_adds(b, ",\"return_token_ids\":true");
    kv_end_body(b, 1 + (uint32_t)wp_rng_below(r, 70), more[wp_rng_below(r, 8)]);
    json_decref(before);
    return NULL;
}

static json_t *one_request(struct kv_scene *s, json_t *before)
{
    struct wp_buf b = {0};
    char rank[64] = "Content-Type: application/json\r\n";
    json_t *v;

    if (json_array_size(json_object_get(before, "choices")) &&
        json_array_size(json_object_get(json_array_get(json_object_get(before, "choices"), 0),
                                        "prompt_token_ids")) > 250) {
        json_decref(before);
        before = NULL;
    }
    random_body(s, &b, before);
    if (s->ranks > 1 && wp_rng_below(&s->rng, 2))
        snprintf(rank, sizeof rank,
                 "Content-Type: application/json\r\nX-data-parallel-rank: %u\r\n",
                 (unsigned)wp_rng_below(&s->rng, s->ranks));
    v = kv_scene_ask(s, "POST", "/v1/completions", rank, b.p);
    wp_buf_fini(&b);
    return v;
}

/* Some at once; one of them is cut off at once, so it may or may not come to anything. */
static void a_few_at_once(struct kv_scene *s)
{
    enum { FEW = 5 };
    struct wp_rig_answer a;
    int fd[FEW];

    for (int i = 0; i < FEW; i++) {
        struct wp_buf b = {0};

        random_body(s, &b, NULL);
        fd[i] = wp_rig_send(&s->rig, "POST", "/v1/completions",
                            "Content-Type: application/json\r\n", b.p, strlen(b.p));
        wp_buf_fini(&b);
    }
    close(fd[0]);
    for (int i = 1; i < FEW; i++) {
        wp_rig_receive(fd[i], &a);
        EXPECT_INT("status", 200, a.status);
        wp_rig_answer_fini(&a);
    }
    EXPECT_TRUE("all have gone",
                wp_rig_metric_becomes(&s->rig, "vllm:num_requests_running", "engine=\"0\"", 0));
    for (uint32_t i = 1; i < s->ranks; i++) {
        char label[32];

        snprintf(label, sizeof label, "engine=\"%u\"", i);
        EXPECT_TRUE("all have gone",
                    wp_rig_metric_becomes(&s->rig, "vllm:num_requests_running", label, 0));
    }
}

static void live(struct kv_scene *s, int steps)
{
    json_t *last = NULL;

    for (int i = 0; i < steps; i++) {
        uint64_t what = wp_rng_below(&s->rng, 40);

        if (what == 0)
            json_decref(kv_scene_ask(s, "POST", "/reset_prefix_cache", "", NULL));
        else if (what < 6)
            a_few_at_once(s);
        else
            last = one_request(s, last);
        kv_scene_compare(s);
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
        struct kv_scene s;
        uint64_t stored = 0, removed = 0;

        kv_scene_prepare(&s);
        memcpy(s.conf.cost.tier_blocks, lives[i].tier, sizeof lives[i].tier);
        s.conf.max_model_len = 600;
        s.conf.no_copies = lives[i].no_copies;
        s.conf.remove_first = lives[i].remove_first;
        s.events.as_array = s.events.bare_replies = lives[i].as_array;
        s.events.hash_bytes = lives[i].hash_bytes;
        s.events.tier_only = lives[i].tier_only;
        s.ranks = lives[i].ranks;
        s.rng.state = lives[i].seed;
        kv_scene_start(&s, NULL);
        live(&s, 70);
        for (uint32_t k = 0; k < s.ranks; k++) {
            stored += s.feed[k].stores;
            removed += s.feed[k].removals;
            EXPECT_TRUE(lives[i].label, s.feed[k].live > 10);
            EXPECT_UINT("nothing is missed but at the start", 0, s.feed[k].gaps);
        }
        EXPECT_TRUE(lives[i].label, stored > 150 && removed > 100);
        kv_scene_stop(&s);
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
            EXPECT_TRUE(label,
                        text && zmq_msg_size(&m) == n && memcmp(zmq_msg_data(&m), want, n) == 0);
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
        const json_t *want = json_object_get(wire, bare ? "dealer_receives_without_topic"
                                                        : "dealer_receives_with_topic");
        struct kv_scene s;
        size_t i;

        kv_scene_prepare(&s);
        s.events.topic = "kv@10.0.0.7:8000@Qwen/Qwen3-8B";
        s.events.bare_replies = bare;
        kv_scene_start(&s, NULL);
        for (uint32_t k = 1; k < 4; k++)
            kv_scene_complete(&s, k, 100, 1, "");
        json_array_foreach(json_object_get(wire, "ignored_requests"), i, ignored)
            send_frames(s.feed[0].dealer, ignored);
        send_frames(s.feed[0].dealer, json_array_get(json_object_get(wire, "dealer_sends"), 0));
        EXPECT_UINT("a batch and the end", 2, json_array_size(want));
        expect_message(s.feed[0].dealer, "batch 2", json_array_get(want, 0));
        expect_message(s.feed[0].dealer, "end", json_array_get(want, 1));
        kv_scene_stop(&s);
    }
    json_decref(wire);
    wp_free(text);
}

static void replay_reaches_back_as_far_as_its_buffer(void)
{
    struct kv_scene s;

    kv_scene_prepare(&s);
    s.events.buffer = 4;
    kv_scene_start(&s, NULL);
    EXPECT_UINT("nothing yet", 0, kv_feed_ask(&s.feed[0], 0));
    for (uint32_t k = 1; k < 4; k++)
        kv_scene_complete(&s, k, 100, 1, "");
    EXPECT_UINT("all three", 3, kv_feed_ask(&s.feed[0], 0));
    for (uint32_t k = 4; k < 11; k++)
        kv_scene_complete(&s, k, 100, 1, "");
    s.feed[0].holes_ok = true;
    EXPECT_UINT("the last four of ten", 4, kv_feed_ask(&s.feed[0], 0));
    EXPECT_UINT("three were lost", 3, s.feed[0].holes);
    EXPECT_UINT("the newest", 1, kv_feed_ask(&s.feed[0], 9));
    EXPECT_UINT("none of the future", 0, kv_feed_ask(&s.feed[0], 10));
    kv_scene_stop(&s);
}

/* ---- what goes wrong on purpose ---- */

static void losses_doubles_and_swaps_are_mended_by_replay(void)
{
    static const char *const faults[] = {"lose=0.2", "double=0.2", "reorder=0.2", NULL};
    struct kv_scene s;

    kv_scene_prepare(&s);
    memcpy(s.conf.cost.tier_blocks, (uint64_t[3]){24, 12, 0}, sizeof s.conf.cost.tier_blocks);
    s.conf.max_model_len = 600;
    s.rng.state = 9;
    s.conf.seed = 3;
    kv_scene_start(&s, faults);
    s.feed[0].lossy = true;
    live(&s, 60);
    EXPECT_TRUE("some had to be asked for", s.feed[0].replayed > 5);
    EXPECT_TRUE("some came late", s.feed[0].late > 5);
    kv_scene_stop(&s);
}

static void a_skipped_number_is_lost_for_good(void)
{
    struct kv_scene s;

    kv_scene_prepare(&s);
    kv_scene_start(&s, (const char *const[]){"skip=1,every=2", NULL});
    s.feed[0].holes_ok = s.feed[0].lossy = true;
    for (uint32_t k = 1; k < 7; k++)
        kv_scene_complete(&s, k, 100, 1, "");
    kv_feed_to(&s.feed[0], 6);
    expect_log(&s.feed[0], "0 S3\n2 S3\n4 S3\n");
    EXPECT_UINT("holes", 3, s.feed[0].holes);
    kv_scene_stop(&s);
}

static void a_restart_begins_at_zero_and_tells_nobody(void)
{
    struct kv_scene s;

    kv_scene_prepare(&s);
    kv_scene_start(&s, NULL);
    for (uint32_t k = 1; k < 4; k++)
        kv_scene_complete(&s, k, 100, 1, "");
    kv_scene_compare(&s);
    json_decref(kv_scene_ask(&s, "POST", "/sim/events/restart", "", NULL));
    kv_feed_forget(&s.feed[0]);
    EXPECT_UINT("the cache is empty", 0, kv_scene_complete(&s, 1, 100, 1, ""));
    EXPECT_UINT("nothing waits", 0, kv_scene_compare(&s));
    expect_log(&s.feed[0], "0 S3\n1 S3\n2 S3\n0 S3\n");
    json_decref(kv_scene_ask(&s, "POST", "/sim/events/restart?keep=true", "", NULL));
    kv_feed_forget(&s.feed[0]);
    EXPECT_UINT("now it is kept", 96, kv_scene_complete(&s, 1, 100, 1, ""));
    EXPECT_UINT("and nothing is said of it", 0, kv_feed_ask(&s.feed[0], 0));
    kv_scene_stop(&s);
}

static void a_fault_restarts_after_so_many_batches(void)
{
    struct kv_scene s;
    json_t *dump;

    kv_scene_prepare(&s);
    kv_scene_start(&s, (const char *const[]){"events-restart=3,count=1", NULL});
    for (uint32_t k = 1; k < 4; k++)
        kv_scene_complete(&s, k, 100, 1, "");
    dump = kv_scene_ask(&s, "GET", "/sim/cache?tokens=true", "", NULL);
    EXPECT_INT("from 0", 0,
               json_integer_value(json_object_get(json_object_get(dump, "0"), "next")));
    EXPECT_UINT("an empty cache", 0,
                json_array_size(json_object_get(json_object_get(dump, "0"), "gpu")));
    json_decref(dump);
    for (uint32_t k = 1; k < 8; k++)
        kv_scene_complete(&s, k, 100, 1, "");
    kv_scene_compare(&s);
    EXPECT_UINT("once", 7, s.feed[0].next);
    dump = kv_scene_ask(&s, "GET", "/sim/cache?tokens=true", "", NULL);
    EXPECT_UINT("tokens are told", 32,
                json_array_size(json_array_get(
                    json_array_get(json_object_get(json_object_get(dump, "0"), "gpu"), 0), 5)));
    json_decref(dump);
    kv_scene_stop(&s);
}

static void a_forced_reset_leaves_nothing_of_running_requests(void)
{
    struct kv_scene s;
    struct wp_buf b = {0};
    char *body;
    int fd;

    kv_scene_prepare(&s);
    s.conf.cost.profile.speed = 0.2; /* three hundred tokens take many seconds */
    kv_scene_start(&s, NULL);
    kv_put_prompt(&b, 1, 0, 100);
    body = kv_end_body(&b, 300, ",\"stream\":true");
    fd = wp_rig_send(&s.rig, "POST", "/v1/completions", "Content-Type: application/json\r\n", body,
                     strlen(body));
    EXPECT_TRUE("it answers",
                wp_rig_metric_becomes(&s.rig, "vllm:generation_tokens_total", "", 1) ||
                    wp_rig_metric(&s.rig, "vllm:generation_tokens_total", "") > 1);
    json_decref(
        kv_scene_ask(&s, "POST", "/reset_prefix_cache?reset_running_requests=true", "", NULL));
    close(fd);
    EXPECT_TRUE("it is gone", wp_rig_metric_becomes(&s.rig, "vllm:num_requests_running", "", 0));
    kv_scene_complete(&s, 2, 40, 1, "");
    EXPECT_UINT("nothing waits", 0, kv_scene_compare(&s));
    EXPECT_UINT("cleared once", 1, s.feed[0].cleared);
    EXPECT_UINT("one block is held", 1, s.feed[0].held[0].n);
    wp_buf_fini(&b);
    kv_scene_stop(&s);
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
    static const char *const bad[][2] = {
        {"tcp://*:1x", NULL}, {"ipc:///x", NULL}, {"tcp://127.0.0.1:*", "udp://x"}};
    long before = wp_mem_live();

    for (size_t i = 0; i < 3; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_engine *e = NULL;
        struct wp_loop loop;
        struct kv_scene s;

        kv_scene_prepare(&s);
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

/* Up to where libzmq begins: its memory is its own. */
static void an_engine_may_fail_at_every_allocation(void)
{
    long before = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_engine *e = NULL;
        struct wp_loop loop;
        struct kv_scene s;
        bool failed;
        int rc;

        kv_scene_prepare(&s);
        s.conf.ranks = 2;
        EXPECT_INT("loop", 0, wp_loop_init(&loop, &err));
        wp_mem_fail_after(nth);
        rc = wp_engine_create(&e, &loop, &s.conf, &err);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (rc == 0)
            wp_engine_destroy(e, NULL, NULL);
        wp_loop_stop(&loop);
        EXPECT_INT("every handle is closed", 0, wp_loop_run(&loop));
        wp_loop_fini(&loop);
        EXPECT_INT("nothing leaks", before, wp_mem_live());
        if (!failed) {
            EXPECT_INT("works in the end", 0, rc);
            break;
        }
    }
}

/* A publisher that connects to a subscriber that binds, as its endpoint says. */
static void connects_where_nothing_says_bind(void)
{
    void *context = zmq_ctx_new(), *sub = zmq_socket(context, ZMQ_SUB);
    zmq_pollitem_t item = {.socket = sub, .events = ZMQ_POLLIN};
    char endpoint[64];
    size_t n = sizeof endpoint;
    struct kv_scene s;
    zmq_msg_t m;

    zmq_setsockopt(sub, ZMQ_SUBSCRIBE, "", 0);
    EXPECT_INT("bind", 0, zmq_bind(sub, "tcp://127.0.0.1:*"));
    zmq_getsockopt(sub, ZMQ_LAST_ENDPOINT, endpoint, &n);
    kv_scene_prepare(&s);
    s.events.endpoint = endpoint;
    wp_rig_start_conf(&s.rig, &s.conf, NULL);
    s.ranks = 0;
    for (uint32_t k = 1; k < 1000; k++) { /* what is said before it is connected may be lost */
        kv_scene_complete(&s, k, 40, 1, "");
        if (zmq_poll(&item, 1, 20) > 0)
            break;
    }
    zmq_msg_init(&m);
    EXPECT_TRUE("heard",
                zmq_msg_recv(&m, sub, ZMQ_DONTWAIT) > 3 && memcmp(zmq_msg_data(&m), "kv@", 3) == 0);
    zmq_msg_close(&m);
    kv_scene_stop(&s);
    zmq_close(sub);
    zmq_ctx_term(context);
}

static const struct wp_test tests[] = {
    {"announces what vLLM announced", announces_what_vllm_announced},
    {"removals come before the stores that they made room for",
     removals_come_before_the_stores_that_they_made_room_for},
    {"moves down are announced in either order", moves_down_are_announced_in_either_order},
    {"a reset is announced with the next step", a_reset_is_announced_with_the_next_step},
    {"whoever counts knows what it holds", whoever_counts_knows_what_it_holds},
    {"replays with the frames of the fixture", replays_with_the_frames_of_the_fixture},
    {"replay reaches back as far as its buffer", replay_reaches_back_as_far_as_its_buffer},
    {"losses, doubles and swaps are mended by replay",
     losses_doubles_and_swaps_are_mended_by_replay},
    {"a skipped number is lost for good", a_skipped_number_is_lost_for_good},
    {"a restart begins at zero and tells nobody", a_restart_begins_at_zero_and_tells_nobody},
    {"a fault restarts after so many batches", a_fault_restarts_after_so_many_batches},
    {"a forced reset leaves nothing of running requests",
     a_forced_reset_leaves_nothing_of_running_requests},
    {"endpoints follow vLLM's rules", endpoints_follow_vllms_rules},
    {"an engine that cannot publish does not start", an_engine_that_cannot_publish_does_not_start},
    {"an engine may fail at every allocation", an_engine_may_fail_at_every_allocation},
    {"connects where nothing says bind", connects_where_nothing_says_bind},
    {NULL, NULL},
};
const struct wp_suite suite_simevents = {"simevents", tests};
