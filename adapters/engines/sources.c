/* SPDX-License-Identifier: Apache-2.0 */
/* What vLLM says of its KV event publishers, one for each data-parallel rank, as one feed that can
 * be followed. */
#include "adapters/engines/facts.h"
#include "adapters/events/endpoint.h"
#include "net/json.h"

#include <stdio.h>

enum { RANKS_MAX = 256 };

struct source {
    bool on, zmq;
    struct wp_endpoint events, replay;
    bool has_events, has_replay;
};

static bool read_endpoint(struct wp_json v, struct wp_endpoint *out)
{
    char text[WP_ENGINE_ENDPOINT_MAX];
    long n = wp_json_text(v, text, sizeof text);
    struct wp_err err;

    return n > 0 && wp_endpoint_parse(out, (struct wp_str){text, (size_t)n}, true, 1, &err) == 0;
}

static bool read_source(struct wp_json v, struct source *out)
{
    static const char *const names[] = {"enable_kv_cache_events", "publisher", "endpoint",
                                        "replay_endpoint"};
    struct wp_json m[4];

    *out = (struct source){0};
    if (!wp_json_find(v, names, 4, m))
        return false;
    out->on = m[0].kind == WP_JSON_TRUE;
    out->zmq = wp_json_is(m[1], "zmq");
    out->has_events = read_endpoint(m[2], &out->events);
    out->has_replay = read_endpoint(m[3], &out->replay);
    return true;
}

static bool loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* An address that means another machine when it is read here. */
static bool elsewhere(const struct wp_endpoint *e, const char *host)
{
    return !loopback(host) && (e->ipc || (!e->any && loopback(e->host)));
}

static bool follows(const struct wp_endpoint *first, const struct wp_endpoint *e, uint32_t rank)
{
    return !first->ipc && !e->ipc && first->any == e->any && strcmp(first->host, e->host) == 0 &&
           e->port == first->port + rank;
}

/* The feed of rank 0 stands for all when their ports follow each other: so vLLM makes them. */
static const char *judge(const struct source *first, const struct source *s, uint32_t rank,
                         const char *host)
{
    if (!s->on || !s->zmq)
        return "its events are switched on, and no publisher sends them";
    if (s->has_events && strcmp(s->events.host, "0.0.0.0") == 0)
        return "it connects to 0.0.0.0, which is itself; tcp://*:PORT makes it bind";
    if (!s->has_events || (!s->events.ipc && s->events.port == 0))
        return "its endpoint is none that can be read";
    if (rank && !follows(&first->events, &s->events, rank))
        return "the ports of its ranks do not follow each other";
    return elsewhere(&s->events, host) ? "its endpoint is one of its own machine" : NULL;
}

static void tell(struct wp_engine_feed *feed, const struct source *first, bool replay,
                 const char *host)
{
    const struct wp_endpoint *e = &first->events;

    feed->dials = !e->ipc && !strchr(e->host, '*') && !strstr(e->host, "::");
    wp_endpoint_text(e, 0, e->any && !e->ipc ? host : NULL, feed->events);
    e = &first->replay; /* this one is always bound */
    if (replay && !elsewhere(e, host))
        wp_endpoint_text(e, 0, e->any && !e->ipc ? host : NULL, feed->replay);
}

/* The rank that a member is named by. */
static bool rank_of(struct wp_json key, uint32_t *rank)
{
    char text[8];
    long n = wp_json_text(key, text, sizeof text);
    uint64_t x;

    if (n <= 0 || !wp_str_u64((struct wp_str){text, (size_t)n}, &x) || x >= RANKS_MAX)
        return false;
    *rank = (uint32_t)x;
    return true;
}

static void read_ranks(struct wp_engine_feed *feed, struct wp_json all, const struct source *first,
                       const char *host)
{
    bool seen[RANKS_MAX] = {false}, replay = true;
    struct wp_json key = {0}, at = {0};
    uint32_t rank, last = 0;
    struct source s;

    while (!feed->why && wp_json_each_member(all, &key, &at)) {
        if (!rank_of(key, &rank) || seen[rank] || !read_source(at, &s)) {
            feed->why = "its ranks are not told apart";
            continue;
        }
        seen[rank] = true;
        last = rank > last ? rank : last;
        feed->ranks++;
        feed->why = judge(first, &s, rank, host);
        replay &= s.has_replay && (rank == 0 || follows(&first->replay, &s.replay, rank));
    }
    if (!feed->why && last + 1 != feed->ranks)
        feed->why = "some of its ranks are missing";
    if (first->has_events)
        tell(feed, first, replay && (first->replay.ipc || first->replay.port), host);
}

int wp_facts_vllm_sources(struct wp_engine_facts *f, struct wp_str page, struct wp_str host)
{
    static const char *const names[] = {"0"};
    struct wp_json zero, key = {0}, at = {0};
    struct wp_engine_feed feed = {.known = true};
    struct source first = {0};
    struct wp_err err;
    char name[256];

    page = wp_str_trim(page);
    if (wp_json_members(page, names, 1, &zero, &err) < 0)
        return WP_EPROTO;
    if (host.n > 2 && host.p[0] == '[')
        host = (struct wp_str){host.p + 1, host.n - 2};
    snprintf(name, sizeof name, WP_STR_FMT, WP_STR_ARG(host));
    if (zero.kind == WP_JSON_ABSENT
            ? wp_json_each_member((struct wp_json){WP_JSON_OBJECT, page.p, page.n}, &key, &at)
            : !read_source(zero, &first))
        return WP_EPROTO; /* some other object */
    if (first.on)
        read_ranks(&feed, (struct wp_json){WP_JSON_OBJECT, page.p, page.n}, &first, name);
    f->feed = feed;
    return 0;
}
