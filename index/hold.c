/* SPDX-License-Identifier: Apache-2.0 */
/* Names and copies: what events say of engine hashes, and what the holder has by that at a place.
 */
#include "index/hold.h"

enum { EVERY_TIER = 0xFF };

/* Places. */

void wp_spot_open(const struct wp_index *ix, uint32_t holder, uint32_t place, struct wp_spot *s)
{
    s->holder = holder;
    s->place = place;
    s->run = wp_place_run(place);
    s->off = wp_place_off(place);
    wp_part_get(ix, s->run, holder, &s->part);
}

/* False: no memory, and the holder has lost the run. */
bool wp_spot_close(struct wp_index *ix, const struct wp_spot *s)
{
    if (wp_part_put(ix, s->run, s->holder, &s->part))
        return true;
    wp_hold_purge(ix, s->holder);
    return false;
}

void wp_spot_set(struct wp_spot *s, uint8_t tiers, uint8_t sure, uint64_t flags)
{
    s->part.look[s->off] = tiers ? wp_look(tiers, flags & WP_SPAN_VAGUE ? 0 : sure) | flags : 0;
    if (!tiers)
        s->part.windows[s->off] = 0;
}

/* Does the holder really have anything below the place? */
static bool has_below(const struct wp_index *ix, uint32_t holder, uint32_t place)
{
    uint32_t top = wp_place_run(place), run = top;
    struct wp_part part;

    wp_part_get(ix, run, holder, &part);
    for (unsigned i = wp_place_off(place) + 1; i < WP_SEGMENT; i++)
        if (wp_look_real(part.look[i]))
            return true;
    run = wp_own_at(ix, top)->child;
    while (run) {
        bool under = wp_place_run(wp_run_at(ix, run)->parent) != top ||
                     wp_place_off(wp_run_at(ix, run)->parent) >= wp_place_off(place);

        if (under) {
            wp_part_get(ix, run, holder, &part);
            for (unsigned i = 0; i < WP_SEGMENT; i++)
                if (wp_look_real(part.look[i]))
                    return true;
            if (wp_own_at(ix, run)->child) {
                run = wp_own_at(ix, run)->child;
                continue;
            }
        }
        while (run != top && !wp_own_at(ix, run)->next)
            run = wp_place_run(wp_run_at(ix, run)->parent);
        if (run == top)
            return false;
        run = wp_own_at(ix, run)->next;
    }
    return false;
}

void wp_hold_unguess(struct wp_index *ix, uint32_t holder, uint32_t place)
{
    uint32_t d = wp_detail_of(ix, holder, place);
    struct wp_spot s;

    if (d) {
        wp_detail_drop_idle(ix, d);
        wp_detail_drop(ix, d);
    }
    wp_spot_open(ix, holder, place, &s);
    wp_spot_set(&s, 0, 0, 0);
    wp_spot_close(ix, &s);
}

/* Something was lost at the place: guesses before it that nothing speaks for any more end, and runs
 * that are empty go. */
void wp_hold_lost(struct wp_index *ix, uint32_t holder, uint32_t place)
{
    uint32_t low = place;

    for (uint32_t p = place; ix->holders[holder].guesses;) {
        uint64_t look;

        p = wp_place_before(ix, p);
        if (p == WP_NOWHERE)
            break;
        look = wp_part_look(ix, p, holder);
        if (!look)
            continue;
        if (!(look & WP_SPAN_GUESS) || has_below(ix, holder, p))
            break;
        wp_hold_unguess(ix, holder, p);
    }
    wp_run_settle(ix, wp_place_run(low));
}

/* Guesses at the place and before it that nothing speaks for end. */
void wp_hold_unsupported(struct wp_index *ix, uint32_t holder, uint32_t place)
{
    if (wp_part_look(ix, place, holder) & WP_SPAN_GUESS && !has_below(ix, holder, place))
        wp_hold_unguess(ix, holder, place);
    wp_hold_lost(ix, holder, place);
}

/* Names. */

bool wp_hold_find(const struct wp_index *ix, struct wp_shelf *shelf, uint64_t engine,
                  struct wp_known *k)
{
    k->value = shelf ? wp_book_find(&shelf->book, engine) : NULL;
    if (!k->value)
        return false;
    k->shelf = shelf;
    k->engine = engine;
    k->name = *k->value & WP_NAMED ? *k->value & ~WP_NAMED : 0;
    k->place = k->name ? wp_detail_at(ix, wp_name_at(ix, k->name)->detail)->place : *k->value;
    return true;
}

bool wp_hold_idle(const struct wp_index *ix, const struct wp_known *k)
{
    return k->name && wp_name_idle(wp_name_at(ix, k->name));
}

/* Makes room for a name of its own; 0: no memory. */
static uint32_t detail_for(struct wp_index *ix, uint32_t holder, uint32_t place,
                           const struct wp_spot *s)
{
    uint32_t d = wp_detail_of(ix, holder, place);

    if (!wp_details_reserve(ix))
        return 0;
    if (d)
        return d;
    d = wp_detail_make(ix, holder, place);
    if (wp_look_real(wp_spot_look(s))) { /* the one name that was there is plain */
        wp_detail_at(ix, d)->rest = wp_look_tiers(wp_spot_look(s));
        wp_detail_at(ix, d)->rest_windows = s->part.windows[s->off];
    }
    return d;
}

/* The plain name gets a number, because it has more copies than a book can say. */
static bool make_known(struct wp_index *ix, uint32_t holder, struct wp_known *k,
                       const struct wp_spot *s)
{
    uint32_t d = detail_for(ix, holder, k->place, s);
    struct wp_detail *it;

    if (!d)
        return false;
    it = wp_detail_at(ix, d);
    k->name = wp_name_make(ix, d, k->shelf, k->engine);
    for (int t = 0; t < WP_TIER_MAX; t++)
        wp_name_at(ix, k->name)->copies[t] = it->rest >> t & 1;
    wp_name_at(ix, k->name)->windows = it->rest_windows;
    it->rest = 0;
    it->rest_windows = 0;
    *k->value = WP_NAMED | k->name;
    return true;
}

static void held_more(struct wp_index *ix, struct wp_spot *s, uint8_t tiers, uint8_t sure,
                      bool vague)
{
    uint64_t look = wp_spot_look(s);
    uint64_t flags = (look & WP_SPAN_VAGUE) | (vague ? WP_SPAN_VAGUE : 0);
    uint32_t d = look & WP_SPAN_GUESS ? wp_detail_of(ix, s->holder, s->place) : 0;

    if (look & WP_SPAN_GUESS)
        look = 0;
    if (d)
        wp_detail_drop_idle(ix, d);
    wp_spot_set(s, wp_look_tiers(look) | tiers, wp_span_sure(look) | sure, flags);
}

/* After names changed: the windows' bits, and whether there must be a detail. */
void wp_spot_sum_up(struct wp_index *ix, struct wp_spot *s)
{
    uint32_t d = wp_detail_of(ix, s->holder, s->place);

    if (!d)
        return;
    s->part.windows[s->off] = wp_look_real(wp_spot_look(s)) ? wp_detail_windows(ix, d) : 0;
    wp_detail_normalise(ix, d, (wp_spot_look(s) & WP_SPAN_GUESS) != 0);
}

/*
 * A store of what is in doubt in the tier: it may be what was lost, for an engine stores again what
 * it has no more.  The copies that were counted there are void, whoever's name they have. by_plain:
 * the store is by that name, which is the plain one and stays.
 */
static bool void_copies(struct wp_index *ix, struct wp_spot *s, uint8_t tier,
                        const struct wp_known *by_plain)
{
    struct wp_holder *h = &ix->holders[s->holder];
    uint64_t look = wp_spot_look(s);
    uint8_t bit = (uint8_t)(1u << tier), left = wp_look_tiers(look) & (uint8_t)~bit, *rest = &left;
    uint32_t d = wp_detail_of(ix, s->holder, s->place);

    if (look & (WP_SPAN_VAGUE | WP_SPAN_GUESS) ||
        !(wp_look_tiers(look) & ~wp_span_sure(look) & bit))
        return false;
    for (uint32_t n = d ? wp_detail_at(ix, d)->names : 0; n; n = wp_name_at(ix, n)->next)
        wp_name_void(ix, s->holder, wp_name_at(ix, n), tier);
    if (d) {
        rest = &wp_detail_at(ix, d)->rest;
        if (!(*rest & bit))
            return true;
        *rest &= (uint8_t)~bit;
    }
    if (by_plain) {
        wp_digest_name(h, by_plain->engine, by_plain->shelf->group, bit, -1);
        return true;
    }
    if (!*rest)
        wp_hold_forget_plain(ix, s->holder, s->place, bit);
    else
        h->digest_stale = true; /* which name that is is not worth a search */
    if (!d)
        wp_spot_set(s, left, wp_span_sure(look) & left, 0);
    return true;
}

bool wp_hold_give(struct wp_index *ix, uint32_t holder, struct wp_known *k, uint8_t tier,
                  bool vague)
{
    uint32_t d = wp_detail_of(ix, holder, k->place);
    uint8_t bit = (uint8_t)(1u << tier);
    struct wp_spot s;
    bool anew, first;
    uint8_t has;

    wp_spot_open(ix, holder, k->place, &s);
    anew = void_copies(ix, &s, tier, k->name ? NULL : k);
    has = d ? wp_detail_at(ix, d)->rest : wp_look_tiers(wp_spot_look(&s));
    if (!k->name && has & bit && !anew && !make_known(ix, holder, k, &s))
        return false;
    if (k->name) {
        if (wp_name_at(ix, k->name)->copies[tier] == WP_COPIES_MAX)
            return false;
        first = wp_name_at(ix, k->name)->copies[tier]++ == 0;
    } else {
        first = true;
        if (d)
            wp_detail_at(ix, d)->rest |= bit;
    }
    if (first)
        wp_digest_name(&ix->holders[holder], k->engine, k->shelf->group, bit, 1);
    if (anew && d)
        wp_detail_drop_idle(ix, d);
    held_more(ix, &s, bit, bit, vague);
    wp_spot_sum_up(ix, &s);
    return wp_spot_close(ix, &s);
}

bool wp_hold_arrive(struct wp_index *ix, const struct wp_arrival *a)
{
    struct wp_shelf *shelf = wp_shelf_make(ix, a->holder, a->space, a->group, -1);
    uint8_t tiers = wp_copies_tiers(a->copies);
    uint32_t d, name;
    bool plain, anew;
    struct wp_spot s;

    if (!shelf || wp_book_reserve(&shelf->book, ix->prefix.secret, 1, &ix->budget) < 0)
        return false;
    wp_spot_open(ix, a->holder, a->place, &s);
    anew = a->stored && void_copies(ix, &s, (uint8_t)__builtin_ctz(tiers), NULL);
    d = wp_detail_of(ix, a->holder, a->place);
    plain = !d && !a->awaited;
    for (int t = 0; t < WP_TIER_MAX; t++)
        plain = plain && a->copies[t] <= 1;
    if (plain && !wp_look_real(wp_spot_look(&s))) {
        wp_book_put(&shelf->book, a->engine, a->place);
        wp_digest_name(&ix->holders[a->holder], a->engine, a->group, tiers, 1);
        s.part.windows[s.off] = ix->holders[a->holder].windows
                                    ? wp_windows_with(ix, a->holder, a->space, a->engine)
                                    : 0;
        held_more(ix, &s, tiers, a->sure & tiers, a->vague);
        return wp_spot_close(ix, &s);
    }
    d = detail_for(ix, a->holder, a->place, &s);
    if (!d)
        return false;
    name = wp_name_make(ix, d, shelf, a->engine);
    memcpy(wp_name_at(ix, name)->copies, a->copies, sizeof a->copies);
    if (ix->holders[a->holder].windows)
        wp_name_at(ix, name)->windows = wp_windows_with(ix, a->holder, a->space, a->engine);
    wp_book_put(&shelf->book, a->engine, WP_NAMED | name);
    wp_digest_name(&ix->holders[a->holder], a->engine, a->group, tiers, 1);
    if (anew)
        wp_detail_drop_idle(ix, d);
    if (!a->awaited)
        held_more(ix, &s, tiers, a->sure & tiers, a->vague);
    wp_spot_sum_up(ix, &s);
    return wp_spot_close(ix, &s);
}

/* The tiers that the names at the spot no longer have are gone. */
void wp_spot_less(struct wp_spot *s, uint8_t named)
{
    uint64_t look = wp_spot_look(s);

    wp_spot_set(s, wp_look_tiers(look) & named, wp_span_sure(look) & named, look & WP_SPAN_VAGUE);
}

static void take_off(struct wp_index *ix, uint32_t holder, struct wp_known *k, uint8_t tiers,
                     struct wp_spot *s)
{
    uint32_t d = wp_detail_of(ix, holder, k->place);
    uint8_t left, had = wp_name_tiers(ix, holder, k->shelf, *k->value);

    wp_digest_name(&ix->holders[holder], k->engine, k->shelf->group, had & tiers, -1);
    if (!d) { /* plain, and the only one */
        left = wp_look_tiers(wp_spot_look(s)) & (uint8_t)~tiers;
        if (!left)
            wp_book_del(&k->shelf->book, k->engine);
    } else if (!k->name) {
        wp_detail_at(ix, d)->rest &= (uint8_t)~tiers;
        if (!wp_detail_at(ix, d)->rest) {
            wp_detail_at(ix, d)->rest_windows = 0;
            wp_book_del(&k->shelf->book, k->engine);
        }
        left = wp_detail_tiers(ix, d);
    } else {
        for (int t = 0; t < WP_TIER_MAX; t++)
            if (tiers >> t & 1)
                wp_name_at(ix, k->name)->copies[t] = 0;
        left = wp_detail_tiers(ix, d);
        if (wp_name_idle(wp_name_at(ix, k->name)))
            wp_name_drop(ix, k->name);
    }
    wp_spot_less(s, left);
    wp_spot_sum_up(ix, s);
    wp_spot_close(ix, s);
    if (!left && tiers != EVERY_TIER && ix->on_left)
        wp_left_run(ix, s->run, (wp_u128)1 << s->off);
    if (!left)
        wp_hold_lost(ix, holder, s->place);
}

bool wp_hold_take(struct wp_index *ix, uint32_t holder, struct wp_known *k, uint8_t tier)
{
    uint8_t bit = (uint8_t)(1u << tier), has;
    uint32_t d = wp_detail_of(ix, holder, k->place);
    struct wp_spot s;

    wp_spot_open(ix, holder, k->place, &s);
    if (k->name && !wp_name_at(ix, k->name)->copies[tier]) {
        if (!wp_name_idle(wp_name_at(ix, k->name)) || !(wp_spot_look(&s) & WP_SPAN_GUESS) ||
            wp_look_tiers(wp_spot_look(&s)) != bit)
            return false;
        wp_hold_unguess(ix, holder, k->place);
        wp_hold_lost(ix, holder, k->place);
        return true;
    }
    if (k->name && wp_name_at(ix, k->name)->copies[tier] > 1) {
        wp_name_at(ix, k->name)->copies[tier]--;
        wp_spot_sum_up(ix, &s);
        return true;
    }
    has = d ? wp_detail_at(ix, d)->rest : wp_look_tiers(wp_spot_look(&s));
    if (!k->name && !(has & bit))
        return false;
    take_off(ix, holder, k, bit, &s);
    return true;
}

void wp_hold_forget(struct wp_index *ix, uint32_t holder, struct wp_known *k)
{
    struct wp_spot s;

    wp_spot_open(ix, holder, k->place, &s);
    if (wp_hold_idle(ix, k)) { /* the guess stands without it */
        wp_name_drop(ix, k->name);
        return;
    }
    take_off(ix, holder, k, EVERY_TIER, &s);
}

bool wp_hold_guess(struct wp_index *ix, uint32_t holder, uint32_t place, uint8_t tier)
{
    struct wp_spot s;

    wp_spot_open(ix, holder, place, &s);
    if (wp_look_real(wp_spot_look(&s)))
        return true;
    if (wp_spot_look(&s) && wp_look_tiers(wp_spot_look(&s)) <= 1u << tier)
        return true;
    if (!wp_detail_of(ix, holder, place)) {
        if (!wp_details_reserve(ix))
            return false;
        wp_detail_make(ix, holder, place);
    }
    wp_spot_set(&s, (uint8_t)(1u << tier), 0, WP_SPAN_GUESS);
    return wp_spot_close(ix, &s);
}

/* The restricting groups' bits. */

void wp_hold_window(struct wp_index *ix, uint32_t holder, struct wp_known *k, int window, bool has)
{
    uint16_t bit = (uint16_t)(1u << window);
    uint32_t d = wp_detail_of(ix, holder, k->place);
    struct wp_spot s;
    uint16_t *at;

    wp_spot_open(ix, holder, k->place, &s);
    at = k->name ? &wp_name_at(ix, k->name)->windows
         : d     ? &wp_detail_at(ix, d)->rest_windows
                 : &s.part.windows[s.off];
    *at = (uint16_t)(has ? *at | bit : *at & ~bit);
    if (d)
        s.part.windows[s.off] = wp_look_real(wp_spot_look(&s)) ? wp_detail_windows(ix, d) : 0;
    wp_spot_close(ix, &s);
}
