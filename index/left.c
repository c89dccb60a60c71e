/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever watches is told of blocks that leave a holder: a sample, found by their places alone. */
#include "index/inside.h"

enum { SAMPLE_TOKENS = 512 };

void wp_index_watch(struct wp_index *ix, wp_index_left_fn fn, void *arg)
{
    pthread_mutex_lock(&ix->lock);
    ix->on_left = fn;
    ix->on_left_arg = arg;
    pthread_mutex_unlock(&ix->lock);
}

uint32_t wp_index_stride(uint32_t block_size)
{
    uint32_t stride = 1;

    while (block_size && stride < WP_SEGMENT && stride * 2 * (uint64_t)block_size <= SAMPLE_TOKENS)
        stride *= 2;
    return stride;
}

void wp_left_run(struct wp_index *ix, uint32_t run, wp_u128 mask)
{
    const struct wp_run *r = wp_run_at(ix, run);
    const struct wp_run_own *own = wp_own_at(ix, run);
    uint32_t stride = wp_index_stride(ix->spaces[own->space].block_size);
    uint32_t before = own->segment * WP_SEGMENT + r->first; /* blocks of the prompt */
    unsigned len = wp_run_len(r);

    for (unsigned off = stride - 1 - before % stride; off < len; off += stride) {
        struct wp_index_left left = {.space = own->space, .at = before + off};

        if (!(mask >> off & 1))
            continue;
        left.local = wp_run_local(ix, r, off);
        left.last = !(wp_run_cover(ix, run) >> off & 1);
        ix->on_left(ix->on_left_arg, &left);
    }
}
