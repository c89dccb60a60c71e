/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/form.h - one field of a multipart/form-data body, where it lies: audio and image requests
 * name their model in one. Nothing is decoded, copied or rebuilt.  Cost: one pass over the body.
 * Source: RFC 7578, RFC 2046 5.1.1.
 */
#ifndef WP_ROUTER_FORM_H
#define WP_ROUTER_FORM_H

#include "base/str.h"

/* Whether a Content-Type is a multipart one. */
bool wp_form_is(struct wp_str type);
/*
 * The text of the field called name, the last of them when there are several; files do not count.
 * Absent when there is none. Returns 0, or WP_EPROTO with *why (static text): the type has no
 * boundary, or the body is not cut by it from its start to a closing one.
 */
int wp_form_field(struct wp_str type, struct wp_str body, const char *name, struct wp_str *value,
                  const char **why);

#endif
