/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix doctor, by whole conversations: each habit that breaks a prefix, and beside it those that look like it and are none.
 * A conversation is a function from its turn to a request's body.
 */
#include "router/doctor.h"

#include "base/mem.h"
#include "base/rng.h"
#include "net/json.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

enum { TURNS = 20, TOOLS = 6, KEPT = 8 };

static struct wp_doctor *doctor;

/* ---- what clients say ---- */

/* Words of a text that is always the same for one seed. */
static void words(struct wp_buf *b, uint64_t seed, unsigned n)
{
    struct wp_rng r = {seed * 7919 + 1};

    for (unsigned i = 0; i < n; i++)
        wp_buf_printf(b, "%sw%llu", i ? " " : "", (unsigned long long)wp_rng_below(&r, 5000));
}

static void message(struct wp_buf *b, const char *role, uint64_t seed, unsigned n)
{
    wp_buf_printf(b, "{\"role\":\"%s\",\"content\":\"", role);
    words(b, seed, n);
    wp_buf_adds(b, "\"},");
}

static void system_text(struct wp_buf *b, const char *line3)
{
    wp_buf_adds(b, "You are of help.\\nBe kind.\\n");
    wp_buf_adds(b, line3);
    for (unsigned i = 0; i < 20; i++) {
        wp_buf_adds(b, "\\n- ");
        words(b, 900 + i, 12);
    }
}

static void system_message(struct wp_buf *b, const char *line3)
{
    wp_buf_adds(b, "{\"role\":\"system\",\"content\":\"");
    system_text(b, line3);
    wp_buf_adds(b, "\"},");
}

/* Questions and answers from..turn; the newest is a question. */
static void talk(struct wp_buf *b, uint64_t who, unsigned from, unsigned turn)
{
    for (unsigned t = from; t <= turn; t++) {
        message(b, "user", who * 1000 + 2 * t, 60);
        if (t < turn)
            message(b, "assistant", who * 1000 + 2 * t + 1, 60);
    }
}

static void end(struct wp_buf *b)
{
    if (b->p[b->n - 1] == ',')
        b->n--;
    wp_buf_adds(b, "]}");
}

static void tools(struct wp_buf *b, uint64_t order, unsigned n)
{
    unsigned at[TOOLS + 1];
    struct wp_rng r = {order};

    for (unsigned i = 0; i < n; i++)
        at[i] = i;
    for (unsigned i = n; order && i > 1; i--) {
        unsigned k = (unsigned)wp_rng_below(&r, i), swap = at[i - 1];

        at[i - 1] = at[k];
        at[k] = swap;
    }
    wp_buf_adds(b, "\"tools\":[");
    for (unsigned i = 0; i < n; i++) {
        wp_buf_printf(b, "%s{\"type\":\"function\",\"function\":{\"name\":\"t%u\",\"description\":\"", i ? "," : "", at[i]);
        words(b, 500 + at[i], 40);
        wp_buf_adds(b, "\"}}");
    }
    wp_buf_adds(b, "],");
}

/* An agent: each question is followed by three calls of tools, in which it thinks. */
static void agent(struct wp_buf *b, unsigned turn, const char *thought, bool keeps)
{
    unsigned question = turn / 4;

    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    for (unsigned t = 0; t <= turn; t++) {
        bool now = t / 4 == question;

        if (t % 4 == 0)
            message(b, "user", t, 30);
        else
            message(b, "tool", t, 100);
        if (t == turn)
            break;
        wp_buf_adds(b, "{\"role\":\"assistant\",");
        if (thought && strcmp(thought, "inline") != 0 && (now || keeps)) {
            wp_buf_printf(b, "\"%s\":\"", thought);
            words(b, 3000 + t, 40);
            wp_buf_adds(b, "\",");
        }
        wp_buf_adds(b, "\"content\":\"");
        if (thought && strcmp(thought, "inline") == 0 && (now || keeps)) {
            wp_buf_adds(b, "<think>");
            words(b, 3000 + t, 40);
            wp_buf_adds(b, "</think>\\n\\n");
        }
        words(b, 4000 + t, 20);
        wp_buf_adds(b, "\"},");
    }
    end(b);
}

static void grows(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    talk(b, 1, 0, turn);
    end(b);
}

static void slides(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    talk(b, 1, turn > 5 ? turn - 5 : 0, turn);
    end(b);
}

static void slides_without_a_head(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    talk(b, 1, turn > 5 ? turn - 5 : 0, turn);
    end(b);
}

static void keeps_the_first_question(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    message(b, "user", 77, 60);
    talk(b, 1, turn > 5 ? turn - 5 : 0, turn);
    end(b);
}

static void cuts_by_steps(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    talk(b, 1, turn / 5 * 5 > 5 ? turn / 5 * 5 - 5 : 0, turn);
    end(b);
}

static void is_summed_up_once(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    if (turn >= 10)
        message(b, "user", 88, 100);
    talk(b, 1, turn >= 10 ? 8 : 0, turn);
    end(b);
}

static void dated(struct wp_buf *b, const char *line, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, line);
    talk(b, 1, 0, turn);
    end(b);
}

static void says_the_time(struct wp_buf *b, unsigned turn)
{
    char line[64];

    snprintf(line, sizeof line, "It is 2026-11-30 10:%02u:07.", turn);
    dated(b, line, turn);
}

static void says_the_day(struct wp_buf *b, unsigned turn)
{
    dated(b, turn < 9 ? "It is 2026-11-30." : "It is 2026-12-01.", turn);
}

static void says_the_time_first(struct wp_buf *b, unsigned turn)
{
    wp_buf_printf(b, "{\"messages\":[{\"role\":\"user\",\"content\":\"[it is 10:%02u] ", turn);
    words(b, 66, 20);
    wp_buf_adds(b, "\"},{\"role\":\"assistant\",\"content\":\"yes\"},");
    talk(b, 1, 0, turn);
    end(b);
}

static void says_the_time_last(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    for (unsigned t = 0; t <= turn; t++) {
        wp_buf_printf(b, "{\"role\":\"user\",\"content\":\"[it is 10:%02u] ", t);
        words(b, t, 50);
        wp_buf_adds(b, "\"},");
        if (t < turn)
            message(b, "assistant", 1000 + t, 60);
    }
    end(b);
}

static void is_told_each_turn(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    talk(b, 1, 0, turn);
    wp_buf_printf(b, "{\"role\":\"user\",\"content\":\"Reminder %u: do not forget.\"},", turn);
    end(b);
}

static void is_billed(struct wp_buf *b, unsigned turn)
{
    wp_buf_printf(b, "{\"system\":[{\"type\":\"text\",\"text\":\"x-billing: cch=%05x;\"},{\"type\":\"text\",\"text\":\"", turn * 40503);
    system_text(b, "x");
    wp_buf_adds(b, "\"}],\"messages\":[");
    talk(b, 1, 0, turn);
    end(b);
}

static void with_tools(struct wp_buf *b, uint64_t order, unsigned n, unsigned turn)
{
    wp_buf_adds(b, "{");
    tools(b, order, n);
    wp_buf_adds(b, "\"messages\":[");
    system_message(b, "x");
    talk(b, 1, 0, turn);
    end(b);
}

static void shuffles_its_tools(struct wp_buf *b, unsigned turn)
{
    with_tools(b, turn + 1, TOOLS, turn);
}

static void has_its_tools_in_order(struct wp_buf *b, unsigned turn)
{
    with_tools(b, 5, TOOLS, turn);
}

static void gets_a_tool(struct wp_buf *b, unsigned turn)
{
    with_tools(b, 0, turn < 7 ? TOOLS - 1 : TOOLS, turn);
}

static void changes_its_tools(struct wp_buf *b, unsigned turn)
{
    with_tools(b, 0, 2 + turn % 4, turn);
}

static void drops_its_reasoning(struct wp_buf *b, unsigned turn)
{
    agent(b, turn, "reasoning_content", false);
}

static void drops_its_thoughts(struct wp_buf *b, unsigned turn)
{
    agent(b, turn, "inline", false);
}

static void keeps_its_reasoning(struct wp_buf *b, unsigned turn)
{
    agent(b, turn, "reasoning", true);
}

static void never_thinks(struct wp_buf *b, unsigned turn)
{
    agent(b, turn, NULL, false);
}

static void with_options(struct wp_buf *b, const char *options, unsigned turn)
{
    wp_buf_printf(b, "{%s\"messages\":[", options);
    system_message(b, "x");
    talk(b, 1, 0, turn);
    end(b);
}

static void leaves_options_out(struct wp_buf *b, unsigned turn)
{
    with_options(b, turn % 2 ? "" : "\"chat_template_kwargs\":{\"enable_thinking\":false},", turn);
}

static void keeps_its_options(struct wp_buf *b, unsigned turn)
{
    with_options(b, "\"chat_template_kwargs\":{\"enable_thinking\":false},\"reasoning_effort\":\"low\",", turn);
}

static void chooses_tools_anew(struct wp_buf *b, unsigned turn)
{
    with_options(b, turn % 2 ? "\"tool_choice\":\"auto\"," : "\"tool_choice\":\"none\",\"response_format\":{\"type\":\"text\"},", turn);
}

static void rewrites_what_was(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    for (unsigned t = 0; t <= turn; t++) {
        message(b, "user", t, 30);
        if (t == turn)
            break;
        message(b, "assistant", 1000 + t, 30);
        if (t + 3 < turn)
            wp_buf_adds(b, "{\"role\":\"tool\",\"content\":\"[cleared]\"},");
        else
            message(b, "tool", 2000 + t, 90);
    }
    end(b);
}

static void numbers(struct wp_buf *b, uint64_t seed, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        wp_buf_printf(b, "%s%u", b->p[b->n - 1] == '[' ? "" : ",", (unsigned)((i + seed) * 2654435761u >> 8) % 100000);
}

static void grows_in_ids(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"prompt\":[");
    numbers(b, 0, 0, 2000 + 400 * turn);
    end(b);
}

static void slides_in_ids(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"prompt\":[");
    numbers(b, 1u << 20, 0, 500);
    numbers(b, 0, 331 * turn, 331 * turn + 3500);
    end(b);
}

static void counts_in_ids(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"prompt\":[");
    numbers(b, 1u << 20, 0, 500);
    numbers(b, (2u << 20) + turn * 1000, 0, 5);
    numbers(b, 0, 0, 2000 + 400 * turn);
    end(b);
}

static void text(struct wp_buf *b, const char *head, unsigned from, unsigned to)
{
    wp_buf_printf(b, "{\"prompt\":\"%s", head);
    for (unsigned i = from; i < to; i++) {
        wp_buf_printf(b, "%s: ", i % 2 ? "me" : "you");
        words(b, 600 + i, 40);
        wp_buf_adds(b, "\\n");
    }
    wp_buf_adds(b, "me: \"}");
}

static void grows_in_text(struct wp_buf *b, unsigned turn)
{
    text(b, "A talk.\\n\\n", 0, 8 + 2 * turn);
}

static void slides_in_text(struct wp_buf *b, unsigned turn)
{
    text(b, "A talk.\\nBe kind to each other, and say what you think.\\n", 2 * turn, 2 * turn + 12);
}

static void says_the_time_in_text(struct wp_buf *b, unsigned turn)
{
    char head[80];

    snprintf(head, sizeof head, "A talk.\\nIt is 10:%02u now.\\nBe kind.\\n", turn);
    text(b, head, 0, 8 + 2 * turn);
}

/* One line of thousands of words: the place is known to some dozen words. */
static void says_the_time_in_one_line(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[{\"role\":\"system\",\"content\":\"");
    words(b, 20, 300);
    wp_buf_printf(b, " it is 10:%02u now ", turn);
    words(b, 21, 900);
    wp_buf_adds(b, "\"},");
    talk(b, 1, 0, turn);
    end(b);
}

/* Two people with one first question under system texts of their own, in turn. */
static void are_two(struct wp_buf *b, unsigned turn)
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, turn % 2 ? "You speak with Ann." : "You speak with Bob.");
    message(b, "user", 1, 60);
    message(b, "assistant", 2, 60);
    talk(b, 5 + turn % 2, 0, turn / 2);
    end(b);
}

/* The very same conversation, every turn of it, under two system texts: an evaluation. */
static void compares_two_texts(struct wp_buf *b, unsigned turn)
{
    dated(b, turn % 2 ? "Say yes." : "Say no.", turn / 2);
}

static void asks_one_thing_under_many_texts(struct wp_buf *b, unsigned turn)
{
    says_the_time(b, 0);
    b->n = 0;
    wp_buf_printf(b, "{\"messages\":[{\"role\":\"system\",\"content\":\"Variant %u\\n", turn);
    words(b, 40, 300);
    wp_buf_adds(b, "\"},");
    talk(b, 1, 0, 0);
    end(b);
}

static void tries_again(struct wp_buf *b, unsigned turn)
{
    grows(b, turn / 3);
}

static void looks_things_up(struct wp_buf *b, unsigned turn) /* each question about other documents, none of a conversation */
{
    wp_buf_adds(b, "{\"messages\":[");
    system_message(b, "x");
    message(b, "user", 7000 + turn, 400);
    end(b);
}

/* clang-format off */
static const struct habit {
    const char *name;
    enum wp_route_kind route;
    void (*body)(struct wp_buf *b, unsigned turn);
    enum wp_break want;       /* NONE: nothing may be found */
    enum wp_piece_kind part;
    int number;               /* of the piece; negative: any */
} habits[] = {
    {"a conversation that grows",          WP_ROUTE_CHAT, grows,                    WP_BREAK_NONE, 0, 0},
    {"a window behind a system prompt",    WP_ROUTE_CHAT, slides,                   WP_BREAK_WINDOW, WP_PIECE_MESSAGE, 1},
    {"a window without a system prompt",   WP_ROUTE_CHAT, slides_without_a_head,    WP_BREAK_WINDOW, WP_PIECE_MESSAGE, 0},
    {"a window that keeps a question",     WP_ROUTE_CHAT, keeps_the_first_question, WP_BREAK_WINDOW, WP_PIECE_MESSAGE, 2},
    {"a cut by steps",                     WP_ROUTE_CHAT, cuts_by_steps,            WP_BREAK_NONE, 0, 0},
    {"one summing up",                     WP_ROUTE_CHAT, is_summed_up_once,        WP_BREAK_NONE, 0, 0},
    {"the time in the system prompt",      WP_ROUTE_CHAT, says_the_time,            WP_BREAK_LINE, WP_PIECE_SYSTEM, 2},
    {"the day in the system prompt",       WP_ROUTE_CHAT, says_the_day,             WP_BREAK_NONE, 0, 0},
    {"the time in one long line",          WP_ROUTE_CHAT, says_the_time_in_one_line, WP_BREAK_LINE, WP_PIECE_SYSTEM, 0},
    {"the time in the first question",     WP_ROUTE_CHAT, says_the_time_first,      WP_BREAK_LINE, WP_PIECE_MESSAGE, 0},
    {"the time in each newest question",   WP_ROUTE_CHAT, says_the_time_last,       WP_BREAK_NONE, 0, 0},
    {"a reminder behind it all",           WP_ROUTE_CHAT, is_told_each_turn,        WP_BREAK_NONE, 0, 0},
    {"a line for billing",                 WP_ROUTE_MESSAGES, is_billed,            WP_BREAK_LINE, WP_PIECE_SYSTEM, 0},
    {"tools in changing order",            WP_ROUTE_CHAT, shuffles_its_tools,       WP_BREAK_TOOLS_ORDER, WP_PIECE_TOOL, -1},
    {"tools in one order",                 WP_ROUTE_CHAT, has_its_tools_in_order,   WP_BREAK_NONE, 0, 0},
    {"one more tool from now on",          WP_ROUTE_CHAT, gets_a_tool,              WP_BREAK_NONE, 0, 0},
    {"other tools each turn",              WP_ROUTE_CHAT, changes_its_tools,        WP_BREAK_TOOLS_CHANGED, WP_PIECE_TOOL, -1},
    {"reasoning dropped",                  WP_ROUTE_CHAT, drops_its_reasoning,      WP_BREAK_THINKING, WP_PIECE_MESSAGE, -1},
    {"thoughts dropped from the content",  WP_ROUTE_CHAT, drops_its_thoughts,       WP_BREAK_THINKING, WP_PIECE_MESSAGE, -1},
    {"reasoning kept",                     WP_ROUTE_CHAT, keeps_its_reasoning,      WP_BREAK_NONE, 0, 0},
    {"no reasoning",                       WP_ROUTE_CHAT, never_thinks,             WP_BREAK_NONE, 0, 0},
    {"options left out now and then",      WP_ROUTE_CHAT, leaves_options_out,       WP_BREAK_OPTIONS, WP_PIECE_OPTION, -1},
    {"options in every request",           WP_ROUTE_CHAT, keeps_its_options,        WP_BREAK_NONE, 0, 0},
    {"choices that no template shows",     WP_ROUTE_CHAT, chooses_tools_anew,       WP_BREAK_NONE, 0, 0},
    {"results of tools cleared",           WP_ROUTE_CHAT, rewrites_what_was,        WP_BREAK_EDITED, WP_PIECE_MESSAGE, -1},
    {"ids that grow",                      WP_ROUTE_COMPLETIONS, grows_in_ids,      WP_BREAK_NONE, 0, 0},
    {"a window of ids",                    WP_ROUTE_COMPLETIONS, slides_in_ids,     WP_BREAK_WINDOW, WP_PIECE_TEXT, -1},
    {"a number among ids",                 WP_ROUTE_COMPLETIONS, counts_in_ids,     WP_BREAK_LINE, WP_PIECE_TEXT, -1},
    {"text that grows",                    WP_ROUTE_COMPLETIONS, grows_in_text,     WP_BREAK_NONE, 0, 0},
    {"a window of text",                   WP_ROUTE_COMPLETIONS, slides_in_text,    WP_BREAK_WINDOW, WP_PIECE_TEXT, 2},
    {"the time in a text",                 WP_ROUTE_COMPLETIONS, says_the_time_in_text, WP_BREAK_LINE, WP_PIECE_TEXT, 1},
    {"two who began alike",                WP_ROUTE_CHAT, are_two,                  WP_BREAK_NONE, 0, 0},
    {"one talk under two texts",           WP_ROUTE_CHAT, compares_two_texts,       WP_BREAK_NONE, 0, 0},
    {"one question under many texts",      WP_ROUTE_CHAT, asks_one_thing_under_many_texts, WP_BREAK_NONE, 0, 0},
    {"the same thrice",                    WP_ROUTE_CHAT, tries_again,              WP_BREAK_NONE, 0, 0},
    {"questions that share a head",        WP_ROUTE_CHAT, looks_things_up,          WP_BREAK_NONE, 0, 0},
};
/* clang-format on */

/* ---- the doctor at work ---- */

static void set_up(void)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("doctor", 0, wp_doctor_create(&doctor, NULL, &err));
}

static void tear_down(void)
{
    wp_doctor_destroy(doctor);
    doctor = NULL;
}

static enum wp_break see(enum wp_route_kind route, const struct wp_buf *body, uint64_t session)
{
    struct wp_arena arena = {0};
    struct wp_prompt prompt = {0};
    struct wp_err err = WP_ERR_INIT;
    const struct wp_outline *o;
    struct wp_body b;
    const char *param;
    enum wp_break kind = WP_BREAK_NONE;

    EXPECT_INT("body", 0, wp_body_read(&b, wp_buf_str(body), &err));
    EXPECT_INT("prompt", 0, wp_prompt_read(&prompt, route, &b, &arena, &param, &err));
    o = wp_outline_make(&prompt, &arena);
    EXPECT_TRUE("an outline", o != NULL);
    if (o)
        kind = wp_doctor_see(doctor, o, WP_STR("m"), session, o->tokens ? o->total : o->total / 4, 1000000);
    wp_arena_fini(&arena);
    return kind;
}

static enum wp_break play(const struct habit *h, unsigned turn, uint64_t session)
{
    struct wp_buf body = {0};
    enum wp_break kind;

    h->body(&body, turn);
    kind = see(h->route, &body, session);
    wp_buf_fini(&body);
    return kind;
}

static size_t found(void)
{
    struct wp_doctor_stats s;

    wp_doctor_stats(doctor, &s);
    return s.findings;
}

/* A member of the one finding. */
static struct wp_json finding(const struct wp_buf *json, const char *name)
{
    struct wp_json all = {WP_JSON_OBJECT, json->p, json->n}, at = {0}, model = {0};

    wp_json_each(wp_json_get(all, "models"), &model);
    wp_json_each(wp_json_get(model, "findings"), &at);
    return wp_json_get(at, name);
}

static double figure(const struct wp_buf *json, const char *name)
{
    double x = NAN;

    wp_json_double(finding(json, name), &x);
    return x;
}

static void expect_found(const struct habit *h)
{
    struct wp_buf json = {0};
    double share;

    EXPECT_UINT(h->name, h->want != WP_BREAK_NONE, found());
    EXPECT_INT("told", 0, wp_doctor_json(doctor, 2000000, &json));
    if (h->want && found()) {
        if (!wp_json_is(finding(&json, "kind"), wp_break_names[h->want]))
            printf("%s: %.*s\n", h->name, (int)json.n, json.p);
        EXPECT_TRUE(h->name, wp_json_is(finding(&json, "kind"), wp_break_names[h->want]));
        EXPECT_TRUE(h->name, wp_json_is(finding(&json, "part"), wp_piece_names[h->part]));
        if (h->number >= 0)
            EXPECT_NEAR(h->name, h->number, figure(&json, "number"), 0);
        share = figure(&json, "lost_share");
        EXPECT_TRUE(h->name, share > 0.05 && share <= 1);
    }
    wp_buf_fini(&json);
}

static void each_habit_is_found_and_what_looks_like_it_is_not(void)
{
    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        for (uint64_t session = 0; session < 2; session++) {
            set_up();
            for (unsigned t = 0; t < TURNS; t++)
                play(&habits[i], t, session);
            expect_found(&habits[i]);
            tear_down();
        }
}

/* They come to one router all at once, a turn of each after the other, under one constant `user`. */
static void they_are_told_apart_when_they_come_mixed(void)
{
    struct wp_doctor_stats s;
    struct wp_buf json = {0};

    set_up();
    for (unsigned t = 0; t < TURNS; t++)
        for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
            if (habits[i].want == WP_BREAK_NONE && habits[i].body != gets_a_tool)
                play(&habits[i], t, 42);
    wp_doctor_stats(doctor, &s);
    EXPECT_UINT("nothing is found among the innocent", 0, s.findings);
    if (s.findings && wp_doctor_json(doctor, 2000000, &json) == 0)
        printf("%.*s\n", (int)json.n, json.p);
    wp_buf_fini(&json);
    tear_down();
}

static void a_window_says_what_a_cut_by_steps_would_keep(void)
{
    const struct habit h = {"window", WP_ROUTE_CHAT, slides, WP_BREAK_WINDOW, WP_PIECE_MESSAGE, 1};
    struct wp_buf json = {0};
    double now, then;

    set_up();
    for (unsigned t = 0; t < TURNS; t++)
        play(&h, t, 0);
    EXPECT_INT("told", 0, wp_doctor_json(doctor, 2000000, &json));
    now = figure(&json, "hit_share");
    then = figure(&json, "stepwise_hit_share");
    /* the head: 20 lines of 12 words beside 11 messages of 60 */
    EXPECT_NEAR("only the head is found again", 0.27, now, 0.05);
    /* half of eleven messages goes at once, and three turns of two messages come until then */
    EXPECT_TRUE("steps keep more", then > now + 0.1 && then < 0.9);
    wp_buf_fini(&json);
    tear_down();
}

static void three_broken_turns_are_enough(void)
{
    set_up();
    for (unsigned t = 0; t < 3; t++)
        play(&(struct habit){.route = WP_ROUTE_CHAT, .body = says_the_time}, t, 0);
    EXPECT_UINT("two breaks", 0, found());
    play(&(struct habit){.route = WP_ROUTE_CHAT, .body = says_the_time}, 3, 0);
    EXPECT_UINT("three", 1, found());
    tear_down();
}

/* Each client has but two turns; all of them break. */
static void short_conversations_have_a_habit_together(void)
{
    static const bool keyed[] = {true, false};

    for (int k = 0; k < 2; k++) {
        set_up();
        for (unsigned i = 0; i < 8; i++)
            for (unsigned t = 0; t < 2; t++) {
                struct wp_buf b = {0};
                char line[64];

                snprintf(line, sizeof line, "It is 10:%02u:%02u.", i, t);
                wp_buf_adds(&b, "{\"messages\":[");
                system_message(&b, line);
                talk(&b, 100 + i, 0, t);
                end(&b);
                see(WP_ROUTE_CHAT, &b, keyed[k] ? 100 + i : 0);
                wp_buf_fini(&b);
            }
        EXPECT_UINT("found when the client says what belongs together", keyed[k], found());
        tear_down();
    }
}

/* At midnight each of many conversations breaks once, and all in one way. */
static void a_day_that_ends_for_everybody_is_no_habit(void)
{
    set_up();
    for (unsigned t = 0; t < 2; t++)
        for (unsigned i = 0; i < 20; i++) {
            struct wp_buf b = {0};

            wp_buf_adds(&b, "{\"messages\":[");
            system_message(&b, t ? "It is Tuesday." : "It is Monday.");
            talk(&b, 100 + i, 0, t);
            end(&b);
            see(WP_ROUTE_CHAT, &b, 100 + i);
            wp_buf_fini(&b);
        }
    EXPECT_UINT("nothing", 0, found());
    tear_down();
}

static void a_million_conversations_take_a_bounded_memory(void)
{
    static struct wp_piece piece[8];
    struct wp_outline o = {.piece = piece, .n = 8, .total = 8000, .n_links = 2, .from_start = true};
    struct wp_doctor_stats s;

    set_up();
    for (uint32_t i = 0; i < 1000000; i++) {
        for (uint32_t k = 0; k < 8; k++)
            piece[k] = (struct wp_piece){.hash = i * 8 + k, .norm = i * 8 + k, .n = 1000, .kind = WP_PIECE_MESSAGE};
        o.link[0] = i * 2654435761u;
        o.link[1] = i % 100; /* and long chains that are none */
        wp_doctor_see(doctor, &o, WP_STR("m"), i, 2000, i);
    }
    wp_doctor_stats(doctor, &s);
    EXPECT_UINT("all were seen", 1000000, s.requests);
    EXPECT_TRUE("bounded", s.bytes <= WP_DOCTOR_BYTES && s.sessions < 200000);
    for (uint32_t i = 0; i < 200000; i++) {
        o.link[1] = i * 40503u;
        wp_doctor_see(doctor, &o, WP_STR("m"), i, 2000, i);
    }
    wp_doctor_stats(doctor, &s);
    EXPECT_TRUE("full", s.bytes <= WP_DOCTOR_BYTES && s.bytes > WP_DOCTOR_BYTES / 2);
    for (unsigned i = 0; i < 2 * WP_DOCTOR_MODELS; i++) {
        char name[8];

        snprintf(name, sizeof name, "m%u", i);
        wp_doctor_see(doctor, &o, wp_str_of(name), 0, 1, 1);
    }
    tear_down();
}

static void absurd_prompts_have_an_outline_too(void)
{
    static const char *const odd[] = {
        "{\"messages\":[1]}",
        "{\"messages\":[null,{},[],\"\"]}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"<think>never ends\"}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"reasoning\":{\"a\":[1,2,\"]}\\\"\"]},\"content\":[{\"type\":\"thinking\",\"t\":1}]}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\\\"reasoning\\\": think\"}]}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"\\\\\\\\n\\\\n\\n\"}],\"tools\":{}}",
        "{\"messages\":[{\"role\":\"system\"}],\"tools\":[],\"documents\":7}",
    };

    set_up();
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (int twice = 0; twice < 2; twice++) {
            struct wp_buf b = {0};

            wp_buf_adds(&b, odd[i]);
            EXPECT_INT(odd[i], WP_BREAK_NONE, see(WP_ROUTE_CHAT, &b, 0));
            wp_buf_fini(&b);
        }
    tear_down();
}

static void without_memory_it_forgets(void)
{
    for (long nth = 0;; nth++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_doctor *made = NULL;
        bool failed;

        wp_mem_fail_after(nth);
        if (wp_doctor_create(&made, NULL, &err) == 0) {
            doctor = made;
            for (unsigned t = 0; t < 4; t++) {
                static struct wp_piece piece[2] = {{.hash = 1, .n = 100}, {.hash = 2, .n = 100}};
                struct wp_outline o = {.piece = piece, .n = 2, .total = 200, .link = {1, 2 + t}, .n_links = 2, .from_start = true};

                wp_doctor_see(doctor, &o, WP_STR("m"), 0, 50, 1);
            }
            tear_down();
        }
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (!failed)
            break;
    }
}

static const struct wp_test tests[] = {
    {"each habit is found, and what looks like it is not", each_habit_is_found_and_what_looks_like_it_is_not},
    {"they are told apart when they come mixed", they_are_told_apart_when_they_come_mixed},
    {"a window says what a cut by steps would keep", a_window_says_what_a_cut_by_steps_would_keep},
    {"three broken turns are enough", three_broken_turns_are_enough},
    {"short conversations have a habit together", short_conversations_have_a_habit_together},
    {"a day that ends for everybody is no habit", a_day_that_ends_for_everybody_is_no_habit},
    {"a million conversations take a bounded memory", a_million_conversations_take_a_bounded_memory},
    {"absurd prompts have an outline, too", absurd_prompts_have_an_outline_too},
    {"without memory it forgets", without_memory_it_forgets},
    {NULL, NULL},
};
const struct wp_suite suite_doctor = {"doctor", tests};
