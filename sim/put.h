/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/put.h - writes JSON by hand, where a body is made ten thousand times a second.
 * A writer remembers its first failure and does nothing after it, so that a whole object is written
 * without asking, and rc is looked at once.  Whole numbers are formatted here: printf costs ten
 * times as much on a prompt of 12,000 ids.
 */
#ifndef WP_SIM_PUT_H
#define WP_SIM_PUT_H

#include "base/str.h"

struct wp_put {
    struct wp_buf *b;
    int rc; /* 0, WP_ENOMEM, WP_ETOOBIG */
};

void wp_put(struct wp_put *o, const char *text); /* as it is */
void wp_put_str(struct wp_put *o, struct wp_str s);
void wp_put_u(struct wp_put *o, uint64_t x);
void wp_put_f(struct wp_put *o, double x);           /* JSON's grammar: never "nan" */
void wp_put_json(struct wp_put *o, struct wp_str s); /* as a JSON string */
void wp_put_tokens(struct wp_put *o, const uint32_t token[], size_t n); /* [1,2,3] */

#endif
