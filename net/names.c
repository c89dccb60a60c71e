/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The story of a name.  A look-up that needs no asking (an address, localhost, a fresh entry) goes
 * to the ready list, which is handed out on the loop's next turn.  Any other waits at its entry,
 * and the entry asks: one question at a time, one server after another, until there is an answer or
 * no server is left to try.  Then the entry settles, and all that wait become ready.  Nothing is
 * ever handed out inside one of c-ares' callbacks, so whoever gets an answer may do anything, also
 * end the names.
 *
 * Each server has a c-ares channel of its own, which tries once.  So we see which server said what:
 * c-ares alone would take "no address" from a broken first server as the last word, and would begin
 * with a dead one every time.
 *
 * c-ares tells which sockets it wants watched (on_socket); each gets a uv_poll_t, which is closed
 * when c-ares lets the socket go.  The struct dies with the last of them.
 */
#include "net/names.h"

#include "base/log.h"
#include "base/mem.h"

#include <ares.h>
#include <netinet/in.h>
#include <xxhash.h>

enum { BUCKETS = 256, NAME_MAX_BYTES = 254, SERVERS_MAX = 8, DENIALS = 3 };

struct server {
    struct wp_names *names;
    ares_channel channel;
    struct wp_timer tick; /* c-ares' own deadlines */
};

struct watch { /* a socket of c-ares */
    uv_poll_t poll;
    struct wp_list link;
    struct server *server;
    struct wp_names *names; /* outlives the server */
    int fd;
};

struct entry {
    struct wp_names *names;
    struct wp_list bucket, lru;
    struct wp_list waiting; /* look-ups */
    unsigned users;         /* look-ups that wait or are ready: then it stays */
    bool asking;
    bool slow; /* patience has run out for this question: who comes now gets the old answer at once
                */
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
    char name[NAME_MAX_BYTES + 1];
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
    struct server *server;
    size_t n_servers, prefer; /* prefer: the server that answered last */
    struct wp_list bucket[BUCKETS];
    struct wp_list lru; /* longest unused first */
    size_t n_entries;
    struct wp_list ready;
    struct wp_timer later; /* hands out what is ready */
    struct wp_list watches;
    struct wp_names_times times;
    unsigned open, busy; /* handles not yet closed; hand-outs under way */
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
    if (!n->closing || n->open > 0 || n->busy > 0)
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

/* --- c-ares' sockets and deadlines --- */

static void on_watch_closed(uv_handle_t *h)
{
    struct watch *w = h->data;
    struct wp_names *n = w->names;

    wp_free(w);
    n->open--;
    free_when_done(n);
}

static void arm(struct server *s)
{
    struct timeval tv, *next = ares_timeout(s->channel, NULL, &tv);

    if (next)
        wp_timer_in(s->names->loop, &s->tick,
                    (uint64_t)tv.tv_sec * 1000000 + (uint64_t)tv.tv_usec + 1000);
    else
        wp_timer_stop(s->names->loop, &s->tick);
}

static void process(struct server *s, int read_fd, int write_fd)
{
    ares_process_fd(s->channel, read_fd, write_fd);
    arm(s);
    deliver(s->names);
}

static void on_tick(struct wp_timer *t)
{
    process(t->arg, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
    struct watch *w = h->data;
    bool broken = status < 0;

    process(w->server, broken || (events & UV_READABLE) ? w->fd : ARES_SOCKET_BAD,
            broken || (events & UV_WRITABLE) ? w->fd : ARES_SOCKET_BAD);
}

static struct watch *watch_of(struct server *s, int fd)
{
    struct watch *w;

    WP_LIST_EACH(&s->names->watches, it)
    {
        w = WP_CONTAINER(it, struct watch, link);
        if (w->fd == fd)
            return w;
    }
    w = wp_calloc(1, sizeof *w);
    if (!w)
        return NULL; /* the question runs into its deadline */
    if (uv_poll_init(&s->names->loop->uv, &w->poll, fd) < 0) {
        wp_free(w);
        return NULL;
    }
    w->poll.data = w;
    w->server = s;
    w->names = s->names;
    w->fd = fd;
    s->names->open++;
    wp_list_push(&s->names->watches, &w->link);
    return w;
}

static void on_socket(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct watch *w = watch_of(arg, fd);

    if (!w)
        return;
    if (readable || writable) {
        uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0),
                      on_poll);
        return;
    }
    wp_list_del(&w->link); /* c-ares closes the descriptor next: libuv must have let go of it */
    uv_close((uv_handle_t *)&w->poll, on_watch_closed);
}

/* --- servers --- */

static void servers_free(struct wp_names *n, struct server *s, size_t n_servers)
{
    for (size_t i = 0; i < n_servers; i++) {
        wp_timer_stop(n->loop, &s[i].tick);
        ares_destroy(s[i].channel);
    }
    wp_free(s);
}

static int server_init(struct server *s, struct wp_names *n)
{
    struct ares_options o = {0};
    int rc;

    o.timeout = (int)(n->times.timeout_us / 1000);
    o.tries = 1;
    o.sock_state_cb = on_socket;
    o.sock_state_cb_data = s;
    s->names = n;
    wp_timer_init(&s->tick, on_tick, s);
    rc = ares_init_options(&s->channel, &o,
                           ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
    return rc == ARES_SUCCESS ? 0 : rc == ARES_ENOMEM ? WP_ENOMEM : WP_EINVAL;
}

static int servers_list(const char *csv, struct ares_addr_port_node **list)
{
    ares_channel c;
    int rc = ares_init(&c);

    if (rc == ARES_SUCCESS) {
        if (csv)
            rc = ares_set_servers_ports_csv(c, csv);
        if (rc == ARES_SUCCESS)
            rc = ares_get_servers_ports(c, list);
        ares_destroy(c);
    }
    if (rc == ARES_SUCCESS && !*list)
        rc = ARES_EBADSTR;
    return rc == ARES_SUCCESS ? 0 : rc == ARES_ENOMEM ? WP_ENOMEM : WP_EINVAL;
}

static int servers_make(struct wp_names *n, const char *csv, struct server **out, size_t *n_out)
{
    struct ares_addr_port_node *list = NULL;
    struct server *s = wp_calloc(SERVERS_MAX, sizeof *s);
    size_t got = 0;
    int rc;

    if (!s)
        return WP_ENOMEM;
    rc = servers_list(csv, &list);
    for (struct ares_addr_port_node *at = list; rc == 0 && at && got < SERVERS_MAX; at = at->next) {
        struct ares_addr_port_node one = *at;

        one.next = NULL;
        rc = server_init(&s[got], n);
        if (rc == 0 && ares_set_servers_ports(s[got++].channel, &one) != ARES_SUCCESS)
            rc = WP_ENOMEM;
    }
    if (list)
        ares_free_data(list);
    if (rc < 0) {
        servers_free(n, s, got);
        return rc;
    }
    *out = s;
    *n_out = got;
    return 0;
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

/* Takes the addresses over; false when there is none that we can use or no memory. */
static bool keep(struct entry *e, const struct ares_addrinfo *ai, uint64_t *ttl_us)
{
    const struct wp_names_times *t = &e->names->times;
    struct sockaddr_storage *addr;
    uint64_t ttl = UINT64_MAX;
    size_t n = 0;

    for (const struct ares_addrinfo_cname *c = ai->cnames; c; c = c->next)
        if (c->ttl >= 0 && (uint64_t)c->ttl < ttl)
            ttl = (uint64_t)c->ttl;
    for (const struct ares_addrinfo_node *a = ai->nodes; a; a = a->ai_next)
        n += a->ai_addrlen <= sizeof *addr;
    if (n > WP_NAMES_ADDRS)
        n = WP_NAMES_ADDRS;
    addr = n ? wp_calloc(n, sizeof *addr) : NULL;
    if (!addr)
        return false;
    n = 0;
    for (const struct ares_addrinfo_node *a = ai->nodes; a && n < WP_NAMES_ADDRS; a = a->ai_next) {
        if (a->ai_addrlen > sizeof *addr)
            continue;
        memcpy(&addr[n++], a->ai_addr, a->ai_addrlen);
        if (a->ai_ttl >= 0 && (uint64_t)a->ai_ttl < ttl)
            ttl = (uint64_t)a->ai_ttl;
    }
    wp_free(e->addr);
    e->addr = addr;
    e->n = n;
    *ttl_us = ttl > t->ttl_max_us / 1000000 ? t->ttl_max_us : ttl * 1000000;
    if (*ttl_us < t->ttl_min_us)
        *ttl_us = t->ttl_min_us;
    return true;
}

/* Whether another server, or the same once more, may know better. */
static bool worth_another(struct entry *e, int status)
{
    size_t n = e->names->n_servers;

    if (e->asked >= (n == 1 ? 3 : 2 * n))
        return false;
    switch (status) {
    case ARES_ENODATA:
        return ++e->empty < n;
    case ARES_ESERVFAIL:
    case ARES_EREFUSED:
    case ARES_ENOTIMP:
    case ARES_EFORMERR:
    case ARES_EBADRESP:
    case ARES_ETIMEOUT:
    case ARES_ECONNREFUSED:
        return true;
    default:
        return false;
    }
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *ai)
{
    struct entry *e = arg;
    uint64_t ttl_us = 0;
    bool kept = false;

    (void)timeouts;
    if (status == ARES_EDESTRUCTION || status == ARES_ECANCELLED)
        goto out; /* whoever ends the channel cares for the entry */
    if (status == ARES_SUCCESS && ai) {
        kept = keep(e, ai, &ttl_us);
        status = kept ? status : ai->nodes ? ARES_ENOMEM : ARES_ENODATA;
    }
    if (status == ARES_SUCCESS || status == ARES_ENOTFOUND)
        e->names->prefer = e->server;
    if (kept)
        settle(e, 0, false, ttl_us);
    else if (worth_another(e, status))
        ask(e);
    else if (status == ARES_ETIMEOUT && e->empty == 0)
        settle(e, WP_ETIMEDOUT, false, 0);
    else if (status == ARES_ENOMEM)
        settle(e, WP_ENOMEM, false, 0);
    else
        settle(e, WP_ENONAME, status == ARES_ENOTFOUND || e->empty > 0, 0);
out:
    if (ai)
        ares_freeaddrinfo(ai);
}

static void ask(struct entry *e)
{
    static const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC,
                                                     .ai_socktype = SOCK_STREAM};
    struct wp_names *n = e->names;
    struct server *s;

    e->server = (e->first + e->asked) % n->n_servers;
    e->asked++;
    s = &n->server[e->server];
    ares_getaddrinfo(s->channel, e->name, NULL, &hints, on_answer, e); /* may answer at once */
    arm(s);
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

/* In lower case and ended by a zero; false when it is no name at all. */
static bool plain_name(struct wp_str host, char out[NAME_MAX_BYTES + 1])
{
    if (host.n == 0 || host.n > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < host.n; i++) {
        unsigned char c = (unsigned char)host.p[i];

        if (c <= ' ' || c == 0x7f)
            return false;
        out[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    out[host.n] = 0;
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* What needs no asking: returns how many addresses it has, 0 when it must be asked for. */
static size_t known(const char *name, struct sockaddr_storage addr[2])
{
    if (uv_ip4_addr(name, 0, (struct sockaddr_in *)&addr[0]) == 0 ||
        uv_ip6_addr(name, 0, (struct sockaddr_in6 *)&addr[0]) == 0)
        return 1;
    if (strcmp(name, "localhost") != 0 && strcmp(name, "localhost.") != 0 &&
        !ends_with(name, ".localhost"))
        return 0;
    uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *)&addr[0]);
    uv_ip6_addr("::1", 0, (struct sockaddr_in6 *)&addr[1]);
    return 2;
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
    wp_list_init(&n->watches);
    wp_timer_init(&n->later, on_later, n);
    l->names = n;
    return n;
}

/* Asks for e, making the system's servers on the very first question. */
static int ask_for(struct wp_names *n, struct entry *e)
{
    int rc;

    if (!n->server) {
        rc = servers_make(n, NULL, &n->server, &n->n_servers);
        if (rc < 0)
            return rc;
    }
    ask_first(e);
    return 0;
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
    char name[NAME_MAX_BYTES + 1];
    struct entry *e;

    if (!q)
        return NULL;
    q->names = n;
    q->port = port;
    q->fn = fn;
    q->arg = arg;
    wp_list_init(&q->link);
    if (!plain_name(host, name)) {
        q->rc = WP_ENONAME;
        make_ready(q);
        return q;
    }
    q->n = known(name, q->addr);
    if (q->n) {
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
    char name[NAME_MAX_BYTES + 1];
    struct entry *e = l->names && plain_name(host, name) ? find(l->names, name) : NULL;

    if (e && !e->asking)
        e->until_us = 0;
}

int wp_names_servers(struct wp_loop *l, const char *csv)
{
    struct wp_names *n = names_of(l);
    struct server *fresh, *old;
    size_t n_fresh, n_old;
    int rc = n ? servers_make(n, csv, &fresh, &n_fresh) : WP_ENOMEM;

    if (rc < 0)
        return rc;
    old = n->server;
    n_old = n->n_servers;
    n->server = fresh;
    n->n_servers = n_fresh;
    n->prefer = 0;
    if (old)
        servers_free(n, old, n_old);
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
    if (n->server)
        servers_free(n, n->server, n->n_servers);
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
