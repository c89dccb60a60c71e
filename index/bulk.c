/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common case of events, run by run instead of block by block: hashes that are new to the
 * holder, one copy each; and removals of blocks that it has in one tier.  Whatever else a block
 * needs is left to hold.c, one block at a time.
 */
#include "index/inside.h"

enum { AHEAD = WP_BOOK_AHEAD };

static void call_for(const struct wp_book *b, const uint64_t key[], size_t n)
{
    for (size_t i = 0; i < n && i < AHEAD; i++)
        wp_book_prefetch(b, key[i]);
}

/* Nothing about the holder that needs a look at each block. */
static bool is_plain(const struct wp_holder *h)
{
    return !h->windows && !h->guesses && !h->floating;
}

static wp_u128 bits(unsigned lo, unsigned hi)
{
    wp_u128 upto = hi == 128 ? ~(wp_u128)0 : ((wp_u128)1 << hi) - 1;

    return upto >> lo << lo;
}

static wp_u128 held_of(const uint64_t span[], unsigned n)
{
    wp_u128 held = 0;

    for (unsigned i = 0; i < n; i++)
        held |= bits(wp_span_lo(span[i]), wp_span_hi(span[i]));
    return held;
}

/* The holder has blocks lo to hi from now on, of which it had none. */
static bool add(struct wp_index *ix, uint32_t run, uint32_t holder, const uint64_t span[],
                unsigned n, unsigned lo, unsigned hi, uint64_t look)
{
    uint64_t put = wp_span(lo, hi, look, 0);
    struct wp_part part;

    if (n == 0)
        return wp_spans_put(ix, run, holder, &put, 1);
    if (n == 1 && wp_span_hi(span[0]) == lo && (span[0] & WP_SPAN_LOOK & WP_SPAN_ATTR) == look) {
        put = wp_span(wp_span_lo(span[0]), hi, look, 0);
        return wp_spans_put(ix, run, holder, &put, 1);
    }
    wp_part_get(ix, run, holder, &part);
    for (unsigned i = lo; i < hi; i++)
        part.look[i] = look;
    return wp_part_put(ix, run, holder, &part);
}

/* The run in which the event's block i is, below the place; made when new.  0: no memory. */
static uint32_t run_below(struct wp_index *ix, const struct wp_kv_event *ev, uint32_t place,
                          size_t i, unsigned *from)
{
    uint32_t below = wp_place_below(ix, ev->space, place, ev->local[i]);

    if (below == WP_NOWHERE) {
        if (wp_place_reserve(ix) < 0)
            return 0;
        below = wp_place_make(ix, ev->space, place, ev->local[i]);
    }
    *from = wp_place_off(below);
    return wp_place_run(below);
}

/* How many of the event's blocks from i on are in the run from that block on. */
static unsigned match(const struct wp_index *ix, const struct wp_kv_event *ev,
                      const struct wp_run *r, unsigned from, size_t i)
{
    unsigned len = wp_run_len(r),
             most = ev->n - i < len - from ? (unsigned)(ev->n - i) : len - from, n = 1;

    for (unsigned c = (from + n) / WP_CHUNK; c * WP_CHUNK < from + most; c++) {
        __builtin_prefetch(wp_run_chunk(ix, r, c));
        __builtin_prefetch(wp_run_chunk(ix, r, c) + WP_CHUNK / 2);
    }
    while (n < most) {
        const uint64_t *chunk = wp_run_chunk(ix, r, (from + n) / WP_CHUNK);

        do {
            if (chunk[(from + n) % WP_CHUNK] != ev->local[i + n])
                return n;
            n++;
        } while (n < most && (from + n) % WP_CHUNK);
    }
    return n;
}

/* The same, and those that can be, which then are. */
static unsigned lay_out(struct wp_index *ix, const struct wp_kv_event *ev, uint32_t run,
                        unsigned from, size_t i)
{
    struct wp_run *r = wp_run_at(ix, run);
    unsigned n = match(ix, ev, r, from, i);

    if (from + n == wp_run_len(r))
        n += wp_run_append(ix, run, ev->local + i + n, ev->n - i - n);
    return n;
}

size_t wp_bulk_store(struct wp_index *ix, const struct wp_kv_event *ev, size_t i, uint32_t *place)
{
    struct wp_shelf *shelf = wp_shelf_make(ix, ev->holder, ev->space, ev->group, -1);
    uint64_t span[2 * WP_SEGMENT],
        look = wp_look((uint8_t)(1u << ev->tier), (uint8_t)(1u << ev->tier));
    unsigned from, n, spans, fresh = 0, done;
    uint64_t mixed = 0;
    wp_u128 held;
    uint32_t run;

    if (!shelf || ev->vague || !is_plain(&ix->holders[ev->holder]))
        return 0;
    call_for(&shelf->book, ev->engine + i, ev->n - i); /* they come while the run is looked for */
    run = run_below(ix, ev, *place, i, &from);
    if (!run)
        return 0;
    wp_run_pin(ix, run);
    n = lay_out(ix, ev, run, from, i);
    if (wp_book_reserve(&shelf->book, ix->prefix.secret, n, &ix->budget) < 0)
        return 0;
    spans = wp_spans_get(ix, run, ev->holder, span);
    held = held_of(span, spans) >> from;
    while (fresh < n && !(held >> fresh & 1))
        fresh++;
    done = wp_book_add_run(&shelf->book, ev->engine + i, fresh, wp_place(run, from));
    for (unsigned k = 0; k < done; k++)
        mixed += wp_index_mix(ev->engine[i + k], ev->group);
    if (!done)
        return 0;
    ix->holders[ev->holder].digest.names[ev->tier] += done;
    ix->holders[ev->holder].digest.sum[ev->tier] += mixed;
    wp_own_at(ix, run)->stamp = ix->clock;
    if (!add(ix, run, ev->holder, span, spans, from, from + done, look)) {
        wp_hold_purge(ix, ev->holder);
        return 0;
    }
    *place = wp_place(run, from + done - 1);
    return done;
}

static unsigned first_of(wp_u128 b) /* of those set, which there are */
{
    uint64_t low = (uint64_t)b;

    return low ? (unsigned)__builtin_ctzll(low)
               : 64 + (unsigned)__builtin_ctzll((uint64_t)(b >> 64));
}

/* The holder no longer has the blocks of the mask, which lie in its one span. */
static void take(struct wp_index *ix, uint32_t run, uint32_t holder, uint64_t span, wp_u128 mask)
{
    uint64_t look = span & WP_SPAN_LOOK & WP_SPAN_ATTR, put[WP_SEGMENT] = {0};
    wp_u128 left = bits(wp_span_lo(span), wp_span_hi(span)) & ~mask;
    unsigned n = 0;

    while (left) {
        unsigned lo = first_of(left);
        wp_u128 gap = ~(left | (((wp_u128)1 << lo) - 1));
        unsigned hi = gap ? first_of(gap) : 128;

        put[n++] = wp_span(lo, hi, look, 0);
        left &= ~bits(lo, hi);
    }
    if (!wp_spans_put(ix, run, holder, put, n))
        wp_hold_purge(ix, holder);
    if (ix->on_left)
        wp_left_run(ix, run, mask);
    if (!n)
        wp_run_settle(ix, run);
}

/* Removals gathered while they stay in one run. */
struct removal {
    uint32_t run;
    uint64_t span; /* what the holder has of it */
    wp_u128 mask;
    uint64_t mixed; /* of all hashes so far, for the digest */
};

static void flush(struct wp_index *ix, const struct wp_kv_event *ev, struct removal *r)
{
    if (r->run && r->mask)
        take(ix, r->run, ev->holder, r->span, r->mask);
    r->run = 0;
    r->mask = 0;
}

/* Is it a run in which the holder has one span, of just that tier? */
static bool open_run(struct wp_index *ix, const struct wp_kv_event *ev, uint32_t run,
                     struct removal *r)
{
    uint64_t span[2 * WP_SEGMENT];

    if (r->run == run)
        return true;
    flush(ix, ev, r);
    if (wp_run_at(ix, run)->detailed && ix->holders[ev->holder].details)
        return false;
    if (wp_spans_get(ix, run, ev->holder, span) != 1 || wp_span_tiers(span[0]) != 1u << ev->tier)
        return false;
    r->run = run;
    r->span = span[0];
    return true;
}

/* Those of a group that lie in runs of the usual kind go; how many. */
static size_t remove_group(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_book *b,
                           size_t i, size_t n, struct removal *r)
{
    struct wp_book_found found[AHEAD];
    size_t known = 0, k;

    wp_book_find_run(b, ev->engine + i, (uint32_t)n, found);
    for (; known < n && found[known].there && !(found[known].value & WP_NAMED); known++)
        __builtin_prefetch(wp_run_at(ix, wp_place_run(found[known].value)));
    for (k = 0; k < known && open_run(ix, ev, wp_place_run(found[k].value), r); k++) {
        wp_u128 bit = (wp_u128)1 << wp_place_off(found[k].value);

        if (i + k + AHEAD < ev->n)
            wp_book_prefetch(b, ev->engine[i + k + AHEAD]);
        if (!wp_book_del_found(b, ev->engine[i + k], &found[k]))
            break; /* the hash is in the event twice */
        r->mask |= bit;
        r->mixed += wp_index_mix(ev->engine[i + k], ev->group);
    }
    return k;
}

size_t wp_bulk_remove(struct wp_index *ix, const struct wp_kv_event *ev, size_t i)
{
    struct wp_shelf *shelf = wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1);
    struct wp_index_digest *digest = &ix->holders[ev->holder].digest;
    struct removal r = {0};
    size_t start = i, n, done;

    if (!shelf || !shelf->book.n || !is_plain(&ix->holders[ev->holder]))
        return 0;
    call_for(&shelf->book, ev->engine + i, ev->n - i);
    do {
        n = ev->n - i < AHEAD ? ev->n - i : AHEAD;
        done = remove_group(ix, ev, &shelf->book, i, n, &r);
        i += done;
    } while (n && done == n);
    flush(ix, ev, &r);
    digest->names[ev->tier] -= i - start;
    digest->sum[ev->tier] -= r.mixed;
    return i - start;
}
