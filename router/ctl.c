/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command is a row: its words, the call it makes, and how its answer is shown.  JSON goes out as it came with --json; else
 * workers, index, explain, decisions and queries become tables a person can read.
 */
#include "router/ctl.h"

#include "base/flags.h"
#include "base/mem.h"
#include "net/fetch.h"
#include "net/json.h"

#include <jansson.h>
#include <stdlib.h>

enum { WORDS_MAX = 4 };

struct ctl {
    const char *admin, *key_file, *body, *top, *verify;
    bool raw;
    const char *word[WORDS_MAX];
    size_t n;
};

static const struct wp_flag flags[] = {
    {"--admin", "URL", "the router's admin port (http://127.0.0.1:29000, or $WARMPATH_ADMIN)"},
    {"--key-file", "FILE", "holds the admin key"},
    {"--body", "FILE", "a request body for explain and query, or a worker's entry for `workers add`; - is standard input"},
    {"--json", NULL, "print the answer as it came"},
    {"--top", "N", "of `index`: the N longest prefixes that several workers hold, up to 100"},
    {"--verify", "WORKER", "of `index`: holds it against what that worker's engine has, or says of itself; ends with 1 when they differ"},
    {NULL, NULL, NULL},
};

static int take(void *arg, size_t i, const char *value, struct wp_err *err)
{
    struct ctl *c = arg;

    (void)err;
    if (i == 0)
        c->admin = value;
    else if (i == 1)
        c->key_file = value;
    else if (i == 2)
        c->body = value;
    else if (i == 3)
        c->raw = true;
    else if (i == 4)
        c->top = value;
    else
        c->verify = value;
    return 0;
}

static int word(void *arg, const char *value, struct wp_err *err)
{
    struct ctl *c = arg;

    if (c->n == WORDS_MAX)
        return wp_fail(err, WP_EUSAGE, "too many words: \"%s\"", value);
    c->word[c->n++] = value;
    return 0;
}

static int read_file(const char *path, struct wp_buf *out, struct wp_err *err)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t n;

    if (!f)
        return wp_fail(err, -errno, "%s: %s", path, wp_strerror(-errno));
    do {
        if (wp_buf_reserve(out, 65536) < 0)
            break;
        n = fread(out->p + out->n, 1, 65536, f);
        out->n += n;
    } while (n);
    if (f != stdin)
        fclose(f);
    return 0;
}

/* ---- answers for people ---- */

/* A terminal obeys control bytes: names that an engine gave itself are shown without them. */
static void tame(json_t *j)
{
    const char *s = json_string_value(j);
    size_t n = json_string_length(j);
    struct wp_buf b = {0};

    for (void *it = json_object_iter(j); it; it = json_object_iter_next(j, it))
        tame(json_object_iter_value(it));
    for (size_t i = 0; i < json_array_size(j); i++)
        tame(json_array_get(j, i));
    if (!s || wp_buf_add(&b, s, n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        unsigned char *c = (unsigned char *)b.p + i;

        if (*c < 0x20 || *c == 0x7F)
            *c = '?';
        else if (*c == 0xC2 && i + 1 < n && c[1] < 0xA0) /* U+0080 to U+009F */
            c[0] = c[1] = '?';
    }
    json_string_setn(j, b.p, b.n);
    wp_buf_fini(&b);
}

static const char *text(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static double number(json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void show_workers(json_t *j)
{
    json_t *list = json_object_get(j, "workers");

    if (!list) { /* one worker: all there is to know */
        json_dumpf(j, stdout, JSON_INDENT(2));
        puts("");
        return;
    }
    printf("%-24s %-9s %-9s %8s %8s %9s %10s  %s\n", "worker", "state", "breaker", "requests", "in flight", "backlog", "wait ms", "models");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *w = json_array_get(list, i);
        json_t *models = json_object_get(w, "models");

        const char *trouble = text(w, "trouble");

        printf("%-24s %-9s %-9s %8.0f %8.0f %9.0f %10.1f  %s%s%s%s%s\n", text(w, "id"),
               json_is_true(json_object_get(w, "ready")) ? "ready" : text(w, "why"), text(w, "breaker"), number(w, "requests"),
               number(w, "in_flight"), number(w, "prefill_backlog_tokens"), number(w, "wait_us") / 1000,
               json_array_size(models) ? json_string_value(json_array_get(models, 0)) : "-", json_array_size(models) > 1 ? ", ..." : "",
               trouble[0] ? "  (" : "", trouble, trouble[0] ? ")" : "");
    }
}

static void show_terms(json_t *terms)
{
    for (void *it = json_object_iter(terms); it; it = json_object_iter_next(terms, it)) {
        const char *key = json_object_iter_key(it);

        printf(" %s=%.1f", key, json_number_value(json_object_iter_value(it)) / (strcmp(key, "score") == 0 ? 1 : 1000));
    }
}

/* The chosen one first, then the others in their order. */
static void show_candidates(json_t *list, const char *chosen)
{
    size_t n = json_array_size(list);

    printf("%-26s %8s %8s", "worker", "overlap", "in flight");
    printf(" %12s %12s  terms (ms)\n", "price ms", "ttft ms");
    for (size_t i = 0; i < 2 * n; i++) {
        json_t *c = json_array_get(list, i % n);
        json_t *price = json_object_get(c, "price_us"), *ttft = json_object_get(c, "ttft_us");
        bool is_chosen = strcmp(chosen, text(c, "worker")) == 0;

        if (is_chosen != (i < n))
            continue;
        printf("%c %-24s %8.0f %8.0f", is_chosen ? '*' : ' ', text(c, "worker"),
               number(json_object_get(c, "overlap"), "total"), number(c, "in_flight"));
        if (json_is_number(price))
            printf(" %12.1f", json_number_value(price) / 1000);
        else
            printf(" %12s", "-");
        if (json_is_number(ttft))
            printf(" %12.1f ", json_number_value(ttft) / 1000);
        else
            printf(" %12s ", "-");
        show_terms(json_object_get(c, "terms_us"));
        puts("");
    }
}

static void show_explain(json_t *j)
{
    printf("policy %s, %.0f prompt tokens (%s): %s\n", text(j, "policy"), number(j, "tokens"), text(j, "kind"),
           text(j, "chosen")[0] ? text(j, "chosen") : text(j, "why"));
    show_candidates(json_object_get(j, "candidates"), text(j, "chosen"));
}

static void show_decision(json_t *j)
{
    printf("decision %.0f: request %s, model %s, policy %s, %.0f prompt tokens -> %s", number(j, "id"), text(j, "request_id"),
           text(j, "model"), text(j, "policy"), number(j, "tokens"), text(j, "chosen"));
    if (json_is_number(json_object_get(j, "predicted_ttft_us")))
        printf(", predicted %.1f ms", number(j, "predicted_ttft_us") / 1000);
    if (json_is_number(json_object_get(j, "actual_ttft_us")))
        printf(", was %.1f ms", number(j, "actual_ttft_us") / 1000);
    printf(" %s\n", text(j, "outcome"));
    show_candidates(json_object_get(j, "candidates"), text(j, "chosen"));
}

static void show_decisions(json_t *j)
{
    json_t *list = json_object_get(j, "decisions");

    if (!list) {
        show_decision(j);
        return;
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        show_decision(json_array_get(list, i));
}

static void show_top(json_t *list)
{
    printf("\n%8s %8s %10s  %-20s %s\n", "blocks", "holders", "block size", "block hash", "model: workers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *p = json_array_get(list, i), *held = json_object_get(p, "workers");

        printf("%8.0f %8.0f %10.0f  %-20s %s:", number(p, "blocks"), number(p, "holders"), number(p, "block_size"), text(p, "block_hash"),
               text(p, "model"));
        for (size_t k = 0; k < json_array_size(held); k++)
            printf(" %s/%.0f", text(json_array_get(held, k), "worker"), number(json_array_get(held, k), "rank"));
        puts((double)json_array_size(held) < number(p, "holders") ? " ..." : "");
    }
}

static void show_hashes(json_t *t, const char *count, const char *list, const char *what)
{
    json_t *hashes = json_object_get(t, list);

    if (number(t, count) == 0)
        return;
    printf("      %.0f %s:", number(t, count), what);
    for (size_t i = 0; i < json_array_size(hashes); i++)
        printf(" %s", json_string_value(json_array_get(hashes, i)));
    puts((double)json_array_size(hashes) < number(t, count) ? " ..." : "");
}

static const char *known_number(json_t *o, const char *key, char text_[32])
{
    json_t *v = json_object_get(o, key);

    if (!json_is_number(v))
        return "unknown";
    snprintf(text_, 32, "%.0f", json_number_value(v));
    return text_;
}

static void show_verified(json_t *j)
{
    json_t *ranks = json_object_get(j, "ranks");

    printf("%s (%s): %s\n", text(j, "worker"), text(j, "engine"), text(j, "says"));
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        json_t *r = json_array_get(ranks, i), *tiers = json_object_get(r, "tiers");
        char capacity[32], used[32];

        if (!tiers) {
            printf("  rank %.0f, feed %s: index %.0f blocks on the gpu, %.0f on the cpu, %.0f doubtful; engine: room for %s, %s in use by requests\n",
                   number(r, "rank"), text(r, "feed"), number(r, "gpu_blocks"), number(r, "cpu_blocks"), number(r, "doubtful"),
                   known_number(r, "capacity_blocks", capacity), known_number(r, "in_use_blocks", used));
            continue;
        }
        printf("  rank %.0f, feed %s, expects batch %.0f; the engine's next is %.0f\n", number(r, "rank"), text(r, "feed"), number(r, "feed_next"),
               number(r, "engine_next"));
        for (size_t k = 0; k < json_array_size(tiers); k++) {
            json_t *t = json_array_get(tiers, k);

            printf("    %-5s %s: index %.0f, engine %.0f\n", text(t, "tier"), json_is_true(json_object_get(t, "agrees")) ? "agrees" : "differs",
                   number(t, "index_names"), number(t, "engine_names"));
            show_hashes(t, "missing", "missing_hashes", "that only the engine has");
            show_hashes(t, "extra", "extra_hashes", "that only the index has");
        }
    }
}

static void show_figures(json_t *j)
{
    static const char *const figures[] = {"blocks", "locations", "floating", "doubtful", "evicted", "in_flight_blocks"};
    json_t *list = json_object_get(j, "workers");

    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        printf("%s %.0f, ", figures[i], number(j, figures[i]));
    printf("%.1f MiB", number(j, "bytes") / (1 << 20));
    if (number(j, "cap_bytes") > 0)
        printf(" of %.0f MiB", number(j, "cap_bytes") / (1 << 20));
    printf(", in the last minute %+.0f blocks, %+.0f locations, %+.1f MiB", number(json_object_get(j, "growth"), "blocks"),
           number(json_object_get(j, "growth"), "locations"), number(json_object_get(j, "growth"), "bytes") / (1 << 20));
    printf("\n%-24s %4s %-8s %8s %9s %9s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "worker", "rank", "feed", "coverage", "blocks", "gpu", "cpu",
           "disk", "remote", "doubtful", "floating", "growth", "KiB", "history", "in flight");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *w = json_array_get(list, i);

        printf("%-24s %4.0f %-8s %7.0f%% %9.0f %9.0f %9.0f %9.0f %9.0f %9.0f %9.0f %+9.0f %9.0f %9.0f %9.0f\n", text(w, "worker"),
               number(w, "rank"), text(w, "feed"), 100 * number(w, "coverage"), number(w, "blocks"), number(w, "gpu"), number(w, "cpu"),
               number(w, "disk"), number(w, "remote"), number(w, "doubtful"), number(w, "floating"), number(w, "growth"),
               number(w, "bytes") / 1024, number(w, "history"), number(w, "in_flight"));
    }
    if (json_object_get(j, "top"))
        show_top(json_object_get(j, "top"));
}

static void show_index(json_t *j)
{
    if (json_object_get(j, "says")) {
        show_verified(j);
        return;
    }
    show_figures(j);
}

static void show_doctor(json_t *j)
{
    json_t *models = json_object_get(j, "models");

    if (!json_is_true(json_object_get(j, "enabled")))
        puts("the prefix doctor is off (doctor: false)");
    for (size_t i = 0; i < json_array_size(models); i++) {
        json_t *m = json_array_get(models, i), *all = json_object_get(m, "findings");
        double tokens = number(m, "turn_tokens");

        printf("%s: %.0f requests, %.0f of them a conversation's next turn, %.0f of these broken; lost %.1f %% of their tokens\n", text(m, "model"),
               number(m, "requests"), number(m, "turns"), number(m, "broken_turns"), tokens > 0 ? 100 * number(m, "lost_tokens") / tokens : 0);
        for (size_t k = 0; k < json_array_size(all); k++) {
            json_t *f = json_array_get(all, k);

            printf("  %-13s %6.0f requests of %.0f conversations, last %.0f s ago: at %s %.0f, token %.0f of %.0f; %.0f %% lost\n", text(f, "kind"),
                   number(f, "requests"), number(f, "sessions"), number(f, "last_s_ago"), text(f, "part"), number(f, "number"),
                   number(f, "at_tokens"), number(f, "prompt_tokens"), 100 * number(f, "lost_share"));
            if (json_object_get(f, "stepwise_hit_share"))
                printf("                found in the cache: %.0f %%; cut by steps: %.0f %%\n", 100 * number(f, "hit_share"),
                       100 * number(f, "stepwise_hit_share"));
            printf("                %s\n", text(f, "advice"));
        }
    }
}

/* Both dialects have `instances`, unless a tenant is called that. */
static void show_query(json_t *j)
{
    json_t *all = json_object_get(j, "instances");

    printf("%-24s %4s %9s %9s %9s  (tokens, each with the tiers before it)\n", "worker", "rank", "gpu", "cpu", "disk");
    for (void *i = json_object_iter(all); i; i = json_object_iter_next(all, i)) {
        json_t *ranks = json_object_get(json_object_iter_value(i), "rank_matches");

        for (void *r = json_object_iter(ranks); r; r = json_object_iter_next(ranks, r)) {
            json_t *m = json_object_iter_value(r);

            printf("%-24s %4s %9.0f %9.0f %9.0f\n", json_object_iter_key(i), json_object_iter_key(r), number(m, "gpu"),
                   number(m, "cpu"), number(m, "disk"));
        }
    }
}

static void show_plain(json_t *j)
{
    json_dumpf(j, stdout, JSON_INDENT(2));
    puts("");
}

/* ---- commands ---- */

/* clang-format off */
static const struct command {
    const char *words;  /* up to two; an ID may follow where path has %s */
    const char *method, *path;
    bool body;          /* --body is needed */
    void (*show)(json_t *);
    const char *about;
} commands[] = {
    {"workers",        "GET",    "/workers",            false, show_workers,   "all workers"},
    {"workers show",   "GET",    "/workers/%s",         false, show_plain,     "one worker: workers show ID"},
    {"workers add",    "POST",   "/workers",            true,  show_plain,     "add one: --body FILE holds a workers: entry as JSON"},
    {"workers remove", "DELETE", "/workers/%s",         false, show_plain,     "remove one; its requests go on"},
    {"drain",          "POST",   "/workers/%s/drain",   false, show_plain,     "send a worker nothing new: drain ID"},
    {"undrain",        "POST",   "/workers/%s/undrain", false, show_plain,     "send it requests again: undrain ID"},
    {"explain",        "POST",   "/explain",            true,  show_explain,   "what would be chosen for a request body, and why"},
    {"decisions",      "GET",    "/decisions?last=10",  false, show_decisions, "the last ten decisions"},
    {"decision",       "GET",    "/decisions/%s",       false, show_decisions, "one of them: decision ID"},
    {"index",          "GET",    "/index",              false, show_index,     "what the index holds, and how its feeds are"},
    {"index snapshot", "POST",   "/index/snapshot",     false, show_plain,     "write the index to index.snapshot now"},
    {"doctor",         "GET",    "/doctor",             false, show_doctor,    "clients that break their own prefix cache, and how"},
    {"query",          "POST",   "/query",              true,  show_query,     "what it claims of token ids: --body FILE, as docs/query.md has it"},
    {"query hash",     "POST",   "/query_by_hash",      true,  show_query,     "the same of block hashes"},
    {"reload",         "POST",   "/reload",             false, show_plain,     "read the configuration again"},
    {"version",        "GET",    "/version",            false, show_plain,     "the router's version"},
};
/* clang-format on */
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* The longest row whose words are those that were given; *id is the word behind them. */
static const struct command *find(const struct ctl *c, const char **id)
{
    char two[128];

    for (size_t take_words = c->n < 2 ? c->n : 2; take_words > 0; take_words--) {
        snprintf(two, sizeof two, take_words == 2 ? "%s %s" : "%s", c->word[0], c->n > 1 ? c->word[1] : "");
        for (size_t i = 0; i < N_COMMANDS; i++) {
            bool wants_id = strstr(commands[i].path, "%s") != NULL;

            if (strcmp(commands[i].words, two) != 0 || c->n != take_words + wants_id)
                continue;
            *id = wants_id ? c->word[take_words] : "";
            return &commands[i];
        }
    }
    return NULL;
}

static int show(const struct ctl *c, const struct command *cmd, int status, struct wp_buf *answer)
{
    json_t *j = json_loadb(answer->p ? answer->p : "", answer->n, 0, NULL);

    tame(j);
    if (status >= 400 || !j) {
        const char *message = text(json_object_get(j, "error"), "message");

        fprintf(stderr, "warmpath ctl: the router answered %d: %s\n", status,
                message[0] ? message : !j ? "what came is not JSON" : wp_reason(status));
        json_decref(j);
        return 1;
    }
    if (c->raw)
        printf("%.*s\n", (int)answer->n, answer->p);
    else
        cmd->show(j);
    status = c->verify && json_is_false(json_object_get(j, "agrees"));
    json_decref(j);
    return status;
}

static int run(const struct ctl *c, const struct command *cmd, const char *id, struct wp_err *err)
{
    struct wp_buf body = {0}, answer = {.max = 256 << 20}, key = {0};
    struct wp_field field[2] = {{WP_STR("content-type"), WP_STR("application/json")}};
    char url[1024], path[512], bearer[512];
    size_t n = 1;
    int status = 0, rc = 0;

    snprintf(path, sizeof path, cmd->path, id);
    if ((c->top || c->verify) && (strcmp(cmd->words, "index") != 0 || (c->top && c->verify)))
        return wp_fail(err, WP_EUSAGE, "--top and --verify are for `index`, one of them");
    if (c->verify)
        snprintf(path, sizeof path, "/index/verify/%s", c->verify);
    if (c->top)
        snprintf(path + strlen(path), sizeof path - strlen(path), "?top=%s", c->top);
    snprintf(url, sizeof url, "%s%s", c->admin, path);
    if (cmd->body)
        rc = c->body ? read_file(c->body, &body, err) : wp_fail(err, WP_EUSAGE, "%s: --body FILE is needed", cmd->words);
    if (rc == 0 && c->key_file)
        rc = read_file(c->key_file, &key, err);
    if (rc == 0 && key.n) {
        struct wp_str k = wp_str_trim(wp_buf_str(&key));

        if (memchr(k.p, '\n', k.n) || k.n > sizeof bearer - 8)
            rc = wp_fail(err, WP_EINVAL, "%s: want one line, the key", c->key_file);
        snprintf(bearer, sizeof bearer, "Bearer " WP_STR_FMT, WP_STR_ARG(k));
        field[n++] = (struct wp_field){WP_STR("authorization"), wp_str_of(bearer)};
    }
    rc = rc ? rc : wp_fetch(url, wp_str_of(cmd->method), field, n, wp_buf_str(&body), 0, &status, &answer, err);
    if (rc == 0)
        rc = show(c, cmd, status, &answer);
    wp_buf_fini(&body);
    wp_buf_fini(&answer);
    wp_buf_fini(&key);
    return rc;
}

static void help(FILE *f)
{
    wp_flags_help(f, "ctl [--admin URL] COMMAND [ID]", "The admin API from a shell.", flags);
    fputs("\ncommands:\n", f);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-18s %s\n", commands[i].words, commands[i].about);
}

static int unknown(const struct ctl *c)
{
    const char *names[N_COMMANDS], *near;
    char said[128];

    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].words;
    snprintf(said, sizeof said, "%s", c->n ? c->word[0] : "");
    near = wp_str_nearest(wp_str_of(said), names, N_COMMANDS);
    if (c->n == 0)
        fputs("warmpath ctl: say what to do; `warmpath ctl --help` lists the commands\n", stderr);
    else if (near && strcmp(near, said) != 0)
        fprintf(stderr, "warmpath ctl: unknown command \"%s\"; did you mean \"%s\"?\n", said, near);
    else
        fprintf(stderr, "warmpath ctl: \"%s\" with these words is no command; `warmpath ctl --help` lists them\n", said);
    return 2;
}

int wp_ctl_main(int argc, char **argv)
{
    struct ctl c = {.admin = getenv("WARMPATH_ADMIN")};
    struct wp_err err = WP_ERR_INIT;
    const struct command *cmd;
    const char *id = "";
    int rc = wp_flags(argc, argv, flags, take, word, &c, &err);

    if (rc == 1) {
        help(stdout);
        return 0;
    }
    if (!c.admin)
        c.admin = "http://127.0.0.1:29000";
    if (rc == 0) {
        cmd = find(&c, &id);
        if (!cmd)
            return unknown(&c);
        rc = run(&c, cmd, id, &err);
    }
    if (rc >= 0)
        return rc;
    fprintf(stderr, "warmpath ctl: %s\n", err.text);
    return rc == WP_EUSAGE ? 2 : 1;
}
