/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A metrics page and a model list from anywhere: what is said about an engine stays within what a
 * worker may believe, and a second reading says the same.
 */
#include "adapters/engines/facts.h"
#include "adapters/engines/prom.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define MUST(cond) \
    if (!(cond))   \
    abort()

static bool unknown_or_sane(double x)
{
    return x == -1 || (isfinite(x) && x >= 0);
}

static void metrics(struct wp_str page)
{
    struct wp_engine_facts a, b;

    wp_facts_init(&a);
    wp_facts_init(&b);
    wp_facts_vllm_metrics(&a, page);
    wp_facts_vllm_metrics(&b, page);
    MUST(unknown_or_sane(a.running) && unknown_or_sane(a.waiting) && unknown_or_sane(a.kv_usage));
    MUST(a.block_size <= 65536 && a.kv_tokens < UINT64_C(1) << 52);
    MUST(a.running == b.running && a.sleeping == b.sleeping && a.kv_tokens == b.kv_tokens &&
         a.missing == b.missing);
}

static void samples(struct wp_str page)
{
    static const char *const names[] = {"engine", "sleep_state", "block_size", ""};
    struct wp_str rest = page;
    struct wp_prom p;
    char small[5];

    while (wp_prom_next(&rest, &p)) {
        MUST(p.name.n > 0 && p.name.p >= page.p && p.name.p + p.name.n <= page.p + page.n);
        MUST(!p.labels.n || (p.labels.p >= page.p && p.labels.p + p.labels.n <= page.p + page.n));
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (wp_prom_label(&p, names[i], small, sizeof small))
                MUST(memchr(small, 0, sizeof small));
    }
}

static void models(struct wp_str page)
{
    struct wp_engine_facts f;

    wp_facts_init(&f);
    if (wp_facts_models(&f, page) == 0) {
        MUST(f.models_known && f.n_models <= WP_ENGINE_MODELS_MAX);
        for (size_t i = 0; i < f.n_models; i++)
            MUST(f.model[i].name && f.model[i].name[0] &&
                 (!f.model[i].parent || f.model[i].parent[0]));
    }
    wp_engine_facts_fini(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_str page = {(const char *)data, n};

    samples(page);
    metrics(page);
    models(page);
    return 0;
}
