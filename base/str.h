/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/str.h - slices of text that somebody else owns, and byte buffers that grow to a limit.
 */
#ifndef WP_BASE_STR_H
#define WP_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* n bytes at p, not ended by a zero.  An empty slice may have p == NULL: that means absent where it matters. */
struct wp_str {
    const char *p;
    size_t n;
};

#define WP_STR(lit) ((struct wp_str){"" lit, sizeof(lit) - 1})
#define WP_STR_INIT(lit) {"" lit, sizeof(lit) - 1} /* for a static table */
#define WP_STR_FMT "%.*s"
#define WP_STR_ARG(s) (int)((s).n > 4096 ? 4096 : (s).n), ((s).p ? (s).p : "")

/* Here, so that the length of a literal is known where it is compared with. */
static inline struct wp_str wp_str_of(const char *s) /* NULL gives an absent slice */
{
    return (struct wp_str){s, s ? strlen(s) : 0};
}
static inline bool wp_str_eq(struct wp_str a, struct wp_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool wp_str_is(struct wp_str a, const char *b)
{
    return wp_str_eq(a, wp_str_of(b));
}
bool wp_letters_alike(const char *a, const char *b, size_t n);
static inline bool wp_str_ieq(struct wp_str a, struct wp_str b) /* ASCII letters alike */
{
    return a.n == b.n && wp_letters_alike(a.p, b.p, a.n);
}
static inline bool wp_str_iis(struct wp_str a, const char *b)
{
    return wp_str_ieq(a, wp_str_of(b));
}
bool wp_str_starts(struct wp_str a, const char *prefix);
struct wp_str wp_str_trim(struct wp_str a); /* blanks, tabs, CR, LF off both ends */

/* Cuts the part before the first sep off *rest (all of it when there is none).  False when *rest is absent. */
bool wp_str_split(struct wp_str *rest, char sep, struct wp_str *part);

/* Whole-string numbers: digits only for u64; what C's grammar has, finite, for double.  Locale plays no part. */
bool wp_str_u64(struct wp_str a, uint64_t *out);
bool wp_str_i64(struct wp_str a, int64_t *out);
bool wp_str_double(struct wp_str a, double *out);

/* Bytes with an optional K, M, G, T (10^3k) or Ki, Mi, Gi, Ti (2^10k) behind: "64Mi". */
bool wp_str_bytes(struct wp_str a, uint64_t *out);

/*
 * The entry of list[n] that is most like word, or NULL when none is close (more than a third of its letters
 * differ).  Cost: O(n * |word|^2).  Source: Levenshtein's distance.
 */
const char *wp_str_nearest(struct wp_str word, const char *const list[], size_t n);

/*
 * A byte buffer.  {0} with a max set is an empty one; max 0 means no limit but memory.
 * Errors: WP_ENOMEM; WP_ETOOBIG past max.  After an error the buffer is as before.
 */
struct wp_buf {
    char *p;
    size_t n, cap, max;
};

int wp_buf_reserve(struct wp_buf *b, size_t more); /* room for that many bytes beyond n */
int wp_buf_add(struct wp_buf *b, const void *p, size_t n);
int wp_buf_adds(struct wp_buf *b, const char *s);
/* Needs room for a zero behind, which is not counted. */
int wp_buf_printf(struct wp_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int wp_buf_vprintf(struct wp_buf *b, const char *fmt, va_list ap);
void wp_buf_consume(struct wp_buf *b, size_t n); /* drops the first n bytes; moves the rest down */
char *wp_buf_take(struct wp_buf *b, size_t *n);  /* the bytes are the caller's now (wp_free), b is empty */
void wp_buf_fini(struct wp_buf *b);
static inline struct wp_str wp_buf_str(const struct wp_buf *b)
{
    return (struct wp_str){b->p, b->n};
}

/* The bytes of the UTF-8 sequence at p, or 0 when there is none (overlong, surrogate, cut); n > 0. */
size_t wp_utf8_len(const char *p, size_t n);

/* Appends s as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD. */
int wp_buf_json(struct wp_buf *b, struct wp_str s);

#endif
