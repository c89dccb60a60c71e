/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/bytes.h - bytes out of the texts that fixtures keep them in.
 */
#ifndef WP_TESTS_LIB_BYTES_H
#define WP_TESTS_LIB_BYTES_H

#include "base/str.h"

/*
 * The bytes of a text of hex digits, lower case, or of base64; white space and lines that begin
 * with # are left out.  NULL when there are other letters, or a part of a byte.  The caller's
 * (wp_free), and exactly as long, so that a sanitizer sees one byte too far.
 */
char *wp_test_hex(struct wp_str text, size_t *n);
char *wp_test_base64(struct wp_str text, size_t *n);

#endif
