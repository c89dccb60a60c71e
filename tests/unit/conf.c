/* SPDX-License-Identifier: Apache-2.0 */
#include "base/conf.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <unistd.h>

struct part {
    char *name;
    uint32_t n;
    char **tags;
};

struct all {
    bool flag;
    uint32_t small;
    uint64_t big, bytes, seconds, ms;
    double real;
    char *text, *colour, *must;
    unsigned level;
    char **list, **pairs;
    char *secret, **secrets;
    struct part *parts;
    size_t n_parts;
};

static int check_text(const char *text, struct wp_err *err)
{
    return strcmp(text, "bad") ? 0 : wp_fail(err, WP_EINVAL, "want anything else, got \"bad\"");
}

static const char *colours(size_t i)
{
    static const char *const list[] = {"green", "purple", NULL};

    return list[i];
}

#define ROW(field, kind, ...)                                                          \
    {                                                                                  \
        .type = (kind), .at = offsetof(struct all, field), .meaning = "m", __VA_ARGS__ \
    }
#define PART(field, kind, ...)                                                          \
    {                                                                                   \
        .type = (kind), .at = offsetof(struct part, field), .meaning = "m", __VA_ARGS__ \
    }

static const char *const levels[] = {"low", "middle", "high", NULL};
static const struct wp_conf_key part_rows[] = {
    PART(name, WP_CONF_STR, .name = "name"),
    PART(n, WP_CONF_U32, .name = "n", .def = "7", .min = 1, .max = 9),
    PART(tags, WP_CONF_PAIRS, .name = "tags"),
    {0},
};
static const struct wp_conf_key inner_rows[] = {
    ROW(bytes, WP_CONF_BYTES, .name = "bytes", .def = "64Mi", .min = 1024, .max = 1 << 30),
    ROW(seconds, WP_CONF_SECONDS, .name = "seconds", .def = "1.5", .max = 60),
    ROW(ms, WP_CONF_MS, .name = "ms", .def = "0.25", .max = 1000),
    {0},
};
static const struct wp_conf_key rows[] = {
    ROW(flag, WP_CONF_BOOL, .name = "flag", .def = "false"),
    ROW(small, WP_CONF_U32, .name = "small", .def = "1", .min = 0, .max = 64),
    ROW(big, WP_CONF_U64, .name = "big", .def = "0"),
    ROW(real, WP_CONF_DOUBLE, .name = "real", .def = "0.1", .min = 0, .max = 1),
    ROW(text, WP_CONF_STR, .name = "text", .def = "t", .check = check_text),
    ROW(colour, WP_CONF_STR, .name = "colour", .def = "green", .known = colours),
    ROW(level, WP_CONF_CHOICE, .name = "level", .def = "middle", .choices = levels),
    ROW(list, WP_CONF_STRS, .name = "list"),
    ROW(pairs, WP_CONF_PAIRS, .name = "pairs"),
    ROW(secret, WP_CONF_SECRET, .name = "secret_file"),
    ROW(secrets, WP_CONF_SECRETS, .name = "secrets_file"),
    {.name = "inner", .type = WP_CONF_TABLE, .rows = inner_rows},
    ROW(parts, WP_CONF_LIST, .name = "parts", .rows = part_rows, .size = sizeof(struct part),
        .count = offsetof(struct all, n_parts)),
    {.name = "tls", .type = WP_CONF_LATER},
    {0},
};

#define DEFAULTS                                                                                \
    "\"flag\":false,\"small\":1,\"big\":0,\"real\":0.1,\"text\":\"t\",\"colour\":\"green\","    \
    "\"level\":\"middle\",\"list\":[],\"pairs\":{},\"secret_file\":null,\"secrets_file\":null," \
    "\"inner\":{\"bytes\":67108864,\"seconds\":1.5,\"ms\":0.25},\"parts\":[]"

/* Reads text and up to three --set; what comes out is the JSON of the struct, or the errors. */
static int read_all(struct all *a, const char *name, struct wp_str text, const char *const set[3],
                    struct wp_buf *out)
{
    struct wp_conf c = {.errors = out};
    int rc;

    memset(a, 0, sizeof *a);
    if (wp_conf_read_text(&c, name, text) == 0)
        for (size_t i = 0; set && i < 3 && set[i]; i++)
            wp_conf_set(&c, rows, set[i]);
    rc = c.n_errors || c.no_memory ? WP_EINVAL : wp_conf_bind(&c, rows, a);
    if (c.no_memory)
        rc = WP_ENOMEM;
    wp_conf_fini(&c);
    return rc;
}

static void expect(const char *label, struct wp_str text, const char *const set[3],
                   const char *want)
{
    struct wp_buf out = {0};
    struct all a;
    int rc = read_all(&a, "f", text, set, &out);

    if (rc == 0) {
        EXPECT_UINT(label, 0, out.n);
        EXPECT_INT(label, 0, wp_conf_json(rows, &a, &out));
    }
    EXPECT_TEXT(label, want, wp_buf_str(&out));
    EXPECT_INT(label, want[0] == '{' ? 0 : WP_EINVAL, rc);
    wp_conf_clear(rows, &a);
    wp_buf_fini(&out);
}

static const struct {
    const char *label, *text, *want;
} good[] = {
    {"nothing", "", "{" DEFAULTS "}"},
    {"a comment", "# only\n", "{" DEFAULTS "}"},
    {"an empty document", "---\n...\n", "{" DEFAULTS "}"},
    {"empty values leave the default", "small:\nreal: ~\ntext: null\ninner:\nparts:\ntls:\n",
     "{" DEFAULTS "}"},
    {"an empty JSON object behind a mark and blanks", "\xEF\xBB\xBF \n {}", "{" DEFAULTS "}"},
    {"a byte order mark before YAML", "\xEF\xBB\xBFsmall: 1\n", "{" DEFAULTS "}"},
    {"every type",
     "flag: true\nsmall: 64\nbig: 18446744073709551615\nreal: 1e-3\ntext: \"a\\tb\"\n"
     "colour: purple\nlevel: high\nlist: [a, 'b c', 3]\npairs: {zone: eu, rack: \"7\"}\n"
     "secret_file: secret\nsecrets_file: secrets\n"
     "inner:\n  bytes: 2Ki\n  seconds: 0.000001\n  ms: 12\n"
     "parts:\n- name: x\n  tags: {k: v}\n- {n: 9, name: \"y\"}\n",
     "{\"flag\":true,\"small\":64,\"big\":18446744073709551615,\"real\":0.001,"
     "\"text\":\"a\\u0009b\",\"colour\":\"purple\",\"level\":\"high\",\"list\":[\"a\",\"b "
     "c\",\"3\"],"
     "\"pairs\":{\"zone\":\"eu\",\"rack\":\"7\"},\"secret_file\":\"(set)\",\"secrets_file\":\"(set)"
     "\","
     "\"inner\":{\"bytes\":2048,\"seconds\":0.000001,\"ms\":12},"
     "\"parts\":[{\"name\":\"x\",\"n\":7,\"tags\":{\"k\":\"v\"}},{\"name\":\"y\",\"n\":9,\"tags\":{"
     "}}]}"},
    {"the same as JSON",
     "{\"flag\":true,\"small\":64,\"big\":18446744073709551615,\"real\":0.001,"
     "\"text\":\"\\u00e4 "
     "\\ud83d\\ude00\",\n\t\"list\":[\"a\"],\"inner\":{\"bytes\":\"2Ki\",\"ms\":1e2}}",
     "{\"flag\":true,\"small\":64,\"big\":18446744073709551615,\"real\":0.001,"
     "\"text\":\"\xC3\xA4 \xF0\x9F\x98\x80\",\"colour\":\"green\","
     "\"level\":\"middle\",\"list\":[\"a\"],\"pairs\":{},\"secret_file\":null,\"secrets_file\":"
     "null,"
     "\"inner\":{\"bytes\":2048,\"seconds\":1.5,\"ms\":100},\"parts\":[]}"},
    {"the environment, in quotes",
     "text: \"<${WP_TEST_ONE}|$${WP_TEST_ONE}|$5|$$|${WP_TEST_EMPTY}>\"\nsmall: '${WP_TEST_ONE}'\n",
     "{\"flag\":false,\"small\":1,\"big\":0,\"real\":0.1,\"text\":\"<1|${WP_TEST_ONE}|$5|$$|>\","
     "\"colour\":\"green\",\"level\":\"middle\",\"list\":[],\"pairs\":{},\"secret_file\":null,"
     "\"secrets_file\":null,\"inner\":{\"bytes\":67108864,\"seconds\":1.5,\"ms\":0.25},\"parts\":[]"
     "}"},
};

static void good_texts_become_structs(void)
{
    setenv("WP_TEST_ONE", "1", 1);
    setenv("WP_TEST_EMPTY", "", 1);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct wp_buf out = {0};
        struct wp_conf c = {.errors = &out};
        struct all a = {0};
        char path[256];

        snprintf(path, sizeof path, "%s/conf/",
                 getenv("WP_TEST_DATA") ? getenv("WP_TEST_DATA") : "tests/data");
        c.dir = path;
        EXPECT_INT(good[i].label, 0, wp_conf_read_text(&c, "f", wp_str_of(good[i].text)));
        EXPECT_INT(good[i].label, 0, wp_conf_bind(&c, rows, &a));
        EXPECT_INT(good[i].label, 0, wp_conf_json(rows, &a, &out));
        EXPECT_TEXT(good[i].label, good[i].want, wp_buf_str(&out));
        if (a.secret && *a.secret) {
            EXPECT_TEXT("secret", "s3cret", wp_str_of(a.secret));
            EXPECT_TEXT("first of the secrets", "key-one", wp_str_of(a.secrets[0]));
            EXPECT_TEXT("second of the secrets", "key-two", wp_str_of(a.secrets[1]));
            EXPECT_TRUE("no third", a.secrets[2] == NULL);
        }
        wp_conf_clear(rows, &a);
        wp_conf_fini(&c);
        wp_buf_fini(&out);
    }
}

static const struct {
    const char *label, *text, *want;
} bad[] = {
    {"unknown key", "smal: 3\n", "f:1: smal: unknown key; did you mean \"small\"?\n"},
    {"unknown inside", "\ninner:\n  bites: 3\n",
     "f:3: inner.bites: unknown key; did you mean \"bytes\"?\n"},
    {"nothing like it", "zzzzzzz: 3\n", "f:1: zzzzzzz: unknown key\n"},
    {"of a later version", "tls: {cert: x}\n", "f:1: tls: not in this version\n"},
    {"out of bounds", "small: 65\n", "f:1: small: want a whole number from 0 to 64, got 65\n"},
    {"negative", "small: -3\n", "f:1: small: want a whole number from 0 to 64, got -3\n"},
    {"quoted and no number", "small: \"x\"\n",
     "f:1: small: want a whole number from 0 to 64, got \"x\"\n"},
    {"yes is not true", "flag: yes\n", "f:1: flag: want true or false, got yes\n"},
    {"too large for 64 bits", "big: 18446744073709551616\n",
     "f:1: big: want a whole number, got 18446744073709551616\n"},
    {"not a number", "real: nan\n", "f:1: real: want a number from 0 to 1, got nan\n"},
    {"bytes", "inner: {bytes: 2Gi}\n",
     "f:1: inner.bytes: want bytes (64Mi) from 1Ki to 1Gi, got 2Gi\n"},
    {"seconds", "inner: {seconds: -1}\n",
     "f:1: inner.seconds: want seconds from 0 to 60, got -1\n"},
    {"a choice", "level: hgih\n",
     "f:1: level: want low, middle or high, got hgih; did you mean \"high\"?\n"},
    {"a choice, nearly", "level: lowest of all\ncolour: gren\n",
     "f:1: level: want low, middle or high, got lowest of all\n"
     "f:2: colour: want green or purple, got gren; did you mean \"green\"?\n"},
    {"a check of its own", "text: bad\n", "f:1: text: want anything else, got \"bad\"\n"},
    {"text instead of a table", "inner: 3\n", "f:1: inner: want a table of keys, got 3\n"},
    {"text instead of a list", "parts: x\nlist: y\n",
     "f:1: parts: want a list of tables, got x\nf:2: list: want a list of text, got y\n"},
    {"a list instead of text", "text: [a]\nsmall: {a: b}\n",
     "f:1: text: want text, got a list\n"
     "f:2: small: want a whole number from 0 to 64, got a table\n"},
    {"a table in a list of text", "list:\n- a\n- {b: c}\n",
     "f:3: list.1: want text, got a table\n"},
    {"what an item must have", "parts:\n- name: a\n- n: 3\n",
     "f:3: parts.1.name: want text, got nothing\n"},
    {"an empty must", "parts: [{name: }]\n", "f:1: parts.0.name: want text, got nothing\n"},
    {"an item of another kind", "parts: [x]\n", "f:1: parts.0: want a table of keys, got x\n"},
    {"several errors, all told", "small: x\ninner:\n  ms: y\nparts:\n- {name: a, n: 0}\n",
     "f:1: small: want a whole number from 0 to 64, got x\n"
     "f:3: inner.ms: want milliseconds from 0 to 1000, got y\n"
     "f:5: parts.0.n: want a whole number from 1 to 9, got 0\n"},
    {"duplicate key", "small: 1\nbig: 2\nsmall: 3\n",
     "f:3: small: duplicate key, first in line 1\n"},
    {"duplicate key in JSON", "{\"small\": 1,\n\"small\": 2}",
     "f:2: duplicate object key near '\"small\"'\n"},
    {"alias", "list: &a [x]\n", "f:1: anchors are not accepted\n"},
    {"alias without an anchor", "list: *a\n", "f:1: aliases are not accepted\n"},
    {"merge key", "inner:\n  <<: {ms: 1}\n", "f:2: merge keys are not accepted\n"},
    {"tag", "text: !!str 3\n", "f:1: tags are not accepted\n"},
    {"second document", "small: 1\n---\nsmall: 2\n", "f:2: want one document, got a second\n"},
    {"a list as a key", "? [a]\n: b\n", "f:1: want text as a key\n"},
    {"tab", "inner:\n\tms: 1\n", "f:2: want blanks for indentation, got a tab\n"},
    {"not UTF-8", "small: 1\ntext: \xFF\n", "f:2: want UTF-8, got byte 0xFF\n"},
    {"half a quote", "small: 1\ntext: \"abc\n",
     "f:3: found unexpected end of stream, while scanning a quoted scalar\n"},
    {"a control byte", "small: 1\ntext: a\x01\n", "f:2: control characters are not allowed\n"},
    {"not a table at all", "- a\n", "f:1: want a table of keys, got a list\n"},
    {"text alone", "hello\n", "f:1: want a table of keys, got hello\n"},
    {"a NUL from an escape", "text: \"a\\0b\"\n", "f:1: text: want text without NULs\n"},
    {"JSON that is not", "{\"small\": 1,\n\"big\": }", "f:2: unexpected token near '}'\n"},
    {"JSON with something behind", "{}\nx", "f:2: end of file expected near 'x'\n"},
    {"YAML between braces", "{small: 1}", "f:1: string or '}' expected near 'small'\n"},
    {"lines of JSON", "{\n\"inner\": {\n\"ms\":\n[\n]},\n\"small\": \"x\"}",
     "f:3: inner.ms: want milliseconds from 0 to 1000, got a list\n"
     "f:6: small: want a whole number from 0 to 64, got \"x\"\n"},
    {"environment without quotes", "text: ${WP_TEST_ONE}\n",
     "f:1: text: want quotes around text with ${, got ${WP_TEST_ONE}\n"},
    {"environment not set", "text: \"${WP_TEST_UNSET}\"\n",
     "f:1: text: environment variable WP_TEST_UNSET is not set\n"},
    {"environment without an end", "text: \"a${WP\"\n",
     "f:1: text: want ${NAME}, or $${ for ${ itself, got \"a${WP\"\n"},
    {"environment without a name", "text: \"${}\"\n",
     "f:1: text: want ${NAME}, or $${ for ${ itself, got \"${}\"\n"},
    {"the environment's value is not shown", "small: \"${WP_TEST_SECRET}\"\n",
     "f:1: small: want a whole number from 0 to 64, got \"${WP_TEST_SECRET}\"\n"},
    {"secret not there", "secret_file: /nowhere/at/all\n",
     "f:1: secret_file: want a file to read, got \"/nowhere/at/all\": not found\n"},
    {"secret from a folder", "secret_file: /\n",
     "f:1: secret_file: want a file to read, got \"/\": not a regular file\n"},
    {"a name with an equals sign", "pairs: {\"a=b\": c}\n",
     "f:1: pairs.a=b: want a name without =, got c\n"},
    {"a key that would start a line", "\"a\\nb\": 1\n", "f:1: a?b: unknown key\n"},
};

static void bad_texts_are_refused_with_their_line(void)
{
    setenv("WP_TEST_ONE", "1", 1);
    setenv("WP_TEST_SECRET", "hush", 1);
    unsetenv("WP_TEST_UNSET");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect(bad[i].label, wp_str_of(bad[i].text), NULL, bad[i].want);
    expect("a NUL byte", (struct wp_str){"small: 1\n\0", 10}, NULL,
           "f:2: want text, got a NUL byte\n");
}

static const struct {
    const char *label, *text, *set[3], *want;
} sets[] = {
    {"a scalar",
     "small: 2",
     {"small=3", "inner.seconds=2", "small=4"},
     "{\"flag\":false,\"small\":4,\"big\":0,\"real\":0.1,\"text\":\"t\",\"colour\":\"green\","
     "\"level\":\"middle\",\"list\":[],\"pairs\":{},\"secret_file\":null,\"secrets_file\":null,"
     "\"inner\":{\"bytes\":67108864,\"seconds\":2,\"ms\":0.25},\"parts\":[]}"},
    {"lists and tables of text",
     "",
     {"list=[x, 'y']", "list.+=${Z}", "pairs.a.b=c=d"},
     "{\"flag\":false,\"small\":1,\"big\":0,\"real\":0.1,\"text\":\"t\",\"colour\":\"green\","
     "\"level\":\"middle\",\"list\":[\"x\",\"y\",\"${Z}\"],\"pairs\":{\"a.b\":\"c=d\"},"
     "\"secret_file\":null,\"secrets_file\":null,"
     "\"inner\":{\"bytes\":67108864,\"seconds\":1.5,\"ms\":0.25},\"parts\":[]}"},
    {"items of lists",
     "parts:\n- name: a\n",
     {"parts.0.n=3", "parts.1.name=b", "parts.+={name: c}"},
     "{\"flag\":false,\"small\":1,\"big\":0,\"real\":0.1,\"text\":\"t\",\"colour\":\"green\","
     "\"level\":\"middle\",\"list\":[],\"pairs\":{},\"secret_file\":null,\"secrets_file\":null,"
     "\"inner\":{\"bytes\":67108864,\"seconds\":1.5,\"ms\":0.25},"
     "\"parts\":[{\"name\":\"a\",\"n\":3,\"tags\":{}},{\"name\":\"b\",\"n\":7,\"tags\":{}},"
     "{\"name\":\"c\",\"n\":7,\"tags\":{}}]}"},
    {"an empty text",
     "",
     {"text="},
     "{\"flag\":false,\"small\":1,\"big\":0,\"real\":0.1,\"text\":\"\",\"colour\":\"green\","
     "\"level\":\"middle\",\"list\":[],\"pairs\":{},\"secret_file\":null,\"secrets_file\":null,"
     "\"inner\":{\"bytes\":67108864,\"seconds\":1.5,\"ms\":0.25},\"parts\":[]}"},
    {"bad values",
     "",
     {"inner.ms=x", "parts.0.n=3"},
     "--set inner.ms: want milliseconds from 0 to 1000, got x\n"
     "--set parts.0.n: parts.0.name: want text, got nothing\n"},
    {"unknown",
     "",
     {"inner.mss=x", "smal=3"},
     "--set inner.mss: unknown key; did you mean \"ms\"?\n"
     "--set smal: unknown key; did you mean \"small\"?\n"},
    {"no value", "", {"small", "=3"}, "--set small: want KEY=VALUE\n--set : want KEY=VALUE\n"},
    {"past the end of a list",
     "",
     {"parts.1.name=x"},
     "--set parts.1.name: parts.1: want an item from 0 to 0, or +\n"},
    {"by a flag of its own", "", {"--small small=x"}, "--small: want a whole number from 0 to 64, got x\n"},
    {"below a scalar", "", {"small.x=3"}, "--set small.x: small: has no keys of its own\n"},
    {"a later version's", "", {"tls.cert=x"}, "--set tls.cert: tls: not in this version\n"},
    {"text for a table", "", {"inner=3"}, "--set inner: want a table of keys, got 3\n"},
    {"bad YAML",
     "",
     {"list=[a"},
     "--set list: did not find expected ',' or ']', while parsing a flow sequence\n"},
    {"an alias", "", {"list=[*a]"}, "--set list: aliases are not accepted\n"},
    {"not UTF-8", "", {"text=\xFF"}, "--set text: want UTF-8\n"},
};

static void the_command_line_reaches_every_key(void)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        expect(sets[i].label, wp_str_of(sets[i].text), sets[i].set, sets[i].want);
}

static void a_list_item_fits_in_one_word(void)
{
    static const struct {
        const char *spec, *want; /* the parts as JSON, or the errors */
    } cases[] = {
        {"x", "[{\"name\":\"a\",\"n\":7,\"tags\":{}},{\"name\":\"x\",\"n\":7,\"tags\":{}}]"},
        {"x,n=3,tags.k=v",
         "[{\"name\":\"a\",\"n\":7,\"tags\":{}},{\"name\":\"x\",\"n\":3,\"tags\":{\"k\":\"v\"}}]"},
        {"x,n=0", "--part x: parts.1.n: want a whole number from 1 to 9, got 0\n"},
        {"x,m=0", "--part x: parts.1.m: unknown key; did you mean \"n\"?\n"},
        {"x,n", "--part x: parts.1: want VALUE[,key=value]...\n"},
        {"", "--part : parts.1.name: want text, got \"\"\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_buf out = {0};
        struct wp_conf c = {.errors = &out};
        struct all a = {0};
        const char *at;

        wp_conf_read_text(&c, "f", WP_STR("parts: [{name: a}]"));
        wp_conf_spec(&c, rows, "parts", "name", "--part", cases[i].spec);
        if (c.n_errors == 0 && wp_conf_bind(&c, rows, &a) == 0) {
            wp_conf_json(rows, &a, &out);
            wp_buf_add(&out, "", 1);
            at = strstr(out.p, "\"parts\":");
            EXPECT_TRUE(cases[i].spec,
                        at && strncmp(at + 8, cases[i].want, strlen(cases[i].want)) == 0);
        } else {
            EXPECT_TEXT(cases[i].spec, cases[i].want, wp_buf_str(&out));
        }
        wp_conf_clear(rows, &a);
        wp_conf_fini(&c);
        wp_buf_fini(&out);
    }
}

static void sizes_and_depths_are_bounded(void)
{
    struct wp_buf text = {0}, out = {0};
    struct all a;

    for (int i = 0; i < 1000; i++)
        wp_buf_adds(&text, "[");
    EXPECT_INT("deep YAML", WP_EINVAL, read_all(&a, "f", wp_buf_str(&text), NULL, &out));
    EXPECT_TEXT("deep YAML", "f:1: nested too deeply\n", wp_buf_str(&out));

    text.n = out.n = 0;
    wp_buf_adds(&text, "{\"list\":");
    for (int i = 0; i < 1000; i++)
        wp_buf_adds(&text, "[");
    for (int i = 0; i < 1000; i++)
        wp_buf_adds(&text, "]");
    wp_buf_adds(&text, "}");
    EXPECT_INT("deep JSON", WP_EINVAL, read_all(&a, "f", wp_buf_str(&text), NULL, &out));
    EXPECT_TEXT("deep JSON", "f:1: nested too deeply\n", wp_buf_str(&out));

    text.n = out.n = 0;
    for (int i = 0; i < 600; i++)
        wp_buf_printf(&text, "k%d: 1\n", i);
    EXPECT_INT("many keys", WP_EINVAL, read_all(&a, "f", wp_buf_str(&text), NULL, &out));
    EXPECT_TEXT("many keys", "f:513: want at most 512 keys in a table, got more\n",
                wp_buf_str(&out));

    text.n = out.n = 0;
    wp_buf_adds(&text, "list: [");
    for (int i = 0; i < 300001; i++)
        wp_buf_adds(&text, "a,");
    wp_buf_adds(&text, "]");
    EXPECT_INT("many values", WP_EINVAL, read_all(&a, "f", wp_buf_str(&text), NULL, &out));
    EXPECT_TEXT("many values", "f:1: want at most 300000 values, got more\n", wp_buf_str(&out));

    text.n = out.n = 0;
    for (int i = 0; i < 200; i++)
        wp_buf_printf(&text, "k%d: 1\n", i);
    EXPECT_INT("many errors", WP_EINVAL, read_all(&a, "f", wp_buf_str(&text), NULL, &out));
    wp_conf_clear(rows, &a);
    EXPECT_TRUE("fifty are told", out.n < 50 * 30);

    text.n = out.n = 0;
    wp_buf_reserve(&text, (16 << 20) + 1);
    memset(text.p, ' ', (16 << 20) + 1);
    text.n = (16 << 20) + 1;
    EXPECT_INT("many bytes", WP_EINVAL, read_all(&a, "f", wp_buf_str(&text), NULL, &out));
    EXPECT_TEXT("many bytes", "f: want at most 16 MiB, got more\n", wp_buf_str(&out));
    wp_buf_fini(&text);
    wp_buf_fini(&out);
}

static void a_file_that_cannot_be_read_says_why(void)
{
    static const struct {
        const char *path, *want;
    } cases[] = {
        {"/nowhere/x.yaml", "/nowhere/x.yaml: cannot be read: not found\n"},
        {"/", "/: cannot be read: not a regular file\n"},
    };

    for (size_t i = 0; i < 2; i++) {
        struct wp_buf out = {0};
        struct wp_conf c = {.errors = &out};

        EXPECT_INT(cases[i].path, WP_EINVAL, wp_conf_read_file(&c, cases[i].path));
        EXPECT_TEXT(cases[i].path, cases[i].want, wp_buf_str(&out));
        wp_conf_fini(&c);
        wp_buf_fini(&out);
    }
}

static void errors_across_keys_find_their_line(void)
{
    struct wp_buf out = {0};
    struct wp_conf c = {.errors = &out};

    wp_conf_read_text(&c, "f", WP_STR("small: 1\ninner:\n  ms: 3\nparts:\n- name: a\n- name: b\n"));
    wp_conf_error(&c, "inner.ms", "no");
    wp_conf_error(&c, "inner.bytes", "no");
    wp_conf_error(&c, "parts.1.name", "no");
    wp_conf_error(&c, "real", "no");
    EXPECT_TEXT("places",
                "f:3: inner.ms: no\nf:2: inner.bytes: no\nf:6: parts.1.name: no\nf:1: real: no\n",
                wp_buf_str(&out));
    wp_conf_fini(&c);
    out.n = 0;
    c = (struct wp_conf){.errors = &out};
    wp_conf_error(&c, "real", "no");
    EXPECT_TEXT("no text", "defaults: real: no\n", wp_buf_str(&out));
    wp_conf_fini(&c);
    wp_buf_fini(&out);
}

static void what_differs_is_a_line_a_key(void)
{
    struct wp_buf out = {0};
    struct all a, b;

    EXPECT_INT(
        "a", 0,
        read_all(&a, "f", WP_STR("small: 2\nparts: [{name: x}, {name: y, n: 2}]"), NULL, &out));
    EXPECT_INT("b", 0,
               read_all(&b, "f",
                        WP_STR("text: new\nlist: [a]\nparts: [{name: y, n: 3}, {name: z}]\n"
                               "secret_file: tests/data/conf/secret"),
                        NULL, &out));
    EXPECT_INT("diff", 0, wp_conf_diff(rows, &a, &b, &out));
    EXPECT_TEXT("diff",
                "small: 2 -> 1\ntext: \"t\" -> \"new\"\nlist: [] -> [\"a\"]\nsecret_file: changed\n"
                "parts.x: removed\nparts.y.n: 2 -> 3\nparts.z: added\n",
                wp_buf_str(&out));
    out.n = 0;
    EXPECT_INT("diff", 0, wp_conf_diff(rows, &b, &b, &out));
    EXPECT_UINT("the same", 0, out.n);
    wp_conf_clear(rows, &a);
    EXPECT_INT("copy", 0, wp_conf_copy(rows, &a, &b));
    EXPECT_INT("diff", 0, wp_conf_diff(rows, &a, &b, &out));
    EXPECT_UINT("a copy is the same", 0, out.n);
    wp_conf_clear(rows, &a);
    wp_conf_clear(rows, &b);
    wp_buf_fini(&out);
}

static void the_help_names_type_default_and_meaning(void)
{
    struct wp_buf out = {0};

    EXPECT_INT("help", 0, wp_conf_help(part_rows, &out));
    EXPECT_TEXT("help",
                "name: text; must be given\n    m\n"
                "n: a whole number from 1 to 9; default 7\n    m\n"
                "tags: a table of text\n    m\n",
                wp_buf_str(&out));
    out.n = 0;
    EXPECT_INT("help", 0, wp_conf_help(rows, &out));
    wp_buf_add(&out, "", 1);
    EXPECT_TRUE("nested",
                out.p && strstr(out.p, "\ninner.seconds: seconds from 0 to 60; default 1.5\n"));
    EXPECT_TRUE("items", out.p && strstr(out.p, "\nparts[].name: text; must be given\n"));
    EXPECT_TRUE("later versions' are not there", out.p && !strstr(out.p, "tls"));
    wp_buf_fini(&out);
}

static void a_text_from_elsewhere_reads_no_files_and_no_environment(void)
{
    struct wp_buf out = {0};
    struct wp_conf c = {.errors = &out, .foreign = true};
    struct all a = {0};

    setenv("WP_TEST_SECRET", "hush", 1);
    wp_conf_read_text(&c, "body", WP_STR("{\"text\": \"${WP_TEST_SECRET}\"}"));
    EXPECT_INT("bind", 0, wp_conf_bind(&c, rows, &a));
    EXPECT_TEXT("as it stands", "${WP_TEST_SECRET}", wp_str_of(a.text));
    wp_conf_clear(rows, &a);
    wp_conf_fini(&c);
    wp_conf_read_text(&c, "body", WP_STR("{\"secret_file\": \"tests/data/conf/secret\"}"));
    EXPECT_INT("bind", WP_EINVAL, wp_conf_bind(&c, rows, &a));
    EXPECT_TEXT("refused", "body:1: secret_file: only the configuration file may name files\n",
                wp_buf_str(&out));
    wp_conf_clear(rows, &a);
    wp_conf_fini(&c);
    wp_buf_fini(&out);
}

static void no_allocation_that_fails_breaks_or_leaks(void)
{
    static const char *const set[3] = {"list=[a, b]", "pairs.a=b", "parts.+={name: y}"};
    static const char *const texts[] = {
        ("small: 3\ntext: \"${WP_TEST_ONE}\"\nparts: [{name: x, tags: {a: b}}]\n"
        "secret_file: tests/data/conf/secret\nsecrets_file: tests/data/conf/secrets\n"),
        "{\"text\": \"x\", \"list\": [\"a\"]}",
        "small: x\nunknown: y\n",
    };
    long before = wp_mem_live();

    setenv("WP_TEST_ONE", "1", 1);
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++)
        for (long nth = 0;; nth++) {
            struct wp_buf out = {0}, json = {0};
            struct all a, b = {0};
            bool failed;
            int rc;

            wp_mem_fail_after(nth);
            rc = read_all(&a, "f", wp_str_of(texts[t]), set, &out);
            if (rc == 0)
                rc = wp_conf_copy(rows, &b, &a);
            if (rc == 0)
                rc = wp_conf_json(rows, &a, &json);
            if (rc == 0)
                rc = wp_conf_diff(rows, &a, &b, &json);
            failed = wp_mem_failed();
            wp_mem_fail_after(-1);
            EXPECT_INT("result", failed ? WP_ENOMEM : t == 2 ? WP_EINVAL : 0, rc);
            wp_conf_clear(rows, &a);
            wp_conf_clear(rows, &b);
            wp_buf_fini(&out);
            wp_buf_fini(&json);
            EXPECT_INT("nothing leaks", before, wp_mem_live());
            if (!failed)
                break;
        }
}

const struct wp_suite suite_conf = {
    "conf",
    (const struct wp_test[]){
        {"good texts become structs", good_texts_become_structs},
        {"bad texts are refused with their line", bad_texts_are_refused_with_their_line},
        {"the command line reaches every key", the_command_line_reaches_every_key},
        {"a list item fits in one word", a_list_item_fits_in_one_word},
        {"sizes and depths are bounded", sizes_and_depths_are_bounded},
        {"a file that cannot be read says why", a_file_that_cannot_be_read_says_why},
        {"errors across keys find their line", errors_across_keys_find_their_line},
        {"what differs is a line a key", what_differs_is_a_line_a_key},
        {"the help names type, default and meaning", the_help_names_type_default_and_meaning},
        {"a text from elsewhere reads no files and no environment",
         a_text_from_elsewhere_reads_no_files_and_no_environment},
        {"no allocation that fails breaks or leaks", no_allocation_that_fails_breaks_or_leaks},
        {NULL, NULL},
    },
};
