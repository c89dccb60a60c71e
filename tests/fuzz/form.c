/* SPDX-License-Identifier: Apache-2.0 */
/* The first line is the content type, the rest the body.  What is found lies inside the body and is
 * found again in that body. */
#include "router/form.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_str body = {(const char *)data, n}, type, value, again;
    const char *why;

    if (n == 0 || !wp_str_split(&body, '\n', &type) || !body.p)
        return 0;
    if (wp_form_field(type, body, "model", &value, &why) < 0) {
        if (!why || value.p)
            abort();
        return 0;
    }
    if (value.p && (value.p < body.p || value.p + value.n > body.p + body.n))
        abort();
    if (wp_form_field(type, body, "model", &again, &why) < 0 || again.p != value.p ||
        again.n != value.n)
        abort();
    return 0;
}
