/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/engine_rig.h"

#include "net/http1.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_closed(void *arg)
{
    struct wp_rig *r = arg;

    wp_loop_stop(&r->loop);
}

static void on_stop(struct wp_letter *l)
{
    struct wp_rig *r = WP_CONTAINER(l, struct wp_rig, stop);

    wp_engine_destroy(r->engine, on_closed, r);
}

static void *run(void *arg)
{
    struct wp_rig *r = arg;

    EXPECT_INT("every handle was closed", 0, wp_loop_run(&r->loop));
    return NULL;
}

void wp_rig_conf(struct wp_engine_conf *conf, double speed)
{
    struct wp_err err = WP_ERR_INIT;

    *conf = (struct wp_engine_conf){
        .listen = WP_STR("127.0.0.1:0"),
        .model = "tiny",
        .max_model_len = 2048,
        .cost = {.block_size = 32, .tier_blocks = {96, 0, 0}, .secret = 7},
    };
    EXPECT_INT("profile", 0, wp_profile_find(wp_profile_name(0), &conf->cost.profile, &err));
    conf->cost.profile.speed = speed;
}

void wp_rig_start_conf(struct wp_rig *r, struct wp_engine_conf *conf, const char *const faults[])
{
    struct wp_fault fault[8];
    struct wp_err err = WP_ERR_INIT;

    memset(r, 0, sizeof *r);
    r->live = wp_mem_live();
    conf->fault = fault;
    for (; faults && faults[conf->n_faults]; conf->n_faults++)
        EXPECT_INT(faults[conf->n_faults], 0,
                   wp_fault_parse(&fault[conf->n_faults], wp_str_of(faults[conf->n_faults]), &err));
    EXPECT_INT("loop", 0, wp_loop_init(&r->loop, &err));
    EXPECT_INT(err.text, 0, wp_engine_create(&r->engine, &r->loop, conf, &err));
    r->port = wp_engine_port(r->engine);
    r->stop.fn = on_stop;
    pthread_create(&r->thread, NULL, run, r);
}

void wp_rig_start(struct wp_rig *r, const char *const faults[], double speed)
{
    struct wp_engine_conf conf;

    wp_rig_conf(&conf, speed);
    wp_rig_start_conf(r, &conf, faults);
}

void wp_rig_stop(struct wp_rig *r)
{
    wp_loop_post(&r->loop, &r->stop);
    pthread_join(r->thread, NULL);
    wp_loop_fini(&r->loop);
    EXPECT_INT("nothing leaks", r->live, wp_mem_live());
}

int wp_rig_send(const struct wp_rig *r, const char *method, const char *path, const char *headers,
                const char *body, size_t n)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(r->port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval patience = {.tv_sec = 20};
    struct wp_buf out = {0};
    size_t at = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    wp_buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method,
                  path, headers);
    if (body)
        wp_buf_printf(&out, "Content-Length: %zu\r\n", n);
    wp_buf_adds(&out, "\r\n");
    if (body)
        wp_buf_add(&out, body, n);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        close(fd);
        fd = -1;
    }
    while (fd >= 0 && at < out.n) {
        ssize_t k = send(fd, out.p + at, out.n - at, MSG_NOSIGNAL);

        if (k <= 0)
            break;
        at += (size_t)k;
    }
    wp_buf_fini(&out);
    return fd;
}

static void unchunk(struct wp_rig_answer *a, const char *p, size_t n)
{
    while (n) {
        char *end;
        size_t size = strtoul(p, &end, 16), line = (size_t)(end - p) + 2;

        if (n < line)
            return;
        if (size == 0) {
            a->whole = n == line + 2;
            return;
        }
        if (n < line + size + 2) {
            wp_buf_add(&a->body, p + line, n - line < size ? n - line : size);
            return;
        }
        wp_buf_add(&a->body, p + line, size);
        p += line + size + 2;
        n -= line + size + 2;
    }
}

void wp_rig_receive(int fd, struct wp_rig_answer *a)
{
    struct wp_buf in = {0};
    const char *end, *length;
    char piece[16384];
    ssize_t k;

    memset(a, 0, sizeof *a);
    while ((k = recv(fd, piece, sizeof piece, 0)) > 0)
        wp_buf_add(&in, piece, (size_t)k);
    a->error = k < 0 ? errno : 0;
    close(fd);
    wp_buf_add(&in, "", 1);
    end = strstr(in.p, "\r\n\r\n");
    if (end && strncmp(in.p, "HTTP/1.1 ", 9) == 0) {
        size_t head = (size_t)(end - in.p) + 4;

        a->status = atoi(in.p + 9);
        wp_buf_add(&a->head, in.p, head);
        wp_buf_add(&a->head, "", 1);
        length = strcasestr(a->head.p, "content-length:");
        if (strcasestr(a->head.p, "transfer-encoding: chunked")) {
            unchunk(a, in.p + head, in.n - 1 - head);
        } else {
            wp_buf_add(&a->body, in.p + head, in.n - 1 - head);
            a->whole = length && strtoul(length + 15, NULL, 10) == a->body.n;
        }
    }
    wp_buf_fini(&in);
}

void wp_rig_ask(const struct wp_rig *r, const char *method, const char *path, const char *body,
                struct wp_rig_answer *a)
{
    int fd = wp_rig_send(r, method, path, body ? "Content-Type: application/json\r\n" : "", body,
                         body ? strlen(body) : 0);

    EXPECT_TRUE("connected", fd >= 0);
    wp_rig_receive(fd, a);
}

void wp_rig_answer_fini(struct wp_rig_answer *a)
{
    wp_buf_fini(&a->head);
    wp_buf_fini(&a->body);
}

static double find_metric(const char *page, const char *name, const char *label)
{
    size_t n = strlen(name);

    for (const char *line = page; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        const char *end = strchr(line, '\n'), *value;

        if (!end || strncmp(line, name, n) != 0 || (line[n] != '{' && line[n] != ' '))
            continue;
        value = memrchr(line, ' ', (size_t)(end - line));
        if (!*label || memmem(line, (size_t)(end - line), label, strlen(label)))
            return value ? strtod(value, NULL) : -1;
    }
    return -1;
}

double wp_rig_metric(const struct wp_rig *r, const char *name, const char *label)
{
    struct wp_rig_answer a;
    double x;

    wp_rig_ask(r, "GET", "/metrics", NULL, &a);
    wp_buf_add(&a.body, "", 1);
    x = find_metric(a.body.p, name, label);
    wp_rig_answer_fini(&a);
    return x;
}

bool wp_rig_metric_becomes(const struct wp_rig *r, const char *name, const char *label, double want)
{
    for (int i = 0; i < 4000; i++)
        if (wp_rig_metric(r, name, label) == want)
            return true;
    return false;
}
