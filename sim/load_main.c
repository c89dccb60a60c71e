/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/load.h"

#include "base/flags.h"
#include "net/fetch.h"
#include "net/tls.h"
#include "net/json.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PROGRESS_MS = 500, FILES_MAX = 8 };

/* clang-format off */
enum flag {
    F_TARGET, F_TRACE, F_SCALE, F_SPEED, F_REQUESTS, F_WARMUP, F_JITTER, F_JSON, F_SEED, F_MODEL, F_LABEL, F_NO_STREAM,
    F_VOCABULARY, F_IN_FLIGHT, F_TIMEOUT, F_PROFILE, F_COMPARE
};
static const struct wp_flag flags[] = {
    [F_TARGET]     = {"--target", "URL", "an OpenAI endpoint: http://host:port or https://host:port ($SSL_CERT_FILE: its authorities)"},
    [F_TRACE]      = {"--trace", "FILE", "requests in Mooncake's form, plain or .gz"},
    [F_SCALE]      = {"--scale", "X", "arrivals X times as dense (1)"},
    [F_SPEED]      = {"--speed", "X", "everything X times as fast, times multiplied back: as the engine's --speed (1)"},
    [F_REQUESTS]   = {"--requests", "N", "the first N of the trace (all)"},
    [F_WARMUP]     = {"--warmup", "N", "the first N are left out of the figures (a tenth)"},
    [F_JITTER]     = {"--jitter", "S", "spread arrivals within S seconds of their time stamps (0)"},
    [F_JSON]       = {"--json", "FILE", "write the figures there too; -: to stdout"},
    [F_SEED]       = {"--seed", "N", "of the jitter (0)"},
    [F_MODEL]      = {"--model", "NAME", "the model to ask for (what GET /v1/models names first)"},
    [F_LABEL]      = {"--label", "NAME", "the column's head (the target)"},
    [F_NO_STREAM]  = {"--no-stream", NULL, "ask for whole answers; TTFT is then their time"},
    [F_VOCABULARY] = {"--vocabulary", "N", "prompt ids stay below N (32000)"},
    [F_IN_FLIGHT]  = {"--max-in-flight", "N", "send no more at once; it is no open loop then (no bound)"},
    [F_TIMEOUT]    = {"--timeout", "S", "give a request up after S seconds of wall time, 0: never (600)"},
    [F_PROFILE]    = {"--profile", "NAME|FILE", "the engine's, for the share within SLO of long prompts"},
    [F_COMPARE]    = {"--compare", NULL, "print reports written by --json side by side: --compare A.json B.json"},
    {NULL, NULL, NULL},
};
/* clang-format on */

struct options {
    struct wp_load_conf conf;
    const char *target, *trace, *json, *model;
    uint64_t requests, warmup, seed, vocabulary, in_flight;
    bool warmup_given, compare;
    double jitter_s, timeout_s;
    struct wp_profile profile;
    const char *file[FILES_MAX];
    size_t n_files;
};

static int take_number(struct options *o, size_t i, const char *value, struct wp_err *err)
{
    switch ((enum flag)i) {
    case F_SCALE:
        return wp_flag_double(&flags[i], value, 0.0001, 10000, &o->conf.scale, err);
    case F_SPEED:
        return wp_flag_double(&flags[i], value, 0.0001, 100000, &o->conf.speed, err);
    case F_REQUESTS:
        return wp_flag_u64(&flags[i], value, 1, UINT32_MAX, &o->requests, err);
    case F_WARMUP:
        o->warmup_given = true;
        return wp_flag_u64(&flags[i], value, 0, UINT32_MAX, &o->warmup, err);
    case F_JITTER:
        return wp_flag_double(&flags[i], value, 0, 86400, &o->jitter_s, err);
    case F_SEED:
        return wp_flag_u64(&flags[i], value, 0, UINT64_MAX, &o->seed, err);
    case F_VOCABULARY:
        return wp_flag_u64(&flags[i], value, 512, UINT32_MAX, &o->vocabulary, err);
    case F_IN_FLIGHT:
        return wp_flag_u64(&flags[i], value, 1, 1000000, &o->in_flight, err);
    default:
        return wp_flag_double(&flags[i], value, 0, 1e9, &o->timeout_s, err);
    }
}

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct options *o = arg;
    const char *why;

    switch ((enum flag)i) {
    case F_TARGET:
        o->target = value;
        return wp_url_parse(wp_str_of(value), &o->conf.target, &why)
                   ? 0
                   : wp_fail(err, WP_EUSAGE, "--target: %s", why);
    case F_TRACE:
        o->trace = value;
        return 0;
    case F_JSON:
        o->json = value;
        return 0;
    case F_MODEL:
        o->model = value;
        return 0;
    case F_LABEL:
        o->conf.label = value;
        return 0;
    case F_NO_STREAM:
        o->conf.whole = true;
        return 0;
    case F_COMPARE:
        o->compare = true;
        return 0;
    case F_PROFILE:
        o->conf.profile = &o->profile;
        return wp_profile_find(value, &o->profile, err);
    default:
        return take_number(o, i, value, err);
    }
}

static int word(void *arg, const char *value, struct wp_err *err)
{
    struct options *o = arg;

    if (!o->compare)
        return wp_fail(err, WP_EUSAGE, "\"%s\" is no flag; files belong behind --compare", value);
    if (o->n_files == FILES_MAX)
        return wp_fail(err, WP_EUSAGE, "--compare: at most %d files", FILES_MAX);
    o->file[o->n_files++] = value;
    return 0;
}

static int compare(const struct options *o, struct wp_err *err)
{
    struct wp_buf out = {0};
    int rc;

    if (o->n_files < 2)
        return wp_fail(err, WP_EUSAGE, "--compare: want two files or more");
    rc = wp_report_compare(o->file, o->n_files, &out, err);
    if (rc == 0)
        fwrite(out.p, 1, out.n, stdout);
    wp_buf_fini(&out);
    return rc;
}

/* The first model that the target names. */
static int ask_model(const struct options *o, struct wp_buf *name, struct wp_err *err)
{
    struct wp_buf url = {0}, answer = {.max = 1 << 20};
    struct wp_json data = {0}, first = {0}, id;
    const char *names[] = {"data"};
    const struct wp_url *to = &o->conf.target;
    bool v6 = memchr(to->host.p, ':', to->host.n) != NULL;
    struct wp_err why;
    int status = 0, rc;

    rc = wp_buf_printf(&url, "http%s://%s" WP_STR_FMT "%s:%u" WP_STR_FMT "/v1/models",
                       to->tls ? "s" : "", v6 ? "[" : "", WP_STR_ARG(to->host), v6 ? "]" : "",
                       to->port, WP_STR_ARG(to->path));
    if (rc == 0)
        rc = wp_buf_add(&url, "", 1);
    rc = rc < 0 ? wp_fail(err, rc, "out of memory")
                : wp_fetch(url.p, WP_STR("GET"), NULL, 0, (struct wp_str){0}, 10000000, &status,
                           &answer, err);
    if (rc == 0 &&
        (status != 200 || wp_json_members(wp_buf_str(&answer), names, 1, &data, &why) < 0 ||
         !wp_json_each(data, &first)))
        rc = wp_fail(err, WP_EPROTO,
                     "%s: GET /v1/models answers %d and names no model; give --model", o->target,
                     status);
    id = wp_json_get(first, "id");
    if (rc == 0)
        rc = wp_buf_reserve(name, id.n + 1);
    if (rc == 0) {
        long n = wp_json_text(id, name->p, id.n);

        name->p[n < 0 ? 0 : n] = 0;
        name->n = n < 0 ? 0 : (size_t)n;
    }
    wp_buf_fini(&url);
    wp_buf_fini(&answer);
    return rc;
}

/* The process while it plays; the report is made when the last request is over, then everything is
 * closed. */
struct run {
    struct wp_loop loop;
    struct wp_load *load;
    const struct options *options;
    uv_signal_t signal[2];
    struct wp_timer progress;
    struct wp_err err;
    int rc;
};

static void say_progress(struct run *r, const char *end)
{
    struct wp_load_state s;

    wp_load_state(r->load, &s);
    fprintf(stderr, "\r%zu/%zu sent, %zu in flight, %zu done, %zu failed, TTFT %.2f s   %s", s.sent,
            s.total, s.in_flight, s.ended, s.failed,
            s.ttft_mean_s == s.ttft_mean_s ? s.ttft_mean_s : 0.0, end);
}

static void on_progress(struct wp_timer *t)
{
    struct run *r = t->arg;

    say_progress(r, "");
    wp_timer_in(&r->loop, &r->progress, PROGRESS_MS * 1000);
}

static void on_signal(uv_signal_t *s, int number)
{
    struct run *r = s->data;

    (void)number;
    wp_load_stop(r->load);
}

static int write_json(const char *path, const struct wp_buf *text, struct wp_err *err)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    bool ok = f && fwrite(text->p, 1, text->n, f) == text->n && fflush(f) == 0;

    if (f && f != stdout)
        ok = fclose(f) == 0 && ok;
    return ok ? 0 : wp_fail(err, -errno, "%s: %s", path, wp_strerror(-errno));
}

/* Prints what there is.  Returns 1 when nothing went well, so that a script notices. */
static int tell(struct run *r)
{
    const struct options *o = r->options;
    struct wp_buf text = {0}, json = {0};
    struct wp_load_state s;
    int rc = wp_load_text(r->load, &text);

    if (rc == 0 && o->json)
        rc = wp_load_json(r->load, &json);
    if (rc < 0)
        wp_fail(&r->err, rc, "out of memory");
    if (rc == 0)
        fwrite(text.p, 1, text.n, stdout);
    if (rc == 0 && o->json)
        rc = write_json(o->json, &json, &r->err);
    wp_load_state(r->load, &s);
    wp_buf_fini(&text);
    wp_buf_fini(&json);
    return rc < 0 ? rc : s.failed == s.ended;
}

static void on_closed(void *arg)
{
    struct run *r = arg;

    wp_loop_stop(&r->loop);
}

static void on_done(void *arg)
{
    struct run *r = arg;

    if (r->progress.armed)
        say_progress(r, "\n");
    wp_timer_stop(&r->loop, &r->progress);
    for (int i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&r->signal[i], NULL);
    r->rc = tell(r);
    wp_load_destroy(r->load, on_closed, r);
}

static int play(struct run *r, const struct wp_trace *trace)
{
    static const int numbers[2] = {SIGINT, SIGTERM};
    int rc = wp_load_create(&r->load, &r->loop, &r->options->conf, trace, on_done, r, &r->err);

    if (rc < 0) {
        wp_loop_stop(&r->loop);
        wp_loop_run(&r->loop);
        return rc;
    }
    wp_timer_init(&r->progress, on_progress, r);
    if (isatty(STDERR_FILENO))
        wp_timer_in(&r->loop, &r->progress, PROGRESS_MS * 1000);
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&r->loop.uv, &r->signal[i]);
        r->signal[i].data = r;
        uv_signal_start(&r->signal[i], on_signal, numbers[i]);
    }
    wp_loop_run(&r->loop);
    return r->rc;
}

/* As many descriptors as the system lets us have: an open loop may need thousands. */
static void raise_limit(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

static int run(struct options *o, const struct wp_trace *trace, struct wp_err *err)
{
    struct run *r = wp_calloc(1, sizeof *r);
    int rc = r ? wp_loop_init(&r->loop, &r->err) : WP_ENOMEM;

    if (rc == 0) {
        r->options = o;
        rc = play(r, trace);
        wp_loop_fini(&r->loop);
    }
    if (r)
        *err = r->err;
    else
        wp_fail(err, rc, "out of memory");
    wp_free(r);
    return rc;
}

static int load(struct options *o, struct wp_err *err)
{
    struct wp_trace trace = {0};
    struct wp_buf model = {0};
    int rc;

    if (!o->target || !o->trace)
        return wp_fail(err, WP_EUSAGE, "want --target URL and --trace FILE; see --help");
    rc = wp_trace_read(&trace, o->trace, (size_t)o->requests, err);
    if (rc == 0 && trace.n == 0)
        rc = wp_fail(err, WP_EINVAL, "%s: no requests in it", o->trace);
    if (rc == 0 && o->jitter_s > 0)
        wp_trace_jitter(&trace, (uint64_t)(o->jitter_s * 1e6), o->seed);
    if (rc == 0 && o->conf.target.tls)
        rc = wp_tls_client(&o->conf.tls, NULL, err);
    if (rc == 0 && !o->model)
        rc = ask_model(o, &model, err);
    if (rc == 0) {
        o->conf.model = o->model ? o->model : model.p;
        o->conf.label = o->conf.label ? o->conf.label : o->target;
        o->conf.warmup = o->warmup_given ? (size_t)o->warmup : trace.n / 10;
        o->conf.in_flight = (size_t)o->in_flight;
        o->conf.vocabulary = (uint32_t)o->vocabulary;
        o->conf.timeout_us = (uint64_t)(o->timeout_s * 1e6);
        rc = run(o, &trace, err);
    }
    wp_tls_unref(o->conf.tls);
    wp_buf_fini(&model);
    wp_trace_fini(&trace);
    return rc;
}

int wp_load_main(int argc, char **argv)
{
    struct options o = {.conf = {.scale = 1, .speed = 1}, .vocabulary = 32000, .timeout_s = 600};
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_flags(argc, argv, flags, take, word, &o, &err);

    if (rc > 0) {
        wp_flags_help(stdout, "load --target URL --trace FILE [FLAG]...",
                      "Plays a trace at an OpenAI endpoint and measures.", flags);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    raise_limit();
    if (rc == 0)
        rc = o.compare ? compare(&o, &err) : load(&o, &err);
    if (rc < 0)
        fprintf(stderr, "warmpath load: %s\n", err.text);
    return rc >= 0 ? rc : rc == WP_EUSAGE ? 2 : 1;
}
