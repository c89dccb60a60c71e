/* SPDX-License-Identifier: Apache-2.0 */
#include "router/outline.h"

#include "index/identity.h"

const char *const wp_piece_names[] = {"tools", "options", "system", "messages", "text"};

/* A line longer than this is cut inside, too.  The shortest piece of token ids, and what they are cut by on the average. */
enum { LINE_LONG = 256, TOKENS_LEAST = 16, TOKENS_MEAN = 64, THINK_MAX = 1 << 20 };

struct maker {
    struct wp_outline *o;
    struct wp_piece piece[WP_OUTLINE_PIECES];
    uint32_t coarse; /* a text's line ends a piece when its hash has none of these bits */
    uint32_t links;  /* seen, of which the last WP_OUTLINE_LINKS are kept */
    uint32_t before; /* norm of the message or piece before */
};

static uint32_t hash(struct wp_str s)
{
    return (uint32_t)wp_hash_item(s);
}

static bool add(struct maker *m, enum wp_piece_kind kind, size_t number, uint32_t h, uint32_t norm, size_t n, bool thinks)
{
    if (m->o->n == WP_OUTLINE_PIECES)
        return false;
    m->piece[m->o->n++] = (struct wp_piece){.hash = h,
                                            .norm = norm,
                                            .n = (uint32_t)n,
                                            .number = (uint16_t)(number < UINT16_MAX ? number : UINT16_MAX),
                                            .kind = (uint8_t)kind,
                                            .thinks = thinks};
    return true;
}

/* The last ones are kept, in a ring that is put in order at the end. */
static void add_link(struct maker *m, uint32_t norm)
{
    m->o->link[m->links++ % WP_OUTLINE_LINKS] = (uint32_t)wp_hash_next(m->before, norm);
    m->before = norm;
}

static void order_links(struct maker *m)
{
    struct wp_outline *o = m->o;
    uint32_t ring[WP_OUTLINE_LINKS];

    o->n_links = m->links < WP_OUTLINE_LINKS ? m->links : WP_OUTLINE_LINKS;
    if (m->links <= WP_OUTLINE_LINKS)
        return;
    memcpy(ring, o->link, sizeof ring);
    for (size_t i = 0; i < WP_OUTLINE_LINKS; i++)
        o->link[i] = ring[(m->links + i) % WP_OUTLINE_LINKS];
}

/* ---- lines ---- */

/* Behind the next \n of a JSON string's text, which is two bytes; the end when there is none. */
static size_t line_end(struct wp_str s, size_t at)
{
    const char *p = s.p + at, *end = s.p + s.n;

    while ((p = memchr(p, '\\', (size_t)(end - p))) && p + 1 < end) {
        if (p[1] == 'n')
            return (size_t)(p + 2 - s.p);
        p += 2;
    }
    return s.n;
}

/* A place inside a long line that its own words choose: so a line of thousands of words is told apart by them. */
static size_t word_end(struct wp_str s, size_t at, size_t end)
{
    for (size_t i = at + 32; i < end; i++) {
        uint32_t last;

        if (s.p[i] != ' ')
            continue;
        memcpy(&last, s.p + i - 4, sizeof last);
        if ((last * 2654435761u) >> 29 == 0)
            return i + 1;
    }
    return end;
}

/* What follows the last line is a piece of its own, whatever its hash. */
static void add_lines(struct maker *m, enum wp_piece_kind kind, struct wp_str s, size_t *line)
{
    size_t from = 0, at = 0;

    while (at < s.n) {
        size_t end = line_end(s, at), stop = end - at > LINE_LONG ? word_end(s, at, end) : end;
        struct wp_str piece = {s.p + from, stop - from};

        if (stop == s.n || !m->coarse || (hash((struct wp_str){s.p + at, stop - at}) & m->coarse) == 0) {
            uint32_t h = hash(piece);

            if (!add(m, kind, *line, h, h, piece.n, false))
                return;
            if (kind == WP_PIECE_TEXT && stop < s.n) /* the last one is not whole */
                add_link(m, h);
            from = stop;
        }
        at = stop;
        *line += stop == end;
    }
}

/* ---- messages ---- */

static bool has(struct wp_str s, const char *what)
{
    return memmem(s.p, s.n, what, strlen(what)) != NULL;
}

/* The role by the text of a canonical message, or "" where it does not stand out. */
static struct wp_str role_of(struct wp_str s)
{
    static const char key[] = "\"role\":\"";
    const char *p = memmem(s.p, s.n < 64 ? s.n : 64, key, sizeof key - 1), *end;

    if (!p && s.n > 64)
        p = memmem(s.p + s.n - 64, 64, key, sizeof key - 1);
    if (!p)
        return WP_STR("");
    p += sizeof key - 1;
    end = memchr(p, '"', (size_t)(s.p + s.n - p));
    return (struct wp_str){p, end ? (size_t)(end - p) : 0};
}

/* Behind the JSON value that begins at i; s is what we wrote ourselves, so it is well-formed and has no blanks. */
static size_t value_end(struct wp_str s, size_t i)
{
    size_t depth = 0;

    for (; i < s.n; i++) {
        if (s.p[i] == '"')
            for (i++; i < s.n && s.p[i] != '"'; i++)
                i += s.p[i] == '\\';
        else if (s.p[i] == '{' || s.p[i] == '[')
            depth++;
        else if (s.p[i] == '}' || s.p[i] == ']')
            depth--;
        else if (s.p[i] == ',' && depth == 0)
            return i;
        if (depth == 0 && i < s.n && (s.p[i] == '"' || s.p[i] == '}' || s.p[i] == ']'))
            return i + 1;
    }
    return s.n;
}

static bool at_is(struct wp_str s, size_t i, const char *what)
{
    size_t n = strlen(what);

    return s.n - i >= n && memcmp(s.p + i, what, n) == 0;
}

/* Behind "<think>...</think>" and the line ends that follow it, or i. */
static size_t after_think(struct wp_str s, size_t i)
{
    const char *end = at_is(s, i, "<think>") ? memmem(s.p + i, s.n - i, "</think>", 8) : NULL;

    if (!end)
        return i;
    i = (size_t)(end - s.p) + 8;
    while (at_is(s, i, "\\n"))
        i += 2;
    return i;
}

/* Behind a member or an item that is a thought, with its comma, or i. */
static size_t after_thought(struct wp_str s, size_t i)
{
    static const char *const members[] = {"\"reasoning_content\":", "\"reasoning\":", "\"reasoning_details\":"};
    static const char *const items[] = {"{\"type\":\"thinking\"", "{\"type\":\"redacted_thinking\"", "{\"type\":\"reasoning\""};

    for (size_t k = 0; k < 3; k++)
        if (at_is(s, i, members[k])) {
            i = value_end(s, i + strlen(members[k]));
            return i + at_is(s, i, ",");
        }
    for (size_t k = 0; k < 3; k++)
        if (at_is(s, i, items[k])) {
            i = value_end(s, i);
            return i + at_is(s, i, ",");
        }
    return i;
}

/* The message without its thoughts; false when there were none, or it is too long to look. */
static bool without_thoughts(struct wp_str s, uint32_t *norm)
{
    char *out;
    size_t n = 0;

    if (s.n > THINK_MAX || !(has(s, "\"reasoning") || has(s, "think")) || !(out = wp_malloc(s.n)))
        return false;
    for (size_t i = 0; i < s.n;) {
        size_t next = s.p[i] == '"' || s.p[i] == '{' ? after_thought(s, i) : s.p[i] == '<' ? after_think(s, i) : i;

        if (next > i)
            i = next;
        else if (s.p[i] == '\\' && i + 1 < s.n) { /* an escaped quote begins no member */
            out[n++] = s.p[i++];
            out[n++] = s.p[i++];
        } else {
            out[n++] = s.p[i++];
        }
    }
    *norm = hash((struct wp_str){out, n});
    wp_free(out);
    return n < s.n;
}

static void add_conversation(struct maker *m, const struct wp_prompt *p)
{
    size_t number[WP_PART_ASIDE + 1] = {0}, line = 0;
    bool begun = false; /* a message that is not the system's */

    for (size_t i = 0; i < p->n_marks; i++) {
        const struct wp_mark *at = &p->mark[i];
        struct wp_str s = {p->bytes.p + at->at, at->n}, role;
        size_t n = number[at->part]++;
        uint32_t h, norm;
        bool thinks = false;

        if (at->part == WP_PART_ASIDE)
            continue;
        role = at->part == WP_PART_MESSAGE ? role_of(s) : (struct wp_str){0};
        if (at->part == WP_PART_SYSTEM || (!begun && (wp_str_is(role, "system") || wp_str_is(role, "developer")))) {
            add_lines(m, WP_PIECE_SYSTEM, s, &line);
            continue;
        }
        h = norm = hash(s);
        if (at->part == WP_PART_MESSAGE) {
            begun = true;
            thinks = !wp_str_is(role, "user") && !wp_str_is(role, "tool") && without_thoughts(s, &norm);
            add_link(m, norm);
        }
        add(m, at->part == WP_PART_TOOL ? WP_PIECE_TOOL : at->part == WP_PART_OPTION ? WP_PIECE_OPTION : WP_PIECE_MESSAGE, n, h, norm, s.n, thinks);
    }
    m->o->from_start = m->links && m->links <= WP_OUTLINE_LINKS;
}

/* ---- token ids ---- */

static void add_tokens(struct maker *m, const uint32_t token[], size_t n)
{
    uint32_t mean = n <= 1 << 16 ? TOKENS_MEAN : n <= 1 << 18 ? 4 * TOKENS_MEAN : 32 * TOKENS_MEAN;
    size_t from = 0, number = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t h;

        if (i + 1 < n && (i + 1 - from < TOKENS_LEAST || ((token[i] * 2654435761u) >> 12 & (mean - 1))))
            continue;
        h = hash((struct wp_str){(const char *)(token + from), (i + 1 - from) * sizeof *token});
        if (!add(m, WP_PIECE_TEXT, number++, h, h, i + 1 - from, false))
            return;
        if (i + 1 < n)
            add_link(m, h);
        from = i + 1;
    }
}

const struct wp_outline *wp_outline_make(const struct wp_prompt *p, struct wp_arena *arena)
{
    struct wp_outline *o = p->kind == WP_PROMPT_NONE ? NULL : wp_arena_alloc(arena, sizeof *o);
    struct maker m = {.o = o};
    size_t line = 0;

    if (!o)
        return NULL;
    *o = (struct wp_outline){.tokens = p->kind == WP_PROMPT_TOKENS};
    o->total = (uint32_t)(o->tokens ? p->n_token : p->bytes.n < UINT32_MAX ? p->bytes.n : UINT32_MAX);
    if (o->tokens) {
        add_tokens(&m, p->token, p->n_token);
    } else if (p->mark) {
        add_conversation(&m, p);
    } else {
        m.coarse = p->bytes.n <= 1 << 16 ? 0 : p->bytes.n <= 1 << 20 ? 15 : 255;
        add_lines(&m, WP_PIECE_TEXT, p->bytes, &line);
    }
    order_links(&m);
    o->piece = wp_arena_alloc(arena, o->n * sizeof *o->piece);
    if (!o->piece)
        return NULL;
    memcpy(o->piece, m.piece, o->n * sizeof *o->piece);
    return o;
}
