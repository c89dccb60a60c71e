/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index costs, beside two stand-ins and, when --peers names their library, two other
 * projects' indexes: bytes, rates of events, times of look-ups.  What is measured and how:
 * tests/bench/index/bench.h; the page: docs/bench-index.md.
 *
 *     make bench-index [QUICK=1] [PEERS=1] [BIG=1] [TRACE=file] [OUT=file]
 */
#include "tests/bench/index/bench.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct context *const contexts[] = {
    &ctx_memory,  &ctx_apply, &ctx_own,     &ctx_wide,  &ctx_wider,   &ctx_trace,
    &ctx_trace40, &ctx_hot,   &ctx_workers, &ctx_tiers, &ctx_windows,
};

static const struct option known[] = {
    {"quick", no_argument, NULL, 'q'},         {"big", no_argument, NULL, 'b'},
    {"rounds", required_argument, NULL, 'r'},  {"trace", required_argument, NULL, 't'},
    {"peers", required_argument, NULL, 'p'},   {"out", required_argument, NULL, 'o'},
    {"save", required_argument, NULL, 's'},    {"before", required_argument, NULL, 'B'},
    {"only", required_argument, NULL, 'x'},    {"label", required_argument, NULL, 'l'},
    {"blocks", required_argument, NULL, 'n'},  {"line", required_argument, NULL, 'i'},
    {"subject", required_argument, NULL, 'u'}, {NULL, 0, NULL, 0},
};

static void usage(void)
{
    fprintf(stderr, "usage: index [--quick] [--big] [--rounds N] [--blocks N] [--trace FILE]\n"
                    "             [--peers LIBRARY] [--out FILE] [--save FILE] [--before FILE]\n"
                    "             [--only CONTEXT,...] [--line KEY,...] [--subject NAME,...] "
                    "[--label TEXT]\ncontexts:");
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++)
        fprintf(stderr, " %s", contexts[i]->key);
    fprintf(stderr, "\n");
    exit(2);
}

/* clang-format off */
static struct options parse(int argc, char **argv)
{
    struct options o = {0};
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'q': o.quick = true; break;
        case 'b': o.big = true; break;
        case 'r': o.rounds = atoi(optarg); break;
        case 't': o.trace = optarg; break;
        case 'p': o.peers = optarg; break;
        case 'o': o.out = optarg; break;
        case 's': o.save = optarg; break;
        case 'B': o.before = optarg; break;
        case 'x': o.only = optarg; break;
        case 'l': o.label = optarg; break;
        case 'i': o.line = optarg; break;
        case 'u': o.subject = optarg; break;
        case 'n': o.blocks = strtoul(optarg, NULL, 10); break;
        default: usage();
        }
    }
    if (optind != argc || o.rounds < 0 || o.rounds > ROUNDS_MAX)
        usage();
    if (!o.rounds)
        o.rounds = o.quick ? 3 : 5;
    if (!o.blocks)
        o.blocks = o.quick ? 1600000 : 17891328; /* the latter: above 256 MB, and 10,000 different prompts */
    return o;
}

/* clang-format on */
bool listed(const char *list, const char *key)
{
    size_t n = strlen(key);

    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, key, n) == 0)
            return true;
    return !list;
}

static bool wanted(const struct options *o, const struct context *c)
{
    return o->only ? listed(o->only, c->key) : !c->big || o->big;
}

static size_t choose_subjects(struct results *r, const struct options *o)
{
    const struct subject *all[SUBJECTS_MAX] = {&subject_ours, &subject_flat, &subject_mutex};
    size_t n = 3;

    if (o->peers) {
        all[n++] = subject_peer(o->peers, "subject_kv_index");
        all[n++] = subject_peer(o->peers, "subject_dynamo");
    }
    r->n_sub = 0;
    for (size_t i = 0; i < n; i++) {
        if (!all[i])
            die("a peer is missing");
        if (r->ctx->big && (all[i] == &subject_mutex || all[i]->async))
            continue; /* all five at once would not fit into the memory of a small machine */
        if ((r->ctx->needs & ~all[i]->features) == 0 && listed(o->subject, all[i]->name))
            r->sub[r->n_sub++] = all[i];
    }
    return r->n_sub;
}

int main(int argc, char **argv)
{
    struct options opt = parse(argc, argv);
    struct wp_err err = WP_ERR_INIT;
    struct wp_trace trace;
    struct wp_trace_spec made = {.kind = "chat", .requests = 12031, .seed = 1};
    static struct results r;
    FILE *out, *save;

    if ((opt.trace ? wp_trace_read(&trace, opt.trace, 0, &err)
                   : wp_trace_make(&trace, &made, &err)) < 0)
        die(err.text);
    signal(SIGPIPE, SIG_IGN); /* a child that dies is told of in its line */
    clock_init();
    out = opt.out ? fopen(opt.out, "w") : stdout;
    save = opt.save ? fopen(opt.save, "w") : NULL;
    if (!out || (opt.save && !save))
        die("cannot write");
    report_head(out, &opt, &trace, !opt.trace);
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        if (!wanted(&opt, contexts[i]))
            continue;
        memset(&r, 0, sizeof r);
        r.ctx = contexts[i];
        choose_subjects(&r, &opt);
        fleet_run(&r, &opt, &trace);
        report_context(out, &r, &opt);
        if (save)
            report_save(save, &r);
    }
    wp_trace_fini(&trace);
    return ferror(out) != 0;
}
