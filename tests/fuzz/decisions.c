/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as recorded decisions.  The first byte says how: 0: the rest is the file itself.  Else it is the records of one, of which a file
 * with right checksums is made: so what they say is reached, and policies decide over any workers.  What is refused is told in words; what is
 * accepted counts up.
 */
#include "base/frames.h"
#include "base/mem.h"
#include "base/str.h"
#include "sim/decisions.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static struct wp_frames_out out;

static int put(void *ctx, const void *p, size_t n)
{
    return wp_buf_add(ctx, p, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wp_buf file = {0};
    struct wp_decisions d;
    struct wp_err err = WP_ERR_INIT;
    int rc;

    if (size == 0)
        return 0;
    if (*data) {
        wp_frames_start(&out, wp_decision_magic, WP_DECISION_VERSION, put, &file);
        wp_frames_section(&out, WP_DECISION_SECTION);
        wp_frames_put(&out, data + 1, size - 1);
        MUST(wp_frames_finish(&out) == 0);
        rc = wp_decisions_check(&d, file.p, file.n, &err);
    } else {
        rc = wp_decisions_check(&d, data + 1, size - 1, &err);
    }
    MUST(rc == 0 || err.text[0]);
    MUST(d.count.same + d.count.differ + d.count.unjudged <= d.count.decisions);
    MUST((d.count.differ > 0) == (d.first[0] != 0));
    wp_buf_fini(&file);
    return 0;
}
