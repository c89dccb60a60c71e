/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/json_lex.h - what json.c, json_value.c and json_edit.c share; for nobody else.
 * All of it moves over text that was checked, so it needs no bounds: the brackets and quotes are
 * there.
 */
#ifndef WP_NET_JSON_LEX_H
#define WP_NET_JSON_LEX_H

#include <stdbool.h>
#include <string.h>

static inline bool wp_json_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* p is at the opening quote of a string that ends before end; returns what follows the closing one.
 */
static inline const char *wp_json_past_string(const char *p, const char *end)
{
    for (p++;;) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        const char *slash = memchr(p, '\\', (size_t)(quote - p));

        if (!slash)
            return quote + 1;
        p = slash + 2; /* whatever is escaped, it is no quote of ours */
    }
}

#endif
