/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a saved index.  The first byte says how: 0: the rest is the file itself.  Else it is
 * sections, each a byte of kind, three of length and its bytes, of which a file with right
 * checksums is made: so what the sections say is reached.  What is accepted must be whole, go on
 * being whole while events come, be saved and read back the same, and leave nothing behind.
 */
#include "index/save.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdlib.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static const char magic[8] = "fuzzing\n";
static struct wp_frames_out out;

static int put(void *ctx, const void *p, size_t n)
{
    return wp_buf_add(ctx, p, n);
}

static struct wp_buf frame(const uint8_t *data, size_t size)
{
    struct wp_buf b = {0};

    wp_frames_start(&out, magic, 1, put, &b);
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

static struct wp_index *load(const void *p, size_t n)
{
    const struct wp_index_conf conf = {.cap_bytes = 64 << 20};
    struct wp_err err = WP_ERR_INIT;
    struct wp_frames_in in;
    struct wp_index *ix = NULL;

    if (wp_frames_open(&in, magic, 1, p, n, &err) < 0 || wp_index_load(&ix, &conf, &in, &err) < 0) {
        MUST(err.text[0]);
        return NULL;
    }
    return ix;
}

static void whole(const struct wp_index *ix)
{
    struct wp_err err = WP_ERR_INIT;

    MUST(wp_index_verify(ix, &err));
}

static void same(const struct wp_index *ix)
{
    struct wp_index_stats s[2];
    struct wp_buf b = {0};
    struct wp_index *again;

    wp_frames_start(&out, magic, 1, put, &b);
    wp_index_save(ix, &out);
    MUST(wp_frames_finish(&out) == 0);
    again = load(b.p, b.n);
    MUST(again);
    whole(again);
    wp_index_stats(ix, &s[0]);
    wp_index_stats(again, &s[1]);
    MUST(s[0].blocks == s[1].blocks && s[0].locations == s[1].locations &&
         s[0].doubtful == s[1].doubtful);
    wp_index_destroy(again);
    wp_buf_fini(&b);
}

/* A store and a removal by every holder: names that the file may have had. */
static void go_on(struct wp_index *ix)
{
    static const uint64_t hash[4] = {1, 2, 3, 4};
    size_t n = wp_index_holders(ix);

    for (uint32_t h = 0; h < n && h < 64; h++) {
        struct wp_kv_event ev = {
            .holder = h, .main_group = true, .n = 4, .engine = hash, .local = hash};

        wp_index_apply(ix, &ev, NULL);
        ev.kind = WP_KV_REMOVED;
        wp_index_apply(ix, &ev, NULL);
        wp_index_doubt(ix, h);
    }
    whole(ix);
    for (uint32_t h = 0; h < n; h++)
        wp_index_drop(ix, h);
    whole(ix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wp_index_stats s;
    struct wp_buf b = {0};
    struct wp_index *ix;

    if (!size)
        return 0;
    if (data[0])
        b = frame(data + 1, size - 1);
    ix = data[0] ? load(b.p, b.n) : load(data + 1, size - 1);
    wp_buf_fini(&b);
    if (!ix)
        return 0;
    whole(ix);
    same(ix);
    go_on(ix);
    wp_index_stats(ix, &s);
    MUST(s.blocks == 0 && s.locations == 0);
    wp_index_destroy(ix);
    return 0;
}
