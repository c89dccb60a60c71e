/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/log.h - one event, one line, readable and greppable, on stderr:
 *     2026-11-30T10:00:00.123Z warn kv_events: worker=w3 gap want=1882 got=1885 resync
 * or, with format json, the same as one JSON object a line.
 * error: someone must act.  warn: we coped.  info: the life of the process.  debug: one request's path.
 * Prompts, tokens and keys are never logged.  Text is escaped: a line is a line, whatever a peer sent.
 * The level and the format are the one mutable global of the program: they are set before threads start and on
 * reload (atomics), because a log that had to be handed through every call would be handed nowhere.
 * Threads: any.  One write(2) a line, so that lines never mix.
 */
#ifndef WP_BASE_LOG_H
#define WP_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum wp_log_level { WP_ERROR, WP_WARN, WP_INFO, WP_DEBUG };
enum wp_log_format { WP_LOG_TEXT, WP_LOG_JSON };

void wp_log_setup(enum wp_log_level level, enum wp_log_format format);
bool wp_log_on(enum wp_log_level level);
bool wp_log_level_parse(const char *name, enum wp_log_level *out); /* error, warn, info, debug */

/* area is the module in the field's words: "worker", "http", "config". */
void wp_log(enum wp_log_level level, const char *area, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * For what may repeat without end: true at most once in a minute for one limit; *skipped tells how many calls
 * said no since then.  {0} is a fresh limit.  Threads: any.
 */
struct wp_log_limit {
    _Atomic uint64_t next_us, skipped;
};
bool wp_log_may(struct wp_log_limit *l, uint64_t now_us, uint64_t *skipped);

#endif
