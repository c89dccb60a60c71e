/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/trace.h"
#include "base/map.h"
#include "sim/trace_cmd.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

static const char *temp_name(char path[64], const char *ending)
{
    int fd;

    snprintf(path, 64, "/tmp/wp-trace-XXXXXX%s", ending);
    fd = mkstemps(path, (int)strlen(ending));
    EXPECT_TRUE("temporary file", fd >= 0);
    close(fd);
    return path;
}

/* A file of that content, gzipped when zipped; cut: so many bytes off its end. */
static const char *file_of(char path[64], const char *p, size_t n, bool zipped, long cut)
{
    gzFile f = gzopen(temp_name(path, ""), zipped ? "wb" : "wbT");
    FILE *size;

    EXPECT_INT("written", (long long)n, n ? gzwrite(f, p, (unsigned)n) : 0);
    gzclose(f);
    size = fopen(path, "rb");
    fseek(size, 0, SEEK_END);
    EXPECT_INT("cut", 0, truncate(path, ftell(size) - cut));
    fclose(size);
    return path;
}

static int read_text(struct wp_trace *t, const char *text, struct wp_err *err)
{
    char path[64];
    int rc;

    file_of(path, text, strlen(text), false, 0);
    rc = wp_trace_read(t, path, 0, err);
    unlink(path);
    return rc;
}

static const char two[] =
    "{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 7, \"hash_ids\": [1, 2]}\n"
    "\n"
    "{\"hash_ids\":[18446744073709551615],\"more\":{\"x\":[1]},\"output_length\":0,\"input_length\":512,\"timestamp\":1.5}";

static void expect_two(struct wp_trace *t)
{
    EXPECT_UINT("requests", 2, t->n);
    EXPECT_UINT("input", 513, t->req[0].input);
    EXPECT_UINT("output", 7, t->req[0].output);
    EXPECT_UINT("ids", 2, t->req[0].n_ids);
    EXPECT_TRUE("which", t->req[0].id[0] == 1 && t->req[0].id[1] == 2);
    EXPECT_UINT("fractions of a millisecond", 1500, t->req[1].at_us);
    EXPECT_UINT("an output of nothing counts as one", 1, t->req[1].output);
    EXPECT_UINT("ids have 64 bits", UINT64_MAX, t->req[1].id[0]);
}

static void plain_and_gzip_read_the_same(void)
{
    for (int zipped = 0; zipped < 2; zipped++) {
        char path[64];
        struct wp_trace t;
        struct wp_err err = WP_ERR_INIT;

        file_of(path, two, strlen(two), zipped, 0);
        EXPECT_INT(err.text, 0, wp_trace_read(&t, path, 0, &err));
        expect_two(&t);
        wp_trace_fini(&t);
        EXPECT_INT("one only", 0, wp_trace_read(&t, path, 1, &err));
        EXPECT_UINT("one", 1, t.n);
        wp_trace_fini(&t);
        unlink(path);
    }
}

static const struct {
    const char *label, *text, *want;
    int rc;
} bad[] = {
    /* clang-format off */
    {"nothing",            "",                                                              ":1: want at least one request", WP_EINVAL},
    {"a tenant too far",   "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1],\"tenant\":1001}", ":1: tenant: want a whole number up to 1000, got 1001", WP_EINVAL},
    {"a priority in words", "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1],\"priority\":\"high\"}", ":1: priority: want a whole number up to 200, got \"high\"", WP_EINVAL},
    {"blank lines",        "\n \n\r\n",                                                     ":4: want at least one request", WP_EINVAL},
    {"no JSON",            "hello\n",                                                       ":1: ",                          WP_ESYNTAX},
    {"cut short",          "{\"timestamp\": 0, \"inp",                                      ":1: ",                          WP_ESYNTAX},
    {"no object",          "[1]\n",                                                         ":1: ",                          WP_EINVAL},
    {"no timestamp",       "{\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}",     ":1: timestamp: want milliseconds from 0 on, got nothing", WP_EINVAL},
    {"before the start",   "{\"timestamp\":-1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}", "timestamp: want milliseconds from 0 on, got -1", WP_EINVAL},
    {"for ever",           "{\"timestamp\":1e300,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}", "timestamp: want", WP_EINVAL},
    {"empty prompt",       "{\"timestamp\":0,\"input_length\":0,\"output_length\":1,\"hash_ids\":[]}", "input_length: want a number of tokens from 1", WP_EINVAL},
    {"huge prompt",        "{\"timestamp\":0,\"input_length\":99999999,\"output_length\":1,\"hash_ids\":[1]}", "input_length: want", WP_EINVAL},
    {"huge output",        "{\"timestamp\":0,\"input_length\":1,\"output_length\":1e18,\"hash_ids\":[1]}", "output_length: want", WP_EINVAL},
    {"output is text",     "{\"timestamp\":0,\"input_length\":1,\"output_length\":\"x\",\"hash_ids\":[1]}", "output_length: want a number of tokens up to 16777216, got \"x\"", WP_EINVAL},
    {"no ids",             "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}",      "hash_ids: want an array of whole numbers, got nothing", WP_EINVAL},
    {"ids are no array",   "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":{}}", "hash_ids: want an array", WP_EINVAL},
    {"an id short",        "{\"timestamp\":0,\"input_length\":513,\"output_length\":1,\"hash_ids\":[1]}", "hash_ids: want 2 of them, one for each 512 tokens of the prompt, got 1", WP_EINVAL},
    {"an id too many",     "{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1,2]}", "want 1 of them", WP_EINVAL},
    {"few ids, long text", "{\"timestamp\":0,\"input_length\":16777216,\"output_length\":1,\"hash_ids\":[1]}", "hash_ids: want", WP_EINVAL},
    {"a broken id",        "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[-5]}", "hash_ids: want whole numbers from 0 on, got -5", WP_EINVAL},
    {"an id of text",      "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[\"a\"]}", "hash_ids: want whole numbers", WP_EINVAL},
    {"out of order",       "{\"timestamp\":9,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n"
                           "{\"timestamp\":5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n", ":2: timestamp: want them in order, got 5.000 after 9.000", WP_EINVAL},
    /* clang-format on */
};

static void a_wrong_line_is_named_with_what_was_wanted(void)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct wp_trace t;
        struct wp_err err = WP_ERR_INIT;

        EXPECT_INT(bad[i].label, bad[i].rc, read_text(&t, bad[i].text, &err));
        EXPECT_TRUE(bad[i].label, strstr(err.text, bad[i].want) != NULL);
        if (!strstr(err.text, bad[i].want))
            printf("    got: %s\n", err.text);
        EXPECT_TRUE("empty afterwards", t.n == 0 && !t.req);
    }
}

static void files_that_cannot_be_read_are_named(void)
{
    struct wp_trace t;
    struct wp_err err = WP_ERR_INIT;
    char path[64];

    EXPECT_INT("missing", WP_ENOENT, wp_trace_read(&t, "/nonexistent/trace", 0, &err));
    EXPECT_TRUE("named", strstr(err.text, "/nonexistent/trace") != NULL);
    EXPECT_TRUE("a folder", wp_trace_read(&t, "/tmp", 0, &err) < 0);
    file_of(path, two, strlen(two), true, 12);
    EXPECT_INT("cut gzip", WP_EEOF, wp_trace_read(&t, path, 0, &err));
    EXPECT_TRUE("says so", strstr(err.text, "ends before its end") != NULL);
    unlink(path);
}

static void a_line_has_an_end(void)
{
    size_t n = (size_t)WP_TRACE_LINE_MAX + 70000;
    char *p = wp_malloc(n), path[64];
    struct wp_trace t;
    struct wp_err err = WP_ERR_INIT;

    memset(p, '1', n);
    file_of(path, p, n, true, 0); /* small as a file */
    EXPECT_INT("too long", WP_ETOOBIG, wp_trace_read(&t, path, 0, &err));
    EXPECT_TRUE("says so", strstr(err.text, ":1: want a line of at most 16777216 bytes") != NULL);
    unlink(path);
    wp_free(p);
}

static void jitter_spreads_and_keeps_the_order_of_time(void)
{
    struct wp_trace t[2];
    uint64_t before[200], least = UINT64_MAX, most = 0;

    for (int k = 0; k < 2; k++) {
        t[k] = (struct wp_trace){0};
        for (uint32_t i = 0; i < 200; i++) {
            uint64_t *id;

            EXPECT_TRUE("add", wp_trace_add(&t[k], i / 10 * 3000000, 1 + i, 1, &id) != NULL);
            *id = i;
            before[i] = i / 10 * 3000000;
        }
        wp_trace_jitter(&t[k], 3000000, 4);
    }
    for (size_t i = 0; i < 200; i++) {
        uint64_t moved = t[0].req[i].at_us - before[i];

        EXPECT_TRUE("within its window", t[0].req[i].at_us >= before[i] && moved < 3000000);
        EXPECT_TRUE("sorted", i == 0 || t[0].req[i].at_us >= t[0].req[i - 1].at_us);
        EXPECT_TRUE("same seed, same trace",
                    t[0].req[i].at_us == t[1].req[i].at_us && t[0].req[i].input == t[1].req[i].input);
        least = moved < least ? moved : least;
        most = moved > most ? moved : most;
    }
    EXPECT_TRUE("all of the window is used", least < 300000 && most > 2700000);
    wp_trace_fini(&t[0]);
    wp_trace_fini(&t[1]);
}

static void equal_ids_give_equal_tokens(void)
{
    const uint64_t ids[] = {5, 9, 7}, others[] = {5, 9, 8};
    struct wp_trace_req a = {.input = 1500, .n_ids = 3, .id = ids}, b = {.input = 1100, .n_ids = 3, .id = others};
    uint32_t x[1500], y[1500], seen_low = UINT32_MAX, seen_high = 0;
    size_t same = 0;

    memset(y, 0xff, sizeof y);
    wp_trace_tokens(&a, 1000, x);
    wp_trace_tokens(&b, 1000, y);
    EXPECT_TRUE("two blocks alike", memcmp(x, y, 1024 * sizeof x[0]) == 0);
    for (size_t i = 1024; i < 1100; i++)
        same += x[i] == y[i];
    EXPECT_TRUE("the third is another", same < 5);
    EXPECT_UINT("nothing past the prompt", UINT32_MAX, y[1100]);
    for (size_t i = 0; i < 1500; i++) {
        seen_low = x[i] < seen_low ? x[i] : seen_low;
        seen_high = x[i] > seen_high ? x[i] : seen_high;
    }
    EXPECT_TRUE("within the vocabulary", seen_low > 256 && seen_high < 1000);
    EXPECT_TRUE("all of it", seen_low < 270 && seen_high > 985);
}

static void what_is_written_reads_back(void)
{
    static const char *const endings[] = {".jsonl", ".jsonl.gz"};

    for (int k = 0; k < 2; k++) {
        struct wp_trace_spec spec = {.kind = "tool", .requests = 300, .seed = 3};
        struct wp_trace t, back;
        struct wp_err err = WP_ERR_INIT;
        char path[64];

        EXPECT_INT(err.text, 0, wp_trace_make(&t, &spec, &err));
        t.req[299].at_us += 7; /* not whole milliseconds */
        t.req[298].tenant = 1000;
        t.req[297].priority = 200;
        temp_name(path, endings[k]);
        EXPECT_INT(err.text, 0, wp_trace_write(&t, path, &err));
        EXPECT_INT(err.text, 0, wp_trace_read(&back, path, 0, &err));
        EXPECT_UINT("requests", t.n, back.n);
        for (size_t i = 0; i < t.n && i < back.n; i++) {
            EXPECT_TRUE("who", t.req[i].tenant == back.req[i].tenant && t.req[i].priority == back.req[i].priority);
            EXPECT_UINT("time", t.req[i].at_us, back.req[i].at_us);
            EXPECT_TRUE("request", t.req[i].input == back.req[i].input && t.req[i].output == back.req[i].output &&
                                       t.req[i].n_ids == back.req[i].n_ids);
            EXPECT_TRUE("ids", memcmp(t.req[i].id, back.req[i].id, t.req[i].n_ids * sizeof(uint64_t)) == 0);
        }
        wp_trace_fini(&back);
        EXPECT_TRUE("a full disk is told", wp_trace_write(&t, "/dev/full", &err) < 0);
        EXPECT_TRUE("and a bad folder", wp_trace_write(&t, "/nonexistent/x", &err) == WP_ENOENT);
        wp_trace_fini(&t);
        unlink(path);
    }
}

/* Bounds around what the three public traces have (docs/traces.md). */
static const struct {
    const char *kind;
    size_t requests;
    double input[2], output[2], hit[2], rate;
} kinds[] = {
    /* clang-format off */
    {"chat",  12000, {11000, 13500}, {310, 375}, {0.345, 0.40}, 3.4},
    {"tool",  20000, { 7200,  8800}, {120, 155}, {0.58, 0.65}, 6.67},
    {"agent",  6000, {86000, 106000}, {380, 480}, {0.935, 0.96}, 1.45},
    /* clang-format on */
};

static void expect_within(const char *label, const double bounds[2], double x)
{
    EXPECT_NEAR(label, (bounds[0] + bounds[1]) / 2, x, (bounds[1] - bounds[0]) / 2);
}

static void made_traces_are_like_the_public_ones(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct wp_trace_spec spec = {.kind = kinds[i].kind, .requests = kinds[i].requests, .seed = seed};
            struct wp_trace t;
            struct wp_trace_stats s;
            struct wp_err err = WP_ERR_INIT;

            EXPECT_INT(err.text, 0, wp_trace_make(&t, &spec, &err));
            EXPECT_INT("stats", 0, wp_trace_stats(&t, &s));
            EXPECT_UINT("requests", spec.requests, s.requests);
            expect_within(spec.kind, kinds[i].input, s.input_mean);
            expect_within(spec.kind, kinds[i].output, s.output_mean);
            expect_within(spec.kind, kinds[i].hit, s.hit);
            EXPECT_NEAR(spec.kind, kinds[i].rate, (double)(s.requests - 1) / s.duration_s, 0.01 * kinds[i].rate);
            EXPECT_TRUE("sessions", s.sessions > 10 && s.sessions < s.requests);
            EXPECT_UINT("begins at 0", 0, t.req[0].at_us);
            wp_trace_fini(&t);
        }
    }
}

static void equal_ids_of_a_made_trace_mean_equal_prefixes(void)
{
    for (size_t k = 0; k < 3; k++) {
        struct wp_trace_spec spec = {.kind = kinds[k].kind, .requests = 800, .seed = 11, .rate_per_s = 5};
        struct wp_map before = {0};
        struct wp_trace t;
        struct wp_err err = WP_ERR_INIT;
        bool ok = true, sorted = true;

        EXPECT_INT(err.text, 0, wp_trace_make(&t, &spec, &err));
        for (size_t i = 0; i < t.n; i++) {
            const struct wp_trace_req *r = &t.req[i];

            sorted = sorted && (i == 0 || r->at_us >= t.req[i - 1].at_us) && r->at_us % 1000 == 0;
            ok = ok && r->n_ids == (r->input + 511) / 512;
            for (uint32_t b = 0; b < r->n_ids; b++) { /* an id always follows the same one */
                uint64_t want = b ? r->id[b - 1] : UINT64_MAX, got;

                if (!wp_map_get(&before, r->id[b], &got))
                    EXPECT_INT("put", 0, wp_map_put(&before, r->id[b], want));
                else
                    ok = ok && got == want;
            }
        }
        EXPECT_TRUE("chained", ok);
        EXPECT_TRUE("sorted whole milliseconds", sorted);
        EXPECT_NEAR("the rate asked for", 799 / 5.0, (double)t.req[799].at_us / 1e6, 0.01);
        wp_map_fini(&before);
        wp_trace_fini(&t);
    }
}

static void the_seed_decides(void)
{
    struct wp_trace_spec spec = {.kind = "chat", .requests = 50, .seed = 1};
    struct wp_trace t[3];
    struct wp_err err = WP_ERR_INIT;
    bool same = true, other = false;

    for (uint64_t k = 0; k < 3; k++) {
        spec.seed = k < 2 ? 1 : 2;
        EXPECT_INT(err.text, 0, wp_trace_make(&t[k], &spec, &err));
    }
    for (size_t i = 0; i < 50; i++) {
        same = same && t[0].req[i].at_us == t[1].req[i].at_us && t[0].req[i].input == t[1].req[i].input;
        other = other || t[0].req[i].input != t[2].req[i].input;
    }
    EXPECT_TRUE("same seed", same);
    EXPECT_TRUE("another seed", other);
    for (int k = 0; k < 3; k++)
        wp_trace_fini(&t[k]);
}

static void wrong_specs_are_refused(void)
{
    static const struct wp_trace_spec specs[] = {
        {.kind = "chart", .requests = 1}, {.kind = "", .requests = 1},
        {.kind = "chat", .requests = 0},  {.kind = "chat", .requests = (size_t)WP_TRACE_MAKE_MAX + 1},
        {.kind = "chat", .requests = 1, .rate_per_s = -1},
    };
    struct wp_trace t;
    struct wp_err err = WP_ERR_INIT;

    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        EXPECT_INT("refused", WP_EINVAL, wp_trace_make(&t, &specs[i], &err));
        EXPECT_TRUE("empty", t.n == 0 && !t.req);
        if (i == 0)
            EXPECT_TRUE("nearest", strstr(err.text, "did you mean \"chat\"") != NULL);
    }
}

static void statistics_are_those_of_the_requests(void)
{
    static const char text[] =
        "{\"timestamp\":0,\"input_length\":1024,\"output_length\":10,\"hash_ids\":[1,2]}\n"
        "{\"timestamp\":1000,\"input_length\":1600,\"output_length\":20,\"hash_ids\":[1,2,3,4]}\n"  /* goes on: 1024 hit */
        "{\"timestamp\":2000,\"input_length\":1024,\"output_length\":30,\"hash_ids\":[1,2]}\n"      /* the same: 1023 hit */
        "{\"timestamp\":4000,\"input_length\":600,\"output_length\":40,\"hash_ids\":[1,9]}\n"       /* another: 512 hit */
        "{\"timestamp\":5000,\"input_length\":2000,\"output_length\":40,\"hash_ids\":[1,2,3,7]}\n"; /* on from the second */
    struct wp_trace t;
    struct wp_trace_stats s;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT(err.text, 0, read_text(&t, text, &err));
    EXPECT_INT("stats", 0, wp_trace_stats(&t, &s));
    EXPECT_UINT("requests", 5, s.requests);
    EXPECT_UINT("sessions", 3, s.sessions);
    EXPECT_UINT("blocks", 6, s.blocks);
    EXPECT_NEAR("duration", 5, s.duration_s, 1e-9);
    EXPECT_NEAR("input", 6248 / 5.0, s.input_mean, 1e-9);
    EXPECT_NEAR("output", 28, s.output_mean, 1e-9);
    EXPECT_NEAR("hit", (1024 + 1023 + 512 + 1536) / 6248.0, s.hit, 1e-9);
    EXPECT_UINT("p50", 1024, s.input_p50);
    EXPECT_UINT("p99", 2000, s.input_p99);
    wp_trace_fini(&t);
}

static void the_command_makes_a_file_and_refuses_nonsense(void)
{
    char path[64];
    char *make[] = {"trace", "--kind", "agent", "--requests=40", "--seed", "9", "--out", path, NULL};
    char *wrong[] = {"trace", "--knd", "agent", NULL}, *many[] = {"trace", "--requests", "-4", NULL};
    char *kind[] = {"trace", "--kind", "novel", NULL}, *missing[] = {"trace", "--stats", "/nonexistent/x", NULL};
    struct wp_trace t;
    struct wp_err err = WP_ERR_INIT;

    temp_name(path, ".gz");
    EXPECT_INT("made", 0, wp_trace_main(8, make));
    EXPECT_INT(err.text, 0, wp_trace_read(&t, path, 0, &err));
    EXPECT_UINT("requests", 40, t.n);
    wp_trace_fini(&t);
    EXPECT_INT("unknown flag", 2, wp_trace_main(3, wrong));
    EXPECT_INT("no number", 2, wp_trace_main(3, many));
    EXPECT_INT("unknown kind", 2, wp_trace_main(3, kind));
    EXPECT_INT("no such file", 1, wp_trace_main(3, missing));
    unlink(path);
}

static int everything(const char *path, struct wp_err *err)
{
    struct wp_trace_spec spec = {.kind = "tool", .requests = 3, .seed = 1, .rate_per_s = 0.01};
    struct wp_trace t;
    struct wp_trace_stats s;
    int rc = wp_trace_read(&t, path, 0, err);

    if (rc < 0)
        return rc;
    rc = wp_trace_stats(&t, &s);
    if (rc == 0)
        rc = wp_trace_write(&t, "/dev/null", err);
    wp_trace_fini(&t);
    if (rc < 0)
        return rc;
    rc = wp_trace_make(&t, &spec, err);
    wp_trace_fini(&t);
    return rc;
}

static void any_allocation_may_fail(void)
{
    long live = wp_mem_live(), nth = 0;
    struct wp_err err = WP_ERR_INIT;
    char path[64];

    file_of(path, two, strlen(two), false, 0);
    for (;; nth++) {
        int rc;

        wp_mem_fail_after(nth);
        rc = everything(path, &err);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
        if (!wp_mem_failed()) {
            EXPECT_INT("works in the end", 0, rc);
            break;
        }
        EXPECT_INT("reported", WP_ENOMEM, rc);
        if (nth > 2000)
            break;
    }
    wp_mem_fail_after(-1);
    EXPECT_TRUE("some were tried", nth > 20);
    unlink(path);
}

#define TEST(f, name) {name, f}
const struct wp_suite suite_trace = {
    "trace",
    (const struct wp_test[]){
        /* clang-format off */
        TEST(plain_and_gzip_read_the_same, "plain and gzip read the same"),
        TEST(a_wrong_line_is_named_with_what_was_wanted, "a wrong line is named, with what was wanted"),
        TEST(files_that_cannot_be_read_are_named, "files that cannot be read are named"),
        TEST(a_line_has_an_end, "a line has an end"),
        TEST(jitter_spreads_and_keeps_the_order_of_time, "jitter spreads and keeps the order of time"),
        TEST(equal_ids_give_equal_tokens, "equal ids give equal tokens"),
        TEST(what_is_written_reads_back, "what is written reads back"),
        TEST(made_traces_are_like_the_public_ones, "made traces are like the public ones"),
        TEST(equal_ids_of_a_made_trace_mean_equal_prefixes, "equal ids of a made trace mean equal prefixes"),
        TEST(the_seed_decides, "the seed decides"),
        TEST(wrong_specs_are_refused, "wrong specs are refused"),
        TEST(statistics_are_those_of_the_requests, "statistics are those of the requests"),
        TEST(the_command_makes_a_file_and_refuses_nonsense, "the command makes a file and refuses nonsense"),
        TEST(any_allocation_may_fail, "any allocation may fail"),
        /* clang-format on */
        {NULL, NULL},
    },
};
