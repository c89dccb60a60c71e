/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/decide.h"

#include "base/flags.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STDIO, POLICY, SET, NIC, SEED };
static const struct wp_flag flags[] = {
    [STDIO] =
        {"--stdio", NULL,
         "lines on the standard input, answers on the standard output (the only way there is)"},
    [POLICY] = {"--policy", "NAME",
                "what chooses the worker (price); `warmpath policies` lists them"},
    [SET] = {"--set", "KEY=VALUE",
             "a setting of the policy: price.near_us=500; may be said more than once"},
    [NIC] = {"--nic", "FIRST-LAST=BYTES/S",
             "links of these workers, where they are known to be others than I says; may be said "
             "more than once"},
    [SEED] = {"--seed", "N", "the same seed makes the same draws (1)"},
    {NULL, NULL, NULL},
};

struct options {
    struct wp_decide *d;
    bool stdio;
};

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct options *o = arg;
    struct wp_str rest = wp_str_of(value), key;
    int rc = 0;

    switch (i) {
    case STDIO:
        o->stdio = true;
        break;
    case POLICY:
        o->d->conf.policy = value;
        break;
    case SET:
        (void)wp_str_split(&rest, '=', &key);
        rc = wp_policy_set(&o->d->conf.policy_conf, key, rest, err);
        break;
    case NIC:
        rc = wp_decide_nic(o->d, rest, err);
        break;
    case SEED:
        rc = wp_flag_u64(&flags[i], value, 0, UINT64_MAX, &o->d->conf.seed, err);
        break;
    }
    if (rc == WP_EINVAL)
        err->code = rc = WP_EUSAGE;
    return rc;
}

static int put(struct wp_buf *out, struct wp_err *err)
{
    if (out->n && (fwrite(out->p, 1, out->n, stdout) != out->n || fflush(stdout) != 0))
        return wp_fail(err, WP_EEOF, "the standard output is closed");
    out->n = 0;
    return 0;
}

static int play(struct wp_decide *d, struct wp_err *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;

    while (rc == 0 && !d->over && (n = getline(&line, &cap, stdin)) >= 0) {
        if (n && line[n - 1] == '\n')
            n--;
        if (n && line[n - 1] == '\r')
            n--;
        rc = wp_decide_line(d, (struct wp_str){line, (size_t)n}, err);
        rc = rc ? rc : put(d->out, err);
    }
    free(line); /* getline's own */
    return rc;
}

static int try_policy(const struct wp_brain_conf *c, struct wp_err *err)
{
    struct wp_policy *p = NULL;
    int rc =
        wp_policy_create(&p, c->policy ? c->policy : wp_policies[0]->name, &c->policy_conf, err);

    if (p)
        p->ops->destroy(p);
    if (rc == WP_EINVAL)
        err->code = rc = WP_EUSAGE;
    return rc;
}

int wp_decide_main(int argc, char **argv)
{
    struct wp_buf out = {0};
    struct wp_decide d;
    struct options o = {.d = &d};
    struct wp_err err = WP_ERR_INIT;
    int rc;

    wp_decide_init(&d, &out);
    d.conf.seed = 1;
    rc = wp_flags(argc, argv, flags, take, NULL, &o, &err);
    if (rc == 1) {
        wp_flags_help(stdout, "decide --stdio [--policy NAME] [--set KEY=VALUE]...",
                      "Decides for a simulator that tells on the standard input what happens "
                      "(docs/policies.md).",
                      flags);
        return 0;
    }
    if (rc == 0 && !o.stdio)
        rc = wp_fail(&err, WP_EUSAGE, "want --stdio");
    rc = rc ? rc : try_policy(&d.conf, &err);
    rc = rc ? rc : play(&d, &err);
    wp_decide_fini(&d);
    wp_buf_fini(&out);
    if (rc == 0)
        return 0;
    fprintf(stderr, "warmpath decide: %s\n", err.text);
    return rc == WP_EUSAGE ? 2 : 1;
}
