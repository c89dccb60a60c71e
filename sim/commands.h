/* SPDX-License-Identifier: Apache-2.0 */
/* sim/commands.h - the commands of this floor, for the table in router/main.c alone. */
#ifndef WP_SIM_COMMANDS_H
#define WP_SIM_COMMANDS_H

#include "sim/decide.h"
#include "sim/engine.h"
#include "sim/load.h"
#include "sim/replay.h"
#include "sim/trace_cmd.h"

#endif
