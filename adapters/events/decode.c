/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/decode.h"

#include "adapters/events/decode_impl.h"
#include "base/mem.h"

#include <math.h>

const char *wp_event_use_name(enum wp_event_use use)
{
    static const char *const name[] = {
        [WP_EVENT_INDEX] = "index",
        [WP_EVENT_TIER_ONLY] = "no_tokens",
        [WP_EVENT_NON_MAIN_GROUP] = "non_main_group",
        [WP_EVENT_NON_INTEGER] = "non_integer",
        [WP_EVENT_BROKEN_BIGRAM] = "broken_bigram",
        [WP_EVENT_ZERO_BLOCK_SIZE] = "zero_block_size",
        [WP_EVENT_SPARSE] = "sparse",
        [WP_EVENT_SELF_REFERENCE] = "self_reference",
    };

    return name[use];
}

const char *wp_event_why_name(enum wp_event_why why)
{
    static const char *const name[] = {
        [WP_EVENT_FINE] = "fine",
        [WP_EVENT_TRUNCATED] = "truncated",
        [WP_EVENT_TRAILING_BYTES] = "trailing_bytes",
        [WP_EVENT_DEPTH] = "depth",
        [WP_EVENT_RESERVED_BYTE] = "reserved_byte",
        [WP_EVENT_BAD_BATCH] = "bad_batch",
        [WP_EVENT_BAD_TYPE] = "bad_type",
        [WP_EVENT_BAD_UTF8] = "bad_utf8",
        [WP_EVENT_RANGE] = "range",
        [WP_EVENT_MISSING_FIELD] = "missing_field",
    };

    return name[why];
}

const char *wp_event_tier_name(enum wp_event_tier tier)
{
    static const char *const name[] = {
        [WP_EVENT_GPU] = "gpu",       [WP_EVENT_CPU] = "cpu",         [WP_EVENT_DISK] = "disk",
        [WP_EVENT_REMOTE] = "remote", [WP_EVENT_UNKNOWN] = "unknown",
    };

    return name[tier];
}

enum wp_event_tier wp_event_tier(struct wp_str medium)
{
    static const struct {
        const char *name;
        enum wp_event_tier tier;
    } known[] = {
        {"gpu", WP_EVENT_GPU},         {"device", WP_EVENT_GPU},     {"cpu", WP_EVENT_CPU},
        {"cpu_pinned", WP_EVENT_CPU},  {"cpu_tier1", WP_EVENT_CPU},  {"cpu_tier2", WP_EVENT_DISK},
        {"disk", WP_EVENT_DISK},       {"nvme", WP_EVENT_DISK},      {"storage", WP_EVENT_DISK},
        {"external", WP_EVENT_REMOTE}, {"network", WP_EVENT_REMOTE}, {"remote", WP_EVENT_REMOTE},
        {"shared", WP_EVENT_REMOTE},
    };

    if (!medium.p)
        return WP_EVENT_GPU;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (wp_str_iis(medium, known[i].name))
            return known[i].tier;
    return WP_EVENT_UNKNOWN;
}

void wp_event_scratch_fini(struct wp_event_scratch *s)
{
    wp_free(s->token);
    wp_free(s->hash);
    *s = (struct wp_event_scratch){0};
}

static void count(struct wp_event_batch *b, const struct wp_event *e)
{
    b->stored += e->kind == WP_EVENT_STORED;
    b->removed += e->kind == WP_EVENT_REMOVED;
    b->cleared += e->kind == WP_EVENT_CLEARED;
    b->skipped += e->kind == WP_EVENT_SKIPPED;
    b->unknown_medium += e->tier == WP_EVENT_UNKNOWN;
}

static int read_ts(struct wp_event_reader *r, struct wp_str value, double *ts)
{
    struct wp_msgpack_in in = wp_msgpack_in(value);
    struct wp_msgpack v = {0};

    (void)wp_msgpack_read(&in, &v);
    if (v.kind == WP_MSGPACK_UINT)
        *ts = (double)v.u;
    else if (v.kind == WP_MSGPACK_INT)
        *ts = (double)(int64_t)v.u;
    else if (v.kind != WP_MSGPACK_FLOAT)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, "ts");
    else if (!isfinite(v.d))
        return wp_event_refuse(r, WP_EVENT_RANGE, "ts");
    else
        *ts = v.d;
    return 0;
}

/* Judges all events of the array at r->in, and moves past it. */
static int judge_events(struct wp_event_reader *r, struct wp_event_batch *b)
{
    struct wp_msgpack head;
    int rc = wp_msgpack_read(&r->in, &head);

    if (rc < 0)
        return wp_event_refuse_msgpack(r, rc);
    if (head.kind != WP_MSGPACK_ARRAY)
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, "events");
    b->in = r->in;
    for (b->n = 0; rc == 0 && b->n < head.u; b->n++) {
        struct wp_event e;

        rc = wp_event_read(r, &e);
        if (rc < 0)
            return rc;
        count(b, &e);
    }
    return 0;
}

static int slice(struct wp_event_reader *r, struct wp_str *value)
{
    int rc = wp_msgpack_slice(&r->in, IN_BATCH, value);

    return rc < 0 ? wp_event_refuse_msgpack(r, rc) : 0;
}

/* [ts, events, rank?, ...] */
static int judge_array(struct wp_event_reader *r, uint64_t n, struct wp_event_batch *b)
{
    struct wp_str ts = {0}, rank = {0}, ignored;
    int rc;

    if (n < 2)
        return wp_event_refuse(r, WP_EVENT_BAD_BATCH, NULL);
    rc = slice(r, &ts);
    rc = rc < 0 ? rc : read_ts(r, ts, &b->ts);
    rc = rc < 0 ? rc : judge_events(r, b);
    if (rc == 0 && n > 2)
        rc = slice(r, &rank);
    rc = rc < 0 ? rc : wp_event_count(r, rank, "rank", &b->has_rank, &b->rank);
    for (uint64_t i = 3; rc == 0 && i < n; i++)
        rc = slice(r, &ignored);
    return rc;
}

/* The form of one build that was never released: its events are sliced first, for their place is
 * known only then. */
static int judge_map(struct wp_event_reader *r, uint64_t n, struct wp_event_batch *b)
{
    struct wp_str ts = {0}, events = {0}, rank = {0};
    struct wp_msgpack_in end;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        struct wp_msgpack_in at = r->in;
        struct wp_msgpack key;
        struct wp_str name, value = {0};

        rc = slice(r, &name);
        rc = rc < 0 ? rc : slice(r, &value);
        if (rc < 0)
            return rc;
        (void)wp_msgpack_read(&at, &key);
        if (key.kind != WP_MSGPACK_STR)
            continue;
        if (wp_str_is(key.bytes, "ts"))
            ts = value;
        else if (wp_str_is(key.bytes, "events"))
            events = value;
        else if (wp_str_is(key.bytes, "data_parallel_rank"))
            rank = value;
    }
    if (!ts.p || !events.p)
        return wp_event_refuse(r, WP_EVENT_BAD_BATCH, NULL);
    end = r->in;
    r->in = wp_msgpack_in(events);
    rc = read_ts(r, ts, &b->ts);
    rc = rc < 0 ? rc : judge_events(r, b);
    rc = rc < 0 ? rc : wp_event_count(r, rank, "data_parallel_rank", &b->has_rank, &b->rank);
    r->in = end;
    return rc;
}

static int judge(struct wp_event_reader *r, struct wp_event_batch *b)
{
    struct wp_msgpack head;
    int rc = wp_msgpack_read(&r->in, &head);

    if (rc < 0)
        return wp_event_refuse_msgpack(r, rc);
    if (head.kind == WP_MSGPACK_ARRAY)
        rc = judge_array(r, head.u, b);
    else if (head.kind == WP_MSGPACK_MAP)
        rc = judge_map(r, head.u, b);
    else
        return wp_event_refuse(r, WP_EVENT_BAD_BATCH, NULL);
    if (rc == 0 && r->in.p != r->in.end)
        return wp_event_refuse(r, WP_EVENT_TRAILING_BYTES, NULL);
    return rc;
}

/* What is no MessagePack at all is called that, whatever else we stumbled over before we came to
 * that place. */
static void blame(struct wp_event_reader *r, struct wp_str payload)
{
    int rc;

    r->in = wp_msgpack_in(payload);
    rc = wp_msgpack_skip(&r->in, 0);
    if (rc < 0)
        (void)wp_event_refuse_msgpack(r, rc);
    else if (r->in.p != r->in.end)
        (void)wp_event_refuse(r, WP_EVENT_TRAILING_BYTES, NULL);
}

int wp_event_open(struct wp_event_batch *b, struct wp_str payload, struct wp_err *err)
{
    struct wp_event_reader r = {.in = wp_msgpack_in(payload)};
    size_t good;

    *b = (struct wp_event_batch){.in = r.in};
    if (judge(&r, b) == 0)
        return 0;
    good = b->n;
    blame(&r, payload);
    *b = (struct wp_event_batch){.why = r.why, .in = {r.in.end, r.in.end}};
    return wp_fail(err, WP_EPROTO, "KV events: %s%s%s behind %zu good events",
                   wp_event_why_name(r.why), r.where ? ": " : "", r.where ? r.where : "", good);
}

int wp_event_next(struct wp_event_batch *b, struct wp_event_scratch *s, struct wp_event *e)
{
    struct wp_event_reader r = {.in = b->in, .out = s};

    if (b->next == b->n)
        return 0;
    if (wp_event_read(&r, e) < 0) /* it was judged: only memory can be wrong */
        return WP_ENOMEM;
    e->i = b->next++;
    b->in = r.in;
    return 1;
}

void wp_event_pass(struct wp_event_batch *b)
{
    if (b->next == b->n)
        return;
    (void)wp_msgpack_skip(&b->in, IN_EVENTS);
    b->next++;
}
