/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream whole, byte by byte, and in pieces that its own bytes choose: the same events.  The
 * first byte is the most data that is kept of an event.
 */
#include "net/sse.h"

#include "base/err.h"

#include <stdlib.h>

static void on_event(void *arg, const struct wp_sse_event *ev)
{
    struct wp_buf *log = arg;
    size_t n[2] = {ev->name.n, ev->data.n};

    if (wp_buf_add(log, n, sizeof n) < 0 || wp_buf_add(log, ev->name.p, ev->name.n) < 0 ||
        wp_buf_add(log, ev->data.p, ev->data.n) < 0 || wp_buf_add(log, &ev->cut, 1) < 0)
        abort();
}

enum { WHOLE, BYTES, PIECES, WAYS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_buf log[WAYS] = {{0}};
    bool between[WAYS];

    if (n == 0)
        return 0;
    for (int way = 0; way < WAYS; way++) {
        struct wp_sse s;
        size_t step;

        wp_sse_init(&s, data[0], on_event, &log[way]);
        for (size_t i = 1; i < n; i += step) {
            step = way == WHOLE ? n - i : way == BYTES ? 1 : 1u + data[i] % 13u;
            step = step > n - i ? n - i : step;
            if (wp_sse_feed(&s, (const char *)data + i, step) < 0)
                abort();
        }
        between[way] = wp_sse_between(&s);
        if (s.data.cap > data[0])
            abort();
        wp_sse_fini(&s);
    }
    for (int way = 1; way < WAYS; way++)
        if (!wp_str_eq(wp_buf_str(&log[0]), wp_buf_str(&log[way])) || between[0] != between[way])
            abort();
    for (int way = 0; way < WAYS; way++)
        wp_buf_fini(&log[way]);
    return 0;
}
