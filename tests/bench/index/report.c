/* SPDX-License-Identifier: Apache-2.0 */
/* The page.  A row a value: median and best of the rounds for each subject, and how ours stands to
 * the better of the others. */
#include "tests/bench/index/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The peers as they were measured before, where they cannot run: in November 2026, 2 vCPU of an
 * Intel Xeon with dependent misses of 110, 190 and 300 ns at 32 MB, 256 MB and 2 GB; SMG
 * kv-index 2.0.0 ChainIndex and Dynamo dynamo-kv-router 1.6.1, its CRTC.  0: not measured.
 */
static const struct quoted {
    const char *ctx, *line;
    int value;
    double peer[2];
} quoted[] = {
    {"memory", "f16", 0, {36, 43}},          {"memory", "f1", 0, {57, 97}},
    {"memory", "f1_16", 0, {71, 122}},       {"memory", "trace", 0, {54, 196}},
    {"memory", "f16", 2, {14.4, 11.0}},      {"apply", "f16", 1, {28.3, 14.4}},
    {"memory", "f1", 2, {11.1, 9.6}},        {"apply", "f1", 1, {5.6, 10.6}},
    {"apply", "ones", 0, {1.8, 0.6}},        {"apply", "ones", 1, {2.0, 1.5}},
    {"wider", "many_roots", 1, {145000, 0}}, {"trace", "mix", 0, {15.8, 10.3}},
    {"trace", "warm", 0, {1930, 6120}},      {"trace", "warm", 1, {6290, 13900}},
    {"trace", "warm_1m", 0, {1920, 6170}},   {"trace", "warm_1m", 1, {6750, 15900}},
    {"trace", "half", 0, {1510, 5370}},      {"trace", "half", 1, {4180, 10700}},
    {"trace", "4096_1m", 0, {7950, 15500}},  {"trace", "4096_1m", 1, {13100, 28800}},
    {"trace", "warm_hash", 0, {8400, 8300}}, {"hot", "hot", 0, {165, 2400}},
    {"hot", "hot", 1, {272, 3130}},          {"hot", "cold_many", 0, {55, 119}},
    {"hot", "cold_after", 0, {240, 2460}},   {"hot", "uneven", 0, {1170, 2800}},
    {"hot", "uneven", 1, {2160, 6460}},      {"hot", "hash", 0, {6500, 2390}},
};
static const char *const quoted_name[2] = {"kv-index, quoted", "dynamo, quoted"};

static const struct quoted *find_quoted(const char *ctx, const char *line, int value)
{
    for (size_t i = 0; i < sizeof quoted / sizeof quoted[0]; i++)
        if (strcmp(quoted[i].ctx, ctx) == 0 && strcmp(quoted[i].line, line) == 0 &&
            quoted[i].value == value)
            return &quoted[i];
    return NULL;
}

static bool stand_in(const struct subject *s)
{
    return s == &subject_flat || s == &subject_mutex;
}

static void number(FILE *out, double v)
{
    long n = (long)(v + 0.5);

    if (n >= 1000000)
        fprintf(out, "%ld,%03ld,%03ld", n / 1000000, n / 1000 % 1000, n % 1000);
    else if (n >= 10000)
        fprintf(out, "%ld,%03ld", n / 1000, n % 1000);
    else
        fprintf(out, v >= 100 ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v);
}

static void print_cell(FILE *out, const struct cell *c, int value, bool more_is_better)
{
    double median = cell_median(c, value), best = cell_best(c, value, more_is_better);

    if (!c->n || median == 0) {
        fprintf(out, " - |");
        return;
    }
    fprintf(out, " ");
    number(out, median);
    if (c->n > 1) {
        fprintf(out, " (");
        number(out, best);
        fprintf(out, ")");
    }
    fprintf(out, " |");
}

static bool is_rate(const struct line *l, int value)
{
    return strstr(l->unit[value], "/s") != NULL;
}

/* What the last measurement but one said of ours: a line
 * "ctx<TAB>line<TAB>unit<TAB>subject<TAB>median<TAB>best" of that file. */
static double saved(const char *path, const char *ctx, const struct line *l, int value)
{
    char want[256], row[512];
    FILE *f = path ? fopen(path, "r") : NULL;
    double median = 0;
    int n;

    if (!f)
        return 0;
    n = snprintf(want, sizeof want, "%s\t%s\t%s\t%s\t", ctx, l->key, l->unit[value],
                 subject_ours.name);
    while (fgets(row, sizeof row, f))
        if (n > 0 && strncmp(row, want, (size_t)n) == 0)
            median = atof(row + n);
    fclose(f);
    return median;
}

/* Is the unit one of those where more or less of it is better? */
static bool comparable(const char *unit)
{
    return strstr(unit, "ns") || strstr(unit, "us") || strstr(unit, "/s") || !strcmp(unit, "bytes");
}

/* Ours to the better of some of the others, by medians; 0 when there is none. */
static double ratio(const struct results *r, size_t line, int value, bool more, bool of_stand_ins)
{
    double best = 0, ours = cell_median(&r->cell[line][0], value);

    for (size_t s = 1; s < r->n_sub; s++) {
        double v = cell_median(&r->cell[line][s], value);

        if (comparable(r->ctx->line[line].unit[value]) && stand_in(r->sub[s]) == of_stand_ins &&
            r->cell[line][s].n && v > 0 && (best == 0 || (more ? v > best : v < best)))
            best = v;
    }
    return best > 0 ? ours / best : 0;
}

static bool has_peers(const struct results *r)
{
    for (size_t s = 0; s < r->n_sub; s++)
        if (s && !stand_in(r->sub[s]))
            return true;
    return false;
}

static bool has_quotes(const struct results *r)
{
    for (size_t i = 0; i < sizeof quoted / sizeof quoted[0]; i++)
        if (strcmp(quoted[i].ctx, r->ctx->key) == 0)
            return !has_peers(r);
    return false;
}

static void print_quote(FILE *out, const struct results *r, size_t line, int value, bool more)
{
    const struct quoted *q = find_quoted(r->ctx->key, r->ctx->line[line].key, value);
    double best = 0, ours = cell_median(&r->cell[line][0], value);

    for (int i = 0; i < 2; i++) {
        double v = q ? q->peer[i] : 0;

        fprintf(out, " ");
        if (v > 0)
            number(out, v);
        else
            fprintf(out, "-");
        fprintf(out, " |");
        if (v > 0 && (best == 0 || (more ? v > best : v < best)))
            best = v;
    }
    if (best > 0 && ours > 0)
        fprintf(out, " %.2fx |", ours / best);
    else
        fprintf(out, " - |");
}

static void print_ratio(FILE *out, double x)
{
    if (x > 0)
        fprintf(out, " %.2fx |", x);
    else
        fprintf(out, " - |");
}

static void print_row(FILE *out, const struct results *r, size_t line, int value,
                      const struct options *opt)
{
    const struct line *l = &r->ctx->line[line];
    bool more = is_rate(l, value);

    fprintf(out, "| %s | %s |", value ? "" : l->title, l->unit[value]);
    if (opt->before) {
        double v = saved(opt->before, r->ctx->key, l, value);

        fprintf(out, " ");
        if (v > 0)
            number(out, v);
        fprintf(out, " |");
    }
    for (size_t s = 0; s < r->n_sub; s++)
        print_cell(out, &r->cell[line][s], value, more);
    if (r->n_sub > 1)
        print_ratio(out, ratio(r, line, value, more, true));
    if (has_peers(r))
        print_ratio(out, ratio(r, line, value, more, false));
    if (has_quotes(r))
        print_quote(out, r, line, value, more);
    fprintf(out, "\n");
}

static void print_columns(FILE *out, const struct results *r, const struct options *opt)
{
    size_t columns = 2 + (opt->before != NULL) + r->n_sub + (r->n_sub > 1) + has_peers(r);

    fprintf(out, "| line | unit |%s", opt->before ? " before |" : "");
    for (size_t s = 0; s < r->n_sub; s++)
        fprintf(out, " %s |", r->sub[s]->name);
    fprintf(out, "%s%s", r->n_sub > 1 ? " to the better stand-in |" : "",
            has_peers(r) ? " to the better peer |" : "");
    if (has_quotes(r)) {
        fprintf(out, " %s | %s | to the better |", quoted_name[0], quoted_name[1]);
        columns += 3;
    }
    fprintf(out, "\n|");
    for (size_t i = 0; i < columns; i++)
        fprintf(out, " --- |");
    fprintf(out, "\n");
}

static void print_gaps(FILE *out, const struct results *r)
{
    double lost[ROUNDS_MAX], p99[ROUNDS_MAX], longest[ROUNDS_MAX];
    size_t n = (size_t)r->rounds;

    for (size_t i = 0; i < n; i++) {
        lost[i] = r->gap[i].lost_share * 100;
        p99[i] = r->gap[i].p99_us;
        longest[i] = r->gap[i].longest_us / 1000;
    }
    fprintf(out,
            "A spinning thread beside (median, worst of %zu): lost %.1f, %.1f %% of its time in "
            "gaps over 1 us; "
            "p99 of the gaps %.0f, %.0f us; longest %.1f, %.1f ms.\n\n",
            n, percentile(lost, n, 0.5), percentile(lost, n, 1), percentile(p99, n, 0.5),
            percentile(p99, n, 1), percentile(longest, n, 0.5), percentile(longest, n, 1));
}

void report_context(FILE *out, const struct results *r, const struct options *opt)
{
    fprintf(out, "\n## %s\n\n", r->ctx->title);
    print_gaps(out, r);
    print_columns(out, r, opt);
    for (size_t line = 0; line < r->ctx->n_lines; line++)
        for (int v = 0; v < VALUES && r->ctx->line[line].unit[v]; v++)
            print_row(out, r, line, v, opt);
    if (r->disagree)
        fprintf(out, "\n**Answers differed from ours %u times.**\n", r->disagree);
    fflush(out);
}

void report_save(FILE *save, const struct results *r)
{
    for (size_t line = 0; line < r->ctx->n_lines; line++)
        for (size_t s = 0; s < r->n_sub; s++)
            for (int v = 0; v < VALUES && r->ctx->line[line].unit[v]; v++)
                if (r->cell[line][s].n)
                    fprintf(save, "%s\t%s\t%s\t%s\t%.6g\t%.6g\n", r->ctx->key,
                            r->ctx->line[line].key, r->ctx->line[line].unit[v], r->sub[s]->name,
                            cell_median(&r->cell[line][s], v),
                            cell_best(&r->cell[line][s], v, is_rate(&r->ctx->line[line], v)));
    fflush(save);
}

static void processor(char name[128])
{
    char row[256];
    FILE *f = fopen("/proc/cpuinfo", "r");

    strcpy(name, "unknown processor");
    while (f && fgets(row, sizeof row, f))
        if (strncmp(row, "model name", 10) == 0 && strchr(row, ':')) {
            snprintf(name, 128, "%.*s", (int)strcspn(strchr(row, ':') + 2, "\n"),
                     strchr(row, ':') + 2);
            break;
        }
    if (f)
        fclose(f);
}

static const char text_head[] =
    "# The index, measured\n\n"
    "Written by `%s`: do not edit, run it again.\n\n"
    "One writer and one reader, each subject in a process of its own; round after round every "
    "subject measures the same line in turn, so "
    "that a loud minute hits all alike. A cell is the median of the rounds, the best in brackets. "
    "Rates (M blocks/s) are per CPU second of the writer; times "
    "are of single look-ups, with the clock's own cost (%.0f ns) taken off. A ratio is ours to the "
    "better of the others, by medians: for rates above 1 is "
    "faster, for times and bytes below 1 is. Message decoding and hashing are outside the clock "
    "but where a line says so.\n\n"
    "- **warmpath**: this index, through `index/index.h`. Engine hashes differ from worker to "
    "worker. Events are applied 64 at a time, as messages bring them, so that short ones call "
    "ahead for the next ones' lines; the peers take theirs one by one, as their interfaces do. "
    "Where a slice's time is told, and beside a reader, ours come one by one too. Its answer is a "
    "set of holders and a length for each "
    "different length.\n"
    "- **flat**, **mutex**: stand-ins in C (`tests/bench/index/subject_*.c`): a flat table with "
    "prefetch, sized for the workload beforehand, and a hash map "
    "in 64 shards with a mutex each. They are asked by chain hashes, computed outside the clock.\n"
    "- **kv-index**: SMG's crate 2.0.0, ChainIndex; **dynamo**: Dynamo's crate dynamo-kv-router "
    "1.6.1, ConcurrentRadixTreeCompressed. "
    "They are given the chain's hash as every worker's engine hash, which suits them best. "
    "Dynamo's "
    "writer is a thread of its own that takes events from a channel; its CPU time is what "
    "counts.\n\n"
    "The trace workload: %s, each id of 512 tokens cut into 32 blocks of 16, several salts side by "
    "side, workers that evict tails first "
    "(`tests/lib/churn.h`). Prompts that are asked are distinct and in random order; their hashes "
    "lie in the cache, what the index has of them does not. Where nobody writes, the answers of "
    "all "
    "subjects are compared.\n\n"
    "Open loop: the schedule is made before the clock starts; each request asks for all blocks of "
    "its prompt, then its events are applied, due at once at an absolute time; what is late counts "
    "from its deadline; rates count blocks asked, stored and removed until the last is done. The "
    "highest of 0.9, 0.75, 0.6, 0.45, 0.3, 0.2 and 0.1 of the overload rate that was done within "
    "1.10 of its schedule is shown; a trial is void when the same schedule with nothing behind it "
    "takes more than 1.01.\n\n"
    "Stores are shown twice. *fill* is into fresh memory, from nothing: it has the first touch of "
    "pages and the growth of tables in it. *store* is into memory and tables that earlier rounds "
    "have used, of the size that they came to, as in a worker that has been full for long. The "
    "table of November 2026 that this project's aims were taken from has the first: kv-index "
    "filled at 14.4 and 11.1 M/s there (16 holders, 1 holder), dynamo at 11.0 and 9.6, which is "
    "what they fill at here; into warm memory kv-index stores two to three times as fast. Removals "
    "and the trace mix agree with that table as they are. Both sides are given the same blocks, "
    "made into events of their own kind before the clock starts; nobody's events repeat, and the "
    "whole is 100 to 250 MB for each subject, the caches are 32 MB. With QUICK=1 an eighth of it "
    "is in the caches: rates are higher, the peers' most of all, and are no measure.\n\n"
    "A dash: has no such thing, or failed (kv-index 2.0.0 may end with an index out of bounds when "
    "a block has more than 196,608 children; the peers have no cap, tiers or groups to "
    "measure).\n\n";

void report_head(FILE *out, const struct options *opt, const struct wp_trace *trace, bool made)
{
    static const size_t mb[] = {32, 256, 2048};
    char cpu[128], command[256], source[256];

    processor(cpu);
    snprintf(command, sizeof command, "make bench-index%s%s%s%s%s", opt->peers ? " PEERS=1" : "",
             opt->trace ? " TRACE=..." : "", opt->quick ? " QUICK=1" : "", opt->big ? " BIG=1" : "",
             opt->out ? " OUT=docs/bench-index.md" : "");
    snprintf(source, sizeof source,
             made ? "%zu requests **made up** by the chat kind of docs/traces.md, whose statistics "
                    "are the Mooncake conversation trace's"
                  : "the Mooncake conversation trace, %zu requests",
             trace->n);
    fprintf(out, text_head, command, tick_cost_ns(), source);
    fprintf(out, "%s%s%s; %ld processors. A dependent miss costs", opt->label ? opt->label : "",
            opt->label ? ". " : "", cpu, sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < 3; i++)
        fprintf(out, "%s %.0f ns at %zu MB", i ? "," : "", miss_ns(mb[i] << 20), mb[i]);
    fprintf(out, ". %d rounds.\n", opt->rounds);
    if (opt->quick)
        fprintf(out,
                "\nQuick: an eighth of the sizes; of prompts of 4,096 blocks half is known.\n");
    if (opt->before)
        fprintf(out, "\n*before*: the median of the first index of this project (a trie behind a "
                     "read-write lock), with 13 M memberships on the trace workload.\n");
    if (!opt->peers)
        fprintf(out, "\nThe peers were not run; they are quoted from November 2026, 2 vCPU of an "
                     "Intel Xeon (dependent misses 110, 190, 300 ns): compare "
                     "with care.\n");
    fflush(out);
}
