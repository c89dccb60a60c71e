/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic int level_now = WP_INFO, format_now = WP_LOG_TEXT;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void wp_log_setup(enum wp_log_level level, enum wp_log_format format)
{
    atomic_store(&level_now, (int)level);
    atomic_store(&format_now, (int)format);
}

bool wp_log_on(enum wp_log_level level)
{
    return (int)level <= atomic_load_explicit(&level_now, memory_order_relaxed);
}

bool wp_log_level_parse(const char *name, enum wp_log_level *out)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum wp_log_level)i;
            return true;
        }
    return false;
}

static void stamp(char out[32])
{
    uint64_t us = wp_wall_us();
    time_t s = (time_t)(us / 1000000);
    struct tm tm;

    gmtime_r(&s, &tm);
    snprintf(out, 32, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", (tm.tm_year + 1900) % 10000,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
             (unsigned)(us / 1000 % 1000));
}

/* Control bytes become '?': a peer's text must not start a line of its own. */
static void tame(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7F)
            *s = '?';
}

void wp_log(enum wp_log_level level, const char *area, const char *fmt, ...)
{
    char text[1024], line[3400], when[32]; /* JSON makes 3 bytes of one that is not UTF-8 */
    va_list ap;
    int n;

    if (!wp_log_on(level))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tame(text);
    stamp(when);
    if (atomic_load(&format_now) == WP_LOG_TEXT) {
        n = snprintf(line, sizeof line, "%s %s %.64s: %s\n", when, level_names[level], area, text);
    } else {
        struct wp_buf b = {line, 0, sizeof line - 1, sizeof line - 1}; /* fixed: it never grows */

        if (wp_buf_printf(&b, "{\"time\":\"%s\",\"level\":\"%s\",\"area\":\"%.64s\",\"message\":",
                          when, level_names[level], area) < 0 ||
            wp_buf_json(&b, wp_str_of(text)) < 0 || wp_buf_adds(&b, "}\n") < 0)
            return;
        n = (int)b.n;
    }
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* nowhere left to say so */
}

bool wp_log_may(struct wp_log_limit *l, uint64_t now_us, uint64_t *skipped)
{
    uint64_t next = atomic_load(&l->next_us);

    if (now_us < next || !atomic_compare_exchange_strong(&l->next_us, &next, now_us + 60000000)) {
        atomic_fetch_add(&l->skipped, 1);
        return false;
    }
    *skipped = atomic_exchange(&l->skipped, 0);
    return true;
}
