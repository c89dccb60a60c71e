/* SPDX-License-Identifier: Apache-2.0 */
#include "router/forward.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* Fields by which somebody would steer a router or an engine from outside.  Dropped unless listen.trust_client_routing. */
static const struct wp_str steering[] = {
    WP_STR_INIT("x-data-parallel-rank"),
    WP_STR_INIT("x-prefiller-host-port"),
    WP_STR_INIT("x-data-parallel-host-port"),
    WP_STR_INIT("x-gateway-destination-endpoint"),
    WP_STR_INIT("x-gateway-destination-endpoint-subset"),
    WP_STR_INIT("x-smg-target-worker"),
    WP_STR_INIT("x-worker-id"),
    WP_STR_INIT("x-request-priority"),
    WP_STR_INIT("x-conversation-id"),
};

static bool starts_i(struct wp_str s, const char *prefix)
{
    size_t n = strlen(prefix);

    return s.n >= n && wp_str_iis((struct wp_str){s.p, n}, prefix);
}

static bool steers(struct wp_str name)
{
    for (size_t i = 0; i < sizeof steering / sizeof steering[0]; i++)
        if (wp_str_ieq(name, steering[i]))
            return true;
    return false;
}

static bool any_of(struct wp_str name, const struct wp_str list[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (wp_str_ieq(name, list[i]))
            return true;
    return false;
}

static struct wp_str text(struct wp_request *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static struct wp_str text(struct wp_request *r, const char *fmt, ...)
{
    va_list ap, again;
    char most[256], *p; /* of nearly all; who is longer is written twice */
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(most, sizeof most, fmt, ap);
    p = n >= 0 ? wp_arena_alloc(&r->arena, (size_t)n + 1) : NULL;
    if (p && (size_t)n < sizeof most)
        memcpy(p, most, (size_t)n + 1);
    else if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return (struct wp_str){p, p ? (size_t)n : 0};
}

static struct wp_str copy(struct wp_request *r, struct wp_str s)
{
    char *p = wp_arena_alloc(&r->arena, s.n + 1);

    if (!p)
        return (struct wp_str){0};
    memcpy(p, s.p, s.n);
    return (struct wp_str){p, s.n};
}

/* A number above 0, or 0, with a digit behind the point, or none: as %.1f and %.0f would, but for halves. */
static struct wp_str decimal(struct wp_request *r, double x, bool tenth)
{
    if (!(x < 1e15))
        return text(r, "%.*f", tenth, x);
    if (!tenth)
        return text(r, "%llu", (unsigned long long)llround(x));
    return text(r, "%llu.%llu", (unsigned long long)llround(x * 10) / 10, (unsigned long long)llround(x * 10) % 10);
}

static size_t put(struct wp_field out[], size_t n, const char *name, struct wp_str value)
{
    if (n < WP_FORWARD_MAX && value.p)
        out[n++] = (struct wp_field){wp_str_of(name), value};
    return n;
}

static struct wp_str peer_name(struct wp_request *r)
{
    char host[64] = "unknown";

    if (r->x->peer)
        uv_ip_name(r->x->peer, host, sizeof host);
    return copy(r, wp_str_of(host));
}

static size_t add_to(char *list, size_t n, struct wp_str part)
{
    if (n) {
        memcpy(list + n, ", ", 2);
        n += 2;
    }
    memcpy(list + n, part.p, part.n);
    return n + part.n;
}

/* All that came as X-Forwarded-For, in order, and the true address of the peer behind it: whoever trusts the last entry trusts us. */
static struct wp_str forwarded_for(struct wp_request *r)
{
    const struct wp_head *h = r->x->head;
    struct wp_str peer = peer_name(r);
    size_t room = peer.n, n = 0;
    char *list;

    for (size_t i = 0; i < h->n_fields; i++)
        room += h->field[i].value.n + 2; /* more than is needed: a head is bounded */
    list = peer.p ? wp_arena_alloc(&r->arena, room) : NULL;
    if (!list)
        return peer;
    for (size_t i = 0; i < h->n_fields; i++)
        if (wp_str_iis(h->field[i].name, "x-forwarded-for") && h->field[i].value.n)
            n = add_to(list, n, h->field[i].value);
    n = add_to(list, n, peer);
    return (struct wp_str){list, n};
}

size_t wp_forward_request(struct wp_request *r, struct wp_field out[WP_FORWARD_MAX])
{
    static const struct wp_str made_anew[] = {WP_STR_INIT("host"), WP_STR_INIT("content-length"), WP_STR_INIT("expect"),
                                              WP_STR_INIT("x-request-id"), WP_STR_INIT("x-forwarded-for")};
    static const struct wp_str keys[] = {WP_STR_INIT("authorization"), WP_STR_INIT("x-api-key")};
    const struct wp_head *h = r->x->head;
    const struct wp_config *conf = r->settings->conf;
    const struct wp_worker *w = r->place->worker;
    bool own_key = conf->listen.api_keys[0] || w->conf.api_key[0];
    size_t n = 0, want;

    for (size_t i = 0; i < h->n_fields; i++) {
        struct wp_str name = h->field[i].name;

        if (wp_hop_by_hop(h, name) || any_of(name, made_anew, 5) || starts_i(name, "x-warmpath-") ||
            (own_key && any_of(name, keys, 2)) || (steers(name) && !conf->listen.trust_client_routing) ||
            (r->place->n_ranks > 1 && wp_str_iis(name, "x-data-parallel-rank")))
            continue;
        out[n++] = h->field[i];
        if (r->unasked && wp_str_iis(name, "accept-encoding"))
            out[n - 1].value = WP_STR("identity"); /* an event that is to be taken out must be found */
    }
    want = n + 2 + (w->conf.api_key[0] != 0) + (r->place->n_ranks > 1);
    if (r->place->n_ranks > 1)
        n = put(out, n, "x-data-parallel-rank", text(r, "%u", r->place->rank_number));
    if (w->conf.api_key[0])
        n = put(out, n, "authorization", text(r, "Bearer %s", w->conf.api_key));
    n = put(out, n, "x-request-id", text(r, "%s-%llx", r->id,
                                         (unsigned long long)atomic_fetch_add(&r->gate->router->ids, 1) ^ r->gate->router->id_salt));
    n = put(out, n, "x-forwarded-for", forwarded_for(r));
    return n == want ? n : 0;
}

static struct wp_str overlap_text(struct wp_request *r)
{
    static const char *const names[] = {"gpu", "cpu", "disk", "remote"};
    const struct wp_placement *p = r->place;
    char tiers[128] = "";
    size_t n = 0;

    for (int t = 0; t < 4; t++)
        if (p->hit_tier[t])
            n += (size_t)snprintf(tiers + n, sizeof tiers - n, ";%s=%u", names[t], p->hit_tier[t]);
    return text(r, "total=%u%s;fetch=0;kind=%s", p->hit_tokens, tiers, r->ask.prompt.kind == WP_PROMPT_TOKENS ? "tokens" : "bytes");
}

size_t wp_forward_own(struct wp_request *r, struct wp_field out[], size_t n)
{
    enum wp_reveal reveal = wp_router_reveal(r->gate->router, r->settings->conf);
    const struct wp_placement *p = r->place;

    if (reveal != WP_REVEAL_NONE)
        n = put(out, n, "x-request-id", wp_str_of(r->id));
    if (reveal != WP_REVEAL_ALL || r->attempts == 0)
        return n;
    n = put(out, n, "x-warmpath-attempts", text(r, "%u", r->attempts));
    if (!r->tried)
        return n;
    n = put(out, n, "x-warmpath-worker",
            p->n_ranks > 1 ? text(r, "%s/%u", r->tried->conf.id, p->rank_number) : copy(r, wp_str_of(r->tried->conf.id)));
    n = put(out, n, "x-warmpath-overlap", overlap_text(r));
    if (isfinite(p->ttft_us))
        n = put(out, n, "x-warmpath-ttft-ms", decimal(r, p->ttft_us / 1000, true));
    n = put(out, n, "x-warmpath-overhead-us",
            decimal(r, fmax(0, (double)(r->placed_us - r->read_us) - r->waits.held_us), false));
    n = put(out, n, "x-warmpath-held-ms", decimal(r, r->waits.held_us / 1000, false));
    if (wp_head_get(r->x->head, "x-warmpath-explain").n)
        n = put(out, n, "x-warmpath-decision", text(r, "%llu", (unsigned long long)p->record));
    return n;
}

size_t wp_forward_answer(struct wp_request *r, const struct wp_head *h, struct wp_field out[WP_FORWARD_MAX])
{
    bool cache_control = false, buffering = false;
    size_t n = 0;

    for (size_t i = 0; i < h->n_fields && n < WP_FIELDS_MAX; i++) {
        struct wp_str name = h->field[i].name;

        if (wp_hop_by_hop(h, name) || wp_str_iis(name, "content-length") || wp_str_iis(name, "x-request-id") ||
            starts_i(name, "x-warmpath-"))
            continue;
        cache_control |= wp_str_iis(name, "cache-control");
        buffering |= wp_str_iis(name, "x-accel-buffering");
        out[n++] = h->field[i];
    }
    if (r->is_sse && !cache_control)
        n = put(out, n, "cache-control", WP_STR("no-cache"));
    if (r->is_sse && !buffering)
        n = put(out, n, "x-accel-buffering", WP_STR("no"));
    return wp_forward_own(r, out, n);
}

static bool all_digits(struct wp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

/* Any of the three forms that RFC 9110 5.6.7 wants to be understood; in seconds from now, 0 when it has passed. */
static bool date_from_now(struct wp_str value, uint64_t *s)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"};
    uint64_t now = wp_wall_us() / 1000000;
    char date[64];

    if (value.n >= sizeof date)
        return false;
    memcpy(date, value.p, value.n);
    date[value.n] = 0;
    for (size_t i = 0; i < 3; i++) {
        struct tm tm = {0};
        time_t at;

        if (!strptime(date, forms[i], &tm))
            continue;
        at = timegm(&tm);
        *s = at > 0 && (uint64_t)at > now ? (uint64_t)at - now : 0;
        return true;
    }
    return false;
}

uint64_t wp_retry_after_us(struct wp_str value, uint64_t cap_us)
{
    uint64_t s;

    if (!value.n)
        return 0;
    if (all_digits(value))
        s = wp_str_u64(value, &s) ? s : UINT64_MAX;
    else if (!date_from_now(value, &s))
        return 0;
    return s > cap_us / 1000000 ? cap_us : s * 1000000;
}

bool wp_request_id_ok(struct wp_str id)
{
    if (id.n == 0 || id.n > 128)
        return false;
    for (size_t i = 0; i < id.n; i++) {
        char c = id.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-_.:+/=@~", c))))
            return false;
    }
    return true;
}
