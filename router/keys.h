/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/keys.h - API keys, and what each may do.
 *
 * One line of listen.api_keys_file, words apart by blanks:
 *     KEY [name=NAME] [models=A,B] [requests=N] [tokens=N] [at_once=N] [tenant=NAME] [any_tenant=yes] [priority=N]
 * KEY is the key itself, or "sha256:" and the 64 hex digits of its SHA-256, so that the file gives nobody away.  name: for the log and for
 * refusals ("key 3" without).  models: what it may ask for, by the names of requests.  requests, tokens: so many a minute;
 * tokens are those of prompts and answers.  at_once: requests under way.  tenant: whose its requests are (router/tenants.h), whatever
 * they say, unless any_tenant lets them say it.  priority: the best one, which is the lowest number, that they may ask for; 0 without.
 *
 * A limit of N a minute is a bucket of N that fills by N a minute: who was silent may send N at once.  A request takes one of `requests` when it begins, its
 * prompt from `tokens` when it has been read and its answer when that has ended; below nothing the next one waits.
 * What was used outlives a reload, for as long as the key stands in the file.
 *
 * Only digests are kept; a key that is asked about is hashed, and compared with all of them, each in constant time.
 * Threads: any.  Cost: a hash and 32 bytes a key, once a request; one lock a limit.
 */
#ifndef WP_ROUTER_KEYS_H
#define WP_ROUTER_KEYS_H

#include "base/err.h"
#include "net/http.h"

struct wp_keys; /* of one configuration */
struct wp_key;

/*
 * lines: NULL-ended, as the file has them.  was: the keys in force, whose use goes on; NULL: none.  Errors: WP_ENOMEM; WP_EINVAL with
 * which key and what is wrong, never with the key.
 */
int wp_keys_create(struct wp_keys **out, char *const lines[], const struct wp_keys *was, struct wp_err *err);
void wp_keys_destroy(struct wp_keys *k); /* requests under way keep what they need */
size_t wp_keys_count(const struct wp_keys *k);

/* The request's (Authorization: Bearer or x-api-key), or NULL.  Lives as long as the keys. */
const struct wp_key *wp_keys_find(const struct wp_keys *k, const struct wp_head *h);

const char *wp_key_name(const struct wp_key *k);
bool wp_key_may(const struct wp_key *k, struct wp_str model); /* true for every model when none is named; k may be NULL: no key, no limits */

const char *wp_key_tenant(const struct wp_key *k); /* "": its requests say it */
bool wp_key_any_tenant(const struct wp_key *k);
int wp_key_best(const struct wp_key *k);

enum wp_key_no { WP_KEY_OK, WP_KEY_REQUESTS, WP_KEY_TOKENS, WP_KEY_AT_ONCE };
extern const char *const wp_key_no_names[]; /* as in the refusal's param */

/* What a request under way owes to its key; {0} before.  Embed it. */
struct wp_key_turn {
    struct wp_key_use *use; /* a reference; NULL: nothing */
};
/* May it begin?  When not: what stands in the way, its limit, and when to come again. */
enum wp_key_no wp_key_begin(const struct wp_key *k, struct wp_key_turn *turn, uint64_t now_us, uint64_t *limit, uint64_t *retry_us);
void wp_key_spend(struct wp_key_turn *turn, uint64_t now_us, uint64_t tokens);
void wp_key_end(struct wp_key_turn *turn); /* once or often */

#endif
