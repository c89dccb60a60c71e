/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/load_impl.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void tell_done(struct wp_timer *t)
{
    struct wp_load *load = t->arg;

    if (load->done)
        load->done(load->arg);
}

static void check_done(struct wp_load *load)
{
    if (load->told || load->in_flight || (!load->stopped && load->sent < load->trace->n))
        return;
    load->told = true;
    wp_timer_in(load->loop, &load->tell, 0); /* later than the call that brought it about */
}

static uint64_t due_us(const struct wp_load *load, size_t i)
{
    double at = (double)(load->trace->req[i].at_us - load->trace->req[0].at_us);

    return load->start_us + (uint64_t)(at / (load->conf.scale * load->conf.speed));
}

static bool has_room(const struct wp_load *load)
{
    return load->conf.in_flight == 0 || load->in_flight < load->conf.in_flight;
}

/* All that is due by the exact clock; then sleeps until the next. */
static void fire_due(struct wp_load *load)
{
    while (!load->stopped && load->sent < load->trace->n && has_room(load)) {
        uint64_t due = due_us(load, load->sent), now = wp_now_us();
        size_t i = load->sent;

        if (due > now) {
            wp_timer_at(load->loop, &load->next, due);
            return;
        }
        load->late[load->sent++] = (double)(now - due) * 1e-6;
        load->in_flight++;
        if (wp_shot_fire(load, i, due) < 0) {
            load->in_flight--;
            load->ended++;
            load->failed++;
            wp_load_error(load, i, "out of memory");
        }
    }
    check_done(load);
}

static void on_next(struct wp_timer *t)
{
    fire_due(t->arg);
}

void wp_load_shot_over(struct wp_load *load)
{
    load->in_flight--;
    if (load->conf.in_flight && !load->stopped)
        fire_due(load); /* somebody may have waited for room */
    else
        check_done(load);
}

void wp_load_error(struct wp_load *load, size_t i, const char *kind)
{
    size_t k = 0;

    if (i < load->conf.warmup) {
        load->warm_failed++;
        return;
    }
    while (k < WP_LOAD_KINDS - 1 && load->kind[k].n && strcmp(load->kind[k].name, kind) != 0)
        k++;
    if (load->kind[k].n++ == 0)
        snprintf(load->kind[k].name, sizeof load->kind[k].name, "%s",
                 k < WP_LOAD_KINDS - 1 ? kind : "other");
}

static void load_free(struct wp_load *load)
{
    wp_timer_stop(load->loop, &load->tell); /* the last shots' end may have set it */
    wp_timer_stop(load->loop, &load->next);
    wp_report_destroy(load->report);
    wp_buf_fini(&load->target);
    wp_free(load->token);
    wp_free(load->late);
    wp_free(load);
}

static int prepare(struct wp_load *load, struct wp_err *err)
{
    struct wp_report_conf conf = {.label = load->conf.label};
    uint32_t longest = 1;

    for (size_t i = 0; i < load->trace->n; i++)
        if (load->trace->req[i].input > longest)
            longest = load->trace->req[i].input;
    load->token = wp_malloc(longest * sizeof *load->token);
    load->late = wp_malloc((load->trace->n + 1) * sizeof *load->late);
    if (!load->token || !load->late ||
        wp_buf_add(&load->target, load->conf.target.path.p, load->conf.target.path.n) < 0 ||
        wp_buf_adds(&load->target, "/v1/completions") < 0)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    return wp_report_create(&load->report, &conf, err);
}

int wp_load_create(struct wp_load **out, struct wp_loop *l, const struct wp_load_conf *conf,
                   const struct wp_trace *trace, void (*done)(void *arg), void *arg,
                   struct wp_err *err)
{
    struct wp_client_conf client = {.idle_per_origin = 1024};
    struct wp_load *load = wp_calloc(1, sizeof *load);
    int rc;

    if (!load)
        return wp_fail(err, WP_ENOMEM, "load: out of memory");
    load->loop = l;
    load->conf = *conf;
    load->trace = trace;
    load->done = done;
    load->arg = arg;
    wp_timer_init(&load->tell, tell_done, load);
    wp_list_init(&load->shots);
    wp_timer_init(&load->next, on_next, load);
    rc = prepare(load, err);
    if (rc == 0)
        rc = wp_client_create(&load->client, l, &client, err);
    if (rc < 0) {
        load_free(load);
        return rc;
    }
    load->start_us = load->last_us = wp_now_us();
    wp_timer_at(l, &load->next, load->start_us);
    *out = load;
    return 0;
}

void wp_load_stop(struct wp_load *load)
{
    load->stopped = true;
    wp_timer_stop(load->loop, &load->next);
    WP_LIST_EACH(&load->shots, it)
    {
        wp_shot_cut(it);
    }
    check_done(load);
}

static void on_closed(void *arg)
{
    struct wp_load *load = arg;
    void (*closed)(void *) = load->closed;
    void *closed_arg = load->closed_arg;

    load_free(load);
    if (closed)
        closed(closed_arg);
}

void wp_load_destroy(struct wp_load *load, void (*closed)(void *arg), void *arg)
{
    load->closed = closed;
    load->closed_arg = arg;
    load->done = NULL;
    wp_load_stop(load);
    wp_client_destroy(load->client, on_closed, load);
}

struct wp_report *wp_load_report(struct wp_load *load)
{
    return load->report;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void wp_load_state(const struct wp_load *load, struct wp_load_state *s)
{
    double *sorted = wp_memdup(load->late, load->sent * sizeof *sorted);

    *s = (struct wp_load_state){
        .total = load->trace->n,
        .sent = load->sent,
        .in_flight = load->in_flight,
        .ended = load->ended,
        .failed = load->failed,
        .cut_off = load->cut_off,
        .warmup = load->conf.warmup,
        .ttft_mean_s = load->ttft_n ? load->ttft_sum_s / (double)load->ttft_n : NAN,
    };
    if (sorted && load->sent) {
        qsort(sorted, load->sent, sizeof *sorted, by_size);
        s->late_p99_s = sorted[(size_t)((double)load->sent * 0.99)];
        s->late_max_s = sorted[load->sent - 1];
    }
    wp_free(sorted);
}
