/* SPDX-License-Identifier: Apache-2.0 */
/* What holds in every scenario: the epoch's promise, and that readers write to nothing else.  The
 * linker puts these before the real ones. */
#include "tests/model/model.h"

#include "base/mem.h"
#include "index/slab.h"

enum { RETIRED = 512, SLAB_SHIFT = 2 };

static struct watch { /* in the model's memory */
    struct wp_epoch *epoch;
    wp_epoch_free_fn *give; /* the real one */
    uint64_t clock;
    uint64_t inside[WP_MODEL_THREADS]; /* since when; 0: outside */
    unsigned n;
    struct {
        uint64_t at, ref;
        uint32_t kind;
    } retired[RETIRED];
} * w;

int __real_wp_epoch_init(struct wp_epoch *e, wp_epoch_free_fn *give, void *ctx);
int __wrap_wp_epoch_init(struct wp_epoch *e, wp_epoch_free_fn *give, void *ctx);
uint32_t __real_wp_epoch_enter(struct wp_epoch *e);
uint32_t __wrap_wp_epoch_enter(struct wp_epoch *e);
void __real_wp_epoch_retire(struct wp_epoch *e, uint32_t kind, uint64_t ref);
void __wrap_wp_epoch_retire(struct wp_epoch *e, uint32_t kind, uint64_t ref);
void __real_wp_slab_init(struct wp_slab *s, uint32_t size, uint32_t shift, uint32_t max);
void __wrap_wp_slab_init(struct wp_slab *s, uint32_t size, uint32_t shift, uint32_t max);
int __wrap_sched_yield(void);

void wp_watch_begin(void)
{
    w = wp_calloc(1, sizeof *w);
}

static void give(void *ctx, uint32_t kind, uint64_t ref)
{
    unsigned i = 0;

    while (i < w->n && (w->retired[i].kind != kind || w->retired[i].ref != ref))
        i++;
    WP_MODEL_WANT("what is given back was retired, and once", i < w->n);
    for (int t = 0; t < WP_MODEL_THREADS; t++)
        WP_MODEL_WANT(
            "nothing is given back while a reader is inside that came before it was retired",
            !w->inside[t] || w->inside[t] > w->retired[i].at);
    w->retired[i] = w->retired[--w->n];
    w->give(ctx, kind, ref);
}

int __wrap_wp_epoch_init(struct wp_epoch *e, wp_epoch_free_fn *real, void *ctx)
{
    w->epoch = e;
    w->give = real;
    return __real_wp_epoch_init(e, give, ctx);
}

uint32_t __wrap_wp_epoch_enter(struct wp_epoch *e)
{
    uint32_t slot = __real_wp_epoch_enter(e);

    if (wp_model_who() >= 0)
        w->inside[wp_model_who()] = ++w->clock;
    return slot;
}

void __wrap_wp_epoch_retire(struct wp_epoch *e, uint32_t kind, uint64_t ref)
{
    WP_MODEL_WANT("the watch has room", w->n < RETIRED);
    w->retired[w->n].at = ++w->clock;
    w->retired[w->n].kind = kind;
    w->retired[w->n++].ref = ref;
    __real_wp_epoch_retire(e, kind, ref);
}

/* Small chunks: their lists grow, and the memory that each run puts back is little. */
void __wrap_wp_slab_init(struct wp_slab *s, uint32_t size, uint32_t shift, uint32_t max)
{
    __real_wp_slab_init(s, size, shift < SLAB_SHIFT ? shift : SLAB_SHIFT, max);
}

int __wrap_sched_yield(void)
{
    wp_model_pause();
    return 0;
}

void wp_watch_step(const volatile void *at, bool load)
{
    int who = wp_model_who();
    const volatile char *p = at, *slots = (const char *)w->epoch->slot;

    if (who == WP_MODEL_WRITER || load)
        return;
    WP_MODEL_WANT("a reader writes to nothing but the epoch",
                  p >= slots && p < (const char *)(w->epoch + 1));
    if (p < slots + sizeof w->epoch->slot)
        w->inside[who] = 0; /* it leaves; or it is about to enter */
}

void wp_watch_end(void)
{
    wp_epoch_reclaim(w->epoch);
    WP_MODEL_WANT("what was retired is given back once nobody is inside", w->n == 0);
}
