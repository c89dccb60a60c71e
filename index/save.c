/* SPDX-License-Identifier: Apache-2.0 */
#include "index/save_impl.h"

#include "index/hold.h"
#include "index/walk.h"

void wp_index_pause(struct wp_index *ix)
{
    pthread_mutex_lock(&ix->lock);
}

void wp_index_resume(struct wp_index *ix)
{
    pthread_mutex_unlock(&ix->lock);
}

static void save_head(const struct wp_index *ix, struct wp_frames_out *o)
{
    struct wp_saved_index head = {
        .version = WP_SAVED_VERSION,
        .segment = WP_SEGMENT,
        .tiers = WP_TIER_MAX,
        .windows = WP_WINDOWS_MAX,
        .secret = ix->prefix.secret,
        .clock = ix->clock,
        .n_spaces = ix->n_spaces,
        .n_holders = ix->n_holders,
        .runs_top = ix->runs.top,
    };

    wp_frames_section(o, WP_SAVED_INDEX);
    wp_frames_put(o, &head, sizeof head);
}

static void save_spaces(const struct wp_index *ix, struct wp_frames_out *o)
{
    wp_frames_section(o, WP_SAVED_SPACES);
    for (uint32_t i = 0; i < ix->n_spaces; i++) {
        const struct wp_space *sp = &ix->spaces[i];
        struct wp_saved_space it = {.block_size = sp->block_size,
                                    .kind = sp->kind,
                                    .model_n = (uint32_t)sp->model_n,
                                    .domain_n = (uint32_t)sp->domain_n};

        wp_frames_put(o, &it, sizeof it);
        wp_frames_put(o, sp->model, sp->model_n);
        wp_frames_put(o, sp->domain, sp->domain_n);
    }
}

static void save_holder(const struct wp_index *ix, uint32_t holder, struct wp_frames_out *o)
{
    const struct wp_holder *h = &ix->holders[holder];
    struct wp_saved_holder it = {
        .number = holder, .kind = h->kind, .node = h->node, .shelves = h->shelves};

    for (int k = 0; k < WP_WINDOWS_MAX; k++)
        it.windows += h->window[k].used;
    wp_frames_put(o, &it, sizeof it);
    for (uint32_t k = 0; k < WP_WINDOWS_MAX; k++) {
        const struct wp_window *w = &h->window[k];
        struct wp_saved_window win = {k, w->group, w->main, w->blocks, w->stored, w->met};

        if (w->used)
            wp_frames_put(o, &win, sizeof win);
    }
    for (uint32_t i = 0; i < h->shelves; i++) {
        const struct wp_shelf *s = &h->shelf[i];
        struct wp_saved_shelf shelf = {s->space, s->group, s->window, (uint32_t)s->book.n};

        wp_frames_put(o, &shelf, sizeof shelf);
    }
}

static void save_holders(const struct wp_index *ix, struct wp_frames_out *o)
{
    wp_frames_section(o, WP_SAVED_HOLDERS);
    for (uint32_t i = 0; i < ix->n_holders; i++)
        if (ix->holders[i].live)
            save_holder(ix, i, o);
}

/* -- runs -- */

/* Spans of holders, and those of windows after them.  With no o they are counted. */
static uint32_t each_span(const struct wp_index *ix, uint64_t who, bool windows,
                          struct wp_frames_out *o)
{
    const wp_word *w, *set;
    uint64_t head;
    uint32_t n = 0;

    if (who & WP_WHO_SPAN) {
        n = !(who & WP_SPAN_WINDOW) == !windows;
        if (n && o)
            wp_frames_put64(o, who & ~WP_WHO_SPAN);
        return n;
    }
    if (!who)
        return 0;
    w = wp_slab_at(&ix->rosters[who >> 32 & 31], (uint32_t)who);
    head = wp_word_get(w);
    for (unsigned i = 0; i < wp_roster_singles(head); i++) {
        uint64_t span = wp_word_get(&w[WP_ROSTER_HEAD + i]);

        /* one that has neither tiers nor groups was emptied where it stood */
        if (!(span & WP_SPAN_WINDOW) != !windows || !(windows ? wp_span_window(span) : 1))
            continue;
        n++;
        if (o)
            wp_frames_put64(o, span);
    }
    set = w + WP_ROSTER_HEAD + wp_roster_singles(head);
    for (unsigned i = 0; i < wp_roster_sets(head); i++, set += 1 + wp_roster_words(head)) {
        uint64_t span = wp_word_get(set) & WP_SPAN_ATTR;

        for (unsigned k = 0; k < wp_roster_words(head) && !(span & WP_SPAN_WINDOW) == !windows; k++)
            for (uint64_t bits = wp_word_get(&set[1 + k]); bits; bits &= bits - 1, n++)
                if (o)
                    wp_frames_put64(o, span | (uint64_t)(k * 64 + (unsigned)__builtin_ctzll(bits))
                                                  << 33);
    }
    return n;
}

static void save_run(const struct wp_index *ix, uint32_t run, struct wp_frames_out *o)
{
    const struct wp_run *r = wp_run_at(ix, run);
    const struct wp_run_own *own = wp_own_at(ix, run);
    uint64_t who = atomic_load_explicit(&((struct wp_run *)r)->who, memory_order_relaxed);
    struct wp_saved_run it = {
        .number = run,
        .parent = r->parent,
        .space = own->space,
        .len = wp_run_len(r),
        .stamp = own->stamp,
        .spans = each_span(ix, who, false, NULL) + each_span(ix, who, true, NULL),
    };

    wp_frames_put(o, &it, sizeof it);
    for (unsigned i = 0; i < it.len; i += WP_CHUNK)
        wp_frames_put(o, wp_run_chunk(ix, r, i / WP_CHUNK),
                      (it.len - i < WP_CHUNK ? it.len - i : WP_CHUNK) * sizeof(uint64_t));
    each_span(ix, who, false, o);
    each_span(ix, who, true, o);
}

static void save_runs(const struct wp_index *ix, struct wp_frames_out *o)
{
    wp_frames_section(o, WP_SAVED_RUNS);
    for (uint32_t space = 0; space < ix->n_spaces; space++) {
        uint32_t run = ix->spaces[space].child;

        while (run) {
            save_run(ix, run, o);
            if (wp_own_at(ix, run)->child) {
                run = wp_own_at(ix, run)->child;
                continue;
            }
            while (run && !wp_own_at(ix, run)->next) {
                uint32_t parent = wp_run_at(ix, run)->parent;

                run = parent == WP_NOWHERE ? 0 : wp_place_run(parent);
            }
            run = run ? wp_own_at(ix, run)->next : 0;
        }
    }
    wp_frames_put(o, &(struct wp_saved_run){0}, sizeof(struct wp_saved_run));
}

/* -- names -- */

static void save_detail(const struct wp_index *ix, uint32_t d, struct wp_frames_out *o)
{
    const struct wp_detail *it = wp_detail_at(ix, d);
    struct wp_saved_detail head = {.holder = it->holder,
                                   .place = it->place,
                                   .rest = it->rest,
                                   .rest_windows = it->rest_windows};

    for (uint32_t n = it->names; n; n = wp_name_at(ix, n)->next)
        head.names++;
    wp_frames_put(o, &head, sizeof head);
    for (uint32_t n = it->names; n; n = wp_name_at(ix, n)->next) {
        const struct wp_name *name = wp_name_at(ix, n);
        struct wp_saved_name out = {
            .engine = name->engine, .book = name->book, .windows = name->windows};

        memcpy(out.copies, name->copies, sizeof out.copies);
        wp_frames_put(o, &out, sizeof out);
    }
}

static void save_details(const struct wp_index *ix, struct wp_frames_out *o)
{
    wp_frames_section(o, WP_SAVED_DETAILS);
    for (uint32_t i = 0; i < ix->n_holders; i++)
        for (uint32_t d = ix->holders[i].live ? ix->holders[i].detail : 0; d;
             d = wp_detail_at(ix, d)->next)
            save_detail(ix, d, o);
    wp_frames_put(o, &(struct wp_saved_detail){.holder = WP_NO_HOLDER},
                  sizeof(struct wp_saved_detail));
}

static void save_shelf(const struct wp_index *ix, const struct wp_shelf *s, struct wp_frames_out *o)
{
    uint64_t key[WP_BOOK_WAYS];
    uint32_t value[WP_BOOK_WAYS];
    unsigned n;

    for (uint32_t at = 0; (n = wp_book_read(&s->book, &at, key, value)) != 0;)
        for (unsigned i = 0; i < n; i++) {
            const struct wp_name *name =
                value[i] & WP_NAMED ? wp_name_at(ix, value[i] & ~WP_NAMED) : NULL;

            wp_frames_put64(o, key[i]);
            if (!name) /* of a window: what is in doubt is not saved, as all is for who reads it */
                wp_frames_put32(o, s->window >= 0 ? value[i] & UINT8_MAX : value[i]);
            else if (s->window >= 0)
                wp_frames_put32(o, WP_NAMED);
            else
                wp_frames_put32(o, WP_NAMED | wp_detail_at(ix, name->detail)->place);
            if (name && s->window >= 0)
                wp_frames_put(o, name->copies, sizeof name->copies);
        }
}

void wp_index_save(const struct wp_index *ix, struct wp_frames_out *o)
{
    save_head(ix, o);
    save_spaces(ix, o);
    save_holders(ix, o);
    save_runs(ix, o);
    save_details(ix, o);
    wp_frames_section(o, WP_SAVED_BOOKS);
    for (uint32_t i = 0; i < ix->n_holders; i++)
        for (uint32_t k = 0; ix->holders[i].live && k < ix->holders[i].shelves; k++)
            save_shelf(ix, &ix->holders[i].shelf[k], o);
}
