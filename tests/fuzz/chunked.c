/* SPDX-License-Identifier: Apache-2.0 */
/* A chunked body gives the same data, the same end and the same verdict whole and in pieces (the
 * first byte says how long). */
#include "base/err.h"
#include "base/mem.h"
#include "net/http1.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static long read_all(const char *p, size_t n, size_t step, struct wp_buf *out, struct wp_chunked *c)
{
    size_t at = 0, have = 0;

    while (at < n && !c->done) {
        const char *data, *why = NULL;
        size_t data_n;
        long used;

        if (at == have)
            have = n - at < step ? n : at + step;
        used = wp_chunked_read(c, p + at, have - at, &data, &data_n, &why);
        if (used < 0) {
            if (!why)
                abort();
            return used;
        }
        if (used == 0 || (size_t)used > have - at ||
            (data_n && (data < p + at || data + data_n > p + have)))
            abort();
        if (wp_buf_add(out, data, data_n) < 0)
            abort();
        at += (size_t)used;
    }
    return (long)at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_chunked a = {0}, b = {0};
    struct wp_buf out_a = {0}, out_b = {0};
    const char *p = (const char *)data + 1;

    if (n == 0)
        return 0;
    if (read_all(p, n - 1, n, &out_a, &a) !=
            read_all(p, n - 1, data[0] ? data[0] : 1, &out_b, &b) ||
        a.done != b.done || a.last != b.last || a.state != b.state)
        abort();
    if (out_a.n != out_b.n || (out_a.n && memcmp(out_a.p, out_b.p, out_a.n) != 0))
        abort();
    wp_buf_fini(&out_a);
    wp_buf_fini(&out_b);
    return 0;
}
