/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine.h"

#include "base/flags.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <signal.h>
#include <stdio.h>

enum { DRAIN_MS = 3000, DRAIN_STEP_MS = 20, FAULTS_MAX = 16, ADAPTERS_MAX = 64 };

/* clang-format off */
enum flag { F_LISTEN, F_MODEL, F_BLOCK, F_GPU, F_CPU, F_DISK, F_PROFILE, F_SPEED, F_SEED, F_LEN, F_FAULT,
            F_RANKS, F_ADAPTER, F_EVENTS, F_REPLAY, F_BUFFER, F_FORMAT, F_TOPIC, F_MODE, F_REPLIES, F_HASH_SEED, F_HASH_BYTES, F_TIER_ONLY,
            F_DEMOTE, F_NO_COPIES };
static const struct wp_flag flags[] = {
    [F_LISTEN]  = {"--listen", "ADDR", "where to serve; port 0: any free one (127.0.0.1:8000)"},
    [F_MODEL]   = {"--model", "NAME", "the served name (sim)"},
    [F_BLOCK]   = {"--block-size", "N", "tokens of a KV block (16)"},
    [F_GPU]     = {"--gpu-blocks", "N", "KV blocks on the GPU (the profile's capacity)"},
    [F_CPU]     = {"--cpu-blocks", "N", "KV blocks in host memory, 0: no such tier (the profile's capacity)"},
    [F_DISK]    = {"--disk-blocks", "N", "KV blocks on disk, 0: no such tier (0)"},
    [F_PROFILE] = {"--profile", "NAME|FILE", "model and GPU to imitate (the first known one)"},
    [F_SPEED]   = {"--speed", "X", "how much faster than the real one (1)"},
    [F_SEED]    = {"--seed", "N", "of what it says (0)"},
    [F_LEN]     = {"--max-model-len", "N", "longest context (the profile's)"},
    [F_FAULT]   = {"--fault", "SPEC", "fail on purpose, may be repeated: silent, slow-accept=MS, reset, status=CODE, stall, "
                                      "stall-prefill=TOKENS, error-first, die-after=TOKENS; of events: lose=P, double=P, reorder=P, "
                                      "skip=P, events-restart=BATCHES; each with ,every=K ,count=N"},
    [F_RANKS]   = {"--ranks", "N", "data-parallel ranks behind the one port, each with its own cache (1)"},
    [F_ADAPTER] = {"--adapter", "NAME", "a LoRA adapter to serve beside the model, may be repeated"},
    [F_EVENTS]  = {"--events", "ENDPOINT", "publish KV events there, as vLLM does: port + rank; binds when there is a * or :: in it"},
    [F_REPLAY]  = {"--replay", "ENDPOINT", "answer requests for what was missed there, port + rank"},
    [F_BUFFER]  = {"--replay-buffer", "N", "batches kept for that (10000)"},
    [F_FORMAT]  = {"--events-format", "map|array", "of vLLM 0.24 and later, or of 0.23; replay follows (map)"},
    [F_TOPIC]   = {"--events-topic", "T", "the first frame (kv@<ip:port>@<model>)"},
    [F_MODE]    = {"--events-mode", "auto|bind|connect", "who binds the event socket; auto: vLLM's rule (auto)"},
    [F_REPLIES] = {"--replay-form", "topic|bare", "replies with a topic frame, as from 0.26 on, or without (as the format)"},
    [F_HASH_SEED] = {"--hash-seed", "N", "of the announced hashes (another one in each process)"},
    [F_HASH_BYTES] = {"--hash-bytes", NULL, "announce hashes as 32 bytes, not as numbers"},
    [F_TIER_ONLY] = {"--tier-only", NULL, "announce stores below the GPU by hash only"},
    [F_DEMOTE]  = {"--demote", "store-first|remove-first", "how a move to a lower tier is announced (store-first)"},
    [F_NO_COPIES] = {"--no-copies", NULL, "keep each block once: no second one where vLLM computes it again"},
    {NULL, NULL, NULL},
};
/* clang-format on */

struct options {
    struct wp_engine_conf conf;
    const char *profile;
    uint64_t blocks[3], block_size, max_model_len;
    bool given[3];
    double speed;
    struct wp_fault fault[FAULTS_MAX];
    const char *adapter[ADAPTERS_MAX];
    struct wp_engine_events events;
    const char *replies;
    uint64_t buffer, ranks;
    bool hash_seeded;
};

/* One of the words; how many there are stands in the list, which ends with NULL. */
static int take_word(const struct wp_flag *f, const char *value, const char *const words[],
                     int *out, struct wp_err *err)
{
    for (*out = 0; words[*out]; ++*out)
        if (strcmp(words[*out], value) == 0)
            return 0;
    return wp_fail(err, WP_EUSAGE, "%s: want %s, got \"%.40s\"", f->name, f->arg, value);
}

static int take_event_flag(struct options *o, enum flag i, const char *value, struct wp_err *err)
{
    static const char *const formats[] = {"map", "array", NULL},
                             *const forms[] = {"topic", "bare", NULL},
                             *const modes[] = {"auto", "bind", "connect", NULL},
                             *const demotes[] = {"store-first", "remove-first", NULL};
    int k = 0, rc = 0;

    switch (i) {
    case F_EVENTS:
        o->events.endpoint = value;
        return 0;
    case F_REPLAY:
        o->events.replay = value;
        return 0;
    case F_BUFFER:
        return wp_flag_u64(&flags[i], value, 1, 10000000, &o->buffer, err);
    case F_FORMAT:
        rc = take_word(&flags[i], value, formats, &k, err);
        o->events.as_array = k == 1;
        return rc;
    case F_TOPIC:
        o->events.topic = value;
        return 0;
    case F_MODE:
        rc = take_word(&flags[i], value, modes, &k, err);
        o->events.mode = (enum wp_publish_mode)k;
        return rc;
    case F_REPLIES:
        o->replies = value;
        return take_word(&flags[i], value, forms, &k, err);
    case F_HASH_SEED:
        o->hash_seeded = true;
        return wp_flag_u64(&flags[i], value, 0, UINT64_MAX, &o->conf.hash_seed, err);
    case F_HASH_BYTES:
        o->events.hash_bytes = true;
        return 0;
    case F_TIER_ONLY:
        o->events.tier_only = true;
        return 0;
    default: /* F_DEMOTE */
        rc = take_word(&flags[i], value, demotes, &k, err);
        o->conf.remove_first = k == 1;
        return rc;
    }
}

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct options *o = arg;

    switch ((enum flag)i) {
    case F_LISTEN:
        o->conf.listen = wp_str_of(value);
        return 0;
    case F_MODEL:
        o->conf.model = value;
        return *value ? 0 : wp_fail(err, WP_EUSAGE, "--model: want a name");
    case F_BLOCK:
        return wp_flag_u64(&flags[i], value, 1, 65536, &o->block_size, err);
    case F_GPU:
    case F_CPU:
    case F_DISK:
        o->given[i - F_GPU] = true;
        return wp_flag_u64(&flags[i], value, i == F_GPU, 1u << 30, &o->blocks[i - F_GPU], err);
    case F_PROFILE:
        o->profile = value;
        return 0;
    case F_SPEED:
        return wp_flag_double(&flags[i], value, 0.001, 100000, &o->speed, err);
    case F_SEED:
        return wp_flag_u64(&flags[i], value, 0, UINT64_MAX, &o->conf.seed, err);
    case F_LEN:
        return wp_flag_u64(&flags[i], value, 2, UINT32_MAX, &o->max_model_len, err);
    case F_FAULT:
        if (o->conf.n_faults == FAULTS_MAX)
            return wp_fail(err, WP_EUSAGE, "--fault: at most %d", FAULTS_MAX);
        return wp_fault_parse(&o->fault[o->conf.n_faults++], wp_str_of(value), err);
    case F_RANKS:
        return wp_flag_u64(&flags[i], value, 1, WP_ENGINE_RANKS, &o->ranks, err);
    case F_ADAPTER:
        if (o->conf.n_adapters == ADAPTERS_MAX)
            return wp_fail(err, WP_EUSAGE, "--adapter: at most %d", ADAPTERS_MAX);
        o->adapter[o->conf.n_adapters++] = value;
        return *value ? 0 : wp_fail(err, WP_EUSAGE, "--adapter: want a name");
    case F_NO_COPIES:
        o->conf.no_copies = true;
        return 0;
    default:
        return take_event_flag(o, (enum flag)i, value, err);
    }
}

/* Flags to a configuration: what was not said comes from the profile. */
static int settle(struct options *o, struct wp_err *err)
{
    struct wp_model_conf *cost = &o->conf.cost;
    int rc = wp_profile_find(o->profile, &cost->profile, err);

    if (rc < 0)
        return rc;
    cost->profile.speed *= o->speed;
    cost->block_size = (uint32_t)o->block_size;
    cost->tier_blocks[0] = o->given[0] ? o->blocks[0] : cost->profile.gpu_tokens / o->block_size;
    cost->tier_blocks[1] = o->given[1] ? o->blocks[1] : cost->profile.cpu_tokens / o->block_size;
    cost->tier_blocks[2] = o->blocks[2];
    cost->disk_bytes_per_s = cost->profile.disk_bytes_per_s;
    cost->secret = wp_rng_secret();
    o->conf.fault = o->fault;
    o->conf.adapter = o->adapter;
    o->conf.ranks = (uint32_t)o->ranks;
    o->conf.max_model_len = (uint32_t)o->max_model_len;
    if (!o->hash_seeded)
        o->conf.hash_seed = wp_rng_secret();
    o->events.buffer = o->buffer;
    o->events.bare_replies = o->replies ? strcmp(o->replies, "bare") == 0 : o->events.as_array;
    if (o->events.endpoint)
        o->conf.events = &o->events;
    return o->events.replay && !o->events.endpoint
               ? wp_fail(err, WP_EUSAGE, "--replay: want --events too")
               : 0;
}

/* The process: from the first signal on it lets requests end, for a while; at the second it goes at
 * once. */
struct run {
    struct wp_loop loop;
    struct wp_engine *engine;
    uv_signal_t signal[2];
    struct wp_timer drain;
    uint64_t give_up_us;
    bool draining, ending;
};

static void on_engine_closed(void *arg)
{
    struct run *r = arg;

    wp_loop_stop(&r->loop);
}

static void end(struct run *r)
{
    if (r->ending)
        return;
    r->ending = true;
    wp_timer_stop(&r->loop, &r->drain);
    for (int i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&r->signal[i], NULL);
    wp_engine_destroy(r->engine, on_engine_closed, r);
}

static void on_drain(struct wp_timer *t)
{
    struct run *r = t->arg;

    if (wp_engine_exchanges(r->engine) == 0 || wp_loop_now_us(&r->loop) >= r->give_up_us)
        end(r);
    else
        wp_timer_in(&r->loop, &r->drain, DRAIN_STEP_MS * 1000);
}

static void on_signal(uv_signal_t *s, int number)
{
    struct run *r = s->data;

    (void)number;
    if (r->draining) {
        end(r);
        return;
    }
    r->draining = true;
    wp_engine_drain(r->engine);
    r->give_up_us = wp_loop_now_us(&r->loop) + DRAIN_MS * 1000;
    wp_timer_in(&r->loop, &r->drain, 0);
}

static int serve(struct run *r, const struct wp_engine_conf *conf, struct wp_err *err)
{
    static const int numbers[2] = {SIGTERM, SIGINT};
    int rc = wp_loop_init(&r->loop, err);

    if (rc < 0)
        return rc;
    rc = wp_engine_create(&r->engine, &r->loop, conf, err);
    if (rc < 0) {
        wp_loop_stop(&r->loop);
        wp_loop_run(&r->loop);
        wp_loop_fini(&r->loop);
        return rc;
    }
    wp_timer_init(&r->drain, on_drain, r);
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&r->loop.uv, &r->signal[i]);
        r->signal[i].data = r;
        uv_signal_start(&r->signal[i], on_signal, numbers[i]);
    }
    printf("listening on " WP_STR_FMT ":%u\n", (int)(strrchr(conf->listen.p, ':') - conf->listen.p),
           conf->listen.p, wp_engine_port(r->engine));
    fflush(stdout);
    rc = wp_loop_run(&r->loop);
    wp_loop_fini(&r->loop);
    return rc < 0 ? wp_fail(err, rc, "loop: %s", wp_strerror(rc)) : 0;
}

int wp_engine_main(int argc, char **argv)
{
    struct options o = {
        .conf = {.listen = WP_STR("127.0.0.1:8000"), .model = "sim"},
        .profile = wp_profile_name(0),
        .block_size = 16,
        .ranks = 1,
        .speed = 1,
    };
    struct wp_err err = WP_ERR_INIT;
    struct run *r = NULL;
    int rc = wp_flags(argc, argv, flags, take, NULL, &o, &err);

    if (rc > 0) {
        wp_flags_help(stdout, "engine [FLAG]...",
                      "A simulated inference engine behind vLLM's HTTP API.", flags);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    if (rc == 0)
        rc = settle(&o, &err);
    if (rc == 0) {
        r = wp_calloc(1, sizeof *r);
        rc = r ? serve(r, &o.conf, &err) : wp_fail(&err, WP_ENOMEM, "out of memory");
        wp_free(r);
    }
    if (rc < 0)
        fprintf(stderr, "warmpath engine: %s\n", err.text);
    return rc == 0 ? 0 : rc == WP_EUSAGE || rc == WP_EINVAL ? 2 : 1;
}
