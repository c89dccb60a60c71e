/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/trace_cmd.h - `warmpath trace`: makes a trace from stated statistics and a seed, or states those of one that exists.
 */
#ifndef WP_SIM_TRACE_CMD_H
#define WP_SIM_TRACE_CMD_H

/* argv[0] is the command's name.  Returns the exit status: 0 done, 1 failed, 2 wrong usage. */
int wp_trace_main(int argc, char **argv);

#endif
