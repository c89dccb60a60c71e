/* SPDX-License-Identifier: Apache-2.0 */
/* The index's frame: spaces, holders, figures.  What is inside is told in index/tree.h. */
#include "index/tree.h"

#include "base/mem.h"

#include <string.h>

enum { SPACES_MAX = 65535 };

static int lock_init(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attr;
    int rc;

    pthread_rwlockattr_init(&attr);
    /* the writer must not starve behind a stream of readers */
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    rc = pthread_rwlock_init(lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    return -rc;
}

static pthread_rwlock_t *lock_of(const struct wp_index *ix)
{
    return (pthread_rwlock_t *)&ix->lock; /* reading changes nothing but the lock */
}

int wp_index_create(struct wp_index **out, const struct wp_index_conf *conf, struct wp_err *err)
{
    struct wp_index *ix = wp_calloc(1, sizeof *ix);
    int rc;

    if (!ix)
        return wp_fail(err, WP_ENOMEM, "index: out of memory");
    rc = lock_init(&ix->lock);
    if (rc < 0) {
        wp_free(ix);
        return wp_fail(err, rc, "index: lock: %s", wp_strerror(rc));
    }
    ix->conf = *conf;
    ix->budget = (struct wp_budget){sizeof *ix, conf->cap_bytes};
    ix->nodes.size = sizeof(struct wp_node);
    ix->locs.size = sizeof(struct wp_loc);
    ix->names.size = sizeof(struct wp_name);
    *out = ix;
    return 0;
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
    wp_free(ix->holders);
    wp_table_fini(&ix->children, &ix->budget);
    wp_table_fini(&ix->at, &ix->budget);
    wp_table_fini(&ix->named, &ix->budget);
    wp_table_fini(&ix->heads, &ix->budget);
    wp_pool_fini(&ix->nodes, &ix->budget);
    wp_pool_fini(&ix->locs, &ix->budget);
    wp_pool_fini(&ix->names, &ix->budget);
    pthread_rwlock_destroy(&ix->lock);
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
    if (!sp.model || !sp.domain || !wp_tree_reserve(ix, 1, 0, 0)) {
        wp_free(sp.model);
        wp_free(sp.domain);
        return WP_ENOMEM;
    }
    sp.root = wp_tree_make_root(ix, ix->n_spaces);
    ix->spaces[ix->n_spaces++] = sp;
    return 0;
}

int wp_index_space(struct wp_index *ix, struct wp_str model, uint32_t block_size,
                   struct wp_str domain, enum wp_space_kind kind, uint32_t *space,
                   struct wp_err *err)
{
    uint32_t i = 0;
    int rc = 0;

    pthread_rwlock_wrlock(&ix->lock);
    for (; i < ix->n_spaces; i++) {
        const struct wp_space *sp = &ix->spaces[i];

        if (sp->block_size == block_size && sp->kind == kind &&
            same(sp->model, sp->model_n, model) && same(sp->domain, sp->domain_n, domain))
            break;
    }
    if (i == ix->n_spaces)
        rc = add_space(ix, model, block_size, domain, kind);
    pthread_rwlock_unlock(&ix->lock);
    if (rc < 0)
        return wp_fail(err, rc, "index: space of model " WP_STR_FMT ": %s", WP_STR_ARG(model),
                       rc == WP_ENOMEM ? "out of memory" : "there are 65535 already");
    *space = i;
    return 0;
}

static int add_holder(struct wp_index *ix, enum wp_holder_kind kind, uint32_t node,
                      uint32_t *holder)
{
    uint32_t i = 0;
    struct wp_holder *h;

    while (i < ix->n_holders && ix->holders[i].live)
        i++;
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
    *holder = i;
    return 0;
}

int wp_index_holder(struct wp_index *ix, enum wp_holder_kind kind, uint32_t node, uint32_t *holder,
                    struct wp_err *err)
{
    int rc;

    pthread_rwlock_wrlock(&ix->lock);
    if (node != WP_NO_HOLDER &&
        (kind != WP_HOLDER_RANK || node >= ix->n_holders || !ix->holders[node].live ||
         ix->holders[node].kind != WP_HOLDER_NODE))
        rc = WP_EINVAL;
    else
        rc = add_holder(ix, kind, node, holder);
    pthread_rwlock_unlock(&ix->lock);
    if (rc < 0)
        return wp_fail(err, rc, "index: new holder: %s",
                       rc == WP_ENOMEM ? "out of memory" : "its node is not one");
    return 0;
}

static bool live(const struct wp_index *ix, uint32_t holder)
{
    return holder < ix->n_holders && ix->holders[holder].live;
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

void wp_index_drop(struct wp_index *ix, uint32_t holder)
{
    pthread_rwlock_wrlock(&ix->lock);
    if (live(ix, holder)) {
        wp_tree_clear(ix, holder);
        leave_node(ix, holder);
        while (ix->holders[holder].first_rank != WP_NO_HOLDER)
            leave_node(ix, ix->holders[holder].first_rank);
        ix->holders[holder].live = false;
        while (ix->n_holders && !ix->holders[ix->n_holders - 1].live)
            ix->n_holders--;
    }
    pthread_rwlock_unlock(&ix->lock);
}

void wp_index_clear(struct wp_index *ix, uint32_t holder)
{
    pthread_rwlock_wrlock(&ix->lock);
    if (live(ix, holder))
        wp_tree_clear(ix, holder);
    pthread_rwlock_unlock(&ix->lock);
}

void wp_index_doubt(struct wp_index *ix, uint32_t holder)
{
    pthread_rwlock_wrlock(&ix->lock);
    if (live(ix, holder)) {
        ix->sure -= ix->holders[holder].sure;
        ix->holders[holder].sure = 0;
        ix->holders[holder].epoch++;
    }
    pthread_rwlock_unlock(&ix->lock);
}

size_t wp_index_holders(const struct wp_index *ix)
{
    size_t n;

    pthread_rwlock_rdlock(lock_of(ix));
    n = ix->n_holders;
    pthread_rwlock_unlock(lock_of(ix));
    return n;
}

void wp_index_stats(const struct wp_index *ix, struct wp_index_stats *s)
{
    pthread_rwlock_rdlock(lock_of(ix));
    *s = (struct wp_index_stats){
        .blocks = ix->blocks,
        .locations = ix->locations,
        .floating = ix->floating,
        .doubtful = ix->locations - ix->sure,
        .bytes = ix->budget.bytes,
        .cap_bytes = ix->conf.cap_bytes,
        .evicted = ix->evicted,
    };
    pthread_rwlock_unlock(lock_of(ix));
}

void wp_index_holder_stats(const struct wp_index *ix, uint32_t holder,
                           uint64_t tier_blocks[WP_TIER_MAX], uint64_t *doubtful)
{
    memset(tier_blocks, 0, WP_TIER_MAX * sizeof tier_blocks[0]);
    *doubtful = 0;
    pthread_rwlock_rdlock(lock_of(ix));
    if (live(ix, holder)) {
        memcpy(tier_blocks, ix->holders[holder].tier, sizeof ix->holders[holder].tier);
        for (int t = 0; t < WP_TIER_MAX; t++)
            *doubtful += tier_blocks[t];
        *doubtful -= ix->holders[holder].sure;
    }
    pthread_rwlock_unlock(lock_of(ix));
}

uint64_t wp_index_holder_floating(const struct wp_index *ix, uint32_t holder)
{
    uint64_t n;

    pthread_rwlock_rdlock(lock_of(ix));
    n = live(ix, holder) ? ix->holders[holder].floating : 0;
    pthread_rwlock_unlock(lock_of(ix));
    return n;
}
