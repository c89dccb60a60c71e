/* SPDX-License-Identifier: Apache-2.0 */
/* How the block size is learnt, and with it the space that blocks are in. */
#include "adapters/events/ingest_impl.h"

enum {
    PAGE_TINY = 2,
    PAGE_GATHERED = 16
}; /* pages up to the one are gathered into the other, unless a size is told */

bool wp_ingest_make_space(struct wp_ingest *p, bool bigram)
{
    struct wp_err err = WP_ERR_INIT;

    if (!p->has_space[bigram] &&
        wp_index_space(p->conf.index, p->conf.model, p->block_size, p->conf.domain,
                       bigram ? WP_SPACE_BIGRAM : WP_SPACE_TOKENS, &p->space[bigram], &err) < 0)
        return false;
    p->has_space[bigram] = true;
    p->bigram = bigram;
    return true;
}

/* A main group's store in GPU memory tells the block size. */
void wp_ingest_learn_size(struct wp_ingest *p, const struct wp_event *e)
{
    if (e->kind != WP_EVENT_STORED || e->use != WP_EVENT_INDEX || e->tier != WP_EVENT_GPU ||
        e->block_size > BLOCK_SIZE_MAX)
        return;
    if (p->presumed && p->block_size != e->block_size)
        wp_ingest_gone(p);
    p->presumed = false;
    if (!p->block_size)
        p->block_size = e->block_size <= PAGE_TINY ? PAGE_GATHERED : e->block_size;
    wp_ingest_make_space(p, e->bigram);
}

/* No main group has spoken yet: one that restricts has blocks of the same size, as a rule. */
void wp_ingest_presume_size(struct wp_ingest *p, const struct wp_event *e)
{
    if (p->has_space[p->bigram] || e->tier != WP_EVENT_GPU || !e->n_tokens || !e->block_size ||
        e->block_size > BLOCK_SIZE_MAX)
        return;
    p->presumed = !p->block_size;
    if (!p->block_size)
        p->block_size = e->block_size;
    wp_ingest_make_space(p, e->bigram);
}

/* Groups that restrict may speak first, and what they say needs the size and the space. */
void wp_ingest_look_ahead(struct wp_ingest *p, struct wp_event_batch b)
{
    struct wp_event e;

    while (!p->has_space[p->bigram]) {
        int rc = wp_event_next(&b, &p->scratch, &e);

        if (rc == 0)
            return;
        if (rc > 0)
            wp_ingest_learn_size(p, &e);
        else
            wp_event_pass(&b);
    }
}
