/* SPDX-License-Identifier: Apache-2.0 */
/* index/load_impl.h - what load.c and load_names.c share: an index that is being built from a file. */
#ifndef WP_INDEX_LOAD_IMPL_H
#define WP_INDEX_LOAD_IMPL_H

#include "index/save_impl.h"

struct wp_loading {
    struct wp_index *ix;
    struct wp_frames_in *in;
    struct wp_err *err;
    struct wp_saved_index head;
    uint32_t *run;    /* by number in the file: its number here; 0: none */
    uint32_t *shelf_n; /* entries of each shelf, of all holders in order */
    uint32_t shelves, shelves_room;
    uint64_t names;   /* of details, that no book has shown yet */
};

/* The place here of one in the file; WP_NOWHERE: there is no such block. */
static inline uint32_t wp_loading_place(const struct wp_loading *l, uint32_t saved)
{
    uint32_t number = wp_place_run(saved), run = number < l->head.runs_top ? l->run[number] : 0;

    if (!run || wp_place_off(saved) >= wp_run_len(wp_run_at(l->ix, run)))
        return WP_NOWHERE;
    return wp_place(run, wp_place_off(saved));
}

static inline int wp_loading_refuse(const struct wp_loading *l, const char *what)
{
    return wp_frames_refuse(l->in, what, l->err);
}

int wp_loading_failed(const struct wp_loading *l, int rc); /* no memory, or over the cap */
int wp_load_details(struct wp_loading *l);
int wp_load_books(struct wp_loading *l);

#endif
