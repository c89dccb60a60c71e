/* SPDX-License-Identifier: Apache-2.0 */
#include "router/snapshot.h"

#include "base/clock.h"
#include "index/save.h"
#include "router/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCH_US = 20000, CHILD_US = 600000000, NAME_MAX_BYTES = 4096, FDS_MAX = 65536, NICE = 5, LOOK_US = 10000000 };

struct wp_snapshots {
    struct wp_gate *gate;
    struct wp_feed_desk *desk;
    struct wp_timer due, watch;
    pid_t child; /* 0: none */
    uint64_t began_us, done_us; /* done_us: the end of the last good one; 0: none */
    char file[NAME_MAX_BYTES], fresh[NAME_MAX_BYTES + 8], folder[NAME_MAX_BYTES];
    struct wp_buf records;
    struct wp_frames_out out;
    struct wp_series *age, *bytes, *duration, *stall, *good, *bad;
};

static const struct wp_config *conf_of(const struct wp_snapshots *s)
{
    return s->gate->router->settings->conf;
}

/* -- writing: in a child nothing else than system calls -- */

static int put(void *ctx, const void *p, size_t n)
{
    const char *at = p;

    while (n) {
        ssize_t done = write(*(int *)ctx, at, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

static int sync_folder(const struct wp_snapshots *s)
{
    int fd = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return errno;
    if (fsync(fd) < 0 && errno != EINVAL)
        rc = errno;
    close(fd);
    return rc;
}

/* 0, or an errno. */
static int write_file(struct wp_snapshots *s)
{
    int fd, rc;

    unlink(s->fresh); /* of one that was killed */
    fd = open(s->fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    wp_frames_start(&s->out, wp_warm_magic, WP_WARM_VERSION, put, &fd);
    wp_index_save(wp_fleet_index(s->gate->router->fleet), &s->out);
    wp_warm_write(&s->out, wp_buf_str(&s->records));
    rc = wp_frames_finish(&s->out);
    if (!rc && fsync(fd) < 0)
        rc = errno;
    if (close(fd) < 0 && !rc)
        rc = errno;
    if (!rc && rename(s->fresh, s->file) < 0)
        rc = errno;
    if (rc)
        unlink(s->fresh);
    return rc ? rc : sync_folder(s);
}

/* Sockets that stayed open here would keep connections up that the parent has closed. */
static void close_all(void)
{
    if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0)
        return;
    for (int fd = 0; fd < FDS_MAX; fd++)
        close(fd);
}

static void run_child(struct wp_snapshots *s, const sigset_t *before)
{
    static const int ours[] = {SIGHUP, SIGINT, SIGTERM, SIGCHLD, SIGPIPE};
    int rc;

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        signal(ours[i], ours[i] == SIGTERM ? SIG_DFL : SIG_IGN); /* libuv's handlers write to the parent's pipes */
    close_all();
    sigprocmask(SIG_SETMASK, before, NULL);
    if (nice(NICE) < 0) {
        /* then it runs as the parent does */
    }
    rc = write_file(s);
    _exit(rc > 0 && rc < 256 ? rc : rc ? EIO : 0);
}

/* -- the parent -- */

static void failed(struct wp_snapshots *s, const char *why)
{
    wp_count(s->bad, 1);
    wp_log(WP_ERROR, "snapshot", "%s: %s; the one before stays", s->file, why);
}

static void done(struct wp_snapshots *s)
{
    struct stat st = {0};
    double seconds = (double)(wp_now_us() - s->began_us) / 1e6;

    s->done_us = wp_now_us();
    if (stat(s->file, &st) < 0)
        st.st_size = 0;
    wp_count(s->good, 1);
    wp_gauge_set(s->bytes, (double)st.st_size);
    wp_gauge_set(s->duration, seconds);
    wp_log(WP_INFO, "snapshot", "%s: %lld bytes in %.3f s", s->file, (long long)st.st_size, seconds);
}

static void tell_end(struct wp_snapshots *s, int status)
{
    char text[64];

    s->child = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        done(s);
    } else if (WIFEXITED(status)) {
        failed(s, wp_strerror(-WEXITSTATUS(status)));
    } else {
        snprintf(text, sizeof text, "the process that wrote it was ended by signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        failed(s, text);
    }
}

static void on_watch(struct wp_timer *t)
{
    struct wp_snapshots *s = t->arg;
    int status = 0;
    pid_t pid = waitpid(s->child, &status, WNOHANG);

    if (pid == 0) {
        if (wp_now_us() > s->began_us + CHILD_US)
            kill(s->child, SIGKILL);
        wp_timer_in(&s->gate->loop, t, WATCH_US);
    } else if (pid < 0) {
        s->child = 0;
        failed(s, "the process that wrote it is lost");
    } else {
        tell_end(s, status);
    }
}

/* What the file needs beside the index, and where it goes.  Errors: WP_ENOTSUP, WP_ENOMEM. */
static int prepare(struct wp_snapshots *s, struct wp_err *err)
{
    const char *file = conf_of(s)->index.snapshot, *slash = strrchr(file, '/');

    if (!file[0])
        return wp_fail(err, WP_ENOTSUP, "index.snapshot names no file");
    if (strlen(file) >= sizeof s->file)
        return wp_fail(err, WP_EINVAL, "index.snapshot: the name is too long");
    snprintf(s->file, sizeof s->file, "%s", file);
    snprintf(s->fresh, sizeof s->fresh, "%s.new", file);
    snprintf(s->folder, sizeof s->folder, "%.*s", slash == file ? 1 : slash ? (int)(slash - file) : 1, slash ? file : ".");
    wp_buf_fini(&s->records);
    s->began_us = wp_now_us();
    return wp_feed_desk_save(s->desk, &s->records) < 0 ? wp_fail(err, WP_ENOMEM, "out of memory") : 0;
}

int wp_snapshots_take(struct wp_snapshots *s, struct wp_err *err)
{
    struct wp_index *ix = wp_fleet_index(s->gate->router->fleet);
    sigset_t all, before;
    uint64_t then;
    int rc;

    if (s->child)
        return wp_fail(err, WP_EAGAIN, "a snapshot is being taken already");
    rc = prepare(s, err);
    if (rc < 0)
        return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    wp_index_pause(ix);
    then = wp_now_us();
    s->child = fork();
    if (s->child == 0)
        run_child(s, &before);
    rc = s->child < 0 ? -errno : 0;
    wp_index_resume(ix);
    wp_gauge_set(s->stall, (double)(wp_now_us() - then) / 1e6);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    wp_buf_fini(&s->records);
    if (rc < 0) {
        s->child = 0;
        failed(s, wp_strerror(rc));
        return wp_fail(err, rc, "fork: %s", wp_strerror(rc));
    }
    wp_timer_in(&s->gate->loop, &s->watch, WATCH_US);
    return 0;
}

/* Without a file or an interval it is looked at again now and then: a reload may name them. */
static void arm(struct wp_snapshots *s)
{
    uint64_t every = conf_of(s)->index.snapshot_us;

    wp_timer_in(&s->gate->loop, &s->due, every ? every : LOOK_US);
}

static void on_due(struct wp_timer *t)
{
    struct wp_snapshots *s = t->arg;
    struct wp_err err = WP_ERR_INIT;
    int rc = conf_of(s)->index.snapshot_us ? wp_snapshots_take(s, &err) : WP_ENOTSUP;

    if (rc < 0 && rc != WP_EAGAIN && rc != WP_ENOTSUP)
        wp_log(WP_ERROR, "snapshot", "%s", err.text);
    arm(s);
}

static void on_scrape(void *arg)
{
    struct wp_snapshots *s = arg;

    wp_gauge_set(s->age, s->done_us ? (double)(wp_now_us() - s->done_us) / 1e6 : -1);
}

int wp_snapshots_create(struct wp_snapshots **out, struct wp_gate *g, struct wp_feed_desk *d, struct wp_err *err)
{
    struct wp_metrics *m = g->router->metrics;
    struct wp_snapshots *s = wp_calloc(1, sizeof *s);
    struct wp_family *taken;

    if (!s)
        return wp_fail(err, WP_ENOMEM, "snapshot: out of memory");
    s->gate = g;
    s->desk = d;
    wp_timer_init(&s->due, on_due, s);
    wp_timer_init(&s->watch, on_watch, s);
#define GAUGE0(name, help) WP_SERIES0(wp_family(m, WP_GAUGE, name, help, "", NULL, 0))
    s->age = GAUGE0("warmpath_index_snapshot_age_seconds", "Since the last snapshot of the index was taken by this process; -1: none was.");
    s->bytes = GAUGE0("warmpath_index_snapshot_bytes", "Size of the last snapshot.");
    s->duration = GAUGE0("warmpath_index_snapshot_duration_seconds", "What the last snapshot took, on the disk included.");
    s->stall = GAUGE0("warmpath_index_snapshot_stall_seconds", "How long changes of the index waited for the last snapshot to begin.");
#undef GAUGE0
    taken = wp_family(m, WP_COUNTER, "warmpath_index_snapshots_total", "Snapshots of the index, by what became of them.", "result", NULL, 0);
    s->good = WP_SERIES(taken, "good");
    s->bad = WP_SERIES(taken, "failed");
    if (wp_metrics_on_scrape(m, on_scrape, s) < 0) {
        wp_free(s);
        return wp_fail(err, WP_ENOMEM, "snapshot: out of memory");
    }
    arm(s);
    *out = s;
    return 0;
}

void wp_snapshots_stop(struct wp_snapshots *s)
{
    if (s->child) {
        kill(s->child, SIGKILL);
        waitpid(s->child, NULL, 0);
        s->child = 0;
    }
    wp_timer_stop(&s->gate->loop, &s->watch);
    wp_timer_stop(&s->gate->loop, &s->due);
}

void wp_snapshots_finish(struct wp_snapshots *s)
{
    struct wp_err err = WP_ERR_INIT;
    int rc;

    wp_snapshots_stop(s); /* what a child writes would be older */
    rc = prepare(s, &err);
    if (rc == 0) {
        wp_index_pause(wp_fleet_index(s->gate->router->fleet));
        rc = write_file(s);
        wp_index_resume(wp_fleet_index(s->gate->router->fleet));
        if (rc)
            failed(s, wp_strerror(-rc));
        else
            done(s);
    } else if (rc != WP_ENOTSUP) {
        wp_log(WP_ERROR, "snapshot", "%s", err.text);
    }
    wp_buf_fini(&s->records);
}

void wp_snapshots_destroy(struct wp_snapshots *s)
{
    wp_free(s);
}
