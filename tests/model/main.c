/* SPDX-License-Identifier: Apache-2.0 */
/* model [--once] [NAME...]: runs the scenarios whose names begin with a NAME, or all; --once: up to
 * the first that fails.  The last line is the totals. */
#include "tests/model/model.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static unsigned passed, lost;
static unsigned long interleavings;
static bool once;
static char crash_stack[1 << 16];

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strncmp(name, argv[i], strlen(argv[i])) == 0)
            return true;
    return argc == 0;
}

static void run_all(const struct wp_model *m, int argc, char **argv)
{
    for (; m->name; m++)
        if (!(once && lost) && wanted(m->name, argc, argv)) {
            bool ok = wp_model_run(m, &interleavings);

            passed += ok;
            lost += !ok;
        }
}

int main(int argc, char **argv)
{
    argc--, argv++;
    once = argc && strcmp(*argv, "--once") == 0;
    argc -= once, argv += once;
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigaltstack(&(stack_t){.ss_sp = crash_stack, .ss_size = sizeof crash_stack}, NULL);
    sigaction(
        SIGSEGV,
        &(struct sigaction){.sa_handler = wp_model_crashed, .sa_flags = SA_ONSTACK | SA_NODEFER},
        NULL);
    alarm(600); /* for a coroutine that waits for a lock that another has */
    run_all(wp_models_parts, argc, argv);
    run_all(wp_models_whole, argc, argv);
    printf("  %lu interleavings in all\n", interleavings);
    printf("%u passed, %u failed\n", passed, lost);
    return lost || !passed;
}
