/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/warm.h - who the holders of a saved index are: its section of the snapshot's file.
 * One record for each rank whose events were followed: the worker by id and URL, where its publisher was, up to which batch it had been applied,
 * and what its ingest took for granted.  After a restart a rank of the same worker takes its record, and its holder.
 * Threads: the records' owner's.
 */
#ifndef WP_ROUTER_WARM_H
#define WP_ROUTER_WARM_H

#include "adapters/events/subscriber.h"
#include "base/frames.h"
#include "index/index.h"

struct wp_warm_rank {
    struct wp_list link;
    char *id, *url, *events, *replay, *model;
    uint32_t rank, ranks, holder; /* its number, of how many; of the index */
    struct wp_sub_mark mark;
    struct wp_buf ingest; /* wp_ingest_save() */
};

/* A snapshot's file: the index's sections, then this one. */
extern const char wp_warm_magic[8];
enum { WP_WARM_VERSION = 1 };

int wp_warm_put(struct wp_buf *out, const struct wp_warm_rank *r); /* appends a record.  Errors: WP_ENOMEM, WP_ETOOBIG */
void wp_warm_write(struct wp_frames_out *out, struct wp_str records); /* the section; allocates nothing */
/* A file's bytes: the index, and records for the list, which is empty.  Errors: with the reason; then there is nothing. */
int wp_warm_parse(const void *p, size_t n, const struct wp_index_conf *conf, struct wp_index **ix, struct wp_list *records, struct wp_err *err);
/* Reads a file whole: the index, and records for the list.  Errors: WP_ENOENT (no such file), others with the reason; then there is nothing. */
int wp_warm_read(const char *file, const struct wp_index_conf *conf, struct wp_index **ix, struct wp_list *records, struct wp_err *err);
void wp_warm_free(struct wp_warm_rank *r); /* off its list; NULL does nothing */

#endif
