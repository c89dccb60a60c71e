/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/ports.h - ports that stay free until a test binds them, again and again.
 * A port that the kernel picks lies where it picks those of outgoing connections, too: closed and bound
 * again, it may be some other program's by then.  These lie below that range.
 */
#ifndef WP_TESTS_LIB_PORTS_H
#define WP_TESTS_LIB_PORTS_H

/* The first of n ports in a row that nobody has on 127.0.0.1 and, where there is one, on [::1]. */
unsigned test_ports(unsigned n);

#endif
