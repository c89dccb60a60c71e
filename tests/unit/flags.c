/* SPDX-License-Identifier: Apache-2.0 */
#include "base/flags.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#include <stdlib.h>

static const struct wp_flag table[] = {
    {"-c", "FILE", "the configuration"},
    {"--listen", "ADDR", "where to listen (127.0.0.1:30000)"},
    {"--verbose", NULL, "say more"},
    {"--threads", "N", "loops (1)"},
    {NULL, NULL, NULL},
};

/* What was taken, in order, as "row:value " and "word:text ". */
struct seen {
    struct wp_buf text;
    int refuse; /* refuse this row */
};

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct seen *s = arg;

    if ((int)i == s->refuse)
        return wp_fail(err, WP_EUSAGE, "%s: no", table[i].name);
    return wp_buf_printf(&s->text, "%zu:%s ", i, value ? value : "(switch)");
}

static int word(void *arg, const char *value, struct wp_err *err)
{
    struct seen *s = arg;

    (void)err;
    return wp_buf_printf(&s->text, "word:%s ", value);
}

static const struct {
    const char *label;
    const char *argv[6]; /* after the command's name */
    int rc;
    const char *seen, *error;
} cases[] = {
    {"nothing", {NULL}, 0, "", ""},
    {"value in the next word", {"--listen", "a:1"}, 0, "1:a:1 ", ""},
    {"value behind an equals sign", {"--listen=a:1=b"}, 0, "1:a:1=b ", ""},
    {"empty value", {"--listen="}, 0, "1: ", ""},
    {"one letter", {"-c", "f.yaml", "--verbose"}, 0, "0:f.yaml 2:(switch) ", ""},
    {"repeated, in order", {"--listen", "a", "--listen", "b"}, 0, "1:a 1:b ", ""},
    {"a negative number is a value", {"--threads", "-3"}, 0, "3:-3 ", ""},
    {"words", {"x", "--verbose", "-"}, 0, "word:x 2:(switch) word:- ", ""},
    {"words after --", {"--", "--verbose", "--help"}, 0, "word:--verbose word:--help ", ""},
    {"help", {"--verbose", "--help"}, 1, "2:(switch) ", ""},
    {"short help", {"-h"}, 1, "", ""},
    {"help as a value is no value",
     {"--listen", "--help"},
     WP_EUSAGE,
     "",
     "--listen: want ADDR, got nothing"},
    {"value missing", {"--listen"}, WP_EUSAGE, "", "--listen: want ADDR, got nothing"},
    {"value forgotten",
     {"--listen", "--verbose"},
     WP_EUSAGE,
     "",
     "--listen: want ADDR, got nothing"},
    {"value for a switch",
     {"--verbose=1"},
     WP_EUSAGE,
     "",
     "--verbose: takes no value, got \"1\""},
    {"misspelt",
     {"--lisen=x"},
     WP_EUSAGE,
     "",
     "unknown flag \"--lisen\"; did you mean \"--listen\"?"},
    {"misspelt help",
     {"--hlep"},
     WP_EUSAGE,
     "",
     "unknown flag \"--hlep\"; did you mean \"--help\"?"},
    {"nothing like it", {"--zzzzzzzzz"}, WP_EUSAGE, "", "unknown flag \"--zzzzzzzzz\"; see --help"},
    {"the first error ends it", {"--listen", "a", "--bad", "--verbose"}, WP_EUSAGE, "1:a ", NULL},
};

static int run(struct seen *s, const char *const list[6], bool words, struct wp_err *err)
{
    char *argv[8] = {(char *)(uintptr_t)"command"};
    int argc = 1;

    for (size_t i = 0; i < 6 && list[i]; i++)
        argv[argc++] = (char *)(uintptr_t)list[i];
    return wp_flags(argc, argv, table, take, words ? word : NULL, s, err);
}

static void flags_values_and_words_are_told_apart(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct seen s = {.refuse = -1};
        struct wp_err err = WP_ERR_INIT;

        EXPECT_INT(cases[i].label, cases[i].rc, run(&s, cases[i].argv, true, &err));
        EXPECT_TEXT(cases[i].label, cases[i].seen, wp_buf_str(&s.text));
        if (cases[i].error)
            EXPECT_TEXT(cases[i].label, cases[i].error, wp_str_of(err.text));
        wp_buf_fini(&s.text);
    }
}

static void a_command_without_words_refuses_them(void)
{
    struct seen s = {.refuse = -1};
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("code", WP_EUSAGE, run(&s, (const char *const[6]){"stray"}, false, &err));
    EXPECT_TEXT("text", "unexpected argument \"stray\"", wp_str_of(err.text));
    wp_buf_fini(&s.text);
}

static void what_take_refuses_ends_the_reading(void)
{
    struct seen s = {.refuse = 2};
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("code", WP_EUSAGE,
               run(&s, (const char *const[6]){"-c", "x", "--verbose", "-c", "y"}, false, &err));
    EXPECT_TEXT("text", "--verbose: no", wp_str_of(err.text));
    EXPECT_TEXT("seen", "0:x ", wp_buf_str(&s.text));
    wp_buf_fini(&s.text);
}

static void numbers_are_held_to_their_bounds(void)
{
    struct wp_err err = WP_ERR_INIT;
    uint64_t u = 7;
    double d = 7;

    EXPECT_INT("u64", 0, wp_flag_u64(&table[3], "64", 1, 64, &u, &err));
    EXPECT_UINT("u64", 64, u);
    EXPECT_INT("above", WP_EUSAGE, wp_flag_u64(&table[3], "65", 1, 64, &u, &err));
    EXPECT_TEXT("above", "--threads: want a whole number from 1 to 64, got \"65\"",
                wp_str_of(err.text));
    EXPECT_INT("below", WP_EUSAGE, wp_flag_u64(&table[3], "0", 1, 64, &u, &err));
    EXPECT_INT("signed", WP_EUSAGE, wp_flag_u64(&table[3], "-1", 0, 64, &u, &err));
    EXPECT_INT("no number", WP_EUSAGE, wp_flag_u64(&table[3], "1x", 0, 64, &u, &err));
    EXPECT_UINT("untouched by errors", 64, u);
    EXPECT_INT("double", 0, wp_flag_double(&table[3], "0.25", 0, 1, &d, &err));
    EXPECT_NEAR("double", 0.25, d, 0);
    EXPECT_INT("double above", WP_EUSAGE, wp_flag_double(&table[3], "1.5", 0, 1, &d, &err));
    EXPECT_TEXT("double above", "--threads: want a number from 0 to 1, got \"1.5\"",
                wp_str_of(err.text));
    EXPECT_INT("nan", WP_EUSAGE, wp_flag_double(&table[3], "nan", 0, 1, &d, &err));
}

static void the_help_has_a_line_a_flag(void)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    if (!f)
        return;
    wp_flags_help(f, "serve [-c FILE]", "Routes.", table);
    fclose(f);
    EXPECT_TEXT("help",
                "usage: warmpath serve [-c FILE]\n"
                "\n"
                "Routes.\n"
                "\n"
                "  -c FILE        the configuration\n"
                "  --listen ADDR  where to listen (127.0.0.1:30000)\n"
                "  --verbose      say more\n"
                "  --threads N    loops (1)\n"
                "  -h, --help     this text\n",
                wp_str_of(text));
    free(text);
}

const struct wp_suite suite_flags = {
    "flags",
    (const struct wp_test[]){
        {"flags, values and words are told apart", flags_values_and_words_are_told_apart},
        {"a command without words refuses them", a_command_without_words_refuses_them},
        {"what take refuses ends the reading", what_take_refuses_ends_the_reading},
        {"numbers are held to their bounds", numbers_are_held_to_their_bounds},
        {"the help has a line a flag", the_help_has_a_line_a_flag},
        {NULL, NULL},
    },
};
