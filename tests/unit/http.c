/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http.h"
#include "tests/lib/test.h"

#define S(lit) {lit, sizeof(lit) - 1}

static void fields_are_found_by_name_in_any_case(void)
{
    struct wp_head h = {.field = {{S("Host"), S("a")}, {S("X-One"), S("1")}, {S("x-one"), S("2")}}, .n_fields = 3};

    EXPECT_TEXT("first", "1", wp_head_get(&h, "X-ONE"));
    EXPECT_TRUE("absent", wp_head_get(&h, "x-two").p == NULL);
}

static void what_ends_at_this_hop_is_known(void)
{
    struct wp_head h = {.field = {{S("Connection"), S("keep-alive, X-Private ,host")},
                                  {S("connection"), S("x-second, content-length")}},
                        .n_fields = 2};
    static const struct {
        const char *name;
        bool want;
    } cases[] = {
        {"Connection", true},     {"Keep-Alive", true},       {"Proxy-Authorization", true}, {"proxy-connection", true},
        {"TE", true},             {"Trailer", true},          {"Transfer-Encoding", true},   {"Upgrade", true},
        {"X-Private", true},      {"x-SECOND", true},         {"X-Public", false},           {"Host", false},
        {"Content-Length", false}, {"X-Privat", false},       {"Proxy", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        EXPECT_INT(cases[i].name, cases[i].want, wp_hop_by_hop(&h, wp_str_of(cases[i].name)));
    EXPECT_TRUE("token", wp_head_has_token(&h, "connection", "KEEP-ALIVE"));
    EXPECT_TRUE("no token", !wp_head_has_token(&h, "connection", "keep"));
}

static void a_target_has_a_path_and_a_query(void)
{
    EXPECT_TEXT("path", "/a/b", wp_target_path(WP_STR("/a/b?x=1&y")));
    EXPECT_TEXT("query", "x=1&y", wp_target_query(WP_STR("/a/b?x=1&y")));
    EXPECT_TRUE("no query", wp_target_query(WP_STR("/a/b")).p == NULL);
    EXPECT_TRUE("empty query", wp_target_query(WP_STR("/a?")).p != NULL);
    EXPECT_TEXT("value", "1", wp_query_get(WP_STR("xx=2&x=1&y"), "x"));
    EXPECT_TRUE("no value", wp_query_get(WP_STR("x=1&y"), "y").p != NULL);
    EXPECT_TRUE("not there", wp_query_get(WP_STR("x=1&y"), "z").p == NULL);
    EXPECT_TRUE("nowhere", wp_query_get((struct wp_str){0}, "z").p == NULL);
}

static void a_status_has_its_reason(void)
{
    EXPECT_TEXT("404", "Not Found", wp_str_of(wp_reason(404)));
    EXPECT_TEXT("100", "Continue", wp_str_of(wp_reason(100)));
    EXPECT_TEXT("507", "Insufficient Storage", wp_str_of(wp_reason(507)));
    EXPECT_TEXT("unknown", "", wp_str_of(wp_reason(599)));
}

static void a_url_is_scheme_host_port_and_base(void)
{
    static const struct {
        const char *text;
        bool ok, tls;
        const char *host;
        int port;
        const char *path;
    } cases[] = {
        {"http://10.0.0.1:8000", true, false, "10.0.0.1", 8000, ""},
        {"http://w", true, false, "w", 80, ""},
        {"HTTPS://w/", true, true, "w", 443, ""},
        {"http://[::1]:9/base//", true, false, "::1", 9, "/base"},
        {"http://[::1]", true, false, "::1", 80, ""},
        {"http://w/a/b", true, false, "w", 80, "/a/b"},
        {"", false, false, "", 0, ""},
        {"w:80", false, false, "", 0, ""},
        {"ftp://w", false, false, "", 0, ""},
        {"http://", false, false, "", 0, ""},
        {"http:///x", false, false, "", 0, ""},
        {"http://:80", false, false, "", 0, ""},
        {"http://w:0", false, false, "", 0, ""},
        {"http://w:", false, false, "", 0, ""},
        {"http://w:65536", false, false, "", 0, ""},
        {"http://w:8o", false, false, "", 0, ""},
        {"http://u@w", false, false, "", 0, ""},
        {"http://w?x", false, false, "", 0, ""},
        {"http://w/#x", false, false, "", 0, ""},
        {"http://w /x", false, false, "", 0, ""},
        {"http://::1/", false, false, "", 0, ""},
        {"http://[::1", false, false, "", 0, ""},
        {"http://[::1]x", false, false, "", 0, ""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *why = NULL;
        struct wp_url u;
        bool ok = wp_url_parse(wp_str_of(cases[i].text), &u, &why);

        EXPECT_INT(cases[i].text, cases[i].ok, ok);
        EXPECT_TRUE(cases[i].text, (why == NULL) == ok);
        if (!ok)
            continue;
        EXPECT_INT(cases[i].text, cases[i].tls, u.tls);
        EXPECT_TEXT(cases[i].text, cases[i].host, u.host);
        EXPECT_INT(cases[i].text, cases[i].port, u.port);
        EXPECT_TEXT(cases[i].text, cases[i].path, u.path);
    }
}

static void an_address_is_host_and_port(void)
{
    static const struct {
        const char *text;
        bool ok;
        const char *host;
        int port;
    } cases[] = {
        {"127.0.0.1:30000", true, "127.0.0.1", 30000}, {":8000", true, "", 8000}, {"[::]:0", true, "::", 0},
        {"localhost:1", true, "localhost", 1},         {"127.0.0.1", false, "", 0}, {"127.0.0.1:", false, "", 0},
        {"::1:80", false, "", 0},                      {"[::1]", false, "", 0},   {"[]:1", false, "", 0},
        {"w:70000", false, "", 0},                     {"w:-1", false, "", 0},    {"", false, "", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_str host;
        uint16_t port;
        bool ok = wp_hostport_parse(wp_str_of(cases[i].text), &host, &port);

        EXPECT_INT(cases[i].text, cases[i].ok, ok);
        if (!ok)
            continue;
        EXPECT_TEXT(cases[i].text, cases[i].host, host);
        EXPECT_INT(cases[i].text, cases[i].port, port);
    }
}

const struct wp_suite suite_http = {
    "http",
    (const struct wp_test[]){
        {"fields are found by name in any case", fields_are_found_by_name_in_any_case},
        {"what ends at this hop is known", what_ends_at_this_hop_is_known},
        {"a target has a path and a query", a_target_has_a_path_and_a_query},
        {"a status has its reason", a_status_has_its_reason},
        {"a URL is scheme, host, port and base", a_url_is_scheme_host_port_and_base},
        {"an address is host and port", an_address_is_host_and_port},
        {NULL, NULL},
    },
};
