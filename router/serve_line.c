/* SPDX-License-Identifier: Apache-2.0 */
#include "router/serve_inner.h"

#include "base/flags.h"

#include <stdio.h>

static const struct wp_flag flags[] = {
    {"-c", "FILE", "the configuration; without one, flags say it all"},
    {"--listen", "ADDR", "API address, HOST:PORT (127.0.0.1:30000)"},
    {"--admin", "ADDR", "admin and metrics address (127.0.0.1:29000)"},
    {"--worker", "SPEC", "URL[,key=value]...: an engine; may be given more than once"},
    {"--model", "NAME", "the model that the --worker engines serve, when they do not say it themselves"},
    {"--policy", "NAME", "how a worker is chosen (price); see `warmpath policies`"},
    {"--threads", "N", "event loops (1)"},
    {"--log-level", "LEVEL", "error, warn, info or debug (info)"},
    {"--record", "FILE", "write every decision there, for `warmpath replay --decisions`"},
    {"--set", "KEY=VALUE", "any key of the configuration, as in policy.price.room_us=5000; see `warmpath help config`"},
    {NULL, NULL, NULL},
};
enum { F_FILE, F_LISTEN, F_ADMIN, F_WORKER, F_MODEL, F_POLICY, F_THREADS, F_LOG, F_RECORD, F_SET };
static const char *const flag_keys[] = {[F_LISTEN] = "listen.api", [F_ADMIN] = "listen.admin", [F_POLICY] = "policy.name",
                                        [F_THREADS] = "threads",   [F_LOG] = "log.level", [F_RECORD] = "record.file"};

static int keep(char **list, size_t *n, const char *prefix, const char *value, struct wp_err *err)
{
    size_t len = strlen(prefix) + strlen(value) + 1;
    char *p = *n < WP_SERVE_WORDS ? wp_malloc(len) : NULL;

    if (!p)
        return wp_fail(err, WP_EUSAGE, "too many flags, or out of memory");
    snprintf(p, len, "%s%s", prefix, value);
    list[(*n)++] = p;
    return 0;
}

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct wp_serve *s = arg;
    char prefix[64];

    switch (i) {
    case F_FILE:
        wp_free(s->file);
        s->file = wp_strdup(value);
        return s->file ? 0 : wp_fail(err, WP_EUSAGE, "out of memory");
    case F_WORKER:
        return keep(s->worker, &s->n_worker, "", value, err);
    case F_MODEL:
        s->model = value;
        return 0;
    case F_SET:
        return keep(s->set, &s->n_set, "", value, err);
    default:
        snprintf(prefix, sizeof prefix, "%s %s=", flags[i].name, flag_keys[i]);
        return keep(s->set, &s->n_set, prefix, value, err);
    }
}

/* --model is said for the workers of the command line that do not name theirs. */
static int spread_model(struct wp_serve *s, struct wp_err *err)
{
    for (size_t i = 0; s->model && i < s->n_worker; i++) {
        char *old = s->worker[i];
        size_t len = strlen(old) + strlen(s->model) + 16;

        if (strstr(old, ",models="))
            continue;
        s->worker[i] = wp_malloc(len);
        if (!s->worker[i]) {
            s->worker[i] = old;
            return wp_fail(err, WP_ENOMEM, "out of memory");
        }
        snprintf(s->worker[i], len, "%s,models=%s", old, s->model);
        wp_free(old);
    }
    return 0;
}

int wp_serve_line(struct wp_serve *s, int argc, char **argv, struct wp_err *err)
{
    int rc = wp_flags(argc, argv, flags, take, NULL, s, err);

    if (rc == 1)
        wp_flags_help(stdout, "serve [-c FILE] [--worker URL]...", "Routes OpenAI-API requests to the engine where each "
                      "starts soonest.", flags);
    return rc ? rc : spread_model(s, err);
}
