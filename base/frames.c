/* SPDX-License-Identifier: Apache-2.0 */
#include "base/frames.h"

#include <xxhash.h>

enum { ORDER = 0x01020304, MAGIC = 8, FILE_HEAD = MAGIC + 8 };

static uint64_t check_of(uint64_t chain, uint32_t kind, uint32_t n, const void *p)
{
    uint64_t head[2] = {chain, (uint64_t)kind << 32 | n};

    return XXH3_64bits_withSeed(p, n, XXH3_64bits(head, sizeof head));
}

/* -- writing -- */

static void put(struct wp_frames_out *o, const void *p, size_t n)
{
    if (o->failed)
        return;
    o->failed = o->put(o->ctx, p, n);
    if (!o->failed)
        o->bytes += n;
}

static void put_frame(struct wp_frames_out *o)
{
    o->chain = check_of(o->chain, o->kind, o->n, o->buf + WP_FRAME_HEAD);
    memcpy(o->buf, &o->kind, 4);
    memcpy(o->buf + 4, &o->n, 4);
    memcpy(o->buf + 8, &o->chain, 8);
    put(o, o->buf, WP_FRAME_HEAD + o->n);
    o->n = 0;
}

void wp_frames_start(struct wp_frames_out *o, const char magic[8], uint32_t version,
                     int (*fn)(void *ctx, const void *p, size_t n), void *ctx)
{
    uint32_t rest[2] = {version, ORDER};

    o->put = fn;
    o->ctx = ctx;
    o->chain = version;
    o->bytes = 0;
    o->kind = o->n = 0;
    o->failed = 0;
    put(o, magic, MAGIC);
    put(o, rest, sizeof rest);
}

void wp_frames_section(struct wp_frames_out *o, uint32_t kind)
{
    if (o->kind)
        put_frame(o);
    o->kind = kind;
}

void wp_frames_put(struct wp_frames_out *o, const void *p, size_t n)
{
    const char *from = p;

    while (n) {
        size_t now = WP_FRAME_MAX - o->n;

        now = n < now ? n : now;
        memcpy(o->buf + WP_FRAME_HEAD + o->n, from, now);
        o->n += (uint32_t)now;
        from += now;
        n -= now;
        if (o->n == WP_FRAME_MAX)
            put_frame(o);
    }
}

int wp_frames_finish(struct wp_frames_out *o)
{
    wp_frames_section(o, 0);
    put_frame(o);
    return o->failed;
}

/* -- reading -- */

int wp_frames_open(struct wp_frames_in *in, const char magic[8], uint32_t version, const void *p,
                   size_t n, struct wp_err *err)
{
    uint32_t head[2];

    *in = (struct wp_frames_in){.p = p, .n = n, .at = FILE_HEAD, .chain = version};
    if (n < FILE_HEAD)
        return wp_fail(err, WP_EINVAL, "too short: %zu bytes", n);
    if (memcmp(p, magic, MAGIC) != 0)
        return wp_fail(err, WP_EINVAL, "not such a file: it begins with other bytes");
    memcpy(head, in->p + MAGIC, sizeof head);
    if (head[1] != ORDER)
        return wp_fail(err, WP_EINVAL, "written on a machine of another byte order");
    if (head[0] != version)
        return wp_fail(err, WP_EINVAL, "version %u, %s than %u, which this one reads", head[0],
                       head[0] < version ? "older" : "newer", version);
    return 0;
}

/* Goes to the next frame, if it is of the kind. */
static bool next(struct wp_frames_in *in, uint32_t kind)
{
    uint32_t head[2];
    uint64_t check;

    if (in->bad || in->end)
        return false;
    if (in->n - in->at < WP_FRAME_HEAD) {
        in->bad = "the file ends too soon";
        return false;
    }
    memcpy(head, in->p + in->at, sizeof head);
    memcpy(&check, in->p + in->at + 8, sizeof check);
    if (head[1] > WP_FRAME_MAX || head[1] > in->n - in->at - WP_FRAME_HEAD) {
        in->bad = "a frame is longer than what is left";
        return false;
    }
    if (head[0] != kind)
        return false;
    if (check_of(in->chain, head[0], head[1], in->p + in->at + WP_FRAME_HEAD) != check) {
        in->bad = "a checksum is wrong";
        return false;
    }
    in->chain = check;
    in->kind = kind;
    in->now = in->p + in->at + WP_FRAME_HEAD;
    in->left = head[1];
    in->at += WP_FRAME_HEAD + head[1];
    in->end = kind == 0;
    return true;
}

int wp_frames_refuse(const struct wp_frames_in *in, const char *what, struct wp_err *err)
{
    return wp_fail(err, WP_EINVAL, "section %u, before byte %zu: %s", in->kind, in->at,
                   in->bad ? in->bad : what);
}

int wp_frames_enter(struct wp_frames_in *in, uint32_t kind, const char *name, struct wp_err *err)
{
    if (!in->bad && in->left)
        return wp_frames_refuse(in, "there is more than it says", err);
    if (next(in, kind))
        return 0;
    return wp_fail(err, WP_EINVAL, "at byte %zu: want the section of %s: %s", in->at, name,
                   in->bad ? in->bad : "another one stands there");
}

bool wp_frames_more(struct wp_frames_in *in, void *to, size_t n)
{
    char *at = to;

    for (;;) {
        size_t now = n < in->left ? n : in->left;

        if (now)
            memcpy(at, in->now, now);
        in->now += now;
        in->left -= now;
        at += now;
        n -= now;
        if (!n)
            return true;
        if (!next(in, in->kind))
            return false;
        if (!in->left) {
            in->bad = "a frame is empty";
            return false;
        }
    }
}

int wp_frames_close(struct wp_frames_in *in, struct wp_err *err)
{
    int rc = wp_frames_enter(in, 0, "the end", err);

    if (rc == 0 && (in->left || in->at != in->n))
        rc = wp_fail(err, WP_EINVAL, "%zu bytes follow the end", in->n - in->at + in->left);
    return rc;
}
