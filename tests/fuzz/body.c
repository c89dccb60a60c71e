/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's body from anywhere, as every route reads it: what is found is bounded by the body,
 * the same bytes give the same blocks again, and blanks between the tokens of the text change
 * nothing.
 */
#include "router/ask.h"

#include <stdlib.h>

#define MUST(cond) \
    if (!(cond))   \
    abort()

static struct wp_fleet *fleet; /* made once, and reachable until the end */
static struct wp_config *conf;
static struct wp_metrics *metrics;

static void make_fleet(void)
{
    struct wp_buf errors = {0};
    struct wp_err err;
    struct wp_config_worker w;

    if (fleet)
        return;
    MUST(wp_config_read(&conf, NULL, NULL, 0, NULL, 0, &errors) == 0);
    MUST(wp_metrics_create(&metrics, &err) == 0);
    MUST(wp_fleet_create(&fleet, conf, metrics, &err) == 0);
    MUST(wp_config_worker_json(
             &w, WP_STR("{\"url\":\"http://a:1\",\"models\":[\"test-model\"],\"block_size\":4}"),
             &err) == 0);
    MUST(wp_fleet_add(fleet, &w, conf, &err) == 0);
    wp_config_worker_fini(&w);
}

/* What one reading of a body gives, as one number. */
static uint64_t digest(uint64_t d, uint64_t x)
{
    return (d ^ x) * 0x100000001B3u;
}

static uint64_t read_prompt(enum wp_route_kind kind, struct wp_str text, struct wp_body *b)
{
    struct wp_arena arena = {0};
    struct wp_prompt p = {0};
    struct wp_err err;
    const char *param = NULL;
    int rc = wp_prompt_read(&p, kind, b, &arena, &param, &err);
    uint64_t d = digest(1, (uint64_t)p.kind);

    MUST(rc == 0 || (rc == WP_EINVAL && param));
    MUST(p.n_token <= text.n && p.bytes.n <= 2 * text.n + 64);
    for (uint32_t size = 1; rc == 0 && size <= 16; size *= 4) {
        const struct wp_hashes *h =
            wp_prompt_hashes(&p, size, (struct wp_str){0}, (struct wp_str){0}, &arena);

        MUST(!h == (p.kind == WP_PROMPT_NONE));
        if (!h)
            continue;
        MUST(h->n == (p.kind == WP_PROMPT_TOKENS ? p.n_token / size : p.bytes.n / WP_CHUNK_BYTES) ||
             h->n == WP_PROMPT_BLOCKS_MAX);
        for (size_t i = 0; i < h->n; i++)
            d = digest(d, h->chain[i]);
    }
    d = digest(d, p.n_token);
    for (size_t i = 0; p.kind == WP_PROMPT_BYTES && i < p.bytes.n; i++)
        d = digest(d, (unsigned char)p.bytes.p[i]);
    wp_arena_fini(&arena);
    return d;
}

static uint64_t read_body(struct wp_str text, bool *ok)
{
    struct wp_head none = {0};
    struct wp_body b;
    struct wp_err err;
    uint64_t d = 0;

    *ok = wp_body_read(&b, text, &err) == 0;
    if (!*ok)
        return 0;
    for (int kind = WP_ROUTE_CHAT; kind <= WP_ROUTE_OPAQUE; kind++)
        d = digest(d, read_prompt((enum wp_route_kind)kind, text, &b));
    d = digest(d, wp_body_max_tokens(&b));
    d = digest(d, wp_body_steers(&b) != NULL);
    return digest(d, wp_session_key(&none, &b));
}

static void ask(struct wp_str text)
{
    for (int kind = WP_ROUTE_CHAT; kind <= WP_ROUTE_OPAQUE; kind++) {
        struct wp_arena arena = {0};
        struct wp_asked a = {0};
        struct wp_refusal no = {0};
        int rc = wp_ask_read(&a, fleet, conf, (enum wp_route_kind)kind, (struct wp_str){0}, text,
                             &arena, &no);

        MUST(rc == 0 ? a.model.known && a.tokens <= 4 + text.n
                     : no.status >= 400 && no.code && no.text[0]);
        wp_arena_fini(&arena);
    }
    (void)wp_ask_guess(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_str text = {(const char *)data, n}, bare = wp_str_trim(text);
    struct wp_buf tight = {0};
    bool ok, again;
    uint64_t d = read_body(text, &ok);

    make_fleet();
    MUST(d == read_body(text, &again) && ok == again);
    if (ok && bare.p[0] == '{' &&
        wp_json_compact(&tight, (struct wp_json){WP_JSON_OBJECT, bare.p, bare.n}) == 0)
        MUST(d == read_body(wp_buf_str(&tight), &again) && again);
    wp_buf_fini(&tight);
    ask(text);
    return 0;
}
