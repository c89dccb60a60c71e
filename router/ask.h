/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/ask.h - a body understood: which model, what prompt, how many tokens; or what is wrong with it.
 * The same for a request that is dispatched and for POST /explain.
 */
#ifndef WP_ROUTER_ASK_H
#define WP_ROUTER_ASK_H

#include "net/http.h"
#include "router/fleet.h"
#include "router/outline.h"

struct wp_refusal {
    int status;
    const char *code, *param; /* param may be NULL */
    uint64_t retry_us;        /* 0: no Retry-After */
    bool final;               /* asking again is useless */
    char text[512];
};

struct wp_asked {
    struct wp_body json;      /* points into the body */
    struct wp_str model_name; /* as the client wrote it, decoded; absent when it did not */
    struct wp_model_info model;
    struct wp_prompt prompt; /* hashed; of its text and tokens only the lengths are left */
    const struct wp_outline *outline; /* for the prefix doctor; NULL: it is off, or there is no prompt */
    uint32_t tokens; /* of the prompt; estimated, and no more than the model takes, unless its kind is tokens */
};

int wp_refuse(struct wp_refusal *no, int status, const char *code, const char *param, uint64_t retry_us, const char *fmt, ...)
    __attribute__((format(printf, 6, 7))); /* returns WP_EINVAL */

/*
 * Reads body for a route.  form: the Content-Type of a body that is multipart and not JSON: of that only the field `model` is read, and
 * it is placed by load; absent else.  Everything found lives in arena or points into body.
 * Errors: WP_EINVAL with *no filled.
 */
int wp_ask_read(struct wp_asked *a, struct wp_fleet *f, const struct wp_config *conf, enum wp_route_kind kind, struct wp_str form,
                struct wp_str body, struct wp_arena *arena, struct wp_refusal *no);
/* The prompt's ids are known after all: it is hashed anew, as tokens. */
void wp_ask_tokens(struct wp_asked *a, const uint32_t token[], size_t n, struct wp_arena *arena);
/* The session key's hash, 0 when there is none: fields first, then body members. */
uint64_t wp_session_key(const struct wp_head *h, const struct wp_body *b);
/* Which kind of request a body is, by its members: for POST /explain. */
enum wp_route_kind wp_ask_guess(struct wp_str body);

#endif
