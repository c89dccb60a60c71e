/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A race on purpose, in our own code: two threads put into one map, which its header forbids.
 * ThreadSanitizer must report it; if it stays silent, the suite that runs under it proves nothing
 * (not instrumented, or suppressed too widely). `planted locked` does the same with a lock and must
 * run clean.
 */
#include "base/map.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { KEYS = 64 };

struct shared {
    struct wp_map map;
    pthread_mutex_t lock;
    bool locked;
};

static void *put_all(void *arg)
{
    struct shared *s = arg;

    for (uint64_t key = 0; key < KEYS; key++) {
        if (s->locked)
            pthread_mutex_lock(&s->lock);
        (void)wp_map_put(&s->map, key, key);
        if (s->locked)
            pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct shared s = {.lock = PTHREAD_MUTEX_INITIALIZER,
                       .locked = argc > 1 && strcmp(argv[1], "locked") == 0};
    pthread_t thread[2];

    for (uint64_t key = 0; key < KEYS; key++) /* so that no put has to grow it */
        if (wp_map_put(&s.map, key, 0) < 0)
            return 1;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, put_all, &s) != 0)
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    wp_map_fini(&s.map);
    puts("done");
    return 0;
}
