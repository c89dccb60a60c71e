/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/decisions.h"

#include "base/clock.h"
#include "base/frames.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_record(struct wp_frames_in *in, struct wp_decision_reader *r, struct wp_buf *b, const uint8_t head[5], struct wp_err *err)
{
    uint32_t n;

    memcpy(&n, head + 1, sizeof n);
    if (n > WP_DECISION_MAX || n > wp_frames_ahead(in))
        return wp_fail(err, WP_EINVAL, "a record is longer than what is left");
    b->n = 0;
    if (wp_buf_reserve(b, n + 1) < 0)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    if (!wp_frames_get(in, b->p, n))
        return wp_fail(err, WP_EINVAL, "%s", in->bad ? in->bad : "a record ends too soon");
    return wp_decision_read(r, head[0], b->p, n, err);
}

static int read_records(struct wp_frames_in *in, struct wp_decision_reader *r, struct wp_buf *b, struct wp_err *err)
{
    uint8_t head[5];
    int rc = 0;

    if (in->n - in->at == 16) /* nothing was decided: no section at all */
        return wp_frames_close(in, err);
    rc = wp_frames_enter(in, WP_DECISION_SECTION, "decisions", err);
    while (rc == 0 && wp_frames_get(in, head, sizeof head))
        rc = read_record(in, r, b, head, err);
    if (rc == 0 && in->bad)
        rc = wp_fail(err, WP_EINVAL, "%s", in->bad);
    return rc ? rc : wp_frames_close(in, err);
}

int wp_decisions_check(struct wp_decisions *d, const void *p, size_t n, struct wp_err *err)
{
    struct wp_decision_reader *r;
    struct wp_frames_in in = {.p = p};
    struct wp_buf b = {0};
    uint64_t began = wp_now_us();
    int rc = wp_decision_reader_create(&r, err);

    *d = (struct wp_decisions){.seconds = 0};
    if (rc < 0)
        return rc;
    rc = wp_frames_open(&in, wp_decision_magic, WP_DECISION_VERSION, p, n, err);
    if (rc == 0) {
        rc = read_records(&in, r, &b, err);
        if (rc < 0)
            wp_wrap(err, "before byte %zu", in.at);
    }
    wp_decision_counted(r, &d->count);
    snprintf(d->first, sizeof d->first, "%s", wp_decision_first_difference(r));
    d->seconds = (double)(wp_now_us() - began) / 1e6;
    wp_decision_reader_destroy(r);
    wp_buf_fini(&b);
    return rc;
}

static void say(const struct wp_decisions *d)
{
    const struct wp_decision_counts *c = &d->count;

    printf("decisions %llu, of %.1f workers on the average; outcomes %llu\n", (unsigned long long)c->decisions,
           c->decisions ? (double)c->workers / (double)c->decisions : 0, (unsigned long long)c->outcomes);
    printf("the same %llu, otherwise %llu, not judged %llu; missing in the file %llu\n", (unsigned long long)c->same,
           (unsigned long long)c->differ, (unsigned long long)c->unjudged, (unsigned long long)c->lost);
    if (d->first[0])
        printf("%s\n", d->first);
    printf("in %.2f s\n", d->seconds);
}

int wp_decisions_run(const char *file, struct wp_err *err)
{
    struct wp_decisions d;
    struct stat st;
    void *p = NULL;
    int fd = open(file, O_RDONLY | O_CLOEXEC), rc = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        rc = wp_fail(err, -errno, "%s: %s", file, wp_strerror(-errno));
    else if (!S_ISREG(st.st_mode))
        rc = wp_fail(err, WP_EINVAL, "%s: want a file", file);
    else if (st.st_size > 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            rc = wp_fail(err, -errno, "%s: %s", file, wp_strerror(-errno));
    }
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        return rc;
    rc = wp_decisions_check(&d, p ? p : "", (size_t)st.st_size, err);
    if (p)
        munmap(p, (size_t)st.st_size);
    say(&d);
    if (rc < 0)
        return wp_wrap(err, "%s", file);
    return d.count.differ ? wp_fail(err, -EIO, "%s: %llu decisions came out otherwise", file, (unsigned long long)d.count.differ) : 0;
}
