/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/dnsserver.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { HEAD = 12, TYPE_A = 1, TYPE_AAAA = 28 };

/* The question's end, and its name with dots; 0 when it is none. */
static size_t read_question(const uint8_t *p, size_t n, char name[256], unsigned *type)
{
    size_t at = HEAD, out = 0;

    while (at < n && p[at]) {
        if (at + 1 + p[at] >= n || out + p[at] + 2 > 256)
            return 0;
        if (out)
            name[out++] = '.';
        memcpy(name + out, p + at + 1, p[at]);
        out += p[at];
        at += 1u + p[at];
    }
    name[out] = 0;
    if (at + 5 > n)
        return 0;
    *type = (unsigned)(p[at + 1] << 8 | p[at + 2]);
    return at + 5;
}

static size_t put_record(uint8_t *p, const struct dns_server *s, unsigned type)
{
    size_t n = type == TYPE_A ? 4 : 16;
    uint8_t head[12] = {0xc0,
                        HEAD,
                        0,
                        (uint8_t)type,
                        0,
                        1,
                        (uint8_t)(s->ttl >> 24),
                        (uint8_t)(s->ttl >> 16),
                        (uint8_t)(s->ttl >> 8),
                        (uint8_t)s->ttl,
                        0,
                        (uint8_t)n};

    memcpy(p, head, sizeof head);
    memset(p + 12, 0, n);
    if (type == TYPE_A)
        p[12] = 127;
    p[12 + n - 1] = s->last;
    return 12 + n;
}

static void answer(struct dns_server *s, const uint8_t *p, size_t n, const struct sockaddr *to)
{
    uint8_t out[600];
    char name[256];
    unsigned type = 0;
    size_t end = read_question(p, n, name, &type);
    bool found =
        (s->mood == DNS_RIGHT && type == TYPE_A) || (s->mood == DNS_V6_ONLY && type == TYPE_AAAA);
    uv_buf_t buf;

    if (end == 0 || end > 500)
        return;
    memcpy(out, p, end);
    out[2] = 0x85;
    out[3] = (uint8_t)(0x80 | (s->mood == DNS_NXDOMAIN ? 3 : s->mood == DNS_SERVFAIL ? 2 : 0));
    memset(out + 4, 0, 8);
    out[5] = 1;
    out[7] = found;
    if (found)
        end += put_record(out + end, s, type);
    buf = uv_buf_init((char *)out, (unsigned)end);
    uv_udp_try_send(&s->udp, &buf, 1, to);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    struct dns_server *s = h->data;

    (void)hint;
    *buf = uv_buf_init(s->buffer, sizeof s->buffer);
}

static void on_question(uv_udp_t *h, ssize_t n, const uv_buf_t *buf, const struct sockaddr *from,
                        unsigned flags)
{
    struct dns_server *s = h->data;
    const uint8_t *id = (const uint8_t *)buf->base;
    char was[sizeof s->name];
    unsigned type = 0;

    (void)flags;
    memcpy(was, s->name, sizeof was);
    if (n <= HEAD || !from || !read_question(id, (size_t)n, s->name, &type))
        return;
    if (type == TYPE_A && (memcmp(id, s->id, 2) != 0 || strcmp(was, s->name) != 0))
        s->asked++; /* on a busy machine a question is sent again before its answer is read */
    if (type == TYPE_A)
        memcpy(s->id, id, 2);
    if (s->mood == DNS_HELD && s->n_held < 8 && n <= 512) {
        memcpy(s->held[s->n_held].bytes, buf->base, (size_t)n);
        s->held[s->n_held].n = (size_t)n;
        memcpy(&s->held[s->n_held++].from, from, sizeof(struct sockaddr_in));
    } else if (s->mood != DNS_SILENT) {
        answer(s, (const uint8_t *)buf->base, (size_t)n, from);
    }
}

int dns_server_start(struct dns_server *s, uv_loop_t *loop, uint8_t last, uint32_t ttl)
{
    struct sockaddr_in addr;
    int n = sizeof addr, rc;

    memset(s, 0, sizeof *s);
    s->last = last;
    s->ttl = ttl;
    uv_ip4_addr("127.0.0.1", 0, &addr);
    uv_udp_init(loop, &s->udp);
    s->udp.data = s;
    rc = uv_udp_bind(&s->udp, (struct sockaddr *)&addr, 0);
    if (rc == 0)
        rc = uv_udp_getsockname(&s->udp, (struct sockaddr *)&addr, &n);
    if (rc == 0)
        rc = uv_udp_recv_start(&s->udp, on_alloc, on_question);
    s->port = ntohs(addr.sin_port);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%u", (unsigned)s->port);
    return rc;
}

void dns_server_release(struct dns_server *s)
{
    s->mood = DNS_RIGHT;
    for (unsigned i = 0; i < s->n_held; i++)
        answer(s, s->held[i].bytes, s->held[i].n, (struct sockaddr *)&s->held[i].from);
    s->n_held = 0;
}

void dns_server_stop(struct dns_server *s)
{
    if (!s->closed)
        uv_close((uv_handle_t *)&s->udp, NULL);
    s->closed = true;
}
