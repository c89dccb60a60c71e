/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/bytes.h - bytes out of the texts that fixtures keep them in.
 */
#ifndef WP_TESTS_LIB_BYTES_H
#define WP_TESTS_LIB_BYTES_H

#include "base/str.h"

/*
 * The bytes of a text of hex digits (lines that begin with # and white space left out), or of base64.  The caller's (wp_free); never NULL
 * but for want of memory or for a text that is neither whole nor of that alphabet.  Memory is exact, so that a sanitizer sees one byte too far.
 */
char *wp_test_hex(struct wp_str text, size_t *n);
char *wp_test_base64(struct wp_str text, size_t *n);

#endif
