/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/bytes.h"

#include "base/mem.h"

/* bits of each digit are appended; what is left over must be less than a byte, and 0. */
static char *decode(struct wp_str text, const char *digits, unsigned bits, size_t *n)
{
    char *out = wp_malloc(text.n ? text.n : 1), *exact;
    unsigned acc = 0, have = 0;
    const char *d;

    *n = 0;
    for (size_t i = 0; out && i < text.n; i++) {
        if (text.p[i] == '#' && (i == 0 || text.p[i - 1] == '\n'))
            while (i + 1 < text.n && text.p[i + 1] != '\n')
                i++;
        else if (text.p[i] != '\n' && text.p[i] != ' ' && text.p[i] != '=') {
            d = text.p[i] ? strchr(digits, text.p[i]) : NULL;
            if (!d)
                goto fail;
            acc = (acc << bits | (unsigned)(d - digits)) & 0xFFFF;
            have += bits;
            if (have >= 8) {
                have -= 8;
                out[(*n)++] = (char)(acc >> have);
            }
        }
    }
    if (out && (have >= bits || acc & ((1u << have) - 1)))
        goto fail;
    exact = out ? wp_memdup(out, *n) : NULL;
    wp_free(out);
    return exact;

fail:
    wp_free(out);
    return NULL;
}

char *wp_test_hex(struct wp_str text, size_t *n)
{
    return decode(text, "0123456789abcdef", 4, n);
}

char *wp_test_base64(struct wp_str text, size_t *n)
{
    return decode(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 6, n);
}
