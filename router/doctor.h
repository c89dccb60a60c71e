/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/doctor.h - finds clients that break their own prefix cache, and says how, where, and what it costs.
 *
 * A conversation's next request should begin with all of the one before.  The doctor keeps an outline (router/outline.h: lengths and hashes,
 * never text) of the last request of each conversation that it has seen of late, knows the next one by what the two have in common
 * near their ends, and compares.  What both have but stands behind the first difference was cached and is computed again: that is what the
 * break *lost*.  Less than 1/20 of a prompt is not looked into.
 *
 *     window        the oldest messages are dropped, turn by turn, so that all behind them moves up
 *     line          something short at the head changes: a date, a request number, what was looked up for this turn
 *     tools_order   the same tools in another order
 *     tools_changed other tools
 *     thinking      what the model thought is sent back once and dropped later
 *     options       an option of the chat template comes and goes
 *     edited        earlier messages are rewritten
 *
 * Once is no habit: a day ends, a conversation is cut or summed up.  A kind is a *finding* when in one conversation three of its last eight
 * turns broke so and at least every second one (thinking: three turns at all), or when six short conversations of one model broke so,
 * each in another way.  So four requests of one client suffice.
 *
 * Bounds: WP_DOCTOR_BYTES for all conversations, the longest silent go first; WP_DOCTOR_MODELS; WP_DOCTOR_FINDINGS, the oldest go first.
 * Threads: any; one lock, held for some microseconds.  It is told the time.
 */
#ifndef WP_ROUTER_DOCTOR_H
#define WP_ROUTER_DOCTOR_H

#include "base/metrics.h"
#include "router/outline.h"

enum { WP_DOCTOR_BYTES = 32 << 20, WP_DOCTOR_MODELS = 64, WP_DOCTOR_FINDINGS = 256, WP_DOCTOR_HABIT = 3 };

enum wp_break {
    WP_BREAK_NONE,
    WP_BREAK_WINDOW,
    WP_BREAK_LINE,
    WP_BREAK_TOOLS_ORDER,
    WP_BREAK_TOOLS_CHANGED,
    WP_BREAK_THINKING,
    WP_BREAK_OPTIONS,
    WP_BREAK_EDITED,
    WP_BREAKS,
};
extern const char *const wp_break_names[WP_BREAKS];

/* Where a prompt broke, in the outlines' unit. */
struct wp_broke {
    enum wp_break kind;
    size_t piece;            /* the first that differs */
    uint32_t at, n;          /* its place in the prompt; how long what changed there is now */
    uint32_t lost;           /* cached, and computed again */
    uint32_t dropped, grown; /* window: what went in front, what came behind */
};

/* before: the turn before this one.  Pure; no allocation. */
struct wp_broke wp_doctor_compare(const struct wp_outline *before, const struct wp_outline *now);

struct wp_doctor;

/* metrics may be NULL.  Errors: WP_ENOMEM. */
int wp_doctor_create(struct wp_doctor **out, struct wp_metrics *metrics, struct wp_err *err);
void wp_doctor_destroy(struct wp_doctor *d);

/*
 * A request, once however often it is tried.  model: its name; listed: a bounded set (wp_model_info).  session: hash of its key, or 0.
 * tokens: of the prompt.  Returns the break, NONE as well when no turn before it is known.  Never fails: without memory it forgets.
 */
enum wp_break wp_doctor_see(struct wp_doctor *d, const struct wp_outline *o, struct wp_str model, uint64_t session, uint32_t tokens,
                            uint64_t now_us);

/* At most so many bytes of conversations from now on, and WP_DOCTOR_BYTES: the longest silent go. */
void wp_doctor_limit(struct wp_doctor *d, size_t bytes);

struct wp_doctor_stats {
    uint64_t requests, turns, breaks; /* seen; known as a conversation's next turn; of these broken */
    size_t sessions, bytes, findings; /* kept; findings that are shown */
};
void wp_doctor_stats(struct wp_doctor *d, struct wp_doctor_stats *out);
/* The JSON of GET /doctor.  Errors: WP_ENOMEM. */
int wp_doctor_json(struct wp_doctor *d, uint64_t now_us, struct wp_buf *out);

#endif
