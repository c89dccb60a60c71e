/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All of it reads slices that wp_event_open() has judged, so that msgpack.h cannot fail here.
 */
#include "adapters/events/extra.h"

#include <xxhash.h>

/* A slice of its own has no containers around it that would count: it is within the bound with
 * those it had. */
static void skip(struct wp_msgpack_in *in)
{
    (void)wp_msgpack_skip(in, 0);
}

static bool present(struct wp_str s)
{
    return s.n > 0;
}

/* --- one block -------------------------------------------------------------------------------- */

static void add_item(struct wp_extra *b, const struct wp_msgpack *id,
                     const struct wp_msgpack *offset)
{
    struct wp_extra_item item = {.id = id->bytes};

    if (offset) {
        if (offset->kind != WP_MSGPACK_INT &&
            (offset->kind != WP_MSGPACK_UINT || offset->u > INT64_MAX)) {
            b->opaque = true;
            return;
        }
        item.placed = true;
        item.offset = (int64_t)offset->u;
    }
    for (size_t i = 0; i < b->n; i++) /* told in two places */
        if (wp_str_eq(b->item[i].id, item.id) && b->item[i].placed == item.placed &&
            b->item[i].offset == item.offset)
            return;
    if (id->kind != WP_MSGPACK_STR || !present(item.id) || b->n == WP_EXTRA_ITEMS) {
        b->opaque = true;
        return;
    }
    item.hash = XXH3_64bits(item.id.p, item.id.n);
    b->item[b->n++] = item;
}

/* A text that may still turn out to be the salt: the last one, with no item behind it. */
struct pending {
    struct wp_msgpack text;
    bool is;
};

static void settle(struct wp_extra *b, struct pending *p)
{
    if (p->is)
        add_item(b, &p->text, NULL);
    p->is = false;
}

/* {"type": ..., ...}; in is behind its head. */
static void typed_key(struct wp_extra *b, struct wp_msgpack_in *in, uint64_t pairs)
{
    enum { TYPE, NAME, SALT, HASH, OFFSET, N };
    static const char *const names[N] = {"type", "name", "salt", "hash", "start_offset"};
    struct wp_msgpack v[N] = {{0}}; /* nil */

    for (uint64_t i = 0; i < pairs; i++) {
        struct wp_msgpack_in at = *in;
        struct wp_msgpack key;

        skip(in);
        (void)wp_msgpack_read(&at, &key);
        at = *in;
        skip(in);
        for (size_t k = 0; key.kind == WP_MSGPACK_STR && k < N; k++)
            if (wp_str_is(key.bytes, names[k]))
                (void)wp_msgpack_read(&at, &v[k]);
    }
    if (v[TYPE].kind != WP_MSGPACK_STR)
        b->opaque = true;
    else if (wp_str_is(v[TYPE].bytes, "lora") && v[NAME].kind == WP_MSGPACK_STR)
        b->lora = v[NAME].bytes;
    else if (wp_str_is(v[TYPE].bytes, "cache_salt") && v[SALT].kind == WP_MSGPACK_STR)
        b->salt = v[SALT].bytes;
    else if (wp_str_is(v[TYPE].bytes, "mm_key") && v[HASH].kind == WP_MSGPACK_STR)
        add_item(b, &v[HASH], v[OFFSET].kind == WP_MSGPACK_NIL ? NULL : &v[OFFSET]);
    else
        b->opaque = true;
}

/* [identifier, offset]; in is behind its head. */
static void pair_key(struct wp_extra *b, struct wp_msgpack_in *in, uint64_t n)
{
    struct wp_msgpack id, offset;
    struct wp_msgpack_in at = *in;

    for (uint64_t i = 0; i < n; i++)
        skip(in);
    if (n != 2) {
        b->opaque = true;
        return;
    }
    (void)wp_msgpack_read(&at, &id);
    if (id.kind != WP_MSGPACK_STR) {
        b->opaque = true;
        return;
    }
    (void)wp_msgpack_read(&at, &offset);
    add_item(b, &id, &offset);
}

/* The entry of one block.  root: it may tell a salt. */
static void read_entry(struct wp_extra *b, struct wp_msgpack_in *in, struct wp_str lora, bool root)
{
    struct pending pending = {.is = false};
    struct wp_msgpack_in at = *in;
    struct wp_msgpack list;

    skip(in);
    (void)wp_msgpack_read(&at, &list);
    if (list.kind == WP_MSGPACK_NIL)
        return;
    if (list.kind != WP_MSGPACK_ARRAY) {
        b->opaque = true;
        return;
    }
    for (uint64_t i = 0; i < list.u; i++) {
        struct wp_msgpack v;

        (void)wp_msgpack_read(&at, &v);
        if (v.kind == WP_MSGPACK_STR) {
            settle(b, &pending);
            if (i == 0 && present(lora) && wp_str_eq(v.bytes, lora))
                b->lora = v.bytes;
            else
                pending = (struct pending){v, true};
        } else if (v.kind == WP_MSGPACK_ARRAY) {
            settle(b, &pending);
            pair_key(b, &at, v.u);
        } else if (v.kind == WP_MSGPACK_MAP) {
            settle(b, &pending);
            typed_key(b, &at, v.u);
        } else {
            b->opaque = true; /* bytes: a digest of embeddings.  Else nobody knows */
        }
    }
    if (pending.is && root)
        b->salt = pending.text.bytes;
    else
        settle(b, &pending);
}

/* --- the event -------------------------------------------------------------------------------- */

/* Behind the head of a list that must have n entries; an absent one has none to read. */
static bool enter(struct wp_str list, size_t n, struct wp_msgpack_in *in)
{
    struct wp_msgpack head;

    *in = wp_msgpack_in(list);
    if (!list.p)
        return true;
    (void)wp_msgpack_read(in, &head);
    return head.u == n;
}

void wp_extra_begin(struct wp_extra_walk *x, const struct wp_event *e)
{
    *x = (struct wp_extra_walk){.e = e};
    x->broken = !enter(e->extra_keys, e->n, &x->keys);
    x->broken = !enter(e->mm_keys, e->n, &x->mm) || x->broken;
}

bool wp_extra_next(struct wp_extra_walk *x, struct wp_extra *block)
{
    bool root = x->block == 0 && !x->e->has_parent;

    if (x->block == x->e->n)
        return false;
    x->block++;
    block->opaque = x->broken;
    block->lora = block->salt = (struct wp_str){0};
    block->n = 0;
    if (x->broken)
        return true;
    if (x->e->extra_keys.p)
        read_entry(block, &x->keys, x->e->lora_name, root);
    if (x->e->mm_keys.p)
        read_entry(block, &x->mm, (struct wp_str){0}, false);
    return true;
}

/* The first one told counts.  When another is told too, whichever is right, some block is not that.
 */
static bool agree(struct wp_str *name, struct wp_str told)
{
    if (!present(told))
        return true;
    if (!present(*name))
        *name = told;
    return wp_str_eq(*name, told);
}

void wp_extra_names(const struct wp_event *e, struct wp_extra_names *names)
{
    struct wp_extra_walk x;
    struct wp_extra block;

    *names = (struct wp_extra_names){0};
    (void)agree(&names->lora, e->lora_name);
    (void)agree(&names->salt, e->cache_salt);
    wp_extra_begin(&x, e);
    names->opaque = x.broken;
    while ((e->extra_keys.p || e->mm_keys.p) && wp_extra_next(&x, &block)) {
        names->items |= block.n > 0;
        names->opaque |= block.opaque;
        names->opaque |= !agree(&names->lora, block.lora);
        names->opaque |= !agree(&names->salt, block.salt);
    }
    names->numbered = e->has_lora_id && !present(names->lora);
}
