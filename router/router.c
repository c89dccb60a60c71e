/* SPDX-License-Identifier: Apache-2.0 */
#include "router/router.h"

#include "base/clock.h"

#include <stdio.h>

void wp_router_id(struct wp_router *r, char out[33])
{
    struct wp_rng rng = {r->id_salt + atomic_fetch_add(&r->ids, 1) * 2};
    uint64_t a = wp_rng_next(&rng), b = wp_rng_next(&rng);

    snprintf(out, 33, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

enum wp_reveal wp_router_reveal(const struct wp_router *r, const struct wp_config *c)
{
    if (c->listen.reveal != WP_REVEAL_AUTO)
        return c->listen.reveal;
    return r->on_loopback ? WP_REVEAL_ALL : WP_REVEAL_ID;
}

static void nothing(struct wp_exchange *x, int rc)
{
    (void)x;
    (void)rc;
}
const struct wp_exchange_ops wp_answer_only = {.on_over = nothing};

void wp_router_refuse(struct wp_gate *g, struct wp_exchange *x, struct wp_str model, int status, const char *code,
                      const char *param, uint64_t retry_after_us, const char *fmt, ...)
{
    struct wp_field extra[3];
    char text[512], after[16], count[8], name[128], id[33];
    size_t n = 0;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!x->ops)
        x->ops = &wp_answer_only;
    snprintf(count, sizeof count, "%d", status);
    snprintf(name, sizeof name, "%.*s", (int)model.n, model.p ? model.p : "");
    wp_count(WP_SERIES(g->router->count.requests, name, count), 1);
    wp_router_id(g->router, id);
    extra[n++] = (struct wp_field){WP_STR("x-request-id"), wp_str_of(id)};
    if (retry_after_us) {
        uint64_t s = (retry_after_us + 999999) / 1000000;

        snprintf(after, sizeof after, "%u", (unsigned)(s > 3600 ? 3600 : s));
        extra[n++] = (struct wp_field){WP_STR("retry-after"), wp_str_of(after)};
    }
    if (status == 401)
        extra[n++] = (struct wp_field){WP_STR("www-authenticate"), WP_STR("Bearer")};
    if (status == 405)
        extra[n++] = (struct wp_field){WP_STR("allow"), wp_str_of(param)};
    wp_reply_error(x, status, code, status == 405 ? NULL : param, extra, n, "%s", text);
}

/* Takes the same time for every key of the same length, wherever they differ. */
static bool same_secret(struct wp_str a, struct wp_str b)
{
    unsigned char diff = a.n != b.n;

    for (size_t i = 0; i < b.n; i++)
        diff |= (unsigned char)((i < a.n ? a.p[i] : 0) ^ b.p[i]);
    return diff == 0;
}

bool wp_router_key_ok(const struct wp_head *h, const char *const keys[], size_t n)
{
    struct wp_str given = wp_head_get(h, "authorization");
    bool ok = n == 0;

    if (given.n > 7 && wp_str_iis((struct wp_str){given.p, 7}, "bearer "))
        given = wp_str_trim((struct wp_str){given.p + 7, given.n - 7});
    else
        given = wp_head_get(h, "x-api-key");
    for (size_t i = 0; i < n; i++)
        ok |= same_secret(given, wp_str_of(keys[i]));
    return ok;
}
