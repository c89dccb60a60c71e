/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/engines/prom.h"

#include <stdlib.h>

/* The brace that ends the labels, or NULL: one inside quotes does not. */
static const char *labels_end(const char *p, const char *end)
{
    bool quoted = false;

    for (; p < end; p++) {
        if (quoted && *p == '\\')
            p++;
        else if (*p == '"')
            quoted = !quoted;
        else if (*p == '}' && !quoted)
            return p;
    }
    return NULL;
}

static bool number(struct wp_str s, double *out)
{
    char text[64], *end;

    s = wp_str_trim(s);
    if (s.n == 0 || s.n >= sizeof text)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    *out = strtod(text, &end); /* takes NaN and +Inf as Prometheus writes them */
    return end != text && (end == text + s.n || *end == ' ' || *end == '\t'); /* a time stamp may follow */
}

static bool sample(struct wp_str line, struct wp_prom *out)
{
    const char *p, *end, *brace;

    line = wp_str_trim(line);
    if (line.n == 0 || line.p[0] == '#')
        return false;
    p = line.p;
    end = line.p + line.n;
    while (p < end && *p != '{' && *p != ' ' && *p != '\t')
        p++;
    out->name = (struct wp_str){line.p, (size_t)(p - line.p)};
    out->labels = (struct wp_str){0};
    if (p < end && *p == '{') {
        brace = labels_end(p + 1, end);
        if (!brace)
            return false;
        out->labels = (struct wp_str){p + 1, (size_t)(brace - p - 1)};
        p = brace + 1;
    }
    return out->name.n && number((struct wp_str){p, (size_t)(end - p)}, &out->value);
}

bool wp_prom_next(struct wp_str *page, struct wp_prom *out)
{
    struct wp_str line;

    while (wp_str_split(page, '\n', &line))
        if (sample(line, out))
            return true;
    return false;
}

/* Walks a quoted value that starts at p, copying it when out is given; returns what follows its closing quote. */
static const char *value(const char *p, const char *end, char *out, size_t cap)
{
    size_t n = 0;

    for (; p < end && *p != '"'; p++) {
        char c = *p;

        if (c == '\\' && p + 1 < end) {
            p++;
            c = *p == 'n' ? '\n' : *p;
        }
        if (out && n + 1 < cap)
            out[n++] = c;
    }
    if (out)
        out[n] = 0;
    return p < end ? p + 1 : end;
}

bool wp_prom_label(const struct wp_prom *prom, const char *name, char *out, size_t cap)
{
    const char *p = prom->labels.p, *end = p ? p + prom->labels.n : NULL;

    while (p < end) {
        const char *key, *eq;

        while (p < end && (*p == ',' || *p == ' '))
            p++;
        key = p;
        eq = p < end ? memchr(p, '=', (size_t)(end - p)) : NULL;
        if (!eq || eq + 1 >= end || eq[1] != '"')
            return false;
        if (wp_str_is(wp_str_trim((struct wp_str){key, (size_t)(eq - key)}), name)) {
            value(eq + 2, end, out, cap);
            return true;
        }
        p = value(eq + 2, end, NULL, 0);
    }
    return false;
}
