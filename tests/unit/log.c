/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What log writes to stderr between capture() and release(), in a pipe: a line is far below its
 * size. */
struct capture {
    int old, end[2];
    char text[8192];
};

static void capture(struct capture *c, enum wp_log_level level, enum wp_log_format format)
{
    fflush(stderr);
    c->old = dup(STDERR_FILENO);
    if (c->old < 0 || pipe(c->end) != 0 || dup2(c->end[1], STDERR_FILENO) < 0)
        abort();
    close(c->end[1]);
    wp_log_setup(level, format);
}

static void release(struct capture *c)
{
    ssize_t n;

    wp_log_setup(WP_ERROR, WP_LOG_TEXT); /* as tests/lib/unit_main.c has it */
    if (dup2(c->old, STDERR_FILENO) < 0)
        abort();
    close(c->old);
    n = read(c->end[0], c->text,
             sizeof c->text - 1); /* nobody else holds the other end: 0 is the end */
    close(c->end[0]);
    c->text[n > 0 ? n : 0] = 0;
}

static void an_event_is_one_readable_line(void)
{
    struct capture c;

    capture(&c, WP_INFO, WP_LOG_TEXT);
    wp_log(WP_WARN, "kv_events", "worker=%s gap want=%d", "w3", 1882);
    release(&c);
    EXPECT_UINT("length",
                strlen("2026-11-30T10:00:00.123Z warn kv_events: worker=w3 gap want=1882\n"),
                strlen(c.text));
    EXPECT_TEXT("behind the time", "Z warn kv_events: worker=w3 gap want=1882\n",
                wp_str_of(c.text + 23));
    EXPECT_TRUE("the time", c.text[4] == '-' && c.text[10] == 'T' && c.text[19] == '.');
}

static void levels_above_are_silent(void)
{
    struct capture c;

    capture(&c, WP_WARN, WP_LOG_TEXT);
    EXPECT_TRUE("on", wp_log_on(WP_ERROR) && wp_log_on(WP_WARN) && !wp_log_on(WP_INFO));
    wp_log(WP_INFO, "a", "no");
    wp_log(WP_DEBUG, "a", "no");
    wp_log(WP_ERROR, "a", "yes");
    release(&c);
    EXPECT_TRUE("one line", strstr(c.text, "error a: yes\n") && !strstr(c.text, "no"));
}

static void a_peers_text_starts_no_line(void)
{
    struct capture c;

    capture(&c, WP_INFO, WP_LOG_TEXT);
    wp_log(WP_INFO, "http", "got \"%s\"", "a\r\n2026 error x: y\x1B[2J\x7F");
    release(&c);
    EXPECT_TEXT("tamed", "info http: got \"a??2026 error x: y?[2J?\"\n", wp_str_of(c.text + 25));
}

static void json_has_the_same(void)
{
    struct capture c;
    json_t *line;
    char bad[1100];

    capture(&c, WP_INFO, WP_LOG_JSON);
    wp_log(WP_INFO, "http", "say \"%s\"", "\\x");
    release(&c);
    line = json_loads(c.text, 0, NULL);
    EXPECT_TEXT("level", "info", wp_str_of(json_string_value(json_object_get(line, "level"))));
    EXPECT_TEXT("area", "http", wp_str_of(json_string_value(json_object_get(line, "area"))));
    EXPECT_TEXT("message", "say \"\\x\"",
                wp_str_of(json_string_value(json_object_get(line, "message"))));
    EXPECT_UINT("time", 24, json_string_length(json_object_get(line, "time")));
    json_decref(line);

    memset(bad, 0xFF, sizeof bad - 1); /* no byte of it is UTF-8: each becomes three */
    bad[sizeof bad - 1] = 0;
    capture(&c, WP_INFO, WP_LOG_JSON);
    wp_log(WP_INFO, "http", "%s", bad);
    release(&c);
    line = json_loads(c.text, 0, NULL);
    EXPECT_UINT("cut, not lost", 3 * 1023, json_string_length(json_object_get(line, "message")));
    json_decref(line);
}

static void long_texts_are_cut(void)
{
    struct capture c;
    char lots[3000];

    memset(lots, 'x', sizeof lots - 1);
    lots[sizeof lots - 1] = 0;
    capture(&c, WP_INFO, WP_LOG_TEXT);
    wp_log(WP_INFO, lots, "%s", lots);
    release(&c);
    EXPECT_UINT("a line", 24 + strlen(" info ") + 64 + strlen(": ") + 1023 + 1, strlen(c.text));
    EXPECT_TRUE("with its end", c.text[strlen(c.text) - 1] == '\n');
}

static void levels_have_names(void)
{
    enum wp_log_level level = WP_INFO;

    EXPECT_TRUE("debug", wp_log_level_parse("debug", &level) && level == WP_DEBUG);
    EXPECT_TRUE("error", wp_log_level_parse("error", &level) && level == WP_ERROR);
    EXPECT_TRUE("other", !wp_log_level_parse("Warn", &level) && level == WP_ERROR);
}

static void what_repeats_is_told_once_a_minute(void)
{
    struct wp_log_limit l = {0};
    uint64_t skipped = 77;

    EXPECT_TRUE("first", wp_log_may(&l, 1000, &skipped));
    EXPECT_UINT("none skipped", 0, skipped);
    for (int i = 0; i < 3; i++)
        EXPECT_TRUE("within the minute", !wp_log_may(&l, 60000999, &skipped));
    EXPECT_TRUE("after it", wp_log_may(&l, 60001000, &skipped));
    EXPECT_UINT("three skipped", 3, skipped);
    EXPECT_TRUE("and again", !wp_log_may(&l, 60001001, &skipped));
}

const struct wp_suite suite_log = {
    "log",
    (const struct wp_test[]){
        {"an event is one readable line", an_event_is_one_readable_line},
        {"levels above are silent", levels_above_are_silent},
        {"a peer's text starts no line", a_peers_text_starts_no_line},
        {"json has the same", json_has_the_same},
        {"long texts are cut", long_texts_are_cut},
        {"levels have names", levels_have_names},
        {"what repeats is told once a minute", what_repeats_is_told_once_a_minute},
        {NULL, NULL},
    },
};
