/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands, and check, help, version and policies as programs: exit status and output.
 */
#include "policies/policy.h"
#include "router/check.h"
#include "router/help.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <unistd.h>

static int argc_seen(int argc, char **argv)
{
    (void)argv;
    return 40 + argc;
}

static int help(int argc, char **argv);

static const struct wp_command table[] = {
    {"check", wp_check_main, "a"},
    {"serve", argc_seen, "b"},
    {"policies", wp_policies_main, "c"},
    {"version", wp_version_main, "d"},
    {"help", help, "e"},
    {NULL, NULL, NULL},
};

static int help(int argc, char **argv)
{
    return wp_help_run(table, argc, argv);
}

/* Runs words[] and says what came on stdout and stderr together. */
static int run(const char *const words[6], char *out, size_t size)
{
    char *argv[8] = {(char *)(uintptr_t) "warmpath"};
    FILE *f = tmpfile();
    int argc = 1, old[2], status;
    size_t n = 0;

    if (!f)
        abort();
    for (; argc < 7 && words[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    fflush(NULL);
    for (int fd = 1; fd <= 2; fd++) {
        old[fd - 1] = dup(fd);
        dup2(fileno(f), fd);
    }
    status = wp_command_run(table, argc, argv);
    fflush(NULL);
    for (int fd = 1; fd <= 2; fd++) {
        dup2(old[fd - 1], fd);
        close(old[fd - 1]);
    }
    rewind(f);
    n = fread(out, 1, size - 1, f);
    out[n] = 0;
    fclose(f);
    return status;
}

static const struct {
    const char *label, *words[6];
    int status;
    const char *has; /* somewhere in the output */
} cases[] = {
    {"nothing", {NULL}, 2, "usage: warmpath COMMAND"},
    {"help", {"help"}, 0, "usage: warmpath COMMAND"},
    {"--help", {"--help"}, 0, "usage: warmpath COMMAND"},
    {"help of a command", {"help", "check"}, 0, "usage: warmpath check"},
    {"help of the settings", {"help", "config"}, 0, "\npolicy.price.room_us: a number from 0"},
    {"help of nothing known", {"help", "chekc"}, 2, "did you mean \"check\"?"},
    {"help of too much", {"help", "a", "b"}, 2, "want one COMMAND"},
    {"unknown", {"chekc"}, 2, "unknown command \"chekc\"; did you mean \"check\"?"},
    {"nothing like it", {"zzzzzzzzzz"}, 2, "see warmpath help"},
    {"arguments begin at the command", {"serve", "a", "b"}, 43, ""},
    {"version", {"version"}, 0, "warmpath " WP_VERSION "\n"},
    {"--version", {"--version"}, 0, "warmpath " WP_VERSION "\n"},
    {"version of something", {"version", "x"}, 2, "unexpected argument \"x\""},
    {"policies", {"policies"}, 0, "\nround_robin "},
    {"policies, misspelt flag", {"policies", "--hlep"}, 2, "did you mean \"--help\"?"},
    {"check without a file", {"check"}, 2, "want a file"},
    {"check, unknown flag",
     {"check", "--st", "x"},
     2,
     "unknown flag \"--st\"; did you mean \"--set\"?"},
    {"check, no such file",
     {"check", "-c", "/nowhere"},
     2,
     "/nowhere: cannot be read: not found\n"},
    {"check, two files", {"check", "a", "b"}, 2, "want one file"},
    {"check, wrong",
     {"check", "--set", "threads=x"},
     2,
     "--set threads: want a whole number from 1 to 256, got x\n"},
    {"check, a number in quotes",
     {"check", "tests/data/conf/quoted.json"},
     2,
     "quoted.json:1: threads: want a whole number from 1 to 256, got \"1\"\n"},
    {"check, a key of more lines than one",
     {"check", "--set", "listen.admin_key_file=tests/data/conf/secrets"},
     2,
     "--set listen.admin_key_file: want a file of one line, the key, got more in "},
    {"check, an alias of itself",
     {"check", "--set", "models.0.name=a", "--set", "models.0.aliases=[a]"},
     2,
     "--set models.0.aliases: want names of its own, got \"a\" twice\n"},
    {"check, one error of one worker",
     {"check", "--worker", "http://a:1,bad=1"},
     2,
     "--worker http://a:1: workers.0.bad: unknown key; did you mean \"id\"?\n"},
    {"check, right",
     {"check", "--worker", "http://a:1", "--set", "threads=2"},
     0,
     "no file: ok: 1 worker, 0 models, policy price"},
    {"check, as JSON", {"check", "--json"}, 0, "{\"listen\":{\"api\":\"127.0.0.1:30000\","},
};

static void commands_end_with_the_status_that_scripts_read(void)
{
    char out[32768];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        EXPECT_INT(cases[i].label, cases[i].status, run(cases[i].words, out, sizeof out));
        if (!strstr(out, cases[i].has))
            EXPECT_TEXT(cases[i].label, cases[i].has, wp_str_of(out));
    }
}

static void every_policy_is_listed(void)
{
    char out[32768];

    run((const char *const[6]){"policies"}, out, sizeof out);
    for (size_t i = 0; wp_policies[i]; i++) {
        EXPECT_TRUE(wp_policies[i]->name, strstr(out, wp_policies[i]->name));
        EXPECT_TRUE(wp_policies[i]->name, strstr(out, wp_policies[i]->summary));
    }
}

const struct wp_suite suite_commands = {
    "commands",
    (const struct wp_test[]){
        {"commands end with the status that scripts read",
         commands_end_with_the_status_that_scripts_read},
        {"every policy is listed", every_policy_is_listed},
        {NULL, NULL},
    },
};
