/* SPDX-License-Identifier: Apache-2.0 */
#include "router/rooms.h"

#include "base/clock.h"
#include "base/mem.h"
#include "policies/room.h"

#include <pthread.h>

enum { SLOTS = 1 << 17, BLOCK = 512, SHARE_MAX = 20 };

struct slot { /* a block, by its place in a prompt and its local hash */
    uint64_t key, asked_us; /* 0: nobody's */
};
struct line { /* a space */
    uint32_t space, block_size;
    uint32_t share; /* of the sampled blocks one in 2^share is looked at */
    struct wp_profile profile;
    struct wp_room room;
    struct slot *slot;
};
struct wp_rooms {
    pthread_mutex_t lock; /* guards all below */
    uint64_t secret;
    struct line line[WP_ROOMS_MAX];
    size_t n;
};

int wp_rooms_create(struct wp_rooms **out, uint64_t secret, struct wp_err *err)
{
    struct wp_rooms *r = wp_calloc(1, sizeof *r);

    if (!r)
        return wp_fail(err, WP_ENOMEM, "rooms: out of memory");
    pthread_mutex_init(&r->lock, NULL);
    r->secret = secret;
    *out = r;
    return 0;
}

void wp_rooms_destroy(struct wp_rooms *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        wp_free(r->line[i].slot);
    pthread_mutex_destroy(&r->lock);
    wp_free(r);
}

static struct line *line_of(struct wp_rooms *r, uint32_t space)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->line[i].space == space)
            return &r->line[i];
    return NULL;
}

static struct line *make_line(struct wp_rooms *r, const struct wp_rooms_ask *a)
{
    struct line *l = r->n < WP_ROOMS_MAX ? &r->line[r->n] : NULL;

    if (!l || !(l->slot = wp_calloc(SLOTS, sizeof *l->slot)))
        return NULL;
    l->space = a->space;
    l->block_size = a->block_size;
    wp_room_init(&l->room);
    r->n++;
    return l;
}

/* So that the table has four places for each block that is held: those that are gone have theirs, too. */
static void fit(struct line *l, double capacity_tokens)
{
    uint32_t share = 0;

    while (share < SHARE_MAX && capacity_tokens / BLOCK / (double)(1u << share) > SLOTS / 4.0)
        share++;
    l->share = share;
    l->room.each = (double)(1u << share);
}

/* The place of a block; NULL: it is not of those that are looked at. */
static struct slot *slot_of(const struct wp_rooms *r, const struct line *l, uint64_t local, size_t at, uint64_t *key)
{
    uint64_t x = wp_index_mix(local ^ r->secret, (uint16_t)at) + at;

    *key = x ? x : 1;
    x >>= 17; /* slots go by what is below */
    return x & ((1u << l->share) - 1) ? NULL : &l->slot[*key % SLOTS];
}

static uint64_t since(uint64_t now_us, uint64_t then_us)
{
    return now_us > then_us ? now_us - then_us : 0;
}

static void ask_block(struct wp_rooms *r, struct line *l, uint64_t now_us, const struct wp_rooms_ask *a, size_t i)
{
    uint64_t key;
    struct slot *s = slot_of(r, l, a->local[i], i, &key);

    if (!s)
        return;
    if (s->key == key)
        wp_room_asked(&l->room, now_us, since(now_us, s->asked_us), i < a->held, i < a->coming);
    *s = (struct slot){key, now_us};
}

void wp_rooms_asked(struct wp_rooms *r, uint64_t now_us, const struct wp_rooms_ask *a)
{
    uint32_t stride = wp_index_stride(a->block_size);
    struct line *l;

    pthread_mutex_lock(&r->lock);
    l = line_of(r, a->space);
    if (l || (l = make_line(r, a))) {
        l->profile = *a->profile;
        fit(l, a->capacity_tokens);
        for (size_t i = stride - 1; i < a->n; i += stride)
            ask_block(r, l, now_us, a, i);
        wp_room_request(&l->room, now_us);
    }
    pthread_mutex_unlock(&r->lock);
}

void wp_rooms_left(void *arg, const struct wp_index_left *left)
{
    struct wp_rooms *r = arg;
    uint64_t key, now = wp_now_us();
    struct line *l;
    struct slot *s;

    pthread_mutex_lock(&r->lock);
    l = line_of(r, left->space);
    s = l ? slot_of(r, l, left->local, left->at, &key) : NULL;
    if (s && s->key == key) { /* generated tokens, and other routers' prompts, were not asked for here */
        uint64_t to = ((uint64_t)left->at + 1) * l->block_size, from = to > BLOCK ? to - BLOCK : 0;

        wp_room_gone(&l->room, now, since(now, s->asked_us), left->last, left->last ? wp_prefill_us(&l->profile, from, to) : 0);
    }
    pthread_mutex_unlock(&r->lock);
}

void wp_rooms_price(struct wp_rooms *r, uint64_t now_us, uint32_t space, const struct wp_worker_view w[], size_t n,
                    const struct wp_profile *p, struct wp_room_price *out)
{
    struct line *l;

    *out = (struct wp_room_price){0};
    pthread_mutex_lock(&r->lock);
    l = line_of(r, space);
    if (l)
        wp_room_price(&l->room, now_us, w, n, wp_prefill_us(p, 0, BLOCK), out);
    pthread_mutex_unlock(&r->lock);
}
