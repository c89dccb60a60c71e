/* SPDX-License-Identifier: Apache-2.0 */
/* Names against name servers of the test's own, over UDP. */
#include "net/names.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tests/lib/dnsserver.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>

enum { LOOKUPS = 8 };

struct seen {
    struct wp_lookup *lookup;
    unsigned answers;
    int rc;
    size_t n;
    char first[64]; /* "127.0.0.7 80" */
    bool again;     /* asks the same from inside */
};

static struct rig {
    struct wp_loop l;
    struct dns_server dns[2];
    struct seen seen[LOOKUPS];
    bool inside;
    long live;
} rig;

#define TURN_UNTIL(cond) \
    while (!(cond))      \
    uv_run(&rig.l.uv, UV_RUN_ONCE)

static void ask(int i, const char *name);

static void on_names(void *arg, int rc, const struct sockaddr_storage addr[], size_t n)
{
    struct seen *s = arg;
    char text[48] = "";

    EXPECT_TRUE("later than the call", !rig.inside);
    s->answers++;
    s->lookup = NULL;
    s->rc = rc;
    s->n = n;
    if (n && addr[0].ss_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)&addr[0];

        inet_ntop(AF_INET, &a->sin_addr, text, sizeof text);
        snprintf(s->first, sizeof s->first, "%s %u", text, (unsigned)ntohs(a->sin_port));
    } else if (n) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&addr[0];

        inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof text);
        snprintf(s->first, sizeof s->first, "%s %u", text, (unsigned)ntohs(a->sin6_port));
    }
    if (s->again) {
        s->again = false;
        ask((int)(s - rig.seen), "engine.test.");
    }
}

static void ask(int i, const char *name)
{
    rig.inside = true;
    rig.seen[i].answers = 0;
    rig.seen[i].lookup = wp_names_lookup(&rig.l, wp_str_of(name), 80, on_names, &rig.seen[i]);
    rig.inside = false;
    EXPECT_TRUE("asked", rig.seen[i].lookup != NULL);
}

static void look_up(int i, const char *name)
{
    ask(i, name);
    TURN_UNTIL(rig.seen[i].answers);
}

static void expect(const char *label, int i, int rc, const char *first)
{
    EXPECT_UINT(label, 1, rig.seen[i].answers);
    EXPECT_INT(label, rc, rig.seen[i].rc);
    EXPECT_INT(label, rc == 0, rig.seen[i].n > 0);
    if (rc == 0)
        EXPECT_TEXT(label, first, wp_str_of(rig.seen[i].first));
}

/*
 * Two name servers: 127.0.0.7 is the first one's answer to everything, 127.0.0.8 the second's.
 * Where there are two, little patience; with one, so much that a busy machine does not make it ask
 * twice.
 */
static void set_up(unsigned servers)
{
    const struct wp_names_times times = {.ttl_min_us = 1,
                                         .retry_us = 1,
                                         .patience_us = 20000,
                                         .timeout_us = servers == 2 ? 30000 : 800000};
    struct wp_err err = WP_ERR_INIT;
    char csv[80];

    memset(&rig, 0, sizeof rig);
    rig.live = wp_mem_live();
    EXPECT_INT("loop", 0, wp_loop_init(&rig.l, &err));
    for (int i = 0; i < 2; i++)
        EXPECT_INT("dns", 0, dns_server_start(&rig.dns[i], &rig.l.uv, (uint8_t)(7 + i), 60));
    EXPECT_INT("tune", 0, wp_names_tune(&rig.l, &times));
    snprintf(csv, sizeof csv, servers == 2 ? "%s,%s" : "%s", rig.dns[0].address,
             rig.dns[1].address);
    EXPECT_INT("servers", 0, wp_names_servers(&rig.l, csv));
}

static void tear_down(void)
{
    dns_server_stop(&rig.dns[0]);
    dns_server_stop(&rig.dns[1]);
    wp_loop_stop(&rig.l);
    EXPECT_INT("run", 0, wp_loop_run(&rig.l));
    wp_loop_fini(&rig.l);
    EXPECT_INT("nothing leaks", rig.live, wp_mem_live());
}

/* An answer is too old once its time is over: here at once. */
static void nothing_stays_fresh(void)
{
    EXPECT_INT("tune", 0, wp_names_tune(&rig.l, &(struct wp_names_times){.ttl_max_us = 1}));
}

static void addresses_and_localhost_are_not_asked_for(void)
{
    static const struct {
        const char *name, *first;
        int rc;
        size_t n;
    } cases[] = {
        {"10.1.2.3", "10.1.2.3 80", 0, 1},
        {"::1", "::1 80", 0, 1},
        {"2001:DB8::7", "2001:db8::7 80", 0, 1},
        {"localhost", "127.0.0.1 80", 0, 2},
        {"LocalHost.", "127.0.0.1 80", 0, 2},
        {"a.localhost", "127.0.0.1 80", 0, 2},
        {"", NULL, WP_ENONAME, 0},
        {"a b", NULL, WP_ENONAME, 0},
        {"a\nb", NULL, WP_ENONAME, 0},
        {"a..b", NULL, WP_ENONAME, 0},
    };
    char large[400];

    set_up(1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        look_up(0, cases[i].name);
        expect(cases[i].name, 0, cases[i].rc, cases[i].first);
        EXPECT_UINT(cases[i].name, cases[i].n, rig.seen[0].n);
    }
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = 0;
    look_up(0, large);
    expect("large", 0, WP_ENONAME, NULL);
    EXPECT_UINT("nobody was asked", 0, rig.dns[0].asked);
    tear_down();
}

static void an_answer_is_kept_and_concurrent_questions_are_one(void)
{
    set_up(1);
    rig.dns[0].mood = DNS_HELD;
    ask(0, "engine.test.");
    ask(1, "ENGINE.test.");
    ask(2, "engine.test.");
    TURN_UNTIL(rig.dns[0].asked);
    EXPECT_UINT("held", 0, rig.seen[0].answers + rig.seen[1].answers);
    wp_lookup_cancel(rig.seen[2].lookup);
    rig.seen[0].again = true;
    dns_server_release(&rig.dns[0]);
    TURN_UNTIL(rig.seen[0].answers && rig.seen[1].answers && !rig.seen[0].again);
    TURN_UNTIL(rig.seen[0].answers);
    expect("first", 0, 0, "127.0.0.7 80");
    expect("second", 1, 0, "127.0.0.7 80");
    EXPECT_UINT("the cancelled one hears nothing", 0, rig.seen[2].answers);
    look_up(3, "engine.test.");
    expect("fourth", 3, 0, "127.0.0.7 80");
    EXPECT_UINT("one question", 1, rig.dns[0].asked);
    look_up(4, "other.test.");
    EXPECT_UINT("another name, another question", 2, rig.dns[0].asked);
    tear_down();
}

static void an_address_of_version_6_alone_is_an_address(void)
{
    set_up(1);
    rig.dns[0].mood = DNS_V6_ONLY;
    look_up(0, "engine.test.");
    expect("v6", 0, 0, "::7 80");
    tear_down();
}

static void a_name_without_address_is_told_why(void)
{
    static const struct {
        const char *label;
        enum dns_mood mood;
        int rc;
        unsigned asked;
    } cases[] = {
        {"no such name", DNS_NXDOMAIN, WP_ENONAME, 1},
        {"no records", DNS_EMPTY, WP_ENONAME, 1},
        {"broken", DNS_SERVFAIL, WP_ENONAME, 3},
        {"silent", DNS_SILENT, WP_ETIMEDOUT, 3},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_up(1);
        EXPECT_INT("tune", 0,
                   wp_names_tune(&rig.l, &(struct wp_names_times){.retry_us = 60000000}));
        rig.dns[0].mood = cases[i].mood;
        look_up(0, "engine.test.");
        expect(cases[i].label, 0, cases[i].rc, NULL);
        EXPECT_UINT(cases[i].label, cases[i].asked, rig.dns[0].asked);
        look_up(1, "engine.test.");
        expect("remembered for a moment", 1, cases[i].rc, NULL);
        EXPECT_UINT(cases[i].label, cases[i].asked, rig.dns[0].asked);
        tear_down();
    }
}

static void the_second_server_stands_in_for_a_bad_first_and_is_then_asked_first(void)
{
    static const enum dns_mood moods[] = {DNS_SILENT, DNS_SERVFAIL, DNS_EMPTY};

    for (size_t i = 0; i < sizeof moods / sizeof moods[0]; i++) {
        set_up(2);
        rig.dns[0].mood = moods[i];
        look_up(0, "engine.test.");
        expect("B182", 0, 0, "127.0.0.8 80");
        EXPECT_UINT("once", 1, rig.dns[0].asked);
        look_up(1, "other.test.");
        expect("B182 later", 1, 0, "127.0.0.8 80");
        EXPECT_UINT("not again", 1, rig.dns[0].asked);
        rig.dns[1].mood = DNS_SILENT;
        rig.dns[0].mood = DNS_RIGHT;
        look_up(2, "third.test.");
        expect("and back", 2, 0, "127.0.0.7 80");
        tear_down();
    }
}

static void an_absolute_name_is_asked_for_as_it_is(void)
{
    set_up(1);
    rig.dns[0].mood = DNS_NXDOMAIN;
    look_up(0, "engine.llm.svc.cluster.local.");
    EXPECT_UINT("once", 1, rig.dns[0].asked);
    EXPECT_TEXT("as it is", "engine.llm.svc.cluster.local", wp_str_of(rig.dns[0].name));
    tear_down();
}

static void an_answer_past_its_time_is_asked_for_again(void)
{
    set_up(1);
    nothing_stays_fresh();
    look_up(0, "engine.test.");
    rig.dns[0].last = 9;
    look_up(1, "engine.test.");
    expect("B164", 1, 0, "127.0.0.9 80");
    EXPECT_UINT("twice", 2, rig.dns[0].asked);
    tear_down();
}

static void a_failed_connection_makes_an_answer_stale(void)
{
    set_up(1);
    look_up(0, "engine.test.");
    rig.dns[0].last = 9;
    look_up(1, "engine.test.");
    expect("kept for its TTL", 1, 0, "127.0.0.7 80");
    wp_names_stale(&rig.l, WP_STR("Engine.test."));
    wp_names_stale(&rig.l, WP_STR("unknown.test."));
    wp_names_stale(&rig.l, WP_STR("no name"));
    look_up(2, "engine.test.");
    expect("B164", 2, 0, "127.0.0.9 80");
    tear_down();
}

static void an_old_answer_outlives_its_server_and_single_denials(void)
{
    static const enum dns_mood moods[] = {DNS_NXDOMAIN, DNS_EMPTY, DNS_SERVFAIL, DNS_SILENT};

    set_up(1);
    nothing_stays_fresh();
    look_up(0, "engine.test.");
    for (size_t i = 0; i < sizeof moods / sizeof moods[0]; i++) {
        rig.dns[0].mood = moods[i];
        look_up(1, "engine.test.");
        expect("B184", 1, 0, "127.0.0.7 80");
        rig.dns[0].mood = DNS_RIGHT;
        look_up(1, "engine.test.");
        expect("right again", 1, 0, "127.0.0.7 80");
    }
    tear_down();
}

static void repeated_denial_ends_an_old_answer_after_its_grace(void)
{
    set_up(1);
    nothing_stays_fresh();
    look_up(0, "engine.test.");
    rig.dns[0].mood = DNS_NXDOMAIN;
    for (int i = 0; i < 5; i++) {
        look_up(1, "engine.test.");
        expect("B184: within the grace", 1, 0, "127.0.0.7 80");
    }
    EXPECT_INT("tune", 0, wp_names_tune(&rig.l, &(struct wp_names_times){.grace_us = 1}));
    look_up(1, "engine.test.");
    expect("gone", 1, WP_ENONAME, NULL);
    rig.dns[0].mood = DNS_RIGHT;
    look_up(1, "engine.test.");
    expect("back", 1, 0, "127.0.0.7 80");
    rig.dns[0].mood = DNS_NXDOMAIN;
    for (int i = 0; i < 2; i++) {
        look_up(1, "engine.test.");
        expect("two denials are not enough", 1, 0, "127.0.0.7 80");
    }
    look_up(1, "engine.test.");
    expect("three are", 1, WP_ENONAME, NULL);
    tear_down();
}

static void a_slow_answer_holds_nobody_up_who_has_an_old_one(void)
{
    set_up(1);
    EXPECT_INT("tune", 0, wp_names_tune(&rig.l, &(struct wp_names_times){.timeout_us = 60000000}));
    EXPECT_INT("servers", 0, wp_names_servers(&rig.l, rig.dns[0].address));
    look_up(0, "engine.test.");
    wp_names_stale(&rig.l, WP_STR("engine.test."));
    rig.dns[0].mood = DNS_HELD;
    look_up(1, "engine.test."); /* patience runs out */
    expect("the old one", 1, 0, "127.0.0.7 80");
    EXPECT_INT("tune", 0, wp_names_tune(&rig.l, &(struct wp_names_times){.patience_us = 60000000}));
    look_up(2, "engine.test."); /* and those who come now do not wait at all */
    expect("the old one at once", 2, 0, "127.0.0.7 80");
    EXPECT_UINT("one question", 2, rig.dns[0].asked);
    rig.dns[0].last = 9;
    dns_server_release(&rig.dns[0]);
    do
        look_up(3, "engine.test.");
    while (strcmp(rig.seen[3].first, "127.0.0.9 80") != 0);
    EXPECT_UINT("still one", 2, rig.dns[0].asked);
    tear_down();
}

static void changing_the_servers_asks_them_anew(void)
{
    set_up(1);
    rig.dns[0].mood = DNS_SILENT;
    ask(0, "engine.test.");
    TURN_UNTIL(rig.dns[0].asked);
    EXPECT_INT("nonsense", WP_EINVAL, wp_names_servers(&rig.l, "nonsense"));
    EXPECT_INT("servers", 0, wp_names_servers(&rig.l, rig.dns[1].address));
    TURN_UNTIL(rig.seen[0].answers);
    expect("the new one's", 0, 0, "127.0.0.8 80");
    tear_down();
}

static void few_names_are_kept(void)
{
    char name[32];

    set_up(1);
    for (int i = 0; i < WP_NAMES_MAX + 10; i++) {
        snprintf(name, sizeof name, "engine%d.test.", i);
        look_up(0, name);
    }
    EXPECT_UINT("asked", WP_NAMES_MAX + 10, rig.dns[0].asked);
    look_up(0, name);
    EXPECT_UINT("the last is known", WP_NAMES_MAX + 10, rig.dns[0].asked);
    look_up(0, "engine0.test.");
    EXPECT_UINT("the first is not", WP_NAMES_MAX + 11, rig.dns[0].asked);
    EXPECT_TRUE("memory is bounded", wp_mem_live() - rig.live < 3 * WP_NAMES_MAX);
    tear_down();
}

static void the_end_answers_what_is_pending_and_cancelling_works_at_every_stage(void)
{
    for (int turns = 0; turns < 5; turns++) {
        set_up(2);
        rig.dns[0].mood = DNS_SILENT;
        ask(0, "engine.test.");
        ask(1, "10.0.0.1");
        ask(2, "engine.test.");
        for (int i = 0; i < turns; i++)
            uv_run(&rig.l.uv, UV_RUN_NOWAIT);
        if (rig.seen[2].lookup)
            wp_lookup_cancel(rig.seen[2].lookup);
        tear_down();
        EXPECT_UINT("answered", 1, rig.seen[0].answers);
        EXPECT_INT("cancelled", WP_ECANCELED, rig.seen[0].rc);
        EXPECT_UINT("answered", 1, rig.seen[1].answers);
        EXPECT_UINT("silent", 0, rig.seen[2].answers);
    }
    set_up(1);
    rig.dns[0].mood = DNS_HELD;
    ask(0, "engine.test.");
    rig.seen[0].again = true; /* asks again when it is told of the end: that is told, too */
    TURN_UNTIL(rig.dns[0].n_held);
    tear_down();
    EXPECT_UINT("answered", 1, rig.seen[0].answers);
}

static void running_out_of_memory_is_told(void)
{
    bool hit = true;

    for (long nth = 0; hit; nth++) {
        set_up(1);
        wp_names_destroy(rig.l.names);
        wp_mem_fail_after(nth);
        if (wp_names_servers(&rig.l, rig.dns[0].address) == 0) {
            wp_names_tune(&rig.l, &(struct wp_names_times){.timeout_us = 20000});
            rig.seen[0].lookup =
                wp_names_lookup(&rig.l, WP_STR("engine.test."), 80, on_names, &rig.seen[0]);
            if (rig.seen[0].lookup)
                TURN_UNTIL(rig.seen[0].answers);
        }
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        if (!hit)
            expect("enough", 0, 0, "127.0.0.7 80");
        look_up(1, "10.0.0.1");
        expect("the next one", 1, 0, "10.0.0.1 80");
        tear_down();
    }
}

const struct wp_suite suite_names = {
    "names",
    (const struct wp_test[]){
        {"addresses and localhost are not asked for", addresses_and_localhost_are_not_asked_for},
        {"an answer is kept, and concurrent questions are one",
         an_answer_is_kept_and_concurrent_questions_are_one},
        {"an address of version 6 alone is an address",
         an_address_of_version_6_alone_is_an_address},
        {"a name without address is told why", a_name_without_address_is_told_why},
        {"the second server stands in for a bad first, and is then asked first",
         the_second_server_stands_in_for_a_bad_first_and_is_then_asked_first},
        {"an absolute name is asked for as it is", an_absolute_name_is_asked_for_as_it_is},
        {"an answer past its time is asked for again", an_answer_past_its_time_is_asked_for_again},
        {"a failed connection makes an answer stale", a_failed_connection_makes_an_answer_stale},
        {"an old answer outlives its server and single denials",
         an_old_answer_outlives_its_server_and_single_denials},
        {"repeated denial ends an old answer after its grace",
         repeated_denial_ends_an_old_answer_after_its_grace},
        {"a slow answer holds nobody up who has an old one",
         a_slow_answer_holds_nobody_up_who_has_an_old_one},
        {"changing the servers asks them anew", changing_the_servers_asks_them_anew},
        {"few names are kept", few_names_are_kept},
        {"the end answers what is pending, and cancelling works at every stage",
         the_end_answers_what_is_pending_and_cancelling_works_at_every_stage},
        {"running out of memory is told", running_out_of_memory_is_told},
        {NULL, NULL},
    },
};
