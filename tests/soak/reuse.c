/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reuse race: an engine that closes kept connections at the worst moments, and clients of the router who must never notice.
 *
 *     build/soak/reuse --router build/warmpath [--requests N] [--seed N]
 *
 * After an answer the engine, by chance, keeps the connection; closes it at once; closes it a few of its own events later, which is
 * about when the next request comes; resets it; or takes the next request and closes or resets without a byte of an answer, as a process does
 * whose idle limit ran out while the request was under way.  A connection's first request is always answered: nobody dies here.
 * Every request of every client must be answered by 200 and the engine's own bytes, and no worker may be blamed.
 */
#include "base/rng.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 16, CONNS = 4096, LINE = 4096, LATER = 8 };

static const char request_body[] = "{\"model\":\"m\",\"prompt\":\"hello\",\"max_tokens\":1}";
static const char answer_body[] = "{\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\" ok\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}";
static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}]}";

enum plan { KEEP, CLOSE_LATER, CLOSE_NEXT, RESET_NEXT };

struct peer { /* of the engine */
    char in[LINE];
    size_t n;
    unsigned answered;
    enum plan plan;
    unsigned due; /* events until it is closed */
    bool open;
};

static struct peer peers[CONNS];
static _Atomic uint64_t asked, dropped, failed;
static _Atomic bool stopping;
static uint16_t api_port;
static uint64_t requests_each;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "reuse: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* --- the engine --- */

static void end(int fd, bool reset)
{
    const struct linger hard = {1, 0};

    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    peers[fd].open = false;
    close(fd);
}

static bool say(int fd, const char *body, bool found)
{
    char out[512];
    int n = snprintf(out, sizeof out, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     found ? "200 OK" : "404 Not Found", strlen(body), body);

    return write(fd, out, (size_t)n) == n;
}

/* The length of the request that lies at the start of p, 0 when it is not whole. */
static size_t whole(const char *p, size_t n)
{
    const char *end_of = memmem(p, n, "\r\n\r\n", 4), *length = memmem(p, n, "Content-Length: ", 16);
    size_t all = end_of ? (size_t)(end_of - p) + 4 : 0;

    if (all && length && length < end_of)
        all += strtoul(length + 16, NULL, 10);
    return all <= n ? all : 0;
}

static void answer(int fd, struct wp_rng *rng)
{
    struct peer *p = &peers[fd];
    size_t n = whole(p->in, p->n);
    uint64_t draw = wp_rng_below(rng, 100);

    if (n == 0)
        return;
    if (memcmp(p->in, "GET ", 4) == 0) { /* a probe: it has connections of its own, and those are not played with */
        bool found = memcmp(p->in, "GET /v1/models", 14) == 0 || memcmp(p->in, "GET /health", 11) == 0;

        p->n = 0;
        if (!say(fd, models, found))
            end(fd, false);
        return;
    }
    atomic_fetch_add(&asked, 1);
    if (p->plan == CLOSE_NEXT || p->plan == RESET_NEXT) {
        atomic_fetch_add(&dropped, 1);
        end(fd, p->plan == RESET_NEXT);
        return;
    }
    memmove(p->in, p->in + n, p->n - n);
    p->n -= n;
    p->answered++;
    if (!say(fd, answer_body, true) || draw < 8) {
        end(fd, draw < 3);
        return;
    }
    p->plan = draw < 20 ? CLOSE_LATER : draw < 23 ? CLOSE_NEXT : draw < 26 ? RESET_NEXT : KEEP;
    p->due = 1 + (unsigned)wp_rng_below(rng, LATER);
}

static void come(int fd, struct wp_rng *rng)
{
    struct peer *p = &peers[fd];
    ssize_t n;

    if (!p->open)
        return;
    if (p->plan == RESET_NEXT && wp_rng_below(rng, 2)) { /* unread: the kernel itself resets */
        atomic_fetch_add(&dropped, 1);
        end(fd, false);
        return;
    }
    n = read(fd, p->in + p->n, sizeof p->in - p->n);
    if (n < 0 && errno == EAGAIN)
        return; /* the event was of a connection that had this number before */
    if (n <= 0) {
        end(fd, false);
        return;
    }
    p->n += (size_t)n;
    answer(fd, rng);
}

static void close_due(void)
{
    for (int fd = 0; fd < CONNS; fd++)
        if (peers[fd].open && peers[fd].plan == CLOSE_LATER && --peers[fd].due == 0)
            end(fd, fd & 1);
}

static void *engine(void *arg)
{
    int *listener = arg, poll = epoll_create1(0);
    struct epoll_event ev[64], in = {.events = EPOLLIN, .data.fd = *listener};
    struct wp_rng rng = {(uint64_t)listener[1]};

    epoll_ctl(poll, EPOLL_CTL_ADD, *listener, &in);
    while (!atomic_load(&stopping)) {
        int n = epoll_wait(poll, ev, 64, 100);

        for (int i = 0; i < n; i++) {
            int fd = ev[i].data.fd, one = 1;

            if (fd != *listener) {
                come(fd, &rng);
                continue;
            }
            fd = accept4(*listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0 || fd >= CONNS)
                die("accept");
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            peers[fd] = (struct peer){.open = true};
            in.data.fd = fd;
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &in);
        }
        close_due();
    }
    close(poll);
    return NULL;
}

/* --- clients --- */

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Reads one answer with a length; whether it was 200 and the engine's. */
static bool hear(int fd, char *in)
{
    size_t n = 0, all = 0;
    char *body;

    while (all == 0) {
        ssize_t more = read(fd, in + n, LINE - 1 - n);

        if (more <= 0)
            return false;
        n += (size_t)more;
        in[n] = 0;
        all = whole(in, n);
    }
    body = strstr(in, "\r\n\r\n");
    return memcmp(in, "HTTP/1.1 200", 12) == 0 && body && strcmp(body + 4, answer_body) == 0;
}

static void *client(void *arg)
{
    char in[LINE], out[512];
    int fd = connect_to(api_port);
    int n = snprintf(out, sizeof out, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     sizeof request_body - 1, request_body);

    (void)arg;
    for (uint64_t i = 0; i < requests_each; i++) {
        if (write(fd, out, (size_t)n) == n && hear(fd, in))
            continue;
        if (atomic_fetch_add(&failed, 1) < 5)
            fprintf(stderr, "reuse: a client got: %.300s\n", in);
        close(fd);
        fd = connect_to(api_port);
    }
    close(fd);
    return NULL;
}

/* --- the router --- */

extern char **environ;

static pid_t start_router(const char *binary, uint16_t port, int *err)
{
    char worker[64];
    char *argv[] = {(char *)binary, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--worker", worker, NULL};
    posix_spawn_file_actions_t actions;
    int pipes[2];
    pid_t pid;

    snprintf(worker, sizeof worker, "http://127.0.0.1:%u", port);
    if (pipe(pipes) < 0)
        die("pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 2);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    errno = posix_spawn(&pid, binary, &actions, NULL, argv, environ);
    if (errno)
        die(binary);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    *err = pipes[0];
    return pid;
}

/* Its log: the port that it serves on, and that its worker is up. */
static void wait_ready(FILE *log)
{
    char line[1024];
    bool up = false;

    while ((api_port == 0 || !up) && fgets(line, sizeof line, log)) {
        const char *at = strstr(line, "api=127.0.0.1:");

        if (at)
            api_port = (uint16_t)atoi(at + 14);
        up = up || strstr(line, " up models=");
    }
    if (api_port == 0 || !up)
        die("the router did not start");
}

/* What it says later is drained, and must not be about a worker that failed. */
static void *listen_to(void *arg)
{
    char line[1024];

    while (fgets(line, sizeof line, arg))
        if (strstr(line, "warn") || strstr(line, "error") || strstr(line, "Sanitizer"))
            fprintf(stderr, "router: %s", line);
    return NULL;
}

static int listen_any(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) < 0 || listen(fd, 128) < 0 || getsockname(fd, (struct sockaddr *)&at, &n) < 0)
        die("listen");
    *port = ntohs(at.sin_port);
    return fd;
}

static uint64_t run(const char *binary, uint64_t requests, unsigned seed)
{
    pthread_t server, reader, clients[CLIENTS];
    int listener[2] = {0, (int)seed}, log_fd, status = 0;
    uint16_t port;
    pid_t router;
    FILE *log;

    listener[0] = listen_any(&port);
    pthread_create(&server, NULL, engine, listener);
    router = start_router(binary, port, &log_fd);
    log = fdopen(log_fd, "r");
    wait_ready(log);
    pthread_create(&reader, NULL, listen_to, log);
    requests_each = (requests + CLIENTS - 1) / CLIENTS;
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&clients[i], NULL, client, NULL);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    kill(router, SIGTERM);
    waitpid(router, &status, 0);
    pthread_join(reader, NULL);
    fclose(log);
    atomic_store(&stopping, true);
    pthread_join(server, NULL);
    close(listener[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "reuse: the router ended with status %d\n", status);
        atomic_fetch_add(&failed, 1);
    }
    return requests_each * CLIENTS;
}

int main(int argc, char **argv)
{
    const char *binary = "build/warmpath";
    uint64_t requests = 1000000, done;
    unsigned seed = 1;

    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--router") == 0)
            binary = argv[i + 1];
        else if (strcmp(argv[i], "--requests") == 0)
            requests = (uint64_t)strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = (unsigned)atoi(argv[i + 1]);
    }
    done = run(binary, requests, seed);
    printf("reuse: %llu requests, %llu at the engine, of which %llu met a closing connection; %llu failed\n", (unsigned long long)done,
           (unsigned long long)atomic_load(&asked), (unsigned long long)atomic_load(&dropped), (unsigned long long)atomic_load(&failed));
    if (atomic_load(&dropped) == 0)
        atomic_fetch_add(&failed, 1); /* it has shown nothing */
    printf("%d passed, %d failed\n", atomic_load(&failed) == 0, atomic_load(&failed) != 0);
    return atomic_load(&failed) != 0;
}
