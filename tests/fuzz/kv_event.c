/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What wp_event_open() accepts, wp_event_next() visits, all of it and the same each time; all
 * slices lie within the payload; a store for the index is what it says.  tests/diff/decode.py
 * compares with a reader of another make.
 */
#include "adapters/events/extra.h"

#include <stdlib.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static void within(struct wp_str all, struct wp_str part)
{
    MUST(!part.p ||
         (part.p >= all.p && part.n <= all.n && (size_t)(part.p - all.p) <= all.n - part.n));
}

static void whole_value(struct wp_str all, struct wp_str slice)
{
    struct wp_msgpack_in in = wp_msgpack_in(slice);

    within(all, slice);
    MUST(!slice.p || (wp_msgpack_skip(&in, 0) == 0 && in.p == in.end));
}

static void names(struct wp_str all, const struct wp_event *e)
{
    struct wp_extra_names n;
    struct wp_extra_walk x;
    struct wp_extra block;
    size_t blocks = 0;
    bool items = false, opaque = false;

    wp_extra_names(e, &n);
    within(all, n.lora);
    within(all, n.salt);
    wp_extra_begin(&x, e);
    for (; wp_extra_next(&x, &block); blocks++) {
        MUST(block.n <= WP_EXTRA_ITEMS);
        items |= block.n > 0;
        opaque |= block.opaque;
        within(all, block.lora);
        within(all, block.salt);
        for (size_t i = 0; i < block.n; i++)
            within(all, block.item[i].id);
    }
    MUST(blocks == e->n && n.items == items && (n.opaque || !opaque));
}

static void store(struct wp_str all, const struct wp_event *e)
{
    within(all, e->spec_kind);
    within(all, e->lora_name);
    within(all, e->cache_salt);
    within(all, e->session_id);
    whole_value(all, e->parent_sent);
    whole_value(all, e->extra_keys);
    whole_value(all, e->mm_keys);
    MUST(!e->bigram || e->n_tokens > 1);
    if (e->use == WP_EVENT_INDEX) {
        MUST(e->main_group && e->block_size && e->n_tokens);
        MUST(e->n_tokens - (e->bigram ? 1 : 0) == e->n * e->block_size);
        for (size_t i = 0; i < e->n && i < 100; i++) {
            MUST(!e->has_parent || e->hash[i] != e->parent);
            for (size_t k = 0; k < i; k++)
                MUST(e->hash[i] != e->hash[k]);
        }
    }
    names(all, e);
}

static uint64_t digest_of(const struct wp_event *e, uint64_t d)
{
    for (size_t i = 0; i < e->n; i++)
        d = (d ^ e->hash[i]) * 0x100000001B3;
    for (size_t i = 0; i < e->n_tokens; i++)
        d = (d ^ e->token[i]) * 0x100000001B3;
    return (d ^ e->kind ^ (uint64_t)e->use << 8 ^ (uint64_t)e->tier << 16) * 0x100000001B3;
}

/* Every event, or every other one; the scratch has been through all before it, or is new. */
static uint64_t visit(struct wp_str all, struct wp_event_batch b, struct wp_event_scratch *s)
{
    struct wp_event_batch seen = {0};
    struct wp_event e;
    uint64_t d = 0;
    int rc;

    while ((rc = wp_event_next(&b, s, &e)) > 0) {
        MUST(e.i == seen.n++);
        seen.stored += e.kind == WP_EVENT_STORED;
        seen.removed += e.kind == WP_EVENT_REMOVED;
        seen.cleared += e.kind == WP_EVENT_CLEARED;
        seen.skipped += e.kind == WP_EVENT_SKIPPED;
        seen.unknown_medium += e.tier == WP_EVENT_UNKNOWN;
        within(all, e.tag);
        within(all, e.medium);
        within(all, e.locality);
        within(all, e.ownership);
        whole_value(all, e.hashes);
        MUST(e.n <= all.n && e.n_tokens <= all.n);
        if (e.kind == WP_EVENT_STORED)
            store(all, &e);
        d = digest_of(&e, d);
    }
    MUST(rc == 0 && seen.n == b.n && seen.stored == b.stored && seen.removed == b.removed);
    MUST(seen.cleared == b.cleared && seen.skipped == b.skipped);
    MUST(seen.unknown_medium == b.unknown_medium);
    return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_str payload = {(const char *)data, n};
    struct wp_event_scratch s = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b, copy;
    struct wp_msgpack_in in = wp_msgpack_in(payload);
    struct wp_event e;

    if (wp_event_open(&b, payload, &err) < 0) {
        MUST(b.why != WP_EVENT_FINE && b.n == 0 && wp_event_next(&b, &s, &e) == 0 && err.text[0]);
        return 0;
    }
    MUST(b.why == WP_EVENT_FINE && wp_msgpack_skip(&in, 0) == 0 && in.p == in.end);
    MUST(visit(payload, b, &s) == visit(payload, b, &s));
    copy = b;
    for (size_t i = 0; i < b.n; i++) /* every other one unseen */
        if (i % 2)
            wp_event_pass(&copy);
        else
            MUST(wp_event_next(&copy, &s, &e) == 1 && e.i == i);
    MUST(wp_event_next(&copy, &s, &e) == 0);
    wp_event_scratch_fini(&s);
    return 0;
}
