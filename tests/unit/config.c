/* SPDX-License-Identifier: Apache-2.0 */
#include "router/config.h"
#include "base/mem.h"
#include "router/config_check.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <unistd.h>

enum { N = 8 };

/* Settings only, no file: how many of set[N] and worker[N] there are ends with NULL. */
static int read_set(struct wp_config **c, const char *const set[N], const char *const worker[N],
                    struct wp_buf *errors)
{
    size_t n_set = 0, n_worker = 0;

    while (set && n_set < N && set[n_set])
        n_set++;
    while (worker && n_worker < N && worker[n_worker])
        n_worker++;
    return wp_config_read(c, NULL, set, n_set, worker, n_worker, errors);
}

static void nothing_at_all_is_a_configuration(void)
{
    struct wp_buf errors = {0};
    struct wp_policy_conf policy;
    struct wp_config *c;

    EXPECT_INT("read", 0, read_set(&c, NULL, NULL, &errors));
    EXPECT_UINT("no errors", 0, errors.n);
    EXPECT_UINT("no workers", 0, c->n_workers);
    EXPECT_TEXT("api", "127.0.0.1:30000", wp_str_of(c->listen.api));
    EXPECT_UINT("seconds are microseconds", 5000000, c->slo.ttft_us);
    EXPECT_UINT("milliseconds too", 150000, c->slo.itl_us);
    EXPECT_UINT("bytes", 64 << 20, c->limits.body_bytes);
    EXPECT_INT("level", WP_INFO, c->log.level);
    EXPECT_INT("reveal", WP_REVEAL_AUTO, c->listen.reveal);
    EXPECT_TEXT("policy", wp_policies[0]->name, wp_str_of(c->policy.name));

    wp_policy_conf_init(&policy); /* the rows and the policies agree on defaults */
    EXPECT_NEAR("room_us", policy.room_us, c->policy.conf.room_us, 0);
    EXPECT_NEAR("room_cap_blocks", policy.room_cap_blocks, c->policy.conf.room_cap_blocks, 0);
    EXPECT_NEAR("room_wait_share", policy.room_wait_share, c->policy.conf.room_wait_share, 0);
    EXPECT_NEAR("near_us", policy.near_us, c->policy.conf.near_us, 0);
    EXPECT_NEAR("near_share", policy.near_share, c->policy.conf.near_share, 0);
    EXPECT_NEAR("doubt", policy.doubt, c->policy.conf.doubt, 0);
    EXPECT_NEAR("bound", policy.bound, c->policy.conf.bound, 0);
    EXPECT_UINT("prefix_blocks", policy.prefix_blocks, c->policy.conf.prefix_blocks);
    EXPECT_UINT("seed", policy.seed, c->policy.conf.seed);
    wp_config_destroy(c);
    wp_buf_fini(&errors);
}

static const struct {
    const char *label, *set[N], *worker[N], *want; /* want NULL: accepted */
} cases[] = {
    {"api beyond loopback",
     {"listen.api=0.0.0.0:1"},
     {NULL},
     "--set listen.api: 0.0.0.0:1 may be reached from other hosts: want listen.api_keys_file, "
     "listen.tls.client_ca, or "
     "listen.insecure: true\n"},
    {"all addresses",
     {"listen.api=:1"},
     {NULL},
     "--set listen.api: :1 may be reached from other hosts: want listen.api_keys_file, "
     "listen.tls.client_ca, or "
     "listen.insecure: true\n"},
    {"a name may be anywhere",
     {"listen.api=router.example:1"},
     {NULL},
     "--set listen.api: router.example:1 may be reached from other hosts: want "
     "listen.api_keys_file, listen.tls.client_ca, or listen.insecure: true\n"},
    {"admin beyond loopback",
     {"listen.admin=[::]:1", "listen.api_keys_file=tests/data/conf/secrets"},
     {NULL},
     "--set listen.admin: [::]:1 may be reached from other hosts: want listen.admin_key_file, or "
     "listen.insecure: true\n"},
    {"with keys",
     {"listen.api=0.0.0.0:1", "listen.admin=0.0.0.0:2",
      "listen.api_keys_file=tests/data/conf/secrets",
      "listen.admin_key_file=tests/data/conf/secret"},
     {NULL},
     NULL},
    {"insecure",
     {"listen.api=0.0.0.0:1", "listen.admin=0.0.0.0:2", "listen.insecure=true"},
     {NULL},
     NULL},
    {"loopback has many names", {"listen.api=127.8.9.1:0", "listen.admin=[::1]:0"}, {NULL}, NULL},
    {"localhost", {"listen.api=localhost:1"}, {NULL}, NULL},
    {"no address",
     {"listen.api=30000"},
     {NULL},
     "--set listen.api: want host:port, [v6]:port or :port, got \"30000\"\n"},
    {"empty address", {"listen.api="}, {NULL}, "--set listen.api: want host:port, got nothing\n"},
    {"the same port twice",
     {"listen.api=127.0.0.1:7", "listen.admin=127.0.0.1:7"},
     {NULL},
     "--set listen.admin: want another port than listen.api, got 7\n"},
    {"keys that cannot be read",
     {"listen.api=0.0.0.0:1", "listen.api_keys_file=/nowhere"},
     {NULL},
     "--set listen.api_keys_file: want a file to read, got \"/nowhere\": not found\n"},
    {"an empty key",
     {"listen.admin_key_file=tests/data/conf/empty"},
     {NULL},
     "--set listen.admin_key_file: want a file to read, got \"tests/data/conf/empty\": the file is "
     "empty\n"},
    {"policy",
     {"policy.name=prise"},
     {NULL},
     "--set policy.name: unknown policy \"prise\"; did you mean \"price\"? known: price, "
     "round_robin, "
     "random, least_loaded, least_work, power_of_two, prefix_hash, session, dynamo, sglang, llmd, preble, conductor\n"},
    {"policy's bounds",
     {"policy.bound=0.9"},
     {NULL},
     "--set policy.bound: want a number from 1 to 1000000000, got 0.9\n"},
    {"engine",
     {NULL},
     {"http://a,engine=vlm"},
     "--worker http://a: workers.0.engine: unknown engine \"vlm\"; did you mean \"vllm\"? known: "
     "auto, "
     "vllm, openai\n"},
    {"engine of a later version",
     {NULL},
     {"http://a,engine=sglang"},
     "--worker http://a: workers.0.engine: engine \"sglang\" is not in this version\n"},
    {"worker's URL",
     {NULL},
     {"10.0.0.1:8000"},
     "--worker 10.0.0.1:8000: workers.0.url: want http://host:port, got \"10.0.0.1:8000\": want "
     "http://host:port or https://host:port\n"},
    {"worker's authorities",
     {NULL},
     {"https://a,ca=/nowhere/ca.pem"},
     "--worker https://a: workers.0.ca: authorities /nowhere/ca.pem: not found\n"},
    {"a certificate without its key",
     {"listen.tls.cert=a.pem"},
     {NULL},
     "--set listen.tls.cert: listen.tls.key: want a PEM file beside listen.tls.cert, got nothing\n"},
    {"worker's role",
     {NULL},
     {"http://a,role=prefill"},
     "--worker http://a: workers.0.role: not in this version\n"},
    {"two workers, one id",
     {NULL},
     {"http://a:1", "http://b:1", "http://a:1/base"},
     "--worker http://a:1/base: workers.2.id: want an id of its own, got \"a:1\" as workers.0 "
     "has\n"},
    {"two workers, two ids", {NULL}, {"http://a:1", "http://a:1/base,id=x"}, NULL},
    {"an id that is no id",
     {NULL},
     {"http://a:1,id=a/b"},
     "--worker http://a:1: workers.0.id: want at most 128 letters, digits and ._:@[]-, got "
     "\"a/b\"\n"},
    {"model's profile", {"models.0.name=m", "models.0.profile=llama-3-8b-1xh10"}, {NULL}, ""},
    {"model's tokenizer",
     {"models.0.name=m", "models.0.tokenizer.kind=bpe"},
     {NULL},
     "--set models.0.tokenizer.kind: tokenizer \"bpe\" is not in this version\n"},
    {"two models, one name",
     {"models.0.name=m", "models.1.name=n", "models.1.aliases=[x, m]"},
     {NULL},
     "--set models.1.name: want names of its own, got \"m\" as models.0 has\n"},
    {"bodies",
     {"limits.body_bytes=2Gi"},
     {NULL},
     "--set limits.body_bytes: limits.bodies_total_bytes: want at least limits.body_bytes, "
     "2147483648, got "
     "1073741824\n"},
    {"health's path",
     {"health.path=health"},
     {NULL},
     "--set health.path: want a path that starts with /, got \"health\"\n"},
    {"threads", {"threads=0"}, {NULL}, "--set threads: want a whole number from 1 to 256, got 0\n"},
    {"of a later version",
     {"discovery.dns=x", "links=[]", "tiers=[]"},
     {NULL},
     "--set discovery.dns: discovery: not in this version\n"
     "--set links: not in this version\n--set tiers: not in this version\n"},
};

static void what_cannot_work_is_refused_with_its_reason(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_buf errors = {0};
        struct wp_config *c;
        int rc = read_set(&c, cases[i].set, cases[i].worker, &errors);

        EXPECT_INT(cases[i].label, cases[i].want ? WP_EINVAL : 0, rc);
        EXPECT_TRUE(cases[i].label, (c == NULL) == (rc < 0));
        if (!cases[i].want || *cases[i].want)
            EXPECT_TEXT(cases[i].label, cases[i].want ? cases[i].want : "", wp_buf_str(&errors));
        else
            EXPECT_TRUE(cases[i].label, errors.n > 0);
        wp_config_destroy(c);
        wp_buf_fini(&errors);
    }
}

static void a_worker_in_one_word_has_all_keys(void)
{
    static const char *const worker[N] = {
        "http://10.0.0.1:8000/"
        "base,engine=vllm,node=n1,models=a,models=b,max_model_len=9,block_size=32,"
        "kv_tokens=77,api_key_file=tests/data/conf/secret,tags.zone=eu",
        "http://[::1]",
    };
    struct wp_buf errors = {0};
    const struct wp_config_worker *w;
    struct wp_config *c;

    EXPECT_INT("read", 0, read_set(&c, NULL, worker, &errors));
    EXPECT_TEXT("errors", "", wp_buf_str(&errors));
    if (c && c->n_workers == 2) {
        w = &c->workers[0];
        EXPECT_TEXT("id", "10.0.0.1:8000", wp_str_of(w->id));
        EXPECT_TEXT("url", "http://10.0.0.1:8000/base", wp_str_of(w->url));
        EXPECT_TEXT("engine", "vllm", wp_str_of(w->engine));
        EXPECT_TEXT("node", "n1", wp_str_of(w->node));
        EXPECT_TEXT("model", "b", wp_str_of(w->models[1]));
        EXPECT_TRUE("two models", w->models[2] == NULL);
        EXPECT_UINT("max_model_len", 9, w->max_model_len);
        EXPECT_UINT("block_size", 32, w->block_size);
        EXPECT_UINT("kv_tokens", 77, w->kv_tokens);
        EXPECT_TEXT("key", "s3cret", wp_str_of(w->api_key));
        EXPECT_TEXT("tag", "zone=eu", wp_str_of(w->tags[0]));
        EXPECT_TEXT("id of an address", "[::1]:80", wp_str_of(c->workers[1].id));
    }
    wp_config_destroy(c);
    wp_buf_fini(&errors);
}

static const struct {
    const char *label, *json, *want; /* the id, or the error */
} posts[] = {
    {"url alone", "{\"url\": \"http://a:1\"}", "a:1"},
    {"id", " {\"url\": \"http://a:1\", \"id\": \"w\"}", "w"},
    {"no url", "{\"id\": \"w\"}", "worker:1: url: want text, got nothing"},
    {"YAML", "url: http://a:1", "want a JSON object, such as {\"url\": \"http://host:port\"}"},
    {"nothing", "", "want a JSON object, such as {\"url\": \"http://host:port\"}"},
    {"not JSON", "{\"url\": }", "worker:1: unexpected token near '}'"},
    {"unknown key", "{\n\"ulr\": \"http://a\"}",
     "worker:2: ulr: unknown key; did you mean \"url\"?"},
    {"a file of this machine", "{\"url\": \"http://a\", \"api_key_file\": \"/etc/passwd\"}",
     "worker:1: api_key_file: only the configuration file may name files"},
    {"the environment of this process", "{\"url\": \"http://${HOME}\"}",
     "worker:1: url: want http://host:port, got \"http://${HOME}\": want letters, digits and "
     ".:-_ in the host"},
};

static void a_worker_that_is_posted_names_no_files(void)
{
    for (size_t i = 0; i < sizeof posts / sizeof posts[0]; i++) {
        struct wp_err err = WP_ERR_INIT;
        struct wp_config_worker w, copy;
        int rc = wp_config_worker_json(&w, wp_str_of(posts[i].json), &err);

        if (rc == 0) {
            EXPECT_TEXT(posts[i].label, posts[i].want, wp_str_of(w.id));
            EXPECT_INT(posts[i].label, 0, wp_config_worker_copy(&copy, &w));
            wp_config_worker_fini(&w);
            EXPECT_TEXT(posts[i].label, posts[i].want, wp_str_of(copy.id));
            wp_config_worker_fini(&copy);
        } else {
            EXPECT_INT(posts[i].label, WP_EINVAL, rc);
            EXPECT_TEXT(posts[i].label, posts[i].want, wp_str_of(err.text));
        }
    }
}

static void secrets_stay_out_of_what_is_printed(void)
{
    static const char *const set[N] = {"listen.admin_key_file=tests/data/conf/secret",
                                       "listen.api_keys_file=tests/data/conf/secrets",
                                       "workers.0.url=http://a",
                                       "workers.0.api_key_file=tests/data/conf/secret", NULL};
    struct wp_buf text = {0};
    struct wp_config *c, *plain;

    EXPECT_INT("read", 0, read_set(&c, set, NULL, &text));
    EXPECT_INT("read", 0, read_set(&plain, NULL, NULL, &text));
    EXPECT_TEXT("the key is there", "s3cret", wp_str_of(c->listen.admin_key));
    EXPECT_INT("json", 0, wp_config_json(c, &text));
    EXPECT_INT("diff", 0, wp_config_diff(plain, c, &text));
    wp_buf_add(&text, "", 1);
    EXPECT_TRUE("no secret", !strstr(text.p, "s3cret") && !strstr(text.p, "key-one"));
    EXPECT_TRUE("set", strstr(text.p, "\"admin_key_file\":\"(set)\""));
    EXPECT_TRUE("changed", strstr(text.p, "listen.admin_key_file: changed\n"));
    EXPECT_TRUE("added", strstr(text.p, "workers.a:80: added\n"));
    wp_config_destroy(c);
    wp_config_destroy(plain);
    wp_buf_fini(&text);
}

/* --- reading it again */

static const struct {
    const char *label, *was[N], *is[N], *changed, *wrong, *api;
} reloads[] = {
    {"what may change does", {"threads=2"}, {"threads=2", "limits.head_s=1"}, "limits.head_s: 5 -> 1\n", "", "127.0.0.1:30000"},
    {"what may not is told and stays",
     {"listen.api=127.0.0.1:1"},
     {"listen.api=127.0.0.1:2", "threads=3", "index.cap_bytes=1Gi"},
     "listen.api: \"127.0.0.1:1\" -> \"127.0.0.1:2\" (needs a restart)\nindex.cap_bytes: 2147483648 -> 1073741824 (needs a restart)\n"
     "threads: 1 -> 3 (needs a restart)\n",
     "",
     "127.0.0.1:1"},
    {"a port that stays open keeps its keys",
     {"listen.api=0.0.0.0:1", "listen.api_keys_file=tests/data/conf/secret"},
     {"listen.api=127.0.0.1:1"},
     "listen.api: \"0.0.0.0:1\" -> \"127.0.0.1:1\" (needs a restart)\nlisten.api_keys_file: changed\n",
     "listen.api_keys_file: 0.0.0.0:1 is in force until a restart, and other hosts may reach it: want keys, or listen.insecure: true\n",
     "0.0.0.0:1"},
    {"so does the admin port",
     {"listen.admin=:1", "listen.admin_key_file=tests/data/conf/secret"},
     {NULL},
     "listen.admin: \":1\" -> \"127.0.0.1:29000\" (needs a restart)\nlisten.admin_key_file: changed\n",
     "listen.admin_key_file: :1 is in force until a restart, and other hosts may reach it: want keys, or listen.insecure: true\n",
     "127.0.0.1:30000"},
};

static void what_needs_a_restart_stays(void)
{
    for (size_t i = 0; i < sizeof reloads / sizeof reloads[0]; i++) {
        struct wp_buf text = {0};
        struct wp_config *was, *is;

        EXPECT_INT(reloads[i].label, 0, read_set(&was, reloads[i].was, NULL, &text));
        EXPECT_INT(reloads[i].label, 0, read_set(&is, reloads[i].is, NULL, &text));
        EXPECT_INT(reloads[i].label, 0, wp_config_diff(was, is, &text));
        EXPECT_TEXT(reloads[i].label, reloads[i].changed, wp_buf_str(&text));
        text.n = 0;
        EXPECT_INT(reloads[i].label, *reloads[i].wrong ? WP_EINVAL : 0, wp_config_keep(is, was, &text));
        EXPECT_TEXT(reloads[i].label, reloads[i].wrong, wp_buf_str(&text));
        EXPECT_TEXT(reloads[i].label, reloads[i].api, wp_str_of(is->listen.api));
        EXPECT_UINT(reloads[i].label, was->threads, is->threads);
        wp_config_destroy(was);
        wp_config_destroy(is);
        wp_buf_fini(&text);
    }
}

static int says_restart(void *arg, const char *name, const char *takes, const struct wp_conf_key *row)
{
    (void)arg;
    (void)takes;
    EXPECT_INT(name, row->restart, strstr(row->meaning, "; needs a restart") != NULL);
    return 0;
}

static void what_needs_a_restart_says_so(void)
{
    wp_config_each(says_restart, NULL);
}

/* --- the documents
 * ------------------------------------------------------------------------------------------ */

struct page {
    char *text;
    size_t keys;
};

static char *read_page(const char *path)
{
    size_t n;
    char *text = wp_test_data(path, &n); /* closed by a zero */

    return text && n ? text : NULL;
}

static int in_the_reference(void *arg, const char *name, const char *takes,
                            const struct wp_conf_key *row)
{
    struct page *page = arg;
    char line[1024], def[128];

    if (row->def && *row->def)
        snprintf(def, sizeof def, "`%s`", row->def);
    else
        snprintf(def, sizeof def, "%s",
                 row->def                      ? "empty"
                 : row->type <= WP_CONF_CHOICE ? "must be given"
                                               : "none");
    snprintf(line, sizeof line, "\n| `%s` | %s | %s | %s |\n", name, takes, def, row->meaning);
    EXPECT_TRUE(line, strstr(page->text, line));
    page->keys++;
    return 0;
}

static void the_reference_has_every_key_and_no_other(void)
{
    struct page page = {.text = read_page("../../docs/configuration.md")};
    size_t lines = 0;

    if (!page.text)
        return;
    wp_config_each(in_the_reference, &page);
    for (const char *p = page.text; (p = strstr(p, "\n| `")); p++)
        lines++;
    EXPECT_UINT("as many lines as keys", page.keys, lines);
    wp_free(page.text);
}

static int in_the_sample(void *arg, const char *name, const char *takes,
                         const struct wp_conf_key *row)
{
    struct page *page = arg;
    char key[128];

    (void)takes;
    snprintf(key, sizeof key, "%s:", row->name);
    EXPECT_TRUE(name, strstr(page->text, key));
    return 0;
}

static void the_sample_shows_every_key_at_its_default(void)
{
    struct page page = {.text = read_page("../../deploy/warmpath.yaml")};
    struct wp_buf errors = {0}, diff = {0};
    struct wp_config *sample, *plain;
    char path[512];

    if (!page.text)
        return;
    wp_config_each(in_the_sample, &page);
    snprintf(path, sizeof path, "%s/../../deploy/warmpath.yaml",
             getenv("WP_TEST_DATA") ? getenv("WP_TEST_DATA") : "tests/data");
    EXPECT_INT("sample", 0, wp_config_read(&sample, path, NULL, 0, NULL, 0, &errors));
    EXPECT_INT("defaults", 0, wp_config_read(&plain, NULL, NULL, 0, NULL, 0, &errors));
    EXPECT_TEXT("errors", "", wp_buf_str(&errors));
    if (sample && plain)
        EXPECT_INT("diff", 0, wp_config_diff(plain, sample, &diff));
    EXPECT_TEXT("the sample is the defaults", "", wp_buf_str(&diff));
    wp_config_destroy(sample);
    wp_config_destroy(plain);
    wp_buf_fini(&errors);
    wp_buf_fini(&diff);
    wp_free(page.text);
}

/* Items and keys behind a # in the lists, as text that stands there. */
static void uncomment(const char *text, struct wp_buf *out)
{
    struct wp_str rest = wp_str_of(text), line;
    bool list = false;

    while (wp_str_split(&rest, '\n', &line)) {
        bool head = wp_str_is(line, "models: []") || wp_str_is(line, "workers: []");

        list = head || (list && line.n > 0);
        if (head)
            line.n -= 3;
        else if (list && wp_str_starts(line, "# "))
            line.p += 2, line.n -= 2;
        if (!memmem(line.p, line.n, "api_key_file", 12) && !memmem(line.p, line.n, " ca: ", 5)) /* which are not there */
            wp_buf_add(out, line.p, line.n);
        wp_buf_adds(out, "\n");
    }
}

static void what_the_sample_has_behind_a_hash_is_good_too(void)
{
    char *text = read_page("../../deploy/warmpath.yaml");
    char path[] = "/tmp/warmpath-test-XXXXXX";
    int fd = mkstemp(path);
    struct wp_buf yaml = {0}, errors = {0};
    struct wp_config *c = NULL;

    if (text && fd >= 0) {
        uncomment(text, &yaml);
        EXPECT_INT("written", (long long)yaml.n, write(fd, yaml.p, yaml.n));
        EXPECT_INT("read", 0, wp_config_read(&c, path, NULL, 0, NULL, 0, &errors));
        EXPECT_TEXT("errors", "", wp_buf_str(&errors));
        EXPECT_UINT("workers", 1, c ? c->n_workers : 0);
        EXPECT_UINT("models", 1, c ? c->n_models : 0);
        unlink(path);
        close(fd);
    }
    wp_config_destroy(c);
    wp_buf_fini(&yaml);
    wp_buf_fini(&errors);
    wp_free(text);
}

static void no_allocation_that_fails_breaks_or_leaks(void)
{
    static const char *const set[N] = {"models.0.name=m", "models.0.aliases=[a]",
                                       "listen.admin_key_file=tests/data/conf/secret"};
    static const char *const worker[N] = {"http://a:1,models=x", "http://b:1"};
    long before = wp_mem_live();

    for (long nth = 0;; nth++) {
        struct wp_buf errors = {0};
        struct wp_config *c;
        bool failed;
        int rc;

        wp_mem_fail_after(nth);
        rc = read_set(&c, set, worker, &errors);
        failed = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("result", failed ? WP_ENOMEM : 0, rc);
        wp_config_destroy(c);
        wp_buf_fini(&errors);
        EXPECT_INT("nothing leaks", before, wp_mem_live());
        if (!failed)
            break;
    }
}

const struct wp_suite suite_config = {
    "config",
    (const struct wp_test[]){
        {"nothing at all is a configuration", nothing_at_all_is_a_configuration},
        {"what cannot work is refused with its reason",
         what_cannot_work_is_refused_with_its_reason},
        {"a worker in one word has all keys", a_worker_in_one_word_has_all_keys},
        {"a worker that is posted names no files", a_worker_that_is_posted_names_no_files},
        {"secrets stay out of what is printed", secrets_stay_out_of_what_is_printed},
        {"what needs a restart stays", what_needs_a_restart_stays},
        {"what needs a restart says so", what_needs_a_restart_says_so},
        {"the reference has every key and no other", the_reference_has_every_key_and_no_other},
        {"the sample shows every key at its default", the_sample_shows_every_key_at_its_default},
        {"what the sample has behind a hash is good too",
         what_the_sample_has_behind_a_hash_is_good_too},
        {"no allocation that fails breaks or leaks", no_allocation_that_fails_breaks_or_leaks},
        {NULL, NULL},
    },
};
