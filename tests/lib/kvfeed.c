/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/kvfeed.h"

#include "base/mem.h"
#include "index/identity.h"
#include "tests/lib/test.h"

#include <zmq.h>

/* ---- events ---- */

static const char *const stored_names[] = {
    "type",      "block_hashes",       "parent_block_hash",
    "token_ids", "block_size",         "lora_id",
    "medium",    "lora_name",          "extra_keys",
    "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"};
static const char *const removed_names[] = {"type", "block_hashes", "medium", "group_idx"};

static bool is_tag(const json_t *e, bool as_array, const char *tag)
{
    const char *s = json_string_value(as_array ? json_array_get(e, 0) : json_object_get(e, "type"));

    return s && strcmp(s, tag) == 0;
}

/* An event in either form as an object, after its members and their order were looked at. */
static json_t *named(const struct kv_feed *f, json_t *e, const char *const names[], size_t members)
{
    json_t *o = json_object();
    const char *k;
    json_t *v;
    size_t i = 0;

    EXPECT_UINT("members", members, f->as_array ? json_array_size(e) : json_object_size(e));
    if (f->as_array) {
        for (; i < members; i++)
            json_object_set(o, names[i], json_array_get(e, i));
        return o;
    }
    json_object_foreach(e, k, v)
    {
        if (i < members)
            EXPECT_TEXT("members in order", names[i++], wp_str_of(k));
        json_object_set(o, k, v);
    }
    return o;
}

static int tier_of(const json_t *e)
{
    static const char *const media[] = {"GPU", "CPU", "STORAGE"};
    const char *m = json_string_value(json_object_get(e, "medium"));

    for (int i = 0; m && i < 3; i++)
        if (strcmp(m, media[i]) == 0)
            return i;
    EXPECT_TRUE("a known medium", false);
    return 0;
}

static uint64_t number(const json_t *v)
{
    return (uint64_t)json_integer_value(v);
}

static void count(struct kv_feed *f, int tier, uint64_t hash, int by)
{
    uint64_t n = 0;

    wp_map_get(&f->held[tier], hash, &n);
    if (by < 0 && n == 0) {
        EXPECT_TRUE("nothing is removed that was not stored", f->holes > 0);
        return;
    }
    if (n + by == 0)
        wp_map_del(&f->held[tier], hash);
    else
        wp_map_put(&f->held[tier], hash, n + by);
}

/* The extra keys of block i must be: adapter, then, on a root, the salt.  Returns the salt. */
static struct wp_str salt_of(const json_t *e, size_t i, bool root)
{
    const json_t *keys = json_array_get(json_object_get(e, "extra_keys"), i);
    const char *adapter = json_string_value(json_object_get(e, "lora_name"));
    size_t at = adapter != NULL;

    if (adapter)
        EXPECT_TEXT("the adapter is a key", adapter,
                    wp_str_of(json_string_value(json_array_get(keys, 0))));
    EXPECT_TRUE("and has a number",
                json_is_integer(json_object_get(e, "lora_id")) == (adapter != NULL));
    EXPECT_TRUE("salts stand at roots", json_array_size(keys) <= at + root);
    EXPECT_TRUE("no keys are nil", json_is_null(keys) || json_array_size(keys) > 0);
    return wp_str_of(json_string_value(json_array_get(keys, at)));
}

/* What the tokens say that these blocks are called. */
static void learn(struct kv_feed *f, const json_t *e)
{
    const json_t *hashes = json_object_get(e, "block_hashes"),
                 *parent = json_object_get(e, "parent_block_hash"),
                 *ids = json_object_get(e, "token_ids");
    const char *adapter = json_string_value(json_object_get(e, "lora_name"));
    uint64_t last = 0, seed = 0, local, chain;
    uint32_t *token = wp_malloc(f->block_size * sizeof *token);
    bool root = json_is_null(parent);

    EXPECT_UINT("block size", f->block_size, number(json_object_get(e, "block_size")));
    EXPECT_UINT("tokens", json_array_size(hashes) * f->block_size, json_array_size(ids));
    EXPECT_UINT("a key a block", json_array_size(hashes),
                json_array_size(json_object_get(e, "extra_keys")));
    EXPECT_UINT("group", 0, number(json_object_get(e, "group_idx")));
    EXPECT_TEXT("kind", "full_attention",
                wp_str_of(json_string_value(json_object_get(e, "kv_cache_spec_kind"))));
    if (!root && (!wp_map_get(&f->chain, number(parent), &last) ||
                  !wp_map_get(&f->seed, number(parent), &seed)))
        EXPECT_TRUE("a known parent", f->holes > 0);
    for (size_t i = 0; i < json_array_size(hashes); i++) {
        uint64_t h = number(json_array_get(hashes, i));
        struct wp_str salt = salt_of(e, i, root);

        if (root)
            seed = wp_hash_seed(wp_str_of(adapter), salt);
        for (size_t k = 0; k < f->block_size; k++)
            token[k] = (uint32_t)number(json_array_get(ids, i * f->block_size + k));
        wp_hash_tokens(token, f->block_size, f->block_size, seed, &local, 1);
        chain = root ? local : wp_hash_next(last, local);
        wp_map_put(&f->chain, h, chain);
        wp_map_put(&f->seed, h, seed);
        last = chain;
        root = false;
    }
    wp_free(token);
}

static void stored(struct kv_feed *f, json_t *raw, json_t *e)
{
    static const char *const suffix[] = {"", "cpu", "disk"};
    size_t n, i;
    json_t *h;
    int tier;

    (void)raw;
    tier = tier_of(e);
    n = json_array_size(json_object_get(e, "block_hashes"));
    if (f->tier_only && tier > 0) {
        EXPECT_TRUE("no parent", json_is_null(json_object_get(e, "parent_block_hash")));
        EXPECT_UINT("no tokens", 0, json_array_size(json_object_get(e, "token_ids")));
        EXPECT_UINT("no size", 0, number(json_object_get(e, "block_size")));
    } else {
        learn(f, e);
    }
    json_array_foreach(json_object_get(e, "block_hashes"), i, h) count(f, tier, number(h), 1);
    f->stores += n;
    wp_buf_printf(&f->log, " S%zu%s", n, suffix[tier]);
}

static void removed(struct kv_feed *f, json_t *e)
{
    static const char *const suffix[] = {"", "cpu", "disk"};
    const json_t *hashes = json_object_get(e, "block_hashes");
    int tier = tier_of(e);

    EXPECT_UINT("a removal names one", 1, json_array_size(hashes));
    EXPECT_TRUE("its group is the store's",
                json_is_integer(json_object_get(e, "group_idx")) == !(f->tier_only && tier));
    count(f, tier, number(json_array_get(hashes, 0)), -1);
    f->removals++;
    wp_buf_printf(&f->log, " R1%s", suffix[tier]);
}

static void empty(struct kv_feed *f)
{
    for (int i = 0; i < 3; i++) {
        wp_map_fini(&f->held[i]);
        f->held[i] = (struct wp_map){0};
    }
}

static bool below_gpu(const struct kv_feed *f, const json_t *raw)
{
    const char *m =
        json_string_value(f->as_array ? json_array_get(raw, 6) : json_object_get(raw, "medium"));

    return f->tier_only && m && strcmp(m, "GPU") != 0;
}

static void apply_event(struct kv_feed *f, json_t *raw)
{
    json_t *e = NULL;

    if (is_tag(raw, f->as_array, "AllBlocksCleared")) {
        EXPECT_UINT("members", 1, f->as_array ? json_array_size(raw) : json_object_size(raw));
        empty(f);
        f->cleared++;
        wp_buf_adds(&f->log, " C");
    } else if (is_tag(raw, f->as_array, "BlockStored")) {
        e = named(f, raw, stored_names, f->as_array ? 12 : below_gpu(f, raw) ? 8 : 11);
        stored(f, raw, e);
    } else if (is_tag(raw, f->as_array, "BlockRemoved")) {
        const char *m = json_string_value(json_object_get(raw, "medium"));

        e = named(f, raw, removed_names,
                  f->as_array || !f->tier_only || !m || strcmp(m, "GPU") == 0 ? 4 : 3);
        removed(f, e);
    } else {
        EXPECT_TRUE("a known event", false);
    }
    json_decref(e);
}

/* A message's last three frames, in order or not. */
static void apply(struct kv_feed *f, uint64_t seq, const unsigned char *p, size_t n)
{
    json_t *batch, *e;
    size_t i;

    if (seq < f->next) {
        f->late++;
        return;
    }
    if (seq > f->next) {
        EXPECT_TRUE("no number is missing", f->holes_ok);
        f->holes += seq - f->next;
    }
    f->next = seq + 1;
    batch = kv_msgpack(p, n);
    EXPECT_TRUE("msgpack", batch && json_array_size(batch) == 3);
    EXPECT_TRUE("time goes on", json_real_value(json_array_get(batch, 0)) >= f->last_ts);
    f->last_ts = json_real_value(json_array_get(batch, 0));
    EXPECT_UINT("rank", f->rank, number(json_array_get(batch, 2)));
    EXPECT_TRUE("no batch is empty", json_array_size(json_array_get(batch, 1)) > 0);
    wp_buf_printf(&f->log, "%llu", (unsigned long long)seq);
    json_array_foreach(json_array_get(batch, 1), i, e) apply_event(f, e);
    wp_buf_adds(&f->log, "\n");
    json_decref(batch);
}

/* ---- sockets ---- */

enum { FRAMES = 6 };

struct message {
    zmq_msg_t frame[FRAMES];
    size_t n;
};

static bool receive(void *socket, int wait_ms, struct message *m)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};

    m->n = 0;
    if (zmq_poll(&item, 1, wait_ms) <= 0)
        return false;
    for (int more = 1; more && m->n < FRAMES; m->n++) {
        zmq_msg_init(&m->frame[m->n]);
        if (zmq_msg_recv(&m->frame[m->n], socket, 0) < 0)
            return false;
        more = zmq_msg_more(&m->frame[m->n]);
    }
    return true;
}

static void done(struct message *m)
{
    while (m->n > 0)
        zmq_msg_close(&m->frame[--m->n]);
}

static uint64_t number_in(struct message *m, size_t i)
{
    uint64_t x = 0;

    EXPECT_UINT("a number has eight bytes", 8, zmq_msg_size(&m->frame[i]));
    for (size_t k = 0; k < 8 && k < zmq_msg_size(&m->frame[i]); k++)
        x = x << 8 | ((unsigned char *)zmq_msg_data(&m->frame[i]))[k];
    return x;
}

static void expect_frame(const char *label, const char *want, struct message *m, size_t i)
{
    EXPECT_TEXT(label, want,
                ((struct wp_str){zmq_msg_data(&m->frame[i]), zmq_msg_size(&m->frame[i])}));
}

static void *dial(void *context, int type, const char *endpoint)
{
    void *s = zmq_socket(context, type);
    int none = 0, soon = 5;

    zmq_setsockopt(s, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(s, ZMQ_RECONNECT_IVL, &soon, sizeof soon);
    if (type == ZMQ_SUB)
        zmq_setsockopt(s, ZMQ_SUBSCRIBE, "", 0);
    EXPECT_INT(endpoint, 0, zmq_connect(s, endpoint));
    return s;
}

/* What is asked of a socket that is about to close is never answered: then it is asked again, on a
 * new connection. */
static bool request(struct kv_feed *f, uint64_t from, struct message *first)
{
    unsigned char bytes[8];

    for (int i = 7; i >= 0; i--, from >>= 8)
        bytes[i] = (unsigned char)from;
    for (int i = 0; i < 40; i++) {
        zmq_send(f->dealer, "", 0, ZMQ_SNDMORE);
        zmq_send(f->dealer, bytes, 8, 0);
        if (receive(f->dealer, 500, first))
            return true;
        zmq_close(f->dealer);
        f->dealer = dial(f->context, ZMQ_DEALER, f->replay);
    }
    return false;
}

size_t kv_feed_ask(struct kv_feed *f, uint64_t from)
{
    size_t n = 0, frames = f->bare ? 3 : 4;
    struct message m;

    for (bool more = request(f, from, &m); more; more = receive(f->dealer, 20000, &m)) {
        uint64_t seq;

        EXPECT_UINT("frames of a reply", frames, m.n);
        expect_frame("delimiter", "", &m, 0);
        seq = number_in(&m, frames - 2);
        if (seq == UINT64_MAX) {
            if (!f->bare)
                expect_frame("the end has no topic", "", &m, 1);
            expect_frame("nor a payload", "", &m, frames - 1);
            done(&m);
            return n;
        }
        if (!f->bare)
            expect_frame("topic", f->topic, &m, 1);
        f->replayed += seq >= f->next;
        apply(f, seq, zmq_msg_data(&m.frame[frames - 1]), zmq_msg_size(&m.frame[frames - 1]));
        n++;
        done(&m);
    }
    EXPECT_TRUE("a replay ends", false);
    return n;
}

static void take_live(struct kv_feed *f, struct message *m)
{
    uint64_t seq;

    EXPECT_UINT("frames", 3, m->n);
    expect_frame("topic", f->topic, m, 0);
    seq = number_in(m, 1);
    f->live += seq >= f->next;
    f->gaps += seq > f->next && f->first_live != UINT64_MAX;
    if (f->first_live == UINT64_MAX)
        f->first_live = seq;
    if (seq > f->next)
        kv_feed_ask(f, f->next);
    apply(f, seq, zmq_msg_data(&m->frame[2]), zmq_msg_size(&m->frame[2]));
}

void kv_feed_to(struct kv_feed *f, uint64_t n)
{
    struct message m;

    for (int i = 0; i < 200 && f->next < n; i++) {
        if (receive(f->sub, f->lossy || f->first_live == UINT64_MAX ? 20 : 2000, &m))
            take_live(f, &m);
        else if (kv_feed_ask(f, f->next) == 0 && f->holes_ok && f->next < n) {
            f->holes += n - f->next; /* the last numbers were used for nothing */
            f->next = n;
        }
        done(&m);
    }
    EXPECT_UINT("all batches came", n, f->next);
}

static void connect_both(struct kv_feed *f)
{
    f->sub = dial(f->context, ZMQ_SUB, f->endpoint);
    f->dealer = dial(f->context, ZMQ_DEALER, f->replay);
    f->first_live = UINT64_MAX;
}

void kv_feed_open(struct kv_feed *f, const char *endpoint, const char *replay)
{
    snprintf(f->endpoint, sizeof f->endpoint, "%s", endpoint);
    snprintf(f->replay, sizeof f->replay, "%s", replay);
    f->context = zmq_ctx_new();
    connect_both(f);
}

void kv_feed_forget(struct kv_feed *f)
{
    empty(f);
    f->next = 0;
    zmq_close(f->sub);
    zmq_close(f->dealer);
    connect_both(f);
}

void kv_feed_close(struct kv_feed *f)
{
    zmq_close(f->sub);
    zmq_close(f->dealer);
    zmq_ctx_term(f->context);
    empty(f);
    wp_map_fini(&f->chain);
    wp_map_fini(&f->seed);
    wp_buf_fini(&f->log);
}

/* ---- against the truth ---- */

static uint64_t text_number(const json_t *v)
{
    uint64_t x = 0;

    EXPECT_TRUE("a number as text", wp_str_u64(wp_str_of(json_string_value(v)), &x));
    return x;
}

static void expect_block(const struct kv_feed *f, int tier, const json_t *b)
{
    uint64_t hash = text_number(json_array_get(b, 0)), copies = 0, chain = 0;

    wp_map_get(&f->held[tier], hash, &copies);
    wp_map_get(&f->chain, hash, &chain);
    if (copies != number(json_array_get(b, 1)))
        EXPECT_UINT("copies", number(json_array_get(b, 1)), copies);
    if (chain != text_number(json_array_get(b, 2)))
        EXPECT_UINT("chain", text_number(json_array_get(b, 2)), chain);
}

size_t kv_feed_expect(const struct kv_feed *f, const json_t *rank)
{
    static const char *const tiers[] = {"gpu", "cpu", "disk"};
    size_t all = 0;

    for (int t = 0; t < 3; t++) {
        const json_t *blocks = json_object_get(rank, tiers[t]);
        json_t *b;
        size_t i;

        EXPECT_TRUE(tiers[t], json_is_array(blocks));
        EXPECT_UINT(tiers[t], json_array_size(blocks), f->held[t].n);
        json_array_foreach(blocks, i, b) expect_block(f, t, b);
        all += json_array_size(blocks);
    }
    return all;
}
