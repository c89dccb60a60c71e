/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/snapshot.c - what a snapshot of the index costs: the fork that begins it, the file,
 * and the way back. make build/bench/snapshot && build/bench/snapshot [locations, 10000000]
 * [holders of a block, 1] [blocks of a chain, 128] 256 workers hold chains.  The file goes to /tmp
 * and is read from the page cache; "again" is a load right after another one was freed, so that the
 * system need not find as much fresh memory.  Times are of the clock on the wall.
 */
#include "index/save.h"

#include "base/rng.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 256, ROUNDS = 5, CHAIN_MAX = 4096 };

static const char magic[8] = "WPBENCH\n";
static struct wp_frames_out out;
static uint32_t space, worker[WORKERS];
static uint64_t local[CHAIN_MAX], engine[CHAIN_MAX];

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void need(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "snapshot: %s\n", what);
        exit(1);
    }
}

static void chain(uint64_t number, size_t n, uint32_t holder)
{
    struct wp_rng l = {number}, e = {number << 16 | holder};

    for (size_t i = 0; i < n; i++) {
        local[i] = wp_rng_next(&l);
        engine[i] = wp_rng_next(&e);
    }
}

static struct wp_index *build(uint64_t locations, uint32_t holders, size_t blocks)
{
    const struct wp_index_conf conf = {.secret = 4711};
    struct wp_err err = WP_ERR_INIT;
    struct wp_index *ix;

    need(wp_index_create(&ix, &conf, &err) == 0, err.text);
    need(wp_index_space(ix, WP_STR("m"), 16, WP_STR(""), WP_SPACE_TOKENS, &space, &err) == 0,
         err.text);
    for (int i = 0; i < WORKERS; i++)
        need(wp_index_holder(ix, WP_HOLDER_RANK, WP_NO_HOLDER, &worker[i], &err) == 0, err.text);
    for (uint64_t c = 0; c * blocks * holders < locations; c++)
        for (uint32_t h = 0; h < holders; h++) {
            struct wp_kv_event ev = {.holder = worker[(c * 7 + h) % WORKERS],
                                     .space = space,
                                     .main_group = true,
                                     .n = blocks,
                                     .engine = engine,
                                     .local = local};

            chain(c, blocks, ev.holder);
            wp_index_apply(ix, &ev, NULL);
        }
    return ix;
}

static int put(void *ctx, const void *p, size_t n)
{
    return write(*(int *)ctx, p, n) == (ssize_t)n ? 0 : 1;
}

static void write_file(const struct wp_index *ix, const char *file)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0)
        _exit(1);
    wp_frames_start(&out, magic, 1, put, &fd);
    wp_index_save(ix, &out);
    _exit(wp_frames_finish(&out) != 0 || fsync(fd) != 0);
}

/* The fork, and the child's whole work. */
static void snapshot(struct wp_index *ix, const char *file)
{
    double then = now_ms(), forked;
    int status = 1;
    pid_t pid;

    wp_index_pause(ix);
    pid = fork();
    if (pid == 0)
        write_file(ix, file);
    wp_index_resume(ix);
    forked = now_ms();
    need(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
    printf("  fork, writers wait    %8.2f ms\n  written and synced    %8.1f ms\n", forked - then,
           now_ms() - then);
}

static struct wp_index *load(const void *p, size_t n, const char *label)
{
    const struct wp_index_conf conf = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_frames_in in;
    struct wp_index *ix = NULL;
    double then = now_ms();

    need(wp_frames_open(&in, magic, 1, p, n, &err) == 0 &&
             wp_index_load(&ix, &conf, &in, &err) == 0,
         err.text);
    printf("  load, %-15s %8.1f ms\n", label, now_ms() - then);
    return ix;
}

static void first_answer(const struct wp_index *ix, size_t blocks)
{
    struct wp_overlap o;
    double then;

    need(wp_overlap_init(&o, WORKERS) == 0, "no memory");
    chain(3, blocks, 0);
    then = now_ms();
    need(wp_index_overlap(ix, space, local, blocks, &o) == blocks, "the first answer is wrong");
    printf("  first answer          %8.4f ms\n", now_ms() - then);
    wp_overlap_fini(&o);
}

int main(int argc, char **argv)
{
    uint64_t locations = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    uint32_t holders = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    size_t blocks = argc > 3 ? (size_t)atoi(argv[3]) : 128;
    char file[64];
    struct wp_index_stats s;
    struct wp_index *ix;
    struct stat st;
    void *p;
    int fd;

    need(blocks > 0 && blocks <= CHAIN_MAX && holders > 0 && holders <= WORKERS,
         "want 1 to 4096 blocks, 1 to 256 holders");
    snprintf(file, sizeof file, "/tmp/warmpath-bench-%d", (int)getpid());
    ix = build(locations, holders, blocks);
    wp_index_stats(ix, &s);
    printf("%llu locations, %llu blocks, %.0f MB in the index\n", (unsigned long long)s.locations,
           (unsigned long long)s.blocks, (double)s.bytes / 1e6);
    for (int i = 0; i < 3; i++)
        snapshot(ix, file);
    wp_index_destroy(ix);
    fd = open(file, O_RDONLY);
    need(fd >= 0 && fstat(fd, &st) == 0, "no file");
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    need(p != MAP_FAILED, "no map");
    printf("  file                  %8.1f MB\n", (double)st.st_size / 1e6);
    for (int i = 0; i < ROUNDS; i++) {
        ix = load(p, (size_t)st.st_size, i ? "again" : "first");
        if (i == 0)
            first_answer(ix, blocks);
        wp_index_destroy(ix);
    }
    unlink(file);
    return 0;
}
