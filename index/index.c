/* SPDX-License-Identifier: Apache-2.0 */
/* The index's frame: spaces, holders, figures.  What is inside is told in index/inside.h. */
#include "index/inside.h"

#include "base/mem.h"

#include <string.h>

enum { SPACES_MAX = 65535 };

static pthread_mutex_t *lock_of(const struct wp_index *ix)
{
    return (pthread_mutex_t *)&ix->lock; /* reading changes nothing but the lock */
}

static void give_back(void *ctx, uint32_t kind, uint64_t ref)
{
    struct wp_index *ix = ctx;

    if (kind == WP_RETIRED_RUN)
        wp_run_free(ix, (uint32_t)ref);
    else if (kind == WP_RETIRED_ROSTER)
        wp_roster_free(ix, ref);
    else
        wp_free((void *)(uintptr_t)ref);
}

static void slabs_init(struct wp_index *ix)
{
    wp_slab_init(&ix->runs, sizeof(struct wp_run), 10, WP_RUNS_MAX);
    wp_slab_init(&ix->owns, sizeof(struct wp_run_own), 10, WP_RUNS_MAX);
    wp_slab_init(&ix->chunks, WP_CHUNK * sizeof(uint64_t), 9, UINT32_MAX);
    for (uint32_t c = 0; c < WP_ROSTER_CLASSES; c++)
        wp_slab_init(&ix->rosters[c], 32u << c, c < 9 ? 9 - c : 0, UINT32_MAX);
}

int wp_index_create(struct wp_index **out, const struct wp_index_conf *conf, struct wp_err *err)
{
    struct wp_index *ix = wp_aligned_alloc(64, (sizeof *ix + 63) / 64 * 64);
    int rc;

    if (!ix)
        return wp_fail(err, WP_ENOMEM, "index: out of memory");
    memset(ix, 0, sizeof *ix);
    rc = wp_epoch_init(&ix->epoch, give_back, ix);
    slabs_init(ix);
    ix->conf = *conf;
    ix->budget = (struct wp_budget){
        sizeof *ix, conf->cap_bytes - conf->cap_bytes / 16}; /* removals may go beyond */
    wp_prefix_init(&ix->prefix, conf->secret);
    ix->names.size = sizeof(struct wp_name);
    ix->details.size = sizeof(struct wp_detail);
    wp_floats_init(&ix->floats);
    ix->words = 1;
    if (rc == 0)
        rc = wp_census_make(ix);
    if (rc == 0)
        rc = -pthread_mutex_init(&ix->lock, NULL);
    if (rc < 0) {
        wp_free(atomic_load(&ix->census));
        wp_epoch_fini(&ix->epoch);
        wp_free(ix);
        return wp_fail(err, rc, "index: %s", wp_strerror(rc));
    }
    *out = ix;
    return 0;
}

static void holder_fini(struct wp_index *ix, struct wp_holder *h)
{
    for (uint32_t i = 0; i < h->shelves; i++)
        wp_book_fini(&h->shelf[i].book, &ix->budget);
    wp_budget_free(&ix->budget, h->shelf, h->shelves_cap, sizeof *h->shelf);
    h->shelf = NULL;
    h->shelves = h->shelves_cap = 0;
}

void wp_index_destroy(struct wp_index *ix)
{
    if (!ix)
        return;
    for (uint32_t i = 0; i < ix->n_spaces; i++) {
        wp_free(ix->spaces[i].model);
        wp_free(ix->spaces[i].domain);
    }
    wp_free(ix->spaces);
    for (uint32_t i = 0; i < ix->n_holders; i++)
        holder_fini(ix, &ix->holders[i]);
    wp_free(ix->holders);
    wp_epoch_fini(&ix->epoch);
    wp_free(atomic_load(&ix->census));
    wp_heads_fini(&ix->heads[0], &ix->budget);
    wp_heads_fini(&ix->heads[1], &ix->budget);
    wp_slab_fini(&ix->runs, &ix->budget);
    wp_slab_fini(&ix->owns, &ix->budget);
    wp_slab_fini(&ix->chunks, &ix->budget);
    for (int c = 0; c < WP_ROSTER_CLASSES; c++)
        wp_slab_fini(&ix->rosters[c], &ix->budget);
    wp_floats_fini(&ix->floats, &ix->budget);
    wp_table_fini(&ix->detailed, &ix->budget);
    wp_pool_fini(&ix->names, &ix->budget);
    wp_pool_fini(&ix->details, &ix->budget);
    pthread_mutex_destroy(&ix->lock);
    wp_free(ix);
}

/* Room for one more item of the array.  Errors: WP_ENOMEM, also over the cap. */
static int array_grow(struct wp_budget *b, void *array, uint32_t n, uint32_t *cap, size_t size)
{
    uint32_t wider = *cap ? *cap * 2 : 8;
    void *old, *p;
    int rc;

    if (n < *cap)
        return 0;
    p = wp_budget_alloc(b, wider, size, &rc);
    if (!p)
        return WP_ENOMEM;
    memcpy(&old, array, sizeof old);
    if (n)
        memcpy(p, old, n * size);
    wp_budget_free(b, old, *cap, size);
    memcpy(array, &p, sizeof p);
    *cap = wider;
    return 0;
}

static bool same(const char *p, size_t n, struct wp_str s)
{
    return wp_str_eq((struct wp_str){p, n}, s);
}

static int add_space(struct wp_index *ix, struct wp_str model, uint32_t block_size,
                     struct wp_str domain, enum wp_space_kind kind)
{
    struct wp_space sp = {
        .model_n = model.n, .domain_n = domain.n, .block_size = block_size, .kind = kind};

    if (ix->n_spaces == SPACES_MAX)
        return WP_ETOOBIG;
    if (array_grow(&ix->budget, &ix->spaces, ix->n_spaces, &ix->spaces_cap, sizeof sp) < 0)
        return WP_ENOMEM;
    sp.model = wp_strndup(model.n ? model.p : "", model.n);
    sp.domain = wp_strndup(domain.n ? domain.p : "", domain.n);
    sp.root = wp_prefix_root(&ix->prefix, ix->n_spaces);
    if (sp.model && sp.domain) {
        ix->spaces[ix->n_spaces++] = sp;
        if (wp_census_make(ix) == 0)
            return 0;
        ix->n_spaces--;
    }
    wp_free(sp.model);
    wp_free(sp.domain);
    return WP_ENOMEM;
}

int wp_index_space(struct wp_index *ix, struct wp_str model, uint32_t block_size,
                   struct wp_str domain, enum wp_space_kind kind, uint32_t *space,
                   struct wp_err *err)
{
    uint32_t i = 0;
    int rc = 0;

    pthread_mutex_lock(&ix->lock);
    for (; i < ix->n_spaces; i++) {
        const struct wp_space *sp = &ix->spaces[i];

        if (sp->block_size == block_size && sp->kind == kind &&
            same(sp->model, sp->model_n, model) && same(sp->domain, sp->domain_n, domain))
            break;
    }
    if (i == ix->n_spaces)
        rc = add_space(ix, model, block_size, domain, kind);
    pthread_mutex_unlock(&ix->lock);
    if (rc < 0)
        return wp_fail(err, rc, "index: space of model " WP_STR_FMT ": %s", WP_STR_ARG(model),
                       rc == WP_ENOMEM ? "out of memory" : "there are 65535 already");
    *space = i;
    return 0;
}

static void leave_node(struct wp_index *ix, uint32_t rank)
{
    uint32_t node = ix->holders[rank].node;
    uint32_t *at;

    if (node == WP_NO_HOLDER)
        return;
    for (at = &ix->holders[node].first_rank; *at != rank;)
        at = &ix->holders[*at].next_rank;
    *at = ix->holders[rank].next_rank;
    ix->holders[rank].node = ix->holders[rank].next_rank = WP_NO_HOLDER;
}

/* Its number is free. */
static void end_holder(struct wp_index *ix, uint32_t holder)
{
    leave_node(ix, holder);
    while (ix->holders[holder].first_rank != WP_NO_HOLDER)
        leave_node(ix, ix->holders[holder].first_rank);
    ix->holders[holder].live = false;
    holder_fini(ix, &ix->holders[holder]);
    while (ix->n_holders && !ix->holders[ix->n_holders - 1].live)
        ix->n_holders--;
}

static int add_holder(struct wp_index *ix, enum wp_holder_kind kind, uint32_t node,
                      uint32_t *holder)
{
    uint32_t i = 0;
    struct wp_holder *h;

    while (i < ix->n_holders && ix->holders[i].live)
        i++;
    if (i == WP_HOLDERS_MAX)
        return WP_ETOOBIG;
    if (array_grow(&ix->budget, &ix->holders, i, &ix->holders_cap, sizeof *h) < 0)
        return WP_ENOMEM;
    h = &ix->holders[i];
    *h = (struct wp_holder){.live = true,
                            .kind = kind,
                            .node = node,
                            .next_rank = WP_NO_HOLDER,
                            .first_rank = WP_NO_HOLDER};
    if (node != WP_NO_HOLDER) {
        h->next_rank = ix->holders[node].first_rank;
        ix->holders[node].first_rank = i;
    }
    if (i == ix->n_holders)
        ix->n_holders++;
    if (wp_census_make(ix) < 0) {
        end_holder(ix, i);
        return WP_ENOMEM;
    }
    *holder = i;
    return 0;
}

int wp_index_holder(struct wp_index *ix, enum wp_holder_kind kind, uint32_t node, uint32_t *holder,
                    struct wp_err *err)
{
    int rc;

    pthread_mutex_lock(&ix->lock);
    if (node != WP_NO_HOLDER &&
        (kind != WP_HOLDER_RANK || node >= ix->n_holders || !ix->holders[node].live ||
         ix->holders[node].kind != WP_HOLDER_NODE))
        rc = WP_EINVAL;
    else
        rc = add_holder(ix, kind, node, holder);
    pthread_mutex_unlock(&ix->lock);
    if (rc < 0)
        return wp_fail(err, rc, "index: new holder: %s",
                       rc == WP_ENOMEM    ? "out of memory"
                       : rc == WP_ETOOBIG ? "there are 65535 already"
                                          : "its node is not one");
    return 0;
}

static bool live(const struct wp_index *ix, uint32_t holder)
{
    return holder < ix->n_holders && ix->holders[holder].live;
}

static void expect(struct wp_index *ix, struct wp_holder *h, size_t blocks)
{
    if (h->expect == blocks)
        return;
    h->expect = blocks;
    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window < 0 && h->shelf[i].book.at) {
            (void)wp_book_expect(&h->shelf[i].book, ix->prefix.secret, blocks, &ix->budget);
            return;
        }
}

void wp_index_expect(struct wp_index *ix, uint32_t holder, size_t blocks)
{
    pthread_mutex_lock(&ix->lock);
    if (live(ix, holder))
        expect(ix, &ix->holders[holder], blocks);
    pthread_mutex_unlock(&ix->lock);
}

void wp_index_drop(struct wp_index *ix, uint32_t holder)
{
    pthread_mutex_lock(&ix->lock);
    if (live(ix, holder)) {
        ix->holders[holder].live = false; /* readers: gone at once; then it is swept */
        wp_census_make(ix);
        wp_hold_clear(ix, holder);
        end_holder(ix, holder);
        wp_census_make(ix);
        wp_epoch_reclaim(&ix->epoch);
    }
    pthread_mutex_unlock(&ix->lock);
}

void wp_index_clear(struct wp_index *ix, uint32_t holder)
{
    pthread_mutex_lock(&ix->lock);
    if (live(ix, holder)) {
        wp_hold_clear(ix, holder);
        wp_epoch_reclaim(&ix->epoch);
    }
    pthread_mutex_unlock(&ix->lock);
}

void wp_index_doubt(struct wp_index *ix, uint32_t holder)
{
    pthread_mutex_lock(&ix->lock);
    if (live(ix, holder)) {
        wp_hold_doubt(ix, holder);
        wp_epoch_reclaim(&ix->epoch);
    }
    pthread_mutex_unlock(&ix->lock);
}

size_t wp_index_holders(const struct wp_index *ix)
{
    size_t n;

    pthread_mutex_lock(lock_of(ix));
    n = ix->n_holders;
    pthread_mutex_unlock(lock_of(ix));
    return n;
}

void wp_index_stats(const struct wp_index *ix, struct wp_index_stats *s)
{
    pthread_mutex_lock(lock_of(ix));
    *s = (struct wp_index_stats){
        .blocks = ix->blocks,
        .locations = ix->locations,
        .floating = ix->floats.blocks,
        .doubtful = ix->locations - ix->sure,
        .bytes = ix->budget.bytes,
        .cap_bytes = ix->conf.cap_bytes,
        .evicted = ix->evicted,
    };
    pthread_mutex_unlock(lock_of(ix));
}

void wp_index_holder_stats(const struct wp_index *ix, uint32_t holder,
                           uint64_t tier_blocks[WP_TIER_MAX], uint64_t *doubtful)
{
    memset(tier_blocks, 0, WP_TIER_MAX * sizeof tier_blocks[0]);
    *doubtful = 0;
    pthread_mutex_lock(lock_of(ix));
    if (live(ix, holder)) {
        memcpy(tier_blocks, ix->holders[holder].tier, sizeof ix->holders[holder].tier);
        for (int t = 0; t < WP_TIER_MAX; t++)
            *doubtful += tier_blocks[t];
        *doubtful -= ix->holders[holder].sure;
    }
    pthread_mutex_unlock(lock_of(ix));
}

uint64_t wp_index_holder_floating(const struct wp_index *ix, uint32_t holder)
{
    uint64_t n;

    pthread_mutex_lock(lock_of(ix));
    n = live(ix, holder) ? ix->holders[holder].floating : 0;
    pthread_mutex_unlock(lock_of(ix));
    return n;
}

void wp_index_holder_size(const struct wp_index *ix, uint32_t holder, uint64_t *blocks,
                          uint64_t *bytes)
{
    const struct wp_holder *h;

    *blocks = *bytes = 0;
    pthread_mutex_lock(lock_of(ix));
    h = live(ix, holder) ? &ix->holders[holder] : NULL;
    for (uint32_t i = 0; h && i < h->shelves; i++)
        *bytes += h->shelf[i].book.bytes;
    *blocks = h ? h->blocks - h->floating : 0;
    pthread_mutex_unlock(lock_of(ix));
}

bool wp_index_space_is(const struct wp_index *ix, uint32_t space, struct wp_buf *model,
                       uint32_t *block_size, enum wp_space_kind *kind)
{
    bool ok;

    pthread_mutex_lock(lock_of(ix));
    ok = space < ix->n_spaces &&
         wp_buf_add(model, ix->spaces[space].model, ix->spaces[space].model_n) == 0;
    if (ok) {
        *block_size = ix->spaces[space].block_size;
        *kind = ix->spaces[space].kind;
    }
    pthread_mutex_unlock(lock_of(ix));
    return ok;
}

size_t wp_index_confirm(struct wp_index *ix, uint32_t holder, uint32_t space,
                        const uint64_t local[], size_t n, size_t blocks)
{
    size_t changed = 0;

    pthread_mutex_lock(&ix->lock);
    if (space < ix->n_spaces && live(ix, holder)) {
        changed = wp_hold_confirm(ix, holder, space, local, n, blocks);
        wp_epoch_reclaim(&ix->epoch);
    }
    pthread_mutex_unlock(&ix->lock);
    return changed;
}
