/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/mem.h - every allocation of ours goes through here, so that a test can make any one of them fail.
 * Three lifetimes suffice: process (made in main, ended in reverse), request (an arena, dropped whole) and
 * shared (a counted blob).
 * Threads: all functions may be called from any thread.  An arena belongs to one thread at a time.
 * Cost: one relaxed atomic add beside what malloc costs.
 */
#ifndef WP_BASE_MEM_H
#define WP_BASE_MEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* As their namesakes of the C library; NULL when out of memory.  wp_calloc clears and checks the product. */
void *wp_malloc(size_t size);
void *wp_calloc(size_t n, size_t size);
void *wp_realloc(void *p, size_t size);
char *wp_strdup(const char *s);
char *wp_strndup(const char *s, size_t n); /* n bytes exactly, then a zero */
void *wp_memdup(const void *p, size_t n);
enum { WP_HUGE_PAGE = 2 << 20 };
void *wp_huge_alloc(size_t n); /* n huge pages, if the kernel has any; not cleared; wp_free() them */
void *wp_aligned_alloc(size_t align, size_t size); /* align: a power of two, at least a pointer's size; not cleared */
void wp_free(void *p); /* NULL does nothing */

/*
 * A large table that grows where it is: addresses are reserved far beyond what is in use, and pages, cleared and never
 * huge ones, come straight from the system and go back to it.  {0} is none.
 */
enum { WP_PAGE = 4096 };
struct wp_pages {
    char *at;
    size_t bytes, reserved; /* usable; addresses */
};

/* So many bytes are usable now, if there were less.  Beyond the reserved addresses (16 MB, then eight times as many)
 * all moves to others, which copies nothing.  False: no memory, and all is as before. */
bool wp_pages_grow(struct wp_pages *p, size_t bytes);
/* Gives back what is resident there, from and to being multiples of WP_PAGE; it stays usable, as zeros. */
void wp_pages_drop(struct wp_pages *p, size_t from, size_t to);
void wp_pages_touch(struct wp_pages *p); /* has the memory found now, all at once: cheaper than page by page */
void wp_pages_fini(struct wp_pages *p);

/*
 * For tests.  wp_mem_fail_after(n) makes the n-th next allocation of this thread fail, counted from 0, once;
 * a negative n switches that off.  wp_mem_failed() tells whether it has happened.  wp_mem_live() is the number
 * of allocations of the whole process that have not been freed.
 */
void wp_mem_fail_after(long n);
bool wp_mem_failed(void);
long wp_mem_live(void);

/* A region that is freed as a whole.  {0} is an empty one. */
struct wp_arena {
    struct wp_arena_chunk *chunks; /* newest first */
    size_t bytes;                  /* held from the allocator in all, for caps and metrics */
};

/* Aligned to 16.  NULL when out of memory.  Memory is not cleared. */
void *wp_arena_alloc(struct wp_arena *a, size_t size);
char *wp_arena_strndup(struct wp_arena *a, const char *s, size_t n);
void wp_arena_fini(struct wp_arena *a);

/*
 * Bytes that several owners read, such as a request's body while attempts are in flight.  Each holder has
 * one reference; the last to drop it frees it.  The bytes never change once a second reference exists.
 */
struct wp_blob {
    _Atomic unsigned refs;
    size_t n;
    char *p;
};

/* Takes ownership of p (from wp_malloc and kin, may be NULL when n is 0), also on failure.  One reference. */
struct wp_blob *wp_blob_adopt(char *p, size_t n);
struct wp_blob *wp_blob_copy(const void *p, size_t n);
struct wp_blob *wp_blob_ref(struct wp_blob *b);
void wp_blob_unref(struct wp_blob *b); /* NULL does nothing */

#endif
