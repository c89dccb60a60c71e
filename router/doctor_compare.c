/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two turns of one conversation, laid side by side.  Behind the first difference everything has moved by some number of pieces, or by none:
 * each piece that both have votes with its length for the shift that it would need, and the shift with the most votes is taken.  So
 * what stands twice in a prompt (an empty line, "ok") does not lead astray.
 */
#include "router/doctor.h"

enum { TABLE = 2048, SHIFTS = 2 * WP_OUTLINE_PIECES + 1, WINDOW_SLACK = 2, NOTHING = 0xFFFF };

const char *const wp_break_names[WP_BREAKS] = {"none", "window", "line", "tools_order", "tools_changed", "thinking", "options", "edited"};

static bool same(const struct wp_piece *a, const struct wp_piece *b)
{
    return a->hash == b->hash && a->n == b->n && a->kind == b->kind;
}

static size_t common(const struct wp_outline *a, const struct wp_outline *b)
{
    size_t i = 0;

    while (i < a->n && i < b->n && same(&a->piece[i], &b->piece[i]))
        i++;
    return i;
}

/* Where each norm stands first in the turn before, from `from` on. */
static void index_pieces(const struct wp_outline *o, size_t from, uint16_t table[TABLE])
{
    memset(table, 0xFF, TABLE * sizeof *table);
    for (size_t i = from; i < o->n; i++) {
        size_t at = o->piece[i].norm % TABLE;

        while (table[at] != NOTHING && o->piece[table[at]].norm != o->piece[i].norm)
            at = (at + 1) % TABLE;
        if (table[at] == NOTHING)
            table[at] = (uint16_t)i;
    }
}

static size_t find_piece(const struct wp_outline *o, const uint16_t table[TABLE], uint32_t norm)
{
    size_t at = norm % TABLE;

    while (table[at] != NOTHING && o->piece[table[at]].norm != norm)
        at = (at + 1) % TABLE;
    return table[at];
}

/* The shift (place before minus place now) that most of the text behind the difference has; *lost: how much that is. */
static long best_shift(const struct wp_outline *before, const struct wp_outline *now, size_t from, uint32_t *lost)
{
    uint16_t table[TABLE];
    uint32_t votes[SHIFTS] = {0};
    long best = 0;

    index_pieces(before, from, table);
    for (size_t i = from; i < now->n; i++) {
        size_t j = find_piece(before, table, now->piece[i].norm);
        long at = (long)j - (long)i + WP_OUTLINE_PIECES;

        if (j == NOTHING)
            continue;
        votes[at] += now->piece[i].n;
        if (votes[at] > votes[best])
            best = at;
    }
    *lost = votes[best];
    return best - WP_OUTLINE_PIECES;
}

static uint32_t span(const struct wp_outline *o, size_t from, size_t to)
{
    uint32_t n = 0;

    for (size_t i = from; i < to && i < o->n; i++)
        n += o->piece[i].n;
    return n;
}

/* The first piece from `from` on that is where the shift says. */
static size_t resumes(const struct wp_outline *before, const struct wp_outline *now, size_t from, long shift)
{
    for (size_t i = from; i < now->n; i++) {
        long j = (long)i + shift;

        if (j >= 0 && j < (long)before->n && before->piece[j].norm == now->piece[i].norm)
            return i;
    }
    return now->n;
}

static bool same_tools(const struct wp_outline *a, const struct wp_outline *b)
{
    uint64_t sum[2] = {0};
    size_t n[2] = {0};

    for (int k = 0; k < 2; k++) {
        const struct wp_outline *o = k ? b : a;

        for (size_t i = 0; i < o->n; i++)
            if (o->piece[i].kind == WP_PIECE_TOOL) {
                sum[k] += (uint64_t)o->piece[i].hash * 0x9E3779B97F4A7C15u >> 7;
                n[k]++;
            }
    }
    return sum[0] == sum[1] && n[0] == n[1];
}

/* Of tools in another order none from the first on is where it was; behind them all is. */
static uint32_t lost_by_order(const struct wp_outline *before, const struct wp_outline *now, size_t from)
{
    uint32_t lost = 0;

    for (size_t i = from; i < now->n; i++)
        if (now->piece[i].kind == WP_PIECE_TOOL || (i < before->n && before->piece[i].norm == now->piece[i].norm))
            lost += now->piece[i].n;
    return lost;
}

static bool worth_it(const struct wp_outline *now, uint32_t lost)
{
    return lost >= now->total / 20 && lost >= (now->tokens ? 64 : 256);
}

/* The piece of the one that differs; past its end it is whatever the other has. */
static const struct wp_piece *piece_at(const struct wp_outline *o, const struct wp_outline *other, size_t i)
{
    return i < o->n ? &o->piece[i] : &other->piece[i];
}

static enum wp_break kind_of(const struct wp_outline *before, const struct wp_outline *now, size_t at, long shift, size_t resumed)
{
    const struct wp_piece *a = piece_at(before, now, at), *b = piece_at(now, before, at);

    if (a->kind == WP_PIECE_TOOL || b->kind == WP_PIECE_TOOL)
        return same_tools(before, now) ? WP_BREAK_TOOLS_ORDER : WP_BREAK_TOOLS_CHANGED;
    if (a->kind == WP_PIECE_OPTION || b->kind == WP_PIECE_OPTION)
        return WP_BREAK_OPTIONS;
    if (a->kind == WP_PIECE_SYSTEM || b->kind == WP_PIECE_SYSTEM)
        return WP_BREAK_LINE;
    if (a->norm == b->norm && a->thinks && !b->thinks)
        return WP_BREAK_THINKING;
    if (shift > 0 && resumed - at <= WINDOW_SLACK)
        return WP_BREAK_WINDOW;
    if (shift == 0 && (a->kind == WP_PIECE_TEXT || a->number == 0))
        return WP_BREAK_LINE;
    return WP_BREAK_EDITED;
}

struct wp_broke wp_doctor_compare(const struct wp_outline *before, const struct wp_outline *now)
{
    size_t at = common(before, now), resumed;
    struct wp_broke b = {.piece = at};
    long shift;

    if (at == before->n || at == now->n || (at + 1 == before->n && before->piece[at].kind == WP_PIECE_TEXT))
        return b; /* it begins with all of it; a text's last piece goes on */
    shift = best_shift(before, now, at, &b.lost);
    resumed = resumes(before, now, at, shift);
    b.kind = kind_of(before, now, at, shift, resumed);
    if (b.kind == WP_BREAK_TOOLS_ORDER)
        b.lost = lost_by_order(before, now, at);
    if (!worth_it(now, b.lost)) {
        b.kind = WP_BREAK_NONE;
        return b;
    }
    b.at = span(now, 0, at);
    b.n = span(now, at, resumed);
    if (b.kind == WP_BREAK_WINDOW) {
        b.dropped = span(before, at, resumed + (size_t)shift);
        b.grown = now->total + b.dropped > before->total ? now->total + b.dropped - before->total : 0;
    }
    return b;
}
