/* SPDX-License-Identifier: Apache-2.0 */
#include "router/upgrade.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define INHERIT_ENV "WARMPATH_INHERIT"
enum { WORDS_MAX = 65536, ENV_MAX = 1024, FIRST_FD = 3 };

/* --- the new process --- */

static bool listens(int fd)
{
    int is = 0;
    socklen_t n = sizeof is;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &n) == 0 && is;
}

/* A descriptor that is open, from here on not for children of ours; -1 when it is none. */
static int own(uint64_t fd)
{
    if (fd < FIRST_FD || fd > 65535 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    return (int)fd;
}

/* "admin=4@127.0.0.1:29000": the numbers, when the address is still ours. */
static void take(struct wp_inherited *in, struct wp_str word, const char *api, const char *admin)
{
    struct wp_str rest = word, name, numbers, one;
    bool wanted;

    wp_str_split(&rest, '=', &name);
    if (!wp_str_split(&rest, '@', &numbers))
        return;
    wanted = wp_str_is(name, "ready") || wp_str_is(rest, wp_str_is(name, "api") ? api : admin);
    while (wp_str_split(&numbers, ',', &one)) {
        uint64_t n;
        int fd = wp_str_u64(one, &n) ? own(n) : -1;

        if (fd < 0)
            continue;
        if (wanted && wp_str_is(name, "ready") && in->ready < 0)
            in->ready = fd;
        else if (wanted && wp_str_is(name, "admin") && in->admin < 0 && listens(fd))
            in->admin = fd;
        else if (wanted && wp_str_is(name, "api") && in->n_api < WP_INHERIT_MAX && listens(fd))
            in->api[in->n_api++] = fd;
        else
            close(fd);
    }
}

void wp_inherit(struct wp_inherited *in, const char *api, const char *admin)
{
    const char *text = getenv(INHERIT_ENV);
    struct wp_str rest, word;

    *in = (struct wp_inherited){.ready = -1, .admin = -1};
    if (!text)
        return;
    rest = wp_str_of(text);
    while (wp_str_split(&rest, ' ', &word))
        take(in, word, api, admin);
    unsetenv(INHERIT_ENV);
}

void wp_inherited_close(struct wp_inherited *in)
{
    if (in->ready >= 0)
        close(in->ready);
    if (in->admin >= 0)
        close(in->admin);
    for (size_t i = 0; i < in->n_api; i++)
        close(in->api[i]);
    *in = (struct wp_inherited){.ready = -1, .admin = -1};
}

/* --- the old process --- */

struct wp_upgrade {
    struct wp_loop *loop;
    const struct wp_upgrade_ops *ops;
    void *arg;
    uv_process_t child;
    uv_pipe_t pipe; /* the child says that it is ready, or ends it by dying */
    struct wp_timer late;
    unsigned open;
    bool running, closing;
};

static void on_late(struct wp_timer *t);

int wp_upgrade_create(struct wp_upgrade **out, struct wp_loop *l, const struct wp_upgrade_ops *ops, void *arg, struct wp_err *err)
{
    struct wp_upgrade *u = wp_calloc(1, sizeof *u);

    if (!u)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    u->loop = l;
    u->ops = ops;
    u->arg = arg;
    wp_timer_init(&u->late, on_late, u);
    *out = u;
    return 0;
}

static void end_if_closed(struct wp_upgrade *u)
{
    if (!u->closing || u->open)
        return;
    u->ops->closed(u->arg);
    wp_free(u);
}

static void on_closed(uv_handle_t *h)
{
    struct wp_upgrade *u = h->data;

    u->open--;
    if (u->open == 0)
        u->running = false;
    end_if_closed(u);
}

static void over(struct wp_upgrade *u)
{
    wp_timer_stop(u->loop, &u->late);
    if (u->running && !uv_is_closing((uv_handle_t *)&u->pipe))
        uv_close((uv_handle_t *)&u->pipe, on_closed);
    if (u->running && !uv_is_closing((uv_handle_t *)&u->child))
        uv_close((uv_handle_t *)&u->child, on_closed);
}

static void on_late(struct wp_timer *t)
{
    struct wp_upgrade *u = t->arg;

    wp_log(WP_ERROR, "upgrade", "pid=%d was not ready in %llu s: it is ended, and we go on", u->child.pid,
           (unsigned long long)(WP_UPGRADE_US / 1000000));
    uv_process_kill(&u->child, SIGKILL);
    over(u);
}

static void on_child_end(uv_process_t *child, int64_t status, int signal)
{
    struct wp_upgrade *u = child->data;

    wp_log(WP_ERROR, "upgrade", "pid=%d ended before it was ready, status=%lld signal=%d: we go on", child->pid, (long long)status, signal);
    over(u);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    static char byte[8];

    (void)h;
    (void)hint;
    *buf = uv_buf_init(byte, sizeof byte);
}

static void on_word(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct wp_upgrade *u = h->data;

    (void)buf;
    if (n == 0 || !u->running)
        return;
    if (n < 0) { /* it has ended, or will: on_child_end tells */
        uv_read_stop(h);
        return;
    }
    wp_log(WP_INFO, "upgrade", "pid=%d serves: draining", u->child.pid);
    over(u);
    u->ops->ready(u->arg);
}

/* The words that this process was started with. */
static char **own_words(char *text, size_t size)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    size_t words = 0, k = 0;
    char **list;

    if (fd >= 0)
        close(fd);
    if (n <= 0 || (size_t)n == size - 1)
        return NULL;
    text[n] = 0;
    for (ssize_t i = 0; i < n; i++)
        words += text[i] == 0;
    list = wp_calloc(words + 2, sizeof *list);
    for (ssize_t i = 0; list && i < n; i += (ssize_t)strlen(text + i) + 1)
        list[k++] = text + i;
    return list;
}

/* "A B C NULL" of the environment, and one more. */
static char **own_env(char *more)
{
    extern char **environ;
    size_t n = 0;
    char **list;

    while (environ[n])
        n++;
    list = wp_calloc(n + 2, sizeof *list);
    if (!list)
        return NULL;
    memcpy(list, environ, n * sizeof *list);
    list[n] = more;
    return list;
}

static int spawn(struct wp_upgrade *u, uv_stdio_container_t stdio[], int n, char *env_word, struct wp_err *err)
{
    char *text = wp_malloc(WORDS_MAX);
    char **words = text ? own_words(text, WORDS_MAX) : NULL, **env = own_env(env_word);
    uv_process_options_t o = {.exit_cb = on_child_end, .args = words, .env = env, .stdio = stdio, .stdio_count = n};
    int rc = words && env ? 0 : WP_ENOMEM;

    if (rc == 0) {
        o.file = words[0];
        rc = uv_pipe_init(&u->loop->uv, &u->pipe, 0);
    }
    if (rc == 0) {
        u->pipe.data = u->child.data = u;
        u->running = true;
        u->open = 2;
        rc = uv_spawn(&u->loop->uv, &u->child, &o);
        if (rc == 0)
            rc = uv_read_start((uv_stream_t *)&u->pipe, on_alloc, on_word);
        if (rc < 0)
            over(u);
    }
    wp_free(text);
    wp_free(words);
    wp_free(env);
    return rc < 0 ? wp_fail(err, rc, "the new process: %s", wp_strerror(rc)) : 0;
}

int wp_upgrade_start(struct wp_upgrade *u, int admin_fd, const char *admin, const int api_fd[], size_t n_api, const char *api,
                     struct wp_err *err)
{
    uv_stdio_container_t stdio[FIRST_FD + 2 + WP_INHERIT_MAX];
    char text[ENV_MAX];
    int n = 0, rc;
    size_t at;

    if (u->running || u->closing)
        return wp_fail(err, WP_EEXIST, "one is under way already");
    for (; n < FIRST_FD; n++) {
        stdio[n].flags = UV_INHERIT_FD;
        stdio[n].data.fd = n;
    }
    stdio[n].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
    stdio[n].data.stream = (uv_stream_t *)&u->pipe;
    at = (size_t)snprintf(text, sizeof text, INHERIT_ENV "=ready=%d@ admin=%d@%.200s api=", n, n + 1, admin);
    n++;
    stdio[n].flags = UV_INHERIT_FD;
    stdio[n++].data.fd = admin_fd;
    for (size_t i = 0; i < n_api && i < WP_INHERIT_MAX; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", i ? "," : "", n);
        stdio[n].flags = UV_INHERIT_FD;
        stdio[n++].data.fd = api_fd[i];
    }
    snprintf(text + at, sizeof text - at, "@%.200s", api);
    rc = spawn(u, stdio, n, text, err);
    if (rc < 0)
        return rc;
    wp_log(WP_INFO, "upgrade", "pid=%d started; we go on until it serves", u->child.pid);
    wp_timer_in(u->loop, &u->late, WP_UPGRADE_US);
    return 0;
}

void wp_upgrade_destroy(struct wp_upgrade *u)
{
    u->closing = true;
    over(u);
    end_if_closed(u);
}

/* --- the service manager --- */

void wp_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    int fd;

    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@')
        to.sun_path[0] = 0;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        wp_log(WP_WARN, "serve", "the service manager was not told %s", state);
    close(fd);
}
