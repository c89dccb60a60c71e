/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/decide.h"

#include "base/mem.h"

#include <math.h>

/* A line as it is read: field by field, the first error stays. */
struct fields {
    struct wp_decide *d;
    const char *p, *end;
    unsigned at; /* the field last read, counted from 1 */
    struct wp_err *err;
    int rc;
};

static int bad(struct fields *f, const char *name, const char *want)
{
    size_t n = (size_t)(f->end - f->p);

    if (f->rc == 0)
        f->rc = wp_fail(f->err, WP_ESYNTAX, "line %llu: field %u, %s: want %s, got \"%.*s\"",
                        (unsigned long long)f->d->line, f->at, name, want, (int)(n < 40 ? n : 40),
                        f->p);
    return f->rc;
}

static bool next(struct fields *f)
{
    while (f->p < f->end && *f->p == ' ')
        f->p++;
    f->at++;
    return f->rc == 0;
}

static bool at_end_of_field(const struct fields *f)
{
    return f->p == f->end || *f->p == ' ';
}

static uint64_t whole(struct fields *f, const char *name, uint64_t max)
{
    const char *start;
    uint64_t x = 0;

    if (!next(f))
        return 0;
    start = f->p;
    while (f->p < f->end && *f->p >= '0' && *f->p <= '9' && f->p - start < 19)
        x = 10 * x + (uint64_t)(*f->p++ - '0');
    if (f->p == start || !at_end_of_field(f) || x > max) {
        f->p = start;
        (void)bad(f, name,
                  max == UINT32_MAX ? "a number below 2^32" : "a whole number in its bounds");
        return 0;
    }
    return x;
}

static uint64_t seconds(struct fields *f, const char *name)
{
    const char *start;
    uint64_t us = 0;
    int behind = 0;

    if (!next(f))
        return 0;
    start = f->p;
    while (f->p < f->end && *f->p >= '0' && *f->p <= '9' && us < 1000000000000000u)
        us = 10 * us + (uint64_t)(*f->p++ - '0');
    us *= 1000000;
    if (f->p > start && f->p < f->end && *f->p == '.') {
        uint64_t unit = 1000000;

        for (f->p++; f->p < f->end && *f->p >= '0' && *f->p <= '9'; f->p++, behind++)
            us += (unit /= 10) * (uint64_t)(*f->p - '0');
    }
    if (f->p == start || !at_end_of_field(f) || us > 1000000000000000000u) {
        f->p = start;
        (void)bad(f, name, "a time in seconds");
        return 0;
    }
    return us;
}

static char one_of(struct fields *f, const char *name, const char *letters, const char *want)
{
    char c;

    if (!next(f))
        return 0;
    c = f->p < f->end ? *f->p : 0;
    if (c && strchr(letters, c) && (f->p + 1 == f->end || f->p[1] == ' ')) {
        f->p++;
        return c;
    }
    (void)bad(f, name, want);
    return 0;
}

static int ended(struct fields *f)
{
    if (next(f) && f->p < f->end)
        (void)bad(f, "end", "nothing more");
    return f->rc;
}

static uint32_t worker_of(struct fields *f)
{
    return (uint32_t)whole(f, "worker", f->d->conf.workers - 1);
}

static int is_block(struct fields *f)
{
    uint64_t t = seconds(f, "t"), id;
    uint32_t worker = WP_BRAIN_NO_WORKER;
    char tier, sign;

    if (next(f) && f->end - f->p > 2 && f->p[0] == '-' && f->p[1] == '1' && f->p[2] == ' ') {
        f->p += 2;
    } else {
        f->at--;
        worker = worker_of(f);
    }
    tier = one_of(f, "tier", worker == WP_BRAIN_NO_WORKER ? "S" : "HD",
                  worker == WP_BRAIN_NO_WORKER ? "S for worker -1" : "H or D");
    sign = one_of(f, "sign", "+-", "+ or -");
    id = whole(f, "id", UINT64_MAX);
    if (ended(f) < 0)
        return f->rc;
    wp_brain_block(f->d->brain, t, worker,
                   tier == 'H'   ? WP_BRAIN_GPU
                   : tier == 'D' ? WP_BRAIN_CPU
                                 : WP_BRAIN_STORE,
                   sign == '+', id);
    return 0;
}

static int is_state(struct fields *f)
{
    uint32_t worker = worker_of(f);
    uint64_t t = seconds(f, "t");
    struct wp_brain_state s;

    s.prefill_tokens = whole(f, "prefill_tokens", UINT64_MAX);
    s.waiting = (uint32_t)whole(f, "waiting", UINT32_MAX);
    s.in_flight = (uint32_t)whole(f, "in_flight", UINT32_MAX);
    s.decoding = (uint32_t)whole(f, "decoding", UINT32_MAX);
    s.kv_tokens = whole(f, "kv_tokens", UINT64_MAX);
    s.pinned_blocks = whole(f, "pinned_blocks", UINT64_MAX);
    if (ended(f) < 0)
        return f->rc;
    wp_brain_state(f->d->brain, 0, t, worker, &s);
    return 0;
}

static int is_of_request(struct fields *f,
                         void (*tell)(struct wp_brain *b, uint64_t now_us, uint64_t req))
{
    uint64_t t = seconds(f, "t"), req = whole(f, "req", UINT64_MAX);

    (void)worker_of(f);
    if (ended(f) < 0)
        return f->rc;
    tell(f->d->brain, t, req);
    return 0;
}

static int place(struct wp_decide *d, uint64_t req, const struct wp_brain_answer *a)
{
    int rc;

    if (a->held)
        return wp_buf_printf(d->out, "H %llu\n", (unsigned long long)req);
    rc = wp_buf_printf(d->out, "P %llu %u", (unsigned long long)req, a->worker);
    for (uint32_t i = 0; rc == 0 && i < a->n_fetch; i++)
        rc = wp_buf_printf(d->out, " %u %u %u",
                           a->fetch[i].source == WP_BRAIN_FROM_STORE ? d->conf.workers
                                                                     : a->fetch[i].source,
                           a->fetch[i].from, a->fetch[i].to);
    return rc ? rc : wp_buf_adds(d->out, "\n");
}

static int is_request(struct fields *f)
{
    struct wp_decide *d = f->d;
    uint64_t t = seconds(f, "t");
    struct wp_brain_req r = {0};
    struct wp_brain_answer a;

    r.id = whole(f, "req", UINT64_MAX);
    r.tokens = (uint32_t)whole(f, "input_tokens", UINT32_MAX);
    r.n = (size_t)whole(f, "nblocks", WP_BRAIN_BLOCKS_MAX);
    if (f->rc == 0 && r.n > d->cap) {
        uint64_t *p = wp_realloc(d->block, r.n * sizeof *p);

        if (!p)
            return wp_fail(f->err, WP_ENOMEM, "line %llu: out of memory",
                           (unsigned long long)d->line);
        d->block = p;
        d->cap = r.n;
    }
    for (size_t i = 0; f->rc == 0 && i < r.n; i++)
        d->block[i] = whole(f, "id", UINT64_MAX);
    r.block = d->block;
    if (ended(f) < 0)
        return f->rc;
    f->rc = wp_brain_ask(d->brain, t, &r, &a, f->err);
    if (f->rc < 0)
        return wp_wrap(f->err, "line %llu", (unsigned long long)d->line);
    return place(d, r.id, &a);
}

struct tick {
    struct wp_decide *d;
    int rc;
};

static void on_place(void *arg, uint64_t req, const struct wp_brain_answer *a)
{
    struct tick *t = arg;

    t->rc = t->rc ? t->rc : place(t->d, req, a);
}

static int is_tick(struct fields *f)
{
    uint64_t t = seconds(f, "t");
    struct tick tick = {.d = f->d};

    if (ended(f) < 0)
        return f->rc;
    (void)wp_brain_tick(f->d->brain, t, on_place, &tick);
    return tick.rc ? tick.rc : wp_buf_adds(f->d->out, ".\n");
}

struct key {
    const char *name;
    enum { WHOLE32, WHOLE64, REAL } kind;
    size_t at;
    double scale;
};
#define CONF(m) offsetof(struct wp_brain_conf, m)
static const struct key keys[] = {
    {"workers", WHOLE32, CONF(workers), 1},
    {"block_tokens", WHOLE32, CONF(block_tokens), 1},
    {"block_bytes", REAL, CONF(block_bytes), 1},
    {"a", REAL, CONF(profile.a_us), 1e6},
    {"b", REAL, CONF(profile.b_us), 1e6},
    {"tw", REAL, CONF(profile.tw_us), 1e6},
    {"tov", REAL, CONF(profile.tov_us), 1e6},
    {"e", REAL, CONF(profile.e_us), 1e6},
    {"d", REAL, CONF(profile.d_us), 1e6},
    {"budget", WHOLE32, CONF(profile.budget), 1},
    {"hbm", WHOLE64, CONF(gpu_blocks), 1},
    {"dram", WHOLE64, CONF(cpu_blocks), 1},
    {"store", WHOLE64, CONF(store_blocks), 1},
    {"nic", REAL, CONF(nic_bytes_per_s), 1},
    {"storebw", REAL, CONF(store_bytes_per_s), 1},
    {"lat", REAL, CONF(latency_us), 1e6},
    {"pcie", REAL, CONF(profile.cpu_bytes_per_s), 1},
    {"stale", REAL, CONF(stale_us), 1e6},
};
enum { KEYS = sizeof keys / sizeof keys[0] };

static void take_key(struct fields *f, struct wp_brain_conf *c, struct wp_str key,
                     struct wp_str value)
{
    double x;

    for (size_t i = 0; i < KEYS; i++) {
        char *at = (char *)c + keys[i].at;

        if (!wp_str_is(key, keys[i].name))
            continue;
        if (!wp_str_double(value, &x) ||
            !(x >= 0 && x <= (keys[i].kind == REAL ? 1e18 : 4294967295.0)) ||
            (keys[i].kind != REAL && x != floor(x))) {
            f->p = value.p;
            (void)bad(f, keys[i].name,
                      keys[i].kind == REAL ? "a number from 0 on" : "a whole number below 2^32");
        } else if (keys[i].kind == REAL) {
            *(double *)(void *)at = x * keys[i].scale;
        } else if (keys[i].kind == WHOLE32) {
            *(uint32_t *)(void *)at = (uint32_t)x;
        } else {
            *(uint64_t *)(void *)at = (uint64_t)x;
        }
        return;
    }
}

static int is_intro(struct fields *f)
{
    struct wp_brain_conf c = f->d->conf;
    double nic[WP_BRAIN_WORKERS_MAX];

    if (f->d->brain) {
        f->p--;
        return bad(f, "kind", "one I line only");
    }
    while (next(f) && f->p < f->end) {
        const char *start = f->p, *is;

        while (!at_end_of_field(f))
            f->p++;
        is = memchr(start, '=', (size_t)(f->p - start));
        if (!is) {
            f->p = start;
            return bad(f, "setting", "key=value");
        }
        take_key(f, &c, (struct wp_str){start, (size_t)(is - start)},
                 (struct wp_str){is + 1, (size_t)(f->p - is - 1)});
    }
    if (f->rc < 0)
        return f->rc;
    c.profile.gpu_tokens = c.gpu_blocks * c.block_tokens;
    c.profile.cpu_tokens = c.cpu_blocks * c.block_tokens;
    if (c.block_tokens)
        c.profile.kv_bytes_per_token = (uint64_t)(c.block_bytes / c.block_tokens);
    for (size_t i = 0; i < WP_BRAIN_WORKERS_MAX; i++)
        nic[i] = f->d->nic[i] > 0 ? f->d->nic[i] : c.nic_bytes_per_s;
    c.worker_nic_bytes_per_s = nic;
    f->rc = wp_brain_create(&f->d->brain, &c, f->err);
    c.worker_nic_bytes_per_s = NULL;
    f->d->conf = c;
    return f->rc < 0 ? wp_wrap(f->err, "line %llu", (unsigned long long)f->d->line) : 0;
}

int wp_decide_line(struct wp_decide *d, struct wp_str line, struct wp_err *err)
{
    struct fields f = {.d = d, .p = line.p, .end = line.p + line.n, .err = err};
    char kind;

    d->line++;
    kind = one_of(&f, "kind", "IBSFERTQ", "I B S F E R T or Q");
    if (kind && kind != 'I' && kind != 'Q' && !d->brain) {
        f.p--;
        return bad(&f, "kind", "an I line first");
    }
    switch (kind) {
    case 'I':
        return is_intro(&f);
    case 'B':
        return is_block(&f);
    case 'S':
        return is_state(&f);
    case 'F':
        return is_of_request(&f, wp_brain_first);
    case 'E':
        return is_of_request(&f, wp_brain_end);
    case 'R':
        return is_request(&f);
    case 'T':
        return is_tick(&f);
    case 'Q':
        d->over = true;
        return ended(&f);
    default:
        return f.rc;
    }
}

int wp_decide_nic(struct wp_decide *d, struct wp_str text, struct wp_err *err)
{
    struct wp_str rate = text, range, from;
    uint64_t a, b;
    double x;

    if (wp_str_split(&rate, '=', &range) && wp_str_double(rate, &x) && x > 0 && x <= 1e15) {
        struct wp_str to = range;

        (void)wp_str_split(&to, '-', &from);
        if (!to.p)
            to = from;
        if (wp_str_u64(from, &a) && wp_str_u64(to, &b) && a <= b && b < WP_BRAIN_WORKERS_MAX) {
            while (a <= b)
                d->nic[a++] = x;
            return 0;
        }
    }
    return wp_fail(err, WP_EINVAL,
                   "want FIRST-LAST=BYTES/S with workers below %d, got \"" WP_STR_FMT "\"",
                   WP_BRAIN_WORKERS_MAX, WP_STR_ARG(text));
}

void wp_decide_init(struct wp_decide *d, struct wp_buf *out)
{
    *d = (struct wp_decide){.out = out};
    wp_brain_conf_init(&d->conf);
}

void wp_decide_fini(struct wp_decide *d)
{
    wp_brain_destroy(d->brain);
    wp_free(d->block);
}
