/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/decision_impl.h"
#include "policies/policy.h"

#include "policies/pick.h"
#include "policies/rules.h"

#include <math.h>
#include <stdio.h>

const char *const wp_term_names[WP_TERMS] = {
    [WP_TERM_WAIT] = "wait",   [WP_TERM_FETCH] = "fetch", [WP_TERM_COMPUTE] = "compute",
    [WP_TERM_LINK] = "link",   [WP_TERM_ROOM] = "room",   [WP_TERM_PIN] = "pin",
    [WP_TERM_SCORE] = "score",
};

/* clang-format off */
const struct wp_policy_ops *const wp_policies[] = {
    &wp_policy_price, &wp_policy_round_robin, &wp_policy_random, &wp_policy_least_loaded, &wp_policy_least_work,
    &wp_policy_power_of_two, &wp_policy_prefix_hash, &wp_policy_session,
    &wp_policy_dynamo, &wp_policy_sglang, &wp_policy_llmd, &wp_policy_preble, &wp_policy_conductor,
    NULL,
};
/* clang-format on */
enum { POLICIES = sizeof wp_policies / sizeof wp_policies[0] - 1 };

void wp_policy_conf_init(struct wp_policy_conf *c)
{
    *c = (struct wp_policy_conf){
        .room_us = 20000,
        .room_cap_blocks = 20,
        .room_wait_share = 0.1,
        .room_tuned = 1,
        .move_us = 20000,
        .move_blocks = 10,
        .pin_us = 40000,
        .fetch = 1,
        .fetch_margin_us = 1000,
        .link_share = 1.5,
        .hold_us = 225000,
        .hold_max = 4096,
        .hold_most_us = 40000000,
        .age = 0.1,
        .near_us = 1000,
        .near_share = 0.01,
        .doubt = 0.5,
        .calibrate = true,
        .bound = 1.25,
        .prefix_blocks = 4,
        .dynamo_prefill_weight = 1,
        .llmd_prefix = 2,
        .llmd_queue = 1,
        .llmd_kv = 1,
        .sglang_match = 0.3,
        .sglang_balance_abs = 64,
        .sglang_balance_rel = 1.5,
        .sglang_blocks = 32768,
        .preble_window_s = 180,
        .preble_overload = 1.3,
        .conductor_ratio = 1.5,
    };
}

/* The configuration's rows check the same; a test or a simulation fills the struct by hand. */
static const struct row {
    const char *name;
    size_t at; /* a double of wp_policy_conf */
    double min, max;
} rows[] = {
#define ROW(name, member, min, max)                             \
    {                                                           \
        name, offsetof(struct wp_policy_conf, member), min, max \
    }
    ROW("price.room_us", room_us, 0, 1e9),
    ROW("price.room_cap_blocks", room_cap_blocks, 0, 1e9),
    ROW("price.room_wait_share", room_wait_share, 0, 100),
    ROW("price.room_tuned", room_tuned, 0, 1),
    ROW("price.move_us", move_us, 0, 1e9),
    ROW("price.move_blocks", move_blocks, 0, 1e9),
    ROW("price.pin_us", pin_us, 0, 1e9),
    ROW("price.fetch", fetch, 0, 1),
    ROW("price.fetch_margin_us", fetch_margin_us, 0, 1e9),
    ROW("price.link_share", link_share, 0, 100),
    ROW("price.hold_us", hold_us, 0, 1e12),
    ROW("price.hold_max", hold_max, 0, 1 << 20),
    ROW("price.hold_most_us", hold_most_us, 0, 1e12),
    ROW("price.age", age, 1e-6, 1e6),
    ROW("price.near_us", near_us, 0, 1e9),
    ROW("price.near_share", near_share, 0, 1),
    ROW("price.doubt", doubt, 0, 1),
    ROW("bound", bound, 1, 1e9),
    ROW("dynamo.prefill_weight", dynamo_prefill_weight, 0, 1e6),
    ROW("llmd.prefix", llmd_prefix, 0, 1e6),
    ROW("llmd.queue", llmd_queue, 0, 1e6),
    ROW("llmd.kv", llmd_kv, 0, 1e6),
    ROW("sglang.match", sglang_match, 0, 1),
    ROW("sglang.balance_abs", sglang_balance_abs, 0, 1e6),
    ROW("sglang.balance_rel", sglang_balance_rel, 1, 1e6),
    ROW("sglang.blocks", sglang_blocks, 1, 1 << 20),
    ROW("preble.window_s", preble_window_s, 1, 86400),
    ROW("preble.overload", preble_overload, 1, 1000),
    ROW("conductor.ratio", conductor_ratio, 1, 1e6),
#undef ROW
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static int check(const struct wp_policy_conf *c, struct wp_err *err)
{
    for (size_t i = 0; i < ROWS; i++) {
        double value = *(const double *)((const char *)c + rows[i].at);

        if (!(value >= rows[i].min && value <= rows[i].max))
            return wp_fail(err, WP_EINVAL, "policy.%s: want a number from %g to %g, got %g",
                           rows[i].name, rows[i].min, rows[i].max, value);
    }
    return 0;
}

/* Those that are no double. */
static bool set_other(struct wp_policy_conf *c, struct wp_str key, struct wp_str value, int *rc,
                      struct wp_err *err)
{
    bool yes = wp_str_is(value, "true");
    double x;

    *rc = 0;
    if (wp_str_is(key, "pull")) {
        if (yes || wp_str_is(value, "false"))
            c->pull = yes;
        else
            *rc = wp_fail(err, WP_EINVAL, "policy.pull: want true or false, got \"" WP_STR_FMT "\"",
                          WP_STR_ARG(value));
        return true;
    }
    if (!wp_str_is(key, "prefix_blocks"))
        return false;
    if (wp_str_double(value, &x) && x >= 1 && x <= 4096 && x == floor(x))
        c->prefix_blocks = (uint32_t)x;
    else
        *rc = wp_fail(err, WP_EINVAL,
                      "policy.prefix_blocks: want a whole number from 1 to 4096, got \"" WP_STR_FMT
                      "\"",
                      WP_STR_ARG(value));
    return true;
}

int wp_policy_set(struct wp_policy_conf *c, struct wp_str key, struct wp_str value,
                  struct wp_err *err)
{
    const char *names[ROWS], *near;
    double x;
    int rc;

    if (wp_str_starts(key, "policy."))
        key = (struct wp_str){key.p + 7, key.n - 7};
    if (set_other(c, key, value, &rc, err))
        return rc;
    for (size_t i = 0; i < ROWS; i++) {
        names[i] = rows[i].name;
        if (!wp_str_is(key, rows[i].name))
            continue;
        if (!wp_str_double(value, &x) || !(x >= rows[i].min && x <= rows[i].max))
            return wp_fail(err, WP_EINVAL,
                           "policy.%s: want a number from %g to %g, got \"" WP_STR_FMT "\"",
                           rows[i].name, rows[i].min, rows[i].max, WP_STR_ARG(value));
        *(double *)((char *)c + rows[i].at) = x;
        return 0;
    }
    near = wp_str_nearest(key, names, ROWS);
    return wp_fail(err, WP_EINVAL, "unknown setting \"policy." WP_STR_FMT "\"%s%s%s",
                   WP_STR_ARG(key), near ? "; did you mean \"policy." : "", near ? near : "",
                   near ? "\"?" : "");
}

size_t wp_policy_settings(const struct wp_policy_conf *c, struct wp_decision_setting s[],
                          size_t cap)
{
    size_t n = 0;

    for (; n < ROWS && n < cap; n++) {
        s[n].name = rows[n].name;
        memcpy(&s[n].value, (const char *)c + rows[n].at, sizeof s[n].value);
    }
    return n;
}

static int unknown(const char *name, struct wp_err *err)
{
    const char *names[POLICIES], *near;
    char all[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < POLICIES; i++) {
        names[i] = wp_policies[i]->name;
        if (used < sizeof all)
            used +=
                (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    }
    near = wp_str_nearest(wp_str_of(name), names, POLICIES);
    if (near)
        return wp_fail(err, WP_EINVAL, "unknown policy \"%.64s\"; did you mean \"%s\"? known: %s",
                       name, near, all);
    return wp_fail(err, WP_EINVAL, "unknown policy \"%.64s\"; known: %s", name, all);
}

int wp_policy_create(struct wp_policy **out, const char *name, const struct wp_policy_conf *conf,
                     struct wp_err *err)
{
    int rc = check(conf, err);

    *out = NULL;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < POLICIES; i++) {
        if (strcmp(name, wp_policies[i]->name) != 0)
            continue;
        rc = wp_policies[i]->create(out, conf, err);
        return rc == 0 && conf->pull ? wp_pull_create(out, *out, err) : rc;
    }
    return unknown(name, err);
}
