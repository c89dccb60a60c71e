/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A head gets the same verdict whole and byte by byte; what we accept, we can write and read back
 * as the same. The first byte chooses: even is a request, odd a response.
 */
#include "base/err.h"
#include "base/mem.h"
#include "net/http1.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX = 2048 };

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static long read_head(struct wp_head *h, bool response, const char *p, size_t n, bool split)
{
    const char *why = NULL;
    size_t from = 0;
    int status = 0;
    long rc = 0;

    for (size_t have = split ? 0 : n; have <= n && rc == 0; have++)
        rc = response ? wp_http1_response(p, have, MAX, &from, h, &why)
                      : wp_http1_request(p, have, MAX, &from, h, &status, &why);
    MUST(rc >= 0 || why);
    MUST(rc >= 0 || response || status >= 400);
    return rc;
}

static void same(const struct wp_head *a, const struct wp_head *b)
{
    MUST(wp_str_eq(a->method, b->method) && wp_str_eq(a->target, b->target));
    MUST(a->status == b->status && a->n_fields == b->n_fields);
    MUST(a->content_length == b->content_length && a->chunked == b->chunked);
    for (size_t i = 0; i < a->n_fields; i++) {
        MUST(wp_str_eq(a->field[i].name, b->field[i].name));
        MUST(wp_str_eq(a->field[i].value, b->field[i].value));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct wp_head whole, split, again;
    struct wp_buf b = {0};
    const char *p = (const char *)data + 1;
    bool response;
    long rc;

    if (n == 0)
        return 0;
    response = data[0] & 1;
    rc = read_head(&whole, response, p, n - 1, false);
    MUST(rc == read_head(&split, response, p, n - 1, true));
    if (rc <= 0)
        return 0;
    same(&whole, &split);
    if (whole.minor == 0)
        return 0; /* we write HTTP/1.1 only */
    MUST((response ? wp_http1_put_status(&b, whole.status, whole.reason)
                   : wp_http1_put_request(&b, whole.method, whole.target)) == 0);
    for (size_t i = 0; i < whole.n_fields; i++)
        MUST(wp_http1_put_field(&b, whole.field[i].name, whole.field[i].value) == 0);
    MUST(wp_http1_put_end(&b) == 0);
    if (b.n <= MAX) {
        MUST(read_head(&again, response, b.p, b.n, false) == (long)b.n);
        same(&whole, &again);
    }
    wp_buf_fini(&b);
    return 0;
}
