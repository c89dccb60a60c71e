/* SPDX-License-Identifier: Apache-2.0 */
#include "router/recorder.h"

#include "base/frames.h"
#include "base/log.h"
#include "base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE_EVERY_S = 1 };

struct wp_recorder {
    char *file, *old;
    uint64_t max_bytes;
    struct wp_series *records, *dropped;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows, up to the writer's own */
    pthread_cond_t wake;
    bool ends, broken;
    bool anew;    /* what comes next begins a file */
    uint64_t lost; /* since the last record that was kept */
    struct wp_buf front, scratch;
    struct wp_decision_writer form;
    char name[32];
    struct wp_policy_conf conf;
    /* The writer's own. */
    int fd;
    struct wp_buf back;
    struct wp_frames_out out;
};

/* ---- the thread that writes ---- */

static int put(void *ctx, const void *p, size_t n)
{
    const struct wp_recorder *r = ctx;
    const char *at = p;

    while (n) {
        ssize_t wrote = write(r->fd, at, n);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote < 0 ? errno : EIO;
        at += wrote;
        n -= (size_t)wrote;
    }
    return 0;
}

static int open_file(struct wp_recorder *r)
{
    if (rename(r->file, r->old) < 0 && errno != ENOENT)
        return -errno;
    r->fd = open(r->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (r->fd < 0)
        return -errno;
    wp_frames_start(&r->out, wp_decision_magic, WP_DECISION_VERSION, put, r);
    return r->out.failed ? -r->out.failed : 0;
}

static int finish_file(struct wp_recorder *r)
{
    int rc = r->fd >= 0 ? wp_frames_finish(&r->out) : 0;

    if (r->fd >= 0 && close(r->fd) < 0 && !rc)
        rc = errno;
    r->fd = -1;
    return -rc;
}

static int write_back(struct wp_recorder *r, bool anew)
{
    int rc;

    if (r->back.n) {
        wp_frames_section(&r->out, WP_DECISION_SECTION);
        wp_frames_put(&r->out, r->back.p, r->back.n);
        wp_frames_section(&r->out, 0); /* the frame is out, however short */
        r->back.n = 0;
    }
    rc = -r->out.failed;
    if (rc == 0 && anew)
        rc = finish_file(r);
    return rc == 0 && anew ? open_file(r) : rc;
}

static void wait_for_some(struct wp_recorder *r)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WRITE_EVERY_S;
    while (!r->ends && r->front.n < WP_RECORDER_BUFFER / 2)
        if (pthread_cond_timedwait(&r->wake, &r->lock, &until) != 0)
            break;
}

static void *run(void *arg)
{
    struct wp_recorder *r = arg;
    bool ends = false, anew;
    int rc = 0;

    while (!ends) {
        struct wp_buf swap;

        pthread_mutex_lock(&r->lock);
        wait_for_some(r);
        ends = r->ends;
        swap = r->front;
        r->front = r->back;
        r->back = swap;
        anew = !ends && r->out.bytes + r->back.n >= r->max_bytes;
        r->anew |= anew;
        pthread_mutex_unlock(&r->lock);
        rc = rc ? rc : write_back(r, anew);
        if (rc == 0)
            continue;
        r->back.n = 0;
        pthread_mutex_lock(&r->lock);
        if (!r->broken)
            wp_log(WP_ERROR, "record", "%s: %s; decisions are recorded no more", r->file, wp_strerror(rc));
        r->broken = true;
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

/* ---- who tells ---- */

/* What the file must know before the next record. */
static int prepare(struct wp_recorder *r)
{
    int rc = 0;

    if (r->lost || r->anew)
        rc = wp_decision_lost(&r->form, r->lost, &r->scratch);
    if (rc == 0 && !r->form.policy_told && r->name[0])
        rc = wp_decision_put_policy(&r->form, r->name, &r->conf, &r->scratch);
    return rc;
}

/* What was made of the record in scratch is kept, or nothing of it. */
static void keep(struct wp_recorder *r, int rc)
{
    if (rc == 0 && r->front.n + r->scratch.n <= WP_RECORDER_BUFFER && wp_buf_add(&r->front, r->scratch.p, r->scratch.n) == 0) {
        r->lost = 0;
        r->anew = false;
        wp_count(r->records, 1);
        if (r->front.n >= WP_RECORDER_BUFFER / 2)
            pthread_cond_signal(&r->wake);
        return;
    }
    wp_decision_writer_fini(&r->form); /* it has told what the file will not have */
    r->lost++;
    wp_count(r->dropped, 1);
}

static bool enter(struct wp_recorder *r)
{
    pthread_mutex_lock(&r->lock);
    r->scratch.n = 0;
    if (!r->broken)
        return true;
    wp_count(r->dropped, 1);
    return false;
}

void wp_recorder_policy(struct wp_recorder *r, const char *name, const struct wp_policy_conf *conf)
{
    pthread_mutex_lock(&r->lock);
    snprintf(r->name, sizeof r->name, "%s", name);
    r->conf = *conf;
    r->form.policy_told = false;
    pthread_mutex_unlock(&r->lock);
}

void wp_recorder_decision(struct wp_recorder *r, const struct wp_decision *d)
{
    if (enter(r)) {
        int rc = prepare(r);

        keep(r, rc ? rc : wp_decision_put(&r->form, d, &r->scratch));
    }
    pthread_mutex_unlock(&r->lock);
}

void wp_recorder_outcome(struct wp_recorder *r, uint64_t id, double ttft_us, const char *outcome)
{
    if (enter(r)) {
        int rc = prepare(r);

        keep(r, rc ? rc : wp_decision_put_outcome(id, ttft_us, outcome, &r->scratch));
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- its life ---- */

static void free_all(struct wp_recorder *r)
{
    wp_decision_writer_fini(&r->form);
    wp_buf_fini(&r->front);
    wp_buf_fini(&r->back);
    wp_buf_fini(&r->scratch);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    wp_free(r->file);
    wp_free(r->old);
    wp_free(r);
}

static struct wp_series *counter(struct wp_metrics *m, bool dropped)
{
    return WP_SERIES0(dropped ? wp_family(m, WP_COUNTER, "warmpath_records_dropped_total",
                                          "Decisions and outcomes that were not recorded, because writing was too slow or failed.", "", NULL, 0)
                              : wp_family(m, WP_COUNTER, "warmpath_records_total", "Decisions and outcomes that were recorded.", "", NULL, 0));
}

void wp_recorder_metrics(struct wp_metrics *m)
{
    counter(m, false);
    counter(m, true);
}

int wp_recorder_create(struct wp_recorder **out, const char *file, uint64_t max_bytes, struct wp_metrics *metrics, struct wp_err *err)
{
    struct wp_recorder *r = wp_calloc(1, sizeof *r);
    size_t n = strlen(file);
    int rc = 0;

    if (!r)
        return wp_fail(err, WP_ENOMEM, "record: out of memory");
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    r->fd = -1;
    r->max_bytes = max_bytes;
    r->records = counter(metrics, false);
    r->dropped = counter(metrics, true);
    r->file = wp_strdup(file);
    r->old = wp_malloc(n + 5);
    if (!r->file || !r->old)
        rc = wp_fail(err, WP_ENOMEM, "record: out of memory");
    if (rc == 0) {
        snprintf(r->old, n + 5, "%s.old", file);
        rc = open_file(r);
        if (rc < 0)
            wp_fail(err, rc, "record: %s: %s", file, wp_strerror(rc));
    }
    if (rc == 0 && pthread_create(&r->thread, NULL, run, r) != 0) {
        finish_file(r);
        rc = wp_fail(err, -EAGAIN, "record: no thread could be started");
    }
    if (rc < 0) {
        free_all(r);
        return rc;
    }
    *out = r;
    return 0;
}

void wp_recorder_destroy(struct wp_recorder *r)
{
    int rc;

    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    rc = finish_file(r);
    if (rc < 0)
        wp_log(WP_ERROR, "record", "%s: %s", r->file, wp_strerror(rc));
    free_all(r);
}
