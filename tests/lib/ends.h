/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/ends.h - one end of a stream in a test, and what it has heard. */
#ifndef WP_TESTS_ENDS_H
#define WP_TESTS_ENDS_H

#include "net/stream.h"

struct end {
    struct wp_stream s;
    struct wp_buf got;
    size_t stop_at; /* reading stops once so much has come; 0: never */
    int drains, eofs, errors, closed, connects;
    int rc;
};

extern const struct wp_stream_ops end_ops;

#endif
