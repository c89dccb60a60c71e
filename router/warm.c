/* SPDX-License-Identifier: Apache-2.0 */
#include "router/warm.h"

#include "base/mem.h"
#include "index/save.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char wp_warm_magic[8] = "WPINDEX\n";

enum { SECTION = WP_INDEX_SECTIONS, TEXTS = 5, TEXT_MAX = 4096, INGEST_MAX = 1 << 30 };

struct head { /* of a record; then its texts and the ingest's bytes */
    uint64_t next;
    double last_ts;
    uint32_t rank, ranks, holder, timed, whole, ingest;
    uint32_t text[TEXTS], spare;
};

static char **text_of(struct wp_warm_rank *r, int i)
{
    char **all[TEXTS] = {&r->id, &r->url, &r->events, &r->replay, &r->model};

    return all[i];
}

int wp_warm_put(struct wp_buf *out, const struct wp_warm_rank *r)
{
    struct head h = {.next = r->mark.next,
                     .last_ts = r->mark.last_ts,
                     .rank = r->rank,
                     .ranks = r->ranks,
                     .holder = r->holder,
                     .timed = r->mark.timed,
                     .whole = r->mark.whole,
                     .ingest = (uint32_t)r->ingest.n};
    const char *const text[TEXTS] = {r->id, r->url, r->events, r->replay, r->model};
    int rc;

    if (r->ingest.n > INGEST_MAX)
        return WP_ETOOBIG;
    for (int i = 0; i < TEXTS; i++) {
        h.text[i] = (uint32_t)strlen(text[i]);
        if (h.text[i] > TEXT_MAX)
            return WP_ETOOBIG;
    }
    rc = wp_buf_add(out, &h, sizeof h);
    for (int i = 0; rc == 0 && i < TEXTS; i++)
        rc = wp_buf_add(out, text[i], h.text[i]);
    return rc ? rc : wp_buf_add(out, r->ingest.p, r->ingest.n);
}

void wp_warm_write(struct wp_frames_out *out, struct wp_str records)
{
    wp_frames_section(out, SECTION);
    wp_frames_put64(out, records.n);
    wp_frames_put(out, records.p, records.n);
}

void wp_warm_free(struct wp_warm_rank *r)
{
    if (!r)
        return;
    wp_list_del(&r->link);
    for (int i = 0; i < TEXTS; i++)
        wp_free(*text_of(r, i));
    wp_buf_fini(&r->ingest);
    wp_free(r);
}

/* -- reading -- */

static int take_bytes(struct wp_frames_in *in, struct wp_warm_rank *r, const struct head *h)
{
    char *bytes = h->ingest <= wp_frames_ahead(in) ? wp_malloc(h->ingest + 1u) : NULL;
    int rc = bytes && wp_frames_get(in, bytes, h->ingest) ? 0 : WP_EINVAL;

    rc = rc ? rc : wp_buf_add(&r->ingest, bytes, h->ingest);
    wp_free(bytes);
    return rc;
}

static int take_record(struct wp_frames_in *in, struct wp_list *records, uint64_t *left)
{
    struct wp_warm_rank *r = wp_calloc(1, sizeof *r);
    struct head h;
    uint64_t n = sizeof h;

    if (!r)
        return WP_ENOMEM;
    wp_list_push(records, &r->link);
    if (*left < sizeof h || !wp_frames_get(in, &h, sizeof h) || h.ingest > INGEST_MAX || h.rank >= h.ranks)
        return WP_EINVAL;
    r->rank = h.rank;
    r->ranks = h.ranks;
    r->holder = h.holder;
    r->mark = (struct wp_sub_mark){h.next, h.last_ts, h.timed, h.whole};
    for (int i = 0; i < TEXTS; i++) {
        char **text = text_of(r, i);

        *text = h.text[i] <= TEXT_MAX ? wp_calloc(h.text[i] + 1u, 1) : NULL;
        if (!*text || !wp_frames_get(in, *text, h.text[i]))
            return WP_EINVAL;
        n += h.text[i];
    }
    n += h.ingest;
    if (n > *left)
        return WP_EINVAL;
    *left -= n;
    return take_bytes(in, r, &h);
}

/* Two ranks cannot be one holder, and each is one that the index has. */
static bool makes_sense(const struct wp_index *ix, const struct wp_list *records)
{
    WP_LIST_EACH((struct wp_list *)records, at)
    {
        const struct wp_warm_rank *r = WP_CONTAINER(at, struct wp_warm_rank, link);

        if (!wp_index_live(ix, r->holder))
            return false;
        for (const struct wp_list *other = at->next; other != records; other = other->next)
            if (WP_CONTAINER(other, struct wp_warm_rank, link)->holder == r->holder)
                return false;
    }
    return true;
}

static int read_records(struct wp_frames_in *in, const struct wp_index *ix, struct wp_list *records, struct wp_err *err)
{
    uint64_t left = 0;
    int rc = wp_frames_enter(in, SECTION, "workers", err);

    if (rc < 0)
        return rc;
    if (!wp_frames_get(in, &left, sizeof left))
        return wp_frames_refuse(in, "it ends too soon", err);
    while (rc == 0 && left)
        rc = take_record(in, records, &left);
    if (rc == WP_ENOMEM)
        return wp_fail(err, rc, "out of memory");
    if (rc < 0 || !makes_sense(ix, records))
        return wp_frames_refuse(in, "a worker is none", err);
    return wp_frames_close(in, err);
}

int wp_warm_parse(const void *p, size_t n, const struct wp_index_conf *conf, struct wp_index **ix, struct wp_list *records, struct wp_err *err)
{
    struct wp_frames_in in;
    int rc = wp_frames_open(&in, wp_warm_magic, WP_WARM_VERSION, p, n, err);

    rc = rc ? rc : wp_index_load(ix, conf, &in, err);
    if (rc < 0)
        return rc;
    rc = read_records(&in, *ix, records, err);
    if (rc < 0) {
        WP_LIST_EACH(records, at)
        wp_warm_free(WP_CONTAINER(at, struct wp_warm_rank, link));
        wp_index_destroy(*ix);
        *ix = NULL;
    }
    return rc;
}

int wp_warm_read(const char *file, const struct wp_index_conf *conf, struct wp_index **ix, struct wp_list *records, struct wp_err *err)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
    struct stat st;
    void *p;

    if (fd < 0)
        return wp_fail(err, -errno, "%s: %s", file, wp_strerror(-errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0) {
        close(fd);
        return wp_fail(err, WP_EINVAL, "%s: empty, or not a file", file);
    }
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    rc = -errno;
    close(fd);
    if (p == MAP_FAILED)
        return wp_fail(err, rc, "%s: %s", file, wp_strerror(rc));
    rc = wp_warm_parse(p, (size_t)st.st_size, conf, ix, records, err);
    munmap(p, (size_t)st.st_size);
    return rc < 0 ? wp_wrap(err, "%s", file) : 0;
}
