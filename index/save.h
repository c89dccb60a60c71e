/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/save.h - an index as bytes, and back.
 *
 * The bytes are sections of base/frames.h: what the index says, not how it is laid out.  So an index that is read back is built anew, compact, and
 * every word that was read has been checked against the others: the file may be anybody's.  All is there but what floats (its place is not
 * known, and an engine that goes on with it will float it again) and the epochs of doubt that concern it.  Spaces keep their texts and holders
 * their numbers; who the holders are is the caller's to add, in sections of its own.
 * The index's secret is among the bytes, so that books are written in the order of their buckets and read back in it: keep such
 * files to yourself.
 * Limits: one byte order; WP_SEGMENT and the version as compiled.  Cost: about 12 bytes a name and 8 a block.
 */
#ifndef WP_INDEX_SAVE_H
#define WP_INDEX_SAVE_H

#include "base/frames.h"
#include "index/index.h"

enum { WP_INDEX_SECTIONS = 16 }; /* kinds below this are the index's */

/*
 * Whoever changes the index waits from pause to resume: as long as a fork takes, whose child then saves what it sees.  Readers go on.
 */
void wp_index_pause(struct wp_index *ix);
void wp_index_resume(struct wp_index *ix);

/* Nobody may change the index meanwhile: paused, or in a child.  Allocates nothing, takes no lock, changes nothing. */
void wp_index_save(const struct wp_index *ix, struct wp_frames_out *out);

/*
 * A new index of what was saved.  conf's secret is not used.  Errors: WP_EINVAL (with the place and what is wrong), WP_ETOOBIG (over conf's
 * cap), WP_ENOMEM.  Cost: about 20 ns a location, plus the first touch of fresh memory.
 */
int wp_index_load(struct wp_index **out, const struct wp_index_conf *conf, struct wp_frames_in *in, struct wp_err *err);

bool wp_index_live(const struct wp_index *ix, uint32_t holder); /* the number is in use */

#endif
