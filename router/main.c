/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands: one row and one header a program. */
#include "router/check.h"
#include "router/ctl.h"
#include "router/help.h"
#include "router/serve.h"
#include "sim/commands.h"

#include <signal.h>

static int help(int argc, char **argv);

/* clang-format off */
static const struct wp_command commands[] = {
    {"serve",    wp_serve_main,    "the router: OpenAI API in front, engines behind"},
    {"ctl",      wp_ctl_main,      "workers, explain, decisions, drain, reload: the admin API from a shell"},
    {"check",    wp_check_main,    "read a configuration and say what is wrong with it"},
    {"policies", wp_policies_main, "list what can choose a worker"},
    {"engine",   wp_engine_main,   "a simulated inference engine behind vLLM's HTTP API"},
    {"load",     wp_load_main,     "play a trace at an OpenAI endpoint and measure"},
    {"replay",   wp_replay_main,   "play a trace at a simulated fleet in virtual time and compare policies"},
    {"trace",    wp_trace_main,    "make a request trace, or state the statistics of one"},
    {"decide",   wp_decide_main,   "choose for a simulator, line by line"},
    {"version",  wp_version_main,  "print the version"},
    {"help",     help,             "print this, a command's flags, or every setting"},
    {NULL, NULL, NULL},
};
/* clang-format on */

static int help(int argc, char **argv)
{
    return wp_help_run(commands, argc, argv);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error of a write, not our end */
    return wp_command_run(commands, argc, argv);
}
