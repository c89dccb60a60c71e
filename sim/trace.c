/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/trace.h"
#include "base/map.h"
#include "base/str.h"
#include "net/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

struct wp_trace_req *wp_trace_add(struct wp_trace *t, uint64_t at_us, uint32_t input,
                                  uint32_t output, uint64_t **ids)
{
    uint32_t n = (input + WP_TRACE_BLOCK - 1) / WP_TRACE_BLOCK;
    struct wp_trace_req *r;

    if ((t->n & (t->n - 1)) == 0) { /* full at each power of two */
        r = wp_realloc(t->req, (t->n ? 2 * t->n : 1) * sizeof *r);
        if (!r)
            return NULL;
        t->req = r;
    }
    *ids = wp_arena_alloc(&t->arena, (n ? n : 1) * sizeof **ids);
    if (!*ids)
        return NULL;
    r = &t->req[t->n++];
    *r = (struct wp_trace_req){
        .at_us = at_us, .input = input, .output = output, .n_ids = n, .id = *ids};
    return r;
}

void wp_trace_fini(struct wp_trace *t)
{
    wp_free(t->req);
    wp_arena_fini(&t->arena);
    *t = (struct wp_trace){0};
}

/* ---- reading ---- */

enum { TIMESTAMP, INPUT, OUTPUT, IDS, TENANT, PRIORITY, MEMBERS };
static const char *const names[MEMBERS] = {"timestamp", "input_length", "output_length",
                                           "hash_ids",  "tenant",       "priority"};

static int want(struct wp_json v, const char *name, const char *what, struct wp_err *err)
{
    if (v.kind == WP_JSON_ABSENT)
        return wp_fail(err, WP_EINVAL, "%s: want %s, got nothing", name, what);
    return wp_fail(err, WP_EINVAL, "%s: want %s, got %.*s", name, what, (int)(v.n < 40 ? v.n : 40),
                   v.p);
}

static int read_tokens(struct wp_json v, const char *name, uint32_t min, uint32_t *out,
                       struct wp_err *err)
{
    uint64_t x;

    if (!wp_json_u64(v, &x) || x < min || x > WP_TRACE_TOKENS_MAX)
        return want(v, name,
                    min ? "a number of tokens from 1 to 16777216"
                        : "a number of tokens up to 16777216",
                    err);
    *out = (uint32_t)x;
    return 0;
}

static int read_ids(struct wp_json v, uint32_t n, uint64_t *ids, struct wp_err *err)
{
    struct wp_json at = {0};
    uint32_t got = 0;

    while (wp_json_each(v, &at)) {
        if (got < n && !wp_json_u64(at, &ids[got]))
            return want(at, names[IDS], "whole numbers from 0 on", err);
        got++;
    }
    if (got != n)
        return wp_fail(err, WP_EINVAL,
                       "hash_ids: want %u of them, one for each 512 tokens of the prompt, got %u",
                       n, got);
    return 0;
}

static int read_small(struct wp_json v, const char *name, uint32_t most, uint32_t *out,
                      struct wp_err *err)
{
    uint64_t x = 0;

    if (v.kind == WP_JSON_ABSENT)
        return 0;
    if (!wp_json_u64(v, &x) || x > most)
        return wp_fail(err, WP_EINVAL, "%s: want a whole number up to %u, got %.*s", name, most,
                       (int)(v.n < 40 ? v.n : 40), v.p);
    *out = (uint32_t)x;
    return 0;
}

static int read_who(struct wp_trace_req *r, const struct wp_json v[MEMBERS], struct wp_err *err)
{
    int rc = read_small(v[TENANT], names[TENANT], WP_TRACE_TENANTS_MAX, &r->tenant, err);

    return rc ? rc
              : read_small(v[PRIORITY], names[PRIORITY], WP_TRACE_PRIORITY_MAX, &r->priority, err);
}

static int read_line(struct wp_trace *t, struct wp_str line, struct wp_err *err)
{
    struct wp_json v[MEMBERS];
    uint32_t input = 0, output = 0;
    uint64_t *ids, at_us;
    double ms;
    int rc = wp_json_members(line, names, MEMBERS, v, err);

    if (rc == 0)
        rc = read_tokens(v[INPUT], names[INPUT], 1, &input, err);
    if (rc == 0)
        rc = read_tokens(v[OUTPUT], names[OUTPUT], 0, &output, err);
    if (rc < 0)
        return rc;
    if (!wp_json_double(v[TIMESTAMP], &ms) || !(ms >= 0 && ms <= WP_TRACE_MS_MAX))
        return want(v[TIMESTAMP], names[TIMESTAMP], "milliseconds from 0 on", err);
    at_us = (uint64_t)(ms * 1000 + 0.5);
    if (t->n > 0 && at_us < t->req[t->n - 1].at_us)
        return wp_fail(err, WP_EINVAL, "timestamp: want them in order, got %.3f after %.3f", ms,
                       (double)t->req[t->n - 1].at_us / 1000);
    if (v[IDS].kind != WP_JSON_ARRAY)
        return want(v[IDS], names[IDS], "an array of whole numbers", err);
    if (v[IDS].n < 2 * (size_t)(input / WP_TRACE_BLOCK)) /* before memory is taken for them */
        return read_ids(v[IDS], 0, NULL, err);
    if (t->arena.bytes > WP_TRACE_BYTES_MAX)
        return wp_fail(err, WP_ETOOBIG, "want a trace of at most %zu bytes in memory",
                       WP_TRACE_BYTES_MAX);
    if (!wp_trace_add(t, at_us, input, output ? output : 1, &ids))
        return wp_fail(err, WP_ENOMEM, "out of memory");
    rc = read_who(&t->req[t->n - 1], v, err);
    return rc ? rc : read_ids(v[IDS], t->req[t->n - 1].n_ids, ids, err);
}

struct reader {
    gzFile f;
    struct wp_buf buf;
    size_t from, line; /* from: where the next line begins in buf */
    bool ended;
};

/* More bytes into the buffer: 0, or an error.  At the end of the file r->ended is set. */
static int fill(struct reader *r, struct wp_err *err)
{
    enum { CHUNK = 65536 };
    int rc, got, code;

    wp_buf_consume(&r->buf, r->from);
    r->from = 0;
    if (r->buf.n > WP_TRACE_LINE_MAX)
        return wp_fail(err, WP_ETOOBIG, "want a line of at most %d bytes", WP_TRACE_LINE_MAX);
    rc = wp_buf_reserve(&r->buf, CHUNK);
    if (rc < 0)
        return wp_fail(err, rc, "%s", wp_strerror(rc));
    errno = 0;
    got = gzread(r->f, r->buf.p + r->buf.n, CHUNK);
    if (got > 0) {
        r->buf.n += (size_t)got;
        return 0;
    }
    r->ended = true;
    gzerror(r->f, &code);
    if (code == Z_ERRNO)
        return wp_fail(err, errno ? -errno : -EIO, "%s", wp_strerror(errno ? -errno : -EIO));
    if (code == Z_BUF_ERROR)
        return wp_fail(err, WP_EEOF, "the gzip data ends before its end");
    if (code != Z_OK && code != Z_STREAM_END)
        return wp_fail(err, WP_ESYNTAX, "the gzip data is broken");
    return 0;
}

/* The next line without its end: 1, 0 when there is none, or an error. */
static int next_line(struct reader *r, struct wp_str *line, struct wp_err *err)
{
    size_t looked = 0;

    for (;;) {
        size_t n = r->buf.n - r->from;
        const char *end = NULL;
        int rc;

        if (n > looked)
            end = memchr(r->buf.p + r->from + looked, '\n', n - looked);
        if (end || (r->ended && n > 0)) {
            line->p = r->buf.p + r->from;
            line->n = end ? (size_t)(end - line->p) : n;
            r->from += line->n + (end ? 1 : 0);
            return 1;
        }
        if (r->ended)
            return 0;
        looked = n;
        rc = fill(r, err);
        if (rc < 0)
            return rc;
    }
}

static int read_all(struct wp_trace *t, struct reader *r, size_t max, struct wp_err *err)
{
    struct wp_str line;
    int rc = 0;

    while (max == 0 || t->n < max) {
        r->line++;
        rc = next_line(r, &line, err);
        if (rc <= 0)
            break;
        line = wp_str_trim(line);
        if (line.n == 0)
            continue;
        rc = line.n > WP_TRACE_LINE_MAX
                 ? wp_fail(err, WP_ETOOBIG, "want a line of at most %d bytes", WP_TRACE_LINE_MAX)
                 : read_line(t, line, err);
        if (rc < 0)
            break;
    }
    if (rc >= 0 && t->n == 0)
        return wp_fail(err, WP_EINVAL, "want at least one request");
    return rc < 0 ? rc : 0;
}

int wp_trace_read(struct wp_trace *t, const char *path, size_t max, struct wp_err *err)
{
    struct reader r = {.f = gzopen(path, "rb")};
    int rc;

    *t = (struct wp_trace){0};
    if (!r.f)
        return wp_fail(err, errno ? -errno : WP_ENOMEM, "%s: %s", path,
                       wp_strerror(errno ? -errno : WP_ENOMEM));
    rc = read_all(t, &r, max, err);
    if (rc < 0) {
        wp_wrap(err, "%s:%zu", path, r.line);
        wp_trace_fini(t);
    }
    wp_buf_fini(&r.buf);
    gzclose(r.f);
    return rc;
}

/* ---- use ---- */

/* By time; requests of one instant by what they are, so that any sort gives the same order. */
static int by_arrival(const void *a, const void *b)
{
    const struct wp_trace_req *x = a, *y = b;

    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    if (x->input != y->input)
        return x->input < y->input ? -1 : 1;
    if (x->output != y->output)
        return x->output < y->output ? -1 : 1;
    return memcmp(x->id, y->id, x->n_ids * sizeof x->id[0]);
}

void wp_trace_jitter(struct wp_trace *t, uint64_t window_us, uint64_t seed)
{
    struct wp_rng rng = {seed};

    if (window_us == 0 || t->n == 0)
        return;
    for (size_t i = 0; i < t->n; i++)
        t->req[i].at_us += wp_rng_below(&rng, window_us);
    qsort(t->req, t->n, sizeof t->req[0], by_arrival);
}

void wp_trace_tokens(const struct wp_trace_req *r, uint32_t vocabulary, uint32_t out[])
{
    enum { FIRST = 257 }; /* below are bytes and what is special */
    uint32_t span = vocabulary - FIRST;
    struct wp_rng rng = {0};

    assert(vocabulary > FIRST);
    for (uint32_t i = 0; i < r->input; i++) {
        if (i % WP_TRACE_BLOCK == 0)
            rng.state = r->id[i / WP_TRACE_BLOCK] * 0xd1342543de82ef95u + 1;
        out[i] = FIRST + (uint32_t)(((wp_rng_next(&rng) >> 32) * span) >> 32);
    }
}

static int format_line(const struct wp_trace_req *r, struct wp_buf *b)
{
    int rc;

    b->n = 0;
    rc = wp_buf_printf(b, "{\"timestamp\": %llu", (unsigned long long)(r->at_us / 1000));
    if (rc == 0 && r->at_us % 1000 != 0)
        rc = wp_buf_printf(b, ".%03u", (unsigned)(r->at_us % 1000));
    if (rc == 0)
        rc = wp_buf_printf(b, ", \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
                           r->input, r->output);
    for (uint32_t i = 0; i < r->n_ids && rc == 0; i++)
        rc = wp_buf_printf(b, i ? ", %llu" : "%llu", (unsigned long long)r->id[i]);
    rc = rc ? rc : wp_buf_adds(b, "]");
    if (rc == 0 && r->tenant)
        rc = wp_buf_printf(b, ", \"tenant\": %u", r->tenant);
    if (rc == 0 && r->priority)
        rc = wp_buf_printf(b, ", \"priority\": %u", r->priority);
    return rc < 0 ? rc : wp_buf_adds(b, "}\n");
}

static gzFile open_out(const char *path)
{
    size_t n = strlen(path);
    gzFile f;
    int fd;

    if (strcmp(path, "-") != 0)
        return gzopen(path, n > 3 && strcmp(path + n - 3, ".gz") == 0 ? "wb" : "wbT");
    fd = dup(STDOUT_FILENO);
    f = fd < 0 ? NULL : gzdopen(fd, "wbT");
    if (!f && fd >= 0)
        close(fd);
    return f;
}

int wp_trace_write(const struct wp_trace *t, const char *path, struct wp_err *err)
{
    struct wp_buf b = {0};
    gzFile f = open_out(path);
    int rc = 0, last;

    if (!f)
        return wp_fail(err, errno ? -errno : WP_ENOMEM, "%s: %s", path,
                       wp_strerror(errno ? -errno : WP_ENOMEM));
    errno = 0;
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        rc = format_line(&t->req[i], &b);
        if (rc == 0 && gzwrite(f, b.p, (unsigned)b.n) != (int)b.n)
            rc = errno ? -errno : -EIO;
    }
    last = gzclose(f);
    if (rc == 0 && last != Z_OK)
        rc = last == Z_ERRNO && errno ? -errno : -EIO;
    wp_buf_fini(&b);
    return rc < 0 ? wp_fail(err, rc, "%s: %s", path, wp_strerror(rc)) : 0;
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static int percentiles(const struct wp_trace *t, struct wp_trace_stats *s)
{
    uint32_t *x = wp_malloc((t->n ? t->n : 1) * sizeof *x);

    if (!x)
        return WP_ENOMEM;
    for (size_t i = 0; i < t->n; i++)
        x[i] = t->req[i].input;
    qsort(x, t->n, sizeof x[0], by_value);
    s->input_p50 = t->n ? x[t->n / 2] : 0;
    s->input_p99 = t->n ? x[t->n * 99 / 100] : 0;
    for (size_t i = 0; i < t->n; i++)
        x[i] = t->req[i].output;
    qsort(x, t->n, sizeof x[0], by_value);
    s->output_p50 = t->n ? x[t->n / 2] : 0;
    s->output_p99 = t->n ? x[t->n * 99 / 100] : 0;
    wp_free(x);
    return 0;
}

enum {
    SEEN,
    END
}; /* what the map says of an id; END: the last full block of a prompt that was the first to have it
    */

/* Adds r's blocks to those seen.  *hits: how many of its leading ones were there; *goes_on: one of
 * these ended a prompt. */
static int see(struct wp_map *seen, const struct wp_trace_req *r, uint32_t *hits, bool *goes_on)
{
    uint32_t full = r->input / WP_TRACE_BLOCK, i = 0;
    uint64_t *kind, *end = NULL;
    int rc = 0;

    for (; i < r->n_ids && (kind = wp_map_at(seen, r->id[i])); i++)
        end = *kind == END ? kind : end;
    *hits = i;
    *goes_on = end != NULL;
    if (end)
        *end = SEEN; /* a prompt is gone on from once: what many share is no session */
    for (; i < r->n_ids && rc == 0; i++) {
        if (!wp_map_at(seen, r->id[i]))
            rc = wp_map_put(seen, r->id[i], i + 1 == full ? END : SEEN);
    }
    return rc;
}

int wp_trace_stats(const struct wp_trace *t, struct wp_trace_stats *s)
{
    struct wp_map seen = {0};
    double input = 0, output = 0, hit = 0;
    int rc = 0;

    *s = (struct wp_trace_stats){.requests = t->n};
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        const struct wp_trace_req *r = &t->req[i];
        uint32_t hits = 0;
        bool goes_on = false;

        rc = see(&seen, r, &hits, &goes_on);
        s->sessions += !goes_on;
        input += r->input;
        output += r->output;
        hit += (uint64_t)hits * WP_TRACE_BLOCK < r->input ? (double)hits * WP_TRACE_BLOCK
                                                          : (double)r->input - 1;
    }
    if (rc == 0)
        rc = percentiles(t, s);
    s->blocks = seen.n;
    wp_map_fini(&seen);
    if (rc < 0 || t->n == 0)
        return rc;
    s->duration_s = (double)(t->req[t->n - 1].at_us - t->req[0].at_us) / 1e6;
    s->input_mean = input / (double)t->n;
    s->output_mean = output / (double)t->n;
    s->hit = hit / input;
    return 0;
}
