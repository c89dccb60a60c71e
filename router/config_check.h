/* SPDX-License-Identifier: Apache-2.0 */
/* router/config_check.h - what a row cannot say with bounds alone: checks of one value, and checks
 * across keys. */
#ifndef WP_ROUTER_CONFIG_CHECK_H
#define WP_ROUTER_CONFIG_CHECK_H

#include "router/config.h"

/* For rows: 0, or WP_EINVAL with all of the sentence but the key. */
int wp_check_address(const char *text, struct wp_err *err); /* host:port, :port */
int wp_check_endpoint(const char *text, struct wp_err *err); /* of ZeroMQ */
int wp_check_events(const char *text, struct wp_err *err);   /* or "none" */
int wp_check_url(const char *text, struct wp_err *err);     /* http://host:port[/base] */
int wp_check_ca(const char *text, struct wp_err *err);      /* a PEM file of authorities */
int wp_check_id(const char *text, struct wp_err *err); /* may stand in a path and in a header */
int wp_check_header(const char *text, struct wp_err *err);
int wp_check_path(const char *text, struct wp_err *err);
int wp_check_engine(const char *text, struct wp_err *err);
int wp_check_policy(const char *text, struct wp_err *err);
int wp_check_profile(const char *text, struct wp_err *err);
int wp_check_tokenizer(const char *text, struct wp_err *err);

/* For rows: the names, NULL past the end. */
const char *wp_known_engine(size_t i);
const char *wp_known_tokenizer(size_t i);

/* Whether an address that wp_check_address() accepts is reached from this host only: 127.0.0.0/8,
 * ::1, localhost. */
bool wp_is_loopback(const char *address);

/* Checks across keys and names the workers; errors go to conf. */
void wp_config_check(struct wp_conf *conf, struct wp_config *c);
/* A worker without an id gets its URL's host:port.  Errors: WP_ENOMEM. */
int wp_config_name_worker(struct wp_config_worker *w);

#endif
