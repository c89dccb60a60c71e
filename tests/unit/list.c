/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"
#include "tests/lib/test.h"

struct item {
    struct wp_list link;
    int n;
};

static void pushes_come_out_in_order(void)
{
    struct wp_list head;
    struct item it[3] = {{.n = 1}, {.n = 2}, {.n = 3}};

    wp_list_init(&head);
    for (int i = 0; i < 3; i++)
        wp_list_push(&head, &it[i].link);
    for (int i = 0; i < 3; i++)
        EXPECT_INT("order", i + 1, WP_CONTAINER(wp_list_shift(&head), struct item, link)->n);
    EXPECT_TRUE("empty", wp_list_empty(&head) && wp_list_shift(&head) == NULL);
}

static void an_item_may_be_deleted_while_the_list_is_walked_and_twice(void)
{
    struct wp_list head;
    struct item it[3] = {{.n = 1}, {.n = 2}, {.n = 3}};
    int seen = 0;

    wp_list_init(&head);
    for (int i = 0; i < 3; i++)
        wp_list_push(&head, &it[i].link);
    WP_LIST_EACH(&head, at)
    {
        seen++;
        wp_list_del(at);
        wp_list_del(at);
    }
    EXPECT_INT("visited", 3, seen);
    EXPECT_TRUE("empty", wp_list_empty(&head));
}

const struct wp_suite suite_list = {
    "list",
    (const struct wp_test[]){
        {"pushes come out in order", pushes_come_out_in_order},
        {"an item may be deleted while the list is walked, and twice",
         an_item_may_be_deleted_while_the_list_is_walked_and_twice},
        {NULL, NULL},
    },
};
