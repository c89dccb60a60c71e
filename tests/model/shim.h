/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/model/shim.h - included before each file of the model's build (-include): atomic operations become calls of
 * the scheduler. One thread runs everything, so a plain access after wp_model_op() is as atomic as it need be, and
 * _Atomic itself means nothing. What the index does not use yet is taken away below, and would not link. Memory
 * orders are ignored: the model is sequentially consistent.  What weaker machines do is ThreadSanitizer's part (make
 * tsan).
 */
#ifndef WP_TESTS_MODEL_SHIM_H
#define WP_TESTS_MODEL_SHIM_H

#include <stdatomic.h>
#include <stddef.h>

enum wp_model_kind { WP_MODEL_LOAD, WP_MODEL_STORE, WP_MODEL_CHANGE };
void wp_model_op(const volatile void *at, enum wp_model_kind kind, const char *file, int line);

#define _Atomic
#undef atomic_init
#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_exchange
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_strong

#define WP_MODEL_AT(p, kind)                                        \
    __typeof__(p) wp_model_at = (p);                                \
    wp_model_op(wp_model_at, WP_MODEL_##kind, __FILE__, __LINE__)
#define atomic_init(p, v) ((void)(*(p) = (v)))
/* What a pointer leads to is plain memory, so between its load and its use there is another point. */
#define WP_MODEL_IS_POINTER(v) (__builtin_classify_type(v) == 5)
#define atomic_load(p)                                              \
    __extension__({                                                 \
        WP_MODEL_AT(p, LOAD);                                       \
        __typeof__(*(p)) wp_model_v = *wp_model_at;                 \
        if (WP_MODEL_IS_POINTER(wp_model_v))                        \
            wp_model_op(wp_model_at, WP_MODEL_LOAD, __FILE__, __LINE__); \
        wp_model_v;                                                 \
    })
#define atomic_store(p, v)                                          \
    __extension__({                                                 \
        __typeof__(*(p)) wp_model_v = (v);                          \
        WP_MODEL_AT(p, STORE);                                      \
        *wp_model_at = wp_model_v;                                  \
        (void)0;                                                    \
    })
#define atomic_fetch_add(p, v)                                      \
    __extension__({                                                 \
        WP_MODEL_AT(p, CHANGE);                                     \
        __typeof__(*(p)) wp_model_old = *wp_model_at;               \
        *wp_model_at += (v);                                        \
        wp_model_old;                                               \
    })
#define atomic_compare_exchange_strong(p, want, v)                  \
    __extension__({                                                 \
        WP_MODEL_AT(p, CHANGE);                                     \
        _Bool wp_model_same = *wp_model_at == *(want);              \
        if (wp_model_same)                                          \
            *wp_model_at = (v);                                     \
        else                                                        \
            *(want) = *wp_model_at;                                 \
        wp_model_same;                                              \
    })
#define atomic_load_explicit(p, order) atomic_load(p)
#define atomic_store_explicit(p, v, order) atomic_store(p, v)
#define atomic_fetch_add_explicit(p, v, order) atomic_fetch_add(p, v)
#define atomic_compare_exchange_weak(p, want, v) atomic_compare_exchange_strong(p, want, v)

#endif
