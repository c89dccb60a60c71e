/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/shape.h - the shape of an answer: keys and JSON types, recursively; an array's is that
 * of its first element.
 *     {"id": "x", "n": [1, 2]}  ->  {id:string,n:[number]}
 * Keys are sorted; text that is no JSON gives "(not JSON)".
 */
#ifndef WP_TESTS_LIB_SHAPE_H
#define WP_TESTS_LIB_SHAPE_H

#include "base/str.h"

#include <jansson.h>

void wp_shape(const json_t *v, struct wp_buf *out);
void wp_shape_text(struct wp_str json, struct wp_buf *out);
/* A stream's: the shapes of its events, a line each; runs of equal ones are told once. */
void wp_shape_stream(struct wp_str sse, struct wp_buf *out);

/*
 * The body of a captured request (tests/data/spec/real): as JSON text, with {"gen": [seed, n]} and
 * {"repeat": [text, n]} written out.  The caller's (wp_free); NULL: it had none.
 */
char *wp_captured_body(const json_t *request, size_t *n);

#endif
