/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/naive_feed.h"

#include "adapters/events/decode.h"
#include "adapters/events/extra.h"

#include <stdio.h>
#include <stdlib.h>

void wp_naive_feed_fini(struct wp_naive_feed *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->unit[i].token);
    free(f->unit);
    *f = (struct wp_naive_feed){0};
}

static struct wp_naive_unit *find(const struct wp_naive_feed *f, uint32_t group, uint64_t hash)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->unit[i].hash == hash && f->unit[i].group == group)
            return &f->unit[i];
    return NULL;
}

static struct wp_naive_unit *make(struct wp_naive_feed *f, uint32_t group, uint64_t hash)
{
    struct wp_naive_unit *u = find(f, group, hash);

    if (u)
        return u;
    if (f->n == f->cap) {
        f->cap = f->cap ? f->cap * 2 : 64;
        f->unit = realloc(f->unit, f->cap * sizeof *f->unit);
        if (!f->unit)
            abort();
    }
    u = &f->unit[f->n++];
    *u = (struct wp_naive_unit){.hash = hash, .group = group};
    return u;
}

static void place(struct wp_naive_feed *f, const struct wp_event *e, size_t i, size_t from)
{
    uint64_t above = i ? e->hash[i - 1] : e->parent;
    struct wp_naive_unit *u = make(f, e->group, e->hash[i]);
    const struct wp_naive_unit *up = i || e->has_parent ? find(f, e->group, above) : NULL;
    struct wp_extra_names names;

    u->main = e->main_group;
    u->bigram = e->bigram;
    u->size = e->block_size;
    wp_extra_names(e, &names);
    snprintf(u->lora, sizeof u->lora, "%.*s", (int)names.lora.n, names.lora.n ? names.lora.p : "");
    snprintf(u->salt, sizeof u->salt, "%.*s", (int)names.salt.n, names.salt.n ? names.salt.p : "");
    if (up && !names.salt.n)
        memcpy(u->salt, up->salt, sizeof u->salt);
    u->placed = up ? up->placed : !(i || e->has_parent);
    if (u->token)
        return;
    u->n = (up ? up->n : 0) + e->block_size;
    u->token = malloc((u->n + 1) * sizeof *u->token);
    if (!u->token)
        abort();
    if (up)
        memcpy(u->token, up->token, up->n * sizeof *u->token);
    memcpy(u->token + u->n - e->block_size, e->token + from,
           (e->block_size + e->bigram) * sizeof *u->token);
}

static void store(struct wp_naive_feed *f, const struct wp_event *e)
{
    for (size_t i = 0; i < e->n; i++) {
        if (e->use == WP_EVENT_INDEX)
            place(f, e, i, i * e->block_size);
        if (e->use == WP_EVENT_INDEX || e->use == WP_EVENT_NON_MAIN_GROUP ||
            find(f, e->group, e->hash[i]))
            make(f, e->group, e->hash[i])->copies[e->tier]++;
    }
}

void wp_naive_feed_apply(struct wp_naive_feed *f, struct wp_str payload)
{
    struct wp_event_scratch scratch = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;
    struct wp_event e;
    int rc = wp_event_open(&b, payload, &err);

    while (rc >= 0 && (rc = wp_event_next(&b, &scratch, &e)) > 0) {
        if (e.kind == WP_EVENT_STORED)
            store(f, &e);
        for (size_t i = 0; e.kind == WP_EVENT_REMOVED && i < e.n; i++) {
            struct wp_naive_unit *u = find(f, e.group, e.hash[i]);

            if (u && u->copies[e.tier])
                u->copies[e.tier]--;
        }
        for (size_t i = 0; e.kind == WP_EVENT_CLEARED && i < f->n; i++)
            memset(f->unit[i].copies, 0, sizeof f->unit[i].copies);
    }
    if (rc < 0)
        abort();
    wp_event_scratch_fini(&scratch);
}

static int fastest(const struct wp_naive_unit *u)
{
    for (int t = 0; t < WP_NAIVE_TIERS; t++)
        if (u->copies[t])
            return t;
    return -1;
}

/* The fastest tier of a main unit (of that size; 0: any) that has what lies between the two tokens
 * of the prompt; -1: none. */
static int held(const struct wp_naive_feed *f, const uint32_t token[], size_t from, size_t to,
                size_t size, struct wp_str lora, struct wp_str salt)
{
    int best = -1;

    for (size_t i = 0; i < f->n; i++) {
        const struct wp_naive_unit *u = &f->unit[i];
        int t = fastest(u);

        if (u->main && t >= 0 && u->placed && (!size || u->size == size) &&
            wp_str_is(lora, u->lora) && wp_str_is(salt, u->salt) && u->n - u->size <= from &&
            u->n >= to && memcmp(token, u->token, (to + u->bigram) * sizeof token[0]) == 0 &&
            (best < 0 || t < best))
            best = t;
    }
    return best;
}

/* A block may also be there in parts: then it is in the slowest of their tiers. */
static int block(const struct wp_naive_feed *f, const uint32_t token[], size_t i, uint32_t size,
                 struct wp_str lora, struct wp_str salt)
{
    int best = held(f, token, i * size, (i + 1) * size, 0, lora, salt);

    for (size_t part = 1; part < size; part++) {
        int slowest = 0;

        if (size % part)
            continue;
        for (size_t at = i * size; at < (i + 1) * size && slowest >= 0; at += part) {
            int t = held(f, token, at, at + part, part, lora, salt);

            slowest = t < 0 ? -1 : t > slowest ? t : slowest;
        }
        if (slowest >= 0 && (best < 0 || slowest < best))
            best = slowest;
    }
    return best;
}

/* The window group has the block that ends there, by the main group's name. */
static bool in_window(const struct wp_naive_feed *f, const uint32_t token[], size_t n)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct wp_naive_unit *u = &f->unit[i];

        if (!u->main || u->n != n || fastest(u) < 0 ||
            memcmp(token, u->token, n * sizeof token[0]) != 0)
            continue;
        for (size_t k = 0; k < f->n; k++)
            if (!f->unit[k].main && f->unit[k].hash == u->hash && fastest(&f->unit[k]) >= 0)
                return true;
    }
    return false;
}

size_t wp_naive_feed_claim(const struct wp_naive_feed *f, const uint32_t token[], size_t n,
                           uint32_t size, struct wp_str lora, struct wp_str salt, size_t *slower)
{
    size_t usable = n ? (n - 1) / size : 0, k = 0, answer = 0, slow = 0;

    lora = lora.p ? lora : WP_STR("");
    salt = salt.p ? salt : WP_STR("");
    *slower = 0;
    for (; k < usable; k++) {
        int t = block(f, token, k, size, lora, salt);
        bool enough = true;

        if (t < 0)
            break;
        slow += t > 0;
        for (size_t back = 0; back < f->window && back <= k; back++)
            enough &= in_window(f, token, (k + 1 - back) * size);
        if (!enough)
            continue;
        answer = k + 1;
        *slower = slow;
    }
    return answer;
}
