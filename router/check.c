/* SPDX-License-Identifier: Apache-2.0 */
#include "router/check.h"

#include "base/flags.h"
#include "router/config.h"

/* clang-format off */
static const struct wp_flag flags[] = {
    {"-c",       "FILE",      "the configuration: YAML, or JSON when it starts with {"},
    {"--set",    "KEY=VALUE", "as if written in the file; may come several times"},
    {"--worker", "SPEC",      "URL[,key=value]...: one more worker; may come several times"},
    {"--json",   NULL,        "print the whole configuration as JSON, defaults included, secrets left out"},
    {NULL, NULL, NULL},
};
/* clang-format on */

enum { MANY = 256 };

struct args {
    const char *file, *set[MANY], *worker[MANY];
    size_t n_set, n_worker;
    bool json;
};

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct args *a = arg;

    if ((i == 1 && a->n_set == MANY) || (i == 2 && a->n_worker == MANY))
        return wp_fail(err, WP_EUSAGE, "%s: want it at most %d times", flags[i].name, MANY);
    if (i == 0)
        a->file = value;
    else if (i == 1)
        a->set[a->n_set++] = value;
    else if (i == 2)
        a->worker[a->n_worker++] = value;
    else
        a->json = true;
    return 0;
}

static int word(void *arg, const char *value, struct wp_err *err)
{
    struct args *a = arg;

    if (a->file)
        return wp_fail(err, WP_EUSAGE, "want one file, got \"%s\" too", value);
    a->file = value;
    return 0;
}

static void summary(const struct args *a, const struct wp_config *c)
{
    const char *name = a->file ? a->file : "no file";

    printf("%s: ok: %zu worker%s, %zu model%s, policy %s, api %s, admin %s\n", name, c->n_workers,
           c->n_workers == 1 ? "" : "s", c->n_models, c->n_models == 1 ? "" : "s", c->policy.name,
           c->listen.api, c->listen.admin);
}

static int check(const struct args *a)
{
    struct wp_buf errors = {0}, json = {0};
    struct wp_config *c;
    int status = 2;
    int rc = wp_config_read(&c, a->file, a->set, a->n_set, a->worker, a->n_worker, &errors);

    if (rc == 0 && a->json)
        rc = wp_config_json(c, &json);
    if (rc == WP_ENOMEM) {
        fprintf(stderr, "warmpath check: out of memory\n");
        status = 1;
    } else if (rc < 0) {
        fwrite(errors.p, 1, errors.n, stdout);
    } else {
        status = 0;
        if (a->json)
            printf(WP_STR_FMT "\n", (int)json.n, json.p);
        else
            summary(a, c);
    }
    wp_config_destroy(c);
    wp_buf_fini(&json);
    wp_buf_fini(&errors);
    return status;
}

int wp_check_main(int argc, char **argv)
{
    struct args a = {0};
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_flags(argc, argv, flags, take, word, &a, &err);

    if (rc == 1) {
        wp_flags_help(stdout, "check [-c] FILE",
                      "Reads a configuration as serve would, and says what is wrong: FILE:LINE: "
                      "key: want ..., got ...",
                      flags);
        return 0;
    }
    if (rc == 0 && !a.file && a.n_set + a.n_worker == 0 && !a.json)
        rc = wp_fail(&err, WP_EUSAGE, "want a file: warmpath check -c FILE");
    if (rc < 0) {
        fprintf(stderr, "warmpath check: %s\n", err.text);
        return 2;
    }
    return check(&a);
}
