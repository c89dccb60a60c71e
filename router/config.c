/* SPDX-License-Identifier: Apache-2.0 */
#include "router/config.h"

#include "policies/profile.h"
#include "policies/rows.h"
#include "router/config_check.h"

#include <stdio.h>

static const char *policy_name(size_t i)
{
    return wp_policies[i] ? wp_policies[i]->name : NULL;
}

/* clang-format off */
static const char *const events_modes[] = {"connect", "bind", NULL};
static const char *const confirms[] = {"off", "passive", "inject", NULL};
static const char *const reveals[] = {"auto", "all", "id", "none", NULL};
static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const formats[] = {"text", "json", NULL};

/* A row: key, default, meaning, and what its type needs.  C(field): of struct wp_config. */
#define C(field) .at = offsetof(struct wp_config, field)
#define M(field) .at = offsetof(struct wp_config_model, field)
#define W(field) .at = offsetof(struct wp_config_worker, field)
#define ROW(key, kind, d, about, ...) {.name = key, .type = WP_CONF_##kind, .def = d, .meaning = about, __VA_ARGS__}
#define TABLE(key, sub) {.name = key, .type = WP_CONF_TABLE, .rows = sub}
#define LATER(key) {.name = key, .type = WP_CONF_LATER}
#define RESTART .restart = true
#define RANGE(low, high) .min = (low), .max = (high)

static const struct wp_conf_key pair_rows[] = {
    ROW("cert", STR, NULL, "PEM file of a certificate for other names, and what leads to its authority", .at = offsetof(struct wp_config_pair, cert), .file = true),
    ROW("key", STR, NULL, "PEM file of its key", .at = offsetof(struct wp_config_pair, key), .file = true),
    {0},
};
static const struct wp_conf_key tls_rows[] = {
    ROW("cert", STR, "", "PEM file of the certificate, and what leads to its authority; empty: no TLS", C(listen.tls.cert), .file = true),
    ROW("key", STR, "", "PEM file of its key", C(listen.tls.key), .file = true),
    ROW("client_ca", STR, "", "PEM file of the authorities whose certificates clients must show; empty: none is asked for", C(listen.tls.client_ca), .file = true),
    {.name = "more", .type = WP_CONF_LIST, .rows = pair_rows, C(listen.tls.more), .count = offsetof(struct wp_config, listen.tls.n_more), .size = sizeof(struct wp_config_pair)},
    ROW("admin", BOOL, "false", "the admin port speaks TLS too", C(listen.tls.admin)),
    {0},
};

static const struct wp_conf_key listen_rows[] = {
    ROW("api", STR, "127.0.0.1:30000", "where clients are served; beyond loopback only with api_keys_file, tls.client_ca or insecure; needs a restart", C(listen.api), RESTART, .check = wp_check_address),
    ROW("admin", STR, "127.0.0.1:29000", "where operators and Prometheus are served; beyond loopback only with admin_key_file or insecure; needs a restart", C(listen.admin), RESTART, .check = wp_check_address),
    ROW("api_keys_file", SECRETS, "", "keys that clients must send as bearer tokens, one a line", C(listen.api_keys)),
    ROW("admin_key_file", SECRET, "", "the key that every admin call needs, but for /livez and /readyz", C(listen.admin_key)),
    ROW("insecure", BOOL, "false", "lets both ports listen beyond loopback without keys", C(listen.insecure)),
    ROW("trust_client_routing", BOOL, "false", "lets clients send what steers an engine (x-data-parallel-rank, kv_transfer_params)", C(listen.trust_client_routing)),
    ROW("reveal", CHOICE, "auto", "which headers an answer gets: all, only x-request-id, none; auto is all on loopback, else id", C(listen.reveal), .choices = reveals),
    TABLE("tls", tls_rows),
    {0},
};

static const struct wp_conf_key tokenizer_rows[] = {
    ROW("kind", STR, "bytes", "how prompts become blocks: bytes is text in chunks, matched approximately; engine asks an engine for the ids", M(tokenizer.kind), .check = wp_check_tokenizer, .known = wp_known_tokenizer),
    ROW("limit_ms", MS, "20", "engine: a request waits for its ids so long at most, then it goes by bytes", M(tokenizer.limit_us), RANGE(1, 60000)),
    ROW("hedge_ms", MS, "5", "engine: a second one is asked when the first is silent for so long", M(tokenizer.hedge_us), RANGE(1, 60000)),
    ROW("per_mib_ms", MS, "250", "engine: both are longer by this for each MiB of the prompt", M(tokenizer.per_mib_us), RANGE(0, 60000)),
    ROW("cache_bytes", BYTES, "64Mi", "engine: ids that are kept for prompts that come again; 0 is none", M(tokenizer.cache_bytes), RANGE(0, 1099511627776.0)),
    LATER("path"),
    {0},
};
static const struct wp_conf_key wake_rows[] = {
    ROW("command", STRS, NULL, "program and arguments, run without a shell, that start a worker of the model when it is asked for and none is up", M(wake.command)),
    ROW("url", STR, "", "or a URL that is POSTed to for that; with neither nobody waits for a worker to come up", M(wake.url), .check = wp_check_url),
    ROW("api_key_file", SECRET, "", "the key to send to that URL as a bearer token", M(wake.api_key)),
    ROW("wait_s", SECONDS, "120", "requests are held for so long at most", M(wake.wait_us), RANGE(0.01, 86400)),
    ROW("most", U64, "256", "and so many of them; beyond, 503", M(wake.most), RANGE(1, 65536)),
    ROW("again_s", SECONDS, "30", "time until it is run or called once more while somebody still waits", M(wake.again_us), RANGE(0.01, 86400)),
    {0},
};

static const struct wp_conf_key model_rows[] = {
    ROW("name", STR, NULL, "the model's name, as requests and engines have it", M(name)),
    ROW("aliases", STRS, NULL, "other names that requests may use for it", M(aliases)),
    TABLE("tokenizer", tokenizer_rows),
    ROW("profile", STR, "", "what its engines cost, by name; empty is the first built-in one", M(profile), .check = wp_check_profile),
    ROW("speed", DOUBLE, "1", "how fast its engines are against that profile", M(speed), RANGE(0.001, 1000)),
    ROW("kv_bytes_per_token", U64, "0", "bytes of KV cache a token; 0 is the profile's", M(kv_bytes_per_token), RANGE(0, 1e9)),
    TABLE("wake", wake_rows),
    ROW("confirm", CHOICE, "passive", "what answers say of cached tokens: off ignores it, passive takes it where it is said, inject has streams say it too", M(confirm), .choices = confirms),
    {0},
};

static const struct wp_conf_key worker_rows[] = {
    ROW("id", STR, "", "its name in logs, metrics and admin calls; empty is the URL's host:port", W(id), .check = wp_check_id),
    ROW("url", STR, NULL, "where the engine serves: http://host:port or https://host:port", W(url), .check = wp_check_url),
    ROW("engine", STR, "auto", "what kind of engine: auto finds out", W(engine), .check = wp_check_engine, .known = wp_known_engine),
    ROW("node", STR, "", "the machine that it runs on", W(node)),
    ROW("models", STRS, NULL, "what it serves; empty is asked of the engine", W(models)),
    ROW("max_model_len", U32, "0", "longest prompt and answer in tokens; 0 is asked of the engine", W(max_model_len), RANGE(0, 4294967295.0)),
    ROW("block_size", U32, "0", "tokens of a prefix block; 0 is asked of the engine, else 16", W(block_size), RANGE(0, 65536)),
    ROW("ranks", U32, "0", "data-parallel ranks behind its one port, each with a cache of its own; 0 is asked of the engine with its events, else 1", W(ranks), RANGE(0, 256)),
    ROW("events", STR, "", "where its KV events come from: tcp://host:port, of rank 0; the others follow; empty is asked of the engine, none is none", W(events), .check = wp_check_events),
    ROW("events_mode", CHOICE, "connect", "connect to it, or bind and be connected to", W(events_mode), .choices = events_modes),
    ROW("events_topic", STR, "", "tells it apart from others that connect to the same bound endpoint", W(events_topic)),
    ROW("replay", STR, "", "where missed events are asked for: tcp://host:port, of rank 0", W(replay), .check = wp_check_endpoint),
    ROW("kv_tokens", U64, "0", "KV cache in tokens; 0 is asked of the engine, else the profile's", W(kv_tokens), RANGE(0, 1e15)),
    ROW("api_key_file", SECRET, "", "the key to send to it as a bearer token", W(api_key)),
    ROW("tags", PAIRS, NULL, "anything to know it by: {zone: a}", W(tags)),
    ROW("ca", STR, "", "PEM file of the authorities that an https engine must be certified by; empty: those of the system", W(ca), .check = wp_check_ca, .file = true),
    LATER("role"), LATER("hash_domain"), LATER("pair"),
    {0},
};

#define P(member) offsetof(struct wp_config, policy.conf.member)
WP_POLICY_TABLES(P);
static const struct wp_conf_key policy_rows[] = {
    ROW("name", STR, "price", "what chooses the worker", C(policy.name), .check = wp_check_policy, .known = policy_name),
    WP_POLICY_ALL_ROWS(P),
    {0},
};

static const struct wp_conf_key slo_rows[] = {
    ROW("ttft_s", SECONDS, "5", "time to the first token that is good enough", C(slo.ttft_us), RANGE(0.001, 86400)),
    ROW("ttft_factor", DOUBLE, "2", "or so many times what the prompt takes on an idle worker, if that is longer", C(slo.ttft_factor), RANGE(0, 1000)),
    ROW("itl_ms", MS, "150", "time between tokens that is good enough", C(slo.itl_us), RANGE(0.1, 86400000)),
    {0},
};

static const struct wp_conf_key limits_rows[] = {
    ROW("connections", U64, "10000", "client connections of each port at once; beyond, accepting pauses and idle ones make room; 0 is no limit", C(limits.connections), RANGE(0, 10000000)),
    ROW("in_flight", U64, "0", "requests at once; beyond, 429; 0 is no limit", C(limits.in_flight), RANGE(0, 10000000)),
    ROW("per_worker", U64, "0", "requests at once on one worker; further ones are held, see queue; 0 is no limit", C(limits.per_worker), RANGE(0, 10000000)),
    ROW("queue", U64, "4096", "requests held in the router at once while no worker is free; beyond, 429; 0 holds none", C(limits.queue), RANGE(0, 65536)),
    ROW("body_bytes", BYTES, "64Mi", "a request's body", C(limits.body_bytes), RANGE(1024, 1099511627776.0)),
    ROW("bodies_total_bytes", BYTES, "1Gi", "bodies that are held at once; beyond, 503", C(limits.bodies_total_bytes), RANGE(1024, 1099511627776.0)),
    ROW("caches_bytes", BYTES, "0", "memory of all that is only remembered: tokens, the prefix doctor, history, the index, which give way in that order; 0: each has its own bound; needs a restart", C(limits.caches_bytes), RESTART, RANGE(0, 17592186044416.0)),
    ROW("head_bytes", BYTES, "64Ki", "a request's head; an answer's may have 64Ki", C(limits.head_bytes), RANGE(1024, 1048576)),
    ROW("head_s", SECONDS, "5", "a request's head, from its first byte", C(limits.head_us), RANGE(0.001, 86400)),
    ROW("body_s", SECONDS, "60", "longest silence inside a request's body", C(limits.body_us), RANGE(0.001, 86400)),
    ROW("keepalive_s", SECONDS, "60", "idle client connections are kept for so long", C(limits.keepalive_us), RANGE(0.001, 86400)),
    ROW("send_s", SECONDS, "60", "a client that takes nothing for so long is dropped", C(limits.send_us), RANGE(0.001, 86400)),
    ROW("connect_s", SECONDS, "2", "connecting to a worker", C(limits.connect_us), RANGE(0.001, 86400)),
    ROW("first_byte_s", SECONDS, "120", "a worker's answer, until its head; more for long prompts and whole answers, six times this at most and what max_tokens should take", C(limits.first_byte_us), RANGE(0.001, 86400)),
    ROW("idle_s", SECONDS, "60", "longest silence inside a worker's answer", C(limits.idle_us), RANGE(0.001, 86400)),
    ROW("drain_s", SECONDS, "180", "requests under way have so long to end when the router stops", C(limits.drain_us), RANGE(0, 86400)),
    ROW("rest_max_s", SECONDS, "300", "longest Retry-After that is obeyed", C(limits.rest_max_us), RANGE(0, 86400)),
    {0},
};

static const struct wp_conf_key tenant_rows[] = {
    ROW("header", STR, "x-warmpath-tenant", "header that names a request's tenant; empty: none does", C(tenants.header), .check = wp_check_header),
    ROW("weights", PAIRS, NULL, "shares of tenants against each other: {team-a: 4}; others have 1", C(tenants.weights)),
    ROW("most", U32, "1024", "tenants without a weight that have a share of their own at a time; beyond, they share; 0: all of them are one tenant", C(tenants.most), RANGE(0, 1024)),
    {0},
};

static const struct wp_conf_key retry_rows[] = {
    ROW("attempts", U32, "2", "tries on other workers after the first has failed", C(retry.attempts), RANGE(0, 16)),
    ROW("budget", DOUBLE, "0.1", "share of requests that may be tried again", C(retry.budget), RANGE(0, 1)),
    {0},
};
static const struct wp_conf_key health_rows[] = {
    ROW("interval_s", SECONDS, "5", "time between two probes of a worker", C(health.interval_us), RANGE(0.01, 86400)),
    ROW("fail", U32, "3", "failed probes in a row that take a worker out", C(health.fail), RANGE(1, 1000)),
    ROW("pass", U32, "2", "good probes in a row that bring it back", C(health.pass), RANGE(1, 1000)),
    ROW("slow_start", U32, "4", "requests at once that a worker gets when it has come up, and two more for each good answer, while others can take them; 0: as many as any", C(health.slow_start), RANGE(0, 100000)),
    ROW("path", STR, "", "what to ask for; empty is the engine kind's own", C(health.path), .check = wp_check_path),
    {0},
};
static const struct wp_conf_key index_rows[] = {
    ROW("cap_bytes", BYTES, "2Gi", "memory of the prefix index, and as much again for history; beyond, the oldest ends of prefixes go; needs a restart", C(index.cap_bytes), RESTART, RANGE(1048576, 17592186044416.0)),
    ROW("snapshot", STR, "", "file that keeps the index over a restart: read at the start, written now and then and at the end; empty: none", C(index.snapshot)),
    ROW("snapshot_s", SECONDS, "300", "time between two snapshots; 0: only at the end and when asked for", C(index.snapshot_us), RANGE(0, 86400)),
    {0},
};
static const struct wp_conf_key log_rows[] = {
    ROW("level", CHOICE, "info", "what is logged: debug has a line for every request", C(log.level), .choices = levels),
    ROW("format", CHOICE, "text", "how", C(log.format), .choices = formats),
    {0},
};

static const struct wp_conf_key record_rows[] = {
    ROW("file", STR, "", "file that every decision is written to, for `warmpath replay --decisions`; empty: none; needs a restart", C(record.file), RESTART),
    ROW("max_bytes", BYTES, "1Gi", "how large it may get: then it becomes FILE.old, and a new one is begun; needs a restart", C(record.max_bytes), RESTART, RANGE(65536, 1099511627776.0)),
    {0},
};

static const struct wp_conf_key rows[] = {
    TABLE("listen", listen_rows),
    {.name = "models", .type = WP_CONF_LIST, .rows = model_rows, C(models), .count = offsetof(struct wp_config, n_models), .size = sizeof(struct wp_config_model)},
    {.name = "workers", .type = WP_CONF_LIST, .rows = worker_rows, C(workers), .count = offsetof(struct wp_config, n_workers), .size = sizeof(struct wp_config_worker)},
    TABLE("policy", policy_rows),
    TABLE("slo", slo_rows),
    TABLE("limits", limits_rows),
    TABLE("tenants", tenant_rows),
    TABLE("retry", retry_rows),
    TABLE("health", health_rows),
    TABLE("index", index_rows),
    TABLE("record", record_rows),
    TABLE("log", log_rows),
    ROW("doctor", BOOL, "true", "looks for clients that break their own prefix cache: GET /doctor", C(doctor)),
    ROW("threads", U32, "1", "loops that serve, one a thread; needs a restart", C(threads), RESTART, RANGE(1, 256)),
    LATER("discovery"), LATER("tiers"), LATER("links"), LATER("share"), LATER("transfer"),
    {0},
};
/* clang-format on */

uint64_t wp_config_index_cap(const struct wp_config *c)
{
    uint64_t half = c->limits.caches_bytes / 2;

    return half && half < c->index.cap_bytes ? half : c->index.cap_bytes;
}

static int read_into(struct wp_conf *conf, struct wp_config *c, const char *file,
                     const char *const set[], size_t n_set, const char *const worker[],
                     size_t n_worker)
{
    int rc = file ? wp_conf_read_file(conf, file) : 0;

    /* all errors of the command line are told; the settings of a file that is no YAML are not
     * guessed at */
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n_worker; i++)
        wp_conf_spec(conf, rows, "workers", "url", "--worker", worker[i]);
    for (size_t i = 0; i < n_set; i++)
        wp_conf_set(conf, rows, set[i]);
    wp_conf_bind(conf, rows, c);
    if (!conf->no_memory)
        wp_config_check(conf, c);
    return conf->no_memory ? WP_ENOMEM : conf->n_errors ? WP_EINVAL : 0;
}

int wp_config_read(struct wp_config **out, const char *file, const char *const set[], size_t n_set,
                   const char *const worker[], size_t n_worker, struct wp_buf *errors)
{
    struct wp_conf conf = {.errors = errors};
    struct wp_config *c = wp_calloc(1, sizeof *c);
    int rc;

    *out = NULL;
    if (!c)
        return WP_ENOMEM;
    rc = read_into(&conf, c, file, set, n_set, worker, n_worker);
    wp_conf_fini(&conf);
    if (rc < 0)
        wp_config_destroy(c);
    else
        *out = c;
    return rc;
}

void wp_config_destroy(struct wp_config *c)
{
    if (!c)
        return;
    wp_conf_clear(rows, c);
    wp_free(c);
}

/* The first line of the errors, without its end. */
static int first_error(struct wp_buf *errors, int rc, struct wp_err *err)
{
    struct wp_str rest = wp_buf_str(errors), line = {0};

    wp_str_split(&rest, '\n', &line);
    return rc == WP_ENOMEM ? wp_fail(err, rc, "out of memory")
                           : wp_fail(err, rc, WP_STR_FMT, WP_STR_ARG(line));
}

int wp_config_worker_json(struct wp_config_worker *w, struct wp_str json, struct wp_err *err)
{
    struct wp_buf errors = {0};
    struct wp_conf conf = {.errors = &errors, .foreign = true};
    int rc;

    *w = (struct wp_config_worker){0};
    if (!wp_str_starts(wp_str_trim(json), "{"))
        return wp_fail(err, WP_EINVAL,
                       "want a JSON object, such as {\"url\": \"http://host:port\"}");
    rc = wp_conf_read_text(&conf, "worker", json);
    if (rc == 0)
        rc = wp_conf_bind(&conf, worker_rows, w);
    if (rc == 0)
        rc = wp_config_name_worker(w);
    if (rc < 0) {
        rc = first_error(&errors, rc, err);
        wp_config_worker_fini(w);
    }
    wp_conf_fini(&conf);
    wp_buf_fini(&errors);
    return rc;
}

int wp_config_worker_copy(struct wp_config_worker *to, const struct wp_config_worker *from)
{
    *to = (struct wp_config_worker){0};
    return wp_conf_copy(worker_rows, to, from);
}

bool wp_config_worker_same(const struct wp_config_worker *a, const struct wp_config_worker *b)
{
    struct wp_buf diff = {0};
    bool same = wp_conf_diff(worker_rows, a, b, &diff) == 0 && diff.n == 0;

    wp_buf_fini(&diff);
    return same;
}

void wp_config_worker_fini(struct wp_config_worker *w)
{
    wp_conf_clear(worker_rows, w);
}

int wp_config_json(const struct wp_config *c, struct wp_buf *out)
{
    return wp_conf_json(rows, c, out);
}

int wp_config_diff(const struct wp_config *a, const struct wp_config *b, struct wp_buf *out)
{
    return wp_conf_diff(rows, a, b, out);
}

/* Who drops its keys in the file along with the address that they guarded keeps the address until a restart. */
static int guarded(const struct wp_config *c, const char *key, const char *address, bool has_keys, struct wp_buf *errors)
{
    if (c->listen.insecure || has_keys || wp_is_loopback(address))
        return 0;
    wp_buf_printf(errors, "%s: %s is in force until a restart, and other hosts may reach it: want keys, or listen.insecure: true\n", key,
                  address);
    return WP_EINVAL;
}

int wp_config_keep(struct wp_config *fresh, const struct wp_config *running, struct wp_buf *errors)
{
    int rc = wp_conf_keep(rows, fresh, running);

    if (rc < 0)
        return rc;
    rc = guarded(fresh, "listen.api_keys_file", fresh->listen.api,
                 fresh->listen.api_keys[0] || *fresh->listen.tls.client_ca, errors);
    return guarded(fresh, "listen.admin_key_file", fresh->listen.admin, *fresh->listen.admin_key, errors) < 0 ? WP_EINVAL : rc;
}

int wp_config_help(struct wp_buf *out)
{
    return wp_conf_help(rows, out);
}

int wp_config_each(int (*fn)(void *arg, const char *name, const char *takes,
                             const struct wp_conf_key *row),
                   void *arg)
{
    return wp_conf_each(rows, fn, arg);
}
