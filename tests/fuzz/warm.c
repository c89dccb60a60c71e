/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a snapshot's file: an index and who its holders are.  The first byte says how: 0:
 * the rest is the file itself.  Else it is sections, each a byte of kind, three of length and its
 * bytes, of which a file with right checksums is made.  Of what is accepted each record is written
 * and read the same, and an ingest resumes it; nothing is left behind.
 */
#include "router/warm.h"

#include "adapters/events/ingest.h"
#include "base/mem.h"
#include "index/save.h"

#include <stdlib.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static struct wp_frames_out out;

static int put(void *ctx, const void *p, size_t n)
{
    return wp_buf_add(ctx, p, n);
}

static struct wp_buf frame(const uint8_t *data, size_t size)
{
    struct wp_buf b = {0};

    wp_frames_start(&out, wp_warm_magic, WP_WARM_VERSION, put, &b);
    while (size >= 4) {
        size_t n = (size_t)data[1] << 16 | (size_t)data[2] << 8 | data[3];

        n = n < size - 4 ? n : size - 4;
        wp_frames_section(&out, data[0] ? data[0] : 1);
        wp_frames_put(&out, data + 4, n);
        data += 4 + n;
        size -= 4 + n;
    }
    MUST(wp_frames_finish(&out) == 0);
    return b;
}

static void drop(struct wp_list *records)
{
    WP_LIST_EACH(records, at)
    wp_warm_free(WP_CONTAINER(at, struct wp_warm_rank, link));
}

static struct wp_index *read_it(const void *p, size_t n, struct wp_list *records)
{
    const struct wp_index_conf conf = {.cap_bytes = 64 << 20};
    struct wp_err err = WP_ERR_INIT;
    struct wp_index *ix = NULL;

    wp_list_init(records);
    if (wp_warm_parse(p, n, &conf, &ix, records, &err) == 0)
        return ix;
    MUST(err.text[0] && !ix && wp_list_empty(records));
    return NULL;
}

static void same(const struct wp_index *ix, const struct wp_list *records)
{
    struct wp_buf file = {0}, section = {0}, section_again = {0};
    struct wp_list again;
    struct wp_index *other;

    WP_LIST_EACH((struct wp_list *)records, at)
    MUST(wp_warm_put(&section, WP_CONTAINER(at, struct wp_warm_rank, link)) == 0);
    wp_frames_start(&out, wp_warm_magic, WP_WARM_VERSION, put, &file);
    wp_index_save(ix, &out);
    wp_warm_write(&out, wp_buf_str(&section));
    MUST(wp_frames_finish(&out) == 0);
    other = read_it(file.p, file.n, &again);
    MUST(other);
    WP_LIST_EACH(&again, at)
    MUST(wp_warm_put(&section_again, WP_CONTAINER(at, struct wp_warm_rank, link)) == 0);
    MUST(section.n == section_again.n &&
         (!section.n || memcmp(section.p, section_again.p, section.n) == 0));
    drop(&again);
    wp_index_destroy(other);
    wp_buf_fini(&file);
    wp_buf_fini(&section);
    wp_buf_fini(&section_again);
}

static void resume(struct wp_index *ix, const struct wp_warm_rank *r)
{
    struct wp_ingest_conf pc = {
        .index = ix, .holder = r->holder, .model = wp_str_of(r->model), .domain = WP_STR("")};
    uint64_t tiers[WP_TIER_MAX], doubtful;
    struct wp_err err = WP_ERR_INIT;
    struct wp_ingest *p;

    MUST(wp_ingest_create(&p, &pc, &err) == 0);
    wp_ingest_resume(p, wp_buf_str(&r->ingest));
    MUST(wp_index_verify(ix, &err));
    wp_ingest_gone(p);
    wp_ingest_destroy(p);
    wp_index_holder_stats(ix, r->holder, tiers, &doubtful);
    for (int t = 0; t < WP_TIER_MAX; t++)
        MUST(!tiers[t]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_buf b = {0};
    struct wp_list records;
    struct wp_index *ix;

    if (!size)
        return 0;
    if (data[0])
        b = frame(data + 1, size - 1);
    ix = data[0] ? read_it(b.p, b.n, &records) : read_it(data + 1, size - 1, &records);
    wp_buf_fini(&b);
    if (!ix)
        return 0;
    same(ix, &records);
    WP_LIST_EACH(&records, at)
    resume(ix, WP_CONTAINER(at, struct wp_warm_rank, link));
    MUST(wp_index_verify(ix, &err));
    drop(&records);
    wp_index_destroy(ix);
    return 0;
}
