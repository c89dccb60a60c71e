/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any payloads of one publisher, one after another: the index stays whole and within its cap,
 * another's blocks stay, and after a clear nothing is left of this one.  The first byte is the
 * configuration; then two bytes of length and a payload each.
 */
#include "adapters/events/ingest.h"

#include "base/mem.h"

#include <stdlib.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static void other(struct wp_index *ix, uint32_t holder, uint32_t space)
{
    uint64_t hash[2] = {1, 2};
    struct wp_kv_event ev = {.holder = holder,
                             .space = space,
                             .main_group = true,
                             .n = 2,
                             .engine = hash,
                             .local = hash};

    wp_index_apply(ix, &ev, NULL);
}

static void feed(struct wp_ingest *p, const uint8_t *data, size_t size)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;

    for (uint64_t now_us = 0; size >= 2; now_us += 10000000) {
        size_t n = (size_t)data[0] << 8 | data[1];
        char *own;

        n = n < size - 2 ? n : size - 2;
        own = wp_malloc(n ? n : 1); /* exact, so that a sanitizer sees one byte too far */
        MUST(own);
        memcpy(own, data + 2, n);
        if (wp_event_open(&b, (struct wp_str){own, n}, &err) == 0)
            wp_ingest_batch(p, &b, now_us);
        else
            wp_ingest_doubt(p);
        wp_free(own);
        data += 2 + n;
        size -= 2 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t sizes[] = {0, 1, 4, 16};
    struct wp_index_conf conf = {.cap_bytes = 4 << 20, .floating_max = 64};
    struct wp_ingest_conf pc = {.model = WP_STR("m"),
                                .domain = WP_STR(""),
                                .parts_max = 100,
                                .parked_max = 10,
                                .salted_max = 10};
    uint64_t tiers[WP_TIER_MAX], doubtful, local[2] = {1, 2};
    struct wp_err err = WP_ERR_INIT;
    struct wp_overlap o;
    struct wp_ingest *p;
    uint32_t holder, space;

    if (!size)
        return 0;
    MUST(wp_index_create(&pc.index, &conf, &err) == 0 && wp_overlap_init(&o, 8) == 0);
    MUST(wp_index_holder(pc.index, WP_HOLDER_RANK, WP_NO_HOLDER, &holder, &err) == 0);
    MUST(wp_index_holder(pc.index, WP_HOLDER_RANK, WP_NO_HOLDER, &pc.holder, &err) == 0);
    MUST(wp_index_space(pc.index, pc.model, 16, pc.domain, WP_SPACE_TOKENS, &space, &err) == 0);
    other(pc.index, holder, space);
    pc.block_size = sizes[data[0] % 4];
    pc.zero_is_root = data[0] & 4;
    MUST(wp_ingest_create(&p, &pc, &err) == 0);
    feed(p, data + 1, size - 1);
    MUST(wp_index_verify(pc.index, &err));
    wp_index_overlap(pc.index, space, local, 2, &o);
    MUST(wp_overlap_of(&o, holder) && wp_overlap_of(&o, holder)->blocks == 2);
    wp_ingest_gone(p);
    wp_index_holder_stats(pc.index, pc.holder, tiers, &doubtful);
    for (int t = 0; t < WP_TIER_MAX; t++)
        MUST(!tiers[t]);
    MUST(wp_index_verify(pc.index, &err));
    wp_ingest_destroy(p);
    wp_overlap_fini(&o);
    wp_index_destroy(pc.index);
    return 0;
}
