/* SPDX-License-Identifier: Apache-2.0 */
/* A trace file, plain or gzip: what is read is sorted and whole, and reads back the same after it
 * was written. */
#include "sim/trace.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int memory_file(char path[64], const uint8_t *data, size_t n)
{
    int fd = memfd_create("trace", 0);

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static void check(const struct wp_trace *t)
{
    uint32_t tokens[1024];

    for (size_t i = 0; i < t->n; i++) {
        const struct wp_trace_req *r = &t->req[i];

        if (r->input == 0 || r->output == 0 || r->n_ids != (r->input + 511) / 512 ||
            (i > 0 && r->at_us < t->req[i - 1].at_us))
            abort();
        if (r->input <= 1024)
            wp_trace_tokens(r, 50000, tokens);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_trace t, back;
    struct wp_trace_stats s;
    struct wp_err err = WP_ERR_INIT;
    char path[64];
    int fd = memory_file(path, data, n);

    if (wp_trace_read(&t, path, 1000, &err) < 0) {
        if (!err.text[0] || t.n != 0)
            abort();
        close(fd);
        return 0;
    }
    check(&t);
    if (wp_trace_stats(&t, &s) < 0 || !(s.hit >= 0 && s.hit <= 1) || s.sessions < 1 ||
        s.sessions > t.n)
        abort();
    if (ftruncate(fd, 0) < 0 || wp_trace_write(&t, path, &err) < 0 ||
        wp_trace_read(&back, path, 0, &err) < 0)
        abort();
    if (back.n != t.n)
        abort();
    for (size_t i = 0; i < t.n; i++) {
        if (back.req[i].at_us != t.req[i].at_us || back.req[i].input != t.req[i].input ||
            memcmp(back.req[i].id, t.req[i].id, t.req[i].n_ids * sizeof t.req[i].id[0]) != 0)
            abort();
    }
    wp_trace_jitter(&t, 3000000, n);
    check(&t);
    wp_trace_fini(&back);
    wp_trace_fini(&t);
    close(fd);
    return wp_mem_live() == 0 ? 0 : (abort(), 0);
}
