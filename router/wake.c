/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model is asked for under the fleet's lock, on any thread: that only notes it and posts a letter.  On gate 0's loop the letter starts the program, or the
 * call; its end is told there too, where a timer asks for that of a program.  Closing: a program that runs is let go of, a call is cancelled, a letter
 * that comes yet does nothing.
 */
#include "router/wake.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

enum { CALL_US = 30000000, SOONEST_US = 1000000, WATCH_US = 100000 };

struct sleeper { /* a model that was asked for; there are no more than the configurations have named */
    struct wp_list link;
    struct wp_waker *waker;
    char *name;
    uint64_t next_us, called_us, took_us; /* under the lock: not before; when last; from the call to a worker */
    struct wp_letter letter;
    bool posted; /* under the lock */
    pid_t child; /* 0: none runs */
    struct wp_timer watch;
    struct wp_call *call;
    int status; /* of the call's answer */
};

struct wp_waker {
    pthread_mutex_t lock;
    struct wp_gate *gate;
    struct wp_client *client;
    struct wp_tls *tls;
    struct wp_list sleepers;
    struct wp_family *wakes;
    bool closing;
};

int wp_waker_create(struct wp_waker **out, struct wp_gate *g, struct wp_metrics *m, struct wp_err *err)
{
    struct wp_waker *w = wp_calloc(1, sizeof *w);
    const struct wp_client_conf cc = {0};
    int rc;

    if (!w)
        return wp_fail(err, WP_ENOMEM, "wake: out of memory");
    rc = wp_client_create(&w->client, &g->loop, &cc, err);
    if (rc < 0) {
        wp_free(w);
        return rc;
    }
    pthread_mutex_init(&w->lock, NULL);
    w->gate = g;
    wp_list_init(&w->sleepers);
    w->wakes = wp_family(m, WP_COUNTER, "warmpath_wakes_total", "Programs run and URLs called for want of a worker of a model: started, and failed, at once or by how they ended.",
                         "model,result", NULL, 0);
    *out = w;
    return 0;
}

void wp_waker_configure(struct wp_waker *w, const struct wp_config *conf)
{
    struct wp_err err = WP_ERR_INIT;

    for (size_t i = 0; i < conf->n_models && !w->tls; i++)
        if (wp_str_starts(wp_str_of(conf->models[i].wake.url), "https:") && wp_tls_client(&w->tls, NULL, &err) < 0)
            wp_log(WP_ERROR, "wake", "https: %s", err.text);
}

void wp_waker_close(struct wp_waker *w, void (*closed)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_mutex_unlock(&w->lock);
    WP_LIST_EACH(&w->sleepers, at)
    wp_timer_stop(&w->gate->loop, &WP_CONTAINER(at, struct sleeper, link)->watch);
    wp_client_destroy(w->client, closed, arg);
    w->client = NULL;
}

void wp_waker_destroy(struct wp_waker *w)
{
    if (!w)
        return;
    WP_LIST_EACH(&w->sleepers, at)
    {
        struct sleeper *s = WP_CONTAINER(at, struct sleeper, link);

        wp_free(s->name);
        wp_free(s);
    }
    wp_tls_unref(w->tls);
    pthread_mutex_destroy(&w->lock);
    wp_free(w);
}

/* ---- starting ---- */

static void count(struct sleeper *s, bool good)
{
    wp_count(WP_SERIES(s->waker->wakes, s->name, good ? "started" : "failed"), 1);
}

static void say(struct sleeper *s, bool good, const char *how)
{
    wp_log(good ? WP_INFO : WP_WARN, "wake", "model=%s %s", s->name, how);
}

static void on_watch(struct wp_timer *t)
{
    struct sleeper *s = t->arg;
    char how[64];
    int status = 0;
    pid_t pid = waitpid(s->child, &status, WNOHANG);

    if (pid == 0) {
        wp_timer_in(&s->waker->gate->loop, t, WATCH_US);
        return;
    }
    s->child = 0;
    if (pid > 0 && WIFSIGNALED(status))
        snprintf(how, sizeof how, "wake.command was ended by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "wake.command ended with status %d", WEXITSTATUS(status));
    if (status)
        count(s, false);
    say(s, status == 0, how);
}

/* The environment with the model's name; the words belong to env, which is freed whole. */
static char **environment(const char *name, char **word)
{
    size_t n = 0, k = 0;
    char **env;

    while (environ[n])
        n++;
    env = wp_calloc(n + 2, sizeof *env);
    *word = wp_malloc(strlen(name) + sizeof "WARMPATH_MODEL=");
    if (!env || !*word) {
        wp_free(env);
        return NULL;
    }
    sprintf(*word, "WARMPATH_MODEL=%s", name);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "WARMPATH_MODEL=", 15) != 0)
            env[k++] = environ[i];
    env[k] = *word;
    return env;
}

/* In a group of its own: what ends the router does not end it.  Signals are as a shell would have them. */
static int spawn(pid_t *pid, char **command, char **env)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, none;
    int rc;

    sigfillset(&all);
    sigemptyset(&none);
    if (posix_spawn_file_actions_init(&files))
        return WP_ENOMEM;
    if (posix_spawnattr_init(&how)) {
        posix_spawn_file_actions_destroy(&files);
        return WP_ENOMEM;
    }
    rc = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, 2, 1);
    rc = rc ? rc : posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    rc = rc ? rc : posix_spawnattr_setsigdefault(&how, &all);
    rc = rc ? rc : posix_spawnattr_setsigmask(&how, &none);
    rc = rc ? rc : posix_spawnp(pid, command[0], &files, &how, command, env);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

/* The loop stands still until the program has begun, a millisecond or so: nothing of our memory is copied for it. */
static void run(struct sleeper *s, char **command)
{
    char *word = NULL, **env = environment(s->name, &word);
    pid_t pid = 0;
    int rc = env ? spawn(&pid, command, env) : WP_ENOMEM;

    wp_free(env);
    wp_free(word);
    count(s, rc == 0);
    if (rc < 0) {
        say(s, false, wp_strerror(rc));
        return;
    }
    s->child = pid;
    wp_timer_in(&s->waker->gate->loop, &s->watch, WATCH_US);
    wp_log(WP_INFO, "wake", "model=%s wake.command runs: pid=%d %s", s->name, (int)pid, command[0]);
}

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    ((struct sleeper *)c->user)->status = h->status;
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    (void)c;
    (void)p;
    (void)n;
}

static void on_over(struct wp_call *c, int rc)
{
    struct sleeper *s = c->user;
    char how[96];

    s->call = NULL;
    if (s->waker->closing)
        return;
    if (rc < 0)
        snprintf(how, sizeof how, "wake.url: %s: %s", c->why ? c->why : "call", wp_strerror(rc));
    else
        snprintf(how, sizeof how, "wake.url answered %d", s->status);
    count(s, rc == 0 && s->status < 400);
    say(s, rc == 0 && s->status < 400, how);
}

static const struct wp_call_ops call_ops = {.on_head = on_head, .on_body = on_body, .on_over = on_over};

static void post_to(struct sleeper *s, const struct wp_config_model *m)
{
    char bearer[4096];
    struct wp_field field = {WP_STR("Authorization"), {bearer, 0}};
    struct wp_call_spec spec = {.method = WP_STR("POST"), .field = &field, .total_us = CALL_US, .ops = &call_ops, .user = s};
    struct wp_url url;
    const char *why;

    if (!wp_url_parse(wp_str_of(m->wake.url), &url, &why) || (url.tls && !s->waker->tls)) {
        count(s, false);
        say(s, false, "wake.url cannot be called");
        return;
    }
    spec.host = url.host;
    spec.port = url.port;
    spec.tls = url.tls ? s->waker->tls : NULL;
    spec.target = url.path.n ? url.path : WP_STR("/");
    field.value.n = (size_t)snprintf(bearer, sizeof bearer, "Bearer %.4000s", m->wake.api_key);
    spec.n_fields = *m->wake.api_key != 0;
    s->status = 0;
    s->call = wp_call(s->waker->client, &spec);
    if (!s->call) {
        count(s, false);
        say(s, false, "out of memory");
    }
}

static const struct wp_config_model *model_of(const struct wp_config *c, const char *name)
{
    for (size_t i = 0; i < c->n_models; i++)
        if (strcmp(c->models[i].name, name) == 0)
            return &c->models[i];
    return NULL;
}

static void on_letter(struct wp_letter *l)
{
    struct sleeper *s = WP_CONTAINER(l, struct sleeper, letter);
    const struct wp_config_model *m = model_of(wp_gate_conf(s->waker->gate), s->name);

    pthread_mutex_lock(&s->waker->lock);
    s->posted = false;
    pthread_mutex_unlock(&s->waker->lock);
    if (s->waker->closing || !m || s->child || s->call)
        return;
    if (m->wake.command[0])
        run(s, m->wake.command);
    else if (*m->wake.url)
        post_to(s, m);
}

/* ---- asked by the fleet ---- */

static struct sleeper *sleeper_of(struct wp_waker *w, const char *name)
{
    struct sleeper *s;

    WP_LIST_EACH(&w->sleepers, at)
    if (strcmp(WP_CONTAINER(at, struct sleeper, link)->name, name) == 0)
        return WP_CONTAINER(at, struct sleeper, link);
    s = wp_calloc(1, sizeof *s);
    if (!s || !(s->name = wp_strdup(name))) {
        wp_free(s);
        return NULL;
    }
    s->waker = w;
    s->letter.fn = on_letter;
    wp_timer_init(&s->watch, on_watch, s);
    wp_list_push(&w->sleepers, &s->link);
    return s;
}

void wp_wake_ask(struct wp_waker *w, const struct wp_config_model *m, uint64_t now_us)
{
    struct sleeper *s;

    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    s = sleeper_of(w, m->name);
    if (s && !w->closing && !s->posted && now_us >= s->next_us) {
        s->next_us = now_us + m->wake.again_us;
        if (!s->called_us)
            s->called_us = now_us;
        s->posted = true;
        wp_loop_post(&w->gate->loop, &s->letter);
    }
    pthread_mutex_unlock(&w->lock);
}

void wp_wake_came(struct wp_waker *w, const struct wp_config_model *m, uint64_t now_us)
{
    struct sleeper *s;

    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    s = sleeper_of(w, m->name);
    if (s && s->called_us) {
        s->took_us = now_us - s->called_us;
        s->called_us = 0;
    }
    pthread_mutex_unlock(&w->lock);
}

uint64_t wp_wake_expect_us(struct wp_waker *w, const struct wp_config_model *m, uint64_t now_us)
{
    uint64_t left = m->wake.again_us;
    struct sleeper *s;

    if (!w)
        return left;
    pthread_mutex_lock(&w->lock);
    s = sleeper_of(w, m->name);
    if (s && s->took_us)
        left = s->called_us && now_us > s->called_us ? (s->took_us > now_us - s->called_us ? s->took_us - (now_us - s->called_us) : 0) : s->took_us;
    pthread_mutex_unlock(&w->lock);
    return left > SOONEST_US ? left : SOONEST_US;
}
