/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/naive_engine.h"

#include <math.h>
#include <stdlib.h>

enum { COMING, WAITS, PREFILLS, DECODES, OVER };
enum { MOST = 4096 };

struct entry {
    uint64_t hash, used; /* when last used, by a counter */
    int pins;
    double ready_us;
};
struct tier {
    struct entry e[MOST];
    size_t n, cap;
    double free_us, read_us;
};
struct naive {
    const struct wp_model_conf *c;
    struct naive_req *req;
    size_t n;
    struct tier tier[3];
    uint64_t reserved, clock;
    int order, firsts;
    double now;
};

static struct entry *find(struct tier *t, uint64_t hash)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->e[i].hash == hash)
            return &t->e[i];
    return NULL;
}

static bool oldest_out(struct tier *t, uint64_t *hash)
{
    size_t best = t->n;

    for (size_t i = 0; i < t->n; i++)
        if (t->e[i].pins == 0 && (best == t->n || t->e[i].used < t->e[best].used))
            best = i;
    if (best == t->n)
        return false;
    *hash = t->e[best].hash;
    t->e[best] = t->e[--t->n];
    return true;
}

static void add(struct naive *s, int tier, uint64_t hash, int pins, double ready_us)
{
    struct tier *t = &s->tier[tier];

    t->e[t->n++] =
        (struct entry){.hash = hash, .used = ++s->clock, .pins = pins, .ready_us = ready_us};
}

static void down(struct naive *s, int tier, uint64_t hash)
{
    uint64_t out;

    while (tier < 3 && s->tier[tier].cap == 0)
        tier++;
    if (tier == 3)
        return;
    if (find(&s->tier[tier], hash)) {
        find(&s->tier[tier], hash)->used = ++s->clock;
        return;
    }
    if (s->tier[tier].n == s->tier[tier].cap && oldest_out(&s->tier[tier], &out))
        down(s, tier + 1, out);
    add(s, tier, hash, 0, 0);
}

static size_t blocks(const struct naive *s, uint64_t tokens)
{
    return (size_t)((tokens + s->c->block_size - 1) / s->c->block_size);
}

static bool admits(struct naive *s, struct naive_req *r)
{
    struct tier *gpu = &s->tier[0];
    size_t hits = 0, on[3] = {0}, idle = 0, need, room, last = 0;
    int where[NAIVE_BLOCKS];
    uint64_t out;

    for (; hits < r->n; hits++) {
        int t = 0;

        while (t < 3 && !find(&s->tier[t], r->chain[hits]))
            t++;
        if (t == 3)
            break;
        where[hits] = t;
        on[t]++;
        last = (size_t)t;
        idle += t == 0 && find(gpu, r->chain[hits])->pins == 0;
    }
    need = blocks(s, (uint64_t)r->tokens + r->output) - on[0];
    room = gpu->cap - s->reserved;
    for (size_t i = 0; i < gpu->n; i++)
        room -= gpu->e[i].pins > 0;
    if (need + idle > room)
        return false;
    r->ready_us = s->now;
    for (int t = 1; t < 3; t++)
        if (on[t] > 0) {
            s->tier[t].free_us =
                fmax(s->now, s->tier[t].free_us) + (double)on[t] * s->tier[t].read_us;
            r->ready_us = fmax(r->ready_us, s->tier[t].free_us);
        }
    for (size_t i = hits; i-- > 0;)
        for (int t = 1; t < 3 && where[i] > 0; t++)
            if (find(&s->tier[t], r->chain[i]))
                find(&s->tier[t], r->chain[i])->used = ++s->clock;
    for (size_t i = 0; i < hits; i++)
        if (where[i] == 0) {
            struct entry *e = find(gpu, r->chain[i]);

            e->pins++;
            r->mine[i] = true;
            r->ready_us = fmax(r->ready_us, e->ready_us);
        }
    while (gpu->cap - gpu->n - s->reserved < need && oldest_out(gpu, &out))
        down(s, 1, out);
    for (size_t i = 0; i < hits; i++)
        if (where[i] > 0) {
            add(s, 0, r->chain[i], 1, r->ready_us);
            r->mine[i] = true;
            need--;
        }
    r->reserved = need;
    s->reserved += need;
    for (int t = 0; t < 3; t++)
        r->cached[t] = (uint32_t)on[t] * s->c->block_size;
    if (hits * s->c->block_size == r->tokens)
        r->cached[last]--;
    r->done = r->cached[0] + r->cached[1] + r->cached[2];
    r->admitted = s->order++;
    r->state = PREFILLS;
    return true;
}

static void ends(struct naive *s, struct naive_req *r)
{
    for (size_t i = r->n; i-- > 0;)
        if (r->mine[i]) {
            struct entry *e = find(&s->tier[0], r->chain[i]);

            if (--e->pins == 0)
                e->used = ++s->clock;
        }
    s->reserved -= r->reserved;
    r->state = OVER;
    r->done_us = s->now;
}

/* The k-th request in order of admission, or NULL. */
static struct naive_req *admitted(struct naive *s, int k)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->req[i].state >= PREFILLS && s->req[i].admitted == k)
            return &s->req[i];
    return NULL;
}

static void step_is_over(struct naive *s)
{
    for (int k = 0; k < s->firsts; k++)
        for (size_t i = 0; i < s->n; i++)
            if (s->req[i].state == DECODES && s->req[i].begun == k &&
                ++s->req[i].made == s->req[i].output)
                ends(s, &s->req[i]);
    for (int k = 0; k < s->order; k++) {
        struct naive_req *r = admitted(s, k);
        size_t first;

        if (r->state != PREFILLS || r->chunk == 0)
            continue;
        first = r->done / s->c->block_size;
        r->done += r->chunk;
        r->chunk = 0;
        for (size_t i = first; i < r->n && (i + 1) * s->c->block_size <= r->done; i++)
            if (!r->mine[i] && !find(&s->tier[0], r->chain[i])) {
                add(s, 0, r->chain[i], 1, 0);
                r->mine[i] = true;
                r->reserved--;
                s->reserved--;
            }
        if (r->done < r->tokens)
            continue;
        r->state = DECODES;
        r->begun = s->firsts++;
        r->first_us = s->now;
        r->made = 1;
        if (r->output == 1)
            ends(s, r);
    }
}

/* How long the step takes that begins now; INFINITY when there is nothing to do; *wake: when blocks
 * come in. */
static double next_step(struct naive *s, double *wake)
{
    const struct wp_profile *p = &s->c->profile;
    uint32_t decodes = 0, running = 0, left;
    double kv = 0, tokens = 0, area = 0;
    bool blocked = false;
    int before = s->order;

    *wake = INFINITY;
    for (size_t i = 0; i < s->n; i++) {
        running += s->req[i].state == PREFILLS || s->req[i].state == DECODES;
        if (s->req[i].state == DECODES) {
            decodes++;
            kv += s->req[i].tokens + s->req[i].made;
        }
    }
    left = p->budget - (decodes < p->budget / 2 ? decodes : p->budget / 2);
    for (int k = 0;; k++) {
        struct naive_req *r = admitted(s, k);

        if (k >= before) { /* the first one that waits */
            for (size_t i = 0; i < s->n && !r; i++)
                if (s->req[i].state == WAITS && left > 0 && running < p->max_running && !blocked) {
                    r = admits(s, &s->req[i]) ? &s->req[i] : NULL;
                    blocked = !r;
                    running++;
                }
        }
        if (!r)
            break;
        if (r->state != PREFILLS || left == 0)
            continue;
        if (r->ready_us > s->now) {
            *wake = fmin(*wake, r->ready_us);
            continue;
        }
        r->chunk = r->tokens - r->done < left ? r->tokens - r->done : left;
        left -= r->chunk;
        tokens += r->chunk;
        area += (double)r->chunk * (r->done + r->chunk / 2.0);
    }
    if (tokens == 0 && decodes == 0)
        return INFINITY;
    return p->tov_us + fmax(p->tw_us, p->a_us * tokens) + p->b_us * area + p->e_us * decodes +
           p->d_us * kv;
}

void naive_run(const struct wp_model_conf *c, struct naive_req req[], size_t n)
{
    struct naive *s = calloc(1, sizeof *s);
    double bytes = (double)c->block_size * (double)c->profile.kv_bytes_per_token, end = INFINITY,
           wake = INFINITY;
    size_t come = 0;

    if (!s)
        abort();
    s->c = c;
    s->req = req;
    s->n = n;
    for (int t = 0; t < 3; t++)
        s->tier[t].cap = c->tier_blocks[t];
    s->tier[1].read_us = bytes / c->profile.cpu_bytes_per_s * 1e6;
    s->tier[2].read_us = bytes / c->disk_bytes_per_s * 1e6;
    for (;;) {
        double at = fmin(fmin(end, wake), come < n ? (double)req[come].at_us : INFINITY);

        if (at == INFINITY)
            break;
        s->now = at;
        if (at == end) {
            step_is_over(s);
            end = INFINITY;
        }
        while (come < n && (double)req[come].at_us <= at)
            req[come++].state = WAITS;
        if (end == INFINITY)
            end = s->now + next_step(s, &wake);
        if (end < INFINITY)
            wake = INFINITY;
    }
    free(s);
}
