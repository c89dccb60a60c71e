/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/outline.h - a prompt without its text: which pieces it has, how long each is, and a hash of each.
 * Made for the prefix doctor (router/doctor.h), which tells by two outlines of one conversation where its prefix broke.
 *
 * A piece is a tool, an option of the template, a line of what stands in the system's place, or a message.  A prompt that is
 * no conversation is cut where its own content says so, at ends of lines or after certain token ids: so what has moved is found
 * again.  The longer such a text, the coarser the cut; beyond WP_OUTLINE_PIECES the rest of a prompt is not looked at.
 * The norm of an assistant's message is its hash without what it thought; of all else it is the hash.
 * Cost: hashing the text, and some ten nanoseconds a line.  Threads: pure functions.
 */
#ifndef WP_ROUTER_OUTLINE_H
#define WP_ROUTER_OUTLINE_H

#include "router/prompt.h"

enum { WP_OUTLINE_PIECES = 1024, WP_OUTLINE_LINKS = 64 };

enum wp_piece_kind { WP_PIECE_TOOL, WP_PIECE_OPTION, WP_PIECE_SYSTEM, WP_PIECE_MESSAGE, WP_PIECE_TEXT };
extern const char *const wp_piece_names[]; /* "tools", "options", "system", "messages", "text" */

struct wp_piece {
    uint32_t hash, norm;
    uint32_t n;      /* bytes, or tokens of a prompt of token ids */
    uint16_t number; /* of the tool, option, line or message, from 0 */
    uint8_t kind;    /* enum wp_piece_kind */
    bool thinks;     /* an assistant's message with what it thought */
};

struct wp_outline {
    struct wp_piece *piece;
    size_t n;
    uint32_t total; /* of the whole prompt, in the pieces' unit */
    bool tokens;    /* that unit is tokens */
    /*
     * What names the conversation at each of its turns, the newest last: a hash of two neighbours, messages by their norms, or
     * pieces of a text that are whole.  The next turn of the conversation has it, too, further from its end.
     */
    uint32_t link[WP_OUTLINE_LINKS];
    size_t n_links;
    bool from_start; /* link[0] is that of the first message, alone */
};

/* Of a prompt whose bytes or tokens are there; in arena.  NULL: there is no prompt, or no memory. */
const struct wp_outline *wp_outline_make(const struct wp_prompt *p, struct wp_arena *arena);

#endif
