/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what an ingest took for granted, of a holder whose blocks the index has.  The first
 * byte is the configuration.  What is refused leaves nothing of the holder's; what is accepted is
 * saved the same, goes on with events, and goes whole.  Another's blocks stay, whatever it was.
 */
#include "adapters/events/ingest.h"

#include "base/mem.h"

#include <stdlib.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static const uint64_t hash[4] = {1, 2, 3, 4};

static void fill(struct wp_index *ix, uint32_t holder, uint32_t space)
{
    struct wp_kv_event ev = {.holder = holder,
                             .space = space,
                             .main_group = true,
                             .n = 4,
                             .engine = hash,
                             .local = hash};

    wp_index_apply(ix, &ev, NULL);
}

static void window(struct wp_index *ix, uint32_t holder, uint32_t space)
{
    struct wp_kv_event ev = {
        .holder = holder, .space = space, .group = 1, .n = 2, .engine = hash + 2};

    MUST(wp_index_window(ix, holder, 1, 0, 2) == 0);
    wp_index_apply(ix, &ev, NULL);
}

/* A batch of each kind of event, of groups that the bytes may have named; hashes are those that the
 * index has. */
static void go_on(struct wp_ingest *p)
{
    /* clang-format off */
    static const char batch[] = "\x92\xcb\0\0\0\0\0\0\0\0\x95"
                                "\x94\xac" "BlockRemoved" "\x91\x04\xa3" "GPU" "\x01"
                                "\x94\xac" "BlockRemoved" "\x91\x03\xa3" "GPU" "\0"
                                "\x97\xab" "BlockStored" "\x91\x04\x03\x94\x01\x02\x03\x04\x04\xc0\xa3" "GPU"
                                "\x97\xab" "BlockStored" "\x91\x04\xc0\xc0\0\xc0\xa3" "CPU"
                                "\x92\xac" "BlockRemoved" "\x91\x01";
    /* clang-format on */
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;

    MUST(wp_event_open(&b, (struct wp_str){batch, sizeof batch - 1}, &err) == 0);
    wp_ingest_batch(p, &b, 1000000);
    wp_ingest_doubt(p);
    wp_ingest_batch(p, &b, 2000000);
}

static void accepted(struct wp_ingest *p, const struct wp_ingest_conf *pc)
{
    struct wp_buf b[2] = {{0}, {0}};
    struct wp_err err = WP_ERR_INIT;
    struct wp_ingest *again;

    MUST(wp_ingest_save(p, &b[0]) == 0);
    MUST(wp_ingest_create(&again, pc, &err) == 0);
    MUST(wp_ingest_resume(again, wp_buf_str(&b[0])) == 0);
    MUST(wp_ingest_save(again, &b[1]) == 0);
    MUST(b[0].n == b[1].n && wp_ingest_window(p) == wp_ingest_window(again));
    wp_ingest_destroy(again);
    wp_buf_fini(&b[0]);
    wp_buf_fini(&b[1]);
    go_on(p);
    MUST(wp_index_verify(pc->index, &err));
    wp_ingest_gone(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t sizes[] = {0, 4, 16, 65536};
    struct wp_index_conf conf = {.cap_bytes = 4 << 20, .floating_max = 64};
    struct wp_ingest_conf pc = {.model = WP_STR("m"),
                                .domain = WP_STR(""),
                                .parts_max = 100,
                                .parked_max = 10,
                                .salted_max = 10};
    uint64_t tiers[WP_TIER_MAX], doubtful;
    struct wp_err err = WP_ERR_INIT;
    struct wp_overlap o;
    struct wp_ingest *p;
    uint32_t other, space;
    char *own;

    if (!size)
        return 0;
    MUST(wp_index_create(&pc.index, &conf, &err) == 0 && wp_overlap_init(&o, 8) == 0);
    MUST(wp_index_holder(pc.index, WP_HOLDER_RANK, WP_NO_HOLDER, &other, &err) == 0);
    MUST(wp_index_holder(pc.index, WP_HOLDER_RANK, WP_NO_HOLDER, &pc.holder, &err) == 0);
    MUST(wp_index_space(pc.index, pc.model, 4, pc.domain, WP_SPACE_TOKENS, &space, &err) == 0);
    fill(pc.index, other, space);
    fill(pc.index, pc.holder, space);
    if (data[0] & 4)
        window(pc.index, pc.holder, space);
    pc.block_size = sizes[data[0] % 4];
    own = wp_malloc(size); /* exact, so that a sanitizer sees one byte too far */
    MUST(own);
    memcpy(own, data + 1, size - 1);
    MUST(wp_ingest_create(&p, &pc, &err) == 0);
    if (wp_ingest_resume(p, (struct wp_str){own, size - 1}) == 0)
        accepted(p, &pc);
    wp_free(own);
    wp_index_holder_stats(pc.index, pc.holder, tiers, &doubtful);
    for (int t = 0; t < WP_TIER_MAX; t++)
        MUST(!tiers[t]);
    wp_index_overlap(pc.index, space, hash, 4, &o);
    MUST(wp_overlap_of(&o, other) && wp_overlap_of(&o, other)->blocks == 4);
    MUST(wp_index_verify(pc.index, &err));
    wp_ingest_destroy(p);
    wp_overlap_fini(&o);
    wp_index_destroy(pc.index);
    return 0;
}
