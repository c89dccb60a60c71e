/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES_FIRST = 16 << 20, PAGES_TIMES = 8, PAGES_ALIGN = WP_HUGE_PAGE };

static _Atomic long live;
static _Thread_local long fail_in =
    -1; /* allocations of this thread until one fails; negative: never */
static _Thread_local bool failed;

static bool fails_now(void)
{
    if (fail_in < 0)
        return false;
    if (fail_in-- > 0)
        return false;
    failed = true;
    return true;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

void *wp_malloc(size_t size)
{
    return fails_now() ? NULL : counted(malloc(size ? size : 1));
}

void *wp_calloc(size_t n, size_t size)
{
    size_t all;

    if (fails_now() || __builtin_mul_overflow(n, size, &all))
        return NULL; /* a sanitizer's calloc ends the process instead */
    return counted(calloc(all ? all : 1, 1));
}

void *wp_realloc(void *p, size_t size)
{
    void *q;

    if (fails_now())
        return NULL;
    q = realloc(p, size ? size : 1);
    return p ? q : counted(q);
}

void *wp_huge_alloc(size_t n)
{
    void *p = wp_aligned_alloc(PAGES_ALIGN, n * PAGES_ALIGN);

    if (p)
        madvise(p, n * PAGES_ALIGN, MADV_HUGEPAGE);
    return p;
}

void *wp_aligned_alloc(size_t align, size_t size)
{
    void *p = NULL;

    if (fails_now() || posix_memalign(&p, align, size) != 0)
        return NULL;
    return counted(p);
}

char *wp_strndup(const char *s, size_t n)
{
    char *p = wp_malloc(n + 1);

    if (!p)
        return NULL;
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *wp_strdup(const char *s)
{
    return wp_strndup(s, strlen(s));
}

void *wp_memdup(const void *p, size_t n)
{
    void *q = wp_malloc(n);

    if (q && n)
        memcpy(q, p, n);
    return q;
}

void wp_free(void *p)
{
    if (!p)
        return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(p);
}

/* Addresses, aligned so that the kernel can move what stands there by whole page tables. */
static char *reserve(size_t bytes)
{
    char *p = mmap(NULL, bytes + PAGES_ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before = -(uintptr_t)p % PAGES_ALIGN;

    if (p == MAP_FAILED)
        return NULL;
    if (before)
        munmap(p, before);
    munmap(p + before + bytes, PAGES_ALIGN - before);
    return p + before;
}

static bool pages_move(struct wp_pages *p, size_t bytes)
{
    size_t wide = p->reserved ? p->reserved : PAGES_FIRST;
    char *at;

    while (wide < bytes) {
        if (wide > SIZE_MAX / 2 / PAGES_TIMES)
            return false;
        wide *= PAGES_TIMES;
    }
    at = reserve(wide);
    if (!at)
        return false;
    if (p->at) {
        if (mremap(p->at, p->bytes, p->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
            munmap(at, wide);
            return false;
        }
        munmap(p->at + p->bytes, p->reserved - p->bytes);
    } else {
        counted(at);
    }
    p->at = at;
    p->reserved = wide;
    return true;
}

bool wp_pages_grow(struct wp_pages *p, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), wide = (bytes + page - 1) & ~(page - 1);

    if (wide <= p->bytes)
        return true;
    if (fails_now() || wide < bytes)
        return false;
    if (wide > p->reserved && !pages_move(p, wide))
        return false;
    if (mprotect(p->at + p->bytes, wide - p->bytes, PROT_READ | PROT_WRITE) != 0) {
        if (!p->bytes)
            wp_pages_fini(p);
        return false;
    }
    if (wide >= PAGES_ALIGN) /* to clear one is a stall of some 0.1 ms, once; to do without costs
                                half of the speed for ever */
        madvise(p->at, wide / PAGES_ALIGN * PAGES_ALIGN, MADV_HUGEPAGE);
    p->bytes = wide;
    return true;
}

void wp_pages_touch(struct wp_pages *p)
{
#ifdef MADV_POPULATE_WRITE
    if (p->bytes)
        madvise(p->at, p->bytes, MADV_POPULATE_WRITE); /* where it cannot, each page is found when it is touched */
#endif
}

void wp_pages_drop(struct wp_pages *p, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    from = (from + page - 1) & ~(page - 1);
    to &= ~(page - 1);
    if (from < to)
        madvise(p->at + from, to - from, MADV_DONTNEED);
}

void wp_pages_fini(struct wp_pages *p)
{
    if (p->at) {
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
        munmap(p->at, p->reserved);
    }
    *p = (struct wp_pages){0};
}

void wp_mem_fail_after(long n)
{
    fail_in = n;
    failed = false;
}

bool wp_mem_failed(void)
{
    return failed;
}

long wp_mem_live(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}

struct wp_arena_chunk {
    struct wp_arena_chunk *next;
    size_t used, size; /* of data, in bytes */
    _Alignas(16) char data[];
};

void *wp_arena_alloc(struct wp_arena *a, size_t size)
{
    struct wp_arena_chunk *c = a->chunks;
    size_t room = 4096 - sizeof *c;
    void *p;

    if (size > SIZE_MAX - 4096)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    if (!c || c->size - c->used < size) {
        if (size > room)
            room = size;
        c = wp_malloc(sizeof *c + room);
        if (!c)
            return NULL;
        c->next = a->chunks;
        c->used = 0;
        c->size = room;
        a->chunks = c;
        a->bytes += sizeof *c + room;
    }
    p = c->data + c->used;
    c->used += size;
    return p;
}

char *wp_arena_strndup(struct wp_arena *a, const char *s, size_t n)
{
    char *p = wp_arena_alloc(a, n + 1);

    if (!p)
        return NULL;
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}

void wp_arena_fini(struct wp_arena *a)
{
    while (a->chunks) {
        struct wp_arena_chunk *next = a->chunks->next;

        wp_free(a->chunks);
        a->chunks = next;
    }
    a->bytes = 0;
}

struct wp_blob *wp_blob_adopt(char *p, size_t n)
{
    struct wp_blob *b = wp_malloc(sizeof *b);

    if (!b) {
        wp_free(p);
        return NULL;
    }
    atomic_init(&b->refs, 1);
    b->n = n;
    b->p = p;
    return b;
}

struct wp_blob *wp_blob_copy(const void *p, size_t n)
{
    char *q = wp_memdup(p, n);

    return q ? wp_blob_adopt(q, n) : NULL;
}

struct wp_blob *wp_blob_ref(struct wp_blob *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void wp_blob_unref(struct wp_blob *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    wp_free(b->p);
    wp_free(b);
}
