/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/decide.c - what one decision costs: wp_fleet_place() and wp_fleet_end() of a prompt
 * of 512 blocks, over history or over KV events. make build/bench/decide && build/bench/decide
 * Workers hold one of sixteen such prompts each, or all of them.  Best of five rounds; all of it
 * runs under the fleet's one lock.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "router/ask.h"
#include "router/fleet_inner.h"

#include <stdio.h>
#include <stdlib.h>

enum { PROMPTS = 16, BLOCKS = 512, BLOCK = 16, ROUNDS = 5, MOST = 256 };

static struct wp_config *conf;
static struct wp_metrics *metrics;
static struct wp_fleet *fleet;

static struct bench_prompt {
    struct wp_arena arena;
    struct wp_asked ask;
    struct wp_want want;
} prompts[PROMPTS];

static void must(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, wp_strerror(rc));
    exit(1);
}

static void set_up(size_t workers)
{
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;

    must(wp_config_read(&conf, NULL, NULL, 0, NULL, 0, &errors), "configuration");
    must(wp_metrics_create(&metrics, &err), "metrics");
    must(wp_fleet_create(&fleet, conf, metrics, &err), "fleet");
    for (size_t i = 0; i < workers; i++) {
        struct wp_engine_facts up = {.up = true, .rc = 200};
        struct wp_config_worker w;
        struct wp_worker *made;
        char json[128];

        snprintf(json, sizeof json,
                 "{\"url\":\"http://10.0.%zu.%zu:8000\",\"models\":[\"m\"],\"block_size\":%d}",
                 i / 256, i % 256, BLOCK);
        must(wp_config_worker_json(&w, wp_str_of(json), &err), "entry");
        must(wp_fleet_add(fleet, &w, conf, &err), "worker");
        snprintf(json, sizeof json, "10.0.%zu.%zu:8000", i / 256, i % 256);
        made = wp_fleet_find(fleet, wp_str_of(json));
        wp_fleet_probed(fleet, made, &up, conf);
        wp_worker_unref(made);
        wp_config_worker_fini(&w);
    }
}

static void make_prompts(void)
{
    struct wp_buf body = {0};

    for (unsigned k = 0; k < PROMPTS; k++) {
        struct bench_prompt *p = &prompts[k];
        struct wp_refusal no;

        *p = (struct bench_prompt){0};
        body.n = 0;
        wp_buf_adds(&body, "{\"model\":\"m\",\"prompt\":[0");
        for (unsigned i = 0; i < BLOCKS * BLOCK; i++)
            wp_buf_printf(&body, ",%u", k * 100000 + i);
        wp_buf_adds(&body, "]}");
        must(wp_ask_read(&p->ask, fleet, conf, WP_ROUTE_COMPLETIONS, (struct wp_str){0},
                         wp_buf_str(&body), &p->arena, &no),
             "prompt");
        p->want = (struct wp_want){.model = &p->ask.model,
                                   .prompt = &p->ask.prompt,
                                   .tokens = p->ask.tokens,
                                   .max_tokens = 100};
    }
    wp_buf_fini(&body);
}

static void once(struct wp_want want, bool first)
{
    struct wp_placement p = {0};
    const char *why;
    uint64_t retry_us;

    if (wp_fleet_place(fleet, &want, &p, &why, &retry_us) != WP_PLACED) {
        fprintf(stderr, "not placed: %s\n", why);
        exit(1);
    }
    if (first)
        wp_fleet_first(fleet, &p);
    wp_fleet_end(fleet, &p, WP_OUTCOME_GOOD, 0);
}

static struct wp_worker *every[MOST];
static size_t n_every;

static void collect(void *arg, struct wp_worker *w)
{
    (void)arg;
    every[n_every++] = wp_worker_ref(w);
}

static void warm(bool all)
{
    n_every = 0;
    wp_fleet_each(fleet, collect, NULL);
    for (size_t i = 0; i < n_every; i++) {
        for (size_t k = 0; k < PROMPTS; k++) {
            struct wp_want want = prompts[k].want;

            want.only = every[i];
            if (all || k == i % PROMPTS)
                once(want, true);
        }
        wp_worker_unref(every[i]);
    }
}

/* The same, told by KV events: then room has its price from facts, too. */
static void feed(bool all)
{
    const struct wp_hashes *h = &prompts[0].ask.prompt.set[0];
    uint32_t space = wp_fleet_space(fleet, prompts[0].want.model->base, BLOCK, WP_PROMPT_TOKENS);

    n_every = 0;
    wp_fleet_each(fleet, collect, NULL);
    for (size_t i = 0; i < n_every; i++) {
        struct wp_rank *r = &every[i]->rank[0];

        r->fed = r->live = true;
        r->coverage = 1;
        for (size_t k = 0; k < PROMPTS; k++) {
            struct wp_kv_event ev = {
                .kind = WP_KV_STORED, .holder = r->holder, .space = space, .main_group = true};

            h = &prompts[k].ask.prompt.set[0];
            ev.n = h->n;
            ev.engine = h->chain;
            ev.local = h->local;
            if (all || k == i % PROMPTS)
                wp_index_apply(fleet->index, &ev, NULL);
        }
        wp_worker_unref(every[i]);
    }
}

static double cost_us(size_t workers, bool all, bool first, bool fed)
{
    int calls = (int)(6000 / workers) + 20;
    double best = 1e18;

    set_up(workers);
    make_prompts();
    warm(all);
    if (fed)
        feed(all);
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t t = wp_now_us();

        for (int i = 0; i < calls; i++)
            once(prompts[i % PROMPTS].want, first);
        t = wp_now_us() - t;
        if ((double)t / calls < best)
            best = (double)t / calls;
    }
    for (size_t k = 0; k < PROMPTS; k++)
        wp_arena_fini(&prompts[k].arena);
    wp_fleet_destroy(fleet);
    wp_metrics_destroy(metrics);
    wp_config_destroy(conf);
    return best;
}

int main(void)
{
    static const size_t sizes[] = {4, 16, 256};
    static const struct {
        const char *name;
        bool all, first, fed;
    } rows[] = {{"one prompt a worker", false, false, false},
                {"all prompts on each", true, false, false},
                {"the same, with a first token", true, true, false},
                {"told by feeds: one prompt", false, false, true},
                {"all prompts on each", true, false, true}};

    wp_log_setup(WP_ERROR, WP_LOG_TEXT);
    printf("a decision and its end, us      4 workers      16     256\n");
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        printf("%-30s", rows[k].name);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            printf("%*.1f", i ? 8 : 11, cost_us(sizes[i], rows[k].all, rows[k].first, rows[k].fed));
        printf("\n");
    }
    return 0;
}
