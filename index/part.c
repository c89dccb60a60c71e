/* SPDX-License-Identifier: Apache-2.0 */
/* What one holder has of a run, block by block. */
#include "index/inside.h"

#include <string.h>

enum { SPANS_MAX = 2 * WP_SEGMENT };

void wp_part_get(const struct wp_index *ix, uint32_t run, uint32_t holder, struct wp_part *part)
{
    uint64_t span[SPANS_MAX];
    unsigned n = wp_spans_get(ix, run, holder, span);

    memset(part, 0, sizeof *part);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = wp_span_lo(span[i]); k < wp_span_hi(span[i]); k++)
            if (span[i] & WP_SPAN_WINDOW)
                part->windows[k] = wp_span_window(span[i]);
            else
                part->look[k] = span[i] & WP_SPAN_LOOK;
}

uint64_t wp_part_look(const struct wp_index *ix, uint32_t place, uint32_t holder)
{
    unsigned off = wp_place_off(place);
    uint64_t span[SPANS_MAX];
    unsigned n = wp_spans_get(ix, wp_place_run(place), holder, span);

    for (unsigned i = 0; i < n; i++)
        if (!(span[i] & WP_SPAN_WINDOW) && wp_span_lo(span[i]) <= off && off < wp_span_hi(span[i]))
            return span[i] & WP_SPAN_LOOK;
    return 0;
}

bool wp_part_put(struct wp_index *ix, uint32_t run, uint32_t holder, const struct wp_part *part)
{
    unsigned len = wp_run_len(wp_run_at(ix, run)), n = 0;
    uint64_t span[SPANS_MAX];

    for (unsigned i = 0, k; i < len; i = k) {
        for (k = i + 1; k < len && part->look[k] == part->look[i];)
            k++;
        if (part->look[i])
            span[n++] = wp_span(i, k, part->look[i], 0);
    }
    for (unsigned i = 0, k; i < len; i = k) {
        for (k = i + 1; k < len && part->windows[k] == part->windows[i];)
            k++;
        if (part->windows[i])
            span[n++] = wp_span(i, k, (uint64_t)part->windows[i] << 14 | WP_SPAN_WINDOW, 0);
    }
    return wp_spans_put(ix, run, holder, span, n);
}
