/* SPDX-License-Identifier: Apache-2.0 */
/* router/machine.h - what the process asks of the machine, and how much of it there is. */
#ifndef WP_ROUTER_MACHINE_H
#define WP_ROUTER_MACHINE_H

#include <stdint.h>
#include <stddef.h>

/* Once, at the start: as many descriptors as may be had, and memory of large bodies that goes back.
 */
void wp_machine_setup(void);
/*
 * How many of the wanted API connections (0: no limit) the descriptors allow for.  A client's
 * request needs a second one, towards its worker.  Clients that took them all would leave none, and
 * healthy workers would seem dead: so only as many are accepted as can be served, the others wait
 * in the backlog.  Says so in the log when these are fewer.
 */
uint64_t wp_machine_connections(uint64_t wanted, size_t gates);

#endif
