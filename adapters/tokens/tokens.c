/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/tokens/tokens.h"

#include "adapters/tokens/kinds.h"

/* clang-format off */
const char *const wp_tokens_result_names[WP_TOKENS_RESULTS] = {
    [WP_TOKENS_ASKED] = "asked",       [WP_TOKENS_HEDGED] = "hedged",       [WP_TOKENS_SHARED] = "shared",
    [WP_TOKENS_CACHED] = "cached",     [WP_TOKENS_BYTES] = "bytes",         [WP_TOKENS_UNSUITED] = "unsuited",
    [WP_TOKENS_NOBODY] = "nobody",     [WP_TOKENS_LATE] = "late",           [WP_TOKENS_FAILED] = "failed",
    [WP_TOKENS_REFUSED] = "refused",   [WP_TOKENS_GARBAGE] = "garbage",     [WP_TOKENS_NO_MEMORY] = "no_memory",
    [WP_TOKENS_CANCELED] = "canceled",
};
/* clang-format on */

static int bytes_create(struct wp_tokens **out, const struct wp_tokens_conf *conf,
                        struct wp_err *err)
{
    (void)conf;
    *out = wp_calloc(1, sizeof **out);
    return *out ? 0 : wp_fail(err, WP_ENOMEM, "out of memory");
}

static enum wp_tokens_result bytes_ask(struct wp_tokens *t, const struct wp_tokens_prompt *p,
                                       struct wp_tokens_wait *w, wp_tokens_fn fn,
                                       struct wp_blob **now)
{
    (void)t;
    (void)p;
    (void)w;
    (void)fn;
    (void)now;
    return WP_TOKENS_BYTES;
}

static void bytes_end(struct wp_timer *timer)
{
    struct wp_tokens *t = timer->arg;
    void (*closed)(void *) = t->closed;
    void *arg = t->closed_arg;

    wp_free(t);
    if (closed)
        closed(arg);
}

static void bytes_destroy(struct wp_tokens *t, void (*closed)(void *arg), void *arg)
{
    t->closed = closed;
    t->closed_arg = arg;
    wp_timer_init(&t->end, bytes_end, t);
    wp_timer_in(wp_client_loop(t->conf.client), &t->end, 0);
}

static const struct wp_tokens_ops bytes_ops = {
    .name = "bytes",
    .summary = "none: text in chunks, matched approximately",
    .create = bytes_create,
    .ask = bytes_ask,
    .destroy = bytes_destroy,
};

const struct wp_tokens_ops *const wp_tokenizers[] = {&bytes_ops, &wp_tokens_engine_ops, NULL};

const struct wp_tokens_ops *wp_tokenizer_find(const char *name)
{
    for (size_t i = 0; wp_tokenizers[i]; i++)
        if (strcmp(wp_tokenizers[i]->name, name) == 0)
            return wp_tokenizers[i];
    return NULL;
}

int wp_tokens_create(struct wp_tokens **out, const char *kind, const struct wp_tokens_conf *conf,
                     struct wp_err *err)
{
    const struct wp_tokens_ops *ops = wp_tokenizer_find(kind);
    int rc;

    if (!ops)
        return wp_fail(err, WP_EINVAL, "tokenizer: unknown kind \"%.64s\"", kind);
    rc = ops->create(out, conf, err);
    if (rc < 0)
        return wp_wrap(err, "tokenizer %s", kind);
    (*out)->ops = ops;
    (*out)->conf = *conf;
    for (int i = 0; i < WP_TOKENS_RESULTS; i++)
        (*out)->count[i] = WP_SERIES(conf->results, wp_tokens_result_names[i]);
    return 0;
}

size_t wp_tokens_limit(struct wp_tokens *t, size_t bytes)
{
    return t->ops->limit ? t->ops->limit(t, bytes) : 0;
}

void wp_tokens_destroy(struct wp_tokens *t, void (*closed)(void *arg), void *arg)
{
    if (t)
        t->ops->destroy(t, closed, arg);
}

enum wp_tokens_result wp_tokens_ask(struct wp_tokens *t, const struct wp_tokens_prompt *p,
                                    struct wp_tokens_wait *w, wp_tokens_fn fn, struct wp_blob **now)
{
    enum wp_tokens_result r;

    *now = NULL;
    w->flight = NULL;
    r = t->ops->ask(t, p, w, fn, now);
    if (r != WP_TOKENS_LATER)
        wp_count(t->count[r], 1);
    return r;
}

uint64_t wp_tokens_limit_us(const struct wp_tokens_conf *conf, uint64_t base_us, size_t bytes)
{
    return base_us + (uint64_t)((double)conf->per_mib_us * (double)bytes / (1 << 20));
}
