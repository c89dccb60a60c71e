/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/decisions.h"

#include "base/frames.h"
#include "base/mem.h"

#include <fcntl.h>
#include <unistd.h>

struct wp_decisions_out {
    int fd, rc;
    char *file;
    struct wp_decision_writer form;
    struct wp_buf record;
    struct wp_frames_out out;
};

static int put(void *ctx, const void *p, size_t n)
{
    struct wp_decisions_out *o = ctx;
    const char *from = p;

    while (n > 0) {
        ssize_t done = write(o->fd, from, n);

        if (done < 0 && errno != EINTR)
            return errno;
        from += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

int wp_decisions_out_open(struct wp_decisions_out **out, const char *file, struct wp_err *err)
{
    struct wp_decisions_out *o = wp_calloc(1, sizeof *o);

    if (o)
        o->file = wp_strdup(file);
    if (!o || !o->file) {
        wp_free(o);
        return wp_fail(err, WP_ENOMEM, "out of memory");
    }
    o->fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (o->fd < 0) {
        int rc = wp_fail(err, -errno, "%s: %s", file, wp_strerror(-errno));

        wp_free(o->file);
        wp_free(o);
        return rc;
    }
    wp_frames_start(&o->out, wp_decision_magic, WP_DECISION_VERSION, put, o);
    *out = o;
    return 0;
}

/* The record that was made, if it was. */
static void keep(struct wp_decisions_out *o, int rc)
{
    if (o->rc == 0)
        o->rc = rc;
    if (o->rc == 0 && o->record.n) {
        if (o->out.kind != WP_DECISION_SECTION)
            wp_frames_section(&o->out, WP_DECISION_SECTION);
        wp_frames_put(&o->out, o->record.p, o->record.n);
    }
    o->record.n = 0;
}

void wp_decisions_out_run(struct wp_decisions_out *o, const char *policy, const struct wp_policy_conf *conf)
{
    int rc = o->form.policy_told ? wp_decision_lost(&o->form, 0, &o->record) : 0;

    keep(o, rc ? rc : wp_decision_put_policy(&o->form, policy, conf, &o->record));
}

void wp_decisions_out_decision(void *arg, const struct wp_decision *d)
{
    struct wp_decisions_out *o = arg;

    keep(o, wp_decision_put(&o->form, d, &o->record));
}

void wp_decisions_out_first(struct wp_decisions_out *o, uint64_t id, double ttft_us)
{
    keep(o, wp_decision_put_outcome(id, ttft_us, "good", &o->record));
}

int wp_decisions_out_close(struct wp_decisions_out *o, struct wp_err *err)
{
    int rc, late;

    if (!o)
        return 0;
    late = wp_frames_finish(&o->out);
    if (close(o->fd) < 0 && !late)
        late = errno;
    rc = o->rc ? o->rc : -late;
    if (rc < 0)
        wp_fail(err, rc, "%s: %s", o->file, wp_strerror(rc));
    wp_decision_writer_fini(&o->form);
    wp_buf_fini(&o->record);
    wp_free(o->file);
    wp_free(o);
    return rc;
}
