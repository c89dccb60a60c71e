/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/fault.h"

#include <stdbool.h>

/* clang-format off */
static const struct {
    const char *name;
    enum wp_fault_kind kind;
    bool value; /* KIND=VALUE; max 0: a share from 0 to 1 */
    uint64_t min, max;
} kinds[] = {
    {"silent",        WP_FAULT_SILENT,        false, 0, 0},
    {"slow-accept",   WP_FAULT_SLOW_ACCEPT,   true,  0, 3600000},
    {"reset",         WP_FAULT_RESET,         false, 0, 0},
    {"status",        WP_FAULT_STATUS,        true,  400, 599},
    {"stall",         WP_FAULT_STALL,         false, 0, 0},
    {"stall-prefill", WP_FAULT_STALL_PREFILL, true,  1, UINT32_MAX},
    {"error-first",   WP_FAULT_ERROR_FIRST,   false, 0, 0},
    {"die-after",     WP_FAULT_DIE_AFTER,     true,  0, UINT32_MAX},
    {"lose",          WP_FAULT_LOSE,          true,  0, 0},
    {"double",        WP_FAULT_DOUBLE,        true,  0, 0},
    {"reorder",       WP_FAULT_REORDER,       true,  0, 0},
    {"skip",          WP_FAULT_SKIP,          true,  0, 0},
    {"events-restart", WP_FAULT_EVENTS_RESTART, true, 1, UINT32_MAX},
};
/* clang-format on */

const char wp_fault_help[] = "silent | slow-accept=MS | reset | status=CODE[,retry-after=S] | "
                             "stall | stall-prefill=TOKENS | error-first | "
                             "die-after=TOKENS | lose=P | double=P | reorder=P | skip=P | "
                             "events-restart=BATCHES; each with ,every=K and ,count=N";

static int parse_kind(struct wp_fault *f, struct wp_str name, struct wp_str value,
                      struct wp_err *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!wp_str_is(name, kinds[i].name))
            continue;
        f->kind = kinds[i].kind;
        if (!kinds[i].value && value.p)
            return wp_fail(err, WP_EUSAGE, "%s takes no value", kinds[i].name);
        if (!kinds[i].value)
            return 0;
        if (kinds[i].max == 0) {
            if (wp_str_double(value, &f->share) && f->share >= 0 && f->share <= 1)
                return 0;
            return wp_fail(err, WP_EUSAGE, "%s=" WP_STR_FMT ": want a share from 0 to 1",
                           kinds[i].name, WP_STR_ARG(value));
        }
        if (wp_str_u64(value, &f->value) && f->value >= kinds[i].min && f->value <= kinds[i].max)
            return 0;
        return wp_fail(err, WP_EUSAGE, "%s=" WP_STR_FMT ": want a whole number from %llu to %llu",
                       kinds[i].name, WP_STR_ARG(value), (unsigned long long)kinds[i].min,
                       (unsigned long long)kinds[i].max);
    }
    return wp_fail(err, WP_EUSAGE, "unknown fault \"" WP_STR_FMT "\"; known: %s", WP_STR_ARG(name),
                   wp_fault_help);
}

static int parse_more(struct wp_fault *f, struct wp_str name, struct wp_str value,
                      struct wp_err *err)
{
    uint64_t x;

    if (!wp_str_is(name, "every") && !wp_str_is(name, "count") && !wp_str_is(name, "retry-after"))
        return wp_fail(err, WP_EUSAGE,
                       "unknown key \"" WP_STR_FMT "\"; known: every, count, retry-after",
                       WP_STR_ARG(name));
    if (!wp_str_u64(value, &x) || x > INT32_MAX || (x == 0 && !wp_str_is(name, "retry-after")))
        return wp_fail(err, WP_EUSAGE, WP_STR_FMT "=" WP_STR_FMT ": want a whole number above 0",
                       WP_STR_ARG(name), WP_STR_ARG(value));
    if (wp_str_is(name, "every"))
        f->every = x;
    else if (wp_str_is(name, "count"))
        f->count = x;
    else
        f->retry_after = (int64_t)x;
    return 0;
}

int wp_fault_parse(struct wp_fault *f, struct wp_str spec, struct wp_err *err)
{
    struct wp_str rest = spec, part, name;
    int rc = 0;

    *f = (struct wp_fault){.every = 1, .retry_after = -1};
    while (rc == 0 && wp_str_split(&rest, ',', &part)) {
        struct wp_str value = part;

        wp_str_split(&value, '=', &name);
        rc = f->kind ? parse_more(f, name, value, err) : parse_kind(f, name, value, err);
    }
    if (rc == 0 && !f->kind)
        rc = wp_fail(err, WP_EUSAGE, "an empty fault; known: %s", wp_fault_help);
    return rc < 0 ? wp_wrap(err, "fault \"" WP_STR_FMT "\"", WP_STR_ARG(spec)) : 0;
}

/* Counts this chance; is it the fault's turn? */
static bool due(struct wp_fault *f)
{
    if (f->count && f->struck >= f->count)
        return false;
    return ++f->seen % f->every == 0;
}

struct wp_fault *wp_fault_strike(struct wp_fault fault[], size_t n, enum wp_fault_kind first,
                                 enum wp_fault_kind last, uint64_t tokens)
{
    for (size_t i = 0; i < n; i++) {
        struct wp_fault *f = &fault[i];

        if (f->kind < first || f->kind > last ||
            (f->kind == WP_FAULT_STALL_PREFILL && tokens < f->value))
            continue;
        if (!due(f))
            continue;
        f->struck++;
        return f;
    }
    return NULL;
}

struct wp_fault *wp_fault_draw(struct wp_fault fault[], size_t n, enum wp_fault_kind kind,
                               struct wp_rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        struct wp_fault *f = &fault[i];

        if (f->kind != kind || !due(f) || wp_rng_unit(rng) >= f->share)
            continue;
        f->struck++;
        return f;
    }
    return NULL;
}
