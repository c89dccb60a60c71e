/* SPDX-License-Identifier: Apache-2.0 */
/* Many keys one after the other: their lines are on the way while others are worked on. */
#include "index/book_impl.h"

/* Hashes of the next keys, in a ring; their lines are called for as they enter it, with the next
 * ones: a third of the homes of a table that is as full as it should be have no room left. */
struct ring {
    uint64_t hash[WP_BOOK_AHEAD];
};

static void enter(const struct wp_book *b, struct ring *r, uint32_t i, uint64_t key)
{
    uint64_t hash = wp_book_hash(b->secret, key);

    r->hash[i % WP_BOOK_AHEAD] = hash;
    __builtin_prefetch(&b->at[home_of(b, hash).at]);
    __builtin_prefetch(&b->at[home_of(b, hash).at] + 1);
}

uint32_t wp_book_add_run(struct wp_book *b, const uint64_t key[], uint32_t n, uint32_t value)
{
    struct ring r;
    uint32_t i;

    for (i = 0; i < n && i < WP_BOOK_AHEAD; i++)
        enter(b, &r, i, key[i]);
    for (i = 0; i < n; i++) {
        uint64_t hash = r.hash[i % WP_BOOK_AHEAD];
        struct spot s;

        if (i + WP_BOOK_AHEAD < n)
            enter(b, &r, i, key[i + WP_BOOK_AHEAD]);
        if (moving(b) && b->n < room(b->side[b->now].buckets))
            wp_book_work(b);
        if (locate_hashed(b, key[i], hash, &s))
            break;
        place(b, s.home, hash, key[i], value + i);
        b->n++;
        b->owed -= b->owed > 0;
    }
    return i;
}

void wp_book_find_run(const struct wp_book *b, const uint64_t key[], uint32_t n,
                      struct wp_book_found found[])
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = wp_book_hash(b->secret, key[i]);
        struct spot s;

        found[i].there = b->at && locate_hashed(b, key[i], hash, &s);
        if (!found[i].there)
            continue;
        found[i].hash = hash;
        found[i].at = s.at;
        found[i].way = s.way;
        found[i].value = b->at[s.at].value[s.way];
    }
}

bool wp_book_del_found(struct wp_book *b, uint64_t key, const struct wp_book_found *found)
{
    struct spot s;

    if (!b->n)
        return false;
    if (b->at[found->at].key[found->way] != key || !(b->at[found->at].state >> found->way & 1))
        return wp_book_del(b, key);
    s = (struct spot){home_of(b, found->hash), found->at, found->way};
    wp_book_del_at(b, &s);
    return true;
}
