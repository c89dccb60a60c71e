/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The story of a name.  A look-up that needs no asking (an address, localhost, a fresh entry) goes
 * to the ready list, which is handed out on the loop's next turn.  Any other waits at its entry,
 * and the entry asks: one question at a time, one server after another, until there is an answer or
 * no server is left to try.  Then the entry settles, and all that wait become ready.  Nothing is
 * ever handed out inside the call that asked, nor inside one of the resolver's callbacks: whoever
 * gets an answer may do anything, also end the names.
 */
#include "net/names.h"

#include "base/log.h"
#include "base/mem.h"
#include "net/hostname.h"
#include "net/resolver.h"

#include <netinet/in.h>
#include <xxhash.h>

enum { BUCKETS = 256, DENIALS = 3 };
_Static_assert((int)WP_NAMES_ADDRS == (int)WP_RESOLVER_ADDRS, "an answer fits");

struct entry {
    struct wp_names *names;
    struct wp_list bucket, lru;
    struct wp_list waiting; /* look-ups */
    unsigned users;         /* look-ups that wait or are ready: then it stays */
    bool asking;
    bool slow;             /* patience has run out: who comes now gets the old answer at once */
    bool failing;          /* said so already */
    unsigned asked, empty; /* servers asked, and those of them that knew no address */
    size_t first, server;  /* asked first; being asked */
    unsigned denials;      /* in a row */
    uint64_t denied_us;    /* when that row began */
    uint64_t until_us;     /* rc and addr are fresh until then */
    struct wp_timer patience;
    int rc; /* of the last question */
    struct sockaddr_storage *addr;
    size_t n;
    char name[WP_HOSTNAME_BYTES + 1];
};

struct wp_lookup {
    struct wp_names *names;
    struct wp_list link; /* at its entry, or ready */
    struct entry *entry; /* NULL: addr is the answer */
    struct sockaddr_storage addr[2];
    size_t n;
    int rc;
    uint16_t port;
    wp_names_fn fn;
    void *arg;
};

struct wp_names {
    struct wp_loop *loop;
    struct wp_resolver *resolver; /* made with the first question */
    size_t prefer;                /* the server that answered last */
    struct wp_list bucket[BUCKETS];
    struct wp_list lru; /* longest unused first */
    size_t n_entries;
    struct wp_list ready;
    struct wp_timer later; /* hands out what is ready */
    struct wp_names_times times;
    unsigned busy; /* hand-outs under way */
    bool closing;
};

static void ask(struct entry *e);

/* --- the end of things --- */

static void entry_free(struct entry *e)
{
    wp_list_del(&e->bucket);
    wp_list_del(&e->lru);
    e->names->n_entries--;
    wp_free(e->addr);
    wp_free(e);
}

/* Once nothing is being handed out, no look-up is left that names an entry. */
static void free_when_done(struct wp_names *n)
{
    if (!n->closing || n->busy > 0)
        return;
    WP_LIST_EACH(&n->lru, it)
    {
        entry_free(WP_CONTAINER(it, struct entry, lru));
    }
    wp_free(n);
}

static void evict(struct wp_names *n)
{
    WP_LIST_EACH(&n->lru, it)
    {
        struct entry *e = WP_CONTAINER(it, struct entry, lru);

        if (n->n_entries <= WP_NAMES_MAX)
            return;
        if (e->users == 0 && !e->asking)
            entry_free(e);
    }
}

/* --- handing out --- */

static void set_port(struct sockaddr_storage *a, uint16_t port)
{
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)a)->sin_port = htons(port);
}

static void lookup_free(struct wp_lookup *q)
{
    if (q->entry)
        q->entry->users--;
    wp_list_del(&q->link);
    wp_free(q);
}

/* The look-up is gone before its owner hears of it. */
static void hand_out(struct wp_lookup *q)
{
    struct sockaddr_storage addr[WP_NAMES_ADDRS];
    wp_names_fn fn = q->fn;
    void *arg = q->arg;
    size_t n = q->n;
    int rc = q->rc;

    if (q->names->closing) {
        rc = WP_ECANCELED;
    } else if (!q->entry) {
        memcpy(addr, q->addr, n * sizeof addr[0]);
    } else {
        n = q->entry->n;
        rc = n ? 0 : q->entry->rc;
        if (n)
            memcpy(addr, q->entry->addr, n * sizeof addr[0]);
    }
    if (rc < 0)
        n = 0;
    for (size_t i = 0; i < n; i++)
        set_port(&addr[i], q->port);
    lookup_free(q);
    fn(arg, rc, addr, n);
}

/* What becomes ready meanwhile waits for the next turn. */
static void deliver(struct wp_names *n)
{
    struct wp_list now, *it;

    if (wp_list_empty(&n->ready))
        return;
    wp_list_insert(n->ready.prev, &now);
    wp_list_del(&n->ready);
    wp_list_init(&n->ready);
    n->busy++;
    while ((it = wp_list_shift(&now)) != NULL)
        hand_out(WP_CONTAINER(it, struct wp_lookup, link));
    n->busy--;
    free_when_done(n);
}

static void on_later(struct wp_timer *t)
{
    deliver(t->arg);
}

static void make_ready(struct wp_lookup *q)
{
    struct wp_names *n = q->names;

    wp_list_del(&q->link);
    wp_list_push(&n->ready, &q->link);
    if (!n->closing && !n->later.armed)
        wp_timer_in(n->loop, &n->later, 0);
}

static void release_waiting(struct entry *e)
{
    struct wp_list *it;

    while ((it = wp_list_shift(&e->waiting)) != NULL)
        make_ready(WP_CONTAINER(it, struct wp_lookup, link));
}

/* --- questions --- */

static void say(struct entry *e, int rc)
{
    if (rc < 0 && e->n && !e->failing)
        wp_log(WP_WARN, "names", "host=%s %s: keeping the old address", e->name, wp_strerror(rc));
    if (rc == 0 && e->failing)
        wp_log(WP_INFO, "names", "host=%s has an answer again", e->name);
    e->failing = rc < 0 && e->n;
}

static void settle(struct entry *e, int rc, bool denied, uint64_t ttl_us)
{
    struct wp_names *n = e->names;
    uint64_t now = wp_loop_now_us(n->loop);

    wp_timer_stop(n->loop, &e->patience);
    e->asking = e->slow = false;
    e->rc = rc;
    e->until_us = now + (rc == 0 ? ttl_us : n->times.retry_us);
    say(e, rc);
    if (!denied)
        e->denials = 0;
    else if (e->denials++ == 0)
        e->denied_us = now;
    if (e->n && e->denials >= DENIALS && now - e->denied_us >= n->times.grace_us) {
        wp_log(WP_WARN, "names", "host=%s is denied again and again: its old address is dropped",
               e->name);
        e->n = 0;
    }
    release_waiting(e);
}

/* Takes the addresses over; false when there is no memory. */
static bool keep(struct entry *e, const struct wp_found *f)
{
    struct sockaddr_storage *addr = wp_memdup(f->addr, f->n * sizeof f->addr[0]);

    if (!addr)
        return false;
    wp_free(e->addr);
    e->addr = addr;
    e->n = f->n;
    return true;
}

static uint64_t lifetime(const struct wp_names_times *t, uint64_t ttl_s)
{
    if (ttl_s >= t->ttl_max_us / 1000000)
        return t->ttl_max_us;
    return ttl_s * 1000000 > t->ttl_min_us ? ttl_s * 1000000 : t->ttl_min_us;
}

/* Whether another server, or the same once more, may know better. */
static bool worth_another(struct entry *e, enum wp_found_kind kind)
{
    size_t n = wp_resolver_servers(e->names->resolver);

    if (e->asked >= (n == 1 ? 3 : 2 * n))
        return false;
    if (kind == WP_FOUND_EMPTY)
        return ++e->empty < n;
    return kind == WP_FOUND_SILENCE || kind == WP_FOUND_FAILURE;
}

static void on_found(void *arg, const struct wp_found *f)
{
    struct entry *e = arg;
    bool denied = f->kind == WP_FOUND_NO_NAME || f->kind == WP_FOUND_EMPTY || e->empty > 0;

    if (f->kind == WP_FOUND || f->kind == WP_FOUND_NO_NAME)
        e->names->prefer = e->server;
    if (f->kind == WP_FOUND)
        settle(e, keep(e, f) ? 0 : WP_ENOMEM, false, lifetime(&e->names->times, f->ttl_s));
    else if (worth_another(e, f->kind))
        ask(e);
    else if (f->kind == WP_FOUND_NO_MEMORY)
        settle(e, WP_ENOMEM, false, 0);
    else
        settle(e, f->kind == WP_FOUND_SILENCE && !denied ? WP_ETIMEDOUT : WP_ENONAME, denied, 0);
}

static void ask(struct entry *e)
{
    struct wp_resolver *r = e->names->resolver;

    e->server = (e->first + e->asked++) % wp_resolver_servers(r);
    wp_resolver_ask(r, e->server, e->name, on_found, e);
}

static void on_patience(struct wp_timer *t)
{
    struct entry *e = t->arg;

    e->slow = true;
    release_waiting(e);
}

static void ask_first(struct entry *e)
{
    e->asking = true;
    e->slow = false;
    e->asked = e->empty = 0;
    e->first = e->names->prefer;
    if (e->n)
        wp_timer_in(e->names->loop, &e->patience, e->names->times.patience_us);
    ask(e);
}

/* --- entries --- */

static struct wp_list *bucket_of(struct wp_names *n, const char *name)
{
    return &n->bucket[XXH3_64bits(name, strlen(name)) % BUCKETS];
}

static struct entry *find(struct wp_names *n, const char *name)
{
    struct wp_list *b = bucket_of(n, name);

    WP_LIST_EACH(b, it)
    {
        struct entry *e = WP_CONTAINER(it, struct entry, bucket);

        if (strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

static struct entry *find_or_make(struct wp_names *n, const char *name)
{
    struct entry *e = find(n, name);

    if (!e) {
        e = wp_calloc(1, sizeof *e);
        if (!e)
            return NULL;
        e->names = n;
        strcpy(e->name, name);
        wp_list_init(&e->waiting);
        wp_list_init(&e->lru);
        wp_timer_init(&e->patience, on_patience, e);
        wp_list_push(bucket_of(n, name), &e->bucket);
        n->n_entries++;
    }
    wp_list_del(&e->lru);
    wp_list_push(&n->lru, &e->lru);
    e->users++; /* so that it is not the one to go */
    evict(n);
    e->users--;
    return e;
}

/* --- the loop's names --- */

static struct wp_names *names_of(struct wp_loop *l)
{
    struct wp_names *n = l->names;

    if (n)
        return n;
    n = wp_calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->loop = l;
    n->times = (struct wp_names_times){1000000, 300000000, 1000000, 250000, 60000000, 700000};
    for (size_t i = 0; i < BUCKETS; i++)
        wp_list_init(&n->bucket[i]);
    wp_list_init(&n->lru);
    wp_list_init(&n->ready);
    wp_timer_init(&n->later, on_later, n);
    l->names = n;
    return n;
}

/* Asks for e, making the system's servers on the very first question. */
static int ask_for(struct wp_names *n, struct entry *e)
{
    int rc = n->resolver ? 0 : wp_resolver_create(&n->resolver, n->loop, NULL, n->times.timeout_us);

    if (rc == 0)
        ask_first(e);
    return rc;
}

static void start(struct wp_lookup *q, struct entry *e)
{
    int rc;

    e->users++;
    q->entry = e;
    if ((!e->asking && wp_loop_now_us(q->names->loop) < e->until_us) || (e->asking && e->slow)) {
        make_ready(q);
        return;
    }
    wp_list_push(&e->waiting, &q->link);
    if (!e->asking) {
        rc = ask_for(q->names, e);
        if (rc < 0)
            settle(e, rc, false, 0);
    }
}

struct wp_lookup *wp_names_lookup(struct wp_loop *l, struct wp_str host, uint16_t port,
                                  wp_names_fn fn, void *arg)
{
    struct wp_names *n = names_of(l);
    struct wp_lookup *q = n ? wp_calloc(1, sizeof *q) : NULL;
    char name[WP_HOSTNAME_BYTES + 1];
    struct entry *e;

    if (!q)
        return NULL;
    q->names = n;
    q->port = port;
    q->fn = fn;
    q->arg = arg;
    wp_list_init(&q->link);
    if (wp_hostname_plain(host, name))
        q->n = wp_hostname_known(name, q->addr);
    else
        q->rc = WP_ENONAME;
    if (q->n || q->rc < 0) {
        make_ready(q);
        return q;
    }
    e = find_or_make(n, name);
    if (!e) {
        wp_free(q);
        return NULL;
    }
    start(q, e);
    return q;
}

void wp_lookup_cancel(struct wp_lookup *q)
{
    lookup_free(q);
}

void wp_names_stale(struct wp_loop *l, struct wp_str host)
{
    char name[WP_HOSTNAME_BYTES + 1];
    struct entry *e = l->names && wp_hostname_plain(host, name) ? find(l->names, name) : NULL;

    if (e && !e->asking)
        e->until_us = 0;
}

int wp_names_servers(struct wp_loop *l, const char *csv)
{
    struct wp_names *n = names_of(l);
    struct wp_resolver *fresh;
    int rc = n ? wp_resolver_create(&fresh, l, csv, n->times.timeout_us) : WP_ENOMEM;

    if (rc < 0)
        return rc;
    wp_resolver_destroy(n->resolver);
    n->resolver = fresh;
    n->prefer = 0;
    WP_LIST_EACH(&n->lru, it)
    {
        struct entry *e = WP_CONTAINER(it, struct entry, lru);

        if (e->asking) {
            wp_timer_stop(l, &e->patience);
            ask_first(e);
        }
    }
    return 0;
}

static void tune(uint64_t *to, uint64_t us)
{
    if (us)
        *to = us;
}

int wp_names_tune(struct wp_loop *l, const struct wp_names_times *t)
{
    struct wp_names *n = names_of(l);

    if (!n)
        return WP_ENOMEM;
    tune(&n->times.ttl_min_us, t->ttl_min_us);
    tune(&n->times.ttl_max_us, t->ttl_max_us);
    tune(&n->times.retry_us, t->retry_us);
    tune(&n->times.patience_us, t->patience_us);
    tune(&n->times.grace_us, t->grace_us);
    tune(&n->times.timeout_us, t->timeout_us);
    return 0;
}

void wp_names_destroy(struct wp_names *n)
{
    if (!n || n->closing)
        return;
    n->closing = true;
    n->busy++;
    if (n->loop->names == n)
        n->loop->names = NULL;
    wp_timer_stop(n->loop, &n->later);
    wp_resolver_destroy(n->resolver);
    WP_LIST_EACH(&n->lru, it)
    {
        struct entry *e = WP_CONTAINER(it, struct entry, lru);

        wp_timer_stop(n->loop, &e->patience);
        release_waiting(e);
    }
    deliver(n);
    n->busy--;
    free_when_done(n);
}
