/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/profile.h"

#include "base/conf.h"

#include <stdio.h>

struct form {
    char *name, *like;
    struct wp_profile p;
};

/* clang-format off */
#define NUM(field, kind, default, low, high, about) \
    {.name = #field, .type = WP_CONF_##kind, .at = offsetof(struct form, p.field), .def = default, \
     .min = low, .max = high, .meaning = about}
static const struct wp_conf_key rows[] = {
    {.name = "name", .type = WP_CONF_STR, .at = offsetof(struct form, name), .def = "", .meaning = "what it is called; the file's name when empty"},
    {.name = "like", .type = WP_CONF_STR, .at = offsetof(struct form, like), .def = "", .known = wp_profile_name, .meaning = "the built-in profile that says what this file does not"},
    NUM(a_us, DOUBLE, "1", 1e-6, 1e9, "microseconds per prefilled token"),
    NUM(b_us, DOUBLE, "0", 0, 1e9, "and per token and token of context"),
    NUM(t_c_us, DOUBLE, "0", 0, 1e9, "constant part of a prefill"),
    NUM(tw_us, DOUBLE, "0", 0, 1e9, "reading the weights: a step is never shorter"),
    NUM(tov_us, DOUBLE, "2000", 0, 1e9, "overhead of a step"),
    NUM(e_us, DOUBLE, "0", 0, 1e9, "of a step, per decoding sequence"),
    NUM(d_us, DOUBLE, "0", 0, 1e9, "and per token of KV of the decoding ones"),
    NUM(budget, U32, "2048", 1, 1e9, "tokens of a step"),
    NUM(max_running, U32, "256", 1, 1e9, "requests that run at once"),
    NUM(kv_bytes_per_token, U64, "1", 1, 1e12, "of all layers, on all GPUs of the worker"),
    NUM(gpu_tokens, U64, "1", 1, 1e15, "KV capacity of the worker's GPUs"),
    NUM(cpu_tokens, U64, "0", 0, 1e15, "and of its DRAM"),
    NUM(cpu_bytes_per_s, DOUBLE, "50e9", 1, 1e15, "DRAM to GPU"),
    NUM(disk_bytes_per_s, DOUBLE, "7e9", 1, 1e15, "disk to GPU"),
    NUM(remote_bytes_per_s, DOUBLE, "20e9", 1, 1e15, "remote and slower tiers to GPU"),
    NUM(max_model_len, U32, "131072", 1, 4294967295.0, "longest prompt and answer, tokens"),
    NUM(speed, DOUBLE, "1", 1e-6, 1e6, "6: everything six times as fast"),
    {0},
};
/* clang-format on */

/* What no default can know: without `like` the file must say it. */
static bool must_be_said(const char *key)
{
    static const char *const keys[] = {
        "a_us", "b_us", "tw_us", "e_us", "d_us", "kv_bytes_per_token", "gpu_tokens"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static size_t size_of(enum wp_conf_type type)
{
    return type == WP_CONF_U32 ? sizeof(uint32_t) : sizeof(uint64_t); /* a double has as many */
}

/* Fills what the file does not say from the profile that it is like. */
static void complete(struct wp_conf *c, struct form *f)
{
    struct form like = {0};
    struct wp_err err = WP_ERR_INIT;
    bool has_like = f->like[0] && wp_profile_find(f->like, &like.p, &err) == 0;

    for (const struct wp_conf_key *k = rows; k->name; k++) {
        if (k->type == WP_CONF_STR || wp_conf_given(c, k->name))
            continue;
        if (has_like)
            memcpy((char *)f + k->at, (const char *)&like + k->at, size_of(k->type));
        else if (must_be_said(k->name))
            (void)wp_conf_error(c, k->name, "want a number, or like: and a built-in profile");
    }
}

static void call_it(struct wp_profile *p, const char *name, const char *path)
{
    const char *base = strrchr(path, '/');

    snprintf(p->name, sizeof p->name, "%s", name[0] ? name : base ? base + 1 : path);
}

static int first_of(const struct wp_buf *errors, int rc, const char *path, struct wp_err *err)
{
    struct wp_str rest = wp_buf_str(errors), line;

    if (rc == WP_ENOMEM || !wp_str_split(&rest, '\n', &line))
        return wp_fail(err, WP_ENOMEM, "profile %s: out of memory", path);
    if (!wp_str_starts(line, path)) /* of an empty file there is no line */
        return wp_fail(err, WP_EINVAL, "profile %s: " WP_STR_FMT, path, WP_STR_ARG(line));
    return wp_fail(err, WP_EINVAL, "profile " WP_STR_FMT, WP_STR_ARG(line));
}

int wp_profile_read(const char *path, struct wp_profile *out, struct wp_err *err)
{
    struct wp_buf errors = {.max = 64 << 10};
    struct wp_conf c = {.errors = &errors};
    struct form f = {0};
    int rc = wp_conf_read_file(&c, path);

    if (rc == 0)
        rc = wp_conf_bind(&c, rows, &f);
    if (rc == 0)
        complete(&c, &f);
    if (rc == 0 && c.n_errors == 0) {
        *out = f.p;
        call_it(out, f.name, path);
    } else {
        rc = first_of(&errors, rc, path, err);
    }
    wp_conf_clear(rows, &f);
    wp_conf_fini(&c);
    wp_buf_fini(&errors);
    return rc;
}
