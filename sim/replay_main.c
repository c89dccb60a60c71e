/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `warmpath replay`.  Each entry of --policy is a run of its own over the same arrivals: a name,
 * and settings of its own behind colons ("dynamo:dynamo.prefill_weight=16:pull=true").
 */
#include "sim/replay.h"
#include "base/flags.h"
#include "base/mem.h"
#include "sim/decisions.h"
#include "sim/page.h"
#include "sim/policy_set.h"
#include "sim/put.h"
#include "sim/tune.h"

#include <math.h>
#include <stdio.h>

enum { RUNS_MAX = 32, SETS_MAX = 64 };

/* clang-format off */
enum flag {
    F_TRACE, F_WORKERS, F_POLICY, F_SCALE, F_COPIES, F_STALE, F_PROFILE, F_SEED, F_JITTER, F_REQUESTS, F_WARMUP, F_JSON, F_CAPACITY, F_RECORD, F_DECISIONS, F_TUNE, F_TUNE_FOR, F_TUNE_PART, F_REPORT, F_SET
};
static const struct wp_flag flags[] = {
    [F_TRACE]    = {"--trace", "FILE", "requests in Mooncake's form, plain or .gz"},
    [F_WORKERS]  = {"--workers", "N", "of the fleet (16)"},
    [F_POLICY]   = {"--policy", "NAME[:KEY=VALUE]...[,NAME...]", "what decides, one column each; keys as under policy: (price)"},
    [F_SCALE]    = {"--scale", "X", "arrivals X times as dense (1)"},
    [F_COPIES]   = {"--copies", "N", "so many crowds of the trace at once, with hot prefixes in common (1)"},
    [F_STALE]    = {"--stale-ms", "MS", "how late the router hears of blocks and of engines (0)"},
    [F_PROFILE]  = {"--profile", "NAME|FILE", "what an engine costs (llama-3-70b-8xh100)"},
    [F_SEED]     = {"--seed", "N", "of arrivals and draws; the same seed gives the same figures (1)"},
    [F_JITTER]   = {"--jitter", "S", "spread arrivals within S seconds of their time stamps (0)"},
    [F_REQUESTS] = {"--requests", "N", "the first N of the trace (all)"},
    [F_WARMUP]   = {"--warmup", "SHARE", "of the trace's time, left out of the figures (0.1)"},
    [F_JSON]     = {"--json", "FILE", "write the figures there too; -: to stdout"},
    [F_REPORT]   = {"--report", "FILE", "write a page with plots there: HTML, whole in itself"},
    [F_CAPACITY] = {"--capacity", NULL, "find the highest scale with 90 % within SLO, and show the figures there"},
    [F_RECORD]   = {"--record", "FILE", "write every decision there, for --decisions"},
    [F_DECISIONS] = {"--decisions", "FILE", "instead: makes the decisions of a `--record FILE`, this command's or serve's, again, and says which come out otherwise"},
    [F_TUNE]     = {"--tune", "N", "search for better settings of the policy, N evaluations at most, and hold them against a part of the trace that was held out"},
    [F_TUNE_FOR] = {"--tune-for", "FIGURE", "what is to be better: ttft_mean_s, ttft_p50_s, ttft_p90_s, ttft_p99_s, e2e_p99_s or slo_share (ttft_mean_s)"},
    [F_TUNE_PART] = {"--tune-part", "SHARE", "of the trace's time to search on; the rest is held out (0.6)"},
    [F_SET]      = {"--set", "KEY=VALUE", "policy.*, fleet.* and slo.*: see docs/replay.md"},
    {NULL, NULL, NULL},
};
/* clang-format on */

struct options {
    const char *trace, *policy, *json, *report, *record, *decisions;
    const char *tune_for;
    uint64_t workers, requests, tune;
    struct wp_plays_conf plays;
    double stale_ms, tune_part;
    struct wp_profile profile;
    bool capacity;
    const char *set[SETS_MAX];
    size_t n_sets;
};

/* One column. */
struct column {
    char *spec; /* NAME and settings, cut at the colons */
    const char *label;
    double scale;
    struct wp_replay_conf conf;
    struct wp_report *report;
    struct wp_timeline *time; /* for a page; NULL: none is wanted */
};

static int take_number(struct options *o, size_t i, const char *value, struct wp_err *err)
{
    uint64_t n = 0;
    int rc;

    switch ((enum flag)i) {
    case F_WORKERS:
        return wp_flag_u64(&flags[i], value, 1, WP_CLUSTER_WORKERS_MAX, &o->workers, err);
    case F_SCALE:
        return wp_flag_double(&flags[i], value, 0.0001, 10000, &o->plays.scale, err);
    case F_COPIES:
        rc = wp_flag_u64(&flags[i], value, 1, 1024, &n, err);
        o->plays.copies = (size_t)n;
        return rc;
    case F_STALE:
        return wp_flag_double(&flags[i], value, 0, 3600000, &o->stale_ms, err);
    case F_SEED:
        return wp_flag_u64(&flags[i], value, 0, UINT64_MAX, &o->plays.seed, err);
    case F_JITTER:
        return wp_flag_double(&flags[i], value, 0, 86400, &o->plays.jitter_s, err);
    case F_REQUESTS:
        return wp_flag_u64(&flags[i], value, 1, UINT32_MAX, &o->requests, err);
    case F_TUNE:
        return wp_flag_u64(&flags[i], value, 1, WP_TUNE_EVALUATIONS_MAX, &o->tune, err);
    case F_TUNE_PART:
        return wp_flag_double(&flags[i], value, 0.1, 0.9, &o->tune_part, err);
    default:
        return wp_flag_double(&flags[i], value, 0, 0.9, &o->plays.warmup, err);
    }
}

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct options *o = arg;

    switch ((enum flag)i) {
    case F_TRACE:
        o->trace = value;
        return 0;
    case F_DECISIONS:
        o->decisions = value;
        return 0;
    case F_RECORD:
        o->record = value;
        return 0;
    case F_POLICY:
        o->policy = value;
        return 0;
    case F_JSON:
        o->json = value;
        return 0;
    case F_REPORT:
        o->report = value;
        return 0;
    case F_TUNE_FOR:
        o->tune_for = value;
        return 0;
    case F_CAPACITY:
        o->capacity = true;
        return 0;
    case F_PROFILE:
        return wp_profile_find(value, &o->profile, err);
    case F_SET:
        if (o->n_sets == SETS_MAX)
            return wp_fail(err, WP_EUSAGE, "--set: at most %d of them", SETS_MAX);
        o->set[o->n_sets++] = value;
        return 0;
    default:
        return take_number(o, i, value, err);
    }
}

/* ---- columns ---- */

static void settle(struct wp_replay_conf *c, const struct options *o, const struct wp_settings *s)
{
    wp_replay_conf_init(c);
    c->workers = (size_t)o->workers;
    c->profile = o->profile;
    if (s->fleet.gpu_blocks)
        c->profile.gpu_tokens = s->fleet.gpu_blocks * WP_TRACE_BLOCK;
    if (s->fleet.cpu_blocks)
        c->profile.cpu_tokens = s->fleet.cpu_blocks * WP_TRACE_BLOCK;
    if (s->fleet.no_cpu)
        c->profile.cpu_tokens = 0;
    c->store_blocks = s->fleet.store_blocks;
    c->link_bytes_per_s = s->fleet.link_bytes_per_s;
    c->link_setup_us = s->fleet.link_setup_us;
    c->store_bytes_per_s = s->fleet.store_bytes_per_s;
    c->stale_us = (uint64_t)llround(o->stale_ms * 1000);
    c->policy_conf = s->policy;
    if (s->policy.seed ==
        0) /* whoever chooses by a hash is lucky or not: seeds average over that too */
        c->policy_conf.seed = o->plays.seed;
    c->seed = o->plays.seed;
    c->slo_ttft_s = s->slo.ttft_s;
    c->slo_ttft_factor = s->slo.ttft_factor;
    c->slo_itl_s = s->slo.itl_ms / 1000;
}

/* The column's own settings come behind those of --set; "policy." is understood. */
static int read_column(struct column *c, const struct options *o, struct wp_str spec,
                       struct wp_err *err)
{
    struct wp_buf own[SETS_MAX] = {0};
    const char *set[2 * SETS_MAX];
    struct wp_settings s;
    struct wp_str part;
    size_t n = 0;
    int rc = 0;

    c->spec = wp_strndup(spec.p, spec.n);
    c->label = wp_strndup(spec.p, spec.n);
    if (!c->spec || !c->label)
        return wp_fail(err, WP_ENOMEM, "out of memory");
    for (size_t i = 0; i < o->n_sets; i++)
        set[i] = o->set[i];
    wp_str_split(&spec, ':', &part);
    c->spec[part.n] = 0;
    while (rc == 0 && wp_str_split(&spec, ':', &part)) {
        if (n == SETS_MAX) {
            rc = wp_fail(err, WP_EUSAGE, "--policy: at most %d settings of one", SETS_MAX);
            break;
        }
        rc = wp_buf_printf(&own[n], "policy." WP_STR_FMT, WP_STR_ARG(part));
        if (rc == 0)
            rc = wp_buf_add(&own[n], "", 1);
        if (rc < 0)
            wp_fail(err, rc, "out of memory");
        set[o->n_sets + n] = own[n].p;
        n++;
    }
    if (rc == 0)
        rc = wp_settings_read(&s, set, o->n_sets + n, err);
    for (size_t i = 0; i < n; i++)
        wp_buf_fini(&own[i]);
    if (rc < 0)
        return rc;
    settle(&c->conf, o, &s);
    c->conf.policy = c->spec;
    c->conf.label = c->label;
    c->scale = o->plays.scale;
    return 0;
}

/* Names are wrong before anything is read. */
static int check_policy(const struct column *c, struct wp_err *err)
{
    struct wp_policy *p = NULL;
    int rc = wp_policy_create(&p, c->conf.policy, &c->conf.policy_conf, err);

    if (rc == 0)
        p->ops->destroy(p);
    return rc == WP_EINVAL ? err->code = WP_EUSAGE : rc;
}

static int read_columns(struct column c[RUNS_MAX], size_t *n, const struct options *o,
                        struct wp_err *err)
{
    struct wp_str rest = wp_str_of(o->policy), spec;
    int rc = 0;

    while (rc == 0 && wp_str_split(&rest, ',', &spec)) {
        if (*n == RUNS_MAX)
            return wp_fail(err, WP_EUSAGE, "--policy: at most %d of them", RUNS_MAX);
        rc = read_column(&c[(*n)++], o, spec, err);
        if (rc == 0)
            rc = check_policy(&c[*n - 1], err);
    }
    return rc;
}

/* ---- runs ---- */

static int run_at(struct column *c, const struct options *o, const struct wp_trace *t, double scale,
                  struct wp_figures *f, struct wp_err *err)
{
    struct wp_plays_conf conf = o->plays;
    struct wp_plays plays;
    int rc;

    conf.scale = scale;
    rc = wp_plays_make(&plays, t, &conf, err);
    if (rc < 0)
        return rc;
    wp_report_destroy(c->report);
    wp_timeline_destroy(c->time);
    c->report = NULL;
    c->time = NULL;
    if (o->report)
        rc = wp_timeline_create(&c->time, (size_t)o->workers + 1, plays.play[plays.n - 1].at_us,
                                err);
    c->conf.timeline = c->time;
    rc = rc ? rc : wp_replay_run(&c->report, &c->conf, &plays, err);
    wp_plays_fini(&plays);
    if (rc == 0)
        wp_report_figures(c->report, f);
    return rc;
}

/* The highest scale at which 90 % are within the objective, to 1 %: doubling or halving until it
 * lies between two, then bisection. */
static int find_capacity(struct column *c, const struct options *o, const struct wp_trace *t,
                         struct wp_err *err)
{
    static const double enough = 0.9, resolution = 1.01, least = 1e-4, most = 1e4;
    double low = 0, high = 0, scale = o->plays.scale;
    struct wp_figures f;
    int rc = 0;

    while (rc == 0 && (low == 0 || high == 0 || high / low > resolution)) {
        if (scale < least || scale > most)
            return wp_fail(
                err, WP_EINVAL,
                "%s: there is no scale from %g to %g with 90 %% within SLO next to one without",
                c->label, least, most);
        rc = run_at(c, o, t, scale, &f, err);
        if (f.slo >= enough)
            low = scale;
        else
            high = scale;
        scale = low == 0 ? high / 2 : high == 0 ? low * 2 : sqrt(low * high);
    }
    c->scale = low;
    return rc < 0 ? rc : run_at(c, o, t, low, &f, err);
}

/* ---- what is printed ---- */

static int table(struct column c[], size_t n, const struct options *o, struct wp_buf *out)
{
    struct wp_report *r[RUNS_MAX];
    int rc;

    for (size_t i = 0; i < n; i++)
        r[i] = c[i].report;
    rc = n == 1 ? wp_report_text(r[0], out) : wp_report_beside(r, n, out);
    if (rc < 0 || !o->capacity)
        return rc;
    rc = wp_buf_printf(out, "%-18s", "capacity, scale");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = wp_buf_printf(out, " %14.4g", c[i].scale);
    if (rc == 0)
        rc = wp_buf_printf(out, "\n%-18s", "req/s per worker");
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct wp_figures f;

        wp_report_figures(r[i], &f);
        rc = wp_buf_printf(out, " %14.4g", f.requests_per_s / (double)o->workers);
    }
    return rc < 0 ? rc : wp_buf_adds(out, "\n");
}

/* One object a column; what the run was stands beside its figures. */
static int json_of(const struct column *c, const struct options *o, struct wp_buf *out)
{
    struct wp_put p = {out, 0};

    p.rc = wp_report_json(c->report, out);
    while (p.rc == 0 && out->n && out->p[out->n - 1] != '}')
        out->n--;
    if (p.rc == 0 && out->n)
        out->n--; /* more members follow */
    wp_put(&p, ",\n \"trace\": ");
    wp_put_json(&p, wp_str_of(o->trace));
    wp_put(&p, ",\n \"workers\": ");
    wp_put_u(&p, o->workers);
    wp_put(&p, ",\n \"scale\": ");
    wp_put_f(&p, c->scale);
    wp_put(&p, ",\n \"copies\": ");
    wp_put_u(&p, o->plays.copies);
    wp_put(&p, ",\n \"stale_ms\": ");
    wp_put_f(&p, o->stale_ms);
    wp_put(&p, ",\n \"seed\": ");
    wp_put_u(&p, o->plays.seed);
    wp_put(&p, "}");
    return p.rc;
}

static int write_file(const char *path, const struct wp_buf *out, struct wp_err *err)
{
    bool std = strcmp(path, "-") == 0;
    FILE *f = std ? stdout : fopen(path, "w");
    int rc = 0;

    errno = f ? 0 : errno;
    if (!f || fwrite(out->p, 1, out->n, f) != out->n || fflush(f) != 0)
        rc = wp_fail(err, errno ? -errno : -EIO, "%s: %s", path, strerror(errno ? errno : EIO));
    if (f && !std && fclose(f) != 0 && rc == 0)
        rc = wp_fail(err, -errno, "%s: %s", path, strerror(errno));
    return rc;
}

static int write_json(const struct column c[], size_t n, const struct options *o,
                      struct wp_err *err)
{
    struct wp_buf out = {0};
    int rc = n > 1 ? wp_buf_adds(&out, "[") : 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = i ? wp_buf_adds(&out, ",\n") : 0;
        if (rc == 0)
            rc = json_of(&c[i], o, &out);
    }
    if (rc == 0)
        rc = wp_buf_adds(&out, n > 1 ? "]\n" : "\n");
    if (rc < 0) {
        wp_buf_fini(&out);
        return wp_fail(err, rc, "out of memory");
    }
    rc = write_file(o->json, &out, err);
    wp_buf_fini(&out);
    return rc;
}

/* ---- the page ---- */

enum { FACTS_MAX = 12 + SETS_MAX };

struct facts {
    struct wp_page_fact at[FACTS_MAX];
    char text[FACTS_MAX][64];
    size_t n;
};

static void fact(struct facts *f, const char *name, const char *value)
{
    f->at[f->n++] = (struct wp_page_fact){name, value};
}

static void fact_number(struct facts *f, const char *name, double value)
{
    snprintf(f->text[f->n], sizeof f->text[0], "%.10g", value);
    fact(f, name, f->text[f->n]);
}

static int write_page(const struct column c[], size_t n, const struct options *o,
                      struct wp_err *err)
{
    struct wp_page_column column[RUNS_MAX];
    struct facts f = {.n = 0};
    struct wp_page page = {"warmpath replay", f.at, 0, column, n, o->plays.warmup};
    struct wp_buf out = {0};
    int rc;

    fact(&f, "trace", o->trace);
    fact(&f, "profile", o->profile.name);
    fact_number(&f, "workers", (double)o->workers);
    fact_number(&f, "copies", (double)o->plays.copies);
    fact_number(&f, "jitter, s", o->plays.jitter_s);
    fact_number(&f, "stale, ms", o->stale_ms);
    fact_number(&f, "seed", (double)o->plays.seed);
    fact_number(&f, "warm-up, share of the time", o->plays.warmup);
    if (!o->capacity)
        fact_number(&f, "scale", o->plays.scale);
    for (size_t i = 0; i < o->n_sets; i++)
        fact(&f, "--set", o->set[i]);
    page.n_facts = f.n;
    for (size_t i = 0; i < n; i++)
        column[i] = (struct wp_page_column){c[i].label, c[i].spec,  c[i].report,
                                            c[i].time,  c[i].scale, &c[i].conf.policy_conf};
    rc = wp_page_html(&page, &out);
    rc = rc < 0 ? wp_fail(err, rc, "out of memory") : write_file(o->report, &out, err);
    wp_buf_fini(&out);
    return rc;
}

static int run_all(struct column c[], size_t n, const struct options *o, struct wp_err *err)
{
    struct wp_trace trace;
    struct wp_figures f;
    struct wp_buf text = {0};
    int rc = wp_trace_read(&trace, o->trace, (size_t)o->requests, err);

    if (rc < 0)
        return rc;
    if (trace.n == 0)
        rc = wp_fail(err, WP_EINVAL, "%s: no requests in it", o->trace);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = o->capacity ? find_capacity(&c[i], o, &trace, err)
                         : run_at(&c[i], o, &trace, o->plays.scale, &f, err);
    if (rc == 0 && (rc = table(c, n, o, &text)) < 0)
        wp_fail(err, rc, "out of memory");
    if (rc == 0 && !(o->json && strcmp(o->json, "-") == 0))
        fwrite(text.p, 1, text.n, stdout);
    if (rc == 0 && o->json)
        rc = write_json(c, n, o, err);
    if (rc == 0 && o->report)
        rc = write_page(c, n, o, err);
    wp_buf_fini(&text);
    wp_trace_fini(&trace);
    return rc;
}

/* Settings are searched for instead; what is written is what was found. */
static int tune(const struct column *c, const struct options *o, struct wp_err *err)
{
    struct wp_tune_conf conf = {&c->conf, &o->plays, o->tune_for, o->tune_part, (size_t)o->tune};
    struct wp_tune_result r;
    struct wp_trace trace;
    struct wp_buf text = {0}, json = {0};
    int rc = wp_trace_read(&trace, o->trace, (size_t)o->requests, err);

    if (rc < 0)
        return rc;
    rc = wp_tune_run(&r, &conf, &trace, err);
    wp_trace_fini(&trace);
    if (rc < 0)
        return rc;
    rc = wp_tune_text(&r, &conf, &text);
    rc = rc || !o->json ? rc : wp_tune_json(&r, &conf, &json);
    if (rc < 0)
        rc = wp_fail(err, rc, "out of memory");
    if (rc == 0 && !(o->json && strcmp(o->json, "-") == 0))
        fwrite(text.p, 1, text.n, stdout);
    if (rc == 0 && o->json)
        rc = write_file(o->json, &json, err);
    wp_buf_fini(&text);
    wp_buf_fini(&json);
    return rc;
}

static int replay(const struct options *o, struct wp_err *err)
{
    struct column c[RUNS_MAX] = {0};
    struct wp_decisions_out *record = NULL;
    struct wp_err unheard = WP_ERR_INIT;
    size_t n = 0;
    int rc, late;

    if (o->decisions)
        return wp_decisions_run(o->decisions, err);
    if (!o->trace)
        return wp_fail(err, WP_EUSAGE, "want --trace FILE; see --help");
    if (o->record && o->capacity)
        return wp_fail(err, WP_EUSAGE, "--record and --capacity do not go together");
    if (o->tune && (o->record || o->capacity || o->report))
        return wp_fail(err, WP_EUSAGE,
                       "--tune goes with none of --record, --capacity and --report");
    rc = read_columns(c, &n, o, err);
    if (rc == 0 && o->tune && n != 1)
        rc = wp_fail(err, WP_EUSAGE, "--tune: want one policy, got %zu", n);
    if (rc == 0 && o->record)
        rc = wp_decisions_out_open(&record, o->record, err);
    for (size_t i = 0; i < n; i++)
        c[i].conf.record = record;
    if (rc == 0)
        rc = o->tune ? tune(&c[0], o, err) : run_all(c, n, o, err);
    late = wp_decisions_out_close(record, rc == 0 ? err : &unheard);
    rc = rc ? rc : late;
    for (size_t i = 0; i < n; i++) {
        wp_report_destroy(c[i].report);
        wp_timeline_destroy(c[i].time);
        wp_free(c[i].spec);
        wp_free((char *)c[i].label);
    }
    return rc;
}

int wp_replay_main(int argc, char **argv)
{
    struct options o = {
        .policy = "price",
        .workers = 16,
        .tune_part = 0.6,
        .plays = {.copies = 1, .scale = 1, .warmup = 0.1, .seed = 1},
        .profile = *wp_profile_default(),
    };
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_flags(argc, argv, flags, take, NULL, &o, &err);

    if (rc > 0) {
        wp_flags_help(
            stdout, "replay --trace FILE [--workers N] [--policy NAME,...] [FLAG]...",
            "Plays a trace at a simulated fleet in virtual time, with the policies of serve.",
            flags);
        return 0;
    }
    if (rc == 0)
        rc = replay(&o, &err);
    if (rc == 0)
        return 0;
    fprintf(stderr, "warmpath replay: %s\n", err.text);
    return rc == WP_EUSAGE || rc == WP_EINVAL ? 2 : 1;
}
