/* SPDX-License-Identifier: Apache-2.0 */
#include "router/form.h"

#include "base/err.h"

enum { BOUNDARY_MAX = 70 }; /* RFC 2046 */

bool wp_form_is(struct wp_str type)
{
    return type.n >= 10 && wp_str_iis((struct wp_str){type.p, 10}, "multipart/");
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/*
 * Cuts the next `; key=value` off *rest, which starts behind the type.  A quoted value is without
 * its quotes; of escapes inside it the backslash stays, which no name that we look for has.
 */
static bool next_param(struct wp_str *rest, struct wp_str *key, struct wp_str *value)
{
    const char *p = rest->p, *end = rest->p ? rest->p + rest->n : NULL, *from;

    while (p < end && (*p == ';' || blank(*p)))
        p++;
    for (from = p; p < end && *p != '=' && *p != ';'; p++)
        ;
    *key = wp_str_trim((struct wp_str){from, (size_t)(p - from)});
    *value = (struct wp_str){0};
    if (p < end && *p == '=') {
        p++;
        if (p < end && *p == '"') {
            for (from = ++p; p < end && *p != '"'; p++)
                p += *p == '\\' && p + 1 < end;
            *value = (struct wp_str){from, (size_t)(p - from)};
            while (p < end && *p != ';')
                p++;
        } else {
            for (from = p; p < end && *p != ';'; p++)
                ;
            *value = wp_str_trim((struct wp_str){from, (size_t)(p - from)});
        }
    }
    *rest = (struct wp_str){p, (size_t)(end - p)};
    return key->n > 0;
}

/* The value of a parameter of "type; key=value; ..."; absent when there is none. */
static struct wp_str param(struct wp_str text, const char *name)
{
    struct wp_str head, key, value;

    if (!wp_str_split(&text, ';', &head) || !text.p)
        return (struct wp_str){0};
    while (next_param(&text, &key, &value))
        if (wp_str_iis(key, name))
            return value;
    return (struct wp_str){0};
}

/* The rest of a line that is blank up to its CRLF: where the next line starts, or NULL. */
static const char *blank_line(const char *p, const char *end)
{
    while (p < end && blank(*p))
        p++;
    return end - p >= 2 && p[0] == '\r' && p[1] == '\n' ? p + 2 : NULL;
}

struct cut {          /* a line that is a boundary */
    const char *at;   /* its CRLF belongs to it */
    const char *next; /* what follows; NULL: it was the closing one */
};

/* The next boundary at or behind p.  Text that only begins like one is data. */
static bool find_cut(const char *start, const char *p, const char *end, struct wp_str mark,
                     struct cut *out)
{
    while (p < end && (p = memmem(p, (size_t)(end - p), mark.p, mark.n))) {
        const char *behind = p + mark.n;

        out->at = p == start ? p : p - 2;
        if (p == start || (p - start >= 2 && p[-2] == '\r' && p[-1] == '\n')) {
            out->next = NULL;
            if (end - behind >= 2 && behind[0] == '-' && behind[1] == '-')
                return true;
            out->next = blank_line(behind, end);
            if (out->next)
                return true;
        }
        p++;
    }
    return false;
}

/* The text of a part [p, end) when it is a field of that name. */
static struct wp_str text_of(const char *p, const char *end, const char *name)
{
    struct wp_str rest = {p, (size_t)(end - p)}, line, disposition = {0};

    while (wp_str_split(&rest, '\n', &line) && line.n > 1) {
        struct wp_str value = line, key;

        if (wp_str_split(&value, ':', &key) && value.p && wp_str_iis(key, "content-disposition"))
            disposition = wp_str_trim(value);
    }
    if (!rest.p || !disposition.p || !wp_str_is(param(disposition, "name"), name) ||
        param(disposition, "filename").p)
        return (struct wp_str){0};
    return rest;
}

int wp_form_field(struct wp_str type, struct wp_str body, const char *name, struct wp_str *value,
                  const char **why)
{
    struct wp_str boundary = param(type, "boundary"), found, last = {0};
    const char *end = body.p ? body.p + body.n : NULL;
    char text[2 + BOUNDARY_MAX] = "--";
    struct cut here, next;

    *value = (struct wp_str){0};
    *why = "its Content-Type names no boundary";
    if (boundary.n == 0 || boundary.n > BOUNDARY_MAX)
        return WP_EPROTO;
    memcpy(text + 2, boundary.p, boundary.n);
    boundary = (struct wp_str){text, boundary.n + 2};
    *why = "the boundary of its Content-Type is not in it";
    if (!body.p || !find_cut(body.p, body.p, end, boundary, &here) || !here.next)
        return WP_EPROTO;
    *why = "it ends without a closing boundary";
    while (here.next) {
        if (!find_cut(body.p, here.next - 2, end, boundary, &next))
            return WP_EPROTO;
        found = next.at > here.next ? text_of(here.next, next.at, name) : (struct wp_str){0};
        if (found.p)
            last = found;
        here = next;
    }
    *why = NULL;
    *value = last;
    return 0;
}
