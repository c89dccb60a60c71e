/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/decode.h"

#include "adapters/events/repeats.h"
#include "base/mem.h"
#include "base/rng.h"
#include "index/index.h"
#include "tests/lib/bytes.h"
#include "tests/lib/event_json.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>

/* --- fixtures --------------------------------------------------------------------------------- */

static json_t *load(const char *path)
{
    size_t n = 0;
    char *p = wp_test_data(path, &n);
    json_t *root = p ? json_loadb(p, n, 0, NULL) : NULL;

    wp_free(p);
    EXPECT_TRUE(path, root);
    return root;
}

/* A batch as JSON, its time as a real number. */
static void normalise(json_t *batch)
{
    json_object_set_new(batch, "ts", json_real(json_number_value(json_object_get(batch, "ts"))));
}

static void same(const char *label, const json_t *want, const json_t *got)
{
    json_t *w = json_deep_copy(want);
    char *a, *b;

    normalise(w);
    a = json_dumps(w, JSON_SORT_KEYS);
    b = got ? json_dumps(got, JSON_SORT_KEYS) : NULL;
    EXPECT_TEXT(label, a, wp_str_of(b));
    free(a);
    free(b);
    json_decref(w);
}

static void each_payload_has_its_verdict_and_its_batch(void)
{
    json_t *root = load("spec/expected.json");
    const char *file;
    json_t *entry;
    size_t accepted = 0, refused = 0;

    json_object_foreach(json_object_get(root, "payloads"), file, entry)
    {
        const char *verdict = json_string_value(json_object_get(entry, "verdict"));
        char path[256];
        size_t n = 0;
        char *p;
        json_t *got;

        snprintf(path, sizeof path, "spec/%s", file);
        p = wp_test_data(path, &n);
        got = wp_event_json((struct wp_str){p, n}, false);
        if (strcmp(verdict, "accept") == 0) {
            accepted++;
            same(file, json_object_get(entry, "batch"), got);
        } else {
            refused++;
            EXPECT_TEXT(file, json_string_value(json_object_get(entry, "reject_code")),
                        wp_str_of(json_string_value(json_object_get(got, "reject"))));
        }
        json_decref(got);
        wp_free(p);
    }
    EXPECT_UINT("accepted", 72, accepted);
    EXPECT_UINT("refused", 74, refused);
    json_decref(root);
}

static void no_fixture_is_left_out(void)
{
    json_t *root = load("spec/expected.json");
    const json_t *payloads = json_object_get(root, "payloads");
    const char *data = getenv("WP_TEST_DATA");
    char path[512];
    struct dirent *d;
    size_t n = 0;
    DIR *dir;

    snprintf(path, sizeof path, "%s/spec", data ? data : "tests/data");
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        const char *end = strrchr(d->d_name, '.');

        if (!end || strcmp(end, ".msgpack") != 0)
            continue;
        n++;
        EXPECT_TRUE(d->d_name, json_object_get(payloads, d->d_name));
    }
    if (dir)
        closedir(dir);
    EXPECT_UINT("files", json_object_size(payloads), n);
    json_decref(root);
}

/* --- captures --------------------------------------------------------------------------------- */

struct tally {
    size_t messages, stored, removed, cleared, usable, tokens, blocks, binary, decoded;
};

static void add_to(struct tally *t, struct wp_str payload)
{
    struct wp_event_scratch s = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;
    struct wp_event e;

    EXPECT_INT("an engine's payload is accepted", 0, wp_event_open(&b, payload, &err));
    t->messages++;
    t->stored += b.stored;
    t->removed += b.removed;
    t->cleared += b.cleared;
    while (wp_event_next(&b, &s, &e) > 0) {
        t->usable += e.kind == WP_EVENT_STORED && e.use == WP_EVENT_INDEX;
        t->tokens += e.n_tokens;
        t->blocks += e.n;
        t->binary += e.binary;
    }
    wp_event_scratch_fini(&s);
}

/* A line of a capture: its payload is the last frame, in hex or base64. */
static void add_line(const char *label, const json_t *line, struct tally *t)
{
    const json_t *frames = json_object_get(line, "frames");
    const json_t *last = json_array_get(frames, json_array_size(frames) - 1);
    const json_t *decoded = json_object_get(line, "decoded");
    struct wp_str text;
    char *p;
    size_t n;

    if (json_object_get(line, "payload"))
        last = json_object_get(line, "payload");
    if (!last)
        return;
    text = (struct wp_str){json_string_value(last), json_string_length(last)};
    p = wp_test_hex(text, &n);
    if (!p)
        p = wp_test_base64(text, &n);
    EXPECT_TRUE(label, p);
    if (!p)
        return;
    add_to(t, (struct wp_str){p, n});
    if (decoded) {
        json_t *got = wp_event_json((struct wp_str){p, n}, false);

        same(label, decoded, got);
        t->decoded++;
        json_decref(got);
    }
    wp_free(p);
}

static void captures_of_running_engines_are_read(void)
{
    /* clang-format off */
    static const struct {
        const char *name;
        struct tally t;
    } capture[] = { /*                   messages stored removed cleared usable tokens blocks binary decoded */
        {"sglang_0.5.15_0.5.18_array_events",{9, 9, 4, 2, 9, 226, 18, 0, 9}},
        {"sglang_0.5.23_events",             {25, 18, 8, 1, 18, 630, 73, 0, 25}},
        {"sglang_0.5.23_live",               {11, 11, 0, 1, 11, 432, 27, 0, 11}},
        {"vllm_0.23.0_events",               {134, 114, 139, 2, 114, 4624, 428, 0, 0}},
        {"vllm_0.32.0_bin_hashes_events",    {4, 4, 0, 0, 4, 1408, 11, 4, 0}},
        {"vllm_0.32.0_dp2_events",           {10, 14, 0, 2, 14, 1344, 42, 0, 0}},
        {"vllm_0.32.0_events",               {117, 110, 69, 1, 110, 8288, 328, 0, 0}},
        {"vllm_0.32.0_lora_events",          {7, 6, 0, 2, 6, 576, 18, 0, 0}},
        {"vllm_0.32.0_restart_events",       {37, 34, 15, 1, 34, 3744, 132, 0, 0}},
        {"vllm_0.32.0_window_events",        {31, 62, 154, 0, 31, 10240, 364, 0, 0}},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof capture / sizeof capture[0]; i++) {
        const struct tally *want = &capture[i].t;
        const char *name = capture[i].name;
        struct tally t = {0};
        char path[256];
        struct wp_str rest, line;
        size_t n = 0;
        char *p;

        snprintf(path, sizeof path, "spec/real/%s.jsonl", name);
        p = wp_test_data(path, &n);
        rest = (struct wp_str){p, n};
        while (wp_str_split(&rest, '\n', &line)) {
            json_t *o = line.n ? json_loadb(line.p, line.n, 0, NULL) : NULL;

            add_line(name, o, &t);
            json_decref(o);
        }
        wp_free(p);
        EXPECT_UINT(name, want->messages, t.messages);
        EXPECT_UINT(name, want->stored, t.stored);
        EXPECT_UINT(name, want->removed, t.removed);
        EXPECT_UINT(name, want->cleared, t.cleared);
        EXPECT_UINT(name, want->usable, t.usable);
        EXPECT_UINT(name, want->tokens, t.tokens);
        EXPECT_UINT(name, want->blocks, t.blocks);
        EXPECT_UINT(name, want->binary, t.binary);
        EXPECT_UINT(name, want->decoded, t.decoded);
    }
}

/* --- cases of others -------------------------------------------------------------------------- */

/* Opens tests/data/cases/kv/NAME.hex; *p is the caller's. */
static void open_case(const char *name, struct wp_event_batch *b, char **p)
{
    struct wp_err err = WP_ERR_INIT;
    char path[256];
    size_t n = 0;
    char *text;

    snprintf(path, sizeof path, "cases/kv/%s.hex", name);
    text = wp_test_data(path, &n);
    *p = wp_test_hex((struct wp_str){text, n}, &n);
    EXPECT_TRUE(name, *p);
    EXPECT_INT(name, 0, wp_event_open(b, (struct wp_str){*p, *p ? n : 0}, &err));
    wp_free(text);
}

static void cases_of_others_are_read(void)
{
    /* clang-format off */
    static const struct {
        const char *name;
        size_t stored, removed, cleared; /* events */
        /* the first event */
        size_t n, tokens;
        uint32_t block_size;
        uint64_t first, last; /* hashes */
        bool parent, binary;
        int rank;
    } cases[] = {
        {"B130",  1, 0, 0, 1, 64, 64, 11, 11, 0, 0, 0},
        {"B131a", 1, 0, 0, 4, 64, 16, 101, 104, 0, 0, 0},
        {"B131b", 1, 0, 0, 4, 64, 16, 901, 904, 0, 0, 0},
        {"B133",  1, 0, 0, 4, 64, 16, 11, 14, 0, 0, 0},
        {"B138",  1, 0, 0, 4, 64, 16, 11, 14, 0, 0, 0},
        {"B139a", 1, 0, 0, 4, 64, 16, UINT64_MAX, 6, 0, 0, 0},
        {"B139b", 1, 0, 0, 4, 64, 16, UINT64_MAX, 8, 0, 0, 0},
        {"B139c", 1, 0, 0, 4, 64, 16, 0x18191A1B1C1D1E1F, 0x1B1C1D1E1F202122, 0, 1, 0},
        {"B140a", 1, 0, 0, 4, 64, 16, 11, 14, 0, 0, 0},
        {"B140b", 0, 2, 0, 1, 0, 0, 12, 12, 0, 0, 0},
        {"B142",  3, 1, 1, 4, 64, 16, 11, 14, 0, 0, 0},
        {"B144",  1, 0, 0, 1, 16, 16, 42, 42, 1, 0, 0},
        {"B146",  0, 1, 0, 2, 0, 0, 777, 778, 0, 0, 0},
        {"B149",  1, 0, 0, 4, 64, 16, 11, 14, 0, 0, 1},
        {"B223",  1, 0, 0, 2, 32, 16, 101, 102, 0, 0, 0},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_event_scratch s = {0};
        struct wp_event_batch b;
        struct wp_event e = {0};
        const char *name = cases[i].name;
        char *p;

        open_case(name, &b, &p);
        EXPECT_UINT(name, cases[i].stored, b.stored);
        EXPECT_UINT(name, cases[i].removed, b.removed);
        EXPECT_UINT(name, cases[i].cleared, b.cleared);
        EXPECT_INT(name, cases[i].rank, b.has_rank ? (int)b.rank : -1);
        EXPECT_INT(name, 1, wp_event_next(&b, &s, &e));
        EXPECT_UINT(name, cases[i].n, e.n);
        EXPECT_UINT(name, cases[i].tokens, e.n_tokens);
        EXPECT_UINT(name, cases[i].tokens ? 1000 : 0,
                    e.n_tokens ? e.token[0] - (e.parent ? 16 : 0) : 0);
        EXPECT_UINT(name, cases[i].block_size, e.block_size);
        EXPECT_UINT(name, cases[i].first, e.n ? e.hash[0] : 0);
        EXPECT_UINT(name, cases[i].last, e.n ? e.hash[e.n - 1] : 0);
        EXPECT_INT(name, cases[i].parent, e.has_parent);
        EXPECT_INT(name, cases[i].binary, e.binary);
        EXPECT_INT(name, WP_EVENT_INDEX, e.use);
        EXPECT_INT(name, WP_EVENT_GPU, e.tier);
        wp_event_scratch_fini(&s);
        wp_free(p);
    }
}

/* --- bounds ----------------------------------------------------------------------------------- */

static int verdict(const struct wp_buf *b)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch batch;
    char *exact = wp_memdup(b->p, b->n);
    int rc = wp_event_open(&batch, (struct wp_str){exact, b->n}, &err);

    wp_free(exact);
    return rc;
}

static void nesting_ends_at_its_bound(void)
{
    for (size_t depth = 1; depth <= 70; depth++) {
        struct wp_buf b = {0};

        wp_buf_add(&b, "\x92\x00\x91\x92\xa1?", 6); /* [0, [["?", [[[...]]]]]]: three around it */
        for (size_t i = 3; i < depth; i++)
            wp_buf_add(&b, i + 1 < depth ? "\x91" : "\x90", 1);
        if (depth <= 3)
            wp_buf_add(&b, "\xc0", 1);
        EXPECT_INT("an array", depth <= WP_MSGPACK_DEPTH ? 0 : WP_EPROTO, verdict(&b));
        b.n = 6;
        for (size_t i = 3; i < depth; i++)
            wp_buf_add(&b, "\x81\xc0", i + 1 < depth ? 2 : 1);
        wp_buf_add(&b, "\xc0\xc0", depth <= 3 ? 1 : 2);
        EXPECT_INT("a map", depth <= WP_MSGPACK_DEPTH ? 0 : WP_EPROTO, verdict(&b));
        wp_buf_fini(&b);
    }
}

static void a_refused_payload_allocates_and_yields_nothing(void)
{
    json_t *root = load("spec/expected.json");
    const char *file;
    json_t *entry;

    json_object_foreach(json_object_get(root, "payloads"), file, entry)
    {
        struct wp_event_scratch s = {0};
        struct wp_err err = WP_ERR_INIT;
        struct wp_event_batch b;
        struct wp_event e;
        char path[256];
        size_t n = 0;
        char *p;
        long live;

        if (strcmp(json_string_value(json_object_get(entry, "verdict")), "accept") == 0)
            continue;
        snprintf(path, sizeof path, "spec/%s", file);
        p = wp_test_data(path, &n);
        live = wp_mem_live();
        wp_mem_fail_after(0);
        EXPECT_INT(file, WP_EPROTO, wp_event_open(&b, (struct wp_str){p, n}, &err));
        EXPECT_TRUE(file, err.text[0]);
        EXPECT_INT(file, 0, wp_event_next(&b, &s, &e));
        wp_event_pass(&b);
        EXPECT_TRUE("nothing was asked for", !wp_mem_failed());
        wp_mem_fail_after(-1);
        EXPECT_INT(file, 0, b.n + b.stored + b.removed + b.cleared + b.skipped);
        EXPECT_INT(file, live, wp_mem_live());
        wp_free(p);
    }
    json_decref(root);
}

static void memory_may_end_at_any_event(void)
{
    static const char *const files[] = {"spec/sglang_arr_eagle.msgpack", "fuzz/kv_event/case_B142",
                                        "spec/trtllm_map_mm.msgpack"};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t n = 0;
        char *p = wp_test_data(files[i], &n);
        long live = wp_mem_live();

        for (long nth = 0;; nth++) {
            struct wp_event_scratch s = {0};
            struct wp_err err = WP_ERR_INIT;
            struct wp_event_batch b;
            struct wp_event e;
            size_t seen = 0, failed = 0;
            int rc;

            EXPECT_INT(files[i], 0, wp_event_open(&b, (struct wp_str){p, n}, &err));
            wp_mem_fail_after(nth);
            while ((rc = wp_event_next(&b, &s, &e)) != 0) {
                if (rc == WP_ENOMEM && failed++ == 0)
                    continue; /* the same again */
                EXPECT_INT(files[i], 1, rc);
                EXPECT_UINT("its number", seen++, e.i);
            }
            EXPECT_UINT("all came", b.n, seen);
            wp_event_scratch_fini(&s);
            EXPECT_INT("nothing leaks", live, wp_mem_live());
            if (!wp_mem_failed())
                break;
            EXPECT_UINT("one failed", 1, failed);
        }
        wp_mem_fail_after(-1);
        wp_free(p);
    }
}

static void an_event_can_be_passed_unseen(void)
{
    struct wp_event_scratch s = {0};
    struct wp_event_batch b;
    struct wp_event e;
    char *p;

    open_case("B142", &b, &p);
    wp_event_pass(&b);
    wp_event_pass(&b);
    EXPECT_INT("the third", 1, wp_event_next(&b, &s, &e));
    EXPECT_UINT("its number", 2, e.i);
    EXPECT_TEXT("its salt", "s", e.cache_salt);
    wp_event_pass(&b);
    EXPECT_INT("the last", 1, wp_event_next(&b, &s, &e));
    EXPECT_INT("clears", WP_EVENT_CLEARED, e.kind);
    wp_event_pass(&b);
    EXPECT_INT("the end", 0, wp_event_next(&b, &s, &e));
    wp_event_scratch_fini(&s);
    wp_free(p);
}

/* [0, [{a store of one block, name: value}]]; the value in hex. */
static int with_field(const char *name, const char *value, struct wp_event *e)
{
    static const char *const store =
        "92009185a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368"
        "65739101a9746f6b656e5f696473920506aa626c6f636b5f73697a6502d9";
    struct wp_event_scratch s = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;
    struct wp_buf hex = {0};
    size_t n;
    char *p;
    int rc;

    wp_buf_printf(&hex, "%s%02zx", store, strlen(name));
    for (const char *c = name; *c; c++)
        wp_buf_printf(&hex, "%02x", (unsigned)*c);
    wp_buf_adds(&hex, value);
    p = wp_test_hex(wp_buf_str(&hex), &n);
    EXPECT_TRUE(name, p);
    rc = wp_event_open(&b, (struct wp_str){p, p ? n : 0}, &err);
    if (rc == 0)
        EXPECT_INT(name, 1, wp_event_next(&b, &s, e));
    wp_event_scratch_fini(&s);
    wp_buf_fini(&hex);
    wp_free(p); /* so the event's texts are gone */
    return rc;
}

static void numbers_on_the_edge_are_in_or_out(void)
{
    /* clang-format off */
    static const struct {
        const char *name, *value;
        int rc;
        bool has;
        int64_t want;
    } cases[] = {
        {"lora_id", "c0", 0, false, 0},
        {"lora_id", "00", 0, true, 0},
        {"lora_id", "cf7fffffffffffffff", 0, true, INT64_MAX},
        {"lora_id", "cf8000000000000000", WP_EPROTO, false, 0},
        {"lora_id", "d38000000000000000", 0, true, INT64_MIN},
        {"lora_id", "c3", WP_EPROTO, false, 0},
        {"lora_id", "cb3ff0000000000000", WP_EPROTO, false, 0},
        {"kv_cache_spec_sliding_window", "cf7fffffffffffffff", 0, true, INT64_MAX},
        {"kv_cache_spec_sliding_window", "cf8000000000000000", WP_EPROTO, false, 0},
        {"kv_cache_spec_sliding_window", "ff", 0, true, -1},
        {"group_idx", "c0", 0, false, 0},
        {"group_idx", "ce7fffffff", 0, true, INT32_MAX},
        {"group_idx", "ce80000000", WP_EPROTO, false, 0},
        {"group_idx", "ff", WP_EPROTO, false, 0},
        {"block_size", "ce7fffffff", 0, true, INT32_MAX},
        {"block_size", "ce80000000", WP_EPROTO, false, 0},
        {"block_size", "c0", 0, true, 0}, /* the last of two counts */
        {"parent_block_hash", "c0", 0, false, 0},
        {"parent_block_hash", "00", 0, true, 0},
        {"parent_block_hash", "ff", 0, true, -1},
        {"parent_block_hash", "c40180", 0, true, 0x80},
        {"parent_block_hash", "c409010000000000000002", 0, true, 2},
        {"parent_block_hash", "c400", WP_EPROTO, false, 0},
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *name = cases[i].name;
        struct wp_event e = {0};
        int rc = with_field(name, cases[i].value, &e);
        const struct {
            const char *name;
            bool has;
            int64_t got;
        } field[] = {
            {"lora_id", e.has_lora_id, e.lora_id},
            {"kv_cache_spec_sliding_window", e.has_window, e.window},
            {"group_idx", e.has_group, e.group},
            {"parent_block_hash", e.has_parent, (int64_t)e.parent},
            {"block_size", true, e.block_size},
        };

        EXPECT_INT(name, cases[i].rc, rc);
        for (size_t k = 0; rc == 0 && k < sizeof field / sizeof field[0]; k++)
            if (strcmp(field[k].name, name) == 0) {
                EXPECT_INT(name, cases[i].has, field[k].has);
                EXPECT_INT(name, cases[i].want, field[k].got);
            }
    }
}

/* --- small parts ------------------------------------------------------------------------------ */

static void media_have_their_tiers_in_any_case(void)
{
    static const struct {
        const char *medium;
        enum wp_event_tier tier;
    } cases[] = {
        {"GPU", WP_EVENT_GPU},        {"gpu", WP_EVENT_GPU},        {"Device", WP_EVENT_GPU},
        {"CPU", WP_EVENT_CPU},        {"cpu", WP_EVENT_CPU},        {"CPU_PINNED", WP_EVENT_CPU},
        {"cpu_tier1", WP_EVENT_CPU},  {"CPU_TIER2", WP_EVENT_DISK}, {"disk", WP_EVENT_DISK},
        {"NVMe", WP_EVENT_DISK},      {"STORAGE", WP_EVENT_DISK},   {"EXTERNAL", WP_EVENT_REMOTE},
        {"network", WP_EVENT_REMOTE}, {"Remote", WP_EVENT_REMOTE},  {"SHARED", WP_EVENT_REMOTE},
        {"", WP_EVENT_UNKNOWN},       {"GPU ", WP_EVENT_UNKNOWN},   {"CPU_TIER3", WP_EVENT_UNKNOWN},
        {"cxl", WP_EVENT_UNKNOWN},
    };

    EXPECT_INT("not said", WP_EVENT_GPU, wp_event_tier((struct wp_str){0}));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        EXPECT_INT(cases[i].medium, cases[i].tier, wp_event_tier(wp_str_of(cases[i].medium)));
    EXPECT_INT("as in the index", WP_TIER_GPU, WP_EVENT_GPU);
    EXPECT_INT("as in the index", WP_TIER_CPU, WP_EVENT_CPU);
    EXPECT_INT("as in the index", WP_TIER_DISK, WP_EVENT_DISK);
    EXPECT_INT("as in the index", WP_TIER_REMOTE, WP_EVENT_REMOTE);
}

static void unknown_media_are_counted(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;
    size_t n = 0;
    char *p = wp_test_data("spec/vllm_medium_unknown.msgpack", &n);

    EXPECT_INT("accepted", 0, wp_event_open(&b, (struct wp_str){p, n}, &err));
    EXPECT_UINT("unknown media", 1, b.unknown_medium);
    wp_free(p);
}

static bool naive(const uint64_t v[], size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (v[i] == v[k])
                return true;
    return false;
}

static void a_repeated_hash_is_found_wherever_it_is(void)
{
    enum { MOST = 700 };
    static const uint64_t mask[] = {UINT64_MAX, 0xFFF, UINT64_C(0xFFF) << 52, 0x0F0F00F00F00F0F0,
                                    0xFF00FF};
    struct wp_rng r = {.state = 7};
    uint64_t v[MOST], room[2 * MOST], times[2] = {0};

    for (int round = 0; round < 400; round++) {
        size_t n = 1 + (size_t)wp_rng_below(&r, MOST);
        uint64_t m = mask[wp_rng_below(&r, sizeof mask / sizeof mask[0])];
        bool want;

        for (size_t i = 0; i < n; i++)
            v[i] = round % 3 ? wp_rng_next(&r) & m : i << (round % 8 * 8);
        if (round % 2)
            v[wp_rng_below(&r, n)] = v[wp_rng_below(&r, n)];
        want = naive(v, n);
        times[want]++;
        EXPECT_UINT("room", n > 32 ? 2 * n : 0, wp_repeats_room(n));
        EXPECT_INT("repeats", want, wp_repeats(v, n, room));
    }
    EXPECT_TRUE("both happened", times[0] > 50 && times[1] > 50);
}

static const struct wp_test tests[] = {
    {"each payload has its verdict and its batch", each_payload_has_its_verdict_and_its_batch},
    {"no fixture is left out", no_fixture_is_left_out},
    {"captures of running engines are read", captures_of_running_engines_are_read},
    {"cases of others are read", cases_of_others_are_read},
    {"nesting ends at its bound", nesting_ends_at_its_bound},
    {"a refused payload allocates and yields nothing",
     a_refused_payload_allocates_and_yields_nothing},
    {"memory may end at any event", memory_may_end_at_any_event},
    {"an event can be passed unseen", an_event_can_be_passed_unseen},
    {"numbers on the edge are in or out", numbers_on_the_edge_are_in_or_out},
    {"media have their tiers in any case", media_have_their_tiers_in_any_case},
    {"unknown media are counted", unknown_media_are_counted},
    {"a repeated hash is found wherever it is", a_repeated_hash_is_found_wherever_it_is},
    {NULL, NULL},
};
const struct wp_suite suite_decode = {"decode", tests};
