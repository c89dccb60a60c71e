/* SPDX-License-Identifier: Apache-2.0 */
#include "router/tenants.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <stdio.h>

static struct wp_config *conf;
static struct wp_metrics *metrics;
static struct wp_tenants *tenants;
static long live;

static void set_up(const char *const set[], size_t n)
{
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;

    live = wp_mem_live();
    EXPECT_INT("configuration", 0, wp_config_read(&conf, NULL, set, n, NULL, 0, &errors));
    EXPECT_TEXT("configuration", "", wp_buf_str(&errors));
    wp_buf_fini(&errors);
    EXPECT_INT("metrics", 0, wp_metrics_create(&metrics, &err));
    EXPECT_INT("tenants", 0, wp_tenants_create(&tenants, metrics, &err));
    wp_tenants_configure(tenants, conf);
}

static void tear_down(void)
{
    wp_tenants_destroy(tenants);
    wp_metrics_destroy(metrics);
    wp_config_destroy(conf);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static struct wp_tenant *enter(const char *name, const struct wp_key *key)
{
    struct wp_head h = {.field = {{WP_STR("x-warmpath-tenant"), wp_str_of(name)}}, .n_fields = 1};

    return wp_tenant_enter(tenants, &h, key);
}

static void names_with_a_weight_have_it_and_a_label(void)
{
    static const char *const set[] = {"tenants.weights={team-a: 4, default: 0.5}"};
    struct wp_tenant *a, *b, *none;

    set_up(set, 1);
    a = enter("team-a", NULL);
    b = enter("team-b", NULL);
    none = enter("", NULL);
    EXPECT_NEAR("its weight", 4, a->weight, 0);
    EXPECT_NEAR("none is 1", 1, b->weight, 0);
    EXPECT_NEAR("nobody's", 0.5, none->weight, 0);
    EXPECT_UINT("the first row", 0, none->row);
    EXPECT_TRUE("rows of their own", a->row && b->row && a->row != b->row);
    EXPECT_TRUE("labels", a->count.held != b->count.held && none->count.held != b->count.held);
    EXPECT_TRUE("the same again", enter("team-a", NULL) == a);
    EXPECT_TRUE("that name is the first row's", enter("default", NULL) == none);
    wp_tenant_leave(tenants, a);
    wp_tenant_leave(tenants, a);
    EXPECT_TRUE("its row waits for it", enter("team-a", NULL) == a);
    tear_down();
}

/* All at once, and one after the other. */
static void a_million_names_take_no_more_than_some_rows_and_labels(void)
{
    struct wp_buf page = {0};
    struct wp_tenant *mine;
    long after;
    size_t series = 0;

    set_up((const char *const[]){"tenants.weights.mine=2"}, 1);
    mine = enter("mine", NULL);
    after = wp_mem_live();
    for (int i = 0; i < 1000000; i++) {
        char name[32];
        struct wp_tenant *t;

        snprintf(name, sizeof name, "t%d", i);
        t = enter(name, NULL);
        EXPECT_TRUE("a row", t && t->row <= WP_TENANTS && t != mine);
        if (i % 2)
            wp_tenant_leave(tenants, t);
    }
    EXPECT_TRUE("blocks of memory", wp_mem_live() - after < 8);
    EXPECT_TRUE("a name with a weight keeps its own", enter("mine", NULL) == mine);
    EXPECT_INT("page", 0, wp_metrics_render(metrics, &page));
    for (struct wp_str rest = wp_buf_str(&page), line; wp_str_split(&rest, '\n', &line);)
        series += wp_str_starts(line, "warmpath_tenant_held{");
    EXPECT_UINT("default, other and mine", 3, series);
    wp_buf_fini(&page);
    tear_down();
}

static void rows_of_those_who_have_ended_are_given_on(void)
{
    struct wp_tenant *first, *second, *third;

    set_up((const char *const[]){"tenants.most=2"}, 1);
    first = enter("a", NULL);
    second = enter("b", NULL);
    third = enter("c", NULL);
    EXPECT_TRUE("shared", third->row > WP_TENANTS_NAMED);
    EXPECT_TEXT("its label", "other", wp_str_of(third->name));
    wp_tenant_leave(tenants, third);
    wp_tenant_leave(tenants, second);
    wp_tenant_leave(tenants, first);
    third = enter("c", NULL);
    EXPECT_TRUE("a row of its own", third->row <= WP_TENANTS_NAMED && third != first);
    EXPECT_TEXT("its name", "c", wp_str_of(third->name));
    EXPECT_TRUE("of the longest idle one's room: the other is still there", enter("a", NULL) == first);
    EXPECT_TRUE("and that one is not", enter("b", NULL)->row > WP_TENANTS_NAMED);
    tear_down();

    set_up((const char *const[]){"tenants.most=0"}, 1);
    EXPECT_TRUE("all are one", enter("a", NULL) == enter("b", NULL));
    tear_down();
}

static void a_key_says_whose_its_requests_are(void)
{
    char *lines[] = {"a tenant=team", "b tenant=team any_tenant=yes priority=-5", "c", NULL};
    struct wp_err err = WP_ERR_INIT;
    struct wp_keys *keys = NULL;
    const struct wp_key *key[3];
    static const struct {
        const char *said;
        int want[4]; /* without a key, then by key; 1000: refused */
    } cases[] = {{"", {0, 0, 0, 0}}, {"7", {7, 7, 7, 7}},  {"-3", {-3, 0, -3, 0}}, {"-100", {-100, 0, -5, 0}}, {"101", {1000, 1000, 1000, 1000}},
                 {"-", {1000, 1000, 1000, 1000}}, {"high", {1000, 1000, 1000, 1000}}, {"1.5", {1000, 1000, 1000, 1000}}};

    set_up(NULL, 0);
    EXPECT_INT("keys", 0, wp_keys_create(&keys, lines, NULL, &err));
    for (int i = 0; i < 3; i++) {
        struct wp_head h = {.field = {{WP_STR("x-api-key"), wp_str_of(lines[i]).p ? (struct wp_str){lines[i], 1} : WP_STR("")}}, .n_fields = 1};

        key[i] = wp_keys_find(keys, &h);
        EXPECT_TRUE("key", key[i] != NULL);
    }
    EXPECT_TEXT("the key's", "team", wp_str_of(enter("other-one", key[0])->name));
    EXPECT_TEXT("whatever it says", "team", wp_str_of(enter("a\"b", key[0])->name));
    EXPECT_TEXT("the header's, where that may be", "other-one", wp_str_of(enter("other-one", key[1])->name));
    EXPECT_TEXT("else the key's", "team", wp_str_of(enter("", key[1])->name));
    EXPECT_TEXT("a key without", "other-one", wp_str_of(enter("other-one", key[2])->name));
    EXPECT_TRUE("no name", !enter("a\"b", NULL) && !enter("a b", NULL));
    EXPECT_TRUE("too long", !enter("0123456789012345678901234567890123456789012345678901234567890123456789", NULL));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < 4; k++) {
            struct wp_head h = {.field = {{WP_STR("x-warmpath-priority"), wp_str_of(cases[i].said)}}, .n_fields = 1};
            int got = 1000;

            if (!wp_priority_of(&h, k ? key[k - 1] : NULL, &got))
                got = 1000;
            EXPECT_INT(cases[i].said, cases[i].want[k], got);
        }
    wp_keys_destroy(keys);
    tear_down();
}

static void wrong_words_behind_a_key_are_named(void)
{
    static const struct {
        const char *line, *want;
    } cases[] = {{"a tenant=", "tenant: want 1 to 64"}, {"a any_tenant=maybe", "any_tenant: want yes or no"}, {"a priority=high", "priority: want a whole number"},
                 {"a priority=-101", "priority: want a whole number"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[64], *lines[] = {line, NULL};
        struct wp_err err = WP_ERR_INIT;
        struct wp_keys *keys = NULL;

        snprintf(line, sizeof line, "%s", cases[i].line);
        EXPECT_INT(line, WP_EINVAL, wp_keys_create(&keys, lines, NULL, &err));
        EXPECT_TRUE(err.text, strstr(err.text, cases[i].want) != NULL);
    }
}

static void wrong_settings_are_named(void)
{
    static const struct {
        const char *set, *want;
    } cases[] = {
        {"tenants.weights.a=0", "tenants.weights.a: want a number from 0.001 to 1000000, got \"0\""},
        {"tenants.weights.a=much", "tenants.weights.a: want a number from 0.001 to 1000000, got \"much\""},
        {"tenants.weights={\"a b\": 1}", "want a name of 1 to 64 printable characters"},
        {"tenants.header=a b", "tenants.header: want the name of a header, got \"a b\""},
        {"tenants.most=2000", "tenants.most: want a whole number from 0 to 1024"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_buf errors = {0};
        struct wp_config *c = NULL;

        EXPECT_INT(cases[i].set, WP_EINVAL, wp_config_read(&c, NULL, &cases[i].set, 1, NULL, 0, &errors));
        wp_buf_add(&errors, "", 1);
        EXPECT_TRUE(cases[i].want, strstr(errors.p, cases[i].want) != NULL);
        if (!strstr(errors.p, cases[i].want))
            printf("    got: %s\n", errors.p);
        wp_buf_fini(&errors);
    }
}

static const struct wp_test tests[] = {
    {"names with a weight have it, and a label", names_with_a_weight_have_it_and_a_label},
    {"a million names take no more than some rows and labels", a_million_names_take_no_more_than_some_rows_and_labels},
    {"rows of those who have ended are given on", rows_of_those_who_have_ended_are_given_on},
    {"a key says whose its requests are", a_key_says_whose_its_requests_are},
    {"wrong words behind a key are named", wrong_words_behind_a_key_are_named},
    {"wrong settings are named", wrong_settings_are_named},
    {NULL, NULL},
};
const struct wp_suite suite_tenants = {"tenants", tests};
