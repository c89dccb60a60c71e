/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/http.h - HTTP messages, whatever version carries them: heads, fields, framing.
 * net/http1.h reads and writes them as HTTP/1.1; net/server.h and net/client.h hand them out.
 */
#ifndef WP_NET_HTTP_H
#define WP_NET_HTTP_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct wp_field {
    struct wp_str name, value; /* name as it came; compare with wp_str_iis(); value without outer blanks */
};

enum { WP_FIELDS_MAX = 128 }; /* more in one head is refused: 431 */

/* A request's or a response's head.  Slices point into the bytes it was read from: see who owns those. */
struct wp_head {
    struct wp_str method, target; /* a request's; "GET", "/v1/models?x=1" */
    int status;                   /* a response's, else 0 */
    struct wp_str reason;
    int minor; /* HTTP/1.minor; 1 for HTTP/2 */
    struct wp_field field[WP_FIELDS_MAX];
    size_t n_fields;
    /* Framing, drawn from the fields by the reader: */
    int64_t content_length; /* -1: none said */
    bool chunked;
    bool keep_alive;      /* the sender's wish, version and Connection considered */
    bool expect_continue; /* Expect: 100-continue */
};

/* The value of the first field of that name (any case), or an absent slice. */
struct wp_str wp_head_get(const struct wp_head *h, const char *name);
bool wp_head_has_token(const struct wp_head *h, const char *name, const char *token); /* in a comma list */

/* Whether all that is expected (Expect) is 100-continue; *wanted: that is. */
bool wp_head_expects(const struct wp_head *h, bool *wanted);
/* host, host:port, [v6]:port; no user, no list.  Empty is legal for a target that has no authority. */
bool wp_host_ok(struct wp_str host);
/* A path with its query, as it stands in a request line: begins with '/', visible bytes of ASCII, no fragment. */
bool wp_path_ok(struct wp_str target);

/* The path of a target, without query; the query without its '?', absent when none. */
struct wp_str wp_target_path(struct wp_str target);
struct wp_str wp_target_query(struct wp_str target);
/* A query's value by name, undecoded; absent when not there. */
struct wp_str wp_query_get(struct wp_str query, const char *name);

/*
 * Fields that end at this hop (RFC 9110 7.6.1): Connection and all it names, Keep-Alive, Proxy-*, TE, Trailer,
 * Transfer-Encoding, Upgrade.  Content-Length and Host are not among them: whoever forwards decides on those.
 */
bool wp_hop_by_hop(const struct wp_head *h, struct wp_str name);

const char *wp_reason(int status); /* "Not Found"; "" for unknown ones */

/* An absolute URL of ours: http://host:port/base.  Slices point into text. */
struct wp_url {
    bool tls;
    struct wp_str host; /* without brackets */
    uint16_t port;      /* 80 or 443 when not written */
    struct wp_str path; /* "" or "/base", without a slash at the end */
};
/* False with a reason in *why (static text) when text is not an http or https URL, or has user, query, fragment. */
bool wp_url_parse(struct wp_str text, struct wp_url *out, const char **why);
/* "host:port", ":port" or "[v6]:port" -> host and port; false when it is not. */
bool wp_hostport_parse(struct wp_str text, struct wp_str *host, uint16_t *port);

#endif
