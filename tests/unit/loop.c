/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "net/loop.h"
#include "tests/lib/test.h"

static struct wp_loop *started(struct wp_loop *l)
{
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("init", 0, wp_loop_init(l, &err));
    return l;
}

struct note {
    struct wp_timer t;
    struct wp_loop *l;
    uint64_t *last;
    int *fired, stop_at;
    struct note *victim;
    int rearms;
};

static void on_note(struct wp_timer *t)
{
    struct note *n = t->arg;

    EXPECT_TRUE("not early", t->at_us <= wp_now_us());
    if (n->last) {
        EXPECT_TRUE("in order", *n->last <= t->at_us);
        *n->last = t->at_us;
    }
    if (n->victim)
        wp_timer_stop(n->l, &n->victim->t);
    if (n->rearms-- > 0)
        wp_timer_in(n->l, t, 0);
    if (++*n->fired == n->stop_at)
        wp_loop_stop(n->l);
}

static void timers_fire_in_the_order_of_their_deadlines(void)
{
    enum { N = 2000 };
    struct wp_rng rng = {7};
    struct wp_loop l;
    struct note *n = wp_calloc(N, sizeof *n);
    uint64_t last = 0, base;
    int fired = 0, armed = 0;

    started(&l);
    base = wp_now_us();
    for (int i = 0; i < N; i++) {
        wp_timer_init(&n[i].t, on_note, &n[i]);
        n[i].l = &l;
        n[i].last = &last;
        n[i].fired = &fired;
        wp_timer_at(&l, &n[i].t, base - 5000 + wp_rng_below(&rng, 10000));
    }
    for (int i = 0; i < N; i++) /* move some, stop some: the heap must stay one */
        if (i % 3 == 0)
            wp_timer_at(&l, &n[i].t, base - 5000 + wp_rng_below(&rng, 10000));
        else if (i % 5 == 0)
            wp_timer_stop(&l, &n[i].t);
    for (int i = 0; i < N; i++)
        armed += n[i].t.armed;
    for (int i = 0; i < N; i++)
        n[i].stop_at = armed;
    EXPECT_INT("nothing fires inside wp_timer_at", 0, fired);
    EXPECT_INT("run", 0, wp_loop_run(&l));
    EXPECT_INT("each once", armed, fired);
    wp_loop_fini(&l);
    wp_free(n);
}

static void a_timer_may_stop_its_neighbour_that_is_due_as_well(void)
{
    struct wp_loop l;
    struct note a = {0}, b = {0};
    int fired = 0;

    started(&l);
    a = (struct note){.l = &l, .fired = &fired, .victim = &b, .stop_at = 1};
    b = (struct note){.l = &l, .fired = &fired, .victim = &a, .stop_at = 1};
    wp_timer_init(&a.t, on_note, &a);
    wp_timer_init(&b.t, on_note, &b);
    wp_timer_at(&l, &a.t, 1);
    wp_timer_at(&l, &b.t, 2);
    EXPECT_INT("run", 0, wp_loop_run(&l));
    EXPECT_INT("one of them", 1, fired);
    EXPECT_TRUE("none is armed", !a.t.armed && !b.t.armed && !l.timers);
    wp_loop_fini(&l);
}

struct letter {
    struct wp_letter letter;
    struct wp_loop *l;
    int n, *next;
    struct wp_timer *victim;
    bool stop;
};

static void on_letter(struct wp_letter *letter)
{
    struct letter *m = WP_CONTAINER(letter, struct letter, letter);

    EXPECT_INT("order", (*m->next)++, m->n);
    if (m->victim)
        wp_timer_stop(m->l, m->victim);
    if (m->stop)
        wp_loop_stop(m->l);
}

static void a_timer_that_rearms_itself_lets_others_work(void)
{
    struct wp_loop l;
    struct note a = {0};
    struct letter m = {0};
    int fired = 0, next = 0;

    started(&l);
    a = (struct note){.l = &l, .fired = &fired, .rearms = 1 << 30};
    m = (struct letter){
        .letter.fn = on_letter, .l = &l, .next = &next, .victim = &a.t, .stop = true};
    wp_timer_init(&a.t, on_note, &a);
    wp_timer_in(&l, &a.t, 0);
    wp_loop_post(&l, &m.letter);
    EXPECT_INT("run", 0, wp_loop_run(&l));
    EXPECT_INT("the letter came", 1, next);
    EXPECT_TRUE("stopped", !a.t.armed);
    wp_loop_fini(&l);
}

enum { LETTERS = 1000 };

static void *post_all(void *arg)
{
    struct letter *m = arg;

    for (int i = 0; i < LETTERS; i++)
        wp_loop_post(m[i].l, &m[i].letter);
    return NULL;
}

static void letters_of_another_thread_arrive_in_order(void)
{
    struct letter *m = wp_calloc(LETTERS, sizeof *m);
    struct wp_loop l;
    pthread_t thread;
    int next = 0;

    started(&l);
    for (int i = 0; i < LETTERS; i++)
        m[i] = (struct letter){
            .letter.fn = on_letter, .l = &l, .n = i, .next = &next, .stop = i == LETTERS - 1};
    pthread_create(&thread, NULL, post_all, m);
    EXPECT_INT("run", 0, wp_loop_run(&l));
    pthread_join(thread, NULL);
    EXPECT_INT("all", LETTERS, next);
    wp_loop_fini(&l);
    wp_free(m);
}

static void a_letter_that_nobody_waited_for_is_delivered_at_the_end(void)
{
    struct wp_loop l;
    struct letter m = {0};
    int next = 0;

    started(&l);
    m = (struct letter){.letter.fn = on_letter, .l = &l, .next = &next};
    wp_loop_stop(&l);
    EXPECT_INT("run", 0, wp_loop_run(&l));
    wp_loop_post(&l, &m.letter);
    wp_loop_fini(&l);
    EXPECT_INT("delivered", 1, next);
}

static void out_of_memory_is_an_error(void)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_loop l;
    long live = wp_mem_live();

    wp_mem_fail_after(0);
    EXPECT_INT("init", WP_ENOMEM, wp_loop_init(&l, &err));
    wp_mem_fail_after(-1);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

const struct wp_suite suite_loop = {
    "loop",
    (const struct wp_test[]){
        {"timers fire in the order of their deadlines",
         timers_fire_in_the_order_of_their_deadlines},
        {"a timer may stop its neighbour that is due as well",
         a_timer_may_stop_its_neighbour_that_is_due_as_well},
        {"a timer that rearms itself lets others work",
         a_timer_that_rearms_itself_lets_others_work},
        {"letters of another thread arrive in order", letters_of_another_thread_arrive_in_order},
        {"a letter that nobody waited for is delivered at the end",
         a_letter_that_nobody_waited_for_is_delivered_at_the_end},
        {"out of memory is an error", out_of_memory_is_an_error},
        {NULL, NULL},
    },
};
