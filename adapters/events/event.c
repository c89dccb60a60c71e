/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event: find its fields, whichever form it has, then read those that its tag has.
 * Judging and visiting are one code, so that they cannot disagree; only a visit has a scratch to
 * write to.
 */
#include "adapters/events/decode_impl.h"

#include "adapters/events/repeats.h"

enum field {
    TYPE,
    HASHES,
    PARENT,
    TOKENS,
    BLOCK_SIZE,
    LORA_ID,
    MEDIUM,
    LORA_NAME,
    EXTRA_KEYS,
    GROUP,
    SPEC_KIND,
    WINDOW,
    LOCALITY,
    OWNERSHIP,
    SESSION,
    SALT,
    MM_KEYS,
    FIELDS,
};

/* clang-format off */
#define NAME(s) {s, sizeof(s) - 1}
static const struct wp_str names[FIELDS] = {
    [TYPE] = NAME("type"),
    [HASHES] = NAME("block_hashes"),
    [PARENT] = NAME("parent_block_hash"),
    [TOKENS] = NAME("token_ids"),
    [BLOCK_SIZE] = NAME("block_size"),
    [LORA_ID] = NAME("lora_id"),
    [MEDIUM] = NAME("medium"),
    [LORA_NAME] = NAME("lora_name"),
    [EXTRA_KEYS] = NAME("extra_keys"),
    [GROUP] = NAME("group_idx"),
    [SPEC_KIND] = NAME("kv_cache_spec_kind"),
    [WINDOW] = NAME("kv_cache_spec_sliding_window"),
    [LOCALITY] = NAME("locality"),
    [OWNERSHIP] = NAME("ownership"),
    [SESSION] = NAME("session_id"),
    [SALT] = NAME("cache_salt"),
    [MM_KEYS] = NAME("mm_keys"),
};
/* clang-format on */

/* The fields of an array event, behind its tag. */
static const enum field stored_order[] = {HASHES,  PARENT,    TOKENS,    BLOCK_SIZE,
                                          LORA_ID, MEDIUM,    LORA_NAME, EXTRA_KEYS,
                                          GROUP,   SPEC_KIND, WINDOW};
static const enum field removed_order[] = {HASHES, MEDIUM, GROUP};

struct found {
    struct wp_str f[FIELDS]; /* each value as sent; absent when there is none */
    bool flat; /* f[TOKENS] is a plain array of token ids, and was read: there are n_flat */
    size_t n_flat;
};

/* --- the events ------------------------------------------------------------------------------- */

/* e->use becomes what the shape of the tokens says against it. */
static int read_tokens(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    int rc = 0;

    if (!f->f[TOKENS].p)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[TOKENS].p);
    if (f->flat)
        e->n_tokens = f->n_flat;
    else
        rc = wp_event_odd_tokens(r, f->f[TOKENS], e);
    e->token = r->out ? r->out->token : NULL;
    return rc;
}

static bool is_main(const struct wp_event *e)
{
    if (e->spec_kind.p)
        return wp_str_is(e->spec_kind, "full_attention") ||
               wp_str_is(e->spec_kind, "mla_attention") ||
               wp_str_is(e->spec_kind, "sink_full_attention");
    return !e->has_group || e->group == 0;
}

static enum wp_event_use judge_use(const struct wp_event *e, uint64_t room[])
{
    size_t span = e->n_tokens - (e->bigram ? 1 : 0);

    if (!e->main_group)
        return WP_EVENT_NON_MAIN_GROUP;
    if (e->use != WP_EVENT_INDEX)
        return e->use;
    if (e->n_tokens == 0)
        return WP_EVENT_TIER_ONLY;
    if (e->block_size == 0)
        return WP_EVENT_ZERO_BLOCK_SIZE;
    if (span % e->block_size || span / e->block_size != e->n)
        return WP_EVENT_SPARSE;
    for (size_t i = 0; e->has_parent && i < e->n; i++)
        if (e->hash[i] == e->parent)
            return WP_EVENT_SELF_REFERENCE;
    return wp_repeats(e->hash, e->n, room) ? WP_EVENT_SELF_REFERENCE : WP_EVENT_INDEX;
}

static int read_texts(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    const struct {
        enum field field;
        struct wp_str *out;
    } text[] = {{LORA_NAME, &e->lora_name},
                {SPEC_KIND, &e->spec_kind},
                {SESSION, &e->session_id},
                {SALT, &e->cache_salt}};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof text / sizeof text[0]; i++)
        rc = wp_event_text(r, f->f[text[i].field], names[text[i].field].p, text[i].out);
    return rc;
}

/* What stores and removals have. */
static int read_place(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    int rc = wp_event_text(r, f->f[MEDIUM], names[MEDIUM].p, &e->medium);

    e->tier = wp_event_tier(e->medium);
    rc = rc < 0 ? rc : wp_event_count(r, f->f[GROUP], names[GROUP].p, &e->has_group, &e->group);
    rc = rc < 0 ? rc : wp_event_text(r, f->f[LOCALITY], names[LOCALITY].p, &e->locality);
    return rc < 0 ? rc : wp_event_text(r, f->f[OWNERSHIP], names[OWNERSHIP].p, &e->ownership);
}

static int read_stored(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    bool has_size;
    int rc = wp_event_hashes(r, f->f[HASHES], e);

    e->kind = WP_EVENT_STORED;
    rc = rc < 0 ? rc : wp_event_parent(r, f->f[PARENT], e);
    rc = rc < 0 ? rc : read_tokens(r, f, e);
    if (rc == 0 && !f->f[BLOCK_SIZE].p)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[BLOCK_SIZE].p);
    rc = rc < 0
             ? rc
             : wp_event_count(r, f->f[BLOCK_SIZE], names[BLOCK_SIZE].p, &has_size, &e->block_size);
    rc = rc < 0 ? rc
                : wp_event_i64(r, f->f[LORA_ID], names[LORA_ID].p, &e->has_lora_id, &e->lora_id);
    rc = rc < 0 ? rc : wp_event_i64(r, f->f[WINDOW], names[WINDOW].p, &e->has_window, &e->window);
    rc = rc < 0 ? rc : read_place(r, f, e);
    rc = rc < 0 ? rc : read_texts(r, f, e);
    rc = rc < 0 ? rc : wp_event_list(r, f->f[EXTRA_KEYS], names[EXTRA_KEYS].p, &e->extra_keys);
    rc = rc < 0 ? rc : wp_event_list(r, f->f[MM_KEYS], names[MM_KEYS].p, &e->mm_keys);
    if (rc < 0)
        return rc;
    e->main_group = is_main(e);
    if (r->out)
        e->use = judge_use(e, r->out->hash ? r->out->hash + e->n : NULL);
    return 0;
}

static int read_removed(struct wp_event_reader *r, const struct found *f, struct wp_event *e)
{
    int rc = wp_event_hashes(r, f->f[HASHES], e);

    e->kind = WP_EVENT_REMOVED;
    return rc < 0 ? rc : read_place(r, f, e);
}

/* --- the two forms ---------------------------------------------------------------------------- */

static int slice_value(struct wp_event_reader *r, unsigned open, struct wp_str *v)
{
    int rc = wp_msgpack_slice(&r->in, open, v);

    return rc < 0 ? wp_event_refuse_msgpack(r, rc) : 0;
}

static int find_field(struct wp_event_reader *r, enum field k, struct found *f)
{
    int rc = k == TOKENS ? wp_event_flat_tokens(r, &f->f[TOKENS], &f->n_flat) : 0;

    if (k == TOKENS)
        f->flat = rc > 0;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return slice_value(r, IN_EVENT, &f->f[k]);
}

/* SGLang has a map where vLLM has the adapter's name. */
static void open_metadata(struct found *f)
{
    struct wp_msgpack_in in;
    struct wp_msgpack map = wp_event_head(f->f[LORA_NAME], &in), key;

    if (map.kind != WP_MSGPACK_MAP)
        return;
    f->f[LORA_NAME] = (struct wp_str){0};
    for (uint64_t i = 0; i < map.u; i++) {
        struct wp_msgpack_in at = in;
        struct wp_str value = {0};

        (void)wp_msgpack_skip(&in, IN_FIELD);
        (void)wp_msgpack_slice(&in, IN_FIELD, &value);
        (void)wp_msgpack_read(&at, &key);
        if (key.kind == WP_MSGPACK_STR && wp_str_eq(key.bytes, names[SALT]))
            f->f[SALT] = value;
        if (key.kind == WP_MSGPACK_STR && wp_str_eq(key.bytes, names[SESSION]))
            f->f[SESSION] = value;
    }
}

static int find_in_array(struct wp_event_reader *r, uint64_t n, struct found *f, struct wp_event *e)
{
    const enum field *order = NULL;
    struct wp_str ignored;
    size_t known = 0;
    int rc;

    if (n == 0)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[TYPE].p);
    rc = slice_value(r, IN_EVENT, &f->f[TYPE]);
    rc = rc < 0 ? rc : wp_event_text(r, f->f[TYPE], names[TYPE].p, &e->tag);
    if (rc < 0)
        return rc;
    if (wp_str_is(e->tag, "BlockStored")) {
        order = stored_order;
        known = sizeof stored_order / sizeof stored_order[0];
    } else if (wp_str_is(e->tag, "BlockRemoved")) {
        order = removed_order;
        known = sizeof removed_order / sizeof removed_order[0];
    }
    for (uint64_t i = 1; rc == 0 && i < n; i++)
        rc = i <= known ? find_field(r, order[i - 1], f) : slice_value(r, IN_EVENT, &ignored);
    if (rc == 0)
        open_metadata(f);
    return rc;
}

/* FIELDS when there is no such field. */
static enum field field_called(struct wp_str name)
{
    enum field k = 0;

    while (k < FIELDS && (name.n != names[k].n || memcmp(name.p, names[k].p, name.n) != 0))
        k++;
    return k;
}

static int find_in_map(struct wp_event_reader *r, uint64_t n, struct found *f, struct wp_event *e)
{
    struct wp_str ignored;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        struct wp_msgpack_in at = r->in;
        struct wp_msgpack key;
        enum field k = FIELDS;

        if (wp_msgpack_read(&at, &key) == 0 && key.kind == WP_MSGPACK_STR) {
            r->in = at;
            k = field_called(key.bytes);
        } else {
            rc = slice_value(r, IN_EVENT, &ignored);
        }
        if (rc == 0)
            rc = k < FIELDS ? find_field(r, k, f) : slice_value(r, IN_EVENT, &ignored);
    }
    if (rc < 0)
        return rc;
    if (!f->f[TYPE].p)
        return wp_event_refuse(r, WP_EVENT_MISSING_FIELD, names[TYPE].p);
    return wp_event_text(r, f->f[TYPE], names[TYPE].p, &e->tag);
}

int wp_event_read(struct wp_event_reader *r, struct wp_event *e)
{
    struct found f = {0};
    struct wp_msgpack head;
    int rc = wp_msgpack_read(&r->in, &head);

    *e = (struct wp_event){.kind = WP_EVENT_SKIPPED};
    if (rc < 0)
        return wp_event_refuse_msgpack(r, rc);
    if (head.kind == WP_MSGPACK_ARRAY)
        rc = find_in_array(r, head.u, &f, e);
    else if (head.kind == WP_MSGPACK_MAP)
        rc = find_in_map(r, head.u, &f, e);
    else
        rc = wp_event_refuse(r, WP_EVENT_BAD_TYPE, NULL);
    if (rc < 0)
        return rc;
    if (!e->tag.p) /* nil */
        return wp_event_refuse(r, WP_EVENT_BAD_TYPE, names[TYPE].p);
    if (wp_str_is(e->tag, "BlockStored"))
        return read_stored(r, &f, e);
    if (wp_str_is(e->tag, "BlockRemoved"))
        return read_removed(r, &f, e);
    if (wp_str_is(e->tag, "AllBlocksCleared"))
        e->kind = WP_EVENT_CLEARED;
    return 0;
}
