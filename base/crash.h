/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/crash.h - last words of a process that crashes: the signal and where it was, one line a frame, on standard error; then it dies of that
 * signal as it would have.  `addr2line -e warmpath -f 0xOFFSET` says which line of the source a frame is.
 * Nothing in a build with a sanitizer, which has better words of its own.
 */
#ifndef WP_BASE_CRASH_H
#define WP_BASE_CRASH_H

/* Once, before there are threads. */
void wp_crash_setup(void);

#endif
