/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ends.h"

#include "tests/lib/test.h"

static struct end *end_of(struct wp_stream *s)
{
    return WP_CONTAINER(s, struct end, s);
}

static void on_read(struct wp_stream *s, const char *p, size_t n)
{
    struct end *e = end_of(s);

    EXPECT_INT("copied", 0, wp_buf_add(&e->got, p, n));
    if (e->stop_at && e->got.n >= e->stop_at)
        wp_stream_read_stop(s);
}

static void on_eof(struct wp_stream *s)
{
    end_of(s)->eofs++;
}

static void on_error(struct wp_stream *s, int rc)
{
    end_of(s)->errors++;
    end_of(s)->rc = rc;
}

static void on_drain(struct wp_stream *s)
{
    EXPECT_UINT("queued", 0, s->queued);
    end_of(s)->drains++;
}

static void on_connect(struct wp_stream *s, int rc)
{
    end_of(s)->connects++;
    end_of(s)->rc = rc;
}

static void on_closed(struct wp_stream *s)
{
    end_of(s)->closed++;
}

const struct wp_stream_ops end_ops = {on_read, on_eof, on_error, on_drain, on_connect, on_closed};
