/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who continues whom.  A session is a conversation at its last turn, filed under the last link of its outline (the pair of its last two messages).
 * A request looks up its own links, the newest first: where one is found further from its end than it was from the session's, the request is that
 * conversation's next turn, and takes its place.  Of several sessions under one link the one with which it has most in common is meant.  Two that
 * have but their first message in common are one conversation only if that is long, or the client says so with one session key.
 */
#include "router/doctor_inner.h"

#include "base/log.h"
#include "base/mem.h"
#include "index/identity.h"

enum { CHAIN_MAX = 8, LONG_FIRST = 64, RING = 8, CROSS_BREAKS = 6, CROSS_SESSIONS = 3 };

struct session {
    struct wp_list link; /* of the doctor's */
    struct session *next; /* under the same key */
    uint64_t key, client; /* hash of the session key, or 0 */
    uint8_t model;
    bool weak;     /* known by its first message alone */
    uint8_t ring[RING]; /* kinds of its last turns */
    uint32_t turns, breaks[WP_BREAKS];
    uint32_t counted; /* bits: findings' kinds that know of it */
    struct wp_outline o; /* its pieces lie behind it */
    struct wp_piece piece[];
};

static size_t size_of(size_t pieces)
{
    return sizeof(struct session) + pieces * sizeof(struct wp_piece);
}

int wp_doctor_create(struct wp_doctor **out, struct wp_metrics *metrics, struct wp_err *err)
{
    struct wp_doctor *d = wp_calloc(1, sizeof *d);

    if (!d)
        return wp_fail(err, WP_ENOMEM, "prefix doctor: out of memory");
    pthread_mutex_init(&d->lock, NULL);
    wp_list_init(&d->sessions);
    d->cap_bytes = WP_DOCTOR_BYTES;
    if (metrics) {
        d->breaks_total = wp_family(metrics, WP_COUNTER, "warmpath_prefix_breaks_total",
                                    "Requests that broke their own prefix cache, by a habit of their client.", "model,kind", NULL, 0);
        d->lost_total = wp_family(metrics, WP_COUNTER, "warmpath_prefix_lost_tokens_total",
                                  "Prompt tokens that were cached and are computed again because of that.", "model,kind", NULL, 0);
    }
    *out = d;
    return 0;
}

/* ---- sessions ---- */

static struct session *chain_of(struct wp_doctor *d, uint64_t key)
{
    uint64_t first = 0;

    wp_map_get(&d->by_link, key, &first);
    return (struct session *)(uintptr_t)first; /* NOLINT: the map has numbers, and keeps pointers as such */
}

static void unfile(struct wp_doctor *d, struct session *s)
{
    struct session *first = chain_of(d, s->key);

    for (struct session *x = first; x; x = x->next)
        if (x->next == s)
            x->next = s->next;
    if (first == s && s->next)
        *wp_map_at(&d->by_link, s->key) = (uint64_t)(uintptr_t)s->next;
    else if (first == s)
        wp_map_del(&d->by_link, s->key);
}

static void forget(struct wp_doctor *d, struct session *s)
{
    unfile(d, s);
    wp_list_del(&s->link);
    d->bytes -= size_of(s->o.n);
    d->n_sessions--;
    wp_free(s);
}

/* A chain is short: who begins and ends alike is told apart by what is between, and of many such the oldest go. */
static bool file(struct wp_doctor *d, struct session *s)
{
    struct session *last = chain_of(d, s->key);
    unsigned n = 0;

    s->next = last;
    if (wp_map_put(&d->by_link, s->key, (uint64_t)(uintptr_t)s) < 0)
        return false;
    for (; last && last->next; last = last->next)
        n++;
    if (n + 1 >= CHAIN_MAX)
        forget(d, last);
    return true;
}

void wp_doctor_destroy(struct wp_doctor *d)
{
    if (!d)
        return;
    WP_LIST_EACH(&d->sessions, at)
    forget(d, WP_CONTAINER(at, struct session, link));
    for (size_t i = 0; i < d->n_models; i++)
        wp_free(d->model[i].name);
    wp_map_fini(&d->by_link);
    pthread_mutex_destroy(&d->lock);
    wp_free(d);
}

void wp_doctor_limit(struct wp_doctor *d, size_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->cap_bytes = bytes < WP_DOCTOR_BYTES ? bytes : WP_DOCTOR_BYTES;
    while (d->bytes > d->cap_bytes)
        forget(d, WP_CONTAINER(d->sessions.next, struct session, link));
    pthread_mutex_unlock(&d->lock);
}

static uint64_t key_of(size_t model, uint32_t link)
{
    return (uint64_t)model << 32 | link;
}

static size_t in_common(const struct wp_outline *a, const struct wp_outline *b)
{
    size_t n = 0;

    for (size_t i = 0; i < a->n && i < b->n && n < a->n; i++)
        n += a->piece[i].hash == b->piece[i].hash;
    return n;
}

static bool believable(const struct session *s, const struct wp_outline *o, uint64_t client)
{
    if (s->o.tokens != o->tokens)
        return false;
    if (!s->weak)
        return true;
    if (s->client || client)
        return s->client == client;
    return s->o.piece[s->o.n - 1].n >= LONG_FIRST;
}

/*
 * The conversation of which this is the next turn, or NULL.  *crowded: so many end alike (one talk under many system texts) that its own last
 * turn may be gone, and what seems broken may be another's.
 */
static struct session *turn_before(struct wp_doctor *d, const struct wp_outline *o, size_t model, uint64_t client, bool *crowded)
{
    struct session *best = NULL;
    size_t most = 0, n;

    for (size_t i = o->n_links - 1; i-- > 0 && !best;) { /* under its last link lies at best the same turn */
        unsigned length = 0;

        for (struct session *s = chain_of(d, key_of(model, o->link[i])); s; s = s->next, length++) {
            n = believable(s, o, client) && (!s->weak || (o->from_start && i == 0)) ? 1 + in_common(&s->o, o) : 0;
            if (n > most) {
                most = n;
                best = s;
            }
        }
        *crowded = length + 1 >= CHAIN_MAX;
    }
    return best;
}

/* The turn at hand takes the place of the one before, or begins a conversation.  Memory that is not there: it is forgotten. */
static struct session *put(struct wp_doctor *d, struct session *old, const struct wp_outline *o, size_t model, uint64_t client)
{
    struct session *s = wp_malloc(size_of(o->n));

    if (!s)
        return NULL;
    *s = old ? *old : (struct session){0};
    s->key = key_of(model, o->link[o->n_links - 1]);
    s->client = client;
    s->model = (uint8_t)model;
    s->weak = o->n_links == 1;
    s->o = *o;
    s->o.piece = s->piece;
    memcpy(s->piece, o->piece, o->n * sizeof *o->piece);
    wp_list_init(&s->link);
    if (old)
        forget(d, old);
    if (!file(d, s)) {
        wp_free(s);
        return NULL;
    }
    wp_list_push(&d->sessions, &s->link);
    d->bytes += size_of(o->n);
    d->n_sessions++;
    while (d->bytes > d->cap_bytes && d->sessions.next != &s->link)
        forget(d, WP_CONTAINER(d->sessions.next, struct session, link));
    return s;
}

/* The same once more: a client tries again, or several ask alike. */
static bool same_turn(struct wp_doctor *d, const struct wp_outline *o, size_t model)
{
    for (struct session *s = chain_of(d, key_of(model, o->link[o->n_links - 1])); s; s = s->next)
        if (s->o.n == o->n && in_common(&s->o, o) == o->n) {
            wp_list_del(&s->link);
            wp_list_push(&d->sessions, &s->link);
            return true;
        }
    return false;
}

/* ---- heads ---- */

static uint32_t head_of(const struct wp_outline *o)
{
    uint64_t h = 1;

    for (size_t i = 0; i < o->n && o->piece[i].kind < WP_PIECE_MESSAGE; i++)
        h = wp_hash_next(h, o->piece[i].hash);
    return (uint32_t)h;
}

static void see_head(struct wp_doctor *d, uint32_t hash)
{
    struct wp_doctor_head *h = &d->head[hash % DOCTOR_HEADS];

    if (h->hash != hash || !h->first)
        *h = (struct wp_doctor_head){.hash = hash, .first = d->requests};
    h->last = d->requests;
}

/*
 * A line that changes is not seen again once its next form is there.  One talk under two system texts (an evaluation, two users) looks like
 * it when the one's turn is taken for the other's, but there both are in use.  before: seen; now: not yet.
 */
static bool is_replaced(const struct wp_doctor *d, uint32_t before, uint32_t now)
{
    const struct wp_doctor_head *was = &d->head[before % DOCTOR_HEADS], *is = &d->head[now % DOCTOR_HEADS];

    return is->hash != now || !is->first || was->hash != before || was->last < is->first;
}

/* ---- findings ---- */

static struct wp_finding *finding(struct wp_doctor *d, size_t model, enum wp_break kind, uint32_t place, uint64_t now_us)
{
    struct wp_finding *free_one = NULL;

    for (size_t i = 0; i < WP_DOCTOR_FINDINGS; i++) {
        struct wp_finding *f = &d->finding[i];

        if (f->used && f->model == model && f->kind == kind && f->place == place)
            return f;
        if (!free_one || (free_one->used && (!f->used || f->last_us < free_one->last_us)))
            free_one = f;
    }
    *free_one = (struct wp_finding){
        .used = true, .kind = (uint8_t)kind, .model = (uint8_t)model, .place = place, .first_us = now_us};
    return free_one;
}

static bool is_habit(const struct session *s, enum wp_break kind)
{
    unsigned turns = s->turns < RING ? s->turns : RING, n = 0;

    if (kind == WP_BREAK_THINKING) /* only where a new question ends the thoughts of the one before */
        return s->breaks[kind] >= WP_DOCTOR_HABIT;
    for (unsigned i = 0; i < turns; i++)
        n += s->ring[i] == kind;
    return n >= WP_DOCTOR_HABIT && 2 * n >= turns;
}

/* Conversations that are too short for a habit have it together. */
static bool is_common(struct wp_finding *f, const struct session *s, const struct wp_broke *b, bool sure)
{
    uint32_t way = 0;

    if (b->kind == WP_BREAK_WINDOW || b->kind == WP_BREAK_EDITED || !sure || 2 * s->breaks[b->kind] < s->turns)
        return false;
    for (size_t i = b->piece; i < s->o.n && s->o.piece[i].kind == s->o.piece[b->piece].kind && i < b->piece + CHAIN_MAX; i++)
        way = (uint32_t)wp_hash_next(way, s->o.piece[i].hash);
    for (unsigned i = 0; i < f->ways; i++)
        if (f->way[i] == way)
            return false;
    if (f->ways < DOCTOR_WAYS)
        f->way[f->ways++] = way;
    return f->ways >= CROSS_BREAKS && f->sessions >= CROSS_SESSIONS;
}

static void tell(struct wp_doctor *d, struct wp_finding *f, bool first)
{
    const struct wp_doctor_model *m = &d->model[f->model];
    uint64_t lost = (uint64_t)f->lost_tokens;

    wp_count(WP_SERIES(d->breaks_total, m->name, wp_break_names[f->kind]), f->requests - f->told_requests);
    wp_count(WP_SERIES(d->lost_total, m->name, wp_break_names[f->kind]), lost - f->told_tokens);
    f->told_requests = f->requests;
    f->told_tokens = lost;
    if (first)
        wp_log(WP_WARN, "doctor", "model=%s breaks its own prefix cache: %s at %s %u, token %.0f of %.0f, %.0f %% of the prompt lost; GET /doctor",
               m->name, wp_break_names[f->kind], wp_piece_names[f->part], f->number, f->at_tokens / (double)f->requests,
               f->prompt_tokens / (double)f->requests, 100 * f->lost_tokens / f->prompt_tokens);
}

/* sure: beyond doubt the same conversation. */
static void note(struct wp_doctor *d, struct session *s, const struct wp_broke *b, bool sure, uint32_t tokens, uint64_t now_us)
{
    struct wp_finding *f = finding(d, s->model, b->kind, b->kind == WP_BREAK_LINE ? (uint32_t)b->piece : 0, now_us);
    const struct wp_piece *p = &s->o.piece[b->piece < s->o.n ? b->piece : s->o.n - 1];
    double per = s->o.total ? (double)tokens / s->o.total : 0; /* tokens of the outline's unit */
    bool was = f->shown;

    f->last_us = now_us;
    f->requests++;
    f->sessions += !(s->counted & 1u << b->kind);
    s->counted |= 1u << b->kind;
    f->part = b->kind == WP_BREAK_OPTIONS ? WP_PIECE_OPTION
              : b->kind == WP_BREAK_TOOLS_ORDER || b->kind == WP_BREAK_TOOLS_CHANGED ? WP_PIECE_TOOL
                                                                                   : p->kind; /* what is left out shows another */
    f->number = f->part == p->kind ? p->number : 0;
    f->prompt_tokens += tokens;
    f->lost_tokens += b->lost * per;
    f->at_tokens += b->at * per;
    f->n_tokens += b->n * per;
    f->dropped_tokens += b->dropped * per;
    f->grown_tokens += b->grown * per;
    d->model[s->model].lost_tokens += b->lost * per;
    if (!f->shown)
        f->shown = is_habit(s, b->kind) || is_common(f, s, b, sure);
    if (f->shown)
        tell(d, f, !was);
}

/* ---- requests ---- */

static size_t model_of(struct wp_doctor *d, struct wp_str name)
{
    for (size_t i = 0; i < d->n_models; i++)
        if (wp_str_is(name, d->model[i].name))
            return i;
    if (d->n_models == WP_DOCTOR_MODELS)
        return WP_DOCTOR_MODELS;
    d->model[d->n_models] = (struct wp_doctor_model){.name = wp_strndup(name.p, name.n)};
    return d->model[d->n_models].name ? d->n_models++ : WP_DOCTOR_MODELS;
}

static bool is_other(const struct wp_doctor *d, const struct wp_outline *before, const struct wp_outline *now, const struct wp_broke *b)
{
    return b->kind == WP_BREAK_LINE && now->piece[b->piece].kind == WP_PIECE_SYSTEM && !is_replaced(d, head_of(before), head_of(now));
}

static enum wp_break take_turn(struct wp_doctor *d, struct session *before, const struct wp_outline *o, size_t model, uint64_t client,
                               bool crowded, uint32_t tokens, uint64_t now_us)
{
    struct wp_broke b = wp_doctor_compare(&before->o, o);
    bool sure = !before->weak || client;
    struct session *s;

    if (b.kind != WP_BREAK_NONE && (crowded || is_other(d, &before->o, o, &b))) {
        put(d, NULL, o, model, client);
        return WP_BREAK_NONE;
    }
    s = put(d, before, o, model, client);
    d->turns++;
    d->model[model].turns++;
    d->model[model].turn_tokens += tokens;
    if (!s)
        return b.kind;
    s->ring[s->turns++ % RING] = (uint8_t)b.kind;
    if (b.kind == WP_BREAK_NONE)
        return b.kind;
    d->breaks++;
    d->model[model].breaks++;
    s->breaks[b.kind]++;
    note(d, s, &b, sure, tokens, now_us);
    return b.kind;
}

static enum wp_break see(struct wp_doctor *d, const struct wp_outline *o, struct wp_str name, uint64_t client, uint32_t tokens, uint64_t now_us)
{
    size_t model = model_of(d, name);
    enum wp_break kind = WP_BREAK_NONE;
    struct session *before;
    bool crowded = false;

    d->requests++;
    if (model == WP_DOCTOR_MODELS)
        return WP_BREAK_NONE;
    d->model[model].requests++;
    d->model[model].prompt_tokens += tokens;
    if (o->n == 0 || o->n_links == 0 || (o->n_links == 1 && !o->from_start))
        return WP_BREAK_NONE; /* too short to be known again */
    before = turn_before(d, o, model, client, &crowded);
    if (before)
        kind = take_turn(d, before, o, model, client, crowded, tokens, now_us);
    else if (!same_turn(d, o, model))
        put(d, NULL, o, model, client);
    see_head(d, head_of(o));
    return kind;
}

enum wp_break wp_doctor_see(struct wp_doctor *d, const struct wp_outline *o, struct wp_str model, uint64_t session, uint32_t tokens,
                            uint64_t now_us)
{
    enum wp_break kind;

    pthread_mutex_lock(&d->lock);
    kind = see(d, o, model, session, tokens, now_us);
    pthread_mutex_unlock(&d->lock);
    return kind;
}

void wp_doctor_stats(struct wp_doctor *d, struct wp_doctor_stats *out)
{
    pthread_mutex_lock(&d->lock);
    *out = (struct wp_doctor_stats){d->requests, d->turns, d->breaks, d->n_sessions, d->bytes, 0};
    for (size_t i = 0; i < WP_DOCTOR_FINDINGS; i++)
        out->findings += d->finding[i].used && d->finding[i].shown;
    pthread_mutex_unlock(&d->lock);
}
