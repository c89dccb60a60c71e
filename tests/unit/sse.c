/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sse.h"

#include "base/err.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#include <stdlib.h>

/* What a watcher saw, as text: name|data| and a ! when it was cut, a line feed behind. */
struct seen {
    struct wp_buf log;
    unsigned events, cuts;
    char last[512]; /* the last event's data */
};

static void on_event(void *arg, const struct wp_sse_event *ev)
{
    struct seen *seen = arg;

    wp_buf_add(&seen->log, ev->name.p, ev->name.n);
    wp_buf_adds(&seen->log, "|");
    wp_buf_add(&seen->log, ev->data.p, ev->data.n);
    wp_buf_adds(&seen->log, ev->cut ? "|!\n" : "|\n");
    snprintf(seen->last, sizeof seen->last, WP_STR_FMT, WP_STR_ARG(ev->data));
    seen->events++;
    seen->cuts += ev->cut;
}

/* The first split bytes in one piece, then pieces of step bytes. */
static void watch(struct seen *seen, struct wp_str bytes, size_t split, size_t step, size_t max)
{
    struct wp_sse s;

    seen->log.n = 0;
    seen->events = seen->cuts = 0;
    seen->last[0] = 0;
    wp_sse_init(&s, max, on_event, seen);
    wp_sse_feed(&s, bytes.p, split);
    for (size_t i = split; i < bytes.n; i += step)
        wp_sse_feed(&s, bytes.p + i, bytes.n - i < step ? bytes.n - i : step);
    wp_sse_fini(&s);
}

/* However the bytes are cut in two, and byte by byte, the same is seen. */
static void every_split_agrees(const char *label, struct wp_str bytes, const struct seen *whole,
                               size_t max)
{
    struct seen cut = {0};
    size_t wrong = 0;

    for (size_t i = 0; i <= bytes.n && bytes.n < 5000; i++) {
        watch(&cut, bytes, i, bytes.n + 1, max);
        wrong += !wp_str_eq(wp_buf_str(&cut.log), wp_buf_str(&whole->log));
    }
    for (size_t step = 1; step <= 3; step++) {
        watch(&cut, bytes, 0, step, max);
        wrong += !wp_str_eq(wp_buf_str(&cut.log), wp_buf_str(&whole->log));
    }
    EXPECT_UINT(label, 0, wrong);
    wp_buf_fini(&cut.log);
}

/* clang-format off */
static const struct { const char *label, *bytes, *want; } streams[] = {
    {"LF", "data: a\n\n", "|a|\n"},
    {"CRLF", "data: a\r\n\r\n", "|a|\n"},
    {"CR", "data: a\r\r", "|a|\n"},
    {"mixed line ends", "data: a\r\ndata: b\rdata: c\n\rdata: d\n\r\n", "|a\nb\nc|\n|d|\n"},
    {"CR CR LF is two line ends", "data: a\r\r\ndata: b\n\n", "|a|\n|b|\n"},
    {"one blank goes", "data:  a \n\n", "| a |\n"},
    {"no blank", "data:a\n\n", "|a|\n"},
    {"only a blank", "data: \n\n", "||\n"},
    {"a tab stays", "data:\ta\n\n", "|\ta|\n"},
    {"colons in the value", "data: a: b:c\n\n", "|a: b:c|\n"},
    {"several data lines", "data: a\ndata:\ndata: b\n\n", "|a\n\nb|\n"},
    {"two empty data lines", "data\ndata\n\n", "|\n|\n"},
    {"data without a colon", "data\n\n", "||\n"},
    {"a name", "event: message_stop\ndata: {}\n\n", "message_stop|{}|\n"},
    {"a name behind the data", "data: 1\nevent: x\n\n", "x|1|\n"},
    {"the last name counts", "event: x\nevent: yz\ndata: 1\n\n", "yz|1|\n"},
    {"an empty name", "event: x\nevent\ndata: 1\n\n", "|1|\n"},
    {"a name alone is no event, and is forgotten", "event: x\n\ndata: 1\n\n", "|1|\n"},
    {"a name does not last", "event: x\ndata: 1\n\ndata: 2\n\n", "x|1|\n|2|\n"},
    {"comments", ": ping\n\n:\n:data: x\ndata: 1\n: in between\ndata: 2\n\n:\n\n", "|1\n2|\n"},
    {"other fields", "id: 7\nretry: 10\ndatax: 1\ndat: 2\n data: 3\nDATA: 4\ndata : 5\nevents: e\ndata: 1\n\n", "|1|\n"},
    {"id and retry alone are no event", "id: 7\n\nretry: 1\n\n", ""},
    {"a long unknown field", "dataaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: x\ndata: 1\n\n", "|1|\n"},
    {"a long field without a colon", "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\n\ndata: 1\n\n", "|1|\n"},
    {"a long name is cut", "event: 0123456789012345678901234567890123456789012345678901234567890123456789\ndata: 1\n\n",
     "0123456789012345678901234567890123456789012345678901234567890123|1|\n"},
    {"byte order mark", "\xEF\xBB\xBF" "data: 1\n\n", "|1|\n"},
    {"byte order mark and a comment", "\xEF\xBB\xBF: x\ndata: 1\n\n", "|1|\n"},
    {"byte order mark alone", "\xEF\xBB\xBF\n\ndata: 1\n\n", "|1|\n"},
    {"only one byte order mark", "\xEF\xBB\xBF\xEF\xBB\xBF" "data: 1\n\n", ""},
    {"a late byte order mark", "data: 1\n\n\xEF\xBB\xBF" "data: 2\n\n", "|1|\n"},
    {"a late byte order mark in an empty first line", "\n\xEF\xBB\xBF" "data: 2\n\n", ""},
    {"half a byte order mark", "\xEF\xBB" "data: 1\n\n", ""},
    {"no empty line at the end", "data: 1\n\ndata: 2\n", "|1|\n"},
    {"cut in a line", "data: 1\n\ndata: 2", "|1|\n"},
    {"nothing", "", ""},
    {"only line ends", "\n\r\n\r\r\n\n", ""},
    {"UTF-8", "data: \xC3\xA9\xF0\x9F\x98\x80\n\n", "|\xC3\xA9\xF0\x9F\x98\x80|\n"},
};
/* clang-format on */

static void streams_are_read_as_the_standard_says_however_they_are_cut(void)
{
    struct seen seen = {0};

    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        struct wp_str bytes = wp_str_of(streams[i].bytes);

        watch(&seen, bytes, bytes.n, 1, 1000);
        EXPECT_TEXT(streams[i].label, streams[i].want, wp_buf_str(&seen.log));
        every_split_agrees(streams[i].label, bytes, &seen, 1000);
    }
    wp_buf_fini(&seen.log);
}

/* clang-format off */
static const struct { const char *label, *bytes, *want; size_t max; } cuts[] = {
    {"fits to the byte", "data: 12345\n\n", "|12345|\n", 5},
    {"one too many", "data: 123456\n\n", "|12345|!\n", 5},
    {"the next one is whole", "data: 123456\n\ndata: 7\n\n", "|12345|!\n|7|\n", 5},
    {"the joint is one too many", "data: 12345\ndata: 6\n\n", "|12345|!\n", 5},
    {"the joint fits, the rest does not", "data: 1234\ndata: 6\n\n", "|1234\n|!\n", 5},
    {"empty data never is too long", "data:\n\n", "||\n", 0},
    {"nothing is kept", "data: 1\n\n", "||!\n", 0},
};
/* clang-format on */

static void of_a_long_event_the_start_is_given(void)
{
    struct seen seen = {0};

    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct wp_str bytes = wp_str_of(cuts[i].bytes);

        watch(&seen, bytes, bytes.n, 1, cuts[i].max);
        EXPECT_TEXT(cuts[i].label, cuts[i].want, wp_buf_str(&seen.log));
        every_split_agrees(cuts[i].label, bytes, &seen, cuts[i].max);
    }
    wp_buf_fini(&seen.log);
}

/* One line of a script of the cases: text goes into out, directives that wait, flush or close say
 * nothing here. */
static void script_line(struct wp_buf *out, const char *line, size_t n, bool *crlf)
{
    if (n >= 9 && memcmp(line, "!eol crlf", 9) == 0)
        *crlf = true;
    if (n && (*line == '#' || *line == '!'))
        return;
    wp_buf_add(out, line, n);
    wp_buf_adds(out, *crlf ? "\r\n" : "\n");
}

/* The event bytes of tests/data/cases/sse/file; of a .resp, which is no stream, all that it has. */
static struct wp_buf script(const char *file)
{
    struct wp_buf out = {0};
    struct wp_str rest, line, loop = {0};
    bool crlf = false;
    long again = 0;
    char path[64];
    size_t n;
    char *p;

    snprintf(path, sizeof path, "cases/sse/%s", file);
    p = wp_test_data(path, &n);
    if (!p)
        return out;
    if (strstr(file, ".resp"))
        wp_buf_add(&out, p, n);
    for (rest = (struct wp_str){p, out.n ? 0 : n}; rest.n && wp_str_split(&rest, '\n', &line);) {
        if (wp_str_starts(line, "!repeat ")) {
            again = strtol(line.p + 8, NULL, 10);
            loop = rest;
        } else if (wp_str_is(line, "!again") && --again > 0) {
            rest = loop;
        } else {
            script_line(&out, line.p, line.n, &crlf);
        }
    }
    wp_free(p);
    return out;
}

/* clang-format off */
#define USAGE "\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":3,\"total_tokens\":14"
static const struct { const char *file; unsigned events; const char *last, *has; } files[] = {
    {"B043.resp", 0, "", ""}, {"B061.resp", 0, "", ""}, {"B106.resp", 0, "", ""},
    {"B063.sse", 2, "[DONE]", "\"content\":\"one\""},
    {"B075-die-mid.sse", 2, "{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"two\"}}]}", ""},
    {"B076-slow.sse", 11, "[DONE]", "tick"},
    {"B078-usage.sse", 3, "[DONE]", "\"content\":\"\xC3\xA9\xF0\x9F\x98\x80\""},
    {"B079-comments.sse", 3, "[DONE]", "message|{\"id\":\"c1\",\"choices\":\n[]}|\n|{"},
    {"B079-crlf.sse", 3, "[DONE]", USAGE},
    {"B079-noend.sse", 2, "{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[]," USAGE "}}", ""},
    {"B083-late.sse", 2, "[DONE]", "late"},
    {"B084-long.sse", 901, "[DONE]", "tick"},
    {"B200-error-first.sse", 2, "[DONE]", "|{\"error\":{\"message\":\"server is overloaded\""},
    {"B202-cumulative.sse", 5, "[DONE]", "\"cached_tokens\":8"},
    {"B202-messages.sse", 6, "{\"type\":\"message_stop\"}", "message_delta|{\"type\":\"message_delta\""},
};
/* clang-format on */

static void the_streams_of_the_cases_are_seen_however_they_are_cut(void)
{
    struct seen seen = {0};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct wp_buf bytes = script(files[i].file);

        watch(&seen, wp_buf_str(&bytes), bytes.n, 1, 4096);
        EXPECT_UINT(files[i].file, files[i].events, seen.events);
        EXPECT_UINT(files[i].file, 0, seen.cuts);
        EXPECT_TEXT(files[i].file, files[i].last, wp_str_of(seen.last));
        EXPECT_TRUE(files[i].file, bytes.n > 0);
        wp_buf_add(&seen.log, "", 1); /* ends the log as a C string */
        EXPECT_TRUE(files[i].file, strstr(seen.log.p, files[i].has));
        seen.log.n--;
        every_split_agrees(files[i].file, wp_buf_str(&bytes), &seen, 4096);
        wp_buf_fini(&bytes);
    }
    wp_buf_fini(&seen.log);
}

static void a_comment_fits_only_between_events(void)
{
    static const char bytes[] = "\xEF\xBB\xBF"
                                "data: 1\r\n\r\n: x\n\nevent: e\n\n\n\rdata";
    static const char want[] = "nny"
                               "nnnnnnnnnyy"
                               "nnnny"
                               "nnnnnnnnny"
                               "yy"
                               "nnnn";
    struct seen seen = {0};
    struct wp_sse s;

    wp_sse_init(&s, 100, on_event, &seen);
    EXPECT_TRUE("at the start", wp_sse_between(&s));
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        wp_sse_feed(&s, bytes + i, 1);
        EXPECT_INT("between", want[i], wp_sse_between(&s) ? 'y' : 'n');
    }
    wp_sse_fini(&s);
    wp_sse_init(&s, 100, on_event, &seen);
    wp_sse_feed(&s,
                "\xEF\xBB\xBF"
                "d",
                4);
    EXPECT_TRUE("a byte order mark and more in one piece", !wp_sse_between(&s));
    wp_sse_fini(&s);
    wp_buf_fini(&seen.log);
}

static void without_memory_the_event_is_cut_and_the_next_one_is_whole(void)
{
    struct seen seen = {0};
    struct wp_sse s;
    long live = wp_mem_live();
    int rc;

    wp_buf_reserve(&seen.log, 100);
    wp_sse_init(&s, 100, on_event, &seen);
    wp_mem_fail_after(0);
    rc = wp_sse_feed(&s, "data: 1\ndata: 2\n\nda", 19);
    EXPECT_TRUE("the only allocation failed", wp_mem_failed());
    wp_mem_fail_after(-1);
    EXPECT_INT("no memory", WP_ENOMEM, rc);
    EXPECT_INT("then", 0, wp_sse_feed(&s, "ta: 3\n\n", 7));
    EXPECT_TEXT("log", "||!\n|3|\n", wp_buf_str(&seen.log));
    wp_mem_fail_after(0);
    EXPECT_INT("allocated once", 0, wp_sse_feed(&s, "data: a\ndata: longer one\n\n", 26));
    EXPECT_TRUE("no other allocation", !wp_mem_failed());
    wp_mem_fail_after(-1);
    wp_sse_fini(&s);
    wp_buf_fini(&seen.log);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

const struct wp_suite suite_sse = {
    "sse",
    (const struct wp_test[]){
        {"streams are read as the standard says, however they are cut",
         streams_are_read_as_the_standard_says_however_they_are_cut},
        {"of a long event the start is given", of_a_long_event_the_start_is_given},
        {"the streams of the cases are seen, however they are cut",
         the_streams_of_the_cases_are_seen_however_they_are_cut},
        {"a comment fits only between events", a_comment_fits_only_between_events},
        {"without memory the event is cut, and the next one is whole",
         without_memory_the_event_is_cut_and_the_next_one_is_whole},
        {NULL, NULL},
    },
};
