/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/list.h - doubly linked lists whose links live in the items.
 * A list head is a link that points to itself when empty.  An item that is in no list has a link that points to
 * itself too (wp_list_init), so wp_list_del() may be called twice.
 */
#ifndef WP_BASE_LIST_H
#define WP_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct wp_list {
    struct wp_list *next, *prev;
};

#define WP_CONTAINER(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* Walks a list; the item at hand may be deleted. */
#define WP_LIST_EACH(head, it)                                                                     \
    for (struct wp_list *it = (head)->next, *it##_next = it->next; it != (head);                   \
         it = it##_next, it##_next = it->next)

static inline void wp_list_init(struct wp_list *l)
{
    l->next = l->prev = l;
}

static inline bool wp_list_empty(const struct wp_list *l)
{
    return l->next == l;
}

static inline void wp_list_insert(struct wp_list *prev, struct wp_list *it)
{
    it->next = prev->next;
    it->prev = prev;
    prev->next->prev = it;
    prev->next = it;
}

static inline void wp_list_push(struct wp_list *head, struct wp_list *it) /* at the end */
{
    wp_list_insert(head->prev, it);
}

static inline void wp_list_del(struct wp_list *it)
{
    it->prev->next = it->next;
    it->next->prev = it->prev;
    wp_list_init(it);
}

static inline struct wp_list *wp_list_shift(struct wp_list *head) /* the first one out, or NULL */
{
    struct wp_list *it = head->next;

    if (it == head)
        return NULL;
    wp_list_del(it);
    return it;
}

#endif
