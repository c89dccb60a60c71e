/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/decide.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct talk {
    struct wp_decide d;
    struct wp_buf out;
    struct wp_err err;
    int rc;
};

static void start(struct talk *t, const char *policy)
{
    *t = (struct talk){0};
    wp_decide_init(&t->d, &t->out);
    t->d.conf.policy = policy;
}

static void end(struct talk *t)
{
    wp_decide_fini(&t->d);
    wp_buf_fini(&t->out);
}

/* All lines of a text; what was answered is in t->out. */
static void say(struct talk *t, const char *text)
{
    struct wp_str rest = wp_str_of(text), line;

    while (t->rc == 0 && rest.n && wp_str_split(&rest, '\n', &line))
        t->rc = wp_decide_line(&t->d, line, &t->err);
}

static void the_protocol_in_short(void)
{
    struct talk t;

    start(&t, "round_robin");
    say(&t, "I workers=3 block_tokens=512 block_bytes=167772160 a=5e-05 b=8.3e-10 tw=0.0075 "
            "tov=0.002 e=5e-05 d=2e-08 budget=2048 hbm=2400 "
            "dram=6000 store=0 nic=2.5e+10 storebw=2e+10 lat=0.002 pcie=1e+11 stale=0.05 "
            "something=new\n"
            "R 0.100000 0 1000 2 5 6\n"
            "R 0.200000 1 1000 2 5 6\n"
            "B 0.300000 0 H + 5\n"
            "F 0.3 0 0\n"
            "S 0 0.25 1000 0 1 0 0 4\n"
            "R 0.4 2 1000 2 5 6\n"
            "T 0.5\n"
            "E 0.6 0 0\n"
            "Q\n");
    EXPECT_INT("all lines", 0, t.rc);
    EXPECT_TEXT("answers", "P 0 0\nP 1 1\nP 2 2\n.\n", wp_buf_str(&t.out));
    EXPECT_TRUE("over", t.d.over);
    EXPECT_NEAR("seconds are microseconds", 50, t.d.conf.profile.a_us, 1e-9);
    EXPECT_NEAR("blocks are tokens", 327680, (double)t.d.conf.profile.kv_bytes_per_token, 0);
    end(&t);
}

static const struct {
    const char *label, *lines, *says;
} wrong[] = {
    {"no introduction", "R 0 1 5 1 1", "line 1: field 1, kind: want an I line first"},
    {"two of them", "I workers=2\nI workers=2", "line 2: field 1, kind: want one I line only"},
    {"an unknown line", "I workers=2\nX 1",
     "line 2: field 1, kind: want I B S F E R T or Q, got \"X 1\""},
    {"an empty line", "I workers=2\n\nQ", "line 2: field 1, kind"},
    {"no key", "I workers=2 hbm", "line 1: field 3, setting: want key=value, got \"hbm\""},
    {"no number", "I workers=2 nic=fast", "line 1: field 3, nic: want a number from 0 on"},
    {"nobody", "I workers=0", "line 1: workers: want a number from 1"},
    {"a negative price", "I workers=2 a=-1", "field 3, a: want a number from 0 on"},
    {"no such worker", "I workers=2\nB 0 2 H + 1", "line 2: field 3, worker"},
    {"no such tier", "I workers=2\nB 0 1 G + 1",
     "line 2: field 4, tier: want H or D, got \"G + 1\""},
    {"a worker's store", "I workers=2\nB 0 -1 H + 1",
     "line 2: field 4, tier: want S for worker -1"},
    {"no sign", "I workers=2\nB 0 1 H * 1", "line 2: field 5, sign: want + or -"},
    {"no id", "I workers=2\nB 0 1 H +", "line 2: field 6, id: want a whole number"},
    {"a time of letters", "I workers=2\nT now",
     "line 2: field 2, t: want a time in seconds, got \"now\""},
    {"a negative time", "I workers=2\nT -1", "line 2: field 2, t: want a time in seconds"},
    {"blocks missing", "I workers=2\nR 0 1 1000 2 5", "line 2: field 7, id: want a whole number"},
    {"blocks too many", "I workers=2\nR 0 1 1000 1 5 6",
     "line 2: field 7, end: want nothing more, got \"6\""},
    {"no tokens", "I workers=2\nR 0 1 0 0", "line 2: a request of 0 tokens"},
    {"a count without end", "I workers=2\nR 0 1 9 99999999999 1", "line 2: field 5, nblocks"},
    {"the same request twice", "I workers=2\nR 0 1 9 0\nR 0 1 9 0",
     "line 3: request 1 is under way already"},
    {"a state cut short", "I workers=2\nS 0 1 2 3", "line 2: field 6, in_flight"},
};

static void what_is_wrong_is_named_with_its_line_and_field(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct talk t;

        start(&t, NULL);
        say(&t, wrong[i].lines);
        EXPECT_TRUE(wrong[i].label, t.rc < 0);
        if (!strstr(t.err.text, wrong[i].says))
            EXPECT_TEXT(wrong[i].label, wrong[i].says, wp_str_of(t.err.text));
        end(&t);
    }
}

/* One answer to each request, of that request, with workers and fetches that there are. */
static void good_place(const char *line, unsigned workers, unsigned long long req, unsigned blocks)
{
    char *at;
    unsigned long long worker;

    EXPECT_UINT("of that request", req, strtoull(line + 2, &at, 10));
    if (line[0] == 'H')
        return;
    worker = strtoull(at, &at, 10);
    EXPECT_TRUE("a worker", worker < workers);
    while (*at == ' ') {
        unsigned long long source = strtoull(at, &at, 10), from = strtoull(at, &at, 10),
                           to = strtoull(at, &at, 10);

        EXPECT_TRUE("a source", source <= workers && source != worker);
        EXPECT_TRUE("blocks", from < to && to <= blocks);
    }
    EXPECT_TRUE("ends", *at == '\n');
}

/* What the laboratory's simulator said to `price`: 3 workers, small caches, a store, late reports.
 */
static void a_recorded_dialogue(void)
{
    for (size_t p = 0; wp_policies[p]; p++) {
        struct talk t;
        size_t n, asked = 0;
        char *text = wp_test_data("decide/short.txt", &n);
        struct wp_str rest = {text, n}, line;

        if (!text)
            return;
        start(&t, wp_policies[p]->name);
        while (t.rc == 0 && rest.n && wp_str_split(&rest, '\n', &line)) {
            t.out.n = 0;
            t.rc = wp_decide_line(&t.d, line, &t.err);
            if (t.rc == 0 && line.n && line.p[0] == 'R') {
                char *at;
                unsigned long long req;

                (void)strtod(line.p + 2, &at);
                req = strtoull(at, &at, 10);
                (void)strtoull(at, &at, 10);
                (void)wp_buf_add(&t.out, "", 1);
                good_place(t.out.p, 3, req, (unsigned)strtoul(at, &at, 10));
                asked++;
            }
        }
        EXPECT_TEXT("no complaint", "", wp_str_of(t.err.text));
        EXPECT_TRUE("requests", asked > 100);
        EXPECT_TRUE("to its end", t.d.over);
        end(&t);
        wp_free(text);
    }
}

static const struct wp_test tests[] = {
    {"the protocol in short", the_protocol_in_short},
    {"what is wrong is named with its line and field",
     what_is_wrong_is_named_with_its_line_and_field},
    {"a recorded dialogue", a_recorded_dialogue},
    {NULL, NULL},
};
const struct wp_suite suite_decide = {"decide", tests};
