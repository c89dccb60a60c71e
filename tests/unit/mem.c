/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <string.h>

static void what_lives_is_counted(void)
{
    long before = wp_mem_live();
    void *a = wp_malloc(0), *b = wp_calloc(3, 5), *c = wp_memdup("xy", 2);
    char *d = wp_strdup("abc"), *e = wp_strndup("abcdef", 3);

    EXPECT_INT("five", before + 5, wp_mem_live());
    EXPECT_TRUE("a text's copies", strcmp(d, e) == 0 && d != e);
    EXPECT_TRUE("cleared", memcmp(b, (char[15]){0}, 15) == 0);
    a = wp_realloc(a, 100);
    c = wp_realloc(c, 0);
    EXPECT_INT("a new size is no new one", before + 5, wp_mem_live());
    wp_free(a);
    wp_free(b);
    wp_free(c);
    wp_free(d);
    wp_free(e);
    wp_free(NULL);
    a = wp_realloc(NULL, 7);
    EXPECT_INT("of nothing it is", before + 1, wp_mem_live());
    wp_free(a);
    EXPECT_INT("none", before, wp_mem_live());
    EXPECT_TRUE("too much", wp_calloc((size_t)-1, 16) == NULL);
    EXPECT_INT("what failed does not live", before, wp_mem_live());
}

static void *other_thread(void *arg)
{
    void *p = wp_malloc(1);

    *(bool *)arg = p != NULL && !wp_mem_failed();
    wp_free(p);
    return NULL;
}

static void one_allocation_of_this_thread_can_be_made_to_fail(void)
{
    bool fine = false;
    pthread_t t;
    void *p[3];

    wp_mem_fail_after(1);
    if (pthread_create(&t, NULL, other_thread, &fine) == 0)
        pthread_join(t, NULL);
    EXPECT_TRUE("another thread's does not", fine);
    EXPECT_TRUE("not yet", !wp_mem_failed());
    for (int i = 0; i < 3; i++)
        p[i] = wp_malloc(8);
    EXPECT_TRUE("the second, once", p[0] && !p[1] && p[2]);
    EXPECT_TRUE("told", wp_mem_failed());
    wp_mem_fail_after(0);
    EXPECT_TRUE("grown", wp_realloc(p[0], 1000) == NULL);
    wp_mem_fail_after(-1);
    EXPECT_TRUE("off", !wp_mem_failed());
    wp_free(p[0]); /* still there */
    wp_free(p[2]);
}

static void an_arena_gives_aligned_room_and_goes_whole(void)
{
    long before = wp_mem_live();
    struct wp_arena a = {0};
    size_t held = 0;

    for (size_t size = 0; size < 10000; size += 77) {
        char *p = wp_arena_alloc(&a, size);

        EXPECT_TRUE("aligned", p && ((uintptr_t)p & 15) == 0);
        memset(p, 0xA5, size); /* a sanitizer sees an overlap with the chunk's end */
        held += size;
    }
    EXPECT_TRUE("bytes are counted", a.bytes >= held);
    EXPECT_TEXT("text", "abc", wp_str_of(wp_arena_strndup(&a, "abcdef", 3)));
    EXPECT_TRUE("no overflow", wp_arena_alloc(&a, (size_t)-1) == NULL);
    EXPECT_TRUE("no overflow", wp_arena_alloc(&a, (size_t)-4096) == NULL);
    wp_arena_fini(&a);
    EXPECT_UINT("empty", 0, a.bytes);
    EXPECT_INT("nothing leaks", before, wp_mem_live());
    wp_mem_fail_after(0);
    EXPECT_TRUE("no memory", wp_arena_alloc(&a, 1) == NULL);
    wp_mem_fail_after(-1);
    EXPECT_UINT("still empty", 0, a.bytes);
    wp_arena_fini(&a);
}

static void small_pieces_share_a_chunk(void)
{
    long before = wp_mem_live();
    struct wp_arena a = {0};

    for (int i = 0; i < 100; i++)
        wp_arena_alloc(&a, 16);
    EXPECT_INT("one chunk", before + 1, wp_mem_live());
    wp_arena_fini(&a);
}

static void *hold_and_drop(void *arg)
{
    for (int i = 0; i < 1000; i++) {
        struct wp_blob *b = wp_blob_ref(arg);

        if (b->n != 5 || memcmp(b->p, "hello", 5) != 0)
            return arg;
        wp_blob_unref(b);
    }
    wp_blob_unref(arg);
    return NULL;
}

static void the_last_holder_frees_a_blob(void)
{
    long before = wp_mem_live();
    struct wp_blob *b = wp_blob_copy("hello", 5);
    pthread_t t[3];
    void *bad;

    for (int i = 0; i < 3; i++) {
        wp_blob_ref(b);
        if (pthread_create(&t[i], NULL, hold_and_drop, b) != 0)
            return;
    }
    wp_blob_unref(b);
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], &bad);
        EXPECT_TRUE("the bytes stay", bad == NULL);
    }
    EXPECT_INT("gone", before, wp_mem_live());
    wp_blob_unref(NULL);
    wp_blob_unref(wp_blob_adopt(NULL, 0));
    for (long nth = 0; nth < 2; nth++) {
        char *p = wp_strdup("x");

        wp_mem_fail_after(0);
        EXPECT_TRUE("takes ownership also on failure", wp_blob_adopt(p, 1) == NULL);
        wp_mem_fail_after(nth);
        EXPECT_TRUE("no copy", wp_blob_copy("x", 1) == NULL);
        wp_mem_fail_after(-1);
    }
    EXPECT_INT("nothing leaks", before, wp_mem_live());
}

static void pages_grow_where_they_are_and_move_whole(void)
{
    struct wp_pages p = {0};
    size_t small = 3 * WP_PAGE, large = (size_t)(20 << 20);
    long live = wp_mem_live();
    char *first;

    EXPECT_TRUE("grow", wp_pages_grow(&p, small));
    first = p.at;
    EXPECT_UINT("aligned", 0, (uintptr_t)first % WP_PAGE);
    EXPECT_INT("counted", live + 1, wp_mem_live());
    memset(p.at, 'x', small);
    EXPECT_TRUE("not more is there already", wp_pages_grow(&p, WP_PAGE));
    EXPECT_TRUE("grow in place", wp_pages_grow(&p, small * 100));
    EXPECT_TRUE("at the same address", p.at == first);
    EXPECT_TRUE("clear", p.at[small * 100 - 1] == 0);
    wp_mem_fail_after(0);
    EXPECT_TRUE("made to fail", !wp_pages_grow(&p, large));
    wp_mem_fail_after(-1);
    EXPECT_TRUE("as before", p.at == first && p.at[small - 1] == 'x');
    EXPECT_TRUE("no such memory", !wp_pages_grow(&p, SIZE_MAX / 2));
    EXPECT_TRUE("grow beyond the addresses", wp_pages_grow(&p, large));
    EXPECT_TRUE("contents came along", p.at[0] == 'x' && p.at[small - 1] == 'x');
    p.at[large - 1] = 'z';
    wp_pages_drop(&p, 0, 64 << 10);
    EXPECT_TRUE("dropped, clear", p.at[0] == 0);
    wp_pages_fini(&p);
    wp_pages_fini(&p);
    EXPECT_INT("gone", live, wp_mem_live());
}

const struct wp_suite suite_mem = {
    "mem",
    (const struct wp_test[]){
        {"what lives is counted", what_lives_is_counted},
        {"one allocation of this thread can be made to fail",
         one_allocation_of_this_thread_can_be_made_to_fail},
        {"an arena gives aligned room and goes whole", an_arena_gives_aligned_room_and_goes_whole},
        {"small pieces share a chunk", small_pieces_share_a_chunk},
        {"pages grow where they are and move whole", pages_grow_where_they_are_and_move_whole},
        {"the last holder frees a blob", the_last_holder_frees_a_blob},
        {NULL, NULL},
    },
};
