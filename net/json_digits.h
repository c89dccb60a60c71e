/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/json_digits.h - long lists of whole numbers, 64 bytes at a time: a prompt's token ids are most of some bodies.
 * Bytes are sorted into digits, commas and blanks, a bit each; what is where follows from the bits, without a branch a byte.  The last
 * bytes of a list, and whatever is not such a list, are left to who calls.  On processors without SSE2 all is.
 * Source: marks and their shifts as in Langdale, Lemire: Parsing gigabytes of JSON per second (VLDB Journal 28, 2019); eight digits
 * in three multiplications as in Lemire: Quickly parsing eight digits (2018).
 */
#ifndef WP_NET_JSON_DIGITS_H
#define WP_NET_JSON_DIGITS_H

#include <stddef.h>
#include <stdint.h>

/*
 * p is where a number begins, or p.  Returns a place where a number may begin, such that between are whole numbers only, without leading
 * noughts, with one comma and at most one space behind each.
 */
const char *wp_digits_skip(const char *p, const char *end);

/*
 * In a checked text, of which first is no later than p: reads numbers from p on, where a value begins, to where another one does, or a ']'
 * stands.  They count from *n on, and those below cap are stored.  Numbers of more than eight digits are left.
 */
const char *wp_digits_read(const char *first, const char *p, const char *end, uint32_t *out, size_t cap, long *n);

#endif
