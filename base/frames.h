/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/frames.h - a file of sections that knows when it is not whole.
 *
 *     file      magic, 8 bytes | version, 4 | byte order, 4 | frame ... | the last frame
 *     frame     kind, 4 bytes | n, 4 | check, 8 | n bytes, 65,536 at most.  The last: kind 0, n 0
 *     section   the bytes of consecutive frames of one kind
 *
 * A frame's check is an XXH3 of its bytes, seeded with its head and the check before: so no bit can be wrong, no frame missing, doubled or in another
 * place, without being seen.  It keeps accidents out, not somebody who writes such a file: who reads one checks what it says.
 * Numbers are in the machine's own byte order; a file of another order is refused.
 * Threads: one.  The writer allocates nothing and calls nothing but put: it may run after a fork.
 */
#ifndef WP_BASE_FRAMES_H
#define WP_BASE_FRAMES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WP_FRAME_MAX = 65536, WP_FRAME_HEAD = 16 };

struct wp_frames_out {
    int (*put)(void *ctx, const void *p, size_t n); /* 0, or an error; then it is not called again */
    void *ctx;
    uint64_t chain; /* the check before */
    uint64_t bytes; /* written so far */
    uint32_t kind, n;
    int failed; /* what put returned */
    char buf[WP_FRAME_HEAD + WP_FRAME_MAX];
};

void wp_frames_start(struct wp_frames_out *o, const char magic[8], uint32_t version, int (*put)(void *ctx, const void *p, size_t n), void *ctx);
void wp_frames_section(struct wp_frames_out *o, uint32_t kind); /* not 0 */
void wp_frames_put(struct wp_frames_out *o, const void *p, size_t n);
static inline void wp_frames_put32(struct wp_frames_out *o, uint32_t v)
{
    wp_frames_put(o, &v, sizeof v);
}
static inline void wp_frames_put64(struct wp_frames_out *o, uint64_t v)
{
    wp_frames_put(o, &v, sizeof v);
}
int wp_frames_finish(struct wp_frames_out *o); /* 0, or what put returned */

struct wp_frames_in {
    const char *p; /* the whole file; must stay */
    size_t n, at;  /* at: of the frame after this one */
    const char *now;
    size_t left;  /* of this frame */
    uint64_t chain;
    uint32_t kind; /* 0: before the first section, or after the last */
    bool end;
    const char *bad; /* why nothing more can be had, or NULL */
};

/* Errors: WP_EINVAL, with what is wrong in words. */
int wp_frames_open(struct wp_frames_in *in, const char magic[8], uint32_t version, const void *p, size_t n, struct wp_err *err);
int wp_frames_enter(struct wp_frames_in *in, uint32_t kind, const char *name, struct wp_err *err); /* the next section, which must be that */
bool wp_frames_more(struct wp_frames_in *in, void *to, size_t n); /* for wp_frames_get() */
static inline bool wp_frames_get(struct wp_frames_in *in, void *to, size_t n) /* false: the section has not as much */
{
    if (n > in->left)
        return wp_frames_more(in, to, n);
    if (n)
        memcpy(to, in->now, n);
    in->now += n;
    in->left -= n;
    return true;
}
static inline size_t wp_frames_ahead(const struct wp_frames_in *in) /* bytes to come, of all sections: a bound for what they can say */
{
    return in->left + (in->n - in->at);
}
int wp_frames_close(struct wp_frames_in *in, struct wp_err *err); /* nothing may be left */
/* The section at hand says what cannot be, or ends too soon: WP_EINVAL, with the place. */
int wp_frames_refuse(const struct wp_frames_in *in, const char *what, struct wp_err *err);

#endif
