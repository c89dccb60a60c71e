/* SPDX-License-Identifier: Apache-2.0 */
/* The laboratory's line protocol: every line is answered as it should be, or refused with a
 * sentence that names the line. */
#include "sim/decide.h"

#include "base/mem.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t lines(const struct wp_buf *b)
{
    size_t k = 0;

    for (size_t i = 0; i < b->n; i++)
        k += b->p[i] == '\n';
    return k;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_str rest = {(const char *)data, n}, line;
    struct wp_buf out = {0};
    struct wp_decide d;
    struct wp_err err = WP_ERR_INIT;
    int rc = 0;

    wp_decide_init(&d, &out);
    while (rc == 0 && !d.over && rest.p && wp_str_split(&rest, '\n', &line)) {
        out.n = 0;
        rc = wp_decide_line(&d, line, &err);
        if (rc < 0) {
            if (!strstr(err.text, "line "))
                abort();
        } else if (line.n && line.p[0] == 'R'
                       ? lines(&out) != 1 || (out.p[0] != 'P' && out.p[0] != 'H')
                   : line.n && line.p[0] == 'T' ? lines(&out) < 1 || out.p[out.n - 2] != '.'
                                                : out.n != 0) {
            abort();
        }
    }
    wp_decide_fini(&d);
    wp_buf_fini(&out);
    return 0;
}
