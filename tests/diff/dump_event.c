/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads of KV events on standard input, each behind its length (4 bytes, least first); what we
 * make of each as a line of JSON on standard output.  For tests/diff/decode.py.
 */
#include "tests/lib/event_json.h"

#include <stdio.h>
#include <stdlib.h>

static int dump(struct wp_str payload)
{
    json_t *o = wp_event_json(payload, true);
    int rc = o ? json_dumpf(o, stdout, JSON_COMPACT) : -1;

    json_decref(o);
    return rc == 0 && putchar('\n') == '\n' ? 0 : -1;
}

int main(void)
{
    uint8_t head[4];

    while (fread(head, 1, sizeof head, stdin) == sizeof head) {
        size_t n = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
        char *p = malloc(n ? n : 1); /* exact, so that a sanitizer sees one byte too far */
        int rc;

        if (!p || fread(p, 1, n, stdin) != n) {
            fprintf(stderr, "dump_event: a payload is cut short\n");
            free(p);
            return 1;
        }
        rc = dump((struct wp_str){p, n});
        free(p);
        if (rc < 0) {
            fprintf(stderr, "dump_event: a payload of %zu bytes cannot be written as JSON\n", n);
            return 1;
        }
    }
    return 0;
}
