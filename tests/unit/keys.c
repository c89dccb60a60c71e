/* SPDX-License-Identifier: Apache-2.0 */
#include "router/keys.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#define SECOND 1000000ull
#define T0     (100 * SECOND)

static struct wp_keys *keys_of(char *const lines[])
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_keys *k = NULL;

    EXPECT_INT("keys", 0, wp_keys_create(&k, lines, NULL, &err));
    return k;
}

static const struct wp_key *ask(const struct wp_keys *k, const char *name, const char *value)
{
    struct wp_head h = {.field = {{wp_str_of(name), wp_str_of(value)}}, .n_fields = 1};

    return wp_keys_find(k, &h);
}

static void a_key_is_known_by_itself_or_by_its_hash(void)
{
    char *lines[] = {"sk-one", "sha256:3FC9B689459D738F8C88A3A48AA9E33542016B7A4052E001AAA536FCA74813CB name=b", NULL}; /* something */
    struct wp_keys *k = keys_of(lines);

    EXPECT_UINT("two", 2, wp_keys_count(k));
    EXPECT_TRUE("bearer", ask(k, "authorization", "Bearer sk-one") != NULL);
    EXPECT_TRUE("any case", ask(k, "Authorization", "bEARER  sk-one ") != NULL);
    EXPECT_TRUE("x-api-key", ask(k, "x-api-key", "sk-one") != NULL);
    EXPECT_TEXT("by hash", "b", wp_str_of(wp_key_name(ask(k, "x-api-key", "something"))));
    EXPECT_TEXT("without a name", "key 1", wp_str_of(wp_key_name(ask(k, "x-api-key", "sk-one"))));
    EXPECT_TRUE("a part", ask(k, "x-api-key", "sk-on") == NULL);
    EXPECT_TRUE("more", ask(k, "x-api-key", "sk-one1") == NULL);
    EXPECT_TRUE("none", ask(k, "x", "sk-one") == NULL);
    EXPECT_TRUE("empty", ask(k, "authorization", "Bearer ") == NULL);
    EXPECT_TRUE("the hash is no key", ask(k, "x-api-key", lines[1]) == NULL);
    wp_keys_destroy(k);
}

static void models_are_named_whole(void)
{
    char *lines[] = {"a models=x,y/z", "b", NULL};
    struct wp_keys *k = keys_of(lines);
    const struct wp_key *a = ask(k, "x-api-key", "a"), *b = ask(k, "x-api-key", "b");

    EXPECT_TRUE("x", wp_key_may(a, WP_STR("x")));
    EXPECT_TRUE("y/z", wp_key_may(a, WP_STR("y/z")));
    EXPECT_TRUE("y", !wp_key_may(a, WP_STR("y")));
    EXPECT_TRUE("nothing", !wp_key_may(a, WP_STR("")));
    EXPECT_TRUE("all", wp_key_may(b, WP_STR("y")));
    EXPECT_TRUE("no key", wp_key_may(NULL, WP_STR("y")));
    wp_keys_destroy(k);
}

static void limits_refuse_and_say_when(void)
{
    char *lines[] = {"a requests=60 at_once=100", "b tokens=6000", "c at_once=2", NULL};
    struct wp_keys *k = keys_of(lines);
    const struct wp_key *a = ask(k, "x-api-key", "a"), *b = ask(k, "x-api-key", "b"), *c = ask(k, "x-api-key", "c");
    struct wp_key_turn turn = {0}, two = {0}, three = {0};
    uint64_t limit = 0, retry = 0;

    for (int i = 0; i < 60; i++) {
        EXPECT_INT("a minute's at once", WP_KEY_OK, wp_key_begin(a, &turn, T0, &limit, &retry));
        wp_key_end(&turn);
        wp_key_end(&turn); /* often is as good as once */
    }
    EXPECT_INT("one more", WP_KEY_REQUESTS, wp_key_begin(a, &turn, T0, &limit, &retry));
    EXPECT_UINT("limit", 60, limit);
    EXPECT_TRUE("a second", retry > 990000 && retry <= SECOND + 1);
    EXPECT_INT("too early", WP_KEY_REQUESTS, wp_key_begin(a, &turn, T0 + retry - 1000, &limit, &retry));
    EXPECT_INT("then", WP_KEY_OK, wp_key_begin(a, &turn, T0 + SECOND + 1, &limit, &retry));
    wp_key_end(&turn);
    EXPECT_INT("a clock that goes back gives nothing", WP_KEY_REQUESTS, wp_key_begin(a, &turn, T0, &limit, &retry));

    EXPECT_INT("tokens", WP_KEY_OK, wp_key_begin(b, &turn, T0, &limit, &retry));
    wp_key_spend(&turn, T0, 9000);
    EXPECT_INT("spent, and more", WP_KEY_TOKENS, wp_key_begin(b, &two, T0, &limit, &retry));
    EXPECT_TRUE("half a minute", retry > 30 * SECOND && retry < 30 * SECOND + SECOND / 10);
    wp_key_end(&turn);
    EXPECT_INT("the end gives nothing back", WP_KEY_TOKENS, wp_key_begin(b, &two, T0, &limit, &retry));
    EXPECT_INT("then", WP_KEY_OK, wp_key_begin(b, &two, T0 + retry, &limit, &retry));
    wp_key_spend(&two, T0, UINT64_MAX);
    EXPECT_INT("absurd", WP_KEY_TOKENS, wp_key_begin(b, &three, T0, &limit, &retry));
    EXPECT_TRUE("bounded", retry <= 3600 * SECOND);
    wp_key_end(&two);

    EXPECT_INT("1", WP_KEY_OK, wp_key_begin(c, &turn, T0, &limit, &retry));
    EXPECT_INT("2", WP_KEY_OK, wp_key_begin(c, &two, T0, &limit, &retry));
    EXPECT_INT("3", WP_KEY_AT_ONCE, wp_key_begin(c, &three, T0, &limit, &retry));
    wp_key_end(&turn);
    EXPECT_INT("one has gone", WP_KEY_OK, wp_key_begin(c, &three, T0, &limit, &retry));
    wp_key_end(&two);
    wp_key_end(&three);
    wp_keys_destroy(k);
}

static void use_outlives_a_reload(void)
{
    char *before[] = {"x", "a requests=2 at_once=2", NULL}, *after[] = {"a requests=2 at_once=1", NULL}, *gone[] = {"b", NULL};
    long live = wp_mem_live();
    struct wp_keys *k = keys_of(before), *fresh = NULL;
    struct wp_err err = WP_ERR_INIT;
    struct wp_key_turn one = {0}, two = {0};
    uint64_t limit, retry;

    EXPECT_INT("1", WP_KEY_OK, wp_key_begin(ask(k, "x-api-key", "a"), &one, T0, &limit, &retry));
    EXPECT_INT("reload", 0, wp_keys_create(&fresh, after, k, &err));
    wp_keys_destroy(k);
    EXPECT_INT("still under way", WP_KEY_AT_ONCE, wp_key_begin(ask(fresh, "x-api-key", "a"), &two, T0, &limit, &retry));
    wp_key_end(&one);
    EXPECT_INT("2", WP_KEY_OK, wp_key_begin(ask(fresh, "x-api-key", "a"), &one, T0, &limit, &retry));
    wp_key_end(&one);
    EXPECT_INT("3", WP_KEY_REQUESTS, wp_key_begin(ask(fresh, "x-api-key", "a"), &one, T0, &limit, &retry));
    EXPECT_INT("later", WP_KEY_OK, wp_key_begin(ask(fresh, "x-api-key", "a"), &one, T0 + 60 * SECOND, &limit, &retry));
    k = fresh;
    EXPECT_INT("reload", 0, wp_keys_create(&fresh, gone, k, &err));
    wp_keys_destroy(k);
    EXPECT_TRUE("gone", ask(fresh, "x-api-key", "a") == NULL);
    wp_keys_destroy(fresh);
    wp_key_spend(&one, T0, 5); /* a request that outlives its key */
    wp_key_end(&one);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void bad_lines_are_named_and_keys_are_not(void)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"sha256:12", "key 2: want sha256: and 64 hex digits"},
        {"secret requests=0", "key 2: requests: want a whole number above 0, got \"0\""},
        {"secret tokens=x", "key 2: tokens: want a whole number above 0, got \"x\""},
        {"secret at_once=-1", "key 2: at_once: want a whole number above 0, got \"-1\""},
        {"secret words", "key 2: want name=, models=, requests=, tokens=, at_once=, tenant=, any_tenant= or priority= behind it, got something else"},
        {"secret models=", "key 2: want name=, models=, requests=, tokens=, at_once=, tenant=, any_tenant= or priority= behind it, got something else"},
        {"secret name=", "key 2: name: want 1 to 64 printable characters"},
        {"first", "key 2: the same as key 1"},
        {"sha256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e", "key 2: the same as key 1"},
    };
    long live = wp_mem_live();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *lines[] = {"first", (char *)cases[i].line, NULL};
        struct wp_err err = WP_ERR_INIT;
        struct wp_keys *k = NULL;

        EXPECT_INT(cases[i].line, WP_EINVAL, wp_keys_create(&k, lines, NULL, &err));
        EXPECT_TEXT(cases[i].line, cases[i].want, wp_str_of(err.text));
    }
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static void no_allocation_that_fails_leaks(void)
{
    char *lines[] = {"a models=x requests=1", "b", NULL};
    long live = wp_mem_live();
    bool hit = true;

    for (long nth = 0; hit; nth++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_keys *k = NULL;
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_keys_create(&k, lines, NULL, &err);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("told", hit ? WP_ENOMEM : 0, rc);
        wp_keys_destroy(k);
        EXPECT_INT("nothing leaks", live, wp_mem_live());
    }
}

const struct wp_suite suite_keys = {
    "keys",
    (const struct wp_test[]){
        {"a key is known by itself or by its hash", a_key_is_known_by_itself_or_by_its_hash},
        {"models are named whole", models_are_named_whole},
        {"limits refuse, and say when", limits_refuse_and_say_when},
        {"use outlives a reload", use_outlives_a_reload},
        {"bad lines are named, and keys are not", bad_lines_are_named_and_keys_are_not},
        {"no allocation that fails leaks", no_allocation_that_fails_leaks},
        {NULL, NULL},
    },
};
