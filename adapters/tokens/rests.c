/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/tokens/rests.h"

void wp_rest(struct wp_rests *r, uint64_t key, uint64_t until_us, bool hard)
{
    size_t i = 0, first = 0;

    while (i < r->n && r->at[i].key != key) {
        if (r->at[i].until_us < r->at[first].until_us)
            first = i;
        i++;
    }
    if (i < r->n) { /* the longer one stands */
        if (r->at[i].until_us > until_us)
            return;
    } else if (r->n < WP_RESTS_MAX) {
        r->n++;
    } else {
        i = first;
    }
    r->at[i].key = key;
    r->at[i].until_us = until_us;
    r->at[i].hard = hard;
}

void wp_rest_over(struct wp_rests *r, uint64_t key)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].key == key)
            r->at[i--] = r->at[--r->n];
}

size_t wp_resting(struct wp_rests *r, uint64_t now_us, bool all, uint64_t out[])
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (r->at[i].until_us <= now_us)
            r->at[i--] = r->at[--r->n];
        else if (all || r->at[i].hard)
            out[n++] = r->at[i].key;
    }
    return n;
}
