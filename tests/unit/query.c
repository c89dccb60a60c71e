/* SPDX-License-Identifier: Apache-2.0 */
/* What /query and /query_by_hash answer, in either dialect, over an index that is told what to
 * hold. */
#include "router/query.h"

#include "index/identity.h"
#include "tests/lib/test.h"

#include <jansson.h>

enum { BLOCKS = 8 };

static struct wp_config *conf;
static struct wp_metrics *metrics;
static struct wp_fleet *fleet;
static uint32_t token[BLOCKS * 16];
static long live;

static void add(const char *id, uint32_t block_size, uint32_t ranks)
{
    struct wp_config_worker c;
    struct wp_err err = WP_ERR_INIT;
    char json[200];

    snprintf(json, sizeof json,
             "{\"url\":\"http://"
             "127.0.0.1:1\",\"id\":\"%s\",\"models\":[\"m\"],\"block_size\":%u,\"ranks\":%u}",
             id, block_size, ranks);
    EXPECT_INT("entry", 0, wp_config_worker_json(&c, wp_str_of(json), &err));
    EXPECT_INT("worker", 0, wp_fleet_add(fleet, &c, conf, &err));
    wp_config_worker_fini(&c);
}

/* The rank holds `blocks` of the prompt in the tier, behind `before` that it holds already. */
static void holds(const char *id, uint32_t rank, uint8_t tier, size_t before, size_t blocks,
                  const char *lora, const char *salt)
{
    struct wp_worker *w = wp_fleet_find(fleet, wp_str_of(id));
    uint64_t local[2 * BLOCKS], chain[2 * BLOCKS];
    struct wp_err err = WP_ERR_INIT;
    struct wp_kv_event ev = {
        .kind = WP_KV_STORED, .holder = w->rank[rank].holder, .main_group = true, .tier = tier};

    wp_index_space(wp_fleet_index(fleet), WP_STR("m"), w->block_size, WP_STR(""), WP_SPACE_TOKENS,
                   &ev.space, &err);
    wp_hash_tokens(token, BLOCKS * 16, w->block_size,
                   wp_hash_seed(wp_str_of(lora), wp_str_of(salt)), local, 2 * BLOCKS);
    wp_hash_chain(local, BLOCKS, chain);
    ev.has_parent = before > 0;
    ev.parent = before ? chain[before - 1] : 0;
    ev.n = blocks;
    ev.engine = chain + before;
    ev.local = local + before;
    wp_index_apply(wp_fleet_index(fleet), &ev, NULL);
    wp_worker_unref(w);
}

static void set_up(void)
{
    struct wp_buf errors = {0};
    struct wp_err err = WP_ERR_INIT;

    live = wp_mem_live();
    for (uint32_t i = 0; i < BLOCKS * 16; i++)
        token[i] = 1000 + i;
    EXPECT_INT("configuration", 0, wp_config_read(&conf, NULL, NULL, 0, NULL, 0, &errors));
    EXPECT_INT("metrics", 0, wp_metrics_create(&metrics, &err));
    EXPECT_INT("fleet", 0, wp_fleet_create(&fleet, conf, metrics, &err));
    add("a", 16, 2);
    add("b", 8, 1);
    holds("a", 0, WP_TIER_GPU, 0, 2, NULL, NULL);
    holds("a", 0, WP_TIER_CPU, 2, 1, NULL, NULL);
    holds("a", 0, WP_TIER_GPU, 3, 1, NULL, NULL);
    holds("a", 0, WP_TIER_DISK, 4, 1, NULL, NULL);
    holds("a", 1, WP_TIER_GPU, 0, 3, NULL, NULL);
    holds("b", 0, WP_TIER_GPU, 0, 3, NULL, NULL);
    holds("b", 0, WP_TIER_GPU, 0, 5, "l", "s");
}

static void tear_down(void)
{
    wp_fleet_destroy(fleet);
    wp_metrics_destroy(metrics);
    wp_config_destroy(conf);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

/* The answer with its keys in order; "STATUS code param" of a refusal. */
static void ask(const char *body, bool by_hash, char out[1200])
{
    struct wp_arena arena = {0};
    struct wp_refusal no = {0};
    struct wp_buf b = {0};
    int rc = wp_query(fleet, wp_str_of(body), by_hash, &arena, &b, &no);
    json_t *j = rc == 0 ? json_loadb(b.p, b.n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    if (rc == WP_EINVAL)
        snprintf(out, 1200, "%d %s %s", no.status, no.code, no.param ? no.param : "-");
    else
        snprintf(out, 1200, "%s", text ? text : "no JSON");
    free(text);
    json_decref(j);
    wp_buf_fini(&b);
    wp_arena_fini(&arena);
}

/* more: members, each with a comma behind; n tokens of the prompt, or hashes of its blocks of 16.
 */
static void ask_tokens(const char *more, size_t n, char out[1200])
{
    struct wp_buf b = {0};

    wp_buf_printf(&b, "{%s\"token_ids\":[", more);
    for (size_t i = 0; i < n; i++)
        wp_buf_printf(&b, "%s%u", i ? "," : "", token[i]);
    wp_buf_adds(&b, "]}");
    wp_buf_add(&b, "", 1);
    ask(b.p, false, out);
    wp_buf_fini(&b);
}

static void ask_hashes(const char *more, const char *name, const uint64_t hash[], size_t n,
                       bool is_signed, char out[1200])
{
    struct wp_buf b = {0};

    wp_buf_printf(&b, "{%s\"%s\":[", more, name);
    for (size_t i = 0; i < n; i++)
        wp_buf_printf(&b, is_signed ? "%s%lld" : "%s%llu", i ? "," : "",
                      (unsigned long long)hash[i]);
    wp_buf_adds(&b, "]}");
    wp_buf_add(&b, "", 1);
    ask(b.p, true, out);
    wp_buf_fini(&b);
}

#define A_INSTANCE                                                                                \
    "\"a\":{\"cpu\":64,\"disk\":80,\"dp\":{\"0\":32,\"1\":48},\"gpu\":48,\"longest_matched\":80," \
    "\"rank_matches\":"                                                                           \
    "{\"0\":{\"cpu\":64,\"disk\":80,\"gpu\":32},\"1\":{\"cpu\":48,\"disk\":48,\"gpu\":48}}}"
#define B_INSTANCE(n)                                                     \
    "\"b\":{\"cpu\":" n ",\"disk\":" n ",\"dp\":{\"0\":" n "},\"gpu\":" n \
    ",\"longest_matched\":" n ",\"rank_matches\":"                        \
    "{\"0\":{\"cpu\":" n ",\"disk\":" n ",\"gpu\":" n "}}}"
#define A_TENANT                                                                                  \
    "\"a\":{\"CPU\":16,\"DISK\":16,\"DP\":{\"0\":80,\"1\":48},\"GPU\":48,\"REMOTE\":0,\"longest_" \
    "matched\":80}"
#define DYNAMO                                                       \
    "{\"frequencies\":[],\"instances\":{" A_INSTANCE "," B_INSTANCE( \
        "24") "},\"scores\":{\"a\":{\"0\":32,\"1\":48},"             \
              "\"b\":{\"0\":24}},\"tree_sizes\":{\"a\":{\"0\":3,\"1\":3},\"b\":{\"0\":8}}}"

static void dynamos_form_has_scores_and_instances(void)
{
    char got[1200];

    set_up();
    ask_tokens("\"model_name\":\"m\",\"tenant_id\":\"t\",\"routing_group\":\"g\",", BLOCKS * 16,
               got);
    EXPECT_TEXT("all of it", DYNAMO, wp_str_of(got));
    ask_tokens("", BLOCKS * 16, got);
    EXPECT_TEXT("the only model", DYNAMO, wp_str_of(got));
    ask_tokens("\"model_name\":\"m\",", 79, got);
    EXPECT_TRUE("incomplete blocks do not count", strstr(got, "\"longest_matched\":64") != NULL);
    ask_tokens("\"model_name\":\"m\",", 80, got);
    EXPECT_TRUE("the last token's block does", strstr(got, "\"longest_matched\":80") != NULL);
    ask_tokens("\"model_name\":\"m\",\"lora_name\":\"l\",\"cache_salt\":\"s\",", BLOCKS * 16, got);
    EXPECT_TRUE("another identity",
                strstr(got, B_INSTANCE("40")) != NULL && strstr(got, "\"0\":{\"cpu\":0") != NULL);
    ask_tokens("\"model_name\":\"m\",", 3, got);
    EXPECT_TRUE("less than a block", strstr(got, B_INSTANCE("0")) != NULL);
    ask_tokens("\"model_name\":\"m\",", 0, got);
    EXPECT_TRUE("no tokens", strstr(got, B_INSTANCE("0")) != NULL);
    tear_down();
}

static void the_conductors_form_is_by_tenant(void)
{
    char got[1200];

    set_up();
    ask_tokens("\"model\":\"m\",\"block_size\":16,", BLOCKS * 16, got);
    EXPECT_TEXT("at one block size", "{\"default\":{" A_TENANT "},\"instances\":{" A_INSTANCE "}}",
                wp_str_of(got));
    ask_tokens("\"model\":\"m\",\"tenant_id\":\"x\\ny\",\"instance_id\":\"a\",", BLOCKS * 16, got);
    EXPECT_TEXT("of one instance", "{\"instances\":{" A_INSTANCE "},\"x\\ny\":{" A_TENANT "}}",
                wp_str_of(got));
    ask_tokens("\"model\":\"m\",\"tenant_id\":\"instances\",\"instance_id\":\"a\",", BLOCKS * 16,
               got);
    EXPECT_TEXT("a tenant's name is its own", "{\"instances\":{" A_TENANT "}}", wp_str_of(got));
    ask_tokens("\"model\":\"other\",\"block_size\":16,", BLOCKS * 16, got);
    EXPECT_TEXT("nobody has it", "{\"default\":{},\"instances\":{}}", wp_str_of(got));
    ask_tokens("\"model\":\"m\",\"block_size\":32,", BLOCKS * 16, got);
    EXPECT_TEXT("nobody has such blocks", "{\"default\":{},\"instances\":{}}", wp_str_of(got));
    tear_down();
}

static void hashes_may_be_local_ones_or_links(void)
{
    static const char *const name[] = {"block_hashes", "seq_hashes", "block_hash"};
    uint64_t local[BLOCKS], chain[BLOCKS];
    char got[1200];

    set_up();
    wp_hash_tokens(token, BLOCKS * 16, 16, wp_hash_seed((struct wp_str){0}, (struct wp_str){0}),
                   local, BLOCKS);
    wp_hash_chain(local, BLOCKS, chain);
    for (int i = 0; i < 3; i++) {
        ask_hashes("\"model_name\":\"m\",", name[i], local, BLOCKS, i > 0, got);
        EXPECT_TRUE(name[i], strstr(got, A_INSTANCE) && strstr(got, B_INSTANCE("0")) &&
                                 strstr(got, "\"scores\""));
        ask_hashes("\"model\":\"m\",\"block_size\":16,\"cache_salt\":\"s\",", name[i], chain,
                   BLOCKS, i < 2, got);
        EXPECT_TEXT(name[i], "{\"default\":{" A_TENANT "},\"instances\":{" A_INSTANCE "}}",
                    wp_str_of(got));
    }
    ask_hashes("\"model_name\":\"m\",\"cache_salt\":\"s\",", "block_hashes", local, BLOCKS, false,
               got);
    EXPECT_TEXT("salted too late", "400 invalid_value cache_salt", wp_str_of(got));
    tear_down();
}

static void what_is_wrong_is_said(void)
{
    static const struct {
        const char *body, *want;
        bool by_hash;
    } cases[] = {
        {"", "400 bad_json -", false},
        {"[]", "400 bad_json -", false},
        {"{\"model_name\":\"m\"}", "400 invalid_value token_ids", false},
        {"{\"model_name\":\"m\",\"token_ids\":[-1]}", "400 invalid_value token_ids", false},
        {"{\"model_name\":\"m\",\"token_ids\":[\"1\"]}", "400 invalid_value token_ids", false},
        {"{\"model_name\":\"x\",\"token_ids\":[1]}", "404 model_not_found model_name", false},
        {"{\"model_name\":1,\"token_ids\":[1]}", "400 invalid_value model_name", false},
        {"{\"model\":\"m\",\"block_size\":0,\"token_ids\":[1]}", "400 invalid_value block_size",
         false},
        {"{\"model\":\"m\",\"tenant_id\":7,\"token_ids\":[1]}", "400 invalid_value tenant_id",
         false},
        {"{\"model_name\":\"m\",\"token_ids\":[1]}", "400 invalid_value block_hashes", true},
        {"{\"model_name\":\"m\",\"block_hashes\":[1.5]}", "400 invalid_value block_hashes", true},
        {"{\"model_name\":\"m\",\"seq_hashes\":[18446744073709551616]}",
         "400 invalid_value seq_hashes", true},
    };
    char got[1200];

    set_up();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ask(cases[i].body, cases[i].by_hash, got);
        EXPECT_TEXT(cases[i].body, cases[i].want, wp_str_of(got));
    }
    tear_down();
}

const struct wp_suite suite_query = {
    "query",
    (const struct wp_test[]){
        {"Dynamo's form has scores and instances", dynamos_form_has_scores_and_instances},
        {"the conductor's form is by tenant", the_conductors_form_is_by_tenant},
        {"hashes may be local ones or links", hashes_may_be_local_ones_or_links},
        {"what is wrong is said", what_is_wrong_is_said},
        {NULL, NULL},
    },
};
