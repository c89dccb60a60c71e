/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is a field's name up to its colon, then its value.  Only the name's bytes are gathered;
 * the value goes straight to where it belongs, or nowhere.  So a piece may end at any byte, and a
 * line may have any length. After a CR a line is over at once; an LF that follows belongs to it,
 * also when it comes with the next piece.
 */
#include "net/sse.h"

#include "base/err.h"

enum state {
    NAME,     /* gathering the field's name, into line */
    DATA_GAP, /* behind the colon: one blank is no part of the value */
    DATA,     /* to the data buffer */
    EVENT_GAP,
    EVENT, /* to the event's name; what does not fit is left out, so that it equals no name we know
            */
    OTHER, /* a comment, or a field that is not ours */
};

void wp_sse_init(struct wp_sse *s, size_t max, wp_sse_fn fn, void *arg)
{
    memset(s, 0, sizeof *s);
    s->data.max = max;
    s->between = true;
    s->fn = fn;
    s->arg = arg;
}

void wp_sse_fini(struct wp_sse *s)
{
    wp_buf_fini(&s->data);
}

bool wp_sse_between(const struct wp_sse *s)
{
    return s->between;
}

static int keep(struct wp_sse *s, const char *p, size_t n)
{
    size_t room = s->data.max - s->data.n;

    if (s->cut) /* only the start is given, so nothing after a gap */
        return 0;
    if (n > room) {
        s->cut = true;
        n = room;
    }
    if (n == 0)
        return 0;
    if (wp_buf_reserve(&s->data, room) < 0) { /* all at once, and never again */
        s->cut = true;
        return WP_ENOMEM;
    }
    return wp_buf_add(&s->data, p, n);
}

static int start_data(struct wp_sse *s)
{
    int rc = s->has_data ? keep(s, "\n", 1) : 0;

    s->has_data = true;
    return rc;
}

/* The field's name is complete. */
static int on_name(struct wp_sse *s)
{
    struct wp_str name = {s->line, s->line_n};

    s->state = OTHER;
    if (wp_str_is(name, "data")) {
        s->state = DATA_GAP;
        return start_data(s);
    }
    if (wp_str_is(name, "event")) {
        s->state = EVENT_GAP;
        s->name_n = 0;
    }
    return 0;
}

/* Takes the name's bytes off *p, and the colon if it is there. */
static int take_name(struct wp_sse *s, const char **p, const char *end)
{
    while (*p < end) {
        char c = *(*p)++;

        s->between = false;
        if (c == ':')
            return on_name(s);
        if (s->line_n == sizeof s->line) {
            s->state = OTHER;
            return 0;
        }
        s->line[s->line_n++] = c;
        if (!s->bom && s->line_n == 3) {
            s->bom = 1; /* where one might have been is behind us */
            if (memcmp(s->line, "\xEF\xBB\xBF", 3) == 0) {
                s->line_n = 0;
                s->between = true; /* until the next byte */
            }
        }
    }
    return 0;
}

static void take_event(struct wp_sse *s, const char *p, size_t n)
{
    size_t room = sizeof s->name - s->name_n;

    n = n > room ? room : n;
    memcpy(s->name + s->name_n, p, n);
    s->name_n = (uint8_t)(s->name_n + n);
}

/* Bytes of the present line, p < end, line ends not among them. */
static int take(struct wp_sse *s, const char *p, const char *end)
{
    int rc = 0;

    if (s->state == NAME)
        rc = take_name(s, &p, end);
    if (p == end)
        return rc;
    if (s->state == DATA_GAP || s->state == EVENT_GAP) {
        s->state = s->state == DATA_GAP ? DATA : EVENT;
        p += *p == ' ';
    }
    if (s->state == DATA && keep(s, p, (size_t)(end - p)) < 0)
        rc = WP_ENOMEM;
    if (s->state == EVENT)
        take_event(s, p, (size_t)(end - p));
    return rc;
}

/* An empty line: what has gathered is an event when it has data. */
static void dispatch(struct wp_sse *s)
{
    struct wp_sse_event ev = {
        {s->name, s->name_n}, {s->data.p ? s->data.p : "", s->data.n}, s->cut};

    if (s->has_data)
        s->fn(s->arg, &ev);
    s->data.n = 0;
    s->name_n = 0;
    s->has_data = s->cut = false;
    s->between = true;
}

static int on_line_end(struct wp_sse *s)
{
    int rc = 0;

    if (s->state == NAME && s->line_n > 0)
        rc = on_name(s); /* no colon: a field with an empty value */
    else if (s->state == NAME)
        dispatch(s);
    s->state = NAME;
    s->line_n = 0;
    s->bom = 1;
    return rc;
}

int wp_sse_feed(struct wp_sse *s, const char *p, size_t n)
{
    const char *end = p + n, *lf = NULL, *cr;
    int rc = 0;

    while (p < end) {
        if (s->after_cr) {
            s->after_cr = false;
            if (*p == '\n') {
                p++;
                continue;
            }
        }
        if (!lf || lf < p) { /* looked for once, however many CRs are before it */
            lf = memchr(p, '\n', (size_t)(end - p));
            lf = lf ? lf : end;
        }
        cr = memchr(p, '\r', (size_t)(lf - p));
        cr = cr ? cr : lf;
        if (p < cr && take(s, p, cr) < 0)
            rc = WP_ENOMEM;
        if (cr == end)
            break;
        s->after_cr = *cr == '\r';
        if (on_line_end(s) < 0)
            rc = WP_ENOMEM;
        p = cr + 1;
    }
    return rc;
}
